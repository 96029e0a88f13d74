/* SPDX-License-Identifier: Apache-2.0
 *
 * See loop.h.
 */
#include "loop.h"

#include <errno.h>

#include "base/clock.h"
#include "base/fd.h"

int loop_init(struct loop *loop)
{
	*loop = (struct loop) { .nested = LOOP_SOURCE_NULL, .epoll_fd = epoll_create1(EPOLL_CLOEXEC) };
	TAILQ_INIT(&loop->timers);
	return loop->epoll_fd < 0 ? -errno : 0;
}

void loop_deinit(struct loop *loop)
{
	if (loop->parent) {
		loop_remove(loop->parent, &loop->nested);
		loop->parent->child = NULL;
		loop->parent = NULL;
	}
	loop->epoll_fd = fd_close(loop->epoll_fd);
}

int loop_add(struct loop *loop, struct loop_source *source, int fd, uint32_t events, loop_source_fn fn, void *data)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	*source = (struct loop_source) { .fd = -1, .events = events, .fn = fn, .data = data };
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return -errno;
	source->fd = fd;
	return 0;
}

void loop_watch(struct loop *loop, struct loop_source *source, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	if (source->fd < 0 || source->events == events)
		return;
	source->events = events;
	/* cannot fail for a descriptor that is in the set; there is no memory to get */
	(void) epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, source->fd, &event);
}

void loop_remove(struct loop *loop, struct loop_source *source)
{
	if (source->fd < 0)
		return;
	(void) epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
	source->fd = -1;
	for (int i = loop->at; i < loop->n_batch; i++)
		if (loop->batch[i].data.ptr == source)
			loop->batch[i].data.ptr = NULL;
}

void loop_timer_arm(struct loop *loop, struct loop_timer *timer, int64_t delay_usec, loop_timer_fn fn, void *data)
{
	loop_timer_disarm(loop, timer);
	timer->deadline_usec = clock_monotonic_usec() + delay_usec;
	timer->fn = fn;
	timer->data = data;
	timer->armed = true;
	TAILQ_INSERT_TAIL(&loop->timers, timer, link);
}

void loop_timer_disarm(struct loop *loop, struct loop_timer *timer)
{
	if (!timer->armed)
		return;
	TAILQ_REMOVE(&loop->timers, timer, link);
	timer->armed = false;
}

static void on_nested(void *data, uint32_t events)
{
	struct loop *child = data;

	(void) events;
	if (child->rests)
		return; /* since this batch was read */
	(void) loop_step(child, 0); /* fails only without a descriptor */
}

int loop_nest(struct loop *parent, struct loop *child)
{
	int r = loop_add(parent, &child->nested, child->epoll_fd, EPOLLIN, on_nested, child);

	if (r < 0)
		return r;
	child->parent = parent;
	parent->child = child;
	return 0;
}

void loop_rest(struct loop *child, bool rests)
{
	child->rests = rests;
	loop_watch(child->parent, &child->nested, rests ? 0 : EPOLLIN);
}

/* The part of `loop` that is to be served with it. */
static struct loop *active_child(const struct loop *loop)
{
	return loop->child && !loop->child->rests ? loop->child : NULL;
}

static struct loop_timer *first_timer(struct loop *loop)
{
	struct loop_timer *timer, *first = NULL;

	TAILQ_FOREACH(timer, &loop->timers, link)
		if (!first || timer->deadline_usec < first->deadline_usec)
			first = timer;
	return first;
}

/* Milliseconds until there is something to do, rounded up so that a timer is due when we wake. */
static int wait_msec(struct loop *loop, int64_t max_wait_usec)
{
	int64_t wait = max_wait_usec;

	for (struct loop *at = loop; at; at = active_child(at)) {
		struct loop_timer *first = first_timer(at);

		if (first) {
			int64_t left = MAX(first->deadline_usec - clock_monotonic_usec(), 0);

			wait = wait < 0 ? left : MIN(wait, left);
		}
	}
	if (wait < 0)
		return -1;
	return (int) MIN((wait + USEC_PER_MSEC - 1) / USEC_PER_MSEC, INT64_C(3600000));
}

static void fire_timers(struct loop *loop)
{
	int64_t now = clock_monotonic_usec();
	struct loop_timer *timer;

	/* one that arms itself again lies in the future and ends this */
	while (!loop->stop && (timer = first_timer(loop)) && timer->deadline_usec <= now) {
		loop_timer_disarm(loop, timer);
		timer->fn(timer->data);
	}
}

int loop_step(struct loop *loop, int64_t max_wait_usec)
{
	int n = epoll_wait(loop->epoll_fd, loop->batch, LOOP_BATCH, wait_msec(loop, max_wait_usec));

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	loop->n_batch = n;
	for (loop->at = 0; loop->at < n && !loop->stop;) {
		struct epoll_event *event = &loop->batch[loop->at++];
		struct loop_source *source = event->data.ptr;

		if (source)
			source->fn(source->data, event->events);
	}
	loop->at = loop->n_batch = 0;
	fire_timers(loop);
	if (active_child(loop))
		fire_timers(active_child(loop));
	return 0;
}

int loop_run(struct loop *loop)
{
	int r = 0;

	while (!loop->stop && r == 0)
		r = loop_step(loop, -1);
	return r;
}
