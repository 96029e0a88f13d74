/* SPDX-License-Identifier: Apache-2.0
 *
 * image/disk and image/digest: a disk is an ext4 that e2fsck finds nothing wrong with, sparse, made from a
 * template that is made once; a digest is what sha256sum says.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "image/child.h"
#include "image/digest.h"
#include "image/disk.h"
#include "lib/suite.h"

static char dir[64], path[96], template[96];

static void setup(void)
{
	strcpy(dir, "/tmp/croft-disk-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/disk", dir);
}

static void teardown(void)
{
	ck_assert_int_eq(dir_remove(dir), 0);
}

static int run(char *const *argv)
{
	CLEANUP(child_deinit) struct child child = CHILD_NULL;
	char said[CHILD_SAID_MAX];
	int status;

	ck_assert_int_eq(child_start(&child, argv, NULL, -1), 0);
	ck_assert_int_eq(child_wait(&child, &status, said), 0);
	return status;
}

static const uint64_t sizes[] = { 16, 64, 512, 20480 };

START_TEST(test_disk)
{
	char *fsck[] = { (char[]) { "e2fsck" }, (char[]) { "-fn" }, path, NULL };
	struct err err = ERR_NULL;
	struct stat st;

	snprintf(template, sizeof(template), "%s/ext4-%llum.img", dir, (unsigned long long) sizes[_i]);
	ck_assert_msg(disk_make(dir, sizes[_i], path, &err) == 0, "%s %s", err.msg, err_field(&err, "said"));
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_size, (off_t) (sizes[_i] << 20));
	ck_assert_int_lt(st.st_blocks * 512, 8 << 20); /* it costs what it holds */
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(run(fsck), 0);
	ck_assert_int_eq(access(template, R_OK), 0);
}
END_TEST

START_TEST(test_disk_uses_template)
{
	struct err err = ERR_NULL;
	CLEANUP_FREE char *data = NULL;
	size_t size;

	/* What stands in the cache is copied, so mkfs has not run again. */
	snprintf(template, sizeof(template), "%s/ext4-16m.img", dir);
	ck_assert_int_eq(file_replace(template, "template", 8, 0600), 0);
	ck_assert_int_eq(disk_make(dir, 16, path, &err), 0);
	ck_assert_int_eq(file_read(path, 100, &data, &size), 0);
	ck_assert_uint_eq(size, 8);
	ck_assert_int_eq(memcmp(data, "template", 8), 0);
}
END_TEST

START_TEST(test_disk_refusals)
{
	struct err err = ERR_NULL;

	ck_assert_int_lt(disk_make(dir, 15, path, &err), 0);
	ck_assert_int_eq(err.code, FAIL_INVALID_ARGUMENT);
	err = (struct err) ERR_NULL;
	ck_assert_int_lt(disk_make(dir, DISK_MIB_MAX + 1, path, &err), 0);
	ck_assert_int_eq(err.code, FAIL_INVALID_ARGUMENT);
	err = (struct err) ERR_NULL;
	ck_assert_int_lt(disk_make("/nowhere", 16, path, &err), 0);
	ck_assert_int_eq(err.code, FAIL_DISK_MAKE_FAILED);
	ck_assert_int_eq(err.err_no, ENOENT);
	ck_assert_int_eq(file_replace(path, "mine", 4, 0600), 0);
	err = (struct err) ERR_NULL;
	ck_assert_int_lt(disk_make(dir, 16, path, &err), 0);
	ck_assert_int_eq(err.err_no, EEXIST);
	ck_assert_int_eq(access(path, F_OK), 0); /* what was there is still there */
}
END_TEST

struct maker {
	pthread_t thread;
	char path[128];
	struct err err;
};

static void *make_one(void *user)
{
	struct maker *maker = user;

	(void) disk_make(dir, 64, maker->path, &maker->err);
	return NULL;
}

/* The first disks of a size, on a node whose first sandboxes start together: each thread finds no template. */
START_TEST(test_first_disks_at_once)
{
	struct maker makers[6] = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(makers); i++) {
		snprintf(makers[i].path, sizeof(makers[i].path), "%s/disk-%zu", dir, i);
		ck_assert_int_eq(pthread_create(&makers[i].thread, NULL, make_one, &makers[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(makers); i++)
		ck_assert_int_eq(pthread_join(makers[i].thread, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(makers); i++) {
		char *fsck[] = { (char[]) { "e2fsck" }, (char[]) { "-fn" }, makers[i].path, NULL };

		ck_assert_msg(!err_is_set(&makers[i].err), "%s", makers[i].err.msg);
		ck_assert_int_eq(run(fsck), 0);
	}
}
END_TEST

/* Data, hole, data, hole, as one would have it after use. */
START_TEST(test_copy_keeps_holes)
{
	CLEANUP_FD int from = -1, to = -1;
	char a[DIGEST_SIZE], b[DIGEST_SIZE], block[4096];
	struct err err = ERR_NULL;
	struct stat st;

	snprintf(template, sizeof(template), "%s/from", dir);
	from = open(template, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	to = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	memset(block, 'x', sizeof(block));
	ck_assert_int_eq(fd_pwrite_all(from, block, sizeof(block), 1 << 20), 0);
	ck_assert_int_eq(fd_pwrite_all(from, block, 100, (50 << 20) + 7), 0);
	ck_assert_int_eq(ftruncate(from, 200 << 20), 0);
	ck_assert_int_eq(disk_copy(from, to), 0);
	ck_assert_int_eq(fstat(to, &st), 0);
	ck_assert_int_eq(st.st_size, 200 << 20);
	ck_assert_int_lt(st.st_blocks * 512, 1 << 20);
	ck_assert_int_eq(digest_fd(from, a, &err), 0);
	ck_assert_int_eq(digest_fd(to, b, &err), 0);
	ck_assert_str_eq(a, b);
}
END_TEST

START_TEST(test_digest)
{
	char digest[DIGEST_SIZE];
	struct err err = ERR_NULL;

	ck_assert_int_eq(file_replace(path, "abc", 3, 0600), 0);
	ck_assert_int_eq(digest_file(path, digest, &err), 0);
	ck_assert_str_eq(digest, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	ck_assert(digest_is_valid(digest));
	ck_assert(!digest_is_valid("sha256:BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
	ck_assert(!digest_is_valid("sha256:ba7816"));
	ck_assert(!digest_is_valid("md5:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad--"));
	ck_assert(!digest_is_valid(""));
	ck_assert_int_lt(digest_file("/nowhere", digest, &err), 0);
	ck_assert_int_eq(err.code, FAIL_IO_FAILED);
}
END_TEST

START_TEST(test_child)
{
	char *missing[] = { (char[]) { "croft-no-such-tool" }, NULL };
	char *fails[] = { (char[]) { "sh" }, (char[]) { "-c" }, (char[]) { "echo one >&2; echo two >&2; exit 3" }, NULL };
	CLEANUP(child_deinit) struct child child = CHILD_NULL;
	char said[CHILD_SAID_MAX];
	int status;

	ck_assert_int_eq(child_start(&child, missing, NULL, -1), -ENOENT);
	ck_assert_int_eq(child_start(&child, fails, NULL, -1), 0);
	ck_assert_int_eq(child_wait(&child, &status, said), 0);
	ck_assert_int_eq(status, 3);
	ck_assert_str_eq(said, "one two");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("image-disk");
	TCase *t = tcase_create("disk");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, test_disk, 0, (int) ARRAY_LEN(sizes));
	tcase_add_test(t, test_disk_uses_template);
	tcase_add_test(t, test_disk_refusals);
	tcase_add_test(t, test_first_disks_at_once);
	tcase_add_test(t, test_copy_keeps_holes);
	tcase_add_test(t, test_digest);
	tcase_add_test(t, test_child);
	suite_add_tcase(suite, t);
	return suite_run(suite);
}
