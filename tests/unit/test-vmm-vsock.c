/* SPDX-License-Identifier: Apache-2.0
 *
 * The vsock device between a guest's rings and real unix sockets: both directions of connecting, credit, half
 * closing, bounds, and packets that no honest driver sends. Cases R101 R103 R104 R107.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_vsock.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/rng.h"
#include "lib/vmm-driver.h"
#include "virtio/vsock.h"

#define CID 3u
#define GUEST_PORT 1234u
#define HOST_PORT 77u
#define RX_BUFFER 4096u
#define RX_AT DRIVER_DATA               /* DRIVER_N buffers */
#define TX_AT (DRIVER_DATA + 0x100000)  /* DRIVER_N packets of 128 KiB */
#define TX_ROOM 0x20000u

static struct driver driver;
static struct vsock_device vsock;
static struct loop loop;
static char directory[64], path[96];
static unsigned int tx_slot;
static uint32_t fwd_cnt, buf_alloc; /* the guest's credit as its packets say it */

/* ---- the guest's side ---- */

static void give_rx(unsigned int index, uint32_t len)
{
	driver_set_desc(&driver, VSOCK_QUEUE_RX, index, RX_AT + index * RX_BUFFER, len, D_WRITE, 0);
	driver_push(&driver, VSOCK_QUEUE_RX, index);
}

static void run(void)
{
	driver_write(&driver, 0x50, VSOCK_QUEUE_RX);
	driver_write(&driver, 0x50, VSOCK_QUEUE_TX);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(loop_step(&loop, 0), 0);
}

static void start_guest(bool with_buffers)
{
	driver_start(&driver, 0);
	tx_slot = 0;
	fwd_cnt = 0;
	buf_alloc = 256 * 1024;
	for (unsigned int i = 0; with_buffers && i < DRIVER_N; i++)
		give_rx(i, RX_BUFFER);
	run();
}

static struct virtio_vsock_hdr packet(uint16_t op)
{
	return (struct virtio_vsock_hdr) { .src_cid = CID, .dst_cid = 2, .src_port = GUEST_PORT, .dst_port = HOST_PORT,
		.type = VIRTIO_VSOCK_TYPE_STREAM, .op = op, .buf_alloc = buf_alloc, .fwd_cnt = fwd_cnt };
}

/* One descriptor of `size` bytes: the header and what follows. */
static void send_raw(const struct virtio_vsock_hdr *header, const void *data, uint32_t size)
{
	unsigned int slot = tx_slot++ % DRIVER_N;
	uint8_t *at = driver_at(&driver, TX_AT + slot * TX_ROOM);

	memcpy(at, header, sizeof(*header));
	if (size > sizeof(*header) && data)
		memcpy(at + sizeof(*header), data, size - sizeof(*header));
	driver_set_desc(&driver, VSOCK_QUEUE_TX, slot, TX_AT + slot * TX_ROOM, size, 0, 0);
	driver_push(&driver, VSOCK_QUEUE_TX, slot);
	run();
	ck_assert_int_eq(driver_pop(&driver, VSOCK_QUEUE_TX, NULL), 0);
}

static void send_packet(struct virtio_vsock_hdr header, const void *data, uint32_t size)
{
	header.len = size;
	send_raw(&header, data, (uint32_t) sizeof(header) + size);
}

static void send_op(uint16_t op)
{
	send_packet(packet(op), NULL, 0);
}

/* The next packet of the host; its payload in `data`. The buffer is given back at once. -1: none. */
static int receive_into(struct virtio_vsock_hdr *ret, uint8_t *data, bool give_back)
{
	uint32_t head;
	int64_t n = driver_pop(&driver, VSOCK_QUEUE_RX, &head);
	const uint8_t *at;

	if (n < 0)
		return -1;
	ck_assert_int_ge(n, (int) sizeof(*ret));
	ck_assert_uint_lt(head, DRIVER_N);
	at = driver_at(&driver, RX_AT + head * RX_BUFFER);
	memcpy(ret, at, sizeof(*ret));
	ck_assert_uint_eq(ret->len, (uint64_t) n - sizeof(*ret));
	if (data)
		memcpy(data, at + sizeof(*ret), ret->len);
	if (give_back)
		give_rx(head, RX_BUFFER);
	return (int) ret->len;
}

static struct virtio_vsock_hdr expect(uint16_t op)
{
	struct virtio_vsock_hdr header = { .op = UINT16_MAX };

	run();
	do { /* credit packets come when they come */
		header.op = UINT16_MAX;
		if (receive_into(&header, NULL, true) < 0)
			break;
	} while (header.op != op &&
		(header.op == VIRTIO_VSOCK_OP_CREDIT_UPDATE || header.op == VIRTIO_VSOCK_OP_CREDIT_REQUEST));
	ck_assert_msg(header.op == op, "operation %u, not %u", header.op, op);
	ck_assert_uint_eq(header.dst_cid, CID);
	return header;
}

static void expect_nothing(void)
{
	struct virtio_vsock_hdr header;

	run();
	ck_assert_int_eq(receive_into(&header, NULL, true), -1);
}

/* ---- the host's side ---- */

static int host_listen(uint32_t port, int backlog)
{
	char name[128];
	int fd;

	(void) snprintf(name, sizeof(name), "%s_%u", path, port);
	fd = unix_listen(name, SOCK_STREAM, 0600, backlog);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static int host_accept(int listen_fd)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static int host_connect(const char *line)
{
	int fd = unix_connect(path, SOCK_STREAM);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_write_all(fd, line, strlen(line)), 0);
	run();
	return fd;
}

static void expect_eof(int fd)
{
	ssize_t n;
	char byte;

	errno = 0;
	n = read(fd, &byte, 1);
	ck_assert_int_le((int) n, 0);
	ck_assert_int_ne(errno, EAGAIN);
}

/* A connection that the guest opened; the host's end of it. */
static int open_from_guest(int *ret_listen)
{
	int listen_fd = host_listen(HOST_PORT, 8), fd;

	send_op(VIRTIO_VSOCK_OP_REQUEST);
	(void) expect(VIRTIO_VSOCK_OP_RESPONSE);
	fd = host_accept(listen_fd);
	if (ret_listen)
		*ret_listen = listen_fd;
	else
		(void) fd_close(listen_fd);
	return fd;
}

static void set_up(void)
{
	int fd;

	(void) snprintf(directory, sizeof(directory), "/tmp/test-vsock-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	(void) snprintf(path, sizeof(path), "%s/v", directory);
	fd = unix_listen(path, SOCK_STREAM, 0600, 64);
	ck_assert_int_ge(fd, 0);
	(void) signal(SIGPIPE, SIG_IGN);
	ck_assert_int_eq(loop_init(&loop), 0);
	ck_assert_int_eq(memory_init(&driver.memory, DRIVER_MIB, NULL), 0);
	ck_assert_int_eq(vsock_init(&vsock, &loop, &driver.memory, CID, path, fd), 0);
	driver.device = &vsock.device;
	start_guest(true);
}

static void tear_down(void)
{
	vsock_deinit(&vsock);
	memory_deinit(&driver.memory);
	loop_deinit(&loop);
	ck_assert_int_eq(dir_remove(directory), 0);
}

/* ---- connecting ---- */

START_TEST(guest_connects)
{
	int fd = open_from_guest(NULL);
	struct virtio_vsock_hdr header;
	uint8_t data[RX_BUFFER];
	char text[16] = "";

	ck_assert_uint_eq(vsock_stats(&vsock).connections, 1);
	send_packet(packet(VIRTIO_VSOCK_OP_RW), "to the host", 11);
	ck_assert_int_eq((int) read(fd, text, sizeof(text)), 11);
	ck_assert_str_eq(text, "to the host");
	ck_assert_int_eq(fd_write_all(fd, "to the guest", 12), 0);
	run();
	ck_assert_int_eq(receive_into(&header, data, true), 12);
	ck_assert_uint_eq(header.op, VIRTIO_VSOCK_OP_RW);
	ck_assert_uint_eq(header.src_port, HOST_PORT);
	ck_assert_uint_eq(header.dst_port, GUEST_PORT);
	ck_assert_uint_eq(header.buf_alloc, VSOCK_WINDOW);
	ck_assert_uint_eq(header.fwd_cnt, 11);
	ck_assert_mem_eq(data, "to the guest", 12);
	(void) fd_close(fd);
}
END_TEST

START_TEST(host_connects)
{
	int fd = host_connect("CONNECT 1234\nearly bytes");
	struct virtio_vsock_hdr header = expect(VIRTIO_VSOCK_OP_REQUEST), answer = packet(VIRTIO_VSOCK_OP_RESPONSE);
	char line[32] = "", expected[32];
	uint8_t data[RX_BUFFER];

	ck_assert_uint_eq(header.dst_port, GUEST_PORT);
	expect_nothing(); /* no data before the guest answered */
	answer.dst_port = header.src_port;
	send_packet(answer, NULL, 0);
	ck_assert_int_gt((int) read(fd, line, sizeof(line) - 1), 0);
	(void) snprintf(expected, sizeof(expected), "OK %u\n", header.src_port);
	ck_assert_str_eq(line, expected);
	run();
	ck_assert_int_eq(receive_into(&header, data, true), 11);
	ck_assert_mem_eq(data, "early bytes", 11);
	(void) fd_close(fd);
}
END_TEST

/* R113 in small: two connections to one guest port come from distinct ports. */
START_TEST(host_ports_differ)
{
	int a = host_connect("CONNECT 1234\n"), b = host_connect("CONNECT 1234\n");
	struct virtio_vsock_hdr first = expect(VIRTIO_VSOCK_OP_REQUEST), second = expect(VIRTIO_VSOCK_OP_REQUEST);

	ck_assert_uint_ne(first.src_port, second.src_port);
	(void) fd_close(a);
	(void) fd_close(b);
}
END_TEST

START_TEST(guest_refuses)
{
	int fd = host_connect("CONNECT 1234\n");
	struct virtio_vsock_hdr header = expect(VIRTIO_VSOCK_OP_REQUEST), answer = packet(VIRTIO_VSOCK_OP_RST);

	answer.dst_port = header.src_port;
	send_packet(answer, NULL, 0);
	expect_eof(fd);
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
	(void) fd_close(fd);
}
END_TEST

static const char *const bad_lines[] = { "CONNECT \n", "CONNECT x\n", "CONNECT -1\n", "CONNECT 4294967296\n",
	"CONNECT 1 \n", "CONNECT  1\n", "connect 1\n", "CONNECT1\n", "\n", "GET / HTTP/1.0\r\n\r\n",
	"CONNECT 99999999999999999999999\n", "CONNECT 1\r\n" };

START_TEST(bad_greeting)
{
	int fd = host_connect(bad_lines[_i]);

	expect_eof(fd);
	expect_nothing();
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
	(void) fd_close(fd);
}
END_TEST

/* Byte by byte, and a peer that never ends its line only waits for its deadline. */
START_TEST(slow_greeting)
{
	int fd = host_connect("");

	for (const char *p = "CONNECT 1234\n"; *p; p++) {
		expect_nothing();
		ck_assert_int_eq((int) write(fd, p, 1), 1);
		run();
	}
	(void) expect(VIRTIO_VSOCK_OP_REQUEST);
	(void) fd_close(fd);
	run(); /* the client gave up: the guest is told */
	(void) expect(VIRTIO_VSOCK_OP_RST);
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
}
END_TEST

START_TEST(nobody_listens)
{
	send_op(VIRTIO_VSOCK_OP_REQUEST);
	(void) expect(VIRTIO_VSOCK_OP_RST);
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
	ck_assert_uint_eq(vsock_stats(&vsock).refused, 1);
}
END_TEST

/* R104: a backlog that is full refuses at once. */
START_TEST(backlog_full)
{
	int listen_fd = host_listen(HOST_PORT, 0);
	struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_REQUEST);
	bool refused = false;

	for (unsigned int i = 0; i < 4 && !refused; i++) {
		struct virtio_vsock_hdr answer;

		header.src_port = GUEST_PORT + i;
		send_packet(header, NULL, 0);
		ck_assert_int_eq(receive_into(&answer, NULL, true), 0);
		refused = answer.op == VIRTIO_VSOCK_OP_RST;
	}
	ck_assert(refused);
	(void) fd_close(listen_fd);
}
END_TEST

START_TEST(driver_not_ready)
{
	int fd;

	driver_write(&driver, 0x70, 0);
	fd = host_connect("CONNECT 1234\n");
	expect_eof(fd);
	(void) fd_close(fd);
}
END_TEST

/* A reset by the driver ends every connection, also when a new life begins before the loop has looked. */
START_TEST(driver_resets)
{
	int listen_fd, fd = open_from_guest(&listen_fd), second;

	driver_start(&driver, 0);
	for (unsigned int i = 0; i < DRIVER_N; i++)
		give_rx(i, RX_BUFFER);
	tx_slot = 0;
	ck_assert_int_eq(fd_write_all(fd, "x", 1), 0);
	expect_nothing();
	expect_eof(fd);
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
	send_op(VIRTIO_VSOCK_OP_REQUEST);
	(void) expect(VIRTIO_VSOCK_OP_RESPONSE);
	second = host_accept(listen_fd);
	(void) fd_close(second);
	(void) fd_close(listen_fd);
	(void) fd_close(fd);
}
END_TEST

/* ---- what no honest driver sends (R101) ---- */

static void bad_source(struct virtio_vsock_hdr *h)
{
	h->src_cid = 4;
}
static void bad_destination(struct virtio_vsock_hdr *h)
{
	h->dst_cid = 5;
}
static void bad_type(struct virtio_vsock_hdr *h)
{
	h->type = 2;
}
static void bad_type_max(struct virtio_vsock_hdr *h)
{
	h->type = UINT16_MAX;
}
static void bad_op(struct virtio_vsock_hdr *h)
{
	h->op = 0;
}
static void bad_op_max(struct virtio_vsock_hdr *h)
{
	h->op = UINT16_MAX;
}
static void long_data(struct virtio_vsock_hdr *h)
{
	h->len = 5;
}
static void endless_data(struct virtio_vsock_hdr *h)
{
	h->len = UINT32_MAX;
}
static void answer_again(struct virtio_vsock_hdr *h)
{
	h->op = VIRTIO_VSOCK_OP_RESPONSE;
}
static void ask_again(struct virtio_vsock_hdr *h)
{
	h->op = VIRTIO_VSOCK_OP_REQUEST;
}

static const struct {
	void (*spoil)(struct virtio_vsock_hdr *);
	bool is_answered; /* by RST */
	bool ends;        /* the connection */
} bad_packets[] = {
	{ bad_source, false, false },
	{ bad_destination, true, false },
	{ bad_type, true, false },
	{ bad_type_max, true, false },
	{ bad_op, true, true },
	{ bad_op_max, true, true },
	{ long_data, true, true },
	{ endless_data, true, true },
	{ answer_again, true, true },
	{ ask_again, true, true },
};

START_TEST(hostile_packets)
{
	struct virtio_vsock_hdr header;
	int fd = open_from_guest(NULL);
	char byte;

	header = packet(VIRTIO_VSOCK_OP_RW);
	header.len = 4;
	bad_packets[_i].spoil(&header);
	send_raw(&header, "data", (uint32_t) sizeof(header) + 4);
	if (bad_packets[_i].is_answered)
		(void) expect(VIRTIO_VSOCK_OP_RST);
	expect_nothing();
	ck_assert_uint_eq(vsock_stats(&vsock).connections, bad_packets[_i].ends ? 0 : 1);
	ck_assert_int_eq((int) read(fd, &byte, 1), bad_packets[_i].ends ? 0 : -1);
	ck_assert(!driver_needs_reset(&driver));
	(void) fd_close(fd);
}
END_TEST

START_TEST(short_packets)
{
	struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_REQUEST);

	for (uint32_t n = 1; n < sizeof(header); n++) {
		send_raw(&header, NULL, n);
		expect_nothing();
	}
	/* outside memory */
	driver_set_desc(&driver, VSOCK_QUEUE_TX, 0, DRIVER_END - 8, 44, 0, 0);
	driver_push(&driver, VSOCK_QUEUE_TX, 0);
	run();
	ck_assert_int_eq(driver_pop(&driver, VSOCK_QUEUE_TX, NULL), 0);
	ck_assert_uint_eq(vsock.device.queues[VSOCK_QUEUE_TX].bad_gpa, 1);
	expect_nothing();
}
END_TEST

START_TEST(unknown_connection)
{
	static const uint16_t ops[] = { VIRTIO_VSOCK_OP_RESPONSE, VIRTIO_VSOCK_OP_RW, VIRTIO_VSOCK_OP_SHUTDOWN,
		VIRTIO_VSOCK_OP_CREDIT_UPDATE, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 99 };

	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		send_op(ops[i]);
		(void) expect(VIRTIO_VSOCK_OP_RST);
	}
	send_op(VIRTIO_VSOCK_OP_RST); /* a reset is never answered by one */
	expect_nothing();
}
END_TEST

/* Receive buffers in which nothing fits, or that are no memory: given back empty, and no endless loop. */
START_TEST(useless_buffers)
{
	int fd, listen_fd = host_listen(HOST_PORT, 8);

	start_guest(false);
	send_op(VIRTIO_VSOCK_OP_REQUEST);
	for (uint32_t n = 1; n <= 44; n += 43) {
		give_rx(0, n);
		run();
		ck_assert_int_eq(driver_pop(&driver, VSOCK_QUEUE_RX, NULL), 0);
	}
	driver_set_desc(&driver, VSOCK_QUEUE_RX, 0, DRIVER_END - 8, 4096, D_WRITE, 0);
	driver_push(&driver, VSOCK_QUEUE_RX, 0);
	run();
	ck_assert_int_eq(driver_pop(&driver, VSOCK_QUEUE_RX, NULL), 0);
	give_rx(0, RX_BUFFER);
	(void) expect(VIRTIO_VSOCK_OP_RESPONSE);
	fd = host_accept(listen_fd);
	(void) fd_close(fd);
	(void) fd_close(listen_fd);
}
END_TEST

/* A broken ring: needs-reset, and the host's processes are not left hanging. */
START_TEST(broken_ring)
{
	int fd = open_from_guest(NULL);

	driver_push(&driver, VSOCK_QUEUE_TX, 9999);
	run();
	ck_assert(driver_needs_reset(&driver));
	expect_eof(fd);
	(void) fd_close(fd);
}
END_TEST

/* ---- credit ---- */

/* The guest may not send more than the window that it was told. */
START_TEST(window_is_kept)
{
	static uint8_t data[VSOCK_WINDOW];
	int fd = open_from_guest(NULL), size = 4608;

	/* a host process that does not read, with a small buffer */
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
	for (int i = 0; i < 100; i++) {
		struct virtio_vsock_hdr header;

		send_packet(packet(VIRTIO_VSOCK_OP_RW), data, sizeof(data));
		run();
		while (receive_into(&header, NULL, true) >= 0)
			if (header.op == VIRTIO_VSOCK_OP_RST)
				goto out;
		ck_assert_uint_le(buf_size(&TAILQ_FIRST(&vsock.all)->out), VSOCK_WINDOW);
	}
	ck_abort_msg("100 windows were taken");
out:
	expect_nothing();
	(void) fd_close(fd);
}
END_TEST

/* Also where the host's process would take it all. */
START_TEST(window_in_one_packet)
{
	static uint8_t data[VSOCK_WINDOW + 1], in[VSOCK_WINDOW];
	int fd = open_from_guest(NULL);

	send_packet(packet(VIRTIO_VSOCK_OP_RW), data, VSOCK_WINDOW);
	ck_assert_int_eq((int) read(fd, in, sizeof(in)), VSOCK_WINDOW);
	(void) expect(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	send_packet(packet(VIRTIO_VSOCK_OP_RW), data, VSOCK_WINDOW + 1);
	(void) expect(VIRTIO_VSOCK_OP_RST);
	(void) fd_close(fd);
}
END_TEST

/* Nothing is sent to a guest without credit, exactly as much with it, whatever it claims. */
START_TEST(guest_credit)
{
	struct virtio_vsock_hdr header;
	uint8_t data[RX_BUFFER], bytes[1000];
	int fd;

	buf_alloc = 0;
	fd = open_from_guest(NULL);
	memset(bytes, 'x', sizeof(bytes));
	ck_assert_int_eq(fd_write_all(fd, bytes, sizeof(bytes)), 0);
	run();
	while (receive_into(&header, NULL, true) >= 0)
		ck_assert_uint_eq(header.op, VIRTIO_VSOCK_OP_CREDIT_REQUEST);
	buf_alloc = 10;
	send_op(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	run();
	ck_assert_int_eq(receive_into(&header, data, true), 10);
	ck_assert_uint_eq(header.op, VIRTIO_VSOCK_OP_RW);
	run();
	while (receive_into(&header, NULL, true) >= 0)
		ck_assert_uint_eq(header.op, VIRTIO_VSOCK_OP_CREDIT_REQUEST);
	fwd_cnt = 4;
	send_op(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	run();
	ck_assert_int_eq(receive_into(&header, data, true), 4);
	/* it claims to have forwarded more than it ever got: no credit, no end */
	fwd_cnt = 1000;
	send_op(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	run();
	while (receive_into(&header, NULL, true) >= 0)
		ck_assert_uint_eq(header.op, VIRTIO_VSOCK_OP_CREDIT_REQUEST);
	fwd_cnt = 14;
	buf_alloc = UINT32_MAX;
	send_op(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	run();
	ck_assert_int_eq(receive_into(&header, data, true), 986);
	(void) fd_close(fd);
}
END_TEST

START_TEST(credit_request_is_answered)
{
	int fd = open_from_guest(NULL);

	send_op(VIRTIO_VSOCK_OP_CREDIT_REQUEST);
	ck_assert_uint_eq(expect(VIRTIO_VSOCK_OP_CREDIT_UPDATE).buf_alloc, VSOCK_WINDOW);
	(void) fd_close(fd);
}
END_TEST

/* ---- streams ---- */

static struct rng shim_rng;

/* R107: at each call EAGAIN, EINTR, one byte, or a part. */
static ssize_t shim_write(int fd, const struct iovec *iov, int n)
{
	struct iovec part = iov[0];

	(void) n;
	switch (rng_below(&shim_rng, 4)) {
	case 0:
		errno = EAGAIN;
		return -1;
	case 1:
		errno = EINTR;
		return -1;
	case 2:
		part.iov_len = 1;
		break;
	default:
		part.iov_len = 1 + (size_t) rng_below(&shim_rng, part.iov_len);
		break;
	}
	return vsock_real_write(fd, &part, 1);
}

static ssize_t shim_read(int fd, const struct iovec *iov, int n)
{
	struct iovec part = iov[0];

	(void) n;
	if (rng_below(&shim_rng, 3) == 0) {
		errno = rng_below(&shim_rng, 2) ? EAGAIN : EINTR;
		return -1;
	}
	part.iov_len = 1 + (size_t) rng_below(&shim_rng, part.iov_len);
	return vsock_real_read(fd, &part, 1);
}

static uint8_t byte_at(uint64_t i)
{
	return (uint8_t) (i * 167 ^ i >> 9);
}

/* A guest that keeps to its window sends 1 MiB to a host process that reads now and then. */
START_TEST(stream_to_host)
{
	const uint64_t total = 1 << 20;
	uint64_t sent = 0, got = 0, told = 0;
	static uint8_t data[VSOCK_WINDOW], in[8192];
	int fd = open_from_guest(NULL);

	shim_rng = rng_seeded((uint64_t) _i + 1);
	vsock.io.write = shim_write;
	while (got < total) {
		struct virtio_vsock_hdr header;
		uint64_t room = VSOCK_WINDOW - (sent - told), wish = 1 + rng_below(&shim_rng, 30000);
		uint64_t size = MIN(MIN(room, wish), total - sent);
		ssize_t n;

		if (size > 0) {
			for (uint64_t i = 0; i < size; i++)
				data[i] = byte_at(sent + i);
			send_packet(packet(VIRTIO_VSOCK_OP_RW), data, (uint32_t) size);
			sent += size;
		}
		run();
		while (receive_into(&header, NULL, true) >= 0) {
			ck_assert_uint_eq(header.op, VIRTIO_VSOCK_OP_CREDIT_UPDATE);
			told = header.fwd_cnt;
		}
		if (rng_below(&shim_rng, 4) == 0)
			continue;
		n = read(fd, in, 1 + rng_below(&shim_rng, sizeof(in)));
		for (ssize_t i = 0; i < n; i++)
			ck_assert_uint_eq(in[i], byte_at(got + (uint64_t) i));
		got += n > 0 ? (uint64_t) n : 0;
	}
	ck_assert_uint_eq(sent, total);
	(void) fd_close(fd);
}
END_TEST

/* And the other way: a guest that gives its buffers back late and reports its progress late. */
START_TEST(stream_to_guest)
{
	const uint64_t total = 1 << 20;
	uint64_t sent = 0, got = 0;
	static uint8_t data[RX_BUFFER], out[65536];
	int fd = open_from_guest(NULL);
	unsigned int idle = 0;

	shim_rng = rng_seeded((uint64_t) _i + 100);
	vsock.io.read = shim_read;
	buf_alloc = 30000;
	send_op(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	while (got < total) {
		struct virtio_vsock_hdr header;
		uint64_t wish = 1 + rng_below(&shim_rng, sizeof(out)), size = MIN(total - sent, wish);
		ssize_t n;

		for (uint64_t i = 0; i < size; i++)
			out[i] = byte_at(sent + i);
		n = size ? write(fd, out, size) : 0;
		sent += n > 0 ? (uint64_t) n : 0;
		run();
		while (receive_into(&header, data, true) >= 0) {
			idle = 0;
			if (header.op != VIRTIO_VSOCK_OP_RW)
				continue;
			for (uint32_t i = 0; i < header.len; i++)
				ck_assert_uint_eq(data[i], byte_at(got + i));
			got += header.len;
			ck_assert_uint_le((uint32_t) got - fwd_cnt, buf_alloc); /* never more than its credit */
		}
		if (rng_below(&shim_rng, 2)) {
			fwd_cnt = (uint32_t) got;
			send_op(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
		}
		ck_assert_uint_lt(idle++, 1000);
	}
	(void) fd_close(fd);
}
END_TEST

/* ---- closing ---- */

START_TEST(host_half_closes)
{
	struct virtio_vsock_hdr header;
	char text[16] = "";
	int fd = open_from_guest(NULL);

	ck_assert_int_eq(fd_write_all(fd, "last", 4), 0);
	ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
	(void) expect(VIRTIO_VSOCK_OP_RW);
	header = expect(VIRTIO_VSOCK_OP_SHUTDOWN);
	ck_assert_uint_eq(header.flags, VSOCK_SHUT_SEND);
	send_packet(packet(VIRTIO_VSOCK_OP_RW), "answer", 6); /* the other half still works */
	ck_assert_int_eq((int) read(fd, text, sizeof(text)), 6);
	header = packet(VIRTIO_VSOCK_OP_SHUTDOWN);
	header.flags = VSOCK_SHUT_BOTH;
	send_packet(header, NULL, 0);
	(void) expect(VIRTIO_VSOCK_OP_RST);
	expect_eof(fd);
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
	(void) fd_close(fd);
}
END_TEST

START_TEST(guest_half_closes)
{
	struct virtio_vsock_hdr header;
	int fd = open_from_guest(NULL);
	char text[16];

	send_packet(packet(VIRTIO_VSOCK_OP_RW), "last", 4);
	header = packet(VIRTIO_VSOCK_OP_SHUTDOWN);
	header.flags = VSOCK_SHUT_SEND;
	send_packet(header, NULL, 0);
	ck_assert_int_eq((int) read(fd, text, sizeof(text)), 4);
	expect_eof(fd);
	ck_assert_int_eq(fd_write_all(fd, "answer", 6), 0);
	(void) expect(VIRTIO_VSOCK_OP_RW);
	send_packet(packet(VIRTIO_VSOCK_OP_RW), "more", 4); /* after it said that it would not */
	(void) expect(VIRTIO_VSOCK_OP_RST);
	(void) fd_close(fd);
}
END_TEST

START_TEST(guest_stops_reading)
{
	struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_SHUTDOWN);
	int fd = open_from_guest(NULL);
	char text[16];

	header.flags = VSOCK_SHUT_RECEIVE;
	send_packet(header, NULL, 0);
	ck_assert_int_eq((int) write(fd, "x", 1), -1);
	ck_assert_int_eq(errno, EPIPE);
	send_packet(packet(VIRTIO_VSOCK_OP_RW), "still", 5);
	ck_assert_int_eq((int) read(fd, text, sizeof(text)), 5);
	(void) fd_close(fd);
}
END_TEST

/* What the host sent before it closed arrives; then the guest is told of both halves. */
START_TEST(host_closes_with_data)
{
	struct virtio_vsock_hdr header;
	static uint8_t data[RX_BUFFER], bytes[20000];
	uint32_t got = 0, told = 0;
	int fd;

	buf_alloc = 9000; /* so that credit runs out after the close */
	fd = open_from_guest(NULL);
	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = byte_at(i);
	ck_assert_int_eq(fd_write_all(fd, bytes, sizeof(bytes)), 0);
	(void) fd_close(fd);
	for (int i = 0; i < 50 && got < sizeof(bytes); i++) {
		run();
		while (receive_into(&header, data, true) >= 0) {
			if (header.op == VIRTIO_VSOCK_OP_SHUTDOWN)
				told = header.flags;
			if (told & VSOCK_SHUT_SEND)
				ck_assert_uint_eq(got, sizeof(bytes)); /* not before the last byte */
			if (header.op == VIRTIO_VSOCK_OP_RW) {
				ck_assert_mem_eq(data, bytes + got, header.len);
				got += header.len;
			}
		}
		fwd_cnt = got;
		send_op(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	}
	ck_assert_uint_eq(got, sizeof(bytes));
	if (told != VSOCK_SHUT_BOTH)
		told = expect(VIRTIO_VSOCK_OP_SHUTDOWN).flags;
	ck_assert_uint_eq(told, VSOCK_SHUT_BOTH);
	send_op(VIRTIO_VSOCK_OP_RST);
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
}
END_TEST

/* The guest closed and gave up waiting while a slow host process still reads: it gets every byte. */
START_TEST(guest_gives_up_on_slow_host)
{
	struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_SHUTDOWN);
	static uint8_t data[30000], in[30000];
	int listen_fd, fd = open_from_guest(&listen_fd), again;
	size_t got = 0;

	shim_rng = rng_seeded(5);
	vsock.io.write = shim_write;
	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = byte_at(i);
	send_packet(packet(VIRTIO_VSOCK_OP_RW), data, sizeof(data));
	header.flags = VSOCK_SHUT_BOTH;
	send_packet(header, NULL, 0);
	if (vsock_stats(&vsock).connections > 0 && TAILQ_FIRST(&vsock.all)->state == VSOCK_OPEN) {
		send_op(VIRTIO_VSOCK_OP_RST);
		/* the ports are free for a new connection meanwhile */
		vsock.io.write = vsock_real_write;
		send_op(VIRTIO_VSOCK_OP_REQUEST);
		(void) expect(VIRTIO_VSOCK_OP_RESPONSE);
		again = host_accept(listen_fd);
		send_op(VIRTIO_VSOCK_OP_RST);
		(void) fd_close(again);
		vsock.io.write = shim_write;
	}
	for (int i = 0; i < 100000 && got < sizeof(in); i++) {
		ssize_t n = read(fd, in + got, MIN((size_t) 100, sizeof(in) - got));

		got += n > 0 ? (size_t) n : 0;
		ck_assert_int_eq(loop_step(&loop, 0), 0);
	}
	ck_assert_uint_eq(got, sizeof(in));
	ck_assert_mem_eq(in, data, sizeof(in));
	errno = 0;
	ck_assert_int_eq(loop_step(&loop, 0), 0);
	expect_eof(fd);
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
	(void) fd_close(fd);
	(void) fd_close(listen_fd);
}
END_TEST

/* The host's process is gone: the guest's bytes go nowhere, the guest learns it, and nothing spins. */
START_TEST(host_gone)
{
	struct virtio_vsock_hdr header;
	int fd = open_from_guest(NULL);

	(void) fd_close(fd);
	header = expect(VIRTIO_VSOCK_OP_SHUTDOWN);
	if (header.flags != VSOCK_SHUT_BOTH)
		header = expect(VIRTIO_VSOCK_OP_SHUTDOWN);
	ck_assert_uint_eq(header.flags, VSOCK_SHUT_BOTH);
	for (int i = 0; i < 10; i++)
		send_packet(packet(VIRTIO_VSOCK_OP_RW), "lost", 4);
	expect_nothing();
	ck_assert_int_eq(loop.n_batch, 0);
	send_op(VIRTIO_VSOCK_OP_RST);
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
}
END_TEST

/* ---- bounds ---- */

/* R103 in small: many more connects than there may be connections, with a guest that takes the answers late. */
START_TEST(connection_limit)
{
	struct rlimit limit = { .rlim_cur = 8192, .rlim_max = 8192 };
	struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_REQUEST), answer;
	unsigned int opened = 0, refused = 0, sent = 0;
	int listen_fd = host_listen(HOST_PORT, 4096), fd;

	(void) getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = MIN(limit.rlim_max, (rlim_t) 8192);
	(void) setrlimit(RLIMIT_NOFILE, &limit);
	while (opened + refused < 1300) {
		if (sent < 1300) {
			header.src_port = 10000 + sent++;
			send_packet(header, NULL, 0);
		}
		while ((fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
			; /* kept by the process until it ends: that is the point */
		run();
		while (receive_into(&answer, NULL, true) >= 0) {
			opened += answer.op == VIRTIO_VSOCK_OP_RESPONSE;
			refused += answer.op == VIRTIO_VSOCK_OP_RST;
		}
		ck_assert_uint_le(vsock_stats(&vsock).connections, VSOCK_CONNECTIONS_MAX);
	}
	ck_assert_uint_le(opened, VSOCK_CONNECTIONS_MAX);
	ck_assert_uint_ge(opened, 500);
	ck_assert_uint_eq(vsock_stats(&vsock).refused, refused);
	if (vsock_stats(&vsock).connections == VSOCK_CONNECTIONS_MAX) { /* unless descriptors ran out before */
		fd = host_connect("CONNECT 1\n");
		expect_eof(fd);
		(void) fd_close(fd);
	}
	(void) fd_close(listen_fd);
}
END_TEST

/* A guest that never takes an answer: its packets are no longer looked at, and all is well when it does. */
START_TEST(replies_are_bounded)
{
	struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_RW), answer;
	unsigned int sent = 0, answered = 0, taken = 0;

	start_guest(false);
	while (sent < VSOCK_REPLIES_MAX + 8) {
		unsigned int slot = sent % DRIVER_N;

		header.src_port = 20000 + sent++;
		memcpy(driver_at(&driver, TX_AT + slot * TX_ROOM), &header, sizeof(header));
		driver_set_desc(&driver, VSOCK_QUEUE_TX, slot, TX_AT + slot * TX_ROOM, sizeof(header), 0, 0);
		driver_push(&driver, VSOCK_QUEUE_TX, slot);
		run();
		taken += driver_pop(&driver, VSOCK_QUEUE_TX, NULL) >= 0;
	}
	ck_assert_uint_eq(taken, VSOCK_REPLIES_MAX);
	ck_assert_uint_eq(vsock.n_replies, VSOCK_REPLIES_MAX);
	for (unsigned int i = 0; i < DRIVER_N; i++)
		give_rx(i, RX_BUFFER);
	for (int i = 0; i < 200 && answered < sent; i++) {
		run();
		while (receive_into(&answer, NULL, true) >= 0) {
			ck_assert_uint_eq(answer.op, VIRTIO_VSOCK_OP_RST);
			ck_assert_uint_eq(answer.dst_port, 20000 + answered);
			answered++;
		}
	}
	ck_assert_uint_eq(answered, sent);
}
END_TEST

START_TEST(config_space)
{
	uint8_t bytes[4];

	mmio_read(&vsock.device, 0x100, bytes, 4);
	ck_assert_uint_eq(bytes[0], CID);
	mmio_read(&vsock.device, 0x106, bytes, 4); /* over the end */
	ck_assert_uint_eq(bytes[3], 0);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-vsock");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, guest_connects);
	tcase_add_test(tcase, host_connects);
	tcase_add_test(tcase, host_ports_differ);
	tcase_add_test(tcase, guest_refuses);
	tcase_add_loop_test(tcase, bad_greeting, 0, ARRAY_LEN(bad_lines));
	tcase_add_test(tcase, slow_greeting);
	tcase_add_test(tcase, nobody_listens);
	tcase_add_test(tcase, backlog_full);
	tcase_add_test(tcase, driver_not_ready);
	tcase_add_test(tcase, driver_resets);
	tcase_add_loop_test(tcase, hostile_packets, 0, ARRAY_LEN(bad_packets));
	tcase_add_test(tcase, short_packets);
	tcase_add_test(tcase, unknown_connection);
	tcase_add_test(tcase, useless_buffers);
	tcase_add_test(tcase, broken_ring);
	tcase_add_test(tcase, window_is_kept);
	tcase_add_test(tcase, window_in_one_packet);
	tcase_add_test(tcase, guest_credit);
	tcase_add_test(tcase, credit_request_is_answered);
	tcase_add_loop_test(tcase, stream_to_host, 0, 4);
	tcase_add_loop_test(tcase, stream_to_guest, 0, 4);
	tcase_add_test(tcase, host_half_closes);
	tcase_add_test(tcase, guest_half_closes);
	tcase_add_test(tcase, guest_stops_reading);
	tcase_add_test(tcase, host_closes_with_data);
	tcase_add_test(tcase, guest_gives_up_on_slow_host);
	tcase_add_test(tcase, host_gone);
	tcase_add_test(tcase, connection_limit);
	tcase_add_test(tcase, replies_are_bounded);
	tcase_add_test(tcase, config_space);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(make_suite());
	int failed;

	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
