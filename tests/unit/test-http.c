/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTTP server against raw bytes and against our own client: framing that could be read in two ways, clients
 * that go away, half-closed clients, pipelines, limits, stopping.
 */
#include "lib/suite.h"
#include "test-http-rig.h"

START_TEST(test_simple)
{
	struct world world;

	world_open(&world, _i == 1);
	rig_get(&world, "/no%20such%2Fpath?x=1%202%2B3&y");
	ck_assert(!world.failed);
	ck_assert_int_eq(world.status, 404);
	ck_assert_str_eq(world.answer, "none");
	ck_assert_str_eq(world.path, "/no such/path");
	ck_assert_str_eq(world.target, "/no%20such%2Fpath?x=1%202%2B3&y");
	ck_assert_str_eq(world.query_x, "1 2+3");
	ck_assert_str_eq(world.query_y, "");
	rig_get(&world, "/empty");
	ck_assert_int_eq(world.status, 204);
	ck_assert_uint_eq(world.closed, 2);
	world_close(&world);
}
END_TEST

START_TEST(test_read_body)
{
	struct http_call_config config = HTTP_CALL_NULL;
	static char big[1024 * 1024];
	struct world world;

	world_open(&world, false);
	config.method = "POST";
	config.body = "some text";
	config.body_size = 9;
	(void) rig_start(&world, &config, "/body");
	loop_until(world.base, &world.done);
	ck_assert_str_eq(world.answer, "some text");
	config.body_size = 0;
	config.has_body = true;
	(void) rig_start(&world, &config, "/body");
	loop_until(world.base, &world.done);
	ck_assert_int_eq(world.status, 200);
	ck_assert_str_eq(world.answer, "");
	memset(big, 'x', sizeof(big));
	config.body = big;
	for (size_t size = 64; size <= sizeof(big); size = size == 64 ? 65 : sizeof(big) * (size == 65 ? 1 : 2)) {
		config.body_size = size;
		(void) rig_start(&world, &config, "/body");
		loop_until(world.base, &world.done);
		ck_assert_int_eq(world.status, size == 64 ? 200 : 413);
		if (size > 64)
			ck_assert_msg(strstr(world.answer, "BODY_TOO_LARGE") && strstr(world.answer, "\"limit\":\"64\""),
				"%s", world.answer);
	}
	world_close(&world);
}
END_TEST

/* Over the limit without a length that would announce it. */
START_TEST(test_read_body_chunked_too_large)
{
	struct http_call_config config = HTTP_CALL_NULL;
	struct world world;

	world_open(&world, false);
	world.to_send = 100000;
	config.method = "POST";
	config.on_upload = rig_on_upload;
	(void) rig_start(&world, &config, "/body");
	loop_until(world.base, &world.done);
	ck_assert_int_eq(world.status, 413);
	world_close(&world);
}
END_TEST

static const struct {
	const char *head;
	const char *answer;
	bool library; /* refused by the library in its own words: no failure record */
} bad_heads[] = {
	{ "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "HTTP/1.1 400", false },
	{ "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 400", false },
	{ "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 400", false },
	{ "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 400", false },
	{ "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 400", false },
	{ "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400", true },
	{ "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc", "HTTP/1.1 400", true },
	{ "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc", "HTTP/1.1 400", true },
	{ "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n", "HTTP/1.1 400", true },
	{ "GET /body HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "HTTP/1.1 400", false },
	{ "GET /body HTTP/1.1\r\n\r\n", "HTTP/1.1 400", false },
	{ "GET /body%00x HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 400", false },
	{ "GET /body x HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 400", false },
	{ "GET /body HTTP/1.1\r\nHost : a\r\n\r\n", "HTTP/1.1 400", false },
	{ "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\nabc", "HTTP/1.1 400", false },
	{ "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 400", false },
};

static unsigned int count(const char *text, const char *what)
{
	unsigned int n = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		n++;
	return n;
}

START_TEST(test_bad_head)
{
	struct world world;
	struct raw raw;

	world_open(&world, false);
	raw_open(&raw, &world, bad_heads[_i].head);
	loop_until(world.base, &raw.ended);
	ck_assert_msg(!strncmp(raw.text, bad_heads[_i].answer, strlen(bad_heads[_i].answer)), "%s", raw.text);
	ck_assert_msg(bad_heads[_i].library || (count(raw.text, "HTTP/1.1 ") == 1 &&
		strstr(raw.text, "\r\n\r\n{\"code\":400,") && strstr(raw.text, "\"code\":\"INVALID_ARGUMENT\"")), "%s",
		raw.text);
	ck_assert_str_eq(world.body, "");
	raw_close(&raw);
	world_close(&world);
}
END_TEST

/* A head over the limit, and one that the library has no memory for. */
static const struct {
	const char *begin, *end;
	size_t size;
	const char *status, *code; /* code NULL: in the library's words */
} long_heads[] = {
	{ "GET /body HTTP/1.1\r\nHost: a\r\nX-Long: ", "\r\n\r\n", 66000, " 431 ", "HEAD_TOO_LARGE" },
	{ "GET /body?", " HTTP/1.1\r\nHost: a\r\n\r\n", 17000, " 414 ", "TARGET_TOO_LONG" },
	{ "GET /body?", " HTTP/1.1\r\nHost: a\r\n\r\n", 100000, " 414 ", "TARGET_TOO_LONG" },
	{ "GET /body HTTP/1.1\r\nHost: a\r\nX-Long: ", "\r\n\r\n", 600000, " 431 ", NULL },
};

START_TEST(test_head_too_long)
{
	size_t room = long_heads[_i].size + 128;
	CLEANUP_FREE char *head = malloc(room), *filler = malloc(long_heads[_i].size + 1);
	struct world world;
	struct raw raw;

	memset(filler, 'x', long_heads[_i].size);
	filler[long_heads[_i].size] = '\0';
	(void) snprintf(head, room, "%s%s%s", long_heads[_i].begin, filler, long_heads[_i].end);
	world_open(&world, false);
	raw_open(&raw, &world, head);
	loop_until(world.base, &raw.ended);
	ck_assert_uint_eq(world.requests, 0);
	if (long_heads[_i].code) {
		ck_assert_msg(strstr(raw.text, long_heads[_i].status) && strstr(raw.text, long_heads[_i].code), "%s",
			raw.text);
		ck_assert_uint_eq(count(raw.text, "HTTP/1.1 "), 1);
	} else {
		ck_assert(raw.size == 0 || strstr(raw.text, long_heads[_i].status));
	}
	raw_close(&raw);
	world_close(&world);
}
END_TEST

/* The client closes (RST on TCP, hang-up on a unix socket) while its request waits. */
START_TEST(test_client_gone)
{
	static const char *const paths[] = { "/wait", "/silent" };
	const struct linger now = { .l_onoff = 1 };
	struct world world;
	struct raw raw;
	char head[128];

	world_open(&world, _i & 1);
	(void) snprintf(head, sizeof(head), "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", paths[_i >> 1]);
	raw_open(&raw, &world, head);
	if (_i >> 1)
		loop_until(world.base, &raw.answered);
	else
		loop_until(world.base, &world.has_waiting);
	if (!(_i & 1))
		(void) setsockopt(bufferevent_getfd(raw.bev), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	raw_close(&raw);
	loop_until(world.base, &world.all_closed);
	ck_assert_uint_eq(world.closed, 1);
	loop_for(world.base, 20);
	ck_assert_uint_eq(world.closed, 1);
	world_close(&world);
}
END_TEST

/* An orderly close while a stream is silent: only the end of input shows, and that only after a grace. */
START_TEST(test_stream_client_closed)
{
	struct world world;
	struct raw raw;

	world_open(&world, false);
	raw_open(&raw, &world, "GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
	loop_until(world.base, &raw.answered);
	raw_close(&raw);
	loop_until(world.base, &world.all_closed);
	world_close(&world);
}
END_TEST

static void answer_waiting(evutil_socket_t fd, short what, void *user)
{
	struct world *world = user;

	(void) fd;
	(void) what;
	ck_assert_ptr_nonnull(world->waiting);
	ck_assert_int_eq(http_respond(world->waiting, 200, NULL, NULL, 0, "late", 4), 0);
}

START_TEST(test_half_closed)
{
	const struct timeval later = { 0, 50000 };
	struct world world;
	struct raw raw;

	world_open(&world, _i == 1);
	raw_open(&raw, &world, "GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
	loop_until(world.base, &world.has_waiting);
	ck_assert_int_eq(shutdown(bufferevent_getfd(raw.bev), SHUT_WR), 0);
	ck_assert_int_eq(event_base_once(world.base, -1, EV_TIMEOUT, answer_waiting, &world, &later), 0);
	loop_until(world.base, &raw.ended);
	ck_assert_msg(strstr(raw.text, "200 OK") && strstr(raw.text, "late"), "%s", raw.text);
	raw_close(&raw);
	world_close(&world);
}
END_TEST

/* Requests of one connection are independent, and their order is kept. */
START_TEST(test_pipelined)
{
	struct world world;
	struct raw raw;

	world_open(&world, false);
	raw_open(&raw, &world,
		"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
		"POST /nowhere HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxx\r\n0\r\n\r\n"
		"GET /empty HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
	loop_until(world.base, &raw.ended);
	ck_assert_msg(world.requests == 3, "%u: %s", world.requests, raw.text);
	ck_assert_ptr_nonnull(strstr(raw.text, "abc"));
	ck_assert_ptr_nonnull(strstr(raw.text, "404"));
	ck_assert_ptr_nonnull(strstr(raw.text, "204"));
	ck_assert(strstr(raw.text, "abc") < strstr(raw.text, "404"));
	raw_close(&raw);
	world_close(&world);
}
END_TEST

START_TEST(test_stop_while_waiting)
{
	struct world world;
	struct raw raw[3];

	world_open(&world, false);
	raw_open(&raw[0], &world, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
	loop_until(world.base, &world.has_waiting);
	raw_open(&raw[1], &world, "GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
	loop_until(world.base, &raw[1].answered);
	world.hold = true;
	raw_open(&raw[2], &world, "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
	loop_for(world.base, 50);
	ck_assert_uint_eq(http_server_active(world.server), 3);
	http_server_free(world.server);
	world.server = NULL;
	ck_assert_uint_eq(world.closed, 3);
	for (int i = 0; i < 3; i++)
		raw_close(&raw[i]);
	world_close(&world);
}
END_TEST

START_TEST(test_listen_failed)
{
	struct http_server_config config = { .address = "127.0.0.1" };
	struct err err = ERR_NULL;
	struct http_server *other = NULL;
	struct world world;
	char path[200];

	world_open(&world, false);
	config.port = http_server_port(world.server);
	ck_assert_int_eq(http_server_new(&other, world.base, &config, &rig_handler, &world, &err), -EADDRINUSE);
	ck_assert_int_eq(err.code, FAIL_LISTEN_FAILED);
	memset(path, 'p', sizeof(path) - 1);
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	config.unix_path = path;
	err = (struct err) ERR_NULL;
	ck_assert_int_lt(http_server_new(&other, world.base, &config, &rig_handler, &world, &err), 0);
	ck_assert_int_eq(err.code, FAIL_SOCKET_PATH_TOO_LONG);
	world_close(&world);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("http");
	TCase *tc = tcase_create("http");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_simple, 0, 2);
	tcase_add_test(tc, test_read_body);
	tcase_add_test(tc, test_read_body_chunked_too_large);
	tcase_add_loop_test(tc, test_bad_head, 0, (int) ARRAY_LEN(bad_heads));
	tcase_add_loop_test(tc, test_head_too_long, 0, ARRAY_LEN(long_heads));
	tcase_add_loop_test(tc, test_client_gone, 0, 4);
	tcase_add_test(tc, test_stream_client_closed);
	tcase_add_loop_test(tc, test_half_closed, 0, 2);
	tcase_add_test(tc, test_pipelined);
	tcase_add_test(tc, test_stop_while_waiting);
	tcase_add_test(tc, test_listen_failed);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
