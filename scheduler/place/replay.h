/* SPDX-License-Identifier: Apache-2.0
 *
 * What a change of a pool would have done: the requests of a time, as they were recorded, are asked of the placement once more, on
 * a clock that is only counted. Each gives its room back when its sandbox ended. The pool's nodes are as they are now, and empty
 * when it begins.
 *
 * What is not replayed: waiting (a request finds room at once or not at all), sleep (a sandbox that sleeps keeps all of its room), which
 * node holds which image or snapshot, and nodes that came and went meanwhile.
 */
#pragma once

#include "place/capacity.h"

/* Where something may be placed, and whose it is: alike for many requests, shared by reference count (one thread only). */
struct place_wish {
	unsigned int n_refs;
	const char *tenant, *region, *cpu_class; /* parts of `text` */
	struct sandbox_field *labels;
	size_t n_labels;
	char *text;
};
/* With one reference; NULL when memory is short. */
struct place_wish *place_wish_new(const char *tenant, const char *region, const char *cpu_class, const struct sandbox_field *labels,
	size_t n_labels);
bool place_wish_is(const struct place_wish *wish, const char *tenant, const char *region, const char *cpu_class,
	const struct sandbox_field *labels, size_t n_labels);
struct place_wish *place_wish_unref(struct place_wish *wish); /* NULL, always */

struct place_request {
	int64_t at_us;
	int64_t until_us; /* its sandbox ended; PLACE_STAYS: not yet; PLACE_UNKNOWN: it had no room */
	uint64_t memory_mib, disk_mib; /* asked for: without the VMM's overhead */
	uint32_t vcpus;
	const struct place_wish *wish;
};
#define PLACE_STAYS INT64_MAX
#define PLACE_UNKNOWN INT64_MIN

/* Which requests ask for another shape, and for which; 0: of any; as it was. */
struct place_reshape {
	uint64_t memory_mib, disk_mib, to_memory_mib, to_disk_mib;
	uint32_t vcpus, to_vcpus;
};

struct place_replay_result {
	uint64_t n_placed, n_refused;
	uint64_t n_standing, n_standing_refused; /* of those that ran already when it began */
	uint64_t by[PLACE_CONSTRAINT_MAX_];      /* what the nearest node lacked, of the first PLACE_REPLAY_LOOKS that found no room */
	int64_t first_us;                        /* found no room; 0: none */
	uint64_t peak_sandboxes, peak_memory_mib, peak_vcpus; /* at once; memory with the VMM's overhead */
};
#define PLACE_REPLAY_LOOKS 1000u

/* The life of a request in the middle of those whose sandboxes ended; PLACE_STAYS: none did. Reorders `requests`. */
int64_t place_replay_life(struct place_request *requests, size_t n);
/* By the time at which they came, as place_replay() wants them. */
void place_replay_sort(struct place_request *requests, size_t n);
/* From `from_us` on: what came before, and was there then, is placed first. Who had no room lives for `life_us`. `change` and `reshape`
 * may be NULL; nodes that are more have the labels and the CPU of the pool's largest. 0 or -ENOMEM. */
int place_replay(const struct place_copy *copy, const struct place_request *requests, size_t n, int64_t from_us, int64_t life_us,
	const struct place_change *change, const struct place_reshape *reshape, struct place_replay_result *ret);
