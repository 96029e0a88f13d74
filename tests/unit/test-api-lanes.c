/* SPDX-License-Identifier: Apache-2.0
 *
 * What travels over the link beside commands: images within their credit, and relayed calls.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lib/suite.h"
#include "server/message.h"
#include "test-api-rig.h"

/* ---- images ---- */
static void ask_image(struct fake_node *node, uint64_t request, const char *digest, uint64_t offset,
	uint32_t credit)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__ImageRequest message = MESSAGE(Croft__ImageRequest, croft__image_request__init);

	message.request = request;
	message.digest = (char *)(uintptr_t)digest;
	message.offset = offset;
	message.credit = credit;
	envelope.body_case = CROFT__ENVELOPE__BODY_IMAGE_REQUEST;
	envelope.image_request = &message;
	node_send(node, &envelope);
}

START_TEST(test_image_within_credit)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	char *bytes = malloc(300001), digest[DIGEST_SIZE];

	for (int i = 0; i < 300000; i++)
		bytes[i] = (char)('a' + i % 23);
	bytes[300000] = '\0';
	rig_open(&rig);
	rig_template(&rig, "base", bytes);
	answer = rig_call(&rig, "GET", "/v1/templates", rig.keys.tenant, NULL);
	answer_text(json_array_get(answer.json, 0), "digest", digest, sizeof(digest));
	answer_free(&answer);
	node_join(&node, &rig);
	node.image = malloc(300000);
	node.image_room = 300000;
	ask_image(&node, 1, digest, 0, 100000);
	for (int i = 0; i < 200 && node.image_size < 100000; i++)
		loop_for(rig.base, 5);
	loop_for(rig.base, 50);
	ck_assert_uint_eq(node.image_size, 100000); /* what was granted, and not a byte more */
	ask_image(&node, 1, digest, 100000, 1000000);
	loop_until(rig.base, &node.image_whole);
	ck_assert_int_eq(memcmp(node.image, bytes, 300000), 0);
	ask_image(&node, 1, digest, 300000, 5000); /* late credit begins nothing anew */
	loop_for(rig.base, 50);
	ck_assert_uint_eq(node.image_size, 300000);
	node.image_size = 250000; /* resumed by a later request */
	node.image_whole = false;
	ask_image(&node, 2, digest, 250000, 1000000);
	loop_until(rig.base, &node.image_whole);
	ck_assert_int_eq(memcmp(node.image, bytes, 300000), 0);
	node.image_whole = false;
	ask_image(&node, 3,
		"sha256:0000000000000000000000000000000000000000000000000000000000000000", 0, 1000);
	loop_until(rig.base, &node.image_whole);
	ck_assert_int_eq(node.image_failure.code, FAIL_IMAGE_NOT_FOUND);
	free(node.image);
	free(bytes);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_image_of_another_customer)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	char digest[DIGEST_SIZE];

	rig_open(&rig);
	answer = rig_call(&rig, "PUT", "/v1/templates/secret", rig.stranger, "their bytes");
	ck_assert_int_eq(answer.status, 201);
	answer_text(answer.json, "digest", digest, sizeof(digest));
	answer_free(&answer);
	node_join(&node, &rig);
	ask_image(&node, 1, digest, 0, 1000);
	loop_until(rig.base, &node.image_whole);
	ck_assert_int_eq(node.image_failure.code, FAIL_IMAGE_NOT_FOUND);
	ck_assert_uint_eq(node.image_size, 0);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

/* ---- the relay ---- */
static void call_sandbox(struct rig *rig, const char *method, const char *path, const char *id,
	const char *body, struct answer *answer)
{
	const struct http_field fields[] = { { "e2b-sandbox-id", id },
		{ "e2b-sandbox-port", "49983" }, { "x-access-token", "secret" } };

	(void)rig_start_call(rig, method, path, rig->keys.tenant, body, body ? strlen(body) : 0,
		fields, 3, answer);
}

START_TEST(test_relay)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{}", id);
	node.reply =
		"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nX-Own: yes\r\nConnection: close\r\n\r\nhello";
	call_sandbox(&rig, "POST", "/files?path=/a%20b", id, "request body", &answer);
	loop_until(rig.base, &answer.done);
	ck_assert_msg(answer.status == 201, "%d %s", answer.status, answer.err.msg);
	ck_assert_str_eq(answer.body, "hello");
	ck_assert_ptr_nonnull(strstr(node.request, "POST /files?path=/a%20b HTTP/1.1\r\n"));
	ck_assert_ptr_nonnull(strstr(node.request, "x-access-token: secret"));
	ck_assert_ptr_nonnull(strstr(node.request, id));
	ck_assert_ptr_null(
		strstr(node.request, rig.keys.tenant)); /* our key is no node's business */
	answer_free(&answer);
	/* the close comes when both are through */
	loop_until(rig.base, &node.stream_closed);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_relay_large_answer)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	char id[ID_SIZE], *reply = malloc(200200);
	int head;

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{}", id);
	head = snprintf(reply, 200, "HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n");
	memset(reply + head, 'x', 60000);
	reply[head + 60000] = '\0';
	node.reply = reply;
	call_sandbox(&rig, "GET", "/files?path=/big", id, NULL, &answer);
	loop_until(rig.base, &answer.done);
	ck_assert_int_eq(answer.status, 200);
	ck_assert_uint_eq(answer.size, 60000);
	answer_free(&answer);
	free(reply);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_relay_client_leaves)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	struct http_call *call;
	const struct http_field fields[2] = { { "e2b-sandbox-id", NULL },
		{ "e2b-sandbox-port", "49983" } };
	struct http_field with_id[2] = { fields[0], fields[1] };
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{}", id);
	with_id[0].value = id;
	node.reply = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
	node.reply_goes_on = true;
	call = rig_start_call(
		&rig, "POST", "/process.Process/Start", NULL, "{}", 2, with_id, 2, &answer);
	loop_until(rig.base, &answer.begun);
	http_call_cancel(call);
	loop_until(rig.base, &node.stream_closed);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_relay_node_cut)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	char id[ID_SIZE];

	rig_open(&rig);
	rig.server->counters.relay_refused = 0;
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{}", id);
	node_close(&node);
	for (int i = 0; i < 100; i++) { /* it is noticed by a send, or by silence */
		call_sandbox(&rig, "GET", "/health", id, NULL, &answer);
		loop_until(rig.base, &answer.done);
		if (answer.status == 503)
			break;
		answer_free(&answer);
	}
	ck_assert_int_eq(answer.status, 503);
	ck_assert_str_eq(answer_code(&answer), "NODE_UNREACHABLE");
	answer_free(&answer);
	/* the sandbox is still there, and we say that we do not know better */
	answer = rig_get(&rig, rig.keys.tenant, "/v1/sandboxes/*", id);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "state")), "running");
	ck_assert(json_is_false(json_object_get(answer.json, "certain")));
	answer_free(&answer);
	rig_close(&rig);
}
END_TEST

/* An agent that is stopped: it has the call, its connection stands, and nothing comes. */
START_TEST(test_relay_node_silent)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	int64_t began;
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{}", id);
	call_sandbox(&rig, "POST", "/process.Process/Start", id, "{}", &answer);
	event_free(TAKE(node.beat));
	began = clock_monotonic_usec();
	loop_until(rig.base, &answer.done);
	ck_assert_int_eq(answer.status, 503);
	ck_assert_str_eq(answer_code(&answer), "NODE_UNREACHABLE");
	ck_assert_ptr_nonnull(strstr(answer.body, "is not known")); /* whether it began */
	ck_assert_int_lt(clock_monotonic_usec() - began, 15 * USEC_PER_SEC);
	answer_free(&answer);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-lanes");
	TCase *tc = tcase_create("api-lanes");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_image_within_credit);
	tcase_add_test(tc, test_image_of_another_customer);
	tcase_add_test(tc, test_relay);
	tcase_add_test(tc, test_relay_large_answer);
	tcase_add_test(tc, test_relay_client_leaves);
	tcase_add_test(tc, test_relay_node_cut);
	tcase_add_test(tc, test_relay_node_silent);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
