/* SPDX-License-Identifier: Apache-2.0
 *
 * Teardown, always in the same order and from any state: intent to the journal, route closed, acts cancelled, VMM
 * ended and seen to be gone, files removed, tombstone, report. It needs no free disk: its journal writes are best
 * effort, because an agent that crashes here finds an older state and ends it the same way.
 */
#include <stdio.h>
#include <string.h>

#include "core/internal.h"

#define REMOVALS_MAX 12

void sv_kill(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sv_sandbox_move(sv, sandbox, SV_KILLING);
	sv_emit_vmm(sv, SV_DO_KILL_VMM, sandbox);
}

static void to_removing(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sv_sandbox_move(sv, sandbox, SV_REMOVING);
	sv_remove_files(sv, sandbox);
}

void sv_end(struct supervisor *sv, struct sv_sandbox *sandbox, enum end_reason reason,
	const struct err *failure)
{
	enum sv_state state = sandbox->journal.state;
	bool has_half;

	if (sv_is_ending(state))
		return;
	has_half = sv_snapshot_give_up(sv, sandbox);
	sv_usage_failed(sv, sandbox, reason == END_FAILED ? failure : NULL);
	sv_keep_judge(sv, sandbox, reason == END_FAILED ? failure : NULL);
	sandbox->journal.end_reason = reason;
	if (failure)
		sandbox->journal.failure = *failure;
	sandbox->awaits_lease = false;
	sandbox->ending_usec = sv->now.mono_usec;
	sv_stage_begin(sv, sandbox);
	if (!sandbox->vmm_seen) {
		sv_sandbox_move(sv, sandbox, SV_REMOVING);
		sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
		(void)sv_emit(sv, SV_DO_CANCEL, sandbox);
		sv_report(sv, sandbox);
		sv_remove_files(sv, sandbox);
		return;
	}
	sv_sandbox_move(sv, sandbox, SV_STOPPING);
	sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
	(void)sv_emit(sv, SV_DO_UNROUTE, sandbox);
	(void)sv_emit(sv, SV_DO_CANCEL, sandbox);
	if (has_half)
		sv_snapshot_drop(sv, sandbox);
	sv_report(sv, sandbox);
	/* Only a guest that was up has something to say to a power button. */
	if (state == SV_RUNNING && sv->config.stop_grace_usec > 0)
		sv_emit_vmm(sv, SV_DO_STOP_VMM, sandbox);
	else
		sv_kill(sv, sandbox);
}

void sv_end_resume(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sandbox->ending_usec = sv->now.mono_usec;
	sv_stage_begin(sv, sandbox);
	sandbox->journal.report_version += VERSION_GAP;
	if (sandbox->journal.state == SV_KEPT || sandbox->journal.state == SV_DROPPING) {
		sandbox->journal.state = SV_DROPPING; /* who comes back promises nothing of it */
		sandbox->report_due_usec = sv->now.mono_usec;
		sv_remove_files(sv, sandbox);
		return;
	}
	if (sandbox->journal.state == SV_REMOVING ||
		strcmp(sandbox->journal.vmm.host_boot_id, sv->config.host_boot_id) != 0) {
		sandbox->journal.state = SV_REMOVING;
		sandbox->deadline_usec = sv->now.mono_usec;
		sv_remove_files(sv, sandbox);
		return;
	}
	sandbox->journal.state = SV_STOPPING;
	sv_kill(sv, sandbox);
}

/* SIGKILL did not help: the process hangs in the host's kernel. Its room stays taken; it is tried again. */
void sv_kill_timeout(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_STOP_TIMEOUT, 0, "The VMM process did not end after SIGKILL.");
	if (!err_is_set(&sandbox->journal.failure)) {
		sandbox->journal.failure = err;
		sv_report(sv, sandbox);
	}
	sv_emit_event(sv, "sandbox-stuck", sandbox, &err);
	sandbox->deadline_usec = sv->now.mono_usec + sv->config.kill_timeout_usec;
	sv_emit_vmm(sv, SV_DO_KILL_VMM, sandbox);
}

void sv_remove_files(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct sv_action *action = sv_emit(sv, SV_DO_REMOVE_FILES, sandbox);

	sandbox->removals++;
	sandbox->deadline_usec = sv->now.mono_usec + sv->config.disk_timeout_usec;
	if (action)
		action->keep_disk = sandbox->keeps;
}

void sv_on_removed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	bool is_removed = !err || err->code == FAIL_NONE, was_kept = sandbox->journal.state == SV_DROPPING;

	if (sandbox->journal.state == SV_SLEEPING)
		sv_sleep_removed(sv, sandbox, err);
	if (sandbox->journal.state != SV_REMOVING && !was_kept)
		return;
	if (!is_removed && sandbox->removals < REMOVALS_MAX) {
		sandbox->deadline_usec = sv->now.mono_usec + sv->config.remove_retry_usec;
		return;
	}
	if (!is_removed)
		sv_emit_event(sv, "files-left", sandbox, err);
	if (was_kept) {
		sv_sandbox_move(sv, sandbox, SV_ENDED);
		sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
		if (sandbox->report_due_usec == NEVER) /* its end was acknowledged while it was kept */
			sv_bury(sv, sandbox);
		return;
	}
	sv_stage_end(sv, sandbox, STAGE_STOP, is_removed ? RESULT_OK : RESULT_FAILED, NULL,
		is_removed ? NULL : err);
	if (is_removed && sandbox->keeps) {
		sv_keep(sv, sandbox);
		return;
	}
	sv_sandbox_move(sv, sandbox, SV_ENDED);
	sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
	sv_report(sv, sandbox);
}

/* ---- the VMM's end ---- */

struct exit_row {
	enum fail_code code;
	const char *what;
};

/* clang-format off */
static const struct exit_row exits[SV_EXIT_MAX_] = {
	[SV_EXIT_POWEROFF] = { FAIL_GUEST_EXITED, "The guest powered itself off." },
	[SV_EXIT_RESET] = { FAIL_GUEST_RESET, "The guest reset itself." },
	[SV_EXIT_PANIC] = { FAIL_GUEST_PANIC, "The guest kernel panicked." },
	[SV_EXIT_TRIPLE_FAULT] = { FAIL_GUEST_TRIPLE_FAULT, "The guest's CPU shut down." },
	[SV_EXIT_KVM_INTERNAL] = { FAIL_KVM_INTERNAL_ERROR, "KVM could not go on with this guest." },
	[SV_EXIT_HOST_MEMORY] = { FAIL_HOST_MEMORY_FAULT, "The host could not provide guest memory." },
	[SV_EXIT_STOPPED] = { FAIL_VMM_KILLED, "Something stopped the VMM over its control socket." },
	[SV_EXIT_SIGNAL] = { FAIL_VMM_KILLED, "Something on the host ended the VMM by a signal." },
	[SV_EXIT_START_FAILED] = { FAIL_VMM_START_FAILED, "The VMM could not start the guest." },
	[SV_EXIT_BUG] = { FAIL_VMM_CRASHED, "The VMM ended over its own mistake." },
	[SV_EXIT_KILLED] = { FAIL_VMM_KILLED, "Something on the host killed the VMM." },
	[SV_EXIT_CRASHED] = { FAIL_VMM_CRASHED, "The VMM ended without a word." },
	[SV_EXIT_SECCOMP] = { FAIL_SECCOMP_VIOLATION, "The VMM tried a system call that its filter forbids." },
	[SV_EXIT_LEASE] = { FAIL_LEASE_EXPIRED, "The VM ended itself: its lease was not renewed." },
	[SV_EXIT_VANISHED] = { FAIL_VM_VANISHED, "The VM is gone." },
};
/* clang-format on */

static enum fail_stage stage_of(const struct sv_sandbox *sandbox, bool reached_userspace)
{
	switch (sandbox->journal.state) {
	case SV_VMM:
		return reached_userspace ? STAGE_GUEST : STAGE_VMM;
	case SV_KERNEL:
		return reached_userspace ? STAGE_GUEST : STAGE_KERNEL;
	case SV_GUEST:
		return STAGE_GUEST;
	case SV_SETUP:
		return STAGE_SETUP;
	case SV_PAUSING:
		return STAGE_PAUSE;
	case SV_WAKE_VMM:
	case SV_WAKE_GUEST:
	case SV_THAWING:
		return STAGE_RESUME;
	case SV_SLEEPING:
	case SV_PAUSED:
	case SV_WAKE_NETWORK:
	case SV_IMAGE:
	case SV_DISK:
	case SV_NETWORK:
	case SV_RUNNING:
	case SV_ADOPTING:
	case SV_STOPPING:
	case SV_KILLING:
	case SV_REMOVING:
	case SV_KEPT:
	case SV_DROPPING:
	case SV_ENDED:
	case SV_STATE_MAX_:
		break;
	}
	return STAGE_RUN;
}

void sv_exit_failure(enum fail_stage stage, const struct sv_event *event, struct err *ret)
{
	enum sv_exit reason = event->exited.reason;

	/* A panic or reset before the first vCPU was seen to run is the kernel's all the same. */
	if (stage == STAGE_VMM && (reason == SV_EXIT_PANIC || reason == SV_EXIT_RESET ||
					  reason == SV_EXIT_TRIPLE_FAULT))
		stage = STAGE_KERNEL;
	if (event->exited.failure && event->exited.failure->code != FAIL_NONE) {
		*ret = *event->exited.failure;
		if (stage != STAGE_VMM)
			ret->stage = stage;
		return;
	}
	(void)err_set_at(ret, stage, exits[reason].code, 0, "%s", exits[reason].what);
	if (event->exited.signal)
		err_add(ret, "signal", "%d", event->exited.signal);
}

static void exit_failure(const struct sv_sandbox *sandbox, const struct sv_event *event, struct err *ret)
{
	sv_exit_failure(stage_of(sandbox, event->exited.reached_userspace), event, ret);
}

/* Unasked, in a state that waits for something else. */
static void ended_by_itself(
	struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	struct err err = ERR_NULL;
	bool off = sandbox->journal.state == SV_RUNNING && event->exited.reason == SV_EXIT_POWEROFF;
	bool has_half = sv_snapshot_give_up(sv, sandbox);

	exit_failure(sandbox, event, &err);
	sv_usage_failed(sv, sandbox, off ? NULL : &err);
	sv_keep_judge(sv, sandbox, off ? NULL : &err);
	if (off)
		sv_stage_end(sv, sandbox, STAGE_RUN, RESULT_OK, NULL, NULL);
	else
		sv_stage_end(sv, sandbox, err.stage, RESULT_FAILED, NULL, &err);
	sandbox->journal.end_reason = off ? END_GUEST : END_FAILED;
	if (!off)
		sandbox->journal.failure = err;
	sandbox->awaits_lease = false;
	sandbox->ending_usec = sv->now.mono_usec;
	sv_stage_begin(sv, sandbox);
	sv_sandbox_move(sv, sandbox, SV_REMOVING);
	sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
	(void)sv_emit(sv, SV_DO_UNROUTE, sandbox);
	(void)sv_emit(sv, SV_DO_CANCEL, sandbox);
	if (has_half)
		sv_snapshot_drop(sv, sandbox);
	sv_report(sv, sandbox);
	sv_remove_files(sv, sandbox);
}

void sv_on_exit(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	struct err err = ERR_NULL;

	switch (sandbox->journal.state) {
	case SV_STOPPING:
	case SV_KILLING:
		sandbox->vmm_seen = false;
		to_removing(sv, sandbox);
		return;
	case SV_VMM:
	case SV_KERNEL:
	case SV_GUEST:
	case SV_SETUP:
	case SV_RUNNING:
	case SV_ADOPTING:
	case SV_PAUSING:
	case SV_THAWING:
		sandbox->vmm_seen = false;
		ended_by_itself(sv, sandbox, event);
		return;
	case SV_SLEEPING:
	case SV_WAKE_VMM:
	case SV_WAKE_GUEST:
		exit_failure(sandbox, event, &err);
		sv_sleep_exit(sv, sandbox, &err);
		return;
	case SV_PAUSED:
	case SV_WAKE_NETWORK:
	case SV_IMAGE:
	case SV_DISK:
	case SV_NETWORK:
	case SV_REMOVING:
	case SV_KEPT:
	case SV_DROPPING:
	case SV_ENDED:
	case SV_STATE_MAX_:
		return;
	}
}
