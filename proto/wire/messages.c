/* SPDX-License-Identifier: Apache-2.0
 *
 * See messages.h: life of the plain structs, and their encoders. The decoders are in messages-decode.c.
 * Encoders build into the generated structs with malloc, so that protobuf-c's own free releases them; the
 * empty string stays the generated code's constant and must never be allocated over.
 */
#include "wire/messages.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "wire/messages-private.h"

/* What a VMM takes besides the guest's memory: its own heap and page tables, one per sandbox. */
#define VMM_OVERHEAD_MIB 24
/* Page tables and structs for guest memory: 1/128 of it. */
#define VMM_OVERHEAD_SHIFT 7

/* ---- spec ---- */

struct sandbox_spec *spec_new(void)
{
	struct sandbox_spec *spec = calloc(1, sizeof(*spec));

	if (spec) {
		spec->n_refs = 1;
		spec->network.internet = true;
	}
	return spec;
}

static size_t spec_env_bytes(const struct sandbox_spec *spec)
{
	size_t bytes = 0;

	for (size_t i = 0; i < spec->n_env; i++)
		bytes += strlen(spec->env[i].key) + strlen(spec->env[i].value) + 2;
	return bytes;
}

int spec_add_env(struct sandbox_spec *spec, const char *name, const char *value)
{
	CLEANUP_FREE char *key = NULL;
	CLEANUP_FREE char *copy = NULL;

	assert(spec->n_refs == 1);
	if (!*name || strchr(name, '='))
		return -EINVAL;
	if (spec->n_env >= SPEC_ENV_MAX ||
		spec_env_bytes(spec) + strlen(name) + strlen(value) + 2 > SPEC_TEXT_MAX)
		return -E2BIG;
	if (!spec->env) {
		spec->env = calloc(SPEC_ENV_MAX, sizeof(*spec->env));
		if (!spec->env)
			return -ENOMEM;
	}
	key = strdup(name);
	copy = strdup(value);
	if (!key || !copy)
		return -ENOMEM;
	spec->env[spec->n_env].key = TAKE(key);
	spec->env[spec->n_env++].value = TAKE(copy);
	return 0;
}

int spec_set_setup(struct sandbox_spec *spec, const char *command)
{
	char *copy;

	assert(spec->n_refs == 1);
	if (strlen(command) > SPEC_TEXT_MAX)
		return -E2BIG;
	copy = *command ? strdup(command) : NULL;
	if (*command && !copy)
		return -ENOMEM;
	free(spec->setup_command);
	spec->setup_command = copy;
	return 0;
}

struct sandbox_spec *spec_ref(struct sandbox_spec *spec)
{
	if (spec)
		spec->n_refs++;
	return spec;
}

struct sandbox_spec *spec_unref(struct sandbox_spec *spec)
{
	if (!spec || --spec->n_refs > 0)
		return NULL;
	for (size_t i = 0; i < spec->n_env; i++) {
		free(spec->env[i].key);
		free(spec->env[i].value);
	}
	free(spec->env);
	free(spec->setup_command);
	net_policy_deinit(&spec->network);
	free(spec);
	return NULL;
}

static uint64_t memory_cost(uint64_t memory_mib)
{
	return memory_mib + VMM_OVERHEAD_MIB + (memory_mib >> VMM_OVERHEAD_SHIFT);
}

uint64_t spec_memory_cost(const struct sandbox_spec *spec)
{
	return memory_cost(spec->memory_mib);
}

uint64_t spec_memory_within(uint64_t cost_mib)
{
	uint64_t rest = cost_mib > VMM_OVERHEAD_MIB ? cost_mib - VMM_OVERHEAD_MIB : 0;
	uint64_t memory = rest - rest / ((1u << VMM_OVERHEAD_SHIFT) + 1);

	while (memory > 0 && memory_cost(memory) > cost_mib) /* rounding: one step at the most */
		memory--;
	return memory;
}

/* ---- deinit ---- */

void image_list_deinit(struct image_list *list)
{
	free(list->digests);
	*list = (struct image_list){ 0 };
}

int image_list_add(struct image_list *list, const char *digest)
{
	if (!digest_is_valid(digest))
		return -EINVAL;
	if (list->n >= IMAGES_MAX)
		return -E2BIG;
	if ((list->n & (list->n - 1)) == 0) { /* room is the next power of two */
		size_t room = list->n ? 2 * list->n : 1;
		char(*grown)[DIGEST_SIZE] = realloc(list->digests, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		list->digests = grown;
	}
	memcpy(list->digests[list->n++], digest, DIGEST_SIZE);
	return 0;
}

int image_list_copy(const struct image_list *list, struct image_list *ret)
{
	struct image_list copy = { 0 };

	for (size_t i = 0; i < list->n; i++) {
		int r = image_list_add(&copy, list->digests[i]);

		if (r < 0) {
			image_list_deinit(&copy);
			return r;
		}
	}
	*ret = copy;
	return 0;
}

void hello_deinit(struct hello *hello)
{
	image_list_deinit(&hello->images);
}

void capacity_report_deinit(struct capacity_report *report)
{
	image_list_deinit(&report->images);
	space_list_deinit(&report->space);
}

void create_command_deinit(struct create_command *command)
{
	command->spec = spec_unref(command->spec);
}

void desired_set_deinit(struct desired_set *set)
{
	free(set->sandboxes);
	free(set->snapshots);
	*set = (struct desired_set){ 0 };
}

void sandbox_report_deinit(struct sandbox_report *report)
{
	free(report->stages);
	report->stages = NULL;
	report->n_stages = 0;
	report->spec = spec_unref(report->spec);
	free(report->snapshot);
	report->snapshot = NULL;
}

int sandbox_report_copy(const struct sandbox_report *report, struct sandbox_report *ret)
{
	CLEANUP_FREE struct stage_record *stages = NULL;
	struct snapshot_info *snapshot = NULL;

	if (report->n_stages) {
		stages = calloc(report->n_stages, sizeof(*stages));
		if (!stages)
			return -ENOMEM;
		memcpy(stages, report->stages, report->n_stages * sizeof(*stages));
	}
	if (report->snapshot) {
		snapshot = malloc(sizeof(*snapshot));
		if (!snapshot)
			return -ENOMEM;
		*snapshot = *report->snapshot;
	}
	*ret = *report;
	ret->stages = TAKE(stages);
	ret->snapshot = snapshot;
	ret->spec = spec_ref(report->spec);
	return 0;
}

void inventory_deinit(struct inventory *inventory)
{
	for (size_t i = 0; i < inventory->n; i++)
		sandbox_report_deinit(&inventory->sandboxes[i]);
	free(inventory->sandboxes);
	free(inventory->snapshots);
	*inventory = (struct inventory){ 0 };
}

bool capacity_is_equal(const struct node_capacity *a, const struct node_capacity *b)
{
	return a->memory_mib == b->memory_mib && a->cpus == b->cpus && a->disk_mib == b->disk_mib &&
	       a->max_sandboxes == b->max_sandboxes && a->max_starts == b->max_starts &&
	       a->max_vcpus == b->max_vcpus && a->frozen_mib == b->frozen_mib;
}

/* ---- names ---- */

static const char *const end_reasons[END_REASON_MAX_] = {
	[END_NONE] = "",
	[END_REQUEST] = "request",
	[END_TIMEOUT] = "timeout",
	[END_SUPERSEDED] = "superseded",
	[END_UNKNOWN] = "unknown",
	[END_FAILED] = "failed",
	[END_GUEST] = "guest",
	[END_DRAINED] = "drained",
};

const char *end_reason_name(enum end_reason reason)
{
	return (unsigned int)reason < END_REASON_MAX_ ? end_reasons[reason] : "";
}

enum end_reason end_reason_by_name(const char *name)
{
	for (unsigned int i = END_NONE + 1; i < END_REASON_MAX_; i++)
		if (strcmp(end_reasons[i], name) == 0)
			return (enum end_reason)i;
	return END_NONE;
}

static const char *const report_states[REPORT_MAX_] = {
	[REPORT_NONE] = "none",
	[REPORT_STARTING] = "starting",
	[REPORT_RUNNING] = "running",
	[REPORT_STOPPING] = "stopping",
	[REPORT_ENDED] = "ended",
	[REPORT_PAUSED] = "paused",
	[REPORT_UNKNOWN] = "not known here",
};

const char *report_state_name(enum report_state state)
{
	return (unsigned int)state < REPORT_MAX_ ? report_states[state] : "unknown";
}

/* ---- encoders ---- */

static bool put_failure(Croft__FailureRecord **to, const struct err *err)
{
	if (err->code == FAIL_NONE)
		return true;
	*to = failure_encode(err);
	return *to != NULL;
}

static bool put_env(Croft__SandboxSpec *to, const struct sandbox_spec *spec)
{
	if (spec->n_env == 0)
		return true;
	to->env = calloc(spec->n_env, sizeof(*to->env));
	if (!to->env)
		return false;
	for (size_t i = 0; i < spec->n_env; i++) {
		Croft__Field *field = NEW(field, Field);

		if (!field)
			return false;
		to->env[to->n_env++] = field;
		if (!put_text(&field->key, spec->env[i].key) ||
			!put_text(&field->value, spec->env[i].value))
			return false;
	}
	return true;
}

Croft__SandboxSpec *spec_encode(const struct sandbox_spec *spec)
{
	Croft__SandboxSpec *to = NEW(sandbox_spec, SandboxSpec);

	if (!to)
		return NULL;
	to->image_size = spec->image_size;
	to->vcpus = spec->vcpus;
	to->memory_mib = spec->memory_mib;
	to->disk_mib = spec->disk_mib;
	to->setup_timeout_ms = spec->setup_timeout_ms;
	to->timeout_s = spec->timeout_s;
	to->secure = spec->secure;
	to->auto_pause = spec->auto_pause;
	to->auto_resume = spec->auto_resume;
	if (!put_text(&to->template_name, spec->template_name) ||
		!put_text(&to->image_digest, spec->image_digest) ||
		!put_text(&to->setup_command, spec->setup_command) ||
		!put_text(&to->access_token, spec->access_token) ||
		!put_text(&to->tenant, spec->tenant) ||
		!put_text(&to->snapshot, spec->snapshot) || !put_env(to, spec) ||
		!(to->network = net_policy_encode(&spec->network)) ||
		(budget_is_set(&spec->budget) && !(to->budget = budget_encode(&spec->budget))))
		return DROP(to);
	return to;
}

Croft__NodeCapacity *capacity_encode(const struct node_capacity *capacity)
{
	Croft__NodeCapacity *to = NEW(node_capacity, NodeCapacity);

	if (!to)
		return NULL;
	to->memory_mib = capacity->memory_mib;
	to->cpus = capacity->cpus;
	to->disk_mib = capacity->disk_mib;
	to->max_sandboxes = capacity->max_sandboxes;
	to->max_starts = capacity->max_starts;
	to->max_vcpus = capacity->max_vcpus;
	to->frozen_mib = capacity->frozen_mib;
	return to;
}

static bool put_capacity(Croft__NodeCapacity **to, const struct node_capacity *capacity)
{
	*to = capacity_encode(capacity);
	return *to != NULL;
}

static bool put_images(char ***to, size_t *n_to, const struct image_list *images)
{
	if (images->n == 0)
		return true;
	*to = calloc(images->n, sizeof(**to));
	if (!*to)
		return false;
	for (size_t i = 0; i < images->n; i++) {
		(*to)[i] = strdup(images->digests[i]);
		if (!(*to)[i])
			return false;
		*n_to = i + 1;
	}
	return true;
}

Croft__Hello *hello_encode(const struct hello *hello)
{
	Croft__Hello *to = NEW(hello, Hello);

	if (!to)
		return NULL;
	to->highest_epoch = hello->highest_epoch;
	to->pauses = hello->pauses;
	to->snapshots = hello->snapshots;
	to->realtime_us = hello->realtime_us;
	if (!put_text(&to->instance, hello->instance) || !put_text(&to->machine, hello->machine) ||
		!put_text(&to->boot_id, hello->boot_id) ||
		!put_text(&to->hostname, hello->hostname) ||
		!put_text(&to->version, hello->version) ||
		!put_text(&to->cpu_class, hello->cpu_class) ||
		!put_capacity(&to->capacity, &hello->capacity) ||
		!put_failure(&to->unschedulable, &hello->unschedulable) ||
		!put_text(&to->server_key, hello->server_key) || !put_text(&to->next_key, hello->next_key) ||
		!put_text(&to->lineage, hello->leader.lineage) ||
		!put_text(&to->run, hello->leader.run) ||
		!put_images(&to->images, &to->n_images, &hello->images))
		return DROP(to);
	return to;
}

Croft__LinkSet *link_set_encode(const struct link_set *set)
{
	Croft__LinkSet *to = NEW(link_set, LinkSet);

	if (!to)
		return NULL;
	to->endpoints = calloc(set->n_endpoints + 1, sizeof(*to->endpoints));
	if (!to->endpoints || !put_text(&to->key, set->key) || !put_text(&to->next_key, set->next_key) ||
		!put_text(&to->old_key, set->old_key))
		return DROP(to);
	for (unsigned int i = 0; i < set->n_endpoints; i++) {
		to->endpoints[i] = strdup(set->endpoints[i]);
		if (!to->endpoints[i])
			return DROP(to);
		to->n_endpoints = i + 1;
	}
	return to;
}

Croft__Welcome *welcome_encode(const struct welcome *welcome)
{
	Croft__Welcome *to = NEW(welcome, Welcome);

	if (!to)
		return NULL;
	to->heartbeat_ms = welcome->heartbeat_ms;
	to->lease_ms = welcome->lease_ms;
	to->telemetry_acked = welcome->telemetry_acked;
	to->realtime_us = welcome->realtime_us;
	to->greeting = welcome->greeting;
	to->takes_usage = welcome->takes_usage;
	if (!put_text(&to->node_id, welcome->node) || !put_text(&to->pool, welcome->pool) ||
		!put_text(&to->lineage, welcome->lineage) || !put_text(&to->run, welcome->run))
		return DROP(to);
	return to;
}

Croft__Heartbeat *heartbeat_encode(const struct heartbeat *heartbeat)
{
	Croft__Heartbeat *to = NEW(heartbeat, Heartbeat);

	if (!to)
		return NULL;
	to->schedulable = heartbeat->schedulable;
	to->starting = heartbeat->starting;
	to->running = heartbeat->running;
	to->number = heartbeat->number;
	to->lease_ms = heartbeat->lease_ms;
	to->realtime_us = heartbeat->realtime_us;
	return to;
}

Croft__LeaseGrant *lease_grant_encode(const struct lease_grant *grant)
{
	Croft__LeaseGrant *to = NEW(lease_grant, LeaseGrant);

	if (!to)
		return NULL;
	to->heartbeat = grant->heartbeat;
	to->lease_ms = grant->lease_ms;
	return to;
}

Croft__CapacityReport *capacity_report_encode(const struct capacity_report *report)
{
	Croft__CapacityReport *to = NEW(capacity_report, CapacityReport);

	if (!to)
		return NULL;
	to->memory_used_mib = report->memory_used_mib;
	to->disk_free_mib = report->disk_free_mib;
	if (!put_capacity(&to->capacity, &report->capacity) ||
		!put_failure(&to->unschedulable, &report->unschedulable) ||
		!put_images(&to->images, &to->n_images, &report->images) || !space_put(&to->space, &to->n_space, &report->space))
		return DROP(to);
	return to;
}

Croft__CreateSandbox *create_command_encode(const struct create_command *command)
{
	Croft__CreateSandbox *to = NEW(create_sandbox, CreateSandbox);

	if (!to)
		return NULL;
	to->generation = command->generation;
	to->attempt = command->attempt;
	to->took = command->took;
	to->spec = spec_encode(command->spec);
	if (!to->spec || !put_text(&to->sandbox, command->sandbox) ||
		!put_text(&to->operation, command->operation))
		return DROP(to);
	return to;
}

Croft__DestroySandbox *destroy_command_encode(const struct destroy_command *command)
{
	Croft__DestroySandbox *to = NEW(destroy_sandbox, DestroySandbox);

	if (!to)
		return NULL;
	to->generation = command->generation;
	if (!put_text(&to->sandbox, command->sandbox) ||
		!put_text(&to->operation, command->operation) ||
		!put_text(&to->reason, end_reason_name(command->reason)))
		return DROP(to);
	return to;
}

Croft__UpdateSandbox *update_command_encode(const struct update_command *command)
{
	Croft__UpdateSandbox *to = NEW(update_sandbox, UpdateSandbox);

	if (!to)
		return NULL;
	to->generation = command->generation;
	to->timeout_s = command->timeout_s;
	to->number = command->number;
	if (!put_text(&to->sandbox, command->sandbox) ||
		!put_text(&to->operation, command->operation))
		return DROP(to);
	return to;
}

Croft__ReportAck *report_ack_encode(const struct report_ack *ack)
{
	Croft__ReportAck *to = NEW(report_ack, ReportAck);

	if (!to)
		return NULL;
	to->generation = ack->generation;
	to->version = ack->version;
	return put_text(&to->sandbox, ack->sandbox) ? to : DROP(to);
}

static bool put_snapshot_ids(Croft__DesiredSet *to, const struct desired_set *set)
{
	if (set->n_snapshots == 0)
		return true;
	to->snapshots = calloc(set->n_snapshots, sizeof(*to->snapshots));
	if (!to->snapshots)
		return false;
	for (size_t i = 0; i < set->n_snapshots; i++) {
		to->snapshots[i] = strdup(set->snapshots[i]);
		if (!to->snapshots[i])
			return false;
		to->n_snapshots = i + 1;
	}
	return true;
}

Croft__DesiredSet *desired_set_encode(const struct desired_set *set)
{
	Croft__DesiredSet *to = NEW(desired_set, DesiredSet);

	if (!to)
		return NULL;
	to->part = set->part;
	to->complete = set->complete;
	to->inventory = set->inventory;
	to->knows_snapshots = set->knows_snapshots;
	if (set->n) {
		to->sandboxes = calloc(set->n, sizeof(*to->sandboxes));
		if (!to->sandboxes)
			return DROP(to);
	}
	for (size_t i = 0; i < set->n; i++) {
		Croft__DesiredSandbox *item = NEW(desired_sandbox, DesiredSandbox);

		if (!item)
			return DROP(to);
		to->sandboxes[to->n_sandboxes++] = item;
		item->generation = set->sandboxes[i].generation;
		if (!put_text(&item->sandbox, set->sandboxes[i].sandbox))
			return DROP(to);
	}
	return put_snapshot_ids(to, set) ? to : DROP(to);
}

static bool put_stages(Croft__SandboxReport *to, const struct sandbox_report *report)
{
	if (report->n_stages == 0)
		return true;
	to->stages = calloc(report->n_stages, sizeof(*to->stages));
	if (!to->stages)
		return false;
	for (size_t i = 0; i < report->n_stages; i++) {
		to->stages[i] = stage_record_encode(&report->stages[i]);
		if (!to->stages[i])
			return false;
		to->n_stages = i + 1;
	}
	return true;
}

static const Croft__SandboxState wire_states[REPORT_MAX_] = {
	[REPORT_NONE] = CROFT__SANDBOX_STATE__SANDBOX_STATE_UNSPECIFIED,
	[REPORT_STARTING] = CROFT__SANDBOX_STATE__SANDBOX_STATE_STARTING,
	[REPORT_RUNNING] = CROFT__SANDBOX_STATE__SANDBOX_STATE_RUNNING,
	[REPORT_STOPPING] = CROFT__SANDBOX_STATE__SANDBOX_STATE_STOPPING,
	[REPORT_ENDED] = CROFT__SANDBOX_STATE__SANDBOX_STATE_ENDED,
	[REPORT_PAUSED] = CROFT__SANDBOX_STATE__SANDBOX_STATE_PAUSED,
};

Croft__SandboxReport *sandbox_report_encode(const struct sandbox_report *report)
{
	Croft__SandboxReport *to = NEW(sandbox_report, SandboxReport);

	if (!to)
		return NULL;
	to->generation = report->generation;
	to->version = report->version;
	to->state = wire_states[report->state];
	to->accepted = report->accepted;
	to->kept = report->kept;
	if (report->spec) {
		to->spec = spec_encode(report->spec);
		if (!to->spec)
			return DROP(to);
	}
	if (!put_text(&to->sandbox, report->sandbox) ||
		!put_text(&to->operation, report->operation) ||
		!put_text(&to->updated, report->updated) ||
		!put_failure(&to->update_failure, &report->update_failure) ||
		!put_text(&to->guest_boot_id, report->guest_boot_id) ||
		!put_text(&to->end_reason, end_reason_name(report->end_reason)) ||
		!put_failure(&to->failure, &report->failure) || !put_stages(to, report) ||
		(report->snapshot && !(to->snapshot = snapshot_info_encode(report->snapshot))))
		return DROP(to);
	return to;
}

static bool put_snapshots(Croft__Inventory *to, const struct inventory *inventory)
{
	if (inventory->n_snapshots == 0)
		return true;
	to->snapshots = calloc(inventory->n_snapshots, sizeof(*to->snapshots));
	if (!to->snapshots)
		return false;
	for (size_t i = 0; i < inventory->n_snapshots; i++) {
		to->snapshots[i] = snapshot_info_encode(&inventory->snapshots[i]);
		if (!to->snapshots[i])
			return false;
		to->n_snapshots = i + 1;
	}
	return true;
}

Croft__Inventory *inventory_encode(const struct inventory *inventory)
{
	Croft__Inventory *to = NEW(inventory, Inventory);

	if (!to)
		return NULL;
	to->part = inventory->part;
	to->complete = inventory->complete;
	to->number = inventory->number;
	to->greeting = inventory->greeting;
	if (inventory->n) {
		to->sandboxes = calloc(inventory->n, sizeof(*to->sandboxes));
		if (!to->sandboxes)
			return DROP(to);
	}
	for (size_t i = 0; i < inventory->n; i++) {
		to->sandboxes[i] = sandbox_report_encode(&inventory->sandboxes[i]);
		if (!to->sandboxes[i])
			return DROP(to);
		to->n_sandboxes = i + 1;
	}
	return put_snapshots(to, inventory) ? to : DROP(to);
}
