/* SPDX-License-Identifier: Apache-2.0
 *
 * See splice.h.
 */
#include "wire/splice.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define KEEPALIVE_IDLE_S 15
#define KEEPALIVE_STEP_S 5
#define KEEPALIVE_STEPS 3
#define UNANSWERED_MS 30000

struct splice {
	struct bufferevent *side[2];
	struct event *patience; /* for one who does not take what the other said */
	int64_t stall_usec;
	bool is_ending, is_full[2]; /* is_full: this side takes nothing at present, so the other is not read */
	void (*on_end)(void *user);
	void *user;
};

static void end(struct splice *splice)
{
	void (*on_end)(void *user) = splice->on_end;

	splice->on_end = NULL;
	if (on_end)
		on_end(splice->user);
}

static void wait_for(struct splice *splice, int64_t usec)
{
	const struct timeval tv = { usec / USEC_PER_SEC, usec % USEC_PER_SEC };

	(void) evtimer_add(splice->patience, &tv);
}

/* What does not fit stays in the input. Its high mark alone would have libevent call on_read() in a circle. */
static void move(struct splice *splice, int to)
{
	struct bufferevent *from = splice->side[!to];

	if (evbuffer_get_length(bufferevent_get_output(splice->side[to])) >= SPLICE_ROOM) {
		(void) bufferevent_disable(from, EV_READ);
		if (!splice->is_full[to])
			wait_for(splice, splice->stall_usec);
		splice->is_full[to] = true;
		return;
	}
	(void) bufferevent_write_buffer(splice->side[to], bufferevent_get_input(from));
	(void) bufferevent_enable(from, EV_READ);
	splice->is_full[to] = false;
	if (!splice->is_full[!to])
		(void) evtimer_del(splice->patience);
}

static int index_of(const struct splice *splice, const struct bufferevent *side)
{
	return splice->side[1] == side;
}

static void on_read(struct bufferevent *side, void *user)
{
	struct splice *splice = user;

	if (!splice->is_ending)
		move(splice, !index_of(splice, side));
}

/* `side` has room again. */
static void on_written(struct bufferevent *side, void *user)
{
	struct splice *splice = user;

	if (!splice->is_ending)
		move(splice, index_of(splice, side));
	else if (evbuffer_get_length(bufferevent_get_output(side)) == 0)
		end(splice);
}

static void on_event(struct bufferevent *side, short what, void *user)
{
	struct splice *splice = user;
	struct bufferevent *other = splice->side[!index_of(splice, side)];

	if (!(what & (BEV_EVENT_EOF | BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT)))
		return;
	if (splice->is_ending) {
		end(splice);
		return;
	}
	splice->is_ending = true;
	(void) bufferevent_disable(side, EV_READ | EV_WRITE);
	(void) bufferevent_disable(other, EV_READ);
	bufferevent_setwatermark(other, EV_WRITE, 0, 0);
	(void) bufferevent_write_buffer(other, bufferevent_get_input(side));
	if (evbuffer_get_length(bufferevent_get_output(other)) == 0)
		end(splice);
	else
		wait_for(splice, SPLICE_FLUSH_SEC * USEC_PER_SEC);
}

static void on_patience(evutil_socket_t fd, short what, void *user)
{
	(void) fd, (void) what;
	end(user);
}

struct splice *splice_new(struct event_base *base, struct bufferevent *a, struct bufferevent *b, int64_t stall_usec,
	void (*on_end)(void *user), void *user)
{
	struct splice *splice = calloc(1, sizeof(*splice));

	if (splice)
		splice->patience = evtimer_new(base, on_patience, splice);
	if (!splice || !splice->patience) {
		bufferevent_free(a);
		bufferevent_free(b);
		free(splice);
		return NULL;
	}
	splice->side[0] = a;
	splice->side[1] = b;
	splice->stall_usec = stall_usec;
	splice->on_end = on_end;
	splice->user = user;
	for (int i = 0; i < 2; i++) {
		bufferevent_setcb(splice->side[i], on_read, on_written, on_event, splice);
		bufferevent_setwatermark(splice->side[i], EV_READ, 0, SPLICE_ROOM);
		bufferevent_setwatermark(splice->side[i], EV_WRITE, SPLICE_ROOM / 2, 0);
	}
	for (int i = 0; i < 2; i++) {
		(void) bufferevent_enable(splice->side[i], EV_WRITE);
		move(splice, i); /* what came with the last bytes of a handshake */
	}
	return splice;
}

void splice_free(struct splice *splice)
{
	if (!splice)
		return;
	for (int i = 0; i < 2; i++)
		bufferevent_free(splice->side[i]);
	event_free(splice->patience);
	free(splice);
}

void stream_keepalive(int fd)
{
	static const struct {
		int level, option, value;
	} options[] = {
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S },
		{ IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_STEP_S },
		{ IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_STEPS },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, UNANSWERED_MS },
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
	};

	/* one that the kernel refuses costs time until a dead peer is found, and nothing else */
	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		(void) setsockopt(fd, options[i].level, options[i].option, &options[i].value, sizeof(options[i].value));
}

/* ---- unix sockets without a file ---- */

static socklen_t local_address(const char *name, struct sockaddr_un *ret)
{
	size_t size = MIN(strlen(name), sizeof(ret->sun_path) - 1);

	*ret = (struct sockaddr_un) { .sun_family = AF_UNIX };
	memcpy(ret->sun_path + 1, name, size);
	return (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + size);
}

int local_listen(const char *name)
{
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address;
	socklen_t size = local_address(name, &address);

	if (fd < 0 || bind(fd, (const struct sockaddr *) &address, size) < 0 || listen(fd, 8) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int local_connect(const char *name)
{
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address;
	socklen_t size = local_address(name, &address);

	if (fd < 0 || connect(fd, (const struct sockaddr *) &address, size) < 0)
		return -errno;
	return TAKE_FD(fd);
}

bool local_is_own(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == getpid();
}
