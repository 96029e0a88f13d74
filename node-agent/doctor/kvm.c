/* SPDX-License-Identifier: Apache-2.0
 *
 * See kvm.h.
 */
#include "doctor/kvm.h"

#include <cpuid.h>
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

#define SVM_BIT 2 /* of leaf 0x80000001's ECX; <cpuid.h> has no name for it */
#define VMX_BIT 5 /* of leaf 1's ECX */

static int unavailable(int err_no, const char *step, const char *device, struct err *reterr)
{
	int r = err_set(reterr, FAIL_KVM_UNAVAILABLE, err_no, "%s of %s failed", step, device);

	err_add(reterr, "step", "%s", step);
	err_add(reterr, "hint", "%s", kvm_hint(err_no));
	return r;
}

bool kvm_is_hardware(uint32_t leaf_1_ecx, uint32_t leaf_80000001_ecx)
{
	return leaf_1_ecx & (1u << VMX_BIT) || leaf_80000001_ecx & (1u << SVM_BIT);
}

bool kvm_host_is_hardware(void)
{
	unsigned int a, b, c, d, intel = 0, amd = 0;

	if (__get_cpuid(1, &a, &b, &c, &d))
		intel = c;
	if (__get_cpuid(0x80000001, &a, &b, &c, &d))
		amd = c;
	return kvm_is_hardware(intel, amd);
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
	if (!kvm_host_is_hardware()) {
		int r = err_set(reterr, FAIL_KVM_UNAVAILABLE, ENODEV, "%s makes VMs, but this CPU has neither VT-x nor AMD-V", device);

		err_add(reterr, "step", "CPUID");
		err_add(reterr, "hint", "enable VT-x or AMD-V in the firmware, or nested virtualisation where this is a VM");
		return r;
	}
	return 0;
}
