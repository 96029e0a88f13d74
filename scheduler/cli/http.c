/* SPDX-License-Identifier: Apache-2.0
 *
 * See http.h.
 */
#include "cli/http.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/clock.h"
#include "wire/json.h"

#define CONNECT_TIMEOUT_MS 10000L
#define CALL_TIMEOUT_US (100 * USEC_PER_SEC) /* above the longest long-poll */

void failure_deinit(struct failure *failure)
{
	json_decref(failure->body);
	*failure = (struct failure){ 0 };
}

static bool is_loopback(const char *url)
{
	static const char *const hosts[] = { "http://127.", "http://localhost", "http://[::1]", "https://127.",
		"https://localhost", "https://[::1]" };

	for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
		if (!strncmp(url, hosts[i], strlen(hosts[i])))
			return true;
	return false;
}

CURL *http_easy(const char *url, const char *path, struct curl_slist **headers)
{
	CLEANUP_FREE char *whole = NULL;
	CURL *easy = curl_easy_init();
	const char *ca = getenv("CROFT_CA_FILE");
	struct curl_slist *list = NULL;

	if (!easy || asprintf(&whole, "%s%s", url, path) < 0 ||
		curl_easy_setopt(easy, CURLOPT_URL, whole) != CURLE_OK) {
		curl_easy_cleanup(easy);
		return NULL;
	}
	(void) curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	(void) curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	(void) curl_easy_setopt(easy, CURLOPT_USERAGENT, "croft/" CROFT_VERSION);
	(void) curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
	/* A proxy of the environment is for the world outside, also where nobody wrote a no_proxy. */
	if (is_loopback(url))
		(void) curl_easy_setopt(easy, CURLOPT_PROXY, "");
	if (ca && *ca && curl_easy_setopt(easy, CURLOPT_CAINFO, ca) != CURLE_OK) {
		curl_easy_cleanup(easy);
		return NULL;
	}
	list = curl_slist_append(list, "Accept: application/json");
	*headers = list;
	return easy;
}

/* ---- failures ---- */

static bool is_http_url(const char *url)
{
	return !strncasecmp(url, "http://", 7) || !strncasecmp(url, "https://", 8);
}

void failure_of_curl(struct failure *failure, CURLcode code, const char *detail, const char *url)
{
	const char *text = *detail ? detail : curl_easy_strerror(code);

	switch (code) {
	case CURLE_OUT_OF_MEMORY:
		err_set(&failure->err, FAIL_NO_MEMORY, ENOMEM, "croft ran out of memory.");
		break;
	case CURLE_UNSUPPORTED_PROTOCOL: /* so it also calls an answer that begins with no status line */
		if (is_http_url(url)) {
			err_set(&failure->err, FAIL_API_PROTOCOL, EPROTO, "%s does not speak HTTP; the API's port is 7280 by default.",
				url);
			break;
		}
		__attribute__((fallthrough));
	case CURLE_URL_MALFORMAT:
		err_set(&failure->err, FAIL_CONFIG_INVALID, EINVAL, "%s is no http or https address.", url);
		err_add(&failure->err, "option", "CROFT_API_URL");
		break;
	case CURLE_WRITE_ERROR:
		err_set(&failure->err, FAIL_API_PROTOCOL, EMSGSIZE, "The answer from %s is too large.", url);
		break;
	case CURLE_WEIRD_SERVER_REPLY:
		err_set(&failure->err, FAIL_API_PROTOCOL, EPROTO, "%s does not speak HTTP: %s.", url, text);
		break;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CONNECT_ERROR:
		err_set(&failure->err, FAIL_API_UNTRUSTED, 0, "%s is not whom it should be: %s.", url, text);
		break;
	case CURLE_OPERATION_TIMEDOUT:
		err_set(&failure->err, FAIL_API_UNREACHABLE, ETIMEDOUT, "%s did not answer in time.", url);
		break;
	default:
		err_set(&failure->err, FAIL_API_UNREACHABLE, 0, "Cannot reach %s: %s.", url, text);
		break;
	}
}

void failure_of_answer(struct failure *failure, int status, const char *body, size_t size)
{
	const json_t *message;

	failure->status = status;
	failure->body = json_loadb(body, size, 0, NULL);
	if (json_parse_error(failure->body, &failure->err) == 0)
		return;
	message = json_object_get(failure->body, "message");
	err_set(&failure->err, FAIL_API_PROTOCOL, EPROTO, "The server answered %d without a failure record%s%.120s.",
		status, json_is_string(message) ? ": " : "", json_is_string(message) ? json_string_value(message) : "");
	json_decref(failure->body);
	failure->body = NULL;
}

/* ---- one call ---- */

struct transfer {
	struct buf body;
	const struct api_call *call;
	CURL *easy;
	struct failure *failure;
	int stopped; /* what on_line() said */
	char *next;
	const volatile sig_atomic_t *stop;
};

static bool is_good(CURL *easy)
{
	long status = 0;

	(void) curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	return status >= 200 && status <= 299;
}

static int take_lines(struct transfer *transfer)
{
	const char *data, *end;
	int r = 0;

	while (r == 0 && buf_size(&transfer->body) > 0 && (data = (const char *) buf_peek(&transfer->body)) &&
		(end = memchr(data, '\n', buf_size(&transfer->body)))) {
		json_t *line = json_loadb(data, (size_t) (end - data), 0, NULL);

		r = line ? transfer->call->on_line(line, transfer->failure, transfer->call->user) :
			   err_set(&transfer->failure->err, FAIL_API_PROTOCOL, EPROTO, "A line of the answer is no JSON.");
		json_decref(line);
		buf_consume(&transfer->body, (size_t) (end - data) + 1);
	}
	return r;
}

static size_t on_body(char *data, size_t size, size_t n, void *user)
{
	struct transfer *transfer = user;

	if (buf_append(&transfer->body, data, size * n) < 0)
		return 0;
	if (transfer->call->on_line && is_good(transfer->easy))
		transfer->stopped = take_lines(transfer);
	return transfer->stopped < 0 ? 0 : size * n;
}

/* One line of the head, not NUL-terminated. */
static size_t on_header(char *data, size_t size, size_t n, void *user)
{
	static const char name[] = "x-next-token:";
	const struct transfer *transfer = user;
	size_t length = size * n, from = sizeof(name) - 1;

	if (!transfer->next || length <= from || strncasecmp(data, name, from) != 0)
		return length;
	while (from < length && data[from] == ' ')
		from++;
	while (length > from && (data[length - 1] == '\r' || data[length - 1] == '\n'))
		length--;
	/* A token goes into the next path as it is: one that could not is no token of ours. */
	if (length - from < NEXT_TOKEN_SIZE && strspn(data + from, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		"0123456789-_.~") >= length - from)
		(void) snprintf(transfer->next, NEXT_TOKEN_SIZE, "%.*s", (int) (length - from), data + from);
	return size * n;
}

static int on_progress(void *user, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal, curl_off_t ulnow)
{
	const struct transfer *transfer = user;

	(void) dltotal;
	(void) dlnow;
	(void) ultotal;
	(void) ulnow;
	return transfer->stop && *transfer->stop;
}

static int add_key(const struct cli *cli, struct curl_slist **headers)
{
	CLEANUP_FREE char *text = NULL;
	struct curl_slist *list;

	if (asprintf(&text, "X-API-Key: %s", cli->api_key) < 0)
		return -ENOMEM;
	list = curl_slist_append(*headers, text);
	if (!list)
		return -ENOMEM;
	*headers = list;
	return 0;
}

static int perform(const struct cli *cli, const struct api_call *call, struct transfer *transfer, long *ret_status,
	struct failure *failure)
{
	CLEANUP_FREE char *body = call->body ? json_dumps(call->body, JSON_COMPACT) : NULL;
	int64_t timeout_us = call->timeout_us ? call->timeout_us : CALL_TIMEOUT_US;
	char detail[CURL_ERROR_SIZE] = "";
	struct curl_slist *headers = NULL;
	CURL *easy = http_easy(cli->api_url, call->path, &headers);
	CURLcode code = CURLE_OUT_OF_MEMORY;

	if (easy && add_key(cli, &headers) == 0 && !call->body == !body) {
		struct curl_slist *more = body ? curl_slist_append(headers, "Content-Type: application/json") : headers;

		headers = more ? more : headers;
		transfer->easy = easy;
		(void) curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
		(void) curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->method);
		(void) curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long) (timeout_us / USEC_PER_MSEC));
		(void) curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, detail);
		(void) curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
		(void) curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
		(void) curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
		(void) curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
		(void) curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
		(void) curl_easy_setopt(easy, CURLOPT_XFERINFODATA, transfer);
		(void) curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
		if (body)
			(void) curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
		code = curl_easy_perform(easy);
		(void) curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, ret_status);
	}
	curl_easy_cleanup(easy);
	curl_slist_free_all(headers);
	if (code == CURLE_OK)
		return 0;
	if (transfer->stopped < 0)
		return transfer->stopped;
	failure_of_curl(failure, code, detail, cli->api_url);
	return code == CURLE_ABORTED_BY_CALLBACK ? -EINTR : -EIO;
}

/* `transfer` holds the whole answer. */
static int judge(long status, struct transfer *transfer, json_t **ret, struct failure *failure)
{
	size_t size = buf_size(&transfer->body);
	const char *body = size ? (const char *) buf_peek(&transfer->body) : "";

	if (status < 200 || status > 299) {
		failure_of_answer(failure, (int) status, body, size);
		return -EIO;
	}
	if (size == 0) {
		*ret = NULL;
		return 0;
	}
	*ret = json_loadb(body, size, 0, NULL);
	if (*ret)
		return 0;
	return err_set(&failure->err, FAIL_API_PROTOCOL, EPROTO, "The answer is no JSON.");
}

int api_need_key(const struct cli *cli, struct err *reterr)
{
	return *cli->api_key ? 0 : err_set(reterr, FAIL_UNAUTHENTICATED, 0, "CROFT_API_KEY is not set.");
}

int api_call(const struct cli *cli, const struct api_call *call, json_t **ret, struct failure *failure)
{
	struct transfer transfer = { .body = BUF_NULL(HTTP_BODY_MAX), .call = call, .failure = failure, .next = call->next, .stop = call->stop };
	json_t *json = NULL;
	long status = 0;
	int r;

	if (call->next)
		*call->next = '\0';
	r = api_need_key(cli, &failure->err);
	if (r == 0)
		r = perform(cli, call, &transfer, &status, failure);
	if (r == 0)
		r = judge(status, &transfer, &json, failure);
	buf_deinit(&transfer.body);
	if (r == 0 && ret)
		*ret = json;
	else
		json_decref(json);
	return r;
}

static int __attribute__((format(printf, 5, 0))) call_path(const struct cli *cli, const char *method, json_t **ret,
	struct failure *failure, const char *fmt, va_list ap)
{
	CLEANUP_FREE char *path = NULL;

	if (vasprintf(&path, fmt, ap) < 0) {
		path = NULL;
		return err_set(&failure->err, FAIL_NO_MEMORY, ENOMEM, "croft ran out of memory.");
	}
	return api_call(cli, &(struct api_call){ .method = method, .path = path }, ret, failure);
}

int api_get(const struct cli *cli, json_t **ret, struct failure *failure, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = call_path(cli, "GET", ret, failure, fmt, ap);
	va_end(ap);
	return r;
}

int api_delete(const struct cli *cli, struct failure *failure, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = call_path(cli, "DELETE", NULL, failure, fmt, ap);
	va_end(ap);
	return r;
}
