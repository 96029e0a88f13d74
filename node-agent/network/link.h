/* SPDX-License-Identifier: Apache-2.0
 *
 * Links, addresses and routes by netlink, in the namespace of the calling thread. All errors are -errno.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/cidr.h"
#include "network/slot.h"

/* A veth pair, both ends down: `name` here, in the group of our links, with the host's MAC; NET_UPLINK in `netns`. */
int net_link_make(const char *name, int netns);
/* Both ends go. A link that does not exist is 0. */
int net_link_remove(const char *name);
int net_link_set_mac(const char *name, const uint8_t mac[static NET_MAC_SIZE]);
int net_link_set_up(const char *name);
int net_link_add_address(const char *name, uint32_t address, unsigned int prefix);
/* A neighbour that is never asked for, so that a guest cannot make the kernel ask. */
int net_link_add_neighbour(const char *name, uint32_t address, const uint8_t mac[static NET_MAC_SIZE]);
/* prefix 0: the default route. */
int net_link_add_route(const char *name, uint32_t address, unsigned int prefix, uint32_t via);

/* Opens the TAP, made where it does not exist: Ethernet frames behind a virtio_net_hdr. With `keep` the device
 * stays when the descriptor is closed. Descriptor or -errno. */
int net_tap_open(const char *name, bool keep);

/* One of our links on this host (by group); `address` is its own, 0 where it has none. false ends the walk. */
typedef bool (*net_link_seen)(const char *name, uint32_t address, void *user);
int net_link_list(net_link_seen seen, void *user);

/* Does a route of this host, but a default one or one over our own links, lead into the block? POOL_OVERLAPS_ROUTE
 * with the device and the route. */
int net_route_check(const struct net_cidr *pool, struct err *reterr);
