/* SPDX-License-Identifier: Apache-2.0
 *
 * See test-gateway-rig.h. First the fake guest, then the client.
 */
#include "unit/test-gateway-rig.h"

#include <check.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/frame.h"
#include "wire/base64.h"
#include "gateway/options.h"
#include "pb/guest.pb-c.h"

#define GUEST_OUT_MAX (2u * 1024 * 1024)

struct guest {
	struct rig *rig;
	int fd;
	struct event *read, *write, *timer;
	struct buf in, out;
	bool greeted, is_closing;
	size_t big_sent;
	bool is_big, is_timed;
};

uint8_t rig_big_byte(size_t i)
{
	return (uint8_t) (i * 31 + i / 251);
}

static void guest_free(struct guest *guest)
{
	event_free(guest->read);
	event_free(guest->write);
	event_free(guest->timer);
	fd_close(guest->fd);
	buf_deinit(&guest->in);
	buf_deinit(&guest->out);
	guest->rig->n_open--;
	free(guest);
}

/* Before each event comes one that only a later croft-guest has (field 1001): no stream and no answer is another for it. */
static void guest_send(struct guest *guest, const Croft__GuestEvent *event)
{
	size_t size = croft__guest_event__get_packed_size(event);
	uint8_t *to;

	ck_assert_int_eq(buf_append(&guest->out, "\0\0\0\3\xca\x3e\0", 7), 0);
	ck_assert_int_eq(frame_reserve(&guest->out, size, &to), 0);
	croft__guest_event__pack(event, to);
	event_add(guest->write, NULL);
}

static void send_started(struct guest *guest, uint32_t pid)
{
	Croft__GuestEvent event;
	Croft__GuestStarted body;

	croft__guest_event__init(&event);
	croft__guest_started__init(&body);
	body.pid = pid;
	event.body_case = CROFT__GUEST_EVENT__BODY_STARTED;
	event.started = &body;
	guest_send(guest, &event);
}

static void send_data(struct guest *guest, int stream, const void *data, size_t size, uint64_t lost)
{
	Croft__GuestEvent event;
	Croft__GuestData body;

	croft__guest_event__init(&event);
	croft__guest_data__init(&body);
	body.stream = (Croft__GuestStream) stream;
	body.data.data = (uint8_t *) (uintptr_t) data;
	body.data.len = size;
	body.lost = lost;
	event.body_case = CROFT__GUEST_EVENT__BODY_DATA;
	event.data = &body;
	guest_send(guest, &event);
}

static void send_ended(struct guest *guest, bool exited, int code, uint32_t signal, bool timed_out)
{
	Croft__GuestEvent event;
	Croft__GuestEnded body;

	croft__guest_event__init(&event);
	croft__guest_ended__init(&body);
	body.exited = exited;
	body.exit_code = code;
	body.signal = signal;
	body.timed_out = timed_out;
	event.body_case = CROFT__GUEST_EVENT__BODY_ENDED;
	event.ended = &body;
	guest_send(guest, &event);
	guest->is_closing = true;
}

static void send_failure(struct guest *guest, const char *code, const char *message)
{
	Croft__GuestEvent event;
	Croft__GuestFailure body;

	croft__guest_event__init(&event);
	croft__guest_failure__init(&body);
	body.code = (char *) (uintptr_t) code;
	body.message = (char *) (uintptr_t) message;
	event.body_case = CROFT__GUEST_EVENT__BODY_FAILURE;
	event.failure = &body;
	guest_send(guest, &event);
	guest->is_closing = true;
}

static void send_done(struct guest *guest)
{
	Croft__GuestEvent event;
	Croft__GuestDone body;

	croft__guest_event__init(&event);
	croft__guest_done__init(&body);
	event.body_case = CROFT__GUEST_EVENT__BODY_DONE;
	event.done = &body;
	guest_send(guest, &event);
	guest->is_closing = true;
}

static void send_processes(struct guest *guest)
{
	char *args[] = { (char *) (uintptr_t) "-c", (char *) (uintptr_t) "sleep 5" };
	Croft__GuestEvent event;
	Croft__GuestProcesses body;
	Croft__GuestProcess one, two;
	Croft__GuestProcess *list[] = { &one, &two };
	Croft__GuestEnv env;
	Croft__GuestEnv *envs[] = { &env };

	croft__guest_event__init(&event);
	croft__guest_processes__init(&body);
	croft__guest_process__init(&one);
	croft__guest_process__init(&two);
	croft__guest_env__init(&env);
	env.name = (char *) (uintptr_t) "A";
	env.value = (char *) (uintptr_t) "1";
	one.pid = 12;
	one.cmd = (char *) (uintptr_t) "/bin/sh";
	one.args = args;
	one.n_args = 2;
	one.env = envs;
	one.n_env = 1;
	one.cwd = (char *) (uintptr_t) "/tmp";
	one.tag = (char *) (uintptr_t) "web";
	two.pid = 13;
	two.cmd = (char *) (uintptr_t) "true";
	body.processes = list;
	body.n_processes = 2;
	event.body_case = CROFT__GUEST_EVENT__BODY_PROCESSES;
	event.processes = &body;
	guest_send(guest, &event);
	guest->is_closing = true;
}

/* ---- what it does for a command ---- */

static void big_fill(struct guest *guest)
{
	uint8_t chunk[32768];

	while (guest->is_big && buf_size(&guest->out) < sizeof(chunk) && guest->big_sent < RIG_BIG) {
		size_t n = MIN(sizeof(chunk), RIG_BIG - guest->big_sent);

		for (size_t i = 0; i < n; i++)
			chunk[i] = rig_big_byte(guest->big_sent + i);
		send_data(guest, 1, chunk, n, 0);
		guest->big_sent += n;
	}
	if (guest->is_big && guest->big_sent == RIG_BIG) {
		guest->is_big = false;
		send_ended(guest, true, 0, 0, false);
	}
}

static void raw(struct guest *guest, const void *data, size_t size)
{
	ck_assert_int_eq(buf_append(&guest->out, data, size), 0);
	event_add(guest->write, NULL);
}

static void act(struct guest *guest, const char *cmd)
{
	static const uint8_t chunk[40000];

	if (!strcmp(cmd, "mute"))
		return;
	if (!strcmp(cmd, "notfound")) {
		send_failure(guest, "COMMAND_NOT_FOUND", "no\nsuch file");
		return;
	}
	if (!strcmp(cmd, "blame")) {
		send_failure(guest, "KVM_UNAVAILABLE", "it was the node");
		return;
	}
	if (!strcmp(cmd, "garbage")) {
		raw(guest, "\0\0\0\4\xff\xff\xff\xff", 8);
		return;
	}
	if (!strcmp(cmd, "huge")) {
		raw(guest, "\xff\xff\xff\xff", 4);
		return;
	}
	if (!strcmp(cmd, "answer-done")) {
		send_done(guest);
		return;
	}
	send_started(guest, 77);
	if (!strcmp(cmd, "echo")) {
		send_data(guest, 1, "out\n", 4, 0);
		send_data(guest, 2, "err", 3, 0);
		send_data(guest, 3, "\0\xff", 2, 5);
		send_ended(guest, true, 0, 0, false);
	} else if (!strcmp(cmd, "exit7")) {
		send_ended(guest, true, 7, 0, false);
	} else if (!strcmp(cmd, "killed")) {
		send_ended(guest, false, 0, 9, false);
	} else if (!strcmp(cmd, "rt")) {
		send_ended(guest, false, 0, 40, false);
	} else if (!strcmp(cmd, "badexit")) {
		send_ended(guest, true, 300, 0, false);
	} else if (!strcmp(cmd, "toolong")) {
		send_data(guest, 1, chunk, sizeof(chunk), 0);
	} else if (!strcmp(cmd, "twice")) {
		send_started(guest, 78);
	} else if (!strcmp(cmd, "close")) {
		guest->is_closing = true;
	} else if (!strcmp(cmd, "big")) {
		guest->is_big = true;
		big_fill(guest);
	}
}

static void on_timed_out(evutil_socket_t fd, short what, void *user)
{
	(void) fd;
	(void) what;
	send_ended(user, false, 0, 9, true);
}

static void see_start(struct guest *guest, const Croft__GuestStart *start)
{
	struct rig_seen *seen = &guest->rig->seen;
	size_t n = sizeof(seen->text);
	size_t at = (size_t) snprintf(seen->text, n, "start cmd=%s args=", start->cmd);

	for (size_t i = 0; i < start->n_args && at < n; i++)
		at += (size_t) snprintf(seen->text + at, n - at, "%s%s", i ? "," : "", start->args[i]);
	for (size_t i = 0; i < start->n_env && at < n; i++)
		at += (size_t) snprintf(seen->text + at, n - at, " env=%s=%s", start->env[i]->name, start->env[i]->value);
	if (at < n)
		(void) snprintf(seen->text + at, n - at, " cwd=%s user=%s stdin=%d pty=%ux%u tag=%s timeout=%llu", start->cwd,
			start->user, start->stdin, start->pty ? start->pty->cols : 0, start->pty ? start->pty->rows : 0,
			start->tag, (unsigned long long) start->timeout_ms);
	(void) snprintf(seen->traceparent, sizeof(seen->traceparent), "%s", start->traceparent);
	if (!strcmp(start->cmd, "sleep") && start->timeout_ms) {
		struct timeval tv = { .tv_sec = (time_t) (start->timeout_ms / 1000),
			.tv_usec = (suseconds_t) (start->timeout_ms % 1000 * 1000) };

		evtimer_add(guest->timer, &tv);
	}
	act(guest, start->cmd);
}

static void see(struct guest *guest, const char *what, uint32_t pid, const char *tag, unsigned int a, unsigned int b)
{
	(void) snprintf(guest->rig->seen.text, sizeof(guest->rig->seen.text), "%s pid=%u tag=%s %u %u", what, pid, tag, a,
		b);
	if (pid == 404)
		send_failure(guest, "PROCESS_NOT_FOUND", "no process has the pid 404");
	else if (pid == 405)
		return; /* never answers */
	else
		send_done(guest);
}

static void handle(struct guest *guest, const Croft__GuestRequest *request)
{
	struct rig_seen *seen = &guest->rig->seen;

	seen->n_requests++;
	switch ((int) request->body_case) {
	case CROFT__GUEST_REQUEST__BODY_START:
		see_start(guest, request->start);
		return;
	case CROFT__GUEST_REQUEST__BODY_CONNECT:
		(void) snprintf(seen->text, sizeof(seen->text), "connect pid=%u tag=%s", request->connect->pid,
			request->connect->tag);
		if (request->connect->pid == 404)
			send_failure(guest, "PROCESS_NOT_FOUND", "no process has the pid 404");
		else
			act(guest, request->connect->pid == 5 ? "sleep" : "echo");
		return;
	case CROFT__GUEST_REQUEST__BODY_LIST:
		send_processes(guest);
		return;
	case CROFT__GUEST_REQUEST__BODY_SIGNAL:
		see(guest, "signal", request->signal->pid, request->signal->tag, request->signal->signal, 0);
		return;
	case CROFT__GUEST_REQUEST__BODY_INPUT:
		seen->n_inputs++;
		ck_assert_int_eq(buf_append(&seen->input, request->input->data.data, request->input->data.len), 0);
		see(guest, "input", request->input->pid, request->input->tag, 0, 0);
		return;
	case CROFT__GUEST_REQUEST__BODY_CLOSE_STDIN:
		see(guest, "close", request->close_stdin->pid, request->close_stdin->tag, 0, 0);
		return;
	case CROFT__GUEST_REQUEST__BODY_RESIZE:
		see(guest, "resize", request->resize->pid, request->resize->tag, request->resize->size->cols,
			request->resize->size->rows);
		return;
	default:
		ck_abort_msg("a request that the gateway never sends");
	}
}

/* ---- its connections ---- */

static void guest_on_write(evutil_socket_t fd, short what, void *user)
{
	struct guest *guest = user;

	(void) what;
	while (buf_size(&guest->out) > 0) {
		ssize_t n = send(fd, buf_peek(&guest->out), buf_size(&guest->out), MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN) {
			event_add(guest->write, NULL);
			return;
		}
		if (n < 0) {
			guest_free(guest);
			return;
		}
		guest->rig->written += (uint64_t) n;
		buf_consume(&guest->out, (size_t) n);
		big_fill(guest);
	}
	if (guest->is_closing)
		guest_free(guest);
}

static void guest_on_read(evutil_socket_t fd, short what, void *user)
{
	struct guest *guest = user;
	const uint8_t *data;
	uint8_t bytes[65536];
	size_t size;
	ssize_t n = read(fd, bytes, sizeof(bytes));

	(void) what;
	if (n <= 0) {
		if (n == 0 || errno != EAGAIN)
			guest_free(guest);
		return;
	}
	ck_assert_int_eq(buf_append(&guest->in, bytes, (size_t) n), 0);
	if (!guest->greeted) {
		if (buf_size(&guest->in) < 13)
			return;
		ck_assert_mem_eq(buf_peek(&guest->in), "CONNECT 1024\n", 13);
		buf_consume(&guest->in, 13);
		guest->greeted = true;
		raw(guest, "OK 1073741824\n", 14);
	}
	while (buf_size(&guest->in) > 0 && frame_peek(&guest->in, 1u << 20, &data, &size) == FRAME_WHOLE) {
		Croft__GuestRequest *request = croft__guest_request__unpack(NULL, size, data);

		ck_assert_ptr_nonnull(request);
		handle(guest, request);
		croft__guest_request__free_unpacked(request, NULL);
		frame_consume(&guest->in, size);
	}
}

static void on_accept(evutil_socket_t fd, short what, void *user)
{
	struct rig *rig = user;
	struct guest *guest = calloc(1, sizeof(*guest));

	(void) what;
	ck_assert_ptr_nonnull(guest);
	guest->rig = rig;
	guest->fd = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	ck_assert_int_ge(guest->fd, 0);
	guest->in = (struct buf) BUF_NULL(GUEST_OUT_MAX);
	guest->out = (struct buf) BUF_NULL(GUEST_OUT_MAX);
	guest->read = event_new(rig->base, guest->fd, EV_READ | EV_PERSIST, guest_on_read, guest);
	guest->write = event_new(rig->base, guest->fd, EV_WRITE, guest_on_write, guest);
	guest->timer = evtimer_new(rig->base, on_timed_out, guest);
	event_add(guest->read, NULL);
	rig->n_open++;
}

/* ---- the rig ---- */

void rig_set_route(struct rig *rig, const char *sandbox, const char *path, const char *token, bool ready)
{
	struct route_row row = { .sandbox = sandbox, .vsock_path = path, .ready = ready };
	const struct route_update update = { .rows = &row, .n_rows = 1 };
	struct err err = ERR_NULL;
	uint8_t digest[32];

	if (token) {
		ck_assert_int_eq(EVP_Digest(token, strlen(token), digest, NULL, EVP_sha256(), NULL), 1);
		row.token = digest;
		row.token_size = sizeof(digest);
	}
	ck_assert_int_eq(route_table_update(gateway_routes(rig->gateway), &update, &err), 0);
}

void rig_remove_route(struct rig *rig, const char *sandbox)
{
	char *removed[] = { (char *) (uintptr_t) sandbox };
	const struct route_update update = { .removed = removed, .n_removed = 1 };
	struct err err = ERR_NULL;

	ck_assert_int_eq(route_table_update(gateway_routes(rig->gateway), &update, &err), 0);
}

static void on_tick(evutil_socket_t fd, short what, void *user)
{
	(void) fd;
	(void) what;
	(void) user;
}

void rig_init(struct rig *rig)
{
	char program[] = "croft-gateway", *argv[] = { program, NULL };
	const struct timeval tick = { 0, 10000 };
	struct err err = ERR_NULL;
	size_t n;
	const struct config_option *table = options_table(&n);
	int argc = 1;
	char dead[128];

	*rig = (struct rig){ .deadline_us = clock_monotonic_usec() + 20 * USEC_PER_SEC };
	rig->seen.input = (struct buf) BUF_NULL(16u * 1024 * 1024);
	(void) snprintf(rig->run, sizeof(rig->run), "/tmp/croft-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(rig->run));
	(void) snprintf(rig->vsock, sizeof(rig->vsock), "%s/vsock", rig->run);
	ck_assert_int_eq(config_load(table, n, &rig->options, NULL, &argc, argv, &err), 0);
	free(rig->options.run);
	rig->options.run = strdup(rig->run);
	rig->options.port = 0;
	free(rig->options.audit_directory);
	ck_assert_int_ge(asprintf(&rig->options.audit_directory, "%s/audit", rig->run), 0);
	rig->base = event_base_new();
	rig->listen_fd = unix_listen(rig->vsock, SOCK_STREAM, 0600, 128);
	ck_assert_int_ge(rig->listen_fd, 0);
	rig->accept = event_new(rig->base, rig->listen_fd, EV_READ | EV_PERSIST, on_accept, rig);
	event_add(rig->accept, NULL);
	rig->tick = event_new(rig->base, -1, EV_PERSIST, on_tick, rig);
	event_add(rig->tick, &tick);
	ck_assert_int_eq(gateway_new(&rig->gateway, rig->base, &rig->options, &err), 0);
	ck_assert_int_eq(http_client_new(&rig->client, rig->base, &err), 0);
	(void) snprintf(dead, sizeof(dead), "%s/dead", rig->run);
	rig_set_route(rig, RIG_SANDBOX, rig->vsock, RIG_TOKEN, true);
	rig_set_route(rig, RIG_STARTING, rig->vsock, RIG_TOKEN, false);
	rig_set_route(rig, RIG_DEAD, dead, NULL, true);
}

void rig_deinit(struct rig *rig)
{
	size_t n;
	const struct config_option *table = options_table(&n);

	http_client_free(rig->client);
	gateway_free(rig->gateway);
	rig_until(rig, rig->n_open == 0); /* the fake guest sees the ends */
	event_free(rig->accept);
	event_free(rig->tick);
	fd_close(rig->listen_fd);
	event_base_free(rig->base);
	config_free(table, n, &rig->options);
	buf_deinit(&rig->seen.input);
	(void) dir_remove(rig->run);
}

void rig_turn(struct rig *rig)
{
	ck_assert_msg(clock_monotonic_usec() < rig->deadline_us, "the test waits for something that never comes");
	ck_assert_int_ge(event_base_loop(rig->base, EVLOOP_ONCE), 0);
}

void rig_rest(struct rig *rig, int ms)
{
	int64_t until = clock_monotonic_usec() + ms * USEC_PER_MSEC;

	rig_until(rig, clock_monotonic_usec() >= until);
}

/* ---- client ---- */

static bool on_body(struct http_call *call, const void *data, size_t size, void *user)
{
	struct reply *reply = user;

	(void) call;
	if (reply->holds)
		return false;
	ck_assert_int_eq(buf_append(&reply->body, data, size), 0);
	reply->received += size;
	return true;
}

static void on_header(struct http_call *call, int status, void *user)
{
	struct reply *reply = user;
	const char *type = http_call_header(call, "content-type"), *trace = http_call_header(call, "traceparent");

	reply->status = status;
	reply->content_type = type ? strdup(type) : NULL;
	reply->traceparent = trace ? strdup(trace) : NULL;
}

static void on_done(struct http_call *call, const struct err *err, void *user)
{
	struct reply *reply = user;

	(void) call;
	reply->done = true;
	reply->failed = err != NULL;
	reply->call = NULL;
}

struct reply *rig_start(struct rig *rig, const struct ask *ask)
{
	struct http_field fields[16];
	struct reply *reply = calloc(1, sizeof(*reply));
	struct http_call_config config = HTTP_CALL_NULL;
	struct err err = ERR_NULL;
	char url[256], path[128];
	size_t n = 0;

	ck_assert_ptr_nonnull(reply);
	reply->rig = rig;
	reply->body = (struct buf) BUF_NULL(64u * 1024 * 1024);
	(void) snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", gateway_port(rig->gateway), ask->path);
	(void) snprintf(path, sizeof(path), "%s/%s", rig->run, GATEWAY_SOCKET);
	if (ask->content_type)
		fields[n++] = (struct http_field){ "content-type", ask->content_type };
	if (ask->sandbox)
		fields[n++] = (struct http_field){ "e2b-sandbox-id", ask->sandbox };
	if (ask->port)
		fields[n++] = (struct http_field){ "e2b-sandbox-port", ask->port };
	if (ask->token)
		fields[n++] = (struct http_field){ "x-access-token", ask->token };
	if (ask->host)
		fields[n++] = (struct http_field){ "host", ask->host };
	for (size_t i = 0; i < ARRAY_LEN(ask->extra) && ask->extra[i]; i += 2)
		fields[n++] = (struct http_field){ ask->extra[i], ask->extra[i + 1] };
	config.method = ask->method;
	config.url = url;
	config.unix_path = ask->to_unix ? path : NULL;
	config.fields = fields;
	config.n_fields = n;
	config.body = ask->body;
	config.body_size = ask->body_size ? ask->body_size : ask->body ? strlen(ask->body) : 0;
	config.has_body = ask->body != NULL;
	config.on_header = on_header;
	config.on_body = on_body;
	config.on_done = on_done;
	config.user = reply;
	ck_assert_int_eq(http_call_start(rig->client, &config, &reply->call, &err), 0);
	return reply;
}

struct reply *rig_ask(struct rig *rig, const struct ask *ask)
{
	struct reply *reply = rig_start(rig, ask);

	rig_until(rig, reply->done);
	return reply;
}

void reply_free(struct reply *reply)
{
	if (reply->call)
		http_call_cancel(reply->call);
	free(reply->content_type);
	free(reply->traceparent);
	buf_deinit(&reply->body);
	free(reply);
}

struct reply *rig_unary(struct rig *rig, const char *method, const char *json)
{
	char path[128];

	(void) snprintf(path, sizeof(path), "/process.Process/%s", method);
	return rig_ask(rig, &(struct ask){ .method = "POST", .path = path, .body = json,
		.content_type = "application/json", .sandbox = RIG_SANDBOX, .port = "49983", .token = RIG_TOKEN });
}

struct reply *rig_stream_start(struct rig *rig, const char *method, const char *json, const char *const *extra)
{
	struct ask ask = { .method = "POST", .content_type = "application/connect+json", .sandbox = RIG_SANDBOX,
		.port = "49983", .token = RIG_TOKEN };
	CLEANUP_FREE char *body = malloc(strlen(json) + 5);
	char path[128];

	ck_assert_ptr_nonnull(body);
	body[0] = 0;
	body[1] = (char) (strlen(json) >> 24);
	body[2] = (char) (strlen(json) >> 16);
	body[3] = (char) (strlen(json) >> 8);
	body[4] = (char) strlen(json);
	memcpy(body + 5, json, strlen(json));
	(void) snprintf(path, sizeof(path), "/process.Process/%s", method);
	ask.path = path;
	ask.body = body;
	ask.body_size = strlen(json) + 5;
	for (size_t i = 0; extra && extra[i] && i < ARRAY_LEN(ask.extra) - 1; i++)
		ask.extra[i] = extra[i];
	return rig_start(rig, &ask);
}

struct reply *rig_stream(struct rig *rig, const char *method, const char *json, const char *const *extra)
{
	struct reply *reply = rig_stream_start(rig, method, json, extra);

	rig_until(rig, reply->done);
	return reply;
}

char *reply_frame(const struct reply *reply, unsigned int i, unsigned int *ret_flags)
{
	size_t at = 0, end = buf_size(&reply->body);

	for (unsigned int k = 0; at + 5 <= end; k++) {
		const uint8_t *p = buf_peek(&reply->body) + at;
		size_t size = (size_t) p[1] << 24 | (size_t) p[2] << 16 | (size_t) p[3] << 8 | p[4];

		if (at + 5 + size > end)
			return NULL;
		if (k == i) {
			if (ret_flags)
				*ret_flags = p[0];
			return strndup((const char *) p + 5, size);
		}
		at += 5 + size;
	}
	return NULL;
}

unsigned int reply_frames(const struct reply *reply)
{
	size_t at = 0, end = buf_size(&reply->body);
	unsigned int n = 0;

	while (at + 5 <= end) {
		const uint8_t *p = buf_peek(&reply->body) + at;

		at += 5 + ((size_t) p[1] << 24 | (size_t) p[2] << 16 | (size_t) p[3] << 8 | p[4]);
		n += at <= end;
	}
	return n;
}

uint8_t *reply_output(const struct reply *reply, const char *stream, size_t *ret_size)
{
	struct buf all = BUF_NULL(64u * 1024 * 1024);
	size_t at = 0, end = buf_size(&reply->body);

	while (at + 5 <= end) {
		const uint8_t *p = buf_peek(&reply->body) + at;
		size_t size = (size_t) p[1] << 24 | (size_t) p[2] << 16 | (size_t) p[3] << 8 | p[4], n;
		json_t *json = at + 5 + size <= end ? json_loadb((const char *) p + 5, size, 0, NULL) : NULL;
		const json_t *text = json_object_get(json_object_get(json_object_get(json, "event"), "data"), stream);
		uint8_t *data = NULL;

		if (text) {
			ck_assert_int_eq(base64_decode(json_string_value(text), json_string_length(text), &data, &n), 0);
			ck_assert_int_eq(buf_append(&all, data, n), 0);
			free(data);
		}
		json_decref(json);
		at += 5 + size;
	}
	*ret_size = buf_size(&all);
	return all.data;
}

static const char *error_member(const struct reply *reply, bool is_failure, char *buf, size_t size)
{
	unsigned int n = reply_frames(reply), flags = 0;
	bool is_stream = reply->content_type && strstr(reply->content_type, "connect");
	char *frame = is_stream && n ? reply_frame(reply, n - 1, &flags) : NULL;
	json_t *json = frame ? json_loads(frame, 0, NULL) :
			       json_loadb((const char *) buf_peek(&reply->body), buf_size(&reply->body), 0, NULL);
	const json_t *error = is_stream ? json_object_get(json, "error") : json;
	const char *text = json_string_value(
		json_object_get(is_failure ? json_object_get(error, "failure") : error, "code"));

	(void) snprintf(buf, size, "%s", text ? text : "");
	free(frame);
	json_decref(json);
	return is_stream && flags != 2 ? NULL : buf;
}

const char *reply_failure(const struct reply *reply, char *buf, size_t size)
{
	return error_member(reply, true, buf, size);
}

const char *reply_end(const struct reply *reply, char *buf, size_t size)
{
	return error_member(reply, false, buf, size);
}
