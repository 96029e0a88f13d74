/* SPDX-License-Identifier: Apache-2.0
 *
 * Disk space that is kept for the day the disk is full: a file of zeroes beside the store, given back to the file system
 * when a commit meets its end, so that what is running can still be ended and written down.
 */
#pragma once

#include <stdint.h>

/* 0, -ENOSPC, -EOPNOTSUPP where the file system cannot set space aside, or -errno. One that is there already is kept. */
int reserve_take(const char *dir, uint64_t size);
/* The same, but only where as much again stays free: else the next write would give it back at once. */
int reserve_take_again(const char *dir, uint64_t size);
void reserve_give(const char *dir);
