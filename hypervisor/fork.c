/* SPDX-License-Identifier: Apache-2.0
 *
 * vm_fork() of vm.h: the state as a sealed memfd, then memory frozen where it lies.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "snapshot-write.h"

static int write_state(const uint8_t *state, size_t size, int *ret_fd)
{
	CLEANUP_FD int fd = memfd_create("croft-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r = fd < 0 ? -errno : fd_pwrite_all(fd, state, size, 0);

	if (r == 0)
		r = memfd_seal(fd);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

int vm_fork(struct vm *vm, int *ret_state_fd, struct err *reterr)
{
	CLEANUP_FREE uint8_t *state = NULL;
	CLEANUP_FD int fd = -1;
	size_t size = 0;
	int r = snapshot_read_state(vm, NULL, &state, &size, reterr);

	if (r < 0)
		return r;
	r = write_state(state, size, &fd);
	if (r < 0)
		return err_set(reterr, FAIL_FORK_FAILED, -r, "the state of the VM cannot be kept");
	/* last: what is done to memory stays done, which is harmless, but costs */
	r = memory_freeze(&vm->memory, reterr);
	if (r == 0)
		*ret_state_fd = TAKE_FD(fd);
	return r;
}
