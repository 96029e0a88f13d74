/* SPDX-License-Identifier: Apache-2.0
 *
 * See fuzz.h.
 */
#include "fuzz.h"

#define FIELDS_MAX 64

struct field {
	size_t at, head, size; /* head: the tag, and the length where there is one; size: all of it */
	unsigned int type;
};

static size_t varint_read(const uint8_t *data, size_t size, uint64_t *ret)
{
	*ret = 0;
	for (size_t i = 0; i < size && i < 10; i++) {
		*ret |= (uint64_t) (data[i] & 0x7f) << (7 * i);
		if (!(data[i] & 0x80))
			return i + 1;
	}
	return 0;
}

static size_t varint_write(uint8_t *data, uint64_t value)
{
	size_t n = 0;

	do {
		data[n++] = (uint8_t) ((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		value >>= 7;
	} while (value);
	return n;
}

/* The fields at the front that make sense. */
static size_t fields_of(const uint8_t *data, size_t size, struct field *ret)
{
	size_t at = 0, n = 0;

	while (at < size && n < FIELDS_MAX) {
		uint64_t tag, value = 0;
		size_t head = varint_read(data + at, size - at, &tag), more = 0, body;

		if (head == 0)
			break;
		switch (tag & 7) {
		case 0:
			body = varint_read(data + at + head, size - at - head, &value);
			break;
		case 1:
			body = 8;
			break;
		case 2:
			more = varint_read(data + at + head, size - at - head, &value);
			body = more ? (size_t) value : 0;
			break;
		case 5:
			body = 4;
			break;
		default:
			body = 0;
			break;
		}
		if ((body == 0 && (tag & 7) != 2) || body > size - at - head - more)
			break;
		ret[n++] = (struct field) { .at = at, .head = head + more, .size = head + more + body,
			.type = (unsigned int) (tag & 7) };
		at += head + more + body;
	}
	return n;
}

/* Replaces data[at..at+old) by `with`. The new size, or the old one when there is no room. */
static size_t replace(uint8_t *data, size_t size, size_t max, size_t at, size_t old, const uint8_t *with, size_t n)
{
	if (size - old + n > max)
		return size;
	memmove(data + at + n, data + at + old, size - at - old);
	memcpy(data + at, with, n);
	return size - old + n;
}

static uint64_t edge(unsigned int seed)
{
	static const uint64_t edges[] = { 0, 1, 127, 128, 255, 65535, 65536, INT32_MAX, UINT32_MAX, UINT64_C(1) << 32, INT64_MAX,
		UINT64_MAX, 512, 4096, 1024 };

	return edges[seed % (sizeof(edges) / sizeof(edges[0]))];
}

static size_t mutate_inside(uint8_t *data, size_t size, size_t max_size, const struct field *field, unsigned int seed)
{
	const size_t room = 1 << 15;
	uint8_t *copy = malloc(2 * room), *with = copy + room, head[16] = { data[field->at] };
	size_t n = field->size - field->head, h = 1;

	if (copy && n < room) {
		memcpy(copy, data + field->at + field->head, n);
		n = mutate_message(copy, n, room - sizeof(head), seed, 0);
		h += varint_write(head + 1, n); /* numbers up to 15 have one byte; others become something else */
		memcpy(with, head, h);
		memcpy(with + h, copy, n);
		size = replace(data, size, max_size, field->at, field->size, with, h + n);
	}
	free(copy);
	return size;
}

size_t mutate_message(uint8_t *data, size_t size, size_t max_size, unsigned int seed, size_t skip)
{
	static uint8_t with[1 << 16];
	struct field fields[FIELDS_MAX], *field;
	size_t n, k;

	if (size <= skip || seed % 2 == 0)
		return LLVMFuzzerMutate(data, size, max_size);
	seed /= 2;
	data += skip;
	size -= skip;
	max_size -= skip;
	n = fields_of(data, size, fields);
	if (n == 0)
		return skip + LLVMFuzzerMutate(data, size, max_size);
	field = &fields[seed / 8 % n];
	if (field->size > sizeof(with) - 16)
		return skip + size;
	switch (seed % 8) {
	case 0: /* twice */
		memcpy(with, data + field->at, field->size);
		size = replace(data, size, max_size, field->at, 0, with, field->size);
		break;
	case 1: /* gone */
		size = replace(data, size, max_size, field->at, field->size, with, 0);
		break;
	case 2: /* another number or type */
		k = varint_write(with, (edge(seed / 64) << 3 | (seed / 16 % 6)) & 0xffff);
		size = replace(data, size, max_size, field->at, 1, with, k);
		break;
	case 3: /* another value or length */
		if (field->type != 0 && field->type != 2)
			break;
		k = varint_write(with, edge(seed / 64));
		size = replace(data, size, max_size, field->at + 1, field->type == 0 ? field->size - 1 : field->head - 1, with, k);
		break;
	case 4: /* in itself */
		k = varint_write(with, (uint64_t) data[field->at] | 2);
		k += varint_write(with + k, field->size);
		memcpy(with + k, data + field->at, field->size);
		size = replace(data, size, max_size, field->at, field->size, with, k + field->size);
		break;
	case 5: /* to the end */
		memcpy(with, data + field->at, field->size);
		size = replace(data, size, max_size, field->at, field->size, with, 0);
		size = replace(data, size, max_size, size, 0, with, field->size);
		break;
	default: /* inside a message, where it is one */
		if (field->type != 2)
			return skip + LLVMFuzzerMutate(data, size, max_size);
		size = mutate_inside(data, size, max_size, field, seed / 8);
		break;
	}
	return skip + size;
}
