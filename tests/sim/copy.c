/* SPDX-License-Identifier: Apache-2.0
 *
 * A second scheduler, from a copy of the first one's store that was taken while the first ran: same keys, same lineage, on
 * another machine, and started some times, so that its epoch is above the first one's. Nodes dial it by mistake, and it
 * speaks on connections on which it never welcomed. It loads what the store held and does what its fleet says; whatever
 * it brings a node to is judged as the first one's doing would be. In one seed of five, with draws of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define STARTS_MEANWHILE 64 /* of the first, while a message is on its way */

static struct moment copy_now(const struct sim *sim)
{
	return (struct moment){ .mono_usec = sim->now_usec + USEC_PER_SEC, .real_usec = REAL_BASE + sim->now_usec };
}

static bool copy_chance(struct sim *sim, uint64_t percent)
{
	return sim->copy.fleet && sim_is_chaos(sim) && rng_below(&sim->copy.rng, 100) < percent;
}

/* It keeps what it decides in its memory alone: nobody asks its store, and nobody waits for it. */
static void step(struct sim *sim, const struct fleet_event *event)
{
	struct fleet_actions actions = { .batch = 0 };

	fleet_step(sim->copy.fleet, copy_now(sim), &sim->copy.rng, event, &actions);
	for (size_t i = 0; i < actions.n_sends; i++) {
		const struct fleet_send *send = &actions.sends[i];

		if (send->type == SEND_REFUSED && send->refused->code == FAIL_SCHEDULER_SPLIT)
			sim->splits++;
		for (int n = 0; n < sim->n_nodes; n++)
			if (strcmp(sim->nodes[n].id, send->node) == 0)
				sim_to_node(sim, n, send->session, wire_pack_send(send, sim->copy.epoch));
	}
	fleet_actions_clear(&actions);
}

static void mark(struct runs *runs, uint64_t epoch, const char *lineage, const char *run, const char *place)
{
	struct run_mark mark = { .epoch = epoch };

	(void)snprintf(mark.lineage, sizeof(mark.lineage), "%s", lineage);
	(void)snprintf(mark.run, sizeof(mark.run), "%s", run);
	(void)snprintf(mark.place, sizeof(mark.place), "%s", place);
	runs_begin(runs, epoch - 1, &mark);
	if (runs_add(runs, &mark) < 0)
		exit(3);
}

void copy_mark(struct sim *sim, const struct fleet_config *config)
{
	mark(&sim->scheduler.runs, config->epoch, config->lineage, config->run, "here");
}

void copy_plan(struct sim *sim)
{
	sim->copy.rng = rng_seeded(sim->seed ^ 0xc0b1e5);
	if (sim->seed % 5 == 0 && !sim->is_heal)
		(void)sim_plan(sim, SIM_COPY, (20 + (int64_t)rng_below(&sim->copy.rng, 60)) * USEC_PER_SEC, 0);
}

static void begin(struct sim *sim)
{
	const unsigned int n_starts = 1 + (unsigned int)rng_below(&sim->copy.rng, 3);
	struct sim_copy *copy = &sim->copy;
	struct fleet_config config;

	fleet_config_default(&config);
	for (size_t i = 0; i < sim->scheduler.runs.n; i++)
		if (runs_add(&copy->runs, &sim->scheduler.runs.list[i]) < 0)
			exit(3);
	memcpy(config.lineage, sim->scheduler.runs.list[0].lineage, sizeof(config.lineage));
	config.epoch = sim->scheduler.epoch;
	for (unsigned int i = 0; i < n_starts; i++) {
		id_new(&copy->rng, config.run);
		mark(&copy->runs, ++config.epoch, config.lineage, config.run, "there");
	}
	copy->epoch = config.epoch;
	config.runs = &copy->runs;
	if (fleet_new(&copy->fleet, &config) < 0)
		exit(3);
	sim_log(sim, "FAULT a copy of the scheduler starts, epoch %llu", (unsigned long long)copy->epoch);
	scheduler_load(sim, step);
}

/* On a connection of the first, as after a hello that another answered: a node must not take that for a successor. */
static void speak(struct sim *sim)
{
	struct fleet_send send = { .type = SEND_DESTROY };
	struct sim_node *node = &sim->nodes[rng_below(&sim->copy.rng, (uint64_t)sim->n_nodes)];
	struct vm *vm = node->vms;
	uint64_t epoch;

	while (vm && !vm->is_alive)
		vm = vm->next;
	if (!vm || !node->conn)
		return;
	sim->faults++;
	sim_log(sim, "FAULT a copy of the scheduler destroys %s on node %d", vm->sandbox, node->number);
	memcpy(send.destroy.sandbox, vm->sandbox, sizeof(send.destroy.sandbox));
	memcpy(send.destroy.operation, vm->sandbox, sizeof(send.destroy.operation));
	send.destroy.generation = vm->generation;
	send.destroy.reason = END_REQUEST;
	/* above any that the first may have when it arrives: it may be started meanwhile, and then it would be its word */
	epoch = MAX(node->highest_epoch, sim->scheduler.epoch) + STARTS_MEANWHILE;
	sim_to_node(sim, node->number, node->conn, wire_pack_send(&send, MAX(sim->copy.epoch, epoch)));
}

void copy_act(struct sim *sim)
{
	if (!sim->copy.fleet && sim->scheduler.fleet)
		begin(sim);
	if (!sim_is_chaos(sim))
		return;
	if (sim->copy.fleet) {
		step(sim, &(struct fleet_event){ .type = FLEET_TICK });
		if (copy_chance(sim, 30))
			speak(sim);
	}
	(void)sim_plan(sim, SIM_COPY, USEC_PER_SEC, 0);
}

/* Only who has obeyed somebody can stay with him. */
bool copy_is_dialled(struct sim *sim, const struct sim_node *node)
{
	if (!*node->leader.run || !copy_chance(sim, 25))
		return false;
	sim->faults++;
	return true;
}

static void deliver(const struct fleet_event *event, void *user)
{
	step(user, event);
}

void copy_message(struct sim *sim, const struct sim_event *event)
{
	struct fleet_event lost = { .type = FLEET_NODE_DISCONNECTED, .session = event->conn };
	const char *id = sim->nodes[event->node].id;

	if (event->type == SIM_DISCONNECT) {
		memcpy(lost.node, id, sizeof(lost.node));
		step(sim, &lost);
	} else if (!wire_to_fleet(event->bytes, id, event->conn, deliver, sim)) {
		sim_violation(sim, "a node's message was not understood");
	}
}

void copy_check(struct sim *sim, const struct sim_node *node)
{
	for (size_t i = 0; sim->copy.fleet && i < sim->copy.runs.n; i++)
		if (strcmp(sim->copy.runs.list[i].place, "there") == 0 &&
			strcmp(sim->copy.runs.list[i].run, node->leader.run) == 0)
			sim_violation(sim, "node %d follows a copy of its scheduler", node->number);
}

void copy_free(struct sim *sim)
{
	sim->copy.fleet = fleet_free(sim->copy.fleet);
	runs_deinit(&sim->copy.runs);
	runs_deinit(&sim->scheduler.runs);
}
