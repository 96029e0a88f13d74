/* SPDX-License-Identifier: Apache-2.0
 *
 * See conn.h: what each request does. Every answer but Start's and Connect's is one frame.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/conn.h"
#include "guest/env.h"
#include "guest/info.h"

static void conn_answer(struct conn *conn, int r)
{
	struct err err = ERR_NULL;

	if (r < 0) {
		(void) err_set(&err, FAIL_NO_MEMORY, -r, "no memory for the answer");
		conn_fail(conn, &err);
		return;
	}
	conn_finish(conn);
}

static void handle_info(struct conn *conn)
{
	struct guest_info info;

	info_read(&info);
	info.processes = processes_count_alive(&conn->server->processes);
	conn_answer(conn, answer_info(&conn->out, &info));
}

static void handle_configure(struct conn *conn, struct request *request)
{
	struct server *server = conn->server;
	char *user = strdup(request->default_user);
	struct err err = ERR_NULL;

	if (!user) {
		(void) err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for the default user");
		conn_fail(conn, &err);
		return;
	}
	free(server->default_user);
	server->default_user = user;
	env_free(server->env);
	server->env = TAKE(request->env);
	if (*request->hostname && server->host.set_hostname)
		server->host.set_hostname(request->hostname);
	if (request->realtime_usec > 0 && server->host.set_clock)
		server->host.set_clock(request->realtime_usec);
	if (request->has_network && server->host.set_network &&
		server->host.set_network(&request->network, &err) < 0)
		conn_fail(conn, &err);
	else
		conn_answer(conn, answer_done(&conn->out));
}

/* ---- sleep ---- */

static void answer_sleep(struct conn *conn, int r, const struct err *err)
{
	if (r < 0)
		conn_fail(conn, err);
	else
		conn_answer(conn, answer_done(&conn->out));
}

static void handle_freeze(struct conn *conn)
{
	struct server *server = conn->server;
	struct err err = ERR_NULL;
	int r = server->is_frozen                ? 0
		: server->host.freeze != NULL ? server->host.freeze(&err)
					      : err_set(&err, FAIL_GUEST_FREEZE_FAILED, ENOSYS, "there is nothing to freeze here");

	server->is_frozen = r == 0;
	answer_sleep(conn, r, &err);
}

static void handle_wake(struct conn *conn, struct request *request)
{
	struct server *server = conn->server;
	const struct guest_wake wake = { .realtime_usec = request->realtime_usec,
		.entropy = request->data,
		.entropy_size = request->size,
		.network = request->has_network ? &request->network : NULL,
		.hostname = request->hostname };
	struct err err = ERR_NULL;
	int r = server->host.wake ? server->host.wake(&wake, &err) : 0;

	if (r == 0 && *request->hostname) {
		env_free(server->env);
		server->env = TAKE(request->env);
	}
	answer_sleep(conn, r, &err);
}

static void handle_thaw(struct conn *conn, const struct request *request)
{
	struct server *server = conn->server;
	struct err err = ERR_NULL;
	int r = server->is_frozen && server->host.thaw ? server->host.thaw(request->realtime_usec, &err) : 0;

	server->is_frozen = server->is_frozen && r < 0;
	answer_sleep(conn, r, &err);
}

/* ---- diff ---- */

/* The child has the connection from here on; ours is closed. */
static void handle_diff(struct conn *conn)
{
	struct server *server = conn->server;
	struct err err = ERR_NULL;
	size_t i = 0;
	pid_t pid;

	while (i < ARRAY_LEN(server->diffs) && server->diffs[i] != 0)
		i++;
	if (!server->host.diff) {
		(void) err_set(&err, FAIL_UNSUPPORTED, ENOSYS, "there are no layers to compare here");
	} else if (i == ARRAY_LEN(server->diffs)) {
		(void) err_set(&err, FAIL_TOO_MANY_STREAMS, EAGAIN, "the guest compares its disk for %d at once", DIFFS_MAX);
	} else if ((pid = server->host.diff(conn->fd)) < 0) {
		(void) err_set(&err, FAIL_NO_MEMORY, -pid, "no process to look through the disk");
	} else {
		server->diffs[i] = pid;
		conn_finish(conn);
		return;
	}
	conn_fail(conn, &err);
}

/* ---- start ---- */

static size_t strv_size(char **strv)
{
	size_t size = 0;

	for (; *strv; strv++)
		size += strlen(*strv) + 1;
	return size;
}

/* What list shows later; takes arguments and environment of the request where they are small enough. */
static int keep_config(struct request *request, struct process_config *ret)
{
	struct process_config config = { .cmd = strdup(request->cmd), .cwd = strdup(request->cwd),
		.tag = strdup(request->tag) };

	if (!config.cmd || !config.cwd || !config.tag) {
		process_config_free(&config);
		return -ENOMEM;
	}
	if (strv_size(request->args) <= CONFIG_KEPT_MAX)
		config.args = TAKE(request->args);
	if (strv_size(request->env) <= CONFIG_KEPT_MAX)
		config.env = TAKE(request->env);
	*ret = config;
	return 0;
}

/* argv: borrowed strings in an array of the caller's. */
static char **make_argv(const struct request *request)
{
	size_t n = 0;
	char **argv;

	while (request->args[n])
		n++;
	argv = calloc(n + 2, sizeof(*argv));
	if (!argv)
		return NULL;
	argv[0] = (char *) (uintptr_t) request->cmd; /* execve() does not write to it */
	memcpy(argv + 1, request->args, n * sizeof(*argv));
	return argv;
}

static int start(struct conn *conn, struct request *request, struct err *reterr)
{
	struct server *server = conn->server;
	const char *name = *request->user ? request->user : server->default_user;
	CLEANUP_FREE struct user *user = calloc(1, sizeof(*user));
	CLEANUP_FREE char **argv = make_argv(request);
	CLEANUP(env_freep) char **env = NULL;
	struct process_config config = { 0 };
	struct spawn spawn;
	int r;

	if (!user || !argv)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a process");
	r = user_find(server->etc, name ? name : "", user, reterr);
	if (r < 0)
		return r;
	env = env_make(user, server->env, request->env, request->traceparent);
	if (!env || keep_config(request, &config) < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a process");
	spawn = (struct spawn){ .cmd = request->cmd, .argv = argv, .env = env, .cwd = request->cwd, .user = user,
		.wants_stdin = request->wants_stdin, .wants_pty = request->wants_pty, .cols = request->cols,
		.rows = request->rows, .group_fd = server->group_fd };
	r = process_start(&server->processes, &spawn, &config, (int64_t) request->timeout_ms * USEC_PER_MSEC,
		&conn->reader, reterr);
	process_config_free(&config);
	return r;
}

static void handle_start(struct conn *conn, struct request *request)
{
	struct err err = ERR_NULL;

	if (start(conn, request, &err) < 0)
		conn_fail(conn, &err);
	else
		conn->state = CONN_STREAM;
}

/* ---- what needs a process ---- */

static struct process *find(struct conn *conn, const struct request *request)
{
	if (request->pid == 0 && !*request->tag)
		return conn->reader.process; /* of a stream; NULL else */
	return process_find(&conn->server->processes, request->pid, request->tag);
}

static void handle_connect(struct conn *conn, struct process *process)
{
	struct err err = ERR_NULL;

	if (reader_attach(&conn->reader, process, &err) < 0)
		conn_fail(conn, &err);
	else
		conn->state = CONN_STREAM;
}

/* A stream is not answered: its events are the process's. */
static void answer_control(struct conn *conn, const struct err *err)
{
	if (conn->state == CONN_STREAM)
		return;
	if (err_is_set(err))
		conn_fail(conn, err);
	else
		conn_answer(conn, answer_done(&conn->out));
}

/* True: it waits. */
static bool control(struct conn *conn, struct process *process, const struct request *request)
{
	struct err err = ERR_NULL;
	enum input_result input = INPUT_TAKEN;
	int r = 0;

	if (request->kind == REQUEST_INPUT)
		input = process_input(process, request->data, request->size);
	else if (request->kind == REQUEST_CLOSE_STDIN)
		input = process_close_input(process);
	else if (request->kind == REQUEST_RESIZE)
		r = process_resize(process, request->cols, request->rows);
	else
		r = process_signal(process, request->signal);
	if (input == INPUT_WAIT)
		return true;
	if (input == INPUT_CLOSED)
		(void) err_set(&err, FAIL_CONFLICT, EPIPE, "the process has no open standard input");
	else if (r == -ESRCH)
		(void) err_set(&err, FAIL_PROCESS_NOT_FOUND, ESRCH, "the process has ended");
	else if (r < 0)
		(void) err_set(&err, FAIL_CONFLICT, -r, "the process does not take this");
	answer_control(conn, &err);
	return false;
}

static bool handle_for_process(struct conn *conn, struct request *request)
{
	struct process *process = find(conn, request);
	struct err err = ERR_NULL;

	if (!process) {
		(void) err_set(&err, FAIL_PROCESS_NOT_FOUND, ESRCH, "no such process runs");
		answer_control(conn, &err);
		return false;
	}
	if (request->kind != REQUEST_CONNECT)
		return control(conn, process, request);
	handle_connect(conn, process);
	return false;
}

static bool handle_first(struct conn *conn, struct request *request)
{
	switch (request->kind) {
	case REQUEST_INFO:
		handle_info(conn);
		return false;
	case REQUEST_CONFIGURE:
		handle_configure(conn, request);
		return false;
	case REQUEST_POWER_OFF:
		conn->powers_off = true;
		conn_answer(conn, answer_done(&conn->out));
		return false;
	case REQUEST_FREEZE:
		handle_freeze(conn);
		return false;
	case REQUEST_WAKE:
		handle_wake(conn, request);
		return false;
	case REQUEST_THAW:
		handle_thaw(conn, request);
		return false;
	case REQUEST_DIFF:
		handle_diff(conn);
		return false;
	case REQUEST_LIST:
		conn_answer(conn, answer_processes(&conn->out, &conn->server->processes));
		return false;
	case REQUEST_START:
		handle_start(conn, request);
		return false;
	case REQUEST_CONNECT:
	case REQUEST_SIGNAL:
	case REQUEST_INPUT:
	case REQUEST_CLOSE_STDIN:
	case REQUEST_RESIZE:
		return handle_for_process(conn, request);
	}
	return false;
}

static bool is_control(enum request_kind kind)
{
	return kind == REQUEST_SIGNAL || kind == REQUEST_INPUT || kind == REQUEST_CLOSE_STDIN ||
		kind == REQUEST_RESIZE;
}

static bool needs_root(enum request_kind kind)
{
	return kind != REQUEST_INFO && kind != REQUEST_CONFIGURE && kind != REQUEST_POWER_OFF;
}

static bool may_be_frozen(enum request_kind kind)
{
	return kind == REQUEST_INFO || kind == REQUEST_POWER_OFF || kind == REQUEST_FREEZE || kind == REQUEST_WAKE ||
		kind == REQUEST_THAW || kind == REQUEST_DIFF; /* which only reads, outside the group */
}

bool service_handle(struct conn *conn, struct request *request)
{
	const struct err *failure = conn->server->failure;
	struct err err = ERR_NULL;

	if (failure && needs_root(request->kind)) {
		conn_fail(conn, failure);
		return false;
	}
	if (conn->server->is_frozen && conn->state == CONN_REQUEST && !may_be_frozen(request->kind)) {
		(void) err_set(&err, FAIL_SANDBOX_NOT_READY, EAGAIN, "the sandbox is on its way to sleep, or wakes");
		conn_fail(conn, &err);
		return false;
	}
	if (conn->state == CONN_REQUEST)
		return handle_first(conn, request);
	if (is_control(request->kind) && request->pid == 0 && !*request->tag)
		return handle_for_process(conn, request);
	(void) err_set(&err, FAIL_FRAME_INVALID, EPROTO, "a stream takes only requests about its own process");
	conn_fail(conn, &err);
	return false;
}

bool service_retry(struct conn *conn)
{
	struct request *request = conn->waiting;
	enum conn_state waiting = conn->state;

	conn->state = conn->was_stream ? CONN_STREAM : CONN_REQUEST;
	if (handle_for_process(conn, request)) {
		conn->state = waiting;
		return true;
	}
	request_free(request);
	conn->waiting = NULL;
	conn->server->n_waiting--;
	return false;
}
