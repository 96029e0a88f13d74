/* SPDX-License-Identifier: Apache-2.0
 *
 * What dies for want of the guest's memory: which commands say so, and that the host is told. The kernel's count and its log
 * are this test's.
 */
#include <check.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/server.h"
#include "lib/guest-client.h"
#include "lib/suite.h"

static uint64_t kills; /* that the kernel would have counted */
static bool kills_at_each_look;

static uint64_t count_kills(void)
{
	return kills_at_each_look ? ++kills : kills;
}

static unsigned int n_told;
static uint64_t last_told;
static int taken_status; /* of the teller */

static pid_t tell_kills(uint64_t n)
{
	pid_t pid = fork();

	n_told++;
	last_told = n;
	if (pid == 0)
		_exit(taken_status);
	return pid;
}

static const struct {
	const char *script;
	uint64_t timeout_ms;
	bool is_killing, is_blamed;
} hungry[] = {
	{ "kill -KILL $$", 0, true, true },
	{ "sh -c 'kill -KILL $$'; exit $?", 0, true, true }, /* 137: a child of it */
	{ "kill -KILL $$", 0, false, false },
	{ "exit 1", 0, true, false },
	{ "kill -TERM $$", 0, true, false },
	{ "exit 0", 0, true, false },
	{ "sleep 30", 50, true, false }, /* killed by us */
};

START_TEST(test_out_of_memory)
{
	struct result result;

	oom_init(&fx.server.oom, &fx.server.loop, count_kills, NULL);
	kills = 7; /* before it began: none of its business */
	(void) oom_look(&fx.server.oom);
	kills_at_each_look = hungry[_i].is_killing;
	run(&(struct command){ .script = hungry[_i].script, .timeout_ms = hungry[_i].timeout_ms }, &result);
	ck_assert_int_eq(result.out_of_memory, hungry[_i].is_blamed);
	ck_assert_int_eq(result.timed_out, hungry[_i].timeout_ms != 0);
	result_free(&result);
}
END_TEST

/* Of a kill that something else of the sandbox died of, what is killed much later does not die. */
START_TEST(test_only_what_dies_with_a_kill_is_blamed)
{
	struct client client;
	struct result result;

	oom_init(&fx.server.oom, &fx.server.loop, count_kills, NULL);
	kills = 7;
	kills_at_each_look = false;
	(void) oom_look(&fx.server.oom);
	client = start_script(_i == 0 ? "sleep 3; kill -KILL $$" : "sleep 0.3; kill -KILL $$");
	(void) expect_started(&client);
	kills++;
	(void) oom_look(&fx.server.oom); /* the kernel's log had something */
	finish(&client, &result);
	ck_assert_uint_eq(result.signal, 9);
	ck_assert_int_eq(result.out_of_memory, _i == 1);
	result_free(&result);
}
END_TEST

static void wait_for_teller(void)
{
	while (fx.server.oom.teller != 0)
		turn();
}

/* Its kernel's log is a pipe here. The host is told how many there were, again until it takes it, once a second at most,
 * and not of what it knows. */
START_TEST(test_host_is_told_of_kills)
{
	struct oom *oom = &fx.server.oom;
	int log[2];

	ck_assert_int_eq(pipe2(log, O_CLOEXEC | O_NONBLOCK), 0);
	oom_init(oom, &fx.server.loop, count_kills, tell_kills);
	kills = n_told = 0;
	taken_status = 1;
	ck_assert_int_eq(oom_watch(oom, log[0]), 0);
	for (int i = 0; i < 5; i++)
		turn();
	ck_assert_uint_eq(n_told, 0);
	kills = 2;
	ck_assert_int_eq(write(log[1], "x", 1), 1);
	turn();
	ck_assert_uint_eq(n_told, 1);
	ck_assert_uint_eq(last_told, 2);
	wait_for_teller();
	turn();
	ck_assert_uint_eq(n_told, 1); /* not taken; but the second is not over */
	ck_assert_int_gt(oom->again_usec, clock_monotonic_usec());
	kills = 3;
	taken_status = 0;
	oom->again_usec = clock_monotonic_usec();
	turn();
	ck_assert_uint_eq(n_told, 2);
	ck_assert_uint_eq(last_told, 3);
	wait_for_teller();
	oom->again_usec = 0;
	for (int i = 0; i < 5; i++)
		turn();
	ck_assert_uint_eq(n_told, 2);
	(void) fd_close(log[1]);
}
END_TEST

/* An older agent takes none: less and less is tried. One that takes it makes it as before. */
START_TEST(test_pauses_grow_while_nobody_listens)
{
	struct oom *oom = &fx.server.oom;
	int64_t pause = USEC_PER_SEC;

	oom_init(oom, &fx.server.loop, count_kills, tell_kills);
	kills = 1;
	kills_at_each_look = false;
	n_told = 0;
	taken_status = 1;
	(void) oom_look(oom);
	for (unsigned int i = 1; i <= 12; i++) {
		int64_t began = clock_monotonic_usec();

		oom->again_usec = began;
		turn();
		ck_assert_uint_eq(n_told, i);
		wait_for_teller();
		ck_assert_int_ge(oom->again_usec, began + pause);
		ck_assert_int_le(oom->again_usec, clock_monotonic_usec() + pause);
		pause = MIN(2 * pause, 300 * USEC_PER_SEC);
	}
	taken_status = 0;
	oom->again_usec = clock_monotonic_usec();
	turn();
	wait_for_teller();
	ck_assert_uint_eq(oom->told, 1);
	kills++;
	(void) oom_look(oom);
	oom->again_usec = 0;
	taken_status = 1;
	turn();
	wait_for_teller();
	ck_assert_int_le(oom->again_usec, clock_monotonic_usec() + USEC_PER_SEC);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest-oom");
	TCase *tcase = tcase_create("oom");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, test_out_of_memory, 0, (int) ARRAY_LEN(hungry));
	tcase_add_loop_test(tcase, test_only_what_dies_with_a_kill_is_blamed, 0, 2);
	tcase_add_test(tcase, test_host_is_told_of_kills);
	tcase_add_test(tcase, test_pauses_grow_while_nobody_listens);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
