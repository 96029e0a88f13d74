/* SPDX-License-Identifier: Apache-2.0
 *
 * Block and entropy devices (virtio 1.2, 5.2 and 5.4).
 */
#include "devices.h"

#define START NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS))
#define STATUS_AT (DATA + 0x8000)
#define BUFFER DATA
#define NONE UINT32_MAX

static uint8_t status_of(struct villain *v)
{
	return *(volatile uint8_t *) at(v, STATUS_AT);
}

/* One request of header, data and status; data_flags NONE: no data. What stands in the status byte afterwards. */
static uint8_t request(struct villain *v, uint32_t type, uint64_t sector, uint64_t addr, uint64_t len, uint32_t data_flags)
{
	*(volatile uint8_t *) at(v, STATUS_AT) = BLK_NOTHING;
	desc(v, 0, 0, blk_head(v, 0, type, sector), 16, D_NEXT, data_flags == NONE ? 2 : 1);
	if (data_flags != NONE)
		desc(v, 0, 1, addr, len, D_NEXT | data_flags, 2);
	desc(v, 0, 2, STATUS_AT, 1, D_WRITE, 0);
	push(v, 0, 0);
	kick(v, 0);
	(void) wait_head(v, 0, 0);
	return status_of(v);
}

/* ---- framing ---- */

enum framing {
	HEAD_ONLY,
	HEAD_SHORT,
	HEAD_EMPTY,
	STATUS_ONLY,
	NOTHING_USEFUL,
	STATUS_READABLE,
	HEAD_IN_BYTES,
	DATA_AND_STATUS,
	IN_READABLE,
	OUT_WRITABLE,
	IN_AND_OUT,
	EMPTY_BETWEEN,
	STATUS_LONG,
	ONE_BYTE_FOR_ALL,
};

static enum verdict framing(struct villain *v, uint64_t how)
{
	int64_t len;

	START;
	*(volatile uint8_t *) at(v, STATUS_AT) = BLK_NOTHING;
	(void) blk_head(v, 0, (enum framing) how == OUT_WRITABLE ? BLK_OUT : BLK_IN, 2);
	desc(v, 0, 0, TEXT, 16, D_NEXT, 1);
	desc(v, 0, 1, BUFFER, 512, D_NEXT | D_WRITE, 2);
	desc(v, 0, 2, STATUS_AT, 1, D_WRITE, 0);
	switch ((enum framing) how) {
	case HEAD_ONLY: /* R079 */
		desc(v, 0, 0, TEXT, 16, 0, 0);
		break;
	case HEAD_SHORT:
		desc(v, 0, 0, TEXT, 15, D_NEXT, 1);
		break;
	case HEAD_EMPTY:
		desc(v, 0, 0, TEXT, 0, D_NEXT, 1);
		break;
	case STATUS_ONLY:
		desc(v, 0, 0, STATUS_AT, 1, D_WRITE, 0);
		break;
	case NOTHING_USEFUL:
		desc(v, 0, 0, TEXT, 15, 0, 0);
		break;
	case STATUS_READABLE:
		desc(v, 0, 1, TEXT + 64, 512, D_NEXT, 2);
		desc(v, 0, 2, TEXT + 1024, 1, 0, 0);
		break;
	case HEAD_IN_BYTES:
		for (unsigned int i = 0; i < 13; i++)
			desc(v, 0, i, TEXT + i, i == 12 ? 4 : 1, D_NEXT, i + 1);
		desc(v, 0, 13, BUFFER, 512, D_NEXT | D_WRITE, 14);
		desc(v, 0, 14, STATUS_AT, 1, D_WRITE, 0);
		break;
	case DATA_AND_STATUS:
		desc(v, 0, 1, STATUS_AT - 512, 513, D_WRITE, 0);
		break;
	case IN_READABLE:
		desc(v, 0, 1, TEXT + 64, 512, D_NEXT, 2);
		break;
	case OUT_WRITABLE:
		break;
	case IN_AND_OUT:
		desc(v, 0, 1, TEXT + 64, 512, D_NEXT, 3);
		desc(v, 0, 3, BUFFER, 512, D_NEXT | D_WRITE, 2);
		break;
	case EMPTY_BETWEEN:
		desc(v, 0, 0, TEXT, 16, D_NEXT, 3);
		desc(v, 0, 3, UINT64_MAX, 0, D_NEXT | D_WRITE, 1);
		break;
	case STATUS_LONG:
		desc(v, 0, 2, STATUS_AT - 4095, 4096, D_WRITE, 0);
		break;
	case ONE_BYTE_FOR_ALL:
		desc(v, 0, 1, STATUS_AT, 512, D_NEXT | D_WRITE, 2);
		break;
	}
	push(v, 0, 0);
	kick(v, 0);
	len = wait_head(v, 0, 0);
	if (needs_reset(v)) /* neither header nor status: nobody can be told */
		return (enum framing) how == NOTHING_USEFUL || (enum framing) how == STATUS_READABLE ? REFUSED :
			fail(v, "the device gave up on a request", how);
	NEED(len >= 0, "the request is not given back", how);
	NEED(expect_works(v, 0) == SERVED, v->why, v->got);
	return len == 0 || status_of(v) != BLK_OK ? REFUSED : SERVED;
}

/* ---- where and how much ---- */

struct transfer {
	uint32_t type;
	uint64_t sector;
	uint64_t len;
	uint8_t status;
};
static const struct transfer transfers[] = {
	{ BLK_IN, DISK_SECTORS, 512, BLK_IOERR },
	{ BLK_OUT, DISK_SECTORS, 512, BLK_IOERR },
	{ BLK_IN, DISK_SECTORS - 1, 1024, BLK_IOERR },
	{ BLK_OUT, DISK_SECTORS - 1, 1024, BLK_IOERR },
	{ BLK_IN, UINT64_MAX / 512, 512, BLK_IOERR },
	{ BLK_IN, UINT64_MAX / 512 + 1, 512, BLK_IOERR },
	{ BLK_OUT, UINT64_MAX / 512 + 1, 512, BLK_IOERR },
	{ BLK_OUT, UINT64_C(1) << 55, 512, BLK_IOERR },
	{ BLK_IN, UINT64_MAX, 512, BLK_IOERR },
	{ BLK_OUT, UINT64_MAX, 512, BLK_IOERR },
	{ BLK_OUT, UINT64_MAX - 1, 1024, BLK_IOERR },
	{ BLK_IN, 0, 1, BLK_IOERR },
	{ BLK_IN, 0, 511, BLK_IOERR },
	{ BLK_OUT, DISK_SCRATCH, 513, BLK_IOERR },
	{ BLK_OUT, DISK_SCRATCH, 100, BLK_IOERR },
	{ BLK_IN, DISK_SECTORS - 1, 512, BLK_OK },
	{ BLK_OUT, DISK_SECTORS - 1, 512, BLK_OK },
	{ 2, 0, 512, BLK_UNSUPP },
	{ 3, 0, 512, BLK_UNSUPP },
	{ 5, 0, 512, BLK_UNSUPP },
	{ 0x80000000u, 0, 512, BLK_UNSUPP },
	{ UINT32_MAX, 0, 512, BLK_UNSUPP },
	{ 14, 0, 512, BLK_UNSUPP },
};

static enum verdict transfer(struct villain *v, uint64_t which)
{
	const struct transfer *t = &transfers[which];
	uint8_t status;

	START;
	status = request(v, t->type, t->sector, t->type == BLK_OUT ? WASTE : BUFFER, t->len, t->type == BLK_OUT ? 0 : D_WRITE);
	NEED(status == t->status, "another status than the standard's", status);
	NEED(expect_works(v, 0) == SERVED, v->why, v->got);
	return status == BLK_OK ? SERVED : REFUSED;
}

/* 33 MiB, and sums of lengths that do not fit 32 bits. */
static enum verdict huge(struct villain *v, uint64_t n)
{
	START;
	*(volatile uint8_t *) at(v, STATUS_AT) = BLK_NOTHING;
	desc(v, 0, 0, blk_head(v, 0, BLK_IN, 0), 16, D_NEXT, 1);
	for (unsigned int i = 1; i <= n; i++)
		desc(v, 0, i, WASTE, 24u << 20, D_NEXT | D_WRITE, i + 1);
	desc(v, 0, (unsigned int) n + 1, STATUS_AT, 1, D_WRITE, 0);
	push(v, 0, 0);
	kick(v, 0);
	NEED(wait_head(v, 0, 0) >= 0, "the request is not given back", n);
	NEED(status_of(v) == BLK_IOERR, "more than the disk holds was read", status_of(v));
	return expect_works(v, 0) == SERVED ? REFUSED : FAILED;
}

/* 5.2.6.2: a read-only device answers writes with IOERR; R098. */
static enum verdict read_only(struct villain *v, uint64_t type)
{
	uint8_t status;

	NEED(villain_offered(v) & F_BLK_RO, "RO is not offered", villain_offered(v));
	START;
	status = request(v, (uint32_t) type, 0, type == BLK_OUT ? WASTE : TEXT + 64, type == BLK_OUT ? 512 : 16, 0);
	NEED(status != BLK_OK && status != BLK_NOTHING, "a write to a read-only disk worked", status);
	return expect_works(v, 0) == SERVED ? REFUSED : FAILED;
}

static enum verdict flush(struct villain *v, uint64_t sector)
{
	uint8_t status;

	NEED(villain_start_with(v, F_BLK_FLUSH, N), "the device does not come up", reg(v, R_STATUS));
	status = request(v, BLK_FLUSH, sector, 0, 0, NONE); /* 5.2.6.1: the sector must be 0; nobody has to look */
	NEED(status == BLK_OK || status == BLK_IOERR, "a flush is not answered", status);
	return expect_works(v, 0) == SERVED ? status == BLK_OK ? SERVED : REFUSED : FAILED;
}

static enum verdict get_id(struct villain *v, uint64_t len)
{
	uint8_t status;

	START;
	status = request(v, BLK_GET_ID, 0, BUFFER, len, D_WRITE);
	NEED(status == BLK_OK || status == BLK_IOERR, "GET_ID is not answered", status);
	for (uint64_t i = 20; i < len && i < 4096; i++)
		if (((volatile uint8_t *) at(v, BUFFER))[i] != ((const uint8_t[]) { 0x3c, 0x5a, 0xc3, 0xa5, 0x3c, 0x5a, 0xc3,
								 0xa5 })[i % 8])
			return fail(v, "GET_ID wrote more than 20 bytes", i);
	return expect_works(v, 0) == SERVED ? status == BLK_OK ? SERVED : REFUSED : FAILED;
}

/* 5.2.6.1: not without the feature; with it flags that nobody knows are UNSUPP (5.2.6.2). R098. */
struct range {
	uint64_t sector;
	uint32_t n, flags;
};
static const struct {
	uint32_t type;
	struct range range;
	uint32_t len;
} discards[] = {
	{ BLK_DISCARD, { DISK_SECTORS, 1, 0 }, 16 },
	{ BLK_DISCARD, { UINT64_MAX, 2, 0 }, 16 },
	{ BLK_DISCARD, { 0, UINT32_MAX, 0 }, 16 },
	{ BLK_DISCARD, { 0, 1, 0x80000000u }, 16 },
	{ BLK_DISCARD, { 0, 1, 1 }, 16 },
	{ BLK_DISCARD, { 0, 1, 0 }, 15 },
	{ BLK_WRITE_ZEROES, { DISK_SECTORS - 1, 2, 0 }, 16 },
	{ BLK_WRITE_ZEROES, { 0, 1, 2 }, 16 },
	{ BLK_WRITE_ZEROES, { UINT64_C(1) << 55, 1, 0 }, 16 },
	{ BLK_WRITE_ZEROES, { 0, 1, 0 }, 1 },
};

static enum verdict discard(struct villain *v, uint64_t which)
{
	const uint64_t bits = UINT64_C(1) << 13 | UINT64_C(1) << 14;
	uint8_t status;

	NEED(villain_start_with(v, villain_offered(v) & bits, N), "the device does not come up", reg(v, R_STATUS));
	status = request(v, discards[which].type, 0, text(v, 64, &discards[which].range, 16), discards[which].len, 0);
	NEED(status == BLK_IOERR || status == BLK_UNSUPP, "nonsense was discarded", status);
	return expect_works(v, 0) == SERVED ? REFUSED : FAILED;
}

/* The status byte itself is nowhere. */
static enum verdict status_nowhere(struct villain *v, uint64_t addr)
{
	int64_t len;

	START;
	desc(v, 0, 0, blk_head(v, 0, BLK_IN, 0), 16, D_NEXT, 1);
	desc(v, 0, 1, BUFFER, 512, D_NEXT | D_WRITE, 2);
	desc(v, 0, 2, addr, 1, D_WRITE, 0);
	push(v, 0, 0);
	kick(v, 0);
	len = wait_head(v, 0, 0);
	NEED(len == 0, "a request whose status has no place is not given back empty", len);
	return expect_works(v, 0) == SERVED ? REFUSED : FAILED;
}

/* ---- entropy ---- */

/* 5.4.6.1: readable buffers, alone and before writable ones. */
static enum verdict rng_readable(struct villain *v, uint64_t and_writable)
{
	int64_t len;

	START;
	desc(v, 0, 0, TEXT, 64, and_writable ? D_NEXT : 0, 1);
	desc(v, 0, 1, BUFFER, 64, D_WRITE, 0);
	push(v, 0, 0);
	kick(v, 0);
	len = wait_head(v, 0, 0);
	NEED(len >= 0 && len <= (and_writable ? 64 : 0), "bytes for a buffer that may only be read", len);
	return expect_works(v, 0);
}

static enum verdict rng_much(struct villain *v, uint64_t n)
{
	int64_t len;

	START;
	for (unsigned int i = 0; i < n; i++)
		desc(v, 0, i, WASTE, WASTE_SIZE, D_WRITE | (i + 1 < n ? D_NEXT : 0), i + 1);
	push(v, 0, 0);
	kick(v, 0);
	len = wait_head(v, 0, 0);
	NEED(len >= 1 && len <= 65536, "a request for very much is not cut", len);
	return expect_works(v, 0);
}

static enum verdict rng_half_nowhere(struct villain *v, uint64_t addr)
{
	int64_t len;

	START;
	desc(v, 0, 0, BUFFER, 64, D_WRITE | D_NEXT, 1);
	desc(v, 0, 1, addr, 64, D_WRITE, 0);
	push(v, 0, 0);
	kick(v, 0);
	len = wait_head(v, 0, 0);
	NEED(len >= 0 && len <= 64, "more bytes than there is room for", len);
	return expect_works(v, 0) == SERVED ? REFUSED : FAILED;
}

#define B ON(KIND_BLK)
#define EITHER (SERVED | REFUSED)
const struct villain_case villain_blk[] = {
	{ "head-only", "5.2.6", B, "a header and nothing else", framing, HEAD_ONLY, REFUSED, "R079" },
	{ "head-short", "5.2.6", B, "a header of 15 bytes", framing, HEAD_SHORT, REFUSED, "R097" },
	{ "head-empty", "5.2.6", B, "a header of no bytes", framing, HEAD_EMPTY, REFUSED, "R097" },
	{ "status-only", "5.2.6", B, "a status and nothing else", framing, STATUS_ONLY, REFUSED, "R097" },
	{ "nothing", "5.2.6", B, "neither header nor status", framing, NOTHING_USEFUL, REFUSED, "R097" },
	{ "status-readable", "5.2.6", B, "a status that may only be read", framing, STATUS_READABLE, REFUSED, "R097" },
	{ "head-in-bytes", "2.7.4.1", B, "a header of one byte a descriptor", framing, HEAD_IN_BYTES, SERVED, NULL },
	{ "data-and-status", "2.7.4.1", B, "data and status in one descriptor", framing, DATA_AND_STATUS, SERVED, NULL },
	{ "in-readable", "2.7.5.1", B, "a read into a readable buffer", framing, IN_READABLE, EITHER, NULL },
	{ "out-writable", "2.7.5.1", B, "a write from a writable buffer", framing, OUT_WRITABLE, EITHER, NULL },
	{ "in-and-out", "5.2.6", B, "data in both directions", framing, IN_AND_OUT, EITHER, NULL },
	{ "empty-between", "2.7.4.1", B, "an empty descriptor at no address", framing, EMPTY_BETWEEN, SERVED, NULL },
	{ "status-long", "5.2.6", B, "a status of 4096 bytes", framing, STATUS_LONG, EITHER, "R097" },
	{ "status-in-data", "5.2.6", B, "the status lies in the data", framing, ONE_BYTE_FOR_ALL, EITHER, NULL },
	{ "in-behind", "5.2.6.1", B, "a read behind the end", transfer, 0, REFUSED, "R094" },
	{ "out-behind", "5.2.6.1", B, "a write behind the end", transfer, 1, REFUSED, "R097" },
	{ "in-across", "5.2.6.1", B, "a read across the end", transfer, 2, REFUSED, "R097" },
	{ "out-across", "5.2.6.1", B, "a write across the end", transfer, 3, REFUSED, "R097" },
	{ "in-2-55", "5.2.6.1", B, "a read from sector 2^64/512 - 1", transfer, 4, REFUSED, "R094" },
	{ "in-wraps", "5.2.6.1", B, "a read from sector 2^64/512", transfer, 5, REFUSED, "R094" },
	{ "out-wraps", "5.2.6.1", B, "a write to sector 2^64/512", transfer, 6, REFUSED, "R094" },
	{ "out-2-55", "5.2.6.1", B, "a write to sector 2^55", transfer, 7, REFUSED, "R094" },
	{ "in-max", "5.2.6.1", B, "a read from the last sector there can be", transfer, 8, REFUSED, "R094" },
	{ "out-max", "5.2.6.1", B, "a write to the last sector there can be", transfer, 9, REFUSED, "R094" },
	{ "out-max-2", "5.2.6.1", B, "a write whose end wraps to sector 1", transfer, 10, REFUSED, "R094" },
	{ "in-1-byte", "5.2.6.1", B, "a read of one byte", transfer, 11, REFUSED, NULL },
	{ "in-511", "5.2.6.1", B, "a read of 511 bytes", transfer, 12, REFUSED, NULL },
	{ "out-513", "5.2.6.1", B, "a write of 513 bytes", transfer, 13, REFUSED, NULL },
	{ "out-100", "5.2.6.1", B, "a write of 100 bytes", transfer, 14, REFUSED, NULL },
	{ "in-last", "5.2.6", B, "a read of the last sector", transfer, 15, SERVED, NULL },
	{ "out-last", "5.2.6", B, "a write of the last sector", transfer, 16, SERVED, NULL },
	{ "type-2", "5.2.6.2", B, "a legacy request type", transfer, 17, REFUSED, "R097" },
	{ "type-3", "5.2.6.2", B, "another", transfer, 18, REFUSED, "R097" },
	{ "type-5", "5.2.6.2", B, "another", transfer, 19, REFUSED, "R097" },
	{ "type-barrier", "5.2.6.2", B, "the legacy barrier bit", transfer, 20, REFUSED, "R097" },
	{ "type-max", "5.2.6.2", B, "a request type with all bits", transfer, 21, REFUSED, "R097" },
	{ "type-14", "5.2.6.2", B, "secure erase, which is not offered", transfer, 22, REFUSED, "R097" },
	{ "huge-48", "5.2.6", B, "a read of 48 MiB", huge, 2, REFUSED, "R109" },
	{ "huge-240", "5.2.6", B, "a read of 240 MiB", huge, 10, REFUSED, "R109" },
	{ "flush", "5.2.6.1", B, "a flush with a sector", flush, 7, EITHER, NULL },
	{ "flush-max", "5.2.6.1", B, "a flush with the last sector there can be", flush, UINT64_MAX, EITHER, NULL },
	{ "id-0", "5.2.6.1", B, "GET_ID without room", get_id, 0, EITHER, NULL },
	{ "id-1", "5.2.6.1", B, "GET_ID of one byte", get_id, 1, EITHER, NULL },
	{ "id-19", "5.2.6.1", B, "GET_ID of 19 bytes", get_id, 19, EITHER, NULL },
	{ "id-4096", "5.2.6.1", B, "GET_ID of 4096 bytes", get_id, 4096, EITHER, NULL },
	{ "discard-behind", "5.2.6.1", B, "discard behind the end", discard, 0, REFUSED, "R097" },
	{ "discard-wraps", "5.2.6.1", B, "discard that wraps", discard, 1, REFUSED, "R097" },
	{ "discard-all", "5.2.6.1", B, "discard of 2^32 - 1 sectors", discard, 2, REFUSED, "R097" },
	{ "discard-flags", "5.2.6.2", B, "discard with an unknown flag", discard, 3, REFUSED, NULL },
	{ "discard-unmap", "5.2.6.2", B, "discard with the unmap flag", discard, 4, REFUSED, NULL },
	{ "discard-short", "5.2.6.1", B, "discard with 15 bytes", discard, 5, REFUSED, NULL },
	{ "zeroes-across", "5.2.6.1", B, "write zeroes across the end", discard, 6, REFUSED, "R097" },
	{ "zeroes-flags", "5.2.6.2", B, "write zeroes with an unknown flag", discard, 7, REFUSED, NULL },
	{ "zeroes-2-55", "5.2.6.1", B, "write zeroes at sector 2^55", discard, 8, REFUSED, "R094" },
	{ "zeroes-short", "5.2.6.1", B, "write zeroes with one byte", discard, 9, REFUSED, NULL },
	{ "status-end", "2.7.5", B, "a status behind the end of memory", status_nowhere, MEMORY_SIZE, REFUSED, "R082" },
	{ "status-max", "2.7.5", B, "a status at the last address", status_nowhere, UINT64_MAX, REFUSED, "R082" },
	{ "ro-out", "5.2.6.2", ON(KIND_BLK_RO), "a write to a read-only disk", read_only, BLK_OUT, REFUSED, "R098" },
	{ "ro-discard", "5.2.6.2", ON(KIND_BLK_RO), "discard on a read-only disk", read_only, BLK_DISCARD, REFUSED, "R098" },
	{ "ro-zeroes", "5.2.6.2", ON(KIND_BLK_RO), "write zeroes on a read-only disk", read_only, BLK_WRITE_ZEROES, REFUSED,
		"R098" },
	{ "readable", "5.4.6.1", ON(KIND_RNG), "a buffer that may only be read", rng_readable, 0, SERVED, NULL },
	{ "readable-first", "5.4.6.1", ON(KIND_RNG), "a readable buffer before a writable one", rng_readable, 1, SERVED, NULL },
	{ "much-1", "5.4.6.2", ON(KIND_RNG), "24 MiB", rng_much, 1, SERVED, "R109" },
	{ "much-16", "5.4.6.2", ON(KIND_RNG), "384 MiB", rng_much, N, SERVED, "R109" },
	{ "half-nowhere", "2.7.5", ON(KIND_RNG), "the second half is nowhere", rng_half_nowhere, MEMORY_SIZE, REFUSED, "R082" },
	{ "half-gap", "2.7.5", ON(KIND_RNG), "the second half is in the gap", rng_half_nowhere, UINT64_C(0xc0000000), REFUSED,
		"R082" },
};
const unsigned int villain_blk_n = sizeof(villain_blk) / sizeof(villain_blk[0]);
