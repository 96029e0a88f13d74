/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-transport N    what the link itself costs here, without a scheduler: proto/wire's ROUTER and DEALER over CURVE and
 *                      loopback, both ends on this machine's processors as in a fleet test. (What heartbeats cost: beats.c.)
 *
 * Prints one line: `handshakes_per_second H rtt_usec R`: N dealers that connect at once until the last one's first message
 * came, and the median of 1,000 round trips of 200 bytes.
 */
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/log.h"
#include "wire/endpoint.h"

#define TRIPS 1000
#define MESSAGE_SIZE 200

struct bench {
	struct event_base *base;
	struct router *router;
	struct dealer **dealers;
	size_t n, n_heard;
	int64_t sent_usec, trips[TRIPS];
	size_t n_trips;
	bool is_connecting;
};

struct end {
	struct bench *bench;
	size_t number;
};

static void router_input(const struct route *from, const char *user_id, const void *data, size_t size, void *user)
{
	struct bench *bench = user;

	(void)user_id;
	if (bench->is_connecting) {
		if (++bench->n_heard == bench->n)
			(void)event_base_loopbreak(bench->base);
		return;
	}
	(void)router_send(bench->router, from, data, size);
}

static void ping(struct bench *bench)
{
	char message[MESSAGE_SIZE] = { 0 };

	bench->sent_usec = clock_monotonic_usec();
	(void)dealer_send(bench->dealers[0], message, sizeof(message));
}

static void dealer_input(const void *data, size_t size, void *user)
{
	struct bench *bench = ((struct end *)user)->bench;

	(void)data, (void)size;
	bench->trips[bench->n_trips++] = clock_monotonic_usec() - bench->sent_usec;
	if (bench->n_trips == TRIPS)
		(void)event_base_loopbreak(bench->base);
	else
		ping(bench);
}

static void dealer_changed(enum dealer_state state, void *user)
{
	struct end *end = user;

	if (state == DEALER_UP && end->bench->is_connecting)
		(void)dealer_send(end->bench->dealers[end->number], "x", 1);
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int open_all(struct bench *bench, struct end *ends, void *zmq, struct err *err)
{
	const struct dealer_handler handler = { .on_message = dealer_input, .on_state = dealer_changed };
	struct router_config config = { .address = "tcp://127.0.0.1:*", .zap_domain = "croft" };
	struct dealer_config node = { .address = NULL };
	struct curve_keys *keys = calloc(bench->n, sizeof(*keys)); /* for the life of the process */
	struct zap *zap;
	int r;

	if (!keys)
		return -1;
	r = zap_new(&zap, zmq, err);
	if (r >= 0)
		r = curve_keys_new(&config.keys, err);
	if (r >= 0)
		r = router_new(&bench->router, bench->base, zmq, &config, router_input, bench, err);
	for (size_t i = 0; r >= 0 && i < bench->n; i++) {
		r = curve_keys_new(&keys[i], err);
		if (r >= 0)
			r = zap_allow(zap, keys[i].public_key, "node:bench");
	}
	if (r < 0)
		return r;
	bench->sent_usec = clock_monotonic_usec();
	node.address = router_address(bench->router);
	memcpy(node.server_key, config.keys.public_key, sizeof(node.server_key));
	for (size_t i = 0; r >= 0 && i < bench->n; i++) {
		ends[i] = (struct end){ .bench = bench, .number = i };
		node.keys = keys[i];
		r = dealer_new(&bench->dealers[i], bench->base, zmq, &node, &handler, &ends[i], err);
	}
	return r;
}

int main(int argc, char **argv)
{
	struct rlimit files = { .rlim_cur = 65536, .rlim_max = 65536 };
	struct bench bench = { .is_connecting = true };
	struct end *ends;
	struct err err = ERR_NULL;
	void *zmq = zmq_ctx_new();
	int64_t took;

	log_init("bench-transport", LOG_LEVEL_ERROR);
	(void)setrlimit(RLIMIT_NOFILE, &files);
	bench.n = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
	if (bench.n == 0) {
		fprintf(stderr, "usage: bench-transport N\n");
		return 2;
	}
	bench.base = event_base_new();
	bench.dealers = calloc(bench.n, sizeof(struct dealer *));
	ends = calloc(bench.n, sizeof(*ends));
	if (!zmq || !bench.base || !bench.dealers || !ends ||
		zmq_ctx_set(zmq, ZMQ_MAX_SOCKETS, (int)bench.n * 4 + 64) < 0 || open_all(&bench, ends, zmq, &err) < 0) {
		fprintf(stderr, "bench-transport: %s\n", *err.msg ? err.msg : "no memory");
		return 1;
	}
	(void)event_base_dispatch(bench.base);
	took = clock_monotonic_usec() - bench.sent_usec;
	bench.is_connecting = false;
	ping(&bench);
	(void)event_base_dispatch(bench.base);
	qsort(bench.trips, TRIPS, sizeof(bench.trips[0]), by_value);
	printf("handshakes_per_second %.1f rtt_usec %" PRId64 "\n", (double)bench.n * USEC_PER_SEC / (double)took,
		bench.trips[TRIPS / 2]);
	(void)fflush(stdout);
	_exit(0); /* ends the process: nothing of it is worth an orderly end of thousands of sockets */
}
