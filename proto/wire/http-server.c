/* SPDX-License-Identifier: Apache-2.0
 *
 * See http-server.h. libmicrohttpd in external epoll mode: its epoll descriptor is one event of our loop, a
 * timer follows MHD_get_timeout(). The life of a request is in http-request.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "wire/http-internal.h"

/* Head, read buffer and write buffer of one connection: address space, touched as far as a request goes. Above what
 * http-request.c takes of a head, so that a head over that limit is answered there and not in the library's HTML. */
#define CONNECTION_MEMORY (256u * 1024u)
#define CONNECTIONS_DEFAULT 1024u
#define LISTEN_BACKLOG 511
#define PEM_MAX (256u * 1024u)
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2" /* GnuTLS's words */

/* ---- the loop ---- */

static void turn(struct http_server *server)
{
	MHD_UNSIGNED_LONG_LONG ms = 0;
	struct timeval tv;

	if (server->turning || server->stopping)
		return;
	server->turning = true;
	server->resumed = false;
	(void) MHD_run(server->daemon);
	server->turning = false;
	if (server->resumed || MHD_get_timeout(server->daemon, &ms) == MHD_YES) {
		tv.tv_sec = (time_t) (ms / 1000);
		tv.tv_usec = (suseconds_t) (ms % 1000 * 1000);
		(void) evtimer_add(server->turn_event, &tv);
	} else {
		(void) evtimer_del(server->turn_event);
	}
}

static void on_turn(evutil_socket_t fd, short what, void *user)
{
	(void) fd;
	(void) what;
	turn(user);
}

/* MHD_resume_connection() takes effect in the next MHD_run(), and nothing but this makes that happen:
 * MHD_get_timeout() does not count a connection that is being resumed. */
void http_server_turn_soon(struct http_server *server)
{
	static const struct timeval now = { 0, 0 };

	server->resumed = true;
	if (!server->stopping)
		(void) evtimer_add(server->turn_event, &now);
}

/* ---- the server ---- */

static int listen_tcp(const char *address, uint16_t *port)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} addr;
	socklen_t size = sizeof(addr.v4);
	CLEANUP_FD int fd = -1;
	int on = 1;

	memset(&addr, 0, sizeof(addr));
	if (inet_pton(AF_INET, address, &addr.v4.sin_addr) == 1) {
		addr.v4.sin_family = AF_INET;
		addr.v4.sin_port = htons(*port);
	} else if (inet_pton(AF_INET6, address, &addr.v6.sin6_addr) == 1) {
		addr.v6.sin6_family = AF_INET6;
		addr.v6.sin6_port = htons(*port);
		size = sizeof(addr.v6);
	} else {
		return -EADDRNOTAVAIL;
	}
	fd = socket(addr.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 || bind(fd, &addr.any, size) < 0 ||
		listen(fd, LISTEN_BACKLOG) < 0)
		return -errno;
	size = sizeof(addr);
	if (getsockname(fd, &addr.any, &size) < 0)
		return -errno;
	*port = ntohs(addr.any.sa_family == AF_INET ? addr.v4.sin_port : addr.v6.sin6_port);
	return TAKE_FD(fd);
}

static int open_listener(struct http_server *server, const struct http_server_config *config, struct err *reterr)
{
	int fd;

	if (config->unix_path) {
		fd = unix_listen(config->unix_path, SOCK_STREAM, 0660, LISTEN_BACKLOG);
		if (fd == -ENAMETOOLONG)
			return err_set(reterr, FAIL_SOCKET_PATH_TOO_LONG, ENAMETOOLONG, "socket path %s",
				config->unix_path);
		if (fd < 0)
			return err_set(reterr, FAIL_LISTEN_FAILED, -fd, "cannot listen on %s", config->unix_path);
		server->unix_path = strdup(config->unix_path);
		return fd;
	}
	server->port = config->port;
	fd = listen_tcp(config->address, &server->port);
	if (fd < 0)
		return err_set(reterr, FAIL_LISTEN_FAILED, -fd, "cannot listen on %s port %u", config->address,
			config->port);
	return fd;
}

/* ---- TLS ---- */

static int read_pem(const char *path, char **ret, size_t *ret_size, struct err *reterr)
{
	int r = file_read(path, PEM_MAX, ret, ret_size);

	if (r == 0)
		return 0;
	err_set(reterr, FAIL_CONFIG_INVALID, -r, "cannot read %s", path);
	err_add(reterr, "file", "%s", path);
	return r;
}

static int read_tls(struct http_server *server, const struct http_server_config *config, struct err *reterr)
{
	const bool cert = config->tls_cert && *config->tls_cert, key = config->tls_key && *config->tls_key;
	size_t size;
	int r;

	if (!cert && !key)
		return 0;
	if (cert != key)
		return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "TLS needs a certificate and its key: %s is not set",
			cert ? "tls_key" : "tls_cert");
	r = read_pem(config->tls_cert, &server->tls_cert, &size, reterr);
	return r < 0 ? r : read_pem(config->tls_key, &server->tls_key, &server->tls_key_size, reterr);
}

static void forget_tls(struct http_server *server)
{
	if (server->tls_key)
		explicit_bzero(server->tls_key, server->tls_key_size);
	free(server->tls_key);
	free(server->tls_cert);
	server->tls_key = server->tls_cert = NULL;
}

static void __attribute__((format(printf, 2, 0))) on_complaint(void *user, const char *format, va_list args)
{
	struct http_server *server = user;

	/* the words of clients' mistakes go nowhere: anybody could fill the log */
	if (!server->daemon)
		(void) vsnprintf(server->complaint, sizeof(server->complaint), format, args);
}

static int start_daemon(struct http_server *server, const struct http_server_config *config, int fd)
{
	const union MHD_DaemonInfo *info;
	const struct MHD_OptionItem tls[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, server->tls_cert },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, server->tls_key },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0, (char[]){ TLS_PRIORITIES } },
		{ MHD_OPTION_END, 0, NULL },
	};
	const unsigned int flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;

	server->daemon = MHD_start_daemon(flags | (server->tls_cert ? MHD_USE_TLS : 0), 0, NULL, NULL,
		http_request_on_access, server,
		MHD_OPTION_EXTERNAL_LOGGER, on_complaint, server,
		MHD_OPTION_ARRAY, server->tls_cert ? tls : tls + ARRAY_LEN(tls) - 1,
		MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_CONNECTION_LIMIT, config->max_connections ? config->max_connections : CONNECTIONS_DEFAULT,
		MHD_OPTION_CONNECTION_TIMEOUT, config->idle_timeout_s,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t) CONNECTION_MEMORY,
		/* What it would check itself (a Host, no space in the target) it answers in HTML, and its own check of Host
		 * sends the head twice: http-request.c checks both. */
		MHD_OPTION_STRICT_FOR_CLIENT, 0,
		MHD_OPTION_URI_LOG_CALLBACK, http_request_on_target, server,
		MHD_OPTION_NOTIFY_COMPLETED, http_request_on_completed, server,
		MHD_OPTION_END);
	if (!server->daemon)
		return -EIO;
	info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info)
		return -EIO;
	server->poll_event = event_new(server->base, info->epoll_fd, EV_READ | EV_PERSIST, on_turn, server);
	server->turn_event = evtimer_new(server->base, on_turn, server);
	if (!server->poll_event || !server->turn_event || event_add(server->poll_event, NULL) < 0)
		return -ENOMEM;
	return 0;
}

int http_server_new(struct http_server **ret, struct event_base *base, const struct http_server_config *config,
	const struct http_handler *handler, void *user, struct err *reterr)
{
	struct http_server *server = calloc(1, sizeof(*server));
	int fd, r;

	if (!server)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the HTTP server");
	server->base = base;
	server->handler = *handler;
	server->user = user;
	TAILQ_INIT(&server->requests);
	r = read_tls(server, config, reterr);
	fd = r < 0 ? r : open_listener(server, config, reterr);
	if (fd < 0) {
		http_server_free(server);
		return fd;
	}
	r = start_daemon(server, config, fd);
	if (r < 0) {
		if (!server->daemon)
			(void) fd_close(fd);
		if (server->tls_cert && !server->daemon) {
			err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "cannot serve TLS with %s and %s: %s",
				config->tls_cert, config->tls_key, server->complaint);
			err_add(reterr, "file", "%s", config->tls_cert);
		} else {
			err_set(reterr, FAIL_LISTEN_FAILED, -r, "cannot start the HTTP server");
		}
		http_server_free(server);
		return r;
	}
	http_server_turn_soon(server);
	*ret = server;
	return 0;
}

void http_server_free(struct http_server *server)
{
	struct http_request *req;

	if (!server)
		return;
	TAILQ_FOREACH(req, &server->requests, link) {
		req->gone = true;
		http_request_wake(req); /* the library panics when it is stopped with suspended connections */
	}
	server->stopping = true;
	if (server->daemon)
		MHD_stop_daemon(server->daemon); /* closes the listener; http_request_on_completed() for each request */
	if (server->poll_event)
		event_free(server->poll_event);
	if (server->turn_event)
		event_free(server->turn_event);
	if (server->unix_path)
		(void) unlink(server->unix_path);
	free(server->unix_path);
	forget_tls(server);
	free(server);
}

uint16_t http_server_port(const struct http_server *server)
{
	return server->port;
}

unsigned int http_server_active(const struct http_server *server)
{
	return server->active;
}
