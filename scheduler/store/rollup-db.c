/* SPDX-License-Identifier: Apache-2.0
 *
 * See rollup-db.h.
 */
#include "store/rollup-db.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PAGE_SIZE 4096
#define SCHEMA 1

enum statement {
	SQL_GET,
	SQL_PUT,
	SQL_SCAN,
	SQL_PUT_KIND,
	SQL_KINDS,
	SQL_PUT_MARK,
	SQL_DROP_MARKS,
	SQL_MARKS,
	SQL_PUT_NUMBER,
	SQL_NUMBERS,
	SQL_EXPIRE,
	SQL_MAX_
};

static const char *const statements[SQL_MAX_] = {
	[SQL_GET] = "SELECT sums FROM cell WHERE level = ?1 AND grain = ?2 AND bucket = ?3 AND kind = ?4",
	[SQL_PUT] = "INSERT OR REPLACE INTO cell (level, grain, bucket, kind, sums) VALUES (?1, ?2, ?3, ?4, ?5)",
	[SQL_SCAN] = "SELECT kind, sums FROM cell WHERE level = ?1 AND grain = ?2 AND bucket >= ?3 AND bucket < ?4 ORDER BY bucket DESC",
	[SQL_PUT_KIND] = "INSERT OR REPLACE INTO kind VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
	[SQL_KINDS] = "SELECT number, grain, tenant, pool, node, template, version, region, vcpus, memory FROM kind",
	[SQL_PUT_MARK] = "INSERT OR REPLACE INTO mark VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
	[SQL_DROP_MARKS] = "DELETE FROM mark WHERE over_us > 0 AND over_us < ?1",
	[SQL_MARKS] = "SELECT sandbox, stage, attempt, generation, began_us, over_us FROM mark",
	[SQL_PUT_NUMBER] = "INSERT OR REPLACE INTO number VALUES (?1, ?2)",
	[SQL_NUMBERS] = "SELECT name, value FROM number",
	[SQL_EXPIRE] = "DELETE FROM cell WHERE level = ?1 AND grain = ?2 AND bucket < ?3",
};

static const char schema[] =
	"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA trusted_schema=OFF; BEGIN IMMEDIATE;"
	"CREATE TABLE IF NOT EXISTS cell (level INTEGER, grain INTEGER, bucket INTEGER, kind INTEGER, sums BLOB NOT NULL, "
	"PRIMARY KEY (level, grain, bucket, kind)) WITHOUT ROWID;"
	"CREATE TABLE IF NOT EXISTS kind (number INTEGER PRIMARY KEY, grain INTEGER, tenant TEXT, pool TEXT, node TEXT, template TEXT, "
	"version TEXT, region TEXT, vcpus INTEGER, memory INTEGER);"
	"CREATE TABLE IF NOT EXISTS mark (sandbox TEXT PRIMARY KEY, stage TEXT, attempt INTEGER, generation INTEGER, "
	"began_us INTEGER, over_us INTEGER) WITHOUT ROWID;"
	"CREATE TABLE IF NOT EXISTS number (name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID; COMMIT";

struct rollup_db {
	sqlite3 *handle;
	sqlite3_stmt *prepared[SQL_MAX_];
};

static int fail(const struct rollup_db *db, int rc, const char *what, struct err *reterr)
{
	enum fail_code code = (rc & 0xff) == SQLITE_FULL	 ? FAIL_STORE_FULL
			      : (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB ? FAIL_STORE_CORRUPT
			      : (rc & 0xff) == SQLITE_NOMEM	 ? FAIL_NO_MEMORY
								 : FAIL_STORE_FAILED;

	return err_set(reterr, code, EIO, "rollups.db: %s: %s", what, db->handle ? sqlite3_errmsg(db->handle) : sqlite3_errstr(rc));
}

static int exec(struct rollup_db *db, const char *sql, struct err *reterr)
{
	int rc = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : fail(db, rc, sql, reterr);
}

/* Steps once, and the statement is ready for its next use. */
static int run(struct rollup_db *db, enum statement which, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[which];
	int rc = sqlite3_step(stmt), r = rc == SQLITE_DONE ? 0 : fail(db, rc, statements[which], reterr);

	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
	return r;
}

static int64_t query_number(struct rollup_db *db, const char *sql, int64_t otherwise)
{
	sqlite3_stmt *stmt = NULL;
	int64_t value = otherwise;

	if (sqlite3_prepare_v2(db->handle, sql, -1, &stmt, NULL) == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW &&
		sqlite3_column_type(stmt, 0) == SQLITE_INTEGER)
		value = sqlite3_column_int64(stmt, 0);
	(void)sqlite3_finalize(stmt);
	return value;
}

int rollup_db_open(struct rollup_db **ret, const char *path, struct err *reterr)
{
	CLEANUP(rollup_db_closep) struct rollup_db *db = calloc(1, sizeof(*db));
	int rc, r;

	if (!db)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for rollups.db");
	rc = sqlite3_open_v2(path, &db->handle,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
	if (rc != SQLITE_OK)
		return fail(db, rc, path, reterr);
	if (chmod(path, 0600) < 0)
		return err_set(reterr, FAIL_STORE_FAILED, errno, "%s: its mode cannot be set", path);
	if (query_number(db, "PRAGMA user_version", 0) > SCHEMA)
		return err_set(reterr, FAIL_STORE_TOO_NEW, EPROTONOSUPPORT, "%s is of a later release", path);
	r = exec(db, schema, reterr);
	if (r == 0)
		r = exec(db, "PRAGMA user_version = 1", reterr);
	for (enum statement i = 0; i < SQL_MAX_ && r == 0; i++) {
		rc = sqlite3_prepare_v3(db->handle, statements[i], -1, SQLITE_PREPARE_PERSISTENT, &db->prepared[i], NULL);
		if (rc != SQLITE_OK)
			r = fail(db, rc, statements[i], reterr);
	}
	if (r < 0)
		return r;
	*ret = TAKE(db);
	return 0;
}

void rollup_db_close(struct rollup_db *db)
{
	if (!db)
		return;
	for (enum statement i = 0; i < SQL_MAX_; i++)
		(void)sqlite3_finalize(db->prepared[i]);
	(void)sqlite3_close(db->handle);
	free(db);
}

int rollup_db_begin(struct rollup_db *db, struct err *reterr)
{
	return exec(db, "BEGIN IMMEDIATE", reterr);
}

int rollup_db_end(struct rollup_db *db, int r, struct err *reterr)
{
	if (r == 0)
		r = exec(db, "COMMIT", reterr);
	if (r < 0 && !sqlite3_get_autocommit(db->handle))
		(void)exec(db, "ROLLBACK", NULL); /* the cause is known already */
	return r;
}

/* ---- sums ---- */

static void bind_key(sqlite3_stmt *stmt, const struct rollup_key *key)
{
	(void)sqlite3_bind_int(stmt, 1, (int)key->level);
	(void)sqlite3_bind_int(stmt, 2, (int)key->grain);
	(void)sqlite3_bind_int64(stmt, 3, key->bucket);
	(void)sqlite3_bind_int64(stmt, 4, key->kind);
}

/* Adds the row of `key` to `sums`. A row that cannot be read is as good as none: its sums are gone either way. */
static int get(struct rollup_db *db, const struct rollup_key *key, struct rate_sums *sums, bool *ret_found, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_GET];
	int rc, r = 0;

	bind_key(stmt, key);
	rc = sqlite3_step(stmt);
	*ret_found = rc == SQLITE_ROW;
	if (rc == SQLITE_ROW && rollup_unpack(sums, sqlite3_column_blob(stmt, 0), (size_t)sqlite3_column_bytes(stmt, 0)) == -ENOMEM)
		r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for sums");
	else if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		r = fail(db, rc, statements[SQL_GET], reterr);
	(void)sqlite3_reset(stmt);
	return r;
}

int rollup_db_add(struct rollup_db *db, const struct rollup_key *key, const struct rate_sums *sums, struct err *reterr)
{
	struct rate_sums *all = malloc(sizeof(*all));
	sqlite3_stmt *stmt = db->prepared[SQL_PUT];
	uint8_t *data = NULL;
	size_t size = 0;
	bool found;
	int r;

	if (!all)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for sums");
	*all = *sums;
	r = get(db, key, all, &found, reterr);
	if (r == 0 && rollup_pack(all, &data, &size) < 0)
		r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for sums");
	if (r == 0) {
		bind_key(stmt, key);
		(void)sqlite3_bind_blob64(stmt, 5, data, size, SQLITE_STATIC);
		r = run(db, SQL_PUT, reterr);
	}
	free(data);
	free(all);
	return r;
}

static int read_few(struct rollup_db *db, const struct rollup_range *range, struct rate_sums *sums, uint64_t *ret_rows,
	bool *ret_whole, struct err *reterr)
{
	struct rollup_key key = { .level = range->level, .grain = range->grain };
	bool found;
	int r = 0;

	for (key.bucket = range->to - 1; key.bucket >= range->from && r == 0; key.bucket--)
		for (size_t i = 0; i < range->n_kinds && r == 0; i++) {
			if (*ret_rows == range->max_rows) {
				*ret_whole = false;
				return 0;
			}
			key.kind = range->kinds[i];
			r = get(db, &key, sums, &found, reterr);
			*ret_rows += found;
		}
	return r;
}

int rollup_db_read(struct rollup_db *db, const struct rollup_range *range, struct rate_sums *sums, uint64_t *ret_rows,
	bool *ret_whole, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_SCAN];
	int rc = SQLITE_DONE, r = 0;

	*ret_rows = 0;
	*ret_whole = true;
	if (range->kinds)
		return read_few(db, range, sums, ret_rows, ret_whole, reterr);
	(void)sqlite3_bind_int(stmt, 1, (int)range->level);
	(void)sqlite3_bind_int(stmt, 2, (int)range->grain);
	(void)sqlite3_bind_int64(stmt, 3, range->from);
	(void)sqlite3_bind_int64(stmt, 4, range->to);
	while (r == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const uint32_t kind = (uint32_t)sqlite3_column_int64(stmt, 0);

		if (*ret_rows == range->max_rows) {
			*ret_whole = false;
			break;
		}
		++*ret_rows;
		if ((range->takes[kind / 8] >> kind % 8 & 1) &&
			rollup_unpack(sums, sqlite3_column_blob(stmt, 1), (size_t)sqlite3_column_bytes(stmt, 1)) == -ENOMEM)
			r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for sums");
	}
	if (r == 0 && rc != SQLITE_DONE && rc != SQLITE_ROW)
		r = fail(db, rc, statements[SQL_SCAN], reterr);
	(void)sqlite3_reset(stmt);
	return r;
}

/* ---- what they are of, and how far ---- */

static void bind_text(sqlite3_stmt *stmt, int at, const char *text)
{
	(void)sqlite3_bind_text(stmt, at, text, -1, SQLITE_STATIC);
}

int rollup_db_put_kind(struct rollup_db *db, uint32_t number, const struct rollup_kind *kind, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_PUT_KIND];

	(void)sqlite3_bind_int64(stmt, 1, number);
	(void)sqlite3_bind_int(stmt, 2, (int)kind->grain);
	bind_text(stmt, 3, kind->tenant);
	bind_text(stmt, 4, kind->pool);
	bind_text(stmt, 5, kind->node);
	bind_text(stmt, 6, kind->template_name);
	bind_text(stmt, 7, kind->version);
	bind_text(stmt, 8, kind->region);
	(void)sqlite3_bind_int64(stmt, 9, kind->vcpus);
	(void)sqlite3_bind_int64(stmt, 10, (sqlite3_int64)kind->memory_mib);
	return run(db, SQL_PUT_KIND, reterr);
}

static void text_of(sqlite3_stmt *stmt, int at, char *to, size_t size)
{
	const char *text = (const char *)sqlite3_column_text(stmt, at);

	(void)snprintf(to, size, "%s", text ? text : "");
}

/* After the last row. */
static int over(struct rollup_db *db, enum statement which, int rc, struct err *reterr)
{
	int r = rc == SQLITE_DONE ? 0 : fail(db, rc, statements[which], reterr);

	(void)sqlite3_reset(db->prepared[which]);
	return r;
}

int rollup_db_kinds(struct rollup_db *db, void (*each)(uint32_t number, const struct rollup_kind *kind, void *user), void *user,
	struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_KINDS];
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct rollup_kind kind;

		memset(&kind, 0, sizeof(kind));
		kind.grain = (enum rollup_grain)sqlite3_column_int(stmt, 1);
		text_of(stmt, 2, kind.tenant, sizeof(kind.tenant));
		text_of(stmt, 3, kind.pool, sizeof(kind.pool));
		text_of(stmt, 4, kind.node, sizeof(kind.node));
		text_of(stmt, 5, kind.template_name, sizeof(kind.template_name));
		text_of(stmt, 6, kind.version, sizeof(kind.version));
		text_of(stmt, 7, kind.region, sizeof(kind.region));
		kind.vcpus = (uint32_t)sqlite3_column_int64(stmt, 8);
		kind.memory_mib = (uint64_t)sqlite3_column_int64(stmt, 9);
		each((uint32_t)sqlite3_column_int64(stmt, 0), &kind, user);
	}
	return over(db, SQL_KINDS, rc, reterr);
}

int rollup_db_put_mark(struct rollup_db *db, const struct rollup_mark *mark, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_PUT_MARK];

	bind_text(stmt, 1, mark->sandbox);
	bind_text(stmt, 2, stage_name(mark->stage));
	(void)sqlite3_bind_int64(stmt, 3, mark->attempt);
	(void)sqlite3_bind_int64(stmt, 4, (sqlite3_int64)mark->generation);
	(void)sqlite3_bind_int64(stmt, 5, mark->began_us);
	(void)sqlite3_bind_int64(stmt, 6, mark->over_us);
	return run(db, SQL_PUT_MARK, reterr);
}

int rollup_db_drop_marks(struct rollup_db *db, int64_t over_before_us, struct err *reterr)
{
	(void)sqlite3_bind_int64(db->prepared[SQL_DROP_MARKS], 1, over_before_us);
	return run(db, SQL_DROP_MARKS, reterr);
}

int rollup_db_marks(struct rollup_db *db, void (*each)(const struct rollup_mark *mark, void *user), void *user, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_MARKS];
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct rollup_mark mark = { .attempt = (uint32_t)sqlite3_column_int64(stmt, 2),
			.generation = (uint64_t)sqlite3_column_int64(stmt, 3),
			.began_us = sqlite3_column_int64(stmt, 4),
			.over_us = sqlite3_column_int64(stmt, 5) };
		char name[32];

		text_of(stmt, 0, mark.sandbox, sizeof(mark.sandbox));
		text_of(stmt, 1, name, sizeof(name));
		mark.stage = stage_by_name(name);
		each(&mark, user);
	}
	return over(db, SQL_MARKS, rc, reterr);
}

int rollup_db_put_number(struct rollup_db *db, const char *name, int64_t value, struct err *reterr)
{
	bind_text(db->prepared[SQL_PUT_NUMBER], 1, name);
	(void)sqlite3_bind_int64(db->prepared[SQL_PUT_NUMBER], 2, value);
	return run(db, SQL_PUT_NUMBER, reterr);
}

int rollup_db_numbers(struct rollup_db *db, void (*each)(const char *name, int64_t value, void *user), void *user,
	struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_NUMBERS];
	int rc;

	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		char name[64];

		text_of(stmt, 0, name, sizeof(name));
		each(name, sqlite3_column_int64(stmt, 1), user);
	}
	return over(db, SQL_NUMBERS, rc, reterr);
}

/* ---- retention ---- */

int rollup_db_expire(struct rollup_db *db, enum rollup_level level, int64_t before, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_EXPIRE];
	int r = 0;

	for (enum rollup_grain grain = 0; grain < ROLLUP_GRAIN_MAX_ && r == 0; grain++) {
		(void)sqlite3_bind_int(stmt, 1, (int)level);
		(void)sqlite3_bind_int(stmt, 2, (int)grain);
		(void)sqlite3_bind_int64(stmt, 3, before);
		r = run(db, SQL_EXPIRE, reterr);
	}
	return r;
}

uint64_t rollup_db_size(struct rollup_db *db)
{
	return (uint64_t)(query_number(db, "PRAGMA page_count", 0) - query_number(db, "PRAGMA freelist_count", 0)) * PAGE_SIZE;
}

int64_t rollup_db_oldest(struct rollup_db *db, enum rollup_level level)
{
	int64_t oldest = -1;
	char sql[96];

	for (enum rollup_grain grain = 0; grain < ROLLUP_GRAIN_MAX_; grain++) { /* each by the index */
		int64_t first;

		(void)snprintf(sql, sizeof(sql), "SELECT min(bucket) FROM cell WHERE level = %d AND grain = %d", (int)level, (int)grain);
		first = query_number(db, sql, -1);
		if (first >= 0 && (oldest < 0 || first < oldest))
			oldest = first;
	}
	return oldest;
}

uint64_t rollup_db_rows(struct rollup_db *db)
{
	return (uint64_t)query_number(db, "SELECT count(*) FROM cell", 0);
}
