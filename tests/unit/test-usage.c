/* SPDX-License-Identifier: Apache-2.0
 *
 * Hours and days of pools: means, the busiest hour, gaps, what comes back from a store in any order.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>

#include "base/util.h"
#include "lib/suite.h"
#include "telemetry/usage.h"

#define DAY0 20000 /* since the epoch */

static struct usage *usage;
static const uint64_t total[USAGE_KIND_MAX_] = { 1000, 800, 5000, 64 };

static void set_up(void)
{
	ck_assert_int_eq(usage_new(&usage), 0);
}

static void tear_down(void)
{
	usage = usage_free(usage);
}

static int64_t at(int64_t day, int64_t hour, int64_t minute)
{
	return ((DAY0 + day) * 24 + hour) * USAGE_HOUR_US + minute * 60 * 1000 * 1000;
}

static bool look(const char *pool, int64_t now_us, uint64_t memory, struct usage_hour *ret)
{
	const uint64_t used[USAGE_KIND_MAX_] = { memory, memory / 2, 2 * memory, 3 };

	return usage_look(usage, pool, now_us, used, total, ret);
}

START_TEST(an_hour_is_the_mean_of_its_looks)
{
	struct usage_hour hour;

	ck_assert(!look("eu", at(0, 5, 0), 100, &hour));
	ck_assert(!look("eu", at(0, 5, 30), 201, &hour));
	ck_assert(!look("us", at(0, 6, 0), 7, &hour)); /* of another pool */
	ck_assert(look("eu", at(0, 8, 0), 999, &hour));
	ck_assert_int_eq(hour.hour, DAY0 * 24 + 5);
	ck_assert_uint_eq(hour.used[USAGE_MEMORY], 151); /* 150.5 */
	ck_assert_uint_eq(hour.used[USAGE_CPU], 75);
	ck_assert_uint_eq(hour.used[USAGE_DISK], 301);
	ck_assert_uint_eq(hour.used[USAGE_SANDBOXES], 3);
	ck_assert_uint_eq(hour.total[USAGE_DISK], 5000);
	ck_assert(!look("eu", at(0, 8, 1), 1, &hour));
	ck_assert(look("eu", at(0, 7, 0), 1, &hour)); /* the clock was set back */
	ck_assert_uint_eq(hour.used[USAGE_MEMORY], 500);
}
END_TEST

START_TEST(a_day_is_its_busiest_hour)
{
	double values[USAGE_DAYS];
	struct usage_hour hour;
	int64_t last = 0;

	for (int64_t day = 0; day < 5; day++)
		for (int64_t h = 0; h < 24; h++)
			if (day != 2) /* nobody looked */
				(void) look("eu", at(day, h, 0), (uint64_t) (100 * day + (h == 14 ? 50 : h)), &hour);
	(void) look("eu", at(5, 0, 0), 10000, &hour); /* today does not count */
	(void) look("eu", at(5, 1, 0), 10000, &hour);
	ck_assert_uint_eq(usage_days(usage, "eu", USAGE_MEMORY, at(5, 0, 1), 30, values, &last), 5);
	ck_assert_int_eq(last, DAY0 + 4);
	ck_assert_double_eq(values[0], 50);
	ck_assert_double_eq(values[1], 150);
	ck_assert(isnan(values[2]));
	ck_assert_double_eq(values[4], 450);
	ck_assert_uint_eq(usage_days(usage, "eu", USAGE_MEMORY, at(5, 0, 1), 2, values, &last), 2);
	ck_assert_double_eq(values[0], 350);
	ck_assert_uint_eq(usage_days(usage, "eu", USAGE_MEMORY, at(8, 0, 1), 30, values, &last), 6); /* ends with the last known */
	ck_assert_double_eq(values[5], 10000);
	ck_assert_uint_eq(usage_days(usage, "eu", USAGE_MEMORY, at(500, 0, 0), 30, values, &last), 0);
	ck_assert_uint_eq(usage_days(usage, "none", USAGE_MEMORY, at(5, 0, 1), 30, values, &last), 0);
}
END_TEST

START_TEST(hours_of_a_store_come_in_any_order)
{
	double values[USAGE_DAYS];
	int64_t last = 0;

	for (int64_t i = 0; i < 200 * 24; i++) {
		int64_t n = i * 1009 % (200 * 24); /* 1009 and 4800 have no common divisor */
		const struct usage_hour hour = { .hour = DAY0 * 24 + n, .used = { (uint64_t) n } };

		usage_add(usage, "eu", &hour);
	}
	usage_add(usage, "eu", &(struct usage_hour) { .hour = -1, .used = { 1 } });
	ck_assert_uint_eq(usage_days(usage, "eu", USAGE_MEMORY, at(200, 1, 0), 1000, values, &last), USAGE_DAYS);
	for (size_t i = 0; i < USAGE_DAYS; i++)
		ck_assert_double_eq(values[i], (double) ((200 - USAGE_DAYS + i) * 24 + 23));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("usage");
	TCase *tcase = tcase_create("usage");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, an_hour_is_the_mean_of_its_looks);
	tcase_add_test(tcase, a_day_is_its_busiest_hour);
	tcase_add_test(tcase, hours_of_a_store_come_in_any_order);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
