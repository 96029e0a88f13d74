/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue, the transport's state machine, and the block and entropy devices under a driver that breaks the
 * rules. Cases R079 R080 R082 R083 R085 R086 R088 R091 R092 R094 R095 R097 R098 R109.
 */
#include <check.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <stdio.h>
#include <sys/mman.h>

#define DRIVER_N 64 /* before the driver */
#include "base/fd.h"
#include "lib/suite.h"
#include "lib/vmm-driver.h"
#include "virtio/blk.h"
#include "virtio/rng.h"

static struct driver driver;
static struct blk_device blk;
static struct rng_device rng;
static struct loop loop;
static int disk_fd;

#define DISK_SECTORS 64u

static void set_up_blk(bool is_read_only)
{
	uint8_t sector[512];

	disk_fd = memfd_create("disk", MFD_CLOEXEC);
	for (unsigned int i = 0; i < DISK_SECTORS; i++) {
		memset(sector, (int) i + 1, sizeof(sector));
		ck_assert_int_eq(fd_pwrite_all(disk_fd, sector, sizeof(sector), (off_t) i * 512), 0);
	}
	ck_assert_int_eq(memory_init(&driver.memory, DRIVER_MIB, NULL), 0);
	ck_assert_int_eq(blk_init(&blk, &driver.memory, dup(disk_fd), is_read_only, "serial-number-is-20!", NULL), 0);
	driver.device = &blk.device;
}

static void tear_down_blk(void)
{
	blk_deinit(&blk);
	memory_deinit(&driver.memory);
	disk_fd = fd_close(disk_fd);
}

static void set_up(void)
{
	set_up_blk(false);
}

/* ---- status ---- */

static const uint8_t states[] = { 0, 1, 3, 11, 15 };
static const uint8_t next_of[] = { 1, 3, 11, 15, 0 };

/* Brings the device to states[s], with FAILED added or not. */
static void go_to(unsigned int s, bool is_failed)
{
	driver_write(&driver, 0x70, 0);
	for (unsigned int i = 1; i <= s; i++) {
		if (states[i] == 11)
			driver_set_features(&driver, FEATURE_VERSION_1);
		driver_write(&driver, 0x70, states[i]);
	}
	if (is_failed)
		driver_write(&driver, 0x70, states[s] | STATUS_FAILED);
	ck_assert_uint_eq(driver_read(&driver, 0x70), states[s] | (is_failed ? STATUS_FAILED : 0));
}

/* R086: what the table says, written down once more and differently. */
START_TEST(status_all)
{
	unsigned int s = (unsigned int) _i % 5;
	bool is_failed = _i >= 5;

	if (is_failed && s == 0)
		return; /* FAILED cannot be added to 0 */
	for (uint32_t value = 0; value < 0x400; value++) {
		uint32_t expected = states[s] | (is_failed ? STATUS_FAILED : 0u);

		go_to(s, is_failed);
		if (s == 2) /* the step to FEATURES_OK is about status here, not features */
			driver_set_features(&driver, FEATURE_VERSION_1);
		if (value == 0)
			expected = 0;
		else if (!is_failed && next_of[s] != 0 && value == next_of[s])
			expected = value;
		else if (!is_failed && s > 0 && value == (states[s] | STATUS_FAILED))
			expected = value;
		driver_write(&driver, 0x70, value);
		ck_assert_msg(driver_read(&driver, 0x70) == expected, "state %u%s, wrote %u: %u, not %u", states[s],
			is_failed ? " failed" : "", value, driver_read(&driver, 0x70), expected);
	}
}
END_TEST

/* R088: one by one, every bit that is not offered, and the lack of VERSION_1. */
START_TEST(features_refused)
{
	uint64_t offered = blk.device.features, wish = FEATURE_VERSION_1 | UINT64_C(1) << _i;

	go_to(2, false);
	if (_i == 63)
		wish = 0;
	driver_set_features(&driver, wish);
	driver_write(&driver, 0x70, 11);
	ck_assert_uint_eq(driver_read(&driver, 0x70), (wish & ~offered) || !wish ? 3 : 11);
}
END_TEST

START_TEST(features_of_a_third_page)
{
	go_to(2, false);
	driver_set_features(&driver, FEATURE_VERSION_1);
	driver_write(&driver, 0x24, 2);
	driver_write(&driver, 0x20, 1);
	driver_write(&driver, 0x70, 11);
	ck_assert_uint_eq(driver_read(&driver, 0x70), 3);
	driver_write(&driver, 0x14, 7);
	ck_assert_uint_eq(driver_read(&driver, 0x10), 0);
}
END_TEST

START_TEST(features_only_while_negotiating)
{
	go_to(1, false);
	driver_set_features(&driver, FEATURE_VERSION_1);
	driver_write(&driver, 0x70, 3);
	driver_write(&driver, 0x70, 11); /* what was written before DRIVER did not count */
	ck_assert_uint_eq(driver_read(&driver, 0x70), 3);
	driver_negotiate(&driver, 0);
	driver_set_features(&driver, UINT64_MAX);
	ck_assert_uint_eq(blk.device.driver_features, FEATURE_VERSION_1);
}
END_TEST

START_TEST(needs_reset_stops)
{
	driver_start(&driver, 0);
	(void) pthread_mutex_lock(&blk.device.lock);
	device_set_needs_reset(&blk.device, "test");
	device_set_needs_reset(&blk.device, "test");
	(void) pthread_mutex_unlock(&blk.device.lock);
	ck_assert_uint_eq(driver_read(&driver, 0x70), 15 | STATUS_NEEDS_RESET);
	ck_assert_uint_eq(blk.device.needs_reset, 1);
	ck_assert(driver_interrupted(&driver));
	ck_assert_uint_eq(driver_read(&driver, 0x60), 2);
	driver_write(&driver, 0x70, 15);
	ck_assert_uint_eq(driver_read(&driver, 0x70), 15 | STATUS_NEEDS_RESET);
	driver_write(&driver, 0x70, 0);
	ck_assert_uint_eq(driver_read(&driver, 0x70), 0);
	ck_assert_uint_eq(driver_read(&driver, 0x60), 0);
}
END_TEST

/* ---- registers ---- */

START_TEST(register_widths)
{
	uint8_t bytes[8], zero[8] = { 0 };
	static const uint32_t lens[] = { 1, 2, 8 };

	for (uint64_t offset = 0; offset < 0x100; offset++)
		for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
			memset(bytes, 0xee, sizeof(bytes));
			mmio_read(&blk.device, offset, bytes, lens[i]);
			ck_assert_mem_eq(bytes, zero, lens[i]);
			memset(bytes, 1, sizeof(bytes));
			mmio_write(&blk.device, offset, bytes, lens[i]);
		}
	ck_assert_uint_eq(driver_read(&driver, 0x70), 0);
	ck_assert_uint_eq(driver_read(&driver, 0), 0x74726976);
	ck_assert_uint_eq(driver_read(&driver, 4), 2);
	ck_assert_uint_eq(driver_read(&driver, 8), 2);
	mmio_read(&blk.device, 0x100, bytes, 8); /* configuration space has no 8-byte access */
	ck_assert_mem_eq(bytes, zero, 8);
	mmio_read(&blk.device, 0x100, bytes, 4);
	ck_assert_uint_eq(bytes[0], DISK_SECTORS);
	for (uint64_t offset = 0x100; offset < 0x1000; offset++)
		mmio_read(&blk.device, offset, bytes, 4);
	ck_assert_mem_eq(bytes, zero, 4);
}
END_TEST

START_TEST(queue_select_out_of_range)
{
	static const uint32_t wrong[] = { 1, 2, 3, 255, UINT32_MAX };

	driver_negotiate(&driver, 0);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		driver_set_queue(&driver, wrong[i], 8, DRIVER_RINGS, DRIVER_RINGS, DRIVER_RINGS);
		ck_assert_uint_eq(driver_read(&driver, 0x34), 0);
		ck_assert_uint_eq(driver_read(&driver, 0x44), 0);
	}
	driver_write(&driver, 0x50, 77); /* a notification of a queue that is not there */
}
END_TEST

static const struct {
	uint32_t n;
	uint64_t desc, avail, used;
} bad_rings[] = {
	/* sizes */
	{ 0, DRIVER_RINGS, DRIVER_RINGS, DRIVER_RINGS },
	{ 3, DRIVER_RINGS, DRIVER_RINGS, DRIVER_RINGS },
	{ 512, DRIVER_RINGS, DRIVER_RINGS, DRIVER_RINGS },
	{ 65536, DRIVER_RINGS, DRIVER_RINGS, DRIVER_RINGS },
	{ 65536 + 8, DRIVER_RINGS, DRIVER_RINGS, DRIVER_RINGS },
	{ UINT32_MAX, DRIVER_RINGS, DRIVER_RINGS, DRIVER_RINGS },
	/* alignment */
	{ 8, DRIVER_RINGS + 8, DRIVER_RINGS, DRIVER_RINGS },
	{ 8, DRIVER_RINGS, DRIVER_RINGS + 1, DRIVER_RINGS },
	{ 8, DRIVER_RINGS, DRIVER_RINGS, DRIVER_RINGS + 2 },
	/* R083: ends of memory, the gap, wrap-around */
	{ 256, DRIVER_END, DRIVER_RINGS, DRIVER_RINGS },
	{ 256, DRIVER_END - 4080, DRIVER_RINGS, DRIVER_RINGS },
	{ 256, DRIVER_RINGS, DRIVER_END - 512, DRIVER_RINGS },
	{ 256, DRIVER_RINGS, DRIVER_RINGS, DRIVER_END - 2048 },
	{ 256, DRIVER_RINGS, DRIVER_END - 516, DRIVER_RINGS }, /* all but the event indices behind the entries */
	{ 256, DRIVER_RINGS, DRIVER_RINGS, DRIVER_END - 2052 },
	{ 256, UINT64_C(3) << 30, DRIVER_RINGS, DRIVER_RINGS },
	{ 256, DRIVER_RINGS, UINT64_C(0xd0000000), DRIVER_RINGS },
	{ 256, UINT64_MAX & ~UINT64_C(15), DRIVER_RINGS, DRIVER_RINGS },
	{ 256, DRIVER_RINGS, UINT64_MAX & ~UINT64_C(1), DRIVER_RINGS },
	{ 256, DRIVER_RINGS, DRIVER_RINGS, UINT64_MAX & ~UINT64_C(3) },
};

START_TEST(rings_refused)
{
	driver_negotiate(&driver, 0);
	driver_set_queue(&driver, 0, bad_rings[_i].n, bad_rings[_i].desc, bad_rings[_i].avail, bad_rings[_i].used);
	ck_assert_uint_eq(driver_read(&driver, 0x44), 0);
	ck_assert(driver_needs_reset(&driver));
	ck_assert_uint_eq(driver_read(&driver, 0x60), 0); /* before DRIVER_OK nobody is interrupted */
	ck_assert_uint_eq(blk.device.queues[0].bad_gpa, bad_rings[_i].n == 256 || bad_rings[_i].n == 8);
	driver_start(&driver, 0); /* and a reset makes all well */
}
END_TEST

START_TEST(queue_setup_needs_features_ok)
{
	for (unsigned int s = 0; s < 3; s++) {
		go_to(s, false);
		driver_set_queue(&driver, 0, 8, DRIVER_RINGS, DRIVER_RINGS, DRIVER_RINGS);
		ck_assert_uint_eq(driver_read(&driver, 0x44), 0);
	}
}
END_TEST

/* Nor after the driver gave up, or broke a rule. */
START_TEST(queue_setup_needs_a_driver_in_order)
{
	driver_negotiate(&driver, 0);
	if (_i == 0)
		driver_write(&driver, 0x70, 11 | STATUS_FAILED);
	else
		driver_set_queue(&driver, 0, 3, DRIVER_RINGS, DRIVER_RINGS, DRIVER_RINGS);
	ck_assert_uint_eq(driver_read(&driver, 0x70), 11 | (_i == 0 ? STATUS_FAILED : STATUS_NEEDS_RESET));
	driver_set_queue(&driver, 0, 8, DRIVER_RINGS, DRIVER_RINGS, DRIVER_RINGS);
	ck_assert_uint_eq(driver_read(&driver, 0x44), 0);
}
END_TEST

/* A reset selects the first page of features again. */
START_TEST(reset_selects_the_first_page)
{
	driver_write(&driver, 0x24, 1);
	driver_write(&driver, 0x14, 1);
	driver_write(&driver, 0x70, 0);
	ck_assert_uint_eq(driver_read(&driver, 0x10), (uint32_t) blk.device.features);
	driver_write(&driver, 0x70, 1);
	driver_write(&driver, 0x70, 3);
	driver_write(&driver, 0x20, 1u << VIRTIO_BLK_F_FLUSH);
	ck_assert_uint_eq(blk.device.driver_features, 1u << VIRTIO_BLK_F_FLUSH);
}
END_TEST

/* What one driver acknowledged is not the next one's. */
START_TEST(reset_forgets_features)
{
	driver_start(&driver, 0);
	driver_write(&driver, 0x70, 0);
	driver_write(&driver, 0x70, 1);
	driver_write(&driver, 0x70, 3);
	driver_write(&driver, 0x70, 11); /* without a word of VERSION_1 */
	ck_assert_uint_eq(driver_read(&driver, 0x70), 3);
	/* nor what it had selected */
	driver_write(&driver, 0x14, 1);
	driver_write(&driver, 0x30, 7);
	driver_write(&driver, 0x70, 0);
	ck_assert_uint_eq(driver_read(&driver, 0x10), (uint32_t) blk.device.features);
	ck_assert_uint_eq(driver_read(&driver, 0x34), 256);
}
END_TEST

/* ---- block requests ---- */

struct request_head {
	uint32_t type, reserved;
	uint64_t sector;
};

#define STATUS_AT (DRIVER_DATA + 0x800)
#define BUFFER_AT (DRIVER_DATA + 0x1000)

static void put_head(uint32_t type, uint64_t sector)
{
	struct request_head head = { .type = type, .sector = sector };

	memcpy(driver_at(&driver, DRIVER_DATA), &head, sizeof(head));
}

static uint8_t *status_byte(void)
{
	return driver_at(&driver, STATUS_AT);
}

static int64_t used_bytes; /* of the last request() */

/* header, data, status as three descriptors; what stands in the status byte afterwards (0xee: nothing). */
static uint8_t request(uint32_t type, uint64_t sector, uint32_t len)
{
	put_head(type, sector);
	*status_byte() = 0xee;
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_NEXT, 1);
	driver_set_desc(&driver, 0, 1, BUFFER_AT, len, D_NEXT | (type == VIRTIO_BLK_T_OUT ? 0 : D_WRITE), 2);
	driver_set_desc(&driver, 0, 2, STATUS_AT, 1, D_WRITE, 0);
	driver_push(&driver, 0, 0);
	blk_serve(&blk);
	used_bytes = driver_pop(&driver, 0, NULL);
	ck_assert_int_ge((int) used_bytes, 0);
	return *status_byte();
}

START_TEST(blk_reads_and_writes)
{
	uint8_t *data = driver_at(&driver, BUFFER_AT), sector[512];

	driver_start(&driver, UINT64_C(1) << VIRTIO_BLK_F_FLUSH);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_IN, 5, 1024), VIRTIO_BLK_S_OK);
	ck_assert(driver_interrupted(&driver));
	ck_assert_uint_eq(driver_read(&driver, 0x60), 1);
	driver_write(&driver, 0x64, 1);
	ck_assert_uint_eq(driver_read(&driver, 0x60), 0);
	ck_assert_uint_eq(data[0], 6);
	ck_assert_uint_eq(data[512], 7);
	memset(data, 0xab, 512);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_OUT, DISK_SECTORS - 1, 512), VIRTIO_BLK_S_OK);
	ck_assert_int_eq(fd_pread_all(disk_fd, sector, 512, (DISK_SECTORS - 1) * 512), 0);
	ck_assert_mem_eq(sector, data, 512);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_FLUSH, 0, 0), VIRTIO_BLK_S_OK);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_GET_ID, 0, 20), VIRTIO_BLK_S_OK);
	ck_assert_mem_eq(data, "serial-number-is-20!", 20);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_DISCARD, 0, 16), VIRTIO_BLK_S_UNSUPP);
	ck_assert_uint_eq(request(0xffffffff, 0, 512), VIRTIO_BLK_S_UNSUPP);
	ck_assert_uint_eq(blk_stats(&blk).reads, 1);
	ck_assert_uint_eq(blk_stats(&blk).read_bytes, 1024);
	ck_assert_uint_eq(blk_stats(&blk).written_bytes, 512);
	ck_assert_uint_eq(blk_stats(&blk).flushes, 1);
	ck_assert_uint_eq(blk_stats(&blk).errors, 2);
}
END_TEST

static const struct {
	uint32_t type;
	uint64_t sector;
	uint32_t len;
} bad_requests[] = {
	{ VIRTIO_BLK_T_IN, DISK_SECTORS, 512 },
	{ VIRTIO_BLK_T_OUT, DISK_SECTORS, 512 },
	{ VIRTIO_BLK_T_IN, DISK_SECTORS - 1, 1024 },
	{ VIRTIO_BLK_T_OUT, DISK_SECTORS - 1, 1024 },
	{ VIRTIO_BLK_T_OUT, DISK_SECTORS + 1, 0 },
	/* R094 */
	{ VIRTIO_BLK_T_IN, UINT64_MAX / 512, 512 },
	{ VIRTIO_BLK_T_IN, UINT64_MAX / 512 + 1, 512 },
	{ VIRTIO_BLK_T_OUT, UINT64_MAX / 512 + 1, 512 },
	{ VIRTIO_BLK_T_OUT, UINT64_C(1) << 55, 512 },
	{ VIRTIO_BLK_T_IN, UINT64_MAX, 512 },
	{ VIRTIO_BLK_T_OUT, UINT64_MAX, 512 },
	/* no whole sectors */
	{ VIRTIO_BLK_T_IN, 0, 1 },
	{ VIRTIO_BLK_T_IN, 0, 511 },
	{ VIRTIO_BLK_T_OUT, 0, 513 },
	/* too much for one request */
	{ VIRTIO_BLK_T_IN, 0, 33u << 20 },
};

static void check_disk_unchanged(void)
{
	uint8_t sector[512];

	ck_assert_int_eq(lseek(disk_fd, 0, SEEK_END), DISK_SECTORS * 512);
	for (unsigned int i = 0; i < DISK_SECTORS; i++) {
		ck_assert_int_eq(fd_pread_all(disk_fd, sector, sizeof(sector), (off_t) i * 512), 0);
		for (size_t j = 0; j < sizeof(sector); j++)
			if (sector[j] != i + 1) /* check writes a message per assertion */
				ck_abort_msg("byte %zu of sector %u is 0x%x", j, i, sector[j]);
	}
}

START_TEST(blk_refused)
{
	driver_start(&driver, 0);
	ck_assert_uint_eq(request(bad_requests[_i].type, bad_requests[_i].sector, bad_requests[_i].len),
		VIRTIO_BLK_S_IOERR);
	ck_assert(!driver_needs_reset(&driver));
	check_disk_unchanged();
	ck_assert_uint_eq(request(VIRTIO_BLK_T_IN, 0, 512), VIRTIO_BLK_S_OK);
}
END_TEST

/* R098 */
START_TEST(blk_read_only)
{
	tear_down_blk();
	set_up_blk(true);
	ck_assert(blk.device.features & UINT64_C(1) << VIRTIO_BLK_F_RO);
	driver_start(&driver, 0);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_OUT, 0, 512), VIRTIO_BLK_S_IOERR);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_DISCARD, 0, 512), VIRTIO_BLK_S_IOERR);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_WRITE_ZEROES, 0, 512), VIRTIO_BLK_S_IOERR);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_FLUSH, 0, 0), VIRTIO_BLK_S_OK);
	check_disk_unchanged();
}
END_TEST

/* The file became shorter under us: an error, not SIGBUS and not stale bytes. */
START_TEST(blk_truncated_file)
{
	driver_start(&driver, 0);
	ck_assert_int_eq(ftruncate(disk_fd, 512), 0);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_IN, 0, 512), VIRTIO_BLK_S_OK);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_IN, 1, 512), VIRTIO_BLK_S_IOERR);
}
END_TEST

static int64_t serve_chain(unsigned int head)
{
	driver_push(&driver, 0, head);
	blk_serve(&blk);
	return driver_pop(&driver, 0, NULL);
}

/* R079: the ring goes on, the next request is served. */
START_TEST(blk_header_only)
{
	driver_start(&driver, 0);
	put_head(VIRTIO_BLK_T_IN, 0);
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, 0, 0);
	ck_assert_int_eq(serve_chain(0), 0);
	ck_assert(!driver_needs_reset(&driver));
	ck_assert_uint_eq(request(VIRTIO_BLK_T_IN, 0, 512), VIRTIO_BLK_S_OK);
}
END_TEST

/* R097 */
START_TEST(blk_short_header)
{
	driver_start(&driver, 0);
	put_head(VIRTIO_BLK_T_IN, 0);
	*status_byte() = 0xee;
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 15, D_NEXT, 1);
	driver_set_desc(&driver, 0, 1, STATUS_AT, 1, D_WRITE, 0);
	ck_assert_int_eq(serve_chain(0), 1);
	ck_assert_uint_eq(*status_byte(), VIRTIO_BLK_S_IOERR);
	/* no header at all, only a status */
	*status_byte() = 0xee;
	driver_set_desc(&driver, 0, 0, STATUS_AT, 1, D_WRITE, 0);
	ck_assert_int_eq(serve_chain(0), 1);
	ck_assert_uint_eq(*status_byte(), VIRTIO_BLK_S_IOERR);
	/* neither */
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 15, 0, 0);
	ck_assert_int_eq(serve_chain(0), -1);
	ck_assert(driver_needs_reset(&driver));
}
END_TEST

static const struct {
	uint32_t type;
	uint64_t sector;
	uint32_t len;
	uint8_t status;
	int64_t used;
} lengths[] = { { VIRTIO_BLK_T_IN, 0, 512, VIRTIO_BLK_S_OK, 513 },
	{ VIRTIO_BLK_T_IN, DISK_SECTORS, 512, VIRTIO_BLK_S_IOERR, 0 }, /* nothing of the data, so the status does not count */
	{ VIRTIO_BLK_T_OUT, 0, 512, VIRTIO_BLK_S_OK, 1 }, { VIRTIO_BLK_T_OUT, DISK_SECTORS, 512, VIRTIO_BLK_S_IOERR, 1 },
	{ VIRTIO_BLK_T_GET_ID, 0, 20, VIRTIO_BLK_S_OK, 21 }, { VIRTIO_BLK_T_GET_ID, 0, 4096, VIRTIO_BLK_S_OK, 20 },
	{ VIRTIO_BLK_T_GET_ID, 0, 7, VIRTIO_BLK_S_OK, 8 }, { 0xffffffff, 0, 512, VIRTIO_BLK_S_UNSUPP, 0 } };

static void *stop_queue(void *data)
{
	(void) data;
	driver_write(&driver, 0x30, 0);
	driver_write(&driver, 0x44, 0);
	return NULL;
}

/* A driver that stops a queue and goes on feeding it waits for the request under way, and for no more. */
START_TEST(queue_stops_while_it_is_fed)
{
	struct device *device = &blk.device;
	struct chain chain;
	pthread_t thread;
	bool is_stopping = false;

	driver_start(&driver, 0);
	(void) pthread_mutex_lock(&device->lock);
	device_work_begin(device);
	ck_assert_int_eq(pthread_create(&thread, NULL, stop_queue, NULL), 0);
	while (!is_stopping) {
		(void) pthread_mutex_lock(&device->lock);
		is_stopping = device->is_resetting;
		(void) pthread_mutex_unlock(&device->lock);
	}
	put_head(VIRTIO_BLK_T_IN, 0);
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_NEXT, 1);
	driver_set_desc(&driver, 0, 1, BUFFER_AT, 513, D_WRITE, 0);
	driver_push(&driver, 0, 0);
	(void) pthread_mutex_lock(&device->lock);
	ck_assert(!device_pop(device, 0, &chain));
	(void) pthread_mutex_unlock(&device->lock);
	device_work_end(device);
	(void) pthread_mutex_unlock(&device->lock);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(driver_read(&driver, 0x44), 0);
	ck_assert(!device->is_resetting);
	driver_write(&driver, 0x70, 0); /* a reset does not wait for anything now */
	ck_assert_uint_eq(driver_read(&driver, 0x70), 0);
}
END_TEST

/* 2.7.8.2: not more than was surely written, from the first writable byte on. */
START_TEST(blk_used_length)
{
	driver_start(&driver, UINT64_C(1) << VIRTIO_BLK_F_FLUSH);
	ck_assert_uint_eq(request(lengths[_i].type, lengths[_i].sector, lengths[_i].len), lengths[_i].status);
	ck_assert_int_eq((int) used_bytes, (int) lengths[_i].used);
}
END_TEST

START_TEST(blk_odd_layouts)
{
	driver_start(&driver, 0);
	/* a header in pieces, data and status in one descriptor, an empty descriptor between */
	put_head(VIRTIO_BLK_T_IN, 2);
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 3, D_NEXT, 1);
	driver_set_desc(&driver, 0, 1, DRIVER_DATA + 3, 13, D_NEXT, 2);
	driver_set_desc(&driver, 0, 2, 0, 0, D_NEXT, 3);
	driver_set_desc(&driver, 0, 3, BUFFER_AT, 513, D_WRITE, 0);
	ck_assert_int_eq(serve_chain(0), 513);
	ck_assert_uint_eq(((uint8_t *) driver_at(&driver, BUFFER_AT))[0], 3);
	ck_assert_uint_eq(((uint8_t *) driver_at(&driver, BUFFER_AT))[512], VIRTIO_BLK_S_OK);
}
END_TEST

static const struct {
	uint64_t addr;
	uint32_t len;
} bad_addresses[] = { { DRIVER_END, 512 }, { DRIVER_END - 511, 512 }, { UINT64_C(3) << 30, 512 },
	{ UINT64_MAX, 512 }, { UINT64_MAX - 511, 512 }, { UINT64_C(1) << 52, 512 }, { 0, UINT32_MAX },
	{ DRIVER_DATA, UINT32_MAX } };

/* R082: data in both directions, header, status. */
START_TEST(blk_bad_addresses)
{
	static const uint32_t types[] = { VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT };
	uint64_t addr = bad_addresses[_i].addr;
	uint32_t len = bad_addresses[_i].len;

	driver_start(&driver, 0);
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		put_head(types[i], 0);
		*status_byte() = 0xee;
		driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_NEXT, 1);
		driver_set_desc(&driver, 0, 1, addr, len, D_NEXT | (i == 0 ? D_WRITE : 0), 2);
		driver_set_desc(&driver, 0, 2, STATUS_AT, 1, D_WRITE, 0);
		ck_assert_int_eq(serve_chain(0), i == 0 ? 0 : 1); /* the status stands behind what a failed read left as it was */
		ck_assert_uint_eq(*status_byte(), VIRTIO_BLK_S_IOERR);
		ck_assert_uint_eq(blk.device.queues[0].bad_gpa, i + 1);
	}
	driver_set_desc(&driver, 0, 0, addr, len, D_NEXT, 2);
	*status_byte() = 0xee;
	ck_assert_int_eq(serve_chain(0), 1);
	ck_assert_uint_eq(*status_byte(), VIRTIO_BLK_S_IOERR);
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_NEXT, 2);
	driver_set_desc(&driver, 0, 2, addr, len, D_WRITE, 0);
	ck_assert_int_eq(serve_chain(0), 0);
	check_disk_unchanged();
	ck_assert(!driver_needs_reset(&driver));
	ck_assert_uint_eq(request(VIRTIO_BLK_T_IN, 0, 512), VIRTIO_BLK_S_OK);
}
END_TEST

/* ---- the queue itself ---- */

/* R080: a chain of `n` descriptors; one more than the queue has can only be a loop. */
START_TEST(chain_lengths)
{
	unsigned int n = DRIVER_N - 1 + (unsigned int) _i;
	struct chain chain;
	enum chain_result result;

	driver_start(&driver, 0);
	for (unsigned int i = 0; i < DRIVER_N; i++)
		driver_set_desc(&driver, 0, i, DRIVER_DATA, 1, D_WRITE | (i + 1 == n ? 0 : D_NEXT), (i + 1) % DRIVER_N);
	driver_push(&driver, 0, 0);
	result = queue_pop(&blk.device.queues[0], &driver.memory, &chain);
	ck_assert_int_eq((int) result, n <= DRIVER_N ? CHAIN_OK : CHAIN_BROKEN);
	if (result == CHAIN_OK)
		ck_assert_uint_eq(chain.n_writable, n);
}
END_TEST

/* The largest queue and a loop: the walk ends before it leaves the room for its result. */
START_TEST(chain_loop_in_largest_queue)
{
	static struct {
		struct chain chain;
		uint64_t canary;
	} out = { .canary = UINT64_C(0x0123456789abcdef) };

	driver_negotiate(&driver, 0);
	memset(driver_at(&driver, driver_desc(0)), 0, 0x10000);
	driver_set_queue(&driver, 0, QUEUE_SIZE_MAX, driver_desc(0), driver_avail(0), driver_used(0));
	driver_write(&driver, 0x70, 15);
	driver.avail[0] = 0;
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 1, D_NEXT, 0);
	driver_push(&driver, 0, 0);
	ck_assert_int_eq((int) queue_pop(&blk.device.queues[0], &driver.memory, &out.chain), CHAIN_BROKEN);
	ck_assert_uint_le(out.chain.n_readable, QUEUE_SIZE_MAX);
	ck_assert_uint_eq(out.canary, UINT64_C(0x0123456789abcdef));
}
END_TEST

static void break_head(void)
{
	driver_push(&driver, 0, DRIVER_N);
}
static void break_head_max(void)
{
	driver_push(&driver, 0, UINT16_MAX);
}
static void break_next(void)
{
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_NEXT, DRIVER_N);
	driver_push(&driver, 0, 0);
}
static void break_self_loop(void)
{
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_NEXT, 0);
	driver_push(&driver, 0, 0);
}
static void break_order(void)
{
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_NEXT | D_WRITE, 1);
	driver_set_desc(&driver, 0, 1, DRIVER_DATA, 16, 0, 0);
	driver_push(&driver, 0, 0);
}
static void break_indirect(void)
{
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_INDIRECT, 0);
	driver_push(&driver, 0, 0);
}
static void break_flags(void)
{
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, 0x8000, 0);
	driver_push(&driver, 0, 0);
}
static void break_index(void)
{
	*driver_u16(&driver, driver_avail(0) + 2) = DRIVER_N + 1;
}
static void break_index_back(void)
{
	*driver_u16(&driver, driver_avail(0) + 2) = UINT16_MAX;
}

static void (*const breakers[])(void) = { break_head, break_head_max, break_next, break_self_loop, break_order,
	break_indirect, break_flags, break_index, break_index_back };

/* R095: broken for good, counted once, until a reset. */
START_TEST(queue_broken)
{
	driver_start(&driver, 0);
	breakers[_i]();
	blk_serve(&blk);
	ck_assert(driver_needs_reset(&driver));
	ck_assert_uint_eq(blk.device.queues[0].broken, 1);
	for (int i = 0; i < 1000; i++) {
		driver_push(&driver, 0, 0);
		blk_serve(&blk);
	}
	ck_assert_int_eq(driver_pop(&driver, 0, NULL), -1);
	ck_assert_uint_eq(blk.device.queues[0].broken, 1);
	ck_assert_uint_eq(blk.device.needs_reset, 1);
	driver_start(&driver, 0);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_IN, 0, 512), VIRTIO_BLK_S_OK);
}
END_TEST

/* R095: a driver that breaks it after each reset writes one line of the log. */
START_TEST(queue_broken_again_and_again)
{
	FILE *out = tmpfile();
	int saved = dup(STDERR_FILENO), lines = 0;
	char line[1024];

	ck_assert(out && saved >= 0 && dup2(fileno(out), STDERR_FILENO) >= 0);
	for (int i = 0; i < 20; i++) {
		driver_start(&driver, 0);
		breakers[0]();
		blk_serve(&blk);
	}
	ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
	(void) fd_close(saved);
	rewind(out);
	while (fgets(line, sizeof(line), out))
		lines++;
	(void) fclose(out);
	ck_assert_uint_eq(blk.device.needs_reset, 20);
	ck_assert_uint_eq(blk.device.queues[0].broken, 20); /* a reset forgets none of it */
	ck_assert_int_eq(lines, 1);
}
END_TEST

/* R085: what is written after DRIVER_OK is ignored, the latched rings stay in use. */
START_TEST(queue_latched)
{
	driver_start(&driver, 0);
	driver_set_queue(&driver, 0, 4, DRIVER_END, DRIVER_END, UINT64_MAX);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_IN, 1, 512), VIRTIO_BLK_S_OK);
	ck_assert(!driver_needs_reset(&driver));
	/* and between QueueReady and DRIVER_OK likewise */
	driver_negotiate(&driver, 0);
	memset(driver_at(&driver, driver_desc(0)), 0, 0x10000);
	driver.avail[0] = driver.used[0] = 0;
	driver_set_queue(&driver, 0, DRIVER_N, driver_desc(0), driver_avail(0), driver_used(0));
	driver_set_queue(&driver, 0, 4, DRIVER_END, DRIVER_END, UINT64_MAX);
	driver_write(&driver, 0x70, 15);
	ck_assert_uint_eq(request(VIRTIO_BLK_T_IN, 1, 512), VIRTIO_BLK_S_OK);
}
END_TEST

START_TEST(queue_stopped)
{
	driver_start(&driver, 0);
	driver_write(&driver, 0x30, 0);
	driver_write(&driver, 0x44, 0);
	ck_assert_uint_eq(driver_read(&driver, 0x44), 0);
	driver_push(&driver, 0, 0);
	blk_serve(&blk);
	ck_assert_int_eq(driver_pop(&driver, 0, NULL), -1);
	driver_write(&driver, 0x44, 1); /* not before a reset */
	ck_assert_uint_eq(driver_read(&driver, 0x44), 0);
}
END_TEST

/* A notification that came while a queue was being stopped found a device that does nothing: all are looked at again. */
START_TEST(queue_stopped_is_told)
{
	uint64_t n;

	driver_start(&driver, 0);
	ck_assert_int_eq((int) read(blk.device.notify_fds[0], &n, sizeof(n)), -1);
	driver_write(&driver, 0x30, 0);
	driver_write(&driver, 0x44, 0);
	ck_assert_int_eq((int) read(blk.device.notify_fds[0], &n, sizeof(n)), sizeof(n));
	driver_write(&driver, 0x44, 0); /* it is stopped: nothing new */
	ck_assert_int_eq((int) read(blk.device.notify_fds[0], &n, sizeof(n)), -1);
}
END_TEST

START_TEST(queue_wraps)
{
	driver_start(&driver, 0);
	for (unsigned int i = 0; i < 70000; i++) /* past 2^16 */
		ck_assert_uint_eq(request(VIRTIO_BLK_T_IN, i % DISK_SECTORS, 512), VIRTIO_BLK_S_OK);
}
END_TEST

START_TEST(no_interrupt_flag)
{
	driver_start(&driver, 0);
	*driver_u16(&driver, driver_avail(0)) = 1;
	ck_assert_uint_eq(request(VIRTIO_BLK_T_IN, 0, 512), VIRTIO_BLK_S_OK);
	ck_assert(!driver_interrupted(&driver));
	*driver_u16(&driver, driver_avail(0)) = 0;
	ck_assert_uint_eq(request(VIRTIO_BLK_T_IN, 0, 512), VIRTIO_BLK_S_OK);
	ck_assert(driver_interrupted(&driver));
}
END_TEST

/* ---- threads ---- */

/* R091: resets while the worker has a ring full of requests in flight; after a reset nothing of the old life is written. */
START_TEST(reset_in_flight)
{
	const int rounds = getenv("CROFT_FULL") ? 100000 : 3000;
	uint64_t one = 1;

	ck_assert_int_eq(blk_start(&blk, NULL, NULL), 0);
	for (int round = 0; round < rounds; round++) {
		driver_start(&driver, 0);
		put_head(VIRTIO_BLK_T_IN, 0);
		for (unsigned int i = 0; i < 4; i++) {
			driver_set_desc(&driver, 0, i * 3, DRIVER_DATA, 16, D_NEXT, i * 3 + 1);
			driver_set_desc(&driver, 0, i * 3 + 1, BUFFER_AT, 512 * DISK_SECTORS, D_NEXT | D_WRITE, i * 3 + 2);
			driver_set_desc(&driver, 0, i * 3 + 2, STATUS_AT, 1, D_WRITE, 0);
		}
		for (unsigned int i = 0; i < DRIVER_N; i++)
			driver_push(&driver, 0, i % 4 * 3);
		ck_assert_int_eq(write(blk.device.notify_fds[0], &one, sizeof(one)), 8);
		if (round % 3)
			for (volatile int spin = 0; spin < round % 1000 * 20; spin++)
				;
		driver_write(&driver, 0x70, 0);
		memset(driver_at(&driver, BUFFER_AT), 0x5a, 512);
		*status_byte() = 0x5a;
		if (round % 100 == 0)
			(void) usleep(200);
		ck_assert_uint_eq(*status_byte(), 0x5a);
		ck_assert_uint_eq(((uint8_t *) driver_at(&driver, BUFFER_AT))[17], 0x5a);
	}
}
END_TEST

static atomic_bool flip_stop;

static void *flip(void *data)
{
	uint64_t i = 0;

	(void) data;
	while (!atomic_load(&flip_stop)) {
		/* good, beyond the end, into the host's own addresses */
		static const uint64_t addresses[] = { BUFFER_AT, DRIVER_END - 4, UINT64_MAX - 8, BUFFER_AT };
		static const uint32_t lens[] = { 512, UINT32_MAX, 512, 1024 };

		driver_set_desc(&driver, 0, 1, addresses[i % 4], lens[i / 4 % 4], D_NEXT | D_WRITE, i % 7 ? 2 : 99);
		i++;
	}
	return NULL;
}

/* R092: another vCPU rewrites a descriptor all the time. Anything but a wild access is right. */
START_TEST(descriptor_flips)
{
	pthread_t thread;

	atomic_store(&flip_stop, false);
	driver_start(&driver, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, flip, NULL), 0);
	for (int i = 0; i < 20000; i++) {
		put_head(VIRTIO_BLK_T_IN, 0);
		driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_NEXT, 1);
		driver_set_desc(&driver, 0, 2, STATUS_AT, 1, D_WRITE, 0);
		driver_push(&driver, 0, 0);
		blk_serve(&blk);
		(void) driver_pop(&driver, 0, NULL);
		if (driver_needs_reset(&driver))
			driver_start(&driver, 0);
	}
	atomic_store(&flip_stop, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	check_disk_unchanged();
}
END_TEST

/* ---- rng ---- */

static void set_up_rng(void)
{
	ck_assert_int_eq(loop_init(&loop), 0);
	ck_assert_int_eq(memory_init(&driver.memory, DRIVER_MIB, NULL), 0);
	ck_assert_int_eq(rng_init(&rng, &loop, &driver.memory), 0);
	driver.device = &rng.device;
}

static void tear_down_rng(void)
{
	rng_deinit(&rng);
	memory_deinit(&driver.memory);
	loop_deinit(&loop);
}

/* R109 and others: how many bytes a request of so many gets. */
START_TEST(rng_requests)
{
	const uint8_t *at = driver_at(&driver, BUFFER_AT);
	unsigned int zeros = 0;

	driver_start(&driver, 0);
	driver_set_desc(&driver, 0, 0, BUFFER_AT, 4096, D_WRITE, 0);
	driver_push(&driver, 0, 0);
	driver_write(&driver, 0x50, 0);
	ck_assert_int_eq(loop_step(&loop, 0), 0);
	ck_assert_int_eq(driver_pop(&driver, 0, NULL), 4096);
	for (int i = 0; i < 4096; i++)
		zeros += at[i] == 0;
	ck_assert_uint_lt(zeros, 100);
	/* a chain of 4 GiB in large pieces: 64 KiB of it */
	for (unsigned int i = 0; i < DRIVER_N; i++)
		driver_set_desc(&driver, 0, i, 0x400000, 32 << 20, D_WRITE | (i + 1 < DRIVER_N ? D_NEXT : 0), i + 1);
	driver_push(&driver, 0, 0);
	rng_serve(&rng);
	ck_assert_int_eq(driver_pop(&driver, 0, NULL), RNG_REQUEST_MAX);
	/* nothing to write to, and an address that is not RAM */
	driver_set_desc(&driver, 0, 0, BUFFER_AT, 64, 0, 0);
	driver_push(&driver, 0, 0);
	driver_set_desc(&driver, 0, 1, DRIVER_END - 1, 64, D_WRITE, 0);
	driver_push(&driver, 0, 1);
	rng_serve(&rng);
	ck_assert_int_eq(driver_pop(&driver, 0, NULL), 0);
	ck_assert_int_eq(driver_pop(&driver, 0, NULL), 0);
	ck_assert_uint_eq(rng.bytes, 4096 + RNG_REQUEST_MAX);
}
END_TEST

/* More than a turn's worth: the rest is served in the next turns, not forgotten. */
START_TEST(rng_turns)
{
	driver_start(&driver, 0);
	driver_set_desc(&driver, 0, 0, BUFFER_AT, 8, D_WRITE, 0);
	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < DRIVER_N; j++)
			driver_push(&driver, 0, 0);
		driver_write(&driver, 0x50, 0);
		for (int j = 0; j < 4; j++)
			ck_assert_int_eq(loop_step(&loop, 0), 0);
		for (int j = 0; j < DRIVER_N; j++)
			ck_assert_int_eq(driver_pop(&driver, 0, NULL), 8);
	}
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-virtio");
	TCase *block = tcase_create("blk"), *threads = tcase_create("threads"), *entropy = tcase_create("rng");

	tcase_add_checked_fixture(block, set_up, tear_down_blk);
	tcase_set_timeout(block, 100);
	tcase_add_loop_test(block, status_all, 0, 10);
	tcase_add_loop_test(block, features_refused, 0, 64);
	tcase_add_test(block, features_of_a_third_page);
	tcase_add_test(block, features_only_while_negotiating);
	tcase_add_test(block, needs_reset_stops);
	tcase_add_test(block, register_widths);
	tcase_add_test(block, queue_select_out_of_range);
	tcase_add_loop_test(block, rings_refused, 0, ARRAY_LEN(bad_rings));
	tcase_add_test(block, queue_setup_needs_features_ok);
	tcase_add_loop_test(block, queue_setup_needs_a_driver_in_order, 0, 2);
	tcase_add_test(block, reset_selects_the_first_page);
	tcase_add_test(block, reset_forgets_features);
	tcase_add_test(block, queue_broken_again_and_again);
	tcase_add_test(block, blk_reads_and_writes);
	tcase_add_loop_test(block, blk_refused, 0, ARRAY_LEN(bad_requests));
	tcase_add_test(block, blk_read_only);
	tcase_add_test(block, blk_truncated_file);
	tcase_add_test(block, blk_header_only);
	tcase_add_test(block, blk_short_header);
	tcase_add_test(block, blk_odd_layouts);
	tcase_add_loop_test(block, blk_bad_addresses, 0, ARRAY_LEN(bad_addresses));
	tcase_add_test(block, queue_stops_while_it_is_fed);
	tcase_add_loop_test(block, blk_used_length, 0, ARRAY_LEN(lengths));
	tcase_add_loop_test(block, chain_lengths, 0, 3);
	tcase_add_test(block, chain_loop_in_largest_queue);
	tcase_add_loop_test(block, queue_broken, 0, ARRAY_LEN(breakers));
	tcase_add_test(block, queue_latched);
	tcase_add_test(block, queue_stopped);
	tcase_add_test(block, queue_stopped_is_told);
	tcase_add_test(block, queue_wraps);
	tcase_add_test(block, no_interrupt_flag);
	suite_add_tcase(suite, block);
	tcase_add_checked_fixture(threads, set_up, tear_down_blk);
	tcase_set_timeout(threads, 3000);
	tcase_add_test(threads, reset_in_flight);
	tcase_add_test(threads, descriptor_flips);
	suite_add_tcase(suite, threads);
	tcase_add_checked_fixture(entropy, set_up_rng, tear_down_rng);
	tcase_add_test(entropy, rng_requests);
	tcase_add_test(entropy, rng_turns);
	suite_add_tcase(suite, entropy);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
