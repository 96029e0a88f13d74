/* SPDX-License-Identifier: Apache-2.0
 *
 * What the dashboard rests on: its files, failures as a list and as they happen, the fleet in short, starts over time.
 */
#include <arpa/inet.h>
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/suite.h"
#include "server/events.h"
#include "unit/test-api-rig.h"

static struct rig rig;
static struct fake_node node;

static void fail_with(enum fail_code code)
{
	(void)err_set(&node.start_failure, code, 0, "made to fail");
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{}", failure_info(code)->http, failure_info(code)->name);
	memset(&node.start_failure, 0, sizeof(node.start_failure));
}

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

static struct answer ask(const char *path, const char *key)
{
	struct answer answer = rig_call(&rig, "GET", path, key, NULL);

	ck_assert_msg(answer.status == 200, "%s: %d %s", path, answer.status, answer.body);
	return answer;
}

static json_int_t number(const json_t *object, const char *name)
{
	ck_assert_msg(json_is_integer(json_object_get(object, name)), "%s", name);
	return json_integer_value(json_object_get(object, name));
}

static const char *text(const json_t *object, const char *name)
{
	const char *value = json_string_value(json_object_get(object, name));

	return value ? value : "";
}

/* ---- files ---- */

START_TEST(files_without_a_key_and_with_a_policy)
{
	struct answer answer = rig_call(&rig, "GET", "/", NULL, NULL), again;
	char etag[sizeof(answer.etag)];

	ck_assert_int_eq(answer.status, 303);
	ck_assert_str_eq(answer.location, "/dashboard/");
	answer_free(&answer);
	answer = ask("/dashboard/", NULL);
	ck_assert_ptr_nonnull(strstr(answer.body, "<!doctype html>"));
	ck_assert_ptr_nonnull(strstr(answer.policy, "default-src 'none'"));
	ck_assert_ptr_nonnull(strstr(answer.policy, "connect-src 'self'"));
	ck_assert_ptr_null(strstr(answer.policy, "unsafe"));
	ck_assert_ptr_null(strstr(answer.policy, "http"));
	ck_assert_uint_eq(strlen(answer.etag), 66);
	memcpy(etag, answer.etag, sizeof(etag));
	answer_free(&answer);
	(void)rig_start_call(&rig, "GET", "/dashboard/", NULL, NULL, 0, &(struct http_field){ "If-None-Match", etag }, 1, &again);
	loop_until(rig.base, &again.done);
	ck_assert_int_eq(again.status, 304);
	ck_assert_uint_eq(again.size, 0);
	answer_free(&again);
	rig_expect(&rig, "GET", "/dashboard/nothing.js", NULL, NULL, 404, "NO_SUCH_PATH");
	answer = ask("/dashboard/uplot.LICENSE", NULL);
	ck_assert_ptr_nonnull(strstr(answer.body, "Copyright"));
	answer_free(&answer);
}
END_TEST

/* ---- failures ---- */

START_TEST(failures_by_owner)
{
	struct answer answer;
	const json_t *list, *owners, *first;

	fail_with(FAIL_SETUP_FAILED);
	fail_with(FAIL_SETUP_FAILED);
	fail_with(FAIL_SETUP_TIMEOUT);
	answer = ask("/v1/failures", rig.keys.tenant);
	list = json_object_get(answer.json, "failures");
	owners = json_object_get(answer.json, "owners");
	first = json_array_get(list, 0);
	ck_assert_str_eq(text(first, "code"), "SETUP_TIMEOUT");
	ck_assert_str_eq(text(json_array_get(list, json_array_size(list) - 1), "code"), "SETUP_FAILED");
	ck_assert_str_eq(text(json_array_get(list, json_array_size(list) - 1), "owner"), "caller");
	ck_assert_str_eq(text(first, "node"), node.node);
	ck_assert_uint_eq(strlen(text(first, "trace")), 32);
	ck_assert_int_ge(number(json_object_get(owners, "caller"), "failed"), 2);
	ck_assert_int_eq(number(json_object_get(owners, "third-party"), "failed"), 0);
	ck_assert(json_is_true(json_object_get(answer.json, "complete")) && json_is_false(json_object_get(answer.json, "more")));
	answer_free(&answer);
	answer = ask("/v1/failures?limit=1&owner=caller", rig.keys.tenant);
	ck_assert_uint_eq(json_array_size(json_object_get(answer.json, "failures")), 1);
	ck_assert(json_is_true(json_object_get(answer.json, "more")));
	answer_free(&answer);
	answer = ask("/v1/failures?scope=all", rig.operator);
	ck_assert_uint_eq(json_array_size(json_object_get(answer.json, "failures")), 0);
	answer_free(&answer);
	rig_expect(&rig, "GET", "/v1/failures?window=long", rig.keys.tenant, NULL, 400, "INVALID_ARGUMENT");
}
END_TEST

START_TEST(a_failure_that_a_retry_saved)
{
	struct answer call, answer;
	const json_t *owners;
	json_int_t saved = 0, failed = 0;
	const char *name;
	json_t *one;

	(void)err_set(&node.start_failure, FAIL_IMAGE_FETCH_FAILED, 0, "once");
	node.created = false;
	(void)rig_start_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{}", 2, NULL, 0, &call);
	loop_until(rig.base, &node.created);
	memset(&node.start_failure, 0, sizeof(node.start_failure));
	loop_until(rig.base, &call.done);
	ck_assert_int_eq(call.status, 201);
	answer_free(&call);
	answer = ask("/v1/failures", rig.keys.tenant);
	owners = json_object_get(answer.json, "owners");
	json_object_foreach((json_t *)(uintptr_t)owners, name, one)
	{
		saved += number(one, "saved");
		failed += number(one, "failed");
	}
	ck_assert_int_eq(saved, 1);
	ck_assert_int_eq(failed, 0);
	ck_assert(json_is_true(json_object_get(json_array_get(json_object_get(answer.json, "failures"), 0), "saved")));
	answer_free(&answer);
}
END_TEST

/* ---- events ---- */

struct stream {
	int fd;
	char text[1 << 17];
	size_t n;
	bool is_over;
};

/* A client of its own: it reads when it is told to. */
static void stream_open(struct stream *stream, const char *key, const char *query, const char *last)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(api_port(rig.server->api)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const int small = 4096;
	char head[512];
	int n;

	memset(stream, 0, sizeof(*stream));
	stream->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(stream->fd, 0);
	(void)setsockopt(stream->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	ck_assert_int_eq(connect(stream->fd, (struct sockaddr *)&to, sizeof(to)), 0);
	n = snprintf(head, sizeof(head), "GET /v1/events%s HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\n%s%s%s\r\n", query, key,
		last ? "Last-Event-ID: " : "", last ? last : "", last ? "\r\n" : "");
	ck_assert_int_eq(send(stream->fd, head, (size_t)n, 0), n);
}

static void stream_pump(struct stream *stream)
{
	ssize_t got;

	loop_for(rig.base, 10);
	while (stream->n < sizeof(stream->text) - 1) {
		got = recv(stream->fd, stream->text + stream->n, sizeof(stream->text) - 1 - stream->n, MSG_DONTWAIT);
		if (got <= 0) {
			stream->is_over = stream->is_over || got == 0 || (errno != EAGAIN && errno != EINTR);
			break;
		}
		stream->n += (size_t)got;
		stream->text[stream->n] = '\0';
	}
}

static const char *stream_until(struct stream *stream, const char *what)
{
	for (int i = 0; i < 1000 && !strstr(stream->text, what); i++)
		stream_pump(stream);
	ck_assert_msg(strstr(stream->text, what), "no %s in: %.2000s", what, stream->text);
	return strstr(stream->text, what);
}

static unsigned int count_of(const char *in, const char *what)
{
	unsigned int n = 0;

	for (; (in = strstr(in, what)); in += strlen(what))
		n++;
	return n;
}

static void id_of(const char *event, char ret[static 64])
{
	while (strncmp(event, "id: ", 4) != 0)
		event--;
	(void)snprintf(ret, 64, "%.*s", (int)strcspn(event + 4, "\n"), event + 4);
}

static struct stream one, two, three;

START_TEST(failures_as_they_happen_to_those_who_may_see_them)
{
	events_pace(rig.server->events, 300000, 100000);
	stream_open(&one, rig.keys.tenant, "", NULL);
	stream_open(&two, rig.stranger, "?scope=all", NULL);
	stream_open(&three, rig.keys.provider, "?scope=all", NULL);
	(void)stream_until(&one, "\"missed\":0");
	(void)stream_until(&two, "event: hello");
	(void)stream_until(&three, "event: hello");
	fail_with(FAIL_SETUP_FAILED);
	(void)stream_until(&one, "SETUP_FAILED");
	(void)stream_until(&one, "event: changed");
	(void)stream_until(&three, "SETUP_FAILED");
	(void)stream_until(&two, ": beat");
	ck_assert_ptr_null(strstr(two.text, "SETUP_FAILED"));
	ck_assert_ptr_null(strstr(two.text, "changed")); /* nor that anything happened */
	ck_assert_uint_eq(events_clients(rig.server->events), 3);
	close(one.fd);
	close(two.fd);
	close(three.fd);
	for (int i = 0; i < 300 && events_clients(rig.server->events); i++)
		loop_for(rig.base, 10);
	ck_assert_uint_eq(events_clients(rig.server->events), 0);
}
END_TEST

START_TEST(a_stream_goes_on_where_it_broke)
{
	char id[64];

	stream_open(&one, rig.keys.tenant, "", NULL);
	(void)stream_until(&one, "event: hello");
	fail_with(FAIL_SETUP_FAILED);
	id_of(stream_until(&one, "SETUP_FAILED"), id);
	close(one.fd);
	fail_with(FAIL_SETUP_TIMEOUT);
	stream_open(&two, rig.keys.tenant, "", id);
	(void)stream_until(&two, "SETUP_TIMEOUT");
	ck_assert_ptr_null(strstr(two.text, "SETUP_FAILED")); /* it has that */
	ck_assert_ptr_nonnull(strstr(two.text, "\"missed\":0"));
	close(two.fd);
	stream_open(&three, rig.keys.tenant, "", "aaaaaaaaaaaaaaaaaaaa.1"); /* of another run */
	(void)stream_until(&three, "\"missed\":null");
	(void)stream_until(&three, "SETUP_FAILED");
	close(three.fd);
}
END_TEST

/* Failures as telemetry hears them, without a node that has to make them. */
static void many_of(const char *tenant, unsigned int n)
{
	const struct stage_fact fact = { .when_us = 1, .stage = STAGE_VMM, .outcome = RESULT_FAILED, .code = FAIL_KVM_UNAVAILABLE, .n = 1,
		.tenant = tenant, .pool = "default", .sandbox = "sandbox", .trace = "trace" };

	for (unsigned int i = 0; i < n; i++)
		events_stage(rig.server->events, &fact);
}

static void many(unsigned int n)
{
	many_of("default", n);
}

START_TEST(failures_of_others_push_nobody_out)
{
	stream_open(&one, rig.stranger, "", NULL);
	(void)stream_until(&one, "event: hello");
	loop_for(rig.base, 20);
	many(EVENTS_KEPT + 7);
	many_of("other", 1);
	(void)stream_until(&one, "KVM_UNAVAILABLE");
	ck_assert_uint_eq(count_of(one.text, "event: failure"), 1);
	ck_assert_uint_eq(events_dropped(rig.server->events), 0);
	close(one.fd);
}
END_TEST

START_TEST(what_is_no_longer_there_is_said)
{
	char id[64];

	stream_open(&one, rig.keys.tenant, "", NULL);
	(void)stream_until(&one, "event: hello");
	many(1);
	id_of(stream_until(&one, "KVM_UNAVAILABLE"), id);
	close(one.fd);
	many(EVENTS_KEPT + 7);
	stream_open(&two, rig.keys.tenant, "", id);
	(void)stream_until(&two, "\"missed\":7");
	for (int i = 0; i < 500 && count_of(two.text, "event: failure") < 100; i++)
		stream_pump(&two);
	close(two.fd);
}
END_TEST

START_TEST(one_that_does_not_read_is_cut_off)
{
	stream_open(&one, rig.keys.tenant, "", NULL);
	(void)stream_until(&one, "event: hello");
	for (int i = 0; i < 60; i++) { /* some 24 MB: more than the sockets of both ends hold */
		many(EVENTS_KEPT);
		loop_for(rig.base, 1);
	}
	for (int i = 0; i < 3000 && !one.is_over; i++) {
		one.n = 0;
		stream_pump(&one);
	}
	ck_assert(one.is_over);
	ck_assert_uint_eq(events_dropped(rig.server->events), 1);
	for (int i = 0; i < 300 && events_clients(rig.server->events); i++)
		loop_for(rig.base, 10);
	ck_assert_uint_eq(events_clients(rig.server->events), 0);
	close(one.fd);
}
END_TEST

START_TEST(a_key_has_eight_streams_and_none_when_it_is_revoked)
{
	static struct stream list[EVENTS_KEY_MAX];
	struct answer answer = rig_call(&rig, "GET", "/v1/whoami", rig.sibling, NULL);
	char id[64];

	answer_text(answer.json, "key", id, sizeof(id));
	answer_free(&answer);
	for (size_t i = 0; i < EVENTS_KEY_MAX; i++) {
		stream_open(&list[i], rig.sibling, "", NULL);
		(void)stream_until(&list[i], "event: hello");
	}
	rig_expect(&rig, "GET", "/v1/events", rig.sibling, NULL, 429, "RATE_LIMITED");
	rig_expect(&rig, "GET", "/v1/events", "croft_wrong", NULL, 401, "UNAUTHENTICATED");
	rig_expect_id(&rig, "DELETE", "/v1/keys/*", id, rig.keys.provider, NULL, 204, NULL);
	for (size_t i = 0; i < EVENTS_KEY_MAX; i++) {
		for (int k = 0; k < 600 && !list[i].is_over; k++)
			stream_pump(&list[i]);
		ck_assert_msg(list[i].is_over || strstr(list[i].text, "\r\n0\r\n\r\n"), "stream %zu goes on", i);
		close(list[i].fd);
	}
}
END_TEST

START_TEST(a_stream_ends_with_its_tenant)
{
	stream_open(&one, rig.sibling, "", NULL);
	(void)stream_until(&one, "event: hello");
	rig_expect(&rig, "DELETE", "/v1/tenants/sibling", rig.keys.provider, NULL, 204, NULL);
	for (int k = 0; k < 600 && events_clients(rig.server->events); k++)
		stream_pump(&one);
	ck_assert_uint_eq(events_clients(rig.server->events), 0);
	close(one.fd);
}
END_TEST

START_TEST(one_customer_does_not_take_all_streams)
{
	static struct stream list[EVENTS_CUSTOMER_MAX];
	char key[API_KEY_SIZE];
	struct answer answer;

	for (size_t i = 0; i < ARRAY_LEN(list); i++) {
		if (i % EVENTS_KEY_MAX == 0) {
			answer = rig_call(&rig, "POST", "/v1/keys", rig.keys.provider, "{\"role\":\"tenant\",\"tenant\":\"sibling\"}");
			ck_assert_msg(answer.status == 201, "%s", answer.body);
			answer_text(answer.json, "key", key, sizeof(key));
			answer_free(&answer);
		}
		stream_open(&list[i], key, "", NULL);
		(void)stream_until(&list[i], "event: hello");
	}
	rig_expect(&rig, "GET", "/v1/events", rig.keys.tenant, NULL, 429, "RATE_LIMITED");
	stream_open(&one, rig.stranger, "", NULL);
	(void)stream_until(&one, "event: hello");
	close(one.fd);
	for (size_t i = 0; i < ARRAY_LEN(list); i++)
		close(list[i].fd);
}
END_TEST

/* ---- the fleet ---- */

START_TEST(the_fleet_in_pages_and_its_sums)
{
	struct fake_node second;
	struct answer answer, rest;
	char id[ID_SIZE], path[96];
	const json_t *sums, *first;

	node_join(&second, &rig);
	node.created = second.created = false;
	answer = rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{\"vcpus\":2,\"memoryMB\":512}");
	ck_assert_int_eq(answer.status, 201);
	answer_free(&answer);
	answer = ask("/v1/fleet?limit=1", rig.keys.provider);
	sums = json_object_get(answer.json, "sums");
	ck_assert_int_eq(number(sums, "nodes"), 2);
	ck_assert_int_eq(number(sums, "ready"), 2);
	ck_assert_int_eq(number(sums, "schedulable"), 2);
	ck_assert_int_eq(number(sums, "sandboxes"), 1);
	ck_assert_int_eq(number(sums, "vcpus_reserved"), 2);
	ck_assert_int_eq(number(sums, "vcpus"), 2 * 4 * 4); /* 400 % */
	ck_assert_int_eq(number(sums, "memory_mib"), 2 * 4096);
	ck_assert_uint_eq(json_array_size(json_object_get(answer.json, "nodes")), 1);
	first = json_array_get(json_object_get(answer.json, "nodes"), 0);
	(void)snprintf(id, sizeof(id), "%s", text(first, "id"));
	ck_assert_str_eq(text(answer.json, "next"), id);
	(void)snprintf(path, sizeof(path), "/v1/fleet?limit=1&after=%s", id);
	rest = ask(path, rig.keys.provider);
	ck_assert(json_is_null(json_object_get(rest.json, "next")) && json_is_null(json_object_get(rest.json, "sums")));
	ck_assert_str_ne(text(json_array_get(json_object_get(rest.json, "nodes"), 0), "id"), id);
	ck_assert_int_eq(number(first, "sandboxes") + number(json_array_get(json_object_get(rest.json, "nodes"), 0), "sandboxes"), 1);
	answer_free(&rest);
	answer_free(&answer);
	rig_expect_id(&rig, "POST", "/v1/nodes/*/cordon", second.node, rig.keys.provider, "{}", 200, NULL);
	answer = ask("/v1/fleet?limit=0", rig.keys.provider);
	ck_assert_int_eq(number(json_object_get(answer.json, "sums"), "cordoned"), 1);
	ck_assert_int_eq(number(json_object_get(answer.json, "sums"), "schedulable"), 1);
	ck_assert_uint_eq(json_array_size(json_object_get(answer.json, "nodes")), 0);
	answer_free(&answer);
	answer = ask("/v1/fleet", rig.operator);
	ck_assert_int_eq(number(json_object_get(answer.json, "sums"), "nodes"), 0);
	answer_free(&answer);
	rig_expect(&rig, "GET", "/v1/fleet", rig.keys.tenant, NULL, 403, "FORBIDDEN");
	node_close(&second);
}
END_TEST

START_TEST(starts_over_time)
{
	struct answer answer;
	json_int_t starts = 0, failed = 0;
	double product = -1.0;
	char id[ID_SIZE];
	json_t *point;
	size_t i;

	rig_create(&rig, &node, "{}", id);
	rig_create(&rig, &node, "{}", id);
	fail_with(FAIL_SETUP_FAILED);
	answer = ask("/v1/stages/history?window=1h&points=12", rig.keys.tenant);
	ck_assert_int_le((int)json_array_size(json_object_get(answer.json, "points")), 12);
	ck_assert_int_ge((int)json_array_size(json_object_get(answer.json, "points")), 11);
	json_array_foreach(json_object_get(answer.json, "points"), i, point)
	{
		starts += number(point, "starts");
		failed += number(point, "failed");
		if (json_is_real(json_object_get(point, "product")))
			product = json_real_value(json_object_get(point, "product"));
	}
	ck_assert_int_eq(starts, 3);
	ck_assert_int_eq(failed, 1);
	ck_assert_double_eq_tol(product, 2.0 / 3, 1e-6);
	answer_free(&answer);
	answer = ask("/v1/stages/history?window=1h", rig.stranger);
	json_array_foreach(json_object_get(answer.json, "points"), i, point)
		ck_assert_int_eq(number(point, "starts"), 0);
	answer_free(&answer);
	rig_expect(&rig, "GET", "/v1/stages/history?node=x&template=y", rig.keys.tenant, NULL, 400, "INVALID_ARGUMENT");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-dashboard");
	TCase *tcase = tcase_create("api-dashboard");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, files_without_a_key_and_with_a_policy);
	tcase_add_test(tcase, failures_by_owner);
	tcase_add_test(tcase, a_failure_that_a_retry_saved);
	tcase_add_test(tcase, failures_as_they_happen_to_those_who_may_see_them);
	tcase_add_test(tcase, a_stream_goes_on_where_it_broke);
	tcase_add_test(tcase, what_is_no_longer_there_is_said);
	tcase_add_test(tcase, one_that_does_not_read_is_cut_off);
	tcase_add_test(tcase, a_key_has_eight_streams_and_none_when_it_is_revoked);
	tcase_add_test(tcase, failures_of_others_push_nobody_out);
	tcase_add_test(tcase, a_stream_ends_with_its_tenant);
	tcase_add_test(tcase, one_customer_does_not_take_all_streams);
	tcase_add_test(tcase, the_fleet_in_pages_and_its_sums);
	tcase_add_test(tcase, starts_over_time);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
