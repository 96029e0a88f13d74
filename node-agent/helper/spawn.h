/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts a VMM that jails itself: as root, so that it can; with a uid that no other VM has, in its control group, with
 * nothing but what it is given.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "helper/options.h"

struct helper_vmm {
	const struct helper_options *options;
	const char *sandbox, *run;
	bool jail_required;
	gid_t gid;
	uid_t agent_uid; /* whose the run directory is */
	uint32_t number; /* of the VM, for its uid */
	int control, exit, log, group; /* the caller's */
};

/* A pidfd (CLOEXEC), or -errno with VMM_START_FAILED or HOST_LIMIT. The child is reaped by who waits for any. */
int helper_vmm_spawn(const struct helper_vmm *vmm, uint64_t *ret_pid, uint64_t *ret_start_ticks, struct err *reterr);
