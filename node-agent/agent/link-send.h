/* SPDX-License-Identifier: Apache-2.0
 *
 * Between link.c and link-send.c: the link's object, and sending.
 */
#pragma once

#include "agent/agent.h"
#include "agent/link.h"
#include "wire/dispatch.h"
#include "wire/endpoint.h"

struct event;

enum link_state { LINK_GREETING, LINK_WELCOMED };

struct link {
	struct agent *agent;
	struct dealer *dealer;
	struct transport *transport;
	struct scheduler_address to; /* of link.transport's kind */
	char used_key[KEY_Z85_SIZE]; /* the scheduler's, of the present attempt */
	struct event *relink;        /* with a set that was stored */
	unsigned int target;       /* index of address and key that is tried */
	unsigned int silent_turns; /* of the rotation timer, not connected */
	struct event *rotate;
	struct event *reconnect;
	struct event *telemetry;     /* sends again what was not acknowledged or had no room */
	int64_t telemetry_sent_usec; /* when the last batch went out */
	bool is_up;
	enum link_state state;
	uint64_t seq, seen_seq, epoch;
	uint64_t handled_seq; /* of the message that is being handled */
	struct dispatch dispatch;
};

/* Sends `envelope`, whose body is set. trace may be NULL. */
bool link_send(struct link *link, Croft__Envelope *envelope, const struct trace *trace);
bool link_send_clock(struct link *link, uint64_t number);
/* `failure` FAIL_NONE: it is being installed. */
bool link_send_upgrade_result(struct link *link, const char *operation, const struct err *failure);
bool link_send_image_request(
	uint64_t request, const char *digest, uint64_t offset, uint32_t credit, void *user);
bool link_send_stream_data(uint64_t stream, const void *data, size_t size, bool end, void *user);
bool link_send_stream_credit(uint64_t stream, uint32_t bytes, void *user);
bool link_send_stream_close(uint64_t stream, const struct err *failure, void *user);
void link_pump_telemetry(struct link *link);
