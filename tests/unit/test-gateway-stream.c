/* SPDX-License-Identifier: Apache-2.0
 *
 * The gateway's streams over time: 10 MB byte for byte, a client that stops reading, keepalive, the time limit,
 * clients that leave, sandboxes that end, limits, input while a stream runs, the agent's socket, stopping.
 */
#include <check.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/frame.h"
#include "lib/suite.h"
#include "wire/base64.h"
#include "pb/node.pb-c.h"
#include "gateway/audit.h"
#include "gateway/call.h"
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

#define SLEEP "{\"process\":{\"cmd\":\"sleep\"}}"
#define BIG "{\"process\":{\"cmd\":\"big\"}}"

START_TEST(test_big_output_is_exact)
{
	struct reply *reply = rig_stream(&rig, "Start", BIG, NULL);
	char code[64];
	size_t size;
	CLEANUP_FREE uint8_t *out = reply_output(reply, "stdout", &size);

	ck_assert_str_eq(reply_end(reply, code, sizeof(code)), "");
	ck_assert_uint_eq(size, RIG_BIG);
	for (size_t i = 0; i < size; i++)
		if (out[i] != rig_big_byte(i))
			ck_abort_msg("byte %zu differs", i);
	reply_free(reply);
}
END_TEST

START_TEST(test_slow_reader_is_bounded_and_loses_nothing)
{
	struct reply *reply = rig_stream_start(&rig, "Start", BIG, NULL);
	uint64_t written, before;
	size_t size;
	uint8_t *out;

	reply->holds = true;
	do {
		before = rig.written;
		rig_rest(&rig, 200);
		written = rig.written;
	} while (written != before);
	/* Both sockets' buffers and ours; far from the 10 MB that wait. */
	ck_assert_uint_lt(written, RIG_BIG / 2);
	reply->holds = false;
	http_call_wake(reply->call);
	rig_until(&rig, reply->done);
	out = reply_output(reply, "stdout", &size);
	ck_assert_uint_eq(size, RIG_BIG);
	for (size_t i = 0; i < size; i++)
		if (out[i] != rig_big_byte(i))
			ck_abort_msg("byte %zu differs", i);
	free(out);
	reply_free(reply);
}
END_TEST

START_TEST(test_keepalive)
{
	const char *extra[] = { "keepalive-ping-interval", "1", NULL };
	struct reply *reply = rig_stream_start(&rig, "Start", SLEEP, extra);
	int64_t began = clock_monotonic_usec();
	char *frame;

	rig_until(&rig, reply_frames(reply) >= 2);
	ck_assert_int_ge(clock_monotonic_usec() - began, 900 * USEC_PER_MSEC);
	frame = reply_frame(reply, 1, NULL);
	ck_assert_str_eq(frame, "{\"event\":{\"keepalive\":{}}}");
	free(frame);
	reply_free(reply);
}
END_TEST

START_TEST(test_time_limit)
{
	const char *extra[] = { "connect-timeout-ms", "100", NULL };
	struct reply *reply = rig_stream(&rig, "Start", SLEEP, extra);
	char code[64];

	/* The guest killed it: no end event, the stream's error says why. */
	ck_assert_uint_eq(reply_frames(reply), 2);
	ck_assert_str_eq(reply_end(reply, code, sizeof(code)), "deadline_exceeded");
	ck_assert_str_eq(reply_failure(reply, code, sizeof(code)), "EXEC_TIMEOUT");
	reply_free(reply);
}
END_TEST

START_TEST(test_time_limit_of_connect_only_ends_the_stream)
{
	const char *extra[] = { "connect-timeout-ms", "100", NULL };
	struct reply *reply = rig_stream(&rig, "Connect", "{\"process\":{\"pid\":5}}", extra);
	char code[64];

	ck_assert_str_eq(reply_end(reply, code, sizeof(code)), "deadline_exceeded");
	ck_assert_uint_eq(rig.seen.n_requests, 1); /* nothing was sent to kill it */
	reply_free(reply);
}
END_TEST

START_TEST(test_client_that_leaves_kills_nothing)
{
	struct reply *reply = rig_stream_start(&rig, "Start", SLEEP, NULL);

	rig_until(&rig, reply_frames(reply) == 1);
	ck_assert_uint_eq(rig.n_open, 1);
	reply_free(reply);
	rig_until(&rig, rig.n_open == 0 && gateway_active(rig.gateway) == 0);
	ck_assert_uint_eq(rig.seen.n_requests, 1);
}
END_TEST

START_TEST(test_sandbox_that_ends)
{
	struct reply *reply = rig_stream_start(&rig, "Start", "{\"process\":{\"cmd\":\"close\"}}", NULL);
	char code[64];

	rig_until(&rig, reply_frames(reply) == 1);
	rig_remove_route(&rig, RIG_SANDBOX); /* the agent's word comes after the connection broke */
	rig_until(&rig, reply->done);
	ck_assert_str_eq(reply_end(reply, code, sizeof(code)), "unavailable");
	ck_assert_str_eq(reply_failure(reply, code, sizeof(code)), "SANDBOX_GONE");
	reply_free(reply);
}
END_TEST

START_TEST(test_limit_of_streams)
{
	struct reply *one, *two, *three;
	char code[64];

	rig.options.max_streams_per_sandbox = 2;
	one = rig_stream_start(&rig, "Start", SLEEP, NULL);
	two = rig_stream_start(&rig, "Start", SLEEP, NULL);
	rig_until(&rig, reply_frames(one) == 1 && reply_frames(two) == 1);
	three = rig_stream(&rig, "Start", SLEEP, NULL);
	ck_assert_int_eq(three->status, 200);
	ck_assert_str_eq(reply_end(three, code, sizeof(code)), "resource_exhausted");
	ck_assert_str_eq(reply_failure(three, code, sizeof(code)), "TOO_MANY_STREAMS");
	reply_free(three);
	reply_free(one);
	rig_until(&rig, rig.n_open == 1);
	three = rig_stream_start(&rig, "Start", SLEEP, NULL);
	rig_until(&rig, reply_frames(three) == 1);
	reply_free(three);
	reply_free(two);
}
END_TEST

START_TEST(test_large_input_goes_in_pieces)
{
	const size_t size = 3u * 512 * 1024 + 17;
	CLEANUP_FREE uint8_t *data = malloc(size);
	CLEANUP_FREE char *json = malloc(BASE64_ENCODED_SIZE(size) + 128);
	struct reply *reply;
	size_t at;

	for (size_t i = 0; i < size; i++)
		data[i] = rig_big_byte(i);
	at = (size_t) sprintf(json, "{\"process\":{\"pid\":12},\"input\":{\"stdin\":\"");
	at += base64_encode(data, size, json + at);
	(void) sprintf(json + at, "\"}}");
	reply = rig_unary(&rig, "SendInput", json);
	ck_assert_int_eq(reply->status, 200);
	ck_assert_uint_eq(rig.seen.n_inputs, 4);
	ck_assert_uint_eq(buf_size(&rig.seen.input), size);
	ck_assert_mem_eq(buf_peek(&rig.seen.input), data, size);
	reply_free(reply);
}
END_TEST

START_TEST(test_body_over_the_limit)
{
	const size_t size = 100u * 1024;
	CLEANUP_FREE char *json = malloc(size + 1);
	struct reply *reply;

	memset(json, ' ', size);
	json[size] = '\0';
	reply = rig_unary(&rig, "List", json);
	ck_assert_int_eq(reply->status, 413);
	reply_free(reply);
}
END_TEST

START_TEST(test_drain)
{
	struct reply *reply = rig_stream_start(&rig, "Start", SLEEP, NULL), *late;
	char code[64];

	rig_until(&rig, reply_frames(reply) == 1);
	gateway_drain(rig.gateway);
	rig_until(&rig, reply->done);
	ck_assert_str_eq(reply_end(reply, code, sizeof(code)), "unavailable");
	ck_assert_str_eq(reply_failure(reply, code, sizeof(code)), "SHUTTING_DOWN");
	reply_free(reply);
	rig_until(&rig, gateway_active(rig.gateway) == 0);
	late = rig_unary(&rig, "List", "{}");
	ck_assert_int_eq(late->status, 503);
	reply_free(late);
}
END_TEST

START_TEST(test_freed_with_streams_open)
{
	struct reply *reply = rig_stream_start(&rig, "Start", BIG, NULL);

	reply->holds = true;
	rig_rest(&rig, 100);
	reply_free(reply);
	/* tear_down frees the gateway at once */
}
END_TEST

/* ---- the agent's socket ---- */

static int agent_connect(void)
{
	char path[128];
	int fd;

	(void) snprintf(path, sizeof(path), "%s/%s", rig.run, GATEWAY_ADMIN_SOCKET);
	fd = unix_connect(path, SOCK_STREAM);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void agent_send(int fd, const Croft__GatewayUpdate *update)
{
	struct buf out = BUF_NULL(1u << 20);
	uint8_t *to;

	ck_assert_int_eq(frame_reserve(&out, croft__gateway_update__get_packed_size(update), &to), 0);
	croft__gateway_update__pack(update, to);
	ck_assert_int_eq(write(fd, buf_peek(&out), buf_size(&out)), (ssize_t) buf_size(&out));
	buf_deinit(&out);
}

static uint64_t agent_ack(int fd)
{
	uint8_t bytes[64];
	Croft__GatewayAck *ack;
	ssize_t n = -1;
	uint64_t seq;

	rig_until(&rig, (n = read(fd, bytes, sizeof(bytes))) >= 0);
	ck_assert_int_gt(n, 4);
	ack = croft__gateway_ack__unpack(NULL, (size_t) n - 4, bytes + 4);
	ck_assert_ptr_nonnull(ack);
	seq = ack->seq;
	croft__gateway_ack__free_unpacked(ack, NULL);
	return seq;
}

START_TEST(test_agent_tells_routes)
{
	Croft__GatewayUpdate update;
	Croft__GatewayRoute route, *routes[] = { &route };
	char sandbox[] = RIG_GONE, starting[] = RIG_STARTING, *removed[] = { starting };
	struct route_table *table = gateway_routes(rig.gateway);
	int fd = agent_connect();

	croft__gateway_update__init(&update);
	croft__gateway_route__init(&route);
	route.sandbox = sandbox;
	route.vsock_path = rig.vsock;
	route.ready = true;
	update.seq = 7;
	update.routes = routes;
	update.n_routes = 1;
	update.removed = removed;
	update.n_removed = 1;
	agent_send(fd, &update);
	ck_assert_uint_eq(agent_ack(fd), 7);
	ck_assert_ptr_nonnull(route_find(table, RIG_GONE));
	ck_assert_ptr_nonnull(route_find(table, RIG_SANDBOX)); /* it was no complete one */
	ck_assert_ptr_null(route_find(table, RIG_STARTING));
	update.seq = 8;
	update.complete = true;
	update.n_removed = 0;
	agent_send(fd, &update);
	ck_assert_uint_eq(agent_ack(fd), 8);
	ck_assert_uint_eq(table->n_routes, 1);
	ck_assert_ptr_null(route_find(table, RIG_SANDBOX));
	close(fd);
	rig_rest(&rig, 30);
	ck_assert_uint_eq(table->n_routes, 1); /* an agent that leaves takes nothing with it */
}
END_TEST

/* The next answer of the gateway, whole; the caller frees it. */
static Croft__GatewayAck *agent_read(int fd)
{
	static uint8_t bytes[65536];
	size_t have = 0, size;

	do {
		ssize_t n = read(fd, bytes + have, have < 4 ? 4 - have : 4 + ((size_t) bytes[2] << 8 | bytes[3]) - have);

		if (n > 0)
			have += (size_t) n;
		else
			rig_turn(&rig);
		size = have < 4 ? SIZE_MAX : 4 + ((size_t) bytes[2] << 8 | bytes[3]);
	} while (have < size);
	return croft__gateway_ack__unpack(NULL, size - 4, bytes + 4);
}

#define CALL_TRACE "0af7651916cd43dd8448eb211c80319c"

static Croft__GatewayAck *read_calls(int fd)
{
	Croft__GatewayAck *ack = agent_read(fd);

	while (ack && !ack->calls) {
		croft__gateway_ack__free_unpacked(ack, NULL);
		ack = agent_read(fd);
	}
	ck_assert_ptr_nonnull(ack);
	return ack;
}

/* Calls that end well, that fail and that are none; told with the caller's trace, and with no byte of what was asked. */
START_TEST(test_agent_is_told_of_calls)
{
	static const char *const extra[] = { "traceparent", "00-" CALL_TRACE "-b7ad6b7169203331-01", NULL };
	Croft__GatewayUpdate update;
	Croft__GatewayAck *ack;
	uint64_t seq;
	int fd;

	reply_free(rig_stream(&rig, "Start", "{\"process\":{\"cmd\":\"echo\",\"args\":[\"canary\"]}}", extra));
	reply_free(rig_stream(&rig, "Start", "{\"process\":{\"cmd\":\"notfound\",\"args\":[\"canary\"]}}", NULL));
	reply_free(rig_unary(&rig, "SendSignal", "{\"canary\":1}"));
	reply_free(rig_ask(&rig, &(struct ask){ .method = "GET", .path = "/health", .sandbox = RIG_SANDBOX, .port = "49983",
		.token = RIG_TOKEN }));
	reply_free(rig_ask(&rig, &(struct ask){ .method = "POST", .path = "/process.Process/List", .body = "{}",
		.content_type = "application/json", .sandbox = RIG_SANDBOX, .port = "49983", .token = "another's" }));
	fd = agent_connect();
	croft__gateway_update__init(&update);
	update.takes_calls = true;
	update.seq = 1;
	agent_send(fd, &update);
	ack = read_calls(fd);
	seq = ack->calls->seq;
	ck_assert_uint_eq(ack->calls->n_records, 3);
	ck_assert_uint_eq(ack->calls->lost, 0);
	ck_assert_str_eq(ack->calls->records[0]->trace_id, CALL_TRACE);
	ck_assert_str_eq(ack->calls->records[0]->sandbox, RIG_SANDBOX);
	ck_assert_str_eq(ack->calls->records[0]->stage, "exec");
	ck_assert_int_eq(ack->calls->records[0]->outcome, CROFT__OUTCOME__OUTCOME_OK);
	ck_assert_str_eq(ack->calls->records[2]->failure->code, "INVALID_ARGUMENT");
	for (size_t i = 0; i < ack->calls->n_records; i++) {
		uint8_t bytes[1024];
		size_t size = croft__stage_record__pack(ack->calls->records[i], bytes);

		ck_assert_ptr_null(memmem(bytes, size, "canary", 6));
	}
	croft__gateway_ack__free_unpacked(ack, NULL);
	close(fd); /* before it said that it has them */
	fd = agent_connect();
	agent_send(fd, &update);
	ack = read_calls(fd);
	ck_assert_uint_eq(ack->calls->seq, seq);
	ck_assert_uint_eq(ack->calls->n_records, 3);
	croft__gateway_ack__free_unpacked(ack, NULL);
	update.calls_taken = seq;
	agent_send(fd, &update);
	reply_free(rig_unary(&rig, "List", "{}"));
	ack = read_calls(fd);
	ck_assert_uint_eq(ack->calls->seq, seq + 1);
	ck_assert_uint_eq(ack->calls->n_records, 1);
	croft__gateway_ack__free_unpacked(ack, NULL);
	close(fd);
}
END_TEST

static const struct {
	const char *what, *bytes;
	size_t size;
} nonsense[] = {
	{ "a frame over the limit", "\xff\xff\xff\xff", 4 },
	{ "no protobuf", "\0\0\0\2\xff\xff", 6 },
	{ "an id that is none", "\0\0\0\5\x1a\3\x0a\1x", 9 },
	{ "a route without a path", "\0\0\0\x18\x1a\x16\x0a\x14" RIG_GONE, 28 },
};

START_TEST(test_agent_that_sends_nonsense)
{
	unsigned int before = gateway_routes(rig.gateway)->n_routes;
	int fd = agent_connect();
	ssize_t n = -1;
	char byte;

	ck_assert_int_eq(write(fd, nonsense[_i].bytes, nonsense[_i].size), (ssize_t) nonsense[_i].size);
	rig_until(&rig, (n = read(fd, &byte, 1)) >= 0);
	ck_assert_int_eq(n, 0);
	ck_assert_uint_eq(gateway_routes(rig.gateway)->n_routes, before);
	close(fd);
}
END_TEST

START_TEST(test_newest_agent_wins)
{
	Croft__GatewayUpdate update;
	int first = agent_connect(), second;
	char byte;

	croft__gateway_update__init(&update);
	rig_rest(&rig, 20);
	second = agent_connect();
	rig_until(&rig, read(first, &byte, 1) == 0);
	update.seq = 3;
	agent_send(second, &update);
	ck_assert_uint_eq(agent_ack(second), 3);
	close(first);
	close(second);
}
END_TEST

/* ---- the node's audit log ---- */

#define SECRET "{\"process\":{\"cmd\":\"echo\",\"args\":[\"canary-word\"],\"cwd\":\"/canary-dir\",\"envs\":{\"NAME\":\"canary-value\"}}}"

/* The lines of GET /croft/audit for RIG_SANDBOX, its last line the end. */
static json_t *audited(void)
{
	struct reply *reply = rig_ask(&rig, &(struct ask){ .method = "GET", .path = "/croft/audit", .sandbox = RIG_SANDBOX,
		.port = "49983", .token = RIG_TOKEN });
	json_t *lines = json_array();
	CLEANUP_FREE char *text = strndup((const char *) buf_peek(&reply->body), buf_size(&reply->body));

	ck_assert_int_eq(reply->status, 200);
	for (char *at = text, *line; (line = strsep(&at, "\n")) && *line;) {
		json_t *json = json_loads(line, 0, NULL);

		ck_assert_msg(json, "%s", line);
		(void) json_array_append_new(lines, json);
	}
	reply_free(reply);
	return lines;
}

static const char *member(const json_t *lines, size_t i, const char *name)
{
	const char *text = json_string_value(json_object_get(json_array_get(lines, i), name));

	return text ? text : "";
}

static void hash_of(const void *data, size_t size, char ret[static 65])
{
	unsigned char digest[32];

	ck_assert_int_eq(EVP_Digest(data, size, digest, NULL, EVP_sha256(), NULL), 1);
	for (size_t i = 0; i < sizeof(digest); i++)
		(void) snprintf(ret + 2 * i, 3, "%02x", digest[i]);
}

START_TEST(test_commands_are_audited)
{
	static const char command[] = "echo\0canary-word";
	struct reply *reply = rig_stream(&rig, "Start", SECRET, NULL), *other;
	char hash[65];
	size_t size;
	CLEANUP_FREE uint8_t *out = reply_output(reply, "stdout", &size);
	json_t *lines, *output;

	lines = audited();
	ck_assert_uint_eq(json_array_size(lines), 3);
	ck_assert_str_eq(member(lines, 0, "kind"), "command");
	ck_assert_str_eq(member(lines, 0, "cwd"), "/canary-dir");
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(json_array_get(lines, 0), "command"), 1)), "canary-word");
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(json_array_get(lines, 0), "environment"), 0)), "NAME");
	hash_of(command, sizeof(command), hash);
	ck_assert_str_eq(member(lines, 0, "command_sha256"), hash);
	ck_assert_str_eq(member(lines, 1, "kind"), "ended");
	ck_assert_str_eq(member(lines, 1, "span"), member(lines, 0, "span"));
	ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(lines, 1), "exit")), 0);
	output = json_object_get(json_array_get(lines, 1), "stdout");
	hash_of(out, size, hash);
	ck_assert_uint_gt(size, 0);
	ck_assert_int_eq(json_integer_value(json_object_get(output, "size")), (json_int_t) size);
	ck_assert_str_eq(json_string_value(json_object_get(output, "sha256")), hash);
	ck_assert_uint_eq(json_string_length(json_object_get(output, "head")), size);
	output = json_object_get(json_array_get(lines, 1), "pty");
	ck_assert_ptr_nonnull(json_object_get(output, "head_base64")); /* it has a NUL */
	output = json_object_get(json_array_get(lines, 1), "stderr");
	ck_assert_str_eq(json_string_value(json_object_get(output, "head")), "err");
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(json_array_get(lines, 2), "end"), "entries")), 2);
	json_decref(lines);
	reply_free(reply);
	/* nobody without its token, and no other sandbox's */
	other = rig_ask(&rig, &(struct ask){ .method = "GET", .path = "/croft/audit", .sandbox = RIG_SANDBOX, .port = "49983",
		.token = "another's" });
	ck_assert_int_eq(other->status, 401);
	reply_free(other);
	rig_set_route(&rig, RIG_GONE, rig.vsock, RIG_TOKEN, true);
	other = rig_ask(&rig, &(struct ask){ .method = "GET", .path = "/croft/audit", .sandbox = RIG_GONE, .port = "49983", .token = RIG_TOKEN });
	ck_assert_int_eq(other->status, 200);
	ck_assert_ptr_null(memmem(buf_peek(&other->body), buf_size(&other->body), "canary", 6));
	reply_free(other);
}
END_TEST

/* 10 MB: the digest is of all of it, the log has the first. One that failed, one killed, one whose client left. */
START_TEST(test_audit_is_bounded_and_says_each_end)
{
	json_t *lines, *output;
	struct reply *left;
	char hash[65];
	uint8_t *big = malloc(RIG_BIG);

	ck_assert_ptr_nonnull(big);
	for (size_t i = 0; i < RIG_BIG; i++)
		big[i] = rig_big_byte(i);
	hash_of(big, RIG_BIG, hash);
	free(big);
	reply_free(rig_stream(&rig, "Start", BIG, NULL));
	reply_free(rig_stream(&rig, "Start", "{\"process\":{\"cmd\":\"exit7\"}}", NULL));
	reply_free(rig_stream(&rig, "Start", "{\"process\":{\"cmd\":\"notfound\"}}", NULL));
	left = rig_stream_start(&rig, "Start", SLEEP, NULL);
	rig_until(&rig, reply_frames(left) >= 1);
	reply_free(left);
	rig_until(&rig, rig.n_open == 0);
	lines = audited();
	ck_assert_uint_eq(json_array_size(lines), 9);
	output = json_object_get(json_array_get(lines, 1), "stdout");
	ck_assert_int_eq(json_integer_value(json_object_get(output, "size")), RIG_BIG);
	ck_assert_str_eq(json_string_value(json_object_get(output, "sha256")), hash);
	ck_assert_uint_eq(json_string_length(json_object_get(output, "head_base64")), (4096 + 2) / 3 * 4);
	ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(lines, 3), "exit")), 7);
	ck_assert_uint_gt(strlen(member(lines, 5, "code")), 0);
	ck_assert(json_is_true(json_object_get(json_array_get(lines, 7), "left")));
	json_decref(lines);
}
END_TEST

/* What the agent saw is in the log too; what it may tell the scheduler are ids, digests, sizes, exit status. */
START_TEST(test_what_of_the_audit_leaves)
{
	char entry[] = "{\"kind\":\"denied\",\"sandbox\":\"" RIG_SANDBOX "\",\"address\":\"192.0.2.1\"}", none[] = "{\"kind\":1}";
	char *entries[] = { entry, none };
	Croft__GatewayUpdate update;
	Croft__GatewayAck *ack;
	uint8_t bytes[8192];
	json_t *lines;
	size_t size;
	int fd = agent_connect();

	reply_free(rig_stream(&rig, "Start", SECRET, NULL));
	croft__gateway_update__init(&update);
	update.takes_calls = true;
	update.n_audit = ARRAY_LEN(entries);
	update.audit = entries;
	agent_send(fd, &update);
	ack = read_calls(fd);
	ck_assert_uint_eq(ack->calls->n_audited, 1);
	ck_assert_str_eq(ack->calls->audited[0]->name, "audit");
	ck_assert_str_eq(ack->calls->audited[0]->sandbox, RIG_SANDBOX);
	size = croft__node_event__pack(ack->calls->audited[0], bytes);
	ck_assert_ptr_nonnull(memmem(bytes, size, "command_sha256", 14));
	ck_assert_ptr_nonnull(memmem(bytes, size, "stdout_sha256", 13));
	ck_assert_ptr_null(memmem(bytes, size, "canary", 6));
	croft__gateway_ack__free_unpacked(ack, NULL);
	lines = audited();
	ck_assert_uint_eq(json_array_size(lines), 4);
	ck_assert_str_eq(member(lines, 2, "address"), "192.0.2.1");
	json_decref(lines);
	close(fd);
}
END_TEST

START_TEST(test_audit_full_tells_commands)
{
	const char *args[] = { "canary" };
	struct gateway_options options = rig.options;
	const struct process_start start = { .cmd = "echo", .args = args, .n_args = 1, .cwd = "" };
	const struct call call = { .sandbox = RIG_SANDBOX };
	static const char *const levels[] = { "digests", "full" };

	for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
		char level[8];
		struct audit_told told;
		struct audit *audit;
		bool is_told = false;

		(void) snprintf(level, sizeof(level), "%s", levels[i]);
		options.audit = level;
		ck_assert_int_eq(audit_new(&audit, &options, NULL), 0);
		audit_exec_end(audit_exec_begin(audit, &call, &start, "root"), 5, &(struct guest_ended){ .exited = true, .exit_code = 3 }, NULL);
		ck_assert(audit_take_told(audit, &told));
		ck_assert(!audit_take_told(audit, &(struct audit_told){ .n_fields = 0 }));
		for (size_t j = 0; j < told.n_fields; j++)
			is_told = is_told || !strcmp(told.fields[j].value, "echo canary");
		ck_assert_int_eq(is_told, i == 1);
		audit_free(audit);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gateway-stream");
	TCase *tc = tcase_create("stream");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_big_output_is_exact);
	tcase_add_test(tc, test_slow_reader_is_bounded_and_loses_nothing);
	tcase_add_test(tc, test_keepalive);
	tcase_add_test(tc, test_time_limit);
	tcase_add_test(tc, test_time_limit_of_connect_only_ends_the_stream);
	tcase_add_test(tc, test_client_that_leaves_kills_nothing);
	tcase_add_test(tc, test_sandbox_that_ends);
	tcase_add_test(tc, test_limit_of_streams);
	tcase_add_test(tc, test_large_input_goes_in_pieces);
	tcase_add_test(tc, test_body_over_the_limit);
	tcase_add_test(tc, test_drain);
	tcase_add_test(tc, test_freed_with_streams_open);
	tcase_add_test(tc, test_agent_tells_routes);
	tcase_add_test(tc, test_agent_is_told_of_calls);
	tcase_add_loop_test(tc, test_agent_that_sends_nonsense, 0, ARRAY_LEN(nonsense));
	tcase_add_test(tc, test_newest_agent_wins);
	tcase_add_test(tc, test_commands_are_audited);
	tcase_add_test(tc, test_audit_is_bounded_and_says_each_end);
	tcase_add_test(tc, test_what_of_the_audit_leaves);
	tcase_add_test(tc, test_audit_full_tells_commands);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
