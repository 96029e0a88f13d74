/* SPDX-License-Identifier: Apache-2.0
 *
 * The images of this node: <cache>/images/<digest>, read-only files named by what they hold. One
 * that is not there is fetched over the link's bulk lane, once for all who wait for it, into
 * <digest>.part, from where an earlier try broke off, within a window of credit that is granted
 * again only as the bytes reach the disk. A file that somebody put there by hand is taken too. No
 * file is handed out before its bytes were compared with its name once; <digest>.ok remembers for
 * which size, inode and time that was.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/messages.h"

struct event_base;
struct worker;
struct images;
struct image_wait;

#define IMAGE_WINDOW (1024u * 1024u)

/* Sends an ImageRequest; false: not connected, images_link_up() will come. */
typedef bool (*images_send)(
	uint64_t request, const char *digest, uint64_t offset, uint32_t credit, void *user);
/* err NULL: the image is there and verified. The wait is over and gone. Never called from inside
 * images_want(); it must not call back into this module. */
typedef void (*images_done)(const struct err *err, void *user);

int images_new(struct images **ret, struct event_base *base, struct worker *worker, const char *dir,
	uint64_t max_size, images_send send, void *user, struct err *reterr);
/* After the worker's. Who waits is not told. */
void images_free(struct images *images);

/* 0 or -ENOMEM; the wait stays until `done` or image_wait_free(). size 0: not known. */
int images_want(struct images *images, const char *digest, uint64_t size, images_done done,
	void *user, struct image_wait **ret);
/* Stops waiting. A fetch for which nobody waits any more stops; what it has is kept for the next.
 * Accepts NULL. */
void image_wait_free(struct image_wait *wait);

/* The link. */
void images_link_up(struct images *images);
void images_link_down(struct images *images);
struct image_chunk {
	uint64_t request, offset;
	const uint8_t *data;
	size_t size;
	uint64_t image_size;
	const struct err *failure; /* NULL: none */
};
void images_chunk(struct images *images, const struct image_chunk *chunk);

/* Somebody waits for it, or a job has its file. */
bool images_is_wanted(const struct images *images, const char *digest);
int images_path(const struct images *images, const char *digest, char ret[static PATH_MAX]);
/* What is there, for Hello and CapacityReport. */
int images_list(const struct images *images, struct image_list *ret);
