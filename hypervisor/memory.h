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
#include "layer.h"

#define MEMORY_MIB_MIN UINT64_C(64)
#define MEMORY_MIB_MAX (UINT64_C(512) * 1024)
#define MEMORY_GAP_START (UINT64_C(3) << 30)
#define MEMORY_GAP_END (UINT64_C(4) << 30)

struct memory_region {
	uint64_t gpa;
	uint64_t size;
	uint64_t offset; /* in the memfd */
};

#define MEMORY_LAYERS_MAX 8
/* Of all layers together, before a fork puts them together: each costs a mapping or two. */
#define MEMORY_RUNS_MAX 4096u
/* Of what forks copied, in sizes of the VM's memory: a page in one layer hides those below, which are memory all the same. Two, so
 * that to put them together never copies more than was copied since the last time. */
#define MEMORY_LAYERS_TIMES 2u

/* What it is made of, from below: the file, the layers, and where it is private the pages that this VM wrote since. */
struct memory {
	int fd;          /* the memfd; of a restored VM the snapshot's memory file */
	bool is_private; /* restored or forked: what it writes is its own, the files stay as they are */
	int pagemap_fd;  /* /proc/self/pagemap, which says what it wrote; borrowed; -1: none */
	uint64_t copied_pages; /* by the last memory_freeze() */
	/* of a restored VM whose snapshot has one: of what file and the first n_base layers make, which stands on a disk */
	bool has_id;
	uint8_t id[LAYER_ID];
	unsigned int n_base;
	unsigned int n_layers;
	struct layer layers[MEMORY_LAYERS_MAX];
	uint8_t *base;
	uint64_t span;   /* of the mapping, with the gap */
	uint64_t size;   /* RAM */
	unsigned int n_regions;
	struct memory_region regions[2];
};

#define MEMORY_NULL { .fd = -1, .pagemap_fd = -1 }

/* Splits `mib` MiB at the gap. MEMORY_INVALID outside MEMORY_MIB_MIN .. MEMORY_MIB_MAX. */
int memory_layout(uint64_t mib, struct memory_region ret[static 2], unsigned int *ret_n, struct err *reterr);

/* Its place in the address space, with nothing in it: to touch it is a fault. KVM may have it for a slot already. */
int memory_reserve(struct memory *memory, uint64_t mib, struct err *reterr);
/* Into what was reserved: zeros. */
int memory_fill(struct memory *memory, struct err *reterr);
/* The same, and takes over `fd`: memory as another VM had it, in a file of exactly that size, or with memory_write_id()'s page
 * behind it. SNAPSHOT_INVALID when it has another. */
int memory_fill_from(struct memory *memory, int fd, struct err *reterr);
/* Both steps in one. */
int memory_init(struct memory *memory, uint64_t mib, struct err *reterr);
int memory_restore(struct memory *memory, uint64_t mib, int fd, struct err *reterr);
/* Puts layers over what was restored, the lowest first; takes over `fds` and sets them to -1. Nobody has looked at it yet. With
 * `is_chain` they are differential snapshots, each of which must lie over what it was made over. SNAPSHOT_INVALID. */
int memory_add_layers(struct memory *memory, int *fds, unsigned int n, bool is_chain, struct err *reterr);
void memory_deinit(struct memory *memory);

/* The `len` bytes at `gpa`, NULL unless all of them are RAM. A len of 0 is valid where one byte would be. */
void *guest_map(const struct memory *memory, uint64_t gpa, uint64_t len);
/* Where those bytes lie in the memory file; false unless all of them are RAM. */
bool memory_offset(const struct memory *memory, uint64_t gpa, uint64_t len, uint64_t *ret_offset);
/* Gives pages back to the host; they read as zeros from then on, in a restored VM as they were when it was restored. Whole
 * pages of the memory file. */
int memory_discard(const struct memory *memory, uint64_t offset, uint64_t len);
/* The pages that may hold something: others were never there, and to look at them would make them. *ret is for pages_deinit().
 * 0 or -errno. */
int memory_content(const struct memory *memory, struct pages *ret);
/* The pages that may differ from what the VM was restored from, at most as many runs as a layer may have. -ENOENT: it was not, or
 * that has no id, or there is no room for another layer over it. */
int memory_changes(const struct memory *memory, struct pages *ret);
/* Behind the memory in `fd`. 0 or -errno. */
int memory_write_id(const struct memory *memory, int fd, const uint8_t id[static LAYER_ID]);
const void *memory_page(const void *memory, uint64_t page);
/* Writes up to `max` bytes of memory from *offset on to the same places of `fd`, leaving out what is not in `content` and pages
 * of zeros, and moves *offset on; memory.size is the end. Nobody may change memory meanwhile. 0 or -errno. */
int memory_copy_out(const struct memory *memory, const struct pages *content, int fd, uint64_t *offset, uint64_t max);

/* All that memory holds now stands in files that nobody changes any more (`fd` and `layers`), for children to begin from; what
 * this VM writes from now on is its own. The first time nothing is copied: the memfd is sealed and mapped anew. Later the pages
 * that were written since become a layer; when there are too many layers, runs or pages, one takes the place of all. The VM is
 * paused. 0; FORK_FAILED: memory is as it was; HOST_MEMORY_FAULT and -ENOTRECOVERABLE: it is not, and the VM must end. */
int memory_freeze(struct memory *memory, struct err *reterr);
