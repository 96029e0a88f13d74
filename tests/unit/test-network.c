/* SPDX-License-Identifier: Apache-2.0
 *
 * node-agent/network, the pure part: CIDR blocks and sets against an oracle that looks at every address (R139), who
 * outranks whom, names, the pool (R125), the rules as text.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "lib/suite.h"
#include "network/nft.h"
#include "network/ruleset.h"

#define IDS 1000000u

static struct net_addr addr(const char *text)
{
	struct net_addr ret;

	ck_assert_msg(net_addr_parse(text, &ret) == 0, "%s", text);
	return ret;
}

/* ---- CIDR ---- */

/* Each cloud's metadata address, in both families, whatever a tenant allows. */
START_TEST(metadata_is_fenced)
{
	static const char *const addresses[] = { "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.42.42",
		"169.254.0.23", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd00:ec2::253",
		"fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42", "fe80::a9fe:a9fe",
		"64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::1", "::" };
	struct net_policy policy = { .internet = true };
	struct net_owner none = { .n = 0 };
	struct net_judge judge;

	ck_assert_int_eq(net_policy_allow(&policy, "::/0", NULL), 0);
	ck_assert_int_eq(net_policy_allow(&policy, "0.0.0.0/0", NULL), 0);
	ck_assert_int_eq(net_judge_init(&judge, &none, &policy), 0);
	for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
		struct net_addr addr;

		ck_assert_int_eq(net_addr_parse(addresses[i], &addr), 0);
		ck_assert_msg(net_is_fenced(&addr), "%s", addresses[i]);
		ck_assert_int_eq(net_judge(&judge, &addr, NET_PROTOCOL_TCP, 80, true), NET_FENCED);
	}
	net_judge_deinit(&judge);
	net_policy_deinit(&policy);
}
END_TEST

/* Two readings of the kernel's table of what was denied. */
START_TEST(denials_are_told_apart)
{
	struct net_counters before = { .n_refused = 3 }, now = { .n_refused = 4 };
	const struct net_denied a = { 1, 6, 80, 5 }, b = { 1, 6, 443, 9 }, c = { 1, 17, 80, 2 }, d = { 2, 6, 80, 1 };
	size_t which[NET_DENIED_MAX];

	before.refused[0] = a;
	before.refused[1] = b;
	before.refused[2] = c;
	now.refused[0] = d; /* new, and the others in another order */
	now.refused[1] = c; /* no more of it */
	now.refused[2] = a;
	now.refused[2].packets = 7;
	now.refused[3] = b;
	now.refused[3].packets = 1; /* forgotten after an hour, and begun again */
	ck_assert_uint_eq(net_denied_since(&before, &now, which), 3);
	ck_assert(which[0] == 0 && which[1] == 2 && which[2] == 3);
	ck_assert_uint_eq(net_denied_packets(&before, &now.refused[0]), 1);
	ck_assert_uint_eq(net_denied_packets(&before, &now.refused[2]), 2);
	ck_assert_uint_eq(net_denied_packets(&before, &now.refused[3]), 1);
	ck_assert_uint_eq(net_denied_since(&now, &now, which), 0);
}
END_TEST

START_TEST(cidr_takes_what_is_exact)
{
	static const char *const good[] = { "0.0.0.0/0", "255.255.255.255/32", "240.0.0.0/4", "::/0", "10.0.0.0/8",
		"1.2.3.4/32", "2001:db8::/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", "128.0.0.0/1" };
	char text[NET_CIDR_TEXT];
	struct net_cidr cidr;

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		struct err err = ERR_NULL;

		ck_assert_msg(net_cidr_parse(good[i], &cidr, &err) == 0, "%s: %s", good[i], err.msg);
		net_cidr_format(&cidr, text);
		ck_assert_str_eq(text, good[i]);
	}
	ck_assert_int_eq(net_cidr_parse("8.8.8.8", &cidr, NULL), 0);
	ck_assert_uint_eq(cidr.prefix, 32);
	ck_assert_int_eq(net_cidr_parse("2001:db8::1", &cidr, NULL), 0);
	ck_assert_uint_eq(cidr.prefix, 128);
}
END_TEST

START_TEST(cidr_refuses_the_rest)
{
	static const char *const bad[] = { "", "/", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/08",
		"10.0.0.0/-1", "10.0.0.0/8 ", " 10.0.0.0/8", "10.0.0.0/8/8", "10.0.0.1/8", "10/8", "010.0.0.0/8",
		"0x0a000000/8", "10.0.0/8", "256.0.0.0/8", "::/129", "2001:db8::1/32", "::ffff:10.0.0.0/104",
		"::ffff:169.254.169.254", "fe80::1%eth0/128", "fe80::%1/64", "10.0.0.0/8x", "10.0.0.0/99999999999",
		"1.2.3.4.5/8", "169.254.169.254/31.0" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err err = ERR_NULL;
		struct net_cidr cidr;

		ck_assert_msg(net_cidr_parse(bad[i], &cidr, &err) < 0, "%s", bad[i]);
		ck_assert_int_eq(err.code, FAIL_INVALID_CIDR);
		ck_assert_ptr_nonnull(err_field(&err, "cidr"));
	}
}
END_TEST

/* Random blocks in a /16, and every address of it and around it asked of the blocks themselves. */
START_TEST(sets_equal_the_oracle)
{
	struct rng rng = rng_seeded(139);

	for (int round = 0; round < 12; round++) {
		struct net_cidr cidrs[24];
		size_t n = rng_below(&rng, ARRAY_LEN(cidrs) + 1);
		struct net_set set;
		/* the first round ends at the last address there is */
		uint32_t base = round % 2 ? UINT32_C(0xffff0000) : UINT32_C(0x0a010000);

		for (size_t i = 0; i < n; i++) {
			unsigned int prefix = 16 + (unsigned int)rng_below(&rng, 17);
			uint32_t mask = prefix == 32 ? 0 : UINT32_MAX >> prefix;

			cidrs[i].addr = net_addr_v4((base | (uint32_t)rng_below(&rng, 65536)) & ~mask);
			cidrs[i].prefix = prefix;
		}
		ck_assert_int_eq(net_set_make(cidrs, n, &set), 0);
		for (uint64_t value = (uint64_t)base - 2; value <= (uint64_t)base + 65537; value++) {
			struct net_addr at = net_addr_v4((uint32_t)value);
			bool want = false;

			for (size_t i = 0; i < n && !want; i++)
				want = net_cidr_has(&cidrs[i], &at);
			if (net_set_has(&set, &at) != want) /* an assertion of check's writes to a file */
				ck_abort_msg("%llx", (unsigned long long)value);
		}
		for (size_t i = 1; i < set.n; i++) /* one form only: disjoint, not adjacent */
			ck_assert_uint_gt(set.items[i].first.lo, set.items[i - 1].last.lo + 1);
		net_set_deinit(&set);
	}
}
END_TEST

START_TEST(sets_at_the_edges)
{
	static const char *const texts[] = { "0.0.0.0/0", "255.255.255.255/32", "240.0.0.0/4", "::/0", "0.0.0.0/32" };
	struct net_cidr cidrs[ARRAY_LEN(texts)];
	struct net_addr low = addr("0.0.0.0"), high = addr("255.255.255.255"), six = addr("::"),
			top = addr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
	struct net_set set;

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		ck_assert_int_eq(net_cidr_parse(texts[i], &cidrs[i], NULL), 0);
	ck_assert_int_eq(net_set_make(cidrs, ARRAY_LEN(texts), &set), 0);
	ck_assert_uint_eq(set.n, 2); /* a family each: they never run into one another */
	ck_assert(net_set_has(&set, &low) && net_set_has(&set, &high));
	ck_assert(net_set_has(&set, &six) && net_set_has(&set, &top));
	net_set_deinit(&set);
	ck_assert_int_eq(net_set_make(&cidrs[1], 2, &set), 0);
	ck_assert_uint_eq(set.n, 1);
	ck_assert(!net_set_has(&set, &low) && net_set_has(&set, &high) && !net_set_has(&set, &six));
	net_set_deinit(&set);
	ck_assert_int_eq(net_set_make(NULL, 0, &set), 0);
	ck_assert(!net_set_has(&set, &low));
}
END_TEST

/* ---- the fence ---- */

START_TEST(fence_holds_what_is_private)
{
	static const char *const inside[] = { "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "127.0.0.1",
		"0.0.0.0", "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192",
		"100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "::1", "::",
		"::ffff:169.254.169.254", "fd00:ec2::254", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42",
		"fe80::a9fe:a9fe", "fe80::1", "ff02::1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001::1", "fec0::1" };
	static const char *const outside[] = { "8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.0", "11.0.0.0",
		"168.63.129.15", "168.63.129.17", "100.63.255.255", "100.128.0.0", "192.0.1.0", "198.20.0.0",
		"223.255.255.255", "2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888" };

	for (size_t i = 0; i < ARRAY_LEN(inside); i++) {
		struct net_addr at = addr(inside[i]);

		ck_assert_msg(net_is_fenced(&at), "%s", inside[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(outside); i++) {
		struct net_addr at = addr(outside[i]);

		ck_assert_msg(!net_is_fenced(&at), "%s", outside[i]);
	}
}
END_TEST

START_TEST(fence_is_made_of_exact_blocks)
{
	size_t n;
	const struct net_cidr *fence = net_fence(&n);

	for (size_t i = 0; i < n; i++) {
		char text[NET_CIDR_TEXT];
		struct net_cidr again;

		net_cidr_format(&fence[i], text);
		if (strncmp(text, "::", 2) != 0) /* the parser refuses mapped ones for a reason of its own */
			ck_assert_msg(net_cidr_parse(text, &again, NULL) == 0, "%s", text);
	}
}
END_TEST

/* ---- the verdict ---- */

static struct net_owner owner_of(const char *text)
{
	struct net_owner owner;
	struct err err = ERR_NULL;

	ck_assert_msg(net_owner_parse(text, &owner, &err) == 0, "%s", err.msg);
	return owner;
}

static void fill(struct net_policy *policy, const char *const *allow, const char *const *deny)
{
	for (; allow && *allow; allow++)
		ck_assert_int_eq(net_policy_allow(policy, *allow, NULL), 0);
	for (; deny && *deny; deny++)
		ck_assert_int_eq(net_policy_deny(policy, *deny, NULL), 0);
}

struct question {
	const char *address;
	uint8_t protocol;
	uint16_t port;
	bool pinned;
	enum net_verdict want;
};

static void ask(const struct net_owner *owner, const struct net_policy *policy, const struct question *list, size_t n)
{
	struct net_judge judge;

	ck_assert_int_eq(net_judge_init(&judge, owner, policy), 0);
	for (size_t i = 0; i < n; i++) {
		struct net_addr at = addr(list[i].address);
		enum net_verdict got = net_judge(&judge, &at, list[i].protocol, list[i].port, list[i].pinned);

		ck_assert_msg(got == list[i].want, "%s:%u: %d, not %d", list[i].address, list[i].port, (int)got,
			(int)list[i].want);
	}
	net_judge_deinit(&judge);
}

START_TEST(owner_outranks_in_both_directions)
{
	static const char *const allow[] = { "10.0.0.0/8", "169.254.169.254", "8.8.8.0/24", NULL };
	static const char *const deny[] = { "10.1.2.0/24", "0.0.0.0/0", NULL };
	static const struct question questions[] = {
		{ "10.1.2.3", 6, 443, false, NET_OWNER_ALLOWS }, /* whatever the tenant denies */
		{ "10.1.2.3", 6, 444, false, NET_FENCED },       /* exactly that port */
		{ "10.1.2.3", 17, 443, false, NET_FENCED },      /* and that protocol */
		{ "10.1.3.3", 6, 443, false, NET_FENCED },       /* and that block, whatever the tenant allows */
		{ "10.9.9.9", 17, 53, false, NET_OWNER_ALLOWS },
		{ "10.9.9.9", 6, 53, false, NET_FENCED },
		{ "169.254.169.254", 6, 80, false, NET_FENCED },
		{ "169.254.169.254", 6, 80, true, NET_FENCED }, /* nor does a name open it */
		{ "8.8.8.8", 6, 80, false, NET_TENANT_ALLOWS }, /* allow before deny */
		{ "9.9.9.9", 6, 80, true, NET_NAME_ALLOWS },
		{ "9.9.9.9", 6, 80, false, NET_TENANT_DENIES },
	};
	struct net_owner owner = owner_of("10.1.2.0/24:443, 10.9.9.9:53/udp");
	struct net_policy policy = { .internet = true };

	fill(&policy, allow, deny);
	ask(&owner, &policy, questions, ARRAY_LEN(questions));
	net_policy_deinit(&policy);
}
END_TEST

START_TEST(default_is_the_policys)
{
	static const struct question open[] = { { "8.8.8.8", 6, 80, false, NET_DEFAULT_ALLOWS },
		{ "192.168.1.1", 6, 80, false, NET_FENCED } };
	static const struct question shut[] = { { "8.8.8.8", 6, 80, false, NET_DEFAULT_DENIES },
		{ "8.8.8.8", 6, 80, true, NET_NAME_ALLOWS } };
	struct net_owner owner = { .n = 0 };
	struct net_policy policy = { .internet = true };

	ask(&owner, &policy, open, ARRAY_LEN(open));
	policy.internet = false;
	ask(&owner, &policy, shut, ARRAY_LEN(shut));
	ck_assert(net_verdict_is_allowed(NET_OWNER_ALLOWS) && net_verdict_is_allowed(NET_NAME_ALLOWS));
	ck_assert(net_verdict_is_allowed(NET_TENANT_ALLOWS) && net_verdict_is_allowed(NET_DEFAULT_ALLOWS));
	ck_assert(!net_verdict_is_allowed(NET_FENCED) && !net_verdict_is_allowed(NET_TENANT_DENIES) &&
		  !net_verdict_is_allowed(NET_DEFAULT_DENIES));
}
END_TEST

/* The order of policy.h written down once more, as slowly as can be. */
static bool oracle(const struct net_policy *policy, const struct net_addr *at)
{
	size_t n;
	const struct net_cidr *fence = net_fence(&n);

	for (size_t i = 0; i < n; i++)
		if (net_cidr_has(&fence[i], at))
			return false;
	for (size_t i = 0; i < policy->n_allow; i++)
		if (net_cidr_has(&policy->allow[i], at))
			return true;
	for (size_t i = 0; i < policy->n_deny; i++)
		if (net_cidr_has(&policy->deny[i], at))
			return false;
	return policy->internet;
}

START_TEST(verdict_equals_the_oracle)
{
	struct net_owner owner = { .n = 0 };
	struct rng rng = rng_seeded(5);

	for (int round = 0; round < 200; round++) {
		struct net_policy policy = { .internet = rng_below(&rng, 2) };
		struct net_judge judge;

		for (int i = 0; i < 12; i++) {
			unsigned int prefix = (unsigned int)rng_below(&rng, 33);
			uint32_t mask = prefix == 32 ? 0 : UINT32_MAX >> prefix;
			struct net_cidr cidr = { net_addr_v4((uint32_t)rng_u64(&rng) & ~mask), prefix };
			char text[NET_CIDR_TEXT];

			net_cidr_format(&cidr, text);
			ck_assert_int_eq(i % 2 ? net_policy_allow(&policy, text, NULL)
					       : net_policy_deny(&policy, text, NULL), 0);
		}
		ck_assert_int_eq(net_judge_init(&judge, &owner, &policy), 0);
		for (int i = 0; i < 400; i++) {
			const struct net_cidr *near = i % 2 ? &policy.allow[i % 6] : &policy.deny[i % 6];
			struct net_range range = net_cidr_range(near);
			/* most at the edges of what is written */
			uint32_t value = i < 100 ? (uint32_t)rng_u64(&rng)
						 : (uint32_t)(i % 3 ? range.first.lo : range.last.lo) +
							   (uint32_t)rng_below(&rng, 3) - 1;
			struct net_addr at = net_addr_v4(value);
			enum net_verdict verdict = net_judge(&judge, &at, 6, 443, false);

			if (net_verdict_is_allowed(verdict) != oracle(&policy, &at))
				ck_abort_msg("%llx: %d", (unsigned long long)at.lo, (int)verdict);
		}
		net_judge_deinit(&judge);
		net_policy_deinit(&policy);
	}
}
END_TEST

START_TEST(hash_knows_every_part)
{
	static const char *const changes[] = { "1.0.0.0/8", "example.com" };
	struct net_owner none = { .n = 0 }, some = owner_of("10.0.0.1:80");
	struct net_policy policy = { .internet = true };
	struct net_judge first, next;

	ck_assert_int_eq(net_judge_init(&first, &none, &policy), 0);
	ck_assert_int_eq(net_judge_init(&next, &none, &policy), 0);
	ck_assert_uint_eq(first.hash, next.hash);
	net_judge_deinit(&next);
	ck_assert_int_eq(net_judge_init(&next, &some, &policy), 0);
	ck_assert_uint_ne(first.hash, next.hash);
	net_judge_deinit(&next);
	for (size_t i = 0; i < 2 * ARRAY_LEN(changes); i++) {
		struct net_policy changed = { .internet = true };

		ck_assert_int_eq((i & 1) ? net_policy_allow(&changed, changes[i / 2], NULL)
					 : net_policy_deny(&changed, changes[i / 2], NULL), 0);
		ck_assert_int_eq(net_judge_init(&next, &none, &changed), 0);
		ck_assert_uint_ne(first.hash, next.hash);
		net_judge_deinit(&next);
		net_policy_deinit(&changed);
	}
	net_judge_deinit(&first);
}
END_TEST

START_TEST(openings_are_exact_or_refused)
{
	static const char *const bad[] = { "10.0.0.0/8", "10.0.0.0/8:", "10.0.0.0/8:0", "10.0.0.0/8:65536",
		"10.0.0.0/8:80/sctp", "10.0.0.1/8:80", ":80", "10.0.0.0/8:-1", "10.0.0.0/8:*", "example.com:80" };
	struct net_owner owner = owner_of(" 10.0.0.0/8:80,10.0.0.1:53/udp [fd00::1]:443\t10.0.0.2:1/tcp ");

	ck_assert_uint_eq(owner.n, 4);
	ck_assert_uint_eq(owner.items[1].protocol, NET_PROTOCOL_UDP);
	ck_assert_uint_eq(owner.items[2].cidr.addr.family, NET_V6);
	ck_assert_uint_eq(owner_of("").n, 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err err = ERR_NULL;

		ck_assert_msg(net_owner_parse(bad[i], &owner, &err) < 0, "%s", bad[i]);
		ck_assert(err.code == FAIL_CONFIG_INVALID || err.code == FAIL_INVALID_CIDR);
	}
}
END_TEST

/* ---- names ---- */

START_TEST(names_are_host_names)
{
	static const char *const good[] = { "example.com", "a.b.c", "xn--bcher-kva.example", "_dmarc.example.com", "a1.io",
		"localhost" };
	static const char *const bad[] = { "", ".", "a..b", ".a", "a.", "A.com", "a b", "-a.com", "a-.com", "*.com.*",
		"1.2.3.4", "a.1", "*", "a/b", "a.com:80", "\xc3\xa9.com" };
	char label[70], longest[300];

	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		ck_assert_msg(net_name_is_valid(good[i], false), "%s", good[i]);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert_msg(!net_name_is_valid(bad[i], false) && !net_name_is_valid(bad[i], true), "%s", bad[i]);
	ck_assert(net_name_is_valid("*.example.com", true) && !net_name_is_valid("*.example.com", false));
	memset(label, 'a', sizeof(label));
	label[64] = '\0';
	ck_assert(!net_name_is_valid(label, false));
	label[63] = '\0';
	ck_assert(net_name_is_valid(label, false));
	(void)snprintf(longest, sizeof(longest), "%s.%s.%s.%s", label, label, label, label);
	ck_assert(!net_name_is_valid(longest, false));
	longest[253] = '\0';
	ck_assert(net_name_is_valid(longest, false));
}
END_TEST

START_TEST(names_match_whole_labels)
{
	ck_assert(net_name_matches("a.com", "a.com") && !net_name_matches("a.com", "x.a.com"));
	ck_assert(net_name_matches("*.a.com", "x.a.com") && net_name_matches("*.a.com", "y.x.a.com"));
	ck_assert(!net_name_matches("*.a.com", "a.com") && !net_name_matches("*.a.com", "xa.com"));
	ck_assert(!net_name_matches("*.a.com", ".a.com") && !net_name_matches("a.com", "a.com.evil.org"));
}
END_TEST

START_TEST(names_are_judged)
{
	struct net_policy policy = { .internet = true };

	ck_assert_int_eq(net_policy_allow(&policy, "api.example.com", NULL), 0);
	ck_assert_int_eq(net_policy_deny(&policy, "*.example.com", NULL), 0);
	ck_assert_int_eq(net_judge_name(&policy, "api.example.com"), NET_NAME_PINNED);
	ck_assert_int_eq(net_judge_name(&policy, "www.example.com"), NET_NAME_REFUSED);
	ck_assert_int_eq(net_judge_name(&policy, "other.org"), NET_NAME_PLAIN);
	policy.internet = false;
	ck_assert_int_eq(net_judge_name(&policy, "other.org"), NET_NAME_REFUSED);
	ck_assert_int_eq(net_judge_name(&policy, "api.example.com"), NET_NAME_PINNED);
	net_policy_deinit(&policy);
}
END_TEST

START_TEST(lists_are_bounded)
{
	struct net_policy policy = { .internet = true };
	struct err err = ERR_NULL;
	int r = 0;

	for (unsigned int i = 0; r == 0 && i < NET_RULES_MAX + 10; i++) {
		char text[32];

		(void)snprintf(text, sizeof(text), "1.%u.%u.0/24", i / 256, i % 256);
		r = net_policy_allow(&policy, text, &err);
	}
	ck_assert_int_eq(err.code, FAIL_INVALID_ARGUMENT);
	ck_assert_uint_eq(policy.n_allow, NET_RULES_MAX);
	err = (struct err)ERR_NULL;
	ck_assert_int_lt(net_policy_deny(&policy, "not a name", &err), 0);
	ck_assert_int_eq(err.code, FAIL_INVALID_ARGUMENT);
	err = (struct err)ERR_NULL;
	ck_assert_int_lt(net_policy_deny(&policy, "10.0.0.0/33", &err), 0);
	ck_assert_int_eq(err.code, FAIL_INVALID_CIDR);
	net_policy_deinit(&policy);
}
END_TEST

/* ---- slots ---- */

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* R125: a million ids that share their first 15 characters, and a name that the kernel takes. */
START_TEST(names_of_slots_do_not_collide)
{
	uint64_t *values = calloc(IDS, sizeof(*values));

	ck_assert_ptr_nonnull(values);
	for (unsigned int i = 0; i < IDS; i++) {
		char key[ID_SIZE], name[NET_SLOT_NAME_SIZE];

		(void)snprintf(key, sizeof(key), "samefirstchars0%05x", i);
		net_slot_name(key, name);
		if (i % 1000 == 0)
			ck_assert(net_slot_name_is_valid(name) && strlen(name) < 16);
		values[i] = strtoull(name + 1, NULL, 16);
	}
	qsort(values, IDS, sizeof(*values), compare_u64);
	for (unsigned int i = 1; i < IDS; i++)
		if (values[i - 1] == values[i])
			ck_abort_msg("%llx twice", (unsigned long long)values[i]);
	free(values);
	ck_assert(!net_slot_name_is_valid("s123") && !net_slot_name_is_valid("../../../../../..") &&
		  !net_slot_name_is_valid("s12345678901g") && !net_slot_name_is_valid("t123456789012"));
}
END_TEST

static struct net_pool pool_of(const char *cidr)
{
	struct net_pool pool;
	struct net_cidr block;

	ck_assert_int_eq(net_cidr_parse(cidr, &block, NULL), 0);
	ck_assert_int_eq(net_pool_init(&pool, &block, NULL), 0);
	return pool;
}

START_TEST(pool_gives_each_address_once)
{
	struct net_pool pool = pool_of("198.18.0.0/26");
	struct net_slot slots[8], more;
	struct err err = ERR_NULL;
	uint32_t index;

	ck_assert_uint_eq(pool.n, 8);
	for (unsigned int i = 0; i < 8; i++) {
		char key[8];

		(void)snprintf(key, sizeof(key), "k%u", i);
		ck_assert_int_eq(net_pool_take(&pool, key, &slots[i], NULL), 0);
		for (unsigned int k = 0; k < i; k++) {
			ck_assert_uint_ge(slots[i].gateway - slots[k].gateway, 8);
			ck_assert_mem_ne(slots[i].guest_mac, slots[k].guest_mac, NET_MAC_SIZE);
			ck_assert_uint_ne(slots[i].cid, slots[k].cid);
		}
		ck_assert_uint_eq(slots[i].guest_mac[0] & 3, 2);
		ck_assert_uint_ge(slots[i].cid, 3);
		ck_assert_uint_eq(slots[i].guest, slots[i].gateway + 1);
		ck_assert_uint_eq(slots[i].gateway >> 2, slots[i].guest >> 2);
		ck_assert_uint_eq(slots[i].link_host >> 1, slots[i].link_slot >> 1);
	}
	ck_assert_int_lt(net_pool_take(&pool, "more", &more, &err), 0);
	ck_assert_int_eq(err.code, FAIL_NETWORK_POOL_EMPTY);
	net_pool_release(&pool, 3);
	ck_assert_int_eq(net_pool_take(&pool, "more", &more, NULL), 0);
	ck_assert_uint_eq(more.index, 3);
	net_pool_release(&pool, 3);
	net_pool_release(&pool, 3); /* twice is once */
	ck_assert_uint_eq(pool.taken, 7);
	ck_assert(net_pool_mark(&pool, slots[3].link_host, &index) && index == 3);
	ck_assert(net_pool_is_taken(&pool, 3) && pool.taken == 8);
	ck_assert(!net_pool_mark(&pool, 0x01020304, &index));
	net_pool_deinit(&pool);
}
END_TEST

START_TEST(pool_rests_an_address)
{
	struct net_pool pool = pool_of("198.18.0.0/26");
	struct net_slot first, second;

	ck_assert_int_eq(net_pool_take(&pool, "a", &first, NULL), 0);
	net_pool_release(&pool, first.index);
	ck_assert_int_eq(net_pool_take(&pool, "b", &second, NULL), 0);
	ck_assert_uint_ne(first.index, second.index);
	net_pool_deinit(&pool);
}
END_TEST

START_TEST(pool_refuses_odd_blocks)
{
	static const char *const bad[] = { "10.0.0.0/15", "10.0.0.0/30", "fd00::/64", "0.0.0.0/0" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err err = ERR_NULL;
		struct net_cidr cidr;
		struct net_pool pool;

		ck_assert_int_eq(net_cidr_parse(bad[i], &cidr, NULL), 0);
		ck_assert_int_lt(net_pool_init(&pool, &cidr, &err), 0);
		ck_assert_int_eq(err.code, FAIL_CONFIG_INVALID);
	}
}
END_TEST

/* ---- rules ---- */

static char *rules_text(const struct net_owner *owner, const struct net_policy *policy, char stamp[NET_STAMP_SIZE])
{
	static const struct net_limits limits = { 100, 1000, 1000 };
	struct net_pool pool = pool_of("198.18.0.0/26");
	struct buf text = BUF_NULL(NET_RULESET_MAX);
	struct net_judge judge;
	struct net_slot slot;
	struct net_slot_rules rules = { .slot = &slot, .judge = &judge, .limits = limits };

	net_pool_slot(&pool, 0, "s000000000000", &slot);
	ck_assert_int_eq(net_judge_init(&judge, owner, policy), 0);
	ck_assert_int_eq(net_ruleset_slot(&text, &rules, stamp), 0);
	ck_assert_int_eq(buf_append(&text, "", 1), 0);
	net_judge_deinit(&judge);
	net_pool_deinit(&pool);
	return (char *)text.data;
}

START_TEST(rules_are_a_function_of_the_policy)
{
	char one[NET_STAMP_SIZE], two[NET_STAMP_SIZE], three[NET_STAMP_SIZE];
	struct net_owner owner = owner_of("10.1.2.0/24:443");
	struct net_policy policy = { .internet = true };
	char *a = rules_text(&owner, &policy, one), *b = rules_text(&owner, &policy, two), *c;
	const char *opening, *fence;

	ck_assert_str_eq(a, b);
	ck_assert_str_eq(one, two);
	ck_assert_ptr_nonnull(strstr(a, one));
	ck_assert_int_eq(net_policy_deny(&policy, "1.2.3.0/24", NULL), 0);
	c = rules_text(&owner, &policy, three);
	ck_assert_str_ne(one, three);
	ck_assert_ptr_nonnull(strstr(c, "deny { 1.2.3.0-1.2.3.255 }"));
	/* the owner's word comes first, the fence before the tenant's */
	opening = strstr(c, "judge_out ip daddr 10.1.2.0/24 tcp dport 443 ct mark set");
	fence = strstr(c, "judge_out ip daddr @fence goto deny_out");
	ck_assert(opening && fence && opening < fence && fence < strstr(c, "judge_out ip daddr @allow"));
	free(a);
	free(b);
	free(c);
	net_policy_deinit(&policy);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("network");
	TCase *t = tcase_create("network");

	tcase_add_test(t, denials_are_told_apart);
	tcase_add_test(t, metadata_is_fenced);
	tcase_add_test(t, cidr_takes_what_is_exact);
	tcase_add_test(t, cidr_refuses_the_rest);
	tcase_add_test(t, sets_equal_the_oracle);
	tcase_add_test(t, sets_at_the_edges);
	tcase_add_test(t, fence_holds_what_is_private);
	tcase_add_test(t, fence_is_made_of_exact_blocks);
	tcase_add_test(t, owner_outranks_in_both_directions);
	tcase_add_test(t, default_is_the_policys);
	tcase_add_test(t, verdict_equals_the_oracle);
	tcase_add_test(t, hash_knows_every_part);
	tcase_add_test(t, openings_are_exact_or_refused);
	tcase_add_test(t, names_are_host_names);
	tcase_add_test(t, names_match_whole_labels);
	tcase_add_test(t, names_are_judged);
	tcase_add_test(t, lists_are_bounded);
	tcase_add_test(t, names_of_slots_do_not_collide);
	tcase_add_test(t, pool_gives_each_address_once);
	tcase_add_test(t, pool_rests_an_address);
	tcase_add_test(t, pool_refuses_odd_blocks);
	tcase_add_test(t, rules_are_a_function_of_the_policy);
	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
