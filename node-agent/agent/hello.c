/* SPDX-License-Identifier: Apache-2.0
 *
 * See hello.h. Whatever the guest sends that is no hello closes its connection and is not answered.
 */
#include "agent/hello.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/guest-failure.h"
#include "base/fd.h"
#include "base/log.h"
#include "pb/guest.pb-c.h"
#include "wire/check.h"

#define HEAD 4u
#define HELLO_MAX (64u * 1024u)
#define CONNECTIONS_MAX 4
#define ACCEPTS_MAX 256
#define READ_SEC 5
#define SLOW_SEC 1

struct hello_conn {
	TAILQ_ENTRY(hello_conn) link;
	struct hello_listener *listener;
	struct bufferevent *bev;
};

struct hello_listener {
	struct event_base *base;
	struct evconnlistener *socket;
	char path[PATH_MAX];
	hello_fn fn;
	void *user;
	TAILQ_HEAD(, hello_conn) conns;
	unsigned int n_conns;
	unsigned int n_accepted;
	struct event *again; /* NULL: not slow */
};

static void conn_free(struct hello_conn *conn)
{
	TAILQ_REMOVE(&conn->listener->conns, conn, link);
	conn->listener->n_conns--;
	bufferevent_free(conn->bev);
	free(conn);
}

static bool decode(const void *data, size_t size, struct hello_result *ret)
{
	Croft__GuestHello *message;
	bool ok;

	message = (Croft__GuestHello *)(void *)check_unpack(
		&croft__guest_hello__descriptor, data, size, NULL);
	if (!message)
		return false;
	ok = strlen(message->boot_id) == BOOT_ID_SIZE - 1;
	if (ok)
		memcpy(ret->boot_id, message->boot_id, BOOT_ID_SIZE);
	ret->oom_kills = message->oom_kills;
	if (message->failure) {
		guest_failure_decode(message->failure, &ret->failure);
		ok = true;
	}
	croft__guest_hello__free_unpacked(message, NULL);
	return ok;
}

static void on_read(struct bufferevent *bev, void *user)
{
	struct hello_conn *conn = user;
	struct evbuffer *in = bufferevent_get_input(bev);
	struct hello_result hello = { .boot_id = "" };
	uint8_t head[HEAD];
	size_t size;

	if (evbuffer_copyout(in, head, HEAD) < (ssize_t)HEAD)
		return;
	size = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
	if (size <= HELLO_MAX && evbuffer_get_length(in) < HEAD + size)
		return;
	if (size > HELLO_MAX ||
		!decode(evbuffer_pullup(in, (ev_ssize_t)(HEAD + size)) + HEAD, size, &hello))
		log_warn("a guest's hello is none", "socket", conn->listener->path);
	else
		conn->listener->fn(&hello, conn->listener->user);
	conn_free(conn);
}

static void on_end(struct bufferevent *bev, short what, void *user)
{
	(void)bev, (void)what;
	conn_free(user);
}

static void on_accept(struct evconnlistener *socket, evutil_socket_t fd, struct sockaddr *from,
	int from_size, void *user)
{
	struct hello_listener *listener = user;
	struct timeval tv = { .tv_sec = READ_SEC }, pause = { .tv_sec = SLOW_SEC };
	struct hello_conn *conn;

	(void)socket, (void)from, (void)from_size;
	/* croft-guest says hello once, and later little; a guest that goes on connecting costs the agent no more */
	if (listener->again || ++listener->n_accepted >= ACCEPTS_MAX)
		(void)evconnlistener_disable(listener->socket);
	if (listener->again && evtimer_add(listener->again, &pause) < 0)
		log_error("no memory for a timer: a guest is not heard any more", "socket", listener->path);
	conn = listener->n_conns < CONNECTIONS_MAX ? calloc(1, sizeof(*conn)) : NULL;
	if (conn)
		conn->bev = bufferevent_socket_new(listener->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!conn || !conn->bev) {
		free(conn);
		(void)fd_close(fd);
		return;
	}
	conn->listener = listener;
	TAILQ_INSERT_TAIL(&listener->conns, conn, link);
	listener->n_conns++;
	bufferevent_setcb(conn->bev, on_read, NULL, on_end, conn);
	bufferevent_setwatermark(conn->bev, EV_READ, 0, HEAD + HELLO_MAX);
	bufferevent_set_timeouts(conn->bev, &tv, NULL);
	if (bufferevent_enable(conn->bev, EV_READ) < 0)
		conn_free(conn);
}

int hello_listen(struct hello_listener **ret, struct event_base *base, const char *path,
	hello_fn fn, void *user, struct err *reterr)
{
	struct hello_listener *listener = calloc(1, sizeof(*listener));
	int fd;

	if (!listener)
		return err_set_at(reterr, STAGE_VMM, FAIL_NO_MEMORY, ENOMEM,
			"no memory to listen for the guest");
	listener->base = base;
	listener->fn = fn;
	listener->user = user;
	TAILQ_INIT(&listener->conns);
	(void)snprintf(listener->path, sizeof(listener->path), "%s", path);
	/* a VMM that croft-node-helper started has a uid of its own, and our group */
	fd = unix_listen(path, SOCK_STREAM, 0660, CONNECTIONS_MAX);
	if (fd < 0) {
		free(listener);
		return err_set(
			reterr, FAIL_VMM_START_FAILED, -fd, "cannot listen for the guest's hello");
	}
	listener->socket = evconnlistener_new(base, on_accept, listener,
		LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0 /* it listens already */, fd);
	if (!listener->socket) {
		(void)fd_close(fd);
		free(listener);
		return err_set_at(reterr, STAGE_VMM, FAIL_NO_MEMORY, ENOMEM,
			"no memory to listen for the guest");
	}
	*ret = listener;
	return 0;
}

static void on_again(evutil_socket_t fd, short what, void *user)
{
	struct hello_listener *listener = user;

	(void)fd, (void)what;
	(void)evconnlistener_enable(listener->socket);
}

void hello_slow(struct hello_listener *listener)
{
	if (!listener || listener->again)
		return;
	listener->again = evtimer_new(listener->base, on_again, listener);
	if (!listener->again)
		log_error("no memory for a timer", "socket", listener->path); /* then after ACCEPTS_MAX it is not heard */
	(void)evconnlistener_enable(listener->socket);
}

void hello_free(struct hello_listener *listener)
{
	struct hello_conn *conn;

	if (!listener)
		return;
	while ((conn = TAILQ_FIRST(&listener->conns)))
		conn_free(conn);
	evconnlistener_free(listener->socket);
	if (listener->again)
		event_free(listener->again);
	free(listener);
}
