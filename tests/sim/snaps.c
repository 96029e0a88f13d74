/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots in the simulator: what the store has of them, what a node's shell does with them, what clients do, and the
 * world's own book: which files are whole where, and what somebody was told. One that was acknowledged and not deleted is
 * there in the end; one that is there is in the store; nobody begins as another tenant's.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* ---- the store ---- */

void snaps_put(struct sim *sim, const struct snapshot_record *record)
{
	struct stored_snapshot *stored;

	HASH_FIND_STR(sim->scheduler.snapshots, record->id, stored);
	if (stored) {
		snapshot_record_deinit(&stored->record);
	} else {
		stored = calloc(1, sizeof(*stored));
		if (!stored)
			exit(3);
		memcpy(stored->id, record->id, sizeof(stored->id));
		HASH_ADD_STR(sim->scheduler.snapshots, id, stored);
	}
	if (snapshot_record_copy(record, &stored->record) < 0)
		exit(3);
}

void snaps_delete(struct sim *sim, const char *id)
{
	struct stored_snapshot *stored;

	HASH_FIND_STR(sim->scheduler.snapshots, id, stored);
	if (!stored)
		return;
	HASH_DEL(sim->scheduler.snapshots, stored);
	snapshot_record_deinit(&stored->record);
	free(stored);
}

void snaps_load(struct sim *sim, void (*step)(struct sim *sim, const struct fleet_event *event))
{
	struct stored_snapshot *stored;

	for (stored = sim->scheduler.snapshots; stored; stored = stored->hh.next) {
		const struct fleet_event event = { .type = FLEET_LOAD_SNAPSHOT, .load_snapshot = { .record = &stored->record } };

		step(sim, &event);
	}
}

void snaps_free(struct sim *sim)
{
	struct kept *kept, *next;

	HASH_ITER (hh, sim->kept, kept, next) {
		HASH_DEL(sim->kept, kept);
		free(kept);
	}
	while (sim->scheduler.snapshots)
		snaps_delete(sim, sim->scheduler.snapshots->id);
	sim->scheduler.warm.spec = spec_unref(sim->scheduler.warm.spec);
}

/* ---- the node's shell ---- */

static struct kept *kept_of(struct sim *sim, const char *id)
{
	struct kept *kept;

	HASH_FIND(hh, sim->kept, id, strlen(id), kept);
	if (kept)
		return kept;
	kept = calloc(1, sizeof(*kept));
	if (!kept)
		exit(3);
	memcpy(kept->info.id, id, strlen(id));
	HASH_ADD(hh, sim->kept, info.id, strlen(kept->info.id), kept);
	return kept;
}

static struct vm *vm_of(struct sim_node *node, const char *sandbox)
{
	struct vm *vm;

	for (vm = node->vms; vm; vm = vm->next)
		if (vm->is_alive && !strcmp(vm->sandbox, sandbox))
			break;
	return vm;
}

static void take(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct result *result = node_plan(sim, node, action, SV_EV_SNAPSHOT_TAKEN, sim_between(sim, 1000, 2000000));
	struct vm *vm = vm_of(node, action->sandbox);
	struct kept *kept = kept_of(sim, action->snapshot->id);

	if (kept->is_whole)
		sim_violation(sim, "snapshot %s is made twice", action->snapshot->id);
	kept->info = result->snapshot = *action->snapshot;
	kept->node = node->number;
	kept->is_there = true;
	if (!vm || sim_chance(sim, 80))
		(void)err_set(&result->err, FAIL_SNAPSHOT_FAILED, 0, "Injected.");
	else
		vm->is_frozen = true;
	kept->is_live = vm && action->snapshot->is_live && !err_is_set(&result->err) && sim_chance(sim, 700);
	if (!kept->is_live)
		return; /* also where the VMM cannot do it */
	vm->frozen.n = 1; /* all that it mapped before became one file */
	vm->frozen.items[0] = (struct sv_frozen){ .file = ++sim->next_vm, .mib = (uint32_t)action->spec->memory_mib };
	result->frozen = kept->frozen = vm->frozen;
	check_memory(sim, node);
}

static void keep(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct result *result = node_plan(sim, node, action, SV_EV_SNAPSHOT_KEPT, sim_between(sim, 1000, 900000));

	result->snapshot = *action->snapshot;
	result->snapshot.size_mib = 50;
	if (sim_chance(sim, 40))
		(void)err_set(&result->err, FAIL_DISK_FULL, 0, "Injected.");
}

static void drop(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	struct result *result = node_plan(sim, node, action, SV_EV_SNAPSHOT_DROPPED, sim_between(sim, 100, 30000));

	memcpy(result->snapshot.id, action->snapshot_id, sizeof(result->snapshot.id));
	result->answer = action->answer;
	if (sim_chance(sim, 20))
		(void)err_set(&result->err, FAIL_IO_FAILED, 0, "Injected.");
}

bool snaps_act(struct sim *sim, struct sim_node *node, const struct sv_action *action)
{
	if (action->type == SV_DO_TAKE_SNAPSHOT)
		take(sim, node, action);
	else if (action->type == SV_DO_KEEP_SNAPSHOT)
		keep(sim, node, action);
	else if (action->type == SV_DO_DROP_KEPT)
		drop(sim, node, action);
	else
		return false;
	return true;
}

bool snaps_result(struct sim *sim, struct sim_node *node, const struct result *result, struct sv_event *event)
{
	struct kept *kept;

	if (result->type == SV_EV_SNAPSHOT_TAKEN) {
		event->taken.err = &result->err;
		event->taken.frozen = &result->frozen;
		event->taken.size_mib = 1;
		kept = kept_of(sim, result->snapshot.id);
		kept->is_whole = kept->is_there && result->frozen.n > 0;
		return true;
	}
	if (result->type != SV_EV_SNAPSHOT_KEPT && result->type != SV_EV_SNAPSHOT_DROPPED)
		return false;
	kept = kept_of(sim, result->snapshot.id);
	if (result->type == SV_EV_SNAPSHOT_KEPT) {
		kept->is_whole = kept->is_there && !err_is_set(&result->err);
		kept->info = result->snapshot;
		event->kept.info = &result->snapshot;
		event->kept.err = &result->err;
		return true;
	}
	if (!err_is_set(&result->err) && kept->is_there && kept->node == node->number)
		kept->is_there = kept->is_whole = false;
	event->dropped.snapshot = result->snapshot.id;
	event->dropped.answer = result->answer;
	event->dropped.err = &result->err;
	return true;
}

/* What is not whole is removed by an agent that starts. */
void snaps_begin(struct sim *sim, struct sim_node *node, void (*step)(struct sim *, struct sim_node *, const struct sv_event *))
{
	struct kept *kept;

	for (kept = sim->kept; kept && node->core; kept = kept->hh.next) {
		struct sv_event event = { .type = SV_EV_LOAD_SNAPSHOT, .snapshot = &kept->info };

		if (kept->node != node->number)
			continue;
		kept->is_there = kept->is_whole = kept->is_whole && !kept->is_live; /* that went with the agent before */
		if (kept->is_whole)
			step(sim, node, &event);
	}
}

/* Also of a warm one, when somebody has it. */
void snaps_check_tenant(struct sim *sim, const char *sandbox, const struct sandbox_spec *spec)
{
	if (*spec->snapshot && strcmp(kept_of(sim, spec->snapshot)->info.tenant, spec->tenant) != 0)
		sim_violation(sim, "%s begins as a snapshot of another tenant", sandbox);
}

void snaps_restore(struct sim *sim, struct sim_node *node, const struct sv_action *action, struct vm *vm)
{
	const struct kept *kept = kept_of(sim, action->spec->snapshot);
	int64_t in = sim_between(sim, 2000, 60000);
	struct result *result;

	if (!kept->is_whole || kept->node != node->number)
		sim_violation(sim, "%s begins as snapshot %s, which is not on node %d", action->sandbox, action->spec->snapshot,
			node->number);
	if (strcmp(action->spec->tenant, FLEET_WARM_TENANT) != 0)
		snaps_check_tenant(sim, action->sandbox, action->spec);
	vm->is_frozen = true;
	if (kept->is_live)
		vm->frozen = kept->frozen;
	check_memory(sim, node);
	sim->begun++;
	sim->begun_live += kept->is_live;
	result = node_plan(sim, node, action, SV_EV_VMM_STARTED, in);
	result->vm = vm->number;
	if (!sim_chance(sim, 40))
		return;
	result->type = SV_EV_VMM_EXITED;
	result->exit = SV_EXIT_START_FAILED;
	(void)err_set(&result->err, FAIL_RESTORE_FAILED, 0, "Injected.");
}

/* ---- clients ---- */

static struct client *client_of(struct sim *sim, const char *id)
{
	struct client *client = client_new(sim);

	memcpy(client->id, id, sizeof(client->id));
	return client;
}

static void ask_snapshot(struct sim *sim, const char *id, size_t n_forks)
{
	struct client *client = client_of(sim, id);
	struct fleet_snapshot request = { .request = client->request, .sandbox = id, .n_forks = n_forks };
	const struct fleet_event event = { .type = FLEET_SNAPSHOT, .snapshot = &request };
	char forks[3][ID_SIZE];

	client->is_snapshot = n_forks == 0;
	client->is_fork = n_forks > 0;
	for (size_t i = 0; i < n_forks; i++)
		id_new(&sim->rng, forks[i]);
	request.forks = (const char(*)[ID_SIZE])forks;
	scheduler_step(sim, &event);
}

static void ask_drop(struct sim *sim, const char *id)
{
	struct client *client = client_of(sim, id);
	struct fleet_event event = { .type = FLEET_DROP_SNAPSHOT };

	client->is_drop = true;
	kept_of(sim, id)->is_deleted = true;
	event.drop_snapshot.request = client->request;
	event.drop_snapshot.snapshot = id;
	scheduler_step(sim, &event);
}

static void begin_as(struct sim *sim, const struct snapshot_record *record)
{
	struct sandbox_spec *spec = spec_with_network(record->spec, &record->spec->network);
	struct client *client = client_new(sim);
	struct fleet_create create = { .request = client->request, .pool = POOL, .spec = spec,
		.began_us = REAL_BASE + sim->now_usec, .queue_usec = rng_below(&sim->rng, 2) ? 30 * USEC_PER_SEC : 0 };
	const struct fleet_event event = { .type = FLEET_CREATE, .create = &create };

	if (!spec)
		exit(3);
	memcpy(spec->snapshot, record->id, sizeof(spec->snapshot));
	memcpy(create.tenant, record->tenant, sizeof(create.tenant));
	create.claim = rng_below(&sim->rng, 4) ? fleet_warm_pick(sim->scheduler.fleet, POOL, spec, &create.wish) : NULL;
	client->is_claim = create.claim;
	if (create.claim && rng_below(&sim->rng, 8) == 0) /* somebody else, who knows its id */
		create.tenant[sizeof(TENANT) - 2] = (char)('a' + sim_between(sim, 0, TENANTS - 1));
	trace_new(&sim->rng, &create.trace);
	sim->creates++;
	scheduler_step(sim, &event);
	spec_unref(spec);
}

/* One that is in the list, the newest mostly. */
static const struct snapshot_record *pick(struct sim *sim)
{
	char ids[64][ID_SIZE];
	size_t n = fleet_snapshot_list(sim->scheduler.fleet, NULL, "", 0, ids, ARRAY_LEN(ids));
	const struct snapshot_record *warm = fleet_snapshot_get(sim->scheduler.fleet, sim->scheduler.warm.snapshot);

	if (warm && rng_below(&sim->rng, 2))
		return warm;
	return n ? fleet_snapshot_get(sim->scheduler.fleet, ids[rng_below(&sim->rng, n)]) : NULL;
}

void snaps_client(struct sim *sim, const char *id)
{
	const struct snapshot_record *record = pick(sim);
	char snapshot[ID_SIZE];
	const char *tenant;

	if (record && !sim->is_heal && strcmp(record->id, sim->scheduler.warm.snapshot) != 0 && rng_below(&sim->rng, 2))
		scheduler_set_warm_snapshot(sim, record);
	if (!sim->scheduler.fleet)
		return;
	tenant = fleet_sandbox_tenant(sim->scheduler.fleet, id);
	record = pick(sim);
	switch (rng_below(&sim->rng, 6)) {
	case 0:
	case 1:
		if (tenant && !strchr(tenant, ':'))
			ask_snapshot(sim, id, 0);
		break;
	case 2:
		if (tenant && !strchr(tenant, ':'))
			ask_snapshot(sim, id, 1 + rng_below(&sim->rng, 3));
		break;
	case 3:
	case 4:
		if (record)
			begin_as(sim, record);
		break;
	default:
		if (!record)
			break;
		memcpy(snapshot, record->id, sizeof(snapshot));
		ask_drop(sim, snapshot);
		break;
	}
}

void snaps_delete_all(struct sim *sim)
{
	char ids[64][ID_SIZE];
	size_t n = sim->scheduler.fleet
			   ? fleet_snapshot_list(sim->scheduler.fleet, NULL, "", 0, ids, ARRAY_LEN(ids))
			   : 0;

	for (size_t i = 0; i < n && sim->scheduler.fleet; i++)
		ask_drop(sim, ids[i]);
}

bool snaps_reply(struct sim *sim, const struct client *client, const struct fleet_reply *reply)
{
	if (!client->is_snapshot && !client->is_fork && !client->is_drop)
		return false;
	if (err_is_set(&reply->err))
		return true;
	if (client->is_snapshot) {
		struct kept *kept = kept_of(sim, reply->snapshot->id);

		kept->is_acked = true;
		sim->snapshots++;
		if (!kept->is_whole && !kept->is_deleted)
			sim_violation(sim, "snapshot %s was acknowledged and is not whole", reply->snapshot->id);
	}
	if (client->is_fork) {
		sim->forks++;
		for (size_t i = 0; i < reply->n_forks; i++)
			if (!err_is_set(&reply->forks[i].err) && !sim_truth(sim, reply->forks[i].sandbox)->spawned)
				sim_violation(sim, "fork %s is said to run and never began", reply->forks[i].sandbox);
	}
	return true;
}

/* ---- what must hold ---- */

/* Parts of one that could not be removed stay until an agent starts: only what is whole is looked for. */
void snaps_check_settled(struct sim *sim)
{
	struct stored_snapshot *stored;
	struct kept *kept;

	for (kept = sim->kept; kept; kept = kept->hh.next) {
		HASH_FIND_STR(sim->scheduler.snapshots, kept->info.id, stored);
		if (kept->is_acked && !kept->is_deleted && (!kept->is_whole || !stored || stored->record.state != SNAPSHOT_READY))
			sim_violation(sim, "acknowledged snapshot %s is lost", kept->info.id);
		if (kept->is_whole && !stored)
			sim_violation(sim, "snapshot %s is on node %d and nobody knows it", kept->info.id, kept->node);
	}
	for (stored = sim->scheduler.snapshots; stored; stored = stored->hh.next)
		if (stored->record.is_fork || stored->record.state == SNAPSHOT_MAKING ||
			stored->record.state == SNAPSHOT_DROPPING)
			sim_violation(sim, "snapshot %s is still %s", stored->id, snapshot_state_name(stored->record.state));
}

void snaps_check_end(struct sim *sim)
{
	const struct kept *kept;

	for (kept = sim->kept; kept; kept = kept->hh.next)
		if (kept->is_whole)
			sim_violation(sim, "leak: snapshot %s on node %d", kept->info.id, kept->node);
	if (sim->scheduler.snapshots)
		sim_violation(sim, "leak: snapshot %s is in the store as %s", sim->scheduler.snapshots->id,
			snapshot_state_name(sim->scheduler.snapshots->record.state));
}
