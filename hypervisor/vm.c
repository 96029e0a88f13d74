/* SPDX-License-Identifier: Apache-2.0
 *
 * See vm.h.
 */
#include "vm.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "acpi.h"
#include "base/clock.h"
#include "base/fd.h"
#include "boot/cpu.h"
#include "boot/elf.h"
#include "boot/layout.h"
#include "boot/params.h"
#include "cpuid.h"
#include "filter.h"
#include "pvpanic.h"
#include "virtio/mmio.h"

#define CREATE_TRIES 5
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

static int check_kvm(int kvm_fd, struct err *reterr)
{
	static const struct {
		int cap;
		const char *name;
	} needed[] = { { KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY" }, { KVM_CAP_IRQFD, "KVM_CAP_IRQFD" },
		{ KVM_CAP_IOEVENTFD, "KVM_CAP_IOEVENTFD" }, { KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT" },
		{ KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID" }, { KVM_CAP_IRQCHIP, "KVM_CAP_IRQCHIP" },
		{ KVM_CAP_X86_MSR_FILTER, "KVM_CAP_X86_MSR_FILTER" } };
	int version = kvm_fd < 0 ? (errno = EBADF, -1) : ioctl(kvm_fd, KVM_GET_API_VERSION, 0);

	if (version < 0)
		return err_set(reterr, FAIL_KVM_UNAVAILABLE, errno, "the descriptor given as /dev/kvm is none");
	if (version != KVM_API_VERSION)
		return err_set(reterr, FAIL_KVM_TOO_OLD, 0, "KVM's version is %d, not %d", version, KVM_API_VERSION);
	for (size_t i = 0; i < ARRAY_LEN(needed); i++)
		if (ioctl(kvm_fd, KVM_CHECK_EXTENSION, needed[i].cap) <= 0)
			return err_set(reterr, FAIL_KVM_TOO_OLD, 0, "KVM lacks %s", needed[i].name);
	return 0;
}

/* A signal can interrupt it while it waits for other CPUs. */
static int create_vm(struct vm *vm, struct err *reterr)
{
	for (int i = 0; i < CREATE_TRIES && vm->vm_fd < 0; i++) {
		vm->vm_fd = ioctl(vm->kvm_fd, KVM_CREATE_VM, 0);
		if (vm->vm_fd < 0 && errno != EINTR)
			break;
	}
	if (vm->vm_fd < 0)
		return err_set(reterr, FAIL_KVM_UNAVAILABLE, errno, "KVM_CREATE_VM: %s",
			errno == EBUSY ? "another hypervisor holds the CPU's virtualisation" : strerrorname_np(errno));
	return 0;
}

static int make_chips(struct vm *vm, struct err *reterr)
{
	struct kvm_enable_cap pmu = { .cap = KVM_CAP_PMU_CAPABILITY, .args = { KVM_PMU_CAP_DISABLE } };
	struct kvm_enable_cap bus_lock = { .cap = KVM_CAP_X86_BUS_LOCK_EXIT, .args = { KVM_BUS_LOCK_DETECTION_EXIT } };
	struct kvm_enable_cap emulation = { .cap = KVM_CAP_EXIT_ON_EMULATION_FAILURE, .args = { 1 } };
	uint64_t identity = LAYOUT_KVM_IDENTITY_MAP;
	int r;

	/* three pages that Intel's KVM wants for itself; nothing lies there */
	if (ioctl(vm->vm_fd, KVM_SET_IDENTITY_MAP_ADDR, &identity) < 0 ||
		ioctl(vm->vm_fd, KVM_SET_TSS_ADDR, (unsigned long) LAYOUT_KVM_TSS) < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, errno, "KVM_SET_TSS_ADDR");
	if (ioctl(vm->vm_fd, KVM_CREATE_IRQCHIP, 0) < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, errno, "KVM_CREATE_IRQCHIP");
	/* before the first vCPU; older kernels do not know it, and then CPUID alone hides the counters */
	(void) ioctl(vm->vm_fd, KVM_ENABLE_CAP, &pmu);
	/* only where host and CPU can tell; see vcpu.c for what is done then */
	if (ioctl(vm->vm_fd, KVM_CHECK_EXTENSION, KVM_CAP_X86_BUS_LOCK_EXIT) & KVM_BUS_LOCK_DETECTION_EXIT)
		(void) ioctl(vm->vm_fd, KVM_ENABLE_CAP, &bus_lock);
	/* an instruction that KVM cannot emulate ends the VM and says so, instead of a fault that nobody explains */
	(void) ioctl(vm->vm_fd, KVM_ENABLE_CAP, &emulation);
	r = cpuid_deny_msrs(vm->vm_fd);
	if (r < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, -r, "KVM_X86_SET_MSR_FILTER");
	kvm_stats_open(&vm->stats, vm->vm_fd);
	return 0;
}

static int make_memory(struct vm *vm, uint64_t mib, struct err *reterr)
{
	int r = memory_init(&vm->memory, mib, reterr);

	if (r < 0)
		return r;
	for (unsigned int i = 0; i < vm->memory.n_regions; i++) {
		const struct memory_region *region = &vm->memory.regions[i];
		struct kvm_userspace_memory_region slot = { .slot = i, .guest_phys_addr = region->gpa,
			.memory_size = region->size,
			.userspace_addr = (uint64_t) (uintptr_t) (vm->memory.base + region->gpa) };

		if (ioctl(vm->vm_fd, KVM_SET_USER_MEMORY_REGION, &slot) < 0)
			return err_set(reterr, FAIL_VMM_START_FAILED, errno, "KVM_SET_USER_MEMORY_REGION %u", i);
	}
	return 0;
}

static int connect_irq(struct vm *vm, int fd, uint32_t gsi)
{
	struct kvm_irqfd irqfd = { .fd = (uint32_t) fd, .gsi = gsi };

	return ioctl(vm->vm_fd, KVM_IRQFD, &irqfd) < 0 ? -errno : 0;
}

static int connect_notify(struct vm *vm, const struct device *device, uint64_t base)
{
	for (unsigned int i = 0; i < device->n_queues; i++) {
		struct kvm_ioeventfd notify = { .datamatch = i, .addr = base + MMIO_QUEUE_NOTIFY, .len = 4,
			.fd = device->notify_fds[i], .flags = KVM_IOEVENTFD_FLAG_DATAMATCH };

		if (ioctl(vm->vm_fd, KVM_IOEVENTFD, &notify) < 0)
			return -errno;
	}
	return 0;
}

/* Gives the device the next place on the bus and the next interrupt. */
static int plug(struct vm *vm, struct device *device, struct err *reterr)
{
	unsigned int slot = vm->n_devices;
	struct bus_range range = { .base = LAYOUT_VIRTIO + slot * LAYOUT_VIRTIO_STRIDE, .size = LAYOUT_VIRTIO_STRIDE,
		.read = mmio_read, .write = mmio_write, .data = device };
	int r = bus_add(&vm->mmio, &range);

	if (r == 0)
		r = connect_irq(vm, device->irq_fd, LAYOUT_GSI_VIRTIO + slot);
	if (r == 0)
		r = connect_notify(vm, device, range.base);
	if (r < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, -r, "cannot connect virtio device %u", slot);
	vm->devices[vm->n_devices++] = device;
	return 0;
}

static int make_generation(struct vm *vm, struct err *reterr)
{
	int r = generation_init(&vm->generation, &vm->memory);

	if (r == 0)
		r = connect_irq(vm, vm->generation.irq_fd, LAYOUT_GSI_GENERATION);
	return r < 0 ? err_set(reterr, FAIL_VMM_START_FAILED, -r, "cannot make the generation id") : 0;
}

static int make_disks(struct vm *vm, struct vm_config *config, struct err *reterr)
{
	for (unsigned int i = 0; i < config->n_disks; i++) {
		struct disk_config *disk = &config->disks[i];
		int r = blk_init(&vm->disks[i], &vm->memory, disk->fd, disk->is_read_only, disk->serial, &disk->limit);

		vm->n_disks = i + 1;
		if (r < 0)
			return err_set(reterr, FAIL_VMM_START_FAILED, -r, "cannot make disk %u", i);
		disk->fd = -1;
		r = plug(vm, &vm->disks[i].device, reterr);
		if (r < 0)
			return r;
	}
	return 0;
}

static int make_vsock(struct vm *vm, struct vm_config *config, struct err *reterr)
{
	int r;

	if (!config->has_vsock)
		return 0;
	vm->has_vsock = true;
	r = vsock_init(&vm->vsock, &vm->devices_loop, &vm->memory, config->guest_cid, config->vsock_path, config->vsock_fd);
	if (r < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, -r, "cannot make the vsock device");
	config->vsock_fd = -1;
	return plug(vm, &vm->vsock.device, reterr);
}

static int make_serial(struct vm *vm, struct vm_config *config, struct err *reterr)
{
	struct bus_range range = { .base = LAYOUT_PORT_SERIAL, .size = 8, .read = serial_read, .write = serial_write,
		.data = &vm->serial };
	int r;

	vm->serial_irq_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (vm->serial_irq_fd < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, errno, "no eventfd for the serial port");
	r = serial_init(&vm->serial, vm->loop, vm->serial_irq_fd, config->console_fd);
	if (r < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, -r, "cannot use the console descriptor");
	config->console_fd = -1;
	r = bus_add(&vm->ports, &range);
	if (r == 0)
		r = connect_irq(vm, vm->serial_irq_fd, LAYOUT_GSI_SERIAL);
	if (r == 0)
		r = pvpanic_init(vm, &vm->ports);
	return r < 0 ? err_set(reterr, FAIL_VMM_START_FAILED, -r, "cannot connect the ports") : 0;
}

static int make_net(struct vm *vm, struct vm_config *config, struct err *reterr)
{
	int r;

	if (!config->has_net)
		return 0;
	vm->has_net = true;
	r = net_init(&vm->net, &vm->devices_loop, &vm->memory, config->tap_fd, &config->net);
	if (r < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, -r, "cannot make the network device");
	config->tap_fd = -1;
	return plug(vm, &vm->net.device, reterr);
}

static int make_balloon(struct vm *vm, const struct vm_config *config, struct err *reterr)
{
	int r;

	if (!config->has_balloon)
		return 0;
	vm->has_balloon = true;
	r = balloon_init(&vm->balloon, &vm->devices_loop, &vm->memory);
	if (r < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, -r, "cannot make the balloon");
	return plug(vm, &vm->balloon.device, reterr);
}

static int make_devices(struct vm *vm, struct vm_config *config, struct err *reterr)
{
	int r = make_serial(vm, config, reterr);

	if (r == 0)
		r = make_generation(vm, reterr);
	if (r == 0)
		r = make_disks(vm, config, reterr);
	if (r == 0)
		r = make_vsock(vm, config, reterr);
	if (r < 0)
		return r;
	r = rng_init(&vm->rng, &vm->devices_loop, &vm->memory);
	if (r < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, -r, "cannot make the rng device");
	r = plug(vm, &vm->rng.device, reterr);
	if (r == 0)
		r = make_net(vm, config, reterr);
	return r < 0 ? r : make_balloon(vm, config, reterr);
}

static int make_vcpus(struct vm *vm, unsigned int n, struct err *reterr)
{
	CLEANUP_FREE struct cpuid *cpuid = malloc(sizeof(*cpuid));
	int r;

	if (!cpuid)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the CPUID table");
	r = cpuid_read_supported(vm->kvm_fd, cpuid);
	if (r < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, -r, "KVM_GET_SUPPORTED_CPUID");
	vm->n_vcpus = n;
	for (unsigned int i = 0; i < n; i++) {
		r = vcpu_init(&vm->vcpus[i], vm, i, cpuid, reterr);
		if (r < 0)
			return r;
	}
	return 0;
}

static int load_guest(struct vm *vm, const struct vm_config *config, const char *cmdline, struct err *reterr)
{
	struct acpi_input acpi = { .gpa = LAYOUT_ACPI, .n_vcpus = vm->n_vcpus, .n_virtio = vm->n_devices };
	struct boot_input boot = { .cmdline = cmdline, .initramfs_fd = config->initramfs_fd, .acpi_rsdp = LAYOUT_ACPI };
	const size_t acpi_size = LAYOUT_ACPI_END - LAYOUT_ACPI;
	struct elf_image image;
	int r = elf_load(config->kernel_fd, &vm->memory, &image, reterr);

	if (r < 0)
		return r;
	boot.kernel_end = image.end;
	if (getrandom(boot.seed, sizeof(boot.seed), 0) != sizeof(boot.seed))
		return err_set(reterr, FAIL_VMM_START_FAILED, errno, "getrandom");
	r = acpi_build(&acpi, guest_map(&vm->memory, LAYOUT_ACPI, acpi_size), acpi_size);
	if (r < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, -r, "the ACPI tables do not fit");
	r = boot_params_write(&vm->memory, &boot, reterr);
	explicit_bzero(boot.seed, sizeof(boot.seed));
	if (r < 0)
		return r;
	boot_cpu_write_tables(&vm->memory);
	return vcpu_set_entry(&vm->vcpus[0], image.entry, reterr);
}

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
	r = check_kvm(config->kvm_fd, reterr);
	if (r < 0)
		return r;
	vm->kvm_fd = TAKE_FD(config->kvm_fd);
	r = create_vm(vm, reterr);
	if (r == 0)
		r = make_chips(vm, reterr);
	if (r == 0)
		r = make_memory(vm, config->memory_mib, reterr);
	if (r == 0)
		r = make_vcpus(vm, config->vcpus, reterr);
	if (r == 0)
		r = make_devices(vm, config, reterr);
	return r < 0 ? r : load_guest(vm, config, cmdline, reterr);
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

int vm_start(struct vm *vm, struct err *reterr)
{
	for (unsigned int i = 0; i < vm->n_disks; i++) {
		int r = blk_start(&vm->disks[i], vm_thread_begin, vm);

		if (r < 0)
			return err_set(reterr, FAIL_HOST_LIMIT, -r, "no thread for disk %u", i);
	}
	for (unsigned int i = vm->n_vcpus; i-- > 0;) { /* the first one last: it is the one that begins */
		int r = vcpu_start(&vm->vcpus[i]);

		if (r < 0)
			return err_set(reterr, FAIL_HOST_LIMIT, -r, "no thread for vCPU %u", i);
	}
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
	uint64_t largest = MAX(vm->memory.size, (uint64_t) SERIAL_FILE_MAX);

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
