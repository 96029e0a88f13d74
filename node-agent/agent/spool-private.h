/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the spool: what its files share. Nobody else includes this.
 *
 *   spool.c       numbers, what is durable, sent and acknowledged
 *   spool-file.c  the segment files and the records in them
 *   spool-read.c  the record of a number, or what stands for it
 */
#pragma once

#include <limits.h>
#include <sys/queue.h>

#include "agent/spool.h"
#include "base/util.h"

#define SPOOL_HEAD 12u /* of a record on disk */

struct segment {
	TAILQ_ENTRY(segment) link;
	uint64_t first;
	uint64_t last; /* first - 1: empty */
	uint64_t size;
};
TAILQ_HEAD(segments, segment);

struct spool {
	char dir[PATH_MAX];
	uint64_t max_size, segment_size;
	struct worker *worker;
	uint64_t worker_key;
	spool_on_ready on_ready;
	void *user;

	struct segments segments; /* the last one is written to; never empty */
	int fd;                   /* of the last one */
	bool dir_is_dirty;        /* a segment was made since the last fsync of the directory */
	bool syncing;
	uint64_t last, durable, sent, acked;
	uint64_t size, dropped, dropped_told;

	/* where reading stands */
	int read_fd;
	uint64_t read_first; /* segment */
	uint64_t read_seq;   /* of the record at read_offset */
	uint64_t read_offset;
};

/* ---- spool-file.c ---- */
int spool_segment_open(const struct spool *spool, const struct segment *segment); /* for reading: fd or -errno */
/* Makes the file of the records behind `last` and writes there from now on. On failure all is as it was. */
int spool_segment_make(struct spool *spool);
void spool_segment_drop(struct spool *spool, struct segment *segment); /* with its file */
/* Lists what is there, counts the newest segment's records and cuts a torn tail; makes the first segment. */
int spool_segments_load(struct spool *spool);
/* One whole and undamaged record at `offset`. 0 or -errno; -ENODATA: no whole one is there. */
int spool_record_read(int fd, uint64_t offset, uint8_t **ret, uint32_t *ret_size);
/* Appends to the newest segment, which grows by SPOOL_HEAD + `size`. On failure it is as it was. `data` has SPOOL_HEAD
 * bytes of room in front of the record. */
int spool_record_write(struct spool *spool, uint8_t *data, size_t size);

/* ---- spool-read.c ---- */
/* The record numbered `seq`, or a gap that stands for damaged ones; *ret_seq is the number up to which it stands.
 * NULL: it cannot be read now (memory, descriptors); nothing is lost. */
Croft__TelemetryRecord *spool_read(struct spool *spool, uint64_t seq, uint64_t *ret_seq);
