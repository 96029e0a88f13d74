/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a test program's main().
 */
#pragma once

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Runs one suite in fork mode and frees it; the exit status of main(). */
static inline int suite_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}

/* The same for a suite that needs KVM: 77, "not run", where there is none. */
static inline int suite_run_kvm(Suite *suite)
{
	int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		(void)printf("not run: /dev/kvm cannot be opened (%s)\n", strerrorname_np(errno));
		return 77;
	}
	(void)close(fd);
	return suite_run(suite);
}
