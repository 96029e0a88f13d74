/* SPDX-License-Identifier: Apache-2.0
 *
 * When a package that the scheduler offers may be installed: upgrade.policy and upgrade.window. What of a package is judged is tests/cli/upgrade's.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "helper/upgrade.h"
#include "lib/suite.h"

static bool may(const char *policy, const char *window, int hour, int minute)
{
	char p[16], w[16];
	struct helper_options options = { .upgrade_policy = p, .upgrade_window = w };
	const struct tm at = { .tm_hour = hour, .tm_min = minute };

	(void)snprintf(p, sizeof(p), "%s", policy);
	(void)snprintf(w, sizeof(w), "%s", window);
	return helper_upgrade_may(&options, &at);
}

START_TEST(the_owner_decides)
{
	for (int hour = 0; hour < 24; hour++) {
		ck_assert(!may("manual", "00:00-24:00", hour, 30));
		ck_assert(may("auto", "00:00-00:01", hour, 30));
		ck_assert(may("window", "00:00-24:00", hour, 30));
		ck_assert(!may("nonsense", "00:00-24:00", hour, 30));
	}
}
END_TEST

START_TEST(windows_begin_and_end)
{
	ck_assert(!may("window", "02:00-04:30", 1, 59));
	ck_assert(may("window", "02:00-04:30", 2, 0));
	ck_assert(may("window", "02:00-04:30", 4, 29));
	ck_assert(!may("window", "02:00-04:30", 4, 30));
	ck_assert(may("window", "23:00-01:00", 23, 0));
	ck_assert(may("window", "23:00-01:00", 0, 59));
	ck_assert(!may("window", "23:00-01:00", 1, 0));
	ck_assert(!may("window", "23:00-01:00", 12, 0));
}
END_TEST

START_TEST(nonsense_is_refused)
{
	static const char *const bad[] = { "", "2-4", "02:00", "02:00-04:00x", "24:00-01:00", "02:60-04:00", "02:00-25:00", "03:00-03:00", "02:00-24:30" };
	char policy[16] = "window", window[32];
	struct helper_options options = { .upgrade_policy = policy, .upgrade_window = window };
	struct err err = ERR_NULL;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		(void)snprintf(window, sizeof(window), "%s", bad[i]);
		ck_assert_int_lt(helper_upgrade_check(&options, &err), 0);
		ck_assert_int_eq(err.code, FAIL_CONFIG_INVALID);
		ck_assert(!helper_upgrade_may(&options, &(struct tm){ .tm_hour = 2, .tm_min = 30 }));
	}
	(void)snprintf(window, sizeof(window), "02:00-04:00");
	ck_assert_int_eq(helper_upgrade_check(&options, NULL), 0);
	(void)snprintf(policy, sizeof(policy), "always");
	ck_assert_int_lt(helper_upgrade_check(&options, &err), 0);
}
END_TEST

/* What an agent that was taken over may hand over instead of a file: nothing that is waited for. */
START_TEST(only_files_are_read)
{
	char run[] = "/tmp/croft-test-XXXXXX", policy[] = "auto", window[] = "00:00-24:00", nothing[] = "/nowhere", path[64];
	struct helper_options options = { .run = run, .upgrade_policy = policy, .upgrade_window = window, .upgrade_key = nothing,
		.upgrade_launcher = nothing };
	struct err err = ERR_NULL;
	int ends[2];

	ck_assert_ptr_nonnull(mkdtemp(run));
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_lt(helper_upgrade(&options, ends[0], "", &err), 0);
	ck_assert_int_eq(err.code, FAIL_IO_FAILED);
	(void)snprintf(path, sizeof(path), "%s/upgrade", run);
	ck_assert_int_lt(access(path, F_OK), 0);
	ck_assert_int_eq(rmdir(run), 0);
	(void)close(ends[0]);
	(void)close(ends[1]);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("helper-upgrade");
	TCase *t = tcase_create("upgrade");

	tcase_add_test(t, the_owner_decides);
	tcase_add_test(t, windows_begin_and_end);
	tcase_add_test(t, nonsense_is_refused);
	tcase_add_test(t, only_files_are_read);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
