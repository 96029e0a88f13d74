/* SPDX-License-Identifier: Apache-2.0
 *
 * See fleet.h: the object, the step and what an event leads to.
 */
#include "fleet/fleet.h"

#include <errno.h>
#include <string.h>

#include "fleet/age.h"
#include "fleet/internal.h"

int fleet_new(struct fleet **ret, const struct fleet_config *config)
{
	CLEANUP(fleet_freep) struct fleet *fleet = calloc(1, sizeof(*fleet));
	int r;

	if (!fleet)
		return -ENOMEM;
	fleet->config = *config;
	TAILQ_INIT(&fleet->all_nodes);
	TAILQ_INIT(&fleet->all_sandboxes);
	TAILQ_INIT(&fleet->placed);
	TAILQ_INIT(&fleet->leaving);
	TAILQ_INIT(&fleet->dirty_sandboxes);
	TAILQ_INIT(&fleet->dirty_nodes);
	fleet->replace_timer = (struct timer)TIMER_NULL(TIMER_REPLACE, NULL);
	TAILQ_INIT(&fleet->late);
	TAILQ_INIT(&fleet->all_snapshots);
	TAILQ_INIT(&fleet->dirty_snapshots);
	fleet->queue_timer = (struct timer)TIMER_NULL(TIMER_QUEUE, NULL);
	fleet->warm_timer = (struct timer)TIMER_NULL(TIMER_WARM, NULL);
	TAILQ_INIT(&fleet->warms);
	r = place_new(&fleet->place);
	if (r < 0)
		return r;
	*ret = TAKE(fleet);
	return 0;
}

struct fleet *fleet_free(struct fleet *fleet)
{
	struct waiter *waiter, *next;

	if (!fleet)
		return NULL;
	while (!TAILQ_EMPTY(&fleet->all_sandboxes))
		fleet_sandbox_remove(fleet, TAILQ_FIRST(&fleet->all_sandboxes));
	while (!TAILQ_EMPTY(&fleet->all_snapshots))
		fleet_snapshot_remove(fleet, TAILQ_FIRST(&fleet->all_snapshots));
	HASH_ITER (hh, fleet->waiters, waiter, next) {
		HASH_DEL(fleet->waiters, waiter);
		free(waiter);
	}
	fleet_learn_forget(fleet);
	fleet_warm_free(fleet);
	fleet_queue_free(fleet);
	fleet_node_free_all(fleet);
	fleet_quota_free(fleet);
	fleet_pools_free(fleet);
	place_free(fleet->place);
	fleet_timers_deinit(&fleet->timers);
	free(fleet->replies);
	free(fleet);
	return NULL;
}

/* ---- load ---- */

static void load_sandbox(struct fleet *fleet, const struct sandbox_record *from)
{
	struct sandbox_record record;
	struct sandbox *sandbox = NULL;
	struct node *node = fleet_node_find(fleet, from->node);

	if (fleet_sandbox_find(fleet, from->id))
		return;
	if (sandbox_record_copy(from, &record) == 0) {
		record.n_excluded = MIN(record.n_excluded, (size_t)EXCLUDED_MAX);
		sandbox = fleet_sandbox_add(fleet, &record);
		if (!sandbox)
			sandbox_record_deinit(&record);
	}
	if (!sandbox) {
		fleet->out->no_memory = true;
		return;
	}
	if (node && fleet_sandbox_has_vm(from->state)) {
		fleet_sandbox_attach(fleet, sandbox, node);
		fleet_sandbox_reserve(fleet, sandbox,
			from->state == SANDBOX_DISPATCHED || from->state == SANDBOX_STARTING ||
				from->state == SANDBOX_RECALL);
		if (from->is_asleep) {
			sandbox->record.is_asleep = false; /* all of it was just taken */
			fleet_sandbox_sleep(fleet, sandbox);
		}
	}
}

/* Deadlines begin anew: what this process did not see cannot be held against anybody. */
static void loaded(struct fleet *fleet)
{
	struct sandbox *sandbox, *next;
	struct node *node;
	struct err err = ERR_NULL;

	fleet->loaded = true;
	if (!AGE_SORT(&fleet->all_sandboxes, sandbox) || !AGE_SORT(&fleet->all_snapshots, snapshot))
		fleet->out->no_memory = true;
	TAILQ_FOREACH (node, &fleet->all_nodes, in_all)
		fleet_drain_arm(fleet, node);
	fleet_learn_loaded(fleet);
	(void)err_set(&err, FAIL_NODE_REVOKED, 0, "The sandbox's node is no longer known.");
	for (sandbox = TAILQ_FIRST(&fleet->all_sandboxes); sandbox; sandbox = next) {
		next = TAILQ_NEXT(sandbox, in_all);
		if (fleet_sandbox_has_vm(sandbox->record.state) &&
			(!sandbox->node || sandbox->node->link == NODE_REMOVED)) {
			fleet_sandbox_end(fleet, sandbox, END_FAILED, &err);
			continue;
		}
		if (PLANTED(DEADLINE_NOT_REARMED))
			continue;
		fleet_sandbox_arm(fleet, sandbox);
		if (sandbox->record.state == SANDBOX_PLACING) {
			fleet_queue_add(fleet, sandbox);
			/* no node is connected yet: that is not "no room" */
			sandbox->queue_until_usec =
				fleet->now.mono_usec + fleet->config.place_timeout_usec;
		}
	}
	fleet_snapshots_loaded(fleet);
	fleet_warm_loaded(fleet);
}

/* ---- timers ---- */

static void run_timers(struct fleet *fleet)
{
	struct timer *timer;

	while ((timer = fleet_timers_pop(&fleet->timers, fleet->now.mono_usec))) {
		switch ((enum timer_kind)timer->kind) {
		case TIMER_DEADLINE:
			fleet_sandbox_on_deadline(fleet, timer->object);
			break;
		case TIMER_RESEND:
			fleet_sandbox_on_resend(fleet, timer->object);
			break;
		case TIMER_LIVE:
			fleet_node_on_live(fleet, timer->object);
			break;
		case TIMER_BUSY:
			fleet_node_on_busy(fleet, timer->object);
			break;
		case TIMER_DRAIN:
			fleet_drain_on_deadline(fleet, timer->object);
			break;
		case TIMER_REPLACE:
			fleet_replace_run(fleet);
			break;
		case TIMER_PROBE:
			fleet_learn_on_probe(fleet, timer->object);
			break;
		case TIMER_WARM:
			fleet_warm_run(fleet);
			break;
		case TIMER_SNAPSHOT_DEADLINE:
			fleet_snapshot_on_deadline(fleet, timer->object);
			break;
		case TIMER_SNAPSHOT_RESEND:
			fleet_snapshot_on_resend(fleet, timer->object);
			break;
		case TIMER_QUEUE:
			fleet->kicked = true;
			break;
		}
	}
}

/* ---- events ---- */

static void on_load(struct fleet *fleet, const struct fleet_event *event)
{
	if (event->type == FLEET_LOAD_POOL) {
		if (place_pool_set(fleet->place, event->pool->name,
			    event->pool->cpu_overcommit_percent) < 0)
			fleet->out->no_memory = true;
		fleet_pool_set(fleet, event->pool);
		fleet->kicked = true;
	} else if (event->type == FLEET_LOAD_NODE) {
		if (!fleet_node_find(fleet, event->node_record->id) &&
			fleet_node_add(fleet, event->node_record) < 0)
			fleet->out->no_memory = true;
		if (PLANTED(QUARANTINE_FORGOTTEN))
			fleet_learn_pardoned(fleet, fleet_node_find(fleet, event->node_record->id));
	} else if (event->type == FLEET_LOAD_SNAPSHOT) {
		fleet_snapshot_load(fleet, event->load_snapshot.record, &event->load_snapshot.quota);
	} else if (event->type == FLEET_LOAD_SANDBOX) {
		load_sandbox(fleet, event->sandbox_record);
	} else {
		loaded(fleet);
	}
}

static void on_node_admin(struct fleet *fleet, const struct fleet_event *event)
{
	struct node *node;

	if (event->type == FLEET_NODE_ENROLLED) {
		if (fleet_node_find(fleet, event->node_record->id))
			return;
		if (fleet_node_add(fleet, event->node_record) < 0) {
			fleet->out->no_memory = true;
			return;
		}
		fleet_node_dirty(fleet, fleet_node_find(fleet, event->node_record->id));
		return;
	}
	node = fleet_node_find(fleet, event->node);
	if (!node || node->link == NODE_REMOVED)
		return;
	if (event->type == FLEET_NODE_TAKE)
		fleet_node_take(fleet, node, event->take_for);
	else if (event->type == FLEET_NODE_REVOKED)
		fleet_node_revoke(fleet, node, event->is_reimaged);
	else if (event->fact.fact == NODE_QUARANTINED && !event->fact.set)
		fleet_learn_pardoned(fleet, node);
	else
		fleet_node_set_fact(fleet, node, event);
}

static void on_node_message(struct fleet *fleet, const struct fleet_event *event)
{
	struct node *node = fleet_node_of_session(fleet, event);

	if (!node)
		return;
	if (event->type == FLEET_NODE_DISCONNECTED) {
		fleet_node_disconnected(fleet, node);
		return;
	}
	fleet_node_heard(fleet, node);
	if (event->type == FLEET_NODE_HEARTBEAT)
		fleet_lease_grant(fleet, node, event->heartbeat);
	if (event->type == FLEET_NODE_INVENTORY) {
		fleet_inventory_apply(fleet, node, event->inventory);
	} else if (event->type == FLEET_NODE_CAPACITY) {
		fleet_node_capacity_report(fleet, node, event->capacity);
	} else if (event->type == FLEET_NODE_REPORT) {
		fleet_report_apply(fleet, node, event->report);
	} else if (event->type == FLEET_NODE_SNAPSHOT_DROPPED) {
		fleet_snapshot_dropped(fleet, node, event->dropped_snapshot);
	} else if (event->type == FLEET_NODE_TELEMETRY &&
		   event->telemetry_seq > node->record.telemetry_acked) {
		node->record.telemetry_acked = event->telemetry_seq;
		fleet_node_dirty(fleet, node);
	}
}

static void set_weight(struct fleet *fleet, const struct fleet_event *event)
{
	if (fleet_tenant_set_weight(fleet, event->weight.tenant, event->weight.weight) < 0)
		fleet->out->no_memory = true;
}

static void handle(struct fleet *fleet, const struct fleet_event *event)
{
	switch (event->type) {
	case FLEET_LOAD_POOL:
	case FLEET_LOAD_NODE:
	case FLEET_LOAD_SNAPSHOT:
	case FLEET_LOAD_SANDBOX:
	case FLEET_LOADED:
		on_load(fleet, event);
		break;
	case FLEET_WARM:
		fleet_warm_set(fleet, event->warm);
		break;
	case FLEET_TENANT_WEIGHT:
		set_weight(fleet, event);
		break;
	case FLEET_NODE_ENROLLED:
	case FLEET_NODE_REVOKED:
	case FLEET_NODE_FACT:
	case FLEET_NODE_TAKE:
		on_node_admin(fleet, event);
		break;
	case FLEET_NODE_HELLO:
		fleet_node_hello(fleet, event);
		break;
	case FLEET_NODE_HEARTBEAT:
	case FLEET_NODE_INVENTORY:
	case FLEET_NODE_CAPACITY:
	case FLEET_NODE_REPORT:
	case FLEET_NODE_TELEMETRY:
	case FLEET_NODE_SNAPSHOT_DROPPED:
	case FLEET_NODE_DISCONNECTED:
		on_node_message(fleet, event);
		break;
	case FLEET_CREATE:
		fleet_request_create(fleet, event->create);
		break;
	case FLEET_DESTROY:
		fleet_request_destroy(fleet, event->destroy.request, event->destroy.sandbox,
			event->destroy.reason);
		break;
	case FLEET_SET_NETWORK:
		fleet_request_set_network(fleet, event->change.request, event->change.sandbox,
			event->change.network);
		break;
	case FLEET_SET_BUDGET:
		fleet_request_set_budget(fleet, event->change.request, event->change.sandbox, event->change.budget);
		break;
	case FLEET_SET_TIMEOUT:
		fleet_request_set_timeout(fleet, event->set_timeout.request,
			event->set_timeout.sandbox, event->set_timeout.timeout_s);
		break;
	case FLEET_PAUSE:
		fleet_request_pause(fleet, event->pause.request, event->pause.sandbox, &event->pause.quota);
		break;
	case FLEET_RESUME:
		fleet_request_resume(fleet, event->resume);
		break;
	case FLEET_SNAPSHOT:
		fleet_request_snapshot(fleet, event->snapshot);
		break;
	case FLEET_DROP_SNAPSHOT:
		fleet_request_drop_snapshot(fleet, event->drop_snapshot.request, event->drop_snapshot.snapshot);
		break;
	case FLEET_FORGET:
		fleet_request_forget(fleet, event->request);
		break;
	case FLEET_STORE_TIGHT:
		fleet->is_tight = event->is_tight;
		fleet_warm_run(fleet);
		break;
	case FLEET_COMMITTED:
		fleet_start_committed(fleet, event->commit.batch);
		break;
	case FLEET_COMMIT_FAILED:
		fleet->failed = fleet->counts.failed = true;
		break;
	case FLEET_STALL:
		fleet_node_stall(fleet, event->stall_usec);
		break;
	case FLEET_TICK:
		run_timers(fleet);
		break;
	case FLEET_EVENT_MAX_:
		break;
	}
}

/* The memory is ahead of the store: changes are refused, nothing is sent, nothing is decided. */
static void handle_failed(struct fleet *fleet, const struct fleet_event *event)
{
	uint64_t request = event->type == FLEET_CREATE        ? event->create->request
			   : event->type == FLEET_DESTROY     ? event->destroy.request
			   : event->type == FLEET_SET_TIMEOUT ? event->set_timeout.request
			   : event->type == FLEET_SET_NETWORK || event->type == FLEET_SET_BUDGET ? event->change.request
			   : event->type == FLEET_PAUSE       ? event->pause.request
			   : event->type == FLEET_RESUME      ? event->resume->request
			   : event->type == FLEET_SNAPSHOT    ? event->snapshot->request
			   : event->type == FLEET_DROP_SNAPSHOT ? event->drop_snapshot.request
							      : 0;
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_STORE_FAILED, 0,
		"The scheduler's last write failed; it takes no changes until its "
		"store works again.");
	fleet_emit_reply(fleet, request, &err, NULL);
	fleet_flush(fleet);
	fleet->out->next_usec = INT64_MAX;
}

void fleet_step(struct fleet *fleet, struct moment now, struct rng *rng,
	const struct fleet_event *event, struct fleet_actions *out)
{
	if (fleet->started_usec == 0)
		fleet->started_usec = now.mono_usec;
	fleet->now = now;
	fleet->rng = rng;
	fleet->out = out;
	out->batch = ++fleet->batch;
	if (fleet->failed) {
		handle_failed(fleet, event);
	} else {
		handle(fleet, event);
		if (fleet->loaded && fleet->kicked)
			fleet_queue_run(fleet);
		fleet_flush(fleet);
		out->next_usec = fleet_timers_next(&fleet->timers);
	}
	fleet->out = NULL;
	fleet->rng = NULL;
}
