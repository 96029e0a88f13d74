/* SPDX-License-Identifier: Apache-2.0
 *
 * Warm pools over HTTP: how many microVMs of a template, or of a tenant's snapshot, are kept ready in a pool
 * (scheduler/fleet/warm.c). A template's next version replaces what is ready of the one before; a snapshot's warm pool goes by
 * the snapshot's id.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api-who.h"
#include "server/request.h"
#include "server/shell.h"
#include "server/view.h"

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))
#define TARGET_MAX 10000
#define STARTS_MAX 1000
#define AGE_MS_MAX (UINT64_C(7) * 24 * 3600 * 1000)
#define VIEWS_MAX 1024

static json_t *view_one(const struct fleet_warm_view *view)
{
	return json_pack("{s:s, s:s, s:s?, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "pool", view->pool,
		"template", view->name, "snapshot", *view->spec->snapshot ? view->spec->snapshot : NULL, "image",
		view->spec->image_digest, "vcpus",
		(json_int_t)view->spec->vcpus, "memory_mib", (json_int_t)view->spec->memory_mib,
		"disk_mib", (json_int_t)view->spec->disk_mib, "target", (json_int_t)view->target,
		"max_starts", (json_int_t)view->max_starts, "max_age_ms",
		(json_int_t)(view->max_age_usec / USEC_PER_MSEC), "ready", (json_int_t)view->ready,
		"starting", (json_int_t)view->starting);
}

/* Of the pool, or all that the key sees; `name` NULL: every template's. */
static json_t *view_warms(const struct api_request *req, const char *pool, const char *name)
{
	static struct fleet_warm_view views[VIEWS_MAX]; /* one thread: the loop's */
	size_t n = fleet_warm_list(shell_fleet(req->server->shell), views, ARRAY_LEN(views));
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		if ((!pool || !strcmp(views[i].pool, pool)) && (!name || !strcmp(views[i].name, name)) &&
			api_may_see_pool(req, views[i].pool))
			(void)json_array_append_new(list, view_one(&views[i]));
	return list;
}

void api_warm_list(struct api_request *req)
{
	api_answer(req, 200, view_warms(req, NULL, NULL));
}

/* What the path names: a template, or a snapshot by its id or name. */
static void on_set(struct api_request *req, const struct fleet_reply *reply)
{
	const char *name = req->extra ? req->extra : req->params[1];
	json_t *list;

	if (err_is_set(&reply->err)) {
		api_fail(req, &reply->err);
		return;
	}
	list = view_warms(req, req->params[0], name);
	api_answer(req, 200, json_incref(json_array_get(list, 0)));
	json_decref(list);
}

/* Whose it is: everybody's, or that of a tenant of the pool's own customer. */
static int read_tenant(const struct api_request *req, const json_t *body, const struct pool_record *pool,
	const char **ret_tenant, struct err *reterr)
{
	const struct tenant_entry *tenant;
	int r = json_get_string(body, "tenant", ID_NAME_MAX, ret_tenant, reterr);

	if (r < 0)
		return r;
	tenant = **ret_tenant ? registry_tenant(&req->server->registry, *ret_tenant) : NULL;
	if (**ret_tenant && (!tenant || strcmp(tenant->customer, pool->customer) != 0))
		return err_set(reterr, FAIL_TENANT_NOT_FOUND, ENOENT, "there is no such tenant of this pool");
	return 0;
}

static int read_template(const struct api_request *req, const char *tenant, struct sandbox_spec *spec,
	struct err *reterr)
{
	const struct template_entry *template = registry_template(&req->server->registry, tenant, req->params[1]);

	if (!template)
		return err_set(reterr, FAIL_TEMPLATE_NOT_FOUND, ENOENT,
			"there is no template of this name; a tenant's own, or its snapshot, needs `tenant`");
	COPY(spec->template_name, template->name);
	COPY(spec->image_digest, template_latest(template)->digest);
	spec->image_size = template_latest(template)->size;
	return 0;
}

/* Its VMs are where it lies: in its own pool. */
static int is_in_pool(const struct snapshot_record *snapshot, const struct pool_record *pool, struct err *reterr)
{
	if (!snapshot || !strcmp(snapshot->pool, pool->name))
		return 0;
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "the snapshot lies in pool %s", snapshot->pool);
	err_add(reterr, "field", "pool");
	return -EINVAL;
}

static int read_warm(struct api_request *req, const json_t *body, const struct pool_record *pool,
	struct warm_record *ret, const char **ret_tenant, struct err *reterr)
{
	const struct snapshot_record *snapshot = NULL;
	uint64_t target = 0, starts = 0, age = 0;
	int r = read_tenant(req, body, pool, ret_tenant, reterr);

	if (r == 0 && **ret_tenant)
		snapshot = create_request_snapshot(req->server, *ret_tenant, req->params[1]);
	if (r == 0)
		r = is_in_pool(snapshot, pool, reterr);
	if (r == 0)
		r = create_request_read_shape(body, req->server, snapshot, ret->spec, reterr);
	if (r == 0)
		r = json_get_u64(body, "target", 0, TARGET_MAX, &target, reterr);
	if (r == 0)
		r = json_get_u64(body, "max_starts", 0, STARTS_MAX, &starts, reterr);
	if (r == 0)
		r = json_get_u64(body, "max_age_ms", 1000, AGE_MS_MAX, &age, reterr);
	if (r == 0 && !snapshot)
		r = read_template(req, *ret_tenant, ret->spec, reterr);
	if (r < 0)
		return r;
	ret->target = (uint32_t)target;
	ret->max_starts = (uint32_t)starts;
	ret->max_age_usec = (int64_t)age * USEC_PER_MSEC;
	COPY(ret->pool, pool->name);
	COPY(ret->name, snapshot ? snapshot->id : ret->spec->template_name);
	return spec_check(ret->spec, reterr);
}

static void set(struct api_request *req, const json_t *body, const struct pool_record *pool)
{
	struct warm_record record = { .spec = spec_new() };
	struct fleet_event event = { .type = FLEET_WARM };
	const char *tenant = "";
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;
	struct warm_entry *entry;

	if (!record.spec)
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a warm pool");
	if (err_is_set(&err) || read_warm(req, body, pool, &record, &tenant, &err) < 0) {
		api_fail(req, &err);
	} else {
		entry = registry_set_warm(&req->server->registry, &ops, &record, tenant);
		event.warm = entry ? &entry->record : &record;
		req->extra = strdup(record.name);
		req->extra_free = free;
		log_info("a warm pool is set", "pool", record.pool, "template", record.name, "target",
			LOG_NUM(record.target));
		shell_step(req->server->shell, &event, NULL, NULL, NULL);
		api_step(req, NULL, &ops, on_set);
	}
	spec_unref(record.spec);
}

void api_warm_set(struct api_request *req)
{
	json_t *body = api_json(req);
	const struct pool_entry *pool = registry_pool(&req->server->registry, req->params[0]);
	const struct err *failure = shell_failure(req->server->shell);
	struct err err = ERR_NULL;

	if (!body)
		return;
	if (!pool || !api_may_see_pool(req, pool->record.name)) {
		(void)err_set(&err, FAIL_POOL_NOT_FOUND, ENOENT, "there is no such pool");
		api_fail(req, &err);
	} else if (failure) {
		api_fail(req, failure);
	} else {
		set(req, body, &pool->record);
	}
	json_decref(body);
}

/* The same size, of the new image: what is ready of the old one is ended as it is replaced. */
static void follow(struct server *server, struct ops *ops, struct warm_entry *warm,
	const struct template_version *version)
{
	struct warm_record record = warm->record;
	struct fleet_event event = { .type = FLEET_WARM };

	record.spec = spec_new();
	if (!record.spec) {
		ops->no_memory = true;
		return;
	}
	COPY(record.spec->template_name, warm->record.spec->template_name);
	COPY(record.spec->image_digest, version->digest);
	COPY(record.spec->access_token, warm->record.spec->access_token);
	COPY(record.spec->tenant, warm->record.spec->tenant);
	record.spec->image_size = version->size;
	record.spec->secure = true;
	record.spec->vcpus = warm->record.spec->vcpus;
	record.spec->memory_mib = warm->record.spec->memory_mib;
	record.spec->disk_mib = warm->record.spec->disk_mib;
	if (registry_set_warm(&server->registry, ops, &record, warm->tenant)) {
		event.warm = &warm->record;
		shell_step(server->shell, &event, NULL, NULL, NULL);
	}
	spec_unref(record.spec);
}

void api_warm_follow(struct server *server, struct ops *ops, const char *tenant, const char *name,
	const struct template_version *version)
{
	for (struct warm_entry *warm = server->registry.warms; warm; warm = warm->hh.next)
		if (!*warm->record.spec->snapshot && !strcmp(warm->record.name, name) && !strcmp(warm->tenant, tenant))
			follow(server, ops, warm, version);
}
