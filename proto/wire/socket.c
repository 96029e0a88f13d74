/* SPDX-License-Identifier: Apache-2.0
 *
 * See socket.h.
 */
#include "wire/socket.h"

#include <errno.h>
#include <event2/event.h>
#include <stdint.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/util.h"
#include "wire/endpoint.h"

#define TURN_MAX 64
#define GATHER_USEC 1000
#define QUEUE_MAX 256           /* messages per peer and direction */
#define HANDSHAKE_MS 5000
#define CURVE_OVERHEAD 64       /* of a message: command name, nonce, flags, tag come to 33; the limit counts them */
/* A peer that is gone without a word: the kernel finds out, whether something was sent to it or not. */
#define KEEPALIVE_IDLE_S 15
#define KEEPALIVE_STEP_S 5
#define KEEPALIVE_STEPS 3
#define UNANSWERED_MS 30000

int socket_open(struct socket *socket, void *zmq_context, int type)
{
	*socket = (struct socket) { .zmq = zmq_socket(zmq_context, type) };
	return socket->zmq ? 0 : -errno;
}

int socket_set_int(struct socket *socket, int option, int value)
{
	return zmq_setsockopt(socket->zmq, option, &value, sizeof(value)) < 0 ? -errno : 0;
}

int socket_set_limits(struct socket *socket)
{
	static const struct {
		int option;
		int value;
	} options[] = {
		{ ZMQ_LINGER, 0 },
		{ ZMQ_SNDHWM, QUEUE_MAX },
		{ ZMQ_RCVHWM, QUEUE_MAX },
		{ ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS },
		{ ZMQ_TCP_KEEPALIVE, 1 },
		{ ZMQ_TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_S },
		{ ZMQ_TCP_KEEPALIVE_INTVL, KEEPALIVE_STEP_S },
		{ ZMQ_TCP_KEEPALIVE_CNT, KEEPALIVE_STEPS },
		{ ZMQ_TCP_MAXRT, UNANSWERED_MS },
		{ ZMQ_IPV6, 1 },
	};
	int64_t max = ENDPOINT_FRAME_MAX + CURVE_OVERHEAD;

	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		int r = socket_set_int(socket, options[i].option, options[i].value);

		if (r < 0)
			return r;
	}
	return zmq_setsockopt(socket->zmq, ZMQ_MAXMSGSIZE, &max, sizeof(max)) < 0 ? -errno : 0;
}

void socket_touch(struct socket *socket)
{
	static const struct timeval now = { 0, 0 };
	int events = 0;
	size_t size = sizeof(events);

	if (socket->zmq && zmq_getsockopt(socket->zmq, ZMQ_EVENTS, &events, &size) == 0 && (events & ZMQ_POLLIN))
		(void) evtimer_add(socket->turn, &now);
}

void socket_is_lazy(struct socket *socket)
{
	socket->n_lazy++;
}

static const struct timeval gather_time = { 0, GATHER_USEC };

/* Puts a turn off; false: it was not possible, or is not wanted. */
static bool gather(struct socket *socket)
{
	if (!socket->was_lazy || clock_monotonic_usec() - socket->turned_usec >= GATHER_USEC ||
		evtimer_add(socket->turn, &gather_time) < 0)
		return false;
	socket->gathers = event_del(socket->signal) == 0;
	return true;
}

static void on_turn(evutil_socket_t fd, short what, void *user)
{
	struct socket *socket = user;
	bool closed = false, more = true;
	unsigned int n = 0;

	(void) fd;
	if ((what & EV_READ) && gather(socket))
		return;
	socket->closed = &closed;
	socket->n_lazy = 0;
	while (n < TURN_MAX && more) {
		more = socket->on_input(socket->user);
		if (closed)
			return; /* and its memory may be gone */
		n += more;
	}
	socket->closed = NULL;
	socket->was_lazy = n > 0 && socket->n_lazy == n;
	socket->turned_usec = clock_monotonic_usec();
	if (socket->gathers && event_add(socket->signal, NULL) < 0)
		(void) evtimer_add(socket->turn, &gather_time); /* without the signal, by time */
	else
		socket->gathers = false;
	socket_touch(socket);
}

int socket_watch(struct socket *socket, struct event_base *base, bool (*on_input)(void *user), void *user)
{
	int fd = -1;
	size_t size = sizeof(fd);

	if (zmq_getsockopt(socket->zmq, ZMQ_FD, &fd, &size) < 0)
		return -errno;
	socket->on_input = on_input;
	socket->user = user;
	socket->signal = event_new(base, fd, EV_READ | EV_PERSIST, on_turn, socket);
	socket->turn = evtimer_new(base, on_turn, socket);
	if (!socket->signal || !socket->turn || event_add(socket->signal, NULL) < 0)
		return -ENOMEM;
	socket_touch(socket); /* what came before we watched */
	return 0;
}

void socket_close(struct socket *socket)
{
	if (socket->closed)
		*socket->closed = true;
	if (socket->signal)
		event_free(socket->signal);
	if (socket->turn)
		event_free(socket->turn);
	if (socket->zmq)
		(void) zmq_close(socket->zmq);
	*socket = (struct socket) { 0 };
}
