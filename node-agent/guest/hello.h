/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells the host that the sandbox's root is ready, or why it is not.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Sends one GuestHello to the host's port 1 from a process of its own, which tries for a minute: croft-guest
 * serves meanwhile, whether or not somebody listens. `failure` NULL: the root is ready. */
void hello_send(const struct err *failure);
/* Another, because the kernel has killed so many for want of memory. Returns the process that tries for a few seconds and
 * exits with 0 when the host took it; -1: none could be made. */
pid_t hello_tell_oom(uint64_t kills);
