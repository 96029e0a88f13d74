/* SPDX-License-Identifier: Apache-2.0
 *
 * Spans for a collector. The core alone, on times that are made up: batches, pauses, every drop counted, the JSON field by field. Then
 * a scheduler with a collector on the same loop, which takes, refuses, hangs.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/suite.h"
#include "server/otlp.h"
#include "server/telemetry.h"
#include "unit/test-api-rig.h"
#include "wire/http-server.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define OTHER_TRACE "1af7651916cd43dd8448eb211c80319c"
#define SPAN "b7ad6b7169203331"
#define ROOT "00f067aa0ba902b7"
#define SEC USEC_PER_SEC
#define CANARY "canary-7c1e"

static const struct otlp_config small = { .queue = 5,
	.batch = 3,
	.linger_us = SEC,
	.backoff_min_us = SEC,
	.backoff_max_us = 8 * SEC,
	.retry_after_max_us = 3600 * SEC };

static struct otlp_queue *queue;
static struct rng rng;

static void open_queue(void)
{
	rng = rng_seeded(7);
	ck_assert_int_eq(otlp_queue_new(&queue, &small), 0);
}

static void close_queue(void)
{
	queue = otlp_queue_free(queue);
}

static struct stage_fact fact_now(int64_t when_us)
{
	return (struct stage_fact){ .when_us = when_us, .took_us = 5, .stage = STAGE_VMM, .outcome = RESULT_OK, .trace = TRACE, .sandbox = "sb1" };
}

static void add(int64_t now_us, int64_t when_us)
{
	const struct stage_fact fact = fact_now(when_us);
	struct otlp_span span;

	otlp_span_of(&fact, SPAN, NULL, NULL, &span);
	otlp_queue_add(queue, &span, now_us);
}

static void answer(int status, int64_t after_us, uint64_t rejected, int64_t now_us)
{
	const struct otlp_answer it = { .status = status, .retry_after_us = after_us, .rejected = rejected };

	otlp_queue_answered(queue, &it, now_us, &rng);
}

static uint64_t all_dropped(const struct otlp_counts *counts)
{
	uint64_t n = 0;

	for (size_t i = 0; i < OTLP_DROP_MAX_; i++)
		n += counts->dropped[i];
	return n;
}

START_TEST(a_batch_waits_or_is_full)
{
	ck_assert_int_eq(otlp_queue_next_us(queue), OTLP_NEVER);
	ck_assert_uint_eq(otlp_queue_due(queue, 100 * SEC), 0);
	add(10 * SEC, 1);
	add(10 * SEC + 5, 2);
	ck_assert_int_eq(otlp_queue_next_us(queue), 11 * SEC);
	ck_assert_uint_eq(otlp_queue_due(queue, 11 * SEC - 1), 0);
	add(10 * SEC + 6, 3);
	add(10 * SEC + 7, 4);
	ck_assert_uint_eq(otlp_queue_due(queue, 10 * SEC + 7), 3);
	ck_assert_uint_eq(otlp_queue_due(queue, 99 * SEC), 0); /* one at a time */
	ck_assert_int_eq(otlp_queue_next_us(queue), OTLP_NEVER);
	answer(200, 0, 0, 12 * SEC);
	ck_assert_uint_eq(otlp_queue_waiting(queue), 1);
	ck_assert_uint_eq(otlp_queue_due(queue, 13 * SEC), 1);
	ck_assert_int_eq(otlp_queue_at(queue, 0)->began_us, 4);
	answer(202, 0, 0, 13 * SEC);
	ck_assert_uint_eq(otlp_queue_counts(queue)->sent, 4);
	ck_assert_uint_eq(all_dropped(otlp_queue_counts(queue)), 0);
}
END_TEST

static const int later[] = { 0, 429, 502, 503, 504 };

/* Doubled pauses with a drawn half, up to a bound, for ever; the same spans each time, whatever comes behind them. */
START_TEST(sent_again)
{
	int64_t now_us = 10 * SEC, whole = SEC;

	for (int64_t i = 1; i <= 3; i++)
		add(now_us, i);
	for (unsigned int i = 0; i < 12; i++) {
		ck_assert_uint_eq(otlp_queue_due(queue, now_us), 3);
		ck_assert_int_eq(otlp_queue_at(queue, 0)->began_us, 1);
		answer(later[_i], 0, 0, now_us);
		ck_assert_int_ge(otlp_queue_next_us(queue), now_us + whole / 2);
		ck_assert_int_le(otlp_queue_next_us(queue), now_us + whole);
		ck_assert_uint_eq(otlp_queue_due(queue, otlp_queue_next_us(queue) - 1), 0);
		now_us = otlp_queue_next_us(queue);
		whole = MIN(whole * 2, small.backoff_max_us);
		if (i < 2)
			add(now_us, 9);
	}
	ck_assert_uint_eq(otlp_queue_counts(queue)->retries, 12);
	ck_assert_uint_eq(otlp_queue_due(queue, now_us), 3);
	answer(200, 0, 0, now_us);
	ck_assert_uint_eq(otlp_queue_counts(queue)->sent, 3);
	ck_assert_uint_eq(otlp_queue_waiting(queue), 2);
	now_us = otlp_queue_next_us(queue);
	ck_assert_uint_eq(otlp_queue_due(queue, now_us), 2);
	answer(later[_i], 0, 0, now_us); /* the pauses begin anew */
	ck_assert_int_le(otlp_queue_next_us(queue), now_us + SEC);
}
END_TEST

START_TEST(pauses_differ)
{
	int64_t pauses[2];

	for (unsigned int i = 0; i < 2; i++) {
		close_queue();
		ck_assert_int_eq(otlp_queue_new(&queue, &small), 0);
		rng = rng_seeded(i + 1);
		add(0, 1);
		ck_assert_uint_eq(otlp_queue_due(queue, SEC), 1);
		answer(503, 0, 0, SEC);
		pauses[i] = otlp_queue_next_us(queue);
	}
	ck_assert_int_ne(pauses[0], pauses[1]);
}
END_TEST

START_TEST(retry_after)
{
	add(0, 1);
	ck_assert_uint_eq(otlp_queue_due(queue, SEC), 1);
	answer(429, 90 * SEC, 0, SEC);
	ck_assert_int_ge(otlp_queue_next_us(queue), 91 * SEC);
	ck_assert_int_le(otlp_queue_next_us(queue), 92 * SEC);
	ck_assert_uint_eq(otlp_queue_due(queue, 93 * SEC), 1);
	answer(503, otlp_retry_after("99999999999999999999", 0), 0, 93 * SEC);
	ck_assert_int_le(otlp_queue_next_us(queue), (93 + 3600 + 2) * SEC);
	ck_assert_int_eq(otlp_retry_after("120", 5), 120 * SEC);
	ck_assert_int_eq(otlp_retry_after("Thu, 01 Jan 1970 00:01:40 GMT", 40 * SEC), 60 * SEC);
	ck_assert_int_eq(otlp_retry_after("Thu, 01 Jan 1970 00:01:40 GMT", 400 * SEC), 0);
	ck_assert_int_eq(otlp_retry_after("soon", 0), 0);
	ck_assert_int_eq(otlp_retry_after("-3", 0), 0);
	ck_assert_int_eq(otlp_retry_after("", 0), 0);
}
END_TEST

/* Each reason once, and the sum: what was handed in was sent, dropped, or waits. */
START_TEST(drops_are_counted)
{
	const struct otlp_counts *counts = otlp_queue_counts(queue);
	struct otlp_counts since;
	struct stage_fact fact = fact_now(1);
	struct otlp_span span;

	ck_assert(!otlp_queue_say(queue, 0, &since));
	for (int64_t i = 1; i <= 7; i++)
		add(0, i);
	ck_assert_uint_eq(counts->dropped[OTLP_DROP_FULL], 2);
	ck_assert(otlp_queue_say(queue, 0, &since));
	ck_assert_uint_eq(since.dropped[OTLP_DROP_FULL], 2);
	ck_assert_uint_eq(otlp_queue_due(queue, 0), 3);
	answer(400, 0, 0, 0);
	ck_assert_uint_eq(counts->dropped[OTLP_DROP_REFUSED], 3);
	ck_assert(!otlp_queue_say(queue, OTLP_SAY_US - 1, &since)); /* once a minute */
	ck_assert_int_eq(otlp_queue_say_us(queue), OTLP_SAY_US);
	ck_assert(otlp_queue_say(queue, OTLP_SAY_US, &since));
	ck_assert_uint_eq(since.dropped[OTLP_DROP_REFUSED], 3);
	ck_assert_uint_eq(since.dropped[OTLP_DROP_FULL], 0);
	ck_assert_int_eq(otlp_queue_say_us(queue), OTLP_NEVER);
	ck_assert_uint_eq(otlp_queue_due(queue, 9 * SEC), 2);
	answer(200, 0, 1, 9 * SEC);
	ck_assert_uint_eq(counts->dropped[OTLP_DROP_REJECTED], 1);
	ck_assert_uint_eq(counts->sent, 1);
	fact.trace = CANARY;
	otlp_span_of(&fact, SPAN, NULL, NULL, &span);
	otlp_queue_add(queue, &span, 9 * SEC);
	fact.trace = TRACE;
	otlp_span_of(&fact, "not a span", NULL, NULL, &span);
	otlp_queue_add(queue, &span, 9 * SEC);
	ck_assert_uint_eq(counts->dropped[OTLP_DROP_UNTRACED], 2);
	add(9 * SEC, 1);
	ck_assert_uint_eq(otlp_queue_due(queue, 20 * SEC), 1);
	otlp_queue_unsent(queue);
	ck_assert_uint_eq(counts->dropped[OTLP_DROP_UNSENT], 1);
	add(20 * SEC, 1);
	ck_assert_uint_eq(otlp_queue_due(queue, 30 * SEC), 1);
	answer(200, 0, 1000, 30 * SEC); /* no more than there were */
	ck_assert_uint_eq(counts->dropped[OTLP_DROP_REJECTED], 2);
	ck_assert_uint_eq(counts->sent + all_dropped(counts) + otlp_queue_waiting(queue), 11);
	ck_assert_uint_eq(otlp_queue_waiting(queue), 0);
}
END_TEST

START_TEST(ids_of_spans)
{
	const struct trace root = { TRACE, ROOT }, other = { OTHER_TRACE, ROOT };
	struct stage_fact fact = fact_now(77);
	struct otlp_span span, again;

	otlp_span_of(&fact, SPAN, &root, NULL, &span);
	ck_assert_str_eq(span.span, SPAN);
	ck_assert_str_eq(span.parent, ROOT);
	otlp_span_of(&fact, SPAN, &other, NULL, &span); /* of its caller's trace */
	ck_assert_str_eq(span.parent, "");
	otlp_span_of(&fact, ROOT, &root, NULL, &span); /* nobody is its own parent */
	ck_assert_str_eq(span.parent, "");
	otlp_span_of(&fact, "", &root, NULL, &span);
	otlp_span_of(&fact, NULL, &root, NULL, &again);
	ck_assert_str_eq(span.span, again.span);
	ck_assert_uint_eq(strlen(span.span), 16);
	fact.attempt++;
	otlp_span_of(&fact, "", &root, NULL, &again);
	ck_assert_str_ne(span.span, again.span);
}
END_TEST

static const char *text(const json_t *object, const char *name)
{
	const char *value = json_string_value(json_object_get(object, name));

	ck_assert_msg(value, "%s", name);
	return value;
}

/* NULL: it has none. Of a number: its digits, which are a string. */
static const char *attribute(const json_t *owner, const char *key)
{
	const json_t *value, *item;
	size_t i;

	json_array_foreach(json_object_get(owner, "attributes"), i, item) {
		if (strcmp(text(item, "key"), key) != 0)
			continue;
		value = json_object_get(item, "value");
		ck_assert_uint_eq(json_object_size(value), 1);
		return json_object_get(value, "intValue") ? text(value, "intValue") : text(value, "stringValue");
	}
	return NULL;
}

static const json_t *spans_of(const json_t *request)
{
	const json_t *resource = json_array_get(json_object_get(request, "resourceSpans"), 0);
	const json_t *scope = json_array_get(json_object_get(resource, "scopeSpans"), 0);

	ck_assert_uint_eq(json_array_size(json_object_get(request, "resourceSpans")), 1);
	ck_assert_uint_eq(json_array_size(json_object_get(resource, "scopeSpans")), 1);
	ck_assert_str_eq(attribute(json_object_get(resource, "resource"), "service.name"), "croft-scheduler");
	ck_assert_str_eq(attribute(json_object_get(resource, "resource"), "service.version"), CROFT_VERSION);
	ck_assert_ptr_nonnull(attribute(json_object_get(resource, "resource"), "service.instance.id"));
	ck_assert_str_eq(text(json_object_get(scope, "scope"), "name"), "croft.stages");
	return json_object_get(scope, "spans");
}

START_TEST(each_field)
{
	static const char *const expected[][2] = { { "croft.outcome", "failed" }, { "croft.code", "NO_CAPACITY" }, { "croft.component", "node-host" },
		{ "croft.owner", "provider" }, { "croft.sandbox", "sb1" }, { "croft.tenant", "acme" }, { "croft.pool", "gpu" }, { "croft.node", "n1" },
		{ "croft.template", "base" }, { "croft.node_version", "0.1" }, { "croft.attempt", "2" }, { "croft.calls", "40" },
		{ "croft.vcpus", "4" }, { "croft.memory_mib", "8192" } };
	const struct trace root = { TRACE, ROOT };
	const struct stage_fact failed = { .when_us = INT64_C(1790000000123456), .took_us = 2500, .stage = STAGE_PLACE, .outcome = RESULT_FAILED,
		.code = FAIL_NO_CAPACITY, .n = 40, .attempt = 2, .vcpus = 4, .memory_mib = 8192, .sandbox = "sb1", .trace = TRACE, .tenant = "acme",
		.pool = "gpu", .node = "n1", .template_name = "base", .version = "0.1", .region = "\xff\xfe" };
	struct stage_fact others[] = { fact_now(1), fact_now(2) };
	struct otlp_span span;
	const json_t *spans, *it;
	json_t *request;

	others[1].outcome = RESULT_SKIPPED;
	others[1].took_us = INT64_MIN;
	otlp_span_of(&failed, SPAN, &root, "provider", &span);
	otlp_queue_add(queue, &span, 0);
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		otlp_span_of(&others[i], SPAN, NULL, NULL, &span);
		otlp_queue_add(queue, &span, 0);
	}
	request = otlp_request(queue, 3, CROFT_VERSION, "run");
	ck_assert_ptr_nonnull(request);
	spans = spans_of(request);
	ck_assert_uint_eq(json_array_size(spans), 3);
	it = json_array_get(spans, 0);
	ck_assert_uint_eq(json_object_size(it), 9);
	ck_assert_str_eq(text(it, "traceId"), TRACE);
	ck_assert_str_eq(text(it, "spanId"), SPAN);
	ck_assert_str_eq(text(it, "parentSpanId"), ROOT);
	ck_assert_str_eq(text(it, "name"), "place");
	ck_assert_int_eq(json_integer_value(json_object_get(it, "kind")), 1);
	ck_assert_str_eq(text(it, "startTimeUnixNano"), "1790000000123456000");
	ck_assert_str_eq(text(it, "endTimeUnixNano"), "1790000000125956000");
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(it, "status"), "code")), 2);
	ck_assert_str_eq(text(json_object_get(it, "status"), "message"), "NO_CAPACITY");
	for (size_t i = 0; i < ARRAY_LEN(expected); i++)
		ck_assert_str_eq(attribute(it, expected[i][0]), expected[i][1]);
	/* nothing else, and not the region, which was no text */
	ck_assert_uint_eq(json_array_size(json_object_get(it, "attributes")), ARRAY_LEN(expected));
	it = json_array_get(spans, 1);
	ck_assert_ptr_null(json_object_get(it, "parentSpanId"));
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(it, "status"), "code")), 1);
	ck_assert_ptr_null(attribute(it, "croft.code"));
	ck_assert_ptr_null(attribute(it, "croft.calls"));
	it = json_array_get(spans, 2);
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(it, "status"), "code")), 0);
	ck_assert_str_eq(text(it, "endTimeUnixNano"), text(it, "startTimeUnixNano"));
	json_decref(request);
}
END_TEST

static const struct {
	const char *body;
	uint64_t n;
} bodies[] = { { "{}", 0 }, { "", 0 }, { "nonsense", 0 }, { "[]", 0 }, { "{\"partialSuccess\":{\"rejectedSpans\":\"3\"}}", 3 },
	{ "{\"partialSuccess\":{\"rejectedSpans\":4,\"errorMessage\":\"x\"}}", 4 }, { "{\"partialSuccess\":{\"rejectedSpans\":\"-3\"}}", 0 } };

START_TEST(a_part_was_taken)
{
	ck_assert_uint_eq(otlp_rejected(bodies[_i].body, strlen(bodies[_i].body)), bodies[_i].n);
}
END_TEST

/* ---- with a collector ---- */

#define REQUESTS_MAX 16

static struct collector {
	struct http_server *server;
	int statuses[REQUESTS_MAX]; /* of the requests in turn; 0: 200, -1: it hangs */
	const char *answer, *after;
	unsigned int n; /* requests */
	json_t *requests[REQUESTS_MAX];
	char authorization[64], type[64];
} collector;

static struct rig rig;

static void on_whole(struct http_request *req, const char *body, size_t size, void *user)
{
	const struct http_field after = { "Retry-After", collector.after };
	const int status = collector.statuses[collector.n];

	(void)user;
	ck_assert_uint_lt(collector.n, REQUESTS_MAX - 1);
	ck_assert_ptr_null(strstr(body, CANARY));
	collector.requests[collector.n] = json_loadb(body, size, JSON_REJECT_DUPLICATES, NULL);
	ck_assert_ptr_nonnull(collector.requests[collector.n]);
	collector.n++;
	if (status >= 0)
		ck_assert_int_eq(http_respond(req, status ? status : 200, "application/json", &after, collector.after ? 1 : 0,
					 collector.answer ? collector.answer : "{}", strlen(collector.answer ? collector.answer : "{}")), 0);
}

static void on_request(struct http_request *req, void *user)
{
	const char *authorization = http_header(req, "Authorization");

	ck_assert_str_eq(http_method(req), "POST");
	ck_assert_str_eq(http_path(req), "/v1/traces");
	(void)snprintf(collector.authorization, sizeof(collector.authorization), "%s", authorization ? authorization : "");
	(void)snprintf(collector.type, sizeof(collector.type), "%s", http_header(req, "Content-Type"));
	http_read_body(req, 1 << 20, on_whole, user);
}

static void replace(char **option, const char *value)
{
	free(*option);
	*option = strdup(value);
	ck_assert_ptr_nonnull(*option);
}

static void put_headers(const char *value, mode_t mode)
{
	char path[PATH_MAX];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/headers", rig.dir);
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	(void)fputs(value, file);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
	replace(&rig.options.otlp_headers_file, path);
}

static void set_up(void)
{
	const struct http_server_config config = { .address = "127.0.0.1", .max_connections = 16 };
	const struct http_handler handler = { .on_request = on_request };
	struct err err = ERR_NULL;
	char url[96];

	memset(&collector, 0, sizeof(collector));
	rig_open(&rig);
	rig_stop(&rig);
	ck_assert_int_eq(http_server_new(&collector.server, rig.base, &config, &handler, NULL, &err), 0);
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1/traces", http_server_port(collector.server));
	replace(&rig.options.otlp_endpoint, url);
	put_headers("# of the collector\n\nAuthorization: Bearer " CANARY "\r\n", 0600);
	rig.options.otlp_queue = 8;
	rig.options.otlp_batch = 4;
	rig.options.otlp_timeout = SEC / 2;
	rig_start(&rig);
}

static void tear_down(void)
{
	rig_close(&rig);
	http_server_free(collector.server);
	for (unsigned int i = 0; i < collector.n; i++)
		json_decref(collector.requests[i]);
}

static void await_requests(unsigned int n)
{
	for (unsigned int i = 0; i < 30000 && collector.n < n; i++)
		loop_for(rig.base, 1);
	ck_assert_uint_ge(collector.n, n);
}

static void await_sent(uint64_t sent, uint64_t dropped)
{
	struct otlp_counts counts = otlp_count(rig.server->otlp);

	for (unsigned int i = 0; i < 30000 && (counts.sent != sent || all_dropped(&counts) != dropped); i++) {
		loop_for(rig.base, 1);
		counts = otlp_count(rig.server->otlp);
	}
	ck_assert_uint_eq(counts.sent, sent);
	ck_assert_uint_eq(all_dropped(&counts), dropped);
}

static void add_stages(unsigned int n)
{
	const struct trace root = { TRACE, ROOT };
	char span[SPAN_ID_SIZE];

	for (unsigned int i = 1; i <= n; i++) {
		const struct stage_fact fact = fact_now(i);

		(void)snprintf(span, sizeof(span), "%016u", i);
		otlp_stage(rig.server->otlp, &fact, span, &root);
	}
}

START_TEST(taken)
{
	add_stages(6);
	await_sent(6, 0);
	ck_assert_uint_eq(collector.n, 2); /* one of four, and two after a second */
	ck_assert_uint_eq(json_array_size(spans_of(collector.requests[0])), 4);
	ck_assert_uint_eq(json_array_size(spans_of(collector.requests[1])), 2);
	ck_assert_str_eq(collector.authorization, "Bearer " CANARY);
	ck_assert_str_eq(collector.type, "application/json");
	ck_assert_uint_eq(otlp_waiting(rig.server->otlp), 0);
}
END_TEST

/* Refused for now, then without an answer, then taken: the same each time, and what found no room meanwhile is counted. */
START_TEST(refused_then_hangs_then_taken)
{
	struct answer metrics;

	collector.statuses[0] = 503;
	collector.statuses[1] = -1;
	add_stages(11);
	ck_assert_uint_eq(otlp_count(rig.server->otlp).dropped[OTLP_DROP_FULL], 3);
	await_sent(8, 3);
	ck_assert_uint_eq(otlp_count(rig.server->otlp).retries, 2);
	ck_assert_uint_eq(collector.n, 4);
	ck_assert(json_equal(collector.requests[0], collector.requests[1]));
	ck_assert(json_equal(collector.requests[0], collector.requests[2]));
	ck_assert(!json_equal(collector.requests[0], collector.requests[3]));
	metrics = rig_call(&rig, "GET", "/metrics", rig.keys.provider, NULL);
	ck_assert_int_eq(metrics.status, 200);
	ck_assert_ptr_nonnull(strstr(metrics.body, "\ncroft_otlp_sent_total 8\n"));
	ck_assert_ptr_nonnull(strstr(metrics.body, "\ncroft_otlp_dropped_total{reason=\"full\"} 3\n"));
	ck_assert_ptr_nonnull(strstr(metrics.body, "\ncroft_otlp_retries_total 2\n"));
	ck_assert_ptr_nonnull(strstr(metrics.body, "\ncroft_otlp_waiting 0\n"));
	answer_free(&metrics);
}
END_TEST

START_TEST(said_when_to_come_back)
{
	const int64_t began_us = clock_monotonic_usec();

	collector.statuses[0] = 429;
	collector.after = "3";
	add_stages(4);
	await_requests(2);
	ck_assert_int_ge(clock_monotonic_usec() - began_us, 3 * SEC);
	await_sent(4, 0);
}
END_TEST

START_TEST(refused_for_good)
{
	collector.statuses[0] = 400;
	add_stages(8);
	await_sent(4, 4);
	ck_assert_uint_eq(otlp_count(rig.server->otlp).dropped[OTLP_DROP_REFUSED], 4);
	ck_assert_uint_eq(otlp_count(rig.server->otlp).retries, 0);
	ck_assert_uint_eq(collector.n, 2);
}
END_TEST

START_TEST(taken_in_part)
{
	collector.answer = "{\"partialSuccess\":{\"rejectedSpans\":\"1\"}}";
	add_stages(4);
	await_sent(3, 1);
	ck_assert_uint_eq(otlp_count(rig.server->otlp).dropped[OTLP_DROP_REJECTED], 1);
}
END_TEST

/* Nobody listens: nothing is lost but what finds no room, and the scheduler goes on and ends. */
START_TEST(nobody_there)
{
	http_server_free(TAKE(collector.server));
	add_stages(9);
	for (unsigned int i = 0; i < 30000 && otlp_count(rig.server->otlp).retries == 0; i++)
		loop_for(rig.base, 1);
	ck_assert_uint_gt(otlp_count(rig.server->otlp).retries, 0);
	ck_assert_uint_eq(otlp_waiting(rig.server->otlp), 8);
	rig_expect(&rig, "GET", "/health", rig.keys.tenant, NULL, 200, NULL);
}
END_TEST

static const json_t *span_named(const char *name)
{
	const json_t *span;
	size_t i;

	for (unsigned int n = 0; n < collector.n; n++)
		json_array_foreach(spans_of(collector.requests[n]), i, span)
			if (!strcmp(text(span, "name"), name))
				return span;
	return NULL;
}

/* A whole life: the stages lie under the run's span, which comes when it is over; what its caller wrote into it does not leave. */
START_TEST(a_run)
{
	const json_t *run = NULL, *place;
	struct fake_node node;
	char id[ID_SIZE], path[128];

	rig.options.otlp_batch = rig.options.otlp_queue = 200;
	rig_stop(&rig);
	rig_start(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{\"vcpus\":1,\"memoryMB\":64,\"metadata\":{\"a\":\"" CANARY "\"},\"envVars\":{\"B\":\"" CANARY "\"}}", id);
	(void)snprintf(path, sizeof(path), "/v1/sandboxes/%s", id);
	rig_expect(&rig, "DELETE", path, rig.keys.tenant, NULL, 204, NULL);
	for (unsigned int i = 0; i < 30000 && !run; i++) {
		loop_for(rig.base, 1);
		run = span_named("sandbox");
	}
	ck_assert_ptr_nonnull(run);
	place = span_named("place");
	ck_assert_ptr_nonnull(place);
	ck_assert_str_eq(text(place, "traceId"), text(run, "traceId"));
	ck_assert_str_eq(text(place, "parentSpanId"), text(run, "spanId"));
	ck_assert_ptr_null(json_object_get(run, "parentSpanId"));
	ck_assert_str_eq(attribute(run, "croft.sandbox"), id);
	ck_assert_str_eq(attribute(place, "croft.sandbox"), id);
	ck_assert_str_eq(attribute(place, "croft.tenant"), "default");
	ck_assert_int_ge(strtoll(text(run, "endTimeUnixNano"), NULL, 10), strtoll(text(run, "startTimeUnixNano"), NULL, 10));
	node_close(&node);
}
END_TEST

static const struct {
	const char *text;
	mode_t mode;
} wrong[] = { { "Authorization Bearer x\n", 0600 }, { "two words: x\n", 0600 }, { ": x\n", 0600 }, { "A: b\n", 0604 } };

/* Such files keep the scheduler from starting, and what is in them is not said. */
START_TEST(headers_that_are_none)
{
	struct err err = ERR_NULL;

	rig_stop(&rig);
	put_headers(wrong[_i].text, wrong[_i].mode);
	ck_assert_int_lt(server_new(&rig.server, &rig.options, rig.base, &err), 0);
	ck_assert_int_eq(err.code, FAIL_CONFIG_INVALID);
	ck_assert_ptr_null(strstr(err.msg, "Bearer"));
	replace(&rig.options.otlp_endpoint, "");
	rig_start(&rig);
	ck_assert_ptr_null(rig.server->otlp);
}
END_TEST

static const struct {
	const char *endpoint;
	bool has_headers, is_good;
} endpoints[] = { { "https://collector.example/v1/traces", true, true }, { "http://127.0.0.1:4318/v1/traces", true, true },
	{ "http://localhost/v1/traces", true, true }, { "http://[::1]:4318/v1/traces", true, true }, { "http://collector.example/", false, true },
	{ "http://collector.example/", true, false }, { "http://127.0.0.1.example/", true, false }, { "http://localhost.example:1/", true, false },
	{ "http://[::2]/", true, false }, { "collector.example:4318", false, false }, { "ftp://collector.example/", false, false } };

/* Credentials go over TLS, or nowhere out of this host. */
START_TEST(where_credentials_may_go)
{
	char program[] = "croft-scheduler", state[] = "--state=/nowhere", endpoint[96], headers[] = "--otlp-headers-file=/nowhere/headers";
	char *arguments[] = { program, state, endpoint, endpoints[_i].has_headers ? headers : NULL, NULL };
	int n = endpoints[_i].has_headers ? 4 : 3;
	struct options options = { .state = NULL };
	struct err err = ERR_NULL;
	int r;

	(void)snprintf(endpoint, sizeof(endpoint), "--otlp-endpoint=%s", endpoints[_i].endpoint);
	r = options_load(&options, &n, arguments, &err);
	ck_assert_msg((r == 0) == endpoints[_i].is_good, "%s: %s", endpoints[_i].endpoint, err.msg);
	if (r == 0)
		options_free(&options);
	else
		ck_assert_int_eq(err.code, FAIL_CONFIG_INVALID);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("otlp");
	TCase *core = tcase_create("core"), *whole = tcase_create("collector");

	tcase_add_checked_fixture(core, open_queue, close_queue);
	tcase_add_test(core, a_batch_waits_or_is_full);
	tcase_add_loop_test(core, sent_again, 0, ARRAY_LEN(later));
	tcase_add_test(core, pauses_differ);
	tcase_add_test(core, retry_after);
	tcase_add_test(core, drops_are_counted);
	tcase_add_test(core, ids_of_spans);
	tcase_add_test(core, each_field);
	tcase_add_loop_test(core, a_part_was_taken, 0, ARRAY_LEN(bodies));
	tcase_add_loop_test(core, where_credentials_may_go, 0, ARRAY_LEN(endpoints));
	suite_add_tcase(suite, core);
	tcase_set_timeout(whole, 120);
	tcase_add_checked_fixture(whole, set_up, tear_down);
	tcase_add_test(whole, taken);
	tcase_add_test(whole, refused_then_hangs_then_taken);
	tcase_add_test(whole, said_when_to_come_back);
	tcase_add_test(whole, refused_for_good);
	tcase_add_test(whole, taken_in_part);
	tcase_add_test(whole, nobody_there);
	tcase_add_test(whole, a_run);
	tcase_add_loop_test(whole, headers_that_are_none, 0, ARRAY_LEN(wrong));
	suite_add_tcase(suite, whole);
	return suite_run(suite);
}
