/* SPDX-License-Identifier: Apache-2.0
 *
 * A week's cut: a thousand nodes with two thousand running sandboxes lose the scheduler at the same moment, and
 * all of them come back within two seconds, seven days later. Nothing ran out, nothing is doubled, nothing is
 * killed, every node is ready again, and new requests are placed as before.
 */
#include <stdio.h>

#include "sim.h"

#define SANDBOXES 2000
#define RUNNING_USEC (200 * USEC_PER_SEC)
#define WEEK_USEC (7 * DAY_USEC)
#define HEALED_USEC (RUNNING_USEC + WEEK_USEC + 300 * USEC_PER_SEC)

static uint64_t count_running(struct sim *sim)
{
	struct truth *truth;
	uint64_t n = 0;

	for (truth = sim->truths; truth; truth = truth->hh.next)
		n += truth->n_live == 1; /* acknowledged before it was ready, or when it was */
	return n;
}

static void cut(struct sim *sim)
{
	for (int i = 0; i < sim->n_nodes; i++) {
		sim->nodes[i].cut_until_usec = sim->now_usec + WEEK_USEC;
		node_disconnect(sim, &sim->nodes[i]);
		sim->faults++;
	}
}

/* Runs until then. */
static void go_on(struct sim *sim, int64_t until_usec)
{
	while (sim_next_usec(sim) < until_usec) {
		sim_turn(sim);
		check_step(sim);
	}
	sim->now_usec = until_usec;
}

void sim_heal(struct sim *sim)
{
	struct fleet_counts counts;
	uint64_t before, after;

	sim->is_heal = true;
	sim->n_nodes = HEAL_NODES;
	sim_begin(sim);
	for (int i = 1; i <= 20; i++) {
		go_on(sim, i * 5 * USEC_PER_SEC);
		client_create_many(sim, SANDBOXES / 20);
	}
	go_on(sim, RUNNING_USEC);
	before = count_running(sim);
	cut(sim);
	go_on(sim, HEALED_USEC);
	after = count_running(sim);
	if (before == 0 || after != before)
		sim_violation(sim, "%llu sandboxes ran before a week's cut and %llu after it",
			(unsigned long long)before, (unsigned long long)after);
	fleet_count(sim->scheduler.fleet, &counts);
	if (counts.nodes[NODE_READY] != (size_t)sim->n_nodes)
		sim_violation(sim, "%zu of %d nodes are ready after the cut", counts.nodes[NODE_READY],
			sim->n_nodes);
	if (counts.sandboxes[SANDBOX_RUNNING] != after)
		sim_violation(sim, "the scheduler knows %zu of %llu sandboxes after the cut",
			counts.sandboxes[SANDBOX_RUNNING], (unsigned long long)after);
	client_create_many(sim, 100);
	go_on(sim, HEALED_USEC + 60 * USEC_PER_SEC);
	if (count_running(sim) < after + 90)
		sim_violation(sim, "new requests are not placed after the cut");
	printf("a week's cut of %d nodes: %llu sandboxes ran on\n", sim->n_nodes,
		(unsigned long long)after);
}
