/* SPDX-License-Identifier: Apache-2.0
 *
 * What libc does on a bad day, behind the filters of each kind of thread (case R130): every way in which a library or an
 * assertion ends the process, memory that is not to be had, and a log that nobody reads. In a header since it is compiled
 * twice: for glibc in tests/unit/test-vmm-jail.c, for musl in tests/musl/bad-days.c.
 */
#ifndef CROFT_TESTS_LIB_BAD_DAYS_H
#define CROFT_TESTS_LIB_BAD_DAYS_H

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "filter.h"
#include "last-word.h"

#define DAY_LIVED 42   /* status of a process that went on */
#define DAY_CRASHED -1 /* killed by a signal that is not SIGSYS: musl ends so on purpose */

extern void __stack_chk_fail(void) __attribute__((noreturn)); /* what -fstack-protector calls */

static void abort_at_once(void)
{
	abort();
}

static void fail_an_assertion(void)
{
	__assert_fail("an assertion", __FILE__, __LINE__, __func__);
}

static void smash_the_stack(void)
{
	__stack_chk_fail();
}

static void free_twice(void)
{
	void *volatile block = malloc(24), *volatile other = block;

	free(block);
	free(other);
	_exit(100);
}

/* A block whose size, in front of it, was overwritten. */
static void break_the_heap(void)
{
	void *volatile block = malloc(5000);

	for (int i = 1; i <= 16; i++)
		((volatile char *) block)[-i] = 0x41;
	free(block);
	_exit(100);
}

static void run_out_of_memory(void)
{
	volatile bool failed = false;

	for (int i = 0; i < 64 && !failed; i++)
		failed = !malloc((size_t) 1 << 46);
	for (int i = 0; i < 64; i++)
		free(realloc(malloc(300000), 9000000)); /* mmap, mremap, munmap */
	for (int i = 0; i < 2000; i++)
		if (!malloc(1000)) /* brk */
			failed = true;
	_exit(failed ? DAY_LIVED : 100);
}

static void log_a_lot(void)
{
	for (int i = 0; i < 100; i++)
		log_error("a line", "number", LOG_NUM(i));
	_exit(DAY_LIVED);
}

/* ---- where the log goes; before the filters ---- */

static void log_to_null(void)
{
	(void) dup2(open("/dev/null", O_RDWR), STDERR_FILENO);
}

static void log_to_a_full_pipe(void)
{
	int fds[2];

	if (pipe2(fds, O_NONBLOCK) < 0)
		_exit(101);
	while (write(fds[1], "x", 1) == 1)
		;
	(void) fcntl(fds[1], F_SETFL, 0); /* one that would wait */
	(void) dup2(fds[1], STDERR_FILENO);
}

static void log_to_a_pipe_without_reader(void)
{
	int fds[2];

	if (pipe(fds) < 0)
		_exit(101);
	(void) signal(SIGPIPE, SIG_IGN); /* as main() does */
	(void) close(fds[0]);
	(void) dup2(fds[1], STDERR_FILENO);
}

static void log_to_a_full_socket(void)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0)
		_exit(101);
	while (send(fds[1], "x", 1, MSG_DONTWAIT) == 1)
		;
	(void) dup2(fds[1], STDERR_FILENO);
}

/* ---- */

static const struct bad_day {
	const char *name;
	void (*prepare)(void);
	void (*act)(void);
	int glibc, musl; /* how it ends */
} bad_days[] = {
	{ "abort", log_to_null, abort_at_once, 20, 20 },
	{ "abort, full log", log_to_a_full_pipe, abort_at_once, 20, 20 },
	{ "assertion", log_to_null, fail_an_assertion, 20, 20 },
	{ "assertion, no reader", log_to_a_pipe_without_reader, fail_an_assertion, 20, 20 },
	{ "stack", log_to_null, smash_the_stack, 20, DAY_CRASHED },
	{ "stack, no reader", log_to_a_pipe_without_reader, smash_the_stack, 20, DAY_CRASHED },
	{ "free twice", log_to_null, free_twice, 20, DAY_CRASHED },
	{ "heap", log_to_null, break_the_heap, 20, DAY_CRASHED },
	{ "memory", log_to_null, run_out_of_memory, DAY_LIVED, DAY_LIVED },
	{ "log", log_to_null, log_a_lot, DAY_LIVED, DAY_LIVED },
	{ "full log", log_to_a_full_pipe, log_a_lot, DAY_LIVED, DAY_LIVED },
	{ "no reader", log_to_a_pipe_without_reader, log_a_lot, DAY_LIVED, DAY_LIVED },
	{ "full socket", log_to_a_full_socket, log_a_lot, DAY_LIVED, DAY_LIVED },
};

/* The wait status of a day behind the filters of `kind`; the last word goes to `record_fd`. */
static int bad_day_run(const struct bad_day *day, enum thread_kind kind, int record_fd)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		day->prepare();
		last_word_prepare(record_fd);
		(void) alarm(60); /* waits for a reader that never comes: a wrong end, not a test that hangs */
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || filter_install(THREAD_START) < 0 ||
			(kind != THREAD_START && filter_install(kind) < 0))
			_exit(102);
		day->act();
		_exit(103);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

static bool bad_day_ended(int status, int expected)
{
	if (expected == DAY_CRASHED)
		return WIFSIGNALED(status) && WTERMSIG(status) != SIGSYS && WTERMSIG(status) != SIGALRM;
	return WIFEXITED(status) && WEXITSTATUS(status) == expected;
}

#endif
