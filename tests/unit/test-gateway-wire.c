/* SPDX-License-Identifier: Apache-2.0
 *
 * The gateway over real HTTP with a fake guest: one row per line of the wire tables that it implements (who may
 * in, shapes and codes of errors, the process service's requests and events), and what a hostile guest gets.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "gateway/calls.h"
#include "lib/suite.h"
#include "unit/test-gateway-rig.h"

static struct rig rig;

static void set_up(void)
{
	rig_init(&rig);
}

static void tear_down(void)
{
	rig_deinit(&rig);
}

#define JSON "application/json"
#define STREAM "application/connect+json"
#define ENVD "49983"
#define START "{\"process\":{\"cmd\":\"echo\"}}"
#define START_FRAME "\0\0\0\0\32" START

/* ---- who may in, and in which shape a refusal comes ---- */

static const struct {
	const char *method, *path, *type, *sandbox, *port, *token, *host;
	int status;
	const char *code, *failure; /* Connect code or NULL for REST; "" : no body */
} doors[] = {
	/* health */
	{ "GET", "/health", NULL, RIG_SANDBOX, ENVD, RIG_TOKEN, NULL, 204, NULL, "" },
	{ "GET", "/health", NULL, NULL, NULL, NULL, NULL, 204, NULL, "" },
	{ "GET", "/health", NULL, RIG_GONE, ENVD, RIG_TOKEN, NULL, 502, NULL, "SANDBOX_GONE" },
	{ "GET", "/health", NULL, "no-such-form", ENVD, RIG_TOKEN, NULL, 502, NULL, "SANDBOX_GONE" },
	{ "GET", "/health", NULL, RIG_STARTING, ENVD, RIG_TOKEN, NULL, 503, NULL, "SANDBOX_NOT_READY" },
	{ "GET", "/health", NULL, RIG_SANDBOX, ENVD, "wrong", NULL, 401, NULL, "ACCESS_TOKEN_INVALID" },
	{ "GET", "/health", NULL, RIG_SANDBOX, ENVD, NULL, NULL, 401, NULL, "ACCESS_TOKEN_INVALID" },
	{ "GET", "/health", NULL, RIG_DEAD, ENVD, NULL, NULL, 204, NULL, "" }, /* it has no token */
	{ "POST", "/health", NULL, RIG_SANDBOX, ENVD, RIG_TOKEN, NULL, 405, NULL, "METHOD_NOT_ALLOWED" },
	/* by host name */
	{ "GET", "/health", NULL, NULL, NULL, RIG_TOKEN, "49983-" RIG_SANDBOX ".sbx.example", 204, NULL, "" },
	{ "GET", "/health", NULL, NULL, NULL, RIG_TOKEN, "49983-AAAAAAAAAAAAAAAAAAAA.sbx.example:8443", 204, NULL, "" },
	{ "GET", "/health", NULL, NULL, NULL, NULL, "49983-" RIG_GONE ".sbx.example", 502, NULL, "SANDBOX_GONE" },
	/* half a pair, and no port */
	{ "GET", "/health", NULL, RIG_SANDBOX, NULL, RIG_TOKEN, NULL, 400, NULL, "INVALID_ARGUMENT" },
	{ "GET", "/health", NULL, NULL, ENVD, RIG_TOKEN, NULL, 400, NULL, "INVALID_ARGUMENT" },
	{ "GET", "/health", NULL, RIG_SANDBOX, "x", RIG_TOKEN, NULL, 400, NULL, "INVALID_ARGUMENT" },
	{ "GET", "/health", NULL, RIG_SANDBOX, "65536", RIG_TOKEN, NULL, 400, NULL, "INVALID_ARGUMENT" },
	/* another port, another path */
	{ "GET", "/health", NULL, RIG_SANDBOX, "8000", RIG_TOKEN, NULL, 501, NULL, "UNSUPPORTED" },
	{ "GET", "/x", NULL, RIG_SANDBOX, ENVD, RIG_TOKEN, NULL, 404, NULL, "NO_SUCH_PATH" },
	{ "GET", "/files", NULL, RIG_SANDBOX, ENVD, RIG_TOKEN, NULL, 501, NULL, "UNSUPPORTED" },
	{ "GET", "/x", NULL, NULL, NULL, NULL, NULL, 400, NULL, "INVALID_ARGUMENT" },
	/* unary */
	{ "POST", "/process.Process/List", JSON, RIG_GONE, ENVD, RIG_TOKEN, NULL, 502, "unavailable", "SANDBOX_GONE" },
	{ "POST", "/process.Process/List", JSON, RIG_SANDBOX, ENVD, NULL, NULL, 401, "unauthenticated",
		"ACCESS_TOKEN_INVALID" },
	{ "POST", "/process.Process/List", JSON, RIG_STARTING, ENVD, RIG_TOKEN, NULL, 503, "unavailable",
		"SANDBOX_NOT_READY" },
	{ "POST", "/process.Process/List", JSON, RIG_DEAD, ENVD, NULL, NULL, 503, "unavailable", "GUEST_UNREACHABLE" },
	{ "POST", "/process.Process/Nope", JSON, RIG_SANDBOX, ENVD, RIG_TOKEN, NULL, 404, "unimplemented",
		"NO_SUCH_PATH" },
	{ "POST", "/process.Process/List", "application/proto", RIG_SANDBOX, ENVD, RIG_TOKEN, NULL, 415, NULL, "" },
	{ "POST", "/process.Process/List", JSON "; charset=utf-8", RIG_SANDBOX, ENVD, RIG_TOKEN, NULL, 400,
		"invalid_argument", "INVALID_ARGUMENT" }, /* the body is no JSON */
	{ "GET", "/process.Process/List", NULL, RIG_SANDBOX, ENVD, RIG_TOKEN, NULL, 405, "internal",
		"METHOD_NOT_ALLOWED" },
	{ "POST", "/filesystem.Filesystem/Stat", JSON, RIG_SANDBOX, ENVD, RIG_TOKEN, NULL, 501, "unimplemented",
		"UNSUPPORTED" },
	/* streams: transport's failures are a status there too */
	{ "POST", "/process.Process/Start", STREAM, RIG_GONE, ENVD, RIG_TOKEN, NULL, 502, "unavailable", "SANDBOX_GONE" },
	{ "POST", "/process.Process/Start", STREAM, RIG_SANDBOX, ENVD, "wrong", NULL, 401, "unauthenticated",
		"ACCESS_TOKEN_INVALID" },
	{ "POST", "/process.Process/Start", STREAM, RIG_STARTING, ENVD, RIG_TOKEN, NULL, 503, "unavailable",
		"SANDBOX_NOT_READY" },
	{ "POST", "/process.Process/Start", JSON, RIG_SANDBOX, ENVD, RIG_TOKEN, NULL, 415, NULL, "" },
	/* errors of the call itself are in the stream */
	{ "POST", "/process.Process/Start", STREAM, RIG_DEAD, ENVD, NULL, NULL, 200, "unavailable", "GUEST_UNREACHABLE" },
};

START_TEST(test_door)
{
	const char *body = doors[_i].type && !strcmp(doors[_i].type, STREAM) ? START_FRAME :
		doors[_i].type && strchr(doors[_i].type, ';') ? "nonsense" : doors[_i].type ? "{}" : NULL;
	struct reply *reply = rig_ask(&rig, &(struct ask){ .method = doors[_i].method, .path = doors[_i].path,
		.content_type = doors[_i].type, .sandbox = doors[_i].sandbox, .port = doors[_i].port,
		.token = doors[_i].token, .host = doors[_i].host, .body = body,
		.body_size = body && !*body ? sizeof(START_FRAME) - 1 : 0 });
	char code[64];

	ck_assert_int_eq(reply->status, doors[_i].status);
	if (!*doors[_i].failure)
		ck_assert_uint_eq(reply->received, 0);
	else
		ck_assert_str_eq(reply_failure(reply, code, sizeof(code)), doors[_i].failure);
	if (doors[_i].code)
		ck_assert_str_eq(reply_end(reply, code, sizeof(code)), doors[_i].code);
	ck_assert_ptr_nonnull(reply->traceparent);
	reply_free(reply);
}
END_TEST

START_TEST(test_rest_error_has_numeric_code)
{
	struct reply *reply = rig_ask(&rig, &(struct ask){ .method = "GET", .path = "/health", .sandbox = RIG_GONE,
		.port = ENVD });
	json_t *json = json_loadb((const char *) buf_peek(&reply->body), buf_size(&reply->body), 0, NULL);

	ck_assert_str_eq(reply->content_type, "application/json");
	ck_assert_int_eq(json_integer_value(json_object_get(json, "code")), 502);
	ck_assert(json_is_string(json_object_get(json, "message")));
	ck_assert_str_eq(json_string_value(json_object_get(json_object_get(json, "failure"), "sandbox")), RIG_GONE);
	ck_assert_uint_eq(json_string_length(json_object_get(json_object_get(json, "failure"), "trace")), 32);
	json_decref(json);
	reply_free(reply);
}
END_TEST

START_TEST(test_relay_socket_serves_the_same)
{
	struct reply *reply = rig_ask(&rig, &(struct ask){ .method = "GET", .path = "/health", .sandbox = RIG_SANDBOX,
		.port = ENVD, .token = RIG_TOKEN, .to_unix = true });

	ck_assert_int_eq(reply->status, 204);
	reply_free(reply);
}
END_TEST

/* ---- the request as the guest sees it ---- */

static const struct {
	const char *json;
	const char *header[2];
	const char *seen; /* NULL: refused as invalid_argument naming `field` */
	const char *field;
} starts[] = {
	{ "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"x y\"],\"envs\":{\"A\":\"1\"},\"cwd\":\"/w\"},"
	  "\"stdin\":false}",
		{ NULL, NULL }, "start cmd=/bin/bash args=-l,-c,x y env=A=1 cwd=/w user= stdin=0 pty=0x0 tag= timeout=0", NULL },
	/* absent stdin is true; null is absent; unknown members are ignored */
	{ "{\"process\":{\"cmd\":\"c\",\"args\":null,\"new\":[1]},\"tag\":\"t\",\"stdin\":null,\"more\":{}}", { NULL, NULL },
		"start cmd=c args= cwd= user= stdin=1 pty=0x0 tag=t timeout=0", NULL },
	{ "{\"process\":{\"cmd\":\"c\"},\"pty\":{\"size\":{\"cols\":80,\"rows\":\"24\"}}}", { NULL, NULL },
		"start cmd=c args= cwd= user= stdin=1 pty=80x24 tag= timeout=0", NULL },
	{ "{\"process\":{\"cmd\":\"c\"},\"pty\":{\"size\":{\"cols\":80.0,\"rows\":24}}}", { "connect-timeout-ms", "60000" },
		"start cmd=c args= cwd= user= stdin=1 pty=80x24 tag= timeout=60000", NULL },
	{ "{\"process\":{\"cmd\":\"c\"}}", { "authorization", "Basic dXNlcjo=" },
		"start cmd=c args= cwd= user=user stdin=1 pty=0x0 tag= timeout=0", NULL },
	{ "{\"process\":{\"cmd\":\"c\"}}", { "authorization", "Basic ???" }, NULL, NULL },
	{ "{\"process\":{\"cmd\":\"c\"}}", { "authorization", "Basic dXNlcg==" }, NULL, NULL }, /* no colon */
	{ "{\"process\":{\"cmd\":\"c\"}}", { "connect-timeout-ms", "-1" }, NULL, NULL },
	{ "{\"process\":{\"cmd\":\"c\"}}", { "connect-timeout-ms", "12345678901" }, NULL, NULL },
	{ "{}", { NULL, NULL }, NULL, "process" },
	{ "[]", { NULL, NULL }, NULL, "request" },
	{ "{\"process\":{}}", { NULL, NULL }, NULL, "process.cmd" },
	{ "{\"process\":{\"cmd\":7}}", { NULL, NULL }, NULL, "process.cmd" },
	{ "{\"process\":{\"cmd\":\"c\",\"args\":\"x\"}}", { NULL, NULL }, NULL, "process.args" },
	{ "{\"process\":{\"cmd\":\"c\",\"args\":[1]}}", { NULL, NULL }, NULL, "process.args" },
	{ "{\"process\":{\"cmd\":\"c\",\"envs\":{\"A\":1}}}", { NULL, NULL }, NULL, "process.envs" },
	{ "{\"process\":{\"cmd\":\"c\",\"envs\":{\"A=B\":\"1\"}}}", { NULL, NULL }, NULL, "process.envs" },
	{ "{\"process\":{\"cmd\":\"c\"},\"stdin\":\"no\"}", { NULL, NULL }, NULL, "stdin" },
	{ "{\"process\":{\"cmd\":\"c\"},\"pty\":{\"size\":{\"cols\":65536}}}", { NULL, NULL }, NULL, "pty.size.cols" },
	{ "{\"process\":{\"cmd\":\"c\\u0000d\"}}", { NULL, NULL }, NULL, NULL },
	{ "{\"process\":", { NULL, NULL }, NULL, NULL },
};

START_TEST(test_start_request)
{
	const char *extra[] = { starts[_i].header[0], starts[_i].header[1], NULL };
	struct reply *reply = rig_stream_start(&rig, "Start", starts[_i].json, extra);
	char code[64];

	if (starts[_i].seen) {
		rig_until(&rig, rig.seen.n_requests > 0);
		ck_assert_str_eq(rig.seen.text, starts[_i].seen);
	} else {
		unsigned int flags = 0;
		json_t *json;
		char *frame;

		rig_until(&rig, reply->done);
		ck_assert_int_eq(reply->status, 200);
		ck_assert_str_eq(reply->content_type, STREAM);
		ck_assert_str_eq(reply_end(reply, code, sizeof(code)), "invalid_argument");
		frame = reply_frame(reply, 0, &flags);
		json = json_loads(frame, 0, NULL);
		ck_assert_uint_eq(flags, 2);
		if (starts[_i].field)
			ck_assert_str_eq(json_string_value(json_object_get(json_object_get(json_object_get(
				json_object_get(json, "error"), "failure"), "detail"), "field")), starts[_i].field);
		json_decref(json);
		free(frame);
		ck_assert_uint_eq(rig.seen.n_requests, 0);
	}
	reply_free(reply);
}
END_TEST

START_TEST(test_zero_timeout_starts_nothing)
{
	const char *extra[] = { "connect-timeout-ms", "0", NULL };
	struct reply *reply = rig_stream(&rig, "Start", START, extra);
	char code[64];

	ck_assert_str_eq(reply_end(reply, code, sizeof(code)), "deadline_exceeded");
	ck_assert_uint_eq(rig.seen.n_requests, 0);
	reply_free(reply);
}
END_TEST

START_TEST(test_traceparent_goes_to_the_guest)
{
	const char *extra[] = { "traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", NULL };
	struct reply *reply = rig_stream(&rig, "Start", START, extra);

	ck_assert_int_eq(strncmp(rig.seen.traceparent, "00-0123456789abcdef0123456789abcdef-", 36), 0);
	ck_assert_int_eq(strncmp(reply->traceparent, "00-0123456789abcdef0123456789abcdef-", 36), 0);
	reply_free(reply);
}
END_TEST

/* The body of a stream's request: one frame, whole, not compressed. */
static const struct {
	const char *body;
	size_t size;
	const char *code;
} frames[] = {
	{ "\0\0\0", 3, "invalid_argument" },
	{ "\0\0\0\0\3{}", 7, "invalid_argument" },
	{ "\0\0\0\0\2{}\0\0\0\0\2{}", 14, "invalid_argument" },
	{ "\1\0\0\0\2{}", 7, "unimplemented" },
	{ "\4\0\0\0\2{}", 7, "invalid_argument" },
	{ "{\"process\":{}}", 14, "invalid_argument" },
};

START_TEST(test_request_frame)
{
	struct reply *reply = rig_ask(&rig, &(struct ask){ .method = "POST", .path = "/process.Process/Start",
		.content_type = STREAM, .sandbox = RIG_SANDBOX, .port = ENVD, .token = RIG_TOKEN,
		.body = frames[_i].body, .body_size = frames[_i].size });
	char code[64];

	ck_assert_int_eq(reply->status, 200);
	ck_assert_str_eq(reply_end(reply, code, sizeof(code)), frames[_i].code);
	reply_free(reply);
}
END_TEST

/* ---- events, byte for byte ---- */

static const struct {
	const char *cmd;
	const char *frames[6]; /* flags digit, then the payload; NULL ends */
} golden[] = {
	{ "echo",
		{ "0{\"event\":{\"start\":{\"pid\":77}}}", "0{\"event\":{\"data\":{\"stdout\":\"b3V0Cg==\"}}}",
			"0{\"event\":{\"data\":{\"stderr\":\"ZXJy\"}}}", "0{\"event\":{\"data\":{\"pty\":\"AP8=\",\"lost\":5}}}",
			"0{\"event\":{\"end\":{\"exitCode\":0,\"exited\":true,\"status\":\"exit status 0\"}}}", "2{}" } },
	{ "exit7",
		{ "0{\"event\":{\"start\":{\"pid\":77}}}",
			"0{\"event\":{\"end\":{\"exitCode\":7,\"exited\":true,\"status\":\"exit status 7\","
			"\"error\":\"exit status 7\"}}}",
			"2{}" } },
	{ "killed",
		{ "0{\"event\":{\"start\":{\"pid\":77}}}",
			"0{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,\"status\":\"signal: killed\","
			"\"error\":\"signal: killed\",\"signal\":9}}}",
			"2{}" } },
	{ "rt",
		{ "0{\"event\":{\"start\":{\"pid\":77}}}",
			"0{\"event\":{\"end\":{\"exitCode\":-1,\"exited\":false,\"status\":\"signal: signal 40\","
			"\"error\":\"signal: signal 40\",\"signal\":40}}}",
			"2{}" } },
};

START_TEST(test_events)
{
	struct reply *reply;
	char json[128];
	unsigned int n = 0;

	(void) snprintf(json, sizeof(json), "{\"process\":{\"cmd\":\"%s\"}}", golden[_i].cmd);
	reply = rig_stream(&rig, "Start", json, NULL);
	ck_assert_int_eq(reply->status, 200);
	ck_assert_str_eq(reply->content_type, STREAM);
	for (; n < ARRAY_LEN(golden[_i].frames) && golden[_i].frames[n]; n++) {
		unsigned int flags = 9;
		char *frame = reply_frame(reply, n, &flags);

		ck_assert_ptr_nonnull(frame);
		ck_assert_uint_eq(flags, (unsigned int) (golden[_i].frames[n][0] - '0'));
		ck_assert_str_eq(frame, golden[_i].frames[n] + 1);
		free(frame);
	}
	ck_assert_uint_eq(reply_frames(reply), n);
	ck_assert(!reply->failed);
	reply_free(reply);
}
END_TEST

/* ---- failures of and by the guest ---- */

static const struct {
	const char *cmd, *code, *failure;
} failing[] = {
	{ "notfound", "not_found", "COMMAND_NOT_FOUND" },
	{ "blame", "internal", "GUEST_PROTOCOL" },
	{ "garbage", "internal", "GUEST_PROTOCOL" },
	{ "huge", "internal", "GUEST_PROTOCOL" },
	{ "answer-done", "internal", "GUEST_PROTOCOL" },
	{ "badexit", "internal", "GUEST_PROTOCOL" },
	{ "toolong", "internal", "GUEST_PROTOCOL" },
	{ "twice", "internal", "GUEST_PROTOCOL" },
	{ "close", "unavailable", "GUEST_UNREACHABLE" },
	{ "mute", "unavailable", "GUEST_UNREACHABLE" },
};

START_TEST(test_guest_failure)
{
	struct reply *reply;
	char json[128], code[64];

	if (!strcmp(failing[_i].cmd, "mute"))
		rig.options.guest_timeout_us = 200000;
	(void) snprintf(json, sizeof(json), "{\"process\":{\"cmd\":\"%s\"}}", failing[_i].cmd);
	reply = rig_stream(&rig, "Start", json, NULL);
	ck_assert_int_eq(reply->status, 200);
	ck_assert_str_eq(reply_end(reply, code, sizeof(code)), failing[_i].code);
	ck_assert_str_eq(reply_failure(reply, code, sizeof(code)), failing[_i].failure);
	ck_assert(!reply->failed);
	reply_free(reply);
}
END_TEST

/* ---- unary ---- */

static const struct {
	const char *method, *json;
	int status;
	const char *answer; /* whole body for 200, the Connect code else */
	const char *seen;   /* NULL: nothing reached the guest */
} unary[] = {
	{ "List", "{}", 200,
		"{\"processes\":[{\"config\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"sleep 5\"],\"envs\":{\"A\":\"1\"},"
		"\"cwd\":\"/tmp\"},\"pid\":12,\"tag\":\"web\"},{\"config\":{\"cmd\":\"true\",\"args\":[],\"envs\":{}},"
		"\"pid\":13}]}",
		"" },
	{ "SendSignal", "{\"process\":{\"pid\":12},\"signal\":\"SIGNAL_SIGKILL\"}", 200, "{}", "signal pid=12 tag= 9 0" },
	{ "SendSignal", "{\"process\":{\"tag\":\"web\"},\"signal\":\"SIGNAL_SIGTERM\"}", 200, "{}",
		"signal pid=0 tag=web 15 0" },
	{ "SendSignal", "{\"process\":{\"pid\":\"12\"},\"signal\":2}", 200, "{}", "signal pid=12 tag= 2 0" },
	{ "SendSignal", "{\"process\":{\"pid\":404},\"signal\":9}", 404, "not_found", "signal pid=404 tag= 9 0" },
	{ "SendSignal", "{\"process\":{\"pid\":12}}", 400, "invalid_argument", NULL },
	{ "SendSignal", "{\"process\":{\"pid\":12},\"signal\":\"SIGNAL_UNSPECIFIED\"}", 400, "invalid_argument", NULL },
	{ "SendSignal", "{\"process\":{\"pid\":12},\"signal\":65}", 400, "invalid_argument", NULL },
	{ "SendSignal", "{\"process\":{\"pid\":12,\"tag\":\"x\"},\"signal\":9}", 400, "invalid_argument", NULL },
	{ "SendSignal", "{\"process\":{\"pid\":-1},\"signal\":9}", 400, "invalid_argument", NULL },
	{ "SendSignal", "{\"process\":{\"pid\":1.5},\"signal\":9}", 400, "invalid_argument", NULL },
	{ "SendSignal", "{\"process\":{\"pid\":4294967296},\"signal\":9}", 400, "invalid_argument", NULL },
	{ "SendSignal", "{\"process\":{},\"signal\":9}", 400, "invalid_argument", NULL },
	{ "SendSignal", "{\"signal\":9}", 400, "invalid_argument", NULL },
	{ "SendInput", "{\"process\":{\"pid\":12},\"input\":{\"stdin\":\"aGk=\"}}", 200, "{}", "input pid=12 tag= 0 0" },
	{ "SendInput", "{\"process\":{\"pid\":12},\"input\":{\"pty\":\"aGk\"}}", 200, "{}", "input pid=12 tag= 0 0" },
	{ "SendInput", "{\"process\":{\"pid\":12},\"input\":{\"pty\":\"aGk=\",\"stdin\":\"aGk=\"}}", 400,
		"invalid_argument", NULL },
	{ "SendInput", "{\"process\":{\"pid\":12},\"input\":{\"stdin\":\"a*==\"}}", 400, "invalid_argument", NULL },
	{ "SendInput", "{\"process\":{\"pid\":12},\"input\":{}}", 400, "invalid_argument", NULL },
	{ "CloseStdin", "{\"process\":{\"pid\":12}}", 200, "{}", "close pid=12 tag= 0 0" },
	{ "Update", "{\"process\":{\"pid\":12},\"pty\":{\"size\":{\"cols\":100,\"rows\":40}}}", 200, "{}",
		"resize pid=12 tag= 100 40" },
	{ "Update", "{\"process\":{\"pid\":12}}", 200, "{}", NULL },
	{ "CloseStdin", "{\"process\":{\"pid\":405}}", 503, "unavailable", "close pid=405 tag= 0 0" },
	{ "List", "{", 400, "invalid_argument", NULL },
	{ "List", "", 400, "invalid_argument", NULL },
	{ "SendSignal", "{\"process\":{\"pid\":12,\"pid\":13},\"signal\":9}", 400, "invalid_argument", NULL },
};

START_TEST(test_unary)
{
	struct reply *reply;
	char code[64];

	if (unary[_i].status == 503)
		rig.options.guest_timeout_us = 200000;
	reply = rig_unary(&rig, unary[_i].method, unary[_i].json);
	ck_assert_int_eq(reply->status, unary[_i].status);
	ck_assert_str_eq(reply->content_type, JSON);
	if (reply->status == 200) {
		ck_assert_uint_eq(buf_size(&reply->body), strlen(unary[_i].answer));
		ck_assert_mem_eq(buf_peek(&reply->body), unary[_i].answer, strlen(unary[_i].answer));
	} else {
		ck_assert_str_eq(reply_end(reply, code, sizeof(code)), unary[_i].answer);
	}
	ck_assert_uint_eq(rig.seen.n_requests, unary[_i].seen ? 1 : 0);
	if (unary[_i].seen)
		ck_assert_str_eq(rig.seen.text, unary[_i].seen);
	reply_free(reply);
}
END_TEST

START_TEST(test_connect_to_a_process)
{
	struct reply *reply = rig_stream(&rig, "Connect", "{\"process\":{\"pid\":12}}", NULL);
	char *frame = reply_frame(reply, 0, NULL), code[64];

	ck_assert_str_eq(rig.seen.text, "connect pid=12 tag=");
	ck_assert_str_eq(frame, "{\"event\":{\"start\":{\"pid\":77}}}");
	ck_assert_str_eq(reply_end(reply, code, sizeof(code)), "");
	free(frame);
	reply_free(reply);
	reply = rig_stream(&rig, "Connect", "{\"process\":{\"pid\":404}}", NULL);
	ck_assert_str_eq(reply_end(reply, code, sizeof(code)), "not_found");
	ck_assert_str_eq(reply_failure(reply, code, sizeof(code)), "PROCESS_NOT_FOUND");
	reply_free(reply);
}
END_TEST

static void *no_memory(size_t size)
{
	(void) size;
	return NULL;
}

/* Its caller did nothing wrong, and is not told of as if it had. */
START_TEST(test_no_memory_for_an_answer)
{
	struct ask ask = { .method = "POST", .path = "/process.Process/List", .body = "{}", .content_type = JSON,
		.sandbox = RIG_SANDBOX, .port = ENVD, .token = RIG_TOKEN };
	struct reply *reply = rig_start(&rig, &ask);
	struct calls_batch batch;
	json_malloc_t allocate;
	json_free_t release;

	rig_until(&rig, rig.seen.n_requests == 1);
	json_get_alloc_funcs(&allocate, &release);
	json_set_alloc_funcs(no_memory, release);
	rig_until(&rig, reply->done);
	json_set_alloc_funcs(allocate, release);
	ck_assert_int_eq(reply->status, 503);
	reply_free(reply);
	ck_assert(calls_next(gateway_calls(rig.gateway), 1, &batch));
	ck_assert_uint_eq(batch.n_records, 1);
	ck_assert_int_eq(batch.records[0].failure.code, FAIL_NO_MEMORY);
	ck_assert_int_eq(batch.records[0].failure.component, failure_info(FAIL_NO_MEMORY)->component);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gateway-wire");
	TCase *tc = tcase_create("wire");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, test_door, 0, ARRAY_LEN(doors));
	tcase_add_test(tc, test_rest_error_has_numeric_code);
	tcase_add_test(tc, test_relay_socket_serves_the_same);
	tcase_add_loop_test(tc, test_start_request, 0, ARRAY_LEN(starts));
	tcase_add_test(tc, test_zero_timeout_starts_nothing);
	tcase_add_test(tc, test_traceparent_goes_to_the_guest);
	tcase_add_loop_test(tc, test_request_frame, 0, ARRAY_LEN(frames));
	tcase_add_loop_test(tc, test_events, 0, ARRAY_LEN(golden));
	tcase_add_loop_test(tc, test_guest_failure, 0, ARRAY_LEN(failing));
	tcase_add_loop_test(tc, test_unary, 0, ARRAY_LEN(unary));
	tcase_add_test(tc, test_connect_to_a_process);
	tcase_add_test(tc, test_no_memory_for_an_answer);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
