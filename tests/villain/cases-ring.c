/* SPDX-License-Identifier: Apache-2.0
 *
 * The split virtqueue (virtio 1.2, 2.7). For each queue of each device.
 */
#include "devices.h"

#define START NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS))
#define AVAIL_LEN(n) (6 + 2 * (uint64_t) (n))
#define USED_LEN(n) (6 + 8 * (uint64_t) (n))

/* What queue q's device takes. */
static unsigned int direction(struct villain *v)
{
	return v->device->takes_writable[v->q] && !v->device->takes_readable[v->q] ? D_WRITE : 0;
}

/* The least that a buffer of a chain holds so that the device can use the chain: a frame must fit, without mergeable
 * buffers, where there is to be one. */
static uint32_t piece(struct villain *v, uint32_t otherwise)
{
	return v->device->kind == KIND_NET && v->q == RX ? 128 : otherwise;
}

/* ---- where rings lie ---- */

struct place {
	uint32_t n;
	uint64_t desc, avail, used;
};
#define OK_DESC RINGS
#define OK_AVAIL (RINGS + 0x4000)
#define OK_USED (RINGS + 0x8000)
#define GAP UINT64_C(0xc0000000)
static const struct place places[] = {
	{ 0, OK_DESC, OK_AVAIL, OK_USED },
	{ 3, OK_DESC, OK_AVAIL, OK_USED },
	{ 512, OK_DESC, OK_AVAIL, OK_USED },
	{ 32768, OK_DESC, OK_AVAIL, OK_USED },
	{ 65536 + 8, OK_DESC, OK_AVAIL, OK_USED },
	{ UINT32_MAX, OK_DESC, OK_AVAIL, OK_USED },
	{ 8, OK_DESC + 8, OK_AVAIL, OK_USED },
	{ 8, OK_DESC, OK_AVAIL + 1, OK_USED },
	{ 8, OK_DESC, OK_AVAIL, OK_USED + 2 },
	{ 8, MEMORY_SIZE, OK_AVAIL, OK_USED },
	{ 8, OK_DESC, MEMORY_SIZE, OK_USED },
	{ 8, OK_DESC, OK_AVAIL, MEMORY_SIZE },
	{ 8, MEMORY_SIZE - 112, OK_AVAIL, OK_USED },
	{ 8, OK_DESC, MEMORY_SIZE - AVAIL_LEN(8) + 2, OK_USED },
	{ 8, OK_DESC, OK_AVAIL, MEMORY_SIZE - USED_LEN(8) + 2 },
	{ 8, GAP, OK_AVAIL, OK_USED },
	{ 8, OK_DESC, UINT64_C(0xd0000000), OK_USED },
	{ 8, OK_DESC, OK_AVAIL, UINT64_C(0xfee00000) },
	{ 8, UINT64_MAX - 15, OK_AVAIL, OK_USED },
	{ 8, OK_DESC, UINT64_MAX - 1, OK_USED },
	{ 8, OK_DESC, OK_AVAIL, UINT64_MAX - 3 },
};

static enum verdict ring_placed(struct villain *v, uint64_t which)
{
	const struct place *place = &places[which];

	NEED(villain_negotiate(v, F_VERSION_1), "no FEATURES_OK", reg(v, R_STATUS));
	villain_place_queue(v, v->q, place->n, place->desc, place->avail, place->used);
	set_reg(v, R_QUEUE_READY, 1);
	NEED(reg(v, R_QUEUE_READY) == 0, "a ring that is nowhere became ready", which);
	return REFUSED;
}

/* All rings in one place: what comes of it is the driver's affair, as long as it is only its own. */
static enum verdict ring_on_ring(struct villain *v, uint64_t unused)
{
	unsigned int n_queues;

	(void) unused;
	NEED(villain_negotiate(v, F_VERSION_1), "no FEATURES_OK", reg(v, R_STATUS));
	n_queues = villain_device_queues(v);
	for (unsigned int q = 0; q < n_queues; q++) {
		fill(at(v, TABLES), 1, 0x1000);
		villain_place_queue(v, q, N, TABLES, TABLES, TABLES);
		set_reg(v, R_QUEUE_READY, 1);
	}
	set_reg(v, R_STATUS, 15);
	for (unsigned int i = 0; i < 50; i++) {
		for (unsigned int q = 0; q < n_queues; q++)
			kick(v, q);
		set_u16(v, TABLES + 2, (uint16_t) i);
		port_pause(v);
	}
	return needs_reset(v) ? REFUSED : SERVED;
}

/* A device-writable buffer that is the device's own ring. */
static enum verdict buffer_on_ring(struct villain *v, uint64_t where)
{
	uint64_t target = where == 0 ? desc_at(v->q) : where == 1 ? avail_at(v->q) : used_at(v->q);

	START;
	desc(v, v->q, 0, TEXT, 16, v->device->takes_readable[v->q] ? D_NEXT : D_NEXT | D_WRITE, 1);
	if (direction(v))
		desc(v, v->q, 0, DATA, 64, D_NEXT | D_WRITE, 1);
	desc(v, v->q, 1, target, 512, D_WRITE | D_NEXT, 2);
	desc(v, v->q, 2, DATA, 64, D_WRITE, 0);
	push(v, v->q, 0);
	v->device->provoke(v, v->q);
	pause_some(v, 30);
	villain_reset(v);
	for (unsigned int i = 0; i < N_MAX; i++) /* it may have been overwritten: that was asked for */
		desc(v, v->q, i, 0, 0, 0, 0);
	return SERVED;
}

/* ---- chains ---- */

static void chain_next_out(struct villain *v, uint64_t next)
{
	desc(v, v->q, 0, direction(v) ? DATA : TEXT, 16, D_NEXT | direction(v), (unsigned int) next);
	push(v, v->q, 0);
}

static void chain_loop(struct villain *v, uint64_t length)
{
	for (unsigned int i = 0; i < length; i++)
		desc(v, v->q, i, direction(v) ? DATA : TEXT, 16, D_NEXT | direction(v), (i + 1) % (unsigned int) length);
	push(v, v->q, 0);
}

/* A tail that runs into a loop which its head is not part of; of empty buffers. */
static void chain_rho(struct villain *v, uint64_t unused)
{
	(void) unused;
	for (unsigned int i = 0; i < 6; i++)
		desc(v, v->q, i, 0, 0, D_NEXT | direction(v), i == 5 ? 3 : i + 1);
	push(v, v->q, 0);
}

static void chain_order(struct villain *v, uint64_t len)
{
	desc(v, v->q, 0, DATA, len, D_NEXT | D_WRITE, 1);
	desc(v, v->q, 1, TEXT, len, 0, 0);
	push(v, v->q, 0);
}

static void chain_flags(struct villain *v, uint64_t flags)
{
	desc(v, v->q, 0, direction(v) ? DATA : TEXT, 16, (unsigned int) flags | direction(v), 0);
	push(v, v->q, 0);
}

static void head_out(struct villain *v, uint64_t head)
{
	push(v, v->q, (unsigned int) head);
}

static void index_jump(struct villain *v, uint64_t by)
{
	set_u16(v, avail_at(v->q) + 2, (uint16_t) (v->queues[v->q].avail + by));
}

typedef void (*breaker)(struct villain *, uint64_t);
static const struct {
	breaker run;
	uint64_t argument;
} breakers[] = {
	{ chain_next_out, N }, { chain_next_out, N_MAX }, { chain_next_out, UINT16_MAX },                       /* 0 */
	{ chain_loop, 1 }, { chain_loop, 2 }, { chain_loop, N }, { chain_rho, 0 },                              /* 3 */
	{ chain_order, 64 }, { chain_order, 0 },                                                                /* 7 */
	{ chain_flags, 0x8000 }, { chain_flags, 8 }, { chain_flags, 0xfff8 },                                   /* 9 */
	{ head_out, N }, { head_out, N_MAX }, { head_out, UINT16_MAX },                                         /* 12 */
	{ index_jump, N + 1 }, { index_jump, UINT16_MAX }, { index_jump, 0x8000 },                              /* 15 */
	{ chain_flags, D_INDIRECT },                                                                            /* 18 */
};

static enum verdict broken(struct villain *v, uint64_t which)
{
	START;
	breakers[which].run(v, breakers[which].argument);
	v->device->provoke(v, v->q);
	return expect_broken(v, v->q);
}

/* The same mistake again and again, with resets between: R095. */
static enum verdict broken_for_ever(struct villain *v, uint64_t times)
{
	for (uint64_t i = 0; i < times; i++) {
		START;
		chain_loop(v, 1);
		v->device->provoke(v, v->q);
		NEED(wait_needs_reset(v), "DEVICE_NEEDS_RESET is not set", i);
		for (int k = 0; k < 50; k++) {
			push(v, v->q, 0);
			kick(v, v->q);
		}
		NEED(!has_used(v, v->q), "a broken queue goes on", i);
	}
	return REFUSED;
}

/* ---- indirect tables ---- */

#define INDIRECT_START                                                                             \
	do {                                                                                       \
		if (!(villain_offered(v) & F_INDIRECT))                                            \
			return skip(v, "indirect descriptors are not offered");                    \
		NEED(villain_start_with(v, F_INDIRECT, N), "the device does not come up", reg(v, R_STATUS)); \
	} while (0)

static void table_entry(struct villain *v, unsigned int index, unsigned int flags, unsigned int next)
{
	uint32_t size = piece(v, 16);

	inner(v, TABLES, index, direction(v) ? DATA + index * UINT64_C(128) : TEXT, size, flags | direction(v), next);
}

static void point(struct villain *v, uint64_t table, uint32_t len, unsigned int flags)
{
	desc(v, v->q, 0, table, len, D_INDIRECT | flags, 1);
	push(v, v->q, 0);
}

enum indirect {
	WITH_NEXT,
	NESTED,
	NO_ENTRY,
	ODD_SIZE,
	SELF_LOOP,
	LOOP,
	NEXT_OUT,
	TOO_LONG,
	TOO_LONG_WITH_CHAIN,
	ORDER,
	BEHIND_WRITABLE,
	TABLE_OUT,
	TABLE_ACROSS,
	TABLE_WRAPS,
	TABLE_HUGE,
	UNKNOWN_FLAGS,
};

static enum verdict indirect_broken(struct villain *v, uint64_t how)
{
	INDIRECT_START;
	for (unsigned int i = 0; i < 4; i++)
		table_entry(v, i, i < 3 ? D_NEXT : 0, i + 1);
	switch ((enum indirect) how) {
	case WITH_NEXT:
		desc(v, v->q, 1, direction(v) ? DATA : TEXT, 16, direction(v), 0);
		point(v, TABLES, 64, D_NEXT);
		break;
	case NESTED:
		inner(v, TABLES, 1, TABLES, 64, D_INDIRECT, 0);
		point(v, TABLES, 64, 0);
		break;
	case NO_ENTRY:
		point(v, TABLES, 0, 0);
		break;
	case ODD_SIZE:
		point(v, TABLES, 65, 0);
		break;
	case SELF_LOOP:
		table_entry(v, 0, D_NEXT, 0);
		point(v, TABLES, 64, 0);
		break;
	case LOOP:
		table_entry(v, 3, D_NEXT, 1);
		point(v, TABLES, 64, 0);
		break;
	case NEXT_OUT:
		table_entry(v, 3, D_NEXT, 4);
		point(v, TABLES, 64, 0);
		break;
	case TOO_LONG: /* than the queue */
		for (unsigned int i = 0; i < N_MAX + 1; i++)
			table_entry(v, i, i < N_MAX ? D_NEXT : 0, i + 1);
		point(v, TABLES, (N_MAX + 1) * 16, 0);
		break;
	case TOO_LONG_WITH_CHAIN: /* only together with what stands before it */
		for (unsigned int i = 0; i < N_MAX; i++)
			table_entry(v, i, i + 1 < N_MAX ? D_NEXT : 0, i + 1);
		desc(v, v->q, 0, direction(v) ? DATA : TEXT, 16, D_NEXT | direction(v), 1);
		desc(v, v->q, 1, TABLES, N_MAX * 16, D_INDIRECT, 0);
		push(v, v->q, 0);
		break;
	case ORDER:
		inner(v, TABLES, 0, DATA, 16, D_NEXT | D_WRITE, 1);
		inner(v, TABLES, 1, TEXT, 16, 0, 0);
		point(v, TABLES, 32, 0);
		break;
	case BEHIND_WRITABLE:
		inner(v, TABLES, 0, TEXT, 16, 0, 0);
		desc(v, v->q, 0, DATA, 16, D_NEXT | D_WRITE, 1);
		desc(v, v->q, 1, TABLES, 16, D_INDIRECT, 0);
		push(v, v->q, 0);
		break;
	case TABLE_OUT:
		point(v, MEMORY_SIZE, 64, 0);
		break;
	case TABLE_ACROSS:
		point(v, MEMORY_SIZE - 48, 64, 0);
		break;
	case TABLE_WRAPS:
		point(v, UINT64_MAX - 47, 64, 0);
		break;
	case TABLE_HUGE:
		point(v, TABLES, 0xfffffff0u, 0);
		break;
	case UNKNOWN_FLAGS:
		table_entry(v, 1, 0x4000, 0);
		point(v, TABLES, 64, 0);
		break;
	}
	v->device->provoke(v, v->q);
	return expect_broken(v, v->q);
}

/* 2.7.5.3.2: WRITE at the entry that refers to a table is ignored. */
static enum verdict indirect_write_flag(struct villain *v, uint64_t unused)
{
	(void) unused;
	INDIRECT_START;
	table_entry(v, 0, 0, 0);
	desc(v, v->q, 0, TABLES, 16, D_INDIRECT | D_WRITE, 0);
	push(v, v->q, 0);
	v->device->provoke(v, v->q);
	return expect_works(v, v->q);
}

/* ---- addresses and lengths ---- */

static const struct {
	uint64_t addr;
	uint32_t len;
} nowhere[] = {
	{ MEMORY_SIZE, 512 }, { MEMORY_SIZE - 511, 512 }, { GAP, 512 }, { UINT64_C(0xd0000000), 512 }, { UINT64_MAX, 512 },
	{ UINT64_MAX - 511, 512 }, { UINT64_C(1) << 52, 512 }, { 0, UINT32_MAX }, { WASTE, UINT32_MAX },
};

/* R082: a buffer that is nowhere. The request fails, nothing else does. */
static enum verdict buffer_nowhere(struct villain *v, uint64_t which)
{
	int64_t len;

	START;
	if (v->device->takes_readable[v->q] && v->device->takes_writable[v->q]) {
		desc(v, v->q, 0, TEXT, 16, D_NEXT, 1);
		desc(v, v->q, 1, nowhere[which].addr, nowhere[which].len, D_NEXT | D_WRITE, 2);
		desc(v, v->q, 2, DATA, 1, D_WRITE, 0);
	} else {
		desc(v, v->q, 0, nowhere[which].addr, nowhere[which].len, direction(v), 0);
	}
	push(v, v->q, 0);
	v->device->provoke(v, v->q);
	len = wait_head(v, v->q, 0);
	NEED(len == 0 || len == 1, "a buffer that is nowhere is not given back empty", len);
	return expect_works(v, v->q) == FAILED ? FAILED : REFUSED;
}

/* The other direction: what the device should read is nowhere, or what it should write where only reading was due. */
static enum verdict wrong_direction(struct villain *v, uint64_t nowhere_too)
{
	START;
	desc(v, v->q, 0, nowhere_too ? MEMORY_SIZE - 1 : TEXT, 64, direction(v) ^ D_WRITE, 0);
	if (direction(v) == 0)
		desc(v, v->q, 0, nowhere_too ? MEMORY_SIZE - 1 : DATA, 64, D_WRITE, 0);
	push(v, v->q, 0);
	v->device->provoke(v, v->q);
	return expect_works_or_broken(v, v->q);
}

static enum verdict empty_buffers(struct villain *v, uint64_t n)
{
	START;
	for (unsigned int i = 0; i < n; i++)
		desc(v, v->q, i, i % 2 ? UINT64_MAX : 0, 0, direction(v) | (i + 1 < n ? D_NEXT : 0), i + 1);
	push(v, v->q, 0);
	v->device->provoke(v, v->q);
	return expect_works_or_broken(v, v->q); /* a request of nothing at all may break it */
}

/* R080: as long as the queue, of one byte each where that makes sense. */
static enum verdict long_chain(struct villain *v, uint64_t n)
{
	uint32_t size = piece(v, 1);

	START;
	for (unsigned int i = 0; i < n; i++)
		desc(v, v->q, i, (direction(v) ? DATA : TEXT) + i * size, size, direction(v) | (i + 1 < n ? D_NEXT : 0), i + 1);
	if (v->device->takes_writable[v->q] && !direction(v)) /* a status byte, where there must be one */
		desc(v, v->q, (unsigned int) n - 1, DATA, 1, D_WRITE, 0);
	push(v, v->q, 0);
	v->device->provoke(v, v->q);
	NEED(wait_head(v, v->q, 0) >= 0, "a chain as long as the queue is not given back", n);
	return expect_works(v, v->q);
}

/* 2.7.5.2: more than 2^32 bytes in all. */
static enum verdict more_than_4_gib(struct villain *v, uint64_t unused)
{
	const unsigned int n = N_MAX;
	uint32_t max;
	int64_t len;

	(void) unused;
	set_reg(v, R_QUEUE_SEL, v->q);
	max = reg(v, R_QUEUE_NUM_MAX);
	if (max < n)
		return skip(v, "the queue is too short for 2^32 bytes");
	NEED(villain_start_with(v, 0, N_MAX), "the device does not come up", reg(v, R_STATUS));
	for (unsigned int i = 0; i < n; i++)
		desc(v, v->q, i, WASTE, WASTE_SIZE, direction(v) | (i + 1 < n ? D_NEXT : 0), i + 1);
	if (v->device->takes_writable[v->q] && !direction(v))
		desc(v, v->q, n - 1, DATA, 1, D_WRITE, 0);
	push(v, v->q, 0);
	v->device->provoke(v, v->q);
	len = wait_head(v, v->q, 0);
	if (needs_reset(v))
		return REFUSED;
	NEED(len >= 0, "a chain of 6 GiB is not given back", 0);
	return expect_works(v, v->q);
}

/* ---- indices, used ring, notifications ---- */

/* The whole ring at once: allowed. */
static enum verdict full_ring(struct villain *v, uint64_t unused)
{
	(void) unused;
	START;
	desc(v, v->q, 0, direction(v) ? MEMORY_SIZE : TEXT, 16, direction(v), 0);
	if (!direction(v) && v->device->takes_writable[v->q]) {
		desc(v, v->q, 0, TEXT, 16, D_NEXT, 1);
		desc(v, v->q, 1, DATA, 1, D_WRITE, 0);
	}
	for (unsigned int i = 0; i < N; i++) /* the same head again and again: 2.7.13, and none of our business */
		push(v, v->q, 0);
	v->device->provoke(v, v->q);
	for (unsigned int i = 0; i < N; i++)
		NEED(wait_head(v, v->q, 0) >= 0, "a full ring is not served", i);
	return expect_works(v, v->q);
}

/* Past 2^16. */
static enum verdict wrap_around(struct villain *v, uint64_t unused)
{
	uint32_t rounds = v->is_guest ? 40 : 65536 / N + 3;

	(void) unused;
	START;
	desc(v, v->q, 0, direction(v) ? MEMORY_SIZE : TEXT, 16, direction(v), 0);
	if (!direction(v) && v->device->takes_writable[v->q]) {
		desc(v, v->q, 0, TEXT, 16, D_NEXT, 1);
		desc(v, v->q, 1, DATA, 1, D_WRITE, 0);
	}
	for (uint32_t i = 0; i < rounds; i++) {
		for (unsigned int k = 0; k < N; k++)
			push(v, v->q, 0);
		v->device->provoke(v, v->q);
		for (unsigned int k = 0; k < N; k++)
			NEED(wait_head(v, v->q, 0) >= 0, "the ring stops", (uint64_t) i * N + k);
	}
	return expect_works(v, v->q);
}

/* 2.7.8.2: the used ring is the device's; what the driver writes there is not read. */
static enum verdict used_scribbled(struct villain *v, uint64_t value)
{
	uint16_t index;

	START;
	NEED(expect_works(v, v->q) == SERVED, v->why, v->got);
	index = get_u16(v, used_at(v->q) + 2);
	fill(at(v, used_at(v->q) + 4), (int) value, 8 * N);
	set_u16(v, used_at(v->q), 0xffff);
	set_u16(v, used_at(v->q) + 2, (uint16_t) (value * 0x101));
	kick(v, v->q);
	pause_some(v, 5);
	/* where the device stands by its own count, unless it believed us */
	set_u16(v, used_at(v->q) + 2, index);
	v->queues[v->q].used = index;
	return expect_works(v, v->q);
}

/* 2.7.7: what the driver says about interrupts. */
static enum verdict no_interrupt(struct villain *v, uint64_t flags)
{
	START;
	for (unsigned int q = 0; q < v->device->n_queues; q++)
		set_u16(v, avail_at(q), (uint16_t) flags);
	NEED(expect_works(v, v->q) == SERVED, v->why, v->got);
	if (flags & 1)
		NEED(!(reg(v, R_INTERRUPT_STATUS) & 1), "an interrupt that was not wanted", reg(v, R_INTERRUPT_STATUS));
	return SERVED;
}

/* Without EVENT_IDX used_event is ignored (2.7.7.2); with it any value is one. */
static enum verdict used_event(struct villain *v, uint64_t value)
{
	START;
	for (unsigned int q = 0; q < v->device->n_queues; q++)
		set_u16(v, avail_at(q) + 4 + 2 * N, (uint16_t) value);
	NEED(expect_works(v, v->q) == SERVED, v->why, v->got);
	NEED(reg(v, R_INTERRUPT_STATUS) & 1, "no interrupt though there is no event index", reg(v, R_INTERRUPT_STATUS));
	return SERVED;
}

static enum verdict event_idx(struct villain *v, uint64_t value)
{
	if (!(villain_offered(v) & F_EVENT_IDX))
		return skip(v, "the event index is not offered");
	NEED(villain_start_with(v, F_EVENT_IDX, N), "the device does not come up", reg(v, R_STATUS));
	for (unsigned int i = 0; i < 3 * N; i++) {
		for (unsigned int q = 0; q < v->device->n_queues; q++) {
			set_u16(v, avail_at(q) + 4 + 2 * N, (uint16_t) (value + i * 0x333));
			set_u16(v, avail_at(q), (uint16_t) (i % 2 ? 0xffff : 0)); /* to be ignored */
		}
		NEED(expect_works(v, v->q) == SERVED, v->why, v->got);
	}
	return SERVED;
}

static enum verdict spurious(struct villain *v, uint64_t n)
{
	START;
	if (v->is_guest)
		n /= 10;
	for (uint64_t i = 0; i < n; i++)
		kick(v, v->q);
	return expect_works(v, v->q);
}

/* 3.3.1: entries are changed while the device works on them. R092. */
static enum verdict flips(struct villain *v, uint64_t rounds)
{
	static const uint64_t addresses[] = { DATA, MEMORY_SIZE - 4, UINT64_MAX - 8, DATA + 0x1000, 0, GAP };
	static const uint32_t sizes[] = { 512, UINT32_MAX, 16, 0, 4096 };

	if (v->is_guest)
		rounds /= 4;
	villain_allow(v, DATA, 0x8000);
	for (uint64_t i = 0; i < rounds; i++) {
		START;
		desc(v, v->q, 0, TEXT, 16, D_NEXT | direction(v), 1);
		if (direction(v))
			desc(v, v->q, 0, DATA, 64, D_NEXT | D_WRITE, 1);
		desc(v, v->q, 1, DATA, 512, D_NEXT | D_WRITE, 2);
		desc(v, v->q, 2, DATA + 0x2000, 1, D_WRITE, 0);
		for (unsigned int k = 0; k < N; k++)
			push(v, v->q, 0);
		v->device->provoke(v, v->q);
		for (uint64_t k = 0; k < 400; k++) {
			uint64_t x = k * 7 + i;

			desc(v, v->q, 1, addresses[x % 6], sizes[x / 6 % 5], x % 11 ? D_NEXT | D_WRITE : 0, x % 7 ? 2 : 99);
			if (k % 16 == 0)
				set_u16(v, avail_at(v->q) + 4, (uint16_t) (x % 9));
		}
	}
	return SERVED;
}

/* R091: a reset while requests are under way; what comes later comes to nowhere. */
static enum verdict reset_in_flight(struct villain *v, uint64_t rounds)
{
	if (v->is_guest)
		rounds /= 10;
	for (uint64_t i = 0; i < rounds; i++) {
		START;
		for (unsigned int k = 0; k < N / 4; k++) {
			desc(v, v->q, 3 * k, TEXT, 16, D_NEXT | direction(v), 3 * k + 1);
			if (direction(v))
				desc(v, v->q, 3 * k, DATA, 64, D_NEXT | D_WRITE, 3 * k + 1);
			desc(v, v->q, 3 * k + 1, DATA, 32768, D_NEXT | D_WRITE, 3 * k + 2);
			desc(v, v->q, 3 * k + 2, DATA + 0x10000, 1, D_WRITE, 0);
		}
		for (unsigned int k = 0; k < N; k++)
			push(v, v->q, k % 4 * 3);
		v->device->provoke(v, v->q);
		for (volatile uint64_t spin = 0; spin < i % 100 * 50; spin++)
			;
		villain_reset(v);
		if (i % 16 == 0) {
			villain_guard(v); /* and nothing is allowed now */
			pause_some(v, 3);
			const char *why = villain_check_guard(v);

			NEED(!why, why, v->got);
		}
	}
	return SERVED;
}

#define Q ((EVERY_KIND & ~ON(KIND_BLK_RO)) | EVERY_QUEUE)
#define EITHER (SERVED | REFUSED)
const struct villain_case villain_ring[] = {
	{ "size-0", "2.7", Q, "a queue of no entries", ring_placed, 0, REFUSED, NULL },
	{ "size-3", "2.7", Q, "a size that is no power of two", ring_placed, 1, REFUSED, NULL },
	{ "size-512", "4.2.2.2", Q, "more than QueueNumMax", ring_placed, 2, REFUSED, NULL },
	{ "size-32768", "4.2.2.2", Q, "the largest size there can be", ring_placed, 3, REFUSED, NULL },
	{ "size-65544", "4.2.2.2", Q, "a size beyond 16 bits", ring_placed, 4, REFUSED, NULL },
	{ "size-max", "4.2.2.2", Q, "a size with all bits", ring_placed, 5, REFUSED, NULL },
	{ "align-desc", "2.7.1", Q, "a descriptor table that is not aligned", ring_placed, 6, REFUSED, NULL },
	{ "align-avail", "2.7.1", Q, "an available ring that is not aligned", ring_placed, 7, REFUSED, NULL },
	{ "align-used", "2.7.1", Q, "a used ring that is not aligned", ring_placed, 8, REFUSED, NULL },
	{ "desc-out", "2.7", Q, "a descriptor table behind the end of memory", ring_placed, 9, REFUSED, "R083" },
	{ "avail-out", "2.7", Q, "an available ring behind the end of memory", ring_placed, 10, REFUSED, "R083" },
	{ "used-out", "2.7", Q, "a used ring behind the end of memory", ring_placed, 11, REFUSED, "R083" },
	{ "desc-across", "2.7", Q, "a descriptor table across the end of memory", ring_placed, 12, REFUSED, "R083" },
	{ "avail-across", "2.7", Q, "an available ring across the end of memory", ring_placed, 13, REFUSED, "R083" },
	{ "used-across", "2.7", Q, "a used ring across the end of memory", ring_placed, 14, REFUSED, "R083" },
	{ "desc-gap", "2.7", Q, "a descriptor table in the gap", ring_placed, 15, REFUSED, "R083" },
	{ "avail-mmio", "2.7", Q, "an available ring on a device", ring_placed, 16, REFUSED, "R083" },
	{ "used-apic", "2.7", Q, "a used ring on the local APIC", ring_placed, 17, REFUSED, "R083" },
	{ "desc-wraps", "2.7", Q, "a descriptor table that wraps", ring_placed, 18, REFUSED, "R083" },
	{ "avail-wraps", "2.7", Q, "an available ring that wraps", ring_placed, 19, REFUSED, "R083" },
	{ "used-wraps", "2.7", Q, "a used ring that wraps", ring_placed, 20, REFUSED, "R083" },
	{ "rings-overlap", "2.7", Q, "all three rings in one place", ring_on_ring, 0, EITHER, NULL },
	{ "buffer-on-desc", "2.7.5.1", Q, "a buffer on the descriptor table", buffer_on_ring, 0, EITHER, NULL },
	{ "buffer-on-avail", "2.7.5.1", Q, "a buffer on the available ring", buffer_on_ring, 1, EITHER, NULL },
	{ "buffer-on-used", "2.7.5.1", Q, "a buffer on the used ring", buffer_on_ring, 2, EITHER, NULL },
	{ "next-n", "2.7.5", Q, "next is the number of entries", broken, 0, REFUSED, NULL },
	{ "next-256", "2.7.5", Q, "next is behind the largest queue", broken, 1, REFUSED, NULL },
	{ "next-max", "2.7.5", Q, "next with all bits", broken, 2, REFUSED, NULL },
	{ "loop-1", "2.7.5.2", Q, "an entry that follows itself", broken, 3, REFUSED, NULL },
	{ "loop-2", "2.7.5.2", Q, "a loop of two", broken, 4, REFUSED, NULL },
	{ "loop-n", "2.7.5.2", Q, "a loop of all entries", broken, 5, REFUSED, "R080" },
	{ "loop-rho", "2.7.5.2", Q, "a loop of empty buffers behind a tail", broken, 6, REFUSED, NULL },
	{ "order", "2.7.4.2", Q, "writable before readable", broken, 7, REFUSED, NULL },
	{ "order-empty", "2.7.4.2", Q, "the same with empty buffers", broken, 8, REFUSED, NULL },
	{ "flags-8000", "2.7.5", Q, "an undefined flag", broken, 9, REFUSED, NULL },
	{ "flags-8", "2.7.5", Q, "the first undefined flag", broken, 10, REFUSED, NULL },
	{ "flags-all", "2.7.5", Q, "all undefined flags", broken, 11, REFUSED, NULL },
	{ "head-n", "2.7.6", Q, "a head behind the table", broken, 12, REFUSED, NULL },
	{ "head-256", "2.7.6", Q, "a head behind the largest table", broken, 13, REFUSED, NULL },
	{ "head-max", "2.7.6", Q, "a head with all bits", broken, 14, REFUSED, NULL },
	{ "index-ahead", "2.7.6", Q, "more available than the ring holds", broken, 15, REFUSED, NULL },
	{ "index-back", "2.7.6.1", Q, "the available index goes back by one", broken, 16, REFUSED, NULL },
	{ "index-half", "2.7.6.1", Q, "the available index jumps by 2^15", broken, 17, REFUSED, NULL },
	{ "indirect-unasked", "2.7.5.3.1", Q, "INDIRECT that was not negotiated", broken, 18, REFUSED, NULL },
	{ "again-and-again", "2.1.2", Q, "the same loop many times with resets between", broken_for_ever, 20, REFUSED, "R095" },
	{ "indirect-next", "2.7.5.3.1", Q, "INDIRECT and NEXT", indirect_broken, WITH_NEXT, REFUSED, NULL },
	{ "indirect-nested", "2.7.5.3.1", Q, "a table in a table", indirect_broken, NESTED, REFUSED, NULL },
	{ "indirect-empty", "2.7.5.3.1", Q, "a table of no entries", indirect_broken, NO_ENTRY, REFUSED, NULL },
	{ "indirect-odd", "2.7.5.3", Q, "a table of four entries and a byte", indirect_broken, ODD_SIZE, REFUSED, NULL },
	{ "indirect-self", "2.7.5.2", Q, "an entry of a table that follows itself", indirect_broken, SELF_LOOP, REFUSED, NULL },
	{ "indirect-loop", "2.7.5.2", Q, "a loop in a table", indirect_broken, LOOP, REFUSED, NULL },
	{ "indirect-next-out", "2.7.5.3", Q, "next behind the table", indirect_broken, NEXT_OUT, REFUSED, NULL },
	{ "indirect-long", "2.7.5.3.1", Q, "a table longer than the largest queue", indirect_broken, TOO_LONG, REFUSED, "R080" },
	{ "indirect-long-2", "2.7.5.3.1", Q, "a table that is too long with what stands before it", indirect_broken,
		TOO_LONG_WITH_CHAIN, REFUSED, "R080" },
	{ "indirect-order", "2.7.4.2", Q, "writable before readable in a table", indirect_broken, ORDER, REFUSED, NULL },
	{ "indirect-behind", "2.7.4.2", Q, "a readable table behind a writable buffer", indirect_broken, BEHIND_WRITABLE, REFUSED,
		NULL },
	{ "indirect-out", "2.7.5.3", Q, "a table behind the end of memory", indirect_broken, TABLE_OUT, REFUSED, "R083" },
	{ "indirect-across", "2.7.5.3", Q, "a table across the end of memory", indirect_broken, TABLE_ACROSS, REFUSED, "R083" },
	{ "indirect-wraps", "2.7.5.3", Q, "a table that wraps", indirect_broken, TABLE_WRAPS, REFUSED, "R083" },
	{ "indirect-huge", "2.7.5.3", Q, "a table of 2^32 bytes", indirect_broken, TABLE_HUGE, REFUSED, "R083" },
	{ "indirect-flags", "2.7.5", Q, "an undefined flag in a table", indirect_broken, UNKNOWN_FLAGS, REFUSED, NULL },
	{ "indirect-write", "2.7.5.3.2", Q, "WRITE at the entry that refers to a table", indirect_write_flag, 0, SERVED, NULL },
	{ "buffer-end", "2.7.5", Q, "a buffer behind the end of memory", buffer_nowhere, 0, REFUSED, "R082" },
	{ "buffer-across", "2.7.5", Q, "a buffer across the end of memory", buffer_nowhere, 1, REFUSED, "R082" },
	{ "buffer-gap", "2.7.5", Q, "a buffer in the gap", buffer_nowhere, 2, REFUSED, "R082" },
	{ "buffer-mmio", "2.7.5", Q, "a buffer on a device", buffer_nowhere, 3, REFUSED, "R082" },
	{ "buffer-max", "2.7.5", Q, "a buffer at the last address", buffer_nowhere, 4, REFUSED, "R082" },
	{ "buffer-wraps", "2.7.5", Q, "a buffer that wraps", buffer_nowhere, 5, REFUSED, "R082" },
	{ "buffer-52", "2.7.5", Q, "a buffer at 2^52", buffer_nowhere, 6, REFUSED, "R082" },
	{ "buffer-4g", "2.7.5", Q, "a buffer of 4 GiB from 0", buffer_nowhere, 7, REFUSED, "R082" },
	{ "buffer-4g-2", "2.7.5", Q, "a buffer of 4 GiB from within", buffer_nowhere, 8, REFUSED, "R082" },
	{ "direction", "2.7.5.1", Q, "a buffer of the other direction", wrong_direction, 0, EITHER, NULL },
	{ "direction-nowhere", "2.7.5.1", Q, "the same, nowhere", wrong_direction, 1, EITHER, "R082" },
	{ "empty-1", "2.7.4", Q, "an empty buffer", empty_buffers, 1, EITHER, NULL },
	{ "empty-8", "2.7.4", Q, "eight empty buffers", empty_buffers, 8, EITHER, NULL },
	{ "long-15", "2.7.5.3.1", Q, "a chain one shorter than the queue", long_chain, N - 1, SERVED, "R080" },
	{ "long-16", "2.7.5.3.1", Q, "a chain as long as the queue", long_chain, N, SERVED, "R080" },
	{ "long-bytes", "2.7.5.2", Q, "a chain of more than 2^32 bytes", more_than_4_gib, 0, EITHER, "R109" },
	{ "full-ring", "2.7.6", Q, "as many available as the ring holds", full_ring, 0, SERVED, NULL },
	{ "wrap-around", "2.7.6", Q, "the index past 2^16", wrap_around, 0, SERVED, NULL },
	{ "used-zeros", "2.7.8", Q, "the driver writes zeros into the used ring", used_scribbled, 0, SERVED, NULL },
	{ "used-ones", "2.7.8", Q, "the driver writes ones into the used ring", used_scribbled, 0xff, SERVED, NULL },
	{ "no-interrupt", "2.7.7.1", Q, "interrupts are not wanted", no_interrupt, 1, SERVED, NULL },
	{ "avail-flags", "2.7.7.1", Q, "flags of the available ring other than 0 and 1", no_interrupt, 0xfffe, SERVED, NULL },
	{ "used-event", "2.7.7.2", Q, "used_event without the feature", used_event, 0x7fff, SERVED, NULL },
	{ "event-index", "2.7.7.2", Q, "any values of used_event with the feature", event_idx, 0xfff0, SERVED, NULL },
	{ "spurious", "2.7.10.2", Q, "notifications without buffers", spurious, 3000, SERVED, NULL },
	{ "flips", "3.3.1", Q, "entries change while the device works on them", flips, 60, SERVED, "R092" },
	{ "reset-in-flight", "2.4.1", Q, "resets while requests are under way", reset_in_flight, 200, SERVED, "R091" },
};
const unsigned int villain_ring_n = sizeof(villain_ring) / sizeof(villain_ring[0]);
