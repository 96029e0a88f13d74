/* SPDX-License-Identifier: Apache-2.0
 *
 * See image-gc.h.
 */
#include "agent/image-gc.h"

#include <stdlib.h>

static int by_use(const void *a, const void *b)
{
	const struct gc_image *x = a, *y = b;

	return x->used_us < y->used_us ? -1 : x->used_us > y->used_us;
}

size_t gc_choose(struct gc_image *images, size_t n, const struct gc_disk *disk, const struct gc_limits *limits,
	int64_t now_us)
{
	uint64_t wanted = disk->size / 100 * limits->keep_free_percent, room = disk->free;
	size_t n_goes = 0;

	if (n > 0)
		qsort(images, n, sizeof(*images), by_use);
	for (size_t i = 0; i < n; i++) {
		bool is_old = limits->max_age_us > 0 && now_us - images[i].used_us > limits->max_age_us;

		images[i].goes = !images[i].in_use && (is_old || room < wanted);
		if (!images[i].goes)
			continue;
		room += images[i].size;
		n_goes++;
	}
	return n_goes;
}
