/* SPDX-License-Identifier: Apache-2.0
 *
 * See vmm.h: pause, resume, snapshot and fork over the control socket.
 */
#include <errno.h>
#include <fcntl.h>

#include "agent/message.h"
#include "agent/vmm-private.h"
#include "base/fd.h"

static int send(struct vmm *vmm, Croft__VmmRequest *request, const int *fds, size_t n_fds)
{
	int r = vmm_send_request(vmm, request, fds, n_fds);

	if (r == 0) {
		vmm->sleep_id = vmm->last_id;
		vmm->wants_fork = request->body_case == CROFT__VMM_REQUEST__BODY_FORK;
	}
	return r;
}

int vmm_pause(struct vmm *vmm)
{
	Croft__VmmRequest request = MESSAGE(Croft__VmmRequest, croft__vmm_request);
	Croft__VmmPause pause = MESSAGE(Croft__VmmPause, croft__vmm_pause);

	request.body_case = CROFT__VMM_REQUEST__BODY_PAUSE;
	request.pause = &pause;
	return send(vmm, &request, NULL, 0);
}

int vmm_resume(struct vmm *vmm)
{
	Croft__VmmRequest request = MESSAGE(Croft__VmmRequest, croft__vmm_request);
	Croft__VmmResume resume = MESSAGE(Croft__VmmResume, croft__vmm_resume);

	request.body_case = CROFT__VMM_REQUEST__BODY_RESUME;
	request.resume = &resume;
	return send(vmm, &request, NULL, 0);
}

void vmm_fork_close(struct vmm_fork *fork)
{
	while (fork->n > 0)
		(void)fd_close(fork->fds[--fork->n]);
}

int vmm_fork(struct vmm *vmm)
{
	Croft__VmmRequest request = MESSAGE(Croft__VmmRequest, croft__vmm_request);
	Croft__VmmFork fork = MESSAGE(Croft__VmmFork, croft__vmm_fork);

	vmm_fork_close(&vmm->fork);
	request.body_case = CROFT__VMM_REQUEST__BODY_FORK;
	request.fork = &fork;
	return send(vmm, &request, NULL, 0);
}

void vmm_take_fork(struct vmm *vmm, struct vmm_fork *ret)
{
	*ret = vmm->fork;
	vmm->fork.n = 0;
}

static int make_file(const char *path, int *ret, struct err *reterr)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0) {
		int r = err_set(reterr, FAIL_SNAPSHOT_FAILED, errno, "cannot make a file of the snapshot");

		err_add(reterr, "path", "%.90s", path);
		return r;
	}
	*ret = fd;
	return 0;
}

int vmm_snapshot(struct vmm *vmm, const char *state_path, const char *memory_path, struct err *reterr)
{
	Croft__VmmRequest request = MESSAGE(Croft__VmmRequest, croft__vmm_request);
	Croft__VmmSnapshot snapshot = MESSAGE(Croft__VmmSnapshot, croft__vmm_snapshot);
	CLEANUP_FD int state = -1, memory = -1;
	int r = make_file(state_path, &state, reterr);

	if (r == 0)
		r = make_file(memory_path, &memory, reterr);
	if (r < 0)
		return r;
	request.body_case = CROFT__VMM_REQUEST__BODY_SNAPSHOT;
	request.snapshot = &snapshot;
	r = send(vmm, &request, (int[]){ state, memory }, 2);
	return r < 0 ? err_set(reterr, FAIL_VMM_UNRESPONSIVE, -r, "the control socket does not take the snapshot") : 0;
}
