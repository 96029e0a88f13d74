/* SPDX-License-Identifier: Apache-2.0
 *
 * Desired against actual: which sandboxes of this node does the scheduler not want here? Pure; used by the
 * supervisor, which feeds it complete desired sets and acts on the answer.
 *
 * Rules (design.md 5): a partial set says nothing. A set that names no sandbox at all destroys nothing. A sandbox
 * whose id stands there with a higher generation is superseded: fenced at once. One that does not stand there is
 * drift: it must be absent from two complete sets in a row at least 60 s apart, and at most 5 such corrections
 * happen per host and hour; being named once clears it. Snapshots are judged as drift is, with a budget of their own, and only
 * by a set whose sender says that it knows them; it may name none at all.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "wire/messages.h"

#define RECONCILE_DRIFT_USEC (INT64_C(60) * 1000 * 1000)
#define RECONCILE_BUDGET 5
#define RECONCILE_WINDOW_USEC (INT64_C(3600) * 1000 * 1000)

struct reconcile_actual {
	char sandbox[ID_SIZE];
	uint64_t generation;
	bool is_ending; /* on its way out or a tombstone: nothing to decide */
};

enum reconcile_verdict {
	RECONCILE_KEEP,
	RECONCILE_FENCE,    /* superseded: destroy at once */
	RECONCILE_DRIFTING, /* unknown, not long or not often enough; or over the budget */
	RECONCILE_DESTROY,  /* unknown long enough, within the budget (which this counts) */
};

struct reconcile;
int reconcile_new(struct reconcile **ret);
struct reconcile *reconcile_free(struct reconcile *reconcile); /* returns NULL */

/* One part of a desired set. Returns true when it completed a set that answers inventory `number`; then reconcile_judge()
 * may be called once per actual sandbox. Parts out of order or of another inventory throw the collection away. */
bool reconcile_add_part(
	struct reconcile *reconcile, const struct desired_set *part, uint64_t number);
/* After a completed set only; `had` must be true for sandboxes that were in the inventory which the set answers
 * (others are kept: the set cannot know them). */
enum reconcile_verdict reconcile_judge(struct reconcile *reconcile, int64_t now_usec,
	const struct reconcile_actual *actual, bool had);
/* Likewise of a snapshot: never RECONCILE_FENCE. RECONCILE_DESTROY: it is to be dropped. */
enum reconcile_verdict reconcile_judge_snapshot(
	struct reconcile *reconcile, int64_t now_usec, const char *snapshot, bool had);
/* A sandbox, or a snapshot, left the node. */
void reconcile_forget(struct reconcile *reconcile, const char *sandbox);
void reconcile_forget_snapshot(struct reconcile *reconcile, const char *snapshot);
/* Sandboxes and snapshots drifting at present. */
size_t reconcile_drifting(const struct reconcile *reconcile);
