/* SPDX-License-Identifier: Apache-2.0
 *
 * FNV-1a, for tables and for telling values apart: no protection against anybody who chooses them. A longer value is hashed in
 * pieces by giving what came out as the next `hash`.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FNV1A_BASIS UINT64_C(0xcbf29ce484222325)

static inline uint64_t fnv1a(uint64_t hash, const void *data, size_t size)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
	return hash;
}
