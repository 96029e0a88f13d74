/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes whose clocks are wrong, over a real link: the offset is measured and shown, and their records stand where they belong.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/loop.h"
#include "lib/suite.h"
#include "server/message.h"
#include "server/telemetry.h"
#include "telemetry/clock-offset.h"
#include "unit/test-api-rig.h"

#define NEAR_USEC (10 * USEC_PER_SEC) /* of a test on a machine that others use; the clocks are years apart */

static struct rig rig;
static struct fake_node node;
static char sandbox[ID_SIZE];

static void greet(int64_t ahead_us)
{
	node.has_clock = true;
	node.ahead_us = ahead_us;
	node.welcome = false;
	node_send_hello(&node);
	loop_until(rig.base, &node.welcome);
}

static void open_all(int64_t ahead_us)
{
	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	greet(ahead_us);
}

static void close_all(void)
{
	node_close(&node);
	rig_close(&rig);
}

static struct answer ask_node(void)
{
	return rig_get(&rig, rig.keys.provider, "/v1/nodes/*", node.node);
}

static void wait_measured(void)
{
	bool is_known = false;

	for (int i = 0; i < 1000 && !is_known; i++) {
		struct answer answer = ask_node();

		is_known = json_is_integer(json_object_get(answer.json, "clock_offset_ms"));
		answer_free(&answer);
		if (!is_known)
			loop_for(rig.base, 10);
	}
	ck_assert(is_known);
}

static void expect_now(const json_t *object, const char *member)
{
	const char *text = json_string_value(json_object_get(object, member));
	int64_t when_us;

	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(clock_parse_rfc3339(text, &when_us), 0);
	ck_assert_msg(llabs(when_us - clock_realtime_usec()) < NEAR_USEC, "%s", text);
}

static void send_batch(uint64_t seq, enum fail_stage stage)
{
	struct stage_record record = {
		.stage = stage, .outcome = RESULT_OK, .began_us = clock_realtime_usec() + node.ahead_us, .took_us = 7000, .corrected_us = 77
	};

	memcpy(record.sandbox, sandbox, sizeof(record.sandbox));
	node_send_stage(&node, seq, &record);
}

/* The stages of the start, and `n` records of the spool. */
static void expect_records(size_t n)
{
	struct answer answer = rig_get(&rig, rig.keys.tenant, "/v1/sandboxes/*", sandbox);
	const json_t *list = json_object_get(answer.json, "stages");
	json_t *item;
	size_t i;

	ck_assert_uint_ge(json_array_size(list), STAGE_READY - STAGE_ACCEPT + 1);
	json_array_foreach(list, i, item)
		expect_now(item, "began");
	answer_free(&answer);
	answer = rig_get(&rig, rig.keys.provider, "/v1/nodes/*/telemetry", node.node);
	list = json_object_get(answer.json, "records");
	ck_assert_uint_eq(json_array_size(list), n);
	json_array_foreach(list, i, item)
		expect_now(item, "when");
	answer_free(&answer);
}

static uint64_t ok_of(enum fail_stage stage)
{
	struct stage_totals totals;

	telemetry_totals(rig.server->telemetry, stage, &totals);
	return totals.ok;
}

/* 1970, 2040, and the right time: right from the hello on, before anything was measured; in the store too; a resend counts once. */
START_TEST(records_stand_in_their_time)
{
	const int64_t now = clock_realtime_usec();
	const int64_t ahead[] = { 1000 * USEC_PER_SEC - now, INT64_C(2208988800) * USEC_PER_SEC - now, 0 };
	struct answer answer;
	int64_t within;

	open_all(ahead[_i]);
	rig_create(&rig, &node, "{}", sandbox);
	send_batch(1, STAGE_PAUSE);
	expect_records(1);
	wait_measured();
	answer = ask_node();
	within = json_integer_value(json_object_get(answer.json, "clock_within_ms"));
	ck_assert_int_ge(within, 1);
	ck_assert_int_le(within, NEAR_USEC / USEC_PER_MSEC);
	/* both clocks are this machine's: exact but for what it is said to be wrong by, and what was rounded here */
	ck_assert_int_le(llabs(json_integer_value(json_object_get(answer.json, "clock_offset_ms")) - ahead[_i] / USEC_PER_MSEC), within + 1);
	answer_free(&answer);
	send_batch(2, STAGE_PAUSE);
	ck_assert_uint_eq(ok_of(STAGE_PAUSE), 2);
	greet(ahead[_i] + USEC_PER_SEC * 3600); /* the clock was set, and what was not acknowledged comes again */
	send_batch(2, STAGE_PAUSE);
	ck_assert_uint_eq(ok_of(STAGE_PAUSE), 2);
	expect_records(2);
	rig_stop(&rig);
	rig_start(&rig);
	expect_records(2); /* corrected once, not once more */
	ck_assert_uint_eq(ok_of(STAGE_PAUSE), 2);
	answer = ask_node(); /* no session: nothing is known */
	ck_assert(json_is_null(json_object_get(answer.json, "clock_offset_ms")));
	ck_assert(json_is_null(json_object_get(answer.json, "clock_within_ms")));
	answer_free(&answer);
	close_all();
}
END_TEST

/* The whole truth about the sandbox once more: a pause that began then, as the node's clock had it. */
static void report_pause(int64_t began_us)
{
	struct stage_record stage = { .stage = STAGE_PAUSE, .outcome = RESULT_OK, .began_us = began_us, .took_us = 7000, .attempt = 1 };
	struct sandbox_report report = { .generation = node.generation, .accepted = true, .state = REPORT_RUNNING, .stages = &stage, .n_stages = 1 };
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);

	report.version = ++node.version;
	stage.generation = node.generation;
	stage.corrected_us = began_us; /* a node has no word in that */
	memcpy(report.sandbox, node.sandbox, sizeof(report.sandbox));
	envelope.body_case = CROFT__ENVELOPE__BODY_REPORT;
	envelope.report = sandbox_report_encode(&report);
	node_send(&node, &envelope);
	croft__sandbox_report__free_unpacked(envelope.report, NULL);
}

/* The pause that is kept; "" for none. */
static void pause_of(char ret[static 64])
{
	struct answer answer = rig_get(&rig, rig.keys.tenant, "/v1/sandboxes/*", sandbox);
	unsigned int n = 0;
	json_t *item;
	size_t i;

	*ret = '\0';
	json_array_foreach(json_object_get(answer.json, "stages"), i, item) {
		if (strcmp(json_string_value(json_object_get(item, "stage")), "pause") != 0)
			continue;
		(void)snprintf(ret, 64, "%s", json_string_value(json_object_get(item, "began")));
		n++;
	}
	ck_assert_uint_le(n, 1);
	answer_free(&answer);
}

static void wait_other_pause(const char *than, char ret[static 64])
{
	for (int i = 0; i < 500; i++) {
		pause_of(ret);
		if (strcmp(ret, than) != 0)
			return;
		loop_for(rig.base, 10);
	}
	ck_abort_msg("it is still %s", than);
}

/* A report that comes again behind a step of the node's clock is the same one; a later pause takes its place. */
START_TEST(a_report_again_is_the_same)
{
	const int64_t ahead = 1000 * USEC_PER_SEC - clock_realtime_usec(), began = 1000 * USEC_PER_SEC;
	char first[64], later[64];
	uint64_t before;

	open_all(ahead);
	rig_create(&rig, &node, "{}", sandbox);
	report_pause(began);
	wait_other_pause("", first);
	greet(ahead + USEC_PER_SEC * 86400);
	before = rig.server->counters.link_messages;
	report_pause(began);
	for (int i = 0; i < 500 && rig.server->counters.link_messages < before + 3; i++)
		loop_for(rig.base, 10);
	pause_of(later);
	ck_assert_str_eq(later, first);
	report_pause(began + USEC_PER_SEC * 86400 + 20 * USEC_PER_SEC);
	wait_other_pause(first, later);
	close_all();
}
END_TEST

/* No hello says so, and the next question would be due ten seconds later: the heartbeat does. */
START_TEST(a_clock_that_is_set_is_seen)
{
	int64_t since_usec, offset_ms = 0;

	open_all(0);
	for (int i = 0; i < 2000 && node.pings < CLOCK_FAST; i++)
		loop_for(rig.base, 10);
	ck_assert_uint_ge(node.pings, CLOCK_FAST);
	wait_measured();
	since_usec = clock_monotonic_usec();
	node.ahead_us = INT64_C(86400) * USEC_PER_SEC;
	for (int i = 0; i < 2000 && offset_ms < INT64_C(86000) * 1000; i++) {
		struct answer answer = ask_node();

		offset_ms = json_integer_value(json_object_get(answer.json, "clock_offset_ms"));
		answer_free(&answer);
		loop_for(rig.base, 10);
	}
	ck_assert_int_ge(offset_ms, INT64_C(86000) * 1000);
	ck_assert_int_lt(clock_monotonic_usec() - since_usec, CLOCK_EVERY_USEC * 8 / 10);
	close_all();
}
END_TEST

START_TEST(an_older_agent_is_not_asked)
{
	struct answer answer;
	uint64_t before;

	rig_open(&rig);
	node_join(&node, &rig);
	before = rig.server->counters.link_messages;
	for (int i = 0; i < 1000 && rig.server->counters.link_messages < before + 3; i++) /* heartbeats */
		loop_for(rig.base, 10);
	answer = ask_node();
	ck_assert(json_is_null(json_object_get(answer.json, "clock_offset_ms")));
	answer_free(&answer);
	ck_assert_uint_eq(node.pings, 0);
	greet(0);
	wait_measured();
	ck_assert_uint_gt(node.pings, 0);
	close_all();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-clock");
	TCase *tc = tcase_create("api-clock");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, records_stand_in_their_time, 0, 3);
	tcase_add_test(tc, a_report_again_is_the_same);
	tcase_add_test(tc, a_clock_that_is_set_is_seen);
	tcase_add_test(tc, an_older_agent_is_not_asked);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
