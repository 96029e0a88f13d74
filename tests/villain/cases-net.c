/* SPDX-License-Identifier: Apache-2.0
 *
 * Network and balloon devices (virtio 1.2, 5.1 and 5.5). What the villain sends comes back to it: the host's end of the
 * network device is an echo.
 */
#include "devices.h"

#define START NEED(villain_start(v), "the device does not come up", reg(v, R_STATUS))
#define WHERE (DATA + 0x1000)

/* ---- network ---- */

/* Sends a frame of `size` bytes in all with `head` before it, from WASTE. True: it was taken. */
static bool send(struct villain *v, const struct net_head *head, uint32_t head_size, uint64_t size)
{
	desc(v, TX, 0, text(v, 0, head, sizeof(*head)), head_size, size > 0 ? D_NEXT : 0, 1);
	if (size > 0)
		desc(v, TX, 1, TEXT + 0x100, size, 0, 0);
	push(v, TX, 0);
	kick(v, TX);
	return wait_head(v, TX, 0) >= 0;
}

static void put_ethernet(struct villain *v)
{
	static const uint8_t link[14] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5 };

	(void) text(v, 0x100, link, sizeof(link));
}

/* It must not arrive: the frames behind it do. */
static enum verdict dropped(struct villain *v, const struct net_head *head, uint32_t head_size, uint64_t size)
{
	START;
	put_ethernet(v);
	desc(v, RX, 0, WHERE, 2048, D_WRITE, 0);
	push(v, RX, 0);
	kick(v, RX);
	NEED(send(v, head, head_size, size), "a frame is not given back", size);
	NEED(stays_quiet(v, RX), "a frame that makes no sense was sent", size);
	return expect_works(v, TX) == SERVED ? REFUSED : FAILED;
}

static enum verdict short_frame(struct villain *v, uint64_t size)
{
	struct net_head head = { .flags = 0 };

	return dropped(v, &head, sizeof(head), size);
}

static enum verdict short_head(struct villain *v, uint64_t size)
{
	struct net_head head = { .flags = 0 };

	return dropped(v, &head, (uint32_t) size, 0);
}

/* 5.1.6.2.1: an offload that was not accepted. */
static enum verdict gso(struct villain *v, uint64_t type)
{
	struct net_head head = { .flags = 1, .gso_type = (uint8_t) type, .gso_size = 100, .hdr_len = 54, .csum_start = 34,
		.csum_offset = 16 };

	return dropped(v, &head, sizeof(head), 500);
}

static enum verdict checksum(struct villain *v, uint64_t start_offset)
{
	struct net_head head = { .flags = 1, .csum_start = (uint16_t) (start_offset >> 16), .csum_offset = (uint16_t) start_offset };

	return dropped(v, &head, sizeof(head), 100);
}

/* 5.1.6.2.2: flags that nobody knows are ignored, num_buffers too. */
static enum verdict unknown_flags(struct villain *v, uint64_t flags)
{
	struct net_head head = { .flags = (uint8_t) flags, .num_buffers = 0xffff };

	START;
	put_ethernet(v);
	NEED(send(v, &head, sizeof(head), 60), "a frame is not given back", flags);
	return expect_works(v, TX);
}

static enum verdict too_large(struct villain *v, uint64_t size)
{
	struct net_head head = { .flags = 0 };

	START;
	desc(v, TX, 0, text(v, 0, &head, sizeof(head)), sizeof(head), D_NEXT, 1);
	desc(v, TX, 1, WASTE, size, 0, 0);
	push(v, TX, 0);
	kick(v, TX);
	NEED(wait_head(v, TX, 0) >= 0, "a frame is not given back", size);
	return expect_works(v, TX) == SERVED ? REFUSED : FAILED;
}

static enum verdict forged(struct villain *v, uint64_t unused)
{
	static const uint8_t link[14] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 9, 0x88, 0xb5 };
	struct net_head head = { .flags = 0 };

	(void) unused;
	START;
	(void) text(v, 0x100, link, sizeof(link));
	desc(v, RX, 0, WHERE, 2048, D_WRITE, 0);
	push(v, RX, 0);
	kick(v, RX);
	NEED(send(v, &head, sizeof(head), 60), "a frame is not given back", 0);
	NEED(stays_quiet(v, RX), "a frame in another's name was sent", 0);
	return expect_works(v, TX) == SERVED ? REFUSED : FAILED;
}

/* R089: buffers that hold no frame: it is dropped, nothing loops, larger ones get the next. */
static enum verdict small_buffers(struct villain *v, uint64_t size)
{
	struct net_head head = { .flags = 0 };

	START;
	put_ethernet(v);
	for (unsigned int i = 0; i < 4; i++) {
		desc(v, RX, i, WHERE + i * UINT64_C(256), size, D_WRITE, 0);
		push(v, RX, i);
	}
	kick(v, RX);
	NEED(send(v, &head, sizeof(head), 200), "a frame is not given back", size);
	pause_some(v, 20);
	villain_reset(v);
	START;
	return expect_works(v, RX);
}

/* 5.1.6.4: a frame in several buffers: each is filled but for the last, and num_buffers says how many. */
static enum verdict merged(struct villain *v, uint64_t size)
{
	struct net_head head = { .flags = 0 };
	uint64_t left = sizeof(head) + 200, n = (left + size - 1) / size;

	NEED(villain_start_with(v, F_NET_MERGE, N), "the device does not come up", reg(v, R_STATUS));
	put_ethernet(v);
	for (unsigned int i = 0; i < n + 2; i++) {
		desc(v, RX, i, WHERE + i * UINT64_C(512), size, D_WRITE, 0);
		push(v, RX, i);
	}
	kick(v, RX);
	NEED(send(v, &head, sizeof(head), 200), "a frame is not given back", size);
	for (uint64_t i = 0; i < n; i++) {
		uint32_t index;
		int64_t len = wait_used(v, RX, &index);

		NEED(len == (int64_t) (left < size ? left : size) && index == i, "a buffer of a frame has another size", len);
		left -= (uint64_t) len;
	}
	NEED(get_u16(v, WHERE + 10) == n, "num_buffers is another", get_u16(v, WHERE + 10));
	NEED(is_same(at(v, WHERE + sizeof(head)), at(v, TEXT + 0x100), size - sizeof(head) < 14 ? size - sizeof(head) : 14),
		"other bytes come back", size);
	return expect_works(v, TX);
}

/* 2.2.1: features that need others which were not accepted. */
static enum verdict lonely_feature(struct villain *v, uint64_t bit)
{
	uint64_t wish = UINT64_C(1) << bit;

	if (!(villain_offered(v) & wish))
		return skip(v, "the feature is not offered");
	if (!villain_negotiate(v, F_VERSION_1 | wish))
		return REFUSED;
	NEED(villain_start_with(v, wish, N), "the device does not come up", bit);
	return SERVED;
}

/* ---- balloon ---- */

static enum verdict pages(struct villain *v, unsigned int q, const uint32_t *pfns, uint32_t size)
{
	START;
	desc(v, q, 0, text(v, 0, pfns, size), size, 0, 0);
	push(v, q, 0);
	v->device->provoke(v, q);
	NEED(wait_head(v, q, 0) == 0, "a request is not given back", size);
	return expect_works(v, q);
}

static enum verdict page(struct villain *v, uint64_t pfn)
{
	uint32_t pfns[] = { (uint32_t) pfn };

	return pages(v, INFLATE, pfns, sizeof(pfns));
}

static enum verdict twice(struct villain *v, uint64_t queue)
{
	uint32_t pfn = (uint32_t) (WASTE / 4096 + 100), pfns[] = { pfn, pfn, pfn, pfn };

	return pages(v, (unsigned int) queue, pfns, sizeof(pfns));
}

static enum verdict odd_size(struct villain *v, uint64_t size)
{
	uint32_t pfns[4] = { (uint32_t) (WASTE / 4096 + 200), (uint32_t) (WASTE / 4096 + 201), UINT32_MAX, UINT32_MAX };

	return pages(v, INFLATE, pfns, (uint32_t) size);
}

static enum verdict very_many(struct villain *v, uint64_t size)
{
	START;
	desc(v, INFLATE, 0, TEXT, TEXT_SIZE, D_NEXT, 1);
	desc(v, INFLATE, 1, DATA, size, 0, 0); /* painted: numbers of pages that are not there */
	push(v, INFLATE, 0);
	v->device->provoke(v, INFLATE);
	NEED(wait_head(v, INFLATE, 0) == 0, "a request is not given back", size);
	return expect_works(v, INFLATE);
}

/* 5.5.6.3.1: sizes that are no multiple of 10 (struct virtio_balloon_stat), tags that nobody knows, two buffers. */
static enum verdict statistics(struct villain *v, uint64_t size)
{
	NEED(villain_start_with(v, villain_offered(v) & 2, N), "the device does not come up", reg(v, R_STATUS));
	for (unsigned int i = 0; i < 3; i++) {
		desc(v, STATS, i, DATA, size, 0, 0);
		push(v, STATS, i);
	}
	kick(v, STATS);
	pause_some(v, 10);
	while (has_used(v, STATS)) {
		int64_t len = wait_used(v, STATS, NULL);

		NEED(len == 0, "bytes for a buffer that may only be read", len);
	}
	return expect_works(v, INFLATE);
}

static enum verdict own_rings(struct villain *v, uint64_t unused)
{
	uint32_t pfns[4];

	(void) unused;
	START;
	for (unsigned int i = 0; i < 4; i++)
		pfns[i] = (uint32_t) (desc_at(INFLATE) / 4096 + i * 4);
	desc(v, INFLATE, 0, text(v, 0, pfns, sizeof(pfns)), sizeof(pfns), 0, 0);
	push(v, INFLATE, 0);
	v->device->provoke(v, INFLATE);
	pause_some(v, 20);
	villain_reset(v);
	for (unsigned int i = 0; i < N_MAX; i++)
		desc(v, INFLATE, i, 0, 0, 0, 0);
	return SERVED;
}

#define W ON(KIND_NET)
#define B ON(KIND_BALLOON)
#define EITHER (SERVED | REFUSED)
const struct villain_case villain_net[] = {
	{ "frame-0", "5.1.6.2", W, "a header and no frame", short_frame, 0, REFUSED, NULL },
	{ "frame-1", "5.1.6.2", W, "a frame of one byte", short_frame, 1, REFUSED, NULL },
	{ "frame-13", "5.1.6.2", W, "a frame shorter than its link header", short_frame, 13, REFUSED, NULL },
	{ "head-11", "5.1.6.2", W, "a header of 11 bytes", short_head, 11, REFUSED, NULL },
	{ "head-1", "5.1.6.2", W, "a header of one byte", short_head, 1, REFUSED, NULL },
	{ "gso-tcp4", "5.1.6.2.1", W, "TSO4, which was not accepted", gso, 1, REFUSED, "R089" },
	{ "gso-udp", "5.1.6.2.1", W, "UFO, which was not accepted", gso, 3, REFUSED, "R089" },
	{ "gso-tcp6", "5.1.6.2.1", W, "TSO6, which was not accepted", gso, 4, REFUSED, "R089" },
	{ "gso-usp", "5.1.6.2.1", W, "USO, which was not accepted", gso, 5, REFUSED, "R089" },
	{ "gso-unknown", "5.1.6.2.1", W, "a segmentation that nobody knows", gso, 0x7f, REFUSED, NULL },
	{ "gso-ecn", "5.1.6.2.1", W, "ECN alone", gso, 0x80, REFUSED, NULL },
	{ "csum", "5.1.6.2.1", W, "a checksum to be made, which was not accepted", checksum, UINT64_C(34) << 16 | 6, REFUSED, "R089" },
	{ "csum-out", "5.1.6.2.1", W, "a checksum behind the frame", checksum, UINT64_C(0xffff) << 16 | 0xffff, REFUSED, NULL },
	{ "flags", "5.1.6.2.2", W, "flags that nobody knows, and num_buffers", unknown_flags, 0xf8, SERVED, NULL },
	{ "large-64k", "5.1.6.2", W, "a frame of 70000 bytes", too_large, 70000, REFUSED, NULL },
	{ "large-24m", "5.1.6.2", W, "a frame of 24 MiB", too_large, WASTE_SIZE, REFUSED, "R109" },
	{ "forged", "5.1.6.2", W, "a frame in another's name", forged, 0, REFUSED, NULL },
	{ "rx-1", "5.1.6.3.1", W, "receive buffers of one byte", small_buffers, 1, SERVED, "R089" },
	{ "rx-11", "5.1.6.3.1", W, "receive buffers smaller than the header", small_buffers, 11, SERVED, "R089" },
	{ "rx-12", "5.1.6.3.1", W, "receive buffers of a header", small_buffers, 12, SERVED, "R089" },
	{ "rx-100", "5.1.6.3.1", W, "receive buffers smaller than a frame", small_buffers, 100, SERVED, "R089" },
	{ "merged-20", "5.1.6.4", W, "a frame in eleven buffers", merged, 20, SERVED, "R089" },
	{ "merged-100", "5.1.6.4", W, "a frame in three", merged, 100, SERVED, "R089" },
	{ "merged-211", "5.1.6.4", W, "a frame in one and a byte", merged, 211, SERVED, "R089" },
	{ "merged-212", "5.1.6.4", W, "a frame that fits", merged, 212, SERVED, "R089" },
	{ "lonely-tso4", "5.1.3.1", W, "GUEST_TSO4 without GUEST_CSUM", lonely_feature, 7, EITHER, NULL },
	{ "lonely-tso6", "5.1.3.1", W, "GUEST_TSO6 without GUEST_CSUM", lonely_feature, 8, EITHER, NULL },
	{ "lonely-host-tso4", "5.1.3.1", W, "HOST_TSO4 without CSUM", lonely_feature, 11, EITHER, NULL },
	{ "lonely-host-tso6", "5.1.3.1", W, "HOST_TSO6 without CSUM", lonely_feature, 12, EITHER, NULL },
	{ "page-end", "5.5.6", B, "the first page that is not there", page, MEMORY_SIZE / 4096, SERVED, NULL },
	{ "page-gap", "5.5.6", B, "a page in the gap", page, 0xc0000, SERVED, NULL },
	{ "page-max", "5.5.6", B, "the last page there can be", page, UINT32_MAX, SERVED, NULL },
	{ "inflate-twice", "5.5.6.1", B, "a page that lies in the balloon is given again", twice, INFLATE, SERVED, NULL },
	{ "deflate-unasked", "5.5.6.1", B, "a page that was never given is taken", twice, DEFLATE, SERVED, NULL },
	{ "size-3", "5.5.6", B, "three bytes of a page's number", odd_size, 3, SERVED, NULL },
	{ "size-5", "5.5.6", B, "a page's number and a byte", odd_size, 5, SERVED, NULL },
	{ "many", "5.5.6", B, "a quarter million pages that are not there", very_many, DATA_SIZE, SERVED, "R109" },
	{ "own-rings", "5.5.6.1", B, "the device's own rings are given away", own_rings, 0, SERVED, NULL },
	{ "stats-0", "5.5.6.3.1", B, "empty statistics", statistics, 0, SERVED, NULL },
	{ "stats-7", "5.5.6.3.1", B, "statistics of seven bytes", statistics, 7, SERVED, NULL },
	{ "stats-1000", "5.5.6.3.2", B, "statistics with tags that nobody knows, thrice", statistics, 1000, SERVED, NULL },
	{ "stats-much", "5.5.6.3.1", B, "a megabyte of statistics", statistics, DATA_SIZE, SERVED, "R109" },
};
const unsigned int villain_net_n = sizeof(villain_net) / sizeof(villain_net[0]);
