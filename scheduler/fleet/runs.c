/* SPDX-License-Identifier: Apache-2.0
 *
 * See runs.h.
 */
#include "fleet/runs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void runs_deinit(struct runs *runs)
{
	free(runs->list);
	memset(runs, 0, sizeof(*runs));
}

/* A first that is a copy stays: it says that nobody before it is followed. */
static void forget_oldest(struct runs *runs)
{
	const size_t at = runs->list[0].is_copy;

	memmove(runs->list + at, runs->list + at + 1, (--runs->n - at) * sizeof(*runs->list));
}

int runs_add(struct runs *runs, const struct run_mark *mark)
{
	struct run_mark *list;

	if (mark->is_first)
		runs->n = 0;
	if (runs->n >= RUNS_MAX)
		forget_oldest(runs);
	list = reallocarray(runs->list, runs->n + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	runs->list = list;
	runs->list[runs->n++] = *mark;
	return 0;
}

void runs_begin(const struct runs *runs, uint64_t epoch, struct run_mark *next)
{
	const struct run_mark *last = runs->n ? &runs->list[runs->n - 1] : NULL;
	/* else it is of another lineage, or a version that leaves no marks led in between */
	const bool is_known = last && last->epoch == epoch && strcmp(last->lineage, next->lineage) == 0;

	next->is_copy = is_known && !last->was_stopped && *last->place && *next->place &&
			strcmp(last->place, next->place) != 0;
	next->is_first = !is_known || next->is_copy;
}

static const struct run_mark *find(const struct runs *runs, uint64_t epoch)
{
	for (size_t i = runs->n; i-- > 0;)
		if (runs->list[i].epoch == epoch)
			return &runs->list[i];
	return NULL;
}

bool runs_have(const struct runs *runs, uint64_t epoch)
{
	return find(runs, epoch) != NULL;
}

bool runs_follow(const struct runs *runs, uint64_t epoch, const char *run)
{
	const struct run_mark *mark = find(runs, epoch);

	if (!mark) /* forgotten, or never left */
		return runs->n == 0 || (epoch < runs->list[0].epoch && !runs->list[0].is_copy);
	return strcmp(mark->run, run) == 0;
}
