/* SPDX-License-Identifier: Apache-2.0
 *
 * See loop.h. The batch of a turn is kept in the loop, so that forgetting a source can strike out what was
 * reported for it and not yet delivered.
 */
#include "guest/loop.h"

#include <errno.h>
#include <stddef.h>

#include "base/fd.h"

int loop_init(struct loop *loop)
{
	*loop = (struct loop){ .epoll_fd = epoll_create1(EPOLL_CLOEXEC) };
	return loop->epoll_fd < 0 ? -errno : 0;
}

void loop_deinit(struct loop *loop)
{
	loop->epoll_fd = fd_close(loop->epoll_fd);
}

void loop_forget(struct loop *loop, struct source *source)
{
	if (source->fd < 0)
		return;
	/* Fails only for a descriptor that is not in the set, which is what we want. */
	(void) epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
	source->fd = -1;
	source->events = 0;
	for (int i = loop->next_pending; i < loop->n_pending; i++)
		if (loop->pending[i].data.ptr == source)
			loop->pending[i].data.ptr = NULL;
}

int loop_watch(struct loop *loop, struct source *source, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = source };
	int op = source->fd < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;

	if (source->fd == fd && source->events == events)
		return 0;
	if (events == 0) {
		loop_forget(loop, source);
		return 0;
	}
	if (epoll_ctl(loop->epoll_fd, op, fd, &event) < 0)
		return -errno;
	source->fd = fd;
	source->events = events;
	return 0;
}

int loop_turn(struct loop *loop, int timeout_ms)
{
	int n = epoll_wait(loop->epoll_fd, loop->pending, LOOP_BATCH, timeout_ms);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	loop->n_pending = n;
	for (loop->next_pending = 0; loop->next_pending < loop->n_pending;) {
		struct epoll_event *event = &loop->pending[loop->next_pending++];
		struct source *source = event->data.ptr;

		if (source)
			source->fn(source, event->events);
	}
	loop->n_pending = loop->next_pending = 0;
	return 0;
}
