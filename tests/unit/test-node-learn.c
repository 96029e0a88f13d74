/* SPDX-License-Identifier: Apache-2.0
 *
 * What a node believes of the keys and addresses that a welcome tells it.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "agent/identity.h"
#include "agent/options.h"
#include "agent/transport.h"
#include "lib/suite.h"
#include "wire/messages.h"

static struct link_set told(const char *key, const char *next, const char *old, const char *endpoint)
{
	struct link_set set = { .n_endpoints = *endpoint ? 1 : 0 };

	(void)snprintf(set.key, sizeof(set.key), "%s", key);
	(void)snprintf(set.next_key, sizeof(set.next_key), "%s", next);
	(void)snprintf(set.old_key, sizeof(set.old_key), "%s", old);
	(void)snprintf(set.endpoints[0], LINK_ENDPOINT_SIZE, "%s", endpoint);
	return set;
}

START_TEST(who_stole_the_present_key_leads_no_node_away)
{
	struct scheduler_address mine = { .n_addresses = 1, .n_own = 1, .addresses = { "tcp://own:1" } };
	char k[5][KEY_Z85_SIZE];
	const char *key;
	struct link_set set;

	for (size_t i = 0; i < ARRAY_LEN(k); i++) {
		struct curve_keys keys;

		ck_assert_int_eq(curve_keys_new(&keys, NULL), 0);
		memcpy(k[i], keys.public_key, sizeof(k[i]));
	}
	memcpy(mine.key, k[0], sizeof(mine.key));
	/* nobody announced it */
	set = told(k[4], "", "", "tcp://evil:1");
	ck_assert(!scheduler_learn(&mine, &set, k[0]));
	ck_assert_uint_eq(mine.n_addresses, 1);
	/* a next key is learnt, and is another's no more */
	set = told(k[0], k[1], "", "");
	ck_assert(scheduler_learn(&mine, &set, k[0]));
	ck_assert(!scheduler_learn(&mine, &set, k[0]));
	set = told(k[0], k[4], "", "");
	ck_assert(!scheduler_learn(&mine, &set, k[0]));
	ck_assert_str_eq(mine.next_key, k[1]);
	ck_assert_uint_eq(scheduler_n_targets(&mine), 2);
	/* addresses come and go behind our own */
	set = told(k[0], k[1], "", "tcp://told:1");
	ck_assert(scheduler_learn(&mine, &set, k[0]));
	ck_assert_str_eq(mine.addresses[0], "tcp://own:1");
	ck_assert_str_eq(mine.addresses[1], "tcp://told:1");
	/* the overlap, told over the old key: the next one is the present one, and what follows it is not believed yet */
	set = told(k[1], k[4], k[0], "tcp://told:2");
	ck_assert(scheduler_learn(&mine, &set, k[0]));
	ck_assert_str_eq(mine.key, k[1]);
	ck_assert_str_eq(mine.next_key, "");
	ck_assert_str_eq(mine.old_key, k[0]);
	ck_assert_str_eq(scheduler_target(&mine, 0, &key), "tcp://own:1");
	ck_assert_str_eq(key, k[1]);
	ck_assert_str_eq(scheduler_target(&mine, 3, &key), "tcp://told:2");
	ck_assert_str_eq(key, k[0]);
	/* over the new one it is */
	set = told(k[1], k[2], k[0], "tcp://told:2");
	ck_assert(scheduler_learn(&mine, &set, k[1]));
	ck_assert_str_eq(mine.next_key, k[2]);
	ck_assert_str_eq(mine.old_key, k[0]);
	/* and the old one is given up when the new one says so, not before */
	set = told(k[1], k[2], "", "tcp://told:2");
	ck_assert(!scheduler_learn(&mine, &set, k[0]));
	ck_assert(scheduler_learn(&mine, &set, k[1]));
	ck_assert_str_eq(mine.old_key, "");
	/* at once: over the pinned one */
	set = told(k[2], k[3], "", "");
	ck_assert(scheduler_learn(&mine, &set, k[2]));
	ck_assert_str_eq(mine.key, k[2]);
	ck_assert_str_eq(mine.next_key, k[3]);
	ck_assert_str_eq(mine.old_key, "");
	ck_assert_uint_eq(mine.n_addresses, 1);
}
END_TEST

/* Whoever stole the present key told an address of his while he was believed. After a rotation at once our own address does not have
 * that key any more: the next key is tried there before his address is tried with the stolen one. */
START_TEST(a_told_address_comes_behind_our_own_with_either_key)
{
	static const char *const order[][2] = { { "tcp://own:1", "present" }, { "tcp://own:2", "present" }, { "tcp://own:1", "next" },
		{ "tcp://own:2", "next" }, { "tcp://evil:1", "present" }, { "tcp://evil:1", "next" }, { "tcp://own:1", "old" },
		{ "tcp://own:2", "old" }, { "tcp://evil:1", "old" } };
	const struct scheduler_address mine = { .n_addresses = 3, .n_own = 2, .addresses = { "tcp://own:1", "tcp://own:2", "tcp://evil:1" },
		.key = "present", .next_key = "next", .old_key = "old" };
	const char *key;

	ck_assert_uint_eq(scheduler_n_targets(&mine), ARRAY_LEN(order));
	for (unsigned int i = 0; i < ARRAY_LEN(order); i++) {
		ck_assert_str_eq(scheduler_target(&mine, i, &key), order[i][0]);
		ck_assert_str_eq(key, order[i][1]);
	}
}
END_TEST

START_TEST(our_own_are_counted_among_those_of_one_transport)
{
	struct scheduler_address mine = { .n_addresses = 3, .n_own = 2, .addresses = { "tls://own:1", "tcp://own:2", "tcp://told:1" },
		.key = "present", .next_key = "next" };
	char tcp[] = "tcp";
	const struct agent_options options = { .link_transport = tcp };
	const char *key;

	ck_assert_int_eq(transport_choose(&options, &mine, NULL), 0);
	ck_assert_uint_eq(mine.n_own, 1);
	ck_assert_uint_eq(scheduler_n_targets(&mine), 4);
	ck_assert_str_eq(scheduler_target(&mine, 1, &key), "tcp://own:2");
	ck_assert_str_eq(key, "next");
}
END_TEST

START_TEST(the_old_key_tells_no_addresses)
{
	struct scheduler_address mine = { .n_addresses = 2, .n_own = 1, .addresses = { "tcp://own:1", "tcp://told:1" }, .key = "present",
		.old_key = "old" };
	const struct link_set set = told("present", "", "old", "tcp://evil:1");

	ck_assert(!scheduler_learn(&mine, &set, "old"));
	ck_assert_str_eq(mine.addresses[1], "tcp://told:1");
	ck_assert(scheduler_learn(&mine, &set, "present"));
	ck_assert_str_eq(mine.addresses[1], "tcp://evil:1");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("node-learn");
	TCase *all = tcase_create("learn");

	tcase_add_test(all, who_stole_the_present_key_leads_no_node_away);
	tcase_add_test(all, a_told_address_comes_behind_our_own_with_either_key);
	tcase_add_test(all, our_own_are_counted_among_those_of_one_transport);
	tcase_add_test(all, the_old_key_tells_no_addresses);
	suite_add_tcase(suite, all);
	return suite_run(suite);
}
