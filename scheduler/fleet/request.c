/* SPDX-License-Identifier: Apache-2.0
 *
 * What the API asks for. Every request gets exactly one reply, held by the shell until what it says is durable.
 * DELETE is accepted in every state and needs no node to be there.
 */
#include <string.h>

#include "fleet/internal.h"

/* ---- waiters ---- */

bool fleet_waiter_add(
	struct fleet *fleet, uint64_t request, enum waiter_kind kind, struct sandbox *sandbox)
{
	struct waiter *waiter = calloc(1, sizeof(*waiter));

	if (waiter) {
		*waiter = (struct waiter){ .request = request, .kind = kind, .sandbox = sandbox };
		HASH_ADD(hh, fleet->waiters, request, sizeof(waiter->request), waiter);
	}
	if (!waiter || !waiter->hh.tbl) {
		free(waiter);
		fleet->out->no_memory = true;
		return false;
	}
	if (kind == WAITS_SLEEP && sandbox)
		TAILQ_INSERT_TAIL(&sandbox->sleepers, waiter, in_sleepers);
	return true;
}

bool fleet_waiter_add_snapshot(struct fleet *fleet, uint64_t request, struct snapshot *snapshot)
{
	struct waiter *waiter;

	if (!fleet_waiter_add(fleet, request, WAITS_SNAPSHOT, NULL))
		return false;
	HASH_FIND(hh, fleet->waiters, &request, sizeof(request), waiter);
	if (waiter)
		waiter->snapshot = snapshot;
	return waiter != NULL;
}

static struct waiter *waiter_find(const struct fleet *fleet, uint64_t request)
{
	struct waiter *waiter;

	HASH_FIND(hh, fleet->waiters, &request, sizeof(request), waiter);
	return waiter;
}

void fleet_waiter_remove(struct fleet *fleet, uint64_t request)
{
	struct waiter *waiter = waiter_find(fleet, request);

	if (!waiter)
		return;
	HASH_DEL(fleet->waiters, waiter);
	if (waiter->kind == WAITS_SLEEP)
		TAILQ_REMOVE(&waiter->sandbox->sleepers, waiter, in_sleepers);
	free(waiter);
}

void fleet_request_forget(struct fleet *fleet, uint64_t request)
{
	struct waiter *waiter = waiter_find(fleet, request);

	if (!waiter)
		return;
	if (waiter->kind == WAITS_CREATE)
		waiter->sandbox->request = 0;
	else if (waiter->kind == WAITS_UPDATE)
		waiter->sandbox->update.request = 0;
	else if (waiter->kind == WAITS_SNAPSHOT)
		waiter->snapshot->request = 0;
	fleet_waiter_remove(fleet, request);
}

/* ---- create ---- */

static struct sandbox *make(struct fleet *fleet, const struct fleet_create *create)
{
	struct sandbox_record record = {
		.incarnation = 1,
		.state = SANDBOX_PLACING,
		.spec = spec_ref(create->spec),
		.trace = create->trace,
		.created_us = fleet->now.real_usec,
		.attempts = 1,
	};
	struct sandbox *sandbox = NULL;

	memcpy(record.id, create->id, sizeof(record.id));
	while (!*record.id || fleet_sandbox_find(fleet, record.id))
		id_new(fleet->rng, record.id);
	memcpy(record.tenant, create->tenant, sizeof(record.tenant));
	memcpy(record.pool, create->pool, sizeof(record.pool));
	memcpy(record.template_alias, create->template_alias, sizeof(record.template_alias));
	memcpy(record.wish.region, create->wish.region, sizeof(record.wish.region));
	memcpy(record.wish.cpu_class, create->wish.cpu_class, sizeof(record.wish.cpu_class));
	record.priority = create->priority;
	if (sandbox_fields_copy(create->metadata, create->n_metadata, &record.metadata) == 0)
		record.n_metadata = create->n_metadata;
	if (sandbox_fields_copy(
		    create->wish.labels, create->wish.n_labels, &record.wish.labels) == 0)
		record.wish.n_labels = create->wish.n_labels;
	if (record.n_metadata == create->n_metadata &&
		record.wish.n_labels == create->wish.n_labels)
		sandbox = fleet_sandbox_add(fleet, &record);
	if (!sandbox) {
		sandbox_record_deinit(&record);
		fleet->out->no_memory = true;
	}
	return sandbox;
}

static void refuse(struct fleet *fleet, uint64_t request, enum fail_code code, const char *why)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, code, 0, "%s", why);
	fleet_emit_reply(fleet, request, &err, NULL);
}

static struct sandbox *admit(struct fleet *fleet, const struct fleet_create *create, struct err *reterr)
{
	struct sandbox *sandbox = NULL;

	if (!place_pool_exists(fleet->place, create->pool))
		(void)err_set(reterr, FAIL_POOL_NOT_FOUND, 0, "There is no such pool.");
	else if (!fleet_queue_has_room(fleet, create->tenant))
		(void)err_set(reterr, FAIL_SCHEDULER_BUSY, 0, "Too many requests of this tenant wait for room.");
	else if (fleet_quota_check(fleet, fleet->now.mono_usec, create->tenant, &create->quota, create->spec, reterr) == 0)
		sandbox = create->claim ? fleet_warm_claim(fleet, create, reterr) : make(fleet, create);
	if (!sandbox && !err_is_set(reterr))
		(void)err_set(reterr, FAIL_NO_MEMORY, 0, "No memory for another sandbox.");
	return sandbox;
}

struct sandbox *fleet_create(struct fleet *fleet, const struct fleet_create *create, struct err *reterr)
{
	struct sandbox *sandbox = admit(fleet, create, reterr);

	if (!sandbox)
		return NULL;
	sandbox->is_new = !create->claim;
	fleet_quota_start(fleet, create->tenant, &create->quota);
	sandbox->request = create->request;
	if (create->request && !fleet_waiter_add(fleet, create->request, WAITS_CREATE, sandbox))
		sandbox->request = 0;
	sandbox->queue_until_usec = fleet->now.mono_usec + create->queue_usec;
	fleet_sandbox_arm(fleet, sandbox);
	fleet_sandbox_note(
		fleet, sandbox, STAGE_ADMIT, RESULT_OK, create->began_us, create->admit_usec, NULL);
	if (create->claim) {
		fleet_start_taken(fleet, sandbox);
	} else if (fleet_queue_is_empty(fleet)) {
		fleet_start_place(fleet, sandbox);
	} else { /* others wait: it takes its turn among them, in this step */
		fleet_queue_add(fleet, sandbox);
		fleet_queue_run(fleet);
	}
	if (create->no_wait && sandbox->request) { /* still under way: it is on record */
		fleet_emit_reply(fleet, sandbox->request, NULL, sandbox);
		fleet_waiter_remove(fleet, sandbox->request);
		sandbox->request = 0;
	}
	return sandbox;
}

void fleet_request_create(struct fleet *fleet, const struct fleet_create *create)
{
	struct err err = ERR_NULL;

	if (!fleet_create(fleet, create, &err))
		fleet_emit_reply(fleet, create->request, &err, NULL);
}

/* ---- destroy ---- */

void fleet_sandbox_stop(struct fleet *fleet, struct sandbox *sandbox, enum end_reason reason)
{
	struct err gone = ERR_NULL;

	sandbox->record.end_reason = reason;
	if (sandbox->request) {
		(void)err_set_at(&gone, STAGE_ADMIT, FAIL_SANDBOX_GONE, 0,
			"The sandbox was ended before it was ready.");
		fleet_emit_reply(fleet, sandbox->request, &gone, sandbox);
		fleet_waiter_remove(fleet, sandbox->request);
		sandbox->request = 0;
	}
	if (sandbox->update.pending) {
		(void)err_set_at(&gone, STAGE_RUN, FAIL_SANDBOX_GONE, 0, "The sandbox was ended.");
		fleet_request_update_done(fleet, sandbox, &gone);
	}
	(void)err_set_at(&gone, STAGE_RUN, FAIL_SANDBOX_GONE, 0, "The sandbox was ended.");
	fleet_sleep_answer(fleet, sandbox, &gone);
	id_new(fleet->rng, sandbox->record.operation);
	fleet_sandbox_move(fleet, sandbox, SANDBOX_STOPPING);
	fleet_sandbox_command(fleet, sandbox);
}

void fleet_request_destroy(
	struct fleet *fleet, uint64_t request, const char *id, enum end_reason reason)
{
	struct sandbox *sandbox = fleet_sandbox_find(fleet, id);

	if (!sandbox) {
		refuse(fleet, request, FAIL_SANDBOX_NOT_FOUND, "There is no such sandbox.");
		return;
	}
	switch (sandbox->record.state) {
	case SANDBOX_PLACING:
	case SANDBOX_BACKOFF: /* nothing of it is anywhere */
		fleet_sandbox_end(fleet, sandbox, reason, NULL);
		break;
	case SANDBOX_STARTING:
		if (PLANTED(DELETE_LOST_IN_STARTING))
			break;
		__attribute__((fallthrough));
	case SANDBOX_DISPATCHED:
	case SANDBOX_RECALL:
	case SANDBOX_RUNNING:
	case SANDBOX_PAUSING:
	case SANDBOX_PAUSED:
	case SANDBOX_RESUMING:
		fleet_sandbox_stop(fleet, sandbox, reason);
		break;
	case SANDBOX_STOPPING:
		break;
	case SANDBOX_FENCED:
	case SANDBOX_ENDED:
	case SANDBOX_STATE_MAX_:
		refuse(fleet, request, FAIL_SANDBOX_NOT_FOUND, "The sandbox has ended.");
		return;
	}
	fleet_emit_reply(fleet, request, NULL, sandbox);
}

/* ---- life time, network ---- */

void fleet_request_update_done(struct fleet *fleet, struct sandbox *sandbox, const struct err *err)
{
	struct update *update = &sandbox->update;

	if (!err && update->spec) {
		spec_unref(sandbox->record.spec);
		sandbox->record.spec = TAKE(update->spec);
		*(update->is_budget ? &sandbox->budget_differs : &sandbox->network_differs) = false;
		fleet_sandbox_dirty(fleet, sandbox);
	} else if (!err) {
		sandbox->record.ends_us =
			update->timeout_s ? fleet->now.real_usec + update->timeout_s * USEC_PER_SEC
					  : 0;
		fleet_sandbox_dirty(fleet, sandbox);
	}
	if (update->request) {
		fleet_emit_reply(fleet, update->request, err, sandbox);
		fleet_waiter_remove(fleet, update->request);
	}
	spec_unref(update->spec);
	*update = (struct update){ 0 };
	if (sandbox->record.state == SANDBOX_RUNNING)
		fleet_timer_stop(&fleet->timers, &sandbox->resend);
	if (sandbox->snapshot && !fleet_snapshot_is_sent(sandbox)) /* it waited for this */
		fleet_snapshot_command(fleet, sandbox->snapshot);
}

/* Nobody knows whether the node did it: it is told again what is recorded. */
void fleet_request_update_drop(struct fleet *fleet, struct sandbox *sandbox, const struct err *err)
{
	if (sandbox->update.spec)
		*(sandbox->update.is_budget ? &sandbox->budget_differs : &sandbox->network_differs) = true;
	fleet_request_update_done(fleet, sandbox, err);
}

/* The sandbox, where it can be changed now; NULL: the request was answered. */
static struct sandbox *changeable(struct fleet *fleet, uint64_t request, const char *id)
{
	struct sandbox *sandbox = fleet_sandbox_find(fleet, id);
	struct err err = ERR_NULL;

	if (!sandbox || sandbox->record.state == SANDBOX_STOPPING ||
		sandbox->record.state == SANDBOX_FENCED) {
		refuse(fleet, request, FAIL_SANDBOX_NOT_FOUND, "There is no such sandbox.");
		return NULL;
	}
	if (fleet_is_sleeping(sandbox->record.state)) {
		refuse(fleet, request, FAIL_CONFLICT, "The sandbox is paused; connect to it first.");
		return NULL;
	}
	if (sandbox->record.state != SANDBOX_RUNNING) {
		refuse(fleet, request, FAIL_SANDBOX_NOT_READY, "The sandbox is still starting.");
		return NULL;
	}
	if (sandbox->node->session == 0) {
		(void)err_set_at(&err, STAGE_RUN, FAIL_NODE_UNREACHABLE, 0,
			"The sandbox's node is cut off at present.");
		fleet_emit_reply(fleet, request, &err, sandbox);
		return NULL;
	}
	if (sandbox->update.pending) { /* the later one wins */
		(void)err_set(&err, FAIL_CONFLICT, 0, "A later change of the sandbox replaced this one.");
		fleet_request_update_drop(fleet, sandbox, &err);
	}
	return sandbox;
}

uint64_t fleet_change_number(struct fleet *fleet)
{
	return fleet->config.epoch << 32 | ++fleet->updates;
}

/* Takes the specification. */
void fleet_request_change(struct fleet *fleet, struct sandbox *sandbox, uint64_t request, uint32_t timeout_s,
	struct sandbox_spec *spec, bool is_budget)
{
	sandbox->update = (struct update){
		.pending = true,
		.number = fleet_change_number(fleet),
		.timeout_s = timeout_s,
		.spec = spec,
		.is_budget = is_budget,
		.request = request,
		.until_usec = fleet->now.mono_usec + fleet->config.dispatch_timeout_usec,
	};
	id_new(fleet->rng, sandbox->update.operation);
	if (request && !fleet_waiter_add(fleet, request, WAITS_UPDATE, sandbox))
		sandbox->update.request = 0;
}

static void change(struct fleet *fleet, struct sandbox *sandbox, uint64_t request, uint32_t timeout_s,
	struct sandbox_spec *spec, bool is_budget)
{
	fleet_request_change(fleet, sandbox, request, timeout_s, spec, is_budget);
	fleet_sandbox_command(fleet, sandbox);
}

void fleet_request_set_timeout(
	struct fleet *fleet, uint64_t request, const char *id, uint32_t timeout_s)
{
	struct sandbox *sandbox = changeable(fleet, request, id);

	if (sandbox)
		change(fleet, sandbox, request, timeout_s, NULL, false);
}

/* One that sleeps is told when it wakes: its node has nothing to enforce until then. */
void fleet_request_set_budget(struct fleet *fleet, uint64_t request, const char *id, const struct budget *budget)
{
	struct sandbox *sandbox = fleet_sandbox_find(fleet, id);
	const bool is_paused = sandbox && sandbox->record.state == SANDBOX_PAUSED;
	struct sandbox_spec *spec;

	if (!is_paused)
		sandbox = changeable(fleet, request, id);
	if (!sandbox)
		return;
	spec = spec_with_budget(sandbox->record.spec, budget);
	if (!spec) {
		refuse(fleet, request, FAIL_NO_MEMORY, "No memory for a budget.");
	} else if (is_paused) {
		spec_unref(sandbox->record.spec);
		sandbox->record.spec = spec;
		fleet_sandbox_dirty(fleet, sandbox);
		fleet_emit_reply(fleet, request, NULL, sandbox);
	} else {
		change(fleet, sandbox, request, 0, spec, true);
	}
}

void fleet_request_set_network(
	struct fleet *fleet, uint64_t request, const char *id, const struct net_policy *network)
{
	struct sandbox *sandbox = changeable(fleet, request, id);
	struct sandbox_spec *spec = sandbox ? spec_with_network(sandbox->record.spec, network) : NULL;

	if (!sandbox)
		return;
	if (!spec)
		refuse(fleet, request, FAIL_NO_MEMORY, "No memory for a network policy.");
	else
		change(fleet, sandbox, request, 0, spec, false);
}
