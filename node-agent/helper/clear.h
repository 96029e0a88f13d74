/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes a node's machinery off a host: for when croft is removed, and no agent is left to end what runs.
 */
#pragma once

#include "helper/options.h"

/* One helper a run directory, which is made where it is absent. The descriptor is the caller's; closing it, or the
 * process's end, gives the lock back. HELPER_LOCKED: another has it. */
int helper_lock(const char *run, int *ret, struct err *reterr);

/* Ends every VM of the control groups (SIGKILL) and removes these, then the network (network/host.h) and the helper's
 * run directory. 0 also where nothing is there. The first failure is returned, others are logged, the rest is tried.
 * HELPER_LOCKED, and nothing is done, while a helper runs. */
int helper_clear(const struct helper_options *options, struct err *reterr);
