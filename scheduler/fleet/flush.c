/* SPDX-License-Identifier: Apache-2.0
 *
 * End of a step: dirty objects become records, replies get their copy of the sandbox, and what ended leaves
 * memory. Everything about one object in one step is one record.
 */
#include <string.h>

#include "fleet/internal.h"

static void flush_snapshot_reply(struct fleet *fleet, const struct snapshot *snapshot, struct fleet_reply *reply)
{
	const struct snapshot_record *record = &snapshot->record;

	reply->snapshot = calloc(1, sizeof(*reply->snapshot));
	if (!reply->snapshot || snapshot_record_copy(record, reply->snapshot) < 0)
		fleet->out->no_memory = true;
	if (!snapshot->fork_errs)
		return;
	reply->forks = calloc(record->n_forks, sizeof(*reply->forks));
	if (!reply->forks) {
		fleet->out->no_memory = true;
		return;
	}
	for (size_t i = 0; i < record->n_forks; i++) {
		memcpy(reply->forks[i].sandbox, record->forks[i], ID_SIZE);
		reply->forks[i].err = snapshot->fork_errs[i];
	}
	reply->n_forks = record->n_forks;
}

static void flush_reply(struct fleet *fleet, const struct held_reply *held)
{
	struct fleet_actions *out = fleet->out;
	struct fleet_reply *reply;

	if (out->n_replies == out->room[2]) {
		size_t room = out->room[2] ? 2 * out->room[2] : 4;
		struct fleet_reply *grown = realloc(out->replies, room * sizeof(*grown));

		if (!grown) {
			out->no_memory = true;
			return;
		}
		out->replies = grown;
		out->room[2] = room;
	}
	reply = &out->replies[out->n_replies++];
	*reply = (struct fleet_reply){ .request = held->request, .err = held->err };
	if (held->sandbox) {
		reply->sandbox = calloc(1, sizeof(*reply->sandbox));
		if (!reply->sandbox || fleet_sandbox_export(held->sandbox, reply->sandbox) < 0)
			out->no_memory = true;
	}
	if (held->snapshot)
		flush_snapshot_reply(fleet, held->snapshot, reply);
}

static void flush_snapshot(struct fleet *fleet, struct snapshot *snapshot)
{
	if (snapshot->record.state != SNAPSHOT_GONE) {
		snapshot->is_new = false;
		fleet_emit_put_snapshot(fleet, snapshot);
		return;
	}
	if (!snapshot->is_new)
		fleet_emit_delete_snapshot(fleet, snapshot->record.id);
	fleet_snapshot_remove(fleet, snapshot);
}

static void flush_sandbox(struct fleet *fleet, struct sandbox *sandbox)
{
	if (sandbox->record.state == SANDBOX_ENDED) {
		if (PLANTED(HISTORY_BEFORE_COMMIT) && !sandbox->is_new && !sandbox->queued) {
			fleet_emit_delete_sandbox(fleet, sandbox->record.id);
			sandbox->queued = sandbox->is_new = true; /* its history follows with the next step */
			TAILQ_INSERT_TAIL(&fleet->late, sandbox, in_dirty);
			return;
		}
		/* History first: a store that must split a large batch loses neither. */
		fleet_emit_put_sandbox(fleet, sandbox, FLEET_PUT_HISTORY);
		if (!sandbox->is_new) /* ended in the step that made it: there never was a record */
			fleet_emit_delete_sandbox(fleet, sandbox->record.id);
		if (sandbox->record.took)
			fleet_emit_delete_claim(fleet, sandbox->record.id);
		fleet_sandbox_remove(fleet, sandbox);
		return;
	}
	sandbox->is_new = false;
	fleet_emit_put_sandbox(fleet, sandbox, FLEET_PUT_SANDBOX);
}

void fleet_flush(struct fleet *fleet)
{
	struct snapshot *snapshot;
	struct sandbox *sandbox;
	struct node *node;

	for (size_t i = 0; i < fleet->n_replies; i++)
		flush_reply(fleet, &fleet->replies[i]);
	fleet->n_replies = 0;
	if (PLANTED(REPLY_BEFORE_COMMIT) && fleet->out->n_replies)
		return; /* the records follow with the next step */
	while (PLANTED(HISTORY_BEFORE_COMMIT) && (sandbox = TAILQ_FIRST(&fleet->late))) {
		TAILQ_REMOVE(&fleet->late, sandbox, in_dirty);
		sandbox->queued = false;
		sandbox->dirty = false;
		flush_sandbox(fleet, sandbox);
	}
	while ((node = TAILQ_FIRST(&fleet->dirty_nodes))) {
		TAILQ_REMOVE(&fleet->dirty_nodes, node, in_dirty);
		node->dirty = false;
		fleet_emit_put_node(fleet, node);
	}
	while ((sandbox = TAILQ_FIRST(&fleet->dirty_sandboxes))) {
		TAILQ_REMOVE(&fleet->dirty_sandboxes, sandbox, in_dirty);
		sandbox->dirty = false;
		flush_sandbox(fleet, sandbox);
	}
	while ((snapshot = TAILQ_FIRST(&fleet->dirty_snapshots))) {
		TAILQ_REMOVE(&fleet->dirty_snapshots, snapshot, in_dirty);
		snapshot->dirty = false;
		flush_snapshot(fleet, snapshot);
	}
}
