/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTTP client against our own server: bodies in both directions with back-pressure and bounded memory,
 * time limits, broken answers, cancelling, a connection that was given.
 */
#include "lib/suite.h"
#include "test-http-rig.h"

static bool on_data(struct http_call *call, const void *data, size_t size, void *user)
{
	struct world *world = user;
	const unsigned char *bytes = data;

	if (++world->sent % 3 == 0) {
		rig_again_soon(world->base, rig_wake_call, call);
		return false;
	}
	for (size_t i = 0; i < size; i++)
		if (bytes[i] != rig_pattern(world->taken + i))
			ck_abort_msg("byte %llu differs", (unsigned long long) world->taken + i);
	world->taken += size;
	return true;
}

static void keep_fields(struct http_call *call, const struct err *err, void *user)
{
	ck_assert_ptr_null(err);
	ck_assert_str_eq(http_call_header(call, "content-length"), "4");
	ck_assert_str_eq(http_call_header(call, "x-one"), "1");
	ck_assert_str_eq(http_call_header(call, "Content-Type"), "text/plain");
	ck_assert_ptr_null(http_call_header(call, "X-Two"));
	rig_on_done(call, err, user);
}

START_TEST(test_answer_fields)
{
	struct http_call_config config = HTTP_CALL_NULL;
	struct world world;

	world_open(&world, false);
	config.on_done = keep_fields;
	(void) rig_start(&world, &config, "/nowhere");
	loop_until(world.base, &world.done);
	world_close(&world);
}
END_TEST

static unsigned int sum_of(uint64_t n)
{
	unsigned int sum = 0;

	for (uint64_t i = 0; i < n; i++)
		sum = sum * 31 + rig_pattern(i);
	return sum;
}

/* _i: bit 0 unix socket, bit 1 chunked */
START_TEST(test_upload)
{
	struct http_call_config config = HTTP_CALL_NULL;
	struct world world;
	char expected[64];

	world_open(&world, _i & 1);
	world.to_send = 8 * MIB + 17;
	config.method = "POST";
	config.on_upload = rig_on_upload;
	config.upload_size = _i & 2 ? -1 : (int64_t) world.to_send;
	(void) rig_start(&world, &config, "/upload");
	loop_until(world.base, &world.done);
	ck_assert_msg(!world.failed, "%s", world.err.msg);
	ck_assert_int_eq(world.status, 200);
	ck_assert_uint_eq(world.received, world.to_send);
	(void) snprintf(expected, sizeof(expected), "%llu %u", (unsigned long long) world.to_send,
		sum_of(world.to_send));
	ck_assert_str_eq(world.answer, expected);
	ck_assert(world.end_seen);
	world_close(&world);
}
END_TEST

/* A server that takes nothing: what is under way is bounded by the sockets, and goes on later. */
START_TEST(test_upload_held)
{
	struct http_call_config config = HTTP_CALL_NULL;
	struct world world;
	uint64_t before;

	world_open(&world, true);
	world.to_send = 32 * MIB;
	world.hold = true;
	config.method = "PUT";
	config.on_upload = rig_on_upload;
	config.upload_size = (int64_t) world.to_send;
	(void) rig_start(&world, &config, "/upload");
	loop_for(world.base, 100);
	before = world.sent;
	ck_assert_uint_gt(before, 0);
	ck_assert_uint_lt(before, MIB);
	loop_for(world.base, 50);
	ck_assert_uint_eq(world.sent, before);
	world.hold = false;
	http_resume_body(world.waiting);
	loop_until(world.base, &world.done);
	ck_assert_uint_eq(world.received, world.to_send);
	ck_assert_uint_lt(world.worst, MIB);
	world_close(&world);
}
END_TEST

/* _i: bit 0 unix socket, bit 1 with a length */
START_TEST(test_download)
{
	struct http_call_config config = HTTP_CALL_NULL;
	struct world world;

	world_open(&world, _i & 1);
	world.to_produce = 8 * MIB + 5;
	config.on_body = on_data;
	(void) rig_start(&world, &config, _i & 2 ? "/sized" : "/download");
	loop_until(world.base, &world.done);
	ck_assert_msg(!world.failed, "%s", world.err.msg);
	ck_assert_uint_eq(world.taken, world.to_produce);
	if (_i & 1)
		ck_assert_uint_lt(world.worst, MIB);
	world_close(&world);
}
END_TEST

static bool on_data_never(struct http_call *call, const void *data, size_t size, void *user)
{
	(void) call;
	(void) data;
	(void) size;
	(void) user;
	return false;
}

/* A client that stops reading costs a bounded buffer. */
START_TEST(test_download_held)
{
	struct http_call_config config = HTTP_CALL_NULL;
	struct http_call *call;
	struct world world;
	uint64_t before;

	world_open(&world, true);
	world.to_produce = 64 * MIB;
	config.on_body = on_data_never;
	call = rig_start(&world, &config, "/download");
	loop_for(world.base, 100);
	before = world.produced;
	ck_assert_uint_gt(before, 0);
	ck_assert_uint_lt(before, MIB);
	loop_for(world.base, 50);
	ck_assert_uint_eq(world.produced, before);
	http_call_cancel(call);
	loop_until(world.base, &world.all_closed);
	ck_assert(!world.done); /* cancelled: no on_done */
	world_close(&world);
}
END_TEST

START_TEST(test_timeout)
{
	struct http_call_config config = HTTP_CALL_NULL;
	struct world world;

	world_open(&world, false);
	config.total_timeout_ms = 100;
	(void) rig_start(&world, &config, "/wait");
	loop_until(world.base, &world.done);
	ck_assert(world.failed);
	ck_assert_int_eq(world.err.code, FAIL_HTTP_TIMEOUT);
	world_close(&world);
}
END_TEST

START_TEST(test_unreachable)
{
	struct http_call_config config = HTTP_CALL_NULL;
	struct world world;

	world_open(&world, false);
	(void) snprintf(world.url, sizeof(world.url), "http://127.0.0.1:1");
	(void) rig_start(&world, &config, "/");
	loop_until(world.base, &world.done);
	ck_assert(world.failed);
	ck_assert_int_eq(world.err.code, FAIL_HTTP_UNREACHABLE);
	ck_assert_int_eq(world.err.err_no, ECONNREFUSED);
	world_close(&world);
}
END_TEST

START_TEST(test_broken_off)
{
	struct world world;

	world_open(&world, false);
	rig_get(&world, "/break");
	ck_assert(world.failed);
	ck_assert_int_eq(world.err.code, FAIL_HTTP_BROKEN);
	ck_assert_str_eq(world.answer, "hello");
	world_close(&world);
}
END_TEST

START_TEST(test_answer_too_large)
{
	struct http_call_config config = HTTP_CALL_NULL;
	struct world world;

	world_open(&world, false);
	world.to_produce = MIB;
	config.max_body = 1000;
	(void) rig_start(&world, &config, "/download");
	loop_until(world.base, &world.done);
	ck_assert(world.failed);
	ck_assert_int_eq(world.err.err_no, EFBIG);
	world_close(&world);
}
END_TEST

/* ---- over a given descriptor ---- */

struct peer {
	struct event *event;
	int fd;
	char text[512];
};

static void on_peer(evutil_socket_t fd, short what, void *user)
{
	static const char answer[] = "HTTP/1.1 100 Continue\r\nX-No: 1\r\n\r\nHTTP/1.1 201 Created\r\n"
				     "Content-Length: 2\r\nX-Peer: yes\r\n\r\nok";
	struct peer *peer = user;
	ssize_t n = read(fd, peer->text, sizeof(peer->text) - 1);

	(void) what;
	if (n <= 0) {
		event_del(peer->event);
		return;
	}
	peer->text[n] = '\0';
	ck_assert_int_eq(write(fd, answer, sizeof(answer) - 1), sizeof(answer) - 1);
}

static void on_head(struct http_call *call, int status, void *user)
{
	struct world *world = user;

	ck_assert_int_eq(status, 201);
	ck_assert_str_eq(http_call_header(call, "X-Peer"), "yes");
	ck_assert_ptr_null(http_call_header(call, "X-No"));
	world->requests += 100;
}

START_TEST(test_socket_fd)
{
	const struct http_field field = { "X-Mine", "" };
	struct http_call_config config = HTTP_CALL_NULL;
	struct world world;
	struct peer peer;
	int fds[2];

	world_open(&world, false);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
	peer.fd = fds[1];
	peer.event = event_new(world.base, fds[1], EV_READ | EV_PERSIST, on_peer, &peer);
	ck_assert_int_eq(event_add(peer.event, NULL), 0);
	(void) snprintf(world.url, sizeof(world.url), "http://no-such-host.invalid:8080");
	config.socket_fd = fds[0];
	config.on_header = on_head;
	config.fields = &field;
	config.n_fields = 1;
	(void) rig_start(&world, &config, "/some/path?q=1");
	loop_until(world.base, &world.done);
	ck_assert_msg(!world.failed, "%s", world.err.msg);
	ck_assert_int_eq(world.status, 201);
	ck_assert_str_eq(world.answer, "ok");
	ck_assert_uint_eq(world.requests, 100);
	world.requests = 0;
	ck_assert_msg(!strncmp(peer.text, "GET /some/path?q=1 HTTP/1.1\r\n", 29), "%s", peer.text);
	ck_assert_ptr_nonnull(strstr(peer.text, "\r\nHost: no-such-host.invalid:8080\r\n"));
	ck_assert_ptr_nonnull(strstr(peer.text, "\r\nX-Mine:"));
	event_free(peer.event);
	(void) close(fds[1]);
	world_close(&world);
}
END_TEST

/* Cancelled from inside its own callback, and started but never run: nothing leaks (ASan), nothing calls back. */
static bool on_data_cancel(struct http_call *call, const void *data, size_t size, void *user)
{
	struct world *world = user;

	(void) data;
	(void) size;
	world->taken++;
	http_call_cancel(call);
	return true;
}

START_TEST(test_cancel)
{
	struct http_call_config config = HTTP_CALL_NULL;
	struct world world;
	int fds[2];

	world_open(&world, false);
	world.to_produce = MIB;
	config.on_body = on_data_cancel;
	(void) rig_start(&world, &config, "/download");
	loop_until(world.base, &world.all_closed);
	ck_assert_uint_eq(world.taken, 1);
	ck_assert(!world.done);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	config.socket_fd = fds[0];
	(void) rig_start(&world, &config, "/never");
	world_close(&world);
	ck_assert_int_eq(read(fds[1], &fds[0], 1), 0); /* closed with the client */
	(void) close(fds[1]);
}
END_TEST

struct many {
	struct world *world;
	unsigned int left;
};

static void on_one_done(struct http_call *call, const struct err *err, void *user)
{
	struct world *world = user;

	ck_assert_ptr_null(err);
	ck_assert_int_eq(http_call_status(call), 404);
	world->taken++;
	world->done = world->taken == 200;
}

START_TEST(test_many)
{
	struct http_call_config config = HTTP_CALL_NULL;
	struct world world;

	world_open(&world, false);
	config.on_done = on_one_done;
	for (int i = 0; i < 200; i++)
		(void) rig_start(&world, &config, "/nowhere");
	loop_until(world.base, &world.done);
	world_close(&world);
}
END_TEST

START_TEST(test_header_injection)
{
	const struct http_field field = { "X-Bad", "a\r\nX-Evil: 1" };
	struct http_call_config config = HTTP_CALL_NULL;
	struct err err = ERR_NULL;
	struct http_call *call;
	struct world world;

	world_open(&world, false);
	config.url = world.url;
	config.fields = &field;
	config.n_fields = 1;
	ck_assert_int_lt(http_call_start(world.client, &config, &call, &err), 0);
	ck_assert_int_eq(err.code, FAIL_INVALID_ARGUMENT);
	world_close(&world);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("http-client");
	TCase *tc = tcase_create("http-client");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_answer_fields);
	tcase_add_loop_test(tc, test_upload, 0, 4);
	tcase_add_test(tc, test_upload_held);
	tcase_add_loop_test(tc, test_download, 0, 4);
	tcase_add_test(tc, test_download_held);
	tcase_add_test(tc, test_timeout);
	tcase_add_test(tc, test_unreachable);
	tcase_add_test(tc, test_broken_off);
	tcase_add_test(tc, test_answer_too_large);
	tcase_add_test(tc, test_socket_fd);
	tcase_add_test(tc, test_cancel);
	tcase_add_test(tc, test_many);
	tcase_add_test(tc, test_header_injection);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
