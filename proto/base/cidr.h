/* SPDX-License-Identifier: Apache-2.0
 *
 * Internet addresses, CIDR blocks and sets of addresses with exact semantics. Pure.
 *
 * A block is taken as it is written or not at all: a prefix beyond the family's width, host bits that are set, a
 * number that is not in its shortest form and an IPv4 address in IPv6 clothes (::ffff:a.b.c.d) are INVALID_CIDR, for
 * each of them means something else to some program. A set is a sorted list of disjoint, not adjacent ranges: the
 * same addresses always have the same form.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define NET_ADDR_TEXT 46 /* INET6_ADDRSTRLEN */
#define NET_CIDR_TEXT (NET_ADDR_TEXT + 4)

enum net_family { NET_V4 = 4, NET_V6 = 6 };

/* Host byte order; IPv4 in the lower 32 bits of `lo`. */
struct net_addr {
	enum net_family family;
	uint64_t hi, lo;
};

struct net_cidr {
	struct net_addr addr;
	unsigned int prefix;
};

struct net_range {
	struct net_addr first, last; /* both belong to it */
};

struct net_set {
	struct net_range *items;
	size_t n;
};

static inline struct net_addr net_addr_v4(uint32_t value)
{
	return (struct net_addr){ .family = NET_V4, .lo = value };
}
/* 0 or -EINVAL. */
int net_addr_parse(const char *text, struct net_addr *ret);
void net_addr_format(const struct net_addr *addr, char ret[static NET_ADDR_TEXT]);
/* <0, 0, >0; every IPv4 address is below every IPv6 address. */
int net_addr_compare(const struct net_addr *a, const struct net_addr *b);

/* "10.0.0.0/8", "2001:db8::/32", or an address alone (/32, /128). INVALID_CIDR. */
int net_cidr_parse(const char *text, struct net_cidr *ret, struct err *reterr);
void net_cidr_format(const struct net_cidr *cidr, char ret[static NET_CIDR_TEXT]);
struct net_range net_cidr_range(const struct net_cidr *cidr);
bool net_cidr_has(const struct net_cidr *cidr, const struct net_addr *addr);
bool net_cidr_overlaps(const struct net_cidr *a, const struct net_cidr *b);

/* The union of the blocks. 0 or -ENOMEM. */
int net_set_make(const struct net_cidr *cidrs, size_t n, struct net_set *ret);
void net_set_deinit(struct net_set *set);
bool net_set_has(const struct net_set *set, const struct net_addr *addr);
