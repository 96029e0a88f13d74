/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a request, see http-server.h.
 *
 * Invariants:
 * - Back-pressure is suspend and resume. A connection is suspended in exactly three places: a refused piece
 *   of a body, a request without an answer yet, a stream that has nothing to say. http_request_wake() undoes it; a wake
 *   that comes before the suspend is remembered in `woken`, so none is lost.
 * - libmicrohttpd does not watch the socket of a suspended connection; `watch` does, so that a client that
 *   went away is noticed while we wait. A half-closed client is served: only a stream that stays silent for
 *   HALF_CLOSED_GRACE after the client's end of input counts as gone.
 * - Never suspended in the first call: libmicrohttpd would repeat that call.
 * - Framing that could be read in two ways (two Content-Lengths, a Transfer-Encoding other than chunked or
 *   beside a Content-Length, a header's name with a space) is refused here; libmicrohttpd takes the first header and
 *   goes on. So is a head without Host or over a limit.
 */
#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "wire/http-internal.h"
#include "wire/json.h"

#define STREAM_BLOCK (16u * 1024u)
#define DISCARD_MAX (UINT64_C(1) << 30) /* of a body whose answer is known already */
#define HALF_CLOSED_GRACE 1             /* seconds */
#define TARGET_MAX (16u * 1024u)
#define HEAD_MAX (64u * 1024u)

/* ---- waiting ---- */

void http_request_wake(struct http_request *req)
{
	if (req->closed)
		return;
	if (!req->suspended) {
		req->woken = true;
		return;
	}
	req->suspended = false;
	if (req->watch)
		(void) event_del(req->watch);
	MHD_resume_connection(req->conn);
	http_server_turn_soon(req->server);
}

/* The edge trigger makes bytes that wait in the socket (pipelining, a body under back-pressure) wake us once
 * and not for ever. */
static void on_watch(evutil_socket_t fd, short what, void *user)
{
	struct pollfd pfd = { .fd = fd, .events = POLLRDHUP };
	const struct timeval grace = { HALF_CLOSED_GRACE, 0 };
	struct http_request *req = user;

	if (!req->suspended || poll(&pfd, 1, 0) <= 0)
		return;
	if ((pfd.revents & (POLLERR | POLLHUP | POLLNVAL)) ||
		((pfd.revents & POLLRDHUP) && (what & EV_TIMEOUT) && req->streaming)) {
		req->gone = true;
		http_request_wake(req);
	} else if ((pfd.revents & POLLRDHUP) && req->streaming) {
		(void) event_add(req->watch, &grace);
	}
}

static void watch_start(struct http_request *req)
{
	const union MHD_ConnectionInfo *info;

	if (!req->watch) {
		info = MHD_get_connection_info(req->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
		if (info)
			req->watch = event_new(req->server->base, info->connect_fd,
				EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, on_watch, req);
	}
	if (req->watch)
		(void) event_add(req->watch, NULL); /* without it the client's end is seen at the next write */
}

static void suspend(struct http_request *req)
{
	MHD_suspend_connection(req->conn);
	req->suspended = true;
	if (req->woken) {
		req->woken = false;
		http_request_wake(req);
	} else {
		watch_start(req);
	}
}

/* ---- answers ---- */

static void respond_err(struct http_request *req, const struct err *err)
{
	const struct failure_context context = { .responsibility = RESPONSIBILITY_MANAGED };

	if (http_respond_failure(req, err, &context) < 0)
		req->gone = true; /* no memory for an answer: the connection ends */
}

static void respond_failure(struct http_request *req, enum fail_code code, const char *text)
{
	struct err err = ERR_NULL;

	(void) err_set(&err, code, 0, "%s", text);
	respond_err(req, &err);
}

static void respond_too_large(struct http_request *req)
{
	struct err err = ERR_NULL;

	(void) err_set(&err, FAIL_BODY_TOO_LARGE, 0, "the request's body is over the limit");
	err_add(&err, "limit", "%zu", req->body_max);
	respond_err(req, &err);
}

int http_respond_failure(struct http_request *req, const struct err *err, const struct failure_context *context)
{
	json_t *body = json_error_body(err, context);
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	int r = text ? http_respond_json(req, failure_info(err->code)->http, text) : -ENOMEM;

	free(text);
	json_decref(body);
	return r;
}

/* The library frames the body; fields that a relay passes on must not frame it a second time. */
static bool is_framing(const char *name)
{
	return !strcasecmp(name, "Content-Length") || !strcasecmp(name, "Transfer-Encoding");
}

static int answer(struct http_request *req, int status, const char *content_type, const struct http_field *fields,
	size_t n_fields, struct MHD_Response *response)
{
	bool ok = true;

	if (!response)
		return -ENOMEM;
	if (req->answered || req->closed || status < 200 || status > 599) {
		MHD_destroy_response(response);
		return req->answered || req->closed ? -EALREADY : -EINVAL;
	}
	if (content_type)
		ok = MHD_add_response_header(response, "Content-Type", content_type) == MHD_YES;
	for (size_t i = 0; i < n_fields && ok; i++)
		if (!is_framing(fields[i].name))
			ok = MHD_add_response_header(response, fields[i].name, fields[i].value) == MHD_YES;
	if (!ok) {
		MHD_destroy_response(response);
		return -EINVAL;
	}
	req->answered = true;
	req->response = response;
	req->status = status;
	http_request_wake(req);
	return 0;
}

int http_respond(struct http_request *req, int status, const char *content_type, const struct http_field *fields,
	size_t n_fields, const void *body, size_t size)
{
	/* The library copies; its argument is not const in this version. */
	return answer(req, status, content_type, fields, n_fields,
		MHD_create_response_from_buffer(size, (void *) (uintptr_t) (size ? body : ""),
			MHD_RESPMEM_MUST_COPY));
}

int http_respond_json(struct http_request *req, int status, const char *json)
{
	return http_respond(req, status, "application/json", NULL, 0, json, strlen(json));
}

static ssize_t on_want(void *cls, uint64_t position, char *buf, size_t room)
{
	struct http_request *req = cls;
	long n;

	(void) position;
	if (req->gone || req->closed)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	req->woken = false;
	n = req->want(req, buf, room, req->want_user);
	if (n > 0 && (size_t) n <= room)
		return n;
	if (n == 0) {
		suspend(req);
		return 0;
	}
	return n == -1 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

int http_respond_stream(struct http_request *req, int status, const char *content_type,
	const struct http_field *fields, size_t n_fields, int64_t content_length, http_want want, void *user)
{
	uint64_t size = content_length < 0 ? MHD_SIZE_UNKNOWN : (uint64_t) content_length;

	if (req->answered || req->closed)
		return -EALREADY;
	req->want = want;
	req->want_user = user;
	req->streaming = true;
	return answer(req, status, content_type, fields, n_fields,
		MHD_create_response_from_callback(size, STREAM_BLOCK, on_want, req, NULL));
}

void http_stream_wake(struct http_request *req)
{
	http_request_wake(req);
}

static enum MHD_Result queue(struct http_request *req)
{
	struct MHD_Response *response = TAKE(req->response);
	enum MHD_Result r = MHD_queue_response(req->conn, (unsigned int) req->status, response);

	MHD_destroy_response(response); /* the connection holds its own reference */
	return r;
}

/* ---- the request's body ---- */

/* UINT64_MAX: chunked, so nobody knows. */
static bool announced_body(const struct http_request *req, uint64_t *ret_size)
{
	const char *length = http_header(req, "Content-Length");

	if (http_header(req, "Transfer-Encoding")) {
		*ret_size = UINT64_MAX;
		return true;
	}
	*ret_size = length ? strtoull(length, NULL, 10) : 0;
	return *ret_size > 0;
}

void http_read_body(struct http_request *req, size_t max,
	void (*done)(struct http_request *req, const char *body, size_t size, void *user), void *user)
{
	uint64_t size;

	if (req->closed)
		return;
	req->mode = BODY_COLLECT;
	req->body = (struct buf) BUF_NULL(max < SIZE_MAX ? max + 1 : max);
	req->body_max = max;
	req->on_whole = done;
	req->body_user = user;
	if (announced_body(req, &size) && size != UINT64_MAX && size > max)
		respond_too_large(req);
	http_request_wake(req);
}

void http_stream_body(struct http_request *req, http_on_body on_body, void *user)
{
	if (req->closed)
		return;
	req->mode = BODY_STREAM;
	req->on_piece = on_body;
	req->body_user = user;
	http_request_wake(req);
}

void http_resume_body(struct http_request *req)
{
	http_request_wake(req);
}

static enum MHD_Result discard(struct http_request *req, size_t *size)
{
	req->discarded += *size;
	*size = 0;
	return req->discarded > DISCARD_MAX ? MHD_NO : MHD_YES;
}

static enum MHD_Result take_piece(struct http_request *req, const char *data, size_t *size)
{
	if (req->answered)
		return discard(req, size);
	switch (req->mode) {
	case BODY_UNSET:
		suspend(req);
		return MHD_YES;
	case BODY_COLLECT:
		if (*size > req->body_max || buf_size(&req->body) > req->body_max - *size)
			respond_too_large(req);
		else if (buf_append(&req->body, data, *size) < 0)
			respond_failure(req, FAIL_NO_MEMORY, "no memory for the request's body");
		if (req->answered)
			return discard(req, size);
		*size = 0;
		return MHD_YES;
	case BODY_STREAM:
		req->woken = false;
		if (req->on_piece(req, data, *size, false, req->body_user))
			*size = 0;
		else if (req->answered)
			return discard(req, size);
		else
			suspend(req);
		return MHD_YES;
	}
	return MHD_NO;
}

static void end_body(struct http_request *req)
{
	uint8_t *nul;

	switch (req->mode) {
	case BODY_UNSET:
		break;
	case BODY_COLLECT:
		if (buf_reserve(&req->body, 1, &nul) < 0) {
			respond_failure(req, FAIL_NO_MEMORY, "no memory for the request's body");
			break;
		}
		*nul = '\0';
		req->body_ended = true;
		req->on_whole(req, (const char *) buf_peek(&req->body), buf_size(&req->body), req->body_user);
		break;
	case BODY_STREAM:
		req->woken = false;
		req->body_ended = req->on_piece(req, "", 0, true, req->body_user);
		break;
	}
}

/* The whole request is in: tell, then answer or wait. Called again after each wake until it is answered. */
static enum MHD_Result finish(struct http_request *req)
{
	if (!req->answered && !req->body_ended)
		end_body(req);
	if (req->response)
		return queue(req);
	if (req->gone || req->answered)
		return MHD_NO;
	suspend(req);
	return MHD_YES;
}

/* ---- the first call ---- */

struct framing {
	unsigned int lengths, encodings, hosts;
	size_t size; /* of all fields */
	bool strange, has_space;
};

static enum MHD_Result count_framing(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct framing *framing = cls;

	(void) kind;
	framing->size += strlen(name) + (value ? strlen(value) : 0) + strlen(": \r\n");
	framing->has_space |= strpbrk(name, " \t") != NULL;
	if (!strcasecmp(name, "Content-Length")) {
		framing->lengths++;
	} else if (!strcasecmp(name, "Host")) {
		framing->hosts++;
	} else if (!strcasecmp(name, "Transfer-Encoding")) {
		framing->encodings++;
		framing->strange = framing->strange || !value || strcasecmp(value, "chunked") != 0;
	}
	return MHD_YES;
}

/* FAIL_NONE and NULL when the head can be read in one way only and is within the limits. */
static enum fail_code judge_head(struct http_request *req, const char *version, const char **ret_why)
{
	struct framing framing = { 0 };
	const char *why = NULL;

	(void) MHD_get_connection_values(req->conn, MHD_HEADER_KIND, count_framing, &framing);
	if (strlen(req->target) > TARGET_MAX) {
		*ret_why = "the request's target is over the limit";
		return FAIL_TARGET_TOO_LONG;
	}
	if (framing.size > HEAD_MAX) {
		*ret_why = "the request's header fields are over the limit";
		return FAIL_HEAD_TOO_LARGE;
	}
	if (framing.lengths > 1)
		why = "more than one Content-Length";
	else if (framing.encodings > 1 || framing.strange)
		why = "the one Transfer-Encoding that is understood is chunked";
	else if (framing.encodings > 0 && framing.lengths > 0)
		why = "Content-Length beside Transfer-Encoding";
	else if (framing.hosts > 1)
		why = "more than one Host";
	else if (framing.hosts == 0 && !strcmp(version, "HTTP/1.1"))
		why = "a request needs a Host field";
	else if (framing.has_space)
		why = "a space in the name of a header field";
	else if (strchr(req->target, ' ') || strstr(req->target, "%00"))
		why = "a space or NUL in the request target";
	*ret_why = why;
	return why ? FAIL_INVALID_ARGUMENT : FAIL_NONE;
}

static void refuse_head(struct http_request *req, enum fail_code code, const char *why)
{
	struct err err = ERR_NULL;

	(void) err_set(&err, code, 0, "%s", why);
	if (code == FAIL_INVALID_ARGUMENT)
		err_add(&err, "field", "the request's head");
	else
		err_add(&err, "limit", "%u", code == FAIL_TARGET_TOO_LONG ? TARGET_MAX : HEAD_MAX);
	respond_err(req, &err);
}

static enum MHD_Result begin(struct http_request *req, const char *url, const char *method, const char *version)
{
	enum fail_code refusal;
	const char *why;

	req->begun = true;
	req->path = strdup(url);
	if (!req->path)
		return MHD_NO;
	(void) snprintf(req->method, sizeof(req->method), "%s", method);
	refusal = judge_head(req, version, &why);
	if (refusal != FAIL_NONE) {
		refuse_head(req, refusal, why);
		/* Queued in the first call: the library reads no further and closes after the answer. */
		return req->response ? queue(req) : MHD_NO;
	}
	req->shown = true;
	req->server->active++;
	req->server->handler.on_request(req, req->server->user);
	if (req->gone)
		return MHD_NO;
	/* The body of a request that is answered already is read away: closing with unread bytes is a reset, which
	 * can take the answer with it. Not where the client waits to be told to send. */
	if (req->response && http_header(req, "Expect"))
		return queue(req);
	return MHD_YES;
}

enum MHD_Result http_request_on_access(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
	const char *version, const char *data, size_t *size, void **state)
{
	struct http_request *req = *state;

	(void) cls;
	(void) conn;
	if (!req || req->gone)
		return MHD_NO;
	if (!req->begun)
		return begin(req, url, method, version);
	return *size > 0 ? take_piece(req, data, size) : finish(req);
}

/* The request line is in: the one place where the target can be had undecoded. */
void *http_request_on_target(void *cls, const char *target, struct MHD_Connection *conn)
{
	struct http_server *server = cls;
	struct http_request *req = calloc(1, sizeof(*req));

	if (!req)
		return NULL;
	req->server = server;
	req->conn = conn;
	req->target = strdup(target);
	if (!req->target) {
		free(req);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&server->requests, req, link);
	return req;
}

void http_request_on_completed(void *cls, struct MHD_Connection *conn, void **state, enum MHD_RequestTerminationCode why)
{
	struct http_request *req = *state;
	struct http_server *server = cls;

	(void) conn;
	(void) why;
	if (!req)
		return;
	*state = NULL;
	req->closed = true;
	if (req->watch)
		event_free(req->watch); /* before the library closes the descriptor */
	if (req->shown) {
		server->active--;
		if (server->handler.on_closed)
			server->handler.on_closed(req, server->user);
	}
	if (req->destroy)
		req->destroy(req->data);
	if (req->response)
		MHD_destroy_response(req->response);
	TAILQ_REMOVE(&server->requests, req, link);
	buf_deinit(&req->body);
	free(req->target);
	free(req->path);
	free(req);
}

/* ---- what a handler may ask ---- */

const char *http_method(const struct http_request *req)
{
	return req->method;
}

const char *http_path(const struct http_request *req)
{
	return req->path;
}

const char *http_target(const struct http_request *req)
{
	return req->target;
}

const char *http_header(const struct http_request *req, const char *name)
{
	return MHD_lookup_connection_value(req->conn, MHD_HEADER_KIND, name);
}

const char *http_query(const struct http_request *req, const char *name)
{
	const char *value = NULL;

	if (MHD_lookup_connection_value_n(req->conn, MHD_GET_ARGUMENT_KIND, name, strlen(name), &value, NULL) ==
		MHD_NO)
		return NULL;
	return value ? value : "";
}

struct each {
	http_each each;
	void *user;
};

static enum MHD_Result each_header(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
	const struct each *each = cls;

	(void) kind;
	each->each(name, value ? value : "", each->user);
	return MHD_YES;
}

void http_each_header(const struct http_request *req, http_each each, void *user)
{
	struct each state = { each, user };

	(void) MHD_get_connection_values(req->conn, MHD_HEADER_KIND, each_header, &state);
}

void http_set_data(struct http_request *req, void *data, void (*destroy)(void *data))
{
	req->data = data;
	req->destroy = destroy;
}

void *http_data(const struct http_request *req)
{
	return req->data;
}
