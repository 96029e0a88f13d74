/* SPDX-License-Identifier: Apache-2.0
 *
 * Who leads with this store: the epoch of this run, and the marks of those before it (fleet/runs.h).
 */
#pragma once

#include "base/err.h"

struct ops;
struct server;

/* Takes an epoch above all of this store, durable before anything is said with it. */
int lead_begin(struct server *server, struct err *reterr);
/* The same run goes on with a higher epoch, as soon as `ops` is durable. */
void lead_raise(struct server *server, uint64_t epoch, struct ops *ops);
/* The last that is written: whoever opens this store next may be anywhere. */
void lead_end(struct server *server);
