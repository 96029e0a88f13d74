/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/events: what happens, as server-sent events, for whoever watches a page. Failures come one by one, in the order in
 * which they were heard; that stages, nodes or sandboxes are not what they were comes as the word alone, at most every
 * EVENTS_CHANGED_US, and whoever hears it asks again.
 *
 * Bounded: one ring of failures for all, EVENTS_CLIENTS_MAX clients, EVENTS_KEY_MAX of one key, EVENTS_CUSTOMER_MAX of
 * one customer. Nothing is kept for a client but
 * what its socket holds: one that reads so slowly that the ring has gone past it is cut off, one that reads nothing with the
 * connection's idle time. It says with the id of the last event that it has (Last-Event-ID) where it goes on, and is told what it missed.
 */
#pragma once

#include "server/server.h"
#include "telemetry/facts.h"

#define EVENTS_KEPT 1024u
#define EVENTS_CLIENTS_MAX 64u
#define EVENTS_CUSTOMERS_MAX 56u /* of all customers' keys: the others are the provider's */
#define EVENTS_CUSTOMER_MAX 32u
#define EVENTS_KEY_MAX 8u
#define EVENTS_BEAT_US (15 * USEC_PER_SEC)
#define EVENTS_CHANGED_US (2 * USEC_PER_SEC)

struct events;

int events_new(struct events **ret, struct server *server, struct err *reterr);
void events_free(struct events *events);
/* A stage was heard of. */
void events_stage(struct events *events, const struct stage_fact *fact);
/* Other times than EVENTS_BEAT_US and EVENTS_CHANGED_US: for tests. */
void events_pace(struct events *events, int64_t beat_us, int64_t changed_us);
unsigned int events_clients(const struct events *events);
/* That read too slowly, since the start. */
uint64_t events_dropped(const struct events *events);
