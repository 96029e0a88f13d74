/* SPDX-License-Identifier: Apache-2.0
 *
 * rollups.db: sums of stages (telemetry/rollup.h), and how far what was told is in them. Blocking calls, used by one thread at a
 * time. A file of its own: what it holds may be lost without a sandbox being lost, so that neither its size nor its retention
 * is the store's (docs/decisions/0025).
 *
 * WAL with synchronous=NORMAL: a transaction survives kill -9; after a power cut the last ones may be missing, never half.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "telemetry/rollup.h"

struct rollup_db;

int rollup_db_open(struct rollup_db **ret, const char *path, struct err *reterr);
void rollup_db_close(struct rollup_db *db);
DEFINE_CLEANUP(struct rollup_db, rollup_db_close)

int rollup_db_begin(struct rollup_db *db, struct err *reterr);
/* r < 0: everything since begin is undone. */
int rollup_db_end(struct rollup_db *db, int r, struct err *reterr);

struct rollup_key {
	enum rollup_level level;
	enum rollup_grain grain;
	int64_t bucket;
	uint32_t kind;
};
/* Adds to the row. */
int rollup_db_add(struct rollup_db *db, const struct rollup_key *key, const struct rate_sums *sums, struct err *reterr);

struct rollup_range {
	enum rollup_level level;
	enum rollup_grain grain;
	int64_t from, to;  /* buckets, [from, to) */
	const uint8_t *takes; /* a bit for each kind */
	const uint32_t *kinds; /* those with a bit, where they are few: then no other row is read; NULL */
	size_t n_kinds;
	uint64_t max_rows;
};
/* Sums what is taken, the latest first; *ret_rows were read, *ret_whole false where more would have been. */
int rollup_db_read(struct rollup_db *db, const struct rollup_range *range, struct rate_sums *sums, uint64_t *ret_rows,
	bool *ret_whole, struct err *reterr);

int rollup_db_put_kind(struct rollup_db *db, uint32_t number, const struct rollup_kind *kind, struct err *reterr);
int rollup_db_kinds(struct rollup_db *db, void (*each)(uint32_t number, const struct rollup_kind *kind, void *user), void *user,
	struct err *reterr);

/* The stage of a sandbox that is in the sums and came last; over_us 0: more may come. */
struct rollup_mark {
	char sandbox[ID_SIZE];
	enum fail_stage stage;
	uint32_t attempt;
	uint64_t generation;
	int64_t began_us, over_us;
};
int rollup_db_put_mark(struct rollup_db *db, const struct rollup_mark *mark, struct err *reterr);
int rollup_db_drop_marks(struct rollup_db *db, int64_t over_before_us, struct err *reterr);
int rollup_db_marks(struct rollup_db *db, void (*each)(const struct rollup_mark *mark, void *user), void *user, struct err *reterr);

/* Numbers by name: "heard/NODE" and what else is to be remembered. */
int rollup_db_put_number(struct rollup_db *db, const char *name, int64_t value, struct err *reterr);
int rollup_db_numbers(struct rollup_db *db, void (*each)(const char *name, int64_t value, void *user), void *user,
	struct err *reterr);

/* Rows of this level before this bucket. */
int rollup_db_expire(struct rollup_db *db, enum rollup_level level, int64_t before, struct err *reterr);
/* Bytes in use, free pages of the file not. */
uint64_t rollup_db_size(struct rollup_db *db);
/* The oldest bucket of a level; -1: none. */
int64_t rollup_db_oldest(struct rollup_db *db, enum rollup_level level);
uint64_t rollup_db_rows(struct rollup_db *db);
