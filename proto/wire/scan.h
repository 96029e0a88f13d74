/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading protobuf's wire format without allocating: what check.c and dispatch.c share.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum scan_type { SCAN_VARINT = 0, SCAN_FIXED64 = 1, SCAN_BYTES = 2, SCAN_FIXED32 = 5 };

struct scan {
	const uint8_t *at;
	const uint8_t *end;
};

struct scan_field {
	uint32_t number;
	unsigned int type;   /* enum scan_type; groups are refused */
	uint64_t value;      /* of a varint */
	const uint8_t *data; /* the payload of the other types */
	size_t size;
};

/* One varint of at most ten bytes. */
static inline bool scan_varint(struct scan *scan, uint64_t *ret)
{
	uint64_t value = 0;

	for (unsigned int shift = 0; shift < 70 && scan->at < scan->end; shift += 7) {
		uint8_t byte = *scan->at++;

		if (shift == 63 && byte > 1)
			return false;
		value |= (uint64_t) (byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = value;
			return true;
		}
	}
	return false;
}

/* The next field; false: malformed. Not to be called at the end. */
static inline bool scan_next(struct scan *scan, struct scan_field *ret)
{
	uint64_t tag, size;

	if (!scan_varint(scan, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
		return false;
	ret->number = (uint32_t) (tag >> 3);
	ret->type = (unsigned int) (tag & 7);
	ret->value = 0;
	switch (ret->type) {
	case SCAN_VARINT:
		ret->data = scan->at;
		if (!scan_varint(scan, &ret->value))
			return false;
		ret->size = (size_t) (scan->at - ret->data);
		return true;
	case SCAN_FIXED64:
		size = 8;
		break;
	case SCAN_FIXED32:
		size = 4;
		break;
	case SCAN_BYTES:
		if (!scan_varint(scan, &size))
			return false;
		break;
	default:
		return false;
	}
	if (size > (uint64_t) (scan->end - scan->at))
		return false;
	ret->data = scan->at;
	ret->size = (size_t) size;
	scan->at += size;
	return true;
}
