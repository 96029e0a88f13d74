/* SPDX-License-Identifier: Apache-2.0
 *
 * What this host can give: memory, CPUs, disk, KVM, images held. Looked at once at the start and
 * every few seconds on a worker; the supervisor decides what of it is news.
 */
#pragma once

#include "base/err.h"

struct agent;
struct host;

/* Feeds the first SV_EV_CAPACITY before it returns. */
int host_new(struct host **ret, struct agent *agent, struct err *reterr);
/* After the worker's. */
void host_free(struct host *host);
