/* SPDX-License-Identifier: Apache-2.0
 *
 * See server.h.
 */
#include "server.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define RETRY_USEC (100 * USEC_PER_MSEC)

static void close_connection(struct server_connection *connection)
{
	struct server_packet *packet;

	loop_remove(connection->server->loop, &connection->source);
	connection->fd = fd_close(connection->fd);
	while ((packet = STAILQ_FIRST(&connection->queue))) {
		STAILQ_REMOVE_HEAD(&connection->queue, link);
		free(packet);
	}
	connection->n_queued = 0;
}

/* 0, or -errno of send(). */
static int send_now(struct server_connection *connection, const uint8_t *data, size_t size)
{
	ssize_t n;

	do {
		n = send(connection->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static int enqueue(struct server_connection *connection, const uint8_t *data, size_t size)
{
	struct server_packet *packet;

	if (connection->n_queued == SERVER_QUEUE_MAX)
		return -ENOBUFS;
	packet = malloc(sizeof(*packet) + size);
	if (!packet)
		return -ENOMEM;
	packet->size = size;
	memcpy(packet->data, data, size);
	STAILQ_INSERT_TAIL(&connection->queue, packet, link);
	connection->n_queued++;
	loop_watch(connection->server->loop, &connection->source, EPOLLIN | EPOLLOUT);
	return 0;
}

void server_send(struct server *server, struct server_connection *connection, size_t size)
{
	int r = -EAGAIN;

	if (connection->fd < 0)
		return;
	if (STAILQ_EMPTY(&connection->queue))
		r = send_now(connection, server->out, size);
	if (r == -EAGAIN)
		r = enqueue(connection, server->out, size);
	if (r == 0)
		return;
	log_debug("a control connection was dropped", "errno", strerrorname_np(-r));
	close_connection(connection);
}

int server_send_fds(struct server *server, struct server_connection *connection, size_t size, const int *fds, size_t n_fds)
{
	ssize_t n = STAILQ_EMPTY(&connection->queue) ? unix_send_fds(connection->fd, server->out, size, fds, n_fds) : -EAGAIN;

	return n == (ssize_t) size ? 0 : n < 0 ? (int) n : -EMSGSIZE;
}

void server_broadcast(struct server *server, size_t size)
{
	for (size_t i = 0; i < ARRAY_LEN(server->connections); i++)
		server_send(server, &server->connections[i], size);
}

struct server_connection *server_find(struct server *server, uint64_t number)
{
	for (int i = 0; i < SERVER_CONNECTIONS_MAX; i++)
		if (server->connections[i].fd >= 0 && server->connections[i].number == number)
			return &server->connections[i];
	return NULL;
}

bool server_has_unsent(const struct server *server)
{
	for (size_t i = 0; i < ARRAY_LEN(server->connections); i++)
		if (server->connections[i].n_queued > 0)
			return true;
	return false;
}

static void flush(struct server_connection *connection)
{
	struct server_packet *packet;

	while ((packet = STAILQ_FIRST(&connection->queue))) {
		int r = send_now(connection, packet->data, packet->size);

		if (r == -EAGAIN)
			return;
		if (r < 0) {
			close_connection(connection);
			return;
		}
		STAILQ_REMOVE_HEAD(&connection->queue, link);
		connection->n_queued--;
		free(packet);
	}
	loop_watch(connection->server->loop, &connection->source, EPOLLIN);
}

static void handle_packet(struct server_connection *connection, const uint8_t *data, size_t size, int *fds,
	size_t n_fds)
{
	struct server *server = connection->server;
	struct control_request request;
	struct err err = ERR_NULL;

	if (control_decode(data, size, fds, n_fds, &request, &err) < 0) {
		server_send(server, connection, control_encode_failure(request.id, &err, server->out));
		return;
	}
	server->handle(server->data, connection, &request);
	control_request_deinit(&request);
}

/* One packet per turn, so that no peer keeps the loop to itself. */
static void receive(struct server_connection *connection)
{
	struct server *server = connection->server;
	int fds[CONTROL_FDS_MAX];
	size_t n_fds = 0;
	ssize_t n = unix_recv_fds(connection->fd, server->in, sizeof(server->in), fds, ARRAY_LEN(fds), &n_fds);

	if (n == -EAGAIN)
		return;
	if (n == -EMSGSIZE) { /* more descriptors than any request has: they were closed */
		handle_packet(connection, server->in, sizeof(server->in), NULL, 0);
		return;
	}
	if (n <= 0) {
		close_connection(connection);
		return;
	}
	handle_packet(connection, server->in, (size_t) n, fds, n_fds);
}

static void on_connection(void *data, uint32_t events)
{
	struct server_connection *connection = data;

	if (events & EPOLLOUT)
		flush(connection);
	if (connection->fd >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		receive(connection);
}

static struct server_connection *free_connection(struct server *server)
{
	for (size_t i = 0; i < ARRAY_LEN(server->connections); i++)
		if (server->connections[i].fd < 0)
			return &server->connections[i];
	return NULL;
}

static void on_retry(void *data)
{
	struct server *server = data;

	loop_watch(server->loop, &server->source, EPOLLIN);
}

static void on_listen(void *data, uint32_t events)
{
	struct server *server = data;
	struct server_connection *connection;
	CLEANUP_FD int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void) events;
	if (fd < 0) {
		/* out of descriptors or memory: the peer stays in the backlog, and we do not spin on it */
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
			loop_watch(server->loop, &server->source, 0);
			loop_timer_arm(server->loop, &server->retry, RETRY_USEC, on_retry, server);
		}
		return;
	}
	connection = free_connection(server);
	if (!connection) /* a fifth is closed at once */
		return;
	if (loop_add(server->loop, &connection->source, fd, EPOLLIN, on_connection, connection) < 0)
		return;
	connection->fd = TAKE_FD(fd);
	connection->number = ++server->last_number;
}

int server_init(struct server *server, struct loop *loop, int listen_fd,
	void (*handle)(void *, struct server_connection *, struct control_request *), void *data)
{
	int r;

	server->loop = loop;
	server->listen_fd = -1;
	server->source.fd = -1;
	server->retry = (struct loop_timer) { .armed = false };
	server->handle = handle;
	server->data = data;
	for (size_t i = 0; i < ARRAY_LEN(server->connections); i++) {
		struct server_connection *connection = &server->connections[i];

		*connection = (struct server_connection) { .server = server, .source = LOOP_SOURCE_NULL, .fd = -1 };
		STAILQ_INIT(&connection->queue);
	}
	r = fd_set_nonblock(listen_fd);
	if (r == 0)
		r = loop_add(loop, &server->source, listen_fd, EPOLLIN, on_listen, server);
	if (r < 0)
		return r;
	server->listen_fd = listen_fd;
	return 0;
}

void server_deinit(struct server *server)
{
	for (size_t i = 0; i < ARRAY_LEN(server->connections); i++)
		if (server->connections[i].fd >= 0)
			close_connection(&server->connections[i]);
	loop_timer_disarm(server->loop, &server->retry);
	loop_remove(server->loop, &server->source);
	server->listen_fd = fd_close(server->listen_fd);
}
