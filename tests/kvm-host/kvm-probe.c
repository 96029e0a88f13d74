/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that /dev/kvm works: runs one HLT in a VM. Prints "kvm 12 halted" or what failed. */
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

static int fail(const char *what)
{
	perror(what);
	return 1;
}

int main(void)
{
	enum { MEM_SIZE = 4096 };
	int kvm_fd = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm_fd, vcpu_fd, version;
	uint8_t *mem =
		mmap(NULL, MEM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct kvm_userspace_memory_region region = { .memory_size = MEM_SIZE };
	struct kvm_regs regs = { .rflags = 2 };
	struct kvm_sregs sregs;
	struct kvm_run *run;

	if (kvm_fd < 0)
		return fail("/dev/kvm");
	if (mem == MAP_FAILED)
		return fail("mmap");
	version = ioctl(kvm_fd, KVM_GET_API_VERSION, 0);
	vm_fd = ioctl(kvm_fd, KVM_CREATE_VM, 0);
	if (vm_fd < 0)
		return fail("KVM_CREATE_VM");
	mem[0] = 0xf4; /* hlt */
	region.userspace_addr = (uintptr_t)mem;
	if (ioctl(vm_fd, KVM_SET_USER_MEMORY_REGION, &region) < 0)
		return fail("KVM_SET_USER_MEMORY_REGION");
	vcpu_fd = ioctl(vm_fd, KVM_CREATE_VCPU, 0);
	if (vcpu_fd < 0 || ioctl(vcpu_fd, KVM_GET_SREGS, &sregs) < 0)
		return fail("KVM_CREATE_VCPU");
	sregs.cs.base = sregs.cs.selector = 0;
	if (ioctl(vcpu_fd, KVM_SET_SREGS, &sregs) < 0 || ioctl(vcpu_fd, KVM_SET_REGS, &regs) < 0)
		return fail("KVM_SET_SREGS");
	run = mmap(NULL, (size_t)ioctl(kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0), PROT_READ | PROT_WRITE,
		MAP_SHARED, vcpu_fd, 0);
	if (run == MAP_FAILED || ioctl(vcpu_fd, KVM_RUN, 0) < 0)
		return fail("KVM_RUN");
	printf("kvm %d %s\n", version,
		run->exit_reason == KVM_EXIT_HLT ? "halted" : "did not halt");
	return run->exit_reason != KVM_EXIT_HLT;
}
