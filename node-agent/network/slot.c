/* SPDX-License-Identifier: Apache-2.0
 *
 * See slot.h.
 */
#include "network/slot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

#define POOL_PREFIX_MIN 16u
#define POOL_PREFIX_MAX 29u

/* locally administered, unicast */
const uint8_t net_gateway_mac[NET_MAC_SIZE] = { 0x02, 0xc7, 0x0f, 0x74, 0x00, 0x01 };
const uint8_t net_link_host_mac[NET_MAC_SIZE] = { 0x02, 0xc7, 0x0f, 0x74, 0x00, 0x02 };
const uint8_t net_link_slot_mac[NET_MAC_SIZE] = { 0x02, 0xc7, 0x0f, 0x74, 0x00, 0x03 };

/* FNV-1a with the finisher of splitmix64: every bit of the key reaches each of the 48 that are kept. No secret
 * and no defence against a chosen collision: keys are our own random ids. */
static uint64_t hash(const char *key)
{
	uint64_t value = fnv1a(FNV1A_BASIS, key, strlen(key));

	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

void net_slot_name(const char *key, char ret[static NET_SLOT_NAME_SIZE])
{
	(void)snprintf(ret, NET_SLOT_NAME_SIZE, "s%012llx",
		(unsigned long long)(hash(key) & UINT64_C(0xffffffffffff)));
}

bool net_slot_name_is_valid(const char *name)
{
	return name[0] == 's' && strlen(name) == NET_SLOT_NAME_SIZE - 1 &&
	       strspn(name + 1, "0123456789abcdef") == NET_SLOT_NAME_SIZE - 2;
}

void net_mac_format(const uint8_t mac[static NET_MAC_SIZE], char ret[static NET_MAC_TEXT])
{
	(void)snprintf(ret, NET_MAC_TEXT, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
		mac[4], mac[5]);
}

int net_pool_init(struct net_pool *pool, const struct net_cidr *cidr, struct err *reterr)
{
	char text[NET_CIDR_TEXT];

	memset(pool, 0, sizeof(*pool));
	if (cidr->addr.family != NET_V4 || cidr->prefix < POOL_PREFIX_MIN ||
		cidr->prefix > POOL_PREFIX_MAX) {
		net_cidr_format(cidr, text);
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL,
			"the pool %s is no IPv4 block from /%u to /%u", text, POOL_PREFIX_MIN,
			POOL_PREFIX_MAX);
	}
	pool->cidr = *cidr;
	pool->n = (UINT32_C(1) << (32 - cidr->prefix)) / NET_SLOT_ADDRESSES;
	pool->used = calloc(pool->n, 1);
	if (!pool->used)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the network pool");
	return 0;
}

void net_pool_deinit(struct net_pool *pool)
{
	free(pool->used);
	memset(pool, 0, sizeof(*pool));
}

void net_pool_slot(const struct net_pool *pool, uint32_t index, const char *name, struct net_slot *ret)
{
	uint32_t base = (uint32_t)pool->cidr.addr.lo + index * NET_SLOT_ADDRESSES;
	uint64_t h = hash(name);

	if (name != ret->name)
		(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
	ret->index = index;
	ret->gateway = base + 1;
	ret->guest = base + 2;
	ret->link_host = base + 4;
	ret->link_slot = base + 5;
	ret->cid = NET_CID_FIRST + index;
	/* a clone in another slot has another MAC; 0x02c7 with another third byte is no gateway's */
	ret->guest_mac[0] = 0x02;
	ret->guest_mac[1] = 0xc8;
	for (unsigned int i = 2; i < NET_MAC_SIZE; i++)
		ret->guest_mac[i] = (uint8_t)(h >> (8 * i));
}

int net_pool_take(struct net_pool *pool, const char *key, struct net_slot *ret, struct err *reterr)
{
	char name[NET_SLOT_NAME_SIZE];

	for (uint32_t i = 0; i < pool->n; i++) {
		uint32_t index = (pool->next + i) % pool->n;

		if (pool->used[index])
			continue;
		pool->used[index] = 1;
		pool->taken++;
		pool->next = (index + 1) % pool->n;
		net_slot_name(key, name);
		net_pool_slot(pool, index, name, ret);
		return 0;
	}
	(void)err_set(reterr, FAIL_NETWORK_POOL_EMPTY, ENOSPC, "all %u network slots are taken", pool->n);
	err_add(reterr, "slots", "%u", pool->n);
	return -ENOSPC;
}

bool net_pool_mark(struct net_pool *pool, uint32_t address, uint32_t *ret_index)
{
	struct net_addr addr = net_addr_v4(address);

	if (!net_cidr_has(&pool->cidr, &addr))
		return false;
	*ret_index = (address - (uint32_t)pool->cidr.addr.lo) / NET_SLOT_ADDRESSES;
	if (!pool->used[*ret_index]) {
		pool->used[*ret_index] = 1;
		pool->taken++;
	}
	return true;
}

void net_pool_release(struct net_pool *pool, uint32_t index)
{
	if (index >= pool->n || !pool->used[index])
		return;
	pool->used[index] = 0;
	pool->taken--;
}

bool net_pool_is_taken(const struct net_pool *pool, uint32_t index)
{
	return index < pool->n && pool->used[index];
}
