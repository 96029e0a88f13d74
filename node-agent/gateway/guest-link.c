/* SPDX-License-Identifier: Apache-2.0
 *
 * See guest-link.h.
 *
 *   DIALLING --connected--> GREETING --"OK n\n"--> OPEN --end or nonsense--> CLOSED
 *
 * DIALLING lasts longer than a moment only while the VMM's backlog is full: a unix socket then says EAGAIN and
 * nothing is under way, so it is tried again. One deadline covers all up to the guest's first event.
 *
 * Callbacks may free the link, so each entry from the loop holds it (`busy`) and the last one out frees it.
 */
#include "gateway/guest-link.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/frame.h"

#define REDIAL_US (20 * USEC_PER_MSEC)
#define READ_MAX 32768u
#define GREETING_MAX 64u

enum link_state { LINK_DIALLING, LINK_GREETING, LINK_OPEN, LINK_CLOSED };

struct guest_link {
	struct event_base *base;
	const struct guest_link_handler *handler;
	void *user;
	char *path;
	uint32_t frame_max;
	enum link_state state;
	bool paused, busy, doomed;
	int fd;
	struct buf in, greeting, out;
	struct event *read, *write, *redial, *deadline;
};

static void link_destroy(struct guest_link *link)
{
	struct event *events[] = { link->read, link->write, link->redial, link->deadline };

	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (events[i])
			event_free(events[i]);
	fd_close(link->fd);
	buf_deinit(&link->in);
	buf_deinit(&link->greeting);
	buf_deinit(&link->out);
	free(link->path);
	free(link);
}

static void link_enter(struct guest_link *link)
{
	link->busy = true;
}

static void link_leave(struct guest_link *link)
{
	link->busy = false;
	if (link->doomed)
		link_destroy(link);
}

void guest_link_free(struct guest_link *link)
{
	if (!link)
		return;
	link->doomed = true;
	link->state = LINK_CLOSED;
	if (!link->busy)
		link_destroy(link);
}

static bool is_alive(const struct guest_link *link)
{
	return !link->doomed && link->state != LINK_CLOSED;
}

static void close_with(struct guest_link *link, const struct err *err)
{
	if (!is_alive(link))
		return;
	link->state = LINK_CLOSED;
	(void) event_del(link->read);
	(void) event_del(link->write);
	(void) event_del(link->redial);
	(void) event_del(link->deadline);
	link->fd = fd_close(link->fd);
	link->handler->on_closed(err, link->user);
}

static void close_unreachable(struct guest_link *link, int err_no, const char *what)
{
	struct err err = ERR_NULL;

	err_set_at(&err, STAGE_EXEC, FAIL_GUEST_UNREACHABLE, err_no, "%s.", what);
	close_with(link, &err);
}

/* Why the VMM's socket cannot be had is not always the guest's doing. */
static int dial_failure(int err_no, struct err *reterr)
{
	switch (err_no) {
	case ENOENT:
	case ECONNREFUSED:
	case ECONNRESET:
		return err_set_at(reterr, STAGE_EXEC, FAIL_GUEST_UNREACHABLE, err_no,
			"The sandbox's VMM does not accept connections.");
	case EMFILE:
	case ENFILE:
		err_set_at(reterr, STAGE_EXEC, FAIL_HOST_LIMIT, err_no, "No more files can be opened.");
		err_add(reterr, "resource", "file descriptors");
		return -err_no;
	case ENOMEM:
	case ENOBUFS:
		return err_set_at(reterr, STAGE_EXEC, FAIL_NO_MEMORY, err_no, "No memory for a connection to the guest.");
	default:
		return err_set_at(reterr, STAGE_EXEC, FAIL_IO_FAILED, err_no, "The VMM's socket cannot be reached.");
	}
}

static void close_protocol(struct guest_link *link, const char *what)
{
	struct err err = ERR_NULL;

	err_set_at(&err, STAGE_EXEC, FAIL_GUEST_PROTOCOL, EPROTO, "%s.", what);
	close_with(link, &err);
}

static void add_timer(struct event *event, int64_t usec)
{
	struct timeval tv = { .tv_sec = usec / USEC_PER_SEC, .tv_usec = usec % USEC_PER_SEC };

	(void) evtimer_add(event, &tv);
}

/* ---- towards the guest ---- */

static bool write_buf(struct guest_link *link, struct buf *buf)
{
	while (buf_size(buf) > 0) {
		ssize_t n = send(link->fd, buf_peek(buf), buf_size(buf), MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		/* EPIPE is no end: what the guest said before it closed is still to be read. */
		if (n < 0 && errno == EPIPE)
			buf_consume(buf, buf_size(buf));
		if (n < 0)
			return errno == EAGAIN || errno == EPIPE;
		buf_consume(buf, (size_t) n);
	}
	return true;
}

static void link_write(struct guest_link *link)
{
	bool whole = write_buf(link, &link->greeting);

	if (whole && link->state == LINK_OPEN)
		whole = write_buf(link, &link->out);
	if (!whole) {
		close_unreachable(link, errno, "The connection to croft-guest broke while the request was sent");
		return;
	}
	if (buf_size(&link->greeting) > 0 || (link->state == LINK_OPEN && buf_size(&link->out) > 0))
		(void) event_add(link->write, NULL);
}

static void on_write(evutil_socket_t fd, short what, void *user)
{
	struct guest_link *link = user;

	(void) fd;
	(void) what;
	link_enter(link);
	link_write(link);
	link_leave(link);
}

/* ---- from the guest ---- */

/* Takes "OK <n>\n" from the front. False when there is more to come, or the link was closed. */
static bool take_greeting(struct guest_link *link)
{
	const uint8_t *data = buf_peek(&link->in), *end;
	size_t size = buf_size(&link->in);

	end = memchr(data, '\n', size);
	if (!end && size < GREETING_MAX)
		return false;
	if (!end || size < 3 || memcmp(data, "OK ", 3) != 0) {
		close_protocol(link, "The VMM's socket did not greet as a VMM does");
		return false;
	}
	buf_consume(&link->in, (size_t) (end - data) + 1);
	link->state = LINK_OPEN;
	link_write(link);
	return link->state == LINK_OPEN;
}

static void take_frame(struct guest_link *link, const uint8_t *data, size_t size)
{
	struct guest_event event;
	struct err err = ERR_NULL;
	int r = guest_event_decode(data, size, &event, &err);

	frame_consume(&link->in, size);
	if (r < 0) {
		close_with(link, &err);
		return;
	}
	if (event.kind != GUEST_EVENT_UNKNOWN) {
		(void) event_del(link->deadline);
		link->handler->on_event(&event, link->user);
	}
	guest_event_deinit(&event);
}

static void take_frames(struct guest_link *link)
{
	const uint8_t *data;
	size_t size;

	if (buf_size(&link->in) == 0 || (link->state == LINK_GREETING && !take_greeting(link)))
		return;
	while (is_alive(link) && !link->paused && buf_size(&link->in) > 0) {
		switch (frame_peek(&link->in, link->frame_max, &data, &size)) {
		case FRAME_PARTIAL:
			return;
		case FRAME_TOO_LARGE:
			close_protocol(link, "The guest announced a frame over the limit");
			return;
		case FRAME_WHOLE:
			take_frame(link, data, size);
			break;
		}
	}
}

static void link_read(struct guest_link *link)
{
	size_t room = MIN(link->in.max - buf_size(&link->in), (size_t) READ_MAX);
	uint8_t *to;
	ssize_t n;
	int r = buf_reserve(&link->in, room, &to);

	if (r < 0) {
		close_unreachable(link, -r, "No memory for the guest's answer");
		return;
	}
	n = read(link->fd, to, room);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		close_unreachable(link, errno, "The connection to croft-guest broke");
		return;
	}
	if (n == 0) {
		close_unreachable(link, 0, link->state == LINK_GREETING ?
			"Nothing in the guest accepts the connection" : "croft-guest closed the connection");
		return;
	}
	buf_commit(&link->in, (size_t) n);
	take_frames(link);
}

static void on_read(evutil_socket_t fd, short what, void *user)
{
	struct guest_link *link = user;

	(void) fd;
	link_enter(link);
	take_frames(link); /* what came before a pause */
	if (is_alive(link) && !link->paused && (what & EV_READ))
		link_read(link);
	link_leave(link);
}

/* ---- start ---- */

static void on_deadline(evutil_socket_t fd, short what, void *user)
{
	struct guest_link *link = user;

	(void) fd;
	(void) what;
	link_enter(link);
	close_unreachable(link, ETIMEDOUT, "croft-guest did not answer in time");
	link_leave(link);
}

/* 0 (connected, or to be tried again) or -errno. */
static int link_dial(struct guest_link *link)
{
	link->fd = unix_connect(link->path, SOCK_STREAM);
	if (link->fd == -EAGAIN) {
		link->fd = -1;
		add_timer(link->redial, REDIAL_US);
		return 0;
	}
	if (link->fd < 0) {
		int r = link->fd;

		link->fd = -1;
		return r;
	}
	if (event_assign(link->read, link->base, link->fd, EV_READ | EV_PERSIST, on_read, link) < 0 ||
		event_assign(link->write, link->base, link->fd, EV_WRITE, on_write, link) < 0 ||
		event_add(link->read, NULL) < 0 || event_add(link->write, NULL) < 0)
		return -ENOMEM;
	link->state = LINK_GREETING;
	return 0;
}

static void on_redial(evutil_socket_t fd, short what, void *user)
{
	struct guest_link *link = user;
	struct err err = ERR_NULL;
	int r;

	(void) fd;
	(void) what;
	link_enter(link);
	r = link_dial(link);
	if (r < 0) {
		dial_failure(-r, &err);
		close_with(link, &err);
	}
	link_leave(link);
}

static int link_set_up(struct guest_link *link, const struct guest_link_config *config)
{
	char greeting[32];
	int n = snprintf(greeting, sizeof(greeting), "CONNECT %u\n", GUEST_PORT);

	link->path = strdup(config->path);
	link->read = event_new(link->base, -1, 0, on_read, link);
	link->write = event_new(link->base, -1, 0, on_write, link);
	link->redial = evtimer_new(link->base, on_redial, link);
	link->deadline = evtimer_new(link->base, on_deadline, link);
	if (!link->path || !link->read || !link->write || !link->redial || !link->deadline ||
		buf_append(&link->greeting, greeting, (size_t) n) < 0)
		return -ENOMEM;
	if (config->answer_timeout_us > 0)
		add_timer(link->deadline, config->answer_timeout_us);
	return link_dial(link);
}

int guest_link_new(struct guest_link **ret, struct event_base *base, const struct guest_link_config *config,
	const struct guest_link_handler *handler, void *user, struct err *reterr)
{
	struct guest_link *link = calloc(1, sizeof(*link));
	int r;

	if (!link)
		return err_set_at(reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "No memory for a connection to the guest.");
	*link = (struct guest_link){
		.base = base,
		.handler = handler,
		.user = user,
		.frame_max = config->frame_max,
		.fd = -1,
		.in = BUF_NULL(config->frame_max + FRAME_HEAD),
		.greeting = BUF_NULL(GREETING_MAX),
		.out = BUF_NULL(GUEST_FRAME_MAX + FRAME_HEAD),
	};
	r = link_set_up(link, config);
	if (r == 0) {
		*ret = link;
		return 0;
	}
	link_destroy(link);
	return dial_failure(-r, reterr);
}

struct buf *guest_link_out(struct guest_link *link)
{
	return &link->out;
}

void guest_link_flush(struct guest_link *link)
{
	if (link->state == LINK_OPEN)
		(void) event_add(link->write, NULL);
}

void guest_link_pause(struct guest_link *link)
{
	if (link->paused || link->state == LINK_CLOSED)
		return;
	link->paused = true;
	if (link->fd >= 0)
		(void) event_del(link->read);
}

void guest_link_resume(struct guest_link *link)
{
	if (!link->paused || link->state == LINK_CLOSED)
		return;
	link->paused = false;
	if (link->fd < 0)
		return;
	(void) event_add(link->read, NULL);
	/* Frames that are here already make no descriptor readable. */
	event_active(link->read, EV_TIMEOUT, 0);
}
