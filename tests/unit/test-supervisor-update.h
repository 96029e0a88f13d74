/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test-supervisor.c, and of nothing else: life times that change while a sandbox runs.
 */
#pragma once

START_TEST(test_life_time_is_changed_and_confirmed)
{
	struct update_command command = { .generation = 1, .timeout_s = 100 };

	drive(SV_RUNNING, NULL, 20);
	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, OP, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_UPDATE, .epoch = 1, .update = &command });
	ck_assert_uint_lt(place_of(SV_DO_JOURNAL_WRITE), place_of(SV_DO_SEND_REPORT));
	ck_assert_str_eq(report()->updated, OP);
	later(50 * USEC_PER_SEC);
	feed((struct sv_event){
		.type = SV_EV_UPDATE, .epoch = 1, .update = &command }); /* again: no new life */
	later(49 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_RUNNING);
	later(2 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_KILLING);
}
END_TEST

/* R046: the disk of the node is full. Nothing is promised that a restart of the agent would not keep. */
START_TEST(test_life_time_that_was_not_journalled_is_not_confirmed)
{
	struct update_command command = { .generation = 1, .timeout_s = 100 };
	struct err err = ERR_NULL;

	drive(SV_RUNNING, NULL, 20);
	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, OP, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_UPDATE, .epoch = 1, .update = &command });
	(void)err_set(&err, FAIL_DISK_FULL, ENOSPC, "no space");
	feed_of(SV_EV_JOURNAL_FAILED, &err);
	/* asked again: it is no repetition of something that was done */
	feed((struct sv_event){ .type = SV_EV_UPDATE, .epoch = 1, .update = &command });
	ck_assert_uint_lt(place_of(SV_DO_JOURNAL_WRITE), place_of(SV_DO_SEND_REPORT));
	feed_of(SV_EV_JOURNAL_FAILED, &err);
	/* and until it is, the former end holds, neither later nor earlier */
	later(19 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_RUNNING);
	later(2 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_KILLING);
}
END_TEST
