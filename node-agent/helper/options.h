/* SPDX-License-Identifier: Apache-2.0
 *
 * What the node's owner lets the helper do. It is read by root from the owner's own file, so an agent that was
 * taken over changes nothing of it: the fence's openings, the pool and every path are here and not in requests.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "network/host.h"

struct helper_options {
	/* [helper] */
	char *socket, *user, *run, *disks;
	/* [network] */
	char *pool, *allow_private;
	uint64_t spares, connections, packets_per_sec, kib_per_sec;
	/* [group] */
	char *group_root;
	uint64_t group_memory_mib, group_cpu_percent, group_io_weight;
	/* [vmm] */
	char *vmm_path, *vm_run;
	uint64_t uid_first, uid_count;
	/* [upgrade] */
	char *upgrade_policy, *upgrade_window, *upgrade_key, *upgrade_launcher;
};

int helper_options_load(struct helper_options *options, int *argc, char **argv, struct err *reterr);
void helper_options_free(struct helper_options *options);
void helper_options_help(FILE *out);
void helper_options_sample(FILE *out);
/* INVALID_CIDR, CONFIG_INVALID. */
int helper_options_network(const struct helper_options *options, struct net_host_config *ret, struct err *reterr);
