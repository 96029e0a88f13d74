/* SPDX-License-Identifier: Apache-2.0
 *
 * What sandboxes were that ended lately: a node's last words of a life come after its end, and count with its tenant, template
 * and shape all the same. Bounded: who has no room here, or ended long ago, is not known any more.
 */
#pragma once

#include <sys/queue.h>

#include "base/table.h"
#include "fleet/fleet.h"

#define ENDED_MAX 4096u        /* about 1 MiB */
#define ENDED_LOAD_MAX 65536u  /* while the kept words of nodes are read at start */
#define ENDED_USEC (10 * 60 * USEC_PER_SEC)

struct ended_sandbox {
	char id[ID_SIZE], node[ID_SIZE];
	char tenant[ID_NAME_MAX + 1], template_name[ID_NAME_MAX + 1];
	uint32_t vcpus;
	uint64_t memory_mib;
	uint64_t generation, took; /* as of its record */
	int64_t ended_us;
	TAILQ_ENTRY(ended_sandbox) in_order;
	UT_hash_handle hh;
};

TAILQ_HEAD(ended_list, ended_sandbox);
struct ended {
	struct ended_sandbox *by_id;
	struct ended_list order; /* in which they were added */
	unsigned int n;
};

void ended_init(struct ended *ended);
void ended_deinit(struct ended *ended);
/* Without memory it is not remembered. */
void ended_add(struct ended *ended, const struct sandbox_record *record);
const struct ended_sandbox *ended_find(const struct ended *ended, const char *id); /* NULL: not known */
/* Forgets the first ones that ended before, or are over ENDED_MAX: all such where they were added as they ended. */
void ended_trim(struct ended *ended, int64_t before_us);
/* The same where they were added in any order. Looks at each. */
void ended_trim_all(struct ended *ended, int64_t before_us);
