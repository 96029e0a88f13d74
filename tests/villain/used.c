/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device says of a chain that it gives back (virtio 1.2, 2.7.8.2): no more bytes than the chain has room for, and
 * each of those that it names was written, from the first writable one on. Looked at for every entry that a case takes.
 */
#include "villain.h"

#define PAINT_SIZE 8u
#define TAIL_MIN 4u /* a shorter piece may be the paint by chance */

struct walk {
	struct villain *v;
	uint64_t left;  /* bytes that the device named and that no buffer had room for yet */
	uint64_t bad;   /* where one was not written; 0: nowhere */
};

static bool is_paint(struct villain *v, uint64_t gpa, uint64_t size)
{
	static const uint64_t paint = PAINT;

	return is_same(at(v, gpa), (const uint8_t *) &paint + gpa % PAINT_SIZE, (size_t) size);
}

/* The piece of a buffer that the device named; only DATA is painted. */
static void look(struct walk *walk, uint64_t addr, uint64_t size)
{
	uint64_t end;

	if (addr < DATA || addr >= DATA + DATA_SIZE || walk->bad)
		return;
	end = size < DATA + DATA_SIZE - addr ? addr + size : DATA + DATA_SIZE;
	while (addr < end && !walk->bad) {
		uint64_t piece = PAINT_SIZE - addr % PAINT_SIZE;

		if (piece > end - addr)
			piece = end - addr;
		if (piece >= TAIL_MIN && is_paint(walk->v, addr, piece))
			walk->bad = addr;
		addr += piece;
	}
}

/* False: this is no chain, and what is said of it is the case's own matter. */
static bool walk_table(struct walk *walk, const void *table, unsigned int n, unsigned int index, bool may_enter)
{
	for (unsigned int steps = 0; steps < n; steps++) {
		uint64_t entry[2], addr;
		unsigned int flags;
		uint32_t len;

		copy(entry, (const uint8_t *) table + 16 * index, sizeof(entry)); /* an indirect table lies anywhere */
		addr = entry[0];
		flags = (uint16_t) (entry[1] >> 32);
		len = (uint32_t) entry[1];

		if (flags & D_INDIRECT)
			return may_enter && len / 16 <= N_MAX && addr < MEMORY_SIZE && len <= MEMORY_SIZE - addr &&
				walk_table(walk, at(walk->v, addr), len / 16, 0, false);
		if (flags & D_WRITE) {
			look(walk, addr, len < walk->left ? len : walk->left);
			walk->left -= len < walk->left ? len : walk->left;
		}
		if (!(flags & D_NEXT))
			return true;
		index = (unsigned int) (entry[1] >> 48);
		if (index >= n)
			return false;
	}
	return false;
}

void villain_check_used(struct villain *v, unsigned int q, uint32_t head, uint32_t len)
{
	const struct villain_queue *queue = &v->queues[q];
	struct walk walk = { .v = v, .left = len };

	if (v->used_why)
		return;
	if (head >= queue->n) {
		v->used_why = "a used entry names no chain";
		v->used_got = head;
	} else if (walk_table(&walk, queue->shadow, queue->n, head, true)) {
		v->used_why = walk.left > 0 ? "more bytes are used than the chain has room for"
			: walk.bad ? "bytes are used that were not written" : NULL;
		v->used_got = walk.left > 0 ? len : walk.bad;
	}
}
