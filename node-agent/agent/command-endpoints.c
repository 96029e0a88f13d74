/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node endpoints show | set ADDRESS...: where the scheduler is, for a node that it cannot tell any more. Its keys stay: who
 * answers there is still the one that this node joined.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/commands.h"
#include "agent/identity.h"
#include "base/fd.h"

static void show(const struct scheduler_address *scheduler)
{
	for (unsigned int i = 0; i < scheduler->n_addresses; i++)
		(void)printf("%s%s\n", scheduler->addresses[i], i < scheduler->n_own ? "" : "  (told by the scheduler)");
}

static int set(struct identity *identity, char **addresses, int n, struct err *reterr)
{
	struct scheduler_address *to = &identity->scheduler;

	if (n > SCHEDULERS_MAX)
		return err_set(reterr, FAIL_CONFIG_INVALID, E2BIG, "at most %d addresses", SCHEDULERS_MAX);
	memset(to->addresses, 0, sizeof(to->addresses));
	for (int i = 0; i < n; i++) {
		const char *address = addresses[i], *colon = strrchr(address, ':');

		if ((strncmp(address, "tcp://", 6) != 0 && strncmp(address, "tls://", 6) != 0) || !colon || colon < address + 7 ||
			!colon[1] || strpbrk(address, " ,=#") || strlen(address) >= ADDRESS_SIZE)
			return err_set(reterr, FAIL_CONFIG_INVALID, EINVAL, "%.100s: is no tcp://HOST:PORT or tls://HOST:PORT",
				address);
		(void)snprintf(to->addresses[i], ADDRESS_SIZE, "%s", address);
	}
	to->n_addresses = to->n_own = (unsigned int)n;
	return 0;
}

int command_endpoints(const struct agent_options *options, int argc, char **argv)
{
	const bool sets = argc > 3 && !strcmp(argv[2], "set");
	struct identity identity;
	struct err err = ERR_NULL;
	int r;

	if (!sets && !(argc == 3 && !strcmp(argv[2], "show"))) {
		(void)fprintf(stderr, "usage: croft-node endpoints show | set ADDRESS...\n");
		return 2;
	}
	r = identity_read(options->state, &identity, &err);
	if (r < 0)
		return command_failed(&err);
	if (!sets) {
		show(&identity.scheduler);
		return 0;
	}
	r = dir_become_owner(options->state);
	if (r < 0)
		(void)err_set(&err, FAIL_STATE_WRITE_FAILED, -r, "cannot become the owner of %s", options->state);
	else
		r = set(&identity, argv + 3, argc - 3, &err);
	if (r == 0)
		r = identity_write(options->state, &identity, &err);
	if (r < 0)
		return command_failed(&err);
	if (state_is_locked(options->state))
		(void)printf("The agent takes them when it is started again (systemctl restart croft-node); sandboxes go on.\n");
	return 0;
}
