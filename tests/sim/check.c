/* SPDX-License-Identifier: Apache-2.0
 *
 * What must hold after every step, at the end of the healing, and at the very end. Each check looks at the world
 * (VMs, journals, store), never only at what a core believes.
 */
#include <string.h>

#include "sim.h"

#define ALL_STEPS 64
#define HEAL_STEPS 16384
#define OVERDUE_USEC (3 * USEC_PER_SEC)
#define SEEN_USEC (2900 * USEC_PER_MSEC) /* of the 3 s in which a dead node is seen; the rest is its last message's way */

static bool is_first_with(const struct sim_node *node, const struct vm *vm)
{
	const struct vm *other = node->vms;

	while (other != vm && !(other->is_alive && other->frozen.n && other->frozen.items[0].file == vm->frozen.items[0].file))
		other = other->next;
	return other == vm;
}

/* What VMs may use, and what forks froze, each once. */
void check_memory(struct sim *sim, const struct sim_node *node)
{
	uint64_t memory_mib = 0;
	const struct vm *vm;

	for (vm = node->vms; vm; vm = vm->next) {
		if (!vm->is_alive)
			continue;
		memory_mib += vm->memory_mib;
		if (vm->frozen.n && is_first_with(node, vm))
			memory_mib += vm->frozen.items[0].mib;
	}
	if (memory_mib > node->capacity.memory_mib)
		sim_violation(sim, "node %d is oversold: %llu of %llu MiB", node->number,
			(unsigned long long)memory_mib,
			(unsigned long long)node->capacity.memory_mib);
}

void check_spawn(struct sim *sim, const struct sim_node *node, const struct vm *vm)
{
	struct truth *truth = sim_truth(sim, vm->sandbox);

	if (truth->n_live > 1)
		sim_violation(sim, "%u live VMs of %s (generation %llu on node %d)", truth->n_live,
			vm->sandbox, (unsigned long long)vm->generation, node->number);
	if (vm->generation <= truth->spawned && !(vm->generation == truth->spawned && sleep_is_whole(truth)))
		sim_violation(sim, "%s generation %llu was started again", vm->sandbox,
			(unsigned long long)vm->generation);
	truth->spawned = MAX(truth->spawned, vm->generation);
	check_memory(sim, node);
}

/* Three failed attempts of anybody are what a node without KVM may cost, ever. Those that its agent told, once each:
 * of one that was killed first nobody can learn. */
void check_broken(struct sim *sim, struct sim_node *node, const struct sandbox_report *report)
{
	struct truth *truth = sim_truth(sim, report->sandbox);

	if (truth->is_canary || truth->broken_told >= report->generation)
		return;
	truth->broken_told = report->generation;
	if (++node->n_broken <= 3)
		return;
	sim_violation(sim, "node %d has no KVM and failed a %uth start of a client", node->number,
		node->n_broken);
}

/* A running sandbox that was acknowledged is killed only when somebody asked. */
void check_kill(struct sim *sim, const struct vm *vm)
{
	struct truth *truth = sim_truth(sim, vm->sandbox);

	if ((vm->is_frozen || !vm->is_started) && sleep_is_whole(truth))
		return; /* it is in its snapshot */
	if (truth->promised_usec > sim->now_usec && !truth->is_deleted && !truth->was_hurt)
		sim_violation(sim, "%s is killed %lld ms before it was promised to end", vm->sandbox,
			(long long)(truth->promised_usec - sim->now_usec) / 1000);
	if (truth->is_acked && !truth->is_deleted && !truth->has_life_time && !truth->was_hurt)
		sim_violation(sim, "the running VM of %s is killed and nobody asked", vm->sandbox);
}

static void check_reservations(struct sim *sim)
{
	for (int i = 0; i < sim->n_nodes; i++) {
		const struct node_capacity *capacity = &sim->nodes[i].capacity;
		struct fleet_node_view view;

		if (fleet_node_get(sim->scheduler.fleet, sim->nodes[i].id, &view) < 0)
			continue;
		if (view.memory_reserved_mib > capacity->memory_mib ||
			view.disk_reserved_mib > capacity->disk_mib ||
			view.n_sandboxes > capacity->max_sandboxes ||
			view.n_starting > capacity->max_starts)
			sim_violation(sim,
				"reservations on node %d are above its capacity: %llu of %llu MiB, %u sandboxes",
				i, (unsigned long long)view.memory_reserved_mib,
				(unsigned long long)capacity->memory_mib, view.n_sandboxes);
	}
}

static void check_silent(struct sim *sim)
{
	struct fleet_counts counts;

	fleet_count(sim->scheduler.fleet, &counts);
	if (counts.failed || sim->scheduler.stalled_until_usec)
		return; /* it decides nothing */
	for (int i = 0; i < sim->n_nodes; i++) {
		int64_t silent = sim->now_usec - sim->nodes[i].heard_usec;
		struct fleet_node_view view;

		if (silent > SEEN_USEC &&
			fleet_node_get(sim->scheduler.fleet, sim->nodes[i].id, &view) == 0 && view.link == NODE_READY)
			sim_violation(sim, "node %d is ready, %lld ms after it was last heard", i, (long long)silent / 1000);
	}
}

static void check_tenants(struct sim *sim)
{
	char ids[512][ID_SIZE], tenant[] = TENANT;
	size_t n;

	for (char last = 'a'; last < 'a' + TENANTS; last++) {
		tenant[sizeof(tenant) - 2] = last;
		n = fleet_sandbox_list(sim->scheduler.fleet, tenant, "", 0, ids, ARRAY_LEN(ids));
		for (size_t i = 0; i < n; i++)
			if (strcmp(fleet_sandbox_tenant(sim->scheduler.fleet, ids[i]), tenant) != 0)
				sim_violation(sim, "%s is shown to %s", ids[i], tenant);
	}
}

static void check_fleet_deadlines(struct sim *sim)
{
	const struct sm_state *table = sandbox_state_table();
	char ids[512][ID_SIZE];
	int64_t now = sim->now_usec + USEC_PER_SEC;
	size_t n;

	if (sim->scheduler.stalled_until_usec)
		return;
	n = fleet_sandbox_list(sim->scheduler.fleet, NULL, "", 0, ids, ARRAY_LEN(ids));
	for (size_t i = 0; i < n; i++) {
		struct fleet_sandbox_view view;

		if (fleet_sandbox_get(sim->scheduler.fleet, ids[i], NULL, &view) < 0 ||
			table[view.internal].deadline_usec == 0)
			continue;
		if (view.deadline_usec == 0)
			sim_violation(sim, "%s waits in %s without a deadline", ids[i],
				table[view.internal].name);
		else if (view.deadline_usec < now - OVERDUE_USEC)
			sim_violation(
				sim, "%s is overdue in %s", ids[i], table[view.internal].name);
	}
}

static void check_node_deadlines(struct sim *sim, const struct sim_node *node)
{
	int64_t now = sim->now_usec + node->mono_offset + USEC_PER_SEC;
	char ids[64][ID_SIZE];
	size_t n = supervisor_list(node->core, ids, ARRAY_LEN(ids));

	for (size_t i = 0; i < MIN(n, ARRAY_LEN(ids)); i++) {
		struct sv_view view;

		if (supervisor_get(node->core, ids[i], &view) < 0 || view.state == SV_ENDED)
			continue;
		if (view.deadline_usec == 0 && view.state != SV_RUNNING &&
			view.state != SV_PAUSED)
			sim_violation(sim, "%s waits in %s on node %d without a deadline", ids[i],
				sv_state_name(view.state), node->number);
		else if (view.deadline_usec && view.deadline_usec < now - OVERDUE_USEC)
			sim_violation(sim, "%s is overdue in %s on node %d", ids[i],
				sv_state_name(view.state), node->number);
	}
}

/* Called when the store changed and when the scheduler died: nothing else can lose a record. */
void check_acked(struct sim *sim)
{
	struct client *client;

	for (client = sim->clients; client; client = client->hh.next) {
		struct stored *live = NULL, *history = NULL;

		if (!client->is_acked)
			continue;
		HASH_FIND_STR(sim->scheduler.live, client->id, live);
		if (!live)
			HASH_FIND_STR(sim->scheduler.history, client->id, history);
		if (!live && !history) {
			sim_violation(sim, "acknowledged sandbox %s is lost", client->id);
			client->is_acked = false; /* said once */
		}
	}
}

/* What stepped is looked at; now and then everything, because time alone makes things overdue. */
void check_step(struct sim *sim)
{
	bool all = sim->steps % ALL_STEPS == 0;

	if (sim->is_heal && sim->steps % HEAL_STEPS)
		return; /* so many nodes are looked at now and then */
	if (sim->scheduler.fleet && (all || sim->fleet_stepped)) {
		check_reservations(sim);
		if (all) {
			check_tenants(sim);
			check_silent(sim);
		}
		check_fleet_deadlines(sim);
	}
	for (int i = 0; i < sim->n_nodes; i++)
		if (sim->nodes[i].core && (all || sim->nodes[i].stepped)) {
			check_node_deadlines(sim, &sim->nodes[i]);
			sim->nodes[i].stepped = false;
		}
	sim->fleet_stepped = false;
}

/* Long after the last fault: everybody was answered, and each running sandbox has its VM. */
void check_settled(struct sim *sim)
{
	struct client *client;
	struct stored *live;
	struct fleet_counts counts;

	for (client = sim->clients; client; client = client->hh.next)
		if (!client->is_answered && !client->is_lost)
			sim_violation(sim, "request %llu was never answered",
				(unsigned long long)client->request);
	for (live = sim->scheduler.live; live; live = live->hh.next) {
		struct truth *truth = sim_truth(sim, live->id);

		if (live->record.state == SANDBOX_RUNNING && truth->n_live != 1)
			sim_violation(
				sim, "%s is said to run and has %u VMs", live->id, truth->n_live);
		if (live->record.state == SANDBOX_PAUSED && (truth->n_live != 0 || !sleep_is_whole(truth)))
			sim_violation(sim, "%s is said to sleep and has %u VMs and %s snapshot", live->id, truth->n_live,
				sleep_is_whole(truth) ? "a" : "no");
		policy_check_settled(sim, &live->record);
		if (live->record.state == SANDBOX_PAUSING || live->record.state == SANDBOX_RESUMING)
			sim_violation(sim, "%s is still %s", live->id, sandbox_state_name(live->record.state));
		if (truth->is_delete_acked)
			sim_violation(sim, "%s was deleted long ago and is %s", live->id,
				sandbox_state_name(live->record.state));
	}
	snaps_check_settled(sim);
	if (!sim->scheduler.fleet) {
		sim_violation(sim, "the scheduler does not run");
		return;
	}
	fleet_count(sim->scheduler.fleet, &counts);
	if (counts.nodes[NODE_READY] != (size_t)sim->n_nodes)
		sim_violation(sim, "only %zu nodes are ready", counts.nodes[NODE_READY]);
}

void check_end(struct sim *sim)
{
	struct truth *truth;

	for (truth = sim->truths; truth; truth = truth->hh.next)
		if (truth->snapshot)
			sim_violation(sim, "leak: a snapshot of %s", truth->id);
		else if (truth->n_live)
			sim_violation(sim, "leak: a VM of %s lives", truth->id);
	snaps_check_end(sim);
	if (sim->scheduler.live)
		sim_violation(sim, "leak: %s is in the store as %s", sim->scheduler.live->id,
			sandbox_state_name(sim->scheduler.live->record.state));
	for (int i = 0; i < sim->n_nodes; i++) {
		struct fleet_node_view view;

		if (sim->nodes[i].journals)
			sim_violation(sim, "leak: node %d has a journal of %s", i,
				sim->nodes[i].journals->sandbox);
		if (sim->scheduler.fleet &&
			fleet_node_get(sim->scheduler.fleet, sim->nodes[i].id, &view) == 0 &&
			(view.memory_reserved_mib || view.n_sandboxes || view.n_starting))
			sim_violation(sim,
				"leak: %llu MiB and %u sandboxes are reserved on node %d",
				(unsigned long long)view.memory_reserved_mib, view.n_sandboxes, i);
	}
	if (sim->acks == 0)
		sim_violation(sim, "nothing was ever acknowledged: the run tested nothing");
}
