/* SPDX-License-Identifier: Apache-2.0
 *
 * Forks' own snapshots, which lie in memory: for each, what its sandbox's VMM gave when it was forked. Sandboxes begin as it
 * for as long as it is kept here; those that began have descriptors of their own. It goes with the agent.
 */
#pragma once

#include "agent/vmm.h"
#include "base/table.h"

struct live_fork {
	char snapshot[ID_SIZE];
	struct vmm_fork fork;
	UT_hash_handle hh;
};

/* Takes over the descriptors, in any case. 0 or -ENOMEM. */
int forks_keep(struct live_fork **forks, const char *snapshot, struct vmm_fork *fork);
const struct vmm_fork *forks_find(struct live_fork *forks, const char *snapshot); /* NULL: there is none */
void forks_drop(struct live_fork **forks, const char *snapshot);
void forks_free(struct live_fork **forks);

/* The files of memory among them that the kernel calls unchangeable, and what each takes; that of the guest's memory counts as a whole,
 * since who reads what nobody touched before makes it larger. Files of the disk are none. */
void forks_measure(const struct vmm_fork *fork, uint64_t memory_mib, struct sv_frozen_list *ret);
