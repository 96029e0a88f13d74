/* SPDX-License-Identifier: Apache-2.0
 *
 * What the node's owner asks on the node itself, whatever a scheduler says or whether there is one: nothing new here
 * (drain), and an end to what is here. It stands beside the scheduler's own facts about the node: neither takes back the
 * other's.
 */
#include <string.h>

#include "core/internal.h"

/* Shown by `croft node info` as the reason for which nothing is placed here. */
void sv_on_owner_drain(struct supervisor *sv, bool drained, const char *why, int64_t deadline_usec)
{
	const bool was = err_is_set(&sv->owner_drain);

	sv->owner_drain = (struct err)ERR_NULL;
	sv->owner_deadline_usec = NEVER;
	if (drained) {
		(void)err_set_at(&sv->owner_drain, STAGE_ACCEPT, FAIL_NODE_DRAINING, 0, "The node's owner drains it%s%.120s.",
			*why ? ": " : "", why);
		if (deadline_usec)
			sv->owner_deadline_usec = deadline_usec;
	}
	if (drained != was)
		(void)sv_emit_event(sv, drained ? "node-drained-by-owner" : "node-undrained-by-owner", NULL, NULL);
	if (sv->started)
		sv_unable_changed(sv);
}

static bool has_ended(const struct sv_sandbox *sandbox)
{
	return sandbox->is_bad || sv_is_ending(sandbox->journal.state);
}

/* What sleeps has no VM to end and outlives its host. */
void sv_owner_tick(struct supervisor *sv)
{
	struct sv_sandbox *sandbox, *next;
	struct err err = ERR_NULL;

	if (sv->owner_deadline_usec > sv->now.mono_usec)
		return;
	sv->owner_deadline_usec = NEVER;
	(void)err_set(&err, FAIL_NODE_DRAINED, 0, "The node's owner drained it, and the deadline came.");
	for (sandbox = sv->sandboxes; sandbox; sandbox = next) {
		next = sandbox->hh.next;
		if (!has_ended(sandbox) && !sv_has_no_vm(sandbox))
			sv_end(sv, sandbox, END_DRAINED, &err);
	}
}

/* One, or with "" all, those that sleep too. */
static void end_all(struct supervisor *sv, const char *id, const char *event, const struct err *err)
{
	struct sv_sandbox *sandbox, *next;

	for (sandbox = sv->sandboxes; sandbox; sandbox = next) {
		next = sandbox->hh.next;
		if (has_ended(sandbox) || (*id && strcmp(sandbox->journal.sandbox, id) != 0))
			continue;
		(void)sv_emit_event(sv, event, sandbox, NULL);
		sv_end(sv, sandbox, END_DRAINED, err);
	}
}

void sv_on_owner_stop(struct supervisor *sv, const char *id)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_OWNER_STOPPED, 0, "The node's owner ended it on the node.");
	end_all(sv, id, "sandbox-stopped-by-owner", &err);
}

void sv_owner_revoked(struct supervisor *sv, const struct err *err)
{
	struct err failure = *err;

	failure.stage = STAGE_RUN;
	end_all(sv, "", "sandbox-stopped-by-owner", &failure);
}
