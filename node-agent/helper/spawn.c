/* SPDX-License-Identifier: Apache-2.0
 *
 * See spawn.h. Program, run directory and uid come from the helper's own configuration; of the request there are the
 * id, eight hex digits and three descriptors.
 */
#include "helper/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/pidref.h"
#include "agent/vmm-exec.h"
#include "base/fd.h"
#include "base/limit.h"

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
	if (!limit_is_reached(reterr, STAGE_VMM, LIMIT_PROCESS, err_no, "cannot start the VMM"))
		(void)err_set(reterr, FAIL_VMM_START_FAILED, err_no, "cannot start the VMM: %s", what);
	return -err_no;
}

int helper_vmm_spawn(const struct helper_vmm *vmm, uint64_t *ret_pid, uint64_t *ret_start_ticks, struct err *reterr)
{
	struct vmm_exec exec = { .program = vmm->options->vmm_path,
		.jail = vmm->jail_required ? "required" : "available",
		.sandbox = vmm->sandbox,
		.has_user = true,
		.uid = (uint32_t)vmm->options->uid_first + vmm->number,
		.gid = vmm->gid,
		.run_owner = vmm->agent_uid,
		.control = vmm->control,
		.exit = vmm->exit,
		.log = vmm->log };
	CLEANUP_FD int pidfd = -1;
	char run[256];
	pid_t pid;
	int r;

	if (vmm->number >= vmm->options->uid_count)
		return failed(reterr, ERANGE, "vmm.uid_count is smaller than the network pool");
	r = snprintf(run, sizeof(run), "%s/%s", vmm->options->vm_run, vmm->run);
	if (r < 0 || (size_t)r >= sizeof(run))
		return failed(reterr, ENAMETOOLONG, "vmm.run is too long");
	exec.run = run;
	r = vmm_exec(&exec, &pid);
	if (r != 0)
		return failed(reterr, r, "the program");
	r = join_group(vmm->group, pid);
	if (r == 0) {
		pidfd = pidref_open_child(pid);
		r = pidfd < 0 ? pidfd : pidref_start_ticks(pid, ret_start_ticks);
	}
	/* it has ended already: the pidfd says so to the agent, and its last word why */
	if (r == -ESRCH && pidfd >= 0) {
		*ret_start_ticks = 0;
		r = 0;
	}
	if (r < 0) {
		(void)kill(pid, SIGKILL); /* our child, not waited for yet: the number is its own */
		return failed(reterr, -r, "its control group");
	}
	*ret_pid = (uint64_t)pid;
	return TAKE_FD(pidfd);
}
