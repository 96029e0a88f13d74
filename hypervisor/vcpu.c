/* SPDX-License-Identifier: Apache-2.0
 *
 * See vcpu.h.
 */
#include "vcpu.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "boot/cpu.h"
#include "cpuid.h"
#include "vm.h"

#define BUS_LOCK_PAUSE_MSEC 1
#define KICK_USEC (20 * USEC_PER_MSEC)

#define MSR_MISC_ENABLE 0x1a0
#define MISC_ENABLE_FAST_STRING 1
#define MSR_MTRR_DEF_TYPE 0x2ff
#define MTRR_ENABLE_WRITEBACK ((1u << 11) | 6)

static int set_cpuid(struct vcpu *vcpu, const struct cpuid *supported, struct err *reterr)
{
	CLEANUP_FREE struct cpuid *cpuid = malloc(sizeof(*cpuid));

	if (!cpuid)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the CPUID table");
	*cpuid = *supported;
	cpuid_apply(cpuid, vcpu->index, vcpu->vm->n_vcpus, vm_has_tsc_deadline(vcpu->vm));
	if (ioctl(vcpu->fd, KVM_SET_CPUID2, cpuid) < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, errno, "KVM_SET_CPUID2");
	return 0;
}

/* What firmware would have set and a kernel relies on. */
static int set_msrs(struct vcpu *vcpu, struct err *reterr)
{
	struct { /* laid out as struct kvm_msrs, whose entries have no fixed number */
		uint32_t n, padding;
		struct kvm_msr_entry entries[2];
	} msrs = { .n = 2,
		.entries = { { .index = MSR_MISC_ENABLE, .data = MISC_ENABLE_FAST_STRING },
			{ .index = MSR_MTRR_DEF_TYPE, .data = MTRR_ENABLE_WRITEBACK } } };

	if (ioctl(vcpu->fd, KVM_SET_MSRS, &msrs) != 2)
		return err_set(reterr, FAIL_VMM_START_FAILED, errno, "KVM_SET_MSRS");
	return 0;
}

int vcpu_init(struct vcpu *vcpu, struct vm *vm, unsigned int index, const struct cpuid *cpuid, struct err *reterr)
{
	void *run;
	int r;

	*vcpu = (struct vcpu) { .vm = vm, .index = index, .fd = -1, .stats = KVM_STATS_NULL };
	vcpu->fd = ioctl(vm->vm_fd, KVM_CREATE_VCPU, (unsigned long) index);
	if (vcpu->fd < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, errno, "KVM_CREATE_VCPU %u", index);
	r = ioctl(vm->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (r < (int) sizeof(*vcpu->run))
		return err_set(reterr, FAIL_VMM_START_FAILED, r < 0 ? errno : EINVAL, "KVM_GET_VCPU_MMAP_SIZE");
	run = mmap(NULL, (size_t) r, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu->fd, 0);
	if (run == MAP_FAILED)
		return err_set(reterr, FAIL_VMM_START_FAILED, errno, "mmap of the vCPU's kvm_run");
	vcpu->run = run;
	vcpu->run_size = (size_t) r;
	kvm_stats_open(&vcpu->stats, vcpu->fd);
	r = set_cpuid(vcpu, cpuid, reterr);
	return r < 0 ? r : set_msrs(vcpu, reterr);
}

int vcpu_set_entry(struct vcpu *vcpu, uint64_t entry, struct err *reterr)
{
	struct kvm_sregs sregs;
	struct kvm_regs regs;

	if (ioctl(vcpu->fd, KVM_GET_SREGS, &sregs) < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, errno, "KVM_GET_SREGS");
	boot_cpu_registers(entry, &sregs, &regs);
	if (ioctl(vcpu->fd, KVM_SET_SREGS, &sregs) < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, errno, "KVM_SET_SREGS");
	if (ioctl(vcpu->fd, KVM_SET_REGS, &regs) < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, errno, "KVM_SET_REGS");
	return 0;
}

static void count(atomic_uint_fast64_t *counter)
{
	(void) atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static void handle_io(struct vcpu *vcpu)
{
	const struct kvm_run *run = vcpu->run;
	uint8_t *data = (uint8_t *) vcpu->run + run->io.data_offset;

	count(&vcpu->io_exits);
	for (uint32_t i = 0; i < run->io.count; i++, data += run->io.size) {
		if (run->io.direction == KVM_EXIT_IO_OUT)
			bus_write(&vcpu->vm->ports, run->io.port, data, run->io.size);
		else
			bus_read(&vcpu->vm->ports, run->io.port, data, run->io.size);
	}
}

static void handle_mmio(struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;
	uint32_t len = MIN(run->mmio.len, (uint32_t) sizeof(run->mmio.data));

	count(&vcpu->mmio_exits);
	if (run->mmio.is_write)
		bus_write(&vcpu->vm->mmio, run->mmio.phys_addr, run->mmio.data, len);
	else
		bus_read(&vcpu->vm->mmio, run->mmio.phys_addr, run->mmio.data, len);
}

static void report_internal(struct vcpu *vcpu, const char *what, unsigned long long number)
{
	struct kvm_regs regs = { 0 };
	struct err err = ERR_NULL;
	char detail[EXIT_DETAIL_MAX];

	(void) ioctl(vcpu->fd, KVM_GET_REGS, &regs); /* only for the text */
	(void) snprintf(detail, sizeof(detail), "%s 0x%llx on vCPU %u at rip 0x%llx", what, number, vcpu->index,
		(unsigned long long) regs.rip);
	(void) err_set(&err, FAIL_KVM_INTERNAL_ERROR, 0, "%s", detail);
	vm_report_exit(vcpu->vm, EXIT_KVM_INTERNAL, &err, detail);
}

static void handle_exit(struct vcpu *vcpu)
{
	const struct kvm_run *run = vcpu->run;

	switch (run->exit_reason) {
	case KVM_EXIT_IO:
		handle_io(vcpu);
		break;
	case KVM_EXIT_MMIO:
		handle_mmio(vcpu);
		break;
	case KVM_EXIT_INTR:
	case KVM_EXIT_IRQ_WINDOW_OPEN:
		break;
	case KVM_EXIT_X86_BUS_LOCK:
		/* it stops every core of the host for a moment: one a millisecond is enough */
		count(&vcpu->bus_locks);
		(void) poll(NULL, 0, BUS_LOCK_PAUSE_MSEC);
		break;
	case KVM_EXIT_SHUTDOWN:
		vm_report_exit(vcpu->vm, EXIT_TRIPLE_FAULT, NULL, "the guest's CPU shut down (triple fault)");
		break;
	case KVM_EXIT_FAIL_ENTRY:
		report_internal(vcpu, "KVM_EXIT_FAIL_ENTRY", run->fail_entry.hardware_entry_failure_reason);
		break;
	case KVM_EXIT_INTERNAL_ERROR:
		report_internal(vcpu, "KVM_EXIT_INTERNAL_ERROR", run->internal.suberror);
		break;
	default:
		report_internal(vcpu, "KVM exit", run->exit_reason);
		break;
	}
}

/* False when the VM cannot go on. */
static bool handle_run_error(struct vcpu *vcpu, int err_no)
{
	struct err err = ERR_NULL;
	char detail[EXIT_DETAIL_MAX];

	switch (err_no) {
	case EINTR:
	case EAGAIN: /* a vCPU that waits for its INIT was kicked */
		return true;
	case EFAULT:
	case EHWPOISON:
		(void) snprintf(detail, sizeof(detail), "KVM_RUN: %s", strerrorname_np(err_no));
		(void) err_set(&err, FAIL_HOST_MEMORY_FAULT, err_no, "the host could not provide guest memory");
		vm_report_exit(vcpu->vm, EXIT_HOST_MEMORY, &err, detail);
		return false;
	default:
		report_internal(vcpu, "KVM_RUN failed with errno", (unsigned long long) err_no);
		return false;
	}
}

/* Lets an access that is half done come to its end, so that the registers are those between two instructions: KVM does
 * that when it is entered, and leaves at once. False when the VM cannot go on. */
static bool settle(struct vcpu *vcpu)
{
	__atomic_store_n(&vcpu->run->immediate_exit, 1, __ATOMIC_SEQ_CST);
	while (!vm_is_stopping(vcpu->vm)) {
		if (ioctl(vcpu->fd, KVM_RUN, 0) < 0)
			return handle_run_error(vcpu, errno);
		handle_exit(vcpu); /* the second half of an access that is wider than what goes to us at once */
	}
	return false;
}

/* Between two instructions until the VM goes on. */
static bool park(struct vcpu *vcpu)
{
	if (!settle(vcpu))
		return false;
	pause_park(&vcpu->vm->pause);
	/* a kick that came with the end of the pause is not lost: whoever kicks does it until we are where it wants us */
	__atomic_store_n(&vcpu->run->immediate_exit, 0, __ATOMIC_SEQ_CST);
	return true;
}

static void *run_thread(void *data)
{
	struct vcpu *vcpu = data;
	sigset_t kick;

	(void) sigemptyset(&kick);
	(void) sigaddset(&kick, VCPU_SIGNAL);
	if (!vm_thread_begin(vcpu->vm, THREAD_VCPU, vcpu->index))
		return NULL;
	(void) pthread_sigmask(SIG_UNBLOCK, &kick, NULL);
	if (pause_is_wanted(&vcpu->vm->pause)) /* made ahead: it has not run, so that nothing is half done */
		pause_park(&vcpu->vm->pause);
	if (vcpu->index == 0 && !vm_is_stopping(vcpu->vm))
		vm_post(vcpu->vm, VM_EVENT_STARTED);
	while (!vm_is_stopping(vcpu->vm)) {
		int r;

		if (pause_is_wanted(&vcpu->vm->pause)) {
			if (!park(vcpu))
				break;
			continue;
		}
		r = ioctl(vcpu->fd, KVM_RUN, 0);
		count(&vcpu->runs);
		if (r < 0) {
			if (!handle_run_error(vcpu, errno))
				break;
			/* a kick said what it wants before it set the flag, and the loop looks at that again: the flag must not
			 * stay for one who wants nothing any more, such as a pause that was given up */
			__atomic_store_n(&vcpu->run->immediate_exit, 0, __ATOMIC_SEQ_CST);
			continue;
		}
		handle_exit(vcpu);
	}
	return NULL;
}

static void on_kick(int number)
{
	(void) number; /* its arrival is all: KVM_RUN returns */
}

int vcpu_prepare_signal(void)
{
	struct sigaction action = { .sa_handler = on_kick };
	sigset_t kick;

	if (SIGRTMIN > VCPU_SIGNAL)
		return -ENOTSUP; /* another C library */
	/* on vCPU threads alone: the filters of others have no way back from a handler */
	(void) sigemptyset(&kick);
	(void) sigaddset(&kick, VCPU_SIGNAL);
	if (pthread_sigmask(SIG_BLOCK, &kick, NULL) != 0 || sigaction(VCPU_SIGNAL, &action, NULL) < 0)
		return -errno;
	return 0;
}

int vcpu_start(struct vcpu *vcpu)
{
	int r = thread_create(&vcpu->thread, run_thread, vcpu);

	vcpu->has_thread = r == 0;
	return -r;
}

void vcpu_kick(struct vcpu *vcpu)
{
	if (!vcpu->has_thread)
		return;
	/* first the flag: a signal that comes before KVM_RUN would be lost without it */
	__atomic_store_n(&vcpu->run->immediate_exit, 1, __ATOMIC_SEQ_CST);
	(void) pthread_kill(vcpu->thread, VCPU_SIGNAL);
}

int vcpu_join(struct vcpu *vcpu, int64_t deadline_usec)
{
	while (vcpu->has_thread) {
		int64_t until = clock_monotonic_usec() + KICK_USEC;
		struct timespec ts = { .tv_sec = until / USEC_PER_SEC, .tv_nsec = until % USEC_PER_SEC * 1000 };

		vcpu_kick(vcpu);
		if (pthread_clockjoin_np(vcpu->thread, NULL, CLOCK_MONOTONIC, &ts) == 0)
			vcpu->has_thread = false;
		else if (clock_monotonic_usec() > deadline_usec)
			return -ETIMEDOUT;
	}
	return 0;
}

void vcpu_deinit(struct vcpu *vcpu)
{
	if (!vcpu->vm)
		return;
	if (vcpu->run)
		(void) munmap(vcpu->run, vcpu->run_size);
	vcpu->run = NULL;
	kvm_stats_close(&vcpu->stats);
	vcpu->fd = fd_close(vcpu->fd);
}

uint64_t vcpu_cpu_usec(const struct vcpu *vcpu)
{
	struct timespec ts;
	clockid_t clock;

	if (!vcpu->has_thread || pthread_getcpuclockid(vcpu->thread, &clock) != 0 || clock_gettime(clock, &ts) < 0)
		return 0;
	return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}
