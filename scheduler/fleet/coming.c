/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request waits for, for a moment and although it did not ask to, before it is told that there is no room: nodes
 * that call again, and the room of what was ended but is still there.
 */
#include <string.h>

#include "fleet/internal.h"

#define COMING_USEC (15 * USEC_PER_SEC) /* longer than a node's back-off at first */
#define LOOKS_MAX 64 /* sandboxes that end, and nodes where they do */

/* Just after a start the nodes have not called yet, an agent that restarts is away for a moment, and one that called
 * has still to say what is there: none of it is the same as there being none. */
static bool nodes_are_coming(const struct fleet *fleet, const struct sandbox *sandbox)
{
	const struct node *origin = sandbox->origin;

	if (origin)
		return (origin->link == NODE_SUSPECT || origin->link == NODE_JOINING ||
			       (origin->session && !origin->is_known)) &&
		       fleet->now.mono_usec < sandbox->since_usec + COMING_USEC;
	if (!place_pool_is_dark(fleet->place, sandbox->record.pool))
		return false;
	if (fleet->n_unknown > 0 && fleet->now.mono_usec < sandbox->since_usec + COMING_USEC)
		return true;
	return (fleet->counts.nodes[NODE_JOINING] > 0 &&
		       fleet->now.mono_usec < fleet->started_usec + COMING_USEC) ||
	       (fleet->counts.nodes[NODE_SUSPECT] > 0 &&
		       fleet->now.mono_usec < sandbox->since_usec + COMING_USEC);
}

/* ---- room of what ends ---- */

/* As its state says. Idempotent. */
void fleet_coming_count(struct fleet *fleet, struct sandbox *sandbox)
{
	bool is_leaving = sandbox->record.state == SANDBOX_STOPPING;

	if (is_leaving && !sandbox->is_leaving)
		TAILQ_INSERT_TAIL(&fleet->leaving, sandbox, in_leaving);
	else if (!is_leaving && sandbox->is_leaving)
		TAILQ_REMOVE(&fleet->leaving, sandbox, in_leaving);
	sandbox->is_leaving = is_leaving;
}

static void leaving_of(const struct node *node, struct place_demand *ret)
{
	const struct sandbox *sandbox;

	*ret = (struct place_demand){ .vcpus = 0 };
	TAILQ_FOREACH (sandbox, &node->sandboxes, in_node)
		if (sandbox->is_leaving && sandbox->record.is_asleep)
			ret->disk_mib += sandbox->record.spec->disk_mib; /* it has no more */
		else if (sandbox->is_leaving)
			fleet_sandbox_demand_add(sandbox, ret);
}

/* Whoever was killed is gone for its caller at once; its room comes free when its node says so. */
static bool room_is_leaving(const struct fleet *fleet, const struct sandbox *sandbox, const struct place_demand *demand)
{
	const struct sandbox *other;
	const struct node *last = NULL;
	unsigned int looks = 0;

	TAILQ_FOREACH (other, &fleet->leaving, in_leaving) {
		struct place_demand leaving;

		if (looks++ == LOOKS_MAX)
			return false;
		if (!other->node || other->node == last || strcmp(other->record.pool, sandbox->record.pool) != 0)
			continue;
		last = other->node;
		leaving_of(last, &leaving);
		if (place_node_suits_without(last->place, demand, &leaving))
			return true;
	}
	return false;
}

bool fleet_coming_room(const struct fleet *fleet, const struct sandbox *sandbox, const struct place_demand *demand)
{
	return nodes_are_coming(fleet, sandbox) ||
	       (fleet->now.mono_usec < sandbox->since_usec + COMING_USEC && room_is_leaving(fleet, sandbox, demand));
}
