/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots over HTTP, in E2B's shape: making one waits until it is there, and deleting one goes by the path of templates.
 * A repeated Idempotency-Key answers for the snapshot that it made while there is one, also when its sandbox has ended; where
 * it came to nothing, or was deleted, another is made.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/api.h"
#include "server/shell.h"
#include "server/view.h"

#define LIST_MAX 1000
#define WATCH_USEC (60 * USEC_PER_SEC) /* longer than the fleet waits for a node */

static json_t *view(const struct snapshot_record *record)
{
	json_t *names = json_array();

	if (*record->name)
		(void)json_array_append_new(names, json_string(record->name));
	return json_pack("{s:s, s:o, s:s?, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:s}", "snapshotID", record->id, "names", names, "name",
		*record->name ? record->name : NULL, "sandboxID",
		record->sandbox, "state", snapshot_state_name(record->state), "createdAt",
		view_time(record->created_us), "cpuCount", (json_int_t)record->spec->vcpus, "memoryMB",
		(json_int_t)record->spec->memory_mib, "diskSizeMB", (json_int_t)record->spec->disk_mib, "sizeMB",
		(json_int_t)record->size_mib, "cpuClass", record->cpu_class);
}

static void not_found(struct api_request *req)
{
	struct err err = ERR_NULL;

	(void)err_set_at(&err, STAGE_ADMIT, FAIL_SNAPSHOT_NOT_FOUND, ENOENT, "there is no such snapshot");
	api_fail(req, &err);
}

/* ---- make ---- */
static int read_name(const json_t *body, const char **ret, struct err *reterr)
{
	int r = json_get_string(body, "name", ID_NAME_MAX, ret, reterr);
	const json_t *given = json_object_get(body, "name");

	if (r < 0)
		return r;
	for (const char *c = *ret; *c; c++)
		if (!isalnum((unsigned char)*c) && !strchr("-_.:/", *c))
			r = -EINVAL;
	if (r == 0 && (!json_is_string(given) || **ret))
		return 0;
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL,
		"name has 1 to %d of the characters A-Z, a-z, 0-9, -, _, ., : and /", ID_NAME_MAX);
	err_add(reterr, "field", "name");
	return -EINVAL;
}

static void on_made(struct api_request *req, const struct fleet_reply *reply)
{
	if (err_is_set(&reply->err) || !reply->snapshot)
		api_sandbox_fail(req, reply);
	else
		api_answer(req, 201, view(reply->snapshot));
}

static void make(struct api_request *req, const char *name, const struct api_idempotency *idempotency)
{
	const struct tenant_entry *tenant = registry_tenant(&req->server->registry, req->tenant);
	struct fleet_snapshot snapshot = { .sandbox = req->params[0], .name = name };
	const struct fleet_event event = { .type = FLEET_SNAPSHOT, .snapshot = &snapshot };
	struct ops ops = { .n = 0 };

	if (!api_sandbox_is_own(req, req->params[0])) {
		api_sandbox_not_found(req);
		return;
	}
	if (tenant)
		snapshot.quota = tenant->quota;
	id_new(&req->server->rng, snapshot.id);
	api_idempotency_keep(req, idempotency, &ops, snapshot.id);
	snapshot.request = api_await(req, on_made);
	shell_step(req->server->shell, &event, &ops, NULL, NULL);
}

struct repeat {
	char snapshot[ID_SIZE], name[ID_NAME_MAX + 1];
	struct api_idempotency idempotency;
};

/* Everything before is durable. */
static void on_barrier(struct api_request *req, const struct fleet_reply *reply)
{
	const struct repeat *repeat = req->extra;
	const struct snapshot_record *record = fleet_snapshot_get(shell_fleet(req->server->shell), repeat->snapshot);
	struct err err = ERR_NULL;

	if (err_is_set(&reply->err)) {
		api_fail(req, &reply->err);
	} else if (!record) { /* it was deleted meanwhile */
		not_found(req);
	} else if (record->state == SNAPSHOT_MAKING) {
		(void)err_set_at(&err, STAGE_SNAPSHOT, FAIL_SNAPSHOTTING, EBUSY,
			"the snapshot is still being made; it is in the list when it is done");
		api_fail(req, &err);
	} else {
		api_answer(req, 201, view(record));
	}
}

static void look(struct api_request *req)
{
	struct repeat *repeat = req->extra;
	const struct snapshot_record *record = fleet_snapshot_get(shell_fleet(req->server->shell), repeat->snapshot);
	struct ops none = { .n = 0 };

	if (!record)
		make(req, repeat->name, &repeat->idempotency);
	else if (record->state == SNAPSHOT_MAKING && api_may_wait(req))
		api_watch(req, repeat->snapshot, WATCH_USEC);
	else
		api_step(req, NULL, &none, on_barrier);
}

static void begin_repeat(struct api_request *req, const char *name, const struct api_idempotency *idempotency,
	const char *snapshot)
{
	struct repeat *repeat = calloc(1, sizeof(*repeat));
	struct err err = ERR_NULL;

	if (!repeat) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a repeated request");
		api_fail(req, &err);
		return;
	}
	repeat->idempotency = *idempotency;
	(void)snprintf(repeat->name, sizeof(repeat->name), "%s", name);
	(void)snprintf(repeat->snapshot, sizeof(repeat->snapshot), "%.*s", ID_LEN, snapshot);
	req->extra = repeat;
	req->extra_free = free;
	req->server->counters.idempotent++;
	look(req);
}

void api_snapshot_create(struct api_request *req)
{
	struct api_idempotency idempotency;
	const char *name = "", *before = NULL;
	struct err err = ERR_NULL;
	char kind[32];
	json_t *body;

	if (req->extra) { /* api_watch() woke a repeated one */
		look(req);
		return;
	}
	body = api_json(req);
	if (!body)
		return;
	(void)snprintf(kind, sizeof(kind), "snapshot %.*s", ID_LEN, req->params[0]);
	if (read_name(body, &name, &err) < 0) {
		api_fail(req, &err);
	} else {
		switch (api_idempotency(req, kind, body, &idempotency, &before)) {
		case IDEMPOTENCY_NEW:
			make(req, name, &idempotency);
			break;
		case IDEMPOTENCY_REPEATED:
			begin_repeat(req, name, &idempotency, before);
			break;
		case IDEMPOTENCY_REFUSED:
			break;
		}
	}
	json_decref(body);
}

/* ---- list ---- */
static bool passes(const struct api_request *req, const struct snapshot_record *record)
{
	const char *sandbox = api_query(req, "sandboxID"), *name = api_query(req, "name");

	return (record->state == SNAPSHOT_READY || record->state == SNAPSHOT_LOST) &&
	       (!sandbox || !*sandbox || !strcmp(record->sandbox, sandbox)) &&
	       (!name || !*name || !strcmp(record->name, name));
}

/* With croft's own members. What a tenant called it is its own. */
static json_t *view_for(const struct api_request *req, const struct snapshot_record *record)
{
	json_t *object = view(record), *more = json_pack("{s:s, s:s, s:s}", "tenant", record->tenant, "pool", record->pool, "node",
						    record->node);

	if (strcmp(record->tenant, req->tenant) != 0) {
		(void)json_object_del(object, "name");
		(void)json_object_del(object, "names");
	}
	(void)json_object_update(object, more);
	json_decref(more);
	return object;
}

/* At most `limit` that pass; `next` is the last id looked at when there may be more. */
static json_t *collect(const struct api_request *req, const struct api_page *page, uint64_t limit, struct api_page *next)
{
	const struct fleet *fleet = shell_fleet(req->server->shell);
	struct api_page at = *page;
	char ids[64][ID_SIZE];
	bool is_own = req->route->scope == SCOPE_TENANT, all = !is_own && api_wants_all(req);
	json_t *list = json_array();
	size_t n;

	while ((n = fleet_snapshot_list(fleet, all ? NULL : req->tenant, at.after, at.after_us, ids, ARRAY_LEN(ids))) > 0)
		for (size_t i = 0; i < n; i++) {
			const struct snapshot_record *record = fleet_snapshot_get(fleet, ids[i]);

			if (json_array_size(list) >= limit) {
				*next = at;
				return list;
			}
			memcpy(at.after, ids[i], ID_SIZE);
			at.after_us = record ? record->created_us : at.after_us;
			if (record && (!all || api_may_see_tenant(req, record->tenant)) && passes(req, record))
				(void)json_array_append_new(list, is_own ? view(record) : view_for(req, record));
		}
	return list;
}

void api_snapshot_list(struct api_request *req)
{
	struct api_page page, next = { .after = "" };
	char token[API_PAGE_TOKEN_SIZE];
	const struct http_field field = { "x-next-token", token };
	struct err err = ERR_NULL;
	uint64_t limit = 100;
	json_t *found;

	if (api_query_u64(req, "limit", 1, LIST_MAX, &limit, &err) < 0 || api_page_read(req, &page, &err) < 0) {
		api_fail(req, &err);
		return;
	}
	found = collect(req, &page, limit, &next);
	api_page_token(&next, token);
	api_answer_with(req, 200, found, &field, *token ? 1 : 0);
}

/* ---- delete ---- */
static void on_deleted(struct api_request *req, const struct fleet_reply *reply)
{
	if (err_is_set(&reply->err))
		api_fail(req, &reply->err);
	else
		api_answer_empty(req, 204);
}

void api_snapshot_delete(struct api_request *req)
{
	const struct snapshot_record *record = fleet_snapshot_get(shell_fleet(req->server->shell), req->params[0]);
	struct fleet_event event = { .type = FLEET_DROP_SNAPSHOT };

	if (!record || strcmp(record->tenant, req->tenant) != 0) {
		not_found(req);
		return;
	}
	event.drop_snapshot.request = api_await(req, on_deleted);
	event.drop_snapshot.snapshot = req->params[0];
	shell_step(req->server->shell, &event, NULL, NULL, NULL);
}
