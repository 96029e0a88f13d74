/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer: some pages of guest memory in a file, which lie over those of the file below. A fork makes one, in a sealed
 * memfd, of what a VM wrote since the fork before; a differential snapshot is one, of what it wrote since it was restored.
 *
 *      0  "croftly\0"
 *      8  format, 1
 *     12  CRC-32 of what follows it in the header, and of the table (zlib's)
 *     16  bytes of the guest's memory
 *     24  runs
 *     32  pages
 *     40  the id of what it makes, 16 bytes; zeros in a fork's
 *     56  the id of what it lies over
 *   4096  the pages, one run behind the other
 *         the table: of each run its first page and how many there are, in 64 bits each
 *
 * All numbers are little-endian. The VMM that wrote it may have been taken over by its guest: what is read is checked, and a
 * layer that could still be changed is refused where the caller wants sealed ones.
 */
#pragma once

#include "base/err.h"
#include "pages.h"

#define LAYER_RUNS_MAX 16384u
#define LAYER_ID 16
/* What a file has beside its pages, at most. */
#define LAYER_ROOM (PAGES_SIZE + LAYER_RUNS_MAX * sizeof(struct page_run))

struct layer {
	int fd;                /* owned */
	uint32_t n_runs;
	struct page_run *runs; /* owned; ascending, apart from each other */
	uint8_t id[LAYER_ID], base[LAYER_ID];
};

#define LAYER_NULL { .fd = -1 }

/* Where the first page of run `i` lies in the file. */
uint64_t layer_offset(const struct layer *layer, uint32_t i);

/* Writes one in pieces. */
struct layer_writer {
	int fd;                    /* borrowed; an empty file */
	const struct pages *pages; /* borrowed; at most LAYER_RUNS_MAX runs */
	const void *(*page_at)(const void *data, uint64_t page);
	const void *data;
	uint8_t id[LAYER_ID], base[LAYER_ID];
	uint64_t next, n_written;  /* 0 at first */
};

/* Up to `max` bytes of pages, one at least; with the last of them the table and the header, without which it is none. 1: there is
 * more; 0: done; -errno. */
int layer_write(struct layer_writer *writer, uint64_t max);
/* A memfd of these pages, at most LAYER_RUNS_MAX runs; `page_at` says where they lie. Sealed. 0 or -errno. */
int layer_make(struct layer *layer, const struct pages *pages, const void *(*page_at)(const void *data, uint64_t page),
	const void *data);
/* Takes over `fd`, in any case. SNAPSHOT_INVALID. */
int layer_read(struct layer *layer, int fd, uint64_t memory_size, struct err *reterr);
void layer_deinit(struct layer *layer);

/* A memfd that nobody can change any more: not its bytes, not its size. 0 or -errno. */
int memfd_seal(int fd);
/* SNAPSHOT_INVALID unless it is one, or a file of the disk of which the VM that gave it had no descriptor to write with: a jailed
 * VM cannot open it again. */
int layer_check_frozen(int fd, const char *what, struct err *reterr);
