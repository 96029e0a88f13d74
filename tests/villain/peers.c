/* SPDX-License-Identifier: Apache-2.0
 *
 * See peers.h.
 */
#include "peers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "devices.h"

#define CONNECTIONS_MAX 2048

struct peer {
	bool echoes;
	size_t from, to; /* of what is still to be sent back */
	char buf[8192];
};

static int listen_at(const char *path, unsigned int port, int backlog)
{
	char name[160];

	(void) snprintf(name, sizeof(name), "%s_%u", path, port);
	return unix_listen(name, SOCK_STREAM, 0600, backlog);
}

/* A listener whose backlog is full and stays so. */
static void make_busy(const char *path)
{
	char name[160];

	(void) listen_at(path, PORT_BUSY, 0);
	(void) snprintf(name, sizeof(name), "%s_%u", path, PORT_BUSY);
	while (unix_connect(name, SOCK_STREAM) >= 0)
		;
}

/* False: it is over. */
static bool serve(struct peer *peer, struct pollfd *fd)
{
	ssize_t n;

	if (fd->revents & (POLLHUP | POLLERR) && (!peer->echoes || !(fd->revents & POLLIN)))
		return false;
	if (fd->revents & POLLIN) {
		n = read(fd->fd, peer->buf, sizeof(peer->buf));
		if (n <= 0)
			return n < 0 && errno == EAGAIN;
		peer->from = 0;
		peer->to = (size_t) n;
	}
	if (peer->to > peer->from) {
		n = send(fd->fd, peer->buf + peer->from, peer->to - peer->from, MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN)
			return false;
		peer->from += n > 0 ? (size_t) n : 0;
	}
	fd->events = peer->to > peer->from ? POLLOUT : peer->echoes ? POLLIN : 0;
	return true;
}

void peers_serve(const char *path, int ready_fd)
{
	static struct pollfd fds[2 + CONNECTIONS_MAX];
	static struct peer peers[2 + CONNECTIONS_MAX];
	nfds_t n = 2;

	make_busy(path);
	fds[0] = (struct pollfd) { .fd = listen_at(path, PORT_ECHO, 1024), .events = POLLIN };
	fds[1] = (struct pollfd) { .fd = listen_at(path, PORT_DEAF, 1024), .events = POLLIN };
	(void) fd_close(ready_fd);
	while (poll(fds, n, -1) >= 0 || errno == EINTR) {
		for (nfds_t i = 2; i < n;) {
			if (!fds[i].revents || serve(&peers[i], &fds[i])) {
				i++;
				continue;
			}
			(void) close(fds[i].fd);
			n--;
			fds[i] = fds[n];
			peers[i] = peers[n];
		}
		for (nfds_t i = 0; i < 2; i++)
			while ((fds[i].revents & POLLIN) && n < 2 + CONNECTIONS_MAX) {
				int fd = accept4(fds[i].fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

				if (fd < 0)
					break;
				peers[n] = (struct peer) { .echoes = i == 0 };
				fds[n++] = (struct pollfd) { .fd = fd, .events = i == 0 ? POLLIN : 0 };
			}
	}
}
