/* SPDX-License-Identifier: Apache-2.0
 *
 * See history.h.
 */
#include "server/history.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void history_deinit(struct history *history)
{
	free(history->entries);
	memset(history, 0, sizeof(*history));
}

static int grow(struct history *history)
{
	size_t room = history->room ? 2 * history->room : 256;
	struct history_entry *entries = calloc(room, sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	for (size_t i = 0; i < history->n; i++)
		entries[i] = history->entries[(history->first + i) % history->room];
	free(history->entries);
	history->entries = entries;
	history->first = 0;
	history->room = room;
	return 0;
}

int history_add(struct history *history, const char *id, int64_t ended_us)
{
	struct history_entry *entry;

	if (history->n == history->room && grow(history) < 0)
		return -ENOMEM;
	entry = &history->entries[(history->first + history->n++) % history->room];
	entry->ended_us = ended_us;
	(void)snprintf(entry->id, sizeof(entry->id), "%s", id);
	return 0;
}

static int by_end(const void *a, const void *b)
{
	const struct history_entry *left = a, *right = b;

	return (left->ended_us > right->ended_us) - (left->ended_us < right->ended_us);
}

void history_sort(struct history *history)
{
	if (history->n && history->first == 0) /* as it is after a load: in one piece */
		qsort(history->entries, history->n, sizeof(*history->entries), by_end);
}

const struct history_entry *history_overdue(
	const struct history *history, int64_t before_us, uint64_t max)
{
	const struct history_entry *oldest;

	if (history->n == 0)
		return NULL;
	oldest = &history->entries[history->first];
	return oldest->ended_us < before_us || history->n > max ? oldest : NULL;
}

void history_drop(struct history *history)
{
	history->first = (history->first + 1) % history->room;
	history->n--;
}
