/* SPDX-License-Identifier: Apache-2.0
 *
 * See spool.h. A record on disk is its size (4 bytes, little-endian), the first 8 bytes of its
 * SHA-256, and the packed TelemetryRecord. The newest segment is kept even when all of it is
 * acknowledged: its name and length are what the next number is known by. Reading and writing of
 * the few hundred bytes of a record goes through the page cache and stays on the loop; only fsync
 * goes to a worker.
 */
#include "agent/spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/message.h"
#include "agent/worker.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define HEAD 12u
#define DIGEST_PART 8u
#define SEGMENT_SIZE (1024u * 1024u)
#define GAP_ROOM                                                                                   \
	256u /* kept free, so that a gap can always be written once acknowledgements come */
#define RENUMBER_MAX 4096u

struct segment {
	TAILQ_ENTRY(segment) link;
	uint64_t first;
	uint64_t last; /* first - 1: empty */
	uint64_t size;
};
TAILQ_HEAD(segments, segment);

struct spool {
	char dir[PATH_MAX];
	uint64_t max_size, segment_size;
	struct worker *worker;
	uint64_t worker_key;
	spool_on_ready on_ready;
	void *user;

	struct segments segments; /* the last one is written to */
	int fd;
	bool dir_is_dirty; /* a segment was made since the last fsync of the directory */
	bool syncing;
	uint64_t last, durable, sent, acked;
	uint64_t size, dropped, dropped_told;

	/* where reading stands */
	int read_fd;
	uint64_t read_first; /* segment */
	uint64_t read_seq;   /* of the record at read_offset */
	uint64_t read_offset;
};

struct sync_job {
	struct spool *spool;
	int fd;
	int dir_fd; /* -1: the directory is clean */
	uint64_t target;
	int error;
};

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

/* One whole and undamaged record at `offset`. 0 or -errno; -ENODATA: no whole one is there. */
static int read_record(int fd, uint64_t offset, uint8_t **ret, uint32_t *ret_size)
{
	CLEANUP_FREE uint8_t *data = NULL;
	uint8_t head[HEAD], digest[EVP_MAX_MD_SIZE];
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
	if (fd_pread_all(fd, data, size, (off_t)(offset + HEAD)) < 0 ||
		!digest_of(data, size, digest) || memcmp(digest, head + 4, DIGEST_PART) != 0)
		return -ENODATA;
	*ret = TAKE(data);
	*ret_size = size;
	return 0;
}

/* ---- opening ---- */

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

static int make_segment(struct spool *spool)
{
	char path[PATH_MAX];
	int r = segment_path(spool, spool->last + 1, path, sizeof(path));

	if (r < 0)
		return r;
	spool->fd = fd_close(spool->fd);
	spool->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (spool->fd < 0)
		return -errno;
	spool->dir_is_dirty = true;
	return segment_insert(spool, spool->last + 1, 0) ? 0 : -ENOMEM;
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

		r = read_record(spool->fd, offset, &data, &size);
		if (r < 0)
			break;
		offset += HEAD + size;
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

int spool_new(struct spool **ret, const char *dir, uint64_t max_size, struct worker *worker,
	spool_on_ready on_ready, void *user, struct err *reterr)
{
	struct spool *spool = calloc(1, sizeof(*spool));
	int r;

	if (!spool)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the spool");
	TAILQ_INIT(&spool->segments);
	spool->fd = spool->read_fd = -1;
	spool->max_size = max_size;
	spool->segment_size = MIN((uint64_t)SEGMENT_SIZE, max_size / 4);
	spool->worker = worker;
	spool->worker_key = (uint64_t)(uintptr_t)spool;
	spool->on_ready = on_ready;
	spool->user = user;
	(void)snprintf(spool->dir, sizeof(spool->dir), "%s", dir);
	r = dir_make(dir, 0700);
	if (r == 0)
		r = list_segments(spool);
	if (r == 0)
		r = TAILQ_EMPTY(&spool->segments) ? make_segment(spool) : scan_newest(spool);
	if (r < 0) {
		(void)err_set(reterr, FAIL_STATE_UNREADABLE, -r,
			"cannot open the telemetry spool %.150s", dir);
		spool_free(spool);
		return r;
	}
	spool->durable = spool->last;
	spool->sent = spool->acked;
	*ret = spool;
	return 0;
}

void spool_free(struct spool *spool)
{
	struct segment *segment;

	if (!spool)
		return;
	if (spool->fd >= 0)
		(void)fdatasync(
			spool->fd); /* what cannot be made durable now is cut at the next start */
	spool->fd = fd_close(spool->fd);
	spool->read_fd = fd_close(spool->read_fd);
	while ((segment = TAILQ_FIRST(&spool->segments))) {
		TAILQ_REMOVE(&spool->segments, segment, link);
		free(segment);
	}
	free(spool);
}

/* ---- making it durable ---- */

static void run_sync(void *arg, const atomic_bool *stop)
{
	struct sync_job *job = arg;

	(void)stop;
	if (fdatasync(job->fd) < 0 || (job->dir_fd >= 0 && fsync(job->dir_fd) < 0))
		job->error = errno;
}

static void start_sync(struct spool *spool);

static void done_sync(void *arg, bool ran)
{
	struct sync_job *job = arg;
	struct spool *spool = job->spool;

	spool->syncing = false;
	if (ran && job->error == 0)
		spool->durable = MAX(spool->durable, job->target);
	else if (ran)
		log_warn("cannot make telemetry durable", "errno", strerrorname_np(job->error));
	(void)fd_close(job->fd);
	(void)fd_close(job->dir_fd);
	if (ran && job->error == 0) {
		if (spool->durable < spool->last)
			start_sync(spool);
		if (spool->on_ready)
			spool->on_ready(spool->user);
	}
	free(job);
}

/* One at a time: what is appended meanwhile goes with the next. */
static void start_sync(struct spool *spool)
{
	struct sync_job *job;

	if (spool->syncing || spool->fd < 0)
		return;
	job = calloc(1, sizeof(*job));
	if (!job)
		return; /* the next append tries again */
	job->spool = spool;
	job->target = spool->last;
	job->dir_fd = -1;
	job->fd = fcntl(spool->fd, F_DUPFD_CLOEXEC, 0);
	if (spool->dir_is_dirty)
		job->dir_fd = open(spool->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (job->fd < 0 ||
		worker_submit(spool->worker, spool->worker_key, run_sync, done_sync, job) < 0) {
		(void)fd_close(job->fd);
		(void)fd_close(job->dir_fd);
		free(job);
		return;
	}
	spool->dir_is_dirty = spool->dir_is_dirty && job->dir_fd < 0;
	spool->syncing = true;
}

/* ---- writing ---- */

static int rotate(struct spool *spool)
{
	/* A sync under way has the old descriptor; what it does not cover is made durable here,
	 * once per segment. */
	if (fdatasync(spool->fd) < 0)
		return -errno;
	return make_segment(spool);
}

static bool has_room(const struct spool *spool, uint64_t size)
{
	return spool->size + HEAD + size + GAP_ROOM <= spool->max_size;
}

static int write_record(struct spool *spool, Croft__TelemetryRecord *record)
{
	struct segment *newest = TAILQ_LAST(&spool->segments, segments);
	uint8_t digest[EVP_MAX_MD_SIZE];
	CLEANUP_FREE uint8_t *data = NULL;
	size_t size;
	int r;

	record->seq = spool->last + 1;
	size = croft__telemetry_record__get_packed_size(record);
	if (size > SPOOL_RECORD_MAX)
		return -EMSGSIZE;
	if (!has_room(spool, size))
		return -ENOSPC;
	if (newest->size >= spool->segment_size) {
		r = rotate(spool);
		if (r < 0)
			return r;
		newest = TAILQ_LAST(&spool->segments, segments);
	}
	data = malloc(HEAD + size);
	if (!data)
		return -ENOMEM;
	(void)croft__telemetry_record__pack(record, data + HEAD);
	if (!digest_of(data + HEAD, size, digest))
		return -ENOMEM;
	put_head(data, (uint32_t)size, digest);
	r = fd_pwrite_all(spool->fd, data, HEAD + size, (off_t)newest->size);
	if (r < 0) {
		/* half a record would hide those that follow it */
		(void)!ftruncate(spool->fd, (off_t)newest->size);
		return r;
	}
	newest->size += HEAD + size;
	newest->last++;
	spool->size += HEAD + size;
	spool->last++;
	return 0;
}

static int write_gap(struct spool *spool)
{
	Croft__TelemetryRecord record = MESSAGE(Croft__TelemetryRecord, croft__telemetry_record);
	Croft__TelemetryGap gap = MESSAGE(Croft__TelemetryGap, croft__telemetry_gap);
	int r;

	gap.dropped = spool->dropped - spool->dropped_told;
	if (gap.dropped == 0)
		return 0;
	record.when_us = clock_realtime_usec();
	record.body_case = CROFT__TELEMETRY_RECORD__BODY_GAP;
	record.gap = &gap;
	r = write_record(spool, &record);
	if (r == 0)
		spool->dropped_told = spool->dropped;
	return r;
}

void spool_append(struct spool *spool, Croft__TelemetryRecord *record)
{
	/* a gap goes in front of a record that fits behind it, not of one that widens the gap */
	bool fits = has_room(spool, croft__telemetry_record__get_packed_size(record) + GAP_ROOM);
	int r = fits ? write_gap(spool) : -ENOSPC;

	if (r == 0)
		r = write_record(spool, record);
	if (r < 0) {
		if (spool->dropped == spool->dropped_told)
			log_warn("telemetry is dropped", "errno", strerrorname_np(-r), "spool",
				spool->dir);
		spool->dropped++;
	}
	start_sync(spool);
}

/* ---- reading ---- */

static int open_at(struct spool *spool, const struct segment *segment)
{
	char path[PATH_MAX];
	int r;

	spool->read_fd = fd_close(spool->read_fd);
	r = segment_path(spool, segment->first, path, sizeof(path));
	if (r < 0)
		return r;
	spool->read_fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (spool->read_fd < 0)
		return -errno;
	spool->read_first = spool->read_seq = segment->first;
	spool->read_offset = 0;
	return 0;
}

static struct segment *segment_with(const struct spool *spool, uint64_t seq)
{
	struct segment *segment;

	TAILQ_FOREACH (segment, &spool->segments, link)
		if (seq >= segment->first && seq <= segment->last)
			return segment;
	return NULL;
}

/* What stands for records that cannot be read any more. */
static Croft__TelemetryRecord *hole(uint64_t from, uint64_t to)
{
	Croft__TelemetryRecord *record = malloc(sizeof(*record));
	Croft__TelemetryGap *gap = malloc(sizeof(*gap));

	if (!record || !gap) {
		free(record);
		free(gap);
		return NULL;
	}
	croft__telemetry_record__init(record);
	croft__telemetry_gap__init(gap);
	gap->dropped = to - from + 1;
	record->seq = to;
	record->when_us = clock_realtime_usec();
	record->body_case = CROFT__TELEMETRY_RECORD__BODY_GAP;
	record->gap = gap;
	return record;
}

/* The record numbered `seq`; *ret_seq is the number up to which it stands. */
static Croft__TelemetryRecord *read_at(struct spool *spool, uint64_t seq, uint64_t *ret_seq)
{
	const struct segment *segment = segment_with(spool, seq);
	Croft__TelemetryRecord *record = NULL;

	if (!segment)
		return NULL;
	*ret_seq = seq;
	if (spool->read_fd < 0 || spool->read_first != segment->first || spool->read_seq > seq)
		if (open_at(spool, segment) < 0)
			goto damaged;
	while (!record) {
		CLEANUP_FREE uint8_t *data = NULL;
		uint32_t size;

		if (read_record(spool->read_fd, spool->read_offset, &data, &size) < 0)
			goto damaged;
		if (spool->read_seq == seq) {
			record = croft__telemetry_record__unpack(NULL, size, data);
			if (!record)
				goto damaged;
		}
		spool->read_offset += HEAD + size;
		spool->read_seq++;
	}
	record->seq = seq;
	return record;
damaged:
	spool->read_fd = fd_close(spool->read_fd);
	log_warn("telemetry records are damaged", "spool", spool->dir, "from", LOG_NUM(seq), "to",
		LOG_NUM(segment->last));
	*ret_seq = segment->last;
	return hole(seq, segment->last);
}

Croft__TelemetryRecord *spool_next(struct spool *spool)
{
	Croft__TelemetryRecord *record;
	uint64_t to;

	if (spool->sent >= spool->durable || spool->sent - spool->acked >= SPOOL_WINDOW)
		return NULL;
	record = read_at(spool, spool->sent + 1, &to);
	if (record)
		spool->sent = to;
	return record;
}

void spool_unsend(struct spool *spool, uint64_t seq)
{
	spool->sent = MAX(spool->acked, MIN(seq, spool->sent));
}

/* ---- acknowledgement ---- */

static void drop_segment(struct spool *spool, struct segment *segment)
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

static void forget(struct spool *spool)
{
	struct segment *segment, *newest = TAILQ_LAST(&spool->segments, segments);

	/* a full newest segment would never be freed while nothing new comes */
	if (newest->last <= spool->acked && newest->size >= spool->segment_size / 2 &&
		rotate(spool) == 0)
		newest = TAILQ_LAST(&spool->segments, segments);
	while ((segment = TAILQ_FIRST(&spool->segments)) != newest && segment->last <= spool->acked)
		drop_segment(spool, segment);
}

void spool_ack(struct spool *spool, uint64_t seq)
{
	if (seq > spool->sent || seq <= spool->acked)
		return;
	spool->acked = seq;
	forget(spool);
	if (has_room(spool, spool->max_size / 8) && write_gap(spool) == 0 &&
		spool->durable < spool->last)
		start_sync(spool);
	if (spool->on_ready)
		spool->on_ready(spool->user); /* the window opened */
}

/* Everything that waits gets numbers behind `acked`. */
static void renumber(struct spool *spool, uint64_t acked)
{
	struct segment *old = TAILQ_LAST(&spool->segments, segments);
	CLEANUP_FREE Croft__TelemetryRecord **records = NULL;
	uint64_t n = 0, from = spool->acked;

	records = calloc(RENUMBER_MAX, sizeof(Croft__TelemetryRecord *));
	while (records && n < RENUMBER_MAX && from < spool->last) {
		records[n] = read_at(spool, from + 1, &from);
		if (!records[n])
			break;
		n++;
	}
	spool->last = acked;
	if (make_segment(spool) < 0) {
		log_error("cannot number telemetry anew", "spool", spool->dir);
		spool->last = old->last;
	} else {
		while (TAILQ_FIRST(&spool->segments) != TAILQ_LAST(&spool->segments, segments))
			drop_segment(spool, TAILQ_FIRST(&spool->segments));
		spool->durable = spool->sent = spool->acked = acked;
		for (uint64_t i = 0; i < n; i++)
			spool_append(spool, records[i]);
	}
	for (uint64_t i = 0; i < n; i++)
		croft__telemetry_record__free_unpacked(records[i], NULL);
}

void spool_welcome(struct spool *spool, uint64_t acked)
{
	if (acked > spool->last) {
		log_warn("the scheduler knows more telemetry of this node than its spool", "acked",
			LOG_NUM(acked), "last", LOG_NUM(spool->last));
		renumber(spool, acked);
		return;
	}
	spool->acked = MAX(spool->acked, acked);
	spool->sent = spool->acked;
	forget(spool);
}

void spool_counts(const struct spool *spool, struct spool_counts *ret)
{
	*ret = (struct spool_counts){ .last = spool->last,
		.durable = spool->durable,
		.sent = spool->sent,
		.acked = spool->acked,
		.size = spool->size,
		.dropped = spool->dropped };
}
