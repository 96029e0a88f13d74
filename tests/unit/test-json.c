/* SPDX-License-Identifier: Apache-2.0
 *
 * Failure and stage records as JSON: the shape that the API, the gateway and the command line share, and
 * typed reads of a request.
 */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "lib/loop.h"
#include "lib/suite.h"
#include "wire/json.h"

static const char *text(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value ? value : "(absent)";
}

static struct err make_err(void)
{
	struct err err = ERR_NULL;

	(void) err_set(&err, FAIL_NO_CAPACITY, ENOMEM, "no node has %d MiB", 65536);
	err_add(&err, "resource", "memory");
	err_add(&err, "asked", "65536");
	return err;
}

START_TEST(test_error_body)
{
	struct trace trace = { "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331" };
	struct failure_context context = { .responsibility = RESPONSIBILITY_MANAGED, .trace = &trace,
		.sandbox = "abcdefghijklmnopqrst", .tenant = "t1", .began_us = 1764425034123000, .took_us = 12345 };
	struct err err = make_err(), back;
	json_t *body = json_error_body(&err, &context), *failure;

	ck_assert_ptr_nonnull(body);
	ck_assert_int_eq(json_integer_value(json_object_get(body, "code")), 503);
	ck_assert_str_eq(text(body, "message"), "no node has 65536 MiB");
	failure = json_object_get(body, "failure");
	ck_assert_str_eq(text(failure, "code"), "NO_CAPACITY");
	ck_assert_str_eq(text(failure, "stage"), "place");
	ck_assert_str_eq(text(failure, "component"), "node-host");
	ck_assert_str_eq(text(failure, "owner"), "customer");
	ck_assert_str_eq(text(failure, "class"), "capacity");
	ck_assert(json_is_true(json_object_get(failure, "retryable")));
	ck_assert_str_eq(text(failure, "errno"), "ENOMEM");
	ck_assert_str_eq(text(json_object_get(failure, "detail"), "resource"), "memory");
	ck_assert_str_eq(text(failure, "remedy"), failure_info(FAIL_NO_CAPACITY)->remedy);
	ck_assert_str_eq(text(failure, "trace"), trace.trace_id);
	ck_assert_str_eq(text(failure, "sandbox"), context.sandbox);
	ck_assert_str_eq(text(failure, "tenant"), "t1");
	ck_assert_str_eq(text(failure, "began"), "2025-11-29T14:03:54.123Z");
	ck_assert_int_eq(json_integer_value(json_object_get(failure, "took_ms")), 12);
	ck_assert_ptr_null(json_object_get(failure, "node"));
	ck_assert_int_eq(json_parse_error(body, &back), 0);
	ck_assert_int_eq(memcmp(&err, &back, sizeof(err)), 0);
	json_decref(body);
}
END_TEST

/* Each code survives the way to JSON and back, and its owner follows the pool's table. */
static void check_code(enum fail_code code)
{
	struct failure_context managed = { .responsibility = RESPONSIBILITY_MANAGED };
	struct failure_context self = { .responsibility = RESPONSIBILITY_SELF };
	const char *name = failure_info(code)->name;
	struct err err = ERR_NULL, back;
	json_t *body, *other;

	(void) err_set(&err, code, 0, "x");
	body = json_error_body(&err, &managed);
	other = json_failure(&err, &self);
	ck_assert_msg(body && other, "%s", name);
	ck_assert_msg(json_parse_error(body, &back) == 0 && memcmp(&err, &back, sizeof(err)) == 0, "%s", name);
	ck_assert_msg(json_is_null(json_object_get(other, "errno")), "%s", name);
	ck_assert_str_eq(text(json_object_get(body, "failure"), "owner"),
		owner_name(component_owner(err.component, RESPONSIBILITY_MANAGED)));
	ck_assert_str_eq(text(other, "owner"), owner_name(component_owner(err.component, RESPONSIBILITY_SELF)));
	json_decref(body);
	json_decref(other);
}

/* One test for all: a process for each costs minutes under a sanitizer. */
START_TEST(test_each_code)
{
	for (unsigned int i = FAIL_NONE + 1; i < FAIL_MAX_; i++)
		check_code((enum fail_code) i);
}
END_TEST

/* A message that was cut inside a character, or that holds a guest's bytes, is still an answer. */
START_TEST(test_not_utf8)
{
	static const char *const messages[] = { "cut \xc3", "\xff\xfe raw", "\x1b[31mred\nline" };
	struct failure_context context = { 0 };
	struct err err = ERR_NULL;
	json_t *body;
	char *dump;

	(void) err_set(&err, FAIL_IO_FAILED, EIO, "%s", messages[_i]);
	err_add(&err, "file", "%s", messages[_i]);
	body = json_error_body(&err, &context);
	ck_assert_ptr_nonnull(body);
	dump = json_dumps(body, JSON_COMPACT);
	ck_assert_ptr_nonnull(dump);
	ck_assert_ptr_null(strchr(dump, '\n'));
	ck_assert_ptr_null(strchr(dump, '\x1b'));
	ck_assert_ptr_nonnull(json_object_get(json_object_get(json_object_get(body, "failure"), "detail"), "file"));
	free(dump);
	json_decref(body);
}
END_TEST

START_TEST(test_stage)
{
	const struct failure_context managed = { .responsibility = RESPONSIBILITY_MANAGED },
				     self = { .responsibility = RESPONSIBILITY_SELF };
	struct stage_record record = { .stage = STAGE_NETWORK, .outcome = RESULT_SKIPPED, .reason = "not built yet",
		.began_us = 1764425034123000, .took_us = 1500, .attempt = 2, .generation = 3,
		.sandbox = "abcdefghijklmnopqrst" };
	json_t *stage = json_stage(&record, &managed);

	ck_assert_ptr_nonnull(stage);
	ck_assert_str_eq(text(stage, "stage"), "network");
	ck_assert_str_eq(text(stage, "outcome"), "skipped");
	ck_assert_str_eq(text(stage, "reason"), "not built yet");
	ck_assert_int_eq(json_integer_value(json_object_get(stage, "took_ms")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(stage, "took_us")), 1500);
	ck_assert_ptr_null(json_object_get(stage, "failure"));
	json_decref(stage);
	record.outcome = RESULT_FAILED;
	record.failure = make_err();
	stage = json_stage(&record, &self);
	ck_assert_str_eq(text(json_object_get(stage, "failure"), "code"), "NO_CAPACITY");
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(stage, "failure"), "took_ms")), 1);
	ck_assert_str_eq(text(json_object_get(stage, "failure"), "began"), text(stage, "began"));
	json_decref(stage);
}
END_TEST

START_TEST(test_parse_error_of_others)
{
	static const char *const bodies[] = { "{}", "[]", "{\"code\":404,\"message\":\"x\"}", "{\"failure\":3}",
		"{\"failure\":{\"code\":7}}", "{\"failure\":{}}" };
	json_t *body = json_loads(bodies[_i], JSON_DECODE_ANY, NULL);
	struct err err;

	ck_assert_ptr_nonnull(body);
	ck_assert_int_eq(json_parse_error(body, &err), -EINVAL);
	json_decref(body);
}
END_TEST

START_TEST(test_parse_error_of_the_future)
{
	json_t *body = json_loads("{\"message\":\"m\",\"failure\":{\"code\":\"NEW\",\"stage\":\"new\",\"errno\":\"ENEW\"}}",
		0, NULL);
	struct err err;

	ck_assert_int_eq(json_parse_error(body, &err), 0);
	ck_assert_int_eq(err.code, FAIL_PEER_FAILURE);
	ck_assert_str_eq(err_field(&err, "peer_code"), "NEW");
	ck_assert_str_eq(err.msg, "m");
	json_decref(body);
}
END_TEST

START_TEST(test_typed_reads)
{
	json_t *object = json_pack("{s:s, s:i, s:b, s:n, s:f, s:I, s:s%}", "name", "abc", "n", 5, "yes", 1, "null", "real",
		1.5, "minus", (json_int_t) -1, "nul", "a\0b", (size_t) 3);
	const char *string = "kept";
	uint64_t number = 42;
	bool flag = false;
	struct err err = ERR_NULL;

	ck_assert_ptr_nonnull(object);
	ck_assert_int_eq(json_get_string(object, "absent", 9, &string, &err), 0);
	ck_assert_int_eq(json_get_string(object, "null", 9, &string, &err), 0);
	ck_assert_str_eq(string, "kept");
	ck_assert_int_eq(json_get_string(object, "name", 3, &string, &err), 0);
	ck_assert_str_eq(string, "abc");
	ck_assert_int_eq(json_get_u64(object, "absent", 1, 9, &number, &err), 0);
	ck_assert_uint_eq(number, 42);
	ck_assert_int_eq(json_get_u64(object, "n", 5, 5, &number, &err), 0);
	ck_assert_uint_eq(number, 5);
	ck_assert_int_eq(json_get_bool(object, "yes", &flag, &err), 0);
	ck_assert(flag);
	ck_assert(!err_is_set(&err));

	ck_assert_int_lt(json_get_string(object, "name", 2, &string, &err), 0);
	ck_assert_int_eq(err.code, FAIL_INVALID_ARGUMENT);
	ck_assert_str_eq(err_field(&err, "field"), "name");
	ck_assert_int_lt(json_get_string(object, "n", 9, &string, NULL), 0);
	ck_assert_int_lt(json_get_string(object, "nul", 9, &string, NULL), 0);
	ck_assert_int_lt(json_get_u64(object, "n", 6, 9, &number, NULL), 0);
	ck_assert_int_lt(json_get_u64(object, "n", 0, 4, &number, NULL), 0);
	ck_assert_int_lt(json_get_u64(object, "real", 0, 4, &number, NULL), 0);
	ck_assert_int_lt(json_get_u64(object, "minus", 0, UINT64_MAX, &number, NULL), 0);
	ck_assert_int_lt(json_get_u64(object, "name", 0, 4, &number, NULL), 0);
	ck_assert_int_lt(json_get_bool(object, "n", &flag, NULL), 0);
	json_decref(object);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("json");
	TCase *tc = tcase_create("json");

	tcase_add_test(tc, test_error_body);
	tcase_add_test(tc, test_each_code);
	tcase_add_loop_test(tc, test_not_utf8, 0, 3);
	tcase_add_test(tc, test_stage);
	tcase_add_loop_test(tc, test_parse_error_of_others, 0, 6);
	tcase_add_test(tc, test_parse_error_of_the_future);
	tcase_add_test(tc, test_typed_reads);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
