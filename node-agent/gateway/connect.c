/* SPDX-License-Identifier: Apache-2.0
 *
 * See connect.h. Two tables: Connect's codes with their HTTP status, and which code a failure of croft is. The
 * second is a switch without default where it matters: codes that the data path never makes are `internal`.
 */
#include "gateway/connect.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *name;
	int http;
} codes[CONNECT_CODE_MAX_] = {
	[CONNECT_CANCELED] = { "canceled", 499 },
	[CONNECT_UNKNOWN] = { "unknown", 500 },
	[CONNECT_INVALID_ARGUMENT] = { "invalid_argument", 400 },
	[CONNECT_DEADLINE_EXCEEDED] = { "deadline_exceeded", 504 },
	[CONNECT_NOT_FOUND] = { "not_found", 404 },
	[CONNECT_ALREADY_EXISTS] = { "already_exists", 409 },
	[CONNECT_PERMISSION_DENIED] = { "permission_denied", 403 },
	[CONNECT_RESOURCE_EXHAUSTED] = { "resource_exhausted", 429 },
	[CONNECT_FAILED_PRECONDITION] = { "failed_precondition", 412 },
	[CONNECT_ABORTED] = { "aborted", 409 },
	[CONNECT_OUT_OF_RANGE] = { "out_of_range", 400 },
	[CONNECT_UNIMPLEMENTED] = { "unimplemented", 501 },
	[CONNECT_INTERNAL] = { "internal", 500 },
	[CONNECT_UNAVAILABLE] = { "unavailable", 503 },
	[CONNECT_DATA_LOSS] = { "data_loss", 500 },
	[CONNECT_UNAUTHENTICATED] = { "unauthenticated", 401 },
};

const char *connect_code_name(enum connect_code code)
{
	return code < CONNECT_CODE_MAX_ ? codes[code].name : "unknown";
}

int connect_code_http(enum connect_code code)
{
	return code < CONNECT_CODE_MAX_ ? codes[code].http : 500;
}

enum connect_code connect_code_of(enum fail_code code)
{
	static const struct {
		enum fail_code fail;
		enum connect_code connect;
	} rows[] = {
		{ FAIL_INVALID_ARGUMENT, CONNECT_INVALID_ARGUMENT },
		{ FAIL_CWD_NOT_FOUND, CONNECT_INVALID_ARGUMENT },
		{ FAIL_USER_NOT_FOUND, CONNECT_INVALID_ARGUMENT },
		{ FAIL_UNAUTHENTICATED, CONNECT_UNAUTHENTICATED },
		{ FAIL_ACCESS_TOKEN_INVALID, CONNECT_UNAUTHENTICATED },
		{ FAIL_FORBIDDEN, CONNECT_PERMISSION_DENIED },
		{ FAIL_COMMAND_NOT_EXECUTABLE, CONNECT_PERMISSION_DENIED },
		{ FAIL_PROCESS_NOT_FOUND, CONNECT_NOT_FOUND },
		{ FAIL_COMMAND_NOT_FOUND, CONNECT_NOT_FOUND },
		{ FAIL_FILE_NOT_FOUND, CONNECT_NOT_FOUND },
		{ FAIL_CONFLICT, CONNECT_FAILED_PRECONDITION },
		{ FAIL_BODY_TOO_LARGE, CONNECT_RESOURCE_EXHAUSTED },
		{ FAIL_TOO_MANY_STREAMS, CONNECT_RESOURCE_EXHAUSTED },
		{ FAIL_RATE_LIMITED, CONNECT_RESOURCE_EXHAUSTED },
		{ FAIL_NO_MEMORY, CONNECT_RESOURCE_EXHAUSTED },
		{ FAIL_HOST_LIMIT, CONNECT_RESOURCE_EXHAUSTED },
		{ FAIL_UNSUPPORTED, CONNECT_UNIMPLEMENTED },
		{ FAIL_NO_SUCH_PATH, CONNECT_UNIMPLEMENTED },
		{ FAIL_EXEC_TIMEOUT, CONNECT_DEADLINE_EXCEEDED },
		{ FAIL_SANDBOX_GONE, CONNECT_UNAVAILABLE },
		{ FAIL_SANDBOX_NOT_READY, CONNECT_UNAVAILABLE },
		{ FAIL_GUEST_UNREACHABLE, CONNECT_UNAVAILABLE },
		{ FAIL_SHUTTING_DOWN, CONNECT_UNAVAILABLE },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].fail == code)
			return rows[i].connect;
	return CONNECT_INTERNAL;
}

json_t *connect_error(const struct err *err, const struct failure_context *context)
{
	json_t *failure = json_failure(err, context), *message = json_object_get(failure, "message");

	/* The record's own text, which is UTF-8 whatever was cut. `o*`: what could not be made for lack of memory
	 * is left out, the error still goes. */
	return json_pack("{s:s, s:O*, s:o*}", "code", connect_code_name(connect_code_of(err->code)), "message", message,
		"failure", failure);
}

int connect_frame_append(struct buf *out, unsigned int flags, const json_t *payload)
{
	size_t size = json_dumpb(payload, NULL, 0, JSON_COMPACT);
	uint8_t *to;
	int r;

	if (size == 0 || size > UINT32_MAX)
		return -ENOMEM;
	r = buf_reserve(out, CONNECT_HEAD + size, &to);
	if (r < 0)
		return r;
	to[0] = (uint8_t) flags;
	to[1] = (uint8_t) (size >> 24);
	to[2] = (uint8_t) (size >> 16);
	to[3] = (uint8_t) (size >> 8);
	to[4] = (uint8_t) size;
	if (json_dumpb(payload, (char *) to + CONNECT_HEAD, size, JSON_COMPACT) != size)
		return -ENOMEM;
	buf_commit(out, CONNECT_HEAD + size);
	return 0;
}

int connect_end_append(struct buf *out, const struct err *err, const struct failure_context *context)
{
	json_t *end = err ? json_pack("{s:o}", "error", connect_error(err, context)) : json_object();
	int r = end ? connect_frame_append(out, CONNECT_FLAG_END, end) : -ENOMEM;

	json_decref(end);
	return r;
}

int connect_request_open(const char *body, size_t size, const char **ret, size_t *ret_size, struct err *reterr)
{
	const uint8_t *p = (const uint8_t *) body;
	size_t length;

	if (size < CONNECT_HEAD)
		return err_set_at(reterr, STAGE_EXEC, FAIL_INVALID_ARGUMENT, EINVAL,
			"The request body is no Connect frame: it has %zu bytes.", size);
	if (p[0] == 1u)
		return err_set_at(reterr, STAGE_EXEC, FAIL_UNSUPPORTED, EINVAL, "Compressed messages are not supported.");
	if (p[0] != 0)
		return err_set_at(reterr, STAGE_EXEC, FAIL_INVALID_ARGUMENT, EINVAL,
			"The request's frame has unknown flags 0x%02x.", (unsigned int) p[0]);
	length = (size_t) p[1] << 24 | (size_t) p[2] << 16 | (size_t) p[3] << 8 | p[4];
	if (length != size - CONNECT_HEAD)
		return err_set_at(reterr, STAGE_EXEC, FAIL_INVALID_ARGUMENT, EINVAL,
			"The request must be one frame: its head says %zu bytes, %zu came.", length, size - CONNECT_HEAD);
	*ret = body + CONNECT_HEAD;
	*ret_size = length;
	return 0;
}
