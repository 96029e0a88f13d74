/* SPDX-License-Identifier: Apache-2.0
 *
 * Applies a ruleset of network/ruleset.h in the network namespace of the calling thread, and sees that it is there.
 *
 * The kernel takes a transaction whole or not at all, but its answer can be lost (ENOBUFS) or the socket can be
 * left in the middle of one (EINVAL, EINTR). So an error is not believed and neither is success: after each try the
 * stamp is read back over a socket of its own, and a ruleset that is not there is applied again as a whole, a few
 * times. Only 0 from here means that the rules hold.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "network/ruleset.h"

#define NET_APPLY_TRIES 3

/* `text` becomes NUL-terminated. NETWORK_RULES_FAILED with the library's words in the detail. */
int net_rules_apply(struct buf *text, const char *stamp, struct err *reterr);
/* The stamp of the rules that are there; false: none. */
bool net_rules_stamp(char ret[static NET_STAMP_SIZE]);
/* A change of elements that needs no stamp: adding pins. Tried as often. */
int net_rules_add(struct buf *text, struct err *reterr);

struct net_counter {
	uint64_t packets, bytes;
};

struct net_denied {
	uint32_t address;
	uint8_t protocol;
	uint16_t port;
	uint64_t packets;
};

struct net_counters {
	struct net_counter sent, received, denied, over_connections, over_rate, strayed;
	struct net_denied refused[NET_DENIED_MAX];
	size_t n_refused;
};
/* Where packets were denied since `before` was read: indices of now->refused; returns how many. Pure. */
size_t net_denied_since(const struct net_counters *before, const struct net_counters *now,
	size_t ret[static NET_DENIED_MAX]);
/* How many since then. */
uint64_t net_denied_packets(const struct net_counters *before, const struct net_denied *denied);
/* What a slot's rules counted since it was made. NETWORK_RULES_FAILED. */
int net_rules_read(struct net_counters *ret, struct err *reterr);
