/* SPDX-License-Identifier: Apache-2.0
 *
 * See watchdog.h.
 */
#include "wire/watchdog.h"

#include <errno.h>
#include <systemd/sd-daemon.h>

#include "base/clock.h"

static void on_time(evutil_socket_t fd, short what, void *user)
{
	(void)fd;
	(void)what;
	(void)user;
	(void)sd_notify(0, "WATCHDOG=1"); /* unheard, it is made up for by the next */
}

int watchdog_new(struct event_base *base, struct event **ret)
{
	uint64_t usec = 0;
	struct timeval half;
	struct event *event;

	*ret = NULL;
	if (sd_watchdog_enabled(0, &usec) <= 0)
		return 0;
	half = (struct timeval){ .tv_sec = (time_t)(usec / 2 / USEC_PER_SEC),
		.tv_usec = (suseconds_t)(usec / 2 % USEC_PER_SEC) };
	event = event_new(base, -1, EV_PERSIST, on_time, NULL);
	if (!event)
		return -ENOMEM;
	if (event_add(event, &half) < 0) {
		event_free(event);
		return -ENOMEM;
	}
	*ret = event;
	return 0;
}
