/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of one run: the facts of a trace, or of a sandbox, in the order in which they began.
 */
#pragma once

#include "telemetry/facts.h"

#define TRACE_FACTS_MAX 1000 /* that are shown; the first ones */

struct trace_filter {
	const char *trace, *sandbox; /* of which one is NULL */
	bool (*sees)(const char *tenant, const void *user);
	const void *user;
};

/* Reads every fact. `ret` has room for TRACE_FACTS_MAX; its texts live as long as the facts stay as they are. Returns how many
 * there are; *ret_more: there are others that began later. */
size_t facts_trace(const struct facts *facts, const struct trace_filter *filter, struct stage_fact *ret, bool *ret_more);
/* The latest beginning of a fact that was dropped; 0: none was. */
int64_t facts_dropped_until(const struct facts *facts);
/* Which of croft's processes a stage runs in: "scheduler", "node", "vmm", "guest", "gateway", "egress". */
const char *trace_process(enum fail_stage stage);
