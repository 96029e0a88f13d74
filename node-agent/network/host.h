/* SPDX-License-Identifier: Apache-2.0
 *
 * The network of a whole host: its rules, its pool, and every slot that exists. Root, one thread, no loop: the caller
 * calls net_host_tick() now and then.
 *
 *   <run>/netns/<name>   a slot's namespace
 *   <run>/slots/<name>   whose it is, "<index> <sandbox> <generation>"; a slot without is nobody's
 *
 * Slots are made ahead with a policy that denies all, get a sandbox by a change of their rules, and are never used
 * a second time. What an earlier life of this process left is found in the kernel and in the directories: whose owner
 * is on record is kept, the rest is removed behind, a few at each tick, and its addresses are free only then.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "network/make.h"

struct net_host;

struct net_host_config {
	const char *run;
	struct net_cidr pool;
	struct net_owner owner;
	struct net_limits limits;
	uint32_t spares; /* slots made ahead */
};

/* POOL_OVERLAPS_ROUTE, NETWORK_UNSUPPORTED, NETWORK_RULES_FAILED, CONFIG_INVALID, IO_FAILED. */
int net_host_new(struct net_host **ret, const struct net_host_config *config, struct err *reterr);
/* The slots live on. */
struct net_host *net_host_free(struct net_host *host);
DEFINE_CLEANUP(struct net_host, net_host_free)
/* Takes away all that hosts of this run directory made: slots in use too, the host's rules, the directory itself; and
 * forwarding where it was off before. The first failure is returned, the others are logged, and the rest is tried; the
 * directory stays then, for the next call. No net_host may be open there. */
int net_host_clear(const struct net_host_config *config, struct err *reterr);

struct net_host_slot {
	struct net_slot slot;
	char sandbox[ID_SIZE];
	uint64_t generation;
};

/* A slot for the sandbox with this policy in force; the same again when it has one of this generation, and -EEXIST
 * (NETWORK_SLOT_FAILED) when it has one of another. *ret is valid until the next call. NETWORK_POOL_EMPTY. */
int net_host_take(struct net_host *host, const char *sandbox, uint64_t generation, const struct net_policy *policy,
	const struct net_host_slot **ret, struct err *reterr);
/* NULL: it has none. */
const struct net_host_slot *net_host_find(const struct net_host *host, const char *sandbox);
/* `at` 0, 1, ...; NULL behind the last. */
const struct net_host_slot *net_host_list(const struct net_host *host, size_t at);
/* 0 also when there is none. After a failure the sweep goes on with it; its sandbox has it no more. */
int net_host_give_back(struct net_host *host, const char *sandbox, struct err *reterr);
int net_host_set_policy(struct net_host *host, const struct net_host_slot *slot, const struct net_policy *policy,
	const struct net_pin *pins, size_t n_pins, struct err *reterr);
/* Those inside the fence are left out. */
int net_host_pin(struct net_host *host, const struct net_host_slot *slot, const struct net_pin *pins, size_t n_pins,
	struct err *reterr);
const char *net_host_netns_dir(const struct net_host *host);

/* Removes at most a handful of stale slots, or makes one spare. true: there is more to do. */
bool net_host_tick(struct net_host *host);

struct net_host_counts {
	uint32_t slots, taken, spare, stale;
};
void net_host_count(const struct net_host *host, struct net_host_counts *ret);
