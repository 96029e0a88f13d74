/* SPDX-License-Identifier: Apache-2.0
 *
 * The writable disk of a sandbox: a sparse file with an empty ext4. mkfs.ext4 runs once per size; every disk is
 * a copy of that file (a reflink where the file system has them, else its few data extents), which costs
 * milliseconds and the same few hundred KiB whatever the size.
 *
 * All of it blocks (mkfs some 100 ms, a copy some ms): for a worker thread. Safe against other threads and
 * processes with the same cache folder: a template appears whole, and the last of two makers wins.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

#define DISK_MIB_MIN 16
#define DISK_MIB_MAX (UINT64_C(16) << 20)

/* Makes `path` (which must not exist) of size_mib MiB, mode 0600. `cache` is a folder for the templates, which
 * exists. INVALID_ARGUMENT, DISK_FULL, DISK_MAKE_FAILED. On failure nothing is left at `path`. */
int disk_make(const char *cache, uint64_t size_mib, const char *path, struct err *reterr);
/* Makes `to` a copy of `from` with the same size and holes. Both are regular files; `to` is empty. 0 or -errno. */
int disk_copy(int from, int to);
/* The same by sharing blocks alone, which takes no time and no space. 0, or -errno where their file system cannot. */
int disk_share(int from, int to);
