/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-transport N    what the link itself costs here, without a scheduler: proto/wire's ROUTER and DEALER over CURVE and
 *                      loopback, both ends on this machine's processors as in a fleet test.
 *
 * bench-transport N S  the least that heartbeats can cost a receiver: N dealers of another process send 40 bytes each second for S
 *                      seconds to a ROUTER that drops them: CURVE, libzmq, the kernel and the loop, and nothing of a scheduler.
 *                      Prints `usec_each U messages_per_second M`: the receiver's CPU time.
 *
 * Without S it prints one line: `handshakes_per_second H rtt_usec R`: N dealers that connect at once until the last one's first message
 * came, and the median of 1,000 round trips of 200 bytes.
 */
#include <event2/event.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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

/* ---- what a heartbeat costs without a scheduler ---- */
#define BEAT_SIZE 40
#define TICK_MSEC 10
#define TICKS 100 /* a second */

struct beats {
	struct bench bench;
	struct curve_keys server, *keys;
	size_t n_messages, turn;
	struct event *tick;
};

static void count_input(const struct route *from, const char *user_id, const void *data, size_t size, void *user)
{
	struct beats *beats = user;

	(void)from, (void)user_id, (void)data, (void)size;
	beats->n_messages++;
	router_is_lazy(beats->bench.router);
}

static void on_beat(evutil_socket_t fd, short what, void *user)
{
	static const char beat[BEAT_SIZE];
	struct beats *beats = user;

	(void)fd, (void)what;
	for (size_t i = beats->turn++ % TICKS; i < beats->bench.n; i += TICKS)
		(void)dealer_send(beats->bench.dealers[i], beat, sizeof(beat)); /* one that is not up yet sends nothing */
}

static void ignore_input(const void *data, size_t size, void *user)
{
	(void)data, (void)size, (void)user;
}

static void ignore_state(enum dealer_state state, void *user)
{
	(void)state, (void)user;
}

/* The other process: ends when its parent does. */
static int send_beats(struct beats *beats, int address_fd)
{
	const struct dealer_handler handler = { ignore_input, ignore_state };
	const struct timeval every = { .tv_usec = TICK_MSEC * 1000 };
	struct dealer_config node = { .address = NULL };
	struct err err = ERR_NULL;
	char address[256] = "";
	void *zmq = zmq_ctx_new();

	if (!zmq || zmq_ctx_set(zmq, ZMQ_MAX_SOCKETS, (int)beats->bench.n * 4 + 64) < 0 ||
		read(address_fd, address, sizeof(address) - 1) <= 0)
		return 1;
	node.address = address;
	memcpy(node.server_key, beats->server.public_key, sizeof(node.server_key));
	beats->bench.base = event_base_new();
	for (size_t i = 0; i < beats->bench.n; i++) {
		node.keys = beats->keys[i];
		if (dealer_new(&beats->bench.dealers[i], beats->bench.base, zmq, &node, &handler, NULL, &err) < 0)
			return 1;
	}
	beats->tick = event_new(beats->bench.base, -1, EV_PERSIST, on_beat, beats);
	(void)event_add(beats->tick, &every);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	return event_base_dispatch(beats->bench.base);
}

static void loop_for(struct beats *beats, unsigned int seconds)
{
	const struct timeval time = { .tv_sec = seconds };

	(void)event_base_loopexit(beats->bench.base, &time);
	(void)event_base_dispatch(beats->bench.base);
}

static double cpu_usec(void)
{
	struct rusage usage;

	(void)getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static int receive_beats(struct beats *beats, int address_fd, unsigned int seconds, struct err *reterr)
{
	struct router_config config = { .address = "tcp://127.0.0.1:*", .zap_domain = "croft", .keys = beats->server };
	void *zmq = zmq_ctx_new();
	struct zap *zap;
	size_t before, last;
	double cpu;
	int r = zap_new(&zap, zmq, reterr);

	beats->bench.base = event_base_new();
	for (size_t i = 0; r >= 0 && i < beats->bench.n; i++)
		r = zap_allow(zap, beats->keys[i].public_key, "node:bench");
	if (r >= 0)
		r = router_new(&beats->bench.router, beats->bench.base, zmq, &config, count_input, beats, reterr);
	if (r < 0 || write(address_fd, router_address(beats->bench.router), strlen(router_address(beats->bench.router))) < 0)
		return -1;
	do { /* until all are up and nobody shakes hands */
		last = zap_admitted(zap);
		loop_for(beats, 3);
	} while (last < beats->bench.n || zap_admitted(zap) != last);
	before = beats->n_messages;
	cpu = cpu_usec();
	loop_for(beats, seconds);
	printf("usec_each %.1f messages_per_second %.0f\n", (cpu_usec() - cpu) / (double)MAX(beats->n_messages - before, 1u),
		(double)(beats->n_messages - before) / seconds);
	return 0;
}

static int beats(size_t n, unsigned int seconds)
{
	struct beats beats = { .bench = { .n = n } };
	struct err err = ERR_NULL;
	int fds[2], r;
	pid_t child;

	beats.keys = calloc(n, sizeof(*beats.keys)); /* for the life of the process */
	beats.bench.dealers = calloc(n, sizeof(struct dealer *));
	if (!beats.keys || !beats.bench.dealers || pipe(fds) < 0 || curve_keys_new(&beats.server, &err) < 0)
		return 1;
	for (size_t i = 0; i < n; i++)
		if (curve_keys_new(&beats.keys[i], &err) < 0)
			return 1;
	child = fork();
	if (child == 0)
		_exit(send_beats(&beats, fds[0]));
	r = child < 0 ? -1 : receive_beats(&beats, fds[1], seconds, &err);
	if (child > 0)
		(void)kill(child, SIGKILL);
	if (r < 0)
		fprintf(stderr, "bench-transport: %s\n", err.msg);
	return r < 0;
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
	if (argc == 3 && atoi(argv[1]) > 0 && atoi(argv[2]) > 0)
		return beats((size_t)atoi(argv[1]), (unsigned int)atoi(argv[2]));
	bench.n = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
	if (bench.n == 0) {
		fprintf(stderr, "usage: bench-transport N [S]\n");
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
