/* SPDX-License-Identifier: Apache-2.0
 *
 * What the node sends. Plain structs become messages here; see link.h.
 */
#include "agent/link-send.h"

#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "agent/message.h"
#include "agent/spool.h"
#include "base/clock.h"
#include "base/log.h"
#include "wire/records.h"

#define BATCH_SIZE (60u * 1024u) /* leaves room for the envelope in a frame of 64 KiB */
#define BATCH_RECORDS 256u
#define BATCHES_PER_TURN 8

bool link_send(struct link *link, Croft__Envelope *envelope, const struct trace *trace)
{
	struct envelope_head head = {
		.epoch = link->epoch, .seq = link->seq + 1, .ack = link->seen_seq
	};
	uint8_t *frame;
	size_t size;
	bool sent;

	if (!link || !link->dealer || !link->is_up)
		return false;
	if (trace)
		head.trace = *trace;
	frame = envelope_pack(&head, envelope, &size);
	if (!frame) {
		log_error("a message is too large for the link or there is no memory", "body",
			LOG_NUM(envelope->body_case));
		return false;
	}
	sent = dealer_send(link->dealer, frame, size);
	if (sent)
		link->seq++;
	free(frame);
	return sent;
}

/* Encodes with `encode`, sends as `member`, frees. */
#define SEND_ENCODED(link, encoded, case_name, member, trace)                                      \
	__extension__({                                                                            \
		Croft__Envelope envelope_ = MESSAGE(Croft__Envelope, croft__envelope);             \
		bool sent_ = false;                                                                \
		envelope_.member = (encoded);                                                      \
		if (envelope_.member) {                                                            \
			envelope_.body_case = CROFT__ENVELOPE__BODY_##case_name;                   \
			sent_ = link_send((link), &envelope_, (trace));                            \
			protobuf_c_message_free_unpacked(&envelope_.member->base, NULL);           \
		}                                                                                  \
		sent_;                                                                             \
	})

bool link_send_hello(struct link *link, const struct hello *hello)
{
	struct hello full = *hello; /* borrowed but for this */

	(void)snprintf(full.server_key, sizeof(full.server_key), "%s", link->used_key);
	(void)snprintf(full.next_key, sizeof(full.next_key), "%s", link->agent->identity.scheduler.next_key);
	full.realtime_us = clock_realtime_usec();
	return SEND_ENCODED(link, hello_encode(&full), HELLO, hello, NULL);
}

bool link_send_heartbeat(struct link *link, const struct heartbeat *heartbeat)
{
	return SEND_ENCODED(link, heartbeat_encode(heartbeat), HEARTBEAT, heartbeat, NULL);
}

bool link_send_inventory(struct link *link, const struct inventory *inventory)
{
	return SEND_ENCODED(link, inventory_encode(inventory), INVENTORY, inventory, NULL);
}

bool link_send_report(
	struct link *link, const struct sandbox_report *report, const struct trace *trace)
{
	return SEND_ENCODED(link, sandbox_report_encode(report), REPORT, report, trace);
}

bool link_send_usage(struct link *link, const struct usage_report *report)
{
	return SEND_ENCODED(link, usage_report_encode(report), USAGE, usage, NULL);
}

bool link_send_capacity(struct link *link, const struct capacity_report *report)
{
	return SEND_ENCODED(link, capacity_report_encode(report), CAPACITY, capacity, NULL);
}

bool link_send_dropped(struct link *link, const char *snapshot)
{
	return SEND_ENCODED(link, snapshot_dropped_encode(snapshot), SNAPSHOT_DROPPED, snapshot_dropped, NULL);
}

bool link_send_refused(struct link *link, const struct err *err)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope);
	Croft__Refused refused = MESSAGE(Croft__Refused, croft__refused);
	bool sent;

	refused.seq = link->handled_seq;
	refused.failure = failure_encode(err);
	if (!refused.failure)
		return false;
	envelope.body_case = CROFT__ENVELOPE__BODY_REFUSED;
	envelope.refused = &refused;
	sent = link_send(link, &envelope, NULL);
	protobuf_c_message_free_unpacked(&refused.failure->base, NULL);
	return sent;
}

bool link_send_clock(struct link *link, uint64_t number)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope);
	Croft__ClockPong pong = MESSAGE(Croft__ClockPong, croft__clock_pong);

	pong.number = number;
	pong.realtime_us = clock_realtime_usec();
	envelope.body_case = CROFT__ENVELOPE__BODY_CLOCK_PONG;
	envelope.clock_pong = &pong;
	return link_send(link, &envelope, NULL);
}

bool link_send_upgrade_result(struct link *link, const char *operation, const struct err *failure)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope);
	Croft__UpgradeResult message = MESSAGE(Croft__UpgradeResult, croft__upgrade_result);
	char copy[ID_SIZE];
	bool sent;

	(void)snprintf(copy, sizeof(copy), "%s", operation);
	message.operation = copy;
	message.failure = err_is_set(failure) ? failure_encode(failure) : NULL;
	if (err_is_set(failure) && !message.failure)
		return false;
	envelope.body_case = CROFT__ENVELOPE__BODY_UPGRADE_RESULT;
	envelope.upgrade_result = &message;
	sent = link_send(link, &envelope, NULL);
	if (message.failure)
		protobuf_c_message_free_unpacked(&message.failure->base, NULL);
	return sent;
}

bool link_send_image_request(
	uint64_t request, const char *digest, uint64_t offset, uint32_t credit, void *user)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope);
	Croft__ImageRequest message = MESSAGE(Croft__ImageRequest, croft__image_request);
	struct agent *agent = user;
	char copy[DIGEST_SIZE];

	(void)strncpy(copy, digest, sizeof(copy) - 1);
	copy[sizeof(copy) - 1] = '\0';
	message.request = request;
	message.digest = copy;
	message.offset = offset;
	message.credit = credit;
	envelope.body_case = CROFT__ENVELOPE__BODY_IMAGE_REQUEST;
	envelope.image_request = &message;
	return agent->link && link_send(agent->link, &envelope, NULL);
}

/* ---- relayed streams ---- */

bool link_send_stream_data(uint64_t stream, const void *data, size_t size, bool end, void *user)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope);
	Croft__StreamData message = MESSAGE(Croft__StreamData, croft__stream_data);
	struct agent *agent = user;

	message.stream = stream;
	message.data.data = (uint8_t *)(uintptr_t)data; /* packed, never written to */
	message.data.len = size;
	message.end = end;
	envelope.body_case = CROFT__ENVELOPE__BODY_STREAM_DATA;
	envelope.stream_data = &message;
	return link_send(agent->link, &envelope, NULL);
}

bool link_send_stream_credit(uint64_t stream, uint32_t bytes, void *user)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope);
	Croft__StreamCredit message = MESSAGE(Croft__StreamCredit, croft__stream_credit);
	struct agent *agent = user;

	message.stream = stream;
	message.bytes = bytes;
	envelope.body_case = CROFT__ENVELOPE__BODY_STREAM_CREDIT;
	envelope.stream_credit = &message;
	return link_send(agent->link, &envelope, NULL);
}

bool link_send_stream_close(uint64_t stream, const struct err *failure, void *user)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope);
	Croft__StreamClose message = MESSAGE(Croft__StreamClose, croft__stream_close);
	struct agent *agent = user;
	bool sent;

	message.stream = stream;
	if (failure)
		message.failure = failure_encode(failure);
	envelope.body_case = CROFT__ENVELOPE__BODY_STREAM_CLOSE;
	envelope.stream_close = &message;
	sent = link_send(agent->link, &envelope, NULL);
	if (message.failure)
		protobuf_c_message_free_unpacked(&message.failure->base, NULL);
	return sent;
}

/* ---- telemetry ---- */

static void free_records(Croft__TelemetryBatch *batch)
{
	for (size_t i = 0; i < batch->n_records; i++)
		croft__telemetry_record__free_unpacked(batch->records[i], NULL);
	batch->n_records = 0;
}

/* 1: a batch went out, 0: nothing waits, -1: no room on the link. */
static int send_batch(struct link *link)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope);
	Croft__TelemetryBatch batch = MESSAGE(Croft__TelemetryBatch, croft__telemetry_batch);
	Croft__TelemetryRecord *records[BATCH_RECORDS];
	struct spool *spool = link->agent->spool;
	size_t used = 0;
	struct spool_counts before;
	bool sent;

	spool_counts(spool, &before);
	batch.records = records;
	while (batch.n_records < BATCH_RECORDS && used < BATCH_SIZE - SPOOL_RECORD_MAX) {
		Croft__TelemetryRecord *record = spool_next(spool);

		if (!record)
			break;
		used += croft__telemetry_record__get_packed_size(record) + 8;
		records[batch.n_records++] = record;
	}
	if (batch.n_records == 0)
		return 0;
	envelope.body_case = CROFT__ENVELOPE__BODY_TELEMETRY;
	envelope.telemetry = &batch;
	sent = link_send(link, &envelope, NULL);
	free_records(&batch);
	if (!sent) {
		spool_unsend(spool, before.sent);
		return -1;
	}
	link->telemetry_sent_usec = clock_monotonic_usec();
	return 1;
}

void link_pump_telemetry(struct link *link)
{
	int r = 1;

	if (link->state != LINK_WELCOMED)
		return;
	/* telemetry takes turns with everything else */
	for (int i = 0; r > 0 && i < BATCHES_PER_TURN; i++)
		r = send_batch(link);
	if (r != 0) {
		struct timeval soon = { .tv_usec = r > 0 ? 0 : 100 * 1000 };

		(void)evtimer_add(link->telemetry, &soon);
	}
}

void link_telemetry_ready(struct link *link)
{
	if (link)
		link_pump_telemetry(link);
}
