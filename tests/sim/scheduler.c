/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's shell in the simulator: one queue of batches in order, a store that makes them durable a little
 * later, and nothing released before. A crash loses what was not durable; some of what was durable was then never
 * released. A failed commit follows fleet.h: held replies become errors, the fleet is made again from the store.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static struct moment scheduler_now(const struct sim *sim)
{
	return (struct moment){ .mono_usec = sim->now_usec + USEC_PER_SEC,
		.real_usec = REAL_BASE + sim->now_usec + sim->scheduler.real_offset };
}

/* ---- the store ---- */

static void store_put(struct stored **table, const struct sandbox_record *record)
{
	struct stored *stored;

	HASH_FIND_STR(*table, record->id, stored);
	if (stored) {
		sandbox_record_deinit(&stored->record);
	} else {
		stored = calloc(1, sizeof(*stored));
		if (!stored)
			exit(3);
		memcpy(stored->id, record->id, sizeof(stored->id));
		HASH_ADD_STR(*table, id, stored);
	}
	if (sandbox_record_copy(record, &stored->record) < 0)
		exit(3);
}

static void store_delete(struct stored **table, const char *id)
{
	struct stored *stored;

	HASH_FIND_STR(*table, id, stored);
	if (!stored)
		return;
	HASH_DEL(*table, stored);
	sandbox_record_deinit(&stored->record);
	free(stored);
}

/* The store would refuse the batch: two that claimed one VM is what must not have got so far. */
static void store_claim(struct sim *sim, const char *id)
{
	struct stored *stored;

	HASH_FIND_STR(sim->scheduler.claims, id, stored);
	if (stored) {
		sim_violation(sim, "warm sandbox %s was claimed twice", id);
		return;
	}
	stored = calloc(1, sizeof(*stored));
	if (!stored)
		exit(3);
	(void)snprintf(stored->id, sizeof(stored->id), "%s", id);
	HASH_ADD_STR(sim->scheduler.claims, id, stored);
}

/* It must not end by itself when nothing was done to it. */
static void check_history(struct sim *sim, const struct sandbox_record *record)
{
	struct truth *truth = sim_truth(sim, record->id);

	if (*record->spec->snapshot && record->failure.code == FAIL_NODE_LOST)
		return; /* it can begin nowhere else */
	if (truth->is_acked && record->end_reason == END_FAILED && !truth->is_deleted &&
		!truth->was_hurt)
		sim_violation(sim, "running sandbox %s was ended: %s %s", record->id,
			failure_info(record->failure.code)->name, record->failure.msg);
}

/* Its former VM must be gone: check_spawn() looks when the next one begins, which may fail as any start. */
static void count_replaced(struct sim *sim, const struct sandbox_record *record)
{
	struct truth *truth = sim_truth(sim, record->id);

	if (truth->incarnation && record->incarnation > truth->incarnation) {
		sim->replaced++;
		truth->was_hurt = true;
	}
	truth->incarnation = record->incarnation;
}

static void make_durable(struct sim *sim, const struct fleet_actions *actions)
{
	struct sim_scheduler *scheduler = &sim->scheduler;

	for (size_t i = 0; i < actions->n_puts; i++) {
		const struct fleet_put *put = &actions->puts[i];

		switch (put->type) {
		case FLEET_PUT_SANDBOX:
			sim_truth(sim, put->id)->is_canary = strchr(put->sandbox->tenant, ':');
			count_replaced(sim, put->sandbox);
			policy_check_record(sim, put->sandbox);
			store_put(&scheduler->live, put->sandbox);
			break;
		case FLEET_PUT_HISTORY:
			check_history(sim, put->sandbox);
			store_put(&scheduler->history, put->sandbox);
			break;
		case FLEET_DELETE_SANDBOX:
			store_delete(&scheduler->live, put->id);
			break;
		case FLEET_PUT_SNAPSHOT:
			snaps_put(sim, put->snapshot);
			break;
		case FLEET_DELETE_SNAPSHOT:
			snaps_delete(sim, put->id);
			break;
		case FLEET_PUT_CLAIM:
			store_claim(sim, put->id);
			break;
		case FLEET_DELETE_CLAIM:
			store_delete(&scheduler->claims, put->id);
			break;
		case FLEET_PUT_NODE:
			for (int n = 0; n < sim->n_nodes; n++)
				if (strcmp(scheduler->node_records[n].id, put->id) == 0) {
					node_record_deinit(&scheduler->node_records[n]);
					(void)node_record_copy(
						put->node, &scheduler->node_records[n]);
				}
			break;
		}
	}
}

/* ---- release ---- */

static int node_by_id(const struct sim *sim, const char *id)
{
	for (int i = 0; i < sim->n_nodes; i++)
		if (strcmp(sim->nodes[i].id, id) == 0)
			return i;
	return 0;
}

static void release(struct sim *sim, struct fleet_actions *actions)
{
	for (size_t i = 0; i < actions->n_sends; i++) {
		const struct fleet_send *send = &actions->sends[i];

		if (send->type != SEND_REPORT_ACK)
			sim_log(sim, "scheduler -> node %d send %d %s", node_by_id(sim, send->node),
				(int)send->type,
				send->type == SEND_CREATE    ? send->create.sandbox
				: send->type == SEND_DESTROY ? send->destroy.sandbox
							     : "");
		sim_to_node(sim, node_by_id(sim, send->node), send->session,
			wire_pack_send(send, sim->scheduler.epoch));
	}
	for (size_t i = 0; i < actions->n_replies; i++)
		client_reply(sim, &actions->replies[i]);
}

static void drop_batches(struct sim *sim)
{
	struct sim_scheduler *scheduler = &sim->scheduler;
	struct sim_batch *batch;

	while ((batch = scheduler->first)) {
		scheduler->first = batch->next;
		fleet_actions_clear(&batch->actions);
		free(batch);
	}
	scheduler->last = &scheduler->first;
	scheduler->commit_planned = false;
}

static void commit_failed(struct sim *sim)
{
	struct err err = ERR_NULL;
	struct fleet_event event = { .type = FLEET_COMMIT_FAILED };
	struct sim_batch *batch;

	sim->met[FAULT_COMMIT_FAILED]++;
	sim_log(sim, "commit failed");
	(void)err_set(&err, FAIL_STORE_FAILED, 0, "The write failed.");
	for (batch = sim->scheduler.first; batch; batch = batch->next)
		for (size_t i = 0; i < batch->actions.n_replies; i++) {
			batch->actions.replies[i].err = err;
			client_reply(sim, &batch->actions.replies[i]);
		}
	event.commit.batch = sim->scheduler.first->actions.batch;
	event.commit.err = &err;
	drop_batches(sim);
	scheduler_step(sim, &event);
	(void)sim_plan(sim, SIM_SCHEDULER_START, 500 * USEC_PER_MSEC, 0);
}

static void plan_commit(struct sim *sim)
{
	struct sim_scheduler *scheduler = &sim->scheduler;
	const bool is_slow = sim_chance(sim, 10);
	int64_t in = is_slow ? sim_between(sim, 100 * USEC_PER_MSEC, 3 * USEC_PER_SEC)
			     : sim_between(sim, 500, 8 * USEC_PER_MSEC);
	struct sim_event *event;

	if (scheduler->commit_planned || !scheduler->first)
		return;
	scheduler->commit_planned = true;
	sim->met[FAULT_COMMIT_SLOW] += is_slow;
	event = sim_plan(sim, SIM_COMMIT, in, 0);
	event->life = scheduler->life;
}

void scheduler_commit(struct sim *sim, uint64_t life)
{
	struct sim_scheduler *scheduler = &sim->scheduler;
	struct fleet_event committed = { .type = FLEET_COMMITTED };
	struct sim_batch *batch;

	if (life != scheduler->life || !scheduler->commit_planned || !scheduler->first)
		return;
	if (sim->now_usec < scheduler->stalled_until_usec) {
		struct sim_event *event =
			sim_plan(sim, SIM_COMMIT, scheduler->stalled_until_usec - sim->now_usec, 0);

		event->life = life;
		return;
	}
	scheduler->commit_planned = false;
	check_acked(sim);
	if (sim->now_usec < scheduler->full_until_usec || sim_chance(sim, 2)) {
		commit_failed(sim);
		return;
	}
	while ((batch = scheduler->first)) {
		scheduler->first = batch->next;
		if (!scheduler->first)
			scheduler->last = &scheduler->first;
		make_durable(sim, &batch->actions);
		release(sim, &batch->actions);
		committed.commit.batch = batch->actions.batch;
		fleet_actions_clear(&batch->actions);
		free(batch);
	}
	scheduler_step(sim, &committed);
}

/* ---- steps ---- */

static void plan_tick(struct sim *sim, int64_t next_usec)
{
	struct sim_scheduler *scheduler = &sim->scheduler;
	int64_t at;

	if (next_usec == INT64_MAX)
		return;
	at = MAX(next_usec - USEC_PER_SEC, sim->now_usec);
	if (scheduler->tick_usec > sim->now_usec && at >= scheduler->tick_usec)
		return;
	scheduler->tick_usec = MAX(at, sim->now_usec + 1);
	(void)sim_plan(sim, SIM_SCHEDULER_TICK, scheduler->tick_usec - sim->now_usec, 0);
}

/* Nothing new goes to a node that is cordoned, drained or quarantined, but a canary. */
static void check_placed(struct sim *sim, const struct fleet_send *send)
{
	struct truth *truth = sim_truth(sim, send->create.sandbox);
	const char *tenant = fleet_sandbox_tenant(sim->scheduler.fleet, send->create.sandbox);
	struct fleet_node_view view;

	if (truth->sent >= send->create.generation)
		return;
	truth->sent = send->create.generation;
	if (!tenant || strcmp(tenant, "croft:canary") == 0 ||
		fleet_node_get(sim->scheduler.fleet, send->node, &view) < 0)
		return;
	for (unsigned int i = 0; i < NODE_FACT_MAX_; i++)
		if (view.record->facts[i].is_set)
			sim_violation(sim, "%s was placed on node %d, which is %s",
				send->create.sandbox, node_by_id(sim, send->node),
				node_fact_name((enum node_fact)i));
}

void scheduler_step(struct sim *sim, const struct fleet_event *event)
{
	struct sim_scheduler *scheduler = &sim->scheduler;
	struct sim_batch *batch;

	if (!scheduler->fleet)
		return;
	sim->fleet_stepped = true;
	batch = calloc(1, sizeof(*batch));
	if (!batch)
		exit(3);
	fleet_step(scheduler->fleet, scheduler_now(sim), &sim->core_rng, event, &batch->actions);
	if (batch->actions.no_memory)
		exit(3);
	for (size_t i = 0; i < batch->actions.n_notices; i++)
		if (batch->actions.notices[i].err.code == FAIL_AUTH_WRONG_NODE)
			sim_violation(sim, "an honest node was called a liar about %s",
				batch->actions.notices[i].sandbox);
	for (size_t i = 0; i < batch->actions.n_puts; i++)
		if (batch->actions.puts[i].type == FLEET_PUT_SANDBOX)
			sim_log(sim, "  %s gen %llu %s on %d", batch->actions.puts[i].id,
				(unsigned long long)batch->actions.puts[i].sandbox->generation,
				sandbox_state_name(batch->actions.puts[i].sandbox->state),
				node_by_id(sim, batch->actions.puts[i].sandbox->node));
		else if (batch->actions.puts[i].type == FLEET_PUT_HISTORY)
			sim_log(sim, "  %s ended %s: %s", batch->actions.puts[i].id,
				end_reason_name(batch->actions.puts[i].sandbox->end_reason),
				failure_info(batch->actions.puts[i].sandbox->failure.code)->name);
	for (size_t i = 0; i < batch->actions.n_sends; i++)
		if (batch->actions.sends[i].type == SEND_CREATE)
			check_placed(sim, &batch->actions.sends[i]);
	plan_tick(sim, batch->actions.next_usec);
	if (!scheduler->first && batch->actions.n_puts == 0) {
		release(sim, &batch->actions);
		fleet_actions_clear(&batch->actions);
		free(batch);
		return;
	}
	*scheduler->last = batch;
	scheduler->last = &batch->next;
	plan_commit(sim);
}

struct sandbox_spec *sim_spec(void)
{
	struct sandbox_spec *spec = spec_new();

	if (!spec)
		exit(3);
	memcpy(spec->template_name, "base", 5);
	memcpy(spec->image_digest,
		"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		DIGEST_SIZE);
	return spec;
}

struct sandbox_spec *sim_warm_spec(void)
{
	struct sandbox_spec *spec = sim_spec();

	spec->vcpus = 1;
	spec->memory_mib = 512;
	spec->disk_mib = 200;
	return spec;
}

/* Until everything is to be gone at the end. */
static void set_warm(struct sim *sim, void (*step)(struct sim *sim, const struct fleet_event *event))
{
	struct warm_record warm = { .pool = POOL,
		.name = "base",
		.spec = sim_warm_spec(),
		.target = sim->is_heal || sim->now_usec >= SETTLE_USEC ? 0 : 4,
		.max_starts = 2,
		.max_age_usec = 50 * USEC_PER_SEC };
	struct fleet_event event = { .type = FLEET_WARM, .warm = &warm };

	step(sim, &event);
	spec_unref(warm.spec);
	if (!*sim->scheduler.warm.snapshot || !sim->scheduler.fleet)
		return;
	warm.spec = sim->scheduler.warm.spec;
	memcpy(warm.name, sim->scheduler.warm.snapshot, ID_SIZE);
	warm.target = MIN(warm.target, 2u);
	step(sim, &event);
}

void scheduler_set_warm_snapshot(struct sim *sim, const struct snapshot_record *record)
{
	struct stored_warm *warm = &sim->scheduler.warm;
	struct warm_record none = { .pool = POOL, .spec = warm->spec };
	const struct fleet_event event = { .type = FLEET_WARM, .warm = &none };
	struct sandbox_spec *spec = sim_spec();
	bool was = *warm->snapshot;

	memcpy(none.name, warm->snapshot, ID_SIZE);
	spec->vcpus = record->spec->vcpus;
	spec->memory_mib = record->spec->memory_mib;
	spec->disk_mib = record->spec->disk_mib;
	memcpy(spec->snapshot, record->id, ID_SIZE);
	memcpy(warm->snapshot, record->id, ID_SIZE);
	warm->spec = spec;
	if (was)
		scheduler_step(sim, &event);
	spec_unref(none.spec);
	if (sim->scheduler.fleet)
		scheduler_set_warm(sim);
}

void scheduler_set_warm(struct sim *sim)
{
	set_warm(sim, scheduler_step);
}

/* People who drain end what runs there: it is theirs to answer for. */
void scheduler_set_fact(struct sim *sim, int node, enum node_fact fact, bool is_set)
{
	struct fleet_event event = { .type = FLEET_NODE_FACT };
	char ids[512][ID_SIZE];
	size_t n;

	if (!sim->scheduler.fleet || sim->now_usec < sim->scheduler.stalled_until_usec)
		return;
	n = fleet_sandbox_list(sim->scheduler.fleet, NULL, "", 0, ids, ARRAY_LEN(ids));
	for (size_t i = 0; i < n && is_set && fact == NODE_DRAINING; i++) {
		uint64_t session;
		const char *where = fleet_sandbox_node(sim->scheduler.fleet, ids[i], &session);

		if (where && strcmp(where, sim->nodes[node].id) == 0)
			sim_truth(sim, ids[i])->was_hurt = true;
	}
	memcpy(event.node, sim->nodes[node].id, sizeof(event.node));
	event.fact.fact = fact;
	event.fact.set = is_set;
	event.fact.who = "somebody";
	event.fact.why = "simulated";
	if (is_set && fact == NODE_DRAINING)
		event.fact.until_us = REAL_BASE + sim->now_usec + sim->scheduler.real_offset +
				      sim_between(sim, 0, 30) * USEC_PER_SEC;
	scheduler_step(sim, &event);
}

void scheduler_drain(struct sim *sim, int node)
{
	uint64_t session;
	const char *where = sim->scheduler.fleet && *sim->seen_warm
				    ? fleet_sandbox_node(sim->scheduler.fleet, sim->seen_warm, &session)
				    : NULL;

	node = where ? node_by_id(sim, where) : node;
	sim_log(sim, "FAULT node %d is drained", node);
	scheduler_set_fact(sim, node, NODE_DRAINING, true);
}

void scheduler_load(struct sim *sim, void (*step)(struct sim *sim, const struct fleet_event *event))
{
	struct sim_scheduler *scheduler = &sim->scheduler;
	struct pool_record pool = {
		.name = POOL, .customer = "customer-a", .cpu_overcommit_percent = 400
	};
	struct fleet_event event = { .type = FLEET_LOAD_POOL };
	struct stored *stored;

	if (sim_has_leases(sim)) {
		pool.replace_on_loss = true;
		pool.lost_after_usec = 25 * USEC_PER_SEC;
		pool.self_stop_after_usec = 12 * USEC_PER_SEC;
	}
	event.pool = &pool;
	step(sim, &event);
	event.type = FLEET_LOAD_NODE;
	for (int i = 0; i < sim->n_nodes; i++) {
		event.node_record = &scheduler->node_records[i];
		step(sim, &event);
	}
	set_warm(sim, step);
	event.type = FLEET_LOAD_SANDBOX;
	snaps_load(sim, step);
	for (stored = scheduler->live; stored; stored = stored->hh.next) {
		event.sandbox_record = &stored->record;
		step(sim, &event);
	}
	event.type = FLEET_LOADED;
	step(sim, &event);
}

void scheduler_start(struct sim *sim)
{
	struct sim_scheduler *scheduler = &sim->scheduler;
	struct fleet_config config;

	if (scheduler->fleet) { /* made again after a failed commit: who waited for an answer gets none */
		client_scheduler_died(sim);
		drop_batches(sim);
		scheduler->fleet = fleet_free(scheduler->fleet);
	}
	fleet_config_default(&config);
	config.epoch = ++scheduler->epoch;
	config.part_size = 2;
	if (sim->seed % 2) { /* cuts last longer than the patience of every state */
		config.dispatch_timeout_usec = 4 * USEC_PER_SEC;
		config.start_timeout_usec = 12 * USEC_PER_SEC;
		config.recall_timeout_usec = 8 * USEC_PER_SEC;
		config.stop_timeout_usec = 10 * USEC_PER_SEC;
	}
	if (sim_has_leases(sim))
		config.grace_usec = 30 * USEC_PER_SEC; /* else nothing is lost before the faults end */
	memcpy(config.lineage, "aaaaaaaaaaaaaaaaaaaa", ID_SIZE);
	id_new(&sim->core_rng, config.run);
	copy_mark(sim, &config);
	config.runs = &scheduler->runs;
	scheduler->life++;
	scheduler->tick_usec = 0;
	if (fleet_new(&scheduler->fleet, &config) < 0)
		exit(3);
	sim_log(sim, "scheduler starts, epoch %llu", (unsigned long long)scheduler->epoch);
	scheduler_load(sim, scheduler_step);
}

void scheduler_crash(struct sim *sim)
{
	struct sim_scheduler *scheduler = &sim->scheduler;

	if (!scheduler->fleet)
		return;
	/* Some of what waits became durable, but nobody was told. */
	for (struct sim_batch *batch = scheduler->first; batch && rng_below(&sim->rng, 2);
		batch = batch->next) {
		make_durable(sim, &batch->actions);
		sim->met[FAULT_COMMIT_UNTOLD]++;
	}
	sim->met[FAULT_COMMIT_LOST] += scheduler->first != NULL;
	drop_batches(sim);
	check_acked(sim);
	scheduler->fleet = fleet_free(scheduler->fleet);
	scheduler->life++;
	scheduler->stalled_until_usec = scheduler->stalled_since_usec = 0;
	client_scheduler_died(sim);
	for (int i = 0; i < sim->n_nodes; i++)
		node_disconnect(sim, &sim->nodes[i]);
	(void)sim_plan(sim, SIM_SCHEDULER_START,
		sim_between(sim, 300 * USEC_PER_MSEC, 5 * USEC_PER_SEC), 0);
}

/* ---- what arrives ---- */

static void deliver(const struct fleet_event *event, void *user)
{
	scheduler_step(user, event);
}

void scheduler_message(struct sim *sim, const struct sim_event *event)
{
	struct sim_scheduler *scheduler = &sim->scheduler;
	const char *id = sim->nodes[event->node].id;
	struct fleet_event lost = { .type = FLEET_NODE_DISCONNECTED, .session = event->conn };

	if (event->conn & TO_COPY) {
		copy_message(sim, event);
		return;
	}
	if (!scheduler->fleet)
		return;
	if (sim->now_usec < scheduler->stalled_until_usec) { /* waits in the kernel */
		struct sim_event copy = *event;
		struct sim_event *later = sim_plan(sim, event->type,
			scheduler->stalled_until_usec - sim->now_usec + 1, event->node);

		later->conn = copy.conn;
		if (copy.bytes.data) {
			later->bytes.data = malloc(copy.bytes.size + 1);
			if (!later->bytes.data)
				exit(3);
			memcpy(later->bytes.data, copy.bytes.data, copy.bytes.size);
			later->bytes.size = copy.bytes.size;
		}
		return;
	}
	if (event->type == SIM_DISCONNECT) {
		memcpy(lost.node, id, sizeof(lost.node));
		scheduler_step(sim, &lost);
		return;
	}
	if (PLANTED(HELLO_BY_ROUTE)) { /* taken for whoever was on this route before */
		int *owner = &sim->route_owner[event->conn % ROUTES];

		*owner = *owner ? *owner : event->node + 1;
		id = sim->nodes[*owner - 1].id;
	}
	sim->nodes[event->node].heard_usec = sim->now_usec;
	if (!wire_to_fleet(event->bytes, id, event->conn, deliver, sim))
		sim_violation(sim, "a node's message was not understood");
}

/* After a stall the tick comes before what piled up: the worst order for who would take it for silence. */
static void after_stall(struct sim *sim)
{
	struct sim_scheduler *scheduler = &sim->scheduler;
	struct fleet_event event = { .type = FLEET_STALL,
		.stall_usec = sim->now_usec - scheduler->stalled_since_usec };
	struct fleet_counts before, after;

	scheduler->stalled_since_usec = scheduler->stalled_until_usec = 0;
	for (int i = 0; i < sim->n_nodes; i++)
		sim->nodes[i].heard_usec = MIN(sim->nodes[i].heard_usec + event.stall_usec, sim->now_usec);
	fleet_count(scheduler->fleet, &before);
	scheduler_step(sim, &event);
	event = (struct fleet_event){ .type = FLEET_TICK };
	scheduler_step(sim, &event);
	fleet_count(scheduler->fleet, &after);
	if (before.nodes[NODE_READY] >= 5 && after.nodes[NODE_READY] * 2 < before.nodes[NODE_READY])
		sim_violation(sim, "own stall was taken for the silence of %zu nodes",
			before.nodes[NODE_READY] - after.nodes[NODE_READY]);
	plan_commit(sim);
}

void scheduler_tick(struct sim *sim)
{
	struct fleet_event event = { .type = FLEET_TICK };

	if (!sim->scheduler.fleet || sim->now_usec < sim->scheduler.stalled_until_usec)
		return;
	if (sim->scheduler.stalled_since_usec)
		after_stall(sim);
	else
		scheduler_step(sim, &event);
}

void scheduler_free(struct sim *sim)
{
	struct sim_scheduler *scheduler = &sim->scheduler;

	drop_batches(sim);
	scheduler->fleet = fleet_free(scheduler->fleet);
	while (scheduler->live)
		store_delete(&scheduler->live, scheduler->live->id);
	snaps_free(sim);
	while (scheduler->claims)
		store_delete(&scheduler->claims, scheduler->claims->id);
	while (scheduler->history)
		store_delete(&scheduler->history, scheduler->history->id);
	for (int i = 0; i < sim->n_nodes; i++)
		node_record_deinit(&scheduler->node_records[i]);
	free(scheduler->node_records);
}
