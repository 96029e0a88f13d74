/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node status [-o json], and list, its sandboxes alone: what this state directory says, read from its files: also true
 * while the agent is down, and never in its way.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "agent/commands.h"
#include "agent/identity.h"
#include "agent/journal.h"
#include "agent/owner.h"
#include "agent/pidref.h"
#include "base/fd.h"
#include "wire/json.h"

struct status {
	bool as_json;
	json_t *list; /* of sandboxes */
	unsigned int n, n_bad;
};

static bool vm_is_alive(const struct sv_vmm_id *vmm)
{
	char boot_id[HOST_BOOT_ID_SIZE];
	int fd;

	pidref_boot_id(boot_id);
	if (vmm->pid <= 0 || strcmp(boot_id, vmm->host_boot_id) != 0)
		return false;
	fd = pidref_open((pid_t)vmm->pid, vmm->start_ticks);
	(void)fd_close(fd);
	return fd >= 0;
}

static void add_sandbox(
	const char *id, const struct sv_journal *journal, const struct err *err, void *user)
{
	struct status *status = user;
	json_t *item;

	status->n++;
	if (!journal) {
		status->n_bad++;
		item = json_pack("{s:s, s:s, s:o}", "sandbox", id, "state", "unreadable", "failure",
			json_failure(err, &(struct failure_context){
						  .responsibility = RESPONSIBILITY_MANAGED }));
	} else {
		item = json_pack("{s:s, s:s, s:I, s:s?, s:b, s:I}", "sandbox", id, "state",
			sv_state_name(journal->state), "generation",
			(json_int_t)journal->generation, "image",
			journal->spec ? journal->spec->image_digest : NULL, "vm_is_alive",
			vm_is_alive(&journal->vmm), "pid", (json_int_t)journal->vmm.pid);
		if (item && err_is_set(&journal->failure))
			(void)json_object_set_new(item, "failure",
				json_failure(&journal->failure,
					&(struct failure_context){
						.responsibility = RESPONSIBILITY_MANAGED }));
	}
	(void)json_array_append_new(status->list, item);
}

static void print_head(const struct identity *identity, bool runs, const struct owner_drain *drain)
{
	(void)printf("node      %s\npool      %s\nscheduler %s\nagent     %s\n", identity->node,
		identity->pool, identity->scheduler.addresses[0], runs ? "running" : "stopped");
	if (drain->drained)
		(void)printf("drained   by its owner%s%s\n", *drain->why ? ": " : "", drain->why);
	(void)printf("\n");
}

static void print_list(const json_t *list)
{
	const json_t *item;
	size_t i;

	(void)printf("%-22s %-12s %-5s %s\n", "SANDBOX", "STATE", "VM", "PID");
	json_array_foreach(list, i, item)(void) printf("%-22s %-12s %-5s %lld\n",
		json_string_value(json_object_get(item, "sandbox")),
		json_string_value(json_object_get(item, "state")),
		json_is_true(json_object_get(item, "vm_is_alive")) ? "alive" : "-",
		(long long)json_integer_value(json_object_get(item, "pid")));
}

static int show(const struct agent_options *options, int argc, char **argv, bool list_only)
{
	struct status status = { .as_json = argc == 4 && !strcmp(argv[2], "-o") &&
					    !strcmp(argv[3], "json") };
	struct identity identity;
	struct owner_drain drain;
	struct err err = ERR_NULL;
	bool runs;

	if (argc != 2 && !status.as_json) {
		(void)fprintf(stderr, "usage: croft-node %s [-o json]\n", list_only ? "list" : "status");
		return 2;
	}
	if (identity_read(options->state, &identity, &err) < 0 || owner_drain_read(options->state, &drain, &err) < 0)
		return command_failed(&err);
	runs = state_is_locked(options->state);
	status.list = json_array();
	if (journal_read(options->state, add_sandbox, &status, &err) < 0) {
		json_decref(status.list);
		return command_failed(&err);
	}
	if (status.as_json) {
		json_t *all = list_only ? json_incref(status.list) : json_pack("{s:s, s:s, s:s, s:b, s:b, s:s, s:O}", "node", identity.node, "pool",
			identity.pool, "scheduler", identity.scheduler.addresses[0], "agent_runs",
			runs, "drained", drain.drained, "drained_why", drain.why, "sandboxes", status.list);

		(void)json_dumpf(all, stdout, JSON_INDENT(2));
		(void)printf("\n");
		json_decref(all);
	} else {
		if (!list_only)
			print_head(&identity, runs, &drain);
		print_list(status.list);
	}
	json_decref(status.list);
	return 0;
}

int command_status(const struct agent_options *options, int argc, char **argv)
{
	return show(options, argc, argv, false);
}

int command_list(const struct agent_options *options, int argc, char **argv)
{
	return show(options, argc, argv, true);
}
