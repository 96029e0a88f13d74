/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sandbox's tenant wants it to reach: lists of CIDR blocks and of host names. Pure. Checked once, by the
 * functions that add to a list; what came through is safe to act on for the scheduler, the node and its helper. How
 * the lists are judged, with the node owner's word above them, stands in node-agent/network/policy.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/cidr.h"
#include "base/err.h"

#define NET_RULES_MAX 256  /* of one list */
#define NET_NAMES_MAX 128  /* of one list */
#define NET_NAME_SIZE 254  /* 253 characters and NUL */

struct net_policy {
	bool internet; /* what no rule names is allowed */
	struct net_cidr *allow, *deny;
	size_t n_allow, n_deny;
	char (*allow_names)[NET_NAME_SIZE], (*deny_names)[NET_NAME_SIZE];
	size_t n_allow_names, n_deny_names;
};

void net_policy_deinit(struct net_policy *policy);
/* Adds a CIDR block, an address or a name ("example.com", "*.example.com", lower case) to a list. INVALID_CIDR
 * where it has only digits, dots, colons and a slash; INVALID_ARGUMENT for a bad name or a list that is full. */
int net_policy_allow(struct net_policy *policy, const char *text, struct err *reterr);
int net_policy_deny(struct net_policy *policy, const char *text, struct err *reterr);
/* Nothing is allowed but what a rule allows: no internet, or all of IPv4 is denied. */
bool net_policy_is_closed(const struct net_policy *policy);
/* 0 or -ENOMEM; *ret is the caller's. */
int net_policy_copy(const struct net_policy *policy, struct net_policy *ret);
/* The same rules in the same order. */
bool net_policy_is_equal(const struct net_policy *a, const struct net_policy *b);

/* Is it a host name in the form of RFC 1123, lower case; with `wildcard` also "*." before it? */
bool net_name_is_valid(const char *name, bool wildcard);
