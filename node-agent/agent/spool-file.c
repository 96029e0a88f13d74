/* SPDX-License-Identifier: Apache-2.0
 *
 * See spool-private.h. A record on disk is its size (4 bytes, little-endian), the first 8 bytes of its SHA-256, and
 * the packed TelemetryRecord. The newest segment is kept even when all of it is acknowledged: its name and length are
 * what the next number is known by.
 */
#include "agent/spool-private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#define DIGEST_PART 8u

static int segment_path(const struct spool *spool, uint64_t first, char *ret, size_t size)
{
	int n = snprintf(ret, size, "%s/%016" PRIx64 ".seg", spool->dir, first);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static void put_head(uint8_t *head, uint32_t size, const uint8_t *digest)
{
	for (unsigned int i = 0; i < 4; i++)
		head[i] = (uint8_t)(size >> (8 * i));
	memcpy(head + 4, digest, DIGEST_PART);
}

static bool digest_of(const void *data, size_t size, uint8_t ret[EVP_MAX_MD_SIZE])
{
	return EVP_Digest(data, size, ret, NULL, EVP_sha256(), NULL) == 1;
}

int spool_record_read(int fd, uint64_t offset, uint8_t **ret, uint32_t *ret_size)
{
	CLEANUP_FREE uint8_t *data = NULL;
	uint8_t head[SPOOL_HEAD], digest[EVP_MAX_MD_SIZE];
	uint32_t size = 0;

	if (fd_pread_all(fd, head, sizeof(head), (off_t)offset) < 0)
		return -ENODATA;
	for (unsigned int i = 0; i < 4; i++)
		size |= (uint32_t)head[i] << (8 * i);
	if (size == 0 || size > SPOOL_RECORD_MAX)
		return -ENODATA;
	data = malloc(size);
	if (!data)
		return -ENOMEM;
	if (fd_pread_all(fd, data, size, (off_t)(offset + SPOOL_HEAD)) < 0 ||
		!digest_of(data, size, digest) || memcmp(digest, head + 4, DIGEST_PART) != 0)
		return -ENODATA;
	*ret = TAKE(data);
	*ret_size = size;
	return 0;
}

int spool_record_write(struct spool *spool, uint8_t *data, size_t size)
{
	struct segment *newest = TAILQ_LAST(&spool->segments, segments);
	uint8_t digest[EVP_MAX_MD_SIZE];
	int r;

	if (!digest_of(data + SPOOL_HEAD, size, digest))
		return -ENOMEM;
	put_head(data, (uint32_t)size, digest);
	r = fd_pwrite_all(spool->fd, data, SPOOL_HEAD + size, (off_t)newest->size);
	if (r < 0) {
		/* half a record would hide those that follow it */
		(void)!ftruncate(spool->fd, (off_t)newest->size);
		return r;
	}
	newest->size += SPOOL_HEAD + size;
	newest->last++;
	spool->size += SPOOL_HEAD + size;
	return 0;
}

/* ---- segments ---- */

static struct segment *segment_insert(struct spool *spool, uint64_t first, uint64_t size)
{
	struct segment *segment = calloc(1, sizeof(*segment)), *at;

	if (!segment)
		return NULL;
	segment->first = first;
	segment->last = first - 1;
	segment->size = size;
	TAILQ_FOREACH (at, &spool->segments, link)
		if (at->first > first)
			break;
	if (at)
		TAILQ_INSERT_BEFORE(at, segment, link);
	else
		TAILQ_INSERT_TAIL(&spool->segments, segment, link);
	spool->size += size;
	return segment;
}

int spool_segment_open(const struct spool *spool, const struct segment *segment)
{
	char path[PATH_MAX];
	int r = segment_path(spool, segment->first, path, sizeof(path)), fd;

	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

int spool_segment_make(struct spool *spool)
{
	CLEANUP_FD int fd = -1;
	char path[PATH_MAX];
	int r = segment_path(spool, spool->last + 1, path, sizeof(path));

	if (r < 0)
		return r;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	spool->dir_is_dirty = true;
	/* an empty file that stays is harmless: the next start or the next try takes it */
	if (!segment_insert(spool, spool->last + 1, 0))
		return -ENOMEM;
	spool->fd = fd_close(spool->fd);
	spool->fd = TAKE_FD(fd);
	return 0;
}

void spool_segment_drop(struct spool *spool, struct segment *segment)
{
	char path[PATH_MAX];

	if (segment_path(spool, segment->first, path, sizeof(path)) == 0 && unlink(path) < 0 &&
		errno != ENOENT)
		log_warn("cannot remove a telemetry segment", "segment", path, "errno",
			strerrorname_np(errno));
	if (spool->read_first == segment->first)
		spool->read_fd = fd_close(spool->read_fd);
	spool->size -= segment->size;
	TAILQ_REMOVE(&spool->segments, segment, link);
	free(segment);
}

/* ---- at the start ---- */

static int list_segments(struct spool *spool)
{
	DIR *dir = opendir(spool->dir);
	struct dirent *entry;
	int r = 0;

	if (!dir)
		return -errno;
	while (r == 0 && (entry = readdir(dir))) {
		struct stat st;
		uint64_t first;
		int end = 0;

		if (sscanf(entry->d_name, "%16" SCNx64 ".seg%n", &first, &end) != 1 || end == 0 ||
			entry->d_name[end] != '\0' || first == 0)
			continue;
		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
			!S_ISREG(st.st_mode))
			continue;
		if (!segment_insert(spool, first, (uint64_t)st.st_size))
			r = -ENOMEM;
	}
	(void)closedir(dir);
	return r;
}

/* Counts the records of the newest segment and cuts off what a crash left half written. */
static int scan_newest(struct spool *spool)
{
	struct segment *newest = TAILQ_LAST(&spool->segments, segments), *before;
	char path[PATH_MAX];
	uint64_t offset = 0;
	int r;

	for (struct segment *at = TAILQ_FIRST(&spool->segments); at != newest;
		at = TAILQ_NEXT(at, link))
		at->last = TAILQ_NEXT(at, link)->first - 1;
	before = TAILQ_FIRST(&spool->segments);
	spool->acked = before->first - 1;
	r = segment_path(spool, newest->first, path, sizeof(path));
	if (r < 0)
		return r;
	spool->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (spool->fd < 0)
		return -errno;
	for (;;) {
		CLEANUP_FREE uint8_t *data = NULL;
		uint32_t size;

		r = spool_record_read(spool->fd, offset, &data, &size);
		if (r < 0)
			break;
		offset += SPOOL_HEAD + size;
		newest->last++;
	}
	if (r != -ENODATA)
		return r;
	if (offset < newest->size) {
		log_warn("cutting a torn telemetry record", "segment", path, "bytes",
			LOG_NUM(newest->size - offset));
		if (ftruncate(spool->fd, (off_t)offset) < 0)
			return -errno;
		spool->size -= newest->size - offset;
		newest->size = offset;
	}
	if (fsync(spool->fd) < 0)
		return -errno;
	spool->last = newest->last;
	return 0;
}

int spool_segments_load(struct spool *spool)
{
	int r = list_segments(spool);

	if (r < 0)
		return r;
	return TAILQ_EMPTY(&spool->segments) ? spool_segment_make(spool) : scan_newest(spool);
}
