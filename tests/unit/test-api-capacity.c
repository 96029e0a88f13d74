/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/capacity: numbers of a pool with one node, what a change would do, and who sees which pool.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "lib/suite.h"
#include "server/forecast.h"
#include "unit/test-api-rig.h"

static struct rig rig;
static struct fake_node node;

static void set_up(void)
{
	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_token(&node, &rig, rig.keys.provider);
	node.capacity = (struct node_capacity){ .memory_mib = 8192, .cpus = 4, .disk_mib = 100000, .max_sandboxes = 64,
		.max_starts = 4, .max_vcpus = 4 };
	node_enroll(&node);
	node_connect(&node);
	ck_assert(node.welcome);
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

	(void)snprintf(path, sizeof(path), "/v1/capacity?pool=default&%s", query);
	answer = rig_call(&rig, "GET", path, key, NULL);
	ck_assert_msg(answer.status == 200, "%s: %s", query, answer.body);
	return answer;
}

static const json_t *pool_of(const struct answer *answer)
{
	const json_t *pools = json_object_get(answer->json, "pools");

	ck_assert_uint_eq(json_array_size(pools), 1);
	return json_array_get(pools, 0);
}

static json_int_t number(const json_t *object, const char *name)
{
	ck_assert_msg(json_is_integer(json_object_get(object, name)), "%s", name);
	return json_integer_value(json_object_get(object, name));
}

static json_int_t fits(const char *query)
{
	struct answer answer = ask(rig.keys.provider, query);
	json_int_t n = number(pool_of(&answer), "fits");

	answer_free(&answer);
	return n;
}

/* The overcommit of a pool is 400 %: 4 CPUs are 16 vCPUs. */
START_TEST(as_many_as_are_created_fewer_fit)
{
	const json_int_t before = fits("vcpus=2&memoryMB=64");
	char id[ID_SIZE];
	struct answer answer;
	const json_t *pool, *stop;

	ck_assert_int_eq(before, 8);
	rig_create(&rig, &node, "{\"vcpus\":4,\"memoryMB\":64}", id);
	answer = ask(rig.keys.provider, "vcpus=2&memoryMB=64");
	pool = pool_of(&answer);
	ck_assert_int_eq(number(pool, "fits"), 6);
	ck_assert_int_eq(number(pool, "waiting"), 0);
	ck_assert_int_eq(number(pool, "nodes"), 1);
	ck_assert_int_eq(number(pool, "fitting"), 1);
	ck_assert_int_eq(number(json_object_get(pool, "used"), "vcpus"), 4);
	ck_assert_int_eq(number(json_object_get(pool, "total"), "vcpus"), 16);
	ck_assert_int_eq(number(json_object_get(pool, "total"), "memory_mib"), 8192);
	ck_assert_uint_eq(json_array_size(json_object_get(pool, "stops")), 1);
	stop = json_array_get(json_object_get(pool, "stops"), 0);
	ck_assert_str_eq(json_string_value(json_object_get(stop, "by")), "cpu");
	ck_assert_int_eq(number(stop, "vcpus"), 0);
	ck_assert_int_gt(number(stop, "memory_mib"), 6000);
	ck_assert(json_is_null(json_object_get(pool, "if")) && json_is_null(json_object_get(answer.json, "if")));
	answer_free(&answer);
}
END_TEST

START_TEST(a_node_that_is_cordoned)
{
	struct answer answer;
	const json_t *pool, *stop;

	rig_expect_id(&rig, "POST", "/v1/nodes/*/cordon", node.node, rig.keys.provider, "{\"why\":\"disk\"}", 200, NULL);
	answer = ask(rig.keys.provider, "");
	pool = pool_of(&answer);
	ck_assert_int_eq(number(pool, "fits"), 0);
	ck_assert_int_eq(number(json_object_get(pool, "excluded"), "state"), 1);
	stop = json_array_get(json_object_get(pool, "stops"), 0);
	ck_assert_str_eq(json_string_value(json_object_get(stop, "by")), "cordoned");
	ck_assert_int_eq(number(stop, "memory_mib"), 8192);
	ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(pool, "change")), "end the cordon"));
	answer_free(&answer);
}
END_TEST

static const struct {
	const char *query;
	json_int_t fits, more;
} changes[] = { { "if_vcpus=2", 8, -8 }, { "if_overcommit=800&vcpus=4", 8, 4 }, { "if_nodes=2", 48, 32 },
	{ "if_nodes=1&if_node_cpus=1", 20, 4 }, { "if_nodes=1&if_node_memoryMB=256", 18, 2 }, { "if_nodes=1&if_node_sandboxes=3", 19, 3 },
	{ "if_memoryMB=5000", 1, -15 }, { "if_diskSizeMB=50000", 2, -14 }, { "vcpus=4&memoryMB=64", 4, 0 } };

START_TEST(what_a_change_would_do)
{
	char query[128];
	struct answer answer;
	const json_t *pool;

	(void)snprintf(query, sizeof(query), "memoryMB=64&%s", changes[_i].query);
	answer = ask(rig.keys.provider, query);
	pool = pool_of(&answer);
	if (changes[_i].more) {
		ck_assert_int_eq(number(json_object_get(pool, "if"), "fits"), changes[_i].fits);
		ck_assert_int_eq(number(json_object_get(pool, "if"), "more"), changes[_i].more);
		ck_assert_int_eq(number(json_object_get(pool, "if"), "waiting"), 0);
	} else {
		ck_assert_int_eq(number(pool, "fits"), changes[_i].fits);
		ck_assert(json_is_null(json_object_get(pool, "if")));
	}
	answer_free(&answer);
}
END_TEST

START_TEST(what_is_wanted_of_nodes)
{
	ck_assert_int_eq(fits("memoryMB=64&labels=disk=nvme"), 0);
	ck_assert_int_eq(fits("memoryMB=64&region=north"), 0);
	ck_assert_int_eq(fits("memoryMB=64&cpuClass=none-0-0"), 0);
	ck_assert_int_eq(fits("memoryMB=64&template=base&tenant=default"), 16);
}
END_TEST

START_TEST(each_sees_its_own_pools)
{
	struct answer answer = rig_call(&rig, "GET", "/v1/capacity?if_nodes=1", rig.operator, NULL);

	ck_assert_int_eq(answer.status, 200);
	ck_assert_uint_eq(json_array_size(json_object_get(answer.json, "pools")), 1); /* another customer's, and without a node */
	ck_assert_ptr_null(strstr(answer.body, "\"default\""));
	answer_free(&answer);
	rig_expect(&rig, "GET", "/v1/capacity?pool=default", rig.operator, NULL, 404, "POOL_NOT_FOUND");
	rig_expect(&rig, "GET", "/v1/capacity?pool=none", rig.keys.provider, NULL, 404, "POOL_NOT_FOUND");
	rig_expect(&rig, "GET", "/v1/capacity?template=base&tenant=default", rig.operator, NULL, 404, "TENANT_NOT_FOUND");
	rig_expect(&rig, "GET", "/v1/capacity", rig.keys.tenant, NULL, 403, "FORBIDDEN");
	rig_expect(&rig, "GET", "/v1/capacity", rig.stranger, NULL, 403, "FORBIDDEN");
}
END_TEST

/* Sixteen vCPUs: four of four have room, two more found none. What of them would have had room is told from the record, after a
 * restart too. */
static const struct {
	const char *query;
	json_int_t placed; /* of six */
	bool has_if;
} replays[] = { { "", 4, false }, { "if_overcommit=600", 6, true }, { "if_overcommit=599", 5, true }, { "if_nodes=1", 6, true },
	{ "if_nodes=1&if_node_cpus=1", 4, true }, { "vcpus=4&if_vcpus=2", 6, true }, { "if_vcpus=3", 5, true }, { "vcpus=3&if_vcpus=2", 4, true },
	{ "memoryMB=64&if_memoryMB=3000", 2, true } };

static void check_replays(void)
{
	for (size_t i = 0; i < ARRAY_LEN(replays); i++) {
		char query[128];
		struct answer answer;
		const json_t *replay, *result;

		(void)snprintf(query, sizeof(query), "replay=1h&%s", replays[i].query);
		answer = ask(rig.keys.provider, query);
		replay = json_object_get(pool_of(&answer), "replay");
		ck_assert_int_eq(number(replay, "requests"), 6);
		ck_assert_int_eq(number(replay, "unplaced"), 2);
		ck_assert(json_is_true(json_object_get(replay, "complete")));
		result = json_object_get(replay, "now");
		ck_assert_int_eq(number(result, "placed"), 4);
		ck_assert_int_eq(number(result, "refused"), 2);
		ck_assert_int_eq(number(json_object_get(result, "by"), "cpu"), 2);
		ck_assert_int_eq(number(json_object_get(result, "peak"), "vcpus"), 16);
		ck_assert(json_is_object(json_object_get(replay, "if")) == replays[i].has_if);
		if (replays[i].has_if)
			result = json_object_get(replay, "if");
		ck_assert_msg(number(result, "placed") == replays[i].placed, "%s: %s", query, answer.body);
		ck_assert_int_eq(number(result, "refused"), 6 - replays[i].placed);
		answer_free(&answer);
	}
}

START_TEST(what_would_have_had_room)
{
	char id[ID_SIZE];
	struct answer answer;

	for (unsigned int i = 0; i < 4; i++)
		rig_create(&rig, &node, "{\"vcpus\":4,\"memoryMB\":64}", id);
	for (unsigned int i = 0; i < 2; i++)
		rig_expect(&rig, "POST", "/v1/sandboxes", rig.keys.tenant, "{\"template\":\"base\",\"vcpus\":4,\"memoryMB\":64}", 503,
			"NO_CAPACITY");
	check_replays();
	while (shell_held(rig.server->shell) > 0)
		loop_for(rig.base, 10);
	rig_stop(&rig);
	node_close(&node);
	rig_start(&rig);
	(void)snprintf(node.address, sizeof(node.address), "%s", link_address(rig.server->link));
	node_connect(&node);
	check_replays();
	answer = ask(rig.keys.provider, "");
	ck_assert(json_is_null(json_object_get(pool_of(&answer), "replay")));
	answer_free(&answer);
}
END_TEST

#define DAY_US (INT64_C(24) * 3600 * USEC_PER_SEC)
#define DAYS 10

/* A vCPU more each day, as the timer would have seen it. Returns the first day's beginning. */
static int64_t live_through_days(void)
{
	const int64_t first_us = (clock_realtime_usec() / DAY_US - DAYS) * DAY_US;
	char id[ID_SIZE];

	for (int64_t day = 0; day < DAYS; day++) {
		rig_create(&rig, &node, "{\"vcpus\":1,\"memoryMB\":64,\"diskSizeMB\":16}", id);
		for (int64_t hour = 0; hour < 24; hour++)
			forecast_look(rig.server->forecast, first_us + day * DAY_US + hour * DAY_US / 24);
	}
	forecast_look(rig.server->forecast, first_us + DAYS * DAY_US); /* which ends the last hour */
	return first_us;
}

static void check_forecast(int64_t first_us)
{
	struct answer answer = ask(rig.keys.provider, "");
	const json_t *forecast = json_object_get(pool_of(&answer), "forecast"), *cpu;
	char when[CLOCK_RFC3339_SIZE];

	ck_assert_str_eq(json_string_value(json_object_get(forecast, "verdict")), "grows");
	ck_assert_str_eq(json_string_value(json_object_get(forecast, "by")), "cpu"); /* memory and disk would last longer */
	ck_assert_str_eq(json_string_value(json_object_get(forecast, "runs_out")), /* 10 of 16 on the last day */
		clock_format_rfc3339(first_us + (DAYS + 6) * DAY_US, when, sizeof(when)));
	cpu = json_array_get(json_object_get(forecast, "resources"), 1);
	ck_assert_str_eq(json_string_value(json_object_get(cpu, "resource")), "cpu");
	ck_assert_int_eq(number(cpu, "days"), DAYS);
	ck_assert_double_eq_tol(json_real_value(json_object_get(cpu, "per_day")), 1, 1e-9);
	ck_assert_double_eq_tol(json_real_value(json_object_get(cpu, "level")), 10, 1e-9);
	ck_assert_double_eq_tol(json_real_value(json_object_get(cpu, "limit")), 16, 1e-9);
	answer_free(&answer);
}

START_TEST(when_it_runs_out_after_a_restart_too)
{
	int64_t first_us;
	struct answer answer = ask(rig.keys.provider, "");

	ck_assert_str_eq(
		json_string_value(json_object_get(json_object_get(pool_of(&answer), "forecast"), "verdict")), "too_short");
	answer_free(&answer);
	first_us = live_through_days();
	check_forecast(first_us);
	while (shell_held(rig.server->shell) > 0)
		loop_for(rig.base, 10);
	rig_stop(&rig);
	node_close(&node);
	rig_start(&rig);
	check_forecast(first_us);
}
END_TEST

START_TEST(days_without_growth)
{
	const int64_t first_us = (clock_realtime_usec() / DAY_US - DAYS) * DAY_US;
	struct answer answer;
	const json_t *forecast;

	for (int64_t hour = 0; hour <= 24 * DAYS; hour++)
		forecast_look(rig.server->forecast, first_us + hour * DAY_US / 24);
	answer = ask(rig.keys.provider, "");
	forecast = json_object_get(pool_of(&answer), "forecast");
	ck_assert_str_eq(json_string_value(json_object_get(forecast, "verdict")), "none");
	ck_assert(json_is_null(json_object_get(forecast, "runs_out")) && json_is_null(json_object_get(forecast, "by")));
	answer_free(&answer);
}
END_TEST

static const char *const bad[] = { "vcpus=0", "vcpus=33", "memoryMB=1", "diskSizeMB=x", "if_vcpus=99", "if_overcommit=0", "if_nodes=0",
	"if_nodes=100001", "if_nodes=1&pool=other", "labels=disk", "labels==x", "replay=x", "replay=-1h", "replay=0s", "replay=100000d", "region=0123456789012345678901234567890123456789012345678901234567890123" };

START_TEST(what_makes_no_sense_is_named)
{
	char path[256], field[32];
	struct answer answer;

	(void)snprintf(path, sizeof(path), "/v1/capacity?%s", bad[_i]);
	(void)snprintf(field, sizeof(field), "%.*s", (int)strcspn(bad[_i], "="), bad[_i]);
	answer = rig_call(&rig, "GET", path, rig.keys.provider, NULL);
	ck_assert_int_eq(answer.status, 400);
	ck_assert_str_eq(answer_code(&answer), "INVALID_ARGUMENT");
	ck_assert_msg(strstr(answer.body, field), "%s", answer.body);
	answer_free(&answer);
}
END_TEST

/* The client goes away, and the scheduler too, while a plan is under way. */
START_TEST(nobody_waits_for_it)
{
	struct answer answer = { .status = 0 };
	struct http_call *call = rig_start_call(&rig, "GET", "/v1/capacity?if_nodes=100000", rig.keys.provider, NULL, 0, NULL, 0,
		&answer);

	for (unsigned int i = 0; i < 200 && rig.server->n_plans == 0; i++)
		loop_for(rig.base, 1);
	ck_assert_uint_eq(rig.server->n_plans, 1);
	http_call_cancel(call);
	for (unsigned int i = 0; i < 60000 && rig.server->n_plans > 0; i++)
		loop_for(rig.base, 1);
	ck_assert_uint_eq(rig.server->n_plans, 0);
	ck_assert_int_eq(fits("memoryMB=64"), 16);
	answer_free(&answer);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-capacity");
	TCase *tcase = tcase_create("api-capacity");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, as_many_as_are_created_fewer_fit);
	tcase_add_test(tcase, a_node_that_is_cordoned);
	tcase_add_loop_test(tcase, what_a_change_would_do, 0, ARRAY_LEN(changes));
	tcase_add_test(tcase, what_is_wanted_of_nodes);
	tcase_add_test(tcase, what_would_have_had_room);
	tcase_add_test(tcase, each_sees_its_own_pools);
	tcase_add_loop_test(tcase, what_makes_no_sense_is_named, 0, ARRAY_LEN(bad));
	tcase_add_test(tcase, nobody_waits_for_it);
	tcase_add_test(tcase, when_it_runs_out_after_a_restart_too);
	tcase_add_test(tcase, days_without_growth);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
