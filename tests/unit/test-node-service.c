/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node as a process, around the life of a sandbox: joining and being refused, what the node's own
 * configuration forbids, one image for many, ends that nobody asked for, the relay over the link, the state
 * that cannot be read.
 */
#include <check.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "core/supervisor.h"
#include "helper/message.h"
#include "lib/loop.h"
#include "lib/suite.h"
#include "unit/test-node-rig.h"

#define SANDBOX "sandboxsandboxsandbo"
#define OTHER "otherotherotherother"
#define THIRD "thirdthirdthirdthird"

/* ---- joining ---- */

START_TEST(a_refused_token_is_told_by_its_name)
{
	static const enum fail_code codes[] = { FAIL_JOIN_TOKEN_USED, FAIL_JOIN_TOKEN_EXPIRED,
		FAIL_JOIN_TOKEN_REVOKED };
	char text[2048], path[PATH_MAX];
	struct rig rig;

	rig_init(&rig);
	(void)err_set(&rig.enroll_answer, codes[_i], 0, "no");
	rig_write_token(&rig);
	ck_assert_int_eq(rig_command(&rig, "join", text, sizeof(text)), 1);
	ck_assert_ptr_nonnull(strstr(text, failure_info(codes[_i])->name));
	ck_assert_ptr_nonnull(strstr(text, failure_info(codes[_i])->remedy));
	(void)snprintf(path, sizeof(path), "%s/node", rig.state);
	ck_assert_int_lt(access(path, F_OK), 0);
	/* and the agent does not run on it */
	ck_assert_int_eq(rig_command(&rig, "run", text, sizeof(text)), 1);
	ck_assert_ptr_nonnull(strstr(text, "NOT_JOINED"));
	rig_deinit(&rig);
}
END_TEST

/* A node whose clock says 2040 joins as one that says 1970: whether a token's time is over the scheduler knows. */
START_TEST(a_node_s_own_clock_decides_nothing_about_a_token)
{
	static const char *const years[] = { "1970", "2020" };
	CLEANUP_FREE char *token = NULL;
	char text[2048], *year;
	struct rig rig;

	rig_init(&rig);
	rig_write_token(&rig);
	ck_assert_int_eq(file_read(rig.token, 4096, &token, NULL), 0);
	year = strstr(token, "2099");
	ck_assert_ptr_nonnull(year);
	memcpy(year, years[_i], 4);
	ck_assert_int_eq(file_replace(rig.token, token, strlen(token), 0600), 0);
	ck_assert_msg(rig_command(&rig, "join", text, sizeof(text)) == 0, "%s", text);
	rig_deinit(&rig);
}
END_TEST

START_TEST(a_state_directory_is_one_node)
{
	static char replace[] = "--replace";
	char text[2048], first[KEY_Z85_SIZE];
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	(void)snprintf(first, sizeof(first), "%s", rig.node_key);
	ck_assert_int_eq(rig_command(&rig, "join", text, sizeof(text)), 1);
	ck_assert_ptr_nonnull(strstr(text, "ALREADY_JOINED"));
	/* the same token again, on purpose: the same keys, so the scheduler can answer the same */
	rig.extra[0] = replace;
	ck_assert_int_eq(rig_command(&rig, "join", text, sizeof(text)), 0);
	ck_assert_str_eq(rig.node_key, first);
	rig_deinit(&rig);
}
END_TEST

START_TEST(the_secret_key_is_the_owner_s_alone)
{
	char path[PATH_MAX];
	struct stat st;
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	(void)snprintf(path, sizeof(path), "%s/node-testtoken.key", rig.state);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(chmod(path, 0644), 0);
	{
		char text[2048];

		ck_assert_int_eq(rig_command(&rig, "run", text, sizeof(text)), 1);
		ck_assert_ptr_nonnull(strstr(text, "CURVE_WEAK_KEY"));
	}
	rig_deinit(&rig);
}
END_TEST

START_TEST(a_second_agent_on_the_same_state_is_refused)
{
	char text[2048];
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	ck_assert_int_eq(rig_command(&rig, "run", text, sizeof(text)), 1);
	ck_assert_ptr_nonnull(strstr(text, "STATE_LOCKED"));
	ck_assert_int_eq(rig_command(&rig, "status", text, sizeof(text)), 0);
	ck_assert_int_eq(rig_end(&rig, SIGTERM), 0); /* `status` was not in its way */
	rig_deinit(&rig);
}
END_TEST

/* ---- what the node refuses ---- */

START_TEST(the_node_s_own_limits_bound_the_scheduler)
{
	static char vcpus[] = "--limits-vcpus=2";
	struct sandbox_spec *spec;
	struct rig rig;

	rig_init(&rig);
	rig.extra[0] = vcpus;
	rig_join(&rig);
	rig_start(&rig);
	ck_assert_uint_eq(rig.hello.capacity.max_vcpus, 2);
	ck_assert_uint_eq(rig.hello.capacity.memory_mib, 4096);
	spec = rig_spec(&rig);
	spec->vcpus = 3;
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	ck_assert_str_eq(
		failure_info(rig_find(&rig, SANDBOX)->report.failure.code)->name, "NODE_POLICY");
	spec->vcpus = 1;
	spec->memory_mib = 8192;
	rig_create(&rig, OTHER, spec);
	rig_wait_state(&rig, OTHER, REPORT_ENDED);
	ck_assert_str_eq(
		failure_info(rig_find(&rig, OTHER)->report.failure.code)->name, "CAPACITY_STALE");
	ck_assert_int_eq(rig_find_vmm(&rig), 0);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

START_TEST(an_unreadable_state_serves_nothing_and_deletes_nothing)
{
	struct sandbox_spec *spec;
	char path[PATH_MAX];
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	(void)snprintf(path, sizeof(path), "%s/sandboxes", rig.state);
	ck_assert_int_eq(file_replace(path, "no directory", 12, 0600), 0);
	rig_launch(&rig);
	for (int i = 0; i < 1000 && !rig.has_hello; i++)
		loop_for(rig.base, 10);
	ck_assert(rig.has_hello);
	ck_assert_str_eq(failure_info(rig.hello.unschedulable.code)->name, "STATE_UNREADABLE");
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	ck_assert_str_eq(failure_info(rig_find(&rig, SANDBOX)->report.failure.code)->name,
		"STATE_UNREADABLE");
	ck_assert_int_eq(access(path, F_OK), 0);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

/* ---- a start that fails ---- */

static bool is_of_generation_2(struct rig *rig, void *arg)
{
	const struct rig_sandbox *sandbox = rig_find(rig, SANDBOX);

	(void)arg;
	return sandbox && sandbox->report.generation == 2 && sandbox->report.state == REPORT_ENDED;
}

/* Its VMM waited in vain for a lease: no guest ran on the disk, and the next attempt has it. */
START_TEST(a_failed_start_leaves_its_disk_to_the_next_attempt)
{
	static char timeout[] = "--vmm-timeout-ms=1500";
	struct sandbox_spec *spec;
	char path[PATH_MAX];
	struct stat before, after;
	struct rig rig;

	rig_init(&rig);
	rig.lease_ms = 10000;
	rig.extra[0] = timeout;
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	spec->disk_mib = 16;
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	ck_assert_str_eq(
		failure_info(rig_find(&rig, SANDBOX)->report.failure.code)->name, "LEASE_EXPIRED");
	ck_assert(rig_find(&rig, SANDBOX)->report.kept);
	ck_assert_int_eq(rig_find_vmm(&rig), 0);
	(void)snprintf(path, sizeof(path), "%s/sandboxes/" SANDBOX "/disk", rig.state);
	ck_assert_int_eq(stat(path, &before), 0);
	rig_create_again(&rig, SANDBOX, 2, spec);
	rig_until(&rig, is_of_generation_2, NULL, "the end of the second attempt");
	ck_assert_str_eq(rig_stage(&rig, SANDBOX, STAGE_ACCEPT)->reason, "resumed_from=vmm reused=disk");
	ck_assert_int_eq(rig_stage(&rig, SANDBOX, STAGE_DISK)->outcome, RESULT_SKIPPED);
	ck_assert_int_eq(rig_stage(&rig, SANDBOX, STAGE_NETWORK)->outcome, RESULT_SKIPPED); /* no helper here */
	ck_assert_int_eq(stat(path, &after), 0);
	ck_assert_uint_eq(before.st_ino, after.st_ino);
	ck_assert_uint_eq(rig.n_image_requests, 1);
	rig_destroy(&rig, SANDBOX, "request");
	for (int i = 0; i < 1000 && access(path, F_OK) == 0; i++)
		loop_for(rig.base, 10);
	ck_assert_int_ne(access(path, F_OK), 0); /* who ends it has no use for it */
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

/* ---- sleep ---- */

#define PAUSE_OP "pausepausepausepause"
#define RESUME_OP "resumeresumeresumere"

static void start_sleeper(struct rig *rig, const char *mode)
{
	struct sandbox_spec *spec;

	rig_init(rig);
	rig_set_image(rig, mode);
	rig_join(rig);
	rig_start(rig);
	ck_assert(rig->hello.pauses);
	spec = rig_spec(rig);
	spec->disk_mib = 16;
	rig_create(rig, SANDBOX, spec);
	rig_wait_state(rig, SANDBOX, REPORT_RUNNING);
	spec_unref(spec);
}

static bool has_file(const struct rig *rig, const char *name)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/sandboxes/" SANDBOX "/%s", rig->state, name);
	return access(path, F_OK) == 0;
}

static bool is_answered(struct rig *rig, void *operation)
{
	return !strcmp(rig_find(rig, SANDBOX)->report.updated, operation);
}

/* Its VM is gone while it sleeps, its files are there; an agent that is killed meanwhile knows it still. */
START_TEST(a_sandbox_sleeps_and_wakes)
{
	struct rig rig;
	pid_t vmm;

	start_sleeper(&rig, "sleeper");
	vmm = rig_find_vmm(&rig);
	rig_pause(&rig, SANDBOX, PAUSE_OP, 1);
	rig_wait_state(&rig, SANDBOX, REPORT_PAUSED);
	ck_assert_int_eq(rig_find_vmm(&rig), 0);
	ck_assert(has_file(&rig, "snapshot-state") && has_file(&rig, "snapshot-memory") && has_file(&rig, "disk"));
	ck_assert_uint_eq(rig_count_files(rig.run), 0);
	if (_i) {
		(void)rig_end(&rig, SIGKILL);
		rig_start(&rig);
		rig_wait_state(&rig, SANDBOX, REPORT_PAUSED);
	}
	rig_resume(&rig, SANDBOX, RESUME_OP, 2);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	ck_assert_int_ne(rig_find_vmm(&rig), 0);
	ck_assert_int_ne(rig_find_vmm(&rig), vmm);
	ck_assert_str_eq(rig_find(&rig, SANDBOX)->report.updated, RESUME_OP);
	for (int i = 0; i < 1000 && has_file(&rig, "snapshot-memory"); i++)
		loop_for(rig.base, 10);
	ck_assert(!has_file(&rig, "snapshot-memory") && !has_file(&rig, "snapshot-state") && has_file(&rig, "disk"));
	ck_assert_int_eq(rig_stage(&rig, SANDBOX, STAGE_PAUSE)->outcome, RESULT_OK);
	ck_assert_int_eq(rig_stage(&rig, SANDBOX, STAGE_RESUME)->outcome, RESULT_OK);
	rig_pause(&rig, SANDBOX, "pauseagainpauseagain", 3);
	rig_wait_state(&rig, SANDBOX, REPORT_PAUSED);
	rig_destroy(&rig, SANDBOX, "request");
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	ck_assert(!has_file(&rig, "snapshot-memory") && !has_file(&rig, "disk"));
	rig_deinit(&rig);
}
END_TEST

/* A guest that does not freeze, a VMM that does not write: the same VM runs on, and says why. */
START_TEST(a_pause_that_fails_ends_nothing)
{
	static const enum fail_code codes[] = { FAIL_GUEST_FREEZE_FAILED, FAIL_SNAPSHOT_FAILED };
	static char operation[] = PAUSE_OP;
	const struct sandbox_report *report;
	struct rig rig;
	pid_t vmm;

	start_sleeper(&rig, _i ? "no-snapshot" : "well");
	vmm = rig_find_vmm(&rig);
	rig_pause(&rig, SANDBOX, operation, 1);
	rig_until(&rig, is_answered, operation, "an answer to the pause");
	report = &rig_find(&rig, SANDBOX)->report;
	ck_assert_int_eq(report->state, REPORT_RUNNING);
	ck_assert_int_eq(report->update_failure.code, codes[_i]);
	ck_assert_int_eq(report->update_failure.stage, STAGE_PAUSE);
	ck_assert_int_eq(rig_find_vmm(&rig), vmm);
	rig_deinit(&rig);
}
END_TEST

/* Its files are gone with whoever took them: it ends by that name, and its VM is not looked for. */
/* ---- what it used ---- */

static bool has_used(struct rig *rig, void *arg)
{
	const uint64_t *running_us = arg;

	return rig->n_usage && rig->usage[0].running_us >= *running_us;
}

static bool is_told_over(struct rig *rig, void *arg)
{
	(void)arg;
	return rig->n_usage && rig->usage[0].is_over;
}

/* The agent is killed while the VM runs: what it used meanwhile is counted all the same, once. Node and scheduler have the same. */
START_TEST(what_a_sandbox_used_is_counted_over_a_killed_agent)
{
	static char period[] = "--telemetry-usage-period=100ms";
	uint64_t running_us = 300000;
	struct sandbox_spec *spec;
	int64_t began, down;
	char text[PATH_MAX];
	struct rig rig;

	rig_init(&rig);
	rig.extra[0] = period;
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	began = clock_monotonic_usec();
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	rig_until(&rig, has_used, &running_us, "a report of what it used");
	ck_assert_uint_eq(rig.usage[0].memory_mib, spec->memory_mib);
	(void)rig_end(&rig, SIGKILL);
	down = clock_monotonic_usec();
	loop_for(rig.base, 1500);
	down = clock_monotonic_usec() - down;
	rig_start(&rig);
	running_us = rig.usage[0].running_us + (uint64_t)down;
	rig_until(&rig, has_used, &running_us, "a report that has the time without an agent");
	rig_destroy(&rig, SANDBOX, "request");
	rig_until(&rig, is_told_over, NULL, "its last report");
	ck_assert_uint_ge(rig.usage[0].running_us, running_us);
	ck_assert_uint_le(rig.usage[0].running_us, (uint64_t)(clock_monotonic_usec() - began));
	ck_assert_uint_eq(rig.usage[0].uncounted_us, 0);
	ck_assert_uint_gt(rig.usage[0].cpu_us, 0);
	ck_assert_uint_ge(rig.usage[0].disk_us, rig.usage[0].running_us);
	ck_assert_msg(rig_command(&rig, "usage", text, sizeof(text)) == 0, "%s", text);
	/* and one that stops in order loses nothing of the last moment */
	ck_assert_int_eq(rig_end(&rig, SIGTERM), 0);
	rig_start(&rig);
	ck_assert_uint_eq(rig.n_usage, 1);
	(void)snprintf(text, sizeof(text), "%s/usage.unreadable", rig.state);
	ck_assert_int_lt(access(text, F_OK), 0);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

START_TEST(one_whose_snapshot_is_gone_ends)
{
	char path[PATH_MAX];
	struct rig rig;

	start_sleeper(&rig, "sleeper");
	rig_pause(&rig, SANDBOX, PAUSE_OP, 1);
	rig_wait_state(&rig, SANDBOX, REPORT_PAUSED);
	(void)rig_end(&rig, SIGKILL);
	(void)snprintf(path, sizeof(path), "%s/sandboxes/" SANDBOX "/snapshot-memory", rig.state);
	ck_assert_int_eq(unlink(path), 0);
	rig_start(&rig);
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	ck_assert_int_eq(rig_find(&rig, SANDBOX)->report.failure.code, FAIL_VM_VANISHED);
	rig_deinit(&rig);
}
END_TEST

/* ---- images ---- */

START_TEST(one_image_is_fetched_once_for_all_who_wait)
{
	struct sandbox_spec *spec;
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_create(&rig, OTHER, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	rig_wait_state(&rig, OTHER, REPORT_RUNNING);
	rig_create(&rig, THIRD, spec);
	rig_wait_state(&rig, THIRD, REPORT_RUNNING);
	ck_assert_uint_eq(rig.n_image_requests, 1);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

/* A file put into the cache by hand: taken when it is what its name says, replaced when not. */
START_TEST(a_cached_file_is_verified_before_its_first_use)
{
	struct sandbox_spec *spec;
	char path[PATH_MAX];
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	(void)snprintf(path, sizeof(path), "%s/images", rig.cache);
	ck_assert_int_eq(dir_make(path, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/images/%s", rig.cache, rig.digest);
	if (_i == 0)
		ck_assert_int_eq(file_replace(path, rig.image, rig.image_size, 0644), 0);
	else
		ck_assert_int_eq(file_replace(path, "something else", 14, 0644), 0);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	ck_assert_uint_eq(rig.n_image_requests, _i == 0 ? 0 : 1);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

/* ---- ends ---- */

START_TEST(a_life_ends_at_its_time)
{
	struct sandbox_spec *spec;
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	spec->timeout_s = 1;
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	ck_assert_int_eq(rig_find(&rig, SANDBOX)->report.end_reason, END_TIMEOUT);
	ck_assert_ptr_nonnull(rig_stage(&rig, SANDBOX, STAGE_READY));
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

/* ---- want of memory ---- */

static bool has_told_of_oom(struct rig *rig, void *arg)
{
	const unsigned int *from = arg;

	for (unsigned int i = *from; i < rig->n_records; i++) {
		const Croft__TelemetryRecord *record = rig->records[i];

		if (record->body_case == CROFT__TELEMETRY_RECORD__BODY_STAGE && record->stage->failure &&
			strcmp(record->stage->failure->code, "GUEST_OOM") == 0) {
			ck_assert_str_eq(record->stage->stage, "exec");
			ck_assert_str_eq(record->stage->sandbox, SANDBOX);
			return true;
		}
	}
	return false;
}

/* It goes on, and telemetry says it within a second (here three times that), also after the agent was another. How often a
 * guest may say so is bounded. */
START_TEST(a_guest_s_want_of_memory_is_told)
{
	struct sandbox_spec *spec;
	unsigned int from = 0;
	struct rig rig;

	rig_init(&rig);
	rig_set_image(&rig, "hungry");
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	rig.deadline_s = 5; /* telemetry is sent every second or two */
	rig_until(&rig, has_told_of_oom, &from, "the record");
	rig.deadline_s = 0;
	(void)rig_end(&rig, SIGKILL);
	rig_start(&rig);
	from = rig.n_records;
	rig_until(&rig, has_told_of_oom, &from, "the record of after the restart");
	from = rig.n_records;
	loop_for(rig.base, 3000);
	ck_assert(!has_told_of_oom(&rig, &from)); /* one a minute */
	ck_assert(rig_is(&rig, SANDBOX, REPORT_RUNNING));
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

/* ---- the node's own test VM ---- */

static bool is_decided(struct rig *rig, void *arg)
{
	const enum fail_code *code = arg;

	return rig->has_capacity && rig->capacity.unschedulable.code == *code;
}

static bool has_vmm(struct rig *rig, void *arg)
{
	(void)arg;
	return rig_find_vmm(rig) != 0;
}

static bool has_no_vmm(struct rig *rig, void *arg)
{
	(void)arg;
	return rig_find_vmm(rig) == 0 && rig_count_files(rig->run) == 0;
}

/* It boots, or says why not; it is no sandbox to anybody, and nothing is left of it. */
START_TEST(a_test_vm_decides)
{
	static char period[] = "--guest-canary-period=1h", panics[] = "--guest-cmdline=stub.mode=panic",
		    slow[] = "--guest-cmdline=stub.mode=slow";
	enum fail_code code = _i ? FAIL_CANARY_FAILED : FAIL_NONE;
	char initramfs[128], path[PATH_MAX];
	struct rig rig;

	rig_init(&rig);
	(void)snprintf(initramfs, sizeof(initramfs), "--guest-initramfs=%s", rig.kernel);
	(void)snprintf(path, sizeof(path), "%s/failed/" SV_CANARY ".console", rig.state);
	rig.extra[0] = period;
	rig.extra[1] = initramfs;
	rig.extra[2] = _i ? panics : slow; /* so slow that it is seen */
	rig_join(&rig);
	rig_start(&rig);
	ck_assert_int_eq(rig.hello.unschedulable.code, FAIL_CANARY_PENDING);
	if (_i == 0)
		rig_until(&rig, has_vmm, NULL, "the VM");
	else
		rig_until(&rig, is_decided, &code, "the verdict");
	if (_i)
		ck_assert_str_eq(err_field(&rig.capacity.unschedulable, "canary_code"), "GUEST_PANIC");
	if (_i)
		rig_until(&rig, has_no_vmm, NULL, "nothing of it");
	ck_assert_int_eq(access(path, F_OK), _i ? 0 : -1); /* but its console, which the remedy says to read */
	ck_assert_uint_eq(rig.n_sandboxes, 0);
	/* one whose agent was killed in the middle is cleared away by the next */
	ck_assert_int_eq(rig_end(&rig, SIGKILL), -SIGKILL);
	rig_start(&rig);
	if (_i == 0)
		rig_until(&rig, has_vmm, NULL, "the VM again");
	rig_until(&rig, is_decided, &code, "the verdict again");
	rig_until(&rig, has_no_vmm, NULL, "nothing of it again");
	rig_deinit(&rig);
}
END_TEST

/* ---- a helper of this test ---- */

#define GONE "goneegoneegoneegonee"

struct fake_helper {
	char path[128];
	int listening, fd;
	struct event *on_agent, *on_request;
	bool knows_slots; /* lists the canary's and one that nobody has */
	bool has_killed_canary, has_killed_gone; /* since then */
};

static void put_fake_slot(struct helper_reply *reply, const char *sandbox, const char *name)
{
	struct helper_slot *slot = &reply->slots[reply->n_slots++];

	*slot = (struct helper_slot){ .generation = 1, .guest = 0x0a000002, .gateway = 0x0a000001, .prefix = 30, .cid = 7 };
	(void)snprintf(slot->sandbox, sizeof(slot->sandbox), "%s", sandbox);
	(void)snprintf(slot->name, sizeof(slot->name), "%s", name);
}

/* Its descriptor, -1: none. */
static int answer_request(struct fake_helper *helper, const struct helper_request *request, struct helper_reply *reply)
{
	if (request->type == HELPER_HELLO) {
		reply->has_facts = true;
		reply->facts.version = HELPER_VERSION;
	} else if (request->type == HELPER_SLOT_MAKE) {
		put_fake_slot(reply, request->sandbox, "s00000000000c");
	} else if (request->type == HELPER_TAP_OPEN) {
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	} else if (request->type == HELPER_DNS_OPEN) {
		(void)err_set(&reply->failure, FAIL_HELPER_UNAVAILABLE, 0, "none here");
	} else if (request->type == HELPER_LIST && helper->knows_slots) {
		put_fake_slot(reply, SV_CANARY, "s00000000000c");
		put_fake_slot(reply, GONE, "s00000000000d");
	} else if (request->type == HELPER_GROUP_KILL && helper->knows_slots) {
		helper->has_killed_canary |= !strcmp(request->sandbox, SV_CANARY);
		helper->has_killed_gone |= !strcmp(request->sandbox, GONE);
	}
	return -1;
}

static void hang_up(struct fake_helper *helper)
{
	if (helper->on_request)
		event_free(helper->on_request);
	helper->on_request = NULL;
	helper->fd = fd_close(helper->fd);
}

static void on_helper_request(evutil_socket_t fd, short what, void *user)
{
	struct fake_helper *helper = user;
	CLEANUP_FREE uint8_t *packet = malloc(HELPER_PACKET_MAX), *data = NULL;
	CLEANUP_FREE struct helper_reply *reply = calloc(1, sizeof(*reply));
	struct helper_request request;
	CLEANUP_FD int passed = -1;
	int fds[HELPER_FDS_MAX];
	size_t n_fds = 0, size;
	ssize_t n;

	(void)what;
	n = unix_recv_fds(fd, packet, HELPER_PACKET_MAX, fds, HELPER_FDS_MAX, &n_fds);
	if (n <= 0) {
		hang_up(helper);
		return;
	}
	ck_assert_int_eq(helper_request_decode(packet, (size_t)n, &request, NULL), 0);
	reply->id = request.id;
	passed = answer_request(helper, &request, reply);
	helper_request_deinit(&request);
	ck_assert_int_eq(helper_reply_encode(reply, &data, &size), 0);
	(void)unix_send_fds(fd, data, size, &passed, passed >= 0);
}

static void on_helper_agent(evutil_socket_t fd, short what, void *user)
{
	struct fake_helper *helper = user;

	(void)what;
	hang_up(helper);
	helper->fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	ck_assert_int_ge(helper->fd, 0);
	helper->on_request = event_new(event_get_base(helper->on_agent), helper->fd, EV_READ | EV_PERSIST, on_helper_request, helper);
	ck_assert_int_eq(event_add(helper->on_request, NULL), 0);
}

static void fake_helper_init(struct fake_helper *helper, struct rig *rig)
{
	*helper = (struct fake_helper){ .fd = -1 };
	(void)snprintf(helper->path, sizeof(helper->path), "%s/helper", rig->dir);
	helper->listening = unix_listen(helper->path, SOCK_SEQPACKET, 0600, 4);
	ck_assert_int_ge(helper->listening, 0);
	helper->on_agent = event_new(rig->base, helper->listening, EV_READ | EV_PERSIST, on_helper_agent, helper);
	ck_assert_int_eq(event_add(helper->on_agent, NULL), 0);
}

static void fake_helper_deinit(struct fake_helper *helper)
{
	hang_up(helper);
	event_free(helper->on_agent);
	(void)fd_close(helper->listening);
}

static bool has_given_back(struct rig *rig, void *arg)
{
	const struct fake_helper *helper = arg;

	(void)rig;
	return helper->has_killed_gone;
}

/* A helper that starts again tells which slots it has: those that nobody has are given back, and a test VM is somebody. */
START_TEST(a_helper_that_starts_again_ends_no_test_vm)
{
	static char period[] = "--guest-canary-period=1h", mode[] = "--guest-cmdline=stub.mode=never-hello";
	char initramfs[128], socket_at[160];
	struct fake_helper helper;
	struct rig rig;
	pid_t vmm;

	rig_init(&rig);
	fake_helper_init(&helper, &rig);
	(void)snprintf(initramfs, sizeof(initramfs), "--guest-initramfs=%s", rig.kernel);
	(void)snprintf(socket_at, sizeof(socket_at), "--helper-socket=%s", helper.path);
	rig.extra[0] = period;
	rig.extra[1] = initramfs;
	rig.extra[2] = mode;
	rig.extra[3] = socket_at;
	rig_join(&rig);
	rig_start(&rig);
	rig_until(&rig, has_vmm, NULL, "the VM");
	vmm = rig_find_vmm(&rig);
	helper.knows_slots = true;
	hang_up(&helper);
	rig_until(&rig, has_given_back, &helper, "the slot that nobody has");
	ck_assert(!helper.has_killed_canary); /* which it listed before */
	ck_assert_int_eq(rig_find_vmm(&rig), vmm);
	fake_helper_deinit(&helper);
	rig_deinit(&rig);
}
END_TEST

/* ---- a service manager that is not there ---- */

/* R199: not set, empty, no path, nobody there, nobody there in the abstract. */
START_TEST(where_nobody_is_to_be_notified_it_runs)
{
	static const char *const sockets[] = { NULL, "", "relative", "/nobody/is/there", "@croft-nobody-is-there" };
	struct rig rig;

	if (sockets[_i])
		ck_assert_int_eq(setenv("NOTIFY_SOCKET", sockets[_i], 1), 0);
	else
		ck_assert_int_eq(unsetenv("NOTIFY_SOCKET"), 0);
	ck_assert_int_eq(setenv("WATCHDOG_USEC", "200000", 1), 0);
	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	loop_for(rig.base, 500); /* some of the watchdog's times */
	ck_assert_int_eq(rig_end(&rig, SIGTERM), 0);
	rig_deinit(&rig);
}
END_TEST

static bool is_stopped(struct rig *rig, void *arg)
{
	(void)arg;
	return rig_is(rig, SANDBOX, REPORT_ENDED) && rig_find_vmm(rig) == 0 &&
	       rig_count_files(rig->run) == 0;
}

/* DELETE is accepted in every state of a start: here while the image comes, and while the guest boots. */
START_TEST(a_start_may_be_ended_at_any_point)
{
	struct sandbox_spec *spec;
	struct rig rig;

	rig_init(&rig);
	rig_set_image(&rig, _i == 0 ? "well" : _i == 1 ? "never-userspace" : "never-hello");
	if (_i == 0)
		rig.image_stop_at = 1000;
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_STARTING);
	loop_for(rig.base, 300);
	rig_destroy(&rig, SANDBOX, "request");
	rig_until(&rig, is_stopped, NULL, "an empty host");
	ck_assert_int_eq(rig_find(&rig, SANDBOX)->report.end_reason, END_REQUEST);
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

START_TEST(an_agent_killed_during_a_start_leaves_no_vm_behind)
{
	struct sandbox_spec *spec;
	struct rig rig;

	rig_init(&rig);
	rig_set_image(&rig, "never-hello");
	rig_join(&rig);
	rig_start(&rig);
	spec = rig_spec(&rig);
	rig_create(&rig, SANDBOX, spec);
	rig_wait_state(&rig, SANDBOX, REPORT_STARTING);
	for (int i = 0; i < 1000 && rig_find_vmm(&rig) == 0; i++)
		loop_for(rig.base, 1 + _i * 20);
	(void)rig_end(&rig, SIGKILL);
	rig_start(&rig);
	rig_until(&rig, is_stopped, NULL, "an empty host");
	ck_assert_str_eq(failure_info(rig_find(&rig, SANDBOX)->report.failure.code)->name,
		"AGENT_RESTARTED");
	spec_unref(spec);
	rig_deinit(&rig);
}
END_TEST

/* Five sandboxes one after the other, of which some fail: afterwards the agent holds what it held before. */
START_TEST(rounds_leave_no_descriptor_in_the_agent)
{
	static const char *const modes[] = { "well", "panic", "rootfs-unreadable", "well",
		"crash" };
	char id[ID_SIZE], fds[64], path[PATH_MAX];
	unsigned int before, n;
	struct rig rig;

	rig_init(&rig);
	rig_join(&rig);
	rig_start(&rig);
	loop_for(rig.base, 200);
	(void)snprintf(fds, sizeof(fds), "/proc/%d/fd", (int)rig.agent);
	before = rig_count_files(fds);
	for (unsigned int i = 0; i < 5; i++) {
		struct sandbox_spec *spec;

		rig_set_image(&rig, modes[i % ARRAY_LEN(modes)]);
		spec = rig_spec(&rig);
		(void)snprintf(id, sizeof(id), "roundroundroundrou%c%c", 'a' + (char)(i / 10),
			'a' + (char)(i % 10));
		rig_create(&rig, id, spec);
		if (strcmp(modes[i % ARRAY_LEN(modes)], "well") == 0) {
			rig_wait_state(&rig, id, REPORT_RUNNING);
			rig_destroy(&rig, id, "request");
		}
		rig_wait_state(&rig, id, REPORT_ENDED);
		spec_unref(spec);
	}
	(void)snprintf(path, sizeof(path), "%s/sandboxes", rig.state);
	for (int i = 0; i < 1000 && rig_count_files(path) > 0; i++)
		loop_for(rig.base, 10);
	for (int i = 0; i < 300 && rig_count_files(fds) > before; i++)
		loop_for(rig.base, 10);
	n = rig_count_files(fds);
	ck_assert_uint_le(n, before);
	ck_assert_uint_eq(rig_count_files(rig.run), 0);
	ck_assert_uint_eq(rig_count_files(path), 0);
	rig_deinit(&rig);
}
END_TEST

/* ---- relay ---- */

static void on_echo(struct bufferevent *bev, void *user)
{
	(void)user;
	(void)bufferevent_write_buffer(bev, bufferevent_get_input(bev));
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from,
	int size, void *user)
{
	struct bufferevent *bev = bufferevent_socket_new(
		evconnlistener_get_base(listener), fd, BEV_OPT_CLOSE_ON_FREE);

	(void)from, (void)size;
	bufferevent_setcb(bev, on_echo, NULL, NULL, NULL);
	(void)bufferevent_enable(bev, EV_READ | EV_WRITE);
	*(struct bufferevent **)user = bev;
}

static void open_stream(struct rig *rig)
{
	Croft__Envelope envelope;
	Croft__StreamOpen open;
	char sandbox[] = SANDBOX;

	croft__envelope__init(&envelope);
	croft__stream_open__init(&open);
	open.stream = 1;
	open.sandbox = sandbox;
	open.credit = 65536;
	envelope.body_case = CROFT__ENVELOPE__BODY_STREAM_OPEN;
	envelope.stream_open = &open;
	rig_send(rig, &envelope, 0);
}

static void send_bytes(struct rig *rig, const char *text)
{
	Croft__Envelope envelope;
	Croft__StreamData data;

	croft__envelope__init(&envelope);
	croft__stream_data__init(&data);
	data.stream = 1;
	data.data.data = (uint8_t *)(uintptr_t)text;
	data.data.len = strlen(text);
	envelope.body_case = CROFT__ENVELOPE__BODY_STREAM_DATA;
	envelope.stream_data = &data;
	rig_send(rig, &envelope, 0);
}

START_TEST(a_stream_reaches_the_gateway_or_says_why_not)
{
	static char off[] = "--link-relay=no";
	struct evconnlistener *listener = NULL;
	struct bufferevent *gateway = NULL;
	char path[PATH_MAX];
	struct rig rig;

	rig_init(&rig);
	if (_i == 2)
		rig.extra[0] = off;
	rig_join(&rig);
	rig_start(&rig);
	(void)snprintf(path, sizeof(path), "%s/gateway.sock", rig.run);
	if (_i == 0)
		listener = evconnlistener_new(rig.base, on_accept, &gateway, LEV_OPT_CLOSE_ON_FREE,
			0, unix_listen(path, SOCK_STREAM, 0600, 4));
	open_stream(&rig);
	if (_i == 0) {
		for (int i = 0; i < 1000 && rig.stream_credit == 0; i++)
			loop_for(rig.base, 10);
		send_bytes(&rig, "hello gateway");
		for (int i = 0; i < 1000 && rig.stream_size < 13; i++)
			loop_for(rig.base, 10);
		ck_assert_mem_eq(rig.stream, "hello gateway", 13);
		bufferevent_free(gateway);
		evconnlistener_free(listener);
	} else {
		for (int i = 0; i < 1000 && !rig.stream_closed; i++)
			loop_for(rig.base, 10);
		ck_assert_str_eq(failure_info(rig.stream_failure.code)->name,
			_i == 1 ? "GATEWAY_UNAVAILABLE" : "RELAY_DISABLED");
	}
	rig_deinit(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("node-service");
	TCase *tcase = tcase_create("service"), *canary = tcase_create("canary");

	tcase_set_timeout(tcase, 120);
	tcase_set_timeout(canary, 120);
	tcase_add_loop_test(tcase, a_refused_token_is_told_by_its_name, 0, 3);
	tcase_add_loop_test(tcase, a_node_s_own_clock_decides_nothing_about_a_token, 0, 2);
	tcase_add_test(tcase, a_state_directory_is_one_node);
	tcase_add_test(tcase, the_secret_key_is_the_owner_s_alone);
	tcase_add_test(tcase, a_second_agent_on_the_same_state_is_refused);
	tcase_add_test(tcase, the_node_s_own_limits_bound_the_scheduler);
	tcase_add_test(tcase, an_unreadable_state_serves_nothing_and_deletes_nothing);
	tcase_add_test(tcase, a_failed_start_leaves_its_disk_to_the_next_attempt);
	tcase_add_loop_test(tcase, a_sandbox_sleeps_and_wakes, 0, 2);
	tcase_add_loop_test(tcase, a_pause_that_fails_ends_nothing, 0, 2);
	tcase_add_test(tcase, what_a_sandbox_used_is_counted_over_a_killed_agent);
	tcase_add_test(tcase, one_whose_snapshot_is_gone_ends);
	tcase_add_test(tcase, one_image_is_fetched_once_for_all_who_wait);
	tcase_add_loop_test(tcase, a_cached_file_is_verified_before_its_first_use, 0, 2);
	tcase_add_test(tcase, a_life_ends_at_its_time);
	tcase_add_test(tcase, a_guest_s_want_of_memory_is_told);
	tcase_add_loop_test(canary, a_test_vm_decides, 0, 2);
	tcase_add_test(canary, a_helper_that_starts_again_ends_no_test_vm);
	tcase_add_loop_test(tcase, where_nobody_is_to_be_notified_it_runs, 0, 5);
	tcase_add_loop_test(tcase, a_start_may_be_ended_at_any_point, 0, 3);
	tcase_add_loop_test(tcase, an_agent_killed_during_a_start_leaves_no_vm_behind, 0, 2);
	tcase_add_test(tcase, rounds_leave_no_descriptor_in_the_agent);
	tcase_add_loop_test(tcase, a_stream_reaches_the_gateway_or_says_why_not, 0, 3);
	suite_add_tcase(suite, tcase);
	suite_add_tcase(suite, canary);
	return rig_suite_run(suite);
}
