/* SPDX-License-Identifier: Apache-2.0
 *
 * A virtio device under a script of driver operations: registers, rings, chains, buffers, notifications, turns of the
 * loop. Built once for each device (FUZZ_BLK, FUZZ_RNG, FUZZ_VSOCK). What must hold: no access outside guest memory
 * (AddressSanitizer, and nothing is mapped behind it), no endless turn, a disk that keeps its size, and a device that
 * comes up again after a reset.
 */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/log.h"
#include "virtio/blk.h"
#include "virtio/mmio.h"
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

	switch (take8(script) % 14) {
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
