/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's core and live forks (core/snapshot.c, core/frozen.c): what is frozen has its room before it is asked for, counts once,
 * and until the last VM that maps it has ended; a fork's own snapshot lies in memory and goes with the agent.
 */
#include <errno.h>

#include "lib/suite.h"
#include "test-supervisor-rig.h"

#define TAKE_OP "dddddddddddddddddddd"
#define SNAP "ssssssssssssssssssss"
#define CHILD "ffffffffffffffffffff"

static const struct sv_frozen_list frozen = { .items = { { 77, 1000 }, { 78, 30 } }, .n = 2 };

static void ask_fork(void)
{
	struct snapshot_command command = { .generation = 1, .is_live = true };

	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, TAKE_OP, ID_SIZE);
	memcpy(command.snapshot, SNAP, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_SNAPSHOT, .epoch = 1, .take = &command });
}

static void feed_taken(const struct sv_frozen_list *list, const struct err *err)
{
	struct sv_event event;

	memset(&event, 0, sizeof(event));
	event.type = SV_EV_SNAPSHOT_TAKEN;
	event.generation = 1;
	memcpy(event.sandbox, ID, ID_SIZE);
	event.taken.err = err;
	event.taken.frozen = list;
	event.taken.size_mib = 5;
	feed(event);
}

static void feed_for(const char *sandbox, enum sv_event_type type)
{
	struct sv_event event;

	memset(&event, 0, sizeof(event));
	event.type = type;
	event.generation = 1;
	memcpy(event.sandbox, sandbox, ID_SIZE);
	feed(event);
}

static uint64_t frozen_now(void)
{
	struct sv_counts counts;

	supervisor_count(rig.core, &counts);
	return counts.frozen_mib;
}

static const struct err *why_by_files(void)
{
	for (size_t i = 0; i < rig.out.n; i++)
		if (rig.out.items[i].type == SV_DO_NODE_EVENT && !strcmp(rig.out.items[i].event.name, "fork-by-snapshot"))
			return rig.out.items[i].event.err;
	return NULL;
}

static void fork_one(void)
{
	drive(SV_RUNNING, NULL, 0);
	ask_fork();
	feed_taken(&frozen, NULL);
	feed_of(SV_EV_THAWED, NULL);
}

static void begin_child(const char *id)
{
	struct sandbox_spec *spec = spec_make(1000, NULL, 0);

	memcpy(spec->snapshot, SNAP, ID_SIZE);
	create_as(id, 1, 1, spec, 0);
}

static void destroy_child(void)
{
	struct destroy_command command = { .generation = 1, .reason = END_REQUEST };

	memcpy(command.sandbox, CHILD, ID_SIZE);
	memcpy(command.operation, OP, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_DESTROY, .epoch = 1, .destroy = &command });
}

static void drop(void)
{
	struct sv_event event;

	feed((struct sv_event){ .type = SV_EV_DROP_SNAPSHOT, .epoch = 1, .drop = SNAP });
	memset(&event, 0, sizeof(event));
	event.type = SV_EV_SNAPSHOT_DROPPED;
	event.dropped.snapshot = SNAP;
	feed(event);
}

START_TEST(it_is_answered_when_it_runs_again_and_nothing_is_kept)
{
	drive(SV_RUNNING, NULL, 0);
	ck_assert_uint_eq(frozen_now(), 0);
	ask_fork();
	ck_assert(find(SV_DO_TAKE_SNAPSHOT)->snapshot->is_live);
	ck_assert_uint_eq(find(SV_DO_TAKE_SNAPSHOT)->frozen_mib, 1000);
	ck_assert_uint_lt(place_of(SV_DO_JOURNAL_WRITE), place_of(SV_DO_TAKE_SNAPSHOT));
	ck_assert_uint_eq(frozen_now(), 1000); /* its room, before there is anything */
	ck_assert_uint_eq(rig.saved.frozen.n, 1);
	feed_taken(&frozen, NULL);
	ck_assert_ptr_nonnull(find(SV_DO_THAW));
	ck_assert_ptr_null(find(SV_DO_KEEP_SNAPSHOT));
	ck_assert_ptr_null(report());
	feed_of(SV_EV_THAWED, NULL);
	ck_assert_str_eq(report()->updated, TAKE_OP);
	ck_assert(!err_is_set(&report()->update_failure));
	ck_assert_str_eq(report()->snapshot->id, SNAP);
	ck_assert(report()->snapshot->is_live);
	ck_assert_uint_eq(report()->snapshot->size_mib, 5);
	ck_assert_uint_eq(frozen_now(), 1030);
	ck_assert_uint_eq(rig.saved.frozen.n, 2);
}
END_TEST

/* Shared by three, counted once; it goes with the last of them, whichever that is. */
START_TEST(what_is_frozen_counts_once_and_goes_with_its_last_user)
{
	struct sv_counts before, counts;

	fork_one();
	supervisor_count(rig.core, &before);
	begin_child(CHILD);
	ck_assert_ptr_nonnull(find(SV_DO_FETCH_IMAGE));
	supervisor_count(rig.core, &counts);
	ck_assert_uint_eq(counts.frozen_mib, 1030);
	ck_assert_uint_gt(counts.memory_mib, before.memory_mib); /* its own it has besides */
	feed_for(CHILD, SV_EV_IMAGE_DONE);
	ck_assert_ptr_nonnull(find(SV_DO_MAKE_DISK));
	if (_i == 0) { /* the parent first */
		destroy(1);
		feed_exit(SV_EXIT_KILLED, true);
		feed_of(SV_EV_REMOVED, NULL);
		ck_assert_int_eq(state(), SV_ENDED);
		ck_assert_uint_eq(frozen_now(), 1030);
	}
	feed((struct sv_event){ .type = SV_EV_DROP_SNAPSHOT, .epoch = 1, .drop = SNAP });
	ck_assert_ptr_null(find(SV_DO_DROP_KEPT)); /* the child's VMM has no descriptors yet */
	destroy_child();
	feed_for(CHILD, SV_EV_REMOVED);
	ck_assert_uint_eq(frozen_now(), 1030); /* others may begin as it */
	drop();
	ck_assert_uint_eq(frozen_now(), _i == 0 ? 0 : 1030);
	if (_i == 0)
		return;
	destroy(1);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_uint_eq(frozen_now(), 0);
}
END_TEST

/* The scheduler places by what is left beside it. */
START_TEST(the_room_of_what_is_frozen_is_told)
{
	drive(SV_RUNNING, NULL, 0);
	ask_fork();
	feed_taken(&frozen, NULL);
	feed_of(SV_EV_THAWED, NULL);
	later(6 * USEC_PER_SEC);
	ck_assert_uint_eq(find(SV_DO_SEND_CAPACITY)->capacity->capacity.frozen_mib, 1030);
	ck_assert_uint_eq(find(SV_DO_SEND_CAPACITY)->capacity->capacity.memory_mib, 8000);
	feed((struct sv_event){ .type = SV_EV_LINK_DOWN });
	feed((struct sv_event){ .type = SV_EV_LINK_UP });
	ck_assert_uint_eq(find(SV_DO_SEND_HELLO)->hello->capacity.frozen_mib, 1030);
	connect_core();
	drop();
	destroy(1);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	later(6 * USEC_PER_SEC);
	ck_assert_uint_eq(find(SV_DO_SEND_CAPACITY)->capacity->capacity.frozen_mib, 0);
}
END_TEST

START_TEST(without_room_it_goes_by_files_and_says_so)
{
	struct sv_capacity capacity = { .capacity = { 1500, 4, 10000, 4, 2, 4, 0 }, .disk_free_mib = 10000 };

	drive(SV_RUNNING, NULL, 0);
	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &capacity });
	ask_fork();
	ck_assert_int_eq(why_by_files()->code, FAIL_CAPACITY_STALE);
	ck_assert_int_eq(why_by_files()->stage, STAGE_FORK);
	ck_assert(!find(SV_DO_TAKE_SNAPSHOT)->snapshot->is_live);
	ck_assert_uint_eq(frozen_now(), 0);
	feed_taken(NULL, NULL);
	ck_assert_ptr_nonnull(find(SV_DO_KEEP_SNAPSHOT));
}
END_TEST

/* The shell could not have it from the VMM: room that is not needed is given back. */
START_TEST(one_of_files_is_made_durable)
{
	drive(SV_RUNNING, NULL, 0);
	ask_fork();
	feed_taken(&(struct sv_frozen_list){ .n = 0 }, NULL);
	ck_assert_ptr_nonnull(find(SV_DO_KEEP_SNAPSHOT));
	ck_assert(!find(SV_DO_KEEP_SNAPSHOT)->snapshot->is_live);
	ck_assert_uint_eq(frozen_now(), 0);
}
END_TEST

enum fault { NOT_JOURNALLED, NOT_TAKEN, FROZEN_AND_NOT_TAKEN, TAKES_TOO_LONG, FAULTS };

START_TEST(one_that_fails)
{
	static const uint64_t left[] = { 0, 0, 1030, 1000 }; /* what is frozen stays so; what may be is counted as if */
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_DISK_FULL, ENOSPC, "no");
	drive(SV_RUNNING, NULL, 0);
	ask_fork();
	if (_i == NOT_JOURNALLED)
		feed_of(SV_EV_JOURNAL_FAILED, &err);
	else if (_i == TAKES_TOO_LONG)
		later(301 * USEC_PER_SEC);
	else
		feed_taken(_i == NOT_TAKEN ? NULL : &frozen, &err);
	ck_assert_str_eq(find(SV_DO_DROP_KEPT)->snapshot_id, SNAP);
	if (_i != NOT_JOURNALLED)
		feed_of(SV_EV_THAWED, NULL);
	ck_assert_int_eq(state(), SV_RUNNING);
	ck_assert_str_eq(report()->updated, TAKE_OP);
	ck_assert(err_is_set(&report()->update_failure));
	ck_assert_ptr_null(report()->snapshot);
	ck_assert_uint_eq(frozen_now(), left[_i]);
	ck_assert_uint_eq(rig.saved.frozen.n, _i == FROZEN_AND_NOT_TAKEN ? 2 : _i == TAKES_TOO_LONG);
}
END_TEST

static void restart_agent(const struct sv_journal *journal)
{
	rig.core = supervisor_free(rig.core);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	feed((struct sv_event){ .type = SV_EV_LOAD, .journal = journal });
	feed((struct sv_event){ .type = SV_EV_START });
}

static void connect_again(void)
{
	struct sv_capacity capacity = { .capacity = { 8000, 4, 10000, 4, 2, 4, 0 }, .disk_free_mib = 10000 };

	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &capacity });
	connect_core();
}

/* kill -9 at each moment: the sandbox runs on; the fork is answered as not done; what is, or may be, frozen still counts. */
START_TEST(the_agent_dies)
{
	drive(SV_RUNNING, NULL, 0);
	ask_fork();
	if (_i > 0)
		feed_taken(&frozen, NULL);
	if (_i > 1)
		feed_of(SV_EV_THAWED, NULL);
	restart_agent(&rig.saved);
	ck_assert_ptr_nonnull(find(SV_DO_ADOPT_VMM));
	feed_guest(SV_EV_ADOPTED, NULL);
	ck_assert_int_eq(state(), SV_RUNNING);
	ck_assert(!find(SV_DO_THAW) == (_i > 1));
	ck_assert_uint_eq(frozen_now(), _i > 1 ? 1030 : 1000);
	if (_i <= 1)
		feed_of(SV_EV_THAWED, NULL);
	connect_again();
	later(20 * USEC_PER_SEC);
	ck_assert_str_eq(report()->updated, TAKE_OP);
	ck_assert_int_eq(report()->update_failure.code, FAIL_SNAPSHOT_FAILED);
	ck_assert_ptr_null(report()->snapshot);
}
END_TEST

/* Where the VM says that it froze nothing, what was reserved for it is free again; else it may be that. */
START_TEST(the_agent_dies_and_nothing_was_frozen)
{
	static const uint64_t counted[] = { 0, 1000, 1030 };
	struct sv_event event = { .type = SV_EV_ADOPTED, .generation = 1 };

	if (_i == 2) {
		fork_one();
	} else {
		drive(SV_RUNNING, NULL, 0);
		ask_fork();
		ck_assert_uint_eq(rig.saved.frozen.n, 1);
	}
	restart_agent(&rig.saved);
	memcpy(event.sandbox, ID, ID_SIZE);
	event.guest.boot_id = "guest-boot";
	event.guest.is_unforked = _i != 1;
	feed(event);
	ck_assert_int_eq(state(), SV_RUNNING);
	ck_assert_uint_eq(frozen_now(), counted[_i]);
	ck_assert_uint_eq(rig.saved.frozen.n, (uint32_t)_i); /* the next agent counts the same */
}
END_TEST

/* A child that had no VMM yet has nothing to begin as; it is not begun as something else. */
START_TEST(a_child_that_had_not_begun)
{
	struct sv_journal journal = { .state = (enum sv_state)_i, .generation = 1, .frozen = frozen };

	memcpy(journal.sandbox, CHILD, ID_SIZE);
	journal.spec = spec_make(1000, NULL, 0);
	memcpy(journal.spec->snapshot, SNAP, ID_SIZE);
	drive(SV_RUNNING, NULL, 0);
	restart_agent(&journal);
	ck_assert_ptr_null(find(SV_DO_FETCH_IMAGE));
	ck_assert_ptr_nonnull(find(SV_DO_REMOVE_FILES));
	feed_for(CHILD, SV_EV_REMOVED);
	connect_again();
	later(20 * USEC_PER_SEC);
	ck_assert_int_eq(report()->state, REPORT_ENDED);
	ck_assert_int_eq(report()->failure.code, FAIL_SNAPSHOT_LOST);
	sv_journal_deinit(&journal);
}
END_TEST

/* Asleep it maps nothing: its snapshot has all of its memory. */
START_TEST(a_fork_that_sleeps)
{
	struct pause_command command = { .generation = 1 };

	fork_one();
	drop();
	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, CHILD, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_PAUSE, .epoch = 1, .pause = &command });
	feed_of(SV_EV_SNAPSHOT_DONE, NULL);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(state(), SV_PAUSED);
	ck_assert_uint_eq(frozen_now(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("supervisor-fork");
	TCase *tcase = tcase_create("supervisor-fork");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, it_is_answered_when_it_runs_again_and_nothing_is_kept);
	tcase_add_loop_test(tcase, what_is_frozen_counts_once_and_goes_with_its_last_user, 0, 2);
	tcase_add_test(tcase, the_room_of_what_is_frozen_is_told);
	tcase_add_test(tcase, without_room_it_goes_by_files_and_says_so);
	tcase_add_test(tcase, one_of_files_is_made_durable);
	tcase_add_loop_test(tcase, one_that_fails, 0, FAULTS);
	tcase_add_loop_test(tcase, the_agent_dies_and_nothing_was_frozen, 0, 3);
	tcase_add_loop_test(tcase, the_agent_dies, 0, 3);
	tcase_add_loop_test(tcase, a_child_that_had_not_begun, SV_IMAGE, SV_VMM);
	tcase_add_test(tcase, a_fork_that_sleeps);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
