/* SPDX-License-Identifier: Apache-2.0
 *
 * See index.h.
 */
#include "place/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void place_index_deinit(struct place_index *index)
{
	for (unsigned int i = 0; i < INDEX_ROWS; i++)
		free(index->rows[i]);
	free(index->objects);
	free(index->holes);
	*index = (struct place_index){ 0 };
}

static uint32_t row_size(uint32_t room, unsigned int row)
{
	for (; row; row--)
		room = (room + INDEX_FAN - 1) / INDEX_FAN;
	return (room + INDEX_FAN - 1) / INDEX_FAN * INDEX_FAN;
}

static struct place_sum block_max(const struct place_sum *block)
{
	struct place_sum max = block[0];

	for (unsigned int i = 1; i < INDEX_FAN; i++) {
		max.memory_mib = MAX(max.memory_mib, block[i].memory_mib);
		max.disk_mib = MAX(max.disk_mib, block[i].disk_mib);
		max.cpu_percent = MAX(max.cpu_percent, block[i].cpu_percent);
		max.key = MAX(max.key, block[i].key);
	}
	return max;
}

static void rebuild(struct place_index *index)
{
	for (unsigned int row = 1; row < index->height; row++)
		for (uint32_t i = 0; i < row_size(index->room, row - 1) / INDEX_FAN; i++)
			index->rows[row][i] = block_max(&index->rows[row - 1][i * INDEX_FAN]);
	index->top = block_max(index->rows[index->height - 1]);
}

static int grow_row(struct place_index *index, unsigned int row, uint32_t from, uint32_t to)
{
	struct place_sum *grown = realloc(index->rows[row], to * sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	memset(grown + from, 0, (to - from) * sizeof(*grown));
	index->rows[row] = grown;
	return 0;
}

/* Rows that grew before another one could not are only longer than they need be. */
static int grow(struct place_index *index)
{
	uint32_t room = index->room ? 2 * index->room : INDEX_FAN;
	unsigned int height = 1;
	void **objects = realloc(index->objects, room * sizeof(void *));
	uint32_t *holes;

	if (!objects)
		return -ENOMEM;
	index->objects = objects;
	holes = realloc(index->holes, room * sizeof(*holes));
	if (!holes)
		return -ENOMEM;
	index->holes = holes;
	while (row_size(room, height - 1) > INDEX_FAN)
		height++;
	if (height > INDEX_ROWS)
		return -ENOMEM;
	for (unsigned int row = 0; row < height; row++)
		if (grow_row(index, row,
			    row < index->height ? row_size(index->room, row) : 0,
			    row_size(room, row)) < 0)
			return -ENOMEM;
	index->room = room;
	index->height = height;
	rebuild(index);
	return 0;
}

int place_index_add(struct place_index *index, void *object, uint32_t *ret_slot)
{
	if (index->n_holes == 0 && index->n == index->room && grow(index) < 0)
		return -ENOMEM;
	*ret_slot = index->n_holes ? index->holes[--index->n_holes] : index->n++;
	index->objects[*ret_slot] = object;
	return 0;
}

void place_index_remove(struct place_index *index, uint32_t slot)
{
	static const struct place_sum nothing;

	place_index_set(index, slot, &nothing);
	index->objects[slot] = NULL;
	index->holes[index->n_holes++] = slot;
}

/* Whether a parent's maximum may have been this child's alone, and is not any more. */
static bool was_max(const struct place_sum *parent, const struct place_sum *was,
	const struct place_sum *now)
{
	return (was->memory_mib == parent->memory_mib && now->memory_mib < was->memory_mib) ||
	       (was->disk_mib == parent->disk_mib && now->disk_mib < was->disk_mib) ||
	       (was->cpu_percent == parent->cpu_percent && now->cpu_percent < was->cpu_percent) ||
	       (was->key == parent->key && now->key < was->key);
}

static struct place_sum max_of(const struct place_sum *a, const struct place_sum *b)
{
	return (struct place_sum){
		.memory_mib = MAX(a->memory_mib, b->memory_mib),
		.disk_mib = MAX(a->disk_mib, b->disk_mib),
		.cpu_percent = MAX(a->cpu_percent, b->cpu_percent),
		.key = MAX(a->key, b->key),
	};
}

void place_index_set(struct place_index *index, uint32_t slot, const struct place_sum *sum)
{
	struct place_sum now = *sum;

	for (unsigned int row = 0; row < index->height; row++, slot /= INDEX_FAN) {
		struct place_sum *at = &index->rows[row][slot], was = *at;
		const struct place_sum *parent =
			row + 1 < index->height ? &index->rows[row + 1][slot / INDEX_FAN]
						: &index->top;

		if (memcmp(&was, &now, sizeof(now)) == 0)
			return;
		*at = now;
		now = was_max(parent, &was, &now)
			      ? block_max(&index->rows[row][slot / INDEX_FAN * INDEX_FAN])
			      : max_of(parent, &now);
	}
	index->top = now;
}
