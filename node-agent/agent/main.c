/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node: reads the options, finds the subcommand, returns its status.
 */
#include <stdio.h>
#include <string.h>

#include "agent/commands.h"
#include "base/heap.h"
#include "base/hide.h"
#include "base/log.h"

struct command {
	const char *name, *arguments, *help;
	int (*run)(const struct agent_options *options, int argc, char **argv);
};

static const struct command commands[] = {
	{ "join", "--token-file FILE [--replace | --adopt]",
		"Make this state directory a node of the token's pool.",
		command_join },
	{ "run", "", "Run the agent until SIGTERM; sandboxes outlive it.", command_run },
	{ "doctor", "[--fix] [-o json]", "Say what of this host keeps it from being a good node; --fix sets right what is safe.",
		command_doctor },
	{ "list", "[-o json]", "List the sandboxes that are here.", command_list },
	{ "drain", "[--why TEXT] [--deadline 1h]", "Take no new sandbox, whatever a scheduler asks; end what runs at the deadline.",
		command_drain },
	{ "undrain", "", "Take sandboxes again.", command_undrain },
	{ "stop", "ID... | --all", "End sandboxes that are here.", command_stop },
	{ "export", "ID FILE", "Write a sandbox that runs or is paused to a file: memory, disk, image, recipe, results.", command_export },
	{ "import", "FILE", "Unpack such a file as a snapshot of this node.", command_import },
	{ "upgrade", "[--check] FILE...", "Install packages that the pinned release key signed and that are not older; sandboxes run on.",
		command_upgrade },
	{ "uninstall", "[--now]", "Take croft off this host: what runs, its packages, its state. --now: also where sandboxes run.",
		command_uninstall },
	{ "endpoints", "show | set ADDRESS...", "Show or set where the scheduler is: tcp://HOST:PORT, tls://HOST:PORT.",
		command_endpoints },
	{ "status", "[-o json]", "Show the node and its sandboxes from the files of its state.",
		command_status },
	{ "audit", "list [ID] | verify", "Show the node's own audit log, as lines of JSON, or say whether it is as it was written.", command_audit },
	{ "usage", "[-o json]", "Show what sandboxes have used here, from the files of its state.", command_usage },
};

int command_failed(const struct err *err)
{
	char text[1024];

	err_format(err, text, sizeof(text));
	(void)fprintf(stderr, "croft-node: %s\n", text);
	return err->code == FAIL_CONFIG_INVALID ? 2 : 1;
}

static int print_help(FILE *out, int status)
{
	(void)fprintf(out, "usage: croft-node COMMAND [OPTIONS]\n\n");
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		(void)fprintf(out, "  croft-node %-9s %-28s %s\n", commands[i].name,
			commands[i].arguments, commands[i].help);
	(void)fprintf(out,
		"\noptions (each also CROFT_... in the environment and a key of node.conf, see croft-node(8)):\n");
	agent_options_help(out);
	return status;
}

int main(int argc, char **argv)
{
	struct agent_options options;
	struct err err = ERR_NULL;
	int status = 2;

	heap_keep();
	memory_hide();
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") || (i == 1 && !strcmp(argv[i], "help")))
			return print_help(stdout, 0);
	if (argc > 1 && !strcmp(argv[1], "--sample-config")) {
		agent_options_sample(stdout);
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "--version")) {
		(void)printf("croft-node " CROFT_VERSION "\n");
		return 0;
	}
	log_init("croft-node", LOG_LEVEL_INFO);
	if (agent_options_load(&options, &argc, argv, &err) < 0)
		return command_failed(&err) == 2 ? 2 : 1;
	for (size_t i = 0; argc > 1 && i < ARRAY_LEN(commands); i++) {
		if (strcmp(argv[1], commands[i].name))
			continue;
		status = commands[i].run(&options, argc, argv);
		agent_options_free(&options);
		return status;
	}
	agent_options_free(&options);
	return print_help(stderr, 2);
}
