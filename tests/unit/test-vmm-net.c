/* SPDX-License-Identifier: Apache-2.0
 *
 * The network device with a socket in the place of a TAP: frames in both directions, offloads by what the driver
 * acknowledged (R089), buffers that do not fit, a pinned address, limits on a virtual clock.
 */
#include <check.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "lib/suite.h"
#include "lib/vmm-driver.h"
#include "virtio/net.h"

static struct driver driver;
static struct net_device net;
static struct loop loop;
static int host; /* the other end of the TAP */

#define RX NET_QUEUE_RX
#define TX NET_QUEUE_TX
#define F(name) (UINT64_C(1) << VIRTIO_NET_F_##name)
#define FRAME_AT (DRIVER_DATA + 0x1000)
#define BUFFERS_AT (DRIVER_DATA + 0x100000)

static const uint8_t mac[] = { 0x02, 0, 0, 0, 0, 1 };
static unsigned int offloads[64];
static unsigned int n_offloads;
static int header_size;
static int64_t now;

static int fake_header_size(int fd, int size)
{
	(void) fd;
	header_size = size;
	return 0;
}

static int fake_offload(int fd, unsigned int flags)
{
	(void) fd;
	offloads[n_offloads++ % ARRAY_LEN(offloads)] = flags;
	return 0;
}

static const struct net_io io = { .set_header_size = fake_header_size, .set_offload = fake_offload };

static int64_t fake_clock(void)
{
	return now;
}

static void set_up_with(const struct net_config *config)
{
	int fds[2];

	n_offloads = 0;
	now = 1000000;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
	host = fds[1];
	ck_assert_int_eq(loop_init(&loop), 0);
	ck_assert_int_eq(memory_init(&driver.memory, DRIVER_MIB, NULL), 0);
	ck_assert_int_eq(net_init(&net, &loop, &driver.memory, fds[0], config), 0);
	driver.device = &net.device;
	ck_assert_int_eq(header_size, 12);
	ck_assert_uint_eq(n_offloads, 1);
	ck_assert_uint_eq(offloads[0], 0);
}

static void set_up(void)
{
	struct net_config config = { .io = &io };

	memcpy(config.mac, mac, sizeof(mac));
	set_up_with(&config);
}

static void tear_down(void)
{
	net_deinit(&net);
	memory_deinit(&driver.memory);
	loop_deinit(&loop);
	host = fd_close(host);
}

static void step(void)
{
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(loop_step(&loop, 0), 0);
}

static uint8_t pattern(size_t i)
{
	return (uint8_t) (i * 7 + (i >> 8));
}

/* Header and frame of `size` bytes behind the header, from `from`. */
static size_t make_frame(uint8_t *at, size_t size, const uint8_t *from, uint8_t flags, uint8_t gso)
{
	struct virtio_net_hdr_v1 header = { .flags = flags, .gso_type = gso, .num_buffers = 99 };

	memcpy(at, &header, sizeof(header));
	for (size_t i = 0; i < size; i++)
		at[12 + i] = pattern(i);
	if (size >= 12)
		memcpy(at + 12 + 6, from, 6);
	return 12 + size;
}

/* ---- from the guest ---- */

/* Sends header and frame in one descriptor; what the host gets, 0: nothing. */
static size_t send_frame(size_t size, const uint8_t *from, uint8_t flags, uint8_t gso, uint8_t *ret)
{
	size_t n = make_frame(driver_at(&driver, FRAME_AT), size, from, flags, gso);
	ssize_t got;

	driver_set_desc(&driver, TX, 0, FRAME_AT, (uint32_t) n, 0, 0);
	driver_push(&driver, TX, 0);
	driver_write(&driver, 0x50, TX);
	step();
	ck_assert_int_eq(driver_pop(&driver, TX, NULL), 0); /* in any case it is given back */
	got = recv(host, ret, NET_FRAME_MAX + 12, 0);
	return got < 0 ? 0 : (size_t) got;
}

static uint8_t in[NET_FRAME_MAX + 12];

START_TEST(tx_sizes)
{
	static const size_t sizes[] = { 14, 15, 60, 1514, 4096, 65535, 65550, 65600 };

	driver_start(&driver, 0);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		ck_assert_uint_eq(send_frame(sizes[i], mac, 0, 0, in), sizes[i] + 12);
		ck_assert_mem_eq(in + 12, (uint8_t *) driver_at(&driver, FRAME_AT) + 12, sizes[i]);
		ck_assert_uint_eq(in[10] | in[11], 0); /* num_buffers is not the guest's to set */
	}
	ck_assert_uint_eq(net_stats(&net).tx_frames, ARRAY_LEN(sizes));
	ck_assert(driver_interrupted(&driver));
	/* a gigabyte: 64 descriptors cannot lie about it, 16 can */
	for (unsigned int i = 0; i < DRIVER_N; i++)
		driver_set_desc(&driver, TX, i, DRIVER_DATA, 32 << 20, i + 1 < DRIVER_N ? D_NEXT : 0, i + 1);
	driver_push(&driver, TX, 0);
	driver_write(&driver, 0x50, TX);
	step();
	ck_assert_int_eq(driver_pop(&driver, TX, NULL), 0);
	ck_assert_uint_eq(net_stats(&net).tx_invalid, 1);
	ck_assert_int_lt((int) recv(host, in, sizeof(in), 0), 0);
}
END_TEST

/* Cut anywhere, also within the header and the addresses. */
START_TEST(tx_pieces)
{
	size_t n = make_frame(driver_at(&driver, FRAME_AT), 100, mac, 0, 0);

	driver_start(&driver, FEATURE_INDIRECT_DESC | FEATURE_EVENT_IDX);
	for (uint32_t cut = 1; cut < n - 1; cut++) {
		driver_set_desc(&driver, TX, 0, FRAME_AT, cut, D_NEXT, 1);
		driver_set_desc(&driver, TX, 1, FRAME_AT + cut, 1, D_NEXT, 2);
		driver_set_desc(&driver, TX, 2, FRAME_AT + cut + 1, (uint32_t) n - cut - 1, 0, 0);
		driver_push(&driver, TX, 0);
		driver_write(&driver, 0x50, TX);
		step();
		ck_assert_int_eq(driver_pop(&driver, TX, NULL), 0);
		ck_assert_int_eq((int) recv(host, in, sizeof(in), 0), (int) n);
		ck_assert_mem_eq(in + 12, (uint8_t *) driver_at(&driver, FRAME_AT) + 12, 100);
	}
}
END_TEST

static const struct {
	uint64_t features;
	uint8_t flags, gso;
	bool is_sent;
} tx_offloads[] = {
	{ 0, 0, 0, true },
	{ 0, VIRTIO_NET_HDR_F_DATA_VALID | 0x80, 0, true }, /* bits without a meaning are ignored */
	{ 0, VIRTIO_NET_HDR_F_NEEDS_CSUM, 0, false },
	{ F(CSUM), VIRTIO_NET_HDR_F_NEEDS_CSUM, 0, true },
	{ F(CSUM), VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV4, false },
	{ F(CSUM) | F(HOST_TSO4), VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV4, true },
	{ F(CSUM) | F(HOST_TSO4), 0, VIRTIO_NET_HDR_GSO_TCPV4, false },
	{ F(CSUM) | F(HOST_TSO4), VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV6, false },
	{ F(CSUM) | F(HOST_TSO6), VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV6, true },
	{ F(CSUM) | F(HOST_TSO4) | F(HOST_TSO6), VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_UDP, false },
	{ F(CSUM) | F(HOST_TSO4), VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV4 | VIRTIO_NET_HDR_GSO_ECN, false },
	{ F(CSUM) | F(HOST_TSO4) | F(HOST_TSO6), VIRTIO_NET_HDR_F_NEEDS_CSUM, 0xff, false },
};

START_TEST(tx_offload)
{
	size_t n;

	driver_start(&driver, tx_offloads[_i].features);
	n = send_frame(2000, mac, tx_offloads[_i].flags, tx_offloads[_i].gso, in);
	ck_assert_uint_eq(n, tx_offloads[_i].is_sent ? 2012 : 0);
	ck_assert_uint_eq(net_stats(&net).tx_invalid, !tx_offloads[_i].is_sent);
	if (n > 0) {
		ck_assert_uint_eq(in[0], tx_offloads[_i].flags & VIRTIO_NET_HDR_F_NEEDS_CSUM);
		ck_assert_uint_eq(in[1], tx_offloads[_i].gso);
	}
	ck_assert(!driver_needs_reset(&driver));
}
END_TEST

START_TEST(tx_invalid)
{
	static const uint32_t lens[] = { 0, 1, 11, 12, 13, 25 };

	driver_start(&driver, 0);
	(void) make_frame(driver_at(&driver, FRAME_AT), 100, mac, 0, 0);
	for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
		driver_set_desc(&driver, TX, 0, FRAME_AT, lens[i], 0, 0);
		driver_push(&driver, TX, 0);
	}
	driver_set_desc(&driver, TX, 1, FRAME_AT, 112, D_WRITE, 0); /* nothing to read */
	driver_push(&driver, TX, 1);
	driver_set_desc(&driver, TX, 2, FRAME_AT, 26, D_NEXT, 3);
	driver_set_desc(&driver, TX, 3, DRIVER_END - 8, 16, 0, 0);
	driver_push(&driver, TX, 2);
	driver_write(&driver, 0x50, TX);
	step();
	ck_assert_int_lt((int) recv(host, in, sizeof(in), 0), 0);
	ck_assert_uint_eq(net_stats(&net).tx_invalid, ARRAY_LEN(lens) + 2);
	ck_assert_uint_eq(net.device.queues[TX].bad_gpa, 1);
	ck_assert(!driver_needs_reset(&driver));
	while (driver_pop(&driver, TX, NULL) >= 0)
		;
	ck_assert_uint_eq(send_frame(60, mac, 0, 0, in), 72);
}
END_TEST

START_TEST(tx_mac)
{
	static const uint8_t others[][6] = { { 0x02, 0, 0, 0, 0, 2 }, { 0x03, 0, 0, 0, 0, 1 }, { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff },
		{ 0 } };
	struct net_config config = { .may_forge_mac = true, .io = &io };

	driver_start(&driver, 0);
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		ck_assert_uint_eq(send_frame(60, others[i], 0, 0, in), 0);
	ck_assert_uint_eq(net_stats(&net).tx_wrong_mac, ARRAY_LEN(others));
	ck_assert_uint_eq(send_frame(60, mac, 0, 0, in), 72);
	tear_down();
	memcpy(config.mac, mac, sizeof(mac));
	set_up_with(&config);
	driver_start(&driver, 0);
	ck_assert_uint_eq(send_frame(60, others[0], 0, 0, in), 72);
}
END_TEST

static atomic_bool flip_stop;

static void *flip(void *data)
{
	uint8_t *at = driver_at(&driver, FRAME_AT);

	(void) data;
	for (uint8_t i = 0; !atomic_load(&flip_stop); i++) {
		__atomic_store_n(at + 12 + 11, (uint8_t) (i & 1 ? 1 : 0x77), __ATOMIC_RELAXED);
		__atomic_store_n(at + 1, (uint8_t) (i & 2 ? 0 : VIRTIO_NET_HDR_GSO_TCPV4), __ATOMIC_RELAXED);
	}
	return NULL;
}

/* R092: another vCPU rewrites address and offload while they are judged. What arrives was judged. */
START_TEST(tx_flips)
{
	unsigned int arrived = 0;
	pthread_t thread;

	driver_start(&driver, 0);
	(void) make_frame(driver_at(&driver, FRAME_AT), 60, mac, 0, 0);
	driver_set_desc(&driver, TX, 0, FRAME_AT, 72, 0, 0);
	atomic_store(&flip_stop, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, flip, NULL), 0);
	for (int i = 0; i < 20000; i++) {
		driver_push(&driver, TX, 0);
		driver_write(&driver, 0x50, TX);
		ck_assert_int_eq(loop_step(&loop, 0), 0);
		(void) driver_pop(&driver, TX, NULL);
		while (recv(host, in, sizeof(in), 0) > 0) {
			ck_assert_mem_eq(in + 12 + 6, mac, 6);
			ck_assert_uint_eq(in[1], 0);
			arrived++;
		}
	}
	atomic_store(&flip_stop, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(net_stats(&net).tx_frames, arrived);
}
END_TEST

/* The host takes nothing: dropped and counted, the guest gets its buffers back, nothing waits. */
START_TEST(tx_host_full)
{
	unsigned int sent = 0;

	driver_start(&driver, 0);
	(void) make_frame(driver_at(&driver, FRAME_AT), 60000, mac, 0, 0);
	driver_set_desc(&driver, TX, 0, FRAME_AT, 60012, 0, 0);
	for (int i = 0; i < 100; i++) {
		driver_push(&driver, TX, 0);
		driver_write(&driver, 0x50, TX);
		step();
		ck_assert_int_eq(driver_pop(&driver, TX, NULL), 0);
	}
	while (recv(host, in, sizeof(in), 0) > 0)
		sent++;
	ck_assert_uint_eq(net_stats(&net).tx_frames, sent);
	ck_assert_uint_eq(net_stats(&net).tx_refused, 100 - sent);
	ck_assert_uint_gt(net_stats(&net).tx_refused, 50);
}
END_TEST

/* ---- what the TAP is told ---- */

/* R089: all that a driver can acknowledge, and nothing is left over from the driver before. */
START_TEST(offloads_follow_the_driver)
{
	for (unsigned int round = 0; round < 2; round++)
		for (unsigned int bits = 0; bits < 8; bits++) {
			uint64_t features = (bits & 1 ? F(GUEST_CSUM) : 0) | (bits & 2 ? F(GUEST_TSO4) : 0) |
				(bits & 4 ? F(GUEST_TSO6) : 0);
			unsigned int expected = 0;

			if (bits & 1)
				expected = TUN_F_CSUM | (bits & 2 ? TUN_F_TSO4 : 0u) | (bits & 4 ? TUN_F_TSO6 : 0u);
			n_offloads = 0;
			driver_negotiate(&driver, features);
			step();
			ck_assert_uint_eq(n_offloads, 0); /* not before DRIVER_OK */
			driver_start(&driver, features | F(CSUM) | F(HOST_TSO4) | F(MRG_RXBUF));
			step();
			step();
			ck_assert_uint_eq(n_offloads, 1);
			ck_assert_uint_eq(offloads[0], expected);
		}
}
END_TEST

/* ---- to the guest ---- */

/* Buffers of `size` bytes, as descriptors first .. first + n - 1. */
static void give_more(unsigned int first, unsigned int n, uint32_t size)
{
	for (unsigned int i = first; i < first + n; i++) {
		driver_set_desc(&driver, RX, i, BUFFERS_AT + (uint64_t) i * 0x10000, size, D_WRITE, 0);
		driver_push(&driver, RX, i);
	}
	driver_write(&driver, 0x50, RX);
	step();
}

static void give_buffers(unsigned int n, uint32_t size)
{
	give_more(0, n, size);
}

static void host_sends(size_t size, uint8_t flags, uint8_t gso)
{
	static uint8_t out[NET_FRAME_MAX + 12];
	size_t n = make_frame(out, size, mac, flags, gso);

	ck_assert_int_eq((int) send(host, out, n, 0), (int) n);
	step();
}

/* Takes one frame out of the buffers: its bytes behind the header, 0 for none; the header to *ret. */
static size_t guest_takes(struct virtio_net_hdr_v1 *ret, bool is_merged)
{
	size_t total = 0;

	for (unsigned int i = 0; i == 0 || (is_merged && i < ret->num_buffers); i++) {
		uint32_t head;
		int64_t n = driver_pop(&driver, RX, &head);
		const uint8_t *at = (uint8_t *) driver_at(&driver, BUFFERS_AT + (uint64_t) head * 0x10000);

		if (n < 0)
			return 0;
		if (i == 0) {
			ck_assert_int_ge(n, 12);
			memcpy(ret, at, sizeof(*ret));
		}
		for (int64_t j = i == 0 ? 12 : 0; j < n; j++, total++)
			if ((total < 6 || total >= 12) && at[j] != pattern(total)) /* check writes a message per assertion */
				ck_abort_msg("byte %zu is 0x%x", total, at[j]);
	}
	return total;
}

static const struct {
	uint64_t features;
	uint8_t flags, gso;
	bool is_delivered;
	uint8_t flags_then;
} rx_offloads[] = {
	{ 0, 0, 0, true, 0 },
	{ 0, VIRTIO_NET_HDR_F_DATA_VALID, 0, true, 0 },
	{ 0, VIRTIO_NET_HDR_F_NEEDS_CSUM, 0, false, 0 },
	{ F(GUEST_CSUM), VIRTIO_NET_HDR_F_NEEDS_CSUM, 0, true, VIRTIO_NET_HDR_F_NEEDS_CSUM },
	{ F(GUEST_CSUM), VIRTIO_NET_HDR_F_DATA_VALID, 0, true, VIRTIO_NET_HDR_F_DATA_VALID },
	{ F(GUEST_CSUM), VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV4, false, 0 },
	{ F(GUEST_CSUM) | F(GUEST_TSO4), VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV4, true,
		VIRTIO_NET_HDR_F_NEEDS_CSUM },
	{ F(GUEST_CSUM) | F(GUEST_TSO4), VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV6, false, 0 },
	{ F(GUEST_CSUM) | F(GUEST_TSO6), VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV6, true,
		VIRTIO_NET_HDR_F_NEEDS_CSUM },
	{ F(GUEST_CSUM) | F(GUEST_TSO4) | F(GUEST_TSO6), VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_UDP, false, 0 },
};

START_TEST(rx_offload)
{
	struct virtio_net_hdr_v1 header;
	size_t n;

	driver_start(&driver, rx_offloads[_i].features);
	give_buffers(4, 4096);
	host_sends(1000, rx_offloads[_i].flags, rx_offloads[_i].gso);
	n = guest_takes(&header, false);
	ck_assert_uint_eq(n, rx_offloads[_i].is_delivered ? 1000 : 0);
	ck_assert_uint_eq(net_stats(&net).rx_invalid, !rx_offloads[_i].is_delivered);
	if (n == 0)
		return;
	ck_assert_uint_eq(header.num_buffers, 1);
	ck_assert_uint_eq(header.flags, rx_offloads[_i].flags_then);
	ck_assert_uint_eq(header.gso_type, rx_offloads[_i].gso);
	ck_assert(driver_interrupted(&driver));
}
END_TEST

START_TEST(rx_merged)
{
	static const size_t sizes[] = { 14, 1000, 1513, 1514, 1515, 3040, 20000, 24404 };
	struct virtio_net_hdr_v1 header;

	driver_start(&driver, F(MRG_RXBUF) | FEATURE_EVENT_IDX);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		give_buffers(DRIVER_N, 1526);
		host_sends(sizes[i], 0, 0);
		ck_assert_uint_eq(guest_takes(&header, true), sizes[i]);
		ck_assert_uint_eq(header.num_buffers, (sizes[i] + 12 + 1525) / 1526);
		driver_start(&driver, F(MRG_RXBUF)); /* the buffers that are left go */
	}
	give_buffers(DRIVER_N, 8192);
	host_sends(65550, 0, 0);
	ck_assert_uint_eq(guest_takes(&header, true), 65550);
	ck_assert_uint_eq(header.num_buffers, 9);
}
END_TEST

#define PIECES 14u /* buffers that the frame below takes */

struct watch {
	atomic_bool stop;
	unsigned int n_seen, n_torn;
};

/* As a driver that polls on another vCPU: what it sees must be whole frames. */
static void *watch_used(void *data)
{
	struct watch *watch = data;
	const uint16_t *index = (uint16_t *) driver_at(&driver, driver_used(RX) + 2);
	uint16_t last = 0;

	while (!atomic_load_explicit(&watch->stop, memory_order_relaxed)) {
		uint16_t index_now = __atomic_load_n(index, __ATOMIC_ACQUIRE);

		if (index_now == last)
			continue;
		watch->n_seen++;
		watch->n_torn += index_now % PIECES != 0;
		last = index_now;
	}
	return NULL;
}

/* 5.1.6.3.2: all buffers of a packet become used together. */
START_TEST(rx_merged_at_once)
{
	struct watch watch = { .n_seen = 0 };
	struct virtio_net_hdr_v1 header;
	pthread_t thread;

	driver_start(&driver, F(MRG_RXBUF));
	ck_assert_int_eq(pthread_create(&thread, NULL, watch_used, &watch), 0);
	for (int i = 0; i < 200; i++) { /* the index does not wrap: 14 is no divisor of 2^16 */
		give_buffers(PIECES, 1526);
		host_sends(20000 + 500, 0, 0);
		ck_assert_uint_eq(guest_takes(&header, true), 20500);
		ck_assert_uint_eq(header.num_buffers, PIECES);
	}
	atomic_store(&watch.stop, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_gt(watch.n_seen, 0);
	ck_assert_uint_eq(watch.n_torn, 0);
}
END_TEST

/* R089: a frame that fits no buffer, and one that fits not all of them. Dropped, counted, the next one comes through. */
START_TEST(rx_too_large)
{
	struct virtio_net_hdr_v1 header;
	bool is_merged = _i;

	driver_start(&driver, is_merged ? F(MRG_RXBUF) : 0);
	give_buffers(DRIVER_N, 1526);
	for (int i = 0; i < 2 * DRIVER_N; i++) /* each takes a look at the buffers, and none away */
		host_sends(65550, 0, 0);
	ck_assert_uint_eq(net_stats(&net).rx_no_room, 2 * DRIVER_N);
	host_sends(1500, 0, 0);
	ck_assert_uint_eq(guest_takes(&header, is_merged), 1500);
	ck_assert_uint_eq(net_stats(&net).rx_frames, 1);
	ck_assert(!driver_needs_reset(&driver));
}
END_TEST

/* Without buffers nothing is read, and the loop has nothing to do; with too few a frame waits once. */
START_TEST(rx_waits)
{
	struct virtio_net_hdr_v1 header;

	driver_start(&driver, F(MRG_RXBUF));
	host_sends(3000, 0, 0);
	host_sends(1000, 0, 0);
	ck_assert_uint_eq(net.tap.events, 0);
	give_buffers(1, 1526);
	ck_assert_int_eq(driver_pop(&driver, RX, NULL), -1);
	ck_assert_uint_eq(net.tap.events, 0);
	give_more(1, 1, 1526);
	ck_assert_uint_eq(net_stats(&net).rx_frames, 1);
	ck_assert_uint_eq(guest_takes(&header, true), 3000);
	ck_assert_uint_eq(net.tap.events, 0);
	give_more(2, 1, 1526);
	ck_assert_uint_eq(guest_takes(&header, true), 1000);
	ck_assert_uint_eq(net_stats(&net).rx_bytes, 4000);
	ck_assert_uint_eq(net.tap.events, EPOLLIN);
	/* too few twice: dropped, and the next one is served */
	driver_start(&driver, F(MRG_RXBUF));
	step();
	host_sends(60000, 0, 0);
	host_sends(100, 0, 0);
	give_buffers(1, 1526);
	ck_assert_uint_eq(net_stats(&net).rx_no_room, 0);
	give_more(1, 1, 1526);
	ck_assert_uint_eq(net_stats(&net).rx_no_room, 1);
	ck_assert_uint_eq(guest_takes(&header, true), 100);
}
END_TEST

/* Buffers that hold not even a header, and those that are not RAM, come back empty. */
START_TEST(rx_useless_buffers)
{
	struct virtio_net_hdr_v1 header;

	driver_start(&driver, _i ? F(MRG_RXBUF) : 0);
	driver_set_desc(&driver, RX, 0, BUFFERS_AT, 11, D_WRITE, 0);
	driver_set_desc(&driver, RX, 1, DRIVER_END - 100, 4096, D_WRITE, 0);
	driver_set_desc(&driver, RX, 2, BUFFERS_AT, 4096, 0, 0);
	driver_set_desc(&driver, RX, 3, BUFFERS_AT + 0x30000, 4096, D_WRITE, 0);
	for (unsigned int i = 0; i < 4; i++)
		driver_push(&driver, RX, i);
	driver_write(&driver, 0x50, RX);
	host_sends(500, 0, 0);
	for (unsigned int i = 0; i < 3; i++)
		ck_assert_int_eq(driver_pop(&driver, RX, NULL), 0);
	ck_assert_uint_eq(guest_takes(&header, false), 500);
	ck_assert(!driver_needs_reset(&driver));
}
END_TEST

/* A ring full of such: the device asks for a notification before it goes to rest. A driver that event indices keep from
 * notifying unasked would else wait for ever with the frame. */
START_TEST(rx_a_ring_of_useless_buffers)
{
	const uint16_t *event = driver_at(&driver, driver_used(RX) + 4 + DRIVER_N * 8);
	struct virtio_net_hdr_v1 header;

	driver_start(&driver, FEATURE_EVENT_IDX | (_i ? F(MRG_RXBUF) : 0));
	give_buffers(DRIVER_N, 11);
	host_sends(500, 0, 0);
	for (unsigned int i = 0; i < DRIVER_N; i++)
		ck_assert_int_eq(driver_pop(&driver, RX, NULL), 0);
	driver_set_desc(&driver, RX, 0, BUFFERS_AT, 4096, D_WRITE, 0);
	driver_push(&driver, RX, 0);
	ck_assert_uint_eq(*event, (uint16_t) (driver.avail[RX] - 1));
	driver_write(&driver, 0x50, RX);
	step();
	ck_assert_uint_eq(guest_takes(&header, false), 500);
}
END_TEST

START_TEST(rx_runts)
{
	driver_start(&driver, 0);
	give_buffers(4, 4096);
	for (size_t n = 1; n < 26; n++)
		ck_assert_int_eq((int) send(host, in, n, 0), (int) n);
	for (int i = 0; i < 10; i++)
		step();
	ck_assert_uint_eq(net_stats(&net).rx_invalid, 25);
	ck_assert_int_eq(driver_pop(&driver, RX, NULL), -1);
}
END_TEST

/* A reset while a frame waits: the next driver does not get it, and a broken ring serves nobody. */
START_TEST(resets)
{
	struct virtio_net_hdr_v1 header;

	driver_start(&driver, F(MRG_RXBUF));
	step();
	host_sends(3000, 0, 0);
	driver_write(&driver, 0x70, 0);
	step();
	ck_assert_uint_eq(net.tap.events, 0);
	driver_start(&driver, 0);
	give_buffers(2, 4096);
	ck_assert_int_eq(driver_pop(&driver, RX, NULL), -1);
	host_sends(100, 0, 0);
	ck_assert_uint_eq(guest_takes(&header, false), 100);
	driver_push(&driver, TX, 99);
	driver_write(&driver, 0x50, TX);
	step();
	ck_assert(driver_needs_reset(&driver));
	ck_assert_uint_eq(net.tap.events, 0);
	host_sends(100, 0, 0);
	ck_assert_int_eq(driver_pop(&driver, RX, NULL), -1);
}
END_TEST

/* The TAP goes away, with a driver or without: told once, and the loop does not spin on it. */
START_TEST(tap_gone)
{
	if (_i) {
		driver_start(&driver, 0);
		give_buffers(2, 4096);
	}
	host = fd_close(host);
	step();
	ck_assert(net.is_gone);
	ck_assert_int_eq(net.tap.fd, -1);
	driver_start(&driver, 0);
	ck_assert_uint_eq(net_stats(&net).tx_refused, 0);
	host = dup(0); /* something to read from */
	driver_set_desc(&driver, TX, 0, FRAME_AT, 72, 0, 0);
	(void) make_frame(driver_at(&driver, FRAME_AT), 60, mac, 0, 0);
	driver_push(&driver, TX, 0);
	driver_write(&driver, 0x50, TX);
	step();
	ck_assert_int_eq(driver_pop(&driver, TX, NULL), 0);
	ck_assert_uint_eq(net_stats(&net).tx_refused, 1);
}
END_TEST

/* ---- limits ---- */

/* 10 frames at once and 5 more each second, on a clock of ours: counts, no times. */
START_TEST(limit_from_guest)
{
	struct net_config config = { .io = &io, .from_guest = { .ops = 5, .ops_burst = 10 } };

	tear_down();
	memcpy(config.mac, mac, sizeof(mac));
	set_up_with(&config);
	net.clock = fake_clock;
	rate_init(&net.from_guest, &config.from_guest, now);
	driver_start(&driver, 0);
	(void) make_frame(driver_at(&driver, FRAME_AT), 60, mac, 0, 0);
	driver_set_desc(&driver, TX, 0, FRAME_AT, 72, 0, 0);
	for (int i = 0; i < DRIVER_N; i++)
		driver_push(&driver, TX, 0);
	driver_write(&driver, 0x50, TX);
	step();
	ck_assert_uint_eq(net_stats(&net).tx_frames, 10);
	ck_assert_uint_eq(net_stats(&net).throttled, 1);
	for (int i = 0; i < 20; i++) { /* asking again and again changes nothing, nor does a reset */
		driver_write(&driver, 0x50, TX);
		step();
	}
	ck_assert_uint_eq(net_stats(&net).tx_frames, 10);
	now += 400000; /* two tokens */
	net.from_guest_timer.deadline_usec = 0;
	step();
	ck_assert_uint_eq(net_stats(&net).tx_frames, 12);
	now += 100000000;
	net.from_guest_timer.deadline_usec = 0;
	step();
	ck_assert_uint_eq(net_stats(&net).tx_frames, DRIVER_N);
}
END_TEST

/* What is dropped costs like what is sent, or rubbish would be looked at without end: frames too large for any host, by
 * number and by bytes. */
START_TEST(limit_from_guest_of_rubbish)
{
	struct net_config config = { .io = &io };

	if (_i)
		config.from_guest = (struct rate_config) { .bytes = 1, .bytes_burst = 3 * NET_FRAME_MAX };
	else
		config.from_guest = (struct rate_config) { .ops = 1, .ops_burst = 3 };
	tear_down();
	memcpy(config.mac, mac, sizeof(mac));
	set_up_with(&config);
	net.clock = fake_clock;
	rate_init(&net.from_guest, &config.from_guest, now);
	driver_start(&driver, 0);
	driver_set_desc(&driver, TX, 0, FRAME_AT, NET_FRAME_MAX + 4096, 0, 0);
	for (int i = 0; i < DRIVER_N; i++)
		driver_push(&driver, TX, 0);
	driver_write(&driver, 0x50, TX);
	step();
	ck_assert_uint_eq(net_stats(&net).tx_invalid, 3);
	ck_assert_uint_eq(net_stats(&net).throttled, 1);
}
END_TEST

START_TEST(limit_to_guest)
{
	struct net_config config = { .io = &io, .to_guest = { .bytes = 1000, .bytes_burst = 3000 } };

	tear_down();
	memcpy(config.mac, mac, sizeof(mac));
	set_up_with(&config);
	net.clock = fake_clock;
	rate_init(&net.to_guest, &config.to_guest, now);
	driver_start(&driver, 0);
	give_buffers(DRIVER_N, 4096);
	for (int i = 0; i < 8; i++)
		host_sends(1000, 0, 0);
	ck_assert_uint_eq(net_stats(&net).rx_frames, 3);
	ck_assert_uint_eq(net.tap.events, 0); /* the host's queue fills, not ours */
	now += 999;
	net.to_guest_timer.deadline_usec = 0;
	step();
	ck_assert_uint_eq(net_stats(&net).rx_frames, 3);
	now += 2000000; /* 2000.999 tokens: two frames, and what is left is no whole one */
	net.to_guest_timer.deadline_usec = 0;
	step();
	ck_assert_uint_eq(net_stats(&net).rx_frames, 5);
	now += 1;
	net.to_guest_timer.deadline_usec = 0;
	step();
	ck_assert_uint_eq(net_stats(&net).rx_frames, 6);
}
END_TEST

START_TEST(config_space)
{
	uint8_t bytes[8];

	for (uint32_t offset = 0; offset < 6; offset++) {
		mmio_read(&net.device, 0x100 + offset, bytes, 1);
		ck_assert_uint_eq(bytes[0], mac[offset]);
	}
	mmio_read(&net.device, 0x104, bytes, 4);
	ck_assert_mem_eq(bytes, "\0\1\0\0", 4);
	memset(bytes, 0xff, sizeof(bytes));
	mmio_write(&net.device, 0x100, bytes, 4);
	mmio_read(&net.device, 0x100, bytes, 4);
	ck_assert_mem_eq(bytes, mac, 4);
}
END_TEST

/* A driver that never made its receive queue ready gets no frames, and the loop rests all the same. */
START_TEST(frame_without_a_queue)
{
	uint8_t frame[12 + 60];
	int turns = 0;

	driver_negotiate(&driver, _i == 0 ? 0 : F(MRG_RXBUF));
	driver_write(&driver, 0x70, 15);
	step();
	(void) make_frame(frame, 60, mac, 0, 0);
	ck_assert_int_eq((int) send(host, frame, sizeof(frame), 0), (int) sizeof(frame));
	do {
		struct epoll_event event;

		ck_assert_int_eq(loop_step(&loop, 0), 0);
		if (epoll_wait(loop.epoll_fd, &event, 1, 0) == 0)
			break;
	} while (++turns < 20);
	ck_assert_int_lt(turns, 20);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-net");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 300); /* under TSan, on a busy machine */
	tcase_add_test(tcase, tx_sizes);
	tcase_add_loop_test(tcase, frame_without_a_queue, 0, 2);
	tcase_add_test(tcase, tx_pieces);
	tcase_add_loop_test(tcase, tx_offload, 0, ARRAY_LEN(tx_offloads));
	tcase_add_test(tcase, tx_invalid);
	tcase_add_test(tcase, tx_mac);
	tcase_add_test(tcase, tx_flips);
	tcase_add_test(tcase, tx_host_full);
	tcase_add_test(tcase, offloads_follow_the_driver);
	tcase_add_loop_test(tcase, rx_offload, 0, ARRAY_LEN(rx_offloads));
	tcase_add_test(tcase, rx_merged);
	tcase_add_test(tcase, rx_merged_at_once);
	tcase_add_loop_test(tcase, rx_too_large, 0, 2);
	tcase_add_test(tcase, rx_waits);
	tcase_add_loop_test(tcase, rx_useless_buffers, 0, 2);
	tcase_add_loop_test(tcase, rx_a_ring_of_useless_buffers, 0, 2);
	tcase_add_test(tcase, rx_runts);
	tcase_add_test(tcase, resets);
	tcase_add_loop_test(tcase, tap_gone, 0, 2);
	tcase_add_test(tcase, limit_from_guest);
	tcase_add_loop_test(tcase, limit_from_guest_of_rubbish, 0, 2);
	tcase_add_test(tcase, limit_to_guest);
	tcase_add_test(tcase, config_space);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
