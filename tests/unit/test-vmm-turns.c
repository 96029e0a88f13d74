/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring that is never empty: by the time that a device has dealt with one request, other vCPUs have filled the ring again.
 * Whatever the device, the control socket (and with it the lease and signals, which are the same loop's) has its turn, after a
 * number of requests that is written down here. Where the device calls the host for a request stands what fills the ring, so
 * nothing hangs on how threads are scheduled. Case R104: its 10 ms are the turns of vsock.
 */
#include <check.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_net.h>
#include <linux/virtio_vsock.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/fd.h"
#include "lib/suite.h"
#include "lib/vmm-driver.h"
#include "virtio/balloon.h"
#include "virtio/blk.h"
#include "virtio/net.h"
#include "virtio/rng.h"
#include "virtio/vsock.h"

#define STEPS 50
#define GIVE_UP 100000u /* requests in one step: a device that goes on for as long as there are any */

static struct driver driver;
static struct loop parent, loop; /* the VMM's, and the devices' part of it */
static unsigned int n_served;
static int watched; /* the queue that is never empty; -1: none now */

/* What the vCPUs do meanwhile. */
static void refill(void)
{
	n_served++;
	if (watched < 0 || n_served > GIVE_UP)
		return;
	for (unsigned int q = 0; q < driver.device->n_queues; q++)
		if (q == (unsigned int) watched || (driver.device->id == 19 && q == VSOCK_QUEUE_RX)) /* its answers need room as well */
			*driver_u16(&driver, driver_avail(q) + 2) = (uint16_t) (*driver_u16(&driver, driver_used(q) + 2) + DRIVER_N);
}

/* Queue `q` names one chain again and again: descriptor 0. */
static void fill(unsigned int q, uint64_t addr, uint32_t len, unsigned int flags)
{
	driver_set_desc(&driver, q, 0, addr, len, flags, 0);
	for (unsigned int i = 0; i < DRIVER_N; i++)
		*driver_u16(&driver, driver_avail(q) + 4 + i * 2) = 0;
	*driver_u16(&driver, driver_avail(q) + 2) = DRIVER_N;
}

static void kick_all(void)
{
	for (unsigned int q = 0; q < driver.device->n_queues; q++)
		driver_write(&driver, 0x50, q);
}

static void answer(void *data, uint32_t events)
{
	uint64_t n;

	(void) events;
	ck_assert_int_eq((int) read(*(int *) data, &n, sizeof(n)), (int) sizeof(n));
	*(int *) data = -1;
}

/* In each turn of the VMM's loop a request on the control socket is answered, and the device served at most `most`. */
static void expect_turns(unsigned int most)
{
	int control = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), waits;
	struct loop_source source = LOOP_SOURCE_NULL;
	uint64_t one = 1;

	ck_assert_int_eq(loop_add(&parent, &source, control, EPOLLIN, answer, &waits), 0);
	kick_all();
	for (int i = 0; i < STEPS; i++) {
		n_served = 0;
		waits = control;
		ck_assert_int_eq((int) write(control, &one, sizeof(one)), (int) sizeof(one));
		ck_assert_int_eq(loop_step(&parent, 0), 0);
		ck_assert_int_eq(waits, -1);
		ck_assert_uint_le(n_served, most);
		ck_assert_uint_gt(n_served, 0); /* and it never stands still: it comes back by itself */
	}
	ck_assert(!driver_needs_reset(&driver));
	watched = -1;
	loop_remove(&parent, &source);
	(void) fd_close(control);
}

static void set_up(void)
{
	watched = -1;
	ck_assert_int_eq(loop_init(&parent), 0);
	ck_assert_int_eq(loop_init(&loop), 0);
	ck_assert_int_eq(loop_nest(&parent, &loop), 0);
	ck_assert_int_eq(memory_init(&driver.memory, DRIVER_MIB, NULL), 0);
}

static void tear_down(void)
{
	loop_deinit(&loop);
	loop_deinit(&parent);
	memory_deinit(&driver.memory);
}

/* ---- what devices call, in the place of libc's ---- */

static int tap = -1;
static bool counts_clock;

ssize_t getrandom(void *buf, size_t size, unsigned int flags)
{
	refill();
	return syscall(SYS_getrandom, buf, size, flags);
}

int fallocate(int fd, int mode, off_t offset, off_t len)
{
	uint32_t *page = driver_at(&driver, DRIVER_DATA);

	*page = 0x1000 + (*page + 1) % 0x1000; /* another page, or there is nothing to do */
	refill();
	return (int) syscall(SYS_fallocate, fd, mode, offset, len);
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
	if (fd == tap)
		refill();
	return syscall(SYS_writev, fd, iov, n);
}

/* A TAP that always has a frame. */
ssize_t read(int fd, void *buf, size_t size)
{
	if (fd != tap || watched != NET_QUEUE_RX)
		return syscall(SYS_read, fd, buf, size);
	refill();
	memset(buf, 0, 72);
	return 72;
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	if (counts_clock)
		refill();
	return (int) syscall(SYS_clock_gettime, clock, ts);
}

/* ---- rng, balloon ---- */

START_TEST(rng)
{
	static struct rng_device device;

	ck_assert_int_eq(rng_init(&device, &loop, &driver.memory), 0);
	driver.device = &device.device;
	driver_start(&driver, 0);
	fill(0, DRIVER_DATA, 8, D_WRITE);
	watched = 0;
	expect_turns(16);
	rng_deinit(&device);
}
END_TEST

START_TEST(balloon_pages)
{
	static struct balloon_device device;

	ck_assert_int_eq(balloon_init(&device, &loop, &driver.memory), 0);
	driver.device = &device.device;
	driver_start(&driver, 0);
	fill(BALLOON_QUEUE_INFLATE, DRIVER_DATA, 4, 0);
	watched = BALLOON_QUEUE_INFLATE;
	expect_turns(3 * 4); /* a thousand pages each; it looks at all queues for each notification */
	balloon_deinit(&device);
}
END_TEST

START_TEST(balloon_statistics)
{
	static struct balloon_device device;

	ck_assert_int_eq(balloon_init(&device, &loop, &driver.memory), 0);
	driver.device = &device.device;
	driver_start(&driver, UINT64_C(1) << 1); /* STATS_VQ */
	fill(BALLOON_QUEUE_STATS, DRIVER_DATA, 10, 0);
	watched = BALLOON_QUEUE_STATS;
	counts_clock = true; /* it notes when they came; and so does the loop, a few times */
	expect_turns(3 * 4 + 8);
	counts_clock = false;
	balloon_deinit(&device);
}
END_TEST

/* ---- net ---- */

static int take_header_size(int fd, int size)
{
	(void) fd, (void) size;
	return 0;
}

static int take_offload(int fd, unsigned int flags)
{
	(void) fd, (void) flags;
	return 0;
}

/* _i 0: to the host, which takes what it likes; 1: from a host that sends without end. */
START_TEST(net)
{
	static const struct net_io io = { .set_header_size = take_header_size, .set_offload = take_offload };
	static struct net_device device;
	struct net_config config = { .io = &io, .may_forge_mac = true, .mac = { 2 } };
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
	ck_assert_int_eq(net_init(&device, &loop, &driver.memory, fds[0], &config), 0);
	driver.device = &device.device;
	driver_start(&driver, 0);
	if (_i == 0) {
		fill(NET_QUEUE_TX, DRIVER_DATA, 72, 0);
		watched = NET_QUEUE_TX;
	} else {
		fill(NET_QUEUE_RX, DRIVER_DATA, 4096, D_WRITE);
		watched = NET_QUEUE_RX;
		ck_assert_int_eq((int) send(fds[1], "", 1, 0), 1); /* so that it polls readable */
	}
	tap = fds[0];
	expect_turns(128); /* from the host 64, twice: a turn each for a frame of the TAP and for a notification */
	tap = -1;
	net_deinit(&device);
	(void) fd_close(fds[1]);
}
END_TEST

/* ---- vsock ---- */

static struct vsock_device vsock;
static int host = -1; /* the other end of the one connection */

static int refuse(const char *path)
{
	int fd = unix_connect(path, SOCK_STREAM);

	refill();
	return fd;
}

static int accept_once(const char *path)
{
	int fds[2];

	(void) path;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
	host = fds[1];
	return fds[0];
}

static ssize_t take_one(int fd, const struct iovec *iov, int n)
{
	(void) fd, (void) iov, (void) n;
	refill();
	return 1;
}

/* _i 0: connects that a listener without room refuses; 1: data to a host that takes it; 2: data of a host that has always
 * some; 3: the same for a guest that sends nothing. */
START_TEST(vsock_packets)
{
	static const uint16_t ops[] = { VIRTIO_VSOCK_OP_REQUEST, VIRTIO_VSOCK_OP_RW, VIRTIO_VSOCK_OP_CREDIT_UPDATE,
		VIRTIO_VSOCK_OP_CREDIT_UPDATE };
	struct virtio_vsock_hdr header = { .src_cid = 3, .dst_cid = 2, .src_port = 5, .dst_port = 6, .op = VIRTIO_VSOCK_OP_REQUEST,
		.type = VIRTIO_VSOCK_TYPE_STREAM, .buf_alloc = UINT32_MAX };
	char directory[] = "/tmp/test-turns-XXXXXX", path[64], port[80];
	int full = -1, listen_fd;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	(void) snprintf(path, sizeof(path), "%s/v", directory);
	(void) snprintf(port, sizeof(port), "%s_6", path);
	listen_fd = unix_listen(path, SOCK_STREAM, 0600, 8);
	ck_assert_int_eq(vsock_init(&vsock, &loop, &driver.memory, 3, path, listen_fd), 0);
	driver.device = &vsock.device;
	driver_start(&driver, 0);
	fill(VSOCK_QUEUE_RX, DRIVER_DATA + 0x1000, 4096, D_WRITE);
	if (_i == 0) {
		full = unix_listen(port, SOCK_STREAM, 0600, 0);
		(void) fd_close(unix_connect(port, SOCK_STREAM)); /* the only place in its backlog */
		vsock.io.connect = refuse;
	} else {
		vsock.io.connect = accept_once;
		memcpy(driver_at(&driver, DRIVER_DATA), &header, sizeof(header));
		driver_set_desc(&driver, VSOCK_QUEUE_TX, 0, DRIVER_DATA, sizeof(header), 0, 0);
		*driver_u16(&driver, driver_avail(VSOCK_QUEUE_TX) + 4) = 0;
		*driver_u16(&driver, driver_avail(VSOCK_QUEUE_TX) + 2) = 1;
		kick_all();
		ck_assert_int_eq(loop_step(&parent, 0), 0);
		ck_assert_uint_eq(vsock_stats(&vsock).connections, 1);
		vsock.io.write = vsock.io.read = take_one;
	}
	header.op = ops[_i];
	header.len = _i == 1;
	memcpy(driver_at(&driver, DRIVER_DATA), &header, sizeof(header));
	fill(VSOCK_QUEUE_TX, DRIVER_DATA, (uint32_t) sizeof(header) + header.len, 0);
	*driver_u16(&driver, driver_avail(VSOCK_QUEUE_TX) + 2) = (uint16_t) (*driver_u16(&driver, driver_used(VSOCK_QUEUE_TX) + 2) + DRIVER_N);
	*driver_u16(&driver, driver_avail(VSOCK_QUEUE_RX) + 2) = (uint16_t) (*driver_u16(&driver, driver_used(VSOCK_QUEUE_RX) + 2) + DRIVER_N);
	if (_i >= 2)
		ck_assert_int_eq((int) write(host, "", 1), 1); /* so that it polls readable */
	watched = _i == 3 ? VSOCK_QUEUE_RX : VSOCK_QUEUE_TX;
	expect_turns((_i == 0 ? 2 : 3) * 256); /* a turn each for its two notifications, and for its socket */
	ck_assert_uint_eq(vsock_stats(&vsock).connections, _i == 0 ? 0 : 1);
	vsock_deinit(&vsock);
	host = fd_close(host);
	(void) fd_close(full);
	ck_assert_int_eq(dir_remove(directory), 0);
}
END_TEST

/* ---- disks, which have a thread each ---- */

static struct blk_device blk;
static int64_t blk_until; /* ten seconds: who waits for the lock has it within that, or never */
static bool blk_gave_up;

/* The device's clock, which it asks before each request. */
static int64_t refilling_clock(void)
{
	int64_t now = clock_monotonic_usec();

	if (now > blk_until)
		blk_gave_up = true;
	else if (!blk_gave_up)
		refill();
	n_served = 0; /* no end but that of the time */
	return now;
}

/* The disk's thread is busy, and nobody else: the loop thread, which asks for statistics, pauses and reads what a disk did, gets
 * the device's lock. A chain without a status byte, an operation that there is none of, a flush. */
START_TEST(disk)
{
	static const uint32_t types[] = { VIRTIO_BLK_T_IN, 99, VIRTIO_BLK_T_FLUSH };
	int fd = memfd_create("disk", MFD_CLOEXEC);

	ck_assert_int_eq(ftruncate(fd, 1 << 20), 0);
	ck_assert_int_eq(blk_init(&blk, &driver.memory, fd, false, "s", NULL), 0);
	driver.device = &blk.device;
	blk.clock = refilling_clock;
	blk_until = clock_monotonic_usec() + 10 * USEC_PER_SEC;
	driver_start(&driver, 0);
	memcpy(driver_at(&driver, DRIVER_DATA), &types[_i], sizeof(types[_i]));
	fill(0, DRIVER_DATA, 16, 0);
	driver_set_desc(&driver, 0, 0, DRIVER_DATA, 16, _i == 0 ? 0 : D_NEXT, 1);
	driver_set_desc(&driver, 0, 1, DRIVER_DATA + 0x1000, 1, D_WRITE, 0);
	watched = 0;
	kick_all();
	ck_assert_int_eq(blk_start(&blk, NULL, NULL), 0);
	for (int i = 0; i < 20;) {
		struct blk_stats stats = blk_stats(&blk);

		if (stats.errors + stats.flushes > 0) /* it has begun */
			i++;
	}
	ck_assert_int_eq(blk_pause(&blk, clock_monotonic_usec() + 10 * USEC_PER_SEC), 0);
	blk_resume(&blk);
	ck_assert_int_eq(blk_stop(&blk, clock_monotonic_usec() + 10 * USEC_PER_SEC), 0);
	ck_assert(!blk_gave_up);
	ck_assert(!driver_needs_reset(&driver));
	blk_deinit(&blk);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-turns");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, rng);
	tcase_add_test(tcase, balloon_pages);
	tcase_add_test(tcase, balloon_statistics);
	tcase_add_loop_test(tcase, net, 0, 2);
	tcase_add_loop_test(tcase, vsock_packets, 0, 4);
	tcase_add_loop_test(tcase, disk, 0, 3);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
