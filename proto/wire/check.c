/* SPDX-License-Identifier: Apache-2.0
 *
 * See check.h. What is refused, and why protobuf-c alone would not do: depth (it recurses without limit), the
 * number of elements (each is an allocation, an unknown field too), a singular message that comes twice (it
 * merges them, which costs the square of their number), strings that are no text.
 */
#include "wire/check.h"

#include <errno.h>

#include "wire/scan.h"

struct walk {
	size_t elements;
	const char *why;
};

static bool refuse(struct walk *walk, const char *why)
{
	walk->why = why;
	return false;
}

/* Well-formed UTF-8 without NUL: no overlong forms, no surrogates, nothing over U+10FFFF. */
static bool is_text(const uint8_t *p, size_t size)
{
	const uint8_t *end = p + size;

	while (p < end) {
		uint8_t c = *p++;
		unsigned int more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : (c & 0xf0) == 0xe0 ? 2 :
			c >= 0xf0 && c < 0xf5 ? 3 : 4;

		if (c == 0 || more > 3 || (size_t) (end - p) < more)
			return false;
		if ((c == 0xe0 && p[0] < 0xa0) || (c == 0xed && p[0] > 0x9f) || (c == 0xf0 && p[0] < 0x90) ||
			(c == 0xf4 && p[0] > 0x8f))
			return false;
		for (; more > 0; more--)
			if ((*p++ & 0xc0) != 0x80)
				return false;
	}
	return true;
}

static unsigned int wire_type(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return SCAN_FIXED32;
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return SCAN_FIXED64;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return SCAN_BYTES;
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_BOOL:
	case PROTOBUF_C_TYPE_ENUM:
		return SCAN_VARINT;
	}
	return SCAN_VARINT;
}

/* A packed array: how many elements its bytes hold. */
static bool count_packed(struct walk *walk, unsigned int type, const struct scan_field *field)
{
	struct scan scan = { field->data, field->data + field->size };
	size_t width = type == SCAN_FIXED32 ? 4 : 8;
	uint64_t value;

	if (type != SCAN_VARINT) {
		walk->elements += field->size / width;
		return field->size % width == 0 || refuse(walk, "a packed array of half elements");
	}
	for (; scan.at < scan.end; walk->elements++)
		if (!scan_varint(&scan, &value))
			return refuse(walk, "a malformed packed array");
	return true;
}

static bool walk_message(struct walk *walk, const ProtobufCMessageDescriptor *descriptor, const uint8_t *data,
	size_t size, unsigned int depth);

static bool walk_value(struct walk *walk, const ProtobufCFieldDescriptor *known, const struct scan_field *field,
	unsigned int depth)
{
	unsigned int type = wire_type(known->type);

	if (known->label == PROTOBUF_C_LABEL_REPEATED) {
		if (type != SCAN_BYTES && field->type == SCAN_BYTES)
			return count_packed(walk, type, field);
		walk->elements++;
	}
	if (field->type != type)
		return refuse(walk, "a field of the wrong type");
	if (known->type == PROTOBUF_C_TYPE_STRING && !is_text(field->data, field->size))
		return refuse(walk, "a string that is no UTF-8 text");
	if (known->type == PROTOBUF_C_TYPE_MESSAGE)
		return walk_message(walk, known->descriptor, field->data, field->size, depth + 1);
	return true;
}

static bool walk_message(struct walk *walk, const ProtobufCMessageDescriptor *descriptor, const uint8_t *data,
	size_t size, unsigned int depth)
{
	struct scan scan = { data, data + size };
	uint64_t seen = 0; /* singular messages; no message of ours has more than 64 fields */

	if (depth > CHECK_DEPTH_MAX)
		return refuse(walk, "nested too deep");
	while (scan.at < scan.end) {
		const ProtobufCFieldDescriptor *known;
		struct scan_field field;
		ptrdiff_t index;

		if (!scan_next(&scan, &field))
			return refuse(walk, "malformed");
		known = protobuf_c_message_descriptor_get_field(descriptor, field.number);
		if (!known) {
			walk->elements++; /* protobuf-c keeps a copy of each */
		} else if (known->type == PROTOBUF_C_TYPE_MESSAGE && known->label != PROTOBUF_C_LABEL_REPEATED) {
			index = known - descriptor->fields;
			if (index >= 64 || (seen & UINT64_C(1) << index))
				return refuse(walk, "a message that may come once came twice");
			seen |= UINT64_C(1) << index;
		}
		if (known && !walk_value(walk, known, &field, depth))
			return false;
		if (walk->elements > CHECK_ELEMENTS_MAX)
			return refuse(walk, "too many elements");
	}
	return true;
}

int check_message(const ProtobufCMessageDescriptor *descriptor, const void *data, size_t size, struct err *reterr)
{
	struct walk walk = { 0 };
	int r;

	if (walk_message(&walk, descriptor, data, size, 1))
		return 0;
	r = err_set(reterr, FAIL_FRAME_INVALID, EBADMSG, "a %s frame was refused: %s", descriptor->short_name,
		walk.why);
	err_add(reterr, "bytes", "%zu", size);
	return r;
}

ProtobufCMessage *check_unpack(const ProtobufCMessageDescriptor *descriptor, const void *data, size_t size,
	struct err *reterr)
{
	ProtobufCMessage *msg;

	if (check_message(descriptor, data, size, reterr) < 0)
		return NULL;
	msg = protobuf_c_message_unpack(descriptor, NULL, size, data);
	if (!msg)
		(void) err_set(reterr, FAIL_FRAME_INVALID, EBADMSG, "a %s frame cannot be unpacked",
			descriptor->short_name);
	return msg;
}
