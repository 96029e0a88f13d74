/* SPDX-License-Identifier: Apache-2.0
 *
 * What this host can give: memory, CPUs, disk, KVM, images held. Looked at once at the start and
 * every few seconds on a worker; the supervisor decides what of it is news.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct agent;
struct doctor;
struct host;

/* Feeds the first SV_EV_CAPACITY before it returns. */
int host_new(struct host **ret, struct agent *agent, struct err *reterr);
/* After the worker's. */
void host_free(struct host *host);

/* HOST_UNFIT with the first error that the doctor found, FAIL_NONE: there is none; `*ret` is what it found before. What has
 * a word of its own that comes and goes quicker is left out. */
void host_unfit(const struct doctor *doctor, struct err *ret);
/* How long until the doctor looks again, which is `period` where it found nothing. */
int64_t host_unfit_pause(const struct err *unfit, int64_t period);
