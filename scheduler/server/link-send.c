/* SPDX-License-Identifier: Apache-2.0
 *
 * Sending over the link; see link.h. Everything the fleet sends is best effort: what matters is sent again by a
 * later step, so a full queue drops and counts.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/link-private.h"
#include "server/message.h"

enum link_result link_send_traced(struct link *link, uint64_t number, Croft__Envelope *envelope,
	const struct trace *trace, uint64_t deadline_ms)
{
	struct session *session = link_session(link, number);
	struct envelope_head head = { .epoch = link->server->epoch, .deadline_ms = deadline_ms };
	CLEANUP_FREE uint8_t *data = NULL;
	size_t size = 0;

	if (!session)
		return LINK_GONE;
	head.seq = session->seq_out + 1;
	head.ack = session->seq_in;
	if (trace)
		head.trace = *trace;
	data = envelope_pack(&head, envelope, &size);
	if (!data) {
		log_error("a message could not be made: it is too long, or memory is short", "to",
			session->user_id);
		return LINK_FULL;
	}
	switch (router_send(link->router, &session->route, data, size)) {
	case ROUTER_SENT:
		session->seq_out++;
		return LINK_SENT;
	case ROUTER_NO_CREDIT:
		link->server->counters.link_send_full++;
		return LINK_FULL;
	case ROUTER_GONE:
		break;
	}
	link_session_gone(link, session);
	return LINK_GONE;
}

enum link_result link_send(struct link *link, uint64_t number, Croft__Envelope *envelope)
{
	return link_send_traced(link, number, envelope, NULL, 0);
}

void link_refuse(struct link *link, uint64_t session, const struct err *err, uint64_t seq)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__Refused refused = MESSAGE(Croft__Refused, croft__refused__init);

	refused.seq = seq;
	refused.failure = failure_encode(err);
	envelope.body_case = CROFT__ENVELOPE__BODY_REFUSED;
	envelope.refused = &refused;
	(void)link_send(link, session, &envelope);
	if (refused.failure)
		croft__failure_record__free_unpacked(refused.failure, NULL);
}

/* Sends what an encoder made and frees it. */
static void send_made(
	struct link *link, uint64_t session, Croft__Envelope *envelope, ProtobufCMessage *message)
{
	if (!message) {
		log_error("no memory for a message to a node");
		return;
	}
	(void)link_send(link, session, envelope);
	protobuf_c_message_free_unpacked(message, NULL);
}

#define SEND(member, BODY_NAME, made)                                                              \
	do {                                                                                       \
		envelope.member = made;                                                            \
		envelope.body_case = CROFT__ENVELOPE__BODY_##BODY_NAME;                            \
		send_made(link, send->session, &envelope,                                          \
			envelope.member ? &envelope.member->base : NULL);                          \
	} while (0)

static void send_create(struct link *link, uint64_t session, const struct create_command *create)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	uint64_t deadline_ms =
		create->left_usec > 0 ? (uint64_t)(create->left_usec / USEC_PER_MSEC) : 0;

	envelope.body_case = CROFT__ENVELOPE__BODY_CREATE;
	envelope.create = create_command_encode(create);
	if (!envelope.create) {
		log_error("no memory for a message to a node");
		return;
	}
	(void)link_send_traced(link, session, &envelope, &create->trace, deadline_ms);
	croft__create_sandbox__free_unpacked(envelope.create, NULL);
}

/* What the fleet does not know: how this scheduler is reached. */
static void send_welcome(struct link *link, const struct fleet_send *send)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__Welcome *welcome = welcome_encode(&send->welcome);

	if (welcome)
		welcome->link = link_set_encode(&link->set); /* without memory: one that does not say */
	SEND(welcome, WELCOME, welcome);
}

void link_send_action(struct link *link, const struct fleet_send *send)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);

	switch (send->type) {
	case SEND_WELCOME:
		send_welcome(link, send);
		break;
	case SEND_DESIRED:
		SEND(desired, DESIRED, desired_set_encode(&send->desired));
		break;
	case SEND_CREATE:
		send_create(link, send->session, &send->create);
		break;
	case SEND_DESTROY:
		SEND(destroy, DESTROY, destroy_command_encode(&send->destroy));
		break;
	case SEND_NETWORK:
		SEND(network_update, NETWORK_UPDATE, network_command_encode(&send->network));
		break;
	case SEND_BUDGET:
		SEND(budget_update, BUDGET_UPDATE, budget_command_encode(&send->budget));
		break;
	case SEND_UPDATE:
		SEND(update, UPDATE, update_command_encode(&send->update));
		break;
	case SEND_PAUSE:
		SEND(pause, PAUSE, pause_command_encode(&send->pause));
		break;
	case SEND_RESUME:
		SEND(resume, RESUME, resume_command_encode(&send->resume));
		break;
	case SEND_SNAPSHOT:
		SEND(snapshot, SNAPSHOT, snapshot_command_encode(&send->snapshot));
		break;
	case SEND_DROP_SNAPSHOT:
		SEND(drop_snapshot, DROP_SNAPSHOT, drop_snapshot_encode(send->drop_snapshot));
		break;
	case SEND_REPORT_ACK:
		SEND(report_ack, REPORT_ACK, report_ack_encode(&send->ack));
		break;
	case SEND_LEASE:
		SEND(lease, LEASE, lease_grant_encode(&send->lease));
		break;
	case SEND_REFUSED:
		link_refuse(link, send->session, send->refused, 0);
		break;
	}
}
