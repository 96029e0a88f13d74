/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes over HTTP as text: FUZZ_BODY requests of process.Process (JSON, Connect's frames), the failure records of
 * answers, typed members; FUZZ_HEADER names of sandboxes, traces, times; FUZZ_STREAM a stream of events as the command
 * line reads it, cut anywhere.
 */
#include "fuzz.h"

#include <jansson.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#if defined(FUZZ_BODY)
#include "gateway/connect.h"
#include "gateway/guest-wire.h"
#include "gateway/process-json.h"
#include "wire/base64.h"
#include "wire/json.h"
#elif defined(FUZZ_HEADER)
#include "gateway/target.h"
#else
#include "cli/exec-stream.h"
#endif

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	log_init("fuzz", LOG_LEVEL_ERROR);
	return 0;
}

#if defined(FUZZ_BODY)
static void start(const char *json, size_t size)
{
	struct guest_start_options options = { .user = "", .traceparent = "" };
	struct process_start request;
	struct buf out = BUF_NULL(2 * GUEST_FRAME_MAX);
	struct err err = ERR_NULL;

	if (process_start_parse(json, size, &request, &err) < 0) {
		CLAIM(err.code != FAIL_NONE);
		return;
	}
	CLAIM(request.n_args + request.n_envs <= PROCESS_ELEMENTS_MAX);
	(void) !guest_start_append(&out, &request, &options, &err);
	buf_deinit(&out);
	process_start_deinit(&request);
}

static void others(uint8_t kind, const char *json, size_t size)
{
	struct process_input input;
	struct process_signal signal;
	struct process_update update;
	struct process_named named;
	struct err err = ERR_NULL;
	uint8_t *bytes;
	size_t n;

	switch (kind % 6) {
	case 0:
		if (process_input_parse(json, size, &input, &err) == 0)
			process_input_deinit(&input);
		break;
	case 1:
		if (process_signal_parse(json, size, &signal, &err) == 0)
			process_signal_deinit(&signal);
		break;
	case 2:
		if (process_update_parse(json, size, &update, &err) == 0)
			process_update_deinit(&update);
		break;
	case 3:
		if (process_named_parse(json, size, &named, &err) == 0)
			process_named_deinit(&named);
		break;
	case 4:
		(void) !process_empty_parse(json, size, &err);
		break;
	default:
		if (base64_decode(json, size, &bytes, &n) == 0) {
			CLAIM(n <= size);
			free(bytes);
		}
		break;
	}
}

static void failure(const char *json, size_t size)
{
	json_t *body = json_loadb(json, size, JSON_REJECT_DUPLICATES, NULL);
	struct err err = ERR_NULL;
	const char *text;
	uint64_t number;
	bool flag;

	if (!body)
		return;
	if (json_parse_error(body, &err) == 0) {
		json_t *again = json_error_body(&err, &(struct failure_context) { .trace = NULL });

		CLAIM(again);
		json_decref(again);
	}
	(void) !json_get_string(body, "code", 100, &text, &err);
	(void) !json_get_u64(body, "code", 1, 1000, &number, &err);
	(void) !json_get_bool(body, "code", &flag, &err);
	json_decref(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *payload;
	struct err err = ERR_NULL;
	size_t n;

	if (size == 0)
		return 0;
	/* text in memory that ends where it ends */
	switch (data[0] % 4) {
	case 0:
		start((const char *) data + 1, size - 1);
		break;
	case 1:
		if (connect_request_open((const char *) data + 1, size - 1, &payload, &n, &err) == 0) {
			CLAIM(payload >= (const char *) data && payload + n <= (const char *) data + size);
			start(payload, n);
		}
		break;
	case 2:
		failure((const char *) data + 1, size - 1);
		break;
	default:
		others(data[0] >> 2, (const char *) data + 1, size - 1);
		break;
	}
	return 0;
}
#elif defined(FUZZ_HEADER)
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *parts[3] = { text, NULL, NULL };
	struct err err = ERR_NULL;
	struct target target;
	struct trace trace;
	unsigned int n = 1;
	int64_t usec;

	CLAIM(text);
	memcpy(text, data, size);
	text[size] = '\0';
	for (char *at = text; n < 3 && (at = strchr(at, '\n')); n++) {
		*at++ = '\0';
		parts[n] = at;
	}
	if (target_parse(parts[1], parts[2], parts[0], &target, &err) == 0)
		CLAIM(strlen(target.sandbox) < sizeof(target.sandbox));
	else
		CLAIM(err.code != FAIL_NONE);
	(void) target_parse(NULL, NULL, parts[0], &target, NULL);
	for (unsigned int i = 0; i < n; i++) {
		(void) !trace_parse(parts[i], &trace);
		(void) !clock_parse_rfc3339(parts[i], &usec);
		(void) !clock_parse_duration(parts[i], &usec);
	}
	free(text);
	return 0;
}
#else
static int on_event(const struct exec_event *event, void *user)
{
	uint64_t *total = user;

	if (event->kind == EXEC_OUTPUT)
		*total += event->size;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t whole = 0, cut = 0;
	struct exec_stream stream = EXEC_STREAM_NULL;
	int r, s = 0;

	if (size < 1)
		return 0;
	stream.on_event = on_event;
	stream.user = &whole;
	r = exec_stream_feed(&stream, data + 1, size - 1);
	exec_stream_deinit(&stream);
	stream = (struct exec_stream) EXEC_STREAM_NULL;
	stream.on_event = on_event;
	stream.user = &cut;
	for (size_t i = 1; s == 0 && i < size; i += 1 + data[0] % 7)
		s = exec_stream_feed(&stream, data + i, size - i < 1u + data[0] % 7 ? size - i : 1u + data[0] % 7);
	exec_stream_deinit(&stream);
	CLAIM(r == s && whole == cut); /* where it is cut makes no difference */
	return 0;
}
#endif
