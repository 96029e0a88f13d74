/* SPDX-License-Identifier: Apache-2.0
 *
 * The socket device (virtio 1.2, 5.10).
 */
#include "devices.h"

#define START NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS))
#define WINDOW (64u * 1024) /* the device's: no more than that may be under way to the host */

/* Sends `head` and demands RST for it. */
static enum verdict expect_rst(struct villain *v, const struct vsock_head *head, uint32_t size)
{
	struct vsock_head answer;

	vsock_offer(v, 4, 256);
	NEED(vsock_send(v, 6, head, size), "the packet is not taken", head->op);
	NEED(vsock_receive(v, head, &answer), "no answer", head->op);
	while (answer.op != OP_RST) { /* what was on its way before */
		vsock_offer(v, 4, 256);
		NEED(vsock_receive(v, head, &answer), "no RST", answer.op);
	}
	return expect_works(v, TX) == FAILED ? FAILED : REFUSED;
}

/* A packet that must leave no trace: nothing is answered, and the next one is. */
static enum verdict expect_ignored(struct villain *v, const struct vsock_head *head, uint32_t size)
{
	struct vsock_head answer = { .op = 0 };

	vsock_offer(v, 4, 256);
	NEED(vsock_send(v, 6, head, size), "the packet is not taken", head->op);
	NEED(stays_quiet(v, RX), "a packet that concerns nobody is answered", answer.op);
	return expect_works(v, TX);
}

/* ---- packets of no connection ---- */

static enum verdict stray(struct villain *v, uint64_t op)
{
	struct vsock_head head = vsock_packet(v, PORT_NOBODY, (unsigned int) op);

	START;
	return op == OP_RST ? expect_ignored(v, &head, 0) : expect_rst(v, &head, 0);
}

/* 5.10.6.4.2: an unknown type is answered by RST. */
static enum verdict type(struct villain *v, uint64_t type)
{
	struct vsock_head head = vsock_packet(v, PORT_ECHO, OP_REQUEST);

	START;
	head.type = (uint16_t) type;
	return expect_rst(v, &head, 0);
}

static enum verdict from_cid(struct villain *v, uint64_t cid)
{
	struct vsock_head head = vsock_packet(v, PORT_ECHO, OP_REQUEST);

	START;
	head.src_cid = cid;
	return expect_ignored(v, &head, 0);
}

/* To somebody who is not the host: no answer or RST, no connection. */
static enum verdict to_cid(struct villain *v, uint64_t cid)
{
	struct vsock_head head = vsock_packet(v, PORT_ECHO, OP_REQUEST), answer;

	START;
	head.dst_cid = cid;
	vsock_offer(v, 4, 256);
	NEED(vsock_send(v, 6, &head, 0), "the packet is not taken", cid);
	if (stays_quiet(v, RX))
		return expect_works(v, TX);
	NEED(vsock_receive(v, &head, &answer), "the answer is for somebody else", cid);
	NEED(answer.op == OP_RST, "a connection to somebody who is not the host", answer.op);
	return expect_works(v, TX) == FAILED ? FAILED : REFUSED;
}

/* ---- headers and lengths ---- */

static enum verdict short_header(struct villain *v, uint64_t len)
{
	struct vsock_head head = vsock_packet(v, PORT_NOBODY, OP_RW);

	START;
	vsock_offer(v, 4, 256);
	desc(v, TX, 0, text(v, 0, &head, VSOCK_HEAD), len, 0, 0);
	push(v, TX, 0);
	kick(v, TX);
	NEED(wait_head(v, TX, 0) == 0, "a short packet is not given back", len);
	NEED(stays_quiet(v, RX), "a short packet is answered", len);
	return expect_works(v, TX);
}

/* len against the payload that is there, in an open connection: R101. */
static enum verdict length(struct villain *v, uint64_t len)
{
	struct vsock_head head;

	START;
	NEED(vsock_open(v, PORT_ECHO, &head), "no connection", v->got);
	head.op = OP_RW;
	head.len = (uint32_t) len;
	return expect_rst(v, &head, 100);
}

static enum verdict shorter_length(struct villain *v, uint64_t len)
{
	struct vsock_head head, answer;

	START;
	NEED(vsock_open(v, PORT_ECHO, &head), "no connection", v->got);
	head.op = OP_RW;
	head.len = (uint32_t) len;
	vsock_offer(v, 4, 4096);
	NEED(vsock_send(v, 6, &head, 4096), "the packet is not taken", len);
	if (len == 0)
		return expect_works(v, TX);
	for (;;) {
		NEED(vsock_receive(v, &head, &answer), "no echo", len);
		if (answer.op == OP_RW)
			break;
		vsock_offer(v, 4, 4096);
	}
	NEED(answer.len == len, "other bytes than len says", answer.len);
	return expect_works(v, TX);
}

/* ---- order of operations ---- */

static enum verdict unknown_op(struct villain *v, uint64_t op)
{
	struct vsock_head head;

	START;
	NEED(vsock_open(v, PORT_ECHO, &head), "no connection", v->got);
	head.op = (uint16_t) op;
	return expect_rst(v, &head, 0);
}

/* REQUEST or RESPONSE in a connection that is open: RST. */
static enum verdict again(struct villain *v, uint64_t op)
{
	return unknown_op(v, op);
}

static enum verdict after_shutdown(struct villain *v, uint64_t flags)
{
	struct vsock_head head;

	START;
	NEED(vsock_open(v, PORT_ECHO, &head), "no connection", v->got);
	head.op = OP_SHUTDOWN;
	head.flags = (uint32_t) flags;
	NEED(vsock_send(v, 6, &head, 0), "the packet is not taken", flags);
	head.op = OP_RW;
	head.len = 10;
	head.flags = 0;
	return expect_rst(v, &head, 10);
}

static enum verdict shutdown_flags(struct villain *v, uint64_t flags)
{
	struct vsock_head head;

	START;
	NEED(vsock_open(v, PORT_ECHO, &head), "no connection", v->got);
	head.op = OP_SHUTDOWN;
	head.flags = (uint32_t) flags;
	NEED(vsock_send(v, 6, &head, 0), "the packet is not taken", flags);
	return expect_works(v, TX);
}

static enum verdict after_rst(struct villain *v, uint64_t op)
{
	struct vsock_head head;

	START;
	NEED(vsock_open(v, PORT_ECHO, &head), "no connection", v->got);
	head.op = OP_RST;
	NEED(vsock_send(v, 6, &head, 0), "the packet is not taken", op);
	head.op = (uint16_t) op;
	return expect_rst(v, &head, 0);
}

/* ---- buffer space ---- */

/* 5.10.6.3.1: no more than the device's window; the deaf peer takes nothing (beyond what its socket holds). */
static enum verdict over_window(struct villain *v, uint64_t packet)
{
	struct vsock_head head, answer;

	START;
	NEED(vsock_open(v, PORT_DEAF, &head), "no connection", v->got);
	head.op = OP_RW;
	head.len = (uint32_t) packet;
	vsock_offer(v, 4, 256);
	for (uint64_t sent = 0; sent < UINT64_C(64) << 20; sent += packet) {
		NEED(vsock_send(v, 6, &head, (uint32_t) packet), "the packet is not taken", sent);
		while (has_used(v, RX)) {
			NEED(vsock_receive(v, &head, &answer), "another connection's packet", sent);
			if (answer.op == OP_RST)
				return expect_works(v, TX) == FAILED ? FAILED : REFUSED;
			vsock_offer(v, 4, 256);
		}
	}
	return fail(v, "64 MiB were taken for a peer that does not read", 0);
}

/* What the driver says about its own space is its own affair. */
static enum verdict lies_about_space(struct villain *v, uint64_t alloc_fwd)
{
	struct vsock_head head;

	START;
	NEED(vsock_open(v, PORT_ECHO, &head), "no connection", v->got);
	head.op = OP_CREDIT_UPDATE;
	head.buf_alloc = (uint32_t) (alloc_fwd >> 32);
	head.fwd_cnt = (uint32_t) alloc_fwd;
	for (int i = 0; i < 4; i++) {
		NEED(vsock_send(v, 6, &head, 0), "the packet is not taken", i);
		head.op = OP_RW;
		head.len = 1000;
		vsock_offer(v, 1 + (unsigned int) i, 256);
		NEED(vsock_send(v, 8, &head, 1000), "the packet is not taken", i);
		pause_some(v, 3);
		head.op = i % 2 ? OP_CREDIT_REQUEST : OP_CREDIT_UPDATE;
		head.len = 0;
	}
	return expect_works(v, TX);
}

static enum verdict no_space(struct villain *v, uint64_t unused)
{
	struct vsock_head head, answer;

	(void) unused;
	START;
	head = vsock_packet(v, PORT_ECHO, OP_REQUEST);
	head.buf_alloc = 0;
	vsock_offer(v, 0, 4096);
	NEED(vsock_send(v, 0, &head, 0) && vsock_receive(v, &head, &answer) && answer.op == OP_RESPONSE, "no connection", 0);
	head.op = OP_RW;
	head.len = 500;
	NEED(vsock_send(v, 6, &head, 500), "the packet is not taken", 0);
	for (int i = 0; i < 20; i++) {
		vsock_offer(v, 4, 4096);
		if (stays_quiet(v, RX))
			break;
		NEED(vsock_receive(v, &head, &answer), "another connection's packet", i);
		NEED(answer.op != OP_RW, "data for a driver without room", answer.len);
	}
	return expect_works(v, TX);
}

/* ---- receive buffers ---- */

static enum verdict small_buffers(struct villain *v, uint64_t size)
{
	struct vsock_head head = vsock_packet(v, PORT_NOBODY, OP_RW);

	START;
	for (unsigned int i = 0; i < 4; i++) {
		desc(v, RX, i, DATA + i * UINT64_C(128), size, D_WRITE, 0);
		push(v, RX, i);
	}
	kick(v, RX);
	NEED(vsock_send(v, 6, &head, 0), "the packet is not taken", size);
	return expect_works(v, RX) == FAILED ? FAILED : REFUSED;
}

/* 5.10.6.1.2: packets are taken although there is no room for answers, until there is no room to remember them; then,
 * when there are buffers again, everything goes on. */
static enum verdict no_buffers(struct villain *v, uint64_t n)
{
	struct vsock_head head = vsock_packet(v, PORT_NOBODY, OP_RW);
	unsigned int taken = 0;

	START;
	desc(v, TX, 0, text(v, 0, &head, VSOCK_HEAD), VSOCK_HEAD, 0, 0);
	for (uint64_t i = 0; i < n; i++) {
		push(v, TX, 0);
		kick(v, TX);
		for (unsigned int k = 0; k < 20000 && !has_used(v, TX); k++) /* the last one waits in vain, for 2 s */
			port_pause(v);
		if (!has_used(v, TX))
			break;
		(void) wait_used(v, TX, NULL);
		taken++;
	}
	NEED(taken >= 64, "packets are not taken while there are no receive buffers", taken);
	NEED(taken < 4096, "answers without bound", taken);
	return expect_works(v, RX);
}

/* R103: more connections than there may be. */
static enum verdict many_connections(struct villain *v, uint64_t n)
{
	struct vsock_head head, answer;
	unsigned int opened = 0, refused = 0;

	if (v->is_guest)
		n = 1040;
	START;
	for (uint64_t i = 0; i < n; i++) {
		head = vsock_packet(v, PORT_DEAF, OP_REQUEST);
		vsock_offer(v, 0, 256);
		NEED(vsock_send(v, 0, &head, 0), "a request is not taken", i);
		NEED(vsock_receive(v, &head, &answer), "a request is not answered", i);
		opened += answer.op == OP_RESPONSE;
		refused += answer.op == OP_RST;
	}
	NEED(opened <= 1024, "more than 1024 connections", opened);
	NEED(opened >= 200, "hardly any connections", opened);
	NEED(opened + refused == n, "neither accepted nor refused", opened + refused);
	return expect_works(v, TX) == FAILED ? FAILED : REFUSED;
}

/* R104: the host's listener has no room: RST, and nobody waits. */
static enum verdict refused_at_once(struct villain *v, uint64_t port)
{
	struct vsock_head head = vsock_packet(v, (uint32_t) port, OP_REQUEST);

	START;
	return expect_rst(v, &head, 0);
}

static enum verdict event_queue(struct villain *v, uint64_t flags)
{
	START;
	for (unsigned int i = 0; i < 4; i++) {
		desc(v, EVENT, i, flags & D_WRITE ? DATA + i * UINT64_C(64) : MEMORY_SIZE, 8, (unsigned int) flags, i);
		push(v, EVENT, i);
	}
	kick(v, EVENT);
	pause_some(v, 5);
	return expect_works(v, TX);
}

/* A reset with connections open, again and again: hosts see them end, and nothing piles up. */
static enum verdict reset_with_connections(struct villain *v, uint64_t n)
{
	struct vsock_head head;

	if (v->is_guest)
		n /= 8;
	for (uint64_t i = 0; i < n; i++) {
		START;
		for (unsigned int k = 0; k < 4; k++)
			NEED(vsock_open(v, PORT_DEAF, &head), "no connection", i);
		villain_reset(v);
	}
	START;
	return expect_works(v, TX);
}

#define V ON(KIND_VSOCK)
#define EITHER (SERVED | REFUSED)
const struct villain_case villain_vsock[] = {
	{ "stray-response", "5.10.6.5", V, "RESPONSE of no connection", stray, OP_RESPONSE, REFUSED, "R101" },
	{ "stray-rst", "5.10.6.5", V, "RST of no connection", stray, OP_RST, SERVED, NULL },
	{ "stray-shutdown", "5.10.6.5", V, "SHUTDOWN of no connection", stray, OP_SHUTDOWN, REFUSED, NULL },
	{ "stray-rw", "5.10.6.5", V, "RW of no connection", stray, OP_RW, REFUSED, NULL },
	{ "stray-update", "5.10.6.5", V, "CREDIT_UPDATE of no connection", stray, OP_CREDIT_UPDATE, REFUSED, NULL },
	{ "stray-request", "5.10.6.5", V, "CREDIT_REQUEST of no connection", stray, OP_CREDIT_REQUEST, REFUSED, NULL },
	{ "stray-op-0", "5.10.6", V, "an invalid operation of no connection", stray, 0, REFUSED, NULL },
	{ "stray-op-max", "5.10.6", V, "an operation with all bits of no connection", stray, 0xffff, REFUSED, NULL },
	{ "type-0", "5.10.6.4.2", V, "type 0", type, 0, REFUSED, NULL },
	{ "type-seqpacket", "5.10.6.4.2", V, "SEQPACKET, which was not negotiated", type, TYPE_SEQPACKET, REFUSED, NULL },
	{ "type-max", "5.10.6.4.2", V, "a type with all bits", type, 0xffff, REFUSED, NULL },
	{ "from-host", "5.10.6.4.1", V, "a packet that says it comes from the host", from_cid, HOST_CID, SERVED, NULL },
	{ "from-0", "5.10.6.4.1", V, "a packet from nobody", from_cid, 0, SERVED, NULL },
	{ "from-other", "5.10.6.4.1", V, "a packet from another guest", from_cid, GUEST_CID + 1, SERVED, NULL },
	{ "from-high", "5.10.6.4.1", V, "a source beyond 32 bits", from_cid, UINT64_C(1) << 32 | GUEST_CID, SERVED, NULL },
	{ "to-self", "5.10.6.2", V, "a packet to the guest itself", to_cid, GUEST_CID, EITHER, NULL },
	{ "to-0", "5.10.6.2", V, "a packet to the hypervisor's reserved name", to_cid, 0, EITHER, NULL },
	{ "to-high", "5.10.6.2", V, "a destination beyond 32 bits", to_cid, UINT64_C(1) << 32 | HOST_CID, EITHER, NULL },
	{ "to-max", "5.10.6.2", V, "a destination with all bits", to_cid, UINT64_MAX, EITHER, NULL },
	{ "header-43", "5.10.6", V, "a header of 43 bytes", short_header, 43, SERVED, "R101" },
	{ "header-1", "5.10.6", V, "a header of one byte", short_header, 1, SERVED, "R101" },
	{ "len-101", "5.10.6.4", V, "len is one more than there is", length, 101, REFUSED, "R101" },
	{ "len-max", "5.10.6.4", V, "len with all bits", length, UINT32_MAX, REFUSED, "R101" },
	{ "len-2g", "5.10.6.4", V, "len is 2^31", length, UINT32_C(1) << 31, REFUSED, "R101" },
	{ "len-less", "5.10.6.4", V, "len is less than there is", shorter_length, 7, SERVED, "R101" },
	{ "len-0", "5.10.6.4", V, "len is 0 with a payload", shorter_length, 0, SERVED, NULL },
	{ "op-0", "5.10.6", V, "an invalid operation in a connection", unknown_op, 0, REFUSED, NULL },
	{ "op-8", "5.10.6", V, "the first unknown operation in a connection", unknown_op, 8, REFUSED, NULL },
	{ "op-max", "5.10.6", V, "an operation with all bits in a connection", unknown_op, 0xffff, REFUSED, NULL },
	{ "request-twice", "5.10.6.5", V, "REQUEST for a connection that is open", again, OP_REQUEST, REFUSED, NULL },
	{ "response-twice", "5.10.6.5", V, "RESPONSE for a connection that is open", again, OP_RESPONSE, REFUSED, NULL },
	{ "rw-after-shutdown", "5.10.6.5", V, "data after SHUTDOWN of the sending half", after_shutdown, 2, REFUSED, NULL },
	{ "shutdown-0", "5.10.6.5", V, "SHUTDOWN of nothing", shutdown_flags, 0, SERVED, NULL },
	{ "shutdown-max", "5.10.6.5", V, "SHUTDOWN with all flags", shutdown_flags, UINT32_MAX, SERVED, NULL },
	{ "rw-after-rst", "5.10.6.5", V, "data after RST", after_rst, OP_RW, REFUSED, NULL },
	{ "update-after-rst", "5.10.6.5", V, "CREDIT_UPDATE after RST", after_rst, OP_CREDIT_UPDATE, REFUSED, NULL },
	{ "over-window-64k", "5.10.6.3.1", V, "more than the window, in packets of 64 KiB", over_window, 65536, REFUSED, "R101" },
	{ "over-window-1k", "5.10.6.3.1", V, "more than the window, in packets of 1 KiB", over_window, 1024, REFUSED, NULL },
	{ "over-window-1m", "5.10.6.3.1", V, "more than the window at once", over_window, 1 << 20, REFUSED, "R101" },
	{ "credit-max", "5.10.6.3.1", V, "a driver with 4 GiB of room", lies_about_space, UINT64_C(0xffffffff00000000), SERVED,
		NULL },
	{ "credit-ahead", "5.10.6.3.1", V, "more forwarded than was ever sent", lies_about_space, UINT64_C(0x1000ffffffff),
		SERVED, NULL },
	{ "credit-shrinks", "5.10.6.3.1", V, "room that shrinks below what is under way", lies_about_space, UINT64_C(1) << 32,
		SERVED, NULL },
	{ "credit-0", "5.10.6.3.2", V, "a driver without room", no_space, 0, SERVED, NULL },
	{ "rx-43", "5.10.6.4", V, "receive buffers of 43 bytes", small_buffers, 43, REFUSED, NULL },
	{ "rx-1", "5.10.6.4", V, "receive buffers of one byte", small_buffers, 1, REFUSED, NULL },
	{ "rx-none", "5.10.6.1.2", V, "packets without receive buffers", no_buffers, 6000, SERVED, NULL },
	{ "connections", "5.10.6.5", V, "more connections than there may be", many_connections, 1200, REFUSED, "R103" },
	{ "nobody-listens", "5.10.6.5", V, "a connection to a port where nobody listens", refused_at_once, PORT_NOBODY, REFUSED,
		NULL },
	{ "backlog-full", "5.10.6.5", V, "a connection to a listener without room", refused_at_once, PORT_BUSY, REFUSED, "R104" },
	{ "port-max", "5.10.6.5", V, "a connection to the last port", refused_at_once, UINT32_MAX, REFUSED, NULL },
	{ "port-0", "5.10.6.5", V, "a connection to port 0", refused_at_once, 0, REFUSED, NULL },
	{ "event-writable", "5.10.6.7", V, "event buffers, which nobody needs", event_queue, D_WRITE, SERVED, NULL },
	{ "event-nowhere", "5.10.6.7", V, "event buffers that are readable and nowhere", event_queue, 0, SERVED, NULL },
	{ "event-loop", "5.10.6.7", V, "event buffers that loop", event_queue, D_NEXT, SERVED, NULL },
	{ "reset-with-connections", "2.4.1", V, "resets with connections open", reset_with_connections, 200, SERVED, "R091" },
};
const unsigned int villain_vsock_n = sizeof(villain_vsock) / sizeof(villain_vsock[0]);
