/* SPDX-License-Identifier: Apache-2.0
 *
 * Forks over HTTP, in E2B's shape: one request, one element of the answer for each sandbox. The ids of the sandboxes follow
 * from the id of the fork's snapshot, which is what an Idempotency-Key keeps: a repeated one looks at the same sandboxes.
 * One whose sandboxes are all gone, or never were, makes others, as a create does whose start failed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/api.h"
#include "server/request.h"
#include "server/shell.h"
#include "server/view.h"

#define WATCH_USEC (3600 * USEC_PER_SEC) /* every state of a start has a shorter deadline */

struct fork {
	char snapshot[ID_SIZE];
	char ids[FORKS_MAX][ID_SIZE];
	size_t n;
	uint32_t timeout_s;
	struct api_idempotency idempotency;
};

/* 100 bits of a digest, as an id is written. */
static bool id_of_fork(const char *snapshot, size_t i, char ret[static ID_SIZE])
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
	char text[64], hex[KEY_HEX_SIZE];

	(void)snprintf(text, sizeof(text), "fork %s %zu", snapshot, i);
	registry_hash(text, hex);
	if (!*hex)
		return false;
	for (size_t k = 0; k < ID_LEN; k++) {
		unsigned int byte = 0;

		(void)sscanf(hex + 2 * k, "%2x", &byte);
		ret[k] = letters[byte & 31];
	}
	ret[ID_LEN] = '\0';
	return true;
}

static bool name_sandboxes(struct fork *fork)
{
	for (size_t i = 0; i < fork->n; i++)
		if (!id_of_fork(fork->snapshot, i, fork->ids[i]))
			return false;
	return true;
}

/* ---- the answer ---- */
static json_t *view_error(const struct api_request *req, const struct err *err, const char *sandbox)
{
	const struct failure_context context = { .trace = &req->trace, .tenant = req->tenant, .sandbox = sandbox };
	json_t *error = json_error_body(err, &context);

	return json_pack("{s:o}", "error", error ? error : json_object());
}

/* It runs, or what became of it. */
static json_t *view_fork(const struct api_request *req, const char *id, const struct err *failure)
{
	struct sandbox_record record;
	struct fleet_sandbox_view view;
	struct err err = ERR_NULL;
	json_t *element;

	if (failure && err_is_set(failure))
		return view_error(req, failure, id);
	if (fleet_sandbox_get(shell_fleet(req->server->shell), id, &record, &view) < 0) {
		(void)err_set_at(&err, STAGE_RUN, FAIL_SANDBOX_GONE, 0, "the sandbox has ended, or did not start");
		return view_error(req, &err, id);
	}
	if (view.state == PUBLIC_STOPPING || view.state == PUBLIC_ENDED) {
		(void)err_set_at(&err, STAGE_RUN, FAIL_SANDBOX_GONE, 0, "the sandbox was ended");
		element = view_error(req, err_is_set(&record.failure) ? &record.failure : &err, id);
	} else {
		element = json_pack("{s:o}", "sandbox", view_sandbox_e2b(req->server, &record));
	}
	sandbox_record_deinit(&record);
	return element;
}

static void on_forked(struct api_request *req, const struct fleet_reply *reply)
{
	json_t *list;

	if (err_is_set(&reply->err)) {
		api_sandbox_fail(req, reply);
		return;
	}
	list = json_array();
	for (size_t i = 0; i < reply->n_forks; i++)
		(void)json_array_append_new(list, view_fork(req, reply->forks[i].sandbox, &reply->forks[i].err));
	api_answer(req, 201, list);
}

/* Everything before is durable. */
static void on_barrier(struct api_request *req, const struct fleet_reply *reply)
{
	const struct fork *fork = req->extra;
	json_t *list;

	if (err_is_set(&reply->err)) {
		api_fail(req, &reply->err);
		return;
	}
	list = json_array();
	for (size_t i = 0; i < fork->n; i++)
		(void)json_array_append_new(list, view_fork(req, fork->ids[i], NULL));
	api_answer(req, 201, list);
}

/* ---- the request ---- */
static void begin(struct api_request *req, struct fork *fork)
{
	const struct tenant_entry *tenant = registry_tenant(&req->server->registry, req->tenant);
	struct fleet_snapshot snapshot = { .sandbox = req->params[0], .n_forks = fork->n, .timeout_s = fork->timeout_s };
	const struct fleet_event event = { .type = FLEET_SNAPSHOT, .snapshot = &snapshot };
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;

	id_new(&req->server->rng, fork->snapshot);
	if (!name_sandboxes(fork)) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a fork");
		api_fail(req, &err);
		return;
	}
	if (tenant)
		snapshot.quota = tenant->quota;
	memcpy(snapshot.id, fork->snapshot, sizeof(snapshot.id));
	snapshot.forks = (const char(*)[ID_SIZE])fork->ids;
	api_idempotency_keep(req, &fork->idempotency, &ops, fork->snapshot);
	snapshot.request = api_await(req, on_forked);
	shell_step(req->server->shell, &event, &ops, NULL, NULL);
}

static void begin_new(struct api_request *req, struct fork *fork)
{
	if (api_sandbox_is_own(req, req->params[0]))
		begin(req, fork);
	else
		api_sandbox_not_found(req);
}

/* Of a repeated one. Its parent may have ended since. */
static void look(struct api_request *req)
{
	const struct fleet *fleet = shell_fleet(req->server->shell);
	struct fork *fork = req->extra;
	struct ops none = { .n = 0 };
	size_t n_known = 0;

	if (fleet_snapshot_is_used(fleet, fork->snapshot) && api_may_wait(req)) {
		api_watch(req, fork->snapshot, WATCH_USEC);
		return;
	}
	for (size_t i = 0; i < fork->n; i++)
		n_known += fleet_sandbox_tenant(fleet, fork->ids[i]) != NULL;
	if (n_known == 0)
		begin_new(req, fork);
	else
		api_step(req, NULL, &none, on_barrier);
}

static void choose(struct api_request *req, const json_t *body, struct fork *fork)
{
	const char *before = NULL;
	struct err err = ERR_NULL;
	char kind[32];

	(void)snprintf(kind, sizeof(kind), "fork %.*s", ID_LEN, req->params[0]);
	switch (api_idempotency(req, kind, body, &fork->idempotency, &before)) {
	case IDEMPOTENCY_NEW:
		begin_new(req, fork);
		return;
	case IDEMPOTENCY_REPEATED:
		(void)snprintf(fork->snapshot, sizeof(fork->snapshot), "%.*s", ID_LEN, before);
		req->server->counters.idempotent++;
		if (name_sandboxes(fork)) {
			look(req);
			return;
		}
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a repeated request");
		api_fail(req, &err);
		return;
	case IDEMPOTENCY_REFUSED:
		return;
	}
}

void api_sandbox_fork(struct api_request *req)
{
	uint64_t count = 1, timeout_s = 0;
	struct err err = ERR_NULL;
	struct fork *fork;
	json_t *body;

	if (req->extra) { /* api_watch() woke a repeated one */
		look(req);
		return;
	}
	body = api_json(req);
	if (!body)
		return;
	if (request_timeout(body, &timeout_s, &err) < 0 || json_get_u64(body, "count", 1, FORKS_MAX, &count, &err) < 0) {
		api_fail(req, &err);
	} else if (!(fork = calloc(1, sizeof(*fork)))) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a fork");
		api_fail(req, &err);
	} else {
		req->extra = fork;
		req->extra_free = free;
		fork->n = (size_t)count;
		fork->timeout_s = (uint32_t)timeout_s;
		choose(req, body, fork);
	}
	json_decref(body);
}
