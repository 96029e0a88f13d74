/* SPDX-License-Identifier: Apache-2.0
 *
 * The watchdog of a service manager (sd_watchdog_enabled(3)): a process whose loop hangs is ended and started again.
 */
#pragma once

#include <event2/event.h>

/* An event of `base` that says twice in each period that the loop turns; NULL into `ret` where nobody asked for it.
 * Freed with event_free(). Returns 0, or -ENOMEM. */
int watchdog_new(struct event_base *base, struct event **ret);
