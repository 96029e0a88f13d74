/* SPDX-License-Identifier: Apache-2.0
 *
 * What a node believes of the keys and addresses that a welcome tells it.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "agent/identity.h"
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

int main(void)
{
	Suite *suite = suite_create("node-learn");
	TCase *all = tcase_create("learn");

	tcase_add_test(all, who_stole_the_present_key_leads_no_node_away);
	suite_add_tcase(suite, all);
	return suite_run(suite);
}
