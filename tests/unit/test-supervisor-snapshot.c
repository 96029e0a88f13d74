/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's core and snapshots (core/snapshot.c): one is taken beside a sandbox's life, from each moment of it on whatever
 * breaks; what is kept, dropped and told; a sandbox that begins as one.
 */
#include <errno.h>

#include "lib/suite.h"
#include "test-supervisor-rig.h"

#define TAKE_OP "dddddddddddddddddddd"
#define OTHER_OP "eeeeeeeeeeeeeeeeeeee"
#define SNAP "ssssssssssssssssssss"
#define CLONE "ffffffffffffffffffff"

static void take_numbered(const char *operation, const char *snapshot, uint64_t number)
{
	struct snapshot_command command = { .generation = 1, .number = number };

	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, operation, ID_SIZE);
	memcpy(command.snapshot, snapshot, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_SNAPSHOT, .epoch = 1, .take = &command });
}

static void take(void)
{
	take_numbered(TAKE_OP, SNAP, 0);
}

static struct snapshot_info info_of(const char *id)
{
	struct snapshot_info info = { .vcpus = 1, .memory_mib = 1000, .disk_mib = 100, .size_mib = 700 };

	memcpy(info.id, id, ID_SIZE);
	memcpy(info.sandbox, ID, ID_SIZE);
	memcpy(info.template_name, "base", 5);
	memcpy(info.image_digest, DIGEST, DIGEST_SIZE);
	return info;
}

static void feed_kept_of(const char *id, const struct err *err)
{
	struct snapshot_info info = info_of(id);
	struct sv_event event = { .type = SV_EV_SNAPSHOT_KEPT, .generation = 1 };

	memcpy(event.sandbox, ID, ID_SIZE);
	event.kept.info = &info;
	event.kept.err = err;
	feed(event);
}

static void feed_kept(const struct err *err)
{
	feed_kept_of(SNAP, err);
}

static void feed_dropped(const char *id, bool answer, const struct err *err)
{
	struct sv_event event = { .type = SV_EV_SNAPSHOT_DROPPED };

	event.dropped.snapshot = id;
	event.dropped.answer = answer;
	event.dropped.err = err;
	feed(event);
}

static void drop(const char *id)
{
	feed((struct sv_event){ .type = SV_EV_DROP_SNAPSHOT, .epoch = 1, .drop = id });
}

static void load_snapshot(const char *id)
{
	struct snapshot_info info = info_of(id);

	feed((struct sv_event){ .type = SV_EV_LOAD_SNAPSHOT, .snapshot = &info });
}

static void restart(const char *boot, bool is_whole)
{
	struct sv_capacity capacity = { .capacity = { 8000, 4, 10000, 4, 2, 4, 0 }, .disk_free_mib = 10000 };

	rig.core = supervisor_free(rig.core);
	memcpy(rig.config.host_boot_id, boot, strlen(boot) + 1);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	if (is_whole)
		load_snapshot(SNAP);
	feed((struct sv_event){ .type = SV_EV_LOAD, .journal = &rig.saved });
	feed((struct sv_event){ .type = SV_EV_START });
	if (find(SV_DO_ADOPT_VMM))
		feed_guest(SV_EV_ADOPTED, NULL);
	feed((struct sv_event){ .type = SV_EV_TICK }); /* keeps what was emitted out of the way of what follows */
	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &capacity });
	connect_core();
}

/* How far the snapshot of a running sandbox is. */
enum moment_of { TAKING, TAKEN, THAWED, KEPT };

static void drive_to(enum moment_of moment)
{
	drive(SV_RUNNING, NULL, 0);
	take();
	if (moment == TAKING)
		return;
	feed_of(SV_EV_SNAPSHOT_TAKEN, NULL);
	if (moment == THAWED)
		feed_of(SV_EV_THAWED, NULL);
	else if (moment == KEPT)
		feed_kept(NULL);
}

static void keep_one(void)
{
	drive_to(KEPT);
	feed_of(SV_EV_THAWED, NULL);
	ck_assert_ptr_nonnull(report()->snapshot);
}

static const struct snapshot_info *listed(const char *id)
{
	for (size_t i = 0; i < rig.out.n; i++) {
		const struct sv_action *action = &rig.out.items[i];

		for (size_t k = 0; action->type == SV_DO_SEND_INVENTORY && k < action->inventory->n_snapshots; k++)
			if (!strcmp(action->inventory->snapshots[k].id, id))
				return &action->inventory->snapshots[k];
	}
	return NULL;
}

static bool is_listed(const char *id)
{
	struct welcome welcome = { .node = "cccccccccccccccccccc", .pool = "pool", .heartbeat_ms = 1000 };

	welcome.greeting = (uint64_t)rig.now.mono_usec++;
	feed((struct sv_event){ .type = SV_EV_WELCOME, .epoch = 1, .welcome = &welcome });
	ck_assert_ptr_nonnull(find(SV_DO_SEND_INVENTORY));
	return listed(id) != NULL;
}

/* ---- one is taken ---- */

START_TEST(it_runs_on_and_is_answered_when_all_is_done)
{
	struct sv_counts counts;

	drive(SV_RUNNING, NULL, 0);
	ck_assert(!is_listed(SNAP));
	take();
	ck_assert_uint_lt(place_of(SV_DO_JOURNAL_WRITE), place_of(SV_DO_TAKE_SNAPSHOT)); /* intent before act */
	ck_assert(!find(SV_DO_JOURNAL_WRITE)->journal.best_effort);
	ck_assert(rig.saved.is_snapshotting);
	ck_assert_str_eq(rig.saved.snapshot, SNAP);
	ck_assert_str_eq(find(SV_DO_TAKE_SNAPSHOT)->snapshot->id, SNAP);
	ck_assert_ptr_null(find(SV_DO_ROUTE)); /* that is closed when there is room for it */
	ck_assert_int_eq(rig.saved.state, SV_RUNNING);
	ck_assert_int_eq(state(), SV_RUNNING);
	take(); /* again: it is under way */
	ck_assert_uint_eq(rig.out.n, 0);
	feed_of(SV_EV_SNAPSHOT_TAKEN, NULL);
	ck_assert_ptr_nonnull(find(SV_DO_THAW)); /* it does not wait for the disk */
	ck_assert_str_eq(find(SV_DO_KEEP_SNAPSHOT)->snapshot->image_digest, DIGEST);
	ck_assert_uint_eq(find(SV_DO_KEEP_SNAPSHOT)->snapshot->memory_mib, 1000);
	ck_assert_ptr_null(report());
	ck_assert(!is_listed(SNAP));
	if (_i)
		feed_of(SV_EV_THAWED, NULL);
	else
		feed_kept(NULL);
	ck_assert_ptr_null(report());
	ck_assert(_i ? find(SV_DO_ROUTE)->ready : !find(SV_DO_ROUTE)); /* as soon as it runs */
	if (_i)
		feed_kept(NULL);
	else
		feed_of(SV_EV_THAWED, NULL);
	ck_assert_str_eq(report()->updated, TAKE_OP);
	ck_assert(!err_is_set(&report()->update_failure));
	ck_assert_str_eq(report()->snapshot->id, SNAP);
	ck_assert_uint_eq(report()->snapshot->size_mib, 700);
	ck_assert_int_eq(report()->state, REPORT_RUNNING);
	check_outcome(report(), STAGE_SNAPSHOT, RESULT_OK);
	ck_assert(!rig.saved.is_snapshotting);
	supervisor_count(rig.core, &counts);
	ck_assert_uint_eq(counts.snapshots, 1);
	ck_assert_uint_eq(counts.disk_mib, 800); /* it counts beside the sandbox's own disk */
	ck_assert(is_listed(SNAP));
	ck_assert(supervisor_keeps_image(rig.core, DIGEST));
}
END_TEST

/* The same word again has the same answer, also when something else was done since. */
START_TEST(one_is_taken_once)
{
	struct update_command update = { .generation = 1, .timeout_s = 100 };

	keep_one();
	take();
	ck_assert_ptr_null(find(SV_DO_TAKE_SNAPSHOT));
	ck_assert_str_eq(report()->snapshot->id, SNAP);
	memcpy(update.sandbox, ID, ID_SIZE);
	memcpy(update.operation, OTHER_OP, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_UPDATE, .epoch = 1, .update = &update });
	ck_assert_str_eq(report()->updated, OTHER_OP);
	ck_assert_ptr_null(report()->snapshot);
	take();
	ck_assert_ptr_null(find(SV_DO_TAKE_SNAPSHOT));
	ck_assert_str_eq(report()->updated, TAKE_OP);
	ck_assert_str_eq(report()->snapshot->id, SNAP);
	take_numbered(OTHER_OP, CLONE, 0);
	ck_assert_str_eq(find(SV_DO_TAKE_SNAPSHOT)->snapshot->id, CLONE);
}
END_TEST

START_TEST(one_that_was_overtaken_is_not_taken)
{
	drive(SV_RUNNING, NULL, 0);
	take_numbered(TAKE_OP, SNAP, 5);
	ck_assert_uint_eq(rig.saved.update_number, 5);
	feed_of(SV_EV_SNAPSHOT_TAKEN, NULL);
	feed_of(SV_EV_THAWED, NULL);
	feed_kept(NULL);
	take_numbered(OTHER_OP, CLONE, 4);
	ck_assert_ptr_null(find(SV_DO_TAKE_SNAPSHOT));
	ck_assert_ptr_nonnull(report());
}
END_TEST

enum fault { NOT_JOURNALLED, NOT_TAKEN, NOT_KEPT, TAKES_TOO_LONG, KEEPS_TOO_LONG, FAULTS };

START_TEST(whatever_breaks_the_sandbox_runs_on_and_nothing_is_left)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, _i == NOT_JOURNALLED ? FAIL_STATE_WRITE_FAILED : FAIL_GUEST_FREEZE_FAILED, ENOSPC, "no");
	drive(SV_RUNNING, NULL, 0);
	take();
	if (_i == NOT_JOURNALLED)
		feed_of(SV_EV_JOURNAL_FAILED, &err);
	else if (_i == NOT_TAKEN)
		feed_of(SV_EV_SNAPSHOT_TAKEN, &err);
	else if (_i == TAKES_TOO_LONG)
		later(301 * USEC_PER_SEC);
	else
		feed_of(SV_EV_SNAPSHOT_TAKEN, NULL);
	if (_i == KEEPS_TOO_LONG || _i == NOT_KEPT)
		feed_of(SV_EV_THAWED, NULL);
	if (_i == NOT_KEPT)
		feed_kept(&err);
	else if (_i == KEEPS_TOO_LONG)
		later(301 * USEC_PER_SEC);
	ck_assert_str_eq(find(SV_DO_DROP_KEPT)->snapshot_id, SNAP);
	ck_assert(!find(SV_DO_DROP_KEPT)->answer);
	if (_i == TAKES_TOO_LONG)
		ck_assert_uint_lt(place_of(SV_DO_CANCEL), place_of(SV_DO_DROP_KEPT));
	if (_i == NOT_TAKEN || _i == TAKES_TOO_LONG) {
		ck_assert_ptr_nonnull(find(SV_DO_THAW));
		ck_assert_ptr_null(find(SV_DO_KEEP_SNAPSHOT));
		ck_assert(!report() || !*report()->updated); /* not before it runs again */
		feed_of(SV_EV_THAWED, NULL);
	}
	ck_assert_int_eq(state(), SV_RUNNING);
	ck_assert_str_eq(report()->updated, TAKE_OP);
	ck_assert_ptr_null(report()->snapshot);
	ck_assert_int_eq(report()->update_failure.stage, STAGE_SNAPSHOT);
	ck_assert_int_eq(report()->update_failure.code,
		_i == NOT_JOURNALLED                             ? FAIL_STATE_WRITE_FAILED
			: _i == TAKES_TOO_LONG || _i == KEEPS_TOO_LONG ? FAIL_SNAPSHOT_FAILED
								       : FAIL_GUEST_FREEZE_FAILED);
	check_outcome(report(), STAGE_SNAPSHOT, RESULT_FAILED);
	ck_assert(!rig.saved.is_snapshotting);
	feed_kept(NULL); /* late: it is dropped behind this */
	ck_assert(!is_listed(SNAP));
	take_numbered(OTHER_OP, CLONE, 0);
	ck_assert_ptr_nonnull(find(SV_DO_TAKE_SNAPSHOT));
}
END_TEST

/* A VM that does not go on is asked again; a guest that does not answer is no reason to end it, a VM that stands still is. */
START_TEST(a_thaw_that_fails)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, _i ? FAIL_RESUME_FAILED : FAIL_GUEST_UNREACHABLE, ETIMEDOUT, "no");
	drive_to(KEPT);
	later(301 * USEC_PER_SEC);
	ck_assert_ptr_nonnull(find(SV_DO_THAW));
	ck_assert_int_eq(state(), SV_RUNNING);
	feed_of(SV_EV_THAWED, &err);
	if (_i) {
		ck_assert_int_eq(state(), SV_KILLING);
		ck_assert_int_eq(rig.saved.failure.stage, STAGE_SNAPSHOT);
		ck_assert_ptr_null(find(SV_DO_DROP_KEPT)); /* it is whole */
	} else {
		ck_assert_int_eq(state(), SV_RUNNING);
	}
	ck_assert_str_eq(report()->updated, TAKE_OP);
	ck_assert_str_eq(report()->snapshot->id, SNAP);
}
END_TEST

/* kill -9 of the agent at each moment: the sandbox runs and is thawed; the snapshot is whole and told, or was removed at the
 * start and is answered as failed. */
START_TEST(the_agent_dies)
{
	bool is_whole = _i >= 4;

	drive_to((enum moment_of)(_i % 4));
	rig.core = supervisor_free(rig.core);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	if (is_whole)
		load_snapshot(SNAP);
	feed((struct sv_event){ .type = SV_EV_LOAD, .journal = &rig.saved });
	feed((struct sv_event){ .type = SV_EV_START });
	ck_assert_ptr_nonnull(find(SV_DO_ADOPT_VMM));
	feed_guest(SV_EV_ADOPTED, NULL);
	ck_assert_ptr_nonnull(find(SV_DO_THAW));
	ck_assert(is_whole == !find(SV_DO_DROP_KEPT));
	ck_assert_int_eq(state(), SV_RUNNING);
	ck_assert_ptr_null(find(SV_DO_ROUTE));
	feed((struct sv_event){ .type = SV_EV_LINK_UP });
	feed_of(SV_EV_THAWED, NULL);
	ck_assert(find(SV_DO_ROUTE)->ready);
	ck_assert(!rig.saved.is_snapshotting);
	ck_assert_str_eq(rig.saved.updated, TAKE_OP);
	restart("boot-1", is_whole); /* and again: the answer is the same */
	later(20 * USEC_PER_SEC);
	ck_assert_str_eq(report()->updated, TAKE_OP);
	ck_assert(is_whole == (report()->snapshot != NULL));
	ck_assert(is_whole != err_is_set(&report()->update_failure));
	ck_assert(is_listed(SNAP) == is_whole);
}
END_TEST

/* The host too: the sandbox is gone, a snapshot that was whole is there. */
START_TEST(the_host_dies)
{
	drive_to(TAKEN);
	restart("boot-2", _i != 0);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(state(), SV_ENDED);
	ck_assert_str_eq(report()->updated, TAKE_OP);
	ck_assert((_i != 0) == (report()->snapshot != NULL));
	ck_assert(is_listed(SNAP) == (_i != 0));
}
END_TEST

/* A destroy, or the VM's own end: at once, and what is not whole is none. */
START_TEST(its_sandbox_ends)
{
	bool is_whole = _i % 4 == KEPT;

	drive_to((enum moment_of)(_i % 4));
	if (_i < 4) {
		destroy(1);
		ck_assert_int_eq(state(), SV_KILLING);
		ck_assert(is_whole == !find(SV_DO_DROP_KEPT));
		if (!is_whole)
			ck_assert_uint_lt(place_of(SV_DO_CANCEL), place_of(SV_DO_DROP_KEPT));
	}
	feed_exit(SV_EXIT_KILLED, true);
	if (_i >= 4)
		ck_assert(is_whole == !find(SV_DO_DROP_KEPT));
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(report()->state, REPORT_ENDED);
	ck_assert_str_eq(report()->updated, TAKE_OP);
	ck_assert(is_whole == (report()->snapshot != NULL));
	ck_assert(is_whole != err_is_set(&report()->update_failure));
	later(1000 * USEC_PER_SEC); /* none of its deadlines is left */
	ck_assert_int_eq(state(), SV_ENDED);
	ck_assert(is_listed(SNAP) == is_whole);
}
END_TEST

static void pause_it(void)
{
	struct pause_command command = { .generation = 1 };

	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, OTHER_OP, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_PAUSE, .epoch = 1, .pause = &command });
}

START_TEST(a_pause_and_the_end_of_its_life_wait)
{
	drive(SV_RUNNING, NULL, 20);
	later(15 * USEC_PER_SEC);
	take();
	pause_it();
	ck_assert_uint_eq(rig.out.n, 0);
	later(10 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_RUNNING);
	feed_of(SV_EV_SNAPSHOT_TAKEN, NULL);
	if (_i) { /* it does not thaw: nobody waits for that */
		feed_kept(NULL);
		later(301 * USEC_PER_SEC);
		later(2 * USEC_PER_SEC);
		ck_assert_int_eq(state(), SV_KILLING);
		return;
	}
	feed_of(SV_EV_THAWED, NULL);
	feed_kept(NULL);
	ck_assert_str_eq(report()->snapshot->id, SNAP);
	pause_it();
	ck_assert_int_eq(state(), SV_PAUSING);
	take_numbered(CLONE, CLONE, 0); /* and the other way round */
	ck_assert_uint_eq(rig.out.n, 0);
}
END_TEST

/* One that does not thaw is no reason to pause it at the end of its life: nothing of it would be left. */
START_TEST(a_stuck_one_is_not_paused_at_its_end)
{
	struct sandbox_spec *spec = spec_make(1000, NULL, 500);

	spec->auto_pause = true;
	create_as(ID, 1, 1, spec, 0);
	feed_of(SV_EV_IMAGE_DONE, NULL);
	feed_of(SV_EV_DISK_DONE, NULL);
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "simulated");
	feed_of(SV_EV_VMM_STARTED, NULL);
	feed_of(SV_EV_VMM_USERSPACE, NULL);
	feed_guest(SV_EV_GUEST_HELLO, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	journalled(ID, 1);
	take();
	later(301 * USEC_PER_SEC); /* it is not taken, */
	later(301 * USEC_PER_SEC); /* it does not thaw, and its life is over */
	ck_assert_int_eq(state(), SV_RUNNING);
	later(2 * USEC_PER_SEC);
	later(301 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_RUNNING);
	ck_assert_ptr_null(find(SV_DO_SNAPSHOT));
	feed_of(SV_EV_THAWED, NULL);
	ck_assert(!rig.saved.is_snapshotting);
	later(2 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_PAUSING);
	feed_of(SV_EV_SNAPSHOT_DONE, NULL);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(state(), SV_PAUSED);
	later(1000 * USEC_PER_SEC); /* none of the snapshot's deadlines is left */
	ck_assert_int_eq(state(), SV_PAUSED);
	ck_assert_ptr_null(find(SV_DO_THAW));
}
END_TEST

/* A journal of an agent that paused it all the same: it sleeps, and no snapshot is under way. */
START_TEST(what_sleeps_takes_none)
{
	struct resume_command command = { .generation = 1 };

	drive(SV_RUNNING, NULL, 0);
	pause_it();
	feed_of(SV_EV_SNAPSHOT_DONE, NULL);
	ck_assert_int_eq(rig.saved.state, SV_SLEEPING);
	memcpy(rig.saved.snapshot, SNAP, ID_SIZE);
	memcpy(rig.saved.snapshot_operation, TAKE_OP, ID_SIZE);
	rig.saved.is_snapshotting = true;
	restart("boot-1", false);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(rig.saved.state, SV_PAUSED);
	ck_assert(!rig.saved.is_snapshotting);
	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, CLONE, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_RESUME, .epoch = 1, .resume = &command });
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "simulated");
	feed_of(SV_EV_VMM_STARTED, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	feed_of(SV_EV_THAWED, NULL);
	ck_assert_int_eq(state(), SV_RUNNING);
	pause_it();
	ck_assert_int_eq(state(), SV_PAUSING);
}
END_TEST

/* ---- what is kept ---- */

START_TEST(a_drop_is_answered_when_the_files_are_gone)
{
	struct err err = ERR_NULL;

	keep_one();
	drop(SNAP);
	ck_assert(find(SV_DO_DROP_KEPT)->answer);
	ck_assert_str_eq(find(SV_DO_DROP_KEPT)->snapshot_id, SNAP);
	ck_assert_ptr_null(find(SV_DO_SEND_DROPPED));
	ck_assert(!is_listed(SNAP));
	if (_i == 1) { /* they could not be removed: it is there */
		(void)err_set(&err, FAIL_IO_FAILED, EIO, "no");
		feed_dropped(SNAP, true, &err);
		ck_assert_ptr_null(find(SV_DO_SEND_DROPPED));
		ck_assert(is_listed(SNAP));
		drop(SNAP);
	}
	feed_dropped(SNAP, true, NULL);
	ck_assert_str_eq(find(SV_DO_SEND_DROPPED)->snapshot_id, SNAP);
	ck_assert(!is_listed(SNAP));
	ck_assert(!supervisor_keeps_image(rig.core, DIGEST));
	drop(SNAP); /* idempotent */
	ck_assert_ptr_nonnull(find(SV_DO_DROP_KEPT));
	feed_dropped(SNAP, true, NULL);
	ck_assert_ptr_nonnull(find(SV_DO_SEND_DROPPED));
	feed_dropped(SNAP, false, NULL); /* nobody asked */
	ck_assert_ptr_null(find(SV_DO_SEND_DROPPED));
}
END_TEST

START_TEST(one_that_is_made_is_not_dropped)
{
	drive_to((enum moment_of)_i);
	drop(SNAP);
	ck_assert_uint_eq(rig.out.n, 0);
}
END_TEST

static uint64_t inventory_number(void)
{
	ck_assert(is_listed(SNAP));
	return find(SV_DO_SEND_INVENTORY)->inventory->number;
}

static void desire_of(bool knows, uint64_t number, bool complete, char (*keep)[ID_SIZE], size_t n)
{
	struct desired_sandbox sandbox = { .generation = 1 };
	struct desired_set set = { .sandboxes = &sandbox, .n = 1, .complete = complete, .inventory = number,
		.snapshots = keep, .n_snapshots = n, .knows_snapshots = knows };

	memcpy(sandbox.sandbox, ID, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_DESIRED, .epoch = 1, .desired = &set });
}

static void desire(uint64_t number, bool complete, char (*keep)[ID_SIZE], size_t n)
{
	desire_of(true, number, complete, keep, n);
}

static const char *told_of(const char *event)
{
	for (size_t i = 0; i < rig.out.n; i++)
		if (rig.out.items[i].type == SV_DO_NODE_EVENT && !strcmp(rig.out.items[i].event.name, event))
			return rig.out.items[i].event.snapshot;
	return NULL;
}

START_TEST(what_the_desired_set_does_not_name_goes)
{
	char keep[1][ID_SIZE] = { SNAP };
	uint64_t number;

	keep_one();
	number = inventory_number();
	desire(number, true, keep, 1);
	ck_assert_ptr_null(find(SV_DO_DROP_KEPT));
	desire(number, false, NULL, 0); /* a part says nothing */
	ck_assert_ptr_null(find(SV_DO_DROP_KEPT));
	desire(number - 1, true, NULL, 0); /* nor does the answer to another inventory */
	ck_assert_ptr_null(find(SV_DO_DROP_KEPT));
	take_numbered(OTHER_OP, CLONE, 0);
	feed_of(SV_EV_SNAPSHOT_TAKEN, NULL);
	feed_of(SV_EV_THAWED, NULL);
	feed_kept_of(CLONE, NULL);
	desire(number, true, NULL, 0); /* nor is one look enough */
	ck_assert_ptr_null(find(SV_DO_DROP_KEPT));
	ck_assert_str_eq(told_of("snapshot-drift"), SNAP);
	later(61 * USEC_PER_SEC);
	ck_assert_ptr_nonnull(find(SV_DO_SEND_INVENTORY)); /* it is asked again soon */
	ck_assert_ptr_null(find(SV_DO_DROP_KEPT));
	number = find(SV_DO_SEND_INVENTORY)->inventory->number;
	desire(number, true, &(char[ID_SIZE]){ CLONE }, 1);
	ck_assert_str_eq(told_of("snapshot-drift-dropped"), SNAP);
	for (size_t i = 0; i < rig.out.n; i++)
		ck_assert(rig.out.items[i].type != SV_DO_DROP_KEPT || !strcmp(rig.out.items[i].snapshot_id, SNAP));
	ck_assert(!find(SV_DO_DROP_KEPT)->answer);
	feed_dropped(SNAP, false, NULL);
	ck_assert(!is_listed(SNAP));
	ck_assert(is_listed(CLONE));
}
END_TEST

/* One that was made since the inventory is not the set's to judge. */
START_TEST(a_newer_one_is_not_judged)
{
	uint64_t number;

	keep_one();
	number = inventory_number();
	take_numbered(OTHER_OP, CLONE, 0);
	feed_of(SV_EV_SNAPSHOT_TAKEN, NULL);
	feed_of(SV_EV_THAWED, NULL);
	feed_kept_of(CLONE, NULL);
	desire(number, true, &(char[ID_SIZE]){ SNAP }, 1);
	rig.now.mono_usec += 61 * USEC_PER_SEC;
	desire(number, true, &(char[ID_SIZE]){ SNAP }, 1);
	ck_assert_ptr_null(find(SV_DO_DROP_KEPT));
	ck_assert_ptr_null(told_of("snapshot-drift"));
}
END_TEST

/* A scheduler that was rolled back to one that knows no snapshots answers whole sets that name none. */
START_TEST(an_older_scheduler_drops_nothing)
{
	keep_one();
	for (int i = 0; i < 3; i++) {
		desire_of(false, inventory_number(), true, NULL, 0);
		ck_assert_ptr_null(find(SV_DO_DROP_KEPT));
		ck_assert_ptr_null(told_of("snapshot-drift"));
		rig.now.mono_usec += 100 * USEC_PER_SEC;
	}
	ck_assert(is_listed(SNAP));
}
END_TEST

/* Each part of an inventory has its share, and all of them together have all. */
START_TEST(many_are_told_in_parts)
{
	char id[ID_SIZE] = SNAP;
	uint32_t n = 0, parts = 0;

	rig.core = supervisor_free(rig.core);
	rig.config.part_size = 3;
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	for (char c = 'a'; c <= 'h'; c++) {
		id[0] = c;
		load_snapshot(id);
	}
	feed((struct sv_event){ .type = SV_EV_START });
	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &(struct sv_capacity){ .disk_free_mib = 1 } });
	feed((struct sv_event){ .type = SV_EV_LINK_UP });
	ck_assert(find(SV_DO_SEND_HELLO)->hello->snapshots);
	(void)is_listed(SNAP);
	for (size_t i = 0; i < rig.out.n; i++) {
		const struct inventory *inventory = rig.out.items[i].inventory;

		if (rig.out.items[i].type != SV_DO_SEND_INVENTORY)
			continue;
		ck_assert_uint_le(inventory->n_snapshots, 3);
		n += (uint32_t)inventory->n_snapshots;
		ck_assert(inventory->complete == (++parts == 3));
	}
	ck_assert_uint_eq(n, 8);
	ck_assert_uint_eq(parts, 3);
}
END_TEST

/* ---- one begins as it ---- */

static struct sandbox_spec *clone_spec(const char *setup_command)
{
	struct sandbox_spec *spec = spec_make(1000, setup_command, 0);

	memcpy(spec->snapshot, SNAP, ID_SIZE);
	return spec;
}

static void begin_as(enum sv_state to, const char *setup_command)
{
	load_snapshot(SNAP);
	create_as(ID, 1, 1, clone_spec(setup_command), 0);
	feed_of(SV_EV_IMAGE_DONE, NULL);
	ck_assert_str_eq(find(SV_DO_MAKE_DISK)->spec->snapshot, SNAP);
	feed_of(SV_EV_DISK_DONE, NULL);
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "simulated");
	ck_assert(find(SV_DO_START_VMM)->restore);
	ck_assert(!find(SV_DO_START_VMM)->restore_own);
	if (to == SV_VMM)
		return;
	feed_of(SV_EV_VMM_STARTED, NULL);
}

START_TEST(it_begins_as_a_snapshot_and_is_somebody_else)
{
	begin_as(SV_GUEST, _i ? "true" : NULL);
	ck_assert(find(SV_DO_WAKE_GUEST)->is_new);
	ck_assert_ptr_null(find(SV_DO_THAW)); /* nothing goes on before it is who it is */
	check_outcome(report(), STAGE_VMM, RESULT_OK);
	check_outcome(report(), STAGE_KERNEL, RESULT_SKIPPED);
	feed_of(SV_EV_VMM_USERSPACE, NULL); /* what its guest does is no boot */
	feed_guest(SV_EV_GUEST_HELLO, NULL);
	ck_assert_uint_eq(rig.out.n, 0);
	feed_of(SV_EV_THAWED, NULL); /* nor is this an answer */
	ck_assert_int_eq(state(), SV_GUEST);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	ck_assert_ptr_nonnull(find(SV_DO_THAW));
	ck_assert_ptr_null(find(SV_DO_CONFIGURE_GUEST));
	ck_assert_int_eq(state(), SV_GUEST);
	feed_of(SV_EV_THAWED, NULL);
	if (_i) {
		ck_assert_ptr_nonnull(find(SV_DO_RUN_SETUP));
		feed_of(SV_EV_SETUP_DONE, NULL);
	}
	journalled(ID, 1);
	ck_assert_int_eq(report()->state, REPORT_RUNNING);
	ck_assert(find(SV_DO_ROUTE)->ready);
	check_outcome(report(), STAGE_GUEST, RESULT_OK);
	check_outcome(report(), STAGE_SETUP, _i ? RESULT_OK : RESULT_SKIPPED);
	pause_it(); /* when it sleeps and wakes, it is itself */
	feed_of(SV_EV_SNAPSHOT_DONE, NULL);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	{
		struct resume_command command = { .generation = 1 };

		memcpy(command.sandbox, ID, ID_SIZE);
		memcpy(command.operation, CLONE, ID_SIZE);
		feed((struct sv_event){ .type = SV_EV_RESUME, .epoch = 1, .resume = &command });
	}
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "simulated");
	ck_assert(find(SV_DO_START_VMM)->restore_own);
	feed_of(SV_EV_VMM_STARTED, NULL);
	ck_assert(!find(SV_DO_WAKE_GUEST)->is_new);
}
END_TEST

START_TEST(a_guest_that_does_not_become_another_is_not_handed_out)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_GUEST_UNREACHABLE, ETIMEDOUT, "no");
	begin_as(SV_GUEST, NULL);
	if (_i == 0) {
		feed_of(SV_EV_GUEST_CONFIGURED, &err);
	} else if (_i == 1) {
		feed_of(SV_EV_GUEST_CONFIGURED, NULL);
		feed_of(SV_EV_THAWED, &err);
	} else {
		feed_of(SV_EV_GUEST_CONFIGURED, NULL);
		later(61 * USEC_PER_SEC);
	}
	ck_assert_int_eq(state(), SV_KILLING);
	ck_assert_int_eq(rig.saved.failure.stage, STAGE_GUEST);
	ck_assert(is_listed(SNAP));
}
END_TEST

/* The files stay until its VMM has them open. */
START_TEST(one_that_a_start_needs_is_not_dropped)
{
	char none[1][ID_SIZE] = { CLONE };

	begin_as(SV_VMM, NULL);
	drop(SNAP);
	ck_assert_ptr_null(find(SV_DO_DROP_KEPT));
	desire(inventory_number(), true, none, 1);
	ck_assert_ptr_null(find(SV_DO_DROP_KEPT));
	feed_of(SV_EV_VMM_STARTED, NULL);
	drop(SNAP);
	ck_assert_ptr_nonnull(find(SV_DO_DROP_KEPT));
}
END_TEST

START_TEST(a_start_from_one_that_is_not_here_is_refused)
{
	struct sandbox_spec *spec = clone_spec(NULL);

	if (_i == 1) {
		load_snapshot(SNAP);
		drop(SNAP);
	} else if (_i == 2) {
		load_snapshot(SNAP);
		spec->vcpus = 2;
	}
	create_as(ID, 1, 1, spec, 0);
	ck_assert_int_eq(report()->state, REPORT_ENDED);
	ck_assert_int_eq(report()->failure.code, _i == 2 ? FAIL_SNAPSHOT_INVALID : FAIL_SNAPSHOT_LOST);
	ck_assert_int_eq(report()->failure.stage, STAGE_ACCEPT);
}
END_TEST

/* What is kept takes its room on the disk. */
START_TEST(its_size_counts)
{
	char id[ID_SIZE] = SNAP;

	for (char c = 'a'; c < 'a' + 14; c++) { /* of 10000 MiB */
		id[0] = c;
		load_snapshot(id);
	}
	create_as(ID, 1, 1, spec_make(1000, NULL, 0), 0);
	ck_assert(report()->accepted);
	load_snapshot(SNAP);
	create_as(CLONE, 1, 1, spec_make(1000, NULL, 0), 0);
	ck_assert_int_eq(report()->failure.code, FAIL_CAPACITY_STALE);
}
END_TEST

/* Its start resumes on the same disk only as the same. */
START_TEST(a_kept_disk_is_of_its_snapshot)
{
	struct err err = ERR_NULL;

	load_snapshot(SNAP);
	(void)err_set(&err, FAIL_HELPER_UNAVAILABLE, EIO, "no");
	create_as(ID, 1, 1, clone_spec(NULL), 0);
	feed_of(SV_EV_IMAGE_DONE, NULL);
	feed_of(SV_EV_DISK_DONE, NULL);
	feed_network(false, &err);
	ck_assert(find(SV_DO_REMOVE_FILES)->keep_disk);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(state(), SV_KEPT);
	create_as(ID, 2, 1, _i ? spec_make(1000, NULL, 0) : clone_spec(NULL), 0);
	ck_assert(_i ? state() == SV_DROPPING : state() == SV_IMAGE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("supervisor-snapshot");
	TCase *tcase = tcase_create("supervisor-snapshot");

	tcase_set_timeout(tcase, 600);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, it_runs_on_and_is_answered_when_all_is_done, 0, 2);
	tcase_add_test(tcase, one_is_taken_once);
	tcase_add_test(tcase, one_that_was_overtaken_is_not_taken);
	tcase_add_loop_test(tcase, whatever_breaks_the_sandbox_runs_on_and_nothing_is_left, 0, FAULTS);
	tcase_add_loop_test(tcase, a_thaw_that_fails, 0, 2);
	tcase_add_loop_test(tcase, the_agent_dies, 0, 8);
	tcase_add_loop_test(tcase, the_host_dies, 0, 2);
	tcase_add_loop_test(tcase, its_sandbox_ends, 0, 8);
	tcase_add_loop_test(tcase, a_pause_and_the_end_of_its_life_wait, 0, 2);
	tcase_add_test(tcase, a_stuck_one_is_not_paused_at_its_end);
	tcase_add_test(tcase, what_sleeps_takes_none);
	tcase_add_loop_test(tcase, a_drop_is_answered_when_the_files_are_gone, 0, 2);
	tcase_add_loop_test(tcase, one_that_is_made_is_not_dropped, TAKING, KEPT + 1);
	tcase_add_test(tcase, what_the_desired_set_does_not_name_goes);
	tcase_add_test(tcase, a_newer_one_is_not_judged);
	tcase_add_test(tcase, an_older_scheduler_drops_nothing);
	tcase_add_test(tcase, many_are_told_in_parts);
	tcase_add_loop_test(tcase, it_begins_as_a_snapshot_and_is_somebody_else, 0, 2);
	tcase_add_loop_test(tcase, a_guest_that_does_not_become_another_is_not_handed_out, 0, 3);
	tcase_add_test(tcase, one_that_a_start_needs_is_not_dropped);
	tcase_add_loop_test(tcase, a_start_from_one_that_is_not_here_is_refused, 0, 3);
	tcase_add_test(tcase, its_size_counts);
	tcase_add_loop_test(tcase, a_kept_disk_is_of_its_snapshot, 0, 2);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
