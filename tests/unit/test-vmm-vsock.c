/* SPDX-License-Identifier: Apache-2.0
 *
 * The vsock device between a guest's rings and real unix sockets: both directions of connecting, packets that no
 * honest driver sends, bounds. Cases R101 R103 R104.
 */
#include <check.h>
#include <poll.h>
#include <sys/resource.h>

#include "base/log.h"
#include "lib/suite.h"
#include "lib/vsock-rig.h"

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
	ck_assert_int_eq((int) TAILQ_FIRST(&vsock.all)->deadline_usec, 0); /* it may be silent for as long as it likes */
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
	"CONNECT 99999999999999999999999\n", "CONNECT 1\r\n",
	"CONNECT 00000001234\n" /* longer than the longest port has it */ };

START_TEST(bad_greeting)
{
	int fd = host_connect(bad_lines[_i]);

	expect_eof(fd);
	expect_nothing();
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
	(void) fd_close(fd);
}
END_TEST

/* From the last port on it begins anew; what is no port of ours changes nothing. */
START_TEST(host_ports_wrap)
{
	static const uint32_t wanted[] = { 0x7ffffffe, 0x7fffffff, 0x40000000, 0x40000001, 0x40000002 };
	int fds[ARRAY_LEN(wanted)];

	vsock_set_next_port(&vsock, wanted[0]);
	vsock_set_next_port(&vsock, 5);
	vsock_set_next_port(&vsock, 0x80000000);
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
		fds[i] = host_connect("CONNECT 1234\n");
		ck_assert_uint_eq(expect(VIRTIO_VSOCK_OP_REQUEST).src_port, wanted[i]);
		if (i == 3)
			vsock_set_next_port(&vsock, wanted[0]); /* and those that are in use are left out */
	}
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		(void) fd_close(fds[i]);
}
END_TEST

/* Lets the deadline of the one connection, which lies ahead but not far, be over; the sweep sees it. */
static void let_time_pass(void)
{
	struct vsock_connection *connection = TAILQ_FIRST(&vsock.all);
	int64_t now = clock_monotonic_usec();

	ck_assert_ptr_nonnull(connection);
	ck_assert_int_gt(connection->deadline_usec, now);
	ck_assert_int_lt(connection->deadline_usec, now + 60 * USEC_PER_SEC);
	connection->deadline_usec = 1;
	for (int i = 0; i < 50 && vsock_stats(&vsock).connections > 0; i++) {
		ck_assert_int_eq(loop_step(&loop, 200 * USEC_PER_MSEC), 0);
		run();
	}
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
}

/* A peer that never ends its line, and a guest that never answers. */
START_TEST(waits_have_an_end)
{
	int fd = host_connect("CONNECT 12");

	if (_i == 1) { /* the line's end begins another wait */
		TAILQ_FIRST(&vsock.all)->deadline_usec = clock_monotonic_usec();
		ck_assert_int_eq((int) write(fd, "34\n", 3), 3);
		(void) expect(VIRTIO_VSOCK_OP_REQUEST);
	}
	let_time_pass();
	expect_eof(fd);
	if (_i == 1)
		(void) expect(VIRTIO_VSOCK_OP_RST);
	expect_nothing();
	(void) fd_close(fd);
}
END_TEST

/* Without descriptors nobody is let in, nothing spins, and it goes on when there are some. */
START_TEST(out_of_descriptors)
{
	int fd = unix_connect(path, SOCK_STREAM), next = dup(fd);
	struct rlimit before, none;

	ck_assert_int_ge(next, 0);
	(void) fd_close(next);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = (rlim_t) next;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	run();
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 0);
	ck_assert_int_eq(poll(&(struct pollfd) { .fd = loop.epoll_fd, .events = POLLIN }, 1, 0), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	for (int i = 0; i < 50 && vsock_stats(&vsock).connections == 0; i++)
		ck_assert_int_eq(loop_step(&loop, 200 * USEC_PER_MSEC), 0);
	ck_assert_uint_eq(vsock_stats(&vsock).connections, 1);
	(void) fd_close(fd);
}
END_TEST

/* Byte by byte. */
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

static const char *denied_path;

static int connect_denied(const char *to)
{
	return strstr(to, denied_path) ? -EACCES : -ECONNREFUSED;
}

/* What the log says while the guest tries `n` times to reach ports from `first` on, `step` apart. */
static unsigned int lines_of_refusals(unsigned int n, uint32_t first, uint32_t step)
{
	FILE *out = tmpfile();
	int saved = dup(STDERR_FILENO);
	char line[1024];
	unsigned int lines = 0;

	ck_assert(out && saved >= 0 && dup2(fileno(out), STDERR_FILENO) >= 0);
	log_init("test", LOG_LEVEL_WARN);
	for (unsigned int i = 0; i < n; i++) {
		struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_REQUEST), answer;

		header.dst_port = first + i * step;
		send_packet(header, NULL, 0);
		ck_assert_int_eq(receive_into(&answer, NULL, true), 0);
		ck_assert_uint_eq(answer.op, VIRTIO_VSOCK_OP_RST);
	}
	ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
	(void) fd_close(saved);
	rewind(out);
	while (fgets(line, sizeof(line), out)) {
		lines++;
		ck_assert_msg(strstr(line, "EACCES") && strstr(line, "_7"), "%s", line);
	}
	(void) fclose(out);
	return lines;
}

/* A socket that the VM's user may not reach: one line for it, no line for a port where nobody listens, and no guest can
 * fill the log. */
START_TEST(denied_is_logged)
{
	vsock.io.connect = connect_denied;
	denied_path = "_7";
	ck_assert_uint_eq(lines_of_refusals(20, 7, 0), 1);
	ck_assert_uint_eq(lines_of_refusals(3, 8, 0), 0);
	ck_assert_uint_eq(lines_of_refusals(40, 1000, 1), 0);
	ck_assert_uint_eq(lines_of_refusals(40, 700, 1), 7);
	ck_assert_uint_eq(vsock_stats(&vsock).refused, 103);
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

/* A driver resets and begins anew before the loop has its turn: what the new one sends is served, by one notification. */
START_TEST(driver_resets_between_two_turns)
{
	const struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_REQUEST);
	int fd = open_from_guest(NULL);

	driver_start(&driver, 0);
	give_rx(0, RX_BUFFER);
	memcpy(driver_at(&driver, TX_AT), &header, sizeof(header));
	driver_set_desc(&driver, VSOCK_QUEUE_TX, 0, TX_AT, sizeof(header), 0, 0);
	driver_push(&driver, VSOCK_QUEUE_TX, 0);
	driver_write(&driver, 0x50, VSOCK_QUEUE_TX);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(loop_step(&loop, 0), 0);
	ck_assert_int_eq(driver_pop(&driver, VSOCK_QUEUE_TX, NULL), 0);
	expect_eof(fd);
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

/* ---- bounds ---- */

/* R103 in small: many more connects than there may be connections, with a guest that takes the answers late. */
START_TEST(connection_limit)
{
	struct rlimit limit = { .rlim_cur = 8192, .rlim_max = 8192 };
	struct virtio_vsock_hdr header = packet(VIRTIO_VSOCK_OP_REQUEST), answer;
	unsigned int opened = 0, refused = 0, sent = 0, accepted = 0;
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
			accepted++; /* kept by the process until it ends: that is the point */
		run();
		while (receive_into(&answer, NULL, true) >= 0) {
			opened += answer.op == VIRTIO_VSOCK_OP_RESPONSE;
			refused += answer.op == VIRTIO_VSOCK_OP_RST;
		}
		ck_assert_uint_le(vsock_stats(&vsock).connections, VSOCK_CONNECTIONS_MAX);
	}
	ck_assert_uint_le(opened, VSOCK_CONNECTIONS_MAX);
	ck_assert_uint_ge(opened, 500);
	ck_assert_uint_eq(accepted, opened); /* the host's process hears nothing of the others */
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
	tcase_add_test(tcase, host_ports_wrap);
	tcase_add_loop_test(tcase, waits_have_an_end, 0, 2);
	tcase_add_test(tcase, out_of_descriptors);
	tcase_add_test(tcase, guest_refuses);
	tcase_add_loop_test(tcase, bad_greeting, 0, ARRAY_LEN(bad_lines));
	tcase_add_test(tcase, slow_greeting);
	tcase_add_test(tcase, nobody_listens);
	tcase_add_test(tcase, denied_is_logged);
	tcase_add_test(tcase, backlog_full);
	tcase_add_test(tcase, driver_not_ready);
	tcase_add_test(tcase, driver_resets);
	tcase_add_test(tcase, driver_resets_between_two_turns);
	tcase_add_loop_test(tcase, hostile_packets, 0, ARRAY_LEN(bad_packets));
	tcase_add_test(tcase, short_packets);
	tcase_add_test(tcase, unknown_connection);
	tcase_add_test(tcase, useless_buffers);
	tcase_add_test(tcase, broken_ring);
	tcase_add_test(tcase, connection_limit);
	tcase_add_test(tcase, replies_are_bounded);
	tcase_add_test(tcase, config_space);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
