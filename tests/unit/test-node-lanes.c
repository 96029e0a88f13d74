/* SPDX-License-Identifier: Apache-2.0
 *
 * What the agent passes on without reading it: relayed streams between the link and the gateway's
 * socket, within the credit of both sides; and the table of routes that it keeps the gateway's copy
 * of.
 */
#include <check.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/relay.h"
#include "agent/routes.h"
#include "base/fd.h"
#include "lib/loop.h"
#include "lib/suite.h"
#include "pb/node.pb-c.h"
#include "wire/credit.h"

#define BIG (1024u * 1024u)

struct bench {
	char dir[64], path[108];
	struct event_base *base;
	struct evconnlistener *listener;
	struct bufferevent *peer; /* the gateway's end */
	unsigned int n_accepted;
	bool echoes, got_enough, peer_ended;

	struct relay *relay;
	struct relay_config config;
	uint8_t *received;
	size_t n_received, n_frames, largest;
	uint64_t credit_granted;
	bool link_is_full, ended, closed;
	struct err failure;

	/* routes */
	uint64_t last_seq;
	unsigned int n_updates, n_routes, n_removed;
	bool complete, ready;
	char sandbox[32];
	size_t token_size;
	size_t want;
	uint64_t calls_taken; /* as the agent said */
	unsigned int n_calls; /* batches that came out */
};

/* ---- the gateway's side ---- */

static void on_peer_read(struct bufferevent *bev, void *user)
{
	struct bench *bench = user;
	struct evbuffer *in = bufferevent_get_input(bev);

	if (bench->echoes)
		(void)bufferevent_write_buffer(bev, in);
	else
		bench->got_enough = evbuffer_get_length(in) >= bench->want;
}

/* Answers what it has, then ends its side too. */
static void end_when_written(struct bufferevent *bev, void *user)
{
	struct bench *bench = user;

	if (bench->peer_ended && bench->echoes && evbuffer_get_length(bufferevent_get_output(bev)) == 0)
		(void)shutdown(bufferevent_getfd(bev), SHUT_WR);
}

static void on_peer_end(struct bufferevent *bev, short what, void *user)
{
	struct bench *bench = user;

	(void)what;
	bench->peer_ended = true;
	end_when_written(bev, bench);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from,
	int size, void *user)
{
	struct bench *bench = user;

	(void)listener, (void)from, (void)size;
	if (bench->peer)
		bufferevent_free(bench->peer);
	bench->n_accepted++;
	bench->peer = bufferevent_socket_new(bench->base, fd, BEV_OPT_CLOSE_ON_FREE);
	bufferevent_setcb(bench->peer, on_peer_read, end_when_written, on_peer_end, bench);
	ck_assert_int_eq(bufferevent_enable(bench->peer, EV_READ | EV_WRITE), 0);
}

static void gateway_up(struct bench *bench)
{
	int fd = unix_listen(bench->path, SOCK_STREAM, 0600, 8);

	ck_assert_int_ge(fd, 0);
	bench->listener =
		evconnlistener_new(bench->base, on_accept, bench, LEV_OPT_CLOSE_ON_FREE, 0, fd);
	ck_assert_ptr_nonnull(bench->listener);
}

static void gateway_down(struct bench *bench)
{
	if (bench->peer)
		bufferevent_free(bench->peer);
	bench->peer = NULL;
	evconnlistener_free(bench->listener);
	bench->listener = NULL;
	(void)unlink(bench->path);
}

/* ---- the link's side ---- */

static bool send_data(uint64_t stream, const void *data, size_t size, bool end, void *user)
{
	struct bench *bench = user;

	if (stream != 7)
		return true;
	ck_assert_uint_le(size, CREDIT_FRAME_MAX);
	bench->link_is_full = !bench->link_is_full; /* every other time */
	if (bench->link_is_full)
		return false;
	ck_assert_uint_le(bench->n_received + size, 2 * BIG);
	if (size > 0)
		memcpy(bench->received + bench->n_received, data, size);
	bench->n_received += size;
	bench->n_frames++;
	bench->ended = bench->ended || end;
	return true;
}

static bool send_credit(uint64_t stream, uint32_t bytes, void *user)
{
	struct bench *bench = user;

	(void)stream;
	bench->credit_granted += bytes;
	return true;
}

static bool send_close(uint64_t stream, const struct err *failure, void *user)
{
	struct bench *bench = user;

	(void)stream;
	ck_assert(!bench->closed);
	bench->closed = true;
	if (failure)
		bench->failure = *failure;
	return true;
}

static void bench_init(struct bench *bench)
{
	static const struct relay_sender sender = { send_data, send_credit, send_close };
	struct err err = ERR_NULL;

	memset(bench, 0, sizeof(*bench));
	(void)snprintf(bench->dir, sizeof(bench->dir), "/tmp/croft-lanes.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(bench->dir));
	(void)snprintf(bench->path, sizeof(bench->path), "%s/gateway.sock", bench->dir);
	bench->base = event_base_new();
	bench->received = malloc(2 * BIG);
	bench->config = (struct relay_config){
		.enabled = true, .max_streams = 4, .gateway_path = bench->path
	};
	ck_assert_int_eq(
		relay_new(&bench->relay, bench->base, &bench->config, &sender, bench, &err), 0);
}

static void bench_again(struct bench *bench)
{
	static const struct relay_sender sender = { send_data, send_credit, send_close };
	struct err err = ERR_NULL;

	relay_free(bench->relay);
	ck_assert_int_eq(
		relay_new(&bench->relay, bench->base, &bench->config, &sender, bench, &err), 0);
}

static void bench_deinit(struct bench *bench)
{
	relay_free(bench->relay);
	if (bench->listener)
		gateway_down(bench);
	event_base_free(bench->base);
	free(bench->received);
	ck_assert_int_eq(dir_remove(bench->dir), 0);
}

START_TEST(bytes_go_both_ways_within_credit)
{
	struct bench bench;
	uint8_t *sent = malloc(BIG);
	size_t n_sent = 0, n_granted = 0;

	bench_init(&bench);
	gateway_up(&bench);
	bench.echoes = true;
	for (size_t i = 0; i < BIG; i++)
		sent[i] = (uint8_t)(i * 31 + i / 251);
	relay_open(bench.relay, 7, 10000);
	ck_assert_uint_eq(bench.credit_granted, CREDIT_WINDOW);
	n_granted = 10000;
	while (bench.n_received < BIG) {
		size_t room = (size_t)bench.credit_granted - n_sent,
		       size = MIN(MIN(BIG - n_sent, room), (size_t)60000);

		if (size > 0)
			relay_data(bench.relay, 7, sent + n_sent, size, n_sent + size == BIG);
		n_sent += size;
		ck_assert_int_ge(event_base_loop(bench.base, EVLOOP_ONCE), 0);
		ck_assert_uint_le(
			bench.n_received, n_granted); /* not a byte more than was granted */
		if (bench.n_received == n_granted) {
			relay_credit(bench.relay, 7, 50000);
			n_granted += 50000;
		}
	}
	loop_until(bench.base, &bench.closed);
	ck_assert(bench.ended);
	ck_assert_int_eq(bench.failure.code, FAIL_NONE);
	ck_assert_uint_eq(bench.n_received, BIG);
	ck_assert_mem_eq(bench.received, sent, BIG);
	ck_assert_uint_eq(relay_count(bench.relay), 0);
	free(sent);
	bench_deinit(&bench);
}
END_TEST

/* Sealing a frame costs much the same whatever its size: what waits goes in large ones. */
START_TEST(what_waits_in_the_socket_goes_in_whole_frames)
{
	enum { WAITING = 48 * 1024 }; /* what a socket takes while its other end does not read */
	struct bench bench;
	uint8_t *sent = calloc(1, WAITING);

	bench_init(&bench);
	gateway_up(&bench);
	relay_open(bench.relay, 7, 0);
	loop_for(bench.base, 20);
	ck_assert_int_eq(bufferevent_write(bench.peer, sent, WAITING), 0);
	while (evbuffer_get_length(bufferevent_get_output(bench.peer)) > 0)
		ck_assert_int_ge(event_base_loop(bench.base, EVLOOP_ONCE), 0);
	ck_assert_uint_eq(bench.n_frames, 0);
	relay_credit(bench.relay, 7, CREDIT_WINDOW);
	while (bench.n_received < WAITING)
		ck_assert_int_ge(event_base_loop(bench.base, EVLOOP_ONCE), 0);
	ck_assert_uint_eq(bench.n_frames, 1);
	free(sent);
	bench_deinit(&bench);
}
END_TEST

/* A gateway that does not read costs one window and no more. */
START_TEST(a_slow_reader_gets_no_new_credit)
{
	struct bench bench;
	uint8_t *sent = calloc(1, CREDIT_FRAME_MAX);

	bench_init(&bench);
	gateway_up(&bench);
	relay_open(bench.relay, 7, 1000);
	loop_for(bench.base, 20);
	ck_assert_int_eq(bufferevent_disable(bench.peer, EV_READ), 0);
	for (size_t n = 0; n < CREDIT_WINDOW; n += CREDIT_FRAME_MAX)
		relay_data(bench.relay, 7, sent, CREDIT_FRAME_MAX, false);
	loop_for(bench.base, 50);
	ck_assert(!bench.closed);
	ck_assert_uint_lt(bench.credit_granted, 2 * CREDIT_WINDOW);
	for (size_t n = bench.credit_granted; n > 0 && !bench.closed;
		n -= MIN(n, (size_t)CREDIT_FRAME_MAX))
		relay_data(bench.relay, 7, sent, CREDIT_FRAME_MAX, false);
	ck_assert(bench.closed); /* over the credit: the peer broke the rule */
	ck_assert_int_eq(bench.failure.code, FAIL_FRAME_INVALID);
	free(sent);
	bench_deinit(&bench);
}
END_TEST

START_TEST(a_gateway_that_is_down_is_said)
{
	struct bench bench;

	bench_init(&bench);
	relay_open(bench.relay, 7, 1000);
	ck_assert(bench.closed);
	ck_assert_int_eq(bench.failure.code, FAIL_GATEWAY_UNAVAILABLE);
	ck_assert_uint_eq(relay_count(bench.relay), 0);
	bench_deinit(&bench);
}
END_TEST

START_TEST(relaying_may_be_forbidden_by_the_node)
{
	struct bench bench;

	bench_init(&bench);
	gateway_up(&bench);
	bench.config.enabled = false;
	bench_again(&bench);
	relay_open(bench.relay, 7, 1000);
	ck_assert_int_eq(bench.failure.code, FAIL_RELAY_DISABLED);
	loop_for(bench.base, 10);
	ck_assert_uint_eq(bench.n_accepted, 0);
	bench_deinit(&bench);
}
END_TEST

START_TEST(streams_are_bounded_and_a_cut_ends_them)
{
	struct bench bench;

	bench_init(&bench);
	gateway_up(&bench);
	for (uint64_t i = 1; i <= 4; i++)
		relay_open(bench.relay, 100 + i, 1000);
	relay_open(bench.relay, 101, 1000); /* a repeated frame is no other stream */
	ck_assert_uint_eq(relay_count(bench.relay), 4);
	ck_assert(!bench.closed);
	relay_open(bench.relay, 200, 1000);
	ck_assert(bench.closed);
	ck_assert_int_eq(bench.failure.code, FAIL_TOO_MANY_STREAMS);
	loop_for(bench.base, 20);
	relay_reset(bench.relay);
	ck_assert_uint_eq(relay_count(bench.relay), 0);
	loop_until(bench.base, &bench.peer_ended);
	bench_deinit(&bench);
}
END_TEST

/* ---- routes ---- */

static void take_update(struct bench *bench, const uint8_t *data, size_t size)
{
	Croft__GatewayUpdate *update = croft__gateway_update__unpack(NULL, size, data);
	Croft__GatewayAck ack;
	uint8_t frame[64] = { 0 };

	ck_assert_ptr_nonnull(update);
	ck_assert_uint_gt(update->seq, bench->last_seq);
	bench->last_seq = update->seq;
	bench->n_updates++;
	bench->complete = update->complete;
	bench->n_routes = (unsigned int)update->n_routes;
	bench->n_removed = (unsigned int)update->n_removed;
	bench->calls_taken = update->calls_taken ? update->calls_taken : bench->calls_taken;
	ck_assert(update->takes_calls);
	if (update->n_routes > 0) {
		(void)snprintf(
			bench->sandbox, sizeof(bench->sandbox), "%s", update->routes[0]->sandbox);
		bench->token_size = update->routes[0]->access_token_sha256.len;
		bench->ready = update->routes[0]->ready;
	}
	croft__gateway_ack__init(&ack);
	ack.seq = update->seq;
	size = croft__gateway_ack__pack(&ack, frame + 4);
	frame[3] = (uint8_t)size;
	ck_assert_int_eq(bufferevent_write(bench->peer, frame, 4 + size), 0);
	croft__gateway_update__free_unpacked(update, NULL);
}

/* Turns the loop until `n` more updates came. */
static void wait_updates(struct bench *bench, unsigned int n)
{
	for (unsigned int until = bench->n_updates + n; bench->n_updates < until;) {
		struct evbuffer *in = bench->peer ? bufferevent_get_input(bench->peer) : NULL;
		uint8_t head[4];

		if (in && evbuffer_copyout(in, head, 4) == 4 &&
			evbuffer_get_length(in) >= 4u + ((size_t)head[2] << 8 | head[3])) {
			size_t size = (size_t)head[2] << 8 | head[3];

			(void)evbuffer_drain(in, 4);
			take_update(bench, evbuffer_pullup(in, (ev_ssize_t)size), size);
			(void)evbuffer_drain(in, size);
			continue;
		}
		ck_assert_int_ge(event_base_loop(bench->base, EVLOOP_ONCE), 0);
	}
}

static void take_calls(const Croft__GatewayCalls *calls, void *user)
{
	struct bench *bench = user;

	ck_assert_uint_eq(calls->n_records, 1);
	ck_assert_str_eq(calls->records[0]->stage, "exec");
	bench->n_calls++;
}

static void tell_calls(struct bench *bench, uint64_t seq)
{
	Croft__GatewayAck ack;
	Croft__GatewayCalls calls;
	Croft__StageRecord record, *list[] = { &record };
	char stage[] = "exec";
	uint8_t frame[128] = { 0 };

	croft__gateway_ack__init(&ack);
	croft__gateway_calls__init(&calls);
	croft__stage_record__init(&record);
	ack.calls = &calls;
	calls.seq = seq;
	calls.records = list;
	calls.n_records = 1;
	record.stage = stage;
	frame[3] = (uint8_t)croft__gateway_ack__pack(&ack, frame + 4);
	ck_assert_int_eq(bufferevent_write(bench->peer, frame, 4u + frame[3]), 0);
}

START_TEST(the_gateway_tells_of_calls)
{
	struct routes *routes;
	struct err err = ERR_NULL;
	struct bench bench;

	bench_init(&bench);
	bench.want = SIZE_MAX;
	ck_assert_int_eq(routes_new(&routes, bench.base, bench.path, take_calls, &bench, &err), 0);
	gateway_up(&bench);
	wait_updates(&bench, 1);
	tell_calls(&bench, 41);
	wait_updates(&bench, 1);
	ck_assert_uint_eq(bench.calls_taken, 41);
	ck_assert_uint_eq(bench.n_calls, 1);
	gateway_down(&bench);
	loop_for(bench.base, 20);
	gateway_up(&bench);
	wait_updates(&bench, 1);
	bench.calls_taken = 0;
	tell_calls(&bench, 41); /* it had not heard that they were taken */
	wait_updates(&bench, 1);
	ck_assert_uint_eq(bench.calls_taken, 41);
	ck_assert_uint_eq(bench.n_calls, 1);
	tell_calls(&bench, 42);
	wait_updates(&bench, 1);
	ck_assert_uint_eq(bench.n_calls, 2);
	routes_free(routes);
	bench_deinit(&bench);
}
END_TEST

START_TEST(the_gateway_gets_everything_then_each_change)
{
	struct routes *routes;
	struct err err = ERR_NULL;
	struct bench bench;

	bench_init(&bench);
	bench.want = SIZE_MAX;
	ck_assert_int_eq(routes_new(&routes, bench.base, bench.path, take_calls, &bench, &err), 0);
	ck_assert_int_eq(routes_set(routes, "one", "/run/one", "secret", false), 0);
	loop_for(bench.base, 50); /* nobody is there yet */
	gateway_up(&bench);
	wait_updates(&bench, 1);
	ck_assert(bench.complete);
	ck_assert_uint_eq(bench.n_routes, 1);
	ck_assert_uint_eq(bench.token_size, 32);
	ck_assert(!bench.ready);

	ck_assert_int_eq(routes_set(routes, "one", "/run/one", "secret", true), 0);
	wait_updates(&bench, 1);
	ck_assert(!bench.complete && bench.ready);
	ck_assert_int_eq(routes_set(routes, "two", "/run/two", "", true), 0);
	wait_updates(&bench, 1);
	ck_assert_str_eq(bench.sandbox, "two");
	ck_assert_uint_eq(bench.token_size, 0);
	routes_unset(routes, "one");
	wait_updates(&bench, 1);
	ck_assert_uint_eq(bench.n_removed, 1);

	gateway_down(&bench);
	loop_for(bench.base, 20);
	gateway_up(&bench);
	wait_updates(&bench, 1);
	ck_assert(bench.complete);
	ck_assert_uint_eq(bench.n_routes, 1);
	ck_assert_str_eq(bench.sandbox, "two");
	routes_free(routes);
	bench_deinit(&bench);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("node-lanes");
	TCase *tcase = tcase_create("lanes");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, bytes_go_both_ways_within_credit);
	tcase_add_test(tcase, what_waits_in_the_socket_goes_in_whole_frames);
	tcase_add_test(tcase, a_slow_reader_gets_no_new_credit);
	tcase_add_test(tcase, a_gateway_that_is_down_is_said);
	tcase_add_test(tcase, relaying_may_be_forbidden_by_the_node);
	tcase_add_test(tcase, streams_are_bounded_and_a_cut_ends_them);
	tcase_add_test(tcase, the_gateway_gets_everything_then_each_change);
	tcase_add_test(tcase, the_gateway_tells_of_calls);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
