/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/usage: what a node said is acknowledged when it is durable, counted once, shown to whom it belongs, and there after a
 * restart.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/suite.h"
#include "server/books.h"
#include "unit/test-api-rig.h"

#define SEC 1000000

static struct rig rig;
static struct fake_node node;
static char sandbox[ID_SIZE];
static uint64_t number;

static void set_up(void)
{
	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{\"vcpus\":1}", sandbox);
	number = 0;
}

static void tear_down(void)
{
	node_close(&node);
	rig_close(&rig);
}

static struct usage_record used(uint64_t version, uint64_t running_us)
{
	struct usage_record record = { .generation = node.generation, .version = version, .memory_mib = 1024, .disk_mib = 2048,
		.running_us = running_us, .disk_us = running_us, .cpu_us = running_us / 4, .egress_bytes = 100 * version };

	memcpy(record.sandbox, sandbox, sizeof(record.sandbox));
	record.until_us = clock_realtime_usec();
	record.began_us = record.until_us - (int64_t)running_us;
	return record;
}

static void say(struct usage_record *records, size_t n, uint64_t n_dropped)
{
	const struct usage_report report = { .number = ++number, .records = records, .n = n, .n_dropped = n_dropped };
	Croft__UsageReport *message = usage_report_encode(&report);
	Croft__Envelope envelope;

	croft__envelope__init(&envelope);
	envelope.body_case = CROFT__ENVELOPE__BODY_USAGE;
	envelope.usage = message;
	node_send(&node, &envelope);
	protobuf_c_message_free_unpacked(&message->base, NULL);
}

/* Waits until it is acknowledged. */
static void tell(struct usage_record *records, size_t n, uint64_t n_dropped)
{
	say(records, n, n_dropped);
	for (int i = 0; i < 2000 && node.usage_acked != number; i++)
		loop_for(rig.base, 10);
	ck_assert_uint_eq(node.usage_acked, number);
}

static struct answer ask(const char *key, const char *query)
{
	char path[256];
	struct answer answer;

	(void)snprintf(path, sizeof(path), "/v1/usage%s", query);
	answer = rig_call(&rig, "GET", path, key, NULL);
	ck_assert_msg(answer.status == 200, "%s: %s", query, answer.body);
	return answer;
}

static json_int_t total(const char *key, const char *query, const char *name)
{
	struct answer answer = ask(key, query);
	json_int_t value = json_integer_value(json_object_get(json_object_get(answer.json, "total"), name));

	answer_free(&answer);
	return value;
}

START_TEST(it_is_counted_once_and_is_there_after_a_restart)
{
	struct usage_record record = used(3, 60 * SEC), earlier = used(2, 50 * SEC);

	tell(&record, 1, 0);
	tell(&record, 1, 0); /* sent again */
	tell(&earlier, 1, 0); /* came late */
	ck_assert_int_eq(total(rig.keys.tenant, "", "running_us"), 60 * SEC);
	ck_assert_int_eq(total(rig.keys.tenant, "?window=48h", "running_us"), 60 * SEC);
	ck_assert_int_eq(total(rig.keys.tenant, "?by=account", "cpu_us"), 15 * SEC);
	ck_assert_int_eq(total(rig.keys.tenant, "", "egress_bytes"), 300);
	rig_stop(&rig);
	node_close(&node);
	rig_start(&rig);
	ck_assert_int_eq(total(rig.keys.tenant, "", "running_us"), 60 * SEC);
}
END_TEST

START_TEST(an_answer_says_its_age_and_what_is_missing)
{
	struct usage_record record = used(3, 60 * SEC);
	struct answer answer = ask(rig.keys.tenant, "");

	ck_assert(json_is_null(json_object_get(answer.json, "as_of")));
	ck_assert(json_is_true(json_object_get(answer.json, "complete")));
	answer_free(&answer);
	record.uncounted_us = 7 * SEC;
	tell(&record, 1, 0);
	answer = ask(rig.keys.tenant, "");
	ck_assert(json_is_string(json_object_get(answer.json, "as_of")));
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(answer.json, "gaps"), "uncounted_us")), 7 * SEC);
	answer_free(&answer);
	record.version = 4;
	record.is_over = true;
	tell(&record, 1, 3);
	answer = ask(rig.keys.tenant, "");
	ck_assert(json_is_null(json_object_get(answer.json, "as_of"))); /* nothing more will come */
	ck_assert(json_is_false(json_object_get(answer.json, "complete")));
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(answer.json, "gaps"), "dropped")), 3);
	answer_free(&answer);
}
END_TEST

START_TEST(everybody_sees_what_is_his)
{
	struct usage_record records[] = { used(3, 60 * SEC), used(3, 50 * SEC), used(3, 40 * SEC) };

	/* of a sandbox that nobody knows the node may speak for a tenant of its pool's customer, for no other's */
	memcpy(records[1].sandbox, "unknownunknownunkno2", ID_SIZE);
	memcpy(records[2].sandbox, "unknownunknownunkno3", ID_SIZE);
	(void)snprintf(records[2].tenant, sizeof(records[2].tenant), "nobody");
	(void)snprintf(records[0].tenant, sizeof(records[0].tenant), "nobody"); /* of a live one the fleet says whose it is */
	tell(records, ARRAY_LEN(records), 0);
	ck_assert_int_eq(total(rig.keys.tenant, "", "running_us"), 60 * SEC);
	ck_assert_int_eq(total(rig.stranger, "", "running_us"), 0);
	ck_assert_int_eq(total(rig.sibling, "", "running_us"), 0);
	ck_assert_int_eq(total(rig.operator, "", "running_us"), 0);
	ck_assert_int_eq(total(rig.keys.provider, "?scope=all", "running_us"), 150 * SEC);
	ck_assert_int_eq(total(rig.keys.tenant, "?sandbox=unknownunknownunkno2", "running_us"), 0);
	ck_assert_int_eq(total(rig.stranger, "?tenant=default&scope=all", "running_us"), 0);
}
END_TEST

/* Of a sandbox that is there a node may say what was, not whose it is; of one that was somewhere else nobody's node makes it another's. */
START_TEST(a_node_charges_nobody_else)
{
	struct usage_record record = used(3, 60 * SEC);

	(void)snprintf(record.tenant, sizeof(record.tenant), "default");
	memcpy(record.sandbox, "unknownunknownunkno4", ID_SIZE);
	tell(&record, 1, 0); /* the pool is this customer's own */
	ck_assert_int_eq(total(rig.keys.tenant, "", "running_us"), 60 * SEC);
	rig_expect(&rig, "PATCH", "/v1/pools/default", rig.keys.provider, "{\"shared\":true}", 200, NULL);
	memcpy(record.sandbox, "unknownunknownunkno5", ID_SIZE);
	tell(&record, 1, 0);
	(void)snprintf(record.tenant, sizeof(record.tenant), "other");
	record.generation = 7;
	tell(&record, 1, 0);
	memcpy(record.sandbox, sandbox, ID_SIZE); /* one of "default", and it is here */
	tell(&record, 1, 0);
	ck_assert_int_eq(total(rig.stranger, "", "running_us"), 0);
	ck_assert_int_eq(total(rig.keys.tenant, "", "running_us"), 120 * SEC);
}
END_TEST

START_TEST(a_clock_that_is_wrong_takes_no_room)
{
	struct usage_record records[] = { used(3, 60 * SEC), used(4, 70 * SEC), used(5, 80 * SEC) };
	/* what ran over the turn of an hour is not known to the hour */
	const int64_t of_hour = clock_realtime_usec() % (INT64_C(3600) * SEC), spread_max = of_hour < 300 * SEC ? 80 * SEC : 0;
	struct answer answer;

	records[0].began_us = 1;
	records[0].until_us = 100 * SEC; /* 1970 */
	tell(&records[0], 1, 0);
	ck_assert_int_eq(total(rig.keys.tenant, "?window=1h", "running_us"), 60 * SEC);
	records[1].began_us = 1;
	records[1].until_us = INT64_C(1) << 53; /* 2255 */
	tell(&records[1], 1, 0);
	ck_assert_int_eq(total(rig.keys.tenant, "?window=1h", "running_us"), 70 * SEC);
	tell(&records[2], 1, 0);
	ck_assert_int_eq(total(rig.keys.tenant, "?window=1h", "running_us"), 80 * SEC);
	answer = ask(rig.keys.tenant, "?window=3h");
	ck_assert_int_le(json_integer_value(json_object_get(json_object_get(answer.json, "gaps"), "spread_us")), spread_max);
	answer_free(&answer);
}
END_TEST

static void made_up(char ret[static ID_SIZE], unsigned int n)
{
	for (size_t i = 0; i < ID_LEN; i++, n >>= 4)
		ret[i] = (char)('a' + (n & 15));
	ret[ID_LEN] = '\0';
}

START_TEST(a_node_that_makes_up_sandboxes_is_bounded)
{
	static struct usage_record records[USAGE_RECORDS_MAX];
	struct usage_record record = used(9, 60 * SEC);

	for (unsigned int part = 0; part < BOOKS_HEARSAY_MAX / USAGE_RECORDS_MAX; part++) {
		for (unsigned int i = 0; i < USAGE_RECORDS_MAX; i++) {
			records[i] = used(1, SEC);
			made_up(records[i].sandbox, part * USAGE_RECORDS_MAX + i);
		}
		tell(records, USAGE_RECORDS_MAX, 0);
	}
	made_up(records[0].sandbox, BOOKS_HEARSAY_MAX);
	records[1] = record; /* of what it has it may speak all the same */
	say(records, 2, 0);
	for (int i = 0; i < 500 && books_count(rig.server->books).records <= BOOKS_HEARSAY_MAX; i++)
		loop_for(rig.base, 10);
	ck_assert_uint_eq(books_count(rig.server->books).records, BOOKS_HEARSAY_MAX + 1);
	ck_assert_uint_eq(books_count(rig.server->books).left_out, 1);
	ck_assert_uint_ne(node.usage_acked, number); /* what was left out it keeps */
	ck_assert_int_eq(total(rig.keys.tenant, "", "running_us"), 60 * SEC);
}
END_TEST

/* Reports that come as fast as the link carries them wait for the thread in a few places; what finds none is told again. */
START_TEST(a_node_in_a_hurry_takes_no_other_s_turn)
{
	struct usage_record record = used(1, SEC);
	struct books_counts counts;

	for (unsigned int i = 1; i <= 200; i++) {
		record.version = i;
		say(&record, 1, 0);
	}
	for (int i = 0; i < 200; i++)
		loop_for(rig.base, 5);
	counts = books_count(rig.server->books);
	ck_assert_uint_ge(counts.records + counts.repeated, BOOKS_TAKINGS_MAX);
	ck_assert_uint_le(counts.records + counts.repeated, 150);
	record.version = 1000;
	tell(&record, 1, 0);
}
END_TEST

static void on_answered(struct books_question *question)
{
	*(unsigned int *)question->user += !err_is_set(&question->err);
}

static int put(const char *customer, unsigned int *n, struct err *err)
{
	struct books_question *question = calloc(1, sizeof(*question));

	(void)snprintf(question->customer, sizeof(question->customer), "%s", customer);
	question->done = on_answered;
	question->user = n;
	return books_ask(rig.server->books, question, err);
}

START_TEST(one_customer_does_not_ask_all_the_questions)
{
	struct err err = ERR_NULL;
	unsigned int n = 0;

	for (unsigned int i = 0; i < BOOKS_CUSTOMER_MAX; i++)
		ck_assert_int_eq(put("default", &n, &err), 0);
	ck_assert_int_lt(put("default", &n, &err), 0);
	ck_assert_int_eq(err.code, FAIL_RATE_LIMITED);
	err = (struct err)ERR_NULL;
	ck_assert_int_eq(put("other", &n, &err), 0);
	for (unsigned int i = BOOKS_CUSTOMER_MAX + 1; i < BOOKS_QUESTIONS_MAX; i++)
		ck_assert_int_eq(put("", &n, &err), 0);
	ck_assert_int_lt(put("", &n, &err), 0);
	ck_assert_int_eq(err.code, FAIL_SCHEDULER_BUSY);
	for (int i = 0; i < 2000 && n < BOOKS_QUESTIONS_MAX; i++)
		loop_for(rig.base, 10);
	ck_assert_uint_eq(n, BOOKS_QUESTIONS_MAX);
	ck_assert_int_eq(put("default", &n, &err), 0);
	for (int i = 0; i < 2000 && n <= BOOKS_QUESTIONS_MAX; i++)
		loop_for(rig.base, 10);
	ck_assert_uint_eq(n, BOOKS_QUESTIONS_MAX + 1);
}
END_TEST

START_TEST(lost_time_has_its_owner)
{
	struct usage_record record = used(3, 60 * SEC);
	struct answer answer;
	const json_t *first, *second;

	record.lost_us[COMPONENT_CALLER] = 2 * SEC;
	record.lost_us[COMPONENT_NODE_HOST] = 3 * SEC;
	tell(&record, 1, 0);
	answer = ask(rig.keys.tenant, "?window=1h");
	ck_assert_uint_eq(json_array_size(json_object_get(answer.json, "lost")), 2);
	first = json_array_get(json_object_get(answer.json, "lost"), 0);
	second = json_array_get(json_object_get(answer.json, "lost"), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(first, "lost_us")) + json_integer_value(json_object_get(second, "lost_us")),
		5 * SEC);
	ck_assert_str_ne(json_string_value(json_object_get(first, "owner")), json_string_value(json_object_get(second, "owner")));
	answer_free(&answer);
}
END_TEST

START_TEST(a_budget_that_is_none_is_named)
{
	static const char *const bodies[] = { "{\"budget\":5}", "{\"budget\":{\"cpu_s\":0}}", "{\"budget\":{\"cpu_s\":-1}}",
		"{\"budget\":{\"gib_s\":\"5\"}}", "{\"budget\":{\"wall_s\":1e12}}", "{\"budget\":{\"egress_bytes\":0.2}}",
		"{\"budget\":{\"wall\":5}}", "{\"budget\":{\"wall_s\":5,\"action\":\"sleep\"}}" };
	struct answer answer;

	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		answer = rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, bodies[i]);
		ck_assert_msg(answer.status == 400 && strstr(answer.body, "budget"), "%s: %s", bodies[i], answer.body);
		answer_free(&answer);
	}
	rig_expect(&rig, "PUT", "/v1/sandboxes/i0000000000000000000z/budget", rig.keys.tenant, "{\"wall_s\":5}", 404, NULL);
	rig_expect_id(&rig, "PUT", "/v1/sandboxes/*/budget", sandbox, rig.stranger, "{\"wall_s\":5}", 404, NULL);
	rig_expect_id(&rig, "PUT", "/v1/sandboxes/*/budget", sandbox, rig.keys.tenant, "{\"wall\":5}", 400, "INVALID_ARGUMENT");
}
END_TEST

/* ---- results ---- */

static void mark(const char *key, const char *id, const char *body, int status, const char *code)
{
	rig_expect_id(&rig, "PUT", "/v1/sandboxes/*/mark", id, key, body, status, code);
}

static void check_results(const char *key, const char *query, json_int_t accepted, json_int_t rejected, double cpu_s)
{
	struct answer answer = ask(key, query);
	const json_t *results = json_object_get(answer.json, "results"), *per = json_object_get(answer.json, "per_accepted");

	ck_assert_int_eq(json_integer_value(json_object_get(results, "accepted")), accepted);
	ck_assert_int_eq(json_integer_value(json_object_get(results, "rejected")), rejected);
	if (accepted > 0)
		ck_assert_double_eq_tol(json_number_value(json_object_get(per, "cpu_s")), cpu_s, 1e-6);
	else
		ck_assert(json_is_null(per));
	answer_free(&answer);
}

START_TEST(what_an_accepted_result_costs)
{
	struct usage_record record = used(1, 60 * SEC);
	char first[ID_SIZE], query[64];

	tell(&record, 1, 0);
	check_results(rig.keys.tenant, "", 0, 0, 0);
	mark(rig.keys.tenant, sandbox, "{\"mark\":\"accepted\"}", 204, NULL);
	mark(rig.keys.tenant, sandbox, "{\"mark\":\"accepted\"}", 204, NULL); /* once */
	check_results(rig.keys.tenant, "", 1, 0, 15);
	memcpy(first, sandbox, sizeof(first));
	rig_create(&rig, &node, "{\"vcpus\":1}", sandbox);
	record = used(1, 120 * SEC);
	tell(&record, 1, 0);
	check_results(rig.keys.tenant, "", 1, 0, 45); /* what has no mark is paid for too */
	mark(rig.keys.tenant, sandbox, "{\"mark\":\"rejected\"}", 204, NULL);
	check_results(rig.keys.tenant, "", 1, 1, 45);
	check_results(rig.keys.tenant, "?window=24h", 1, 1, 45);
	(void)snprintf(query, sizeof(query), "?sandbox=%s", first);
	check_results(rig.keys.tenant, query, 1, 0, 15);
	rig_expect_id(&rig, "DELETE", "/v1/sandboxes/*", sandbox, rig.keys.tenant, NULL, 204, NULL);
	for (int i = 0; i < 500 && shell_held(rig.server->shell); i++)
		loop_for(rig.base, 5);
	node_report(&node, REPORT_ENDED);
	loop_for(rig.base, 100);
	mark(rig.stranger, sandbox, "{\"mark\":\"rejected\"}", 404, "SANDBOX_NOT_FOUND");
	mark(rig.sibling, sandbox, "{\"mark\":\"rejected\"}", 404, "SANDBOX_NOT_FOUND");
	mark(rig.keys.tenant, sandbox, "{\"mark\":\"accepted\"}", 204, NULL); /* it has ended, and another word holds */
	check_results(rig.keys.tenant, "", 2, 0, 22.5);
	check_results(rig.keys.tenant, "?by=tenant", 2, 0, 22.5);
	rig_stop(&rig);
	node_close(&node);
	rig_start(&rig);
	check_results(rig.keys.tenant, "", 2, 0, 22.5);
	mark(rig.keys.tenant, first, "{\"mark\":\"rejected\"}", 204, NULL);
	check_results(rig.keys.tenant, "", 1, 1, 45);
}
END_TEST

START_TEST(nobody_marks_what_is_another_s)
{
	static const char *const bodies[] = { "{}", "{\"mark\":\"good\"}", "{\"mark\":1}", "{\"mark\":null}" };
	struct usage_record record = used(1, 60 * SEC);

	tell(&record, 1, 0);
	mark(rig.stranger, sandbox, "{\"mark\":\"rejected\"}", 404, "SANDBOX_NOT_FOUND");
	mark(rig.sibling, sandbox, "{\"mark\":\"rejected\"}", 404, "SANDBOX_NOT_FOUND");
	mark(rig.keys.tenant, "i0000000000000000000z", "{\"mark\":\"rejected\"}", 404, "SANDBOX_NOT_FOUND");
	for (size_t i = 0; i < ARRAY_LEN(bodies); i++)
		mark(rig.keys.tenant, sandbox, bodies[i], 400, "INVALID_ARGUMENT");
	check_results(rig.keys.provider, "?scope=all", 0, 0, 0);
	mark(rig.keys.tenant, sandbox, "{\"mark\":\"accepted\"}", 204, NULL);
	check_results(rig.keys.provider, "?scope=all", 1, 0, 15);
	check_results(rig.sibling, "", 0, 0, 0);
}
END_TEST

START_TEST(what_is_wrong_is_named)
{
	rig_expect(&rig, "GET", "/v1/usage?by=nothing", rig.keys.tenant, NULL, 400, "INVALID_ARGUMENT");
	rig_expect(&rig, "GET", "/v1/usage?window=yesterday", rig.keys.tenant, NULL, 400, "INVALID_ARGUMENT");
	rig_expect(&rig, "GET", "/v1/usage?window=1h&by=account", rig.keys.tenant, NULL, 400, "INVALID_ARGUMENT");
	rig_expect(&rig, "GET", "/v1/usage", "croft_nonsense", NULL, 401, NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-usage");
	TCase *tcase = tcase_create("api-usage");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, it_is_counted_once_and_is_there_after_a_restart);
	tcase_add_test(tcase, an_answer_says_its_age_and_what_is_missing);
	tcase_add_test(tcase, everybody_sees_what_is_his);
	tcase_add_test(tcase, a_node_charges_nobody_else);
	tcase_add_test(tcase, a_clock_that_is_wrong_takes_no_room);
	tcase_add_test(tcase, a_node_that_makes_up_sandboxes_is_bounded);
	tcase_add_test(tcase, a_node_in_a_hurry_takes_no_other_s_turn);
	tcase_add_test(tcase, one_customer_does_not_ask_all_the_questions);
	tcase_add_test(tcase, lost_time_has_its_owner);
	tcase_add_test(tcase, what_an_accepted_result_costs);
	tcase_add_test(tcase, nobody_marks_what_is_another_s);
	tcase_add_test(tcase, what_is_wrong_is_named);
	tcase_add_test(tcase, a_budget_that_is_none_is_named);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
