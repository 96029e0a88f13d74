/* SPDX-License-Identifier: Apache-2.0
 *
 * See ops.h.
 */
#include "server/ops.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ops_deinit(struct ops *ops)
{
	for (size_t i = 0; i < ops->n; i++) {
		free((void *)(uintptr_t)ops->list[i].key);
		free((void *)(uintptr_t)ops->list[i].value);
	}
	free(ops->list);
	memset(ops, 0, sizeof(*ops));
}

/* Takes key and value over. */
static void add(struct ops *ops, enum store_op_kind kind, char *key, void *value, size_t size,
	uint64_t expect)
{
	if (key && ops->n == ops->room) {
		size_t room = ops->room ? ops->room * 2 : 8;
		struct store_op *list = reallocarray(ops->list, room, sizeof(*list));

		if (list) {
			ops->list = list;
			ops->room = room;
		}
	}
	if (!key || ops->n == ops->room) {
		ops->no_memory = true;
		free(key);
		free(value);
		return;
	}
	ops->list[ops->n++] = (struct store_op){ kind, key, value, size, expect };
}

static char *PRINTF_LIKE(1, 0) make_key(const char *format, va_list args)
{
	char *key = NULL;

	return vasprintf(&key, format, args) < 0 ? NULL : key;
}

void ops_put(struct ops *ops, ProtobufCMessage *message, uint64_t expect, const char *key, ...)
{
	size_t size = message ? protobuf_c_message_get_packed_size(message) : 0;
	uint8_t *value = message ? malloc(size + 1) : NULL;
	va_list args;
	char *text;

	if (value)
		(void)protobuf_c_message_pack(message, value);
	else
		ops->no_memory = true;
	if (message)
		protobuf_c_message_free_unpacked(message, NULL);
	if (!value)
		return;
	va_start(args, key);
	text = make_key(key, args);
	va_end(args);
	add(ops, STORE_PUT, text, value, size, expect);
}

void ops_delete(struct ops *ops, const char *key, ...)
{
	va_list args;
	char *text;

	va_start(args, key);
	text = make_key(key, args);
	va_end(args);
	add(ops, STORE_DELETE, text, NULL, 0, STORE_ANY);
}
