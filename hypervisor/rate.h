/* SPDX-License-Identifier: Apache-2.0
 *
 * A limit of operations and of bytes per second, as two token buckets. Pure: the time comes from the caller.
 *
 * A piece of work may begin when each bucket holds a whole token, and is charged when its size is known; one that is
 * larger than what was there leaves a debt, which those behind it wait for. So nothing is too large to ever begin,
 * and over time the rate holds.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define RATE_MAX (UINT64_C(1) << 40)

/* Per second; 0: no limit. A burst of 0 is one second's worth. None is over RATE_MAX. */
struct rate_config {
	uint64_t ops, ops_burst;
	uint64_t bytes, bytes_burst;
};

struct rate_bucket {
	uint64_t per_sec, burst;
	int64_t level;      /* millionths of a token; negative: debt */
};

struct rate {
	struct rate_bucket ops, bytes;
	int64_t at_usec;    /* when the levels held */
};

bool rate_config_is_valid(const struct rate_config *config);
/* Both buckets are full. */
void rate_init(struct rate *rate, const struct rate_config *config, int64_t now_usec);
/* Microseconds until the next piece of work may begin, 0: now. A clock that goes back adds nothing. */
int64_t rate_wait_usec(struct rate *rate, int64_t now_usec);
void rate_charge(struct rate *rate, uint64_t ops, uint64_t bytes);
