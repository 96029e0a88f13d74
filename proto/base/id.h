/* SPDX-License-Identifier: Apache-2.0
 *
 * Identifiers: sandbox ids, operation ids, W3C trace context, API keys.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/util.h"

#define ID_LEN 20                /* characters of a sandbox or node id */
#define ID_SIZE (ID_LEN + 1)
#define ID_NAME_MAX 63           /* characters of a name: pool, template, tenant */
#define TRACE_ID_SIZE 33         /* 32 hex digits and NUL */
#define SPAN_ID_SIZE 17
#define TRACEPARENT_SIZE 56      /* "00-" 32 "-" 16 "-01" and NUL */
#define API_KEY_SIZE 64
#define DIGEST_SIZE (7 + 64 + 1)  /* "sha256:", 64 hex digits and NUL */

/* 20 lower-case base32 characters (100 random bits). */
void id_new(struct rng *rng, char ret[static ID_SIZE]);
bool id_is_valid(const char *id);
/* ^[a-z0-9-]{1,63}$, the form of every name that travels between processes. */
bool id_name_is_valid(const char *name);

/* Lower-case "sha256:" and 64 hex digits: the name of an image's bytes. */
bool digest_is_valid(const char *digest);

/* "croft_" and 32 base32 characters (160 random bits). */
void api_key_new(struct rng *rng, char ret[static API_KEY_SIZE]);

/* W3C trace context. A trace is made where a request enters; each stage has a span of its own. */
struct trace {
	char trace_id[TRACE_ID_SIZE];  /* empty: none */
	char span_id[SPAN_ID_SIZE];    /* the span that is the parent of what follows */
};
void trace_new(struct rng *rng, struct trace *ret);
/* A new span in the same trace. */
void trace_child(struct rng *rng, const struct trace *parent, struct trace *ret);
/* Parses a `traceparent` header. Returns 0 or -EINVAL. */
int trace_parse(const char *traceparent, struct trace *ret);
/* Writes "00-<trace>-<span>-01". */
void trace_format(const struct trace *trace, char ret[static TRACEPARENT_SIZE]);
