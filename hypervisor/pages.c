/* SPDX-License-Identifier: Apache-2.0
 *
 * See pages.h.
 */
#include "pages.h"

#include <errno.h>
#include <stdlib.h>

#define BITS 64u

int pages_init(struct pages *pages, uint64_t n)
{
	*pages = (struct pages) { .n = n, .words = calloc(n / BITS + 1, sizeof(uint64_t)) };
	return pages->words ? 0 : -ENOMEM;
}

void pages_deinit(struct pages *pages)
{
	free(pages->words);
	*pages = (struct pages) PAGES_NULL;
}

void pages_add(struct pages *pages, struct page_run run)
{
	uint64_t end = run.first >= pages->n ? run.first : run.first + MIN(run.n, pages->n - run.first);

	for (uint64_t at = run.first; at < end;) {
		unsigned int bit = at % BITS;
		uint64_t n = MIN(end - at, (uint64_t) BITS - bit), ones = n == BITS ? UINT64_MAX : (UINT64_C(1) << n) - 1;

		pages->words[at / BITS] |= ones << bit;
		at += n;
	}
}

bool pages_has(const struct pages *pages, uint64_t page)
{
	return page < pages->n && (pages->words[page / BITS] >> page % BITS & 1);
}

/* The first page at or behind `at` whose bit is `value`; pages->n: none. */
static uint64_t find(const struct pages *pages, uint64_t at, bool value)
{
	while (at < pages->n) {
		uint64_t word = pages->words[at / BITS];

		word = (value ? word : ~word) >> at % BITS;
		if (word) {
			at += (unsigned int) __builtin_ctzll(word);
			return MIN(at, pages->n);
		}
		at = (at / BITS + 1) * BITS;
	}
	return pages->n;
}

bool pages_next(const struct pages *pages, uint64_t from, struct page_run *ret)
{
	ret->first = find(pages, from, true);
	ret->n = find(pages, ret->first, false) - ret->first;
	return ret->n > 0;
}

uint64_t pages_count(const struct pages *pages, uint64_t *ret_pages)
{
	struct page_run run = { 0 };
	uint64_t runs = 0;

	*ret_pages = 0;
	while (pages_next(pages, run.first + run.n, &run)) {
		runs++;
		*ret_pages += run.n;
	}
	return runs;
}

void pages_merge(struct pages *pages, uint64_t max)
{
	uint64_t n;

	for (uint64_t widest = 1; pages_count(pages, &n) > max; widest *= 2) {
		struct page_run run, next;

		for (bool more = pages_next(pages, 0, &run); more; run = next) {
			uint64_t end = run.first + run.n;

			more = pages_next(pages, end, &next);
			if (more && next.first - end <= widest)
				pages_add(pages, (struct page_run) { .first = end, .n = next.first - end });
		}
	}
}
