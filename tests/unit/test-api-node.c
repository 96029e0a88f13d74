/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler with fake nodes over a real link: joining, starts, failures, isolation of tenants, restart,
 * telemetry, revocation.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/suite.h"
#include "server/link-private.h"
#include "server/message.h"
#include "test-api-rig.h"

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))

/* ---- joining ---- */
START_TEST(test_join_token)
{
	struct rig rig;
	struct fake_node node, second;
	struct err err = ERR_NULL;
	char first[ID_SIZE];

	rig_open(&rig);
	node_token(&node, &rig, rig.keys.provider);
	node_enroll(&node);
	ck_assert(id_is_valid(node.node));
	COPY(first, node.node);
	node_enroll(&node); /* the same node asks again: the same answer */
	ck_assert_msg(!err_is_set(&node.refusal), "%s", node.refusal.msg);
	ck_assert_str_eq(node.node, first);
	second = node;
	second.dealer = NULL;
	ck_assert_int_eq(curve_keys_new(&second.keys, &err), 0);
	node_enroll(&second); /* another one */
	ck_assert_int_eq(second.refusal.code, FAIL_JOIN_TOKEN_USED);
	ck_assert_uint_eq(rig.server->counters.enrolled, 1);
	node_close(&second);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_join_token_revoked_and_expired)
{
	struct rig rig;
	struct fake_node node;

	rig_open(&rig);
	node_token(&node, &rig, rig.keys.provider);
	rig_expect_id(
		&rig, "DELETE", "/v1/tokens/*", node.token, rig.keys.provider, NULL, 204, NULL);
	node_enroll(&node);
	ck_assert_int_eq(node.refusal.code, FAIL_JOIN_TOKEN_REVOKED);
	node_close(&node);
	node_token(&node, &rig, rig.keys.provider);
	registry_token(&rig.server->registry, node.token)->expires_us = clock_realtime_usec() - 1;
	node_enroll(&node);
	ck_assert_int_eq(node.refusal.code, FAIL_JOIN_TOKEN_EXPIRED);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_token_may_only_enroll)
{
	struct rig rig;
	struct fake_node node;

	rig_open(&rig);
	node_token(&node, &rig, rig.keys.provider);
	node.keys = node.token_keys; /* says hello with the token's key */
	node_connect(&node);
	ck_assert(node.refused && !node.welcome);
	ck_assert_int_eq(node.refusal.code, FAIL_FORBIDDEN);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_unknown_key_is_denied)
{
	struct rig rig;
	struct fake_node node;

	rig_open(&rig);
	node_token(&node, &rig, rig.keys.provider);
	node_dial(&node, &node.keys); /* never enrolled */
	ck_assert(!node.up);
	ck_assert_uint_ge(link_denied(rig.server->link), 1);
	ck_assert_uint_eq(rig.server->counters.link_messages, 0);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_revoked_node_is_told)
{
	struct rig rig;
	struct fake_node node;

	rig_open(&rig);
	node_join(&node, &rig);
	rig_expect_id(&rig, "POST", "/v1/nodes/*/revoke", node.node, rig.operator, NULL, 404,
		"NODE_NOT_FOUND");
	rig_expect_id(
		&rig, "POST", "/v1/nodes/*/revoke", node.node, rig.keys.provider, NULL, 204, NULL);
	node_connect(&node);
	ck_assert(node.refused && !node.welcome);
	ck_assert_int_eq(node.refusal.code, FAIL_NODE_REVOKED);
	rig_stop(&rig); /* and so after a restart */
	rig_start(&rig);
	node_close(&node);
	(void)snprintf(node.address, sizeof(node.address), "%s", link_address(rig.server->link));
	node_connect(&node);
	ck_assert_int_eq(node.refusal.code, FAIL_NODE_REVOKED);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

static void check_cpu_class(struct rig *rig, const struct fake_node *node)
{
	struct answer answer = rig_get(rig, rig->keys.provider, "/v1/nodes/*", node->node);
	char name[64];

	answer_text(answer.json, "cpuClass", name, sizeof(name));
	ck_assert_str_eq(name, "amd-25-1");
	answer_free(&answer);
}

/* What a node said of itself is shown, and is still known when it has not called since the scheduler's start. */
START_TEST(test_cpu_class_is_shown_and_stored)
{
	struct rig rig;
	struct fake_node node;

	rig_open(&rig);
	node_join(&node, &rig);
	check_cpu_class(&rig, &node);
	rig_stop(&rig);
	node_close(&node);
	rig_start(&rig);
	check_cpu_class(&rig, &node);
	rig_close(&rig);
}
END_TEST

static void send_space(struct fake_node *node, const char *tenant, uint64_t used_mib)
{
	struct capacity_report report = { .capacity = node->capacity };
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);

	ck_assert_int_eq(space_list_add(&report.space, "acme", used_mib), 0);
	ck_assert_int_eq(space_list_add(&report.space, "", 3), 0);
	envelope.body_case = CROFT__ENVELOPE__BODY_CAPACITY;
	envelope.capacity = capacity_report_encode(&report);
	free(envelope.capacity->space[0]->tenant);
	envelope.capacity->space[0]->tenant = strdup(tenant);
	node_send(node, &envelope);
	croft__capacity_report__free_unpacked(envelope.capacity, NULL);
	capacity_report_deinit(&report);
}

/* Until its node says that the disk is used so; of the tenant, and of nobody. */
static bool shows_space(struct rig *rig, const struct fake_node *node, json_int_t used_mib)
{
	bool is_shown = false;

	for (int i = 0; i < 200 && !is_shown; i++) {
		struct answer answer = rig_get(rig, rig->keys.provider, "/v1/nodes/*", node->node);
		const json_t *space = json_object_get(answer.json, "space"), *one = json_array_get(space, 0);

		is_shown = json_array_size(space) == 2 && json_integer_value(json_object_get(one, "used_mib")) == used_mib;
		if (is_shown) {
			ck_assert_str_eq(json_string_value(json_object_get(one, "tenant")), "acme");
			ck_assert(json_is_null(json_object_get(json_array_get(space, 1), "tenant")));
		}
		answer_free(&answer);
		loop_for(rig->base, 5);
	}
	return is_shown;
}

START_TEST(test_whose_a_nodes_disk_is)
{
	struct rig rig;
	struct fake_node node;

	rig_open(&rig);
	node_join(&node, &rig);
	send_space(&node, "acme", 700);
	ck_assert(shows_space(&rig, &node, 700));
	send_space(&node, "acme", 70);
	ck_assert(shows_space(&rig, &node, 70));
	send_space(&node, "Ac\nme", 7000); /* no name: the whole report is none */
	send_space(&node, "acme", 71);
	ck_assert(shows_space(&rig, &node, 71));
	node_close(&node);
	rig_close(&rig);
}
END_TEST

/* What the link holds of `node`'s key; the number of the newest into `ret_newest`. */
static unsigned int sessions_of(
	const struct rig *rig, const struct fake_node *node, uint64_t *ret_newest)
{
	const struct session *session, *next;
	unsigned int n = 0;

	*ret_newest = 0;
	HASH_ITER (by_number, rig->server->link->by_number, session, next) {
		if (session->role != SENDER_NODE || strcmp(session->id, node->node))
			continue;
		n++;
		*ret_newest = session->number > *ret_newest ? session->number : *ret_newest;
	}
	return n;
}

START_TEST(test_a_key_has_two_sessions)
{
	struct rig rig;
	struct fake_node nodes[4];
	uint64_t newest, before = 0;

	rig_open(&rig);
	node_join(&nodes[0], &rig);
	/* connections of the same key that all stay open: ZAP admits four at once */
	for (size_t i = 1; i < ARRAY_LEN(nodes); i++) {
		nodes[i] = nodes[0];
		nodes[i].dealer = NULL;
		nodes[i].beat = NULL;
	}
	event_free(TAKE(nodes[0].beat));
	for (size_t i = 1; i < ARRAY_LEN(nodes); i++) {
		nodes[i].welcome = false;
		for (int tries = 0; tries < 5 && !nodes[i].welcome; tries++) { /* one handshake a second at most */
			node_dial(&nodes[i], &nodes[0].keys);
			if (!nodes[i].up)
				continue;
			node_send_hello(&nodes[i]);
			for (int turn = 0; turn < 200 && !nodes[i].welcome; turn++)
				loop_for(rig.base, 10);
		}
		ck_assert(nodes[i].welcome);
		ck_assert_uint_eq(sessions_of(&rig, &nodes[0], &newest), 2);
		ck_assert_uint_gt(newest, before);
		before = newest;
	}
	/* the oldest was forgotten, not refused: what it says makes a session anew, in another's place */
	node_send_hello(&nodes[0]);
	loop_for(rig.base, 500);
	ck_assert_uint_eq(sessions_of(&rig, &nodes[0], &newest), 2);
	ck_assert_uint_gt(newest, before);
	for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
		node_close(&nodes[i]);
	rig_close(&rig);
}
END_TEST

/* ---- starts ---- */
START_TEST(test_create_runs)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	struct http_field field = { "traceparent",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" };
	static const char body[] =
		"{\"metadata\":{\"a b\":\"c&d\"},\"timeout\":120,\"vcpus\":2,\"memoryMB\":256}";
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	(void)rig_start_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, body, strlen(body),
		&field, 1, &answer);
	loop_until(rig.base, &answer.done);
	ck_assert_msg(answer.status == 201, "%s", answer.body);
	ck_assert_uint_eq(node.timeout_s, 120);
	/* one trace from the caller to the node and back */
	ck_assert_int_eq(strncmp(node.traceparent, field.value, 36), 0);
	ck_assert_int_eq(strncmp(answer.traceparent, field.value, 36), 0);
	answer_text(answer.json, "sandboxID", id, sizeof(id));
	ck_assert_str_eq(
		json_string_value(json_object_get(answer.json, "envdVersion")), API_ENVD_VERSION);
	ck_assert_uint_ge(json_string_length(json_object_get(answer.json, "envdAccessToken")), 32);
	answer_free(&answer);

	answer = rig_get(&rig, rig.keys.tenant, "/sandboxes/*", id);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "state")), "running");
	ck_assert_int_eq(json_integer_value(json_object_get(answer.json, "cpuCount")), 2);
	answer_free(&answer);
	answer = rig_get(&rig, rig.keys.tenant, "/v1/sandboxes/*", id);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "state")), "running");
	ck_assert_uint_eq(
		json_array_size(json_object_get(answer.json, "stages")), STAGE_START_COUNT);
	ck_assert(json_is_true(json_object_get(answer.json, "certain")));
	ck_assert_ptr_null(json_object_get(answer.json, "envdAccessToken"));
	answer_free(&answer);
	/* metadata as the SDK encodes it */
	answer = rig_call(&rig, "GET",
		"/v2/sandboxes?metadata=a%252520b%3Dc%252526d&state=running,paused",
		rig.keys.tenant, NULL);
	ck_assert_uint_eq(json_array_size(answer.json), 1);
	answer_free(&answer);
	answer = rig_call(
		&rig, "GET", "/v2/sandboxes?metadata=a%252520b%3Dx", rig.keys.tenant, NULL);
	ck_assert_uint_eq(json_array_size(answer.json), 0);
	answer_free(&answer);
	rig_expect_id(&rig, "DELETE", "/sandboxes/*", id, rig.keys.tenant, NULL, 204, NULL);
	loop_until(rig.base, &node.destroyed);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

/* A skipped stage is neither a success nor a failure nor an attempt, wherever stages are counted. */
START_TEST(test_skipped_is_no_success)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	char id[ID_SIZE], line[96];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{}", id);
	answer = rig_call(&rig, "GET", "/v1/stages", rig.keys.tenant, NULL);
	for (unsigned int i = 0; i < STAGE_START_COUNT; i++) {
		const json_t *row = json_array_get(json_object_get(answer.json, "stages"), i);
		enum fail_stage stage = (enum fail_stage)(STAGE_ADMIT + i);
		int skipped = stage == STAGE_NETWORK || stage == STAGE_JAIL; /* so the fake node has it */

		ck_assert_str_eq(json_string_value(json_object_get(row, "stage")), stage_name(stage));
		ck_assert_int_eq(json_integer_value(json_object_get(row, "skipped")), skipped);
		ck_assert_int_eq(json_integer_value(json_object_get(row, "ok")), !skipped);
		ck_assert_int_eq(json_integer_value(json_object_get(row, "attempts")), !skipped);
		ck_assert_int_eq(json_integer_value(json_object_get(row, "failed")), 0);
		ck_assert(json_is_null(json_object_get(row, "success")) == skipped);
	}
	answer_free(&answer);
	answer = rig_call(&rig, "GET", "/metrics", rig.keys.provider, NULL);
	for (unsigned int i = 0; i < STAGE_START_COUNT; i++) {
		enum fail_stage stage = (enum fail_stage)(STAGE_ADMIT + i);
		int skipped = stage == STAGE_NETWORK || stage == STAGE_JAIL;

		(void)snprintf(line, sizeof(line), "\ncroft_stage_total{stage=\"%s\",outcome=\"ok\"} %d\n",
			stage_name(stage), !skipped);
		ck_assert_msg(strstr(answer.body, line) != NULL, "no %s in %s", line, answer.body);
		(void)snprintf(line, sizeof(line), "\ncroft_stage_total{stage=\"%s\",outcome=\"skipped\"} %d\n",
			stage_name(stage), skipped);
		ck_assert_msg(strstr(answer.body, line) != NULL, "no %s in %s", line, answer.body);
	}
	ck_assert_ptr_null(strstr(answer.body, id)); /* the number of series is bounded */
	answer_free(&answer);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

static json_int_t warm_member(struct rig *rig, const char *name)
{
	struct answer answer = rig_call(rig, "GET", "/v1/warm", rig->keys.provider, NULL);
	json_int_t value = json_integer_value(json_object_get(json_array_get(answer.json, 0), name));

	answer_free(&answer);
	return value;
}

/* One is ready before anybody asks, and nobody sees it. */
START_TEST(test_warm_pool_is_kept)
{
	struct rig rig;
	struct fake_node node;
	char warm[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_expect(&rig, "PUT", "/v1/pools/nowhere/warm/base", rig.keys.provider, "{\"target\":1}", 404,
		"POOL_NOT_FOUND");
	rig_expect(&rig, "PUT", "/v1/pools/default/warm/nothing", rig.keys.provider, "{\"target\":1}",
		404, "TEMPLATE_NOT_FOUND");
	rig_expect(&rig, "PUT", "/v1/pools/default/warm/base", rig.keys.provider, "{\"target\":1}", 404,
		"TEMPLATE_NOT_FOUND"); /* it is a tenant's own */
	rig_expect(&rig, "PUT", "/v1/pools/default/warm/base", rig.keys.provider, "{\"target\":-1}", 400,
		"INVALID_ARGUMENT");
	rig_expect(&rig, "PUT", "/v1/pools/default/warm/base", rig.keys.tenant, "{\"target\":1}", 403,
		NULL);
	rig_expect(&rig, "PUT", "/v1/pools/default/warm/base", rig.keys.provider,
		"{\"target\":1,\"tenant\":\"default\"}", 200, NULL);
	loop_until(rig.base, &node.created);
	for (int i = 0; i < 50 && warm_member(&rig, "ready") == 0; i++)
		loop_for(rig.base, 20);
	ck_assert_int_eq(warm_member(&rig, "ready"), 1);
	(void)snprintf(warm, sizeof(warm), "%s", node.sandbox);
	rig_expect_id(&rig, "GET", "/v1/sandboxes/*", warm, rig.keys.tenant, NULL, 404, NULL);

	rig_stop(&rig); /* what is ready is on record, and so is that it is wanted */
	rig_start(&rig);
	node_close(&node);
	(void)snprintf(node.address, sizeof(node.address), "%s", link_address(rig.server->link));
	ck_assert_int_eq(warm_member(&rig, "target"), 1);
	ck_assert_int_eq(warm_member(&rig, "ready"), 1);
	rig_close(&rig);
}
END_TEST

/* Who asks gets it: the same id, the caller's time limit. */
START_TEST(test_create_takes_a_warm_one)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	char warm[ID_SIZE], id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_expect(&rig, "PUT", "/v1/pools/default/warm/base", rig.keys.provider,
		"{\"target\":1,\"tenant\":\"default\"}", 200, NULL);
	loop_until(rig.base, &node.created);
	for (int i = 0; i < 50 && warm_member(&rig, "ready") == 0; i++)
		loop_for(rig.base, 20);
	(void)snprintf(warm, sizeof(warm), "%s", node.sandbox);
	answer = rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{\"timeout\":77}");
	ck_assert_msg(answer.status == 201, "%s", answer.body);
	answer_text(answer.json, "sandboxID", id, sizeof(id));
	answer_free(&answer);
	ck_assert_str_eq(id, warm);
	answer = rig_get(&rig, rig.keys.tenant, "/v1/sandboxes/*", id);
	ck_assert_int_eq(json_integer_value(json_object_get(answer.json, "generation")), 2);
	ck_assert_int_eq(json_integer_value(json_object_get(answer.json, "timeout_s")), 77);
	answer_free(&answer);
	rig_expect_id(&rig, "DELETE", "/sandboxes/*", id, rig.keys.tenant, NULL, 204, NULL);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_create_async_and_watch)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer, watched;
	char id[ID_SIZE], version[32], path[160];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	node.is_silent = true;
	answer = rig_call(&rig, "POST", "/v1/sandboxes", rig.keys.tenant, "{}");
	ck_assert_msg(answer.status == 202, "%s", answer.body);
	answer_text(answer.json, "id", id, sizeof(id));
	answer_free(&answer);
	loop_until(rig.base, &node.created);
	answer = rig_get(&rig, rig.keys.tenant, "/v1/sandboxes/*", id);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "state")), "starting");
	answer_text(answer.json, "version", version, sizeof(version));
	answer_free(&answer);
	(void)snprintf(path, sizeof(path), "/v1/sandboxes/%s?wait_ms=20000&after=%s", id, version);
	(void)rig_start_call(&rig, "GET", path, rig.keys.tenant, NULL, 0, NULL, 0, &watched);
	loop_for(rig.base, 50);
	ck_assert(!watched.done);
	node.is_silent = false;
	node_report(&node, REPORT_STARTING);
	loop_until(rig.base, &watched.done);
	ck_assert_int_eq(watched.status, 200);
	answer_free(&watched);
	node_report(&node, REPORT_RUNNING);
	for (int i = 0; i < 100; i++) {
		char state[16];

		answer = rig_get(&rig, rig.keys.tenant, "/v1/sandboxes/*", id);
		answer_text(answer.json, "state", state, sizeof(state));
		answer_free(&answer);
		if (!strcmp(state, "running"))
			break;
		ck_assert_int_lt(i, 99);
	}
	/* the wait ends by itself */
	(void)snprintf(path, sizeof(path), "/v1/sandboxes/%s?wait_ms=50&after=x", id);
	rig_expect(&rig, "GET", path, rig.keys.tenant, NULL, 200, NULL);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_failed_start_says_where_and_whose)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	const json_t *failure;
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	(void)err_set(&node.start_failure, FAIL_KERNEL_MISSING, ENOENT, "no kernel");
	answer = rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{}");
	failure = json_object_get(answer.json, "failure");
	ck_assert_msg(answer.status == 503, "%d %s", answer.status, answer.body);
	ck_assert_str_eq(answer_code(&answer), "KERNEL_MISSING");
	ck_assert_str_eq(json_string_value(json_object_get(failure, "stage")), "vmm");
	ck_assert_str_eq(json_string_value(json_object_get(failure, "component")), "node-software");
	answer_text(failure, "sandbox", id, sizeof(id));
	ck_assert(id_is_valid(id));
	answer_free(&answer);
	/* it is history, with its stages, also after a restart */
	for (int i = 0; i < 2; i++) {
		answer = rig_get(&rig, rig.keys.tenant, "/v1/stages?sandbox=*", id);
		ck_assert_msg(answer.status == 200, "%s", answer.body);
		ck_assert_str_eq(json_string_value(json_object_get(answer.json, "state")), "ended");
		ck_assert_str_eq(json_string_value(json_object_get(
					 json_object_get(answer.json, "failure"), "code")),
			"KERNEL_MISSING");
		ck_assert_uint_ge(json_array_size(json_object_get(answer.json, "records")), 9);
		answer_free(&answer);
		answer = rig_get(&rig, rig.keys.tenant, "/v1/sandboxes/*", id);
		ck_assert_str_eq(json_string_value(json_object_get(answer.json, "state")), "ended");
		answer_free(&answer);
		rig_expect_id(&rig, "GET", "/v1/sandboxes/*", id, rig.stranger, NULL, 404,
			"SANDBOX_NOT_FOUND");
		answer = rig_call(&rig, "GET", "/v1/stages", rig.keys.tenant, NULL);
		ck_assert_int_eq(json_integer_value(json_object_get(
					 json_array_get(json_object_get(answer.json, "stages"),
						 STAGE_VMM - STAGE_ADMIT),
					 "failed")),
			1);
		answer_free(&answer);
		if (i == 0) {
			node_close(&node);
			rig_stop(&rig);
			rig_start(&rig);
		}
	}
	rig_close(&rig);
}
END_TEST

START_TEST(test_no_capacity_names_the_largest)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	const json_t *detail;

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	answer = rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{\"memoryMB\":1000000}");
	detail = json_object_get(json_object_get(answer.json, "failure"), "detail");
	ck_assert_str_eq(answer_code(&answer), "NO_CAPACITY");
	ck_assert_str_eq(json_string_value(json_object_get(detail, "resource")), "memory");
	ck_assert_ptr_nonnull(json_object_get(detail, "largest"));
	ck_assert(!node.created);
	answer_free(&answer);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

/* Every route that names a sandbox, with the key of another tenant: like an id that never was. */
static const struct {
	const char *method, *pattern, *body;
} foreign[] = {
	{ "GET", "/sandboxes/*", NULL },
	{ "GET", "/v1/sandboxes/*", NULL },
	{ "GET", "/v1/stages?sandbox=*", NULL },
	{ "POST", "/sandboxes/*/timeout", "{\"timeout\":9}" },
	{ "POST", "/v2/sandboxes/*/connect", "{}" },
	{ "POST", "/sandboxes/*/connect", "{\"timeout\":9}" },
	{ "POST", "/sandboxes/*/pause", "{}" },
	{ "POST", "/sandboxes/*/resume", "{}" },
	{ "DELETE", "/sandboxes/*", NULL },
	{ "DELETE", "/v1/sandboxes/*", NULL },
};

/* Of another customer, and of the same one (_i 1). */
START_TEST(test_tenants_are_apart)
{
	static const char *const lists[] = { "/v2/sandboxes", "/sandboxes", "/v1/sandboxes" };
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	const char *other;
	char id[ID_SIZE], path[128];

	rig_open(&rig);
	other = _i ? rig.sibling : rig.stranger;
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{}", id);
	for (size_t i = 0; i < ARRAY_LEN(foreign); i++) {
		struct answer theirs, none;

		rig_path(path, sizeof(path), foreign[i].pattern, id);
		theirs = rig_call(&rig, foreign[i].method, path, other, foreign[i].body);
		rig_path(path, sizeof(path), foreign[i].pattern, "aaaaaaaaaaaaaaaaaaaa");
		none = rig_call(&rig, foreign[i].method, path, other, foreign[i].body);
		ck_assert_msg(
			theirs.status == 404, "%s %s: %d", foreign[i].method, path, theirs.status);
		ck_assert_int_eq(none.status, 404);
		ck_assert_str_eq(json_string_value(json_object_get(theirs.json, "message")),
			json_string_value(json_object_get(none.json, "message")));
		answer_free(&theirs);
		answer_free(&none);
	}
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		answer = rig_call(&rig, "GET", lists[i], other, NULL);
		ck_assert_int_eq(answer.status, 200);
		ck_assert_uint_eq(json_array_size(answer.json), 0);
		answer_free(&answer);
	}
	answer = rig_call(&rig, "GET", "/v1/nodes", rig.operator, NULL);
	ck_assert_uint_eq(json_array_size(answer.json), 0);
	answer_free(&answer);
	rig_expect_id(
		&rig, "GET", "/v1/nodes/*", node.node, rig.operator, NULL, 404, "NODE_NOT_FOUND");
	rig_expect_id(&rig, "GET", "/v1/nodes/*/telemetry", node.node, rig.operator, NULL, 404,
		"NODE_NOT_FOUND");
	answer = rig_call(&rig, "GET", "/v1/stages", other, NULL);
	ck_assert(json_is_null(json_object_get(answer.json, "product")));
	answer_free(&answer);
	/* nothing happened to it */
	answer = rig_get(&rig, rig.keys.tenant, "/v1/sandboxes/*", id);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "state")), "running");
	answer_free(&answer);
	ck_assert(!node.destroyed);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

/* ---- telemetry ---- */
static void send_telemetry(struct fake_node *node, uint64_t from, uint64_t to)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__TelemetryBatch batch = MESSAGE(Croft__TelemetryBatch, croft__telemetry_batch__init);
	Croft__TelemetryRecord records[32], *list[32];
	Croft__NodeEvent event = MESSAGE(Croft__NodeEvent, croft__node_event__init);
	Croft__Field field = MESSAGE(Croft__Field, croft__field__init), *fields[] = { &field, &field };

	event.name = (char *)(uintptr_t) "link-up";
	field.key = (char *)(uintptr_t) "key";
	field.value = (char *)(uintptr_t) "value";
	event.fields = fields;
	event.n_fields = ARRAY_LEN(fields);
	for (uint64_t seq = from; seq <= to; seq++) {
		Croft__TelemetryRecord *record = &records[seq - from];

		croft__telemetry_record__init(record);
		record->seq = seq;
		record->when_us = (int64_t)seq;
		record->body_case = CROFT__TELEMETRY_RECORD__BODY_EVENT;
		record->event = &event;
		list[batch.n_records++] = record;
	}
	batch.records = list;
	envelope.body_case = CROFT__ENVELOPE__BODY_TELEMETRY;
	envelope.telemetry = &batch;
	node_send(node, &envelope);
}

static void wait_acked(struct fake_node *node, uint64_t seq)
{
	for (int i = 0; i < 500 && node->telemetry_acked != seq; i++)
		loop_for(node->rig->base, 5);
	ck_assert_uint_eq(node->telemetry_acked, seq);
}

START_TEST(test_telemetry_in_order_and_once)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	const json_t *list;

	rig_open(&rig);
	node_join(&node, &rig);
	send_telemetry(&node, 1, 5);
	wait_acked(&node, 5);
	send_telemetry(&node, 4, 8); /* two come again */
	wait_acked(&node, 8);
	send_telemetry(
		&node, 12, 14); /* 9 to 11 were lost on the way: not taken before they come */
	node.telemetry_acked = 0;
	wait_acked(&node, 8);
	send_telemetry(&node, 9, 14);
	wait_acked(&node, 14);
	rig_stop(&rig); /* what was acknowledged is there after a restart */
	rig_start(&rig);
	answer = rig_get(&rig, rig.keys.provider, "/v1/nodes/*/telemetry", node.node);
	list = json_object_get(answer.json, "records");
	ck_assert_uint_eq(json_array_size(list), 14);
	for (size_t i = 0; i < 14; i++)
		ck_assert_int_eq(
			json_integer_value(json_object_get(json_array_get(list, i), "seq")),
			(json_int_t)i + 1);
	ck_assert_str_eq(
		json_string_value(json_object_get(json_array_get(list, 0), "detail")), "key=value key=value");
	ck_assert_int_eq(json_integer_value(
				 json_object_get(json_object_get(answer.json, "counts"), "acked")),
		14);
	answer_free(&answer);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

/* Not before it is in the store; and what a failed commit forgot is taken when it comes again. */
START_TEST(test_telemetry_is_acknowledged_when_durable)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	sqlite3 *db = NULL;
	char path[128];

	rig_open(&rig);
	node_join(&node, &rig);
	(void)snprintf(path, sizeof(path), "%s/store.db", rig.dir);
	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	ck_assert_int_eq(sqlite3_busy_timeout(db, 10000), SQLITE_OK); /* of the welcome's own commit */
	ck_assert_int_eq(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	send_telemetry(&node, 1, 5);
	for (int i = 0; i < 2000 && !shell_failure(rig.server->shell); i++)
		loop_for(rig.base, 10);
	ck_assert_ptr_nonnull(shell_failure(rig.server->shell));
	ck_assert_uint_eq(node.telemetry_acked, 0);
	ck_assert_int_eq(sqlite3_close(db), SQLITE_OK); /* and rolled back */
	for (int i = 0; i < 200 && shell_failure(rig.server->shell); i++)
		loop_for(rig.base, 50);
	ck_assert_ptr_null(shell_failure(rig.server->shell));
	node.welcome = false;
	node_send_hello(&node); /* everything was loaded anew: it has to say again who it is */
	loop_until(rig.base, &node.welcome);
	send_telemetry(&node, 1, 5);
	wait_acked(&node, 5);
	rig_stop(&rig);
	rig_start(&rig);
	answer = rig_get(&rig, rig.keys.provider, "/v1/nodes/*/telemetry", node.node);
	ck_assert_uint_eq(json_array_size(json_object_get(answer.json, "records")), 5);
	answer_free(&answer);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

/* ---- restart and wrong nodes ---- */
START_TEST(test_acknowledged_create_survives)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	uint64_t epoch;
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{}", id);
	epoch = rig.server->epoch;
	rig_stop(&rig);
	rig_start(&rig);
	ck_assert_uint_gt(rig.server->epoch, epoch);
	answer = rig_get(&rig, rig.keys.tenant, "/v1/sandboxes/*", id);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "state")), "running");
	ck_assert_uint_eq(
		json_array_size(json_object_get(answer.json, "stages")), STAGE_START_COUNT);
	answer_free(&answer);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

/* A create whose record is large, so that few of them fill a store. */
static void large_create(char ret[static 200 * 1024])
{
	size_t used = (size_t)sprintf(ret, "{\"metadata\":{");

	for (int i = 0; i < 40; i++)
		used += (size_t)sprintf(ret + used, "%s\"k%d\":\"%04000d\"", i ? "," : "", i, i);
	(void)sprintf(ret + used, "}}");
}

/* R191: the store is full. What is new is refused by name, a sandbox can be ended and its node is told, and when there is
 * room again everything goes on by itself. */
START_TEST(test_full_store_still_deletes)
{
	CLEANUP_FREE char *body = malloc(200 * 1024);
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	char id[ID_SIZE], large[ID_SIZE];
	uint64_t generation;

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	rig_stop(&rig);
	rig.options.store_max_bytes = 128 * 1024;
	rig.options.history_count = 1;
	rig_start(&rig);
	node_join(&node, &rig);
	rig_create(&rig, &node, "{}", id);
	generation = node.generation;
	ck_assert(!shell_is_tight(rig.server->shell));
	large_create(body);
	rig_create(&rig, &node, body, large); /* it does not fit, and is kept all the same */
	ck_assert(shell_is_tight(rig.server->shell));
	ck_assert_ptr_null(shell_failure(rig.server->shell));
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{}", 503, "STORE_FULL");
	rig_expect(&rig, "POST", "/v1/tokens", rig.keys.provider, "{}", 503, "STORE_FULL");
	rig_expect(&rig, "GET", "/v2/sandboxes", rig.keys.tenant, NULL, 200, NULL);
	node.destroyed = false;
	rig_expect_id(&rig, "DELETE", "/sandboxes/*", large, rig.keys.tenant, NULL, 204, NULL);
	loop_until(rig.base, &node.destroyed);
	(void)snprintf(node.sandbox, sizeof(node.sandbox), "%s", id); /* of whose end it tells next */
	node.generation = generation;
	rig_expect_id(&rig, "DELETE", "/sandboxes/*", id, rig.keys.tenant, NULL, 204, NULL);
	/* its history is forgotten, for the younger one takes its place: there is room */
	for (int i = 0; i < 600 && shell_is_tight(rig.server->shell); i++)
		loop_for(rig.base, 50);
	ck_assert(!shell_is_tight(rig.server->shell));
	answer = rig_call(&rig, "POST", "/v1/tokens", rig.keys.provider, "{}");
	ck_assert_int_eq(answer.status, 201);
	answer_free(&answer);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_report_about_anothers_sandbox)
{
	struct rig rig;
	struct fake_node node, liar;
	struct answer answer;
	struct fleet_counts counts;
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{}", id);
	node_join(&liar, &rig);
	COPY(liar.sandbox, id);
	liar.generation = node.generation;
	COPY(liar.operation, node.operation);
	liar.refused = false;
	node_report(&liar, REPORT_ENDED);
	loop_until(rig.base, &liar.refused);
	ck_assert_int_eq(liar.refusal.code, FAIL_AUTH_WRONG_NODE);
	fleet_count(shell_fleet(rig.server->shell), &counts);
	ck_assert_uint_eq(counts.wrong_node, 1);
	answer = rig_get(&rig, rig.keys.tenant, "/v1/sandboxes/*", id);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "state")), "running");
	answer_free(&answer);
	node_close(&liar);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_garbage_is_refused)
{
	struct rig rig;
	struct fake_node node;
	char junk[4096];

	rig_open(&rig);
	node_join(&node, &rig);
	memset(junk, 0xff, sizeof(junk));
	for (size_t size = 0; size < sizeof(junk); size += 97)
		ck_assert(dealer_send(node.dealer, junk, size));
	for (int i = 0;
		i < 100 &&
		rig.server->counters.link_invalid + rig.server->counters.link_unsupported < 40;
		i++)
		loop_for(rig.base, 10);
	ck_assert_uint_ge(
		rig.server->counters.link_invalid + rig.server->counters.link_unsupported, 40);
	rig_expect(&rig, "GET", "/health", NULL, NULL, 200, NULL);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-node");
	TCase *tc = tcase_create("api-node");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_cpu_class_is_shown_and_stored);
	tcase_add_test(tc, test_whose_a_nodes_disk_is);
	tcase_add_test(tc, test_join_token);
	tcase_add_test(tc, test_join_token_revoked_and_expired);
	tcase_add_test(tc, test_token_may_only_enroll);
	tcase_add_test(tc, test_unknown_key_is_denied);
	tcase_add_test(tc, test_revoked_node_is_told);
	tcase_add_test(tc, test_a_key_has_two_sessions);
	tcase_add_test(tc, test_create_runs);
	tcase_add_test(tc, test_skipped_is_no_success);
	tcase_add_test(tc, test_warm_pool_is_kept);
	tcase_add_test(tc, test_create_takes_a_warm_one);
	tcase_add_test(tc, test_create_async_and_watch);
	tcase_add_test(tc, test_failed_start_says_where_and_whose);
	tcase_add_test(tc, test_no_capacity_names_the_largest);
	tcase_add_loop_test(tc, test_tenants_are_apart, 0, 2);
	tcase_add_test(tc, test_telemetry_in_order_and_once);
	tcase_add_test(tc, test_telemetry_is_acknowledged_when_durable);
	tcase_add_test(tc, test_acknowledged_create_survives);
	tcase_add_test(tc, test_full_store_still_deletes);
	tcase_add_test(tc, test_report_about_anothers_sandbox);
	tcase_add_test(tc, test_garbage_is_refused);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
