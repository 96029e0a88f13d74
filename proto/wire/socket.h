/* SPDX-License-Identifier: Apache-2.0
 *
 * What router.c and dealer.c share: a ZeroMQ socket as an event of the loop.
 *
 * ZMQ_FD signals a change, not a state: a message that is there already does not signal again, and every call
 * on the socket (a send too) may swallow the signal. So input is read in turns of at most TURN_MAX messages,
 * and socket_touch() follows every other call: it looks at ZMQ_EVENTS and books a turn when something waits.
 *
 * Each wake costs some system calls on both sides, more than a small message does. Behind a turn whose messages nobody waited
 * for (socket_is_lazy()), a signal that comes within GATHER_USEC waits for that long, and what comes meanwhile is read with it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define OPTION_ZAP_ENFORCE_DOMAIN 93 /* in libzmq 4.3.4 and in no header of Debian's */

struct event_base;
struct event;

struct socket {
	void *zmq;             /* NULL: closed */
	struct event *signal;  /* on ZMQ_FD */
	struct event *turn;    /* "at once" */
	bool *closed;          /* of the turn that is under way */
	int64_t turned_usec;   /* when the last turn ended */
	unsigned int n_lazy;   /* messages of this turn that nobody waits for */
	bool was_lazy;         /* all of the last turn were */
	bool gathers;          /* the signal is not listened to until the next turn */
	/* Reads one message and hands it on; false: none was there. May close the socket. */
	bool (*on_input)(void *user);
	void *user;
};

/* Options first, then socket_watch(). 0 or -errno. */
int socket_open(struct socket *socket, void *zmq_context, int type);
int socket_watch(struct socket *socket, struct event_base *base, bool (*on_input)(void *user), void *user);
void socket_touch(struct socket *socket);
/* Nobody waits for what comes of the message that on_input() is handing on. */
void socket_is_lazy(struct socket *socket);
/* May be called twice and on a zeroed struct. */
void socket_close(struct socket *socket);
int socket_set_int(struct socket *socket, int option, int value);

/* Limits that both sides of the link set: LINGER, MAXMSGSIZE, HANDSHAKE_IVL, HWMs, keepalive. */
int socket_set_limits(struct socket *socket);
