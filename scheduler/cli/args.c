/* SPDX-License-Identifier: Apache-2.0
 *
 * See args.h.
 */
#include "cli/args.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define ARGS_MAX 32
#define LONG_FIRST 256 /* getopt's value of args[0]; above every letter */

static void print_help(const struct command *command, const struct arg *args, size_t n)
{
	bool has_output = false;

	(void) printf("usage: croft %s%s%s\n\n%s\n\noptions:\n", command->name, *command->usage ? " " : "", command->usage,
		command->what);
	for (size_t i = 0; i < n; i++) {
		char left[64];

		(void) snprintf(left, sizeof(left), "%c%c%s --%s%s%s", args[i].letter ? '-' : ' ',
			args[i].letter ? args[i].letter : ' ', args[i].letter ? "," : " ", args[i].name,
			args[i].value ? " " : "", args[i].value ? args[i].value : "");
		(void) printf("  %-28s %s\n", left, args[i].help);
		has_output = has_output || args[i].type == ARG_OUTPUT;
	}
	if (!has_output)
		(void) printf("  %-28s %s\n", "-o, --output json|text", "How the result is printed.");
	(void) printf("  %-28s %s\n", "-h, --help", "Print this.");
}

int args_complain(const struct command *command, const char *fmt, ...)
{
	va_list ap;

	(void) fputs("croft: ", stderr);
	va_start(ap, fmt);
	(void) vfprintf(stderr, fmt, ap);
	va_end(ap);
	(void) fprintf(stderr, "\nusage: croft %s%s%s\n", command->name, *command->usage ? " " : "", command->usage);
	return EXIT_USAGE;
}

static bool parse_number(const char *text, uint64_t *ret, const char **ret_rest)
{
	char *end;

	if (!isdigit((unsigned char) *text))
		return false;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	*ret_rest = end;
	return errno == 0 && *ret > 0;
}

/* "512", "512M", "2G", "2GiB". */
static bool parse_size_mib(const char *text, uint64_t *ret)
{
	const char *rest;
	uint64_t n, factor = 1;

	if (!parse_number(text, &n, &rest))
		return false;
	if (*rest == 'G' || *rest == 'g')
		factor = 1024;
	else if (*rest == 'T' || *rest == 't')
		factor = 1024 * 1024;
	else if (*rest && *rest != 'M' && *rest != 'm')
		return false;
	if (*rest && rest[1] && strcmp(rest + 1, "iB") != 0 && strcmp(rest + 1, "B") != 0)
		return false;
	return !__builtin_mul_overflow(n, factor, ret);
}

static bool add_pair(json_t **object, const char *text)
{
	const char *equals = strchr(text, '=');
	CLEANUP_FREE char *name = equals ? strndup(text, (size_t) (equals - text)) : NULL;

	if (!name || !*name)
		return false;
	if (!*object)
		*object = json_object();
	return json_object_set_new(*object, name, json_string(equals + 1)) == 0;
}

static bool add_text(json_t **array, const char *text)
{
	if (!*array)
		*array = json_array();
	return json_array_append_new(*array, json_string(text)) == 0;
}

bool args_is_text(const char *text)
{
	json_t *json = json_string(text); /* which refuses what is not UTF-8 */

	json_decref(json);
	return json != NULL;
}

static bool set_form(enum output *form, const char *text)
{
	static const char *const names[] = { [OUTPUT_TEXT] = "text", [OUTPUT_JSON] = "json", [OUTPUT_CSV] = "csv",
		[OUTPUT_LINES] = "jsonl" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(names[i], text)) {
			*form = (enum output) i;
			return true;
		}
	return false;
}

static bool set_arg(const struct arg *arg, const char *text)
{
	const char *rest = "";

	switch (arg->type) {
	case ARG_FLAG:
		*(bool *) arg->to = true;
		return true;
	case ARG_STRING:
		*(const char **) arg->to = text;
		return args_is_text(text);
	case ARG_U64:
		return parse_number(text, arg->to, &rest) && !*rest;
	case ARG_SIZE_MIB:
		return parse_size_mib(text, arg->to);
	case ARG_DURATION:
		return clock_parse_duration(text, arg->to) == 0 && *(int64_t *) arg->to > 0;
	case ARG_PAIRS:
		return add_pair(arg->to, text);
	case ARG_TEXTS:
		return add_text(arg->to, text);
	case ARG_OUTPUT:
		return set_form(arg->to, text);
	}
	return false;
}

static bool set_output(struct cli *cli, const char *text)
{
	cli->json = !strcmp(text, "json");
	return cli->json || !strcmp(text, "text");
}

/* The tables that getopt_long() wants. */
static void make_tables(const struct arg *args, size_t n, struct option *longs, char *shorts)
{
	*shorts++ = ':';
	for (size_t i = 0; i < n; i++) {
		longs[i] = (struct option){ args[i].name, args[i].type == ARG_FLAG ? no_argument : required_argument, NULL,
			LONG_FIRST + (int) i };
		if (args[i].letter) {
			*shorts++ = args[i].letter;
			if (args[i].type != ARG_FLAG)
				*shorts++ = ':';
		}
	}
	longs[n] = (struct option){ "output", required_argument, NULL, 'o' };
	longs[n + 1] = (struct option){ "help", no_argument, NULL, 'h' };
	longs[n + 2] = (struct option){ NULL, 0, NULL, 0 };
	memcpy(shorts, "o:h", 4);
}

static const struct arg *find(const struct arg *args, size_t n, int c)
{
	for (size_t i = 0; i < n; i++)
		if (c == LONG_FIRST + (int) i || (args[i].letter && c == args[i].letter))
			return &args[i];
	return NULL;
}

/* What would have been right. */
static const char *expected(enum arg_type type)
{
	switch (type) {
	case ARG_U64:
		return "a whole number above 0";
	case ARG_SIZE_MIB:
		return "a size like 512M or 2G; a bare number is MiB";
	case ARG_DURATION:
		return "a time above 0 like 90s, 15m or 2h";
	case ARG_PAIRS:
		return "NAME=VALUE";
	case ARG_OUTPUT:
		return "text, json, csv or jsonl";
	case ARG_FLAG:
	case ARG_STRING:
	case ARG_TEXTS:
		break;
	}
	return "a text in UTF-8";
}

enum args_result args_parse(struct cli *cli, const struct command *command, const struct arg *args, size_t n,
	int *argc, char **argv)
{
	struct option longs[ARGS_MAX + 3];
	char shorts[2 * ARGS_MAX + 8];
	int c;

	if (n > ARGS_MAX)
		return ARGS_USAGE;
	make_tables(args, n, longs, shorts);
	optind = 0; /* glibc: start over, permuting */
	opterr = 0;
	while ((c = getopt_long(*argc, argv, shorts, longs, NULL)) != -1) {
		const struct arg *arg = find(args, n, c);

		if (c == 'h' && !arg) {
			print_help(command, args, n);
			return ARGS_HELP;
		}
		if (c == ':' || c == '?') {
			(void) args_complain(command, c == ':' ? "%s needs a value" : "unknown option %s", argv[optind - 1]);
			return ARGS_USAGE;
		}
		if (arg ? !set_arg(arg, optarg) : !set_output(cli, optarg)) {
			(void) args_complain(command, "\"%s\" is no value for --%s: %s", optarg, arg ? arg->name : "output",
				arg ? expected(arg->type) : "text or json");
			return ARGS_USAGE;
		}
	}
	for (int i = optind; i < *argc; i++)
		argv[1 + i - optind] = argv[i];
	*argc = 1 + *argc - optind;
	argv[*argc] = NULL;
	return ARGS_OK;
}
