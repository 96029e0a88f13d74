/* SPDX-License-Identifier: Apache-2.0
 *
 * Between vmm.c and vmm-exit.c: the VMM's exit record, its wait status and its failures as plain
 * values.
 */
#pragma once

#include <sys/wait.h>

#include "agent/vmm.h"
#include "pb/vmm.pb-c.h"

/* `info` is what waitid() told; NULL: it was not our child. */
void vmm_exit_read(const char *run_dir, const siginfo_t *info, struct vmm_exit *ret);
void vmm_failure_decode(const Croft__VmmFailure *failure, struct err *ret);
