/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process wrote and somebody may still want: a ring of at most 64 KiB in which each byte has an
 * absolute position from the process's start and belongs to a stream. Readers keep positions of their own;
 * the ring knows none of them. Writing past the bound drops the oldest bytes: whoever must not lose any asks
 * output_room() first.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define OUTPUT_SIZE 65536u
/* Changes between streams that the ring remembers; a process that alternates byte by byte is cut here. */
#define OUTPUT_SEGMENTS 1024u

enum output_stream { OUTPUT_STDOUT, OUTPUT_STDERR, OUTPUT_PTY, OUTPUT_MAX_ };

struct output_segment {
	uint64_t start;
	enum output_stream stream;
};

struct output {
	uint8_t *data;                   /* NULL until the first byte */
	struct output_segment *segments; /* a ring too, oldest at first_segment */
	unsigned int first_segment;
	unsigned int n_segments;
	uint64_t head; /* position after the newest byte */
	uint64_t tail; /* position of the oldest byte kept */
};

void output_deinit(struct output *output);
/* Bytes that can be written without dropping one at or after `keep_from`. */
size_t output_room(const struct output *output, uint64_t keep_from);
/* Adds bytes, dropping the oldest where needed. 0 or -ENOMEM. */
int output_write(struct output *output, enum output_stream stream, const uint8_t *data, size_t size);
/* The bytes at `position` (>= tail) that lie together and are of one stream; their number, 0 at the end. */
size_t output_peek(const struct output *output, uint64_t position, const uint8_t **ret_data,
	enum output_stream *ret_stream);
