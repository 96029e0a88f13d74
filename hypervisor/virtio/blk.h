/* SPDX-License-Identifier: Apache-2.0
 *
 * virtio-blk over a regular file: IN, OUT, FLUSH, GET_ID, one request at a time on a worker thread of its
 * own. The file is never extended and its end is the end of the disk. A request with a status byte always
 * gets one; a chain without one is given back empty when it has a header, else the device needs a reset.
 */
#pragma once

#include <stdatomic.h>

#include "thread.h"
#include "virtio/device.h"

#define BLK_SECTOR 512u
#define BLK_REQUEST_MAX (UINT64_C(32) << 20) /* bytes of data in one request */
#define BLK_SERIAL_SIZE 20

struct blk_stats {
	uint64_t reads, writes, read_bytes, written_bytes, flushes, errors;
};

struct blk_device {
	struct device device;
	int fd;                  /* owned */
	bool is_read_only;
	uint64_t sectors;
	char serial[BLK_SERIAL_SIZE];
	struct blk_stats stats;  /* under the device's lock */
	pthread_t worker;
	bool has_worker, is_stopping;
	thread_begin_fn begin;   /* the worker's; may be NULL */
	void *begin_data;
	int stop_fd;
};

/* Takes over `fd` on success: a regular file whose size is a positive multiple of 512, which the caller has
 * checked. `serial` has at most BLK_SERIAL_SIZE bytes. */
int blk_init(struct blk_device *blk, const struct memory *memory, int fd, bool is_read_only, const char *serial);
int blk_start(struct blk_device *blk, thread_begin_fn begin, void *begin_data);
/* Ends the worker after the request under way, at most until `deadline_usec`. 0 or -ETIMEDOUT: it hangs in the
 * host's kernel, and blk_deinit() must not be called. */
int blk_stop(struct blk_device *blk, int64_t deadline_usec);
void blk_deinit(struct blk_device *blk);

/* Serves all that waits; the worker's body, and a test's. Takes the lock. */
void blk_serve(struct blk_device *blk);
struct blk_stats blk_stats(struct blk_device *blk);
