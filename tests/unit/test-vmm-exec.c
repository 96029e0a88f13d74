/* SPDX-License-Identifier: Apache-2.0
 *
 * A VMM is executed by a process that talks over ZeroMQ all the while, many times (R176): the threads of libzmq go on, the VMM
 * has the five descriptors that it is to have and nothing else of ours, and no descriptor of the caller is left.
 *
 * This program is its own VMM: called with --control-fd it looks at what it has, and its exit status says what was wrong.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "agent/vmm-exec.h"
#include "base/util.h"
#include "lib/suite.h"

#define TIMES 200
#ifdef __SANITIZE_ADDRESS__ /* a start takes twenty times as long */
#define TIMES_FULL 2000
#else
#define TIMES_FULL 10000
#endif
#define GIVEN 5

enum { IS_WELL, HAS_OTHER_FDS, HAS_ENVIRONMENT, HAS_SIGNALS, HAS_NO_SESSION };

/* How many descriptors this process has, but the one that looks; `ret_all` whether they are 0 to n - 1. */
static unsigned int count_fds(bool *ret_all)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	unsigned int n = 0;

	*ret_all = true;
	while (dir && (entry = readdir(dir))) {
		int fd = atoi(entry->d_name);

		if (*entry->d_name == '.' || fd == dirfd(dir))
			continue;
		*ret_all = *ret_all && fd < GIVEN;
		n++;
	}
	if (dir)
		(void)closedir(dir);
	return n;
}

static int be_a_vmm(void)
{
	bool only_given;
	unsigned int n = count_fds(&only_given);
	sigset_t blocked;

	if (n != GIVEN || !only_given)
		return HAS_OTHER_FDS;
	if (getenv("CROFT_BIN") || getenv("LEAKED"))
		return HAS_ENVIRONMENT;
	(void)sigprocmask(SIG_SETMASK, NULL, &blocked);
	if (sigismember(&blocked, SIGTERM) || signal(SIGUSR1, SIG_DFL) != SIG_DFL)
		return HAS_SIGNALS;
	return getsid(0) == getpid() ? IS_WELL : HAS_NO_SESSION;
}

/* ---- the caller's link ---- */
struct link {
	void *zmq, *in, *out;
	atomic_bool is_over;
	atomic_ulong n;
};

static void *talk(void *user)
{
	struct link *link = user;
	char text[64] = "heartbeat";

	while (!link->is_over) {
		if (zmq_send(link->out, text, sizeof(text), 0) < 0 || zmq_recv(link->in, text, sizeof(text), 0) < 0)
			break;
		link->n++;
		(void)usleep(200);
	}
	return NULL;
}

static void link_open(struct link *link, pthread_t *ret)
{
	char address[64];
	size_t size = sizeof(address);

	link->zmq = zmq_ctx_new();
	link->in = zmq_socket(link->zmq, ZMQ_PULL);
	link->out = zmq_socket(link->zmq, ZMQ_PUSH);
	ck_assert_int_eq(zmq_bind(link->in, "tcp://127.0.0.1:*"), 0);
	ck_assert_int_eq(zmq_getsockopt(link->in, ZMQ_LAST_ENDPOINT, address, &size), 0);
	ck_assert_int_eq(zmq_connect(link->out, address), 0);
	ck_assert_int_eq(pthread_create(ret, NULL, talk, link), 0);
}

static void link_close(struct link *link, pthread_t thread)
{
	link->is_over = true;
	(void)pthread_join(thread, NULL);
	(void)zmq_close(link->in);
	(void)zmq_close(link->out);
	(void)zmq_ctx_term(link->zmq);
}

static int execute(int control, int exit_file, int log)
{
	struct vmm_exec exec = { .program = "/proc/self/exe", .jail = "none", .run = "/tmp", .sandbox = "aaaaaaaaaaaaaaaaaaaa",
		.control = control, .exit = exit_file, .log = log };
	pid_t pid;
	int status;

	if (vmm_exec(&exec, &pid) != 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

START_TEST(test_nothing_of_the_caller_reaches_a_vmm)
{
	const int times = getenv("CROFT_FULL") ? TIMES_FULL : TIMES;
	int control = memfd_create("control", MFD_CLOEXEC), exit_file = memfd_create("exit", MFD_CLOEXEC);
	int log = memfd_create("log", MFD_CLOEXEC), leaky = open("/dev/null", O_RDONLY); /* as a library might open one */
	struct link link = { .n = 0 };
	pthread_t thread;
	unsigned int before, well = 0;
	unsigned long talked;
	sigset_t blocked;
	bool all;

	ck_assert(control >= 0 && exit_file >= 0 && log >= 0 && leaky >= 0);
	ck_assert_int_eq(setenv("LEAKED", "1", 1), 0);
	(void)signal(SIGUSR1, SIG_IGN);
	(void)sigemptyset(&blocked);
	(void)sigaddset(&blocked, SIGTERM);
	(void)sigprocmask(SIG_BLOCK, &blocked, NULL);
	link_open(&link, &thread);
	while (link.n == 0)
		(void)usleep(1000);
	before = count_fds(&all);
	talked = link.n;
	for (int i = 0; i < times; i++) {
		int status = execute(control, exit_file, log);

		if (status != IS_WELL)
			ck_abort_msg("VMM %d of %d: %d", i, times, status);
		well++;
	}
	ck_assert_uint_eq(well, (unsigned int)times);
	ck_assert_uint_eq(count_fds(&all), before);
	ck_assert_uint_gt(link.n, talked);
	link_close(&link, thread);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite;
	TCase *tcase;

	if (argc > 1 && strcmp(argv[1], "--control-fd") == 0)
		return be_a_vmm();
	suite = suite_create("vmm-exec");
	tcase = tcase_create("exec");
	tcase_set_timeout(tcase, 500);
	tcase_add_test(tcase, test_nothing_of_the_caller_reaches_a_vmm);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
