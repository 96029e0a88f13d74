/* SPDX-License-Identifier: Apache-2.0
 *
 * See place.h: the room of what sleeps.
 */
#include <stdio.h>

#include "place/node.h"

/* What sleeping gives back: all but the disk. */
static struct place_demand without_disk(const struct place_demand *demand)
{
	struct place_demand rest = *demand;

	rest.disk_mib = 0;
	return rest;
}

void place_sleep(struct place *place, struct place_node *node, const struct place_demand *demand)
{
	struct place_demand rest = without_disk(demand);

	place_release(place, node, &rest, false);
}

int place_wake(struct place *place, struct place_node *node, const struct place_demand *demand)
{
	struct place_demand rest = without_disk(demand);

	return place_reserve(place, node, &rest, false);
}

static int lacks(enum place_constraint what, uint64_t asked, uint64_t largest, struct err *reterr)
{
	int r = err_set(reterr, FAIL_NO_CAPACITY, 0,
		"The node where it sleeps has no room for it now: %s, %llu asked, %llu left.",
		place_constraint_name(what), (unsigned long long)asked, (unsigned long long)largest);

	err_add(reterr, "resource", "%s", place_constraint_name(what));
	err_add(reterr, "asked", "%llu", (unsigned long long)asked);
	err_add(reterr, "largest", "%llu", (unsigned long long)largest);
	return r;
}

int place_can_wake(const struct place_node *node, const struct place_demand *demand, struct err *reterr)
{
	struct place_free room;

	place_node_free(node, &room);
	if (demand->memory_mib > room.memory_mib)
		return lacks(PLACE_MEMORY, demand->memory_mib, room.memory_mib, reterr);
	if (100 * (uint64_t)demand->vcpus > room.cpu_percent)
		return lacks(PLACE_CPU, demand->vcpus, room.cpu_percent / 100, reterr);
	if (room.sandboxes == 0)
		return lacks(PLACE_SLOTS, 1, 0, reterr);
	return 0;
}
