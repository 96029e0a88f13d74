/* SPDX-License-Identifier: Apache-2.0
 *
 * Between memory.c and memory-layers.c.
 */
#pragma once

#include "memory.h"

/* Maps the file in its place in the address space, whatever is there; the layers have to follow. 0 or -errno. */
int memory_map_region(const struct memory *memory, const struct memory_region *region, bool is_private);
/* The region of the byte at `offset` of the memory file, which there is. */
const struct memory_region *memory_region_at(const struct memory *memory, uint64_t offset);
uint8_t *memory_address(const struct memory *memory, uint64_t offset);
