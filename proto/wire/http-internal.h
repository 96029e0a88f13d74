/* SPDX-License-Identifier: Apache-2.0
 *
 * What http-server.c (the loop, the listener) and http-request.c (the life of a request) share. Nobody else
 * includes this.
 */
#pragma once

#include <microhttpd.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "wire/http-server.h"

struct event;

struct http_server {
	char *tls_cert, *tls_key;
	size_t tls_key_size;
	char complaint[256]; /* what the library said last while it started */
	struct event_base *base; /* borrowed */
	struct MHD_Daemon *daemon;
	struct event *poll_event;
	struct event *turn_event; /* timer: the library's timeout, or 0 for "at once" */
	struct http_handler handler;
	void *user;
	char *unix_path;
	uint16_t port;
	unsigned int active;
	bool turning;
	bool resumed;  /* in this turn, so that another one must follow */
	bool stopping;
	TAILQ_HEAD(, http_request) requests;
};

enum body_mode { BODY_UNSET, BODY_COLLECT, BODY_STREAM };

struct http_request {
	TAILQ_ENTRY(http_request) link;
	struct http_server *server; /* borrowed */
	struct MHD_Connection *conn;
	char *target;
	char *path;
	char method[24];
	struct event *watch;
	bool begun;     /* the first call was made */
	bool shown;     /* on_request was called */
	bool suspended;
	bool woken;
	bool gone;      /* the client is away or the server stops */
	bool closed;    /* on_closed runs or ran */
	bool body_ended;
	bool streaming; /* `want` makes the answer */
	bool answered;

	enum body_mode mode;
	struct buf body;
	size_t body_max;
	uint64_t discarded;
	void (*on_whole)(struct http_request *req, const char *body, size_t size, void *user);
	http_on_body on_piece;
	void *body_user;

	struct MHD_Response *response; /* waits to be queued */
	int status;
	http_want want;
	void *want_user;

	void *data;
	void (*destroy)(void *data);
};

/* The library's callbacks. */
void *http_request_on_target(void *cls, const char *target, struct MHD_Connection *conn);
enum MHD_Result http_request_on_access(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
	const char *version, const char *data, size_t *size, void **state);
void http_request_on_completed(void *cls, struct MHD_Connection *conn, void **state,
	enum MHD_RequestTerminationCode why);

/* Resumes a suspended request; one that is not suspended yet will not stay so. */
void http_request_wake(struct http_request *req);

/* Another MHD_run() soon: after each MHD_resume_connection(). */
void http_server_turn_soon(struct http_server *server);
