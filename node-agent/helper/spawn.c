/* SPDX-License-Identifier: Apache-2.0
 *
 * See spawn.h. Program, run directory and uid come from the helper's own configuration; of the request there are the
 * id, eight hex digits and three descriptors.
 */
#include "helper/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/pidref.h"
#include "base/fd.h"

#define CONTROL_FD 3
#define EXIT_FD 4
#define ABOVE_TARGETS 10 /* sources are moved there first, so that no dup2 overwrites another's */

struct sources {
	int control, exit, log;
};

static void sources_close(struct sources *sources)
{
	sources->control = fd_close(sources->control);
	sources->exit = fd_close(sources->exit);
	sources->log = fd_close(sources->log);
}

static int move_up(int fd, int *ret)
{
	*ret = fcntl(fd, F_DUPFD_CLOEXEC, ABOVE_TARGETS);
	return *ret < 0 ? -errno : 0;
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
	return r ? r
		 : posix_spawnattr_setflags(attributes,
			   POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

/* A positive errno, as posix_spawn has it. */
static int start(const struct helper_vmm *vmm, const struct sources *from, pid_t *ret)
{
	char run[256], sandbox[32], uid[16], gid[16];
	char name[] = "croft-vmm", control_flag[] = "--control-fd", control[] = "3", exit_flag[] = "--exit-fd",
	     exit_fd[] = "4", id_flag[] = "--id", run_flag[] = "--run", jail_flag[] = "--jail",
	     required[] = "required", available[] = "available", uid_flag[] = "--uid", gid_flag[] = "--gid",
	     path[] = "PATH=/usr/bin:/bin";
	char *argv[] = { name, control_flag, control, exit_flag, exit_fd, id_flag, sandbox, run_flag, run, jail_flag,
		vmm->jail_required ? required : available, uid_flag, uid, gid_flag, gid, NULL };
	char *envp[] = { path, NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int n, r;

	n = snprintf(run, sizeof(run), "%s/%s", vmm->options->vm_run, vmm->run);
	if (n < 0 || (size_t)n >= sizeof(run))
		return ENAMETOOLONG;
	(void)snprintf(sandbox, sizeof(sandbox), "%s", vmm->sandbox);
	(void)snprintf(uid, sizeof(uid), "%llu", (unsigned long long)vmm->options->uid_first + vmm->number);
	(void)snprintf(gid, sizeof(gid), "%u", vmm->gid);
	r = posix_spawn_file_actions_init(&actions);
	if (r != 0)
		return r;
	r = posix_spawnattr_init(&attributes);
	if (r == 0) {
		r = set_actions(&actions, from);
		if (r == 0)
			r = set_attributes(&attributes);
		if (r == 0)
			r = posix_spawn(ret, vmm->options->vmm_path, &actions, &attributes, argv, envp);
		(void)posix_spawnattr_destroy(&attributes);
	}
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

/* By us, at once: a second request finds the group populated, however far the VMM is. */
static int join_group(int group, pid_t pid)
{
	CLEANUP_FD int fd = openat(group, "cgroup.procs", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	char text[24];
	int n = snprintf(text, sizeof(text), "%d", (int)pid);

	if (fd < 0)
		return -errno;
	return write(fd, text, (size_t)n) < 0 ? -errno : 0;
}

static int failed(struct err *reterr, int err_no, const char *what)
{
	(void)err_set(reterr, err_no == EAGAIN || err_no == EMFILE || err_no == ENFILE ? FAIL_HOST_LIMIT
										       : FAIL_VMM_START_FAILED,
		err_no, "cannot start the VMM: %s", what);
	return -err_no;
}

int helper_vmm_spawn(const struct helper_vmm *vmm, uint64_t *ret_pid, uint64_t *ret_start_ticks, struct err *reterr)
{
	CLEANUP(sources_close) struct sources from = { -1, -1, -1 };
	CLEANUP_FD int pidfd = -1;
	pid_t pid;
	int r;

	if (vmm->number >= vmm->options->uid_count)
		return failed(reterr, ERANGE, "vmm.uid_count is smaller than the network pool");
	r = move_up(vmm->control, &from.control);
	if (r == 0)
		r = move_up(vmm->exit, &from.exit);
	if (r == 0)
		r = move_up(vmm->log, &from.log);
	if (r < 0)
		return failed(reterr, -r, "descriptors");
	r = start(vmm, &from, &pid);
	if (r != 0)
		return failed(reterr, r, "the program");
	r = join_group(vmm->group, pid);
	if (r == 0)
		r = pidref_start_ticks(pid, ret_start_ticks);
	if (r == 0) {
		pidfd = pidref_open_child(pid);
		r = pidfd < 0 ? pidfd : 0;
	}
	if (r < 0) {
		(void)kill(pid, SIGKILL); /* our child, not waited for yet: the number is its own */
		return failed(reterr, -r, "its control group");
	}
	*ret_pid = (uint64_t)pid;
	return TAKE_FD(pidfd);
}
