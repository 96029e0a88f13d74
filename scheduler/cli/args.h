/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of one command as a table: it yields the parser (getopt_long) and --help. Every command has
 * -o/--output and -h/--help besides.
 */
#pragma once

#include <stdint.h>

#include "cli/cli.h"

enum arg_type {
	ARG_FLAG,     /* bool * */
	ARG_STRING,   /* const char ** */
	ARG_U64,      /* uint64_t *, above 0 */
	ARG_SIZE_MIB, /* uint64_t *; "512M", "2G"; a bare number is MiB */
	ARG_DURATION, /* int64_t *, microseconds, above 0 */
	ARG_PAIRS,    /* json_t **, an object; K=V, may be repeated */
	ARG_TEXTS,    /* json_t **, an array; may be repeated */
	ARG_OUTPUT,   /* enum output *; in place of the -o that every command has */
};

enum output { OUTPUT_TEXT, OUTPUT_JSON, OUTPUT_CSV, OUTPUT_LINES };

/* The row of a command whose result is a list of rows, for programs that want no tree. */
#define ARG_OUTPUT_ROW(to) \
	{ "output", 'o', ARG_OUTPUT, to, "FORM", "How the result is printed: text, json, csv, or jsonl (JSON lines)." }

struct arg {
	const char *name;
	char letter;         /* 0: none */
	enum arg_type type;
	void *to;
	const char *value;   /* how help names it */
	const char *help;
};

enum args_result { ARGS_OK, ARGS_HELP, ARGS_USAGE };

/* Parses argv[1..]. On ARGS_OK what is no option is argv[1..*argc); everything after "--" is. On ARGS_HELP help was
 * printed, on ARGS_USAGE the complaint. */
enum args_result args_parse(struct cli *cli, const struct command *command, const struct arg *args, size_t n,
	int *argc, char **argv) MUST_USE;
/* Whether the API can carry it: JSON is text, and text is UTF-8. */
bool args_is_text(const char *text);
/* A complaint in the same form. Returns EXIT_USAGE. */
int args_complain(const struct command *command, const char *fmt, ...) PRINTF_LIKE(2, 3);
