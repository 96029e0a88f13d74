/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node run: the agent, until SIGTERM. Sandboxes outlive it.
 */
#include <signal.h>

#include "agent/agent.h"
#include "agent/commands.h"
#include "base/log.h"

int command_run(const struct agent_options *options, int argc, char **argv)
{
	struct err err = ERR_NULL;

	(void)argc, (void)argv;
	(void)signal(SIGPIPE, SIG_IGN);
	if (agent_run(options, &err) < 0) {
		log_failure(LOG_LEVEL_ERROR, "the agent ends", &err, NULL);
		return command_failed(&err);
	}
	return 0;
}
