/* SPDX-License-Identifier: Apache-2.0
 *
 * The query of a request, from a table of its members.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Text, or a number with its unit. What is NULL, and 0, is left out. */
struct query_item {
	const char *name, *text;
	uint64_t number;
	const char *unit;
};

/* `first` ("scope=own"), and the members as "&name=value", escaped. The caller's; NULL when memory is short. */
char *query_new(const char *first, const struct query_item *items, size_t n);
