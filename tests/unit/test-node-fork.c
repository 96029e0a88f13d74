/* SPDX-License-Identifier: Apache-2.0
 *
 * croft-node as a process, around live forks: what the VMM froze goes from one VMM to others as descriptors, no file has the
 * guest's memory, and whoever is killed, at whichever moment, there is what was before or what was asked for.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "lib/loop.h"
#include "lib/suite.h"
#include "pb/node.pb-c.h"
#include "unit/test-node-rig.h"

#define SANDBOX "sandboxsandboxsandbo"
#define CHILD "childchildchildchild"
#define SNAP "snapsnapsnapsnapsnap"
#define FORK_OP "forkforkforkforkfork"

static void start_one(struct rig *rig, const char *mode)
{
	struct sandbox_spec *spec;

	rig_init(rig);
	rig_set_image(rig, mode);
	rig_join(rig);
	rig_start(rig);
	spec = rig_spec(rig);
	spec->disk_mib = 16;
	rig_create(rig, SANDBOX, spec);
	rig_wait_state(rig, SANDBOX, REPORT_RUNNING);
	spec_unref(spec);
}

static bool exists(const struct rig *rig, const char *name)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/snapshots/%s", rig->state, name);
	return access(path, F_OK) == 0;
}

static bool rig_log_has(const struct rig *rig, const char *text)
{
	CLEANUP_FREE char *log = NULL;
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/agent.log", rig->dir);
	ck_assert_int_eq(file_read(path, 16 << 20, &log, NULL), 0);
	return strstr(log, text) != NULL;
}

static bool is_answered(struct rig *rig, void *operation)
{
	return !strcmp(rig_find(rig, SANDBOX)->report.updated, operation);
}

static bool is_empty(struct rig *rig, void *unused)
{
	char path[PATH_MAX];

	(void)unused;
	(void)snprintf(path, sizeof(path), "%s/snapshots", rig->state);
	return rig_count_files(path) == 0;
}

static void ask_fork(struct rig *rig)
{
	rig_fork(rig, SANDBOX, FORK_OP, 1, SNAP);
}

static void wait_answer(struct rig *rig)
{
	static char operation[] = FORK_OP;

	rig_until(rig, is_answered, operation, "an answer to the fork");
}

static bool is_decided(struct rig *rig, void *unused)
{
	(void)unused;
	if (!rig_is(rig, CHILD, REPORT_RUNNING) && !rig_is(rig, CHILD, REPORT_ENDED))
		rig_create_from(rig, CHILD, SNAP); /* it may not have been journalled; idempotent */
	return rig_is(rig, CHILD, REPORT_RUNNING) || rig_is(rig, CHILD, REPORT_ENDED);
}

static void drop(struct rig *rig)
{
	static char snapshot[] = SNAP;

	rig_drop_snapshot(rig, SNAP);
	rig_until(rig, rig_is_dropped, snapshot, "the word that it is dropped");
	ck_assert(is_empty(rig, NULL));
}

/* Files in memory, of nobody's making but a VMM's, that the agent holds open. */
static unsigned int count_memfds(const struct rig *rig)
{
	char path[64], link[300], text[64];
	unsigned int n = 0;
	struct dirent *entry;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)rig->agent);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		ssize_t size;

		(void)snprintf(link, sizeof(link), "%s/%.200s", path, entry->d_name);
		size = readlink(link, text, sizeof(text) - 1);
		text[size > 0 ? size : 0] = '\0';
		n += strstr(text, "memfd:stub") != NULL;
	}
	(void)closedir(dir);
	return n;
}

START_TEST(others_begin_as_it_without_a_file_of_its_memory)
{
	const struct sandbox_report *report;
	struct rig rig;
	pid_t vmm;

	start_one(&rig, "forker");
	vmm = rig_find_vmm(&rig);
	ask_fork(&rig);
	wait_answer(&rig);
	report = &rig_find(&rig, SANDBOX)->report;
	ck_assert_msg(!err_is_set(&report->update_failure), "%s", report->update_failure.msg);
	ck_assert_int_eq(report->state, REPORT_RUNNING);
	ck_assert(report->snapshot->is_live);
	ck_assert_ptr_nonnull(strstr(rig_stage(&rig, SANDBOX, STAGE_SNAPSHOT)->reason, "nothing of its memory"));
	ck_assert(exists(&rig, SNAP ".new/disk"));
	ck_assert(!exists(&rig, SNAP ".new/memory") && !exists(&rig, SNAP ".new/state") && !exists(&rig, SNAP));
	ck_assert_uint_eq(count_memfds(&rig), 3);
	rig_create_from(&rig, CHILD, SNAP);
	rig_wait_state(&rig, CHILD, REPORT_RUNNING); /* the stub looks at the descriptors, and refuses others */
	ck_assert_str_eq(rig_stage(&rig, CHILD, STAGE_VMM)->reason, "fork");
	ck_assert_int_eq(rig_stage(&rig, CHILD, STAGE_KERNEL)->outcome, RESULT_SKIPPED);
	drop(&rig);
	ck_assert_uint_eq(count_memfds(&rig), 0);
	(void)kill(vmm, SIGKILL);
	rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	ck_assert(rig_is(&rig, CHILD, REPORT_RUNNING)); /* it outlives its parent, */
	(void)rig_end(&rig, SIGKILL);
	rig_start(&rig);
	rig_wait_state(&rig, CHILD, REPORT_RUNNING); /* and its agent */
	vmm = rig_find_vmm(&rig);
	(void)kill(vmm, SIGKILL);
	rig_wait_state(&rig, CHILD, REPORT_ENDED);
	rig_deinit(&rig);
}
END_TEST

/* A VMM that cannot, one that is older and does not know how, one that refuses to say: it goes by files, from the same moment. */
START_TEST(where_it_cannot_be_had_it_goes_by_files)
{
	static const char *const modes[] = { "no-fork", "sleeper" };
	static const char *const codes[] = { "FORK_UNSUPPORTED", "FORK_FAILED" };
	struct rig rig;

	start_one(&rig, modes[_i]);
	ask_fork(&rig);
	wait_answer(&rig);
	ck_assert(!err_is_set(&rig_find(&rig, SANDBOX)->report.update_failure));
	ck_assert(!rig_find(&rig, SANDBOX)->report.snapshot->is_live);
	ck_assert(exists(&rig, SNAP "/memory") && exists(&rig, SNAP "/state") && exists(&rig, SNAP "/disk") &&
		  exists(&rig, SNAP "/record"));
	ck_assert(rig_log_has(&rig, "fork-by-snapshot"));
	ck_assert(rig_log_has(&rig, codes[_i]));
	rig_create_from(&rig, CHILD, SNAP);
	rig_wait_state(&rig, CHILD, REPORT_RUNNING);
	ck_assert_str_eq(rig_stage(&rig, CHILD, STAGE_VMM)->reason, "restore");
	drop(&rig);
	rig_deinit(&rig);
}
END_TEST

enum victim { AGENT, VMM, BY_REQUEST, VICTIMS };

/* In the middle: the VM stands still, its guest is frozen, the VMM has not answered. */
START_TEST(killed_in_the_middle)
{
	const struct sandbox_report *report;
	struct rig rig;
	pid_t vmm;

	start_one(&rig, "held-fork");
	vmm = rig_find_vmm(&rig);
	ask_fork(&rig);
	for (int i = 0; i < 1000 && !exists(&rig, SNAP ".new"); i++)
		loop_for(rig.base, 10);
	ck_assert(exists(&rig, SNAP ".new"));
	loop_for(rig.base, 300); /* frozen, paused, asked */
	if (_i == AGENT) {
		(void)rig_end(&rig, SIGKILL);
		rig_start(&rig);
	} else if (_i == VMM) {
		(void)kill(vmm, SIGKILL);
	} else {
		rig_destroy(&rig, SANDBOX, "request");
	}
	if (_i == AGENT)
		wait_answer(&rig);
	else
		rig_wait_state(&rig, SANDBOX, REPORT_ENDED);
	report = &rig_find(&rig, SANDBOX)->report;
	ck_assert_int_eq(report->state, _i == AGENT ? REPORT_RUNNING : REPORT_ENDED);
	ck_assert_str_eq(report->updated, FORK_OP);
	ck_assert_int_eq(report->update_failure.code, FAIL_SNAPSHOT_FAILED);
	ck_assert_int_eq(rig_find_vmm(&rig), _i == AGENT ? vmm : 0);
	rig_until(&rig, is_empty, NULL, "an empty directory");
	rig_deinit(&rig);
}
END_TEST

/* Forked, and the agent that held it is gone: what has not begun as it cannot, and is told so. */
START_TEST(an_agent_that_is_killed_takes_it_along)
{
	struct rig rig;

	start_one(&rig, "forker");
	ask_fork(&rig);
	wait_answer(&rig);
	if (_i) { /* on its way already */
		rig_create_from(&rig, CHILD, SNAP);
		loop_for(rig.base, 15 * (_i - 1));
	}
	(void)rig_end(&rig, SIGKILL);
	rig_start(&rig);
	ck_assert_uint_eq(rig.n_snapshots, 0);
	rig_until(&rig, is_empty, NULL, "an empty directory");
	ck_assert(rig_is(&rig, SANDBOX, REPORT_RUNNING));
	if (!_i)
		rig_create_from(&rig, CHILD, SNAP);
	rig_until(&rig, is_decided, NULL, "a child that runs or has ended");
	if (rig_is(&rig, CHILD, REPORT_ENDED)) {
		enum fail_code code = rig_find(&rig, CHILD)->report.failure.code;

		ck_assert_msg(code == FAIL_SNAPSHOT_LOST || (_i && code == FAIL_AGENT_RESTARTED), "%s", failure_info(code)->name);
	} else {
		ck_assert_int_ne(_i, 0);
	}
	rig_deinit(&rig);
}
END_TEST

/* ---- what the gateway is told ---- */

static int listen_gateway(struct rig *rig, char path[static PATH_MAX])
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	(void)snprintf(path, PATH_MAX, "%s/gateway", rig->dir);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 8), 0);
	return fd;
}

/* How often the sandbox was closed after it had been open, by the agent that connected last; `ret_ready`: as it is now. */
static unsigned int count_closed(int listener, bool *ret_ready)
{
	static uint8_t data[1 << 16];
	int fd = -1, next;
	unsigned int n = 0;
	ssize_t size;

	while ((next = accept(listener, NULL, NULL)) >= 0) {
		(void)fd_close(fd);
		fd = next;
	}
	ck_assert_int_ge(fd, 0);
	size = recv(fd, data, sizeof(data), MSG_DONTWAIT);
	*ret_ready = false;
	for (size_t at = 0, len; at + 4 <= (size_t)MAX(size, 0); at += 4 + len) {
		Croft__GatewayUpdate *update;

		len = (size_t)data[at] << 24 | (size_t)data[at + 1] << 16 | (size_t)data[at + 2] << 8 | data[at + 3];
		ck_assert_uint_le(at + 4 + len, (size_t)size);
		update = croft__gateway_update__unpack(NULL, len, data + at + 4);
		ck_assert_ptr_nonnull(update);
		for (size_t i = 0; i < update->n_routes; i++) {
			n += *ret_ready && !update->routes[i]->ready;
			*ret_ready = update->routes[i]->ready;
		}
		croft__gateway_update__free_unpacked(update, NULL);
	}
	(void)fd_close(fd);
	return n;
}

/* A refusal for want of room costs no client its connection: who is closed out is so only when there is room (0). */
START_TEST(a_sandbox_is_closed_when_there_is_room)
{
	static char admin[] = "--gateway-admin", floor[] = "--limits-disk-floor-percent", all[] = "100";
	const struct sandbox_report *report;
	char path[PATH_MAX];
	struct rig rig;
	bool is_ready;
	int listener;

	start_one(&rig, "forker");
	(void)rig_end(&rig, SIGKILL); /* the VM goes on */
	listener = listen_gateway(&rig, path);
	rig.extra[0] = admin;
	rig.extra[1] = path;
	rig.extra[2] = _i ? floor : NULL;
	rig.extra[3] = _i ? all : NULL;
	rig_start(&rig);
	rig_wait_state(&rig, SANDBOX, REPORT_RUNNING);
	ask_fork(&rig);
	wait_answer(&rig);
	report = &rig_find(&rig, SANDBOX)->report;
	ck_assert_int_eq(report->update_failure.code, _i ? FAIL_SNAPSHOT_FAILED : FAIL_NONE);
	ck_assert(!_i || report->update_failure.err_no == ENOSPC);
	ck_assert_uint_eq(count_closed(listener, &is_ready), _i ? 0 : 1);
	ck_assert(is_ready);
	(void)fd_close(listener);
	rig_deinit(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("node-fork");
	TCase *tcase = tcase_create("node-fork");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, others_begin_as_it_without_a_file_of_its_memory);
	tcase_add_loop_test(tcase, where_it_cannot_be_had_it_goes_by_files, 0, 2);
	tcase_add_loop_test(tcase, a_sandbox_is_closed_when_there_is_room, 0, 2);
	tcase_add_loop_test(tcase, killed_in_the_middle, 0, VICTIMS);
	tcase_add_loop_test(tcase, an_agent_that_is_killed_takes_it_along, 0, 8);
	suite_add_tcase(suite, tcase);
	return rig_suite_run(suite);
}
