/* SPDX-License-Identifier: Apache-2.0
 *
 * DISCARD and WRITE_ZEROES with good and bad ranges, and limits on a virtual clock. What the device does with reads and
 * writes is in test-vmm-virtio.c.
 */
#include <check.h>
#include <linux/virtio_blk.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "lib/suite.h"
#include "lib/vmm-driver.h"
#include "virtio/blk.h"

static struct driver driver;
static struct blk_device blk;
static int disk_fd;
static int64_t now;

#define SECTORS 65536u /* 32 MiB */
#define DISK_END ((uint64_t) SECTORS * BLK_SECTOR)
#define F(name) (UINT64_C(1) << VIRTIO_BLK_F_##name)
#define STATUS_AT (DRIVER_DATA + 0x800)
#define RANGES_AT (DRIVER_DATA + 0x1000)
#define BUFFER_AT (DRIVER_DATA + 0x10000)

/* In the place of libc's. What a power cut would leave, as a number. */
static unsigned int n_syncs;
static bool sync_fails;

int fdatasync(int fd)
{
	(void) fd;
	n_syncs++;
	errno = EIO;
	return sync_fails ? -1 : 0;
}

/* And a host that moves at most so many bytes at once, or fails. */
static size_t most_at_once = SIZE_MAX;
static int move_errno;

static ssize_t move_some(int fd, const struct iovec *iov, int n, off_t at, bool is_write)
{
	size_t done = 0;

	if (move_errno) {
		errno = move_errno;
		return -1;
	}
	for (int i = 0; i < n && done < most_at_once; i++) {
		size_t size = MIN(iov[i].iov_len, most_at_once - done);
		ssize_t moved = is_write ? pwrite(fd, iov[i].iov_base, size, at + (off_t) done) :
			pread(fd, iov[i].iov_base, size, at + (off_t) done);

		if (moved < 0)
			return -1;
		done += (size_t) moved;
		if ((size_t) moved < size)
			break;
	}
	return (ssize_t) done;
}

ssize_t preadv(int fd, const struct iovec *iov, int n, off_t at)
{
	return move_some(fd, iov, n, at, false);
}

static unsigned int n_writes;
static bool write_cancels; /* the VM ends during the write */

ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t at)
{
	n_writes++;
	if (write_cancels)
		blk_cancel(&blk);
	return move_some(fd, iov, n, at, true);
}

static int64_t fake_clock(void)
{
	return now;
}

static void set_up_with(bool is_read_only, const struct rate_config *limit)
{
	static uint8_t block[1 << 20];

	now = 1000000;
	memset(block, 0xaa, sizeof(block));
	disk_fd = memfd_create("disk", MFD_CLOEXEC);
	for (uint64_t at = 0; at < DISK_END; at += sizeof(block))
		ck_assert_int_eq(fd_pwrite_all(disk_fd, block, sizeof(block), (off_t) at), 0);
	ck_assert_int_eq(memory_init(&driver.memory, DRIVER_MIB, NULL), 0);
	ck_assert_int_eq(blk_init(&blk, &driver.memory, dup(disk_fd), is_read_only, "s", limit), 0);
	driver.device = &blk.device;
}

static void set_up(void)
{
	set_up_with(false, NULL);
}

static void tear_down(void)
{
	blk_deinit(&blk);
	memory_deinit(&driver.memory);
	disk_fd = fd_close(disk_fd);
}

static uint64_t host_bytes(void)
{
	struct stat st;

	ck_assert_int_eq(fstat(disk_fd, &st), 0);
	ck_assert_int_eq(st.st_size, (off_t) DISK_END);
	return (uint64_t) st.st_blocks * 512;
}

/* Whether all bytes of the range are `value`. */
static bool holds(uint64_t sector, uint64_t n, uint8_t value)
{
	static uint8_t bytes[BLK_SECTOR];

	for (uint64_t i = sector; i < sector + n; i++) {
		ck_assert_int_eq(fd_pread_all(disk_fd, bytes, sizeof(bytes), (off_t) (i * BLK_SECTOR)), 0);
		for (size_t j = 0; j < sizeof(bytes); j++)
			if (bytes[j] != value)
				return false;
	}
	return true;
}

static uint8_t send_request(uint32_t type, const void *data, uint32_t size)
{
	struct virtio_blk_outhdr head = { .type = type };
	uint8_t *status = driver_at(&driver, STATUS_AT);
	int64_t used;

	memcpy(driver_at(&driver, DRIVER_DATA), &head, sizeof(head));
	memcpy(driver_at(&driver, RANGES_AT), data, size);
	*status = 0xee;
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_NEXT, size ? 1 : 2);
	driver_set_desc(&driver, 0, 1, RANGES_AT, size, D_NEXT, 2);
	driver_set_desc(&driver, 0, 2, STATUS_AT, 1, D_WRITE, 0);
	driver_push(&driver, 0, 0);
	ck_assert_int_eq(blk_serve(&blk), -1);
	used = driver_pop(&driver, 0, NULL);
	ck_assert_int_eq(used, 1);
	return *status;
}

static uint8_t send_range(uint32_t type, uint64_t sector, uint32_t n, uint32_t flags)
{
	struct virtio_blk_discard_write_zeroes range = { .sector = sector, .num_sectors = n, .flags = flags };

	return send_request(type, &range, sizeof(range));
}

#define BOTH (F(DISCARD) | F(WRITE_ZEROES) | F(FLUSH))

START_TEST(discard)
{
	uint64_t before = host_bytes();

	driver_start(&driver, BOTH);
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_DISCARD, 1024, 2048, 0), VIRTIO_BLK_S_OK);
	ck_assert_uint_eq(before - host_bytes(), 1 << 20); /* the host has them back */
	ck_assert(holds(1024, 2048, 0));
	ck_assert(holds(1023, 1, 0xaa) && holds(3072, 1, 0xaa));
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_DISCARD, SECTORS - 1, 1, 0), VIRTIO_BLK_S_OK);
	ck_assert_uint_eq(blk_stats(&blk).discards, 2);
	ck_assert_uint_eq(blk_stats(&blk).discarded_bytes, 2049 * 512);
	ck_assert_uint_eq(blk_stats(&blk).errors, 0);
}
END_TEST

/* With and without leave to free them; the second way has to write on this file system. */
START_TEST(write_zeroes)
{
	uint64_t before = host_bytes();

	driver_start(&driver, BOTH);
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_WRITE_ZEROES, 8, 5000, 0), VIRTIO_BLK_S_OK);
	ck_assert(holds(8, 5000, 0));
	ck_assert(holds(7, 1, 0xaa) && holds(5008, 1, 0xaa));
	ck_assert_uint_eq(host_bytes(), before); /* and not give them back */
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_WRITE_ZEROES, 8192, 1024, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP), VIRTIO_BLK_S_OK);
	ck_assert(holds(8192, 1024, 0));
	ck_assert_uint_lt(host_bytes(), before);
	ck_assert_uint_eq(blk_stats(&blk).zeroes, 2);
	ck_assert_uint_eq(blk_stats(&blk).zeroed_bytes, 6024 * 512);
}
END_TEST

static uint8_t write_one(void)
{
	static const uint8_t sector[BLK_SECTOR] = { 1 };

	return send_request(VIRTIO_BLK_T_OUT, sector, sizeof(sector));
}

/* 5.2.6.2: a driver that does not know FLUSH finds on the disk what was answered; one that does says when. */
START_TEST(write_through)
{
	driver_start(&driver, BOTH);
	n_syncs = 0;
	ck_assert_uint_eq(write_one(), VIRTIO_BLK_S_OK);
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_WRITE_ZEROES, 8, 8, 0), VIRTIO_BLK_S_OK);
	ck_assert_uint_eq(n_syncs, 0);
	ck_assert_uint_eq(send_request(VIRTIO_BLK_T_FLUSH, "", 0), VIRTIO_BLK_S_OK);
	ck_assert_uint_eq(n_syncs, 1);
	driver_start(&driver, F(WRITE_ZEROES));
	ck_assert_uint_eq(write_one(), VIRTIO_BLK_S_OK);
	ck_assert_uint_eq(n_syncs, 2);
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_WRITE_ZEROES, 8, 8, 0), VIRTIO_BLK_S_OK);
	ck_assert_uint_eq(n_syncs, 3);
	sync_fails = true;
	ck_assert_uint_eq(write_one(), VIRTIO_BLK_S_IOERR);
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_WRITE_ZEROES, 8, 8, 0), VIRTIO_BLK_S_IOERR);
	driver_start(&driver, BOTH);
	ck_assert_uint_eq(send_request(VIRTIO_BLK_T_FLUSH, "", 0), VIRTIO_BLK_S_IOERR);
	sync_fails = false;
}
END_TEST

/* A request of three sectors in buffers of odd sizes, while the host moves `most_at_once` bytes: byte for byte. */
static uint8_t transfer(bool is_write)
{
	static const uint32_t sizes[] = { 100, 1, 700, 735 }; /* 1536 */
	struct virtio_blk_outhdr head = { .type = is_write ? VIRTIO_BLK_T_OUT : VIRTIO_BLK_T_IN, .sector = 5 };
	unsigned int flags = D_NEXT | (is_write ? 0 : D_WRITE), i = 1;
	uint64_t at = BUFFER_AT;

	memcpy(driver_at(&driver, DRIVER_DATA), &head, sizeof(head));
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_NEXT, 1);
	for (size_t k = 0; k < ARRAY_LEN(sizes); k++, i++) {
		driver_set_desc(&driver, 0, i, at, sizes[k], flags, i + 1);
		at += sizes[k];
	}
	driver_set_desc(&driver, 0, i, STATUS_AT, 1, D_WRITE, 0);
	driver_push(&driver, 0, 0);
	ck_assert_int_eq(blk_serve(&blk), -1);
	ck_assert_int_eq(driver_pop(&driver, 0, NULL), is_write ? 1 : 1537);
	return *(uint8_t *) driver_at(&driver, STATUS_AT);
}

START_TEST(short_reads_and_writes)
{
	static const size_t mosts[] = { 1, 99, 100, 101, 512, 800, 1535, 1536 };
	uint8_t *bytes = driver_at(&driver, BUFFER_AT), on_disk[1536];

	driver_start(&driver, BOTH);
	most_at_once = mosts[_i];
	for (size_t i = 0; i < sizeof(on_disk); i++)
		bytes[i] = (uint8_t) (i * 7 + i / 251);
	ck_assert_uint_eq(transfer(true), VIRTIO_BLK_S_OK);
	ck_assert_int_eq(fd_pread_all(disk_fd, on_disk, sizeof(on_disk), 5 * BLK_SECTOR), 0);
	ck_assert_mem_eq(on_disk, bytes, sizeof(on_disk));
	ck_assert(holds(4, 1, 0xaa) && holds(8, 1, 0xaa));
	memset(bytes, 0, sizeof(on_disk));
	ck_assert_uint_eq(transfer(false), VIRTIO_BLK_S_OK);
	ck_assert_mem_eq(bytes, on_disk, sizeof(on_disk));
	most_at_once = SIZE_MAX;
}
END_TEST

/* How many lines the log has of `n` writes, each of which names `errno_name`. */
static unsigned int lines_of_writes(unsigned int n, const char *errno_name)
{
	FILE *out = tmpfile();
	int saved = dup(STDERR_FILENO);
	unsigned int lines = 0;
	char line[1024];

	ck_assert(out && saved >= 0 && dup2(fileno(out), STDERR_FILENO) >= 0);
	log_init("test", LOG_LEVEL_WARN);
	for (unsigned int i = 0; i < n; i++)
		ck_assert_uint_eq(write_one(), *errno_name ? VIRTIO_BLK_S_IOERR : VIRTIO_BLK_S_OK);
	ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
	(void) fd_close(saved);
	rewind(out);
	while (fgets(line, sizeof(line), out)) {
		lines++;
		ck_assert_msg(strstr(line, errno_name) && strstr(line, "disk=s "), "%s", line);
	}
	(void) fclose(out);
	return lines;
}

/* What the host answered is in the log, once a minute; what a guest asks for in vain is not. */
START_TEST(host_errors_are_told)
{
	blk.clock = fake_clock;
	driver_start(&driver, 0);
	move_errno = ENOSPC;
	ck_assert_uint_eq(lines_of_writes(20, "ENOSPC"), 1);
	now += 59 * USEC_PER_SEC;
	ck_assert_uint_eq(lines_of_writes(20, "ENOSPC"), 0);
	now += USEC_PER_SEC;
	ck_assert_uint_eq(lines_of_writes(20, "ENOSPC"), 1);
	now += 60 * USEC_PER_SEC;
	move_errno = 0;
	ck_assert_uint_eq(lines_of_writes(1, ""), 0);
	sync_fails = true;
	ck_assert_uint_eq(lines_of_writes(20, "EIO"), 1);
	sync_fails = false;
	ck_assert_uint_eq(blk_stats(&blk).errors, 80);
	now += 60 * USEC_PER_SEC;
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_WRITE_ZEROES, SECTORS, 8, 0), VIRTIO_BLK_S_UNSUPP);
	ck_assert_int_lt(blk.silent_until_usec, now + 1);
}
END_TEST

/* A paused VM's disk takes nothing; what came meanwhile is done afterwards. */
START_TEST(paused)
{
	driver_start(&driver, BOTH);
	ck_assert_int_eq(blk_pause(&blk, clock_monotonic_usec()), 0);
	driver_push(&driver, 0, 0); /* a request without a body */
	ck_assert_int_eq(blk_serve(&blk), -1);
	ck_assert_int_eq(driver_pop(&driver, 0, NULL), -1);
	ck_assert(!(driver_read(&driver, 0x70) & 64));
	blk_resume(&blk);
	ck_assert_uint_eq(write_one(), VIRTIO_BLK_S_OK);
}
END_TEST

/* Its worker had the notification during the pause, and there is no second one: the device tells it anew. */
START_TEST(resumed)
{
	struct pollfd notify = { .fd = blk.device.notify_fds[0], .events = POLLIN };
	uint64_t n;

	driver_start(&driver, BOTH);
	ck_assert_int_eq(blk_pause(&blk, clock_monotonic_usec()), 0);
	driver_write(&driver, 0x50, 0);
	ck_assert_int_eq((int) read(notify.fd, &n, sizeof(n)), (int) sizeof(n));
	ck_assert_int_eq(poll(&notify, 1, 0), 0);
	blk_resume(&blk);
	ck_assert_int_eq(poll(&notify, 1, 0), 1);
}
END_TEST

/* The end of a VM waits for one piece of what is zeroed by hand, not for all. */
START_TEST(cancelled)
{
	driver_start(&driver, BOTH);
	n_writes = 0;
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_WRITE_ZEROES, 8, 5000, 0), VIRTIO_BLK_S_OK);
	ck_assert_uint_gt(n_writes, 1);
	n_writes = 0;
	write_cancels = true;
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_WRITE_ZEROES, 8, 5000, 0), VIRTIO_BLK_S_IOERR);
	ck_assert_uint_eq(n_writes, 1);
	ck_assert_int_eq(blk.silent_until_usec, 0); /* that is no host's error, and no line of the log */
	write_cancels = false;
}
END_TEST

/* What is no whole sector at the end of the file is not there. */
START_TEST(half_a_sector)
{
	static const struct {
		off_t size;
		uint64_t sectors;
	} files[] = { { 0, 0 }, { 1, 0 }, { 511, 0 }, { 512, 1 }, { 513, 1 }, { 3 * 512 + 511, 3 } };

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		int fd = memfd_create("odd", MFD_CLOEXEC);
		struct blk_device other;

		ck_assert_int_eq(ftruncate(fd, files[i].size), 0);
		ck_assert_int_eq(blk_init(&other, &driver.memory, fd, false, "s", NULL), 0);
		ck_assert_uint_eq(other.sectors, files[i].sectors);
		blk_deinit(&other);
	}
}
END_TEST

START_TEST(many_ranges)
{
	struct virtio_blk_discard_write_zeroes ranges[BLK_RANGES_MAX + 1];
	uint32_t type = _i ? VIRTIO_BLK_T_DISCARD : VIRTIO_BLK_T_WRITE_ZEROES;

	driver_start(&driver, BOTH);
	for (unsigned int i = 0; i < BLK_RANGES_MAX + 1; i++)
		ranges[i] = (struct virtio_blk_discard_write_zeroes) { .sector = i * 16, .num_sectors = 8 };
	ck_assert_uint_eq(send_request(type, ranges, sizeof(ranges)), VIRTIO_BLK_S_IOERR);
	ck_assert(holds(0, 256, 0xaa));
	/* the last is bad: none is done */
	ranges[BLK_RANGES_MAX - 1].sector = SECTORS;
	ck_assert_uint_eq(send_request(type, ranges, BLK_RANGES_MAX * sizeof(ranges[0])), VIRTIO_BLK_S_IOERR);
	ck_assert(holds(0, 256, 0xaa));
	ranges[BLK_RANGES_MAX - 1].sector = 240;
	ck_assert_uint_eq(send_request(type, ranges, BLK_RANGES_MAX * sizeof(ranges[0])), VIRTIO_BLK_S_OK);
	for (unsigned int i = 0; i < BLK_RANGES_MAX; i++)
		ck_assert(holds(i * 16, 8, 0) && holds(i * 16 + 8, 8, 0xaa));
}
END_TEST

static const struct {
	uint64_t sector;
	uint32_t n, flags;
	uint8_t status;
} bad_ranges[] = {
	{ 0, 0, 0, VIRTIO_BLK_S_IOERR },
	{ SECTORS, 1, 0, VIRTIO_BLK_S_IOERR },
	{ SECTORS - 1, 2, 0, VIRTIO_BLK_S_IOERR },
	{ 1, SECTORS, 0, VIRTIO_BLK_S_IOERR },
	{ 0, UINT32_MAX, 0, VIRTIO_BLK_S_IOERR },
	{ UINT64_MAX, 1, 0, VIRTIO_BLK_S_IOERR },
	{ UINT64_MAX, UINT32_MAX, 0, VIRTIO_BLK_S_IOERR },
	{ UINT64_MAX / 512 + 1, 8, 0, VIRTIO_BLK_S_IOERR },
	{ UINT64_C(1) << 55, 8, 0, VIRTIO_BLK_S_IOERR },
	{ 0, 8, 2, VIRTIO_BLK_S_UNSUPP },
	{ 0, 8, 0x80000000, VIRTIO_BLK_S_UNSUPP },
	{ SECTORS, 8, 0xffffffff, VIRTIO_BLK_S_UNSUPP },
};

START_TEST(refused)
{
	static const uint32_t types[] = { VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_WRITE_ZEROES };
	uint64_t before = host_bytes();

	driver_start(&driver, BOTH);
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		ck_assert_uint_eq(send_range(types[i], bad_ranges[_i].sector, bad_ranges[_i].n, bad_ranges[_i].flags),
			bad_ranges[_i].status);
	ck_assert_uint_eq(host_bytes(), before);
	ck_assert(holds(0, SECTORS, 0xaa));
	ck_assert_uint_eq(blk_stats(&blk).errors, 2);
	ck_assert(!driver_needs_reset(&driver));
}
END_TEST

START_TEST(refused_otherwise)
{
	static const uint8_t part[64];
	static const uint32_t sizes[] = { 0, 1, 15, 17, 24 };

	driver_start(&driver, BOTH);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		ck_assert_uint_eq(send_request(VIRTIO_BLK_T_DISCARD, part, sizes[i]), VIRTIO_BLK_S_IOERR);
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_DISCARD, 0, 8, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP), VIRTIO_BLK_S_UNSUPP);
	/* a driver that did not take the features */
	driver_start(&driver, F(DISCARD));
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_WRITE_ZEROES, 0, 8, 0), VIRTIO_BLK_S_UNSUPP);
	driver_start(&driver, F(WRITE_ZEROES));
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_DISCARD, 0, 8, 0), VIRTIO_BLK_S_UNSUPP);
	ck_assert(holds(0, 64, 0xaa));
}
END_TEST

/* R098: nothing changes a read-only disk. */
START_TEST(read_only)
{
	tear_down();
	set_up_with(true, NULL);
	ck_assert_uint_eq(blk.device.features & (F(DISCARD) | F(WRITE_ZEROES)), 0);
	driver_start(&driver, F(RO));
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_DISCARD, 0, 8, 0), VIRTIO_BLK_S_IOERR);
	ck_assert_uint_eq(send_range(VIRTIO_BLK_T_WRITE_ZEROES, 0, 8, 0), VIRTIO_BLK_S_IOERR);
	ck_assert_uint_eq(send_request(VIRTIO_BLK_T_OUT, driver_at(&driver, BUFFER_AT), 512), VIRTIO_BLK_S_IOERR);
	ck_assert(holds(0, SECTORS, 0xaa));
}
END_TEST

static uint32_t config(uint32_t offset)
{
	uint32_t value;
	uint8_t bytes[4];

	mmio_read(&blk.device, 0x100 + offset, bytes, 4);
	memcpy(&value, bytes, 4);
	return value;
}

START_TEST(config_space)
{
	ck_assert_uint_eq(config(offsetof(struct virtio_blk_config, max_discard_sectors)), BLK_DISCARD_MAX / 512);
	ck_assert_uint_eq(config(offsetof(struct virtio_blk_config, max_discard_seg)), BLK_RANGES_MAX);
	ck_assert_uint_eq(config(offsetof(struct virtio_blk_config, max_write_zeroes_sectors)), BLK_REQUEST_MAX / 512);
	ck_assert_uint_eq(config(offsetof(struct virtio_blk_config, max_write_zeroes_seg)), BLK_RANGES_MAX);
}
END_TEST

/* ---- limits ---- */

/* Offers `n` reads of `size` bytes; how many were done, and how long it is to wait then. */
static unsigned int offer(unsigned int n, uint32_t size, int64_t *ret_wait)
{
	struct virtio_blk_outhdr head = { .type = VIRTIO_BLK_T_IN };
	unsigned int done = 0;

	memcpy(driver_at(&driver, DRIVER_DATA), &head, sizeof(head));
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_NEXT, 1);
	driver_set_desc(&driver, 0, 1, BUFFER_AT, size, D_NEXT | D_WRITE, 2);
	driver_set_desc(&driver, 0, 2, STATUS_AT, 1, D_WRITE, 0);
	while (n-- > 0)
		driver_push(&driver, 0, 0);
	*ret_wait = blk_serve(&blk);
	while (driver_pop(&driver, 0, NULL) >= 0)
		done++;
	return done;
}

static void limit(const struct rate_config *config)
{
	tear_down();
	set_up_with(false, config);
	blk.clock = fake_clock;
	rate_init(&blk.rate, config, now);
	driver_start(&driver, FEATURE_EVENT_IDX);
}

START_TEST(limit_of_operations)
{
	struct rate_config config = { .ops = 10, .ops_burst = 4 };
	int64_t wait;

	limit(&config);
	ck_assert_uint_eq(offer(12, 512, &wait), 4);
	ck_assert_int_eq(wait, 100000);
	ck_assert_uint_eq(offer(0, 512, &wait), 0);
	now += 99999;
	ck_assert_uint_eq(offer(0, 512, &wait), 0);
	ck_assert_int_eq(wait, 1);
	now += 1;
	ck_assert_uint_eq(offer(0, 512, &wait), 1);
	now += 10000000;
	ck_assert_uint_eq(offer(0, 512, &wait), 4); /* the burst, not a hundred */
	now += 300000;
	ck_assert_uint_eq(offer(0, 512, &wait), 3);
	ck_assert_int_eq(wait, -1); /* all are done */
	ck_assert_uint_eq(blk_stats(&blk).reads, 12);
	/* a request that fails costs one too */
	now += 10000000;
	ck_assert_uint_eq(offer(8, 1, &wait), 4);
	now += 10000000;
	ck_assert_uint_eq(offer(0, 0, &wait), 4);
	/* and one without room for its status */
	now += 10000000;
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, 0, 0);
	for (int i = 0; i < 8; i++)
		driver_push(&driver, 0, 0);
	ck_assert_int_eq(blk_serve(&blk), 100000);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(driver_pop(&driver, 0, NULL), i < 4 ? 0 : -1);
	ck_assert_uint_gt(blk_stats(&blk).throttled, 0);
}
END_TEST

/* A disk that comes when the device is there already brings its serial and its limit, not those that the device was made with. */
START_TEST(a_disk_that_comes_later)
{
	const struct rate_config before = { .ops = 1000, .ops_burst = 1000 }, after = { .ops = 10, .ops_burst = 4 };
	uint8_t id[BLK_SERIAL_SIZE];
	int64_t wait;

	blk_deinit(&blk);
	ck_assert_int_eq(blk_init(&blk, &driver.memory, -1, false, "of the shell, longer", &before), 0);
	driver.device = &blk.device;
	ck_assert_int_eq(blk_pause(&blk, 0), 0);
	blk.clock = fake_clock;
	ck_assert_int_lt(blk_open(&blk, -1, "none", &after), 0);
	ck_assert_int_eq(blk_open(&blk, dup(disk_fd), "its own", &after), 0);
	ck_assert_uint_eq(blk.sectors, SECTORS);
	blk_resume(&blk);
	driver_start(&driver, FEATURE_EVENT_IDX);
	ck_assert_uint_eq(offer(8, 512, &wait), 4);
	ck_assert_int_eq(wait, 100000);
	memset(id, 0, sizeof(id));
	memcpy(id, "its own", 7);
	ck_assert_mem_eq(blk.serial, id, sizeof(id));
}
END_TEST

START_TEST(limit_of_bytes)
{
	struct rate_config config = { .bytes = 1 << 20, .bytes_burst = 65536 };
	int64_t wait;

	limit(&config);
	/* larger than the burst: it goes, and the next waits for as long as that takes */
	ck_assert_uint_eq(offer(2, 1 << 20, &wait), 1);
	ck_assert_int_ge(wait, 937500);
	ck_assert_int_le(wait, 937503);
	now += wait - 1;
	ck_assert_uint_eq(offer(0, 1 << 20, &wait), 0);
	now += 1;
	ck_assert_uint_eq(offer(0, 1 << 20, &wait), 1);
}
END_TEST

/* Zeroes are written, by the host: they cost their bytes. What a discard gives back costs an operation alone. */
START_TEST(limit_of_ranges)
{
	uint32_t type = _i ? VIRTIO_BLK_T_DISCARD : VIRTIO_BLK_T_WRITE_ZEROES;
	struct rate_config config = { .bytes = 1 << 20, .bytes_burst = 1 << 20 };
	struct virtio_blk_discard_write_zeroes range = { .num_sectors = 4096 };
	struct virtio_blk_outhdr head = { .type = type };

	tear_down();
	set_up_with(false, &config);
	blk.clock = fake_clock;
	rate_init(&blk.rate, &config, now);
	driver_start(&driver, BOTH);
	memcpy(driver_at(&driver, DRIVER_DATA), &head, sizeof(head));
	memcpy(driver_at(&driver, RANGES_AT), &range, sizeof(range));
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_NEXT, 1);
	driver_set_desc(&driver, 0, 1, RANGES_AT, sizeof(range), D_NEXT, 2);
	driver_set_desc(&driver, 0, 2, STATUS_AT, 1, D_WRITE, 0);
	driver_push(&driver, 0, 0);
	driver_push(&driver, 0, 0);
	/* 2 MiB of 1 are a debt of one second, and then of the first byte */
	ck_assert_int_eq(blk_serve(&blk), _i ? -1 : 1000001);
	ck_assert_uint_eq(blk_stats(&blk).discards + blk_stats(&blk).zeroes, _i ? 2 : 1);
}
END_TEST

/* The worker comes back by itself, and can be ended while it waits. */
START_TEST(limit_and_worker)
{
	struct rate_config config = { .ops = 50, .ops_burst = 1 };
	struct virtio_blk_outhdr head = { .type = VIRTIO_BLK_T_IN };
	uint64_t one, throttled;
	int64_t began;

	tear_down();
	set_up_with(false, &config);
	driver_start(&driver, 0);
	ck_assert_int_eq(blk_start(&blk, NULL, NULL), 0);
	memcpy(driver_at(&driver, DRIVER_DATA), &head, sizeof(head));
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, D_NEXT, 1);
	driver_set_desc(&driver, 0, 1, BUFFER_AT, 512, D_NEXT | D_WRITE, 2);
	driver_set_desc(&driver, 0, 2, STATUS_AT, 1, D_WRITE, 0);
	for (int i = 0; i < 3; i++)
		driver_push(&driver, 0, 0);
	driver_write(&driver, 0x50, 0); /* one notification for all three */
	began = clock_monotonic_usec();
	while (blk_stats(&blk).reads < 3) {
		ck_assert_int_lt(clock_monotonic_usec() - began, 10000000);
		(void) usleep(1000);
	}
	ck_assert_int_ge(clock_monotonic_usec() - began, 30000);
	throttled = blk_stats(&blk).throttled;
	/* and is ended while it waits for an hour */
	ck_assert_int_eq(blk_stop(&blk, clock_monotonic_usec() + 10000000), 0);
	rate_charge(&blk.rate, 3600 * 50, 0);
	atomic_store(&blk.is_stopping, false);
	ck_assert_int_eq((int) read(blk.stop_fd, &one, sizeof(one)), 8);
	ck_assert_int_eq(blk_start(&blk, NULL, NULL), 0);
	driver_push(&driver, 0, 0);
	driver_write(&driver, 0x50, 0);
	while (blk_stats(&blk).throttled == throttled)
		(void) usleep(1000);
	ck_assert_int_eq(blk_stop(&blk, clock_monotonic_usec() + 10000000), 0);
	ck_assert_uint_eq(blk_stats(&blk).reads, 3);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-blk");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, discard);
	tcase_add_test(tcase, write_zeroes);
	tcase_add_test(tcase, write_through);
	tcase_add_loop_test(tcase, short_reads_and_writes, 0, 8);
	tcase_add_test(tcase, host_errors_are_told);
	tcase_add_test(tcase, paused);
	tcase_add_test(tcase, resumed);
	tcase_add_test(tcase, cancelled);
	tcase_add_test(tcase, half_a_sector);
	tcase_add_loop_test(tcase, many_ranges, 0, 2);
	tcase_add_loop_test(tcase, refused, 0, ARRAY_LEN(bad_ranges));
	tcase_add_test(tcase, refused_otherwise);
	tcase_add_test(tcase, read_only);
	tcase_add_test(tcase, config_space);
	tcase_add_test(tcase, limit_of_operations);
	tcase_add_test(tcase, a_disk_that_comes_later);
	tcase_add_test(tcase, limit_of_bytes);
	tcase_add_loop_test(tcase, limit_of_ranges, 0, 2);
	tcase_add_test(tcase, limit_and_worker);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
