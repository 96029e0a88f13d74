/* SPDX-License-Identifier: Apache-2.0
 *
 * What was asked for: each sandbox's shape, where it might be placed, and how long it had room, of those that live and of those
 * that are remembered (history.h), so that a planner can ask the placement once more (place/replay.h). Made of the store's records,
 * at start and as they become durable; bounded as the history is, by age and by number.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "fleet/fleet.h"
#include "place/replay.h"

struct asked;

int asked_new(struct asked **ret); /* 0 or -ENOMEM */
struct asked *asked_free(struct asked *asked); /* NULL, always */
/* A record that is durable; said again, the later word holds. Without memory it is not known. */
void asked_add(struct asked *asked, const struct sandbox_record *record, bool is_over);
/* Ended ones in the order of their ends; after a load, which has them in any order. */
void asked_sort(struct asked *asked);
/* Forgets the first that ended before, or are over `max`. */
void asked_trim(struct asked *asked, int64_t before_us, uint64_t max);

struct asked_list {
	struct place_request *requests; /* their wishes are referenced */
	size_t n;
	int64_t since_us; /* the end of the oldest that is known, where as many are known as are kept; else 0 */
};
/* Those of a pool that had room, or wanted it, since. 0 or -ENOMEM. */
int asked_copy(const struct asked *asked, const char *pool, int64_t since_us, struct asked_list *ret);
/* In the thread that has `asked`. */
void asked_list_deinit(struct asked_list *list);
