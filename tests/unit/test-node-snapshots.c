/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots on a node's disk (agent/snapshots.h): one is whole or none, whatever was cut short or torn.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/snapshots.h"
#include "base/fd.h"
#include "lib/suite.h"

#define ID "aaaaaaaaaaaaaaaaaaaa"
#define OTHER "bbbbbbbbbbbbbbbbbbbb"
#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static char dir[64];
static struct snapshot_info found[4];
static unsigned int n_found;
static ino_t synced, synced_before; /* the last that was; before one was found */
static bool is_broken;

int fsync(int fd)
{
	struct stat st;

	if (is_broken) {
		errno = EIO;
		return -1;
	}
	ck_assert_int_eq(fstat(fd, &st), 0);
	synced = st.st_ino;
	return (int)syscall(SYS_fsync, fd);
}

static void setup(void)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/croft-snapshots.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void)
{
	ck_assert_int_eq(dir_remove(dir), 0);
}

static struct snapshot_info info_of(const char *id)
{
	struct snapshot_info info = { .image_size = 4096, .vcpus = 2, .memory_mib = 512, .disk_mib = 100, .created_usec = 77 };

	memcpy(info.id, id, ID_SIZE);
	memcpy(info.sandbox, OTHER, ID_SIZE);
	(void)snprintf(info.tenant, sizeof(info.tenant), "tenant");
	(void)snprintf(info.template_name, sizeof(info.template_name), "base");
	(void)snprintf(info.cpu_class, sizeof(info.cpu_class), "amd-25-1");
	memcpy(info.image_digest, DIGEST, DIGEST_SIZE);
	return info;
}

static void write_file(const char *path, size_t size)
{
	CLEANUP_FREE char *data = calloc(1, size);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	memset(data, 'x', size);
	ck_assert_int_eq(fd_write_all(fd, data, size), 0);
	ck_assert_int_eq(close(fd), 0);
}

/* As after it was taken: its files are there, nothing is durable. */
static void take(const char *id)
{
	char path[PATH_MAX], state[PATH_MAX], memory[PATH_MAX];

	ck_assert_int_eq(snapshot_begin(dir, id, NULL), 0);
	snapshot_paths(dir, id, true, state, memory);
	write_file(state, 4096);
	write_file(memory, 2 << 20);
	ck_assert_int_eq(snapshot_dir(dir, id, true, path), 0);
	(void)strncat(path, "/disk", sizeof(path) - strlen(path) - 1);
	write_file(path, 1 << 20);
}

static void make(const char *id)
{
	struct snapshot_info info = info_of(id);

	take(id);
	ck_assert_int_eq(snapshot_finish(dir, &info, NULL), 0);
	ck_assert_uint_ge(info.size_mib, 3);
	ck_assert_uint_le(info.size_mib, 5);
}

static void on_found(const struct snapshot_info *info, void *user)
{
	(void)user;
	ck_assert_uint_lt(n_found, ARRAY_LEN(found));
	found[n_found++] = *info;
	synced_before = synced;
}

static unsigned int load(void)
{
	n_found = 0;
	ck_assert_int_eq(snapshots_load(dir, on_found, NULL, NULL), 0);
	return n_found;
}

static bool exists(const char *id, bool unfinished)
{
	char path[PATH_MAX];

	ck_assert_int_eq(snapshot_dir(dir, id, unfinished, path), 0);
	return access(path, F_OK) == 0;
}

START_TEST(one_that_is_whole_is_found_as_it_was)
{
	struct snapshot_info info = info_of(ID);
	char state[PATH_MAX], memory[PATH_MAX];

	make(ID);
	ck_assert_uint_eq(load(), 1);
	info.size_mib = found[0].size_mib;
	ck_assert_mem_eq(&found[0], &info, sizeof(info));
	ck_assert_uint_ge(info.size_mib, 3);
	snapshot_paths(dir, ID, false, state, memory);
	ck_assert_int_eq(access(state, R_OK), 0);
	ck_assert_int_eq(access(memory, R_OK), 0);
}
END_TEST

/* An agent that died between the rename and its sync: nobody hears of it before it is durable. */
START_TEST(one_is_durable_before_it_is_offered)
{
	struct err err = ERR_NULL;
	char path[PATH_MAX];
	struct stat st;

	make(ID);
	(void)snprintf(path, sizeof(path), "%s/snapshots", dir);
	ck_assert_int_eq(stat(path, &st), 0);
	synced = synced_before = 0;
	is_broken = _i != 0;
	n_found = 0;
	ck_assert(snapshots_load(dir, on_found, NULL, &err) == 0 ? !_i : _i);
	ck_assert_uint_eq(n_found, _i ? 0 : 1);
	if (_i)
		ck_assert_int_eq(err.code, FAIL_STATE_UNREADABLE);
	else
		ck_assert(synced_before == st.st_ino);
	is_broken = false;
}
END_TEST

/* An agent that died before the rename. */
START_TEST(an_unfinished_one_is_removed_at_the_start)
{
	make(OTHER);
	take(ID);
	ck_assert(exists(ID, true));
	ck_assert_uint_eq(load(), 1);
	ck_assert_str_eq(found[0].id, OTHER);
	ck_assert(!exists(ID, true));
}
END_TEST

START_TEST(one_that_cannot_be_finished_is_none)
{
	struct snapshot_info info = info_of(ID);
	char state[PATH_MAX], memory[PATH_MAX];
	struct err err = ERR_NULL;

	take(ID);
	snapshot_paths(dir, ID, true, state, memory);
	ck_assert_int_eq(unlink(memory), 0);
	ck_assert_int_lt(snapshot_finish(dir, &info, &err), 0);
	ck_assert_int_eq(err.code, FAIL_SNAPSHOT_FAILED);
	ck_assert(!exists(ID, false));
	ck_assert_int_eq(snapshot_remove(dir, ID, NULL), 0);
	ck_assert(!exists(ID, true));
	make(ID); /* the same id again */
	ck_assert_uint_eq(load(), 1);
}
END_TEST

START_TEST(what_is_removed_is_gone)
{
	make(ID);
	make(OTHER);
	take(ID); /* of an attempt beside it */
	ck_assert_int_eq(snapshot_remove(dir, ID, NULL), 0);
	ck_assert(!exists(ID, false));
	ck_assert(!exists(ID, true));
	ck_assert_int_eq(snapshot_remove(dir, ID, NULL), 0);
	ck_assert_uint_eq(load(), 1);
	ck_assert_str_eq(found[0].id, OTHER);
}
END_TEST

enum damage { CUT, FLIPPED, ANOTHERS, NO_RECORD, NO_MEMORY, NO_DISK, DAMAGES };

/* It costs itself alone: it is kept, and not offered. */
START_TEST(a_broken_one_isolates_itself)
{
	char path[PATH_MAX], other[PATH_MAX];
	struct stat st;
	char byte;
	int fd;

	make(ID);
	make(OTHER);
	(void)snprintf(path, sizeof(path), "%s/snapshots/" ID "/%s", dir, _i == NO_MEMORY ? "memory" : _i == NO_DISK ? "disk" : "record");
	ck_assert_int_eq(stat(path, &st), 0);
	if (_i == CUT) {
		ck_assert_int_eq(truncate(path, st.st_size - 1), 0);
	} else if (_i == FLIPPED) {
		fd = open(path, O_RDWR | O_CLOEXEC);
		ck_assert_int_eq(pread(fd, &byte, 1, st.st_size - 3), 1);
		byte ^= 1;
		ck_assert_int_eq(pwrite(fd, &byte, 1, st.st_size - 3), 1);
		ck_assert_int_eq(close(fd), 0);
	} else if (_i == ANOTHERS) {
		(void)snprintf(other, sizeof(other), "%s/snapshots/" OTHER "/record", dir);
		ck_assert_int_eq(unlink(path), 0);
		ck_assert_int_eq(link(other, path), 0);
	} else {
		ck_assert_int_eq(unlink(path), 0);
	}
	ck_assert_uint_eq(load(), 1);
	ck_assert_str_eq(found[0].id, OTHER);
	ck_assert(exists(ID, false));
	ck_assert_int_eq(snapshot_remove(dir, ID, NULL), 0);
	ck_assert(!exists(ID, false));
}
END_TEST

START_TEST(a_directory_that_cannot_be_read_is_not_an_empty_one)
{
	struct err err = ERR_NULL;
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/snapshots", dir);
	write_file(path, 1);
	ck_assert_int_lt(snapshots_load(dir, on_found, NULL, &err), 0);
	ck_assert_int_eq(err.code, FAIL_STATE_UNREADABLE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("node-snapshots");
	TCase *tcase = tcase_create("node-snapshots");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, one_that_is_whole_is_found_as_it_was);
	tcase_add_loop_test(tcase, one_is_durable_before_it_is_offered, 0, 2);
	tcase_add_test(tcase, an_unfinished_one_is_removed_at_the_start);
	tcase_add_test(tcase, one_that_cannot_be_finished_is_none);
	tcase_add_test(tcase, what_is_removed_is_gone);
	tcase_add_loop_test(tcase, a_broken_one_isolates_itself, 0, DAMAGES);
	tcase_add_test(tcase, a_directory_that_cannot_be_read_is_not_an_empty_one);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
