/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node as a process, with a stub VMM and a scheduler of the test's own: the life of a sandbox
 * from create to nothing, each way in which a start fails, and what happens to sandboxes when their
 * agent is killed.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "lib/loop.h"
#include "lib/suite.h"
#include "unit/test-node-rig.h"
#include "wire/dispatch.h"

#define SANDBOX "sandboxsandboxsandbo"

static void assert_nothing_is_left(struct rig *rig)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/sandboxes", rig->state);
	ck_assert_int_eq(rig_find_vmm(rig), 0);
	ck_assert_uint_eq(rig_count_files(rig->run), 0);
	ck_assert_uint_eq(rig_count_files(path), 0);
}

static bool is_clean(struct rig *rig, void *arg)
{
	char path[PATH_MAX];

	(void)arg;
	(void)snprintf(path, sizeof(path), "%s/sandboxes", rig->state);
	return rig_find_vmm(rig) == 0 && rig_count_files(rig->run) == 0 &&
	       rig_count_files(path) == 0;
}

/* VMM and guest of this version, and of a later one (tests/lib/stub-vmm.c). */
static const char *const vmms[] = { "well", "newer" };

START_TEST(create_goes_through_every_stage_in_order)
{
	static const struct {
		enum fail_stage stage;
		enum outcome outcome;
	} expected[] = { { STAGE_ACCEPT, RESULT_OK }, { STAGE_IMAGE, RESULT_OK },
		{ STAGE_DISK, RESULT_OK }, { STAGE_NETWORK, RESULT_SKIPPED },
		{ STAGE_JAIL, RESULT_OK }, { STAGE_VMM, RESULT_OK },
		{ STAGE_KERNEL, RESULT_OK }, { STAGE_GUEST, RESULT_OK }, { STAGE_SETUP, RESULT_OK },
		{ STAGE_READY, RESULT_OK } };
	struct sandbox_spec *spec;
	struct rig rig;
	const struct rig_sandbox *sandbox;

	rig_init(&rig);
	rig_set_image(&rig, vmms[_i]);
	rig_join(&rig);
	rig_start(&rig);
	ck_assert_int_eq(rig.hello.unschedulable.code, FAIL_NONE);
	spec = rig_spec(&rig);
	spec->disk_mib = 64;
	ck_assert_int_eq(
		spec_set_setup(spec, "test \"$GREETING\" = hello && test -n \"$TRACEPARENT\""), 0);
	ck_assert_int_eq(spec_add_env(spec, "GREETING", "hello"), 0);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	sandbox = rig_find(&rig, SANDBOX);
	ck_assert_uint_eq(sandbox->report.n_stages, ARRAY_LEN(expected));
	for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
		const struct stage_record *stage = &sandbox->report.stages[i];

		ck_assert_str_eq(stage_name(stage->stage), stage_name(expected[i].stage));
		ck_assert_int_eq(stage->outcome, expected[i].outcome);
		ck_assert_str_eq(stage->reason,
			stage->stage == STAGE_JAIL ? "user namespace, empty root, filters"
			: expected[i].outcome == RESULT_SKIPPED ? "no croft-node-helper: helper.socket is not set"
								: "");
		ck_assert_int_ge(stage->took_us, 0);
	}
	ck_assert_uint_eq(strlen(sandbox->report.guest_boot_id), BOOT_ID_SIZE - 1);
	ck_assert_int_gt(rig_find_vmm(&rig), 0);
	ck_assert_int_eq(getsid(rig_find_vmm(&rig)), rig_find_vmm(&rig));

	rig_destroy(&rig, SANDBOX, "request");
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	ck_assert_int_eq(rig_find(&rig, SANDBOX)->report.end_reason, END_REQUEST);
	rig_until(&rig, is_clean, NULL, "an empty host");
	assert_nothing_is_left(&rig);
	ck_assert_int_eq(rig_end(&rig, SIGTERM), 0);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

struct failing {
	const char *mode;
	const char *setup;
	enum fail_stage stage;
	enum fail_code code;
	enum fail_component component;
	const char *field, *value;
};

static const struct failing failing[] = {
	{ "panic", NULL, STAGE_KERNEL, FAIL_GUEST_PANIC, COMPONENT_TEMPLATE, NULL, NULL },
	{ "never-userspace", NULL, STAGE_KERNEL, FAIL_KERNEL_TIMEOUT, COMPONENT_TEMPLATE, NULL,
		NULL },
	{ "never-hello", NULL, STAGE_GUEST, FAIL_GUEST_TIMEOUT, COMPONENT_TEMPLATE, NULL, NULL },
	{ "rootfs-unreadable", NULL, STAGE_GUEST, FAIL_ROOTFS_UNREADABLE, COMPONENT_TEMPLATE, NULL,
		NULL },
	{ "refuse", NULL, STAGE_VMM, FAIL_KERNEL_INVALID, COMPONENT_NODE_SOFTWARE, NULL, NULL },
	{ "crash", NULL, STAGE_GUEST, FAIL_VMM_CRASHED, COMPONENT_NODE_SOFTWARE, NULL, NULL },
	{ "mute", NULL, STAGE_VMM, FAIL_VMM_UNRESPONSIVE, COMPONENT_NODE_SOFTWARE, NULL, NULL },
	{ "well", "exit 3", STAGE_SETUP, FAIL_SETUP_FAILED, COMPONENT_CALLER, "exit", "3" },
	{ "well", "kill -9 $$", STAGE_SETUP, FAIL_SETUP_FAILED, COMPONENT_CALLER, "signal", "9" },
	{ "hungry", "kill -9 $$", STAGE_SETUP, FAIL_GUEST_OOM, COMPONENT_CALLER, NULL, NULL },
	{ "well", "sleep 60", STAGE_SETUP, FAIL_SETUP_TIMEOUT, COMPONENT_CALLER, NULL, NULL },
};

static void assert_failed(struct rig *rig, const struct failing *row)
{
	const struct rig_sandbox *sandbox;
	const struct stage_record *stage;

	rig_wait_state(rig, SANDBOX, REPORT_ENDED);
	sandbox = rig_find(rig, SANDBOX);
	ck_assert_str_eq(
		failure_info(sandbox->report.failure.code)->name, failure_info(row->code)->name);
	ck_assert_str_eq(stage_name(sandbox->report.failure.stage), stage_name(row->stage));
	ck_assert_str_eq(
		component_name(sandbox->report.failure.component), component_name(row->component));
	ck_assert_int_eq(sandbox->report.end_reason, END_FAILED);
	if (row->field)
		ck_assert_pstr_eq(err_field(&sandbox->report.failure, row->field), row->value);
	stage = rig_stage(rig, SANDBOX, row->stage);
	ck_assert_ptr_nonnull(stage);
	ck_assert_int_eq(stage->outcome, RESULT_FAILED);
	ck_assert_ptr_null(rig_stage(rig, SANDBOX, STAGE_READY));
	rig_until(rig, is_clean, NULL, "an empty host");
	assert_nothing_is_left(rig);
}

START_TEST(a_failing_start_says_where_and_whose_and_leaves_nothing)
{
	static char short_kernel[] = "--guest-kernel-timeout-ms=300",
		    short_guest[] = "--guest-guest-timeout-ms=300",
		    short_vmm[] = "--vmm-timeout-ms=2000";
	const struct failing *row = &failing[_i];
	char path[PATH_MAX], *console = NULL;
	struct sandbox_spec *spec;
	struct rig rig;

	rig_init(&rig);
	rig.extra[0] = short_kernel;
	rig.extra[1] = short_guest;
	rig.extra[2] = short_vmm;
	rig_set_image(&rig, row->mode);
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	if (row->setup)
		ck_assert_int_eq(spec_set_setup(spec, row->setup), 0);
	spec->setup_timeout_ms = 1000;
	rig_create(&rig, SANDBOX, spec);
	assert_failed(&rig, row);
	/* what the remedy tells to read is there; a guest that never ran has printed nothing */
	(void)snprintf(path, sizeof(path), "%s/failed/" SANDBOX ".console", rig.state);
	ck_assert_int_eq(file_read(path, 65536, &console, NULL), 0);
	ck_assert_str_eq(console, strcmp(row->mode, "refuse") == 0 ? "" : "stub guest\n");
	free(console);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

START_TEST(a_kernel_that_is_missing_is_told_at_the_vmm_stage)
{
	static const struct failing row = { NULL, NULL, STAGE_VMM, FAIL_KERNEL_MISSING,
		COMPONENT_NODE_SOFTWARE, NULL, NULL };
	struct sandbox_spec *spec;
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	ck_assert_int_eq(unlink(rig.kernel), 0);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	assert_failed(&rig, &row);
	ck_assert_int_eq(rig_find(&rig, SANDBOX)->report.failure.err_no, ENOENT);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

START_TEST(a_kvm_that_went_away_after_placement_is_told_at_the_vmm_stage)
{
	static const struct failing row = { NULL, NULL, STAGE_VMM, FAIL_KVM_UNAVAILABLE,
		COMPONENT_NODE_HOST, NULL, NULL };
	struct sandbox_spec *spec;
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	ck_assert_int_eq(unlink(rig.kvm), 0);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	assert_failed(&rig, &row);
	ck_assert_int_eq(rig_find(&rig, SANDBOX)->report.failure.err_no, ENOENT);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

START_TEST(a_node_without_kvm_says_so_in_its_hello)
{
	struct rig rig;

	rig_init(&rig);
	ck_assert_int_eq(unlink(rig.kvm), 0);
	rig_join(&rig);
	rig_start(&rig);
	ck_assert_int_eq(rig.hello.unschedulable.code, FAIL_KVM_UNAVAILABLE);
	ck_assert_int_eq(rig.hello.unschedulable.err_no, ENOENT);
	ck_assert_ptr_nonnull(err_field(&rig.hello.unschedulable, "hint"));
	rig_deinit(&rig);
}
END_TEST

/* A floor that no disk of a test's host reaches: nothing new starts, and it is said why. */
START_TEST(a_node_without_room_says_so_and_takes_nothing)
{
	char floor_flag[] = "--limits-disk-floor-percent", floor[] = "100";
	struct rig rig;
	struct sandbox_spec *spec;

	rig_init(&rig);
	rig.extra[0] = floor_flag;
	rig.extra[1] = floor;
	rig_join(&rig);
	rig_start(&rig);
	ck_assert_int_eq(rig.hello.unschedulable.code, FAIL_DISK_PRESSURE);
	ck_assert_str_eq(err_field(&rig.hello.unschedulable, "floor_percent"), "100");
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	ck_assert_int_eq(rig_find(&rig, SANDBOX)->report.failure.code, FAIL_DISK_PRESSURE);
	ck_assert(!rig_find(&rig, SANDBOX)->report.accepted);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

START_TEST(wrong_image_bytes_are_the_source_s)
{
	static const struct failing row = { NULL, NULL, STAGE_IMAGE, FAIL_IMAGE_DIGEST_MISMATCH,
		COMPONENT_IMAGE_SOURCE, NULL, NULL };
	struct sandbox_spec *spec;
	char path[PATH_MAX];
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig.image[4000] ^= 1;
	rig_create(&rig, SANDBOX, spec);
	assert_failed(&rig, &row);
	(void)snprintf(path, sizeof(path), "%s/images", rig.cache);
	ck_assert_uint_eq(rig_count_files(path), 0);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

static bool has_part(struct rig *rig, void *arg)
{
	struct stat st;

	(void)rig;
	return stat(arg, &st) == 0 && st.st_size >= 4000;
}

START_TEST(an_image_is_taken_up_where_it_broke_off)
{
	struct sandbox_spec *spec;
	char part[PATH_MAX];
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig.image_stop_at = 4000;
	(void)snprintf(part, sizeof(part), "%s/images/%s.part", rig.cache, rig.digest);
	rig_create(&rig, SANDBOX, spec);
	rig_until(&rig, has_part, part, "half an image");
	rig_cut(&rig);
	loop_for(rig.base, 100);
	rig.image_stop_at = 0;
	rig.image_request = 0;
	memset(rig.image, 0xff, 4000); /* they must not be sent again */
	rig_listen(&rig);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

static unsigned int count_events(const struct rig *rig, const char *name)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < rig->n_records; i++)
		n += rig->records[i]->body_case == CROFT__TELEMETRY_RECORD__BODY_EVENT &&
		     !strcmp(rig->records[i]->event->name, name);
	return n;
}

static bool was_adopted(struct rig *rig, void *arg)
{
	(void)arg;
	return count_events(rig, "sandbox-adopted") == 1;
}

/* Adoption: the VM that was left is the VM that is found. */
START_TEST(a_killed_agent_finds_its_sandbox_again)
{
	struct sandbox_spec *spec;
	char boot_id[BOOT_ID_SIZE];
	struct rig rig;
	pid_t vmm;

	rig_init(&rig);
	rig_set_image(&rig, vmms[_i]);
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	vmm = rig_find_vmm(&rig);
	memcpy(boot_id, rig_find(&rig, SANDBOX)->report.guest_boot_id, sizeof(boot_id));
	ck_assert_int_eq(rig_end(&rig, SIGKILL), -SIGKILL);
	ck_assert_int_eq(kill(vmm, 0), 0);

	rig_find(&rig, SANDBOX)->n_reports = 0;
	rig_find(&rig, SANDBOX)->report.state = REPORT_NONE;
	rig_start(&rig);
	ck_assert(rig_find(&rig, SANDBOX)->in_inventory);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	ck_assert_int_eq(rig_find_vmm(&rig), vmm);
	ck_assert_str_eq(rig_find(&rig, SANDBOX)->report.guest_boot_id, boot_id);
	rig_until(&rig, was_adopted, NULL, "the record of the adoption");
	rig_destroy(&rig, SANDBOX, "request");
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	rig_until(&rig, is_clean, NULL, "an empty host");
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

START_TEST(a_vm_that_died_while_nobody_looked_is_reported)
{
	struct sandbox_spec *spec;
	struct rig rig;
	pid_t vmm;

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	(void)rig_end(&rig, SIGKILL);
	/* with a last word or without one */
	vmm = rig_find_vmm(&rig);
	ck_assert_int_eq(kill(vmm, _i ? SIGTERM : SIGKILL), 0);
	for (int i = 0; i < 1000 && kill(vmm, 0) == 0; i++)
		loop_for(rig.base, 10); /* whoever took it over has reaped it */
	rig_start(&rig);
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	ck_assert_str_eq(failure_info(rig_find(&rig, SANDBOX)->report.failure.code)->name,
		_i ? "VMM_KILLED" : "VM_VANISHED");
	rig_until(&rig, is_clean, NULL, "an empty host");
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

START_TEST(a_vmm_that_is_killed_is_told_at_once)
{
	struct sandbox_spec *spec;
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	ck_assert_int_eq(kill(rig_find_vmm(&rig), _i ? SIGSEGV : SIGKILL), 0);
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	ck_assert_str_eq(failure_info(rig_find(&rig, SANDBOX)->report.failure.code)->name,
		_i ? "VMM_CRASHED" : "VMM_KILLED");
	ck_assert_str_eq(stage_name(rig_find(&rig, SANDBOX)->report.failure.stage), "run");
	rig_until(&rig, is_clean, NULL, "an empty host");
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

START_TEST(a_guest_that_does_not_go_is_ended)
{
	static char grace[] = "--guest-stop-grace-ms=400";
	struct sandbox_spec *spec;
	struct rig rig;

	rig_init(&rig);
	rig.extra[0] = grace;
	rig_set_image(&rig, "stubborn");
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	rig_destroy(&rig, SANDBOX, "request");
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	rig_until(&rig, is_clean, NULL, "an empty host");
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

START_TEST(sigterm_leaves_the_sandbox_and_takes_two_seconds_at_most)
{
	struct sandbox_spec *spec;
	int64_t began;
	struct rig rig;
	pid_t vmm;

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	vmm = rig_find_vmm(&rig);
	rig_cut(&rig);
	began = clock_monotonic_usec();
	ck_assert_int_eq(rig_end(&rig, SIGTERM), 0);
	ck_assert_int_lt(clock_monotonic_usec() - began, 2 * USEC_PER_SEC);
	ck_assert_int_eq(kill(vmm, 0), 0);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

static bool runs_nothing(struct rig *rig, void *arg)
{
	(void)arg;
	return rig_find_vmm(rig) == 0 && rig_count_files(rig->run) == 0;
}

/* R178: a sandbox that ended while the scheduler was gone: SIGTERM does not wait for the word of it, and does not lose it. */
START_TEST(an_end_that_nobody_heard_outlives_sigterm)
{
	struct sandbox_spec *spec;
	int64_t began;
	struct rig rig;
	char path[PATH_MAX];

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	rig_cut(&rig);
	ck_assert_int_eq(kill(rig_find_vmm(&rig), SIGSEGV), 0);
	rig_until(&rig, runs_nothing, NULL, "the end of the sandbox");
	began = clock_monotonic_usec();
	ck_assert_int_eq(rig_end(&rig, SIGTERM), 0);
	ck_assert_int_lt(clock_monotonic_usec() - began, 2 * USEC_PER_SEC);
	(void)snprintf(path, sizeof(path), "%s/sandboxes", rig.state);
	ck_assert_uint_eq(rig_count_files(path), 1); /* it is in the journal */
	ck_assert(!rig_is(&rig, SANDBOX, REPORT_ENDED));
	rig_listen(&rig);
	rig_start(&rig);
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	ck_assert_int_eq(rig_find(&rig, SANDBOX)->report.failure.code, FAIL_VMM_CRASHED);
	rig_until(&rig, is_clean, NULL, "an empty host");
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

static bool telemetry_is_whole(struct rig *rig, void *arg)
{
	bool has_stop = false;

	(void)arg;
	for (unsigned int i = 0; i < rig->n_records; i++)
		has_stop = has_stop ||
			   (rig->records[i]->body_case == CROFT__TELEMETRY_RECORD__BODY_STAGE &&
				   !strcmp(rig->records[i]->stage->stage, "stop"));
	return has_stop && count_events(rig, "link-up") == 2;
}

/* on_telemetry() of the rig fails the test at the first gap or disorder. */
START_TEST(telemetry_of_a_cut_comes_complete_and_in_order)
{
	struct sandbox_spec *spec;
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	rig.keep_telemetry = true; /* what was sent is not safe yet: it must come again */
	rig_cut(&rig);
	ck_assert_int_eq(kill(rig_find_vmm(&rig), SIGKILL), 0);
	loop_for(rig.base, 500);
	if (_i) /* and the agent dies in the middle of it */
		(void)rig_end(&rig, SIGKILL);
	rig.keep_telemetry = false;
	rig_listen(&rig);
	if (_i)
		rig_start(&rig);
	rig_until(&rig, telemetry_is_whole, NULL, "the record of the stop");
	for (unsigned int i = 0; i < rig.n_records; i++)
		ck_assert_uint_eq(rig.records[i]->seq, i + 1);
	ck_assert_uint_eq(count_events(&rig, "link-lost"), 1);
	ck_assert_uint_eq(count_events(&rig, "agent-started"), _i ? 2 : 1);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

START_TEST(a_command_of_an_older_scheduler_is_refused)
{
	struct sandbox_spec *spec;
	struct rig rig;

	rig_init(&rig);
	rig.epoch = 7;
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig.epoch = 6;
	rig_create(&rig, SANDBOX, spec);
	for (int i = 0; i < 200 && !err_is_set(&rig.refused); i++)
		loop_for(rig.base, 10);
	ck_assert_int_eq(rig.refused.code, FAIL_STALE_EPOCH);
	ck_assert_ptr_null(rig_find(&rig, SANDBOX));
	/* remembered over a restart */
	(void)rig_end(&rig, SIGKILL);
	rig.epoch = 7;
	rig_start(&rig);
	ck_assert_uint_eq(rig.hello.highest_epoch, 7);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

static bool was_refused(struct rig *rig, void *arg)
{
	(void)arg;
	return rig->refused.code == FAIL_SCHEDULER_SPLIT;
}

static bool is_welcomed(struct rig *rig, void *arg)
{
	(void)arg;
	return rig->has_inventory;
}

/* With the same store and epoch, but not whom it obeyed: remembered over a restart, and told to the copy. */
START_TEST(a_copied_scheduler_is_refused)
{
	static const char first[] = "aaaaaaaaaaaaaaaaaaaa", copy[] = "bbbbbbbbbbbbbbbbbbbb";
	struct rig rig;

	rig_init(&rig);
	memcpy(rig.scheduler_run, first, sizeof(first));
	rig_join(&rig);
	rig_start(&rig);
	(void)rig_end(&rig, SIGKILL);
	rig.has_inventory = false;
	memcpy(rig.scheduler_run, copy, sizeof(copy));
	rig_launch(&rig);
	rig_until(&rig, was_refused, NULL, "the refusal of the copy");
	ck_assert_str_eq(err_field(&rig.refused, "instance"), copy);
	ck_assert_str_eq(err_field(&rig.refused, "first"), first);
	ck_assert_str_eq(rig.hello.leader.run, first);
	ck_assert(!rig.has_inventory);
	memcpy(rig.scheduler_run, first, sizeof(first));
	rig_until(&rig, is_welcomed, NULL, "the first scheduler's welcome");
	rig_deinit(&rig);
}
END_TEST

static void refuse_all(const struct route *from, const char *user_id, const void *data, size_t size, void *user)
{
	struct envelope_head head = { .epoch = 9, .seq = 1 };
	struct router *const *copy = user;
	struct err err = ERR_NULL;
	uint8_t *frame;

	(void)user_id, (void)data;
	(void)err_set(&err, FAIL_SCHEDULER_SPLIT, 0, "This is a copy.");
	frame = envelope_pack_refused(&head, 1, &err, &size);
	ck_assert_ptr_nonnull(frame);
	(void)router_send(*copy, from, frame, size);
	free(frame);
}

/* A copy listens at the first of two addresses, has the keys and refuses: the node goes on to the other. */
START_TEST(a_node_that_a_copy_refuses_finds_the_first)
{
	CLEANUP_FREE char *text = NULL;
	char path[PATH_MAX], line[1024];
	struct router *copy = NULL;
	struct err err = ERR_NULL;
	struct rig rig;
	const char *at;

	rig_init(&rig);
	rig_join(&rig);
	ck_assert_int_eq(router_new(&copy, rig.base, rig.zmq,
				 &(struct router_config){ .address = "tcp://127.0.0.1:*", .zap_domain = "croft", .keys = rig.keys },
				 refuse_all, &copy, &err),
		0);
	(void)snprintf(path, sizeof(path), "%s/node", rig.state);
	ck_assert_int_eq(file_read(path, 4096, &text, NULL), 0);
	at = strstr(text, rig.address);
	ck_assert_ptr_nonnull(at);
	(void)snprintf(line, sizeof(line), "%.*s%s\nscheduler = %s", (int)(at - text), text, router_address(copy), at);
	ck_assert_int_eq(file_replace(path, line, strlen(line), 0600), 0);
	rig_launch(&rig);
	rig_until(&rig, is_welcomed, NULL, "the first scheduler's welcome");
	(void)rig_end(&rig, SIGKILL);
	router_free(copy);
	rig_deinit(&rig);
}
END_TEST

START_TEST(one_torn_journal_costs_its_own_sandbox_only)
{
	struct sandbox_spec *spec;
	char path[PATH_MAX];
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	(void)rig_end(&rig, SIGKILL);
	(void)snprintf(path, sizeof(path), "%s/sandboxes/torntorntorntorntorn", rig.state);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/sandboxes/torntorntorntorntorn/state", rig.state);
	ck_assert_int_eq(file_replace(path, "\xff\xff\xff", 3, 0600), 0);
	rig_find(&rig, SANDBOX)->report.state = REPORT_NONE;
	rig_start(&rig);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	ck_assert_int_eq(access(path, F_OK), 0);
	rig_create(&rig, "torntorntorntorntorn", spec);
	rig_wait_state(&rig, "torntorntorntorntorn", REPORT_ENDED);
	ck_assert_int_eq(
		rig_find(&rig, "torntorntorntorntorn")->report.failure.code, FAIL_STATE_UNREADABLE);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("node-agent");
	TCase *life = tcase_create("life"), *failures = tcase_create("failures"),
	      *restarts = tcase_create("restarts");

	tcase_set_timeout(life, 60);
	tcase_set_timeout(failures, 60);
	tcase_set_timeout(restarts, 60);
	tcase_add_loop_test(life, create_goes_through_every_stage_in_order, 0, ARRAY_LEN(vmms));
	tcase_add_loop_test(life, a_vmm_that_is_killed_is_told_at_once, 0, 2);
	tcase_add_test(life, a_guest_that_does_not_go_is_ended);
	tcase_add_test(life, an_image_is_taken_up_where_it_broke_off);
	tcase_add_test(life, a_command_of_an_older_scheduler_is_refused);
	tcase_add_loop_test(failures, a_failing_start_says_where_and_whose_and_leaves_nothing, 0,
		ARRAY_LEN(failing));
	tcase_add_test(failures, a_kernel_that_is_missing_is_told_at_the_vmm_stage);
	tcase_add_test(failures, a_kvm_that_went_away_after_placement_is_told_at_the_vmm_stage);
	tcase_add_test(failures, a_node_without_kvm_says_so_in_its_hello);
	tcase_add_test(failures, a_node_without_room_says_so_and_takes_nothing);
	tcase_add_test(failures, wrong_image_bytes_are_the_source_s);
	tcase_add_loop_test(restarts, a_killed_agent_finds_its_sandbox_again, 0, ARRAY_LEN(vmms));
	tcase_add_loop_test(restarts, a_vm_that_died_while_nobody_looked_is_reported, 0, 2);
	tcase_add_test(restarts, sigterm_leaves_the_sandbox_and_takes_two_seconds_at_most);
	tcase_add_test(restarts, an_end_that_nobody_heard_outlives_sigterm);
	tcase_add_loop_test(restarts, telemetry_of_a_cut_comes_complete_and_in_order, 0, 2);
	tcase_add_test(restarts, one_torn_journal_costs_its_own_sandbox_only);
	tcase_add_test(restarts, a_copied_scheduler_is_refused);
	tcase_add_test(restarts, a_node_that_a_copy_refuses_finds_the_first);
	suite_add_tcase(suite, life);
	suite_add_tcase(suite, failures);
	suite_add_tcase(suite, restarts);
	return rig_suite_run(suite);
}
