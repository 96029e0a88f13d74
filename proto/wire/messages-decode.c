/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoders of messages.h: the one place where a peer's message is judged. Each builds into a local that frees
 * itself and hands it over at the end. Numbers that could overflow a sum further on are clamped or refused here.
 */
#include "wire/messages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "wire/messages-private.h"

#define CAPACITY_COUNT_MAX (UINT32_C(1) << 20)

/* The same for a member that could not be copied: want of memory here is nothing that the peer did wrong. */
static int refuse_copy(struct err *reterr, const char *member, int r)
{
	if (r == -ENOMEM)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for the member %s of a message.", member);
	return refuse(reterr, member);
}

static bool take_optional_id(char to[static ID_SIZE], const char *from)
{
	return *from == '\0' || take_id(to, from);
}

static void take_failure(struct err *to, const Croft__FailureRecord *from)
{
	if (from)
		failure_decode(from, to);
}

/* ---- spec ---- */

static int bad_argument(struct err *reterr, const char *field, const char *limits)
{
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "%s must be %s.", field, limits);
	if (reterr)
		err_add(reterr, "field", "%s", field);
	return -EINVAL;
}

int spec_check(const struct sandbox_spec *spec, struct err *reterr)
{
	if (!id_name_is_valid(spec->template_name))
		return bad_argument(reterr, "template", "1 to 63 characters of a-z, 0-9 and -");
	if (!digest_is_valid(spec->image_digest))
		return bad_argument(reterr, "image_digest", "sha256: and 64 hex digits");
	if (spec->vcpus < 1 || spec->vcpus > SPEC_VCPUS_MAX)
		return bad_argument(reterr, "vcpus", "1 to 255");
	if (spec->memory_mib < 1 || spec->memory_mib > SPEC_MEMORY_MIB_MAX)
		return bad_argument(reterr, "memory_mib", "1 to 16777216");
	if (spec->disk_mib > SPEC_DISK_MIB_MAX)
		return bad_argument(reterr, "disk_mib", "at most 268435456");
	if (spec->timeout_s > SPEC_TIMEOUT_S_MAX)
		return bad_argument(reterr, "timeout", "at most 366 days");
	return 0;
}

int spec_decode(const Croft__SandboxSpec *message, struct sandbox_spec **ret, struct err *reterr)
{
	CLEANUP(spec_unrefp) struct sandbox_spec *spec = spec_new();
	int r;

	if (!spec)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for a specification.");
	if (!take_text(spec->template_name, sizeof(spec->template_name), message->template_name))
		return refuse(reterr, "template_name");
	if (!take_text(spec->image_digest, sizeof(spec->image_digest), message->image_digest))
		return refuse(reterr, "image_digest");
	if (!take_text(spec->access_token, sizeof(spec->access_token), message->access_token))
		return refuse(reterr, "access_token");
	if (!take_text(spec->tenant, sizeof(spec->tenant), message->tenant))
		return refuse(reterr, "tenant");
	if (!take_optional_id(spec->snapshot, message->snapshot))
		return refuse(reterr, "snapshot");
	spec->image_size = message->image_size;
	spec->vcpus = message->vcpus;
	spec->memory_mib = message->memory_mib;
	spec->disk_mib = message->disk_mib;
	spec->setup_timeout_ms = message->setup_timeout_ms;
	spec->timeout_s = message->timeout_s;
	spec->secure = message->secure;
	spec->auto_pause = message->auto_pause;
	spec->auto_resume = message->auto_resume;
	for (size_t i = 0; i < message->n_env; i++) {
		r = spec_add_env(spec, message->env[i]->key, message->env[i]->value);
		if (r < 0)
			return refuse_copy(reterr, "env", r);
	}
	r = spec_set_setup(spec, message->setup_command);
	if (r < 0)
		return refuse_copy(reterr, "setup_command", r);
	if (message->network) {
		net_policy_deinit(&spec->network);
		r = net_policy_decode(message->network, &spec->network, reterr);
		if (r < 0)
			return r;
	}
	r = budget_decode(message->budget, &spec->budget, reterr);
	if (r < 0)
		return r;
	if (spec_check(spec, NULL) < 0)
		return refuse(reterr, "spec");
	*ret = TAKE(spec);
	return 0;
}

/* ---- node ---- */

void capacity_decode(const Croft__NodeCapacity *message, struct node_capacity *ret)
{
	*ret = (struct node_capacity){
		.memory_mib = MIN(message->memory_mib, CAPACITY_MIB_MAX),
		.cpus = MIN(message->cpus, CAPACITY_COUNT_MAX),
		.disk_mib = MIN(message->disk_mib, CAPACITY_MIB_MAX),
		.max_sandboxes = MIN(message->max_sandboxes, CAPACITY_COUNT_MAX),
		.max_starts = MIN(message->max_starts, CAPACITY_COUNT_MAX),
		.max_vcpus = MIN(message->max_vcpus, SPEC_VCPUS_MAX),
		.frozen_mib = MIN(message->frozen_mib, CAPACITY_MIB_MAX),
	};
}

static int take_images(struct image_list *to, char *const *from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int r = image_list_add(to, from[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

static void hello_cleanup(struct hello *hello)
{
	hello_deinit(hello);
}

int hello_decode(const Croft__Hello *message, struct hello *ret, struct err *reterr)
{
	CLEANUP(hello_cleanup) struct hello hello = {
		.highest_epoch = message->highest_epoch,
		.pauses = message->pauses,
		.snapshots = message->snapshots,
		.realtime_us = message->realtime_us,
	};
	int r;

	if (!take_id(hello.instance, message->instance))
		return refuse(reterr, "instance");
	if (!take_id(hello.machine, message->machine))
		return refuse(reterr, "machine");
	if (!take_text(hello.boot_id, sizeof(hello.boot_id), message->boot_id) || !*hello.boot_id)
		return refuse(reterr, "boot_id");
	if (!take_text(hello.hostname, sizeof(hello.hostname), message->hostname))
		return refuse(reterr, "hostname");
	if (!take_text(hello.version, sizeof(hello.version), message->version))
		return refuse(reterr, "version");
	if (!take_text(hello.cpu_class, sizeof(hello.cpu_class), message->cpu_class) ||
		(*hello.cpu_class && !id_name_is_valid(hello.cpu_class)))
		return refuse(reterr, "cpu_class");
	if (!take_text(hello.server_key, sizeof(hello.server_key), message->server_key) ||
		!take_text(hello.next_key, sizeof(hello.next_key), message->next_key))
		return refuse(reterr, "server_key");
	if (!take_optional_id(hello.leader.lineage, message->lineage))
		return refuse(reterr, "lineage");
	if (!take_optional_id(hello.leader.run, message->run))
		return refuse(reterr, "run");
	if (!message->capacity)
		return refuse(reterr, "capacity");
	capacity_decode(message->capacity, &hello.capacity);
	take_failure(&hello.unschedulable, message->unschedulable);
	r = take_images(&hello.images, message->images, message->n_images);
	if (r < 0)
		return refuse_copy(reterr, "images", r);
	*ret = hello;
	hello = (struct hello){ 0 };
	return 0;
}

int link_set_decode(const Croft__LinkSet *message, struct link_set *ret, struct err *reterr)
{
	struct link_set set = { .n_endpoints = 0 };

	if (!take_text(set.key, sizeof(set.key), message->key) ||
		!take_text(set.next_key, sizeof(set.next_key), message->next_key) ||
		!take_text(set.old_key, sizeof(set.old_key), message->old_key))
		return refuse(reterr, "link.key");
	if (message->n_endpoints > LINK_ENDPOINTS_MAX)
		return refuse(reterr, "link.endpoints");
	for (size_t i = 0; i < message->n_endpoints; i++) {
		char *endpoint = set.endpoints[set.n_endpoints++];

		if (!take_text(endpoint, LINK_ENDPOINT_SIZE, message->endpoints[i]) || strpbrk(endpoint, " \t\r\n,=#") ||
			(strncmp(endpoint, "tcp://", 6) != 0 && strncmp(endpoint, "tls://", 6) != 0))
			return refuse(reterr, "link.endpoints");
	}
	*ret = set;
	return 0;
}

int welcome_decode(const Croft__Welcome *message, struct welcome *ret, struct err *reterr)
{
	struct welcome welcome = {
		.heartbeat_ms = message->heartbeat_ms,
		.lease_ms = message->lease_ms,
		.telemetry_acked = message->telemetry_acked,
		.realtime_us = message->realtime_us,
		.greeting = message->greeting,
		.takes_usage = message->takes_usage,
	};

	if (!take_id(welcome.node, message->node_id))
		return refuse(reterr, "node_id");
	if (!id_name_is_valid(message->pool) ||
		!take_text(welcome.pool, sizeof(welcome.pool), message->pool))
		return refuse(reterr, "pool");
	if (!take_id(welcome.lineage, message->lineage))
		return refuse(reterr, "lineage");
	if (!take_optional_id(welcome.run, message->run))
		return refuse(reterr, "run");
	if (welcome.heartbeat_ms < 100 || welcome.heartbeat_ms > 60000)
		return refuse(reterr, "heartbeat_ms");
	*ret = welcome;
	return 0;
}

void heartbeat_decode(const Croft__Heartbeat *message, struct heartbeat *ret)
{
	*ret = (struct heartbeat){
		.schedulable = message->schedulable,
		.starting = message->starting,
		.running = message->running,
		.number = message->number,
		.lease_ms = message->lease_ms,
		.realtime_us = message->realtime_us,
	};
}

void lease_grant_decode(const Croft__LeaseGrant *message, struct lease_grant *ret)
{
	*ret = (struct lease_grant){ .heartbeat = message->heartbeat, .lease_ms = message->lease_ms };
}

static void capacity_report_cleanup(struct capacity_report *report)
{
	capacity_report_deinit(report);
}

int capacity_report_decode(
	const Croft__CapacityReport *message, struct capacity_report *ret, struct err *reterr)
{
	CLEANUP(capacity_report_cleanup)
	struct capacity_report report = {
		.memory_used_mib = MIN(message->memory_used_mib, CAPACITY_MIB_MAX),
		.disk_free_mib = MIN(message->disk_free_mib, CAPACITY_MIB_MAX),
	};
	int r;

	if (!message->capacity)
		return refuse(reterr, "capacity");
	capacity_decode(message->capacity, &report.capacity);
	take_failure(&report.unschedulable, message->unschedulable);
	r = take_images(&report.images, message->images, message->n_images);
	if (r < 0)
		return refuse_copy(reterr, "images", r);
	r = space_take(&report.space, message->space, message->n_space);
	if (r < 0)
		return refuse_copy(reterr, "space", r);
	*ret = report;
	report = (struct capacity_report){ 0 };
	return 0;
}

/* ---- commands ---- */

int create_command_decode(
	const Croft__CreateSandbox *message, struct create_command *ret, struct err *reterr)
{
	struct create_command command = { .attempt = message->attempt, .took = message->took };
	int r;

	if (!take_target(
		    command.sandbox, &command.generation, message->sandbox, message->generation))
		return refuse(reterr, "sandbox");
	if (!take_id(command.operation, message->operation))
		return refuse(reterr, "operation");
	if (!message->spec)
		return refuse(reterr, "spec");
	r = spec_decode(message->spec, &command.spec, reterr);
	if (r < 0)
		return r;
	*ret = command;
	return 0;
}

int destroy_command_decode(
	const Croft__DestroySandbox *message, struct destroy_command *ret, struct err *reterr)
{
	struct destroy_command command = { .reason = end_reason_by_name(message->reason) };

	if (!take_target(
		    command.sandbox, &command.generation, message->sandbox, message->generation))
		return refuse(reterr, "sandbox");
	if (!take_id(command.operation, message->operation))
		return refuse(reterr, "operation");
	if (command.reason ==
		END_NONE) /* a reason of a newer version: that it must end is clear enough */
		command.reason = END_REQUEST;
	*ret = command;
	return 0;
}

int update_command_decode(
	const Croft__UpdateSandbox *message, struct update_command *ret, struct err *reterr)
{
	struct update_command command = { .timeout_s = message->timeout_s, .number = message->number };

	if (!take_target(
		    command.sandbox, &command.generation, message->sandbox, message->generation))
		return refuse(reterr, "sandbox");
	if (!take_id(command.operation, message->operation))
		return refuse(reterr, "operation");
	if (command.timeout_s > SPEC_TIMEOUT_S_MAX)
		return refuse(reterr, "timeout_s");
	*ret = command;
	return 0;
}

int report_ack_decode(const Croft__ReportAck *message, struct report_ack *ret, struct err *reterr)
{
	struct report_ack ack = { .version = message->version };

	if (!take_target(ack.sandbox, &ack.generation, message->sandbox, message->generation))
		return refuse(reterr, "sandbox");
	*ret = ack;
	return 0;
}

static void desired_set_cleanup(struct desired_set *set)
{
	desired_set_deinit(set);
}

static int take_snapshot_ids(struct desired_set *to, const Croft__DesiredSet *message, struct err *reterr)
{
	if (message->n_snapshots > PART_MAX)
		return refuse(reterr, "snapshots");
	if (message->n_snapshots == 0)
		return 0;
	to->snapshots = calloc(message->n_snapshots, sizeof(*to->snapshots));
	if (!to->snapshots)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for a desired set.");
	for (; to->n_snapshots < message->n_snapshots; to->n_snapshots++)
		if (!take_id(to->snapshots[to->n_snapshots], message->snapshots[to->n_snapshots]))
			return refuse(reterr, "snapshots");
	return 0;
}

int desired_set_decode(
	const Croft__DesiredSet *message, struct desired_set *ret, struct err *reterr)
{
	CLEANUP(desired_set_cleanup)
	struct desired_set set = {
		.part = message->part,
		.complete = message->complete,
		.inventory = message->inventory,
		.knows_snapshots = message->knows_snapshots,
	};
	int r;

	if (message->n_sandboxes > PART_MAX)
		return refuse(reterr, "sandboxes");
	if (message->n_sandboxes) {
		set.sandboxes = calloc(message->n_sandboxes, sizeof(*set.sandboxes));
		if (!set.sandboxes)
			return err_set(
				reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for a desired set.");
	}
	for (; set.n < message->n_sandboxes; set.n++)
		if (!take_target(set.sandboxes[set.n].sandbox, &set.sandboxes[set.n].generation,
			    message->sandboxes[set.n]->sandbox,
			    message->sandboxes[set.n]->generation))
			return refuse(reterr, "sandboxes");
	r = take_snapshot_ids(&set, message, reterr);
	if (r < 0)
		return r;
	*ret = set;
	set = (struct desired_set){ 0 };
	return 0;
}

/* ---- reports ---- */

static enum report_state take_state(Croft__SandboxState state)
{
	switch ((int)state) {
	case CROFT__SANDBOX_STATE__SANDBOX_STATE_STARTING:
		return REPORT_STARTING;
	case CROFT__SANDBOX_STATE__SANDBOX_STATE_RUNNING:
		return REPORT_RUNNING;
	case CROFT__SANDBOX_STATE__SANDBOX_STATE_STOPPING:
		return REPORT_STOPPING;
	case CROFT__SANDBOX_STATE__SANDBOX_STATE_ENDED:
		return REPORT_ENDED;
	case CROFT__SANDBOX_STATE__SANDBOX_STATE_PAUSED:
		return REPORT_PAUSED;
	case CROFT__SANDBOX_STATE__SANDBOX_STATE_UNSPECIFIED:
		return REPORT_NONE;
	default:
		return REPORT_UNKNOWN;
	}
}

static int take_stages(
	struct sandbox_report *to, const Croft__SandboxReport *message, struct err *reterr)
{
	if (message->n_stages > STAGES_MAX)
		return refuse(reterr, "stages");
	if (message->n_stages == 0)
		return 0;
	to->stages = calloc(message->n_stages, sizeof(*to->stages));
	if (!to->stages)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for stages.");
	/* a stage or outcome that a newer node knows is no reason to refuse what became of the sandbox */
	for (size_t i = 0; i < message->n_stages; i++)
		if (stage_record_decode(message->stages[i], &to->stages[to->n_stages]) == 0)
			to->n_stages++;
	return 0;
}

static void sandbox_report_cleanup(struct sandbox_report *report)
{
	sandbox_report_deinit(report);
}

static int take_snapshot(struct sandbox_report *to, const Croft__Snapshot *message, struct err *reterr)
{
	to->snapshot = calloc(1, sizeof(*to->snapshot));
	if (!to->snapshot)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for a snapshot.");
	return snapshot_info_decode(message, to->snapshot, reterr);
}

int sandbox_report_decode(
	const Croft__SandboxReport *message, struct sandbox_report *ret, struct err *reterr)
{
	CLEANUP(sandbox_report_cleanup)
	struct sandbox_report report = {
		.version = message->version,
		.state = take_state(message->state),
		.accepted = message->accepted,
		.kept = message->kept,
		.end_reason = end_reason_by_name(message->end_reason),
	};
	int r;

	if (!take_target(report.sandbox, &report.generation, message->sandbox, message->generation))
		return refuse(reterr, "sandbox");
	if (report.state == REPORT_NONE)
		return refuse(reterr, "state");
	if (!take_optional_id(report.operation, message->operation))
		return refuse(reterr, "operation");
	if (!take_optional_id(report.updated, message->updated))
		return refuse(reterr, "updated");
	take_failure(&report.update_failure, message->update_failure);
	if (!take_text(report.guest_boot_id, sizeof(report.guest_boot_id), message->guest_boot_id))
		return refuse(reterr, "guest_boot_id");
	take_failure(&report.failure, message->failure);
	r = take_stages(&report, message, reterr);
	if (r < 0)
		return r;
	if (message->spec) {
		r = spec_decode(message->spec, &report.spec, reterr);
		if (r < 0)
			return r;
	}
	if (message->snapshot) {
		r = take_snapshot(&report, message->snapshot, reterr);
		if (r < 0)
			return r;
	}
	*ret = report;
	report = (struct sandbox_report){ 0 };
	return 0;
}

static void inventory_cleanup(struct inventory *inventory)
{
	inventory_deinit(inventory);
}

static int take_snapshots(struct inventory *to, const Croft__Inventory *message, struct err *reterr)
{
	if (message->n_snapshots > PART_MAX)
		return refuse(reterr, "snapshots");
	if (message->n_snapshots == 0)
		return 0;
	to->snapshots = calloc(message->n_snapshots, sizeof(*to->snapshots));
	if (!to->snapshots)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for an inventory.");
	for (; to->n_snapshots < message->n_snapshots; to->n_snapshots++) {
		int r = snapshot_info_decode(message->snapshots[to->n_snapshots], &to->snapshots[to->n_snapshots], reterr);

		if (r < 0)
			return r;
	}
	return 0;
}

int inventory_decode(const Croft__Inventory *message, struct inventory *ret, struct err *reterr)
{
	CLEANUP(inventory_cleanup)
	struct inventory inventory = {
		.part = message->part,
		.complete = message->complete,
		.number = message->number,
		.greeting = message->greeting,
	};
	int r;

	if (message->n_sandboxes > PART_MAX)
		return refuse(reterr, "sandboxes");
	if (message->n_sandboxes) {
		inventory.sandboxes = calloc(message->n_sandboxes, sizeof(*inventory.sandboxes));
		if (!inventory.sandboxes)
			return err_set(
				reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for an inventory.");
	}
	for (; inventory.n < message->n_sandboxes; inventory.n++) {
		r = sandbox_report_decode(
			message->sandboxes[inventory.n], &inventory.sandboxes[inventory.n], reterr);

		if (r < 0)
			return r;
	}
	r = take_snapshots(&inventory, message, reterr);
	if (r < 0)
		return r;
	*ret = inventory;
	inventory = (struct inventory){ 0 };
	return 0;
}
