/* SPDX-License-Identifier: Apache-2.0
 *
 * See link.h. The table below is what a scheduler may say to a node.
 */
#include "agent/link.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "agent/images.h"
#include "agent/link-send.h"
#include "agent/relay.h"
#include "agent/spool.h"
#include "agent/transport.h"
#include "agent/upgrade.h"
#include "base/clock.h"
#include "base/log.h"
#include "wire/credit.h"
#include "wire/records.h"

#define ROTATE_SEC 3
#define ROTATE_TURNS 5               /* not connected for so many: the next address is tried */
#define ACK_USEC (10 * USEC_PER_SEC) /* telemetry not acknowledged for so long is sent again */
#define SMALL (4u * 1024u)
/* Behind a new set of keys: a fleet that does so at once would stand in its own way. */
#define RELINK_USEC_MIN USEC_PER_SEC
#define RELINK_USEC (10 * USEC_PER_SEC)
#define LARGE ENDPOINT_FRAME_MAX
#define LANE (CREDIT_FRAME_MAX + 1024u)

enum { ROLE_SCHEDULER };

static void feed(struct link *link, struct sv_event *event, const struct envelope_head *head)
{
	if (head) {
		event->epoch = head->epoch;
		/* what the handler sends acknowledges this message, and may refuse it */
		link->handled_seq = head->seq;
		link->seen_seq = MAX(link->seen_seq, head->seq);
	}
	agent_feed(link->agent, event);
}

/* Lanes do not pass through the supervisor, which knows about epochs. */
static bool is_stale(const struct link *link, const struct envelope_head *head)
{
	return head->epoch < link->epoch;
}

/* ---- handlers: decode, feed ---- */

/* Stored before it is used, and told by the hello of another link: soon, but not the whole fleet at once. */
static void learn(struct link *link, const struct link_set *told)
{
	struct agent *agent = link->agent;
	struct identity mine = agent->identity;
	struct scheduler_address to;
	struct timeval tv = { .tv_sec = 0 };
	struct err err = ERR_NULL;
	int64_t pause;

	if (!*told->key || !scheduler_learn(&mine.scheduler, told, link->used_key))
		return;
	to = mine.scheduler;
	if (transport_choose(agent->options, &to, &err) < 0 || identity_write(agent->options->state, &mine, &err) < 0) {
		log_failure(LOG_LEVEL_WARN, "the scheduler's new keys and addresses were not stored", &err, NULL);
		return;
	}
	log_info("keys and addresses of the scheduler are stored", "key", mine.scheduler.key, "next_key",
		mine.scheduler.next_key, "addresses", LOG_NUM(mine.scheduler.n_addresses));
	if (!strcmp(mine.scheduler.key, agent->identity.scheduler.key) &&
		!strcmp(mine.scheduler.next_key, agent->identity.scheduler.next_key))
		pause = 0; /* addresses alone are for the next time */
	else
		pause = RELINK_USEC_MIN + (int64_t)rng_below(&agent->rng, RELINK_USEC);
	agent->identity = mine;
	link->to = to;
	link->target = 0;
	tv.tv_sec = pause / USEC_PER_SEC;
	tv.tv_usec = pause % USEC_PER_SEC;
	if (pause)
		(void)evtimer_add(link->relink, &tv);
}

static int on_welcome(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_WELCOME };
	struct link *link = call;
	struct welcome welcome;
	struct link_set told;
	int r = welcome_decode(envelope->welcome, &welcome, reterr);

	if (r < 0)
		return r;
	event.welcome = &welcome;
	if (is_stale(link, head)) {
		feed(link, &event, head); /* refused by the supervisor */
		return 0;
	}
	link->epoch = head->epoch;
	if (link->state != LINK_WELCOMED) {
		link->state = LINK_WELCOMED;
		log_info("welcomed by the scheduler", "node", welcome.node, "pool", welcome.pool,
			"epoch", LOG_NUM(head->epoch));
		agent_node_event(link->agent, "link-up", "", "", NULL);
	}
	spool_welcome(link->agent->spool, welcome.telemetry_acked);
	if (envelope->welcome->link && link_set_decode(envelope->welcome->link, &told, NULL) == 0)
		learn(link, &told);
	feed(link, &event, head);
	images_link_up(link->agent->images);
	link_pump_telemetry(link);
	return 0;
}

static int on_desired(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_DESIRED };
	struct desired_set set = { .n = 0 };
	int r = desired_set_decode(envelope->desired, &set, reterr);

	if (r < 0)
		return r;
	event.desired = &set;
	feed(call, &event, head);
	desired_set_deinit(&set);
	return 0;
}

static int on_create(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_CREATE };
	struct create_command command = { .attempt = 0 };
	int r = create_command_decode(envelope->create, &command, reterr);

	if (r < 0)
		return r;
	command.trace = head->trace;
	command.left_usec =
		(int64_t)MIN(head->deadline_ms, (uint64_t)INT64_MAX / 1000) * USEC_PER_MSEC;
	event.create = &command;
	feed(call, &event, head);
	create_command_deinit(&command);
	return 0;
}

static int on_destroy(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_DESTROY };
	struct destroy_command command;
	int r = destroy_command_decode(envelope->destroy, &command, reterr);

	if (r < 0)
		return r;
	event.destroy = &command;
	feed(call, &event, head);
	return 0;
}

static int on_update(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_UPDATE };
	struct update_command command;
	int r = update_command_decode(envelope->update, &command, reterr);

	if (r < 0)
		return r;
	event.update = &command;
	feed(call, &event, head);
	return 0;
}

static int on_budget_update(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_BUDGET_UPDATE };
	struct budget_command command;
	int r = budget_command_decode(envelope->budget_update, &command, reterr);

	if (r < 0)
		return r;
	event.budget_update = &command;
	feed(call, &event, head);
	return 0;
}

static int on_pause(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_PAUSE };
	struct pause_command command;
	int r = pause_command_decode(envelope->pause, &command, reterr);

	if (r < 0)
		return r;
	event.pause = &command;
	feed(call, &event, head);
	return 0;
}

static int on_resume(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_RESUME };
	struct resume_command command;
	int r = resume_command_decode(envelope->resume, &command, reterr);

	if (r < 0)
		return r;
	event.resume = &command;
	feed(call, &event, head);
	return 0;
}

static int on_snapshot(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_SNAPSHOT };
	struct snapshot_command command;
	int r = snapshot_command_decode(envelope->snapshot, &command, reterr);

	if (r < 0)
		return r;
	event.take = &command;
	feed(call, &event, head);
	return 0;
}

static int on_drop_snapshot(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_DROP_SNAPSHOT };
	char snapshot[ID_SIZE];
	int r = drop_snapshot_decode(envelope->drop_snapshot, snapshot, reterr);

	if (r < 0)
		return r;
	event.drop = snapshot;
	feed(call, &event, head);
	return 0;
}

static int on_network_update(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_NETWORK_UPDATE };
	struct network_command command = { .generation = 0 };
	int r = network_command_decode(envelope->network_update, &command, reterr);

	if (r < 0)
		return r;
	event.network_update = &command;
	feed(call, &event, head);
	network_command_deinit(&command);
	return 0;
}

static int on_report_ack(void *call, const struct envelope_head *head,
	const Croft__Envelope *envelope, struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_REPORT_ACK };
	struct report_ack ack;
	int r = report_ack_decode(envelope->report_ack, &ack, reterr);

	if (r < 0)
		return r;
	event.ack = &ack;
	feed(call, &event, head);
	return 0;
}

static int on_lease(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_LEASE };
	struct lease_grant grant;

	(void)reterr;
	lease_grant_decode(envelope->lease, &grant);
	event.lease = &grant;
	feed(call, &event, head);
	return 0;
}

static int on_usage_ack(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_USAGE_ACK, .number = envelope->usage_ack->number };

	(void)reterr;
	feed(call, &event, head);
	return 0;
}

static int on_refused(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct sv_event event = { .type = SV_EV_REFUSED };
	struct link *link = call;
	struct err err = ERR_NULL;

	(void)reterr;
	if (envelope->refused->failure)
		failure_decode(envelope->refused->failure, &err);
	if (!err_is_set(&err))
		(void)err_set(&err, FAIL_FRAME_INVALID, 0,
			"the scheduler refused a message without saying why");
	if (err.code == FAIL_HELLO_NEEDED)
		link->state = LINK_GREETING;
	log_failure(err.code == FAIL_HELLO_NEEDED ? LOG_LEVEL_INFO : LOG_LEVEL_WARN,
		"refused by the scheduler", &err, "seq", LOG_NUM(envelope->refused->seq), NULL);
	event.err = &err;
	feed(link, &event, head);
	return 0;
}

static int on_telemetry_ack(void *call, const struct envelope_head *head,
	const Croft__Envelope *envelope, struct err *reterr)
{
	struct link *link = call;

	(void)reterr;
	if (!is_stale(link, head))
		spool_ack(link->agent->spool, envelope->telemetry_ack->seq);
	return 0;
}

static int on_image_chunk(void *call, const struct envelope_head *head,
	const Croft__Envelope *envelope, struct err *reterr)
{
	const Croft__ImageChunk *message = envelope->image_chunk;
	struct link *link = call;
	struct err failure = ERR_NULL;
	struct image_chunk chunk = { .request = message->request,
		.offset = message->offset,
		.data = message->data.data,
		.size = message->data.len,
		.image_size = message->size };

	(void)reterr;
	if (is_stale(link, head))
		return 0;
	if (message->failure) {
		failure_decode(message->failure, &failure);
		if (!err_is_set(&failure))
			(void)err_set(&failure, FAIL_IMAGE_FETCH_FAILED, 0, "the source failed");
		chunk.failure = &failure;
	}
	images_chunk(link->agent->images, &chunk);
	return 0;
}

static int on_upgrade_offer(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct link *link = call;

	return is_stale(link, head) ? 0 : upgrade_offered(link->agent, envelope->upgrade_offer, reterr);
}

static int on_clock_ping(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct link *link = call;

	(void)reterr;
	if (!is_stale(link, head))
		(void)link_send_clock(link, envelope->clock_ping->number);
	return 0;
}

static int on_stream(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr)
{
	struct link *link = call;
	struct relay *relay = link->agent->relay;

	(void)reterr;
	if (is_stale(link, head))
		return 0;
	if (envelope->body_case == CROFT__ENVELOPE__BODY_STREAM_OPEN)
		relay_open(relay, envelope->stream_open->stream, envelope->stream_open->credit);
	else if (envelope->body_case == CROFT__ENVELOPE__BODY_STREAM_DATA)
		relay_data(relay, envelope->stream_data->stream, envelope->stream_data->data.data,
			envelope->stream_data->data.len, envelope->stream_data->end);
	else if (envelope->body_case == CROFT__ENVELOPE__BODY_STREAM_CREDIT)
		relay_credit(
			relay, envelope->stream_credit->stream, envelope->stream_credit->bytes);
	else
		relay_close(relay, envelope->stream_close->stream);
	return 0;
}

#define ROW(name, states, size, handler)                                                           \
	{                                                                                          \
		CROFT__ENVELOPE__BODY_##name, DISPATCH_IN(ROLE_SCHEDULER), states, size, handler   \
	}
#define WELCOMED DISPATCH_IN(LINK_WELCOMED)

/* clang-format off */
static const struct dispatch_row rows[] = {
	ROW(WELCOME,       DISPATCH_ANY, SMALL, on_welcome),
	ROW(REFUSED,       DISPATCH_ANY, SMALL, on_refused),
	ROW(DESIRED,       WELCOMED,     LARGE, on_desired),
	ROW(CREATE,        WELCOMED,     LARGE, on_create),
	ROW(DESTROY,       WELCOMED,     SMALL, on_destroy),
	ROW(UPDATE,        WELCOMED,     SMALL, on_update),
	ROW(NETWORK_UPDATE, WELCOMED,    LARGE, on_network_update),
	ROW(BUDGET_UPDATE, WELCOMED,     SMALL, on_budget_update),
	ROW(PAUSE,         WELCOMED,     SMALL, on_pause),
	ROW(RESUME,        WELCOMED,     SMALL, on_resume),
	ROW(SNAPSHOT,      WELCOMED,     SMALL, on_snapshot),
	ROW(DROP_SNAPSHOT, WELCOMED,     SMALL, on_drop_snapshot),
	ROW(REPORT_ACK,    WELCOMED,     SMALL, on_report_ack),
	ROW(LEASE,         WELCOMED,     SMALL, on_lease),
	ROW(USAGE_ACK,     WELCOMED,     SMALL, on_usage_ack),
	ROW(TELEMETRY_ACK, WELCOMED,     SMALL, on_telemetry_ack),
	ROW(IMAGE_CHUNK,   WELCOMED,     LANE,  on_image_chunk),
	ROW(UPGRADE_OFFER, WELCOMED,     SMALL, on_upgrade_offer),
	ROW(CLOCK_PING,    WELCOMED,     SMALL, on_clock_ping),
	ROW(STREAM_OPEN,   WELCOMED,     SMALL, on_stream),
	ROW(STREAM_DATA,   WELCOMED,     LANE,  on_stream),
	ROW(STREAM_CREDIT, WELCOMED,     SMALL, on_stream),
	ROW(STREAM_CLOSE,  WELCOMED,     SMALL, on_stream),
};
/* clang-format on */

static void on_message(const void *data, size_t size, void *user)
{
	struct link *link = user;
	struct envelope_head head;
	struct err err = ERR_NULL;
	enum dispatch_result result;
	uint8_t *answer;
	size_t answer_size;

	result = dispatch(
		&link->dispatch, data, size, ROLE_SCHEDULER, link->state, link, &head, &err);
	link->seen_seq = MAX(link->seen_seq, head.seq);
	if (result == DISPATCH_OK)
		return;
	log_failure(LOG_LEVEL_WARN, "a message of the scheduler was dropped", &err, "result",
		dispatch_result_name(result), NULL);
	if (!dispatch_is_answerable(result, &head))
		return;
	head = (struct envelope_head){
		.epoch = link->epoch, .seq = link->seq + 1, .ack = link->seen_seq
	};
	answer = envelope_pack_refused(&head, link->seen_seq, &err, &answer_size);
	if (answer && dealer_send(link->dealer, answer, answer_size))
		link->seq++;
	free(answer);
}

/* ---- connection ---- */

static void went_up(struct link *link)
{
	struct sv_event event = { .type = SV_EV_LINK_UP };

	link->is_up = true;
	link->silent_turns = 0;
	link->state = LINK_GREETING;
	link->seq = link->seen_seq = 0;
	feed(link, &event, NULL);
}

static void went_down(struct link *link)
{
	struct sv_event event = { .type = SV_EV_LINK_DOWN };

	if (!link->is_up)
		return;
	link->is_up = false;
	if (link->state == LINK_WELCOMED)
		agent_node_event(link->agent, "link-lost", "", "", NULL);
	link->state = LINK_GREETING;
	(void)evtimer_del(link->telemetry);
	images_link_down(link->agent->images);
	relay_reset(link->agent->relay);
	feed(link, &event, NULL);
}

static void on_state(enum dealer_state state, void *user)
{
	struct link *link = user;
	struct err err = ERR_NULL;

	switch (state) {
	case DEALER_CONNECTING:
		break;
	case DEALER_UP:
		went_up(link);
		break;
	case DEALER_REFUSED:
		/* The scheduler does not say why; the VMs of a node that was revoked live on until
		 * their own end. */
		(void)err_set(&err, FAIL_NODE_KEY_UNKNOWN, EACCES,
			"the scheduler refuses this node's key");
		log_failure(LOG_LEVEL_ERROR, "the link is refused", &err, "node",
			link->agent->identity.node, NULL);
		went_down(link);
		break;
	case DEALER_DOWN:
		if (!link->is_up)
			link->silent_turns = ROTATE_TURNS; /* nobody there, or nobody who has this key: not the same once more */
		went_down(link);
		break;
	}
}

static unsigned int n_targets(const struct link *link)
{
	return scheduler_n_targets(&link->to);
}

static int dial(struct link *link, struct err *reterr)
{
	const struct dealer_handler handler = { .on_message = on_message, .on_state = on_state };
	const char *key, *address = scheduler_target(&link->to, link->target, &key);
	struct dealer_config config = { .keys = link->agent->keys };

	(void)snprintf(config.server_key, sizeof(config.server_key), "%s", key);
	memcpy(link->used_key, config.server_key, sizeof(link->used_key));
	transport_point(link->transport, address, &config);
	log_info("dialling the scheduler", "address", address);
	return dealer_new(&link->dealer, link->agent->base, link->agent->zmq, &config, &handler,
		link, reterr);
}

static void on_rotate(evutil_socket_t fd, short what, void *user)
{
	struct link *link = user;
	struct timeval tv = { .tv_sec = ROTATE_SEC };
	struct err err = ERR_NULL;

	(void)fd, (void)what;
	(void)evtimer_add(link->rotate, &tv);
	if (link->is_up ||
		(link->dealer && (n_targets(link) < 2 || ++link->silent_turns < ROTATE_TURNS)))
		return;
	link->silent_turns = 0;
	dealer_free(link->dealer);
	link->dealer = NULL;
	link->target = (link->target + 1) % n_targets(link);
	if (dial(link, &err) < 0)
		log_failure(LOG_LEVEL_WARN, "cannot dial", &err, NULL);
}

/* Also the second try of what was sent and never acknowledged: a frame may be lost with everything
 * up. */
static void on_telemetry_time(evutil_socket_t fd, short what, void *user)
{
	struct link *link = user;

	(void)fd, (void)what;
	link_pump_telemetry(link);
}

static void resend_telemetry(struct link *link)
{
	struct spool_counts counts;

	spool_counts(link->agent->spool, &counts);
	if (link->state != LINK_WELCOMED || counts.sent == counts.acked ||
		clock_monotonic_usec() - link->telemetry_sent_usec < ACK_USEC)
		return;
	spool_unsend(link->agent->spool, counts.acked);
	link_pump_telemetry(link);
}

static void on_turn(evutil_socket_t fd, short what, void *user)
{
	resend_telemetry(user);
	on_rotate(fd, what, user);
}

static void on_reconnect(evutil_socket_t fd, short what, void *user)
{
	struct link *link = user;

	(void)fd, (void)what;
	if (!link->dealer)
		return;
	dealer_reconnect(link->dealer);
	if (n_targets(link) < 2)
		return;
	dealer_free(link->dealer); /* whoever is there will refuse it again: the next turn tries the next address */
	link->dealer = NULL;
}

/* The stored set's first pair; what does not answer falls back to the others. */
static void on_relink(evutil_socket_t fd, short what, void *user)
{
	struct link *link = user;
	struct err err = ERR_NULL;

	(void)fd, (void)what;
	went_down(link);
	dealer_free(link->dealer);
	link->dealer = NULL;
	link->target = 0;
	link->silent_turns = 0;
	if (dial(link, &err) < 0)
		log_failure(LOG_LEVEL_WARN, "cannot dial", &err, NULL);
}

int link_new(struct link **ret, struct agent *agent, struct err *reterr)
{
	struct link *link = calloc(1, sizeof(*link));
	struct timeval tv = { .tv_sec = ROTATE_SEC };
	int r;

	if (!link)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the link");
	link->agent = agent;
	link->dispatch.rows = rows;
	link->dispatch.n_rows = ARRAY_LEN(rows);
	link->rotate = evtimer_new(agent->base, on_turn, link);
	link->telemetry = evtimer_new(agent->base, on_telemetry_time, link);
	link->reconnect = evtimer_new(agent->base, on_reconnect, link);
	link->relink = evtimer_new(agent->base, on_relink, link);
	link->epoch = agent->saved_epoch;
	link->to = agent->identity.scheduler;
	r = transport_choose(agent->options, &link->to, reterr);
	if (r == 0)
		r = transport_new(&link->transport, agent->base, agent->options, reterr);
	if (r < 0)
		; /* said */
	else if (!link->rotate || !link->telemetry || !link->reconnect || !link->relink ||
		evtimer_add(link->rotate, &tv) < 0)
		r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the link");
	else
		r = dial(link, reterr);
	if (r < 0) {
		link_free(link);
		return r;
	}
	*ret = link;
	return 0;
}

void link_free(struct link *link)
{
	if (!link)
		return;
	link->is_up = false;
	dealer_free(link->dealer);
	transport_free(link->transport);
	if (link->rotate)
		event_free(link->rotate);
	if (link->telemetry)
		event_free(link->telemetry);
	if (link->reconnect)
		event_free(link->reconnect);
	if (link->relink)
		event_free(link->relink);
	free(link);
}

void link_reconnect(struct link *link)
{
	/* on the next turn: the cut is an event for the supervisor, whose step may be what asks for
	 * it */
	event_active(link->reconnect, EV_TIMEOUT, 0);
}
