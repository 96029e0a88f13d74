/* SPDX-License-Identifier: Apache-2.0
 *
 * A set of pages of guest memory: one bit each, by their place in the memory file.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

#define PAGES_SIZE UINT64_C(4096)

struct page_run {
	uint64_t first, n; /* pages */
};

struct pages {
	uint64_t n;        /* pages that there are */
	uint64_t *words;   /* owned */
};

#define PAGES_NULL { .words = NULL }

/* Empty. 0 or -ENOMEM. */
int pages_init(struct pages *pages, uint64_t n);
void pages_deinit(struct pages *pages);

/* Those of the run that there are. */
void pages_add(struct pages *pages, struct page_run run);
bool pages_has(const struct pages *pages, uint64_t page);
/* The first run at or behind page `from`, which may cut it; false: none. */
bool pages_next(const struct pages *pages, uint64_t from, struct page_run *ret);
/* Runs, and the pages in them. */
uint64_t pages_count(const struct pages *pages, uint64_t *ret_pages);
/* Adds what lies between runs, the narrowest gaps first, until there are at most `max` runs (1 or more). */
void pages_merge(struct pages *pages, uint64_t max);
