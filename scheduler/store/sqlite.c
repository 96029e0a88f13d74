/* SPDX-License-Identifier: Apache-2.0
 *
 * See sqlite.h.
 */
#include "store/sqlite.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUSY_STEPS 1000 /* of BUSY_STEP_USEC; nobody else should write: the directory is locked */
#define BUSY_STEP_USEC 1000
#define CHECKPOINT_FRAMES 1000
/* Of a log that was held open by somebody's long read: what is larger is given back when it begins anew. */
#define LOG_LIMIT "8388608"
#define PAGE_SIZE 4096

enum statement {
	SQL_BEGIN,
	SQL_COMMIT,
	SQL_ROLLBACK,
	SQL_SAVEPOINT,
	SQL_UNDO,
	SQL_RELEASE,
	SQL_REVISION,
	SQL_PUT,
	SQL_DELETE,
	SQL_GET,
	SQL_SCAN,
	SQL_NEXT_REVISION,
	SQL_MAX_,
};

static const char *const statements[SQL_MAX_] = {
	[SQL_BEGIN] = "BEGIN IMMEDIATE",
	[SQL_COMMIT] = "COMMIT",
	[SQL_ROLLBACK] = "ROLLBACK",
	[SQL_SAVEPOINT] = "SAVEPOINT batch",
	[SQL_UNDO] = "ROLLBACK TO batch",
	[SQL_RELEASE] = "RELEASE batch",
	[SQL_REVISION] = "SELECT revision FROM record WHERE key = ?1",
	[SQL_PUT] = "INSERT OR REPLACE INTO record (key, revision, value) VALUES (?1, ?2, ?3)",
	[SQL_DELETE] = "DELETE FROM record WHERE key = ?1",
	[SQL_GET] = "SELECT revision, value FROM record WHERE key = ?1",
	[SQL_SCAN] = "SELECT key, revision, value FROM record WHERE key >= ?1 ORDER BY key",
	[SQL_NEXT_REVISION] = "UPDATE store SET revision = revision + 1 RETURNING revision",
};

struct sqlite_db {
	sqlite3 *handle;
	sqlite3_stmt *prepared[SQL_MAX_];
	int wal_frames;
};

static int sqlite_fail(struct sqlite_db *db, int rc, const char *what, struct err *reterr)
{
	int sys = db->handle ? sqlite3_system_errno(db->handle) : 0;
	enum fail_code code = FAIL_STORE_FAILED;

	switch (rc & 0xff) {
	case SQLITE_FULL:
		code = FAIL_STORE_FULL;
		sys = ENOSPC;
		break;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		code = FAIL_STORE_CORRUPT;
		break;
	case SQLITE_NOMEM:
		code = FAIL_NO_MEMORY;
		sys = ENOMEM;
		break;
	default:
		if (sys == ENOSPC || sys == EDQUOT)
			code = FAIL_STORE_FULL;
	}
	return err_set(reterr, code, sys > 0 ? sys : EIO, "%s: %s", what,
		db->handle ? sqlite3_errmsg(db->handle) : sqlite3_errstr(rc));
}

/* Runs a statement that gives no row. */
static int run(struct sqlite_db *db, enum statement which, struct err *reterr)
{
	int rc = sqlite3_step(db->prepared[which]), r = 0;

	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		r = sqlite_fail(db, rc, statements[which], reterr);
	(void)sqlite3_reset(db->prepared[which]); /* repeats the error of step */
	return r;
}

static int on_wal(void *user, sqlite3 *handle, const char *name, int frames)
{
	struct sqlite_db *db = user;

	(void)handle;
	(void)name;
	db->wal_frames = frames;
	return SQLITE_OK;
}

static int exec(struct sqlite_db *db, const char *sql, struct err *reterr)
{
	int rc = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : sqlite_fail(db, rc, sql, reterr);
}

/* The number that `sql` selects; 0 and *ret unchanged where there is no row. */
static int query_number(struct sqlite_db *db, const char *sql, int64_t *ret, struct err *reterr)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(db->handle, sql, -1, &stmt, NULL), r = 0;

	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*ret = sqlite3_column_int64(stmt, 0);
	else if (rc != SQLITE_DONE)
		r = sqlite_fail(db, rc, sql, reterr);
	(void)sqlite3_finalize(stmt);
	return r;
}

/* What leads from schema i + 1 to the next one. A step never runs twice: it is in one transaction with the number.
 * 1 -> 2: records gained quotas, replacement, roles and events. The tables are the same; a program of schema 1 would
 * lose those members where it writes a record again, so it must not open the store.
 * 2 -> 3: snapshots. A program of schema 2 would not name them to the nodes, which would drop them. */
static const char *const upgrades[STORE_SCHEMA - 1] = { "", "" };

static int upgrade(struct sqlite_db *db, int64_t from, struct err *reterr)
{
	char sql[64];
	int r = exec(db, "BEGIN IMMEDIATE", reterr);

	for (int64_t i = from; i < STORE_SCHEMA && r == 0; i++)
		r = exec(db, upgrades[i - 1], reterr);
	(void)snprintf(sql, sizeof(sql), "UPDATE store SET schema = %d", STORE_SCHEMA);
	if (r == 0)
		r = exec(db, sql, reterr);
	if (r == 0)
		r = exec(db, "COMMIT", reterr);
	if (r < 0 && !sqlite3_get_autocommit(db->handle))
		(void)exec(db, "ROLLBACK", NULL); /* the cause is known already */
	return r;
}

static int prepare_schema(struct sqlite_db *db, bool may_create, struct err *reterr)
{
	int64_t exists = 0, schema = 0;
	char sql[160];
	int r;

	r = query_number(
		db, "SELECT count(*) FROM sqlite_master WHERE name = 'store'", &exists, reterr);
	if (r < 0)
		return r;
	if (!exists && !may_create)
		return err_set(reterr, FAIL_NOT_INITIALISED, ENOENT,
			"the store in this state directory is empty");
	if (!exists) {
		(void)snprintf(sql, sizeof(sql),
			"INSERT INTO store (schema, revision) VALUES (%d, 0)", STORE_SCHEMA);
		r = exec(db, "BEGIN IMMEDIATE", reterr);
		if (r == 0)
			r = exec(db,
				"CREATE TABLE store (schema INTEGER NOT NULL, revision INTEGER NOT NULL)",
				reterr);
		if (r == 0)
			r = exec(db,
				"CREATE TABLE record (key TEXT PRIMARY KEY NOT NULL, revision INTEGER NOT NULL, "
				"value BLOB NOT NULL) WITHOUT ROWID",
				reterr);
		if (r == 0)
			r = exec(db, sql, reterr);
		if (r == 0)
			r = exec(db, "COMMIT", reterr);
		if (r < 0)
			return r;
	}
	r = query_number(db, "SELECT schema FROM store", &schema, reterr);
	if (r < 0)
		return r;
	if (schema < 1)
		return err_set(reterr, FAIL_STORE_CORRUPT, EBADMSG, "the store has no schema");
	if (schema > STORE_SCHEMA)
		return err_set(reterr, FAIL_STORE_TOO_NEW, EPROTONOSUPPORT,
			"the store has schema %lld and this program knows %d", (long long)schema,
			STORE_SCHEMA);
	return schema < STORE_SCHEMA ? upgrade(db, schema, reterr) : 0;
}

int sqlite_db_limit(struct sqlite_db *db, uint64_t max_bytes, struct err *reterr)
{
	uint64_t pages = max_bytes / PAGE_SIZE;
	char sql[96];

	if (max_bytes == 0)
		return 0;
	(void)snprintf(sql, sizeof(sql), "PRAGMA max_page_count=%llu",
		(unsigned long long)MAX(pages, 16u));
	return exec(db, sql, reterr);
}

uint64_t sqlite_db_room(struct sqlite_db *db, uint64_t max_bytes)
{
	int64_t pages = 0, unused = 0, most = (int64_t)(max_bytes / PAGE_SIZE);

	if (query_number(db, "PRAGMA page_count", &pages, NULL) < 0 ||
		query_number(db, "PRAGMA freelist_count", &unused, NULL) < 0 || pages - unused >= most)
		return 0;
	return (uint64_t)(most - pages + unused) * PAGE_SIZE;
}

/* SQLite's own wait sleeps for up to 100 ms at a time, in which whoever writes in short turns has the lock again. */
static int on_busy(void *user, int n)
{
	(void)user;
	if (n >= BUSY_STEPS)
		return 0;
	(void)usleep(BUSY_STEP_USEC);
	return 1;
}

static int prepare_connection(
	struct sqlite_db *db, const struct store_config *config, struct err *reterr)
{
	int r;

	(void)sqlite3_busy_handler(db->handle, on_busy, NULL);
	(void)sqlite3_extended_result_codes(db->handle, 1);
	r = exec(db, "PRAGMA journal_mode=WAL", reterr);
	if (r == 0)
		r = exec(db, "PRAGMA synchronous=FULL", reterr);
	if (r == 0)
		r = exec(db, "PRAGMA trusted_schema=OFF", reterr);
	if (r == 0)
		r = exec(db, "PRAGMA wal_autocheckpoint=0", reterr);
	if (r == 0)
		r = exec(db, "PRAGMA journal_size_limit=" LOG_LIMIT, reterr);
	if (r == 0)
		r = sqlite_db_limit(db, config->max_bytes, reterr);
	if (r < 0)
		return r;
	(void)sqlite3_wal_hook(db->handle, on_wal, db);
	return 0;
}

int sqlite_db_open(struct sqlite_db **ret, const struct store_config *config, struct err *reterr)
{
	CLEANUP(sqlite_db_closep) struct sqlite_db *db = calloc(1, sizeof(*db));
	char path[4096];
	int rc, n, r;

	if (!db)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the store");
	n = snprintf(path, sizeof(path), "%s/store.db", config->dir);
	if (n < 0 || (size_t)n >= sizeof(path))
		return err_set(reterr, FAIL_STORE_FAILED, ENAMETOOLONG,
			"the state directory's path is too long");
	if (!config->may_create && access(path, F_OK) < 0)
		return err_set(reterr, errno == ENOENT ? FAIL_NOT_INITIALISED : FAIL_STORE_FAILED,
			errno, "%s cannot be opened", path);
	rc = sqlite3_open_v2(path, &db->handle,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
			(config->may_create ? SQLITE_OPEN_CREATE : 0),
		NULL);
	if (rc != SQLITE_OK)
		return sqlite_fail(db, rc, path, reterr);
	if (chmod(path, 0600) < 0) /* SQLite gives its -wal and -shm the same mode */
		return err_set(
			reterr, FAIL_STORE_FAILED, errno, "%s: its mode cannot be set", path);
	r = prepare_connection(db, config, reterr);
	if (r == 0)
		r = prepare_schema(db, config->may_create, reterr);
	if (r < 0)
		return r;
	for (enum statement i = 0; i < SQL_MAX_; i++) {
		rc = sqlite3_prepare_v3(db->handle, statements[i], -1, SQLITE_PREPARE_PERSISTENT,
			&db->prepared[i], NULL);
		if (rc != SQLITE_OK)
			return sqlite_fail(db, rc, statements[i], reterr);
	}
	*ret = TAKE(db);
	return 0;
}

void sqlite_db_close(struct sqlite_db *db)
{
	if (!db)
		return;
	for (enum statement i = 0; i < SQL_MAX_; i++)
		(void)sqlite3_finalize(db->prepared[i]);
	(void)sqlite3_close(
		db->handle); /* checkpoints what is left; a failure there loses nothing */
	free(db);
}

/* *ret: the record's revision, STORE_ABSENT when there is none. */
static int revision_of(struct sqlite_db *db, const char *key, uint64_t *ret, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_REVISION];
	int rc, r = 0;

	(void)sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*ret = (uint64_t)sqlite3_column_int64(stmt, 0);
	else if (rc == SQLITE_DONE)
		*ret = STORE_ABSENT;
	else
		r = sqlite_fail(db, rc, statements[SQL_REVISION], reterr);
	(void)sqlite3_reset(stmt);
	return r;
}

static int apply_op(
	struct sqlite_db *db, const struct store_op *op, uint64_t revision, struct err *reterr)
{
	enum statement which = op->kind == STORE_PUT ? SQL_PUT : SQL_DELETE;
	sqlite3_stmt *stmt = db->prepared[which];
	int r;

	(void)sqlite3_bind_text(stmt, 1, op->key, -1, SQLITE_STATIC);
	if (op->kind == STORE_PUT) {
		(void)sqlite3_bind_int64(stmt, 2, (sqlite3_int64)revision);
		(void)sqlite3_bind_blob64(
			stmt, 3, op->size ? op->value : "", op->size, SQLITE_STATIC);
	}
	r = run(db, which, reterr);
	(void)sqlite3_clear_bindings(stmt);
	return r;
}

static int next_revision(struct sqlite_db *db, uint64_t *ret, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_NEXT_REVISION];
	int rc = sqlite3_step(stmt), r = 0;

	if (rc == SQLITE_ROW) {
		*ret = (uint64_t)sqlite3_column_int64(stmt, 0);
		rc = sqlite3_step(
			stmt); /* RETURNING: the row is written when the statement is done */
	}
	if (rc != SQLITE_DONE)
		r = sqlite_fail(db, rc, statements[SQL_NEXT_REVISION], reterr);
	(void)sqlite3_reset(stmt);
	return r;
}

static int apply_batch(struct sqlite_db *db, struct sqlite_batch *batch, struct err *reterr)
{
	int r = run(db, SQL_SAVEPOINT, reterr);

	batch->outcome = STORE_COMMITTED;
	if (r == 0)
		r = next_revision(db, &batch->revision, reterr);
	for (size_t i = 0; i < batch->n_ops && r == 0 && batch->outcome == STORE_COMMITTED; i++) {
		uint64_t have = 0;

		if (batch->ops[i].expect == STORE_ANY)
			continue;
		r = revision_of(db, batch->ops[i].key, &have, reterr);
		if (r == 0 && have != batch->ops[i].expect)
			batch->outcome = STORE_CONFLICT;
	}
	for (size_t i = 0; i < batch->n_ops && r == 0 && batch->outcome == STORE_COMMITTED; i++)
		r = apply_op(db, &batch->ops[i], batch->revision, reterr);
	if (r == 0 && batch->outcome == STORE_CONFLICT)
		r = run(db, SQL_UNDO, reterr);
	if (r == 0)
		r = run(db, SQL_RELEASE, reterr);
	return r;
}

int sqlite_db_apply(
	struct sqlite_db *db, struct sqlite_batch *const *batches, size_t n, struct err *reterr)
{
	int r = run(db, SQL_BEGIN, reterr);

	for (size_t i = 0; i < n && r == 0; i++)
		r = apply_batch(db, batches[i], reterr);
	if (r == 0)
		r = run(db, SQL_COMMIT, reterr);
	if (r < 0 && !sqlite3_get_autocommit(db->handle))
		(void)run(db, SQL_ROLLBACK, NULL); /* the cause is known already */
	return r;
}

int sqlite_db_load(
	struct sqlite_db *db, const char *prefix, store_each each, void *user, struct err *reterr)
{
	return sqlite_db_scan(db, prefix, prefix, each, user, reterr);
}

int sqlite_db_scan(struct sqlite_db *db, const char *from, const char *prefix, store_each each, void *user,
	struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_SCAN];
	size_t len = strlen(prefix);
	int rc, r = 0;

	(void)sqlite3_bind_text(stmt, 1, from, -1, SQLITE_STATIC);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *key = (const char *)sqlite3_column_text(stmt, 0);
		const void *value = sqlite3_column_blob(stmt, 2);
		int size = sqlite3_column_bytes(stmt, 2);

		if (!key || strncmp(key, prefix, len))
			break;
		if (!each(key, value ? value : "", (size_t)size,
			    (uint64_t)sqlite3_column_int64(stmt, 1), user))
			break;
	}
	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		r = sqlite_fail(db, rc, "reading the store", reterr);
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
	return r;
}

int sqlite_db_get(struct sqlite_db *db, const char *key, void **ret_value, size_t *ret_size,
	uint64_t *ret_revision, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_GET];
	void *copy = NULL;
	int rc, r = 0;

	(void)sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		const void *value = sqlite3_column_blob(stmt, 1);
		size_t size = (size_t)sqlite3_column_bytes(stmt, 1);

		copy = malloc(size + 1);
		if (copy && size)
			memcpy(copy, value, size);
		*ret_size = size;
		*ret_revision = (uint64_t)sqlite3_column_int64(stmt, 0);
		if (!copy)
			r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a record");
	} else if (rc != SQLITE_DONE) {
		r = sqlite_fail(db, rc, statements[SQL_GET], reterr);
	}
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
	*ret_value = copy;
	return r;
}

int sqlite_db_settle(struct sqlite_db *db, struct err *reterr)
{
	int rc = sqlite3_wal_checkpoint_v2(
		db->handle, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);

	if (rc != SQLITE_OK)
		return sqlite_fail(db, rc, "settling the log", reterr);
	db->wal_frames = 0;
	return 0;
}

void sqlite_db_checkpoint(struct sqlite_db *db)
{
	if (db->wal_frames < CHECKPOINT_FRAMES)
		return;
	/* A failure costs nothing but log size; the next commit meets a broken disk by itself. */
	if (sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL) ==
		SQLITE_OK)
		db->wal_frames = 0;
}
