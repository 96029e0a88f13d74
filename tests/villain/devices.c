/* SPDX-License-Identifier: Apache-2.0
 *
 * See devices.h. How each kind of device is used as it should be.
 */
#include "devices.h"

#define GOOD_DATA (DATA + 0xf0000)
#define GOOD_TEXT 0xf00u
#define NET_TURNS 4000u /* more than a TAP holds */
#define TRIGGER 15u /* the TX descriptor that makes a vsock device look at its RX queue */

/* ---- block ---- */

uint64_t blk_head(struct villain *v, uint32_t offset, uint32_t type, uint64_t sector)
{
	struct blk_head head = { .type = type, .sector = sector };

	return text(v, offset, &head, sizeof(head));
}

static void kick_it(struct villain *v, unsigned int q)
{
	kick(v, q);
}

static const char *blk_request(struct villain *v, unsigned int q)
{
	volatile uint8_t *data = at(v, GOOD_DATA);
	uint64_t sector = 1 + v->next_port++ % 8;

	data[0] = data[511] = 0;
	data[512] = BLK_NOTHING;
	desc(v, q, GOOD, blk_head(v, GOOD_TEXT, BLK_IN, sector), 16, D_NEXT, GOOD + 1);
	desc(v, q, GOOD + 1, GOOD_DATA, 512, D_NEXT | D_WRITE, GOOD + 2);
	desc(v, q, GOOD + 2, GOOD_DATA + 512, 1, D_WRITE, 0);
	push(v, q, GOOD);
	kick(v, q);
	v->got = (uint64_t) wait_head(v, q, GOOD);
	if (v->got != 513)
		return "a good read is not answered";
	v->got = data[512];
	if (v->got != BLK_OK)
		return "a good read fails";
	v->got = data[0];
	return data[0] == sector + 1 && data[511] == sector + 1 ? NULL : "a good read returns other bytes";
}

/* ---- entropy ---- */

static const char *rng_request(struct villain *v, unsigned int q)
{
	volatile uint8_t *data = at(v, GOOD_DATA);
	unsigned int ones = 0;

	for (unsigned int i = 0; i < 64; i++)
		data[i] = 0;
	desc(v, q, GOOD, GOOD_DATA, 64, D_WRITE, 0);
	push(v, q, GOOD);
	kick(v, q);
	v->got = (uint64_t) wait_head(v, q, GOOD);
	if (v->got == 0 || v->got > 64)
		return "a good request for random bytes is not answered";
	for (unsigned int i = 0; i < 64; i++)
		for (unsigned int bit = 0; bit < 8; bit++)
			ones += data[i] >> bit & 1;
	v->got = ones;
	return ones > 20 ? NULL : "the random bytes are not random";
}

/* ---- vsock ---- */

struct vsock_head vsock_packet(struct villain *v, uint32_t port, unsigned int op)
{
	return (struct vsock_head) { .src_cid = GUEST_CID, .dst_cid = HOST_CID, .src_port = 5000 + v->next_port++,
		.dst_port = port, .type = TYPE_STREAM, .op = (uint16_t) op, .buf_alloc = 256 * 1024 };
}

/* 44 bytes: sizeof() would pad. */
static uint64_t put_packet(struct villain *v, uint32_t offset, const struct vsock_head *head)
{
	return text(v, offset, head, VSOCK_HEAD);
}

bool vsock_send(struct villain *v, unsigned int index, const struct vsock_head *head, uint32_t size)
{
	uint32_t payload = (index + 1) % N;

	desc(v, TX, index, put_packet(v, index * 64, head), VSOCK_HEAD, size > 0 ? D_NEXT : 0, payload);
	if (size > 0)
		desc(v, TX, payload, WASTE, size, 0, 0);
	push(v, TX, index);
	kick(v, TX);
	return wait_head(v, TX, index) >= 0;
}

void vsock_offer(struct villain *v, unsigned int index, uint32_t size)
{
	desc(v, RX, index, DATA + index * UINT64_C(0x2000), VSOCK_HEAD + size, D_WRITE, 0);
	push(v, RX, index);
	kick(v, RX);
}

bool vsock_receive(struct villain *v, const struct vsock_head *sent, struct vsock_head *ret)
{
	for (unsigned int i = 0; i < 4000; i++) {
		uint32_t index;
		int64_t len = wait_used(v, RX, &index);
		uint64_t addr;

		if (len < 0 || index >= N)
			return false;
		addr = v->queues[RX].shadow[index].low;
		if (len < VSOCK_HEAD || addr < DATA || addr >= DATA + DATA_SIZE) /* a buffer that was no good */
			continue;
		copy(ret, at(v, addr), VSOCK_HEAD);
		if (len != VSOCK_HEAD + (int64_t) ret->len) {
			v->used_why = "a packet has another size than its used entry";
			v->used_got = (uint64_t) len;
		}
		if (ret->dst_port == sent->src_port && ret->src_port == sent->dst_port)
			return true;
		push(v, RX, index); /* somebody else's */
		kick(v, RX);
	}
	return false;
}

bool vsock_open(struct villain *v, uint32_t port, struct vsock_head *ret)
{
	struct vsock_head answer;

	*ret = vsock_packet(v, port, OP_REQUEST);
	vsock_offer(v, 0, 4096);
	return vsock_send(v, 0, ret, 0) && vsock_receive(v, ret, &answer) && answer.op == OP_RESPONSE;
}

static void vsock_provoke(struct villain *v, unsigned int q)
{
	struct vsock_head head = vsock_packet(v, PORT_NOBODY, OP_RW);

	drop_used(v, TX); /* of earlier ones */
	/* one that waits is as good as one more */
	if (q == RX && (uint16_t) (v->queues[TX].avail - v->queues[TX].used) < N / 2) {
		desc(v, TX, TRIGGER, put_packet(v, GOOD_TEXT + 64, &head), VSOCK_HEAD, 0, 0);
		push(v, TX, TRIGGER);
	}
	kick(v, TX);
}

/* A packet of no connection, and the RST that answers it: both queues are used. */
static const char *vsock_request(struct villain *v, unsigned int q)
{
	struct vsock_head head = vsock_packet(v, PORT_NOBODY, OP_RW), answer;

	(void) q;
	vsock_offer(v, GOOD, 128);
	desc(v, TX, GOOD + 1, put_packet(v, GOOD_TEXT, &head), VSOCK_HEAD, 0, 0);
	push(v, TX, GOOD + 1);
	kick(v, TX);
	/* first the answer: packets may not be taken before the answers to others have been */
	if (!vsock_receive(v, &head, &answer))
		return "a packet of no connection is not answered";
	if (wait_head(v, TX, GOOD + 1) < 0)
		return "a good packet is not taken";
	v->got = answer.op;
	if (answer.op != OP_RST || answer.src_cid != HOST_CID || answer.dst_cid != GUEST_CID || answer.len != 0)
		return "a packet of no connection is not answered by RST";
	return NULL;
}

/* ---- network ---- */

/* False: there are enough on their way. Never more of them than the ring holds. */
static bool make_room(struct villain *v)
{
	drop_used(v, TX);
	return (uint16_t) (v->queues[TX].avail - v->queues[TX].used) < N / 2;
}

static void net_send(struct villain *v, uint64_t frame, uint32_t size)
{
	if (make_room(v)) {
		desc(v, TX, GOOD + 1, frame, size, 0, 0);
		push(v, TX, GOOD + 1);
	}
	kick(v, TX);
}

/* What is sent comes back: the answer to one frame is itself. A case may have left buffers behind, and frames that wait for
 * them: ours is sent again for each that one of its buffers took. */
static const char *net_request(struct villain *v, unsigned int q)
{
	uint8_t frame[12 + 64] = { 0 };
	uint8_t mark = (uint8_t) ++v->next_port;
	uint64_t where;

	(void) q;
	frame[12] = frame[18] = 2; /* to 02:..:02 from 02:..:01 */
	frame[17] = 2;
	frame[23] = 1;
	frame[24] = 0x88;
	frame[25] = 0xb5;
	for (size_t i = 26; i < sizeof(frame); i++)
		frame[i] = mark;
	where = text(v, GOOD_TEXT, frame, sizeof(frame));
	desc(v, RX, GOOD, GOOD_DATA, 2048, D_WRITE, 0);
	push(v, RX, GOOD);
	kick(v, RX);
	desc(v, TX, GOOD + 1, where, sizeof(frame), 0, 0);
	push(v, TX, GOOD + 1);
	kick(v, TX);
	if (wait_head(v, TX, GOOD + 1) < 0)
		return "a good frame is not taken";
	for (unsigned int i = 0; i < NET_TURNS; i++) {
		uint32_t index;

		v->got = (uint64_t) wait_used(v, RX, &index);
		if (v->got == UINT64_MAX || index >= N)
			return "a good frame does not come back";
		if (index != GOOD) { /* a buffer of the case, with a frame in it or without */
			net_send(v, where, sizeof(frame));
			continue;
		}
		if (v->got == sizeof(frame) && ((volatile uint8_t *) at(v, GOOD_DATA))[40] == mark)
			return NULL;
		push(v, RX, GOOD); /* an earlier frame */
		kick(v, RX);
	}
	return "other frames come back";
}

/* Frames of earlier cases that are still in the TAP or on their way back. */
static void net_settle(struct villain *v)
{
	if (!villain_start(v))
		return;
	desc(v, RX, GOOD, WASTE, 65536, D_WRITE, 0);
	do {
		drop_used(v, RX);
		push(v, RX, GOOD);
		kick(v, RX);
	} while (!stays_quiet(v, RX));
	villain_reset(v);
	for (unsigned int q = 0; q < v->device->n_queues; q++)
		v->queues[q].n = 0;
}

static void net_provoke(struct villain *v, unsigned int q)
{
	static const uint8_t frame[12 + 60] = { [12] = 2, [17] = 2, [18] = 2, [23] = 1, [24] = 0x88, [25] = 0xb5 };

	if (q == RX && make_room(v)) {
		desc(v, TX, TRIGGER, text(v, GOOD_TEXT + 96, frame, sizeof(frame)), sizeof(frame), 0, 0);
		push(v, TX, TRIGGER);
	}
	kick(v, RX);
	kick(v, TX);
}

/* ---- balloon ---- */

/* A page goes into the balloon and comes out of it, as zeros. */
static const char *balloon_request(struct villain *v, unsigned int q)
{
	uint32_t pfn = (uint32_t) ((WASTE + UINT64_C(0x100000)) / 4096) + v->next_port++ % 256;
	volatile uint8_t *page = at(v, pfn * UINT64_C(4096));

	(void) q;
	page[0] = page[4095] = 0x77;
	for (unsigned int i = 0; i < 2; i++) {
		unsigned int queue = i == 0 ? INFLATE : DEFLATE;

		desc(v, queue, GOOD, text(v, GOOD_TEXT, &pfn, sizeof(pfn)), sizeof(pfn), 0, 0);
		push(v, queue, GOOD);
		kick(v, queue);
		v->got = (uint64_t) wait_head(v, queue, GOOD);
		if (v->got != 0)
			return "a good request of pages is not given back";
	}
	v->got = page[0];
	return page[0] == 0 && page[4095] == 0 ? NULL : "a page that was given away kept its bytes";
}

const struct villain_device villain_devices[KIND_MAX_] = {
	[KIND_BLK] = { .kind = KIND_BLK, .name = "blk", .id = 2, .n_queues = 1, .queue_names = { "" },
		.takes_readable = { true }, .takes_writable = { true }, .provoke = kick_it, .request = blk_request },
	[KIND_BLK_RO] = { .kind = KIND_BLK_RO, .name = "blk-ro", .id = 2, .n_queues = 1, .queue_names = { "" },
		.takes_readable = { true }, .takes_writable = { true }, .provoke = kick_it, .request = blk_request },
	[KIND_VSOCK] = { .kind = KIND_VSOCK, .name = "vsock", .id = 19, .n_queues = 2, .queue_names = { "-rx", "-tx" },
		.takes_readable = { false, true }, .takes_writable = { true, false }, .provoke = vsock_provoke,
		.request = vsock_request },
	[KIND_NET] = { .kind = KIND_NET, .name = "net", .id = 1, .n_queues = 2, .queue_names = { "-rx", "-tx" },
		.takes_readable = { false, true }, .takes_writable = { true, false }, .settle = net_settle, .provoke = net_provoke,
		.request = net_request },
	[KIND_BALLOON] = { .kind = KIND_BALLOON, .name = "balloon", .id = 5, .n_queues = 2,
		.queue_names = { "-inflate", "-deflate" }, .takes_readable = { true, true }, .provoke = kick_it,
		.request = balloon_request },
	[KIND_RNG] = { .kind = KIND_RNG, .name = "rng", .id = 4, .n_queues = 1, .queue_names = { "" },
		.takes_writable = { true }, .provoke = kick_it, .request = rng_request },
};
