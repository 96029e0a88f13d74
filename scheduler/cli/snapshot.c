/* SPDX-License-Identifier: Apache-2.0
 *
 * croft sandbox snapshot and fork, croft snapshot list and delete.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/id.h"
#include "cli/list.h"

#define WAIT_USEC (70 * USEC_PER_SEC) /* longer than the scheduler waits for a node */
#define FORK_WAIT_USEC (600 * USEC_PER_SEC) /* for its snapshot, and then for starts */

static int refuse_id(const struct cli *cli, enum fail_code code, const char *what)
{
	struct failure failure = { 0 };

	err_set(&failure.err, code, 0, code == FAIL_SANDBOX_NOT_FOUND ? "There is no such sandbox." : "There is no such snapshot.");
	return print_failure(cli, what, &failure);
}

/* POST to one sandbox's `verb`. */
static int post(struct cli *cli, const char *id, const char *verb, const json_t *body, int64_t timeout_us, json_t **ret,
	struct failure *failure)
{
	char path[64];

	(void) snprintf(path, sizeof(path), "/sandboxes/%s/%s", id, verb);
	return api_call(cli, &(struct api_call){ .method = "POST", .path = path, .body = body, .timeout_us = timeout_us }, ret,
		failure);
}

int sandbox_snapshot(struct cli *cli, const struct command *command, int argc, char **argv)
{
	const char *name = NULL;
	const struct arg args[] = { { "name", 'n', ARG_STRING, &name, "NAME", "Name it, to begin sandboxes by it." } };
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	struct failure failure = { 0 };
	json_t *body, *answer = NULL;
	char id[64];
	int status;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 2)
		return args_complain(command, "one sandbox's id is needed");
	if (!id_is_valid(argv[1]))
		return refuse_id(cli, FAIL_SANDBOX_NOT_FOUND, "cannot make a snapshot");
	body = json_object();
	if (name)
		(void) json_object_set_new(body, "name", json_string(name));
	status = post(cli, argv[1], "snapshots", body, WAIT_USEC, &answer, &failure);
	json_decref(body);
	if (status < 0)
		return print_failure(cli, "cannot make a snapshot", &failure);
	if (cli->json)
		return print_json(answer);
	(void) printf("%s\n", text_of(answer, "snapshotID", id, sizeof(id)) ? id : "");
	json_decref(answer);
	return print_finish() < 0 ? EXIT_ERROR : EXIT_OK;
}

/* The ids of those that run; why the others do not on standard error. Fails when one does. */
static int print_forks(const struct cli *cli, const json_t *answer)
{
	const json_t *element;
	int status = EXIT_OK;
	char id[64];
	size_t i;

	json_array_foreach(answer, i, element) {
		const json_t *error = json_object_get(element, "error");

		if (!error) {
			(void) printf("%s\n", text_of(json_object_get(element, "sandbox"), "sandboxID", id, sizeof(id)) ? id : "");
			continue;
		}
		(void) fflush(stdout);
		status = print_record(cli, "a fork did not start", json_object_get(error, "failure"));
	}
	return print_finish() < 0 ? EXIT_ERROR : status;
}

int sandbox_fork(struct cli *cli, const struct command *command, int argc, char **argv)
{
	uint64_t count = 1;
	int64_t timeout_us = 0;
	const struct arg args[] = {
		{ "count", 'n', ARG_U64, &count, "N", "How many [1], at most 32." },
		{ "timeout", 0, ARG_DURATION, &timeout_us, "DURATION", "End each this long after it is ready." },
	};
	enum args_result r = args_parse(cli, command, args, ARRAY_LEN(args), &argc, argv);
	struct failure failure = { 0 };
	json_t *body, *answer = NULL;
	int status;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc != 2)
		return args_complain(command, "one sandbox's id is needed");
	if (!id_is_valid(argv[1]))
		return refuse_id(cli, FAIL_SANDBOX_NOT_FOUND, "cannot fork the sandbox");
	body = json_pack("{s:I}", "count", (json_int_t) MIN(count, (uint64_t) INT64_MAX));
	if (timeout_us > 0)
		(void) json_object_set_new(body, "timeout",
			json_integer((json_int_t) ((timeout_us + USEC_PER_SEC - 1) / USEC_PER_SEC)));
	status = post(cli, argv[1], "fork", body, FORK_WAIT_USEC, &answer, &failure);
	json_decref(body);
	if (status < 0)
		return print_failure(cli, "cannot fork the sandbox", &failure);
	if (cli->json)
		return print_json(answer);
	status = print_forks(cli, answer);
	json_decref(answer);
	return status;
}

static int snapshot_list(struct cli *cli, const struct command *command, int argc, char **argv)
{
	static const struct list_view view = {
		.path = "/v1/snapshots?limit=1000",
		.what = "cannot list snapshots",
		.heads = { "ID", "STATE", "NAME", "SANDBOX", "VCPUS", "MEMORY MiB", "SIZE MiB", "NODE", "CREATED" },
		.members = { "snapshotID", "state", "name", "sandboxID", "cpuCount", "memoryMB", "sizeMB", "node", "createdAt" },
	};

	return list_run(cli, command, argc, argv, &view);
}

static int delete_one(struct cli *cli, const char *id)
{
	char path[64];
	struct failure failure = { 0 };
	json_t *answer = NULL;

	if (!id_is_valid(id))
		return refuse_id(cli, FAIL_SNAPSHOT_NOT_FOUND, "cannot delete the snapshot");
	(void) snprintf(path, sizeof(path), "/templates/%s", id);
	if (api_call(cli, &(struct api_call){ .method = "DELETE", .path = path }, &answer, &failure) < 0)
		return print_failure(cli, "cannot delete the snapshot", &failure);
	json_decref(answer);
	if (!cli->json)
		(void) printf("%s\n", id);
	return EXIT_OK;
}

static int snapshot_delete(struct cli *cli, const struct command *command, int argc, char **argv)
{
	enum args_result r = args_parse(cli, command, NULL, 0, &argc, argv);
	int status = EXIT_OK;

	if (r != ARGS_OK)
		return r == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
	if (argc < 2)
		return args_complain(command, "the snapshot's id is needed");
	for (int i = 1; i < argc; i++) {
		int one = delete_one(cli, argv[i]);

		status = status ? status : one;
	}
	return cli->json && status == EXIT_OK ? print_json(json_object()) : status;
}

const struct command commands_snapshot[] = {
	{ "snapshot list", "", "List snapshots.", snapshot_list, NULL },
	{ "snapshot ls", "", NULL, snapshot_list, NULL },
	{ "snapshot delete", "ID...", "Delete snapshots; sandboxes that began as them go on.", snapshot_delete, NULL },
	{ "snapshot rm", "ID...", NULL, snapshot_delete, NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};
