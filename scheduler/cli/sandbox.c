/* SPDX-License-Identifier: Apache-2.0
 *
 * croft sandbox list, info, kill, stages: what there is, and what became of it.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "cli/list.h"

static int no_sandbox(const struct cli *cli, const char *what)
{
	struct failure failure = { 0 };

	err_set(&failure.err, FAIL_SANDBOX_NOT_FOUND, 0, "There is no such sandbox.");
	return print_failure(cli, what, &failure);
}

int sandbox_list(struct cli *cli, const struct command *command, int argc, char **argv)
{
	static const struct list_view view = {
		.path = "/v1/sandboxes?limit=1000",
		.path_all = "/v1/sandboxes?limit=1000&scope=all",
		.what = "cannot list sandboxes",
		.heads = { "ID", "STATE", "TEMPLATE", "VCPUS", "MEMORY MiB", "NODE", "CREATED" },
		.members = { "id", "state", "template", "vcpus", "memory_mib", "node", "created" },
	};

	return list_run(cli, command, argc, argv, &view);
}

/* A member a line; then the failure where there is one. */
static void print_sandbox(const json_t *sandbox)
{
	static const char *const members[] = { "id", "state", "stage", "template", "image", "vcpus", "memory_mib",
		"disk_mib", "pool", "node", "node_state", "certain", "as_of", "created", "started", "ends", "ended",
		"end_reason", "attempts", "generation", "incarnation", "guest_boot_id", "trace" };
	const char *name;
	json_t *value;

	print_members(sandbox, members, ARRAY_LEN(members));
	json_object_foreach(json_object_get(sandbox, "metadata"), name, value) {
		char text[256], key[64];

		(void) snprintf(key, sizeof(key), "%s", name);
		if (json_is_string(value) &&
			text_of(json_object_get(sandbox, "metadata"), name, text, sizeof(text)))
			(void) printf("%-20s %s = %s\n", "metadata", clean(key), text);
	}
}

int sandbox_info(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct failure failure = { 0 };
	json_t *sandbox = NULL;
	int status = only_names(cli, command, 1, &argc, argv);

	if (status >= 0)
		return status;
	if (!id_is_valid(argv[1]))
		return no_sandbox(cli, "cannot show the sandbox");
	if (api_get(cli, &sandbox, &failure, "/v1/sandboxes/%s", argv[1]) < 0)
		return print_failure(cli, "cannot show the sandbox", &failure);
	if (cli->json)
		return print_json(sandbox);
	print_sandbox(sandbox);
	(void) fflush(stdout);
	if (json_is_object(json_object_get(sandbox, "failure")))
		(void) print_record(cli, "it failed", json_object_get(sandbox, "failure"));
	json_decref(sandbox);
	return EXIT_OK;
}

int sandbox_kill(struct cli *cli, const struct command *command, int argc, char **argv)
{
	enum args_result r = args_parse(cli, command, NULL, 0, &argc, argv);
	int status = EXIT_OK;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc < 2)
		return args_complain(command, "the sandbox's id is needed");
	for (int i = 1; i < argc; i++) {
		struct failure failure = { 0 };
		int one = EXIT_OK;

		if (!id_is_valid(argv[i]))
			one = no_sandbox(cli, "cannot end the sandbox");
		else if (api_delete(cli, &failure, "/sandboxes/%s", argv[i]) < 0)
			one = print_failure(cli, "cannot end the sandbox", &failure);
		else if (!cli->json)
			(void) printf("%s\n", argv[i]);
		status = status ? status : one;
	}
	if (cli->json && status == EXIT_OK)
		return print_json(json_object());
	return status;
}

/* ---- stages ---- */

static int print_stage_records(json_t *answer)
{
	static const char *const heads[] = { "STAGE", "OUTCOME", "TOOK", "ATTEMPT", "NODE", "WHY" };
	struct table *table = table_new(ARRAY_LEN(heads), heads);
	int64_t total = 0;
	json_t *record;
	char took[32];
	size_t k;
	int status;

	json_array_foreach(json_object_get(answer, "records"), k, record) {
		char text[4][64], reason[96];
		int64_t us = json_integer_value(json_object_get(record, "took_us"));
		const char *why = text_of(record, "reason", reason, sizeof(reason));
		const char *cells[] = { text_of(record, "stage", text[0], 64), text_of(record, "outcome", text[1], 64),
			text_of_us(us, took, sizeof(took)), text_of(record, "attempt", text[2], 64),
			text_of(record, "node", text[3], 64), NULL };

		cells[5] = why && *why ? why : text_of(json_object_get(record, "failure"), "code", reason, sizeof(reason));
		cells[5] = cells[5] ? cells[5] : "";
		table_add(table, cells);
		total += us;
	}
	status = table_print(table);
	(void) printf("total %s\n", text_of_us(total, took, sizeof(took)));
	json_decref(answer);
	return status;
}

int sandbox_stages(struct cli *cli, const struct command *command, int argc, char **argv)
{
	struct failure failure = { 0 };
	json_t *answer = NULL;
	int status = only_names(cli, command, 1, &argc, argv);

	if (status >= 0)
		return status;
	if (!id_is_valid(argv[1]))
		return no_sandbox(cli, "cannot show the stages");
	if (api_get(cli, &answer, &failure, "/v1/stages?sandbox=%s", argv[1]) < 0)
		return print_failure(cli, "cannot show the stages", &failure);
	return cli->json ? print_json(answer) : print_stage_records(answer);
}

const struct command commands_sandbox[] = {
	{ "sandbox create", "[OPTION]...", "Create a sandbox and wait until it is ready; prints its id.", sandbox_create,
		NULL },
	{ "sandbox list", "[OPTION]...", "List live sandboxes, also those that --where names.", sandbox_list, NULL },
	{ "sandbox ls", "", NULL, sandbox_list, NULL },
	{ "sandbox info", "ID", "Show one sandbox, live or ended.", sandbox_info, NULL },
	{ "sandbox exec", "[OPTION]... ID -- COMMAND [ARGUMENT]...",
		"Run a command; its exit status is croft's.\n"
		"125: croft could not run it; 126: not executable; 127: not found; 124: time limit; 128+n: ended by signal n.",
		sandbox_exec, NULL },
	{ "sandbox network", "[OPTION]... ID", "Replace what a running sandbox may reach; without options everything public.",
		sandbox_network, NULL },
	{ "sandbox budget", "[OPTION]... ID", "Replace what a sandbox may use; without options there is no limit.", sandbox_budget, NULL },
	{ "sandbox mark", "ID accepted|rejected", "Say whether a sandbox's result was of use; croft usage shows what an accepted one costs.",
		sandbox_mark, NULL },
	{ "sandbox pause", "ID...", "Put sandboxes to sleep: memory and vCPUs are free, processes and disk are kept.", sandbox_pause,
		NULL },
	{ "sandbox resume", "[OPTION]... ID...", "Wake paused sandboxes where they were.", sandbox_resume, NULL },
	{ "sandbox snapshot", "[OPTION]... ID",
		"Keep a moment of a running sandbox, which goes on; prints the snapshot's id.", sandbox_snapshot, NULL },
	{ "sandbox fork", "[OPTION]... ID",
		"Make sandboxes that go on from this moment of a running one, which goes on too; prints their ids.", sandbox_fork, NULL },
	{ "sandbox kill", "ID...", "End sandboxes.", sandbox_kill, NULL },
	{ "sandbox rm", "ID...", NULL, sandbox_kill, NULL },
	{ "sandbox audit", "ID", "Show what ran in a running sandbox and what became of it: commands, files, connections, packages, output.", sandbox_audit, NULL },
	{ "sandbox diff", "ID", "List the files that a running sandbox added (A), changed (C) and deleted (D), as its guest says it.", sandbox_diff, NULL },
	{ "sandbox stages", "ID", "Show the stages of a sandbox's start with their times.", sandbox_stages, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};
