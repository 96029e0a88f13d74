/* SPDX-License-Identifier: Apache-2.0
 *
 * What KVM knows of a vCPU that stands still, and the order in which it is read and put back: MSRs behind CPUID, the TSC
 * before the deadline that counts by it and the local APIC (when it is put back) before both, pending events last.
 *
 * vCPUs are read one after the other, so the values of their TSCs lie apart by the time that took. KVM takes those that are
 * written within a second for equal, whatever the guest had made of them. Their offsets against the host's TSC say how far
 * they lay apart.
 */
#pragma once

#include <linux/kvm.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define VCPU_MSRS_MAX 256

struct vcpu;

/* Which MSRs this KVM saves. */
struct msr_list {
	uint32_t n;
	uint32_t indices[VCPU_MSRS_MAX];
};

struct vcpu_state {
	struct kvm_mp_state mp_state;
	struct kvm_regs regs;
	struct kvm_sregs sregs;
	struct kvm_xcrs xcrs;
	uint32_t xsave[1024];            /* struct kvm_xsave without its tail: the policy leaves nothing that is larger */
	struct kvm_debugregs debugregs;
	struct kvm_lapic_state lapic;
	struct kvm_vcpu_events events;
	uint32_t n_msrs;
	struct kvm_msr_entry msrs[VCPU_MSRS_MAX];
	bool has_tsc_offset;             /* from KVM 5.16 on, and where the host's TSC is stable */
	uint64_t tsc_offset;             /* guest TSC - host TSC, in the guest's cycles, modulo 2^64 */
};

/* Of /dev/kvm. 0 or -errno. */
int msr_list_read(int kvm_fd, struct msr_list *ret);
/* The vCPU does not run. SNAPSHOT_FAILED names the ioctl. */
int vcpu_save(const struct vcpu *vcpu, const struct msr_list *msrs, struct vcpu_state *ret, struct err *reterr);
/* A timer that ran out while the state was read may be in none of what was read: a deadline of 0 becomes the TSC's own value,
 * so that a timer in that mode comes once at once, which kernels bear, rather than never. */
void vcpu_keep_deadline(struct vcpu_state *state);
/* Into a vCPU that has its CPUID and has not run. Where `first` is not NULL (the state of another vCPU that was loaded into
 * `first_vcpu`), the TSC is as far from that one's as it was. RESTORE_FAILED names the ioctl, or the MSR that KVM refused. */
int vcpu_load(const struct vcpu *vcpu, const struct vcpu_state *state, const struct vcpu *first_vcpu,
	const struct vcpu_state *first, struct err *reterr);
