/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's durable state: an ordered map key -> bytes. Each record carries the revision of the batch
 * that wrote it last; revisions rise with each committed batch. A batch is all or nothing, compares before it
 * writes, names each key once and holds at most STORE_OPS_MAX operations, because the replicated store that
 * comes later refuses more.
 *
 * store_commit() copies and returns at once; a thread of its own commits everything that waits as one
 * transaction, and the result of each batch comes back on the loop. Batches are committed in the order they
 * were given. After one failed, memory is ahead of the store: every later batch fails with the same error
 * until store_recover(), so that nothing is written that builds upon what was lost.
 *
 * A full disk is met with a reserve (reserve.h): the batch that did not fit is committed from it, no failure is seen, and
 * the store is `tight` until the reserve is there again. Who writes is to write only what ends something meanwhile. When
 * the reserve is used up too, the batch fails with STORE_FULL.
 *
 * Everything here is called on the loop thread. Nothing here knows what a record means.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct event_base;
struct store;

#define STORE_OPS_MAX 128
#define STORE_KEY_MAX 512                     /* characters */
#define STORE_VALUE_MAX (16u * 1024u * 1024u) /* bytes */
#define STORE_SCHEMA 3                        /* an earlier one is upgraded, a later one refused */

enum store_op_kind { STORE_PUT, STORE_DELETE };

/* What must hold before the operation, else the batch is a conflict: nothing, absence, or a revision. */
#define STORE_ANY UINT64_MAX
#define STORE_ABSENT UINT64_C(0)

struct store_op {
	enum store_op_kind kind;
	const char *key;
	const void *value;
	size_t size;
	uint64_t expect; /* STORE_ANY, STORE_ABSENT or the record's revision */
};

enum store_outcome { STORE_COMMITTED, STORE_CONFLICT, STORE_BROKEN };

/* `revision` is the batch's own where it was committed; `err` is set where the outcome is STORE_BROKEN. */
typedef void (*store_done)(
	enum store_outcome outcome, uint64_t revision, const struct err *err, void *user);

/* One record; false ends the iteration. The pointers are valid during the call. */
typedef bool (*store_each)(
	const char *key, const void *value, size_t size, uint64_t revision, void *user);

struct store_config {
	const char *dir; /* must exist; locked until store_close() */
	uint64_t
		max_bytes; /* of the database file, 0: no limit but the file system's; over it STORE_FULL */
	uint64_t reserve_bytes; /* kept for a full disk, and as much over max_bytes; 0: none */
	bool may_create; /* `init` only: without it an absent store is NOT_INITIALISED */
};

/* STORE_LOCKED: another process has this directory. STORE_CORRUPT: no store. STORE_TOO_NEW: of a later schema; an earlier
 * one is upgraded here, in one transaction.
 * `base` may be NULL: then only store_commit_wait() and store_load() may be used. */
int store_open(struct store **ret, struct event_base *base, const struct store_config *config,
	struct err *reterr);

/* Waits for the batches that were handed over; their callbacks do not run any more. */
void store_close(struct store *store);
DEFINE_CLEANUP(struct store, store_close)

/* 0: taken over, `done` comes later. Else nothing was taken: -EINVAL for a batch that breaks the rules above,
 * SCHEDULER_BUSY when too much waits. */
int store_commit(struct store *store, const struct store_op *ops, size_t n_ops, store_done done,
	void *user, struct err *reterr);

/* Commits and blocks until it is durable; for `init` and other commands without a loop. 0, -EAGAIN for a
 * conflict (reterr is CONFLICT), or another failure. */
int store_commit_wait(
	struct store *store, const struct store_op *ops, size_t n_ops, struct err *reterr);

/* One record, read by the writer thread behind the batches that were handed over before. `value` is NULL when there
 * is none; it is valid during the call. `err` is set when the store could not be read. */
typedef void (*store_got)(
	const void *value, size_t size, uint64_t revision, const struct err *err, void *user);
int store_read(struct store *store, const char *key, store_got got, void *user, struct err *reterr);

/* Records whose keys begin with `prefix`, at most `max` from the key `from` on, in their order; read as above. */
struct store_record {
	char *key;
	void *value;
	size_t size;
};
typedef void (*store_scanned)(const struct store_record *records, size_t n, const struct err *err, void *user);
int store_scan(struct store *store, const char *from, const char *prefix, size_t max, store_scanned scanned, void *user,
	struct err *reterr);

/* Every record whose key begins with `prefix`, in the order of keys, as of now. Blocks; for the start, and
 * for the reload after a failure, when nothing waits. */
int store_load(
	struct store *store, const char *prefix, store_each each, void *user, struct err *reterr);

/* Batches and reads that were handed over and not yet answered. */
size_t store_waiting(const struct store *store);
/* What the write-ahead log took on the disk after the last batch. It grows while another process reads for long. */
uint64_t store_log_bytes(struct store *store);
/* The failure that holds all writes; NULL when there is none. */
const struct err *store_failure(const struct store *store);

/* The reserve is in use. */
bool store_is_tight(struct store *store);
/* Has the writer look whether the reserve can be taken again; to be called now and then while the store is tight. */
void store_tend(struct store *store);

/* Tries to write again: reopens the database and commits a mark. 0: writes are taken again (load first).
 * Only when nothing waits. Blocks for as long as the disk takes. */
int store_recover(struct store *store, struct err *reterr);
