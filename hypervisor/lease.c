/* SPDX-License-Identifier: Apache-2.0
 *
 * See lease.h.
 */
#include "lease.h"

#include "base/clock.h"

void lease_begin(struct lease *lease, uint64_t length_ms, int64_t now_usec)
{
	lease->length_ms = length_ms;
	lease->deadline_usec = now_usec + (int64_t) length_ms * USEC_PER_MSEC;
}

bool lease_is_expired(const struct lease *lease, int64_t now_usec)
{
	return lease->length_ms > 0 && now_usec >= lease->deadline_usec;
}

bool lease_renew(struct lease *lease, uint64_t length_ms, int64_t now_usec)
{
	if (lease->length_ms == 0 || lease_is_expired(lease, now_usec))
		return false;
	lease_begin(lease, length_ms ? length_ms : lease->length_ms, now_usec);
	return true;
}

bool lease_extend(struct lease *lease, int64_t until_usec, int64_t now_usec)
{
	if (lease->length_ms == 0 || lease_is_expired(lease, now_usec) ||
		until_usec > now_usec + (int64_t) LEASE_MS_MAX * USEC_PER_MSEC)
		return false;
	if (until_usec > lease->deadline_usec)
		lease->deadline_usec = until_usec;
	return true;
}

uint64_t lease_left_ms(const struct lease *lease, int64_t now_usec)
{
	if (lease->length_ms == 0 || lease_is_expired(lease, now_usec))
		return 0;
	return (uint64_t) (lease->deadline_usec - now_usec + USEC_PER_MSEC - 1) / USEC_PER_MSEC;
}
