/* SPDX-License-Identifier: Apache-2.0
 *
 * The one table of what the gateway answers on a sandbox's API port: path, verb, shape, limit, handler.
 */
#pragma once

#include "gateway/call.h"

/* NULL: no such path. Paths match exactly: "/filesystem.Filesystem/.." begins with "/files" too. */
const struct call_method *method_find(const char *path);
/* Asks for nothing of the sandbox. NULL: false. */
bool method_is_health(const struct call_method *method);
/* The shape in which an unknown path is refused. */
enum call_shape method_shape_of(const char *path);
const struct call_method *method_table(size_t *ret_n);
