/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of one decision on their way to the store: keys and packed records that the list owns.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "store/store.h"

struct ops {
	struct store_op *list;
	size_t n;
	size_t room;
	bool no_memory; /* something was left out: the list must not be committed */
};

void ops_deinit(struct ops *ops);
/* Packs `message` and frees it; NULL (memory was short where it was made) is noted like any other want. The key is
 * made from the format. */
void ops_put(struct ops *ops, ProtobufCMessage *message, uint64_t expect, const char *key, ...)
	PRINTF_LIKE(4, 5);
void ops_delete(struct ops *ops, const char *key, ...) PRINTF_LIKE(2, 3);
