/* SPDX-License-Identifier: Apache-2.0
 *
 * A VMM's lease in the simulator: it ends its VM when nobody renews it, whether its agent lives or not. Counted on the
 * host's CLOCK_BOOTTIME; with a planted fault on its wall clock. Every third seed has a pool that replaces on loss.
 */
#include <string.h>

#include "sim.h"

bool sim_has_leases(const struct sim *sim)
{
	return sim->seed % 3 == 1 && !sim->is_heal;
}

/* The clock that leases are told in. */
static int64_t lease_now(const struct sim *sim, const struct sim_node *node)
{
	struct moment now = node_now(sim, node);

	return PLANTED(LEASE_ON_WALL_CLOCK) ? now.real_usec : now.boot_usec;
}

static void plan(struct sim *sim, struct sim_node *node, struct vm *vm)
{
	int64_t left = vm->lease_until_usec - lease_now(sim, node);

	if (vm->lease_until_usec == 0 || vm->lease_planned)
		return;
	/* looked at now and then: a clock may jump */
	vm->lease_planned = true;
	sim_plan(sim, SIM_LEASE, MIN(MAX(left, 0), USEC_PER_SEC), node->number)->life = vm->number;
}

void lease_set(struct sim *sim, struct sim_node *node, struct vm *vm, const struct sv_lease *lease)
{
	vm->lease_until_usec = lease->length_ms ? lease->until_usec : 0;
	plan(sim, node, vm);
}

uint64_t lease_left_ms(const struct sim *sim, const struct sim_node *node, const struct vm *vm)
{
	int64_t left = vm->lease_until_usec ? vm->lease_until_usec - lease_now(sim, node) : 0;

	return (uint64_t)MAX(left, 0) / USEC_PER_MSEC;
}

/* Whether a VM may have been without word for so long: long after the last fault none may. */
static void check_reason(struct sim *sim, const struct sim_node *node, const struct vm *vm)
{
	if (sim->now_usec > WORKS_USEC + 30 * USEC_PER_SEC)
		sim_violation(sim, "the lease of %s on node %d ran out and nothing was wrong", vm->sandbox,
			node->number);
}

bool lease_is_over(struct sim *sim, struct sim_node *node, struct vm *vm)
{
	vm->lease_planned = false;
	if (!vm->is_alive || vm->lease_until_usec == 0)
		return false;
	if (lease_now(sim, node) < vm->lease_until_usec) {
		plan(sim, node, vm);
		return false;
	}
	check_reason(sim, node, vm);
	sim_log(sim, "node %d: the lease of %s gen %llu is over", node->number, vm->sandbox,
		(unsigned long long)vm->generation);
	sim->leases_over++;
	sim_truth(sim, vm->sandbox)->was_hurt = true; /* it may end of it, or be replaced */
	return true;
}
