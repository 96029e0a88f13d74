/* SPDX-License-Identifier: Apache-2.0
 *
 * The link through tunnels on loopback: a real ROUTER and DEALER with CURVE and ZAP, TLS between, and what may stand there:
 * a firewall that looks at the hello (tests/lib/tls-only.c), a proxy that opens TLS and closes it again, an HTTP proxy, one who
 * says nothing. Then the splice by itself: bounds, and ends. Real proxies, in namespaces: tests/net/transport.
 */
#include <arpa/inet.h>
#include <check.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/fd.h"
#include "lib/loop.h"
#include "lib/suite.h"
#include "wire/endpoint.h"
#include "wire/splice.h"
#include "wire/tunnel.h"

#define PATIENCE_USEC (400 * USEC_PER_MSEC)
#define STALL_USEC USEC_PER_SEC
#define NAME "updates.example.com"

struct world {
	struct event_base *base;
	void *context;
	struct zap *zap;
	struct router *router;
	struct tunnel_server *server;
	struct tunnel_client *client;
	struct dealer *dealer;
	struct curve_keys keys, node_keys;
	char address[64]; /* of the TLS listener */
	struct route route;
	bool up, heard, failed, echoed;
	struct err failure; /* the first */
	size_t echo_size;

	/* the proxy */
	struct evconnlistener *proxy;
	const char *wants;  /* an Authorization value; NULL: none */
	int answers;        /* 200, 403 */
	unsigned int n_asked;
	char asked[512];
	struct proxied *proxied; /* what it made, a list */
};

static void router_input(const struct route *from, const char *user_id, const void *data, size_t size, void *user)
{
	struct world *world = user;

	ck_assert_str_eq(user_id, "node:n");
	world->route = *from;
	world->heard = true;
	ck_assert_int_eq(router_send(world->router, from, data, size), ROUTER_SENT);
}

static void node_input(const void *data, size_t size, void *user)
{
	struct world *world = user;

	(void) data;
	world->echo_size += size;
	world->echoed = true;
}

static void node_state(enum dealer_state state, void *user)
{
	struct world *world = user;

	world->up = state == DEALER_UP;
}

static void on_failure(const struct err *err, void *user)
{
	struct world *world = user;

	if (!world->failed)
		world->failure = *err;
	world->failed = true;
}

static void world_open(struct world *world)
{
	struct tunnel_server_config config = { .address = "127.0.0.1", .max = 8, .patience_usec = PATIENCE_USEC };
	char local[TUNNEL_LOCAL_SIZE];
	struct router_config router = { .address = "tcp://127.0.0.1:*", .zap_domain = "croft", .local = local };
	struct err err = ERR_NULL;

	memset(world, 0, sizeof(*world));
	world->answers = 200;
	world->base = event_base_new();
	world->context = zmq_ctx_new();
	ck_assert(world->base && world->context);
	ck_assert_int_eq(zap_new(&world->zap, world->context, &err), 0);
	ck_assert_int_eq(curve_keys_new(&world->keys, &err), 0);
	ck_assert_int_eq(curve_keys_new(&world->node_keys, &err), 0);
	ck_assert_int_eq(zap_allow(world->zap, world->node_keys.public_key, "node:n"), 0);
	router.keys = world->keys;
	tunnel_local_name(local, "test");
	config.local = local;
	ck_assert_msg(router_new(&world->router, world->base, world->context, &router, router_input, world, &err) == 0,
		"%s", err.msg);
	ck_assert_msg(tunnel_server_new(&world->server, world->base, &config, &err) == 0, "%s", err.msg);
	(void) snprintf(world->address, sizeof(world->address), "tls://127.0.0.1:%u", tunnel_server_port(world->server));
}

static void proxied_end(void *user);

static void world_close(struct world *world)
{
	dealer_free(world->dealer);
	tunnel_client_free(world->client);
	if (world->proxy)
		evconnlistener_free(world->proxy);
	while (world->proxied)
		proxied_end(world->proxied);
	tunnel_server_free(world->server);
	router_free(world->router);
	zap_free(world->zap);
	ck_assert_int_eq(zmq_ctx_term(world->context), 0);
	event_base_free(world->base);
}

/* Dials `address` by `config`, whose callbacks are ours. */
static void dial(struct world *world, struct tunnel_client_config config, const char *address)
{
	struct dealer_config dealer = { .keys = world->node_keys, .backoff_min_usec = 20000, .backoff_max_usec = 100000 };
	const struct dealer_handler handler = { node_input, node_state };
	struct err err = ERR_NULL;

	config.on_failure = on_failure;
	config.user = world;
	config.patience_usec = PATIENCE_USEC;
	ck_assert_msg(tunnel_client_new(&world->client, world->base, &config, &err) == 0, "%s", err.msg);
	dealer.address = tunnel_client_target(world->client, address);
	memcpy(dealer.server_key, world->keys.public_key, sizeof(dealer.server_key));
	ck_assert_msg(dealer_new(&world->dealer, world->base, world->context, &dealer, &handler, world, &err) == 0, "%s", err.msg);
}

static void expect_echo(struct world *world)
{
	loop_until(world->base, &world->up);
	world->echoed = false;
	ck_assert(dealer_send(world->dealer, "hello", 5));
	loop_until(world->base, &world->echoed);
}

static void expect_failure(struct world *world, enum fail_code code)
{
	loop_until(world->base, &world->failed);
	ck_assert_msg(world->failure.code == code, "%s: %s", failure_info(world->failure.code)->name, world->failure.msg);
	ck_assert(!world->up);
}

/* ---- TLS ---- */

START_TEST(test_tls)
{
	char *large = calloc(1, ENDPOINT_FRAME_MAX);
	struct world world;

	world_open(&world);
	dial(&world, (struct tunnel_client_config) { .tls = true }, world.address);
	expect_echo(&world);
	for (int i = 0; i < 20; i++) {
		world.echoed = false;
		ck_assert(dealer_send(world.dealer, large, ENDPOINT_FRAME_MAX));
		loop_until(world.base, &world.echoed);
	}
	ck_assert_uint_eq(world.echo_size, 5 + 20 * (size_t) ENDPOINT_FRAME_MAX);
	ck_assert_uint_eq(tunnel_server_open(world.server), 1);
	ck_assert(!world.failed);
	free(large);
	world_close(&world);
}
END_TEST

/* The listener is gone and comes back, as when the scheduler is started again. */
START_TEST(test_again_after_a_cut)
{
	struct world world;

	world_open(&world);
	dial(&world, (struct tunnel_client_config) { .tls = true }, world.address);
	expect_echo(&world);
	dealer_reconnect(world.dealer);
	expect_echo(&world);
	loop_for(world.base, 50);
	ck_assert_uint_eq(tunnel_server_open(world.server), 1); /* the first one is gone on both sides */
	world_close(&world);
}
END_TEST

/* Opens the envelope and closes another: its own certificate, its own hello. */
static void open_resigner(struct world *world, struct tunnel_server **ret_front, struct tunnel_client **ret_back)
{
	struct tunnel_server_config front = { .address = "127.0.0.1", .max = 4 };
	struct tunnel_client_config back = { .tls = true };
	struct err err = ERR_NULL;

	ck_assert_int_eq(tunnel_client_new(ret_back, world->base, &back, &err), 0);
	front.local = tunnel_client_target(*ret_back, world->address) + strlen("ipc://@");
	ck_assert_int_eq(tunnel_server_new(ret_front, world->base, &front, &err), 0);
}

START_TEST(test_resigning_proxy)
{
	struct tunnel_server *front;
	struct tunnel_client *back;
	struct world world;
	char address[64];

	world_open(&world);
	open_resigner(&world, &front, &back);
	(void) snprintf(address, sizeof(address), "tls://127.0.0.1:%u", tunnel_server_port(front));
	if (_i == 0) {
		dial(&world, (struct tunnel_client_config) { .tls = true }, address);
		expect_echo(&world);
	} else { /* it answers for itself: TLS is agreed on, and nobody is who the node's key says */
		struct curve_keys real = world.keys;
		struct err err = ERR_NULL;

		ck_assert_int_eq(curve_keys_new(&world.keys, &err), 0);
		dial(&world, (struct tunnel_client_config) { .tls = true }, address);
		world.keys = real;
		loop_for(world.base, 1000);
		ck_assert(!world.up && !world.heard);
	}
	dealer_free(TAKE(world.dealer));
	tunnel_server_free(front);
	tunnel_client_free(back);
	world_close(&world);
}
END_TEST

/* A process, and what it printed. */
static FILE *middlebox(const struct world *world, pid_t *ret_pid, unsigned int *ret_port)
{
	char path[4096], port[8];
	int fds[2];
	FILE *out;

	(void) snprintf(path, sizeof(path), "%s/tls-only", getenv("CROFT_BIN"));
	(void) snprintf(port, sizeof(port), "%u", tunnel_server_port(world->server));
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	*ret_pid = fork();
	if (*ret_pid == 0) {
		(void) dup2(fds[1], STDOUT_FILENO);
		(void) execl(path, path, "127.0.0.1", "0", "127.0.0.1", port, NAME, (char *) NULL);
		_exit(127);
	}
	(void) close(fds[1]);
	out = fdopen(fds[0], "r");
	ck_assert(fgets(port, sizeof(port), out) && sscanf(port, "%u", ret_port) == 1);
	return out;
}

START_TEST(test_permitted_name)
{
	static const struct {
		struct tunnel_client_config config;
		const char *said;
		bool passes;
	} rows[] = {
		{ { .tls = true, .tls_name = NAME }, "passed " NAME "\n", true },
		{ { .tls = true, .tls_name = "croft.example.org" }, "cut croft.example.org\n", false },
		{ { .tls = true }, "cut -\n", false }, /* an address is no name */
		{ { .tls = false }, "cut -\n", false }, /* what CURVE looks like by itself */
	};
	struct world world;
	unsigned int port;
	char address[64], line[300];
	pid_t pid;
	FILE *said;

	world_open(&world);
	said = middlebox(&world, &pid, &port);
	(void) snprintf(address, sizeof(address), "tls://127.0.0.1:%u", port);
	dial(&world, rows[_i].config, address);
	if (rows[_i].passes)
		expect_echo(&world);
	else if (rows[_i].config.tls)
		expect_failure(&world, FAIL_TLS_CUT);
	else
		loop_for(world.base, 500);
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), said));
	ck_assert_str_eq(line, rows[_i].said);
	ck_assert_int_eq(world.up, rows[_i].passes);
	(void) fclose(said);
	(void) kill(pid, SIGKILL);
	(void) waitpid(pid, NULL, 0);
	world_close(&world);
}
END_TEST

/* ---- what answers is none of ours ---- */

static int silent_listener(uint16_t *ret_port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	ck_assert_int_eq(bind(fd, (const struct sockaddr *) &address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 8), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *) &address, &size), 0);
	*ret_port = ntohs(address.sin_port);
	return fd;
}

START_TEST(test_no_tls_there)
{
	struct world world;
	uint16_t port;
	char address[64];
	int fd = silent_listener(&port), peer = -1;

	world_open(&world);
	(void) snprintf(address, sizeof(address), "tls://127.0.0.1:%u", port);
	if (_i == 2) { /* nobody at all */
		fd = fd_close(fd);
	}
	dial(&world, (struct tunnel_client_config) { .tls = true, .tls_name = NAME }, address);
	if (_i == 0) {
		peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		for (int i = 0; peer < 0 && i < 2000; i++) {
			(void) event_base_loop(world.base, EVLOOP_NONBLOCK);
			(void) poll(NULL, 0, 1);
			peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		}
		ck_assert_int_eq(send(peer, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, MSG_NOSIGNAL), 28);
	} else if (_i == 1) {
		(void) accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK); /* says nothing, whether accepted or not */
	}
	expect_failure(&world, _i == 0 ? FAIL_TLS_FAILED : _i == 1 ? FAIL_TLS_CUT : FAIL_LINK_UNREACHABLE);
	ck_assert_int_eq(world.failure.component, COMPONENT_NETWORK);
	(void) fd_close(peer);
	(void) fd_close(fd);
	world_close(&world);
}
END_TEST

static int tcp_to(uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(connect(fd, (const struct sockaddr *) &to, sizeof(to)), 0);
	return fd;
}

/* Who says nothing, or a byte now and then, has his time and no more; who is one too many waits until another is gone. */
START_TEST(test_server_bounds)
{
	struct world world;
	int fds[10];
	int64_t began;
	char byte;

	world_open(&world);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = tcp_to(tunnel_server_port(world.server));
	loop_for(world.base, 100);
	ck_assert_uint_eq(tunnel_server_open(world.server), 8);
	began = clock_monotonic_usec();
	while (tunnel_server_refused(world.server) < 8 && clock_monotonic_usec() - began < 10 * USEC_PER_SEC) {
		(void) send(fds[0], "\x16", 1, MSG_NOSIGNAL); /* drips */
		loop_for(world.base, 20);
	}
	ck_assert_uint_ge(tunnel_server_refused(world.server), 8);
	loop_for(world.base, 50);
	ck_assert_uint_eq(tunnel_server_open(world.server), 2); /* those that waited */
	ck_assert_int_le(recv(fds[1], &byte, 1, MSG_DONTWAIT), 0);
	dial(&world, (struct tunnel_client_config) { .tls = true }, world.address);
	expect_echo(&world); /* and who speaks TLS is served meanwhile */
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		(void) close(fds[i]);
	world_close(&world);
}
END_TEST

/* Another process of this host that found the name. */
START_TEST(test_socket_is_own)
{
	struct world world;
	const char *name;
	pid_t child;
	int status = 0;

	world_open(&world);
	dial(&world, (struct tunnel_client_config) { .tls = true }, world.address);
	expect_echo(&world);
	name = tunnel_client_target(world.client, world.address) + strlen("ipc://@");
	child = fork();
	if (child == 0) {
		char byte;
		int fd = local_connect(name);
		struct pollfd wait = { .fd = fd, .events = POLLIN };

		_exit(fd >= 0 && poll(&wait, 1, 20000) == 1 && recv(fd, &byte, 1, 0) == 0 ? 0 : 1);
	}
	while (waitpid(child, &status, WNOHANG) == 0)
		loop_for(world.base, 10);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(tunnel_server_open(world.server), 1);
	world_close(&world);
}
END_TEST

/* ---- an HTTP proxy ---- */

struct proxied {
	struct proxied *next;
	struct world *world;
	struct bufferevent *client;
	struct splice *splice;
};

static void proxied_end(void *user)
{
	struct proxied *proxied = user, **at = &proxied->world->proxied;

	while (*at != proxied)
		at = &(*at)->next;
	*at = proxied->next;
	splice_free(proxied->splice);
	if (proxied->client)
		bufferevent_free(proxied->client);
	free(proxied);
}

static void proxied_event(struct bufferevent *client, short what, void *user)
{
	(void) client, (void) what;
	proxied_end(user);
}

static void answer(struct proxied *proxied, const char *text)
{
	(void) bufferevent_write(proxied->client, text, strlen(text));
}

static void proxied_read(struct bufferevent *client, void *user)
{
	struct proxied *proxied = user;
	struct world *world = proxied->world;
	struct evbuffer *input = bufferevent_get_input(client);
	struct bufferevent *to;
	unsigned int port;
	size_t n = evbuffer_get_length(input);

	if (n >= sizeof(world->asked) || evbuffer_search(input, "\r\n\r\n", 4, NULL).pos < 0)
		return;
	ck_assert_int_eq(evbuffer_remove(input, world->asked, n), (int) n);
	world->asked[n] = '\0';
	world->n_asked++;
	if (world->wants && !strstr(world->asked, world->wants)) {
		answer(proxied, "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"p\"\r\nContent-Length: 0\r\n\r\n");
		return;
	}
	if (world->answers != 200) {
		answer(proxied, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
		return;
	}
	ck_assert_int_eq(sscanf(world->asked, "CONNECT 127.0.0.1:%u HTTP/1.1", &port), 1);
	to = bufferevent_socket_new(world->base, tcp_to((uint16_t) port), BEV_OPT_CLOSE_ON_FREE);
	answer(proxied, "HTTP/1.1 200 Go\r\n\r\n");
	proxied->splice = splice_new(world->base, TAKE(proxied->client), to, 30 * USEC_PER_SEC, proxied_end, proxied);
}

static void on_proxy(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int size, void *user)
{
	struct proxied *proxied = calloc(1, sizeof(*proxied));

	(void) listener, (void) from, (void) size;
	proxied->world = user;
	proxied->next = proxied->world->proxied;
	proxied->world->proxied = proxied;
	proxied->client = bufferevent_socket_new(proxied->world->base, fd, BEV_OPT_CLOSE_ON_FREE);
	bufferevent_setcb(proxied->client, proxied_read, NULL, proxied_event, proxied);
	(void) bufferevent_enable(proxied->client, EV_READ | EV_WRITE);
}

static const struct proxy_row {
	bool tls, gone;
	const char *wants, *user, *password;
	int answers;
	enum fail_code code; /* FAIL_NONE: it passes */
} proxy_rows[] = {
	{ .tls = true, .answers = 200 },
	{ .tls = false, .answers = 200 }, /* CURVE itself in the proxy's tunnel */
	{ .tls = true, .answers = 200, .wants = "Basic dXNlcjpzZWNyZXQ=", .user = "user", .password = "secret" },
	{ .tls = true, .answers = 200, .wants = "Basic dXNlcjpzZWNyZXQ=", .code = FAIL_PROXY_AUTH },
	{ .tls = true, .answers = 200, .wants = "Basic dXNlcjpzZWNyZXQ=", .user = "user", .password = "hushhush",
		.code = FAIL_PROXY_AUTH },
	{ .tls = true, .answers = 403, .code = FAIL_PROXY_REFUSED },
	{ .tls = true, .gone = true, .code = FAIL_PROXY_UNREACHABLE },
};

START_TEST(test_http_proxy)
{
	const struct proxy_row *row = &proxy_rows[_i];
	struct world world;
	uint16_t port;
	int fd = silent_listener(&port);
	char proxy[64], address[64], text[1024];

	world_open(&world);
	if (row->gone)
		(void) close(fd);
	else
		world.proxy = evconnlistener_new(world.base, on_proxy, &world, LEV_OPT_CLOSE_ON_FREE, 0, fd);
	world.wants = row->wants;
	world.answers = row->answers;
	(void) snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%u", port);
	(void) snprintf(address, sizeof(address), "%s", row->tls ? world.address : router_address(world.router));
	if (!row->tls) /* "tcp://[::ffff:127.0.0.1]:port" */
		(void) snprintf(address, sizeof(address), "tcp://127.0.0.1%s", strrchr(router_address(world.router), ':'));
	dial(&world, (struct tunnel_client_config) { .tls = row->tls, .proxy = proxy, .proxy_user = row->user,
		.proxy_password = row->password }, address);
	if (row->code == FAIL_NONE) {
		expect_echo(&world);
		ck_assert(!world.failed && world.n_asked > 0);
	} else {
		expect_failure(&world, row->code);
		ck_assert_int_eq(world.failure.component, COMPONENT_PROXY);
		err_format(&world.failure, text, sizeof(text));
		ck_assert_msg(!strstr(text, "hushhush") && !strstr(text, "aHVzaGh1c2g"), "%s", text);
		ck_assert_msg(strstr(text, proxy) != NULL, "%s", text);
	}
	world_close(&world);
}
END_TEST

/* ---- the splice ---- */

struct pair {
	struct event_base *base;
	struct splice *splice;
	int end[2]; /* what is written to one comes out of the other */
	bool ended;
};

static void pair_ended(void *user)
{
	struct pair *pair = user;

	splice_free(TAKE(pair->splice));
	pair->ended = true;
}

static void pair_open(struct pair *pair)
{
	struct bufferevent *side[2];

	memset(pair, 0, sizeof(*pair));
	pair->base = event_base_new();
	for (int i = 0; i < 2; i++) {
		int fds[2];

		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
		pair->end[i] = fds[0];
		side[i] = bufferevent_socket_new(pair->base, fds[1], BEV_OPT_CLOSE_ON_FREE);
	}
	pair->splice = splice_new(pair->base, side[0], side[1], STALL_USEC, pair_ended, pair);
	ck_assert_ptr_nonnull(pair->splice);
}

static void pair_close(struct pair *pair)
{
	splice_free(pair->splice);
	for (int i = 0; i < 2; i++)
		(void) fd_close(pair->end[i]);
	event_base_free(pair->base);
}

/* Writes until nothing more is taken. */
static size_t flood(struct pair *pair)
{
	uint8_t data[8192];
	size_t sent = 0;
	ssize_t n = 0;

	for (int idle = 0; idle < 20; idle = n > 0 ? 0 : idle + 1) {
		for (size_t i = 0; i < sizeof(data); i++)
			data[i] = (uint8_t) ((sent + i) * 31 >> 3);
		n = send(pair->end[0], data, sizeof(data), MSG_NOSIGNAL);
		sent += n > 0 ? (size_t) n : 0;
		(void) event_base_loop(pair->base, EVLOOP_NONBLOCK);
	}
	return sent;
}

static size_t drain(struct pair *pair, size_t from)
{
	uint8_t data[8192];
	size_t got = from, wrong = 0;
	ssize_t n;

	for (int idle = 0; idle < 20;) {
		n = recv(pair->end[1], data, sizeof(data), 0);
		if (n == 0)
			break;
		for (ssize_t i = 0; i < n; i++)
			wrong += data[i] != (uint8_t) ((got + (size_t) i) * 31 >> 3);
		got += n > 0 ? (size_t) n : 0;
		idle = n > 0 ? 0 : idle + 1;
		(void) event_base_loop(pair->base, EVLOOP_NONBLOCK);
	}
	ck_assert_uint_eq(wrong, 0);
	return got;
}

START_TEST(test_splice_bound)
{
	int buffers = 0;
	socklen_t size = sizeof(buffers);
	struct pair pair;
	size_t sent;

	pair_open(&pair);
	ck_assert_int_eq(getsockopt(pair.end[0], SOL_SOCKET, SO_SNDBUF, &buffers, &size), 0);
	sent = flood(&pair);
	ck_assert_uint_gt(sent, SPLICE_ROOM);
	ck_assert_uint_le(sent, 2 * SPLICE_ROOM + SPLICE_ROOM + 2 * (size_t) buffers); /* input, output, and the kernel's */
	ck_assert_uint_eq(drain(&pair, 0), sent);
	ck_assert(!pair.ended);
	ck_assert_int_eq(send(pair.end[1], "back", 4, MSG_NOSIGNAL), 4); /* the other way was free all the time */
	pair_close(&pair);
}
END_TEST

/* What was said before an end arrives; and an end that nobody takes does not wait for ever. */
START_TEST(test_splice_end)
{
	struct pair pair;
	size_t sent;

	pair_open(&pair);
	sent = flood(&pair);
	if (_i == 0)
		(void) shutdown(pair.end[0], SHUT_WR);
	else
		pair.end[0] = fd_close(pair.end[0]);
	if (_i < 2) {
		ck_assert_uint_eq(drain(&pair, 0), sent);
		loop_until(pair.base, &pair.ended);
	} else {
		int64_t began = clock_monotonic_usec();

		loop_until(pair.base, &pair.ended);
		ck_assert_int_ge(clock_monotonic_usec() - began, STALL_USEC / 2);
	}
	pair_close(&pair);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tunnel");
	TCase *tls = tcase_create("tls"), *proxy = tcase_create("proxy"), *splice = tcase_create("splice");

	tcase_set_timeout(tls, 60);
	tcase_set_timeout(proxy, 60);
	tcase_set_timeout(splice, 60);
	tcase_add_test(tls, test_tls);
	tcase_add_test(tls, test_again_after_a_cut);
	tcase_add_loop_test(tls, test_resigning_proxy, 0, 2);
	tcase_add_loop_test(tls, test_permitted_name, 0, 4);
	tcase_add_loop_test(tls, test_no_tls_there, 0, 3);
	tcase_add_test(tls, test_server_bounds);
	tcase_add_test(tls, test_socket_is_own);
	tcase_add_loop_test(proxy, test_http_proxy, 0, ARRAY_LEN(proxy_rows));
	tcase_add_test(splice, test_splice_bound);
	tcase_add_loop_test(splice, test_splice_end, 0, 3);
	suite_add_tcase(suite, tls);
	suite_add_tcase(suite, proxy);
	suite_add_tcase(suite, splice);
	return suite_run(suite);
}
