/* SPDX-License-Identifier: Apache-2.0
 *
 * See rate.h.
 */
#include "server/rate.h"

#include "base/clock.h"
#include "base/util.h"

bool rate_take(struct rate *rate, int64_t now_usec, uint64_t per_second, uint64_t burst,
	uint64_t *ret_left, uint64_t *ret_wait_s)
{
	int64_t full = (int64_t)burst * 1000, per = (int64_t)per_second;
	int64_t passed = now_usec - rate->at_usec, missing;
	bool has_one;

	if (rate->at_usec == 0 || passed > full * 1000 / per) {
		rate->milli = full;
		rate->at_usec = now_usec;
	} else if (passed > 0) {
		int64_t more = passed * per / 1000;

		rate->milli = MIN(full, rate->milli + more);
		rate->at_usec += more * 1000 / per; /* what was no whole token yet stays owed */
	}
	has_one = rate->milli >= 1000;
	if (has_one)
		rate->milli -= 1000;
	missing = has_one ? full - rate->milli : 1000 - rate->milli;
	*ret_left = (uint64_t)(rate->milli / 1000);
	*ret_wait_s = (uint64_t)((missing + per * 1000 - 1) / (per * 1000));
	return has_one;
}
