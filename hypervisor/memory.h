/* SPDX-License-Identifier: Apache-2.0
 *
 * Guest memory: one memfd, mapped so that host address = base + guest address. RAM over 3 GiB goes on at
 * 4 GiB; between lie the devices, and there the mapping is PROT_NONE. The base is congruent to 0 modulo
 * 2 MiB, so that huge pages of the memfd can become huge pages of the guest.
 *
 * guest_map() is the only way to an address that a guest named. What it returns stays valid as long as the
 * VM: later remaps (fork) happen in place. The guest can change the bytes at any time: read a field once.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define MEMORY_MIB_MIN UINT64_C(64)
#define MEMORY_MIB_MAX (UINT64_C(512) * 1024)
#define MEMORY_GAP_START (UINT64_C(3) << 30)
#define MEMORY_GAP_END (UINT64_C(4) << 30)

struct memory_region {
	uint64_t gpa;
	uint64_t size;
	uint64_t offset; /* in the memfd */
};

struct memory {
	int fd;          /* the memfd; of a restored VM the snapshot's memory file */
	bool is_private; /* a restored VM: what it writes is its own, the file stays as it is */
	uint8_t *base;
	uint64_t span;   /* of the mapping, with the gap */
	uint64_t size;   /* RAM */
	unsigned int n_regions;
	struct memory_region regions[2];
};

#define MEMORY_NULL { .fd = -1 }

/* Splits `mib` MiB at the gap. MEMORY_INVALID outside MEMORY_MIB_MIN .. MEMORY_MIB_MAX. */
int memory_layout(uint64_t mib, struct memory_region ret[static 2], unsigned int *ret_n, struct err *reterr);

int memory_init(struct memory *memory, uint64_t mib, struct err *reterr);
/* Takes over `fd`: memory as another VM had it, in a file of exactly that size. SNAPSHOT_INVALID when it has another. */
int memory_restore(struct memory *memory, uint64_t mib, int fd, struct err *reterr);
void memory_deinit(struct memory *memory);

/* The `len` bytes at `gpa`, NULL unless all of them are RAM. A len of 0 is valid where one byte would be. */
void *guest_map(const struct memory *memory, uint64_t gpa, uint64_t len);
/* Where those bytes lie in the memory file; false unless all of them are RAM. */
bool memory_offset(const struct memory *memory, uint64_t gpa, uint64_t len, uint64_t *ret_offset);
/* Gives pages back to the host; they read as zeros from then on, in a restored VM as they were when it was restored. Whole
 * pages of the memory file. */
int memory_discard(const struct memory *memory, uint64_t offset, uint64_t len);
/* Writes up to `max` bytes of memory from *offset on to the same places of `fd`, leaving out pages of zeros, and moves
 * *offset on; memory.size is the end. Nobody may change memory meanwhile. 0 or -errno. */
int memory_copy_out(const struct memory *memory, int fd, uint64_t *offset, uint64_t max);
