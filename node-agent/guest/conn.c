/* SPDX-License-Identifier: Apache-2.0
 *
 * See server.h and conn.h. One event is on its way at a time: the next is fetched when the socket took the
 * last, so a slow peer costs one frame, and a chunk counts as read when it went out whole.
 *
 * A connection is freed in conn_run() only, which every path ends in.
 */
#include "guest/conn.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/frame.h"

#define READ_SIZE 65536u
#define OUT_MAX (REQUEST_FRAME_MAX + 65536u) /* the largest answer and a failure behind it */

static void conn_on_event(struct source *source, uint32_t events);

static void conn_on_reader(struct reader *reader)
{
	conn_run(container_of(reader, struct conn, reader));
}

struct conn *conn_new(struct server *server, int fd)
{
	struct conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->server = server;
	conn->fd = fd;
	conn->source = (struct source) SOURCE_NULL(conn_on_event);
	conn->in = (struct buf) BUF_NULL(REQUEST_FRAME_MAX + FRAME_HEAD);
	conn->out = (struct buf) BUF_NULL(OUT_MAX);
	conn->reader.wake = conn_on_reader;
	conn->deadline_usec = clock_monotonic_usec() + REQUEST_USEC;
	TAILQ_INSERT_TAIL(&server->conns, conn, link);
	server->n_conns++;
	return conn;
}

static void conn_stop_waiting(struct conn *conn)
{
	if (!conn->waiting)
		return;
	request_free(conn->waiting);
	conn->waiting = NULL;
	conn->server->n_waiting--;
}

void conn_free(struct conn *conn)
{
	struct server *server = conn->server;

	reader_detach(&conn->reader);
	conn_stop_waiting(conn);
	loop_forget(&server->loop, &conn->source);
	(void) fd_close(conn->fd);
	buf_deinit(&conn->in);
	buf_deinit(&conn->out);
	TAILQ_REMOVE(&server->conns, conn, link);
	server->n_conns--;
	free(conn);
}

void conn_finish(struct conn *conn)
{
	reader_detach(&conn->reader);
	conn->sending = READER_NONE;
	conn->state = CONN_CLOSING;
	conn->deadline_usec = clock_monotonic_usec() + FLUSH_USEC;
}

void conn_fail(struct conn *conn, const struct err *err)
{
	/* Without memory for the answer it just ends, which the peer understands too. */
	(void) answer_failure(&conn->out, err);
	conn_finish(conn);
}

/* ---- in ---- */

static void conn_take_frame(struct conn *conn, const uint8_t *data, size_t size)
{
	CLEANUP(request_freep) struct request *request = NULL;
	struct err err = ERR_NULL;
	int r = request_parse(&request, data, size, &err);

	frame_consume(&conn->in, size);
	if (r < 0) {
		conn_fail(conn, &err);
		return;
	}
	if (conn->state == CONN_REQUEST)
		conn->deadline_usec = 0;
	if (service_handle(conn, request)) {
		conn->was_stream = conn->state == CONN_STREAM;
		conn->state = CONN_WAITING;
		conn->waiting = TAKE(request);
		conn->server->n_waiting++;
	}
}

static bool conn_takes_frames(const struct conn *conn)
{
	return conn->state == CONN_REQUEST || conn->state == CONN_STREAM;
}

static void conn_take_frames(struct conn *conn)
{
	while (conn_takes_frames(conn)) {
		struct err err = ERR_NULL;
		const uint8_t *data;
		size_t size;

		switch (frame_peek(&conn->in, REQUEST_FRAME_MAX, &data, &size)) {
		case FRAME_PARTIAL:
			return;
		case FRAME_TOO_LARGE:
			(void) err_set(&err, FAIL_FRAME_INVALID, EMSGSIZE, "a frame is larger than 1 MiB");
			conn_fail(conn, &err);
			return;
		case FRAME_WHOLE:
			conn_take_frame(conn, data, size);
			break;
		}
	}
}

/* False: the peer is gone. */
static bool conn_read(struct conn *conn)
{
	size_t room = conn->in.max - buf_size(&conn->in);
	uint8_t *to;
	ssize_t n;

	room = MIN(room, READ_SIZE);
	if (buf_reserve(&conn->in, room, &to) < 0)
		return false;
	do {
		n = read(conn->fd, to, room);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return true;
	if (n <= 0)
		return false;
	buf_commit(&conn->in, (size_t) n);
	conn_take_frames(conn);
	return true;
}

/* ---- out ---- */

/* Fetches the next event of the stream into the empty `out`. False: there is none, or no memory for it. */
static bool conn_fetch(struct conn *conn)
{
	struct reader_chunk chunk = { 0 };
	enum reader_event event = reader_next(&conn->reader, &chunk);
	const struct process *process = conn->reader.process;
	int r = 0;

	switch (event) {
	case READER_NONE:
		return false;
	case READER_STARTED:
		r = answer_started(&conn->out, process->pid);
		break;
	case READER_FAILED:
		r = answer_failure(&conn->out, &process->failure);
		break;
	case READER_DATA:
		r = answer_data(&conn->out, &chunk);
		break;
	case READER_ENDED:
		r = answer_ended(&conn->out, &process->end);
		break;
	}
	if (r < 0) {
		conn_finish(conn);
		return false;
	}
	conn->sending = event;
	conn->sending_end = chunk.end;
	return true;
}

/* False: the peer is gone. */
static bool conn_write(struct conn *conn)
{
	while (buf_size(&conn->out) > 0) {
		ssize_t n = send(conn->fd, buf_peek(&conn->out), buf_size(&conn->out),
			MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		buf_consume(&conn->out, (size_t) n);
	}
	return true;
}

/* Sends what there is. False: the connection is over. */
static bool conn_send(struct conn *conn)
{
	for (;;) {
		if (!conn_write(conn))
			return false;
		if (buf_size(&conn->out) > 0)
			return true;
		if (conn->sending != READER_NONE)
			reader_done(&conn->reader, conn->sending, conn->sending_end);
		if (conn->sending == READER_ENDED || conn->sending == READER_FAILED)
			return false;
		conn->sending = READER_NONE;
		if (conn->state == CONN_CLOSING)
			return false;
		if (!conn->reader.process || !conn_fetch(conn))
			return conn->state != CONN_CLOSING;
	}
}

static bool conn_watch(struct conn *conn)
{
	uint32_t events = 0;

	if (conn_takes_frames(conn))
		events |= EPOLLIN;
	if (buf_size(&conn->out) > 0)
		events |= EPOLLOUT;
	return loop_watch(&conn->server->loop, &conn->source, conn->fd, events) == 0;
}

void conn_run(struct conn *conn)
{
	struct server *server = conn->server;
	bool powers_off;

	if (conn_send(conn) && conn_watch(conn))
		return;
	powers_off = conn->powers_off;
	conn_free(conn);
	if (powers_off && server->host.power_off)
		server->host.power_off();
}

void conn_resume(struct conn *conn)
{
	conn_take_frames(conn);
	conn_run(conn);
}

static void conn_on_event(struct source *source, uint32_t events)
{
	struct conn *conn = container_of(source, struct conn, source);

	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && conn_takes_frames(conn) && !conn_read(conn)) {
		conn_free(conn);
		return;
	}
	conn_run(conn);
}
