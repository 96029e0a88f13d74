/* SPDX-License-Identifier: Apache-2.0
 *
 * Pause, resume and connect over HTTP, in E2B's shape, against a scheduler with a fake node.
 */
#include <check.h>
#include <jansson.h>
#include <string.h>

#include "lib/loop.h"
#include "lib/suite.h"
#include "unit/test-api-rig.h"

static void open_all(struct rig *rig, struct fake_node *node, const char *body, char id[static ID_SIZE])
{
	rig_open(rig);
	rig_template(rig, "base", "image");
	node_join(node, rig);
	rig_create(rig, node, body, id);
}

static void close_all(struct rig *rig, struct fake_node *node)
{
	node_close(node);
	rig_close(rig);
}

static void expect_state(struct rig *rig, const char *id, const char *state)
{
	struct answer answer = rig_get(rig, rig->keys.tenant, "/sandboxes/*", id);

	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "state")), state);
	answer_free(&answer);
	answer = rig_get(rig, rig->keys.tenant, "/v1/sandboxes/*", id);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "state")), state);
	answer_free(&answer);
}

static size_t count_listed(struct rig *rig, const char *state)
{
	char path[64];
	struct answer answer;
	size_t n;

	(void)snprintf(path, sizeof(path), "/v2/sandboxes?state=%s", state);
	answer = rig_call(rig, "GET", path, rig->keys.tenant, NULL);
	n = json_array_size(answer.json);
	answer_free(&answer);
	return n;
}

static int post(struct rig *rig, const char *pattern, const char *id, const char *body)
{
	char path[96];
	struct answer answer;
	int status;

	rig_path(path, sizeof(path), pattern, id);
	answer = rig_call(rig, "POST", path, rig->keys.tenant, body);
	status = answer.status;
	if (status < 300 && strstr(pattern, "pause") == NULL) {
		ck_assert_str_eq(json_string_value(json_object_get(answer.json, "sandboxID")), id);
		ck_assert_uint_ge(json_string_length(json_object_get(answer.json, "envdAccessToken")), 32);
	}
	answer_free(&answer);
	return status;
}

START_TEST(what_sleeps_is_woken_by_connect)
{
	struct rig rig;
	struct fake_node node;
	char id[ID_SIZE];

	open_all(&rig, &node, "{\"timeout\":120}", id);
	ck_assert_int_eq(post(&rig, "/sandboxes/*/resume", id, "{}"), 409);
	ck_assert_int_eq(post(&rig, "/v2/sandboxes/*/connect", id, "{}"), 200);
	ck_assert_int_eq(post(&rig, "/sandboxes/*/pause", id, "{}"), 204);
	expect_state(&rig, id, "paused");
	ck_assert_uint_eq(count_listed(&rig, "paused"), 1);
	ck_assert_uint_eq(count_listed(&rig, "running"), 0);
	rig_expect_id(&rig, "POST", "/sandboxes/*/pause", id, rig.keys.tenant, "{}", 409, "CONFLICT");
	rig_expect_id(&rig, "POST", "/sandboxes/*/timeout", id, rig.keys.tenant, "{\"timeout\":5}", 409, "CONFLICT");
	ck_assert_uint_eq(node.pauses, 1);
	ck_assert_int_eq(post(&rig, "/v2/sandboxes/*/connect", id, "{\"timeout\":77}"), 201);
	ck_assert_uint_eq(node.timeout_s, 77);
	expect_state(&rig, id, "running");
	ck_assert_int_eq(post(&rig, "/sandboxes/*/pause", id, "{}"), 204);
	ck_assert_int_eq(post(&rig, "/sandboxes/*/connect", id, "{}"), 201); /* the older path */
	ck_assert_uint_eq(node.timeout_s, 120);                              /* as it was created with */
	ck_assert_int_eq(post(&rig, "/sandboxes/*/pause", id, "{\"memory\":true}"), 204);
	ck_assert_int_eq(post(&rig, "/sandboxes/*/resume", id, "{\"timeout\":9}"), 201);
	ck_assert_uint_eq(node.resumes, 3);
	ck_assert_int_eq(post(&rig, "/sandboxes/*/pause", id, "{}"), 204);
	rig_expect_id(&rig, "DELETE", "/sandboxes/*", id, rig.keys.tenant, NULL, 204, NULL);
	loop_until(rig.base, &node.destroyed);
	rig_expect_id(&rig, "POST", "/sandboxes/*/pause", id, rig.keys.tenant, "{}", 404, "SANDBOX_NOT_FOUND");
	rig_expect_id(&rig, "POST", "/v2/sandboxes/*/connect", id, rig.keys.tenant, "{}", 404, "SANDBOX_NOT_FOUND");
	close_all(&rig, &node);
}
END_TEST

/* The node's own words reach the caller, and the sandbox is as it was. */
START_TEST(what_its_node_cannot_is_told)
{
	struct rig rig;
	struct fake_node node;
	char id[ID_SIZE];

	open_all(&rig, &node, "{}", id);
	(void)err_set(&node.sleep_failure, FAIL_GUEST_FREEZE_FAILED, ETIMEDOUT, "It does not freeze.");
	rig_expect_id(&rig, "POST", "/sandboxes/*/pause", id, rig.keys.tenant, "{}", 503, "GUEST_FREEZE_FAILED");
	expect_state(&rig, id, "running");
	node.sleep_failure = (struct err)ERR_NULL;
	ck_assert_int_eq(post(&rig, "/sandboxes/*/pause", id, "{}"), 204);
	(void)err_set(&node.sleep_failure, FAIL_CAPACITY_STALE, 0, "No room.");
	rig_expect_id(&rig, "POST", "/v2/sandboxes/*/connect", id, rig.keys.tenant, "{}", 503, "CAPACITY_STALE");
	expect_state(&rig, id, "paused");
	close_all(&rig, &node);
}
END_TEST

START_TEST(an_older_agent_is_not_asked)
{
	struct rig rig;
	struct fake_node node = { .is_older = true };
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	node.is_older = true;
	node_send_hello(&node);
	rig_create(&rig, &node, "{}", id);
	rig_expect_id(&rig, "POST", "/sandboxes/*/pause", id, rig.keys.tenant, "{}", 501, "PAUSE_UNSUPPORTED");
	ck_assert_uint_eq(node.pauses, 0);
	expect_state(&rig, id, "running");
	close_all(&rig, &node);
}
END_TEST

/* What is not built is refused by its name, never ignored. */
START_TEST(what_is_not_built_is_refused)
{
	struct rig rig;
	struct fake_node node;
	char id[ID_SIZE];

	open_all(&rig, &node, "{}", id);
	rig_expect_id(&rig, "POST", "/sandboxes/*/pause", id, rig.keys.tenant, "{\"memory\":false}", 501, "UNSUPPORTED");
	rig_expect_id(&rig, "POST", "/v2/sandboxes/*/connect", id, rig.keys.tenant, "{\"memory\":false}", 501, "UNSUPPORTED");
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{\"autoPause\":true,\"autoPauseMemory\":false}", 501,
		"UNSUPPORTED");
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{\"autoPause\":7}", 400, "INVALID_ARGUMENT");
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{\"autoResume\":{\"enabled\":1}}", 400, "INVALID_ARGUMENT");
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{\"autoResume\":7}", 400, "INVALID_ARGUMENT");
	ck_assert_uint_eq(node.pauses + node.resumes, 0);
	close_all(&rig, &node);
}
END_TEST

/* The node pauses it by itself at the end of its time. */
START_TEST(auto_pause_is_carried_and_shown)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	json_t *lifecycle;
	char id[ID_SIZE];

	open_all(&rig, &node, "{\"autoPause\":true,\"autoResume\":{\"enabled\":false}}", id);
	ck_assert(node.auto_pause);
	answer = rig_get(&rig, rig.keys.tenant, "/sandboxes/*", id);
	lifecycle = json_object_get(answer.json, "lifecycle");
	ck_assert_str_eq(json_string_value(json_object_get(lifecycle, "onTimeout")), "pause");
	ck_assert(json_is_false(json_object_get(lifecycle, "autoResume")));
	answer_free(&answer);
	node_report(&node, REPORT_PAUSED);
	for (int i = 0; i < 500 && count_listed(&rig, "paused") == 0; i++)
		loop_for(rig.base, 10);
	expect_state(&rig, id, "paused");
	ck_assert_int_eq(post(&rig, "/v2/sandboxes/*/connect", id, "{}"), 201);
	close_all(&rig, &node);
}
END_TEST

/* ---- calls wake it ---- */

static void token_of(struct rig *rig, const char *id, char *ret, size_t size)
{
	char path[96];
	struct answer answer;

	rig_path(path, sizeof(path), "/v2/sandboxes/*/connect", id);
	answer = rig_call(rig, "POST", path, rig->keys.tenant, "{}");
	ck_assert_int_eq(answer.status, 200);
	answer_text(answer.json, "envdAccessToken", ret, size);
	answer_free(&answer);
}

static void start_call(struct rig *rig, const char *path, const char *id, const char *port, const char *token,
	struct answer *answer)
{
	const struct http_field fields[] = { { "e2b-sandbox-id", id }, { "e2b-sandbox-port", port }, { "x-access-token", token } };

	(void)rig_start_call(rig, "POST", path, NULL, "request body", 12, fields, token ? 3 : 2, answer);
}

static void expect_call(struct rig *rig, const char *path, const char *id, const char *port, const char *token, int status,
	const char *code)
{
	struct answer answer;

	start_call(rig, path, id, port, token, &answer);
	loop_until(rig->base, &answer.done);
	ck_assert_msg(answer.status == status, "%d %s", answer.status, answer.body);
	if (code)
		ck_assert_str_eq(answer_code(&answer), code);
	answer_free(&answer);
}

#define REPLY "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"

/* The whole call waits for it, its body too, and gets the gateway's answer. */
START_TEST(a_call_wakes_what_sleeps)
{
	struct rig rig;
	struct fake_node node;
	char id[ID_SIZE], token[128], wrong[128];

	open_all(&rig, &node, "{\"timeout\":120,\"autoPause\":true,\"autoResume\":{\"enabled\":true}}", id);
	token_of(&rig, id, token, sizeof(token));
	ck_assert_int_eq(post(&rig, "/sandboxes/*/pause", id, "{}"), 204);

	/* who may not call it may not wake it */
	memcpy(wrong, token, sizeof(wrong));
	wrong[0] = wrong[0] == 'a' ? 'b' : 'a';
	expect_call(&rig, "/files?path=/a", id, "49983", NULL, 503, "SANDBOX_NOT_READY");
	expect_call(&rig, "/files?path=/a", id, "49983", "", 503, "SANDBOX_NOT_READY");
	expect_call(&rig, "/files?path=/a", id, "49983", wrong, 503, "SANDBOX_NOT_READY");
	node.reply = REPLY;
	expect_call(&rig, "/health", id, "49983", token, 200, NULL); /* the gateway's: to ask how it is does not either */
	ck_assert_ptr_nonnull(strstr(node.request, "/health"));
	expect_state(&rig, id, "paused");
	ck_assert_uint_eq(node.resumes, 0);

	node.reply = REPLY;
	expect_call(&rig, "/files?path=/a", id, "49983", token, 200, NULL);
	ck_assert_uint_eq(node.resumes, 1);
	ck_assert_uint_eq(node.timeout_s, 120); /* as it was made */
	ck_assert_ptr_nonnull(strstr(node.request, "request body"));
	expect_state(&rig, id, "running");

	/* nor by way of another port, however it is written */
	ck_assert_int_eq(post(&rig, "/sandboxes/*/pause", id, "{}"), 204);
	expect_call(&rig, "/files?path=/a", id, "8080", NULL, 503, "SANDBOX_NOT_READY");
	expect_call(&rig, "/files?path=/a", id, "0", NULL, 503, "SANDBOX_NOT_READY");
	expect_call(&rig, "/files?path=/a", id, "08080", wrong, 503, "SANDBOX_NOT_READY");
	expect_state(&rig, id, "paused");
	ck_assert_uint_eq(node.resumes, 1);
	node.reply = REPLY;
	expect_call(&rig, "/files?path=/a", id, "8080", token, 200, NULL);
	ck_assert_uint_eq(node.resumes, 2);

	close_all(&rig, &node);
}
END_TEST

static void start_post(struct rig *rig, const char *pattern, const char *id, struct answer *answer)
{
	char path[96];

	rig_path(path, sizeof(path), pattern, id);
	(void)rig_start_call(rig, "POST", path, rig->keys.tenant, "{}", 2, NULL, 0, answer);
}

static void wait_until_sent(struct rig *rig, const unsigned int *count, unsigned int n)
{
	for (int i = 0; i < 500 && *count < n; i++)
		loop_for(rig->base, 10);
	ck_assert_uint_eq(*count, n);
}

/* Connect and calls that come while it goes to sleep wait for that, and then wake it; its node is asked once. */
START_TEST(one_that_falls_asleep_is_woken_once)
{
	struct rig rig;
	struct fake_node node;
	struct answer pause, connect, call;
	char id[ID_SIZE], token[128];

	open_all(&rig, &node, "{\"autoResume\":{\"enabled\":true}}", id);
	token_of(&rig, id, token, sizeof(token));
	node.is_silent = true;
	start_post(&rig, "/sandboxes/*/pause", id, &pause);
	wait_until_sent(&rig, &node.pauses, 1);
	start_post(&rig, "/v2/sandboxes/*/connect", id, &connect);
	start_call(&rig, "/files?path=/a", id, "49983", token, &call);
	loop_for(rig.base, 200);
	ck_assert(!pause.done && !connect.done && !call.done);
	ck_assert_uint_eq(node.resumes, 0);
	node.is_silent = false;
	node.reply = REPLY;
	if (_i) { /* it is not to be: its node says so, and it runs */
		(void)err_set(&node.sleep_failure, FAIL_GUEST_FREEZE_FAILED, ETIMEDOUT, "It does not freeze.");
		node_answer_pause(&node);
	} else {
		node_report(&node, REPORT_PAUSED);
	}
	loop_until(rig.base, &pause.done);
	loop_until(rig.base, &connect.done);
	loop_until(rig.base, &call.done);
	ck_assert_int_eq(pause.status, _i ? 503 : 204);
	ck_assert_msg(connect.status == 201, "%d %s", connect.status, connect.body);
	ck_assert_msg(call.status == 200, "%d %s", call.status, call.body);
	ck_assert_uint_eq(node.resumes, _i ? 0 : 1);
	answer_free(&pause);
	answer_free(&connect);
	answer_free(&call);
	close_all(&rig, &node);
}
END_TEST

START_TEST(without_auto_resume_a_call_says_what_to_do)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	char id[ID_SIZE], token[128];

	open_all(&rig, &node, "{\"autoPause\":true}", id);
	token_of(&rig, id, token, sizeof(token));
	ck_assert_int_eq(post(&rig, "/sandboxes/*/pause", id, "{}"), 204);
	start_call(&rig, "/files?path=/a", id, "49983", token, &answer);
	loop_until(rig.base, &answer.done);
	ck_assert_int_eq(answer.status, 503);
	ck_assert_str_eq(answer_code(&answer), "SANDBOX_NOT_READY");
	ck_assert_ptr_nonnull(strstr(answer.body, "connect"));
	answer_free(&answer);
	expect_call(&rig, "/files?path=/a", id, "8080", NULL, 503, "SANDBOX_NOT_READY");
	expect_state(&rig, id, "paused");
	ck_assert_uint_eq(node.resumes, 0);
	close_all(&rig, &node);
}
END_TEST

static void expect_of_node(struct rig *rig, const char *what, const char *key, const char *id, int status, const char *part)
{
	struct answer answer;
	char pattern[64], path[96];

	(void)snprintf(pattern, sizeof(pattern), "/v1/sandboxes/*/%s", what);
	rig_path(path, sizeof(path), pattern, id);
	(void)rig_start_call(rig, "GET", path, key, NULL, 0, NULL, 0, &answer);
	loop_until(rig->base, &answer.done);
	ck_assert_msg(answer.status == status, "%d %s", answer.status, answer.body);
	ck_assert_ptr_nonnull(strstr(answer.body, part));
	answer_free(&answer);
}

/* The scheduler asks the node's gateway with the sandbox's own token, for its tenant alone, and passes on what it says as it is. */
START_TEST(what_changed_is_asked_of_the_node)
{
	struct rig rig;
	struct fake_node node;
	const char *what = _i ? "audit" : "diff";
	char id[ID_SIZE], token[128], asked[64];

	open_all(&rig, &node, "{\"secure\":true,\"autoPause\":true,\"autoResume\":{\"enabled\":true}}", id);
	token_of(&rig, id, token, sizeof(token));
	node.reply = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Length: 11\r\nConnection: close\r\n\r\n{\"end\":{}}\n";
	expect_of_node(&rig, what, rig.keys.tenant, id, 200, "{\"end\":{}}\n");
	(void)snprintf(asked, sizeof(asked), "GET /croft/%s HTTP/1.1\r\n", what);
	ck_assert_ptr_nonnull(strstr(node.request, asked));
	ck_assert_ptr_nonnull(strstr(node.request, token));
	ck_assert_ptr_null(strstr(node.request, rig.keys.tenant)); /* our key is no node's business */
	expect_of_node(&rig, what, rig.stranger, id, 404, "SANDBOX_NOT_FOUND");
	expect_of_node(&rig, what, rig.keys.tenant, "aaaaaaaaaaaaaaaaaaaa", 404, "SANDBOX_NOT_FOUND");
	/* to look at it is no reason to wake it */
	ck_assert_int_eq(post(&rig, "/sandboxes/*/pause", id, "{}"), 204);
	expect_of_node(&rig, what, rig.keys.tenant, id, 503, "SANDBOX_NOT_READY");
	expect_state(&rig, id, "paused");
	ck_assert_uint_eq(node.resumes, 0);
	close_all(&rig, &node);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-sleep");
	TCase *tcase = tcase_create("api-sleep");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, what_sleeps_is_woken_by_connect);
	tcase_add_test(tcase, what_its_node_cannot_is_told);
	tcase_add_test(tcase, an_older_agent_is_not_asked);
	tcase_add_test(tcase, what_is_not_built_is_refused);
	tcase_add_test(tcase, auto_pause_is_carried_and_shown);
	tcase_add_test(tcase, a_call_wakes_what_sleeps);
	tcase_add_loop_test(tcase, one_that_falls_asleep_is_woken_once, 0, 2);
	tcase_add_test(tcase, without_auto_resume_a_call_says_what_to_do);
	tcase_add_test(tcase, what_changed_is_asked_of_the_node);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
