/* SPDX-License-Identifier: Apache-2.0
 *
 * The event loop of the VMM's main thread: level-triggered epoll and a short list of timers (the VMM links
 * little beside libc, so no libevent here). All functions are for that one thread; others wake it
 * through an eventfd that it watches.
 *
 * A callback may remove any source, its own included: the loop forgets what was still to be told about it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/queue.h>

typedef void (*loop_source_fn)(void *data, uint32_t events);
typedef void (*loop_timer_fn)(void *data);

struct loop_source {
	int fd;              /* borrowed; -1: not in the loop */
	uint32_t events;
	loop_source_fn fn;
	void *data;
};

#define LOOP_SOURCE_NULL { .fd = -1 }

struct loop_timer {
	int64_t deadline_usec; /* CLOCK_MONOTONIC */
	loop_timer_fn fn;
	void *data;
	bool armed;
	TAILQ_ENTRY(loop_timer) link;
};

#define LOOP_BATCH 64

struct loop {
	int epoll_fd;
	struct loop *parent, *child; /* see loop_nest() */
	struct loop_source nested;   /* of a child, in its parent */
	bool rests;                  /* of a child */
	bool stop;
	int n_batch, at;     /* the events being dispatched */
	struct epoll_event batch[LOOP_BATCH];
	TAILQ_HEAD(, loop_timer) timers;
};

int loop_init(struct loop *loop);
void loop_deinit(struct loop *loop);

/* Watches `fd` with the source's fn and data. 0 or -errno. */
int loop_add(struct loop *loop, struct loop_source *source, int fd, uint32_t events, loop_source_fn fn, void *data);
/* Changes what is watched; nothing happens when it is the same already. */
void loop_watch(struct loop *loop, struct loop_source *source, uint32_t events);
/* Harmless on a source that is not in the loop. The descriptor stays open. */
void loop_remove(struct loop *loop, struct loop_source *source);

/* Makes `child` a part of `parent`, which has no other: it dispatches the child's sources and timers with its own. The
 * parent must outlive it; loop_deinit() of the child takes it out. 0 or -errno. */
int loop_nest(struct loop *parent, struct loop *child);
/* A child that rests dispatches nothing. What came meanwhile is there when it goes on; timers may then be late. */
void loop_rest(struct loop *child, bool rests);

/* Fires once, `delay_usec` from now; arming again moves it. */
void loop_timer_arm(struct loop *loop, struct loop_timer *timer, int64_t delay_usec, loop_timer_fn fn, void *data);
void loop_timer_disarm(struct loop *loop, struct loop_timer *timer);

/* Waits at most `max_wait_usec` (-1: for ever), dispatches once. 0 or -errno. */
int loop_step(struct loop *loop, int64_t max_wait_usec);
/* Runs until loop->stop. */
int loop_run(struct loop *loop);
