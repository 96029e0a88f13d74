/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots: moments of sandboxes that their nodes keep. The node makes and drops them and has the last word; the sandbox
 * goes on meanwhile and is not changed otherwise: the answer to a change is the last operation that its node names, so
 * that one is sent at a time.
 *
 *   MAKING -> READY -> DROPPING -> GONE
 *      |        |         ^
 *      |        +-> LOST -+-> GONE, when it is deleted and its node was removed
 *      +------------------+-> GONE, when the node said that nothing of it is left
 *
 * Whoever waits for MAKING is told after a while that it goes on, and finds it in the list when it is there; a fork waits as
 * long as it may take. After that time, or with its node lost, it is given up, and dropped when the node has it. DROPPING is asked for until the node says so, or
 * does not name it any more. What the node names in an inventory, and what it does not: snapshot-node.c.
 */
#include <assert.h>
#include <string.h>

#include "fleet/age.h"
#include "fleet/internal.h"

#define RESEND_DOUBLINGS 3

/* clang-format off */
static const struct sm_state table[SNAPSHOT_STATE_MAX_] = {
	[SNAPSHOT_MAKING] = {
		"making", SM_TO(SNAPSHOT_READY) | SM_TO(SNAPSHOT_DROPPING) | SM_TO(SNAPSHOT_GONE), 1, 0 },
	[SNAPSHOT_READY] = { "ready", SM_TO(SNAPSHOT_DROPPING) | SM_TO(SNAPSHOT_LOST), 0, 0 },
	[SNAPSHOT_DROPPING] = { "dropping", SM_TO(SNAPSHOT_GONE), 1, 0 },
	[SNAPSHOT_LOST] = { "lost", SM_TO(SNAPSHOT_READY) | SM_TO(SNAPSHOT_DROPPING) | SM_TO(SNAPSHOT_GONE), 0, 0 },
	[SNAPSHOT_GONE] = { "gone", 0, 0, 0 },
};
/* clang-format on */

const struct sm_state *snapshot_state_table(void)
{
	return table;
}

const char *snapshot_state_name(enum snapshot_state state)
{
	return (unsigned int)state < SNAPSHOT_STATE_MAX_ ? table[state].name : "unknown";
}

enum snapshot_state snapshot_state_by_name(const char *name)
{
	unsigned int i;

	for (i = 0; i < SNAPSHOT_STATE_MAX_; i++)
		if (strcmp(table[i].name, name) == 0)
			break;
	return (enum snapshot_state)i;
}

/* ---- the object ---- */

struct snapshot *fleet_snapshot_find(const struct fleet *fleet, const char *id)
{
	struct snapshot *snapshot;

	HASH_FIND_STR(fleet->snapshots, id, snapshot);
	return snapshot;
}

void fleet_snapshot_dirty(struct fleet *fleet, struct snapshot *snapshot)
{
	if (snapshot->dirty)
		return;
	snapshot->dirty = true;
	TAILQ_INSERT_TAIL(&fleet->dirty_snapshots, snapshot, in_dirty);
}

struct snapshot *fleet_snapshot_add(struct fleet *fleet, struct snapshot_record *record)
{
	struct snapshot *snapshot = calloc(1, sizeof(*snapshot));

	if (!snapshot)
		return NULL;
	snapshot->record = *record;
	HASH_ADD_STR(fleet->snapshots, record.id, snapshot);
	if (!snapshot->hh.tbl) {
		free(snapshot);
		return NULL;
	}
	*record = (struct snapshot_record){ 0 };
	snapshot->deadline = (struct timer)TIMER_NULL(TIMER_SNAPSHOT_DEADLINE, snapshot);
	snapshot->resend = (struct timer)TIMER_NULL(TIMER_SNAPSHOT_RESEND, snapshot);
	TAILQ_INSERT_TAIL(&fleet->all_snapshots, snapshot, in_all);
	fleet->counts.snapshots[snapshot->record.state]++;
	fleet_quota_count_snapshot(fleet, snapshot);
	return snapshot;
}

/* Its room on a disk is taken whatever becomes of sandboxes: the node's, not a reservation of anybody. */
static void count_disk(struct fleet *fleet, struct snapshot *snapshot)
{
	const struct snapshot_record *record = &snapshot->record;
	uint64_t takes = record->size_mib ? record->size_mib : fleet_quota_kept_mib(record->spec);

	if (record->state == SNAPSHOT_LOST || record->state == SNAPSHOT_GONE || !snapshot->node)
		takes = 0;
	if (takes == snapshot->node_mib)
		return;
	snapshot->node->snapshots_mib = snapshot->node->snapshots_mib + takes - snapshot->node_mib;
	snapshot->node_mib = takes;
	fleet_node_update_place(fleet, snapshot->node);
}

/* What a live fork may freeze is reserved before its node is asked, until a capacity that came after its answer says what it froze.
 * Where there is no room for it beside those that are to begin the node is asked for one of files, from which they may begin. */
static void count_memory(struct fleet *fleet, struct snapshot *snapshot, uint64_t takes)
{
	if (takes == snapshot->freezing_mib || !snapshot->node)
		return;
	if (takes == 0)
		snapshot->node->settling_mib += snapshot->freezing_mib;
	snapshot->node->freezing_mib = snapshot->node->freezing_mib + takes - snapshot->freezing_mib;
	snapshot->freezing_mib = takes;
	fleet_node_update_place(fleet, snapshot->node);
}

static void reserve_frozen(struct fleet *fleet, struct snapshot *snapshot)
{
	const struct node *node = snapshot->node;
	struct place_usage usage;
	uint64_t taken, wanted;

	if (!snapshot->record.is_fork || snapshot->record.state != SNAPSHOT_MAKING)
		return;
	place_node_usage(node->place, &usage);
	taken = usage.memory_mib + node->foreign_memory_mib + node->record.capacity.frozen_mib + node->freezing_mib + node->settling_mib;
	wanted = snapshot->record.spec->memory_mib + snapshot->record.n_forks * spec_memory_cost(snapshot->record.spec);
	if (taken + wanted <= node->record.capacity.memory_mib)
		count_memory(fleet, snapshot, snapshot->record.spec->memory_mib);
}

void fleet_snapshot_attach(struct fleet *fleet, struct snapshot *snapshot, struct node *node)
{
	snapshot->node = node;
	memcpy(snapshot->record.node, node->record.id, sizeof(snapshot->record.node));
	TAILQ_INSERT_TAIL(&node->snapshots, snapshot, in_node);
	count_disk(fleet, snapshot);
	reserve_frozen(fleet, snapshot);
}

static void detach_sandbox(struct snapshot *snapshot)
{
	if (snapshot->sandbox)
		snapshot->sandbox->snapshot = NULL;
	snapshot->sandbox = NULL;
}

void fleet_snapshot_remove(struct fleet *fleet, struct snapshot *snapshot)
{
	fleet->counts.snapshots[snapshot->record.state]--;
	snapshot->record.state = SNAPSHOT_GONE;
	fleet_quota_count_snapshot(fleet, snapshot);
	detach_sandbox(snapshot);
	if (snapshot->node) {
		count_disk(fleet, snapshot);
		count_memory(fleet, snapshot, 0);
		TAILQ_REMOVE(&snapshot->node->snapshots, snapshot, in_node);
	}
	fleet_timer_stop(&fleet->timers, &snapshot->deadline);
	fleet_timer_stop(&fleet->timers, &snapshot->resend);
	if (snapshot->request)
		fleet_waiter_remove(fleet, snapshot->request);
	if (snapshot->dirty)
		TAILQ_REMOVE(&fleet->dirty_snapshots, snapshot, in_dirty);
	TAILQ_REMOVE(&fleet->all_snapshots, snapshot, in_all);
	HASH_DEL(fleet->snapshots, snapshot);
	snapshot_record_deinit(&snapshot->record);
	free(snapshot->fork_errs);
	free(snapshot);
}

static void arm_for(struct fleet *fleet, struct snapshot *snapshot, int64_t limit_usec)
{
	if (fleet_timer_arm(&fleet->timers, &snapshot->deadline, fleet->now.mono_usec + limit_usec) < 0)
		fleet->out->no_memory = true;
}

static void arm(struct fleet *fleet, struct snapshot *snapshot)
{
	const struct fleet_config *config = &fleet->config;
	bool waits = snapshot->request && !snapshot->record.is_fork;

	snapshot->until_usec = fleet->now.mono_usec + config->snapshot_timeout_usec;
	if (table[snapshot->record.state].deadline_usec == 0)
		fleet_timer_stop(&fleet->timers, &snapshot->deadline);
	else if (snapshot->record.state == SNAPSHOT_DROPPING)
		arm_for(fleet, snapshot, config->fence_usec);
	else
		arm_for(fleet, snapshot, waits ? config->sleep_timeout_usec : config->snapshot_timeout_usec);
}

void fleet_snapshot_move(struct fleet *fleet, struct snapshot *snapshot, enum snapshot_state state)
{
	enum snapshot_state from = snapshot->record.state;
	struct sandbox *sandbox = snapshot->sandbox;

	assert(sm_move_is_allowed(table, from, state));
	fleet->counts.snapshots[from]--;
	fleet->counts.snapshots[state]++;
	snapshot->record.state = state;
	snapshot->resends = 0;
	fleet_timer_stop(&fleet->timers, &snapshot->resend);
	detach_sandbox(snapshot);
	arm(fleet, snapshot);
	count_disk(fleet, snapshot);
	if (state == SNAPSHOT_READY || state == SNAPSHOT_LOST || state == SNAPSHOT_GONE)
		count_memory(fleet, snapshot, 0);
	fleet_quota_count_snapshot(fleet, snapshot);
	fleet_snapshot_dirty(fleet, snapshot);
	if (sandbox && sandbox->update.pending) { /* it waited for this */
		sandbox->update.until_usec = fleet->now.mono_usec + fleet->config.dispatch_timeout_usec;
		fleet_sandbox_command(fleet, sandbox);
	}
	if (state == SNAPSHOT_DROPPING)
		fleet_snapshot_command(fleet, snapshot);
	fleet_warm_snapshot_moved(fleet, snapshot->record.id);
}

void fleet_snapshot_loaded(struct fleet *fleet, struct snapshot *snapshot)
{
	arm(fleet, snapshot);
}

void fleet_snapshot_answer(struct fleet *fleet, struct snapshot *snapshot, const struct err *err)
{
	if (snapshot->request == 0)
		return;
	fleet_emit_snapshot_reply(fleet, snapshot->request, err, snapshot);
	fleet_waiter_remove(fleet, snapshot->request);
	snapshot->request = 0;
}

/* ---- commands ---- */

bool fleet_snapshot_is_sent(const struct sandbox *sandbox)
{
	return sandbox->snapshot && sandbox->snapshot->number;
}

static void send_snapshot(struct fleet *fleet, struct snapshot *snapshot)
{
	const struct snapshot_record *record = &snapshot->record;
	struct fleet_send *send = fleet_emit_send(fleet, snapshot->node, SEND_SNAPSHOT);

	if (!send)
		return;
	if (snapshot->number == 0)
		snapshot->number = fleet_change_number(fleet);
	send->snapshot.generation = record->generation;
	send->snapshot.number = snapshot->number;
	send->snapshot.is_live = snapshot->freezing_mib > 0;
	memcpy(send->snapshot.sandbox, record->sandbox, sizeof(send->snapshot.sandbox));
	memcpy(send->snapshot.operation, record->operation, sizeof(send->snapshot.operation));
	memcpy(send->snapshot.snapshot, record->id, sizeof(send->snapshot.snapshot));
}

static void send_drop(struct fleet *fleet, struct snapshot *snapshot)
{
	struct fleet_send *send = fleet_emit_send(fleet, snapshot->node, SEND_DROP_SNAPSHOT);

	if (send)
		memcpy(send->drop_snapshot, snapshot->record.id, sizeof(send->drop_snapshot));
}

/* Not before the node said what it has, and not to an agent that does not know these messages. */
void fleet_snapshot_command(struct fleet *fleet, struct snapshot *snapshot)
{
	int64_t pause = fleet->config.resend_usec << MIN(snapshot->resends, (uint32_t)RESEND_DOUBLINGS);
	struct node *node = snapshot->node;

	if (!node || node->session == 0 || !node->is_known || !node->snapshots_are_known)
		return; /* the node's inventory wakes it */
	if (snapshot->record.state == SNAPSHOT_MAKING) {
		if (!snapshot->number && snapshot->sandbox && snapshot->sandbox->update.pending)
			return; /* when that is done: request.c */
		send_snapshot(fleet, snapshot);
	} else if (snapshot->record.state == SNAPSHOT_DROPPING) {
		send_drop(fleet, snapshot);
	} else {
		return;
	}
	pause += (int64_t)rng_below(fleet->rng, (uint64_t)(pause / 4 + 1));
	if (fleet_timer_arm(&fleet->timers, &snapshot->resend, fleet->now.mono_usec + pause) < 0)
		fleet->out->no_memory = true;
}

void fleet_snapshot_on_resend(struct fleet *fleet, struct snapshot *snapshot)
{
	snapshot->resends++;
	fleet->counts.resends++;
	fleet_snapshot_command(fleet, snapshot);
}

/* The node may have begun: it is dropped once that came to an end. */
void fleet_snapshot_give_up(struct fleet *fleet, struct snapshot *snapshot, const struct err *err)
{
	snapshot->record.is_unwanted = true;
	fleet_timer_stop(&fleet->timers, &snapshot->deadline);
	fleet_quota_count_snapshot(fleet, snapshot);
	fleet_snapshot_answer(fleet, snapshot, err);
	fleet_snapshot_dirty(fleet, snapshot);
}

void fleet_snapshot_on_deadline(struct fleet *fleet, struct snapshot *snapshot)
{
	int64_t left_usec = snapshot->until_usec - fleet->now.mono_usec;
	bool is_heard = snapshot->node && snapshot->node->link == NODE_READY;
	struct err err = ERR_NULL;

	if (snapshot->record.state == SNAPSHOT_DROPPING) { /* its node will hardly come back */
		fleet_snapshot_move(fleet, snapshot, SNAPSHOT_GONE);
	} else if (left_usec > 0) {
		(void)err_set_at(&err, STAGE_SNAPSHOT, is_heard ? FAIL_SNAPSHOTTING : FAIL_NODE_UNREACHABLE, 0, "%s",
			is_heard ? "The snapshot is still being made; it is in the list when it is done."
				 : "The sandbox's node is cut off; the snapshot is in the list if it was made.");
		fleet_snapshot_answer(fleet, snapshot, &err);
		arm_for(fleet, snapshot, left_usec);
	} else {
		(void)err_set_at(&err, STAGE_SNAPSHOT, FAIL_NODE_UNREACHABLE, 0,
			"The sandbox's node did not say in time that the snapshot is there; it is given up.");
		fleet_snapshot_give_up(fleet, snapshot, &err);
	}
}

/* ---- what becomes of it ---- */

void fleet_snapshot_made(struct fleet *fleet, struct snapshot *snapshot, const struct snapshot_info *info)
{
	struct snapshot_record *record = &snapshot->record;
	struct sandbox *sandbox = snapshot->sandbox;

	if (record->state != SNAPSHOT_MAKING)
		return;
	record->size_mib = info->size_mib;
	memcpy(record->cpu_class, info->cpu_class, sizeof(record->cpu_class));
	if (record->is_unwanted) {
		fleet_snapshot_move(fleet, snapshot, SNAPSHOT_DROPPING);
		return;
	}
	if (sandbox)
		fleet_sandbox_event(fleet, sandbox, "SNAPSHOT", record->is_fork ? "for a fork" : record->id);
	fleet_snapshot_move(fleet, snapshot, SNAPSHOT_READY);
	if (record->is_fork)
		fleet_fork_begin(fleet, snapshot);
	else
		fleet_snapshot_answer(fleet, snapshot, NULL);
}

void fleet_snapshot_failed(struct fleet *fleet, struct snapshot *snapshot, const struct err *err)
{
	fleet_snapshot_answer(fleet, snapshot, err);
	fleet_snapshot_move(fleet, snapshot, SNAPSHOT_GONE);
}

/* ---- what the API asks ---- */

static void refuse(struct fleet *fleet, uint64_t request, struct sandbox *sandbox, enum fail_code code, const char *why)
{
	struct err err = ERR_NULL;

	(void)err_set_at(&err, code == FAIL_SNAPSHOT_NOT_FOUND ? STAGE_ADMIT : STAGE_SNAPSHOT, code, 0, "%s", why);
	fleet_emit_reply(fleet, request, &err, sandbox);
}

/* The sandbox, where a snapshot of it can be begun now; NULL: the request was answered. */
static struct sandbox *subject(struct fleet *fleet, const struct fleet_snapshot *request)
{
	struct sandbox *sandbox = fleet_sandbox_find(fleet, request->sandbox);
	struct err err = ERR_NULL;
	int r;

	if (!sandbox || sandbox->record.state == SANDBOX_STOPPING || sandbox->record.state == SANDBOX_FENCED)
		refuse(fleet, request->request, NULL, FAIL_SANDBOX_NOT_FOUND, "There is no such sandbox.");
	else if (fleet_is_sleeping(sandbox->record.state))
		refuse(fleet, request->request, sandbox, FAIL_CONFLICT, "The sandbox is paused; connect to it first.");
	else if (sandbox->record.state != SANDBOX_RUNNING)
		refuse(fleet, request->request, sandbox, FAIL_SANDBOX_NOT_READY, "The sandbox is still starting.");
	else if (sandbox->snapshot)
		refuse(fleet, request->request, sandbox, FAIL_SNAPSHOTTING, "A snapshot of the sandbox is under way.");
	else if (sandbox->node->session == 0 || !sandbox->node->is_known)
		refuse(fleet, request->request, sandbox, FAIL_NODE_UNREACHABLE, "The sandbox's node is cut off at present.");
	else if (!sandbox->node->snapshots_are_known)
		refuse(fleet, request->request, sandbox, FAIL_SNAPSHOT_UNSUPPORTED,
			"The agent of the sandbox's node makes no snapshots.");
	else {
		r = request->n_forks
			    ? fleet_quota_check(fleet, fleet->now.mono_usec, sandbox->record.tenant, &request->quota,
				      sandbox->record.spec, &err)
			    : fleet_quota_check_snapshot(fleet, sandbox->record.tenant, &request->quota,
				      fleet_quota_kept_mib(sandbox->record.spec), &err);
		if (r == 0)
			return sandbox;
		fleet_emit_reply(fleet, request->request, &err, sandbox);
	}
	return NULL;
}

/* An ordinary one knows what a sandbox that begins as it must have; what its maker gave it is its own. */
static struct sandbox_spec *shape_of(const struct sandbox_spec *from)
{
	struct sandbox_spec *spec = spec_new();

	if (!spec)
		return NULL;
	memcpy(spec->template_name, from->template_name, sizeof(spec->template_name));
	memcpy(spec->image_digest, from->image_digest, sizeof(spec->image_digest));
	memcpy(spec->tenant, from->tenant, sizeof(spec->tenant));
	spec->image_size = from->image_size;
	spec->vcpus = from->vcpus;
	spec->memory_mib = from->memory_mib;
	spec->disk_mib = from->disk_mib;
	return spec;
}

static struct snapshot *make(struct fleet *fleet, struct sandbox *sandbox, const struct fleet_snapshot *request)
{
	struct snapshot_record record = { .state = SNAPSHOT_MAKING,
		.generation = sandbox->record.generation,
		.created_us = fleet->now.real_usec,
		.is_fork = request->n_forks > 0 };
	struct snapshot *snapshot = NULL;

	memcpy(record.id, request->id, sizeof(record.id));
	while (!*record.id || fleet_snapshot_find(fleet, record.id))
		id_new(fleet->rng, record.id);
	id_new(fleet->rng, record.operation);
	memcpy(record.tenant, sandbox->record.tenant, sizeof(record.tenant));
	memcpy(record.pool, sandbox->record.pool, sizeof(record.pool));
	memcpy(record.sandbox, sandbox->record.id, sizeof(record.sandbox));
	if (request->name)
		strncpy(record.name, request->name, sizeof(record.name) - 1);
	record.spec = record.is_fork ? spec_ref(sandbox->record.spec) : shape_of(sandbox->record.spec);
	if (record.spec)
		snapshot = fleet_snapshot_add(fleet, &record);
	if (!snapshot)
		snapshot_record_deinit(&record);
	return snapshot;
}

void fleet_request_snapshot(struct fleet *fleet, const struct fleet_snapshot *request)
{
	struct sandbox *sandbox = subject(fleet, request);
	struct snapshot *snapshot = sandbox ? make(fleet, sandbox, request) : NULL;

	if (!sandbox)
		return;
	if (snapshot && fleet_fork_prepare(snapshot, sandbox, request) < 0) {
		fleet_snapshot_remove(fleet, snapshot);
		snapshot = NULL;
	}
	if (!snapshot) {
		refuse(fleet, request->request, sandbox, FAIL_NO_MEMORY, "No memory for a snapshot.");
		return;
	}
	snapshot->is_new = true;
	snapshot->quota = request->quota;
	snapshot->sandbox = sandbox;
	sandbox->snapshot = snapshot;
	fleet_snapshot_attach(fleet, snapshot, sandbox->node);
	fleet_snapshot_dirty(fleet, snapshot);
	snapshot->request = request->request;
	if (request->request && !fleet_waiter_add_snapshot(fleet, request->request, snapshot))
		snapshot->request = 0;
	arm(fleet, snapshot);
	fleet_snapshot_command(fleet, snapshot);
}

/* A fork's own is nobody's to delete. */
static bool is_shown(const struct snapshot *snapshot)
{
	return snapshot && !snapshot->record.is_fork && !snapshot->record.is_unwanted &&
	       snapshot->record.state != SNAPSHOT_DROPPING && snapshot->record.state != SNAPSHOT_GONE;
}

void fleet_request_drop_snapshot(struct fleet *fleet, uint64_t request, const char *id)
{
	struct snapshot *snapshot = fleet_snapshot_find(fleet, id);
	bool has_node;

	if (!is_shown(snapshot)) {
		refuse(fleet, request, NULL, FAIL_SNAPSHOT_NOT_FOUND, "There is no such snapshot.");
		return;
	}
	if (snapshot->record.state == SNAPSHOT_MAKING) {
		refuse(fleet, request, NULL, FAIL_SNAPSHOTTING, "The snapshot is being made.");
		return;
	}
	/* One that is lost may be there in part: what is broken a node does not name, and keeps until it is told. */
	has_node = snapshot->node && snapshot->node->link != NODE_REMOVED;
	fleet_snapshot_move(fleet, snapshot, has_node ? SNAPSHOT_DROPPING : SNAPSHOT_GONE);
	fleet_emit_reply(fleet, request, NULL, NULL);
}

/* ---- reading ---- */

const struct snapshot_record *fleet_snapshot_get(const struct fleet *fleet, const char *id)
{
	const struct snapshot *snapshot = fleet_snapshot_find(fleet, id);

	return is_shown(snapshot) ? &snapshot->record : NULL;
}

bool fleet_snapshot_is_used(const struct fleet *fleet, const char *id)
{
	const struct snapshot *snapshot = fleet_snapshot_find(fleet, id);

	return snapshot && snapshot->record.state != SNAPSHOT_DROPPING;
}

const struct snapshot_record *fleet_snapshot_named(const struct fleet *fleet, const char *tenant, const char *name)
{
	const struct snapshot *snapshot;

	TAILQ_FOREACH_REVERSE (snapshot, &fleet->all_snapshots, snapshot_list, in_all)
		if (*name && is_shown(snapshot) && snapshot->record.state == SNAPSHOT_READY &&
			!strcmp(snapshot->record.name, name) && !strcmp(snapshot->record.tenant, tenant))
			return &snapshot->record;
	return NULL;
}

size_t fleet_snapshot_list(const struct fleet *fleet, const char *tenant, const char *after, int64_t after_us,
	char (*ret)[ID_SIZE], size_t max)
{
	const struct snapshot *snapshot = AGE_NEXT(&fleet->all_snapshots, *after ? fleet_snapshot_find(fleet, after) : NULL, *after ? after_us : 0);
	size_t n = 0;

	for (; snapshot && n < max; snapshot = TAILQ_NEXT(snapshot, in_all))
		if (is_shown(snapshot) && (!tenant || !strcmp(tenant, snapshot->record.tenant)))
			memcpy(ret[n++], snapshot->record.id, ID_SIZE);
	return n;
}
