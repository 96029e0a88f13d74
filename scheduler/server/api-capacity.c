/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/capacity: how many more of a shape fit, per pool, and what something else would do. The pools are copied on the loop
 * and filled in the planner's thread, because that costs a decision for each sandbox that fits.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "place/capacity.h"
#include "server/api-replay.h"
#include "server/api.h"
#include "server/forecast.h"
#include "server/request.h"
#include "server/shell.h"
#include "server/view.h"
#include "server/worker.h"

#define LABELS_MOST 32
#define NODES_MOST 100000
#define PLANS_MOST 16 /* at once: each holds copies of pools */

struct shape {
	uint64_t vcpus, memory_mib, disk_mib;
};

struct pool_plan {
	char pool[ID_NAME_MAX + 1];
	struct place_copy *copy;
	struct place_change change;
	struct place_capacity now, then;
	struct replay_pool replay;
};

struct plan {
	struct api_request *req; /* NULL: the client is gone */
	struct server *server;
	bool is_busy;            /* the planner has it */
	int r;                   /* what came of it there */
	struct shape shape, other;
	bool has_if;
	struct place_change change; /* sizes of 0: as the pool's largest node */
	char *labels_text;
	struct sandbox_field labels[LABELS_MOST];
	char region[ID_NAME_MAX + 1], cpu_class[ID_NAME_MAX + 1], digest[DIGEST_SIZE];
	size_t n_labels, n_pools;
	int64_t as_of_us;
	struct replay_plan replay;
	struct pool_plan *pools;
};

static void plan_free(struct plan *plan)
{
	for (size_t i = 0; i < plan->n_pools; i++) {
		place_copy_free(plan->pools[i].copy);
		replay_pool_deinit(&plan->pools[i].replay);
	}
	free(plan->pools);
	free(plan->labels_text);
	free(plan);
}

static void plan_leave(void *extra)
{
	struct plan *plan = extra;

	plan->req = NULL;
	if (!plan->is_busy)
		plan_free(plan);
}

static int invalid(const char *field, const char *why, struct err *reterr)
{
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "%s %s", field, why);
	err_add(reterr, "field", "%s", field);
	return -EINVAL;
}

/* ---- what is asked ---- */

static int read_shape(const struct api_request *req, const char *prefix, struct shape *shape, struct err *reterr)
{
	char vcpus[32], memory[32], disk[32];
	int r;

	(void)snprintf(vcpus, sizeof(vcpus), "%svcpus", prefix);
	(void)snprintf(memory, sizeof(memory), "%smemoryMB", prefix);
	(void)snprintf(disk, sizeof(disk), "%sdiskSizeMB", prefix);
	r = api_query_u64(req, vcpus, 1, VCPUS_MAX, &shape->vcpus, reterr);
	if (r == 0)
		r = api_query_u64(req, memory, MEMORY_MIB_MIN, SPEC_MEMORY_MIB_MAX, &shape->memory_mib, reterr);
	if (r == 0)
		r = api_query_u64(req, disk, DISK_MIB_MIN, SPEC_DISK_MIB_MAX, &shape->disk_mib, reterr);
	return r;
}

static int read_change(const struct api_request *req, struct place_change *change, struct err *reterr)
{
	uint64_t overcommit = 0, nodes = 0, cpus = 0, sandboxes = 0;
	int r = api_query_u64(req, "if_overcommit", 1, 100000, &overcommit, reterr);

	if (r == 0)
		r = api_query_u64(req, "if_nodes", 1, NODES_MOST, &nodes, reterr);
	if (r == 0)
		r = api_query_u64(req, "if_node_cpus", 1, 4096, &cpus, reterr);
	if (r == 0)
		r = api_query_u64(req, "if_node_memoryMB", 1, UINT32_MAX, &change->node.memory_mib, reterr);
	if (r == 0)
		r = api_query_u64(req, "if_node_diskMB", 1, UINT32_MAX, &change->node.disk_mib, reterr);
	if (r == 0)
		r = api_query_u64(req, "if_node_sandboxes", 1, 100000, &sandboxes, reterr);
	change->overcommit_percent = (uint32_t)overcommit;
	change->n_nodes = nodes;
	change->node.cpus = (uint32_t)cpus;
	change->node.max_sandboxes = (uint32_t)sandboxes;
	return r;
}

/* "K=V,K=V" */
static int read_labels(struct plan *plan, const char *text, struct err *reterr)
{
	char *rest, *pair;

	if (!text)
		return 0;
	plan->labels_text = strdup(text);
	if (!plan->labels_text)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for labels");
	for (rest = plan->labels_text; (pair = strsep(&rest, ","));) {
		char *equals = strchr(pair, '=');

		if (!equals || equals == pair || plan->n_labels == LABELS_MOST)
			return invalid("labels", "is K=V,K=V, 32 of them at most", reterr);
		*equals = '\0';
		plan->labels[plan->n_labels++] = (struct sandbox_field){ pair, equals + 1 };
	}
	return 0;
}

static int read_name(const struct api_request *req, const char *name, char *ret, size_t size, struct err *reterr)
{
	const char *text = api_query(req, name);

	if (text && strlen(text) >= size)
		return invalid(name, "is too long", reterr);
	(void)snprintf(ret, size, "%s", text ? text : "");
	return 0;
}

static int read_template(const struct api_request *req, struct plan *plan, struct err *reterr)
{
	const char *name = api_query(req, "template"), *tenant = api_query(req, "tenant");
	const struct template_entry *template;

	if (tenant && !api_may_see_tenant(req, tenant))
		return err_set(reterr, FAIL_TENANT_NOT_FOUND, ENOENT, "there is no such tenant");
	if (!name)
		return 0;
	template = registry_template(&req->server->registry, tenant ? tenant : "", name);
	if (!template)
		return err_set(reterr, FAIL_TEMPLATE_NOT_FOUND, ENOENT, "there is no template of this name");
	memcpy(plan->digest, template_latest(template)->digest, sizeof(plan->digest));
	return 0;
}

static int read_plan(const struct api_request *req, struct plan *plan, struct err *reterr)
{
	const struct options *options = req->server->options;
	int r;

	plan->shape = (struct shape){ options->default_vcpus, options->default_memory_mib, options->default_disk_mib };
	r = read_shape(req, "", &plan->shape, reterr);
	plan->other = plan->shape;
	if (r == 0)
		r = read_shape(req, "if_", &plan->other, reterr);
	if (r == 0)
		r = read_change(req, &plan->change, reterr);
	if (r == 0)
		r = read_labels(plan, api_query(req, "labels"), reterr);
	if (r == 0)
		r = read_name(req, "region", plan->region, sizeof(plan->region), reterr);
	if (r == 0)
		r = read_name(req, "cpuClass", plan->cpu_class, sizeof(plan->cpu_class), reterr);
	if (r == 0)
		r = read_template(req, plan, reterr);
	if (r == 0)
		r = replay_read(req, plan->as_of_us, &plan->replay, reterr);
	plan->has_if = plan->change.overcommit_percent || plan->change.n_nodes ||
		       memcmp(&plan->shape, &plan->other, sizeof(plan->shape)) != 0 || replay_has_shape(&plan->replay);
	return r;
}

/* What was not said of the nodes that might come is as the pool's largest one has it. A pool without a node gets none, unless
 * it was asked about by name. */
static int fill_change(const struct plan *plan, struct pool_plan *pool, bool is_named, struct err *reterr)
{
	struct node_capacity *node = &pool->change.node, like;
	bool has_like = place_copy_largest(pool->copy, &like);

	pool->change = plan->change;
	if (!plan->change.n_nodes)
		return 0;
	if (!has_like && (!node->cpus || !node->memory_mib || !node->disk_mib || !node->max_sandboxes)) {
		pool->change.n_nodes = 0;
		return !is_named ? 0 : invalid("if_nodes",
			"needs if_node_cpus, if_node_memoryMB, if_node_diskMB and if_node_sandboxes for a pool without a node", reterr);
	}
	node->memory_mib = node->memory_mib ? node->memory_mib : like.memory_mib;
	node->disk_mib = node->disk_mib ? node->disk_mib : like.disk_mib;
	node->max_sandboxes = node->max_sandboxes ? node->max_sandboxes : like.max_sandboxes;
	node->max_vcpus = node->cpus ? node->cpus : like.max_vcpus;
	node->cpus = node->cpus ? node->cpus : like.cpus;
	node->max_starts = 1; /* any number that is not 0 does: starts bound no number here */
	return 0;
}

static int add_pool(const struct api_request *req, struct plan *plan, const char *name, struct err *reterr)
{
	struct pool_plan *pool = &plan->pools[plan->n_pools];
	int r = fleet_place_copy(shell_fleet(req->server->shell), name, plan->digest, &pool->copy);

	if (r == -ENOENT)
		return 0; /* it was revoked before the fleet had heard of it */
	if (r < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a copy of the pool");
	plan->n_pools++;
	(void)snprintf(pool->pool, sizeof(pool->pool), "%s", name);
	r = replay_take(req->server, &plan->replay, name, &pool->replay, reterr);
	return r == 0 ? fill_change(plan, pool, api_query(req, "pool") != NULL, reterr) : r;
}

static int add_pools(const struct api_request *req, struct plan *plan, struct err *reterr)
{
	const char *wanted = api_query(req, "pool");
	size_t n = HASH_COUNT(req->server->registry.pools);
	int r = 0;

	plan->pools = calloc(n + 1, sizeof(*plan->pools));
	if (!plan->pools)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a plan");
	for (const struct pool_entry *p = req->server->registry.pools; p && r == 0; p = p->hh.next)
		if (api_may_see_pool(req, p->record.name) && (wanted ? !strcmp(wanted, p->record.name) : !p->revoked_us))
			r = add_pool(req, plan, p->record.name, reterr);
	if (r == 0 && wanted && plan->n_pools == 0)
		r = err_set(reterr, FAIL_POOL_NOT_FOUND, ENOENT, "there is no such pool");
	return r;
}

/* ---- in the planner's thread ---- */

static struct place_demand demand_of(const struct plan *plan, const struct shape *shape)
{
	const struct sandbox_spec spec = { .memory_mib = shape->memory_mib };
	struct place_demand demand = { .memory_mib = spec_memory_cost(&spec),
		.disk_mib = shape->disk_mib,
		.vcpus = (uint32_t)shape->vcpus,
		.region = plan->region,
		.cpu_class = plan->cpu_class,
		.labels = plan->labels,
		.n_labels = plan->n_labels };

	memcpy(demand.image_digest, plan->digest, sizeof(demand.image_digest));
	return demand;
}

static void work(void *arg)
{
	struct plan *plan = arg;
	const struct place_demand demand = demand_of(plan, &plan->shape), other = demand_of(plan, &plan->other);

	for (size_t i = 0; i < plan->n_pools && plan->r == 0; i++) {
		struct pool_plan *pool = &plan->pools[i];

		plan->r = place_capacity(pool->copy, &demand, NULL, &pool->now);
		if (plan->r == 0 && plan->has_if)
			plan->r = place_capacity(pool->copy, &other, &pool->change, &pool->then);
		if (plan->r == 0)
			plan->r = replay_work(&plan->replay, pool->copy, plan->has_if ? &pool->change : NULL, &pool->replay);
	}
}

/* ---- what is answered ---- */

static json_t *view_room(const struct place_room *room)
{
	return json_pack("{s:I, s:I, s:I, s:I}", "memory_mib", (json_int_t)room->memory_mib, "vcpus",
		(json_int_t)(room->cpu_percent / 100), "disk_mib", (json_int_t)room->disk_mib, "sandboxes",
		(json_int_t)room->sandboxes);
}

static void add_stop(json_t *list, const char *by, const struct place_stop *stop)
{
	json_t *object;

	if (stop->n_nodes == 0)
		return;
	object = json_pack("{s:s, s:I}", "by", by, "nodes", (json_int_t)stop->n_nodes);
	if (object) {
		json_t *left = view_room(&stop->left);

		(void)json_object_update(object, left);
		json_decref(left);
	}
	(void)json_array_append_new(list, object);
}

static json_t *view_stops(const struct place_capacity *capacity)
{
	json_t *list = json_array();

	for (enum place_absence i = 0; i < PLACE_ABSENCE_MAX_; i++)
		add_stop(list, place_absence_name(i), &capacity->absent[i]);
	for (enum place_constraint i = PLACE_STATE + 1; i < PLACE_CONSTRAINT_MAX_; i++)
		add_stop(list, place_constraint_name(i), &capacity->stops[i]);
	return list;
}

static json_t *view_excluded(const struct place_capacity *capacity)
{
	json_t *object = json_object();

	for (enum place_constraint i = 0; i < PLACE_CONSTRAINT_MAX_; i++)
		(void)json_object_set_new(object, place_constraint_name(i), json_integer((json_int_t)capacity->excluded[i]));
	return object;
}

static json_t *view_pool(const struct plan *plan, const struct pool_plan *pool)
{
	const struct pool_entry *entry = registry_pool(&plan->req->server->registry, pool->pool);
	const struct place_capacity *now = &pool->now, *then = &pool->then;
	json_t *what_if = plan->has_if
				  ? json_pack("{s:I, s:I, s:I}", "fits", (json_int_t)then->fits, "waiting",
					    (json_int_t)then->waiting, "more",
					    (json_int_t)(then->fits + then->waiting) - (json_int_t)(now->fits + now->waiting))
				  : json_null();

	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:s?, s:o, s:o, s:o}", "pool", pool->pool, "customer",
		entry ? entry->record.customer : "", "overcommit_percent", (json_int_t)place_copy_overcommit(pool->copy), "fits",
		(json_int_t)now->fits, "waiting", (json_int_t)now->waiting, "nodes", (json_int_t)now->n_nodes, "fitting",
		(json_int_t)now->n_fitting, "excluded", view_excluded(now), "total", view_room(&now->total), "used",
		view_room(&now->used), "stops", view_stops(now), "change", *now->change ? now->change : NULL, "if", what_if,
		"forecast", forecast_json(plan->server->forecast, pool->pool, &now->total, plan->as_of_us), "replay",
		replay_view(&plan->replay, plan->server->options, &pool->replay, plan->has_if));
}

static json_t *view_shape(const struct shape *shape)
{
	return json_pack("{s:I, s:I, s:I}", "vcpus", (json_int_t)shape->vcpus, "memory_mib", (json_int_t)shape->memory_mib,
		"disk_mib", (json_int_t)shape->disk_mib);
}

static json_t *view_if(const struct plan *plan)
{
	json_t *object;

	if (!plan->has_if)
		return json_null();
	object = view_shape(&plan->other);
	(void)json_object_set_new(object, "overcommit_percent",
		plan->change.overcommit_percent ? json_integer(plan->change.overcommit_percent) : json_null());
	(void)json_object_set_new(object, "nodes", json_integer((json_int_t)plan->change.n_nodes));
	return object;
}

static void done(void *arg)
{
	struct plan *plan = arg;
	struct err err = ERR_NULL;
	json_t *list;

	plan->is_busy = false;
	plan->server->n_plans--;
	if (!plan->req) {
		plan_free(plan);
		return;
	}
	if (plan->r < 0) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory to fill the pool");
		api_fail(plan->req, &err);
		return;
	}
	list = json_array();
	for (size_t i = 0; i < plan->n_pools; i++)
		(void)json_array_append_new(list, view_pool(plan, &plan->pools[i]));
	api_answer(plan->req, 200, json_pack("{s:o, s:o, s:o, s:o}", "shape", view_shape(&plan->shape), "if", view_if(plan),
		"pools", list, "as_of", view_time(plan->as_of_us)));
}

/* 0, or it was not handed over. */
static int hand_over(struct plan *plan, struct err *reterr)
{
	struct server *server = plan->server;
	int r;

	if (server->n_plans == PLANS_MOST)
		return err_set(reterr, FAIL_SCHEDULER_BUSY, EAGAIN, "%u plans are being made", server->n_plans);
	r = worker_add(server->planner, work, done, plan, reterr);
	plan->is_busy = r == 0;
	server->n_plans += r == 0;
	return r;
}

void api_capacity(struct api_request *req)
{
	struct plan *plan = calloc(1, sizeof(*plan));
	struct err err = ERR_NULL;
	int r;

	if (!plan) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a plan");
		api_fail(req, &err);
		return;
	}
	*plan = (struct plan){ .req = req, .server = req->server, .as_of_us = clock_realtime_usec() };
	req->extra = plan;
	req->extra_free = plan_leave;
	r = read_plan(req, plan, &err);
	if (r == 0)
		r = add_pools(req, plan, &err);
	if (r == 0)
		r = hand_over(plan, &err);
	if (r < 0)
		api_fail(req, &err);
}
