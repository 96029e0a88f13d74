/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sandbox may use, and what becomes of one that has: it is paused or ended, by its node, whether the scheduler can be
 * reached or not. Running time and memory are known without a look at the VM, so that their end is a deadline; CPU and egress
 * are compared with each reading, which the shell makes often where there is such a budget (SV_BUDGET_READ_USEC). What was used is the
 * account's (usage.c), which outlives the agent: so does what is left.
 *
 * A budget counts one generation: a sandbox that is replaced on another node begins anew there.
 */
#include <errno.h>
#include <string.h>

#include "core/internal.h"

#define BUSY_USEC (100 * USEC_PER_MSEC)
#define PAUSES_MAX 3

struct line {
	const char *name;
	uint64_t limit, used;
};
#define LINES 4

static void lines_of(const struct sv_sandbox *sandbox, struct line ret[static LINES])
{
	const struct budget *budget = &sandbox->journal.spec->budget;
	const struct usage_record *used = &sandbox->account->meter.used;

	ret[0] = (struct line){ "cpu_us", budget->cpu_us, used->cpu_us };
	ret[1] = (struct line){ "memory_mib_ms", budget->memory_mib_ms, used->running_us / 1000 * used->memory_mib };
	ret[2] = (struct line){ "egress_bytes", budget->egress_bytes, used->egress_bytes };
	ret[3] = (struct line){ "wall_us", budget->wall_us, used->running_us };
}

static bool has_budget(const struct sv_sandbox *sandbox)
{
	return sandbox->account && sandbox->journal.spec && budget_is_set(&sandbox->journal.spec->budget);
}

int sv_budget_check(const struct sv_sandbox *sandbox, struct err *reterr)
{
	struct line lines[LINES];

	if (!has_budget(sandbox))
		return 0;
	lines_of(sandbox, lines);
	for (size_t i = 0; i < LINES; i++) {
		if (lines[i].limit == 0 || lines[i].used < lines[i].limit)
			continue;
		(void)err_set(reterr, FAIL_BUDGET_EXCEEDED, 0, "The budget's %s is used up: %llu of %llu.", lines[i].name,
			(unsigned long long)lines[i].used, (unsigned long long)lines[i].limit);
		err_add(reterr, "budget", "%s", lines[i].name);
		err_add(reterr, "limit", "%llu", (unsigned long long)lines[i].limit);
		err_add(reterr, "used", "%llu", (unsigned long long)lines[i].used);
		return -EDQUOT;
	}
	return 0;
}

/* How much longer it may run, by the clock alone. */
static uint64_t time_left(const struct sv_sandbox *sandbox)
{
	const struct budget *budget = &sandbox->journal.spec->budget;
	const struct usage_record *used = &sandbox->account->meter.used;
	uint64_t left = INT64_MAX / 2;

	if (budget->wall_us)
		left = MIN(left, budget->wall_us > used->running_us ? budget->wall_us - used->running_us : 0);
	if (budget->memory_mib_ms && used->memory_mib) {
		/* the first moment at which whole milliseconds of it come to the limit */
		const uint64_t at_us = (budget->memory_mib_ms + used->memory_mib - 1) / used->memory_mib * 1000;

		left = MIN(left, at_us > used->running_us ? at_us - used->running_us : 0);
	}
	return left;
}

void sv_budget_arm(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sandbox->budget_deadline_usec = NEVER;
	if (sandbox->journal.state != SV_RUNNING || !has_budget(sandbox))
		return;
	sandbox->budget_deadline_usec = sandbox->account->meter.since_usec + (int64_t)time_left(sandbox);
	if (sv_budget_check(sandbox, NULL) < 0)
		sandbox->budget_deadline_usec = sv->now.mono_usec;
}

/* Over; the VM goes on until it is frozen or killed, which begins now. */
static void exceeded(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	sandbox->budget_deadline_usec = NEVER;
	sv_emit_event(sv, "budget-exceeded", sandbox, err);
	sv_stage_begin(sv, sandbox);
	sv_stage_end(sv, sandbox, STAGE_RUN, RESULT_FAILED, NULL, err);
	if (sandbox->journal.spec->budget.pauses && sandbox->budget_pauses < PAUSES_MAX) {
		sandbox->budget_pauses++;
		sv_pause_now(sv, sandbox);
	} else {
		sv_end(sv, sandbox, END_FAILED, err);
	}
}

void sv_budget_look(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct err err = ERR_NULL;

	if (sandbox->journal.state != SV_RUNNING || !has_budget(sandbox))
		return;
	meter_sync(&sandbox->account->meter, &sv->now);
	if (sv_budget_check(sandbox, &err) == 0)
		sv_budget_arm(sv, sandbox);
	else if (sandbox->former_spec || sandbox->opening || sandbox->journal.is_snapshotting) /* one after the other */
		sandbox->budget_deadline_usec = sv->now.mono_usec + BUSY_USEC;
	else
		exceeded(sv, sandbox, &err);
}

void sv_on_budget_update(struct supervisor *sv, const struct budget_command *command)
{
	struct sv_sandbox *sandbox = sv_sandbox_find(sv, command->sandbox);
	struct sv_journal *journal;
	struct sandbox_spec *spec;

	if (!sandbox || sandbox->is_bad || sandbox->journal.generation != command->generation)
		return;
	journal = &sandbox->journal;
	if (journal->state != SV_RUNNING || !strcmp(journal->updated, command->operation) || sv_is_overtaken(sandbox, command->number)) {
		sv_report_again(sv, sandbox);
		return;
	}
	if (sandbox->former_spec)
		return; /* one after the other: the command comes again */
	spec = spec_with_budget(journal->spec, &command->budget);
	if (!spec) {
		sv->out->no_memory = true;
		return;
	}
	journal->update_number = MAX(journal->update_number, command->number);
	memcpy(journal->updated, command->operation, sizeof(journal->updated));
	sandbox->update_failure = (struct err)ERR_NULL;
	sandbox->former_budget = journal->spec->budget;
	spec_unref(journal->spec);
	journal->spec = spec;
	sandbox->budget_pauses = 0;
	sv_emit_journal(sv, sandbox, SV_WRITE_BUDGET);
	sv_report(sv, sandbox);
	sv_budget_arm(sv, sandbox);
}

/* It could not be journalled, and nobody was told. */
void sv_budget_undo(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct sandbox_spec *spec = spec_with_budget(sandbox->journal.spec, &sandbox->former_budget);

	memset(sandbox->journal.updated, 0, sizeof(sandbox->journal.updated));
	if (!spec) {
		sv->out->no_memory = true;
		return;
	}
	spec_unref(sandbox->journal.spec);
	sandbox->journal.spec = spec;
	sv_budget_arm(sv, sandbox);
}

/* A wake says what is in force then: it may have been changed while the sandbox slept. */
void sv_budget_woken(struct supervisor *sv, struct sv_sandbox *sandbox, const struct budget *budget)
{
	struct sandbox_spec *spec;

	if (budget_is_equal(&sandbox->journal.spec->budget, budget))
		return;
	spec = spec_with_budget(sandbox->journal.spec, budget);
	if (!spec) {
		sv->out->no_memory = true;
		return;
	}
	spec_unref(sandbox->journal.spec);
	sandbox->journal.spec = spec;
	sandbox->budget_pauses = 0;
}
