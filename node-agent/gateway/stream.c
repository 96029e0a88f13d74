/* SPDX-License-Identifier: Apache-2.0
 *
 * See stream.h.
 *
 *   ASKED --started--> RUNNING --ended, failure, timeout, guest gone--> ENDED
 *
 * - The guest's connection is read only while less than OUT_HIGH bytes wait for the client, so a stream holds
 *   at most OUT_MAX + GUEST_STREAM_FRAME_MAX bytes whatever client and guest do; the end frame always finds room.
 * - A client that goes away ends the stream, never the process. Of what ends a process only connect-timeout-ms
 *   is ours, and the guest keeps that clock; ours runs TIMEOUT_GRACE longer and is for a guest that does not.
 * - A guest's connection that ends early is most often a sandbox that ends. The agent's word on that comes
 *   apart, so it is awaited for GONE_GRACE before the failure is named.
 */
#include "gateway/stream.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "wire/base64.h"
#include "gateway/audit.h"
#include "gateway/connect.h"
#include "gateway/gateway.h"
#include "gateway/guest-link.h"
#include "gateway/guest-wire.h"
#include "gateway/process-event.h"

#define OUT_HIGH (64u * 1024u)
#define OUT_MAX (120u * 1024u) /* one data event, the end event and the end frame above OUT_HIGH */
#define TIMEOUT_GRACE_US (3 * USEC_PER_SEC)
#define GONE_GRACE_US (500 * USEC_PER_MSEC)
#define TIMEOUT_MS_DIGITS 10u
#define KEEPALIVE_MAX_S 3600u

enum stream_state { STREAM_ASKED, STREAM_RUNNING, STREAM_ENDED };

struct stream {
	LIST_ENTRY(stream) entry;
	struct call *call;
	struct guest_link *link;
	enum stream_state state;
	struct buf out;
	struct event *keepalive, *deadline, *gone;
	int64_t keepalive_us, last_event_us;
	uint64_t timeout_ms; /* 0: none */
	bool is_start;       /* the timeout is the process's; else only the stream's */
	bool counted;
	uint64_t n_bytes;    /* of the process's output */
	uint32_t pid;
	struct audit_exec *audit; /* of a start, until its end is in the log */
};

static void stream_free(void *data)
{
	struct stream *stream = data;
	struct event *events[] = { stream->keepalive, stream->deadline, stream->gone };

	if (stream->state != STREAM_ENDED)
		log_debug("client left a stream", "sandbox", stream->call->sandbox, "pid", LOG_NUM(stream->pid));
	audit_exec_end(stream->audit, stream->pid, NULL, NULL);
	LIST_REMOVE(stream, entry);
	if (stream->counted)
		gateway_stream_end(stream->call->gateway, stream->call->route);
	guest_link_free(stream->link);
	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (events[i])
			event_free(events[i]);
	buf_deinit(&stream->out);
	free(stream);
}

struct stream *stream_next(const struct stream *stream)
{
	return LIST_NEXT(stream, entry);
}

static void arm(struct event *event, int64_t usec)
{
	struct timeval tv = { .tv_sec = usec / USEC_PER_SEC, .tv_usec = usec % USEC_PER_SEC };

	(void) evtimer_add(event, &tv);
}

/* ---- towards the client ---- */

static long on_want(struct http_request *req, void *buf, size_t room, void *user)
{
	struct stream *stream = user;
	size_t size = MIN(room, buf_size(&stream->out));

	(void) req;
	if (size == 0)
		return stream->state == STREAM_ENDED ? -1 : 0;
	memcpy(buf, buf_peek(&stream->out), size);
	buf_consume(&stream->out, size);
	if (stream->link && buf_size(&stream->out) < OUT_HIGH)
		guest_link_resume(stream->link);
	return (long) size;
}

/* Takes `event` over. */
static int put_event(struct stream *stream, json_t *event)
{
	int r = event ? connect_frame_append(&stream->out, 0, event) : -ENOMEM;

	json_decref(event);
	if (r < 0)
		return r;
	stream->last_event_us = clock_monotonic_usec();
	if (buf_size(&stream->out) >= OUT_HIGH && stream->link)
		guest_link_pause(stream->link);
	http_stream_wake(stream->call->req);
	return 0;
}

static void log_end(const struct stream *stream, const struct err *err)
{
	const struct call *call = stream->call;

	if (err) {
		call_log_failure(call, err);
		return;
	}
	log_info("exec ended", "sandbox", call->sandbox, "pid", LOG_NUM(stream->pid), "bytes", LOG_NUM(stream->n_bytes),
		"took_ms", LOG_NUM((clock_monotonic_usec() - call->began_mono_us) / USEC_PER_MSEC), "trace",
		call->trace.trace_id);
}

void stream_end(struct stream *stream, const struct err *err)
{
	struct failure_context context = call_context(stream->call);

	if (stream->state == STREAM_ENDED)
		return;
	log_end(stream, err);
	audit_exec_end(TAKE(stream->audit), stream->pid, NULL, err);
	call_note(stream->call, err ? RESULT_FAILED : RESULT_OK, err);
	stream->state = STREAM_ENDED;
	(void) event_del(stream->keepalive);
	(void) event_del(stream->deadline);
	(void) event_del(stream->gone);
	guest_link_free(TAKE(stream->link));
	/* Without an end frame the client sees a broken stream: right, when there is no memory for one. */
	(void) connect_end_append(&stream->out, err, &context);
	http_stream_wake(stream->call->req);
}

static void end_with(struct stream *stream, enum fail_code code, int err_no, const char *message)
{
	struct err err = ERR_NULL;

	err_set_at(&err, STAGE_EXEC, code, err_no, "%s", message);
	stream_end(stream, &err);
}

static void end_timed_out(struct stream *stream)
{
	struct err err = ERR_NULL;

	err_set_at(&err, STAGE_EXEC, FAIL_EXEC_TIMEOUT, ETIMEDOUT, "The %s after %llu ms%s.",
		stream->is_start ? "process was killed" : "stream ended", (unsigned long long) stream->timeout_ms,
		stream->is_start ? "" : "; the process goes on");
	err_add(&err, "timeout_ms", "%llu", (unsigned long long) stream->timeout_ms);
	stream_end(stream, &err);
}

/* ---- from the guest ---- */

static void on_ended(struct stream *stream, const struct guest_ended *ended)
{
	struct failure_context context = call_context(stream->call);

	if (!ended->timed_out)
		audit_exec_end(TAKE(stream->audit), stream->pid, ended, NULL);
	if (ended->timed_out)
		end_timed_out(stream);
	else if (put_event(stream, process_event_end(ended, &context)) < 0)
		end_with(stream, FAIL_NO_MEMORY, ENOMEM, "No memory for an event.");
	else
		stream_end(stream, NULL);
}

static void on_running(struct stream *stream, const struct guest_event *event)
{
	int r = 0;

	switch (event->kind) {
	case GUEST_EVENT_DATA:
		stream->n_bytes += event->data.size;
		audit_exec_data(stream->audit, &event->data);
		if (event->data.size > 0 || event->data.lost > 0)
			r = put_event(stream, process_event_data(&event->data));
		break;
	case GUEST_EVENT_ENDED:
		on_ended(stream, &event->ended);
		return;
	case GUEST_EVENT_FAILURE:
		stream_end(stream, &event->failure);
		return;
	case GUEST_EVENT_STARTED:
	case GUEST_EVENT_DONE:
	case GUEST_EVENT_PROCESSES:
	case GUEST_EVENT_CHANGES:
	case GUEST_EVENT_UNKNOWN: /* guest-link.c keeps these */
		end_with(stream, FAIL_GUEST_PROTOCOL, EPROTO, "The guest sent an event that has no place in a stream.");
		return;
	}
	if (r < 0)
		end_with(stream, FAIL_NO_MEMORY, -r, "No memory for an event.");
}

static void on_event(const struct guest_event *event, void *user)
{
	struct stream *stream = user;

	if (stream->state == STREAM_RUNNING) {
		on_running(stream, event);
	} else if (event->kind == GUEST_EVENT_FAILURE) {
		stream_end(stream, &event->failure);
	} else if (event->kind != GUEST_EVENT_STARTED) {
		end_with(stream, FAIL_GUEST_PROTOCOL, EPROTO, "The guest's first event is not the start.");
	} else {
		stream->state = STREAM_RUNNING;
		stream->pid = event->pid;
		if (put_event(stream, process_event_start(event->pid)) < 0)
			end_with(stream, FAIL_NO_MEMORY, ENOMEM, "No memory for an event.");
	}
}

static void on_closed(const struct err *err, void *user)
{
	struct stream *stream = user;

	if (err->code != FAIL_GUEST_UNREACHABLE || err->err_no == ETIMEDOUT)
		stream_end(stream, err);
	else
		arm(stream->gone, stream->call->route->gone ? 0 : GONE_GRACE_US);
}

/* ---- clocks ---- */

static void on_gone(evutil_socket_t fd, short what, void *user)
{
	struct stream *stream = user;

	(void) fd;
	(void) what;
	if (stream->call->route->gone)
		end_with(stream, FAIL_SANDBOX_GONE, 0, "The sandbox ended while the process ran.");
	else
		end_with(stream, FAIL_GUEST_UNREACHABLE, 0, "croft-guest closed the connection before the process ended.");
}

static void on_deadline(evutil_socket_t fd, short what, void *user)
{
	(void) fd;
	(void) what;
	end_timed_out(user);
}

static void on_keepalive(evutil_socket_t fd, short what, void *user)
{
	struct stream *stream = user;
	int64_t silent = clock_monotonic_usec() - stream->last_event_us;

	(void) fd;
	(void) what;
	/* Not before the start event, which must be the first; not for a client that does not read. */
	if (silent >= stream->keepalive_us) {
		if (stream->state == STREAM_RUNNING && buf_size(&stream->out) < OUT_HIGH)
			(void) put_event(stream, process_event_keepalive());
		silent = 0;
	}
	arm(stream->keepalive, stream->keepalive_us - silent);
}

/* ---- start ---- */

/* Digits only, at most ten, as Connect has it. */
static int read_timeout(const struct call *call, uint64_t *ret_ms, struct err *reterr)
{
	const char *text = http_header(call->req, "connect-timeout-ms");
	size_t n = text ? strspn(text, "0123456789") : 0;

	*ret_ms = 0;
	if (!text)
		return 0;
	if (n == 0 || n > TIMEOUT_MS_DIGITS || text[n])
		return err_set_at(reterr, STAGE_EXEC, FAIL_INVALID_ARGUMENT, EINVAL,
			"connect-timeout-ms is no number of milliseconds.");
	*ret_ms = strtoull(text, NULL, 10);
	if (*ret_ms == 0)
		return err_set_at(reterr, STAGE_EXEC, FAIL_EXEC_TIMEOUT, ETIMEDOUT,
			"connect-timeout-ms is 0: no time was left to start anything.");
	return 0;
}

static int64_t read_keepalive(const struct call *call)
{
	const char *text = http_header(call->req, "keepalive-ping-interval");
	unsigned long seconds = text ? strtoul(text, NULL, 10) : 0;

	if (seconds == 0 || seconds > KEEPALIVE_MAX_S)
		return gateway_options(call->gateway)->keepalive_us;
	return (int64_t) seconds * USEC_PER_SEC;
}

/* The user of "Authorization: Basic base64(user:)"; "" where there is none. `*ret` is the caller's. */
static int read_user(const struct call *call, char **ret, struct err *reterr)
{
	const char *text = http_header(call->req, "authorization");
	uint8_t *data = NULL;
	size_t size = 0;
	char *colon;

	if (!text || strncasecmp(text, "Basic ", 6) != 0) {
		*ret = strdup("");
		return *ret ? 0 : err_set_at(reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "No memory for the request.");
	}
	text += 6 + strspn(text + 6, " ");
	if (base64_decode(text, strlen(text), &data, &size) < 0 || strlen((char *) data) != size ||
		!(colon = strchr((char *) data, ':'))) {
		free(data);
		return err_set_at(reterr, STAGE_EXEC, FAIL_INVALID_ARGUMENT, EINVAL,
			"The Authorization header names no user: it must be Basic with base64 of `user:`.");
	}
	*colon = '\0';
	*ret = (char *) data;
	return 0;
}

static int make_events(struct stream *stream)
{
	struct event_base *base = gateway_base(stream->call->gateway);

	stream->keepalive = evtimer_new(base, on_keepalive, stream);
	stream->deadline = evtimer_new(base, on_deadline, stream);
	stream->gone = evtimer_new(base, on_gone, stream);
	if (!stream->keepalive || !stream->deadline || !stream->gone)
		return -ENOMEM;
	arm(stream->keepalive, stream->keepalive_us);
	return 0;
}

static int stream_dial(struct stream *stream, struct err *reterr)
{
	static const struct guest_link_handler handler = { on_event, on_closed };
	const struct guest_link_config config = {
		.path = stream->call->route->vsock_path,
		.frame_max = GUEST_STREAM_FRAME_MAX,
		.answer_timeout_us = gateway_options(stream->call->gateway)->guest_timeout_us,
	};

	return guest_link_new(&stream->link, gateway_base(stream->call->gateway), &config, &handler, stream, reterr);
}

/* The answer to every Start and Connect whose sandbox is open: HTTP 200 and a stream. From here on a failure is
 * stream_end(). */
static struct stream *stream_begin(struct call *call, bool is_start)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	char text[TRACEPARENT_SIZE];
	struct http_field field = call_trace_field(call, text);

	if (!stream) {
		call_fail_code(call, FAIL_NO_MEMORY, "No memory for the request.");
		return NULL;
	}
	stream->call = call;
	stream->is_start = is_start;
	stream->out = (struct buf) BUF_NULL(OUT_MAX);
	stream->keepalive_us = read_keepalive(call);
	stream->last_event_us = clock_monotonic_usec();
	LIST_INSERT_HEAD(gateway_streams(call->gateway), stream, entry);
	call->method_data = stream;
	call->method_free = stream_free;
	if (make_events(stream) < 0 || http_respond_stream(call->req, 200, "application/connect+json", &field, 1, -1,
					       on_want, stream) < 0) {
		stream->state = STREAM_ENDED;
		call_fail_code(call, FAIL_NO_MEMORY, "No memory for the request.");
		return NULL;
	}
	return stream;
}

static int stream_open(struct stream *stream, struct err *reterr)
{
	int r = gateway_stream_begin(stream->call->gateway, stream->call->route, reterr);

	if (r < 0)
		return r;
	stream->counted = true;
	r = stream_dial(stream, reterr);
	if (r == 0 && stream->timeout_ms > 0)
		arm(stream->deadline, (int64_t) stream->timeout_ms * USEC_PER_MSEC +
			(stream->is_start ? TIMEOUT_GRACE_US : 0));
	return r;
}

static int start(struct stream *stream, const struct process_start *request, struct err *reterr)
{
	CLEANUP_FREE char *user = NULL;
	char traceparent[TRACEPARENT_SIZE];
	struct guest_start_options options = { .traceparent = traceparent };
	int r = read_user(stream->call, &user, reterr);

	if (r == 0)
		r = stream_open(stream, reterr);
	if (r < 0)
		return r;
	trace_format(&stream->call->trace, traceparent);
	options.user = user;
	options.timeout_ms = stream->timeout_ms;
	stream->audit = audit_exec_begin(gateway_audit(stream->call->gateway), stream->call, request, user);
	return guest_start_append(guest_link_out(stream->link), request, &options, reterr);
}

void stream_start(struct call *call, const char *body, size_t size)
{
	struct stream *stream = stream_begin(call, true);
	struct process_start request = { 0 };
	struct err err = ERR_NULL;
	const char *json;
	size_t json_size;

	if (!stream)
		return;
	if (connect_request_open(body, size, &json, &json_size, &err) < 0 ||
		read_timeout(call, &stream->timeout_ms, &err) < 0 ||
		process_start_parse(json, json_size, &request, &err) < 0 || start(stream, &request, &err) < 0)
		stream_end(stream, &err);
	process_start_deinit(&request);
}

void stream_connect(struct call *call, const char *body, size_t size)
{
	struct stream *stream = stream_begin(call, false);
	struct process_named request = { 0 };
	struct err err = ERR_NULL;
	const char *json;
	size_t json_size;

	if (!stream)
		return;
	if (connect_request_open(body, size, &json, &json_size, &err) < 0 ||
		read_timeout(call, &stream->timeout_ms, &err) < 0 ||
		process_named_parse(json, json_size, &request, &err) < 0 || stream_open(stream, &err) < 0 ||
		guest_connect_append(guest_link_out(stream->link), &request.process, &err) < 0)
		stream_end(stream, &err);
	process_named_deinit(&request);
}
