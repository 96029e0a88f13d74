/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames on a byte stream: a 4-byte big-endian length and that many bytes. Used by guest.proto and node.proto.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define FRAME_HEAD 4u

enum frame_result { FRAME_WHOLE, FRAME_PARTIAL, FRAME_TOO_LARGE };

/* Looks at the front of `in`. WHOLE: *ret_data points into `in` until it changes; drop it with
 * frame_consume(). TOO_LARGE: the announced length is over `max`; the stream is lost. */
enum frame_result frame_peek(const struct buf *in, size_t max, const uint8_t **ret_data, size_t *ret_size);
void frame_consume(struct buf *in, size_t size);

/* Room for one frame of `size` bytes at the end of `out`: its head is written, the caller fills *ret with exactly
 * `size` bytes. 0, -ENOBUFS, -ENOMEM; on failure nothing was added. */
int frame_reserve(struct buf *out, size_t size, uint8_t **ret);
