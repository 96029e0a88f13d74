/* SPDX-License-Identifier: Apache-2.0
 *
 * The nftables rules of a slot and of the host, as text for libnftables. Pure.
 *
 * Each text is one transaction that can be applied to a kernel in any state: empty, with another version of the
 * same rules, or with these. Counters and the table of denied connections live through it. The text holds a stamp,
 * the hash of all the rest but the pins, as the comment of a rule nobody reaches: a kernel that shows the stamp has
 * the whole. Pins come and go under the same rules.
 *
 * A connection that was allowed carries the policy's hash in its mark. After a change the marks differ, and the next
 * packet of every connection is judged anew, in whichever direction it goes; what is forbidden now is reset.
 *
 * Two fences stand one behind the other: in the slot's namespace, where the policy is; and on the host, which
 * knows only the fence and the owner's openings. IPv6 is not spoken: dropped at the TAP and again on the host.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "network/policy.h"
#include "network/slot.h"

#define NET_TAP "tap0"      /* in the slot's namespace */
#define NET_UPLINK "up0"    /* likewise */
#define NET_LINK_GROUP 7282u /* of the host's ends of all links */
#define NET_STAMP_SIZE 17
#define NET_RULESET_MAX (1u << 20)
#define NET_PINS_MAX 4096u
#define NET_DENIED_MAX 256u /* destinations remembered */

struct net_limits {
	uint32_t connections;         /* at once */
	uint32_t packets_per_sec;     /* each direction */
	uint32_t kib_per_sec;         /* each direction */
};

/* An address that was answered for an allowed name. */
struct net_pin {
	uint32_t address;
	uint32_t ttl_sec; /* > 0 */
};

struct net_slot_rules {
	const struct net_slot *slot;
	const struct net_judge *judge;
	const struct net_pin *pins;
	size_t n_pins;
	struct net_limits limits;
};

/* Appends the text to `out` (a bound of NET_RULESET_MAX). 0, -ENOBUFS, -ENOMEM. */
int net_ruleset_slot(struct buf *out, const struct net_slot_rules *rules, char ret_stamp[static NET_STAMP_SIZE]);

struct net_host_rules {
	const struct net_cidr *pool;
	const struct net_owner *owner;
	/* The host forwarded nothing before us, and shall forward nothing but our slots now. */
	bool forward_nothing_else;
};
int net_ruleset_host(struct buf *out, const struct net_host_rules *rules, char ret_stamp[static NET_STAMP_SIZE]);

/* "add element" of these pins, which are in the set already or not. */
int net_ruleset_pins(struct buf *out, const struct net_pin *pins, size_t n_pins);
