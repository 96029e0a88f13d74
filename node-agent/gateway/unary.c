/* SPDX-License-Identifier: Apache-2.0
 *
 * See unary.h. An input that is larger than a guest frame goes in pieces, each on a connection of its own and
 * each after the one before was acknowledged, so that their order is kept.
 *
 * An input is acknowledged when the process has room for it, which may be never. Whose fault a long wait is, the
 * process's or a guest's that hangs, is found out by asking the guest something else (`probe`) while the input
 * waits: as long as it answers, the wait goes on until the client leaves.
 */
#include "gateway/unary.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>

#include "base/clock.h"
#include "gateway/gateway.h"
#include "gateway/guest-link.h"
#include "gateway/guest-wire.h"
#include "gateway/process-event.h"
#include "gateway/process-json.h"

#define INPUT_PIECE (512u * 1024u)

struct unary {
	struct call *call;
	struct guest_link *link;
	enum guest_event_kind wanted;
	struct process_input input; /* of SendInput */
	size_t sent;
	struct guest_link *probe;
	struct event *patience;
};

static void unary_free(void *data)
{
	struct unary *unary = data;

	guest_link_free(unary->link);
	guest_link_free(unary->probe);
	if (unary->patience)
		event_free(unary->patience);
	process_input_deinit(&unary->input);
	free(unary);
}

static void unary_done(struct unary *unary)
{
	guest_link_free(TAKE(unary->link));
	guest_link_free(TAKE(unary->probe));
	if (unary->patience)
		(void) event_del(unary->patience);
}

static void unary_fail(struct unary *unary, const struct err *err)
{
	struct err gone = ERR_NULL;

	if (err->code == FAIL_GUEST_UNREACHABLE && unary->call->route->gone) {
		err_set(&gone, FAIL_SANDBOX_GONE, 0, "The sandbox ended during the call.");
		err = &gone;
	}
	call_fail(unary->call, err);
	unary_done(unary);
}

static int unary_dial(struct unary *unary, struct err *reterr);

static int send_piece(struct unary *unary, struct err *reterr)
{
	size_t size = MIN(unary->input.size - unary->sent, (size_t) INPUT_PIECE);
	int r = guest_input_append(guest_link_out(unary->link), &unary->input.process,
		unary->input.data + unary->sent, size, reterr);

	unary->sent += size;
	return r;
}

static void on_event(const struct guest_event *event, void *user)
{
	struct unary *unary = user;
	struct err err = ERR_NULL;

	if (event->kind == GUEST_EVENT_FAILURE) {
		unary_fail(unary, &event->failure);
	} else if (event->kind != unary->wanted) {
		err_set_at(&err, STAGE_EXEC, FAIL_GUEST_PROTOCOL, EPROTO, "The guest answered another question.");
		unary_fail(unary, &err);
	} else if (event->kind == GUEST_EVENT_PROCESSES) {
		call_respond_json(unary->call, 200, process_list(event->processes, event->n_processes));
		unary_done(unary);
	} else if (unary->sent < unary->input.size) {
		unary_done(unary);
		if (unary_dial(unary, &err) < 0 || send_piece(unary, &err) < 0)
			unary_fail(unary, &err);
	} else {
		call_respond_json(unary->call, 200, json_object());
		unary_done(unary);
	}
}

static void on_closed(const struct err *err, void *user)
{
	unary_fail(user, err);
}

static int dial(const struct unary *unary, struct guest_link **ret, const struct guest_link_handler *handler,
	int64_t timeout_us, struct unary *user, struct err *reterr)
{
	const struct guest_link_config config = {
		.path = unary->call->route->vsock_path,
		.frame_max = GUEST_FRAME_MAX,
		.answer_timeout_us = timeout_us,
	};

	return guest_link_new(ret, gateway_base(unary->call->gateway), &config, handler, user, reterr);
}

/* ---- is the guest alive while an input waits? ---- */

static void be_patient(struct unary *unary)
{
	int64_t usec = gateway_options(unary->call->gateway)->guest_timeout_us;
	const struct timeval tv = { .tv_sec = usec / USEC_PER_SEC, .tv_usec = usec % USEC_PER_SEC };

	(void) evtimer_add(unary->patience, &tv);
}

static void on_probe_event(const struct guest_event *event, void *user)
{
	struct unary *unary = user;

	(void) event; /* whatever it says, it is alive */
	guest_link_free(TAKE(unary->probe));
	be_patient(unary);
}

static void on_patience_over(evutil_socket_t fd, short what, void *user)
{
	static const struct guest_link_handler handler = { on_probe_event, on_closed };
	struct unary *unary = user;
	struct err err = ERR_NULL;

	(void) fd;
	(void) what;
	if (dial(unary, &unary->probe, &handler, gateway_options(unary->call->gateway)->guest_timeout_us, unary,
		    &err) < 0 ||
		guest_list_append(guest_link_out(unary->probe), &err) < 0)
		unary_fail(unary, &err);
}

static int unary_dial(struct unary *unary, struct err *reterr)
{
	static const struct guest_link_handler handler = { on_event, on_closed };
	const struct gateway *gateway = unary->call->gateway;
	bool is_input = unary->call->method->run == unary_send_input;

	if (is_input && !unary->patience) {
		unary->patience = evtimer_new(gateway_base(gateway), on_patience_over, unary);
		if (!unary->patience)
			return err_set_at(reterr, STAGE_EXEC, FAIL_NO_MEMORY, ENOMEM, "No memory for the request.");
	}
	if (is_input)
		be_patient(unary);
	return dial(unary, &unary->link, &handler, is_input ? 0 : gateway_options(gateway)->guest_timeout_us, unary,
		reterr);
}

/* A connection to the guest for this call; NULL when the call was answered with the failure. */
static struct unary *unary_begin(struct call *call, enum guest_event_kind wanted)
{
	struct unary *unary = calloc(1, sizeof(*unary));
	struct err err = ERR_NULL;

	if (!unary) {
		call_fail_code(call, FAIL_NO_MEMORY, "No memory for the request.");
		return NULL;
	}
	unary->call = call;
	unary->wanted = wanted;
	call->method_data = unary;
	call->method_free = unary_free;
	if (unary_dial(unary, &err) == 0)
		return unary;
	unary_fail(unary, &err);
	return NULL;
}

void unary_list(struct call *call, const char *body, size_t size)
{
	struct err err = ERR_NULL;
	struct unary *unary;

	if (process_empty_parse(body, size, &err) < 0) {
		call_fail(call, &err);
		return;
	}
	unary = unary_begin(call, GUEST_EVENT_PROCESSES);
	if (unary && guest_list_append(guest_link_out(unary->link), &err) < 0)
		unary_fail(unary, &err);
}

void unary_send_input(struct call *call, const char *body, size_t size)
{
	struct err err = ERR_NULL;
	struct process_input request;
	struct unary *unary;

	if (process_input_parse(body, size, &request, &err) < 0) {
		call_fail(call, &err);
		return;
	}
	unary = unary_begin(call, GUEST_EVENT_DONE);
	if (!unary) {
		process_input_deinit(&request);
		return;
	}
	unary->input = request; /* until the last piece is acknowledged */
	if (send_piece(unary, &err) < 0)
		unary_fail(unary, &err);
}

void unary_send_signal(struct call *call, const char *body, size_t size)
{
	struct err err = ERR_NULL;
	struct process_signal request;
	struct unary *unary;

	if (process_signal_parse(body, size, &request, &err) < 0) {
		call_fail(call, &err);
		return;
	}
	unary = unary_begin(call, GUEST_EVENT_DONE);
	if (unary && guest_signal_append(guest_link_out(unary->link), &request.process, request.signal, &err) < 0)
		unary_fail(unary, &err);
	process_signal_deinit(&request);
}

void unary_close_stdin(struct call *call, const char *body, size_t size)
{
	struct err err = ERR_NULL;
	struct process_named request;
	struct unary *unary;

	if (process_named_parse(body, size, &request, &err) < 0) {
		call_fail(call, &err);
		return;
	}
	unary = unary_begin(call, GUEST_EVENT_DONE);
	if (unary && guest_close_stdin_append(guest_link_out(unary->link), &request.process, &err) < 0)
		unary_fail(unary, &err);
	process_named_deinit(&request);
}

void unary_update(struct call *call, const char *body, size_t size)
{
	struct err err = ERR_NULL;
	struct process_update request;
	struct unary *unary;

	if (process_update_parse(body, size, &request, &err) < 0) {
		call_fail(call, &err);
		return;
	}
	if (request.has_pty) {
		unary = unary_begin(call, GUEST_EVENT_DONE);
		if (unary && guest_resize_append(guest_link_out(unary->link), &request.process, request.cols,
				     request.rows, &err) < 0)
			unary_fail(unary, &err);
	} else {
		call_respond_json(call, 200, json_object()); /* nothing is to be changed */
	}
	process_update_deinit(&request);
}
