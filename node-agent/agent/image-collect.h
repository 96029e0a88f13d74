/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects images that nobody uses (agent/image-gc.h): looks at the cache on a worker, decides on the loop, where it is
 * known what is in use, and takes what goes out of its place there at once, so that whoever wants it later fetches it
 * anew; the bytes are freed on a worker. Last use is the time of an image's mark (agent/image-file.h).
 */
#pragma once

#include "agent/image-gc.h"
#include "base/err.h"

struct image_collect;
struct images;
struct worker;

/* A sandbox of this node has it, whatever it is doing. */
typedef bool (*image_in_use)(const char *digest, void *user);

struct image_collect *image_collect_new(struct worker *worker, struct images *images, const char *dir,
	const struct gc_limits *limits, image_in_use in_use, void *user); /* NULL: no memory */
/* After the worker was freed. */
void image_collect_free(struct image_collect *collect);
/* Now and then; does nothing while the last one is under way. */
void image_collect_run(struct image_collect *collect);
