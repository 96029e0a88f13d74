/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 server: libmicrohttpd on the process's libevent loop (its epoll descriptor and
 * MHD_get_timeout). The one module that includes <microhttpd.h>. Everything runs on the loop thread.
 *
 * Life of a request: on_request() is called when the headers are in. It chooses how the body comes
 * (http_read_body() collects at most `max` bytes and calls back once; http_stream_body() hands over pieces
 * with back-pressure) and answers once, at once or later, with http_respond() or http_respond_stream(). A
 * request that was not answered when its client went away gets on_closed().
 *
 * Never seen by a handler: a head that can be read in two ways, lacks Host or is over a limit, answered here with a
 * failure record (400, 414, 431). What the library itself cannot read it answers in its own words, in HTML, and ends the
 * connection: another version of HTTP (505), a line that is no header field, a Content-Length that is no number, broken
 * chunks (400, 413), and heads so far over the limit that they do not fit into its memory (414, 431).
 * Every answer without a body carries Content-Length: 0 (or is 204). Every connection is bounded in memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct event_base;
struct http_server;
struct http_request;

struct http_server_config {
	const char *address;      /* "127.0.0.1"; IPv6 without brackets; NULL with unix_path */
	uint16_t port;            /* 0: any; http_server_port() tells */
	const char *unix_path;    /* listen on a unix socket instead */
	unsigned int max_connections;
	unsigned int idle_timeout_s; /* of a connection between requests; 0: none */
	/* Files in PEM: the server's certificate with those that lead to its root, and its key. Both or neither (NULL or
	 * ""). TLS 1.2 and 1.3; read once, here: what cannot be used is CONFIG_INVALID with the file. */
	const char *tls_cert;
	const char *tls_key;
};

struct http_handler {
	/* Headers are in. Must arrange for an answer. */
	void (*on_request)(struct http_request *req, void *user);
	/* The client is gone or the server stops, before or while answering; after this `req` is invalid. Also called
	 * at the end of an answered request, exactly once per request. */
	void (*on_closed)(struct http_request *req, void *user);
};

int http_server_new(struct http_server **ret, struct event_base *base, const struct http_server_config *config,
	const struct http_handler *handler, void *user, struct err *reterr);
void http_server_free(struct http_server *server);
uint16_t http_server_port(const struct http_server *server);
/* Requests under way, for drain at shutdown. */
unsigned int http_server_active(const struct http_server *server);

const char *http_method(const struct http_request *req);
const char *http_path(const struct http_request *req);      /* decoded once, without the query */
/* The request target exactly as it was sent, query included: what a relay passes on. */
const char *http_target(const struct http_request *req);
const char *http_header(const struct http_request *req, const char *name); /* NULL: absent; any case */
const char *http_query(const struct http_request *req, const char *name);  /* decoded once; NULL: absent */
typedef void (*http_each)(const char *name, const char *value, void *user);
void http_each_header(const struct http_request *req, http_each each, void *user);
/* Owned by the caller; freed with `destroy` at on_closed time. */
void http_set_data(struct http_request *req, void *data, void (*destroy)(void *data));
void *http_data(const struct http_request *req);

/* Collects the body, then calls back once with all of it (NUL-terminated behind the end). Over `max`: the
 * client gets 413 with BODY_TOO_LARGE and `done` is not called. */
void http_read_body(struct http_request *req, size_t max,
	void (*done)(struct http_request *req, const char *body, size_t size, void *user), void *user);

/* Pieces of the body as they come; size 0 with `end`. After it returned false no more is delivered until
 * http_resume_body(): the socket is not read meanwhile. The piece that was refused comes again. */
typedef bool (*http_on_body)(struct http_request *req, const void *data, size_t size, bool end, void *user);
void http_stream_body(struct http_request *req, http_on_body on_body, void *user);
void http_resume_body(struct http_request *req);

struct http_field {
	const char *name;
	const char *value;
};

/* Answers. `fields` (n of them) are copied (Content-Length and Transfer-Encoding are left out: the body is framed
 * here); content_type NULL: none. The body is copied. 0, -EALREADY (answered before, or on_closed was called),
 * -EINVAL (a field or status that may not be sent), -ENOMEM. */
int http_respond(struct http_request *req, int status, const char *content_type, const struct http_field *fields,
	size_t n_fields, const void *body, size_t size);
int http_respond_json(struct http_request *req, int status, const char *json);
/* The failure as json_error_body() with the status of its code. */
struct failure_context;
int http_respond_failure(struct http_request *req, const struct err *err, const struct failure_context *context);

/* An answer whose body is made while it goes: `want` is called when the client can take more; it fills at most
 * `room` bytes and returns how many, 0 for "nothing now" (http_stream_wake() later), -1 for the end, -2 to
 * break the connection off (so that the client sees that the body is not whole). content_length -1: chunked. */
typedef long (*http_want)(struct http_request *req, void *buf, size_t room, void *user);
int http_respond_stream(struct http_request *req, int status, const char *content_type,
	const struct http_field *fields, size_t n_fields, int64_t content_length, http_want want, void *user);
void http_stream_wake(struct http_request *req);
