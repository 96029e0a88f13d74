/* SPDX-License-Identifier: Apache-2.0
 *
 * Network policies and budgets that clients change while their sandboxes live. Each that is asked for has a number of its own, that
 * of the one address which it denies, or that of its CPU time beyond what anybody uses: 0 is what a create has. So it is seen
 * that no record says anything else than what a client asked for, at least the latest that was confirmed; some nodes
 * say in their inventories that there is neither policy nor budget.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define ENDLESS UINT64_C(1000000000000000)

static uint64_t policy_of(const struct sandbox_spec *spec)
{
	return spec->network.n_deny ? spec->network.deny[0].addr.lo & 0xffffff : 0;
}

static uint64_t budget_of(const struct sandbox_spec *spec)
{
	return spec->budget.cpu_us ? spec->budget.cpu_us - ENDLESS : 0;
}

void policy_client(struct sim *sim, const char *id)
{
	const char *tenant = fleet_sandbox_tenant(sim->scheduler.fleet, id);
	struct net_policy policy = { .internet = true };
	struct budget budget = { .cpu_us = 0 };
	struct truth *truth = sim_truth(sim, id);
	struct fleet_event event = { .type = FLEET_SET_BUDGET };
	struct client *client;
	char denied[32];

	if (!tenant || strchr(tenant, ':'))
		return; /* the scheduler's own */
	client = client_new(sim);
	memcpy(client->id, id, sizeof(client->id));
	event.change.request = client->request;
	event.change.sandbox = client->id;
	if (rng_below(&sim->rng, 2)) {
		client->budget = truth->budget_asked = ++sim->next_policy;
		budget.cpu_us = ENDLESS + client->budget;
		event.change.budget = &budget;
	} else {
		client->policy = truth->policy_asked = ++sim->next_policy;
		(void)snprintf(denied, sizeof(denied), "9.%u.%u.%u", (unsigned int)(client->policy >> 16 & 255),
			(unsigned int)(client->policy >> 8 & 255), (unsigned int)(client->policy & 255));
		if (net_policy_deny(&policy, denied, NULL) < 0)
			exit(3);
		event.type = FLEET_SET_NETWORK;
		event.change.network = &policy;
	}
	scheduler_step(sim, &event);
	net_policy_deinit(&policy);
}

void policy_reply(struct sim *sim, const struct client *client)
{
	struct truth *truth = sim_truth(sim, client->id);

	sim->policies++;
	truth->policy_told = MAX(truth->policy_told, client->policy);
	truth->budget_told = MAX(truth->budget_told, client->budget);
}

/* Before it is durable. One that begins as another has what that one had. */
void policy_check_record(struct sim *sim, const struct sandbox_record *record)
{
	uint64_t policy = policy_of(record->spec), budget = budget_of(record->spec);
	struct truth *truth = sim_truth(sim, record->id);

	if (!truth->has_record) {
		truth->policy_asked = MAX(truth->policy_asked, policy);
		truth->budget_asked = MAX(truth->budget_asked, budget);
		truth->has_record = true;
	}
	if (policy < truth->policy_told || policy > truth->policy_asked || budget < truth->budget_told ||
		budget > truth->budget_asked)
		sim_violation(sim, "%s is recorded with policy %llu and budget %llu: asked for were %llu to %llu and %llu to %llu", record->id,
			(unsigned long long)policy, (unsigned long long)budget, (unsigned long long)truth->policy_told,
			(unsigned long long)truth->policy_asked, (unsigned long long)truth->budget_told,
			(unsigned long long)truth->budget_asked);
}

static bool is_liar(const struct sim_node *node)
{
	return node->number % 8 == 3;
}

/* In the end its node has what is recorded, whoever lost which answer; but for a change that was hidden by a lie. */
void policy_check_settled(struct sim *sim, const struct sandbox_record *record)
{
	for (int i = 0; i < sim->n_nodes; i++) {
		const struct sim_journal *journal;

		HASH_FIND_STR(sim->nodes[i].journals, record->id, journal);
		if (!journal || is_liar(&sim->nodes[i]) || journal->record.state != SV_RUNNING || record->state != SANDBOX_RUNNING ||
			journal->record.generation != record->generation)
			continue;
		if (!net_policy_is_equal(&journal->record.spec->network, &record->spec->network) ||
			!budget_is_equal(&journal->record.spec->budget, &record->spec->budget))
			sim_violation(sim, "%s has policy %llu and budget %llu on node %d, and is recorded with %llu and %llu", record->id,
				(unsigned long long)policy_of(journal->record.spec), (unsigned long long)budget_of(journal->record.spec),
				i, (unsigned long long)policy_of(record->spec), (unsigned long long)budget_of(record->spec));
	}
}

void policy_lie(struct sim *sim, const struct sim_node *node, struct inventory *inventory)
{
	const struct net_policy open = { .internet = true };

	if (!is_liar(node) || !sim_is_chaos(sim))
		return;
	for (size_t i = 0; i < inventory->n; i++) {
		struct sandbox_spec *spec = inventory->sandboxes[i].spec;

		if (!spec || policy_of(spec) + budget_of(spec) == 0)
			continue;
		inventory->sandboxes[i].spec = spec_with_network(spec, &open);
		if (!inventory->sandboxes[i].spec)
			exit(3);
		inventory->sandboxes[i].spec->budget = (struct budget){ .cpu_us = 0 };
		spec_unref(spec);
		sim->met[FAULT_LIED]++;
		sim->faults++;
	}
}
