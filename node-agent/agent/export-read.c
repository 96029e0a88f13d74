/* SPDX-License-Identifier: Apache-2.0
 *
 * See export.h: the archive is read, by nobody's leave but its digests'. Its names are ours or it is refused; nothing is written
 * outside a directory that is new.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/export-private.h"
#include "agent/export.h"
#include "agent/snapshots.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/rng.h"

#define BLOCK ((size_t)1 << 20)
#define HOLE ((size_t)4096)
#define SMALL_MAX ((size_t)1 << 20) /* of what is no file of the snapshot */

enum part { PART_STATE, PART_MEMORY, PART_DISK, PART_IMAGE, PART_RECIPE, PART_RESULTS, PART_USAGE, PART_CONSOLE, PART_LOG, PARTS };

static const struct {
	const char *name;
	bool is_kept;
} parts[PARTS] = { { "state", true }, { "memory", true }, { "disk", true }, { "image", true }, { "recipe.json", false },
	{ "results.json", false }, { "usage.json", false }, { "console", false }, { "vmm.log", false } };

struct reader {
	struct archive *archive;
	char dir[PATH_MAX];
	struct {
		bool is_there;
		uint64_t size;
		char sha256[EXPORT_HEX_SIZE];
	} found[PARTS];
	json_t *manifest;
	uint8_t *block;
};

static int invalid(struct err *reterr, const char *what, const char *which)
{
	(void)err_set(reterr, FAIL_EXPORT_INVALID, EBADMSG, "%s: %.100s", what, which);
	return -EBADMSG;
}

static int cut(struct reader *reader, struct err *reterr)
{
	const char *why = archive_error_string(reader->archive);

	return invalid(reterr, "the archive cannot be read", why ? why : "it ends too early");
}

/* Zeroes become holes: a VM's memory is mostly that. */
static int write_sparse(int fd, const uint8_t *data, size_t size, uint64_t at)
{
	static const uint8_t zero[HOLE];
	int r = 0;

	for (size_t i = 0; i < size && r == 0; i += HOLE) {
		size_t n = MIN(size - i, HOLE);

		if (memcmp(data + i, zero, n) != 0)
			r = fd_pwrite_all(fd, data + i, n, (off_t)(at + i));
	}
	return r;
}

static int take_part(struct reader *reader, enum part part, struct err *reterr)
{
	char path[PATH_MAX];
	CLEANUP_FD int fd = -1;
	EVP_MD_CTX *sum = export_sum_new();
	uint64_t at = 0;
	la_ssize_t n = 0;
	int r = sum ? 0 : -ENOMEM;

	if (parts[part].is_kept && r == 0) {
		(void)snprintf(path, sizeof(path), "%.4000s/%s", reader->dir, parts[part].name);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		r = fd < 0 ? -errno : 0;
	}
	while (r == 0 && (n = archive_read_data(reader->archive, reader->block, BLOCK)) > 0) {
		r = EVP_DigestUpdate(sum, reader->block, (size_t)n) == 1 ? 0 : -ENOMEM;
		if (r == 0 && fd >= 0)
			r = write_sparse(fd, reader->block, (size_t)n, at);
		at += (uint64_t)n;
	}
	if (r == 0 && fd >= 0 && ftruncate(fd, (off_t)at) < 0)
		r = -errno;
	if (r == 0)
		r = export_digest(sum, reader->found[part].sha256);
	EVP_MD_CTX_free(sum);
	if (r < 0)
		return err_set(reterr, FAIL_EXPORT_FAILED, -r, "cannot unpack %s", parts[part].name);
	reader->found[part].is_there = true;
	reader->found[part].size = at;
	return n < 0 ? cut(reader, reterr) : 0;
}

static int take_manifest(struct reader *reader, struct err *reterr)
{
	la_ssize_t n, size = 0;

	while (size < (la_ssize_t)SMALL_MAX &&
		(n = archive_read_data(reader->archive, reader->block + size, SMALL_MAX - (size_t)size)) != 0) {
		if (n < 0)
			return cut(reader, reterr);
		size += n;
	}
	json_decref(reader->manifest);
	reader->manifest = json_loadb((const char *)reader->block, (size_t)size, 0, NULL);
	return reader->manifest ? 0 : invalid(reterr, "cannot be read", EXPORT_MANIFEST);
}

static int take_entry(struct reader *reader, struct archive_entry *entry, struct err *reterr)
{
	const char *name = archive_entry_pathname(entry);

	if (!name || archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry))
		return invalid(reterr, "an entry is no plain file", name ? name : "");
	if (!strcmp(name, EXPORT_MANIFEST))
		return take_manifest(reader, reterr);
	for (enum part i = 0; i < PARTS; i++)
		if (!strcmp(name, parts[i].name))
			return reader->found[i].is_there ? invalid(reterr, "a part comes twice", name) : take_part(reader, i, reterr);
	return invalid(reterr, "a part is none of an export", name);
}

/* Both ways: all that it names is there as it says, and nothing else is. */
static int check_parts(const struct reader *reader, struct err *reterr)
{
	const json_t *list = json_object_get(reader->manifest, "parts"), *item;
	size_t i, n = 0, n_found = 0;

	json_array_foreach(list, i, item)
	{
		const char *name = json_string_value(json_object_get(item, "name"));
		const char *sha256 = json_string_value(json_object_get(item, "sha256"));
		const json_t *size = json_object_get(item, "size");

		for (enum part k = 0; k < PARTS && name && sha256; k++) {
			if (strcmp(name, parts[k].name) != 0)
				continue;
			if (!reader->found[k].is_there)
				return invalid(reterr, "a part is missing", name);
			if ((json_int_t)reader->found[k].size != json_integer_value(size) ||
				strcmp(reader->found[k].sha256, sha256) != 0)
				return invalid(reterr, "a part differs from its digest", name);
			n++;
		}
	}
	for (enum part k = 0; k < PARTS; k++)
		n_found += reader->found[k].is_there;
	if (n != n_found || n != json_array_size(list))
		return invalid(reterr, "the manifest does not name each part once", EXPORT_MANIFEST);
	for (enum part k = PART_STATE; k <= PART_IMAGE; k++)
		if (!reader->found[k].is_there && k != PART_DISK)
			return invalid(reterr, "a part is missing", parts[k].name);
	return 0;
}

static int read_info(const struct reader *reader, struct snapshot_info *ret, struct err *reterr)
{
	json_int_t image_size, vcpus, memory, disk;
	const char *format, *sandbox, *template, *image;
	char named[DIGEST_SIZE];

	if (json_unpack(reader->manifest, "{s:s, s:s, s:{s:s, s:s, s:I, s:I, s:I, s:I}}", "format", &format, "sandbox", &sandbox,
		    "snapshot", "template", &template, "image", &image, "image_size", &image_size, "vcpus", &vcpus, "memory_mib",
		    &memory, "disk_mib", &disk) < 0 ||
		strcmp(format, EXPORT_FORMAT) != 0)
		return invalid(reterr, "is of another format", EXPORT_MANIFEST);
	(void)snprintf(named, sizeof(named), "sha256:%.64s", reader->found[PART_IMAGE].sha256);
	if (!id_is_valid(sandbox) || !id_name_is_valid(template) || strcmp(named, image) != 0 || vcpus < 1 || vcpus > UINT32_MAX ||
		memory < 1 || disk < 0 || (uint64_t)image_size != reader->found[PART_IMAGE].size ||
		(disk > 0) != reader->found[PART_DISK].is_there)
		return invalid(reterr, "names what no sandbox has", EXPORT_MANIFEST);
	ret->image_size = (uint64_t)image_size;
	ret->vcpus = (uint32_t)vcpus;
	ret->memory_mib = (uint64_t)memory;
	ret->disk_mib = (uint64_t)disk;
	ret->created_usec = clock_realtime_usec();
	(void)snprintf(ret->sandbox, sizeof(ret->sandbox), "%s", sandbox);
	(void)snprintf(ret->template_name, sizeof(ret->template_name), "%s", template);
	(void)snprintf(ret->image_digest, sizeof(ret->image_digest), "%s", image);
	return 0;
}

/* The agent verifies what it has not seen before; that another put it there meanwhile is as good. */
static int keep_image(const struct reader *reader, const char *images, const char *digest, struct err *reterr)
{
	char from[PATH_MAX], to[PATH_MAX], beside[PATH_MAX];
	CLEANUP_FREE uint8_t *block = malloc(BLOCK);
	CLEANUP_FD int in = -1;
	CLEANUP_FD int out = -1;
	uint64_t size = reader->found[PART_IMAGE].size;
	int r = block ? 0 : -ENOMEM;

	(void)snprintf(from, sizeof(from), "%.4000s/image", reader->dir);
	(void)snprintf(to, sizeof(to), "%.3900s/%s", images, digest);
	(void)snprintf(beside, sizeof(beside), "%.3900s/%s.import", images, digest);
	if (access(to, F_OK) == 0)
		return unlink(from) < 0 ? err_set(reterr, FAIL_EXPORT_FAILED, errno, "cannot remove %.200s", from) : 0;
	if (r == 0)
		r = dir_make(images, 0755);
	if (r == 0)
		in = open(from, O_RDONLY | O_CLOEXEC);
	if (r == 0)
		out = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (r == 0 && (in < 0 || out < 0))
		r = -errno;
	for (uint64_t at = 0; at < size && r == 0; at += BLOCK) { /* the cache may be another file system */
		size_t n = (size_t)MIN(size - at, (uint64_t)BLOCK);

		r = fd_pread_all(in, block, n, (off_t)at);
		if (r == 0)
			r = fd_write_all(out, block, n);
	}
	if (r == 0 && (fsync(out) < 0 || rename(beside, to) < 0 || unlink(from) < 0))
		r = -errno;
	if (r < 0)
		(void)unlink(beside);
	return r < 0 ? err_set(reterr, FAIL_EXPORT_FAILED, -r, "cannot keep the image in %.200s", images) : 0;
}

static int read_all(struct reader *reader, struct err *reterr)
{
	struct archive_entry *entry;
	int r;

	while ((r = archive_read_next_header(reader->archive, &entry)) == ARCHIVE_OK) {
		r = take_entry(reader, entry, reterr);
		if (r < 0)
			return r;
	}
	if (r != ARCHIVE_EOF)
		return cut(reader, reterr);
	return reader->manifest ? check_parts(reader, reterr) : invalid(reterr, "is missing", EXPORT_MANIFEST);
}

int export_read(int fd, const char *state, const char *images, struct snapshot_info *ret, struct err *reterr)
{
	struct reader reader = { .archive = archive_read_new(), .block = malloc(BLOCK) };
	struct rng rng = rng_system();
	int r = 0;

	memset(ret, 0, sizeof(*ret));
	id_new(&rng, ret->id);
	if (!reader.archive || !reader.block || archive_read_support_format_tar(reader.archive) != ARCHIVE_OK ||
		archive_read_support_filter_zstd(reader.archive) != ARCHIVE_OK)
		r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for an archive");
	if (r == 0)
		r = snapshot_begin(state, ret->id, reterr);
	if (r == 0 && snapshot_dir(state, ret->id, true, reader.dir) < 0)
		r = err_set(reterr, FAIL_EXPORT_FAILED, ENAMETOOLONG, "the state directory's name is too long");
	if (r == 0 && archive_read_open_fd(reader.archive, fd, BLOCK) != ARCHIVE_OK)
		r = cut(&reader, reterr);
	if (r == 0)
		r = read_all(&reader, reterr);
	if (r == 0)
		r = read_info(&reader, ret, reterr);
	if (r == 0)
		r = keep_image(&reader, images, ret->image_digest, reterr);
	if (r == 0)
		r = snapshot_finish(state, ret, reterr);
	if (r < 0)
		(void)snapshot_remove(state, ret->id, NULL);
	archive_read_free(reader.archive);
	json_decref(reader.manifest);
	free(reader.block);
	return r;
}
