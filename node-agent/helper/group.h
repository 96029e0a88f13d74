/* SPDX-License-Identifier: Apache-2.0
 *
 * Control groups (v2) of VMs: <root>/<sandbox>, made, limited, killed and removed by the descriptor of a root that
 * was opened once. A name is a sandbox id and nothing else.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "helper/message.h"

struct groups {
	int root; /* -1: none */
	bool has_memory, has_cpu, has_tasks;
};
#define GROUPS_NULL { .root = -1 }

/* Makes the root where it is absent and hands every controller down that the host lets us have. CGROUP_FAILED: no
 * cgroup v2 there. */
int groups_open(struct groups *groups, const char *root, struct err *reterr);
/* The owner's ceiling over all VMs together, which each VM's own limits lie below. 0 in memory or cpu: none, also where there
 * was one; io_weight 1 to 10000, 100 is the kernel's own. CGROUP_FAILED where the host cannot hold what is asked, with the
 * field "controller". */
struct groups_ceiling {
	uint64_t memory_mib, cpu_percent, io_weight;
};
int groups_limit(const struct groups *groups, const struct groups_ceiling *ceiling, struct err *reterr);
void groups_close(struct groups *groups);

/* An existing one gets the limits. CGROUP_FAILED; of a limit whose controller is missing with the field "controller". */
int group_make(const struct groups *groups, const char *sandbox, const struct helper_group_limits *limits,
	struct err *reterr);
/* Its directory, for clone or for the VMM to move into; -errno. */
int group_open(const struct groups *groups, const char *sandbox);
bool group_exists(const struct groups *groups, const char *sandbox);
/* Does a process live in it? */
bool group_is_populated(const struct groups *groups, const char *sandbox);
/* SIGKILL to all in it. 0 also when there is none. */
int group_kill(const struct groups *groups, const char *sandbox, struct err *reterr);
/* 0 also when there is none; EBUSY in err_no while a process is in it. */
int group_remove(const struct groups *groups, const char *sandbox, struct err *reterr);
/* What is not known is 0. */
void group_read(const struct groups *groups, const char *sandbox, struct helper_group_use *ret);
