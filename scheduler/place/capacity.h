/* SPDX-License-Identifier: Apache-2.0
 *
 * How many more of a shape fit: asked of the placement itself. A copy of a pool is filled with place_choose() until that
 * refuses, so that the answer is what callers will meet, and whatever the decision learns, this knows too.
 *
 * Filling costs a decision per sandbox that fits. Making the copy is quick; it shares nothing with the place that it was made
 * of, so that another thread may fill it.
 */
#pragma once

#include "place/place.h"

struct place_copy; /* one pool as it was */

/* With what matters for an image: who holds it, and where it is barred. 0, -ENOENT (no such pool) or -ENOMEM. */
int place_copy_new(struct place_copy **ret, const struct place *place, const char *pool, const char *digest);
struct place_copy *place_copy_free(struct place_copy *copy); /* NULL, always */
/* The node of the pool that has the most memory. False: there is none. */
bool place_copy_largest(const struct place_copy *copy, struct node_capacity *ret);
uint32_t place_copy_overcommit(const struct place_copy *copy); /* percent */

struct place_room {
	uint64_t memory_mib, disk_mib; /* memory with the VMM's overhead */
	uint64_t cpu_percent;          /* hundredths of a vCPU, overcommit included */
	uint64_t sandboxes;
};

/* Of a pool's nodes together, whatever their state, without removed ones. False: there is no such pool. A scan of it. */
bool place_pool_room(const struct place *place, const char *pool, struct place_room *ret_total, struct place_room *ret_used);

/* Nodes that one thing excludes, and what is free there. */
struct place_stop {
	size_t n_nodes;
	struct place_room left;
};

struct place_capacity {
	uint64_t fits;              /* now */
	uint64_t waiting;           /* and when start slots and back-offs are over */
	size_t n_nodes;             /* of the pool, without removed ones */
	size_t n_fitting;           /* of them, that take one now */
	size_t excluded[PLACE_CONSTRAINT_MAX_]; /* nodes that take none now, each at the first constraint that it fails */
	struct place_room total, used; /* of all of them, whatever their state */
	/* When no more fits: what each node stops at, and what is left there. */
	struct place_stop stops[PLACE_CONSTRAINT_MAX_];
	struct place_stop absent[PLACE_ABSENCE_MAX_]; /* stops[PLACE_STATE] by why */
	char change[224]; /* what would make room for one more then: one sentence; "": the pool has no node */
};

/* What else the pool might be. */
struct place_change {
	uint32_t overcommit_percent; /* 0: as it is */
	size_t n_nodes;              /* more, empty, of this size, with the labels that the demand wants */
	struct node_capacity node;
};

/* `change` may be NULL. Whose sandboxes they are does not matter: the demand's tenant is ignored. 0 or -ENOMEM. */
int place_capacity(const struct place_copy *copy, const struct place_demand *demand, const struct place_change *change,
	struct place_capacity *ret);
