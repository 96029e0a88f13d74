/* SPDX-License-Identifier: Apache-2.0
 *
 * The one wrapper around libzmq: a ROUTER (scheduler) or a DEALER (node) with CURVE on the process's
 * libevent loop. ZMQ_FD is edge-triggered, so this module reads at most 64 messages per turn, arms itself
 * again when it stopped before EAGAIN, and looks at ZMQ_EVENTS after every call on the socket.
 *
 * The peer's identity is its CURVE key as ZAP admitted it; a routing id is only where to send. The ZAP
 * handler (zap.c) runs in a thread of its own before the socket is bound and asks a table that the loop
 * changes under a lock. A socket without an enforced ZAP domain is never bound: ZAP_DISABLED.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct event_base;

#define KEY_Z85_SIZE 41          /* 40 characters and NUL */
#define ENDPOINT_FRAME_MAX (1024 * 1024) /* of one message; a larger one cuts the connection, so to send it is a bug */
#define ROUTE_MAX 16

/* ---- keys (key.c) ---- */
struct curve_keys {
	char public_key[KEY_Z85_SIZE];
	char secret_key[KEY_Z85_SIZE];
};
int curve_keys_new(struct curve_keys *ret, struct err *reterr);
/* CURVE_BAD_KEY for what is not 40 characters of Z85, CURVE_WEAK_KEY for all-zero and published keys. */
int curve_key_check(const char *z85, struct err *reterr);
/* A file "public = ...\nsecret = ...\n", mode 0600; read refuses a wider mode (CURVE_WEAK_KEY). */
int curve_keys_write(const char *path, const struct curve_keys *keys, struct err *reterr);
int curve_keys_read(const char *path, struct curve_keys *ret, struct err *reterr);

/* ---- who may connect (zap.c) ---- */
struct zap; /* thread-safe table: public key -> user id, e.g. "node:<id>", "token:<id>" */
int zap_new(struct zap **ret, void *zmq_context, struct err *reterr); /* starts the handler's thread */
void zap_free(struct zap *zap);
int zap_allow(struct zap *zap, const char *public_key, const char *user_id);
/* To the feed (scheduler/server/feed.h) and nowhere else; who was allowed elsewhere is not to be allowed there: -EEXIST. */
#define ZAP_FEED_DOMAIN "croft-feed"
int zap_allow_feed(struct zap *zap, const char *public_key);
void zap_deny(struct zap *zap, const char *public_key);
/* To be called about once a second. False: the handler's thread has not answered for ZAP_HANGS_USEC, or is gone; nobody new
 * gets in meanwhile, and connections that are there go on. */
#define ZAP_HANGS_USEC (10 * USEC_PER_SEC)
bool zap_look(struct zap *zap, int64_t now_usec);
uint64_t zap_denied(const struct zap *zap);
uint64_t zap_admitted(const struct zap *zap);

/* ---- the scheduler's side ---- */
struct route {
	uint8_t id[ROUTE_MAX]; /* made by the router */
	size_t size;
};

struct router;
typedef void (*router_on_message)(const struct route *from, const char *user_id, const void *data, size_t size,
	void *user);
enum router_send_result { ROUTER_SENT, ROUTER_NO_CREDIT, ROUTER_GONE };

struct router_config {
	const char *address;      /* "tcp://127.0.0.1:7281"; port 0 or "*": any, see router_address() */
	const char *zap_domain;   /* "croft"; empty: ZAP_DISABLED */
	struct curve_keys keys;
	const char *next_address; /* to listen on as well, with next_keys; NULL: none */
	struct curve_keys next_keys;
	const char *local;        /* name of an abstract unix socket to listen on as well (wire/tunnel.h); NULL: none */
};
int router_new(struct router **ret, struct event_base *base, void *zmq_context, const struct router_config *config,
	router_on_message on_message, void *user, struct err *reterr);
void router_free(struct router *router);
const char *router_address(const struct router *router); /* as bound, with the real port */
/* Non-blocking. NO_CREDIT: the peer's queue is full, try later; GONE: no such route. Data is copied. */
enum router_send_result router_send(struct router *router, const struct route *to, const void *data, size_t size);
/* Within on_message(): nobody waits for what comes of this message, so that those behind it may be read some at a time. */
void router_is_lazy(struct router *router);
uint64_t router_dropped(const struct router *router); /* bodies without a User-Id, over-long frames */

/* ---- the node's side ---- */
struct dealer;
enum dealer_state { DEALER_CONNECTING, DEALER_UP, DEALER_REFUSED, DEALER_DOWN };
struct dealer_handler {
	void (*on_message)(const void *data, size_t size, void *user);
	/* UP: the handshake succeeded. REFUSED: ZAP said no (it tries again by itself, slowly). DOWN: cut. */
	void (*on_state)(enum dealer_state state, void *user);
};
struct dealer_config {
	const char *address;         /* "tcp://host:7281"; its name is looked up for each attempt */
	const char *socks_proxy;     /* "host:port" of a SOCKS5 proxy, which looks the name up; NULL: none */
	char server_key[KEY_Z85_SIZE];
	struct curve_keys keys;
	int64_t backoff_min_usec;    /* default 1 s */
	int64_t backoff_max_usec;    /* default 60 s */
};
int dealer_new(struct dealer **ret, struct event_base *base, void *zmq_context, const struct dealer_config *config,
	const struct dealer_handler *handler, void *user, struct err *reterr);
void dealer_free(struct dealer *dealer);
/* true: queued; false: not connected or no credit. Data is copied. */
bool dealer_send(struct dealer *dealer, const void *data, size_t size);
enum dealer_state dealer_state(const struct dealer *dealer);
/* Drops the socket and makes a new one after the back-off (used when the peer is silent). */
void dealer_reconnect(struct dealer *dealer);
