/* SPDX-License-Identifier: Apache-2.0
 *
 * The resolver of the sandboxes: answers on a socket in each slot (from croft-node-helper), asks the host's own name
 * servers. A name is judged by the sandbox's policy; private addresses are stripped from answers; an address that is
 * answered for an allowed name is made reachable by the helper before the guest hears of it. What the guest asks is
 * hostile: bounded in rate, length and number under way (network/dns.h).
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "network/policy.h"
#include "network/ruleset.h"

struct event_base;
struct helper_link;
struct resolver;

struct resolver_counts {
	uint64_t questions, answered, refused, too_many, stripped, failed;
};

/* `helper` may be NULL in a test: then nothing is pinned. */
int resolver_new(struct resolver **ret, struct event_base *base, struct helper_link *helper, struct err *reterr);
/* After the helper's link was freed. What was asked and has no answer ends on the next turn of the base. */
void resolver_free(struct resolver *resolver);
/* Takes the socket (UDP, non-blocking), in any case; copies the policy. Another for the same sandbox replaces it, and
 * inherits what it answered. */
int resolver_add(struct resolver *resolver, const char *sandbox, int fd, const struct net_policy *policy);
/* Another policy for what is answered from now on, also to questions that are under way. 0, -ENOENT: no socket of this
 * sandbox, -ENOMEM: the former holds. */
int resolver_set_policy(struct resolver *resolver, const char *sandbox, const struct net_policy *policy);
/* The addresses that were answered for names which `policy` allows, and may still be in use; at most `max`. */
size_t resolver_pins(const struct resolver *resolver, const char *sandbox, const struct net_policy *policy,
	struct net_pin *ret, size_t max);
void resolver_remove(struct resolver *resolver, const char *sandbox);
void resolver_count(const struct resolver *resolver, struct resolver_counts *ret);
/* Asks this server instead of the host's: "address:port".. */
int resolver_set_upstream(struct resolver *resolver, const char *server);
