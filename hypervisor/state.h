/* SPDX-License-Identifier: Apache-2.0
 *
 * A VM that stands still, as plain structs: what a snapshot keeps beside memory. vm-state.c reads it from a machine and
 * puts it into one; snapshot.c is the way to and from bytes.
 *
 * Not in it, because it is the host's: connections of vsock (the guest is told that they are gone), a frame that waits
 * for buffers, bytes on their way to the console, levels of rate limits, counters.
 */
#pragma once

#include "config.h"
#include "cpuid.h"
#include "serial.h"
#include "vcpu-state.h"
#include "virtio/balloon.h"
#include "virtio/device.h"
#include "virtio/net.h"

#define VM_CHIPS 3 /* two PICs, the IOAPIC: KVM_IRQCHIP_... */
#define VM_VIRTIO_MAX (CONFIG_DISKS_MAX + 4)

struct virtio_state {
	struct device_state device;
	/* by device.id */
	uint64_t sectors;
	bool is_read_only;
	uint8_t mac[NET_MAC_SIZE];
	uint32_t guest_cid, next_host_port;
	struct balloon_state balloon;
};

struct vm_state {
	uint64_t memory_mib, clock_nsec;
	uint32_t tsc_khz;
	struct cpuid cpuid;      /* of vCPU 0 */
	unsigned int n_vcpus;
	struct vcpu_state *vcpus;
	struct kvm_irqchip chips[VM_CHIPS];
	struct serial_state serial;
	unsigned int n_devices;
	struct virtio_state devices[VM_VIRTIO_MAX];
	bool reached_userspace, panicked;
	bool has_memory_id;
	uint8_t memory_id[LAYER_ID]; /* of the memory that belongs to it */
};

void vm_state_free(struct vm_state *state);
DEFINE_CLEANUP(struct vm_state, vm_state_free)
