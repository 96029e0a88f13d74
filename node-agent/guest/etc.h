/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a file that the sandbox may have replaced by anything: a FIFO must not hang croft-guest, nor a device
 * or an endless file fill its memory.
 */
#pragma once

#include <stddef.h>

/* The whole of a regular file of at most `max` bytes, NUL-terminated, the caller's. 0 or -errno. */
int etc_read(const char *path, size_t max, char **ret);
