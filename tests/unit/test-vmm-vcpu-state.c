/* SPDX-License-Identifier: Apache-2.0
 *
 * How the TSCs of vCPUs are read and put back, against a KVM of our own behind ioctl(): each call takes time, so values that
 * are read or written one after the other lie apart.
 */
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

#include "vcpu-state.h"
#include "vcpu.h"

#include "lib/suite.h"

#define FD 1000 /* of the first vCPU */
#define CALL_TAKES 1000u
#define MSR_TSC 0x10u
#define MSR_DEADLINE 0x6e0u

/* As struct kvm_msrs, whose entries have no fixed number. */
struct msrs {
	uint32_t n, padding;
	struct kvm_msr_entry entries[2];
};

static struct {
	uint64_t host_tsc, offsets[2], deadline_offsets[2]; /* the offset at which the deadline was armed */
	unsigned int offsets_set;
	bool is_unstable, has_no_offset;
} kvm;

static int move_msrs(unsigned int i, struct msrs *msrs, bool is_write)
{
	for (uint32_t at = 0; at < msrs->n; at++) {
		struct kvm_msr_entry *entry = &msrs->entries[at];

		if (is_write && entry->index == MSR_TSC)
			kvm.offsets[i] = entry->data - kvm.host_tsc;
		else if (is_write && entry->index == MSR_DEADLINE)
			kvm.deadline_offsets[i] = kvm.offsets[i];
		else if (entry->index == MSR_TSC)
			entry->data = kvm.host_tsc + kvm.offsets[i];
		else
			entry->data = 0;
	}
	return (int) msrs->n;
}

static int move_offset(unsigned int i, const struct kvm_device_attr *attr, bool is_write)
{
	uint64_t *value = (uint64_t *) (uintptr_t) attr->addr;

	if (kvm.has_no_offset || attr->group != KVM_VCPU_TSC_CTRL || attr->attr != KVM_VCPU_TSC_OFFSET) {
		errno = ENXIO;
		return -1;
	}
	if (kvm.is_unstable) /* the TSC goes on where it was when the vCPU was put away */
		kvm.offsets[i] -= CALL_TAKES;
	kvm.offsets_set += is_write;
	if (is_write)
		kvm.offsets[i] = *value;
	else
		*value = kvm.offsets[i];
	return 0;
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
	const unsigned int i = (unsigned int) (fd - FD);
	void *data;
	va_list args;

	va_start(args, request);
	data = va_arg(args, void *);
	va_end(args);
	ck_assert_uint_lt(i, 2);
	kvm.host_tsc += CALL_TAKES;
	switch (request) {
	case KVM_GET_MSRS:
	case KVM_SET_MSRS:
		return move_msrs(i, data, request == KVM_SET_MSRS);
	case KVM_GET_DEVICE_ATTR:
	case KVM_SET_DEVICE_ATTR:
		return move_offset(i, data, request == KVM_SET_DEVICE_ATTR);
	default:
		return 0;
	}
}

static void save(struct vcpu_state states[2])
{
	const struct msr_list list = { .n = 2, .indices = { MSR_DEADLINE, MSR_TSC } };
	struct err err = ERR_NULL;

	for (unsigned int i = 0; i < 2; i++) {
		const struct vcpu vcpu = { .fd = FD + (int) i, .index = i };

		ck_assert_int_eq(vcpu_save(&vcpu, &list, &states[i], &err), 0);
	}
}

static void load(const struct vcpu_state states[2])
{
	struct vcpu vcpus[2];
	struct err err = ERR_NULL;

	memset(vcpus, 0, sizeof(vcpus));
	for (unsigned int i = 0; i < 2; i++) {
		vcpus[i].fd = FD + (int) i;
		vcpus[i].index = i;
		ck_assert_int_eq(vcpu_load(&vcpus[i], &states[i], &vcpus[0], i > 0 ? &states[0] : NULL, &err), 0);
	}
}

static void begin(uint64_t first, uint64_t second)
{
	memset(&kvm, 0, sizeof(kvm));
	kvm.host_tsc = 1u << 20;
	kvm.offsets[0] = first;
	kvm.offsets[1] = second;
}

/* Equal ones stay equal; what a guest has made different, by writing the register, stays so; a deadline counts by the TSC
 * that its vCPU keeps. */
START_TEST(tscs_lie_as_far_apart_as_they_did)
{
	const uint64_t ahead[] = { 0, 12345, UINT64_MAX - 12344 };
	struct vcpu_state states[2];

	begin(500, 500 + ahead[_i]);
	save(states);
	kvm.host_tsc = 77; /* another host */
	load(states);
	ck_assert_uint_eq(kvm.offsets[1] - kvm.offsets[0], ahead[_i]);
	ck_assert_uint_eq(kvm.offsets_set, 1);
	for (unsigned int i = 0; i < 2; i++)
		ck_assert_uint_eq(kvm.deadline_offsets[i], kvm.offsets[i]);
}
END_TEST

/* KVM moves the offsets by itself there, or has none to set. */
START_TEST(no_offset_is_set_where_it_means_nothing)
{
	struct vcpu_state states[2];

	begin(500, 500);
	if (_i == 0)
		kvm.is_unstable = true;
	else
		kvm.has_no_offset = true;
	save(states);
	ck_assert(!states[0].has_tsc_offset && !states[1].has_tsc_offset);
	load(states);
	ck_assert_uint_eq(kvm.offsets_set, 0);

	begin(500, 500); /* made on a host with a stable TSC, restored on one without */
	save(states);
	ck_assert(states[0].has_tsc_offset && states[1].has_tsc_offset);
	kvm.is_unstable = _i == 0;
	kvm.has_no_offset = _i == 1;
	load(states);
	ck_assert_uint_eq(kvm.offsets_set, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("vmm-vcpu-state");
	TCase *tsc = tcase_create("tsc");

	tcase_add_loop_test(tsc, tscs_lie_as_far_apart_as_they_did, 0, 3);
	tcase_add_loop_test(tsc, no_offset_is_set_where_it_means_nothing, 0, 2);
	suite_add_tcase(suite, tsc);
	return suite_run(suite);
}
