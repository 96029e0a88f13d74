/* SPDX-License-Identifier: Apache-2.0
 *
 * base/ and the codecs of wire/ when memory or the disk fails at each point in turn: a clean error, nothing leaked,
 * no half-written file, and what was there before as it was.
 */
#include <check.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/config.h"
#include "base/fd.h"
#include "lib/fault.h"
#include "lib/suite.h"
#include "wire/messages.h"

#define ID "aaaaaaaaaaaaaaaaaaaa"
#define OP "bbbbbbbbbbbbbbbbbbbb"
#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OLD "what was there before"
#define NEW "what is to be there, and somewhat longer than that"

static char dir[64];

static void setup(void)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/croft-fault.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void)
{
	ck_assert_int_eq(dir_remove(dir), 0);
}

static const char *in_dir(const char *name)
{
	static char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void holds(const char *name, const char *text)
{
	CLEANUP_FREE char *found = NULL;

	ck_assert_int_eq(file_read(in_dir(name), 1000, &found, NULL), 0);
	ck_assert_str_eq(found, text);
}

static const unsigned int kinds[] = { FAULT_MEMORY, FAULT_FILE, FAULT_MEMORY | FAULT_FILE };

/* The old file or the new one, whole, and no temporary beside it. */
START_TEST(file_replace_is_all_or_nothing)
{
	for (unsigned long k = 1;; k++) {
		int r;

		ck_assert_int_eq(file_replace(in_dir("file"), OLD, strlen(OLD), 0600), 0);
		fault_arm(kinds[_i], k);
		r = file_replace(in_dir("file"), NEW, strlen(NEW), 0600);
		if (!fault_disarm()) {
			ck_assert_int_eq(r, 0);
			holds("file", NEW);
			break;
		}
		if (r == 0)
			holds("file", NEW);
		else if (access(in_dir("file"), F_OK) == 0) {
			CLEANUP_FREE char *found = NULL;

			ck_assert_int_eq(file_read(in_dir("file"), 1000, &found, NULL), 0);
			/* only the directory's fsync comes behind the rename */
			ck_assert(!strcmp(found, OLD) || !strcmp(found, NEW));
		} else {
			ck_abort_msg("the old file is gone (k %lu)", k);
		}
		ck_assert_int_eq(unlink(in_dir("file")), 0);
		ck_assert_msg(rmdir(dir) == 0, "something is left beside it (k %lu): %s", k, strerror(errno));
		ck_assert_int_eq(mkdir(dir, 0700), 0);
	}
}
END_TEST

START_TEST(short_writes_and_reads_are_gone_on_with)
{
	for (unsigned long k = 1;; k++) {
		CLEANUP_FREE char *found = NULL;
		size_t size = 0;
		bool failed;
		int r;

		fault_arm(FAULT_SHORT, k);
		r = file_replace(in_dir("file"), NEW, strlen(NEW), 0600);
		if (r == 0)
			r = file_read(in_dir("file"), 1000, &found, &size);
		failed = fault_disarm();
		ck_assert_int_eq(r, 0);
		ck_assert_uint_eq(size, strlen(NEW));
		ck_assert_str_eq(found, NEW);
		if (!failed)
			break;
	}
}
END_TEST

START_TEST(file_read_says_why)
{
	ck_assert_int_eq(file_replace(in_dir("file"), OLD, strlen(OLD), 0600), 0);
	for (unsigned long k = 1;; k++) {
		char *found = NULL;
		int r;

		fault_arm(kinds[_i], k);
		r = file_read(in_dir("file"), 1000, &found, NULL);
		if (!fault_disarm()) {
			ck_assert_int_eq(r, 0);
			free(found);
			break;
		}
		ck_assert_int_lt(r, 0);
		ck_assert_ptr_null(found);
	}
}
END_TEST

START_TEST(a_buffer_keeps_what_it_has)
{
	for (unsigned long k = 1;; k++) {
		struct buf buf = BUF_NULL(1 << 20);
		size_t held = 0;
		bool failed;

		fault_arm(FAULT_MEMORY, k);
		for (unsigned int i = 0; i < 200; i++)
			if (buf_append(&buf, NEW, strlen(NEW)) == 0)
				held += strlen(NEW);
		failed = fault_disarm();
		ck_assert_uint_eq(buf_size(&buf), held);
		for (size_t at = 0; at < held; at += strlen(NEW))
			ck_assert_mem_eq(buf_peek(&buf) + at, NEW, strlen(NEW));
		buf_deinit(&buf);
		if (!failed)
			break;
	}
}
END_TEST

struct options {
	char *text;
	uint64_t number;
	bool flag;
};

START_TEST(config_is_loaded_or_refused)
{
	static const struct config_option table[] = {
		{ .section = "a", .key = "text", .type = CONFIG_STRING, .offset = offsetof(struct options, text),
			.fallback = "default", .help = "A text." },
		{ .section = "a", .key = "number", .type = CONFIG_U64, .offset = offsetof(struct options, number),
			.fallback = "7", .help = "A number." },
		{ .section = "a", .key = "flag", .type = CONFIG_BOOL, .offset = offsetof(struct options, flag),
			.fallback = "no", .help = "A flag." },
	};
	static const char file[] = "[a]\ntext = from the file\nnumber = 9\n";

	ck_assert_int_eq(file_replace(in_dir("conf"), file, strlen(file), 0600), 0);
	for (unsigned long k = 1;; k++) {
		char program[] = "program", flag[] = "--a-flag=yes", *argv[] = { program, flag, NULL };
		struct options options = { 0 };
		struct err err = ERR_NULL;
		int argc = 2, r;

		fault_arm(FAULT_MEMORY | FAULT_FILE, k);
		r = config_load(table, ARRAY_LEN(table), &options, in_dir("conf"), &argc, argv, &err);
		if (!fault_disarm()) {
			ck_assert_msg(r == 0, "%s", err.msg);
			ck_assert_str_eq(options.text, "from the file");
			ck_assert_uint_eq(options.number, 9);
			config_free(table, ARRAY_LEN(table), &options);
			break;
		}
		ck_assert_int_lt(r, 0);
		ck_assert(err_is_set(&err));
		config_free(table, ARRAY_LEN(table), &options);
	}
}
END_TEST

/* ---- codecs: encode, decode and free, with each allocation failing ---- */

static struct sandbox_spec *spec_make(void)
{
	struct sandbox_spec *spec = spec_new();

	if (!spec)
		return NULL;
	memcpy(spec->template_name, "base", 5);
	memcpy(spec->image_digest, DIGEST, DIGEST_SIZE);
	spec->vcpus = 1;
	spec->memory_mib = 100;
	if (spec_add_env(spec, "A", "1") < 0 || spec_add_env(spec, "B", "2") < 0 || spec_set_setup(spec, "true") < 0)
		return spec_unref(spec);
	return spec;
}

/* Each: 0 when all went well, -ENOMEM when not. Whatever happens, nothing is left. */
static int spec_there_and_back(void)
{
	struct sandbox_spec *spec = spec_make(), *back = NULL;
	Croft__SandboxSpec *message = spec ? spec_encode(spec) : NULL;
	int r = message ? spec_decode(message, &back, NULL) : -ENOMEM;

	if (message)
		croft__sandbox_spec__free_unpacked(message, NULL);
	fault_hold();
	if (r == 0)
		ck_assert_uint_eq(back->n_env, 2);
	else
		ck_assert_ptr_null(back);
	fault_go_on();
	spec_unref(back);
	spec_unref(spec);
	return r;
}

static int create_there_and_back(void)
{
	struct create_command command = { .sandbox = ID, .operation = OP, .generation = 3, .attempt = 1 }, back;
	Croft__CreateSandbox *message;
	int r;

	command.spec = spec_make();
	message = command.spec ? create_command_encode(&command) : NULL;
	r = message ? create_command_decode(message, &back, NULL) : -ENOMEM;
	if (message)
		croft__create_sandbox__free_unpacked(message, NULL);
	if (r == 0)
		create_command_deinit(&back);
	create_command_deinit(&command);
	return r;
}

static int report_there_and_back(void)
{
	struct stage_record stages[2] = { { .stage = STAGE_VMM, .outcome = RESULT_OK, .sandbox = ID, .generation = 4 },
		{ .stage = STAGE_KERNEL, .outcome = RESULT_FAILED, .sandbox = ID, .generation = 4 } };
	struct sandbox_report report = { .sandbox = ID, .operation = OP, .generation = 4, .version = 1,
		.state = REPORT_ENDED, .accepted = true, .stages = stages, .n_stages = 2 },
			      back, copy;
	Croft__SandboxReport *message;
	int r;

	(void)err_set(&stages[1].failure, FAIL_GUEST_PANIC, 0, "It panicked.");
	err_add(&stages[1].failure, "key", "value");
	report.failure = stages[1].failure;
	report.spec = spec_make();
	message = report.spec ? sandbox_report_encode(&report) : NULL;
	r = message ? sandbox_report_decode(message, &back, NULL) : -ENOMEM;
	if (message)
		croft__sandbox_report__free_unpacked(message, NULL);
	if (r == 0) {
		r = sandbox_report_copy(&back, &copy);
		if (r == 0)
			sandbox_report_deinit(&copy);
		sandbox_report_deinit(&back);
	}
	spec_unref(report.spec);
	return r;
}

static int hello_there_and_back(void)
{
	struct hello hello = { .instance = ID, .machine = OP, .boot_id = "boot", .hostname = "host", .version = "1" },
		     back;
	Croft__Hello *message = NULL;
	int r = image_list_add(&hello.images, DIGEST);

	if (r == 0)
		r = image_list_add(&hello.images, DIGEST);
	(void)err_set(&hello.unschedulable, FAIL_KVM_UNAVAILABLE, ENOENT, "No /dev/kvm.");
	if (r == 0)
		message = hello_encode(&hello);
	r = message ? hello_decode(message, &back, NULL) : -ENOMEM;
	if (message)
		croft__hello__free_unpacked(message, NULL);
	if (r == 0)
		hello_deinit(&back);
	hello_deinit(&hello);
	return r;
}

static int inventory_there_and_back(void)
{
	struct sandbox_report *report = calloc(1, sizeof(*report));
	struct inventory inventory = { .number = 1, .complete = true }, back;
	Croft__Inventory *message;
	int r;

	if (!report)
		return -ENOMEM;
	memcpy(report->sandbox, ID, ID_SIZE);
	report->generation = 1;
	report->version = 1;
	report->state = REPORT_RUNNING;
	report->accepted = true;
	report->spec = spec_make();
	inventory.sandboxes = report;
	inventory.n = 1;
	message = report->spec ? inventory_encode(&inventory) : NULL;
	r = message ? inventory_decode(message, &back, NULL) : -ENOMEM;
	if (message)
		croft__inventory__free_unpacked(message, NULL);
	if (r == 0)
		inventory_deinit(&back);
	inventory_deinit(&inventory);
	return r;
}

static int (*const round_trips[])(void) = { spec_there_and_back, create_there_and_back, report_there_and_back,
	hello_there_and_back, inventory_there_and_back };

START_TEST(codecs_fail_cleanly)
{
	unsigned long k;

	for (k = 1;; k++) {
		int r;

		fault_arm(FAULT_MEMORY, k);
		r = round_trips[_i]();
		if (!fault_disarm()) {
			ck_assert_int_eq(r, 0);
			break;
		}
		ck_assert_msg(r == -ENOMEM, "allocation %lu: %d", k, r);
	}
	ck_assert_uint_gt(k, 5); /* it did count */
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault-wire");
	TCase *tcase = tcase_create("faults");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, file_replace_is_all_or_nothing, 0, (int)ARRAY_LEN(kinds));
	tcase_add_test(tcase, short_writes_and_reads_are_gone_on_with);
	tcase_add_loop_test(tcase, file_read_says_why, 0, (int)ARRAY_LEN(kinds));
	tcase_add_test(tcase, a_buffer_keeps_what_it_has);
	tcase_add_test(tcase, config_is_loaded_or_refused);
	tcase_add_loop_test(tcase, codecs_fail_cleanly, 0, (int)ARRAY_LEN(round_trips));
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
