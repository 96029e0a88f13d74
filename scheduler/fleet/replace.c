/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools, and what becomes of sandboxes that ran on a node that is lost. By default nothing: a cut disturbs nothing. A pool
 * with replace on-loss gives them another node, as another incarnation under a higher generation, and only when both
 * hold:
 * - the node had said in its last heartbeat that every VM of it is armed with a lease that ends at least SELF_STOP_MARGIN
 *   before the node counts as lost (link.proto, LeaseGrant): the old VM has stopped itself;
 * - the brakes let it: when more than MASS_PERCENT of the nodes that were there went at once, one node in SLOW_USEC is
 *   replaced; when all went, none is, because then it is rather we who are cut off.
 * One that was being paused is replaced as well: whether it slept in time nobody knows, and if it did, the node that comes
 * back is told to destroy it. What slept stays where it is. What began as a snapshot can begin nowhere else, and ends.
 * A node that comes back is told to destroy what was replaced (report.c): fencing by generation.
 */
#include <string.h>

#include "fleet/internal.h"

#define SELF_STOP_MARGIN_USEC (10 * USEC_PER_SEC)
#define MASS_PERCENT 55
#define SLOW_USEC (10 * USEC_PER_SEC) /* 0.1 nodes a second */
#define AGAIN_USEC (5 * USEC_PER_SEC) /* while the brakes hold */
#define AT_ONCE_USEC (600 * USEC_PER_SEC) /* a node that is lost for longer was no part of what went at once */

struct pool_policy *fleet_pool_find(const struct fleet *fleet, const char *name)
{
	struct pool_policy *pool;

	HASH_FIND_STR(fleet->pools, name, pool);
	return pool;
}

void fleet_pool_set(struct fleet *fleet, const struct pool_record *record)
{
	struct pool_policy *pool = fleet_pool_find(fleet, record->name);
	struct node *node;

	if (!pool) {
		pool = calloc(1, sizeof(*pool));
		if (pool) {
			memcpy(pool->name, record->name, sizeof(pool->name));
			HASH_ADD_STR(fleet->pools, name, pool);
		}
	}
	if (!pool || !pool->hh.tbl) {
		free(pool);
		fleet->out->no_memory = true;
		return;
	}
	pool->on_loss = record->replace_on_loss;
	pool->lost_after_usec = record->lost_after_usec;
	pool->self_stop_after_usec = record->self_stop_after_usec;
	TAILQ_FOREACH (node, &fleet->all_nodes, in_all)
		if (!strcmp(node->record.pool, pool->name))
			node->policy = pool;
}

void fleet_pools_free(struct fleet *fleet)
{
	struct pool_policy *pool, *next;

	HASH_ITER (hh, fleet->pools, pool, next) {
		HASH_DEL(fleet->pools, pool);
		free(pool);
	}
}

int64_t fleet_node_lost_after(const struct fleet *fleet, const struct node *node)
{
	if (PLANTED(REPLACED_BEFORE_STOP) && fleet_node_lease_ms(node))
		return node->policy->self_stop_after_usec / 2;
	return node->policy && node->policy->lost_after_usec ? node->policy->lost_after_usec
							     : fleet->config.lost_after_usec;
}

uint32_t fleet_node_lease_ms(const struct node *node)
{
	return node->policy && node->policy->on_loss
		       ? (uint32_t)(node->policy->self_stop_after_usec / USEC_PER_MSEC)
		       : 0;
}

/* Answers a heartbeat; a node that was granted leases before also hears that there are none any more. */
void fleet_lease_grant(struct fleet *fleet, struct node *node, const struct heartbeat *heartbeat)
{
	uint32_t lease_ms = fleet_node_lease_ms(node), longest = 0;
	struct fleet_send *send;

	/* With what is granted now, its answer may never come: none any more, or a longer one. */
	if (lease_ms > 0 && heartbeat->lease_ms > 0)
		longest = MAX(lease_ms, heartbeat->lease_ms);
	if (node->record.lease_ms != longest) {
		node->record.lease_ms = longest;
		fleet_node_dirty(fleet, node); /* a restart may be what hears last of it */
	}
	if (heartbeat->number == 0 || (lease_ms == 0 && heartbeat->lease_ms == 0))
		return;
	send = fleet_emit_send(fleet, node, SEND_LEASE);
	if (send)
		send->lease = (struct lease_grant){ heartbeat->number, lease_ms };
}

/* Whether what runs there has stopped itself by now. */
static bool has_stopped(const struct fleet *fleet, const struct node *node)
{
	int64_t lease = node->record.lease_ms * USEC_PER_MSEC;

	if (PLANTED(REPLACED_BEFORE_STOP))
		return true;
	return lease > 0 && lease + SELF_STOP_MARGIN_USEC <= fleet_node_lost_after(fleet, node);
}

/* Its VM had a lease, which is over. */
static bool has_run(const struct sandbox *sandbox)
{
	return (sandbox->record.state == SANDBOX_RUNNING || sandbox->record.state == SANDBOX_PAUSING) &&
	       !fleet_sandbox_is_warm(sandbox);
}

static bool awaits(const struct fleet *fleet, const struct node *node, const struct pool_policy *pool)
{
	const struct sandbox *sandbox;

	if (node->policy != pool || node->link != NODE_LOST || !has_stopped(fleet, node))
		return false;
	TAILQ_FOREACH (sandbox, &node->sandboxes, in_node)
		if (has_run(sandbox))
			return true;
	return false;
}

/* How many of the pool's nodes are there, and how many went lately. */
static void census(const struct fleet *fleet, const struct pool_policy *pool, size_t *ret_there,
	size_t *ret_gone)
{
	const struct node *node;

	*ret_there = *ret_gone = 0;
	TAILQ_FOREACH (node, &fleet->all_nodes, in_all) {
		if (node->policy != pool)
			continue;
		if (node->link == NODE_READY)
			++*ret_there;
		else if (node->link == NODE_SUSPECT ||
			 (node->link == NODE_LOST &&
				 fleet->now.mono_usec - node->heard_usec < AT_ONCE_USEC))
			++*ret_gone;
	}
}

static void replace(struct fleet *fleet, struct node *node)
{
	struct sandbox *sandbox, *next;
	struct err err = ERR_NULL;

	(void)err_set_at(&err, STAGE_RUN, FAIL_NODE_LOST, 0,
		"The sandboxes of a lost node are started anew elsewhere.");
	err_add(&err, "node", "%s", node->record.id);
	fleet_emit_notice(fleet, &err, node->record.id, NULL);
	for (sandbox = TAILQ_FIRST(&node->sandboxes); sandbox; sandbox = next) {
		next = TAILQ_NEXT(sandbox, in_node);
		if (!has_run(sandbox))
			continue;
		if (*sandbox->record.spec->snapshot) {
			fleet_sandbox_end(fleet, sandbox, END_FAILED, &err);
			continue;
		}
		fleet->counts.replaced++;
		if (sandbox->update.pending)
			fleet_request_update_done(fleet, sandbox, &err);
		fleet_sleep_answer(fleet, sandbox, &err);
		fleet_sandbox_event(fleet, sandbox, "REPLACED", "its node was lost");
		fleet_sandbox_detach(fleet, sandbox);
		memset(sandbox->record.node, 0, sizeof(sandbox->record.node));
		sandbox->record.incarnation++;
		sandbox->record.attempts = 1;
		sandbox->refusals = 0;
		sandbox->n_refused = 0;
		*sandbox->refusals_text = '\0';
		sandbox->queue_until_usec = fleet->now.mono_usec + fleet->config.place_timeout_usec;
		fleet_sandbox_move(fleet, sandbox, SANDBOX_PLACING);
		fleet_start_place(fleet, sandbox);
	}
}

static void replace_pool(struct fleet *fleet, struct pool_policy *pool, bool *ret_more)
{
	struct node *node;
	size_t there, gone;

	census(fleet, pool, &there, &gone);
	TAILQ_FOREACH (node, &fleet->all_nodes, in_all) {
		bool is_mass = gone * 100 > (there + gone) * MASS_PERCENT;

		if (!awaits(fleet, node, pool))
			continue;
		if (there == 0 || (is_mass && fleet->now.mono_usec < pool->next_usec)) {
			*ret_more = true;
			return;
		}
		pool->next_usec = fleet->now.mono_usec + SLOW_USEC;
		replace(fleet, node);
	}
}

void fleet_replace_run(struct fleet *fleet)
{
	struct pool_policy *pool;
	bool more = false;

	for (pool = fleet->pools; pool; pool = pool->hh.next)
		if (pool->on_loss)
			replace_pool(fleet, pool, &more);
	if (more && !fleet_timer_is_armed(&fleet->replace_timer) &&
		fleet_timer_arm(&fleet->timers, &fleet->replace_timer,
			fleet->now.mono_usec + AGAIN_USEC) < 0)
		fleet->out->no_memory = true;
}
