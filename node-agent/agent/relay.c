/* SPDX-License-Identifier: Apache-2.0
 *
 * See relay.h.
 *
 *   OPEN --both ends read, all written--> CLOSING --the close went out--> gone
 *     \--a failure on either side---------^
 */
#include "agent/relay.h"

#include <errno.h>
#include <event2/event.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/table.h"
#include "wire/credit.h"

#define RETRY_MS 10
#define FRAMES_PER_TURN 4 /* of one stream, before the loop looks at the others */

struct stream {
	UT_hash_handle hh;
	struct relay *relay;
	uint64_t id;
	int fd; /* the gateway's; -1: only the close is left to send */
	struct event *readable, *writable;
	struct credit_out out; /* what we may send to the scheduler */
	struct credit_in in;
	struct buf unwritten; /* from the scheduler; the gateway has not taken it */
	uint32_t grant;       /* to be sent */
	bool end_was_sent;    /* the gateway's */
	bool peer_ended; /* no more from the scheduler */
	bool is_closing;
	struct err failure;
};

struct relay {
	struct event_base *base;
	struct relay_config config;
	struct relay_sender sender;
	void *user;
	struct event *retry;
	struct stream *streams; /* uthash */
	uint8_t frame[CREDIT_FRAME_MAX];
};

static void close_socket(struct stream *stream)
{
	if (stream->readable)
		event_free(stream->readable);
	if (stream->writable)
		event_free(stream->writable);
	stream->readable = stream->writable = NULL;
	stream->fd = fd_close(stream->fd);
	buf_deinit(&stream->unwritten);
}

static void stream_free(struct stream *stream)
{
	HASH_DEL(stream->relay->streams, stream);
	close_socket(stream);
	free(stream);
}

static void retry_soon(struct relay *relay)
{
	struct timeval tv = { .tv_usec = RETRY_MS * 1000 };

	if (!evtimer_pending(relay->retry, NULL))
		(void)evtimer_add(relay->retry, &tv);
}

/* Sends the close, now or as soon as there is room; the stream may be gone afterwards. */
static void stream_close(struct stream *stream, const struct err *failure)
{
	struct relay *relay = stream->relay;

	if (!stream->is_closing && failure)
		stream->failure = *failure;
	stream->is_closing = true;
	close_socket(stream);
	if (relay->sender.close(stream->id, err_is_set(&stream->failure) ? &stream->failure : NULL,
		    relay->user))
		stream_free(stream);
	else
		retry_soon(relay);
}

static void grant(struct stream *stream)
{
	if (stream->grant == 0)
		return;
	if (stream->relay->sender.credit(stream->id, stream->grant, stream->relay->user))
		stream->grant = 0;
	else
		retry_soon(stream->relay);
}

static bool is_over(const struct stream *stream)
{
	return stream->end_was_sent && stream->peer_ended && buf_size(&stream->unwritten) == 0;
}

static void break_off(struct stream *stream, int err_no)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_GATEWAY_UNAVAILABLE, err_no, "the gateway broke the stream off");
	stream_close(stream, &err);
}

enum pump_result { PUMP_MORE, PUMP_ENOUGH, PUMP_CLOSED };

/* One frame, gateway -> scheduler. It is only looked at until the link took it: what is not sent stays in the socket,
 * and as whole frames, for each costs the same to seal whatever its size. */
static enum pump_result pump_frame(struct stream *stream)
{
	struct relay *relay = stream->relay;
	struct credit_out credit = stream->out;
	uint32_t want = credit_out_take(&credit, sizeof(relay->frame));
	/* an end without bytes needs no credit */
	ssize_t n = recv(stream->fd, relay->frame, want ? want : 1, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return PUMP_ENOUGH;
	if (n < 0) {
		break_off(stream, errno);
		return PUMP_CLOSED;
	}
	if (n > 0 && want == 0) {
		(void)event_del(stream->readable); /* until the scheduler grants more */
		return PUMP_ENOUGH;
	}
	if (!relay->sender.data(stream->id, relay->frame, (size_t)n, n == 0, relay->user)) {
		(void)event_del(stream->readable);
		retry_soon(relay);
		return PUMP_ENOUGH;
	}
	if (n == 0) {
		stream->end_was_sent = true;
		(void)event_del(stream->readable);
		return PUMP_ENOUGH;
	}
	stream->out = credit;
	stream->out.left += want - (uint32_t)n;
	(void)recv(stream->fd, relay->frame, (size_t)n, MSG_DONTWAIT); /* what was looked at: it is there */
	return PUMP_MORE;
}

/* false: the stream may be gone. */
static bool pump(struct stream *stream)
{
	enum pump_result result = PUMP_MORE;

	if (stream->end_was_sent)
		return true;
	(void)event_add(stream->readable, NULL);
	for (unsigned int i = 0; i < FRAMES_PER_TURN && result == PUMP_MORE; i++)
		result = pump_frame(stream);
	return result != PUMP_CLOSED;
}

static void go_on(struct stream *stream)
{
	if (stream->is_closing) {
		stream_close(stream, NULL);
		return;
	}
	grant(stream);
	if (pump(stream) && is_over(stream))
		stream_close(stream, NULL);
}

static void on_retry(evutil_socket_t fd, short what, void *user)
{
	struct relay *relay = user;
	struct stream *stream, *next;

	(void)fd, (void)what;
	HASH_ITER (hh, relay->streams, stream, next)
		go_on(stream);
}

static void on_readable(evutil_socket_t fd, short what, void *user)
{
	(void)fd, (void)what;
	go_on(user);
}

/* Scheduler -> gateway, as much as it takes; as many bytes may come again. false: the stream may be gone. */
static bool write_out(struct stream *stream)
{
	while (buf_size(&stream->unwritten)) {
		ssize_t n = send(stream->fd, buf_peek(&stream->unwritten), buf_size(&stream->unwritten),
			MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			(void)event_add(stream->writable, NULL);
			return true;
		}
		if (n < 0) {
			break_off(stream, errno);
			return false;
		}
		buf_consume(&stream->unwritten, (size_t)n);
		stream->grant += credit_in_consume(&stream->in, (uint64_t)n);
	}
	if (stream->peer_ended)
		(void)shutdown(stream->fd, SHUT_WR); /* ENOTCONN: it is closed anyway */
	return true;
}

static void on_writable(evutil_socket_t fd, short what, void *user)
{
	struct stream *stream = user;

	(void)fd, (void)what;
	if (write_out(stream))
		go_on(stream);
}

static struct stream *find(struct relay *relay, uint64_t id)
{
	struct stream *stream;

	HASH_FIND(hh, relay->streams, &id, sizeof(id), stream);
	return stream;
}

static int connect_stream(struct stream *stream, struct err *reterr)
{
	struct event_base *base = stream->relay->base;

	int fd = unix_connect(stream->relay->config.gateway_path, SOCK_STREAM);

	if (fd < 0)
		return err_set(reterr, FAIL_GATEWAY_UNAVAILABLE, -fd,
			"the gateway's socket cannot be reached");
	stream->fd = fd;
	stream->readable = event_new(base, stream->fd, EV_READ | EV_PERSIST, on_readable, stream);
	stream->writable = event_new(base, stream->fd, EV_WRITE, on_writable, stream);
	if (!stream->readable || !stream->writable)
		return err_set_at(
			reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "no memory for a stream");
	return 0;
}

static int check_open(struct relay *relay, struct err *reterr)
{
	if (!relay->config.enabled)
		return err_set(reterr, FAIL_RELAY_DISABLED, 0, "link.relay is off on this node");
	if (HASH_COUNT(relay->streams) > relay->config.max_streams) {
		(void)err_set(reterr, FAIL_TOO_MANY_STREAMS, 0,
			"the node relays as many streams as it may");
		err_add(reterr, "max", "%zu", relay->config.max_streams);
		return -EIO;
	}
	return 0;
}

void relay_open(struct relay *relay, uint64_t id, uint32_t credit)
{
	struct stream *stream = find(relay, id);
	struct err err = ERR_NULL;

	if (stream)
		return; /* a repeated frame */
	stream = calloc(1, sizeof(*stream));
	if (!stream)
		return; /* nothing to say it with either; the opener has a deadline */
	stream->relay = relay;
	stream->id = id;
	stream->fd = -1;
	stream->unwritten = (struct buf)BUF_NULL(CREDIT_WINDOW);
	credit_in_init(&stream->in, CREDIT_WINDOW);
	stream->grant = CREDIT_WINDOW;
	HASH_ADD(hh, relay->streams, id, sizeof(stream->id), stream);
	if (!stream->hh.tbl) {
		free(stream);
		return;
	}
	if (!credit_out_grant(&stream->out, credit))
		(void)err_set(
			&err, FAIL_FRAME_INVALID, EPROTO, "a stream's credit is beyond reason");
	if (err_is_set(&err) || check_open(relay, &err) < 0 || connect_stream(stream, &err) < 0)
		stream_close(stream, &err);
	else
		go_on(stream);
}

void relay_data(struct relay *relay, uint64_t id, const void *data, size_t size, bool end)
{
	struct stream *stream = find(relay, id);
	struct err err = ERR_NULL;

	if (!stream || stream->is_closing)
		return; /* crossed our close */
	if (size > CREDIT_FRAME_MAX || stream->peer_ended || !credit_in_receive(&stream->in, size))
		(void)err_set(&err, FAIL_FRAME_INVALID, EPROTO,
			"more bytes on a stream than were granted");
	else if (size > 0 && buf_append(&stream->unwritten, data, size) < 0)
		(void)err_set_at(
			&err, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "no memory for a stream");
	if (err_is_set(&err)) {
		stream_close(stream, &err);
		return;
	}
	stream->peer_ended = end;
	if (write_out(stream))
		go_on(stream);
}

void relay_credit(struct relay *relay, uint64_t id, uint32_t bytes)
{
	struct stream *stream = find(relay, id);
	struct err err = ERR_NULL;

	if (!stream || stream->is_closing)
		return;
	if (!credit_out_grant(&stream->out, bytes)) {
		(void)err_set(
			&err, FAIL_FRAME_INVALID, EPROTO, "a stream's credit is beyond reason");
		stream_close(stream, &err);
		return;
	}
	go_on(stream);
}

void relay_close(struct relay *relay, uint64_t id)
{
	struct stream *stream = find(relay, id);

	if (stream)
		stream_free(stream);
}

void relay_reset(struct relay *relay)
{
	struct stream *stream, *next;

	HASH_ITER (hh, relay->streams, stream, next)
		stream_free(stream);
}

size_t relay_count(const struct relay *relay)
{
	return HASH_COUNT(relay->streams);
}

int relay_new(struct relay **ret, struct event_base *base, const struct relay_config *config,
	const struct relay_sender *sender, void *user, struct err *reterr)
{
	struct relay *relay = calloc(1, sizeof(*relay));

	if (relay) {
		relay->base = base;
		relay->config = *config;
		relay->sender = *sender;
		relay->user = user;
		relay->retry = evtimer_new(base, on_retry, relay);
	}
	if (!relay || !relay->retry) {
		relay_free(relay);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the relay");
	}
	*ret = relay;
	return 0;
}

void relay_free(struct relay *relay)
{
	if (!relay)
		return;
	relay_reset(relay);
	if (relay->retry)
		event_free(relay->retry);
	free(relay);
}
