/* SPDX-License-Identifier: Apache-2.0
 *
 * What a start that failed leaves to the next attempt (docs/architecture.md, "A start that fails"). For a reason that
 * passes (class transient) the scheduler tries the same sandbox again, on this node where it can. The disk is kept for
 * keep_usec when no guest ever ran on it, and the next generation does not make it again. Its image is in the node's store
 * unless it was collected meanwhile, so that it is asked for. The network slot belongs to its generation and is given back.
 *
 * For everybody else the start has ended: its report says ENDED, and a destroy, a restart of the agent or a create
 * that asks for something else drops what is kept.
 */
#include <stdio.h>
#include <string.h>

#include "core/internal.h"

/* The guest may have written to it from the moment on at which its VMM was told to start, which may have been a former
 * agent's doing. */
static bool is_disk_fresh(const struct sv_sandbox *sandbox)
{
	enum sv_state state = sandbox->journal.state;

	return sandbox->is_own_start &&
	       (state == SV_NETWORK || (state == SV_VMM && (!sandbox->is_jailed || sandbox->awaits_lease)));
}

/* Before the state of the failure is left. */
void sv_keep_judge(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *failure)
{
	sandbox->keeps = sv->config.keep_usec > 0 && failure && err_class(failure) == CLASS_TRANSIENT &&
			 is_disk_fresh(sandbox);
	sandbox->failed_in = sandbox->journal.state;
}

/* All but the disk is gone. */
void sv_keep(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sv_sandbox_move(sv, sandbox, SV_KEPT);
	sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
	sv_report(sv, sandbox);
}

void sv_keep_drop(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sandbox->keeps = false;
	if (sandbox->journal.state != SV_KEPT)
		return;
	sv_sandbox_move(sv, sandbox, SV_DROPPING);
	sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
	sandbox->removals = 0;
	sv_remove_files(sv, sandbox);
}

static bool is_the_same(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
	return a->disk_mib == b->disk_mib && !strcmp(a->image_digest, b->image_digest) && !strcmp(a->snapshot, b->snapshot);
}

bool sv_keep_resume(struct supervisor *sv, struct sv_sandbox *sandbox, const struct create_command *command)
{
	struct sv_journal *journal = &sandbox->journal;
	enum sv_state failed_in = sandbox->failed_in;

	if (journal->state != SV_KEPT || command->took || !is_the_same(journal->spec, command->spec))
		return false;
	spec_unref(journal->spec);
	free(journal->stages);
	*journal = (struct sv_journal){
		.generation = command->generation,
		.attempt = command->attempt,
		.spec = spec_ref(command->spec),
		.trace = command->trace,
		.report_version = journal->report_version,
	};
	memcpy(journal->sandbox, command->sandbox, sizeof(journal->sandbox));
	memcpy(journal->operation, command->operation, sizeof(journal->operation));
	sandbox->keeps = sandbox->is_jailed = sandbox->hello_seen = sandbox->vmm_seen = sandbox->awaits_lease = false;
	sandbox->lease_until_usec = 0;
	sandbox->removals = 0;
	sandbox->report_due_usec = NEVER;
	sandbox->is_resumed = true;
	sandbox->failed_in = failed_in;
	sv_stage_begin(sv, sandbox);
	sv_start(sv, sandbox);
	return true;
}
