/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots: moments of running sandboxes that the node keeps by themselves (link.proto, Snapshot).
 *
 * One is taken beside the sandbox's life, which stays RUNNING for everybody else:
 *
 *   asked -> journalled -> TAKE: frozen, paused, memory, state and disk written -> THAW   it runs again
 *                                                                              \-> KEEP   synced, recorded, renamed -> on the list
 *
 * It is answered when both are done. What is true at each moment, whoever is killed: a snapshot is one when it has its last
 * name, and all of it is durable then; anything else is removed at the next start of an agent, which thaws the VM (it may
 * have been left frozen) and answers by what it found. A destroy wins at once and the snapshot is none; a pause waits until
 * it is done, and so does the end of the sandbox's life; where that is no pause, not for one that does not thaw.
 *
 * One that a start needs is not dropped: from VMM_STARTED on the VMM has its files open, and they may go.
 *
 * A fork's own (is_live) lies in the agent's memory where that can be: the VMM freezes the guest's memory where it is and gives
 * descriptors of it, so that TAKE writes nothing but the clone of the disk, and nothing is kept. It is on the list as soon as it was
 * taken, and gone with the agent: who has not begun as it by then cannot. What is frozen has its room from before it is asked for
 * (frozen.c); where there is none, or the VMM cannot fork, one of files is made.
 */
#include <errno.h>
#include <string.h>

#include "core/internal.h"

/* ---- the list ---- */

static struct sv_snapshot *find(const struct supervisor *sv, const char *id)
{
	struct sv_snapshot *snapshot;

	HASH_FIND_STR(sv->snapshots, id, snapshot);
	return snapshot;
}

static const struct snapshot_info *held(const struct supervisor *sv, const char *id)
{
	const struct sv_snapshot *snapshot = find(sv, id);

	return snapshot && !snapshot->is_dropping ? &snapshot->info : NULL;
}

void sv_snapshot_load(struct supervisor *sv, const struct snapshot_info *info)
{
	struct sv_snapshot *snapshot = find(sv, info->id);

	if (snapshot)
		return;
	snapshot = calloc(1, sizeof(*snapshot));
	if (snapshot) {
		snapshot->info = *info;
		HASH_ADD(hh, sv->snapshots, info.id, strlen(info->id), snapshot);
	}
	if (!snapshot || !snapshot->hh.tbl) {
		free(snapshot);
		sv->out->no_memory = true; /* the next agent finds it */
	}
}

static void forget(struct supervisor *sv, struct sv_snapshot *snapshot)
{
	HASH_DEL(sv->snapshots, snapshot);
	reconcile_forget_snapshot(sv->reconcile, snapshot->info.id);
	free(snapshot);
}

void sv_snapshots_free(struct supervisor *sv)
{
	while (sv->snapshots)
		forget(sv, sv->snapshots);
}

uint64_t sv_snapshots_mib(const struct supervisor *sv)
{
	const struct sv_snapshot *snapshot;
	uint64_t sum = 0;

	for (snapshot = sv->snapshots; snapshot; snapshot = snapshot->hh.next)
		sum += snapshot->info.size_mib;
	return sum;
}

int sv_snapshot_check(const struct supervisor *sv, const struct sandbox_spec *spec, struct err *reterr)
{
	const struct snapshot_info *info = *spec->snapshot ? held(sv, spec->snapshot) : NULL;

	if (!*spec->snapshot)
		return 0;
	if (!info)
		return err_set_at(reterr, STAGE_ACCEPT, FAIL_SNAPSHOT_LOST, 0, "The snapshot is not on this node.");
	if (info->vcpus != spec->vcpus || info->memory_mib != spec->memory_mib || info->disk_mib != spec->disk_mib ||
		strcmp(info->image_digest, spec->image_digest) != 0)
		return err_set_at(reterr, STAGE_ACCEPT, FAIL_SNAPSHOT_INVALID, 0,
			"The snapshot has another image, or other vCPUs, memory or disk.");
	return 0;
}

void sv_snapshot_begun(const struct supervisor *sv, struct sv_sandbox *sandbox)
{
	const struct sv_snapshot *snapshot = find(sv, sandbox->journal.spec->snapshot);

	if (snapshot)
		sandbox->journal.frozen = snapshot->frozen;
}

int sv_snapshot_check_resumed(const struct supervisor *sv, const struct sv_sandbox *sandbox, struct err *reterr)
{
	const struct sv_journal *journal = &sandbox->journal;

	if (journal->frozen.n == 0 || held(sv, journal->spec->snapshot))
		return 0;
	return err_set_at(reterr, STAGE_ACCEPT, FAIL_SNAPSHOT_LOST, 0,
		"The fork that it was to begin as went with the agent, which was started again.");
}

/* ---- to drop one ---- */

static void emit_event(struct supervisor *sv, const char *name, const char *id, const struct err *err)
{
	struct sv_action *action = sv_emit_event(sv, name, NULL, err);

	if (action)
		memcpy(action->event.snapshot, id, strlen(id) + 1);
}

static void emit_drop(struct supervisor *sv, const struct sv_sandbox *sandbox, const char *id, bool answer)
{
	struct sv_action *action = sv_emit(sv, SV_DO_DROP_KEPT, sandbox);

	if (!action)
		return;
	memcpy(action->snapshot_id, id, strlen(id) + 1);
	action->answer = answer;
}

void sv_snapshot_drop(struct supervisor *sv, const struct sv_sandbox *sandbox)
{
	emit_drop(sv, sandbox, sandbox->journal.snapshot, false);
}

/* It is being made, or a VMM that has not opened its files yet is to begin as it. */
static bool is_needed(const struct supervisor *sv, const char *id)
{
	const struct sv_sandbox *sandbox;

	for (sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next) {
		const struct sv_journal *journal = &sandbox->journal;

		if (sandbox->is_bad || !journal->spec)
			continue;
		if (journal->is_snapshotting && !strcmp(journal->snapshot, id))
			return true;
		if (journal->state <= SV_VMM && !strcmp(journal->spec->snapshot, id))
			return true;
	}
	return false;
}

void sv_on_drop_snapshot(struct supervisor *sv, const char *id)
{
	struct sv_snapshot *snapshot = find(sv, id);

	if (!sv->started || err_is_set(&sv->unreadable) || is_needed(sv, id))
		return; /* the command comes again */
	if (snapshot)
		snapshot->is_dropping = true;
	emit_drop(sv, NULL, id, true); /* one that is not on the list may have left something */
}

void sv_on_snapshot_dropped(struct supervisor *sv, const struct sv_event *event)
{
	struct sv_snapshot *snapshot = find(sv, event->dropped.snapshot);
	struct sv_action *action;

	if (event->dropped.err && err_is_set(event->dropped.err)) {
		if (snapshot)
			snapshot->is_dropping = false;
		emit_event(sv, "snapshot-left", event->dropped.snapshot, event->dropped.err);
		return;
	}
	sv->capacity_changed = true;
	if (snapshot)
		forget(sv, snapshot);
	if (!event->dropped.answer || !sv->welcomed)
		return;
	action = sv_emit(sv, SV_DO_SEND_DROPPED, NULL);
	if (action)
		memcpy(action->snapshot_id, event->dropped.snapshot, strlen(event->dropped.snapshot) + 1);
}

void sv_snapshots_judge(struct supervisor *sv)
{
	struct sv_snapshot *snapshot;

	for (snapshot = sv->snapshots; snapshot; snapshot = snapshot->hh.next) {
		const char *id = snapshot->info.id;
		enum reconcile_verdict verdict;

		if (snapshot->is_dropping || is_needed(sv, id))
			continue;
		verdict = reconcile_judge_snapshot(
			sv->reconcile, sv->now.mono_usec, id, snapshot->listed_in == sv->inventory);
		if (verdict == RECONCILE_DRIFTING)
			emit_event(sv, "snapshot-drift", id, NULL);
		if (verdict != RECONCILE_DESTROY)
			continue;
		snapshot->is_dropping = true;
		emit_event(sv, "snapshot-drift-dropped", id, NULL);
		emit_drop(sv, NULL, id, false);
	}
}

/* ---- to take one ---- */

/* All but what it takes on the disk. */
static void fill_info(const struct supervisor *sv, const struct sv_sandbox *sandbox, struct snapshot_info *info)
{
	const struct sv_journal *journal = &sandbox->journal;

	info->image_size = journal->spec->image_size;
	info->vcpus = journal->spec->vcpus;
	info->memory_mib = journal->spec->memory_mib;
	info->disk_mib = journal->spec->disk_mib;
	info->created_usec = sv->now.real_usec;
	memcpy(info->id, journal->snapshot, sizeof(info->id));
	memcpy(info->sandbox, journal->sandbox, sizeof(info->sandbox));
	memcpy(info->tenant, journal->spec->tenant, sizeof(info->tenant));
	memcpy(info->template_name, journal->spec->template_name, sizeof(info->template_name));
	memcpy(info->image_digest, journal->spec->image_digest, sizeof(info->image_digest));
	memcpy(info->cpu_class, sv->config.cpu_class, sizeof(info->cpu_class));
}

static struct sv_action *emit_info(struct supervisor *sv, enum sv_action_type type, const struct sv_sandbox *sandbox)
{
	const struct sv_journal *journal = &sandbox->journal;
	struct sv_action *action = sv_emit(sv, type, sandbox);
	struct snapshot_info *info;

	if (!action)
		return NULL;
	action->spec = spec_ref(journal->spec);
	info = action->snapshot = calloc(1, sizeof(*info));
	if (!info) {
		sv->out->no_memory = true;
		return action;
	}
	fill_info(sv, sandbox, info);
	return action;
}

static void wait_for(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	bool waits = sandbox->is_taking || sandbox->is_thawing || sandbox->is_keeping;

	sandbox->snapshot_deadline_usec = waits ? sv->now.mono_usec + sv->config.pause_timeout_usec : NEVER;
}

/* Of each life the last is kept, as of pauses. */
static void note(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *failure)
{
	struct sv_journal *journal = &sandbox->journal;
	const struct snapshot_info *info = held(sv, journal->snapshot);
	const char *how = !failure && info && info->is_live ? "fork: nothing of its memory was copied to a file" : NULL;
	size_t n = 0;

	for (size_t i = 0; i < journal->n_stages; i++)
		if (journal->stages[i].stage != STAGE_SNAPSHOT)
			journal->stages[n++] = journal->stages[i];
	journal->n_stages = n;
	sv_stage_end(sv, sandbox, STAGE_SNAPSHOT, failure ? RESULT_FAILED : RESULT_OK, how, failure);
}

void sv_snapshot_forget(struct sv_sandbox *sandbox)
{
	sandbox->journal.is_snapshotting = false;
	sandbox->is_taking = sandbox->is_thawing = sandbox->is_keeping = sandbox->is_stuck = false;
	sandbox->snapshot_deadline_usec = NEVER;
}

static void answer(struct sv_sandbox *sandbox)
{
	struct sv_journal *journal = &sandbox->journal;

	memcpy(journal->updated, journal->snapshot_operation, sizeof(journal->updated));
	sandbox->update_failure = sandbox->snapshot_failure;
	sv_snapshot_forget(sandbox);
}

/* When it runs again and the snapshot is whole, or is none. */
static void settle(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	wait_for(sv, sandbox);
	if (sandbox->snapshot_deadline_usec != NEVER)
		return;
	answer(sandbox);
	sv->capacity_changed = true; /* behind the answer: what is frozen, and that what was reserved is not */
	note(sv, sandbox, err_is_set(&sandbox->update_failure) ? &sandbox->update_failure : NULL);
	sv_emit_journal(sv, sandbox, SV_WRITE_NONE); /* what it says after a crash is the same */
	sv_report(sv, sandbox);
}

static void failed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	sandbox->snapshot_failure = *err;
	sandbox->snapshot_failure.stage = STAGE_SNAPSHOT;
	sv_snapshot_drop(sv, sandbox);
}

static void thaw(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	sandbox->is_thawing = true;
	sv_emit_vmm(sv, SV_DO_THAW, sandbox);
}

static void take(struct supervisor *sv, struct sv_sandbox *sandbox, bool is_live)
{
	struct sv_action *action = emit_info(sv, SV_DO_TAKE_SNAPSHOT, sandbox);

	if (!action || !action->snapshot)
		return;
	action->snapshot->is_live = is_live;
	action->frozen_mib = sv_frozen_limit_mib(&sandbox->journal.frozen);
}

/* Room for what it freezes: at most all of the guest's memory. */
static bool reserve_frozen(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct sv_journal *journal = &sandbox->journal;
	struct err err = ERR_NULL;

	if (sv_admit_frozen(sv, journal->spec->memory_mib, &err) < 0) {
		err.stage = STAGE_FORK;
		sv_emit_event(sv, "fork-by-snapshot", sandbox, &err);
		return false;
	}
	sv_frozen_reserve(&journal->frozen, journal->spec->memory_mib);
	return true;
}

static void begin(struct supervisor *sv, struct sv_sandbox *sandbox, const struct snapshot_command *command)
{
	struct sv_journal *journal = &sandbox->journal;
	bool is_live = command->is_live && reserve_frozen(sv, sandbox);

	journal->update_number = MAX(journal->update_number, command->number);
	memcpy(journal->snapshot, command->snapshot, sizeof(journal->snapshot));
	memcpy(journal->snapshot_operation, command->operation, sizeof(journal->snapshot_operation));
	journal->is_snapshotting = sandbox->is_taking = true;
	sandbox->snapshot_failure = (struct err)ERR_NULL;
	sv_stage_begin(sv, sandbox);
	wait_for(sv, sandbox);
	sv_emit_journal(sv, sandbox, SV_WRITE_SNAPSHOT);
	take(sv, sandbox, is_live);
}

void sv_on_snapshot(struct supervisor *sv, const struct snapshot_command *command)
{
	struct sv_sandbox *sandbox = sv_sandbox_find(sv, command->sandbox);
	struct sv_journal *journal;

	if (!sandbox || sandbox->is_bad || sandbox->journal.generation != command->generation)
		return;
	journal = &sandbox->journal;
	if (journal->is_snapshotting || sandbox->former_spec || sandbox->opening || journal->state == SV_ADOPTING ||
		journal->state == SV_PAUSING || journal->state == SV_THAWING)
		return; /* one after the other: the command comes again */
	if (!strcmp(journal->snapshot_operation, command->operation) && strcmp(journal->updated, command->operation) != 0) {
		/* it was done, and something else since */
		memcpy(journal->updated, command->operation, sizeof(journal->updated));
		sandbox->update_failure = (struct err)ERR_NULL;
	}
	if (journal->state != SV_RUNNING || !strcmp(journal->updated, command->operation) ||
		sv_is_overtaken(sandbox, command->number)) {
		sv_report_again(sv, sandbox);
		return;
	}
	begin(sv, sandbox, command);
}

const struct snapshot_info *sv_snapshot_answer(
	const struct supervisor *sv, const struct sv_sandbox *sandbox, struct err *ret)
{
	const struct sv_journal *journal = &sandbox->journal;
	const struct snapshot_info *info;

	if (!*journal->updated || strcmp(journal->updated, journal->snapshot_operation) != 0)
		return NULL;
	info = held(sv, journal->snapshot);
	if (info)
		*ret = (struct err)ERR_NULL;
	else if (!err_is_set(ret)) /* a former agent's answer, or one that was dropped since */
		(void)err_set(ret, FAIL_SNAPSHOT_FAILED, 0, "The node has no such snapshot.");
	return info;
}

/* ---- results ---- */

/* It lies in memory: there is nothing to be made durable. */
static void load_live(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	struct snapshot_info info = { .size_mib = MAX(event->taken.size_mib, 1), .is_live = true };
	struct sv_snapshot *snapshot;

	fill_info(sv, sandbox, &info);
	sv_snapshot_load(sv, &info);
	snapshot = find(sv, info.id);
	if (snapshot)
		snapshot->frozen = *event->taken.frozen;
}

static void taken(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err, const struct sv_event *event)
{
	const struct sv_frozen_list *frozen = event ? event->taken.frozen : NULL;

	sandbox->is_taking = false;
	if (frozen && frozen->n > 0)
		sandbox->journal.frozen = *frozen; /* also where no snapshot came of it */
	else if (event) /* else it may be done yet */
		sv_frozen_unreserve(&sandbox->journal.frozen);
	thaw(sv, sandbox);
	if (err && err_is_set(err)) {
		failed(sv, sandbox, err);
	} else if (frozen && frozen->n > 0) {
		load_live(sv, sandbox, event);
	} else {
		sandbox->is_keeping = true;
		emit_info(sv, SV_DO_KEEP_SNAPSHOT, sandbox);
	}
	wait_for(sv, sandbox);
}

/* A guest that hangs is no reason to end it; a VM that stands still is. */
static void thawed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	struct err failure;

	if (err && err_is_set(err) && err->code != FAIL_GUEST_UNREACHABLE && err->code != FAIL_GUEST_PROTOCOL) {
		failure = *err;
		failure.stage = STAGE_SNAPSHOT;
		sv_stage_end(sv, sandbox, STAGE_SNAPSHOT, RESULT_FAILED, NULL, &failure);
		sv_end(sv, sandbox, END_FAILED, &failure);
		return;
	}
	if (err && err_is_set(err))
		sv_emit_event(sv, "guest-not-thawed", sandbox, err);
	sandbox->is_thawing = sandbox->is_stuck = false;
	sv_emit_route(sv, sandbox, true);
	settle(sv, sandbox);
}

static void kept(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	sandbox->is_keeping = false;
	if (event->kept.err && err_is_set(event->kept.err))
		failed(sv, sandbox, event->kept.err);
	else
		sv_snapshot_load(sv, event->kept.info);
	settle(sv, sandbox);
}

bool sv_snapshot_result(struct supervisor *sv, struct sv_sandbox *sandbox, const struct sv_event *event)
{
	if (event->type == SV_EV_SNAPSHOT_TAKEN && sandbox->is_taking)
		taken(sv, sandbox, event->taken.err, event);
	else if (event->type == SV_EV_THAWED && sandbox->is_thawing)
		thawed(sv, sandbox, event->err);
	else if (event->type == SV_EV_SNAPSHOT_KEPT && sandbox->is_keeping &&
		 !strcmp(event->kept.info->id, sandbox->journal.snapshot))
		kept(sv, sandbox, event);
	else
		return false;
	return true;
}

/* The intent is not on disk: nothing was begun. */
void sv_snapshot_journal_failed(struct supervisor *sv, struct sv_sandbox *sandbox, const struct err *err)
{
	struct err why = ERR_NULL;

	if (!sandbox->is_taking)
		return;
	(void)err_set(&why, FAIL_STATE_WRITE_FAILED, err ? err->err_no : 0, "The command could not be journalled: %s",
		err ? err->msg : "");
	sandbox->is_taking = false;
	sv_frozen_unreserve(&sandbox->journal.frozen);
	failed(sv, sandbox, &why);
	settle(sv, sandbox);
}

void sv_snapshot_deadline(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_SNAPSHOT_FAILED, ETIMEDOUT, "The snapshot was not written in time.");
	if (sandbox->is_taking) {
		(void)sv_emit(sv, SV_DO_CANCEL, sandbox);
		taken(sv, sandbox, &err, NULL);
		return;
	}
	if (sandbox->is_keeping) {
		sandbox->is_keeping = false;
		failed(sv, sandbox, &err);
	}
	if (sandbox->is_thawing) { /* a VMM that still writes it does not resume: asked again, and somebody may look */
		sandbox->is_stuck = true;
		sv_emit_event(sv, "sandbox-stuck", sandbox, &err);
		(void)sv_emit(sv, SV_DO_CANCEL, sandbox);
		thaw(sv, sandbox);
	}
	settle(sv, sandbox);
}

bool sv_snapshot_holds(const struct sv_sandbox *sandbox)
{
	return sandbox->journal.is_snapshotting && !sandbox->is_stuck;
}

/* ---- ends ---- */

bool sv_snapshot_give_up(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	bool is_whole = held(sv, sandbox->journal.snapshot) != NULL;

	if (!sandbox->journal.is_snapshotting)
		return false;
	if (!is_whole && !err_is_set(&sandbox->snapshot_failure))
		(void)err_set_at(&sandbox->snapshot_failure, STAGE_SNAPSHOT, FAIL_SNAPSHOT_FAILED, 0,
			"The sandbox ended while the snapshot was taken.");
	answer(sandbox);
	return !is_whole;
}

void sv_snapshot_adopted(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	struct err err = ERR_NULL;

	if (!sandbox->journal.is_snapshotting)
		return;
	(void)err_set(&err, FAIL_SNAPSHOT_FAILED, 0, "The agent was restarted while the snapshot was taken.");
	if (!held(sv, sandbox->journal.snapshot))
		failed(sv, sandbox, &err);
	thaw(sv, sandbox);
	wait_for(sv, sandbox);
}
