/* SPDX-License-Identifier: Apache-2.0
 *
 * guest/output against a model that keeps everything: random writes to two streams, readers at random places.
 */
#include <check.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"
#include "guest/output.h"
#include "lib/suite.h"

#define TOTAL (1u << 20)

static uint8_t bytes[TOTAL], streams[TOTAL];

static size_t write_some(struct output *output, struct rng *rng, size_t at, size_t most)
{
	size_t size = 1 + (size_t) rng_below(rng, most);
	enum output_stream stream = (enum output_stream) rng_below(rng, 2);

	size = MIN(size, TOTAL - at);
	for (size_t i = 0; i < size; i++) {
		bytes[at + i] = (uint8_t) rng_u64(rng);
		streams[at + i] = (uint8_t) stream;
	}
	ck_assert_int_eq(output_write(output, stream, bytes + at, size), 0);
	return size;
}

/* Everything from `from` to the end is what was written. */
static void check_from(const struct output *output, uint64_t from)
{
	const uint8_t *data;
	enum output_stream stream;
	size_t n;

	while ((n = output_peek(output, from, &data, &stream)) > 0) {
		ck_assert_int_eq(memcmp(data, bytes + from, n), 0);
		for (size_t i = 0; i < n; i++)
			if (streams[from + i] != (uint8_t) stream)
				ck_abort_msg("byte %zu is of the other stream", (size_t) from + i);
		from += n;
	}
	ck_assert_uint_eq(from, output->head);
}

static const size_t most[] = { 1, 2, 100, 5000, 65536, 200000 };

START_TEST(test_model)
{
	struct output output = { 0 };
	struct rng rng = rng_seeded((uint64_t) _i + 1);
	size_t at = 0;

	while (at < TOTAL) {
		at += write_some(&output, &rng, at, most[_i]);
		ck_assert_uint_eq(output.head, at);
		ck_assert_uint_le(output.head - output.tail, OUTPUT_SIZE);
		ck_assert_uint_le(output.n_segments, OUTPUT_SEGMENTS);
		/* Without changes of streams nothing is dropped early. */
		if (output.n_segments < OUTPUT_SEGMENTS)
			ck_assert(output.tail == 0 || output.head - output.tail == OUTPUT_SIZE);
		if (rng_below(&rng, most[_i] <= 100 ? 1000 : 3) == 0) {
			check_from(&output, output.tail);
			check_from(&output, output.tail + rng_below(&rng, output.head - output.tail + 1));
		}
		if (most[_i] <= 2 && at > TOTAL / 8)
			break;
	}
	check_from(&output, output.tail);
	output_deinit(&output);
}
END_TEST

/* Whoever asks for room first loses nothing that he wants to keep. */
START_TEST(test_room)
{
	struct output output = { 0 };
	struct rng rng = rng_seeded((uint64_t) _i + 1);
	uint64_t keep = 0;
	size_t at = 0;

	for (int i = 0; i < 20000 && at < TOTAL; i++) {
		size_t room = output_room(&output, keep);

		if (room > 0)
			at += write_some(&output, &rng, at, MIN(room, most[_i]));
		ck_assert_uint_le(output.tail, keep);
		if (rng_below(&rng, 4) == 0)
			keep += rng_below(&rng, output.head - keep + 1);
	}
	check_from(&output, keep);
	ck_assert_uint_gt(output_room(&output, output.head), 0); /* a reader that is up to date never blocks */
	output_deinit(&output);
}
END_TEST

START_TEST(test_empty)
{
	struct output output = { 0 };
	const uint8_t *data;
	enum output_stream stream;

	ck_assert_uint_eq(output_room(&output, 0), OUTPUT_SIZE);
	ck_assert_uint_eq(output_peek(&output, 0, &data, &stream), 0);
	ck_assert_int_eq(output_write(&output, OUTPUT_STDOUT, NULL, 0), 0);
	ck_assert_ptr_null(output.data);
	output_deinit(&output);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest-output");
	TCase *t = tcase_create("output");

	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, test_model, 0, (int) ARRAY_LEN(most));
	tcase_add_loop_test(t, test_room, 0, (int) ARRAY_LEN(most));
	tcase_add_test(t, test_empty);
	suite_add_tcase(suite, t);
	return suite_run(suite);
}
