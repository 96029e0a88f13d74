/* SPDX-License-Identifier: Apache-2.0
 *
 * A disk that fails under the store: every call that SQLite makes of it goes through a layer that can refuse, be full or
 * not come back. Each fault is a named state, nothing is acknowledged that is not kept, and writing goes on without a
 * restart when the disk works again.
 */
#include "lib/suite.h"
#include "store/store.h"

#include <check.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "store/backup.h"

/* ---- the layer ---- */
enum fault { HEALTHY, SYNC_EIO, WRITE_EIO, WRITE_FULL, FULL_BUT_FOR_RESERVE, SYNC_HANGS };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	enum fault fault;
	char reserve[96];
	unsigned int hanging, syncs;
} disk = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* SQLite has one set of methods for the database and another for the log beside it; what fails is the same in both. */
static sqlite3_io_methods layered[2];
static const sqlite3_io_methods *below;
static sqlite3_vfs layer;
static sqlite3_vfs *real;

static enum fault fault_now(void)
{
	enum fault fault;

	(void)pthread_mutex_lock(&disk.lock);
	fault = disk.fault;
	(void)pthread_mutex_unlock(&disk.lock);
	return fault;
}

static void set_fault(enum fault fault)
{
	(void)pthread_mutex_lock(&disk.lock);
	disk.fault = fault;
	(void)pthread_cond_broadcast(&disk.changed);
	(void)pthread_mutex_unlock(&disk.lock);
}

static int layer_write(sqlite3_file *file, const void *data, int size, sqlite3_int64 offset)
{
	enum fault fault = fault_now();

	if (fault == WRITE_EIO)
		return SQLITE_IOERR_WRITE;
	if (fault == WRITE_FULL || (fault == FULL_BUT_FOR_RESERVE && access(disk.reserve, F_OK) == 0))
		return SQLITE_FULL;
	return below->xWrite(file, data, size, offset);
}

static int layer_sync(sqlite3_file *file, int flags)
{
	(void)pthread_mutex_lock(&disk.lock);
	disk.syncs++;
	while (disk.fault == SYNC_HANGS) {
		disk.hanging++;
		(void)pthread_cond_broadcast(&disk.changed);
		(void)pthread_cond_wait(&disk.changed, &disk.lock);
		disk.hanging--;
	}
	(void)pthread_mutex_unlock(&disk.lock);
	return fault_now() == SYNC_EIO ? SQLITE_IOERR_FSYNC : below->xSync(file, flags);
}

static int layer_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *ret_flags)
{
	int rc = real->xOpen(real, name, file, flags, ret_flags);
	sqlite3_io_methods *methods = &layered[(flags & SQLITE_OPEN_MAIN_DB) != 0];

	(void)vfs;
	if (rc != SQLITE_OK || !file->pMethods)
		return rc;
	below = file->pMethods;
	*methods = *below;
	methods->xWrite = layer_write;
	methods->xSync = layer_sync;
	file->pMethods = methods;
	return rc;
}

static void layer_begin(void)
{
	real = sqlite3_vfs_find(NULL);
	layer = *real;
	layer.zName = "faulty";
	layer.pNext = NULL;
	layer.xOpen = layer_open;
	ck_assert_int_eq(sqlite3_vfs_register(&layer, 1), SQLITE_OK);
}

/* ---- a store ---- */
struct fixture {
	char dir[64];
	struct event_base *base;
	struct store *store;
	unsigned int n_done;
	enum store_outcome outcome;
	struct err err;
	size_t n_records;
};

#define RESERVE (UINT64_C(1) << 20)

static void setup_with(struct fixture *f, uint64_t reserve)
{
	const struct store_config config = { .dir = f->dir, .may_create = true, .reserve_bytes = reserve };
	struct err err = ERR_NULL;

	memset(f, 0, sizeof(*f));
	set_fault(HEALTHY);
	layer_begin();
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/croft-test-fault-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(f->dir));
	(void)snprintf(disk.reserve, sizeof(disk.reserve), "%s/reserve", f->dir);
	f->base = event_base_new();
	ck_assert_msg(store_open(&f->store, f->base, &config, &err) == 0, "%s", err.msg);
}

static void setup(struct fixture *f)
{
	setup_with(f, 0);
}

static void teardown(struct fixture *f)
{
	set_fault(HEALTHY);
	store_close(f->store);
	event_base_free(f->base);
	ck_assert_int_eq(dir_remove(f->dir), 0);
}

static void on_done(enum store_outcome outcome, uint64_t revision, const struct err *err, void *user)
{
	struct fixture *f = user;

	(void)revision;
	f->n_done++;
	f->outcome = outcome;
	if (err)
		f->err = *err;
}

static void hand_over(struct fixture *f, const char *key)
{
	const struct store_op op = { STORE_PUT, key, "1", 1, STORE_ANY };
	struct err err = ERR_NULL;

	ck_assert_int_eq(store_commit(f->store, &op, 1, on_done, f, &err), 0);
}

static enum store_outcome commit(struct fixture *f, const char *key)
{
	unsigned int before = f->n_done;

	f->err = (struct err)ERR_NULL;
	hand_over(f, key);
	while (f->n_done == before)
		ck_assert_int_eq(event_base_loop(f->base, EVLOOP_ONCE), 0);
	return f->outcome;
}

static bool count(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	struct fixture *f = user;

	(void)key;
	(void)value;
	(void)size;
	(void)revision;
	f->n_records++;
	return true;
}

static size_t records(struct fixture *f)
{
	struct err err = ERR_NULL;

	f->n_records = 0;
	ck_assert_msg(store_load(f->store, "", count, f, &err) == 0, "%s", err.msg);
	return f->n_records;
}

/* Each kind of failure: named, nothing after it is taken, and it recovers here and now. */
static const struct {
	enum fault fault;
	enum fail_code code;
} failures[] = { { SYNC_EIO, FAIL_STORE_FAILED }, { WRITE_EIO, FAIL_STORE_FAILED },
	{ WRITE_FULL, FAIL_STORE_FULL } };

START_TEST(test_failing_disk) /* R190, R191 */
{
	struct fixture f;
	struct err err = ERR_NULL;

	setup(&f);
	ck_assert_int_eq(commit(&f, "before"), STORE_COMMITTED);
	set_fault(failures[_i].fault);
	ck_assert_int_eq(commit(&f, "lost"), STORE_BROKEN);
	ck_assert_int_eq(f.err.code, failures[_i].code);
	ck_assert_int_gt(f.err.err_no, 0);
	set_fault(HEALTHY); /* the disk works, but what builds upon the lost batch must not be taken */
	ck_assert_int_eq(commit(&f, "after"), STORE_BROKEN);
	ck_assert_ptr_nonnull(store_failure(f.store));
	set_fault(failures[_i].fault); /* a recovery that fails too changes nothing */
	ck_assert_int_lt(store_recover(f.store, &err), 0);
	ck_assert_ptr_nonnull(store_failure(f.store));
	set_fault(HEALTHY);
	err = (struct err)ERR_NULL;
	ck_assert_msg(store_recover(f.store, &err) == 0, "%s", err.msg);
	ck_assert_ptr_null(store_failure(f.store));
	ck_assert_uint_le(records(&f), 2); /* the batch that was refused may be there: the caller loads anew */
	ck_assert_uint_ge(f.n_records, 1);
	ck_assert_int_eq(commit(&f, "now"), STORE_COMMITTED);
	{
		size_t n = records(&f);
		const struct store_config config = { .dir = f.dir };

		store_close(f.store);
		f.store = NULL;
		ck_assert_int_eq(store_open(&f.store, f.base, &config, &err), 0);
		ck_assert_uint_eq(records(&f), n);
	}
	teardown(&f);
}
END_TEST

/* The disk is full: what was handed over is committed from the reserve and nothing fails; when there is room the reserve is
 * taken again, and when there is none left at all the failure has its name. */
START_TEST(test_full_disk_is_met_with_the_reserve) /* R191 */
{
	struct fixture f;
	struct err err = ERR_NULL;
	struct stat st;

	setup_with(&f, RESERVE);
	ck_assert_int_eq(stat(disk.reserve, &st), 0);
	ck_assert_int_ge(st.st_blocks * 512, (blkcnt_t)RESERVE); /* space, and not a hole */
	ck_assert(!store_is_tight(f.store));
	set_fault(FULL_BUT_FOR_RESERVE);
	ck_assert_int_eq(commit(&f, "a"), STORE_COMMITTED);
	ck_assert(store_is_tight(f.store));
	ck_assert_ptr_null(store_failure(f.store));
	ck_assert_int_ne(access(disk.reserve, F_OK), 0);
	ck_assert_int_eq(commit(&f, "b"), STORE_COMMITTED);
	set_fault(WRITE_FULL);
	ck_assert_int_eq(commit(&f, "lost"), STORE_BROKEN);
	ck_assert_int_eq(f.err.code, FAIL_STORE_FULL);
	set_fault(HEALTHY);
	ck_assert_int_eq(store_recover(f.store, &err), 0);
	ck_assert(store_is_tight(f.store)); /* until somebody looks */
	for (int i = 0; i < 500 && store_is_tight(f.store); i++) {
		store_tend(f.store);
		(void)usleep(10000);
	}
	ck_assert(!store_is_tight(f.store));
	ck_assert_int_eq(access(disk.reserve, F_OK), 0);
	ck_assert_uint_ge(records(&f), 2);
	teardown(&f);
}
END_TEST

/* After a failed fsync nothing is answered for by trying the fsync again: the log is written anew. */
START_TEST(test_failed_fsync_begins_the_log_anew)
{
	struct fixture f;
	struct err err = ERR_NULL;
	char path[128];
	struct stat st;

	setup(&f);
	ck_assert_int_eq(commit(&f, "before"), STORE_COMMITTED);
	set_fault(SYNC_EIO);
	ck_assert_int_eq(commit(&f, "lost"), STORE_BROKEN);
	set_fault(HEALTHY);
	ck_assert_int_eq(store_recover(f.store, &err), 0);
	(void)snprintf(path, sizeof(path), "%s/store.db-wal", f.dir);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_lt(st.st_size, 3 * 4200); /* the mark alone */
	teardown(&f);
}
END_TEST

/* A disk that does not come back holds the writer and nothing else (R023). */
START_TEST(test_slow_disk_holds_no_loop)
{
	struct fixture f;

	setup(&f);
	ck_assert_int_eq(commit(&f, "before"), STORE_COMMITTED);
	set_fault(SYNC_HANGS);
	hand_over(&f, "a");
	(void)pthread_mutex_lock(&disk.lock);
	while (!disk.hanging)
		(void)pthread_cond_wait(&disk.changed, &disk.lock);
	(void)pthread_mutex_unlock(&disk.lock);
	for (int i = 0; i < 200; i++) { /* more work is taken over, the loop turns, nobody is told a lie */
		char key[16];

		(void)snprintf(key, sizeof(key), "k%d", i);
		hand_over(&f, key);
		ck_assert_int_ge(event_base_loop(f.base, EVLOOP_NONBLOCK), 0);
	}
	ck_assert_uint_eq(f.n_done, 1);
	ck_assert_uint_eq(store_waiting(f.store), 201);
	disk.syncs = 0;
	set_fault(HEALTHY);
	while (f.n_done < 202)
		ck_assert_int_eq(event_base_loop(f.base, EVLOOP_ONCE), 0);
	ck_assert_int_eq(f.outcome, STORE_COMMITTED);
	ck_assert_uint_lt(disk.syncs, 20); /* what waited was committed together */
	ck_assert_uint_eq(records(&f), 202);
	teardown(&f);
}
END_TEST

/* ---- a page that rots ---- */
static void spoil(const struct fixture *f)
{
	char path[128], junk[512];
	int fd;
	off_t end;

	(void)snprintf(path, sizeof(path), "%s/store.db", f->dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	end = lseek(fd, 0, SEEK_END);
	memset(junk, 0xa5, sizeof(junk));
	for (off_t at = 2 * 4096; at < end; at += 4096) /* all but the schema and the first root */
		ck_assert_int_eq(fd_pwrite_all(fd, junk, sizeof(junk), at), 0);
	(void)fd_close(fd);
}

START_TEST(test_corrupt_page_is_named)
{
	struct fixture f;
	struct err err = ERR_NULL;
	const struct store_config config = { .dir = f.dir };
	char key[16];

	setup(&f);
	for (int i = 0; i < 600; i++) {
		(void)snprintf(key, sizeof(key), "k%d", i);
		hand_over(&f, key);
	}
	while (f.n_done < 600)
		ck_assert_int_eq(event_base_loop(f.base, EVLOOP_ONCE), 0);
	ck_assert_int_eq(backup_check(f.dir, NULL, &err), 0);
	store_close(f.store);
	f.store = NULL;
	spoil(&f);
	ck_assert_int_lt(backup_check(f.dir, NULL, &err), 0);
	ck_assert_int_eq(err.code, FAIL_STORE_CORRUPT);
	err = (struct err)ERR_NULL;
	if (store_open(&f.store, f.base, &config, &err) == 0)
		ck_assert_int_lt(store_load(f.store, "", count, &f, &err), 0);
	ck_assert_int_eq(err.code, FAIL_STORE_CORRUPT);
	teardown(&f);
}
END_TEST

/* ---- backup and restore of the file ---- */
START_TEST(test_backup_and_restore)
{
	static char secret[] = "key", other[] = "other";
	struct fixture f;
	const struct backup_file files[] = { { "link.key", secret, 3 }, { "next.key", other, 5 } };
	const struct store_config config = { .dir = f.dir };
	struct err err = ERR_NULL;
	char path[128], db[128];
	size_t size = 0;
	void *data = NULL;
	struct stat st;

	setup(&f);
	ck_assert_int_eq(commit(&f, "a"), STORE_COMMITTED);
	(void)snprintf(path, sizeof(path), "%s/backup", f.dir);
	(void)snprintf(db, sizeof(db), "%s/store.db", f.dir);
	ck_assert_msg(backup_write(f.dir, path, files, ARRAY_LEN(files), &err) == 0, "%s", err.msg); /* while it runs */
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	ck_assert_int_lt(backup_write(f.dir, path, files, ARRAY_LEN(files), &err), 0); /* none is overwritten */
	ck_assert_int_eq(err.code, FAIL_CONFLICT);
	err = (struct err)ERR_NULL;
	ck_assert_int_eq(commit(&f, "b"), STORE_COMMITTED);
	store_close(f.store);
	f.store = NULL;
	ck_assert_int_lt(backup_restore(path, f.dir, &err), 0);
	ck_assert_int_eq(err.code, FAIL_CONFLICT);
	err = (struct err)ERR_NULL;
	ck_assert_int_eq(unlink(db), 0);
	ck_assert_msg(backup_restore(path, f.dir, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(backup_read_file(path, "link.key", &data, &size, &err), 0);
	ck_assert_uint_eq(size, 3);
	ck_assert_int_eq(memcmp(data, "key", 3), 0);
	free(data);
	ck_assert_int_eq(backup_read_file(path, "next.key", &data, &size, &err), 0);
	ck_assert_uint_eq(size, 5);
	ck_assert_int_eq(memcmp(data, "other", 5), 0);
	free(data);
	ck_assert_int_eq(store_open(&f.store, f.base, &config, &err), 0);
	ck_assert_uint_eq(records(&f), 1);
	ck_assert_int_eq(commit(&f, "c"), STORE_COMMITTED);
	teardown(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store-faults");
	TCase *tc = tcase_create("store-faults");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_failing_disk, 0, (int)ARRAY_LEN(failures));
	tcase_add_test(tc, test_full_disk_is_met_with_the_reserve);
	tcase_add_test(tc, test_failed_fsync_begins_the_log_anew);
	tcase_add_test(tc, test_slow_disk_holds_no_loop);
	tcase_add_test(tc, test_corrupt_page_is_named);
	tcase_add_test(tc, test_backup_and_restore);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
