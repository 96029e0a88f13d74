/* SPDX-License-Identifier: Apache-2.0
 *
 * See timer.h. Every timer knows its place in the heap, so that it can be moved and taken out.
 */
#include "fleet/timer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

void fleet_timers_deinit(struct timers *timers)
{
	free(timers->heap);
	*timers = (struct timers){ 0 };
}

#define CHILDREN 4

static void put(struct timers *timers, size_t at, struct timer_slot slot)
{
	timers->heap[at] = slot;
	slot.timer->at = at;
}

static void sift_up(struct timers *timers, size_t at, struct timer_slot slot)
{
	while (at > 0) {
		size_t parent = (at - 1) / CHILDREN;

		if (timers->heap[parent].due_usec <= slot.due_usec)
			break;
		put(timers, at, timers->heap[parent]);
		at = parent;
	}
	put(timers, at, slot);
}

static void sift_down(struct timers *timers, size_t at, struct timer_slot slot)
{
	for (;;) {
		size_t first = CHILDREN * at + 1, end = MIN(first + CHILDREN, timers->n), least = first;

		for (size_t child = first + 1; child < end; child++)
			if (timers->heap[child].due_usec < timers->heap[least].due_usec)
				least = child;
		if (first >= timers->n || timers->heap[least].due_usec >= slot.due_usec)
			break;
		put(timers, at, timers->heap[least]);
		at = least;
	}
	put(timers, at, slot);
}

int fleet_timer_arm(struct timers *timers, struct timer *timer, int64_t due_usec)
{
	fleet_timer_stop(timers, timer);
	if (timers->n == timers->room) {
		size_t room = timers->room ? 2 * timers->room : 64;
		struct timer_slot *grown = reallocarray(timers->heap, room, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		timers->heap = grown;
		timers->room = room;
	}
	timer->due_usec = due_usec;
	sift_up(timers, timers->n++, (struct timer_slot){ due_usec, timer });
	return 0;
}

void fleet_timer_stop(struct timers *timers, struct timer *timer)
{
	struct timer_slot last;
	size_t at = timer->at;

	if (at == TIMER_OFF)
		return;
	timer->at = TIMER_OFF;
	last = timers->heap[--timers->n];
	if (last.timer == timer)
		return;
	if (at > 0 && timers->heap[(at - 1) / CHILDREN].due_usec > last.due_usec)
		sift_up(timers, at, last);
	else
		sift_down(timers, at, last);
}

int64_t fleet_timers_next(const struct timers *timers)
{
	return timers->n ? timers->heap[0].due_usec : INT64_MAX;
}

struct timer *fleet_timers_pop(struct timers *timers, int64_t now_usec)
{
	struct timer *timer;

	if (timers->n == 0 || timers->heap[0].due_usec > now_usec)
		return NULL;
	timer = timers->heap[0].timer;
	fleet_timer_stop(timers, timer);
	return timer;
}
