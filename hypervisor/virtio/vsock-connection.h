/* SPDX-License-Identifier: Apache-2.0
 *
 * One vsock connection as seen from the guest's side of it: credit in both directions, which halves are shut,
 * which packet is due next. No I/O: vsock.c moves packets, vsock-host.c moves bytes of sockets.
 *
 *                    CONNECT line            RESPONSE
 *   (host) GREETING -------------> REQUESTED --------> OPEN --> RESETTING --> gone
 *   (guest) REQUEST, connect() worked -----------------^ |        (RST is to be sent)
 *                                                        +-----> DRAINING --> gone
 *                                     RST from the guest, its last bytes still on their way to the host
 *
 * Credit is counted in 32 bits that wrap, as virtio 1.2, 5.10.6.3 has it.
 */
#pragma once

#include <linux/virtio_vsock.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "loop.h"

#define VSOCK_WINDOW (64u * 1024)      /* bytes that we hold for a host process that does not read */
#define VSOCK_PACKET_MAX (64u * 1024)  /* payload of one packet to the guest */
#define VSOCK_HEADER_SIZE 44u
#define VSOCK_LINE_MAX 20              /* "CONNECT 4294967295\n" */

enum vsock_state { VSOCK_GREETING, VSOCK_REQUESTED, VSOCK_OPEN, VSOCK_RESETTING, VSOCK_DRAINING };

/* Packets that are due, most urgent first. */
#define VSOCK_DUE_RST 0x01u
#define VSOCK_DUE_REQUEST 0x02u
#define VSOCK_DUE_RESPONSE 0x04u
#define VSOCK_DUE_CREDIT_UPDATE 0x08u
#define VSOCK_DUE_CREDIT_REQUEST 0x10u
#define VSOCK_DUE_DATA 0x20u
#define VSOCK_DUE_SHUTDOWN 0x40u

#define VSOCK_SHUT_RECEIVE 1u          /* as in the packet's flags */
#define VSOCK_SHUT_SEND 2u
#define VSOCK_SHUT_BOTH 3u

struct vsock_device;

struct vsock_connection {
	struct vsock_device *vsock;
	enum vsock_state state;
	uint32_t guest_port, host_port;
	unsigned int due;

	/* host -> guest */
	uint32_t peer_buf_alloc, peer_fwd_cnt, sent;
	bool host_eof;                 /* the host's process sends no more */
	bool host_deaf;                /* it takes no more */
	bool host_hung_up;             /* it closed: no longer watched, what it left behind is read as credit allows */
	/* guest -> host */
	struct buf out;                /* for the socket; at most VSOCK_WINDOW */
	uint32_t received, forwarded, advertised;
	unsigned int guest_shut;       /* flags of the guest's SHUTDOWN packets */
	unsigned int told_shut;        /* flags of ours */
	bool out_is_shut;              /* shutdown(SHUT_WR) was done */

	int fd;                        /* the host's socket; -1: closed */
	struct loop_source source;
	char line[VSOCK_LINE_MAX];
	unsigned int line_size;
	int64_t deadline_usec;         /* 0: none */
	bool is_queued, is_listed;
	TAILQ_ENTRY(vsock_connection) all, queue;
	LIST_ENTRY(vsock_connection) bucket;
};

/* Bytes that the guest has room for. */
uint32_t vsock_credit(const struct vsock_connection *connection);
/* Takes the credit out of a header that the guest sent. */
void vsock_note_credit(struct vsock_connection *connection, const struct virtio_vsock_hdr *header);
/* Whether `size` bytes from the guest fit the window that it was told; counts them when they do. */
bool vsock_accept_data(struct vsock_connection *connection, uint32_t size) MUST_USE;
/* `size` bytes reached the host (or were thrown away): asks for a credit update when it is time. */
void vsock_note_forwarded(struct vsock_connection *connection, uint32_t size);
/* Whether bytes of the host may be read for the guest at all. */
bool vsock_may_send(const struct vsock_connection *connection);
/* What our SHUTDOWN packets should have said by now. */
unsigned int vsock_shut_wanted(const struct vsock_connection *connection);

/* The most urgent packet that is due, taken off `due`; 0: none. DUE_DATA is not taken off. */
unsigned int vsock_next_due(struct vsock_connection *connection);
/* The header of such a packet with `size` bytes of payload. */
void vsock_fill_header(struct vsock_connection *connection, uint32_t guest_cid, unsigned int due, uint32_t size,
	struct virtio_vsock_hdr *ret);
