/* SPDX-License-Identifier: Apache-2.0
 *
 * See spool-private.h. Reading goes on from where it stood: the records of a segment are read once, in order.
 */
#include "agent/spool-private.h"

#include <errno.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

static int open_at(struct spool *spool, const struct segment *segment)
{
	spool->read_fd = fd_close(spool->read_fd);
	spool->read_fd = spool_segment_open(spool, segment);
	if (spool->read_fd < 0) {
		int r = spool->read_fd;

		spool->read_fd = -1;
		return r;
	}
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

/* Of the host at this moment, not of the file. */
static bool is_passing(int r)
{
	return r == -ENOMEM || r == -EMFILE || r == -ENFILE;
}

/* 0: *ret is the record. -errno else. */
static int read_up_to(struct spool *spool, const struct segment *segment, uint64_t seq, Croft__TelemetryRecord **ret)
{
	int r;

	if (spool->read_fd < 0 || spool->read_first != segment->first || spool->read_seq > seq) {
		r = open_at(spool, segment);
		if (r < 0)
			return r;
	}
	for (;;) {
		CLEANUP_FREE uint8_t *data = NULL;
		uint32_t size;

		r = spool_record_read(spool->read_fd, spool->read_offset, &data, &size);
		if (r < 0)
			return r;
		if (spool->read_seq == seq) {
			*ret = croft__telemetry_record__unpack(NULL, size, data);
			if (!*ret)
				return -ENOMEM; /* its digest is right, so it is what was packed */
		}
		spool->read_offset += SPOOL_HEAD + size;
		if (spool->read_seq++ == seq)
			return 0;
	}
}

Croft__TelemetryRecord *spool_read(struct spool *spool, uint64_t seq, uint64_t *ret_seq)
{
	const struct segment *segment = segment_with(spool, seq);
	Croft__TelemetryRecord *record = NULL;
	int r;

	if (!segment)
		return NULL;
	r = read_up_to(spool, segment, seq, &record);
	if (r == 0) {
		record->seq = seq;
		*ret_seq = seq;
		return record;
	}
	if (is_passing(r))
		return NULL;
	spool->read_fd = fd_close(spool->read_fd);
	log_warn("telemetry records are damaged", "spool", spool->dir, "from", LOG_NUM(seq), "to",
		LOG_NUM(segment->last));
	*ret_seq = segment->last;
	return hole(seq, segment->last);
}
