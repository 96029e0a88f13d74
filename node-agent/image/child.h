/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the tools that make file systems (mkfs.ext4, tar2sqfs). They are looked up in PATH and then in the
 * system folders that an ordinary user's PATH lacks. Blocking: for a worker thread or a program of its own.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/util.h"

#define CHILD_SAID_MAX 400

struct child {
	pid_t pid;     /* -1: none */
	int stderr_fd; /* a file that collects what it says */
};

#define CHILD_NULL { .pid = -1, .stderr_fd = -1 }

/* Starts argv[0] with `stdin_fd` (-1: /dev/null), its output discarded. `env` NULL: ours.
 * 0 or -errno; -ENOENT: there is no such program. */
int child_start(struct child *child, char *const *argv, char *const *env, int stdin_fd);
/* Waits. *ret_status is its exit status, 128 + signal if one ended it; `said` gets the end of its stderr in one
 * line. 0 or -errno. */
int child_wait(struct child *child, int *ret_status, char said[static CHILD_SAID_MAX]);
/* Kills what still runs; for CLEANUP(). */
void child_deinit(struct child *child);
