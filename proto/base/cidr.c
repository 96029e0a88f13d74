/* SPDX-License-Identifier: Apache-2.0
 *
 * See cidr.h.
 */
#include "base/cidr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define V4_BITS 32u
#define V6_BITS 128u

static unsigned int bits_of(enum net_family family)
{
	return family == NET_V4 ? V4_BITS : V6_BITS;
}

static uint64_t read_be64(const uint8_t *bytes)
{
	uint64_t value = 0;

	for (unsigned int i = 0; i < sizeof(value); i++)
		value = value << 8 | bytes[i];
	return value;
}

static void write_be64(uint64_t value, uint8_t *bytes)
{
	for (unsigned int i = 0; i < sizeof(value); i++)
		bytes[i] = (uint8_t)(value >> (56 - 8 * i));
}

int net_addr_parse(const char *text, struct net_addr *ret)
{
	struct in_addr v4;
	struct in6_addr v6;

	/* not inet_aton(), to which 010.1 and 0x7f000001 are addresses as well */
	if (inet_pton(AF_INET, text, &v4) == 1)
		*ret = net_addr_v4(ntohl(v4.s_addr));
	else if (inet_pton(AF_INET6, text, &v6) == 1)
		*ret = (struct net_addr){ .family = NET_V6,
			.hi = read_be64(v6.s6_addr),
			.lo = read_be64(v6.s6_addr + 8) };
	else
		return -EINVAL;
	return 0;
}

void net_addr_format(const struct net_addr *addr, char ret[static NET_ADDR_TEXT])
{
	uint8_t bytes[16];

	if (addr->family == NET_V4) {
		struct in_addr v4 = { .s_addr = htonl((uint32_t)addr->lo) };

		(void)inet_ntop(AF_INET, &v4, ret, NET_ADDR_TEXT);
		return;
	}
	write_be64(addr->hi, bytes);
	write_be64(addr->lo, bytes + 8);
	(void)inet_ntop(AF_INET6, bytes, ret, NET_ADDR_TEXT);
}

int net_addr_compare(const struct net_addr *a, const struct net_addr *b)
{
	if (a->family != b->family)
		return a->family < b->family ? -1 : 1;
	if (a->hi != b->hi)
		return a->hi < b->hi ? -1 : 1;
	if (a->lo != b->lo)
		return a->lo < b->lo ? -1 : 1;
	return 0;
}

/* The bits of an address that a prefix leaves free. */
static void host_mask(enum net_family family, unsigned int prefix, uint64_t *hi, uint64_t *lo)
{
	unsigned int free_bits = bits_of(family) - prefix;

	*lo = free_bits >= 64 ? UINT64_MAX : (UINT64_C(1) << free_bits) - 1;
	if (free_bits <= 64)
		*hi = 0;
	else
		*hi = free_bits == V6_BITS ? UINT64_MAX : (UINT64_C(1) << (free_bits - 64)) - 1;
}

/* Decimal, no sign, no leading zero, at most the family's width. */
static int parse_prefix(const char *text, enum net_family family, unsigned int *ret)
{
	unsigned int value = 0;
	size_t n = strspn(text, "0123456789");

	if (n == 0 || n > 3 || text[n] != '\0' || (n > 1 && text[0] == '0'))
		return -EINVAL;
	for (size_t i = 0; i < n; i++)
		value = value * 10 + (unsigned int)(text[i] - '0');
	if (value > bits_of(family))
		return -EINVAL;
	*ret = value;
	return 0;
}

static bool is_mapped_v4(const struct net_addr *addr)
{
	return addr->family == NET_V6 && addr->hi == 0 && addr->lo >> 32 == 0xffff;
}

static int invalid(struct err *reterr, const char *text, const char *why)
{
	(void)err_set(reterr, FAIL_INVALID_CIDR, EINVAL, "\"%.60s\" is no CIDR block: %s", text, why);
	err_add(reterr, "cidr", "%.60s", text);
	return -EINVAL;
}

int net_cidr_parse(const char *text, struct net_cidr *ret, struct err *reterr)
{
	const char *slash = strchr(text, '/');
	char address[NET_ADDR_TEXT];
	struct net_cidr cidr;
	uint64_t hi, lo;
	size_t n = slash ? (size_t)(slash - text) : strlen(text);

	if (n == 0 || n >= sizeof(address))
		return invalid(reterr, text, "there is no address");
	memcpy(address, text, n);
	address[n] = '\0';
	if (net_addr_parse(address, &cidr.addr) < 0)
		return invalid(reterr, text, "the address is not valid");
	if (is_mapped_v4(&cidr.addr))
		return invalid(reterr, text, "write the IPv4 address itself");
	cidr.prefix = bits_of(cidr.addr.family);
	if (slash && parse_prefix(slash + 1, cidr.addr.family, &cidr.prefix) < 0)
		return invalid(reterr, text, "the prefix length is not valid");
	host_mask(cidr.addr.family, cidr.prefix, &hi, &lo);
	if ((cidr.addr.hi & hi) || (cidr.addr.lo & lo))
		return invalid(reterr, text, "bits behind the prefix are set");
	*ret = cidr;
	return 0;
}

void net_cidr_format(const struct net_cidr *cidr, char ret[static NET_CIDR_TEXT])
{
	char address[NET_ADDR_TEXT];

	net_addr_format(&cidr->addr, address);
	(void)snprintf(ret, NET_CIDR_TEXT, "%s/%u", address, cidr->prefix % 1000);
}

struct net_range net_cidr_range(const struct net_cidr *cidr)
{
	struct net_range range = { .first = cidr->addr, .last = cidr->addr };
	uint64_t hi, lo;

	host_mask(cidr->addr.family, cidr->prefix, &hi, &lo);
	if (cidr->addr.family == NET_V4)
		hi = 0;
	range.last.hi |= hi;
	range.last.lo |= lo;
	return range;
}

static bool range_has(const struct net_range *range, const struct net_addr *addr)
{
	return net_addr_compare(&range->first, addr) <= 0 && net_addr_compare(addr, &range->last) <= 0;
}

bool net_cidr_has(const struct net_cidr *cidr, const struct net_addr *addr)
{
	struct net_range range = net_cidr_range(cidr);

	return range_has(&range, addr);
}

bool net_cidr_overlaps(const struct net_cidr *a, const struct net_cidr *b)
{
	/* two blocks overlap only where one holds the other */
	return net_cidr_has(a, &b->addr) || net_cidr_has(b, &a->addr);
}

static int compare_ranges(const void *a, const void *b)
{
	return net_addr_compare(
		&((const struct net_range *)a)->first, &((const struct net_range *)b)->first);
}

/* Does `next` begin in `range` or right behind it? */
static bool touches(const struct net_range *range, const struct net_range *next)
{
	struct net_addr behind = range->last;

	if (range->first.family != next->first.family)
		return false;
	if (++behind.lo == 0 && ++behind.hi == 0)
		return true; /* it ends with the last address there is */
	return net_addr_compare(&next->first, &behind) <= 0;
}

int net_set_make(const struct net_cidr *cidrs, size_t n, struct net_set *ret)
{
	struct net_range *items;
	size_t out = 0;

	*ret = (struct net_set){ .n = 0 };
	if (n == 0)
		return 0;
	items = calloc(n, sizeof(*items));
	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		items[i] = net_cidr_range(&cidrs[i]);
	qsort(items, n, sizeof(*items), compare_ranges);
	for (size_t i = 1; i < n; i++) {
		if (!touches(&items[out], &items[i]))
			items[++out] = items[i];
		else if (net_addr_compare(&items[i].last, &items[out].last) > 0)
			items[out].last = items[i].last;
	}
	*ret = (struct net_set){ .items = items, .n = out + 1 };
	return 0;
}

void net_set_deinit(struct net_set *set)
{
	free(set->items);
	*set = (struct net_set){ .n = 0 };
}

bool net_set_has(const struct net_set *set, const struct net_addr *addr)
{
	size_t low = 0, high = set->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (net_addr_compare(&set->items[middle].last, addr) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < set->n && range_has(&set->items[low], addr);
}
