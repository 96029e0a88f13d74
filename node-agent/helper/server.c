/* SPDX-License-Identifier: Apache-2.0
 *
 * See server.h.
 */
#include "helper/server.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#define CONNS_MAX 4
#define PACKETS_PER_TURN 16
#define BACKLOG 8
#define TICK_MS 50    /* while something is left to do behind */
#define IDLE_SEC 10   /* a slot that could not be removed is tried again */

struct conn {
	LIST_ENTRY(conn) link;
	struct server *server;
	int fd;
	struct event *event;
	bool greeted;
};

struct server {
	struct event_base *base;
	struct helper *helper;
	struct server_config config;
	int fd;
	struct event *event, *tick;
	LIST_HEAD(, conn) conns;
	unsigned int n_conns;
	uint8_t *packet; /* HELPER_PACKET_MAX */
};

static void conn_free(struct conn *conn)
{
	LIST_REMOVE(conn, link);
	conn->server->n_conns--;
	if (conn->event)
		event_free(conn->event);
	(void)fd_close(conn->fd);
	free(conn);
}

/* 0, or -errno: the connection is over. */
static int answer(struct conn *conn, const struct helper_reply *reply, const int *fds, size_t n_fds)
{
	CLEANUP_FREE uint8_t *data = NULL;
	size_t size;
	ssize_t n;
	int r = helper_reply_encode(reply, &data, &size);

	if (r < 0)
		return r;
	n = unix_send_fds(conn->fd, data, size, fds, n_fds);
	return n < 0 ? (int)n : 0;
}

static int perform(struct conn *conn, size_t size, const int *fds, size_t n_fds)
{
	CLEANUP_FREE struct helper_reply *reply = calloc(1, sizeof(*reply));
	struct helper_request request;
	struct err err = ERR_NULL;
	int ret_fds[HELPER_FDS_MAX], r;
	size_t n_ret_fds = 0;

	if (!reply)
		return -ENOMEM;
	r = helper_request_decode(conn->server->packet, size, &request, &err);
	if (r < 0) {
		reply->id = request.id;
		reply->failure = err;
		log_failure(LOG_LEVEL_WARN, "a request is not valid", &err, NULL);
	} else {
		helper_perform(conn->server->helper, &conn->greeted, &request, fds, n_fds, reply, ret_fds, &n_ret_fds);
	}
	helper_request_deinit(&request);
	r = answer(conn, reply, ret_fds, n_ret_fds);
	for (size_t i = 0; i < n_ret_fds; i++)
		(void)fd_close(ret_fds[i]);
	return r;
}

static void on_packet(evutil_socket_t fd, short what, void *user)
{
	static const struct timeval soon = { .tv_usec = TICK_MS * 1000 };
	struct conn *conn = user;
	struct server *server = conn->server;

	(void)what;
	for (int i = 0; i < PACKETS_PER_TURN; i++) {
		int fds[HELPER_FDS_MAX], r;
		size_t n_fds = 0;
		ssize_t n = unix_recv_fds(fd, server->packet, HELPER_PACKET_MAX, fds, HELPER_FDS_MAX, &n_fds);

		if (n == -EAGAIN || n == -EINTR)
			break;
		if (n <= 0) {
			if (n < 0)
				log_warn("a connection is cut", "errno", strerrorname_np((int)-n));
			conn_free(conn);
			return;
		}
		r = perform(conn, (size_t)n, fds, n_fds);
		for (size_t k = 0; k < n_fds; k++)
			(void)fd_close(fds[k]);
		if (r < 0) {
			log_warn("the agent does not take its answers", "errno", strerrorname_np(-r));
			conn_free(conn);
			return;
		}
	}
	(void)evtimer_add(server->tick, &soon);
}

static bool is_permitted(const struct server *server, int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
	       (peer.uid == 0 || peer.uid == server->config.uid);
}

static void on_connect(evutil_socket_t listener, short what, void *user)
{
	struct server *server = user;
	CLEANUP_FD int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct conn *conn;
	int size = 2 * (int)HELPER_PACKET_MAX;

	(void)what;
	if (fd < 0)
		return;
	if (!is_permitted(server, fd) || server->n_conns >= CONNS_MAX) {
		log_warn("a connection is refused: another user, or too many");
		return;
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	conn = calloc(1, sizeof(*conn));
	if (!conn)
		return;
	conn->server = server;
	conn->fd = TAKE_FD(fd);
	LIST_INSERT_HEAD(&server->conns, conn, link);
	server->n_conns++;
	conn->event = event_new(server->base, conn->fd, EV_READ | EV_PERSIST, on_packet, conn);
	if (!conn->event || event_add(conn->event, NULL) < 0)
		conn_free(conn);
}

static void on_tick(evutil_socket_t fd, short what, void *user)
{
	static const struct timeval soon = { .tv_usec = TICK_MS * 1000 }, later = { .tv_sec = IDLE_SEC };
	struct server *server = user;
	bool more = server->helper->host && net_host_tick(server->helper->host);

	(void)fd, (void)what;
	(void)evtimer_add(server->tick, more ? &soon : &later);
}

int server_new(struct server **ret, struct event_base *base, struct helper *helper,
	const struct server_config *config, struct err *reterr)
{
	static const struct timeval soon = { .tv_usec = TICK_MS * 1000 };
	struct server *server = calloc(1, sizeof(*server));
	int r = 0;

	if (!server)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the socket");
	server->base = base;
	server->helper = helper;
	server->config = *config;
	server->packet = malloc(HELPER_PACKET_MAX);
	server->fd = unix_listen(config->path, SOCK_SEQPACKET, 0660, BACKLOG);
	if (server->fd < 0)
		r = err_set(reterr, FAIL_LISTEN_FAILED, -server->fd, "cannot listen on %s", config->path);
	else if (chown(config->path, 0, config->gid) < 0)
		r = err_set(reterr, FAIL_LISTEN_FAILED, errno, "cannot give %s to the agent's group", config->path);
	if (r == 0) {
		server->event = event_new(base, server->fd, EV_READ | EV_PERSIST, on_connect, server);
		server->tick = evtimer_new(base, on_tick, server);
		if (!server->packet || !server->event || !server->tick || event_add(server->event, NULL) < 0 ||
			evtimer_add(server->tick, &soon) < 0)
			r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the socket");
	}
	if (r < 0) {
		server_free(server);
		return r;
	}
	*ret = server;
	return 0;
}

void server_free(struct server *server)
{
	struct conn *conn;

	if (!server)
		return;
	while ((conn = LIST_FIRST(&server->conns)))
		conn_free(conn);
	if (server->event)
		event_free(server->event);
	if (server->tick)
		event_free(server->tick);
	(void)fd_close(server->fd);
	free(server->packet);
	free(server);
}
