/* SPDX-License-Identifier: Apache-2.0
 *
 * Another network policy for a sandbox that runs. The journal has it before it is set, so that an agent that ends in
 * between sets it when it comes back; nobody is told that it is done before it holds. A policy is set as a whole or
 * not at all: one that could not be leaves the former in force, in the journal too.
 */
#include <string.h>

#include "core/internal.h"

static void forget(struct sv_sandbox *sandbox)
{
	sandbox->former_spec = spec_unref(sandbox->former_spec);
	memset(sandbox->network_operation, 0, sizeof(sandbox->network_operation));
}

void sv_on_network_update(struct supervisor *sv, const struct network_command *command)
{
	struct sv_sandbox *sandbox = sv_sandbox_find(sv, command->sandbox);
	struct sandbox_spec *spec;

	if (!sandbox || sandbox->is_bad || sandbox->journal.generation != command->generation)
		return;
	if (sandbox->journal.state != SV_RUNNING || !strcmp(sandbox->journal.updated, command->operation) ||
		sv_is_overtaken(sandbox, command->number)) {
		sv_report_again(sv, sandbox);
		return;
	}
	if (sandbox->former_spec)
		return; /* one after the other: the command comes again */
	spec = spec_with_network(sandbox->journal.spec, &command->network);
	if (!spec) {
		sv->out->no_memory = true;
		return;
	}
	sandbox->journal.update_number = MAX(sandbox->journal.update_number, command->number);
	sandbox->former_spec = sandbox->journal.spec;
	sandbox->journal.spec = spec;
	memcpy(sandbox->network_operation, command->operation, sizeof(sandbox->network_operation));
	sv_emit_journal(sv, sandbox, SV_WRITE_NETWORK);
	sv_emit_spec(sv, SV_DO_SET_NETWORK, sandbox);
}

static void undo(struct sv_sandbox *sandbox)
{
	spec_unref(sandbox->journal.spec);
	sandbox->journal.spec = TAKE(sandbox->former_spec);
}

void sv_network_set(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	if (!sandbox->former_spec)
		return; /* of an undo */
	memcpy(sandbox->journal.updated, sandbox->network_operation, sizeof(sandbox->journal.updated));
	sandbox->update_failure = (struct err)ERR_NULL;
	if (err && err_is_set(err)) {
		sandbox->update_failure = *err;
		undo(sandbox);
	}
	forget(sandbox);
	sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
	sv_report(sv, sandbox);
}

void sv_network_undo(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	if (!sandbox->former_spec)
		return;
	undo(sandbox);
	forget(sandbox);
	sv_emit_spec(sv, SV_DO_SET_NETWORK, sandbox); /* whether the new one came to hold is not known */
}
