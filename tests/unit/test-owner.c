/* SPDX-License-Identifier: Apache-2.0
 *
 * What the node's owner asks on the node itself (core/owner.c): nothing new begins, what runs ends at the deadline and what sleeps
 * does not; one or all are stopped; a node that was removed keeps its sandboxes or ends them, as its owner wants.
 */
#include "lib/suite.h"
#include "unit/test-supervisor-rig.h"

#define OTHER "ddddddddddddddddddda"
#define MINUTE (60 * USEC_PER_SEC)

static void drain(bool drained, int64_t deadline_usec)
{
	struct sv_event event = { .type = SV_EV_OWNER_DRAIN };

	event.owner.drained = drained;
	event.owner.why = "a new disk";
	event.owner.deadline_usec = deadline_usec;
	feed(event);
}

static void stop(const char *id)
{
	struct sv_event event = { .type = SV_EV_OWNER_STOP };

	memcpy(event.sandbox, id, strlen(id) + 1);
	feed(event);
}

static void remove_node(void)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_NODE_REVOKED, 0, "This node's key was revoked.");
	feed((struct sv_event){ .type = SV_EV_REFUSED, .err = &err });
}

static bool is_ending(void)
{
	return state() == SV_STOPPING || state() == SV_KILLING;
}

static void reports_end(enum fail_code code)
{
	ck_assert_ptr_nonnull(report());
	ck_assert_int_eq(report()->end_reason, END_DRAINED);
	ck_assert_int_eq(report()->failure.code, code);
	ck_assert_int_eq(report()->failure.stage, STAGE_RUN);
}

START_TEST(nothing_new_begins_on_a_drained_node)
{
	drain(true, 0);
	ck_assert_ptr_nonnull(find(SV_DO_SEND_CAPACITY)); /* at once */
	ck_assert_int_eq(find(SV_DO_SEND_CAPACITY)->capacity->unschedulable.code, FAIL_NODE_DRAINING);
	ck_assert_ptr_nonnull(strstr(find(SV_DO_SEND_CAPACITY)->capacity->unschedulable.msg, "a new disk"));
	create(NULL, 0);
	ck_assert_ptr_nonnull(report());
	ck_assert_int_eq(report()->failure.code, FAIL_NODE_DRAINING);
	drain(false, 0);
	ck_assert_int_eq(find(SV_DO_SEND_CAPACITY)->capacity->unschedulable.code, FAIL_NONE);
	create_as(OTHER, 1, 1, spec_make(1000, NULL, 0), 0);
	ck_assert(!report() || !err_is_set(&report()->failure));
}
END_TEST

START_TEST(what_runs_ends_at_the_deadline)
{
	drive(SV_RUNNING, NULL, 0);
	drain(true, rig.now.mono_usec + MINUTE);
	later(MINUTE - 1);
	ck_assert_int_eq(state(), SV_RUNNING);
	ck_assert_int_eq(rig.out.next_usec <= rig.now.mono_usec + 1, 1); /* and it is woken for it */
	later(1);
	ck_assert(is_ending());
	reports_end(FAIL_NODE_DRAINED);
}
END_TEST

START_TEST(a_drain_that_is_taken_back_ends_nothing)
{
	drive(SV_RUNNING, NULL, 0);
	drain(true, rig.now.mono_usec + MINUTE);
	drain(false, 0);
	later(2 * MINUTE);
	ck_assert_int_eq(state(), SV_RUNNING);
	drain(true, 0); /* without a deadline */
	later(1000 * MINUTE);
	ck_assert_int_eq(state(), SV_RUNNING);
}
END_TEST

/* The drain of an agent's earlier life comes before START, its deadline may be past; what lives is adopted and then ended. */
START_TEST(a_drain_outlives_the_agent)
{
	drive(SV_RUNNING, NULL, 0);
	rig.core = supervisor_free(rig.core);
	sv_actions_clear(&rig.out);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	feed((struct sv_event){ .type = SV_EV_LOAD, .journal = &rig.saved });
	drain(true, rig.now.mono_usec);
	ck_assert_ptr_null(find(SV_DO_SEND_CAPACITY)); /* there is nobody yet to whom it is told */
	feed((struct sv_event){ .type = SV_EV_START });
	ck_assert_int_eq(rig.out.next_usec <= rig.now.mono_usec, 1);
	later(0);
	ck_assert(is_ending());
}
END_TEST

START_TEST(one_or_all_are_stopped)
{
	drive(SV_RUNNING, NULL, 0);
	create_as(OTHER, 1, 1, spec_make(1000, NULL, 0), 0);
	stop("eeeeeeeeeeeeeeeeeeea"); /* nobody */
	ck_assert_uint_eq(rig.out.n, 0);
	stop(ID);
	ck_assert(is_ending());
	reports_end(FAIL_OWNER_STOPPED);
	ck_assert_ptr_nonnull(find(SV_DO_NODE_EVENT));
	stop("");
	ck_assert_str_eq(find(SV_DO_JOURNAL_WRITE)->sandbox, OTHER); /* and the other is ending already */
	reports_end(FAIL_OWNER_STOPPED);
	stop("");
	ck_assert_uint_eq(rig.out.n, 0);
}
END_TEST

START_TEST(a_removed_node_keeps_its_sandboxes)
{
	drive(SV_RUNNING, NULL, 0);
	remove_node();
	ck_assert_int_eq(state(), SV_RUNNING);
	later(10 * MINUTE);
	ck_assert_int_eq(state(), SV_RUNNING);
}
END_TEST

START_TEST(or_ends_them_where_its_owner_wants_that)
{
	struct err err = ERR_NULL;

	rig.core = supervisor_free(rig.core);
	rig.config.stops_on_revoke = true;
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	feed((struct sv_event){ .type = SV_EV_START });
	feed((struct sv_event){ .type = SV_EV_CAPACITY,
		.capacity = &(struct sv_capacity){ .capacity = { 8000, 4, 10000, 4, 2, 4, 0 }, .disk_free_mib = 10000 } });
	connect_core();
	drive(SV_RUNNING, NULL, 0);
	(void)err_set(&err, FAIL_NODE_ID_IN_USE, 0, "another host");
	feed((struct sv_event){ .type = SV_EV_REFUSED, .err = &err });
	ck_assert_int_eq(state(), SV_RUNNING); /* that is no removal */
	remove_node();
	ck_assert(is_ending());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("owner");
	TCase *tc = tcase_create("owner");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, nothing_new_begins_on_a_drained_node);
	tcase_add_test(tc, what_runs_ends_at_the_deadline);
	tcase_add_test(tc, a_drain_that_is_taken_back_ends_nothing);
	tcase_add_test(tc, a_drain_outlives_the_agent);
	tcase_add_test(tc, one_or_all_are_stopped);
	tcase_add_test(tc, a_removed_node_keeps_its_sandboxes);
	tcase_add_test(tc, or_ends_them_where_its_owner_wants_that);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
