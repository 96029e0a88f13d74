/* SPDX-License-Identifier: Apache-2.0
 *
 * See spool.h. Reading and writing of the few hundred bytes of a record goes through the page cache and stays on
 * the loop; only fsync goes to a worker.
 */
#include "agent/spool-private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/message.h"
#include "agent/worker.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define SEGMENT_SIZE (1024u * 1024u)
#define GAP_ROOM 256u /* kept free, so that a gap can always be written once acknowledgements come */
#define RENUMBER_MAX 4096u

struct sync_job {
	struct spool *spool;
	int fd;
	int dir_fd; /* -1: the directory is clean */
	uint64_t target;
	int error;
};

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
		r = spool_segments_load(spool);
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
	if (job->dir_fd >= 0 && (!ran || job->error != 0))
		spool->dir_is_dirty = true; /* still */
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
		return; /* the next append or the next look for something to send tries again */
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
	return spool_segment_make(spool);
}

static bool has_room(const struct spool *spool, uint64_t size)
{
	return spool->size + SPOOL_HEAD + size + GAP_ROOM <= spool->max_size;
}

static int write_record(struct spool *spool, Croft__TelemetryRecord *record)
{
	const struct segment *newest = TAILQ_LAST(&spool->segments, segments);
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
	}
	data = malloc(SPOOL_HEAD + size);
	if (!data)
		return -ENOMEM;
	(void)croft__telemetry_record__pack(record, data + SPOOL_HEAD);
	r = spool_record_write(spool, data, size);
	if (r == 0)
		spool->last++;
	return r;
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

/* ---- sending ---- */

Croft__TelemetryRecord *spool_next(struct spool *spool)
{
	Croft__TelemetryRecord *record;
	uint64_t to;

	if (spool->durable < spool->last)
		start_sync(spool); /* one that could not be begun, or that failed */
	if (spool->sent >= spool->durable || spool->sent - spool->acked >= SPOOL_WINDOW)
		return NULL;
	record = spool_read(spool, spool->sent + 1, &to);
	if (record)
		spool->sent = to;
	return record;
}

void spool_unsend(struct spool *spool, uint64_t seq)
{
	spool->sent = MAX(spool->acked, MIN(seq, spool->sent));
}

/* ---- acknowledgement ---- */

static void forget(struct spool *spool)
{
	struct segment *segment, *newest = TAILQ_LAST(&spool->segments, segments);

	/* a full newest segment would never be freed while nothing new comes */
	if (newest->last <= spool->acked && newest->size >= spool->segment_size / 2 &&
		rotate(spool) == 0)
		newest = TAILQ_LAST(&spool->segments, segments);
	while ((segment = TAILQ_FIRST(&spool->segments)) != newest && segment->last <= spool->acked)
		spool_segment_drop(spool, segment);
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

static void free_records(Croft__TelemetryRecord **records, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		croft__telemetry_record__free_unpacked(records[i], NULL);
}

/* Everything that waits gets numbers behind `acked`; what is more than RENUMBER_MAX is counted as dropped. Without
 * memory nothing changes: the next connection tries again. */
static void renumber(struct spool *spool, uint64_t acked)
{
	CLEANUP_FREE Croft__TelemetryRecord **records = calloc(RENUMBER_MAX, sizeof(*records));
	uint64_t n = 0, from = spool->acked, last = spool->last;

	while (records && n < RENUMBER_MAX && from < last) {
		records[n] = spool_read(spool, from + 1, &from);
		if (!records[n])
			break;
		n++;
	}
	if (!records || (from < last && n < RENUMBER_MAX)) {
		log_error("cannot number telemetry anew", "spool", spool->dir);
		free_records(records, n);
		return;
	}
	spool->last = acked;
	if (spool_segment_make(spool) < 0) {
		log_error("cannot number telemetry anew", "spool", spool->dir);
		spool->last = last;
	} else {
		while (TAILQ_FIRST(&spool->segments) != TAILQ_LAST(&spool->segments, segments))
			spool_segment_drop(spool, TAILQ_FIRST(&spool->segments));
		spool->durable = spool->sent = spool->acked = acked;
		spool->dropped += last - from;
		for (uint64_t i = 0; i < n; i++)
			spool_append(spool, records[i]);
	}
	free_records(records, n);
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
