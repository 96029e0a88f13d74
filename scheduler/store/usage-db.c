/* SPDX-License-Identifier: Apache-2.0
 *
 * See usage-db.h.
 */
#include "store/usage-db.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SCHEMA 1
#define COUNTERS 6
#define SQL_SIZE 4096

enum statement { SQL_GET, SQL_PUT, SQL_HOUR, SQL_LOSS, SQL_LOSSES, SQL_PUT_DROPPED, SQL_PROOF, SQL_MARK, SQL_MAX_ };

#define COLUMNS                                                                                        \
	"node, sandbox, generation, tenant, pool, version, began_us, until_us, vcpus, memory_mib, disk_mib, running_us, paused_us, " \
	"disk_us, cpu_us, egress_bytes, uncounted_us, is_over, heard_us"

static const char *const statements[SQL_MAX_] = {
	[SQL_GET] = "SELECT " COLUMNS " FROM account WHERE node = ?1 AND sandbox = ?2 AND generation = ?3",
	[SQL_PUT] = "INSERT OR REPLACE INTO account (" COLUMNS
		    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
	[SQL_HOUR] = "INSERT INTO hour VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT DO UPDATE SET "
		     "running_us = running_us + ?6, paused_us = paused_us + ?7, disk_us = disk_us + ?8, cpu_us = cpu_us + ?9, "
		     "egress_bytes = egress_bytes + ?10, uncounted_us = uncounted_us + ?11, spread_us = spread_us + ?12",
	[SQL_LOSS] = "INSERT INTO loss VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET lost_us = lost_us + ?6",
	[SQL_LOSSES] = "SELECT component, SUM(lost_us) FROM loss WHERE node = ?1 AND sandbox = ?2 AND generation = ?3 GROUP BY component",
	[SQL_PROOF] = "SELECT 1 FROM account WHERE tenant = ?1 AND sandbox = ?2 LIMIT 1",
	[SQL_MARK] = "INSERT OR REPLACE INTO mark VALUES (?1, ?2, ?3, ?4)",
	[SQL_PUT_DROPPED] = "INSERT INTO dropped VALUES (?1, ?2) ON CONFLICT DO UPDATE SET n = max(n, ?2)",
};

static const char schema[] =
	"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA trusted_schema=OFF; BEGIN IMMEDIATE;"
	"CREATE TABLE IF NOT EXISTS account (node TEXT, sandbox TEXT, generation INTEGER, tenant TEXT, pool TEXT, version INTEGER, "
	"began_us INTEGER, until_us INTEGER, vcpus INTEGER, memory_mib INTEGER, disk_mib INTEGER, running_us INTEGER, paused_us INTEGER, "
	"disk_us INTEGER, cpu_us INTEGER, egress_bytes INTEGER, uncounted_us INTEGER, is_over INTEGER, heard_us INTEGER, "
	"PRIMARY KEY (node, sandbox, generation)) WITHOUT ROWID;"
	"CREATE INDEX IF NOT EXISTS account_tenant ON account (tenant, sandbox);"
	"CREATE TABLE IF NOT EXISTS hour (hour INTEGER, tenant TEXT, node TEXT, sandbox TEXT, generation INTEGER, running_us INTEGER, "
	"paused_us INTEGER, disk_us INTEGER, cpu_us INTEGER, egress_bytes INTEGER, uncounted_us INTEGER, spread_us INTEGER, "
	"PRIMARY KEY (hour, tenant, node, sandbox, generation)) WITHOUT ROWID;"
	"CREATE TABLE IF NOT EXISTS loss (hour INTEGER, node TEXT, sandbox TEXT, generation INTEGER, component TEXT, lost_us INTEGER, "
	"PRIMARY KEY (node, sandbox, generation, component, hour)) WITHOUT ROWID;"
	"CREATE TABLE IF NOT EXISTS mark (tenant TEXT, sandbox TEXT, is_accepted INTEGER, marked_us INTEGER, PRIMARY KEY (tenant, sandbox)) "
	"WITHOUT ROWID;"
	"CREATE TABLE IF NOT EXISTS dropped (node TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID; PRAGMA user_version = 1; COMMIT";

struct usage_db {
	sqlite3 *handle;
	sqlite3_stmt *prepared[SQL_MAX_];
};

static int fail(const struct usage_db *db, int rc, const char *what, struct err *reterr)
{
	enum fail_code code = (rc & 0xff) == SQLITE_FULL				      ? FAIL_STORE_FULL
			      : (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB ? FAIL_STORE_CORRUPT
											      : FAIL_STORE_FAILED;

	return err_set(reterr, code, EIO, "usage.db: %.80s: %s", what,
		db->handle ? sqlite3_errmsg(db->handle) : sqlite3_errstr(rc));
}

static int exec(struct usage_db *db, const char *sql, struct err *reterr)
{
	int rc = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : fail(db, rc, sql, reterr);
}

static int64_t number(struct usage_db *db, const char *sql)
{
	sqlite3_stmt *stmt = NULL;
	int64_t value = 0;

	if (sqlite3_prepare_v2(db->handle, sql, -1, &stmt, NULL) == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW)
		value = sqlite3_column_int64(stmt, 0);
	(void)sqlite3_finalize(stmt);
	return value;
}

int usage_db_open(struct usage_db **ret, const char *path, struct err *reterr)
{
	CLEANUP(usage_db_closep) struct usage_db *db = calloc(1, sizeof(*db));
	int rc, r;

	if (!db)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for usage.db");
	rc = sqlite3_open_v2(
		path, &db->handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
	if (rc != SQLITE_OK)
		return fail(db, rc, path, reterr);
	if (chmod(path, 0600) < 0)
		return err_set(reterr, FAIL_STORE_FAILED, errno, "%s: its mode cannot be set", path);
	if (number(db, "PRAGMA user_version") > SCHEMA)
		return err_set(reterr, FAIL_STORE_TOO_NEW, EPROTONOSUPPORT, "%s is of a later release", path);
	r = exec(db, schema, reterr);
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

void usage_db_close(struct usage_db *db)
{
	if (!db)
		return;
	for (enum statement i = 0; i < SQL_MAX_; i++)
		(void)sqlite3_finalize(db->prepared[i]);
	(void)sqlite3_close(db->handle);
	free(db);
}

int usage_db_begin(struct usage_db *db, struct err *reterr)
{
	return exec(db, "BEGIN IMMEDIATE", reterr);
}

int usage_db_end(struct usage_db *db, int r, struct err *reterr)
{
	if (r == 0)
		r = exec(db, "COMMIT", reterr);
	if (r < 0 && !sqlite3_get_autocommit(db->handle))
		(void)exec(db, "ROLLBACK", NULL); /* the cause is known already */
	return r;
}

/* ---- rows ---- */

static void bind_text(sqlite3_stmt *stmt, int at, const char *text)
{
	(void)sqlite3_bind_text(stmt, at, text, -1, SQLITE_STATIC);
}

static void bind_account(sqlite3_stmt *stmt, const char *node, const char *sandbox, uint64_t generation)
{
	bind_text(stmt, 1, node);
	bind_text(stmt, 2, sandbox);
	(void)sqlite3_bind_int64(stmt, 3, (sqlite3_int64)generation);
}

static int run(struct usage_db *db, enum statement which, struct err *reterr)
{
	int rc = sqlite3_step(db->prepared[which]), r = rc == SQLITE_DONE ? 0 : fail(db, rc, statements[which], reterr);

	(void)sqlite3_reset(db->prepared[which]);
	(void)sqlite3_clear_bindings(db->prepared[which]);
	return r;
}

static void text_of(sqlite3_stmt *stmt, int at, char *to, size_t size)
{
	const char *text = (const char *)sqlite3_column_text(stmt, at);

	(void)snprintf(to, size, "%s", text ? text : "");
}

static uint64_t count_of(sqlite3_stmt *stmt, int at)
{
	return (uint64_t)sqlite3_column_int64(stmt, at);
}

static void read_account(sqlite3_stmt *stmt, struct usage_account *ret)
{
	struct usage_record *used = &ret->used;

	memset(ret, 0, sizeof(*ret));
	text_of(stmt, 0, ret->node, sizeof(ret->node));
	text_of(stmt, 1, used->sandbox, sizeof(used->sandbox));
	used->generation = count_of(stmt, 2);
	text_of(stmt, 3, used->tenant, sizeof(used->tenant));
	text_of(stmt, 4, ret->pool, sizeof(ret->pool));
	used->version = count_of(stmt, 5);
	used->began_us = sqlite3_column_int64(stmt, 6);
	used->until_us = sqlite3_column_int64(stmt, 7);
	used->vcpus = (uint32_t)sqlite3_column_int64(stmt, 8);
	used->memory_mib = count_of(stmt, 9);
	used->disk_mib = count_of(stmt, 10);
	used->running_us = count_of(stmt, 11);
	used->paused_us = count_of(stmt, 12);
	used->disk_us = count_of(stmt, 13);
	used->cpu_us = count_of(stmt, 14);
	used->egress_bytes = count_of(stmt, 15);
	used->uncounted_us = count_of(stmt, 16);
	used->is_over = sqlite3_column_int(stmt, 17) != 0;
	ret->heard_us = sqlite3_column_int64(stmt, 18);
}

static int read_losses(struct usage_db *db, struct usage_account *account, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_LOSSES];
	int rc, r;

	bind_account(stmt, account->node, account->used.sandbox, account->used.generation);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		char name[32];

		text_of(stmt, 0, name, sizeof(name));
		account->used.lost_us[component_by_name(name)] += count_of(stmt, 1);
	}
	r = rc == SQLITE_DONE ? 0 : fail(db, rc, statements[SQL_LOSSES], reterr);
	(void)sqlite3_reset(stmt);
	return r;
}

static int put_account(struct usage_db *db, const struct usage_account *account, struct err *reterr)
{
	const struct usage_record *used = &account->used;
	const int64_t numbers[] = { (int64_t)used->version, used->began_us, used->until_us, used->vcpus, (int64_t)used->memory_mib,
		(int64_t)used->disk_mib, (int64_t)used->running_us, (int64_t)used->paused_us, (int64_t)used->disk_us,
		(int64_t)used->cpu_us, (int64_t)used->egress_bytes, (int64_t)used->uncounted_us, used->is_over, account->heard_us };
	sqlite3_stmt *stmt = db->prepared[SQL_PUT];

	bind_account(stmt, account->node, used->sandbox, used->generation);
	bind_text(stmt, 4, used->tenant);
	bind_text(stmt, 5, account->pool);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		(void)sqlite3_bind_int64(stmt, 6 + (int)i, numbers[i]);
	return run(db, SQL_PUT, reterr);
}

/* ---- what a record adds ---- */

static void counters_of(const struct usage_record *used, uint64_t ret[static COUNTERS])
{
	const uint64_t all[COUNTERS] = { used->running_us, used->paused_us, used->disk_us, used->cpu_us, used->egress_bytes,
		used->uncounted_us };

	memcpy(ret, all, sizeof(all));
}

static void set_counters(struct usage_record *used, const uint64_t from[static COUNTERS])
{
	used->running_us = from[0];
	used->paused_us = from[1];
	used->disk_us = from[2];
	used->cpu_us = from[3];
	used->egress_bytes = from[4];
	used->uncounted_us = from[5];
}

/* The part of `whole` that lies before `at` of `length`, so that the parts of a span add up to it. */
static uint64_t part(uint64_t whole, int64_t at, int64_t length)
{
	return length > 0 ? (uint64_t)((long double)whole * (long double)at / (long double)length) : 0;
}

static int add_hour(struct usage_db *db, const struct usage_account *account, int64_t hour, const uint64_t added[static COUNTERS],
	bool is_spread, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_HOUR];

	(void)sqlite3_bind_int64(stmt, 1, hour);
	bind_text(stmt, 2, account->used.tenant);
	bind_text(stmt, 3, account->node);
	bind_text(stmt, 4, account->used.sandbox);
	(void)sqlite3_bind_int64(stmt, 5, (sqlite3_int64)account->used.generation);
	for (int i = 0; i < COUNTERS; i++)
		(void)sqlite3_bind_int64(stmt, 6 + i, (sqlite3_int64)added[i]);
	(void)sqlite3_bind_int64(stmt, 6 + COUNTERS, is_spread ? (sqlite3_int64)added[0] : 0);
	return run(db, SQL_HOUR, reterr);
}

/* Over the hours that [from, to) touches, or every so many of them where they are too many. */
static int add_hours(struct usage_db *db, const struct usage_account *account, int64_t from, int64_t to,
	const uint64_t added[static COUNTERS], struct err *reterr)
{
	const int64_t first = from / USAGE_HOURS_US, last = MAX(to - 1, from) / USAGE_HOURS_US;
	const int64_t step = (last - first) / (account->is_hearsay ? USAGE_ROWS_HEARSAY : USAGE_ROWS_MAX) + 1;
	uint64_t before[COUNTERS] = { 0 };
	int r = 0;

	for (int64_t hour = first; hour <= last && r == 0; hour += step) {
		const bool is_last = hour + step > last;
		const int64_t end = is_last ? to : (hour + step) * USAGE_HOURS_US;
		uint64_t here[COUNTERS];

		for (int i = 0; i < COUNTERS; i++) {
			const uint64_t until = is_last ? added[i] : part(added[i], end - from, to - from);

			here[i] = until - before[i];
			before[i] = until;
		}
		r = add_hour(db, account, hour, here, last > first, reterr);
	}
	return r;
}

static int add_losses(struct usage_db *db, const struct usage_account *account, const struct usage_record *before, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_LOSS];
	int r = 0;

	for (unsigned int i = 0; i < COMPONENT_MAX_ && r == 0; i++) {
		if (account->used.lost_us[i] <= before->lost_us[i])
			continue;
		(void)sqlite3_bind_int64(stmt, 1, MAX(account->used.until_us - 1, INT64_C(0)) / USAGE_HOURS_US);
		bind_text(stmt, 2, account->node);
		bind_text(stmt, 3, account->used.sandbox);
		(void)sqlite3_bind_int64(stmt, 4, (sqlite3_int64)account->used.generation);
		bind_text(stmt, 5, component_name((enum fail_component)i));
		(void)sqlite3_bind_int64(stmt, 6, (sqlite3_int64)(account->used.lost_us[i] - before->lost_us[i]));
		r = run(db, SQL_LOSS, reterr);
	}
	return r;
}

static int find(struct usage_db *db, const struct usage_account *account, struct usage_account *ret, bool *ret_found,
	struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_GET];
	int rc, r = 0;

	bind_account(stmt, account->node, account->used.sandbox, account->used.generation);
	rc = sqlite3_step(stmt);
	*ret_found = rc == SQLITE_ROW;
	if (rc == SQLITE_ROW)
		read_account(stmt, ret);
	else if (rc != SQLITE_DONE)
		r = fail(db, rc, statements[SQL_GET], reterr);
	(void)sqlite3_reset(stmt);
	return r == 0 && *ret_found ? read_losses(db, ret, reterr) : r;
}

/* Whose it is, where that is not decided yet. */
static int decide_tenant(struct usage_db *db, struct usage_account *account, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_PROOF];
	int rc;

	if (!account->is_unproven || !*account->used.tenant)
		return 0;
	bind_text(stmt, 1, account->used.tenant);
	bind_text(stmt, 2, account->used.sandbox);
	rc = sqlite3_step(stmt);
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
	if (rc != SQLITE_ROW)
		account->used.tenant[0] = '\0';
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : fail(db, rc, statements[SQL_PROOF], reterr);
}

int usage_db_take(struct usage_db *db, const struct usage_account *account, bool *ret_new, struct err *reterr)
{
	struct usage_account before, now = *account;
	uint64_t old[COUNTERS] = { 0 }, new[COUNTERS], added[COUNTERS];
	int64_t from = account->used.began_us;
	bool is_known;
	int r;

	memset(&before, 0, sizeof(before));
	r = find(db, account, &before, &is_known, reterr);
	if (r < 0)
		return r;
	*ret_new = !is_known || account->used.version > before.used.version;
	if (!*ret_new)
		return 0;
	counters_of(&now.used, new);
	if (is_known) {
		counters_of(&before.used, old);
		from = before.used.until_us;
	}
	if (*before.used.tenant) /* whose it is was decided once */
		memcpy(now.used.tenant, before.used.tenant, sizeof(now.used.tenant));
	else
		r = decide_tenant(db, &now, reterr);
	if (r < 0)
		return r;
	for (int i = 0; i < COUNTERS; i++) {
		new[i] = MAX(new[i], old[i]);
		added[i] = new[i] - old[i];
	}
	set_counters(&now.used, new);
	now.used.until_us = MAX(now.used.until_us, from);
	r = add_hours(db, &now, from, now.used.until_us, added, reterr);
	if (r == 0)
		r = add_losses(db, &now, &before.used, reterr);
	return r < 0 ? r : put_account(db, &now, reterr);
}

int usage_db_put_dropped(struct usage_db *db, const char *node, uint64_t n, struct err *reterr)
{
	bind_text(db->prepared[SQL_PUT_DROPPED], 1, node);
	(void)sqlite3_bind_int64(db->prepared[SQL_PUT_DROPPED], 2, (sqlite3_int64)n);
	return run(db, SQL_PUT_DROPPED, reterr);
}

/* ---- questions ---- */

/* `hours` names the table that has the column hour, where the filter is of time. */
static sqlite3_stmt *ask(struct usage_db *db, const char *what, const char *hours, const char *tail, const struct usage_filter *filter,
	struct err *reterr)
{
	sqlite3_stmt *stmt = NULL;
	char sql[SQL_SIZE], time[128] = "";
	int rc, n;

	if (filter->from_us > 0)
		(void)snprintf(time, sizeof(time), " AND %s.hour >= %lld AND %s.hour < %lld", hours,
			(long long)(filter->from_us / USAGE_HOURS_US), hours,
			(long long)((filter->to_us + USAGE_HOURS_US - 1) / USAGE_HOURS_US));
	n = snprintf(sql, sizeof(sql), "%s WHERE 1%s%s%s%s%s %s LIMIT %llu", what, *filter->tenant ? " AND a.tenant = ?1" : "",
		*filter->sandbox ? " AND a.sandbox = ?2" : "", *filter->pool ? " AND a.pool = ?3" : "",
		*filter->node ? " AND a.node = ?4" : "", time, tail, (unsigned long long)filter->max_rows);
	rc = n < (int)sizeof(sql) ? sqlite3_prepare_v2(db->handle, sql, -1, &stmt, NULL) : SQLITE_TOOBIG;
	if (rc != SQLITE_OK) {
		(void)fail(db, rc, sql, reterr);
		return NULL;
	}
	bind_text(stmt, 1, filter->tenant);
	bind_text(stmt, 2, filter->sandbox);
	bind_text(stmt, 3, filter->pool);
	bind_text(stmt, 4, filter->node);
	return stmt;
}

static int over(struct usage_db *db, sqlite3_stmt *stmt, int rc, struct err *reterr)
{
	int r = rc == SQLITE_DONE ? 0 : fail(db, rc, "a question", reterr);

	(void)sqlite3_finalize(stmt);
	return r;
}

/* SUM() fails where a sum is beyond 63 bits, and with it the whole question. This is exact below that, and as much as fits else. */
#define WHOLE(x) "SUM(" x " >> 32) * 4294967296 + SUM(" x " & 4294967295)"
#define SUMS(t, spread)                                                                                                           \
	", COUNT(DISTINCT a.node || a.sandbox || a.generation), " WHOLE(t ".running_us") ", " WHOLE(t ".paused_us") ", "                \
	WHOLE(t ".disk_us") ", " WHOLE(t ".cpu_us") ", " WHOLE(t ".egress_bytes") ", " WHOLE(t ".uncounted_us") ", " spread             \
	", TOTAL(" t ".running_us * 1.0 * a.memory_mib) / 1024e6, TOTAL(" t ".disk_us * 1.0 * a.disk_mib) / 1024e6, "                   \
	"COUNT(DISTINCT CASE a.is_over WHEN 0 THEN a.node || a.sandbox || a.generation END), MIN(CASE a.is_over WHEN 0 THEN a.until_us END)"
#define JOINED(t) t " CROSS JOIN account a USING (node, sandbox, generation)"

int usage_db_sum(struct usage_db *db, const struct usage_filter *filter, void (*each)(const struct usage_sums *sums, void *user),
	void *user, struct err *reterr)
{
	static const char *const heads[2][2] = { { "SELECT a.tenant, ''" SUMS("a", "0") " FROM account a",
						   "SELECT a.tenant, a.sandbox" SUMS("a", "0") " FROM account a" },
		{ "SELECT a.tenant, ''" SUMS("h", WHOLE("h.spread_us")) " FROM " JOINED("hour h"),
			"SELECT a.tenant, a.sandbox" SUMS("h", WHOLE("h.spread_us")) " FROM " JOINED("hour h") } };
	sqlite3_stmt *stmt = ask(db, heads[filter->from_us > 0][filter->by_sandbox], "h",
		filter->by_sandbox ? "GROUP BY a.tenant, a.sandbox ORDER BY 1, 2" : "GROUP BY a.tenant ORDER BY 1", filter, reterr);
	int rc;

	if (!stmt)
		return -EIO;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		each(&(struct usage_sums){ (const char *)sqlite3_column_text(stmt, 0), (const char *)sqlite3_column_text(stmt, 1),
			     count_of(stmt, 2), count_of(stmt, 3), count_of(stmt, 4), count_of(stmt, 5), count_of(stmt, 6), count_of(stmt, 7),
			     count_of(stmt, 8), count_of(stmt, 9), sqlite3_column_double(stmt, 10), sqlite3_column_double(stmt, 11),
			     count_of(stmt, 12), sqlite3_column_int64(stmt, 13) },
			user);
	return over(db, stmt, rc, reterr);
}

int usage_db_lost(struct usage_db *db, const struct usage_filter *filter,
	void (*each)(const char *pool, enum fail_component component, uint64_t lost_us, void *user), void *user, struct err *reterr)
{
	sqlite3_stmt *stmt = ask(db, "SELECT a.pool, l.component, " WHOLE("l.lost_us") " FROM " JOINED("loss l"), "l", "GROUP BY 1, 2", filter, reterr);
	int rc;

	if (!stmt)
		return -EIO;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		each((const char *)sqlite3_column_text(stmt, 0), component_by_name((const char *)sqlite3_column_text(stmt, 1)),
			count_of(stmt, 2), user);
	return over(db, stmt, rc, reterr);
}

int usage_db_accounts(struct usage_db *db, const struct usage_filter *filter,
	void (*each)(const struct usage_account *account, void *user), void *user, struct err *reterr)
{
	sqlite3_stmt *stmt = ask(db, "SELECT " COLUMNS " FROM account a", "a", "ORDER BY sandbox, generation, node", filter, reterr);
	int rc = SQLITE_DONE, r = 0;

	if (!stmt)
		return -EIO;
	while (r == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct usage_account account;

		read_account(stmt, &account);
		r = read_losses(db, &account, reterr);
		if (r == 0)
			each(&account, user);
	}
	if (r < 0) {
		(void)sqlite3_finalize(stmt);
		return r;
	}
	return over(db, stmt, rc, reterr);
}

int usage_db_dropped(struct usage_db *db, const struct usage_filter *filter, uint64_t *ret, struct err *reterr)
{
	const struct usage_filter all_time = { filter->tenant, filter->sandbox, filter->pool, filter->node, 0, 0, false, 1 };
	sqlite3_stmt *stmt = ask(db, "SELECT " WHOLE("n") " FROM dropped WHERE node IN (SELECT a.node FROM account a", "a", ")", &all_time, reterr);
	int rc = stmt ? sqlite3_step(stmt) : SQLITE_ERROR;

	if (!stmt)
		return -EIO;
	*ret = rc == SQLITE_ROW ? count_of(stmt, 0) : 0;
	return over(db, stmt, rc == SQLITE_ROW ? SQLITE_DONE : rc, reterr);
}

/* ---- results ---- */

int usage_db_mark(struct usage_db *db, const char *tenant, const char *sandbox, bool is_accepted, int64_t when_us, struct err *reterr)
{
	sqlite3_stmt *stmt = db->prepared[SQL_MARK];

	bind_text(stmt, 1, tenant);
	bind_text(stmt, 2, sandbox);
	(void)sqlite3_bind_int(stmt, 3, is_accepted);
	(void)sqlite3_bind_int64(stmt, 4, when_us);
	return run(db, SQL_MARK, reterr);
}

int usage_db_marks(struct usage_db *db, const struct usage_filter *filter, uint64_t *ret_accepted, uint64_t *ret_rejected,
	struct err *reterr)
{
	const struct usage_filter all_time = { filter->tenant, filter->sandbox, filter->pool, filter->node, 0, 0, false, 1 };
	char tail[192];
	sqlite3_stmt *stmt;
	int rc;

	(void)snprintf(tail, sizeof(tail), "AND a.tenant = m.tenant AND a.sandbox = m.sandbox) AND m.marked_us >= %lld AND m.marked_us < %lld",
		(long long)(filter->from_us / USAGE_HOURS_US * USAGE_HOURS_US),
		filter->from_us > 0 ? (long long)filter->to_us : (long long)INT64_MAX);
	stmt = ask(db, "SELECT COUNT(*), TOTAL(is_accepted) FROM mark m WHERE EXISTS (SELECT 1 FROM account a", "a", tail, &all_time, reterr);
	if (!stmt)
		return -EIO;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		*ret_accepted = count_of(stmt, 1);
		*ret_rejected = count_of(stmt, 0) - *ret_accepted;
	}
	return over(db, stmt, rc == SQLITE_ROW ? SQLITE_DONE : rc, reterr);
}

/* ---- retention ---- */

int usage_db_expire(struct usage_db *db, int64_t before_us, struct err *reterr)
{
	char sql[512];

	(void)snprintf(sql, sizeof(sql),
		"DELETE FROM hour WHERE hour < %lld; DELETE FROM account WHERE (is_over = 1 AND until_us < %lld) OR heard_us < %lld; "
		"DELETE FROM loss WHERE NOT EXISTS (SELECT 1 FROM account a WHERE a.node = loss.node AND a.sandbox = loss.sandbox AND "
		"a.generation = loss.generation); "
		"DELETE FROM mark WHERE marked_us < %lld",
		(long long)(before_us / USAGE_HOURS_US), (long long)before_us, (long long)before_us, (long long)before_us);
	return exec(db, sql, reterr);
}

int64_t usage_db_oldest(struct usage_db *db)
{
	return number(db, "SELECT min(hour) FROM hour") * USAGE_HOURS_US;
}
