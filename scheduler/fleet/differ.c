/* SPDX-License-Identifier: Apache-2.0
 *
 * Network policy and budget of a sandbox are what the record says, and what the sandbox has wherever it is placed next.
 * An inventory says what its node has: where that is something else it is shown beside the record, and the node is told
 * again. So a change whose leader did not live to hear that it was done is taken back: nobody was told that it was. Only
 * after a restore is the node's word the newer one, as it is about everything else then.
 */
#include "fleet/internal.h"

/* What only the node knows since the backup was made. */
static void take(struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_spec *told)
{
	struct sandbox_spec *spec = spec_with_network(sandbox->record.spec, &told->network);

	if (!spec) {
		fleet->out->no_memory = true;
		return;
	}
	spec->budget = told->budget;
	spec_unref(sandbox->record.spec);
	sandbox->record.spec = spec;
	fleet_sandbox_event(fleet, sandbox, "RECOVERED", "network policy and budget as its node has them");
}

/* Not what is being changed just now. The budget of one that sleeps may have been changed since; its wake says it. */
void fleet_differ_compare(struct fleet *fleet, struct sandbox *sandbox, const struct sandbox_report *report)
{
	const enum sandbox_state state = sandbox->record.state;
	const struct update *update = &sandbox->update;
	const struct sandbox_spec *spec = sandbox->record.spec;
	const bool is_asleep = report->state == REPORT_PAUSED;

	if (!report->spec || (state != SANDBOX_RUNNING && state != SANDBOX_PAUSED) ||
		is_asleep != (state == SANDBOX_PAUSED))
		return;
	if (!update->pending || !update->spec || update->is_budget)
		sandbox->network_differs = !net_policy_is_equal(&spec->network, &report->spec->network);
	if (!is_asleep && (!update->pending || !update->is_budget))
		sandbox->budget_differs = !budget_is_equal(&spec->budget, &report->spec->budget);
	if (!sandbox->network_differs && !sandbox->budget_differs)
		return;
	if (fleet_node_is_unsettled(fleet, sandbox->node)) {
		sandbox->network_differs = sandbox->budget_differs = false;
		take(fleet, sandbox, report->spec);
		return;
	}
	fleet->counts.differs++;
	if (sandbox->differed == sandbox->record.generation)
		return;
	sandbox->differed = sandbox->record.generation; /* once: a node that says it again and again fills no record */
	fleet_sandbox_event(fleet, sandbox, "NODE_DIFFERS",
		sandbox->network_differs ? "its node has another network policy" : "its node has another budget");
}

void fleet_differ_correct(struct fleet *fleet, struct sandbox *sandbox, bool at_once)
{
	struct sandbox_spec *spec;

	if (sandbox->record.state != SANDBOX_RUNNING || sandbox->update.pending ||
		(!sandbox->network_differs && !sandbox->budget_differs))
		return;
	spec = spec_with_network(sandbox->record.spec, &sandbox->record.spec->network);
	if (!spec) {
		fleet->out->no_memory = true;
		return;
	}
	fleet_request_change(fleet, sandbox, 0, 0, spec, !sandbox->network_differs);
	sandbox->resends = 0;
	if (at_once)
		fleet_sandbox_command(fleet, sandbox);
	else
		fleet_sandbox_command_later(fleet, sandbox);
}
