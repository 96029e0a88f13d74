/* SPDX-License-Identifier: Apache-2.0
 *
 * reconcile: nothing is destroyed by a set that is partial, empty, about another inventory, or seen once.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/reconcile.h"
#include "lib/suite.h"

#define ID_A "aaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbb"

static struct reconcile *make(void)
{
	struct reconcile *reconcile;

	ck_assert_int_eq(reconcile_new(&reconcile), 0);
	return reconcile;
}

static bool feed(struct reconcile *reconcile, const char *id, uint64_t generation, uint32_t part,
	bool complete, uint64_t number)
{
	struct desired_sandbox item = { .generation = generation };
	struct desired_set set = { .part = part, .complete = complete, .inventory = number };

	if (id) {
		memcpy(item.sandbox, id, sizeof(item.sandbox));
		set.sandboxes = &item;
		set.n = 1;
	}
	return reconcile_add_part(reconcile, &set, number);
}

static enum reconcile_verdict judge(
	struct reconcile *reconcile, int64_t second, const char *id, uint64_t generation)
{
	struct reconcile_actual actual = { .generation = generation };

	memcpy(actual.sandbox, id, sizeof(actual.sandbox));
	return reconcile_judge(reconcile, second * USEC_PER_SEC, &actual, true);
}

START_TEST(test_named_is_kept_and_superseded_is_fenced)
{
	struct reconcile *reconcile = make();

	ck_assert(feed(reconcile, ID_A, 3, 0, true, 1));
	ck_assert_int_eq(judge(reconcile, 1, ID_A, 3), RECONCILE_KEEP);
	ck_assert_int_eq(judge(reconcile, 1, ID_A, 4), RECONCILE_KEEP);
	ck_assert_int_eq(judge(reconcile, 1, ID_A, 2), RECONCILE_FENCE);
	reconcile_free(reconcile);
}
END_TEST

START_TEST(test_drift_needs_two_looks_and_a_minute)
{
	struct reconcile *reconcile = make();

	ck_assert(feed(reconcile, ID_A, 1, 0, true, 1));
	ck_assert_int_eq(judge(reconcile, 100, ID_B, 1), RECONCILE_DRIFTING);
	ck_assert(feed(reconcile, ID_A, 1, 0, true, 1));
	ck_assert_int_eq(judge(reconcile, 159, ID_B, 1), RECONCILE_DRIFTING);
	ck_assert_uint_eq(reconcile_drifting(reconcile), 1);
	ck_assert(feed(reconcile, ID_A, 1, 0, true, 1));
	ck_assert_int_eq(judge(reconcile, 160, ID_B, 1), RECONCILE_DESTROY);
	ck_assert_uint_eq(reconcile_drifting(reconcile), 0);
	reconcile_free(reconcile);
}
END_TEST

START_TEST(test_one_look_is_not_enough_however_late)
{
	struct reconcile *reconcile = make();

	ck_assert(feed(reconcile, ID_A, 1, 0, true, 1));
	ck_assert_int_eq(judge(reconcile, 100000, ID_B, 1), RECONCILE_DRIFTING);
	reconcile_free(reconcile);
}
END_TEST

START_TEST(test_being_named_once_clears_the_drift)
{
	struct reconcile *reconcile = make();

	ck_assert(feed(reconcile, ID_A, 1, 0, true, 1));
	ck_assert_int_eq(judge(reconcile, 1, ID_B, 1), RECONCILE_DRIFTING);
	ck_assert(feed(reconcile, ID_B, 1, 0, true, 1));
	ck_assert_int_eq(judge(reconcile, 50, ID_B, 1), RECONCILE_KEEP);
	ck_assert(feed(reconcile, ID_A, 1, 0, true, 1));
	ck_assert_int_eq(judge(reconcile, 100, ID_B, 1), RECONCILE_DRIFTING);
	reconcile_free(reconcile);
}
END_TEST

START_TEST(test_an_empty_set_destroys_nothing)
{
	struct reconcile *reconcile = make();

	for (int64_t i = 0; i < 10; i++) {
		ck_assert(feed(reconcile, NULL, 0, 0, true, 1));
		ck_assert_int_eq(judge(reconcile, 100 * i, ID_B, 1), RECONCILE_KEEP);
	}
	reconcile_free(reconcile);
}
END_TEST

START_TEST(test_parts_must_be_whole_in_order_and_of_one_inventory)
{
	struct reconcile *reconcile = make();

	ck_assert(!feed(reconcile, ID_A, 1, 0, false, 7));
	ck_assert(feed(reconcile, ID_B, 1, 1, true, 7));
	ck_assert(!feed(reconcile, ID_A, 1, 0, false, 8));
	ck_assert(!feed(reconcile, ID_B, 1, 2, true, 8)); /* part 1 is missing */
	ck_assert(!feed(reconcile, ID_B, 1, 1, true, 8)); /* and what came before is forgotten */
	ck_assert(!feed(reconcile, ID_A, 1, 0, false, 9));
	ck_assert(!feed(reconcile, ID_B, 1, 1, true, 10)); /* another inventory's part */
	reconcile_free(reconcile);
}
END_TEST

START_TEST(test_what_the_set_cannot_know_is_kept)
{
	struct reconcile *reconcile = make();
	struct reconcile_actual actual = { .sandbox = ID_B, .generation = 1 };

	ck_assert(feed(reconcile, ID_A, 1, 0, true, 1));
	ck_assert_int_eq(reconcile_judge(reconcile, 1, &actual, false), RECONCILE_KEEP);
	actual.is_ending = true;
	ck_assert_int_eq(reconcile_judge(reconcile, 1, &actual, true), RECONCILE_KEEP);
	ck_assert_uint_eq(reconcile_drifting(reconcile), 0);
	reconcile_free(reconcile);
}
END_TEST

START_TEST(test_five_an_hour)
{
	struct reconcile *reconcile = make();
	unsigned int destroyed = 0;
	char id[ID_SIZE];

	for (int64_t look = 0; look < 3; look++) {
		ck_assert(feed(reconcile, ID_A, 1, 0, true, 1));
		for (int i = 0; i < 9; i++) {
			memset(id, 'c' + i, ID_LEN);
			id[ID_LEN] = '\0';
			if (look < 2 || i >= 5)
				destroyed +=
					judge(reconcile, 1 + 61 * look, id, 1) == RECONCILE_DESTROY;
		}
	}
	ck_assert_uint_eq(destroyed, 5);
	ck_assert(feed(reconcile, ID_A, 1, 0, true, 1));
	memset(id, 'c' + 8, ID_LEN);
	ck_assert_int_eq(judge(reconcile, 3800, id, 1), RECONCILE_DESTROY); /* an hour later */
	reconcile_free(reconcile);
}
END_TEST

/* One part that names one snapshot, or none. */
static bool feed_snapshot(struct reconcile *reconcile, const char *id, bool knows, uint32_t part, bool complete)
{
	char ids[1][ID_SIZE] = { "" };
	struct desired_set set = { .part = part, .complete = complete, .inventory = 1, .knows_snapshots = knows };

	if (id) {
		memcpy(ids[0], id, ID_SIZE);
		set.snapshots = ids;
		set.n_snapshots = 1;
	}
	return reconcile_add_part(reconcile, &set, 1);
}

static enum reconcile_verdict judge_snapshot(struct reconcile *reconcile, int64_t second, const char *id)
{
	return reconcile_judge_snapshot(reconcile, second * USEC_PER_SEC, id, true);
}

/* Also where the set names nothing at all. */
START_TEST(test_a_snapshot_goes_by_the_drift_rule)
{
	struct reconcile *reconcile = make();
	const char *other = _i ? ID_A : NULL;

	ck_assert(feed_snapshot(reconcile, other, true, 0, true));
	ck_assert_int_eq(judge_snapshot(reconcile, 100, ID_B), RECONCILE_DRIFTING);
	ck_assert_int_eq(reconcile_judge_snapshot(reconcile, 1, ID_A, false), RECONCILE_KEEP); /* it cannot know that one */
	ck_assert_uint_eq(reconcile_drifting(reconcile), 1);
	ck_assert(feed_snapshot(reconcile, other, true, 0, true));
	ck_assert_int_eq(judge_snapshot(reconcile, 159, ID_B), RECONCILE_DRIFTING);
	ck_assert(feed_snapshot(reconcile, ID_B, true, 0, true));
	ck_assert_int_eq(judge_snapshot(reconcile, 160, ID_B), RECONCILE_KEEP); /* named once: anew */
	ck_assert(feed_snapshot(reconcile, other, true, 0, true));
	ck_assert_int_eq(judge_snapshot(reconcile, 161, ID_B), RECONCILE_DRIFTING);
	ck_assert(feed_snapshot(reconcile, other, true, 0, true));
	ck_assert_int_eq(judge_snapshot(reconcile, 221, ID_B), RECONCILE_DESTROY);
	ck_assert_uint_eq(reconcile_drifting(reconcile), 0);
	reconcile_free(reconcile);
}
END_TEST

/* An older scheduler, in whole or in one part: what it does not know it does not name. */
START_TEST(test_who_knows_no_snapshots_drops_none)
{
	struct reconcile *reconcile = make();

	ck_assert(feed_snapshot(reconcile, NULL, true, 0, true));
	ck_assert_int_eq(judge_snapshot(reconcile, 1, ID_B), RECONCILE_DRIFTING);
	for (int64_t i = 1; i < 5; i++) {
		if (i % 2)
			ck_assert(!feed_snapshot(reconcile, NULL, true, 0, false));
		ck_assert(feed_snapshot(reconcile, NULL, false, (uint32_t)(i % 2), true));
		ck_assert_int_eq(judge_snapshot(reconcile, 100 * i, ID_B), RECONCILE_KEEP);
	}
	ck_assert(feed_snapshot(reconcile, NULL, true, 0, true)); /* and then it is the first look again */
	ck_assert_int_eq(judge_snapshot(reconcile, 1000, ID_B), RECONCILE_DRIFTING);
	reconcile_free(reconcile);
}
END_TEST

/* Its budget is its own. */
START_TEST(test_five_snapshots_an_hour)
{
	struct reconcile *reconcile = make();
	unsigned int dropped = 0;
	char id[ID_SIZE];

	for (int64_t look = 0; look < 2; look++) {
		ck_assert(feed(reconcile, ID_A, 1, 0, true, 1));
		ck_assert_int_eq(judge(reconcile, 1 + 61 * look, ID_B, 1), look ? RECONCILE_DESTROY : RECONCILE_DRIFTING);
		ck_assert(feed_snapshot(reconcile, NULL, true, 0, true));
		for (int i = 0; i < 9; i++) {
			memset(id, 'c' + i, ID_LEN);
			id[ID_LEN] = '\0';
			dropped += judge_snapshot(reconcile, 1 + 61 * look, id) == RECONCILE_DESTROY;
		}
	}
	ck_assert_uint_eq(dropped, 5);
	ck_assert_int_eq(judge_snapshot(reconcile, 3800, id), RECONCILE_DESTROY); /* an hour later */
	reconcile_free(reconcile);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reconcile");
	TCase *tcase = tcase_create("reconcile");

	tcase_add_test(tcase, test_named_is_kept_and_superseded_is_fenced);
	tcase_add_test(tcase, test_drift_needs_two_looks_and_a_minute);
	tcase_add_test(tcase, test_one_look_is_not_enough_however_late);
	tcase_add_test(tcase, test_being_named_once_clears_the_drift);
	tcase_add_test(tcase, test_an_empty_set_destroys_nothing);
	tcase_add_test(tcase, test_parts_must_be_whole_in_order_and_of_one_inventory);
	tcase_add_test(tcase, test_what_the_set_cannot_know_is_kept);
	tcase_add_test(tcase, test_five_an_hour);
	tcase_add_loop_test(tcase, test_a_snapshot_goes_by_the_drift_rule, 0, 2);
	tcase_add_test(tcase, test_who_knows_no_snapshots_drops_none);
	tcase_add_test(tcase, test_five_snapshots_an_hour);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
