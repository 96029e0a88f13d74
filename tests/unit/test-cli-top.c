/* SPDX-License-Identifier: Apache-2.0
 *
 * The screen of croft top: the answers at the top, never wider or longer than its terminal, nothing of what nodes call themselves
 * moves the cursor.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "cli/top.h"
#include "lib/suite.h"

static struct top_data data;

static json_t *parse(const char *text)
{
	json_error_t error;
	json_t *json = json_loads(text, 0, &error);

	ck_assert_msg(json != NULL, "%s at %d", error.text, error.column);
	return json;
}

#define STAGE(name, attempts, failed, success, codes)                                                                  \
	"{\"stage\":\"" name "\",\"attempts\":" #attempts ",\"failed\":" #failed ",\"saved\":0,\"skipped\":0,\"success\":" #success \
	",\"p50_ms\":1.5,\"p99_ms\":70000,\"codes\":[" codes "]}"

static void set_up(void)
{
	data.stages = parse("{\"stages\":[" STAGE("admit", 200, 0, 1.0, "") "," STAGE("vmm", 200, 50, 0.75,
		"{\"code\":\"KVM_UNAVAILABLE\",\"n\":50,\"owner\":\"customer\",\"remedy\":\"Load the module.\"}") "," STAGE("ready", 150, 0, 1.0, "")
		"," STAGE("exec", 9, 0, 1.0, "") "],\"product\":0.75,\"product_low\":0.7,\"product_high\":0.8,\"weakest\":\"vmm\","
		"\"from\":\"2026-11-29T10:00:00.000Z\",\"as_of\":\"2026-11-30T10:11:12.345Z\",\"complete\":false,\"dropped\":4711}");
	data.failures = parse("{\"owners\":{\"customer\":{\"failed\":50,\"saved\":1}},\"failures\":[{\"when\":\"2026-11-30T09:08:07.000Z\",\"stage\":\"vmm\","
			      "\"code\":\"KVM_UNAVAILABLE\",\"owner\":\"customer\",\"sandbox\":\"s1\",\"node\":\"n1\",\"saved\":false}],\"complete\":true}");
	data.capacity = parse("{\"shape\":{\"vcpus\":2,\"memory_mib\":512},\"pools\":[{\"pool\":\"late\",\"fits\":3,\"nodes\":1,\"forecast\":{\"verdict\":\"grows\","
			      "\"by\":\"disk\",\"runs_out\":\"2027-05-01T00:00:00.000Z\"}},{\"pool\":\"soon\",\"fits\":4,\"nodes\":1,\"change\":\"Add a node.\","
			      "\"forecast\":{\"verdict\":\"grows\",\"by\":\"cpu\",\"runs_out\":\"2027-01-02T00:00:00.000Z\",\"earliest\":\"2026-12-30T00:00:00.000Z\","
			      "\"latest\":null}}]}");
	data.fleet = parse("{\"sums\":{\"nodes\":2,\"schedulable\":1,\"cordoned\":1,\"sandboxes\":7,\"starting\":0},\"nodes\":[{\"hostname\":\"good\",\"pool\":\"soon\","
			   "\"state\":\"ready\",\"schedulable\":true,\"facts\":[],\"sandboxes\":7,\"memory_mib\":100,\"memory_reserved_mib\":25},"
			   "{\"hostname\":\"e\\u001b[2Jvil\\u00e9\",\"pool\":\"soon\",\"state\":\"ready\",\"schedulable\":false,\"facts\":[\"cordoned\"]}]}");
}

static void tear_down(void)
{
	top_data_deinit(&data);
}

static char *drawn(struct top_screen screen)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	screen.url = "http://127.0.0.1:7280";
	screen.window = "24h";
	top_draw(to, &screen, &data);
	ck_assert_int_eq(fclose(to), 0);
	return text;
}

static void expect(const char *text, const char *what)
{
	ck_assert_msg(strstr(text, what), "no \"%s\" in\n%s", what, text);
}

START_TEST(the_answers_come_first)
{
	char *text = drawn((struct top_screen){ .width = 200 });

	expect(text, "as of 2026-11-30T10:11:12 UTC");
	expect(text, "Starts that succeed  75.0 %  (70.0 % to 80.0 %, 200 attempts)\n");
	expect(text, "Weakest stage        vmm, 75.0 % of its attempts succeed: KVM_UNAVAILABLE, owner customer\n");
	expect(text, "Load the module.\n");
	expect(text, "Fit now              7 more of 2 vCPU, 512 MiB\n");
	expect(text, "Runs out             2027-01-02: pool soon, cpu (95 % sure: 2026-12-30 to open)\n");
	expect(text, "Nodes                1 of 2 take sandboxes, 1 cordoned; 7 sandboxes, 0 starting\n");
	expect(text, "GAP in stages: not all since 2026-11-29 is held any more, 4711 older records are gone\n");
	ck_assert_ptr_null(strstr(text, "GAP in failures"));
	expect(text, "vmm                   75.0 %    75.0 % ##################xxxxxx      200      50      0      1 ms    70.0 s\n");
	expect(text, "Failures by owner: customer 50\n");
	expect(text, "09:08:07  vmm            KVM_UNAVAILABLE            customer");
	ck_assert_ptr_null(strstr(text, "exec")); /* no part of a start */
	free(text);
}
END_TEST

START_TEST(each_view)
{
	char *text = drawn((struct top_screen){ .width = 200, .height = 40, .view = TOP_NODES });

	expect(text, "good                   soon           takes sandboxes              7    25 %");
	expect(text, "e?[2Jvil??");
	ck_assert_msg(strstr(text, "vil") < strstr(text, "good"), "what takes nothing comes first");
	ck_assert_ptr_null(strchr(text, '\033'));
	free(text);
	text = drawn((struct top_screen){ .width = 200, .height = 40, .view = TOP_CAPACITY });
	expect(text, "soon                    4");
	expect(text, "  to make room: Add a node.\n");
	free(text);
	text = drawn((struct top_screen){ .width = 200, .height = 40, .view = TOP_FAILURES, .trouble = "nobody answers", .is_paused = true });
	expect(text, "NOT NEW: nobody answers\n");
	expect(text, "PAUSED");
	free(text);
}
END_TEST

/* Lines as a terminal counts them: without what is between ESC and its letter. */
static void check_size(const char *text, unsigned int width, unsigned int height)
{
	unsigned int column = 0, line = 1;

	for (const char *p = text; *p; p++) {
		if (*p == '\033') {
			p += 1 + strcspn(p + 1, "mKJHhl");
			continue;
		}
		if (*p == '\n')
			line++;
		column = *p == '\n' || *p == '\r' ? 0 : column + 1;
		ck_assert_msg(column <= width, "a line of more than %u:\n%s", width, text);
	}
	ck_assert_msg(line <= height, "%u lines of %u:\n%s", line, height, text);
}

START_TEST(it_fits_every_terminal)
{
	for (unsigned int width = 1; width < 180; width += 7)
		for (unsigned int height = 2; height < 60; height += 3) {
			char *text = drawn((struct top_screen){ .width = width, .height = height, .is_live = true, .has_color = true,
				.view = (enum top_view)((width + height) % TOP_VIEW_MAX_) });

			check_size(text, width, height);
			free(text);
		}
}
END_TEST

START_TEST(nothing_and_a_tenants_key)
{
	char *text;

	top_data_deinit(&data);
	text = drawn((struct top_screen){ .width = 80, .height = 24, .is_live = true, .trouble = "no answer" });
	expect(text, "NOT NEW: no answer");
	free(text);
	data.stages = parse("{\"stages\":[],\"product\":null,\"weakest\":null,\"complete\":true}");
	data.failures = parse("{\"owners\":{},\"failures\":[],\"complete\":true}");
	text = drawn((struct top_screen){ .width = 80, .height = 24, .is_live = true });
	expect(text, "nothing was started in this time");
	expect(text, "Nothing failed in this time.");
	ck_assert_ptr_null(strstr(text, "Nodes "));
	ck_assert_ptr_null(strstr(text, "n nodes"));
	free(text);
	data.fleet = parse("{\"sums\":{\"nodes\":0},\"nodes\":[]}");
	text = drawn((struct top_screen){ .width = 120, .height = 24, .is_live = true });
	expect(text, "none has joined yet: `croft token create`");
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli-top");
	TCase *tcase = tcase_create("cli-top");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, the_answers_come_first);
	tcase_add_test(tcase, each_view);
	tcase_add_test(tcase, it_fits_every_terminal);
	tcase_add_test(tcase, nothing_and_a_tenants_key);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
