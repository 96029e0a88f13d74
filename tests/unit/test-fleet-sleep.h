/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test-fleet.c, and of nothing else: sandboxes that sleep.
 */
#pragma once

static void ask_pause(uint64_t request)
{
	struct fleet_event event = { .type = FLEET_PAUSE };

	event.pause.request = request;
	event.pause.sandbox = rig.id;
	feed(event);
}

static void ask_resume(uint64_t request, uint32_t timeout_s)
{
	struct fleet_resume resume = { .request = request, .sandbox = rig.id, .timeout_s = timeout_s };

	feed((struct fleet_event){ .type = FLEET_RESUME, .resume = &resume });
}

/* From RUNNING. */
static void drive_sleep(enum sandbox_state to)
{
	ask_pause(44);
	if (to == SANDBOX_PAUSING)
		return;
	report(REPORT_PAUSED, FAIL_NONE);
	if (to == SANDBOX_RESUMING)
		ask_resume(45, 0);
}

/* Answers to the last operation: not done. */
static void report_undone(enum report_state state, enum fail_code code)
{
	struct fleet_event event = of_node(FLEET_NODE_REPORT, rig.node);
	struct sandbox_report report = { .generation = rig.generation, .state = state, .accepted = true };

	memcpy(report.sandbox, rig.id, ID_SIZE);
	memcpy(report.updated, rig.saved.operation, ID_SIZE);
	report.version = ++rig.version;
	if (code != FAIL_NONE)
		(void)err_set(&report.update_failure, code, 0, "It failed.");
	event.report = &report;
	feed(event);
}

static const struct fleet_reply *reply_to(uint64_t request)
{
	for (size_t i = 0; i < rig.out.n_replies; i++)
		if (rig.out.replies[i].request == request)
			return &rig.out.replies[i];
	return NULL;
}

static struct fleet_node_view node_view(void)
{
	struct fleet_node_view view;

	ck_assert_int_eq(fleet_node_get(rig.fleet, rig.node, &view), 0);
	return view;
}

/* Its node says so: only then its room is another's. */
START_TEST(test_a_pause_gives_back_its_room)
{
	drive(SANDBOX_RUNNING);
	ask_pause(44);
	ck_assert_ptr_nonnull(sent(SEND_PAUSE));
	ck_assert_uint_eq(rig.out.n_replies, 0);
	ck_assert_int_eq(rig.saved.state, SANDBOX_PAUSING);
	ck_assert_uint_gt(reserved(), 0);
	pass(3);
	ask_pause(45); /* it may yet come to nothing: no answer either */
	ck_assert_uint_eq(rig.out.n_replies, 0);
	report(REPORT_RUNNING, FAIL_NONE); /* from before */
	ck_assert_int_eq(state(), SANDBOX_PAUSING);
	report(REPORT_PAUSED, FAIL_NONE);
	ck_assert_int_eq(reply_to(44)->err.code, FAIL_NONE);
	ck_assert_int_eq(reply_to(45)->err.code, FAIL_NONE);
	ck_assert_int_eq(rig.saved.state, SANDBOX_PAUSED);
	ck_assert_uint_eq(reserved(), 0);
	ck_assert_uint_eq(node_view().disk_reserved_mib, 100);
	ck_assert_uint_eq(node_view().cpus_reserved, 0);
	ck_assert_uint_eq(node_view().n_sandboxes, 0);
	ask_pause(46);
	ck_assert_int_eq(reply_to(46)->err.code, FAIL_CONFLICT);
}
END_TEST

START_TEST(test_two_wake_one_that_sleeps)
{
	drive(SANDBOX_PAUSED);
	ask_resume(44, 30);
	ck_assert_ptr_nonnull(sent(SEND_RESUME));
	ck_assert_uint_eq(sent(SEND_RESUME)->resume.timeout_s, 30);
	ck_assert_uint_gt(reserved(), 0); /* before it wakes */
	ask_resume(45, 30);
	ck_assert_ptr_null(sent(SEND_RESUME));
	report(REPORT_PAUSED, FAIL_NONE); /* from before */
	ck_assert_int_eq(state(), SANDBOX_RESUMING);
	report(REPORT_RUNNING, FAIL_NONE);
	ck_assert_int_eq(reply_to(44)->err.code, FAIL_NONE);
	ck_assert_int_eq(reply_to(45)->err.code, FAIL_NONE);
	ck_assert_int_eq(rig.saved.state, SANDBOX_RUNNING);
	ck_assert_int_eq(rig.saved.ends_us, rig.now.real_usec + 30 * USEC_PER_SEC);
	ask_resume(46, 0);
	ck_assert_int_eq(reply_to(46)->err.code, FAIL_NONE); /* it is awake */
}
END_TEST

/* Who wants it awake while it goes to sleep is answered when it does, and asks then. */
START_TEST(test_a_wake_waits_for_the_sleep)
{
	drive(SANDBOX_PAUSING);
	ask_resume(45, 30);
	ck_assert_uint_eq(rig.out.n_replies, 0);
	ck_assert_ptr_null(sent(SEND_RESUME));
	report(REPORT_PAUSED, FAIL_NONE);
	ck_assert_int_eq(reply_to(45)->err.code, FAIL_NONE);
	ck_assert_int_eq(reply_to(45)->sandbox->state, SANDBOX_PAUSED);
	ask_resume(46, 30);
	ck_assert_ptr_nonnull(sent(SEND_RESUME));
}
END_TEST

START_TEST(test_a_node_that_cannot_leaves_it_as_it_was)
{
	drive(_i ? SANDBOX_RESUMING : SANDBOX_PAUSING);
	report_undone(_i ? REPORT_PAUSED : REPORT_RUNNING, _i == 2 ? FAIL_NONE : FAIL_SNAPSHOT_FAILED);
	ck_assert_int_eq(reply_to(_i ? 45 : 44)->err.code, _i == 2 ? FAIL_RESUME_FAILED : FAIL_SNAPSHOT_FAILED);
	ck_assert_int_eq(state(), _i ? SANDBOX_PAUSED : SANDBOX_RUNNING);
	ck_assert_int_eq(reserved() > 0, _i == 0);
}
END_TEST

/* It is told nothing that it does not know, also when it was asked before. */
START_TEST(test_an_older_agent_is_not_asked)
{
	struct fleet_event event;
	struct hello hello;

	drive(_i ? SANDBOX_PAUSING : SANDBOX_RUNNING);
	event = of_node(FLEET_NODE_HELLO, rig.node);
	hello = hello_of(rig.node);
	hello.pauses = false;
	event.hello = &hello;
	feed(event);
	if (!_i) {
		ask_pause(44);
		ck_assert_int_eq(reply_to(44)->err.code, FAIL_PAUSE_UNSUPPORTED);
		ck_assert_int_eq(state(), SANDBOX_RUNNING);
	}
	pass(25);
	ck_assert_ptr_null(sent(SEND_PAUSE));
}
END_TEST

/* A command that is sent again says the same, one that is new a higher number. */
START_TEST(test_sleeps_are_numbered)
{
	uint64_t number;

	drive(SANDBOX_RUNNING);
	ask_pause(44);
	number = sent(SEND_PAUSE)->pause.number;
	ck_assert_uint_ne(number, 0);
	pass(25);
	ck_assert_uint_eq(sent(SEND_PAUSE)->pause.number, number);
	report(REPORT_PAUSED, FAIL_NONE);
	ask_resume(45, 0);
	ck_assert_uint_gt(sent(SEND_RESUME)->resume.number, number);
}
END_TEST

START_TEST(test_it_does_not_wake_without_room)
{
	drive(SANDBOX_PAUSED);
	for (int i = 0; i < 3; i++) { /* all nodes */
		struct sandbox_record saved;
		char id[ID_SIZE], node[ID_SIZE];
		uint64_t generation = rig.generation, version = rig.version;

		ck_assert_int_eq(sandbox_record_copy(&rig.saved, &saved), 0);
		memcpy(id, rig.id, ID_SIZE);
		memcpy(node, rig.node, ID_SIZE);
		create_of(7000, true);
		sandbox_record_deinit(&rig.saved);
		rig.saved = saved;
		memcpy(rig.id, id, ID_SIZE);
		memcpy(rig.node, node, ID_SIZE);
		rig.generation = generation;
		rig.version = version;
	}
	ask_resume(45, 0);
	ck_assert_int_eq(reply_to(45)->err.code, FAIL_NO_CAPACITY);
	ck_assert_int_eq(reply_to(45)->err.stage, STAGE_RESUME);
	ck_assert_str_eq(err_field(&reply_to(45)->err, "resource"), "memory");
	ck_assert_str_eq(err_field(&reply_to(45)->err, "largest"), "922"); /* of 8,000, beside 7,000 and what that VM costs */
	ck_assert_ptr_null(sent(SEND_RESUME));
	ck_assert_int_eq(state(), SANDBOX_PAUSED);
}
END_TEST

/* The node is silent: whoever waits is answered, the room stays taken, the command goes on. */
START_TEST(test_a_silent_node_is_asked_on)
{
	drive(_i ? SANDBOX_RESUMING : SANDBOX_PAUSING);
	pass(51);
	ck_assert_int_eq(reply_to(_i ? 45 : 44)->err.code, FAIL_NODE_UNREACHABLE);
	ck_assert_uint_gt(reserved(), 0);
	ck_assert_int_eq(state(), _i ? SANDBOX_RESUMING : SANDBOX_PAUSING);
	pass(25);
	ck_assert_ptr_nonnull(sent(_i ? SEND_RESUME : SEND_PAUSE));
	report(_i ? REPORT_RUNNING : REPORT_PAUSED, FAIL_NONE);
	ck_assert_int_eq(state(), _i ? SANDBOX_RUNNING : SANDBOX_PAUSED);
}
END_TEST

/* auto_pause: it is the node that ends its life so. */
START_TEST(test_a_node_pauses_by_itself)
{
	drive(SANDBOX_RUNNING);
	report(REPORT_PAUSED, FAIL_NONE);
	ck_assert_int_eq(rig.saved.state, SANDBOX_PAUSED);
	ck_assert_uint_eq(reserved(), 0);
	ck_assert_str_eq(rig.saved.events[rig.saved.n_events - 1].name, "PAUSED");
	ck_assert_int_eq(rig.saved.ends_us, 0);
}
END_TEST

START_TEST(test_what_sleeps_counts_against_no_quota)
{
	struct fleet_quota used;

	drive(SANDBOX_PAUSED);
	fleet_quota_used(rig.fleet, "tenant", &used);
	ck_assert_uint_eq(used.sandboxes, 0);
	ck_assert_uint_eq(used.memory_mib, 0);
	ask_resume(45, 0);
	fleet_quota_used(rig.fleet, "tenant", &used);
	ck_assert_uint_eq(used.sandboxes, 1);
}
END_TEST

START_TEST(test_it_may_end_in_its_sleep)
{
	drive((enum sandbox_state)_i);
	report(REPORT_ENDED, FAIL_VM_VANISHED);
	ck_assert_int_eq(state(), SANDBOX_ENDED);
	ck_assert_uint_eq(reserved(), 0);
	ck_assert_uint_eq(node_view().disk_reserved_mib, 0);
	if (_i != SANDBOX_PAUSED)
		ck_assert_int_eq(reply_to(_i == SANDBOX_PAUSING ? 44 : 45)->err.code, FAIL_VM_VANISHED);
}
END_TEST

/* What sleeps on a node that is drained is ended by the deadline, as what runs is. */
START_TEST(test_a_drain_ends_what_sleeps)
{
	struct fleet_event event;

	drive((enum sandbox_state)_i);
	event = of_node(FLEET_NODE_FACT, rig.node);
	event.fact.fact = NODE_DRAINING;
	event.fact.set = true;
	event.fact.who = "somebody";
	event.fact.why = "a reason";
	event.fact.until_us = rig.now.real_usec + 5 * USEC_PER_SEC;
	feed(event);
	ck_assert_str_eq(rig.saved.events[rig.saved.n_events - 1].name, "NODE_DRAIN");
	ck_assert_int_eq(state(), _i);
	pass(6);
	ck_assert_int_eq(state(), SANDBOX_STOPPING);
	ck_assert_int_eq(rig.saved.end_reason, END_DRAINED);
	ck_assert_int_eq(rig.saved.failure.code, FAIL_NODE_DRAINED);
}
END_TEST

/* A node takes a record that it cannot read for one that runs, also where it was of one that slept. */
START_TEST(test_a_sleeper_whose_record_is_torn_takes_a_place)
{
	struct capacity_report one = { .capacity = { 8000, 8, 50000, 1, 4, 4, 0 } };
	struct sandbox_report kept = { .accepted = true, .state = REPORT_PAUSED };
	struct inventory inventory = { .number = 9, .complete = true, .sandboxes = &kept, .n = 1 };
	struct fleet_event event;
	char where[ID_SIZE];

	create_of(1000, false);
	report(REPORT_RUNNING, FAIL_NONE);
	drive_sleep(SANDBOX_PAUSED);
	memcpy(where, rig.node, ID_SIZE);
	memcpy(kept.sandbox, rig.id, ID_SIZE);
	kept.generation = rig.generation;
	kept.version = ++rig.version;
	if (_i)
		(void)err_set(&kept.failure, FAIL_STATE_UNREADABLE, 0, "It is torn.");
	event = of_node(FLEET_NODE_INVENTORY, where);
	event.inventory = &inventory;
	feed(event);
	for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
		event = of_node(FLEET_NODE_CAPACITY, nodes[i]);
		event.capacity = &one;
		feed(event);
		event = of_node(FLEET_NODE_FACT, nodes[i]);
		event.fact.fact = NODE_CORDONED;
		event.fact.set = strcmp(nodes[i], where) != 0;
		event.fact.who = event.fact.why = "somebody";
		feed(event);
	}
	create_of(1000, false);
	if (_i)
		check_answer(FAIL_NO_CAPACITY);
	else
		ck_assert_uint_eq(rig.out.n_replies, 0);
}
END_TEST

static void add_sleep_tests(TCase *tcase)
{
	tcase_add_test(tcase, test_a_pause_gives_back_its_room);
	tcase_add_test(tcase, test_two_wake_one_that_sleeps);
	tcase_add_test(tcase, test_a_wake_waits_for_the_sleep);
	tcase_add_loop_test(tcase, test_a_node_that_cannot_leaves_it_as_it_was, 0, 3);
	tcase_add_loop_test(tcase, test_an_older_agent_is_not_asked, 0, 2);
	tcase_add_test(tcase, test_sleeps_are_numbered);
	tcase_add_test(tcase, test_it_does_not_wake_without_room);
	tcase_add_loop_test(tcase, test_a_silent_node_is_asked_on, 0, 2);
	tcase_add_test(tcase, test_a_node_pauses_by_itself);
	tcase_add_test(tcase, test_what_sleeps_counts_against_no_quota);
	tcase_add_loop_test(tcase, test_a_drain_ends_what_sleeps, SANDBOX_PAUSING, SANDBOX_RESUMING + 1);
	tcase_add_loop_test(tcase, test_a_sleeper_whose_record_is_torn_takes_a_place, 0, 2);
	tcase_add_loop_test(tcase, test_it_may_end_in_its_sleep, SANDBOX_PAUSING, SANDBOX_RESUMING + 1);
}
