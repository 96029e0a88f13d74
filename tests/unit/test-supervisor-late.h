/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test-supervisor.c, and of nothing else: what comes later than what was sent after it.
 */
#pragma once

static void update(const char *operation, uint64_t number, uint32_t timeout_s)
{
	struct update_command command = { .generation = 1, .timeout_s = timeout_s, .number = number };

	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, operation, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_UPDATE, .epoch = 1, .update = &command });
}

/* Somebody was told that the second holds. */
START_TEST(test_a_life_time_that_was_overtaken_changes_nothing)
{
	drive(SV_RUNNING, NULL, 20);
	update("cccccccccccccccccccc", 8, 100);
	ck_assert_str_eq(report()->updated, "cccccccccccccccccccc");
	update("bbbbbbbbbbbbbbbbbbbb", 7, 5);
	ck_assert_ptr_null(find(SV_DO_JOURNAL_WRITE));
	ck_assert_str_eq(report()->updated, "cccccccccccccccccccc");
	later(50 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_RUNNING);
	update("dddddddddddddddddddd", 9, 5);
	later(6 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_KILLING);
}
END_TEST

START_TEST(test_a_policy_that_was_overtaken_changes_nothing)
{
	struct network_command command = { .generation = 1, .network = { .internet = false }, .number = 7 };

	drive(SV_RUNNING, NULL, 0);
	update("cccccccccccccccccccc", 8, 100);
	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, OP, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_NETWORK_UPDATE, .epoch = 1, .network_update = &command });
	ck_assert_ptr_null(find(SV_DO_SET_NETWORK));
	command.number = 9;
	feed((struct sv_event){ .type = SV_EV_NETWORK_UPDATE, .epoch = 1, .network_update = &command });
	ck_assert_ptr_nonnull(find(SV_DO_SET_NETWORK));
}
END_TEST

/* It ran, was destroyed, and its tombstone waits to be acknowledged. */
static void ended_by(uint64_t generation)
{
	drive(SV_RUNNING, NULL, 0);
	destroy(generation);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(state(), SV_ENDED);
}

/* The last create was answered, changed nothing, and the acknowledgement takes the record away. */
static void only_the_tombstone_goes(void)
{
	ck_assert_int_eq(report()->state, REPORT_ENDED);
	ck_assert_int_eq(state(), SV_ENDED);
	ack(1000);
	ck_assert_ptr_nonnull(find(SV_DO_JOURNAL_REMOVE));
}

/* Its end was known already, and a create of what was ended comes after all: the tombstone stays until it is acknowledged,
 * and goes then. */
START_TEST(test_a_create_after_its_destroy_leaves_no_record)
{
	ended_by(2);
	destroy(2); /* again: of generation 2 there is nothing here, which is remembered */
	take(1, 2, NULL, 0);
	only_the_tombstone_goes();
}
END_TEST

/* The same, where there is no room for it. */
START_TEST(test_a_refused_create_leaves_no_record)
{
	ended_by(1);
	create_as(ID, 2, 1, spec_make(UINT64_C(1) << 20, NULL, 0), 0);
	only_the_tombstone_goes();
}
END_TEST

/* The VM's end was on its way when the VM became somebody's. */
START_TEST(test_a_warm_vm_that_ended_as_it_was_taken)
{
	drive(SV_RUNNING, NULL, 0);
	take(1, 2, NULL, 0);
	ck_assert_int_eq(state(), SV_GUEST);
	feed_exit(SV_EXIT_LEASE, true); /* of generation 1 */
	ck_assert_int_ne(state(), SV_GUEST);
	ck_assert_ptr_nonnull(find(SV_DO_REMOVE_FILES));
}
END_TEST
