/* SPDX-License-Identifier: Apache-2.0
 *
 * A tree over slots, sixteen children to a node; each inner node holds the maximum of every column below it.
 * Changing one leaf costs one block per level. Finding is the caller's: it goes down, best key first, and skips
 * what the maxima rule out. Slots keep their number; removed ones are used again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define INDEX_FAN 16u
#define INDEX_ROWS 8 /* 16^8 slots */

/* One leaf, or the maxima of what is below. */
struct place_sum {
	uint32_t memory_mib, disk_mib, cpu_percent; /* free */
	uint32_t key; /* the score that does not depend on the request; 0: not to be chosen */
};

struct place_index {
	struct place_sum *rows[INDEX_ROWS]; /* rows[0]: leaves; each a multiple of INDEX_FAN long */
	void **objects;                     /* per slot; NULL: free */
	uint32_t *holes;
	uint32_t n_holes, n, room;
	unsigned int height; /* rows in use; the last one is a single block */
	struct place_sum top; /* the maxima of everything */
};

void place_index_deinit(struct place_index *index);
/* 0 or -ENOMEM. The new leaf is zero. */
int place_index_add(struct place_index *index, void *object, uint32_t *ret_slot) MUST_USE;
void place_index_remove(struct place_index *index, uint32_t slot);
void place_index_set(struct place_index *index, uint32_t slot, const struct place_sum *sum);
