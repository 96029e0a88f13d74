/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection through a proxy, and nothing more, see http-client.h: libcurl connects, speaks with the proxy and hands the
 * descriptor over. What it reads of a proxy's answer it reads byte by byte, so that nothing of what follows is lost.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "wire/http-client-internal.h"

#define STATUS_PROXY_AUTH 407

static bool is_refusal_of_user(long answer)
{
	return answer == CURLPX_USER_REJECTED || answer == CURLPX_NO_AUTH || answer == CURLPX_LONG_USER ||
		answer == CURLPX_LONG_PASSWD;
}

static enum fail_code proxy_failure(const struct http_call *call, CURLcode code, long status)
{
	curl_off_t connected_usec = 0;
	long answer = CURLPX_OK;

	(void) curl_easy_getinfo(call->easy, CURLINFO_PROXY_ERROR, &answer);
	(void) curl_easy_getinfo(call->easy, CURLINFO_CONNECT_TIME_T, &connected_usec);
	if (status == STATUS_PROXY_AUTH || is_refusal_of_user(answer))
		return FAIL_PROXY_AUTH;
	if (code == CURLE_COULDNT_RESOLVE_PROXY || code == CURLE_COULDNT_CONNECT ||
		(code == CURLE_OPERATION_TIMEDOUT && connected_usec == 0))
		return FAIL_PROXY_UNREACHABLE;
	return FAIL_PROXY_REFUSED;
}

static void connect_err(const struct http_call *call, CURLcode code, struct err *ret)
{
	enum fail_code fail = FAIL_LINK_UNREACHABLE;
	long os = 0, status = 0;

	(void) curl_easy_getinfo(call->easy, CURLINFO_OS_ERRNO, &os);
	(void) curl_easy_getinfo(call->easy, CURLINFO_HTTP_CONNECTCODE, &status);
	if (code == CURLE_OUT_OF_MEMORY)
		fail = FAIL_NO_MEMORY;
	else if (call->has_proxy)
		fail = proxy_failure(call, code, status);
	if (code == CURLE_OPERATION_TIMEDOUT)
		os = ETIMEDOUT;
	(void) err_set(ret, fail, (int) os, "%s", *call->text ? call->text : curl_easy_strerror(code));
	if (status)
		err_add(ret, "status", "%ld", status);
}

void http_connect_finish(struct http_call *call, CURLcode code)
{
	curl_socket_t fd = CURL_SOCKET_BAD;
	struct err err = ERR_NULL;
	int mine = -1;

	if (code == CURLE_OK) { /* libcurl closes its own descriptor with the handle */
		(void) curl_easy_getinfo(call->easy, CURLINFO_ACTIVESOCKET, &fd);
		mine = fd == CURL_SOCKET_BAD ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (mine < 0)
			(void) err_set(&err, FAIL_IO_FAILED, errno, "the connection has no descriptor");
	} else {
		connect_err(call, code, &err);
	}
	call->on_connected(mine, mine < 0 ? &err : NULL, call->user);
}

static CURLcode set_proxy(struct http_call *call, const struct http_connect_config *config)
{
	CURL *easy = call->easy;
	CURLcode code = curl_easy_setopt(easy, CURLOPT_PROXY, config->proxy ? config->proxy : "");

	call->has_proxy = config->proxy && *config->proxy;
	(void) curl_easy_setopt(easy, CURLOPT_NOPROXY, "");
	(void) curl_easy_setopt(easy, CURLOPT_HTTPPROXYTUNNEL, 1L);
	(void) curl_easy_setopt(easy, CURLOPT_PROXYAUTH, CURLAUTH_BASIC | CURLAUTH_DIGEST);
	if (code == CURLE_OK && config->proxy_user && *config->proxy_user)
		code = curl_easy_setopt(easy, CURLOPT_PROXYUSERNAME, config->proxy_user);
	if (code == CURLE_OK && config->proxy_password && *config->proxy_password)
		code = curl_easy_setopt(easy, CURLOPT_PROXYPASSWORD, config->proxy_password);
	return code;
}

static CURLcode set_options(struct http_call *call, const struct http_connect_config *config)
{
	char url[512];
	CURLcode code;

	(void) snprintf(url, sizeof(url), "http://%.400s/", config->host_port);
	(void) curl_easy_setopt(call->easy, CURLOPT_PRIVATE, call);
	(void) curl_easy_setopt(call->easy, CURLOPT_ERRORBUFFER, call->text);
	(void) curl_easy_setopt(call->easy, CURLOPT_NOSIGNAL, 1L);
	(void) curl_easy_setopt(call->easy, CURLOPT_CONNECT_ONLY, 1L);
	(void) curl_easy_setopt(call->easy, CURLOPT_FRESH_CONNECT, 1L);
	(void) curl_easy_setopt(call->easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L); /* a name is looked up each time */
	(void) curl_easy_setopt(call->easy, CURLOPT_TIMEOUT_MS, (long) config->timeout_ms);
	code = curl_easy_setopt(call->easy, CURLOPT_URL, url);
	return code == CURLE_OK ? set_proxy(call, config) : code;
}

int http_connect_start(struct http_client *client, const struct http_connect_config *config, struct http_call **ret,
	struct err *reterr)
{
	struct http_call *call = calloc(1, sizeof(*call));
	CURLcode code;

	if (!call)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a connection");
	call->client = client;
	call->socket_fd = call->stub_fd = call->made_fd = -1;
	call->on_connected = config->on_done;
	call->user = config->user;
	TAILQ_INSERT_TAIL(&client->calls, call, link);
	call->easy = curl_easy_init();
	code = call->easy ? set_options(call, config) : CURLE_OUT_OF_MEMORY;
	if (code == CURLE_OK && curl_multi_add_handle(client->multi, call->easy) != CURLM_OK)
		code = CURLE_OUT_OF_MEMORY;
	if (code != CURLE_OK) {
		http_call_free(call);
		return err_set(reterr, code == CURLE_OUT_OF_MEMORY ? FAIL_NO_MEMORY : FAIL_CONFIG_INVALID, EINVAL,
			"cannot connect to %.200s: %s", config->host_port, curl_easy_strerror(code));
	}
	*ret = call;
	return 0;
}
