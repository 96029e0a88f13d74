/* SPDX-License-Identifier: Apache-2.0
 *
 * Between jail.c and jail-root.c: namespaces and the new root. 0 or -errno each; `run` as in jail.h.
 */
#pragma once

#include <stdbool.h>

/* `has_root`: no user namespace is needed. On failure nothing has changed. */
int jail_make_namespaces(bool has_root);
int jail_make_root(const char *run);
