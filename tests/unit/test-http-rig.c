/* SPDX-License-Identifier: Apache-2.0
 *
 * See test-http-rig.h.
 */
#include "test-http-rig.h"

#include <arpa/inet.h>
#include <event2/buffer.h>

/* ---- server ---- */

void rig_again_soon(struct event_base *base, event_callback_fn fn, void *user)
{
	static const struct timeval now = { 0, 0 };

	ck_assert_int_eq(event_base_once(base, -1, EV_TIMEOUT, fn, user, &now), 0);
}

static void resume_body(evutil_socket_t fd, short what, void *user)
{
	struct world *world = user;

	(void) fd;
	(void) what;
	if (world->waiting)
		http_resume_body(world->waiting);
}

static void wake_stream(evutil_socket_t fd, short what, void *user)
{
	struct world *world = user;

	(void) fd;
	(void) what;
	if (world->waiting)
		http_stream_wake(world->waiting);
}

/* Refuses every second piece once. */
static bool on_piece(struct http_request *req, const void *data, size_t size, bool end, void *user)
{
	struct world *world = user;
	const unsigned char *bytes = data;

	if (world->hold)
		return false;
	if (end) {
		char text[64];

		ck_assert_uint_eq(size, 0);
		world->end_seen = true;
		(void) snprintf(text, sizeof(text), "%llu %u", (unsigned long long) world->received, world->sum);
		ck_assert_int_eq(http_respond(req, 200, "text/plain", NULL, 0, text, strlen(text)), 0);
		return true;
	}
	if (++world->refused % 2) {
		rig_again_soon(world->base, resume_body, world);
		return false;
	}
	for (size_t i = 0; i < size; i++)
		world->sum = world->sum * 31 + bytes[i];
	world->received += size;
	return true;
}

unsigned char rig_pattern(uint64_t i)
{
	return (unsigned char) (i * 7 + (i >> 10));
}

/* Says "nothing now" every third time, and wakes from outside or from inside. */
static long on_want(struct http_request *req, void *buf, size_t room, void *user)
{
	struct world *world = user;
	unsigned char *to = buf;
	uint64_t n = MIN((uint64_t) room, world->to_produce - world->produced);

	ck_assert_uint_gt(room, 0);
	world->worst = MAX(world->worst, world->produced - world->taken);
	world->refused++;
	if (world->refused % 6 == 0) {
		rig_again_soon(world->base, wake_stream, world);
		return 0;
	}
	if (world->refused % 6 == 3) {
		http_stream_wake(req); /* a wake before the suspend must not be lost */
		return 0;
	}
	if (n == 0)
		return -1;
	for (uint64_t i = 0; i < n; i++)
		to[i] = rig_pattern(world->produced + i);
	world->produced += n;
	return (long) n;
}

static long on_want_silent(struct http_request *req, void *buf, size_t room, void *user)
{
	struct world *world = user;

	(void) req;
	ck_assert_uint_ge(room, 5);
	if (world->produced)
		return 0;
	world->produced = 5;
	memcpy(buf, "hello", 5);
	return 5;
}

static long on_want_break(struct http_request *req, void *buf, size_t room, void *user)
{
	return on_want_silent(req, buf, room, user) == 5 ? 5 : -2;
}

static void on_body(struct http_request *req, const char *body, size_t size, void *user)
{
	struct world *world = user;

	ck_assert_uint_eq(strlen(body), size); /* NUL-terminated, and the test sends none */
	(void) snprintf(world->body, sizeof(world->body), "%s", body);
	ck_assert_int_eq(http_respond(req, 200, "text/plain", NULL, 0, body, size), 0);
}

static void route_missing(struct http_request *req, struct world *world)
{
	static const struct http_field fields[] = { { "X-One", "1" }, { "Content-Length", "999" } };

	(void) world;
	ck_assert_int_eq(http_respond(req, 404, "text/plain", fields, 2, "none", 4), 0);
	ck_assert_int_eq(http_respond(req, 200, NULL, NULL, 0, "", 0), -EALREADY);
}

static void route_upload(struct http_request *req, struct world *world)
{
	http_stream_body(req, on_piece, world);
}

static void route_body(struct http_request *req, struct world *world)
{
	http_read_body(req, 64, on_body, world);
}

static void route_download(struct http_request *req, struct world *world)
{
	ck_assert_int_eq(http_respond_stream(req, 200, NULL, NULL, 0, -1, on_want, world), 0);
}

static void route_download_sized(struct http_request *req, struct world *world)
{
	ck_assert_int_eq(
		http_respond_stream(req, 200, NULL, NULL, 0, (int64_t) world->to_produce, on_want, world), 0);
}

static void route_silent(struct http_request *req, struct world *world)
{
	ck_assert_int_eq(http_respond_stream(req, 200, NULL, NULL, 0, -1, on_want_silent, world), 0);
}

static void route_break(struct http_request *req, struct world *world)
{
	ck_assert_int_eq(http_respond_stream(req, 200, NULL, NULL, 0, -1, on_want_break, world), 0);
}

static void route_wait(struct http_request *req, struct world *world)
{
	(void) req;
	world->has_waiting = true;
}

static void route_empty(struct http_request *req, struct world *world)
{
	(void) world;
	ck_assert_int_eq(http_respond(req, 204, NULL, NULL, 0, NULL, 0), 0);
}

static const struct {
	const char *path;
	void (*run)(struct http_request *req, struct world *world);
} routes[] = {
	{ "/upload", route_upload },
	{ "/body", route_body },
	{ "/download", route_download },
	{ "/sized", route_download_sized },
	{ "/silent", route_silent },
	{ "/break", route_break },
	{ "/wait", route_wait },
	{ "/empty", route_empty },
};

static void on_request(struct http_request *req, void *user)
{
	struct world *world = user;

	world->requests++;
	world->waiting = req;
	(void) snprintf(world->path, sizeof(world->path), "%s", http_path(req));
	(void) snprintf(world->target, sizeof(world->target), "%s", http_target(req));
	(void) snprintf(world->query_x, sizeof(world->query_x), "%s", http_query(req, "x") ? http_query(req, "x") : "-");
	(void) snprintf(world->query_y, sizeof(world->query_y), "%s", http_query(req, "y") ? http_query(req, "y") : "-");
	for (size_t i = 0; i < ARRAY_LEN(routes); i++)
		if (!strcmp(routes[i].path, http_path(req))) {
			routes[i].run(req, world);
			return;
		}
	route_missing(req, world);
}

static void on_closed(struct http_request *req, void *user)
{
	struct world *world = user;

	world->closed++;
	world->all_closed = http_server_active(world->server) == 0;
	if (world->waiting == req)
		world->waiting = NULL;
	ck_assert_int_eq(http_respond(req, 200, NULL, NULL, 0, "", 0), -EALREADY); /* harmless behind the end */
}

const struct http_handler rig_handler = { on_request, on_closed };

void world_open(struct world *world, bool over_unix)
{
	struct http_server_config config = { .address = "127.0.0.1", .max_connections = 256, .idle_timeout_s = 30 };
	struct err err = ERR_NULL;

	memset(world, 0, sizeof(*world));
	world->base = event_base_new();
	ck_assert_ptr_nonnull(world->base);
	if (over_unix) {
		(void) snprintf(world->unix_path, sizeof(world->unix_path), "/tmp/croft-test-http-%d", (int) getpid());
		config.unix_path = world->unix_path;
	}
	ck_assert_msg(http_server_new(&world->server, world->base, &config, &rig_handler, world, &err) == 0, "%s", err.msg);
	ck_assert_msg(http_client_new(&world->client, world->base, &err) == 0, "%s", err.msg);
	(void) snprintf(world->url, sizeof(world->url), "http://127.0.0.1:%u", http_server_port(world->server));
}

void world_close(struct world *world)
{
	http_client_free(world->client);
	http_server_free(world->server);
	ck_assert_uint_eq(world->closed, world->requests); /* exactly once per request */
	event_base_free(world->base);
}

/* ---- client ---- */

void rig_on_done(struct http_call *call, const struct err *err, void *user)
{
	struct world *world = user;
	size_t size;
	const char *body = http_call_body(call, &size);

	ck_assert(!world->done);
	world->done = true;
	world->failed = err != NULL;
	if (err)
		world->err = *err;
	world->status = http_call_status(call);
	(void) snprintf(world->answer, sizeof(world->answer), "%.*s", (int) MIN(size, sizeof(world->answer) - 1), body);
}

struct http_call *rig_start(struct world *world, struct http_call_config *config, const char *path)
{
	struct err err = ERR_NULL;
	struct http_call *call = NULL;
	char url[256];

	(void) snprintf(url, sizeof(url), "%s%s", world->url, path);
	config->url = url;
	config->unix_path = *world->unix_path ? world->unix_path : NULL;
	config->user = world;
	if (!config->on_done)
		config->on_done = rig_on_done;
	if (!config->max_body)
		config->max_body = 4096;
	world->done = false;
	ck_assert_msg(http_call_start(world->client, config, &call, &err) == 0, "%s", err.msg);
	return call;
}

void rig_get(struct world *world, const char *path)
{
	struct http_call_config config = HTTP_CALL_NULL;

	(void) rig_start(world, &config, path);
	loop_until(world->base, &world->done);
}

void rig_wake_call(evutil_socket_t fd, short what, void *user)
{
	(void) fd;
	(void) what;
	http_call_wake(user);
}

long rig_on_upload(struct http_call *call, void *buf, size_t room, void *user)
{
	struct world *world = user;
	unsigned char *to = buf;
	uint64_t n = MIN((uint64_t) room, world->to_send - world->sent);

	world->worst = MAX(world->worst, world->sent - world->received);
	if (n == 0)
		return -1;
	if (world->sent / 100000 % 2 == 1 && world->taken != world->sent) {
		world->taken = world->sent;
		rig_again_soon(world->base, rig_wake_call, call);
		return 0;
	}
	for (uint64_t i = 0; i < n; i++)
		to[i] = rig_pattern(world->sent + i);
	world->sent += n;
	return (long) n;
}

/* ---- raw bytes ---- */

static void raw_read(struct bufferevent *bev, void *user)
{
	struct raw *raw = user;
	size_t n = bufferevent_read(bev, raw->text + raw->size, sizeof(raw->text) - 1 - raw->size);

	raw->size += n;
	raw->text[raw->size] = '\0';
	raw->answered = true;
}

static void raw_event(struct bufferevent *bev, short what, void *user)
{
	struct raw *raw = user;

	(void) bev;
	if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
		raw->ended = true;
}

void raw_open(struct raw *raw, struct world *world, const char *text)
{
	int fd;

	memset(raw, 0, sizeof(*raw));
	if (*world->unix_path) {
		fd = unix_connect(world->unix_path, SOCK_STREAM);
	} else {
		struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(http_server_port(world->server)) };

		addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ck_assert_int_eq(connect(fd, (struct sockaddr *) &addr, sizeof(addr)), 0);
		ck_assert_int_eq(fd_set_nonblock(fd), 0);
	}
	ck_assert_int_ge(fd, 0);
	raw->bev = bufferevent_socket_new(world->base, fd, BEV_OPT_CLOSE_ON_FREE);
	bufferevent_setcb(raw->bev, raw_read, NULL, raw_event, raw);
	bufferevent_enable(raw->bev, EV_READ | EV_WRITE);
	ck_assert_int_eq(bufferevent_write(raw->bev, text, strlen(text)), 0);
}

void raw_close(struct raw *raw)
{
	bufferevent_free(raw->bev);
	raw->bev = NULL;
}
