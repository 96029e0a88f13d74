/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts one process of the sandbox: a session and process group of its own, its user, its working
 * directory, its environment, pipes or a terminal. Whether the program could be executed is known later: a
 * pipe that closes on exec carries step and errno of a failure, so that the loop never waits for a slow
 * file system.
 *
 * The child keeps nothing of croft-guest: no descriptor above 2, no blocked signal, default dispositions,
 * the limits of descriptors that a shell expects, OOM score 0, umask 022.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "guest/user.h"

/* All borrowed. */
struct spawn {
	const char *cmd;          /* a path where it has a slash, else looked up in env's PATH */
	char *const *argv;        /* with argv[0] */
	char *const *env;
	const char *cwd;          /* "" is the user's home, or / where that is missing */
	const struct user *user;
	bool wants_stdin;         /* false: /dev/null */
	bool wants_pty;
	uint16_t cols, rows;
	int group_fd;             /* cgroup.procs of the group to be in; -1: none */
};

/* Our ends, non-blocking, the caller's. */
struct spawned {
	pid_t pid;
	int exec_fd;   /* for spawn_read_exec() */
	int input_fd;  /* -1: none */
	int out_fd[2]; /* stdout and stderr; with a terminal its master and -1 */
};

#define SPAWNED_NULL { .exec_fd = -1, .input_fd = -1, .out_fd = { -1, -1 } }

enum spawn_answer { SPAWN_PENDING, SPAWN_RUNNING, SPAWN_FAILED };

/* 0, or EXEC_FAILED when no process could be made. */
int spawn_start(const struct spawn *spawn, struct spawned *ret, struct err *reterr);
/* Reads the exec pipe. FAILED: COMMAND_NOT_FOUND, COMMAND_NOT_EXECUTABLE, CWD_NOT_FOUND, INVALID_ARGUMENT
 * (arguments too long) or EXEC_FAILED; the child ends by itself. */
MUST_USE enum spawn_answer spawn_read_exec(int exec_fd, struct err *reterr);
