/* SPDX-License-Identifier: Apache-2.0
 *
 * One image being brought: the file work of images.c, run on a worker. The digest goes along with
 * the bytes as they are written, so that a whole image is read again only when a broken fetch is
 * taken up.
 */
#pragma once

#include <limits.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/messages.h"

struct image_file {
	char dir[PATH_MAX - 128];
	char digest[DIGEST_SIZE];
	EVP_MD_CTX *sum; /* of the first `offset` bytes of the part */
	int fd;          /* of the part; -1: not open */
	uint64_t offset;
};

int image_file_init(struct image_file *file, const char *dir, const char *digest);
void image_file_deinit(struct image_file *file);

/* All may block. *ret_present: a verified file is there. Else the part is open and `offset` says
 * how much of it there is already. A file with the right name and wrong bytes is removed and counts
 * as absent. */
int image_file_open(
	struct image_file *file, const atomic_bool *stop, bool *ret_present, struct err *reterr);
int image_file_write(struct image_file *file, const void *data, size_t size, struct err *reterr);
/* Durable and under its name afterwards. IMAGE_DIGEST_MISMATCH: the part is removed. */
int image_file_finish(struct image_file *file, struct err *reterr);
