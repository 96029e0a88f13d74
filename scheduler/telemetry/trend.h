/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether something grows, and when it reaches a limit if it goes on so (docs/decisions/0022): the Mann-Kendall test, the
 * Theil-Sen line, and an interval of 95 % for the time, of a series of evenly spaced values such as one a day. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define TREND_LEAST 7  /* known values: fewer say nothing */
#define TREND_MOST 128 /* values: of more, the latest are taken */

enum trend_verdict {
	TREND_TOO_SHORT, /* less than TREND_LEAST values */
	TREND_NONE,      /* what is seen happens by chance too often */
	TREND_FALLS,
	TREND_GROWS,
	TREND_MAX_
};
const char *trend_name(enum trend_verdict verdict); /* "too_short", "none", "falls", "grows" */

struct trend {
	enum trend_verdict verdict;
	double p;                           /* two-sided, of the test; 1 where it was not made */
	double slope, slope_low, slope_high; /* per step; 0 where it neither grows nor falls */
	double level;                       /* of the line at the last value */
	/* Of one that grows: steps after the last value until the limit is reached; 0: it is already. `high` is HUGE_VAL
	 * where the interval has no end. */
	double reaches, reaches_low, reaches_high;
};

/* `values` in the order of time, one per step; NAN where it is not known, but for the last. */
void trend_find(const double *values, size_t n, double limit, struct trend *ret);
