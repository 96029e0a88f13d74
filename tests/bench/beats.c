/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-beats N S    the least that heartbeats can cost a receiver: N dealers of other processes, each with a connection of its own,
 *                    send 40 bytes a second for S seconds to a ROUTER that drops them: CURVE, libzmq, the kernel and the loop, and
 *                    nothing of a scheduler.
 *
 * Prints one line: `usec_each U messages_per_second M user_usec U sys_usec S loop_usec L switches_each C`: the receiver's CPU time a
 * message, what of it was its own and the kernel's, what of it the thread of the loop took (the rest is libzmq's thread), and
 * how often one of its threads went to sleep.
 *
 * A dealer takes four descriptors, so they are spread over processes; a few of each are under way to their handshake at a time, since thousands
 * at once run out of theirs. Whatever does not go on for a minute ends the bench with its reason.
 */
#include <errno.h>
#include <event2/event.h>
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

#define BEAT_SIZE 40
#define TICK_MSEC 10
#define TICKS 100 /* a second */
#define A_SENDER 1250
#define DIALS 8
#define STUCK_SEC 60

struct sender {
	struct event_base *base;
	struct dealer **dealers;
	const struct curve_keys *keys;
	struct dealer_config config;
	void *zmq;
	size_t n, n_begun, n_up, turn;
	int parent;
};

struct receiver {
	struct event_base *base;
	struct router *router;
	struct curve_keys server, *keys;
	struct zap *zap;
	struct event *stuck;
	size_t n, n_senders, n_ready, n_messages;
	uint64_t last;
};

static void fatal(const char *what)
{
	fprintf(stderr, "bench-beats: %s: %s\n", what, strerror(errno));
	_exit(1); /* ends the process: a bench that cannot go on measures nothing, and its senders end with it */
}

/* ---- a process of senders ---- */
static void on_message(const void *data, size_t size, void *user)
{
	(void)data, (void)size, (void)user;
}

static void on_state(enum dealer_state state, void *user)
{
	struct sender *sender = user;

	if (state == DEALER_REFUSED)
		fatal("a sender was refused");
	if (state == DEALER_UP && ++sender->n_up == sender->n && write(sender->parent, "u", 1) != 1)
		fatal("pipe");
	if (state == DEALER_DOWN && sender->n_up > 0) /* one that was not up yet is counted too: more of them dial then, which harms nothing */
		sender->n_up--;
}

static void begin_some(struct sender *sender)
{
	const struct dealer_handler handler = { on_message, on_state };
	struct err err = ERR_NULL;

	for (; sender->n_begun < MIN(sender->n, sender->n_up + DIALS); sender->n_begun++) {
		sender->config.keys = sender->keys[sender->n_begun];
		if (dealer_new(&sender->dealers[sender->n_begun], sender->base, sender->zmq, &sender->config, &handler,
			    sender, &err) < 0)
			fatal(err.msg);
	}
}

static void on_beat(evutil_socket_t fd, short what, void *user)
{
	static const char beat[BEAT_SIZE];
	struct sender *sender = user;

	(void)fd, (void)what;
	begin_some(sender);
	for (size_t i = sender->turn++ % TICKS; i < sender->n_begun; i += TICKS)
		(void)dealer_send(sender->dealers[i], beat, sizeof(beat)); /* one that is not up yet sends nothing */
}

static void send_beats(const struct receiver *receiver, size_t first, int address_fd, int parent)
{
	const struct timeval every = { .tv_usec = TICK_MSEC * 1000 };
	struct sender sender = { .n = MIN((size_t)A_SENDER, receiver->n - first), .keys = receiver->keys + first, .parent = parent };
	char address[256] = "";
	struct event *tick;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(address_fd, address, sizeof(address) - 1) <= 0)
		fatal("no address");
	sender.config.address = address;
	memcpy(sender.config.server_key, receiver->server.public_key, sizeof(sender.config.server_key));
	sender.zmq = zmq_ctx_new();
	sender.base = event_base_new();
	sender.dealers = calloc(sender.n, sizeof(*sender.dealers));
	if (!sender.zmq || !sender.base || !sender.dealers || zmq_ctx_set(sender.zmq, ZMQ_MAX_SOCKETS, A_SENDER * 4 + 64) < 0)
		fatal("no memory");
	tick = event_new(sender.base, -1, EV_PERSIST, on_beat, &sender);
	if (!tick || event_add(tick, &every) < 0)
		fatal("no memory");
	(void)event_base_dispatch(sender.base);
}

/* ---- the receiver ---- */
static void on_input(const struct route *from, const char *user_id, const void *data, size_t size, void *user)
{
	struct receiver *receiver = user;

	(void)from, (void)user_id, (void)data, (void)size;
	receiver->n_messages++;
	router_is_lazy(receiver->router);
}

static void on_sender(evutil_socket_t fd, short what, void *user)
{
	struct receiver *receiver = user;
	char c;

	(void)what;
	errno = 0;
	if (read(fd, &c, 1) != 1)
		fatal("a sender ended");
	if (++receiver->n_ready == receiver->n_senders)
		(void)event_base_loopbreak(receiver->base);
}

static void on_stuck(evutil_socket_t fd, short what, void *user)
{
	struct receiver *receiver = user;
	uint64_t now = zap_admitted(receiver->zap);

	(void)fd, (void)what;
	if (now == receiver->last) {
		fprintf(stderr, "bench-beats: %zu of %zu processes are connected, and no handshake for %d s\n", receiver->n_ready,
			receiver->n_senders, STUCK_SEC);
		_exit(1); /* ends the process */
	}
	receiver->last = now;
}

static void start_sender(struct receiver *receiver, size_t first, int address_fd)
{
	struct event *event;
	int fds[2];
	pid_t child;

	if (pipe(fds) < 0)
		fatal("pipe");
	child = fork();
	if (child < 0)
		fatal("fork");
	if (child == 0) {
		send_beats(receiver, first, address_fd, fds[1]);
		fatal("the loop ended");
	}
	(void)close(fds[1]);
	event = event_new(receiver->base, fds[0], EV_READ | EV_PERSIST, on_sender, receiver);
	if (!event || event_add(event, NULL) < 0)
		fatal("no memory");
}

/* Forks before there are threads; each sender waits at the pipe for the router's address. */
static void start_senders(struct receiver *receiver, int address[2])
{
	if (pipe(address) < 0 || !receiver->base)
		fatal("pipe");
	for (size_t first = 0; first < receiver->n; first += A_SENDER) {
		start_sender(receiver, first, address[0]);
		receiver->n_senders++;
	}
}

static void open_router(struct receiver *receiver, int address_fd)
{
	struct router_config config = { .address = "tcp://127.0.0.1:*", .zap_domain = "croft", .keys = receiver->server };
	void *zmq = zmq_ctx_new();
	struct err err = ERR_NULL;
	char address[256] = "";
	int r = zap_new(&receiver->zap, zmq, &err);

	for (size_t i = 0; r >= 0 && i < receiver->n; i++)
		r = zap_allow(receiver->zap, receiver->keys[i].public_key, "node:bench");
	if (r >= 0)
		r = router_new(&receiver->router, receiver->base, zmq, &config, on_input, receiver, &err);
	if (r < 0)
		fatal(err.msg);
	(void)snprintf(address, sizeof(address), "%s", router_address(receiver->router));
	for (size_t i = 0; i < receiver->n_senders; i++) /* one size for each: what one reads is whole */
		if (write(address_fd, address, sizeof(address) - 1) < 0)
			fatal("pipe");
}

static double cpu_usec(int who, struct rusage *usage)
{
	(void)getrusage(who, usage);
	return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1e6 +
	       (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

static double sys_usec(const struct rusage *usage)
{
	return (double)usage->ru_stime.tv_sec * 1e6 + (double)usage->ru_stime.tv_usec;
}

static void loop_for(struct receiver *receiver, unsigned int seconds)
{
	const struct timeval time = { .tv_sec = seconds };

	(void)event_base_loopexit(receiver->base, &time);
	(void)event_base_dispatch(receiver->base);
}

static void measure(struct receiver *receiver, unsigned int seconds)
{
	struct rusage all[2], loop[2];
	double cpu, own, sys, n;
	size_t before;

	loop_for(receiver, 2); /* what the handshakes left behind */
	before = receiver->n_messages;
	own = cpu_usec(RUSAGE_THREAD, &loop[0]);
	cpu = cpu_usec(RUSAGE_SELF, &all[0]);
	loop_for(receiver, seconds);
	cpu = cpu_usec(RUSAGE_SELF, &all[1]) - cpu;
	own = cpu_usec(RUSAGE_THREAD, &loop[1]) - own;
	sys = sys_usec(&all[1]) - sys_usec(&all[0]);
	n = (double)MAX(receiver->n_messages - before, 1u);
	printf("usec_each %.1f messages_per_second %.0f user_usec %.1f sys_usec %.1f loop_usec %.1f switches_each %.2f\n", cpu / n,
		n / seconds, (cpu - sys) / n, sys / n, own / n, (double)(all[1].ru_nvcsw - all[0].ru_nvcsw) / n);
	(void)fflush(stdout);
}

int main(int argc, char **argv)
{
	const struct timeval stuck = { .tv_sec = STUCK_SEC };
	struct receiver receiver = { .n = argc == 3 ? strtoul(argv[1], NULL, 10) : 0 };
	struct err err = ERR_NULL;
	int address[2];

	log_init("bench-beats", LOG_LEVEL_ERROR);
	if (receiver.n == 0 || atoi(argv[2]) <= 0) {
		fprintf(stderr, "usage: bench-beats N S\n");
		return 2;
	}
	receiver.base = event_base_new();
	receiver.keys = calloc(receiver.n, sizeof(*receiver.keys)); /* for the life of the process */
	if (!receiver.keys || curve_keys_new(&receiver.server, &err) < 0)
		fatal("no keys");
	for (size_t i = 0; i < receiver.n; i++)
		if (curve_keys_new(&receiver.keys[i], &err) < 0)
			fatal(err.msg);
	start_senders(&receiver, address);
	open_router(&receiver, address[1]);
	receiver.stuck = event_new(receiver.base, -1, EV_PERSIST, on_stuck, &receiver);
	if (!receiver.stuck || event_add(receiver.stuck, &stuck) < 0)
		fatal("no memory");
	(void)event_base_dispatch(receiver.base);
	(void)event_del(receiver.stuck);
	measure(&receiver, (unsigned int)atoi(argv[2]));
	_exit(0); /* ends the process, and its senders with it: nothing of it is worth an orderly end of thousands of sockets */
}
