/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's own test VM on a virtual clock: when it boots, what its end means for placement, and that nothing of it is left
 * behind or told as a sandbox.
 */
#include "lib/suite.h"
#include "unit/test-supervisor-rig.h"

#define PERIOD (300 * USEC_PER_SEC)
#define AGAIN (10 * USEC_PER_SEC)

static void feed_canary(struct sv_event event, uint64_t number)
{
	event.generation = number;
	memcpy(event.sandbox, SV_CANARY, ID_SIZE);
	feed(event);
}

static uint64_t number; /* of the canary under way */

static void has_capacity(uint64_t memory_mib, uint32_t max_sandboxes)
{
	struct sv_capacity capacity = { .capacity = { .memory_mib = memory_mib, .cpus = 4, .disk_mib = 10000,
			.max_sandboxes = max_sandboxes, .max_starts = 2, .max_vcpus = 4 }, .disk_free_mib = 10000 };

	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &capacity });
}

static void make(void)
{
	memset(&rig, 0, sizeof(rig));
	rig.rng = rng_seeded(1);
	rig.now = (struct moment){ .mono_usec = 1000 * USEC_PER_SEC, .real_usec = 5000 * USEC_PER_SEC };
	sv_config_default(&rig.config);
	rig.config.canary_usec = PERIOD;
	memcpy(rig.config.host_boot_id, "boot-1", 7);
	memcpy(rig.config.run_base, "/run/croft", 11);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	feed((struct sv_event){ .type = SV_EV_START });
	has_capacity(8000, 4);
	connect_core();
	number = 0;
}

static void begins(void)
{
	const struct sv_action *kill;

	later(0);
	kill = find(SV_DO_KILL_VMM);
	ck_assert_ptr_nonnull(kill);
	ck_assert_str_eq(kill->sandbox, SV_CANARY);
	ck_assert_str_eq(kill->vmm.run_dir, "/run/croft/ca4a7000"); /* a former one's is found there */
	ck_assert_uint_eq(kill->generation, ++number);
}

static void clears(void)
{
	feed_canary((struct sv_event){ .type = SV_EV_VMM_EXITED, .exited = { .reason = SV_EXIT_VANISHED } }, number);
	ck_assert_str_eq(find(SV_DO_REMOVE_FILES)->sandbox, SV_CANARY);
	feed_canary((struct sv_event){ .type = SV_EV_REMOVED }, number);
}

static void network_comes(const struct err *err)
{
	struct sv_event event = { .type = SV_EV_NETWORK_DONE };

	ck_assert_str_eq(find(SV_DO_MAKE_NETWORK)->sandbox, SV_CANARY);
	event.network.is_made = !err;
	event.network.err = err;
	feed_canary(event, number);
}

/* Since it began. */
static void starts_on(void)
{
	struct sv_vmm_id vmm = { .pid = 4711, .start_ticks = 5 };
	struct sv_event event = { .type = SV_EV_VMM_SPAWNED };
	const struct sv_action *start;

	clears();
	network_comes(NULL);
	ck_assert_ptr_nonnull(find(SV_DO_SPAWN_VMM));
	event.spawned.vmm = &vmm;
	feed_canary(event, number);
	feed_canary((struct sv_event){ .type = SV_EV_VMM_JAILED, .jailed = { .is_whole = true, .text = "all" } }, number);
	start = find(SV_DO_START_VMM);
	ck_assert_ptr_nonnull(start);
	ck_assert_str_eq(start->spec->image_digest, "");
	ck_assert_uint_gt(start->lease.length_ms, 0); /* an agent that dies leaves no VM for ever */
}

static void starts(void)
{
	begins();
	starts_on();
}

static void boots(void)
{
	struct err no_root = ERR_NULL;
	struct sv_event event = { .type = SV_EV_GUEST_HELLO };

	(void) err_set(&no_root, FAIL_ROOTFS_UNREADABLE, 0, "no disk with the image");
	event.guest.boot_id = "";
	event.guest.err = &no_root;
	feed_canary(event, number);
	ck_assert_int_eq(find(SV_DO_KILL_VMM)->vmm.pid, 4711);
}

static void spawns(void)
{
	feed_canary((struct sv_event){ .type = SV_EV_VMM_SPAWNED, .spawned = { .vmm = &(struct sv_vmm_id){ .pid = 4711 } } }, number);
	feed_canary((struct sv_event){ .type = SV_EV_VMM_JAILED, .jailed = { .is_whole = true, .text = "all" } }, number);
}

/* Since the tick that began it. */
static void panics(void)
{
	number++;
	clears();
	network_comes(NULL);
	spawns();
	feed_canary((struct sv_event){ .type = SV_EV_VMM_EXITED, .exited = { .reason = SV_EXIT_PANIC } }, number);
	ck_assert(find(SV_DO_REMOVE_FILES)->keep_evidence);
}

/* What the scheduler was told with the last step; -1: nothing. */
static int told(void)
{
	const struct sv_action *action = find(SV_DO_SEND_CAPACITY);

	return action ? (int) action->capacity->unschedulable.code : -1;
}

static bool is_schedulable(void)
{
	for (int i = 0; i < 5; i++) {
		later(USEC_PER_SEC);
		if (find(SV_DO_SEND_HEARTBEAT))
			return find(SV_DO_SEND_HEARTBEAT)->heartbeat.schedulable;
	}
	ck_abort_msg("no heartbeat");
	return false;
}

static void is_removed(void)
{
	feed_canary((struct sv_event){ .type = SV_EV_REMOVED }, number);
	ck_assert_ptr_nonnull(find(SV_DO_JOURNAL_REMOVE));
	ck_assert_ptr_null(find(SV_DO_JOURNAL_WRITE));
	ck_assert_ptr_null(find(SV_DO_SEND_REPORT));
	ck_assert_ptr_null(find(SV_DO_STAGE));
}

static void nothing_is_left(void)
{
	feed_canary((struct sv_event){ .type = SV_EV_VMM_EXITED, .exited = { .reason = SV_EXIT_VANISHED } }, number);
	ck_assert_str_eq(find(SV_DO_REMOVE_FILES)->sandbox, SV_CANARY);
	is_removed();
}

START_TEST(nothing_is_left_of_one)
{
	make();
	starts();
	ck_assert(!is_schedulable()); /* not placed on before the first is decided */
	boots();
	ck_assert_int_eq(told(), FAIL_NONE);
	feed_canary((struct sv_event){ .type = SV_EV_VMM_EXITED, .exited = { .reason = SV_EXIT_VANISHED } }, number);
	ck_assert(!find(SV_DO_REMOVE_FILES)->keep_evidence);
	is_removed();
	ck_assert(is_schedulable());
}
END_TEST

START_TEST(one_that_fails_keeps_the_node_out_until_one_boots)
{
	int64_t began;

	make();
	starts();
	boots();
	nothing_is_left();
	later(PERIOD);
	panics();
	ck_assert_int_eq(told(), -1); /* one may be chance */
	ck_assert_str_eq(find(SV_DO_NODE_EVENT)->event.name, "canary-again");
	is_removed();
	ck_assert(is_schedulable());
	later(AGAIN - 1 - USEC_PER_SEC);
	ck_assert_ptr_null(find(SV_DO_KILL_VMM));
	later(1);
	began = rig.now.mono_usec;
	panics();
	ck_assert_int_eq(told(), FAIL_CANARY_FAILED);
	ck_assert_str_eq(err_field(&find(SV_DO_SEND_CAPACITY)->capacity->unschedulable, "canary_code"), "GUEST_PANIC");
	ck_assert_str_eq(find(SV_DO_NODE_EVENT)->event.name, "canary-failed");
	ck_assert_str_eq(find(SV_DO_REMOVE_FILES)->sandbox, SV_CANARY);
	feed_canary((struct sv_event){ .type = SV_EV_REMOVED }, number);
	ck_assert(!is_schedulable());
	create_as(ID, 1, 1, spec_make(1000, NULL, 0), 0);
	ck_assert_int_eq(report()->failure.code, FAIL_CANARY_FAILED);
	/* the next when its time has come, and not before */
	later(began + PERIOD - 1 - rig.now.mono_usec);
	ck_assert_ptr_null(find(SV_DO_KILL_VMM));
	later(1);
	ck_assert_ptr_nonnull(find(SV_DO_KILL_VMM));
	number++;
	feed_canary((struct sv_event){ .type = SV_EV_VMM_EXITED, .exited = { .reason = SV_EXIT_VANISHED } }, number);
	ck_assert(!find(SV_DO_REMOVE_FILES)->keep_evidence); /* that was another's failure */
	feed_canary((struct sv_event){ .type = SV_EV_REMOVED }, number);
	network_comes(NULL);
	spawns();
	boots();
	ck_assert_int_eq(told(), FAIL_NONE);
	ck_assert_str_eq(find(SV_DO_NODE_EVENT)->event.name, "canary-good");
	nothing_is_left();
	ck_assert(is_schedulable());
}
END_TEST

static void hangs(int stage)
{
	clears();
	if (stage > 0)
		network_comes(NULL);
	if (stage > 1)
		spawns();
	for (int i = 0; i < 200 && !find(SV_DO_KILL_VMM); i++)
		later(USEC_PER_SEC);
	ck_assert_ptr_nonnull(find(SV_DO_KILL_VMM));
}

/* Each step that never answers is given up, and counts. */
START_TEST(a_step_that_hangs_is_a_failure)
{
	static const char *const stages[] = { "network", "vmm", "kernel" };

	make();
	begins();
	hangs(_i);
	ck_assert_int_eq(told(), -1);
	feed_canary((struct sv_event){ .type = SV_EV_VMM_EXITED, .exited = { .reason = SV_EXIT_VANISHED } }, number);
	ck_assert(find(SV_DO_REMOVE_FILES)->keep_evidence);
	later(rig.config.disk_timeout_usec);
	ck_assert(find(SV_DO_REMOVE_FILES)->keep_evidence); /* again */
	is_removed();
	later(AGAIN);
	number++;
	hangs(_i);
	ck_assert_int_eq(told(), FAIL_CANARY_FAILED);
	ck_assert_str_eq(err_field(&find(SV_DO_SEND_CAPACITY)->capacity->unschedulable, "canary_stage"), stages[_i]);
	nothing_is_left();
}
END_TEST

/* Only failures in a row count, and a sandbox's boot breaks it as well. */
START_TEST(one_that_boots_clears_the_doubt)
{
	make();
	starts();
	boots();
	nothing_is_left();
	later(PERIOD);
	panics();
	is_removed();
	if (_i == 0) {
		later(AGAIN);
		number++;
		starts_on();
		boots();
		nothing_is_left();
	} else {
		drive(SV_RUNNING, NULL, 0);
	}
	later(PERIOD);
	panics();
	ck_assert_int_eq(told(), -1);
	is_removed();
	later(AGAIN);
	panics();
	ck_assert_int_eq(told(), FAIL_CANARY_FAILED);
	is_removed();
}
END_TEST

/* It is in no sum: it boots only where one more sandbox would. */
START_TEST(where_nothing_fits_it_waits)
{
	make();
	has_capacity(_i == 0 ? 1100 : 8000, _i == 0 ? 4 : 1);
	starts();
	boots();
	nothing_is_left();
	drive(SV_RUNNING, NULL, 0); /* of 1000 MiB */
	ck_assert_int_eq(state(), SV_RUNNING);
	for (int i = 0; i < 3; i++) {
		later(PERIOD);
		ck_assert_ptr_null(find(SV_DO_KILL_VMM));
		ck_assert_int_eq(told(), -1);
	}
	has_capacity(8000, 4);
	later(PERIOD - 1);
	ck_assert_ptr_null(find(SV_DO_KILL_VMM));
	later(1);
	ck_assert_str_eq(find(SV_DO_KILL_VMM)->sandbox, SV_CANARY);
	number++;
}
END_TEST

static void starts_on_no_slot(struct err *err)
{
	later(0);
	number++;
	clears();
	(void)err_set(err, FAIL_NETWORK_POOL_EMPTY, 0, "every slot is taken");
	network_comes(err);
	ck_assert_int_eq(told(), FAIL_NONE);
	nothing_is_left();
}

static bool find_canary_kill(void)
{
	return find(SV_DO_KILL_VMM) && !strcmp(find(SV_DO_KILL_VMM)->sandbox, SV_CANARY);
}

/* Before the first is decided nothing is placed; one failure leaves it in doubt, two do not. */
START_TEST(the_first_is_waited_for)
{
	make();
	ck_assert(!is_schedulable());
	number++;
	starts_on();
	create_as(ID, 1, 1, spec_make(1000, NULL, 0), 0);
	ck_assert_int_eq(report()->failure.code, FAIL_CANARY_PENDING);
	feed_canary((struct sv_event){ .type = SV_EV_VMM_EXITED, .exited = { .reason = SV_EXIT_PANIC } }, number);
	ck_assert_int_eq(told(), -1);
	is_removed();
	ck_assert(!is_schedulable());
	later(AGAIN - USEC_PER_SEC);
	panics();
	ck_assert_int_eq(told(), FAIL_CANARY_FAILED);
}
END_TEST

/* That it cannot be tried leaves nothing to wait for: nowhere does one wait for good. */
START_TEST(a_first_that_cannot_be_tried_is_not_waited_for)
{
	struct err err = ERR_NULL;

	make();
	if (_i == 0) {
		starts_on_no_slot(&err);
	} else {
		has_capacity(100, 4); /* MiB */
		later(0);
		ck_assert_ptr_null(find(SV_DO_MAKE_NETWORK));
	}
	ck_assert(is_schedulable());
}
END_TEST

/* What would not fit beside it ends it, and that is no verdict; what fits does not. */
START_TEST(it_makes_room)
{
	make();
	starts();
	boots();
	nothing_is_left();
	has_capacity(_i == 0 ? 1100 : 8000, 4);
	later(PERIOD);
	number++;
	clears();
	network_comes(NULL);
	spawns();
	create_unanswered(ID, 1, 1, spec_make(1000, NULL, 0), 0);
	ck_assert_int_eq(find_canary_kill(), _i == 0);
	ck_assert_ptr_nonnull(find(SV_DO_JOURNAL_WRITE));
	if (_i == 0) {
		nothing_is_left();
		ck_assert_int_eq(told(), -1);
	} else {
		boots();
	}
	ck_assert(is_schedulable());
}
END_TEST

/* That a full host has no slot says nothing about whether it can boot. */
START_TEST(a_full_host_decides_nothing)
{
	struct err err = ERR_NULL;

	make();
	starts();
	boots();
	nothing_is_left();
	later(PERIOD);
	number++;
	clears();
	(void) err_set(&err, FAIL_NETWORK_POOL_EMPTY, 0, "every slot is taken");
	network_comes(&err);
	ck_assert_int_eq(told(), -1);
	nothing_is_left();
	ck_assert(is_schedulable());
}
END_TEST

/* A sandbox that booted is as good: the next canary comes a whole time later. */
START_TEST(a_sandbox_that_boots_is_as_good)
{
	make();
	starts();
	boots();
	nothing_is_left();
	later(PERIOD - 10 * USEC_PER_SEC);
	drive(SV_RUNNING, NULL, 0);
	ck_assert_int_eq(state(), SV_RUNNING);
	later(PERIOD - USEC_PER_SEC);
	ck_assert_ptr_null(find(SV_DO_KILL_VMM));
	later(USEC_PER_SEC);
	ck_assert_ptr_nonnull(find(SV_DO_KILL_VMM));
	ck_assert_str_eq(find(SV_DO_KILL_VMM)->sandbox, SV_CANARY);
}
END_TEST

/* In a day at most one in so long, but for the one after a first failure; a result of a former one changes nothing. */
START_TEST(never_more_often)
{
	int64_t last = 0;
	unsigned int n = 0, again = 0;

	make();
	for (int i = 0; i < 24 * 3600; i++) {
		const struct sv_action *kill;

		later(USEC_PER_SEC);
		kill = find(SV_DO_KILL_VMM);
		if (!kill)
			continue;
		if (kill->generation != number) {
			again += last != 0 && rig.now.mono_usec - last < PERIOD;
			last = rig.now.mono_usec;
			number = kill->generation;
			n++;
		}
		feed_canary((struct sv_event){ .type = SV_EV_REMOVED }, number - 1);
		clears();
		if (find(SV_DO_MAKE_NETWORK) && number % 3 == 0)
			network_comes(NULL); /* and the VMM never comes */
	}
	ck_assert_uint_le(again, 1);
	ck_assert_uint_ge(n, 24 * 3600 / 300 - 24);
}
END_TEST

static bool has_begun(void)
{
	for (size_t i = 0; i < rig.out.n; i++)
		if (rig.out.items[i].type == SV_DO_KILL_VMM && !strcmp(rig.out.items[i].sandbox, SV_CANARY))
			return true;
	return false;
}

/* The next agent finds a sandbox that runs: that is evidence enough for a while. */
START_TEST(what_is_adopted_has_booted)
{
	make();
	starts();
	boots();
	nothing_is_left();
	drive(SV_RUNNING, NULL, 0);
	ck_assert_int_eq(state(), SV_RUNNING);
	sv_actions_clear(&rig.out);
	rig.core = supervisor_free(rig.core);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	feed((struct sv_event){ .type = SV_EV_LOAD, .journal = &rig.saved });
	feed((struct sv_event){ .type = SV_EV_START });
	later(PERIOD - 1);
	ck_assert(!has_begun());
	later(1);
	ck_assert(has_begun());
}
END_TEST

START_TEST(no_scheduler_makes_one)
{
	make();
	create_as(SV_CANARY, 1, 1, spec_make(1000, NULL, 0), 0);
	ck_assert_uint_eq(rig.out.n, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("canary");
	TCase *tcase = tcase_create("canary");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, NULL, teardown);
	tcase_add_test(tcase, nothing_is_left_of_one);
	tcase_add_test(tcase, one_that_fails_keeps_the_node_out_until_one_boots);
	tcase_add_loop_test(tcase, a_step_that_hangs_is_a_failure, 0, 3);
	tcase_add_loop_test(tcase, one_that_boots_clears_the_doubt, 0, 2);
	tcase_add_loop_test(tcase, where_nothing_fits_it_waits, 0, 2);
	tcase_add_test(tcase, the_first_is_waited_for);
	tcase_add_loop_test(tcase, a_first_that_cannot_be_tried_is_not_waited_for, 0, 2);
	tcase_add_loop_test(tcase, it_makes_room, 0, 2);
	tcase_add_test(tcase, a_full_host_decides_nothing);
	tcase_add_test(tcase, a_sandbox_that_boots_is_as_good);
	tcase_add_test(tcase, never_more_often);
	tcase_add_test(tcase, what_is_adopted_has_booted);
	tcase_add_test(tcase, no_scheduler_makes_one);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
