/* SPDX-License-Identifier: Apache-2.0
 *
 * See vmm-exec.h. posix_spawn is vfork underneath: it costs the same however large the caller is, and runs none of its
 * code in the child. The run directory stands in the command line, so that `ps` tells a person, and a restarted agent,
 * whose process it is.
 */
#include "agent/vmm-exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define CONTROL_FD 3
#define EXIT_FD 4
#define ABOVE_TARGETS 10 /* sources are copied there first, so that no dup2 overwrites another's source */
#define ARGS_MAX 24
#define TEXT_SIZE 512

struct sources {
	int control, exit, log;
};

static void sources_close(struct sources *sources)
{
	sources->control = fd_close(sources->control);
	sources->exit = fd_close(sources->exit);
	sources->log = fd_close(sources->log);
}

static int copy_up(const struct vmm_exec *exec, struct sources *ret)
{
	ret->control = fcntl(exec->control, F_DUPFD_CLOEXEC, ABOVE_TARGETS);
	ret->exit = fcntl(exec->exit, F_DUPFD_CLOEXEC, ABOVE_TARGETS);
	ret->log = fcntl(exec->log, F_DUPFD_CLOEXEC, ABOVE_TARGETS);
	return ret->control < 0 || ret->exit < 0 || ret->log < 0 ? errno : 0;
}

static int set_actions(posix_spawn_file_actions_t *actions, const struct sources *from)
{
	int r = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, from->log, STDOUT_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, from->log, STDERR_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, from->control, CONTROL_FD);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, from->exit, EXIT_FD);
	if (r == 0)
		r = posix_spawn_file_actions_addclosefrom_np(actions, EXIT_FD + 1);
	return r;
}

static int set_attributes(posix_spawnattr_t *attributes)
{
	sigset_t none, all;
	int r;

	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	r = posix_spawnattr_setsigmask(attributes, &none);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(attributes, &all);
	if (r == 0)
		r = posix_spawnattr_setflags(attributes,
			POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	return r;
}

/* argv and envp point into it. */
struct command {
	char text[ARGS_MAX + 2][TEXT_SIZE];
	char *argv[ARGS_MAX + 1], *envp[3];
	int n;
	bool is_cut;
};

static char *keep(struct command *command, int at, const char *text)
{
	int n = snprintf(command->text[at], TEXT_SIZE, "%s", text);

	command->is_cut = command->is_cut || n < 0 || n >= TEXT_SIZE;
	return command->text[at];
}

static void add(struct command *command, const char *flag, const char *value)
{
	command->argv[command->n] = keep(command, command->n, flag);
	command->n++;
	command->argv[command->n] = keep(command, command->n, value);
	command->n++;
}

static void add_number(struct command *command, const char *flag, uint32_t value)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%u", value);
	add(command, flag, text);
}

static void make_command(const struct vmm_exec *exec, struct command *ret)
{
	char level[64];

	ret->argv[ret->n] = keep(ret, ret->n, "croft-vmm");
	ret->n++;
	add_number(ret, "--control-fd", CONTROL_FD);
	add_number(ret, "--exit-fd", EXIT_FD);
	add(ret, "--id", exec->sandbox);
	add(ret, "--run", exec->run);
	add(ret, "--jail", exec->jail);
	if (exec->has_user) {
		add_number(ret, "--uid", exec->uid);
		add_number(ret, "--gid", exec->gid);
		add_number(ret, "--run-owner", exec->run_owner);
	}
	ret->envp[0] = keep(ret, ARGS_MAX, "PATH=/usr/bin:/bin");
	(void)snprintf(level, sizeof(level), "CROFT_LOG=%.32s", exec->log_level ? exec->log_level : "");
	if (exec->log_level)
		ret->envp[1] = keep(ret, ARGS_MAX + 1, level);
}

static int spawn(const char *program, const struct command *command, const struct sources *from, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int r = posix_spawn_file_actions_init(&actions);

	if (r != 0)
		return r;
	r = posix_spawnattr_init(&attributes);
	if (r == 0) {
		r = set_actions(&actions, from);
		if (r == 0)
			r = set_attributes(&attributes);
		if (r == 0)
			r = posix_spawn(ret, program, &actions, &attributes, command->argv, command->envp);
		(void)posix_spawnattr_destroy(&attributes);
	}
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

int vmm_exec(const struct vmm_exec *exec, pid_t *ret)
{
	CLEANUP(sources_close) struct sources from = { -1, -1, -1 };
	CLEANUP_FREE struct command *command = calloc(1, sizeof(*command));
	int r;

	if (!command)
		return ENOMEM;
	make_command(exec, command);
	if (command->is_cut)
		return ENAMETOOLONG;
	r = copy_up(exec, &from);
	return r != 0 ? r : spawn(exec->program, command, &from, ret);
}
