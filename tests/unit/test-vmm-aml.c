/* SPDX-License-Identifier: Apache-2.0
 *
 * The lengths in ACPI's machine language, at every size that our three bytes have room for: the tables of the machine are
 * shorter than most of them.
 */
#include <check.h>
#include <string.h>

#include "aml.h"
#include "base/util.h"
#include "lib/suite.h"

static uint8_t data[1 << 18];

/* ACPI 6.4, 20.2.4: two bits say how many bytes follow, four are the lowest, and the bytes are those above. */
static size_t length_at(const uint8_t *at)
{
	unsigned int more = at[0] >> 6;
	size_t len = more == 0 ? at[0] & 0x3f : at[0] & 0x0f;

	for (unsigned int i = 0; i < more; i++)
		len |= (size_t) at[1 + i] << (4 + 8 * i);
	return len;
}

START_TEST(lengths)
{
	static const size_t sizes[] = { 0, 1, 0x38, 0x3f, 0x40, 0xff, 0x100, 0x7ff, 0x800, 0xfff, 0x1000, 0x7fff, 0x8000, 0xffff,
		0x10000, 0x1ffff, 0x20000 };
	static const uint8_t body[0x20000];

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct aml aml = { .data = data, .size = sizeof(data) };
		size_t at = aml_scope(&aml, "_SB_");

		aml_bytes(&aml, body, sizes[i]);
		aml_close(&aml, at);
		ck_assert(!aml.overflow);
		ck_assert_uint_eq(data[0], 0x10);
		ck_assert_uint_eq(data[at] >> 6, 2);
		/* from the length itself to the end of what it encloses */
		ck_assert_uint_eq(length_at(data + at), 3 + 4 + sizes[i]);
		ck_assert_uint_eq(aml.used, at + 3 + 4 + sizes[i]);
	}
}
END_TEST

/* What does not fit is not written, and says so, also where only the length is still to be filled in. */
START_TEST(overflow)
{
	struct aml aml = { .data = data, .size = 10 };
	size_t at = aml_scope(&aml, "_SB_");

	memset(data + 10, 0xaa, 4);
	aml_le(&aml, 0x11223344, 4);
	aml_close(&aml, at);
	ck_assert(aml.overflow);
	ck_assert_uint_le(aml.used, 10);
	ck_assert_uint_eq(data[10], 0xaa);
}
END_TEST

START_TEST(integers)
{
	static const uint8_t wanted[] = { 0x0a, 0x00, 0x0a, 0xff, 0x0c, 0x00, 0x01, 0x00, 0x00, 0x0c, 0xff, 0xff, 0xff, 0xff };
	struct aml aml = { .data = data, .size = sizeof(data) };

	aml_integer(&aml, 0);
	aml_integer(&aml, 0xff);
	aml_integer(&aml, 0x100);
	aml_integer(&aml, UINT32_MAX);
	ck_assert_uint_eq(aml.used, sizeof(wanted));
	ck_assert_mem_eq(data, wanted, sizeof(wanted));
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("vmm-aml");
	TCase *tcase = tcase_create("all");

	tcase_add_test(tcase, lengths);
	tcase_add_test(tcase, overflow);
	tcase_add_test(tcase, integers);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
