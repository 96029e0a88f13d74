/* SPDX-License-Identifier: Apache-2.0
 *
 * See exec-stream.h.
 */
#include "cli/exec-stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base64.h"
#include "wire/json.h"

#define HEAD 5u
#define FLAG_END 2u

static int protocol(struct exec_stream *stream, const char *what)
{
	return err_set_at(&stream->failure.err, STAGE_EXEC, FAIL_API_PROTOCOL, EPROTO, "The stream of the process %s.",
		what);
}

static int put_output(struct exec_stream *stream, const json_t *text, bool is_stderr)
{
	CLEANUP_FREE uint8_t *data = NULL;
	struct exec_event event = { .kind = EXEC_OUTPUT, .is_stderr = is_stderr };
	size_t size;

	if (!json_is_string(text) ||
		base64_decode(json_string_value(text), json_string_length(text), &data, &size) < 0)
		return protocol(stream, "has output that is no base64");
	event.data = data;
	event.size = size;
	return stream->on_event(&event, stream->user);
}

static int put_data(struct exec_stream *stream, const json_t *data)
{
	static const struct {
		const char *name;
		bool is_stderr;
	} streams[] = { { "stdout", false }, { "stderr", true }, { "pty", false } };
	json_int_t lost = json_integer_value(json_object_get(data, "lost"));
	int r = 0;

	if (lost > 0)
		r = stream->on_event(&(struct exec_event){ .kind = EXEC_LOST, .size = (uint64_t) lost }, stream->user);
	for (size_t i = 0; i < ARRAY_LEN(streams) && r >= 0; i++) {
		const json_t *text = json_object_get(data, streams[i].name);

		if (text)
			r = put_output(stream, text, streams[i].is_stderr);
	}
	return r;
}

/* `exited` absent is false, exitCode absent is 0: defaults may be left out. */
static int put_end(struct exec_stream *stream, const json_t *end)
{
	struct exec_event event = { .kind = EXEC_ENDED };
	json_int_t code = json_integer_value(json_object_get(end, "exitCode"));
	json_int_t signal = json_integer_value(json_object_get(end, "signal"));

	event.exited = json_is_true(json_object_get(end, "exited"));
	if (code < -1 || code > 255 || signal < 0 || signal > 64)
		return protocol(stream, "has an end that no process has");
	event.exit_code = (int) code;
	event.signal = (int) signal;
	event.failure = json_object_get(end, "failure");
	stream->has_ended = true;
	return stream->on_event(&event, stream->user);
}

static int put_message(struct exec_stream *stream, const json_t *message)
{
	const json_t *event = json_object_get(message, "event"), *start = json_object_get(event, "start");
	const json_t *data = json_object_get(event, "data"), *end = json_object_get(event, "end");
	json_int_t pid = json_integer_value(json_object_get(start, "pid"));

	if (start && (pid <= 0 || pid > INT32_MAX))
		return protocol(stream, "has no valid pid");
	if (start)
		return stream->on_event(&(struct exec_event){ .kind = EXEC_STARTED, .pid = (uint32_t) pid }, stream->user);
	if (data)
		return put_data(stream, data);
	return end ? put_end(stream, end) : 0;
}

/* {} or {"error": {"code", "message", "failure"}}. */
static int put_end_of_stream(struct exec_stream *stream, const json_t *message)
{
	json_t *error = json_object_get(message, "error");
	const char *code = json_string_value(json_object_get(error, "code"));

	stream->is_over = true;
	if (!error)
		return 0;
	if (json_parse_error(error, &stream->failure.err) == 0) {
		stream->failure.body = json_incref(error);
		return 0;
	}
	return err_set_at(&stream->failure.err, STAGE_EXEC, FAIL_API_PROTOCOL, EPROTO,
		"The process's stream ended with an error without a failure record: %.60s.", code ? code : "no code");
}

static int put_frame(struct exec_stream *stream, unsigned int flags, const char *payload, size_t size)
{
	json_t *message;
	int r;

	if (flags & ~FLAG_END)
		return protocol(stream, "has a frame with unknown flags");
	message = json_loadb(payload, size, 0, NULL);
	if (!json_is_object(message)) {
		json_decref(message);
		return protocol(stream, "has a frame that is no JSON object");
	}
	r = flags & FLAG_END ? put_end_of_stream(stream, message) : put_message(stream, message);
	json_decref(message);
	return r;
}

/* Whole frames at the front of `in`. */
static int take_frames(struct exec_stream *stream)
{
	/* The first condition says to the compiler what a size above 0 says to us: there is memory. */
	while (stream->in.data && !stream->is_over && buf_size(&stream->in) >= HEAD) {
		const uint8_t *p = buf_peek(&stream->in);
		size_t size = (size_t) p[1] << 24 | (size_t) p[2] << 16 | (size_t) p[3] << 8 | p[4];
		int r;

		if (size > EXEC_FRAME_MAX)
			return protocol(stream, "has a frame over the limit");
		if (buf_size(&stream->in) - HEAD < size)
			return 0;
		r = put_frame(stream, p[0], (const char *) p + HEAD, size);
		if (r < 0)
			return r;
		buf_consume(&stream->in, HEAD + size);
	}
	return 0;
}

int exec_stream_feed(struct exec_stream *stream, const void *data, size_t size)
{
	const uint8_t *p = data;

	while (size > 0 && !stream->is_over) {
		size_t n = MIN(size, stream->in.max - buf_size(&stream->in));
		int r = buf_append(&stream->in, p, n);

		if (r < 0)
			return err_set(&stream->failure.err, FAIL_NO_MEMORY, -r, "croft ran out of memory.");
		r = take_frames(stream);
		if (r < 0)
			return r;
		p += n;
		size -= n;
	}
	return 0;
}

void exec_stream_deinit(struct exec_stream *stream)
{
	buf_deinit(&stream->in);
	failure_deinit(&stream->failure);
}
