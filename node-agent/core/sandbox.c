/* SPDX-License-Identifier: Apache-2.0
 *
 * One sandbox on its node: the state table, the one mover, and the stages.
 *
 *   IMAGE -> DISK -> NETWORK -> VMM -> KERNEL -> GUEST -> (SETUP) -> RUNNING <- ADOPTING (after a restart of the agent)
 *     |       |        |        |       |        |         |          |           |
 *     +-------+--------+--------+-------+--------+---------+----------+-----------+--> STOPPING -> KILLING -> REMOVING -> ENDED
 *
 * REMOVING -> KEPT when the disk of a failed start waits for the next attempt, which is KEPT -> IMAGE; else KEPT ->
 * DROPPING -> ENDED (keep.c). RUNNING -> PAUSING and back: sleep.c. RUNNING -> GUEST when a warm VM becomes somebody's sandbox (command.c, take_over).
 * VMM -> GUEST when it begins as a snapshot. One is taken beside RUNNING, which it does not leave: snapshot.c.
 *
 * Each state but PAUSED, and RUNNING without a time limit, has a deadline; ENDED has its report, which is sent until it is
 * acknowledged.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/internal.h"

#define TO_END (SM_TO(SV_STOPPING) | SM_TO(SV_KILLING) | SM_TO(SV_REMOVING))

/* clang-format off */
static const struct sm_state table[SV_STATE_MAX_] = {
	[SV_IMAGE] = { "image", SM_TO(SV_DISK) | TO_END, 1, REPORT_STARTING },
	[SV_DISK] = { "disk", SM_TO(SV_NETWORK) | SM_TO(SV_IMAGE) | TO_END, 1, REPORT_STARTING },
	[SV_NETWORK] = { "network", SM_TO(SV_VMM) | TO_END, 1, REPORT_STARTING },
	[SV_VMM] = { "vmm", SM_TO(SV_KERNEL) | SM_TO(SV_GUEST) | TO_END, 1, REPORT_STARTING },
	[SV_KERNEL] = { "kernel", SM_TO(SV_GUEST) | TO_END, 1, REPORT_STARTING },
	[SV_GUEST] = { "guest", SM_TO(SV_SETUP) | SM_TO(SV_RUNNING) | TO_END, 1, REPORT_STARTING },
	[SV_SETUP] = { "setup", SM_TO(SV_RUNNING) | TO_END, 1, REPORT_STARTING },
	[SV_RUNNING] = { "running", SM_TO(SV_ADOPTING) | SM_TO(SV_GUEST) | SM_TO(SV_PAUSING) | TO_END, 0, REPORT_RUNNING },
	[SV_ADOPTING] = { "adopting", SM_TO(SV_RUNNING) | TO_END, 1, REPORT_RUNNING },
	[SV_PAUSING] = { "pausing", SM_TO(SV_SLEEPING) | SM_TO(SV_THAWING) | TO_END, 1, REPORT_RUNNING },
	[SV_SLEEPING] = { "sleeping", SM_TO(SV_PAUSED) | SM_TO(SV_THAWING) | TO_END, 1, REPORT_RUNNING },
	[SV_PAUSED] = { "paused", SM_TO(SV_WAKE_NETWORK) | SM_TO(SV_SLEEPING) | TO_END, 0, REPORT_PAUSED },
	[SV_WAKE_NETWORK] = { "wake-network", SM_TO(SV_WAKE_VMM) | SM_TO(SV_SLEEPING) | TO_END, 1, REPORT_PAUSED },
	[SV_WAKE_VMM] = { "wake-vmm", SM_TO(SV_WAKE_GUEST) | SM_TO(SV_SLEEPING) | TO_END, 1, REPORT_PAUSED },
	[SV_WAKE_GUEST] = { "wake-guest", SM_TO(SV_THAWING) | SM_TO(SV_SLEEPING) | TO_END, 1, REPORT_PAUSED },
	[SV_THAWING] = { "thawing", SM_TO(SV_RUNNING) | SM_TO(SV_SLEEPING) | SM_TO(SV_THAWING) | TO_END, 1, REPORT_RUNNING },
	[SV_STOPPING] = { "stopping", SM_TO(SV_KILLING) | SM_TO(SV_REMOVING), 1, REPORT_STOPPING },
	[SV_KILLING] = { "killing", SM_TO(SV_REMOVING), 1, REPORT_STOPPING },
	[SV_REMOVING] = { "removing", SM_TO(SV_ENDED) | SM_TO(SV_KEPT), 1, REPORT_STOPPING },
	[SV_KEPT] = { "kept", SM_TO(SV_IMAGE) | SM_TO(SV_DROPPING), 1, REPORT_ENDED },
	[SV_DROPPING] = { "dropping", SM_TO(SV_ENDED), 1, REPORT_ENDED },
	[SV_ENDED] = { "ended", 0, 1, REPORT_ENDED },
};
/* clang-format on */

const struct sm_state *sv_state_table(void)
{
	return table;
}

const char *sv_state_name(enum sv_state state)
{
	return (unsigned int)state < SV_STATE_MAX_ ? table[state].name : "unknown";
}

enum sv_state sv_state_by_name(const char *name)
{
	unsigned int i;

	for (i = 0; i < SV_STATE_MAX_; i++)
		if (strcmp(table[i].name, name) == 0)
			break;
	return (enum sv_state)i;
}

bool sv_is_starting(enum sv_state state)
{
	return table[state].public_state == REPORT_STARTING;
}

bool sv_is_ending(enum sv_state state)
{
	return state >= SV_STOPPING;
}

static int64_t state_limit(const struct supervisor *sv, const struct sv_sandbox *sandbox)
{
	const struct sv_config *config = &sv->config;
	const struct sandbox_spec *spec = sandbox->journal.spec;

	switch (sandbox->journal.state) {
	case SV_IMAGE:
		return config->image_timeout_usec;
	case SV_DISK: /* the copy of a snapshot's disk may be one of gigabytes */
		return *spec->snapshot ? config->pause_timeout_usec : config->disk_timeout_usec;
	case SV_NETWORK:
		return config->network_timeout_usec;
	case SV_VMM:
		return config->vmm_timeout_usec;
	case SV_KERNEL:
		return config->kernel_timeout_usec;
	case SV_GUEST:
		return config->guest_timeout_usec;
	case SV_SETUP:
		/* the act has its own limit; this one is for an act that never answers */
		return (spec->setup_timeout_ms ? spec->setup_timeout_ms * USEC_PER_MSEC
					       : config->setup_timeout_usec) +
		       10 * USEC_PER_SEC;
	case SV_ADOPTING:
		return config->adopt_timeout_usec;
	case SV_PAUSING:
	case SV_THAWING:
		return config->pause_timeout_usec;
	case SV_SLEEPING:
		return config->kill_timeout_usec;
	case SV_WAKE_NETWORK:
		return config->network_timeout_usec;
	case SV_WAKE_VMM:
		return config->vmm_timeout_usec;
	case SV_WAKE_GUEST:
		return config->guest_timeout_usec;
	case SV_STOPPING:
		return config->stop_grace_usec;
	case SV_KILLING:
		return config->kill_timeout_usec;
	case SV_REMOVING:
	case SV_DROPPING:
		return config->disk_timeout_usec;
	case SV_KEPT:
		return config->keep_usec;
	case SV_RUNNING:
	case SV_PAUSED:
	case SV_ENDED:
	case SV_STATE_MAX_:
		break;
	}
	return 0;
}

void sv_sandbox_move(struct supervisor *sv, struct sv_sandbox *sandbox, enum sv_state state)
{
	struct sv_journal *journal = &sandbox->journal;

	assert(sm_move_is_allowed(table, journal->state, state));
	journal->state = state;
	sv->capacity_changed |= journal->frozen.n > 0; /* it may have been the last that maps it */
	if (state == SV_RUNNING) /* it may have ended while no agent ran: then now */
		sandbox->deadline_usec = journal->life_end_mono_us
						 ? MAX(journal->life_end_mono_us, sv->now.mono_usec)
						 : NEVER;
	else if (state == SV_ENDED || state == SV_PAUSED)
		sandbox->deadline_usec = NEVER; /* its report is what is waited for; nothing is */
	else
		sandbox->deadline_usec = sv->now.mono_usec + state_limit(sv, sandbox);
	sv_usage_moved(sv, sandbox);
	sv_budget_arm(sv, sandbox);
}

struct sv_sandbox *sv_sandbox_find(const struct supervisor *sv, const char *id)
{
	struct sv_sandbox *sandbox;

	HASH_FIND_STR(sv->sandboxes, id, sandbox);
	return sandbox;
}

struct sv_sandbox *sv_sandbox_add(struct supervisor *sv, const char *id)
{
	struct sv_sandbox *sandbox = calloc(1, sizeof(*sandbox));

	if (sandbox) {
		memcpy(sandbox->journal.sandbox, id, sizeof(sandbox->journal.sandbox));
		HASH_ADD_STR(sv->sandboxes, journal.sandbox, sandbox);
	}
	if (!sandbox || !sandbox->hh.tbl) {
		free(sandbox);
		sv->out->no_memory = true;
		return NULL;
	}
	sandbox->deadline_usec = sandbox->snapshot_deadline_usec = sandbox->budget_deadline_usec = NEVER;
	sandbox->report_due_usec = NEVER;
	sv_stage_begin(sv, sandbox);
	return sandbox;
}

void sv_sandbox_remove(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	reconcile_forget(sv->reconcile, sandbox->journal.sandbox);
	sv_usage_end(sv, sandbox);
	HASH_DEL(sv->sandboxes, sandbox);
	sv_journal_deinit(&sandbox->journal);
	spec_unref(sandbox->former_spec);
	free(sandbox);
}

/* ---- stages ---- */

void sv_stage_begin(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sandbox->stage_began_us = sv->now.real_usec;
	sandbox->stage_began_usec = sv->now.mono_usec;
}

static struct stage_record *stage_slot(struct sv_journal *journal)
{
	struct stage_record *grown;

	if (journal->n_stages == STAGES_MAX)
		return NULL;
	grown = realloc(journal->stages, (journal->n_stages + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	journal->stages = grown;
	memset(&grown[journal->n_stages], 0, sizeof(*grown));
	return &grown[journal->n_stages++];
}

void sv_stage_end(struct supervisor *sv, struct sv_sandbox *sandbox, enum fail_stage stage,
	enum outcome outcome, const char *reason, const struct err *failure)
{
	struct sv_journal *journal = &sandbox->journal;
	struct stage_record *record = stage_slot(journal);
	struct sv_action *action;

	if (!record) {
		sv->out->no_memory = true;
		return;
	}
	record->stage = stage;
	record->outcome = outcome;
	record->began_us = sandbox->stage_began_us;
	record->took_us =
		outcome == RESULT_SKIPPED ? 0 : sv->now.mono_usec - sandbox->stage_began_usec;
	record->attempt = journal->attempt;
	record->generation = journal->generation;
	memcpy(record->sandbox, journal->sandbox, sizeof(record->sandbox));
	memcpy(record->node, sv->node, sizeof(record->node));
	memcpy(record->operation, journal->operation, sizeof(record->operation));
	if (*journal->trace.trace_id)
		trace_child(sv->rng, &journal->trace, &record->trace);
	(void)snprintf(record->reason, sizeof(record->reason), "%s", reason ? reason : "");
	if (failure)
		record->failure = *failure;
	if (outcome != RESULT_SKIPPED)
		sv_stage_begin(sv, sandbox);
	action = sv_emit(sv, SV_DO_STAGE, sandbox);
	if (!action)
		return;
	action->stage = malloc(sizeof(*action->stage));
	if (action->stage)
		*action->stage = *record;
	else
		sv->out->no_memory = true;
}
