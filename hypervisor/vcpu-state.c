/* SPDX-License-Identifier: Apache-2.0
 *
 * See vcpu-state.h.
 */
#include "vcpu-state.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/util.h"
#include "cpuid.h"
#include "vcpu.h"

#define APIC_LVT_TIMER 0x320
#define APIC_TIMER_MODE (3u << 17)
#define APIC_TIMER_DEADLINE (2u << 17)
#define MSR_IA32_TSC 0x10u
#define MSR_IA32_TSC_DEADLINE 0x6e0u

/* Laid out as struct kvm_msr_list and struct kvm_msrs, whose entries have no fixed number. */
struct index_list {
	uint32_t n;
	uint32_t indices[VCPU_MSRS_MAX];
};
struct entries {
	uint32_t n, padding;
	struct kvm_msr_entry entries[VCPU_MSRS_MAX];
};

/* Memory types: bases and masks, fixed ranges, the default. */
static const struct {
	uint32_t first, n;
} mtrrs[] = { { 0x200, 16 }, { 0x250, 1 }, { 0x258, 2 }, { 0x268, 8 }, { 0x2ff, 1 } };

static bool is_mtrr(uint32_t index)
{
	for (size_t i = 0; i < ARRAY_LEN(mtrrs); i++)
		if (index - mtrrs[i].first < mtrrs[i].n)
			return true;
	return false;
}

int msr_list_read(int kvm_fd, struct msr_list *ret)
{
	struct index_list all = { .n = VCPU_MSRS_MAX };

	ret->n = 0;
	if (ioctl(kvm_fd, KVM_GET_MSR_INDEX_LIST, &all) < 0)
		return -errno; /* E2BIG: more than there is room for */
	for (uint32_t i = 0; i < all.n; i++)
		if (!cpuid_is_denied_msr(all.indices[i]) && !is_mtrr(all.indices[i]))
			ret->indices[ret->n++] = all.indices[i];
	for (size_t i = 0; i < ARRAY_LEN(mtrrs); i++) /* KVM keeps them and does not list them */
		for (uint32_t j = 0; j < mtrrs[i].n; j++) {
			if (ret->n == VCPU_MSRS_MAX)
				return -E2BIG;
			ret->indices[ret->n++] = mtrrs[i].first + j;
		}
	return 0;
}

/* What is both in the list and in this CPU: KVM stops at the first that it cannot read, which the guest has not either. */
static int save_msrs(const struct vcpu *vcpu, const struct msr_list *list, struct vcpu_state *ret)
{
	struct entries read;

	ret->n_msrs = 0;
	for (uint32_t at = 0; at < list->n;) {
		int n;

		read.n = 0;
		for (uint32_t i = at; i < list->n; i++)
			read.entries[read.n++] = (struct kvm_msr_entry) { .index = list->indices[i] };
		n = ioctl(vcpu->fd, KVM_GET_MSRS, &read);
		if (n < 0)
			return -errno;
		memcpy(ret->msrs + ret->n_msrs, read.entries, (size_t) n * sizeof(read.entries[0]));
		ret->n_msrs += (uint32_t) n;
		at += (uint32_t) n + 1;
	}
	return 0;
}

/* An ioctl that moves one struct, in either direction. */
struct part {
	unsigned long request;
	const char *name;
	void *data;
};

static int move_parts(const struct vcpu *vcpu, const struct part *parts, size_t n, enum fail_code code, struct err *reterr)
{
	for (size_t i = 0; i < n; i++)
		if (ioctl(vcpu->fd, parts[i].request, parts[i].data) < 0)
			return err_set(reterr, code, errno, "%s of vCPU %u", parts[i].name, vcpu->index);
	return 0;
}

#define PART(request, field) { request, #request, &state->field }

static struct kvm_msr_entry *find_msr(struct vcpu_state *state, uint32_t index)
{
	for (uint32_t i = 0; i < state->n_msrs; i++)
		if (state->msrs[i].index == index)
			return &state->msrs[i];
	return NULL;
}

void vcpu_keep_deadline(struct vcpu_state *state)
{
	struct kvm_msr_entry *deadline = find_msr(state, MSR_IA32_TSC_DEADLINE), *tsc = find_msr(state, MSR_IA32_TSC);
	uint32_t timer;

	memcpy(&timer, state->lapic.regs + APIC_LVT_TIMER, sizeof(timer));
	if (deadline && tsc && deadline->data == 0 && (timer & APIC_TIMER_MODE) == APIC_TIMER_DEADLINE)
		deadline->data = tsc->data;
}

/* -errno: ENXIO or ENOTTY where KVM has no such attribute. */
static int move_tsc_offset(const struct vcpu *vcpu, unsigned long request, uint64_t *offset)
{
	struct kvm_device_attr attr = { .group = KVM_VCPU_TSC_CTRL, .attr = KVM_VCPU_TSC_OFFSET,
		.addr = (uintptr_t) offset };

	return ioctl(vcpu->fd, request, &attr) < 0 ? -errno : 0;
}

/* False as well where the host's TSC is unstable: there KVM makes a new offset whenever it loads a vCPU, so two readings
 * differ, and has the TSC catch up from what was written to the MSR. An offset of ours would put it behind. */
static bool read_tsc_offset(const struct vcpu *vcpu, uint64_t *ret)
{
	uint64_t again;

	return move_tsc_offset(vcpu, KVM_GET_DEVICE_ATTR, ret) == 0 &&
		move_tsc_offset(vcpu, KVM_GET_DEVICE_ATTR, &again) == 0 && *ret == again;
}

int vcpu_save(const struct vcpu *vcpu, const struct msr_list *msrs, struct vcpu_state *state, struct err *reterr)
{
	/* the first decides what is pending, and may change it */
	const struct part parts[] = { PART(KVM_GET_MP_STATE, mp_state), PART(KVM_GET_REGS, regs), PART(KVM_GET_SREGS, sregs),
		PART(KVM_GET_XCRS, xcrs), PART(KVM_GET_XSAVE, xsave), PART(KVM_GET_DEBUGREGS, debugregs) };
	/* behind the MSRs: KVM may turn a deadline that has passed into an interrupt at any of these calls */
	const struct part last[] = { PART(KVM_GET_LAPIC, lapic), PART(KVM_GET_VCPU_EVENTS, events) };
	int r;

	memset(state, 0, sizeof(*state));
	r = move_parts(vcpu, parts, ARRAY_LEN(parts), FAIL_SNAPSHOT_FAILED, reterr);
	if (r < 0)
		return r;
	r = save_msrs(vcpu, msrs, state);
	if (r < 0)
		return err_set(reterr, FAIL_SNAPSHOT_FAILED, -r, "KVM_GET_MSRS of vCPU %u", vcpu->index);
	r = move_parts(vcpu, last, ARRAY_LEN(last), FAIL_SNAPSHOT_FAILED, reterr);
	if (r < 0)
		return r;
	state->has_tsc_offset = read_tsc_offset(vcpu, &state->tsc_offset);
	vcpu_keep_deadline(state);
	return 0;
}

static int load_msrs(const struct vcpu *vcpu, const struct vcpu_state *state, bool is_deadline, struct err *reterr)
{
	struct entries write = { .n = 0 };
	int n;

	for (int pass = 0; pass < 2; pass++) /* the TSC is the first of them */
		for (uint32_t i = 0; i < state->n_msrs; i++)
			if ((state->msrs[i].index == MSR_IA32_TSC) == (pass == 0) &&
				(state->msrs[i].index == MSR_IA32_TSC_DEADLINE) == is_deadline)
				write.entries[write.n++] = state->msrs[i];
	n = ioctl(vcpu->fd, KVM_SET_MSRS, &write);
	if (n < 0)
		return err_set(reterr, FAIL_RESTORE_FAILED, errno, "KVM_SET_MSRS of vCPU %u", vcpu->index);
	if ((uint32_t) n < write.n)
		return err_set(reterr, FAIL_RESTORE_FAILED, EINVAL, "KVM refuses MSR 0x%x of vCPU %u",
			write.entries[n].index, vcpu->index);
	return 0;
}

static int load_tsc_offset(const struct vcpu *vcpu, const struct vcpu_state *state, const struct vcpu *first_vcpu,
	const struct vcpu_state *first, struct err *reterr)
{
	uint64_t offset;
	int r;

	if (!state->has_tsc_offset || !first->has_tsc_offset || !read_tsc_offset(first_vcpu, &offset))
		return 0; /* what KVM made of the MSRs stays */
	offset += state->tsc_offset - first->tsc_offset;
	r = move_tsc_offset(vcpu, KVM_SET_DEVICE_ATTR, &offset);
	return r < 0 ? err_set(reterr, FAIL_RESTORE_FAILED, -r, "the TSC offset of vCPU %u", vcpu->index) : 0;
}

int vcpu_load(const struct vcpu *vcpu, const struct vcpu_state *given, const struct vcpu *first_vcpu,
	const struct vcpu_state *first, struct err *reterr)
{
	struct vcpu_state copy = *given, *state = &copy; /* an ioctl's argument is not const */
	const struct part parts[] = { PART(KVM_SET_MP_STATE, mp_state), PART(KVM_SET_REGS, regs), PART(KVM_SET_SREGS, sregs),
		PART(KVM_SET_XCRS, xcrs), PART(KVM_SET_XSAVE, xsave), PART(KVM_SET_DEBUGREGS, debugregs),
		PART(KVM_SET_LAPIC, lapic) };
	const struct part last[] = { PART(KVM_SET_VCPU_EVENTS, events) };
	int r = move_parts(vcpu, parts, ARRAY_LEN(parts), FAIL_RESTORE_FAILED, reterr);

	if (r == 0)
		r = load_msrs(vcpu, state, false, reterr);
	if (r == 0 && first)
		r = load_tsc_offset(vcpu, state, first_vcpu, first, reterr);
	if (r == 0)
		r = load_msrs(vcpu, state, true, reterr);
	return r < 0 ? r : move_parts(vcpu, last, ARRAY_LEN(last), FAIL_RESTORE_FAILED, reterr);
}
