/* SPDX-License-Identifier: Apache-2.0
 *
 * See vmm-spawn.h. posix_spawn is vfork underneath: it costs the same however large the agent is,
 * and runs none of the agent's code in the child. The run directory stands in the command line, so
 * that `ps` tells a person, and a restarted agent, whose process it is.
 */
#include "agent/vmm-spawn.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/pidref.h"
#include "base/fd.h"

#define CONTROL_FD 3
#define EXIT_FD 4
#define ABOVE_TARGETS                                                                              \
	10 /* sources are moved here first, so that no dup2 overwrites another's source */
#define CMDLINE_MAX 4096
#define STATUS_MAX (64 * 1024)

struct spawn_fds {
	int control, exit, log;
};

static void spawn_fds_close(struct spawn_fds *fds)
{
	fds->control = fd_close(fds->control);
	fds->exit = fd_close(fds->exit);
	fds->log = fd_close(fds->log);
}

static int move_up(int *fd)
{
	int moved = fcntl(*fd, F_DUPFD_CLOEXEC, ABOVE_TARGETS);

	if (moved < 0)
		return -errno;
	(void)fd_close(*fd);
	*fd = moved;
	return 0;
}

static int open_fds(const char *run_dir, struct spawn_fds *fds)
{
	char path[PATH_MAX];
	int r;

	(void)snprintf(path, sizeof(path), "%s/control.sock", run_dir);
	fds->control = unix_listen(path, SOCK_SEQPACKET, 0600, 8);
	if (fds->control < 0)
		return fds->control;
	(void)snprintf(path, sizeof(path), "%s/exit", run_dir);
	fds->exit = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fds->exit < 0)
		return -errno;
	(void)snprintf(path, sizeof(path), "%s/vmm.log", run_dir);
	fds->log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fds->log < 0)
		return -errno;
	r = move_up(&fds->control);
	if (r == 0)
		r = move_up(&fds->exit);
	if (r == 0)
		r = move_up(&fds->log);
	return r;
}

static int set_actions(posix_spawn_file_actions_t *actions, const struct spawn_fds *fds)
{
	int r = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, fds->log, STDOUT_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, fds->log, STDERR_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, fds->control, CONTROL_FD);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, fds->exit, EXIT_FD);
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

/* The environment of the agent is none of the VMM's business but for the log level. */
static int spawn(const char *program, const char *jail, const char *run_dir, const char *sandbox,
	const struct spawn_fds *fds, pid_t *ret)
{
	char control[16], exit_fd[16], name[] = "croft-vmm", log_level[64],
				       path[] = "PATH=/usr/bin:/bin";
	CLEANUP_FREE char *run_copy = strdup(run_dir), *sandbox_copy = strdup(sandbox),
			  *jail_copy = strdup(jail);
	char control_flag[] = "--control-fd", exit_flag[] = "--exit-fd", id_flag[] = "--id",
	     run_flag[] = "--run", jail_flag[] = "--jail";
	char *argv[] = { name, control_flag, control, exit_flag, exit_fd, id_flag, sandbox_copy,
		run_flag, run_copy, jail_flag, jail_copy, NULL };
	const char *level = getenv("CROFT_LOG");
	char *envp[] = { path, level ? log_level : NULL, NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int r;

	if (!run_copy || !sandbox_copy || !jail_copy)
		return ENOMEM;
	(void)snprintf(control, sizeof(control), "%d", CONTROL_FD);
	(void)snprintf(exit_fd, sizeof(exit_fd), "%d", EXIT_FD);
	(void)snprintf(log_level, sizeof(log_level), "CROFT_LOG=%.32s", level ? level : "");
	r = posix_spawn_file_actions_init(&actions);
	if (r != 0)
		return r;
	r = posix_spawnattr_init(&attributes);
	if (r == 0) {
		r = set_actions(&actions, fds);
		if (r == 0)
			r = set_attributes(&attributes);
		if (r == 0)
			r = posix_spawn(ret, program, &actions, &attributes, argv, envp);
		(void)posix_spawnattr_destroy(&attributes);
	}
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

int vmm_spawn_process(const char *program, const char *jail, const char *run_dir,
	const char *sandbox, pid_t *ret, struct err *reterr)
{
	CLEANUP(spawn_fds_close) struct spawn_fds fds = { -1, -1, -1 };
	int r = open_fds(run_dir, &fds);

	if (r < 0) {
		(void)err_set(reterr,
			r == -EMFILE || r == -ENFILE ? FAIL_HOST_LIMIT : FAIL_VMM_START_FAILED, -r,
			"cannot make the VMM's files");
		err_add(reterr, "path", "%.90s", run_dir);
		return r;
	}
	r = spawn(program, jail, run_dir, sandbox, &fds, ret);
	if (r != 0) {
		(void)err_set(reterr, r == EAGAIN ? FAIL_HOST_LIMIT : FAIL_VMM_START_FAILED, r,
			"cannot start the VMM");
		err_add(reterr, "path", "%.90s", program);
		err_add(reterr, "resource", "%s", r == EAGAIN ? "processes" : "none");
		return -r;
	}
	return 0;
}

/* Is `argument` one of the arguments in /proc/<pid>/cmdline? */
static bool has_argument(const char *pid, const char *argument)
{
	CLEANUP_FREE char *text = NULL;
	char path[300];
	size_t size, at = 0;

	(void)snprintf(path, sizeof(path), "/proc/%.200s/cmdline", pid);
	if (file_read(path, CMDLINE_MAX, &text, &size) < 0)
		return false;
	while (at < size) {
		if (!strcmp(text + at, argument))
			return true;
		at += strlen(text + at) + 1;
	}
	return false;
}

/* By the Uid line: the files of a process that may not be dumped look as if they were root's. */
static bool is_ours(const char *pid)
{
	CLEANUP_FREE char *text = NULL;
	char path[300];
	const char *line;
	unsigned int uid;

	(void)snprintf(path, sizeof(path), "/proc/%.200s/status", pid);
	if (file_read(path, STATUS_MAX, &text, NULL) < 0)
		return false;
	line = strstr(text, "\nUid:");
	return line && sscanf(line, "\nUid: %u", &uid) == 1 && uid == geteuid();
}

pid_t vmm_search_process(const char *run_dir, uint64_t *ret_start_ticks)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	pid_t found = 0;

	if (!proc)
		return 0;
	while (!found && (entry = readdir(proc))) {
		pid_t pid;

		if (!isdigit((unsigned char)entry->d_name[0]) || !is_ours(entry->d_name))
			continue;
		pid = (pid_t)strtol(entry->d_name, NULL, 10);
		/* not `ls` of that directory: a process that was given our descriptors too */
		if (pid != getpid() && has_argument(entry->d_name, run_dir) &&
			has_argument(entry->d_name, "--control-fd") &&
			pidref_start_ticks(pid, ret_start_ticks) == 0)
			found = pid;
	}
	(void)closedir(proc);
	return found;
}
