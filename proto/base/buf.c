/* SPDX-License-Identifier: Apache-2.0
 *
 * See buf.h.
 */
#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

void buf_deinit(struct buf *buf)
{
	free(buf->data);
	buf->data = NULL;
	buf->start = buf->end = buf->room = 0;
}

int buf_reserve(struct buf *buf, size_t size, uint8_t **ret)
{
	size_t used = buf_size(buf), room = buf->room ? buf->room : 256;
	uint8_t *data;

	if (size > buf->max || used > buf->max - size)
		return -ENOBUFS;
	if (buf->start > 0 && (buf->end + size > buf->room || used == 0)) {
		memmove(buf->data, buf->data + buf->start, used);
		buf->start = 0;
		buf->end = used;
	}
	if (buf->end + size > buf->room) {
		while (room < buf->end + size)
			room *= 2;
		data = realloc(buf->data, room);
		if (!data)
			return -ENOMEM;
		buf->data = data;
		buf->room = room;
	}
	*ret = buf->data + buf->end;
	return 0;
}

void buf_commit(struct buf *buf, size_t size)
{
	assert(buf->room - buf->end >= size);
	buf->end += size;
}

int buf_append(struct buf *buf, const void *data, size_t size)
{
	uint8_t *to;
	int r;

	if (size == 0)
		return 0;
	r = buf_reserve(buf, size, &to);
	if (r < 0)
		return r;
	memcpy(to, data, size);
	buf_commit(buf, size);
	return 0;
}

void buf_consume(struct buf *buf, size_t size)
{
	assert(size <= buf_size(buf));
	buf->start += size;
	if (buf->start == buf->end)
		buf->start = buf->end = 0;
}
