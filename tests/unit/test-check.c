/* SPDX-License-Identifier: Apache-2.0
 *
 * The check before each unpack: what protobuf-c alone would take, and what a hostile frame can be.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "lib/loop.h"
#include "lib/suite.h"
#include "test-wire-rig.h"
#include "wire/check.h"

static struct bytes frame; /* too large for a stack under ASan; each test runs in its own process */

static int check_frame(const ProtobufCMessageDescriptor *descriptor, struct err *err)
{
	/* an exact copy, so that ASan sees a read behind the end */
	uint8_t *copy = malloc(frame.size ? frame.size : 1);
	int r;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, frame.data, frame.size);
	*err = (struct err) ERR_NULL;
	r = check_message(descriptor, copy, frame.size, err);
	free(copy);
	return r;
}

static void expect_refused(const ProtobufCMessageDescriptor *descriptor, const char *why)
{
	struct err err;

	ck_assert_int_lt(check_frame(descriptor, &err), 0);
	ck_assert_int_eq(err.code, FAIL_FRAME_INVALID);
	ck_assert_msg(strstr(err.msg, why) != NULL, "%s", err.msg);
}

static void expect_passed(const ProtobufCMessageDescriptor *descriptor)
{
	struct err err;

	ck_assert_msg(check_frame(descriptor, &err) == 0, "%s", err.msg);
}

/* ---- check_message ---- */

static const struct {
	const char *text;
	size_t size;
	bool ok;
} texts[] = {
	{ "plain", 5, true },
	{ "", 0, true },
	{ "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9, true },
	{ "a\0b", 3, false },
	{ "\0", 1, false },
	{ "\xff", 1, false },
	{ "\x80", 1, false },
	{ "\xc3", 1, false },
	{ "\xc3(", 2, false },
	{ "\xc0\xaf", 2, false },         /* overlong */
	{ "\xe0\x80\xaf", 3, false },
	{ "\xf0\x80\x80\xaf", 4, false },
	{ "\xed\xa0\x80", 3, false },     /* a surrogate */
	{ "\xf4\x90\x80\x80", 4, false }, /* over U+10FFFF */
	{ "\xf8\x88\x80\x80\x80", 5, false },
	{ "\xf0\x9f\x98", 3, false },
};

START_TEST(test_text)
{
	frame.size = 0;
	put_bytes(&frame, 1, texts[_i].text, texts[_i].size);
	if (texts[_i].ok)
		expect_passed(&croft__failure_record__descriptor);
	else
		expect_refused(&croft__failure_record__descriptor, "UTF-8");
}
END_TEST

/* bytes may hold anything */
START_TEST(test_bytes)
{
	frame.size = 0;
	put_bytes(&frame, 2, "\0\xff\xc0", 3);
	expect_passed(&croft__stream_data__descriptor);
}
END_TEST

static const struct {
	const char *bytes;
	size_t size;
} malformed[] = {
	{ "\x08", 1 },                                     /* a tag and no value */
	{ "\x08\x80", 2 },                                 /* a cut varint */
	{ "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12 }, /* eleven bytes */
	{ "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11 },     /* over 64 bits */
	{ "\x12\x05" "ab", 4 },                            /* announces more than there is */
	{ "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11 },     /* 2^64-1 bytes */
	{ "\x0b", 1 },                                     /* a group */
	{ "\x0c", 1 },
	{ "\x0e\x00", 2 },                                 /* type 6 */
	{ "\x0f\x00", 2 },                                 /* type 7 */
	{ "\x00\x00", 2 },                                 /* field 0 */
	{ "\x09\x01\x02", 3 },                             /* a cut fixed64 */
	{ "\x0d\x01\x02", 3 },                             /* a cut fixed32 */
	{ "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", 11 },     /* a tag over 32 bits */
};

START_TEST(test_malformed)
{
	frame.size = 0;
	put(&frame, malformed[_i].bytes, malformed[_i].size);
	expect_refused(&croft__envelope__descriptor, "");
}
END_TEST

START_TEST(test_wrong_type)
{
	frame.size = 0;
	put_tag(&frame, 10, 0); /* a message as a number */
	put_varint(&frame, 5);
	expect_refused(&croft__envelope__descriptor, "wrong type");
	frame.size = 0;
	put_bytes(&frame, 1, "abcd", 4); /* a number as bytes */
	expect_refused(&croft__envelope__descriptor, "wrong type");
}
END_TEST

/* Descriptors of our own, because no message of ours nests in itself. */
static const ProtobufCMessageDescriptor nest_descriptor;
static const ProtobufCFieldDescriptor nest_fields[] = {
	{ .name = "self", .id = 1, .label = PROTOBUF_C_LABEL_NONE, .type = PROTOBUF_C_TYPE_MESSAGE,
		.descriptor = &nest_descriptor },
	{ .name = "numbers", .id = 2, .label = PROTOBUF_C_LABEL_REPEATED, .type = PROTOBUF_C_TYPE_UINT64 },
	{ .name = "fixed", .id = 3, .label = PROTOBUF_C_LABEL_REPEATED, .type = PROTOBUF_C_TYPE_FIXED32 },
};
static const ProtobufCIntRange nest_ranges[] = { { 1, 0 }, { 0, 3 } };
static const ProtobufCMessageDescriptor nest_descriptor = {
	.magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
	.name = "Nest",
	.short_name = "Nest",
	.n_fields = 3,
	.fields = nest_fields,
	.n_field_ranges = 1,
	.field_ranges = nest_ranges,
};

/* `depth` messages inside each other, written from the inside out, so from the end of the frame. */
static void put_nested(unsigned int depth)
{
	uint8_t *end = frame.data + sizeof(frame.data), *at = end;

	for (unsigned int i = 1; i < depth; i++) {
		size_t size = (size_t) (end - at);
		uint8_t length[4] = { (uint8_t) (size & 0x7f), (uint8_t) (size >> 7 & 0x7f), (uint8_t) (size >> 14) };
		size_t n = size < 0x80 ? 1 : size < 0x4000 ? 2 : 3;

		for (size_t k = 0; k + 1 < n; k++)
			length[k] |= 0x80;
		at -= n + 1;
		at[0] = 1 << 3 | 2;
		memcpy(at + 1, length, n);
	}
	frame.size = (size_t) (end - at);
	memmove(frame.data, at, frame.size);
}

START_TEST(test_depth)
{
	put_nested(CHECK_DEPTH_MAX);
	expect_passed(&nest_descriptor);
	put_nested(CHECK_DEPTH_MAX + 1);
	expect_refused(&nest_descriptor, "deep");
	put_nested(10000);
	expect_refused(&nest_descriptor, "deep");
}
END_TEST

START_TEST(test_elements)
{
	/* a packed field that claims 2^32 + 1 bytes */
	frame.size = 0;
	put_tag(&frame, 2, 2);
	put_varint(&frame, (UINT64_C(1) << 32) + 1);
	put(&frame, "\1\1\1", 3);
	expect_refused(&nest_descriptor, "malformed");
	/* a packed field of a million items */
	frame.size = 0;
	put_tag(&frame, 2, 2);
	put_varint(&frame, 1000000);
	memset(frame.data + frame.size, 1, 1000000);
	frame.size += 1000000;
	expect_refused(&nest_descriptor, "too many");
	/* at the limit, and one over it */
	for (unsigned int n = CHECK_ELEMENTS_MAX; n <= CHECK_ELEMENTS_MAX + 1; n++) {
		frame.size = 0;
		put_tag(&frame, 3, 2);
		put_varint(&frame, (uint64_t) n * 4);
		memset(frame.data + frame.size, 0, (size_t) n * 4);
		frame.size += (size_t) n * 4;
		if (n == CHECK_ELEMENTS_MAX)
			expect_passed(&nest_descriptor);
		else
			expect_refused(&nest_descriptor, "too many");
	}
	/* unknown fields cost an allocation each, too */
	frame.size = 0;
	for (unsigned int i = 0; i <= CHECK_ELEMENTS_MAX; i++)
		put(&frame, "\x78\x01", 2);
	expect_refused(&nest_descriptor, "too many");
	/* half an element */
	frame.size = 0;
	put_bytes(&frame, 3, "\1\2\3\4\5", 5);
	expect_refused(&nest_descriptor, "half");
	/* a cut varint inside a packed field */
	frame.size = 0;
	put_bytes(&frame, 2, "\x80", 1);
	expect_refused(&nest_descriptor, "packed");
}
END_TEST

START_TEST(test_elements_of_messages)
{
	static const char id[20] = "abcdefghijklmnopqrst";
	struct bytes *inner = calloc(1, sizeof(*inner));
	unsigned int n = 0;

	ck_assert_ptr_nonnull(inner);
	while (inner->size < 900000 && ++n <= 30000)
		put_bytes(inner, 1, (const char[]) { 0x0a, 20, id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7],
			id[8], id[9], id[10], id[11], id[12], id[13], id[14], id[15], id[16], id[17], id[18], id[19] },
			22);
	frame.size = 0;
	put_bytes(&frame, 32, inner->data, inner->size);
	expect_passed(&croft__envelope__descriptor);
	inner->size = 0;
	for (n = 0; n <= CHECK_ELEMENTS_MAX; n++)
		put_bytes(inner, 1, "", 0);
	frame.size = 0;
	put_bytes(&frame, 32, inner->data, inner->size);
	expect_refused(&croft__envelope__descriptor, "too many");
	free(inner);
}
END_TEST

/* protobuf-c would merge them, at a cost that grows with the square. */
START_TEST(test_message_twice)
{
	frame.size = 0;
	put_bytes(&frame, 12, "", 0);
	put_bytes(&frame, 12, "", 0);
	expect_refused(&croft__envelope__descriptor, "twice");
}
END_TEST

/* ---- a real envelope, mutated ---- */

/* Whatever passes the check unpacks or is refused, and nothing reads outside (ASan). */
START_TEST(test_fuzz)
{
	struct rng rng = rng_seeded(4711);
	unsigned int passed = 0, refused = 0;
	size_t size;
	uint8_t *original = make_report(&size);

	for (int round = 0; round < 100000; round++) {
		size_t n = rng_below(&rng, 8) == 0 ? (size_t) rng_below(&rng, size) : size;
		uint8_t *copy = malloc(n ? n : 1);
		ProtobufCMessage *msg;

		ck_assert_ptr_nonnull(copy);
		memcpy(copy, original, n);
		for (uint64_t k = rng_below(&rng, 4); k > 0 && n > 0; k--)
			copy[rng_below(&rng, n)] = (uint8_t) rng_u64(&rng);
		msg = check_unpack(&croft__envelope__descriptor, copy, n, NULL);
		if (msg) {
			passed++;
			protobuf_c_message_free_unpacked(msg, NULL);
		} else {
			refused++;
		}
		free(copy);
	}
	free(original);
	ck_assert_uint_gt(passed, 1000);
	ck_assert_uint_gt(refused, 1000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("check");
	TCase *tc = tcase_create("check");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_text, 0, (int) ARRAY_LEN(texts));
	tcase_add_test(tc, test_bytes);
	tcase_add_loop_test(tc, test_malformed, 0, (int) ARRAY_LEN(malformed));
	tcase_add_test(tc, test_wrong_type);
	tcase_add_test(tc, test_depth);
	tcase_add_test(tc, test_elements);
	tcase_add_test(tc, test_elements_of_messages);
	tcase_add_test(tc, test_message_twice);
	tcase_add_test(tc, test_fuzz);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
