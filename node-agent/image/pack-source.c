/* SPDX-License-Identifier: Apache-2.0
 *
 * See pack-source.h and pack.h.
 */
#include "image/pack-source.h"

#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"

static void archive_freep(struct archive **archive)
{
	if (*archive)
		(void) archive_free(*archive); /* what matters was closed before */
}

/* ---- one entry ---- */

static bool path_is_safe(const char *path)
{
	if (*path == '/' || *path == '\0')
		return false;
	for (const char *part = path; part; part = strchr(part, '/')) {
		part += *part == '/';
		if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || part[2] == '\0'))
			return false;
	}
	return true;
}

static int check_path(const char *path, const char *what, struct err *reterr)
{
	int r;

	if (path && path_is_safe(path))
		return 0;
	r = err_set(reterr, FAIL_IMAGE_UNSAFE_PATH, EINVAL, "%s leads outside the root", what);
	err_add(reterr, "entry", "%s", path ? path : "(a name that cannot be read)");
	return r;
}

static int check_entry(struct pack *pack, struct archive_entry *entry, struct err *reterr)
{
	int64_t size = archive_entry_size(entry);
	int r = check_path(archive_entry_pathname(entry), "an entry", reterr);

	if (r == 0 && archive_entry_hardlink(entry))
		r = check_path(archive_entry_hardlink(entry), "a hard link", reterr);
	if (r < 0)
		return r;
	if (++pack->entries > PACK_ENTRIES_MAX || size > (int64_t) PACK_BYTES_MAX ||
		(pack->bytes += (uint64_t) MAX(size, 0)) > PACK_BYTES_MAX) {
		r = err_set(reterr, FAIL_IMAGE_TOO_LARGE, EFBIG, "the root file system is too large");
		err_add(reterr, "limit", "%u entries, %llu bytes", PACK_ENTRIES_MAX,
			(unsigned long long) PACK_BYTES_MAX);
		return r;
	}
	return 0;
}

/* Devices are the guest's own, sockets have nobody behind them. A hard link has no type of its own. */
static bool entry_is_dropped(struct archive_entry *entry)
{
	switch (archive_entry_filetype(entry)) {
	case AE_IFREG:
	case AE_IFDIR:
	case AE_IFLNK:
	case AE_IFIFO:
		return false;
	default:
		return !archive_entry_hardlink(entry);
	}
}

static bool xattr_is_kept(const char *name)
{
	return !strncmp(name, "user.", 5) || !strcmp(name, "security.capability");
}

/* Attributes of the machine it was made on, and of overlays, mean nothing in the sandbox or too much. */
static int clean_xattrs(struct archive_entry *entry)
{
	struct archive_entry *kept = archive_entry_new();
	const char *name;
	const void *value;
	size_t size;

	if (!kept)
		return -ENOMEM;
	(void) archive_entry_xattr_reset(entry);
	while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK)
		if (xattr_is_kept(name))
			archive_entry_xattr_add_entry(kept, name, value, size);
	archive_entry_xattr_clear(entry);
	(void) archive_entry_xattr_reset(kept);
	while (archive_entry_xattr_next(kept, &name, &value, &size) == ARCHIVE_OK)
		archive_entry_xattr_add_entry(entry, name, value, size);
	archive_entry_free(kept);
	archive_entry_acl_clear(entry);
	archive_entry_set_fflags(entry, 0, 0);
	return 0;
}

/* The tar goes to tar2sqfs alone: if it cannot be written, that has ended. */
static int put_header(struct archive *out, struct archive_entry *entry)
{
	int r = clean_xattrs(entry);

	if (r < 0)
		return r;
	/* WARN: a name that is no UTF-8 is written as the bytes it has. */
	return archive_write_header(out, entry) < ARCHIVE_WARN ? -EPIPE : 0;
}

static int put_data(struct archive *out, const void *data, size_t size)
{
	return archive_write_data(out, data, size) == (la_ssize_t) size ? 0 : -EPIPE;
}

static void progress(const struct pack *pack)
{
	if (pack->progress)
		pack->progress(pack->userdata, pack->entries, pack->bytes);
}

/* ---- an archive ---- */

static int tar_failed(struct archive *in, struct err *reterr)
{
	const char *text = archive_error_string(in);

	return err_set(reterr, FAIL_IMAGE_INVALID, EINVAL, "the archive cannot be read: %.160s",
		text ? text : "unknown");
}

static int tar_data(struct archive *in, struct archive *out, struct err *reterr)
{
	static const char zeros[4096];
	const void *block;
	int64_t at = 0, offset;
	size_t size;
	int r;

	while ((r = archive_read_data_block(in, &block, &size, &offset)) == ARCHIVE_OK) {
		for (; at < offset; at += (int64_t) MIN(sizeof(zeros), (size_t) (offset - at))) /* a hole */
			if (put_data(out, zeros, MIN(sizeof(zeros), (size_t) (offset - at))) < 0)
				return -EPIPE;
		if (put_data(out, block, size) < 0)
			return -EPIPE;
		at = offset + (int64_t) size;
	}
	return r == ARCHIVE_EOF ? 0 : tar_failed(in, reterr);
}

static int tar_entry(struct pack *pack, struct archive *in, struct archive_entry *entry, struct archive *out,
	struct err *reterr)
{
	int r;

	if (entry_is_dropped(entry)) {
		pack->dropped++;
		return 0;
	}
	r = check_entry(pack, entry, reterr);
	if (r == 0) {
		archive_entry_sparse_clear(entry); /* holes are written as zeros, which squashfs stores as holes */
		r = put_header(out, entry);
	}
	if (r == 0 && archive_entry_size(entry) > 0)
		r = tar_data(in, out, reterr);
	progress(pack);
	return r;
}

/* The compressions that people give a tar. Not all that libarchive knows: for some it starts a program, which whoever
 * made the file would choose. */
static int tar_filters(struct archive *in)
{
	int (*const filters[])(struct archive *) = { archive_read_support_filter_gzip, archive_read_support_filter_xz,
		archive_read_support_filter_zstd, archive_read_support_filter_bzip2, archive_read_support_filter_lz4 };

	for (size_t i = 0; i < ARRAY_LEN(filters); i++) {
		int r = filters[i](in);

		if (r != ARCHIVE_OK) /* a warning says that the library was built without it and would start a program */
			return r;
	}
	return ARCHIVE_OK;
}

int pack_tar(struct pack *pack, const char *rootfs, struct archive *out, struct err *reterr)
{
	CLEANUP(archive_freep) struct archive *in = archive_read_new();
	struct archive_entry *entry;
	int r;

	if (!in)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory to read an archive");
	if (tar_filters(in) != ARCHIVE_OK || archive_read_support_format_tar(in) ||
		archive_read_open_filename(in, rootfs, 1 << 16))
		return tar_failed(in, reterr);
	while ((r = archive_read_next_header(in, &entry)) >= ARCHIVE_WARN && r != ARCHIVE_EOF) {
		r = tar_entry(pack, in, entry, out, reterr);
		if (r < 0)
			return r;
	}
	if (r != ARCHIVE_EOF)
		return tar_failed(in, reterr);
	if (pack->entries == 0)
		return err_set(reterr, FAIL_IMAGE_INVALID, EINVAL, "the archive is empty");
	return 0;
}

/* ---- a folder ---- */

struct walk {
	struct pack *pack;
	struct archive *disk;
	struct archive *out;
	struct archive_entry_linkresolver *links;
	size_t root_length;
};

static int walk_failed(const char *path, int err_no, struct err *reterr)
{
	int r = err_set(reterr, FAIL_IMAGE_INVALID, err_no, "a file of the folder cannot be read");

	err_add(reterr, "entry", "%s", path);
	return r;
}

static int file_data(struct walk *walk, const char *path, int64_t size, struct err *reterr)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
	char chunk[65536];

	if (fd < 0)
		return walk_failed(path, errno, reterr);
	while (size > 0) {
		ssize_t n = read(fd, chunk, (size_t) MIN(size, (int64_t) sizeof(chunk)));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) /* it became shorter while it was packed */
			return walk_failed(path, n < 0 ? errno : EIO, reterr);
		if (put_data(walk->out, chunk, (size_t) n) < 0)
			return -EPIPE;
		size -= n;
	}
	return 0;
}

static int walk_one(struct walk *walk, const FTSENT *node, struct archive_entry *entry, struct err *reterr)
{
	const char *name = node->fts_path + walk->root_length;
	struct archive_entry *sparse = NULL;
	int r;

	while (*name == '/')
		name++;
	archive_entry_copy_sourcepath(entry, node->fts_accpath);
	archive_entry_copy_pathname(entry, *name ? name : "./");
	if (archive_read_disk_entry_from_file(walk->disk, entry, -1, node->fts_statp) < ARCHIVE_WARN)
		return walk_failed(node->fts_path, archive_errno(walk->disk), reterr);
	if (entry_is_dropped(entry)) {
		walk->pack->dropped++;
		return 0;
	}
	/* A second name of a file becomes a hard link to the first. */
	archive_entry_linkify(walk->links, &entry, &sparse);
	r = check_entry(walk->pack, entry, reterr);
	if (r == 0)
		r = put_header(walk->out, entry);
	if (r == 0 && archive_entry_size(entry) > 0)
		r = file_data(walk, node->fts_accpath, archive_entry_size(entry), reterr);
	progress(walk->pack);
	return r;
}

static int walk_node(struct walk *walk, const FTSENT *node, struct err *reterr)
{
	struct archive_entry *entry;
	int r;

	if (node->fts_info == FTS_DP)
		return 0;
	if (node->fts_info == FTS_DNR || node->fts_info == FTS_ERR || node->fts_info == FTS_NS)
		return walk_failed(node->fts_path, node->fts_errno, reterr);
	entry = archive_entry_new();
	if (!entry)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory to read a folder");
	r = walk_one(walk, node, entry, reterr);
	archive_entry_free(entry);
	return r;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void fts_closep(FTS **fts)
{
	if (*fts)
		(void) fts_close(*fts);
}

static void linksp(struct archive_entry_linkresolver **links)
{
	archive_entry_linkresolver_free(*links); /* NULL is fine */
}

int pack_dir(struct pack *pack, const char *rootfs, struct archive *out, struct err *reterr)
{
	char *paths[2] = { (char *) (uintptr_t) rootfs, NULL };
	CLEANUP(fts_closep) FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, by_name);
	CLEANUP(archive_freep) struct archive *disk = archive_read_disk_new();
	CLEANUP(linksp) struct archive_entry_linkresolver *links = archive_entry_linkresolver_new();
	struct walk walk = { pack, disk, out, links, strlen(rootfs) };
	FTSENT *node;
	int r;

	if (!fts || !disk || !links)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory to read a folder");
	archive_entry_linkresolver_set_strategy(links, ARCHIVE_FORMAT_TAR_PAX_RESTRICTED);
	(void) archive_read_disk_set_symlink_physical(disk);
	(void) archive_read_disk_set_behavior(disk, ARCHIVE_READDISK_NO_ACL | ARCHIVE_READDISK_NO_FFLAGS);
	while ((errno = 0, node = fts_read(fts))) {
		r = walk_node(&walk, node, reterr);
		if (r < 0)
			return r;
	}
	return errno ? walk_failed(rootfs, errno, reterr) : 0;
}
