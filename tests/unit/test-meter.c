/* SPDX-License-Identifier: Apache-2.0
 *
 * What sandboxes use: the arithmetic, and the accounts of a node from accept to acknowledgement, over restarts.
 */
#include "core/meter.h"
#include "test-supervisor-rig.h"

#define SEC USEC_PER_SEC
#define SAVED_MAX 16

static struct sv_usage_saved saved[SAVED_MAX];
static size_t n_saved;

static void keep(const struct sv_usage_saved *one, void *user)
{
	(void)user;
	ck_assert_uint_lt(n_saved, SAVED_MAX);
	saved[n_saved++] = *one;
}

/* As the shell does every few seconds; `durable` false: the write failed, or the agent ended first. */
static void write_down(bool durable)
{
	n_saved = 0;
	(void)supervisor_usage_take(rig.core, rig.now, keep, NULL);
	if (durable)
		feed((struct sv_event){ .type = SV_EV_USAGE_SAVED });
}

static const struct usage_record *used_of(uint64_t generation)
{
	n_saved = 0;
	(void)supervisor_usage_take(rig.core, rig.now, keep, NULL);
	for (size_t i = 0; i < n_saved; i++)
		if (saved[i].meter.used.generation == generation)
			return &saved[i].meter.used;
	ck_abort_msg("there is no account of generation %llu", (unsigned long long)generation);
	return NULL;
}

static void advance(int64_t usec)
{
	rig.now.mono_usec += usec;
	rig.now.real_usec += usec;
}

static void to_kernel(void)
{
	feed_of(SV_EV_IMAGE_DONE, NULL);
	feed_of(SV_EV_DISK_DONE, NULL);
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "");
	feed_of(SV_EV_VMM_STARTED, NULL);
	feed_of(SV_EV_VMM_USERSPACE, NULL);
}

static void to_running(void)
{
	to_kernel();
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

static void to_paused(void)
{
	struct pause_command pause = { .generation = 1, .operation = "pppppppppppppppppppp" };

	memcpy(pause.sandbox, ID, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_PAUSE, .epoch = 1, .pause = &pause });
	feed_of(SV_EV_SNAPSHOT_DONE, NULL);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
}

static void begin_wake(void)
{
	struct resume_command resume = { .generation = 1, .operation = "rrrrrrrrrrrrrrrrrrrr" };

	memcpy(resume.sandbox, ID, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_RESUME, .epoch = 1, .resume = &resume });
}

static void to_awake(void)
{
	begin_wake();
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "");
	feed_of(SV_EV_VMM_STARTED, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	feed_of(SV_EV_THAWED, NULL);
}

/* The next agent, with what the last one wrote down. */
static void restart(const char *boot)
{
	struct sv_usage_saved files[SAVED_MAX];
	const size_t n = n_saved;

	memcpy(files, saved, sizeof(files));
	rig.core = supervisor_free(rig.core);
	sv_actions_clear(&rig.out);
	memcpy(rig.config.host_boot_id, boot, 7);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	if (rig.has_saved)
		feed((struct sv_event){ .type = SV_EV_LOAD, .journal = &rig.saved });
	for (size_t i = 0; i < n; i++)
		feed((struct sv_event){ .type = SV_EV_LOAD_USAGE, .saved = &files[i] });
	feed((struct sv_event){ .type = SV_EV_START });
	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &(struct sv_capacity){ .disk_free_mib = 1 } });
}

/* ---- the arithmetic ---- */

START_TEST(time_goes_where_the_mode_says)
{
	struct sandbox_spec *spec = spec_make(1000, NULL, 0);
	struct moment now = { .mono_usec = 7 * SEC, .real_usec = 70 * SEC };
	struct meter meter;

	meter_begin(&meter, ID, 3, spec, &now);
	now.mono_usec += 2 * SEC;
	meter_move(&meter, METER_DISK, &now);
	now.mono_usec += 3 * SEC;
	meter_move(&meter, METER_RUNNING, &now);
	now.mono_usec += 5 * SEC;
	now.real_usec -= 60 * SEC; /* a wall clock that is set back costs nothing and is counted nowhere */
	meter_sync(&meter, &now);
	meter_move(&meter, METER_PAUSED, &now);
	now.mono_usec += 11 * SEC;
	meter_end(&meter, &now);
	now.mono_usec += 100 * SEC;
	meter_sync(&meter, &now);
	meter_move(&meter, METER_RUNNING, &now);
	ck_assert_uint_eq(meter.used.disk_us, 19 * SEC);
	ck_assert_uint_eq(meter.used.running_us, 5 * SEC);
	ck_assert_uint_eq(meter.used.paused_us, 11 * SEC);
	ck_assert_int_eq(meter.used.until_us, 70 * SEC);
	ck_assert_uint_eq(meter.used.uncounted_us, 0);
	ck_assert(meter.used.is_over);
	spec_unref(spec);
}
END_TEST

START_TEST(readings_count_once_and_only_of_a_vm_that_ran)
{
	struct sandbox_spec *spec = spec_make(1000, NULL, 0);
	struct moment now = { .mono_usec = 7 * SEC, .real_usec = 70 * SEC };
	struct meter meter;

	meter_begin(&meter, ID, 1, spec, &now);
	meter_read_cpu(&meter, 900); /* it boots: nobody is charged yet */
	ck_assert_uint_eq(meter.used.cpu_us, 0);
	meter_move(&meter, METER_RUNNING, &now);
	meter_read_cpu(&meter, 1000);
	meter_read_cpu(&meter, 1000);
	meter_read_cpu(&meter, 1500);
	meter_read_egress(&meter, 50);
	ck_assert_uint_eq(meter.used.cpu_us, 1500);
	meter_move(&meter, METER_PAUSED, &now);
	meter_read_cpu(&meter, 1600); /* the last reading comes late */
	ck_assert_uint_eq(meter.used.cpu_us, 1600);
	meter_new_vm(&meter);
	meter_read_cpu(&meter, 400); /* of a wake that comes to nothing */
	meter_new_vm(&meter);
	ck_assert_uint_eq(meter.used.cpu_us, 1600);
	meter_move(&meter, METER_RUNNING, &now);
	meter_read_cpu(&meter, 300);
	meter_read_egress(&meter, 70);
	ck_assert_uint_eq(meter.used.cpu_us, 1900);
	ck_assert_uint_eq(meter.used.egress_bytes, 120);
	meter_read_egress(&meter, 5); /* its counters began anew */
	ck_assert_uint_eq(meter.used.egress_bytes, 125);
	spec_unref(spec);
}
END_TEST

/* ---- a node's accounts ---- */

START_TEST(a_start_is_disk_and_a_life_is_all)
{
	create(NULL, 0);
	advance(2 * SEC);
	feed_of(SV_EV_IMAGE_DONE, NULL);
	advance(3 * SEC);
	feed_of(SV_EV_DISK_DONE, NULL);
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "");
	feed_of(SV_EV_VMM_STARTED, NULL);
	feed_of(SV_EV_VMM_USERSPACE, NULL);
	feed_guest(SV_EV_GUEST_HELLO, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	journalled(ID, 1);
	ck_assert_uint_eq(used_of(1)->running_us, 0);
	advance(10 * SEC);
	read_vm(4 * SEC, 1000);
	ck_assert_uint_eq(used_of(1)->running_us, 10 * SEC);
	ck_assert_uint_eq(used_of(1)->disk_us, 13 * SEC);
	ck_assert_uint_eq(used_of(1)->cpu_us, 4 * SEC);
	ck_assert_uint_eq(used_of(1)->egress_bytes, 1000);
	ck_assert_uint_eq(used_of(1)->memory_mib, 1000);
}
END_TEST

START_TEST(a_start_that_failed_costs_its_disk_and_says_whose_time_it_was)
{
	struct err err = ERR_NULL;
	const struct usage_record *used;

	(void)err_set(&err, FAIL_NETWORK_RULES_FAILED, 0, "test");
	create(NULL, 0);
	advance(1 * SEC);
	feed_of(SV_EV_IMAGE_DONE, NULL);
	advance(2 * SEC);
	feed_of(SV_EV_DISK_DONE, NULL);
	feed_network(true, NULL);
	feed_spawned();
	feed_jailed(true, "");
	feed_of(SV_EV_VMM_STARTED, NULL);
	read_vm(5 * SEC, 70);
	advance(4 * SEC);
	feed_exit(SV_EXIT_PANIC, false);
	read_vm(6 * SEC, 80);
	advance(8 * SEC);
	feed_of(SV_EV_REMOVED, NULL);
	advance(100 * SEC);
	used = used_of(1);
	ck_assert_uint_eq(used->running_us, 0);
	ck_assert_uint_eq(used->cpu_us, 0);
	ck_assert_uint_eq(used->egress_bytes, 0);
	ck_assert_uint_eq(used->disk_us, 14 * SEC);
	ck_assert_uint_eq(used->lost_us[failure_info(FAIL_GUEST_PANIC)->component], 7 * SEC);
	ck_assert(used->is_over);
}
END_TEST

START_TEST(a_paused_one_costs_its_disk)
{
	create(NULL, 0);
	to_running();
	advance(10 * SEC);
	read_vm(3 * SEC, 10);
	to_paused();
	read_vm(4 * SEC, 20); /* as its group was when it went */
	advance(1000 * SEC);
	read_vm(4 * SEC, 20);
	ck_assert_uint_eq(used_of(1)->running_us, 10 * SEC);
	ck_assert_uint_eq(used_of(1)->paused_us, 1000 * SEC);
	ck_assert_uint_eq(used_of(1)->disk_us, 1010 * SEC);
	ck_assert_uint_eq(used_of(1)->cpu_us, 4 * SEC);
	to_awake();
	advance(5 * SEC);
	read_vm(1 * SEC, 7);
	ck_assert_uint_eq(used_of(1)->running_us, 15 * SEC);
	ck_assert_uint_eq(used_of(1)->cpu_us, 5 * SEC);
	ck_assert_uint_eq(used_of(1)->egress_bytes, 27);
}
END_TEST

START_TEST(a_wake_that_failed_costs_nothing_but_time)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_HELPER_UNAVAILABLE, 0, "test");
	create(NULL, 0);
	to_running();
	advance(10 * SEC);
	to_paused();
	begin_wake();
	advance(6 * SEC);
	feed_network(false, &err);
	advance(1 * SEC);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_uint_eq(used_of(1)->running_us, 10 * SEC);
	ck_assert_uint_eq(used_of(1)->paused_us, 7 * SEC);
	ck_assert_uint_eq(used_of(1)->lost_us[err.component], 6 * SEC);
}
END_TEST

START_TEST(an_ended_one_costs_its_disk_until_that_is_gone)
{
	create(NULL, 0);
	to_running();
	advance(10 * SEC);
	destroy(1);
	advance(2 * SEC);
	feed_exit(SV_EXIT_KILLED, true);
	read_vm(3 * SEC, 0);
	advance(4 * SEC);
	feed_of(SV_EV_REMOVED, NULL);
	advance(1000 * SEC);
	read_vm(100 * SEC, 100);
	ck_assert_uint_eq(used_of(1)->running_us, 10 * SEC);
	ck_assert_uint_eq(used_of(1)->cpu_us, 3 * SEC);
	ck_assert_uint_eq(used_of(1)->disk_us, 16 * SEC);
	ck_assert(used_of(1)->is_over);
	for (size_t i = 0; i < COMPONENT_MAX_; i++)
		ck_assert_uint_eq(used_of(1)->lost_us[i], 0);
}
END_TEST

START_TEST(a_life_that_failed_is_lost_since_it_last_began)
{
	const enum fail_component component = failure_info(FAIL_VMM_CRASHED)->component;

	create(NULL, 0);
	to_running();
	advance(10 * SEC);
	to_paused();
	to_awake();
	advance(30 * SEC);
	feed_exit(SV_EXIT_CRASHED, true);
	advance(50 * SEC);
	ck_assert_uint_eq(used_of(1)->running_us, 40 * SEC);
	ck_assert_uint_eq(used_of(1)->lost_us[component], 30 * SEC); /* the ten before are in its snapshot */
}
END_TEST

/* ---- restarts ---- */

START_TEST(an_agent_that_was_down_misses_nothing_and_counts_nothing_twice)
{
	create(NULL, 0);
	to_running();
	advance(10 * SEC);
	read_vm(3 * SEC, 10);
	write_down(true);
	advance(5 * SEC);
	read_vm(4 * SEC, 15); /* not written any more */
	n_saved = 1;
	advance(60 * SEC);
	restart("boot-1");
	ck_assert_uint_eq(used_of(1)->running_us, 10 * SEC); /* whether it is there is not known yet */
	feed_guest(SV_EV_ADOPTED, NULL);
	read_vm(20 * SEC, 90);
	ck_assert_uint_eq(used_of(1)->running_us, 75 * SEC);
	ck_assert_uint_eq(used_of(1)->cpu_us, 20 * SEC);
	ck_assert_uint_eq(used_of(1)->egress_bytes, 90);
	ck_assert_uint_eq(used_of(1)->uncounted_us, 0);
}
END_TEST

/* Its file is gone: what was told of it before is above what is counted now, so that it is said what may be missing. */
START_TEST(an_account_that_was_lost_is_missing_and_that_is_said)
{
	uint64_t version;

	create(NULL, 0);
	to_running();
	advance(10 * SEC);
	write_down(true);
	version = used_of(1)->version;
	n_saved = 0;
	advance(60 * SEC);
	restart("boot-1");
	feed_guest(SV_EV_ADOPTED, NULL);
	advance(5 * SEC);
	read_vm(20 * SEC, 90);
	ck_assert_uint_gt(used_of(1)->version, version + 1000000);
	ck_assert_uint_eq(used_of(1)->running_us, 5 * SEC);
	ck_assert_uint_eq(used_of(1)->uncounted_us, 70 * SEC);
}
END_TEST

START_TEST(a_vm_that_went_meanwhile_is_not_charged_and_that_is_said)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_VM_VANISHED, 0, "test");
	create(NULL, 0);
	to_running();
	advance(10 * SEC);
	write_down(true);
	advance(60 * SEC);
	restart("boot-1");
	feed_guest(SV_EV_ADOPTED, &err);
	ck_assert_uint_eq(used_of(1)->running_us, 10 * SEC);
	ck_assert_uint_eq(used_of(1)->uncounted_us, 60 * SEC);
	ck_assert_uint_eq(used_of(1)->disk_us, 70 * SEC);
}
END_TEST

START_TEST(a_host_that_was_rebooted_loses_a_period_at_most)
{
	create(NULL, 0);
	to_running();
	advance(10 * SEC);
	read_vm(3 * SEC, 10);
	write_down(true);
	rig.now.mono_usec = 30 * SEC; /* its clock begins anew */
	rig.now.real_usec += 90 * SEC;
	restart("boot-2");
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_uint_eq(used_of(1)->running_us, 10 * SEC);
	ck_assert_uint_eq(used_of(1)->cpu_us, 3 * SEC);
	ck_assert_uint_eq(used_of(1)->uncounted_us, 90 * SEC);
	ck_assert(used_of(1)->is_over);
}
END_TEST

START_TEST(what_sleeps_goes_on_sleeping_over_a_reboot)
{
	create(NULL, 0);
	to_running();
	advance(10 * SEC);
	to_paused();
	advance(100 * SEC);
	write_down(true);
	rig.now.mono_usec = 30 * SEC;
	rig.now.real_usec += 90 * SEC;
	restart("boot-2");
	advance(5 * SEC);
	ck_assert_uint_eq(used_of(1)->paused_us, 195 * SEC);
	ck_assert_uint_eq(used_of(1)->uncounted_us, 0);
}
END_TEST

/* ---- to the scheduler ---- */

static const struct usage_report *sent(void)
{
	const struct sv_action *action = find(SV_DO_SEND_USAGE);

	return action ? action->usage : NULL;
}

static void acknowledge(uint64_t number)
{
	feed((struct sv_event){ .type = SV_EV_USAGE_ACK, .epoch = 1, .number = number });
}

START_TEST(only_what_is_durable_is_told_and_told_until_acknowledged)
{
	uint64_t number;

	create(NULL, 0);
	to_running();
	advance(10 * SEC);
	write_down(false);
	later(120 * SEC);
	ck_assert_ptr_null(sent());
	write_down(true);
	advance(5 * SEC);
	write_down(false); /* counted, and a crash would take it back */
	later(SEC);
	ck_assert_ptr_nonnull(sent());
	ck_assert_uint_eq(sent()->n, 1);
	ck_assert_uint_eq(sent()->records[0].running_us, 130 * SEC); /* as it was written, not as it is */
	later(SEC);
	ck_assert_ptr_null(sent());
	later(31 * SEC);
	ck_assert_ptr_nonnull(sent());
	number = sent()->number;
	acknowledge(number);
	later(300 * SEC);
	ck_assert_ptr_null(sent()); /* nothing was written since */
	write_down(true);
	later(SEC);
	ck_assert_ptr_nonnull(sent());
	ck_assert_uint_gt(sent()->number, number);
	feed((struct sv_event){ .type = SV_EV_LINK_DOWN });
	connect_core();
	later(0);
	ck_assert_ptr_nonnull(sent()); /* what was on its way may be lost */
}
END_TEST

START_TEST(an_end_is_told_at_once_and_kept_until_it_is_known)
{
	create(NULL, 0);
	to_running();
	advance(10 * SEC);
	write_down(true);
	later(SEC);
	ck_assert_ptr_nonnull(sent());
	acknowledge(sent()->number);
	destroy(1);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	ack(UINT32_MAX); /* of the sandbox nothing is left */
	write_down(true);
	later(0);
	ck_assert_ptr_nonnull(sent());
	ck_assert(sent()->records[0].is_over);
	ck_assert_uint_eq(sent()->records[0].running_us, 11 * SEC);
	rig.has_saved = false;
	restart("boot-1");
	connect_core();
	later(0);
	ck_assert_ptr_nonnull(sent());
	ck_assert(sent()->records[0].is_over);
	acknowledge(sent()->number);
	later(600 * SEC);
	ck_assert_ptr_null(sent());
	ck_assert_uint_eq(used_of(1)->running_us, 11 * SEC); /* for whoever compares */
}
END_TEST

START_TEST(accounts_of_what_is_over_are_bounded_and_what_is_lost_is_said)
{
	struct sandbox_spec *spec = spec_make(1000, NULL, 0);
	struct sv_usage_saved one = { .host_boot_id = "boot-1" };

	rig.core = supervisor_free(rig.core);
	sv_actions_clear(&rig.out);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	meter_begin(&one.meter, ID, 1, spec, &rig.now);
	meter_end(&one.meter, &rig.now);
	for (uint64_t i = 1; i <= 5000; i++) {
		one.meter.used.generation = i;
		one.acked_version = i == 4000 ? one.meter.used.version : 0; /* goes first, and is missed by nobody */
		feed((struct sv_event){ .type = SV_EV_LOAD_USAGE, .saved = &one });
	}
	spec_unref(spec);
	feed((struct sv_event){ .type = SV_EV_START });
	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &(struct sv_capacity){ .disk_free_mib = 1 } });
	connect_core();
	later(0);
	ck_assert_ptr_nonnull(sent());
	ck_assert_uint_eq(sent()->n, USAGE_RECORDS_MAX);
	ck_assert_uint_eq(sent()->n_dropped, 5000 - 4096 - 1);
}
END_TEST

START_TEST(a_record_survives_the_wire_and_false_ones_do_not)
{
	struct usage_record record = { .sandbox = ID, .generation = 4, .tenant = "t", .version = 9, .began_us = 5, .until_us = 8,
		.vcpus = 2, .memory_mib = 512, .disk_mib = 100, .running_us = 1, .paused_us = 2, .disk_us = 3, .cpu_us = 4,
		.egress_bytes = 6, .uncounted_us = 7, .is_over = true };
	struct usage_record back;
	Croft__SandboxUsage *message;

	record.lost_us[COMPONENT_NODE_HOST] = 77;
	message = usage_record_encode(&record);
	ck_assert_ptr_nonnull(message);
	memset(&back, 0xff, sizeof(back));
	ck_assert_int_eq(usage_record_decode(message, &back, NULL), 0);
	ck_assert_mem_eq(back.lost_us, record.lost_us, sizeof(back.lost_us));
	ck_assert_uint_eq(back.egress_bytes, 6);
	ck_assert_uint_eq(back.cpu_us, 4);
	ck_assert_uint_eq(back.disk_us, 3);
	ck_assert_uint_eq(back.uncounted_us, 7);
	ck_assert_str_eq(back.tenant, "t");
	ck_assert(back.is_over);
	message->cpu_us = UINT64_C(1) << 60;
	ck_assert_int_lt(usage_record_decode(message, &back, NULL), 0);
	message->cpu_us = 4;
	message->until_us = 4;
	ck_assert_int_lt(usage_record_decode(message, &back, NULL), 0);
	message->until_us = 8;
	message->version = 0;
	ck_assert_int_lt(usage_record_decode(message, &back, NULL), 0);
	protobuf_c_message_free_unpacked(&message->base, NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("meter");
	TCase *tcase = tcase_create("arithmetic"), *node = tcase_create("node"), *restarts = tcase_create("restarts"),
	      *told = tcase_create("told");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tcase, time_goes_where_the_mode_says);
	tcase_add_test(tcase, readings_count_once_and_only_of_a_vm_that_ran);
	tcase_add_checked_fixture(node, setup, teardown);
	tcase_add_test(node, a_start_is_disk_and_a_life_is_all);
	tcase_add_test(node, a_start_that_failed_costs_its_disk_and_says_whose_time_it_was);
	tcase_add_test(node, a_paused_one_costs_its_disk);
	tcase_add_test(node, a_wake_that_failed_costs_nothing_but_time);
	tcase_add_test(node, an_ended_one_costs_its_disk_until_that_is_gone);
	tcase_add_test(node, a_life_that_failed_is_lost_since_it_last_began);
	tcase_add_checked_fixture(restarts, setup, teardown);
	tcase_add_test(restarts, an_agent_that_was_down_misses_nothing_and_counts_nothing_twice);
	tcase_add_test(restarts, an_account_that_was_lost_is_missing_and_that_is_said);
	tcase_add_test(restarts, a_vm_that_went_meanwhile_is_not_charged_and_that_is_said);
	tcase_add_test(restarts, a_host_that_was_rebooted_loses_a_period_at_most);
	tcase_add_test(restarts, what_sleeps_goes_on_sleeping_over_a_reboot);
	tcase_add_checked_fixture(told, setup, teardown);
	tcase_add_test(told, only_what_is_durable_is_told_and_told_until_acknowledged);
	tcase_add_test(told, an_end_is_told_at_once_and_kept_until_it_is_known);
	tcase_add_test(told, accounts_of_what_is_over_are_bounded_and_what_is_lost_is_said);
	tcase_add_test(told, a_record_survives_the_wire_and_false_ones_do_not);
	suite_add_tcase(suite, tcase);
	suite_add_tcase(suite, node);
	suite_add_tcase(suite, restarts);
	suite_add_tcase(suite, told);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
