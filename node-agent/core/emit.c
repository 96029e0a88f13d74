/* SPDX-License-Identifier: Apache-2.0
 *
 * Filling the actions of a step.
 */
#include <string.h>

#include "core/internal.h"

struct sv_action *sv_emit(
	struct supervisor *sv, enum sv_action_type type, const struct sv_sandbox *sandbox)
{
	struct sv_actions *out = sv->out;
	struct sv_action *action;

	if (out->n == out->room) {
		size_t room = out->room ? 2 * out->room : 8;
		struct sv_action *grown = realloc(out->items, room * sizeof(*grown));

		if (!grown) {
			out->no_memory = true;
			return NULL;
		}
		out->items = grown;
		out->room = room;
	}
	action = &out->items[out->n++];
	memset(action, 0, sizeof(*action));
	action->type = type;
	if (sandbox) {
		memcpy(action->sandbox, sandbox->journal.sandbox, sizeof(action->sandbox));
		action->generation = sandbox->journal.generation;
		action->trace = sandbox->journal.trace;
	}
	return action;
}

void sv_emit_spec(struct supervisor *sv, enum sv_action_type type, const struct sv_sandbox *sandbox)
{
	struct sv_action *action = sv_emit(sv, type, sandbox);

	if (action)
		action->spec = spec_ref(sandbox->journal.spec);
}

void sv_emit_vmm(struct supervisor *sv, enum sv_action_type type, const struct sv_sandbox *sandbox)
{
	struct sv_action *action = sv_emit(sv, type, sandbox);

	if (!action)
		return;
	action->vmm = sandbox->journal.vmm;
	action->spec = spec_ref(sandbox->journal.spec);
	action->frozen_mib = sv_frozen_limit_mib(&sandbox->journal.frozen);
}

void sv_emit_route(struct supervisor *sv, const struct sv_sandbox *sandbox, bool ready)
{
	struct sv_action *action = sv_emit(sv, SV_DO_ROUTE, sandbox);

	if (!action)
		return;
	action->spec = spec_ref(sandbox->journal.spec);
	action->ready = ready;
}

void sv_emit_journal(struct supervisor *sv, struct sv_sandbox *sandbox, enum sv_write write)
{
	struct sv_journal *journal = &sandbox->journal;
	struct sv_action *action = sv_emit(sv, SV_DO_JOURNAL_WRITE, sandbox);

	if (!action)
		return;
	journal->life_left_us = journal->life_end_mono_us
					? MAX(journal->life_end_mono_us - sv->now.mono_usec, 1)
					: 0;
	action->journal.best_effort = write == SV_WRITE_NONE;
	action->journal.answer = write == SV_WRITE_ACCEPT || write == SV_WRITE_READY;
	if (write != SV_WRITE_NONE)
		sandbox->last_write = write;
	action->journal.record = calloc(1, sizeof(*action->journal.record));
	if (!action->journal.record || sv_journal_copy(journal, action->journal.record) < 0)
		sv->out->no_memory = true;
}

struct sv_action *sv_emit_event(struct supervisor *sv, const char *name, const struct sv_sandbox *sandbox,
	const struct err *err)
{
	struct sv_action *action = sv_emit(sv, SV_DO_NODE_EVENT, sandbox);

	if (!action)
		return NULL;
	action->event.name = name;
	if (err) {
		action->event.err = malloc(sizeof(*action->event.err));
		if (action->event.err)
			*action->event.err = *err;
	}
	return action;
}
