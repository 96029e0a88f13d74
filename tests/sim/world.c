/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator's world: clock, order of events, network, faults. Time jumps from event to event.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* ---- events: a heap by time, then by order of planning ---- */

static bool comes_before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at_usec < b->at_usec || (a->at_usec == b->at_usec && a->order < b->order);
}

/* The caller fills in the rest at once; the pointer is good until the next call. */
struct sim_event *sim_plan(struct sim *sim, enum sim_event_type type, int64_t in_usec, int node)
{
	struct sim_event event = {
		.at_usec = sim->now_usec + MAX(in_usec, 0),
		.order = ++sim->order,
		.type = type,
		.node = node,
	};
	size_t at = sim->n_heap;

	if (sim->n_heap == sim->heap_room) {
		sim->heap_room = sim->heap_room ? 2 * sim->heap_room : 1024;
		sim->heap = realloc(sim->heap, sim->heap_room * sizeof(*sim->heap));
		if (!sim->heap)
			exit(3);
	}
	sim->n_heap++;
	while (at > 0 && comes_before(&event, &sim->heap[(at - 1) / 2])) {
		sim->heap[at] = sim->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	sim->heap[at] = event;
	return &sim->heap[at];
}

static struct sim_event take(struct sim *sim)
{
	struct sim_event first = sim->heap[0];
	struct sim_event last = sim->heap[--sim->n_heap];
	size_t at = 0;

	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= sim->n_heap)
			break;
		if (child + 1 < sim->n_heap &&
			comes_before(&sim->heap[child + 1], &sim->heap[child]))
			child++;
		if (!comes_before(&sim->heap[child], &last))
			break;
		sim->heap[at] = sim->heap[child];
		at = child;
	}
	sim->heap[at] = last;
	return first;
}

/* ---- chance ---- */

bool sim_is_chaos(const struct sim *sim)
{
	return sim->now_usec < CHAOS_USEC && !sim->is_heal;
}

bool sim_chance(struct sim *sim, uint64_t permille)
{
	if (!sim_is_chaos(sim) || rng_below(&sim->rng, 1000) >= permille)
		return false;
	sim->faults++;
	return true;
}

int64_t sim_between(struct sim *sim, int64_t low, int64_t high)
{
	return low + (int64_t)rng_below(&sim->rng, (uint64_t)(high - low + 1));
}

/* ---- words ---- */

void sim_violation(struct sim *sim, const char *fmt, ...)
{
	va_list args;

	if (sim->violations++ >= 10)
		return;
	printf("violation seed %llu at %.3f s: ", (unsigned long long)sim->seed,
		(double)sim->now_usec / (double)USEC_PER_SEC);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
}

void sim_log(const struct sim *sim, const char *fmt, ...)
{
	va_list args;

	if (!sim->verbose)
		return;
	printf("%10.4f ", (double)sim->now_usec / (double)USEC_PER_SEC);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
}

struct truth *sim_truth(struct sim *sim, const char *id)
{
	struct truth *truth;

	HASH_FIND_STR(sim->truths, id, truth);
	if (truth)
		return truth;
	truth = calloc(1, sizeof(*truth));
	if (!truth)
		exit(3);
	memcpy(truth->id, id, sizeof(truth->id));
	HASH_ADD_STR(sim->truths, id, truth);
	return truth;
}

/* ---- network ---- */

/* Each packet takes its own time, so packets overtake each other; some are late, lost, or come twice. */
static int64_t latency(struct sim *sim)
{
	if (!sim_chance(sim, 5))
		return sim_between(sim, 200, sim_is_chaos(sim) ? 60 * USEC_PER_MSEC : 2 * USEC_PER_MSEC);
	sim->met[FAULT_OVERTAKEN]++;
	return sim_between(sim, 200 * USEC_PER_MSEC, 6 * USEC_PER_SEC);
}

static struct bytes bytes_copy(struct bytes bytes)
{
	struct bytes copy = { .data = malloc(bytes.size + 1), .size = bytes.size };

	if (!copy.data)
		exit(3);
	memcpy(copy.data, bytes.data, bytes.size);
	return copy;
}

static void transmit(
	struct sim *sim, enum sim_event_type type, int node, uint64_t conn, struct bytes bytes)
{
	int64_t cut = type == SIM_TO_NODE ? MAX(sim->nodes[node].cut_until_usec,
						    sim->nodes[node].deaf_until_usec)
					  : sim->nodes[node].cut_until_usec;
	unsigned int copies = 1;

	if (sim->now_usec < cut) {
		copies = 0;
	} else if (sim_chance(sim, 25)) {
		copies = 0;
		sim->met[FAULT_DROPPED]++;
	} else if (sim_chance(sim, 25)) {
		copies = 2;
		sim->met[FAULT_DOUBLED]++;
	}
	for (unsigned int i = 0; i < copies; i++) {
		int64_t in = latency(sim);
		struct sim_event *event = sim_plan(sim, type, in, node);

		event->conn = conn;
		event->bytes = bytes_copy(bytes);
	}
	free(bytes.data);
}

void sim_to_scheduler(struct sim *sim, struct sim_node *node, struct bytes bytes)
{
	if (node->conn == 0) {
		free(bytes.data);
		return;
	}
	transmit(sim, SIM_TO_SCHEDULER, node->number, node->conn, bytes);
}

void sim_to_node(struct sim *sim, int node, uint64_t conn, struct bytes bytes)
{
	transmit(sim, SIM_TO_NODE, node, conn, bytes);
}

/* ---- faults ---- */

const char *const sim_fault_names[FAULT_MAX_] = {
	[FAULT_DROPPED] = "message dropped",
	[FAULT_DOUBLED] = "message doubled",
	[FAULT_OVERTAKEN] = "message overtaken by later ones",
	[FAULT_CUT] = "two-way cut",
	[FAULT_DEAF] = "one-way cut",
	[FAULT_AGENT_KILLED] = "agent killed",
	[FAULT_REBOOTED] = "host rebooted",
	[FAULT_VM_KILLED] = "VM killed",
	[FAULT_DISCONNECTED] = "connection lost",
	[FAULT_NODE_CLOCK] = "a node's clock jumped",
	[FAULT_SCHEDULER_KILLED] = "scheduler killed",
	[FAULT_ALL_KILLED] = "scheduler and all agents killed",
	[FAULT_OLD_LEADER] = "old leader spoke",
	[FAULT_NODE_FULL] = "node's disk full",
	[FAULT_STORE_FULL] = "store's disk full",
	[FAULT_SCHEDULER_CLOCK] = "scheduler's clock jumped",
	[FAULT_HALF_CUT] = "half of the nodes cut",
	[FAULT_DRAINED] = "node drained",
	[FAULT_CORDONED] = "node cordoned",
	[FAULT_CUT_AND_KILLED] = "node cut and its agent killed",
	[FAULT_STALLED] = "scheduler stalled",
	[FAULT_LIED] = "node lied about policies",
	[FAULT_BETWEEN_ACTS] = "agent killed between two acts",
	[FAULT_COMMIT_SLOW] = "slow commit",
	[FAULT_COMMIT_FAILED] = "failed commit",
	[FAULT_COMMIT_LOST] = "commit lost with its scheduler",
	[FAULT_COMMIT_UNTOLD] = "commit durable, and its scheduler killed before it told",
	[FAULT_JOURNAL_LOST] = "power cut, and a journal's write lost",
	[FAULT_JOURNAL_UNTOLD] = "power cut, and a journal's write durable before anybody was told",
	[FAULT_JOURNAL_TORN] = "power cut, and a journal's record torn",
	[FAULT_YEARS] = "a clock jumped by years",
};

/* A scheduler that was replaced and does not know it orders the end of a sandbox. */
static void old_leader_speaks(struct sim *sim)
{
	struct fleet_send send = { .type = SEND_DESTROY };
	struct sim_node *node = NULL;
	struct vm *vm = NULL;

	for (int i = 0; i < sim->n_nodes && !vm; i++) {
		node = &sim->nodes[i];
		if (node->core && node->conn && node->highest_epoch == sim->scheduler.epoch &&
			sim->scheduler.epoch > 1)
			for (vm = node->vms; vm && !vm->is_alive; vm = vm->next)
				;
	}
	if (!vm)
		return;
	sim->met[FAULT_OLD_LEADER]++;
	sim_log(sim, "FAULT an old leader destroys %s on node %d", vm->sandbox, node->number);
	memcpy(send.destroy.sandbox, vm->sandbox, sizeof(send.destroy.sandbox));
	memcpy(send.destroy.operation, vm->sandbox, sizeof(send.destroy.operation));
	send.destroy.generation = vm->generation;
	send.destroy.reason = END_REQUEST;
	sim_to_node(sim, node->number, node->conn, wire_pack_send(&send, sim->scheduler.epoch - 1));
}

/* All at once: the link is cut for longer than the node may be silent, the agent is killed, and the clock that people set
 * goes back. What ends a VM there in time is its VMM alone. */
static void cut_and_killed(struct sim *sim, struct sim_node *node)
{
	sim->met[FAULT_CUT_AND_KILLED]++;
	sim_log(sim, "FAULT node %d cut, its agent killed, its wall clock set back", node->number);
	node->cut_until_usec =
		MIN(sim->now_usec + sim_between(sim, 40, 70) * USEC_PER_SEC, CHAOS_USEC);
	node->real_offset -= sim_between(sim, 0, 600) * USEC_PER_SEC;
	if (rng_below(&sim->rng, 2))
		node_crash(sim, node);
	else
		node_disconnect(sim, node);
}

/* Up to ten minutes, and two years or none. */
static int64_t clock_jump(struct sim *sim)
{
	int64_t years = sim_between(sim, -1, 1) * 2;

	sim->met[FAULT_YEARS] += years != 0;
	return years * 365 * DAY_USEC + sim_between(sim, -600, 600) * USEC_PER_SEC;
}

static void fault(struct sim *sim)
{
	struct sim_node *node = &sim->nodes[rng_below(&sim->rng, (uint64_t)sim->n_nodes)];
	int64_t length = sim_between(sim, 1 * USEC_PER_SEC, 70 * USEC_PER_SEC);

	if (!sim_is_chaos(sim))
		return;
	sim->faults++;
	switch (rng_below(&sim->rng, 21)) {
	case 0:
	case 1:
		sim->met[FAULT_CUT]++;
		sim_log(sim, "FAULT node %d cut", node->number);
		node->cut_until_usec = MIN(sim->now_usec + length, CHAOS_USEC);
		break;
	case 2:
		sim->met[FAULT_DEAF]++;
		sim_log(sim, "FAULT node %d deaf", node->number);
		node->deaf_until_usec = MIN(sim->now_usec + length, CHAOS_USEC);
		break;
	case 3:
	case 4:
		sim->met[FAULT_AGENT_KILLED] += node->core != NULL;
		sim_log(sim, "FAULT node %d agent killed", node->number);
		node_crash(sim, node);
		break;
	case 5:
		sim->met[FAULT_REBOOTED]++;
		sim_log(sim, "FAULT node %d host rebooted", node->number);
		node_reboot(sim, node);
		break;
	case 6:
		sim->met[FAULT_VM_KILLED] += node->vms != NULL;
		sim_log(sim, "FAULT node %d VM killed", node->number);
		node_hurt_vm(sim, node);
		break;
	case 7:
		sim->met[FAULT_DISCONNECTED] += node->conn != 0;
		sim_log(sim, "FAULT node %d connection lost", node->number);
		node_disconnect(sim, node);
		break;
	case 8:
		sim->met[FAULT_NODE_CLOCK]++;
		sim_log(sim, "FAULT node %d wall clock jumps", node->number);
		node->real_offset += clock_jump(sim);
		break;
	case 9:
		sim->met[FAULT_SCHEDULER_KILLED] += sim->scheduler.fleet != NULL;
		sim_log(sim, "FAULT scheduler killed");
		scheduler_crash(sim);
		break;
	case 11:
		old_leader_speaks(sim);
		break;
	case 13:
		sim->met[FAULT_NODE_FULL]++;
		sim_log(sim, "FAULT node %d has no space", node->number);
		node->full_until_usec = MIN(sim->now_usec + length, CHAOS_USEC);
		break;
	case 14:
		sim->met[FAULT_STORE_FULL]++;
		sim_log(sim, "FAULT the store has no space");
		sim->scheduler.full_until_usec = MIN(sim->now_usec + length / 8, CHAOS_USEC);
		break;
	case 15:
		sim->met[FAULT_SCHEDULER_CLOCK]++;
		sim_log(sim, "FAULT scheduler's wall clock jumps");
		sim->scheduler.real_offset += clock_jump(sim);
		break;
	case 16:
		sim->met[FAULT_HALF_CUT]++;
		sim_log(sim, "FAULT half of the nodes are cut");
		for (int i = 0; i < sim->n_nodes; i += 2)
			sim->nodes[(node->number + i) % sim->n_nodes].cut_until_usec =
				MIN(sim->now_usec + length, CHAOS_USEC);
		break;
	case 17:
		sim->met[FAULT_DRAINED]++;
		scheduler_drain(sim, node->number);
		break;
	case 19:
	case 20:
		cut_and_killed(sim, node);
		break;
	case 18:
		sim->met[FAULT_CORDONED]++;
		sim_log(sim, "FAULT node %d is cordoned, another is not any more", node->number);
		scheduler_set_fact(sim, node->number, NODE_CORDONED, true);
		scheduler_set_fact(sim, (node->number + 3) % sim->n_nodes, NODE_CORDONED, false);
		scheduler_set_fact(sim, (node->number + 5) % sim->n_nodes, NODE_DRAINING, false);
		break;
	case 10:
		sim->met[FAULT_ALL_KILLED]++;
		sim_log(sim, "FAULT scheduler and all agents killed");
		scheduler_crash(sim);
		for (int i = 0; i < sim->n_nodes; i++)
			node_crash(sim, &sim->nodes[i]);
		break;
	default:
		if (sim->scheduler.fleet && sim->scheduler.stalled_until_usec <= sim->now_usec) {
			sim->met[FAULT_STALLED]++;
			sim_log(sim, "FAULT scheduler stalls");
			sim->scheduler.stalled_since_usec = sim->now_usec;
			sim->scheduler.stalled_until_usec =
				sim->now_usec + sim_between(sim, USEC_PER_SEC, 15 * USEC_PER_SEC);
			sim->scheduler.tick_usec = sim->scheduler.stalled_until_usec;
			(void)sim_plan(sim, SIM_SCHEDULER_TICK,
				sim->scheduler.stalled_until_usec - sim->now_usec, 0);
		}
		break;
	}
	(void)sim_plan(sim, SIM_FAULT, sim_between(sim, 500 * USEC_PER_MSEC, 8 * USEC_PER_SEC), 0);
}

/* ---- run ---- */

static void dispatch(struct sim *sim, struct sim_event *event)
{
	struct sim_node *node = &sim->nodes[event->node];

	switch (event->type) {
	case SIM_TO_SCHEDULER:
	case SIM_DISCONNECT:
		scheduler_message(sim, event);
		break;
	case SIM_TO_NODE:
		node_message(sim, event);
		break;
	case SIM_CONNECT:
		node_connect(sim, node);
		break;
	case SIM_COMMIT:
		scheduler_commit(sim, event->life);
		break;
	case SIM_SCHEDULER_TICK:
		scheduler_tick(sim);
		break;
	case SIM_SCHEDULER_START:
		scheduler_start(sim);
		break;
	case SIM_NODE_TICK:
		node_tick(sim, node);
		break;
	case SIM_NODE_START:
		node_start(sim, node);
		break;
	case SIM_RESULT:
		node_result(sim, event);
		break;
	case SIM_LEASE:
		node_lease(sim, event);
		break;
	case SIM_CLIENT:
		client_act(sim);
		break;
	case SIM_FAULT:
		fault(sim);
		break;
	case SIM_COPY:
		copy_act(sim);
		break;
	case SIM_KILL:
		if (node->core && node->life == event->life) {
			sim_log(sim, "FAULT node %d agent killed beside a pause or a wake", node->number);
			node_crash(sim, node);
		}
		break;
	}
	free(event->bytes.data);
	free(event->result);
}

static void make_nodes(struct sim *sim)
{
	sim->nodes = calloc((size_t)sim->n_nodes, sizeof(*sim->nodes));
	sim->scheduler.node_records =
		calloc((size_t)sim->n_nodes, sizeof(*sim->scheduler.node_records));
	if (!sim->nodes || !sim->scheduler.node_records)
		exit(3);
	for (int i = 0; i < sim->n_nodes; i++) {
		struct sim_node *node = &sim->nodes[i];
		struct node_record *record = &sim->scheduler.node_records[i];

		node->number = i;
		id_new(&sim->rng, node->id);
		id_new(&sim->rng, node->machine);
		node->capacity = (struct node_capacity){
			.memory_mib = (uint64_t)sim_between(sim, 3000, 9000),
			.cpus = 4,
			.disk_mib = 20000,
			.max_sandboxes = 5,
			.max_starts = 2,
			.max_vcpus = 4,
		};
		node->is_broken = i == 7 && sim->seed % 3 == 0 && !sim->is_heal;
		node->mono_offset = sim_between(sim, 0, 1000) * USEC_PER_SEC;
		(void)snprintf(node->boot_id, sizeof(node->boot_id), "boot-%d-0", i);
		memcpy(record->id, node->id, sizeof(record->id));
		memcpy(record->machine, node->machine, sizeof(record->machine));
		memcpy(record->pool, POOL, sizeof(POOL));
		(void)sim_plan(sim, SIM_NODE_START, sim_between(sim, 0, USEC_PER_SEC), i);
	}
}

/* The nodes that had no KVM get it when the chaos ends, and their operators remove what cannot be read. */
static void mend(struct sim *sim)
{
	for (int i = 0; i < sim->n_nodes; i++) {
		sim->nodes[i].is_broken = false;
		if (sim->nodes[i].has_torn)
			tear_removed(sim, &sim->nodes[i]);
	}
}

/* Some time after: nobody keeps a node out, and at the end nothing is kept ready. */
static void let_all_work(struct sim *sim)
{
	for (int i = 0; i < sim->n_nodes; i++) {
		scheduler_set_fact(sim, i, NODE_DRAINING, false);
		scheduler_set_fact(sim, i, NODE_CORDONED, false);
	}
}

void sim_begin(struct sim *sim)
{
	sim->rng = rng_seeded(sim->seed);
	sim->core_rng = rng_seeded(~sim->seed);
	sim->scheduler.last = &sim->scheduler.first;
	make_nodes(sim);
	(void)sim_plan(sim, SIM_SCHEDULER_START, 0, 0);
	copy_plan(sim);
}

int64_t sim_next_usec(const struct sim *sim)
{
	return sim->n_heap ? sim->heap[0].at_usec : INT64_MAX;
}

void sim_turn(struct sim *sim)
{
	struct sim_event event = take(sim);

	sim->now_usec = event.at_usec;
	if (!sim_is_chaos(sim))
		mend(sim);
	dispatch(sim, &event);
	sim->steps++;
}

void sim_run(struct sim *sim)
{
	bool settled = false, works = false;

	sim->n_nodes = NODES;
	sim_begin(sim);
	(void)sim_plan(sim, SIM_CLIENT, 2 * USEC_PER_SEC, 0);
	(void)sim_plan(sim, SIM_FAULT, 5 * USEC_PER_SEC, 0);
	while (sim_next_usec(sim) < END_USEC) {
		if (sim_next_usec(sim) >= SETTLE_USEC && !settled) {
			settled = true;
			check_settled(sim);
			sim->now_usec = SETTLE_USEC;
			scheduler_set_warm(sim);
		}
		if (sim_next_usec(sim) >= WORKS_USEC && !works && sim->scheduler.fleet) {
			works = true;
			let_all_work(sim);
		}
		sim_turn(sim);
		check_step(sim);
	}
	check_end(sim);
}

void sim_free(struct sim *sim)
{
	struct truth *truth, *next_truth;
	struct client *client, *next_client;

	scheduler_free(sim);
	copy_free(sim);
	for (int i = 0; i < sim->n_nodes; i++)
		node_free(&sim->nodes[i]);
	HASH_ITER (hh, sim->truths, truth, next_truth) {
		HASH_DEL(sim->truths, truth);
		free(truth);
	}
	HASH_ITER (hh, sim->clients, client, next_client) {
		HASH_DEL(sim->clients, client);
		free(client);
	}
	for (size_t i = 0; i < sim->n_heap; i++) {
		free(sim->heap[i].bytes.data);
		free(sim->heap[i].result);
	}
	free(sim->heap);
	free(sim->nodes);
}
