/* SPDX-License-Identifier: Apache-2.0
 *
 * Filling the actions of a step. When memory is short the step is marked `no_memory`, which the shell treats as
 * a failed commit: nothing half said ever leaves.
 */
#include <errno.h>
#include <string.h>

#include "fleet/internal.h"

enum room { ROOM_PUTS, ROOM_SENDS, ROOM_REPLIES, ROOM_STAGES, ROOM_NOTICES };

/* One more zeroed element at the end of *array, or NULL. */
static void *grow(struct fleet_actions *out, enum room which, void **array, size_t *n, size_t size)
{
	if (*n == out->room[which]) {
		size_t room = out->room[which] ? 2 * out->room[which] : 4;
		void *grown = realloc(*array, room * size);

		if (!grown) {
			out->no_memory = true;
			return NULL;
		}
		*array = grown;
		out->room[which] = room;
	}
	memset((char *)*array + *n * size, 0, size);
	return (char *)*array + (*n)++ * size;
}

#define GROW(out, which, member, n_member)                                                         \
	__extension__({                                                                            \
		void *array_ = (out)->member;                                                      \
		void *new_ =                                                                       \
			grow((out), (which), &array_, &(out)->n_member, sizeof(*(out)->member));   \
		(out)->member = array_;                                                            \
		new_;                                                                              \
	})

struct fleet_send *fleet_emit_send(
	struct fleet *fleet, const struct node *node, enum fleet_send_type type)
{
	struct fleet_send *send;

	if (node->session == 0)
		return NULL;
	send = GROW(fleet->out, ROOM_SENDS, sends, n_sends);
	if (send) {
		send->type = type;
		send->session = node->session;
		memcpy(send->node, node->record.id, sizeof(send->node));
	}
	return send;
}

void fleet_emit_refused(
	struct fleet *fleet, const char *node, uint64_t session, const struct err *err)
{
	struct fleet_send *send = GROW(fleet->out, ROOM_SENDS, sends, n_sends);

	if (!send)
		return;
	send->type = SEND_REFUSED;
	send->session = session;
	memcpy(send->node, node, sizeof(send->node));
	send->refused = malloc(sizeof(*send->refused));
	if (send->refused)
		*send->refused = *err;
	else
		fleet->out->n_sends--;
}

void fleet_emit_reply(
	struct fleet *fleet, uint64_t request, const struct err *err, struct sandbox *sandbox)
{
	struct held_reply *reply;

	if (request == 0)
		return;
	if (fleet->n_replies == fleet->replies_room) {
		size_t room = fleet->replies_room ? 2 * fleet->replies_room : 8;
		struct held_reply *grown = realloc(fleet->replies, room * sizeof(*grown));

		if (!grown) {
			fleet->out->no_memory = true;
			return;
		}
		fleet->replies = grown;
		fleet->replies_room = room;
	}
	reply = &fleet->replies[fleet->n_replies++];
	*reply = (struct held_reply){ .request = request, .sandbox = sandbox };
	if (err)
		reply->err = *err;
}

void fleet_emit_snapshot_reply(struct fleet *fleet, uint64_t request, const struct err *err, struct snapshot *snapshot)
{
	fleet_emit_reply(fleet, request, err, err ? snapshot->sandbox : NULL);
	if (!err && request && fleet->n_replies)
		fleet->replies[fleet->n_replies - 1].snapshot = snapshot;
}

void fleet_emit_notice(
	struct fleet *fleet, const struct err *err, const char *node, const char *sandbox)
{
	struct fleet_notice *notice = GROW(fleet->out, ROOM_NOTICES, notices, n_notices);

	if (!notice)
		return;
	notice->err = *err;
	if (node)
		memcpy(notice->node, node, sizeof(notice->node));
	if (sandbox)
		memcpy(notice->sandbox, sandbox, sizeof(notice->sandbox));
}

static void note_export(
	const struct sandbox *sandbox, const struct note *note, struct stage_record *ret)
{
	*ret = (struct stage_record){
		.stage = note->stage,
		.outcome = note->outcome,
		.began_us = note->began_us,
		.corrected_us = note->corrected_us,
		.took_us = note->took_us,
		.attempt = note->attempt,
		.generation = note->generation,
		.trace = sandbox->record.trace,
	};
	memcpy(ret->reason, note->reason, sizeof(ret->reason));
	memcpy(ret->sandbox, sandbox->record.id, sizeof(ret->sandbox));
	memcpy(ret->node, note->node, sizeof(ret->node));
	memcpy(ret->operation, note->operation, sizeof(ret->operation));
	memcpy(ret->trace.span_id, note->span_id, sizeof(ret->trace.span_id));
	if (note->failure)
		ret->failure = *note->failure;
}

void fleet_emit_stage(struct fleet *fleet, const struct sandbox *sandbox, const struct note *note)
{
	struct fleet_stage *stage = GROW(fleet->out, ROOM_STAGES, stages, n_stages);

	if (!stage)
		return;
	note_export(sandbox, note, &stage->record);
	memcpy(stage->tenant, sandbox->record.tenant, sizeof(stage->tenant));
	memcpy(stage->pool, sandbox->record.pool, sizeof(stage->pool));
	memcpy(stage->template_name, sandbox->record.spec->template_name,
		sizeof(stage->template_name));
}

int fleet_sandbox_export(const struct sandbox *sandbox, struct sandbox_record *ret)
{
	struct sandbox_record copy;
	int r;

	r = sandbox_record_copy(&sandbox->record, &copy);
	if (r < 0)
		return r;
	if (sandbox->n_notes) {
		copy.stages = calloc(sandbox->n_notes, sizeof(*copy.stages));
		if (!copy.stages) {
			sandbox_record_deinit(&copy);
			return -ENOMEM;
		}
		copy.n_stages = sandbox->n_notes;
		for (size_t i = 0; i < sandbox->n_notes; i++)
			note_export(sandbox, &sandbox->notes[i], &copy.stages[i]);
	}
	*ret = copy;
	return 0;
}

void fleet_emit_put_node(struct fleet *fleet, const struct node *node)
{
	struct fleet_put *put = GROW(fleet->out, ROOM_PUTS, puts, n_puts);

	if (!put)
		return;
	put->type = FLEET_PUT_NODE;
	memcpy(put->id, node->record.id, sizeof(put->id));
	put->node = calloc(1, sizeof(*put->node));
	if (!put->node || node_record_copy(&node->record, put->node) < 0)
		fleet->out->no_memory = true;
}

void fleet_emit_put_sandbox(
	struct fleet *fleet, const struct sandbox *sandbox, enum fleet_record_type type)
{
	struct fleet_put *put = GROW(fleet->out, ROOM_PUTS, puts, n_puts);

	if (!put)
		return;
	put->type = type;
	memcpy(put->id, sandbox->record.id, sizeof(put->id));
	put->sandbox = calloc(1, sizeof(*put->sandbox));
	if (!put->sandbox || fleet_sandbox_export(sandbox, put->sandbox) < 0)
		fleet->out->no_memory = true;
}

static void emit_key(struct fleet *fleet, enum fleet_record_type type, const char *id)
{
	struct fleet_put *put = GROW(fleet->out, ROOM_PUTS, puts, n_puts);

	if (!put)
		return;
	put->type = type;
	memcpy(put->id, id, sizeof(put->id));
}

void fleet_emit_delete_sandbox(struct fleet *fleet, const char *id)
{
	emit_key(fleet, FLEET_DELETE_SANDBOX, id);
}

void fleet_emit_put_snapshot(struct fleet *fleet, const struct snapshot *snapshot)
{
	struct fleet_put *put = GROW(fleet->out, ROOM_PUTS, puts, n_puts);

	if (!put)
		return;
	put->type = FLEET_PUT_SNAPSHOT;
	memcpy(put->id, snapshot->record.id, sizeof(put->id));
	put->snapshot = calloc(1, sizeof(*put->snapshot));
	if (!put->snapshot || snapshot_record_copy(&snapshot->record, put->snapshot) < 0)
		fleet->out->no_memory = true;
}

void fleet_emit_delete_snapshot(struct fleet *fleet, const char *id)
{
	emit_key(fleet, FLEET_DELETE_SNAPSHOT, id);
}

void fleet_emit_claim(struct fleet *fleet, const char *id)
{
	emit_key(fleet, FLEET_PUT_CLAIM, id);
}

void fleet_emit_delete_claim(struct fleet *fleet, const char *id)
{
	emit_key(fleet, FLEET_DELETE_CLAIM, id);
}
