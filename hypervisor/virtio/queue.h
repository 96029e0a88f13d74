/* SPDX-License-Identifier: Apache-2.0
 *
 * The one split virtqueue of all devices. The rings lie in guest memory and the guest is hostile: each field
 * is read once into a local, chains are bounded by the queue's size, every address goes through guest_map().
 * An indirect table is at most as long as the queue, stands at its chain's end and holds no other.
 *
 * A ring that makes no sense breaks the queue: it is empty from then on until the device is reset. The
 * caller is told once (CHAIN_BROKEN) and sets DEVICE_NEEDS_RESET.
 *
 * Not thread-safe: the owner's lock guards it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/util.h"
#include "memory.h"

#define QUEUE_SIZE_MAX 256

struct queue {
	uint16_t size_max;        /* what the device allows: a power of two up to QUEUE_SIZE_MAX */
	/* as the driver wrote them */
	uint16_t size;
	uint64_t desc, avail, used;
	bool is_ready;            /* latched: what follows is valid, what stands above is no longer looked at */

	uint16_t n;               /* entries */
	bool has_indirect, has_event_index;
	uint8_t *desc_ring, *avail_ring, *used_ring;
	uint16_t next_avail, next_used, signalled_used;
	bool is_broken;
	uint64_t bad_gpa;         /* addresses outside guest memory, since the VM began */
	uint64_t broken;          /* times it broke */
};

enum queue_latch_result { QUEUE_LATCHED, QUEUE_BAD_SIZE, QUEUE_BAD_ADDRESS };

/* What the driver acknowledged of the ring's own features. */
struct queue_features {
	bool has_indirect, has_event_index;
};

/* What a snapshot keeps of a queue. */
struct queue_state {
	uint16_t size;
	uint64_t desc, avail, used;
	bool is_ready, is_broken;
	uint16_t next_avail, next_used, signalled_used;
};

void queue_save(const struct queue *queue, struct queue_state *ret);
/* Into a queue that is as after power-on. False where the rings are no longer what they could have been: such a state was
 * not saved by us. */
bool queue_load(struct queue *queue, const struct memory *memory, struct queue_features features,
	const struct queue_state *state) MUST_USE;

/* Checks and takes over what the driver wrote. */
enum queue_latch_result queue_latch(struct queue *queue, const struct memory *memory, struct queue_features features)
	MUST_USE;
/* Back to the state after power-on; counters stay. */
void queue_reset(struct queue *queue);

/* One request. Zero-length descriptors are left out. is_bad: some address is not RAM; its iov_base is NULL
 * and its bytes are to be neither read nor written; the request fails. */
struct chain {
	uint16_t head;
	uint16_t n_readable, n_writable;
	bool is_bad;
	uint64_t readable, writable;      /* bytes */
	struct iovec iov[QUEUE_SIZE_MAX]; /* the readable ones first */
};

enum chain_result { CHAIN_NONE, CHAIN_OK, CHAIN_BROKEN };

/* Takes the next chain. */
enum chain_result queue_pop(struct queue *queue, const struct memory *memory, struct chain *ret) MUST_USE;
/* Puts the `n` chains back that were taken last; nothing may have been pushed since. */
void queue_unpop(struct queue *queue, uint16_t n);
/* Whether a chain waits. When none does, here as in queue_pop(), the driver is asked to notify us of the next: whoever
 * stops before that must come back by itself. */
bool queue_has_work(const struct queue *queue);

/* How many chains the driver has ever added, modulo 2^16. The queue is ready. */
uint16_t queue_added(const struct queue *queue);

/* Gives a chain back; `written` bytes at its start were filled. */
void queue_push(struct queue *queue, uint16_t head, uint32_t written);
struct queue_used {
	uint16_t head;
	uint32_t written;
};
/* The same for several, at most the queue's size: the driver sees all of them or none. */
void queue_push_all(struct queue *queue, const struct queue_used *used, uint16_t n);
/* Whether what was pushed since the last call calls for an interrupt. */
bool queue_wants_interrupt(struct queue *queue);

/* Copies between a chain and a buffer from `offset` on; how many bytes that were. Parts that are not RAM end
 * the copy. */
size_t chain_read(const struct chain *chain, uint64_t offset, void *buf, size_t size);
size_t chain_write(const struct chain *chain, uint64_t offset, const void *buf, size_t size);
/* The part [offset, offset + size) of the readable or writable iovecs; how many, 0 when it is not all there. */
unsigned int chain_slice(const struct chain *chain, bool is_writable, uint64_t offset, uint64_t size,
	struct iovec ret[static QUEUE_SIZE_MAX]);
