/* SPDX-License-Identifier: Apache-2.0
 *
 * A process is known by its pid, the time at which it started and the boot of the host, never by a
 * bare pid: numbers are used again. Once it is known it is held by a pidfd, and only that is
 * signalled.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HOST_BOOT_ID_SIZE 37

/* /proc/sys/kernel/random/boot_id; empty when it cannot be read. */
void pidref_boot_id(char ret[static HOST_BOOT_ID_SIZE]);

/* Field 22 of /proc/<pid>/stat: clock ticks between boot and start. 0 or -errno (-ESRCH: no such
 * process). A zombie counts as gone. */
int pidref_start_ticks(pid_t pid, uint64_t *ret);

/* A pidfd (CLOEXEC) of that very process; -ESRCH when it is gone or the number is another process's
 * now. */
int pidref_open(pid_t pid, uint64_t start_ticks);

/* A pidfd of our own child, whose number nobody else can have before we wait for it. Also of a
 * zombie. */
int pidref_open_child(pid_t pid);

/* Signals through the pidfd. 0 or -errno. */
int pidref_signal(int pid_fd, int signal);
