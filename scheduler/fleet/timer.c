/* SPDX-License-Identifier: Apache-2.0
 *
 * See timer.h. Every timer knows its place in the heap, so that it can be moved and taken out.
 */
#include "fleet/timer.h"

#include <errno.h>
#include <stdlib.h>

void fleet_timers_deinit(struct timers *timers)
{
	free(timers->heap);
	*timers = (struct timers){ 0 };
}

static void put(struct timers *timers, size_t at, struct timer *timer)
{
	timers->heap[at] = timer;
	timer->at = at;
}

static void sift_up(struct timers *timers, size_t at, struct timer *timer)
{
	while (at > 0) {
		size_t parent = (at - 1) / 2;

		if (timers->heap[parent]->due_usec <= timer->due_usec)
			break;
		put(timers, at, timers->heap[parent]);
		at = parent;
	}
	put(timers, at, timer);
}

static void sift_down(struct timers *timers, size_t at, struct timer *timer)
{
	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= timers->n)
			break;
		if (child + 1 < timers->n &&
			timers->heap[child + 1]->due_usec < timers->heap[child]->due_usec)
			child++;
		if (timers->heap[child]->due_usec >= timer->due_usec)
			break;
		put(timers, at, timers->heap[child]);
		at = child;
	}
	put(timers, at, timer);
}

int fleet_timer_arm(struct timers *timers, struct timer *timer, int64_t due_usec)
{
	fleet_timer_stop(timers, timer);
	if (timers->n == timers->room) {
		size_t room = timers->room ? 2 * timers->room : 64;
		struct timer **grown = realloc(timers->heap, room * sizeof(struct timer *));

		if (!grown)
			return -ENOMEM;
		timers->heap = grown;
		timers->room = room;
	}
	timer->due_usec = due_usec;
	sift_up(timers, timers->n++, timer);
	return 0;
}

void fleet_timer_stop(struct timers *timers, struct timer *timer)
{
	struct timer *last;
	size_t at = timer->at;

	if (at == TIMER_OFF)
		return;
	timer->at = TIMER_OFF;
	last = timers->heap[--timers->n];
	if (last == timer)
		return;
	if (at > 0 && timers->heap[(at - 1) / 2]->due_usec > last->due_usec)
		sift_up(timers, at, last);
	else
		sift_down(timers, at, last);
}

int64_t fleet_timers_next(const struct timers *timers)
{
	return timers->n ? timers->heap[0]->due_usec : INT64_MAX;
}

struct timer *fleet_timers_pop(struct timers *timers, int64_t now_usec)
{
	struct timer *timer;

	if (timers->n == 0 || timers->heap[0]->due_usec > now_usec)
		return NULL;
	timer = timers->heap[0];
	fleet_timer_stop(timers, timer);
	return timer;
}
