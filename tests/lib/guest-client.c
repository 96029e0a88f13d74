/* SPDX-License-Identifier: Apache-2.0
 *
 * See guest-client.h.
 */
#include "lib/guest-client.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/frame.h"

#define PATIENCE_USEC (20 * USEC_PER_SEC)

struct fixture fx;

void setup(void)
{
	static const struct server_host host = { 0 };

	strcpy(fx.dir, "/tmp/croft-guest-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(fx.dir));
	snprintf(fx.user, sizeof(fx.user), "%u", geteuid());
	ck_assert_int_eq(server_init(&fx.server, "/etc", &host), 0);
}

void teardown(void)
{
	server_deinit(&fx.server);
	ck_assert_int_eq(dir_remove(fx.dir), 0);
}

/* ---- client ---- */

struct client client_new(void)
{
	struct client client = { .in = BUF_NULL(4u << 20) };
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	ck_assert_int_eq(fd_set_nonblock(fds[1]), 0);
	ck_assert_int_eq(server_adopt(&fx.server, fds[0]), 0);
	client.fd = fds[1];
	return client;
}

void client_close(struct client *client)
{
	client->fd = fd_close(client->fd);
	buf_deinit(&client->in);
}

void turn(void)
{
	ck_assert_int_eq(server_turn(&fx.server, 5), 0);
}

void client_send_bytes(struct client *client, const void *data, size_t size)
{
	const char *p = data;

	while (size > 0) {
		ssize_t n = send(client->fd, p, size, MSG_NOSIGNAL);

		if (n > 0) {
			p += n;
			size -= (size_t) n;
		} else {
			ck_assert_int_eq(errno, EAGAIN);
			turn();
		}
	}
}

void client_send(struct client *client, const Croft__GuestRequest *request)
{
	struct buf out = BUF_NULL(4u << 20);
	uint8_t *to;

	ck_assert_int_eq(frame_reserve(&out, croft__guest_request__get_packed_size(request), &to), 0);
	croft__guest_request__pack(request, to);
	client_send_bytes(client, buf_peek(&out), buf_size(&out));
	buf_deinit(&out);
}

/* One read without waiting. False: the end. */
bool client_read(struct client *client)
{
	uint8_t *to;
	ssize_t n;

	ck_assert_int_eq(buf_reserve(&client->in, 65536, &to), 0);
	n = recv(client->fd, to, 65536, 0);
	if (n > 0)
		buf_commit(&client->in, (size_t) n);
	return n > 0 || (n < 0 && errno == EAGAIN);
}

Croft__GuestEvent *client_take(struct client *client)
{
	Croft__GuestEvent *event;
	const uint8_t *data;
	size_t size;

	if (frame_peek(&client->in, 1u << 21, &data, &size) != FRAME_WHOLE)
		return NULL;
	ck_assert_uint_le(size, REQUEST_FRAME_MAX);
	event = croft__guest_event__unpack(NULL, size, data);
	ck_assert_ptr_nonnull(event);
	frame_consume(&client->in, size);
	return event;
}

/* The next event; NULL when the connection ended. */
Croft__GuestEvent *client_next(struct client *client)
{
	int64_t until = clock_monotonic_usec() + PATIENCE_USEC;
	Croft__GuestEvent *event;

	while (!(event = client_take(client))) {
		ck_assert_msg(clock_monotonic_usec() < until, "no event came");
		if (!client_read(client)) {
			event = client_take(client);
			break;
		}
		if (buf_size(&client->in) < FRAME_HEAD)
			turn();
		else if (!(event = client_take(client)))
			turn();
		else
			break;
	}
	return event;
}

void event_free(Croft__GuestEvent *event)
{
	croft__guest_event__free_unpacked(event, NULL);
}

void expect_closed(struct client *client)
{
	ck_assert_ptr_null(client_next(client));
	client_close(client);
}

void expect_failure(struct client *client, const char *code)
{
	Croft__GuestEvent *event = client_next(client);

	ck_assert_ptr_nonnull(event);
	ck_assert_int_eq(event->body_case, CROFT__GUEST_EVENT__BODY_FAILURE);
	ck_assert_str_eq(event->failure->code, code);
	ck_assert_uint_gt(strlen(event->failure->message), 0);
	event_free(event);
	expect_closed(client);
}

/* As expect_failure(), where either of two codes is right. */
void expect_failure_of(struct client *client, const char *one, const char *other)
{
	Croft__GuestEvent *event = client_next(client);

	ck_assert_ptr_nonnull(event);
	ck_assert_int_eq(event->body_case, CROFT__GUEST_EVENT__BODY_FAILURE);
	ck_assert_msg(!strcmp(event->failure->code, one) || !strcmp(event->failure->code, other), "%s",
		event->failure->code);
	event_free(event);
	expect_closed(client);
}

void expect_done(struct client *client)
{
	Croft__GuestEvent *event = client_next(client);

	ck_assert_ptr_nonnull(event);
	ck_assert_int_eq(event->body_case, CROFT__GUEST_EVENT__BODY_DONE);
	event_free(event);
	expect_closed(client);
}

uint32_t expect_started(struct client *client)
{
	Croft__GuestEvent *event = client_next(client);
	uint32_t pid;

	ck_assert_ptr_nonnull(event);
	ck_assert_msg(event->body_case == CROFT__GUEST_EVENT__BODY_STARTED, "%s",
		event->body_case == CROFT__GUEST_EVENT__BODY_FAILURE ? event->failure->message : "other event");
	pid = event->started->pid;
	event_free(event);
	return pid;
}

/* ---- requests ---- */

char *text(const char *t)
{
	return (char *) (uintptr_t) (t ? t : "");
}

struct client start(const struct command *command)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request__init);
	Croft__GuestStart message = MESSAGE(Croft__GuestStart, croft__guest_start__init);
	Croft__GuestPtySize size = MESSAGE(Croft__GuestPtySize, croft__guest_pty_size__init);
	Croft__GuestEnv *env[1] = { command->env };
	char *args[2] = { text("-c"), text(command->script) };
	struct client client = client_new();

	message.cmd = text(command->script ? "/bin/sh" : command->cmd);
	message.args = args;
	message.n_args = command->script ? 2 : 0;
	message.env = env;
	message.n_env = command->env ? 1 : 0;
	message.cwd = text(command->cwd);
	message.user = command->user ? text(command->user) : fx.user;
	message.tag = text(command->tag);
	message.traceparent = text(command->traceparent);
	message.stdin = command->wants_stdin;
	message.timeout_ms = command->timeout_ms;
	size.cols = command->cols;
	size.rows = command->rows;
	if (command->cols)
		message.pty = &size;
	request.body_case = CROFT__GUEST_REQUEST__BODY_START;
	request.start = &message;
	client_send(&client, &request);
	return client;
}

struct client start_script(const char *script)
{
	return start(&(struct command){ .script = script });
}

struct client attach(uint32_t pid, const char *tag)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request__init);
	Croft__GuestConnect message = MESSAGE(Croft__GuestConnect, croft__guest_connect__init);
	struct client client = client_new();

	message.pid = pid;
	message.tag = text(tag);
	request.body_case = CROFT__GUEST_REQUEST__BODY_CONNECT;
	request.connect = &message;
	client_send(&client, &request);
	return client;
}

void send_input(struct client *client, uint32_t pid, const void *data, size_t size)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request__init);
	Croft__GuestInput message = MESSAGE(Croft__GuestInput, croft__guest_input__init);

	message.pid = pid;
	message.data = (ProtobufCBinaryData){ size, (uint8_t *) (uintptr_t) data };
	request.body_case = CROFT__GUEST_REQUEST__BODY_INPUT;
	request.input = &message;
	client_send(client, &request);
}

void send_close_stdin(struct client *client, uint32_t pid)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request__init);
	Croft__GuestCloseStdin message = MESSAGE(Croft__GuestCloseStdin, croft__guest_close_stdin__init);

	message.pid = pid;
	request.body_case = CROFT__GUEST_REQUEST__BODY_CLOSE_STDIN;
	request.close_stdin = &message;
	client_send(client, &request);
}

void send_signal(struct client *client, uint32_t pid, const char *tag, uint32_t signal)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request__init);
	Croft__GuestSignal message = MESSAGE(Croft__GuestSignal, croft__guest_signal__init);

	message.pid = pid;
	message.tag = text(tag);
	message.signal = signal;
	request.body_case = CROFT__GUEST_REQUEST__BODY_SIGNAL;
	request.signal = &message;
	client_send(client, &request);
}

void send_resize(struct client *client, uint32_t pid, uint32_t cols, uint32_t rows)
{
	Croft__GuestRequest request = MESSAGE(Croft__GuestRequest, croft__guest_request__init);
	Croft__GuestResize message = MESSAGE(Croft__GuestResize, croft__guest_resize__init);
	Croft__GuestPtySize size = MESSAGE(Croft__GuestPtySize, croft__guest_pty_size__init);

	size.cols = cols;
	size.rows = rows;
	message.pid = pid;
	message.size = &size;
	request.body_case = CROFT__GUEST_REQUEST__BODY_RESIZE;
	request.resize = &message;
	client_send(client, &request);
}

/* ---- the rest of a process ---- */

void collect_init(struct result *result)
{
	memset(result, 0, sizeof(*result));
	for (size_t i = 0; i < ARRAY_LEN(result->out); i++)
		result->out[i] = (struct buf) BUF_NULL(32u << 20);
}

/* Takes one event; true: it was the end. */
bool collect_one(struct result *result, Croft__GuestEvent *event)
{
	bool is_end = event->body_case == CROFT__GUEST_EVENT__BODY_ENDED;

	if (is_end) {
		result->exited = event->ended->exited;
		result->exit_code = event->ended->exit_code;
		result->signal = event->ended->signal;
		result->timed_out = event->ended->timed_out;
		result->out_of_memory = event->ended->out_of_memory;
	} else {
		ck_assert_int_eq(event->body_case, CROFT__GUEST_EVENT__BODY_DATA);
		ck_assert_uint_le(event->data->data.len, 32768);
		ck_assert_uint_lt(event->data->stream, 4);
		result->lost += event->data->lost;
		ck_assert_int_eq(buf_append(&result->out[event->data->stream], event->data->data.data,
					 event->data->data.len), 0);
	}
	event_free(event);
	return is_end;
}

void collect(struct client *client, struct result *result)
{
	Croft__GuestEvent *event;

	do {
		event = client_next(client);
		ck_assert_ptr_nonnull(event);
	} while (!collect_one(result, event));
	expect_closed(client);
}

void finish(struct client *client, struct result *result)
{
	collect_init(result);
	collect(client, result);
}

void result_free(struct result *result)
{
	for (size_t i = 0; i < ARRAY_LEN(result->out); i++)
		buf_deinit(&result->out[i]);
}

void expect_output(const struct result *result, int stream, const char *expected)
{
	size_t size = buf_size(&result->out[stream]);

	ck_assert_msg(size == strlen(expected) && (!size || !memcmp(buf_peek(&result->out[stream]), expected, size)),
		"stream %d: \"%.*s\", not \"%s\"", stream, (int) size, (const char *) buf_peek(&result->out[stream]),
		expected);
}

void run(const struct command *command, struct result *result)
{
	struct client client = start(command);

	ck_assert_uint_gt(expect_started(&client), 0);
	finish(&client, result);
}

/* Reads data of the stream until its text has `needle`. */
void read_until(struct client *client, struct result *result, int stream, const char *needle)
{
	for (;;) {
		Croft__GuestEvent *event;

		if (buf_size(&result->out[stream]) > 0 && memmem(buf_peek(&result->out[stream]),
				buf_size(&result->out[stream]), needle, strlen(needle)))
			return;
		event = client_next(client);
		ck_assert_ptr_nonnull(event);
		ck_assert(!collect_one(result, event));
	}
}
