/* SPDX-License-Identifier: Apache-2.0
 *
 * How the calls into sandboxes ended, for the agent, which reports them as stages. Bounded whatever is called and however
 * often: of each sandbox CALLS_EACH calls in a second are told one by one, with their trace; those beyond are counted, in one
 * row for each sandbox, stage, outcome and code, and where there are too many of those without the sandbox. So each call is
 * told once, exactly, alone or in a number.
 *
 * A batch is told again until the agent has it. What is told is ids, codes and times: nothing that a caller or a guest wrote.
 * Pure: no clock, no I/O.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "wire/records.h"

#define CALLS_EVERY_US INT64_C(1000000) /* between two batches */
#define CALLS_EACH 4u                   /* of a sandbox, one by one, in that time */
#define CALLS_SINGLE 16u                /* of all of them */
#define CALLS_BATCH 48u                 /* records of a batch */
#define CALLS_ROWS 1024u                /* with their sandbox */

#define CALL_LEFT "client-left" /* reason of a skipped one */

struct calls;

int calls_new(struct calls **ret, struct rng rng); /* 0 or -ENOMEM */
struct calls *calls_free(struct calls *calls);     /* NULL, always */
/* One call that ended; what is not told of one is left out: texts of a failure, its details. */
void calls_add(struct calls *calls, const struct stage_record *call);

struct calls_batch {
	uint64_t seq; /* one more than of the batch before; the first is drawn, so that no two gateways have the same */
	const struct stage_record *records; /* until calls_taken() */
	size_t n_records;
	uint64_t lost; /* calls that found no memory, or no number that may be told */
};

/* What the agent has not taken yet where calls_again() was said, or else, CALLS_EVERY_US after the batch before was made and when
 * that was taken, what came since. False: nothing now. */
bool calls_next(struct calls *calls, int64_t now_us, struct calls_batch *ret);
/* The agent has it, for good. */
void calls_taken(struct calls *calls, uint64_t seq);
/* Whom the last batch was told may not have got it. */
void calls_again(struct calls *calls);
