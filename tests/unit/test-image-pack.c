/* SPDX-License-Identifier: Apache-2.0
 *
 * image/pack: what is in the image, read back through sqfs2tar (of the same package as tar2sqfs); what is
 * refused, and that then nothing is left.
 */
#include <archive.h>
#include <archive_entry.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "image/digest.h"
#include "image/pack.h"
#include "lib/suite.h"

static char dir[64], tar[96], image[96], listing[160];

static void setup(void)
{
	strcpy(dir, "/tmp/croft-pack-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(tar, sizeof(tar), "%s/root.tar", dir);
	snprintf(image, sizeof(image), "%s/image.sqfs", dir);
	(void) signal(SIGPIPE, SIG_IGN);
	ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C.UTF-8"));
}

static void teardown(void)
{
	ck_assert_int_eq(dir_remove(dir), 0);
}

/* ---- an archive, entry by entry ---- */

struct entry {
	const char *name;
	mode_t mode;
	const char *data; /* content, or where a link leads */
	bool is_hardlink;
	uid_t uid;
};

static void add(struct archive *archive, const struct entry *e)
{
	struct archive_entry *entry = archive_entry_new();
	size_t size = S_ISREG(e->mode) && !e->is_hardlink && e->data ? strlen(e->data) : 0;

	archive_entry_copy_pathname(entry, e->name);
	archive_entry_set_mode(entry, e->mode);
	archive_entry_set_uid(entry, e->uid);
	archive_entry_set_gid(entry, (la_int64_t) e->uid);
	archive_entry_set_mtime(entry, 1000000000, 0);
	archive_entry_set_size(entry, (la_int64_t) size);
	if (e->is_hardlink)
		archive_entry_copy_hardlink(entry, e->data);
	else if (S_ISLNK(e->mode))
		archive_entry_copy_symlink(entry, e->data);
	if (S_ISCHR(e->mode) || S_ISBLK(e->mode))
		archive_entry_set_rdev(entry, 0x103);
	ck_assert_int_ge(archive_write_header(archive, entry), ARCHIVE_WARN);
	ck_assert_int_eq(archive_write_data(archive, e->data, size), (la_ssize_t) size);
	archive_entry_free(entry);
}

static void write_tar(const struct entry *entries, size_t n, int filter)
{
	struct archive *archive = archive_write_new();

	ck_assert_int_eq(archive_write_set_format_pax_restricted(archive), ARCHIVE_OK);
	ck_assert_int_eq(archive_write_add_filter(archive, filter), ARCHIVE_OK);
	ck_assert_int_eq(archive_write_open_filename(archive, tar), ARCHIVE_OK);
	for (size_t i = 0; i < n; i++)
		add(archive, &entries[i]);
	ck_assert_int_eq(archive_write_close(archive), ARCHIVE_OK);
	archive_write_free(archive);
}

/* ---- what the image holds ---- */

static struct archive *open_image(FILE **ret)
{
	struct archive *archive = archive_read_new();

	snprintf(listing, sizeof(listing), "sqfs2tar '%s'", image);
	*ret = popen(listing, "re");
	ck_assert_ptr_nonnull(*ret);
	archive_read_support_format_tar(archive);
	ck_assert_int_eq(archive_read_open_FILE(archive, *ret), ARCHIVE_OK);
	return archive;
}

/* True: it is there, as described. */
static bool image_has(const struct entry *e)
{
	struct archive_entry *entry;
	bool found = false;
	FILE *pipe;
	struct archive *archive = open_image(&pipe);

	while (archive_read_next_header(archive, &entry) == ARCHIVE_OK) {
		char data[256] = "";

		if (strcmp(archive_entry_pathname(entry), e->name) != 0)
			continue;
		found = true;
		if (e->is_hardlink || archive_entry_hardlink(entry)) /* either of the two names may be the first */
			continue;
		ck_assert_uint_eq(archive_entry_mode(entry), e->mode);
		ck_assert_int_eq(archive_entry_uid(entry), e->uid);
		ck_assert_int_eq(archive_entry_mtime(entry), 1000000000);
		if (S_ISLNK(e->mode))
			ck_assert_str_eq(archive_entry_symlink(entry), e->data);
		if (S_ISREG(e->mode) && e->data) {
			ck_assert_int_ge(archive_read_data(archive, data, sizeof(data) - 1), 0);
			ck_assert_str_eq(data, e->data);
		}
	}
	archive_read_free(archive);
	(void) pclose(pipe);
	return found;
}

static void make(const char *rootfs)
{
	struct pack pack = { 0 };
	struct err err = ERR_NULL;

	ck_assert_msg(pack_make(&pack, rootfs, image, &err) == 0, "%s: %s", err.msg,
		err_field(&err, "said") ? err_field(&err, "said") : "");
	ck_assert_uint_gt(pack.entries, 0);
}

static const struct entry good[] = {
	{ "etc/", S_IFDIR | 0755, NULL, false, 0 },
	{ "etc/passwd", S_IFREG | 0644, "root:x:0:0::/:/bin/sh\n", false, 0 },
	{ "bin/su", S_IFREG | 04755, "set user id", false, 0 },
	{ "bin/write", S_IFREG | 02711, "set group id", false, 5 },
	{ "home/user/", S_IFDIR | 0700, NULL, false, 1000 },
	{ "home/user/empty", S_IFREG | 0600, "", false, 1000 },
	{ "big-owner", S_IFREG | 0600, "x", false, 3000000000u },
	{ "abs", S_IFLNK | 0777, "/etc/passwd", false, 0 },
	{ "up", S_IFLNK | 0777, "../../../etc/passwd", false, 0 }, /* inside the sandbox it leads nowhere bad */
	{ "etc/passwd-", S_IFREG | 0644, "etc/passwd", true, 0 },
	{ "fifo", S_IFIFO | 0600, NULL, false, 0 },
	{ "sticky/", S_IFDIR | 01777, NULL, false, 0 },
	{ "name with space", S_IFREG | 0644, "s", false, 0 },
	{ "\xc3\xbc" "tf8", S_IFREG | 0644, "u", false, 0 },
	{ "latin\xe4", S_IFREG | 0644, "l", false, 0 },
	{ "dots..in..name", S_IFREG | 0644, "d", false, 0 },
	{ "...", S_IFREG | 0644, "three", false, 0 },
	{ "a-name-of-more-than-a-hundred-bytes-which-does-not-fit-into-the-field-of-a-tar-header-and-so-needs-an-extended"
		"-header", S_IFREG | 0644, "long", false, 0 },
};

START_TEST(test_kept)
{
	struct entry expected = good[_i];
	char name[256];

	write_tar(good, ARRAY_LEN(good), ARCHIVE_FILTER_NONE);
	make(tar);
	if (S_ISDIR(expected.mode) && expected.name[strlen(expected.name) - 1] != '/') {
		snprintf(name, sizeof(name), "%s/", expected.name);
		expected.name = name;
	}
	ck_assert_msg(image_has(&expected), "%s is missing", good[_i].name);
}
END_TEST

static const int filters[] = { ARCHIVE_FILTER_NONE, ARCHIVE_FILTER_GZIP, ARCHIVE_FILTER_XZ, ARCHIVE_FILTER_ZSTD };

/* However it is compressed, and however often it is made: the same bytes. */
START_TEST(test_same_bytes)
{
	char one[DIGEST_SIZE], two[DIGEST_SIZE];
	struct err err = ERR_NULL;

	write_tar(good, ARRAY_LEN(good), ARCHIVE_FILTER_NONE);
	make(tar);
	ck_assert_int_eq(digest_file(image, one, &err), 0);
	write_tar(good, ARRAY_LEN(good), filters[_i]);
	make(tar);
	ck_assert_int_eq(digest_file(image, two, &err), 0);
	ck_assert_str_eq(one, two);
}
END_TEST

static const struct entry devices[] = {
	{ "dev/", S_IFDIR | 0755, NULL, false, 0 },
	{ "dev/mem", S_IFCHR | 0666, NULL, false, 0 },
	{ "dev/sda", S_IFBLK | 0666, NULL, false, 0 },
	{ "file", S_IFREG | 0666, "x", false, 0 },
};

START_TEST(test_devices_are_left_out)
{
	struct pack pack = { 0 };
	struct err err = ERR_NULL;

	write_tar(devices, ARRAY_LEN(devices), ARCHIVE_FILTER_NONE);
	ck_assert_int_eq(pack_make(&pack, tar, image, &err), 0);
	ck_assert_uint_eq(pack.dropped, 2);
	ck_assert_uint_eq(pack.entries, 2);
	ck_assert(image_has(&devices[3]));
	ck_assert(!image_has(&devices[1]));
	ck_assert(!image_has(&devices[2]));
}
END_TEST

static const struct entry unsafe[] = {
	{ "/etc/passwd", S_IFREG | 0644, "x", false, 0 },
	{ "../etc/passwd", S_IFREG | 0644, "x", false, 0 },
	{ "a/../../b", S_IFREG | 0644, "x", false, 0 },
	{ "a/../", S_IFDIR | 0755, NULL, false, 0 },
	{ "../", S_IFDIR | 0755, NULL, false, 0 },
	{ "./../x", S_IFLNK | 0777, "y", false, 0 },
	{ "link", S_IFREG | 0644, "/etc/shadow", true, 0 },
	{ "link", S_IFREG | 0644, "../../etc/shadow", true, 0 },
	{ "a//../b", S_IFREG | 0644, "x", false, 0 },
};

static void expect_refused(const char *rootfs, enum fail_code code, const char *entry)
{
	struct pack pack = { 0 };
	struct err err = ERR_NULL;

	ck_assert_int_lt(pack_make(&pack, rootfs, image, &err), 0);
	ck_assert_str_eq(failure_info(err.code)->name, failure_info(code)->name);
	if (entry)
		ck_assert_str_eq(err_field(&err, "entry"), entry);
	(void) unlink(tar);
	ck_assert_int_eq(rmdir(dir), 0); /* neither an image nor a temporary file */
	ck_assert_int_eq(mkdir(dir, 0700), 0);
}

START_TEST(test_unsafe)
{
	const struct entry entries[] = { { "ok", S_IFREG | 0644, "x", false, 0 }, unsafe[_i] };

	write_tar(entries, 2, ARCHIVE_FILTER_NONE);
	expect_refused(tar, FAIL_IMAGE_UNSAFE_PATH, unsafe[_i].is_hardlink ? unsafe[_i].data : unsafe[_i].name);
}
END_TEST

/* An entry below a link cannot be: the packer must not follow it, here or anywhere. */
START_TEST(test_through_link)
{
	static const struct entry entries[] = {
		{ "link", S_IFLNK | 0777, "/tmp", false, 0 },
		{ "link/x", S_IFREG | 0644, "x", false, 0 },
	};

	write_tar(entries, ARRAY_LEN(entries), ARCHIVE_FILTER_NONE);
	expect_refused(tar, FAIL_IMAGE_INVALID, NULL);
}
END_TEST

START_TEST(test_not_a_rootfs)
{
	expect_refused("/nowhere", FAIL_IMAGE_INVALID, NULL);
	expect_refused("/dev/null", FAIL_IMAGE_INVALID, NULL);
	ck_assert_int_eq(file_replace(tar, "hello", 5, 0600), 0);
	expect_refused(tar, FAIL_IMAGE_INVALID, NULL);
	ck_assert_int_eq(file_replace(tar, "", 0, 0600), 0);
	expect_refused(tar, FAIL_IMAGE_INVALID, NULL);
	write_tar(NULL, 0, ARCHIVE_FILTER_NONE);
	expect_refused(tar, FAIL_IMAGE_INVALID, NULL);
}
END_TEST

START_TEST(test_cut_archive)
{
	write_tar(good, ARRAY_LEN(good), filters[_i]);
	ck_assert_int_eq(truncate(tar, filters[_i] == ARCHIVE_FILTER_NONE ? 2100 : 300), 0);
	expect_refused(tar, FAIL_IMAGE_INVALID, NULL);
}
END_TEST

/* A compression for which libarchive would start a program by its name. */
START_TEST(test_no_program_is_started)
{
	static const char grzip[] = "GRZipII\0\2\4:)and what it compressed";
	char programs[] = "/tmp/croft-pack-XXXXXX", program[128], witness[128], script[192], path[160];
	struct stat st;

	ck_assert_ptr_nonnull(mkdtemp(programs));
	snprintf(program, sizeof(program), "%s/grzip", programs);
	snprintf(witness, sizeof(witness), "%s/was-started", programs);
	snprintf(script, sizeof(script), "#!/bin/sh\n>%s\n", witness);
	snprintf(path, sizeof(path), "%s:/usr/bin:/bin", programs);
	ck_assert_int_eq(file_replace(program, script, strlen(script), 0700), 0);
	ck_assert_int_eq(setenv("PATH", path, 1), 0);
	ck_assert_int_eq(file_replace(tar, grzip, sizeof(grzip) - 1, 0600), 0);
	expect_refused(tar, FAIL_IMAGE_INVALID, NULL);
	ck_assert_int_lt(stat(witness, &st), 0);
	ck_assert_int_eq(dir_remove(programs), 0);
}
END_TEST

START_TEST(test_image_cannot_be_written)
{
	struct pack pack = { 0 };
	struct err err = ERR_NULL;

	write_tar(good, ARRAY_LEN(good), ARCHIVE_FILTER_NONE);
	ck_assert_int_lt(pack_make(&pack, tar, "/nowhere/image", &err), 0);
	ck_assert_int_eq(err.code, FAIL_IMAGE_WRITE_FAILED);
	ck_assert_int_eq(err.err_no, ENOENT);
}
END_TEST

/* A folder: names sorted, second names as hard links, sockets and other file systems left out. */
START_TEST(test_folder)
{
	const struct timespec times[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
	const struct entry first = { "b", S_IFREG | 04711, "content", false, geteuid() };
	const struct entry second = { "c", S_IFREG | 04711, "content", true, geteuid() };
	char root[96], path[128], other[128], a[DIGEST_SIZE], b[DIGEST_SIZE];
	struct err err = ERR_NULL;

	snprintf(root, sizeof(root), "%s/root/", dir); /* a slash at the end makes no difference */
	ck_assert_int_eq(mkdir(root, 0755), 0);
	snprintf(path, sizeof(path), "%sb", root);
	ck_assert_int_eq(file_replace(path, "content", 7, 0600), 0);
	ck_assert_int_eq(chmod(path, 04711), 0);
	snprintf(other, sizeof(other), "%sc", root);
	ck_assert_int_eq(link(path, other), 0);
	ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
	snprintf(other, sizeof(other), "%ssock", root);
	(void) fd_close(unix_listen(other, 1, 0600, 1));
	make(root);
	ck_assert(image_has(&first));
	ck_assert(image_has(&second));
	ck_assert(!image_has(&(struct entry){ "sock", S_IFSOCK, NULL, true, 0 }));
	ck_assert_int_eq(digest_file(image, a, &err), 0);
	make(root);
	ck_assert_int_eq(digest_file(image, b, &err), 0);
	ck_assert_str_eq(a, b);
}
END_TEST

START_TEST(test_squashfs_is_taken_as_it_is)
{
	char a[DIGEST_SIZE], b[DIGEST_SIZE];
	struct err err = ERR_NULL;

	write_tar(good, ARRAY_LEN(good), ARCHIVE_FILTER_NONE);
	make(tar);
	ck_assert_int_eq(digest_file(image, a, &err), 0);
	ck_assert_int_eq(rename(image, tar), 0);
	make(tar);
	ck_assert_int_eq(digest_file(image, b, &err), 0);
	ck_assert_str_eq(a, b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("image-pack");
	TCase *t = tcase_create("pack");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, test_kept, 0, (int) ARRAY_LEN(good));
	tcase_add_loop_test(t, test_same_bytes, 0, (int) ARRAY_LEN(filters));
	tcase_add_test(t, test_devices_are_left_out);
	tcase_add_loop_test(t, test_unsafe, 0, (int) ARRAY_LEN(unsafe));
	tcase_add_test(t, test_through_link);
	tcase_add_test(t, test_not_a_rootfs);
	tcase_add_loop_test(t, test_cut_archive, 0, (int) ARRAY_LEN(filters));
	tcase_add_test(t, test_no_program_is_started);
	tcase_add_test(t, test_image_cannot_be_written);
	tcase_add_test(t, test_folder);
	tcase_add_test(t, test_squashfs_is_taken_as_it_is);
	suite_add_tcase(suite, t);
	return suite_run(suite);
}
