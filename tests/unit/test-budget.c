/* SPDX-License-Identifier: Apache-2.0
 *
 * Budgets: each limit ends or pauses a sandbox in time, also while its node is cut off and over restarts; raised ones hold; what is used up
 * does not wake.
 */
#include "test-supervisor-rig.h"

#define SEC USEC_PER_SEC

static struct sv_usage_saved saved;

static void keep(const struct sv_usage_saved *one, void *user)
{
	(void)user;
	saved = *one;
}

static struct sandbox_spec *spec_of(struct budget budget)
{
	struct sandbox_spec *spec = spec_make(1000, NULL, 0);

	spec->budget = budget;
	return spec;
}

static void run_with(struct budget budget)
{
	create_as(ID, 1, 1, spec_of(budget), 0);
	feed_of(SV_EV_IMAGE_DONE, NULL);
	feed_of(SV_EV_DISK_DONE, NULL);
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "");
	feed_of(SV_EV_VMM_STARTED, NULL);
	feed_of(SV_EV_VMM_USERSPACE, NULL);
	feed_guest(SV_EV_GUEST_HELLO, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	journalled(ID, 1);
}

static void read_vm(uint64_t cpu_us, uint64_t egress_bytes)
{
	struct sv_reading reading = { .generation = 1, .has_cpu = true, .has_egress = true, .cpu_us = cpu_us,
		.egress_bytes = egress_bytes };

	memcpy(reading.sandbox, ID, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_USED, .used = { &reading, 1 } });
}

/* The loop as the shell has it: it wakes when the core says. Returns after how long the sandbox does not run any more. */
static int64_t until_over(int64_t most_usec)
{
	const int64_t began = rig.now.mono_usec;

	while (state() == SV_RUNNING && rig.now.mono_usec - began < most_usec)
		later(MAX(MIN(rig.out.next_usec, began + most_usec) - rig.now.mono_usec, INT64_C(1)));
	return rig.now.mono_usec - began;
}

static bool has_event(const char *name)
{
	for (size_t i = 0; i < rig.out.n; i++)
		if (rig.out.items[i].type == SV_DO_NODE_EVENT && !strcmp(rig.out.items[i].event.name, name))
			return true;
	return false;
}

static void update(struct budget budget, const char *operation, uint64_t number)
{
	struct budget_command command = { .generation = 1, .budget = budget, .number = number };

	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, operation, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_BUDGET_UPDATE, .epoch = 1, .budget_update = &command });
}

static void resume(const struct budget *budget, const char *operation)
{
	struct resume_command command = { .generation = 1 };

	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, operation, ID_SIZE);
	command.has_budget = budget != NULL;
	if (budget)
		command.budget = *budget;
	feed((struct sv_event){ .type = SV_EV_RESUME, .epoch = 1, .resume = &command });
}

static void to_sleep(void)
{
	ck_assert_int_eq(state(), SV_PAUSING);
	feed_of(SV_EV_SNAPSHOT_DONE, NULL);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(state(), SV_PAUSED);
}

START_TEST(running_time_ends_at_its_moment_also_while_cut_off)
{
	int64_t took;

	run_with((struct budget){ .wall_us = 90 * SEC });
	if (_i)
		feed((struct sv_event){ .type = SV_EV_LINK_DOWN });
	took = until_over(300 * SEC);
	ck_assert_int_ge(took, 90 * SEC);
	ck_assert_int_le(took, 90 * SEC + 1000);
	ck_assert(has_event("budget-exceeded"));
	ck_assert_int_eq(state(), SV_KILLING);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(rig.saved.failure.code, FAIL_BUDGET_EXCEEDED);
	ck_assert_int_eq(rig.saved.end_reason, END_FAILED);
}
END_TEST

START_TEST(memory_ends_at_its_moment)
{
	int64_t took;

	/* 1000 MiB for 90.0005 s */
	run_with((struct budget){ .memory_mib_ms = 90000500 });
	took = until_over(300 * SEC);
	ck_assert_int_ge(took, 90 * SEC + 500);
	ck_assert_int_le(took, 90 * SEC + 3000);
}
END_TEST

START_TEST(cpu_and_egress_end_with_the_reading_that_has_it)
{
	run_with(_i ? (struct budget){ .egress_bytes = 5000 } : (struct budget){ .cpu_us = 5000 });
	read_vm(4999, 4999);
	ck_assert_int_eq(state(), SV_RUNNING);
	read_vm(5000, 5000);
	ck_assert_int_eq(state(), SV_KILLING);
	ck_assert_str_eq(rig.saved.failure.fields[0].value, _i ? "egress_bytes" : "cpu_us");
}
END_TEST

START_TEST(one_without_a_budget_goes_on)
{
	run_with((struct budget){ .pauses = true });
	read_vm(5000000000, 5000000000);
	ck_assert_int_eq(until_over(1000 * SEC), 1000 * SEC);
}
END_TEST

START_TEST(a_pause_keeps_it_and_a_higher_budget_wakes_it)
{
	const struct budget low = { .wall_us = 60 * SEC, .pauses = true }, high = { .wall_us = 100 * SEC, .pauses = true };

	run_with(low);
	(void)until_over(300 * SEC);
	to_sleep();
	resume(NULL, "rrrrrrrrrrrrrrrrrrrr");
	ck_assert_int_eq(state(), SV_PAUSED);
	ck_assert_int_eq(report()->update_failure.code, FAIL_BUDGET_EXCEEDED);
	resume(&low, "ssssssssssssssssssss");
	ck_assert_int_eq(state(), SV_PAUSED);
	later(500 * SEC); /* sleep costs none */
	resume(&high, "tttttttttttttttttttt");
	ck_assert_int_eq(state(), SV_WAKE_NETWORK);
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "");
	feed_of(SV_EV_VMM_STARTED, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	feed_of(SV_EV_THAWED, NULL);
	ck_assert_int_eq(state(), SV_RUNNING);
	ck_assert_int_ge(until_over(300 * SEC), 39 * SEC);
	ck_assert_int_eq(state(), SV_PAUSING);
}
END_TEST

START_TEST(a_pause_that_does_not_come_to_be_is_no_way_out)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_PAUSE_FAILED, 0, "test");
	run_with((struct budget){ .wall_us = 10 * SEC, .pauses = true });
	for (int i = 0; i < 3; i++) {
		(void)until_over(300 * SEC);
		ck_assert_int_eq(state(), SV_PAUSING);
		feed_of(SV_EV_SNAPSHOT_DONE, &err);
		feed_of(SV_EV_THAWED, NULL);
		ck_assert_int_eq(state(), SV_RUNNING);
	}
	ck_assert_int_le(until_over(300 * SEC), SEC);
	ck_assert_int_eq(state(), SV_KILLING);
}
END_TEST

START_TEST(a_live_change_holds_and_a_write_that_fails_takes_it_back)
{
	run_with((struct budget){ .wall_us = 60 * SEC });
	later(50 * SEC);
	update((struct budget){ .wall_us = 200 * SEC }, "uuuuuuuuuuuuuuuuuuuu", 1);
	ck_assert_str_eq(report()->updated, "uuuuuuuuuuuuuuuuuuuu");
	ck_assert_uint_eq(rig.saved.spec->budget.wall_us, 200 * SEC);
	ck_assert_int_ge(until_over(100 * SEC), 100 * SEC);
	update((struct budget){ .wall_us = 999 * SEC }, "vvvvvvvvvvvvvvvvvvvv", 2);
	feed_of(SV_EV_JOURNAL_FAILED, NULL);
	ck_assert_int_le(until_over(300 * SEC), 51 * SEC);
	ck_assert_int_eq(state(), SV_KILLING);
}
END_TEST

START_TEST(a_lower_budget_than_was_used_ends_it_at_once)
{
	run_with((struct budget){ .wall_us = 60 * SEC });
	later(50 * SEC);
	update((struct budget){ .wall_us = 40 * SEC }, "uuuuuuuuuuuuuuuuuuuu", 1);
	ck_assert_int_le(until_over(300 * SEC), 1000);
	update((struct budget){ .wall_us = 400 * SEC }, "vvvvvvvvvvvvvvvvvvvv", 1); /* too late */
	ck_assert_int_eq(state(), SV_KILLING);
}
END_TEST

START_TEST(a_restarted_agent_knows_what_is_left)
{
	struct sv_capacity capacity = { .capacity = { 8000, 4, 10000, 4, 2, 4, 0 }, .disk_free_mib = 10000 };
	int64_t took;

	run_with((struct budget){ .wall_us = 90 * SEC, .cpu_us = 5 * SEC });
	later(30 * SEC);
	read_vm(2 * SEC, 0);
	(void)supervisor_usage_take(rig.core, rig.now, keep, NULL);
	rig.now.mono_usec += 20 * SEC; /* without an agent */
	rig.now.real_usec += 20 * SEC;
	rig.core = supervisor_free(rig.core);
	sv_actions_clear(&rig.out);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	feed((struct sv_event){ .type = SV_EV_LOAD, .journal = &rig.saved });
	feed((struct sv_event){ .type = SV_EV_LOAD_USAGE, .saved = &saved });
	feed((struct sv_event){ .type = SV_EV_START });
	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &capacity });
	feed_guest(SV_EV_ADOPTED, NULL);
	ck_assert_int_eq(state(), SV_RUNNING);
	if (_i) {
		read_vm(5 * SEC, 0); /* of the group, which counted on */
		ck_assert_int_eq(state(), SV_KILLING);
		return;
	}
	took = until_over(300 * SEC);
	ck_assert_int_ge(took, 40 * SEC);
	ck_assert_int_le(took, 40 * SEC + 1000);
}
END_TEST

START_TEST(budgets_survive_the_wire)
{
	const struct budget budget = { 1, 2, 3, 4, true };
	struct sandbox_spec *spec = spec_of(budget), *back = NULL;
	Croft__SandboxSpec *message = spec_encode(spec);
	struct budget_command command = { .sandbox = ID, .operation = OP, .generation = 3, .number = 8, .budget = budget }, again;
	Croft__BudgetUpdate *update_message = budget_command_encode(&command);

	ck_assert_int_eq(spec_decode(message, &back, NULL), 0);
	ck_assert(budget_is_equal(&back->budget, &budget));
	ck_assert_int_eq(budget_command_decode(update_message, &again, NULL), 0);
	ck_assert(budget_is_equal(&again.budget, &budget));
	ck_assert_uint_eq(again.number, 8);
	update_message->budget->wall_us = UINT64_MAX;
	ck_assert_int_lt(budget_command_decode(update_message, &again, NULL), 0);
	protobuf_c_message_free_unpacked(&update_message->base, NULL);
	protobuf_c_message_free_unpacked(&message->base, NULL);
	spec_unref(spec);
	spec_unref(back);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("budget");
	TCase *tcase = tcase_create("budget");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, running_time_ends_at_its_moment_also_while_cut_off, 0, 2);
	tcase_add_test(tcase, memory_ends_at_its_moment);
	tcase_add_loop_test(tcase, cpu_and_egress_end_with_the_reading_that_has_it, 0, 2);
	tcase_add_test(tcase, one_without_a_budget_goes_on);
	tcase_add_test(tcase, a_pause_keeps_it_and_a_higher_budget_wakes_it);
	tcase_add_test(tcase, a_pause_that_does_not_come_to_be_is_no_way_out);
	tcase_add_test(tcase, a_live_change_holds_and_a_write_that_fails_takes_it_back);
	tcase_add_test(tcase, a_lower_budget_than_was_used_ends_it_at_once);
	tcase_add_loop_test(tcase, a_restarted_agent_knows_what_is_left, 0, 2);
	tcase_add_test(tcase, budgets_survive_the_wire);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
