/* SPDX-License-Identifier: Apache-2.0
 *
 * See cli.h: the table of nouns, help, the environment.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/print.h"

#define DEFAULT_URL "http://127.0.0.1:7280"

static const struct command nouns[] = {
	{ "sandbox", "VERB", "Create, use and end sandboxes.", NULL, commands_sandbox },
	{ "stages", "[OPTION]...", "Show how often and how fast each stage succeeds, the product, and the weakest one.", stages, NULL },
	{ "snapshot", "VERB", "List and delete snapshots of sandboxes.", NULL, commands_snapshot },
	{ "trace", "ID", "Show one run end to end, by its trace or its sandbox: what each process did, and when.", trace, NULL },
	{ "capacity", "[OPTION]...", "Show how many more sandboxes fit, what stands in the way, and what a change would do.", capacity, NULL },
	{ "usage", "[OPTION]...", "Show what sandboxes have used: CPU, memory, disk, egress, time, and what failures cost.", usage, commands_usage },
	{ "audit", "VERB", "Show and verify the log of who changed what.", NULL, commands_audit },
	{ "data-map", "[OPTION]...", "Show for each kind of state where it is, who can read it, how long it lives, and how to take it out and delete it.", data_map, NULL },
	{ "responsibility", "", "Show who patches, backs up, answers for capacity, images, incidents and the rest, under the two contracts.", responsibility, NULL },
	{ "top", "[OPTION]...", "Show live on a terminal where starts fail, whose fault it is, how much more fits, and the nodes.", top, NULL },
	{ "drill", "[OPTION]...", "Try on sandboxes of its own what survives the loss of client, agent, scheduler, VM and node.", drill, NULL },
	{ "template", "VERB", "Import and list templates.", NULL, commands_template },
	{ "node", "VERB", "Show, cordon, drain, upgrade and remove nodes.", NULL, commands_node },
	{ "token", "VERB", "Make, list and revoke join tokens.", NULL, commands_token },
	{ "pool", "VERB", "Make, change and revoke pools of nodes.", NULL, commands_pool },
	{ "warm", "VERB", "Keep microVMs ready before they are asked for.", NULL, commands_warm },
	{ "tenant", "VERB", "Make and revoke tenants, and set their quotas.", NULL, commands_tenant },
	{ "key", "VERB", "Make, list and revoke keys.", NULL, commands_key },
	{ "customer", "VERB", "Make, list and revoke customers.", NULL, commands_customer },
};

static char *copy_url(const char *url)
{
	char *copy = strdup(url);
	size_t n = copy ? strlen(copy) : 0;

	while (n > 0 && copy[n - 1] == '/')
		copy[--n] = '\0';
	return copy;
}

static const char *environment(const char *name, const char *fallback)
{
	const char *value = getenv(name);

	return value && *value ? value : fallback;
}

int cli_init(struct cli *cli, struct err *reterr)
{
	const char *api = environment("CROFT_API_URL", DEFAULT_URL);

	*cli = (struct cli){ .api_key = environment("CROFT_API_KEY", ""), .is_terminal = isatty(STDERR_FILENO) == 1 };
	cli->urls[0] = copy_url(api);
	cli->urls[1] = copy_url(environment("CROFT_SANDBOX_URL", api));
	if (!cli->urls[0] || !cli->urls[1]) {
		cli_deinit(cli);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "croft ran out of memory.");
	}
	cli->api_url = cli->urls[0];
	cli->sandbox_url = cli->urls[1];
	return 0;
}

void cli_deinit(struct cli *cli)
{
	free(cli->urls[0]);
	free(cli->urls[1]);
	cli->urls[0] = cli->urls[1] = NULL;
}

static void print_verbs(const struct command *verbs, FILE *out)
{
	for (; verbs->name; verbs++)
		if (verbs->what)
			(void) fprintf(out, "  croft %-18s %.*s\n", verbs->name, (int) strcspn(verbs->what, "\n"), verbs->what);
}

static void print_usage(const struct command *noun, FILE *out)
{
	(void) fprintf(out, "usage: croft %s %s\n\n", noun ? noun->name : "NOUN",
		noun && !noun->verbs ? "[OPTION]..." : "VERB [OPTION]... [ARGUMENT]...");
	for (size_t i = 0; i < ARRAY_LEN(nouns); i++) {
		if (noun && noun != &nouns[i])
			continue;
		if (nouns[i].verbs)
			print_verbs(nouns[i].verbs, out);
		if (nouns[i].run)
			(void) fprintf(out, "  croft %-18s %s\n", nouns[i].name, nouns[i].what);
	}
	if (noun)
		return;
	(void) fputs("\nEach takes --help and -o json.\n\n"
		     "environment:\n"
		     "  CROFT_API_KEY      the key that `croft-scheduler init` made\n"
		     "  CROFT_API_URL      the scheduler [" DEFAULT_URL "]\n"
		     "  CROFT_CA_FILE      whom to trust for https, in PEM [the system's]\n"
		     "  CROFT_SANDBOX_URL  where sandboxes are reached [CROFT_API_URL]\n",
		out);
}

static const struct command *find(const struct command *verbs, const char *noun, const char *verb)
{
	size_t n = strlen(noun) + 1;

	for (; verbs->name; verbs++)
		if (!strcmp(verbs->name + n, verb))
			return verbs;
	return NULL;
}

static bool is_help(const char *word)
{
	return !strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help");
}

static int usage_error(const struct command *noun, const char *what, const char *word)
{
	(void) fprintf(stderr, "croft: %s%s%s%s\n", what, *word ? " \"" : "", word, *word ? "\"" : "");
	print_usage(noun, stderr);
	return EXIT_USAGE;
}

int cli_run(struct cli *cli, int argc, char **argv)
{
	const struct command *noun = NULL, *verb;

	if (argc < 2)
		return usage_error(NULL, "a command is needed", "");
	if (is_help(argv[1]))
		return print_usage(NULL, stdout), EXIT_OK;
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version"))
		return puts("croft " CROFT_VERSION) < 0;
	for (size_t i = 0; i < ARRAY_LEN(nouns) && !noun; i++)
		noun = !strcmp(nouns[i].name, argv[1]) ? &nouns[i] : NULL;
	if (!noun)
		return usage_error(NULL, "unknown command", argv[1]);
	if (noun->run && (!noun->verbs || argc < 3 || argv[2][0] == '-'))
		return noun->run(cli, noun, argc - 1, argv + 1);
	if (argc < 3)
		return usage_error(noun, "a verb is needed", "");
	if (is_help(argv[2]))
		return print_usage(noun, stdout), EXIT_OK;
	verb = find(noun->verbs, noun->name, argv[2]);
	return verb ? verb->run(cli, verb, argc - 2, argv + 2) : usage_error(noun, "unknown verb", argv[2]);
}
