/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the read-only image of a template from a root file system: a folder, a tar archive (compressed or
 * not), or a squashfs image, which is taken as it is.
 *
 * Kept: names byte for byte, owners, modes with setuid, times, links, FIFOs, user.* attributes and
 * security.capability. Left out: device nodes and sockets (the guest makes its own), other attributes and ACLs.
 * Refused: entries or hard links that are absolute or have "..": IMAGE_UNSAFE_PATH, with the entry.
 * The same input gives the same bytes: a folder is walked in the order of its names, an archive in its own.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

#define PACK_ENTRIES_MAX 4000000u
#define PACK_BYTES_MAX (UINT64_C(64) << 30)

typedef void pack_progress_fn(void *userdata, uint64_t entries, uint64_t bytes);

struct pack {
	pack_progress_fn *progress; /* NULL: none; called after each entry */
	void *userdata;
	uint64_t entries, bytes;    /* packed so far */
	uint64_t dropped;           /* entries left out */
};

/* Writes `image`, whole or not at all. Blocking, up to minutes; needs SIGPIPE ignored, LC_CTYPE UTF-8 and the
 * program tar2sqfs. IMAGE_INVALID, IMAGE_UNSAFE_PATH, IMAGE_TOO_LARGE, IMAGE_WRITE_FAILED. */
int pack_make(struct pack *pack, const char *rootfs, const char *image, struct err *reterr);
