/* SPDX-License-Identifier: Apache-2.0
 *
 * See relay.h. A relayed request is one call of the HTTP client over a stream (stream.h) to the gateway. Each direction
 * has a bounded buffer between the two HTTP sides.
 */
#include "server/relay.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/fd.h"
#include "server/shell.h"
#include "server/stream.h"
#include "wire/http-client.h"

#define BUFFER_MAX (256u * 1024u)
#define FIELDS_MAX 64
#define PORT_GATEWAY "49983"

struct relay {
	struct server *server;
	struct streams *streams;
};

struct target {
	char sandbox[ID_SIZE];
	char port[8];
};

struct relayed {
	struct relay *relay;
	struct api_request *req;
	struct target target;
	const char *path; /* that this server asks for itself; NULL: the request's own */
	char *token;      /* for it */
	struct stream *stream;
	struct http_call *call; /* NULL: over */
	struct buf up, down;
	bool up_ended, up_refused;     /* refused: a piece waits in the server */
	bool down_ended, down_refused; /* refused: a piece waits in the client */
	bool is_broken, has_responded;
};

/* ---- which sandbox ---- */

/* "<port>-<sandbox>." at the front of the host name. */
static bool parse_host(const char *host, struct target *ret)
{
	size_t digits = host ? strspn(host, "0123456789") : 0;

	if (digits == 0 || digits >= sizeof(ret->port) || host[digits] != '-' ||
		strlen(host) <= digits + 1 + ID_LEN || host[digits + 1 + ID_LEN] != '.')
		return false;
	memcpy(ret->port, host, digits);
	ret->port[digits] = '\0';
	memcpy(ret->sandbox, host + digits + 1, ID_LEN);
	ret->sandbox[ID_LEN] = '\0';
	return id_is_valid(ret->sandbox);
}

static bool is_gateway_path(const char *path)
{
	return !strcmp(path, "/files") || !strncmp(path, "/process.Process/", 17) ||
	       !strncmp(path, "/filesystem.Filesystem/", 23);
}

enum target_result { TARGET_NONE, TARGET_FOUND, TARGET_INVALID };

static enum target_result find_target(
	const struct http_request *http, struct target *ret, struct err *reterr)
{
	const char *id = http_header(http, "e2b-sandbox-id"),
		   *port = http_header(http, "e2b-sandbox-port");

	if (!id && !port) {
		if (parse_host(http_header(http, "host"), ret))
			return TARGET_FOUND;
		if (!is_gateway_path(http_path(http)))
			return TARGET_NONE;
		(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL,
			"nothing names the sandbox: send e2b-sandbox-id and e2b-sandbox-port, or use the host "
			"<port>-<sandbox>.<domain>; signed URLs work with the host form, or at the node's gateway");
		err_add(reterr, "field", "e2b-sandbox-id");
		return TARGET_INVALID;
	}
	if (!id || (port && (strlen(port) > 5 || strspn(port, "0123456789") != strlen(port) ||
				    !*port))) {
		(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL,
			"e2b-sandbox-id and a numeric e2b-sandbox-port belong together");
		err_add(reterr, "field", "%s", id ? "e2b-sandbox-port" : "e2b-sandbox-id");
		return TARGET_INVALID;
	}
	(void)snprintf(ret->sandbox, sizeof(ret->sandbox), "%s", strlen(id) == ID_LEN ? id : "");
	(void)snprintf(ret->port, sizeof(ret->port), "%s", port ? port : PORT_GATEWAY);
	return TARGET_FOUND;
}

/* Where the sandbox runs, or why it cannot be reached. A sandbox that never was answers like one that is gone. */
static int find_route(const struct server *server, const struct target *target,
	const char **ret_node, uint64_t *ret_session, struct err *reterr)
{
	const struct fleet *fleet = shell_fleet(server->shell);
	struct fleet_sandbox_view view;
	const char *node;

	if (!server->options->relay)
		return err_set(reterr, FAIL_RELAY_DISABLED, EPERM, "this scheduler does not relay");
	if (!id_is_valid(target->sandbox) ||
		fleet_sandbox_get(fleet, target->sandbox, NULL, &view) < 0 ||
		view.state == PUBLIC_STOPPING || view.state == PUBLIC_ENDED)
		return err_set(reterr, FAIL_SANDBOX_GONE, ENOENT, "the sandbox is not running");
	node = fleet_sandbox_node(fleet, target->sandbox, ret_session);
	if (!node || !*node)
		return err_set(
			reterr, FAIL_SANDBOX_NOT_READY, EAGAIN, "the sandbox has no node yet");
	if (*ret_session == 0 || view.node_link != NODE_READY)
		return err_set(reterr, FAIL_NODE_UNREACHABLE, ENOTCONN, "the sandbox's node is %s",
			node_link_name(view.node_link));
	*ret_node = node;
	return 0;
}

/* ---- request body: server -> client ---- */
static bool on_piece(struct http_request *http, const void *data, size_t size, bool end, void *user)
{
	struct relayed *relayed = user;

	(void)http;
	if (!relayed->call)
		return true; /* answered early: the rest is dropped */
	if (size && buf_append(&relayed->up, data, size) < 0) {
		relayed->up_refused = true;
		return false;
	}
	relayed->up_ended |= end;
	http_call_wake(relayed->call);
	return true;
}

static long on_upload(struct http_call *call, void *buf, size_t room, void *user)
{
	struct relayed *relayed = user;
	size_t n = MIN(room, buf_size(&relayed->up));

	(void)call;
	if (n == 0)
		return relayed->up_ended ? -1 : 0;
	memcpy(buf, buf_peek(&relayed->up), n);
	buf_consume(&relayed->up, n);
	if (relayed->up_refused && buf_size(&relayed->up) <= BUFFER_MAX / 2) {
		relayed->up_refused = false;
		http_resume_body(relayed->req->http);
	}
	return (long)n;
}

/* ---- answer: client -> server ---- */
static long on_want(struct http_request *http, void *buf, size_t room, void *user)
{
	struct relayed *relayed = user;
	size_t n = MIN(room, buf_size(&relayed->down));

	(void)http;
	if (n == 0) {
		if (relayed->down_ended)
			return relayed->is_broken ? -2 : -1;
		return 0;
	}
	memcpy(buf, buf_peek(&relayed->down), n);
	buf_consume(&relayed->down, n);
	if (relayed->down_refused && relayed->call) {
		relayed->down_refused = false;
		http_call_wake(relayed->call);
	}
	return (long)n;
}

struct fields {
	struct http_field list[FIELDS_MAX];
	size_t n;
	char *texts[2 * FIELDS_MAX]; /* copies that the list points to */
	size_t n_texts;
};

static void fields_deinit(struct fields *fields)
{
	for (size_t i = 0; i < fields->n_texts; i++)
		free(fields->texts[i]);
}

static void fields_add(struct fields *fields, const char *name, const char *value)
{
	char *name_copy, *value_copy;

	if (fields->n == FIELDS_MAX)
		return;
	name_copy = strdup(name);
	value_copy = strdup(value);
	if (name_copy)
		fields->texts[fields->n_texts++] = name_copy;
	if (value_copy)
		fields->texts[fields->n_texts++] = value_copy;
	if (name_copy && value_copy)
		fields->list[fields->n++] = (struct http_field){ name_copy, value_copy };
}

static bool is_one_of(const char *name, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcasecmp(name, list[i]))
			return true;
	return false;
}

/* What belongs to one connection, and what is framed anew. */
static bool is_hop_by_hop(const char *name)
{
	static const char *const names[] = { "connection", "keep-alive", "proxy-authenticate",
		"proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding",
		"upgrade", "content-length", "expect" };

	return is_one_of(name, names, ARRAY_LEN(names));
}

static void add_answer_field(const char *name, const char *value, void *user)
{
	if (!is_hop_by_hop(name) && strcasecmp(name, "traceparent") != 0)
		fields_add(user, name, value);
}

static void on_header(struct http_call *call, int status, void *user)
{
	struct relayed *relayed = user;
	struct api_request *req = relayed->req;
	struct fields fields = { .n = 0 };
	const char *length = http_call_header(call, "content-length");
	char traceparent[TRACEPARENT_SIZE];
	bool is_empty = status == 204 || status == 304 || !strcmp(http_method(req->http), "HEAD");
	unsigned int hundreds = (unsigned int)status / 100;

	trace_format(&req->trace, traceparent);
	fields_add(&fields, "traceparent", traceparent);
	http_call_each_header(call, add_answer_field, &fields);
	relayed->has_responded = true;
	req->is_answered = true;
	req->server->counters.http_requests[hundreds < 6 ? hundreds : 0]++;
	if (is_empty)
		(void)http_respond(req->http, status, NULL, fields.list, fields.n, "", 0);
	else
		(void)http_respond_stream(req->http, status, NULL, fields.list, fields.n,
			length ? strtoll(length, NULL, 10) : -1, on_want, relayed);
	fields_deinit(&fields);
}

static bool on_body(struct http_call *call, const void *data, size_t size, void *user)
{
	struct relayed *relayed = user;

	(void)call;
	if (buf_append(&relayed->down, data, size) < 0) {
		relayed->down_refused = true;
		return false;
	}
	http_stream_wake(relayed->req->http);
	return true;
}

static void fail(struct api_request *req, const char *sandbox, const struct err *err)
{
	const struct failure_context context = { .responsibility = RESPONSIBILITY_SELF,
		.table = NULL, /* who calls is not known by a key here */
		.trace = &req->trace,
		.sandbox = id_is_valid(sandbox) ? sandbox : NULL,
		.began_us = req->began_us,
		.took_us = clock_monotonic_usec() - req->began_usec };

	req->server->counters.relay_refused++;
	api_fail_with(req, err, &context);
}

static void on_done(struct http_call *call, const struct err *err, void *user)
{
	struct relayed *relayed = user;
	struct err broken = ERR_NULL;

	(void)call;
	relayed->call = NULL;
	relayed->down_ended = true;
	relayed->is_broken = err != NULL;
	if (relayed->has_responded) {
		http_stream_wake(relayed->req->http);
	} else {
		const struct err *cause = relayed->stream ? stream_failure(relayed->stream) : NULL;

		if (cause)
			broken = *cause;
		else
			(void)err_set(&broken, FAIL_RELAY_BROKEN, EPIPE,
				"the gateway gave no answer: %s", err ? err->msg : "none");
		fail(relayed->req, relayed->target.sandbox, &broken);
	}
	relayed->stream = stream_close(relayed->stream);
	if (relayed->up_refused) {
		relayed->up_refused = false;
		http_resume_body(relayed->req->http); /* so that the rest can be dropped */
	}
}

/* ---- a request ---- */
static void relayed_free(void *extra)
{
	struct relayed *relayed = extra;

	if (relayed->call)
		http_call_cancel(relayed->call);
	relayed->stream = stream_close(relayed->stream);
	buf_deinit(&relayed->up);
	buf_deinit(&relayed->down);
	free(relayed->token);
	free(relayed);
}

static void add_request_field(const char *name, const char *value, void *user)
{
	static const char *const own[] = { "x-api-key", "traceparent", "e2b-sandbox-id",
		"e2b-sandbox-port" };

	if (is_hop_by_hop(name) || is_one_of(name, own, ARRAY_LEN(own)))
		return;
	if (!strcasecmp(name, "authorization") && !strncasecmp(value, "Bearer croft_", 13))
		return; /* a key of this API is no node's business */
	fields_add(user, name, value);
}

static int start_call(struct relayed *relayed, int fd, struct err *reterr)
{
	const struct target *target = &relayed->target;
	struct api_request *req = relayed->req;
	struct http_request *http = req->http;
	const char *length = http_header(http, "content-length");
	const bool has_body = !relayed->path && (length || http_header(http, "transfer-encoding"));
	struct http_call_config config = HTTP_CALL_NULL;
	struct fields fields = { .n = 0 };
	char traceparent[TRACEPARENT_SIZE];
	CLEANUP_FREE char *url = NULL;
	int r;

	if (asprintf(&url, "http://sandbox%s", relayed->path ? relayed->path : http_target(http)) < 0)
		return err_set_at(
			reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "no memory for a call");
	trace_format(&req->trace, traceparent);
	fields_add(&fields, "traceparent", traceparent);
	fields_add(&fields, "e2b-sandbox-id", target->sandbox);
	fields_add(&fields, "e2b-sandbox-port", target->port);
	if (!relayed->path)
		http_each_header(http, add_request_field, &fields);
	else if (relayed->token)
		fields_add(&fields, "x-access-token", relayed->token);
	config.method = http_method(http);
	config.url = url;
	config.socket_fd = fd;
	config.fields = fields.list;
	config.n_fields = fields.n;
	config.has_body = has_body;
	config.upload_size = length ? strtoll(length, NULL, 10) : -1;
	config.on_upload = has_body ? on_upload : NULL;
	config.on_header = on_header;
	config.on_body = on_body;
	config.on_done = on_done;
	config.user = relayed;
	r = http_call_start(req->server->client, &config, &relayed->call, reterr);
	fields_deinit(&fields);
	if (r == 0 && has_body)
		http_stream_body(http, on_piece, relayed);
	return r;
}

static void begin(struct relayed *relayed)
{
	struct api_request *req = relayed->req;
	const struct target *target = &relayed->target;
	struct err err = ERR_NULL;
	uint64_t session = 0;
	const char *node = "";
	int fd = -1, r;

	r = find_route(req->server, target, &node, &session, &err);
	if (r == 0)
		r = stream_open(relayed->relay->streams, node, session, target->sandbox, &relayed->stream, &fd, &err);
	if (r == 0)
		r = start_call(relayed, fd, &err);
	if (r < 0) {
		(void)fd_close(fd); /* not taken */
		fail(req, target->sandbox, &err);
	}
}

/* ---- a sandbox that sleeps ---- */
static void on_awake(struct api_request *req, const struct fleet_reply *reply)
{
	struct relayed *relayed = req->extra;

	if (err_is_set(&reply->err))
		fail(req, relayed->target.sandbox, &reply->err);
	else
		begin(relayed);
}

/* Whether this call may wake it: who has its token, as the gateway demands it of every call for one that is secure. The gateway
 * is not asked: it has no route to one that sleeps. */
static bool may_wake(const struct relayed *relayed, const struct sandbox_spec *spec)
{
	const char *token = http_header(relayed->req->http, "x-access-token");

	if (!spec->secure)
		return true;
	return token && strlen(token) == strlen(spec->access_token) &&
	       CRYPTO_memcmp(token, spec->access_token, strlen(token)) == 0;
}

/* true: the call waits until its sandbox is awake, or was answered. To ask how it is does not wake it. */
static bool wakes(struct relayed *relayed)
{
	const struct fleet *fleet = shell_fleet(relayed->req->server->shell);
	struct sandbox_record record;
	struct fleet_sandbox_view view;
	struct err err = ERR_NULL;

	if (!relayed->req->server->options->relay || !id_is_valid(relayed->target.sandbox) ||
		(!strcmp(relayed->target.port, PORT_GATEWAY) && !strcmp(http_path(relayed->req->http), "/health")) ||
		fleet_sandbox_get(fleet, relayed->target.sandbox, NULL, &view) < 0 || !api_sandbox_sleeps(&view) ||
		fleet_sandbox_get(fleet, relayed->target.sandbox, &record, NULL) < 0)
		return false;
	if (record.spec->auto_resume && !relayed->path && may_wake(relayed, record.spec)) {
		api_sandbox_wake(relayed->req, &record, &view, 0, on_awake);
	} else {
		(void)err_set(&err, FAIL_SANDBOX_NOT_READY, EAGAIN, "%s",
			record.spec->auto_resume && !relayed->path
				? "The sandbox is paused, and a call that wakes it needs its access token."
				: "The sandbox is paused: connect to it to wake it; one made with autoResume wakes by itself.");
		fail(relayed->req, relayed->target.sandbox, &err);
	}
	sandbox_record_deinit(&record);
	return true;
}

/* NULL: answered with the failure. */
static struct relayed *relayed_new(struct relay *relay, struct api_request *req, const struct target *target)
{
	struct relayed *relayed = calloc(1, sizeof(*relayed));
	struct err err = ERR_NULL;

	if (!relayed) {
		(void)err_set_at(&err, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "no memory for a call");
		fail(req, target->sandbox, &err);
		return NULL;
	}
	relayed->relay = relay;
	relayed->req = req;
	relayed->target = *target;
	relayed->up = (struct buf)BUF_NULL(BUFFER_MAX);
	relayed->down = (struct buf)BUF_NULL(BUFFER_MAX);
	req->extra = relayed;
	req->extra_free = relayed_free;
	return relayed;
}

bool relay_takes(struct relay *relay, struct api_request *req)
{
	struct target target = { .port = "" };
	struct relayed *relayed;
	struct err err = ERR_NULL;

	switch (find_target(req->http, &target, &err)) {
	case TARGET_NONE:
		return false;
	case TARGET_INVALID:
		fail(req, "", &err);
		return true;
	case TARGET_FOUND:
		break;
	}
	relayed = relayed_new(relay, req, &target);
	if (relayed && !wakes(relayed))
		begin(relayed);
	return true;
}

void relay_ask(struct relay *relay, struct api_request *req, const char *sandbox, const char *path, const char *token)
{
	struct target target = { .port = PORT_GATEWAY };
	struct relayed *relayed;

	(void)snprintf(target.sandbox, sizeof(target.sandbox), "%s", sandbox);
	relayed = relayed_new(relay, req, &target);
	if (!relayed)
		return;
	relayed->path = path;
	relayed->token = *token ? strdup(token) : NULL; /* without it the gateway refuses */
	if (!wakes(relayed))
		begin(relayed);
}

void relay_on_message(struct relay *relay, uint64_t session, const Croft__Envelope *envelope)
{
	streams_on_message(relay->streams, session, envelope);
}

size_t relay_count(const struct relay *relay)
{
	return streams_count(relay->streams);
}

int relay_new(struct relay **ret, struct server *server, struct err *reterr)
{
	struct relay *relay = calloc(1, sizeof(*relay));
	int r;

	if (!relay)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the relay");
	relay->server = server;
	r = streams_new(&relay->streams, server, reterr);
	if (r < 0) {
		free(relay);
		return r;
	}
	*ret = relay;
	return 0;
}

void relay_free(struct relay *relay)
{
	if (!relay)
		return;
	streams_free(relay->streams);
	free(relay);
}
