/* SPDX-License-Identifier: Apache-2.0
 *
 * Who a sandbox is that began as a snapshot (guest/renew.h): it is somebody else, or is said not to be. In namespaces of its own,
 * for which it has to be root.
 */
#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/boot.h"
#include "guest/renew.h"
#include "lib/suite.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define MACHINE_ID "/etc/machine-id"
#define OLD "0123456789abcdef0123456789abcdef\n"

static bool hangs;

void boot_set_hostname(const char *hostname)
{
	(void)hostname; /* its files are none of this test, */
	while (hangs) /* but may lie on a file system that stands still */
		(void)pause();
}

static void setup(void)
{
	ck_assert_int_eq(unshare(CLONE_NEWNS | CLONE_NEWUTS), 0);
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("none", "/etc", "tmpfs", 0, NULL), 0);
	ck_assert_int_eq(mount("none", "/run", "tmpfs", 0, NULL), 0);
}

static void read_text(const char *path, char ret[static 64])
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, ret, 63);

	ck_assert_int_gt(n, 0);
	ret[n] = '\0';
}

static void make_machine_id(void)
{
	CLEANUP_FD int fd = open(MACHINE_ID, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);

	ck_assert_int_eq(fd_write_all(fd, OLD, strlen(OLD)), 0);
}

enum root { WRITABLE, READ_ONLY, WITHOUT, DIRECTORY, ROOTS };

START_TEST(it_is_somebody_else)
{
	char before[64], after[64], name[65];

	if (_i == DIRECTORY)
		ck_assert_int_eq(mkdir(MACHINE_ID, 0755), 0);
	else if (_i != WITHOUT)
		make_machine_id();
	if (_i == READ_ONLY)
		ck_assert_int_eq(mount(NULL, "/etc", NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	read_text(BOOT_ID, before);
	for (int i = 0; i < 2; i++) { /* and what began as it, again */
		ck_assert_int_eq(renew_identity("other"), 0);
		read_text(BOOT_ID, after);
		ck_assert_uint_eq(strlen(after), strlen(before));
		ck_assert_str_ne(after, before);
		memcpy(before, after, sizeof(before));
	}
	ck_assert_int_eq(gethostname(name, sizeof(name)), 0);
	ck_assert_str_eq(name, "other");
	if (_i == WRITABLE || _i == READ_ONLY) {
		read_text(MACHINE_ID, after);
		ck_assert_uint_eq(strlen(after), strlen(OLD));
		ck_assert_str_ne(after, OLD);
	} else {
		ck_assert(access(MACHINE_ID, F_OK) == 0 ? _i == DIRECTORY : _i == WITHOUT);
	}
}
END_TEST

START_TEST(what_hangs_behind_it_is_not_waited_for)
{
	char before[64], after[64];

	hangs = true;
	read_text(BOOT_ID, before);
	ck_assert_int_eq(renew_identity("other"), 0);
	read_text(BOOT_ID, after);
	ck_assert_str_ne(after, before);
}
END_TEST

/* Nothing can be made in /run, which the boot id has to have; once it can be, it is done. */
START_TEST(what_is_not_renewed_is_said)
{
	char before[64], after[64];

	make_machine_id();
	read_text(BOOT_ID, before);
	ck_assert_int_eq(mount(NULL, "/run", NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	ck_assert_int_lt(renew_identity("other"), 0);
	ck_assert_int_eq(mount(NULL, "/run", NULL, MS_REMOUNT, NULL), 0);
	ck_assert_int_eq(renew_identity("other"), 0);
	read_text(BOOT_ID, after);
	ck_assert_str_ne(after, before);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest-renew");
	TCase *tcase = tcase_create("guest-renew");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, it_is_somebody_else, 0, ROOTS);
	tcase_add_test(tcase, what_hangs_behind_it_is_not_waited_for);
	tcase_add_test(tcase, what_is_not_renewed_is_said);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
