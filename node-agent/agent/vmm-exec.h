/* SPDX-License-Identifier: Apache-2.0
 *
 * How a VMM is executed, by the agent and by croft-node-helper alike: a session of its own, standard input empty,
 * standard output and error into its log, descriptor 3 the listening control socket, 4 the exit file, nothing else
 * of ours, no environment but what it is to have.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct vmm_exec {
	const char *program, *jail, *run, *sandbox; /* `jail`: croft-vmm's --jail */
	const char *log_level;                      /* CROFT_LOG; NULL: the VMM's own default */
	bool has_user;                              /* started by root, to run as uid and gid */
	uint32_t uid, gid, run_owner;               /* `run_owner`: who may own the run directory, too */
	int control, exit, log;                     /* the caller's */
};

/* A positive errno, as posix_spawn has it. */
int vmm_exec(const struct vmm_exec *exec, pid_t *ret);
