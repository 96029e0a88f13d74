/* SPDX-License-Identifier: Apache-2.0
 *
 * A start is a series of stages, and its caller gets their product. These are the rates of each stage among the facts that
 * a filter takes, with what can be said of them: an interval, the weakest stage, and what another rate would change.
 */
#pragma once

#include "telemetry/facts.h"
#include "telemetry/histogram.h"

#define RATE_CODES_MAX 3

/* NULL and 0 take everything. */
struct facts_filter {
	int64_t from_us, to_us; /* began in [from, to); to 0: no end */
	const char *tenant, *pool, *node, *template_name, *version, *region;
	uint32_t vcpus;
	uint64_t memory_mib;
	bool (*sees)(const char *tenant, const void *user); /* NULL: all */
	const void *user;
};

/* How often one code ended a stage, with its latest example. Texts live as long as the facts stay as they are. */
struct rate_code {
	enum fail_code code;
	uint64_t n;
	const char *trace, *sandbox, *pool, *node;
};

struct stage_rate {
	uint64_t ok, failed, skipped;
	uint64_t saved;            /* failures apart from `failed`: a later attempt of the same start became ready */
	double success, low, high; /* of callers: ok / (ok + failed), Wilson's interval of 95 %; 1, 0, 1 where there was no attempt */
	double p50_ms, p90_ms, p95_ms, p99_ms; /* of those that ran and were reported one by one; buckets of 9 % */
	struct rate_code codes[RATE_CODES_MAX]; /* the commonest first */
	size_t n_codes;
};

struct rates {
	struct stage_rate stages[STAGE_MAX_];
	bool has_product;             /* a stage of a start was attempted */
	double product, low, high;    /* of the stages of a start; its interval of 95 % */
	enum fail_stage weakest;      /* of a start: the lowest success; STAGE_MAX_ where nothing failed */
	bool is_complete;             /* false: facts of this time were dropped */
	uint64_t n_dropped;           /* of all times */
	int64_t oldest_us, newest_us; /* of the facts taken; 0: none */
};

/* What rates are made of. A code counts each failure, saved ones too. */
struct rate_sum {
	int64_t ok, failed, saved, skipped;
	struct histogram took;
	uint64_t codes[FAIL_MAX_];
};
struct rate_sums {
	struct rate_sum stages[STAGE_MAX_];
};

/* Whether a stage is part of a start, and so of the product. */
bool rate_is_of_start(enum fail_stage stage);
/* Reads every fact, FACTS_MAX and CALLS_MAX of them at most. 0 or -ENOMEM. */
int facts_rates(const struct facts *facts, const struct facts_filter *filter, struct rates *ret);
/* Every failed one that the filter takes, the latest first, as far as they were heard in their order; its texts live as long as
 * the facts stay as they are. */
typedef void (*facts_on_failed)(const struct stage_fact *fact, bool is_saved, void *user);
void facts_each_failed(const struct facts *facts, const struct facts_filter *filter, facts_on_failed each, void *user);
/* Of sums alone: without examples, times and what is complete. */
void rates_of_sums(const struct rate_sums *sums, struct rates *ret);
/* The product if `stage` had this success and all others theirs. */
double rates_what_if(const struct rates *rates, enum fail_stage stage, double success);
/* Wilson's score interval of `ok` of `n`, at 95 %. */
void rate_interval(uint64_t ok, uint64_t n, double *ret_low, double *ret_high);
