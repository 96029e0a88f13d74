/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists that people page through, in order of age: of sandboxes and of snapshots. Whatever has `in_all` and `record.created_us`.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>

struct aged {
	int64_t created_us;
	void *object;
};

static inline int aged_compare(const void *a, const void *b)
{
	const struct aged *x = a, *y = b;

	return (x->created_us > y->created_us) - (x->created_us < y->created_us);
}

/* A list that was read by id. false: no memory, and it is as it was. */
#define AGE_SORT(list, type)                                                                       \
	__extension__({                                                                            \
		struct aged *aged_ = NULL;                                                         \
		struct type *at_;                                                                  \
		size_t n_ = 0;                                                                     \
		TAILQ_FOREACH (at_, list, in_all)                                                  \
			n_++;                                                                      \
		aged_ = calloc(n_ + 1, sizeof(*aged_));                                            \
		n_ = 0;                                                                            \
		if (aged_) {                                                                       \
			TAILQ_FOREACH (at_, list, in_all)                                          \
				aged_[n_++] = (struct aged){ at_->record.created_us, at_ };        \
			qsort(aged_, n_, sizeof(*aged_), aged_compare);                            \
			TAILQ_INIT(list);                                                          \
			for (size_t i_ = 0; i_ < n_; i_++)                                         \
				TAILQ_INSERT_TAIL(list, (struct type *)aged_[i_].object, in_all);  \
		}                                                                                  \
		free(aged_);                                                                       \
		aged_ != NULL;                                                                     \
	})

/* Where a caller that pages goes on: behind `last`, the last that it saw; where that is gone (it may have ended between two
 * calls), with the first that is as old, `after_us`, or younger, so that it sees some twice rather than missing any. `last` is NULL and
 * `after_us` 0 for who begins. */
#define AGE_NEXT(list, last, after_us)                                                             \
	__extension__({                                                                            \
		__typeof__(last) at_ = (last);                                                     \
		if (at_) {                                                                         \
			at_ = TAILQ_NEXT(at_, in_all);                                             \
		} else {                                                                           \
			at_ = TAILQ_FIRST(list);                                                   \
			while (at_ && at_->record.created_us < (after_us))                         \
				at_ = TAILQ_NEXT(at_, in_all);                                     \
		}                                                                                  \
		at_;                                                                               \
	})
