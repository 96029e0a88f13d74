/* SPDX-License-Identifier: Apache-2.0
 *
 * croft usage reconcile: each way in which two books can differ is found, and has its cause.
 */
#include <check.h>
#include <stdbool.h>
#include <string.h>

#include "cli/usage.h"
#include "lib/suite.h"

static json_t *record(int version, int acked, int cpu_us, bool is_over)
{
	return json_pack("{s:s, s:i, s:i, s:i, s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:{}}", "sandbox", "aaaa", "generation", 1,
		"version", version, "acked_version", acked, "over", is_over, "vcpus", 1, "memory_mib", 1, "disk_mib", 1, "running_us", 9,
		"paused_us", 0, "disk_us", 9, "cpu_us", cpu_us, "egress_bytes", 0, "uncounted_us", 0, "lost_us");
}

/* `node`, `scheduler`: taken over; NULL: that book has none. */
static void expect(json_t *node, json_t *scheduler, const char *cause, bool is_explained, const char *what)
{
	json_t *left = node ? json_pack("[o]", node) : json_array(), *right = scheduler ? json_pack("[o]", scheduler) : json_array();
	json_t *list = usage_differences(left, right);
	const json_t *first = json_array_get(list, 0);

	ck_assert_uint_eq(json_array_size(list), cause ? 1 : 0);
	if (cause) {
		ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(first, "cause")), cause));
		ck_assert_int_eq(json_is_true(json_object_get(first, "explained")), is_explained);
		ck_assert_str_eq(json_string_value(json_object_get(first, "what")), what);
	}
	json_decref(list);
	json_decref(left);
	json_decref(right);
}

START_TEST(each_difference_has_its_cause)
{
	expect(record(3, 3, 5, true), record(3, 0, 5, true), NULL, true, "");
	expect(record(4, 3, 6, false), record(3, 0, 5, false), "not told yet", true, "version cpu_us");
	expect(record(4, 4, 6, false), record(3, 0, 5, false), "lost what it acknowledged", false, "version cpu_us");
	expect(record(3, 3, 6, false), record(3, 0, 5, false), "changed", false, "cpu_us");
	expect(record(3, 3, 5, false), record(4, 0, 5, true), "older", false, "version over");
	expect(record(3, 0, 5, false), NULL, "not told yet", true, "all");
	expect(record(3, 3, 5, false), NULL, "lost what it acknowledged", false, "all");
	expect(NULL, record(3, 3, 5, true), "4,096", true, "all");
	expect(NULL, record(3, 3, 5, false), "no account", false, "all");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli-usage");
	TCase *tcase = tcase_create("cli-usage");

	tcase_add_test(tcase, each_difference_has_its_cause);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
