/* SPDX-License-Identifier: Apache-2.0
 *
 * To sleep and awake again, on the same node.
 *
 *   RUNNING -> PAUSING -> SLEEPING -> PAUSED -> WAKE_NETWORK -> WAKE_VMM -> WAKE_GUEST -> THAWING -> RUNNING
 *                 |  \        ^                      |              |           |          ^
 *                 |   \       +----------------------+--------------+-----------+          |
 *                 |    +--- it could not be written: as before ----------------------------+
 *
 * What is true at each moment, whoever is killed: until SLEEPING is journalled the VM is the sandbox, and an agent that
 * comes back thaws it; from then on the snapshot is, and it is ended. The guest's processes and file system stay frozen
 * from the snapshot until THAWING is journalled, so the disk is the snapshot's and a wake that fails before goes back to
 * sleep. From then on the VM is the sandbox again. A paused one outlives its host: nothing of it is in memory.
 */
#include <string.h>

#include "core/internal.h"

#define REMOVALS_MAX 12
#define AUTO_PAUSES_MAX 5
#define AUTO_PAUSE_AGAIN (60 * USEC_PER_SEC)

bool sv_is_asleep(enum sv_state state)
{
	return state >= SV_SLEEPING && state <= SV_WAKE_GUEST;
}

bool sv_has_no_vm(const struct sv_sandbox *sandbox)
{
	const struct sv_journal *journal = &sandbox->journal;

	return !sandbox->is_bad &&
	       (journal->state == SV_PAUSED || (journal->state == SV_REMOVING && !*journal->vmm.run_dir));
}

/* ---- what is told ---- */

/* A life may have many sleeps: of each kind the last is kept. */
static void note(struct supervisor *sv, struct sv_sandbox *sandbox, enum fail_stage stage, const struct err *failure)
{
	struct sv_journal *journal = &sandbox->journal;
	size_t n = 0;

	for (size_t i = 0; i < journal->n_stages; i++)
		if (journal->stages[i].stage != stage)
			journal->stages[n++] = journal->stages[i];
	journal->n_stages = n;
	sv_stage_end(sv, sandbox, stage, failure ? RESULT_FAILED : RESULT_OK, NULL, failure);
}

/* Whoever asked is told that it was not done. */
static void answer(struct sv_sandbox *sandbox, const struct err *failure)
{
	if (!*sandbox->sleep_operation)
		return;
	memcpy(sandbox->journal.updated, sandbox->sleep_operation, sizeof(sandbox->journal.updated));
	sandbox->update_failure = *failure;
	memset(sandbox->sleep_operation, 0, sizeof(sandbox->sleep_operation));
}

static void forget(struct sv_sandbox *sandbox)
{
	memset(sandbox->sleep_operation, 0, sizeof(sandbox->sleep_operation));
	sandbox->sleep_failure = (struct err)ERR_NULL;
	sandbox->journal.is_waking = false;
}

static void end_failed(struct supervisor *sv, struct sv_sandbox *sandbox, enum fail_stage stage, const struct err *err)
{
	struct err failure = *err;

	failure.stage = stage;
	note(sv, sandbox, stage, &failure);
	sv_end(sv, sandbox, END_FAILED, &failure);
}

/* ---- to sleep ---- */

static void snapshot(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct sv_action *action = sv_emit(sv, SV_DO_SNAPSHOT, sandbox);

	if (!action)
		return;
	action->vmm = sandbox->journal.vmm;
	action->spec = spec_ref(sandbox->journal.spec);
}

static void begin(struct supervisor *sv, struct sv_sandbox *sandbox, const char *operation)
{
	forget(sandbox);
	memcpy(sandbox->sleep_operation, operation, strlen(operation) + 1);
	sv_stage_begin(sv, sandbox);
	sv_sandbox_move(sv, sandbox, SV_PAUSING);
	sv_emit_journal(sv, sandbox, SV_WRITE_PAUSE);
	snapshot(sv, sandbox);
}

void sv_on_pause(struct supervisor *sv, const struct pause_command *command)
{
	struct sv_sandbox *sandbox = sv_sandbox_find(sv, command->sandbox);
	struct sv_journal *journal;

	if (!sandbox || sandbox->is_bad || sandbox->journal.generation != command->generation)
		return;
	journal = &sandbox->journal;
	if (journal->state == SV_PAUSING || sandbox->former_spec || sandbox->opening || journal->is_snapshotting)
		return; /* one after the other: the command comes again */
	if (journal->state != SV_RUNNING || !strcmp(journal->updated, command->operation) ||
		sv_is_overtaken(sandbox, command->number)) {
		sv_report_again(sv, sandbox);
		return;
	}
	journal->update_number = MAX(journal->update_number, command->number);
	begin(sv, sandbox, command->operation);
}

void sv_pause_now(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	begin(sv, sandbox, "");
}

bool sv_pause_at_end(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	if (!sandbox->journal.spec->auto_pause || sandbox->auto_pauses == AUTO_PAUSES_MAX)
		return false;
	/* one after the other; also behind a snapshot that is stuck: its end would be taken for the pause's */
	if (sandbox->former_spec || sandbox->opening || sandbox->journal.is_snapshotting) {
		sandbox->deadline_usec = sv->now.mono_usec + USEC_PER_SEC;
		return true;
	}
	sandbox->auto_pauses++;
	begin(sv, sandbox, "");
	return true;
}

/* The VM goes on as it was. */
static void thaw(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sv_sandbox_move(sv, sandbox, SV_THAWING);
	sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
	(void)sv_emit(sv, SV_DO_CANCEL, sandbox);
	sv_emit_vmm(sv, SV_DO_THAW, sandbox);
}

static void not_written(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	sandbox->sleep_failure = *err;
	sandbox->sleep_failure.stage = STAGE_PAUSE;
	thaw(sv, sandbox);
}

/* From here on the snapshot is the sandbox. */
static void written(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	if (err && err_is_set(err)) {
		not_written(sv, sandbox, err);
		return;
	}
	sv_sandbox_move(sv, sandbox, SV_SLEEPING);
	sv_emit_journal(sv, sandbox, SV_WRITE_PAUSE);
	(void)sv_emit(sv, SV_DO_UNROUTE, sandbox);
	sv_emit_vmm(sv, SV_DO_KILL_VMM, sandbox);
}

/* The VMM is gone: so go its network slot, control group and run directory. */
static void tidy(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct sv_action *action = sv_emit(sv, SV_DO_REMOVE_FILES, sandbox);

	sandbox->vmm_seen = sandbox->awaits_lease = false;
	sandbox->lease_until_usec = 0;
	sandbox->removals++;
	sandbox->deadline_usec = sv->now.mono_usec + sv->config.disk_timeout_usec;
	if (action)
		action->keep_disk = action->keep_snapshot = true;
}

static void asleep(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct sv_journal *journal = &sandbox->journal;

	if (!sandbox->journal.is_waking)
		note(sv, sandbox, STAGE_PAUSE, NULL);
	else if (err_is_set(&sandbox->sleep_failure))
		note(sv, sandbox, STAGE_RESUME, &sandbox->sleep_failure);
	if (sandbox->journal.is_waking && err_is_set(&sandbox->sleep_failure))
		answer(sandbox, &sandbox->sleep_failure);
	forget(sandbox);
	memset(&journal->vmm, 0, sizeof(journal->vmm));
	memcpy(journal->vmm.host_boot_id, sv->config.host_boot_id, sizeof(journal->vmm.host_boot_id));
	journal->life_end_mono_us = 0; /* sleep costs no time */
	sv->capacity_changed |= journal->frozen.n > 0;
	journal->frozen.n = 0; /* its snapshot has all of its memory */
	sandbox->auto_pauses = 0;
	sv_snapshot_forget(sandbox);
	sv_sandbox_move(sv, sandbox, SV_PAUSED);
	sv_emit_journal(sv, sandbox, SV_WRITE_PAUSE); /* else a restart of the agent would take back what is told now */
	sv_report(sv, sandbox);
}

/* That it sleeps is not on disk, so nobody was told: again later. */
static void asleep_again(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sv_sandbox_move(sv, sandbox, SV_SLEEPING);
	sandbox->journal.is_waking = true; /* what there is to tell of it was noted */
	sandbox->removals = 0;
	sandbox->deadline_usec = sv->now.mono_usec + sv->config.remove_retry_usec;
}

void sv_sleep_removed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	bool is_removed = !err || !err_is_set(err);

	if (sandbox->vmm_seen)
		return; /* of a removal before */
	if (!is_removed && sandbox->removals < REMOVALS_MAX) {
		sandbox->deadline_usec = sv->now.mono_usec + sv->config.remove_retry_usec;
		return;
	}
	if (!is_removed)
		sv_emit_event(sv, "files-left", sandbox, err);
	asleep(sv, sandbox);
}

/* ---- to wake ---- */

/* Nothing was written to its disk yet: it sleeps as before. */
static void back_to_sleep(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	sv_usage_failed(sv, sandbox, err);
	sandbox->journal.is_waking = true;
	sandbox->sleep_failure = *err;
	sandbox->sleep_failure.stage = STAGE_RESUME;
	sandbox->awaits_lease = false;
	sandbox->removals = 0;
	sv_sandbox_move(sv, sandbox, SV_SLEEPING);
	sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
	(void)sv_emit(sv, SV_DO_CANCEL, sandbox);
	if (sandbox->vmm_seen)
		sv_emit_vmm(sv, SV_DO_KILL_VMM, sandbox);
	else
		tidy(sv, sandbox);
}

void sv_on_resume(struct supervisor *sv, const struct resume_command *command)
{
	struct sv_sandbox *sandbox = sv_sandbox_find(sv, command->sandbox);
	struct sv_journal *journal;
	struct err err = ERR_NULL;

	if (!sandbox || sandbox->is_bad || sandbox->journal.generation != command->generation)
		return;
	journal = &sandbox->journal;
	if (sv_is_asleep(journal->state) && journal->state != SV_PAUSED)
		return; /* it is under way, or comes again when it sleeps */
	if (journal->state != SV_PAUSED || !strcmp(journal->updated, command->operation) ||
		sv_is_overtaken(sandbox, command->number)) {
		sv_report_again(sv, sandbox);
		return;
	}
	journal->update_number = MAX(journal->update_number, command->number);
	forget(sandbox);
	memcpy(sandbox->sleep_operation, command->operation, sizeof(sandbox->sleep_operation));
	sv_stage_begin(sv, sandbox);
	if (command->has_budget)
		sv_budget_woken(sv, sandbox, &command->budget);
	if (sv_budget_check(sandbox, &err) < 0 || sv_admit_wake(sv, sandbox, &err) < 0) {
		err.stage = STAGE_RESUME;
		note(sv, sandbox, STAGE_RESUME, &err);
		answer(sandbox, &err);
		sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
		sv_report(sv, sandbox);
		return;
	}
	sandbox->journal.is_waking = true;
	sandbox->removals = 0;
	journal->life_end_mono_us = command->timeout_s ? sv->now.mono_usec + command->timeout_s * USEC_PER_SEC : 0;
	sv_sandbox_move(sv, sandbox, SV_WAKE_NETWORK);
	sv_canary_make_room(sv);
	sv_emit_journal(sv, sandbox, SV_WRITE_WAKE);
	sv_emit_spec(sv, SV_DO_MAKE_NETWORK, sandbox);
}

static void network_done(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	if (err && err_is_set(err)) {
		back_to_sleep(sv, sandbox, err);
		return;
	}
	sv_sandbox_move(sv, sandbox, SV_WAKE_VMM);
	sv_name_run_dir(sv, sandbox);
	sv_emit_journal(sv, sandbox, SV_WRITE_WAKE);
	sv_emit_vmm(sv, SV_DO_SPAWN_VMM, sandbox);
}

static void spawned(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	if (event->spawned.err && err_is_set(event->spawned.err))
		back_to_sleep(sv, sandbox, event->spawned.err);
	else if (sandbox->journal.vmm.pid == 0) {
		sv_take_vmm(&sandbox->journal.vmm, event->spawned.vmm);
		sv_emit_journal(sv, sandbox, SV_WRITE_WAKE);
	}
}

static void jailed(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	if (sandbox->is_jailed || sandbox->journal.vmm.pid == 0)
		return;
	sandbox->is_jailed = true;
	sv_lease_start(sv, sandbox);
}

static void started(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sv_sandbox_move(sv, sandbox, SV_WAKE_GUEST);
	sv_emit_spec(sv, SV_DO_WAKE_GUEST, sandbox);
}

/* From here on the VM is the sandbox: its guest writes to the disk. */
static void configured(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	if (err && err_is_set(err)) {
		back_to_sleep(sv, sandbox, err);
		return;
	}
	/* It was done, also for who hears of it only when it sleeps again. */
	if (*sandbox->sleep_operation)
		memcpy(sandbox->journal.updated, sandbox->sleep_operation, sizeof(sandbox->journal.updated));
	sandbox->update_failure = (struct err)ERR_NULL;
	sv_sandbox_move(sv, sandbox, SV_THAWING);
	if (!PLANTED(THAWED_BEFORE_JOURNAL))
		sv_emit_journal(sv, sandbox, SV_WRITE_WAKE);
	sv_emit_vmm(sv, SV_DO_THAW, sandbox);
}

/* The VM runs on after a pause that was not done. A guest that hangs, or is older, and did not answer the freeze either, is
 * no reason to end it. */
static bool goes_on(const struct sv_sandbox *sandbox, const struct err *err)
{
	return !sandbox->journal.is_waking && (err->code == FAIL_GUEST_UNREACHABLE || err->code == FAIL_GUEST_PROTOCOL);
}

static void awake(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	struct sv_journal *journal = &sandbox->journal;

	if (err && err_is_set(err) && !goes_on(sandbox, err)) {
		end_failed(sv, sandbox, sandbox->journal.is_waking ? STAGE_RESUME : STAGE_PAUSE, err);
		return;
	}
	if (err && err_is_set(err))
		sv_emit_event(sv, "guest-not-thawed", sandbox, err);
	if (sandbox->journal.is_waking) {
		note(sv, sandbox, STAGE_RESUME, NULL);
		sandbox->auto_pauses = 0;
	} else if (err_is_set(&sandbox->sleep_failure)) {
		note(sv, sandbox, STAGE_PAUSE, &sandbox->sleep_failure);
		answer(sandbox, &sandbox->sleep_failure);
	}
	if (journal->life_end_mono_us && journal->life_end_mono_us <= sv->now.mono_usec && journal->spec->auto_pause)
		journal->life_end_mono_us = sv->now.mono_usec + AUTO_PAUSE_AGAIN;
	forget(sandbox);
	sv_sandbox_move(sv, sandbox, SV_RUNNING);
	sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
	(void)sv_emit(sv, SV_DO_DROP_SNAPSHOT, sandbox);
	sv_emit_route(sv, sandbox, true);
	sv_report(sv, sandbox);
}

/* ---- results, ends, deadlines ---- */

static void adopted(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	struct err err = ERR_NULL;

	if (event->guest.err && err_is_set(event->guest.err)) {
		(void)err_set_at(&err, STAGE_PAUSE, FAIL_VM_VANISHED, 0,
			"The VM was not there when the agent came back: %s", event->guest.err->msg);
		end_failed(sv, sandbox, STAGE_PAUSE, &err);
		return;
	}
	if (event->guest.lease_left_ms > 0)
		sandbox->lease_until_usec =
			sv->now.boot_usec + (int64_t)event->guest.lease_left_ms * USEC_PER_MSEC;
	sv_emit_event(sv, "sandbox-adopted", sandbox, NULL);
	sv_emit_vmm(sv, SV_DO_THAW, sandbox);
}

bool sv_sleep_result(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	enum sv_state state = sandbox->journal.state;

	if (event->type == SV_EV_SNAPSHOT_DONE && state == SV_PAUSING)
		written(sv, sandbox, event->err);
	else if (event->type == SV_EV_NETWORK_DONE && state == SV_WAKE_NETWORK)
		network_done(sv, sandbox, event->network.err);
	else if (event->type == SV_EV_VMM_SPAWNED && state == SV_WAKE_VMM)
		spawned(sv, sandbox, event);
	else if (event->type == SV_EV_VMM_JAILED && state == SV_WAKE_VMM)
		jailed(sv, sandbox);
	else if (event->type == SV_EV_VMM_STARTED && state == SV_WAKE_VMM && sandbox->is_jailed)
		started(sv, sandbox);
	else if (event->type == SV_EV_GUEST_CONFIGURED && state == SV_WAKE_GUEST)
		configured(sv, sandbox, event->err);
	else if (event->type == SV_EV_ADOPTED && state == SV_THAWING)
		adopted(sv, sandbox, event);
	else if (event->type == SV_EV_THAWED && state == SV_THAWING)
		awake(sv, sandbox, event->err);
	else
		return false;
	return true;
}

void sv_sleep_exit(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	sandbox->vmm_seen = false;
	if (sandbox->journal.state == SV_SLEEPING)
		tidy(sv, sandbox);
	else
		back_to_sleep(sv, sandbox, err);
}

void sv_sleep_journal_failed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	enum sv_state state = sandbox->journal.state;
	struct err why = ERR_NULL;

	(void)err_set_at(&why, STAGE_PAUSE, FAIL_STATE_WRITE_FAILED, err ? err->err_no : 0,
		"The command could not be journalled: %s", err ? err->msg : "");
	if (state == SV_PAUSED) {
		asleep_again(sv, sandbox);
		return;
	}
	if (state == SV_SLEEPING && !sandbox->vmm_seen)
		return; /* its VMM ended meanwhile: there is only the snapshot */
	if (state == SV_SLEEPING && !sandbox->journal.is_waking) /* what failed may be on disk: it must not be woken from */
		(void)sv_emit(sv, SV_DO_DROP_SNAPSHOT, sandbox);
	if (state == SV_PAUSING || (state == SV_SLEEPING && !sandbox->journal.is_waking))
		not_written(sv, sandbox, &why);
	else if (sv_is_asleep(state) || (state == SV_THAWING && sandbox->journal.is_waking))
		back_to_sleep(sv, sandbox, &why);
}

static void sleeping_too_long(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct err err = ERR_NULL;

	if (!sandbox->vmm_seen) {
		tidy(sv, sandbox);
		return;
	}
	(void)err_set_at(&err, STAGE_PAUSE, FAIL_STOP_TIMEOUT, 0, "The VMM process did not end after SIGKILL.");
	sv_emit_event(sv, "sandbox-stuck", sandbox, &err);
	sandbox->deadline_usec = sv->now.mono_usec + sv->config.kill_timeout_usec;
	sv_emit_vmm(sv, SV_DO_KILL_VMM, sandbox);
}

/* A pause that came to nothing, of a VM that has not gone on yet: it may still write the snapshot that nobody wants any more.
 * A healthy sandbox is not ended for that; it is asked again, and somebody may look. */
static void thawing_too_long(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct err err = ERR_NULL;

	(void)err_set_at(&err, STAGE_PAUSE, FAIL_GUEST_TIMEOUT, 0, "A sandbox whose pause failed does not go on yet.");
	sv_emit_event(sv, "sandbox-stuck", sandbox, &err);
	thaw(sv, sandbox);
}

void sv_sleep_deadline(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	enum sv_state state = sandbox->journal.state;
	struct err err = ERR_NULL;

	if (state == SV_SLEEPING) {
		sleeping_too_long(sv, sandbox);
	} else if (state == SV_PAUSING) {
		(void)err_set(&err, FAIL_PAUSE_FAILED, 0, "The snapshot was not written in time.");
		not_written(sv, sandbox, &err);
	} else if (state == SV_THAWING && !sandbox->journal.is_waking) {
		thawing_too_long(sv, sandbox);
	} else if (state == SV_THAWING) {
		(void)err_set_at(&err, STAGE_RESUME, FAIL_GUEST_TIMEOUT, 0, "croft-guest did not thaw in time.");
		end_failed(sv, sandbox, STAGE_RESUME, &err);
	} else if (state != SV_PAUSED) {
		if (sandbox->awaits_lease)
			(void)err_set_at(&err, STAGE_RESUME, FAIL_LEASE_EXPIRED, 0,
				"The scheduler gave the VM no lease in time.");
		else if (state == SV_WAKE_NETWORK)
			(void)err_set_at(&err, STAGE_RESUME, FAIL_HELPER_UNAVAILABLE, 0,
				"The network slot was not made in time.");
		else if (state == SV_WAKE_VMM)
			(void)err_set_at(&err, STAGE_RESUME, FAIL_VMM_UNRESPONSIVE, 0,
				"The VMM did not start the guest in time.");
		else
			(void)err_set_at(&err, STAGE_RESUME, FAIL_GUEST_TIMEOUT, 0,
				"croft-guest did not answer in time.");
		back_to_sleep(sv, sandbox, &err);
	}
}

/* ---- after a restart of the agent, or of the host ---- */

static void lost(struct supervisor *sv, struct sv_sandbox *sandbox, enum fail_code code, const char *why)
{
	struct err err = ERR_NULL;

	(void)err_set_at(&err, STAGE_PAUSE, code, 0, "%s", why);
	end_failed(sv, sandbox, STAGE_PAUSE, &err);
}

void sv_sleep_resume(struct supervisor *sv, struct sv_sandbox *sandbox, bool other_boot)
{
	struct sv_journal *journal = &sandbox->journal;

	sandbox->vmm_seen = sandbox->vmm_seen && journal->state != SV_PAUSED;
	if (sv_is_asleep(journal->state))
		sv_snapshot_forget(sandbox);
	if (sv_is_asleep(journal->state) && journal->has_no_snapshot) {
		/* one that was ended while the disk was full, for example */
		lost(sv, sandbox, FAIL_VM_VANISHED, "The snapshot's files are gone.");
	} else if (journal->state == SV_PAUSED) {
		sandbox->report_due_usec = sv->now.mono_usec;
	} else if (sv_is_asleep(journal->state)) { /* whoever asked to wake it asks again */
		sandbox->journal.is_waking = journal->state != SV_SLEEPING;
		journal->state = SV_SLEEPING;
		sandbox->deadline_usec = sv->now.mono_usec + sv->config.kill_timeout_usec;
		if (sandbox->vmm_seen)
			sv_emit_vmm(sv, SV_DO_KILL_VMM, sandbox);
		else
			tidy(sv, sandbox);
	} else if (other_boot) {
		lost(sv, sandbox, FAIL_HOST_REBOOT, "The host was rebooted while the sandbox was being paused.");
	} else {
		journal->state = SV_THAWING;
		sandbox->deadline_usec = sv->now.mono_usec + sv->config.pause_timeout_usec;
		sv_emit_vmm(sv, SV_DO_ADOPT_VMM, sandbox);
	}
}
