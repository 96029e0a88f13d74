/* SPDX-License-Identifier: Apache-2.0
 *
 * Which images of the cache go. Pure. An image that is in use never goes. Of the others go those that nobody used for a
 * long time, and, while the file system has less room than it should, the one that was used longest ago, and so on.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"

struct gc_image {
	char digest[DIGEST_SIZE];
	uint64_t size;    /* bytes on disk */
	int64_t used_us;  /* last use, since the epoch */
	bool in_use;
	bool goes;        /* the answer */
};

struct gc_disk {
	uint64_t size, free; /* bytes */
};

struct gc_limits {
	int64_t max_age_us;            /* 0: no age is too old */
	unsigned int keep_free_percent;
};

/* Sets `goes`; sorts the images by their last use. Returns how many go. */
size_t gc_choose(struct gc_image *images, size_t n, const struct gc_disk *disk, const struct gc_limits *limits,
	int64_t now_us);
