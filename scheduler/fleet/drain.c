/* SPDX-License-Identifier: Apache-2.0
 *
 * Draining a node: nothing more is placed there (that is the fact alone), each sandbox there is told at once by the
 * event NODE_DRAIN, and what is still there at the deadline leaves: what runs is ended with NODE_DRAINED, a start under
 * way is called back and placed elsewhere. The deadline is wall time on record, so a restart keeps it.
 */
#include <stdio.h>
#include <string.h>

#include "fleet/internal.h"

void fleet_sandbox_event(
	struct fleet *fleet, struct sandbox *sandbox, const char *name, const char *detail)
{
	struct sandbox_record *record = &sandbox->record;
	struct sandbox_event *event;

	if (record->n_events == SANDBOX_EVENTS_MAX) {
		memmove(record->events, record->events + 1,
			(SANDBOX_EVENTS_MAX - 1) * sizeof(*record->events));
		record->n_events--;
	} else {
		struct sandbox_event *grown =
			realloc(record->events, (record->n_events + 1) * sizeof(*grown));

		if (!grown) {
			fleet->out->no_memory = true;
			return;
		}
		record->events = grown;
	}
	event = &record->events[record->n_events++];
	*event = (struct sandbox_event){ .when_us = fleet->now.real_usec };
	(void)snprintf(event->name, sizeof(event->name), "%s", name);
	(void)snprintf(event->node, sizeof(event->node), "%s", record->node);
	(void)snprintf(event->detail, sizeof(event->detail), "%s", detail);
	fleet_sandbox_dirty(fleet, sandbox);
}

static bool leaves(enum sandbox_state state)
{
	return state == SANDBOX_DISPATCHED || state == SANDBOX_STARTING || state == SANDBOX_RUNNING ||
	       fleet_is_sleeping(state);
}

void fleet_drain_arm(struct fleet *fleet, struct node *node)
{
	const struct node_fact_entry *fact = &node->record.facts[NODE_DRAINING];

	if (!fact->is_set || fact->until_us == 0 || node->link == NODE_REMOVED) {
		fleet_timer_stop(&fleet->timers, &node->drain);
		return;
	}
	if (fleet_timer_arm(&fleet->timers, &node->drain,
		    fleet->now.mono_usec + MAX(fact->until_us - fleet->now.real_usec, 0)) < 0)
		fleet->out->no_memory = true;
}

void fleet_drain_begin(struct fleet *fleet, struct node *node)
{
	const struct node_fact_entry *fact = &node->record.facts[NODE_DRAINING];
	char until[CLOCK_RFC3339_SIZE], detail[96];
	struct sandbox *sandbox;

	fleet_drain_arm(fleet, node);
	(void)snprintf(detail, sizeof(detail), "ended at %s if it is still there",
		fact->until_us ? clock_format_rfc3339(fact->until_us, until, sizeof(until))
			       : "no time");
	TAILQ_FOREACH (sandbox, &node->sandboxes, in_node)
		if (leaves(sandbox->record.state))
			fleet_sandbox_event(fleet, sandbox, "NODE_DRAIN", detail);
}

static void leave(struct fleet *fleet, struct sandbox *sandbox)
{
	struct err err = ERR_NULL;

	fleet->counts.drained++;
	if (sandbox->record.state == SANDBOX_RUNNING || fleet_is_sleeping(sandbox->record.state)) {
		(void)err_set(&err, FAIL_NODE_DRAINED, 0,
			"The sandbox's node was drained and the deadline came.");
		err_add(&err, "node", "%s", sandbox->record.node);
		sandbox->record.failure = err;
		fleet_sandbox_stop(fleet, sandbox, END_DRAINED);
		return;
	}
	(void)err_set(&err, FAIL_NODE_DRAINING, 0, "The node was drained in the middle of the start.");
	err_add(&err, "node", "%s", sandbox->record.node);
	fleet_start_recall(fleet, sandbox, &err);
}

void fleet_drain_on_deadline(struct fleet *fleet, struct node *node)
{
	struct sandbox *sandbox, *next;

	if (!node->record.facts[NODE_DRAINING].is_set)
		return;
	for (sandbox = TAILQ_FIRST(&node->sandboxes); sandbox; sandbox = next) {
		next = TAILQ_NEXT(sandbox, in_node);
		if (leaves(sandbox->record.state))
			leave(fleet, sandbox);
	}
}
