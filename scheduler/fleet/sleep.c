/* SPDX-License-Identifier: Apache-2.0
 *
 * To sleep and awake again. The node does it and has the last word; here its room is kept right.
 *
 *   RUNNING -> PAUSING -> PAUSED -> RESUMING -> RUNNING
 *
 * A paused sandbox keeps its place and its disk's room, and gives back memory, vCPUs and slot once its node said that its
 * VM is gone. They are taken again before the node is asked to wake it, and kept until the node said which of the two it
 * is: a deadline answers whoever waits, and changes nothing else. A node pauses one by itself at the end of its life
 * where its maker wanted that (auto_pause).
 */
#include <string.h>

#include "fleet/internal.h"

/* ---- who waits ---- */

void fleet_sleep_answer(struct fleet *fleet, struct sandbox *sandbox, const struct err *err)
{
	struct waiter *waiter;

	while ((waiter = TAILQ_FIRST(&sandbox->sleepers))) {
		fleet_emit_reply(fleet, waiter->request, err, sandbox);
		fleet_waiter_remove(fleet, waiter->request);
	}
}

static void refuse(struct fleet *fleet, struct sandbox *sandbox, uint64_t request, enum fail_stage stage,
	enum fail_code code, const char *why)
{
	struct err err = ERR_NULL;

	(void)err_set_at(&err, stage, code, 0, "%s", why);
	fleet_emit_reply(fleet, request, &err, sandbox);
}

static struct sandbox *find(struct fleet *fleet, uint64_t request, enum fail_stage stage, const char *id)
{
	struct sandbox *sandbox = fleet_sandbox_find(fleet, id);

	if (sandbox && sandbox->record.state != SANDBOX_STOPPING && sandbox->record.state != SANDBOX_FENCED)
		return sandbox;
	refuse(fleet, NULL, request, stage, FAIL_SANDBOX_NOT_FOUND, "There is no such sandbox.");
	return NULL;
}

/* What cannot be asked of a node now is refused, and not kept for later. */
static bool is_reached(struct fleet *fleet, struct sandbox *sandbox, uint64_t request, enum fail_stage stage)
{
	if (sandbox->node->session == 0 || !sandbox->node->is_known) {
		refuse(fleet, sandbox, request, stage, FAIL_NODE_UNREACHABLE, "The sandbox's node is cut off at present.");
		return false;
	}
	if (!sandbox->node->pauses)
		refuse(fleet, sandbox, request, stage, FAIL_PAUSE_UNSUPPORTED,
			"The agent of the sandbox's node cannot pause sandboxes.");
	return sandbox->node->pauses;
}

static void begin(struct fleet *fleet, struct sandbox *sandbox, uint64_t request, enum sandbox_state state)
{
	id_new(fleet->rng, sandbox->record.operation);
	sandbox->sleep_number = fleet_change_number(fleet);
	if (request)
		(void)fleet_waiter_add(fleet, request, WAITS_SLEEP, sandbox);
	fleet_sandbox_move(fleet, sandbox, state);
	fleet_sandbox_command(fleet, sandbox);
}

/* ---- what the API asks ---- */

void fleet_request_pause(struct fleet *fleet, uint64_t request, const char *id, const struct fleet_quota *quota)
{
	struct sandbox *sandbox = find(fleet, request, STAGE_PAUSE, id);
	struct err err = ERR_NULL;

	if (!sandbox)
		return;
	switch (sandbox->record.state) {
	case SANDBOX_PAUSING: /* somebody else asked a moment ago, and it may yet come to nothing */
		if (request)
			(void)fleet_waiter_add(fleet, request, WAITS_SLEEP, sandbox);
		return;
	case SANDBOX_PAUSED:
		refuse(fleet, sandbox, request, STAGE_PAUSE, FAIL_CONFLICT, "The sandbox is paused already.");
		return;
	case SANDBOX_RUNNING:
		break;
	default:
		refuse(fleet, sandbox, request, STAGE_PAUSE, FAIL_SANDBOX_NOT_READY, "The sandbox is not running yet.");
		return;
	}
	if (sandbox->snapshot) {
		refuse(fleet, sandbox, request, STAGE_PAUSE, FAIL_SNAPSHOTTING, "A snapshot of the sandbox is under way.");
		return;
	}
	if (!is_reached(fleet, sandbox, request, STAGE_PAUSE))
		return;
	if (fleet_quota_check_pause(fleet, sandbox->record.tenant, quota, fleet_quota_kept_mib(sandbox->record.spec), &err) < 0) {
		fleet_emit_reply(fleet, request, &err, sandbox);
		return;
	}
	if (sandbox->update.pending) {
		(void)err_set(&err, FAIL_CONFLICT, 0, "The sandbox is paused.");
		fleet_request_update_drop(fleet, sandbox, &err);
	}
	begin(fleet, sandbox, request, SANDBOX_PAUSING);
}

static bool has_room(struct fleet *fleet, struct sandbox *sandbox, uint64_t request)
{
	struct place_demand demand;
	struct err err = ERR_NULL;

	if (PLANTED(WAKE_NOT_RESERVED))
		return true;
	fleet_sandbox_demand(sandbox, &demand);
	if (place_can_wake(sandbox->node->place, &demand, &err) == 0)
		return true;
	err.stage = STAGE_RESUME;
	fleet_emit_reply(fleet, request, &err, sandbox);
	return false;
}

static void resume(struct fleet *fleet, struct sandbox *sandbox, const struct fleet_resume *resume)
{
	struct err err = ERR_NULL;

	if (!is_reached(fleet, sandbox, resume->request, STAGE_RESUME) || !has_room(fleet, sandbox, resume->request))
		return;
	if (fleet_quota_check(fleet, fleet->now.mono_usec, sandbox->record.tenant, &resume->quota, sandbox->record.spec,
		    &err) < 0) {
		fleet_emit_reply(fleet, resume->request, &err, sandbox);
		return;
	}
	fleet_quota_start(fleet, sandbox->record.tenant, &resume->quota);
	if (!PLANTED(WAKE_NOT_RESERVED))
		fleet_sandbox_wake(fleet, sandbox);
	sandbox->record.resume_timeout_s = resume->timeout_s ? resume->timeout_s : sandbox->record.spec->timeout_s;
	begin(fleet, sandbox, resume->request, SANDBOX_RESUMING);
}

void fleet_request_resume(struct fleet *fleet, const struct fleet_resume *request)
{
	struct sandbox *sandbox = find(fleet, request->request, STAGE_RESUME, request->sandbox);

	if (!sandbox)
		return;
	switch (sandbox->record.state) {
	case SANDBOX_PAUSED:
		resume(fleet, sandbox, request);
		return;
	case SANDBOX_PAUSING:  /* answered when it is known which of the two it is: who wants it awake asks again then */
	case SANDBOX_RESUMING: /* somebody else asked a moment ago */
		if (request->request)
			(void)fleet_waiter_add(fleet, request->request, WAITS_SLEEP, sandbox);
		return;
	case SANDBOX_RUNNING:
		if (request->timeout_s)
			fleet_request_set_timeout(fleet, request->request, request->sandbox, request->timeout_s);
		else
			fleet_emit_reply(fleet, request->request, NULL, sandbox);
		return;
	default:
		refuse(fleet, sandbox, request->request, STAGE_RESUME, FAIL_SANDBOX_NOT_READY,
			"The sandbox is on its way to another state.");
		return;
	}
}

/* ---- what the node says ---- */

static void asleep(struct fleet *fleet, struct sandbox *sandbox)
{
	fleet_snapshot_orphan(fleet, sandbox, FAIL_CONFLICT);
	fleet_sandbox_sleep(fleet, sandbox);
	sandbox->record.ends_us = 0;
	fleet_sandbox_move(fleet, sandbox, SANDBOX_PAUSED);
	fleet->kicked = true;
}

/* An agent that was started again does not know any more why. */
static void answer_failed(
	struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_report *report, enum fail_stage stage)
{
	struct err err = report->update_failure;

	if (!err_is_set(&err))
		(void)err_set_at(&err, stage, stage == STAGE_PAUSE ? FAIL_PAUSE_FAILED : FAIL_RESUME_FAILED, 0,
			stage == STAGE_PAUSE ? "The node did not do it; its agent was started again since."
					     : "The node did not do it, or the sandbox sleeps again since.");
	fleet_sleep_answer(fleet, sandbox, &err);
}

/* Unasked: the stage before the pause says it where the node noted one. */
static const char *why_asleep(const struct sandbox_report *report)
{
	const struct stage_record *before = report->n_stages > 1 ? &report->stages[report->n_stages - 2] : NULL;

	return before && before->failure.code == FAIL_BUDGET_EXCEEDED ? "its budget is used up" : "at the end of its life";
}

void fleet_sleep_paused(struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_report *report)
{
	struct sandbox_record *record = &sandbox->record;
	bool is_asked = record->state == SANDBOX_PAUSING;
	struct err gone = ERR_NULL;

	if (record->state == SANDBOX_RUNNING || is_asked) {
		if (sandbox->update.pending) {
			(void)err_set(&gone, FAIL_CONFLICT, 0, "The sandbox was paused at the end of its life.");
			fleet_request_update_drop(fleet, sandbox, &gone);
		}
		fleet_sandbox_event(fleet, sandbox, "PAUSED", is_asked ? "" : why_asleep(report));
		asleep(fleet, sandbox);
		fleet_sleep_answer(fleet, sandbox, NULL);
	} else if (record->state == SANDBOX_RESUMING && !strcmp(report->updated, record->operation)) {
		asleep(fleet, sandbox);
		answer_failed(fleet, sandbox, report, STAGE_RESUME);
	}
}

void fleet_sleep_running(struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_report *report)
{
	struct sandbox_record *record = &sandbox->record;

	if (record->state == SANDBOX_PAUSING) {
		if (strcmp(report->updated, record->operation) != 0)
			return; /* from before */
		fleet_sandbox_move(fleet, sandbox, SANDBOX_RUNNING);
		answer_failed(fleet, sandbox, report, STAGE_PAUSE);
		return;
	}
	if (record->state == SANDBOX_PAUSED) /* the store is older than the node: it has the last word */
		fleet_sandbox_wake(fleet, sandbox);
	record->ends_us = record->resume_timeout_s
				  ? fleet->now.real_usec + record->resume_timeout_s * USEC_PER_SEC
				  : 0;
	fleet_sandbox_event(fleet, sandbox, "WOKEN", "");
	fleet_sandbox_move(fleet, sandbox, SANDBOX_RUNNING);
	fleet_sleep_answer(fleet, sandbox, NULL);
}

/* What it will be its node alone knows, and it is asked on. */
void fleet_sleep_deadline(struct fleet *fleet, struct sandbox *sandbox)
{
	bool is_pause = sandbox->record.state == SANDBOX_PAUSING;
	struct err err = ERR_NULL;

	(void)err_set_at(&err, is_pause ? STAGE_PAUSE : STAGE_RESUME, FAIL_NODE_UNREACHABLE, 0,
		"The sandbox's node did not say in time that it %s; it may yet.", is_pause ? "sleeps" : "is awake");
	fleet_sleep_answer(fleet, sandbox, &err);
	fleet_sandbox_arm(fleet, sandbox);
}
