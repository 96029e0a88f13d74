/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's own test VM: without image and disk, through the same acts as any start (slot, control group, jail, kernel,
 * croft-guest's hello), at most once in canary_usec, and not where a sandbox booted meanwhile, nor where there is no room for
 * one more sandbox. Where one fails another is tried soon; a node on which that fails too is not placed on until one boots,
 * or a sandbox does. Before the first is decided the node is not placed on either (CANARY_PENDING, for which requests wait),
 * unless sandboxes run there. What says nothing of the host (it is full) decides that nothing is held against it.
 *
 * It takes no room from a sandbox: one that would not fit beside it ends it, and that decides nothing.
 *
 *   idle -> clearing (a former agent's) -> network -> spawn -> boot -> clearing -> idle
 *
 * It is in no journal: its run directory has one name, so that whoever comes next clears it away first, and its lease ends
 * a VM whose agent is gone.
 */
#include <stdio.h>
#include <string.h>

#include "core/internal.h"

#define RUN_NAME "ca4a7000"
#define MEMORY_MIB 128
#define CLEAR_TRIES 3
#define AGAIN_USEC (10 * USEC_PER_SEC) /* after a first failure */

static bool failed(const struct err *err)
{
	return err && err->code != FAIL_NONE;
}

bool sv_is_canary(const char *sandbox)
{
	return strcmp(sandbox, SV_CANARY) == 0;
}

static struct sv_action *emit(struct supervisor *sv, enum sv_action_type type)
{
	struct sv_action *action = sv_emit(sv, type, NULL);

	if (action) {
		memcpy(action->sandbox, SV_CANARY, sizeof(action->sandbox));
		action->generation = sv->canary.number;
	}
	return action;
}

/* NULL: no memory. */
static struct sandbox_spec *spec_of(struct supervisor *sv)
{
	struct sandbox_spec *spec = spec_new();

	if (!spec) {
		sv->out->no_memory = true;
		return NULL;
	}
	spec->vcpus = 1;
	spec->memory_mib = MEMORY_MIB;
	return spec;
}

static void emit_with_spec(struct supervisor *sv, enum sv_action_type type)
{
	struct sv_action *action = emit(sv, type);

	if (!action)
		return;
	action->spec = spec_of(sv);
	if (!action->spec)
		return;
	action->vmm = sv->canary.vmm;
	if (type == SV_DO_START_VMM)
		action->lease = (struct sv_lease){ .length_ms = (uint32_t)(sv->canary.patience_usec / USEC_PER_MSEC),
			.until_usec = sv->now.boot_usec + sv->canary.patience_usec };
}

/* ---- the verdict ---- */

/* Nothing is held against the node for want of a first verdict any more. */
static void no_longer_pending(struct supervisor *sv)
{
	if (sv->canary.verdict.code != FAIL_CANARY_PENDING)
		return;
	sv->canary.verdict = (struct err)ERR_NULL;
	sv->capacity_changed = true;
	sv->canary.is_news = true;
}

static void decide(struct supervisor *sv, const struct err *failure)
{
	struct sv_canary *canary = &sv->canary;
	bool was_failed = canary->verdict.code == FAIL_CANARY_FAILED;
	bool is_first = !was_failed && !canary->is_doubted;

	canary->has_failed = failed(failure);
	canary->is_doubted = false;
	if (failed(failure) && failure_info(failure->code)->class == CLASS_CAPACITY) {
		no_longer_pending(sv);
		return;
	}
	if (failed(failure) && is_first) {
		canary->is_doubted = true;
		sv_emit_event(sv, "canary-again", NULL, failure);
		return;
	}
	no_longer_pending(sv);
	if (was_failed != failed(failure)) {
		sv->capacity_changed = true;
		canary->is_news = true;
	}
	canary->verdict = (struct err)ERR_NULL;
	if (!failed(failure)) {
		if (was_failed)
			sv_emit_event(sv, "canary-good", NULL, NULL);
		return;
	}
	(void)err_set(&canary->verdict, FAIL_CANARY_FAILED, failure->err_no, "Its test VM did not boot, at stage %s: %.160s",
		stage_name(failure->stage), failure->msg);
	err_add(&canary->verdict, "canary_code", "%s", failure_info(failure->code)->name);
	err_add(&canary->verdict, "canary_stage", "%s", stage_name(failure->stage));
	if (!was_failed)
		sv_emit_event(sv, "canary-failed", NULL, &canary->verdict);
}

const struct err *sv_canary_verdict(const struct supervisor *sv)
{
	return &sv->canary.verdict;
}

void sv_canary_saw_boot(struct supervisor *sv)
{
	if (sv->config.canary_usec == 0)
		return;
	if (sv->canary.state == CANARY_IDLE)
		sv->canary.deadline_usec = sv->now.mono_usec + sv->config.canary_usec;
	decide(sv, NULL);
	sv_canary_tell(sv);
}

void sv_canary_tell(struct supervisor *sv)
{
	if (!sv->canary.is_news)
		return;
	sv->canary.is_news = false;
	sv_unable_changed(sv);
}

/* ---- step by step ---- */

static void wait_for(struct supervisor *sv, enum sv_canary_state state, int64_t usec)
{
	sv->canary.state = state;
	sv->canary.deadline_usec = sv->now.mono_usec + usec;
}

static void clear(struct supervisor *sv, bool before)
{
	struct sv_action *action;

	sv->canary.is_before = before;
	wait_for(sv, CANARY_KILLING, sv->config.kill_timeout_usec);
	action = emit(sv, SV_DO_KILL_VMM);
	if (action)
		action->vmm = sv->canary.vmm;
}

/* What its console says is kept, of the last that failed. */
static void remove_files(struct supervisor *sv)
{
	struct sv_action *action;

	wait_for(sv, CANARY_REMOVING, sv->config.disk_timeout_usec);
	action = emit(sv, SV_DO_REMOVE_FILES);
	if (action)
		action->keep_evidence = sv->canary.has_failed;
}

static void finish(struct supervisor *sv, const struct err *failure)
{
	decide(sv, failure);
	sv_canary_tell(sv);
	clear(sv, false);
}

/* Beside what the node has given away, without taking from a sandbox. */
static bool fits(struct supervisor *sv)
{
	struct sandbox_spec *spec = sv->has_capacity ? spec_of(sv) : NULL;
	bool is_fit = !spec || sv_has_room(sv, spec);

	spec_unref(spec);
	return is_fit;
}

static void begin(struct supervisor *sv)
{
	struct sv_canary *canary = &sv->canary;

	if (!fits(sv)) {
		wait_for(sv, CANARY_IDLE, sv->config.canary_usec);
		no_longer_pending(sv);
		sv_canary_tell(sv);
		return;
	}
	canary->number++;
	canary->began_usec = sv->now.mono_usec;
	canary->tries = 0;
	canary->has_failed = false;
	canary->patience_usec = 2 * (sv->config.network_timeout_usec + sv->config.vmm_timeout_usec +
		sv->config.kernel_timeout_usec + sv->config.guest_timeout_usec);
	canary->vmm = (struct sv_vmm_id){ .pid = 0 };
	memcpy(canary->vmm.host_boot_id, sv->config.host_boot_id, sizeof(canary->vmm.host_boot_id));
	(void)snprintf(canary->vmm.run_dir, sizeof(canary->vmm.run_dir), "%s/" RUN_NAME, sv->config.run_base);
	clear(sv, true);
}

/* Nothing is left of it, or of a former one; or it cannot be helped now. */
static void cleared(struct supervisor *sv)
{
	struct sv_canary *canary = &sv->canary;

	(void)emit(sv, SV_DO_JOURNAL_REMOVE); /* there is none; the shell forgets it with this */
	if (canary->is_before) {
		wait_for(sv, CANARY_NETWORK, sv->config.network_timeout_usec);
		emit_with_spec(sv, SV_DO_MAKE_NETWORK);
		return;
	}
	canary->state = CANARY_IDLE;
	canary->deadline_usec = MAX(canary->began_usec + sv->config.canary_usec, sv->now.mono_usec + USEC_PER_SEC);
	if (canary->is_doubted)
		canary->deadline_usec = MIN(canary->deadline_usec, sv->now.mono_usec + AGAIN_USEC);
}

static void on_removed(struct supervisor *sv, const struct err *err)
{
	if (!failed(err)) {
		cleared(sv);
		return;
	}
	if (++sv->canary.tries < CLEAR_TRIES) {
		wait_for(sv, CANARY_REMOVING, sv->config.remove_retry_usec);
		return;
	}
	sv_emit_event(sv, "files-left", NULL, err);
	cleared(sv);
}

static void on_ended(struct supervisor *sv, const struct sv_event *event)
{
	struct sv_canary *canary = &sv->canary;
	struct err err = ERR_NULL;

	if (canary->state == CANARY_SPAWN || canary->state == CANARY_BOOT) {
		sv_exit_failure(canary->state == CANARY_SPAWN      ? STAGE_VMM
				: event->exited.reached_userspace ? STAGE_GUEST
								  : STAGE_KERNEL,
			event, &err);
		decide(sv, &err);
		sv_canary_tell(sv);
		canary->is_before = false;
	} else if (canary->state != CANARY_KILLING) {
		return;
	}
	(void)emit(sv, SV_DO_CANCEL);
	remove_files(sv);
}

static void on_spawned(struct supervisor *sv, const struct sv_event *event)
{
	if (failed(event->spawned.err))
		finish(sv, event->spawned.err);
	else
		sv_take_vmm(&sv->canary.vmm, event->spawned.vmm);
}

void sv_canary_event(struct supervisor *sv, const struct sv_event *event)
{
	struct sv_canary *canary = &sv->canary;

	if (event->generation != canary->number)
		return;
	if (event->type == SV_EV_VMM_EXITED) {
		on_ended(sv, event);
	} else if (event->type == SV_EV_REMOVED && canary->state == CANARY_REMOVING) {
		on_removed(sv, event->err);
	} else if (event->type == SV_EV_NETWORK_DONE && canary->state == CANARY_NETWORK) {
		if (failed(event->network.err)) {
			finish(sv, event->network.err);
			return;
		}
		wait_for(sv, CANARY_SPAWN, sv->config.vmm_timeout_usec);
		emit_with_spec(sv, SV_DO_SPAWN_VMM);
	} else if (event->type == SV_EV_VMM_SPAWNED && canary->state == CANARY_SPAWN) {
		on_spawned(sv, event);
	} else if (event->type == SV_EV_VMM_JAILED && canary->state == CANARY_SPAWN) {
		wait_for(sv, CANARY_BOOT, sv->config.kernel_timeout_usec + sv->config.guest_timeout_usec);
		emit_with_spec(sv, SV_DO_START_VMM);
	} else if (event->type == SV_EV_GUEST_HELLO && canary->state == CANARY_BOOT) {
		finish(sv, NULL); /* that it has no root is as it should be */
	}
}

void sv_canary_make_room(struct supervisor *sv)
{
	struct sv_canary *canary = &sv->canary;
	struct sandbox_spec *spec;
	bool has_memory;

	if (canary->state != CANARY_NETWORK && canary->state != CANARY_SPAWN && canary->state != CANARY_BOOT)
		return;
	spec = spec_of(sv);
	has_memory = !spec || sv_has_memory(sv, spec);
	spec_unref(spec);
	if (has_memory)
		return;
	canary->has_failed = false;
	no_longer_pending(sv);
	sv_canary_tell(sv);
	clear(sv, false);
}

static void timed_out(struct supervisor *sv, enum fail_stage stage, enum fail_code code, const char *what)
{
	struct err err = ERR_NULL;

	(void)err_set_at(&err, stage, code, 0, "%s", what);
	finish(sv, &err);
}

void sv_canary_tick(struct supervisor *sv)
{
	struct sv_canary *canary = &sv->canary;

	if (sv->now.mono_usec < canary->deadline_usec)
		return;
	switch (canary->state) {
	case CANARY_IDLE:
		begin(sv);
		break;
	case CANARY_NETWORK:
		timed_out(sv, STAGE_NETWORK, FAIL_HELPER_UNAVAILABLE, "the network slot was not made in time");
		break;
	case CANARY_SPAWN:
		timed_out(sv, STAGE_VMM, FAIL_VMM_UNRESPONSIVE, "the VMM did not confine itself in time");
		break;
	case CANARY_BOOT:
		timed_out(sv, STAGE_KERNEL, FAIL_KERNEL_TIMEOUT, "croft-guest was not heard in time");
		break;
	case CANARY_KILLING:
		clear(sv, canary->is_before);
		break;
	case CANARY_REMOVING:
		remove_files(sv);
		break;
	}
}

void sv_canary_init(struct supervisor *sv)
{
	sv->canary = (struct sv_canary){ .deadline_usec = NEVER, .verdict = ERR_NULL };
}

void sv_canary_start(struct supervisor *sv)
{
	const struct sv_sandbox *sandbox;

	if (sv->config.canary_usec == 0)
		return;
	sv->canary.deadline_usec = sv->now.mono_usec;
	for (sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next)
		if (!sandbox->is_bad && sandbox->journal.state == SV_ADOPTING) /* it booted, and is there */
			sv->canary.deadline_usec = sv->now.mono_usec + sv->config.canary_usec;
	if (sv->canary.deadline_usec == sv->now.mono_usec)
		(void)err_set(&sv->canary.verdict, FAIL_CANARY_PENDING, 0, "The node boots its first test VM.");
}
