/* SPDX-License-Identifier: Apache-2.0
 *
 * The session with the scheduler. On a new connection the hello goes out until the welcome comes, then the whole
 * inventory until the desired set that answers it came. Reports are sent when their content changes and again,
 * ever more slowly, until they are acknowledged.
 */
#include <stdio.h>
#include <string.h>

#include "core/internal.h"

#define REPORT_PAUSE_MAX (15 * USEC_PER_SEC)
#define DRIFT_RESYNC_USEC                                                                          \
	(60 * USEC_PER_SEC + USEC_PER_SEC) /* a little over the drift time: two looks settle it */
#define MIB (1024u * 1024u)
#define SPACE_STEP_MIB 64u

/* ---- reports ---- */

static int fill_report(const struct supervisor *sv, const struct sv_sandbox *sandbox, bool in_inventory,
	struct sandbox_report *ret)
{
	const struct sv_journal *journal = &sandbox->journal;
	struct sandbox_report view = {
		.generation = journal->generation,
		.version = journal->report_version,
		.state = (enum report_state)sv_state_table()[journal->state].public_state,
		.accepted = true,
		.kept = journal->state == SV_KEPT,
		.failure = journal->failure,
		.end_reason = journal->end_reason,
		.spec = in_inventory ? journal->spec : NULL,
	};

	if (sandbox->opening && journal->state == SV_RUNNING)
		view.state = REPORT_STARTING; /* that it runs is not journalled yet */
	if (journal->state == SV_SLEEPING || journal->state == SV_THAWING)
		view.state = REPORT_STARTING; /* neither asleep nor awake: no news */
	memcpy(view.sandbox, journal->sandbox, sizeof(view.sandbox));
	memcpy(view.operation, journal->operation, sizeof(view.operation));
	memcpy(view.updated, journal->updated, sizeof(view.updated));
	view.update_failure = sandbox->update_failure;
	view.snapshot = (struct snapshot_info *)(uintptr_t)sv_snapshot_answer(sv, sandbox, &view.update_failure); /* copied */
	memcpy(view.guest_boot_id, journal->guest_boot_id, sizeof(view.guest_boot_id));
	if (sandbox->is_bad) {
		view.generation = 1;
		view.state = REPORT_RUNNING;
		(void)err_set(&view.failure, FAIL_STATE_UNREADABLE, 0,
			"This sandbox's record on the node is torn.");
	}
	/* An inventory is about what is there; stages that the scheduler has need not travel again. */
	if (!in_inventory || journal->acked_version < journal->report_version) {
		view.stages = journal->stages;
		view.n_stages = journal->n_stages;
	}
	return sandbox_report_copy(&view, ret);
}

static void send_report(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct sv_action *action;

	sandbox->report_due_usec = sv->now.mono_usec + sandbox->report_pause_usec;
	sandbox->report_pause_usec = MIN(2 * sandbox->report_pause_usec, REPORT_PAUSE_MAX);
	if (!sv->welcomed)
		return;
	action = sv_emit(sv, SV_DO_SEND_REPORT, sandbox);
	if (!action)
		return;
	action->report = calloc(1, sizeof(*action->report));
	if (!action->report || fill_report(sv, sandbox, false, action->report) < 0)
		sv->out->no_memory = true;
}

void sv_report(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sandbox->journal.report_version++;
	sandbox->report_pause_usec = sv->config.report_usec;
	send_report(sv, sandbox);
	if (PLANTED(TOMBSTONE_DROPPED) && sandbox->journal.state == SV_ENDED) {
		struct report_ack ack = { .generation = sandbox->journal.generation,
			.version = UINT64_MAX };

		memcpy(ack.sandbox, sandbox->journal.sandbox, sizeof(ack.sandbox));
		sv_on_report_ack(sv, &ack);
	}
}

void sv_report_again(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sandbox->report_pause_usec = sv->config.report_usec;
	send_report(sv, sandbox);
	if (sandbox->is_bad)
		sandbox->report_due_usec = NEVER;
}

/* A refused create is a failed `accept`. */
static void add_refusal_stage(struct supervisor *sv, struct sandbox_report *report)
{
	struct stage_record *stage = calloc(1, sizeof(*stage));

	if (!stage) {
		sv->out->no_memory = true;
		return;
	}
	stage->stage = STAGE_ACCEPT;
	stage->outcome = RESULT_FAILED;
	stage->began_us = sv->now.real_usec;
	stage->generation = report->generation;
	stage->failure = report->failure;
	memcpy(stage->sandbox, report->sandbox, sizeof(stage->sandbox));
	memcpy(stage->node, sv->node, sizeof(stage->node));
	report->stages = stage;
	report->n_stages = 1;
}

void sv_report_gone(struct supervisor *sv, const char *id, uint64_t generation,
	enum end_reason reason, const struct err *refusal)
{
	struct sv_action *action;
	struct sandbox_report *report;

	if (!sv->welcomed)
		return;
	action = sv_emit(sv, SV_DO_SEND_REPORT, NULL);
	if (!action)
		return;
	report = action->report = calloc(1, sizeof(*report));
	if (!report) {
		sv->out->no_memory = true;
		return;
	}
	/* An action of the node, not of the sandbox: another generation of it may be under way. */
	memcpy(report->sandbox, id, sizeof(report->sandbox));
	report->generation = generation;
	report->state = REPORT_ENDED;
	report->end_reason = reason;
	if (refusal) {
		report->failure = *refusal;
		add_refusal_stage(sv, report);
	}
}

/* ---- hello, heartbeat, capacity ---- */

const struct err *sv_unable(const struct supervisor *sv)
{
	if (err_is_set(&sv->unreadable))
		return &sv->unreadable;
	if (err_is_set(&sv->owner_drain))
		return &sv->owner_drain;
	return err_is_set(&sv->capacity.unschedulable) ? &sv->capacity.unschedulable : sv_canary_verdict(sv);
}

static void send_hello(struct supervisor *sv)
{
	const struct sv_config *config = &sv->config;
	struct sv_action *action = sv_emit(sv, SV_DO_SEND_HELLO, NULL);
	struct hello *hello;

	sv->hello_due_usec = sv->now.mono_usec + config->hello_usec;
	if (!action)
		return;
	hello = action->hello = calloc(1, sizeof(*hello));
	if (!hello) {
		sv->out->no_memory = true;
		return;
	}
	memcpy(hello->instance, config->instance, sizeof(hello->instance));
	memcpy(hello->machine, config->machine, sizeof(hello->machine));
	memcpy(hello->boot_id, config->host_boot_id, sizeof(hello->boot_id));
	memcpy(hello->hostname, config->hostname, sizeof(hello->hostname));
	memcpy(hello->version, config->version, sizeof(hello->version));
	memcpy(hello->cpu_class, config->cpu_class, sizeof(hello->cpu_class));
	hello->capacity = sv->capacity.capacity;
	hello->capacity.frozen_mib = sv_frozen_mib(sv);
	hello->unschedulable = *sv_unable(sv);
	hello->highest_epoch = sv->highest_epoch;
	hello->pauses = config->pauses;
	hello->snapshots = config->snapshots;
	hello->leader = sv->leader;
	if (image_list_copy(&sv->capacity.images, &hello->images) < 0)
		sv->out->no_memory = true;
}

static void send_heartbeat(struct supervisor *sv)
{
	struct sv_action *action = sv_emit(sv, SV_DO_SEND_HEARTBEAT, NULL);
	struct sv_counts counts;

	sv->heartbeat_due_usec = sv->now.mono_usec + sv->heartbeat_usec;
	if (!action)
		return;
	supervisor_count(sv, &counts);
	action->heartbeat = (struct heartbeat){
		.schedulable = !err_is_set(sv_unable(sv)),
		.starting = counts.starting,
		.running = counts.running,
		.realtime_us = sv->now.real_usec,
	};
	sv_lease_heartbeat(sv, &action->heartbeat);
}

static void send_capacity(struct supervisor *sv)
{
	struct sv_action *action = sv_emit(sv, SV_DO_SEND_CAPACITY, NULL);
	struct capacity_report *report;
	struct sv_counts counts;

	sv->capacity_changed = false;
	sv->capacity_sent_usec = sv->now.mono_usec;
	if (!action)
		return;
	report = action->capacity = calloc(1, sizeof(*report));
	if (!report) {
		sv->out->no_memory = true;
		return;
	}
	supervisor_count(sv, &counts);
	report->capacity = sv->capacity.capacity;
	report->capacity.frozen_mib = counts.frozen_mib;
	report->memory_used_mib = counts.memory_mib;
	report->disk_free_mib = sv->capacity.disk_free_mib;
	report->unschedulable = *sv_unable(sv);
	space_list_deinit(&sv->space_told);
	if (image_list_copy(&sv->capacity.images, &report->images) < 0 || space_list_copy(&sv->space, &report->space) < 0 ||
		space_list_copy(&sv->space, &sv->space_told) < 0)
		sv->out->no_memory = true;
}

static bool same_images(const struct image_list *a, const struct image_list *b)
{
	return a->n == b->n &&
	       (a->n == 0 || memcmp(a->digests, b->digests, a->n * sizeof(*a->digests)) == 0);
}

/* What the scheduler decides by changed at once; disk space that trickles away is told with the next change. */
static bool is_news(const struct sv_capacity *old, const struct sv_capacity *new)
{
	return !capacity_is_equal(&old->capacity, &new->capacity) ||
	       old->unschedulable.code != new->unschedulable.code ||
	       !same_images(&old->images, &new->images);
}

static const char *owner_of(const struct supervisor *sv, const char *id)
{
	const struct sv_sandbox *sandbox = sv_sandbox_find(sv, id);
	const struct sv_snapshot *snapshot;

	if (sandbox)
		return sandbox->journal.spec ? sandbox->journal.spec->tenant : "";
	HASH_FIND_STR(sv->snapshots, id, snapshot);
	return snapshot ? snapshot->info.tenant : "";
}

/* As with the node's whole disk: a log line is no news. A tenant that comes or goes is. */
static bool space_is_news(const struct space_list *old, const struct space_list *new)
{
	for (size_t i = 0; i < new->n; i++) {
		uint64_t was = space_list_of(old, new->items[i].tenant), is = new->items[i].used;

		if (was == 0 || (is > was ? is - was : was - is) >= SPACE_STEP_MIB)
			return true;
	}
	return old->n != new->n; /* all of the new ones are among the old ones */
}

/* Summed in bytes and rounded up once, so that many small files are not as many MiB. */
static void take_space(struct supervisor *sv, const struct sv_capacity *capacity)
{
	struct space_list space = { 0 };
	int r = 0;

	for (size_t i = 0; i < capacity->n_space && r == 0; i++)
		if (capacity->space[i].bytes > 0)
			r = space_list_add(&space, owner_of(sv, capacity->space[i].id), capacity->space[i].bytes);
	if (r < 0) {
		space_list_deinit(&space);
		sv->out->no_memory = true;
		return;
	}
	for (size_t i = 0; i < space.n; i++)
		space.items[i].used = (space.items[i].used + MIB - 1) / MIB;
	sv->capacity_changed = sv->capacity_changed || space_is_news(&sv->space_told, &space);
	space_list_deinit(&sv->space);
	sv->space = space;
}

void sv_on_capacity(struct supervisor *sv, const struct sv_capacity *capacity)
{
	bool urgent = capacity->unschedulable.code != sv->capacity.unschedulable.code;
	struct image_list images;

	if (image_list_copy(&capacity->images, &images) < 0) {
		sv->out->no_memory = true;
		return;
	}
	sv->capacity_changed = sv->capacity_changed || is_news(&sv->capacity, capacity);
	image_list_deinit(&sv->capacity.images);
	sv->capacity = *capacity;
	sv->capacity.images = images;
	sv->capacity.space = NULL;
	take_space(sv, capacity);
	if (!sv->has_capacity) {
		sv->has_capacity = true;
		if (sv->link_up)
			send_hello(sv);
		return;
	}
	if (sv->welcomed && sv->capacity_changed &&
		(urgent || sv->now.mono_usec >= sv->capacity_sent_usec + sv->config.capacity_usec))
		send_capacity(sv);
}

void sv_unable_changed(struct supervisor *sv)
{
	sv->capacity_changed = true;
	if (sv->welcomed)
		send_capacity(sv);
}

/* ---- inventory ---- */

static struct inventory *inventory_part(struct supervisor *sv, uint32_t part)
{
	struct sv_action *action = sv_emit(sv, SV_DO_SEND_INVENTORY, NULL);

	if (!action)
		return NULL;
	action->inventory = calloc(1, sizeof(*action->inventory));
	if (action->inventory)
		action->inventory->sandboxes =
			calloc(PART_MAX, sizeof(*action->inventory->sandboxes));
	if (action->inventory)
		action->inventory->snapshots = calloc(PART_MAX, sizeof(*action->inventory->snapshots));
	if (!action->inventory || !action->inventory->sandboxes || !action->inventory->snapshots) {
		sv->out->no_memory = true;
		return NULL;
	}
	action->inventory->part = part;
	action->inventory->number = sv->inventory;
	action->inventory->greeting = sv->greeting;
	return action->inventory;
}

/* Never while the journal is unreadable: it would say that nothing is here. */
static void send_inventory(struct supervisor *sv)
{
	struct sv_sandbox *sandbox = sv->sandboxes;
	struct sv_snapshot *snapshot = sv->snapshots;
	uint32_t size = MIN(MAX(sv->config.part_size, 1u), (uint32_t)PART_MAX);
	struct inventory *inventory;
	uint32_t part = 0;

	sv->inventory++;
	sv->inventory_answered = false;
	sv->inventory_due_usec = sv->now.mono_usec + sv->config.inventory_usec;
	if (err_is_set(&sv->unreadable))
		return;
	do {
		inventory = inventory_part(sv, part++);
		if (!inventory)
			return;
		for (; sandbox && inventory->n < size; sandbox = sandbox->hh.next) {
			sandbox->listed_in = sv->inventory;
			if (fill_report(sv, sandbox, true, &inventory->sandboxes[inventory->n]) < 0) {
				sv->out->no_memory = true;
				return;
			}
			inventory->n++;
		}
		for (; snapshot && inventory->n_snapshots < size; snapshot = snapshot->hh.next) {
			if (snapshot->is_dropping)
				continue;
			snapshot->listed_in = sv->inventory;
			inventory->snapshots[inventory->n_snapshots++] = snapshot->info;
		}
		inventory->complete = !sandbox && !snapshot;
	} while (sandbox || snapshot);
}

/* ---- desired ---- */

static void judge(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct reconcile_actual actual = {
		.generation = sandbox->journal.generation,
		.is_ending = sandbox->is_bad || sv_is_ending(sandbox->journal.state),
	};

	memcpy(actual.sandbox, sandbox->journal.sandbox, sizeof(actual.sandbox));
	switch (reconcile_judge(
		sv->reconcile, sv->now.mono_usec, &actual, sandbox->listed_in == sv->inventory)) {
	case RECONCILE_KEEP:
		return;
	case RECONCILE_FENCE:
		sv_emit_event(sv, "sandbox-fenced", sandbox, NULL);
		sv_end(sv, sandbox, END_SUPERSEDED, NULL);
		return;
	case RECONCILE_DRIFTING:
		sv->counts.drift++;
		sv_emit_event(sv, "sandbox-drift", sandbox, NULL);
		return;
	case RECONCILE_DESTROY:
		sv->counts.destroyed_for_drift++;
		sv_emit_event(sv, "sandbox-drift-destroyed", sandbox, NULL);
		sv_end(sv, sandbox, END_UNKNOWN, NULL);
		return;
	}
}

void sv_on_desired(struct supervisor *sv, const struct desired_set *part)
{
	struct sv_sandbox *sandbox;

	if (!sv->welcomed || !reconcile_add_part(sv->reconcile, part, sv->inventory))
		return;
	sv->inventory_answered = true;
	for (sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next)
		judge(sv, sandbox);
	sv_snapshots_judge(sv);
	sv->inventory_due_usec =
		sv->now.mono_usec +
		(reconcile_drifting(sv->reconcile) ? DRIFT_RESYNC_USEC : sv->config.resync_usec);
}

/* ---- the session ---- */

void sv_on_link(struct supervisor *sv, bool up)
{
	sv->link_up = up;
	sv->welcomed = false;
	if (up && sv->has_capacity)
		send_hello(sv);
}

void sv_on_welcome(struct supervisor *sv, const struct welcome *welcome)
{
	if (!sv->link_up || (sv->welcomed && sv->greeting == welcome->greeting))
		return;
	sv->welcomed = true;
	sv->greeting = welcome->greeting; /* another one: of a scheduler that does not know what is here */
	memcpy(sv->node, welcome->node, sizeof(sv->node));
	sv->heartbeat_usec = welcome->heartbeat_ms * USEC_PER_MSEC;
	sv_lease_welcomed(sv, welcome->lease_ms);
	send_inventory(sv);
	send_heartbeat(sv);
	space_list_deinit(&sv->space_told); /* a hello does not say it */
	sv_usage_welcomed(sv, welcome->takes_usage);
}

void sv_greet_again(struct supervisor *sv)
{
	if (!sv->link_up || !sv->has_capacity || !sv->welcomed)
		return; /* a hello is under way */
	sv->welcomed = false;
	send_hello(sv);
}

void sv_on_refused(struct supervisor *sv, const struct err *err)
{
	switch (err->code) {
	case FAIL_HELLO_NEEDED:
		sv_greet_again(sv);
		return;
	case FAIL_NODE_ID_IN_USE:
	case FAIL_NODE_REVOKED:
	case FAIL_NODE_KEY_UNKNOWN:
	case FAIL_STALE_EPOCH:
	case FAIL_SCHEDULER_SPLIT:
		sv->welcomed = false;
		sv_emit_event(sv, "session-refused", NULL, err);
		if (err->code == FAIL_NODE_REVOKED && sv->config.stops_on_revoke)
			sv_owner_revoked(sv, err);
		(void)sv_emit(sv, SV_DO_RECONNECT, NULL);
		return;
	default:
		sv_emit_event(sv, "message-refused", NULL, err);
		return;
	}
}

static int64_t report_tick(struct supervisor *sv)
{
	struct sv_sandbox *sandbox;

	for (sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next)
		if (sandbox->report_due_usec <= sv->now.mono_usec)
			send_report(sv, sandbox);
	return 0;
}

void sv_session_tick(struct supervisor *sv)
{
	int64_t now = sv->now.mono_usec;

	if (!sv->link_up || !sv->has_capacity)
		return;
	if (!sv->welcomed) {
		if (now >= sv->hello_due_usec)
			send_hello(sv);
		return;
	}
	if (now >= sv->heartbeat_due_usec)
		send_heartbeat(sv);
	if (sv->capacity_changed && now >= sv->capacity_sent_usec + sv->config.capacity_usec)
		send_capacity(sv);
	if (now >= sv->inventory_due_usec)
		send_inventory(sv);
	(void)report_tick(sv);
	sv_usage_tick(sv);
}

int64_t sv_session_next(const struct supervisor *sv)
{
	const struct sv_sandbox *sandbox;
	int64_t next;

	if (!sv->link_up || !sv->has_capacity)
		return NEVER;
	if (!sv->welcomed)
		return sv->hello_due_usec;
	next = MIN(sv->heartbeat_due_usec, sv->inventory_due_usec);
	if (sv->takes_usage)
		next = MIN(next, sv->usage_due_usec);
	if (sv->capacity_changed)
		next = MIN(next, sv->capacity_sent_usec + sv->config.capacity_usec);
	for (sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next)
		next = MIN(next, sandbox->report_due_usec);
	return next;
}
