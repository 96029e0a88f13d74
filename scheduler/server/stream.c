/* SPDX-License-Identifier: Apache-2.0
 *
 * See stream.h.
 *
 *   socket --read--> StreamData within `out` --> node        local_ended: our side said that no more comes
 *   socket <-write-- `pending` within `in`   <-- StreamData  peer_ended: the node said so
 */
#include "server/stream.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/table.h"
#include "server/link.h"
#include "server/message.h"
#include "server/shell.h"
#include "wire/credit.h"

#define FRAMES_PER_TURN 4
#define RETRY_USEC 10000
#define WATCH_SEC 1
#define SILENT_SEC 5 /* of a node that is not heard, before a call that it did not answer is given up */

struct stream {
	struct streams *streams;
	uint64_t id;
	uint64_t session;
	char node[ID_SIZE];
	char sandbox[ID_SIZE];
	int fd;
	struct event *readable, *writable, *retry;
	struct credit_out out;
	struct credit_in in;
	uint32_t grant;     /* to be sent when the link has room */
	struct buf pending; /* for the socket */
	bool local_ended, peer_ended, peer_closed;
	bool is_answered; /* something came from the node */
	unsigned int silent_sec; /* the node is not heard, and did not answer */
	struct err failure;
	UT_hash_handle hh;
};

struct streams {
	struct server *server;
	struct stream *all;
	uint64_t last_id;
	struct event *watch;
	uint8_t frame[CREDIT_FRAME_MAX];
};

static void retry_soon(struct stream *stream)
{
	const struct timeval tv = { .tv_usec = RETRY_USEC };

	(void)event_add(stream->retry, &tv);
}

static void close_socket(struct stream *stream)
{
	if (stream->readable)
		event_free(stream->readable);
	if (stream->writable)
		event_free(stream->writable);
	stream->readable = stream->writable = NULL;
	stream->fd = fd_close(stream->fd);
	buf_deinit(&stream->pending);
}

/* It broke: the caller's end meets its end of file and asks stream_failure(). */
static void fail(struct stream *stream, const struct err *err)
{
	if (!err_is_set(&stream->failure))
		stream->failure = *err;
	close_socket(stream);
}

/* Before the first byte of an answer nobody can say that a command goes on. */
static void fail_broken(struct stream *stream, int err_no, const char *why)
{
	struct err err = ERR_NULL;

	if (stream->is_answered)
		(void)err_set(&err, FAIL_RELAY_BROKEN, err_no, "%s", why);
	else
		(void)err_set(&err, FAIL_NODE_UNREACHABLE, err_no,
			"%s before it answered: whether the call had an effect is not known", why);
	fail(stream, &err);
}

static enum link_result send_data(struct stream *stream, const void *data, size_t size, bool end)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__StreamData message = MESSAGE(Croft__StreamData, croft__stream_data__init);

	message.stream = stream->id;
	message.data.data = (uint8_t *)(uintptr_t)data;
	message.data.len = size;
	message.end = end;
	envelope.body_case = CROFT__ENVELOPE__BODY_STREAM_DATA;
	envelope.stream_data = &message;
	return link_send(stream->streams->server->link, stream->session, &envelope);
}

/* What the link said about a frame; true: it is on its way. */
static bool was_sent(struct stream *stream, enum link_result result)
{
	switch (result) {
	case LINK_SENT:
		return true;
	case LINK_FULL:
		(void)event_del(stream->readable);
		retry_soon(stream);
		return false;
	case LINK_GONE:
		fail_broken(stream, ECONNRESET, "the link to the node is gone");
		return false;
	}
	return false;
}

/* One frame from the socket to the node. false: nothing more to do now. */
static bool pump_frame(struct stream *stream)
{
	struct streams *streams = stream->streams;
	struct credit_out credit = stream->out;
	uint32_t want = credit_out_take(&credit, sizeof(streams->frame));
	ssize_t n;

	if (want == 0) {
		(void)event_del(stream->readable); /* until the node grants more */
		return false;
	}
	n = recv(stream->fd, streams->frame, want, MSG_PEEK | MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < 0) {
		fail_broken(stream, errno, "the relay's socket broke");
		return false;
	}
	if (!was_sent(stream, send_data(stream, streams->frame, (size_t)n, n == 0)))
		return false;
	if (n == 0) {
		stream->local_ended = true;
		(void)event_del(stream->readable);
		return false;
	}
	stream->out.left -= (uint64_t)n;
	streams->server->counters.relay_bytes_out += (uint64_t)n;
	(void)recv(stream->fd, streams->frame, (size_t)n,
		MSG_DONTWAIT); /* what was peeked at: it is there */
	return true;
}

static void pump_out(struct stream *stream)
{
	if (stream->fd < 0 || stream->local_ended || stream->peer_closed)
		return;
	(void)event_add(stream->readable, NULL);
	for (unsigned int i = 0; i < FRAMES_PER_TURN; i++)
		if (!pump_frame(stream))
			return;
}

static void send_grant(struct stream *stream)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__StreamCredit message = MESSAGE(Croft__StreamCredit, croft__stream_credit__init);

	if (stream->grant == 0 || stream->peer_closed || stream->peer_ended)
		return;
	message.stream = stream->id;
	message.bytes = stream->grant;
	envelope.body_case = CROFT__ENVELOPE__BODY_STREAM_CREDIT;
	envelope.stream_credit = &message;
	switch (link_send(stream->streams->server->link, stream->session, &envelope)) {
	case LINK_SENT:
		stream->grant = 0;
		break;
	case LINK_FULL:
		retry_soon(stream);
		break;
	case LINK_GONE:
		fail_broken(stream, ECONNRESET, "the link to the node is gone");
		break;
	}
}

/* To the socket, as much as it takes. */
static void pump_in(struct stream *stream)
{
	while (stream->fd >= 0 && buf_size(&stream->pending)) {
		ssize_t n = send(stream->fd, buf_peek(&stream->pending), buf_size(&stream->pending),
			MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			(void)event_add(stream->writable, NULL);
			break;
		}
		if (n < 0) { /* the caller is through: what still comes is dropped */
			buf_consume(&stream->pending, buf_size(&stream->pending));
			break;
		}
		buf_consume(&stream->pending, (size_t)n);
		stream->grant += credit_in_consume(&stream->in, (uint64_t)n);
	}
	if (stream->fd < 0)
		return;
	if ((stream->peer_ended || stream->peer_closed) && buf_size(&stream->pending) == 0)
		(void)shutdown(stream->fd, SHUT_WR); /* ENOTCONN: it is closed anyway */
	send_grant(stream);
}

static void on_readable(evutil_socket_t fd, short what, void *user)
{
	(void)fd;
	(void)what;
	pump_out(user);
}

static void on_writable(evutil_socket_t fd, short what, void *user)
{
	(void)fd;
	(void)what;
	pump_in(user);
}

static void on_retry(evutil_socket_t fd, short what, void *user)
{
	struct stream *stream = user;

	(void)fd;
	(void)what;
	send_grant(stream);
	pump_out(stream);
}

/* ---- messages ---- */
static void on_data(struct stream *stream, const Croft__StreamData *data)
{
	struct err err = ERR_NULL;

	if (stream->fd < 0 || stream->peer_ended)
		return;
	stream->is_answered = true;
	if (data->data.len > CREDIT_FRAME_MAX || !credit_in_receive(&stream->in, data->data.len)) {
		(void)err_set_at(&err, STAGE_EXEC, FAIL_FRAME_INVALID, EPROTO,
			"the node sent more than it was granted");
		fail(stream, &err);
		return;
	}
	if (data->data.len && buf_append(&stream->pending, data->data.data, data->data.len) < 0) {
		(void)err_set_at(
			&err, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "no memory for a stream");
		fail(stream, &err);
		return;
	}
	stream->streams->server->counters.relay_bytes_in += data->data.len;
	stream->peer_ended = data->end;
	pump_in(stream);
}

static void on_close(struct stream *stream, const Croft__StreamClose *close_message)
{
	struct err err = ERR_NULL;

	stream->peer_closed = true;
	if (close_message->failure) {
		failure_decode(close_message->failure, &err);
		fail(stream, &err);
	} else if (stream->fd >= 0) {
		(void)event_del(stream->readable);
		pump_in(stream);
	}
}

void streams_on_message(struct streams *streams, uint64_t session, const Croft__Envelope *envelope)
{
	uint64_t id = envelope->body_case == CROFT__ENVELOPE__BODY_STREAM_DATA
			      ? envelope->stream_data->stream
		      : envelope->body_case == CROFT__ENVELOPE__BODY_STREAM_CREDIT
			      ? envelope->stream_credit->stream
			      : envelope->stream_close->stream;
	struct stream *stream = NULL;
	struct err err = ERR_NULL;

	HASH_FIND(hh, streams->all, &id, sizeof(id), stream);
	if (!stream || stream->session != session)
		return; /* it is over here, or it is another node's */
	switch (envelope->body_case) {
	case CROFT__ENVELOPE__BODY_STREAM_DATA:
		on_data(stream, envelope->stream_data);
		break;
	case CROFT__ENVELOPE__BODY_STREAM_CREDIT:
		if (!credit_out_grant(&stream->out, envelope->stream_credit->bytes)) {
			(void)err_set_at(&err, STAGE_EXEC, FAIL_FRAME_INVALID, EPROTO,
				"a stream's credit is beyond reason");
			fail(stream, &err);
		}
		pump_out(stream);
		break;
	default:
		on_close(stream, envelope->stream_close);
		break;
	}
}

/* ---- life ---- */
static int check_limits(const struct streams *streams, const char *sandbox, struct err *reterr)
{
	unsigned int n = 0;

	for (const struct stream *s = streams->all; s; s = s->hh.next)
		n += !strcmp(s->sandbox, sandbox);
	if (HASH_COUNT(streams->all) < STREAMS_MAX && n < STREAMS_PER_SANDBOX)
		return 0;
	(void)err_set(reterr, FAIL_TOO_MANY_STREAMS, EAGAIN,
		"too many calls to this sandbox are under way");
	err_add(reterr, "limit", "%d", n < STREAMS_PER_SANDBOX ? STREAMS_MAX : STREAMS_PER_SANDBOX);
	return -EAGAIN;
}

static int tell_open(struct stream *stream, struct err *reterr)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__StreamOpen message = MESSAGE(Croft__StreamOpen, croft__stream_open__init);

	message.stream = stream->id;
	message.sandbox = stream->sandbox;
	message.credit = CREDIT_WINDOW;
	envelope.body_case = CROFT__ENVELOPE__BODY_STREAM_OPEN;
	envelope.stream_open = &message;
	switch (link_send(stream->streams->server->link, stream->session, &envelope)) {
	case LINK_SENT:
		return 0;
	case LINK_FULL:
		return err_set(reterr, FAIL_SCHEDULER_BUSY, EAGAIN, "the link to the node is full");
	case LINK_GONE:
		break;
	}
	return err_set(reterr, FAIL_NODE_UNREACHABLE, ENOTCONN, "the sandbox's node is cut off");
}

static int open_sockets(struct stream *stream, int *ret_fd, struct err *reterr)
{
	struct event_base *base = stream->streams->server->base;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return err_set_at(reterr, STAGE_EXEC, FAIL_SCHEDULER_BUSY, errno,
			"no socket for a relayed call");
	stream->fd = fds[0];
	*ret_fd = fds[1];
	stream->readable = event_new(base, stream->fd, EV_READ | EV_PERSIST, on_readable, stream);
	stream->writable = event_new(base, stream->fd, EV_WRITE, on_writable, stream);
	stream->retry = evtimer_new(base, on_retry, stream);
	if (!stream->readable || !stream->writable || !stream->retry)
		return err_set_at(
			reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "no memory for a stream");
	return 0;
}

static void stream_free(struct stream *stream)
{
	if (stream->hh.tbl)
		HASH_DEL(stream->streams->all, stream);
	close_socket(stream);
	if (stream->retry)
		event_free(stream->retry);
	free(stream);
}

int stream_open(struct streams *streams, const char *node, uint64_t session, const char *sandbox,
	struct stream **ret, int *ret_fd, struct err *reterr)
{
	struct stream *stream;
	int fd = -1, r = check_limits(streams, sandbox, reterr);

	if (r < 0)
		return r;
	stream = calloc(1, sizeof(*stream));
	if (!stream)
		return err_set_at(
			reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "no memory for a stream");
	stream->streams = streams;
	stream->id = ++streams->last_id;
	stream->session = session;
	stream->fd = -1;
	stream->pending = (struct buf)BUF_NULL(CREDIT_WINDOW);
	(void)snprintf(stream->node, sizeof(stream->node), "%s", node);
	(void)snprintf(stream->sandbox, sizeof(stream->sandbox), "%s", sandbox);
	credit_in_init(&stream->in, CREDIT_WINDOW);
	r = open_sockets(stream, &fd, reterr);
	if (r == 0)
		r = tell_open(stream, reterr);
	if (r == 0) {
		HASH_ADD(hh, streams->all, id, sizeof(stream->id), stream);
		if (!stream->hh.tbl)
			r = err_set_at(reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM,
				"no memory for a stream");
	}
	if (r < 0) {
		(void)fd_close(fd);
		stream_free(stream);
		return r;
	}
	streams->server->counters.relay_streams++;
	*ret = stream;
	*ret_fd = fd;
	return 0;
}

struct stream *stream_close(struct stream *stream)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__StreamClose message = MESSAGE(Croft__StreamClose, croft__stream_close__init);

	if (!stream)
		return NULL;
	if (!stream->peer_closed) {
		message.stream = stream->id;
		envelope.body_case = CROFT__ENVELOPE__BODY_STREAM_CLOSE;
		envelope.stream_close = &message;
		/* a close that is lost ends with the node's own session or with the gateway's connection */
		(void)link_send(stream->streams->server->link, stream->session, &envelope);
	}
	stream_free(stream);
	return NULL;
}

const struct err *stream_failure(const struct stream *stream)
{
	return err_is_set(&stream->failure) ? &stream->failure : NULL;
}

/* An empty grant: it does nothing there, and tells here whether the route is gone. */
static void probe(struct stream *stream)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__StreamCredit message = MESSAGE(Croft__StreamCredit, croft__stream_credit__init);

	message.stream = stream->id;
	envelope.body_case = CROFT__ENVELOPE__BODY_STREAM_CREDIT;
	envelope.stream_credit = &message;
	if (link_send(stream->streams->server->link, stream->session, &envelope) == LINK_GONE)
		fail_broken(stream, ECONNRESET, "the link to the node broke");
}

/* A node that was lost, or that came back by another route, does not go on with streams of the old one. One that only
 * fell silent may: what it answered already waits for it, what it did not is given up in bounded time. */
static void on_watch(evutil_socket_t fd, short what, void *user)
{
	struct streams *streams = user;
	const struct fleet *fleet = shell_fleet(streams->server->shell);

	(void)fd;
	(void)what;
	for (struct stream *s = streams->all, *next; s; s = next) {
		struct fleet_node_view view;

		next = s->hh.next;
		if (s->fd < 0)
			continue;
		if (fleet_node_get(fleet, s->node, &view) < 0 || view.session != s->session ||
			view.link == NODE_LOST)
			fail_broken(s, ECONNRESET, "the link to the node broke");
		else if (view.link == NODE_READY)
			s->silent_sec = 0;
		else if (!s->is_answered && ++s->silent_sec >= SILENT_SEC)
			fail_broken(s, ETIMEDOUT, "the node fell silent");
		else
			probe(s);
	}
}

int streams_new(struct streams **ret, struct server *server, struct err *reterr)
{
	struct streams *streams = calloc(1, sizeof(*streams));
	const struct timeval every = { .tv_sec = WATCH_SEC };

	if (!streams)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the relay");
	streams->server = server;
	streams->watch = event_new(server->base, -1, EV_PERSIST, on_watch, streams);
	if (!streams->watch || event_add(streams->watch, &every) < 0) {
		streams_free(streams);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the relay");
	}
	*ret = streams;
	return 0;
}

void streams_free(struct streams *streams)
{
	struct stream *stream, *next;

	if (!streams)
		return;
	HASH_ITER (hh, streams->all, stream, next) {
		stream_free(stream);
	}
	if (streams->watch)
		event_free(streams->watch);
	free(streams);
}

size_t streams_count(const struct streams *streams)
{
	return HASH_COUNT(streams->all);
}
