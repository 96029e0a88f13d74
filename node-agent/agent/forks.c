/* SPDX-License-Identifier: Apache-2.0
 *
 * See forks.h.
 */
#include "agent/forks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"

#define BLOCKS_PER_MIB 2048u
#define DEVICE_SHIFT 40

static struct live_fork *find(struct live_fork *forks, const char *snapshot)
{
	struct live_fork *live;

	HASH_FIND_STR(forks, snapshot, live);
	return live;
}

int forks_keep(struct live_fork **forks, const char *snapshot, struct vmm_fork *fork)
{
	struct live_fork *live;

	forks_drop(forks, snapshot);
	live = calloc(1, sizeof(*live));
	if (live) {
		memcpy(live->snapshot, snapshot, strlen(snapshot) + 1);
		HASH_ADD_STR(*forks, snapshot, live);
	}
	if (!live || !live->hh.tbl) {
		free(live);
		vmm_fork_close(fork);
		return -ENOMEM;
	}
	live->fork = *fork;
	*fork = (struct vmm_fork){ .n = 0 };
	return 0;
}

const struct vmm_fork *forks_find(struct live_fork *forks, const char *snapshot)
{
	const struct live_fork *live = *snapshot ? find(forks, snapshot) : NULL;

	return live ? &live->fork : NULL;
}

void forks_drop(struct live_fork **forks, const char *snapshot)
{
	struct live_fork *live = find(*forks, snapshot);

	if (!live)
		return;
	HASH_DEL(*forks, live);
	vmm_fork_close(&live->fork);
	free(live);
}

void forks_free(struct live_fork **forks)
{
	while (*forks)
		forks_drop(forks, (*forks)->snapshot);
}

void forks_measure(const struct vmm_fork *fork, uint64_t memory_mib, struct sv_frozen_list *ret)
{
	ret->n = 0;
	for (size_t i = VMM_FORK_MEMORY; i < fork->n && ret->n < SV_FROZEN_MAX; i++) {
		uint64_t mib = memory_mib;
		struct stat st;

		if (fcntl(fork->fds[i], F_GET_SEALS) < 0 || fstat(fork->fds[i], &st) < 0)
			continue;
		if (i > VMM_FORK_MEMORY)
			mib = ((uint64_t)st.st_blocks + BLOCKS_PER_MIB - 1) / BLOCKS_PER_MIB;
		ret->items[ret->n++] = (struct sv_frozen){
			.file = (uint64_t)st.st_ino + ((uint64_t)st.st_dev << DEVICE_SHIFT), .mib = (uint32_t)mib
		};
	}
}
