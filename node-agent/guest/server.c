/* SPDX-License-Identifier: Apache-2.0
 *
 * See server.h: accepts, reaps, keeps time.
 */
#include "guest/server.h"

#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* after sys/socket.h, whose types it uses */
#include <linux/vm_sockets.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/conn.h"
#include "guest/env.h"

#define ACCEPT_PAUSE_USEC INT64_C(100000)

static bool server_reaped_diff(struct server *server, pid_t pid)
{
	for (size_t i = 0; i < ARRAY_LEN(server->diffs); i++)
		if (server->diffs[i] == pid) {
			server->diffs[i] = 0;
			return true;
		}
	return false;
}

static void server_on_signal(struct source *source, uint32_t events)
{
	struct server *server = container_of(source, struct server, signals);
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	(void) events;
	/* One signal may stand for many children, so its content says nothing. */
	while (read(server->signal_fd, &info, sizeof(info)) == (ssize_t) sizeof(info))
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (!oom_reaped(&server->oom, pid, status) && !server_reaped_diff(server, pid))
			processes_reaped(&server->processes, pid, status);
}

int server_init(struct server *server, const char *etc, const struct server_host *host)
{
	sigset_t mask;
	int r;

	*server = (struct server){ .listen_fd = -1, .signal_fd = -1, .group_fd = -1, .etc = etc, .host = *host,
		.signals = SOURCE_NULL(server_on_signal) };
	TAILQ_INIT(&server->conns);
	r = loop_init(&server->loop);
	if (r < 0)
		return r;
	processes_init(&server->processes, &server->loop);
	oom_init(&server->oom, &server->loop, host->count_oom, host->tell_oom);
	server->processes.oom = &server->oom;
	server->listener.fd = -1;
	(void) signal(SIGPIPE, SIG_IGN); /* a process that closed its input is no reason to die */
	(void) sigemptyset(&mask);
	(void) sigaddset(&mask, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &mask, NULL) < 0)
		return -errno;
	server->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (server->signal_fd < 0)
		return -errno;
	return loop_watch(&server->loop, &server->signals, server->signal_fd, EPOLLIN);
}

void server_deinit(struct server *server)
{
	struct conn *conn;

	while ((conn = TAILQ_FIRST(&server->conns)))
		conn_free(conn);
	processes_deinit(&server->processes);
	oom_deinit(&server->oom);
	loop_forget(&server->loop, &server->listener);
	loop_forget(&server->loop, &server->signals);
	server->listen_fd = fd_close(server->listen_fd);
	server->signal_fd = fd_close(server->signal_fd);
	loop_deinit(&server->loop);
	env_free(server->env);
	free(server->default_user);
}

int server_adopt(struct server *server, int fd)
{
	struct err err = ERR_NULL;
	struct conn *conn;
	int r = fd_set_nonblock(fd);

	conn = r == 0 ? conn_new(server, fd) : NULL;
	if (!conn) {
		(void) fd_close(fd);
		return r < 0 ? r : -ENOMEM;
	}
	if (server->n_conns > CONNS_MAX) {
		(void) err_set(&err, FAIL_TOO_MANY_STREAMS, EAGAIN, "the guest serves at most %d connections",
			CONNS_MAX);
		conn_fail(conn, &err);
		if (server->n_conns > CONNS_MAX + 16) { /* enough that were refused wait to read it */
			conn_free(conn);
			return -EAGAIN;
		}
	}
	conn_run(conn);
	return 0;
}

/* In a sandbox only the host may ask. Other families have no such thing and are tests. */
static bool peer_is_host(const struct sockaddr_storage *address)
{
	struct sockaddr_vm vm;

	if (address->ss_family != AF_VSOCK)
		return true;
	__builtin_memcpy(&vm, address, sizeof(vm));
	return vm.svm_cid == VMADDR_CID_HOST;
}

static void server_on_accept(struct source *source, uint32_t events)
{
	struct server *server = container_of(source, struct server, listener);
	struct sockaddr_storage address = { 0 };
	socklen_t size = sizeof(address);
	int fd = accept4(server->listen_fd, (struct sockaddr *) &address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void) events;
	if (fd >= 0) {
		if (peer_is_host(&address))
			(void) server_adopt(server, fd); /* without memory the peer sees an end */
		else
			(void) fd_close(fd);
		return;
	}
	/* Out of descriptors or memory: the connection stays in the backlog; do not spin on it. */
	if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
		loop_forget(&server->loop, source);
		server->accept_again_usec = clock_monotonic_usec() + ACCEPT_PAUSE_USEC;
	}
}

int server_listen(struct server *server, int listen_fd)
{
	server->listen_fd = listen_fd;
	server->listener = (struct source) SOURCE_NULL(server_on_accept);
	return loop_watch(&server->loop, &server->listener, listen_fd, EPOLLIN);
}

/* ---- time ---- */

static int64_t server_tick_listener(struct server *server, int64_t now)
{
	if (server->accept_again_usec && now >= server->accept_again_usec) {
		server->accept_again_usec = 0;
		if (loop_watch(&server->loop, &server->listener, server->listen_fd, EPOLLIN) < 0)
			server->accept_again_usec = now + ACCEPT_PAUSE_USEC;
	}
	return server->accept_again_usec;
}

static int64_t server_tick_conns(struct server *server, int64_t now)
{
	struct conn *conn, *next;
	int64_t wake = 0;

	for (conn = TAILQ_FIRST(&server->conns); conn; conn = next) {
		next = TAILQ_NEXT(conn, link);
		if (conn->deadline_usec && now >= conn->deadline_usec)
			conn_free(conn);
		else
			wake = deadline_earliest(wake, conn->deadline_usec);
	}
	return wake;
}

static void server_retry_inputs(struct server *server)
{
	struct conn *conn, *next;

	for (conn = TAILQ_FIRST(&server->conns); conn && server->n_waiting > 0; conn = next) {
		next = TAILQ_NEXT(conn, link);
		if (conn->waiting && !service_retry(conn))
			conn_resume(conn);
	}
}

static int wait_ms(const struct server *server, int most_ms)
{
	int64_t left;

	if (server->wake_usec == 0)
		return most_ms;
	left = (server->wake_usec - clock_monotonic_usec() + USEC_PER_MSEC - 1) / USEC_PER_MSEC;
	left = MAX(left, 0);
	return most_ms < 0 || left < most_ms ? (int) MIN(left, 3600000) : most_ms;
}

int server_turn(struct server *server, int most_ms)
{
	int r = loop_turn(&server->loop, wait_ms(server, most_ms));
	int64_t now = clock_monotonic_usec();

	if (r < 0)
		return r;
	server_retry_inputs(server);
	server->wake_usec = processes_tick(&server->processes, now);
	server->wake_usec = deadline_earliest(server->wake_usec, server_tick_conns(server, now));
	server->wake_usec = deadline_earliest(server->wake_usec, server_tick_listener(server, now));
	server->wake_usec = deadline_earliest(server->wake_usec, oom_tick(&server->oom, now));
	return 0;
}
