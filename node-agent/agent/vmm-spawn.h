/* SPDX-License-Identifier: Apache-2.0
 *
 * Between vmm.c and vmm-spawn.c: making the VMM's process, and finding one whose number was never
 * written down.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* What a VMM gets (vmm-exec.h): <run>/control.sock, listened on, <run>/exit and <run>/vmm.log. */
struct vmm_files {
	int control, exit, log;
};
#define VMM_FILES_NULL { .control = -1, .exit = -1, .log = -1 }
int vmm_files_open(const char *run_dir, struct vmm_files *ret, struct err *reterr);
void vmm_files_close(struct vmm_files *files);

/* As this user, with vmm_exec(). */
int vmm_spawn_process(const char *program, const char *jail, const char *run_dir,
	const char *sandbox, pid_t *ret, struct err *reterr);

/* The process of this user or group that was started with this run directory; 0 when there is none. */
pid_t vmm_search_process(const char *run_dir, uint64_t *ret_start_ticks);
