/* SPDX-License-Identifier: Apache-2.0
 *
 * A virtio device under a script of driver operations: registers, rings, chains, buffers, notifications, turns of the
 * loop. Built once for each device (FUZZ_BLK, FUZZ_RNG, FUZZ_VSOCK, FUZZ_NET,
 * FUZZ_BALLOON). What must hold: no access outside guest memory
 * (AddressSanitizer, and nothing is mapped behind it), no endless turn, a disk that keeps its size, and a device that
 * comes up again after a reset; no frame leaves that has another source than the guest's address or asks for what was not
 * negotiated; a balloon that never holds more than there is.
 */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_net.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/log.h"
#include "virtio/balloon.h"
#include "virtio/blk.h"
#include "virtio/mmio.h"
#include "virtio/net.h"
#include "virtio/rng.h"
#include "virtio/vsock.h"

#define MIB 64
#define END ((uint64_t) MIB << 20)
#define RING(q) (UINT64_C(0x100000) + (q) * UINT64_C(0x10000))
#define DATA UINT64_C(0x200000)
#define DISK_SIZE (64 * 512)

static struct memory memory;
static struct loop loop;
static struct device *device;
static uint16_t avail[DEVICE_QUEUES_MAX];

#if defined(FUZZ_NET) || defined(FUZZ_BALLOON)
#define N_OPERATIONS 16 /* two more: the host's side, and what only this device's drivers do */
static void write32(uint64_t offset, uint32_t value);
static void make_available(unsigned int q, uint16_t head);
#else
#define N_OPERATIONS 14
#endif
#if defined(FUZZ_NET)
static uint32_t length(struct script *script);
#endif

/* ---- the device ---- */

#if defined(FUZZ_BLK)
static struct blk_device blk;

static void make(void)
{
	int fd = memfd_create("disk", MFD_CLOEXEC);

	CLAIM(ftruncate(fd, DISK_SIZE) == 0 && blk_init(&blk, &memory, fd, false, "fuzz", NULL) == 0);
	device = &blk.device;
}
static void serve(void)
{
	blk_serve(&blk);
}
static void destroy(void)
{
	CLAIM(lseek(blk.fd, 0, SEEK_END) == DISK_SIZE);
	blk_deinit(&blk);
}
#elif defined(FUZZ_RNG)
static struct rng_device rng;

static void make(void)
{
	CLAIM(rng_init(&rng, &loop, &memory) == 0);
	device = &rng.device;
}
static void serve(void)
{
	CLAIM(loop_step(&loop, 0) == 0);
}
static void destroy(void)
{
	rng_deinit(&rng);
}
#elif defined(FUZZ_VSOCK)
static struct vsock_device vsock;
static int listener;

/* Instead of unix sockets: a pair whose other end is never read, refused ports, and a broken connect(). */
static int fake_connect(const char *path)
{
	static int other[2];
	int fds[2];
	size_t n = strlen(path);

	if (path[n - 1] == '9')
		return -ECONNREFUSED;
	if (path[n - 1] == '8')
		return -EAGAIN;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0)
		return -EMFILE;
	(void) !write(fds[1], path, n); /* something for the guest */
	if (path[n - 1] == '7') {
		(void) close(fds[1]);
	} else { /* two of them live at a time */
		static unsigned int turn;

		if (other[turn])
			(void) close(other[turn]);
		other[turn] = fds[1];
		turn ^= 1;
	}
	return fds[0];
}

static void make(void)
{
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	CLAIM(vsock_init(&vsock, &loop, &memory, 3, "/nowhere/v", listener) == 0);
	vsock.io.connect = fake_connect;
	device = &vsock.device;
}
static void serve(void)
{
	CLAIM(loop_step(&loop, 0) == 0);
}
static void destroy(void)
{
	CLAIM(vsock.n_connections <= VSOCK_CONNECTIONS_MAX && vsock.n_replies <= VSOCK_REPLIES_MAX);
	vsock_deinit(&vsock);
}
#elif defined(FUZZ_NET)
static const uint8_t mac[NET_MAC_SIZE] = { 2, 0, 0, 0, 0, 1 };
static struct net_device net;
static int other;

static int take_header_size(int fd, int size)
{
	(void) fd;
	return size == (int) NET_HEADER_SIZE ? 0 : -EINVAL;
}

static int take_offload(int fd, unsigned int flags)
{
	(void) fd;
	return flags & 0x100 ? -EINVAL : 0;
}

static void make(void)
{
	static const struct net_io io = { .set_header_size = take_header_size, .set_offload = take_offload };
	struct net_config config = { .io = &io };
	int fds[2];

	memcpy(config.mac, mac, sizeof(mac));
	CLAIM(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
	other = fds[1];
	CLAIM(net_init(&net, &loop, &memory, fds[0], &config) == 0);
	device = &net.device;
}

static bool is_acked(unsigned int bit)
{
	return device->driver_features & UINT64_C(1) << bit;
}

/* What the guest sent: a judge of its own. */
static void check_frame(const uint8_t *frame, ssize_t n)
{
	uint8_t flags = frame[0], gso = frame[1];

	CLAIM(n >= (ssize_t) NET_HEADER_SIZE + 14 && memcmp(frame + NET_HEADER_SIZE + 6, mac, sizeof(mac)) == 0);
	CLAIM(flags == 0 || (flags == 1 && is_acked(VIRTIO_NET_F_CSUM)));
	CLAIM(gso == 0 || (flags == 1 && ((gso == 1 && is_acked(VIRTIO_NET_F_HOST_TSO4)) ||
						(gso == 4 && is_acked(VIRTIO_NET_F_HOST_TSO6)))));
}

static void serve(void)
{
	static uint8_t frame[NET_HEADER_SIZE + NET_FRAME_MAX];
	ssize_t n;

	CLAIM(loop_step(&loop, 0) == 0);
	while ((n = recv(other, frame, sizeof(frame), MSG_DONTWAIT)) > 0)
		check_frame(frame, n);
}

/* A frame from the host, with a header of any kind. */
static void host(struct script *script)
{
	static uint8_t frame[NET_HEADER_SIZE + NET_FRAME_MAX + 64];
	static const size_t sizes[] = { 0, 1, 11, 12, 25, 26, 72, 1526, 4096, NET_HEADER_SIZE + NET_FRAME_MAX,
		NET_HEADER_SIZE + NET_FRAME_MAX + 1 };

	for (unsigned int i = 0; i < NET_HEADER_SIZE; i++)
		frame[i] = take8(script);
	(void) !send(other, frame, sizes[take8(script) % (sizeof(sizes) / sizeof(sizes[0]))], MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* One to the host: a header, a frame that may be from us, and how it lies in buffers. */
static void guest(struct script *script)
{
	uint32_t at = 1 + take8(script) % 40, len = length(script);
	struct {
		uint64_t addr;
		uint32_t len;
		uint16_t flags, next;
	} chain[2] = { { DATA, at, 1, 1 }, { DATA + at, len, 0, 0 } };

	for (uint32_t i = 0; i < NET_HEADER_SIZE; i++)
		memory.base[DATA + i] = take8(script);
	memcpy(memory.base + DATA + NET_HEADER_SIZE + 6, mac, sizeof(mac));
	memory.base[DATA + NET_HEADER_SIZE + 11] ^= take8(script) & 8;
	memcpy(memory.base + RING(NET_QUEUE_TX), chain, sizeof(chain));
	make_available(NET_QUEUE_TX, 0);
	write32(0x50, NET_QUEUE_TX);
}

static void destroy(void)
{
	net_deinit(&net);
	(void) close(other);
}
#elif defined(FUZZ_BALLOON)
static struct balloon_device balloon;

static void make(void)
{
	CLAIM(balloon_init(&balloon, &loop, &memory) == 0);
	device = &balloon.device;
}

static void serve(void)
{
	uint64_t pages = 0;

	CLAIM(loop_step(&loop, 0) == 0);
	for (uint64_t i = 0; i < (END >> 12) / 64; i++)
		pages += (uint64_t) __builtin_popcountll(balloon.held[i]);
	CLAIM(balloon.stats.pages == pages && balloon.stats.inflated - balloon.stats.deflated >= pages);
}

static void host(struct script *script)
{
	if (take8(script) & 1)
		(void) balloon_stats(&balloon);
	else
		balloon_set_target(&balloon, take(script, 4));
}

/* Numbers of pages, those behind the end and the same ones again among them, into a queue; or statistics. */
static void guest(struct script *script)
{
	static const uint32_t edges[] = { 0, (uint32_t) (END >> 12) - 1, (uint32_t) (END >> 12), 0xc0000, UINT32_MAX };
	uint32_t q = take8(script) % 3, n = take8(script) % 64;
	struct {
		uint64_t addr;
		uint32_t len;
		uint16_t flags, next;
	} one = { DATA, n * 4 + take8(script) % 4, 0, 0 };

	for (uint32_t i = 0; i < n; i++) {
		uint8_t kind = take8(script);
		uint32_t value = kind < 200 ? UINT32_C(0x1000) + kind % 16 : edges[kind % 5];

		memcpy(memory.base + DATA + 4 * i, &value, sizeof(value));
	}
	memcpy(memory.base + RING(q), &one, sizeof(one));
	make_available(q, 0);
	write32(0x50, q);
}

static void destroy(void)
{
	balloon_deinit(&balloon);
}
#endif

/* ---- the driver ---- */

static void write32(uint64_t offset, uint32_t value)
{
	uint8_t bytes[4];

	memcpy(bytes, &value, sizeof(bytes));
	mmio_write(device, offset, bytes, sizeof(bytes));
}

static void start(uint64_t features, unsigned int n)
{
	static const uint32_t steps[] = { 0, 1, 3 };

	for (unsigned int i = 0; i < 3; i++)
		write32(0x70, steps[i]);
	features = (features & device->features) | FEATURE_VERSION_1;
	for (uint32_t page = 0; page < 2; page++) {
		write32(0x24, page);
		write32(0x20, (uint32_t) (features >> (32 * page)));
	}
	write32(0x70, 11);
	for (uint32_t q = 0; q < device->n_queues; q++) {
		write32(0x30, q);
		write32(0x38, n);
		write32(0x80, (uint32_t) RING(q));
		write32(0x90, (uint32_t) RING(q) + 0x4000);
		write32(0xa0, (uint32_t) RING(q) + 0x8000);
		write32(0x44, 1);
		memset(memory.base + RING(q) + 0x4000, 0, 0x8000);
		avail[q] = 0;
	}
	write32(0x70, 15);
}

static uint64_t address(struct script *script)
{
	static const uint64_t edges[] = { END - 1, END, END - 4096, 0, UINT64_C(3) << 30, UINT64_MAX, UINT64_MAX - 15, RING(0) };
	uint8_t kind = take8(script);

	if (kind < 200)
		return DATA + take(script, 2) * 4;
	return kind < 248 ? edges[kind % 8] : take(script, 8);
}

static uint32_t length(struct script *script)
{
	static const uint32_t edges[] = { 0, 1, 16, 44, 512, 4096, 65536, UINT32_MAX };
	uint8_t kind = take8(script);

	return kind < 128 ? kind : kind < 240 ? edges[kind % 8] : (uint32_t) take(script, 4);
}

static void put_desc(struct script *script, uint64_t table)
{
	uint64_t at = table + take8(script) % 32 * UINT64_C(16), addr = address(script);
	uint32_t len = length(script);
	uint8_t bits = take8(script);
	uint16_t flags = bits & 0x80 ? (uint16_t) take(script, 2) : bits & 7, next = take8(script) % 34;

	memcpy(memory.base + at, &addr, 8);
	memcpy(memory.base + at + 8, &len, 4);
	memcpy(memory.base + at + 12, &flags, 2);
	memcpy(memory.base + at + 14, &next, 2);
}

/* A request as devices want it: a header of `head` bytes from the script, a buffer, a byte for the status. */
static void put_request(struct script *script, unsigned int q)
{
	static const uint32_t heads[] = { 16, 44, 12, 0 };
	uint32_t head = heads[take8(script) % 4], len = length(script);
	bool is_writable = take8(script) & 1;
	struct {
		uint64_t addr;
		uint32_t len;
		uint16_t flags, next;
	} chain[3] = { { DATA, head, 1, 1 }, { address(script), len, (uint16_t) (is_writable ? 3 : 1), 2 }, { DATA + 0x800, 1, 2, 0 } };

	for (uint32_t i = 0; i < head; i++)
		memory.base[DATA + i] = take8(script);
	memcpy(memory.base + RING(q), chain, sizeof(chain));
}

static void make_available(unsigned int q, uint16_t head)
{
	uint16_t *ring = (uint16_t *) (void *) (memory.base + RING(q) + 0x4000);

	ring[2 + avail[q]++ % 32] = head;
	ring[1] = avail[q];
}

static void run(struct script *script)
{
	unsigned int q;
	uint8_t bytes[8];

	switch (take8(script) % N_OPERATIONS) {
	case 0:
		start(take(script, 8), 32);
		break;
	case 1:
		start(UINT64_MAX, 1u << take8(script) % 9);
		break;
	case 2:
		write32(take8(script) * 4u, (uint32_t) take(script, 4));
		break;
	case 3:
		write32((take8(script) % 40) * 4u, take8(script));
		break;
	case 4:
		mmio_read(device, take(script, 2) % 0x1000, bytes, 1 + take8(script) % 8);
		break;
	case 5:
	case 6:
		put_desc(script, RING(take8(script) % device->n_queues));
		break;
	case 7:
		put_desc(script, DATA + 0x10000);
		break;
	case 8:
		put_request(script, take8(script) % device->n_queues);
		break;
	case 9:
	case 10:
		q = take8(script) % device->n_queues;
		make_available(q, take8(script) % 33);
		write32(0x50, q);
		break;
	case 11:
		serve();
		break;
	case 12:
		memory.base[DATA + take(script, 2)] = take8(script);
		break;
#if N_OPERATIONS > 14
	case 14:
		host(script);
		break;
	case 15:
		guest(script);
		break;
#endif
	default:
		q = take8(script) % device->n_queues;
		*(uint16_t *) (void *) (memory.base + RING(q) + 0x4000 + take8(script) * 2u) = (uint16_t) take(script, 2);
		break;
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	log_init("fuzz", LOG_LEVEL_ERROR);
	CLAIM(memory_init(&memory, MIB, NULL) == 0 && loop_init(&loop) == 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, size };

	memset(memory.base + RING(0), 0, 0x40000);
	memset(memory.base + DATA, 0, 0x11000);
	make();
	while (script.left > 0)
		run(&script);
	serve();
	start(UINT64_MAX, 32);
	CLAIM(device_status(device) == 15);
	serve();
	destroy();
	return 0;
}
