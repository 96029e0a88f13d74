/* SPDX-License-Identifier: Apache-2.0
 *
 * See policy.h.
 */
#include "network/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

#define V4(a, b, c, d, p)                                                                          \
	{                                                                                          \
		.addr = { .family = NET_V4,                                                        \
			.lo = (uint64_t)(a) << 24 | (uint64_t)(b) << 16 | (uint64_t)(c) << 8 | (d) }, \
		.prefix = (p)                                                                      \
	}
#define V6(h, l, p)                                                                                \
	{                                                                                          \
		.addr = { .family = NET_V6, .hi = UINT64_C(h), .lo = UINT64_C(l) }, .prefix = (p)  \
	}

/* The special-purpose registries of IANA, and the metadata addresses of clouds, which are named one by one even
 * where a larger block has them: whoever narrows the block shall not open the address. */
/* clang-format off */
static const struct net_cidr fence[] = {
	V4(0, 0, 0, 0, 8),        /* this network */
	V4(10, 0, 0, 0, 8),       /* private */
	V4(100, 64, 0, 0, 10),    /* shared: carriers, Tailscale, pods */
	V4(127, 0, 0, 0, 8),      /* loopback */
	V4(169, 254, 0, 0, 16),   /* link-local */
	V4(172, 16, 0, 0, 12),    /* private */
	V4(192, 0, 0, 0, 24),     /* protocol assignments */
	V4(192, 0, 2, 0, 24),     /* documentation */
	V4(192, 88, 99, 0, 24),   /* 6to4 relays */
	V4(192, 168, 0, 0, 16),   /* private */
	V4(198, 18, 0, 0, 15),    /* benchmarks; our own pool stands there */
	V4(198, 51, 100, 0, 24),  /* documentation */
	V4(203, 0, 113, 0, 24),   /* documentation */
	V4(224, 0, 0, 0, 4),      /* multicast */
	V4(240, 0, 0, 0, 4),      /* reserved, broadcast */
	V4(169, 254, 169, 254, 32), /* AWS, GCP, Azure, Oracle, DigitalOcean, Hetzner, OpenStack, ... */
	V4(169, 254, 169, 253, 32), /* AWS: resolver */
	V4(169, 254, 169, 123, 32), /* AWS: time */
	V4(169, 254, 170, 2, 32),   /* AWS: credentials of ECS tasks */
	V4(169, 254, 170, 23, 32),  /* AWS: credentials of EKS pods */
	V4(169, 254, 42, 42, 32),   /* Scaleway */
	V4(169, 254, 0, 23, 32),    /* Tencent Cloud */
	V4(169, 254, 10, 10, 32),   /* Tencent Cloud */
	V4(100, 100, 100, 200, 32), /* Alibaba Cloud */
	V4(100, 88, 222, 5, 32),    /* Tencent Cloud */
	V4(192, 0, 0, 192, 32),     /* Oracle Cloud, classic */
	V4(168, 63, 129, 16, 32),   /* Azure: wire server; a public address */
	V6(0x0000000000000000, 0x0000000000000000, 96),  /* unspecified, loopback, IPv4-compatible */
	V6(0x0000000000000000, 0x0000ffff00000000, 96),  /* IPv4-mapped */
	V6(0x0000000000000000, 0xffff000000000000, 96),  /* IPv4-translated */
	V6(0x0064ff9b00000000, 0x0000000000000000, 96),  /* NAT64 */
	V6(0x0064ff9b00010000, 0x0000000000000000, 48),  /* NAT64, local */
	V6(0x0100000000000000, 0x0000000000000000, 64),  /* discard */
	V6(0x2001000000000000, 0x0000000000000000, 23),  /* protocol assignments, Teredo, ORCHID */
	V6(0x20010db800000000, 0x0000000000000000, 32),  /* documentation */
	V6(0x2002000000000000, 0x0000000000000000, 16),  /* 6to4 */
	V6(0x3fff000000000000, 0x0000000000000000, 20),  /* documentation */
	V6(0x5f00000000000000, 0x0000000000000000, 16),  /* segment routing */
	V6(0xfc00000000000000, 0x0000000000000000, 7),   /* unique local */
	V6(0xfe80000000000000, 0x0000000000000000, 10),  /* link-local */
	V6(0xfec0000000000000, 0x0000000000000000, 10),  /* site-local */
	V6(0xff00000000000000, 0x0000000000000000, 8),   /* multicast */
	V6(0xfd00ec2000000000, 0x0000000000000254, 128), /* AWS: metadata */
	V6(0xfd00ec2000000000, 0x0000000000000253, 128), /* AWS: resolver */
	V6(0xfd00ec2000000000, 0x0000000000000023, 128), /* AWS: credentials of EKS pods */
	V6(0xfd2000ce00000000, 0x0000000000000254, 128), /* GCP */
	V6(0xfd00c10000000000, 0x00000000a9fea9fe, 128), /* Oracle Cloud */
	V6(0xfd00004200000000, 0x0000000000000042, 128), /* Scaleway */
	V6(0xfe80000000000000, 0x00000000a9fea9fe, 128), /* OpenStack */
};
/* clang-format on */

const struct net_cidr *net_fence(size_t *ret_n)
{
	*ret_n = ARRAY_LEN(fence);
	return fence;
}

bool net_is_fenced(const struct net_addr *addr)
{
	for (size_t i = 0; i < ARRAY_LEN(fence); i++)
		if (net_cidr_has(&fence[i], addr))
			return true;
	return false;
}

/* ---- names ---- */

bool net_name_matches(const char *rule, const char *name)
{
	size_t have = strlen(name), want;

	if (strncmp(rule, "*.", 2) != 0)
		return !strcmp(rule, name);
	want = strlen(rule + 1);
	return have > want && !strcmp(name + have - want, rule + 1);
}

static bool any_matches(char (*rules)[NET_NAME_SIZE], size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (net_name_matches(rules[i], name))
			return true;
	return false;
}

enum net_name_verdict net_judge_name(const struct net_policy *policy, const char *name)
{
	/* allow before deny, as with addresses */
	if (any_matches(policy->allow_names, policy->n_allow_names, name))
		return NET_NAME_PINNED;
	if (any_matches(policy->deny_names, policy->n_deny_names, name))
		return NET_NAME_REFUSED;
	/* with allow blocks a name may lead into one of them */
	return !net_policy_is_closed(policy) || policy->n_allow > 0 ? NET_NAME_PLAIN : NET_NAME_REFUSED;
}

/* ---- the owner's openings ---- */

static int full(struct err *reterr, const char *text)
{
	return err_set(reterr, FAIL_CONFIG_INVALID, E2BIG, "allow_private: too many, at \"%.60s\"", text);
}

static int no_memory(struct err *reterr)
{
	return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for allow_private");
}

static int bad_opening(struct err *reterr, const char *text)
{
	return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL,
		"allow_private: \"%.60s\" is not CIDR:PORT or CIDR:PORT/udp", text);
}

static int parse_opening(const char *text, struct net_opening *ret, struct err *reterr)
{
	const char *colon = strrchr(text, ':');
	char cidr[NET_CIDR_TEXT + 2];
	const char *begin = text;
	unsigned long port;
	char *end;
	size_t n;

	if (!colon || colon == text || colon[1] < '0' || colon[1] > '9')
		return bad_opening(reterr, text);
	n = (size_t)(colon - text);
	if (*begin == '[' && colon[-1] == ']') {
		begin++;
		n -= 2;
	}
	if (n >= sizeof(cidr))
		return bad_opening(reterr, text);
	memcpy(cidr, begin, n);
	cidr[n] = '\0';
	port = strtoul(colon + 1, &end, 10);
	if (port == 0 || port > UINT16_MAX)
		return bad_opening(reterr, text);
	ret->port = (uint16_t)port;
	if (!strcmp(end, "") || !strcmp(end, "/tcp"))
		ret->protocol = NET_PROTOCOL_TCP;
	else if (!strcmp(end, "/udp"))
		ret->protocol = NET_PROTOCOL_UDP;
	else
		return bad_opening(reterr, text);
	return net_cidr_parse(cidr, &ret->cidr, reterr);
}

int net_owner_parse(const char *text, struct net_owner *ret, struct err *reterr)
{
	CLEANUP_FREE char *copy = strdup(text);
	char *word, *rest;
	int r;

	ret->n = 0;
	if (!copy)
		return no_memory(reterr);
	for (word = strtok_r(copy, ", \t", &rest); word; word = strtok_r(NULL, ", \t", &rest)) {
		if (ret->n >= NET_OWNER_MAX)
			return full(reterr, word);
		r = parse_opening(word, &ret->items[ret->n], reterr);
		if (r < 0)
			return r;
		ret->n++;
	}
	return 0;
}

/* ---- the verdict ---- */

static void mix(uint64_t *hash, const void *data, size_t size)
{
	*hash = fnv1a(*hash, data, size);
}

static void mix_cidr(uint64_t *hash, const struct net_cidr *cidr)
{
	uint64_t words[4] = { (uint64_t)cidr->addr.family, cidr->addr.hi, cidr->addr.lo, cidr->prefix };

	mix(hash, words, sizeof(words));
}

/* Lists are separated by their lengths. */
static uint64_t policy_hash(const struct net_owner *owner, const struct net_policy *policy)
{
	uint64_t hash = FNV1A_BASIS;
	uint64_t head[6] = { policy->internet, owner->n, policy->n_allow, policy->n_deny,
		policy->n_allow_names, policy->n_deny_names };

	mix(&hash, head, sizeof(head));
	for (size_t i = 0; i < owner->n; i++) {
		uint64_t words[2] = { owner->items[i].protocol, owner->items[i].port };

		mix_cidr(&hash, &owner->items[i].cidr);
		mix(&hash, words, sizeof(words));
	}
	for (size_t i = 0; i < policy->n_allow; i++)
		mix_cidr(&hash, &policy->allow[i]);
	for (size_t i = 0; i < policy->n_deny; i++)
		mix_cidr(&hash, &policy->deny[i]);
	for (size_t i = 0; i < policy->n_allow_names; i++)
		mix(&hash, policy->allow_names[i], strlen(policy->allow_names[i]) + 1);
	for (size_t i = 0; i < policy->n_deny_names; i++)
		mix(&hash, policy->deny_names[i], strlen(policy->deny_names[i]) + 1);
	return hash;
}

int net_judge_init(
	struct net_judge *judge, const struct net_owner *owner, const struct net_policy *policy)
{
	int r;

	memset(judge, 0, sizeof(*judge));
	judge->owner = *owner;
	judge->internet = policy->internet;
	judge->hash = policy_hash(owner, policy);
	r = net_set_make(fence, ARRAY_LEN(fence), &judge->fence);
	if (r == 0)
		r = net_set_make(policy->allow, policy->n_allow, &judge->allow);
	if (r == 0)
		r = net_set_make(policy->deny, policy->n_deny, &judge->deny);
	if (r < 0)
		net_judge_deinit(judge);
	return r;
}

void net_judge_deinit(struct net_judge *judge)
{
	net_set_deinit(&judge->fence);
	net_set_deinit(&judge->allow);
	net_set_deinit(&judge->deny);
}

bool net_verdict_is_allowed(enum net_verdict verdict)
{
	switch (verdict) {
	case NET_OWNER_ALLOWS:
	case NET_TENANT_ALLOWS:
	case NET_NAME_ALLOWS:
	case NET_DEFAULT_ALLOWS:
		return true;
	case NET_FENCED:
	case NET_TENANT_DENIES:
	case NET_DEFAULT_DENIES:
		break;
	}
	return false;
}

enum net_verdict net_judge(const struct net_judge *judge, const struct net_addr *addr, uint8_t protocol,
	uint16_t port, bool pinned)
{
	for (size_t i = 0; i < judge->owner.n; i++) {
		const struct net_opening *opening = &judge->owner.items[i];

		if (opening->protocol == protocol && opening->port == port &&
			net_cidr_has(&opening->cidr, addr))
			return NET_OWNER_ALLOWS;
	}
	if (net_set_has(&judge->fence, addr))
		return NET_FENCED;
	if (net_set_has(&judge->allow, addr))
		return NET_TENANT_ALLOWS;
	if (pinned)
		return NET_NAME_ALLOWS;
	if (net_set_has(&judge->deny, addr))
		return NET_TENANT_DENIES;
	return judge->internet ? NET_DEFAULT_ALLOWS : NET_DEFAULT_DENIES;
}
