/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of the kernel that all sandboxes and the host share, and that no call's errno tells of when they are full: packets
 * are dropped. The kernel counts them (/proc/net/stat); each that is dropped for want of an entry is HOST_LIMIT with the
 * table's name. Where the count is of other drops too, only those while the table is nearly full are. Pure but for reading
 * files below `root`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define HOST_TABLES 2
#define HOST_TABLE_HOLD_USEC INT64_C(60000000) /* so long after the last drop the table counts as full */

struct host_tables {
	uint64_t drops[HOST_TABLES]; /* as last read */
	int64_t last_usec[HOST_TABLES]; /* monotonic, of the last drop that was seen; 0: none */
	bool is_read; /* what was dropped before is not ours to tell */
};

/* Reads the counters. Returns the table (from 0) that has begun to drop with this reading, -1: none has. */
int host_tables_look(struct host_tables *tables, const char *root, int64_t now_usec);
/* HOST_LIMIT where one is full now. */
bool host_tables_full(const struct host_tables *tables, int64_t now_usec, struct err *ret);
