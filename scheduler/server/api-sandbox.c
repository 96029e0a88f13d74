/* SPDX-License-Identifier: Apache-2.0
 *
 * Sandboxes over HTTP. A sandbox of another tenant does not exist: every lookup goes through find(), which fails
 * with one and the same text.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/api.h"
#include "server/relay.h"
#include "server/request.h"
#include "server/shell.h"
#include "server/view.h"

#define WAIT_MS_MAX 60000

void api_sandbox_not_found(struct api_request *req)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_SANDBOX_NOT_FOUND, ENOENT, "there is no such sandbox");
	api_fail(req, &err);
}

/* Whether the key reaches a live sandbox of this id: its tenant's, or on croft's own paths also an operator's. */
static bool is_reached(const struct api_request *req, const char *id)
{
	const char *tenant = fleet_sandbox_tenant(shell_fleet(req->server->shell), id);

	return tenant && api_may_see_tenant(req, tenant);
}

/* What a tenant wrote about its sandbox is its own. */
static json_t *view_for(const struct api_request *req, const struct sandbox_record *record,
	const struct fleet_sandbox_view *view)
{
	json_t *object = view_sandbox(req->server, record, view);

	if (object && strcmp(record->tenant, req->tenant) != 0)
		(void)json_object_del(object, "metadata");
	return object;
}

bool api_sandbox_is_own(const struct api_request *req, const char *id)
{
	const char *tenant = fleet_sandbox_tenant(shell_fleet(req->server->shell), id);

	return tenant && !strcmp(tenant, req->tenant);
}

int api_sandbox_find(struct api_request *req, const char *id, struct sandbox_record *ret,
	struct fleet_sandbox_view *view)
{
	if (api_sandbox_is_own(req, id) &&
		fleet_sandbox_get(shell_fleet(req->server->shell), id, ret, view) == 0)
		return 0;
	api_sandbox_not_found(req);
	return -ENOENT;
}

void api_sandbox_fail(struct api_request *req, const struct fleet_reply *reply)
{
	const struct sandbox_record *record = reply->sandbox;
	struct failure_context context = { .trace = &req->trace,
		.tenant = req->tenant,
		.began_us = req->began_us,
		.took_us = clock_monotonic_usec() - req->began_usec };

	if (record) {
		context.table = api_responsibility(req->server, record->pool);
		context.sandbox = record->id;
		context.pool = record->pool;
		context.node = *record->node ? record->node : NULL;
		context.operation = *record->operation ? record->operation : NULL;
	}
	api_fail_with(req, &reply->err, &context);
}

/* ---- read ---- */
void api_sandbox_get(struct api_request *req)
{
	struct sandbox_record record;
	struct fleet_sandbox_view view;

	if (api_sandbox_find(req, req->params[0], &record, &view) < 0)
		return;
	if (view.state == PUBLIC_STOPPING || view.state == PUBLIC_ENDED)
		api_sandbox_not_found(req); /* it was killed: E2B's clients are told that it is gone */
	else
		api_answer(req, 200, view_sandbox_detail(req->server, &record, &view));
	sandbox_record_deinit(&record);
}

static void on_history(struct api_request *req, struct sandbox_record *record)
{
	if (!record || !api_may_see_tenant(req, record->tenant))
		api_sandbox_not_found(req);
	else
		api_answer(req, 200, view_for(req, record, NULL));
}

void api_sandbox_get_v1(struct api_request *req)
{
	const char *after = api_query(req, "after");
	struct sandbox_record record;
	struct fleet_sandbox_view view;
	struct err err = ERR_NULL;
	uint64_t wait_ms = 0;
	char version[24];

	if (!id_is_valid(req->params[0])) {
		api_sandbox_not_found(req);
		return;
	}
	if (api_query_u64(req, "wait_ms", 0, WAIT_MS_MAX, &wait_ms, &err) < 0) {
		api_fail(req, &err);
		return;
	}
	if (!is_reached(req, req->params[0]) || fleet_sandbox_get(shell_fleet(req->server->shell),
						    req->params[0], &record, &view) < 0) {
		api_read_history(req, req->params[0], on_history);
		return;
	}
	(void)snprintf(version, sizeof(version), "%016" PRIx64, view_version(&record));
	if (wait_ms && after && !strcmp(after, version) && api_may_wait(req) &&
		!shell_failure(req->server->shell))
		api_watch(req, record.id, (int64_t)wait_ms * USEC_PER_MSEC);
	else
		api_answer(req, 200, view_for(req, &record, &view));
	sandbox_record_deinit(&record);
}

/* The names of its files and its command lines are its tenant's: no operator's key of another, and no telemetry, has them. */
static void ask_node(struct api_request *req, const char *path)
{
	struct sandbox_record record;
	struct fleet_sandbox_view view;

	if (api_sandbox_find(req, req->params[0], &record, &view) < 0)
		return;
	relay_ask(req->server->relay, req, record.id, path, record.spec->access_token);
	sandbox_record_deinit(&record);
}

void api_sandbox_diff(struct api_request *req)
{
	ask_node(req, "/croft/diff");
}

void api_sandbox_audit(struct api_request *req)
{
	ask_node(req, "/croft/audit");
}

/* ---- list ---- */
#define LIST_MAX 1000

struct filter {
	bool starting, running, paused, stopping;
	struct sandbox_field *metadata;
	size_t n_metadata;
};

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent-decodes in place; what is no escape stays. */
static void decode(char *text, bool is_form)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		int high = *from == '%' ? hex_digit(from[1]) : -1;
		int low = high >= 0 ? hex_digit(from[2]) : -1;

		if (low >= 0 && high * 16 + low != 0) {
			*to++ = (char)(high * 16 + low);
			from += 2;
		} else {
			*to++ = is_form && *from == '+' ? ' ' : *from;
		}
	}
	*to = '\0';
}

/* The SDK encodes metadata three times (e2b-wire.md 3): the HTTP module undid one; this is a form, whose keys and
 * values are decoded as a form's and once more. */
static int parse_metadata(char *text, struct filter *filter)
{
	char *rest, *pair;

	filter->metadata = calloc(strlen(text) / 2 + 1, sizeof(*filter->metadata));
	if (!filter->metadata)
		return -ENOMEM;
	for (pair = strtok_r(text, "&", &rest); pair; pair = strtok_r(NULL, "&", &rest)) {
		char *value = strchr(pair, '=');

		if (!value)
			continue;
		*value++ = '\0';
		decode(pair, true);
		decode(pair, false);
		decode(value, true);
		decode(value, false);
		filter->metadata[filter->n_metadata++] = (struct sandbox_field){ pair, value };
	}
	return 0;
}

static bool has_metadata(const struct sandbox_record *record, const struct sandbox_field *wanted)
{
	for (size_t i = 0; i < record->n_metadata; i++)
		if (!strcmp(record->metadata[i].key, wanted->key) &&
			!strcmp(record->metadata[i].value, wanted->value))
			return true;
	return false;
}

static bool passes(
	const struct filter *filter, const struct sandbox_record *record, enum public_state state)
{
	const bool wanted[PUBLIC_MAX_] = { [PUBLIC_STARTING] = filter->starting,
		[PUBLIC_RUNNING] = filter->running,
		[PUBLIC_PAUSED] = filter->paused,
		[PUBLIC_STOPPING] = filter->stopping };

	if ((unsigned int)state >= PUBLIC_MAX_ || !wanted[state])
		return false;
	for (size_t i = 0; i < filter->n_metadata; i++)
		if (!has_metadata(record, &filter->metadata[i]))
			return false;
	return true;
}

static int parse_states(const char *text, struct filter *filter, struct err *reterr)
{
	char copy[128], *rest, *name;

	if (!text || !*text)
		return 0;
	filter->starting = filter->running = filter->paused = filter->stopping = false;
	(void)snprintf(copy, sizeof(copy), "%s", text);
	for (name = strtok_r(copy, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		if (!strcmp(name, "running"))
			filter->running = true;
		else if (!strcmp(name, "paused"))
			filter->paused = true;
		else if (!strcmp(name, "starting"))
			filter->starting = true;
		else if (!strcmp(name, "stopping"))
			filter->stopping = true;
		else {
			(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL,
				"state knows starting, running, paused, stopping");
			err_add(reterr, "field", "state");
			return -EINVAL;
		}
	}
	return 0;
}

typedef json_t *(*list_view)(const struct api_request *req, const struct sandbox_record *record,
	const struct fleet_sandbox_view *view);

/* At most `limit` that pass; `next` is the last id looked at when there may be more. */
static json_t *collect(struct api_request *req, const struct filter *filter, list_view show,
	const struct api_page *page, uint64_t limit, struct api_page *next)
{
	const struct fleet *fleet = shell_fleet(req->server->shell);
	struct api_page at = *page;
	char ids[64][ID_SIZE];
	json_t *list = json_array();
	bool all = req->route->scope == SCOPE_REACH && api_wants_all(req);
	size_t n;

	while ((n = fleet_sandbox_list(fleet, all ? NULL : req->tenant, at.after, at.after_us, ids, ARRAY_LEN(ids))) > 0) {
		for (size_t i = 0; i < n; i++) {
			struct sandbox_record record;
			struct fleet_sandbox_view view;

			if (json_array_size(list) >= limit) {
				*next = at;
				return list;
			}
			memcpy(at.after, ids[i], ID_SIZE);
			if (fleet_sandbox_get(fleet, ids[i], NULL, &view) < 0)
				continue;
			at.after_us = view.created_us;
			if ((all && !is_reached(req, ids[i])) || fleet_sandbox_get(fleet, ids[i], &record, NULL) < 0)
				continue;
			if (passes(filter, &record, view.state)) {
				api_as_of(req, view.as_of_us);
				(void)json_array_append_new(
					list, show(req, &record, &view));
			}
			sandbox_record_deinit(&record);
		}
	}
	return list;
}

static void list(struct api_request *req, struct filter filter, list_view show)
{
	const char *metadata = api_query(req, "metadata");
	CLEANUP_FREE char *copy = metadata ? strdup(metadata) : NULL;
	struct err err = ERR_NULL;
	struct api_page page, next = { .after = "" };
	char token[API_PAGE_TOKEN_SIZE];
	uint64_t limit = 100;
	const struct http_field field = { "x-next-token", token };
	json_t *found;

	if (api_query_u64(req, "limit", 1, LIST_MAX, &limit, &err) == 0 &&
		parse_states(api_query(req, "state"), &filter, &err) == 0)
		(void)api_page_read(req, &page, &err);
	if (!err_is_set(&err) && metadata && (!copy || parse_metadata(copy, &filter) < 0))
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a list");
	if (err_is_set(&err)) {
		free(filter.metadata);
		api_fail(req, &err);
		return;
	}
	found = collect(req, &filter, show, &page, limit, &next);
	free(filter.metadata);
	api_page_token(&next, token);
	api_answer_with(req, 200, found, &field, *token ? 1 : 0);
}

static json_t *detail_for(const struct api_request *req, const struct sandbox_record *record,
	const struct fleet_sandbox_view *view)
{
	return view_sandbox_detail(req->server, record, view);
}

void api_sandbox_list(struct api_request *req)
{
	list(req, (struct filter){ .running = true, .paused = true }, detail_for);
}

void api_sandbox_list_v1(struct api_request *req)
{
	list(req,
		(struct filter){
			.starting = true, .running = true, .paused = true, .stopping = true },
		view_for);
}

/* ---- change ---- */
void api_sandbox_on_changed(struct api_request *req, const struct fleet_reply *reply)
{
	if (err_is_set(&reply->err))
		api_sandbox_fail(req, reply);
	else
		api_answer_empty(req, 204);
}

/* E2B's kill says whether there was something to kill: a sandbox that is on its way out is gone for its clients. */
void api_sandbox_delete(struct api_request *req)
{
	struct fleet_sandbox_view view;

	if (api_sandbox_is_own(req, req->params[0]) &&
		fleet_sandbox_get(shell_fleet(req->server->shell), req->params[0], NULL, &view) ==
			0 &&
		view.state != PUBLIC_STOPPING && view.state != PUBLIC_ENDED)
		api_sandbox_delete_v1(req);
	else
		api_sandbox_not_found(req);
}

/* Accepted in every state. */
void api_sandbox_delete_v1(struct api_request *req)
{
	struct fleet_event event = { .type = FLEET_DESTROY };

	if (!is_reached(req, req->params[0])) {
		api_sandbox_not_found(req);
		return;
	}
	event.destroy.request = api_await(req, api_sandbox_on_changed);
	event.destroy.sandbox = req->params[0];
	event.destroy.reason = END_REQUEST;
	shell_step(req->server->shell, &event, NULL, NULL, NULL);
}

void api_sandbox_set_timeout(struct api_request *req, uint64_t timeout_s,
	void (*on_reply)(struct api_request *req, const struct fleet_reply *reply))
{
	struct fleet_event event = { .type = FLEET_SET_TIMEOUT };

	event.set_timeout.request = api_await(req, on_reply);
	event.set_timeout.sandbox = req->params[0];
	event.set_timeout.timeout_s = (uint32_t)timeout_s;
	shell_step(req->server->shell, &event, NULL, NULL, NULL);
}

void api_sandbox_timeout(struct api_request *req)
{
	json_t *body = api_json(req);
	struct err err = ERR_NULL;
	uint64_t timeout_s = 0;

	if (!body)
		return;
	if (request_timeout(body, &timeout_s, &err) == 0 && timeout_s == 0) {
		(void)err_set(&err, FAIL_INVALID_ARGUMENT, EINVAL, "timeout is missing");
		err_add(&err, "field", "timeout");
	}
	json_decref(body);
	if (err_is_set(&err))
		api_fail(req, &err);
	else if (!api_sandbox_is_own(req, req->params[0]))
		api_sandbox_not_found(req);
	else
		api_sandbox_set_timeout(req, timeout_s, api_sandbox_on_changed);
}

void api_sandbox_change(struct api_request *req, struct fleet_event *event, const struct err *err)
{
	if (err_is_set(err)) {
		api_fail(req, err);
	} else if (!api_sandbox_is_own(req, req->params[0])) {
		api_sandbox_not_found(req);
	} else {
		event->change.request = api_await(req, api_sandbox_on_changed);
		event->change.sandbox = req->params[0];
		shell_step(req->server->shell, event, NULL, NULL, NULL);
	}
}

void api_sandbox_network(struct api_request *req)
{
	struct fleet_event event = { .type = FLEET_SET_NETWORK };
	struct net_policy policy = { .internet = true };
	json_t *body = api_json(req);
	struct err err = ERR_NULL;

	if (!body)
		return;
	(void)request_network_update(body, &policy, &err);
	json_decref(body);
	event.change.network = &policy;
	api_sandbox_change(req, &event, &err);
	net_policy_deinit(&policy);
}
