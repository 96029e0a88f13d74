/* SPDX-License-Identifier: Apache-2.0
 *
 * The API over libcurl, one call at a time. Every answer is bounded; every failure becomes a struct err with the
 * API's own record beside it, so that what is printed is what the scheduler said.
 */
#pragma once

#include <curl/curl.h>
#include <jansson.h>
#include <signal.h>
#include <stdint.h>

#include "base/err.h"
#include "cli/cli.h"

#define NEXT_TOKEN_SIZE 128
#define HTTP_BODY_MAX (32u * 1024 * 1024)

struct failure {
	struct err err;
	json_t *body; /* the answer with its `failure`; NULL: ours alone */
	int status;   /* of the HTTP answer; 0: none */
};

void failure_deinit(struct failure *failure);

/* An easy handle with everything that all calls have in common; `path` is appended to `url`. NULL when memory is
 * short. `*headers` is the caller's, to be given to curl_easy_setopt() and freed after the handle. */
CURL *http_easy(const char *url, const char *path, struct curl_slist **headers);

struct api_call {
	const char *method;
	const char *path;          /* with query */
	const json_t *body;        /* NULL: none */
	int64_t timeout_us;        /* 0: the usual */
	const volatile sig_atomic_t *stop; /* set: give up with -EINTR; may be NULL */
	/* For an answer of lines of JSON, however long: each one as it comes. Negative: stop with it; `failure` says why. NULL: the answer
	 * is one JSON text. */
	int (*on_line)(json_t *line, struct failure *failure, void *user);
	void *user;
	char *next;                /* of NEXT_TOKEN_SIZE: the x-next-token of a list's page, "" at its end; may be NULL */
};

/* Whether there is a key to call with: asked when everything else about a command is right. 0 or UNAUTHENTICATED. */
int api_need_key(const struct cli *cli, struct err *reterr);
/* 0 with the answer's JSON (NULL for an empty one) for 2xx; else -errno and `failure`. */
int api_call(const struct cli *cli, const struct api_call *call, json_t **ret, struct failure *failure);
/* The same without options: GET or DELETE of a path made like printf. */
int api_get(const struct cli *cli, json_t **ret, struct failure *failure, const char *fmt, ...) PRINTF_LIKE(4, 5);
int api_delete(const struct cli *cli, struct failure *failure, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* What libcurl says about an answer that never came whole. */
void failure_of_curl(struct failure *failure, CURLcode code, const char *detail, const char *url);
/* What a non-2xx answer says. `body` is parsed here. */
void failure_of_answer(struct failure *failure, int status, const char *body, size_t size);
