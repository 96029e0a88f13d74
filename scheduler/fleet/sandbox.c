/* SPDX-License-Identifier: Apache-2.0
 *
 * The sandbox object: its state table, its one mover, its room on a node and its notes (stages).
 *
 *   RUNNING, PAUSING -> PLACING as well, with its node lost, where the pool's replacement is on-loss (replace.c), and
 *   RUNNING -> DISPATCHED, when a warm VM was claimed (warm.c).
 *
 *   RUNNING -> PAUSING -> PAUSED -> RESUMING -> RUNNING (sleep.c).
 *
 *   PLACING -> DISPATCHED -> STARTING -> RUNNING -> STOPPING -> ENDED
 *      ^  ^        |  \         |  \        |           |
 *      |  |        |   RECALL <-+   \       |           v
 *      |  +--------+-- retry --+     \      |        FENCED -> ENDED
 *      +-- BACKOFF <-----------+      +-----+----------^
 *
 * Every state in which something is waited for has a deadline; RUNNING waits for nothing (its life time is the
 * node's), PAUSED neither, and ENDED leaves memory in the same step.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "fleet/internal.h"

/* clang-format off */
static const struct sm_state table[SANDBOX_STATE_MAX_] = {
	[SANDBOX_PLACING] = {
		"placing",
		SM_TO(SANDBOX_DISPATCHED) | SM_TO(SANDBOX_ENDED),
		1, PUBLIC_STARTING },
	[SANDBOX_DISPATCHED] = {
		"dispatched",
		SM_TO(SANDBOX_STARTING) | SM_TO(SANDBOX_RUNNING) | SM_TO(SANDBOX_PLACING) | SM_TO(SANDBOX_BACKOFF) |
			SM_TO(SANDBOX_RECALL) | SM_TO(SANDBOX_STOPPING) | SM_TO(SANDBOX_ENDED),
		1, PUBLIC_STARTING },
	[SANDBOX_STARTING] = {
		"starting",
		SM_TO(SANDBOX_RUNNING) | SM_TO(SANDBOX_PLACING) | SM_TO(SANDBOX_BACKOFF) | SM_TO(SANDBOX_RECALL) |
			SM_TO(SANDBOX_STOPPING) | SM_TO(SANDBOX_ENDED),
		1, PUBLIC_STARTING },
	[SANDBOX_BACKOFF] = {
		"backoff",
		SM_TO(SANDBOX_PLACING) | SM_TO(SANDBOX_ENDED),
		1, PUBLIC_STARTING },
	[SANDBOX_RECALL] = {
		"recall",
		SM_TO(SANDBOX_PLACING) | SM_TO(SANDBOX_BACKOFF) | SM_TO(SANDBOX_STOPPING) | SM_TO(SANDBOX_FENCED) |
			SM_TO(SANDBOX_ENDED),
		1, PUBLIC_STARTING },
	[SANDBOX_RUNNING] = {
		"running",
		SM_TO(SANDBOX_STOPPING) | SM_TO(SANDBOX_PLACING) | SM_TO(SANDBOX_DISPATCHED) | SM_TO(SANDBOX_PAUSING) |
			SM_TO(SANDBOX_PAUSED) | SM_TO(SANDBOX_ENDED),
		0, PUBLIC_RUNNING },
	[SANDBOX_PAUSING] = {
		"pausing",
		SM_TO(SANDBOX_PAUSED) | SM_TO(SANDBOX_RUNNING) | SM_TO(SANDBOX_PLACING) | SM_TO(SANDBOX_STOPPING) |
			SM_TO(SANDBOX_ENDED),
		1, PUBLIC_RUNNING },
	[SANDBOX_PAUSED] = {
		"paused",
		SM_TO(SANDBOX_RESUMING) | SM_TO(SANDBOX_RUNNING) | SM_TO(SANDBOX_STOPPING) | SM_TO(SANDBOX_ENDED),
		0, PUBLIC_PAUSED },
	[SANDBOX_RESUMING] = {
		"resuming",
		SM_TO(SANDBOX_RUNNING) | SM_TO(SANDBOX_PAUSED) | SM_TO(SANDBOX_STOPPING) | SM_TO(SANDBOX_ENDED),
		1, PUBLIC_PAUSED },
	[SANDBOX_STOPPING] = {
		"stopping",
		SM_TO(SANDBOX_FENCED) | SM_TO(SANDBOX_ENDED),
		1, PUBLIC_STOPPING },
	[SANDBOX_FENCED] = {
		"fenced",
		SM_TO(SANDBOX_ENDED),
		1, PUBLIC_ENDED },
	[SANDBOX_ENDED] = { "ended", 0, 0, PUBLIC_ENDED },
};
/* clang-format on */

const struct sm_state *sandbox_state_table(void)
{
	return table;
}

const char *sandbox_state_name(enum sandbox_state state)
{
	return (unsigned int)state < SANDBOX_STATE_MAX_ ? table[state].name : "unknown";
}

enum sandbox_state sandbox_state_by_name(const char *name)
{
	unsigned int i;

	for (i = 0; i < SANDBOX_STATE_MAX_; i++)
		if (strcmp(table[i].name, name) == 0)
			break;
	return (enum sandbox_state)i;
}

/* The table says that a state has a deadline; how long is configuration. */
static int64_t state_limit(const struct fleet *fleet, const struct sandbox *sandbox)
{
	const struct fleet_config *config = &fleet->config;
	int64_t backoff = config->backoff_min_usec;

	switch (sandbox->record.state) {
	case SANDBOX_PLACING:
		return MAX(config->place_timeout_usec,
			sandbox->queue_until_usec - fleet->now.mono_usec);
	case SANDBOX_DISPATCHED:
		return config->dispatch_timeout_usec;
	case SANDBOX_STARTING:
		return config->start_timeout_usec;
	case SANDBOX_BACKOFF:
		for (uint32_t i = 2;
			i < sandbox->record.attempts && backoff < config->backoff_max_usec; i++)
			backoff *= 2;
		return MIN(backoff, config->backoff_max_usec) +
		       (int64_t)rng_below(fleet->rng, (uint64_t)backoff);
	case SANDBOX_RECALL:
		return config->recall_timeout_usec;
	case SANDBOX_PAUSING:
	case SANDBOX_RESUMING:
		return config->sleep_timeout_usec;
	case SANDBOX_STOPPING:
		return config->stop_timeout_usec;
	case SANDBOX_FENCED:
		return config->fence_usec;
	case SANDBOX_RUNNING:
	case SANDBOX_PAUSED:
	case SANDBOX_ENDED:
	case SANDBOX_STATE_MAX_:
		break;
	}
	return 0;
}

void fleet_sandbox_arm(struct fleet *fleet, struct sandbox *sandbox)
{
	if (table[sandbox->record.state].deadline_usec == 0) {
		fleet_timer_stop(&fleet->timers, &sandbox->deadline);
		return;
	}
	if (fleet_timer_arm(&fleet->timers, &sandbox->deadline,
		    fleet->now.mono_usec + state_limit(fleet, sandbox)) < 0)
		fleet->out->no_memory = true;
}

void fleet_sandbox_move(struct fleet *fleet, struct sandbox *sandbox, enum sandbox_state state)
{
	enum sandbox_state from = sandbox->record.state;

	assert(sm_move_is_allowed(table, from, state));
	fleet->counts.sandboxes[from]--;
	fleet->counts.sandboxes[state]++;
	sandbox->record.state = state;
	sandbox->since_usec = fleet->now.mono_usec;
	sandbox->resends = 0;
	fleet_timer_stop(&fleet->timers, &sandbox->resend);
	fleet_queue_leave(fleet, sandbox);
	fleet_start_unplaced(fleet, sandbox);
	fleet_sandbox_arm(fleet, sandbox);
	fleet_quota_count(fleet, sandbox);
	fleet_warm_count(fleet, sandbox);
	fleet_coming_count(fleet, sandbox);
	fleet_sandbox_dirty(fleet, sandbox);
	fleet_fork_leave(fleet, sandbox, from);
}

void fleet_sandbox_dirty(struct fleet *fleet, struct sandbox *sandbox)
{
	if (sandbox->dirty)
		return;
	sandbox->dirty = true;
	TAILQ_INSERT_TAIL(&fleet->dirty_sandboxes, sandbox, in_dirty);
}

/* ---- objects ---- */

struct sandbox *fleet_sandbox_find(const struct fleet *fleet, const char *id)
{
	struct sandbox *sandbox;

	HASH_FIND_STR(fleet->sandboxes, id, sandbox);
	return sandbox;
}

struct note *fleet_sandbox_note_slot(struct sandbox *sandbox)
{
	struct note *note;

	if (sandbox->n_notes == sandbox->notes_room && sandbox->notes_room < NOTES_MAX) {
		size_t room = sandbox->notes_room ? 2 * sandbox->notes_room : 16;
		struct note *grown = realloc(sandbox->notes, room * sizeof(*grown));

		if (!grown)
			return NULL;
		sandbox->notes = grown;
		sandbox->notes_room = room;
	}
	if (sandbox->n_notes == NOTES_MAX) { /* many attempts: the oldest make room */
		free(sandbox->notes[0].failure);
		memmove(sandbox->notes, sandbox->notes + 1,
			(NOTES_MAX - 1) * sizeof(*sandbox->notes));
		sandbox->n_notes--;
	}
	note = &sandbox->notes[sandbox->n_notes++];
	memset(note, 0, sizeof(*note));
	return note;
}

static void note_set_failure(struct note *note, const struct err *failure)
{
	if (failure->code == FAIL_NONE)
		return;
	note->failure = malloc(sizeof(*note->failure));
	if (note->failure)
		*note->failure = *failure;
}

struct note *fleet_sandbox_note_import(struct sandbox *sandbox, const struct stage_record *from)
{
	struct note *note = fleet_sandbox_note_slot(sandbox);

	if (!note)
		return NULL;
	note->stage = from->stage;
	note->outcome = from->outcome;
	note->attempt = from->attempt;
	note->generation = from->generation;
	note->began_us = from->began_us;
	note->corrected_us = from->corrected_us;
	note->took_us = from->took_us;
	memcpy(note->node, from->node, sizeof(note->node));
	memcpy(note->operation, from->operation, sizeof(note->operation));
	memcpy(note->span_id, from->trace.span_id, sizeof(note->span_id));
	memcpy(note->reason, from->reason, sizeof(note->reason));
	note_set_failure(note, &from->failure);
	return note;
}

static int notes_import(struct sandbox *sandbox)
{
	struct sandbox_record *record = &sandbox->record;

	for (size_t i = 0; i < record->n_stages; i++)
		if (!fleet_sandbox_note_import(sandbox, &record->stages[i]))
			return -ENOMEM;
	free(record->stages);
	record->stages = NULL;
	record->n_stages = 0;
	return 0;
}

struct sandbox *fleet_sandbox_add(struct fleet *fleet, struct sandbox_record *record)
{
	struct sandbox *sandbox = calloc(1, sizeof(*sandbox));

	if (!sandbox)
		return NULL;
	sandbox->record = *record;
	if (notes_import(sandbox) < 0) {
		free(sandbox);
		return NULL;
	}
	HASH_ADD_STR(fleet->sandboxes, record.id, sandbox);
	if (!sandbox->hh.tbl) {
		free(sandbox->notes);
		free(sandbox);
		return NULL;
	}
	*record = (struct sandbox_record){ 0 };
	sandbox->since_usec = fleet->now.mono_usec;
	TAILQ_INIT(&sandbox->sleepers);
	sandbox->deadline = (struct timer)TIMER_NULL(TIMER_DEADLINE, sandbox);
	sandbox->resend = (struct timer)TIMER_NULL(TIMER_RESEND, sandbox);
	TAILQ_INSERT_TAIL(&fleet->all_sandboxes, sandbox, in_all);
	fleet->counts.sandboxes[sandbox->record.state]++;
	fleet_quota_count(fleet, sandbox);
	fleet_warm_count(fleet, sandbox);
	fleet_coming_count(fleet, sandbox);
	fleet_fork_enter(fleet, sandbox);
	return sandbox;
}

void fleet_sandbox_remove(struct fleet *fleet, struct sandbox *sandbox)
{
	fleet->counts.sandboxes[sandbox->record.state]--;
	fleet_quota_leave(fleet, sandbox);
	fleet_warm_leave(sandbox);
	if (sandbox->is_leaving)
		TAILQ_REMOVE(&fleet->leaving, sandbox, in_leaving);
	fleet_queue_leave(fleet, sandbox);
	fleet_start_unplaced(fleet, sandbox);
	if (sandbox->snapshot)
		sandbox->snapshot->sandbox = NULL;
	sandbox->snapshot = NULL;
	fleet_sandbox_detach(fleet, sandbox);
	fleet_timer_stop(&fleet->timers, &sandbox->deadline);
	fleet_timer_stop(&fleet->timers, &sandbox->resend);
	if (sandbox->request)
		fleet_waiter_remove(fleet, sandbox->request);
	if (sandbox->update.request)
		fleet_waiter_remove(fleet, sandbox->update.request);
	while (!TAILQ_EMPTY(&sandbox->sleepers))
		fleet_waiter_remove(fleet, TAILQ_FIRST(&sandbox->sleepers)->request);
	spec_unref(sandbox->update.spec);
	if (sandbox->dirty)
		TAILQ_REMOVE(&fleet->dirty_sandboxes, sandbox, in_dirty);
	TAILQ_REMOVE(&fleet->all_sandboxes, sandbox, in_all);
	HASH_DEL(fleet->sandboxes, sandbox);
	for (size_t i = 0; i < sandbox->n_notes; i++)
		free(sandbox->notes[i].failure);
	free(sandbox->notes);
	sandbox_record_deinit(&sandbox->record);
	free(sandbox);
}

/* ---- its node ---- */

void fleet_sandbox_attach(struct fleet *fleet, struct sandbox *sandbox, struct node *node)
{
	(void)fleet;
	assert(!sandbox->node);
	sandbox->node = node;
	memcpy(sandbox->record.node, node->record.id, sizeof(sandbox->record.node));
	TAILQ_INSERT_TAIL(&node->sandboxes, sandbox, in_node);
}

/* record.node stays: history says where it was. */
void fleet_sandbox_detach(struct fleet *fleet, struct sandbox *sandbox)
{
	bool was_asleep = sandbox->record.is_asleep;

	if (!sandbox->node)
		return;
	fleet_snapshot_orphan(fleet, sandbox, FAIL_SANDBOX_GONE);
	fleet_sandbox_release(fleet, sandbox);
	TAILQ_REMOVE(&sandbox->node->sandboxes, sandbox, in_node);
	if (sandbox->is_unreadable && !was_asleep) { /* until an inventory says otherwise; of a sleeper the last one did */
		sandbox->node->foreign_sandboxes++;
		fleet_node_update_place(fleet, sandbox->node);
	}
	sandbox->is_unreadable = false;
	sandbox->node = NULL;
}

void fleet_sandbox_demand(const struct sandbox *sandbox, struct place_demand *ret)
{
	const struct sandbox_spec *spec = sandbox->record.spec;

	*ret = (struct place_demand){
		.memory_mib = spec_memory_cost(spec),
		.disk_mib = spec->disk_mib,
		.vcpus = spec->vcpus,
		.tenant = sandbox->record.tenant,
		.region = sandbox->record.wish.region,
		.cpu_class = sandbox->record.wish.cpu_class,
		.labels = sandbox->record.wish.labels,
		.n_labels = sandbox->record.wish.n_labels,
		.only = sandbox->origin ? sandbox->origin->place : NULL,
	};
	memcpy(ret->image_digest, spec->image_digest, sizeof(ret->image_digest));
}

void fleet_sandbox_demand_add(const struct sandbox *sandbox, struct place_demand *sum)
{
	struct place_demand one;

	fleet_sandbox_demand(sandbox, &one);
	sum->memory_mib += one.memory_mib;
	sum->disk_mib += one.disk_mib;
	sum->vcpus += one.vcpus;
}

void fleet_sandbox_reserve(struct fleet *fleet, struct sandbox *sandbox, bool starting)
{
	struct place_demand demand;

	if (sandbox->reserved)
		return;
	fleet_sandbox_demand(sandbox, &demand);
	if (place_reserve(fleet->place, sandbox->node->place, &demand, starting) < 0)
		fleet->out->no_memory = true;
	sandbox->reserved = true;
	sandbox->start_slot = starting;
}

void fleet_sandbox_sleep(struct fleet *fleet, struct sandbox *sandbox)
{
	struct place_demand demand;

	if (!sandbox->reserved || sandbox->record.is_asleep)
		return;
	fleet_sandbox_demand(sandbox, &demand);
	place_sleep(fleet->place, sandbox->node->place, &demand);
	sandbox->record.is_asleep = true;
	fleet->kicked = true;
}

void fleet_sandbox_wake(struct fleet *fleet, struct sandbox *sandbox)
{
	struct place_demand demand;

	if (!sandbox->record.is_asleep)
		return;
	fleet_sandbox_demand(sandbox, &demand);
	if (place_wake(fleet->place, sandbox->node->place, &demand) < 0)
		fleet->out->no_memory = true;
	sandbox->record.is_asleep = false;
	fleet_sandbox_dirty(fleet, sandbox);
}

bool fleet_is_sleeping(enum sandbox_state state)
{
	return state == SANDBOX_PAUSING || state == SANDBOX_PAUSED || state == SANDBOX_RESUMING;
}

void fleet_sandbox_release(struct fleet *fleet, struct sandbox *sandbox)
{
	struct place_demand demand;

	if (!sandbox->reserved)
		return;
	fleet_sandbox_wake(fleet, sandbox); /* what was given back is not given back twice */
	fleet_sandbox_demand(sandbox, &demand);
	place_release(fleet->place, sandbox->node->place, &demand, sandbox->start_slot);
	sandbox->reserved = false;
	sandbox->start_slot = false;
	fleet->kicked = true;
}

bool fleet_sandbox_has_vm(enum sandbox_state state)
{
	return state == SANDBOX_DISPATCHED || state == SANDBOX_STARTING ||
	       state == SANDBOX_RECALL || state == SANDBOX_RUNNING || fleet_is_sleeping(state) ||
	       state == SANDBOX_STOPPING || state == SANDBOX_FENCED;
}

/* ---- notes ---- */

void fleet_sandbox_note(struct fleet *fleet, struct sandbox *sandbox, enum fail_stage stage,
	enum outcome outcome, int64_t began_us, int64_t took_us, const struct err *failure)
{
	struct note *note = fleet_sandbox_note_slot(sandbox);
	struct trace span;

	if (!note) {
		fleet->out->no_memory = true;
		return;
	}
	note->stage = stage;
	note->outcome = outcome;
	note->attempt = sandbox->record.attempts;
	note->generation = sandbox->record.generation;
	note->began_us = began_us;
	note->took_us = MAX(took_us, 0);
	if (sandbox->node)
		memcpy(note->node, sandbox->record.node, sizeof(note->node));
	memcpy(note->operation, sandbox->record.operation, sizeof(note->operation));
	trace_child(fleet->rng, &sandbox->record.trace, &span);
	memcpy(note->span_id, span.span_id, sizeof(note->span_id));
	if (failure)
		note_set_failure(note, failure);
	fleet_sandbox_dirty(fleet, sandbox);
	fleet_emit_stage(fleet, sandbox, note);
}

bool fleet_sandbox_was_on(const struct sandbox *sandbox, const char *node, uint64_t generation)
{
	for (size_t i = 0; i < sandbox->n_notes; i++)
		if (sandbox->notes[i].stage == STAGE_PLACE &&
			sandbox->notes[i].generation == generation &&
			strcmp(sandbox->notes[i].node, node) == 0)
			return true;
	return false;
}
