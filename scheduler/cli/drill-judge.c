/* SPDX-License-Identifier: Apache-2.0
 *
 * See drill-judge.h.
 */
#include "cli/drill-judge.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name, *what;
	enum drill_contract contract[DRILL_ASPECT_MAX_];
} table[DRILL_STEP_MAX_] = {
	/* files, processes, memory, policy, lease */
	[DRILL_TASK] = { "task", "a typical task: create, write, compute, read back",
		{ DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON } },
	[DRILL_CLIENT] = { "client", "its client is killed in the middle of a command",
		{ DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON } },
	[DRILL_AGENT] = { "agent", "the node's agent is restarted",
		{ DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON } },
	[DRILL_SCHEDULER] = { "scheduler", "the scheduler is restarted",
		{ DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON } },
	[DRILL_PAUSE] = { "pause", "it is paused and resumed",
		{ DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON, DRILL_SET_ANEW } },
	[DRILL_VM] = { "vm", "its VM is killed",
		{ DRILL_IS_LOST, DRILL_IS_LOST, DRILL_IS_LOST, DRILL_GOES_ON, DRILL_IS_LOST } },
	[DRILL_NODE] = { "node", "its node is cut off, and comes back",
		{ DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON, DRILL_GOES_ON } },
};
static const char *const aspects[DRILL_ASPECT_MAX_] = { "files", "processes", "memory", "policy", "lease" };
static const char *const contracts[] = { "goes on", "is set anew", "is lost, and that is said" };

const char *drill_step_name(enum drill_step step)
{
	return table[step].name;
}

const char *drill_step_what(enum drill_step step)
{
	return table[step].what;
}

const char *drill_aspect_name(enum drill_aspect aspect)
{
	return aspects[aspect];
}

const char *drill_contract_name(enum drill_contract contract)
{
	return contracts[contract];
}

enum drill_contract drill_declared(enum drill_step step, enum drill_aspect aspect)
{
	return table[step].contract[aspect];
}

static bool is_same(const char *a, const char *b)
{
	return *a && !strcmp(a, b);
}

static bool goes_on(enum drill_aspect aspect, const struct drill_seen *before, const struct drill_seen *after)
{
	switch (aspect) {
	case DRILL_FILES:
		return after->is_there && is_same(before->file, after->file);
	case DRILL_PROCESSES:
		return after->is_there && is_same(before->process, after->process) && after->ticks > before->ticks;
	case DRILL_MEMORY:
		/* a process that began anew has another secret, and counts from one */
		return after->is_there && *after->process && is_same(before->secret, after->secret) && after->ticks >= before->ticks;
	case DRILL_POLICY:
		return is_same(before->policy, after->policy);
	default:
		return is_same(before->ends, after->ends) && before->generation == after->generation;
	}
}

static void show(enum drill_aspect aspect, const struct drill_seen *seen, char *buf, size_t size)
{
	if (aspect == DRILL_FILES)
		(void) snprintf(buf, size, "%.12s", *seen->file ? seen->file : "none");
	else if (aspect == DRILL_PROCESSES)
		(void) snprintf(buf, size, "process %.12s at %lld", *seen->process ? seen->process : "none", (long long) seen->ticks);
	else if (aspect == DRILL_MEMORY)
		(void) snprintf(buf, size, "%.8s at %lld", *seen->secret ? seen->secret : "none", (long long) seen->ticks);
	else if (aspect == DRILL_POLICY)
		(void) snprintf(buf, size, "%.72s", *seen->policy ? seen->policy : "unknown");
	else
		(void) snprintf(buf, size, "generation %lld until %.30s", (long long) seen->generation, *seen->ends ? seen->ends : "its end");
}

void drill_judge(enum drill_step step, enum drill_aspect aspect, const struct drill_seen *before, const struct drill_seen *after,
	struct drill_row *ret)
{
	enum drill_contract declared = drill_declared(step, aspect);
	char from[80], to[80];

	if (declared == DRILL_GOES_ON)
		ret->is_held = goes_on(aspect, before, after);
	else if (declared == DRILL_SET_ANEW)
		ret->is_held = *after->ends && before->generation == after->generation && strcmp(after->ends, before->ends) >= 0;
	else
		ret->is_held = !strcmp(after->state, "ended") && *after->code;
	show(aspect, before, from, sizeof(from));
	show(aspect, after, to, sizeof(to));
	if (declared == DRILL_IS_LOST)
		(void) snprintf(ret->evidence, sizeof(ret->evidence), "state %.20s, %.40s", *after->state ? after->state : "unknown",
			*after->code ? after->code : "no code");
	else if (!strcmp(from, to))
		(void) snprintf(ret->evidence, sizeof(ret->evidence), "%s", to);
	else
		(void) snprintf(ret->evidence, sizeof(ret->evidence), "%s, before %s", to, from);
}

const char *drill_verdict(enum drill_step step, const struct drill_seen *before, const struct drill_seen *after, bool has_new)
{
	if (goes_on(DRILL_MEMORY, before, after) && goes_on(DRILL_PROCESSES, before, after))
		return "resumed";
	return step == DRILL_VM && has_new ? "restarted" : "person";
}
