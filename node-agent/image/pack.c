/* SPDX-License-Identifier: Apache-2.0
 *
 * See pack.h: a child tar2sqfs makes the squashfs from a tar stream that pack-source.c feeds it.
 */
#include "image/pack.h"

#include <archive.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "image/child.h"
#include "image/disk.h"
#include "image/newfile.h"
#include "image/pack-source.h"

#define SQUASHFS_MAGIC "hsqs"
#define SQUASHFS_SUPERBLOCK 96
#define LITTLE_SPACE (UINT64_C(1) << 20)

enum rootfs_kind { ROOTFS_DIR, ROOTFS_TAR, ROOTFS_SQUASHFS };

static int rootfs_kind(const char *rootfs, enum rootfs_kind *ret, struct err *reterr)
{
	CLEANUP_FD int fd = open(rootfs, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char magic[4];
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(reterr, FAIL_IMAGE_INVALID, errno, "cannot open %.160s", rootfs);
	if (S_ISDIR(st.st_mode))
		*ret = ROOTFS_DIR;
	else if (!S_ISREG(st.st_mode))
		return err_set(reterr, FAIL_IMAGE_INVALID, EINVAL, "%.160s is neither a folder nor a file", rootfs);
	else
		*ret = st.st_size >= SQUASHFS_SUPERBLOCK && fd_pread_all(fd, magic, sizeof(magic), 0) == 0 &&
				!memcmp(magic, SQUASHFS_MAGIC, sizeof(magic)) ?
			ROOTFS_SQUASHFS :
			ROOTFS_TAR;
	return 0;
}

static int write_failed(struct err *reterr, int err_no, const char *path)
{
	return err_set(reterr, FAIL_IMAGE_WRITE_FAILED, err_no, "cannot write %.160s", path);
}

static int take_squashfs(struct pack *pack, const char *rootfs, const struct newfile *file, struct err *reterr)
{
	CLEANUP_FD int fd = open(rootfs, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int r = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;

	if (r < 0)
		return err_set(reterr, FAIL_IMAGE_INVALID, -r, "cannot open %.160s", rootfs);
	r = disk_copy(fd, file->fd);
	if (r < 0)
		return write_failed(reterr, -r, file->path);
	pack->entries = 1;
	pack->bytes = (uint64_t) st.st_size;
	return 0;
}

static int start_tar2sqfs(struct child *child, const char *image, int stdin_fd, struct err *reterr)
{
	/* --no-skip: what it does not understand is an error. -f: the file exists, empty. */
	char *argv[] = { (char[]) { "tar2sqfs" }, (char[]) { "--quiet" }, (char[]) { "--no-skip" },
		(char[]) { "--force" },
		(char[]) { "--compressor" }, (char[]) { "zstd" }, (char[]) { "--comp-extra" },
		(char[]) { "level=9" },
		(char *) (uintptr_t) image, NULL };
	/* The time of the image itself; without it the same input would give other bytes. */
	char *env[] = { (char[]) { "SOURCE_DATE_EPOCH=0" }, (char[]) { "LC_ALL=C.UTF-8" }, NULL };
	int r = child_start(child, argv, env, stdin_fd);

	if (r < 0)
		return err_set(reterr, FAIL_IMAGE_WRITE_FAILED, -r,
			"tar2sqfs could not be run: install the package squashfs-tools-ng");
	return 0;
}

/* Where the tar stream goes. A stopped one takes nothing more, so that closing a cut archive writes no end that
 * would make it look whole. */
struct sink {
	int fd;
	bool is_stopped;
};

static la_ssize_t sink_write(struct archive *archive, void *userdata, const void *data, size_t size)
{
	const struct sink *sink = userdata;
	int r = sink->is_stopped ? -EPIPE : fd_write_all(sink->fd, data, size);

	if (r == 0)
		return (la_ssize_t) size;
	archive_set_error(archive, -r, "the reader is gone");
	return -1;
}

static int feed(struct pack *pack, enum rootfs_kind kind, const char *rootfs, int fd, struct err *reterr)
{
	struct archive *out = archive_write_new();
	struct sink sink = { .fd = fd };
	int r;

	if (!out)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory to write an archive");
	if (archive_write_set_format_pax_restricted(out) || archive_write_add_filter_none(out) ||
		archive_write_set_bytes_in_last_block(out, 512) || archive_write_open(out, &sink, NULL, sink_write, NULL))
		r = -EPIPE;
	else
		r = kind == ROOTFS_DIR ? pack_dir(pack, rootfs, out, reterr) : pack_tar(pack, rootfs, out, reterr);
	if (r == 0 && archive_write_close(out) != ARCHIVE_OK)
		r = -EPIPE;
	sink.is_stopped = r < 0;
	(void) archive_write_free(out);
	return r;
}

static int tool_failed(const struct newfile *file, int status, const char *said, struct err *reterr)
{
	struct statvfs vfs;
	int r;

	if (fstatvfs(file->fd, &vfs) == 0 && (uint64_t) vfs.f_bavail * vfs.f_frsize < LITTLE_SPACE)
		return write_failed(reterr, ENOSPC, file->path);
	r = err_set(reterr, FAIL_IMAGE_INVALID, EINVAL,
		"tar2sqfs refused the root file system with status %d", status);
	err_add(reterr, "said", "%s", said);
	return r;
}

static int make_squashfs(struct pack *pack, enum rootfs_kind kind, const char *rootfs,
	const struct newfile *file, struct err *reterr)
{
	CLEANUP(child_deinit) struct child child = CHILD_NULL;
	CLEANUP_FD int read_fd = -1, write_fd = -1;
	char said[CHILD_SAID_MAX];
	int fds[2], status, r, waited;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return write_failed(reterr, errno, file->path);
	read_fd = fds[0];
	write_fd = fds[1];
	r = start_tar2sqfs(&child, file->temporary, read_fd, reterr);
	if (r < 0)
		return r;
	read_fd = fd_close(read_fd);
	r = feed(pack, kind, rootfs, write_fd, reterr);
	write_fd = fd_close(write_fd);
	if (r < 0 && err_is_set(reterr))
		return r; /* the cause is known; what the tool makes of a cut stream is not asked */
	waited = child_wait(&child, &status, said);
	if (waited < 0)
		return write_failed(reterr, -waited, file->path);
	return r < 0 || status != 0 ? tool_failed(file, status, said, reterr) : 0;
}

int pack_make(struct pack *pack, const char *rootfs, const char *image, struct err *reterr)
{
	CLEANUP(newfile_deinit) struct newfile file = NEWFILE_NULL;
	struct err local = ERR_NULL;
	enum rootfs_kind kind = ROOTFS_TAR;
	int r;

	reterr = reterr ? reterr : &local;
	r = rootfs_kind(rootfs, &kind, reterr);
	if (r == 0)
		r = newfile_open(&file, image, 0644, FAIL_IMAGE_WRITE_FAILED, reterr);
	if (r == 0)
		r = kind == ROOTFS_SQUASHFS ? take_squashfs(pack, rootfs, &file, reterr)
					    : make_squashfs(pack, kind, rootfs, &file, reterr);
	if (r < 0)
		return r;
	return newfile_commit(&file, FAIL_IMAGE_WRITE_FAILED, reterr);
}
