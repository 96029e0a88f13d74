/* SPDX-License-Identifier: Apache-2.0
 *
 * See frame.h.
 */
#include "base/frame.h"

#include <errno.h>

enum frame_result frame_peek(const struct buf *in, size_t max, const uint8_t **ret_data, size_t *ret_size)
{
	const uint8_t *p;
	size_t size;

	p = buf_peek(in);
	if (!p || buf_size(in) < FRAME_HEAD) /* an empty queue may have no memory */
		return FRAME_PARTIAL;
	size = (size_t) p[0] << 24 | (size_t) p[1] << 16 | (size_t) p[2] << 8 | p[3];
	if (size > max)
		return FRAME_TOO_LARGE;
	if (buf_size(in) - FRAME_HEAD < size)
		return FRAME_PARTIAL;
	*ret_data = p + FRAME_HEAD;
	*ret_size = size;
	return FRAME_WHOLE;
}

void frame_consume(struct buf *in, size_t size)
{
	buf_consume(in, FRAME_HEAD + size);
}

int frame_reserve(struct buf *out, size_t size, uint8_t **ret)
{
	uint8_t *p;
	int r;

	if (size > UINT32_MAX)
		return -ENOBUFS;
	r = buf_reserve(out, FRAME_HEAD + size, &p);
	if (r < 0)
		return r;
	p[0] = (uint8_t) (size >> 24);
	p[1] = (uint8_t) (size >> 16);
	p[2] = (uint8_t) (size >> 8);
	p[3] = (uint8_t) size;
	buf_commit(out, FRAME_HEAD + size);
	*ret = p + FRAME_HEAD;
	return 0;
}
