/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots without KVM: the state file's bytes, however damaged; the memory file; the state of a device.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_ids.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/fd.h"
#include "lib/suite.h"
#include "memory.h"
#include "snapshot.h"
#include "vcpu-state.h"

#define PAGE 4096u

static unsigned int seed;

static void fill(void *at, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((uint8_t *) at)[i] = (uint8_t) rand_r(&seed);
}

/* ---- the state file ---- */

/* A VM of which every byte is something. */
static struct vm_state *make_state(unsigned int n_vcpus)
{
	static const uint32_t ids[] = { VIRTIO_ID_BLOCK, VIRTIO_ID_VSOCK, VIRTIO_ID_NET, VIRTIO_ID_BALLOON };
	struct vm_state *state = calloc(1, sizeof(*state));

	ck_assert_ptr_nonnull(state);
	state->memory_mib = 256;
	state->clock_nsec = 1234567890123;
	state->tsc_khz = 2500000;
	state->cpuid.n = 40;
	fill(state->cpuid.entries, 40 * sizeof(state->cpuid.entries[0]));
	state->n_vcpus = n_vcpus;
	state->vcpus = calloc(n_vcpus, sizeof(state->vcpus[0]));
	ck_assert_ptr_nonnull(state->vcpus);
	for (unsigned int i = 0; i < n_vcpus; i++) {
		struct vcpu_state *vcpu = &state->vcpus[i];

		fill(&vcpu->mp_state, sizeof(vcpu->mp_state)); /* padding is not kept */
		fill(&vcpu->regs, offsetof(struct vcpu_state, n_msrs) - offsetof(struct vcpu_state, regs));
		vcpu->n_msrs = 30 + i;
		fill(vcpu->msrs, vcpu->n_msrs * sizeof(vcpu->msrs[0]));
		vcpu->has_tsc_offset = i == 0;
		vcpu->tsc_offset = i == 0 ? UINT64_MAX - 5 : 0;
	}
	for (uint32_t i = 0; i < VM_CHIPS; i++) {
		fill(&state->chips[i], sizeof(state->chips[i]));
		state->chips[i].chip_id = i;
	}
	state->serial = (struct serial_state) { .ier = 2, .lcr = 3, .mcr = 8, .scr = 255, .dll = 1, .fifo = true,
		.thr_pending = true };
	state->n_devices = ARRAY_LEN(ids);
	for (unsigned int i = 0; i < state->n_devices; i++) {
		struct virtio_state *virtio = &state->devices[i];

		virtio->device = (struct device_state) { .id = ids[i], .status = 15, .driver_features = UINT64_C(1) << 32 | i,
			.queue_index = 2, .interrupt_status = 1, .config_generation = 3, .n_queues = 3 };
		for (int q = 0; q < 3; q++)
			virtio->device.queues[q] = (struct queue_state) { .size = 256, .desc = 0x1000, .avail = 0x2000,
				.used = 0x3000, .is_ready = true, .is_broken = q == 1, .next_avail = 65535, .next_used = 7,
				.signalled_used = 8 };
	}
	state->devices[0].sectors = 2048;
	state->devices[0].is_read_only = true;
	state->devices[1].guest_cid = 3;
	state->devices[1].next_host_port = 1u << 30;
	fill(state->devices[2].mac, NET_MAC_SIZE);
	state->devices[3].balloon = (struct balloon_state) { .target = 5, .claimed = 4, .has_stats_buffer = true,
		.stats_buffer = 9, .held = calloc(1, 8192), .held_size = 8192 };
	fill(state->devices[3].balloon.held, 8192);
	state->reached_userspace = true;
	return state;
}

static uint8_t *encode(const struct vm_state *state, size_t *ret_size)
{
	struct err err = ERR_NULL;
	uint8_t *data = NULL;

	ck_assert_int_eq(snapshot_encode(state, &data, ret_size, &err), 0);
	return data;
}

static void check_equal(const struct vm_state *a, const struct vm_state *b)
{
	ck_assert_uint_eq(a->memory_mib, b->memory_mib);
	ck_assert_uint_eq(a->clock_nsec, b->clock_nsec);
	ck_assert_uint_eq(a->tsc_khz, b->tsc_khz);
	ck_assert_uint_eq(a->cpuid.n, b->cpuid.n);
	ck_assert_mem_eq(a->cpuid.entries, b->cpuid.entries, a->cpuid.n * sizeof(a->cpuid.entries[0]));
	ck_assert_uint_eq(a->n_vcpus, b->n_vcpus);
	ck_assert_mem_eq(a->vcpus, b->vcpus, a->n_vcpus * sizeof(a->vcpus[0]));
	ck_assert_mem_eq(a->chips, b->chips, sizeof(a->chips));
	ck_assert_mem_eq(&a->serial, &b->serial, sizeof(a->serial));
	ck_assert_uint_eq(a->n_devices, b->n_devices);
	for (unsigned int i = 0; i < a->n_devices; i++) {
		struct virtio_state left = a->devices[i], right = b->devices[i];

		ck_assert_uint_eq(left.balloon.held_size, right.balloon.held_size);
		if (left.balloon.held_size > 0)
			ck_assert_mem_eq(left.balloon.held, right.balloon.held, left.balloon.held_size);
		left.balloon.held = right.balloon.held = NULL;
		ck_assert_mem_eq(&left, &right, sizeof(left));
	}
	ck_assert(a->reached_userspace == b->reached_userspace && a->panicked == b->panicked);
}

START_TEST(what_is_written_is_what_is_read)
{
	struct vm_state *state = make_state((unsigned int) _i), *read = NULL;
	struct err err = ERR_NULL;
	size_t size;
	uint8_t *data = encode(state, &size);

	ck_assert_msg(snapshot_decode(data, size, &read, &err) == 0, "%s", err.msg);
	check_equal(state, read);
	free(data);
	vm_state_free(read);
	vm_state_free(state);
}
END_TEST

static void expect_refusal(const uint8_t *data, size_t size, enum fail_code code, const char *what, size_t at)
{
	struct vm_state *read = NULL;
	struct err err = ERR_NULL;

	ck_assert_msg(snapshot_decode(data, size, &read, &err) < 0, "%s at %zu was accepted", what, at);
	ck_assert_ptr_null(read);
	ck_assert_msg(err.code == code, "%s at %zu: %s", what, at, err.msg);
}

START_TEST(every_cut_and_every_flipped_bit_is_refused)
{
	struct vm_state *state = make_state(1);
	size_t size;
	uint8_t *data = encode(state, &size);

	for (size_t n = 0; n < size; n += n < 64 ? 1 : 97)
		expect_refusal(data, n, FAIL_SNAPSHOT_INVALID, "an end", n);
	for (size_t at = 0; at < size; at++) {
		uint8_t bit = (uint8_t) (1u << rand_r(&seed) % 8);

		data[at] ^= bit;
		expect_refusal(data, size, at >= 8 && at < 12 ? FAIL_SNAPSHOT_VERSION : FAIL_SNAPSHOT_INVALID, "a flipped bit", at);
		data[at] ^= bit;
	}
	free(data);
	vm_state_free(state);
}
END_TEST

/* As somebody would who can compute a sum: no harm is done, whatever it means. */
START_TEST(nonsense_with_its_sum_does_no_harm)
{
	struct vm_state *state = make_state(2);
	size_t size, n_read = 0;
	uint8_t *data = encode(state, &size), *copy = malloc(size);

	ck_assert_ptr_nonnull(copy);
	for (int round = 0; round < 3000; round++) {
		struct vm_state *read = NULL;
		struct err err = ERR_NULL;
		uint32_t sum;

		memcpy(copy, data, size);
		for (int i = rand_r(&seed) % 4; i >= 0; i--)
			copy[SNAPSHOT_HEADER + (size_t) rand_r(&seed) % (i == 0 ? 300 : size - SNAPSHOT_HEADER)] = (uint8_t) rand_r(&seed);
		sum = (uint32_t) crc32_z(0, copy + SNAPSHOT_HEADER, size - SNAPSHOT_HEADER);
		memcpy(copy + 16, &sum, sizeof(sum));
		if (snapshot_decode(copy, size, &read, &err) == 0) {
			n_read++;
			vm_state_free(read);
		}
	}
	ck_assert_uint_gt(n_read, 0);
	ck_assert_uint_lt(n_read, 3000);
	free(copy);
	free(data);
	vm_state_free(state);
}
END_TEST

/* Another format is refused, another version of croft with this format is not: an upgrade does not end what sleeps. */
START_TEST(another_format_is_named)
{
	struct vm_state *state = make_state(1), *read = NULL;
	struct err err = ERR_NULL;
	size_t size;
	uint8_t *data = encode(state, &size);
	uint32_t sum;

	ck_assert_mem_eq(data + SNAPSHOT_HEADER + 2, CROFT_VERSION, strlen(CROFT_VERSION));
	data[SNAPSHOT_HEADER + 2] = '9';
	sum = (uint32_t) crc32_z(0, data + SNAPSHOT_HEADER, size - SNAPSHOT_HEADER);
	memcpy(data + 16, &sum, sizeof(sum));
	ck_assert_msg(snapshot_decode(data, size, &read, &err) == 0, "%s", err.msg);
	check_equal(state, read);
	vm_state_free(TAKE(read));
	data[8] = 99;
	ck_assert_int_lt(snapshot_decode(data, size, &read, &err), 0);
	ck_assert_int_eq(err.code, FAIL_SNAPSHOT_VERSION);
	ck_assert_ptr_nonnull(strstr(err.msg, "99"));
	free(data);
	vm_state_free(state);
}
END_TEST

/* A file that says little at great length costs no more than a few times its size. */
START_TEST(a_file_of_empty_fields_is_refused_before_it_costs)
{
	const size_t size = SNAPSHOT_HEADER + (4u << 20);
	struct vm_state *state = make_state(1), *read = NULL;
	struct rusage before, after;
	struct err err = ERR_NULL;
	size_t real;
	uint8_t *data = encode(state, &real), *bytes = malloc(size), *at = bytes + SNAPSHOT_HEADER;
	uint32_t body = (uint32_t) (size - SNAPSHOT_HEADER), sum;

	ck_assert_ptr_nonnull(bytes);
	memcpy(bytes, data, SNAPSHOT_HEADER);
	for (; at < bytes + size; at += 2)
		memcpy(at, "\x4a", 2); /* field 9, no bytes */
	memcpy(bytes + 12, &body, sizeof(body));
	sum = (uint32_t) crc32_z(0, bytes + SNAPSHOT_HEADER, body);
	memcpy(bytes + 16, &sum, sizeof(sum));
	ck_assert_int_eq(getrusage(RUSAGE_SELF, &before), 0);
	ck_assert_int_lt(snapshot_decode(bytes, size, &read, &err), 0);
	ck_assert_int_eq(getrusage(RUSAGE_SELF, &after), 0);
	ck_assert_int_lt((int) (after.ru_maxrss - before.ru_maxrss), 100 * 1024); /* KiB; without a bound some 250 MiB */
	ck_assert_int_eq(err.code, FAIL_SNAPSHOT_INVALID);
	free(bytes);
	free(data);
	vm_state_free(state);
}
END_TEST

/* A timer that ran out while it was read comes once more rather than never. */
START_TEST(a_deadline_that_is_in_nothing_is_kept)
{
	struct vcpu_state state = { .n_msrs = 2, .msrs = { { .index = 0x10, .data = 77 }, { .index = 0x6e0, .data = 0 } } };
	const uint32_t deadline_mode = 2u << 17, periodic = 1u << 17;

	memcpy(state.lapic.regs + 0x320, &periodic, 4);
	vcpu_keep_deadline(&state);
	ck_assert_uint_eq(state.msrs[1].data, 0);
	memcpy(state.lapic.regs + 0x320, &deadline_mode, 4);
	vcpu_keep_deadline(&state);
	ck_assert_uint_eq(state.msrs[1].data, 77);
	state.msrs[1].data = 99; /* one that has not run out */
	vcpu_keep_deadline(&state);
	ck_assert_uint_eq(state.msrs[1].data, 99);
}
END_TEST

/* ---- memory ---- */

/* In pieces that are no divisor of anything. */
static int copy_memory(const struct memory *memory, const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct pages content;
	uint64_t at = 0;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t) memory->size), 0);
	ck_assert_int_eq(memory_content(memory, &content), 0);
	while (at < memory->size)
		ck_assert_int_eq(memory_copy_out(memory, &content, fd, &at, 3 * PAGE), 0);
	pages_deinit(&content);
	return fd;
}

static uint64_t blocks(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return (uint64_t) st.st_blocks * 512;
}

/* On both sides of the gap, at the ends of regions, next to holes. */
static const uint64_t places[] = { 0, PAGE, 3 * PAGE, MEMORY_GAP_START - PAGE, MEMORY_GAP_END, MEMORY_GAP_END + 5 * PAGE,
	MEMORY_GAP_END + (UINT64_C(64) << 20) - PAGE };

START_TEST(memory_goes_out_and_comes_back)
{
	struct memory memory = MEMORY_NULL, restored = MEMORY_NULL;
	struct err err = ERR_NULL;
	char path[] = "/tmp/croft-test-memory.XXXXXX", again[64];
	uint8_t pages[ARRAY_LEN(places)][PAGE];
	uint64_t before;
	int fd, second;

	(void) close(mkstemp(path));
	(void) snprintf(again, sizeof(again), "%s.2", path);
	ck_assert_int_eq(memory_init(&memory, 3 * 1024 + 64, &err), 0);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		fill(pages[i], PAGE);
		memcpy(guest_map(&memory, places[i], PAGE), pages[i], PAGE);
	}
	memset(guest_map(&memory, 100 * PAGE, PAGE), 0, PAGE); /* there, and zero: a hole of the file */
	before = blocks(memory.fd);
	fd = copy_memory(&memory, path);
	ck_assert_uint_le(blocks(fd), (ARRAY_LEN(places) + 4) * PAGE);
	ck_assert_uint_eq(blocks(memory.fd), before); /* to look at a hole would fill it */

	ck_assert_int_eq(memory_restore(&restored, 3 * 1024 + 64, fcntl(fd, F_DUPFD_CLOEXEC, 0), &err), 0);
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		ck_assert_mem_eq(guest_map(&restored, places[i], PAGE), pages[i], PAGE);
	/* what it writes is its own, and goes out again with what it never touched */
	memset(guest_map(&restored, places[1], PAGE), 0xaa, PAGE);
	memset(guest_map(&restored, 50 * PAGE, PAGE), 0xbb, PAGE);
	second = copy_memory(&restored, again);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		uint8_t page[PAGE], wanted[PAGE];
		uint64_t offset;

		ck_assert(memory_offset(&memory, places[i], PAGE, &offset));
		ck_assert_int_eq(pread(fd, page, PAGE, (off_t) offset), PAGE);
		ck_assert_mem_eq(page, pages[i], PAGE);
		memcpy(wanted, pages[i], PAGE);
		if (i == 1)
			memset(wanted, 0xaa, PAGE);
		ck_assert_int_eq(pread(second, page, PAGE, (off_t) offset), PAGE);
		ck_assert_mem_eq(page, wanted, PAGE);
	}
	/* given back: as it was when it was restored */
	ck_assert_int_eq(memory_discard(&restored, PAGE, PAGE), 0);
	ck_assert_mem_eq(guest_map(&restored, places[1], PAGE), pages[1], PAGE);
	/* neighbours in the file that the gap separates, too */
	ck_assert(memory_offset(&restored, places[3], PAGE, &before));
	for (size_t i = 3; i <= 4; i++)
		memset(guest_map(&restored, places[i], PAGE), 0xcc, PAGE);
	ck_assert_int_eq(memory_discard(&restored, before, 2 * PAGE), 0);
	for (size_t i = 3; i <= 4; i++)
		ck_assert_mem_eq(guest_map(&restored, places[i], PAGE), pages[i], PAGE);
	memory_deinit(&restored);
	memory_deinit(&memory);
	(void) close(fd);
	(void) close(second);
	(void) unlink(path);
	(void) unlink(again);
}
END_TEST

START_TEST(a_memory_file_of_another_size_is_refused)
{
	struct memory memory = MEMORY_NULL;
	struct err err = ERR_NULL;
	int fd = memfd_create("short", MFD_CLOEXEC), pipes[2];

	ck_assert_int_eq(ftruncate(fd, (64 << 20) - PAGE), 0);
	ck_assert_int_lt(memory_restore(&memory, 64, fd, &err), 0);
	ck_assert_int_eq(err.code, FAIL_SNAPSHOT_INVALID);
	memory_deinit(&memory);
	err = (struct err) ERR_NULL;
	fd = memfd_create("long", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(fd, (64 << 20) + PAGE), 0);
	ck_assert_int_lt(memory_restore(&memory, 64, fd, &err), 0);
	ck_assert_int_eq(err.code, FAIL_SNAPSHOT_INVALID);
	memory_deinit(&memory);
	err = (struct err) ERR_NULL;
	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	ck_assert_int_lt(memory_restore(&memory, 64, pipes[0], &err), 0);
	ck_assert_int_eq(err.code, FAIL_SNAPSHOT_INVALID);
	memory_deinit(&memory);
	(void) close(pipes[1]);
}
END_TEST

START_TEST(a_full_disk_is_an_errno)
{
	struct memory memory = MEMORY_NULL;
	struct err err = ERR_NULL;
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	struct pages content;
	uint64_t at = 0;

	ck_assert_int_eq(memory_init(&memory, 64, &err), 0);
	memset(guest_map(&memory, 0, PAGE), 1, PAGE);
	ck_assert_int_eq(memory_content(&memory, &content), 0);
	ck_assert_int_eq(memory_copy_out(&memory, &content, full, &at, 64 * PAGE), -ENOSPC);
	pages_deinit(&content);
	memory_deinit(&memory);
	(void) close(full);
}
END_TEST

/* ---- a device ---- */

static const struct device_ops no_ops;
static const struct device_config two_queues = { .ops = &no_ops, .id = 99, .features = 6, .n_queues = 2, .queue_size = 8 };

START_TEST(a_device_in_no_possible_state_is_refused)
{
	static const struct device_state good = { .id = 99, .status = 15, .driver_features = FEATURE_VERSION_1 | 2,
		.features_page = 1, .driver_features_page = 1, .queue_index = 1, .interrupt_status = 2, .config_generation = 7,
		.n_queues = 2, .queues = { { .size = 8, .desc = 0x1000, .avail = 0x2000, .used = 0x3000, .is_ready = true,
			.next_avail = 65535, .next_used = 3, .signalled_used = 2 },
			{ .size = 4, .desc = 0x4000, .avail = 0x5000, .used = 0x6000, .is_ready = true, .is_broken = true } } };
	struct device_state bad[] = { good, good, good, good, good, good, good }, back;
	struct memory memory = MEMORY_NULL;
	struct device device;
	struct err err = ERR_NULL;
	uint64_t n;

	bad[0].id = 98;
	bad[1].n_queues = 1;
	bad[2].driver_features |= UINT64_C(1) << 40; /* never offered */
	bad[3].queues[0].size = 3;
	bad[4].queues[0].size = 16;
	bad[5].queues[0].desc = 0x1001;
	bad[6].queues[0].used = UINT64_C(64) << 20; /* behind the end of memory */
	ck_assert_int_eq(memory_init(&memory, 64, &err), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		ck_assert_int_eq(device_init(&device, &memory, &two_queues), 0);
		ck_assert_msg(device_load(&device, &bad[i]) == -EINVAL, "row %zu", i);
		device_deinit(&device);
	}
	ck_assert_int_eq(device_init(&device, &memory, &two_queues), 0);
	ck_assert_int_eq(device_load(&device, &good), 0);
	device_save(&device, &back);
	ck_assert_mem_eq(&back, &good, sizeof(back));
	/* whatever was under way: driver and device both look */
	device_wake(&device);
	ck_assert_int_eq(read(device.irq_fd, &n, sizeof(n)), sizeof(n));
	for (unsigned int i = 0; i < 2; i++)
		ck_assert_int_eq(read(device.notify_fds[i], &n, sizeof(n)), sizeof(n));
	device_save(&device, &back);
	ck_assert_uint_eq(back.interrupt_status, 3);
	device_deinit(&device);
	memory_deinit(&memory);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("vmm-snapshot");
	TCase *state = tcase_create("state"), *memory = tcase_create("memory");

	seed = (unsigned int) getpid();
	(void) printf("seed %u\n", seed);
	tcase_set_timeout(state, 300);
	tcase_set_timeout(memory, 300);
	tcase_add_loop_test(state, what_is_written_is_what_is_read, 1, 4);
	tcase_add_test(state, every_cut_and_every_flipped_bit_is_refused);
	tcase_add_test(state, nonsense_with_its_sum_does_no_harm);
	tcase_add_test(state, another_format_is_named);
	tcase_add_test(state, a_file_of_empty_fields_is_refused_before_it_costs);
	tcase_add_test(state, a_deadline_that_is_in_nothing_is_kept);
	tcase_add_test(memory, memory_goes_out_and_comes_back);
	tcase_add_test(memory, a_memory_file_of_another_size_is_refused);
	tcase_add_test(memory, a_full_disk_is_an_errno);
	tcase_add_test(memory, a_device_in_no_possible_state_is_refused);
	suite_add_tcase(suite, state);
	suite_add_tcase(suite, memory);
	return suite_run(suite);
}
