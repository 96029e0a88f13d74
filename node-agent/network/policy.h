/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sandbox may reach. Pure.
 *
 * Two people decide. The node owner opens private places (`allow_private`), exactly as written, and nobody else
 * can: the fence (private, local and reserved ranges, every cloud's metadata address) is closed to every sandbox
 * whatever its tenant asks. The tenant decides about the rest. In order, the first that matches is the verdict:
 *
 *   1. owner      allow_private has this address, protocol and port        allowed
 *   2. fence      the address is inside it                                 denied
 *   3. tenant     an allow block has it                                    allowed
 *   4. name       it was answered for an allowed name, and is still valid  allowed
 *   5. tenant     a deny block has it                                      denied
 *   6. default    `internet`
 *
 * So the owner outranks the tenant in both directions: no deny block closes what the owner opened, no allow block or
 * name opens what the owner did not. Deny names are judged by the resolver (network/dns.h), which does not answer
 * them. A name is never believed from what the guest says (SNI, Host): an address is allowed because our own
 * resolver answered it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/net-policy.h"

#define NET_OWNER_MAX 64
#define NET_PROTOCOL_TCP 6u
#define NET_PROTOCOL_UDP 17u

/* "10.1.2.0/24:443" is TCP, "10.1.2.3:53/udp", "[fd00::1]:443"; a port is a must. */
struct net_opening {
	struct net_cidr cidr;
	uint8_t protocol;
	uint16_t port;
};

struct net_owner {
	struct net_opening items[NET_OWNER_MAX];
	size_t n;
};

/* Comma- or space-separated openings. INVALID_CIDR, CONFIG_INVALID. */
int net_owner_parse(const char *text, struct net_owner *ret, struct err *reterr);

/* The closed ranges; static. */
const struct net_cidr *net_fence(size_t *ret_n);
bool net_is_fenced(const struct net_addr *addr);

enum net_verdict {
	NET_OWNER_ALLOWS,
	NET_FENCED,
	NET_TENANT_ALLOWS,
	NET_NAME_ALLOWS,
	NET_TENANT_DENIES,
	NET_DEFAULT_ALLOWS,
	NET_DEFAULT_DENIES,
};
bool net_verdict_is_allowed(enum net_verdict verdict);

/* A policy made ready: sets instead of lists. */
struct net_judge {
	struct net_owner owner;
	struct net_set fence, allow, deny;
	bool internet;
	uint64_t hash; /* of everything that a verdict hangs on, names too */
};
int net_judge_init(struct net_judge *judge, const struct net_owner *owner, const struct net_policy *policy);
void net_judge_deinit(struct net_judge *judge);
/* `pinned`: the resolver answered this address for an allowed name. */
enum net_verdict net_judge(const struct net_judge *judge, const struct net_addr *addr, uint8_t protocol,
	uint16_t port, bool pinned);

/* Does a rule ("a.com" that name alone, "*.a.com" every name below it) match the lower-case name? */
bool net_name_matches(const char *rule, const char *name);

enum net_name_verdict { NET_NAME_PINNED, NET_NAME_PLAIN, NET_NAME_REFUSED };
/* PINNED: answered, and its addresses become reachable; PLAIN: answered, the addresses are judged as any; REFUSED:
 * on the deny list, or nothing that the answer could be good for: the internet is closed and no rule names it. */
enum net_name_verdict net_judge_name(const struct net_policy *policy, const char *name);
