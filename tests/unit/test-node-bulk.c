/* SPDX-License-Identifier: Apache-2.0
 *
 * The agent's bulk work (worker.h): what takes long is never in front of a journal, not even of the same sandbox.
 */
#include <check.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/routes.h"
#include "agent/sandbox.h"
#include "agent/worker.h"
#include "base/fd.h"
#include "lib/loop.h"
#include "lib/suite.h"

#define ID "aaaaaaaaaaaaaaaaaaaa"

static struct agent_options options;
static struct agent agent;
static char dir[64];
static int hold[2]; /* the bulk thread hangs until its end is closed */

static void on_post(evutil_socket_t fd, short what, void *user)
{
	(void)fd, (void)what, (void)user; /* a result for the supervisor, which is none of this test */
}

static void run_hang(void *arg, const atomic_bool *stop)
{
	char byte;

	(void)arg, (void)stop;
	ck_assert_int_eq(read(hold[0], &byte, 1), 0);
}

static void done_hang(void *arg, bool ran)
{
	ck_assert(ran);
	*(bool *)arg = true;
}

static void setup(void)
{
	char gateway[sizeof(dir) + 16];

	(void)snprintf(dir, sizeof(dir), "/tmp/croft-bulk.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(pipe(hold), 0);
	options = (struct agent_options){ .state = dir, .cache = dir };
	agent = (struct agent){ .options = &options, .base = event_base_new() };
	STAILQ_INIT(&agent.posts);
	STAILQ_INIT(&agent.held);
	TAILQ_INIT(&agent.writes);
	agent.post_event = evtimer_new(agent.base, on_post, NULL);
	ck_assert_int_eq(worker_new(&agent.worker, agent.base, 4, NULL), 0);
	ck_assert_int_eq(worker_new(&agent.bulk, agent.base, 1, NULL), 0);
	(void)snprintf(gateway, sizeof(gateway), "%s/gateway", dir); /* where nobody listens */
	ck_assert_int_eq(routes_new(&agent.routes, agent.base, gateway, NULL, &agent, NULL), 0);
}

static void teardown(void)
{
	struct post *post;

	worker_free(agent.worker);
	worker_free(agent.bulk);
	sandbox_free_all(&agent);
	routes_free(agent.routes);
	while ((post = STAILQ_FIRST(&agent.posts))) {
		STAILQ_REMOVE_HEAD(&agent.posts, link);
		free(post);
	}
	event_free(agent.post_event);
	event_base_free(agent.base);
	(void)close(hold[0]);
	ck_assert_int_eq(dir_remove(dir), 0);
}

static void queue(enum sv_action_type type, bool keep_disk)
{
	struct sv_action action = { .type = type, .sandbox = ID, .generation = 1, .spec = spec_new() };

	action.spec->memory_mib = 1;
	if (type == SV_DO_JOURNAL_WRITE) {
		action.journal.record = calloc(1, sizeof(*action.journal.record));
		memcpy(action.journal.record->sandbox, ID, sizeof(ID));
		action.journal.record->state = SV_PAUSING;
	} else if (type == SV_DO_REMOVE_FILES) {
		action.keep_disk = keep_disk;
	}
	sandbox_queue(&agent, &action);
	sandbox_run_queues(&agent);
}

static void until_written(const bool *hung)
{
	while (!TAILQ_EMPTY(&agent.writes)) {
		ck_assert(!*hung);
		ck_assert_int_ge(event_base_loop(agent.base, EVLOOP_ONCE), 0);
	}
}

/* A pause waits for its turn on the bulk thread; what the journal is to say of the same sandbox does not. */
START_TEST(a_journal_is_written_while_bulk_work_hangs)
{
	char path[128];
	bool ended = false;

	ck_assert_int_eq(worker_submit(agent.bulk, 0, run_hang, done_hang, &ended), 0);
	queue(SV_DO_JOURNAL_WRITE, false);
	until_written(&ended);
	queue(SV_DO_SNAPSHOT, false);
	ck_assert_int_eq(sandbox_find(&agent, ID)->sleep_step, SLEEP_MAKE_ROOM);
	(void)snprintf(path, sizeof(path), "%s/sandboxes/" ID "/state", dir);
	ck_assert_int_eq(unlink(path), 0);
	queue(SV_DO_JOURNAL_WRITE, false);
	until_written(&ended);
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_int_eq(sandbox_find(&agent, ID)->sleep_step, SLEEP_MAKE_ROOM);
	ck_assert(!ended);
	(void)close(hold[1]);
	loop_until(agent.base, &ended);
}
END_TEST

/* A snapshot's sandbox is closed to everybody from the first step on: what makes room for it waits for no other bulk work. */
START_TEST(a_snapshot_begins_while_bulk_work_hangs)
{
	struct sv_action action = { .type = SV_DO_TAKE_SNAPSHOT, .sandbox = ID, .generation = 1, .spec = spec_new() };
	bool ended = false;

	ck_assert_int_eq(worker_submit(agent.bulk, 0, run_hang, done_hang, &ended), 0);
	queue(SV_DO_JOURNAL_WRITE, false);
	until_written(&ended);
	action.snapshot = calloc(1, sizeof(*action.snapshot));
	memcpy(action.snapshot->id, "ssssssssssssssssssss", ID_SIZE);
	action.spec->memory_mib = 1;
	sandbox_queue(&agent, &action);
	sandbox_run_queues(&agent);
	while (STAILQ_EMPTY(&agent.posts)) /* it has no guest here */
		ck_assert_int_ge(event_base_loop(agent.base, EVLOOP_ONCE), 0);
	ck_assert_int_eq(STAILQ_FIRST(&agent.posts)->type, SV_EV_SNAPSHOT_TAKEN);
	ck_assert_int_eq(STAILQ_FIRST(&agent.posts)->err.code, FAIL_GUEST_FREEZE_FAILED);
	ck_assert(!ended);
	(void)close(hold[1]);
	loop_until(agent.base, &ended);
}
END_TEST

static void pause_other(const char *id, uint64_t memory_mib)
{
	struct sv_action action = { .type = SV_DO_JOURNAL_WRITE, .generation = 1 };

	action.journal.record = calloc(1, sizeof(*action.journal.record));
	memcpy(action.sandbox, id, ID_SIZE);
	memcpy(action.journal.record->sandbox, id, ID_SIZE);
	sandbox_queue(&agent, &action);
	action = (struct sv_action){ .type = SV_DO_SNAPSHOT, .generation = 1, .spec = spec_new() };
	memcpy(action.sandbox, id, ID_SIZE);
	action.spec->memory_mib = memory_mib;
	sandbox_queue(&agent, &action);
	sandbox_run_queues(&agent);
}

/* Each sees the space that is free before any of them has written: what all of them may yet write has to fit. */
START_TEST(pauses_at_once_share_the_space)
{
	static const enum fail_code codes[] = { FAIL_GUEST_FREEZE_FAILED, FAIL_SNAPSHOT_FAILED }; /* it has no guest here */
	bool ended = false, hung = false;
	const struct post *post;
	struct statvfs fs;
	uint64_t free_mib;

	ck_assert_int_eq(statvfs(dir, &fs), 0);
	free_mib = (uint64_t)fs.f_bavail * fs.f_frsize >> 20;
	ck_assert_uint_gt(free_mib, 1000);
	ck_assert_int_eq(worker_submit(agent.bulk, 0, run_hang, done_hang, &ended), 0);
	pause_other(ID, free_mib / 10 * 6);
	until_written(&hung);
	pause_other("bbbbbbbbbbbbbbbbbbbb", free_mib / 10 * 6);
	until_written(&hung);
	(void)close(hold[1]);
	loop_until(agent.base, &ended);
	for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
		while (!(post = STAILQ_FIRST(&agent.posts)))
			ck_assert_int_ge(event_base_loop(agent.base, EVLOOP_ONCE), 0);
		ck_assert_int_eq(post->type, SV_EV_SNAPSHOT_DONE);
		ck_assert_int_eq(post->err.code, codes[post->sandbox[0] == 'b']);
		STAILQ_REMOVE_HEAD(&agent.posts, link);
		free((void *)(uintptr_t)post);
	}
}
END_TEST

/* A big file is gone by its name at once; its blocks wait for the bulk thread. */
START_TEST(a_big_file_goes_without_waiting)
{
	const off_t size = (off_t)65 << 20;
	char path[128], link[64];
	bool ended = false, is_held = false;
	struct stat st;
	int fd;

	ck_assert_int_eq(worker_submit(agent.bulk, 0, run_hang, done_hang, &ended), 0);
	queue(SV_DO_JOURNAL_WRITE, false);
	until_written(&ended);
	(void)snprintf(path, sizeof(path), "%s/sandboxes/" ID "/disk", dir);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ck_assert_int_eq(posix_fallocate(fd, 0, size), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(close(fd), 0);
	queue(SV_DO_REMOVE_FILES, false);
	while (STAILQ_EMPTY(&agent.posts))
		ck_assert_int_ge(event_base_loop(agent.base, EVLOOP_ONCE), 0);
	ck_assert_int_eq(STAILQ_FIRST(&agent.posts)->type, SV_EV_REMOVED);
	ck_assert(!err_is_set(&STAILQ_FIRST(&agent.posts)->err));
	ck_assert_int_eq(access(path, F_OK), -1);
	ck_assert(!ended);
	for (fd = 3; fd < 64; fd++) {
		struct stat held;

		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		is_held = is_held || (stat(link, &held) == 0 && held.st_ino == st.st_ino && held.st_dev == st.st_dev);
	}
	ck_assert(is_held);
	(void)close(hold[1]);
	loop_until(agent.base, &ended);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("node-bulk");
	TCase *tcase = tcase_create("node-bulk");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_journal_is_written_while_bulk_work_hangs);
	tcase_add_test(tcase, a_big_file_goes_without_waiting);
	tcase_add_test(tcase, a_snapshot_begins_while_bulk_work_hangs);
	tcase_add_test(tcase, pauses_at_once_share_the_space);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
