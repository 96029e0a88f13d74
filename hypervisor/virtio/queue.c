/* SPDX-License-Identifier: Apache-2.0
 *
 * See queue.h. Layouts and rules are those of virtio 1.2, chapter 2.7.
 */
#include "virtio/queue.h"

#include <string.h>

#include "base/plant.h"

#define DESC_SIZE 16u
#define DESC_NEXT 1u
#define DESC_WRITE 2u
#define DESC_INDIRECT 4u
#define AVAIL_NO_INTERRUPT 1u
#define RING_HEAD 4u /* flags and idx stand before the ring's entries */

/* x86 is little-endian like the rings; each access below is one load or store of the field's width. */
static uint16_t *as16(uint8_t *at)
{
	return (uint16_t *) (void *) at;
}

static void *map_ring(const struct memory *memory, uint64_t gpa, uint64_t size, uint64_t align)
{
	return gpa % align ? NULL : guest_map(memory, gpa, size);
}

void queue_save(const struct queue *queue, struct queue_state *ret)
{
	*ret = (struct queue_state) { .size = queue->size, .desc = queue->desc, .avail = queue->avail, .used = queue->used,
		.is_ready = queue->is_ready, .is_broken = queue->is_broken, .next_avail = queue->next_avail,
		.next_used = queue->next_used, .signalled_used = queue->signalled_used };
}

uint16_t queue_added(const struct queue *queue)
{
	return __atomic_load_n(as16(queue->avail_ring + 2), __ATOMIC_ACQUIRE);
}

bool queue_load(struct queue *queue, const struct memory *memory, struct queue_features features,
	const struct queue_state *state)
{
	queue->size = state->size;
	queue->desc = state->desc;
	queue->avail = state->avail;
	queue->used = state->used;
	if (!state->is_ready)
		return true;
	if (queue_latch(queue, memory, features) != QUEUE_LATCHED)
		return false;
	queue->is_broken = state->is_broken;
	queue->next_avail = state->next_avail;
	queue->next_used = state->next_used;
	queue->signalled_used = state->signalled_used;
	return true;
}

enum queue_latch_result queue_latch(struct queue *queue, const struct memory *memory, struct queue_features features)
{
	uint16_t n = queue->size;
	uint8_t *desc, *avail, *used;

	if (n == 0 || n > queue->size_max || (n & (n - 1)) != 0)
		return QUEUE_BAD_SIZE;
	desc = map_ring(memory, queue->desc, (uint64_t) n * DESC_SIZE, 16);
	avail = map_ring(memory, queue->avail, RING_HEAD + (uint64_t) n * 2 + 2, 2);
	used = map_ring(memory, queue->used, RING_HEAD + (uint64_t) n * 8 + 2, 4);
	if (!desc || !avail || !used) {
		queue->bad_gpa++;
		return QUEUE_BAD_ADDRESS;
	}
	queue->n = n;
	queue->has_indirect = features.has_indirect;
	queue->has_event_index = features.has_event_index;
	queue->desc_ring = desc;
	queue->avail_ring = avail;
	queue->used_ring = used;
	queue->next_avail = queue->next_used = queue->signalled_used = 0;
	queue->is_broken = false;
	queue->is_ready = true;
	return QUEUE_LATCHED;
}

void queue_reset(struct queue *queue)
{
	*queue = (struct queue) { .size_max = queue->size_max, .bad_gpa = queue->bad_gpa, .broken = queue->broken };
}

static enum chain_result break_queue(struct queue *queue)
{
	queue->is_broken = true;
	queue->broken++;
	return CHAIN_BROKEN;
}

static uint16_t avail_index(const struct queue *queue)
{
	/* the entries up to idx, and the descriptors they name, are read after idx */
	return __atomic_load_n(as16(queue->avail_ring + 2), __ATOMIC_ACQUIRE);
}

/* Where the driver looks up at which idx of the available ring it is to notify us. */
static uint16_t *avail_event(const struct queue *queue)
{
	return as16(queue->used_ring + RING_HEAD + (size_t) queue->n * 8);
}

/* At which idx of the used ring the driver wants its interrupt. */
static uint16_t *used_event(const struct queue *queue)
{
	return as16(queue->avail_ring + RING_HEAD + (size_t) queue->n * 2);
}

/* Chains that wait. Before it says 0 it asks for a notification and looks once more: the driver writes idx and
 * then reads what we wrote, so one of both sees the other. */
static uint16_t count_waiting(const struct queue *queue)
{
	uint16_t waiting = (uint16_t) (avail_index(queue) - queue->next_avail);

	if (waiting > 0 || !queue->has_event_index)
		return waiting;
	__atomic_store_n(avail_event(queue), queue->next_avail, __ATOMIC_SEQ_CST);
	return (uint16_t) (__atomic_load_n(as16(queue->avail_ring + 2), __ATOMIC_SEQ_CST) - queue->next_avail);
}

bool queue_has_work(const struct queue *queue)
{
	return queue->is_ready && !queue->is_broken && count_waiting(queue) > 0;
}

struct desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};

/* The queue's own table of descriptors or an indirect one. */
struct table {
	const uint8_t *at;
	uint32_t n;
};

/* An indirect table may lie anywhere; the volatile access is one load all the same. */
struct unaligned64 {
	uint64_t value;
} __attribute__((packed));

static uint64_t load64(const uint8_t *at)
{
	if ((uintptr_t) at % sizeof(uint64_t) == 0)
		return __atomic_load_n((const uint64_t *) (const void *) at, __ATOMIC_RELAXED);
	return ((const volatile struct unaligned64 *) at)->value;
}

/* A copy made by one pass over the guest's bytes: what is checked is what is used. */
static struct desc read_desc(struct table table, uint32_t index)
{
	const uint8_t *at = table.at + (size_t) index * DESC_SIZE;
	uint64_t low = load64(at), high = load64(at + 8);

	return (struct desc) { .addr = low, .len = (uint32_t) high, .flags = (uint16_t) (high >> 32),
		.next = (uint16_t) (high >> 48) };
}

static void add_desc(struct queue *queue, const struct memory *memory, struct chain *chain, const struct desc *desc)
{
	struct iovec *iov = &chain->iov[chain->n_readable + chain->n_writable];

	if (desc->len == 0)
		return;
	iov->iov_base = guest_map(memory, desc->addr, desc->len);
	iov->iov_len = desc->len;
	if (!iov->iov_base) {
		chain->is_bad = true;
		queue->bad_gpa++;
	}
	if (desc->flags & DESC_WRITE) {
		chain->n_writable++;
		chain->writable += desc->len;
	} else {
		chain->n_readable++;
		chain->readable += desc->len;
	}
}

/* Goes on in the indirect table that `desc` names. It may stand behind others, but ends the chain of those. */
static bool enter_indirect(struct queue *queue, const struct memory *memory, const struct desc *desc, struct table *ret)
{
	if (!queue->has_indirect || (desc->flags & DESC_NEXT))
		return false;
	if (desc->len == 0 || desc->len % DESC_SIZE != 0 || desc->len / DESC_SIZE > queue->n)
		return false;
	ret->at = guest_map(memory, desc->addr, desc->len);
	ret->n = desc->len / DESC_SIZE;
	if (!ret->at)
		queue->bad_gpa++;
	return ret->at;
}

/* Follows the chain from `head`. At most as many buffers as the queue has entries: more is a loop. */
static bool walk(struct queue *queue, const struct memory *memory, uint16_t head, struct chain *chain)
{
	struct table table = { .at = queue->desc_ring, .n = queue->n };
	bool writable_seen = false, is_indirect = false;
	uint32_t index = head;

	for (unsigned int steps = 0; steps < queue->n || PLANTED(RING_LOOP);) {
		struct desc desc = read_desc(table, index);

		if (desc.flags & DESC_INDIRECT) {
			if (is_indirect || !enter_indirect(queue, memory, &desc, &table))
				return false;
			is_indirect = true;
			index = 0;
			continue;
		}
		if (desc.flags & ~(DESC_NEXT | DESC_WRITE))
			return false;
		if (writable_seen && !(desc.flags & DESC_WRITE))
			return false; /* readable ones come first */
		writable_seen = desc.flags & DESC_WRITE;
		add_desc(queue, memory, chain, &desc);
		steps++;
		if (!(desc.flags & DESC_NEXT))
			return true;
		if (desc.next >= table.n)
			return false;
		index = desc.next;
	}
	return false;
}

enum chain_result queue_pop(struct queue *queue, const struct memory *memory, struct chain *ret)
{
	uint16_t waiting, head;

	if (!queue->is_ready || queue->is_broken)
		return CHAIN_NONE;
	waiting = count_waiting(queue);
	if (waiting == 0)
		return CHAIN_NONE;
	if (waiting > queue->n)
		return break_queue(queue);
	head = __atomic_load_n(as16(queue->avail_ring + RING_HEAD + (size_t) (queue->next_avail % queue->n) * 2),
		__ATOMIC_RELAXED);
	if (head >= queue->n)
		return break_queue(queue);
	ret->head = head;
	ret->n_readable = ret->n_writable = 0;
	ret->readable = ret->writable = 0;
	ret->is_bad = false;
	if (!walk(queue, memory, head, ret))
		return break_queue(queue);
	queue->next_avail++;
	return CHAIN_OK;
}

void queue_unpop(struct queue *queue, uint16_t n)
{
	queue->next_avail = (uint16_t) (queue->next_avail - n);
}

void queue_push_all(struct queue *queue, const struct queue_used *used, uint16_t n)
{
	if (!queue->is_ready || queue->is_broken)
		return;
	for (uint16_t i = 0; i < n; i++) {
		uint8_t *entry = queue->used_ring + RING_HEAD + (size_t) (queue->next_used++ % queue->n) * 8;

		__atomic_store_n((uint32_t *) (void *) entry, used[i].head, __ATOMIC_RELAXED);
		__atomic_store_n((uint32_t *) (void *) (entry + 4), used[i].written + PLANTED(USED_TOO_LONG), __ATOMIC_RELAXED);
	}
	/* the driver reads the entries after idx: idx is written after the entries and the data */
	__atomic_store_n(as16(queue->used_ring + 2), queue->next_used, __ATOMIC_RELEASE);
}

void queue_push(struct queue *queue, uint16_t head, uint32_t written)
{
	queue_push_all(queue, &(struct queue_used){ head, written }, 1);
}

bool queue_wants_interrupt(struct queue *queue)
{
	uint16_t before = queue->signalled_used, now = queue->next_used;

	if (!queue->is_ready || queue->is_broken || now == before)
		return false;
	queue->signalled_used = now;
	/* the driver says when it wants to be interrupted and then looks at idx: we write idx (once more, as a full
	 * barrier) and then look at what it said */
	__atomic_store_n(as16(queue->used_ring + 2), now, __ATOMIC_SEQ_CST);
	if (queue->has_event_index) {
		uint16_t event = __atomic_load_n(used_event(queue), __ATOMIC_SEQ_CST);

		/* whether the entry at `event` is among those from `before` to `now`, all modulo 2^16 */
		return (uint16_t) (now - event - 1) < (uint16_t) (now - before);
	}
	return !(__atomic_load_n(as16(queue->avail_ring), __ATOMIC_SEQ_CST) & AVAIL_NO_INTERRUPT);
}

/* Calls for each piece of [offset, offset + size) of the iovecs. */
static size_t copy(const struct iovec *iov, unsigned int n, uint64_t offset, uint8_t *buf, size_t size, bool to_guest)
{
	size_t done = 0;

	for (unsigned int i = 0; i < n && done < size; i++) {
		size_t part;
		uint8_t *at;

		if (offset >= iov[i].iov_len) {
			offset -= iov[i].iov_len;
			continue;
		}
		if (!iov[i].iov_base)
			break;
		part = MIN(iov[i].iov_len - (size_t) offset, size - done);
		at = (uint8_t *) iov[i].iov_base + offset;
		if (to_guest)
			memcpy(at, buf + done, part);
		else
			memcpy(buf + done, at, part);
		done += part;
		offset = 0;
	}
	return done;
}

size_t chain_read(const struct chain *chain, uint64_t offset, void *buf, size_t size)
{
	return copy(chain->iov, chain->n_readable, offset, buf, size, false);
}

size_t chain_write(const struct chain *chain, uint64_t offset, const void *buf, size_t size)
{
	/* the buffer is only read when bytes go to the guest */
	return copy(chain->iov + chain->n_readable, chain->n_writable, offset, (uint8_t *) (uintptr_t) buf, size, true);
}

unsigned int chain_slice(const struct chain *chain, bool is_writable, uint64_t offset, uint64_t size,
	struct iovec ret[static QUEUE_SIZE_MAX])
{
	const struct iovec *iov = chain->iov + (is_writable ? chain->n_readable : 0);
	unsigned int n = is_writable ? chain->n_writable : chain->n_readable, used = 0;

	for (unsigned int i = 0; i < n && size > 0; i++) {
		uint64_t part;

		if (offset >= iov[i].iov_len) {
			offset -= iov[i].iov_len;
			continue;
		}
		if (!iov[i].iov_base)
			return 0;
		part = MIN(iov[i].iov_len - offset, size);
		ret[used].iov_base = (uint8_t *) iov[i].iov_base + offset;
		ret[used].iov_len = (size_t) part;
		used++;
		size -= part;
		offset = 0;
	}
	return size > 0 ? 0 : used;
}
