/* SPDX-License-Identifier: Apache-2.0
 *
 * Telemetry that comes in. A node numbers its records from 1 without gaps and sends them until they are
 * acknowledged; here they are taken in order, once, written to the store (a batch is one record of it, the last
 * TELEMETRY_KEEP batches of each node are kept) and acknowledged when that is durable. What a spool had no room
 * for, and what it lost, is counted and shown.
 *
 * The facts of stages (telemetry/facts.h) are in memory, and made again at start from live sandboxes, history and the kept
 * batches. Stages of a start are counted from the sandbox's record when it is durable, each once, whoever repeats
 * them; those of a sandbox's life (exec, files, ...) come with the nodes' batches.
 */
#pragma once

#include <jansson.h>

#include "pb/link.pb-c.h"
#include "server/link.h"
#include "server/server.h"
#include "telemetry/facts.h"

#define TELEMETRY_KEEP 256   /* batches of each node in the store */
#define TELEMETRY_RECENT 256 /* records of each node in memory */

struct telemetry;

int telemetry_new(struct telemetry **ret, struct server *server, struct err *reterr);
void telemetry_free(struct telemetry *telemetry);
/* Reads the kept batches; after the fleet was loaded. */
int telemetry_load(struct telemetry *telemetry, struct err *reterr);

void telemetry_on_batch(struct telemetry *telemetry, const struct link_message *message,
	const Croft__TelemetryBatch *batch);

/* A sandbox that ended lately; NULL: not known. */
struct ended_sandbox;
const struct ended_sandbox *telemetry_ended(const struct telemetry *telemetry, const char *sandbox);

/* Empties it; what is counted until telemetry_stages_loaded() comes in any order. */
void telemetry_reset_stages(struct telemetry *telemetry);
void telemetry_stages_loaded(struct telemetry *telemetry);
/* Counts the stages of a sandbox that were not counted yet; `is_over`: no more will come. */
void telemetry_count_sandbox(
	struct telemetry *telemetry, const struct sandbox_record *record, bool is_over);

/* Every stage that was counted: of a start with what its sandbox is, of a sandbox's life with its node, and what
 * the sandbox is, or was until lately (ended.h). */
const struct facts *telemetry_facts(const struct telemetry *telemetry);
/* {"received", "acked", "repeated", "gaps", "lost"} of a node: gaps are what its spool said that it had no room for,
 * lost is what never came. */
json_t *telemetry_node_json(const struct telemetry *telemetry, const char *node);
/* The recent records of a node with seq > after, in order. */
json_t *telemetry_recent_json(const struct telemetry *telemetry, const char *node, uint64_t after);

struct stage_totals {
	uint64_t ok, failed, skipped;
	uint64_t timed; /* whose time is known, one by one */
	double took_s;  /* of them together */
	double p50_ms, p99_ms;
};
void telemetry_totals(
	const struct telemetry *telemetry, enum fail_stage stage, struct stage_totals *ret);
