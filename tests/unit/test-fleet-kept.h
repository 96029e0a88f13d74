/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test-fleet-snapshot.c, and of nothing else: what a tenant keeps counts.
 */
#pragma once

static void pause_parent(uint64_t request, struct fleet_quota quota)
{
	struct fleet_event event = { .type = FLEET_PAUSE };

	event.pause.request = request;
	event.pause.sandbox = PARENT;
	event.pause.quota = quota;
	feed(event);
}

START_TEST(test_a_quota_of_snapshots)
{
	make_snapshot();
	ask_snapshot_as(51, "tttttttttttttttttttt", (struct fleet_quota){ .snapshots = 1 });
	ck_assert_int_eq(answer_to(51), FAIL_QUOTA_EXCEEDED);
	ask_snapshot_as(52, "tttttttttttttttttttt", (struct fleet_quota){ .kept_disk_mib = 1139 });
	ck_assert_int_eq(answer_to(52), FAIL_QUOTA_EXCEEDED); /* 40 are used, 1100 it may take */
	ask_snapshot_as(53, "tttttttttttttttttttt", (struct fleet_quota){ .kept_disk_mib = 1140, .snapshots = 2 });
	ck_assert_ptr_null(reply_to(53));
}
END_TEST

START_TEST(test_a_quota_of_what_sleeps)
{
	struct fleet_quota used;
	struct fleet_resume resume = { .request = 83, .sandbox = PARENT, .quota = { .starts_per_minute = 1 } };

	pause_parent(80, (struct fleet_quota){ .kept_disk_mib = 1099 }); /* its memory is a file then */
	ck_assert_int_eq(answer_to(80), FAIL_QUOTA_EXCEEDED);
	pause_parent(81, (struct fleet_quota){ .kept_disk_mib = 1100, .paused = 1 });
	say(PARENT, REPORT_PAUSED, NULL, NULL, FAIL_NONE);
	ck_assert_int_eq(answer_to(81), FAIL_NONE);
	fleet_quota_used(rig.fleet, "tenant", &used);
	ck_assert_uint_eq(used.paused, 1);
	ck_assert_uint_eq(used.kept_disk_mib, 1100);
	ck_assert_uint_eq(used.sandboxes, 0);
	ck_assert_uint_eq(used.memory_mib, 0);
	feed((struct fleet_event){ .type = FLEET_RESUME, .resume = &resume });
	ck_assert_uint_eq(rig.n_resume, 1);
	fleet_quota_used(rig.fleet, "tenant", &used);
	ck_assert_uint_eq(used.paused, 0);
	ck_assert_uint_eq(used.kept_disk_mib, 0);
	ck_assert_uint_eq(used.sandboxes, 1);
	say(PARENT, REPORT_RUNNING, NULL, NULL, FAIL_NONE);
	create("qqqqqqqqqqqqqqqqqqqq", "", 84, (struct fleet_quota){ .starts_per_minute = 1 }); /* that was this minute's */
	ck_assert_int_eq(answer_to(84), FAIL_QUOTA_EXCEEDED);
}
END_TEST

static void add_kept_tests(TCase *tc)
{
	tcase_add_test(tc, test_a_quota_of_snapshots);
	tcase_add_test(tc, test_a_quota_of_what_sleeps);
}
