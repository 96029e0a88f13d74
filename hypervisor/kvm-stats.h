/* SPDX-License-Identifier: Apache-2.0
 *
 * KVM's own counters through KVM_GET_STATS_FD: they work without privilege, and count what KVM handles without
 * telling us. The names are looked up once, while the machine is built; later only numbers are read.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvm_stat {
	KVM_STAT_EXITS,
	KVM_STAT_IO_EXITS,
	KVM_STAT_MMIO_EXITS,
	KVM_STAT_HALT_EXITS,
	KVM_STAT_IRQ_EXITS,
	KVM_STAT_SIGNAL_EXITS,
	KVM_STAT_PF_FIXED, /* pages mapped on a fault: what memory costs */
	KVM_STAT_PAGES_4K, /* mapped now; of the VM, the others of a vCPU */
	KVM_STAT_PAGES_2M,
	KVM_STAT_PAGES_1G,
	KVM_STAT_MAX_
};

/* The counters of a VM or of a vCPU. */
struct kvm_stats {
	int fd; /* -1: this KVM has none */
	uint64_t at[KVM_STAT_MAX_]; /* in the file; 0: not among these */
};

#define KVM_STATS_NULL { .fd = -1 }

/* `fd` is a VM's or a vCPU's. A KVM without the ioctl is no failure: then nothing is counted. */
void kvm_stats_open(struct kvm_stats *stats, int fd);
void kvm_stats_close(struct kvm_stats *stats);
/* Adds what there is to `sums`. */
void kvm_stats_add(const struct kvm_stats *stats, uint64_t sums[static KVM_STAT_MAX_]);
