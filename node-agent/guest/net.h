/* SPDX-License-Identifier: Apache-2.0
 *
 * The sandbox's network interface, as the host asks for it: address, default route, resolver. Can be asked again with
 * another address (after a restore). PID 1 only.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct guest_network {
	uint8_t mac[6];
	uint32_t address, gateway; /* IPv4, host byte order */
	uint32_t prefix, mtu;      /* mtu 0: as it is */
};

/* GUEST_NETWORK_FAILED: no such interface within a second (no driver), or the kernel refused a step. */
int net_configure(const struct guest_network *network, struct err *reterr);
/* The same after a restore, without a write to the disk: an interface that has another hardware address gets this one. */
int net_replace(const struct guest_network *network, struct err *reterr);
void net_set_resolver(const struct guest_network *network);
