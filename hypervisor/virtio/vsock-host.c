/* SPDX-License-Identifier: Apache-2.0
 *
 * See vsock.h. The host's side: the listening socket, the CONNECT line, and the bytes of connections.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "virtio/vsock.h"

#define GREETING_USEC (10 * USEC_PER_SEC)
#define RESPONSE_USEC (30 * USEC_PER_SEC) /* the guest may be busy booting */
#define DRAIN_USEC (30 * USEC_PER_SEC)    /* since the guest ended it, and since the last byte that a host process took */
#define GONE_USEC (60 * USEC_PER_SEC)     /* for the guest to close a connection whose other end is gone */
#define HOST_PORT_FIRST (UINT32_C(1) << 30)
#define ACCEPT_MAX 16
#define DENIED_MAX 8

ssize_t vsock_real_read(int fd, const struct iovec *iov, int n)
{
	return readv(fd, iov, n);
}

ssize_t vsock_real_write(int fd, const struct iovec *iov, int n)
{
	/* no flag of writev() keeps SIGPIPE away; the process ignores it */
	return writev(fd, iov, n);
}

int vsock_real_connect(const char *path)
{
	return unix_connect(path, SOCK_STREAM);
}

/* Nobody finds out otherwise: the guest sees a refusal like that of a port where nobody listens. A guest cannot fill the
 * log: a port that is tried again makes no second line, and there is an end to them. */
static void note_denied(struct vsock_device *vsock, uint32_t host_port, const char *path)
{
	if (vsock->n_denied == DENIED_MAX || (vsock->n_denied > 0 && vsock->denied_port == host_port))
		return;
	vsock->n_denied++;
	vsock->denied_port = host_port;
	log_warn("a guest's vsock connection was refused: the VM's user may not connect to the socket", "path", path, "errno",
		"EACCES");
}

int vsock_host_connect(struct vsock_device *vsock, uint32_t guest_port, uint32_t host_port)
{
	char path[VSOCK_PATH_MAX + 16];
	int fd;

	(void) guest_port;
	(void) snprintf(path, sizeof(path), "%s_%u", vsock->path, host_port);
	fd = vsock->io.connect(path);
	if (fd == -EACCES)
		note_denied(vsock, host_port, path);
	return fd;
}

void vsock_host_close(struct vsock_connection *connection)
{
	loop_remove(connection->vsock->loop, &connection->source);
	connection->fd = fd_close(connection->fd);
	buf_deinit(&connection->out);
}

/* The host's process takes nothing any more: what waits for it is thrown away. */
static void note_deaf(struct vsock_connection *connection)
{
	uint32_t lost = (uint32_t) buf_size(&connection->out);

	connection->host_deaf = true;
	buf_deinit(&connection->out);
	vsock_note_forwarded(connection, lost);
}

/* Tells the guest which halves are shut, where it has not been told. */
static void tell_shutdown(struct vsock_connection *connection)
{
	if (connection->state != VSOCK_OPEN || (vsock_shut_wanted(connection) & ~connection->told_shut) == 0)
		return;
	vsock_queue(connection, VSOCK_DUE_SHUTDOWN);
	if (connection->host_eof && connection->host_deaf) {
		vsock_host_close(connection);
		connection->deadline_usec = clock_monotonic_usec() + GONE_USEC;
	}
}

/* Shuts our sending side when the guest has shut its own and all bytes are out; frees what is over. True when
 * the connection is gone. */
static bool finish_if_done(struct vsock_connection *connection)
{
	if (buf_size(&connection->out) > 0)
		return false;
	if (connection->state == VSOCK_DRAINING) {
		vsock_free(connection);
		return true;
	}
	if (connection->guest_shut == VSOCK_SHUT_BOTH) {
		vsock_reset_connection(connection);
		return true;
	}
	if ((connection->guest_shut & VSOCK_SHUT_SEND) && !connection->out_is_shut && connection->fd >= 0) {
		connection->out_is_shut = true;
		(void) shutdown(connection->fd, SHUT_WR); /* fails only when the peer is gone: seen elsewhere */
	}
	return false;
}

void vsock_host_watch(struct vsock_connection *connection)
{
	struct loop *loop = connection->vsock->loop;
	uint32_t events = 0;

	if (connection->fd < 0)
		return;
	if (connection->host_hung_up) { /* what it left behind is there at once or never */
		if (vsock_may_send(connection) && vsock_credit(connection) > 0)
			vsock_queue(connection, VSOCK_DUE_DATA);
		return;
	}
	if (connection->state == VSOCK_GREETING)
		events = EPOLLIN;
	if (buf_size(&connection->out) > 0)
		events |= EPOLLOUT;
	if (vsock_may_send(connection) && !(connection->due & VSOCK_DUE_DATA) && vsock_credit(connection) > 0)
		events |= EPOLLIN;
	if (connection->source.fd >= 0)
		loop_watch(loop, &connection->source, events);
	else if (loop_add(loop, &connection->source, connection->fd, events, vsock_on_socket, connection) < 0)
		connection->deadline_usec = 1; /* no memory for a watch: the sweep resets it */
}

/* Writes from `iov`; the bytes that went out, or -EPIPE when the peer is gone. */
static ssize_t write_some(struct vsock_connection *connection, const struct iovec *iov, unsigned int n)
{
	ssize_t done;

	do {
		done = connection->vsock->io.write(connection->fd, iov, (int) n);
	} while (done < 0 && errno == EINTR);
	if (done >= 0)
		return done;
	return errno == EAGAIN ? 0 : -EPIPE;
}

static int keep_rest(struct vsock_connection *connection, const struct iovec *iov, unsigned int n, size_t skip)
{
	for (unsigned int i = 0; i < n; i++) {
		const uint8_t *at = iov[i].iov_base;
		int r;

		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		r = buf_append(&connection->out, at + skip, iov[i].iov_len - skip);
		if (r < 0)
			return r;
		skip = 0;
	}
	return 0;
}

void vsock_host_send(struct vsock_connection *connection, const struct iovec *iov, unsigned int n, uint32_t size)
{
	ssize_t done = 0;

	if (connection->host_deaf || connection->fd < 0) {
		vsock_note_forwarded(connection, size);
		vsock_queue(connection, 0);
		return;
	}
	if (buf_size(&connection->out) == 0)
		done = write_some(connection, iov, n);
	if (done < 0) {
		vsock_note_forwarded(connection, size);
		note_deaf(connection);
		tell_shutdown(connection);
		vsock_queue(connection, 0);
		return;
	}
	vsock_note_forwarded(connection, (uint32_t) done);
	/* cannot pass the bound: the window is the bound */
	if (keep_rest(connection, iov, n, (size_t) done) < 0) {
		vsock_reset_connection(connection);
		return;
	}
	vsock_queue(connection, 0);
	vsock_host_watch(connection);
}

static void flush(struct vsock_connection *connection)
{
	while (buf_size(&connection->out) > 0) {
		struct iovec iov = { .iov_base = (void *) (uintptr_t) buf_peek(&connection->out),
			.iov_len = buf_size(&connection->out) };
		ssize_t done = write_some(connection, &iov, 1);

		if (done == 0)
			return;
		if (done < 0) {
			note_deaf(connection);
			return;
		}
		buf_consume(&connection->out, (size_t) done);
		vsock_note_forwarded(connection, (uint32_t) done);
		if (connection->state == VSOCK_DRAINING || connection->guest_shut == VSOCK_SHUT_BOTH)
			vsock_host_drain(connection);
	}
	buf_deinit(&connection->out); /* idle connections hold no memory */
}

uint32_t vsock_host_receive(struct vsock_connection *connection, const struct iovec *iov, unsigned int n)
{
	ssize_t done;

	if (connection->fd < 0)
		return 0;
	do {
		done = connection->vsock->io.read(connection->fd, iov, (int) n);
	} while (done < 0 && errno == EINTR);
	if (done > 0)
		return (uint32_t) done;
	if (done < 0 && errno == EAGAIN && !connection->host_hung_up)
		return 0;
	/* the end, or an error such as ECONNRESET, which is the end of both directions */
	connection->host_eof = true;
	if (done < 0)
		note_deaf(connection);
	tell_shutdown(connection);
	return 0;
}

void vsock_host_drain(struct vsock_connection *connection)
{
	connection->deadline_usec = clock_monotonic_usec() + DRAIN_USEC;
}

void vsock_host_shutdown(struct vsock_connection *connection)
{
	if ((connection->guest_shut & VSOCK_SHUT_RECEIVE) && connection->fd >= 0)
		(void) shutdown(connection->fd, SHUT_RD); /* the host's writes fail from now on */
	if (finish_if_done(connection))
		return;
	if (connection->guest_shut == VSOCK_SHUT_BOTH)
		vsock_host_drain(connection);
	vsock_queue(connection, 0);
	vsock_host_watch(connection);
}

/* ---- the CONNECT line ---- */

static bool parse_port(const char *line, uint32_t *ret)
{
	static const char word[] = "CONNECT ";
	uint64_t port = 0;
	const char *p = line + sizeof(word) - 1;

	if (strncmp(line, word, sizeof(word) - 1) != 0 || *p < '0' || *p > '9')
		return false;
	for (; *p >= '0' && *p <= '9'; p++) {
		port = port * 10 + (uint64_t) (*p - '0');
		if (port > UINT32_MAX)
			return false;
	}
	*ret = (uint32_t) port;
	return *p == '\n';
}

/* Ports of our side are not used twice in a row, so that a late packet of an old connection meets nobody. */
static uint32_t new_host_port(struct vsock_device *vsock, uint32_t guest_port)
{
	uint32_t port;

	do {
		port = vsock->next_host_port;
		vsock->next_host_port = port + 1 == 2 * HOST_PORT_FIRST ? HOST_PORT_FIRST : port + 1;
	} while (vsock_find(vsock, guest_port, port)); /* at most 1024 of 2^30 are taken */
	return port;
}

void vsock_set_next_port(struct vsock_device *vsock, uint32_t port)
{
	if (port >= HOST_PORT_FIRST && port < 2 * HOST_PORT_FIRST)
		vsock->next_host_port = port;
}

static void greet(struct vsock_connection *connection)
{
	/* byte by byte: what follows the line belongs to the guest and stays in the socket */
	while (connection->line_size < VSOCK_LINE_MAX - 1) {
		char *at = &connection->line[connection->line_size];
		struct iovec iov = { .iov_base = at, .iov_len = 1 };
		ssize_t n = connection->vsock->io.read(connection->fd, &iov, 1);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0)
			break;
		connection->line_size++;
		if (*at != '\n')
			continue;
		if (!parse_port(connection->line, &connection->guest_port))
			break;
		connection->host_port = new_host_port(connection->vsock, connection->guest_port);
		connection->state = VSOCK_REQUESTED;
		connection->deadline_usec = clock_monotonic_usec() + RESPONSE_USEC;
		vsock_list(connection);
		vsock_queue(connection, VSOCK_DUE_REQUEST);
		vsock_host_watch(connection);
		return;
	}
	connection->vsock->refused++;
	vsock_free(connection);
}

void vsock_host_opened(struct vsock_connection *connection)
{
	char line[24];
	int n = snprintf(line, sizeof(line), "OK %u\n", connection->host_port);
	struct iovec iov = { .iov_base = line, .iov_len = (size_t) n };

	/* the socket's buffer is empty, so this fits, unless the process has gone */
	if (write_some(connection, &iov, 1) != n) {
		vsock_reset_connection(connection);
		return;
	}
	connection->state = VSOCK_OPEN;
	connection->deadline_usec = 0;
	vsock_host_watch(connection);
}

/* ---- events ---- */

/* Its process closed the socket. The event would come again and again, so the socket is no longer watched. */
static void on_hangup(struct vsock_connection *connection)
{
	if (connection->state != VSOCK_OPEN) {
		vsock_reset_connection(connection);
		return;
	}
	connection->host_hung_up = true;
	loop_remove(connection->vsock->loop, &connection->source);
	note_deaf(connection);
	if (!vsock_may_send(connection))
		connection->host_eof = true; /* nothing of it will be read */
	if (finish_if_done(connection))
		return;
	tell_shutdown(connection);
	vsock_queue(connection, 0);
	vsock_host_watch(connection);
}

static void handle_socket(struct vsock_connection *connection, uint32_t events)
{
	if (connection->state == VSOCK_GREETING && (events & EPOLLIN)) {
		greet(connection);
		return;
	}
	if (events & (EPOLLHUP | EPOLLERR)) {
		on_hangup(connection);
		return;
	}
	if (events & EPOLLOUT) {
		flush(connection);
		if (finish_if_done(connection))
			return;
		tell_shutdown(connection);
	}
	vsock_queue(connection, (events & EPOLLIN) ? VSOCK_DUE_DATA : 0u);
	vsock_host_watch(connection);
}

void vsock_on_socket(void *data, uint32_t events)
{
	struct vsock_connection *connection = data;
	struct vsock_device *vsock = connection->vsock;

	/* enter() frees the connection when the device is not active any more */
	if (vsock_enter(vsock)) {
		handle_socket(connection, events);
		vsock_serve(vsock);
	}
	vsock_leave(vsock);
}

static bool accept_one(struct vsock_device *vsock, bool is_active)
{
	struct vsock_connection *connection;
	int fd = accept4(vsock->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		/* out of descriptors or memory: the listener rests until the next sweep */
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
			loop_watch(vsock->loop, &vsock->listener, 0);
			vsock_arm_sweep(vsock);
		}
		return false;
	}
	connection = is_active ? vsock_add(vsock, VSOCK_GREETING, fd) : NULL;
	if (!connection) {
		vsock->refused++;
		(void) fd_close(fd);
		return true;
	}
	connection->deadline_usec = clock_monotonic_usec() + GREETING_USEC;
	vsock_host_watch(connection);
	return true;
}

void vsock_on_listener(void *data, uint32_t events)
{
	struct vsock_device *vsock = data;
	bool is_active = vsock_enter(vsock);

	(void) events;
	for (int i = 0; i < ACCEPT_MAX && accept_one(vsock, is_active); i++)
		;
	vsock_leave(vsock);
}
