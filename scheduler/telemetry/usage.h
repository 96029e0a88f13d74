/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of each pool was taken, hour by hour, for trends: the hour that runs, and the busiest hour of each of the last
 * days. Pure: no clock, no I/O. Hours that are over go to whoever keeps them, and come back from there after a start.
 *
 * Hours and days are of UTC, since the epoch. Memory is bounded: about 6 KiB a pool.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USAGE_DAYS 90 /* that are held */
#define USAGE_HOUR_US (INT64_C(3600) * 1000 * 1000)

enum usage_kind { USAGE_MEMORY, USAGE_CPU, USAGE_DISK, USAGE_SANDBOXES, USAGE_KIND_MAX_ };
const char *usage_kind_name(enum usage_kind kind); /* "memory", "cpu", "disk", "sandboxes" */

/* Of the looks at a pool in one hour. Memory and disk in MiB, CPU in hundredths of a vCPU. */
struct usage_hour {
	int64_t hour;
	uint64_t used[USAGE_KIND_MAX_];  /* at the mean */
	uint64_t total[USAGE_KIND_MAX_]; /* at the last look */
};

struct usage;

int usage_new(struct usage **ret); /* 0 or -ENOMEM */
struct usage *usage_free(struct usage *usage); /* NULL, always */
/* One look. True: it was the first one of an hour, and *ret_over is the hour before that was looked at. A look that finds no
 * memory is none. */
bool usage_look(struct usage *usage, const char *pool, int64_t now_us, const uint64_t used[static USAGE_KIND_MAX_],
	const uint64_t total[static USAGE_KIND_MAX_], struct usage_hour *ret_over);
/* An hour that is over, in any order. */
void usage_add(struct usage *usage, const char *pool, const struct usage_hour *hour);
/* The busiest hour of each whole day before `now_us`, oldest first, `max` days (USAGE_DAYS at most) back; NAN where nothing is
 * known. Returns how many: from the first known one to the last known one. *ret_last is the last one's day. */
size_t usage_days(const struct usage *usage, const char *pool, enum usage_kind kind, int64_t now_us, size_t max, double *ret,
	int64_t *ret_last);
