/* SPDX-License-Identifier: Apache-2.0
 *
 * See output.h.
 */
#include "guest/output.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"

void output_deinit(struct output *output)
{
	free(output->data);
	free(output->segments);
	*output = (struct output){ .head = output->head, .tail = output->head };
}

static struct output_segment *segment_at(const struct output *output, unsigned int i)
{
	return &output->segments[(output->first_segment + i) % OUTPUT_SEGMENTS];
}

/* Position after the last byte of segment i. */
static uint64_t segment_end(const struct output *output, unsigned int i)
{
	return i + 1 < output->n_segments ? segment_at(output, i + 1)->start : output->head;
}

size_t output_room(const struct output *output, uint64_t keep_from)
{
	uint64_t kept = output->head - MAX(keep_from, output->tail);

	/* The next byte may need a segment, which costs the oldest one. */
	if (output->n_segments == OUTPUT_SEGMENTS && segment_end(output, 0) > keep_from)
		return 0;
	return (size_t) (OUTPUT_SIZE - kept);
}

static void drop_before(struct output *output, uint64_t position)
{
	output->tail = MAX(output->tail, position);
	while (output->n_segments > 0 && segment_end(output, 0) <= output->tail) {
		output->first_segment = (output->first_segment + 1) % OUTPUT_SEGMENTS;
		output->n_segments--;
	}
}

static int make_room(struct output *output)
{
	if (!output->data)
		output->data = malloc(OUTPUT_SIZE);
	if (!output->segments)
		output->segments = calloc(OUTPUT_SEGMENTS, sizeof(*output->segments));
	return output->data && output->segments ? 0 : -ENOMEM;
}

int output_write(struct output *output, enum output_stream stream, const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (make_room(output) < 0)
		return -ENOMEM;
	if (output->n_segments == 0 || segment_at(output, output->n_segments - 1)->stream != stream) {
		if (output->n_segments == OUTPUT_SEGMENTS)
			drop_before(output, segment_end(output, 0));
		*segment_at(output, output->n_segments++) =
			(struct output_segment){ .start = output->head, .stream = stream };
	}
	while (size > 0) {
		size_t at = (size_t) (output->head % OUTPUT_SIZE), n = MIN(size, OUTPUT_SIZE - at);

		memcpy(output->data + at, data, n);
		output->head += n;
		data += n;
		size -= n;
	}
	if (output->head > OUTPUT_SIZE)
		drop_before(output, output->head - OUTPUT_SIZE);
	return 0;
}

/* The segment that holds `position`: the last one that starts at or before it. */
static unsigned int segment_find(const struct output *output, uint64_t position)
{
	unsigned int low = 0, high = output->n_segments - 1;

	while (low < high) {
		unsigned int middle = (low + high + 1) / 2;

		if (segment_at(output, middle)->start <= position)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

size_t output_peek(const struct output *output, uint64_t position, const uint8_t **ret_data,
	enum output_stream *ret_stream)
{
	size_t at = (size_t) (position % OUTPUT_SIZE);
	unsigned int i;

	if (position >= output->head || output->n_segments == 0)
		return 0;
	i = segment_find(output, position);
	*ret_data = output->data + at;
	*ret_stream = segment_at(output, i)->stream;
	return (size_t) MIN(segment_end(output, i) - position, OUTPUT_SIZE - at);
}
