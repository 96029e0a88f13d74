/* SPDX-License-Identifier: Apache-2.0
 *
 * See vmm.h: the start of a VM, of a kernel or of a snapshot, with the descriptors of all that it may touch.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/message.h"
#include "agent/vmm-private.h"
#include "base/fd.h"
#include "base/limit.h"

#define GUEST_CID 3
#define START_FDS_MAX (8 + VMM_FORK_FDS_MAX)
#define MAC_SIZE 6

struct fd_list {
	int fds[START_FDS_MAX];
	size_t n;
};

static void fd_list_close(struct fd_list *list)
{
	while (list->n > 0)
		(void)fd_close(list->fds[--list->n]);
}

static int add_file(struct fd_list *list, const char *path, int flags, enum fail_code code,
	const char *what, struct err *reterr)
{
	int fd = open(path, flags | O_CLOEXEC | O_NOCTTY, 0600);

	if (fd < 0) {
		int r = -errno;

		if (!limit_is_reached(reterr, STAGE_VMM, LIMIT_FILE, -r, "cannot start the VM"))
			(void)err_set_at(reterr, STAGE_VMM, code, -r, "cannot open %s", what);
		err_add(reterr, "path", "%.90s", path);
		return r;
	}
	list->fds[list->n++] = fd;
	return 0;
}

static int add_copy(struct fd_list *list, int of, const char *what, struct err *reterr)
{
	int fd = fcntl(of, F_DUPFD_CLOEXEC, 0);

	if (fd < 0) {
		int r = -errno;

		(void)limit_is_reached(reterr, STAGE_VMM, LIMIT_FILE, -r, what); /* EMFILE is all it says */
		return r;
	}
	list->fds[list->n++] = fd;
	return 0;
}

static bool is_restore(const struct vmm_start *start)
{
	return start->fork || *start->snapshot_state != '\0';
}

static int add_kernel(struct fd_list *list, const struct vmm_start *start, struct err *reterr)
{
	int r = add_file(list, start->kernel, O_RDONLY, FAIL_KERNEL_MISSING, "the guest kernel", reterr);

	if (r == 0 && *start->initramfs)
		r = add_file(list, start->initramfs, O_RDONLY, FAIL_KERNEL_MISSING, "the guest's initramfs", reterr);
	return r;
}

static int add_fork(struct fd_list *list, const struct vmm_fork *fork, struct err *reterr)
{
	int r = 0;

	for (size_t i = 0; i < fork->n && r == 0; i++)
		r = add_copy(list, fork->fds[i], "no descriptor for what a fork froze", reterr);
	return r;
}

static int add_snapshot(struct fd_list *list, const struct vmm_start *start, struct err *reterr)
{
	int r = start->fork ? add_fork(list, start->fork, reterr) : add_file(list, start->snapshot_state, O_RDONLY, FAIL_SNAPSHOT_INVALID, "the snapshot's state", reterr);

	if (r == 0 && !start->fork)
		r = add_file(list, start->snapshot_memory, O_RDONLY, FAIL_SNAPSHOT_INVALID, "the snapshot's memory", reterr);
	return r;
}

static int open_all(
	struct vmm *vmm, const struct vmm_start *start, struct fd_list *list, struct err *reterr)
{
	char path[PATH_MAX];
	int r, fd;

	r = add_file(list, start->kvm, O_RDWR, FAIL_KVM_UNAVAILABLE, "the KVM device", reterr);
	if (r == 0)
		r = is_restore(start) ? add_snapshot(list, start, reterr) : add_kernel(list, start, reterr);
	if (r == 0 && *start->image)
		r = add_file(
			list, start->image, O_RDONLY, FAIL_VMM_START_FAILED, "the image", reterr);
	if (r == 0 && *start->disk)
		r = add_file(list, start->disk, O_RDWR, FAIL_VMM_START_FAILED, "the writable disk",
			reterr);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "%.4000s/vsock.sock", vmm->run_dir);
	fd = unix_listen(path, SOCK_STREAM, 0660, 128); /* the gateway, by its group */
	if (fd < 0)
		return err_set(
			reterr, FAIL_VMM_START_FAILED, -fd, "cannot listen on the vsock socket");
	list->fds[list->n++] = fd;
	(void)snprintf(path, sizeof(path), "%.4000s/console", vmm->run_dir);
	/* appended to, so that it can be cut while the VMM writes */
	r = add_file(list, path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW,
		FAIL_VMM_START_FAILED, "the console file", reterr);
	return r < 0 || start->tap < 0 ? r : add_copy(list, start->tap, "no descriptor for the TAP", reterr);
}

static int send_start(struct vmm *vmm, const struct vmm_start *start, const struct fd_list *list,
	struct err *reterr)
{
	Croft__VmmRequest request = MESSAGE(Croft__VmmRequest, croft__vmm_request);
	Croft__VmmStart message = MESSAGE(Croft__VmmStart, croft__vmm_start);
	Croft__VmmVsock vsock = MESSAGE(Croft__VmmVsock, croft__vmm_vsock);
	Croft__VmmDisk image = MESSAGE(Croft__VmmDisk, croft__vmm_disk),
		       disk = MESSAGE(Croft__VmmDisk, croft__vmm_disk);
	Croft__VmmNet net = MESSAGE(Croft__VmmNet, croft__vmm_net);
	Croft__VmmDisk *disks[2] = { &image, &disk };
	uint8_t mac[MAC_SIZE];
	char image_serial[] = "croft-image", disk_serial[] = "croft-disk", path[PATH_MAX];
	CLEANUP_FREE char *cmdline = strdup(is_restore(start) ? "" : start->cmdline);
	int r;

	if (!cmdline)
		return err_set_at(
			reterr, STAGE_VMM, FAIL_NO_MEMORY, ENOMEM, "no memory for the start");
	(void)snprintf(path, sizeof(path), "%.4000s/vsock.sock", vmm->run_dir);
	image.read_only = true;
	image.serial = image_serial;
	disk.serial = disk_serial;
	vsock.guest_cid = GUEST_CID;
	vsock.path = path;
	message.vcpus = start->vcpus;
	message.memory_mib = start->memory_mib;
	message.cmdline = cmdline;
	message.restore = is_restore(start);
	message.forked = start->fork != NULL;
	message.layers = start->fork ? (uint32_t)start->fork->n - VMM_FORK_MEMORY - 1 : 0;
	message.has_initramfs = !message.restore && *start->initramfs != '\0';
	message.n_disks = !*start->image ? 0 : *start->disk ? 2 : 1;
	message.disks = disks;
	message.vsock = &vsock;
	message.has_console = true;
	message.lease_ms = start->lease.length_ms;
	message.lease_until_us = (uint64_t)start->lease.until_usec;
	if (start->tap >= 0) {
		memcpy(mac, start->mac, sizeof(mac));
		net.mac.data = mac;
		net.mac.len = sizeof(mac);
		message.net = &net;
	}
	request.body_case = CROFT__VMM_REQUEST__BODY_START;
	request.start = &message;
	r = vmm_send_request(vmm, &request, list->fds, list->n);
	if (r < 0)
		return err_set(reterr, FAIL_VMM_UNRESPONSIVE, -r,
			"the control socket does not take the start");
	vmm->start_id = vmm->last_id;
	return 0;
}

void vmm_start(struct vmm *vmm, const struct vmm_start *start)
{
	CLEANUP(fd_list_close) struct fd_list list = { .n = 0 };
	struct err err = ERR_NULL;

	if (open_all(vmm, start, &list, &err) < 0 || send_start(vmm, start, &list, &err) < 0)
		vmm_start_failed(vmm, &err, true);
}
