/* SPDX-License-Identifier: Apache-2.0
 *
 * See vm.h.
 */
#include "vm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "filter.h"

#define STOP_USEC (3 * USEC_PER_SEC)
#define PANIC_USEC USEC_PER_SEC

/* ---- what comes from other threads ---- */

static void wake(struct vm *vm)
{
	uint64_t one = 1;

	(void) !write(vm->wake_fd, &one, sizeof(one)); /* cannot fail before 2^64 of them */
}

void vm_post(struct vm *vm, enum vm_event event)
{
	int_fast64_t none = 0;

	if (atomic_compare_exchange_strong(&vm->event_usec[event], &none, clock_monotonic_usec()))
		wake(vm);
}

bool vm_has_event(struct vm *vm, enum vm_event event)
{
	return atomic_load(&vm->event_usec[event]) != 0;
}

void vm_report_exit(struct vm *vm, enum exit_reason reason, const struct err *failure, const char *detail)
{
	/* what a panicking kernel does next is how it panics, not why it ended */
	bool is_consequence = reason == EXIT_RESET || reason == EXIT_POWEROFF || reason == EXIT_TRIPLE_FAULT;

	(void) pthread_mutex_lock(&vm->exit_lock);
	if (vm->exit.reason == EXIT_NONE) {
		vm->exit.reason = vm_has_event(vm, VM_EVENT_PANICKED) && is_consequence ? EXIT_PANIC : reason;
		if (failure)
			vm->exit.failure = *failure;
		(void) snprintf(vm->exit.detail, sizeof(vm->exit.detail), "%s",
			vm->exit.reason == reason ? detail : "the guest kernel panicked");
	}
	(void) pthread_mutex_unlock(&vm->exit_lock);
	atomic_store(&vm->is_stopping, true);
	pause_abandon(&vm->pause);
	wake(vm);
}

struct exit_record vm_exit_record(struct vm *vm)
{
	struct exit_record record;

	(void) pthread_mutex_lock(&vm->exit_lock);
	record = vm->exit;
	(void) pthread_mutex_unlock(&vm->exit_lock);
	record.reached_userspace = vm_has_event(vm, VM_EVENT_USERSPACE);
	return record;
}

static void on_panic_timeout(void *data)
{
	vm_report_exit(data, EXIT_PANIC, NULL, "the guest kernel panicked");
}

static void on_wake(void *data, uint32_t events)
{
	struct vm *vm = data;
	uint64_t count;

	(void) events;
	(void) !read(vm->wake_fd, &count, sizeof(count)); /* only clears it */
	for (int i = 0; i < VM_EVENT_MAX_; i++) {
		int64_t at = atomic_load(&vm->event_usec[i]);

		if (at == 0 || vm->event_told[i])
			continue;
		vm->event_told[i] = true;
		if (i == VM_EVENT_PANICKED)
			loop_timer_arm(vm->loop, &vm->panic_timer, PANIC_USEC, on_panic_timeout, vm);
		vm->hooks->event(vm->hooks_data, (enum vm_event) i, at);
	}
	if (vm_is_stopping(vm))
		vm->hooks->ended(vm->hooks_data);
}

bool vm_thread_begin(void *data, enum thread_kind kind, unsigned int index)
{
	struct vm *vm = data;
	struct err err = ERR_NULL;
	char name[16];
	int r;

	(void) snprintf(name, sizeof(name), kind == THREAD_VCPU ? "%s %u" : "%s", thread_kind_name(kind), index);
	(void) prctl(PR_SET_NAME, name); /* for people only */
	r = vm->is_filtered ? filter_install(kind) : 0;
	if (r < 0) {
		(void) err_set(&err, FAIL_JAIL_FAILED, -r, "the filter of a %s thread", thread_kind_name(kind));
		vm_report_exit(vm, EXIT_START_FAILED, &err, err.msg);
	}
	return r == 0;
}

/* ---- building ---- */

static int build(struct vm *vm, struct vm_config *config, const char *cmdline, struct err *reterr)
{
	int r;

	vm->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (vm->wake_fd < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, errno, "no eventfd");
	r = loop_add(vm->loop, &vm->wake, vm->wake_fd, EPOLLIN, on_wake, vm);
	if (r == 0)
		r = loop_init(&vm->devices_loop);
	if (r == 0)
		r = loop_nest(vm->loop, &vm->devices_loop);
	if (r < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, -r, "epoll");
	return vm_make(vm, config, cmdline, reterr);
}

int vm_build(struct vm **ret, struct loop *loop, struct vm_config *config, const char *cmdline,
	const struct vm_hooks *hooks, void *hooks_data, struct err *reterr)
{
	CLEANUP(vm_freep) struct vm *vm = calloc(1, sizeof(*vm));
	int r;

	if (!vm)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the VM");
	vm->loop = loop;
	vm->hooks = hooks;
	vm->hooks_data = hooks_data;
	vm->kvm_fd = vm->vm_fd = vm->serial_irq_fd = vm->wake_fd = vm->generation.irq_fd = -1;
	vm->wake.fd = vm->devices_loop.epoll_fd = vm->devices_loop.nested.fd = -1;
	vm->memory.fd = -1;
	vm->stats = (struct kvm_stats) KVM_STATS_NULL;
	if (pthread_mutex_init(&vm->exit_lock, NULL) != 0 || pause_init(&vm->pause) < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no lock");
	r = build(vm, config, cmdline, reterr);
	if (r < 0)
		return r;
	*ret = TAKE(vm);
	return 0;
}

static int make_threads(struct vm *vm, struct err *reterr)
{
	for (unsigned int i = vm->n_vcpus; i-- > 0;) { /* the first one last: it is the one that begins */
		int r = vcpu_start(&vm->vcpus[i]);

		if (r < 0)
			return err_set(reterr, FAIL_HOST_LIMIT, -r, "no thread for vCPU %u", i);
	}
	return 0;
}

static int make_disk_threads(struct vm *vm, struct err *reterr)
{
	for (unsigned int i = 0; i < vm->n_disks; i++) {
		int r = blk_start(&vm->disks[i], vm_thread_begin, vm);

		if (r < 0)
			return err_set(reterr, FAIL_HOST_LIMIT, -r, "no thread for disk %u", i);
	}
	return 0;
}

int vm_make_threads(struct vm *vm, struct err *reterr)
{
	int r;

	pause_begin(vm);
	vm->has_threads = true;
	r = make_disk_threads(vm, reterr);
	return r < 0 ? r : make_threads(vm, reterr);
}

int vm_start(struct vm *vm, struct err *reterr)
{
	int r = vm->has_threads ? 0 : make_disk_threads(vm, reterr);

	if (r == 0 && vm->is_restored)
		r = vm_wake(vm, reterr);
	if (r < 0)
		return r;
	if (!vm->has_threads)
		return make_threads(vm, reterr);
	pause_run_on(vm);
	return 0;
}

int vm_stop(struct vm *vm)
{
	int64_t deadline = clock_monotonic_usec() + STOP_USEC;
	int r = 0;

	atomic_store(&vm->is_stopping, true);
	pause_abandon(&vm->pause);
	loop_timer_disarm(vm->loop, &vm->panic_timer);
	/* first: a vCPU may wait in a reset for what its disk does */
	for (unsigned int i = 0; i < vm->n_disks; i++)
		blk_cancel(&vm->disks[i]);
	for (unsigned int i = 0; i < vm->n_vcpus; i++)
		vcpu_kick(&vm->vcpus[i]);
	for (unsigned int i = 0; r == 0 && i < vm->n_vcpus; i++)
		r = vcpu_join(&vm->vcpus[i], deadline);
	for (unsigned int i = 0; r == 0 && i < vm->n_disks; i++)
		r = blk_stop(&vm->disks[i], deadline);
	return r;
}

void vm_free(struct vm *vm)
{
	(void) vm_stop(vm); /* threads have ended, or the caller would not be here */
	if (vm->has_balloon)
		balloon_deinit(&vm->balloon);
	if (vm->has_net)
		net_deinit(&vm->net);
	rng_deinit(&vm->rng);
	if (vm->has_vsock)
		vsock_deinit(&vm->vsock);
	for (unsigned int i = 0; i < vm->n_disks; i++)
		blk_deinit(&vm->disks[i]);
	generation_deinit(&vm->generation);
	serial_deinit(&vm->serial);
	(void) fd_close(vm->serial_irq_fd);
	for (unsigned int i = 0; i < vm->n_vcpus; i++)
		vcpu_deinit(&vm->vcpus[i]);
	free(vm->cpuid);
	kvm_stats_close(&vm->stats);
	(void) fd_close(vm->vm_fd);
	(void) fd_close(vm->kvm_fd);
	memory_deinit(&vm->memory);
	loop_deinit(&vm->devices_loop);
	loop_remove(vm->loop, &vm->wake);
	(void) fd_close(vm->wake_fd);
	pause_deinit(&vm->pause);
	(void) pthread_mutex_destroy(&vm->exit_lock);
	free(vm);
}

void vm_stats(struct vm *vm, struct vm_stats *ret)
{
	*ret = (struct vm_stats) { .n_disks = vm->n_disks, .serial = serial_stats(&vm->serial),
		.has_net = vm->has_net, .has_balloon = vm->has_balloon };
	for (unsigned int i = 0; i < vm->n_vcpus; i++) {
		struct vcpu *vcpu = &vm->vcpus[i];

		ret->vcpu_usec += vcpu_cpu_usec(vcpu);
		ret->kvm_runs += atomic_load_explicit(&vcpu->runs, memory_order_relaxed);
		ret->io_exits += atomic_load_explicit(&vcpu->io_exits, memory_order_relaxed);
		ret->mmio_exits += atomic_load_explicit(&vcpu->mmio_exits, memory_order_relaxed);
		ret->bus_locks += atomic_load_explicit(&vcpu->bus_locks, memory_order_relaxed);
		kvm_stats_add(&vcpu->stats, ret->kvm);
	}
	ret->has_kvm = vm->stats.fd >= 0;
	kvm_stats_add(&vm->stats, ret->kvm);
	for (unsigned int i = 0; i < vm->n_devices; i++) {
		struct device *device = vm->devices[i];

		(void) pthread_mutex_lock(&device->lock);
		ret->needs_reset += device->needs_reset;
		for (unsigned int q = 0; q < device->n_queues; q++)
			ret->bad_gpa += device->queues[q].bad_gpa;
		(void) pthread_mutex_unlock(&device->lock);
	}
	for (unsigned int i = 0; i < vm->n_disks; i++)
		ret->disks[i] = blk_stats(&vm->disks[i]);
	if (vm->has_vsock)
		ret->vsock = vsock_stats(&vm->vsock);
	if (vm->has_net)
		ret->net = net_stats(&vm->net);
	if (vm->has_balloon)
		ret->balloon = balloon_stats(&vm->balloon);
	(void) pthread_mutex_lock(&vm->rng.device.lock);
	ret->rng_bytes = vm->rng.bytes;
	(void) pthread_mutex_unlock(&vm->rng.device.lock);
}

uint64_t vm_largest_file(const struct vm *vm)
{
	uint64_t largest = MAX(vm->memory.size + LAYER_ROOM, (uint64_t) SERIAL_FILE_MAX);

	for (unsigned int i = 0; i < vm->n_disks; i++)
		largest = MAX(largest, vm->disks[i].sectors * BLK_SECTOR);
	return largest;
}

int vm_set_balloon(struct vm *vm, uint64_t mib, struct err *reterr)
{
	if (!vm->has_balloon)
		return err_set_at(reterr, STAGE_RUN, FAIL_INVALID_ARGUMENT, ENODEV, "this VM has no balloon");
	if (mib > vm->memory.size >> 20) {
		(void) err_set_at(reterr, STAGE_RUN, FAIL_INVALID_ARGUMENT, ERANGE,
			"the balloon cannot hold %llu MiB: more than the VM's memory", (unsigned long long) mib);
		err_add(reterr, "max", "%llu", (unsigned long long) (vm->memory.size >> 20));
		return -ERANGE;
	}
	balloon_set_target(&vm->balloon, (mib << 20) / BALLOON_PAGE);
	return 0;
}
