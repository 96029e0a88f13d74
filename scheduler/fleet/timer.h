/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlines of many objects: a heap of timers that stand inside their objects. Arming and stopping cost
 * O(log n); a timer is in the heap at most once. Time is whatever the caller measures with.
 *
 * The heap has four children a row and keeps the times itself: what is compared lies together, and an object, which is a miss of
 * the cache in a large fleet, is touched only when its timer moves.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TIMER_OFF SIZE_MAX

struct timer {
	int64_t due_usec;
	size_t at;    /* in the heap; TIMER_OFF: not armed */
	int kind;     /* the caller's */
	void *object; /* the caller's */
};

struct timers {
	struct timer_slot {
		int64_t due_usec;
		struct timer *timer;
	} *heap;
	size_t n, room;
};

#define TIMER_NULL(kind_, object_)                                                                 \
	{                                                                                          \
		.at = TIMER_OFF, .kind = (kind_), .object = (object_)                              \
	}

void fleet_timers_deinit(struct timers *timers);
/* Arms or moves. 0 or -ENOMEM (then it is not armed). */
int fleet_timer_arm(struct timers *timers, struct timer *timer, int64_t due_usec);
void fleet_timer_stop(struct timers *timers, struct timer *timer);
static inline bool fleet_timer_is_armed(const struct timer *timer)
{
	return timer->at != TIMER_OFF;
}
/* The earliest; INT64_MAX: none. */
int64_t fleet_timers_next(const struct timers *timers);
/* Takes out one that is due; NULL: none is. */
struct timer *fleet_timers_pop(struct timers *timers, int64_t now_usec);
