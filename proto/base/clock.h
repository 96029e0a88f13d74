/* SPDX-License-Identifier: Apache-2.0
 *
 * Time. All durations and monotonic times are microseconds in int64_t; wall-clock times are microseconds
 * since the epoch. Pure modules get the time as an argument and never call these.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define USEC_PER_MSEC INT64_C(1000)
#define USEC_PER_SEC INT64_C(1000000)
#define CLOCK_RFC3339_SIZE 28

int64_t clock_monotonic_usec(void);
int64_t clock_boottime_usec(void);
int64_t clock_realtime_usec(void);

/* "2026-11-29T14:03:54.123Z"; `buf` has at least CLOCK_RFC3339_SIZE bytes. Returns buf. */
char *clock_format_rfc3339(int64_t realtime_usec, char *buf, size_t size);

/* Parses RFC 3339 with Z or an offset. Returns 0 or -EINVAL. */
int clock_parse_rfc3339(const char *text, int64_t *ret_realtime_usec);

/* Parses "90", "90s", "15m", "1h", "7d", "250ms" (a bare number is seconds). Returns 0 or -EINVAL. */
int clock_parse_duration(const char *text, int64_t *ret_usec);
