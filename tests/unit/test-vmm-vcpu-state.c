/* SPDX-License-Identifier: Apache-2.0
 *
 * How the TSCs of vCPUs are read and put back, against a KVM of our own behind ioctl(): each call takes time, so values that
 * are read or written one after the other lie apart. And KVM's counters, found by their names in a file like KVM's.
 */
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "kvm-stats.h"
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
	if (request == KVM_GET_STATS_FD)
		return dup(fd); /* whose counters: the test's */
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

/* ---- KVM's counters ---- */

#define NAME_SIZE 48u
#define DESC_SIZE (sizeof(struct kvm_stats_desc) + NAME_SIZE)

/* A file with these counters: row i has the value 1000 + i, and an offset in another order than the rows. */
static int counters(const char *const *rows, uint32_t n)
{
	struct kvm_stats_header header = { .name_size = NAME_SIZE, .num_desc = n, .id_offset = sizeof(header),
		.desc_offset = 256, .data_offset = 8192 };
	int fd = memfd_create("counters", MFD_CLOEXEC);

	ck_assert_int_eq(fd_pwrite_all(fd, &header, sizeof(header), 0), 0);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t row[DESC_SIZE] = { 0 };
		uint32_t offset = (n - 1 - i) * 8;
		uint64_t value = 1000 + i;

		memcpy(row + offsetof(struct kvm_stats_desc, offset), &offset, sizeof(offset));
		memcpy(row + offsetof(struct kvm_stats_desc, name), rows[i], strlen(rows[i]));
		ck_assert_int_eq(fd_pwrite_all(fd, row, sizeof(row), (off_t) (256 + i * sizeof(row))), 0);
		ck_assert_int_eq(fd_pwrite_all(fd, &value, sizeof(value), (off_t) (8192 + offset)), 0);
	}
	return fd;
}

START_TEST(counters_are_found_by_their_names)
{
	static const char *const vm[] = { "remote_tlb_flush", "pages_1g", "pages_4k", "pages_2m" };
	static const char *const vcpu[] = { "halt_poll_success_ns", "exits", "io_exits", "mmio_exits", "pf_fixed", "signal_exits",
		"irq_exits", "halt_exits", "exits_of_another" };
	uint64_t sums[KVM_STAT_MAX_] = { [KVM_STAT_EXITS] = 5 };
	struct kvm_stats of_vm, of_vcpu;
	int fds[] = { counters(vm, 4), counters(vcpu, 9) };

	kvm_stats_open(&of_vm, fds[0]);
	kvm_stats_open(&of_vcpu, fds[1]);
	ck_assert_int_ge(of_vm.fd, 0);
	kvm_stats_add(&of_vm, sums);
	for (int i = 0; i < 2; i++) /* two vCPUs */
		kvm_stats_add(&of_vcpu, sums);
	ck_assert_uint_eq(sums[KVM_STAT_PAGES_1G], 1001);
	ck_assert_uint_eq(sums[KVM_STAT_PAGES_4K], 1002);
	ck_assert_uint_eq(sums[KVM_STAT_PAGES_2M], 1003);
	ck_assert_uint_eq(sums[KVM_STAT_EXITS], 5 + 2 * 1001);
	ck_assert_uint_eq(sums[KVM_STAT_IO_EXITS], 2 * 1002);
	ck_assert_uint_eq(sums[KVM_STAT_MMIO_EXITS], 2 * 1003);
	ck_assert_uint_eq(sums[KVM_STAT_PF_FIXED], 2 * 1004);
	ck_assert_uint_eq(sums[KVM_STAT_SIGNAL_EXITS], 2 * 1005);
	ck_assert_uint_eq(sums[KVM_STAT_IRQ_EXITS], 2 * 1006);
	ck_assert_uint_eq(sums[KVM_STAT_HALT_EXITS], 2 * 1007);
	kvm_stats_close(&of_vm);
	kvm_stats_close(&of_vcpu);
	/* one that is no such file counts nothing */
	ck_assert_int_eq(ftruncate(fds[0], 100), 0);
	kvm_stats_open(&of_vm, fds[0]);
	ck_assert_int_eq(of_vm.fd, -1);
	kvm_stats_add(&of_vm, sums);
	ck_assert_uint_eq(sums[KVM_STAT_PAGES_1G], 1001);
	for (int i = 0; i < 2; i++)
		(void) fd_close(fds[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("vmm-vcpu-state");
	TCase *tsc = tcase_create("tsc");

	tcase_add_loop_test(tsc, tscs_lie_as_far_apart_as_they_did, 0, 3);
	tcase_add_loop_test(tsc, no_offset_is_set_where_it_means_nothing, 0, 2);
	tcase_add_test(tsc, counters_are_found_by_their_names);
	suite_add_tcase(suite, tsc);
	return suite_run(suite);
}
