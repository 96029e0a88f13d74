/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.def, row by row, and docs/failures.md, which is made from it and must be equal to it.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fd.h"
#include "lib/loop.h"
#include "lib/suite.h"

#define DOC_MAX (1024 * 1024)

static bool is_made_of(const char *text, const char *set)
{
	return *text && strspn(text, set) == strlen(text);
}

/* Codes of class caller whose status is not 4xx, each with its reason. */
static const struct {
	enum fail_code code;
	int http;
	const char *why;
} exceptions[] = {
	{ FAIL_SANDBOX_GONE, 502, "the E2B SDKs read 502 of the sandbox's address as: not running" },
	{ FAIL_PORT_CLOSED, 502, "what stands in front of a port answers as a gateway does" },
	{ FAIL_EXEC_TIMEOUT, 504, "the process ran out of its own time; the request itself was fine" },
	{ FAIL_UNSUPPORTED, 501, "not implemented is 501" },
};

static bool is_exception(enum fail_code code, int http)
{
	for (size_t i = 0; i < ARRAY_LEN(exceptions); i++)
		if (exceptions[i].code == code)
			return exceptions[i].http == http;
	return false;
}

static bool http_fits(enum fail_code code, const struct failure_info *info)
{
	switch (info->class) {
	case CLASS_CALLER:
		return (info->http >= 400 && info->http < 500) || is_exception(code, info->http);
	case CLASS_CAPACITY:
		return info->http == 503 || info->http == 504;
	case CLASS_TRANSIENT: /* "send it again": never a status that says "do not" */
		return info->http == 429 || info->http >= 500;
	case CLASS_PERMANENT:
	case CLASS_BUG:
		return info->http >= 400 && info->http < 600;
	case CLASS_NONE:
	case CLASS_MAX_:
		break;
	}
	return false;
}

static void check_row(enum fail_code code)
{
	const struct failure_info *info = failure_info(code);
	size_t n = strlen(info->remedy);

	ck_assert_msg(is_made_of(info->name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"), "%s", info->name);
	/* the first of that name: so names are unique */
	ck_assert_msg(failure_by_name(info->name) == code, "%s stands twice", info->name);
	ck_assert_msg(info->stage > STAGE_NONE && info->stage < STAGE_MAX_, "%s", info->name);
	ck_assert_msg(info->component > COMPONENT_NONE && info->component < COMPONENT_MAX_, "%s", info->name);
	ck_assert_msg(info->class > CLASS_NONE && info->class < CLASS_MAX_, "%s", info->name);
	ck_assert_msg(http_fits(code, info), "%s: class %s with HTTP %d", info->name, class_name(info->class),
		info->http);
	/* a sentence that a person can follow */
	ck_assert_msg(n > 15 && n < 200 && info->remedy[n - 1] == '.', "%s: %s", info->name, info->remedy);
	ck_assert_msg(!strstr(info->remedy, "TODO") && !strchr(info->remedy, '\n'), "%s", info->name);
	/* a caller's failure is never retried */
	ck_assert_msg(info->class != CLASS_CALLER || !class_is_retryable(info->class), "%s", info->name);
}

/* One test for all rows, each named in its message: a process for each costs a minute under a sanitizer. */
START_TEST(test_rows)
{
	for (unsigned int i = FAIL_NONE + 1; i < FAIL_MAX_; i++)
		check_row((enum fail_code) i);
}
END_TEST

START_TEST(test_stage_row)
{
	enum fail_stage stage = (enum fail_stage) _i;

	ck_assert(is_made_of(stage_name(stage), "abcdefghijklmnopqrstuvwxyz-"));
	ck_assert_int_eq(stage_by_name(stage_name(stage)), stage);
	ck_assert_uint_gt(strlen(stage_what(stage)), 5);
}
END_TEST

START_TEST(test_component_row)
{
	enum fail_component component = (enum fail_component) _i;

	ck_assert(is_made_of(component_name(component), "abcdefghijklmnopqrstuvwxyz-"));
	ck_assert_int_eq(component_by_name(component_name(component)), component);
	for (int table = RESPONSIBILITY_MANAGED; table <= RESPONSIBILITY_SELF; table++) {
		enum fail_owner owner = component_owner(component, (enum responsibility) table);

		ck_assert(owner > OWNER_NONE && owner < OWNER_MAX_);
		ck_assert(is_made_of(owner_name(owner), "abcdefghijklmnopqrstuvwxyz-"));
	}
}
END_TEST

START_TEST(test_class_row)
{
	enum fail_class class = (enum fail_class) _i;

	ck_assert(is_made_of(class_name(class), "abcdefghijklmnopqrstuvwxyz-"));
	ck_assert_int_eq(class_by_name(class_name(class)), class);
	ck_assert_int_eq(class_is_retryable(class), class == CLASS_CAPACITY || class == CLASS_TRANSIENT);
	ck_assert_uint_gt(strlen(class_what(class)), 5);
}
END_TEST

START_TEST(test_start_stages)
{
	static const char *const names[] = { "admit", "place", "dispatch", "accept", "image", "disk", "network", "jail",
		"vmm", "kernel", "guest", "setup", "ready" };

	ck_assert_uint_eq(ARRAY_LEN(names), STAGE_START_COUNT);
	for (int i = 0; i < STAGE_START_COUNT; i++)
		ck_assert_str_eq(stage_name((enum fail_stage) (STAGE_ADMIT + i)), names[i]);
	ck_assert_int_eq(STAGE_READY - STAGE_ADMIT + 1, STAGE_START_COUNT);
}
END_TEST

/* Values from a peer or a newer version. */
START_TEST(test_outside)
{
	ck_assert_str_eq(failure_info(FAIL_MAX_)->name, "UNKNOWN");
	ck_assert_str_eq(failure_info((enum fail_code) 100000)->name, "UNKNOWN");
	ck_assert_int_eq(failure_info((enum fail_code) 100000)->class, CLASS_BUG);
	ck_assert_str_eq(stage_name(STAGE_MAX_), "unknown");
	ck_assert_str_eq(stage_what(STAGE_MAX_), "unknown");
	ck_assert_str_eq(component_name(COMPONENT_MAX_), "unknown");
	ck_assert_str_eq(owner_name(OWNER_MAX_), "unknown");
	ck_assert_str_eq(class_name(CLASS_MAX_), "unknown");
	ck_assert_str_eq(class_what(CLASS_MAX_), "unknown");
	ck_assert(!class_is_retryable(CLASS_MAX_));
	ck_assert_int_eq(component_owner(COMPONENT_MAX_, RESPONSIBILITY_SELF), OWNER_NONE);
	ck_assert_int_eq(failure_by_name("no_capacity"), FAIL_NONE);
	ck_assert_int_eq(failure_by_name(""), FAIL_NONE);
	ck_assert_int_eq(failure_by_name("UNKNOWN"), FAIL_NONE);
	ck_assert_int_eq(stage_by_name("none"), STAGE_NONE);
	ck_assert_int_eq(component_by_name("NODE_HOST"), COMPONENT_NONE);
	ck_assert_int_eq(class_by_name(""), CLASS_NONE);
}
END_TEST

/* The triples of the issue "First light". */
static const struct {
	enum fail_code code;
	const char *stage, *component;
} triples[] = {
	{ FAIL_IMAGE_DIGEST_MISMATCH, "image", "image-source" },
	{ FAIL_ROOTFS_UNREADABLE, "guest", "template" },
	{ FAIL_NO_COMPATIBLE_NODE, "place", "node-host" },
	{ FAIL_KVM_UNAVAILABLE, "vmm", "node-host" },
	{ FAIL_KERNEL_MISSING, "vmm", "node-software" },
	{ FAIL_NO_CAPACITY, "place", "node-host" },
	{ FAIL_GUEST_PANIC, "kernel", "template" },
	{ FAIL_GUEST_TIMEOUT, "guest", "template" },
	{ FAIL_SETUP_FAILED, "setup", "caller" },
};

START_TEST(test_triple)
{
	ck_assert_str_eq(stage_name(failure_info(triples[_i].code)->stage), triples[_i].stage);
	ck_assert_str_eq(component_name(failure_info(triples[_i].code)->component), triples[_i].component);
}
END_TEST

START_TEST(test_document)
{
	const char *source = getenv("CROFT_SOURCE"), *bin = getenv("CROFT_BIN");
	CLEANUP_FREE char *written = NULL, *made = calloc(1, DOC_MAX);
	char path[512], command[512];
	size_t size;
	FILE *pipe;

	ck_assert_msg(source && bin && made, "CROFT_SOURCE and CROFT_BIN must be set (ctest does)");
	(void) snprintf(path, sizeof(path), "%s/docs/failures.md", source);
	(void) snprintf(command, sizeof(command), "'%s/croft-failure-doc'", bin);
	ck_assert_int_eq(file_read(path, DOC_MAX, &written, &size), 0);
	pipe = popen(command, "r");
	ck_assert_ptr_nonnull(pipe);
	ck_assert_uint_gt(fread(made, 1, DOC_MAX - 1, pipe), 1000);
	ck_assert_int_eq(pclose(pipe), 0);
	ck_assert_msg(!strcmp(written, made), "docs/failures.md is old: make it with bin/croft-failure-doc > docs/failures.md");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("failure");
	TCase *tc = tcase_create("failure");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_rows);
	tcase_add_loop_test(tc, test_stage_row, STAGE_NONE + 1, STAGE_MAX_);
	tcase_add_loop_test(tc, test_component_row, COMPONENT_NONE + 1, COMPONENT_MAX_);
	tcase_add_loop_test(tc, test_class_row, CLASS_NONE + 1, CLASS_MAX_);
	tcase_add_test(tc, test_start_stages);
	tcase_add_test(tc, test_outside);
	tcase_add_loop_test(tc, test_triple, 0, (int) ARRAY_LEN(triples));
	tcase_add_test(tc, test_document);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
