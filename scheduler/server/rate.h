/* SPDX-License-Identifier: Apache-2.0
 *
 * A token bucket: so many requests a second, and a burst. A fresh one is full. The clock is the caller's and
 * monotonic; one that went back gives nothing and takes nothing.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct rate {
	int64_t milli;   /* tokens left, in thousandths */
	int64_t at_usec; /* as of then; 0: never used */
};

/* Takes one token; false: there is none. `*ret_left` is what is left, `*ret_wait_s` the whole seconds until the bucket
 * is full again, or, when it is empty, until there is one token. */
bool rate_take(struct rate *rate, int64_t now_usec, uint64_t per_second, uint64_t burst,
	uint64_t *ret_left, uint64_t *ret_wait_s);
