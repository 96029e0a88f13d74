/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of croft-guest's service: the service and a client of guest.proto in one thread, turn by turn, over
 * socket pairs. Every function fails the running test rather than returning an error.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "guest/server.h"
#include "pb/guest.pb-c.h"

/* Not the generated ..._INIT: it casts const away, which clang warns of. */
#define MESSAGE(type, init)                                                                        \
	__extension__({                                                                            \
		type message_;                                                                     \
		init(&message_);                                                                   \
		message_;                                                                          \
	})

struct fixture {
	struct server server;
	char user[16];
	char dir[32];
};

struct client {
	int fd;
	struct buf in;
};

struct command {
	const char *script; /* run by sh -c, or ... */
	const char *cmd;    /* ... a program without arguments */
	const char *cwd, *user, *tag, *traceparent;
	Croft__GuestEnv *env;
	bool wants_stdin;
	uint32_t cols, rows;
	uint64_t timeout_ms;
};

struct result {
	struct buf out[4]; /* by GuestStream */
	uint64_t lost;
	bool exited, timed_out, out_of_memory;
	int exit_code;
	uint32_t signal;
};

#define STDOUT CROFT__GUEST_STREAM__GUEST_STREAM_STDOUT
#define STDERR CROFT__GUEST_STREAM__GUEST_STREAM_STDERR
#define PTY CROFT__GUEST_STREAM__GUEST_STREAM_PTY

extern struct fixture fx;

void setup(void);
void teardown(void);
struct client client_new(void);
void client_close(struct client *client);
void turn(void);
void client_send_bytes(struct client *client, const void *data, size_t size);
void client_send(struct client *client, const Croft__GuestRequest *request);
bool client_read(struct client *client);
Croft__GuestEvent *client_take(struct client *client);
Croft__GuestEvent *client_next(struct client *client);
void event_free(Croft__GuestEvent *event);
void expect_closed(struct client *client);
void expect_failure(struct client *client, const char *code);
void expect_failure_of(struct client *client, const char *one, const char *other);
void expect_done(struct client *client);
uint32_t expect_started(struct client *client);
char *text(const char *t);
struct client start(const struct command *command);
struct client start_script(const char *script);
struct client attach(uint32_t pid, const char *tag);
void send_input(struct client *client, uint32_t pid, const void *data, size_t size);
void send_close_stdin(struct client *client, uint32_t pid);
void send_signal(struct client *client, uint32_t pid, const char *tag, uint32_t signal);
void send_resize(struct client *client, uint32_t pid, uint32_t cols, uint32_t rows);
void collect_init(struct result *result);
bool collect_one(struct result *result, Croft__GuestEvent *event);
void collect(struct client *client, struct result *result);
void finish(struct client *client, struct result *result);
void result_free(struct result *result);
void expect_output(const struct result *result, int stream, const char *expected);
void run(const struct command *command, struct result *result);
void read_until(struct client *client, struct result *result, int stream, const char *needle);
