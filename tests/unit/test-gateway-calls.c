/* SPDX-License-Identifier: Apache-2.0
 *
 * What the gateway tells of calls: each once, alone or in a number, within bounds whatever is called; told again until it is
 * taken; and nothing that a caller wrote.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"
#include "gateway/calls.h"
#include "lib/suite.h"

static struct calls *calls;
static int64_t now_us;

static void set_up(void)
{
	now_us = 1;
	ck_assert_int_eq(calls_new(&calls, rng_seeded(7)), 0);
}

static void tear_down(void)
{
	calls = calls_free(calls);
}

static void call(unsigned int sandbox, enum fail_code code)
{
	struct stage_record record = { .stage = STAGE_EXEC, .outcome = code == FAIL_NONE ? RESULT_OK : RESULT_FAILED,
		.began_us = now_us, .took_us = 10 };

	(void)snprintf(record.sandbox, sizeof(record.sandbox), "s%019u", sandbox);
	(void)snprintf(record.trace.trace_id, sizeof(record.trace.trace_id), "%032x", sandbox);
	if (code != FAIL_NONE) {
		(void)err_set_at(&record.failure, STAGE_EXEC, code, 2, "canary");
		err_add(&record.failure, "path", "canary");
	}
	calls_add(calls, &record);
}

struct sums {
	uint64_t ok, failed, alone, nameless, batches;
	size_t largest;
};

static void add_batch(struct sums *sums, const struct calls_batch *batch)
{
	for (size_t i = 0; i < batch->n_records; i++) {
		const struct stage_record *record = &batch->records[i];
		const uint64_t n = MAX(record->n_alike, 1);

		*(record->outcome == RESULT_OK ? &sums->ok : &sums->failed) += n;
		sums->alone += record->n_alike == 0;
		sums->nameless += *record->sandbox ? 0 : n;
		ck_assert_int_eq(record->took_us, 10);
		ck_assert_str_eq(record->failure.msg, "");
		ck_assert_uint_eq(record->failure.n_fields, 0);
		ck_assert_uint_eq(strlen(record->trace.trace_id), record->n_alike ? 0 : 32);
		ck_assert(!record->n_alike || strlen(record->trace.span_id) == 16);
	}
	ck_assert_uint_eq(batch->lost, 0);
	sums->largest = MAX(sums->largest, batch->n_records);
	sums->batches++;
}

static void take_all(struct sums *sums)
{
	struct calls_batch batch;

	for (now_us += CALLS_EVERY_US; calls_next(calls, now_us, &batch); now_us += CALLS_EVERY_US) {
		add_batch(sums, &batch);
		calls_taken(calls, batch.seq);
	}
}

START_TEST(few_are_told_one_by_one)
{
	struct sums sums = { 0 };

	call(1, FAIL_NONE);
	call(1, FAIL_COMMAND_NOT_FOUND);
	call(2, FAIL_NONE);
	take_all(&sums);
	ck_assert_uint_eq(sums.alone, 3);
	ck_assert_uint_eq(sums.ok, 2);
	ck_assert_uint_eq(sums.failed, 1);
	ck_assert_uint_eq(sums.batches, 1);
}
END_TEST

/* A quarter of a million calls of three sandboxes in ten seconds; a quiet one is still heard by itself. */
START_TEST(a_flood_is_a_few_rows_and_an_exact_number)
{
	struct sums sums = { 0 };
	struct calls_batch batch;

	for (unsigned int second = 0; second < 10; second++) {
		const uint64_t before = sums.alone;

		for (unsigned int i = 0; i < 25000; i++)
			call(i % 3, i % 5 == 0 ? FAIL_COMMAND_NOT_FOUND : FAIL_NONE);
		call(9, FAIL_NONE);
		now_us += CALLS_EVERY_US;
		ck_assert(calls_next(calls, now_us, &batch));
		add_batch(&sums, &batch);
		calls_taken(calls, batch.seq);
		ck_assert(!calls_next(calls, now_us + CALLS_EVERY_US / 2, &batch));
		ck_assert_uint_eq(sums.alone - before, 3 * CALLS_EACH + 1);
		ck_assert_str_eq(batch.records[3 * CALLS_EACH].sandbox, "s0000000000000000009");
	}
	take_all(&sums);
	ck_assert_uint_eq(sums.failed, 50000);
	ck_assert_uint_eq(sums.ok, 200010);
	ck_assert_uint_eq(sums.nameless, 0);
	ck_assert_uint_le(sums.largest, 3 * CALLS_EACH + 1 + 6);
}
END_TEST

/* Of more sandboxes than there are rows, while no agent is there: bounded, and none is lost. */
START_TEST(more_sandboxes_than_rows)
{
	struct sums sums = { 0 };

	for (unsigned int i = 0; i < 20000; i++)
		call(i, i % 2 ? FAIL_NONE : FAIL_GUEST_UNREACHABLE);
	take_all(&sums);
	ck_assert_uint_eq(sums.ok + sums.failed, 20000);
	ck_assert_uint_eq(sums.failed, 10000);
	ck_assert_uint_eq(sums.nameless, 20000 - CALLS_ROWS - CALLS_SINGLE);
	ck_assert_uint_le(sums.largest, CALLS_BATCH);
	ck_assert_uint_le(sums.batches, (CALLS_ROWS + CALLS_SINGLE) / (CALLS_BATCH - CALLS_SINGLE) + 2);
}
END_TEST

/* While no agent is there: what one record may not say another one does, and what none may say is told as lost. */
START_TEST(more_calls_than_a_record_may_stand_for)
{
	const uint64_t n = 2 * STAGE_ALIKE_MAX + CALLS_EACH + 5;
	struct stage_record record = { .sandbox = "aaaaaaaaaaaaaaaaaaaa", .stage = STAGE_EXEC, .outcome = RESULT_OK, .took_us = 10 };
	struct calls_batch batch;
	uint64_t told = 0;

	for (uint64_t i = 0; i < n; i++)
		calls_add(calls, &record);
	ck_assert(calls_next(calls, now_us + CALLS_EVERY_US, &batch));
	for (size_t i = 0; i < batch.n_records; i++) {
		ck_assert_uint_le(batch.records[i].n_alike, STAGE_ALIKE_MAX);
		told += MAX(batch.records[i].n_alike, 1);
	}
	ck_assert_uint_eq(batch.lost, 5);
	ck_assert_uint_eq(told + batch.lost, n);
}
END_TEST

START_TEST(told_again_until_it_is_taken)
{
	struct calls_batch first, again;

	call(1, FAIL_NONE);
	now_us += CALLS_EVERY_US;
	ck_assert(calls_next(calls, now_us, &first));
	call(2, FAIL_NONE); /* waits for its turn */
	now_us += CALLS_EVERY_US;
	ck_assert(!calls_next(calls, now_us, &again));
	calls_again(calls);
	ck_assert(calls_next(calls, now_us, &again));
	ck_assert_uint_eq(again.seq, first.seq);
	ck_assert_uint_eq(again.n_records, 1);
	calls_taken(calls, first.seq - 1); /* of another gateway */
	ck_assert(!calls_next(calls, now_us, &again));
	calls_taken(calls, first.seq);
	calls_again(calls); /* nothing is to be told again */
	ck_assert(calls_next(calls, now_us, &again));
	ck_assert_uint_eq(again.seq, first.seq + 1);
	ck_assert_uint_eq(again.n_records, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gateway-calls");
	TCase *tcase = tcase_create("gateway-calls");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, few_are_told_one_by_one);
	tcase_add_test(tcase, a_flood_is_a_few_rows_and_an_exact_number);
	tcase_add_test(tcase, more_sandboxes_than_rows);
	tcase_add_test(tcase, more_calls_than_a_record_may_stand_for);
	tcase_add_test(tcase, told_again_until_it_is_taken);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
