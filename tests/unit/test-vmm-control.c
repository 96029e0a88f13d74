/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts around the guest that need no KVM: loop, bus, and the bytes of the control socket.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/rng.h"
#include "bus.h"
#include "control.h"
#include "lib/suite.h"
#include "loop.h"
#include "pb/vmm.pb-c.h"
#include "server.h"

static struct loop loop;
static int irq_fd;

/* ---- loop ---- */

struct pair {
	struct loop_source source;
	struct pair *other;
	int fd, calls;
};

static void remove_other(void *data, uint32_t events)
{
	struct pair *pair = data;

	(void) events;
	pair->calls++;
	loop_remove(&loop, &pair->other->source);
}

/* Both are ready in one batch; whoever comes first removes the other, which must not be called any more. */
START_TEST(loop_remove_in_batch)
{
	struct pair a = { .other = NULL }, b = { .other = &a };

	a.other = &b;
	a.fd = eventfd(1, EFD_CLOEXEC);
	b.fd = eventfd(1, EFD_CLOEXEC);
	ck_assert_int_eq(loop_add(&loop, &a.source, a.fd, EPOLLIN, remove_other, &a), 0);
	ck_assert_int_eq(loop_add(&loop, &b.source, b.fd, EPOLLIN, remove_other, &b), 0);
	ck_assert_int_eq(loop_step(&loop, 0), 0);
	ck_assert_int_eq(a.calls + b.calls, 1);
	loop_remove(&loop, &a.source);
	loop_remove(&loop, &b.source);
	(void) fd_close(a.fd);
	(void) fd_close(b.fd);
}
END_TEST

static void count_up(void *data)
{
	++*(int *) data;
}

START_TEST(loop_timers)
{
	struct loop_timer soon = { .armed = false }, later = { .armed = false }, never = { .armed = false };
	int n_soon = 0, n_later = 0, n_never = 0;

	loop_timer_arm(&loop, &later, 20 * USEC_PER_MSEC, count_up, &n_later);
	loop_timer_arm(&loop, &never, 0, count_up, &n_never);
	loop_timer_arm(&loop, &soon, 0, count_up, &n_soon);
	loop_timer_disarm(&loop, &never);
	loop_timer_disarm(&loop, &never);
	ck_assert_int_eq(loop_step(&loop, 0), 0);
	ck_assert_int_eq(n_soon, 1);
	ck_assert_int_eq(n_later, 0);
	ck_assert_int_eq(loop_step(&loop, -1), 0); /* waits for the timer */
	ck_assert_int_eq(n_later, 1);
	ck_assert_int_eq(n_never, 0);
}
END_TEST

static void count_event(void *data, uint32_t events)
{
	(void) events;
	count_up(data);
}

static int *n_counted, n_at_rest;

static void put_to_rest(void *data, uint32_t events)
{
	(void) events;
	loop_rest(data, true);
	n_at_rest = *n_counted;
}

/* What comes while the child rests is there when it goes on; what ends while it does not is never dispatched. */
START_TEST(loop_nested)
{
	struct loop child;
	struct loop_source source = LOOP_SOURCE_NULL, first = LOOP_SOURCE_NULL;
	struct loop_timer timer = { .armed = false };
	int n_events = 0, n_timer = 0, fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), first_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	uint64_t one = 1;

	ck_assert_int_eq(loop_init(&child), 0);
	ck_assert_int_eq(loop_nest(&loop, &child), 0);
	ck_assert_int_eq(loop_add(&child, &source, fd, EPOLLIN, count_event, &n_events), 0);
	loop_timer_arm(&child, &timer, 10 * USEC_PER_MSEC, count_up, &n_timer);
	ck_assert_int_eq(loop_step(&loop, -1), 0); /* wakes for the child's timer */
	ck_assert_int_eq(n_timer, 1);

	loop_rest(&child, true);
	ck_assert_int_eq(write(fd, &one, sizeof(one)), sizeof(one));
	loop_timer_arm(&child, &timer, 0, count_up, &n_timer);
	ck_assert_int_eq(loop_step(&loop, 10 * USEC_PER_MSEC), 0);
	ck_assert_int_eq(n_events, 0);
	ck_assert_int_eq(n_timer, 1);

	loop_rest(&child, false);
	ck_assert_int_eq(loop_step(&loop, -1), 0);
	ck_assert_int_eq(n_events, 1);
	ck_assert_int_eq(n_timer, 2);

	/* it is put to rest by something that was ready in the same turn: its own is not served any more */
	ck_assert_int_eq(loop_add(&loop, &first, first_fd, EPOLLIN, put_to_rest, &child), 0);
	for (int i = 0; i < 16; i++) { /* in either order */
		n_events = 0;
		loop_rest(&child, false);
		ck_assert_int_eq(write(fd, &one, sizeof(one)), sizeof(one));
		ck_assert_int_eq(write(first_fd, &one, sizeof(one)), sizeof(one));
		n_at_rest = -1;
		n_counted = &n_events;
		ck_assert_int_eq(loop_step(&loop, -1), 0);
		ck_assert_int_eq(n_events, n_at_rest);
		(void) !read(fd, &one, sizeof(one));
		(void) !read(first_fd, &one, sizeof(one));
		one = 1;
		loop_remove(&loop, &first); /* it was before the child, and is behind it now; and so on */
		ck_assert_int_eq(loop_add(&loop, &first, first_fd, EPOLLIN, put_to_rest, &child), 0);
	}
	loop_remove(&loop, &first);
	(void) fd_close(first_fd);

	loop_remove(&child, &source);
	loop_deinit(&child);
	ck_assert_ptr_null(loop.child);
	ck_assert_int_eq(loop_step(&loop, 0), 0);
	(void) fd_close(fd);
}
END_TEST

/* ---- bus ---- */

static void bus_fill(void *data, uint64_t offset, uint8_t *bytes, uint32_t len)
{
	(void) data;
	memset(bytes, (int) offset, len);
}

START_TEST(bus_ranges)
{
	struct bus bus = { .n_ranges = 0 };
	struct bus_range range = { .base = 0x100, .size = 8, .read = bus_fill };
	uint8_t bytes[8];

	ck_assert_int_eq(bus_add(&bus, &range), 0);
	ck_assert_int_eq(bus_add(&bus, &range), -EEXIST);
	range.base = 0x107;
	ck_assert_int_eq(bus_add(&bus, &range), -EEXIST);
	range.base = 0x108;
	ck_assert_int_eq(bus_add(&bus, &range), 0);
	bus_read(&bus, 0x104, bytes, 4);
	ck_assert_uint_eq(bytes[0], 4);
	bus_read(&bus, 0x106, bytes, 4); /* over the end of a range, though another begins there */
	ck_assert_uint_eq(bytes[0], 0xff);
	bus_read(&bus, 0xff, bytes, 1);
	ck_assert_uint_eq(bytes[0], 0xff);
	bus_read(&bus, UINT64_MAX, bytes, 8);
	ck_assert_uint_eq(bytes[7], 0xff);
	bus_write(&bus, 0x100, bytes, 1); /* nobody takes writes there */
	bus_write(&bus, UINT64_MAX - 3, bytes, 8);
}
END_TEST

/* ---- answers with descriptors ---- */

static void ignore_request(void *data, struct server_connection *connection, struct control_request *request)
{
	(void) data;
	(void) connection;
	(void) request;
}

/* What cannot be sent is the caller's to tell: the connection stays, for that and for the next try. */
START_TEST(descriptors_that_cannot_be_sent)
{
	static struct server server;
	struct server_connection *connection = &server.connections[0];
	const struct sockaddr_un any = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un at;
	socklen_t size = sizeof(at);
	int none = -1, fds[1];
	size_t n_fds = 0;
	char bytes[16];

	ck_assert_int_eq(bind(listener, (const struct sockaddr *) &any, sizeof(any.sun_family)), 0); /* a name of the kernel's */
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *) &at, &size), 0);
	ck_assert_int_eq(server_init(&server, &loop, listener, ignore_request, NULL), 0);
	ck_assert_int_eq(connect(peer, (const struct sockaddr *) &at, size), 0);
	ck_assert_int_eq(loop_step(&loop, USEC_PER_SEC), 0);
	ck_assert_int_ge(connection->fd, 0);
	ck_assert_int_eq(server_send_fds(&server, connection, 4, &none, 1), -EBADF);
	ck_assert_int_ge(connection->fd, 0);
	while (connection->n_queued == 0)
		server_send(&server, connection, 4);
	ck_assert_int_eq(server_send_fds(&server, connection, 4, &irq_fd, 1), -EAGAIN);
	ck_assert_int_ge(connection->fd, 0);
	while (recv(peer, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		ck_assert_int_eq(loop_step(&loop, 0), 0);
	ck_assert(!server_has_unsent(&server));
	ck_assert_int_eq(server_send_fds(&server, connection, 4, &irq_fd, 1), 0);
	ck_assert_int_eq((int) unix_recv_fds(peer, bytes, sizeof(bytes), fds, 1, &n_fds), 4);
	ck_assert_uint_eq(n_fds, 1);
	(void) close(fds[0]);
	(void) close(peer);
	server_deinit(&server);
}
END_TEST

static void set_up(void)
{
	ck_assert_int_eq(loop_init(&loop), 0);
	irq_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static void tear_down(void)
{
	(void) fd_close(irq_fd);
	loop_deinit(&loop);
}

/* ---- the control socket's bytes ---- */

static size_t pack_start(uint8_t *buf, void (*change)(Croft__VmmStart *))
{
	Croft__VmmRequest request = CROFT__VMM_REQUEST__INIT;
	Croft__VmmStart start;
	Croft__VmmVsock vsock;
	Croft__VmmDisk one, two, *disks[12];
	static char cmdline[] = "a=b", path[] = "/run/x/v", serial_number[] = "s", long_serial[] = "123456789012345678901";

	croft__vmm_start__init(&start);
	croft__vmm_vsock__init(&vsock);
	croft__vmm_disk__init(&one);
	croft__vmm_disk__init(&two);
	for (size_t i = 0; i < ARRAY_LEN(disks); i++)
		disks[i] = i == 0 ? &one : &two;
	one.read_only = true;
	one.serial = serial_number;
	two.serial = change ? long_serial : serial_number; /* which one disk alone does not have */
	vsock.guest_cid = 3;
	vsock.path = path;
	start.vcpus = 2;
	start.memory_mib = 512;
	start.cmdline = cmdline;
	start.has_initramfs = true;
	start.n_disks = 2;
	start.disks = disks;
	start.vsock = &vsock;
	start.has_console = true;
	if (change)
		change(&start);
	request.id = 77;
	request.body_case = CROFT__VMM_REQUEST__BODY_START;
	request.start = &start;
	return croft__vmm_request__pack(&request, buf);
}

static void open_fds(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

START_TEST(control_start)
{
	struct control_request request;
	uint8_t buf[4096];
	int fds[7], copy[7];
	size_t n = pack_start(buf, NULL);

	open_fds(fds, 7);
	memcpy(copy, fds, sizeof(copy));
	ck_assert_int_eq(control_decode(buf, n, fds, 7, &request, NULL), 0);
	ck_assert_uint_eq(request.id, 77);
	ck_assert_int_eq((int) request.kind, CONTROL_START);
	ck_assert_int_eq(request.start.kvm_fd, copy[0]);
	ck_assert_int_eq(request.start.kernel_fd, copy[1]);
	ck_assert_int_eq(request.start.initramfs_fd, copy[2]);
	ck_assert_int_eq(request.start.disks[0].fd, copy[3]);
	ck_assert_int_eq(request.start.disks[1].fd, copy[4]);
	ck_assert_int_eq(request.start.vsock_fd, copy[5]);
	ck_assert_int_eq(request.start.console_fd, copy[6]);
	ck_assert(request.start.disks[0].is_read_only && !request.start.disks[1].is_read_only);
	ck_assert_str_eq(request.start.vsock_path, "/run/x/v");
	ck_assert_str_eq(request.start.cmdline, "a=b");
	control_request_deinit(&request);
	for (size_t i = 0; i < 7; i++)
		ck_assert_int_eq(fcntl(copy[i], F_GETFD), -1);
}
END_TEST

static uint8_t mac[7] = { 2, 0, 0, 0, 0, 9, 0 };
static Croft__VmmRate narrow;
static Croft__VmmNet net;
static Croft__VmmBalloon balloon;

static void with_net(Croft__VmmStart *start)
{
	croft__vmm_rate__init(&narrow);
	croft__vmm_net__init(&net);
	croft__vmm_balloon__init(&balloon);
	narrow.ops = 1;
	narrow.ops_burst = 2;
	narrow.bytes = 3;
	narrow.bytes_burst = 4;
	net.mac.data = mac;
	net.mac.len = 6;
	net.from_guest = &narrow;
	start->n_disks = 1;
	start->net = &net;
	start->balloon = &balloon;
}
static void with_short_mac(Croft__VmmStart *start)
{
	with_net(start);
	net.mac.len = 5;
}
static void with_long_mac(Croft__VmmStart *start)
{
	with_net(start);
	net.mac.len = 7;
}

/* The TAP is the last descriptor; what is not said is no limit and a pinned address. */
START_TEST(control_start_net)
{
	struct control_request request;
	uint8_t buf[4096];
	int fds[7], tap;
	size_t n = pack_start(buf, with_net);

	open_fds(fds, 7);
	tap = fds[6];
	ck_assert_int_eq(control_decode(buf, n, fds, 7, &request, NULL), 0);
	ck_assert(request.start.has_net && request.start.has_balloon);
	ck_assert_int_eq(request.start.tap_fd, tap);
	ck_assert_mem_eq(request.start.net.mac, mac, 6);
	ck_assert(!request.start.net.may_forge_mac);
	ck_assert_uint_eq(request.start.net.to_guest.ops | request.start.net.to_guest.bytes, 0);
	ck_assert_uint_eq(request.start.net.from_guest.ops, 1);
	ck_assert_uint_eq(request.start.net.from_guest.ops_burst, 2);
	ck_assert_uint_eq(request.start.net.from_guest.bytes, 3);
	ck_assert_uint_eq(request.start.net.from_guest.bytes_burst, 4);
	control_request_deinit(&request);
	ck_assert_int_eq(fcntl(tap, F_GETFD), -1);
}
END_TEST

static void restored(Croft__VmmStart *start);
static void with_layers(Croft__VmmStart *start);
static void prepared(Croft__VmmStart *start);

/* The order of a fork's descriptors, and of what a VM made ahead still needs. */
START_TEST(control_start_forked)
{
	struct control_request request;
	uint8_t buf[4096];
	int fds[14], copy[14];
	size_t n = pack_start(buf, with_layers);

	open_fds(fds, 14);
	memcpy(copy, fds, sizeof(copy));
	ck_assert_int_eq(control_decode(buf, n, fds, 14, &request, NULL), 0);
	ck_assert(request.start.is_restore && request.start.is_forked && !request.start.is_prepared);
	ck_assert_int_eq(request.start.kvm_fd, copy[0]);
	ck_assert_int_eq(request.start.state_fd, copy[1]);
	ck_assert_int_eq(request.start.memory_fd, copy[2]);
	ck_assert_uint_eq(request.start.n_layers, 8);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(request.start.layer_fds[i], copy[3 + i]);
	ck_assert_int_eq(request.start.disks[0].fd, copy[11]);
	ck_assert_int_eq(request.start.vsock_fd, copy[12]);
	ck_assert_int_eq(request.start.console_fd, copy[13]);
	control_request_deinit(&request);
	for (int i = 0; i < 14; i++)
		ck_assert_int_eq(fcntl(copy[i], F_GETFD), -1);
	n = pack_start(buf, prepared);
	open_fds(fds, 3);
	memcpy(copy, fds, 3 * sizeof(copy[0]));
	ck_assert_int_eq(control_decode(buf, n, fds, 3, &request, NULL), 0);
	ck_assert(request.start.is_prepared && request.start.kvm_fd < 0);
	ck_assert_int_eq(request.start.state_fd, copy[0]);
	ck_assert_int_eq(request.start.memory_fd, copy[1]);
	ck_assert_int_eq(request.start.disks[0].fd, copy[2]);
	control_request_deinit(&request);
}
END_TEST

static void keep(Croft__VmmStart *start)
{
	(void) start; /* the second disk's serial is too long by itself */
}
static void nine_disks(Croft__VmmStart *start)
{
	start->n_disks = 9;
}
static void long_path(Croft__VmmStart *start)
{
	static char path[4000];

	memset(path, 'x', sizeof(path) - 1);
	start->n_disks = 1;
	start->vsock->path = path;
}

/* A restored VM with one disk, vsock and console: 6 descriptors, 3 without those of the shell. */
static void restored(Croft__VmmStart *start)
{
	static char none[] = "";

	start->n_disks = 1;
	start->cmdline = none;
	start->has_initramfs = false;
	start->restore = true;
}
static void with_layers(Croft__VmmStart *start)
{
	restored(start);
	start->layers = 8;
	start->forked = true;
}
static void with_nine_layers(Croft__VmmStart *start)
{
	restored(start);
	start->layers = 9;
}
static void with_many_layers(Croft__VmmStart *start)
{
	restored(start);
	start->layers = UINT32_MAX;
}
static void booted_with_layers(Croft__VmmStart *start)
{
	start->n_disks = 1;
	start->layers = 1;
}
static void prepared(Croft__VmmStart *start)
{
	restored(start);
	start->vsock = NULL;
	start->has_console = false;
	start->prepared = true;
}
static void prepared_with_vsock(Croft__VmmStart *start)
{
	restored(start);
	start->prepared = true;
}
static void booted_prepared(Croft__VmmStart *start)
{
	start->n_disks = 1;
	start->prepared = true;
}

static void prepared_with_balloon(Croft__VmmStart *start)
{
	prepared(start);
	croft__vmm_balloon__init(&balloon);
	start->balloon = &balloon;
}
static void restored_with_cmdline(Croft__VmmStart *start)
{
	static char cmdline[] = "a=b";

	restored(start);
	start->cmdline = cmdline;
}
static void long_lease(Croft__VmmStart *start)
{
	restored(start);
	start->lease_ms = LEASE_MS_MAX + 1;
}
static void lease_of_no_time(Croft__VmmStart *start)
{
	restored(start);
	start->lease_ms = 1;
	start->lease_until_us = (uint64_t) INT64_MAX + 1;
}

static const struct {
	void (*change)(Croft__VmmStart *);
	size_t n_fds;
	enum fail_code code;
	const char *why; /* or a row could pass by another's check */
} bad_starts[] = {
	{ restored, 5, FAIL_VMM_CONTROL_INVALID, "number of descriptors" },
	{ with_layers, 13, FAIL_VMM_CONTROL_INVALID, "number of descriptors" },
	{ with_nine_layers, 15, FAIL_VMM_CONTROL_INVALID, "8 layers" },
	{ with_many_layers, 5, FAIL_VMM_CONTROL_INVALID, "8 layers" }, /* as many as there are, modulo 2^32 */
	{ booted_with_layers, 7, FAIL_VMM_CONTROL_INVALID, "a restored VM's" },
	{ prepared, 4, FAIL_VMM_CONTROL_INVALID, "number of descriptors" },
	{ prepared_with_vsock, 5, FAIL_VMM_CONTROL_INVALID, "those that were prepared" },
	{ prepared_with_balloon, 3, FAIL_VMM_CONTROL_INVALID, "those that were prepared" },
	{ booted_prepared, 5, FAIL_VMM_CONTROL_INVALID, "a restored VM's" },
	{ restored_with_cmdline, 6, FAIL_VMM_CONTROL_INVALID, "no command line" },
	{ long_lease, 6, FAIL_VMM_CONTROL_INVALID, "more than a year" },
	{ lease_of_no_time, 6, FAIL_VMM_CONTROL_INVALID, "at no time" },
	{ NULL, 6, FAIL_VMM_CONTROL_INVALID, "number of descriptors" },
	{ NULL, 8, FAIL_VMM_CONTROL_INVALID, "number of descriptors" },
	{ NULL, 0, FAIL_VMM_CONTROL_INVALID, "number of descriptors" },
	{ keep, 7, FAIL_VMM_CONTROL_INVALID, "20 bytes" },
	{ nine_disks, 14, FAIL_VMM_CONTROL_INVALID, "8 disks" },
	{ long_path, 6, FAIL_SOCKET_PATH_TOO_LONG, "vsock.path" },
	{ with_net, 6, FAIL_VMM_CONTROL_INVALID, "number of descriptors" },
	{ with_short_mac, 7, FAIL_VMM_CONTROL_INVALID, "6 bytes" },
	{ with_long_mac, 7, FAIL_VMM_CONTROL_INVALID, "6 bytes" },
};

/* Refused, the id known, and no descriptor is left open. */
START_TEST(control_bad_start)
{
	struct control_request request;
	uint8_t buf[8192];
	int fds[16], copy[16];
	struct err err = ERR_NULL;
	size_t n = pack_start(buf, bad_starts[_i].change);

	open_fds(fds, bad_starts[_i].n_fds);
	memcpy(copy, fds, sizeof(copy));
	ck_assert_int_lt(control_decode(buf, n, fds, bad_starts[_i].n_fds, &request, &err), 0);
	ck_assert_int_eq((int) err.code, (int) bad_starts[_i].code);
	ck_assert_msg(strstr(err.msg, bad_starts[_i].why), "%s", err.msg);
	ck_assert_uint_eq(request.id, 77);
	for (size_t i = 0; i < bad_starts[_i].n_fds; i++)
		ck_assert_int_eq(fcntl(copy[i], F_GETFD), -1);
}
END_TEST

/* As many disks as there may be, and a lease as long as one may be. */
static void at_the_bounds(Croft__VmmStart *start)
{
	start->n_disks = CONFIG_DISKS_MAX;
	for (size_t i = 1; i < CONFIG_DISKS_MAX; i++)
		start->disks[i] = start->disks[0];
	start->lease_ms = LEASE_MS_MAX;
	start->lease_until_us = INT64_MAX;
}

START_TEST(control_start_at_the_bounds)
{
	struct control_request request;
	uint8_t buf[4096];
	int fds[13];
	size_t n = pack_start(buf, at_the_bounds);

	open_fds(fds, 13);
	ck_assert_int_eq(control_decode(buf, n, fds, 13, &request, NULL), 0);
	ck_assert_uint_eq(request.start.n_disks, CONFIG_DISKS_MAX);
	ck_assert_uint_eq(request.start.lease_ms, LEASE_MS_MAX);
	control_request_deinit(&request);
}
END_TEST

/* What other requests may not have: descriptors, one too many of them, a lease that is none. */
START_TEST(control_bad_request)
{
	static const struct {
		Croft__VmmRequest__BodyCase body;
		uint64_t lease_ms, until_us;
		size_t n_fds;
		const char *why;
	} rows[] = {
		{ CROFT__VMM_REQUEST__BODY_STATUS, 0, 0, 1, "start, prepare and snapshot only" },
		{ CROFT__VMM_REQUEST__BODY_SNAPSHOT, 0, 0, 1, "two descriptors" },
		{ CROFT__VMM_REQUEST__BODY_SNAPSHOT, 0, 0, 3, "two descriptors" },
		{ CROFT__VMM_REQUEST__BODY_RENEW, LEASE_MS_MAX + 1, 0, 0, "more than a year" },
		{ CROFT__VMM_REQUEST__BODY_RENEW, 1, (uint64_t) INT64_MAX + 1, 0, "at no time" },
		{ CROFT__VMM_REQUEST__BODY_RENEW, LEASE_MS_MAX, INT64_MAX, 0, NULL }, /* as it may be */
		{ CROFT__VMM_REQUEST__BODY_SNAPSHOT, 0, 0, 2, NULL },
	};
	Croft__VmmRequest message = CROFT__VMM_REQUEST__INIT;
	Croft__VmmStatusRequest status = CROFT__VMM_STATUS_REQUEST__INIT;
	Croft__VmmSnapshot snapshot = CROFT__VMM_SNAPSHOT__INIT;
	Croft__VmmRenew renew = CROFT__VMM_RENEW__INIT;
	struct control_request request;
	struct err err = ERR_NULL;
	uint8_t buf[256];
	int fds[3], copy[3];

	message.body_case = rows[_i].body;
	if (rows[_i].body == CROFT__VMM_REQUEST__BODY_STATUS)
		message.status = &status;
	else if (rows[_i].body == CROFT__VMM_REQUEST__BODY_SNAPSHOT)
		message.snapshot = &snapshot;
	else
		message.renew = &renew;
	renew.lease_ms = rows[_i].lease_ms;
	renew.until_us = rows[_i].until_us;
	open_fds(fds, rows[_i].n_fds);
	memcpy(copy, fds, sizeof(copy));
	ck_assert_int_eq(control_decode(buf, croft__vmm_request__pack(&message, buf), fds, rows[_i].n_fds, &request, &err),
		rows[_i].why ? -EINVAL : 0);
	ck_assert_msg(!rows[_i].why || strstr(err.msg, rows[_i].why), "%s", err.msg);
	control_request_deinit(&request);
	for (size_t i = 0; i < rows[_i].n_fds; i++)
		ck_assert_int_eq(fcntl(copy[i], F_GETFD), -1);
}
END_TEST

/* One byte changed, bytes cut off, noise: decoded or refused, never more. */
START_TEST(control_fuzz)
{
	struct rng rng = rng_seeded(7);
	uint8_t good[4096], buf[4096];
	size_t n = pack_start(good, NULL);

	for (int i = 0; i < 20000; i++) {
		struct control_request request;
		size_t size = rng_below(&rng, 4) ? n : (size_t) rng_below(&rng, n + 1);
		int fds[7];

		memcpy(buf, good, n);
		for (uint64_t k = rng_below(&rng, 4); k > 0 && size > 0; k--)
			buf[rng_below(&rng, size)] = (uint8_t) rng_u64(&rng);
		if (i % 100 == 0)
			rng_bytes(&rng, buf, size);
		open_fds(fds, 7);
		if (control_decode(buf, size, fds, 7, &request, NULL) == 0)
			control_request_deinit(&request);
	}
	ck_assert_int_lt(control_decode(buf, CONTROL_PACKET_MAX + 1, NULL, 0, &(struct control_request) { .id = 0 }, NULL),
		0);
}
END_TEST

/* An agent of a later minor version: members that are not known are passed over, a request is refused by its id, and no
 * descriptor is left open. */
START_TEST(control_newer)
{
	static const char *const newer[] = { "\x08\x09\xd2\x7d\x00", "\x08\x09\xd2\x7d\x02xy" }; /* id 9, body 2010 */
	static const size_t sizes[] = { 5, 7 };
	struct control_request request;
	uint8_t buf[8192];
	int fds[7], copy[7];
	struct err err = ERR_NULL;
	size_t n = pack_start(buf, NULL);

	memcpy(buf + n, "\xa2\x7d\x03new", 6);
	open_fds(fds, 7);
	ck_assert_msg(control_decode(buf, n + 6, fds, 7, &request, &err) == 0, "%s", err.msg);
	ck_assert_uint_eq(request.id, 77);
	control_request_deinit(&request);
	for (size_t i = 0; i < ARRAY_LEN(newer); i++) {
		open_fds(fds, 7);
		memcpy(copy, fds, sizeof(copy));
		ck_assert_int_lt(
			control_decode((const uint8_t *) newer[i], sizes[i], fds, 7, &request, &err), 0);
		ck_assert_uint_eq(request.id, 9);
		for (size_t k = 0; k < ARRAY_LEN(copy); k++)
			ck_assert_int_eq(fcntl(copy[k], F_GETFD), -1);
	}
}
END_TEST

START_TEST(control_failure)
{
	static uint8_t buf[CONTROL_PACKET_MAX];
	struct err err = ERR_NULL;
	Croft__VmmMessage *message;

	(void) err_set(&err, FAIL_CMDLINE_TOO_LONG, E2BIG, "too long");
	err_add(&err, "have", "3000");
	err_add(&err, "max", "2047");
	message = croft__vmm_message__unpack(NULL, control_encode_failure(9, &err, buf), buf);
	ck_assert_ptr_nonnull(message);
	ck_assert_uint_eq(message->response->id, 9);
	ck_assert_str_eq(message->response->failure->code, "CMDLINE_TOO_LONG");
	ck_assert_int_eq(message->response->failure->err_no, E2BIG);
	ck_assert_uint_eq(message->response->failure->n_fields, 2);
	ck_assert_str_eq(message->response->failure->fields[1]->value, "2047");
	croft__vmm_message__free_unpacked(message, NULL);
}
END_TEST

START_TEST(control_stats)
{
	static uint8_t buf[CONTROL_PACKET_MAX];
	struct control_stats stats = { .memory_mib = 1, .vcpus = 2, .vm = { .kvm_runs = 3, .n_disks = 1,
		.disks = { { .reads = 4, .errors = 5 } }, .vsock = { .connections = 6 }, .serial = { .dropped = 7 },
		.bad_gpa = 8, .needs_reset = 9, .rng_bytes = 10 } };
	Croft__VmmMessage *message = croft__vmm_message__unpack(NULL, control_encode_stats(1, &stats, buf), buf);
	const Croft__VmmStats *out_stats;

	ck_assert_ptr_nonnull(message);
	out_stats = message->response->stats;
	ck_assert_uint_eq(out_stats->kvm_runs, 3);
	ck_assert_uint_eq(out_stats->disks[0]->reads, 4);
	ck_assert_uint_eq(out_stats->disks[0]->errors, 5);
	ck_assert_uint_eq(out_stats->vsock_connections, 6);
	ck_assert_uint_eq(out_stats->console_dropped, 7);
	ck_assert_uint_eq(out_stats->guest_bad_gpa, 8);
	ck_assert_uint_eq(out_stats->device_resets_needed, 9);
	ck_assert_uint_eq(out_stats->rng_bytes, 10);
	croft__vmm_message__free_unpacked(message, NULL);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-control");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, loop_remove_in_batch);
	tcase_add_test(tcase, loop_timers);
	tcase_add_test(tcase, loop_nested);
	tcase_add_test(tcase, bus_ranges);
	tcase_add_test(tcase, control_start);
	tcase_add_test(tcase, control_start_net);
	tcase_add_test(tcase, control_start_forked);
	tcase_add_loop_test(tcase, control_bad_start, 0, ARRAY_LEN(bad_starts));
	tcase_add_test(tcase, control_start_at_the_bounds);
	tcase_add_loop_test(tcase, control_bad_request, 0, 7);
	tcase_add_test(tcase, control_newer);
	tcase_add_test(tcase, control_fuzz);
	tcase_add_test(tcase, control_failure);
	tcase_add_test(tcase, control_stats);
	tcase_add_test(tcase, descriptors_that_cannot_be_sent);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	(void) signal(SIGPIPE, SIG_IGN);
	return suite_run(make_suite());
}
