/* SPDX-License-Identifier: Apache-2.0
 *
 * See diff.h. Until the guest's first word there is no answer, so that a refusal has its own status. From then on the guest is
 * read only while less than OUT_HIGH bytes wait for the client. However much it says, it is heard for DIFF_MAX changes and
 * DIFF_USEC, and what it holds is never kept here.
 */
#include "gateway/diff.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/gateway.h"
#include "gateway/guest-link.h"
#include "gateway/guest-wire.h"
#include "wire/base64.h"

#define DIFF_MAX 1000000u
#define DIFF_USEC (300 * USEC_PER_SEC)
#define OUT_HIGH (64u * 1024u)
/* Above OUT_HIGH one frame of the guest's, each byte of whose paths may become six of JSON, its members, and the last line. */
#define OUT_MAX (OUT_HIGH + 6u * GUEST_STREAM_FRAME_MAX + 512u * 1024u)

struct diff {
	struct call *call;
	struct guest_link *link; /* NULL: over */
	struct buf out;
	struct event *deadline;
	bool has_begun, counted;
	uint64_t n[CHANGE_MAX_], n_all;
};

static void diff_free(void *data)
{
	struct diff *diff = data;

	guest_link_free(diff->link);
	if (diff->deadline)
		event_free(diff->deadline);
	if (diff->counted)
		gateway_stream_end(diff->call->gateway, diff->call->route);
	buf_deinit(&diff->out);
	free(diff);
}

static long on_want(struct http_request *req, void *buf, size_t room, void *user)
{
	struct diff *diff = user;
	size_t size = MIN(room, buf_size(&diff->out));

	(void) req;
	if (size == 0)
		return diff->link ? 0 : -1;
	memcpy(buf, buf_peek(&diff->out), size);
	buf_consume(&diff->out, size);
	if (diff->link && buf_size(&diff->out) < OUT_HIGH)
		guest_link_resume(diff->link);
	return (long) size;
}

/* Takes `line` over. */
static int put_line(struct diff *diff, json_t *line)
{
	CLEANUP_FREE char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
	int r = text ? buf_append(&diff->out, text, strlen(text)) : -ENOMEM;

	json_decref(line);
	if (r == 0)
		r = buf_append(&diff->out, "\n", 1);
	return r;
}

static void diff_end(struct diff *diff, const struct err *err)
{
	struct call *call = diff->call;
	struct failure_context context = call_context(call);

	guest_link_free(TAKE(diff->link));
	(void) event_del(diff->deadline);
	if (!diff->has_begun) {
		call_fail(call, err); /* only a failure comes so early */
		return;
	}
	if (err) {
		call_log_failure(call, err);
		(void) put_line(diff, json_error_body(err, &context)); /* without it the answer is seen to be cut */
	}
	call_note(call, err ? RESULT_FAILED : RESULT_OK, err);
	http_stream_wake(call->req);
}

static void end_with(struct diff *diff, enum fail_code code, int err_no, const char *message)
{
	struct err err = ERR_NULL;

	err_set_at(&err, STAGE_FILES, code, err_no, "%s", message);
	diff_end(diff, &err);
}

/* A path that is no text is told in base64. */
static json_t *change_json(const struct guest_change *change)
{
	static const char *const kinds[CHANGE_MAX_] = { "added", "changed", "deleted" };
	static const char *const types[FILE_TYPE_MAX_] = { "file", "directory", "symlink", "other" };
	char mode[8], encoded[4 * (PROCESS_PATH_MAX / 3 + 1) + 1];
	json_t *path = json_stringn((const char *) change->path, change->path_size);
	const char *name = path ? "path" : "path_base64";

	if (!path) {
		(void) base64_encode(change->path, change->path_size, encoded);
		path = json_string(encoded);
	}
	(void) snprintf(mode, sizeof(mode), "%04o", change->mode & 07777u);
	return json_pack("{s:s, s:o, s:s, s:I, s:s}", "change", kinds[change->kind], name, path, "type", types[change->type],
		"size", (json_int_t) MIN(change->size, (uint64_t) INT64_MAX), "mode", mode);
}

static json_t *end_json(const struct diff *diff, bool is_cut)
{
	return json_pack("{s:{s:b, s:I, s:I, s:I, s:s}}", "end", "complete", !is_cut, "added", (json_int_t) diff->n[CHANGE_ADDED],
		"changed", (json_int_t) diff->n[CHANGE_CHANGED], "deleted", (json_int_t) diff->n[CHANGE_DELETED], "source", "guest");
}

static int begin(struct diff *diff)
{
	char text[TRACEPARENT_SIZE];
	struct http_field field = call_trace_field(diff->call, text);

	int r = http_respond_stream(diff->call->req, 200, "application/x-ndjson", &field, 1, -1, on_want, diff);

	diff->has_begun = r == 0;
	return r;
}

static void on_changes(struct diff *diff, const struct guest_event *event)
{
	bool is_enough = diff->n_all + event->n_changes > DIFF_MAX;
	int r = diff->has_begun ? 0 : begin(diff);

	for (size_t i = 0; i < event->n_changes && r == 0 && !is_enough; i++) {
		r = put_line(diff, change_json(&event->changes[i]));
		diff->n[event->changes[i].kind]++;
		diff->n_all++;
	}
	if (r == 0 && (event->is_last || is_enough))
		r = put_line(diff, end_json(diff, event->is_cut || is_enough));
	if (r < 0) {
		end_with(diff, FAIL_NO_MEMORY, -r, "No memory for the guest's answer.");
	} else if (event->is_last || is_enough) {
		diff_end(diff, NULL);
	} else {
		if (buf_size(&diff->out) >= OUT_HIGH)
			guest_link_pause(diff->link);
		http_stream_wake(diff->call->req);
	}
}

static void on_event(const struct guest_event *event, void *user)
{
	struct diff *diff = user;
	struct err err = event->failure;

	if (event->kind == GUEST_EVENT_CHANGES) {
		on_changes(diff, event);
	} else if (event->kind == GUEST_EVENT_FAILURE) {
		err.stage = STAGE_FILES;
		diff_end(diff, &err);
	} else {
		end_with(diff, FAIL_GUEST_PROTOCOL, EPROTO, "The guest answered another question.");
	}
}

static void on_closed(const struct err *err, void *user)
{
	struct diff *diff = user;
	struct err copy = *err;

	if (err->code == FAIL_GUEST_UNREACHABLE && diff->call->route->gone)
		(void) err_set_at(&copy, STAGE_FILES, FAIL_SANDBOX_GONE, 0, "The sandbox ended meanwhile.");
	copy.stage = STAGE_FILES;
	diff_end(diff, &copy);
}

static void on_deadline(evutil_socket_t fd, short what, void *user)
{
	(void) fd;
	(void) what;
	end_with(user, FAIL_GUEST_UNREACHABLE, ETIMEDOUT, "The guest was not done in 5 minutes.");
}

static int diff_open(struct diff *diff, struct err *reterr)
{
	static const struct guest_link_handler handler = { on_event, on_closed };
	static const struct timeval most = { .tv_sec = DIFF_USEC / USEC_PER_SEC };
	struct call *call = diff->call;
	const struct guest_link_config config = {
		.path = call->route->vsock_path,
		.frame_max = GUEST_STREAM_FRAME_MAX,
		.answer_timeout_us = gateway_options(call->gateway)->guest_timeout_us,
	};
	int r = gateway_stream_begin(call->gateway, call->route, reterr);

	if (r < 0)
		return r;
	diff->counted = true;
	diff->deadline = evtimer_new(gateway_base(call->gateway), on_deadline, diff);
	if (!diff->deadline || evtimer_add(diff->deadline, &most) < 0)
		return err_set_at(reterr, STAGE_FILES, FAIL_NO_MEMORY, ENOMEM, "No memory for the request.");
	r = guest_link_new(&diff->link, gateway_base(call->gateway), &config, &handler, diff, reterr);
	return r < 0 ? r : guest_diff_append(guest_link_out(diff->link), reterr);
}

void diff_run(struct call *call, const char *body, size_t size)
{
	struct diff *diff = calloc(1, sizeof(*diff));
	struct err err = ERR_NULL;

	(void) body;
	(void) size;
	if (!diff) {
		call_fail_code(call, FAIL_NO_MEMORY, "No memory for the request.");
		return;
	}
	diff->call = call;
	diff->out = (struct buf) BUF_NULL(OUT_MAX);
	call->method_data = diff;
	call->method_free = diff_free;
	if (diff_open(diff, &err) == 0)
		return;
	guest_link_free(TAKE(diff->link));
	call_fail(call, &err);
}
