/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node as a process, around snapshots that it keeps: one is taken of a sandbox that runs on, an agent that is killed
 * leaves one or none, sandboxes begin as it, and it goes when the scheduler says so.
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/loop.h"
#include "lib/suite.h"
#include "unit/test-node-rig.h"

#define SANDBOX "sandboxsandboxsandbo"
#define CLONE "cloneclonecloneclone"
#define SNAP "snapsnapsnapsnapsnap"
#define TAKE_OP "taketaketaketaketake"

static void start_one(struct rig *rig, const char *mode)
{
	struct sandbox_spec *spec;

	rig_init(rig);
	rig_set_image(rig, mode);
	rig_join(rig);
	rig_start(rig);
	ck_assert(rig->hello.snapshots);
	spec = rig_spec(rig);
	spec->disk_mib = 16;
	rig_create(rig, SANDBOX, spec);
	rig_wait_state(rig, SANDBOX, REPORT_RUNNING);
	spec_unref(spec);
}

static unsigned int count_kept(const struct rig *rig)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/snapshots", rig->state);
	return rig_count_files(path);
}

static bool has_kept(const struct rig *rig, const char *name)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/snapshots/" SNAP "/%s", rig->state, name);
	return access(path, F_OK) == 0;
}

static bool is_answered(struct rig *rig, void *operation)
{
	return !strcmp(rig_find(rig, SANDBOX)->report.updated, operation);
}

static bool is_empty(struct rig *rig, void *unused)
{
	(void)unused;
	return count_kept(rig) == 0;
}

static void take(struct rig *rig)
{
	static char operation[] = TAKE_OP;

	rig_snapshot(rig, SANDBOX, operation, 1, SNAP);
	rig_until(rig, is_answered, operation, "an answer to the snapshot");
}

/* The VM is the same before and after; its snapshot outlives agent and sandbox, and a sandbox that began as it outlives the
 * snapshot. */
START_TEST(one_is_kept_and_begun_from)
{
	static char snapshot[] = SNAP;
	const struct sandbox_report *report;
	struct rig rig;
	pid_t vmm;

	start_one(&rig, "sleeper");
	vmm = rig_find_vmm(&rig);
	take(&rig);
	report = &rig_find(&rig, SANDBOX)->report;
	ck_assert(!err_is_set(&report->update_failure));
	ck_assert_int_eq(report->state, REPORT_RUNNING);
	ck_assert_int_eq(rig_find_vmm(&rig), vmm);
	ck_assert_str_eq(report->snapshot->id, SNAP);
	ck_assert_uint_eq(report->snapshot->memory_mib, 128);
	ck_assert_uint_gt(report->snapshot->size_mib, 0);
	ck_assert(has_kept(&rig, "state") && has_kept(&rig, "memory") && has_kept(&rig, "disk") && has_kept(&rig, "record"));
	ck_assert_int_eq(rig_stage(&rig, SANDBOX, STAGE_SNAPSHOT)->outcome, RESULT_OK);
	if (_i) {
		(void)rig_end(&rig, SIGKILL);
		rig_start(&rig);
		ck_assert_uint_eq(rig.n_snapshots, 1);
		ck_assert_str_eq(rig.snapshots[0].id, SNAP);
	}
	rig_create_from(&rig, CLONE, SNAP);
	rig_wait_state(&rig, CLONE, REPORT_RUNNING);
	ck_assert_str_eq(rig_stage(&rig, CLONE, STAGE_VMM)->reason, "restore");
	ck_assert_int_eq(rig_stage(&rig, CLONE, STAGE_KERNEL)->outcome, RESULT_SKIPPED);
	ck_assert_int_eq(rig_stage(&rig, CLONE, STAGE_GUEST)->outcome, RESULT_OK);
	rig_destroy(&rig, SANDBOX, "request");
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	ck_assert(has_kept(&rig, "memory"));
	rig_drop_snapshot(&rig, SNAP);
	rig_until(&rig, rig_is_dropped, snapshot, "the word that it is dropped");
	ck_assert_uint_eq(count_kept(&rig), 0);
	ck_assert(rig_is(&rig, CLONE, REPORT_RUNNING));
	memset(rig.dropped, 0, sizeof(rig.dropped));
	rig_drop_snapshot(&rig, SNAP); /* again */
	rig_until(&rig, rig_is_dropped, snapshot, "the word that it is dropped");
	rig_deinit(&rig);
}
END_TEST

/* A guest that does not freeze, a VMM that does not write: the same VM runs on, and nothing is left. */
START_TEST(one_that_fails_leaves_nothing)
{
	static const enum fail_code codes[] = { FAIL_GUEST_FREEZE_FAILED, FAIL_SNAPSHOT_FAILED };
	const struct sandbox_report *report;
	struct rig rig;
	pid_t vmm;

	start_one(&rig, _i ? "no-snapshot" : "well");
	vmm = rig_find_vmm(&rig);
	take(&rig);
	report = &rig_find(&rig, SANDBOX)->report;
	ck_assert_int_eq(report->state, REPORT_RUNNING);
	ck_assert_ptr_null(report->snapshot);
	ck_assert_int_eq(report->update_failure.code, codes[_i]);
	ck_assert_int_eq(report->update_failure.stage, STAGE_SNAPSHOT);
	ck_assert_int_eq(rig_find_vmm(&rig), vmm);
	rig_until(&rig, is_empty, NULL, "an empty directory");
	rig_deinit(&rig);
}
END_TEST

/* While the VMM writes. The next agent finds the VM stopped and its guest frozen. */
START_TEST(an_agent_that_is_killed_meanwhile_leaves_none)
{
	static char operation[] = TAKE_OP;
	const struct sandbox_report *report;
	char path[PATH_MAX];
	struct rig rig;
	pid_t vmm;

	start_one(&rig, "held-snapshot");
	vmm = rig_find_vmm(&rig);
	rig_snapshot(&rig, SANDBOX, operation, 1, SNAP);
	(void)snprintf(path, sizeof(path), "%s/snapshots/" SNAP ".new/memory", rig.state);
	for (int i = 0; i < 1000 && access(path, F_OK) < 0; i++)
		loop_for(rig.base, 10);
	ck_assert_int_eq(access(path, F_OK), 0);
	if (_i) { /* it is ended instead: at once */
		rig_destroy(&rig, SANDBOX, "request");
		rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
		ck_assert_int_eq(rig_find_vmm(&rig), 0);
	} else {
		(void)rig_end(&rig, SIGKILL);
		rig_start(&rig);
		rig_until(&rig, is_answered, operation, "an answer to the snapshot");
		ck_assert_int_eq(rig_find_vmm(&rig), vmm);
		ck_assert_int_eq(rig_find(&rig, SANDBOX)->report.state, REPORT_RUNNING);
	}
	report = &rig_find(&rig, SANDBOX)->report;
	ck_assert_str_eq(report->updated, operation);
	ck_assert_int_eq(report->update_failure.code, FAIL_SNAPSHOT_FAILED);
	rig_until(&rig, is_empty, NULL, "an empty directory");
	rig_deinit(&rig);
}
END_TEST

/* One set that does not name it is not enough: the scheduler may be another one, or an older one. */
START_TEST(what_one_desired_set_lacks_stays)
{
	struct rig rig;

	start_one(&rig, "sleeper");
	take(&rig);
	ck_assert_uint_eq(count_kept(&rig), 1);
	rig.wants_no_snapshots = true;
	(void)rig_end(&rig, SIGTERM);
	rig_start(&rig);
	rig_create_from(&rig, CLONE, SNAP); /* behind the set */
	rig_wait_state(&rig, CLONE, REPORT_RUNNING);
	ck_assert(has_kept(&rig, "record"));
	ck_assert(rig_is(&rig, SANDBOX, REPORT_RUNNING));
	rig_deinit(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("node-clone");
	TCase *tcase = tcase_create("node-clone");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, one_is_kept_and_begun_from, 0, 2);
	tcase_add_loop_test(tcase, one_that_fails_leaves_nothing, 0, 2);
	tcase_add_loop_test(tcase, an_agent_that_is_killed_meanwhile_leaves_none, 0, 2);
	tcase_add_test(tcase, what_one_desired_set_lacks_stays);
	suite_add_tcase(suite, tcase);
	return rig_suite_run(suite);
}
