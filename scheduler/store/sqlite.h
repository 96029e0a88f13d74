/* SPDX-License-Identifier: Apache-2.0
 *
 * The SQLite side of the store: one connection, blocking calls, used by one thread at a time. Private to this
 * folder.
 *
 * WAL with synchronous=FULL: a transaction that was committed survives kill -9 and a power cut. Automatic
 * checkpoints are off, because one of them would stall whichever commit met it; sqlite_db_checkpoint() does a
 * PASSIVE one between transactions. SQLite ends a transaction by itself after some failures: a ROLLBACK is
 * only sent where one is still open.
 */
#pragma once

#include "store/store.h"

struct sqlite_db;

struct sqlite_batch {
	const struct store_op *ops;
	size_t n_ops;
	enum store_outcome outcome; /* filled in */
	uint64_t revision;
};

int sqlite_db_open(struct sqlite_db **ret, const struct store_config *config, struct err *reterr);
void sqlite_db_close(struct sqlite_db *db);
DEFINE_CLEANUP(struct sqlite_db, sqlite_db_close)

/* All batches in one transaction. A conflict undoes its own batch only. On failure none was committed. */
int sqlite_db_apply(
	struct sqlite_db *db, struct sqlite_batch *const *batches, size_t n, struct err *reterr);
int sqlite_db_load(
	struct sqlite_db *db, const char *prefix, store_each each, void *user, struct err *reterr);
/* The same from the key `from` on. */
int sqlite_db_scan(struct sqlite_db *db, const char *from, const char *prefix, store_each each, void *user,
	struct err *reterr);
/* *ret_value is the caller's, NULL when there is no such record. */
int sqlite_db_get(struct sqlite_db *db, const char *key, void **ret_value, size_t *ret_size,
	uint64_t *ret_revision, struct err *reterr);
/* The most that the file may take; 0: no limit. */
int sqlite_db_limit(struct sqlite_db *db, uint64_t max_bytes, struct err *reterr);
/* What is left below max_bytes, free pages included. 0 when it cannot be told. */
uint64_t sqlite_db_room(struct sqlite_db *db, uint64_t max_bytes);
/* Moves the whole log into the database and begins it anew. After a failed write or fsync the kernel may have dropped
 * pages of the log that it still shows; what is written again from here on does not build upon them. */
int sqlite_db_settle(struct sqlite_db *db, struct err *reterr);
/* Moves the log into the database when it has grown; never waits for anybody. */
void sqlite_db_checkpoint(struct sqlite_db *db);
