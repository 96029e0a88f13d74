/* SPDX-License-Identifier: Apache-2.0
 *
 * What was asked for: what is remembered of it, in which order it goes, and that a copy of it outlives it.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "lib/suite.h"
#include "server/asked.h"

static struct asked *asked;
static struct sandbox_spec *spec;
static struct asked_list list;

static void set_up(void)
{
	ck_assert_int_eq(asked_new(&asked), 0);
	spec = spec_new();
	spec->vcpus = 2;
	spec->memory_mib = 512;
	spec->disk_mib = 1024;
}

static void tear_down(void)
{
	asked = asked_free(asked);
	spec_unref(spec);
}

static struct sandbox_record record(const char *id, const char *pool, int64_t created_us, int64_t ended_us)
{
	struct sandbox_record made = { .spec = spec, .created_us = created_us, .ended_us = ended_us, .generation = 1 };

	(void)snprintf(made.id, sizeof(made.id), "%s", id);
	(void)snprintf(made.pool, sizeof(made.pool), "%s", pool);
	(void)snprintf(made.tenant, sizeof(made.tenant), "acme");
	return made;
}

static void add(const char *id, const char *pool, int64_t created_us, int64_t ended_us)
{
	const struct sandbox_record made = record(id, pool, created_us, ended_us);

	asked_add(asked, &made, ended_us != 0);
}

static size_t count(const char *pool, int64_t since_us)
{
	struct asked_list copy;
	size_t n;

	ck_assert_int_eq(asked_copy(asked, pool, since_us, &copy), 0);
	n = copy.n;
	asked_list_deinit(&copy);
	return n;
}

START_TEST(one_that_lives_and_then_ends)
{
	struct sandbox_record made = record("a", "pool", 100, 0);

	for (unsigned int i = 0; i < 3; i++)
		asked_add(asked, &made, false);
	ck_assert_uint_eq(count("pool", 0), 1);
	ck_assert_uint_eq(count("other", 0), 0);
	made.ended_us = 500;
	asked_add(asked, &made, true);
	ck_assert_int_eq(asked_copy(asked, "pool", 500, &list), 0);
	ck_assert_uint_eq(list.n, 1);
	ck_assert(list.requests[0].at_us == 100 && list.requests[0].until_us == 500 && list.requests[0].vcpus == 2 &&
		  list.requests[0].memory_mib == 512 && list.requests[0].disk_mib == 1024);
	ck_assert_str_eq(list.requests[0].wish->tenant, "acme");
	asked = asked_free(asked);
	ck_assert_str_eq(list.requests[0].wish->region, ""); /* the copy has its own */
	asked_list_deinit(&list);
}
END_TEST

/* A warm VM that was claimed is its tenant's request, of then. */
START_TEST(one_that_changes_hands)
{
	struct sandbox_record made = record("a", "pool", 100, 0);

	(void)snprintf(made.tenant, sizeof(made.tenant), FLEET_WARM_TENANT);
	asked_add(asked, &made, false);
	(void)snprintf(made.tenant, sizeof(made.tenant), "acme");
	made.created_us = 700;
	asked_add(asked, &made, false);
	ck_assert_int_eq(asked_copy(asked, "pool", 0, &list), 0);
	ck_assert_uint_eq(list.n, 1);
	ck_assert_int_eq(list.requests[0].at_us, 700);
	ck_assert_int_eq(list.requests[0].until_us, PLACE_STAYS);
	ck_assert_str_eq(list.requests[0].wish->tenant, "acme");
	asked_list_deinit(&list);
}
END_TEST

START_TEST(one_that_had_no_room)
{
	struct sandbox_record made = record("a", "pool", 100, 105);

	made.generation = 0;
	asked_add(asked, &made, true);
	ck_assert_int_eq(asked_copy(asked, "pool", 100, &list), 0);
	ck_assert_uint_eq(list.n, 1);
	ck_assert_int_eq(list.requests[0].until_us, PLACE_UNKNOWN);
	asked_list_deinit(&list);
	ck_assert_uint_eq(count("pool", 101), 0);
}
END_TEST

START_TEST(what_is_old_or_too_many_goes)
{
	char id[ID_SIZE];

	add("lives", "pool", 1, 0);
	for (int64_t i = 10; i > 0; i--) { /* as a store has them: in any order */
		(void)snprintf(id, sizeof(id), "%lld", (long long)i);
		add(id, "pool", i, 100 * i);
	}
	asked_sort(asked);
	asked_trim(asked, 0, 11);
	ck_assert_uint_eq(count("pool", 0), 11);
	ck_assert_uint_eq(count("pool", 901), 2);
	asked_trim(asked, 301, 10);
	ck_assert_uint_eq(count("pool", 0), 8);
	asked_trim(asked, 0, 4);
	ck_assert_int_eq(asked_copy(asked, "pool", 0, &list), 0);
	ck_assert_uint_eq(list.n, 5);
	ck_assert_int_eq(list.since_us, 700);
	asked_list_deinit(&list);
	asked_trim(asked, INT64_MAX, 4);
	ck_assert_int_eq(asked_copy(asked, "pool", 0, &list), 0);
	ck_assert(list.n == 1 && list.since_us == 0);
	asked_list_deinit(&list);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("asked");
	TCase *tcase = tcase_create("asked");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, one_that_lives_and_then_ends);
	tcase_add_test(tcase, one_that_changes_hands);
	tcase_add_test(tcase, one_that_had_no_room);
	tcase_add_test(tcase, what_is_old_or_too_many_goes);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
