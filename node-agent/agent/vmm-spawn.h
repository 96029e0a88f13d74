/* SPDX-License-Identifier: Apache-2.0
 *
 * Between vmm.c and vmm-spawn.c: making the VMM's process, and finding one whose number was never
 * written down.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* posix_spawn: a session of its own, standard input empty, standard output and error into
 * <run>/vmm.log, descriptor 3 the listening control socket, 4 the exit file, nothing else. */
int vmm_spawn_process(const char *program, const char *jail, const char *run_dir,
	const char *sandbox, pid_t *ret, struct err *reterr);

/* The process of this user that was started with this run directory; 0 when there is none. */
pid_t vmm_search_process(const char *run_dir, uint64_t *ret_start_ticks);
