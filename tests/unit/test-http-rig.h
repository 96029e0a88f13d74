/* SPDX-License-Identifier: Apache-2.0
 *
 * The rig of test-http.c and test-http-client.c: a server with a table of routes, a client, and a raw
 * connection, all on one loop.
 */
#pragma once

#include <check.h>
#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "lib/loop.h"
#include "wire/http-client.h"
#include "wire/http-server.h"

#define MIB (1024u * 1024u)

/* What the handler does with a path is a row of `routes`. */
struct world {
	struct event_base *base;
	struct http_server *server;
	struct http_client *client;
	char unix_path[64];
	char url[64];

	/* server's side */
	unsigned int requests, closed;
	bool all_closed;
	struct http_request *waiting;
	bool has_waiting;
	char path[128], target[128], query_x[64], query_y[64];
	uint64_t received, refused, produced, to_produce;
	unsigned int sum;
	bool hold;           /* refuse every piece of the body */
	bool end_seen;
	char body[256];

	/* client's side */
	bool done;
	bool failed;
	struct err err;
	int status;
	uint64_t sent, to_send, taken;
	uint64_t worst; /* most bytes under way between the two */
	char answer[512];
};

struct raw {
	struct bufferevent *bev;
	char text[2048];
	size_t size;
	bool answered; /* something came */
	bool ended;
};

/* Opens server and client; world_close() asserts that each request was closed exactly once. */
void world_open(struct world *world, bool over_unix);
void world_close(struct world *world);
extern const struct http_handler rig_handler;

/* The byte at place i of every streamed body. */
unsigned char rig_pattern(uint64_t i);
void rig_again_soon(struct event_base *base, event_callback_fn fn, void *user);

/* The client: rig_start() fills in URL, unix path, user and defaults. */
struct http_call *rig_start(struct world *world, struct http_call_config *config, const char *path);
void rig_get(struct world *world, const char *path);
void rig_on_done(struct http_call *call, const struct err *err, void *user);
long rig_on_upload(struct http_call *call, void *buf, size_t room, void *user);
void rig_wake_call(evutil_socket_t fd, short what, void *user);

void raw_open(struct raw *raw, struct world *world, const char *text);
void raw_close(struct raw *raw);
