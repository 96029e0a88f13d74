/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's side of the network cases in real guests: a TAP in a network namespace of its own, from which every frame
 * that is sent comes back.
 */
#pragma once

#include <sys/types.h>

/* A TAP as VmmNet wants it, and the process that answers on it until it is killed. -1 where this host allows none; *ret_pid
 * is to be killed and waited for where it is > 0. */
int tap_make(pid_t *ret_pid);
/* Throws away what waits in it: the next driver is to see nothing of the last one's. */
void tap_drain(int fd);
