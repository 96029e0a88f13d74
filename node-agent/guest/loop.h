/* SPDX-License-Identifier: Apache-2.0
 *
 * The guest's event loop: epoll, level-triggered, one callback per descriptor. It owns no descriptor. A
 * source may be forgotten (and its object freed) from inside any callback, also one of another source.
 *
 * A source without interest is taken out of the set altogether: epoll reports EPOLLHUP even for an empty
 * mask, and a process that closed its pipe while its reader pauses must not spin the loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#define LOOP_BATCH 64

struct source;
typedef void loop_fn(struct source *source, uint32_t events);

struct source {
	int fd;          /* -1: not in the set */
	uint32_t events; /* EPOLLIN | EPOLLOUT of now */
	loop_fn *fn;
};

/* The earlier of two deadlines; 0 is none. */
static inline int64_t deadline_earliest(int64_t a, int64_t b)
{
	if (a == 0 || b == 0)
		return a > b ? a : b;
	return a < b ? a : b;
}

#define SOURCE_NULL(callback) { .fd = -1, .fn = (callback) }

struct loop {
	int epoll_fd;
	int n_pending;
	int next_pending;
	struct epoll_event pending[LOOP_BATCH];
};

int loop_init(struct loop *loop);
void loop_deinit(struct loop *loop);
/* Watches `fd` for `events` through `source` (events 0: takes it out). 0 or -errno. */
int loop_watch(struct loop *loop, struct source *source, int fd, uint32_t events);
void loop_forget(struct loop *loop, struct source *source);
/* Waits at most timeout_ms (-1: for ever) and calls what is ready. 0 or -errno; a signal is 0. */
int loop_turn(struct loop *loop, int timeout_ms);
