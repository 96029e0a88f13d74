/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's core: order of the actions of a start, what each failure becomes, admission, restarts of the agent,
 * tombstones, and who may be obeyed.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/supervisor.h"
#include "lib/suite.h"
#include "test-supervisor-rig.h"

START_TEST(test_start_to_ready)
{
	const struct sandbox_report *last;

	create_unanswered(ID, 1, 1, spec_make(1000, NULL, 0), 0);
	ck_assert(find(SV_DO_JOURNAL_WRITE)->journal.answer);
	ck_assert_ptr_null(find(SV_DO_FETCH_IMAGE)); /* nothing before it is journalled */
	ck_assert_ptr_null(report());
	feed_of(SV_EV_JOURNALLED, NULL);
	ck_assert_uint_lt(place_of(SV_DO_SEND_REPORT), place_of(SV_DO_FETCH_IMAGE));
	ck_assert(report()->accepted);
	feed_of(SV_EV_IMAGE_DONE, NULL);
	ck_assert_ptr_nonnull(find(SV_DO_MAKE_DISK));
	feed_of(SV_EV_DISK_DONE, NULL);
	ck_assert_ptr_nonnull(find(SV_DO_MAKE_NETWORK));
	ck_assert_ptr_null(find(SV_DO_SPAWN_VMM));
	feed_network(false, NULL);
	ck_assert_uint_lt(
		place_of(SV_DO_JOURNAL_WRITE), place_of(SV_DO_SPAWN_VMM)); /* intent before act */
	ck_assert_str_eq(find(SV_DO_SPAWN_VMM)->vmm.run_dir, rig.saved.vmm.run_dir);
	feed_spawned();
	ck_assert_int_eq(rig.saved.vmm.pid, 4711);
	ck_assert_ptr_null(find(SV_DO_START_VMM)); /* not before it is confined */
	feed_jailed(true, "user namespace");
	ck_assert_ptr_nonnull(find(SV_DO_START_VMM));
	ck_assert_str_eq(report()->stages[report()->n_stages - 1].reason, "user namespace");
	feed_jailed(false, "twice");
	ck_assert_ptr_null(find(SV_DO_START_VMM));
	feed_of(SV_EV_VMM_STARTED, NULL);
	feed_of(SV_EV_VMM_USERSPACE, NULL);
	feed_guest(SV_EV_GUEST_HELLO, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	ck_assert(find(SV_DO_JOURNAL_WRITE)->journal.answer);
	ck_assert_ptr_null(find(SV_DO_ROUTE)); /* nobody gets in before that is journalled */
	ck_assert_ptr_null(report());
	feed_of(SV_EV_JOURNALLED, NULL);
	ck_assert(find(SV_DO_ROUTE)->ready);
	ck_assert_int_eq(rig.saved.state, SV_RUNNING);
	last = report();
	ck_assert_int_eq(last->state, REPORT_RUNNING);
	ck_assert_str_eq(last->guest_boot_id, "guest-boot");
	ck_assert_uint_eq(last->n_stages, STAGE_READY - STAGE_ACCEPT + 1);
	for (size_t i = 0; i < last->n_stages; i++)
		ck_assert_int_eq(last->stages[i].stage, STAGE_ACCEPT + (int)i);
	check_outcome(last, STAGE_NETWORK, RESULT_SKIPPED);
	check_outcome(last, STAGE_JAIL, RESULT_OK);
	check_outcome(last, STAGE_SETUP, RESULT_SKIPPED);
	check_outcome(last, STAGE_READY, RESULT_OK);
}
END_TEST

static void pass(int64_t usec)
{
	rig.now.mono_usec += usec;
	rig.now.real_usec += usec;
}

static const struct stage_record *stage_of(const struct sandbox_report *last, enum fail_stage stage)
{
	for (size_t i = 0; i < last->n_stages; i++)
		if (last->stages[i].stage == stage)
			return &last->stages[i];
	ck_abort_msg("stage %s is missing", stage_name(stage));
	return NULL;
}

/* Times are inputs: what a stage took is the time between the events that begin and end it. */
START_TEST(test_stages_take_their_time)
{
	int64_t began = rig.now.real_usec;

	create_unanswered(ID, 1, 1, spec_make(1000, NULL, 0), 0);
	pass(5000); /* the journal's fsync */
	journalled(ID, 1);
	ck_assert_int_eq(stage_of(report(), STAGE_ACCEPT)->took_us, 5000);
	ck_assert_int_eq(stage_of(report(), STAGE_ACCEPT)->began_us, began);
	pass(7000);
	feed_of(SV_EV_IMAGE_DONE, NULL);
	ck_assert_int_eq(stage_of(report(), STAGE_IMAGE)->took_us, 7000);
	ck_assert_int_eq(stage_of(report(), STAGE_IMAGE)->began_us, began + 5000);
	feed_of(SV_EV_DISK_DONE, NULL);
	feed_network(true, NULL);
	feed_spawned();
	feed_of(SV_EV_VMM_STARTED, NULL);
	feed_of(SV_EV_VMM_USERSPACE, NULL);
	feed_guest(SV_EV_GUEST_HELLO, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	pass(4000);
	journalled(ID, 1);
	ck_assert_int_eq(stage_of(report(), STAGE_READY)->took_us, 4000);
}
END_TEST

START_TEST(test_a_timeout_took_its_limit)
{
	drive(SV_KERNEL, NULL, 0);
	later(rig.config.kernel_timeout_usec);
	ck_assert_int_eq(report()->failure.code, FAIL_KERNEL_TIMEOUT);
	ck_assert_int_eq(stage_of(report(), STAGE_KERNEL)->took_us, rig.config.kernel_timeout_usec);
}
END_TEST

/* The agent ends between the journal and its word: the next one says it, and no stage is missing. */
START_TEST(test_restart_between_journal_and_word)
{
	create_unanswered(ID, 1, 1, spec_make(1000, NULL, 0), 0);
	rig.core = supervisor_free(rig.core);
	make_core();
	connect_core();
	ck_assert_int_eq(state(), SV_IMAGE);
	later(rig.config.report_usec);
	ck_assert_int_eq(stage_of(report(), STAGE_ACCEPT)->outcome, RESULT_OK);
	feed_of(SV_EV_IMAGE_DONE, NULL);
	feed_of(SV_EV_DISK_DONE, NULL);
	feed_network(true, NULL);
	feed_spawned();
	feed_of(SV_EV_VMM_STARTED, NULL);
	feed_guest(SV_EV_GUEST_HELLO, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	ck_assert_int_eq(rig.saved.state, SV_RUNNING);
	rig.core = supervisor_free(rig.core);
	make_core();
	connect_core();
	feed_guest(SV_EV_ADOPTED, NULL);
	ck_assert_int_eq(report()->state, REPORT_RUNNING);
	ck_assert_int_eq(stage_of(report(), STAGE_READY)->outcome, RESULT_OK);
}
END_TEST

/* How a VMM's end becomes a failure, by where the start was. */
struct exit_row {
	enum sv_state in;
	enum sv_exit reason;
	bool reached;
	enum fail_code code;
	enum fail_stage stage;
};

static const struct exit_row exit_rows[] = {
	{ SV_VMM, SV_EXIT_CRASHED, false, FAIL_VMM_CRASHED, STAGE_VMM },
	{ SV_VMM, SV_EXIT_PANIC, false, FAIL_GUEST_PANIC, STAGE_KERNEL },
	{ SV_KERNEL, SV_EXIT_PANIC, false, FAIL_GUEST_PANIC, STAGE_KERNEL },
	{ SV_KERNEL, SV_EXIT_RESET, false, FAIL_GUEST_RESET, STAGE_KERNEL },
	{ SV_KERNEL, SV_EXIT_TRIPLE_FAULT, false, FAIL_GUEST_TRIPLE_FAULT, STAGE_KERNEL },
	{ SV_KERNEL, SV_EXIT_PANIC, true, FAIL_GUEST_PANIC, STAGE_GUEST },
	{ SV_GUEST, SV_EXIT_PANIC, true, FAIL_GUEST_PANIC, STAGE_GUEST },
	{ SV_GUEST, SV_EXIT_POWEROFF, true, FAIL_GUEST_EXITED, STAGE_GUEST },
	{ SV_SETUP, SV_EXIT_KILLED, true, FAIL_VMM_KILLED, STAGE_SETUP },
	{ SV_RUNNING, SV_EXIT_PANIC, true, FAIL_GUEST_PANIC, STAGE_RUN },
	{ SV_RUNNING, SV_EXIT_KILLED, true, FAIL_VMM_KILLED, STAGE_RUN },
	{ SV_RUNNING, SV_EXIT_HOST_MEMORY, true, FAIL_HOST_MEMORY_FAULT, STAGE_RUN },
};

START_TEST(test_exits)
{
	const struct exit_row *row = &exit_rows[_i];

	drive(row->in, row->in == SV_SETUP ? "true" : NULL, 0);
	ck_assert_int_eq(state(), row->in);
	feed_exit(row->reason, row->reached);
	ck_assert_ptr_nonnull(find(SV_DO_REMOVE_FILES));
	ck_assert_ptr_null(find(SV_DO_KILL_VMM)); /* it is gone */
	ck_assert_int_eq(report()->state, REPORT_STOPPING);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(report()->state, REPORT_ENDED);
	ck_assert_str_eq(failure_info(report()->failure.code)->name, failure_info(row->code)->name);
	ck_assert_str_eq(stage_name(report()->failure.stage), stage_name(row->stage));
	ck_assert_int_eq(report()->end_reason, END_FAILED);
	check_outcome(report(), row->stage, RESULT_FAILED);
}
END_TEST

START_TEST(test_guest_powers_itself_off)
{
	drive(SV_RUNNING, NULL, 0);
	feed_exit(SV_EXIT_POWEROFF, true);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(report()->end_reason, END_GUEST);
	ck_assert_int_eq(report()->failure.code, FAIL_NONE);
}
END_TEST

struct limit_row {
	enum sv_state in;
	int64_t after_s;
	enum fail_code code;
};

static const struct limit_row limit_rows[] = {
	{ SV_IMAGE, 601, FAIL_IMAGE_FETCH_FAILED },
	{ SV_DISK, 61, FAIL_DISK_MAKE_FAILED },
	{ SV_NETWORK, 31, FAIL_HELPER_UNAVAILABLE },
	{ SV_VMM, 21, FAIL_VMM_UNRESPONSIVE },
	{ SV_KERNEL, 61, FAIL_KERNEL_TIMEOUT },
	{ SV_GUEST, 61, FAIL_GUEST_TIMEOUT },
	{ SV_SETUP, 311, FAIL_SETUP_TIMEOUT },
};

START_TEST(test_every_waiting_state_has_a_limit)
{
	const struct limit_row *row = &limit_rows[_i];

	drive(row->in, row->in == SV_SETUP ? "true" : NULL, 0);
	ck_assert_int_eq(state(), row->in);
	later(row->after_s * USEC_PER_SEC);
	if (row->in > SV_NETWORK) {
		ck_assert_ptr_nonnull(find(SV_DO_KILL_VMM));
		feed_exit(SV_EXIT_KILLED, false);
	}
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(state(), row->in == SV_NETWORK ? SV_KEPT : SV_ENDED);
	ck_assert_str_eq(failure_info(report()->failure.code)->name, failure_info(row->code)->name);
}
END_TEST

#include "unit/test-supervisor-keep.h"

START_TEST(test_failure_keeps_its_stage_and_code)
{
	struct err err = ERR_NULL;

	drive(SV_SETUP, "exit 3", 0);
	(void)err_set(&err, FAIL_SETUP_FAILED, 0, "It ended with 3.");
	err_add(&err, "exit", "3");
	feed_of(SV_EV_SETUP_DONE, &err);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(report()->failure.code, FAIL_SETUP_FAILED);
	ck_assert_int_eq(report()->failure.stage, STAGE_SETUP);
	ck_assert_str_eq(err_field(&report()->failure, "exit"), "3");
}
END_TEST

START_TEST(test_destroy_from_every_state)
{
	enum sv_state in = (enum sv_state)_i;

	drive(in, in == SV_SETUP ? "true" : NULL, 0);
	destroy(1);
	ck_assert_uint_eq(place_of(SV_DO_JOURNAL_WRITE), 0);
	ck_assert(find(SV_DO_JOURNAL_WRITE)->journal.best_effort); /* needs no free disk */
	if (in > SV_NETWORK) {
		ck_assert_ptr_nonnull(find(SV_DO_UNROUTE));
		ck_assert_ptr_nonnull(find(SV_DO_KILL_VMM));
		ck_assert_ptr_null(find(SV_DO_REMOVE_FILES)); /* not while it lives */
		feed_exit(SV_EXIT_KILLED, false);
	}
	ck_assert_ptr_nonnull(find(SV_DO_REMOVE_FILES));
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(report()->end_reason, END_REQUEST);
	ack(report()->version);
	ck_assert_ptr_nonnull(find(SV_DO_JOURNAL_REMOVE));
	ck_assert_int_eq(state(), SV_STATE_MAX_);
}
END_TEST

START_TEST(test_tombstone_stays_until_acknowledged)
{
	uint64_t version;

	drive(SV_RUNNING, NULL, 0);
	destroy(1);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	version = report()->version;
	ack(version - 1);
	ck_assert_int_eq(state(), SV_ENDED);
	later(3 * USEC_PER_SEC);
	ck_assert_int_eq(report()->state, REPORT_ENDED); /* again */
	/* the agent dies; the next one still has it, and never starts it again */
	rig.core = supervisor_free(rig.core);
	make_core();
	ck_assert_ptr_null(find(SV_DO_SPAWN_VMM));
	connect_core();
	ck_assert_uint_eq(find(SV_DO_SEND_INVENTORY)->inventory->n, 1);
	create(NULL, 0);
	ck_assert_int_eq(report()->state, REPORT_ENDED);
	ack(version);
	ck_assert_ptr_nonnull(find(SV_DO_JOURNAL_REMOVE));
}
END_TEST

START_TEST(test_adoption)
{
	drive(SV_RUNNING, NULL, 60);
	later(10 * USEC_PER_SEC);
	rig.core = supervisor_free(rig.core);
	rig.now.mono_usec += 20 * USEC_PER_SEC; /* no agent for 20 s */
	make_core();
	ck_assert_int_eq(state(), SV_ADOPTING);
	connect_core();
	feed_guest(SV_EV_ADOPTED, NULL);
	ck_assert_int_eq(state(), SV_RUNNING);
	ck_assert(find(SV_DO_ROUTE)->ready);
	ck_assert_ptr_null(find(SV_DO_KILL_VMM));
	later(29 * USEC_PER_SEC); /* 59 s of life */
	ck_assert_int_eq(state(), SV_RUNNING);
	later(2 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_KILLING);
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(report()->end_reason, END_TIMEOUT);
}
END_TEST

/* R202: a life is measured on clocks that nobody sets: the wall clock an hour ahead or behind ends nothing early or late, also
 * over a restart of the agent. */
START_TEST(test_the_wall_clock_ends_no_life)
{
	int64_t jump = (_i % 2 ? 1 : -1) * 3600 * USEC_PER_SEC;

	drive(SV_RUNNING, NULL, 600);
	rig.now.real_usec += jump;
	later(200 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_RUNNING);
	if (_i >= 2) {
		rig.core = supervisor_free(rig.core);
		rig.now.real_usec += jump;
		rig.now.mono_usec += 100 * USEC_PER_SEC;
		make_core();
		connect_core();
		feed_guest(SV_EV_ADOPTED, NULL);
		rig.now.real_usec -= 3 * jump;
		later(0);
	} else {
		later(100 * USEC_PER_SEC);
	}
	later(299 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_RUNNING);
	later(2 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_KILLING);
}
END_TEST

/* R059: a VMM that does not die (it hangs in the kernel) is killed again and again, and keeps what it has until it is seen to be
 * gone: neither its slot nor its files are taken from under it, and the same sandbox starts nowhere else here. */
START_TEST(test_nothing_is_taken_from_a_vmm_that_does_not_die)
{
	drive(SV_RUNNING, NULL, 0);
	destroy(1);
	ck_assert_int_eq(state(), SV_KILLING);
	for (int i = 0; i < 100; i++) {
		later(rig.config.kill_timeout_usec);
		ck_assert_int_eq(state(), SV_KILLING);
		ck_assert_ptr_nonnull(find(SV_DO_KILL_VMM));
		ck_assert_ptr_null(find(SV_DO_REMOVE_FILES));
		ck_assert_ptr_null(find(SV_DO_JOURNAL_REMOVE));
	}
	create_as(ID, 2, 1, spec_make(1000, NULL, 0), 0);
	ck_assert_ptr_null(find(SV_DO_FETCH_IMAGE));
	ck_assert_int_eq(state(), SV_KILLING);
	feed_exit(SV_EXIT_KILLED, true);
	ck_assert_ptr_nonnull(find(SV_DO_REMOVE_FILES));
}
END_TEST

START_TEST(test_adoption_of_what_is_gone)
{
	struct err err = ERR_NULL;

	drive(SV_RUNNING, NULL, 0);
	rig.core = supervisor_free(rig.core);
	make_core();
	connect_core();
	(void)err_set(&err, FAIL_VM_VANISHED, 0, "No such process.");
	feed_guest(SV_EV_ADOPTED, &err);
	feed_exit(SV_EXIT_VANISHED, false);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(report()->failure.code, FAIL_VM_VANISHED);
	ck_assert_int_eq(report()->failure.stage, STAGE_RUN);
}
END_TEST

START_TEST(test_restart_in_the_middle_of_a_start)
{
	enum sv_state in = (enum sv_state)_i;

	drive(in, NULL, 0);
	rig.core = supervisor_free(rig.core);
	make_core();
	if (in <= SV_NETWORK) {
		ck_assert_int_eq(state(), SV_IMAGE); /* nothing was spawned: it goes on */
		return;
	}
	ck_assert_int_eq(state(), SV_KILLING);
	connect_core();
	feed_exit(SV_EXIT_KILLED, false);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(report()->failure.code, FAIL_AGENT_RESTARTED);
	ck_assert(class_is_retryable(err_class(&report()->failure)));
}
END_TEST

/* All that this node has, and a whole set that names none of it. */
static void sweep(int64_t in_usec)
{
	struct desired_set set = { .complete = true };

	later(in_usec);
	feed((struct sv_event){ .type = SV_EV_LINK_DOWN });
	connect_core();
	ck_assert_ptr_nonnull(find(SV_DO_SEND_INVENTORY));
	ck_assert_uint_eq(find(SV_DO_SEND_INVENTORY)->inventory->n, 1); /* an open intent is listed as any other */
	ck_assert_str_eq(find(SV_DO_SEND_INVENTORY)->inventory->sandboxes[0].sandbox, ID);
	set.inventory = find(SV_DO_SEND_INVENTORY)->inventory->number;
	feed((struct sv_event){ .type = SV_EV_DESIRED, .epoch = 1, .desired = &set });
	ck_assert_ptr_null(find(SV_DO_KILL_VMM));
	ck_assert_ptr_null(find(SV_DO_REMOVE_FILES));
}

/* R047: a VMM was spawned and nothing is known of it yet, its intent is journalled, and the sweep runs twice: it is left
 * alone, and its start goes on. */
START_TEST(test_an_open_intent_is_not_swept)
{
	drive(SV_NETWORK, NULL, 0);
	feed_network(true, NULL);
	ck_assert_ptr_nonnull(find(SV_DO_SPAWN_VMM));
	ck_assert_int_eq(rig.saved.state, SV_VMM);
	ck_assert_str_ne(rig.saved.vmm.run_dir, "");
	sweep(0);
	sweep(3 * USEC_PER_SEC);
	feed_spawned();
	feed_jailed(true, "simulated");
	feed_of(SV_EV_VMM_STARTED, NULL);
	feed_of(SV_EV_VMM_USERSPACE, NULL);
	feed_guest(SV_EV_GUEST_HELLO, NULL);
	feed_of(SV_EV_GUEST_CONFIGURED, NULL);
	journalled(ID, 1);
	ck_assert_int_eq(state(), SV_RUNNING);
}
END_TEST

START_TEST(test_admission)
{
	struct sv_capacity broken = { .capacity = { 8000, 4, 10000, 4, 2, 4, 0 },
		.disk_free_mib = 10000 };

	create_as("ddddddddddddddddddda", 1, 1, spec_make(7950, NULL, 0), 0);
	ck_assert(!report()->accepted);
	ck_assert_int_eq(report()->failure.code,
		FAIL_CAPACITY_STALE); /* with the VMM's overhead it is too much */
	check_outcome(report(), STAGE_ACCEPT, RESULT_FAILED);
	create_as("ddddddddddddddddddda", 1, 1, spec_make(100, NULL, 0), 0);
	ck_assert(
		!report()->accepted); /* the refusal sticks: the scheduler may have gone elsewhere */
	create_as("ddddddddddddddddddda", 2, 1, spec_make(100, NULL, 0), 0);
	ck_assert(report()->accepted); /* another generation is another question */
	create_as("dddddddddddddddddddb", 1, 1, spec_make(100, NULL, 0), 0);
	create_as("dddddddddddddddddddc", 1, 1, spec_make(100, NULL, 0), 0);
	ck_assert_int_eq(report()->failure.code, FAIL_NODE_BUSY);
	create_as("dddddddddddddddddddd", 1, 1, spec_make(100, NULL, 0), -1);
	ck_assert_int_eq(report()->failure.code, FAIL_CREATE_EXPIRED);
	(void)err_set(&broken.unschedulable, FAIL_KVM_UNAVAILABLE, 13, "No permission.");
	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &broken });
	ck_assert_ptr_nonnull(find(SV_DO_SEND_CAPACITY)); /* at once */
	create_as("ddddddddddddddddddde", 1, 1, spec_make(100, NULL, 0), 0);
	ck_assert_int_eq(report()->failure.code, FAIL_KVM_UNAVAILABLE);
}
END_TEST

START_TEST(test_generations)
{
	drive(SV_RUNNING, NULL, 0);
	create_as(ID, 1, 1, spec_make(1000, NULL, 0), 0);
	ck_assert_int_eq(
		report()->state, REPORT_RUNNING); /* the same command again: the same answer */
	create_as(ID, 2, 1, spec_make(1000, NULL, 0), 0);
	ck_assert_int_eq(state(), SV_KILLING); /* the older one goes first */
	feed_exit(SV_EXIT_KILLED, true);
	feed_of(SV_EV_REMOVED, NULL);
	create_as(ID, 2, 1, spec_make(1000, NULL, 0), 0);
	ck_assert(report()->accepted);
	ck_assert_uint_eq(report()->generation, 2);
	create(NULL, 0);
	ck_assert_int_eq(report()->failure.code, FAIL_STALE_GENERATION);
	ck_assert_int_eq(state(), SV_IMAGE); /* untouched */
}
END_TEST

static void take(uint64_t took, uint64_t generation, const char *setup_command, uint32_t timeout_s)
{
	struct sandbox_spec *spec = spec_make(1000, setup_command, timeout_s);
	struct create_command command = {
		.generation = generation, .attempt = 1, .spec = spec, .took = took
	};

	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, OP, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_CREATE, .epoch = 1, .create = &command });
	spec_unref(spec);
}

static void feed_of_2(enum sv_event_type type)
{
	struct sv_event event = { .type = type, .generation = 2 };

	memcpy(event.sandbox, ID, ID_SIZE);
	feed(event);
}

/* The VM goes on as somebody's: nothing is started, the guest is configured anew, and nobody gets in meanwhile. */
START_TEST(test_a_warm_vm_is_taken_over)
{
	const struct sandbox_report *last;

	drive(SV_RUNNING, NULL, 0);
	take(1, 2, "true", 60);
	ck_assert_int_eq(state(), SV_GUEST);
	ck_assert_ptr_null(find(SV_DO_KILL_VMM));
	ck_assert_ptr_null(find(SV_DO_SPAWN_VMM));
	ck_assert_uint_lt(place_of(SV_DO_JOURNAL_WRITE), place_of(SV_DO_SET_NETWORK));
	ck_assert_uint_lt(place_of(SV_DO_UNROUTE), place_of(SV_DO_SET_NETWORK));
	ck_assert_ptr_null(find(SV_DO_CONFIGURE_GUEST)); /* its new owner's policy first */
	ck_assert_uint_eq(report()->generation, 2);
	ck_assert_int_eq(report()->state, REPORT_STARTING);
	check_outcome(report(), STAGE_KERNEL, RESULT_SKIPPED);
	take(1, 2, "true", 60); /* once more: the same answer */
	ck_assert_ptr_null(find(SV_DO_SET_NETWORK));
	ck_assert_uint_eq(report()->generation, 2);
	feed_of_2(SV_EV_NETWORK_SET);
	ck_assert_ptr_nonnull(find(SV_DO_CONFIGURE_GUEST));
	feed_of_2(SV_EV_NETWORK_SET);
	ck_assert_ptr_null(find(SV_DO_CONFIGURE_GUEST));
	feed_of_2(SV_EV_GUEST_CONFIGURED);
	ck_assert_ptr_nonnull(find(SV_DO_RUN_SETUP));
	feed_of_2(SV_EV_SETUP_DONE);
	ck_assert_ptr_null(find(SV_DO_ROUTE));
	feed_of_2(SV_EV_JOURNALLED);
	ck_assert(find(SV_DO_ROUTE)->ready);
	last = report();
	ck_assert_int_eq(last->state, REPORT_RUNNING);
	check_outcome(last, STAGE_SETUP, RESULT_OK);
	later(61 * USEC_PER_SEC);
	ck_assert_int_eq(state(), SV_KILLING); /* the new one's life time counts */
}
END_TEST

/* Another generation than the one that was picked, or one that is not there: a cold start as ever. */
START_TEST(test_a_claim_of_what_is_gone_starts_cold)
{
	take(1, 2, NULL, 0);
	journalled(ID, 2);
	ck_assert_int_eq(state(), SV_IMAGE);
	ck_assert_uint_eq(report()->generation, 2);
}
END_TEST

START_TEST(test_a_claim_of_another_generation)
{
	drive(SV_RUNNING, NULL, 0);
	take(4, 5, NULL, 0);
	ck_assert_int_eq(state(), SV_KILLING); /* the older one goes first, as without a claim */
}
END_TEST

#include "unit/test-supervisor-late.h"

START_TEST(test_destroy_before_create)
{
	destroy(1);
	ck_assert_int_eq(report()->state, REPORT_ENDED);
	create(NULL, 0);
	ck_assert_int_eq(report()->state, REPORT_ENDED);
	ck_assert_ptr_null(find(SV_DO_FETCH_IMAGE));
}
END_TEST

static void welcome_as(uint64_t epoch, const char *lineage, const char *run)
{
	struct welcome welcome = { .node = "cccccccccccccccccccc", .pool = "pool", .heartbeat_ms = 1000, .greeting = epoch };

	(void)snprintf(welcome.lineage, sizeof(welcome.lineage), "%s", lineage);
	(void)snprintf(welcome.run, sizeof(welcome.run), "%s", run);
	feed((struct sv_event){ .type = SV_EV_WELCOME, .epoch = epoch, .welcome = &welcome });
}

START_TEST(test_old_epoch_is_refused)
{
	drive(SV_RUNNING, NULL, 0);
	welcome_as(7, "", "");
	ck_assert_uint_eq(find(SV_DO_SAVE_EPOCH)->epoch, 7);
	destroy(1); /* of epoch 1 */
	ck_assert_int_eq(find(SV_DO_SEND_REFUSED)->err->code, FAIL_STALE_EPOCH);
	ck_assert_int_eq(state(), SV_RUNNING);
	welcome_as(6, "", "");
	ck_assert_int_eq(find(SV_DO_SEND_REFUSED)->err->code, FAIL_STALE_EPOCH);
}
END_TEST

/* Who has a higher epoch says who it is before anything that it says is done, within a session too: else a copy would
 * raise the epoch, and the scheduler that was obeyed be refused when it starts again. */
START_TEST(test_a_higher_epoch_needs_a_welcome)
{
	drive(SV_RUNNING, NULL, 0);
	create_unanswered("ddddddddddddddddddda", 1, 7, spec_make(100, NULL, 0), 0);
	ck_assert_ptr_null(find(SV_DO_SAVE_EPOCH));
	ck_assert_ptr_null(find(SV_DO_JOURNAL_WRITE));
	ck_assert_ptr_null(find(SV_DO_SEND_REFUSED));
	ck_assert_uint_eq(find(SV_DO_SEND_HELLO)->hello->highest_epoch, 1); /* it asks who that is */
	create_unanswered("ddddddddddddddddddda", 1, 7, spec_make(100, NULL, 0), 0);
	ck_assert_ptr_null(find(SV_DO_SEND_HELLO)); /* once */
	ck_assert_ptr_null(find(SV_DO_JOURNAL_WRITE));
	welcome_as(2, "llllllllllllllllllll", "rrrrrrrrrrrrrrrrrrrr"); /* the successor of what it obeyed */
	ck_assert_uint_eq(find(SV_DO_SAVE_EPOCH)->epoch, 2);
	ck_assert_str_eq(find(SV_DO_SAVE_EPOCH)->leader.run, "rrrrrrrrrrrrrrrrrrrr");
	ck_assert_ptr_nonnull(find(SV_DO_SEND_INVENTORY));
	welcome_as(7, "llllllllllllllllllll", "ssssssssssssssssssss");
	ck_assert_uint_eq(find(SV_DO_SAVE_EPOCH)->epoch, 7);
	create_unanswered("ddddddddddddddddddda", 1, 7, spec_make(100, NULL, 0), 0);
	ck_assert_ptr_nonnull(find(SV_DO_JOURNAL_WRITE));
	ck_assert_int_eq(state(), SV_RUNNING);
}
END_TEST

START_TEST(test_journal_failure)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_STATE_WRITE_FAILED, 28, "No space left.");
	create(NULL, 0);
	feed_of(SV_EV_JOURNAL_FAILED, &err);
	ck_assert(!report()->accepted);
	ck_assert_int_eq(report()->failure.code, FAIL_STATE_WRITE_FAILED);
	ck_assert_int_eq(state(), SV_STATE_MAX_);
}
END_TEST

START_TEST(test_unreadable_state_refuses_and_deletes_nothing)
{
	struct sv_capacity capacity = { .capacity = { 8000, 4, 10000, 4, 2, 4, 0 },
		.disk_free_mib = 10000 };
	struct sv_event start = { .type = SV_EV_START };
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_STATE_UNREADABLE, 5, "Input/output error.");
	start.start.unreadable = &err;
	rig.core = supervisor_free(rig.core);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	feed(start);
	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &capacity });
	connect_core();
	ck_assert_ptr_null(find(SV_DO_SEND_INVENTORY)); /* it would say that nothing is here */
	create(NULL, 0);
	ck_assert_int_eq(report()->failure.code, FAIL_STATE_UNREADABLE);
	destroy(2);
	ck_assert_uint_eq(rig.out.n, 0);
}
END_TEST

START_TEST(test_torn_record_isolates_one_sandbox)
{
	struct sv_event bad = { .type = SV_EV_LOAD_BAD };

	rig.core = supervisor_free(rig.core);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	memcpy(bad.sandbox, "ddddddddddddddddddda", ID_SIZE);
	feed(bad);
	feed((struct sv_event){ .type = SV_EV_START });
	ck_assert_uint_eq(rig.out.n, 0); /* nothing is done to it */
}
END_TEST

#include "test-supervisor-sleep.h"
#include "test-supervisor-update.h"

/* ---- network policies ---- */

static void set_network(const char *operation, const char *denied)
{
	struct network_command command = { .generation = 1, .network.internet = true };

	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, operation, ID_SIZE);
	ck_assert_int_eq(net_policy_deny(&command.network, denied, NULL), 0);
	feed((struct sv_event){ .type = SV_EV_NETWORK_UPDATE, .epoch = 1, .network_update = &command });
	network_command_deinit(&command);
}

static size_t n_denied(void)
{
	struct sv_view view;

	ck_assert_int_eq(supervisor_get(rig.core, ID, &view), 0);
	return view.spec->network.n_deny;
}

START_TEST(test_a_policy_is_journalled_set_and_then_confirmed)
{
	drive(SV_RUNNING, NULL, 0);
	set_network(OP, "9.9.9.9");
	ck_assert_uint_lt(place_of(SV_DO_JOURNAL_WRITE), place_of(SV_DO_SET_NETWORK));
	ck_assert_uint_eq(find(SV_DO_JOURNAL_WRITE)->journal.record->spec->network.n_deny, 1);
	ck_assert_uint_eq(find(SV_DO_SET_NETWORK)->spec->network.n_deny, 1);
	ck_assert_ptr_null(report()); /* nobody is told before it holds */
	set_network(OP, "9.9.9.9"); /* again, while it is being set */
	ck_assert_uint_eq(rig.out.n, 0);
	feed_of(SV_EV_NETWORK_SET, NULL);
	ck_assert_str_eq(report()->updated, OP);
	ck_assert(!err_is_set(&report()->update_failure));
	set_network(OP, "9.9.9.9"); /* and after */
	ck_assert_ptr_null(find(SV_DO_SET_NETWORK));
	ck_assert_str_eq(report()->updated, OP);
	ck_assert_uint_eq(n_denied(), 1);
}
END_TEST

START_TEST(test_a_policy_that_cannot_be_set_leaves_the_former)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_NETWORK_RULES_FAILED, 5, "No.");
	drive(SV_RUNNING, NULL, 0);
	set_network(OP, "9.9.9.9");
	feed_of(SV_EV_NETWORK_SET, &err);
	ck_assert_str_eq(report()->updated, OP);
	ck_assert_int_eq(report()->update_failure.code, FAIL_NETWORK_RULES_FAILED);
	ck_assert_uint_eq(find(SV_DO_JOURNAL_WRITE)->journal.record->spec->network.n_deny, 0);
	ck_assert_uint_eq(n_denied(), 0);
	ck_assert_int_eq(state(), SV_RUNNING);
}
END_TEST

/* What was not journalled is not done, and what holds is what the journal says. */
START_TEST(test_a_policy_that_cannot_be_journalled_is_undone)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_STATE_WRITE_FAILED, 28, "Full.");
	drive(SV_RUNNING, NULL, 0);
	set_network(OP, "9.9.9.9");
	feed_of(SV_EV_JOURNAL_FAILED, &err);
	ck_assert_uint_eq(find(SV_DO_SET_NETWORK)->spec->network.n_deny, 0);
	feed_of(SV_EV_NETWORK_SET, NULL);
	ck_assert_ptr_null(report());
	ck_assert_uint_eq(n_denied(), 0);
	set_network(OP, "9.9.9.9"); /* the scheduler asks again */
	feed_of(SV_EV_NETWORK_SET, NULL);
	ck_assert_str_eq(report()->updated, OP);
	ck_assert_uint_eq(n_denied(), 1);
}
END_TEST

START_TEST(test_a_policy_of_a_sandbox_that_ends)
{
	drive(SV_RUNNING, NULL, 0);
	set_network(OP, "9.9.9.9");
	destroy(1);
	ck_assert_int_eq(state(), SV_KILLING);
	feed_of(SV_EV_NETWORK_SET, NULL);
	ck_assert_uint_eq(rig.out.n, 0);
	ck_assert_int_eq(state(), SV_KILLING);
}
END_TEST

START_TEST(test_table)
{
	for (unsigned int i = 0; i < SV_STATE_MAX_; i++) {
		const char *name = sv_state_name((enum sv_state)i);

		ck_assert_int_eq(sv_state_by_name(name), i);
		if (i != SV_RUNNING && i != SV_PAUSED)
			ck_assert_int_ne(sv_state_table()[i].deadline_usec, 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("supervisor");
	TCase *tcase = tcase_create("supervisor");

	tcase_set_timeout(tcase, 600);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_start_to_ready);
	tcase_add_test(tcase, test_stages_take_their_time);
	tcase_add_test(tcase, test_a_timeout_took_its_limit);
	tcase_add_test(tcase, test_restart_between_journal_and_word);
	tcase_add_loop_test(tcase, test_exits, 0, ARRAY_LEN(exit_rows));
	tcase_add_test(tcase, test_guest_powers_itself_off);
	tcase_add_loop_test(tcase, test_every_waiting_state_has_a_limit, 0, ARRAY_LEN(limit_rows));
	tcase_add_test(tcase, test_a_failed_start_goes_on_where_it_failed);
	tcase_add_loop_test(tcase, test_only_a_fresh_disk_is_kept_for_who_comes_back, 0, ARRAY_LEN(kept_rows));
	tcase_add_loop_test(tcase, test_what_is_kept_is_dropped, 0, 2 * ARRAY_LEN(drops));
	tcase_add_test(tcase, test_what_is_kept_takes_no_room);
	tcase_add_test(tcase, test_failure_keeps_its_stage_and_code);
	tcase_add_loop_test(tcase, test_destroy_from_every_state, SV_IMAGE, SV_RUNNING + 1);
	tcase_add_test(tcase, test_tombstone_stays_until_acknowledged);
	tcase_add_test(tcase, test_adoption);
	tcase_add_loop_test(tcase, test_the_wall_clock_ends_no_life, 0, 4);
	tcase_add_test(tcase, test_nothing_is_taken_from_a_vmm_that_does_not_die);
	tcase_add_test(tcase, test_adoption_of_what_is_gone);
	tcase_add_loop_test(tcase, test_restart_in_the_middle_of_a_start, SV_IMAGE, SV_GUEST + 1);
	tcase_add_test(tcase, test_admission);
	tcase_add_test(tcase, test_generations);
	tcase_add_test(tcase, test_destroy_before_create);
	tcase_add_test(tcase, test_a_warm_vm_is_taken_over);
	tcase_add_test(tcase, test_a_claim_of_what_is_gone_starts_cold);
	tcase_add_test(tcase, test_a_claim_of_another_generation);
	tcase_add_test(tcase, test_a_life_time_that_was_overtaken_changes_nothing);
	tcase_add_test(tcase, test_a_policy_that_was_overtaken_changes_nothing);
	tcase_add_test(tcase, test_a_create_after_its_destroy_leaves_no_record);
	tcase_add_test(tcase, test_a_refused_create_leaves_no_record);
	tcase_add_test(tcase, test_a_warm_vm_that_ended_as_it_was_taken);
	tcase_add_test(tcase, test_old_epoch_is_refused);
	tcase_add_test(tcase, test_an_open_intent_is_not_swept);
	tcase_add_test(tcase, test_a_higher_epoch_needs_a_welcome);
	tcase_add_test(tcase, test_journal_failure);
	tcase_add_test(tcase, test_unreadable_state_refuses_and_deletes_nothing);
	tcase_add_test(tcase, test_torn_record_isolates_one_sandbox);
	tcase_add_test(tcase, test_life_time_is_changed_and_confirmed);
	tcase_add_test(tcase, test_life_time_that_was_not_journalled_is_not_confirmed);
	tcase_add_test(tcase, test_a_policy_is_journalled_set_and_then_confirmed);
	tcase_add_test(tcase, test_a_policy_that_cannot_be_set_leaves_the_former);
	tcase_add_test(tcase, test_a_policy_that_cannot_be_journalled_is_undone);
	tcase_add_test(tcase, test_a_policy_of_a_sandbox_that_ends);
	tcase_add_test(tcase, test_an_extension_at_the_last_moment);
	add_sleep_tests(tcase);
	tcase_add_test(tcase, test_table);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
