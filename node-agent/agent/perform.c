/* SPDX-License-Identifier: Apache-2.0
 *
 * Performs what a step of the supervisor answered: actions of the node at once, those of a sandbox
 * through its queue (sandbox.c), in the order given.
 */
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/journal.h"
#include "agent/link.h"
#include "agent/message.h"
#include "agent/sandbox.h"
#include "agent/spool.h"
#include "agent/todo.h"
#include "base/clock.h"
#include "base/log.h"
#include "wire/records.h"

static void save_epoch(struct agent *agent, const struct sv_action *action)
{
	struct post post = { .type = SV_EV_JOURNAL_FAILED };

	/* On the loop: it happens once per change of the leading scheduler, and nothing may
	 * overtake it. */
	if (journal_write_epoch(agent->options->state, action->epoch, &action->leader, &post.err) < 0) {
		log_failure(LOG_LEVEL_ERROR, "cannot save the epoch", &post.err, NULL);
		agent_post(agent, &post);
	}
}

static void hold_inventory(struct agent *agent, struct sv_action *action)
{
	struct held *held = calloc(1, sizeof(*held));

	if (!held) {
		sv_action_deinit(action); /* the supervisor sends another when no answer comes */
		return;
	}
	held->action = *action;
	held->barrier = agent->last_ticket;
	memset(action, 0, sizeof(*action));
	STAILQ_INSERT_TAIL(&agent->held, held, link);
	perform_held(agent);
}

static void perform_node(struct agent *agent, struct sv_action *action)
{
	switch (action->type) {
	case SV_DO_SAVE_EPOCH:
		save_epoch(agent, action);
		break;
	case SV_DO_SEND_HELLO:
		link_send_hello(agent->link, action->hello);
		break;
	case SV_DO_SEND_HEARTBEAT:
		link_send_heartbeat(agent->link, &action->heartbeat);
		break;
	case SV_DO_SEND_INVENTORY:
		hold_inventory(agent, action);
		return;
	case SV_DO_SEND_CAPACITY:
		link_send_capacity(agent->link, action->capacity);
		break;
	case SV_DO_SEND_USAGE:
		link_send_usage(agent->link, action->usage);
		break;
	case SV_DO_SEND_DROPPED:
		link_send_dropped(agent->link, action->snapshot_id);
		break;
	case SV_DO_SEND_REFUSED:
		link_send_refused(agent->link, action->err);
		break;
	case SV_DO_RECONNECT:
		link_reconnect(agent->link);
		break;
	default:
		perform_shared(agent, action);
		break;
	}
	sv_action_deinit(action);
}

/* Those that a sandbox's queue and the node have in common. */
void perform_shared(struct agent *agent, const struct sv_action *action)
{
	switch (action->type) {
	case SV_DO_SEND_REPORT:
		link_send_report(agent->link, action->report, &action->trace);
		break;
	case SV_DO_DROP_KEPT:
		snapshot_drop(agent, action->snapshot_id, action->answer);
		break;
	case SV_DO_STAGE:
		perform_stage(agent, action->stage);
		break;
	case SV_DO_NODE_EVENT:
		agent_node_event(agent, action->event.name, action->sandbox, action->event.snapshot, action->event.err);
		break;
	default:
		log_error("an action of the supervisor is not known here", "action",
			LOG_NUM(action->type));
		break;
	}
}

void perform_stage(struct agent *agent, const struct stage_record *stage)
{
	Croft__TelemetryRecord record = MESSAGE(Croft__TelemetryRecord, croft__telemetry_record);
	Croft__StageRecord *message = stage_record_encode(stage);

	log_info("stage", "sandbox", stage->sandbox, "stage", stage_name(stage->stage), "outcome",
		outcome_name(stage->outcome), "took_ms", LOG_NUM(stage->took_us / USEC_PER_MSEC),
		"code",
		err_is_set(&stage->failure) ? failure_info(stage->failure.code)->name : NULL,
		"cause", err_is_set(&stage->failure) ? stage->failure.msg : NULL, "trace",
		stage->trace.trace_id);
	if (!message)
		return;
	record.when_us = clock_realtime_usec();
	record.body_case = CROFT__TELEMETRY_RECORD__BODY_STAGE;
	record.stage = message;
	spool_append(agent->spool, &record);
	protobuf_c_message_free_unpacked(&message->base, NULL);
}

void perform_actions(struct agent *agent, struct sv_actions *actions)
{
	agent->step++;
	for (size_t i = 0; i < actions->n; i++) {
		struct sv_action *action = &actions->items[i];

		if (*action->sandbox)
			sandbox_queue(agent, action);
		else
			perform_node(agent, action);
	}
	/* started last: a queue that runs dry may free its sandbox, which a later action of the
	 * step would make anew */
	sandbox_run_queues(agent);
}

void perform_held(struct agent *agent)
{
	struct held *held;

	while ((held = STAILQ_FIRST(&agent->held))) {
		const struct todo *oldest = TAILQ_FIRST(&agent->writes);

		if (oldest && oldest->ticket <= held->barrier)
			return;
		STAILQ_REMOVE_HEAD(&agent->held, link);
		link_send_inventory(agent->link, held->action.inventory);
		sv_action_deinit(&held->action);
		free(held);
	}
}

void perform_free(struct agent *agent)
{
	struct held *held;

	while ((held = STAILQ_FIRST(&agent->held))) {
		STAILQ_REMOVE_HEAD(&agent->held, link);
		sv_action_deinit(&held->action);
		free(held);
	}
}
