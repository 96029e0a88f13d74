/* SPDX-License-Identifier: Apache-2.0
 *
 * What is remembered of ended sandboxes: what they were, no more of them than there is room for, and not for longer than said.
 */
#include <check.h>
#include <stdio.h>

#include "lib/suite.h"
#include "server/ended.h"

static struct ended ended;

static void set_up(void)
{
	ended_init(&ended);
}

static void tear_down(void)
{
	ended_deinit(&ended);
	ck_assert_uint_eq(ended.n, 0);
	ck_assert_ptr_null(ended.by_id);
}

static const char *id_of(unsigned int i)
{
	static char id[ID_SIZE];

	(void)snprintf(id, sizeof(id), "s%u", i);
	return id;
}

static void add(unsigned int i, int64_t ended_us)
{
	struct sandbox_spec spec = { .vcpus = 2, .memory_mib = 512, .template_name = "base" };
	struct sandbox_record record = { .tenant = "acme", .node = "n1", .spec = &spec, .ended_us = ended_us };

	(void)snprintf(record.id, sizeof(record.id), "%s", id_of(i));
	ended_add(&ended, &record);
}

START_TEST(what_it_was)
{
	const struct ended_sandbox *sandbox;

	add(1, 100);
	add(1, 100); /* once */
	ck_assert_uint_eq(ended.n, 1);
	sandbox = ended_find(&ended, id_of(1));
	ck_assert_ptr_nonnull(sandbox);
	ck_assert_str_eq(sandbox->tenant, "acme");
	ck_assert_str_eq(sandbox->node, "n1");
	ck_assert_str_eq(sandbox->template_name, "base");
	ck_assert_uint_eq(sandbox->vcpus, 2);
	ck_assert_uint_eq(sandbox->memory_mib, 512);
	ck_assert_ptr_null(ended_find(&ended, id_of(2)));
}
END_TEST

START_TEST(not_for_longer)
{
	add(1, 100);
	add(2, 200);
	add(3, 150); /* not in order, as a store has them */
	ended_trim(&ended, 100);
	ck_assert_uint_eq(ended.n, 3);
	ended_trim_all(&ended, 180);
	ck_assert_uint_eq(ended.n, 1);
	ck_assert_ptr_nonnull(ended_find(&ended, id_of(2)));
	ended_trim(&ended, 201);
	ck_assert_ptr_null(ended_find(&ended, id_of(2)));
}
END_TEST

START_TEST(not_more)
{
	for (unsigned int i = 0; i < ENDED_MAX + 10; i++)
		add(i, 100 + i);
	ended_trim(&ended, 0);
	ck_assert_uint_eq(ended.n, ENDED_MAX);
	ck_assert_ptr_null(ended_find(&ended, id_of(9)));
	ck_assert_ptr_nonnull(ended_find(&ended, id_of(10)));
	ck_assert_ptr_nonnull(ended_find(&ended, id_of(ENDED_MAX + 9)));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ended");
	TCase *tcase = tcase_create("ended");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, what_it_was);
	tcase_add_test(tcase, not_for_longer);
	tcase_add_test(tcase, not_more);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
