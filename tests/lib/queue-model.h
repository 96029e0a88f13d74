/* SPDX-License-Identifier: Apache-2.0
 *
 * What a descriptor table means, written from virtio 1.2, 2.7, and from nothing else: the oracle for the tests of
 * hypervisor/virtio/queue.c. It is slow and plain on purpose: it copies the whole table, keeps a set of the entries
 * that a chain has visited and decides at the end. It shares no code with the queue.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define MODEL_ENTRIES_MAX 16

struct model_desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};

struct model_table {
	unsigned int n;
	struct model_desc at[MODEL_ENTRIES_MAX];
};

struct model_memory {
	uint64_t size; /* RAM is [0, size) */
	/* The table that an indirect descriptor at `addr` of `len` bytes names; false: there is none that may be used.
	 * NULL: indirect descriptors were not negotiated. */
	bool (*indirect)(uint64_t addr, uint32_t len, struct model_table *ret);
};

struct model_part {
	uint64_t addr;
	uint32_t len;
	bool is_writable, is_ram;
};

struct model_chain {
	bool is_broken;     /* the driver broke a MUST that concerns the ring itself */
	bool is_bad;        /* some buffer is not RAM */
	unsigned int n_parts;
	struct model_part parts[2 * MODEL_ENTRIES_MAX];
	uint64_t readable, writable;
};

static inline bool model_is_ram(const struct model_memory *memory, uint64_t addr, uint32_t len)
{
	/* in a type in which the sum cannot wrap */
	return (__extension__(unsigned __int128) addr + len) <= memory->size;
}

static inline void model_add(const struct model_memory *memory, struct model_chain *chain, const struct model_desc *desc)
{
	struct model_part *part = &chain->parts[chain->n_parts];

	*part = (struct model_part) { .addr = desc->addr, .len = desc->len, .is_writable = desc->flags & 2,
		.is_ram = model_is_ram(memory, desc->addr, desc->len) };
	/* 2.7.4.2: what the device may write stands behind what it may read, empty buffers included */
	if (!part->is_writable && chain->n_parts > 0 && chain->parts[chain->n_parts - 1].is_writable)
		chain->is_broken = true;
	chain->n_parts++;
}

static inline void model_follow(const struct model_memory *memory, const struct model_table *table, unsigned int index,
	bool is_inside, unsigned int limit, struct model_chain *chain)
{
	bool visited[MODEL_ENTRIES_MAX] = { false };

	while (!chain->is_broken) {
		struct model_desc desc;

		if (index >= table->n || visited[index]) { /* outside, or a loop (2.7.5.2) */
			chain->is_broken = true;
			return;
		}
		visited[index] = true;
		desc = table->at[index];
		if (desc.flags & ~7u) {
			chain->is_broken = true;
			return;
		}
		if (desc.flags & 4) {
			struct model_table inner;

			/* 2.7.5.3.1: negotiated, not inside another, not together with NEXT */
			if (!memory->indirect || is_inside || (desc.flags & 1) ||
				!memory->indirect(desc.addr, desc.len, &inner)) {
				chain->is_broken = true;
				return;
			}
			model_follow(memory, &inner, 0, true, limit, chain);
			return;
		}
		if (chain->n_parts == limit) { /* 2.7.5.3.1: no longer than the queue */
			chain->is_broken = true;
			return;
		}
		model_add(memory, chain, &desc);
		if (!(desc.flags & 1))
			return;
		index = desc.next;
	}
}

/* The chain that begins at entry `head`; `limit` is the queue's size. */
static inline void model_walk(const struct model_memory *memory, const struct model_table *table, unsigned int head,
	unsigned int limit, struct model_chain *ret)
{
	memset(ret, 0, sizeof(*ret));
	model_follow(memory, table, head, false, limit, ret);
	for (unsigned int i = 0; i < ret->n_parts; i++) {
		const struct model_part *part = &ret->parts[i];

		if (part->len == 0)
			continue;
		if (!part->is_ram)
			ret->is_bad = true;
		if (part->is_writable)
			ret->writable += part->len;
		else
			ret->readable += part->len;
	}
}
