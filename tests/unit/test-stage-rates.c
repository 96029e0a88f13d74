/* SPDX-License-Identifier: Apache-2.0
 *
 * Rates of stages against known answers: published intervals, made facts with a known product, a ring that forgets.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"
#include "lib/suite.h"
#include "telemetry/rates.h"
#include "telemetry/trace.h"

static struct facts *facts;
static struct rates rates;

static void set_up(void)
{
	ck_assert_int_eq(facts_new(&facts, 4096, 4096), 0);
}

static void tear_down(void)
{
	facts = facts_free(facts);
}

static struct stage_fact fact_of(enum fail_stage stage, enum fail_code code)
{
	return (struct stage_fact) { .when_us = 1000, .took_us = 5000, .stage = stage,
		.outcome = code == FAIL_NONE ? RESULT_OK : RESULT_FAILED, .code = code, .attempt = 1, .vcpus = 2,
		.memory_mib = 512, .sandbox = "sandbox", .trace = "trace", .tenant = "acme", .pool = "eu", .node = "n1",
		.template_name = "base", .version = "0.1.0", .region = "north" };
}

static void add(enum fail_stage stage, enum fail_code code, unsigned int n)
{
	struct stage_fact fact = fact_of(stage, code);

	for (unsigned int i = 0; i < n; i++)
		facts_add(facts, &fact);
}

static const struct stage_rate *rate_of(enum fail_stage stage, const struct facts_filter *filter)
{
	ck_assert_int_eq(facts_rates(facts, filter, &rates), 0);
	return &rates.stages[stage];
}

static const struct facts_filter everything;

/* Newcombe 1998, method 3 (score without continuity correction), and what follows for none and all. */
START_TEST(intervals_are_wilsons)
{
	static const struct {
		uint64_t ok, n;
		double low, high;
	} rows[] = { { 81, 263, 0.2553, 0.3662 }, { 15, 148, 0.0624, 0.1605 }, { 0, 20, 0.0, 0.1611 }, { 1, 29, 0.0061, 0.1718 },
		{ 20, 20, 0.8389, 1.0 }, { 0, 0, 0.0, 1.0 } };
	double low, high;

	rate_interval(rows[_i].ok, rows[_i].n, &low, &high);
	ck_assert_double_eq_tol(low, rows[_i].low, 0.00006);
	ck_assert_double_eq_tol(high, rows[_i].high, 0.00006);
}
END_TEST

START_TEST(a_product_and_its_weakest_stage)
{
	add(STAGE_PLACE, FAIL_NONE, 9);
	add(STAGE_PLACE, FAIL_NO_CAPACITY, 1);
	add(STAGE_VMM, FAIL_NONE, 8);
	add(STAGE_VMM, FAIL_KERNEL_MISSING, 1);
	add(STAGE_VMM, FAIL_KVM_UNAVAILABLE, 1);
	add(STAGE_READY, FAIL_NONE, 8);
	add(STAGE_EXEC, FAIL_KVM_UNAVAILABLE, 100); /* of a life, not of a start */
	ck_assert_double_eq_tol(rate_of(STAGE_VMM, &everything)->success, 0.8, 1e-12);
	ck_assert(rates.has_product);
	ck_assert_double_eq_tol(rates.product, 0.9 * 0.8, 1e-12);
	ck_assert(rates.low < rates.product && rates.product < rates.high && rates.high <= 1.0 && rates.low > 0.0);
	ck_assert_int_eq(rates.weakest, STAGE_VMM);
	ck_assert_double_eq_tol(rates_what_if(&rates, STAGE_VMM, 0.999), 0.9 * 0.999, 1e-12);
	ck_assert_double_eq_tol(rates_what_if(&rates, STAGE_NETWORK, 0.5), 0.72, 1e-12); /* never attempted: no part of it */
	ck_assert_uint_eq(rates.stages[STAGE_EXEC].failed, 100);
}
END_TEST

START_TEST(a_stage_that_nothing_passed)
{
	add(STAGE_PLACE, FAIL_NONE, 20);
	add(STAGE_VMM, FAIL_KERNEL_MISSING, 20);
	ck_assert_int_eq(facts_rates(facts, &everything, &rates), 0);
	ck_assert(rates.product == 0.0 && rates.low == 0.0);
	ck_assert_double_eq_tol(rates.high, 0.1611, 0.00006);
}
END_TEST

START_TEST(nothing_is_no_product)
{
	struct stage_fact skipped = fact_of(STAGE_NETWORK, FAIL_NONE);

	skipped.outcome = RESULT_SKIPPED;
	facts_add(facts, &skipped);
	ck_assert_uint_eq(rate_of(STAGE_NETWORK, &everything)->skipped, 1);
	ck_assert(!rates.has_product && rates.weakest == STAGE_MAX_);
	ck_assert_double_eq(rates.stages[STAGE_NETWORK].p50_ms, 0.0); /* and took no time */
	ck_assert(rates.stages[STAGE_NETWORK].low == 0.0 && rates.stages[STAGE_NETWORK].high == 1.0);
}
END_TEST

START_TEST(the_commonest_codes_come_first_with_the_latest_example)
{
	struct stage_fact last = fact_of(STAGE_VMM, FAIL_KVM_UNAVAILABLE);
	const struct stage_rate *rate;

	add(STAGE_VMM, FAIL_KERNEL_MISSING, 2);
	add(STAGE_VMM, FAIL_KVM_UNAVAILABLE, 4);
	add(STAGE_VMM, FAIL_VMM_UNRESPONSIVE, 3);
	add(STAGE_VMM, FAIL_VMM_START_FAILED, 1);
	last.trace = "the-last";
	last.node = "n7";
	facts_add(facts, &last);
	rate = rate_of(STAGE_VMM, &everything);
	ck_assert_uint_eq(rate->n_codes, RATE_CODES_MAX);
	ck_assert_int_eq(rate->codes[0].code, FAIL_KVM_UNAVAILABLE);
	ck_assert_uint_eq(rate->codes[0].n, 5);
	ck_assert_str_eq(rate->codes[0].trace, "the-last");
	ck_assert_str_eq(rate->codes[0].node, "n7");
	ck_assert_int_eq(rate->codes[1].code, FAIL_VMM_UNRESPONSIVE);
	ck_assert_int_eq(rate->codes[2].code, FAIL_KERNEL_MISSING);
}
END_TEST

/* Each filter alone takes its fact and no other. */
START_TEST(filters)
{
	struct stage_fact other = fact_of(STAGE_DISK, FAIL_NONE);
	struct facts_filter filter = { .from_us = 0 };

	add(STAGE_DISK, FAIL_NONE, 3);
	switch (_i) {
	case 0: other.tenant = filter.tenant = "globex"; break;
	case 1: other.pool = filter.pool = "us"; break;
	case 2: other.node = filter.node = "n2"; break;
	case 3: other.template_name = filter.template_name = "node22"; break;
	case 4: other.version = filter.version = "0.2.0"; break;
	case 5: other.vcpus = filter.vcpus = 4; break;
	case 6: other.memory_mib = filter.memory_mib = 2048; break;
	case 7: other.when_us = filter.from_us = 2000; break;
	case 8: other.when_us = 999; filter.to_us = 1000; break;
	case 9: other.region = filter.region = "south"; break;
	default: ck_abort();
	}
	ck_assert_uint_eq(rate_of(STAGE_DISK, &filter)->ok, 0);
	facts_add(facts, &other);
	ck_assert_uint_eq(rate_of(STAGE_DISK, &filter)->ok, 1);
	ck_assert_uint_eq(rate_of(STAGE_DISK, &everything)->ok, 4);
}
END_TEST

static bool sees_acme(const char *tenant, const void *user)
{
	ck_assert_ptr_eq(user, &everything);
	return !strcmp(tenant, "acme");
}

START_TEST(who_may_not_see_a_tenant_counts_none_of_it)
{
	const struct facts_filter filter = { .sees = sees_acme, .user = &everything };
	struct stage_fact other = fact_of(STAGE_DISK, FAIL_DISK_MAKE_FAILED);

	other.tenant = "globex";
	facts_add(facts, &other);
	add(STAGE_DISK, FAIL_NONE, 1);
	ck_assert_uint_eq(rate_of(STAGE_DISK, &filter)->failed, 0);
	ck_assert_uint_eq(rates.stages[STAGE_DISK].n_codes, 0);
	ck_assert_uint_eq(rates.stages[STAGE_DISK].ok, 1);
}
END_TEST

START_TEST(a_failure_that_a_retry_saved_is_counted_apart)
{
	struct stage_fact fact = fact_of(STAGE_KERNEL, FAIL_KERNEL_TIMEOUT);

	facts_add(facts, &fact);
	fact.sandbox = "lost"; /* its own second attempt fails too */
	facts_add(facts, &fact);
	fact.attempt = 2;
	facts_add(facts, &fact);
	ck_assert_uint_eq(rate_of(STAGE_KERNEL, &everything)->saved, 0);
	fact = fact_of(STAGE_READY, FAIL_NONE);
	facts_add(facts, &fact); /* ready at its first attempt: of another life */
	ck_assert_uint_eq(rate_of(STAGE_KERNEL, &everything)->saved, 0);
	fact.attempt = 2;
	facts_add(facts, &fact);
	ck_assert_uint_eq(rate_of(STAGE_KERNEL, &everything)->saved, 1);
	ck_assert_uint_eq(rates.stages[STAGE_KERNEL].failed, 2);
	ck_assert_double_eq(rates.stages[STAGE_KERNEL].success, 0.0);
	ck_assert_uint_eq(rates.stages[STAGE_KERNEL].codes[0].n, 3);
}
END_TEST

/* The ring forgets the oldest, says so, and every answer that reaches back so far says it is not whole. */
START_TEST(what_was_forgotten_is_said)
{
	struct facts_filter filter = { .from_us = 0 };
	struct stage_fact fact = fact_of(STAGE_DISK, FAIL_NONE);
	char node[32];

	fact.node = node;
	for (int i = 0; i < 10000; i++) { /* names that come and go */
		(void) snprintf(node, sizeof(node), "node-%d", i);
		fact.when_us = 1000 + i;
		facts_add(facts, &fact);
	}
	ck_assert_uint_eq(rate_of(STAGE_DISK, &filter)->ok, 4096);
	ck_assert_uint_eq(rates.n_dropped, 10000 - 4096);
	ck_assert(!rates.is_complete);
	ck_assert_int_eq(rates.oldest_us, 1000 + 10000 - 4096);
	ck_assert_int_eq(rates.newest_us, 1000 + 9999);
	filter.from_us = rates.oldest_us;
	ck_assert_uint_eq(rate_of(STAGE_DISK, &filter)->ok, 4096);
	ck_assert(rates.is_complete);
	filter.node = "node-5";
	ck_assert_uint_eq(rate_of(STAGE_DISK, &filter)->ok, 0);
	facts_clear(facts);
	ck_assert_uint_eq(rate_of(STAGE_DISK, &everything)->ok, 0);
	ck_assert(rates.is_complete);
}
END_TEST

/* Two failures of one sandbox's lives: only what is behind its last admission is saved. */
START_TEST(what_is_saved_began_with_the_start)
{
	struct stage_fact fact = fact_of(STAGE_VMM, FAIL_KERNEL_MISSING);

	facts_add(facts, &fact);
	fact = fact_of(STAGE_ADMIT, FAIL_NONE);
	facts_add(facts, &fact);
	fact = fact_of(STAGE_VMM, FAIL_KERNEL_MISSING);
	facts_add(facts, &fact);
	fact = fact_of(STAGE_READY, FAIL_NONE);
	fact.attempt = 2;
	facts_add(facts, &fact);
	ck_assert_uint_eq(rate_of(STAGE_VMM, &everything)->saved, 1);
	ck_assert_uint_eq(rates.stages[STAGE_VMM].failed, 1);
}
END_TEST

/* As a store has them: in the order of random ids. The newest 4096 or somewhat fewer stay, none older than one that went. */
START_TEST(a_load_keeps_the_newest)
{
	struct facts_filter filter = { .from_us = 0 };
	struct stage_fact fact = fact_of(STAGE_DISK, FAIL_NONE);

	facts_load_begin(facts);
	for (uint64_t i = 0; i < 20000; i++) {
		fact.when_us = 1 + (int64_t) (i * 7919 % 20000);
		facts_add(facts, &fact);
	}
	facts_load_end(facts);
	ck_assert_uint_ge(rate_of(STAGE_DISK, &filter)->ok, 2000);
	ck_assert_int_eq(rates.newest_us, 20000);
	ck_assert_uint_eq(rates.stages[STAGE_DISK].ok + rates.n_dropped, 20000);
	ck_assert_int_eq(rates.oldest_us, 20001 - (int64_t) rates.stages[STAGE_DISK].ok);
	ck_assert(!rates.is_complete);
	filter.from_us = rates.oldest_us;
	(void) rate_of(STAGE_DISK, &filter);
	ck_assert(rates.is_complete);
	for (int i = 0; i < 4096; i++) { /* then the oldest goes first again */
		fact.when_us = 20001 + i;
		facts_add(facts, &fact);
	}
	filter.from_us = 0;
	ck_assert_uint_eq(rate_of(STAGE_DISK, &filter)->ok, 4096);
	ck_assert_int_eq(rates.oldest_us, 20001);
}
END_TEST

/* Values that no sane peer sends harm nothing. */
START_TEST(strange_facts)
{
	struct stage_fact fact = { .stage = STAGE_MAX_, .outcome = RESULT_FAILED, .code = FAIL_MAX_ };

	facts_add(facts, &fact);
	fact.stage = STAGE_DISK;
	fact.took_us = INT64_MIN;
	fact.when_us = INT64_MIN;
	facts_add(facts, &fact);
	fact.outcome = RESULT_MAX_;
	facts_add(facts, &fact);
	ck_assert_uint_eq(rate_of(STAGE_DISK, &everything)->failed, 0); /* began before time did */
	fact.outcome = RESULT_FAILED;
	fact.when_us = INT64_MAX;
	fact.took_us = INT64_MAX;
	facts_add(facts, &fact);
	ck_assert_uint_eq(rate_of(STAGE_DISK, &everything)->failed, 1);
	ck_assert_uint_eq(rates.stages[STAGE_DISK].n_codes, 0);
}
END_TEST

/* Of starts whose stages have known rates, the interval of the product holds the true one in at least 90 of 100. */
START_TEST(the_interval_holds_the_truth)
{
	static const struct {
		double success;
		unsigned int starts;
	} rows[] = { { 0.99, 300 }, { 0.9, 100 }, { 0.999, 1000 } };
	const enum fail_stage stages[] = { STAGE_PLACE, STAGE_IMAGE, STAGE_VMM, STAGE_KERNEL };
	struct rng rng = rng_seeded(20261130u + (unsigned int) _i);
	const double truth = pow(rows[_i].success, ARRAY_LEN(stages));
	unsigned int held = 0;

	for (int seed = 0; seed < 100; seed++) {
		facts_clear(facts);
		for (unsigned int start = 0; start < rows[_i].starts; start++)
			for (size_t s = 0; s < ARRAY_LEN(stages); s++) {
				bool is_ok = (double) rng_below(&rng, 1u << 30) < rows[_i].success * (1u << 30);

				add(stages[s], is_ok ? FAIL_NONE : FAIL_NO_MEMORY, 1);
				if (!is_ok)
					break; /* what is behind it is not attempted */
			}
		ck_assert_int_eq(facts_rates(facts, &everything, &rates), 0);
		held += rates.low <= truth && truth <= rates.high;
	}
	ck_assert_msg(held >= 90, "%u of 100", held);
}
END_TEST

/* Of one trace or one sandbox, in the order in which they began whatever the order of hearing; the first ones where they are too
 * many, and the time of what the ring forgot. */
START_TEST(one_run)
{
	static struct stage_fact run[TRACE_FACTS_MAX];
	struct stage_fact fact = fact_of(STAGE_EXEC, FAIL_NONE);
	const struct trace_filter by_trace = { .trace = "mine" }, by_sandbox = { .sandbox = "box" };
	const struct trace_filter seen = { .sandbox = "box", .sees = sees_acme, .user = &everything };
	bool has_more;

	fact.trace = "mine";
	fact.sandbox = "box";
	for (unsigned int i = 0; i < 100; i++) {
		fact.when_us = 1000 + (i * 37) % 100;
		facts_add(facts, &fact);
		add(STAGE_EXEC, FAIL_NONE, 1); /* another's */
	}
	fact.trace = "other";
	fact.tenant = "globex";
	facts_add(facts, &fact);
	ck_assert_uint_eq(facts_trace(facts, &by_trace, run, &has_more), 100);
	ck_assert(!has_more);
	for (unsigned int i = 0; i < 100; i++)
		ck_assert_int_eq(run[i].when_us, 1000 + i);
	ck_assert_str_eq(run[0].sandbox, "box");
	ck_assert_str_eq(run[0].region, "north");
	ck_assert_uint_eq(facts_trace(facts, &by_sandbox, run, &has_more), 101);
	ck_assert_uint_eq(facts_trace(facts, &seen, run, &has_more), 100);
	ck_assert_int_eq(facts_dropped_until(facts), 0);
	fact.trace = "mine";
	for (unsigned int i = 0; i < TRACE_FACTS_MAX; i++) {
		fact.when_us = 500 - i % 2;
		facts_add(facts, &fact);
	}
	ck_assert_uint_eq(facts_trace(facts, &by_trace, run, &has_more), TRACE_FACTS_MAX);
	ck_assert(has_more);
	ck_assert_int_eq(run[0].when_us, 499);
	ck_assert_int_eq(run[TRACE_FACTS_MAX - 1].when_us, 500);
	add(STAGE_EXEC, FAIL_NONE, 4096); /* the ring has room for so many */
	ck_assert_uint_eq(facts_trace(facts, &by_trace, run, &has_more), 0);
	ck_assert_int_eq(facts_dropped_until(facts), 1099);
}
END_TEST

/* A thousand calls in a row of the table, and more calls than there is room for: no start is pushed out. */
START_TEST(calls_push_out_calls_alone)
{
	struct stage_fact fact = fact_of(STAGE_EXEC, FAIL_GUEST_UNREACHABLE);

	add(STAGE_VMM, FAIL_NONE, 10);
	add(STAGE_EXEC, FAIL_GUEST_UNREACHABLE, 1);
	fact.n = 1000;
	fact.took_us = 1;
	fact.trace = "";
	fact.when_us = 2000;
	facts_add(facts, &fact);
	ck_assert_uint_eq(rate_of(STAGE_EXEC, &everything)->failed, 1001);
	ck_assert_uint_eq(rates.stages[STAGE_EXEC].codes[0].n, 1001);
	ck_assert_str_eq(rates.stages[STAGE_EXEC].codes[0].trace, "trace"); /* of the one that has one */
	ck_assert_double_gt(rates.stages[STAGE_EXEC].p50_ms, 4.0);	  /* a mean is no time of a call */
	add(STAGE_EXEC, FAIL_NONE, 5000);
	ck_assert_uint_eq(rate_of(STAGE_EXEC, &everything)->ok, 4096);
	ck_assert(!rates.is_complete);
	ck_assert_uint_eq(rates.stages[STAGE_VMM].ok, 10);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stage-rates");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, intervals_are_wilsons, 0, 6);
	tcase_add_test(tcase, a_product_and_its_weakest_stage);
	tcase_add_test(tcase, calls_push_out_calls_alone);
	tcase_add_test(tcase, a_stage_that_nothing_passed);
	tcase_add_test(tcase, nothing_is_no_product);
	tcase_add_test(tcase, the_commonest_codes_come_first_with_the_latest_example);
	tcase_add_test(tcase, one_run);
	tcase_add_loop_test(tcase, filters, 0, 10);
	tcase_add_test(tcase, who_may_not_see_a_tenant_counts_none_of_it);
	tcase_add_test(tcase, a_failure_that_a_retry_saved_is_counted_apart);
	tcase_add_test(tcase, what_was_forgotten_is_said);
	tcase_add_test(tcase, what_is_saved_began_with_the_start);
	tcase_add_test(tcase, a_load_keeps_the_newest);
	tcase_add_test(tcase, strange_facts);
	tcase_add_loop_test(tcase, the_interval_holds_the_truth, 0, 3);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
