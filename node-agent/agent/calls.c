/* SPDX-License-Identifier: Apache-2.0
 *
 * See calls.h.
 */
#include "agent/calls.h"

#include <stdio.h>
#include <string.h>

#include "agent/message.h"
#include "agent/spool.h"
#include "base/clock.h"
#include "base/log.h"
#include "wire/records.h"

#define AUDITED "audit"
#define AUDITED_FIELDS 16
#define CALL_LEFT "client-left" /* the one reason that a call may have */

static bool is_hex(const char *text, size_t n)
{
	return strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

/* A record of what may be said; false: it is no call. */
static bool read_call(const Croft__StageRecord *message, struct stage_record *ret)
{
	struct stage_record told;

	if (stage_record_decode(message, &told) < 0 || told.stage < STAGE_EXEC || told.stage > STAGE_PORT ||
		told.n_alike > STAGE_ALIKE_MAX ||
		(*told.sandbox && !id_is_valid(told.sandbox)) || (told.outcome == RESULT_FAILED) != err_is_set(&told.failure))
		return false;
	*ret = (struct stage_record){ .stage = told.stage,
		.outcome = told.outcome,
		.began_us = told.began_us,
		.took_us = told.took_us < 0 ? 0 : told.took_us,
		.n_alike = told.n_alike,
		.attempt = 1 };
	memcpy(ret->sandbox, told.sandbox, sizeof(ret->sandbox));
	if (!strcmp(told.reason, CALL_LEFT))
		(void)snprintf(ret->reason, sizeof(ret->reason), CALL_LEFT);
	if (is_hex(told.trace.trace_id, TRACE_ID_SIZE - 1))
		memcpy(ret->trace.trace_id, told.trace.trace_id, sizeof(ret->trace.trace_id));
	if (is_hex(told.trace.span_id, SPAN_ID_SIZE - 1))
		memcpy(ret->trace.span_id, told.trace.span_id, sizeof(ret->trace.span_id));
	if (err_is_set(&told.failure)) {
		ret->failure.code = told.failure.code;
		ret->failure.stage = told.stage;
		ret->failure.component = told.failure.component;
		ret->failure.err_no = told.failure.err_no;
	}
	return true;
}

static void keep_gap(struct spool *spool, uint64_t n)
{
	Croft__TelemetryRecord record = MESSAGE(Croft__TelemetryRecord, croft__telemetry_record);
	Croft__TelemetryGap gap = MESSAGE(Croft__TelemetryGap, croft__telemetry_gap);

	gap.dropped = n;
	record.when_us = clock_realtime_usec();
	record.body_case = CROFT__TELEMETRY_RECORD__BODY_GAP;
	record.gap = &gap;
	spool_append(spool, &record);
}

/* Of a command that is over: what the gateway says may leave (gateway/audit.h). */
static void keep_audited(struct spool *spool, Croft__NodeEvent *event)
{
	Croft__TelemetryRecord record = MESSAGE(Croft__TelemetryRecord, croft__telemetry_record);

	if (strcmp(event->name, AUDITED) != 0 || !id_is_valid(event->sandbox) || event->n_fields > AUDITED_FIELDS)
		return;
	record.when_us = clock_realtime_usec();
	record.body_case = CROFT__TELEMETRY_RECORD__BODY_EVENT;
	record.event = event;
	spool_append(spool, &record);
}

void calls_keep(struct spool *spool, const Croft__GatewayCalls *calls)
{
	uint64_t lost = calls->lost;

	for (size_t i = 0; i < calls->n_records; i++) {
		Croft__TelemetryRecord record = MESSAGE(Croft__TelemetryRecord, croft__telemetry_record);
		struct stage_record call;

		if (!read_call(calls->records[i], &call)) {
			log_warn("the gateway told of a call that is none");
			continue;
		}
		record.stage = stage_record_encode(&call);
		if (!record.stage) {
			lost += call.n_alike > 0 ? call.n_alike : 1;
			continue;
		}
		record.when_us = clock_realtime_usec();
		record.body_case = CROFT__TELEMETRY_RECORD__BODY_STAGE;
		spool_append(spool, &record);
		protobuf_c_message_free_unpacked(&record.stage->base, NULL);
	}
	for (size_t i = 0; i < calls->n_audited; i++)
		keep_audited(spool, calls->audited[i]);
	if (lost > 0)
		keep_gap(spool, lost);
}
