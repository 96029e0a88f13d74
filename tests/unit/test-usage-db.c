/* SPDX-License-Identifier: Apache-2.0
 *
 * usage.db: records that come late, twice or out of order count once; hours add up to the whole; what is asked by whom.
 */
#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/suite.h"
#include "store/usage-db.h"

#define NODE "nodenodenodenodenode"
#define BOX "aaaaaaaaaaaaaaaaaaaa"
#define SEC 1000000
#define HOUR USAGE_HOURS_US

static char path[64];
static struct usage_db *db;

static void set_up(void)
{
	int fd;

	(void)snprintf(path, sizeof(path), "/dev/shm/croft-usage.XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	ck_assert_int_eq(usage_db_open(&db, path, NULL), 0);
}

static void tear_down(void)
{
	static const char *const tails[] = { "", "-wal", "-shm" };
	char name[80];

	usage_db_close(db);
	for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", path, tails[i]);
		(void)unlink(name);
	}
}

static struct usage_account account_of(const char *tenant, uint64_t version, int64_t until_us, uint64_t running_us)
{
	struct usage_account account = { .pool = "pool", .node = NODE };

	memcpy(account.used.sandbox, BOX, ID_SIZE);
	(void)snprintf(account.used.tenant, sizeof(account.used.tenant), "%s", tenant);
	account.used.generation = 1;
	account.used.version = version;
	account.used.began_us = 100 * HOUR;
	account.used.until_us = until_us;
	account.used.memory_mib = 2048;
	account.used.disk_mib = 1024;
	account.heard_us = until_us;
	account.used.running_us = running_us;
	account.used.disk_us = running_us;
	account.used.cpu_us = running_us / 2;
	account.used.egress_bytes = version;
	return account;
}

static bool take(const struct usage_account *account)
{
	struct err err = ERR_NULL;
	bool is_new = false;
	int r = usage_db_begin(db, &err);

	if (r == 0)
		r = usage_db_take(db, account, &is_new, &err);
	ck_assert_msg(usage_db_end(db, r, &err) == 0, "%s", err.msg);
	return is_new;
}

struct seen {
	unsigned int n;
	struct usage_sums last;
	uint64_t running_us;
};

static void see(const struct usage_sums *sums, void *user)
{
	struct seen *seen = user;

	seen->n++;
	seen->last = *sums;
	seen->running_us += sums->running_us;
}

static struct seen sum(const char *tenant, int64_t from_us, int64_t to_us, bool by_sandbox)
{
	const struct usage_filter filter = { tenant, "", "", "", from_us, to_us, by_sandbox, 100 };
	struct seen seen = { .n = 0 };
	struct err err = ERR_NULL;

	ck_assert_msg(usage_db_sum(db, &filter, see, &seen, &err) == 0, "%s", err.msg);
	return seen;
}

START_TEST(what_comes_twice_or_late_counts_once)
{
	struct usage_account first = account_of("t", 2, 100 * HOUR + 60 * SEC, 60 * SEC), second = account_of("t", 5, 100 * HOUR + 180 * SEC, 170 * SEC),
			     lower = account_of("t", 9, 100 * HOUR + 190 * SEC, 100 * SEC);

	ck_assert(take(&first));
	ck_assert(!take(&first));
	ck_assert(take(&second));
	ck_assert(!take(&first)); /* overtaken on the way */
	ck_assert(!take(&second));
	ck_assert_uint_eq(sum("t", 0, 0, true).running_us, 170 * SEC);
	ck_assert_uint_eq(sum("t", 100 * HOUR, 101 * HOUR, true).running_us, 170 * SEC);
	ck_assert_uint_eq(sum("t", 100 * HOUR, 101 * HOUR, true).last.spread_us, 0);
	ck_assert_double_eq_tol(sum("t", 0, 0, true).last.memory_gib_s, 340.0, 1e-6);
	ck_assert_double_eq_tol(sum("t", 100 * HOUR, 101 * HOUR, true).last.memory_gib_s, 340.0, 1e-6);
	ck_assert_double_eq_tol(sum("t", 0, 0, true).last.disk_gib_s, 170.0, 1e-6);
	ck_assert(take(&lower)); /* a later word that says less takes nothing back */
	ck_assert_uint_eq(sum("t", 0, 0, true).running_us, 170 * SEC);
	ck_assert_uint_eq(sum("t", 0, 0, true).n, 1);
}
END_TEST

START_TEST(hours_add_up_to_the_whole)
{
	/* told once after a cut of three days, and of a length that no hour divides */
	const int64_t until = 172 * HOUR + 1234567;
	struct usage_account account = account_of("t", 2, until, 777777777777);
	uint64_t all = 0, spread = 0;

	ck_assert(take(&account));
	for (int64_t hour = 99; hour < 175; hour++) {
		struct seen seen = sum("t", hour * HOUR, (hour + 1) * HOUR, false);

		all += seen.running_us;
		spread += seen.n ? seen.last.spread_us : 0;
		if (hour > 100 && hour < 172)
			ck_assert_uint_le((seen.running_us > 10802469135 ? seen.running_us - 10802469135 : 10802469135 - seen.running_us),
				4000000); /* evenly: a seventy-second part each, but for the last piece */
	}
	ck_assert_uint_eq(all, 777777777777);
	ck_assert_uint_eq(spread, 777777777777);
	ck_assert_uint_eq(sum("t", 100 * HOUR, 200 * HOUR, false).running_us, 777777777777);
}
END_TEST

START_TEST(what_is_another_s_is_not_seen)
{
	struct usage_account mine = account_of("mine", 1, 100 * HOUR + 60 * SEC, 60 * SEC), other = account_of("other", 1, 100 * HOUR + 60 * SEC, 50 * SEC),
			     claim = account_of("thief", 3, 100 * HOUR + 70 * SEC, 70 * SEC);

	other.used.generation = 2;
	ck_assert(take(&mine));
	ck_assert(take(&other));
	ck_assert_uint_eq(sum("mine", 0, 0, true).running_us, 60 * SEC);
	ck_assert_uint_eq(sum("mine", 100 * HOUR, 101 * HOUR, true).running_us, 60 * SEC);
	ck_assert_uint_eq(sum("", 0, 0, false).running_us, 110 * SEC);
	ck_assert_uint_eq(sum("", 0, 0, false).n, 2);
	ck_assert(take(&claim)); /* whose it is was decided with its first record */
	ck_assert_uint_eq(sum("thief", 0, 0, true).n, 0);
	ck_assert_uint_eq(sum("mine", 0, 0, true).running_us, 70 * SEC);
	memcpy(claim.node, "otherotherotherother", ID_SIZE); /* another node's word is another account */
	ck_assert(take(&claim));
	ck_assert_uint_eq(sum("mine", 0, 0, true).running_us, 70 * SEC);
}
END_TEST

struct lost {
	uint64_t of[COMPONENT_MAX_];
};

static void see_lost(const char *pool, enum fail_component component, uint64_t lost_us, void *user)
{
	struct lost *lost = user;

	ck_assert_str_eq(pool, "pool");
	lost->of[component] += lost_us;
}

static void see_account(const struct usage_account *account, void *user)
{
	struct usage_account *ret = user;

	*ret = *account;
}

START_TEST(losses_gaps_and_retention)
{
	struct usage_account account = account_of("t", 1, 100 * HOUR + 60 * SEC, 60 * SEC), back;
	const struct usage_filter filter = { "t", "", "", "", 100 * HOUR, 102 * HOUR, false, 100 }, all = { "t", "", "", "", 0, 0, false, 100 };
	struct lost lost = { .of = { 0 } };
	uint64_t n = 0;

	account.used.lost_us[COMPONENT_NODE_HOST] = 5 * SEC;
	ck_assert(take(&account));
	account.used.version = 2;
	account.used.until_us += HOUR;
	account.used.lost_us[COMPONENT_NODE_HOST] = 7 * SEC;
	account.used.lost_us[COMPONENT_CALLER] = 1 * SEC;
	account.used.is_over = true;
	account.heard_us = account.used.until_us;
	ck_assert(take(&account));
	ck_assert(!take(&account));
	ck_assert_int_eq(usage_db_lost(db, &filter, see_lost, &lost, NULL), 0);
	ck_assert_uint_eq(lost.of[COMPONENT_NODE_HOST], 7 * SEC);
	ck_assert_uint_eq(lost.of[COMPONENT_CALLER], 1 * SEC);
	ck_assert_int_eq(usage_db_accounts(db, &all, see_account, &back, NULL), 0);
	ck_assert_mem_eq(back.used.lost_us, account.used.lost_us, sizeof(back.used.lost_us));
	ck_assert_uint_eq(back.used.version, 2);
	ck_assert(back.used.is_over);
	ck_assert_uint_eq(sum("t", 0, 0, false).last.n_open, 0);
	ck_assert_int_eq(usage_db_put_dropped(db, NODE, 4, NULL), 0);
	ck_assert_int_eq(usage_db_put_dropped(db, NODE, 3, NULL), 0); /* an older word */
	ck_assert_int_eq(usage_db_dropped(db, &filter, &n, NULL), 0);
	ck_assert_uint_eq(n, 4);
	ck_assert_int_eq(usage_db_oldest(db), 100 * HOUR);
	ck_assert_int_eq(usage_db_expire(db, 101 * HOUR, NULL), 0);
	ck_assert_int_eq(usage_db_oldest(db), 101 * HOUR);
	ck_assert_uint_eq(sum("t", 0, 0, false).n, 1);
	ck_assert_int_eq(usage_db_expire(db, 200 * HOUR, NULL), 0);
	ck_assert_uint_eq(sum("t", 0, 0, false).n, 0);
}
END_TEST

START_TEST(it_is_there_after_a_restart)
{
	struct usage_account account = account_of("t", 4, 100 * HOUR + 60 * SEC, 60 * SEC);

	ck_assert(take(&account));
	usage_db_close(db);
	ck_assert_int_eq(usage_db_open(&db, path, NULL), 0);
	ck_assert(!take(&account));
	ck_assert_uint_eq(sum("t", 0, 0, true).running_us, 60 * SEC);
	ck_assert_str_eq(account.used.tenant, "t");
}
END_TEST

static int64_t rows(const char *sql)
{
	sqlite3_stmt *stmt = NULL;
	sqlite3 *handle = NULL;
	int64_t n;

	ck_assert_int_eq(sqlite3_open(path, &handle), SQLITE_OK);
	ck_assert_int_eq(sqlite3_prepare_v2(handle, sql, -1, &stmt, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(stmt), SQLITE_ROW);
	n = sqlite3_column_int64(stmt, 0);
	(void)sqlite3_finalize(stmt);
	(void)sqlite3_close(handle);
	return n;
}

START_TEST(a_long_time_takes_few_rows)
{
	const int64_t until = 100 * HOUR + 9600 * HOUR + 7654321; /* the 400 days that are kept */
	struct usage_account account = account_of("t", 2, until, 888888888888), told = account_of("t", 2, until, 999999999999);

	told.used.generation = 2;
	told.is_hearsay = true;
	ck_assert(take(&account));
	ck_assert_int_le(rows("SELECT count(*) FROM hour"), USAGE_ROWS_MAX);
	ck_assert_int_ge(rows("SELECT count(*) FROM hour"), USAGE_ROWS_MAX / 2);
	ck_assert(take(&told));
	ck_assert_int_le(rows("SELECT count(*) FROM hour WHERE generation = 2"), USAGE_ROWS_HEARSAY);
	ck_assert_uint_eq(sum("t", 100 * HOUR, until + HOUR, false).running_us, 888888888888 + 999999999999);
	ck_assert_uint_eq(sum("t", 100 * HOUR, until + HOUR, false).last.spread_us, 888888888888 + 999999999999);
}
END_TEST

/* As much as a record may say, so often that the sum has no room: what others used is still told. */
START_TEST(absurd_figures_spoil_no_other_s)
{
	const struct usage_filter filter = { "", "", "", "", 0, 0, false, 100 };
	struct usage_account absurd = account_of("t", 1, 100 * HOUR + 60 * SEC, UINT64_C(1) << 53),
			     mine = account_of("mine", 1, 100 * HOUR + 60 * SEC, 60 * SEC);
	struct err err = ERR_NULL;
	uint64_t n = 0;

	absurd.used.lost_us[COMPONENT_GUEST] = UINT64_C(1) << 53;
	ck_assert_int_eq(usage_db_begin(db, &err), 0);
	for (uint64_t i = 1; i <= 1100; i++) {
		bool is_new;

		absurd.used.generation = i;
		ck_assert_int_eq(usage_db_take(db, &absurd, &is_new, &err), 0);
	}
	mine.used.generation = 2000;
	ck_assert_int_eq(usage_db_put_dropped(db, NODE, INT64_MAX, &err), 0);
	ck_assert_int_eq(usage_db_put_dropped(db, "otherotherotherother", 5, &err), 0);
	ck_assert_int_eq(usage_db_end(db, 0, &err), 0);
	memcpy(mine.node, "otherotherotherother", ID_SIZE);
	ck_assert(take(&mine));
	ck_assert_uint_eq(sum("t", 0, 0, false).last.running_us, INT64_MAX);
	ck_assert_uint_eq(sum("t", 100 * HOUR, 101 * HOUR, false).last.running_us, INT64_MAX);
	ck_assert_uint_eq(sum("mine", 0, 0, false).last.running_us, 60 * SEC);
	ck_assert_uint_eq(sum("", 0, 0, false).n, 2);
	ck_assert_int_eq(usage_db_dropped(db, &filter, &n, &err), 0);
	ck_assert_uint_eq(n, INT64_MAX);
}
END_TEST

START_TEST(whose_it_is_needs_proof)
{
	struct usage_account first = account_of("mine", 1, 100 * HOUR + 60 * SEC, 60 * SEC), earlier = account_of("mine", 3, 100 * HOUR + 70 * SEC, 30 * SEC);

	earlier.is_hearsay = earlier.is_unproven = true;
	earlier.used.generation = 2;
	memcpy(earlier.node, "otherotherotherother", ID_SIZE);
	ck_assert(take(&earlier)); /* nobody has heard of that sandbox */
	ck_assert_uint_eq(sum("mine", 0, 0, true).n, 0);
	ck_assert(take(&first)); /* it is this tenant's */
	earlier.used.version = 4;
	ck_assert(take(&earlier));
	ck_assert_uint_eq(sum("mine", 0, 0, true).running_us, 90 * SEC);
	(void)snprintf(earlier.used.tenant, sizeof(earlier.used.tenant), "%s", "thief");
	earlier.used.generation = 3;
	ck_assert(take(&earlier));
	ck_assert_uint_eq(sum("thief", 0, 0, true).n, 0);
	ck_assert_int_eq(rows("SELECT count(*) FROM account WHERE tenant = ''"), 1);
}
END_TEST

START_TEST(who_is_not_heard_of_any_more_is_forgotten)
{
	struct usage_account open = account_of("t", 1, 100 * HOUR + 60 * SEC, 60 * SEC);

	ck_assert(take(&open));
	ck_assert_int_eq(usage_db_expire(db, 100 * HOUR, NULL), 0);
	ck_assert_uint_eq(sum("t", 0, 0, false).last.n_open, 1);
	ck_assert_int_eq(usage_db_expire(db, 101 * HOUR, NULL), 0);
	ck_assert_uint_eq(sum("t", 0, 0, false).n, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("usage-db");
	TCase *tcase = tcase_create("usage-db");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, what_comes_twice_or_late_counts_once);
	tcase_add_test(tcase, hours_add_up_to_the_whole);
	tcase_add_test(tcase, what_is_another_s_is_not_seen);
	tcase_add_test(tcase, losses_gaps_and_retention);
	tcase_add_test(tcase, it_is_there_after_a_restart);
	tcase_add_test(tcase, a_long_time_takes_few_rows);
	tcase_add_test(tcase, absurd_figures_spoil_no_other_s);
	tcase_add_test(tcase, whose_it_is_needs_proof);
	tcase_add_test(tcase, who_is_not_heard_of_any_more_is_forgotten);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
