/* SPDX-License-Identifier: Apache-2.0
 *
 * See vmm-spawn.h.
 */
#include "agent/vmm-spawn.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/pidref.h"
#include "agent/vmm-exec.h"
#include "base/fd.h"
#include "base/limit.h"

#define CMDLINE_MAX 4096
#define STATUS_MAX (64 * 1024)

void vmm_files_close(struct vmm_files *fds)
{
	fds->control = fd_close(fds->control);
	fds->exit = fd_close(fds->exit);
	fds->log = fd_close(fds->log);
}

static int open_fds(const char *run_dir, struct vmm_files *fds)
{
	char path[PATH_MAX];

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
	return 0;
}

int vmm_files_open(const char *run_dir, struct vmm_files *ret, struct err *reterr)
{
	CLEANUP(vmm_files_close) struct vmm_files files = VMM_FILES_NULL;
	int r = open_fds(run_dir, &files);

	if (r < 0) {
		if (!limit_is_reached(reterr, STAGE_VMM, LIMIT_FILE, -r, "cannot make the VMM's files"))
			(void)err_set(reterr, FAIL_VMM_START_FAILED, -r, "cannot make the VMM's files");
		err_add(reterr, "path", "%.90s", run_dir);
		return r;
	}
	*ret = files;
	files = (struct vmm_files)VMM_FILES_NULL;
	return 0;
}

int vmm_spawn_process(const char *program, const char *jail, const char *run_dir,
	const char *sandbox, pid_t *ret, struct err *reterr)
{
	CLEANUP(vmm_files_close) struct vmm_files files = VMM_FILES_NULL;
	struct vmm_exec exec = { .program = program,
		.jail = jail,
		.run = run_dir,
		.sandbox = sandbox,
		.log_level = getenv("CROFT_LOG") };
	int r = vmm_files_open(run_dir, &files, reterr);

	if (r < 0)
		return r;
	exec.control = files.control;
	exec.exit = files.exit;
	exec.log = files.log;
	r = vmm_exec(&exec, ret);
	if (r != 0) {
		if (!limit_is_reached(reterr, STAGE_VMM, LIMIT_PROCESS, r, "cannot start the VMM"))
			(void)err_set(reterr, FAIL_VMM_START_FAILED, r, "cannot start the VMM");
		err_add(reterr, "path", "%.90s", program);
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

/* By the lines of its status: the files of a process that may not be dumped look as if they were root's. A VMM that
 * croft-node-helper started has a uid of its own, and our group. */
static bool is_ours(const char *pid)
{
	CLEANUP_FREE char *text = NULL;
	char path[300];
	const char *uid_line, *gid_line;
	unsigned int uid, gid;

	(void)snprintf(path, sizeof(path), "/proc/%.200s/status", pid);
	if (file_read(path, STATUS_MAX, &text, NULL) < 0)
		return false;
	uid_line = strstr(text, "\nUid:");
	gid_line = strstr(text, "\nGid:");
	return uid_line && gid_line && sscanf(uid_line, "\nUid: %u", &uid) == 1 &&
	       sscanf(gid_line, "\nGid: %u", &gid) == 1 && (uid == geteuid() || gid == getegid());
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
