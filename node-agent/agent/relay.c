/* SPDX-License-Identifier: Apache-2.0
 *
 * See relay.h.
 *
 *   OPEN --both ends read, all written--> CLOSING --the close went out--> gone
 *     \--a failure on either side---------^
 */
#include "agent/relay.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/table.h"
#include "wire/credit.h"

#define RETRY_MS 10

struct stream {
	UT_hash_handle hh;
	struct relay *relay;
	uint64_t id;
	struct bufferevent *bev; /* NULL: only the close is left to send */
	struct credit_out out;   /* what we may send to the scheduler */
	struct credit_in in;
	size_t unwritten;   /* bytes from the scheduler that the gateway has not taken */
	uint32_t grant;     /* to be sent */
	bool gateway_ended; /* its last byte is in the buffer */
	bool end_was_sent;
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
};

static void stream_free(struct stream *stream)
{
	HASH_DEL(stream->relay->streams, stream);
	if (stream->bev)
		bufferevent_free(stream->bev);
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
	if (stream->bev)
		bufferevent_free(stream->bev);
	stream->bev = NULL;
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
	return stream->end_was_sent && stream->peer_ended && stream->unwritten == 0;
}

/* Gateway -> scheduler, as far as credit and the link allow. */
static void pump(struct stream *stream)
{
	struct relay *relay = stream->relay;
	struct evbuffer *in = bufferevent_get_input(stream->bev);

	for (;;) {
		struct credit_out before = stream->out;
		size_t have = evbuffer_get_length(in);
		uint32_t size = have ? credit_out_take(&stream->out, have) : 0;
		bool end;

		if (size == 0)
			break;
		end = stream->gateway_ended && size == have;
		if (!relay->sender.data(stream->id, evbuffer_pullup(in, (ev_ssize_t)size), size,
			    end, relay->user)) {
			stream->out = before;
			retry_soon(relay);
			return;
		}
		(void)evbuffer_drain(in, size);
		stream->end_was_sent = end;
	}
	/* an end without bytes needs no credit */
	if (stream->gateway_ended && !stream->end_was_sent && evbuffer_get_length(in) == 0) {
		stream->end_was_sent = relay->sender.data(stream->id, NULL, 0, true, relay->user);
		if (!stream->end_was_sent)
			retry_soon(relay);
	}
}

static void go_on(struct stream *stream)
{
	if (stream->is_closing) {
		stream_close(stream, NULL);
		return;
	}
	grant(stream);
	pump(stream);
	if (is_over(stream))
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

static void on_read(struct bufferevent *bev, void *user)
{
	(void)bev;
	go_on(user);
}

static void half_close(struct stream *stream)
{
	if (stream->peer_ended && stream->unwritten == 0)
		(void)shutdown(bufferevent_getfd(stream->bev),
			SHUT_WR); /* ENOTCONN: it is closed anyway */
}

/* The gateway took bytes: as many may come again. */
static void on_write(struct bufferevent *bev, void *user)
{
	struct stream *stream = user;
	size_t left = evbuffer_get_length(bufferevent_get_output(bev));

	stream->grant += credit_in_consume(&stream->in, stream->unwritten - left);
	stream->unwritten = left;
	half_close(stream);
	go_on(stream);
}

static void on_end(struct bufferevent *bev, short what, void *user)
{
	struct stream *stream = user;

	(void)bev;
	if (what & BEV_EVENT_EOF && what & BEV_EVENT_READING) {
		stream->gateway_ended = true;
		go_on(stream);
		return;
	}
	{
		struct err err = ERR_NULL;

		(void)err_set(&err, FAIL_GATEWAY_UNAVAILABLE, EVUTIL_SOCKET_ERROR(),
			"the gateway broke the stream off");
		stream_close(stream, &err);
	}
}

static struct stream *find(struct relay *relay, uint64_t id)
{
	struct stream *stream;

	HASH_FIND(hh, relay->streams, &id, sizeof(id), stream);
	return stream;
}

static int connect_stream(struct stream *stream, struct err *reterr)
{
	int fd = unix_connect(stream->relay->config.gateway_path, SOCK_STREAM);

	if (fd < 0)
		return err_set(reterr, FAIL_GATEWAY_UNAVAILABLE, -fd,
			"the gateway's socket cannot be reached");
	stream->bev = bufferevent_socket_new(stream->relay->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!stream->bev) {
		(void)fd_close(fd);
		return err_set_at(
			reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "no memory for a stream");
	}
	bufferevent_setcb(stream->bev, on_read, on_write, on_end, stream);
	bufferevent_setwatermark(stream->bev, EV_READ, 0, CREDIT_FRAME_MAX);
	(void)bufferevent_set_max_single_read(stream->bev, CREDIT_FRAME_MAX);
	(void)bufferevent_set_max_single_write(stream->bev, CREDIT_FRAME_MAX);
	if (bufferevent_enable(stream->bev, EV_READ | EV_WRITE) < 0)
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
	else if (size > 0 && bufferevent_write(stream->bev, data, size) < 0)
		(void)err_set_at(
			&err, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "no memory for a stream");
	if (err_is_set(&err)) {
		stream_close(stream, &err);
		return;
	}
	stream->unwritten += size;
	stream->peer_ended = end;
	half_close(stream);
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
