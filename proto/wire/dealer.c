/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's side of the link, see endpoint.h. libzmq's own reconnecting is off: it has almost no jitter, and
 * after a refusal it never tries again. A monitor socket tells what became of the connection; each attempt is
 * a new socket, after a pause of [0, backoff] that doubles up to the limit and falls back when the peer has
 * said something.
 *
 *   CONNECTING --handshake--> UP --cut--> DOWN --pause--> CONNECTING
 *       |---refused by ZAP--> REFUSED --long pause--> CONNECTING
 */
#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/rng.h"
#include "wire/endpoint.h"
#include "wire/socket.h"

#define BACKOFF_MIN USEC_PER_SEC
#define BACKOFF_MAX (60 * USEC_PER_SEC)
/* ZMTP's own: finds a scheduler that hangs. (One that is gone is found by TCP, which has our heartbeats to deliver.) Each costs
 * the scheduler as much as ten of ours: it has to answer. A ROUTER has none: libzmq looks at the timers of all its peers for
 * each message that ends one, and nodes have heartbeats of their own. */
#define HEARTBEAT_MS 30000
#define HEARTBEAT_TIMEOUT_MS 30000
#define PATIENCE_MS 12000      /* for the handshake: a scheduler that was started again has a whole fleet to greet */
#define CONNECT_DEADLINE_S 20  /* of an attempt; libzmq's own limits should end it before */
#define BACKOFF_FLOOR_SHARE 10 /* never less than a tenth of the shortest: no hot loop on an unlucky draw */

struct dealer {
	struct event_base *base; /* borrowed */
	void *context;           /* borrowed */
	struct socket link;
	struct socket monitor;
	struct event *retry; /* the pause, or the deadline of an attempt */
	struct dealer_handler handler;
	void *user;
	char *address, *socks_proxy;
	char server_key[KEY_Z85_SIZE];
	struct curve_keys keys;
	int64_t backoff_min, backoff_max, backoff;
	struct rng rng;
	enum dealer_state state;
};

static int connect_now(struct dealer *dealer);

/* The monitor is stopped first, while its other end lives: libzmq's I/O thread sends events blocking, and one
 * event to an end that is closed already stops that thread, and with it every socket, for good. */
static void drop_sockets(struct dealer *dealer)
{
	if (dealer->link.zmq)
		(void) zmq_socket_monitor(dealer->link.zmq, NULL, 0);
	socket_close(&dealer->link);
	socket_close(&dealer->monitor);
}

static void retry_later(struct dealer *dealer)
{
	int64_t pause = (int64_t) rng_below(&dealer->rng, (uint64_t) dealer->backoff + 1);
	struct timeval tv;

	pause = MAX(pause, dealer->backoff_min / BACKOFF_FLOOR_SHARE);
	dealer->backoff = MIN(dealer->backoff * 2, dealer->backoff_max);
	tv = (struct timeval) { .tv_sec = pause / USEC_PER_SEC, .tv_usec = pause % USEC_PER_SEC };
	(void) evtimer_add(dealer->retry, &tv);
}

/* Tells last: the handler may free the dealer. */
static void move(struct dealer *dealer, enum dealer_state state)
{
	if (dealer->state == state)
		return;
	dealer->state = state;
	if (state == DEALER_UP)
		(void) evtimer_del(dealer->retry); /* the attempt's deadline */
	if (dealer->handler.on_state && state != DEALER_CONNECTING)
		dealer->handler.on_state(state, dealer->user);
}

static void on_cut(struct dealer *dealer, enum dealer_state state)
{
	drop_sockets(dealer);
	if (state == DEALER_REFUSED)
		dealer->backoff = dealer->backoff_max;
	retry_later(dealer);
	move(dealer, state);
}

static void on_retry(evutil_socket_t fd, short what, void *user)
{
	struct dealer *dealer = user;

	(void) fd;
	(void) what;
	if (dealer->state == DEALER_CONNECTING) { /* the attempt's deadline */
		on_cut(dealer, DEALER_DOWN);
		return;
	}
	dealer->state = DEALER_CONNECTING;
	if (connect_now(dealer) < 0)
		on_cut(dealer, DEALER_DOWN);
}

/* ---- input ---- */

static bool on_input(void *user)
{
	struct dealer *dealer = user;
	zmq_msg_t msg;
	bool whole = true;

	(void) zmq_msg_init(&msg);
	if (zmq_msg_recv(&msg, dealer->link.zmq, ZMQ_DONTWAIT) < 0) {
		(void) zmq_msg_close(&msg);
		return false;
	}
	while (zmq_msg_more(&msg)) { /* ours never has a second part */
		whole = false;
		if (zmq_msg_recv(&msg, dealer->link.zmq, ZMQ_DONTWAIT) < 0)
			break;
	}
	if (whole) {
		dealer->backoff = dealer->backoff_min;
		dealer->handler.on_message(zmq_msg_data(&msg), zmq_msg_size(&msg), dealer->user);
	}
	(void) zmq_msg_close(&msg);
	return true;
}

static void on_event(struct dealer *dealer, unsigned int event)
{
	switch (event) {
	case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
		socket_touch(&dealer->link);
		move(dealer, DEALER_UP);
		break;
	case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
		on_cut(dealer, DEALER_REFUSED);
		break;
	case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
	case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
	case ZMQ_EVENT_CLOSED:
	case ZMQ_EVENT_DISCONNECTED:
		on_cut(dealer, DEALER_DOWN);
		break;
	default:
		break;
	}
}

/* [event 16 bit, value 32 bit][address] */
static bool on_monitor(void *user)
{
	struct dealer *dealer = user;
	uint16_t event = 0;
	zmq_msg_t msg;
	bool got;

	(void) zmq_msg_init(&msg);
	got = zmq_msg_recv(&msg, dealer->monitor.zmq, ZMQ_DONTWAIT) >= 0;
	if (got && zmq_msg_size(&msg) >= sizeof(event))
		memcpy(&event, zmq_msg_data(&msg), sizeof(event));
	while (got && zmq_msg_more(&msg))
		if (zmq_msg_recv(&msg, dealer->monitor.zmq, ZMQ_DONTWAIT) < 0)
			break;
	(void) zmq_msg_close(&msg);
	if (got)
		on_event(dealer, event);
	return got;
}

/* ---- an attempt ---- */

static int set_options(struct dealer *dealer)
{
	struct socket *link = &dealer->link;
	int r = socket_set_limits(link);

	if (r == 0)
		r = socket_set_int(link, ZMQ_HANDSHAKE_IVL, PATIENCE_MS);
	if (r == 0)
		r = socket_set_int(link, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS);
	if (r == 0)
		r = socket_set_int(link, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS);
	if (r == 0)
		r = socket_set_int(link, ZMQ_RECONNECT_IVL, -1);
	if (r == 0)
		r = socket_set_int(link, ZMQ_IMMEDIATE, 1); /* nothing is queued for a peer that is not there */
	if (r == 0 && (zmq_setsockopt(link->zmq, ZMQ_CURVE_SERVERKEY, dealer->server_key, KEY_Z85_SIZE) < 0 ||
			      zmq_setsockopt(link->zmq, ZMQ_CURVE_PUBLICKEY, dealer->keys.public_key,
				      KEY_Z85_SIZE) < 0 ||
			      zmq_setsockopt(link->zmq, ZMQ_CURVE_SECRETKEY, dealer->keys.secret_key,
				      KEY_Z85_SIZE) < 0))
		r = -errno;
	if (r == 0 && dealer->socks_proxy &&
		zmq_setsockopt(link->zmq, ZMQ_SOCKS_PROXY, dealer->socks_proxy, strlen(dealer->socks_proxy)) < 0)
		r = -errno;
	return r;
}

/* Our end first: with nobody at the other end, the loop would wait for ever when it stops the monitor. */
static int watch_monitor(struct dealer *dealer)
{
	char name[80];
	int r;

	/* never a name again: libzmq frees that of a closed socket in its own time, and memory comes back at the same address */
	(void) snprintf(name, sizeof(name), "inproc://croft-dealer-%016" PRIx64, rng_u64(&dealer->rng));
	r = socket_open(&dealer->monitor, dealer->context, ZMQ_PAIR);
	if (r == 0)
		r = socket_set_int(&dealer->monitor, ZMQ_LINGER, 0);
	if (r < 0)
		return r;
	if (zmq_connect(dealer->monitor.zmq, name) < 0 ||
		zmq_socket_monitor(dealer->link.zmq, name, ZMQ_EVENT_ALL) < 0)
		return -errno;
	return socket_watch(&dealer->monitor, dealer->base, on_monitor, dealer);
}

static int connect_now(struct dealer *dealer)
{
	const struct timeval deadline = { CONNECT_DEADLINE_S, 0 };
	int r;

	r = socket_open(&dealer->link, dealer->context, ZMQ_DEALER);
	if (r == 0)
		r = set_options(dealer);
	if (r == 0)
		r = watch_monitor(dealer);
	if (r == 0)
		r = socket_watch(&dealer->link, dealer->base, on_input, dealer);
	if (r == 0 && zmq_connect(dealer->link.zmq, dealer->address) < 0)
		r = -errno;
	if (r < 0) {
		drop_sockets(dealer);
		return r;
	}
	(void) evtimer_add(dealer->retry, &deadline);
	socket_touch(&dealer->link);
	return 0;
}

/* ---- the object ---- */

static int check_keys(const struct dealer_config *config, struct err *reterr)
{
	int r = curve_key_check(config->server_key, reterr);

	if (r == 0)
		r = curve_key_check(config->keys.public_key, reterr);
	if (r == 0)
		r = curve_key_check(config->keys.secret_key, reterr);
	return r;
}

int dealer_new(struct dealer **ret, struct event_base *base, void *zmq_context, const struct dealer_config *config,
	const struct dealer_handler *handler, void *user, struct err *reterr)
{
	struct dealer *dealer;
	int r = check_keys(config, reterr);

	if (r < 0)
		return r;
	dealer = calloc(1, sizeof(*dealer));
	if (!dealer)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the link");
	dealer->base = base;
	dealer->context = zmq_context;
	dealer->handler = *handler;
	dealer->user = user;
	dealer->address = strdup(config->address);
	dealer->socks_proxy = config->socks_proxy ? strdup(config->socks_proxy) : NULL;
	memcpy(dealer->server_key, config->server_key, sizeof(dealer->server_key));
	dealer->keys = config->keys;
	dealer->backoff_min = config->backoff_min_usec > 0 ? config->backoff_min_usec : BACKOFF_MIN;
	dealer->backoff_max = MAX(config->backoff_max_usec > 0 ? config->backoff_max_usec : BACKOFF_MAX,
		dealer->backoff_min);
	dealer->backoff = dealer->backoff_min;
	dealer->rng = rng_system();
	dealer->retry = evtimer_new(base, on_retry, dealer);
	if (!dealer->address || !dealer->retry || (config->socks_proxy && !dealer->socks_proxy)) {
		dealer_free(dealer);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the link");
	}
	r = connect_now(dealer);
	if (r < 0) {
		dealer_free(dealer);
		return err_set(reterr, FAIL_LINK_UNREACHABLE, -r, "cannot connect to %s", config->address);
	}
	*ret = dealer;
	return 0;
}

void dealer_free(struct dealer *dealer)
{
	if (!dealer)
		return;
	drop_sockets(dealer);
	if (dealer->retry)
		event_free(dealer->retry);
	free(dealer->address);
	free(dealer->socks_proxy);
	explicit_bzero(&dealer->keys, sizeof(dealer->keys));
	free(dealer);
}

bool dealer_send(struct dealer *dealer, const void *data, size_t size)
{
	bool sent;

	assert(size <= ENDPOINT_FRAME_MAX);
	if (dealer->state != DEALER_UP)
		return false;
	sent = zmq_send(dealer->link.zmq, data, size, ZMQ_DONTWAIT) >= 0;
	socket_touch(&dealer->link);
	return sent;
}

enum dealer_state dealer_state(const struct dealer *dealer)
{
	return dealer->state;
}

void dealer_reconnect(struct dealer *dealer)
{
	if (dealer->state == DEALER_CONNECTING || dealer->state == DEALER_UP)
		on_cut(dealer, DEALER_DOWN); /* else the pause is under way already */
}
