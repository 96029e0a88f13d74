/* SPDX-License-Identifier: Apache-2.0
 *
 * wire/watchdog: what a service manager hears on its socket.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "lib/loop.h"
#include "lib/suite.h"
#include "wire/watchdog.h"

/* A service manager's socket, abstract; its name is put where sd_notify(3) looks. */
static int manager(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	char name[64];

	ck_assert_int_ge(fd, 0);
	(void)snprintf(name, sizeof(name), "@croft-watchdog-%d", getpid());
	strcpy(address.sun_path + 1, name + 1);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
		0);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", name, 1), 0);
	return fd;
}

static unsigned int heard(int fd)
{
	char text[256];
	unsigned int n = 0;
	ssize_t size;

	while ((size = recv(fd, text, sizeof(text) - 1, 0)) > 0) {
		text[size] = '\0';
		ck_assert_ptr_nonnull(strstr(text, "WATCHDOG=1"));
		n++;
	}
	return n;
}

START_TEST(a_turning_loop_is_heard_and_a_hanging_one_is_not)
{
	struct event_base *base = event_base_new();
	struct event *event = NULL;
	int fd = manager();

	ck_assert_int_eq(setenv("WATCHDOG_USEC", "200000", 1), 0);
	ck_assert_int_eq(unsetenv("WATCHDOG_PID"), 0);
	ck_assert_int_eq(watchdog_new(base, &event), 0);
	ck_assert_ptr_nonnull(event);
	(void)usleep(500000); /* the loop does not turn */
	ck_assert_uint_eq(heard(fd), 0);
	for (int i = 0; i < 300 && heard(fd) == 0; i++)
		loop_for(base, 10);
	loop_for(base, 1000);
	ck_assert_uint_ge(heard(fd), 1);
	event_free(event);
	event_base_free(base);
	(void)fd_close(fd);
}
END_TEST

START_TEST(nobody_asked)
{
	struct event_base *base = event_base_new();
	struct event *event = NULL;
	int fd = manager();

	ck_assert_int_eq(unsetenv("WATCHDOG_USEC"), 0);
	ck_assert_int_eq(watchdog_new(base, &event), 0);
	ck_assert_ptr_null(event);
	ck_assert_int_eq(setenv("WATCHDOG_USEC", "200000", 1), 0);
	ck_assert_int_eq(setenv("WATCHDOG_PID", "1", 1), 0); /* another process is watched */
	ck_assert_int_eq(watchdog_new(base, &event), 0);
	ck_assert_ptr_null(event);
	loop_for(base, 300);
	ck_assert_uint_eq(heard(fd), 0);
	event_base_free(base);
	(void)fd_close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("watchdog");
	TCase *tcase = tcase_create("all");

	tcase_set_timeout(tcase, 30);
	tcase_add_test(tcase, a_turning_loop_is_heard_and_a_hanging_one_is_not);
	tcase_add_test(tcase, nobody_asked);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
