/* SPDX-License-Identifier: Apache-2.0
 *
 * vm_make() of vm.h: KVM, memory, vCPUs and devices in the order in which they are made, then the guest.
 */
#include "vm.h"

#include <errno.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/random.h>

#include "acpi.h"
#include "base/fd.h"
#include "boot/cpu.h"
#include "boot/elf.h"
#include "boot/layout.h"
#include "boot/params.h"
#include "cpuid.h"
#include "pvpanic.h"
#include "snapshot.h"
#include "virtio/mmio.h"

#define CREATE_TRIES 20 /* 5 were once too few, in a series of boots that were stopped every 500 us on a slow, busy host */

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

/* KVM has its slots before there is memory: what is mapped there later it finds by itself. */
static int make_slots(struct vm *vm, const struct vm_config *config, struct err *reterr)
{
	int r = memory_reserve(&vm->memory, config->memory_mib, reterr);

	if (r < 0)
		return r;
	vm->memory.pagemap_fd = config->pagemap_fd;
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

static int fill_memory(struct vm *vm, struct vm_config *config, struct err *reterr)
{
	int r = config->is_restore ? memory_fill_from(&vm->memory, TAKE_FD(config->memory_fd), reterr) :
		memory_fill(&vm->memory, reterr);

	if (r == 0 && config->is_forked)
		r = layer_check_frozen(vm->memory.fd, "the memory", reterr);
	for (unsigned int i = 0; r == 0 && config->is_forked && i < config->n_layers; i++)
		r = layer_check_frozen(config->layer_fds[i], "a layer of the memory", reterr);
	if (r == 0)
		r = memory_add_layers(&vm->memory, config->layer_fds, config->n_layers, !config->is_forked, reterr);
	if (r < 0)
		return r;
	r = generation_place(&vm->generation, &vm->memory);
	return r < 0 ? err_set(reterr, FAIL_VMM_START_FAILED, -r, "cannot make the generation id") : 0;
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
	int r = generation_init(&vm->generation);

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

bool vm_has_tsc_deadline(const struct vm *vm)
{
	return ioctl(vm->vm_fd, KVM_CHECK_EXTENSION, KVM_CAP_TSC_DEADLINE_TIMER) > 0;
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
	r = msr_list_read(vm->kvm_fd, &vm->msrs);
	if (r < 0)
		return err_set(reterr, FAIL_VMM_START_FAILED, -r, "KVM_GET_MSR_INDEX_LIST");
	cpuid_apply(cpuid, 0, n, vm_has_tsc_deadline(vm));
	vm->cpuid = TAKE(cpuid);
	return 0;
}

static int restore_guest(struct vm *vm, const struct vm_config *config, struct err *reterr)
{
	CLEANUP(vm_state_freep) struct vm_state *state = NULL;
	int r = snapshot_read(config->state_fd, vm->memory.size, &state, reterr);

	vm->is_restored = true;
	return r < 0 ? r : vm_load(vm, state, reterr);
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

/* All that needs neither memory's content nor disks. */
static int make_shell(struct vm *vm, struct vm_config *config, struct err *reterr)
{
	int r = check_kvm(config->kvm_fd, reterr);

	if (r < 0)
		return r;
	vm->kvm_fd = TAKE_FD(config->kvm_fd);
	r = create_vm(vm, reterr);
	if (r == 0)
		r = make_chips(vm, reterr);
	if (r == 0)
		r = make_slots(vm, config, reterr);
	if (r == 0)
		r = make_vcpus(vm, config->vcpus, reterr);
	return r < 0 ? r : make_devices(vm, config, reterr);
}

int vm_make(struct vm *vm, struct vm_config *config, const char *cmdline, struct err *reterr)
{
	int r = make_shell(vm, config, reterr);

	if (r < 0 || config->is_shell)
		return r;
	r = fill_memory(vm, config, reterr);
	if (r < 0)
		return r;
	return config->is_restore ? restore_guest(vm, config, reterr) : load_guest(vm, config, cmdline, reterr);
}

static int unlike_shell(struct err *reterr, const char *what, uint64_t have, uint64_t need)
{
	(void) err_set(reterr, FAIL_SNAPSHOT_MISMATCH, EINVAL, "the %s of this start is %llu, that of what was prepared %llu",
		what, (unsigned long long) have, (unsigned long long) need);
	err_add(reterr, "what", "%s", what);
	err_add(reterr, "have", "%llu", (unsigned long long) have);
	err_add(reterr, "need", "%llu", (unsigned long long) need);
	return -EINVAL;
}

static int open_disks(struct vm *vm, struct vm_config *config, struct err *reterr)
{
	if (config->n_disks != vm->n_disks)
		return unlike_shell(reterr, "number of disks", config->n_disks, vm->n_disks);
	for (unsigned int i = 0; i < vm->n_disks; i++) {
		int r;

		if (config->disks[i].is_read_only != vm->disks[i].is_read_only)
			return unlike_shell(reterr, "read-only flag of a disk", config->disks[i].is_read_only,
				vm->disks[i].is_read_only);
		r = blk_open(&vm->disks[i], config->disks[i].fd, config->disks[i].serial, &config->disks[i].limit);
		if (r < 0)
			return err_set(reterr, FAIL_VMM_START_FAILED, -r, "cannot use disk %u", i);
		config->disks[i].fd = -1;
	}
	return 0;
}

int vm_fill(struct vm *vm, struct vm_config *config, struct err *reterr)
{
	int r;

	if (config->vcpus != vm->n_vcpus)
		return unlike_shell(reterr, "number of vCPUs", config->vcpus, vm->n_vcpus);
	if (config->memory_mib != vm->memory.size >> 20)
		return unlike_shell(reterr, "memory in MiB", config->memory_mib, vm->memory.size >> 20);
	r = open_disks(vm, config, reterr);
	if (r == 0)
		r = fill_memory(vm, config, reterr);
	return r < 0 ? r : restore_guest(vm, config, reterr);
}
