/* SPDX-License-Identifier: Apache-2.0
 *
 * The real program croft-gateway: it says when it is ready, ends in time, takes its sockets with it, and refuses
 * what it must.
 */
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "lib/suite.h"

#define PATIENCE_MS 15000

static char run[64], program[512], notify_path[96];
static int notify_fd, err_fd;

static void set_up(void)
{
	const char *bin = getenv("CROFT_BIN");
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	(void) snprintf(program, sizeof(program), "%s/croft-gateway", bin ? bin : "build/dev/bin");
	(void) snprintf(run, sizeof(run), "/tmp/croft-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(run));
	(void) snprintf(notify_path, sizeof(notify_path), "%s/notify", run);
	(void) snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", notify_path);
	notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(notify_fd, (struct sockaddr *) &addr, sizeof(addr)), 0);
}

static void tear_down(void)
{
	fd_close(notify_fd);
	fd_close(err_fd);
	(void) dir_remove(run);
}

/* `extra` is one argument or NULL. Its stderr comes to err_fd. */
static pid_t start(const char *directory, const char *extra)
{
	const char *argv[] = { program, "run", "--run", directory, "--gateway-port", "0", extra, NULL };
	int err[2];
	pid_t pid;

	ck_assert_int_eq(pipe(err), 0);
	pid = fork();
	if (pid == 0) {
		(void) setenv("NOTIFY_SOCKET", notify_path, 1);
		(void) dup2(err[1], 2);
		(void) execv(program, (char **) (uintptr_t) argv);
		_exit(99); /* ends the process: the child of a test that could not become the program */
	}
	close(err[1]);
	err_fd = err[0];
	return pid;
}

static int status_of(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void assert_notified(const char *expected)
{
	struct pollfd pfd = { .fd = notify_fd, .events = POLLIN };
	char text[128] = "";

	ck_assert_int_eq(poll(&pfd, 1, PATIENCE_MS), 1);
	ck_assert_int_gt(recv(notify_fd, text, sizeof(text) - 1, 0), 0);
	ck_assert_str_eq(text, expected);
}

static const int signals[] = { SIGTERM, SIGINT };

START_TEST(test_ready_and_stop)
{
	static const char *const sockets[] = { "gateway.sock", "gateway-admin.sock" };
	pid_t pid = start(run, NULL);
	int64_t began;
	char path[128];

	assert_notified("READY=1");
	for (unsigned int i = 0; i < 2; i++) {
		(void) snprintf(path, sizeof(path), "%s/%s", run, sockets[i]);
		ck_assert_int_eq(access(path, F_OK), 0);
	}
	began = clock_monotonic_usec();
	ck_assert_int_eq(kill(pid, signals[_i]), 0);
	assert_notified("STOPPING=1");
	ck_assert_int_eq(status_of(pid), 0);
	ck_assert_int_lt(clock_monotonic_usec() - began, 2 * USEC_PER_SEC);
	for (unsigned int i = 0; i < 2; i++) {
		(void) snprintf(path, sizeof(path), "%s/%s", run, sockets[i]);
		ck_assert_int_ne(access(path, F_OK), 0);
	}
}
END_TEST

static const struct {
	const char *directory, *extra; /* directory NULL: the test's own */
	int status;
	const char *said;
} refused[] = {
	{ NULL, "--gateway-listen=0.0.0.0", 78, "CONFIG_INVALID" },
	{ NULL, "--gateway-listen=::", 78, "CONFIG_INVALID" },
	{ NULL, "--gateway-keepalive=500s", 78, "CONFIG_INVALID" },
	{ NULL, "--nonsense", 78, "CONFIG_INVALID" },
	{ NULL, "stray", 78, "CONFIG_INVALID" },
	{ NULL, "--gateway-listen=203.0.113.7", 78, "CONFIG_INVALID" },
	{ "/no/such/directory", NULL, 1, "LISTEN_FAILED" },
	{ "/tmp/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345",
		NULL, 1, "SOCKET_PATH_TOO_LONG" },
};

START_TEST(test_refused)
{
	pid_t pid = start(refused[_i].directory ? refused[_i].directory : run, refused[_i].extra);
	char text[4096];
	size_t size = 0;
	ssize_t n;

	while (size < sizeof(text) - 1 && (n = read(err_fd, text + size, sizeof(text) - 1 - size)) > 0)
		size += (size_t) n;
	text[size] = '\0';
	ck_assert_int_eq(status_of(pid), refused[_i].status);
	ck_assert_msg(strstr(text, refused[_i].said) != NULL, "it said: %s", text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gateway-program");
	TCase *tc = tcase_create("program");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, test_ready_and_stop, 0, ARRAY_LEN(signals));
	tcase_add_loop_test(tc, test_refused, 0, ARRAY_LEN(refused));
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
