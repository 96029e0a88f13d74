/* SPDX-License-Identifier: Apache-2.0
 *
 * From accept to ready. Each state waits for one result; a result that no state waits for is ignored. The journal
 * is written where a crash must not forget: at accept, before a VMM may exist (with the place where it will be
 * found), when it exists, and before anybody is told that it is ready.
 */
#include <stdio.h>
#include <string.h>

#include "core/internal.h"

static void fail(struct supervisor *sv, struct sv_sandbox *sandbox, enum fail_stage stage,
	const struct err *err)
{
	sv_stage_end(sv, sandbox, stage, RESULT_FAILED, NULL, err);
	sv_end(sv, sandbox, END_FAILED, err);
}

static bool failed(const struct err *err)
{
	return err && err->code != FAIL_NONE;
}

/* ---- steps ---- */

void sv_start(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sandbox->journal.state = SV_IMAGE;
	sandbox->deadline_usec = sv->now.mono_usec + sv->config.image_timeout_usec;
	sandbox->accepting = sandbox->is_own_start = true;
	sv_usage_begin(sv, sandbox, false);
	if (PLANTED(ACK_BEFORE_JOURNAL))
		sv_report(sv, sandbox);
	sv_emit_journal(sv, sandbox, SV_WRITE_ACCEPT);
}

static void to_network(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sv_sandbox_move(sv, sandbox, SV_NETWORK);
	sv_report(sv, sandbox);
	sv_emit_spec(sv, SV_DO_MAKE_NETWORK, sandbox);
}

static void accepted(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	char text[64];

	sandbox->accepting = false;
	(void)snprintf(text, sizeof(text), "resumed_from=%s reused=disk", sv_state_name(sandbox->failed_in));
	sv_stage_end(sv, sandbox, STAGE_ACCEPT, RESULT_OK, sandbox->is_resumed ? text : NULL, NULL);
	sv_report(sv, sandbox);
	sv_emit_spec(sv, SV_DO_FETCH_IMAGE, sandbox);
}

static void image_done(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	if (failed(err)) {
		fail(sv, sandbox, STAGE_IMAGE, err);
		return;
	}
	sv_stage_end(sv, sandbox, STAGE_IMAGE, RESULT_OK, NULL, NULL);
	sv_sandbox_move(sv, sandbox, SV_DISK);
	if (sandbox->is_resumed) {
		sv_stage_end(sv, sandbox, STAGE_DISK, RESULT_SKIPPED, "reused: made by the attempt before", NULL);
		to_network(sv, sandbox);
		return;
	}
	sv_report(sv, sandbox);
	sv_emit_spec(sv, SV_DO_MAKE_DISK, sandbox);
}

void sv_name_run_dir(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct sv_vmm_id *vmm = &sandbox->journal.vmm;

	memset(vmm, 0, sizeof(*vmm));
	memcpy(vmm->host_boot_id, sv->config.host_boot_id, sizeof(vmm->host_boot_id));
	(void)snprintf(vmm->run_dir, sizeof(vmm->run_dir), "%s/%08llx", sv->config.run_base,
		(unsigned long long)(rng_u64(sv->rng) & 0xffffffff));
	sandbox->vmm_seen = true;
	sandbox->is_jailed = sandbox->awaits_lease = false;
	sandbox->lease_until_usec = 0;
}

static void disk_done(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	if (failed(err)) {
		fail(sv, sandbox, STAGE_DISK, err);
		return;
	}
	sv_stage_end(sv, sandbox, STAGE_DISK, RESULT_OK, NULL, NULL);
	to_network(sv, sandbox);
}

static void network_done(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	if (failed(event->network.err)) {
		fail(sv, sandbox, STAGE_NETWORK, event->network.err);
		return;
	}
	sv_stage_end(sv, sandbox, STAGE_NETWORK, event->network.is_made ? RESULT_OK : RESULT_SKIPPED,
		event->network.text, NULL);
	sv_sandbox_move(sv, sandbox, SV_VMM);
	sv_name_run_dir(sv, sandbox);
	sv_emit_journal(sv, sandbox, SV_WRITE_START);
	sv_report(sv, sandbox);
	sv_emit_vmm(sv, SV_DO_SPAWN_VMM, sandbox);
}

void sv_take_vmm(struct sv_vmm_id *vmm, const struct sv_vmm_id *spawned)
{
	vmm->pid = spawned->pid;
	vmm->start_ticks = spawned->start_ticks;
	memcpy(vmm->cgroup, spawned->cgroup, sizeof(vmm->cgroup));
}

static void spawned(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	struct sv_vmm_id *vmm = &sandbox->journal.vmm;

	if (failed(event->spawned.err)) {
		fail(sv, sandbox, STAGE_VMM, event->spawned.err);
		return;
	}
	if (vmm->pid != 0)
		return; /* twice */
	sv_take_vmm(vmm, event->spawned.vmm);
	sv_emit_journal(sv, sandbox, SV_WRITE_START);
	sv_emit_spec(sv, SV_DO_ROUTE, sandbox); /* ready false */
}

/* Nothing that a guest made is read before. A jail that is not whole is not ok: a skipped stage never counts as a
 * success, and its reason says what the host forbade. */
static void jailed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	if (sandbox->is_jailed || sandbox->journal.vmm.pid == 0)
		return;
	sandbox->is_jailed = true;
	sv_stage_end(sv, sandbox, STAGE_JAIL, event->jailed.is_whole ? RESULT_OK : RESULT_SKIPPED,
		event->jailed.text, NULL);
	sv_report(sv, sandbox);
	sv_lease_start(sv, sandbox);
}

/* It begins as a snapshot: nothing boots. */
static void restored(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct sv_action *action;

	if (!sandbox->is_jailed)
		return;
	sv_stage_end(sv, sandbox, STAGE_VMM, RESULT_OK, sandbox->journal.frozen.n > 0 ? "fork" : "restore", NULL);
	sv_stage_end(sv, sandbox, STAGE_KERNEL, RESULT_SKIPPED, "restore: it ran already", NULL);
	sv_sandbox_move(sv, sandbox, SV_GUEST);
	sandbox->hello_seen = true;
	sv_report(sv, sandbox);
	action = sv_emit(sv, SV_DO_WAKE_GUEST, sandbox);
	if (!action)
		return;
	action->spec = spec_ref(sandbox->journal.spec);
	action->is_new = true;
}

static bool is_restore(const struct sv_sandbox *sandbox)
{
	return *sandbox->journal.spec->snapshot != '\0';
}

static void to_kernel(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sv_stage_end(sv, sandbox, STAGE_VMM, RESULT_OK, NULL, NULL);
	sv_sandbox_move(sv, sandbox, SV_KERNEL);
	sv_report(sv, sandbox);
}

static void to_guest(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	if (sandbox->journal.state == SV_VMM)
		to_kernel(sv, sandbox);
	sv_stage_end(sv, sandbox, STAGE_KERNEL, RESULT_OK, NULL, NULL);
	sv_sandbox_move(sv, sandbox, SV_GUEST);
	sv_report(sv, sandbox);
}

/* croft-guest runs, so the kernel did its part, whichever event came first. */
static void guest_hello(
	struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	if (is_restore(sandbox))
		return; /* it said hello in another life */
	if (sandbox->journal.state == SV_VMM || sandbox->journal.state == SV_KERNEL)
		to_guest(sv, sandbox);
	if (sandbox->journal.state != SV_GUEST || sandbox->hello_seen)
		return;
	if (failed(event->guest.err)) {
		fail(sv, sandbox, STAGE_GUEST, event->guest.err);
		return;
	}
	sandbox->hello_seen = true;
	sv_canary_saw_boot(sv);
	(void)snprintf(sandbox->journal.guest_boot_id, sizeof(sandbox->journal.guest_boot_id), "%s",
		event->guest.boot_id);
	sv_emit_spec(sv, SV_DO_CONFIGURE_GUEST, sandbox);
}

void sv_start_warm(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	static const enum fail_stage done[] = { STAGE_IMAGE, STAGE_DISK, STAGE_NETWORK, STAGE_JAIL,
		STAGE_VMM, STAGE_KERNEL };

	sv_usage_begin(sv, sandbox, true);
	sv_stage_begin(sv, sandbox);
	sv_stage_end(sv, sandbox, STAGE_ACCEPT, RESULT_OK, NULL, NULL);
	for (size_t i = 0; i < ARRAY_LEN(done); i++)
		sv_stage_end(sv, sandbox, done[i], RESULT_SKIPPED, "warm: it ran already", NULL);
	sv_sandbox_move(sv, sandbox, SV_GUEST);
	sandbox->hello_seen = true;
	sv_emit_journal(sv, sandbox, SV_WRITE_START);
	(void)sv_emit(sv, SV_DO_UNROUTE, sandbox);
	sv_report(sv, sandbox);
	/* nothing of its new owner's reaches the guest before his network policy holds */
	sandbox->awaits_network = true;
	sv_emit_spec(sv, SV_DO_SET_NETWORK, sandbox);
}

static void network_set(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	if (sandbox->journal.state == SV_RUNNING) {
		sv_network_set(sv, sandbox, err);
		return;
	}
	if (sandbox->journal.state != SV_GUEST || !sandbox->awaits_network)
		return;
	sandbox->awaits_network = false;
	if (failed(err))
		fail(sv, sandbox, STAGE_NETWORK, err);
	else
		sv_emit_spec(sv, SV_DO_CONFIGURE_GUEST, sandbox);
}

static void ready(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct sv_journal *journal = &sandbox->journal;

	journal->ready_us = sv->now.real_usec;
	journal->life_end_mono_us =
		journal->spec->timeout_s
			? sv->now.mono_usec + journal->spec->timeout_s * USEC_PER_SEC
			: 0;
	sv_sandbox_move(sv, sandbox, SV_RUNNING);
	sandbox->opening = true;
	sv_emit_journal(sv, sandbox, SV_WRITE_READY);
}

static void opened(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sandbox->opening = false;
	sv_stage_end(sv, sandbox, STAGE_READY, RESULT_OK, NULL, NULL);
	sv_emit_route(sv, sandbox, true);
	sv_report(sv, sandbox);
}

/* Its processes go on: as who it is now. */
static void guest_ready(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	const struct sandbox_spec *spec = sandbox->journal.spec;
	struct sv_action *action;

	sv_stage_end(sv, sandbox, STAGE_GUEST, RESULT_OK, NULL, NULL);
	if (!spec->setup_command) {
		sv_stage_end(sv, sandbox, STAGE_SETUP, RESULT_SKIPPED, "no setup command", NULL);
		ready(sv, sandbox);
		return;
	}
	sv_sandbox_move(sv, sandbox, SV_SETUP);
	sv_report(sv, sandbox);
	action = sv_emit(sv, SV_DO_RUN_SETUP, sandbox);
	if (!action)
		return;
	action->spec = spec_ref(sandbox->journal.spec);
	action->timeout_usec = spec->setup_timeout_ms ? spec->setup_timeout_ms * USEC_PER_MSEC
						      : sv->config.setup_timeout_usec;
}

static void guest_failed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	struct err failure = *err;

	failure.stage = STAGE_GUEST;
	fail(sv, sandbox, STAGE_GUEST, &failure);
}

static void configured(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	if (failed(err)) {
		guest_failed(sv, sandbox, err);
	} else if (is_restore(sandbox) && !sandbox->took) {
		sandbox->awaits_thaw = true;
		sv_emit_vmm(sv, SV_DO_THAW, sandbox);
	} else {
		guest_ready(sv, sandbox);
	}
}

static void thawed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	sandbox->awaits_thaw = false;
	if (failed(err))
		guest_failed(sv, sandbox, err);
	else
		guest_ready(sv, sandbox);
}

static void setup_done(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	if (failed(err)) {
		fail(sv, sandbox, STAGE_SETUP, err);
		return;
	}
	sv_stage_end(sv, sandbox, STAGE_SETUP, RESULT_OK, NULL, NULL);
	ready(sv, sandbox);
}

/* ---- adoption ---- */

static bool has_been_ready(const struct sv_journal *journal)
{
	for (size_t i = 0; i < journal->n_stages; i++)
		if (journal->stages[i].stage == STAGE_READY)
			return true;
	return false;
}

static void adopted(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	const struct sv_journal *journal = &sandbox->journal;
	struct err err = ERR_NULL;

	if (failed(event->guest.err)) {
		(void)err_set(&err, FAIL_VM_VANISHED, 0,
			"The VM was not there when the agent came back: %s", event->guest.err->msg);
		sv_stage_end(sv, sandbox, STAGE_RUN, RESULT_FAILED, NULL, &err);
		sv_end(sv, sandbox, END_FAILED, &err);
		return;
	}
	if (event->guest.lease_left_ms > 0)
		sandbox->lease_until_usec =
			sv->now.boot_usec + (int64_t)event->guest.lease_left_ms * USEC_PER_MSEC;
	sv_sandbox_move(sv, sandbox, SV_RUNNING);
	if (event->guest.is_unforked) { /* else it may have frozen what the former agent had reserved */
		sv_frozen_unreserve(&sandbox->journal.frozen);
		sv->capacity_changed = true;
	}
	sv_snapshot_adopted(sv, sandbox);
	/* the former agent ended between the journal and its word: this one opens it */
	if (!has_been_ready(journal))
		sv_stage_end(sv, sandbox, STAGE_READY, RESULT_OK, NULL, NULL);
	sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
	if (!journal->is_snapshotting) /* else when it is thawed */
		sv_emit_route(sv, sandbox, true);
	sv_emit_event(sv, "sandbox-adopted", sandbox, NULL);
	sv_report(sv, sandbox);
}

static bool other_boot(const struct supervisor *sv, const struct sv_sandbox *sandbox)
{
	return strcmp(sandbox->journal.vmm.host_boot_id, sv->config.host_boot_id) != 0;
}

static void resume_start(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct err err = ERR_NULL;

	if (sandbox->journal.state == SV_IMAGE || sandbox->journal.state == SV_DISK ||
		sandbox->journal.state == SV_NETWORK) {
		if (sv_snapshot_check_resumed(sv, sandbox, &err) < 0) {
			fail(sv, sandbox, STAGE_ACCEPT, &err);
			return;
		}
		sandbox->journal.state = SV_IMAGE;
		sandbox->is_own_start = true;
		sandbox->deadline_usec = sv->now.mono_usec + sv->config.image_timeout_usec;
		if (sandbox->journal.n_stages == 0) /* journalled, and then the former agent ended */
			sv_stage_end(sv, sandbox, STAGE_ACCEPT, RESULT_OK, NULL, NULL);
		sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
		sv_report(sv, sandbox);
		sv_emit_spec(sv, SV_DO_FETCH_IMAGE, sandbox);
		return;
	}
	(void)err_set(&err, FAIL_AGENT_RESTARTED, 0,
		"The agent was restarted while the sandbox started (%s).",
		sv_state_name(sandbox->journal.state));
	fail(sv, sandbox, STAGE_VMM, &err);
}

void sv_start_resume(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct err err = ERR_NULL;

	sv_stage_begin(sv, sandbox);
	sandbox->journal.report_version += VERSION_GAP;
	sandbox->vmm_seen = *sandbox->journal.vmm.run_dir != '\0' && !other_boot(sv, sandbox);
	if (sv_is_starting(sandbox->journal.state)) {
		resume_start(sv, sandbox);
		return;
	}
	if (sandbox->journal.state >= SV_PAUSING) {
		sv_sleep_resume(sv, sandbox, other_boot(sv, sandbox));
		return;
	}
	if (other_boot(sv, sandbox)) {
		(void)err_set(&err, FAIL_HOST_REBOOT, 0, "The host was rebooted while the sandbox ran.");
		sv_stage_end(sv, sandbox, STAGE_RUN, RESULT_FAILED, NULL, &err);
		sv_end(sv, sandbox, END_FAILED, &err);
		return;
	}
	sandbox->journal.state = SV_RUNNING;
	sv_sandbox_move(sv, sandbox, SV_ADOPTING);
	sv_emit_journal(sv, sandbox, SV_WRITE_NONE);
	sv_emit_vmm(sv, SV_DO_ADOPT_VMM, sandbox);
}

/* ---- results and deadlines ---- */

void sv_on_journal_failed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	enum sv_write write = sandbox->last_write;

	if (sv_is_ending(sandbox->journal.state))
		return; /* best effort: the end goes on */
	sandbox->last_write = SV_WRITE_NONE;
	switch (write) {
	case SV_WRITE_ACCEPT:
		if (sandbox->is_resumed) { /* there is more of it than a journal */
			sandbox->accepting = false;
			fail(sv, sandbox, STAGE_ACCEPT, err);
		} else {
			sv_refuse_create(sv, sandbox, err);
		}
		return;
	case SV_WRITE_START:
	case SV_WRITE_READY:
		fail(sv, sandbox, write == SV_WRITE_READY ? STAGE_READY : STAGE_VMM, err);
		return;
	case SV_WRITE_NETWORK:
		sv_network_undo(sv, sandbox);
		return;
	case SV_WRITE_UPDATE:
		if (sandbox->journal.state == SV_RUNNING)
			sv_update_undo(sandbox);
		return;
	case SV_WRITE_BUDGET:
		sv_budget_undo(sv, sandbox);
		return;
	case SV_WRITE_PAUSE:
	case SV_WRITE_WAKE:
		sv_sleep_journal_failed(sv, sandbox, err);
		return;
	case SV_WRITE_SNAPSHOT:
		sv_snapshot_journal_failed(sv, sandbox, err);
		return;
	case SV_WRITE_NONE:
		return;
	}
}

void sv_on_result(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	enum sv_state state = sandbox->journal.state;

	if (sv_sleep_result(sv, sandbox, event) || sv_snapshot_result(sv, sandbox, event))
		return;
	if (event->type == SV_EV_JOURNALLED && state == SV_IMAGE && sandbox->accepting)
		accepted(sv, sandbox);
	else if (event->type == SV_EV_JOURNALLED && state == SV_RUNNING && sandbox->opening)
		opened(sv, sandbox);
	else if (event->type == SV_EV_IMAGE_DONE && state == SV_IMAGE)
		image_done(sv, sandbox, event->err);
	else if (event->type == SV_EV_DISK_DONE && state == SV_DISK)
		disk_done(sv, sandbox, event->err);
	else if (event->type == SV_EV_NETWORK_DONE && state == SV_NETWORK)
		network_done(sv, sandbox, event);
	else if (event->type == SV_EV_NETWORK_SET)
		network_set(sv, sandbox, event->err);
	else if (event->type == SV_EV_VMM_SPAWNED && state == SV_VMM)
		spawned(sv, sandbox, event);
	else if (event->type == SV_EV_VMM_JAILED && state == SV_VMM)
		jailed(sv, sandbox, event);
	else if (event->type == SV_EV_VMM_STARTED && state == SV_VMM && is_restore(sandbox))
		restored(sv, sandbox);
	else if (event->type == SV_EV_VMM_STARTED && state == SV_VMM)
		to_kernel(sv, sandbox);
	else if (event->type == SV_EV_VMM_USERSPACE && !is_restore(sandbox) && (state == SV_VMM || state == SV_KERNEL))
		to_guest(sv, sandbox);
	else if (event->type == SV_EV_GUEST_HELLO)
		guest_hello(sv, sandbox, event);
	else if (event->type == SV_EV_GUEST_CONFIGURED && state == SV_GUEST && sandbox->hello_seen && !sandbox->awaits_thaw)
		configured(sv, sandbox, event->err);
	else if (event->type == SV_EV_THAWED && state == SV_GUEST && sandbox->awaits_thaw)
		thawed(sv, sandbox, event->err);
	else if (event->type == SV_EV_SETUP_DONE && state == SV_SETUP)
		setup_done(sv, sandbox, event->err);
	else if (event->type == SV_EV_ADOPTED && state == SV_ADOPTING)
		adopted(sv, sandbox, event);
}

struct limit_row {
	enum fail_stage stage;
	enum fail_code code;
	const char *what;
};

/* What it means when the deadline of a starting state passes. */
/* clang-format off */
static const struct limit_row limits[SV_STATE_MAX_] = {
	[SV_IMAGE] = { STAGE_IMAGE, FAIL_IMAGE_FETCH_FAILED, "The image did not come in time." },
	[SV_DISK] = { STAGE_DISK, FAIL_DISK_MAKE_FAILED, "The disk was not made in time." },
	[SV_NETWORK] = { STAGE_NETWORK, FAIL_HELPER_UNAVAILABLE, "The network slot was not made in time." },
	[SV_VMM] = { STAGE_VMM, FAIL_VMM_UNRESPONSIVE, "The VMM did not start the guest in time." },
	[SV_KERNEL] = { STAGE_KERNEL, FAIL_KERNEL_TIMEOUT, "The guest kernel did not reach its first process in time." },
	[SV_GUEST] = { STAGE_GUEST, FAIL_GUEST_TIMEOUT, "croft-guest did not answer in time." },
	[SV_SETUP] = { STAGE_SETUP, FAIL_SETUP_TIMEOUT, "The setup command did not end in time." },
	[SV_ADOPTING] = { STAGE_RUN, FAIL_VMM_UNRESPONSIVE, "The VMM did not answer the agent that came back." },
};
/* clang-format on */

void sv_on_deadline(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	enum sv_state state = sandbox->journal.state;
	struct err err = ERR_NULL;

	switch (state) {
	case SV_RUNNING:
		if (sv_snapshot_holds(sandbox))
			sandbox->deadline_usec = sv->now.mono_usec + USEC_PER_SEC;
		else if (!sv_pause_at_end(sv, sandbox))
			sv_end(sv, sandbox, END_TIMEOUT, NULL);
		return;
	case SV_PAUSING:
	case SV_SLEEPING:
	case SV_PAUSED:
	case SV_WAKE_NETWORK:
	case SV_WAKE_VMM:
	case SV_WAKE_GUEST:
	case SV_THAWING:
		sv_sleep_deadline(sv, sandbox);
		return;
	case SV_STOPPING:
		sv_kill(sv, sandbox);
		return;
	case SV_KILLING:
		sv_kill_timeout(sv, sandbox);
		return;
	case SV_REMOVING:
	case SV_DROPPING:
		sv_remove_files(sv, sandbox);
		return;
	case SV_KEPT:
		sv_keep_drop(sv, sandbox);
		return;
	case SV_ENDED:
	case SV_STATE_MAX_:
		return;
	case SV_IMAGE:
	case SV_DISK:
	case SV_NETWORK:
	case SV_VMM:
	case SV_KERNEL:
	case SV_GUEST:
	case SV_SETUP:
	case SV_ADOPTING:
		break;
	}
	if (sandbox->awaits_lease)
		(void)err_set_at(&err, STAGE_VMM, FAIL_LEASE_EXPIRED, 0,
			"The scheduler gave the VM no lease in time.");
	else
		(void)err_set_at(
			&err, limits[state].stage, limits[state].code, 0, "%s", limits[state].what);
	fail(sv, sandbox, limits[state].stage, &err);
}
