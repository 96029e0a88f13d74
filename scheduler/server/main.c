/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-scheduler: the provider's side of croft. Subcommands stand in one table.
 */
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "base/hide.h"
#include "base/log.h"
#include "server/api.h"
#include "server/options.h"
#include "server/program.h"

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
};

static int command_api_doc(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	api_write_doc(stdout);
	return fflush(stdout) == 0 ? EXIT_OK : EXIT_FAILED;
}

static int command_sample(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	config_print_sample(options_table, options_count, stdout);
	return fflush(stdout) == 0 ? EXIT_OK : EXIT_FAILED;
}

static int command_version(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	(void)printf("croft-scheduler %s\n", CROFT_VERSION);
	return EXIT_OK;
}

static const struct command commands[] = {
	{ "init", command_init,
		"Make a state directory and print the first keys: init --state DIR [--force] [-o json]." },
	{ "run", command_run, "Serve the API and the nodes: run --state DIR [options]." },
	{ "backup", command_backup,
		"Write the store and the link's keys to a new file, also while it runs: backup --state DIR FILE." },
	{ "restore", command_restore,
		"Make a state directory from a backup, with a new lineage: restore --state DIR FILE [--force]." },
	{ "check", command_check,
		"Read every page and record of a store that no scheduler uses: check --state DIR." },
	{ "keys", command_keys,
		"The link's keys, and which nodes have not moved: keys status|next|rotate [--key FILE] [--out FILE] [--at-once] [-o json]." },
	{ "api-doc", command_api_doc, "Print docs/api.md." },
	{ "sample-config", command_sample, "Print a configuration file with every option." },
	{ "version", command_version, "Print the version." },
};

static void usage(FILE *out)
{
	(void)fprintf(out, "usage: croft-scheduler COMMAND [OPTIONS]\n\ncommands:\n");
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		(void)fprintf(out, "  %-14s %s\n", commands[i].name, commands[i].help);
	(void)fprintf(out, "\noptions of init and run:\n");
	config_print_help(options_table, options_count, out);
}

int main(int argc, char **argv)
{
	heap_keep();
	memory_hide();
	log_init("croft-scheduler", LOG_LEVEL_INFO);
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") || (i == 1 && !strcmp(argv[i], "help"))) {
			usage(stdout);
			return EXIT_OK;
		}
	if (argc > 1 && !strcmp(argv[1], "--version"))
		return command_version(argc, argv);
	for (size_t i = 0; argc > 1 && i < ARRAY_LEN(commands); i++)
		if (!strcmp(commands[i].name, argv[1]))
			return commands[i].run(argc - 1, argv + 1);
	usage(stderr);
	return EXIT_USAGE;
}
