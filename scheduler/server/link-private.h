/* SPDX-License-Identifier: Apache-2.0
 *
 * What link.c and link-send.c share.
 */
#pragma once

#include "base/table.h"
#include "server/link.h"
#include "server/ops.h"
#include "telemetry/clock-offset.h"
#include "wire/dispatch.h"

#define SESSION_USER_SIZE 80

/* Of the tables of sessions: with uthash's own number the chains of a large fleet are several sessions long, each a miss of
 * the cache, for every message. */
#undef HASH_INITIAL_NUM_BUCKETS
#undef HASH_INITIAL_NUM_BUCKETS_LOG2
#define HASH_INITIAL_NUM_BUCKETS 16384U
#define HASH_INITIAL_NUM_BUCKETS_LOG2 14U

enum sender { SENDER_NONE, SENDER_NODE, SENDER_TOKEN };

struct session {
	/* What each message of a fleet's heartbeats touches comes first: that much is fetched into the cache every time. */
	UT_hash_handle by_route;
	struct route route;
	enum sender role;
	uint64_t number;
	uint64_t known_at; /* shell_node_changes() when its node was looked up last, */
	struct node *at;   /* and found to be this; NULL: a token's */
	uint64_t seq_in, seq_out;
	char user_id[SESSION_USER_SIZE]; /* "node:<id>" or "token:<id>", as ZAP said it */
	const char *id;                  /* within it */
	int64_t told_usec; /* when HELLO_NEEDED was said last */
	struct session *older; /* of the same key */
	struct clock_offset clock;
	UT_hash_handle by_number, by_user;
};

struct link {
	struct server *server;
	struct zap *zap;
	struct router *router;
	struct link_set set; /* that nodes are told */
	struct tunnel_server *tls; /* NULL: no link.tls_port */
	struct dispatch dispatch;
	struct session *by_route, *by_number, *by_user; /* by_user: the newest of each key */
	uint64_t last_session, n_removed;
	struct event *sweep, *watch;
};

/* What dispatch() carries to a handler. */
struct call {
	struct link *link;
	struct link_message message;
};

void link_set_fill(struct link *link); /* link-set.c */

/* link-clock.c; each by the number of a session, which may be gone */
void link_clock_greeted(struct link *link, uint64_t number, int64_t node_us);
void link_clock_ask(struct link *link, uint64_t number, int64_t node_us);
void link_clock_correct_report(const struct link *link, uint64_t number, struct sandbox_report *report);
void link_clock_correct_batch(const struct link *link, uint64_t number, const Croft__TelemetryBatch *batch);
int link_clock_on_pong(void *user, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr);

struct session *link_session(const struct link *link, uint64_t number);
/* Removes it and tells the fleet. */
void link_session_gone(struct link *link, struct session *session);
