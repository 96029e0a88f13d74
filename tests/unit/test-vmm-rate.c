/* SPDX-License-Identifier: Apache-2.0
 *
 * Token buckets on a virtual clock: what goes through is counted.
 */
#include <check.h>
#include <stdlib.h>

#include "base/util.h"
#include "lib/suite.h"
#include "rate.h"

#define SEC INT64_C(1000000)

/* How many pieces of `bytes` bytes begin in [from, to) when somebody tries again as soon as he was told to. */
static uint64_t count(struct rate *rate, int64_t from, int64_t to, uint64_t bytes)
{
	uint64_t n = 0;

	for (int64_t now = from; now < to;) {
		int64_t wait = rate_wait_usec(rate, now);

		if (wait < 0 || n > 10000000)
			ck_abort_msg("a wait of %ld after %lu", (long) wait, (unsigned long) n);
		if (wait == 0) {
			rate_charge(rate, 1, bytes);
			n++;
		} else {
			now += wait;
		}
	}
	return n;
}

static const struct {
	struct rate_config config;
	uint64_t bytes;
	int64_t usec;
	uint64_t expected;
} rows[] = {
	/* operations: a burst, then so many a second */
	{ { .ops = 100 }, 0, SEC, 100 + 99 },
	{ { .ops = 100, .ops_burst = 1 }, 0, 10 * SEC, 1000 },
	{ { .ops = 1, .ops_burst = 1 }, 0, 100 * SEC, 100 },
	{ { .ops = 7, .ops_burst = 50 }, 0, 60 * SEC, 50 + 7 * 60 - 1 },
	{ { .ops = 1000000 }, 0, SEC / 100, 1000000 + 9999 },
	{ { .ops = 3, .ops_burst = 1 }, 0, 3600 * SEC, 3 * 3600 },
	/* bytes: what is larger than the burst goes, and is paid afterwards */
	{ { .bytes = 1000, .bytes_burst = 1000 }, 100, 10 * SEC, 10 + 100 - 1 },
	{ { .bytes = 1000, .bytes_burst = 1000 }, 100000, 1000 * SEC, 10 + 1 },
	{ { .bytes = 1 << 20, .bytes_burst = 1 }, 65536, 10 * SEC, 160 },
	/* the narrower of both */
	{ { .ops = 10, .ops_burst = 1, .bytes = 1000000 }, 100, 10 * SEC, 100 },
	{ { .ops = 1000000, .bytes = 1000, .bytes_burst = 1 }, 100, 10 * SEC, 100 },
	/* the largest numbers */
	{ { .ops = RATE_MAX, .ops_burst = 1 }, 0, 5, 5 },
	{ { .bytes = RATE_MAX, .bytes_burst = RATE_MAX }, RATE_MAX, 100 * SEC, 101 },
};

START_TEST(counts)
{
	struct rate rate;
	uint64_t n;

	rate_init(&rate, &rows[_i].config, 5);
	n = count(&rate, 5, 5 + rows[_i].usec, rows[_i].bytes);
	/* the first or last of an interval may fall on its edge */
	ck_assert_msg(n + 1 >= rows[_i].expected && n <= rows[_i].expected + 1, "row %d: %lu, not %lu", _i,
		(unsigned long) n, (unsigned long) rows[_i].expected);
}
END_TEST

START_TEST(no_limit)
{
	struct rate_config none = { .ops = 0 };
	struct rate rate;

	rate_init(&rate, &none, 0);
	for (int i = 0; i < 1000; i++) {
		ck_assert_int_eq(rate_wait_usec(&rate, 0), 0);
		rate_charge(&rate, UINT64_MAX, UINT64_MAX);
	}
}
END_TEST

/* A pause fills the bucket to its burst and no further, however long it is. */
START_TEST(pauses)
{
	struct rate_config config = { .ops = 10, .ops_burst = 20 };
	static const int64_t lengths[] = { 2 * SEC, 3600 * SEC, INT64_MAX / 2 };
	struct rate rate;
	int64_t now = 0;

	rate_init(&rate, &config, now);
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		ck_assert_uint_eq(count(&rate, now, now + 1, 0), 20);
		now += lengths[i];
	}
	ck_assert_uint_eq(count(&rate, now, now + 1, 0), 20);
}
END_TEST

START_TEST(clock_goes_back)
{
	struct rate_config config = { .ops = 10, .ops_burst = 1 };
	struct rate rate;

	rate_init(&rate, &config, 100 * SEC);
	ck_assert_int_eq(rate_wait_usec(&rate, 100 * SEC), 0);
	rate_charge(&rate, 1, 0);
	ck_assert_int_eq(rate_wait_usec(&rate, 50 * SEC), SEC / 10);
	ck_assert_int_eq(rate_wait_usec(&rate, 50 * SEC + SEC / 10), 0);
}
END_TEST

/* What is charged beyond all measure is a debt that ends. */
START_TEST(debt_is_bounded)
{
	struct rate_config config = { .bytes = RATE_MAX };
	struct rate rate;

	rate_init(&rate, &config, 0);
	for (int i = 0; i < 100; i++)
		rate_charge(&rate, 1, UINT64_MAX);
	ck_assert_int_gt(rate_wait_usec(&rate, 0), 0);
	ck_assert_int_le(rate_wait_usec(&rate, 0), SEC + 1);
	ck_assert_int_eq(rate_wait_usec(&rate, 2 * SEC), 0);
}
END_TEST

START_TEST(configurations)
{
	struct rate_config good = { .ops = RATE_MAX, .ops_burst = RATE_MAX, .bytes = RATE_MAX, .bytes_burst = RATE_MAX }, bad;

	ck_assert(rate_config_is_valid(&good));
	for (int i = 0; i < 4; i++) {
		bad = good;
		*(i == 0 ? &bad.ops : i == 1 ? &bad.ops_burst : i == 2 ? &bad.bytes : &bad.bytes_burst) += 1;
		ck_assert(!rate_config_is_valid(&bad));
	}
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-rate");
	TCase *tcase = tcase_create("all");

	tcase_add_loop_test(tcase, counts, 0, ARRAY_LEN(rows));
	tcase_add_test(tcase, no_limit);
	tcase_add_test(tcase, pauses);
	tcase_add_test(tcase, clock_goes_back);
	tcase_add_test(tcase, debt_is_bounded);
	tcase_add_test(tcase, configurations);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
