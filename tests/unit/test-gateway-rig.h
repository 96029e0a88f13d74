/* SPDX-License-Identifier: Apache-2.0
 *
 * A gateway on a loop of its own with a fake VMM and guest behind it (a unix listener that speaks CONNECT and
 * guest.proto) and real HTTP over loopback in front. What the fake guest does is chosen by the command's name.
 */
#pragma once

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "gateway/gateway.h"
#include "wire/http-client.h"

#define RIG_SANDBOX "aaaaaaaaaaaaaaaaaaaa"
#define RIG_STARTING "bbbbbbbbbbbbbbbbbbbb"
#define RIG_DEAD "cccccccccccccccccccc" /* a route whose socket nobody listens on */
#define RIG_GONE "dddddddddddddddddddd"
#define RIG_TOKEN "secret-token"
#define RIG_BIG (10u * 1024 * 1024)

/* What the guest got, as text: "start cmd=echo args=a,b env=A=1 cwd=/ user=u stdin=1 pty=80x24 tag=t timeout=0". */
struct rig_seen {
	char text[2048];
	char traceparent[64];
	struct buf input; /* all bytes of Input */
	unsigned int n_requests, n_inputs;
};

struct rig {
	struct event_base *base;
	struct gateway_options options;
	struct gateway *gateway;
	struct http_client *client;
	char run[64];
	char vsock[96];
	struct event *accept, *tick;
	int listen_fd;
	struct rig_seen seen;
	uint64_t written;    /* bytes that the fake guest got rid of */
	unsigned int n_open; /* connections of the fake guest */
	int64_t deadline_us;
};

void rig_init(struct rig *rig);
void rig_deinit(struct rig *rig);
/* One turn of the loop; fails the test after 20 s in all. */
void rig_turn(struct rig *rig);
#define rig_until(rig, condition)                                                                  \
	do {                                                                                       \
		while (!(condition))                                                               \
			rig_turn(rig);                                                             \
	} while (0)
/* Runs the loop for about this long. */
void rig_rest(struct rig *rig, int ms);
void rig_set_route(struct rig *rig, const char *sandbox, const char *path, const char *token, bool ready);
void rig_remove_route(struct rig *rig, const char *sandbox);

/* ---- client ---- */

struct reply {
	struct rig *rig;
	struct http_call *call;
	int status;
	char *content_type, *traceparent;
	struct buf body;
	uint64_t received;
	bool done, failed;
	bool holds;  /* take nothing of the body */
};

struct ask {
	const char *method, *path, *body;
	size_t body_size;          /* 0: strlen */
	const char *content_type;
	const char *sandbox, *port, *token, *host; /* NULL: not sent */
	const char *extra[8];      /* name, value, ..., NULL */
	bool to_unix;
};

/* Starts a request; the reply lives until reply_free(). */
struct reply *rig_start(struct rig *rig, const struct ask *ask);
/* Starts and waits for the end. */
struct reply *rig_ask(struct rig *rig, const struct ask *ask);
void reply_free(struct reply *reply);

/* POST of a unary or stream method to RIG_SANDBOX with its token. */
struct reply *rig_unary(struct rig *rig, const char *method, const char *json);
struct reply *rig_stream(struct rig *rig, const char *method, const char *json, const char *const *extra);
struct reply *rig_stream_start(struct rig *rig, const char *method, const char *json, const char *const *extra);

/* Frame `i` of a stream's body: its payload as a new string, its flags; NULL when it is not there (yet). */
char *reply_frame(const struct reply *reply, unsigned int i, unsigned int *ret_flags);
unsigned int reply_frames(const struct reply *reply);
/* All bytes of `stream` ("stdout") in the data events. */
uint8_t *reply_output(const struct reply *reply, const char *stream, size_t *ret_size);
/* The failure code in a REST, unary or stream error; "" when there is none. */
const char *reply_failure(const struct reply *reply, char *buf, size_t size);
/* The Connect code of the last frame's error; "" for a clean end, NULL when there is no end frame. */
const char *reply_end(const struct reply *reply, char *buf, size_t size);
uint8_t rig_big_byte(size_t i);
