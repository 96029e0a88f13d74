/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks of nodes: asked for with heartbeats, kept per session (telemetry/clock-offset.h). Times that a node says are corrected here,
 * before anything is done with them or stored: what is read again from the store is right already. What was counted before is known
 * by what its node said: corrected_us stands beside a corrected time, and a report that comes again under another offset is the same.
 */
#include "server/link-private.h"
#include "server/message.h"
#include "wire/messages.h"

void link_clock_greeted(struct link *link, uint64_t number, int64_t node_us)
{
	struct session *session = link_session(link, number);

	if (session)
		clock_offset_greeted(&session->clock, node_us, clock_realtime_usec());
}

void link_clock_ask(struct link *link, uint64_t number, int64_t node_us)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__ClockPing ping = MESSAGE(Croft__ClockPing, croft__clock_ping__init);
	struct session *session = link_session(link, number);

	if (session) {
		clock_offset_heard(&session->clock, node_us, clock_realtime_usec());
		ping.number = clock_offset_ask(&session->clock, clock_monotonic_usec());
	}
	if (ping.number == 0)
		return;
	envelope.body_case = CROFT__ENVELOPE__BODY_CLOCK_PING;
	envelope.clock_ping = &ping;
	(void)link_send(link, number, &envelope); /* lost: the next one comes */
}

int link_clock_on_pong(void *user, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	const struct call *call = user;
	const Croft__ClockPong *pong = envelope->clock_pong;
	struct session *session = link_session(call->link, call->message.session);

	(void)head;
	(void)reterr;
	if (session)
		clock_offset_answered(
			&session->clock, pong->number, pong->realtime_us, clock_monotonic_usec(), clock_realtime_usec());
	return 0;
}

bool link_clock(const struct link *link, uint64_t number, struct clock_sample *ret)
{
	const struct session *session = link_session(link, number);

	return session && clock_offset_measured(&session->clock, ret);
}

static int64_t ahead_of(const struct link *link, uint64_t number)
{
	const struct session *session = link_session(link, number);

	return session ? clock_offset_ahead(&session->clock) : 0;
}

void link_clock_correct_report(const struct link *link, uint64_t number, struct sandbox_report *report)
{
	const int64_t ahead_us = ahead_of(link, number);

	for (size_t i = 0; i < report->n_stages; i++) {
		struct stage_record *stage = &report->stages[i];
		const int64_t said_us = stage->began_us;

		stage->began_us = clock_offset_correct(ahead_us, said_us);
		stage->corrected_us = stage->began_us == said_us ? 0 : -ahead_us;
	}
}

void link_clock_correct_batch(const struct link *link, uint64_t number, const Croft__TelemetryBatch *batch)
{
	const int64_t ahead_us = ahead_of(link, number);

	for (size_t i = 0; i < batch->n_records; i++) {
		Croft__TelemetryRecord *record = batch->records[i];
		Croft__StageRecord *stage = record->body_case == CROFT__TELEMETRY_RECORD__BODY_STAGE ? record->stage : NULL;
		const int64_t said_us = stage ? stage->began_us : 0;

		record->when_us = clock_offset_correct(ahead_us, record->when_us);
		if (!stage)
			continue;
		stage->began_us = clock_offset_correct(ahead_us, said_us);
		stage->corrected_us = stage->began_us == said_us ? 0 : -ahead_us;
	}
}
