/* SPDX-License-Identifier: Apache-2.0
 *
 * uthash for this project: include this instead of <uthash.h>. Its default hash is a switch of fall-throughs that
 * clang's -Wimplicit-fallthrough refuses in our code; this one is FNV-1a. Out of memory in HASH_ADD is not an
 * exit: the element is then not in the table (HASH_NONFATAL_OOM) and its `hh.tbl` is NULL.
 */
#pragma once

#include "base/hash.h"

static inline unsigned int table_hash(const void *key, size_t size)
{
	const uint64_t hash = fnv1a(FNV1A_BASIS, key, size);

	return (unsigned int)(hash ^ hash >> 32);
}

#define HASH_FUNCTION(key, size, hash) ((hash) = table_hash((key), (size)))
#define HASH_NONFATAL_OOM 1
#include <uthash.h>
