/* SPDX-License-Identifier: Apache-2.0
 *
 * Between pack.c and pack-source.c: the entries of a folder or archive, checked and cleaned, into a tar stream.
 */
#pragma once

#include <archive.h>

#include "image/pack.h"

/* 0 or a failure of `rootfs`. -EPIPE without a failure set: the reader of `out` went away. */
int pack_tar(struct pack *pack, const char *rootfs, struct archive *out, struct err *reterr);
int pack_dir(struct pack *pack, const char *rootfs, struct archive *out, struct err *reterr);
