/* SPDX-License-Identifier: Apache-2.0
 *
 * After a restore the store is older than the nodes. Until a node's whole inventory was seen once under the new
 * lineage nothing there is destroyed for being unknown: a sandbox that the store does not know is adopted as recovered,
 * and one that the store knows by an older generation is where the newer one is. What the store has and no node has
 * ended after the backup was made (report.c, missing).
 *
 * A node that comes from another scheduler with what runs on it (a token with adopt_tenant) is the same case, with one
 * difference: whose all of it is was said by who made the token, and not by the node.
 */
#include <string.h>

#include "fleet/internal.h"

bool fleet_node_is_unsettled(const struct fleet *fleet, const struct node *node)
{
	return *node->record.lineage && strcmp(node->record.lineage, fleet->config.lineage) != 0;
}

void fleet_node_settle(struct fleet *fleet, struct node *node)
{
	if (!strcmp(node->record.lineage, fleet->config.lineage))
		return;
	memcpy(node->record.lineage, fleet->config.lineage, sizeof(node->record.lineage));
	memset(node->record.adopt_tenant, 0, sizeof(node->record.adopt_tenant));
	fleet_node_dirty(fleet, node);
}

static enum sandbox_state state_of(enum report_state state)
{
	switch (state) {
	case REPORT_RUNNING:
		return SANDBOX_RUNNING;
	case REPORT_PAUSED:
		return SANDBOX_PAUSED;
	case REPORT_STOPPING:
		return SANDBOX_STOPPING;
	case REPORT_STARTING:
	case REPORT_NONE:
	case REPORT_UNKNOWN:
	case REPORT_ENDED:
	case REPORT_MAX_:
		break;
	}
	return SANDBOX_STARTING;
}

/* So that a later word about this generation is known to come from where it was. */
static void note_place(struct fleet *fleet, struct sandbox *sandbox)
{
	fleet_sandbox_note(
		fleet, sandbox, STAGE_PLACE, RESULT_OK, fleet->now.real_usec, 0, NULL);
}

static void adopt_new(struct fleet *fleet, struct node *node, const struct sandbox_report *report)
{
	struct sandbox_record record = {
		.generation = report->generation,
		.incarnation = 1,
		.state = state_of(report->state),
		.spec = spec_ref(report->spec),
		.created_us = fleet->now.real_usec,
		.attempts = 1,
	};
	struct sandbox *sandbox;

	memcpy(record.id, report->sandbox, sizeof(record.id));
	if (*node->record.adopt_tenant) /* the report's specification was decoded for it alone */
		memcpy(report->spec->tenant, node->record.adopt_tenant, sizeof(report->spec->tenant));
	memcpy(record.tenant, report->spec->tenant, sizeof(record.tenant));
	memcpy(record.pool, node->record.pool, sizeof(record.pool));
	memcpy(record.template_alias, report->spec->template_name, sizeof(record.template_alias));
	memcpy(record.operation, report->operation, sizeof(record.operation));
	trace_new(fleet->rng, &record.trace);
	if (record.state == SANDBOX_RUNNING || record.state == SANDBOX_PAUSED)
		record.started_us = fleet->now.real_usec; /* when exactly is not known any more */
	sandbox = fleet_sandbox_add(fleet, &record);
	if (!sandbox) {
		sandbox_record_deinit(&record);
		fleet->out->no_memory = true;
		return;
	}
	fleet_sandbox_attach(fleet, sandbox, node);
	fleet_sandbox_reserve(fleet, sandbox, sandbox->record.state == SANDBOX_STARTING);
	if (sandbox->record.state == SANDBOX_PAUSED)
		fleet_sandbox_sleep(fleet, sandbox);
	fleet_sandbox_arm(fleet, sandbox);
	note_place(fleet, sandbox);
	fleet_sandbox_event(fleet, sandbox, "RECOVERED",
		*node->record.adopt_tenant ? "it came with its node" : "the restored store did not know it");
	fleet->counts.recovered++;
}

/* It was placed again after the backup was made. */
static void follow(struct fleet *fleet, struct sandbox *sandbox, struct node *node,
	const struct sandbox_report *report)
{
	if (sandbox->record.state == SANDBOX_BACKOFF)
		fleet_sandbox_move(fleet, sandbox, SANDBOX_PLACING);
	fleet_sandbox_detach(fleet, sandbox);
	fleet_sandbox_attach(fleet, sandbox, node);
	if (sandbox->record.state == SANDBOX_PLACING)
		fleet_sandbox_move(fleet, sandbox, SANDBOX_DISPATCHED);
	fleet_sandbox_reserve(fleet, sandbox,
		sandbox->record.state == SANDBOX_DISPATCHED ||
			sandbox->record.state == SANDBOX_STARTING);
	sandbox->record.generation = report->generation;
	sandbox->record.report_version = 0;
	note_place(fleet, sandbox);
	fleet_sandbox_event(fleet, sandbox, "RECOVERED", "the restored store knew it elsewhere");
	fleet->counts.recovered++;
}

void fleet_adopt(struct fleet *fleet, struct node *node, const struct sandbox_report *report)
{
	struct sandbox *sandbox = fleet_sandbox_find(fleet, report->sandbox);

	if (!fleet_node_is_unsettled(fleet, node) || report->state == REPORT_ENDED)
		return;
	if (!sandbox) {
		if (report->spec)
			adopt_new(fleet, node, report);
	} else if (report->generation > sandbox->record.generation) {
		follow(fleet, sandbox, node, report);
	}
}
