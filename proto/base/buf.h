/* SPDX-License-Identifier: Apache-2.0
 *
 * A growing byte queue with a bound: append at the end, consume at the front. Nothing that a peer fills may
 * be without a bound, so the bound is part of the object.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct buf {
	uint8_t *data;
	size_t start; /* first byte not yet consumed */
	size_t end;
	size_t room;
	size_t max;   /* most bytes held at once */
};

#define BUF_NULL(limit) { .max = (limit) }

void buf_deinit(struct buf *buf);
static inline size_t buf_size(const struct buf *buf)
{
	return buf->end - buf->start;
}
/* NULL before anything was appended. */
static inline const uint8_t *buf_peek(const struct buf *buf)
{
	return buf->data ? buf->data + buf->start : NULL;
}
/* 0, -ENOBUFS when the bound would be passed, -ENOMEM. */
int buf_append(struct buf *buf, const void *data, size_t size);
/* Room for `size` more bytes at *ret, to be filled and then added with buf_commit(). */
int buf_reserve(struct buf *buf, size_t size, uint8_t **ret);
void buf_commit(struct buf *buf, size_t size);
/* size <= buf_size() */
void buf_consume(struct buf *buf, size_t size);
