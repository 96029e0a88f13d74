/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test-fleet.c, and of nothing else: what was begun on a node that does not say how it went.
 */
#pragma once

/* The node took the command and fell silent: no second VM, the room stays taken, the node is told when it calls. */
START_TEST(test_silent_node_is_not_doubled)
{
	drive(SANDBOX_STARTING);
	later(121 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SANDBOX_RECALL);
	ck_assert_ptr_null(sent(SEND_CREATE));
	later(31 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SANDBOX_FENCED);
	ck_assert(err_is_set(&rig.out.replies[0].err));
	ck_assert_uint_gt(reserved(), 0);
	greet(rig.node);
	later(20 * USEC_PER_SEC);
	ck_assert_ptr_nonnull(sent(SEND_DESTROY));
	report(REPORT_ENDED, FAIL_NONE);
	ck_assert_int_eq(state(), SANDBOX_ENDED);
	ck_assert_uint_eq(reserved(), 0);
}
END_TEST

/* An end that its node never confirms is remembered for 30 days, with its room; then it is over, and the history has why. */
START_TEST(test_a_fence_ends_by_itself)
{
	struct fleet_config config;

	fleet_config_default(&config);
	drive(SANDBOX_FENCED);
	later(config.fence_usec - 60 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SANDBOX_FENCED);
	ck_assert_uint_gt(reserved(), 0);
	later(61 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SANDBOX_ENDED);
	ck_assert_uint_eq(reserved(), 0);
	ck_assert(rig.has_history);
	ck_assert_int_eq(rig.saved.end_reason, END_REQUEST); /* as was asked for */
}
END_TEST

START_TEST(test_recall_confirmed_is_tried_elsewhere)
{
	drive(SANDBOX_RECALL);
	ck_assert_ptr_nonnull(sent(SEND_DESTROY));
	report(REPORT_ENDED, FAIL_NONE);
	ck_assert_int_eq(state(), SANDBOX_BACKOFF);
	ck_assert_uint_eq(rig.saved.attempts, 2);
}
END_TEST

static void add_silent_tests(TCase *tcase)
{
	tcase_add_test(tcase, test_silent_node_is_not_doubled);
	tcase_add_test(tcase, test_a_fence_ends_by_itself);
	tcase_add_test(tcase, test_recall_confirmed_is_tried_elsewhere);
}
