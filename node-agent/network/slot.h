/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's pool of network slots: which addresses, names and numbers a sandbox's network has. Pure.
 *
 * A slot is eight addresses of the pool:
 *
 *     +1  gateway   the slot's end of the TAP, and its resolver      +4  host end of the link to the host
 *     +2  guest                                                      +5  slot end of it
 *
 * Names come from the hash of a key, never from a part of it: a sandbox id's first characters say nothing. The
 * kernel's limit is 15 characters; ours are 13. An index is free again only when the caller has seen its link gone
 * (net_pool_release), so two slots never share an address.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/cidr.h"

#define NET_SLOT_NAME_SIZE 14 /* 's', 12 hex digits, NUL */
#define NET_SLOT_ADDRESSES 8u
#define NET_GUEST_PREFIX 30u
#define NET_LINK_PREFIX 31u
#define NET_POOL_SLOTS_MAX 8192u
#define NET_MAC_SIZE 6
#define NET_MAC_TEXT 18
#define NET_CID_FIRST 3u /* 0 to 2 are the hypervisor's, local and the host's */

struct net_slot {
	uint32_t index;
	char name[NET_SLOT_NAME_SIZE]; /* of the host's end of the link and of the namespace */
	uint32_t gateway, guest, link_host, link_slot;
	uint8_t guest_mac[NET_MAC_SIZE];
	uint32_t cid;
};

/* Every slot's own; a segment has one gateway and one link only. */
extern const uint8_t net_gateway_mac[NET_MAC_SIZE], net_link_host_mac[NET_MAC_SIZE],
	net_link_slot_mac[NET_MAC_SIZE];

void net_slot_name(const char *key, char ret[static NET_SLOT_NAME_SIZE]);
bool net_slot_name_is_valid(const char *name);
void net_mac_format(const uint8_t mac[static NET_MAC_SIZE], char ret[static NET_MAC_TEXT]);

struct net_pool {
	struct net_cidr cidr;
	uint32_t n; /* slots */
	uint32_t taken;
	uint32_t next; /* where the search goes on: an address rests as long as possible */
	uint8_t *used;
};
/* IPv4, /16 to /29. CONFIG_INVALID, NO_MEMORY. */
int net_pool_init(struct net_pool *pool, const struct net_cidr *cidr, struct err *reterr);
void net_pool_deinit(struct net_pool *pool);
/* A free slot for `key`, whose name is its hash. NETWORK_POOL_EMPTY. */
int net_pool_take(struct net_pool *pool, const char *key, struct net_slot *ret, struct err *reterr);
/* The slot with this index; it need not be taken. index < pool->n. */
void net_pool_slot(const struct net_pool *pool, uint32_t index, const char *name, struct net_slot *ret);
/* Found in the kernel: nobody gets it. false: no slot has this address. */
bool net_pool_mark(struct net_pool *pool, uint32_t address, uint32_t *ret_index);
void net_pool_release(struct net_pool *pool, uint32_t index);
bool net_pool_is_taken(const struct net_pool *pool, uint32_t index);
