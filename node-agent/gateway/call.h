/* SPDX-License-Identifier: Apache-2.0
 *
 * One request to the gateway from its headers to its end, in every shape that an answer can have: REST, Connect
 * unary, Connect stream. Owned by the HTTP request; whatever a method keeps for it hangs at `method_data` and is
 * freed with it.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "gateway/route.h"
#include "wire/http-server.h"
#include "wire/json.h"
#include "wire/records.h"

struct call;
struct gateway;

enum call_shape { CALL_REST, CALL_UNARY, CALL_STREAM };

struct call_method {
	const char *path;
	const char *verb;
	enum call_shape shape;
	enum fail_stage stage;
	size_t body_max;
	/* The whole body is in, the sandbox is found and open. Must arrange for an answer. NULL: not built. */
	void (*run)(struct call *call, const char *body, size_t size);
};

struct call {
	struct gateway *gateway;
	struct http_request *req;
	const struct call_method *method; /* NULL: no such path */
	enum call_shape shape;
	struct route *route;              /* held; NULL before it is found */
	char sandbox[ID_SIZE];
	struct trace trace;
	bool is_noted;
	size_t body_charge;               /* to the gateway's budget */
	int64_t began_us;                 /* realtime and monotonic */
	int64_t began_mono_us;
	void *method_data;
	void (*method_free)(void *data);
};

struct failure_context call_context(const struct call *call);

/* Answers. call_fail() writes the shape's own error and logs it; where the failure is of the transport (no such
 * sandbox, no access, not ready) it is an HTTP status on streams too. */
void call_fail(struct call *call, const struct err *err);
void call_fail_code(struct call *call, enum fail_code code, const char *message);
void call_respond_empty(struct call *call, int status);
/* `json` is taken over; NULL: memory was short. */
void call_respond_json(struct call *call, int status, json_t *json);
/* Counts the call as a stage of its sandbox, the first time that it says how it ended; a skipped one is a call that its client
 * left. Not one of an unknown sandbox or caller, and not of its health. The answers above do it themselves. */
void call_note(struct call *call, enum outcome outcome, const struct err *failure);
void call_log_failure(const struct call *call, const struct err *err);
/* traceparent, for http_respond_stream(). `text` has TRACEPARENT_SIZE bytes. */
struct http_field call_trace_field(const struct call *call, char *text);
