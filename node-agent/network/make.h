/* SPDX-License-Identifier: Apache-2.0
 *
 * One slot in the kernel: how it is made, what its rules are, how it goes. Everything can be repeated: making over
 * the rest of an interrupted attempt is refused (the name is new each time), removing what is half there is fine.
 *
 * ORDER. Namespace, devices (down), rules, seen to be there, and only then links up: no packet of a guest meets a
 * kernel without its policy. Removal the other way round: the link first, so that nothing passes any more.
 */
#pragma once

#include "base/err.h"
#include "network/nft.h"
#include "network/ruleset.h"

/* NETWORK_SLOT_FAILED with the step, NETWORK_RULES_FAILED, NETWORK_UNSUPPORTED. On failure nothing is left, or
 * net_slot_remove() is to be tried again. */
int net_slot_make(const char *netns_dir, const struct net_slot_rules *rules, struct err *reterr);
/* The rules anew, in one transaction; connections that they forbid are reset. Where these rules hold already, only
 * the pins are added: what is pinned there stays. */
int net_slot_apply(const char *netns_dir, const struct net_slot_rules *rules, struct err *reterr);
int net_slot_pin(const char *netns_dir, const char *name, const struct net_pin *pins, size_t n_pins,
	struct err *reterr);
int net_slot_read(const char *netns_dir, const char *name, struct net_counters *ret, struct err *reterr);
/* 0 when nothing is left. */
int net_slot_remove(const char *netns_dir, const char *name, struct err *reterr);

/* The TAP's descriptor, for the VMM. */
int net_slot_open_tap(const char *netns_dir, const char *name, struct err *reterr);
/* Sockets on the gateway's port 53, for the resolver: *ret_udp, and *ret_tcp which listens. */
int net_slot_open_dns(
	const char *netns_dir, const struct net_slot *slot, int *ret_udp, int *ret_tcp, struct err *reterr);
