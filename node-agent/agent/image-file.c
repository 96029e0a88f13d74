/* SPDX-License-Identifier: Apache-2.0
 *
 * See image-file.h.
 */
#include "agent/image-file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hex.h"
#include "base/log.h"

#define READ_SIZE (256u * 1024u)
#define HEX_SIZE 65

int image_file_init(struct image_file *file, const char *dir, const char *digest)
{
	memset(file, 0, sizeof(*file));
	file->fd = -1;
	if (!digest_is_valid(digest) || strlen(dir) >= sizeof(file->dir))
		return -EINVAL;
	(void)snprintf(file->dir, sizeof(file->dir), "%s", dir);
	(void)snprintf(file->digest, sizeof(file->digest), "%s", digest);
	file->sum = EVP_MD_CTX_new();
	return file->sum && EVP_DigestInit_ex(file->sum, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;
}

void image_file_deinit(struct image_file *file)
{
	EVP_MD_CTX_free(file->sum);
	file->sum = NULL;
	file->fd = fd_close(file->fd);
}

static void name_of(const struct image_file *file, const char *suffix, char ret[static PATH_MAX])
{
	(void)snprintf(ret, PATH_MAX, "%s/%s%s", file->dir, file->digest, suffix);
}

/* The digest's hex digits of a copy of the running sum. */
static int sum_hex(EVP_MD_CTX *sum, char ret[static HEX_SIZE])
{
	EVP_MD_CTX *copy = EVP_MD_CTX_new();
	unsigned char bytes[EVP_MAX_MD_SIZE];
	unsigned int size = 0;
	int r = -ENOMEM;

	if (copy && EVP_MD_CTX_copy_ex(copy, sum) == 1 &&
		EVP_DigestFinal_ex(copy, bytes, &size) == 1 && size == 32) {
		hex_put(ret, bytes, size);
		r = 0;
	}
	EVP_MD_CTX_free(copy);
	return r;
}

/* Adds all of `fd` to `sum`. 0 or -errno. */
static int sum_file(EVP_MD_CTX *sum, int fd, const atomic_bool *stop, uint64_t *ret_size)
{
	CLEANUP_FREE uint8_t *block = malloc(READ_SIZE);
	uint64_t size = 0;

	if (!block)
		return -ENOMEM;
	for (;;) {
		ssize_t n = read(fd, block, READ_SIZE);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		if (atomic_load(stop))
			return -ECANCELED;
		if (EVP_DigestUpdate(sum, block, (size_t)n) != 1)
			return -ENOMEM;
		size += (uint64_t)n;
	}
	*ret_size = size;
	return 0;
}

/* What the .ok file holds while this very file is trusted. */
static int mark_of(int fd, char *ret, size_t size)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	(void)snprintf(ret, size, "size=%jd inode=%ju changed=%jd.%09ld\n", (intmax_t)st.st_size,
		(uintmax_t)st.st_ino, (intmax_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	return 0;
}

static void write_mark(const struct image_file *file, int fd)
{
	char path[PATH_MAX], mark[160];

	name_of(file, ".ok", path);
	/* without it the image is only verified once more */
	if (mark_of(fd, mark, sizeof(mark)) < 0 || file_replace(path, mark, strlen(mark), 0644) < 0)
		log_debug("cannot write the mark of an image", "path", path);
}

/* Its time is that of the last use (agent/image-collect.h). */
static void touch_mark(const struct image_file *file)
{
	char path[PATH_MAX];

	name_of(file, ".ok", path);
	if (utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW) < 0)
		log_debug("cannot note the use of an image", "path", path);
}

static bool is_marked(const struct image_file *file, int fd)
{
	CLEANUP_FREE char *found = NULL;
	char path[PATH_MAX], mark[160];

	name_of(file, ".ok", path);
	return mark_of(fd, mark, sizeof(mark)) == 0 &&
	       file_read(path, sizeof(mark), &found, NULL) == 0 && !strcmp(found, mark);
}

/* 0 and *ret_present, or -errno. */
static int look_for_whole(
	struct image_file *file, const atomic_bool *stop, bool *ret_present, struct err *reterr)
{
	CLEANUP_FD int fd = -1;
	char path[PATH_MAX], hex[HEX_SIZE];
	uint64_t size;
	int r;

	*ret_present = false;
	name_of(file, "", path);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return err_set(reterr, FAIL_IMAGE_WRITE_FAILED, errno,
			"cannot open an image of the cache");
	if (is_marked(file, fd)) {
		touch_mark(file);
		*ret_present = true;
		return 0;
	}
	r = sum_file(file->sum, fd, stop, &size);
	if (r == 0)
		r = sum_hex(file->sum, hex);
	if (r == 0 && EVP_DigestInit_ex(file->sum, EVP_sha256(), NULL) != 1)
		r = -ENOMEM;
	if (r < 0)
		return err_set(
			reterr, FAIL_IMAGE_WRITE_FAILED, -r, "cannot read an image of the cache");
	if (!strcmp(hex, file->digest + 7)) {
		write_mark(file, fd);
		*ret_present = true;
		return 0;
	}
	log_warn("an image of the cache does not have its digest, removing it", "digest",
		file->digest);
	if (unlink(path) < 0)
		return err_set(
			reterr, FAIL_IMAGE_WRITE_FAILED, errno, "cannot remove a damaged image");
	return 0;
}

int image_file_open(
	struct image_file *file, const atomic_bool *stop, bool *ret_present, struct err *reterr)
{
	char path[PATH_MAX];
	int r = dir_make(file->dir, 0755);

	if (r < 0)
		return err_set(
			reterr, FAIL_IMAGE_WRITE_FAILED, -r, "cannot make the directory of images");
	r = look_for_whole(file, stop, ret_present, reterr);
	if (r < 0 || *ret_present)
		return r;
	name_of(file, ".part", path);
	file->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (file->fd < 0)
		return err_set(
			reterr, FAIL_IMAGE_WRITE_FAILED, errno, "cannot make the file of an image");
	r = sum_file(file->sum, file->fd, stop, &file->offset);
	if (r < 0)
		return err_set(reterr, FAIL_IMAGE_WRITE_FAILED, -r,
			"cannot read the begun file of an image");
	return 0;
}

int image_file_write(struct image_file *file, const void *data, size_t size, struct err *reterr)
{
	int r = fd_pwrite_all(file->fd, data, size, (off_t)file->offset);

	if (r < 0)
		return err_set(reterr, FAIL_IMAGE_WRITE_FAILED, -r, "cannot write an image");
	if (EVP_DigestUpdate(file->sum, data, size) != 1)
		return err_set(
			reterr, FAIL_IMAGE_WRITE_FAILED, ENOMEM, "cannot go on with a digest");
	file->offset += size;
	return 0;
}

int image_file_finish(struct image_file *file, struct err *reterr)
{
	char part[PATH_MAX], path[PATH_MAX], hex[HEX_SIZE];
	int r = sum_hex(file->sum, hex);

	if (r < 0)
		return err_set(reterr, FAIL_IMAGE_WRITE_FAILED, -r, "cannot end a digest");
	name_of(file, ".part", part);
	if (strcmp(hex, file->digest + 7) != 0) {
		(void)unlink(part); /* else the next try would go on with wrong bytes */
		(void)err_set(reterr, FAIL_IMAGE_DIGEST_MISMATCH, 0,
			"the image's bytes do not have the digest asked for");
		err_add(reterr, "expected", "%s", file->digest);
		err_add(reterr, "got", "sha256:%s", hex);
		return -EIO;
	}
	name_of(file, "", path);
	if (fchmod(file->fd, 0444) < 0 || fsync(file->fd) < 0 || rename(part, path) < 0)
		return err_set(reterr, FAIL_IMAGE_WRITE_FAILED, errno,
			"cannot put an image into its place");
	write_mark(file, file->fd);
	r = dir_fsync(file->dir);
	return r < 0 ? err_set(reterr, FAIL_IMAGE_WRITE_FAILED, -r, "cannot make an image durable")
		     : 0;
}
