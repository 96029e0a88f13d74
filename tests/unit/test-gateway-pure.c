/* SPDX-License-Identifier: Apache-2.0
 *
 * The gateway's pure parts: which sandbox a request is for, base64, Connect's codes, the table of methods, and that
 * no bytes from a guest or a client do harm.
 */
#include <check.h>
#include <errno.h>
#include <string.h>

#include "base/frame.h"
#include "base/rng.h"
#include "gateway/connect.h"
#include "gateway/guest-wire.h"
#include "gateway/methods.h"
#include "gateway/process-event.h"
#include "gateway/process-json.h"
#include "gateway/target.h"
#include "lib/suite.h"
#include "pb/guest.pb-c.h"
#include "wire/base64.h"

#define ID "abcdefghijklmnopq234"

static const struct {
	const char *id, *port, *host;
	int r;
	bool is_named;
	const char *sandbox;
	unsigned int number;
} targets[] = {
	{ ID, "49983", NULL, 0, true, ID, 49983 },
	{ ID, "1", "x", 0, true, ID, 1 },
	{ ID, "65535", NULL, 0, true, ID, 65535 },
	{ "short", "1", NULL, 0, true, "", 1 },
	{ "", "1", NULL, 0, true, "", 1 },
	{ ID "x", "1", NULL, 0, true, "", 1 },
	{ "ABCDEFGHIJKLMNOPQ234", "1", NULL, 0, true, "", 1 },
	{ ID, "0", NULL, -EINVAL, false, NULL, 0 },
	{ ID, "65536", NULL, -EINVAL, false, NULL, 0 },
	{ ID, "99999999999999999999", NULL, -EINVAL, false, NULL, 0 },
	{ ID, "1x", NULL, -EINVAL, false, NULL, 0 },
	{ ID, "", NULL, -EINVAL, false, NULL, 0 },
	{ ID, "-1", NULL, -EINVAL, false, NULL, 0 },
	{ ID, NULL, NULL, -EINVAL, false, NULL, 0 },
	{ NULL, "1", NULL, -EINVAL, false, NULL, 0 },
	{ NULL, NULL, NULL, 0, false, NULL, 0 },
	{ NULL, NULL, "127.0.0.1:7282", 0, false, NULL, 0 },
	{ NULL, NULL, "8000-" ID ".sbx.example", 0, true, ID, 8000 },
	{ NULL, NULL, "8000-ABCDEFGHIJKLMNOPQ234.SBX.example:8443", 0, true, ID, 8000 },
	{ NULL, NULL, "8000-" ID, 0, false, NULL, 0 },
	{ NULL, NULL, "8000-" ID "x.sbx", 0, false, NULL, 0 },
	{ NULL, NULL, "8000-short.sbx", 0, false, NULL, 0 },
	{ NULL, NULL, "70000-" ID ".sbx", 0, false, NULL, 0 },
	{ NULL, NULL, "-" ID ".sbx", 0, false, NULL, 0 },
	{ NULL, NULL, "8000.sbx", 0, false, NULL, 0 },
	{ ID, "1", "8000-bbbbbbbbbbbbbbbbbbbb.sbx", 0, true, ID, 1 }, /* the headers weigh more */
};

START_TEST(test_target)
{
	struct err err = ERR_NULL;
	struct target target = { .port = 7 };

	ck_assert_int_eq(target_parse(targets[_i].id, targets[_i].port, targets[_i].host, &target, &err), targets[_i].r);
	if (targets[_i].r < 0) {
		ck_assert_int_eq(err.code, FAIL_INVALID_ARGUMENT);
		ck_assert_uint_eq(target.port, 7); /* untouched */
		return;
	}
	ck_assert(target.is_named == targets[_i].is_named);
	if (!target.is_named)
		return;
	ck_assert_str_eq(target.sandbox, targets[_i].sandbox);
	ck_assert_uint_eq(target.port, targets[_i].number);
}
END_TEST

static const struct {
	const char *text, *bytes; /* NULL: refused */
	size_t size;
} base64s[] = {
	{ "", "", 0 },
	{ "YQ==", "a", 1 },
	{ "YQ", "a", 1 },
	{ "YWI=", "ab", 2 },
	{ "YWI", "ab", 2 },
	{ "YWJj", "abc", 3 },
	{ "YW\nJj\r\n", "abc", 3 },
	{ "+/+/", "\xfb\xff\xbf", 3 },
	{ "-_-_", "\xfb\xff\xbf", 3 },
	{ "AAAA", "\0\0\0", 3 },
	{ "Y", NULL, 0 },
	{ "YQ=", NULL, 0 },
	{ "YQ===", NULL, 0 },
	{ "YWJj=", NULL, 0 },
	{ "YQ==YQ==", NULL, 0 },
	{ "=", NULL, 0 },
	{ "Y Q=", NULL, 0 },
	{ "YQ*=", NULL, 0 },
};

START_TEST(test_base64)
{
	uint8_t *data = NULL;
	size_t size = 0;
	int r = base64_decode(base64s[_i].text, strlen(base64s[_i].text), &data, &size);

	if (!base64s[_i].bytes) {
		ck_assert_int_eq(r, -EINVAL);
		ck_assert_ptr_null(data);
		return;
	}
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(size, base64s[_i].size);
	if (size)
		ck_assert_mem_eq(data, base64s[_i].bytes, size);
	free(data);
}
END_TEST

START_TEST(test_base64_round_trip)
{
	struct rng rng = rng_seeded(7);
	uint8_t in[257], *out;
	char text[BASE64_ENCODED_SIZE(sizeof(in))];
	size_t size;

	for (size_t n = 0; n <= sizeof(in); n++) {
		rng_bytes(&rng, in, n);
		ck_assert_uint_eq(base64_encode(in, n, text), (n + 2) / 3 * 4);
		ck_assert_int_eq(base64_decode(text, strlen(text), &out, &size), 0);
		ck_assert_uint_eq(size, n);
		if (n)
			ck_assert_mem_eq(out, in, n);
		free(out);
	}
}
END_TEST

/* e2b-wire.md, section 4. */
static const struct {
	enum connect_code code;
	const char *name;
	int http;
} codes[] = {
	{ CONNECT_NOT_FOUND, "not_found", 404 },
	{ CONNECT_ALREADY_EXISTS, "already_exists", 409 },
	{ CONNECT_INVALID_ARGUMENT, "invalid_argument", 400 },
	{ CONNECT_UNAUTHENTICATED, "unauthenticated", 401 },
	{ CONNECT_RESOURCE_EXHAUSTED, "resource_exhausted", 429 },
	{ CONNECT_UNAVAILABLE, "unavailable", 503 },
	{ CONNECT_DEADLINE_EXCEEDED, "deadline_exceeded", 504 },
	{ CONNECT_CANCELED, "canceled", 499 },
	{ CONNECT_PERMISSION_DENIED, "permission_denied", 403 },
	{ CONNECT_FAILED_PRECONDITION, "failed_precondition", 412 },
	{ CONNECT_ABORTED, "aborted", 409 },
	{ CONNECT_OUT_OF_RANGE, "out_of_range", 400 },
	{ CONNECT_UNIMPLEMENTED, "unimplemented", 501 },
	{ CONNECT_INTERNAL, "internal", 500 },
	{ CONNECT_UNKNOWN, "unknown", 500 },
	{ CONNECT_DATA_LOSS, "data_loss", 500 },
};

START_TEST(test_code)
{
	ck_assert_str_eq(connect_code_name(codes[_i].code), codes[_i].name);
	ck_assert_int_eq(connect_code_http(codes[_i].code), codes[_i].http);
}
END_TEST

/* Text that was cut inside a character, or is none, still gives an error with a record. */
START_TEST(test_error_of_any_text)
{
	const struct failure_context context = { .responsibility = RESPONSIBILITY_MANAGED };
	struct err err = ERR_NULL;
	json_t *json;

	err_set(&err, FAIL_EXEC_FAILED, 0, "cut: \xc3");
	json = connect_error(&err, &context);
	ck_assert_ptr_nonnull(json);
	ck_assert_str_eq(json_string_value(json_object_get(json, "code")), "internal");
	ck_assert(json_is_string(json_object_get(json, "message")));
	ck_assert(json_is_object(json_object_get(json, "failure")));
	json_decref(json);
}
END_TEST

START_TEST(test_frame_without_room_adds_nothing)
{
	struct buf out = BUF_NULL(8);
	json_t *json = json_pack("{s:s}", "text", "longer than that");

	ck_assert_int_eq(connect_frame_append(&out, 0, json), -ENOBUFS);
	ck_assert_uint_eq(buf_size(&out), 0);
	json_decref(json);
	buf_deinit(&out);
}
END_TEST

START_TEST(test_methods)
{
	size_t n;
	const struct call_method *table = method_table(&n);

	for (size_t i = 0; i < n; i++) {
		ck_assert_ptr_eq(method_find(table[i].path), &table[i]); /* no path stands there twice */
		ck_assert_uint_gt(table[i].body_max, 0);
	}
	ck_assert_ptr_null(method_find("/filesystem.Filesystem/"));
	ck_assert_ptr_null(method_find("/filesx"));
	ck_assert_ptr_null(method_find("/process.Process/Start/"));
	ck_assert_int_eq(method_shape_of("/filesystem.Filesystem/New"), CALL_UNARY);
	ck_assert_int_eq(method_shape_of("/files"), CALL_REST);
}
END_TEST

/* A request in the guest's format whose frame would be over its limit is the caller's to know. */
START_TEST(test_request_over_the_guest_limit)
{
	const struct process_selector process = { .pid = 1 };
	struct buf out = BUF_NULL(4u << 20);
	uint8_t *data = calloc(1, GUEST_FRAME_MAX);
	struct err err = ERR_NULL;

	ck_assert_int_lt(guest_input_append(&out, &process, data, GUEST_FRAME_MAX, &err), 0);
	ck_assert_int_eq(err.code, FAIL_INVALID_ARGUMENT);
	ck_assert_uint_eq(buf_size(&out), 0);
	free(data);
	buf_deinit(&out);
}
END_TEST

/* Who reads only E2B's members sees it in `error`; the record is whole. One that did not fail is not blamed. */
START_TEST(test_end_for_want_of_memory)
{
	struct guest_ended ended = { .exited = true, .exit_code = 137, .out_of_memory = true };
	struct failure_context context = { .sandbox = "sandboxsandboxsandbo" };
	json_t *event = process_event_end(&ended, &context), *end;
	struct err err = ERR_NULL;

	end = json_object_get(json_object_get(event, "event"), "end");
	ck_assert_str_eq(json_string_value(json_object_get(end, "status")), "exit status 137");
	ck_assert_str_eq(json_string_value(json_object_get(end, "error")),
		"GUEST_OOM: exit status 137, for the sandbox is out of memory");
	ck_assert_int_eq(json_parse_error(end, &err), 0);
	ck_assert_int_eq(err.code, FAIL_GUEST_OOM);
	ck_assert_int_eq(err.stage, STAGE_EXEC);
	json_decref(event);
	ended.exit_code = 0;
	event = process_event_end(&ended, &context);
	end = json_object_get(json_object_get(event, "event"), "end");
	ck_assert_ptr_null(json_object_get(end, "failure"));
	json_decref(event);
}
END_TEST

/* What a guest tells of its files: a path that is none, or leads elsewhere, is its lie. */
static const struct {
	const char *path;
	size_t size;
	int kind, type;
	bool is_good;
} changes[] = {
	{ "/a", 2, 1, 1, true },
	{ "/a/..b/.c/d..", 13, 3, 4, true },
	{ "/a\xff\n", 4, 2, 77, true }, /* a type of a newer guest is another */
	{ "", 0, 1, 1, false },
	{ "/", 1, 1, 1, false },
	{ "a", 1, 1, 1, false },
	{ "//a", 3, 1, 1, false },
	{ "/a/", 3, 1, 1, false },
	{ "/a//b", 5, 1, 1, false },
	{ "/.", 2, 1, 1, false },
	{ "/a/./b", 6, 1, 1, false },
	{ "/..", 3, 1, 1, false },
	{ "/a/../b", 7, 1, 1, false },
	{ "/a/..", 5, 1, 1, false },
	{ "/a\0b", 4, 1, 1, false },
	{ "/a", 2, 0, 1, false },
	{ "/a", 2, 4, 1, false },
};

START_TEST(test_changes)
{
	Croft__GuestEvent event;
	Croft__GuestChanges body;
	Croft__GuestChange change, *list[] = { &change };
	struct guest_event decoded;
	struct err err = ERR_NULL;
	uint8_t packed[256];
	int r;

	croft__guest_event__init(&event);
	croft__guest_changes__init(&body);
	croft__guest_change__init(&change);
	change.kind = (Croft__GuestChangeKind) changes[_i].kind;
	change.type = (Croft__GuestFileType) changes[_i].type;
	change.path = (ProtobufCBinaryData){ changes[_i].size, (uint8_t *) (uintptr_t) changes[_i].path };
	change.mode = 0107755; /* what is no permission is left out */
	body.changes = list;
	body.n_changes = 1;
	body.last = true;
	event.body_case = CROFT__GUEST_EVENT__BODY_CHANGES;
	event.changes = &body;
	r = guest_event_decode(packed, croft__guest_event__pack(&event, packed), &decoded, &err);
	if (!changes[_i].is_good) {
		ck_assert_int_lt(r, 0);
		ck_assert_int_eq(err.code, FAIL_GUEST_PROTOCOL);
		return;
	}
	ck_assert_int_eq(r, 0);
	ck_assert_int_eq(decoded.kind, GUEST_EVENT_CHANGES);
	ck_assert_uint_eq(decoded.n_changes, 1);
	ck_assert(decoded.is_last && !decoded.is_cut);
	ck_assert_mem_eq(decoded.changes[0].path, changes[_i].path, changes[_i].size);
	ck_assert_uint_eq(decoded.changes[0].mode, 07755);
	ck_assert_int_eq((int) decoded.changes[0].type, changes[_i].type == 77 ? FILE_TYPE_OTHER : changes[_i].type - 1);
	guest_event_deinit(&decoded);
}
END_TEST

static int decode_failure_named(const char *code, struct guest_event *ret, struct err *reterr)
{
	Croft__GuestEvent event;
	Croft__GuestFailure failure;
	uint8_t packed[128];

	croft__guest_event__init(&event);
	croft__guest_failure__init(&failure);
	failure.code = (char *) (uintptr_t) code;
	event.body_case = CROFT__GUEST_EVENT__BODY_FAILURE;
	event.failure = &failure;
	return guest_event_decode(packed, croft__guest_event__pack(&event, packed), ret, reterr);
}

/* A croft-guest of the release before does not know the request. */
START_TEST(test_older_guest)
{
	struct guest_event decoded;
	struct err err = ERR_NULL;

	ck_assert_int_eq(decode_failure_named("FRAME_UNSUPPORTED", &decoded, &err), 0);
	ck_assert_int_eq(decoded.failure.code, FAIL_UNSUPPORTED);
	guest_event_deinit(&decoded);
}
END_TEST

/* What a frozen guest says reaches the caller, who may try again; what cannot break in a guest does not. */
START_TEST(test_guest_failure)
{
	static const char *const lies[] = { "NODE_DRAINING", "QUOTA_EXCEEDED", "NO_SUCH_CODE", "" };
	struct guest_event decoded;
	struct err err = ERR_NULL;

	ck_assert_int_eq(decode_failure_named("SANDBOX_NOT_READY", &decoded, &err), 0);
	ck_assert_int_eq(decoded.failure.code, FAIL_SANDBOX_NOT_READY);
	ck_assert(err_is_retryable(&decoded.failure));
	guest_event_deinit(&decoded);
	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		struct err lied = ERR_NULL;

		ck_assert_int_lt(decode_failure_named(lies[i], &decoded, &lied), 0);
		ck_assert_int_eq(lied.code, FAIL_GUEST_PROTOCOL);
	}
}
END_TEST

/* Mutations of a valid event: each is understood or refused as the guest's, and the sanitizers watch. */
START_TEST(test_hostile_events)
{
	Croft__GuestEvent event;
	Croft__GuestData body;
	struct rng rng = rng_seeded((uint64_t) _i + 1);
	uint8_t data[64], packed[256], bytes[256];
	size_t size;

	croft__guest_event__init(&event);
	croft__guest_data__init(&body);
	rng_bytes(&rng, data, sizeof(data));
	body.stream = CROFT__GUEST_STREAM__GUEST_STREAM_STDOUT;
	body.data.data = data;
	body.data.len = sizeof(data);
	event.body_case = CROFT__GUEST_EVENT__BODY_DATA;
	event.data = &body;
	size = croft__guest_event__pack(&event, packed);
	for (unsigned int k = 0; k < 2000; k++) {
		struct guest_event decoded;
		struct err err = ERR_NULL;
		size_t n = rng_below(&rng, size + 1);

		memcpy(bytes, packed, size);
		for (uint64_t flips = 1 + rng_below(&rng, 4); flips; flips--)
			bytes[rng_below(&rng, size)] = (uint8_t) rng_u64(&rng);
		if (guest_event_decode(bytes, rng_below(&rng, 2) ? size : n, &decoded, &err) == 0) {
			json_decref(decoded.kind == GUEST_EVENT_DATA ? process_event_data(&decoded.data) :
				decoded.kind == GUEST_EVENT_ENDED ? process_event_end(&decoded.ended, &(struct failure_context){ 0 }) :
				decoded.kind == GUEST_EVENT_PROCESSES ?
								process_list(decoded.processes, decoded.n_processes) : NULL);
			guest_event_deinit(&decoded);
		} else {
			ck_assert_int_eq(err.code, FAIL_GUEST_PROTOCOL);
			ck_assert_int_eq(err.component, COMPONENT_GUEST);
		}
	}
}
END_TEST

/* The same for what clients send. */
START_TEST(test_hostile_requests)
{
	static const char valid[] = "{\"process\":{\"cmd\":\"c\",\"args\":[\"a\",\"b\"],\"envs\":{\"A\":\"1\"},\"cwd\":\"/\"},"
				    "\"tag\":\"t\",\"stdin\":true,\"pty\":{\"size\":{\"cols\":80,\"rows\":24}}}";
	struct rng rng = rng_seeded((uint64_t) _i + 1);
	char text[sizeof(valid)];

	for (unsigned int k = 0; k < 2000; k++) {
		struct process_start start;
		struct err err = ERR_NULL;

		memcpy(text, valid, sizeof(valid));
		for (uint64_t flips = 1 + rng_below(&rng, 3); flips; flips--)
			text[rng_below(&rng, sizeof(valid) - 1)] = (char) rng_u64(&rng);
		if (process_start_parse(text, rng_below(&rng, sizeof(valid)), &start, &err) == 0)
			process_start_deinit(&start);
		else
			ck_assert_int_eq(err.code, FAIL_INVALID_ARGUMENT);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gateway-pure");
	TCase *tc = tcase_create("pure");

	tcase_add_loop_test(tc, test_target, 0, ARRAY_LEN(targets));
	tcase_add_loop_test(tc, test_base64, 0, ARRAY_LEN(base64s));
	tcase_add_test(tc, test_base64_round_trip);
	tcase_add_loop_test(tc, test_code, 0, ARRAY_LEN(codes));
	tcase_add_test(tc, test_error_of_any_text);
	tcase_add_test(tc, test_frame_without_room_adds_nothing);
	tcase_add_test(tc, test_methods);
	tcase_add_test(tc, test_request_over_the_guest_limit);
	tcase_add_test(tc, test_end_for_want_of_memory);
	tcase_add_loop_test(tc, test_changes, 0, ARRAY_LEN(changes));
	tcase_add_test(tc, test_older_guest);
	tcase_add_test(tc, test_guest_failure);
	tcase_add_loop_test(tc, test_hostile_events, 0, 8);
	tcase_add_loop_test(tc, test_hostile_requests, 0, 8);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
