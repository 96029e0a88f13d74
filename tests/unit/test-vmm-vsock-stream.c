/* SPDX-License-Identifier: Apache-2.0
 *
 * The vsock device once a connection stands: credit, byte-exact streams through sockets that take and give a part at a
 * time, half closing. Cases R107 R112.
 */
#include <check.h>

#include "base/rng.h"
#include "lib/suite.h"
#include "lib/vsock-rig.h"

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

static ssize_t write_room; /* what the host's socket takes still */

static ssize_t write_as_room(int fd, const struct iovec *iov, int n)
{
	struct iovec part = { .iov_base = iov[0].iov_base, .iov_len = MIN(iov[0].iov_len, (size_t) write_room) };

	(void) n;
	if (write_room == 0) {
		errno = EAGAIN;
		return -1;
	}
	write_room -= (ssize_t) part.iov_len;
	return vsock_real_write(fd, &part, 1);
}

/* What it was told counts, not what there would be room for by now: 40,000 bytes wait, which a packet of ours told it; then
 * the host takes 10,000, which none has told it yet. */
START_TEST(window_is_what_was_told)
{
	static uint8_t data[40000];
	int fd = open_from_guest(NULL);

	vsock.io.write = write_as_room;
	write_room = 0;
	send_packet(packet(VIRTIO_VSOCK_OP_RW), data, 40000);
	send_op(VIRTIO_VSOCK_OP_CREDIT_REQUEST);
	ck_assert_uint_eq(expect(VIRTIO_VSOCK_OP_CREDIT_UPDATE).fwd_cnt, 0);
	write_room = 10000;
	run();
	ck_assert_int_eq((int) write_room, 0);
	send_packet(packet(VIRTIO_VSOCK_OP_RW), data, VSOCK_WINDOW - 40000 + (uint32_t) _i);
	if (_i == 0)
		expect_nothing();
	else
		(void) expect(VIRTIO_VSOCK_OP_RST);
	(void) fd_close(fd);
}
END_TEST

/* Our RST waits for a buffer, and the guest, which has not seen it, goes on: whatever it sends, it gets that one RST. One of
 * its own ends the matter: a reset is never answered by one. */
START_TEST(packets_that_cross_a_reset)
{
	static const uint16_t ops[] = { VIRTIO_VSOCK_OP_RW, VIRTIO_VSOCK_OP_CREDIT_REQUEST, VIRTIO_VSOCK_OP_CREDIT_UPDATE,
		VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_OP_RESPONSE, VIRTIO_VSOCK_OP_REQUEST, 99, VIRTIO_VSOCK_OP_RST };
	int fd = open_from_guest(NULL);
	struct virtio_vsock_hdr header;

	for (unsigned int i = 0; i < DRIVER_N; i++) { /* takes all buffers away: each brings a packet that is left there */
		send_op(VIRTIO_VSOCK_OP_CREDIT_REQUEST);
		ck_assert_int_eq(receive_into(&header, NULL, false), 0);
	}
	send_op(99);
	ck_assert_int_eq((int) TAILQ_FIRST(&vsock.all)->state, VSOCK_RESETTING);
	send_packet(packet(ops[_i]), "x", ops[_i] == VIRTIO_VSOCK_OP_RW);
	ck_assert_uint_eq(vsock_stats(&vsock).connections, ops[_i] != VIRTIO_VSOCK_OP_RST);
	for (unsigned int i = 0; i < DRIVER_N; i++)
		give_rx(i, RX_BUFFER);
	if (ops[_i] != VIRTIO_VSOCK_OP_RST)
		(void) expect(VIRTIO_VSOCK_OP_RST);
	expect_nothing();
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
	expect_eof(fd);
	(void) fd_close(fd);
}
END_TEST

/* Credit comes back while there is some left: a guest need not stand still for it. */
START_TEST(credit_comes_early)
{
	static uint8_t data[VSOCK_WINDOW / 4], in[VSOCK_WINDOW / 4];
	int fd = open_from_guest(NULL);

	send_packet(packet(VIRTIO_VSOCK_OP_RW), data, sizeof(data));
	ck_assert_int_eq((int) read(fd, in, sizeof(in)), (int) sizeof(in));
	ck_assert_uint_eq(expect(VIRTIO_VSOCK_OP_CREDIT_UPDATE).fwd_cnt, sizeof(data));
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

/* One assertion for all: check writes a message for each. */
static void check_bytes(const uint8_t *data, size_t size, uint64_t from)
{
	for (size_t i = 0; i < size; i++)
		if (data[i] != byte_at(from + i))
			ck_abort_msg("byte %zu behind %llu is 0x%x", i, (unsigned long long) from, data[i]);
}

#define STREAMS 4

/* Where the 32-bit counters of the connection begin: the last run is one of which 4 GiB have been sent
 * when it is a third through (R112). */
static uint32_t counters_from(int run_index)
{
	return run_index < STREAMS ? 0 : UINT32_MAX - 350000;
}

/* A guest that keeps to its window sends 1 MiB to a host process that reads now and then. */
START_TEST(stream_to_host)
{
	const uint64_t total = 1 << 20;
	const uint32_t from = counters_from(_i);
	uint64_t sent = 0, got = 0, told = 0;
	static uint8_t data[VSOCK_WINDOW], in[8192];
	int fd = open_from_guest(NULL);
	struct vsock_connection *connection = vsock_find(&vsock, GUEST_PORT, HOST_PORT);

	connection->received = connection->forwarded = connection->advertised = from;

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
			told = header.fwd_cnt - from;
		}
		if (rng_below(&shim_rng, 4) == 0)
			continue;
		n = read(fd, in, 1 + rng_below(&shim_rng, sizeof(in)));
		check_bytes(in, n > 0 ? (size_t) n : 0, got);
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
	const uint32_t from = counters_from(_i);
	uint64_t sent = 0, got = 0;
	static uint8_t data[RX_BUFFER], out[65536];
	int fd = open_from_guest(NULL);
	unsigned int idle = 0;

	fwd_cnt = from;
	vsock_find(&vsock, GUEST_PORT, HOST_PORT)->sent = from;

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
			check_bytes(data, header.len, got);
			got += header.len;
			ck_assert_uint_le(from + (uint32_t) got - fwd_cnt, buf_alloc); /* never more than its credit */
		}
		if (rng_below(&shim_rng, 2)) {
			fwd_cnt = from + (uint32_t) got;
			send_op(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
		}
		ck_assert_uint_lt(idle++, 1000);
	}
	(void) fd_close(fd);
}
END_TEST

/* Two that have much to send take turns: neither fills all of the guest's buffers. */
START_TEST(streams_take_turns)
{
	static const uint8_t much[40 * RX_BUFFER];
	struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_REQUEST);
	int listen_fd, fds[2] = { open_from_guest(&listen_fd) };
	unsigned int counts[2] = { 0 };

	header.src_port++;
	send_packet(header, NULL, 0);
	(void) expect(VIRTIO_VSOCK_OP_RESPONSE);
	fds[1] = host_accept(listen_fd);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(fd_write_all(fds[i], much, sizeof(much)), 0);
	run();
	for (unsigned int i = 0; i < DRIVER_N; i++) /* whoever was seen first may have had these */
		ck_assert_int_ge(receive_into(&header, NULL, false), 0);
	run();
	for (unsigned int i = 0; i < DRIVER_N; i++)
		give_rx(i, RX_BUFFER);
	run();
	while (receive_into(&header, NULL, false) >= 0)
		counts[header.dst_port - GUEST_PORT] += header.op == VIRTIO_VSOCK_OP_RW;
	ck_assert_uint_eq(counts[0] + counts[1], DRIVER_N);
	ck_assert_uint_le(counts[0] > counts[1] ? counts[0] - counts[1] : counts[1] - counts[0], 1);
	for (int i = 0; i < 2; i++)
		(void) fd_close(fds[i]);
	(void) fd_close(listen_fd);
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

/* One half after the other is both: the guest is done with it. */
START_TEST(guest_closes_half_by_half)
{
	struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_SHUTDOWN);
	int fd = open_from_guest(NULL);

	header.flags = _i ? VSOCK_SHUT_SEND : VSOCK_SHUT_RECEIVE;
	send_packet(header, NULL, 0);
	expect_nothing();
	header.flags = _i ? VSOCK_SHUT_RECEIVE : VSOCK_SHUT_SEND;
	send_packet(header, NULL, 0);
	(void) expect(VIRTIO_VSOCK_OP_RST);
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
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

/* Flags that nobody knows mean nothing beside those that are. */
START_TEST(guest_shuts_with_unknown_flags)
{
	struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_SHUTDOWN);
	int fd = open_from_guest(NULL);

	header.flags = UINT32_MAX & ~(uint32_t) VSOCK_SHUT_BOTH;
	send_packet(header, NULL, 0);
	expect_nothing();
	header.flags = UINT32_MAX;
	send_packet(header, NULL, 0);
	(void) expect(VIRTIO_VSOCK_OP_RST);
	expect_eof(fd);
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
	/* the guest is not waited for without end */
	ck_assert_int_gt(TAILQ_FIRST(&vsock.all)->deadline_usec, clock_monotonic_usec());
	for (int i = 0; i < 10; i++)
		send_packet(packet(VIRTIO_VSOCK_OP_RW), "lost", 4);
	expect_nothing();
	ck_assert_int_eq(loop.n_batch, 0);
	send_op(VIRTIO_VSOCK_OP_RST);
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
}
END_TEST

static ssize_t write_nothing(int fd, const struct iovec *iov, int n)
{
	(void) fd, (void) iov, (void) n;
	errno = EAGAIN;
	return -1;
}

static ssize_t write_every_other(int fd, const struct iovec *iov, int n)
{
	static bool has_written;

	has_written = !has_written;
	return has_written ? write(fd, iov[0].iov_base, 1) : write_nothing(fd, iov, n);
}

/* The wait for a host's process that has bytes to take begins anew with each that it takes. */
START_TEST(slow_host_is_waited_for)
{
	struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_SHUTDOWN);
	int fd = open_from_guest(NULL);

	vsock.io.write = write_nothing;
	send_packet(packet(VIRTIO_VSOCK_OP_RW), "two bytes", 9);
	header.flags = VSOCK_SHUT_BOTH;
	send_packet(header, NULL, 0);
	ck_assert_int_gt(TAILQ_FIRST(&vsock.all)->deadline_usec, clock_monotonic_usec());
	TAILQ_FIRST(&vsock.all)->deadline_usec = 0;
	vsock.io.write = write_every_other;
	ck_assert_int_eq(loop_step(&loop, 0), 0);
	ck_assert_int_gt(TAILQ_FIRST(&vsock.all)->deadline_usec, clock_monotonic_usec());
	(void) fd_close(fd);
}
END_TEST

/* What waited for it is gone with it, and the guest's credit is whole again. */
START_TEST(host_gone_with_data)
{
	struct virtio_vsock_hdr header;
	int fd = open_from_guest(NULL);

	vsock.io.write = write_nothing;
	for (int i = 0; i < 3; i++)
		send_packet(packet(VIRTIO_VSOCK_OP_RW), "to nobody", 9);
	(void) fd_close(fd);
	header = expect(VIRTIO_VSOCK_OP_SHUTDOWN);
	if (header.flags != VSOCK_SHUT_BOTH)
		header = expect(VIRTIO_VSOCK_OP_SHUTDOWN);
	ck_assert_uint_eq(header.flags, VSOCK_SHUT_BOTH);
	ck_assert_uint_eq(header.fwd_cnt, 27);
}
END_TEST

/* A host process that reads nothing of what a guest's closed connection left keeps it for a while, not for ever. */
START_TEST(guest_gives_up_on_a_deaf_host)
{
	struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_SHUTDOWN);
	int listen_fd, fd = open_from_guest(&listen_fd);
	int64_t before = clock_monotonic_usec(), until;

	vsock.io.write = write_nothing;
	send_packet(packet(VIRTIO_VSOCK_OP_RW), "to nobody", 9);
	ck_assert_int_eq((int) TAILQ_FIRST(&vsock.all)->deadline_usec, 0);
	header.flags = VSOCK_SHUT_BOTH;
	if (_i == 0)
		send_packet(header, NULL, 0);
	else
		send_op(VIRTIO_VSOCK_OP_RST);
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 1);
	until = TAILQ_FIRST(&vsock.all)->deadline_usec;
	ck_assert_int_ge(until, before + 30 * USEC_PER_SEC);
	ck_assert_int_le(until, clock_monotonic_usec() + 30 * USEC_PER_SEC);
	TAILQ_FIRST(&vsock.all)->deadline_usec = 1; /* it is over */
	while (vsock_stats(&vsock).connections > 0 && clock_monotonic_usec() < before + 45 * USEC_PER_SEC) {
		ck_assert_int_eq(loop_step(&loop, USEC_PER_SEC), 0);
		if (!TAILQ_FIRST(&vsock.all) || TAILQ_FIRST(&vsock.all)->state == VSOCK_RESETTING)
			break; /* the guest is told, and answers or not */
	}
	ck_assert(!TAILQ_FIRST(&vsock.all) || TAILQ_FIRST(&vsock.all)->state == VSOCK_RESETTING);
	(void) fd_close(fd);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-vsock-stream");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, window_is_kept);
	tcase_add_test(tcase, window_in_one_packet);
	tcase_add_loop_test(tcase, window_is_what_was_told, 0, 2);
	tcase_add_loop_test(tcase, packets_that_cross_a_reset, 0, 8);
	tcase_add_test(tcase, credit_comes_early);
	tcase_add_test(tcase, guest_credit);
	tcase_add_test(tcase, credit_request_is_answered);
	tcase_add_loop_test(tcase, stream_to_host, 0, STREAMS + 1);
	tcase_add_loop_test(tcase, stream_to_guest, 0, STREAMS + 1);
	tcase_add_test(tcase, streams_take_turns);
	tcase_add_test(tcase, host_half_closes);
	tcase_add_test(tcase, guest_half_closes);
	tcase_add_loop_test(tcase, guest_closes_half_by_half, 0, 2);
	tcase_add_test(tcase, guest_stops_reading);
	tcase_add_test(tcase, guest_shuts_with_unknown_flags);
	tcase_add_test(tcase, host_closes_with_data);
	tcase_add_test(tcase, guest_gives_up_on_slow_host);
	tcase_add_test(tcase, host_gone);
	tcase_add_test(tcase, slow_host_is_waited_for);
	tcase_add_test(tcase, host_gone_with_data);
	tcase_add_loop_test(tcase, guest_gives_up_on_a_deaf_host, 0, 2);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
