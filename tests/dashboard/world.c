/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole scheduler with made-up nodes, until stdin ends. Says one line of JSON: where it is and its keys. Then one command a line,
 * each answered by "done":
 *
 *   start        a sandbox that becomes ready and runs
 *   fail CODE    one that fails with this code at its stage
 *   saved CODE   one that fails so once, and is ready at the next attempt
 *   cordon N     node N takes nothing
 *   cut N        node N says no more
 *
 *   dashboard-world NODES STARTS DAYS PAST   STARTS sandboxes run when it begins; over DAYS days before it use has grown, and in each half
 *                                            hour of the day before there were PAST starts, of which some failed
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/forecast.h"
#include "server/rollups.h"
#include "server/telemetry.h"
#include "unit/test-api-rig.h"

#define NODES_MAX 16
#define DAY_US (24 * 3600 * USEC_PER_SEC)

static struct rig rig;
static struct fake_node nodes[NODES_MAX];
static size_t n_nodes;
static bool is_over;

static const int64_t took_us[STAGE_MAX_] = { [STAGE_ACCEPT] = 900, [STAGE_IMAGE] = 41000, [STAGE_DISK] = 12000, [STAGE_NETWORK] = 0,
	[STAGE_JAIL] = 0, [STAGE_VMM] = 23000, [STAGE_KERNEL] = 96000, [STAGE_GUEST] = 38000, [STAGE_SETUP] = 61000, [STAGE_READY] = 700 };

static void join(size_t i)
{
	struct fake_node *node = &nodes[i];
	char body[64];

	(void)snprintf(body, sizeof(body), "{\"pool\":\"%s\"}", i % 4 == 3 ? "spare" : "default");
	node_token_of(node, &rig, rig.keys.provider, body);
	(void)snprintf(node->hostname, sizeof(node->hostname), "host-%02zu", i + 1);
	node->took_us = took_us;
	node->capacity = (struct node_capacity){ .memory_mib = 16384 + 16384 * (i % 2), .cpus = 8, .disk_mib = 200000, .max_sandboxes = 24,
		.max_starts = 4, .max_vcpus = 8 };
	node_enroll(node);
	node_connect(node);
	ck_assert(node->welcome);
}

static int create(void)
{
	struct answer answer = rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{\"vcpus\":2,\"memoryMB\":1024}");
	int status = answer.status;

	answer_free(&answer);
	return status;
}

static void set_failure(const char *name)
{
	enum fail_code code = name ? failure_by_name(name) : FAIL_NONE;

	for (size_t i = 0; i < n_nodes; i++) {
		memset(&nodes[i].start_failure, 0, sizeof(nodes[i].start_failure));
		if (code != FAIL_NONE)
			(void)err_set(&nodes[i].start_failure, code, 0, "made to fail");
		nodes[i].fails_at = code != FAIL_NONE ? failure_info(code)->stage : STAGE_NONE;
		nodes[i].created = false;
	}
}

static void fail_once(const char *code)
{
	set_failure(code);
	(void)create();
	set_failure(NULL);
}

static bool was_tried(void)
{
	for (size_t i = 0; i < n_nodes; i++)
		if (nodes[i].created)
			return true;
	return false;
}

static void save(const char *code)
{
	struct answer answer;

	set_failure(code);
	(void)rig_start_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{}", 2, NULL, 0, &answer);
	while (!was_tried())
		(void)event_base_loop(rig.base, EVLOOP_ONCE);
	set_failure(NULL);
	loop_until(rig.base, &answer.done);
	answer_free(&answer);
}

static void obey(char *line)
{
	char *word = strsep(&line, " "), path[96];
	const size_t i = line ? (size_t)atoi(line) % NODES_MAX : 0;

	if (!strcmp(word, "start")) {
		ck_assert_int_eq(create(), 201);
	} else if (!strcmp(word, "fail")) {
		fail_once(line);
	} else if (!strcmp(word, "saved")) {
		save(line);
	} else if (!strcmp(word, "cut")) {
		node_close(&nodes[i]);
	} else if (!strcmp(word, "cordon")) {
		(void)snprintf(path, sizeof(path), "/v1/nodes/%s/cordon", nodes[i].node);
		rig_expect(&rig, "POST", path, rig.keys.provider, "{\"why\":\"a disk is changed\"}", 200, NULL);
	}
}

static char commands[4096];
static size_t n_commands;

static void on_commands(evutil_socket_t fd, short what, void *user)
{
	ssize_t got = read(fd, commands + n_commands, sizeof(commands) - 1 - n_commands);

	(void)what;
	(void)user;
	is_over = got <= 0;
	n_commands += got > 0 ? (size_t)got : 0;
	commands[n_commands] = '\0';
}

/* Outside the loop, which what is obeyed turns itself. */
static void obey_all(void)
{
	char line[sizeof(commands)];
	const char *end;

	while ((end = strchr(commands, '\n'))) {
		const size_t size = (size_t)(end - commands);

		memcpy(line, commands, size);
		line[size] = '\0';
		n_commands -= size + 1;
		memmove(commands, end + 1, n_commands + 1);
		obey(line);
		(void)printf("done\n");
		(void)fflush(stdout);
	}
}

/* Two sandboxes more each day, so that use grows. */
static void grow(int days)
{
	const int64_t first_us = clock_realtime_usec() / DAY_US * DAY_US - days * DAY_US;

	for (int i = 0; i < days; i++) {
		if (n_nodes > 0)
			(void)create();
		for (int hour = 0; hour < 24; hour += 6)
			forecast_look(rig.server->forecast, first_us + i * DAY_US + hour * DAY_US / 24);
	}
	if (days > 0)
		forecast_look(rig.server->forecast, first_us + days * DAY_US);
}

/* One that began then; `roll` decides where it fails. */
static void add_past(int64_t when_us, unsigned int roll)
{
	static const struct {
		enum fail_stage stage;
		enum fail_code code;
		unsigned int in; /* one of so many */
	} ends[] = { { STAGE_IMAGE, FAIL_IMAGE_FETCH_FAILED, 41 }, { STAGE_KERNEL, FAIL_GUEST_PANIC, 97 }, { STAGE_SETUP, FAIL_SETUP_FAILED, 23 } };
	struct stage_fact fact = { .when_us = when_us, .n = 1, .attempt = 1, .tenant = "default", .pool = "default", .template_name = "base",
		.vcpus = 2, .memory_mib = 1024, .sandbox = "", .trace = "", .node = nodes[roll % n_nodes].node, .version = "0.1.0" };

	struct facts *facts = (struct facts *)(uintptr_t)telemetry_facts(rig.server->telemetry); /* as telemetry itself would */

	for (fact.stage = STAGE_ADMIT; fact.stage <= STAGE_READY; fact.stage++) {
		fact.outcome = took_us[fact.stage] || fact.stage < STAGE_ACCEPT ? RESULT_OK : RESULT_SKIPPED;
		fact.took_us = took_us[fact.stage] * (80 + roll % 60) / 100 + 90;
		for (size_t i = 0; i < ARRAY_LEN(ends); i++)
			if (fact.stage == ends[i].stage && roll % ends[i].in == 0) {
				fact.outcome = RESULT_FAILED;
				fact.code = ends[i].code;
			}
		rollups_add(rig.server->rollups, &fact);
		facts_add(facts, &fact);
		if (fact.outcome == RESULT_FAILED)
			return;
	}
}

static void add_pasts(unsigned int n)
{
	const int64_t now_us = clock_realtime_usec();
	unsigned int roll = 1;

	for (unsigned int half = 47; half >= 1 && n_nodes > 0; half--) /* the oldest first, as they were heard */
		for (unsigned int i = 0; i < n; i++) {
			roll = roll * 1103515245u + 12345u;
			add_past(now_us - ((int64_t)half * 1800 - (int64_t)i * 1800 / n) * USEC_PER_SEC, roll >> 8);
		}
}

static void new_key(const char *role, const char *more, char *ret, size_t size)
{
	char body[160];
	struct answer answer;

	(void)snprintf(body, sizeof(body), "{\"role\":\"%s\"%s}", role, more);
	answer = rig_call(&rig, "POST", "/v1/keys", rig.keys.provider, body);
	ck_assert_msg(answer.status == 201, "%s", answer.body);
	answer_text(answer.json, "key", ret, size);
	answer_free(&answer);
}

static int n_starts, n_days;
static unsigned int n_past;

START_TEST(world)
{
	char planner[API_KEY_SIZE], customer[API_KEY_SIZE];
	struct event *stdin_event;

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	if (n_nodes > 3)
		rig_expect(&rig, "POST", "/v1/pools", rig.keys.provider, "{\"name\":\"spare\",\"customer\":\"default\"}", 201, NULL);
	for (size_t i = 0; i < n_nodes; i++)
		join(i);
	add_pasts(n_past);
	grow(n_days);
	for (int i = 0; i < n_starts; i++)
		ck_assert_int_eq(create(), 201);
	new_key("provider-planner", "", planner, sizeof(planner));
	new_key("customer-planner", ",\"customer\":\"other\"", customer, sizeof(customer));
	(void)printf("{\"url\":\"http://127.0.0.1:%u\",\"provider\":\"%s\",\"planner\":\"%s\",\"other_planner\":\"%s\",\"tenant\":\"%s\",\"sibling\":\"%s\"}\n",
		api_port(rig.server->api), rig.keys.provider, planner, customer, rig.keys.tenant, rig.sibling);
	(void)fflush(stdout);
	stdin_event = event_new(rig.base, STDIN_FILENO, EV_READ | EV_PERSIST, on_commands, NULL);
	ck_assert_int_eq(event_add(stdin_event, NULL), 0);
	while (!is_over) {
		(void)event_base_loop(rig.base, EVLOOP_ONCE);
		obey_all();
	}
	event_free(stdin_event);
	for (size_t i = 0; i < n_nodes; i++)
		node_close(&nodes[i]);
	rig_close(&rig);
}
END_TEST

/* The rig asserts as tests do, so that this is one. */
int main(int argc, char **argv)
{
	Suite *suite = suite_create("world");
	TCase *tcase = tcase_create("world");
	SRunner *runner = srunner_create(suite);
	int failed;

	n_nodes = argc > 1 ? MIN((size_t)atoi(argv[1]), NODES_MAX) : 0;
	n_starts = argc > 2 ? atoi(argv[2]) : 0;
	n_days = argc > 3 ? atoi(argv[3]) : 0;
	n_past = argc > 4 ? (unsigned int)atoi(argv[4]) : 0;
	tcase_add_test(tcase, world);
	suite_add_tcase(suite, tcase);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_SILENT);
	srunner_print(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
