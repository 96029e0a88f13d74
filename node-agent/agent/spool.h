/* SPDX-License-Identifier: Apache-2.0
 *
 * Telemetry on disk until the scheduler acknowledged it: records numbered from 1 without gaps, in
 * segment files <dir>/<first number>.seg, each record with its length and checksum. A record is
 * handed out for sending only once it is on the disk for good, so that no number is ever used twice
 * for different records. fsync is batched and runs on a worker.
 *
 * The size is bounded. A record for which there is no room is dropped and counted; the count
 * becomes a record of its own (TelemetryGap) as soon as there is room. A torn tail is cut at the
 * start; a damaged segment costs its own records, which a gap then stands for.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "pb/telemetry.pb-c.h"

struct event_base;
struct worker;
struct spool;

#define SPOOL_RECORD_MAX (32u * 1024u)
#define SPOOL_WINDOW 1024u

/* Something new may be sent. */
typedef void (*spool_on_ready)(void *user);

int spool_new(struct spool **ret, const char *dir, uint64_t max_size, struct worker *worker,
	spool_on_ready on_ready, void *user, struct err *reterr);
/* Makes what was appended durable (blocking, once) and closes. The worker is freed before. */
void spool_free(struct spool *spool);

/* Numbers the record (its seq is set) and appends it. Never fails towards the caller: what cannot
 * be kept is counted. */
void spool_append(struct spool *spool, Croft__TelemetryRecord *record);

/* A new connection: the receiver has everything up to `acked`, sending goes on behind it. A number
 * above all that were given out means that this directory is newer than what the receiver knows of
 * the node: what waits gets new numbers behind it. */
void spool_welcome(struct spool *spool, uint64_t acked);
/* Everything up to `seq` may be forgotten. A number that was never sent is ignored. */
void spool_ack(struct spool *spool, uint64_t seq);

/* The next durable record to send, NULL when there is none or SPOOL_WINDOW of them wait for their
 * acknowledgement. The caller frees it. */
Croft__TelemetryRecord *spool_next(struct spool *spool);
/* What was handed out behind `seq` could not be sent and comes again. */
void spool_unsend(struct spool *spool, uint64_t seq);

struct spool_counts {
	uint64_t last; /* highest number given out */
	uint64_t durable;
	uint64_t sent;
	uint64_t acked;
	uint64_t size;    /* bytes on disk */
	uint64_t dropped; /* since the start */
};
void spool_counts(const struct spool *spool, struct spool_counts *ret);
