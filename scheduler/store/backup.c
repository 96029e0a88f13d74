/* SPDX-License-Identifier: Apache-2.0
 *
 * See backup.h.
 */
#include "store/backup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define BUSY_MS 10000

static void closep(sqlite3 **db)
{
	(void)sqlite3_close(*db);
}

static int fail(sqlite3 *db, int rc, const char *what, struct err *reterr)
{
	int sys = db ? sqlite3_system_errno(db) : 0;
	enum fail_code code = FAIL_IO_FAILED;

	if ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB)
		code = FAIL_STORE_CORRUPT;
	else if ((rc & 0xff) == SQLITE_FULL || sys == ENOSPC || sys == EDQUOT)
		code = FAIL_STORE_FULL;
	return err_set(reterr, code, sys > 0 ? sys : EIO, "%s: %s", what,
		db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
}

static int open_db(const char *path, int flags, sqlite3 **ret, struct err *reterr)
{
	int rc = sqlite3_open_v2(path, ret, flags | SQLITE_OPEN_EXRESCODE, NULL);

	if (rc != SQLITE_OK)
		return fail(*ret, rc, path, reterr);
	(void)sqlite3_busy_timeout(*ret, BUSY_MS);
	return 0;
}

static int exec(sqlite3 *db, const char *sql, struct err *reterr)
{
	int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : fail(db, rc, sql, reterr);
}

static int copy(sqlite3 *from, sqlite3 *to, struct err *reterr)
{
	sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");
	int rc;

	if (!backup)
		return fail(to, sqlite3_errcode(to), "copying the store", reterr);
	/* All pages in one step: SQLite holds a read snapshot for as long, and WAL lets the writer go on. */
	do
		rc = sqlite3_backup_step(backup, -1);
	while (rc == SQLITE_BUSY || rc == SQLITE_LOCKED);
	(void)sqlite3_backup_finish(backup);
	return rc == SQLITE_DONE ? 0 : fail(to, rc, "copying the store", reterr);
}

static int add_files(
	sqlite3 *db, const struct backup_file *files, size_t n, struct err *reterr)
{
	int r = exec(db, "DROP TABLE IF EXISTS backup", reterr);

	if (r == 0)
		r = exec(db, "CREATE TABLE backup (name TEXT PRIMARY KEY NOT NULL, data BLOB NOT NULL)",
			reterr);
	for (size_t i = 0; i < n && r == 0; i++) {
		sqlite3_stmt *stmt = NULL;
		int rc = sqlite3_prepare_v2(
			db, "INSERT INTO backup (name, data) VALUES (?1, ?2)", -1, &stmt, NULL);

		if (rc == SQLITE_OK) {
			(void)sqlite3_bind_text(stmt, 1, files[i].name, -1, SQLITE_STATIC);
			(void)sqlite3_bind_blob64(
				stmt, 2, files[i].data, files[i].size, SQLITE_STATIC);
			rc = sqlite3_step(stmt);
		}
		if (rc != SQLITE_DONE)
			r = fail(db, rc, "writing the backup", reterr);
		(void)sqlite3_finalize(stmt);
	}
	return r;
}

static int write_to(const char *source, const char *path, const struct backup_file *files, size_t n,
	struct err *reterr)
{
	CLEANUP(closep) sqlite3 *from = NULL;
	CLEANUP(closep) sqlite3 *to = NULL;
	int r = open_db(source, SQLITE_OPEN_READWRITE, &from, reterr);

	if (r == 0)
		r = open_db(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &to, reterr);
	if (r == 0 && chmod(path, 0600) < 0)
		r = err_set(reterr, FAIL_IO_FAILED, errno, "%s: its mode cannot be set", path);
	if (r == 0)
		r = copy(from, to, reterr);
	if (r == 0) /* a file of its own: no -wal beside it */
		r = exec(to, "PRAGMA journal_mode=DELETE", reterr);
	if (r == 0)
		r = exec(to, "PRAGMA synchronous=FULL", reterr);
	if (r == 0)
		r = files ? add_files(to, files, n, reterr)
			  : exec(to, "DROP TABLE IF EXISTS backup", reterr);
	return r;
}

/* Written beside, synced, then named: there is a whole file or none. */
static int write_whole(const char *source, const char *path, const struct backup_file *files,
	size_t n, struct err *reterr)
{
	char beside[PATH_MAX];
	int r, fd;

	if (snprintf(beside, sizeof(beside), "%s.new", path) >= (int)sizeof(beside))
		return err_set(reterr, FAIL_IO_FAILED, ENAMETOOLONG, "the path is too long");
	if (access(path, F_OK) == 0)
		return err_set(reterr, FAIL_CONFLICT, EEXIST, "%s exists", path);
	(void)unlink(beside); /* of one that was cut off */
	r = write_to(source, beside, files, n, reterr);
	fd = r == 0 ? open(beside, O_RDONLY | O_CLOEXEC) : -1;
	if (r == 0 && (fd < 0 || fsync(fd) < 0 || rename(beside, path) < 0))
		r = err_set(reterr, FAIL_IO_FAILED, errno, "%s cannot be written", path);
	if (fd >= 0)
		(void)fd_close(fd);
	if (r == 0) {
		char *slash = strrchr(strcpy(beside, path), '/');

		if (slash)
			slash[slash == beside] = '\0';
		r = dir_fsync(slash ? beside : ".");
		return r < 0 ? err_set(reterr, FAIL_IO_FAILED, -r, "%s cannot be made durable", path) : 0;
	}
	(void)unlink(beside);
	return r;
}

int backup_write(const char *dir, const char *path, const struct backup_file *files, size_t n,
	struct err *reterr)
{
	static const struct backup_file none = { .name = NULL };
	char source[PATH_MAX];

	(void)snprintf(source, sizeof(source), "%s/store.db", dir);
	if (access(source, F_OK) < 0)
		return err_set(reterr, FAIL_NOT_INITIALISED, errno, "%s cannot be opened", source);
	return write_whole(source, path, files ? files : &none, n, reterr);
}

int backup_restore(const char *path, const char *dir, struct err *reterr)
{
	char target[PATH_MAX];
	int r = backup_check(NULL, path, reterr);

	if (r < 0)
		return r;
	(void)snprintf(target, sizeof(target), "%s/store.db", dir);
	return write_whole(path, target, NULL, 0, reterr);
}

static int read_blob(
	const char *path, const char *sql, const char *name, void **ret, size_t *ret_size, struct err *reterr)
{
	CLEANUP(closep) sqlite3 *db = NULL;
	sqlite3_stmt *stmt = NULL;
	int rc, r = open_db(path, SQLITE_OPEN_READONLY, &db, reterr);

	*ret = NULL;
	if (r < 0)
		return r;
	rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
	if (rc == SQLITE_OK) {
		(void)sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
		rc = sqlite3_step(stmt);
	}
	if (rc == SQLITE_ROW) {
		size_t size = (size_t)sqlite3_column_bytes(stmt, 0);

		*ret = malloc(size + 1);
		if (*ret)
			memcpy(*ret, sqlite3_column_blob(stmt, 0), size);
		*ret_size = size;
		if (!*ret)
			r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for %s", name);
	} else if (rc != SQLITE_DONE) {
		r = err_set(reterr, FAIL_STORE_CORRUPT, EBADMSG, "%s is no backup: %s", path,
			sqlite3_errmsg(db));
	}
	(void)sqlite3_finalize(stmt);
	return r;
}

int backup_read_file(
	const char *path, const char *name, void **ret, size_t *ret_size, struct err *reterr)
{
	return read_blob(path, "SELECT data FROM backup WHERE name = ?1", name, ret, ret_size, reterr);
}

int backup_read_record(
	const char *path, const char *key, void **ret, size_t *ret_size, struct err *reterr)
{
	return read_blob(path, "SELECT value FROM record WHERE key = ?1", key, ret, ret_size, reterr);
}

/* The first thing that `sql` says, compared with "ok". */
static int expect_ok(sqlite3 *db, const char *sql, const char *path, struct err *reterr)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), r = 0;

	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	if (rc != SQLITE_ROW)
		r = fail(db, rc, path, reterr);
	else if (strcmp((const char *)sqlite3_column_text(stmt, 0), "ok") != 0)
		r = err_set(reterr, FAIL_STORE_CORRUPT, EBADMSG, "%s: %.160s", path,
			(const char *)sqlite3_column_text(stmt, 0));
	(void)sqlite3_finalize(stmt);
	return r;
}

int backup_check(const char *dir, const char *path, struct err *reterr)
{
	CLEANUP(closep) sqlite3 *db = NULL;
	char of_dir[PATH_MAX];
	int r;

	if (dir) {
		(void)snprintf(of_dir, sizeof(of_dir), "%s/store.db", dir);
		path = of_dir;
	}
	if (access(path, F_OK) < 0)
		return err_set(reterr, dir ? FAIL_NOT_INITIALISED : FAIL_IO_FAILED, errno,
			"%s cannot be opened", path);
	/* a store in WAL needs its -shm file, so a plain read-only open is not enough there */
	r = open_db(path, dir ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY, &db, reterr);
	if (r == 0)
		r = expect_ok(db, "PRAGMA integrity_check(1)", path, reterr);
	if (r == 0)
		r = expect_ok(db,
			"SELECT CASE WHEN count(*) = 2 THEN 'ok' ELSE 'it is no store of croft' END "
			"FROM sqlite_master WHERE name IN ('store', 'record')",
			path, reterr);
	return r;
}

int backup_each(const char *dir, const char *prefix, store_each each, void *user, struct err *reterr)
{
	CLEANUP(closep) sqlite3 *db = NULL;
	sqlite3_stmt *stmt = NULL;
	char path[PATH_MAX];
	int r, rc;

	if (snprintf(path, sizeof(path), "%s/store.db", dir) >= (int)sizeof(path))
		return err_set(reterr, FAIL_IO_FAILED, ENAMETOOLONG, "the path is too long");
	r = open_db(path, SQLITE_OPEN_READWRITE, &db, reterr); /* a log that nobody has open is read back by a writer */
	if (r < 0)
		return r;
	rc = sqlite3_prepare_v2(db, "SELECT key, value, revision FROM record WHERE key >= ?1 ORDER BY key", -1, &stmt, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_bind_text(stmt, 1, prefix, -1, SQLITE_STATIC);
	while (rc == SQLITE_OK || rc == SQLITE_ROW) {
		const char *key;

		rc = sqlite3_step(stmt);
		key = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
		if (!key || strncmp(key, prefix, strlen(prefix)) != 0 ||
			!each(key, sqlite3_column_blob(stmt, 1), (size_t)sqlite3_column_bytes(stmt, 1),
				(uint64_t)sqlite3_column_int64(stmt, 2), user))
			break;
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		r = fail(db, rc, "reading the store", reterr);
	(void)sqlite3_finalize(stmt);
	return r;
}
