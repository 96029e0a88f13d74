/* SPDX-License-Identifier: Apache-2.0
 *
 * See http-client.h. libcurl tells which descriptors to watch and when to call again (socket and timer
 * callbacks); everything it then calls runs inside curl_multi_socket_action() on the loop thread.
 *
 * Invariants:
 * - A call that is being run (its callbacks are on the stack) is never freed there: cancel and the end mark
 *   it, the sweep after the library returned frees it.
 * - http_call_wake() only arms a timer: libcurl's unpause calls the write callback at once, which must not
 *   happen inside another callback.
 * - No name is looked up and no proxy is used for a call over a unix socket or a given descriptor.
 */
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "wire/http-client-internal.h"

/* ---- the end of a call ---- */

static void call_err(const struct http_call *call, CURLcode code, struct err *ret)
{
	enum fail_code fail = FAIL_HTTP_BROKEN;
	const char *url = NULL;
	long os = 0;

	(void) curl_easy_getinfo(call->easy, CURLINFO_OS_ERRNO, &os);
	(void) curl_easy_getinfo(call->easy, CURLINFO_EFFECTIVE_URL, &url);
	if (code == CURLE_OPERATION_TIMEDOUT)
		fail = FAIL_HTTP_TIMEOUT;
	else if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
		code == CURLE_COULDNT_RESOLVE_PROXY)
		fail = FAIL_HTTP_UNREACHABLE;
	else if (code == CURLE_OUT_OF_MEMORY)
		fail = FAIL_NO_MEMORY;
	if (code == CURLE_OPERATION_TIMEDOUT)
		os = ETIMEDOUT;
	else if (call->over_limit)
		os = EFBIG;
	(void) err_set(ret, fail, (int) os, "%s", call->over_limit ? "the answer is over the limit" :
		*call->text ? call->text : curl_easy_strerror(code));
	if (url)
		err_add(ret, "url", "%s", url);
	err_add(ret, "http_error", "%s", curl_easy_strerror(code));
}

static void finish(struct http_call *call, CURLcode code)
{
	struct err err = ERR_NULL;

	call->dead = true;
	if (call->on_connected) {
		http_connect_finish(call, code);
		return;
	}
	if (code != CURLE_OK)
		call_err(call, code, &err);
	if (call->on_done)
		call->on_done(call, code == CURLE_OK ? NULL : &err, call->user);
}

/* After libcurl returned: tell who ended, free who is dead. */
static void sweep(struct http_client *client)
{
	struct http_call *call, *next;
	CURLMsg *msg;
	int left;

	client->running = true;
	while ((msg = curl_multi_info_read(client->multi, &left))) {
		CURLcode code = msg->data.result;
		char *private = NULL;

		if (msg->msg != CURLMSG_DONE)
			continue;
		(void) curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &private);
		call = (struct http_call *) (void *) private;
		if (!call->dead)
			finish(call, code);
	}
	client->running = false;
	for (call = TAILQ_FIRST(&client->calls); call; call = next) {
		next = TAILQ_NEXT(call, link);
		if (call->dead)
			http_call_free(call);
	}
}

/* ---- the loop ---- */

static void action(struct http_client *client, curl_socket_t fd, int what)
{
	int running;

	client->running = true;
	(void) curl_multi_socket_action(client->multi, fd, what, &running);
	client->running = false;
	sweep(client);
}

static void on_timer(evutil_socket_t fd, short what, void *user)
{
	(void) fd;
	(void) what;
	action(user, CURL_SOCKET_TIMEOUT, 0);
}

static void on_ready(evutil_socket_t fd, short what, void *user)
{
	struct watch *watch = user;

	action(watch->client, fd, (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0));
}

static int on_timeout_wish(CURLM *multi, long ms, void *user)
{
	struct http_client *client = user;
	struct timeval tv = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	(void) multi;
	if (ms < 0)
		(void) evtimer_del(client->timer);
	else
		(void) evtimer_add(client->timer, &tv);
	return 0;
}

static void watch_free(struct watch *watch)
{
	if (watch->event)
		event_free(watch->event);
	TAILQ_REMOVE(&watch->client->watches, watch, link);
	free(watch);
}

static int on_socket_wish(CURL *easy, curl_socket_t fd, int what, void *user, void *socket_user)
{
	struct http_client *client = user;
	struct watch *watch = socket_user;
	short events = EV_PERSIST;

	(void) easy;
	if (what == CURL_POLL_REMOVE) {
		if (watch)
			watch_free(watch);
		return 0;
	}
	if (!watch) {
		watch = calloc(1, sizeof(*watch));
		if (!watch)
			return -1; /* libcurl fails the transfer */
		watch->client = client;
		watch->fd = fd;
		TAILQ_INSERT_TAIL(&client->watches, watch, link);
		(void) curl_multi_assign(client->multi, fd, watch);
	}
	events = (short) (events | (what & CURL_POLL_IN ? EV_READ : 0) | (what & CURL_POLL_OUT ? EV_WRITE : 0));
	if (watch->event)
		event_free(watch->event);
	watch->event = event_new(client->base, fd, events, on_ready, watch);
	return watch->event && event_add(watch->event, NULL) == 0 ? 0 : -1;
}

struct watch *http_client_find_watch(struct http_client *client, int fd)
{
	struct watch *watch;

	TAILQ_FOREACH(watch, &client->watches, link)
		if (watch->fd == fd)
			return watch;
	return NULL;
}

void http_client_on_wake(int fd, short what, void *user)
{
	struct http_call *call = user;
	struct http_client *client = call->client;

	(void) fd;
	(void) what;
	if (call->dead)
		return;
	client->running = true;
	(void) curl_easy_pause(call->easy, CURLPAUSE_CONT);
	client->running = false;
	action(client, CURL_SOCKET_TIMEOUT, 0);
}

/* ---- cancel and wake ---- */

void http_call_cancel(struct http_call *call)
{
	if (!call)
		return;
	call->dead = true;
	call->on_done = NULL;
	if (!call->client->running)
		http_call_free(call);
}

void http_call_wake(struct http_call *call)
{
	static const struct timeval now = { 0, 0 };

	(void) evtimer_add(call->wake, &now);
}

/* ---- the client ---- */

int http_client_new(struct http_client **ret, struct event_base *base, struct err *reterr)
{
	struct http_client *client;

	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "libcurl does not start");
	if (!(curl_version_info(CURLVERSION_NOW)->features & CURL_VERSION_ASYNCHDNS)) {
		curl_global_cleanup();
		return err_set(reterr, FAIL_UNSUPPORTED, ENOTSUP, "this libcurl looks names up on the loop (no AsynchDNS)");
	}
	client = calloc(1, sizeof(*client));
	if (!client) {
		curl_global_cleanup();
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the HTTP client");
	}
	client->base = base;
	TAILQ_INIT(&client->calls);
	TAILQ_INIT(&client->watches);
	client->multi = curl_multi_init();
	client->timer = evtimer_new(base, on_timer, client);
	if (!client->multi || !client->timer) {
		http_client_free(client);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the HTTP client");
	}
	(void) curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_socket_wish);
	(void) curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
	(void) curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_timeout_wish);
	(void) curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
	*ret = client;
	return 0;
}

void http_client_free(struct http_client *client)
{
	struct http_call *call;

	if (!client)
		return;
	while ((call = TAILQ_FIRST(&client->calls)))
		http_call_free(call);
	if (client->multi)
		(void) curl_multi_cleanup(client->multi); /* drops its watches through on_socket_wish() */
	while (!TAILQ_EMPTY(&client->watches))
		watch_free(TAILQ_FIRST(&client->watches));
	if (client->timer)
		event_free(client->timer);
	free(client);
	curl_global_cleanup();
}
