/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed: what is heard of stages, pools and the fleet, published (ZeroMQ, CURVE) for tools of the provider's own planners; docs/protocol.md
 * says what comes. Off unless feed.address is set. Whose public key stands in the file feed.subscribers may connect, nobody else: no
 * node, no join token.
 *
 * Nothing waits for a subscriber. Each has a queue of feed.queue messages; where it is full, it loses what comes. Messages of a topic are
 * numbered without gaps, so that a subscriber knows what it lost; a beat each second says how far the numbers are. How much each lost
 * libzmq tells nobody: counted here is how often a queue was found full, not what was lost until it had room again.
 */
#pragma once

#include "server/server.h"
#include "telemetry/facts.h"

struct feed;
struct place_room;
struct zap;

/* *ret is NULL where no address is set; every function below takes that. `zap` goes on until feed_free(). */
int feed_new(struct feed **ret, struct server *server, struct zap *zap, struct err *reterr);
void feed_free(struct feed *feed);
void feed_stage(struct feed *feed, const struct stage_fact *fact);
void feed_pool(struct feed *feed, const char *pool, const struct place_room *total, const struct place_room *used);

struct feed_counts {
	uint64_t sent;    /* that somebody subscribed to */
	uint64_t full;    /* times that a subscriber's queue was found full, which had room before */
	uint64_t topics;  /* subscribed to now, by anybody */
};
struct feed_counts feed_count(const struct feed *feed);
const char *feed_address(const struct feed *feed); /* as bound; "" */
const char *feed_public_key(const struct feed *feed); /* of the feed; "" */
