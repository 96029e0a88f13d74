/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom a scheduler follows: the runs of its store before it, and nobody's where the store is a copy of one in use.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "fleet/fleet.h"
#include "fleet/runs.h"
#include "lib/suite.h"

#define LINEAGE "aaaaaaaaaaaaaaaaaaaa"

static struct run_mark mark(uint64_t epoch, const char *run, const char *place)
{
	struct run_mark m = { .epoch = epoch, .lineage = LINEAGE };

	(void)snprintf(m.run, sizeof(m.run), "%s", run);
	(void)snprintf(m.place, sizeof(m.place), "%s", place);
	return m;
}

static void lead(struct runs *runs, const char *run, const char *place)
{
	const uint64_t last = runs->n ? runs->list[runs->n - 1].epoch : 0;
	struct run_mark m = mark(last + 1, run, place);

	runs_begin(runs, last, &m);
	ck_assert_int_eq(runs_add(runs, &m), 0);
}

/* What a copied directory holds. */
static struct runs copy(const struct runs *runs)
{
	struct runs to = { .n = 0 };

	for (size_t i = 0; i < runs->n; i++)
		ck_assert_int_eq(runs_add(&to, &runs->list[i]), 0);
	return to;
}

START_TEST(test_who_starts_again_follows_itself)
{
	struct runs runs = { .n = 0 };

	ck_assert(runs_follow(&runs, 3, "r3")); /* a store of a version without marks */
	lead(&runs, "r1", "here");
	lead(&runs, "r2", "here"); /* after kill -9: the mark says nothing of an end */
	lead(&runs, "r3", "here");
	ck_assert(runs_follow(&runs, 1, "r1"));
	ck_assert(runs_follow(&runs, 2, "r2"));
	ck_assert(!runs_follow(&runs, 2, "r1"));
	ck_assert(!runs_follow(&runs, 2, "other"));
	runs_deinit(&runs);
}
END_TEST

START_TEST(test_a_copy_of_one_in_use_follows_nobody)
{
	struct runs first = { .n = 0 }, second;

	lead(&first, "r1", "here");
	lead(&first, "r2", "here");
	second = copy(&first);
	lead(&second, "c3", "there");
	lead(&second, "c4", "there"); /* nor when it is started again */
	lead(&first, "r3", "here");
	for (uint64_t epoch = 1; epoch <= 2; epoch++) {
		const char *run = epoch == 1 ? "r1" : "r2";

		ck_assert(runs_follow(&first, epoch, run));
		ck_assert(!runs_follow(&second, epoch, run));
	}
	ck_assert(!runs_follow(&second, 3, "r3"));
	ck_assert(runs_follow(&second, 3, "c3"));
	ck_assert(!runs_follow(&first, 3, "c3"));
	runs_deinit(&first);
	runs_deinit(&second);
}
END_TEST

/* Moved in order, and copied then: both follow what was; from then on neither follows the other. */
START_TEST(test_who_was_stopped_may_go_elsewhere)
{
	struct runs first = { .n = 0 }, second;

	lead(&first, "r1", "here");
	first.list[0].was_stopped = true;
	second = copy(&first);
	lead(&first, "r2", "elsewhere");
	lead(&second, "c2", "there");
	lead(&second, "c3", "there");
	ck_assert(runs_follow(&first, 1, "r1"));
	ck_assert(runs_follow(&second, 1, "r1"));
	ck_assert(!runs_follow(&second, 2, "r2")); /* with a lower epoch than its own, too */
	ck_assert(!runs_follow(&first, 2, "c2"));
	runs_deinit(&first);
	runs_deinit(&second);
}
END_TEST

START_TEST(test_a_place_that_is_not_known_accuses_nobody)
{
	struct runs runs = { .n = 0 };

	lead(&runs, "r1", "");
	lead(&runs, "r2", "here");
	lead(&runs, "r3", "");
	ck_assert(runs_follow(&runs, 1, "r1"));
	ck_assert(runs_follow(&runs, 2, "r2"));
	runs_deinit(&runs);
}
END_TEST

/* Another lineage, or epochs of a version that left no marks: what was before is not known, and believed. */
START_TEST(test_a_gap_begins_anew)
{
	struct runs runs = { .n = 0 };
	struct run_mark m = mark(9, "r9", "there");

	lead(&runs, "r1", "here");
	runs_begin(&runs, 8, &m);
	ck_assert(m.is_first && !m.is_copy);
	ck_assert_int_eq(runs_add(&runs, &m), 0);
	ck_assert(!runs_have(&runs, 1));
	ck_assert(runs_follow(&runs, 8, "r8"));
	m = mark(10, "r10", "there");
	memcpy(m.lineage, "bbbbbbbbbbbbbbbbbbbb", ID_SIZE);
	runs_begin(&runs, 9, &m);
	ck_assert(m.is_first && !m.is_copy);
	runs_deinit(&runs);
}
END_TEST

START_TEST(test_the_oldest_are_forgotten)
{
	struct runs runs = { .n = 0 }, other = { .n = 0 };

	lead(&other, "r1", "here");
	for (int i = 0; i < RUNS_MAX + 10; i++) {
		char run[ID_SIZE];

		(void)snprintf(run, sizeof(run), "r%d", i);
		lead(&runs, run, "here");
		lead(&other, run, "there");
	}
	ck_assert_uint_eq(runs.n, RUNS_MAX);
	ck_assert(!runs_have(&runs, 1));
	ck_assert(runs_follow(&runs, 1, "r0")); /* too long ago to say */
	ck_assert(!runs_follow(&runs, 100, "r0"));
	ck_assert(runs_have(&other, 2)); /* what says that it is a copy stays */
	ck_assert(!runs_follow(&other, 1, "r1"));
	runs_deinit(&runs);
	runs_deinit(&other);
}
END_TEST

/* The fleet asks by what a node says; a lineage that a restore ended is nobody's copy. */
START_TEST(test_the_fleet_asks_for_its_own_lineage_alone)
{
	struct runs runs = { .n = 0 };
	struct hello hello = { .highest_epoch = 1 };
	struct fleet_config config;
	struct fleet *fleet;

	lead(&runs, "r1", "here");
	lead(&runs, "r2", "there"); /* a copy */
	fleet_config_default(&config);
	config.epoch = 2;
	config.runs = &runs;
	memcpy(config.run, "r2", 3);
	memcpy(config.lineage, LINEAGE, ID_SIZE);
	ck_assert_int_eq(fleet_new(&fleet, &config), 0);
	ck_assert(!fleet_hello_is_split(fleet, &hello)); /* it never obeyed anybody */
	memcpy(hello.leader.run, "r1", 3);
	memcpy(hello.leader.lineage, LINEAGE, ID_SIZE);
	ck_assert(fleet_hello_is_split(fleet, &hello));
	hello.highest_epoch = 2;
	ck_assert(fleet_hello_is_split(fleet, &hello));
	memcpy(hello.leader.run, "r2", 3);
	ck_assert(!fleet_hello_is_split(fleet, &hello));
	memcpy(hello.leader.run, "r1", 3);
	memcpy(hello.leader.lineage, "bbbbbbbbbbbbbbbbbbbb", ID_SIZE);
	ck_assert(!fleet_hello_is_split(fleet, &hello));
	(void)fleet_free(fleet);
	runs_deinit(&runs);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fleet-runs");
	TCase *tcase = tcase_create("runs");

	tcase_add_test(tcase, test_who_starts_again_follows_itself);
	tcase_add_test(tcase, test_a_copy_of_one_in_use_follows_nobody);
	tcase_add_test(tcase, test_who_was_stopped_may_go_elsewhere);
	tcase_add_test(tcase, test_a_place_that_is_not_known_accuses_nobody);
	tcase_add_test(tcase, test_a_gap_begins_anew);
	tcase_add_test(tcase, test_the_oldest_are_forgotten);
	tcase_add_test(tcase, test_the_fleet_asks_for_its_own_lineage_alone);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
