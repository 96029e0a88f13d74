/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages and whole runs as spans for a collector: OTLP over HTTP in JSON, a batch at a time (telemetry/otlp.h decides what goes
 * when). Off unless otlp.endpoint is set. Nothing waits for the collector; what it did not get is counted, and said in the log once a
 * minute at most.
 */
#pragma once

#include "server/server.h"
#include "telemetry/otlp.h"

struct otlp;

/* *ret is NULL where no endpoint is set; every function below takes that. */
int otlp_new(struct otlp **ret, struct server *server, struct err *reterr);
void otlp_free(struct otlp *otlp);
void otlp_stage(struct otlp *otlp, const struct stage_fact *fact, const char *span, const struct trace *root);
/* One that ended, from its creation on: the parent of its stages. */
void otlp_run(struct otlp *otlp, const struct sandbox_record *record);
struct otlp_counts otlp_count(const struct otlp *otlp);
size_t otlp_waiting(const struct otlp *otlp);
