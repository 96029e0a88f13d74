/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of what runs on a libevent loop: turn the loop until something is true, fail after a deadline
 * instead of hanging. No sleeps: the loop waits for events only.
 */
#pragma once

#include <check.h>
#include <event2/event.h>
#include <stdbool.h>

#define LOOP_DEADLINE_S 20

static inline void loop_late(evutil_socket_t fd, short what, void *user)
{
	(void) fd;
	(void) what;
	*(bool *) user = true;
}

/* Turns the loop until *flag. */
static inline void loop_until(struct event_base *base, const bool *flag)
{
	const struct timeval deadline = { LOOP_DEADLINE_S, 0 };
	bool late = false;
	struct event *timer = evtimer_new(base, loop_late, &late);

	ck_assert(timer && evtimer_add(timer, &deadline) == 0);
	while (!*flag && !late)
		ck_assert_int_ge(event_base_loop(base, EVLOOP_ONCE), 0);
	event_free(timer);
	ck_assert_msg(*flag, "it did not happen within %d s", LOOP_DEADLINE_S);
}

/* Turns the loop for a time: for what must not happen. */
static inline void loop_for(struct event_base *base, int ms)
{
	const struct timeval tv = { ms / 1000, ms % 1000 * 1000 };
	bool done = false;
	struct event *timer = evtimer_new(base, loop_late, &done);

	ck_assert(timer && evtimer_add(timer, &tv) == 0);
	while (!done)
		ck_assert_int_ge(event_base_loop(base, EVLOOP_ONCE), 0);
	event_free(timer);
}
