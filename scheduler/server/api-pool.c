/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools over HTTP. A pool's owner says who may be placed there and what happens when a node is lost; whose fault what is
 * (the responsibility table) is the provider's contract with it, so only the provider's operator writes that.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/api-who.h"
#include "server/shell.h"
#include "server/view.h"

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))
#define SELF_STOP_MARGIN_MS 10000 /* between the latest end of a VM that is cut off and its replacement */

static size_t count_nodes(const struct api_request *req, const char *pool)
{
	const struct fleet *fleet = shell_fleet(req->server->shell);
	char after[ID_SIZE] = "", ids[64][ID_SIZE];
	size_t n, total = 0;

	while ((n = fleet_node_list(fleet, pool, after, ids, ARRAY_LEN(ids))) > 0) {
		total += n;
		memcpy(after, ids[n - 1], sizeof(after));
	}
	return total;
}

static json_t *view_pool(const struct api_request *req, const char *name)
{
	const struct pool_entry *pool = registry_pool(&req->server->registry, name);
	const struct pool_record *record;
	json_t *owners;

	if (!pool)
		return NULL;
	record = &pool->record;
	owners = json_object();
	for (unsigned int i = 1; i < COMPONENT_MAX_; i++)
		(void)json_object_set_new(owners, component_name((enum fail_component)i),
			json_string(owner_name(record->owners.owner[i])));
	return json_pack("{s:s, s:s, s:s, s:b, s:I, s:s, s:I, s:I, s:s, s:o, s:I, s:o, s:o}", "name",
		record->name, "customer", record->customer, "state", who_state(pool->revoked_us),
		"shared", record->shared, "cpu_overcommit_percent",
		(json_int_t)record->cpu_overcommit_percent, "replace",
		record->replace_on_loss ? "on-loss" : "never", "lost_after_ms",
		(json_int_t)(record->lost_after_usec / USEC_PER_MSEC), "self_stop_after_ms",
		(json_int_t)(record->self_stop_after_usec / USEC_PER_MSEC), "responsibility",
		record->responsibility == RESPONSIBILITY_MANAGED ? "managed" : "self", "owners",
		owners, "nodes", (json_int_t)count_nodes(req, name), "created",
		view_time(pool->created_us), "revoked", view_time(pool->revoked_us));
}

static int read_owners(json_t *body, struct pool_record *record, struct err *reterr)
{
	json_t *owners = json_object_get(body, "owners"), *value;
	const char *name;

	if (!owners)
		return 0;
	if (!json_is_object(owners))
		return who_invalid("owners", "must be an object {component: owner}", reterr);
	json_object_foreach(owners, name, value)
	{
		enum fail_component component = component_by_name(name);
		const char *text = json_string_value(value);
		enum fail_owner owner = owner_by_name(text ? text : "");

		if (component == COMPONENT_NONE || owner == OWNER_NONE)
			return who_invalid("owners",
				"maps a component to caller, customer, provider or third-party (docs/failures.md)",
				reterr);
		record->owners.owner[component] = owner;
	}
	return 0;
}

static int read_responsibility(const struct api_request *req, json_t *body,
	struct pool_record *record, struct err *reterr)
{
	const char *text = NULL;
	int r = json_get_string(body, "responsibility", ID_NAME_MAX, &text, reterr);

	if (r < 0 || (!text && !json_object_get(body, "owners")))
		return r;
	if (req->role != ROLE_PROVIDER)
		return err_set(reterr, FAIL_FORBIDDEN, EPERM,
			"only the provider's operator writes a pool's responsibility table");
	if (text && strcmp(text, "managed") != 0 && strcmp(text, "self") != 0)
		return who_invalid("responsibility", "is managed or self", reterr);
	if (text) {
		record->responsibility =
			!strcmp(text, "managed") ? RESPONSIBILITY_MANAGED : RESPONSIBILITY_SELF;
		responsibility_default(record->responsibility, &record->owners);
	}
	return read_owners(body, record, reterr);
}

/* design.md 5: a VM that is cut off has stopped itself well before another takes its place. */
static int check_replacement(
	const struct api_request *req, const struct pool_record *record, struct err *reterr)
{
	int64_t lost = record->lost_after_usec ? record->lost_after_usec
					       : req->server->options->lost_after;

	if (!record->replace_on_loss)
		return 0;
	if (record->self_stop_after_usec == 0)
		return who_invalid("self_stop_after_ms", "is needed with replace on-loss", reterr);
	if (record->self_stop_after_usec + SELF_STOP_MARGIN_MS * USEC_PER_MSEC > lost)
		return who_invalid("self_stop_after_ms",
			"must be at least 10000 less than lost_after_ms", reterr);
	return 0;
}

static int read_replacement(const struct api_request *req, const json_t *body,
	struct pool_record *record, struct err *reterr)
{
	const char *replace = record->replace_on_loss ? "on-loss" : "never";
	uint64_t lost = (uint64_t)(record->lost_after_usec / USEC_PER_MSEC),
		 stop = (uint64_t)(record->self_stop_after_usec / USEC_PER_MSEC);
	int r = json_get_string(body, "replace", ID_NAME_MAX, &replace, reterr);

	if (r == 0 && strcmp(replace, "never") != 0 && strcmp(replace, "on-loss") != 0)
		r = who_invalid("replace", "is never or on-loss", reterr);
	if (r == 0)
		r = json_get_u64(body, "lost_after_ms", 0, 24 * 3600 * 1000, &lost, reterr);
	if (r == 0)
		r = json_get_u64(body, "self_stop_after_ms", 0, 24 * 3600 * 1000, &stop, reterr);
	if (r < 0)
		return r;
	record->replace_on_loss = !strcmp(replace, "on-loss");
	record->lost_after_usec = (int64_t)lost * USEC_PER_MSEC;
	record->self_stop_after_usec = (int64_t)stop * USEC_PER_MSEC;
	return check_replacement(req, record, reterr);
}

static int read_pool(const struct api_request *req, json_t *body, struct pool_record *record,
	struct err *reterr)
{
	uint64_t overcommit = record->cpu_overcommit_percent;
	int r = json_get_u64(body, "cpu_overcommit_percent", 1, 100000, &overcommit, reterr);

	record->cpu_overcommit_percent = (uint32_t)overcommit;
	if (r == 0)
		r = json_get_bool(body, "shared", &record->shared, reterr);
	if (r == 0)
		r = read_replacement(req, body, record, reterr);
	if (r == 0)
		r = read_responsibility(req, body, record, reterr);
	return r;
}

/* The fleet learns what the registry holds, in the batch that makes it durable. */
static void commit_pool(
	struct api_request *req, struct ops *ops, int status, const struct pool_entry *pool)
{
	const struct fleet_event event = { .type = FLEET_LOAD_POOL, .pool = &pool->record };

	shell_step(req->server->shell, &event, NULL, NULL, NULL);
	who_commit_and_show(req, ops, status, pool->record.name, view_pool);
}

static void make_pool(
	struct api_request *req, json_t *body, const struct api_idempotency *idempotency)
{
	struct registry *registry = &req->server->registry;
	struct pool_record record = { .cpu_overcommit_percent = 400,
		.responsibility = RESPONSIBILITY_SELF };
	const char *name = "", *customer = "";
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;

	responsibility_default(record.responsibility, &record.owners);
	if (who_read_name(req, body, &name, &err) == 0 &&
		who_read_customer(req, body, &customer, &err) == 0 &&
		read_pool(req, body, &record, &err) == 0 && registry_pool(registry, name))
		(void)who_taken("pool", &err);
	if (err_is_set(&err)) {
		api_fail(req, &err);
		return;
	}
	COPY(record.name, name);
	COPY(record.customer, customer);
	if (registry_add_pool(registry, &ops, &record, clock_realtime_usec()) < 0)
		ops.no_memory = true;
	api_idempotency_keep(req, idempotency, &ops, name);
	log_info("a pool is made", "pool", name, "customer", customer);
	if (registry_pool(registry, name))
		commit_pool(req, &ops, 201, registry_pool(registry, name));
	else
		who_commit_and_show(req, &ops, 201, name, view_pool);
}

void api_pool_create(struct api_request *req)
{
	json_t *body = api_json(req);
	struct api_idempotency idempotency;
	struct ops none = { .n = 0 };
	const char *before = NULL;

	if (!body)
		return;
	switch (api_idempotency(req, "pool", body, &idempotency, &before)) {
	case IDEMPOTENCY_NEW:
		make_pool(req, body, &idempotency);
		break;
	case IDEMPOTENCY_REPEATED:
		who_commit_and_show(req, &none, 201, before, view_pool);
		break;
	case IDEMPOTENCY_REFUSED:
		break;
	}
	json_decref(body);
}

void api_pool_list(struct api_request *req)
{
	json_t *list = json_array();

	for (const struct pool_entry *p = req->server->registry.pools; p; p = p->hh.next)
		if (api_may_see_pool(req, p->record.name))
			(void)json_array_append_new(list, view_pool(req, p->record.name));
	api_answer(req, 200, list);
}

static struct pool_entry *find_pool(struct api_request *req)
{
	struct pool_entry *entry = registry_pool(&req->server->registry, req->params[0]);
	struct err err = ERR_NULL;

	if (entry && api_may_see_pool(req, entry->record.name))
		return entry;
	(void)err_set(&err, FAIL_POOL_NOT_FOUND, ENOENT, "there is no such pool");
	api_fail(req, &err);
	return NULL;
}

void api_pool_get(struct api_request *req)
{
	if (find_pool(req))
		api_answer(req, 200, view_pool(req, req->params[0]));
}

void api_pool_change(struct api_request *req)
{
	json_t *body = api_json(req);
	struct pool_entry *pool = body ? find_pool(req) : NULL;
	struct pool_record record;
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;

	if (!pool) {
		json_decref(body);
		return;
	}
	record = pool->record;
	if (read_pool(req, body, &record, &err) < 0) {
		api_fail(req, &err);
	} else {
		pool->record = record;
		registry_put_pool(&ops, pool);
		log_info("a pool is changed", "pool", record.name);
		commit_pool(req, &ops, 200, pool);
	}
	json_decref(body);
}

void api_pool_revoke(struct api_request *req)
{
	struct pool_entry *pool = find_pool(req);
	struct ops ops = { .n = 0 };

	if (!pool)
		return;
	if (!pool->revoked_us)
		pool->revoked_us = clock_realtime_usec();
	registry_put_pool(&ops, pool);
	log_info("a pool is revoked", "pool", pool->record.name);
	api_step(req, NULL, &ops, who_on_no_content);
}
