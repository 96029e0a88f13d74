/* SPDX-License-Identifier: Apache-2.0
 *
 * See doctor.h: whether KVM really runs something. Opening the device says little: with the CPU's virtualisation switched
 * off or held by another hypervisor it is KVM_CREATE_VM that fails, and with broken nesting the first instruction.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>

#include "base/fd.h"
#include "doctor/doctor.h"

#define API_VERSION 12
#define PAGE 4096u
#define CODE_AT 0x1000u
#define HLT 0xf4
#define LONGEST_SEC 5

struct machine {
	int device, vm, vcpu;
	void *page;
	struct kvm_run *run;
	size_t run_size;
};

static void machine_close(struct machine *machine)
{
	if (machine->run != MAP_FAILED)
		(void)munmap(machine->run, machine->run_size);
	if (machine->page != MAP_FAILED)
		(void)munmap(machine->page, PAGE);
	(void)fd_close(machine->vcpu);
	(void)fd_close(machine->vm);
	(void)fd_close(machine->device);
}

static void on_alarm(int signal)
{
	(void)signal; /* KVM_RUN returns EINTR */
}

static int make(struct machine *machine, const char *device, const char **ret_step)
{
	struct kvm_userspace_memory_region region = { .guest_phys_addr = CODE_AT, .memory_size = PAGE };
	int size;

	*ret_step = "open";
	machine->device = open(device, O_RDWR | O_CLOEXEC | O_NOCTTY);
	if (machine->device < 0)
		return -errno;
	*ret_step = "KVM_GET_API_VERSION";
	size = ioctl(machine->device, KVM_GET_API_VERSION, 0);
	if (size != API_VERSION)
		return size < 0 ? -errno : -EPROTO;
	*ret_step = "KVM_CREATE_VM";
	machine->vm = ioctl(machine->device, KVM_CREATE_VM, 0);
	if (machine->vm < 0)
		return -errno;
	machine->page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (machine->page == MAP_FAILED)
		return -errno;
	*(unsigned char *)machine->page = HLT;
	region.userspace_addr = (uint64_t)(uintptr_t)machine->page;
	*ret_step = "KVM_SET_USER_MEMORY_REGION";
	if (ioctl(machine->vm, KVM_SET_USER_MEMORY_REGION, &region) < 0)
		return -errno;
	*ret_step = "KVM_CREATE_VCPU";
	machine->vcpu = ioctl(machine->vm, KVM_CREATE_VCPU, 0);
	if (machine->vcpu < 0)
		return -errno;
	size = ioctl(machine->device, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (size < (int)sizeof(*machine->run))
		return size < 0 ? -errno : -EPROTO;
	machine->run_size = (size_t)size;
	machine->run = mmap(NULL, machine->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, machine->vcpu, 0);
	return machine->run == MAP_FAILED ? -errno : 0;
}

static int run(struct machine *machine, const char **ret_step)
{
	struct sigaction action = { .sa_handler = on_alarm }, old;
	struct itimerval limit = { .it_value.tv_sec = LONGEST_SEC }, none = { .it_value.tv_sec = 0 };
	struct kvm_regs regs = { .rip = CODE_AT, .rflags = 2 };
	struct kvm_sregs sregs;
	int r;

	*ret_step = "KVM_SET_SREGS";
	if (ioctl(machine->vcpu, KVM_GET_SREGS, &sregs) < 0)
		return -errno;
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	if (ioctl(machine->vcpu, KVM_SET_SREGS, &sregs) < 0 || ioctl(machine->vcpu, KVM_SET_REGS, &regs) < 0)
		return -errno;
	*ret_step = "KVM_RUN";
	(void)sigaction(SIGALRM, &action, &old);
	(void)setitimer(ITIMER_REAL, &limit, NULL);
	r = ioctl(machine->vcpu, KVM_RUN, 0) < 0 ? -errno : 0;
	(void)setitimer(ITIMER_REAL, &none, NULL);
	(void)sigaction(SIGALRM, &old, NULL);
	if (r < 0)
		return r == -EINTR ? -ETIMEDOUT : r;
	return machine->run->exit_reason == KVM_EXIT_HLT ? 0 : -EPROTO;
}

int doctor_try_kvm(const char *device, const char **ret_step)
{
	CLEANUP(machine_close)
	struct machine machine = { .device = -1, .vm = -1, .vcpu = -1, .page = MAP_FAILED, .run = MAP_FAILED };
	int r = make(&machine, device, ret_step);

	return r < 0 ? r : run(&machine, ret_step);
}
