/* SPDX-License-Identifier: Apache-2.0
 *
 * The query of a request, written to a stream: "&name=value" each.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

/* Escaped; nothing for NULL. */
void query_put(FILE *to, const char *name, const char *value);
/* Nothing for 0. */
void query_put_number(FILE *to, const char *name, uint64_t value, const char *unit);
