/* SPDX-License-Identifier: Apache-2.0
 *
 * Creating a sandbox over HTTP. What would refuse it before anything is made (its arguments, the tenant's quota) is
 * looked at first; then the sandbox, its reservation and its Idempotency-Key are one step and one batch.
 *
 * A repeated key answers for the sandbox that it made, waiting for its start as the first request does. A start that
 * failed has freed its key: the next request makes another sandbox, because what failed is dead or fenced.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/api.h"
#include "server/codec.h"
#include "server/request.h"
#include "server/shell.h"
#include "server/view.h"

#define RETURN_USEC (15 * USEC_PER_SEC) /* in which nodes are back after a start, as a rule */
#define REPEAT_WAIT_USEC (3600 * USEC_PER_SEC) /* every state of a start has a shorter deadline */

static void on_created(struct api_request *req, const struct fleet_reply *reply)
{
	if (err_is_set(&reply->err) || !reply->sandbox)
		api_sandbox_fail(req, reply);
	else
		api_answer(req, 201, view_sandbox_e2b(req->server, reply->sandbox));
}

static void answer_placed(struct api_request *req, const struct sandbox_record *sandbox)
{
	json_t *object = view_sandbox_e2b(req->server, sandbox);

	(void)json_object_set_new(object, "id", json_string(sandbox->id));
	(void)json_object_set_new(object, "state", json_string(public_state_name(PUBLIC_STARTING)));
	api_answer(req, 202, object);
}

static void on_placed(struct api_request *req, const struct fleet_reply *reply)
{
	if (err_is_set(&reply->err) || !reply->sandbox)
		api_sandbox_fail(req, reply);
	else
		answer_placed(req, reply->sandbox);
}

/* After a start of the scheduler the nodes come back one by one: while one of the pool is still to be heard, a request
 * waits for it instead of being told that there is none. */
static int64_t wait_for_nodes(const struct server *server, const char *pool)
{
	const struct fleet *fleet = shell_fleet(server->shell);
	int64_t left = server->started_us + RETURN_USEC - clock_realtime_usec();
	char after[ID_SIZE] = "", ids[64][ID_SIZE];
	size_t n;

	if (left <= 0 || left > RETURN_USEC)
		return 0;
	while ((n = fleet_node_list(fleet, pool, after, ids, ARRAY_LEN(ids))) > 0) {
		for (size_t i = 0; i < n; i++) {
			struct fleet_node_view view;

			if (fleet_node_get(fleet, ids[i], &view) == 0 && view.link == NODE_JOINING)
				return left;
		}
		memcpy(after, ids[n - 1], sizeof(after));
	}
	return 0;
}

/* ---- a new one ---- */
static void start(struct api_request *req, const struct create_request *request,
	const struct fleet_quota *quota, const struct api_idempotency *idempotency, bool no_wait)
{
	struct fleet_create create = { .no_wait = no_wait, .quota = *quota };
	const struct fleet_event event = { .type = FLEET_CREATE, .create = &create };
	const char *warm = fleet_warm_pick(
		shell_fleet(req->server->shell), request->pool, request->spec, &request->wish);
	struct ops ops = { .n = 0 };

	if (warm) { /* nothing comes between this and the step: what was picked is what is compared */
		(void)snprintf(create.id, sizeof(create.id), "%s", warm);
		create.claim = create.id;
	} else {
		id_new(&req->server->rng, create.id);
	}
	api_idempotency_keep(req, idempotency, &ops, create.id);
	create.request = api_await(req, no_wait ? on_placed : on_created);
	create.spec = request->spec;
	create.metadata = request->metadata;
	create.n_metadata = request->n_metadata;
	create.wish = request->wish;
	create.priority = request->priority;
	create.trace = req->trace;
	create.began_us = req->began_us;
	create.admit_usec = clock_monotonic_usec() - req->began_usec;
	create.queue_usec = MAX(request->queue_usec, wait_for_nodes(req->server, request->pool));
	memcpy(create.tenant, req->tenant, sizeof(create.tenant));
	memcpy(create.pool, request->pool, sizeof(create.pool));
	memcpy(create.template_alias, request->alias, sizeof(create.template_alias));
	shell_step(req->server->shell, &event, &ops, NULL, NULL);
}

static void make(struct api_request *req, const json_t *body,
	const struct api_idempotency *idempotency, bool no_wait)
{
	const struct tenant_entry *tenant = registry_tenant(&req->server->registry, req->tenant);
	const struct fleet_quota quota =
		tenant ? tenant->quota : (struct fleet_quota){ .sandboxes = 0 };
	const struct err *failure = shell_failure(req->server->shell);
	struct create_request request;
	struct err err = ERR_NULL;

	if (create_request_read(body, req->server, req->tenant, &request, &err) < 0) {
		api_fail(req, &err);
		return;
	}
	if (failure) { /* nothing is decided that cannot be written */
		api_fail(req, failure);
	} else if (fleet_quota_check(shell_fleet(req->server->shell), req->began_usec, req->tenant,
			   &quota, request.spec, &err) < 0) {
		req->server->counters.quota_exceeded++;
		api_fail(req, &err);
	} else {
		start(req, &request, &quota, idempotency, no_wait);
	}
	create_request_deinit(&request);
}

/* ---- a repeated one ---- */
struct repeat {
	char sandbox[ID_SIZE];
	struct api_idempotency idempotency;
	json_t *body;
	bool no_wait, has_waited;
};

static void repeat_free(void *extra)
{
	struct repeat *repeat = extra;

	json_decref(repeat->body);
	free(repeat);
}

static void look(struct api_request *req);

/* Everything before is durable. */
static void on_barrier(struct api_request *req, const struct fleet_reply *reply)
{
	const struct repeat *repeat = req->extra;
	struct sandbox_record record;

	if (err_is_set(&reply->err)) {
		api_fail(req, &reply->err);
	} else if (fleet_sandbox_get(shell_fleet(req->server->shell), repeat->sandbox, &record,
			   NULL) < 0) {
		look(req); /* it ended meanwhile */
	} else {
		if (repeat->no_wait)
			answer_placed(req, &record);
		else
			api_answer(req, 201, view_sandbox_e2b(req->server, &record));
		sandbox_record_deinit(&record);
	}
}

static void on_ended(struct api_request *req, struct sandbox_record *record)
{
	struct repeat *repeat = req->extra;
	struct fleet_reply reply = { .sandbox = record };

	if (!record) {
		(void)err_set(&reply.err, FAIL_SANDBOX_GONE, 0,
			"the sandbox that this Idempotency-Key made has ended and was forgotten");
		api_sandbox_fail(req, &reply);
	} else if (record->started_us == 0 && record->end_reason == END_FAILED) {
		if (repeat->has_waited) { /* it failed for this request too */
			reply.err = record->failure;
			api_sandbox_fail(req, &reply);
		} else {
			make(req, repeat->body, &repeat->idempotency, repeat->no_wait);
		}
	} else if (repeat->no_wait) {
		answer_placed(req, record);
	} else {
		api_answer(req, 201, view_sandbox_e2b(req->server, record));
	}
}

static void look(struct api_request *req)
{
	struct repeat *repeat = req->extra;
	struct fleet_sandbox_view view;
	struct sandbox_record record;
	struct ops none = { .n = 0 };

	if (fleet_sandbox_get(shell_fleet(req->server->shell), repeat->sandbox, &record, &view) < 0) {
		api_read_history(req, repeat->sandbox, on_ended);
		return;
	}
	if (view.state == PUBLIC_ENDED) { /* fenced: its node was not heard yet */
		on_ended(req, &record);
		sandbox_record_deinit(&record);
		return;
	}
	sandbox_record_deinit(&record);
	if (view.state != PUBLIC_STARTING || repeat->no_wait || !api_may_wait(req)) {
		api_step(req, NULL, &none, on_barrier);
		return;
	}
	repeat->has_waited = true;
	api_watch(req, repeat->sandbox, REPEAT_WAIT_USEC);
}

static void begin_repeat(struct api_request *req, json_t *body,
	const struct api_idempotency *idempotency, const char *sandbox, bool no_wait)
{
	struct repeat *repeat = calloc(1, sizeof(*repeat));
	struct err err = ERR_NULL;

	if (!repeat) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a repeated request");
		api_fail(req, &err);
		return;
	}
	repeat->idempotency = *idempotency;
	repeat->body = json_incref(body);
	repeat->no_wait = no_wait;
	(void)snprintf(repeat->sandbox, sizeof(repeat->sandbox), "%.*s", ID_LEN, sandbox);
	req->extra = repeat;
	req->extra_free = repeat_free;
	req->server->counters.idempotent++;
	look(req);
}

static void create(struct api_request *req, bool no_wait)
{
	struct api_idempotency idempotency;
	const char *before = NULL;
	json_t *body;

	if (req->extra) { /* api_watch() woke a repeated one */
		look(req);
		return;
	}
	body = api_json(req);
	if (!body)
		return;
	switch (api_idempotency(req, "sandbox", body, &idempotency, &before)) {
	case IDEMPOTENCY_NEW:
		make(req, body, &idempotency, no_wait);
		break;
	case IDEMPOTENCY_REPEATED:
		begin_repeat(req, body, &idempotency, before, no_wait);
		break;
	case IDEMPOTENCY_REFUSED:
		break;
	}
	json_decref(body);
}

void api_sandbox_create(struct api_request *req)
{
	create(req, false);
}

void api_sandbox_create_async(struct api_request *req)
{
	create(req, true);
}
