/* SPDX-License-Identifier: Apache-2.0
 *
 * A vsock device between a guest's rings, driven by hand, and real unix sockets in a folder of its own: what the
 * tests of the device share.
 */
#pragma once

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_vsock.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
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

static inline void give_rx(unsigned int index, uint32_t len)
{
	driver_set_desc(&driver, VSOCK_QUEUE_RX, index, RX_AT + index * RX_BUFFER, len, D_WRITE, 0);
	driver_push(&driver, VSOCK_QUEUE_RX, index);
}

static inline void run(void)
{
	driver_write(&driver, 0x50, VSOCK_QUEUE_RX);
	driver_write(&driver, 0x50, VSOCK_QUEUE_TX);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(loop_step(&loop, 0), 0);
}

static inline void start_guest(bool with_buffers)
{
	driver_start(&driver, 0);
	tx_slot = 0;
	fwd_cnt = 0;
	buf_alloc = 256 * 1024;
	for (unsigned int i = 0; with_buffers && i < DRIVER_N; i++)
		give_rx(i, RX_BUFFER);
	run();
}

static inline struct virtio_vsock_hdr packet(uint16_t op)
{
	return (struct virtio_vsock_hdr) { .src_cid = CID, .dst_cid = 2, .src_port = GUEST_PORT, .dst_port = HOST_PORT,
		.type = VIRTIO_VSOCK_TYPE_STREAM, .op = op, .buf_alloc = buf_alloc, .fwd_cnt = fwd_cnt };
}

/* One descriptor of `size` bytes: the header and what follows. */
static inline void send_raw(const struct virtio_vsock_hdr *header, const void *data, uint32_t size)
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

static inline void send_packet(struct virtio_vsock_hdr header, const void *data, uint32_t size)
{
	header.len = size;
	send_raw(&header, data, (uint32_t) sizeof(header) + size);
}

static inline void send_op(uint16_t op)
{
	send_packet(packet(op), NULL, 0);
}

/* The next packet of the host; its payload in `data`. The buffer is given back at once. -1: none. */
static inline int receive_into(struct virtio_vsock_hdr *ret, uint8_t *data, bool give_back)
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

static inline struct virtio_vsock_hdr expect(uint16_t op)
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

static inline void expect_nothing(void)
{
	struct virtio_vsock_hdr header;

	run();
	ck_assert_int_eq(receive_into(&header, NULL, true), -1);
}

/* ---- the host's side ---- */

static inline int host_listen(uint32_t port, int backlog)
{
	char name[128];
	int fd;

	(void) snprintf(name, sizeof(name), "%s_%u", path, port);
	fd = unix_listen(name, SOCK_STREAM, 0600, backlog);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static inline int host_accept(int listen_fd)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static inline int host_connect(const char *line)
{
	int fd = unix_connect(path, SOCK_STREAM);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_write_all(fd, line, strlen(line)), 0);
	run();
	return fd;
}

static inline void expect_eof(int fd)
{
	ssize_t n;
	char byte;

	errno = 0;
	n = read(fd, &byte, 1);
	ck_assert_int_le((int) n, 0);
	ck_assert_int_ne(errno, EAGAIN);
}

/* A connection that the guest opened; the host's end of it. */
static inline int open_from_guest(int *ret_listen)
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

static inline void set_up(void)
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

static inline void tear_down(void)
{
	vsock_deinit(&vsock);
	memory_deinit(&driver.memory);
	loop_deinit(&loop);
	ck_assert_int_eq(dir_remove(directory), 0);
}
