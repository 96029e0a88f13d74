/* SPDX-License-Identifier: Apache-2.0
 *
 * See supervisor.h: the object, loading, and what an event leads to.
 */
#include "core/supervisor.h"

#include <errno.h>
#include <string.h>

#include "core/internal.h"

int supervisor_new(struct supervisor **ret, const struct sv_config *config)
{
	CLEANUP(supervisor_freep) struct supervisor *sv = calloc(1, sizeof(*sv));
	int r;

	if (!sv)
		return -ENOMEM;
	sv->config = *config;
	TAILQ_INIT(&sv->graves_by_age);
	TAILQ_INIT(&sv->accounts);
	sv->usage_due_usec = sv->owner_deadline_usec = NEVER;
	sv_canary_init(sv);
	r = reconcile_new(&sv->reconcile);
	if (r < 0)
		return r;
	*ret = TAKE(sv);
	return 0;
}

struct supervisor *supervisor_free(struct supervisor *sv)
{
	if (!sv)
		return NULL;
	while (sv->sandboxes)
		sv_sandbox_remove(sv, sv->sandboxes);
	sv_graves_free(sv);
	sv_usage_free(sv);
	sv_snapshots_free(sv);
	image_list_deinit(&sv->capacity.images);
	space_list_deinit(&sv->space);
	space_list_deinit(&sv->space_told);
	reconcile_free(sv->reconcile);
	free(sv);
	return NULL;
}

/* ---- load ---- */

static void load_bad(struct supervisor *sv, const char *id)
{
	struct sv_sandbox *sandbox = sv_sandbox_add(sv, id);

	if (!sandbox)
		return;
	sandbox->is_bad = true;
	sandbox->journal.generation = 1;
	sandbox->journal.state = SV_RUNNING;
}

/* A live one without its specification is as unreadable as a torn one. */
static void load(struct supervisor *sv, const struct sv_journal *journal)
{
	struct sv_sandbox *sandbox;

	if (sv_sandbox_find(sv, journal->sandbox))
		return;
	if (journal->state >= SV_STATE_MAX_ || (!journal->spec && journal->state != SV_ENDED)) {
		load_bad(sv, journal->sandbox);
		return;
	}
	sandbox = sv_sandbox_add(sv, journal->sandbox);
	if (sandbox && sv_journal_copy(journal, &sandbox->journal) < 0)
		sv->out->no_memory = true;
}

static void resume(struct supervisor *sv, struct sv_sandbox *sandbox)
{
	if (sandbox->is_bad)
		return;
	sandbox->report_pause_usec = sv->config.report_usec;
	if (sandbox->journal.state == SV_ENDED)
		sandbox->report_due_usec = sv->now.mono_usec;
	else if (sv_is_ending(sandbox->journal.state))
		sv_end_resume(sv, sandbox);
	else
		sv_start_resume(sv, sandbox);
}

static void start(struct supervisor *sv, const struct sv_event *event)
{
	struct sv_sandbox *sandbox, *next;

	sv->highest_epoch = MAX(sv->highest_epoch, event->start.highest_epoch);
	sv->leader = event->start.leader;
	sv->started = true;
	if (event->start.unreadable) {
		sv->unreadable = *event->start.unreadable;
		return;
	}
	sv_usage_start(sv);
	for (sandbox = sv->sandboxes; sandbox; sandbox = next) {
		next = sandbox->hh.next;
		resume(sv, sandbox);
		sv_usage_resumed(sv, sandbox);
	}
	sv_canary_start(sv);
}

/* ---- messages of the scheduler ---- */

static void refuse_leader(struct supervisor *sv, const struct err *err)
{
	struct sv_action *action = sv_emit(sv, SV_DO_SEND_REFUSED, NULL);

	if (!action)
		return;
	action->err = calloc(1, sizeof(*action->err));
	if (action->err)
		*action->err = *err;
	else
		sv->out->no_memory = true;
}

/* A leader's welcome with the epoch that another run of the same store has: one of the two is a copy. The node stays with
 * whom it obeyed first. */
static bool is_split(struct supervisor *sv, const struct sv_event *event)
{
	const struct welcome *welcome = event->welcome;
	struct err err = ERR_NULL;

	if (event->epoch != sv->highest_epoch || !*sv->leader.run || !*welcome->run ||
		strcmp(sv->leader.lineage, welcome->lineage) != 0 || strcmp(sv->leader.run, welcome->run) == 0)
		return false;
	(void)err_set(&err, FAIL_SCHEDULER_SPLIT, 0, "Epoch %llu is another scheduler's of the same store.",
		(unsigned long long)event->epoch);
	err_add(&err, "instance", "%s", welcome->run);
	err_add(&err, "first", "%s", sv->leader.run);
	refuse_leader(sv, &err);
	sv_on_refused(sv, &err);
	return true;
}

/* Who has the highest epoch is remembered with it. */
static void obey(struct supervisor *sv, uint64_t epoch, const struct welcome *welcome)
{
	struct sv_action *action;

	if (epoch == sv->highest_epoch && (*sv->leader.run || !*welcome->run))
		return;
	sv->highest_epoch = MAX(sv->highest_epoch, epoch);
	memcpy(sv->leader.lineage, welcome->lineage, sizeof(sv->leader.lineage));
	memcpy(sv->leader.run, welcome->run, sizeof(sv->leader.run));
	action = sv_emit(sv, SV_DO_SAVE_EPOCH, NULL);
	if (!action)
		return;
	action->epoch = sv->highest_epoch;
	action->leader = sv->leader;
}

/* false: an older leader speaks, or a copy, or one that has not said who it is. */
static bool epoch_is_current(struct supervisor *sv, const struct sv_event *event)
{
	struct err err = ERR_NULL;

	if (event->epoch < sv->highest_epoch && !PLANTED(OLD_EPOCH_ACCEPTED)) {
		sv->counts.stale_epoch++;
		(void)err_set(&err, FAIL_STALE_EPOCH, 0, "Epoch %llu is over; the node has obeyed %llu.",
			(unsigned long long)event->epoch, (unsigned long long)sv->highest_epoch);
		refuse_leader(sv, &err);
		return false;
	}
	if (event->type == SV_EV_WELCOME) {
		if (is_split(sv, event))
			return false;
		obey(sv, event->epoch, event->welcome);
	} else if (event->epoch > sv->highest_epoch && !PLANTED(EPOCH_WITHOUT_WELCOME)) {
		sv_greet_again(sv); /* only a welcome says whose it is; what this was about is sent again */
		return false;
	}
	return true;
}

static void on_message(struct supervisor *sv, const struct sv_event *event)
{
	if (event->type == SV_EV_REFUSED) { /* says nothing that an old leader may not say */
		sv_on_refused(sv, event->err);
		return;
	}
	if (!epoch_is_current(sv, event))
		return;
	if (event->type == SV_EV_WELCOME)
		sv_on_welcome(sv, event->welcome);
	else if (event->type == SV_EV_DESIRED)
		sv_on_desired(sv, event->desired);
	else if (event->type == SV_EV_CREATE)
		sv_on_create(sv, event->create);
	else if (event->type == SV_EV_DESTROY)
		sv_on_destroy(sv, event->destroy);
	else if (event->type == SV_EV_UPDATE)
		sv_on_update(sv, event->update);
	else if (event->type == SV_EV_NETWORK_UPDATE)
		sv_on_network_update(sv, event->network_update);
	else if (event->type == SV_EV_BUDGET_UPDATE)
		sv_on_budget_update(sv, event->budget_update);
	else if (event->type == SV_EV_PAUSE)
		sv_on_pause(sv, event->pause);
	else if (event->type == SV_EV_RESUME)
		sv_on_resume(sv, event->resume);
	else if (event->type == SV_EV_SNAPSHOT)
		sv_on_snapshot(sv, event->take);
	else if (event->type == SV_EV_DROP_SNAPSHOT)
		sv_on_drop_snapshot(sv, event->drop);
	else if (event->type == SV_EV_REPORT_ACK)
		sv_on_report_ack(sv, event->ack);
	else if (event->type == SV_EV_LEASE)
		sv_on_lease(sv, event->lease);
	else if (event->type == SV_EV_USAGE_ACK)
		sv_on_usage_ack(sv, event->number);
}

/* ---- results ---- */

/* What comes of an older generation belongs to a life that is over; but the VM of a warm one that was taken over goes on, and
 * its end may have been on its way then. */
static bool is_of_its_life(const struct sv_sandbox *sandbox, const struct sv_event *event)
{
	return event->generation == sandbox->journal.generation ||
	       (event->type == SV_EV_VMM_EXITED && sandbox->took && event->generation == sandbox->took);
}

static void on_sandbox_event(struct supervisor *sv, const struct sv_event *event)
{
	struct sv_sandbox *sandbox = sv_sandbox_find(sv, event->sandbox);

	if (sv_is_canary(event->sandbox))
		sv_canary_event(sv, event);
	if (!sandbox || sandbox->is_bad || !is_of_its_life(sandbox, event))
		return;
	if (event->type == SV_EV_VMM_EXITED)
		sv_on_exit(sv, sandbox, event);
	else if (event->type == SV_EV_REMOVED)
		sv_on_removed(sv, sandbox, event->err);
	else if (event->type == SV_EV_JOURNAL_FAILED)
		sv_on_journal_failed(sv, sandbox, event->err);
	else
		sv_on_result(sv, sandbox, event);
}

static void tick(struct supervisor *sv)
{
	struct sv_sandbox *sandbox, *next;

	for (sandbox = sv->sandboxes; sandbox; sandbox = next) {
		next = sandbox->hh.next;
		if (sandbox->snapshot_deadline_usec <= sv->now.mono_usec)
			sv_snapshot_deadline(sv, sandbox);
		if (sandbox->budget_deadline_usec <= sv->now.mono_usec)
			sv_budget_look(sv, sandbox);
		if (sandbox->deadline_usec <= sv->now.mono_usec)
			sv_on_deadline(sv, sandbox);
	}
	sv_owner_tick(sv);
	sv_canary_tick(sv);
	sv_session_tick(sv);
}

static void handle(struct supervisor *sv, const struct sv_event *event)
{
	switch (event->type) {
	case SV_EV_LOAD:
		load(sv, event->journal);
		return;
	case SV_EV_LOAD_SNAPSHOT:
		sv_snapshot_load(sv, event->snapshot);
		return;
	case SV_EV_LOAD_USAGE:
		sv_usage_load(sv, event->saved);
		return;
	case SV_EV_LOAD_BAD:
		load_bad(sv, event->sandbox);
		return;
	case SV_EV_START:
		start(sv, event);
		return;
	case SV_EV_LINK_UP:
	case SV_EV_LINK_DOWN:
		sv_on_link(sv, event->type == SV_EV_LINK_UP);
		return;
	case SV_EV_WELCOME:
	case SV_EV_DESIRED:
	case SV_EV_CREATE:
	case SV_EV_DESTROY:
	case SV_EV_UPDATE:
	case SV_EV_NETWORK_UPDATE:
	case SV_EV_BUDGET_UPDATE:
	case SV_EV_PAUSE:
	case SV_EV_RESUME:
	case SV_EV_SNAPSHOT:
	case SV_EV_DROP_SNAPSHOT:
	case SV_EV_REPORT_ACK:
	case SV_EV_LEASE:
	case SV_EV_USAGE_ACK:
	case SV_EV_REFUSED:
		on_message(sv, event);
		return;
	case SV_EV_OWNER_DRAIN:
		sv_on_owner_drain(sv, event->owner.drained, event->owner.why, event->owner.deadline_usec);
		return;
	case SV_EV_OWNER_STOP:
		sv_on_owner_stop(sv, event->sandbox);
		return;
	case SV_EV_OWNER_SNAPSHOT:
		sv_on_snapshot(sv, event->take);
		return;
	case SV_EV_OWNER_DROP:
		sv_on_drop_snapshot(sv, event->drop);
		return;
	case SV_EV_CAPACITY:
		sv_on_capacity(sv, event->capacity);
		return;
	case SV_EV_USED:
		sv_on_used(sv, event->used.readings, event->used.n);
		return;
	case SV_EV_USAGE_SAVED:
		sv_on_usage_saved(sv);
		return;
	case SV_EV_JOURNALLED:
	case SV_EV_JOURNAL_FAILED:
	case SV_EV_IMAGE_DONE:
	case SV_EV_DISK_DONE:
	case SV_EV_NETWORK_DONE:
	case SV_EV_NETWORK_SET:
	case SV_EV_VMM_SPAWNED:
	case SV_EV_VMM_JAILED:
	case SV_EV_VMM_STARTED:
	case SV_EV_VMM_USERSPACE:
	case SV_EV_VMM_EXITED:
	case SV_EV_GUEST_HELLO:
	case SV_EV_GUEST_CONFIGURED:
	case SV_EV_SETUP_DONE:
	case SV_EV_ADOPTED:
	case SV_EV_REMOVED:
	case SV_EV_SNAPSHOT_DONE:
	case SV_EV_THAWED:
	case SV_EV_SNAPSHOT_TAKEN:
	case SV_EV_SNAPSHOT_KEPT:
		on_sandbox_event(sv, event);
		return;
	case SV_EV_SNAPSHOT_DROPPED:
		sv_on_snapshot_dropped(sv, event);
		return;
	case SV_EV_TICK:
		tick(sv);
		return;
	case SV_EV_MAX_:
		return;
	}
}

static int64_t next_deadline(const struct supervisor *sv)
{
	const struct sv_sandbox *sandbox;
	int64_t next = sv_session_next(sv);

	if (!sv->started || err_is_set(&sv->unreadable))
		return next;
	next = MIN(next, MIN(sv->owner_deadline_usec, sv->canary.deadline_usec));
	for (sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next)
		next = MIN(next, MIN(sandbox->budget_deadline_usec, MIN(sandbox->deadline_usec, sandbox->snapshot_deadline_usec)));
	return next;
}

void supervisor_step(struct supervisor *sv, struct moment now, struct rng *rng,
	const struct sv_event *event, struct sv_actions *out)
{
	sv->now = now;
	sv->rng = rng;
	sv->out = out;
	handle(sv, event);
	out->next_usec = next_deadline(sv);
	sv->rng = NULL;
	sv->out = NULL;
}

/* ---- reading ---- */

int supervisor_get(const struct supervisor *sv, const char *id, struct sv_view *ret)
{
	const struct sv_sandbox *sandbox = sv_sandbox_find(sv, id);

	if (!sandbox)
		return -ENOENT;
	*ret = (struct sv_view){
		.state = sandbox->journal.state,
		.generation = sandbox->journal.generation,
		.spec = sandbox->journal.spec,
		.vmm = &sandbox->journal.vmm,
		.guest_boot_id = sandbox->journal.guest_boot_id,
		.deadline_usec = sandbox->deadline_usec == NEVER ? 0 : sandbox->deadline_usec,
		.report_version = sandbox->journal.report_version,
		.acked_version = sandbox->journal.acked_version,
	};
	return 0;
}

size_t supervisor_list(const struct supervisor *sv, char (*ret)[ID_SIZE], size_t max)
{
	const struct sv_sandbox *sandbox;
	size_t n = 0;

	for (sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next) {
		if (n < max)
			memcpy(ret[n], sandbox->journal.sandbox, ID_SIZE);
		n++;
	}
	return n;
}

bool supervisor_keeps_image(const struct supervisor *sv, const char *digest)
{
	const struct sv_snapshot *snapshot;

	for (snapshot = sv->snapshots; snapshot; snapshot = snapshot->hh.next)
		if (!strcmp(snapshot->info.image_digest, digest))
			return true;
	return false;
}

void supervisor_count(const struct supervisor *sv, struct sv_counts *ret)
{
	const struct sv_sandbox *sandbox;

	*ret = sv->counts;
	ret->welcomed = sv->welcomed;
	ret->snapshots = HASH_COUNT(sv->snapshots);
	ret->disk_mib = sv_snapshots_mib(sv);
	ret->memory_mib = ret->frozen_mib = sv_frozen_mib(sv);
	for (sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next) {
		enum sv_state state = sandbox->journal.state;

		if (sandbox->is_bad) {
			ret->bad++;
			continue;
		}
		ret->ended += state == SV_ENDED;
		if (state == SV_ENDED || state == SV_KEPT || state == SV_DROPPING)
			continue;
		ret->starting += sv_is_starting(state);
		ret->running += state >= SV_RUNNING && state <= SV_THAWING && state != SV_PAUSED;
		ret->paused += state == SV_PAUSED;
		ret->stopping += sv_is_ending(state);
		ret->disk_mib += sandbox->journal.spec->disk_mib;
		if (sv_has_no_vm(sandbox))
			continue;
		ret->memory_mib += spec_memory_cost(sandbox->journal.spec);
		ret->vcpus += sandbox->journal.spec->vcpus;
	}
}
