/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node join --token-file FILE [--state DIR] [--replace]
 */
#include <stdio.h>

#include "agent/commands.h"
#include "agent/join.h"

int command_join(const struct agent_options *options, int argc, char **argv)
{
	struct err err = ERR_NULL;
	struct identity identity;

	(void)argc, (void)argv;
	if (join(options, &identity, &err) < 0)
		return command_failed(&err);
	(void)printf("joined: node %s, pool %s, state %s\n", identity.node, identity.pool,
		options->state);
	return 0;
}
