/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the fleet, for the API and the dashboard. Changes nothing.
 */
#include <errno.h>
#include <string.h>

#include "fleet/age.h"
#include "fleet/internal.h"
#include "place/capacity.h"

static void view_sandbox(const struct sandbox *sandbox, struct fleet_sandbox_view *ret)
{
	*ret = (struct fleet_sandbox_view){
		.state = (enum public_state)sandbox_state_table()[sandbox->record.state]
				 .public_state,
		.internal = sandbox->record.state,
		.certain = true,
		.created_us = sandbox->record.created_us,
		.network_differs = sandbox->network_differs,
		.budget_differs = sandbox->budget_differs,
		.deadline_usec =
			fleet_timer_is_armed(&sandbox->deadline) ? sandbox->deadline.due_usec : 0,
	};
	if (sandbox->node) {
		ret->node_link = sandbox->node->link;
		ret->certain = sandbox->node->link == NODE_READY;
		ret->as_of_us = sandbox->node->heard_real_us;
	}
}

int fleet_sandbox_get(const struct fleet *fleet, const char *id, struct sandbox_record *ret_record,
	struct fleet_sandbox_view *ret_view)
{
	const struct sandbox *sandbox = fleet_sandbox_find(fleet, id);

	if (!sandbox)
		return -ENOENT;
	if (ret_view)
		view_sandbox(sandbox, ret_view);
	return ret_record ? fleet_sandbox_export(sandbox, ret_record) : 0;
}

const char *fleet_sandbox_tenant(const struct fleet *fleet, const char *id)
{
	const struct sandbox *sandbox = fleet_sandbox_find(fleet, id);

	return sandbox ? sandbox->record.tenant : NULL;
}

const struct trace *fleet_sandbox_trace(const struct fleet *fleet, const char *id)
{
	const struct sandbox *sandbox = fleet_sandbox_find(fleet, id);

	return sandbox ? &sandbox->record.trace : NULL;
}

const struct sandbox_spec *fleet_sandbox_spec(const struct fleet *fleet, const char *id)
{
	const struct sandbox *sandbox = fleet_sandbox_find(fleet, id);

	return sandbox ? sandbox->record.spec : NULL;
}

const char *fleet_sandbox_node(const struct fleet *fleet, const char *id, uint64_t *ret_session)
{
	const struct sandbox *sandbox = fleet_sandbox_find(fleet, id);

	if (!sandbox || !sandbox->node)
		return NULL;
	*ret_session = sandbox->node->session;
	return sandbox->node->record.id;
}

bool fleet_sandbox_owner(const struct fleet *fleet, const char *id, uint64_t generation, struct fleet_owner *ret)
{
	const struct sandbox *sandbox = fleet_sandbox_find(fleet, id);
	const struct sandbox_record *record = sandbox ? &sandbox->record : NULL;

	if (!record)
		return false;
	*ret = (struct fleet_owner){ .tenant = record->took && record->took == generation ? FLEET_WARM_TENANT : record->tenant,
		.node = sandbox->node ? sandbox->node->record.id : NULL,
		.generation = record->generation };
	return true;
}

size_t fleet_sandbox_list(const struct fleet *fleet, const char *tenant, const char *after, int64_t after_us,
	char (*ret)[ID_SIZE], size_t max)
{
	const struct sandbox *sandbox = AGE_NEXT(&fleet->all_sandboxes, *after ? fleet_sandbox_find(fleet, after) : NULL, *after ? after_us : 0);
	size_t n = 0;

	for (; sandbox && n < max; sandbox = TAILQ_NEXT(sandbox, in_all)) {
		if (sandbox->record.state == SANDBOX_FENCED ||
			(tenant && strcmp(tenant, sandbox->record.tenant) != 0))
			continue;
		memcpy(ret[n++], sandbox->record.id, ID_SIZE);
	}
	return n;
}

int fleet_node_get(const struct fleet *fleet, const char *id, struct fleet_node_view *ret)
{
	const struct node *node = fleet_node_find(fleet, id);
	struct place_usage usage;
	bool facts = false;

	if (!node)
		return -ENOENT;
	for (unsigned int i = 0; i < NODE_FACT_MAX_; i++)
		facts = facts || node->record.facts[i].is_set;
	place_node_usage(node->place, &usage);
	*ret = (struct fleet_node_view){
		.record = &node->record,
		.link = node->link,
		.schedulable =
			node->link == NODE_READY && node->is_known && !facts &&
			node->unschedulable.code == FAIL_NONE,
		.unschedulable = &node->unschedulable,
		.heard_us = node->heard_real_us,
		.session = node->session,
		.instance = node->instance,
		.takes_for = fleet_node_takes_for(fleet, node),
		.n_sandboxes = usage.sandboxes,
		.n_starting = usage.starting,
		.memory_reserved_mib = usage.memory_mib,
		.disk_reserved_mib = usage.disk_mib,
		.cpus_reserved = usage.vcpus,
		.n_images = node->n_images,
		.space = &node->space,
	};
	return 0;
}

struct fleet_node_kept fleet_node_keeps(const struct fleet *fleet, const char *id)
{
	const struct node *node = fleet_node_find(fleet, id);
	struct fleet_node_kept kept = { .paused = 0 };
	const struct sandbox *sandbox;
	const struct snapshot *snapshot;

	if (!node)
		return kept;
	TAILQ_FOREACH(sandbox, &node->sandboxes, in_node)
		kept.paused += sandbox->record.state == SANDBOX_PAUSED;
	TAILQ_FOREACH(snapshot, &node->snapshots, in_node)
		kept.snapshots += !snapshot->record.is_fork && snapshot->record.state == SNAPSHOT_READY;
	return kept;
}

size_t fleet_node_list(const struct fleet *fleet, const char *pool, const char *after,
	char (*ret)[ID_SIZE], size_t max)
{
	const struct node *node = *after ? fleet_node_find(fleet, after) : NULL;
	size_t n = 0;

	node = node ? TAILQ_NEXT(node, in_all) : TAILQ_FIRST(&fleet->all_nodes);
	for (; node && n < max; node = TAILQ_NEXT(node, in_all))
		if (!pool || strcmp(pool, node->record.pool) == 0)
			memcpy(ret[n++], node->record.id, ID_SIZE);
	return n;
}

void fleet_count(const struct fleet *fleet, struct fleet_counts *ret)
{
	*ret = fleet->counts;
}

int fleet_explain(const struct fleet *fleet, const char *pool, const struct sandbox_spec *spec,
	const struct sandbox_wish *wish, struct place_explanation *ret)
{
	const struct snapshot *snapshot = *spec->snapshot ? fleet_snapshot_find(fleet, spec->snapshot) : NULL;
	struct place_demand demand = {
		.only = snapshot && snapshot->node ? snapshot->node->place : NULL,
		.region = wish->region,
		.cpu_class = wish->cpu_class,
		.labels = wish->labels,
		.n_labels = wish->n_labels,
		.memory_mib = spec_memory_cost(spec),
		.disk_mib = spec->disk_mib,
		.vcpus = spec->vcpus,
	};

	if (!place_pool_exists(fleet->place, pool))
		return -ENOENT;
	memcpy(demand.image_digest, spec->image_digest, sizeof(demand.image_digest));
	place_explain(fleet->place, pool, &demand, ret);
	return 0;
}

int fleet_place_copy(const struct fleet *fleet, const char *pool, const char *digest, struct place_copy **ret)
{
	return place_copy_new(ret, fleet->place, pool, digest);
}

bool fleet_pool_room(const struct fleet *fleet, const char *pool, struct place_room *ret_total, struct place_room *ret_used)
{
	return place_pool_room(fleet->place, pool, ret_total, ret_used);
}
