/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node join --token-file FILE [--state DIR] [--replace]
 *
 * Root joins the installed unit's node: a child does it as the agent's user (join.c), and the unit is started.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "agent/commands.h"
#include "agent/join.h"

#define UNIT "croft-node.service"
#define UNIT_STATE "/var/lib/croft/node"

static int join_here(const struct agent_options *options)
{
	struct err err = ERR_NULL;
	struct identity identity;

	if (join(options, &identity, &err) < 0)
		return command_failed(&err);
	(void)printf("joined: node %s, pool %s, state %s\n", identity.node, identity.pool,
		options->state);
	return 0;
}

static bool is_of_unit(const struct agent_options *options)
{
	return geteuid() == 0 && sd_booted() > 0 && !strcmp(options->state, UNIT_STATE) &&
	       (access("/usr/lib/systemd/system/" UNIT, F_OK) == 0 || access("/etc/systemd/system/" UNIT, F_OK) == 0);
}

/* A node that replaces another is served by another agent. The service manager's answer is that the job is queued. */
static int start_unit(void)
{
	sd_bus_error error = SD_BUS_ERROR_NULL;
	sd_bus *bus = NULL;
	int r = sd_bus_open_system(&bus);

	if (r >= 0)
		r = sd_bus_call_method(bus, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
			"org.freedesktop.systemd1.Manager", "RestartUnit", &error, NULL, "ss", UNIT, "replace");
	if (r >= 0)
		(void)printf("started: " UNIT "\n");
	else
		(void)fprintf(stderr, "croft-node: start the agent with `systemctl start " UNIT "`: %s\n",
			error.message ? error.message : strerror(-r));
	sd_bus_error_free(&error);
	(void)sd_bus_flush_close_unref(bus);
	return r < 0 ? 1 : 0;
}

int command_join(const struct agent_options *options, int argc, char **argv)
{
	int status = 0;
	pid_t child;

	(void)argc, (void)argv;
	if (!is_of_unit(options))
		return join_here(options);
	child = fork();
	if (child == 0) {
		status = join_here(options);
		(void)fflush(stdout);
		_exit(status); /* ends the process: the child that was the agent's user */
	}
	if (child < 0 || waitpid(child, &status, 0) < 0)
		return perror("croft-node: join"), 1;
	if (!WIFEXITED(status))
		return 1;
	return WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : start_unit();
}
