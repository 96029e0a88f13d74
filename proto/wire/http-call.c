/* SPDX-License-Identifier: Apache-2.0
 *
 * One HTTP call, see http-client.h: its options for libcurl, and the callbacks that carry its bytes.
 *
 * libcurl 7.88 calls connect() even on a socket that it was told is connected, which fails. So for a given
 * descriptor it gets a socket of its own and connects that to `stub`, a listener that nobody accepts from;
 * before the request is sent, the given descriptor takes that socket's number (on_connected()).
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "wire/http-client-internal.h"

#define CONNECT_TIMEOUT_MS 10000
#define ANSWER_HEAD_MAX (64u * 1024u)

/* ---- the end ---- */

static void forget_answer(struct http_call *call)
{
	for (size_t i = 0; i < call->n_answer; i++)
		free(call->answer[i].name); /* one allocation holds both */
	call->n_answer = 0;
	call->head_size = 0;
}

void http_call_free(struct http_call *call)
{
	if (call->easy) {
		(void) curl_multi_remove_handle(call->client->multi, call->easy);
		curl_easy_cleanup(call->easy);
	}
	if (call->wake)
		event_free(call->wake);
	curl_slist_free_all(call->fields);
	(void) fd_close(call->socket_fd);
	(void) fd_close(call->stub_fd);
	forget_answer(call);
	buf_deinit(&call->body);
	TAILQ_REMOVE(&call->client->calls, call, link);
	free(call);
}

/* ---- what libcurl calls during a transfer ---- */

static size_t on_read(char *buf, size_t size, size_t n, void *user)
{
	struct http_call *call = user;
	long taken = call->dead ? -2 : call->on_upload(call, buf, size * n, call->user);

	if (taken > 0 && (size_t) taken <= size * n)
		return (size_t) taken;
	return taken == 0 ? CURL_READFUNC_PAUSE : taken == -1 ? 0 : CURL_READFUNC_ABORT;
}

static size_t on_write(char *data, size_t size, size_t n, void *user)
{
	struct http_call *call = user;

	if (call->dead)
		return 0;
	if (call->on_body)
		return call->on_body(call, data, size * n, call->user) ? size * n : CURL_WRITEFUNC_PAUSE;
	if (buf_append(&call->body, data, size * n) < 0) {
		call->over_limit = true;
		return 0;
	}
	return size * n;
}

/* "HTTP/1.1 200 OK": a new answer begins; what was kept of a 1xx is dropped. */
static size_t status_line(struct http_call *call, size_t total)
{
	long status = 0;

	forget_answer(call);
	(void) curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	call->status = (int) status;
	return total;
}

static size_t keep_field(struct http_call *call, const char *line, size_t total)
{
	const char *colon = memchr(line, ':', total);
	size_t name_size, begin, end = total;
	struct answer_field *field;

	if (!colon)
		return total; /* a folded line: no server of ours makes one */
	name_size = (size_t) (colon - line);
	begin = name_size + 1;
	while (begin < end && (line[begin] == ' ' || line[begin] == '\t'))
		begin++;
	while (end > begin && strchr("\r\n \t", line[end - 1]))
		end--;
	call->head_size += total;
	if (call->n_answer == ANSWER_FIELDS_MAX || call->head_size > ANSWER_HEAD_MAX) {
		call->over_limit = true;
		return 0;
	}
	field = &call->answer[call->n_answer];
	field->name = malloc(name_size + 1 + end - begin + 1);
	if (!field->name)
		return 0;
	memcpy(field->name, line, name_size);
	field->name[name_size] = '\0';
	field->value = field->name + name_size + 1;
	memcpy(field->value, line + begin, end - begin);
	field->value[end - begin] = '\0';
	call->n_answer++;
	return total;
}

static size_t on_head(char *line, size_t size, size_t n, void *user)
{
	struct http_call *call = user;
	size_t total = size * n;

	if (call->dead)
		return 0;
	if (call->head_done)
		return total; /* trailers of a chunked body */
	if (total >= 5 && !strncasecmp(line, "HTTP/", 5))
		return status_line(call, total);
	if (total > 2)
		return keep_field(call, line, total);
	if (call->status >= 200) {
		call->head_done = true;
		if (call->on_header)
			call->on_header(call, call->status, call->user);
	}
	return call->dead ? 0 : total;
}

static curl_socket_t on_open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct http_call *call = user;

	(void) purpose;
	call->made_fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
	return call->made_fd < 0 ? CURL_SOCKET_BAD : call->made_fd;
}

static int on_connected(void *user, char *remote, char *local, int remote_port, int local_port)
{
	struct http_call *call = user;
	struct watch *watch = http_client_find_watch(call->client, call->made_fd);

	(void) remote;
	(void) local;
	(void) remote_port;
	(void) local_port;
	/* the event must be off while the number changes its meaning: epoll remembers the file behind it */
	if (watch)
		(void) event_del(watch->event);
	if (call->socket_fd < 0 || dup3(call->socket_fd, call->made_fd, O_CLOEXEC) < 0)
		return CURL_PREREQFUNC_ABORT;
	call->socket_fd = fd_close(call->socket_fd);
	call->stub_fd = fd_close(call->stub_fd);
	return watch && event_add(watch->event, NULL) < 0 ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

/* ---- start ---- */

static bool put_field(struct http_call *call, const char *name, const char *value)
{
	char *line = NULL;
	struct curl_slist *list;
	int n;

	/* libcurl's spelling of "no such field" and of "a field without a value" */
	n = !value ? asprintf(&line, "%s:", name) : !*value ? asprintf(&line, "%s;", name) :
							      asprintf(&line, "%s: %s", name, value);
	if (n < 0)
		return false;
	list = curl_slist_append(call->fields, line);
	free(line);
	if (list)
		call->fields = list;
	return list != NULL;
}

static bool is_clean(const char *text)
{
	return strpbrk(text, "\r\n") == NULL;
}

static int put_fields(struct http_call *call, const struct http_call_config *config, struct err *reterr)
{
	bool has_type = false, ok = true;

	for (size_t i = 0; i < config->n_fields && ok; i++) {
		const struct http_field *field = &config->fields[i];

		if (!is_clean(field->name) || !is_clean(field->value))
			return err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "a header of the call holds a newline");
		has_type = has_type || !strcasecmp(field->name, "Content-Type");
		if (strcasecmp(field->name, "Content-Length") && strcasecmp(field->name, "Transfer-Encoding"))
			ok = put_field(call, field->name, field->value);
	}
	ok = ok && put_field(call, "Expect", NULL); /* no second of waiting before each upload */
	if (!has_type)
		ok = ok && put_field(call, "Content-Type", NULL); /* libcurl would say "form" */
	return ok ? 0 : err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for an HTTP call");
}

static CURLcode set_body(struct http_call *call, const struct http_call_config *config)
{
	const char *method = config->method ? config->method : "GET";
	bool expects_body = !strcmp(method, "POST") || !strcmp(method, "PUT") || !strcmp(method, "PATCH");
	CURLcode code = CURLE_OK;
	CURL *easy = call->easy;

	if (!strcmp(method, "HEAD"))
		return curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	if (config->on_upload) {
		code = curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
		if (code == CURLE_OK)
			code = curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t) config->upload_size);
		if (code == CURLE_OK)
			code = curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
		if (code == CURLE_OK)
			code = curl_easy_setopt(easy, CURLOPT_READDATA, call);
		if (code == CURLE_OK && config->upload_size < 0 && !put_field(call, "Transfer-Encoding", "chunked"))
			code = CURLE_OUT_OF_MEMORY;
	} else if (config->body_size > 0 || config->has_body || expects_body) {
		code = curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) config->body_size);
		if (code == CURLE_OK)
			code = curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, config->body_size ? config->body : "");
	}
	return code == CURLE_OK ? curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method) : code;
}

/* A listening socket with an abstract name that the kernel chooses. */
static int open_stub(char *ret_name, size_t size)
{
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	socklen_t length = sizeof(addr.sun_family);

	if (fd < 0 || bind(fd, (struct sockaddr *) &addr, length) < 0 || listen(fd, 1) < 0)
		return -errno;
	length = sizeof(addr);
	if (getsockname(fd, (struct sockaddr *) &addr, &length) < 0)
		return -errno;
	length -= (socklen_t) offsetof(struct sockaddr_un, sun_path) + 1; /* the NUL in front */
	if (length >= size)
		return -ENAMETOOLONG;
	memcpy(ret_name, addr.sun_path + 1, length);
	ret_name[length] = '\0';
	return TAKE_FD(fd);
}

static CURLcode set_route(struct http_call *call, const struct http_call_config *config)
{
	CURL *easy = call->easy;
	char name[32];
	CURLcode code;

	if (config->unix_path)
		return curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, config->unix_path);
	if (config->socket_fd < 0)
		return CURLE_OK;
	if (strncasecmp(config->url, "http://", 7) || fd_set_nonblock(config->socket_fd) < 0)
		return CURLE_BAD_FUNCTION_ARGUMENT; /* TLS would begin on the wrong socket */
	call->stub_fd = open_stub(name, sizeof(name));
	if (call->stub_fd < 0)
		return CURLE_OUT_OF_MEMORY;
	code = curl_easy_setopt(easy, CURLOPT_ABSTRACT_UNIX_SOCKET, name);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, call);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_connected);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_PREREQDATA, call);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
	return code == CURLE_OK ? curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L) : code;
}

static CURLcode set_options(struct http_call *call, const struct http_call_config *config)
{
	const struct {
		CURLoption option;
		long value;
	} numbers[] = {
		{ CURLOPT_NOSIGNAL, 1 },
		{ CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1 },
		{ CURLOPT_TCP_NODELAY, 1 },
		{ CURLOPT_HTTP_CONTENT_DECODING, 0 },
		{ CURLOPT_CONNECTTIMEOUT_MS, config->connect_timeout_ms ? (long) config->connect_timeout_ms :
									  CONNECT_TIMEOUT_MS },
		{ CURLOPT_TIMEOUT_MS, (long) config->total_timeout_ms },
		{ CURLOPT_SUPPRESS_CONNECT_HEADERS, 1 },
	};
	CURL *easy = call->easy;
	CURLcode code = CURLE_OK;

	for (size_t i = 0; i < ARRAY_LEN(numbers) && code == CURLE_OK; i++)
		code = curl_easy_setopt(easy, numbers[i].option, numbers[i].value);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_URL, config->url);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_PROXY, "");
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->text);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_head);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
	if (code == CURLE_OK)
		code = set_body(call, config);
	if (code == CURLE_OK)
		code = curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->fields);
	return code == CURLE_OK ? set_route(call, config) : code;
}

int http_call_start(struct http_client *client, const struct http_call_config *config, struct http_call **ret,
	struct err *reterr)
{
	struct http_call *call = calloc(1, sizeof(*call));
	CURLcode code;
	int r;

	if (!call)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for an HTTP call");
	call->client = client;
	call->socket_fd = call->stub_fd = call->made_fd = -1;
	call->body = (struct buf) BUF_NULL(config->max_body);
	call->on_upload = config->on_upload;
	call->on_header = config->on_header;
	call->on_body = config->on_body;
	call->on_done = config->on_done;
	call->user = config->user;
	TAILQ_INSERT_TAIL(&client->calls, call, link);
	call->easy = curl_easy_init();
	call->wake = evtimer_new(client->base, http_client_on_wake, call);
	if (!call->easy || !call->wake) {
		http_call_free(call);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for an HTTP call");
	}
	r = put_fields(call, config, reterr);
	if (r < 0) {
		http_call_free(call);
		return r;
	}
	code = set_options(call, config);
	if (code == CURLE_OK && curl_multi_add_handle(client->multi, call->easy) != CURLM_OK)
		code = CURLE_OUT_OF_MEMORY;
	if (code != CURLE_OK) {
		http_call_free(call);
		return err_set(reterr, code == CURLE_OUT_OF_MEMORY ? FAIL_NO_MEMORY : FAIL_INVALID_ARGUMENT, EINVAL,
			"cannot start the HTTP call: %s", curl_easy_strerror(code));
	}
	call->socket_fd = config->socket_fd; /* ours from here on */
	*ret = call;
	return 0;
}

/* ---- the answer ---- */

int http_call_status(const struct http_call *call)
{
	return call->status;
}

const char *http_call_header(const struct http_call *call, const char *name)
{
	for (size_t i = call->n_answer; i-- > 0;)
		if (!strcasecmp(call->answer[i].name, name))
			return call->answer[i].value;
	return NULL;
}

void http_call_each_header(const struct http_call *call, http_each each, void *user)
{
	for (size_t i = 0; i < call->n_answer; i++)
		each(call->answer[i].name, call->answer[i].value, user);
}

const char *http_call_body(const struct http_call *call, size_t *ret_size)
{
	*ret_size = buf_size(&call->body);
	return *ret_size ? (const char *) buf_peek(&call->body) : "";
}
