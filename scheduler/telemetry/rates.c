/* SPDX-License-Identifier: Apache-2.0
 *
 * See rates.h.
 */
#include "telemetry/rates.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "telemetry/facts-private.h"

#define Z 1.959963984540054 /* of the normal distribution, two-sided 95 % */

/* The latest example of each code of each stage. */
struct examples {
	const struct kept_fact *latest[STAGE_MAX_][FAIL_MAX_];
};

bool rate_is_of_start(enum fail_stage stage)
{
	return stage >= STAGE_ADMIT && stage <= STAGE_READY;
}

void rate_interval(uint64_t ok, uint64_t n, double *ret_low, double *ret_high)
{
	double total = (double) n, p = n ? (double) ok / total : 0.0;
	double middle, half;

	if (n == 0) {
		*ret_low = 0.0;
		*ret_high = 1.0;
		return;
	}
	middle = (p + Z * Z / (2 * total)) / (1 + Z * Z / total);
	half = Z / (1 + Z * Z / total) * sqrt(p * (1 - p) / total + Z * Z / (4 * total * total));
	*ret_low = ok == 0 ? 0.0 : MAX(middle - half, 0.0);
	*ret_high = ok == n ? 1.0 : MIN(middle + half, 1.0);
}

/* A filter whose names were looked up once: each is kept once, so that they are compared by address. */
struct look {
	const struct facts_filter *filter;
	const struct name *wanted[FACT_NAME_MAX_];
	const struct name *seen; /* the tenant that was asked about last */
	bool is_seen;
};

/* False: a name that no fact has, so none is taken. */
static bool look_init(struct look *look, const struct facts *facts, const struct facts_filter *filter)
{
	const char *const texts[FACT_NAME_MAX_] = {
		[FACT_TENANT] = filter->tenant,
		[FACT_POOL] = filter->pool,
		[FACT_NODE] = filter->node,
		[FACT_TEMPLATE] = filter->template_name,
		[FACT_VERSION] = filter->version,
		[FACT_REGION] = filter->region,
	};

	*look = (struct look) { .filter = filter };
	for (size_t i = 0; i < FACT_NAME_MAX_; i++) {
		struct name *name = NULL;

		if (!texts[i])
			continue;
		HASH_FIND_STR(facts->names, texts[i], name);
		if (!name)
			return false;
		look->wanted[i] = name;
	}
	return true;
}

static bool sees(struct look *look, const struct name *tenant)
{
	if (!look->filter->sees)
		return true;
	if (look->seen != tenant) {
		look->seen = tenant;
		look->is_seen = look->filter->sees(tenant->text, look->filter->user);
	}
	return look->is_seen;
}

static bool takes(struct look *look, const struct kept_fact *fact)
{
	const struct facts_filter *filter = look->filter;

	if (fact->when_us < filter->from_us || (filter->to_us > 0 && fact->when_us >= filter->to_us) ||
		(filter->vcpus > 0 && fact->vcpus != filter->vcpus) ||
		(filter->memory_mib > 0 && fact->memory_mib != filter->memory_mib))
		return false;
	for (size_t i = 0; i < FACT_NAME_MAX_; i++)
		if (look->wanted[i] && fact->names[i] != look->wanted[i])
			return false;
	return sees(look, fact->names[FACT_TENANT]);
}

/* The latest of two rings first. */
void facts_each_failed(const struct facts *facts, const struct facts_filter *filter, facts_on_failed each, void *user)
{
	const struct fact_ring *starts = &facts->rings[FACTS_OF_STARTS], *calls = &facts->rings[FACTS_OF_CALLS];
	size_t n_starts = starts->n, n_calls = calls->n;
	struct look look;

	if (!look_init(&look, facts, filter))
		return;
	while (n_starts + n_calls > 0) {
		const struct kept_fact *start = n_starts ? ring_at(starts, n_starts - 1) : NULL;
		const struct kept_fact *fact = n_calls ? ring_at(calls, n_calls - 1) : NULL;

		if (!fact || (start && start->when_us >= fact->when_us)) {
			fact = start;
			n_starts--;
		} else {
			n_calls--;
		}
		if (fact->outcome == RESULT_FAILED && takes(&look, fact)) {
			const struct stage_fact failed = fact_of(fact);

			each(&failed, fact->is_saved, user);
		}
	}
}

static void count(struct rates *rates, struct rate_sums *sums, struct examples *examples, const struct kept_fact *fact)
{
	const int64_t n = (int64_t) fact->n;
	struct rate_sum *sum;

	if ((unsigned int) fact->stage >= STAGE_MAX_)
		return;
	sum = &sums->stages[fact->stage];
	if (fact->outcome == RESULT_OK)
		sum->ok += n;
	else if (fact->outcome == RESULT_SKIPPED)
		sum->skipped += n;
	else if (fact->outcome == RESULT_FAILED)
		*(fact->is_saved ? &sum->saved : &sum->failed) += n;
	else
		return;
	if (fact->outcome != RESULT_SKIPPED && n == 1)
		histogram_add(&sum->took, fact->took_us);
	if (fact->outcome == RESULT_FAILED && (unsigned int) fact->code < FAIL_MAX_) {
		const struct kept_fact **latest = &examples->latest[fact->stage][fact->code];

		sum->codes[fact->code] += fact->n;
		/* one by itself has a trace: the better example */
		if (!*latest || (n == 1 && ((*latest)->n > 1 || fact->when_us >= (*latest)->when_us)))
			*latest = fact;
	}
	if (rates->oldest_us == 0 || fact->when_us < rates->oldest_us)
		rates->oldest_us = fact->when_us;
	rates->newest_us = MAX(rates->newest_us, fact->when_us);
}

/* The commonest first, of equal ones the one that stands first in failure.def. */
static void pick_codes(struct stage_rate *rate, const uint64_t counts[FAIL_MAX_])
{
	bool is_picked[FAIL_MAX_] = { false };

	while (rate->n_codes < RATE_CODES_MAX) {
		size_t best = 0;

		for (size_t i = 1; i < FAIL_MAX_; i++)
			if (!is_picked[i] && counts[i] > (best ? counts[best] : 0))
				best = i;
		if (best == 0)
			return;
		is_picked[best] = true;
		rate->codes[rate->n_codes++] = (struct rate_code) { .code = (enum fail_code) best, .n = counts[best], .trace = "",
			.sandbox = "", .pool = "", .node = "" };
	}
}

static void name_examples(struct rates *rates, const struct examples *examples)
{
	for (size_t i = 1; i < STAGE_MAX_; i++)
		for (size_t k = 0; k < rates->stages[i].n_codes; k++) {
			struct rate_code *code = &rates->stages[i].codes[k];
			const struct kept_fact *latest = examples->latest[i][code->code];

			code->trace = latest->trace;
			code->sandbox = latest->sandbox;
			code->pool = latest->names[FACT_POOL]->text;
			code->node = latest->names[FACT_NODE]->text;
		}
}

/* The most that a product of 0 may be: the most of the stage that was never passed. */
static double nothing_of(const struct rates *rates)
{
	double most = 1.0;

	for (unsigned int i = 1; i < STAGE_MAX_; i++)
		if (rate_is_of_start((enum fail_stage) i) && rates->stages[i].ok == 0 && rates->stages[i].failed > 0)
			most = MIN(most, rates->stages[i].high);
	return most;
}

/* The interval of a product, in logarithms around its own: the variance of each rate is that of a rate to which two successes
 * and two failures were added (as Agresti and Coull do), so that a stage which never failed adds its share of doubt too. */
static void multiply(struct rates *rates)
{
	double variance = 0.0;

	rates->product = 1.0;
	rates->weakest = STAGE_MAX_;
	for (unsigned int i = 1; i < STAGE_MAX_; i++) {
		const struct stage_rate *rate = &rates->stages[i];
		double n = (double) (rate->ok + rate->failed), p = ((double) rate->ok + 2) / (n + 4);

		if (!rate_is_of_start((enum fail_stage) i) || rate->ok + rate->failed == 0)
			continue;
		rates->has_product = true;
		rates->product *= rate->success;
		variance += (1 - p) / ((n + 4) * p);
		if (rate->failed > 0 && (rates->weakest == STAGE_MAX_ || rate->success < rates->stages[rates->weakest].success))
			rates->weakest = (enum fail_stage) i;
	}
	rates->low = rates->product * exp(-Z * sqrt(variance));
	rates->high = rates->product > 0.0 ? MIN(rates->product * exp(Z * sqrt(variance)), 1.0) : nothing_of(rates);
}

static uint64_t count_of(int64_t n)
{
	return n > 0 ? (uint64_t) n : 0;
}

void rates_of_sums(const struct rate_sums *sums, struct rates *ret)
{
	for (size_t i = 1; i < STAGE_MAX_; i++) {
		const struct rate_sum *sum = &sums->stages[i];
		struct stage_rate *rate = &ret->stages[i];
		const uint64_t judged = count_of(sum->ok) + count_of(sum->failed);

		rate->ok = count_of(sum->ok);
		rate->failed = count_of(sum->failed);
		rate->saved = count_of(sum->saved);
		rate->skipped = count_of(sum->skipped);
		rate->success = judged ? (double) rate->ok / (double) judged : 1.0;
		rate_interval(rate->ok, judged, &rate->low, &rate->high);
		rate->p50_ms = histogram_quantile(&sum->took, 0.50) / 1000.0;
		rate->p90_ms = histogram_quantile(&sum->took, 0.90) / 1000.0;
		rate->p95_ms = histogram_quantile(&sum->took, 0.95) / 1000.0;
		rate->p99_ms = histogram_quantile(&sum->took, 0.99) / 1000.0;
		pick_codes(rate, sum->codes);
	}
	multiply(ret);
}

int facts_rates(const struct facts *facts, const struct facts_filter *filter, struct rates *ret)
{
	struct rate_sums *sums = calloc(1, sizeof(*sums));
	struct examples *examples = calloc(1, sizeof(*examples));
	struct look look;
	bool is_any = look_init(&look, facts, filter);

	memset(ret, 0, sizeof(*ret));
	ret->is_complete = true;
	for (size_t kind = 0; sums && examples && kind < FACT_KIND_MAX_; kind++) {
		const struct fact_ring *ring = &facts->rings[kind];

		for (size_t i = 0; is_any && i < ring->n; i++)
			if (takes(&look, ring_at(ring, i)))
				count(ret, sums, examples, ring_at(ring, i));
		ret->n_dropped += ring->n_dropped;
		ret->is_complete = ret->is_complete && (ring->n_dropped == 0 || ring->dropped_until_us < filter->from_us);
	}
	if (sums && examples) {
		rates_of_sums(sums, ret);
		name_examples(ret, examples);
	}
	is_any = sums && examples;
	free(sums);
	free(examples);
	return is_any ? 0 : -ENOMEM;
}

double rates_what_if(const struct rates *rates, enum fail_stage stage, double success)
{
	double product = 1.0;

	for (unsigned int i = 1; i < STAGE_MAX_; i++) {
		const struct stage_rate *rate = &rates->stages[i];

		if (rate_is_of_start((enum fail_stage) i) && rate->ok + rate->failed > 0)
			product *= i == (unsigned int) stage ? success : rate->success;
	}
	return product;
}
