/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU that guests see: what KVM supports on this host, less what policy takes away, with the topology of
 * this VM (one package, a core per vCPU). The policy is one table in cpuid.c, to be reviewed as such.
 */
#pragma once

#include <linux/kvm.h>
#include <stdbool.h>
#include <stdint.h>

#define CPUID_ENTRIES_MAX 256

/* Laid out as struct kvm_cpuid2, whose entries have no fixed number. */
struct cpuid {
	uint32_t n;
	uint32_t padding;
	struct kvm_cpuid_entry2 entries[CPUID_ENTRIES_MAX];
};

/* Denies guests the MSRs of what the policy takes away: reads and writes fault. 0 or -errno. */
int cpuid_deny_msrs(int vm_fd);
/* One of those. */
bool cpuid_is_denied_msr(uint32_t index);
/* 0 or -errno of KVM_GET_SUPPORTED_CPUID. */
int cpuid_read_supported(int kvm_fd, struct cpuid *ret);
/* Applies policy and topology for vCPU `index` of `n_vcpus`. */
void cpuid_apply(struct cpuid *cpuid, unsigned int index, unsigned int n_vcpus, bool has_tsc_deadline);
