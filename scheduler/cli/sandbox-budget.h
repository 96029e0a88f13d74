/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sandbox may use, as options: of `croft sandbox create` and of `croft sandbox budget`.
 */
#pragma once

#include "cli/args.h"

struct budget_args {
	int64_t cpu_us, wall_us;
	uint64_t gib_s, egress_bytes;
	const char *action;
};

#define BUDGET_ARGS(to)                                                                                                                     \
	{ "budget-cpu", 0, ARG_DURATION, &(to).cpu_us, "TIME", "CPU time that it may use, as in 90s or 2h." },                               \
		{ "budget-memory", 0, ARG_U64, &(to).gib_s, "GIB-SECONDS", "Memory times running time that it may use." },                  \
		{ "budget-egress", 0, ARG_U64, &(to).egress_bytes, "BYTES", "How much it may send out." },                                  \
		{ "budget-time", 0, ARG_DURATION, &(to).wall_us, "TIME", "How long it may run; sleep costs none." },                         \
		{ "budget-action", 0, ARG_STRING, &(to).action, "ACTION", "What becomes of it then: kill or pause [kill]." }

bool budget_args_is_set(const struct budget_args *args);
json_t *budget_args_json(const struct budget_args *args); /* a new reference */
