/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP client: libcurl's multi-socket interface on the process's libevent loop. The one module besides the
 * command line that includes <curl/curl.h>. Callbacks run on the loop thread. Environment proxies are not
 * used unless asked for.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/http-server.h" /* struct http_field */

struct event_base;
struct http_client;
struct http_call;

int http_client_new(struct http_client **ret, struct event_base *base, struct err *reterr);
/* Cancels what is under way, without callbacks. */
void http_client_free(struct http_client *client);

struct http_call_config {
	const char *method;
	const char *url;
	const char *unix_path;       /* connect here instead of the URL's host */
	int socket_fd;               /* >= 0: speak over this connected stream socket (taken over); else -1 */
	const struct http_field *fields;
	size_t n_fields;
	const void *body;            /* copied; used when on_upload is NULL */
	size_t body_size;
	bool has_body;               /* send one even if it is empty */
	int64_t upload_size;         /* of a streamed body; -1: chunked */
	int64_t connect_timeout_ms;  /* 0: 10 s */
	int64_t total_timeout_ms;    /* 0: none */

	/* Fills at most `room` bytes of the request body; 0: nothing now (http_call_wake() later), -1: end,
	 * -2: break off. NULL: `body`. */
	long (*on_upload)(struct http_call *call, void *buf, size_t room, void *user);
	/* Headers are in (status of the final answer; 1xx are not shown). May be NULL. */
	void (*on_header)(struct http_call *call, int status, void *user);
	/* A piece of the answer's body. false: cannot take it now; it comes again after http_call_wake(). NULL:
	 * collected, at most `max_body`, for http_call_body(). */
	bool (*on_body)(struct http_call *call, const void *data, size_t size, void *user);
	size_t max_body;
	/* The end; the call is freed after it returned. `err` is NULL when a whole answer came (of any status). */
	void (*on_done)(struct http_call *call, const struct err *err, void *user);
	void *user;
};

#define HTTP_CALL_NULL { .socket_fd = -1, .upload_size = -1 }

/* A connection, through a proxy where one is named, and nothing more. */
struct http_connect_config {
	const char *host_port;       /* "name:port", "[address]:port" */
	const char *proxy;           /* "http://host:port", "socks5h://host:port"; NULL or "": none. The environment has no say */
	const char *proxy_user, *proxy_password; /* NULL or "": none */
	int64_t timeout_ms;          /* for all of it */
	/* The descriptor is the caller's; -1 and why: PROXY_UNREACHABLE, PROXY_AUTH, PROXY_REFUSED, LINK_UNREACHABLE. */
	void (*on_done)(int fd, const struct err *err, void *user);
	void *user;
};
/* http_call_cancel() ends it without on_done; behind on_done it is gone. */
int http_connect_start(struct http_client *client, const struct http_connect_config *config, struct http_call **ret,
	struct err *reterr);

/* Header values are copied. On failure nothing was started and on_done is not called. */
int http_call_start(struct http_client *client, const struct http_call_config *config, struct http_call **ret,
	struct err *reterr);
/* Ends it without on_done. */
void http_call_cancel(struct http_call *call);
void http_call_wake(struct http_call *call);
int http_call_status(const struct http_call *call);
const char *http_call_header(const struct http_call *call, const char *name); /* of the answer; last one */
void http_call_each_header(const struct http_call *call, http_each each, void *user);
const char *http_call_body(const struct http_call *call, size_t *ret_size);
