/* SPDX-License-Identifier: Apache-2.0
 *
 * What the villain knows of each kind of device: layouts of virtio 1.2, chapter 5, and the host's side that the runner
 * provides (tests/villain/main.c).
 */
#pragma once

#include "villain.h"

/* ---- block: a disk of DISK_SECTORS in which every byte of sector i is i + 1; cases write from DISK_SCRATCH on ---- */
#define DISK_SECTORS 64u
#define DISK_SCRATCH 48u
#define BLK_IN 0u
#define BLK_OUT 1u
#define BLK_FLUSH 4u
#define BLK_GET_ID 8u
#define BLK_DISCARD 11u
#define BLK_WRITE_ZEROES 13u
#define BLK_OK 0
#define BLK_IOERR 1
#define BLK_UNSUPP 2
#define BLK_NOTHING 0xee /* what stands in the status byte before */
#define F_BLK_RO (UINT64_C(1) << 5)
#define F_BLK_FLUSH (UINT64_C(1) << 9)

struct blk_head {
	uint32_t type, reserved;
	uint64_t sector;
};
/* Puts a header into TEXT; its address. */
uint64_t blk_head(struct villain *v, uint32_t offset, uint32_t type, uint64_t sector);

/* ---- vsock ---- */
#define RX 0u
#define TX 1u
#define EVENT 2u
#define GUEST_CID 3u
#define HOST_CID 2u
#define PORT_NOBODY 9u    /* nobody listens */
#define PORT_ECHO 1000u   /* sends back what it gets */
#define PORT_DEAF 1001u   /* accepts and never reads */
#define PORT_BUSY 1002u   /* its backlog is full and stays so */
#define OP_REQUEST 1u
#define OP_RESPONSE 2u
#define OP_RST 3u
#define OP_SHUTDOWN 4u
#define OP_RW 5u
#define OP_CREDIT_UPDATE 6u
#define OP_CREDIT_REQUEST 7u
#define VSOCK_HEAD 44u
#define TYPE_STREAM 1u
#define TYPE_SEQPACKET 2u

struct vsock_head {
	uint64_t src_cid, dst_cid;
	uint32_t src_port, dst_port, len;
	uint16_t type, op;
	uint32_t flags, buf_alloc, fwd_cnt;
};
/* A packet of ours to `port`, with a window of 256 KiB, from a port of its own. */
struct vsock_head vsock_packet(struct villain *v, uint32_t port, unsigned int op);
/* Sends it with `size` bytes of payload (which lie in WASTE) from TX descriptor `index` and waits until it was taken. */
bool vsock_send(struct villain *v, unsigned int index, const struct vsock_head *head, uint32_t size);
/* Offers RX descriptor `index` with room for a header and `size` bytes. */
void vsock_offer(struct villain *v, unsigned int index, uint32_t size);
/* The next packet that concerns the connection of `sent`, whatever buffer it came in; those of others are thrown away
 * and their buffers offered again. False: none came. */
bool vsock_receive(struct villain *v, const struct vsock_head *sent, struct vsock_head *ret);
/* Opens a connection; *ret is the request that was sent. False: refused. */
bool vsock_open(struct villain *v, uint32_t port, struct vsock_head *ret);

/* ---- network ---- */
#define F_NET_MERGE (UINT64_C(1) << 15)
struct net_head {
	uint8_t flags, gso_type;
	uint16_t hdr_len, gso_size, csum_start, csum_offset, num_buffers;
};

/* ---- balloon ---- */
#define INFLATE 0u
#define DEFLATE 1u
#define STATS 2u
