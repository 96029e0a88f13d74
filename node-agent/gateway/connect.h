/* SPDX-License-Identifier: Apache-2.0
 *
 * The Connect protocol as the E2B SDKs use it: JSON, no compression. Unary errors are a status and an object;
 * streams are frames of a flags byte, a 4-byte big-endian length and a payload, and end with a frame of flags 2.
 * Errors carry croft's failure record as the extra member `failure`, which the SDKs ignore.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/id.h"
#include "wire/json.h"

#define CONNECT_HEAD 5u
#define CONNECT_FLAG_END 2u

enum connect_code {
	CONNECT_CANCELED,
	CONNECT_UNKNOWN,
	CONNECT_INVALID_ARGUMENT,
	CONNECT_DEADLINE_EXCEEDED,
	CONNECT_NOT_FOUND,
	CONNECT_ALREADY_EXISTS,
	CONNECT_PERMISSION_DENIED,
	CONNECT_RESOURCE_EXHAUSTED,
	CONNECT_FAILED_PRECONDITION,
	CONNECT_ABORTED,
	CONNECT_OUT_OF_RANGE,
	CONNECT_UNIMPLEMENTED,
	CONNECT_INTERNAL,
	CONNECT_UNAVAILABLE,
	CONNECT_DATA_LOSS,
	CONNECT_UNAUTHENTICATED,
	CONNECT_CODE_MAX_
};

const char *connect_code_name(enum connect_code code);
int connect_code_http(enum connect_code code);
enum connect_code connect_code_of(enum fail_code code);

/* {"code":"not_found","message":"..","failure":{..}}; a new reference, NULL when memory is short. */
json_t *connect_error(const struct err *err, const struct failure_context *context);

/* Appends one frame with the compact text of `payload` (borrowed). 0, -ENOBUFS (nothing was added), -ENOMEM. */
int connect_frame_append(struct buf *out, unsigned int flags, const json_t *payload);

/* Appends the end of a stream: {} or {"error":..}. */
int connect_end_append(struct buf *out, const struct err *err, const struct failure_context *context);

/* The body of a request to a stream: exactly one frame, not compressed. The payload lies in `body`. */
int connect_request_open(const char *body, size_t size, const char **ret, size_t *ret_size, struct err *reterr);
