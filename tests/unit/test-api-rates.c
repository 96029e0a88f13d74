/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/stages: rates of stages over HTTP, filtered, scoped, and the same after a restart.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "lib/suite.h"
#include "server/telemetry.h"
#include "unit/test-api-rig.h"

static struct rig rig;
static struct fake_node node;

/* Two starts of 1 vCPU that become ready, and one of 2 that its caller's setup ends. */
static void set_up(void)
{
	struct answer answer;
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{\"vcpus\":1}", id);
	rig_create(&rig, &node, "{\"vcpus\":1}", id);
	(void)err_set(&node.start_failure, FAIL_SETUP_FAILED, 0, "It exited with 3.");
	answer = rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{\"vcpus\":2}");
	ck_assert_str_eq(answer_code(&answer), "SETUP_FAILED");
	answer_free(&answer);
}

static void tear_down(void)
{
	node_close(&node);
	rig_close(&rig);
}

static struct answer ask(const char *key, const char *query)
{
	char path[256];
	struct answer answer;

	(void)snprintf(path, sizeof(path), "/v1/stages%s", query);
	answer = rig_call(&rig, "GET", path, key, NULL);
	ck_assert_msg(answer.status == 200, "%s: %s", query, answer.body);
	return answer;
}

static const json_t *stage_of(const struct answer *answer, const char *name)
{
	const json_t *list = json_object_get(answer->json, "stages");

	for (size_t i = 0; i < json_array_size(list); i++)
		if (!strcmp(json_string_value(json_object_get(json_array_get(list, i), "stage")), name))
			return json_array_get(list, i);
	ck_abort_msg("no stage %s", name);
}

static json_int_t attempts(const char *key, const char *query, const char *stage)
{
	struct answer answer = ask(key, query);
	json_int_t n = json_integer_value(json_object_get(stage_of(&answer, stage), "attempts"));

	answer_free(&answer);
	return n;
}

static double real_of(const json_t *object, const char *name)
{
	ck_assert_msg(json_is_real(json_object_get(object, name)), "%s", name);
	return json_real_value(json_object_get(object, name));
}

static void check_whole(const char *query)
{
	struct answer answer = ask(rig.keys.tenant, query);
	const json_t *vmm = stage_of(&answer, "vmm"), *code = json_array_get(json_object_get(vmm, "codes"), 0);
	char text[64];

	ck_assert_double_eq_tol(real_of(answer.json, "product"), 2.0 / 3, 1e-9);
	ck_assert_double_lt(real_of(answer.json, "product_low"), 2.0 / 3);
	ck_assert_double_gt(real_of(answer.json, "product_high"), 2.0 / 3);
	answer_text(answer.json, "weakest", text, sizeof(text));
	ck_assert_str_eq(text, "vmm");
	ck_assert(json_is_true(json_object_get(answer.json, "complete")));
	ck_assert_double_eq_tol(real_of(vmm, "success"), 2.0 / 3, 1e-9);
	ck_assert_double_lt(real_of(vmm, "low"), 0.3); /* three attempts say little */
	answer_text(code, "code", text, sizeof(text));
	ck_assert_str_eq(text, "SETUP_FAILED");
	answer_text(code, "owner", text, sizeof(text));
	ck_assert_str_eq(text, "caller");
	answer_text(code, "node", text, sizeof(text));
	ck_assert_str_eq(text, node.node);
	ck_assert_uint_eq(strlen(json_string_value(json_object_get(code, "trace"))), 32);
	ck_assert_int_eq(json_integer_value(json_object_get(stage_of(&answer, "ready"), "attempts")), 2);
	ck_assert(json_is_null(json_object_get(stage_of(&answer, "network"), "success"))); /* skipped: no attempt */
	answer_free(&answer);
}

START_TEST(the_product_its_weakest_stage_and_why)
{
	check_whole("");
	check_whole("?window=1h");
	rig_stop(&rig);
	node_close(&node);
	rig_start(&rig);
	check_whole("");
}
END_TEST

START_TEST(what_another_rate_would_give)
{
	struct answer answer = ask(rig.keys.tenant, "?what_if=vmm:0.75");

	ck_assert_double_eq_tol(real_of(json_object_get(answer.json, "what_if"), "product"), 0.75, 1e-9);
	ck_assert_double_eq_tol(real_of(answer.json, "product"), 2.0 / 3, 1e-9);
	answer_free(&answer);
}
END_TEST

START_TEST(each_filter)
{
	char query[64];

	ck_assert_int_eq(attempts(rig.keys.tenant, "?vcpus=1", "vmm"), 2);
	ck_assert_int_eq(attempts(rig.keys.tenant, "?vcpus=2", "vmm"), 1);
	ck_assert_int_eq(attempts(rig.keys.tenant, "?template=base", "vmm"), 3);
	ck_assert_int_eq(attempts(rig.keys.tenant, "?template=other", "vmm"), 0);
	ck_assert_int_eq(attempts(rig.keys.tenant, "?pool=nowhere", "vmm"), 0);
	ck_assert_int_eq(attempts(rig.keys.tenant, "?version=0.1.0", "vmm"), 3);
	ck_assert_int_eq(attempts(rig.keys.tenant, "?version=0.2.0", "vmm"), 0);
	ck_assert_int_eq(attempts(rig.keys.tenant, "?memoryMB=1", "vmm"), 0);
	(void)snprintf(query, sizeof(query), "?node=%s", node.node);
	ck_assert_int_eq(attempts(rig.keys.tenant, query, "vmm"), 3);
	ck_assert_int_eq(attempts(rig.keys.tenant, "?node=elsewhere", "vmm"), 0);
}
END_TEST

START_TEST(nothing_of_others)
{
	struct answer answer = ask(rig.stranger, "");

	ck_assert(json_is_null(json_object_get(answer.json, "product")));
	ck_assert_ptr_null(strstr(answer.body, "SETUP_FAILED"));
	answer_free(&answer);
	answer = ask(rig.stranger, "?scope=all");
	ck_assert(json_is_null(json_object_get(answer.json, "product")));
	answer_free(&answer);
	ck_assert_int_eq(attempts(rig.keys.provider, "?scope=all", "vmm"), 3);
	ck_assert_int_eq(attempts(rig.keys.provider, "?scope=all&tenant=nobody", "vmm"), 0);
}
END_TEST

/* A life that was started again and again, as its record is each time that it is written: the latest SANDBOX_STAGES_MAX stages. */
START_TEST(stages_after_the_record_is_full)
{
	static struct stage_record all[3 * SANDBOX_STAGES_MAX];
	struct sandbox_spec spec = { .template_name = "worn" };
	struct sandbox_record record = { .id = "aaaaaaaaaaaaaaaaaaaa", .tenant = "default", .state = SANDBOX_RUNNING, .spec = &spec };
	const size_t step = 3;

	for (size_t n = 1; n <= ARRAY_LEN(all); n++) {
		const size_t from = n > SANDBOX_STAGES_MAX ? n - SANDBOX_STAGES_MAX : 0;

		all[n - 1] = (struct stage_record){ .stage = n % 2 ? STAGE_VMM : STAGE_DISK, .outcome = RESULT_OK, .attempt = 1,
			.generation = (n + 1) / 2, .began_us = clock_realtime_usec() };
		record.stages = all + from;
		record.n_stages = n - from;
		if (n % step == 0)
			telemetry_count_sandbox(rig.server->telemetry, &record, n == ARRAY_LEN(all));
	}
	ck_assert_int_eq(attempts(rig.keys.tenant, "?template=worn", "vmm"), ARRAY_LEN(all) / 2);
	ck_assert_int_eq(attempts(rig.keys.tenant, "?template=worn", "disk"), ARRAY_LEN(all) / 2);
}
END_TEST

/* It comes with its node's telemetry, each one; a record has the last one. */
START_TEST(a_stage_of_its_life_is_counted_by_its_node_alone)
{
	struct stage_record stage = { .stage = STAGE_PAUSE, .outcome = RESULT_OK, .began_us = clock_realtime_usec() };
	struct sandbox_spec spec = { .template_name = "asleep" };
	struct sandbox_record record = { .id = "aaaaaaaaaaaaaaaaaaaa", .tenant = "default", .state = SANDBOX_RUNNING, .spec = &spec,
		.stages = &stage, .n_stages = 1 };
	struct answer answer;

	telemetry_count_sandbox(rig.server->telemetry, &record, true);
	answer = ask(rig.keys.tenant, "?template=asleep");
	ck_assert_ptr_null(strstr(answer.body, "\"pause\""));
	answer_free(&answer);
}
END_TEST

/* A code of a pool that is unknown is whose it is everywhere else: by the default table of self-hosting. */
START_TEST(whose_it_is_in_no_pool)
{
	struct stage_record stage = { .stage = STAGE_VMM, .outcome = RESULT_FAILED, .began_us = clock_realtime_usec() };
	struct sandbox_spec spec = { .template_name = "nobodys" };
	struct sandbox_record record = { .id = "aaaaaaaaaaaaaaaaaaaa", .tenant = "default", .state = SANDBOX_RUNNING, .spec = &spec,
		.stages = &stage, .n_stages = 1 };
	struct answer answer;
	char text[64];

	(void)err_set_at(&stage.failure, STAGE_VMM, FAIL_STORE_FAILED, 0, "The scheduler's.");
	telemetry_count_sandbox(rig.server->telemetry, &record, true);
	answer = ask(rig.keys.tenant, "?template=nobodys");
	answer_text(json_array_get(json_object_get(stage_of(&answer, "vmm"), "codes"), 0), "owner", text, sizeof(text));
	ck_assert_str_eq(text, owner_name(component_owner(COMPONENT_SCHEDULER, RESPONSIBILITY_SELF)));
	answer_free(&answer);
}
END_TEST

static const struct {
	const char *query, *field;
} bad[] = { { "window=0", "window" }, { "window=-1h", "window" }, { "window=soon", "window" }, { "vcpus=0", "vcpus" },
	{ "vcpus=4294967296", "vcpus" }, { "memoryMB=x", "memoryMB" }, { "what_if=vmm", "what_if" },
	{ "what_if=vmm:", "what_if" }, { "what_if=vmm:1.5", "what_if" }, { "what_if=vmm:nan", "what_if" },
	{ "what_if=exec:0.5", "what_if" }, { "what_if=nothing:0.5", "what_if" },
	{ "what_if=vmm:0.99999999999999999999999999999999999999999999", "what_if" } };

START_TEST(what_makes_no_sense_is_named)
{
	char path[256];
	struct answer answer;

	(void)snprintf(path, sizeof(path), "/v1/stages?%s", bad[_i].query);
	answer = rig_call(&rig, "GET", path, rig.keys.tenant, NULL);
	ck_assert_int_eq(answer.status, 400);
	ck_assert_str_eq(answer_code(&answer), "INVALID_ARGUMENT");
	ck_assert_msg(strstr(answer.body, bad[_i].field), "%s", answer.body);
	answer_free(&answer);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-rates");
	TCase *tcase = tcase_create("api-rates");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, the_product_its_weakest_stage_and_why);
	tcase_add_test(tcase, what_another_rate_would_give);
	tcase_add_test(tcase, each_filter);
	tcase_add_test(tcase, nothing_of_others);
	tcase_add_test(tcase, stages_after_the_record_is_full);
	tcase_add_test(tcase, a_stage_of_its_life_is_counted_by_its_node_alone);
	tcase_add_test(tcase, whose_it_is_in_no_pool);
	tcase_add_loop_test(tcase, what_makes_no_sense_is_named, 0, ARRAY_LEN(bad));
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
