/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of stages on disk: what they say is what the single stages say, over restarts and over the loss of what was not written;
 * thirty days of nodes through the real counting on a virtual clock, with their size and the rows that a question reads.
 */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/suite.h"
#include "server/rollups.h"
#include "server/telemetry.h"
#include "unit/test-api-rig.h"

#define HOUR (3600 * USEC_PER_SEC)
#define DAY (24 * HOUR)

static struct rig rig;
static struct fake_node node;

static void set_up(void)
{
	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
}

static void tear_down(void)
{
	node_close(&node);
	rig_close(&rig);
}

static struct answer ask(const char *key, const char *query)
{
	char path[256];
	struct answer answer;

	(void)snprintf(path, sizeof(path), "/v1/stages?%s", query);
	answer = rig_call(&rig, "GET", path, key, NULL);
	ck_assert_msg(answer.status == 200, "%s: %s", query, answer.body);
	return answer;
}

static json_int_t number(const json_t *object, const char *name)
{
	ck_assert_msg(json_is_integer(json_object_get(object, name)), "%s", name);
	return json_integer_value(json_object_get(object, name));
}

/* Without what differs by nature: where it comes from and when it was asked. */
static char *table_of(struct answer *answer, bool is_of_sums)
{
	static const char *const others[] = { "from", "oldest", "newest", "as_of", "source", "step_s", "rows" };
	char text[16];

	answer_text(answer->json, "source", text, sizeof(text));
	ck_assert_str_eq(text, is_of_sums ? "sums" : "stages");
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		(void)json_object_del(answer->json, others[i]);
	return json_dumps(answer->json, JSON_SORT_KEYS | JSON_INDENT(1));
}

static void check_equal(const char *key, const char *filter)
{
	static const char *const windows[] = { "window=2h", "window=24h", "window=30d" };
	char query[128];

	for (size_t i = 0; i < ARRAY_LEN(windows); i++) {
		struct answer single, sums;
		char *expected, *is;

		single = ask(key, filter);
		(void)snprintf(query, sizeof(query), "%s&%s", windows[i], filter);
		sums = ask(key, query);
		expected = table_of(&single, false);
		is = table_of(&sums, true);
		if (strcmp(is, expected) != 0) /* too long for a message */
			(void)fprintf(stderr, "%s: sums say\n%s\nsingle stages\n%s\n", query, is, expected);
		ck_assert_msg(strcmp(is, expected) == 0, "%s", query);
		free(expected);
		free(is);
		answer_free(&single);
		answer_free(&sums);
	}
}

static void fail_one(void)
{
	struct answer answer;

	(void)err_set(&node.start_failure, FAIL_SETUP_FAILED, 0, "It exited with 3.");
	answer = rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{\"vcpus\":2}");
	ck_assert_str_eq(answer_code(&answer), "SETUP_FAILED");
	answer_free(&answer);
	node.start_failure = (struct err)ERR_NULL;
}

static void check_all(void)
{
	char query[64];

	check_equal(rig.keys.tenant, "");
	check_equal(rig.keys.tenant, "vcpus=2");
	check_equal(rig.keys.tenant, "template=base");
	check_equal(rig.keys.tenant, "template=none");
	check_equal(rig.stranger, "");
	check_equal(rig.keys.provider, "scope=all");
	check_equal(rig.keys.provider, "scope=all&tenant=default&version=0.1.0");
	check_equal(rig.operator, "scope=all");
	(void)snprintf(query, sizeof(query), "scope=all&pool=default&version=0.1.0");
	check_equal(rig.keys.provider, query);
}

static void restart(void)
{
	rig_stop(&rig);
	node_close(&node);
	rig_start(&rig);
}

START_TEST(sums_say_what_the_single_stages_say)
{
	char id[ID_SIZE], query[96];
	struct answer answer;

	rig_create(&rig, &node, "{\"vcpus\":1}", id);
	rig_create(&rig, &node, "{\"vcpus\":2}", id);
	fail_one();
	check_all();
	(void)snprintf(query, sizeof(query), "window=24h&scope=all&node=%s", node.node);
	answer = ask(rig.keys.provider, query);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "source")), "sums");
	ck_assert_int_gt(number(answer.json, "rows"), 0);
	answer_free(&answer);
	(void)snprintf(query, sizeof(query), "window=24h&node=%s", node.node);
	answer = ask(rig.keys.tenant, query); /* whose is it there: no sum tells that */
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "source")), "stages");
	ck_assert(json_is_false(json_object_get(answer.json, "complete")));
	answer_free(&answer);
	restart();
	check_all();
	restart();
	check_all();
}
END_TEST

static void copy_file(const char *from, const char *to)
{
	int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct stat st;

	ck_assert(in >= 0 && out >= 0 && fstat(in, &st) == 0);
	ck_assert_int_eq(sendfile(out, in, NULL, (size_t)st.st_size), st.st_size);
	(void)close(in);
	(void)close(out);
}

/* A scheduler that was killed had written less than the store has: each state of the file leads to the same sums. */
START_TEST(what_was_not_written_is_summed_at_the_next_start)
{
	char id[ID_SIZE], live[PATH_MAX], copies[3][PATH_MAX];
	struct answer answer;

	(void)state_path(&rig.options, "rollups.db", live, sizeof(live));
	for (size_t i = 0; i < ARRAY_LEN(copies); i++) {
		(void)snprintf(copies[i], sizeof(copies[i]), "%.4000s.%zu", live, i);
		rig_stop(&rig);
		copy_file(live, copies[i]);
		node_close(&node);
		rig_start(&rig);
		(void)snprintf(node.address, sizeof(node.address), "%s", link_address(rig.server->link));
		node_connect(&node);
		rig_create(&rig, &node, "{\"vcpus\":1}", id);
		fail_one();
	}
	check_all();
	for (size_t i = 0; i < ARRAY_LEN(copies); i++) {
		rig_stop(&rig);
		copy_file(copies[i], live);
		rig_start(&rig);
		check_all();
	}
	rig_stop(&rig);
	copy_file("/dev/null", live); /* none, as after a file that was damaged: what the store has, and that it may not be all */
	rig_start(&rig);
	answer = ask(rig.keys.tenant, "window=24h");
	ck_assert(json_is_false(json_object_get(answer.json, "complete")));
	ck_assert_int_eq(number(json_array_get(json_object_get(answer.json, "stages"), 0), "ok"), 2 * ARRAY_LEN(copies));
	answer_free(&answer);
}
END_TEST

/* ---- thirty days ---- */

struct fleet_of_days {
	unsigned int nodes;
	int64_t every_us; /* a start of each node */
	int64_t from_us, to_us;
	uint64_t starts, failed, saved;
};

/* One start as its record is when it is over: 13 stages; every hundredth fails, every fiftieth is saved by a retry. */
static void one_start(struct fleet_of_days *days, unsigned int on, int64_t when_us)
{
	struct stage_record stages[2 * STAGE_START_COUNT] = { 0 };
	struct sandbox_spec spec = { .template_name = "base", .vcpus = 1 + on % 2, .memory_mib = 512 };
	struct sandbox_record record = { .tenant = "default", .pool = "default", .state = SANDBOX_RUNNING, .spec = &spec, .stages = stages,
		.ended_us = when_us + 60 * USEC_PER_SEC };
	const bool fails = days->starts % 100 == 7, retries = days->starts % 50 == 3;

	(void)snprintf(record.id, sizeof(record.id), "s%019llu", (unsigned long long)days->starts);
	for (unsigned int attempt = 1; attempt <= (retries ? 2u : 1u); attempt++)
		for (enum fail_stage stage = attempt == 1 ? STAGE_ADMIT : STAGE_PLACE; stage <= STAGE_READY; stage++) {
			struct stage_record *to = &stages[record.n_stages++];

			*to = (struct stage_record){ .stage = stage, .outcome = RESULT_OK, .attempt = attempt, .generation = attempt,
				.began_us = when_us + (int64_t)record.n_stages * 20000,
				.took_us = 1000 + (int64_t)(days->starts * 7919 % 97) * 100 };
			(void)snprintf(to->node, sizeof(to->node), "n%019u", on);
			if (stage == STAGE_VMM && (fails || (retries && attempt == 1))) {
				to->outcome = RESULT_FAILED;
				(void)err_set_at(&to->failure, STAGE_VMM, FAIL_KVM_UNAVAILABLE, 0, "none");
				break;
			}
		}
	telemetry_count_sandbox(rig.server->telemetry, &record, true);
	days->starts++;
	days->failed += fails;
	days->saved += retries;
}

static void run_days(struct fleet_of_days *days)
{
	struct rollups_counts counts;
	int64_t flushed_us = days->from_us;

	for (int64_t now_us = days->from_us; now_us < days->to_us; now_us += days->every_us) {
		for (unsigned int on = 0; on < days->nodes; on++)
			one_start(days, on, now_us + (int64_t)on * days->every_us / (int64_t)days->nodes);
		if (now_us - flushed_us < HOUR / 2)
			continue;
		rollups_flush(rig.server->rollups, now_us);
		rollups_settle(rig.server->rollups, &counts);
		flushed_us = now_us;
	}
}

static void check_days(const struct fleet_of_days *days, const char *query, uint64_t starts, json_int_t rows_most)
{
	struct answer answer = ask(rig.keys.provider, query);
	const json_t *list = json_object_get(answer.json, "stages"), *stage;
	size_t i;

	json_array_foreach(list, i, stage)
		if (!strcmp(json_string_value(json_object_get(stage, "stage")), "admit"))
			ck_assert_int_eq(number(stage, "ok"), (json_int_t)starts);
		else if (starts == days->starts && !strcmp(json_string_value(json_object_get(stage, "stage")), "vmm")) {
			ck_assert_int_eq(number(stage, "failed"), (json_int_t)days->failed);
			ck_assert_int_eq(number(stage, "saved"), (json_int_t)days->saved);
			ck_assert_int_eq(number(stage, "ok"), (json_int_t)(days->starts - days->failed));
		}
	ck_assert_int_le(number(answer.json, "rows"), rows_most);
	ck_assert_int_gt(number(answer.json, "rows"), 0);
	ck_assert(json_is_true(json_object_get(answer.json, "complete")));
	answer_free(&answer);
}

/* A thousand nodes fill each hour of thirty days, each five minutes of two and each ten seconds of two hours at most. */
#define ROWS_OF_A_NODE (30 * 24 + 49 * 12 + 2 * 360)

START_TEST(thirty_days)
{
	const bool is_whole = getenv("CROFT_FULL") != NULL;
	const int64_t now_us = clock_realtime_usec() / HOUR * HOUR;
	struct fleet_of_days days = { .nodes = is_whole ? 1000 : 3, .every_us = HOUR, .from_us = now_us - 30 * DAY + HOUR,
		.to_us = now_us };
	struct rollups_counts counts;
	double bytes_of_a_row;

	run_days(&days);
	check_days(&days, "window=30d&scope=all", days.starts, 30 * 24 + 2);
	check_days(&days, "window=30d&scope=all&node=n0000000000000000002", days.starts / days.nodes, 30 * 24 + 2);
	check_days(&days, "window=30d&scope=all&vcpus=1", (days.nodes + 1) / 2 * (days.starts / days.nodes), 2 * (30 * 24 + 2));
	rollups_settle(rig.server->rollups, &counts);
	ck_assert_uint_eq(counts.n_lost, 0);
	bytes_of_a_row = (double)counts.bytes / (double)counts.rows;
	(void)printf("%llu starts, %llu rows, %.0f bytes a row, %.0f MiB\n", (unsigned long long)days.starts,
		(unsigned long long)counts.rows, bytes_of_a_row, (double)counts.bytes / (1024.0 * 1024.0));
	ck_assert_double_lt(bytes_of_a_row * ROWS_OF_A_NODE * 1000.0, (double)ROLLUPS_BYTES_MAX);
	ck_assert(!is_whole || counts.bytes < ROLLUPS_BYTES_MAX);
	restart(); /* what was made up is in no store: the sums alone have it */
	check_days(&days, "window=30d&scope=all", days.starts, 30 * 24 + 2);
	restart();
	check_days(&days, "window=30d&scope=all&node=n0000000000000000002", days.starts / days.nodes, 30 * 24 + 2);
}
END_TEST

/* ---- what is kept ---- */

static struct rollups_counts flush_at(int64_t now_us)
{
	struct rollups_counts counts;

	rollups_settle(rig.server->rollups, &counts); /* what the clock handed over */
	rollups_flush(rig.server->rollups, now_us);
	rollups_settle(rig.server->rollups, &counts);
	return counts;
}

/* A stage in the year to come is one of today, and goes when those go. */
START_TEST(a_node_whose_clock_is_ahead)
{
	const int64_t now_us = clock_realtime_usec();
	struct fleet_of_days days = { .nodes = 1 };

	one_start(&days, 0, now_us + 400 * DAY);
	ck_assert_uint_gt(flush_at(now_us).rows, 0);
	ck_assert_uint_eq(flush_at(now_us + 91 * DAY).rows, 0);
}
END_TEST

static void check_complete(const char *window, bool is_complete)
{
	struct answer answer = ask(rig.keys.provider, window);

	ck_assert_msg(json_is_true(json_object_get(answer.json, "complete")) == is_complete, "%s: %s", window, answer.body);
	answer_free(&answer);
}

/* A start 94 days ago and one now; what went by its age is missing from then on, and only where it was. */
START_TEST(what_went_by_its_age_is_missing)
{
	const int64_t now_us = clock_realtime_usec();
	struct fleet_of_days days = { .nodes = 1 };

	check_complete("scope=all&window=2000d", true); /* nothing was ever heard */
	one_start(&days, 0, now_us - 94 * DAY);
	(void)flush_at(now_us - 94 * DAY);
	one_start(&days, 0, now_us);
	(void)flush_at(now_us);
	for (unsigned int i = 0; i < 2; i++) {
		check_complete("scope=all&window=95d", false);
		check_complete("scope=all&window=90d", true);
		restart();
	}
}
END_TEST

/* A flush that fails expires nothing, and what it would have is not taken for gone. */
START_TEST(what_was_rolled_back_is_still_there)
{
	static const char forbid[] = "CREATE TRIGGER kept BEFORE DELETE ON cell BEGIN SELECT RAISE(ABORT, 'kept'); END";
	const int64_t now_us = clock_realtime_usec();
	struct fleet_of_days days = { .nodes = 1 };
	char path[PATH_MAX];
	sqlite3 *handle;
	uint64_t rows;

	one_start(&days, 0, now_us);
	rows = flush_at(now_us).rows;
	(void)state_path(&rig.options, "rollups.db", path, sizeof(path));
	ck_assert_int_eq(sqlite3_open(path, &handle), SQLITE_OK);
	ck_assert_int_eq(sqlite3_exec(handle, forbid, NULL, NULL, NULL), SQLITE_OK);
	ck_assert_uint_eq(flush_at(now_us + 91 * DAY).rows, rows);
	ck_assert_int_eq(sqlite3_exec(handle, "DROP TRIGGER kept", NULL, NULL, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_close(handle), SQLITE_OK);
	ck_assert_uint_eq(flush_at(now_us + 91 * DAY).rows, 0); /* at once: the one before did not */
}
END_TEST

/* Too large, it loses the oldest of each level until it is not, and nothing of now. */
START_TEST(too_large)
{
	const int64_t now_us = clock_realtime_usec() / HOUR * HOUR;
	struct fleet_of_days days = { .nodes = 3, .every_us = HOUR, .from_us = now_us - 30 * DAY, .to_us = now_us };
	struct rollups_counts counts, after;

	run_days(&days);
	one_start(&days, 0, now_us);
	counts = flush_at(now_us);
	rollups_limit(rig.server->rollups, counts.bytes / 2);
	after = counts;
	for (unsigned int i = 0; i < 200 && after.bytes > counts.bytes / 2; i++)
		after = flush_at(now_us);
	ck_assert_uint_le(after.bytes, counts.bytes / 2);
	ck_assert_uint_gt(after.bytes, counts.bytes / 4);
	rollups_limit(rig.server->rollups, ROLLUPS_BYTES_MAX);
	check_complete("scope=all&window=30d", false);
	check_complete("scope=all&window=5d", true);
}
END_TEST

/* A tenant of many shapes has them in one; another tenant's are as they were. */
START_TEST(one_tenant_of_many_shapes)
{
	struct stage_fact fact = { .when_us = clock_realtime_usec(), .stage = STAGE_VMM, .outcome = RESULT_OK, .pool = "default",
		.tenant = "default", .template_name = "base" };
	struct rollups_counts counts;
	struct answer answer;

	for (fact.memory_mib = 1; fact.memory_mib <= 2 * ROLLUPS_SHARE_MAX; fact.memory_mib++)
		rollups_add(rig.server->rollups, &fact);
	fact.tenant = "late";
	fact.memory_mib = 7;
	rollups_add(rig.server->rollups, &fact);
	for (unsigned int i = 0; i < 2; i++) {
		rollups_settle(rig.server->rollups, &counts);
		ck_assert_uint_le(counts.n_kinds, ROLLUPS_SHARE_MAX + 4);
		ck_assert_uint_eq(counts.n_lost, 0);
		answer = ask(rig.keys.tenant, "window=24h");
		ck_assert_msg(strstr(answer.body, "\"ok\":2048"), "%s", answer.body);
		answer_free(&answer);
		check_complete("scope=all&window=24h&tenant=default", true);
		check_complete("scope=all&window=24h&tenant=default&memoryMB=2000", false);
		check_complete("scope=all&window=24h&tenant=late&memoryMB=7", true);
		restart();
	}
}
END_TEST

static void count_answer(const struct rollups_answer *answer, void *user)
{
	ck_assert_int_eq(answer->r, 0);
	++*(unsigned int *)user;
}

/* Questions are bounded, and whoever left is not answered. */
START_TEST(questions_at_once)
{
	const int64_t now_us = clock_realtime_usec();
	const struct facts_filter filter = { .from_us = now_us - DAY };
	struct question *questions[ROLLUPS_QUESTIONS_MAX], *more;
	struct err err = ERR_NULL;
	unsigned int answers = 0;

	for (size_t i = 0; i < ARRAY_LEN(questions); i++)
		ck_assert_int_eq(rollups_ask(rig.server->rollups, &(struct rollups_wish){ &filter, true, now_us, 0 }, count_answer, &answers, &questions[i], &err), 0);
	ck_assert_int_lt(rollups_ask(rig.server->rollups, &(struct rollups_wish){ &filter, true, now_us, 0 }, count_answer, &answers, &more, &err), 0);
	ck_assert_int_eq(err.code, FAIL_SCHEDULER_BUSY);
	for (unsigned int i = 0; i < 4000 && answers < ARRAY_LEN(questions); i++)
		loop_for(rig.base, 5);
	ck_assert_uint_eq(answers, ARRAY_LEN(questions));
	for (size_t i = 0; i < ARRAY_LEN(questions); i++) {
		ck_assert_int_eq(rollups_ask(rig.server->rollups, &(struct rollups_wish){ &filter, true, now_us, 0 }, count_answer, &answers, &questions[i], &err), 0);
		rollups_forget(questions[i]);
	}
	while (rollups_ask(rig.server->rollups, &(struct rollups_wish){ &filter, true, now_us, 0 }, count_answer, &answers, &more, &err) < 0)
		loop_for(rig.base, 5);
	loop_for(rig.base, 100);
	ck_assert_uint_le(answers, ARRAY_LEN(questions) + 1);
}
END_TEST

/* As long as anything is kept, and no longer. */
START_TEST(a_window_of_ages)
{
	struct answer answer = ask(rig.keys.tenant, "window=20000d");
	char text[64], oldest[CLOCK_RFC3339_SIZE];

	answer_text(answer.json, "from", text, sizeof(text));
	(void)clock_format_rfc3339(clock_realtime_usec() - 91 * DAY, oldest, sizeof(oldest));
	ck_assert_str_gt(text, oldest);
	answer_free(&answer);
}
END_TEST

static void check_owner(const char *query, const char *expected)
{
	struct answer answer = ask(rig.keys.provider, query);
	const json_t *list = json_object_get(answer.json, "stages"), *stage, *owner = NULL;
	size_t i;

	json_array_foreach(list, i, stage)
		if (json_array_size(json_object_get(stage, "codes")) > 0)
			owner = json_object_get(json_array_get(json_object_get(stage, "codes"), 0), "owner");
	ck_assert_msg(owner && (expected ? json_is_string(owner) : json_is_null(owner)), "%s: %s", query, answer.body);
	ck_assert(!expected || !strcmp(json_string_value(owner), expected));
	answer_free(&answer);
}

/* Of codes that sums alone have: by the table of their pool, and of several pools nobody's. */
START_TEST(whose_a_code_is)
{
	struct stage_fact fact = { .when_us = clock_realtime_usec(), .stage = STAGE_VMM, .outcome = RESULT_FAILED,
		.code = FAIL_KVM_UNAVAILABLE, .pool = "default", .tenant = "default" };

	rig_expect(&rig, "PATCH", "/v1/pools/default", rig.keys.provider,
		"{\"responsibility\":\"managed\",\"owners\":{\"node-host\":\"third-party\"}}", 200, NULL);
	rollups_add(rig.server->rollups, &fact);
	check_owner("scope=all&window=24h", "third-party");
	fact.pool = "other";
	rollups_add(rig.server->rollups, &fact);
	check_owner("scope=all&window=24h", NULL);
	check_owner("scope=all&window=24h&pool=default", "third-party");
	check_owner("scope=all&window=24h&pool=default&tenant=default", "third-party");
}
END_TEST

/* When so much came that it goes to the thread at once, that is now, whatever its stages say. */
START_TEST(a_flush_has_the_schedulers_clock)
{
	const int64_t now_us = clock_realtime_usec();
	const struct stage_fact ahead = { .when_us = now_us + 400 * DAY, .stage = STAGE_VMM, .outcome = RESULT_OK };
	struct rollups_counts counts;

	for (unsigned int i = 0; i < 65536; i++)
		rollups_add(rig.server->rollups, &ahead);
	rollups_settle(rig.server->rollups, &counts);
	ck_assert_uint_gt(counts.rows, 0);
	ck_assert(!rollups_has_ended(rig.server->rollups, now_us + DAY));
}
END_TEST

/* Nothing of who ran what where becomes a series, however many there are and whatever their names. */
START_TEST(series_are_those_of_the_tables)
{
	struct answer answer = rig_call(&rig, "GET", "/metrics", rig.keys.provider, NULL);
	size_t lines[2] = { 0 };

	ck_assert_int_eq(answer.status, 200);
	answer_free(&answer);
	for (size_t round = 0; round < ARRAY_LEN(lines); round++) {
		for (unsigned int i = 0; i < (round ? 5000 : 1); i++) {
			struct stage_record stage = { .stage = STAGE_VMM, .outcome = RESULT_OK, .attempt = 1, .generation = 1,
				.began_us = clock_realtime_usec(), .took_us = 1000 };
			struct sandbox_spec spec = { .vcpus = 1 };
			struct sandbox_record record = { .spec = &spec, .stages = &stage, .n_stages = 1, .state = SANDBOX_RUNNING };

			(void)snprintf(record.id, sizeof(record.id), "s%019u", i);
			(void)snprintf(record.tenant, sizeof(record.tenant), "canary-%u\"\\\n}", i);
			(void)snprintf(record.pool, sizeof(record.pool), "canary-%u", i);
			(void)snprintf(spec.template_name, sizeof(spec.template_name), "canary-%u", i);
			(void)snprintf(stage.node, sizeof(stage.node), "n%019u", i);
			telemetry_count_sandbox(rig.server->telemetry, &record, true);
		}
		answer = rig_call(&rig, "GET", "/metrics", rig.keys.provider, NULL);
		for (const char *c = answer.body; (c = strchr(c, '\n')); c++)
			lines[round]++;
		ck_assert_ptr_null(strstr(answer.body, "canary"));
		ck_assert_ptr_null(strstr(answer.body, "s00000"));
		answer_free(&answer);
	}
	ck_assert_uint_eq(lines[1], lines[0]);
	ck_assert_uint_lt(lines[1], 500);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rollups");
	TCase *tcase = tcase_create("rollups");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, getenv("CROFT_FULL") ? 3600 : 300);
	tcase_add_test(tcase, sums_say_what_the_single_stages_say);
	tcase_add_test(tcase, what_was_not_written_is_summed_at_the_next_start);
	tcase_add_test(tcase, thirty_days);
	tcase_add_test(tcase, a_node_whose_clock_is_ahead);
	tcase_add_test(tcase, a_flush_has_the_schedulers_clock);
	tcase_add_test(tcase, what_went_by_its_age_is_missing);
	tcase_add_test(tcase, what_was_rolled_back_is_still_there);
	tcase_add_test(tcase, too_large);
	tcase_add_test(tcase, whose_a_code_is);
	tcase_add_test(tcase, one_tenant_of_many_shapes);
	tcase_add_test(tcase, questions_at_once);
	tcase_add_test(tcase, a_window_of_ages);
	tcase_add_test(tcase, series_are_those_of_the_tables);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
