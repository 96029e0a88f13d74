/* SPDX-License-Identifier: Apache-2.0
 *
 * virtio-blk over a regular file: IN, OUT, FLUSH, DISCARD, WRITE_ZEROES, GET_ID, one request at a time on a
 * worker thread of its own. The file is never extended and its end is the end of the disk. A request with a
 * status byte always gets one; a chain without one is given back empty when it has a header, else the device
 * needs a reset.
 */
#pragma once

#include <stdatomic.h>

#include "rate.h"
#include "thread.h"
#include "virtio/device.h"

#define BLK_SECTOR 512u
#define BLK_REQUEST_MAX (UINT64_C(32) << 20) /* bytes of data in one request */
#define BLK_SERIAL_SIZE 20
#define BLK_RANGES_MAX 16                   /* of one DISCARD or WRITE_ZEROES */
#define BLK_DISCARD_MAX (UINT64_C(1) << 30) /* bytes of one range; of WRITE_ZEROES BLK_REQUEST_MAX */

struct blk_stats {
	uint64_t reads, writes, read_bytes, written_bytes, flushes, errors;
	uint64_t discards, zeroes, discarded_bytes, zeroed_bytes;
	uint64_t throttled; /* times that a limit made it wait */
};

struct blk_device {
	struct device device;
	int fd;                  /* owned */
	bool is_read_only;
	uint64_t sectors;
	char serial[BLK_SERIAL_SIZE];
	struct rate rate;        /* the worker's */
	int64_t (*clock)(void);  /* monotonic microseconds; a test puts another here */
	struct blk_stats stats;  /* under the device's lock */
	int64_t silent_until_usec; /* the worker's: no line about the host's errors before that */
	pthread_t worker;
	bool has_worker;
	bool is_paused;              /* under the device's lock */
	atomic_bool is_stopping;
	thread_begin_fn begin;   /* the worker's; may be NULL */
	void *begin_data;
	int stop_fd;
};

/* Takes over `fd` on success: a regular file whose size is a positive multiple of 512, which the caller has
 * checked. `serial` has at most BLK_SERIAL_SIZE bytes. `limit` NULL: none. */
/* A descriptor of -1 makes a device whose disk comes later, by blk_open(), with a serial and a limit of its own, while it is
 * paused or not started and no guest has looked at it. */
int blk_init(struct blk_device *blk, const struct memory *memory, int fd, bool is_read_only, const char *serial,
	const struct rate_config *limit);
int blk_open(struct blk_device *blk, int fd, const char *serial, const struct rate_config *limit);
int blk_start(struct blk_device *blk, thread_begin_fn begin, void *begin_data);
/* The worker is to end soon; does not wait. */
void blk_cancel(struct blk_device *blk);
/* Takes no further request; 0 once none is under way, -ETIMEDOUT at the deadline (CLOCK_MONOTONIC). In either case
 * blk_resume() ends it. */
int blk_pause(struct blk_device *blk, int64_t deadline_usec);
void blk_resume(struct blk_device *blk);
/* Ends the worker after the request under way, at most until `deadline_usec`. 0 or -ETIMEDOUT: it hangs in the
 * host's kernel, and blk_deinit() must not be called. */
int blk_stop(struct blk_device *blk, int64_t deadline_usec);
void blk_deinit(struct blk_device *blk);

/* Serves all that waits; the worker's body, and a test's. Takes the lock. Microseconds after which the limit lets it go
 * on, -1 when nothing waits. */
int64_t blk_serve(struct blk_device *blk);
struct blk_stats blk_stats(struct blk_device *blk);
