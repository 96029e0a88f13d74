/* SPDX-License-Identifier: Apache-2.0
 *
 * What forks froze. A file in memory counts once, however many VMs map it, from before the fork that makes it until the last
 * of them has ended; who they are is in their journals, so that the next agent counts the same. No VM's own memory is in it:
 * what each writes after a fork is within its own reservation.
 */
#include <string.h>

#include "core/internal.h"

#define RESERVATION 0 /* in place of a file */

struct sum {
	struct sv_frozen *items;
	size_t n, room;
	uint64_t mib;
};

/* Without memory each is counted as if nobody shared it: too much is reserved then. */
static void add(struct sum *sum, const struct sv_frozen_list *list)
{
	for (uint32_t i = 0; i < list->n; i++) {
		if (list->items[i].file == RESERVATION || sum->n == sum->room)
			sum->mib += list->items[i].mib;
		else
			sum->items[sum->n++] = list->items[i];
	}
}

static int by_file(const void *a, const void *b)
{
	const struct sv_frozen *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->mib > y->mib ? -1 : x->mib < y->mib; /* the largest first */
}

static bool maps(const struct sv_sandbox *sandbox)
{
	enum sv_state state = sandbox->journal.state;

	return !sandbox->is_bad && sandbox->journal.frozen.n > 0 && state != SV_ENDED && state != SV_KEPT &&
	       state != SV_DROPPING && !sv_has_no_vm(sandbox);
}

uint64_t sv_frozen_mib(const struct supervisor *sv)
{
	const struct sv_snapshot *snapshot;
	const struct sv_sandbox *sandbox;
	struct sum sum = { .n = 0 };

	for (snapshot = sv->snapshots; snapshot; snapshot = snapshot->hh.next)
		sum.room += snapshot->frozen.n;
	for (sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next)
		sum.room += maps(sandbox) ? sandbox->journal.frozen.n : 0;
	if (sum.room == 0)
		return 0;
	sum.items = calloc(sum.room, sizeof(*sum.items));
	if (!sum.items)
		sum.room = 0;
	for (snapshot = sv->snapshots; snapshot; snapshot = snapshot->hh.next)
		add(&sum, &snapshot->frozen);
	for (sandbox = sv->sandboxes; sandbox; sandbox = sandbox->hh.next)
		if (maps(sandbox))
			add(&sum, &sandbox->journal.frozen);
	if (sum.n > 0)
		qsort(sum.items, sum.n, sizeof(*sum.items), by_file);
	for (size_t i = 0; i < sum.n; i++)
		if (i == 0 || sum.items[i].file != sum.items[i - 1].file)
			sum.mib += sum.items[i].mib;
	free(sum.items);
	return sum.mib;
}

uint64_t sv_frozen_limit_mib(const struct sv_frozen_list *list)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < list->n; i++)
		sum += list->items[i].mib;
	return sum;
}

void sv_frozen_reserve(struct sv_frozen_list *list, uint64_t mib)
{
	if (list->n < SV_FROZEN_MAX)
		list->items[list->n++] = (struct sv_frozen){ .file = RESERVATION, .mib = (uint32_t)mib };
}

void sv_frozen_unreserve(struct sv_frozen_list *list)
{
	if (list->n > 0 && list->items[list->n - 1].file == RESERVATION)
		list->n--;
}
