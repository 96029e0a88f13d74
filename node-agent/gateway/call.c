/* SPDX-License-Identifier: Apache-2.0
 *
 * See call.h.
 */
#include "gateway/call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/calls.h"
#include "gateway/connect.h"
#include "gateway/gateway.h"
#include "gateway/methods.h"

struct failure_context call_context(const struct call *call)
{
	return (struct failure_context){
		.responsibility = RESPONSIBILITY_MANAGED,
		.trace = &call->trace,
		.sandbox = *call->sandbox ? call->sandbox : NULL,
		.began_us = call->began_us,
		.took_us = clock_monotonic_usec() - call->began_mono_us,
	};
}

struct http_field call_trace_field(const struct call *call, char *text)
{
	trace_format(&call->trace, text);
	return (struct http_field){ "traceparent", text };
}

static void respond(struct call *call, int status, const char *content_type, const void *body, size_t size)
{
	char text[TRACEPARENT_SIZE];
	struct http_field field = call_trace_field(call, text);

	if (http_respond(call->req, status, content_type, &field, 1, body, size) < 0)
		log_warn("no memory for an answer, ignoring the request", "sandbox", call->sandbox);
}

/* Where a failure has no stage of a call by itself, the method's. */
static enum fail_stage stage_of(const struct call *call, const struct err *failure)
{
	if (failure && failure->stage >= STAGE_EXEC && failure->stage <= STAGE_PORT)
		return failure->stage;
	return call->method ? call->method->stage : STAGE_EXEC;
}

void call_note(struct call *call, enum outcome outcome, const struct err *failure)
{
	struct stage_record record = { .stage = stage_of(call, failure), .outcome = outcome, .began_us = call->began_us,
		.took_us = clock_monotonic_usec() - call->began_mono_us, .trace = call->trace };

	if (call->is_noted || !call->route || method_is_health(call->method))
		return;
	call->is_noted = true;
	memcpy(record.sandbox, call->sandbox, sizeof(record.sandbox));
	if (failure)
		record.failure = *failure;
	if (outcome == RESULT_SKIPPED)
		(void) snprintf(record.reason, sizeof(record.reason), CALL_LEFT);
	calls_add(gateway_calls(call->gateway), &record);
}

static void note_status(struct call *call, int status)
{
	struct err err = ERR_NULL;

	if (status < 400) {
		call_note(call, RESULT_OK, NULL);
		return;
	}
	if (status >= 500)
		err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for an answer");
	else
		err_set(&err, FAIL_INVALID_ARGUMENT, EINVAL, "The request has no such type.");
	call_note(call, RESULT_FAILED, &err);
}

void call_respond_empty(struct call *call, int status)
{
	note_status(call, status);
	respond(call, status, NULL, NULL, 0);
}

void call_respond_json(struct call *call, int status, json_t *json)
{
	CLEANUP_FREE char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

	json_decref(json);
	note_status(call, text ? status : 503);
	/* Even without memory for the record the client gets a whole answer. */
	if (!text)
		respond(call, 503, "application/json", "{}", 2);
	else
		respond(call, status, "application/json", text, strlen(text));
}

void call_log_failure(const struct call *call, const struct err *err)
{
	/* What a caller does wrong is the caller's to see; the rest concerns who runs the node. */
	enum log_level level = err_class(err) == CLASS_CALLER ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN;

	log_failure(level, "request failed", err, "sandbox", *call->sandbox ? call->sandbox : NULL, "trace",
		call->trace.trace_id, "path", call->method ? call->method->path : NULL, NULL);
}

/* 502 and 503 are what the SDKs read as "gone" and "not now", whatever the body says; 404 and 405 belong to the
 * path. */
static int error_status(const struct call *call, const struct err *err)
{
	switch ((int) err->code) {
	case FAIL_SANDBOX_GONE:
	case FAIL_NO_SUCH_PATH:
	case FAIL_METHOD_NOT_ALLOWED:
		return failure_info(err->code)->http;
	default:
		return call->shape == CALL_REST ? failure_info(err->code)->http :
						  connect_code_http(connect_code_of(err->code));
	}
}

void call_fail(struct call *call, const struct err *err)
{
	struct failure_context context = call_context(call);

	call_log_failure(call, err);
	call_note(call, RESULT_FAILED, err);
	call_respond_json(call, error_status(call, err),
		call->shape == CALL_REST ? json_error_body(err, &context) : connect_error(err, &context));
}

void call_fail_code(struct call *call, enum fail_code code, const char *message)
{
	struct err err = ERR_NULL;

	err_set_at(&err, call->method ? call->method->stage : STAGE_EXEC, code, 0, "%s", message);
	call_fail(call, &err);
}
