/* SPDX-License-Identifier: Apache-2.0
 *
 * What http-client.c (the loop, the end of a call) and http-call.c (one call: its options, its bytes) share.
 * Nobody else includes this.
 */
#pragma once

#include <curl/curl.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "wire/http-client.h"

struct event;

#define ANSWER_FIELDS_MAX 128

struct http_client {
	struct event_base *base; /* borrowed */
	CURLM *multi;
	struct event *timer;
	bool running;
	TAILQ_HEAD(, http_call) calls;
	TAILQ_HEAD(, watch) watches;
};

/* One descriptor that libcurl wants watched. */
struct watch {
	TAILQ_ENTRY(watch) link;
	struct http_client *client;
	struct event *event;
	int fd;
};

struct answer_field {
	char *name;
	char *value;
};

struct http_call {
	TAILQ_ENTRY(http_call) link;
	struct http_client *client; /* borrowed */
	CURL *easy;
	struct curl_slist *fields;
	struct event *wake;
	int socket_fd; /* given, until libcurl has it */
	int stub_fd;
	int made_fd;   /* libcurl's socket; not ours to close */
	bool dead;     /* cancelled or ended; freed by the sweep */
	bool head_done;
	bool over_limit;
	int status;
	size_t head_size;
	size_t n_answer;
	struct answer_field answer[ANSWER_FIELDS_MAX];
	struct buf body;
	char text[CURL_ERROR_SIZE];

	long (*on_upload)(struct http_call *call, void *buf, size_t room, void *user);
	void (*on_header)(struct http_call *call, int status, void *user);
	bool (*on_body)(struct http_call *call, const void *data, size_t size, void *user);
	void (*on_done)(struct http_call *call, const struct err *err, void *user);
	void (*on_connected)(int fd, const struct err *err, void *user); /* set: of http_connect_start() */
	bool has_proxy;
	void *user;
};

void http_connect_finish(struct http_call *call, CURLcode code);

/* The watch of a descriptor, NULL where libcurl asked for none. */
struct watch *http_client_find_watch(struct http_client *client, int fd);
/* For the call's timer: unpauses it. */
void http_client_on_wake(int fd, short what, void *user);
/* Not while libcurl is on the stack: see `running`. */
void http_call_free(struct http_call *call);
