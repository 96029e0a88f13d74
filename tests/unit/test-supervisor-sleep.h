/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test-supervisor.c, and of nothing else: a sandbox that is paused and resumed.
 */
#pragma once

#define PAUSE_OP "dddddddddddddddddddd"
#define RESUME_OP "eeeeeeeeeeeeeeeeeeee"

static void pause_numbered(const char *operation, uint64_t number)
{
	struct pause_command command = { .generation = 1, .number = number };

	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, operation, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_PAUSE, .epoch = 1, .pause = &command });
}

static void pause_as(const char *operation)
{
	pause_numbered(operation, 0);
}

static void resume_numbered(const char *operation, uint32_t timeout_s, uint64_t number)
{
	struct resume_command command = { .generation = 1, .timeout_s = timeout_s, .number = number };

	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, operation, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_RESUME, .epoch = 1, .resume = &command });
}

static void resume_as(const char *operation, uint32_t timeout_s)
{
	resume_numbered(operation, timeout_s, 0);
}

/* From RUNNING up to the given state. */
static void drive_sleep_as(enum sv_state to, const char *resume)
{
	pause_as(PAUSE_OP);
	if (to == SV_PAUSING)
		return;
	feed_of(SV_EV_SNAPSHOT_DONE, NULL);
	if (to == SV_SLEEPING)
		return;
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	if (to == SV_PAUSED)
		return;
	resume_as(resume, 0);
	if (to == SV_WAKE_NETWORK)
		return;
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "simulated");
	if (to == SV_WAKE_VMM)
		return;
	feed_of(SV_EV_VMM_STARTED, NULL);
	if (to == SV_WAKE_GUEST)
		return;
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	if (to == SV_THAWING)
		return;
	feed_of(SV_EV_THAWED, NULL);
}

static void drive_sleep(enum sv_state to)
{
	drive_sleep_as(to, RESUME_OP);
}

/* What was written is what is true, before anything is done that could not be taken back. */
START_TEST(test_to_sleep_and_awake)
{
	struct sv_counts counts;

	drive(SV_RUNNING, NULL, 20);
	later(15 * USEC_PER_SEC);
	pause_as(PAUSE_OP);
	ck_assert_int_eq(rig.saved.state, SV_PAUSING);
	ck_assert(!find(SV_DO_JOURNAL_WRITE)->journal.best_effort);
	ck_assert_uint_lt(place_of(SV_DO_JOURNAL_WRITE), place_of(SV_DO_SNAPSHOT));
	ck_assert_ptr_null(find(SV_DO_ROUTE)); /* that is closed when there is room for it */
	pause_as(PAUSE_OP); /* again: nothing new */
	ck_assert_uint_eq(rig.out.n, 0);
	later(10 * USEC_PER_SEC); /* past the end of its life, which does not count now */
	ck_assert_int_eq(state(), SV_PAUSING);
	feed_of(SV_EV_SNAPSHOT_DONE, NULL);
	ck_assert_int_eq(rig.saved.state, SV_SLEEPING);
	ck_assert(!find(SV_DO_JOURNAL_WRITE)->journal.best_effort);
	ck_assert_uint_lt(place_of(SV_DO_JOURNAL_WRITE), place_of(SV_DO_KILL_VMM));
	feed_exit(SV_EXIT_KILLED, true);
	ck_assert(find(SV_DO_REMOVE_FILES)->keep_disk);
	ck_assert(find(SV_DO_REMOVE_FILES)->keep_snapshot);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(rig.saved.state, SV_PAUSED);
	ck_assert_int_eq(report()->state, REPORT_PAUSED);
	ck_assert(!err_is_set(&report()->update_failure));
	check_outcome(report(), STAGE_PAUSE, RESULT_OK);
	supervisor_count(rig.core, &counts);
	ck_assert_uint_eq(counts.paused, 1);
	ck_assert_uint_eq(counts.running, 0);
	ck_assert_uint_eq(counts.memory_mib, 0);
	ck_assert_uint_eq(counts.vcpus, 0);
	ck_assert_uint_eq(counts.disk_mib, 100);
	later(INT64_C(100) * 24 * 3600 * USEC_PER_SEC); /* sleep costs no time */
	ck_assert_int_eq(state(), SV_PAUSED);

	resume_as(RESUME_OP, 30);
	ck_assert_uint_lt(place_of(SV_DO_JOURNAL_WRITE), place_of(SV_DO_MAKE_NETWORK));
	feed_network(true, NULL);
	ck_assert_uint_lt(place_of(SV_DO_JOURNAL_WRITE), place_of(SV_DO_SPAWN_VMM));
	ck_assert_str_eq(find(SV_DO_SPAWN_VMM)->vmm.run_dir, rig.saved.vmm.run_dir);
	feed_spawned();
	ck_assert_int_eq(rig.saved.vmm.pid, 4711);
	feed_jailed(true, "simulated");
	ck_assert(find(SV_DO_START_VMM)->restore);
	feed_of(SV_EV_VMM_STARTED, NULL);
	ck_assert_ptr_nonnull(find(SV_DO_WAKE_GUEST));
	ck_assert_ptr_null(find(SV_DO_THAW)); /* nothing thaws before it has time and entropy */
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	ck_assert_int_eq(rig.saved.state, SV_THAWING);
	ck_assert(!find(SV_DO_JOURNAL_WRITE)->journal.best_effort);
	ck_assert_uint_lt(place_of(SV_DO_JOURNAL_WRITE), place_of(SV_DO_THAW));
	ck_assert_ptr_null(find(SV_DO_DROP_SNAPSHOT));
	feed_of(SV_EV_THAWED, NULL);
	ck_assert_int_eq(report()->state, REPORT_RUNNING);
	check_outcome(report(), STAGE_RESUME, RESULT_OK);
	ck_assert(find(SV_DO_ROUTE)->ready);
	ck_assert_ptr_nonnull(find(SV_DO_DROP_SNAPSHOT));
	later(29 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_RUNNING);
	later(2 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_KILLING);
}
END_TEST

/* A life has no end of sleeps: what is told of them does not grow. */
START_TEST(test_many_sleeps)
{
	char resume[ID_SIZE] = RESUME_OP;
	size_t n;

	drive(SV_RUNNING, NULL, 0);
	drive_sleep(SV_RUNNING);
	n = report()->n_stages;
	for (int i = 0; i < 100; i++) {
		resume[0] = (char)('a' + i % 26);
		resume[1] = (char)('a' + i / 26);
		drive_sleep_as(SV_RUNNING, resume);
		ck_assert_int_eq(state(), SV_RUNNING);
		ck_assert_uint_eq(report()->n_stages, n);
	}
}
END_TEST

/* A copy that comes late neither pauses nor wakes again. */
START_TEST(test_what_was_overtaken_is_not_done)
{
	drive(SV_RUNNING, NULL, 0);
	pause_numbered(PAUSE_OP, 5);
	feed_of(SV_EV_SNAPSHOT_DONE, NULL);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_uint_eq(rig.saved.update_number, 5);
	resume_numbered("ffffffffffffffffffff", 0, 4);
	ck_assert_int_eq(state(), SV_PAUSED);
	ck_assert_int_eq(report()->state, REPORT_PAUSED); /* it is answered */
	resume_numbered(RESUME_OP, 0, 6);
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "simulated");
	feed_of(SV_EV_VMM_STARTED, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	feed_of(SV_EV_THAWED, NULL);
	ck_assert_int_eq(state(), SV_RUNNING);
	pause_numbered(PAUSE_OP, 5);
	ck_assert_int_eq(state(), SV_RUNNING);
	ck_assert_int_eq(report()->state, REPORT_RUNNING);
	pause_numbered("ffffffffffffffffffff", 7);
	ck_assert_int_eq(state(), SV_PAUSING);
}
END_TEST

/* Whoever asked heard nothing of it while it was awake, and asks again: it was done. */
START_TEST(test_a_wake_is_done_once)
{
	drive(SV_RUNNING, NULL, 0);
	drive_sleep(SV_RUNNING);
	ck_assert_str_eq(rig.saved.updated, RESUME_OP);
	drive_sleep(SV_PAUSED);
	ck_assert_str_eq(report()->updated, RESUME_OP);
	ck_assert(!err_is_set(&report()->update_failure));
	resume_as(RESUME_OP, 0);
	ck_assert_int_eq(state(), SV_PAUSED);
	ck_assert_int_eq(report()->state, REPORT_PAUSED);
}
END_TEST

START_TEST(test_destroy_from_every_state_of_sleep)
{
	drive(SV_RUNNING, NULL, 0);
	drive_sleep((enum sv_state)_i);
	ck_assert_int_eq(state(), _i);
	destroy(1);
	if (state() != SV_REMOVING) {
		ck_assert_int_eq(state(), SV_KILLING);
		feed_exit(SV_EXIT_KILLED, true);
	}
	ck_assert_ptr_nonnull(find(SV_DO_REMOVE_FILES));
	ck_assert(!find(SV_DO_REMOVE_FILES)->keep_disk);
	ck_assert(!find(SV_DO_REMOVE_FILES)->keep_snapshot);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(report()->state, REPORT_ENDED);
	ck_assert_int_eq(report()->end_reason, END_REQUEST);
}
END_TEST

static void restart_core(const char *boot)
{
	rig.core = supervisor_free(rig.core);
	memcpy(rig.config.host_boot_id, boot, strlen(boot) + 1);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	feed((struct sv_event){ .type = SV_EV_LOAD, .journal = &rig.saved });
	feed((struct sv_event){ .type = SV_EV_START });
}

/* Nothing is looked for that cannot be there, and whoever reads why learns it was no crash. */
START_TEST(test_host_reboots)
{
	drive(SV_RUNNING, NULL, 0);
	restart_core("boot-2");
	ck_assert_ptr_null(find(SV_DO_ADOPT_VMM));
	ck_assert_ptr_nonnull(find(SV_DO_REMOVE_FILES));
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(state(), SV_ENDED);
	ck_assert_int_eq(rig.saved.failure.code, FAIL_HOST_REBOOT);
	ck_assert_int_eq(rig.saved.failure.stage, STAGE_RUN);
}
END_TEST

/* kill -9 of the agent: the old state or the new one. */
START_TEST(test_agent_dies_while_it_sleeps)
{
	drive(SV_RUNNING, NULL, 0);
	drive_sleep((enum sv_state)_i);
	restart_core("boot-1");
	switch (_i) {
	case SV_PAUSING:
	case SV_THAWING: /* the VM is the sandbox */
		ck_assert_ptr_nonnull(find(SV_DO_ADOPT_VMM));
		ck_assert_ptr_null(find(SV_DO_KILL_VMM));
		feed_guest(SV_EV_ADOPTED, NULL);
		ck_assert_ptr_nonnull(find(SV_DO_THAW));
		feed_of(SV_EV_THAWED, NULL);
		ck_assert_int_eq(state(), SV_RUNNING);
		return;
	case SV_PAUSED:
		ck_assert_int_eq(state(), SV_PAUSED);
		ck_assert_ptr_null(find(SV_DO_REMOVE_FILES));
		break;
	case SV_WAKE_NETWORK:
		ck_assert_ptr_nonnull(find(SV_DO_REMOVE_FILES));
		feed_of(SV_EV_REMOVED, NULL);
		break;
	default: /* the snapshot is */
		ck_assert_ptr_nonnull(find(SV_DO_KILL_VMM));
		ck_assert_ptr_null(find(SV_DO_ADOPT_VMM));
		feed_exit(SV_EXIT_KILLED, true);
		ck_assert(find(SV_DO_REMOVE_FILES)->keep_snapshot);
		feed_of(SV_EV_REMOVED, NULL);
		break;
	}
	ck_assert_int_eq(state(), SV_PAUSED);
	ck_assert_int_eq(rig.saved.state, SV_PAUSED);
}
END_TEST

/* Of which of the two it was the agent knows after a restart too. A guest that does not answer after a pause that was not
 * done is no reason to end it; a VM that stands still is. */
START_TEST(test_a_thaw_that_fails_after_a_restart)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, _i == 1 ? FAIL_RESUME_FAILED : FAIL_GUEST_UNREACHABLE, ETIMEDOUT, "no");
	drive(SV_RUNNING, NULL, 0);
	drive_sleep(_i == 2 ? SV_THAWING : SV_PAUSING);
	restart_core("boot-1");
	feed_guest(SV_EV_ADOPTED, NULL);
	feed_of(SV_EV_THAWED, &err);
	if (_i == 0) {
		ck_assert_int_eq(state(), SV_RUNNING);
		ck_assert_ptr_null(find(SV_DO_KILL_VMM));
		return;
	}
	ck_assert_int_eq(state(), SV_KILLING);
	ck_assert_int_eq(rig.saved.failure.stage, _i == 2 ? STAGE_RESUME : STAGE_PAUSE);
}
END_TEST

/* The host was started anew: what slept sleeps, what was awake is gone. */
START_TEST(test_host_dies_while_it_sleeps)
{
	bool is_lost = _i == SV_PAUSING || _i == SV_THAWING;

	drive(SV_RUNNING, NULL, 0);
	drive_sleep((enum sv_state)_i);
	restart_core("boot-2");
	ck_assert_ptr_null(find(SV_DO_KILL_VMM));
	ck_assert_ptr_null(find(SV_DO_ADOPT_VMM));
	if (_i != SV_PAUSED) {
		ck_assert(find(SV_DO_REMOVE_FILES)->keep_snapshot == !is_lost);
		feed_of(SV_EV_REMOVED, NULL);
	}
	ck_assert_int_eq(state(), is_lost ? SV_ENDED : SV_PAUSED);
	if (is_lost)
		ck_assert_int_eq(rig.saved.failure.code, FAIL_HOST_REBOOT);
}
END_TEST

/* It was ended, and the disk was too full to say so. */
START_TEST(test_one_that_sleeps_without_its_files_is_gone)
{
	drive(SV_RUNNING, NULL, 0);
	drive_sleep(SV_PAUSED);
	rig.saved.has_no_snapshot = true;
	restart_core("boot-1");
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(state(), SV_ENDED);
	ck_assert_int_eq(rig.saved.failure.code, FAIL_VM_VANISHED);
}
END_TEST

START_TEST(test_a_snapshot_that_fails_leaves_it_running)
{
	struct err err = ERR_NULL;

	drive(SV_RUNNING, NULL, 0);
	pause_as(PAUSE_OP);
	(void)err_set(&err, FAIL_SNAPSHOT_FAILED, ENOSPC, "no space");
	feed_of(SV_EV_SNAPSHOT_DONE, &err);
	ck_assert_ptr_nonnull(find(SV_DO_THAW));
	ck_assert_ptr_null(find(SV_DO_KILL_VMM));
	feed_of(SV_EV_THAWED, NULL);
	ck_assert_int_eq(state(), SV_RUNNING);
	ck_assert_str_eq(report()->updated, PAUSE_OP);
	ck_assert_int_eq(report()->update_failure.code, FAIL_SNAPSHOT_FAILED);
	ck_assert_int_eq(report()->update_failure.stage, STAGE_PAUSE);
	ck_assert(find(SV_DO_ROUTE)->ready);
	pause_as(PAUSE_OP); /* the same again is answered, not done */
	ck_assert_int_eq(state(), SV_RUNNING);
	ck_assert_ptr_nonnull(report());
	pause_as(RESUME_OP);
	ck_assert_int_eq(state(), SV_PAUSING);
	feed_of(SV_EV_SNAPSHOT_DONE, NULL);
	ck_assert_int_eq(state(), SV_SLEEPING);
}
END_TEST

/* No space for the journal: before the snapshot nothing was done, after it the VM goes on. */
START_TEST(test_a_sleep_that_is_not_journalled_is_undone)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_STATE_WRITE_FAILED, ENOSPC, "no space");
	drive(SV_RUNNING, NULL, 0);
	drive_sleep((enum sv_state)_i);
	feed_of(SV_EV_JOURNAL_FAILED, &err);
	if (_i == SV_PAUSING || _i == SV_SLEEPING) {
		ck_assert_int_eq(state(), SV_THAWING);
		ck_assert_ptr_null(find(SV_DO_KILL_VMM));
		/* a write that failed may be on disk all the same, and the VM goes on: nothing is to be woken from */
		ck_assert(_i == SV_PAUSING || find(SV_DO_DROP_SNAPSHOT));
		later(301 * USEC_PER_SEC); /* a healthy sandbox is not ended for it, however long that takes */
		ck_assert_int_eq(state(), SV_THAWING);
		ck_assert_ptr_nonnull(find(SV_DO_THAW));
		ck_assert_ptr_null(find(SV_DO_KILL_VMM));
		feed_of(SV_EV_THAWED, NULL);
		ck_assert_int_eq(state(), SV_RUNNING);
	} else {
		ck_assert_int_eq(state(), SV_SLEEPING);
		if (find(SV_DO_KILL_VMM))
			feed_exit(SV_EXIT_KILLED, true);
		ck_assert(find(SV_DO_REMOVE_FILES)->keep_snapshot);
		feed_of(SV_EV_REMOVED, NULL);
		ck_assert_int_eq(state(), SV_PAUSED);
	}
	ck_assert_int_eq(report()->update_failure.code, FAIL_STATE_WRITE_FAILED);
	ck_assert_str_eq(report()->updated, _i <= SV_SLEEPING ? PAUSE_OP : RESUME_OP);
}
END_TEST

/* Nobody is told that it sleeps before a restart of the agent would say so too. */
START_TEST(test_that_it_sleeps_is_journalled_before_it_is_told)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_STATE_WRITE_FAILED, ENOSPC, "no space");
	drive(SV_RUNNING, NULL, 0);
	drive_sleep(SV_PAUSED);
	ck_assert_uint_lt(place_of(SV_DO_JOURNAL_WRITE), place_of(SV_DO_SEND_REPORT));
	ck_assert(!find(SV_DO_JOURNAL_WRITE)->journal.best_effort);
	feed_of(SV_EV_JOURNAL_FAILED, &err);
	ck_assert_int_eq(state(), SV_SLEEPING);
	later(6 * USEC_PER_SEC);
	ck_assert(find(SV_DO_REMOVE_FILES)->keep_snapshot);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(state(), SV_PAUSED);
	ck_assert_int_eq(report()->state, REPORT_PAUSED);
}
END_TEST

/* Whatever breaks before its processes go on, it sleeps as before, and can be woken again. */
START_TEST(test_a_wake_that_fails_leaves_it_asleep)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_RESTORE_FAILED, EINVAL, "no");
	drive(SV_RUNNING, NULL, 0);
	drive_sleep(_i == 4 ? SV_WAKE_GUEST : _i == 3 ? SV_WAKE_GUEST : _i ? SV_WAKE_VMM : SV_WAKE_NETWORK);
	if (_i == 0) {
		feed_network(false, &err);
	} else if (_i == 1 || _i == 3) {
		feed_exit(SV_EXIT_KILLED, true);
	} else if (_i == 2) {
		later(rig.config.vmm_timeout_usec + 1);
	} else {
		feed_of(SV_EV_GUEST_CONFIGURED, &err);
	}
	if (find(SV_DO_KILL_VMM))
		feed_exit(SV_EXIT_KILLED, true);
	ck_assert(find(SV_DO_REMOVE_FILES)->keep_snapshot);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(state(), SV_PAUSED);
	ck_assert_str_eq(report()->updated, RESUME_OP);
	ck_assert(err_is_set(&report()->update_failure));
	ck_assert_int_eq(report()->update_failure.stage, STAGE_RESUME);
	resume_as(RESUME_OP, 0);
	ck_assert_int_eq(state(), SV_PAUSED);
	resume_as(PAUSE_OP, 0);
	ck_assert_int_eq(state(), SV_WAKE_NETWORK);
}
END_TEST

/* The VMM dies: until SLEEPING is written that is the end of a running VM, and after a thaw again. */
START_TEST(test_a_vmm_that_dies_awake)
{
	drive(SV_RUNNING, NULL, 0);
	drive_sleep(_i ? SV_THAWING : SV_PAUSING);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(state(), SV_ENDED);
	ck_assert_int_eq(report()->failure.code, FAIL_VMM_KILLED);
	ck_assert_int_eq(report()->failure.stage, _i ? STAGE_RESUME : STAGE_PAUSE);
}
END_TEST

START_TEST(test_its_room_is_taken_again_by_admission)
{
	drive(SV_RUNNING, NULL, 0);
	drive_sleep(SV_PAUSED);
	create_as("ffffffffffffffffffff", 1, 1, spec_make(7500, NULL, 0), 0);
	ck_assert(report()->accepted); /* it did not fit beside it */
	resume_as(RESUME_OP, 0);
	ck_assert_int_eq(state(), SV_PAUSED);
	ck_assert_str_eq(report()->updated, RESUME_OP);
	ck_assert_int_eq(report()->update_failure.code, FAIL_CAPACITY_STALE);
	ck_assert_ptr_null(find(SV_DO_MAKE_NETWORK));
}
END_TEST

static const struct {
	enum sv_state in, then;
	int64_t after_usec;
} sleep_limits[] = {
	{ SV_PAUSING, SV_THAWING, 301 * USEC_PER_SEC },
	{ SV_SLEEPING, SV_SLEEPING, 11 * USEC_PER_SEC },
	{ SV_WAKE_NETWORK, SV_SLEEPING, 31 * USEC_PER_SEC },
	{ SV_WAKE_VMM, SV_SLEEPING, 21 * USEC_PER_SEC },
	{ SV_WAKE_GUEST, SV_SLEEPING, 61 * USEC_PER_SEC },
	{ SV_THAWING, SV_KILLING, 301 * USEC_PER_SEC }, /* of a wake: drive_sleep() came that way */
};

START_TEST(test_every_state_of_sleep_has_a_limit)
{
	drive(SV_RUNNING, NULL, 0);
	drive_sleep(sleep_limits[_i].in);
	later(sleep_limits[_i].after_usec);
	ck_assert_int_eq(state(), sleep_limits[_i].then);
	if (sleep_limits[_i].in == SV_SLEEPING)
		ck_assert_ptr_nonnull(find(SV_DO_KILL_VMM)); /* again */
}
END_TEST

/* At the end of its life it is paused where its maker wanted that; one that cannot be is ended, after a while. */
START_TEST(test_its_life_ends_in_sleep)
{
	struct sandbox_spec *spec = spec_make(1000, NULL, 20);
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_SNAPSHOT_FAILED, ENOSPC, "no space");
	spec->auto_pause = true;
	create_as(ID, 1, 1, spec, 0);
	feed_of(SV_EV_IMAGE_DONE, NULL);
	feed_of(SV_EV_DISK_DONE, NULL);
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "simulated");
	feed_of(SV_EV_VMM_USERSPACE, NULL);
	feed_guest(SV_EV_GUEST_HELLO, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	journalled(ID, 1);
	ck_assert_int_eq(state(), SV_RUNNING);
	later(21 * USEC_PER_SEC);
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(state(), SV_PAUSING);
		if (_i == 0) {
			feed_of(SV_EV_SNAPSHOT_DONE, NULL);
			feed_exit(SV_EXIT_KILLED, true);
			feed_of(SV_EV_REMOVED, NULL);
			ck_assert_int_eq(report()->state, REPORT_PAUSED);
			return;
		}
		feed_of(SV_EV_SNAPSHOT_DONE, &err);
		feed_of(SV_EV_THAWED, NULL);
		ck_assert_int_eq(state(), SV_RUNNING);
		later(61 * USEC_PER_SEC);
	}
	ck_assert_int_eq(state(), SV_KILLING);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(report()->end_reason, END_TIMEOUT);
}
END_TEST

/* It has its disk already: one that fills up keeps nobody asleep. What keeps every VM from running does. */
START_TEST(test_a_wake_under_disk_pressure)
{
	struct sv_capacity capacity = { .capacity = { 8000, 4, 10000, 4, 2, 4, 0 }, .disk_free_mib = 0 };

	(void)err_set(&capacity.unschedulable, _i ? FAIL_KVM_UNAVAILABLE : FAIL_DISK_PRESSURE, 0, "no");
	drive(SV_RUNNING, NULL, 0);
	drive_sleep(SV_PAUSED);
	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &capacity });
	resume_as(RESUME_OP, 0);
	ck_assert_int_eq(state(), _i ? SV_PAUSED : SV_WAKE_NETWORK);
	if (_i)
		ck_assert_int_eq(report()->update_failure.code, FAIL_KVM_UNAVAILABLE);
	create_as("ffffffffffffffffffff", 1, 1, spec_make(1000, NULL, 0), 0);
	ck_assert_int_eq(report()->failure.code, _i ? FAIL_KVM_UNAVAILABLE : FAIL_DISK_PRESSURE);
}
END_TEST

/* Who gives it more time gives it as many tries at the new end as at the first. */
START_TEST(test_a_longer_life_has_its_own_tries)
{
	struct update_command update = { .generation = 1, .timeout_s = 100, .operation = RESUME_OP };
	struct sandbox_spec *spec = spec_make(1000, NULL, 20);
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_SNAPSHOT_FAILED, ENOSPC, "no space");
	memcpy(update.sandbox, ID, ID_SIZE);
	spec->auto_pause = true;
	create_as(ID, 1, 1, spec, 0);
	feed_of(SV_EV_IMAGE_DONE, NULL);
	feed_of(SV_EV_DISK_DONE, NULL);
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "simulated");
	feed_of(SV_EV_VMM_USERSPACE, NULL);
	feed_guest(SV_EV_GUEST_HELLO, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	journalled(ID, 1);
	later(21 * USEC_PER_SEC);
	for (int i = 0; i < 4 + 5; i++) {
		ck_assert_int_eq(state(), SV_PAUSING);
		feed_of(SV_EV_SNAPSHOT_DONE, &err);
		feed_of(SV_EV_THAWED, NULL);
		if (i == 3)
			feed((struct sv_event){ .type = SV_EV_UPDATE, .epoch = 1, .update = &update });
		later((i == 3 ? 101 : 61) * USEC_PER_SEC);
	}
	ck_assert_int_eq(state(), SV_KILLING);
}
END_TEST

static void add_sleep_tests(TCase *tcase)
{
	tcase_add_test(tcase, test_to_sleep_and_awake);
	tcase_add_test(tcase, test_many_sleeps);
	tcase_add_test(tcase, test_what_was_overtaken_is_not_done);
	tcase_add_test(tcase, test_a_wake_is_done_once);
	tcase_add_loop_test(tcase, test_a_thaw_that_fails_after_a_restart, 0, 3);
	tcase_add_loop_test(tcase, test_destroy_from_every_state_of_sleep, SV_PAUSING, SV_THAWING + 1);
	tcase_add_test(tcase, test_host_reboots);
	tcase_add_loop_test(tcase, test_agent_dies_while_it_sleeps, SV_PAUSING, SV_THAWING + 1);
	tcase_add_loop_test(tcase, test_host_dies_while_it_sleeps, SV_PAUSING, SV_THAWING + 1);
	tcase_add_test(tcase, test_one_that_sleeps_without_its_files_is_gone);
	tcase_add_test(tcase, test_a_snapshot_that_fails_leaves_it_running);
	tcase_add_loop_test(tcase, test_a_sleep_that_is_not_journalled_is_undone, SV_PAUSING, SV_SLEEPING + 1);
	tcase_add_loop_test(tcase, test_a_sleep_that_is_not_journalled_is_undone, SV_WAKE_NETWORK, SV_THAWING + 1);
	tcase_add_test(tcase, test_that_it_sleeps_is_journalled_before_it_is_told);
	tcase_add_loop_test(tcase, test_a_wake_that_fails_leaves_it_asleep, 0, 5);
	tcase_add_loop_test(tcase, test_a_vmm_that_dies_awake, 0, 2);
	tcase_add_test(tcase, test_its_room_is_taken_again_by_admission);
	tcase_add_loop_test(tcase, test_every_state_of_sleep_has_a_limit, 0, ARRAY_LEN(sleep_limits));
	tcase_add_loop_test(tcase, test_its_life_ends_in_sleep, 0, 2);
	tcase_add_loop_test(tcase, test_a_wake_under_disk_pressure, 0, 2);
	tcase_add_test(tcase, test_a_longer_life_has_its_own_tries);
}
