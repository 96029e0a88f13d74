/* SPDX-License-Identifier: Apache-2.0
 *
 * Named network namespaces: a file of <dir> with a namespace mounted on it, as `ip netns` makes them in
 * /run/netns. The caller is one thread, and root.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "base/util.h"

/* Makes the directory a mount of its own that takes part in what is mounted below it: a namespace that is
 * unmounted here goes from every copy that a jailed process made of the mount table. 0 or -errno. */
int netns_dir_make(const char *dir);
/* The mount that it is; the directory stays. */
int netns_dir_remove(const char *dir);
/* A new namespace under this name; -EEXIST when there is one. */
int netns_make(const char *dir, const char *name);
/* Unmounts and removes; a name that does not exist is 0. Devices in it go with it, a moment later. */
int netns_remove(const char *dir, const char *name);
/* A descriptor of it, or -errno (-ENOENT; -EINVAL: a file on which nothing is mounted). */
int netns_open(const char *dir, const char *name);

/* The way back. `*home` is -1 before. The same thread must leave before anything else is done; leaving cannot be
 * refused by the kernel, and is not checked. */
int netns_enter(int netns, int *home);
void netns_leave(int *home);
#define CLEANUP_NETNS CLEANUP(netns_leave)
