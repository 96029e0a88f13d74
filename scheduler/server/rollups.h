/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of stages on disk (store/rollup-db.h): what is counted goes there every few seconds, in a thread of its own, and long
 * windows are answered from there, over restarts too.
 *
 * Each stage is summed once, whatever ended meanwhile. With the sums, in one transaction, stands what is in them: of each sandbox
 * the stage that came last, of each node the number of the record that came last. What the store has beyond that is summed at the
 * next start, when everything is counted anew.
 */
#pragma once

#include "server/server.h"
#include "store/rollup-db.h"

#define ROLLUPS_BYTES_MAX (UINT64_C(2) * 1024 * 1024 * 1024)
#define ROLLUPS_ROWS_MAX 262144u  /* that one answer reads */
#define ROLLUPS_QUESTIONS_MAX 16u /* at once, those that were forgotten too until their turn comes */
#define ROLLUPS_KINDS_MAX 65536u
#define ROLLUPS_SHARE_MAX 1024u /* kinds of one tenant, and of one pool: further ones are summed as ROLLUP_OTHER */

struct rollups;

int rollups_new(struct rollups **ret, struct server *server, struct err *reterr);
/* Writes what is not written yet; blocks for that. */
void rollups_free(struct rollups *rollups);

void rollups_add(struct rollups *rollups, const struct stage_fact *fact);
/* A failure that was added turned out to be saved by a retry. */
void rollups_save(struct rollups *rollups, const struct stage_fact *fact);

/* The stage of a sandbox that is in the sums and came last, written or not; NULL: none is. */
const struct rollup_mark *rollups_mark_of(const struct rollups *rollups, const char *sandbox);
/* Whether a sandbox that ended then, and has no mark, is in the sums whole. */
bool rollups_has_ended(const struct rollups *rollups, int64_t ended_us);
void rollups_mark(struct rollups *rollups, const struct rollup_mark *mark);
/* The number of a node's record up to which its stages are in the sums. */
uint64_t rollups_heard(const struct rollups *rollups, const char *node);
void rollups_hear(struct rollups *rollups, const char *node, uint64_t seq);

/* Hands what was added to the thread, as of `now_us`; a clock does it every few seconds. */
void rollups_flush(struct rollups *rollups, int64_t now_us);

#define ROLLUPS_POINTS_MAX 120u

/* What starts came to in one part of the time that was asked for. */
struct rollups_point {
	int64_t from_us;
	bool has_product;
	double product, low, high;
	uint64_t starts, failed; /* attempts to be admitted; failures of stages of a start that no retry saved */
};

struct rollups_answer {
	int r; /* 0 or less, and `err` is set */
	struct err err;
	struct rates rates;
	int64_t from_us, step_us;
	uint64_t n_rows; /* that were read */
	char pool[ID_NAME_MAX + 1]; /* of all that the filter takes; "": there are several, or none */
	const struct rollups_point *points; /* in their order, where they were asked for */
	size_t n_points;
	int64_t point_us; /* how long each is */
};
struct rollups_wish {
	const struct facts_filter *filter; /* not kept */
	bool sees_all;
	int64_t now_us;
	size_t n_points; /* 0: none; at most ROLLUPS_POINTS_MAX */
};
/* Everything since from_us that the filter takes, with what was added until now; `done` comes later. 0, or it was not asked:
 * -ENOTSUP: by no grain; SCHEDULER_BUSY: ROLLUPS_QUESTIONS_MAX are asked already. */
struct question;
int rollups_ask(struct rollups *rollups, const struct rollups_wish *wish, void (*done)(const struct rollups_answer *answer, void *user),
	void *user, struct question **ret, struct err *reterr);
/* Whoever asked is gone: `done` does not come, and what was not read is not. Before `done` alone. */
void rollups_forget(struct question *question);

struct rollups_counts {
	uint64_t bytes, rows;
	size_t n_kinds;
	uint64_t n_lost; /* stages that could not be written */
};
/* Another size than ROLLUPS_BYTES_MAX: for tests, while the thread has nothing to do. */
void rollups_limit(struct rollups *rollups, uint64_t bytes);
/* Blocks; for tests and the end. What was flushed is in. */
void rollups_settle(struct rollups *rollups, struct rollups_counts *ret);
