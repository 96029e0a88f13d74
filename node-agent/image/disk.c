/* SPDX-License-Identifier: Apache-2.0
 *
 * See disk.h.
 */
#include "image/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/limit.h"
#include "image/child.h"
#include "image/newfile.h"

#define COPY_MAX (64 << 20) /* of one call: a signal or the end of the process waits no longer */
#define JOURNAL_MIB_MIN 128 /* from this size on the journal is 16 MiB; below, what mkfs thinks */

static int disk_failed(struct err *reterr, int err_no, const char *what, const char *path)
{
	enum fail_code code = err_no == ENOSPC || err_no == EDQUOT ? FAIL_DISK_FULL : FAIL_DISK_MAKE_FAILED;

	if (limit_is_reached(reterr, STAGE_DISK, LIMIT_FILE, err_no, what))
		return -err_no;
	return err_set(reterr, code, err_no, "%s %.160s", what, path);
}

static int run_mkfs(const char *path, uint64_t size_mib, struct err *reterr)
{
	/* The file is a hole: its inode tables are zero already, so neither mkfs nor the guest's kernel need
	 * write them. No blocks for root: the disk is one sandbox's. */
	char *argv[] = { (char[]) { "mkfs.ext4" }, (char[]) { "-q" }, (char[]) { "-F" }, (char[]) { "-m" },
		(char[]) { "0" }, (char[]) { "-L" }, (char[]) { "croft" }, (char[]) { "-E" },
		(char[]) { "assume_storage_prezeroed=1,nodiscard,root_owner=0:0" }, (char[]) { "-J" },
		(char[]) { "size=16" }, NULL, NULL };
	const size_t n = ARRAY_LEN(argv), with_journal = n - 2, without_journal = n - 4;
	CLEANUP(child_deinit) struct child child = CHILD_NULL;
	char said[CHILD_SAID_MAX];
	int status = 0, r;

	argv[size_mib >= JOURNAL_MIB_MIN ? with_journal : without_journal] = (char *) (uintptr_t) path;
	if (size_mib < JOURNAL_MIB_MIN)
		argv[without_journal + 1] = NULL;
	r = child_start(&child, argv, NULL, -1);
	if (r == 0)
		r = child_wait(&child, &status, said);
	if (r < 0 && limit_is_reached(reterr, STAGE_DISK, LIMIT_PROCESS, -r, "mkfs.ext4 could not be run"))
		return r;
	if (r < 0)
		return err_set(reterr, FAIL_DISK_MAKE_FAILED, -r, "mkfs.ext4 could not be run");
	if (status != 0) {
		r = err_set(reterr, FAIL_DISK_MAKE_FAILED, EIO, "mkfs.ext4 ended with status %d", status);
		err_add(reterr, "said", "%s", said);
		return r;
	}
	return 0;
}

static int make_template(const char *path, uint64_t size_mib, struct err *reterr)
{
	CLEANUP(newfile_deinit) struct newfile file = NEWFILE_NULL;
	int r = newfile_open(&file, path, 0600, FAIL_DISK_MAKE_FAILED, reterr);

	if (r < 0)
		return r;
	if (ftruncate(file.fd, (off_t) (size_mib << 20)) < 0)
		return disk_failed(reterr, errno, "cannot set the size of", file.temporary);
	r = run_mkfs(file.temporary, size_mib, reterr);
	if (r < 0)
		return r;
	return newfile_commit(&file, FAIL_DISK_MAKE_FAILED, reterr);
}

static int copy_extent(int from, int to, off_t start, off_t end)
{
	off_t in = start, out = start;

	while (in < end) {
		ssize_t n = copy_file_range(from, &in, to, &out, (size_t) MIN(end - in, (off_t) COPY_MAX), 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO; /* the file became shorter */
	}
	return 0;
}

/* Where copy_file_range() cannot (other file system, old kernel). */
static int copy_extent_by_hand(int from, int to, off_t start, off_t end)
{
	char chunk[65536];

	while (start < end) {
		size_t n = (size_t) MIN((off_t) sizeof(chunk), end - start);
		int r = fd_pread_all(from, chunk, n, start);

		if (r == 0)
			r = fd_pwrite_all(to, chunk, n, start);
		if (r < 0)
			return r;
		start += (off_t) n;
	}
	return 0;
}

int disk_share(int from, int to)
{
	return ioctl(to, FICLONE, from) < 0 ? -errno : 0;
}

int disk_copy(int from, int to)
{
	struct stat st;
	off_t end = 0;

	if (disk_share(from, to) == 0)
		return 0;
	if (fstat(from, &st) < 0 || ftruncate(to, st.st_size) < 0)
		return -errno;
	for (;;) {
		off_t start = lseek(from, end, SEEK_DATA);
		int r;

		if (start < 0 && errno == ENXIO)
			return 0; /* a hole up to the end */
		if (start < 0)
			return -errno;
		end = lseek(from, start, SEEK_HOLE);
		if (end < 0)
			return -errno;
		r = copy_extent(from, to, start, end);
		if (r == -EXDEV || r == -EINVAL || r == -ENOSYS || r == -EOPNOTSUPP)
			r = copy_extent_by_hand(from, to, start, end);
		if (r < 0)
			return r;
	}
}

static int open_template(const char *cache, uint64_t size_mib, int *ret, struct err *reterr)
{
	char path[PATH_MAX];
	int r;

	if (snprintf(path, sizeof(path), "%s/ext4-%" PRIu64 "m.img", cache, size_mib) >= (int) sizeof(path))
		return disk_failed(reterr, ENAMETOOLONG, "too long is", cache);
	*ret = open(path, O_RDONLY | O_CLOEXEC);
	if (*ret >= 0)
		return 0;
	r = make_template(path, size_mib, reterr);
	if (r < 0)
		return r;
	*ret = open(path, O_RDONLY | O_CLOEXEC);
	return *ret < 0 ? disk_failed(reterr, errno, "cannot open", path) : 0;
}

int disk_make(const char *cache, uint64_t size_mib, const char *path, struct err *reterr)
{
	CLEANUP_FD int from = -1, to = -1;
	int r;

	if (size_mib < DISK_MIB_MIN || size_mib > DISK_MIB_MAX)
		return err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "a disk has %d MiB to 16 TiB", DISK_MIB_MIN);
	r = open_template(cache, size_mib, &from, reterr);
	if (r < 0)
		return r;
	to = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (to < 0)
		return disk_failed(reterr, errno, "cannot make", path);
	r = disk_copy(from, to);
	if (r < 0) {
		(void) unlink(path); /* the cause is what the caller wants to know */
		return disk_failed(reterr, -r, "cannot fill", path);
	}
	return 0;
}
