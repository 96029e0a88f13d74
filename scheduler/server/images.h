/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of images: the blob directory, and the bulk lane that brings them to nodes. A node asks for a range and
 * grants credit; it gets frames of at most 64 KiB within it, one transfer after the other in turn, when the loop has
 * nothing better to do. A node gets only images that its pool may hold.
 */
#pragma once

#include <limits.h>

#include "pb/link.pb-c.h"
#include "server/link.h"
#include "server/server.h"

struct images;

int images_new(struct images **ret, struct server *server, struct err *reterr);
void images_free(struct images *images);
void images_on_request(struct images *images, const struct link_message *message,
	const Croft__ImageRequest *request);

/* Path of a blob; `digest` is valid. */
const char *image_path(
	const struct options *options, const char *digest, char buf[static PATH_MAX]);
