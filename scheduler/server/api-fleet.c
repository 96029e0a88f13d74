/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/fleet: all nodes in short, a page at a time, with the sums of all that the key reaches on the first page. A page is
 * bounded, so that ten thousand nodes hold up no request.
 */
#include <stdio.h>
#include <string.h>

#include "server/api.h"
#include "server/shell.h"
#include "server/view.h"

#define PAGE_DEFAULT 1000
#define PAGE_MAX 2000
#define STEP 64

struct sums {
	json_int_t nodes, schedulable, unfit, facts[NODE_FACT_MAX_], links[NODE_LINK_MAX_];
	json_int_t memory_mib, memory_reserved_mib, vcpus, vcpus_reserved, disk_mib, disk_reserved_mib, sandboxes, starting;
};

static bool is_unfit(const struct fleet_node_view *view)
{
	return view->unschedulable && err_is_set(view->unschedulable);
}

/* vCPUs that may be given out: its CPUs times the pool's overcommit. */
static json_int_t vcpus_of(const struct api_request *req, const struct node_record *node)
{
	const struct pool_entry *pool = registry_pool(&req->server->registry, node->pool);

	return (json_int_t)node->capacity.cpus * (pool ? pool->record.cpu_overcommit_percent : 100) / 100;
}

static void add(const struct api_request *req, struct sums *sums, const struct fleet_node_view *view)
{
	const struct node_capacity *capacity = &view->record->capacity;

	sums->nodes++;
	sums->schedulable += view->schedulable;
	sums->unfit += is_unfit(view);
	sums->links[view->link]++;
	for (enum node_fact i = 0; i < NODE_FACT_MAX_; i++)
		sums->facts[i] += view->record->facts[i].is_set;
	sums->memory_mib += (json_int_t)capacity->memory_mib;
	sums->memory_reserved_mib += (json_int_t)view->memory_reserved_mib;
	sums->vcpus += vcpus_of(req, view->record);
	sums->vcpus_reserved += view->cpus_reserved;
	sums->disk_mib += (json_int_t)capacity->disk_mib;
	sums->disk_reserved_mib += (json_int_t)view->disk_reserved_mib;
	sums->sandboxes += view->n_sandboxes;
	sums->starting += view->n_starting;
}

static json_t *view_sums(const struct sums *sums)
{
	json_t *object = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "nodes", sums->nodes, "schedulable",
		sums->schedulable, "unfit", sums->unfit, "memory_mib", sums->memory_mib, "memory_reserved_mib", sums->memory_reserved_mib,
		"vcpus", sums->vcpus, "vcpus_reserved", sums->vcpus_reserved, "disk_mib", sums->disk_mib, "disk_reserved_mib",
		sums->disk_reserved_mib, "sandboxes", sums->sandboxes, "starting", sums->starting);

	for (enum node_link i = 0; object && i < NODE_LINK_MAX_; i++)
		(void)json_object_set_new(object, node_link_name(i), json_integer(sums->links[i]));
	for (enum node_fact i = 0; object && i < NODE_FACT_MAX_; i++)
		(void)json_object_set_new(object, node_fact_name(i), json_integer(sums->facts[i]));
	return object;
}

static json_t *view_facts(const struct node_record *record)
{
	json_t *list = json_array();

	for (enum node_fact i = 0; i < NODE_FACT_MAX_; i++)
		if (record->facts[i].is_set)
			(void)json_array_append_new(list, json_string(node_fact_name(i)));
	return list;
}

static json_t *view_short(const struct api_request *req, const struct fleet_node_view *view)
{
	const struct node_record *record = view->record;
	const struct node_capacity *c = &record->capacity;

	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:s?, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "id", record->id,
		"pool", record->pool, "hostname", record->hostname, "version", record->version, "state", node_link_name(view->link),
		"schedulable", view->schedulable, "unfit", is_unfit(view) ? failure_info(view->unschedulable->code)->name : NULL,
		"facts", view_facts(record), "memory_mib", (json_int_t)c->memory_mib, "memory_reserved_mib",
		(json_int_t)view->memory_reserved_mib, "vcpus", vcpus_of(req, record), "vcpus_reserved",
		(json_int_t)view->cpus_reserved, "disk_mib", (json_int_t)c->disk_mib, "disk_reserved_mib",
		(json_int_t)view->disk_reserved_mib, "sandboxes", (json_int_t)view->n_sandboxes, "max_sandboxes",
		(json_int_t)c->max_sandboxes, "starts", (json_int_t)record->health.starts, "failures",
		(json_int_t)record->health.failures, "heard", view_time(view->heard_us));
}

/* Calls `each` for the nodes behind `after` that the key reaches, until it says that it has enough. */
static void walk(struct api_request *req, const char *after, bool (*each)(struct api_request *, const struct fleet_node_view *, void *),
	void *user)
{
	const struct fleet *fleet = shell_fleet(req->server->shell);
	const char *pool = api_query(req, "pool");
	char last[ID_SIZE], ids[STEP][ID_SIZE];
	size_t n;

	(void)snprintf(last, sizeof(last), "%s", after);
	while ((n = fleet_node_list(fleet, pool, last, ids, STEP)) > 0) {
		for (size_t i = 0; i < n; i++) {
			struct fleet_node_view view;

			if (fleet_node_get(fleet, ids[i], &view) == 0 && !view.record->revoked &&
				api_may_see_pool(req, view.record->pool) && !each(req, &view, user))
				return;
		}
		memcpy(last, ids[n - 1], sizeof(last));
	}
}

static bool sum_one(struct api_request *req, const struct fleet_node_view *view, void *user)
{
	add(req, user, view);
	return true;
}

struct page {
	json_t *list;
	uint64_t left;
	char last[ID_SIZE];
	bool has_more;
};

static bool show_one(struct api_request *req, const struct fleet_node_view *view, void *user)
{
	struct page *page = user;

	if (page->left == 0) {
		page->has_more = true;
		return false;
	}
	page->left--;
	api_as_of(req, view->heard_us);
	memcpy(page->last, view->record->id, sizeof(page->last));
	(void)json_array_append_new(page->list, view_short(req, view));
	return true;
}

void api_fleet(struct api_request *req)
{
	const char *after = api_query(req, "after");
	struct page page = { .left = PAGE_DEFAULT };
	struct sums sums = { .nodes = 0 };
	struct err err = ERR_NULL;

	if (api_query_u64(req, "limit", 0, PAGE_MAX, &page.left, &err) < 0) {
		api_fail(req, &err);
		return;
	}
	page.list = json_array();
	if (!after)
		walk(req, "", sum_one, &sums);
	walk(req, after && id_is_valid(after) ? after : "", show_one, &page);
	api_answer(req, 200, json_pack("{s:o, s:o, s:s?, s:o}", "sums", after ? json_null() : view_sums(&sums), "nodes", page.list, "next",
		page.has_more && *page.last ? page.last : NULL, "as_of", view_time(clock_realtime_usec())));
}
