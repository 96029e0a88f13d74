/* SPDX-License-Identifier: Apache-2.0
 *
 * The runs of one store's schedulers: each start leads with an epoch of its own and leaves a mark. By them a scheduler
 * knows whether the one that a node obeyed is among those that it follows, or somebody else's: then one of the two has a
 * copy of the store (docs/decisions/0023). Pure: the shell reads and writes the marks.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"

#define RUNS_MAX 1024   /* marks that are kept; a node that obeyed an older run is believed */
#define PLACE_SIZE 96

struct run_mark {
	uint64_t epoch;
	char lineage[ID_SIZE];
	char run[ID_SIZE];
	char place[PLACE_SIZE]; /* where the store was: machine and file; "": not known */
	bool was_stopped;       /* in order: what leads after it may be elsewhere */
	bool is_first;          /* it follows no mark before it */
	bool is_copy;           /* a first that follows nobody: the one before was not stopped and was elsewhere */
};

struct runs {
	struct run_mark *list; /* the oldest first */
	size_t n;
};

void runs_deinit(struct runs *runs);
/* As loaded, in the order of epochs. 0 or -ENOMEM. */
int runs_add(struct runs *runs, const struct run_mark *mark);
/* Whom a start follows: says it in `next`, which is then added. `epoch` is the last one that the store knows of. */
void runs_begin(const struct runs *runs, uint64_t epoch, struct run_mark *next);
/* Whether a mark is still needed. */
bool runs_have(const struct runs *runs, uint64_t epoch);
/* Whether a scheduler that was started last may follow `run`, which had `epoch` in the same lineage. */
bool runs_follow(const struct runs *runs, uint64_t epoch, const char *run);
