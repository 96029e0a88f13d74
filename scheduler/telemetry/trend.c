/* SPDX-License-Identifier: Apache-2.0
 *
 * See trend.h.
 */
#include "telemetry/trend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define ALPHA 0.01               /* of the test: one flat series in a hundred is taken for a trend */
#define Z 1.959963984540054      /* two-sided 95 % */
#define MEDIAN_NOISE 1.2533141   /* sqrt(pi / 2): a median's error is greater than a mean's by this */
#define PAIRS_MOST (TREND_MOST * (TREND_MOST - 1) / 2)
#define RHO_MOST 0.9

const char *trend_name(enum trend_verdict verdict)
{
	static const char *const names[TREND_MAX_] = { [TREND_TOO_SHORT] = "too_short",
		[TREND_NONE] = "none",
		[TREND_FALLS] = "falls",
		[TREND_GROWS] = "grows" };

	return (unsigned int) verdict < TREND_MAX_ ? names[verdict] : "none";
}

static int compare(const void *a, const void *b)
{
	const double left = *(const double *) a, right = *(const double *) b;

	return (left > right) - (left < right);
}

/* Of sorted ones. */
static double median(const double *sorted, size_t n)
{
	return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static double median_of(const double *values, size_t n)
{
	double sorted[TREND_MOST];

	memcpy(sorted, values, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare);
	return median(sorted, n);
}

/* Of Kendall's S under no trend; equal values lower it. */
static double variance_of_s(const double *values, size_t n)
{
	double sorted[TREND_MOST], all = (double) n, sum = all * (all - 1) * (2 * all + 5);

	memcpy(sorted, values, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare);
	for (size_t i = 0, same; i < n; i += same) {
		for (same = 1; i + same < n && sorted[i + same] <= sorted[i]; same++)
			;
		sum -= (double) same * (double) (same - 1) * (2 * (double) same + 5);
	}
	return sum / 18;
}

/* How much the values around the line follow their predecessor: 0 and more. A series of n of them says as much as one of fewer
 * that are independent; the usual correction of the variance for a first-order process. */
static double inflation(const double *rest, size_t n)
{
	double mean = 0, sum = 0, lagged = 0, rho;

	for (size_t i = 0; i < n; i++)
		mean += rest[i] / (double) n;
	for (size_t i = 0; i < n; i++) {
		sum += (rest[i] - mean) * (rest[i] - mean);
		if (i > 0)
			lagged += (rest[i] - mean) * (rest[i - 1] - mean);
	}
	rho = sum > 0 ? lagged / sum : 0;
	rho += (1 + 3 * rho) / (double) n; /* an estimate from few is too low by about this */
	rho = MIN(MAX(rho, 0.0), RHO_MOST);
	return (1 + rho) / (1 - rho);
}

static double spread_of(const double *rest, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += rest[i] * rest[i];
	return n > 2 ? sqrt(sum / (double) (n - 2)) : 0;
}

/* The known values and their steps. */
struct known {
	double values[TREND_MOST], at[TREND_MOST];
	size_t n;
};

struct line {
	double slopes[PAIRS_MOST]; /* of all pairs, sorted */
	double rest[TREND_MOST];   /* values less the line */
	size_t n_pairs;
	double s; /* Kendall's */
	double slope, middle, at; /* it goes through (middle, at) */
};

static void draw(struct line *line, const struct known *known)
{
	const double *values = known->values;

	line->n_pairs = 0;
	line->s = 0;
	for (size_t i = 0; i < known->n; i++)
		for (size_t k = i + 1; k < known->n; k++) {
			line->slopes[line->n_pairs++] = (values[k] - values[i]) / (known->at[k] - known->at[i]);
			line->s += (values[k] > values[i]) - (values[k] < values[i]);
		}
	qsort(line->slopes, line->n_pairs, sizeof(double), compare);
	line->slope = median(line->slopes, line->n_pairs);
	line->middle = median(known->at, known->n);
	for (size_t i = 0; i < known->n; i++)
		line->rest[i] = values[i] - line->slope * (known->at[i] - line->middle);
	line->at = median_of(line->rest, known->n);
	for (size_t i = 0; i < known->n; i++)
		line->rest[i] -= line->at;
}

/* The slope at a rank that need not be whole; the outermost where it lies outside. */
static double slope_at(const struct line *line, double rank)
{
	const double last = (double) (line->n_pairs - 1);

	return line->slopes[(size_t) MIN(MAX(rank, 0.0), last)];
}

/* Steps from `from` until a line through (middle, at) reaches the limit. */
static double reach(double limit, double at, double slope, double middle, double from)
{
	if (slope <= 0)
		return at >= limit ? 0 : HUGE_VAL;
	return MAX(middle + (limit - at) / slope - from, 0.0);
}

static void take_known(const double *values, size_t n, struct known *ret)
{
	ret->n = 0;
	for (size_t i = n > TREND_MOST ? n - TREND_MOST : 0; i < n; i++)
		if (!isnan(values[i])) {
			ret->values[ret->n] = values[i];
			ret->at[ret->n++] = (double) i;
		}
}

/* When the limit is reached: the extremes of slope and of level put together. */
static void find_reach(const struct line *line, size_t n, double last, double inflated, double limit, struct trend *ret)
{
	const double doubt = Z * MEDIAN_NOISE * spread_of(line->rest, n) * sqrt(inflated / (double) n);

	ret->reaches = reach(limit, line->at, line->slope, line->middle, last);
	ret->reaches_low = reach(limit, line->at + doubt, ret->slope_high, line->middle, last);
	ret->reaches_high = reach(limit, line->at - doubt, ret->slope_low, line->middle, last);
}

static void judge(struct line *line, const struct known *known, double limit, struct trend *ret)
{
	const double last = known->at[known->n - 1];
	double deviation, inflated;

	draw(line, known);
	inflated = inflation(line->rest, known->n);
	deviation = sqrt(variance_of_s(known->values, known->n) * inflated);
	ret->level = line->at;
	ret->verdict = TREND_NONE;
	if (deviation > 0)
		ret->p = erfc(MAX(fabs(line->s) - 1, 0.0) / deviation / M_SQRT2);
	if (ret->p >= ALPHA)
		return;
	ret->verdict = line->s > 0 ? TREND_GROWS : TREND_FALLS;
	ret->slope = line->slope;
	ret->slope_low = slope_at(line, ((double) line->n_pairs - Z * deviation) / 2);
	ret->slope_high = slope_at(line, ((double) line->n_pairs + Z * deviation) / 2);
	ret->level = line->at + line->slope * (last - line->middle);
	if (ret->verdict == TREND_GROWS)
		find_reach(line, known->n, last, inflated, limit, ret);
}

void trend_find(const double *values, size_t n, double limit, struct trend *ret)
{
	struct known known;
	struct line *line;

	*ret = (struct trend) { .verdict = TREND_TOO_SHORT, .p = 1 };
	take_known(values, n, &known);
	line = known.n >= TREND_LEAST ? malloc(sizeof(*line)) : NULL;
	if (!line)
		return; /* for want of memory too: nothing is said rather than something wrong */
	judge(line, &known, limit, ret);
	free(line);
}
