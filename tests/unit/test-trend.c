/* SPDX-License-Identifier: Apache-2.0
 *
 * Trends against made series with a known answer: flat noise of several kinds has none, and for growth the true time lies in the
 * interval, as often as is promised.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "base/util.h"
#include "lib/suite.h"
#include "telemetry/trend.h"

#define SEEDS 100

enum noise { NOISE_NORMAL, NOISE_HEAVY, NOISE_UNIFORM, NOISE_FOLLOWS, NOISE_WEEKS };

static double uniform(struct rng *rng)
{
	return ((double) rng_below(rng, 1000000) + 0.5) / 1000000;
}

static double normal(struct rng *rng)
{
	return sqrt(-2 * log(uniform(rng))) * cos(2 * M_PI * uniform(rng));
}

/* Of deviation 1 or so. `before`: the one of the step before. */
static double noise_of(enum noise kind, struct rng *rng, double before, size_t step)
{
	switch (kind) {
	case NOISE_NORMAL:
		return normal(rng);
	case NOISE_HEAVY: /* now and then three times as much */
		return normal(rng) * (rng_below(rng, 10) ? 0.8 : 2.4);
	case NOISE_UNIFORM:
		return (uniform(rng) - 0.5) * sqrt(12);
	case NOISE_FOLLOWS: /* a first-order process */
		return 0.4 * before + normal(rng) * sqrt(1 - 0.4 * 0.4);
	case NOISE_WEEKS: /* five days of work, two that are not */
		return (step % 7 < 5 ? 0.5 : -1.25) + normal(rng) * 0.5;
	}
	return 0;
}

static void make(double *values, size_t n, double level, double slope, double deviation, enum noise kind, struct rng *rng)
{
	double noise = 0;

	for (size_t i = 0; i < n; i++) {
		noise = noise_of(kind, rng, noise, i);
		values[i] = level + slope * (double) i + deviation * noise;
	}
}

static const struct {
	enum noise kind;
	size_t n;
	double level, deviation;
} flat[] = { { NOISE_NORMAL, 30, 1000, 50 }, { NOISE_NORMAL, 7, 1000, 50 }, { NOISE_NORMAL, 14, 10, 1 }, { NOISE_HEAVY, 30, 1000, 100 },
	{ NOISE_UNIFORM, 60, 0, 1 }, { NOISE_FOLLOWS, 30, 1000, 50 }, { NOISE_FOLLOWS, 90, 1000, 50 }, { NOISE_WEEKS, 28, 1000, 50 },
	{ NOISE_WEEKS, 30, 1000, 50 } };

START_TEST(flat_noise_has_no_trend)
{
	double values[TREND_MOST];
	struct trend trend;
	unsigned int none = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct rng rng = rng_seeded(seed + 1);

		make(values, flat[_i].n, flat[_i].level, 0, flat[_i].deviation, flat[_i].kind, &rng);
		trend_find(values, flat[_i].n, 1e9, &trend);
		none += trend.verdict == TREND_NONE;
	}
	ck_assert_msg(none >= 95, "no trend in %u of %u", none, SEEDS);
}
END_TEST

static const struct {
	enum noise kind;
	size_t n;
	double slope, deviation, limit;
} growing[] = { { NOISE_NORMAL, 30, 10, 20, 2000 }, { NOISE_NORMAL, 30, 10, 40, 1500 }, { NOISE_NORMAL, 14, 20, 30, 3000 },
	{ NOISE_NORMAL, 90, 1, 20, 1200 }, { NOISE_HEAVY, 30, 10, 30, 2000 }, { NOISE_UNIFORM, 60, 5, 50, 4000 },
	{ NOISE_FOLLOWS, 30, 10, 30, 2000 }, { NOISE_FOLLOWS, 90, 3, 50, 2000 }, { NOISE_WEEKS, 28, 10, 40, 2000 },
	{ NOISE_NORMAL, 120, 8, 50, 2500 } };

START_TEST(the_true_day_lies_in_the_interval)
{
	const double truth = (growing[_i].limit - 1000) / growing[_i].slope - (double) (growing[_i].n - 1);
	double values[TREND_MOST], width = 0;
	struct trend trend;
	unsigned int in = 0, seen = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct rng rng = rng_seeded(seed + 1000);

		make(values, growing[_i].n, 1000, growing[_i].slope, growing[_i].deviation, growing[_i].kind, &rng);
		trend_find(values, growing[_i].n, growing[_i].limit, &trend);
		if (trend.verdict != TREND_GROWS)
			continue;
		seen++;
		in += trend.reaches_low <= truth && truth <= trend.reaches_high;
		ck_assert(trend.reaches_low <= trend.reaches && trend.reaches <= trend.reaches_high);
		width += trend.reaches_high - trend.reaches_low;
	}
	ck_assert_msg(in >= 90, "in the interval %u, seen %u of %u, width %.1f of %.1f", in, seen, SEEDS, width / SEEDS, truth);
	ck_assert_msg(width / seen < 2 * (truth + (double) growing[_i].n), "an interval of %.1f says nothing", width / seen);
}
END_TEST

START_TEST(a_line_is_found_exactly)
{
	double values[30];
	struct trend trend;

	for (size_t i = 0; i < 30; i++)
		values[i] = 100 + 10 * (double) i;
	trend_find(values, 30, 590, &trend);
	ck_assert_int_eq(trend.verdict, TREND_GROWS);
	ck_assert_double_eq_tol(trend.slope, 10, 1e-9);
	ck_assert_double_eq_tol(trend.level, 390, 1e-9);
	ck_assert_double_eq_tol(trend.reaches, 20, 1e-9);
	ck_assert_double_eq_tol(trend.reaches_low, 20, 1e-9);
	ck_assert_double_eq_tol(trend.reaches_high, 20, 1e-9);
	values[3] = values[4] = values[17] = (double) NAN; /* a gap moves nothing */
	trend_find(values, 30, 590, &trend);
	ck_assert_double_eq_tol(trend.slope, 10, 1e-9);
	ck_assert_double_eq_tol(trend.reaches, 20, 1e-9);
	trend_find(values, 30, 300, &trend); /* it is past that */
	ck_assert_double_eq(trend.reaches, 0);
	for (size_t i = 0; i < 30; i++)
		values[i] = -100 - 10 * (double) i;
	trend_find(values, 30, 0, &trend);
	ck_assert_int_eq(trend.verdict, TREND_FALLS);
	ck_assert_double_eq_tol(trend.slope, -10, 1e-9);
	ck_assert_double_eq(trend.reaches_high, 0); /* is said of growth alone */
}
END_TEST

/* One pair of ten is the wrong way round: S is 45 - 2, and its variance 10 * 9 * 25 / 18 = 125. */
START_TEST(the_test_is_mann_and_kendalls)
{
	const double values[] = { 1, 2, 3, 4, 5, 7, 6, 8, 9, 10 };
	struct trend trend;

	trend_find(values, ARRAY_LEN(values), 20, &trend);
	ck_assert_int_eq(trend.verdict, TREND_GROWS);
	ck_assert_double_eq_tol(trend.p, erfc(42 / sqrt(125) / M_SQRT2), 0.0005);
	ck_assert_double_eq_tol(trend.slope, 1, 1e-9);
}
END_TEST

START_TEST(what_says_nothing)
{
	double values[200];
	struct trend trend;

	for (size_t i = 0; i < 200; i++)
		values[i] = i < 72 ? 1e6 : (double) i;
	trend_find(values, TREND_LEAST - 1, 1e9, &trend);
	ck_assert_int_eq(trend.verdict, TREND_TOO_SHORT);
	for (size_t i = 0; i < 60; i++)
		values[i] = (double) NAN;
	trend_find(values, 66, 1e9, &trend); /* six are known */
	ck_assert_int_eq(trend.verdict, TREND_TOO_SHORT);
	for (size_t i = 0; i < 60; i++)
		values[i] = 1e6;
	trend_find(values, 0, 1e9, &trend);
	ck_assert_int_eq(trend.verdict, TREND_TOO_SHORT);
	trend_find(values, 72, 1e9, &trend); /* all the same */
	ck_assert_int_eq(trend.verdict, TREND_NONE);
	ck_assert_double_eq(trend.level, 1e6);
	trend_find(values, 200, 1e9, &trend); /* the latest alone are looked at */
	ck_assert_int_eq(trend.verdict, TREND_GROWS);
	ck_assert_double_eq_tol(trend.slope, 1, 1e-9);
	for (enum trend_verdict i = 0; i < TREND_MAX_; i++)
		ck_assert_ptr_nonnull(trend_name(i));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("trend");
	TCase *tcase = tcase_create("trend");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, flat_noise_has_no_trend, 0, ARRAY_LEN(flat));
	tcase_add_loop_test(tcase, the_true_day_lies_in_the_interval, 0, ARRAY_LEN(growing));
	tcase_add_test(tcase, a_line_is_found_exactly);
	tcase_add_test(tcase, the_test_is_mann_and_kendalls);
	tcase_add_test(tcase, what_says_nothing);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
