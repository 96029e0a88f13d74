/* SPDX-License-Identifier: Apache-2.0
 *
 * The balloon: memory really goes back to the host and comes back as zeros; pages that are no RAM, named twice or never
 * inflated do nothing; statistics.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_balloon.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/suite.h"
#include "lib/vmm-driver.h"
#include "virtio/balloon.h"

static struct driver driver;
static struct balloon_device balloon;
static struct loop loop;

#define INFLATE BALLOON_QUEUE_INFLATE
#define DEFLATE BALLOON_QUEUE_DEFLATE
#define STATS BALLOON_QUEUE_STATS
#define F(name) (UINT64_C(1) << VIRTIO_BALLOON_F_##name)
#define LIST_AT (DRIVER_DATA + 0x10000)
#define PAGES (DRIVER_END / BALLOON_PAGE)
#define FIRST 4096u /* pfn from which the tests take pages: 16 MiB */

/* In the place of libc's, which is the same and does not count. */
static unsigned int n_holes;
static bool holes_fail;

int fallocate(int fd, int mode, off_t offset, off_t len)
{
	n_holes++;
	errno = EIO;
	if (holes_fail)
		return -1;
	return (int) syscall(SYS_fallocate, fd, mode, offset, len);
}

static void set_up(void)
{
	ck_assert_int_eq(loop_init(&loop), 0);
	ck_assert_int_eq(memory_init(&driver.memory, DRIVER_MIB, NULL), 0);
	/* counted in pages of 4 KiB, also on a host that has huge ones for shmem */
	ck_assert_int_eq(madvise(driver.memory.base, driver.memory.span, MADV_NOHUGEPAGE), 0);
	ck_assert_int_eq(balloon_init(&balloon, &loop, &driver.memory), 0);
	driver.device = &balloon.device;
}

static void tear_down(void)
{
	balloon_deinit(&balloon);
	memory_deinit(&driver.memory);
	loop_deinit(&loop);
}

static void step(void)
{
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(loop_step(&loop, 0), 0);
}

static uint64_t host_kib(void)
{
	struct stat st;

	ck_assert_int_eq(fstat(driver.memory.fd, &st), 0);
	return (uint64_t) st.st_blocks / 2;
}

static void send_list(unsigned int q, const uint32_t *pfns, uint32_t n)
{
	memcpy(driver_at(&driver, LIST_AT), pfns, n * sizeof(*pfns));
	driver_set_desc(&driver, q, 0, LIST_AT, n * 4, 0, 0);
	driver_push(&driver, q, 0);
	driver_write(&driver, 0x50, q);
	step();
	ck_assert_int_eq(driver_pop(&driver, q, NULL), 0);
}

static void send_range(unsigned int q, uint32_t from, uint32_t n)
{
	static uint32_t pfns[BALLOON_REQUEST_MAX + 10];

	for (uint32_t i = 0; i < n; i++)
		pfns[i] = from + n - 1 - i; /* downwards, as Linux does */
	send_list(q, pfns, n);
}

static struct balloon_stats stats(void)
{
	return balloon_stats(&balloon);
}

/* What is inflated leaves the host's memory; what is touched again is zero and counts again. */
START_TEST(gives_memory_back)
{
	uint8_t *at = driver_at(&driver, FIRST * (uint64_t) BALLOON_PAGE);
	uint64_t before;

	driver_start(&driver, 0);
	memset(at, 0xaa, 1024 * BALLOON_PAGE);
	before = host_kib();
	send_range(INFLATE, FIRST, 1024);
	ck_assert_uint_le(host_kib(), before - 4096 + 8); /* the list and a ring were touched meanwhile */
	ck_assert_uint_eq(stats().pages, 1024);
	ck_assert_uint_eq(stats().failed, 0);
	ck_assert_uint_eq(at[0] | at[5000] | at[1024 * BALLOON_PAGE - 1], 0);
	at[1024 * BALLOON_PAGE] = 1; /* its neighbour was not touched by it */
	send_range(DEFLATE, FIRST, 1000);
	ck_assert_uint_eq(stats().pages, 24);
	ck_assert_uint_eq(stats().deflated, 1000);
	memset(at, 0xbb, 1000 * BALLOON_PAGE);
	ck_assert_uint_eq(at[999 * BALLOON_PAGE], 0xbb);
	ck_assert_uint_eq(stats().refused, 0);
}
END_TEST

/* A list of neighbours in either direction is one hole, not one for each page. */
START_TEST(neighbours)
{
	static uint32_t upwards[512];

	driver_start(&driver, 0);
	for (uint32_t i = 0; i < ARRAY_LEN(upwards); i++)
		upwards[i] = FIRST + 1024 + i;
	n_holes = 0;
	send_list(INFLATE, upwards, ARRAY_LEN(upwards));
	ck_assert_uint_eq(n_holes, 1);
	send_range(INFLATE, FIRST, 512);
	ck_assert_uint_eq(n_holes, 2);
	ck_assert_uint_eq(stats().pages, 1024);
}
END_TEST

/* Pages in any order: exactly those go. */
START_TEST(scattered)
{
	uint8_t *at = driver_at(&driver, FIRST * (uint64_t) BALLOON_PAGE);
	uint32_t pfns[100];

	driver_start(&driver, 0);
	memset(at, 0xaa, 300 * BALLOON_PAGE);
	for (uint32_t i = 0; i < 100; i++)
		pfns[i] = FIRST + i * 37 % 100 * 3;
	send_list(INFLATE, pfns, 100);
	for (unsigned int i = 0; i < 300; i++)
		ck_assert_uint_eq(at[(size_t) i * BALLOON_PAGE], i % 3 ? 0xaa : 0);
	ck_assert_uint_eq(stats().pages, 100);
}
END_TEST

START_TEST(refused)
{
	static const uint32_t outside[] = { PAGES, PAGES + 1, 0xc0000, 0xd0000, 0xfee00, 0x100000, 0x7fffffff, 0x80000000,
		UINT32_MAX };

	driver_start(&driver, 0);
	send_list(INFLATE, outside, ARRAY_LEN(outside));
	ck_assert_uint_eq(stats().refused, ARRAY_LEN(outside));
	send_list(DEFLATE, outside, ARRAY_LEN(outside));
	ck_assert_uint_eq(stats().refused, 2 * ARRAY_LEN(outside));
	send_range(DEFLATE, FIRST, 10); /* never inflated */
	ck_assert_uint_eq(stats().refused, 2 * ARRAY_LEN(outside) + 10);
	send_range(INFLATE, FIRST, 10);
	send_range(INFLATE, FIRST, 10); /* twice */
	ck_assert_uint_eq(stats().refused, 2 * ARRAY_LEN(outside) + 20);
	ck_assert_uint_eq(stats().pages, 10);
	ck_assert_uint_eq(stats().inflated, 10);
	ck_assert(!driver_needs_reset(&driver));
}
END_TEST

/* Twice in one request, and more of them than a request may have. */
START_TEST(bounded)
{
	static uint32_t same[BALLOON_REQUEST_MAX];

	driver_start(&driver, 0);
	for (size_t i = 0; i < ARRAY_LEN(same); i++)
		same[i] = FIRST;
	send_list(INFLATE, same, ARRAY_LEN(same));
	ck_assert_uint_eq(stats().pages, 1);
	ck_assert_uint_eq(stats().refused, ARRAY_LEN(same) - 1);
	send_range(INFLATE, FIRST + 1, BALLOON_REQUEST_MAX + 10);
	ck_assert_uint_eq(stats().pages, 1 + BALLOON_REQUEST_MAX);
	ck_assert_uint_eq(stats().refused, ARRAY_LEN(same) - 1 + 10);
	/* a gigabyte of list */
	for (unsigned int i = 0; i < DRIVER_N; i++)
		driver_set_desc(&driver, INFLATE, i, LIST_AT, 32 << 20, i + 1 < DRIVER_N ? D_NEXT : 0, i + 1);
	driver_push(&driver, INFLATE, 0);
	driver_write(&driver, 0x50, INFLATE);
	step();
	ck_assert_int_eq(driver_pop(&driver, INFLATE, NULL), 0);
	/* a list that is not RAM, one that ends in the middle of an entry, an empty one */
	driver_set_desc(&driver, INFLATE, 0, DRIVER_END - 4, 8, 0, 0);
	driver_push(&driver, INFLATE, 0);
	driver_set_desc(&driver, INFLATE, 1, LIST_AT, 3, 0, 0);
	driver_push(&driver, INFLATE, 1);
	driver_set_desc(&driver, INFLATE, 2, LIST_AT, 400, D_WRITE, 0);
	driver_push(&driver, INFLATE, 2);
	driver_write(&driver, 0x50, INFLATE);
	step();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(driver_pop(&driver, INFLATE, NULL), 0);
	ck_assert(!driver_needs_reset(&driver));
}
END_TEST

/* All of RAM, rings and list included: the guest hurts itself alone. */
START_TEST(everything)
{
	driver_start(&driver, 0);
	for (uint32_t at = 0; at < PAGES; at += 1024) {
		uint16_t used;

		for (uint32_t i = 0; i < 1024; i++)
			((uint32_t *) driver_at(&driver, LIST_AT))[i] = at + i;
		driver_set_desc(&driver, INFLATE, 0, LIST_AT, 4096, 0, 0);
		driver_push(&driver, INFLATE, 0);
		driver_write(&driver, 0x50, INFLATE);
		step();
		used = *driver_u16(&driver, driver_used(INFLATE) + 2);
		if (used == 0 && at > 0) /* the rings were in it: they are zeros now and nothing waits */
			break;
	}
	ck_assert_uint_gt(stats().pages, 0);
	ck_assert_uint_le(stats().pages, PAGES);
	driver_start(&driver, 0);
	ck_assert_uint_eq(stats().pages, 0); /* another driver, another balloon */
	send_range(INFLATE, FIRST, 5);
	ck_assert_uint_eq(stats().pages, 5);
}
END_TEST

/* ---- the configuration space ---- */

static uint32_t config(uint32_t offset)
{
	uint8_t bytes[4];
	uint32_t value;

	mmio_read(&balloon.device, 0x100 + offset, bytes, 4);
	memcpy(&value, bytes, 4);
	return value;
}

START_TEST(target)
{
	uint32_t generation, claimed = 77;

	driver_negotiate(&driver, 0);
	balloon_set_target(&balloon, 5);
	ck_assert(!driver_interrupted(&driver)); /* before DRIVER_OK nobody is */
	ck_assert_uint_eq(driver_read(&driver, 0x60), 0);
	balloon_set_target(&balloon, 0);
	driver_start(&driver, 0);
	(void) driver_interrupted(&driver);
	generation = driver_read(&driver, 0xfc);
	ck_assert_uint_eq(config(0), 0);
	balloon_set_target(&balloon, 1000);
	ck_assert_uint_eq(config(0), 1000);
	ck_assert(driver_interrupted(&driver));
	ck_assert_uint_eq(driver_read(&driver, 0x60), 2);
	ck_assert_uint_ne(driver_read(&driver, 0xfc), generation);
	balloon_set_target(&balloon, UINT64_MAX);
	ck_assert_uint_eq(config(0), PAGES);
	ck_assert_uint_eq(stats().target_pages, PAGES);
	/* what the guest claims stands there and counts for nothing; the target is not its to set */
	mmio_write(&balloon.device, 0x104, (uint8_t *) &claimed, 4);
	ck_assert_uint_eq(config(4), 77);
	ck_assert_uint_eq(stats().pages, 0);
	claimed = 99;
	mmio_write(&balloon.device, 0x104, (uint8_t *) &claimed, 2); /* the whole field or nothing */
	ck_assert_uint_eq(config(4), 77);
	for (uint64_t offset = 0x100; offset < 0x1000; offset++)
		if (offset != 0x104)
			mmio_write(&balloon.device, offset, (uint8_t *) &claimed, 4);
	ck_assert_uint_eq(config(0), PAGES);
	ck_assert_uint_eq(config(8), 0);
}
END_TEST

/* The next driver begins with an empty balloon: what it inflates counts, also what the former one had there. */
START_TEST(reset_empties)
{
	const uint32_t claimed = 10;

	driver_start(&driver, 0);
	send_range(INFLATE, FIRST, 10);
	mmio_write(&balloon.device, 0x104, (const uint8_t *) &claimed, 4);
	driver_start(&driver, 0);
	ck_assert_uint_eq(stats().pages, 0);
	ck_assert_uint_eq(config(4), 0);
	send_range(DEFLATE, FIRST, 10); /* nothing is there */
	ck_assert_uint_eq(stats().refused, 10);
	send_range(INFLATE, FIRST, 10);
	ck_assert_uint_eq(stats().pages, 10);
	ck_assert_uint_eq(stats().refused, 10);
	driver_write(&driver, 0x50, 3); /* and a notification of a queue that is not there */
	step();
	ck_assert(!driver_needs_reset(&driver));
}
END_TEST

/* ---- statistics ---- */

static void put_stats(const struct virtio_balloon_stat *entries, uint32_t n, unsigned int desc)
{
	uint64_t at = LIST_AT + desc * UINT64_C(0x1000);

	memcpy(driver_at(&driver, at), entries, n * sizeof(*entries));
	driver_set_desc(&driver, STATS, desc, at, n * (uint32_t) sizeof(*entries), 0, 0);
	driver_push(&driver, STATS, desc);
	driver_write(&driver, 0x50, STATS);
	step();
}

START_TEST(guest_statistics)
{
	static const struct virtio_balloon_stat first[] = { { VIRTIO_BALLOON_S_MEMFREE, 1000 }, { VIRTIO_BALLOON_S_MEMTOT, 2000 },
		{ BALLOON_TAG_MAX_, 3 }, { 999, 1 }, { UINT16_MAX, 2 } };
	static const struct virtio_balloon_stat second[] = { { VIRTIO_BALLOON_S_MEMFREE, 500 } };

	driver_start(&driver, F(STATS_VQ));
	ck_assert(!stats().has_guest);
	put_stats(first, ARRAY_LEN(first), 0);
	ck_assert(stats().has_guest);
	ck_assert_uint_eq(stats().guest[BALLOON_FREE], 1000);
	ck_assert_uint_eq(stats().guest[BALLOON_TOTAL], 2000);
	ck_assert_uint_eq(stats().guest_has, 1u << BALLOON_FREE | 1u << BALLOON_TOTAL);
	/* the buffer stays with us while they are fresh, and goes back when somebody asks later */
	ck_assert_int_eq(driver_pop(&driver, STATS, NULL), -1);
	balloon.stats.guest_usec -= 1000000;
	(void) stats();
	ck_assert_int_eq(driver_pop(&driver, STATS, NULL), 0);
	ck_assert(driver_interrupted(&driver));
	(void) stats(); /* once */
	ck_assert_int_eq(driver_pop(&driver, STATS, NULL), -1);
	put_stats(second, 1, 0);
	ck_assert_uint_eq(stats().guest[BALLOON_FREE], 500);
	ck_assert_uint_eq(stats().guest_has, 1u << BALLOON_FREE);
}
END_TEST

/* More than one buffer, none at all, rubbish: one is kept, nothing grows. */
START_TEST(hostile_statistics)
{
	static struct virtio_balloon_stat many[200];
	static const struct virtio_balloon_stat one[] = { { VIRTIO_BALLOON_S_MEMFREE, 1 } };

	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		many[i] = (struct virtio_balloon_stat) { VIRTIO_BALLOON_S_MEMFREE, i };
	driver_start(&driver, 0); /* that queue is none where the driver did not ask for it */
	put_stats(one, 1, 0);
	ck_assert(!stats().has_guest);
	driver_start(&driver, F(STATS_VQ));
	put_stats(many, ARRAY_LEN(many), 0);
	ck_assert_uint_eq(stats().guest[BALLOON_FREE], 63); /* the last that is looked at */
	for (unsigned int i = 1; i < 10; i++) {
		uint32_t head = 99;

		put_stats(one, 1, i);
		ck_assert_int_eq(driver_pop(&driver, STATS, &head), 0);
		ck_assert_uint_eq(head, i - 1);
	}
	driver_set_desc(&driver, STATS, 10, DRIVER_END - 5, 10, 0, 0);
	driver_push(&driver, STATS, 10);
	driver_write(&driver, 0x50, STATS);
	step();
	ck_assert_uint_eq(stats().guest[BALLOON_FREE], 1);
	/* the buffer of a driver that is gone is not given to the next */
	driver_start(&driver, F(STATS_VQ));
	balloon.stats.guest_usec = 0;
	(void) stats();
	ck_assert_int_eq(driver_pop(&driver, STATS, NULL), -1);
}
END_TEST

/* The pages are the balloon's all the same: the guest does not use them. */
START_TEST(host_keeps_memory)
{
	driver_start(&driver, 0);
	holes_fail = true;
	send_range(INFLATE, FIRST, 7);
	holes_fail = false;
	ck_assert_uint_eq(stats().failed, 7);
	ck_assert_uint_eq(stats().pages, 7);
}
END_TEST

/* A restored VM's balloon holds what it held. */
START_TEST(restored)
{
	struct balloon_state state, again;
	struct balloon_device other;

	driver_start(&driver, F(STATS_VQ));
	send_range(INFLATE, FIRST, 5);
	send_range(INFLATE, FIRST + 100, 70);
	balloon_set_target(&balloon, 80);
	ck_assert_int_eq(balloon_save(&balloon, &state), 0);
	ck_assert_int_eq(balloon_init(&other, &loop, &driver.memory), 0);
	ck_assert_int_eq(balloon_load(&other, &state), 0);
	ck_assert_uint_eq(balloon_stats(&other).pages, 75);
	ck_assert_uint_eq(balloon_stats(&other).target_pages, 80);
	ck_assert_int_eq(balloon_save(&other, &again), 0);
	ck_assert_uint_eq(again.held_size, state.held_size);
	ck_assert_mem_eq(again.held, state.held, state.held_size);
	again.held_size--;
	ck_assert_int_eq(balloon_load(&other, &again), -EINVAL);
	state.stats_buffer = UINT16_MAX;
	ck_assert_int_eq(balloon_load(&other, &state), -EINVAL);
	balloon_deinit(&other);
	free(state.held);
	free(again.held);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-balloon");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, gives_memory_back);
	tcase_add_test(tcase, neighbours);
	tcase_add_test(tcase, scattered);
	tcase_add_test(tcase, refused);
	tcase_add_test(tcase, bounded);
	tcase_add_test(tcase, everything);
	tcase_add_test(tcase, target);
	tcase_add_test(tcase, reset_empties);
	tcase_add_test(tcase, guest_statistics);
	tcase_add_test(tcase, hostile_statistics);
	tcase_add_test(tcase, host_keeps_memory);
	tcase_add_test(tcase, restored);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
