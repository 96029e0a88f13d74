/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node drain [--why TEXT] [--deadline 1h] | undrain | stop ID... | stop --all: the node's owner on the node itself (owner.h),
 * with or without a scheduler. A drain can also be asked for while there is no agent: the next one finds it.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "agent/commands.h"
#include "agent/identity.h"
#include "agent/owner-ask.h"
#include "agent/owner.h"
#include "base/clock.h"
#include "base/fd.h"

static int write_file(const struct agent_options *options, const struct owner_drain *drain)
{
	struct identity identity;
	struct err err = ERR_NULL;
	int r = identity_read(options->state, &identity, &err); /* nothing is made for what is no node */

	if (r == 0)
		r = dir_become_owner(options->state);
	if (r < 0 && !err_is_set(&err))
		(void)err_set(&err, FAIL_STATE_WRITE_FAILED, -r, "cannot become the owner of %s", options->state);
	if (r == 0)
		r = owner_drain_write(options->state, drain, &err);
	return r < 0 ? command_failed(&err) : 0;
}

static int set_drain(const struct agent_options *options, bool drained)
{
	struct owner_drain drain = { .drained = drained, .since_us = clock_realtime_usec() };
	json_int_t left = 0;
	int status;

	if (strlen(options->why) >= sizeof(drain.why))
		return (void)fprintf(stderr, "croft-node: --why has more than %zu bytes\n", sizeof(drain.why) - 1), 2;
	(void)snprintf(drain.why, sizeof(drain.why), "%s", options->why);
	if (drained && options->deadline)
		drain.deadline_us = drain.since_us + options->deadline;
	status = owner_ask(options, json_pack("{s:s, s:s, s:I}", "do", drained ? "drain" : "undrain", "why", drain.why, "deadline_us",
				      (json_int_t)drain.deadline_us), &left);
	if (owner_is_nobody(status)) {
		status = write_file(options, &drain);
		if (status == 0)
			(void)printf("%s; the agent does not run, and takes it when it does\n", drained ? "drained" : "not drained");
	} else if (status == 0) {
		(void)printf("%s; %lld sandboxes run here\n", drained ? "drained" : "not drained", (long long)left);
	}
	return status;
}

int command_drain(const struct agent_options *options, int argc, char **argv)
{
	(void)argv;
	if (argc != 2)
		return (void)fprintf(stderr, "usage: croft-node drain [--why TEXT] [--deadline 1h]\n"), 2;
	return set_drain(options, true);
}

int command_undrain(const struct agent_options *options, int argc, char **argv)
{
	(void)argv;
	if (argc != 2)
		return (void)fprintf(stderr, "usage: croft-node undrain\n"), 2;
	return set_drain(options, false);
}

int command_stop(const struct agent_options *options, int argc, char **argv)
{
	json_int_t left = 0;
	int status = 0;

	if ((argc == 2) != options->all || argc < 2)
		return (void)fprintf(stderr, "usage: croft-node stop ID... | --all\n"), 2;
	for (int i = 2; i < MAX(argc, 3) && !owner_is_nobody(status); i++) {
		int one = owner_ask(options, json_pack("{s:s, s:s}", "do", "stop", "sandbox", options->all ? "" : argv[i]), &left);

		status = one ? one : status;
	}
	if (owner_is_nobody(status)) {
		(void)fprintf(stderr, "croft-node: no agent runs here that could end them: start it (systemctl start croft-node), or "
				      "end everything with croft-node-helper --clear\n");
		return 1;
	}
	if (status == 0)
		(void)printf("%s\n", options->all ? "all end" : argc > 3 ? "they end" : "it ends");
	return status;
}
