/* SPDX-License-Identifier: Apache-2.0
 *
 * How the VMMs ended that this helper started: it is their parent, and only a parent is told. The agent asks once a
 * pidfd says that its VMM is gone. A helper that was restarted knows nothing of those before.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/id.h"

#define EXITS_MAX 512u

struct helper_exits {
	struct {
		pid_t pid; /* 0: free */
		bool has_ended;
		int status;
		char sandbox[ID_SIZE];
	} list[EXITS_MAX];
	unsigned int next; /* the oldest place */
};

void exits_started(struct helper_exits *exits, pid_t pid, const char *sandbox);
/* Of all children that have ended; never waits. */
void exits_reap(struct helper_exits *exits);
/* Of the last one of this sandbox. false: it lives, or is not known. */
bool exits_find(const struct helper_exits *exits, const char *sandbox, int *ret_status);
