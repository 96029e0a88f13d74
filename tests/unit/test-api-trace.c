/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/traces/{id}: a start and the calls after it, by trace and by sandbox, under the caller's own trace, for who may see it;
 * and that what a node says of a life counts with its template and shape.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "lib/suite.h"
#include "server/codec.h"
#include "server/message.h"
#include "unit/test-api-rig.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define CALL_TRACE "0af7651916cd43dd8448eb211c80319c"

static struct rig rig;
static struct fake_node node;
static char sandbox[ID_SIZE];

/* A sandbox whose caller sent a trace of its own. */
static void set_up(void)
{
	static const struct http_field field = { "traceparent", "00-" TRACE "-00f067aa0ba902b7-01" };
	static const char body[] = "{\"vcpus\":1,\"memoryMB\":256}";
	struct answer answer;

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_token_of(&node, &rig, rig.keys.provider, "{\"labels\":{\"region\":\"north\"}}");
	node_enroll(&node);
	node_connect(&node);
	ck_assert(node.welcome);
	(void)rig_start_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, body, strlen(body), &field, 1, &answer);
	loop_until(rig.base, &answer.done);
	ck_assert_int_eq(answer.status, 201);
	answer_text(answer.json, "sandboxID", sandbox, sizeof(sandbox));
	answer_free(&answer);
}

static void tear_down(void)
{
	node_close(&node);
	rig_close(&rig);
}

/* As the node's gateway would: a command that failed, called under another trace; and then so many at once. */
static void send_stage(uint64_t seq, enum fail_stage stage, const char *trace, const char *span, uint64_t n_alike)
{
	struct stage_record record = { .stage = stage, .outcome = RESULT_FAILED, .began_us = clock_realtime_usec(), .took_us = 7000,
		.n_alike = n_alike };

	(void)snprintf(record.sandbox, sizeof(record.sandbox), "%s", sandbox);
	(void)snprintf(record.trace.trace_id, sizeof(record.trace.trace_id), "%s", trace);
	(void)snprintf(record.trace.span_id, sizeof(record.trace.span_id), "%s", span);
	(void)err_set_at(&record.failure, stage, FAIL_GUEST_UNREACHABLE, 0, "It is silent.");
	node_send_stage(&node, seq, &record);
}

static void send_call(uint64_t seq, const char *trace, const char *span, uint64_t n_alike)
{
	send_stage(seq, STAGE_EXEC, trace, span, n_alike);
}

static void send_exec(void)
{
	send_call(1, CALL_TRACE, "", 0);
}

static struct answer ask(const char *key, const char *id)
{
	struct answer answer = rig_get(&rig, key, "/v1/traces/*", id);

	ck_assert_msg(answer.status == 200, "%s", answer.body);
	return answer;
}

static void check_text(const json_t *object, const char *name, const char *expected)
{
	char text[128];

	answer_text(object, name, text, sizeof(text));
	ck_assert_str_eq(text, expected);
}

/* The steps in order, the first one "admit"; returns how many. */
static size_t check_steps(const struct answer *answer)
{
	const json_t *steps = json_object_get(answer->json, "steps");
	json_int_t before = 0;

	check_text(json_array_get(steps, 0), "stage", "admit");
	check_text(json_array_get(steps, 0), "process", "scheduler");
	ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(steps, 0), "at_us")), 0);
	for (size_t i = 0; i < json_array_size(steps); i++) {
		json_int_t at = json_integer_value(json_object_get(json_array_get(steps, i), "at_us"));

		ck_assert_int_ge(at, before);
		before = at;
	}
	return json_array_size(steps);
}

START_TEST(a_start_under_its_callers_trace)
{
	struct answer answer = ask(rig.keys.tenant, TRACE);
	size_t n = check_steps(&answer);

	check_text(answer.json, "trace", TRACE);
	check_text(answer.json, "sandbox", sandbox);
	check_text(answer.json, "tenant", "default");
	ck_assert(json_is_true(json_object_get(answer.json, "complete")) && json_is_false(json_object_get(answer.json, "more")));
	for (size_t i = 0; i < n; i++)
		check_text(json_array_get(json_object_get(answer.json, "steps"), i), "trace", TRACE);
	answer_free(&answer);
	answer = ask(rig.keys.provider, sandbox);
	ck_assert_uint_eq(check_steps(&answer), n);
	check_text(answer.json, "trace", TRACE);
	answer_free(&answer);
}
END_TEST

START_TEST(a_call_into_it)
{
	struct answer answer = ask(rig.keys.tenant, sandbox);
	const size_t before = check_steps(&answer);
	const json_t *steps, *last;

	answer_free(&answer);
	send_exec();
	answer = ask(rig.keys.tenant, sandbox);
	ck_assert_uint_eq(check_steps(&answer), before + 1);
	answer_free(&answer);
	answer = ask(rig.keys.tenant, TRACE); /* it was called under another one */
	ck_assert_uint_eq(check_steps(&answer), before);
	answer_free(&answer);
	answer = ask(rig.keys.tenant, CALL_TRACE);
	steps = json_object_get(answer.json, "steps");
	ck_assert_uint_eq(json_array_size(steps), 1);
	last = json_array_get(steps, 0);
	check_text(last, "stage", "exec");
	check_text(last, "process", "gateway");
	check_text(last, "outcome", "failed");
	check_text(last, "node", node.node);
	check_text(json_object_get(last, "failure"), "code", "GUEST_UNREACHABLE");
	ck_assert_uint_gt(strlen(json_string_value(json_object_get(json_object_get(last, "failure"), "owner"))), 0);
	check_text(answer.json, "sandbox", sandbox);
	answer_free(&answer);
}
END_TEST

START_TEST(a_life_counts_with_its_template_and_shape)
{
	static const char *const queries[] = { "template=base", "vcpus=1", "memoryMB=256", "region=north", "template=base&vcpus=1&pool=default" };
	static const char *const others[] = { "template=other", "vcpus=2", "memoryMB=512", "region=south", "template=base&vcpus=1&pool=other" };
	struct answer answer;
	char path[128];

	send_exec();
	for (size_t i = 0; i < ARRAY_LEN(queries); i++) {
		(void)snprintf(path, sizeof(path), "/v1/stages?%s", queries[i]);
		answer = rig_call(&rig, "GET", path, rig.keys.tenant, NULL);
		ck_assert_msg(strstr(answer.body, "GUEST_UNREACHABLE"), "%s: %s", queries[i], answer.body);
		answer_free(&answer);
		(void)snprintf(path, sizeof(path), "/v1/stages?%s", others[i]);
		answer = rig_call(&rig, "GET", path, rig.keys.tenant, NULL);
		ck_assert_msg(!strstr(answer.body, "GUEST_UNREACHABLE"), "%s: %s", others[i], answer.body);
		answer_free(&answer);
	}
}
END_TEST

START_TEST(one_that_failed_and_is_over)
{
	struct answer answer;
	char trace[64] = "", id[ID_SIZE] = "";
	const json_t *steps, *step = NULL;

	(void)err_set(&node.start_failure, FAIL_SETUP_FAILED, 0, "It exited with 3.");
	answer = rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{}");
	answer_text(json_object_get(answer.json, "failure"), "trace", trace, sizeof(trace));
	answer_text(json_object_get(answer.json, "failure"), "sandbox", id, sizeof(id));
	answer_free(&answer);
	rig_stop(&rig);
	node_close(&node);
	rig_start(&rig);
	answer = ask(rig.keys.tenant, trace);
	check_text(answer.json, "sandbox", id);
	steps = json_object_get(answer.json, "steps");
	for (size_t i = 0; i < json_array_size(steps); i++)
		if (json_object_get(json_array_get(steps, i), "failure"))
			step = json_array_get(steps, i);
	ck_assert_ptr_nonnull(step);
	check_text(json_object_get(step, "failure"), "code", "SETUP_FAILED");
	check_text(json_object_get(step, "failure"), "owner", "caller");
	check_text(json_object_get(step, "failure"), "message", "It exited with 3.");
	answer_free(&answer);
}
END_TEST

/* What a node says last comes after the end. */
START_TEST(words_after_the_end)
{
	struct answer answer;
	size_t before;

	rig_expect_id(&rig, "DELETE", "/sandboxes/*", sandbox, rig.keys.tenant, NULL, 204, NULL);
	for (int i = 0; i < 500 && fleet_sandbox_tenant(shell_fleet(rig.server->shell), sandbox); i++)
		loop_for(rig.base, 10);
	ck_assert_ptr_null(fleet_sandbox_tenant(shell_fleet(rig.server->shell), sandbox));
	answer = ask(rig.keys.tenant, sandbox);
	before = check_steps(&answer);
	answer_free(&answer);
	send_exec();
	for (int round = 0; round < 2; round++) { /* and after a restart */
		answer = ask(rig.keys.tenant, sandbox);
		ck_assert_uint_eq(check_steps(&answer), before + 1);
		ck_assert_ptr_nonnull(strstr(answer.body, "GUEST_UNREACHABLE"));
		answer_free(&answer);
		answer = rig_call(&rig, "GET", "/v1/stages?template=base&vcpus=1&memoryMB=256", rig.keys.tenant, NULL);
		ck_assert_ptr_nonnull(strstr(answer.body, "GUEST_UNREACHABLE"));
		answer_free(&answer);
		if (round == 0) {
			rig_stop(&rig);
			node_close(&node);
			rig_start(&rig);
		}
	}
	rig_expect_id(&rig, "GET", "/v1/traces/*", sandbox, rig.stranger, NULL, 404, "SANDBOX_NOT_FOUND");
}
END_TEST

START_TEST(for_nobody_else)
{
	static const char path[] = "/v1/traces/" TRACE;

	rig_expect(&rig, "GET", path, rig.stranger, NULL, 404, "SANDBOX_NOT_FOUND");
	rig_expect(&rig, "GET", path, rig.operator, NULL, 404, "SANDBOX_NOT_FOUND");
	rig_expect_id(&rig, "GET", "/v1/traces/*", sandbox, rig.stranger, NULL, 404, "SANDBOX_NOT_FOUND");
	rig_expect(&rig, "GET", "/v1/traces/" CALL_TRACE, rig.keys.provider, NULL, 404, "SANDBOX_NOT_FOUND");
	rig_expect(&rig, "GET", "/v1/traces/x", rig.keys.provider, NULL, 404, "SANDBOX_NOT_FOUND");
	rig_expect(&rig, "GET", path, rig.keys.provider, NULL, 200, NULL);
}
END_TEST

static json_int_t failed_of(const char *name)
{
	struct answer answer = rig_call(&rig, "GET", "/v1/stages?window=1h", rig.keys.tenant, NULL);
	const json_t *list = json_object_get(answer.json, "stages"), *stage;
	json_int_t failed = 0;
	size_t i;

	json_array_foreach(list, i, stage)
		if (!strcmp(json_string_value(json_object_get(stage, "stage")), name))
			failed = json_integer_value(json_object_get(stage, "failed"));
	answer_free(&answer);
	return failed;
}

static json_int_t failed_calls(void)
{
	return failed_of("exec");
}

/* What a gateway counted in one number is as many calls; what it tells again after its agent was killed is none. */
START_TEST(calls_count_once_and_as_many_as_they_are)
{
	send_call(1, CALL_TRACE, "00f067aa0ba902b7", 0);
	send_call(2, "", "00f067aa0ba902b8", 1000);
	ck_assert_int_eq(failed_calls(), 1001);
	send_call(3, CALL_TRACE, "00f067aa0ba902b7", 0);
	send_call(4, "", "00f067aa0ba902b8", 1000);
	ck_assert_int_eq(failed_calls(), 1001);
	send_call(5, "", "00f067aa0ba902b9", STAGE_ALIKE_MAX + 1); /* no gateway counts so far */
	send_call(6, "", "00f067aa0ba902ba", UINT64_C(1) << 62);
	send_call(7, "", "00f067aa0ba902bb", UINT64_C(1) << 62);
	send_stage(8, STAGE_PAUSE, "", "", 1000);
	ck_assert_int_eq(failed_of("pause"), 1); /* of calls alone one stands for many */
	ck_assert_int_eq(failed_calls(), 1001);
	rig_stop(&rig);
	node_close(&node);
	rig_start(&rig);
	ck_assert_int_eq(failed_calls(), 1001);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-trace");
	TCase *tcase = tcase_create("api-trace");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, a_start_under_its_callers_trace);
	tcase_add_test(tcase, calls_count_once_and_as_many_as_they_are);
	tcase_add_test(tcase, a_call_into_it);
	tcase_add_test(tcase, a_life_counts_with_its_template_and_shape);
	tcase_add_test(tcase, one_that_failed_and_is_over);
	tcase_add_test(tcase, words_after_the_end);
	tcase_add_test(tcase, for_nobody_else);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
