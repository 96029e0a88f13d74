/* SPDX-License-Identifier: Apache-2.0
 *
 * The VM's lease: a deadline that somebody else has to move on, or the VM ends itself. It fires without an agent,
 * which is its use: a scheduler that gave the sandbox to another node may rely on it (design, replacement). Pure;
 * the caller brings CLOCK_BOOTTIME, which goes on while the host is suspended, and a timer on that clock.
 *
 * Once expired it stays so: a renewal that comes late is refused, since the other life may have begun.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define LEASE_MS_MAX (UINT64_C(365) * 86400 * 1000)

struct lease {
	uint64_t length_ms;    /* 0: there is none */
	int64_t deadline_usec;
};

#define LEASE_NULL { .length_ms = 0 }

/* `length_ms` 0: none; at most LEASE_MS_MAX. */
void lease_begin(struct lease *lease, uint64_t length_ms, int64_t now_usec);
/* `length_ms` from now; 0: as long as the last time. A renewal may also shorten it. false: there is no lease, or it
 * has expired. */
bool lease_renew(struct lease *lease, uint64_t length_ms, int64_t now_usec);
/* To a time that is named; one that is earlier than the present deadline changes nothing. false as above, and over
 * LEASE_MS_MAX from now. */
bool lease_extend(struct lease *lease, int64_t until_usec, int64_t now_usec);
bool lease_is_expired(const struct lease *lease, int64_t now_usec);
/* Rounded up, so that 0 means none or expired. */
uint64_t lease_left_ms(const struct lease *lease, int64_t now_usec);
