/* SPDX-License-Identifier: Apache-2.0
 *
 * A start, from the queue to ready or to its end: placing, sending and sending again, and what a failure's class
 * means. The rule that keeps one VM per id: after a command may have reached a node, nothing happens elsewhere
 * until that node said that this generation is gone (RECALL).
 */
#include <stdio.h>
#include <string.h>

#include "fleet/internal.h"

#define RESEND_DOUBLINGS 3

/* ---- commands ---- */

/* An agent that was replaced by an older one since would boot what is to begin as a snapshot: it is not asked. */
static void send_create(struct fleet *fleet, struct sandbox *sandbox)
{
	bool is_known = !*sandbox->record.spec->snapshot || sandbox->node->snapshots_are_known;
	struct fleet_send *send = is_known ? fleet_emit_send(fleet, sandbox->node, SEND_CREATE) : NULL;
	int64_t left = sandbox->deadline.due_usec - fleet->now.mono_usec;

	if (!send)
		return;
	send->create = (struct create_command){
		.generation = sandbox->record.generation,
		.attempt = sandbox->record.attempts,
		.spec = spec_ref(sandbox->record.spec),
		.trace = sandbox->record.trace,
		.left_usec = MAX(left, 1),
		.took = fleet_sandbox_is_taking(sandbox) ? sandbox->record.took : 0,
	};
	memcpy(send->create.sandbox, sandbox->record.id, sizeof(send->create.sandbox));
	memcpy(send->create.operation, sandbox->record.operation, sizeof(send->create.operation));
}

static void send_destroy(struct fleet *fleet, struct sandbox *sandbox)
{
	struct fleet_send *send = fleet_emit_send(fleet, sandbox->node, SEND_DESTROY);

	if (!send)
		return;
	send->destroy = (struct destroy_command){
		.generation = sandbox->record.generation,
		.reason = sandbox->record.state == SANDBOX_RECALL  ? END_SUPERSEDED
			  : sandbox->record.end_reason != END_NONE ? sandbox->record.end_reason
								   : END_REQUEST,
	};
	memcpy(send->destroy.sandbox, sandbox->record.id, sizeof(send->destroy.sandbox));
	memcpy(send->destroy.operation, sandbox->record.operation, sizeof(send->destroy.operation));
}

static void send_network(struct fleet *fleet, struct sandbox *sandbox)
{
	struct fleet_send *send = fleet_emit_send(fleet, sandbox->node, SEND_NETWORK);

	if (!send)
		return;
	send->network.generation = sandbox->record.generation;
	send->network.number = sandbox->update.number;
	memcpy(send->network.sandbox, sandbox->record.id, sizeof(send->network.sandbox));
	memcpy(send->network.operation, sandbox->update.operation, sizeof(send->network.operation));
	if (net_policy_copy(&sandbox->update.spec->network, &send->network.network) < 0)
		fleet->out->no_memory = true;
}

static void send_budget(struct fleet *fleet, struct sandbox *sandbox)
{
	struct fleet_send *send = fleet_emit_send(fleet, sandbox->node, SEND_BUDGET);

	if (!send)
		return;
	send->budget.generation = sandbox->record.generation;
	send->budget.number = sandbox->update.number;
	send->budget.budget = sandbox->update.spec->budget;
	memcpy(send->budget.sandbox, sandbox->record.id, sizeof(send->budget.sandbox));
	memcpy(send->budget.operation, sandbox->update.operation, sizeof(send->budget.operation));
}

static void send_update(struct fleet *fleet, struct sandbox *sandbox)
{
	struct fleet_send *send = fleet_emit_send(fleet, sandbox->node, SEND_UPDATE);

	if (!send)
		return;
	send->update = (struct update_command){
		.generation = sandbox->record.generation,
		.timeout_s = sandbox->update.timeout_s,
		.number = sandbox->update.number,
	};
	memcpy(send->update.sandbox, sandbox->record.id, sizeof(send->update.sandbox));
	memcpy(send->update.operation, sandbox->update.operation, sizeof(send->update.operation));
}

static void send_pause(struct fleet *fleet, struct sandbox *sandbox)
{
	struct fleet_send *send = fleet_emit_send(fleet, sandbox->node, SEND_PAUSE);

	if (!send)
		return;
	send->pause.generation = sandbox->record.generation;
	send->pause.number = sandbox->sleep_number;
	memcpy(send->pause.sandbox, sandbox->record.id, sizeof(send->pause.sandbox));
	memcpy(send->pause.operation, sandbox->record.operation, sizeof(send->pause.operation));
}

static void send_resume(struct fleet *fleet, struct sandbox *sandbox)
{
	struct fleet_send *send = fleet_emit_send(fleet, sandbox->node, SEND_RESUME);

	if (!send)
		return;
	send->resume.generation = sandbox->record.generation;
	send->resume.number = sandbox->sleep_number;
	send->resume.timeout_s = sandbox->record.resume_timeout_s;
	send->resume.has_budget = true;
	send->resume.budget = sandbox->record.spec->budget;
	memcpy(send->resume.sandbox, sandbox->record.id, sizeof(send->resume.sandbox));
	memcpy(send->resume.operation, sandbox->record.operation, sizeof(send->resume.operation));
}

/* Not to an agent that was replaced by an older one since it was asked: that one's answer stands, whatever it is. */
static void send_sleep(struct fleet *fleet, struct sandbox *sandbox)
{
	if (!sandbox->node->pauses)
		return;
	if (sandbox->sleep_number == 0)
		sandbox->sleep_number = fleet_change_number(fleet);
	if (sandbox->record.state == SANDBOX_PAUSING)
		send_pause(fleet, sandbox);
	else
		send_resume(fleet, sandbox);
}

/* Doubles up to 2^RESEND_DOUBLINGS, with up to a quarter of jitter. */
static void arm_resend(struct fleet *fleet, struct sandbox *sandbox)
{
	int64_t pause = fleet->config.resend_usec << MIN(sandbox->resends, (uint32_t)RESEND_DOUBLINGS);

	pause += (int64_t)rng_below(fleet->rng, (uint64_t)(pause / 4 + 1));
	if (fleet_timer_arm(&fleet->timers, &sandbox->resend, fleet->now.mono_usec + pause) < 0)
		fleet->out->no_memory = true;
}

void fleet_sandbox_command_later(struct fleet *fleet, struct sandbox *sandbox)
{
	sandbox->resends = RESEND_DOUBLINGS;
	arm_resend(fleet, sandbox);
	sandbox->update.until_usec = sandbox->resend.due_usec + fleet->config.dispatch_timeout_usec;
}

void fleet_sandbox_command(struct fleet *fleet, struct sandbox *sandbox)
{
	if (!sandbox->node || sandbox->node->session == 0)
		return; /* the node's inventory wakes it */
	switch (sandbox->record.state) {
	case SANDBOX_DISPATCHED:
		send_create(fleet, sandbox);
		break;
	case SANDBOX_RECALL:
	case SANDBOX_STOPPING:
	case SANDBOX_FENCED:
		send_destroy(fleet, sandbox);
		break;
	case SANDBOX_RUNNING:
		if (!sandbox->update.pending)
			return;
		if (fleet_snapshot_is_sent(sandbox))
			break; /* after that */
		if (sandbox->update.is_budget)
			send_budget(fleet, sandbox);
		else if (sandbox->update.spec)
			send_network(fleet, sandbox);
		else
			send_update(fleet, sandbox);
		break;
	case SANDBOX_PAUSING:
	case SANDBOX_RESUMING:
		send_sleep(fleet, sandbox);
		break;
	case SANDBOX_PLACING:
	case SANDBOX_STARTING:
	case SANDBOX_PAUSED:
	case SANDBOX_BACKOFF:
	case SANDBOX_ENDED:
	case SANDBOX_STATE_MAX_:
		return;
	}
	arm_resend(fleet, sandbox);
}

void fleet_sandbox_on_resend(struct fleet *fleet, struct sandbox *sandbox)
{
	if (sandbox->update.pending && !fleet_snapshot_is_sent(sandbox) &&
		fleet->now.mono_usec >= sandbox->update.until_usec) {
		struct err err = ERR_NULL;

		(void)err_set_at(&err, STAGE_RUN, FAIL_NODE_UNREACHABLE, 0,
			"The sandbox's node did not confirm the change; what was before may still hold.");
		fleet_request_update_drop(fleet, sandbox, &err);
		fleet_differ_correct(fleet, sandbox, false);
		return;
	}
	sandbox->resends++;
	fleet->counts.resends++;
	if (PLANTED(RESEND_NEW_OPERATION) && sandbox->record.state == SANDBOX_DISPATCHED) {
		sandbox->record.generation++;
		id_new(fleet->rng, sandbox->record.operation);
	}
	fleet_sandbox_command(fleet, sandbox);
}

/* ---- placing ---- */

/* Its room is reserved: the next generation is on its way. */
static void send_off(struct fleet *fleet, struct sandbox *sandbox, int64_t waited)
{
	sandbox->record.generation++;
	sandbox->record.report_version = 0;
	sandbox->accepted_session = 0;
	sandbox->network_differs = sandbox->budget_differs = false;
	id_new(fleet->rng, sandbox->record.operation);
	fleet_sandbox_note(fleet, sandbox, STAGE_PLACE, RESULT_OK, fleet->now.real_usec - waited, waited, NULL);
	fleet_sandbox_move(fleet, sandbox, SANDBOX_DISPATCHED);
	sandbox->placed_batch = fleet->batch;
	TAILQ_INSERT_TAIL(&fleet->placed, sandbox, in_placed);
	fleet_sandbox_command(fleet, sandbox);
}

static void dispatch(struct fleet *fleet, struct sandbox *sandbox, struct node *node)
{
	fleet_sandbox_attach(fleet, sandbox, node);
	sandbox->reserved = !PLANTED(ROOM_NOT_COUNTED); /* by place_choose() */
	sandbox->start_slot = sandbox->reserved;
	send_off(fleet, sandbox, fleet->now.mono_usec - sandbox->since_usec);
}

/* It is where it was: the room and a start slot are the tenant's from now on, and nothing was waited for. */
void fleet_start_taken(struct fleet *fleet, struct sandbox *sandbox)
{
	fleet_sandbox_reserve(fleet, sandbox, true);
	send_off(fleet, sandbox, 0);
}

void fleet_start_unplaced(struct fleet *fleet, struct sandbox *sandbox)
{
	if (sandbox->placed_batch == 0)
		return;
	sandbox->placed_batch = 0;
	TAILQ_REMOVE(&fleet->placed, sandbox, in_placed);
}

/* The note was made in the step that placed, because a report of that node must find it even after a crash; here its
 * time is completed. It goes to the store with the sandbox's next change. */
static void placed(struct fleet *fleet, struct sandbox *sandbox)
{
	int64_t more = fleet->now.mono_usec - sandbox->since_usec;

	for (size_t i = sandbox->n_notes; i-- > 0;)
		if (sandbox->notes[i].stage == STAGE_PLACE) {
			sandbox->notes[i].took_us += MAX(more, 0);
			break;
		}
	sandbox->since_usec = fleet->now.mono_usec; /* of dispatch; the deadlines stay */
}

void fleet_start_committed(struct fleet *fleet, uint64_t batch)
{
	struct sandbox *sandbox;

	while ((sandbox = TAILQ_FIRST(&fleet->placed)) && sandbox->placed_batch <= batch) {
		fleet_start_unplaced(fleet, sandbox);
		placed(fleet, sandbox);
	}
}

/* No node is left. The failure that matters is the one that excluded the nodes, if there was one. */
static void place_failed(struct fleet *fleet, struct sandbox *sandbox, struct err *err)
{
	int64_t waited = fleet->now.mono_usec - sandbox->since_usec;
	struct err why = *err;

	if (sandbox->refusals) {
		why = (struct err)ERR_NULL;
		(void)err_set(&why, FAIL_NO_CAPACITY, 0,
			"Nodes refused for want of room and no other is left: %s.",
			sandbox->refusals_text);
		err_add(&why, "refused", "%s", sandbox->refusals_text);
	}
	memset(sandbox->record.node, 0, sizeof(sandbox->record.node));
	fleet_sandbox_note(fleet, sandbox, STAGE_PLACE, RESULT_FAILED,
		fleet->now.real_usec - waited, waited, &why);
	if (err_is_set(&sandbox->record.failure) &&
		err_class(&sandbox->record.failure) != CLASS_CAPACITY)
		why = sandbox->record.failure;
	fleet_sandbox_end(fleet, sandbox, END_FAILED, &why);
}

/* Back to the node that still has what the attempt before made there, where it would be taken anyhow. */
static bool place_where_kept(struct fleet *fleet, struct sandbox *sandbox)
{
	struct node *node = *sandbox->kept_on ? fleet_node_find(fleet, sandbox->kept_on) : NULL;
	struct place_demand demand;

	*sandbox->kept_on = '\0'; /* it is asked for once */
	if (!node || fleet->now.mono_usec >= sandbox->kept_until_usec)
		return false;
	fleet_sandbox_demand(sandbox, &demand);
	demand.excluded = (const char(*)[ID_SIZE])sandbox->record.excluded;
	demand.n_excluded = sandbox->record.n_excluded;
	if (!place_node_fits(node->place, &demand))
		return false;
	fleet->counts.resumed++;
	fleet_start_on(fleet, sandbox, node);
	fleet_sandbox_event(fleet, sandbox, "RESUMED", "where the attempt before left its disk");
	return true;
}

void fleet_start_place(struct fleet *fleet, struct sandbox *sandbox)
{
	char excluded[2 * EXCLUDED_MAX][ID_SIZE];
	struct place_demand demand;
	struct place_node *place;
	struct err err = ERR_NULL;

	if (fleet_snapshot_resolve(fleet, sandbox, &err) < 0) {
		place_failed(fleet, sandbox, &err);
		return;
	}
	if (place_where_kept(fleet, sandbox))
		return;
	fleet_sandbox_demand(sandbox, &demand);
	for (size_t i = 0; i < sandbox->record.n_excluded; i++)
		memcpy(excluded[demand.n_excluded++], sandbox->record.excluded[i], ID_SIZE);
	for (size_t i = 0; i < sandbox->n_refused; i++)
		memcpy(excluded[demand.n_excluded++], sandbox->refused[i], ID_SIZE);
	demand.excluded = (const char(*)[ID_SIZE])excluded;

	switch (place_choose(
		fleet->place, sandbox->record.pool, &demand, rng_u64(fleet->rng), &place, NULL)) {
	case PLACE_OK:
		dispatch(fleet, sandbox, fleet_node_find(fleet, place_node_id(place)));
		return;
	case PLACE_NO_MEMORY:
		fleet->out->no_memory = true;
		fleet_queue_add(fleet, sandbox);
		return;
	case PLACE_WAIT:
		fleet_queue_add(fleet, sandbox);
		return;
	case PLACE_NO_ROOM:
		if (fleet->now.mono_usec < sandbox->queue_until_usec ||
			fleet_coming_room(fleet, sandbox, &demand) ||
			fleet_warm_yield(fleet, sandbox, &demand)) {
			fleet_queue_add(fleet, sandbox);
			return;
		}
		place_refuse(fleet->place, sandbox->record.pool, &demand, &err);
		place_failed(fleet, sandbox, &err);
		return;
	}
}

bool fleet_start_try(struct fleet *fleet, struct sandbox *sandbox)
{
	struct place_demand demand;
	struct place_node *place;

	fleet_sandbox_demand(sandbox, &demand);
	if (place_choose(fleet->place, sandbox->record.pool, &demand, rng_u64(fleet->rng), &place,
		    NULL) != PLACE_OK)
		return false;
	dispatch(fleet, sandbox, fleet_node_find(fleet, place_node_id(place)));
	return true;
}

void fleet_start_on(struct fleet *fleet, struct sandbox *sandbox, struct node *node)
{
	struct place_demand demand;

	fleet_sandbox_demand(sandbox, &demand);
	if (!PLANTED(ROOM_NOT_COUNTED) && place_reserve(fleet->place, node->place, &demand, true) < 0)
		fleet->out->no_memory = true;
	dispatch(fleet, sandbox, node);
}

/* ---- progress ---- */

void fleet_start_accepted(struct fleet *fleet, struct sandbox *sandbox)
{
	int64_t took = fleet->now.mono_usec - sandbox->since_usec;

	fleet_sandbox_note(
		fleet, sandbox, STAGE_DISPATCH, RESULT_OK, fleet->now.real_usec - took, took, NULL);
	if (PLANTED(ROOM_NOT_COUNTED))
		fleet_sandbox_reserve(fleet, sandbox, true);
	fleet_sandbox_move(fleet, sandbox, SANDBOX_STARTING);
}

void fleet_start_ready(struct fleet *fleet, struct sandbox *sandbox)
{
	uint32_t life = sandbox->record.spec->timeout_s;

	fleet_sandbox_move(fleet, sandbox, SANDBOX_RUNNING);
	if (sandbox->start_slot) {
		sandbox->start_slot = false;
		place_started(fleet->place, sandbox->node->place);
		fleet->kicked = true;
	}
	sandbox->record.started_us = fleet->now.real_usec;
	sandbox->record.ends_us = life ? fleet->now.real_usec + life * USEC_PER_SEC : 0;
	sandbox->record.failure = (struct err)ERR_NULL;
	fleet_node_started(fleet, sandbox->node);
	if (sandbox->request) {
		fleet_emit_reply(fleet, sandbox->request, NULL, sandbox);
		fleet_waiter_remove(fleet, sandbox->request);
		sandbox->request = 0;
	}
	fleet_learn_ready(fleet, sandbox);
	if (fleet_sandbox_is_canary(sandbox)) /* it did what it was for */
		fleet_request_destroy(fleet, 0, sandbox->record.id, END_REQUEST);
}

/* ---- failure ---- */

static void exclude(struct fleet *fleet, struct sandbox *sandbox)
{
	struct sandbox_record *record = &sandbox->record;
	char(*grown)[ID_SIZE];

	if (!sandbox->node || record->n_excluded == EXCLUDED_MAX)
		return;
	grown = realloc(record->excluded, (record->n_excluded + 1) * sizeof(*grown));
	if (!grown) {
		fleet->out->no_memory = true;
		return;
	}
	record->excluded = grown;
	memcpy(record->excluded[record->n_excluded++], record->node, ID_SIZE);
}

static void refused(struct fleet *fleet, struct sandbox *sandbox, const struct err *err)
{
	size_t n = strlen(sandbox->refusals_text);

	sandbox->refusals++;
	if (sandbox->n_refused < EXCLUDED_MAX)
		memcpy(sandbox->refused[sandbox->n_refused++], sandbox->record.node, ID_SIZE);
	(void)snprintf(sandbox->refusals_text + n, sizeof(sandbox->refusals_text) - n, "%s%.8s %s",
		n ? ", " : "", sandbox->record.node, failure_info(err->code)->name);
	fleet_node_refused(fleet, sandbox->node);
}

enum next_step { NEXT_PLACE, NEXT_BACKOFF, NEXT_END };

/* What a failure's class means for the request; changes its counters. */
static enum next_step judge(struct fleet *fleet, struct sandbox *sandbox, const struct err *err)
{
	switch (err_class(err)) {
	case CLASS_CAPACITY:
		refused(fleet, sandbox, err);
		if (sandbox->refusals < fleet->config.max_refusals)
			return NEXT_PLACE;
		return NEXT_END;
	case CLASS_TRANSIENT:
		break;
	case CLASS_PERMANENT:
	case CLASS_BUG:
		exclude(fleet, sandbox);
		break;
	case CLASS_CALLER:
	case CLASS_NONE:
	case CLASS_MAX_:
		return NEXT_END;
	}
	if (sandbox->record.attempts >= fleet->config.max_attempts)
		return NEXT_END;
	sandbox->record.attempts++;
	return err_class(err) == CLASS_TRANSIENT ? NEXT_BACKOFF : NEXT_PLACE;
}

static void end_refused(struct fleet *fleet, struct sandbox *sandbox)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_NO_CAPACITY, 0, "%u nodes refused for want of room: %s.",
		sandbox->refusals, sandbox->refusals_text);
	err_add(&err, "refused", "%s", sandbox->refusals_text);
	fleet_sandbox_end(fleet, sandbox, END_FAILED, &err);
}

void fleet_start_failed(struct fleet *fleet, struct sandbox *sandbox, const struct err *err)
{
	enum next_step next;

	fleet_learn_failed(fleet, sandbox, err);
	next = fleet_sandbox_is_canary(sandbox) ? NEXT_END : judge(fleet, sandbox, err);
	sandbox->record.failure = *err;
	if (PLANTED(ROOM_KEPT_ON_REFUSAL) && err_class(err) == CLASS_CAPACITY)
		sandbox->reserved = false; /* forgotten, not given back */
	fleet_sandbox_detach(fleet, sandbox);
	switch (next) {
	case NEXT_PLACE:
		memset(sandbox->record.node, 0, sizeof(sandbox->record.node));
		fleet_sandbox_move(fleet, sandbox, SANDBOX_PLACING);
		fleet_start_place(fleet, sandbox);
		return;
	case NEXT_BACKOFF:
		memset(sandbox->record.node, 0, sizeof(sandbox->record.node));
		fleet_sandbox_move(fleet, sandbox, SANDBOX_BACKOFF);
		return;
	case NEXT_END:
		if (err_class(err) == CLASS_CAPACITY && sandbox->refusals)
			end_refused(fleet, sandbox);
		else
			fleet_sandbox_end(fleet, sandbox, END_FAILED, err);
		return;
	}
}

void fleet_start_recall(struct fleet *fleet, struct sandbox *sandbox, const struct err *err)
{
	sandbox->record.failure = *err;
	if (PLANTED(FENCING_DROPPED)) {
		fleet_start_failed(fleet, sandbox, err);
		return;
	}
	fleet_sandbox_move(fleet, sandbox, SANDBOX_RECALL);
	fleet_sandbox_command(fleet, sandbox);
}

/* ---- the end ---- */

static void answer_end(struct fleet *fleet, struct sandbox *sandbox)
{
	struct err err = ERR_NULL;

	if (sandbox->record.end_reason == END_FAILED)
		err = sandbox->record.failure;
	if (sandbox->update.pending) {
		struct err gone = ERR_NULL;

		(void)err_set_at(&gone, STAGE_RUN, FAIL_SANDBOX_GONE, 0, "The sandbox ended.");
		fleet_request_update_done(fleet, sandbox, &gone);
	}
	if (!TAILQ_EMPTY(&sandbox->sleepers)) {
		struct err gone = err;

		if (!err_is_set(&gone))
			(void)err_set_at(&gone, STAGE_RUN, FAIL_SANDBOX_GONE, 0, "The sandbox ended.");
		fleet_sleep_answer(fleet, sandbox, &gone);
	}
	if (sandbox->request == 0)
		return;
	if (!err_is_set(&err))
		(void)err_set_at(&err, STAGE_ADMIT, FAIL_SANDBOX_GONE, 0,
			"The sandbox was ended (%s) before it was ready.",
			end_reason_name(sandbox->record.end_reason));
	fleet_emit_reply(fleet, sandbox->request, &err, sandbox);
	fleet_waiter_remove(fleet, sandbox->request);
	sandbox->request = 0;
}

static void close_record(struct fleet *fleet, struct sandbox *sandbox, enum end_reason reason,
	const struct err *failure)
{
	struct sandbox_record *record = &sandbox->record;

	if (record->end_reason == END_NONE)
		record->end_reason = reason;
	if (record->ended_us == 0)
		record->ended_us = fleet->now.real_usec;
	if (failure)
		record->failure = *failure;
	if (fleet_sandbox_is_canary(sandbox) && sandbox->node)
		fleet_learn_probe_over(fleet, sandbox->node);
	answer_end(fleet, sandbox);
}

void fleet_sandbox_end(struct fleet *fleet, struct sandbox *sandbox, enum end_reason reason,
	const struct err *failure)
{
	close_record(fleet, sandbox, reason, failure);
	fleet_sandbox_move(fleet, sandbox, SANDBOX_ENDED);
	fleet_sandbox_detach(fleet, sandbox);
}

/* For everybody it has ended; its room stays taken until its node says so too. */
void fleet_sandbox_fence(struct fleet *fleet, struct sandbox *sandbox)
{
	close_record(fleet, sandbox, END_FAILED, NULL);
	fleet_sandbox_move(fleet, sandbox, SANDBOX_FENCED);
	fleet_sandbox_command(fleet, sandbox);
}

/* ---- deadlines ---- */

static void place_timeout(struct fleet *fleet, struct sandbox *sandbox)
{
	struct place_demand demand;
	struct place_explanation why;
	struct err err = ERR_NULL;

	fleet_sandbox_demand(sandbox, &demand);
	place_explain(fleet->place, sandbox->record.pool, &demand, &why);
	(void)err_set(&err, FAIL_PLACE_TIMEOUT, 0, "No room came free in %lld s.",
		(long long)((fleet->now.mono_usec - sandbox->since_usec) / USEC_PER_SEC));
	err_add(&err, "resource", "%s", place_constraint_name(why.lacking));
	err_add(&err, "asked", "%llu", (unsigned long long)why.asked);
	err_add(&err, "largest", "%llu", (unsigned long long)why.largest);
	place_failed(fleet, sandbox, &err);
}

static void dispatch_timeout(struct fleet *fleet, struct sandbox *sandbox)
{
	int64_t took = fleet->now.mono_usec - sandbox->since_usec;
	struct err err = ERR_NULL;

	if (sandbox->node->link == NODE_LOST)
		(void)err_set(&err, FAIL_NODE_LOST, 0,
			"The node stopped answering before it took the sandbox.");
	else
		(void)err_set(&err, FAIL_DISPATCH_TIMEOUT, 0,
			"The node did not acknowledge in %lld s.",
			(long long)(took / USEC_PER_SEC));
	err_add(&err, "node", "%s", sandbox->record.node);
	fleet_sandbox_note(fleet, sandbox, STAGE_DISPATCH, RESULT_FAILED,
		fleet->now.real_usec - took, took, &err);
	fleet_start_recall(fleet, sandbox, &err);
}

static void start_timeout(struct fleet *fleet, struct sandbox *sandbox)
{
	struct err err = ERR_NULL;

	if (sandbox->node->link == NODE_LOST)
		(void)err_set(&err, FAIL_NODE_LOST, 0,
			"The node stopped answering in the middle of the start.");
	else
		(void)err_set(&err, FAIL_START_TIMEOUT, 0, "The start did not end in %lld s.",
			(long long)((fleet->now.mono_usec - sandbox->since_usec) / USEC_PER_SEC));
	err_add(&err, "node", "%s", sandbox->record.node);
	fleet_start_recall(fleet, sandbox, &err);
}

void fleet_sandbox_on_deadline(struct fleet *fleet, struct sandbox *sandbox)
{
	switch (sandbox->record.state) {
	case SANDBOX_PLACING:
		place_timeout(fleet, sandbox);
		return;
	case SANDBOX_DISPATCHED:
		dispatch_timeout(fleet, sandbox);
		return;
	case SANDBOX_STARTING:
		start_timeout(fleet, sandbox);
		return;
	case SANDBOX_BACKOFF:
		fleet_sandbox_move(fleet, sandbox, SANDBOX_PLACING);
		fleet_start_place(fleet, sandbox);
		return;
	case SANDBOX_RECALL:
	case SANDBOX_STOPPING:
		fleet_sandbox_fence(fleet, sandbox);
		return;
	case SANDBOX_FENCED:
		fleet_sandbox_end(fleet, sandbox, END_FAILED, NULL);
		return;
	case SANDBOX_PAUSING:
	case SANDBOX_RESUMING:
		fleet_sleep_deadline(fleet, sandbox);
		return;
	case SANDBOX_RUNNING:
	case SANDBOX_PAUSED:
	case SANDBOX_ENDED:
	case SANDBOX_STATE_MAX_:
		return;
	}
}
