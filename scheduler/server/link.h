/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's end of the link: who is admitted (ZAP), sessions, the table of messages.
 *
 * A sender is who its key says. A node's key may speak for that node alone; a join token's key may send Enroll
 * alone; a used, expired or revoked token and a revoked node are told so by name for 30 days and nothing else;
 * any other key is refused in ZAP. A session is one route of one key; numbers are never used again.
 */
#pragma once

#include "pb/link.pb-c.h"
#include "server/server.h"

struct link;
struct clock_sample;

#define LINK_REMEMBER_USEC (30 * 24 * 3600 * USEC_PER_SEC)

int link_new(struct link **ret, struct server *server, struct err *reterr);
void link_free(struct link *link);
/* An address listened on, with this host's name where that is any address. */
const char *link_own_endpoint(const char *scheme, const char *address, unsigned int port, char *buf, size_t size);
uint16_t link_tls_port(const struct link *link); /* 0: none */
struct zap;
struct zap *link_zap(const struct link *link); /* the process has one */
const char *link_address(const struct link *link); /* as bound: "tcp://127.0.0.1:7281" */

/* Fills ZAP's table from registry and fleet (start, reload). */
void link_admit_all(struct link *link);
void link_admit_node(struct link *link, const char *public_key, const char *node);
void link_admit_token(struct link *link, const char *public_key, const char *token);

/* The clock of a session's node, as it was measured; false: it was not. */
bool link_clock(const struct link *link, uint64_t number, struct clock_sample *ret);

uint64_t link_denied(const struct link *link); /* connections that ZAP refused */

enum link_result { LINK_SENT, LINK_FULL, LINK_GONE };
/* Completes `envelope` (version, epoch, seq, ack) and sends it. FULL: the peer's queue is full, try later. GONE: the
 * route is no more, and the fleet was told. */
enum link_result link_send(struct link *link, uint64_t session, Croft__Envelope *envelope);
/* `trace` and `deadline_ms` may be NULL and 0. */
enum link_result link_send_traced(struct link *link, uint64_t session, Croft__Envelope *envelope,
	const struct trace *trace, uint64_t deadline_ms);
void link_send_action(struct link *link, const struct fleet_send *send);
void link_refuse(struct link *link, uint64_t session, const struct err *err, uint64_t seq);

/* To a node's current session, at most once a second. */
void link_refuse_node(struct link *link, const char *node, const struct err *err);

/* What a handler gets: an authenticated sender and a message that was checked against the table. */
struct link_message {
	uint64_t session;
	struct node *at; /* of fleet_event */
	const char *id; /* of the node, or of the token; gone when a send found the route gone */
};
/* true: the session is its node's current one; else the sender is told HELLO_NEEDED. */
bool link_is_current(struct link *link, const struct link_message *message);

/* enroll.c */
void enroll_on_message(struct link *link, struct server *server, const struct link_message *message,
	const Croft__Enroll *enroll);
