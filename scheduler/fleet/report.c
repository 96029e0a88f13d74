/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes say about sandboxes. A report is the whole truth of its node about one sandbox, may come late,
 * twice or out of order, and is acknowledged when what follows from it is recorded. ENDED is terminal for its
 * generation whatever its version. A report about a sandbox that this node never had is dropped.
 *
 * An inventory says what is there; only a complete one, put together from parts of one number in their order,
 * says what is not there. A sandbox that was accepted in this very session is never missed by it: the inventory
 * may be older than the acceptance. One that answers the welcome of an earlier fleet over the same connection (a store
 * that failed and was read again) is not taken at all.
 */
#include <stdio.h>
#include <string.h>

#include "fleet/internal.h"

static void ack(struct fleet *fleet, struct node *node, const struct sandbox_report *report)
{
	struct fleet_send *send = fleet_emit_send(fleet, node, SEND_REPORT_ACK);

	if (!send)
		return;
	memcpy(send->ack.sandbox, report->sandbox, sizeof(send->ack.sandbox));
	send->ack.generation = report->generation;
	send->ack.version = report->version;
}

static void destroy_superseded(
	struct fleet *fleet, struct node *node, const struct sandbox_report *report)
{
	struct fleet_send *send = fleet_emit_send(fleet, node, SEND_DESTROY);

	if (!send)
		return;
	memcpy(send->destroy.sandbox, report->sandbox, sizeof(send->destroy.sandbox));
	send->destroy.generation = report->generation;
	send->destroy.reason = END_SUPERSEDED;
	id_new(fleet->rng, send->destroy.operation);
}

/* R007: how often a node may err before it is quarantined, and again before the next time. */
#define WRONG_REPORTS_MAX 3

#define KEPT_USEC (45 * USEC_PER_SEC)

static void wrong_node(
	struct fleet *fleet, struct node *node, const struct sandbox_report *report)
{
	struct err err = ERR_NULL;

	(void)err_set(
		&err, FAIL_AUTH_WRONG_NODE, 0, "A node spoke about a sandbox that is not its own.");
	err_add(&err, "node", "%s", node->record.id);
	err_add(&err, "sandbox", "%s", report->sandbox);
	err_add(&err, "generation", "%llu", (unsigned long long)report->generation);
	fleet->counts.wrong_node++;
	fleet_emit_notice(fleet, &err, node->record.id, report->sandbox);
	if (++node->wrong_reports % WRONG_REPORTS_MAX == 0)
		fleet_learn_wrong(fleet, node);
}

/* ---- stages ---- */

static bool note_exists(const struct sandbox *sandbox, const struct stage_record *stage)
{
	for (size_t i = 0; i < sandbox->n_notes; i++)
		if (sandbox->notes[i].stage == stage->stage &&
			sandbox->notes[i].generation == stage->generation)
			return true;
	return false;
}

/* By what the node said: a report that comes again may find another offset of its clock. Unsigned, for a node may say anything. */
static bool began_together(const struct note *note, const struct stage_record *stage)
{
	return (uint64_t)note->began_us - (uint64_t)note->corrected_us == (uint64_t)stage->began_us - (uint64_t)stage->corrected_us;
}

/* Of a life's sleeps and of its snapshots the last is kept, as its node does. */
static void drop_former(struct sandbox *sandbox, const struct stage_record *stage)
{
	for (size_t i = 0; i < sandbox->n_notes; i++) {
		struct note *note = &sandbox->notes[i];

		if (note->stage != stage->stage || began_together(note, stage))
			continue;
		free(note->failure);
		memmove(note, note + 1, (sandbox->n_notes - i - 1) * sizeof(*note));
		sandbox->n_notes--;
		return;
	}
}

/* Stages of the node are complete when they are reported, so each is taken once. What the node may not say (the
 * scheduler's own stages, other generations) is left out. */
static void take_stages(
	struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_report *report)
{
	for (size_t i = 0; i < report->n_stages; i++) {
		struct stage_record stage = report->stages[i];

		if (stage.stage < STAGE_ACCEPT)
			continue;
		stage.generation = report->generation;
		stage.attempt = sandbox->record.attempts;
		memcpy(stage.node, sandbox->record.node, sizeof(stage.node));
		if (stage.stage == STAGE_PAUSE || stage.stage == STAGE_RESUME || stage.stage == STAGE_SNAPSHOT)
			drop_former(sandbox, &stage);
		if (note_exists(sandbox, &stage))
			continue;
		if (!fleet_sandbox_note_import(sandbox, &stage))
			fleet->out->no_memory = true;
		fleet_sandbox_dirty(fleet, sandbox);
	}
}

/* ---- states ---- */

static void on_running(
	struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_report *report)
{
	const struct err *failure = err_is_set(&report->update_failure) ? &report->update_failure : NULL;
	struct sandbox_record *record = &sandbox->record;

	if (record->state == SANDBOX_DISPATCHED)
		fleet_start_accepted(fleet, sandbox);
	if (record->state == SANDBOX_STARTING)
		fleet_start_ready(fleet, sandbox);
	if (report->state == REPORT_PAUSED) {
		fleet_sleep_paused(fleet, sandbox, report);
		fleet_differ_compare(fleet, sandbox, report);
		return;
	}
	if (fleet_is_sleeping(record->state))
		fleet_sleep_running(fleet, sandbox, report);
	if (record->state != SANDBOX_RUNNING)
		return; /* on its way out: the destroy is sent again until it is done */
	memcpy(record->guest_boot_id, report->guest_boot_id, sizeof(record->guest_boot_id));
	if (sandbox->update.pending && strcmp(sandbox->update.operation, report->updated) == 0)
		fleet_request_update_done(fleet, sandbox, failure);
	fleet_differ_compare(fleet, sandbox, report);
	fleet_differ_correct(fleet, sandbox, !failure);
}

/* A life ended, or a start that was given up is gone. */
static void on_ended(
	struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_report *report)
{
	const struct err *failure = err_is_set(&report->failure) ? &report->failure : NULL;
	struct err err = report->failure;

	switch (sandbox->record.state) {
	case SANDBOX_DISPATCHED:
		/* refused or failed: either way the node answered */
		if (report->accepted)
			fleet_start_accepted(fleet, sandbox);
		else
			fleet_sandbox_note(fleet, sandbox, STAGE_DISPATCH, RESULT_OK,
				fleet->now.real_usec - (fleet->now.mono_usec - sandbox->since_usec),
				fleet->now.mono_usec - sandbox->since_usec, NULL);
		__attribute__((fallthrough));
	case SANDBOX_STARTING:
		if (!failure)
			(void)err_set(&err, FAIL_VM_VANISHED, 0,
				"The start ended on the node without a reason.");
		if (report->kept) { /* a little less long than the node: the command is on its way for a while */
			memcpy(sandbox->kept_on, sandbox->record.node, sizeof(sandbox->kept_on));
			sandbox->kept_until_usec = fleet->now.mono_usec + KEPT_USEC;
		}
		fleet_start_failed(fleet, sandbox, &err);
		return;
	case SANDBOX_RECALL: /* what the node says broke is nearer to the cause than that it took too long */
		if (!failure)
			err = sandbox->record.failure;
		fleet_start_failed(fleet, sandbox, &err);
		return;
	case SANDBOX_RUNNING:
	case SANDBOX_PAUSING:
	case SANDBOX_PAUSED:
	case SANDBOX_RESUMING:
		fleet_sandbox_end(fleet, sandbox,
			report->end_reason ? report->end_reason : END_FAILED, failure);
		return;
	case SANDBOX_STOPPING:
	case SANDBOX_FENCED:
		if (failure && sandbox->record.started_us == 0 && !PLANTED(DELETED_START_UNHEARD)) /* nobody waits for it any more: evidence all the same */
			fleet_learn_failed(fleet, sandbox, failure);
		fleet_sandbox_end(fleet, sandbox,
			report->end_reason ? report->end_reason : END_REQUEST, failure);
		return;
	case SANDBOX_PLACING:
	case SANDBOX_BACKOFF:
	case SANDBOX_ENDED:
	case SANDBOX_STATE_MAX_:
		return;
	}
}

static void on_live(
	struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_report *report)
{
	sandbox->accepted_session = sandbox->node->session;
	switch (report->state) {
	case REPORT_STARTING:
		if (sandbox->record.state == SANDBOX_DISPATCHED)
			fleet_start_accepted(fleet, sandbox);
		return;
	case REPORT_RUNNING:
	case REPORT_PAUSED:
		on_running(fleet, sandbox, report);
		return;
	case REPORT_STOPPING:
		if (sandbox->record.state == SANDBOX_DISPATCHED)
			fleet_start_accepted(fleet, sandbox);
		if (sandbox->record.state == SANDBOX_RUNNING ||
			fleet_is_sleeping(sandbox->record.state)) { /* its life ran out, or its guest ended */
			struct err gone = ERR_NULL;

			sandbox->record.end_reason = report->end_reason;
			(void)err_set_at(&gone, STAGE_RUN, FAIL_SANDBOX_GONE, 0, "The sandbox ended.");
			fleet_sleep_answer(fleet, sandbox, err_is_set(&report->failure) ? &report->failure : &gone);
			fleet_sandbox_move(fleet, sandbox, SANDBOX_STOPPING);
			fleet_sandbox_command(fleet, sandbox);
		}
		return;
	case REPORT_NONE:
	case REPORT_ENDED:
	case REPORT_UNKNOWN:
	case REPORT_MAX_:
		return;
	}
}

/* ---- one report ---- */

/* The sandbox if the report is about its present generation on this node; else NULL, and dealt with. */
static struct sandbox *subject(
	struct fleet *fleet, struct node *node, const struct sandbox_report *report)
{
	struct sandbox *sandbox = fleet_sandbox_find(fleet, report->sandbox);

	if (!sandbox) {
		/* Its end was recorded before; what still runs without a record is drift, judged at the node. */
		if (report->state == REPORT_ENDED)
			ack(fleet, node, report);
		else
			fleet->counts.unknown++;
		/* Replaced when its node was lost, and ended since. Its VM had ended itself; what slept there has no lease. */
		if (report->state == REPORT_PAUSED && node->policy && node->policy->on_loss &&
			!fleet_node_is_unsettled(fleet, node))
			destroy_superseded(fleet, node, report);
		return NULL;
	}
	if (sandbox->node == node && sandbox->record.generation == report->generation)
		return sandbox;
	if (sandbox->node == node && fleet_sandbox_is_taking(sandbox) &&
		report->generation == sandbox->record.took) {
		/* Still warm there, or gone: the command that is under way takes it over or starts it cold. */
		ack(fleet, node, report);
		return NULL;
	}
	if (!fleet_sandbox_was_on(sandbox, node->record.id, report->generation)) {
		wrong_node(fleet, node, report);
		return NULL;
	}
	if (report->state == REPORT_ENDED)
		ack(fleet, node, report);
	else
		destroy_superseded(fleet, node, report);
	return NULL;
}

/* Something is there, and nothing can be said about it: not even which generation it is. */
static void unreadable(struct fleet *fleet, const struct node *node, const struct sandbox_report *report)
{
	struct sandbox *sandbox = fleet_sandbox_find(fleet, report->sandbox);

	fleet_emit_notice(fleet, &report->failure, node->record.id, report->sandbox);
	if (!sandbox || sandbox->node != node)
		return;
	sandbox->accepted_session = node->session;
	sandbox->is_unreadable = true;
}

void fleet_report_apply(struct fleet *fleet, struct node *node, const struct sandbox_report *report)
{
	const bool ended = report->state == REPORT_ENDED;
	struct sandbox *sandbox;

	if (!ended && report->failure.code == FAIL_STATE_UNREADABLE) {
		unreadable(fleet, node, report);
		return;
	}
	sandbox = subject(fleet, node, report);
	if (!sandbox)
		return;
	if (report->state == REPORT_UNKNOWN) {
		sandbox->accepted_session = node->session; /* not acknowledged: whoever understands it is told again */
		return;
	}
	if (!ended && report->version <= sandbox->record.report_version) {
		sandbox->accepted_session = node->session;
		if (report->version == sandbox->record.report_version) {
			fleet_differ_compare(fleet, sandbox, report);
			fleet_differ_correct(fleet, sandbox, true);
		}
		ack(fleet, node, report);
		return;
	}
	sandbox->record.report_version = MAX(sandbox->record.report_version, report->version);
	fleet_sandbox_dirty(fleet, sandbox);
	take_stages(fleet, sandbox, report);
	fleet_snapshot_reported(fleet, sandbox, report);
	if (ended)
		on_ended(fleet, sandbox, report);
	else
		on_live(fleet, sandbox, report);
	ack(fleet, node, report);
}

/* ---- inventory ---- */

void fleet_inventory_forget(struct node *node)
{
	struct collected *item, *next;

	HASH_ITER (hh, node->collected, item, next) {
		HASH_DEL(node->collected, item);
		free(item);
	}
	node->collecting = false;
	node->counted_memory_mib = node->counted_disk_mib = 0;
	node->counted_vcpus = node->counted_sandboxes = 0;
}

/* For one that sleeps no place is reserved, but its node takes a record that cannot be read for one that runs. */
static bool has_place(const struct fleet *fleet, const struct node *node, const struct sandbox_report *report)
{
	const struct sandbox *sandbox = fleet_sandbox_find(fleet, report->sandbox);

	return sandbox && sandbox->node == node && sandbox->reserved && !sandbox->record.is_asleep;
}

static void collect(struct fleet *fleet, struct node *node, const struct sandbox_report *report)
{
	struct collected *item;

	HASH_FIND_STR(node->collected, report->sandbox, item);
	if (item)
		return;
	item = calloc(1, sizeof(*item));
	if (item) {
		memcpy(item->sandbox, report->sandbox, sizeof(item->sandbox));
		HASH_ADD_STR(node->collected, sandbox, item);
	}
	if (!item || !item->hh.tbl) {
		free(item);
		fleet->out->no_memory = true;
		return;
	}
	/* Room that is taken there by what is not reserved here. Of what cannot be read only that it is there is known. */
	if (report->failure.code == FAIL_STATE_UNREADABLE && report->state != REPORT_ENDED && !has_place(fleet, node, report))
		node->counted_sandboxes++;
	else if (report->spec && report->state != REPORT_ENDED &&
		!fleet_sandbox_find(fleet, report->sandbox)) {
		node->counted_disk_mib += report->spec->disk_mib;
		if (report->state == REPORT_PAUSED)
			return;
		node->counted_memory_mib += spec_memory_cost(report->spec);
		node->counted_vcpus += report->spec->vcpus;
		node->counted_sandboxes++;
	}
}

static void missing(struct fleet *fleet, struct sandbox *sandbox)
{
	struct err err = ERR_NULL;

	switch (sandbox->record.state) {
	case SANDBOX_STARTING:
	case SANDBOX_RUNNING:
	case SANDBOX_PAUSING:
	case SANDBOX_PAUSED:
	case SANDBOX_RESUMING:
		(void)err_set(&err, FAIL_VM_VANISHED, 0,
			fleet_node_is_unsettled(fleet, sandbox->node)
				? "The node does not have the sandbox any more: it ended after the backup was made."
				: "The node's inventory does not have the sandbox.");
		if (sandbox->record.state != SANDBOX_STARTING)
			fleet_sandbox_end(fleet, sandbox, END_FAILED, &err);
		else
			fleet_start_failed(fleet, sandbox, &err);
		return;
	case SANDBOX_DISPATCHED:
	case SANDBOX_RECALL:
	case SANDBOX_STOPPING:
	case SANDBOX_FENCED:
	case SANDBOX_PLACING:
	case SANDBOX_BACKOFF:
	case SANDBOX_ENDED:
	case SANDBOX_STATE_MAX_:
		return; /* the command that is sent again settles it */
	}
}

/* As many as a part takes; the first that it does not take, or NULL. */
static const struct snapshot *fill_snapshots(struct fleet *fleet, const struct snapshot *snapshot, struct desired_set *set)
{
	set->snapshots = calloc(PART_MAX, sizeof(*set->snapshots));
	if (!set->snapshots) {
		fleet->out->no_memory = true;
		return NULL;
	}
	for (; snapshot && set->n_snapshots < PART_MAX; snapshot = TAILQ_NEXT(snapshot, in_node))
		if (snapshot->record.state == SNAPSHOT_MAKING || snapshot->record.state == SNAPSHOT_READY)
			memcpy(set->snapshots[set->n_snapshots++], snapshot->record.id, ID_SIZE);
	return snapshot;
}

static void send_desired(struct fleet *fleet, struct node *node)
{
	const struct snapshot *snapshot = PLANTED(SNAPSHOT_NOT_DESIRED) ? NULL : TAILQ_FIRST(&node->snapshots);
	struct sandbox *sandbox = TAILQ_FIRST(&node->sandboxes);
	struct collected *item =
		fleet_node_is_unsettled(fleet, node) ? node->collected : NULL;
	uint32_t size = MIN(MAX(fleet->config.part_size, 1u), (uint32_t)PART_MAX);
	uint32_t part = 0;

	for (bool last = false; !last; part++) {
		struct fleet_send *send = fleet_emit_send(fleet, node, SEND_DESIRED);
		struct desired_set *set;

		if (!send)
			return;
		set = &send->desired;
		set->part = part;
		set->inventory = node->inventory;
		set->knows_snapshots = true;
		set->sandboxes = calloc(size, sizeof(*set->sandboxes));
		if (!set->sandboxes) {
			fleet->out->no_memory = true;
			return;
		}
		for (; sandbox && set->n < size; sandbox = TAILQ_NEXT(sandbox, in_node)) {
			memcpy(set->sandboxes[set->n].sandbox, sandbox->record.id, ID_SIZE);
			set->sandboxes[set->n++].generation = fleet_sandbox_is_taking(sandbox)
								      ? sandbox->record.took
								      : sandbox->record.generation;
		}
		/* On a new lineage nothing is unknown: what could not be adopted is named back too. */
		for (; !sandbox && item && set->n < size; item = item->hh.next) {
			memcpy(set->sandboxes[set->n].sandbox, item->sandbox, ID_SIZE);
			set->sandboxes[set->n++].generation = 1;
		}
		if (snapshot)
			snapshot = fill_snapshots(fleet, snapshot, set);
		last = !sandbox && !item && !snapshot;
		set->complete = last;
	}
}

static void inventory_complete(struct fleet *fleet, struct node *node)
{
	struct sandbox *sandbox, *next;
	struct collected *item;

	node->foreign_memory_mib = node->counted_memory_mib;
	node->foreign_disk_mib = node->counted_disk_mib;
	node->foreign_vcpus = node->counted_vcpus;
	node->foreign_sandboxes = node->counted_sandboxes;
	for (sandbox = TAILQ_FIRST(&node->sandboxes); sandbox; sandbox = next) {
		next = TAILQ_NEXT(sandbox, in_node);
		HASH_FIND_STR(node->collected, sandbox->record.id, item);
		if (!item && sandbox->accepted_session != node->session)
			missing(fleet, sandbox);
	}
	TAILQ_FOREACH (sandbox, &node->sandboxes, in_node)
		if (!fleet_timer_is_armed(&sandbox->resend))
			fleet_sandbox_command(fleet, sandbox);
	fleet_node_known(fleet, node); /* after what is missing there gave its room back */
	fleet_snapshots_settle(fleet, node);
	send_desired(fleet, node);
	fleet_node_settle(fleet, node);
	fleet_inventory_forget(node);
}

void fleet_inventory_apply(
	struct fleet *fleet, struct node *node, const struct inventory *inventory)
{
	bool complete = inventory->complete;

	if (inventory->greeting && inventory->greeting != node->greeting && !PLANTED(OTHER_INVENTORY_TAKEN))
		return; /* it answers another scheduler's welcome, and may be older than what this one ordered */
	if (inventory->part == 0) {
		fleet_inventory_forget(node);
		node->inventory = inventory->number;
		node->next_part = 0;
		node->collecting = true;
	}
	if (PLANTED(PARTIAL_INVENTORY)) {
		node->collecting = complete = true;
		node->next_part = inventory->part;
		node->inventory = inventory->number;
	}
	if (!node->collecting || inventory->number != node->inventory ||
		inventory->part != node->next_part) {
		fleet_inventory_forget(node); /* a part is missing: the node sends it all again */
		return;
	}
	node->next_part++;
	for (size_t i = 0; i < inventory->n; i++) {
		fleet_adopt(fleet, node, &inventory->sandboxes[i]);
		collect(fleet, node, &inventory->sandboxes[i]);
		fleet_report_apply(fleet, node, &inventory->sandboxes[i]);
	}
	fleet_snapshots_seen(fleet, node, inventory);
	if (complete)
		inventory_complete(fleet, node);
}
