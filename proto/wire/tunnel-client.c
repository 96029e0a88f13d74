/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's end of tunnels, see tunnel.h. The dealer's connection to the unix socket is an attempt: while libcurl connects and
 * TLS is agreed on nothing of it is read; if they fail it is closed, and the dealer tries again in its own time. Nobody but
 * this process may connect there.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/fd.h"
#include "wire/http-client.h"
#include "wire/splice.h"
#include "wire/tunnel.h"

#define PIPES_MAX 4 /* the dealer has one connection, and one that it gives up */
#define TARGET_SIZE 300
#define PREFIX "ipc://@"

struct pipe {
	LIST_ENTRY(pipe) link;
	struct tunnel_client *client;
	struct http_call *dialling;
	struct event *deadline;      /* of connecting and TLS */
	struct bufferevent *remote;  /* while TLS is agreed on */
	struct splice *splice;
	int local_fd;                /* until it is spliced */
};

struct tunnel_client {
	struct event_base *base; /* borrowed */
	struct evconnlistener *listener;
	struct http_client *http;
	SSL_CTX *tls; /* NULL: none */
	char name[TUNNEL_LOCAL_SIZE + sizeof(PREFIX)];
	char target[TARGET_SIZE], server_name[256], proxy[TARGET_SIZE], user[256], password[256];
	bool has_own_name;
	int64_t patience_usec;
	unsigned int n;
	LIST_HEAD(, pipe) pipes;
	void (*on_failure)(const struct err *err, void *user);
	void *on_failure_user;
};

static void pipe_free(struct pipe *pipe)
{
	http_call_cancel(pipe->dialling);
	if (pipe->deadline)
		event_free(pipe->deadline);
	if (pipe->remote)
		bufferevent_free(pipe->remote);
	splice_free(pipe->splice);
	(void) fd_close(pipe->local_fd);
	LIST_REMOVE(pipe, link);
	pipe->client->n--;
	free(pipe);
}

static void pipe_fail(struct pipe *pipe, struct err *err)
{
	struct tunnel_client *client = pipe->client;

	err_add(err, "address", "%.90s", client->target);
	if (*client->proxy)
		err_add(err, "proxy", "%.90s", client->proxy);
	pipe_free(pipe);
	if (client->on_failure)
		client->on_failure(err, client->on_failure_user);
}

static void on_end(void *user)
{
	pipe_free(user);
}

static void join(struct pipe *pipe)
{
	struct tunnel_client *client = pipe->client;
	struct bufferevent *local = bufferevent_socket_new(client->base, pipe->local_fd, BEV_OPT_CLOSE_ON_FREE);
	struct err err = ERR_NULL;

	(void) evtimer_del(pipe->deadline);
	if (local) {
		pipe->local_fd = -1;
		pipe->splice = splice_new(client->base, local, TAKE(pipe->remote), TUNNEL_STALL_USEC, on_end, pipe);
	}
	if (!pipe->splice) {
		(void) err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a tunnel");
		pipe_fail(pipe, &err);
	}
}

/* ---- TLS ---- */

static void tls_failed(struct pipe *pipe, struct bufferevent *remote, short what)
{
	const unsigned long tls = bufferevent_get_openssl_error(remote);
	const int os = EVUTIL_SOCKET_ERROR();
	struct err err = ERR_NULL;
	char text[160];

	if (tls && ERR_GET_REASON(tls) != SSL_R_UNEXPECTED_EOF_WHILE_READING) {
		ERR_error_string_n(tls, text, sizeof(text));
		(void) err_set(&err, FAIL_TLS_FAILED, EPROTO, "%s", text);
	} else {
		(void) err_set(&err, FAIL_TLS_CUT, what & BEV_EVENT_EOF ? ECONNRESET : os,
			"the connection was cut at the TLS hello");
	}
	err_add(&err, "server_name", "%.90s", pipe->client->server_name);
	pipe_fail(pipe, &err);
}

static void on_handshake(struct bufferevent *remote, short what, void *user)
{
	if (what & BEV_EVENT_CONNECTED)
		join(user);
	else
		tls_failed(user, remote, what);
}

static struct bufferevent *begin_tls(struct pipe *pipe, int fd)
{
	struct tunnel_client *client = pipe->client;
	SSL *ssl = SSL_new(client->tls);
	struct bufferevent *remote;

	if (!ssl || (*client->server_name && !SSL_set_tlsext_host_name(ssl, client->server_name))) {
		SSL_free(ssl);
		(void) fd_close(fd);
		return NULL;
	}
	/* owns both, also where it fails */
	remote = bufferevent_openssl_socket_new(client->base, fd, ssl, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
	if (remote)
		bufferevent_openssl_set_allow_dirty_shutdown(remote, 1);
	return remote;
}

static void on_deadline(evutil_socket_t fd, short what, void *user)
{
	struct pipe *pipe = user;
	struct err err = ERR_NULL;

	(void) fd, (void) what;
	(void) err_set(&err, FAIL_TLS_CUT, ETIMEDOUT, "no answer to the TLS hello");
	err_add(&err, "server_name", "%.90s", pipe->client->server_name);
	pipe_fail(pipe, &err);
}

static struct timeval patience_of(const struct tunnel_client *client)
{
	return (struct timeval) { client->patience_usec / USEC_PER_SEC, client->patience_usec % USEC_PER_SEC };
}

/* ---- connecting ---- */

static void on_connected(int fd, const struct err *why, void *user)
{
	struct pipe *pipe = user;
	struct tunnel_client *client = pipe->client;
	const struct timeval patience = patience_of(client);
	struct err err = ERR_NULL;

	pipe->dialling = NULL;
	if (why) {
		err = *why;
		pipe_fail(pipe, &err);
		return;
	}
	stream_keepalive(fd);
	(void) fd_set_nonblock(fd); /* libcurl's is already */
	pipe->remote = client->tls ? begin_tls(pipe, fd) : bufferevent_socket_new(client->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!pipe->remote) {
		if (!client->tls)
			(void) fd_close(fd);
		(void) err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a tunnel");
		pipe_fail(pipe, &err);
	} else if (client->tls) {
		bufferevent_setcb(pipe->remote, NULL, NULL, on_handshake, pipe);
		(void) bufferevent_enable(pipe->remote, EV_READ | EV_WRITE);
		(void) evtimer_add(pipe->deadline, &patience);
	} else {
		join(pipe);
	}
}

static void dial(struct pipe *pipe)
{
	struct tunnel_client *client = pipe->client;
	const struct http_connect_config config = { .host_port = client->target, .proxy = client->proxy,
		.proxy_user = client->user, .proxy_password = client->password,
		.timeout_ms = client->patience_usec / USEC_PER_MSEC, .on_done = on_connected, .user = pipe };
	struct err err = ERR_NULL;

	if (http_connect_start(client->http, &config, &pipe->dialling, &err) < 0)
		pipe_fail(pipe, &err);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int size, void *user)
{
	struct tunnel_client *client = user;
	struct pipe *pipe;

	(void) listener, (void) from, (void) size;
	if (!local_is_own(fd) || client->n >= PIPES_MAX || !(pipe = calloc(1, sizeof(*pipe)))) {
		(void) fd_close(fd);
		return;
	}
	pipe->client = client;
	pipe->local_fd = fd;
	client->n++;
	LIST_INSERT_HEAD(&client->pipes, pipe, link);
	pipe->deadline = evtimer_new(client->base, on_deadline, pipe);
	if (pipe->deadline)
		dial(pipe);
	else
		pipe_free(pipe);
}

/* ---- the object ---- */

static int begin_client(struct tunnel_client *client, const struct tunnel_client_config *config, struct err *reterr)
{
	int fd, r = http_client_new(&client->http, client->base, reterr);

	if (r < 0)
		return r;
	if (config->tls) {
		client->tls = SSL_CTX_new(TLS_client_method());
		if (!client->tls || !SSL_CTX_set_min_proto_version(client->tls, TLS1_2_VERSION))
			return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "OpenSSL makes no TLS context");
		SSL_CTX_set_verify(client->tls, SSL_VERIFY_NONE, NULL); /* an envelope: CURVE inside says who it is */
	}
	(void) snprintf(client->name, sizeof(client->name), PREFIX);
	tunnel_local_name(client->name + sizeof(PREFIX) - 1, "link");
	fd = local_listen(client->name + sizeof(PREFIX) - 1);
	if (fd >= 0)
		client->listener = evconnlistener_new(client->base, on_accept, client,
			LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
	if (!client->listener)
		return err_set(reterr, FAIL_IO_FAILED, fd < 0 ? -fd : ENOMEM, "no unix socket for the tunnel");
	return 0;
}

int tunnel_client_new(struct tunnel_client **ret, struct event_base *base, const struct tunnel_client_config *config,
	struct err *reterr)
{
	struct tunnel_client *client = calloc(1, sizeof(*client));
	const char *proxy = config->proxy ? config->proxy : "";
	int r;

	if (!client)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the tunnel");
	client->base = base;
	client->on_failure = config->on_failure;
	client->on_failure_user = config->user;
	client->patience_usec = config->patience_usec ? config->patience_usec : TUNNEL_PATIENCE_SEC * USEC_PER_SEC;
	client->has_own_name = config->tls_name && *config->tls_name;
	LIST_INIT(&client->pipes);
	/* names are the proxy's to look up: it may be the only one that can */
	(void) snprintf(client->proxy, sizeof(client->proxy), "%s%s", strncmp(proxy, "socks5://", 9) ? "" : "socks5h://",
		strncmp(proxy, "socks5://", 9) ? proxy : proxy + 9);
	(void) snprintf(client->user, sizeof(client->user), "%s", config->proxy_user ? config->proxy_user : "");
	(void) snprintf(client->password, sizeof(client->password), "%s", config->proxy_password ? config->proxy_password : "");
	(void) snprintf(client->server_name, sizeof(client->server_name), "%s", config->tls_name ? config->tls_name : "");
	r = begin_client(client, config, reterr);
	if (r < 0) {
		tunnel_client_free(client);
		return r;
	}
	*ret = client;
	return 0;
}

void tunnel_client_free(struct tunnel_client *client)
{
	struct pipe *pipe;

	if (!client)
		return;
	while ((pipe = LIST_FIRST(&client->pipes)))
		pipe_free(pipe);
	if (client->listener)
		evconnlistener_free(client->listener);
	http_client_free(client->http);
	SSL_CTX_free(client->tls);
	explicit_bzero(client->password, sizeof(client->password));
	free(client);
}

/* The host of "host:port" if it is a name: an address is none that a hello may carry. */
static void name_of_host(const char *target, char *ret, size_t size)
{
	const char *colon = strrchr(target, ':');
	struct in_addr v4;

	(void) snprintf(ret, size, "%.*s", colon ? (int) (colon - target) : (int) strlen(target), target);
	if (*ret == '[' || inet_pton(AF_INET, ret, &v4) == 1)
		*ret = '\0';
}

const char *tunnel_client_target(struct tunnel_client *client, const char *address)
{
	const char *rest = strstr(address, "://");

	(void) snprintf(client->target, sizeof(client->target), "%s", rest ? rest + 3 : address);
	if (!client->has_own_name)
		name_of_host(client->target, client->server_name, sizeof(client->server_name));
	return client->name;
}
