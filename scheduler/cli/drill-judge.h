/* SPDX-License-Identifier: Apache-2.0
 *
 * What must become of a sandbox when something around it ends, as one table, and whether it did: pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum drill_step { DRILL_TASK, DRILL_CLIENT, DRILL_AGENT, DRILL_SCHEDULER, DRILL_PAUSE, DRILL_VM, DRILL_NODE, DRILL_STEP_MAX_ };
enum drill_aspect { DRILL_FILES, DRILL_PROCESSES, DRILL_MEMORY, DRILL_POLICY, DRILL_LEASE, DRILL_ASPECT_MAX_ };
enum drill_contract {
	DRILL_GOES_ON,     /* as it was */
	DRILL_SET_ANEW,    /* there, and another */
	DRILL_IS_LOST,     /* and the sandbox says by a code that it ended */
};

const char *drill_step_name(enum drill_step step);
const char *drill_step_what(enum drill_step step); /* one line */
const char *drill_aspect_name(enum drill_aspect aspect);
const char *drill_contract_name(enum drill_contract contract);
enum drill_contract drill_declared(enum drill_step step, enum drill_aspect aspect);

/* A look at the sandbox: of the scheduler, and by a command in it. */
struct drill_seen {
	bool is_there;       /* a command ran in it */
	char state[24];      /* of the scheduler; "": it did not answer */
	char code[48];       /* why it ended */
	char ends[40];       /* its lease: when its time is over */
	char policy[256];    /* its network's, and what its node has else */
	int64_t generation;
	char file[72];       /* what its file has */
	char process[24];    /* id of the process that was begun; "": it does not run */
	char secret[72];     /* that this process drew when it began, and has in memory alone */
	int64_t ticks;       /* that it has counted in memory */
};

struct drill_row {
	bool is_held;
	char evidence[192];
};
/* `before` is the look before the step, `after` the last one behind it. */
void drill_judge(enum drill_step step, enum drill_aspect aspect, const struct drill_seen *before, const struct drill_seen *after,
	struct drill_row *ret);
/* "resumed": it goes on with its memory; "restarted": a new one was needed, and is there; "person": neither. */
const char *drill_verdict(enum drill_step step, const struct drill_seen *before, const struct drill_seen *after, bool has_new);
