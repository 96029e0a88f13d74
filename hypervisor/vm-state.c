/* SPDX-License-Identifier: Apache-2.0
 *
 * A machine's state, out of it and into it (vm.h). The order of the latter is KVM's: vCPUs, interrupt controllers, clock,
 * devices; then everybody looks once at what may have been under way.
 */
#include <errno.h>
#include <linux/virtio_ids.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cpuid.h"
#include "vm.h"

#define TSC_TOLERANCE_PPM 250u /* what a guest's own measurement would not find */

/* ---- out ---- */

static int save_device(struct vm *vm, unsigned int i, struct virtio_state *ret, struct err *reterr)
{
	struct device *device = vm->devices[i];

	device_save(device, &ret->device);
	switch (device->id) {
	case VIRTIO_ID_BLOCK:
		ret->sectors = container_of(device, struct blk_device, device)->sectors;
		ret->is_read_only = container_of(device, struct blk_device, device)->is_read_only;
		break;
	case VIRTIO_ID_NET:
		memcpy(ret->mac, vm->net.mac, NET_MAC_SIZE);
		break;
	case VIRTIO_ID_VSOCK:
		ret->guest_cid = vm->vsock.guest_cid;
		ret->next_host_port = vm->vsock.next_host_port;
		break;
	case VIRTIO_ID_BALLOON:
		if (balloon_save(&vm->balloon, &ret->balloon) < 0)
			return err_set(reterr, FAIL_SNAPSHOT_FAILED, ENOMEM, "no memory for the balloon's state");
		break;
	default:
		break;
	}
	return 0;
}

static int save_chips(const struct vm *vm, struct vm_state *ret, struct err *reterr)
{
	for (uint32_t i = 0; i < VM_CHIPS; i++) {
		ret->chips[i] = (struct kvm_irqchip) { .chip_id = i };
		if (ioctl(vm->vm_fd, KVM_GET_IRQCHIP, &ret->chips[i]) < 0)
			return err_set(reterr, FAIL_SNAPSHOT_FAILED, errno, "KVM_GET_IRQCHIP %u", i);
	}
	return 0;
}

static int save(struct vm *vm, struct vm_state *ret, struct err *reterr)
{
	int r = save_chips(vm, ret, reterr), tsc_khz = ioctl(vm->vcpus[0].fd, KVM_GET_TSC_KHZ, 0);

	ret->memory_mib = vm->memory.size >> 20;
	ret->clock_nsec = vm->pause.clock_nsec;
	ret->tsc_khz = tsc_khz > 0 ? (uint32_t) tsc_khz : 0;
	ret->cpuid = *vm->cpuid;
	ret->reached_userspace = vm_has_event(vm, VM_EVENT_USERSPACE);
	ret->panicked = vm_has_event(vm, VM_EVENT_PANICKED);
	ret->vcpus = calloc(vm->n_vcpus, sizeof(ret->vcpus[0]));
	if (!ret->vcpus)
		return err_set(reterr, FAIL_SNAPSHOT_FAILED, ENOMEM, "no memory for the state");
	for (; r == 0 && ret->n_vcpus < vm->n_vcpus; ret->n_vcpus++)
		r = vcpu_save(&vm->vcpus[ret->n_vcpus], &vm->msrs, &ret->vcpus[ret->n_vcpus], reterr);
	serial_save(&vm->serial, &ret->serial);
	for (; r == 0 && ret->n_devices < vm->n_devices; ret->n_devices++)
		r = save_device(vm, ret->n_devices, &ret->devices[ret->n_devices], reterr);
	return r;
}

int vm_save(struct vm *vm, struct vm_state **ret, struct err *reterr)
{
	CLEANUP(vm_state_freep) struct vm_state *state = calloc(1, sizeof(*state));
	int r;

	if (!state)
		return err_set(reterr, FAIL_SNAPSHOT_FAILED, ENOMEM, "no memory for the state");
	r = save(vm, state, reterr);
	if (r == 0)
		*ret = TAKE(state);
	return r;
}

/* ---- whether it fits ---- */

static int mismatch(struct err *reterr, const char *what, uint64_t have, uint64_t need)
{
	(void) err_set(reterr, FAIL_SNAPSHOT_MISMATCH, EINVAL, "the snapshot's %s is %llu, that of this start %llu", what,
		(unsigned long long) have, (unsigned long long) need);
	err_add(reterr, "what", "%s", what);
	err_add(reterr, "have", "%llu", (unsigned long long) have);
	err_add(reterr, "need", "%llu", (unsigned long long) need);
	return -EINVAL;
}

static int check_device(const struct vm *vm, unsigned int i, const struct virtio_state *state, struct err *reterr)
{
	struct device *device = vm->devices[i];
	const struct blk_device *blk = container_of(device, struct blk_device, device);

	if (state->device.id != device->id)
		return mismatch(reterr, "kind of a device", state->device.id, device->id);
	if (device->id == VIRTIO_ID_BLOCK && state->sectors != blk->sectors)
		return mismatch(reterr, "number of a disk's sectors", state->sectors, blk->sectors);
	if (device->id == VIRTIO_ID_BLOCK && state->is_read_only != blk->is_read_only)
		return mismatch(reterr, "read-only flag of a disk", state->is_read_only, blk->is_read_only);
	return 0;
}

/* The CPU that the guest saw is the one that it would see here, register by register. */
static int check_cpu(const struct vm *vm, const struct vm_state *state, struct err *reterr)
{
	for (uint32_t i = 0; i < MIN(vm->cpuid->n, state->cpuid.n); i++) {
		const struct kvm_cpuid_entry2 *have = &state->cpuid.entries[i], *here = &vm->cpuid->entries[i];

		if (!memcmp(have, here, sizeof(*have)))
			continue;
		(void) err_set(reterr, FAIL_SNAPSHOT_CPU_MISMATCH, ENOTSUP, "the snapshot's CPU is another: leaf 0x%x.%u",
			have->function, have->index);
		err_add(reterr, "leaf", "0x%x", have->function);
		err_add(reterr, "subleaf", "%u", have->index);
		return -ENOTSUP;
	}
	if (vm->cpuid->n == state->cpuid.n)
		return 0;
	return err_set(reterr, FAIL_SNAPSHOT_CPU_MISMATCH, ENOTSUP, "the snapshot's CPU is another: %u leaves, not %u",
		state->cpuid.n, vm->cpuid->n);
}

static int check_fits(const struct vm *vm, const struct vm_state *state, struct err *reterr)
{
	int r = 0;

	if (state->has_memory_id && (!vm->memory.has_id || memcmp(state->memory_id, vm->memory.id, LAYER_ID) != 0))
		return err_set(reterr, FAIL_SNAPSHOT_INVALID, ESTALE, "the snapshot's memory and its state are of two snapshots");
	if (state->memory_mib != vm->memory.size >> 20)
		return mismatch(reterr, "memory in MiB", state->memory_mib, vm->memory.size >> 20);
	if (state->n_vcpus != vm->n_vcpus)
		return mismatch(reterr, "number of vCPUs", state->n_vcpus, vm->n_vcpus);
	if (state->n_devices != vm->n_devices)
		return mismatch(reterr, "number of devices", state->n_devices, vm->n_devices);
	for (unsigned int i = 0; r == 0 && i < vm->n_devices; i++)
		r = check_device(vm, i, &state->devices[i], reterr);
	return r < 0 ? r : check_cpu(vm, state, reterr);
}

/* ---- in ---- */

/* The same speed, or KVM makes it so. */
static int load_tsc(const struct vm *vm, uint32_t khz, struct err *reterr)
{
	int here = ioctl(vm->vcpus[0].fd, KVM_GET_TSC_KHZ, 0);
	uint64_t difference = here > 0 ? (uint64_t) llabs((long long) here - khz) : 0;

	if (khz == 0 || difference * 1000000 <= (uint64_t) khz * TSC_TOLERANCE_PPM)
		return 0;
	for (unsigned int i = 0; i < vm->n_vcpus; i++)
		if (ioctl(vm->vcpus[i].fd, KVM_SET_TSC_KHZ, (unsigned long) khz) < 0)
			return err_set(reterr, FAIL_SNAPSHOT_CPU_MISMATCH, errno,
				"the snapshot's TSC has %u kHz, this one %d, and KVM cannot scale it", khz, here);
	return 0;
}

static int load_device(struct vm *vm, unsigned int i, const struct virtio_state *state, struct err *reterr)
{
	struct device *device = vm->devices[i];
	int r = device_load(device, &state->device);

	if (r == 0 && device->id == VIRTIO_ID_BALLOON)
		r = balloon_load(&vm->balloon, &state->balloon);
	if (device->id == VIRTIO_ID_VSOCK)
		vsock_set_next_port(&vm->vsock, state->next_host_port);
	return r < 0 ? err_set(reterr, FAIL_SNAPSHOT_INVALID, -r, "the snapshot's device %u is in no state that it can be in", i)
		     : 0;
}

static int load_kvm(struct vm *vm, const struct vm_state *state, struct err *reterr)
{
	int r = load_tsc(vm, state->tsc_khz, reterr);

	for (unsigned int i = 0; r == 0 && i < vm->n_vcpus; i++)
		r = vcpu_load(&vm->vcpus[i], &state->vcpus[i], &vm->vcpus[0], i > 0 ? &state->vcpus[0] : NULL,
			reterr);
	for (unsigned int i = 0; r == 0 && i < VM_CHIPS; i++)
		if (ioctl(vm->vm_fd, KVM_SET_IRQCHIP, &state->chips[i]) < 0)
			r = err_set(reterr, FAIL_RESTORE_FAILED, errno, "KVM_SET_IRQCHIP %u", i);
	return r;
}

int vm_load(struct vm *vm, const struct vm_state *state, struct err *reterr)
{
	int r = check_fits(vm, state, reterr);

	if (r == 0)
		r = load_kvm(vm, state, reterr);
	for (unsigned int i = 0; r == 0 && i < vm->n_devices; i++)
		r = load_device(vm, i, &state->devices[i], reterr);
	if (r < 0)
		return r;
	serial_load(&vm->serial, &state->serial);
	vm->pause.clock_nsec = state->clock_nsec;
	if (state->reached_userspace)
		vm_post(vm, VM_EVENT_USERSPACE);
	if (state->panicked)
		vm_post(vm, VM_EVENT_PANICKED);
	return 0;
}

int vm_wake(struct vm *vm, struct err *reterr)
{
	int r = pause_start_clock(vm);

	if (r < 0)
		return err_set(reterr, FAIL_RESTORE_FAILED, -r, "KVM_SET_CLOCK");
	if (vm->has_vsock)
		(void) vsock_tell_reset(&vm->vsock);
	for (unsigned int i = 0; i < vm->n_devices; i++)
		device_wake(vm->devices[i]);
	if (generation_renew(&vm->generation) < 0)
		return err_set(reterr, FAIL_RESTORE_FAILED, EAGAIN, "no randomness for the generation id");
	return 0;
}
