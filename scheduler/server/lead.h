/* SPDX-License-Identifier: Apache-2.0
 *
 * Who leads with this store: the epoch of this run, and the marks of those before it (fleet/runs.h).
 */
#pragma once

#include "base/err.h"
#include "fleet/runs.h"

struct ops;
struct server;

/* An epoch that this run will have. */
struct lead_raise {
	struct server *server;
	struct run_mark mark;
	uint64_t sum;   /* of all raises up to this one */
	unsigned int n; /* and their number */
};

/* Takes an epoch above all of this store, durable before anything is said with it. */
int lead_begin(struct server *server, struct err *reterr);
/* The same run goes on with a higher epoch once `ops` is durable and lead_raised() was called, which frees what this gives;
 * until then nothing is said with it. A run does it once for a node, and LEAD_RAISES_MAX times in all: each leaves a mark. `epoch` is above all that are on
 * their way already; by how much in all is bounded. STALE_EPOCH, NO_MEMORY. */
int lead_raise(struct server *server, const char *node, uint64_t epoch, struct ops *ops, struct lead_raise **ret, struct err *reterr);
void lead_raised(const struct err *err, void *user); /* shell_done */
/* The last that is written: whoever opens this store next may be anywhere. */
void lead_end(struct server *server);
