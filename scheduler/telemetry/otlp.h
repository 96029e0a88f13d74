/* SPDX-License-Identifier: Apache-2.0
 *
 * Stage records as spans for a collector of traces: what waits, what goes when, what is given up, and how a batch is written in
 * OTLP's JSON. Pure: time, randomness and answers come in; out comes how many spans of the front are to be sent now.
 *
 * Whatever was handed in is sent, dropped for one counted reason, or waits. One batch is under way at most; it stays at the front
 * until it was answered for good, so a resend has the same spans with the same ids. Where there is no room, what comes is dropped.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/rng.h"
#include "telemetry/facts.h"

#define OTLP_NEVER INT64_MAX
#define OTLP_SAY_US (60 * INT64_C(1000000)) /* drops are said no more often */

/* Names are copied: a node may be gone before its spans are. */
struct otlp_span {
	char trace[TRACE_ID_SIZE], span[SPAN_ID_SIZE], parent[SPAN_ID_SIZE]; /* parent "": none */
	char name[32];
	int64_t began_us, took_us;
	enum outcome outcome;
	enum fail_code code;
	uint64_t n; /* calls that it stands for */
	uint32_t attempt, vcpus;
	uint64_t memory_mib;
	char sandbox[ID_SIZE], node[ID_SIZE];
	char owner[ID_NAME_MAX + 1], tenant[ID_NAME_MAX + 1], pool[ID_NAME_MAX + 1], template_name[ID_NAME_MAX + 1];
	char version[ID_NAME_MAX + 1], region[ID_NAME_MAX + 1];
};

/* Of a stage: its own span, or where it has none one derived of what it is. `root` is the run's; the parent where it is of the same
 * trace, for a call into a sandbox may be of its caller's. NULL: not known. `owner` may be NULL. */
void otlp_span_of(const struct stage_fact *fact, const char *span, const struct trace *root, const char *owner, struct otlp_span *ret);

enum otlp_drop {
	OTLP_DROP_FULL,     /* no room */
	OTLP_DROP_UNTRACED, /* it has no trace, or none by W3C's rules */
	OTLP_DROP_REFUSED,  /* the batch was answered for good with another status than success */
	OTLP_DROP_REJECTED, /* the batch was taken but for these (partialSuccess) */
	OTLP_DROP_UNSENT,   /* the batch could not be written: no memory */
	OTLP_DROP_MAX_
};
const char *otlp_drop_name(enum otlp_drop drop);

struct otlp_counts {
	uint64_t sent;
	uint64_t dropped[OTLP_DROP_MAX_];
	uint64_t retries; /* batches that are sent again */
};

struct otlp_config {
	size_t queue; /* spans that wait at most, with those under way */
	size_t batch;
	int64_t linger_us; /* the first of a batch that is not full waits so long */
	int64_t backoff_min_us, backoff_max_us;
	int64_t retry_after_max_us; /* more is not believed */
};

struct otlp_queue;

/* 0 or -ENOMEM. */
int otlp_queue_new(struct otlp_queue **ret, const struct otlp_config *config);
struct otlp_queue *otlp_queue_free(struct otlp_queue *queue); /* NULL, always */
void otlp_queue_add(struct otlp_queue *queue, const struct otlp_span *span, int64_t now_us);
/* How many of the front are to be sent now; they are under way then. 0: none. */
size_t otlp_queue_due(struct otlp_queue *queue, int64_t now_us);
int64_t otlp_queue_next_us(const struct otlp_queue *queue); /* when to ask otlp_queue_due() */
const struct otlp_span *otlp_queue_at(const struct otlp_queue *queue, size_t i);
size_t otlp_queue_waiting(const struct otlp_queue *queue);
const struct otlp_counts *otlp_queue_counts(const struct otlp_queue *queue);

struct otlp_answer {
	int status; /* 0: none came */
	int64_t retry_after_us; /* 0: not said */
	uint64_t rejected; /* of a success: so many spans were not taken */
};
/* To what is under way. */
void otlp_queue_answered(struct otlp_queue *queue, const struct otlp_answer *answer, int64_t now_us, struct rng *rng);
/* What is under way cannot be sent. */
void otlp_queue_unsent(struct otlp_queue *queue);
/* Whether drops and retries are to be said now, and how many since they were said last. */
bool otlp_queue_say(struct otlp_queue *queue, int64_t now_us, struct otlp_counts *ret_since);
int64_t otlp_queue_say_us(const struct otlp_queue *queue); /* when to ask that; OTLP_NEVER: nothing to say */

/* Retry-After: seconds, or a date (`real_us`: now since the epoch). 0: neither. */
int64_t otlp_retry_after(const char *text, int64_t real_us);
/* partialSuccess.rejectedSpans of an answer's body; 0 where it has none. */
uint64_t otlp_rejected(const char *body, size_t size);
/* The n first spans as ExportTraceServiceRequest; NULL: no memory. `instance` is this process's id. */
json_t *otlp_request(const struct otlp_queue *queue, size_t n, const char *version, const char *instance);
