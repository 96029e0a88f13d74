/* SPDX-License-Identifier: Apache-2.0
 *
 * What the gateway makes of a request and of a guest's frame when memory fails at each point in turn: NO_MEMORY,
 * nothing leaked, and a half-made frame never stays in the buffer to the guest.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "gateway/connect.h"
#include "gateway/guest-wire.h"
#include "gateway/process-json.h"
#include "lib/fault.h"
#include "lib/suite.h"

static const char start_json[] = "{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"echo hi\"],"
				 "\"envs\":{\"A\":\"1\",\"B\":\"2\"},\"cwd\":\"/tmp\"},\"tag\":\"t\",\"stdin\":true}";
static const char input_json[] = "{\"process\":{\"pid\":7},\"input\":{\"stdin\":\"aGVsbG8=\"}}";

static int start_to_guest(struct buf *out, struct err *reterr)
{
	struct guest_start_options options = { .user = "user", .traceparent = "00-1-2-3" };
	struct process_start start = { 0 };
	int r = process_start_parse(start_json, strlen(start_json), &start, reterr);

	if (r < 0)
		return r;
	r = guest_start_append(out, &start, &options, reterr);
	process_start_deinit(&start);
	return r;
}

static int input_to_guest(struct buf *out, struct err *reterr)
{
	struct process_input input = { 0 };
	int r = process_input_parse(input_json, strlen(input_json), &input, reterr);

	if (r < 0)
		return r;
	r = guest_input_append(out, &input.process, input.data, input.size, reterr);
	process_input_deinit(&input);
	return r;
}

static int list_to_guest(struct buf *out, struct err *reterr)
{
	return guest_list_append(out, reterr);
}

static int end_to_client(struct buf *out, struct err *reterr)
{
	struct failure_context context = { .sandbox = "aaaaaaaaaaaaaaaaaaaa", .began_us = 1, .took_us = 2 };
	struct err gone = ERR_NULL;
	int r;

	(void)err_set(&gone, FAIL_SANDBOX_GONE, 0, "The sandbox ended.");
	r = connect_end_append(out, &gone, &context);
	return r < 0 ? err_set(reterr, FAIL_NO_MEMORY, -r, "no memory") : 0;
}

static int (*const requests[])(struct buf *, struct err *) = { start_to_guest, input_to_guest, list_to_guest,
	end_to_client };

START_TEST(a_request_is_passed_on_whole_or_refused)
{
	static const char before[] = "what waits already";
	size_t whole = 0;

	for (unsigned long k = 1;; k++) {
		struct buf out = BUF_NULL(1 << 20);
		struct err err = ERR_NULL;
		bool failed;
		int r;

		ck_assert_int_eq(buf_append(&out, before, strlen(before)), 0);
		fault_arm(FAULT_MEMORY, k);
		r = requests[_i](&out, &err);
		failed = fault_disarm();
		ck_assert_mem_eq(buf_peek(&out), before, strlen(before));
		if (r < 0) {
			ck_assert(failed);
			ck_assert_str_eq(failure_info(err.code)->name, "NO_MEMORY");
			ck_assert_uint_eq(buf_size(&out), strlen(before));
		} else if (!failed) {
			whole = buf_size(&out);
		}
		buf_deinit(&out);
		if (!failed)
			break;
	}
	ck_assert_uint_gt(whole, strlen(before));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault-gateway");
	TCase *tcase = tcase_create("faults");

	tcase_add_loop_test(tcase, a_request_is_passed_on_whole_or_refused, 0, (int)ARRAY_LEN(requests));
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
