/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's one root object. Every module of this folder gets a borrowed pointer to it and reaches the
 * others through it; server.c makes them in the written order and takes them down in the reverse. Everything
 * runs on the loop thread; only the store's writer, the workers and the ZAP handler have threads of their own.
 */
#pragma once

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "fleet/fleet.h"
#include "fleet/runs.h"
#include "server/options.h"
#include "server/registry.h"
#include "store/store.h"
#include "server/link-keys.h"
#include "wire/endpoint.h"

struct event;
struct event_base;
struct http_client;

/* Priorities of the loop: work that came from outside is done before time is said to have passed, so that a
 * heartbeat that waits in a queue is read before its node is late; bulk goes last. */
enum loop_priority { LOOP_IO, LOOP_TICK, LOOP_BULK, LOOP_PRIORITIES };

/* What /metrics shows; plain counters of this process. */
struct counters {
	uint64_t http_requests[6]; /* by hundreds of the status */
	uint64_t unauthenticated;
	uint64_t forbidden;
	uint64_t rate_limited;
	uint64_t quota_exceeded;
	uint64_t idempotent;
	uint64_t link_messages;
	uint64_t link_invalid; /* frames that were malformed */
	uint64_t link_unsupported;
	uint64_t link_wrong_role; /* messages that their sender may not send */
	uint64_t link_revoked;    /* messages of revoked keys */
	uint64_t link_send_full;  /* frames dropped because a peer's queue was full */
	uint64_t enrolled;
	uint64_t enroll_refused;
	uint64_t commits;
	uint64_t commit_failures;
	uint64_t stalls;
	uint64_t relay_streams;
	uint64_t relay_refused;
	uint64_t relay_bytes_in, relay_bytes_out;
	uint64_t image_bytes;
	uint64_t telemetry_records;
	uint64_t telemetry_repeated;
	uint64_t telemetry_gaps; /* records that a spool had no room for */
};

#define LEAD_RAISES_MAX 64 /* of the epoch, by one run: lead.h */

struct server {
	const struct options *options;
	struct event_base *base;
	struct rng rng;
	void *zmq;
	struct link_keys keys;
	char lineage[ID_SIZE];
	char instance[ID_SIZE]; /* made with the lineage; a copied state directory has the same */
	char run[ID_SIZE];      /* of this process */
	int64_t restored_us;    /* 0: the lineage was made by init */
	uint64_t epoch;
	uint64_t raising; /* the highest epoch that is on its way to the store; else at most `epoch` */
	uint64_t raised_sum; /* by how much this run has raised it, and what is on its way */
	char raised_by[LEAD_RAISES_MAX][ID_SIZE]; /* nodes for which this run has raised it */
	unsigned int n_raises;
	uint64_t raised_kept; /* of raised_sum and n_raises what is durable */
	unsigned int n_raised;
	struct runs runs; /* that have led this store; the last one is this */
	int64_t started_us;

	struct store *store;
	struct registry registry;
	struct worker *worker;
	struct worker *planner; /* what is only computed, and may take seconds */
	unsigned int n_plans;   /* that it has */
	struct rollups *rollups;
	struct books *books;
	struct telemetry *telemetry;
	struct forecast *forecast;
	struct audit *audit;
	struct events *events;
	struct feed *feed; /* NULL: off */
	struct otlp *otlp; /* NULL: off */
	struct shell *shell; /* owns the fleet */
	struct link *link;
	struct images *images;
	struct upgrade *upgrades; /* uthash, upgrades.c */
	struct http_client *client;
	struct relay *relay;
	struct api *api;
	struct counters counters;
	char domain[256];
	bool stopping;
	struct err fatal; /* why the loop ended by itself */
};

/* Opens the state directory, loads it, binds both listeners. Runs nothing yet. */
int server_new(struct server **ret, const struct options *options, struct event_base *base,
	struct err *reterr);
void server_free(struct server *server);
DEFINE_CLEANUP(struct server, server_free)
/* No new requests; what was acknowledged is durable before server_free() returns. */
void server_stop(struct server *server);
/* Answers those who wait for the fleet or the store with SHUTTING_DOWN; what they asked for is not taken back. */
void server_refuse_rest(struct server *server);
/* Nothing is under way any more. */
bool server_is_idle(const struct server *server);

static inline struct moment moment_now(void)
{
	return (struct moment){ .mono_usec = clock_monotonic_usec(),
		.real_usec = clock_realtime_usec() };
}

struct ops;
/* Lineage, epoch and what else stands in the meta record; NOT_INITIALISED when there is none. */
int server_read_meta(struct server *server, struct store *store, struct err *reterr);
/* The meta record as it is now. */
void server_put_meta(const struct server *server, struct ops *ops);

/* Paths under the state directory; `buf` has PATH_MAX bytes. */
const char *state_path(const struct options *options, const char *name, char *buf, size_t size);
