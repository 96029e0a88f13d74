/* SPDX-License-Identifier: Apache-2.0
 *
 * The store's contract (store.h), as any backend must keep it, and what is SQLite's own: kill -9 between
 * commit and exit, a second process, a later schema, a full disk, recovery.
 */
#include "lib/suite.h"
#include "store/store.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <event2/event.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

struct fixture {
	char dir[64];
	struct event_base *base;
	struct store *store;
	struct store_config config;
	unsigned int n_done;
	enum store_outcome outcome[512];
	uint64_t revision;
	struct err err;
	char seen[1024];
	atomic_bool stop; /* of write_beside() */
	atomic_uint n_beside;
};

static void setup(struct fixture *f)
{
	struct err err = ERR_NULL;

	memset(f, 0, sizeof(*f));
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/croft-test-store-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(f->dir));
	f->base = event_base_new();
	f->config = (struct store_config){ .dir = f->dir, .may_create = true };
	ck_assert_msg(store_open(&f->store, f->base, &f->config, &err) == 0, "%s", err.msg);
}

static void teardown(struct fixture *f)
{
	store_close(f->store);
	event_base_free(f->base);
	ck_assert_int_eq(dir_remove(f->dir), 0);
}

static void reopen(struct fixture *f)
{
	struct err err = ERR_NULL;

	store_close(f->store);
	f->store = NULL;
	f->config.may_create = false;
	ck_assert_msg(store_open(&f->store, f->base, &f->config, &err) == 0, "%s", err.msg);
}

static void on_done(
	enum store_outcome outcome, uint64_t revision, const struct err *err, void *user)
{
	struct fixture *f = user;

	f->outcome[f->n_done++ % ARRAY_LEN(f->outcome)] = outcome;
	f->revision = revision;
	if (err)
		f->err = *err;
}

static void run_until(struct fixture *f, unsigned int n)
{
	while (f->n_done < n)
		ck_assert_int_eq(event_base_loop(f->base, EVLOOP_ONCE), 0);
}

static bool see(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	struct fixture *f = user;
	size_t used = strlen(f->seen);

	(void)revision;
	(void)snprintf(f->seen + used, sizeof(f->seen) - used, "%s=%.*s ", key, (int)size,
		(const char *)value);
	return true;
}

static const char *all(struct fixture *f, const char *prefix)
{
	struct err err = ERR_NULL;

	f->seen[0] = '\0';
	ck_assert_msg(store_load(f->store, prefix, see, f, &err) == 0, "%s", err.msg);
	return f->seen;
}

static struct store_op put(const char *key, const char *value, uint64_t expect)
{
	return (struct store_op){ STORE_PUT, key, value, strlen(value), expect };
}

static int commit(struct fixture *f, struct store_op a)
{
	struct err err = ERR_NULL;

	return store_commit(f->store, &a, 1, on_done, f, &err);
}

START_TEST(test_commit_and_order)
{
	struct fixture f;
	struct store_op ops[3];
	struct err err = ERR_NULL;

	setup(&f);
	ops[0] = put("b/2", "two", STORE_ANY);
	ops[1] = put("b/1", "one", STORE_ABSENT);
	ops[2] = put("a/9", "", STORE_ANY);
	ck_assert_int_eq(store_commit(f.store, ops, 3, on_done, &f, &err), 0);
	ck_assert_uint_eq(store_waiting(f.store), 1);
	ck_assert_uint_eq(f.n_done, 0); /* never called before the loop runs */
	run_until(&f, 1);
	ck_assert_uint_eq(store_waiting(f.store), 0);
	ck_assert_int_eq(f.outcome[0], STORE_COMMITTED);
	ck_assert_uint_gt(f.revision, 0);
	ck_assert_str_eq(all(&f, "b/"), "b/1=one b/2=two ");
	ck_assert_str_eq(all(&f, ""), "a/9= b/1=one b/2=two ");
	ck_assert_str_eq(all(&f, "c"), "");
	reopen(&f);
	ck_assert_str_eq(all(&f, ""), "a/9= b/1=one b/2=two ");
	ops[0] = (struct store_op){ STORE_DELETE, "b/2", NULL, 0, STORE_ANY };
	ck_assert_int_eq(store_commit(f.store, ops, 1, on_done, &f, &err), 0);
	run_until(&f, 2);
	ck_assert_str_eq(all(&f, "b/"), "b/1=one ");
	teardown(&f);
}
END_TEST

static void on_got(
	const void *value, size_t size, uint64_t revision, const struct err *err, void *user)
{
	struct fixture *f = user;

	f->n_done++;
	f->revision = revision;
	ck_assert_ptr_null(err);
	(void)snprintf(f->seen, sizeof(f->seen), "%.*s", value ? (int)size : 4,
		value ? (const char *)value : "none");
}

START_TEST(test_read)
{
	struct fixture f;
	struct err err = ERR_NULL;

	setup(&f);
	ck_assert_int_eq(commit(&f, put("k", "value", STORE_ANY)), 0);
	ck_assert_int_eq(store_read(f.store, "k", on_got, &f, &err),
		0); /* sees what was handed over before */
	run_until(&f, 2);
	ck_assert_str_eq(f.seen, "value");
	ck_assert_uint_gt(f.revision, 0);
	ck_assert_int_eq(store_read(f.store, "absent", on_got, &f, &err), 0);
	run_until(&f, 3);
	ck_assert_str_eq(f.seen, "none");
	teardown(&f);
}
END_TEST

START_TEST(test_compare_and_set)
{
	struct fixture f;
	struct store_op ops[2];
	struct err err = ERR_NULL;
	uint64_t first;

	setup(&f);
	ck_assert_int_eq(commit(&f, put("k", "1", STORE_ABSENT)), 0);
	run_until(&f, 1);
	first = f.revision;
	/* absent is no longer true: nothing of the batch is written, later batches are untouched */
	ops[0] = put("other", "x", STORE_ANY);
	ops[1] = put("k", "2", STORE_ABSENT);
	ck_assert_int_eq(store_commit(f.store, ops, 2, on_done, &f, &err), 0);
	ck_assert_int_eq(commit(&f, put("k", "3", first)), 0);
	ck_assert_int_eq(commit(&f, put("k", "4", first)), 0);
	run_until(&f, 4);
	ck_assert_int_eq(f.outcome[1], STORE_CONFLICT);
	ck_assert_int_eq(f.outcome[2], STORE_COMMITTED);
	ck_assert_int_eq(f.outcome[3], STORE_CONFLICT);
	ck_assert_str_eq(all(&f, ""), "k=3 ");
	ck_assert_ptr_null(store_failure(f.store));
	ck_assert_int_lt(store_commit_wait(f.store, &ops[1], 1, &err), 0);
	ck_assert_int_eq(err.code, FAIL_CONFLICT);
	teardown(&f);
}
END_TEST

START_TEST(test_rules)
{
	struct fixture f;
	struct store_op ops[STORE_OPS_MAX + 1], large;
	char keys[STORE_OPS_MAX + 1][8], longest[STORE_KEY_MAX + 2];
	struct err err = ERR_NULL;

	setup(&f);
	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		(void)snprintf(keys[i], sizeof(keys[i]), "k%zu", i);
		ops[i] = put(keys[i], "v", STORE_ANY);
	}
	ck_assert_int_lt(store_commit(f.store, ops, STORE_OPS_MAX + 1, on_done, &f, &err), 0);
	ck_assert_int_lt(store_commit(f.store, ops, 0, on_done, &f, &err), 0);
	ck_assert_int_eq(store_commit(f.store, ops, STORE_OPS_MAX, on_done, &f, &err), 0);
	ops[1].key = "k0";
	ck_assert_int_lt(store_commit(f.store, ops, 2, on_done, &f, &err), 0);
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	ck_assert_int_lt(commit(&f, put(longest, "v", STORE_ANY)), 0);
	ck_assert_int_lt(commit(&f, put("", "v", STORE_ANY)), 0);
	large = put("large", "v", STORE_ANY);
	large.size = STORE_VALUE_MAX + 1; /* of which nothing is read */
	ck_assert_int_lt(commit(&f, large), 0);
	run_until(&f, 1);
	ck_assert_int_eq(f.outcome[0], STORE_COMMITTED);
	teardown(&f);
}
END_TEST

START_TEST(test_many_batches_in_order)
{
	struct fixture f;
	char value[16];

	setup(&f);
	for (int i = 0; i < 500; i++) {
		(void)snprintf(value, sizeof(value), "%d", i);
		ck_assert_int_eq(commit(&f, put("last", value, STORE_ANY)), 0);
	}
	run_until(&f, 500);
	ck_assert_str_eq(all(&f, ""), "last=499 ");
	teardown(&f);
}
END_TEST

/* The child acknowledges each committed batch on a pipe and is killed in the middle of it. */
static void write_for_ever(const char *dir, int fd)
{
	struct store_config config = { .dir = dir };
	struct store *store = NULL;
	struct err err = ERR_NULL;

	if (store_open(&store, NULL, &config, &err) < 0)
		_exit(2);
	for (unsigned int i = 0;; i++) {
		char key[16];
		struct store_op op;

		(void)snprintf(key, sizeof(key), "k/%08u", i);
		op = put(key, "acknowledged", STORE_ABSENT);
		if (store_commit_wait(store, &op, 1, &err) < 0 ||
			write(fd, &i, sizeof(i)) != sizeof(i))
			_exit(3);
	}
}

static bool count(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	(void)key;
	(void)revision;
	ck_assert_int_eq(memcmp(value, "acknowledged", size), 0);
	(*(unsigned int *)user)++;
	return true;
}

START_TEST(test_kill_keeps_what_was_acknowledged)
{
	struct fixture f;
	struct err err = ERR_NULL;
	unsigned int last = 0, n = 0, number;
	int fds[2], status;
	pid_t child;

	setup(&f);
	store_close(f.store);
	ck_assert_int_eq(pipe(fds), 0);
	child = fork();
	if (child == 0)
		write_for_ever(f.dir, fds[1]);
	ck_assert_int_eq(close(fds[1]), 0);
	while (last < 20)
		ck_assert_int_eq(fd_read_all(fds[0], &last, sizeof(last)), 0);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status));
	while (fd_read_all(fds[0], &number, sizeof(number)) == 0)
		last = number;
	ck_assert_int_eq(close(fds[0]), 0);
	f.store = NULL;
	f.config.may_create = false;
	ck_assert_msg(store_open(&f.store, f.base, &f.config, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(store_load(f.store, "k/", count, &n, &err), 0);
	ck_assert_uint_ge(n, last + 1);
	teardown(&f);
}
END_TEST

START_TEST(test_second_process_is_refused)
{
	struct fixture f;
	struct store *second = NULL;
	struct err err = ERR_NULL;

	setup(&f);
	ck_assert_int_lt(store_open(&second, NULL, &f.config, &err), 0);
	ck_assert_int_eq(err.code, FAIL_STORE_LOCKED);
	teardown(&f);
}
END_TEST

/* Whoever else has the file open, as an operator's sqlite3: short transactions, one behind the other. */
static void *write_beside(void *user)
{
	struct fixture *f = user;
	char path[128];
	sqlite3 *db = NULL;

	(void)snprintf(path, sizeof(path), "%s/store.db", f->dir);
	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	(void)sqlite3_busy_timeout(db, 30000); /* a commit may wait for a slow disk */
	while (!atomic_load(&f->stop)) {
		ck_assert_int_eq(sqlite3_exec(db, "BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS other (n INTEGER); "
						  "INSERT INTO other VALUES (1);", NULL, NULL, NULL), SQLITE_OK);
		(void)usleep(5000);
		ck_assert_int_eq(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
		atomic_fetch_add(&f->n_beside, 1);
		(void)usleep(3000);
	}
	(void)sqlite3_close(db);
	return NULL;
}

/* R188: two writers: each batch waits for the other's lock, and nobody is told that it was busy. */
START_TEST(test_a_second_writer_is_waited_for)
{
	struct fixture f;
	pthread_t thread;

	setup(&f);
	ck_assert_int_eq(pthread_create(&thread, NULL, write_beside, &f), 0);
	for (unsigned int i = 0; i < 200 || atomic_load(&f.n_beside) < 20; i++) {
		ck_assert_int_eq(commit(&f, put("k", "v", STORE_ANY)), 0);
		run_until(&f, i + 1);
		ck_assert_msg(f.outcome[i % ARRAY_LEN(f.outcome)] == STORE_COMMITTED, "%s", f.err.msg);
	}
	atomic_store(&f.stop, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	teardown(&f);
}
END_TEST

START_TEST(test_not_initialised)
{
	char dir[] = "/tmp/croft-test-store-XXXXXX";
	struct store_config config = { .dir = dir };
	struct store *store = NULL;
	struct err err = ERR_NULL;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_lt(store_open(&store, NULL, &config, &err), 0);
	ck_assert_int_eq(err.code, FAIL_NOT_INITIALISED);
	ck_assert_int_eq(dir_remove(dir), 0);
	memset(&err, 0, sizeof(err));
	ck_assert_int_lt(store_open(&store, NULL, &config, &err), 0);
	ck_assert_int_eq(err.code, FAIL_NOT_INITIALISED);
}
END_TEST

static void raw_sql(struct fixture *f, const char *sql)
{
	char path[128];
	sqlite3 *db = NULL;

	(void)snprintf(path, sizeof(path), "%s/store.db", f->dir);
	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	ck_assert_int_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

START_TEST(test_later_schema_is_refused)
{
	struct fixture f;
	struct err err = ERR_NULL;

	setup(&f);
	store_close(f.store);
	f.store = NULL;
	raw_sql(&f, "UPDATE store SET schema = 99");
	ck_assert_int_lt(store_open(&f.store, f.base, &f.config, &err), 0);
	ck_assert_int_eq(err.code, FAIL_STORE_TOO_NEW);
	ck_assert_ptr_nonnull(strstr(err.msg, "99"));
	teardown(&f);
}
END_TEST

START_TEST(test_earlier_schema_is_upgraded)
{
	struct fixture f;

	setup(&f);
	ck_assert_int_eq(commit(&f, put("a", "1", STORE_ANY)), 0);
	run_until(&f, 1);
	store_close(f.store);
	f.store = NULL;
	raw_sql(&f, "UPDATE store SET schema = 1");
	reopen(&f);
	ck_assert_str_eq(all(&f, ""), "a=1 ");
	store_close(f.store);
	f.store = NULL;
	raw_sql(&f, "CREATE TABLE seen AS SELECT 1 FROM store WHERE schema = 3");
	raw_sql(&f, "INSERT INTO record SELECT 'upgraded', 1, count(*) FROM seen");
	reopen(&f);
	ck_assert_str_eq(all(&f, "upgraded"), "upgraded=1 ");
	teardown(&f);
}
END_TEST

START_TEST(test_garbage_is_corrupt)
{
	struct fixture f;
	struct err err = ERR_NULL;
	char path[128], junk[8192];

	setup(&f);
	store_close(f.store);
	f.store = NULL;
	memset(junk, 'x', sizeof(junk));
	(void)snprintf(path, sizeof(path), "%s/store.db", f.dir);
	ck_assert_int_eq(file_replace(path, junk, sizeof(junk), 0600), 0);
	ck_assert_int_lt(store_open(&f.store, f.base, &f.config, &err), 0);
	ck_assert_int_eq(err.code, FAIL_STORE_CORRUPT);
	teardown(&f);
}
END_TEST

START_TEST(test_full_then_recovered)
{
	struct fixture f;
	struct err err = ERR_NULL;
	char *big = calloc(1, 200001);

	ck_assert_ptr_nonnull(big);
	memset(big, 'x', 200000);
	setup(&f);
	ck_assert_int_eq(commit(&f, put("before", "1", STORE_ANY)), 0);
	run_until(&f, 1);
	f.config.max_bytes = 128 * 1024;
	reopen(&f);
	ck_assert_int_eq(commit(&f, put("big", big, STORE_ANY)), 0);
	run_until(&f, 2);
	ck_assert_int_eq(f.outcome[1], STORE_BROKEN);
	ck_assert_int_eq(f.err.code, FAIL_STORE_FULL);
	/* what comes after it could build upon what was lost, so it is refused though it would fit */
	ck_assert_int_eq(commit(&f, put("small", "1", STORE_ANY)), 0);
	run_until(&f, 3);
	ck_assert_int_eq(f.outcome[2], STORE_BROKEN);
	ck_assert_ptr_nonnull(store_failure(f.store));
	ck_assert_str_eq(all(&f, ""), "before=1 "); /* reads go on */
	ck_assert_msg(store_recover(f.store, &err) == 0, "%s", err.msg);
	ck_assert_ptr_null(store_failure(f.store));
	ck_assert_int_eq(commit(&f, put("small", "1", STORE_ANY)), 0);
	run_until(&f, 4);
	ck_assert_int_eq(f.outcome[3], STORE_COMMITTED);
	ck_assert_str_eq(all(&f, ""), "before=1 small=1 ");
	free(big);
	teardown(&f);
}
END_TEST

/* Writes a record of a megabyte so many times. */
static void store_fill(struct fixture *f, int times)
{
	struct err err = ERR_NULL;
	char *big = calloc(1, 1000001);

	ck_assert_ptr_nonnull(big);
	memset(big, 'x', 1000000);
	for (int i = 0; i < times; i++) {
		struct store_op op = put("big", big, STORE_ANY);

		ck_assert_int_eq(store_commit_wait(f->store, &op, 1, &err), 0);
	}
	free(big);
}

/* The log is moved into the database by the writer's own checkpoints: it does not grow for ever. */
START_TEST(test_log_is_bounded)
{
	struct fixture f;
	struct stat st;
	char path[128];

	setup(&f);
	store_fill(&f, 40);
	(void)snprintf(path, sizeof(path), "%s/store.db-wal", f.dir);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_lt(st.st_size, 12 * 1000 * 1000);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	teardown(&f);
}
END_TEST

static off_t log_file(const struct fixture *f)
{
	struct stat st;
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/store.db-wal", f->dir);
	ck_assert_int_eq(stat(path, &st), 0);
	return st.st_size;
}

/* R187: somebody's read of the file lasts, and the log grows as long; then it gives back what it took. */
START_TEST(test_a_long_read_ends_and_so_does_the_log)
{
	struct fixture f;
	sqlite3 *reader = NULL;
	char path[128];

	setup(&f);
	store_fill(&f, 2);
	(void)snprintf(path, sizeof(path), "%s/store.db", f.dir);
	ck_assert_int_eq(sqlite3_open_v2(path, &reader, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM record", NULL, NULL, NULL), SQLITE_OK);
	store_fill(&f, 70);
	ck_assert_int_gt(log_file(&f), 64 << 20);
	for (int i = 0; i < 500 && store_log_bytes(f.store) <= 64 << 20; i++)
		(void)usleep(10000); /* it is counted after the answer */
	ck_assert_uint_gt(store_log_bytes(f.store), 64 << 20);
	ck_assert_int_eq(sqlite3_close(reader), SQLITE_OK);
	store_fill(&f, 6);
	ck_assert_int_lt(log_file(&f), 12 * 1000 * 1000);
	for (int i = 0; i < 500 && store_log_bytes(f.store) >= 12 * 1000 * 1000; i++)
		(void)usleep(10000);
	ck_assert_uint_lt(store_log_bytes(f.store), 12 * 1000 * 1000);
	teardown(&f);
}
END_TEST

/* ---- a power cut ---- */
#define COMMITS 8
#define SECTOR 512

/* What a disk has of the log: the first `size` bytes, and something else in the sector at `hole` (where it is below that). */
static void power_off(const struct fixture *f, const char *log, size_t size, size_t hole, struct fixture *ret)
{
	char from[128], to[128], db[1 << 20], *bytes = db + sizeof(db) / 2;
	FILE *file;
	size_t n;

	memset(ret, 0, sizeof(*ret));
	(void)snprintf(ret->dir, sizeof(ret->dir), "/tmp/croft-test-store-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(ret->dir));
	(void)snprintf(from, sizeof(from), "%s/store.db", f->dir);
	(void)snprintf(to, sizeof(to), "%s/store.db", ret->dir);
	file = fopen(from, "r");
	ck_assert_ptr_nonnull(file);
	n = fread(db, 1, sizeof(db) / 2, file);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(file_replace(to, db, n, 0600), 0);
	ck_assert_uint_le(size, sizeof(db) / 2);
	memcpy(bytes, log, size);
	if (hole < size)
		memset(bytes + hole, 0xa5, MIN(size - hole, (size_t)SECTOR)); /* zeroes are what much of a page has anyway */
	(void)snprintf(to, sizeof(to), "%s/store.db-wal", ret->dir);
	ck_assert_int_eq(file_replace(to, bytes, size, 0600), 0);
}

/* The number of the last commit that is there, as a whole and after all before it. */
static int last_commit(const struct fixture *f, const char *log, size_t size, size_t hole)
{
	struct fixture copy;
	struct err err = ERR_NULL;
	int a = 0, b = 0, c = 0;

	power_off(f, log, size, hole, &copy);
	copy.base = event_base_new();
	copy.config = (struct store_config){ .dir = copy.dir };
	ck_assert_msg(store_open(&copy.store, copy.base, &copy.config, &err) == 0, "%s", err.msg);
	(void)sscanf(all(&copy, "torn/"), "torn/a=%d torn/b=%d torn/c=%d", &a, &b, &c);
	ck_assert_int_eq(a, b);
	ck_assert_int_eq(a, c);
	teardown(&copy);
	return a;
}

/* Unsynced writes that are lost or torn: the log is cut anywhere, or lacks a sector of its own. A commit is there as a whole or not at all, none
 * without those before it, and each of which enough of the log is left. */
START_TEST(test_a_torn_log_has_whole_commits_only)
{
	off_t after[COMMITS + 1];
	CLEANUP_FREE char *log = NULL;
	struct err err = ERR_NULL;
	struct fixture f;
	char path[128], value[16];
	size_t size = 0;

	setup(&f);
	after[0] = log_file(&f);
	for (int i = 1; i <= COMMITS; i++) {
		struct store_op ops[3];

		(void)snprintf(value, sizeof(value), "%d", i);
		ops[0] = put("torn/a", value, STORE_ANY);
		ops[1] = put("torn/b", value, STORE_ANY);
		ops[2] = put("torn/c", value, STORE_ANY);
		ck_assert_int_eq(store_commit(f.store, ops, ARRAY_LEN(ops), on_done, &f, &err), 0);
		run_until(&f, (unsigned int)i);
		after[i] = log_file(&f);
	}
	(void)snprintf(path, sizeof(path), "%s/store.db-wal", f.dir);
	ck_assert_int_eq(file_read(path, 1 << 19, &log, &size), 0);
	ck_assert_int_eq(last_commit(&f, log, size, SIZE_MAX), COMMITS);
	for (size_t cut = (size_t)after[0]; cut < size; cut += 2039) {
		const size_t hole = cut + SECTOR - cut % SECTOR;
		int whole = 0;

		while (whole < COMMITS && after[whole + 1] <= (off_t)cut)
			whole++;
		ck_assert_int_eq(last_commit(&f, log, cut, SIZE_MAX), whole);
		if (hole >= size)
			break;
		whole = last_commit(&f, log, size, hole);
		ck_assert_int_lt(whole, COMMITS);
		ck_assert_int_le(after[whole], (off_t)hole); /* nothing behind it */
		ck_assert_int_gt(after[whole + 1], (off_t)hole);
	}
	teardown(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store");
	TCase *tc = tcase_create("store");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_commit_and_order);
	tcase_add_test(tc, test_read);
	tcase_add_test(tc, test_compare_and_set);
	tcase_add_test(tc, test_rules);
	tcase_add_test(tc, test_many_batches_in_order);
	tcase_add_test(tc, test_kill_keeps_what_was_acknowledged);
	tcase_add_test(tc, test_second_process_is_refused);
	tcase_add_test(tc, test_a_second_writer_is_waited_for);
	tcase_add_test(tc, test_not_initialised);
	tcase_add_test(tc, test_later_schema_is_refused);
	tcase_add_test(tc, test_earlier_schema_is_upgraded);
	tcase_add_test(tc, test_garbage_is_corrupt);
	tcase_add_test(tc, test_full_then_recovered);
	tcase_add_test(tc, test_log_is_bounded);
	tcase_add_test(tc, test_a_long_read_ends_and_so_does_the_log);
	tcase_add_test(tc, test_a_torn_log_has_whole_commits_only);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
