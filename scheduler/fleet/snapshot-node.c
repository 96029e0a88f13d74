/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes say about snapshots, and what becomes of snapshots when something becomes of their nodes.
 *
 * An inventory names all that are whole. One that is being made and is named is made; one that is kept here and is not
 * named is lost; one that nobody knows is not in the desired set, and the node drops it. After a restore (adopt.c) the
 * store is older than the nodes: what it does not know is adopted then, by the tenant that the node names, since a node
 * may have the only copy, and too many can be deleted while one that was dropped does not come back.
 *
 * What a node's owner imports there (croft-node import) nobody knows either. It is adopted where an operator said before for
 * which tenant: a node's own word gives nobody a snapshot.
 */
#include <stdio.h>
#include <string.h>

#include "fleet/internal.h"

#define TAKE_USEC (INT64_C(3600) * USEC_PER_SEC)

/* ---- load ---- */

void fleet_snapshot_load(struct fleet *fleet, const struct snapshot_record *from, const struct fleet_quota *quota)
{
	struct node *node = fleet_node_find(fleet, from->node);
	struct snapshot *snapshot = NULL;
	struct snapshot_record record;

	if (fleet_snapshot_find(fleet, from->id))
		return;
	if (snapshot_record_copy(from, &record) == 0) {
		snapshot = fleet_snapshot_add(fleet, &record);
		if (!snapshot)
			snapshot_record_deinit(&record);
	}
	if (!snapshot) {
		fleet->out->no_memory = true;
		return;
	}
	snapshot->quota = *quota;
	if (node)
		fleet_snapshot_attach(fleet, snapshot, node);
}

static void node_is_gone(struct fleet *fleet, struct snapshot *snapshot)
{
	struct err err = ERR_NULL;

	switch (snapshot->record.state) {
	case SNAPSHOT_MAKING:
		(void)err_set_at(&err, STAGE_SNAPSHOT, FAIL_NODE_REVOKED, 0, "The sandbox's node was removed.");
		fleet_snapshot_failed(fleet, snapshot, &err);
		return;
	case SNAPSHOT_READY:
		if (!snapshot->record.is_fork) {
			fleet_snapshot_move(fleet, snapshot, SNAPSHOT_LOST);
			return;
		}
		fleet_snapshot_move(fleet, snapshot, SNAPSHOT_DROPPING);
		__attribute__((fallthrough));
	case SNAPSHOT_DROPPING:
		fleet_snapshot_move(fleet, snapshot, SNAPSHOT_GONE);
		return;
	case SNAPSHOT_LOST:
	case SNAPSHOT_GONE:
	case SNAPSHOT_STATE_MAX_:
		return;
	}
}

void fleet_snapshots_loaded(struct fleet *fleet)
{
	struct snapshot *snapshot;

	TAILQ_FOREACH (snapshot, &fleet->all_snapshots, in_all) {
		const struct snapshot_record *record = &snapshot->record;
		struct sandbox *sandbox = fleet_sandbox_find(fleet, record->sandbox);

		fleet_snapshot_loaded(fleet, snapshot);
		if (!snapshot->node || snapshot->node->link == NODE_REMOVED) {
			node_is_gone(fleet, snapshot);
		} else if (record->state == SNAPSHOT_MAKING && sandbox && sandbox->node == snapshot->node &&
			   sandbox->record.generation == record->generation) {
			snapshot->sandbox = sandbox;
			sandbox->snapshot = snapshot;
		} else if (record->state == SNAPSHOT_MAKING) {
			fleet_snapshot_move(fleet, snapshot, SNAPSHOT_DROPPING);
		} else if (record->state == SNAPSHOT_READY) {
			fleet_fork_check(fleet, snapshot);
		}
	}
}

/* ---- reports ---- */

void fleet_snapshot_reported(struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_report *report)
{
	struct snapshot *snapshot = sandbox->snapshot;
	struct err err = report->update_failure;

	if (!snapshot || strcmp(report->updated, snapshot->record.operation) != 0)
		return;
	snapshot->seen_session = snapshot->node->session;
	if (report->snapshot && !strcmp(report->snapshot->id, snapshot->record.id)) {
		fleet_snapshot_made(fleet, snapshot, report->snapshot);
		return;
	}
	if (!err_is_set(&err)) /* an agent that was started again does not know any more why */
		(void)err_set_at(&err, STAGE_SNAPSHOT, FAIL_SNAPSHOT_FAILED, 0,
			"The node did not do it; its agent was started again since.");
	fleet_snapshot_failed(fleet, snapshot, &err);
}

/* Whether it is there its node has not said. It begins none of what has ended or sleeps, and takes messages in their order:
 * a drop comes after it. */
void fleet_snapshot_orphan(struct fleet *fleet, struct sandbox *sandbox, enum fail_code code)
{
	struct snapshot *snapshot = sandbox->snapshot;
	struct err err = ERR_NULL;

	if (!snapshot)
		return;
	(void)err_set_at(&err, STAGE_SNAPSHOT, code, 0, "The sandbox %s before its snapshot was there.",
		code == FAIL_CONFLICT ? "was paused at the end of its life" : "ended");
	fleet_snapshot_answer(fleet, snapshot, &err);
	fleet_snapshot_move(fleet, snapshot, SNAPSHOT_DROPPING);
}

void fleet_snapshot_dropped(struct fleet *fleet, struct node *node, const char *id)
{
	struct snapshot *snapshot = fleet_snapshot_find(fleet, id);

	if (snapshot && snapshot->node == node && snapshot->record.state == SNAPSHOT_DROPPING)
		fleet_snapshot_move(fleet, snapshot, SNAPSHOT_GONE);
}

/* ---- inventories ---- */

void fleet_node_take(struct fleet *fleet, struct node *node, const char *tenant)
{
	(void)snprintf(node->takes_for, sizeof(node->takes_for), "%s", tenant);
	node->takes_until_us = fleet->now.mono_usec + TAKE_USEC;
}

const char *fleet_node_takes_for(const struct fleet *fleet, const struct node *node)
{
	return fleet->now.mono_usec < node->takes_until_us ? node->takes_for : "";
}

static void adopt(struct fleet *fleet, struct node *node, const struct snapshot_info *info, const char *tenant)
{
	struct snapshot_record record = { .state = SNAPSHOT_READY,
		.created_us = MAX(MIN(info->created_usec, fleet->now.real_usec), 0), /* the node's clock */
		.size_mib = info->size_mib,
		.spec = spec_new() };
	struct snapshot *snapshot = NULL;

	memcpy(record.id, info->id, sizeof(record.id));
	memcpy(record.sandbox, info->sandbox, sizeof(record.sandbox));
	memcpy(record.tenant, tenant, strlen(tenant) + 1);
	memcpy(record.pool, node->record.pool, sizeof(record.pool));
	memcpy(record.cpu_class, info->cpu_class, sizeof(record.cpu_class));
	if (record.spec) {
		memcpy(record.spec->template_name, info->template_name, sizeof(record.spec->template_name));
		memcpy(record.spec->image_digest, info->image_digest, sizeof(record.spec->image_digest));
		memcpy(record.spec->tenant, tenant, strlen(tenant) + 1);
		record.spec->image_size = info->image_size;
		record.spec->vcpus = info->vcpus;
		record.spec->memory_mib = info->memory_mib;
		record.spec->disk_mib = info->disk_mib;
		snapshot = fleet_snapshot_add(fleet, &record);
	}
	if (!snapshot) {
		snapshot_record_deinit(&record);
		fleet->out->no_memory = true;
		return;
	}
	fleet_snapshot_attach(fleet, snapshot, node);
	fleet_snapshot_dirty(fleet, snapshot);
	snapshot->seen_session = node->session;
	fleet->counts.recovered++;
}

void fleet_snapshots_seen(struct fleet *fleet, struct node *node, const struct inventory *inventory)
{
	for (size_t i = 0; i < inventory->n_snapshots; i++) {
		const struct snapshot_info *info = &inventory->snapshots[i];
		struct snapshot *snapshot = fleet_snapshot_find(fleet, info->id);

		if (!snapshot) {
			const char *tenant = fleet_node_takes_for(fleet, node);

			if (fleet_node_is_unsettled(fleet, node))
				tenant = *node->record.adopt_tenant ? node->record.adopt_tenant : info->tenant;
			if (*tenant && !info->is_live)
				adopt(fleet, node, info, tenant);
			continue;
		}
		if (snapshot->node != node)
			continue; /* another's: it is not in the set that answers */
		snapshot->seen_session = node->session;
		if (snapshot->record.state == SNAPSHOT_LOST)
			fleet_snapshot_move(fleet, snapshot, SNAPSHOT_READY);
		else
			fleet_snapshot_made(fleet, snapshot, info);
	}
}

void fleet_snapshots_settle(struct fleet *fleet, struct node *node)
{
	struct snapshot *snapshot;

	if (!node->snapshots_are_known)
		return; /* what an older agent does not speak of is there all the same */
	TAILQ_FOREACH (snapshot, &node->snapshots, in_node) {
		bool is_missing = snapshot->seen_session != node->session;

		/* a fork's own may have gone with its node's agent: who has not begun as it is told so there, and then it is answered */
		if (is_missing && snapshot->record.state == SNAPSHOT_READY && snapshot->record.is_fork)
			fleet_fork_check(fleet, snapshot);
		else if (is_missing && snapshot->record.state == SNAPSHOT_READY)
			fleet_snapshot_move(fleet, snapshot, SNAPSHOT_LOST);
		else if (snapshot->record.state == SNAPSHOT_MAKING || snapshot->record.state == SNAPSHOT_DROPPING)
			fleet_snapshot_command(fleet, snapshot);
	}
}

/* ---- the node ---- */

void fleet_snapshots_node_lost(struct fleet *fleet, struct node *node)
{
	struct snapshot *snapshot;
	struct err err = ERR_NULL;

	(void)err_set_at(&err, STAGE_SNAPSHOT, FAIL_NODE_LOST, 0,
		"The sandbox's node was lost before its snapshot was there.");
	err_add(&err, "node", "%s", node->record.id);
	TAILQ_FOREACH (snapshot, &node->snapshots, in_node) {
		if (snapshot->record.state != SNAPSHOT_MAKING || snapshot->record.is_unwanted)
			continue;
		fleet_snapshot_give_up(fleet, snapshot, &err);
	}
}

void fleet_snapshots_node_removed(struct fleet *fleet, struct node *node)
{
	struct snapshot *snapshot;

	TAILQ_FOREACH (snapshot, &node->snapshots, in_node)
		node_is_gone(fleet, snapshot);
}

/* What was sent on the old route is lost; the inventory of the next session sends again. */
void fleet_snapshots_disconnected(struct fleet *fleet, struct node *node)
{
	struct snapshot *snapshot;

	TAILQ_FOREACH (snapshot, &node->snapshots, in_node)
		fleet_timer_stop(&fleet->timers, &snapshot->resend);
}

/* ---- where a sandbox may begin as one ---- */

/* A warm VM is nobody's yet: who may claim it is compared when it is claimed. */
static bool may_begin_as(const struct sandbox *sandbox, const struct snapshot *snapshot)
{
	if (fleet_sandbox_is_warm(sandbox))
		return !snapshot->record.is_fork;
	return strcmp(snapshot->record.tenant, sandbox->record.tenant) == 0;
}

bool fleet_snapshot_may_be_begun(const struct fleet *fleet, const char *id, const char *tenant)
{
	const struct snapshot *snapshot = fleet_snapshot_find(fleet, id);

	return snapshot && snapshot->record.state == SNAPSHOT_READY &&
	       (!tenant || strcmp(snapshot->record.tenant, tenant) == 0);
}

int fleet_snapshot_resolve(struct fleet *fleet, struct sandbox *sandbox, struct err *reterr)
{
	const char *id = sandbox->record.spec->snapshot;
	struct snapshot *snapshot;

	if (!*id)
		return 0;
	snapshot = fleet_snapshot_find(fleet, id);
	sandbox->origin = snapshot ? snapshot->node : NULL;
	if (!snapshot || snapshot->record.state == SNAPSHOT_DROPPING || snapshot->record.state == SNAPSHOT_GONE ||
		!may_begin_as(sandbox, snapshot))
		(void)err_set_at(reterr, STAGE_PLACE, FAIL_SNAPSHOT_NOT_FOUND, 0, "The snapshot was deleted.");
	else if (snapshot->record.state == SNAPSHOT_LOST || !snapshot->node)
		(void)err_set_at(reterr, STAGE_PLACE, FAIL_SNAPSHOT_LOST, 0, "The node that kept the snapshot does not have it any more.");
	else if (snapshot->record.state == SNAPSHOT_MAKING)
		(void)err_set_at(reterr, STAGE_PLACE, FAIL_SNAPSHOTTING, 0, "The snapshot is being made.");
	else if (snapshot->node->session && !snapshot->node->snapshots_are_known)
		(void)err_set_at(reterr, STAGE_PLACE, FAIL_SNAPSHOT_UNSUPPORTED, 0,
			"The agent of the snapshot's node knows no snapshots at present.");
	else
		return 0;
	return -1;
}
