/* SPDX-License-Identifier: Apache-2.0
 *
 * See nft.h: what two readings of a slot's counters say about the time between them.
 */
#include "network/nft.h"

static const struct net_denied *find(const struct net_counters *counters, const struct net_denied *wanted)
{
	for (size_t i = 0; i < counters->n_refused; i++) {
		const struct net_denied *denied = &counters->refused[i];

		if (denied->address == wanted->address && denied->protocol == wanted->protocol &&
			denied->port == wanted->port)
			return denied;
	}
	return NULL;
}

uint64_t net_denied_packets(const struct net_counters *before, const struct net_denied *denied)
{
	const struct net_denied *old = find(before, denied);

	/* a destination that the kernel forgot meanwhile, after an hour, begins again */
	return old && old->packets <= denied->packets ? denied->packets - old->packets : denied->packets;
}

size_t net_denied_since(const struct net_counters *before, const struct net_counters *now,
	size_t ret[static NET_DENIED_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < now->n_refused; i++)
		if (net_denied_packets(before, &now->refused[i]) > 0)
			ret[n++] = i;
	return n;
}
