/* SPDX-License-Identifier: Apache-2.0
 *
 * See kvm.h.
 */
#include "doctor/kvm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>

#include "base/fd.h"

#define API_VERSION 12

const char *kvm_hint(int err_no)
{
	switch (err_no) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return "load kvm_intel or kvm_amd, enable virtualisation";
	case EACCES:
	case EPERM:
		return "add the agent's user to group kvm";
	case EBUSY:
		return "another hypervisor holds the CPU's virtualisation";
	default:
		return "see the host's kernel log";
	}
}

static int unavailable(int err_no, const char *step, const char *device, struct err *reterr)
{
	int r = err_set(reterr, FAIL_KVM_UNAVAILABLE, err_no, "%s of %s failed", step, device);

	err_add(reterr, "step", "%s", step);
	err_add(reterr, "hint", "%s", kvm_hint(err_no));
	return r;
}

int kvm_check(const char *device, bool probe, struct err *reterr)
{
	CLEANUP_FD int fd = open(device, O_RDWR | O_CLOEXEC | O_NOCTTY);
	CLEANUP_FD int vm = -1;
	int version;

	if (fd < 0)
		return unavailable(errno, "open", device, reterr);
	if (!probe)
		return 0;
	version = ioctl(fd, KVM_GET_API_VERSION, 0);
	if (version != API_VERSION)
		return unavailable(
			version < 0 ? errno : EPROTO, "KVM_GET_API_VERSION", device, reterr);
	vm = ioctl(fd, KVM_CREATE_VM, 0);
	if (vm < 0)
		return unavailable(errno, "KVM_CREATE_VM", device, reterr);
	return 0;
}
