/* SPDX-License-Identifier: Apache-2.0
 *
 * The sandbox before and after a snapshot. PID 1 only.
 *
 * All processes that croft-guest starts are in one control group. Frozen means: that group stands still, the writable disk
 * takes no write, and all that was written is on it, so that the disk and the memory of a snapshot belong together. From
 * then on nothing of PID 1 may write to the disk either: it would wait for the thaw, which only it can do. A process that
 * went to another control group by itself runs on, and waits at its first write.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct guest_network;

struct guest_wake {
	int64_t realtime_usec; /* 0: leave the clock */
	const uint8_t *entropy;
	size_t entropy_size;
	const struct guest_network *network; /* NULL: none */
	const char *hostname; /* "": it is who it was */
};

/* After boot_root(). Makes the group and keeps open what is needed later, whatever becomes of the paths. Returns the
 * descriptor by which a process joins the group; -1: there is none, and freezing will fail. `disk_fd` becomes its own. */
int sleep_init(int disk_fd);
/* GUEST_FREEZE_FAILED: everything runs on. */
int sleep_freeze(struct err *reterr);
/* Writes nothing to the disk. GUEST_FREEZE_FAILED: the generator took no entropy; GUEST_NETWORK_FAILED. */
int sleep_wake(const struct guest_wake *wake, struct err *reterr);
/* `realtime_usec`: what the clock is set to before the processes go on; 0: it is left. GUEST_FREEZE_FAILED: something stands
 * still yet. */
int sleep_thaw(int64_t realtime_usec, struct err *reterr);
