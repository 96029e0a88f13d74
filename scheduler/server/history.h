/* SPDX-License-Identifier: Apache-2.0
 *
 * How long ended sandboxes are remembered: by age and by number. Only ids and times are held in memory; the records
 * stay in the store until they are forgotten.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"

struct history_entry {
	int64_t ended_us;
	char id[ID_SIZE];
};

struct history {
	struct history_entry *entries; /* a ring in the order of ends */
	size_t first, n, room;
};

void history_deinit(struct history *history);
/* In the order of ends, after history_sort() of what was loaded. 0 or -ENOMEM: then it is remembered for good. */
int history_add(struct history *history, const char *id, int64_t ended_us);
void history_sort(struct history *history);
/* The oldest one, if it ended before `before_us` or there are more than `max`; NULL: none is to be forgotten. */
const struct history_entry *history_overdue(
	const struct history *history, int64_t before_us, uint64_t max);
void history_drop(struct history *history); /* the oldest */
