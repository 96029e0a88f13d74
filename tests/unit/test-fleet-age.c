/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists in order of age: sorted after a load, and paged through, also where the last of a page is gone.
 */
#include <check.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "base/util.h"
#include "fleet/age.h"
#include "lib/suite.h"

struct thing {
	struct {
		int64_t created_us;
	} record;
	TAILQ_ENTRY(thing) in_all;
};
TAILQ_HEAD(things, thing);

static struct thing all[] = { { .record = { 30 } }, { .record = { 10 } }, { .record = { 20 } }, { .record = { 20 } }, { .record = { 5 } } };

static void load(struct things *things)
{
	TAILQ_INIT(things);
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		TAILQ_INSERT_TAIL(things, &all[i], in_all);
	ck_assert(AGE_SORT(things, thing));
}

START_TEST(test_the_oldest_is_the_first)
{
	static const int64_t order[] = { 5, 10, 20, 20, 30 };
	struct things things;
	const struct thing *thing;
	size_t n = 0;

	load(&things);
	TAILQ_FOREACH (thing, &things, in_all)
		ck_assert_int_eq(thing->record.created_us, order[n++]);
	ck_assert_uint_eq(n, ARRAY_LEN(order));
	TAILQ_INIT(&things);
	ck_assert(AGE_SORT(&things, thing));
	ck_assert(TAILQ_EMPTY(&things));
}
END_TEST

START_TEST(test_a_page_begins_behind_the_last)
{
	const struct thing *none = NULL;
	struct things things;

	load(&things);
	ck_assert_int_eq(AGE_NEXT(&things, none, 0)->record.created_us, 5);
	ck_assert_ptr_eq(AGE_NEXT(&things, &all[4], 5), &all[1]);
	ck_assert_ptr_null(AGE_NEXT(&things, &all[0], 30));
	/* the last one of the page before is gone: what is as old may not have been on it */
	ck_assert_ptr_eq(AGE_NEXT(&things, none, 10), &all[1]);
	ck_assert_ptr_eq(AGE_NEXT(&things, none, 11), TAILQ_NEXT(&all[1], in_all));
	ck_assert_ptr_null(AGE_NEXT(&things, none, 31));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fleet-age");
	TCase *tcase = tcase_create("age");

	tcase_add_test(tcase, test_the_oldest_is_the_first);
	tcase_add_test(tcase, test_a_page_begins_behind_the_last);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
