/* SPDX-License-Identifier: Apache-2.0
 *
 * Failure and stage records as JSON: one shape in every answer of the API, of the gateway and on the command
 * line.
 *
 *   {"code": 503, "message": "...", "failure": {"code": "NO_CAPACITY", "stage": "place",
 *    "component": "node-host", "owner": "customer", "class": "capacity", "retryable": true, "errno": "ENOMEM" or
 *    null, "detail": {"resource": "memory", ...}, "remedy": "...", "trace": "...", "sandbox": "...",
 *    "operation": "...", "node": "...", "pool": "...", "tenant": "...", "began": "2026-...", "took_ms": 12}}
 *
 * The outer code and message are what the E2B SDKs read.
 */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/id.h"
#include "wire/records.h"

struct failure_context {
	enum responsibility responsibility;
	const struct responsibility_table *table; /* a pool's own; NULL: the default that `responsibility` names */
	const struct trace *trace;  /* the rest may be NULL or 0 too: then the member is absent */
	const char *sandbox, *operation, *node, *pool, *tenant;
	int64_t began_us, took_us;
};

/* New references; NULL when memory is short. */
json_t *json_failure(const struct err *err, const struct failure_context *context);         /* the inner object */
json_t *json_error_body(const struct err *err, const struct failure_context *context);      /* the whole body */
/* `context` says whose a failure is; nothing else of it is used. */
json_t *json_stage(const struct stage_record *record, const struct failure_context *context);

struct usage_record;
/* What a sandbox's generation used: counters in microseconds and bytes, and what they come to in CPU-seconds and GiB-seconds. */
json_t *json_usage(const struct usage_record *record);

/* Reads what json_error_body() wrote. 0, or -EINVAL when it is none. */
int json_parse_error(const json_t *body, struct err *ret);

/* Typed reads of a request's members: absent is 0 with *ret unchanged; a wrong type or range sets
 * INVALID_ARGUMENT naming the member. */
int json_get_string(const json_t *object, const char *key, size_t max, const char **ret, struct err *reterr);
int json_get_u64(const json_t *object, const char *key, uint64_t min, uint64_t max, uint64_t *ret, struct err *reterr);
int json_get_bool(const json_t *object, const char *key, bool *ret, struct err *reterr);

/* The name before the value at whose end a parser stopped (json_error_t.position), of a member whose number is too large
 * for JSON's reader: "" when the number stands under no name. */
void json_name_before(const char *text, size_t position, char *ret, size_t size);
