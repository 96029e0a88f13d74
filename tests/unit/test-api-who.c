/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is who: every route as every role of another customer, keys and their lives, quotas, rates, and
 * Idempotency-Key. The scheduler is whole; its node is a fake one over a real link.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lib/suite.h"
#include "test-api-rig.h"

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))

/* A call with one header of its own. */
static struct answer call_with(struct rig *rig, const char *method, const char *path, const char *key,
	const char *body, const char *name, const char *value)
{
	const struct http_field field = { name, value };
	struct answer answer;

	(void)rig_start_call(
		rig, method, path, key, body, body ? strlen(body) : 0, &field, 1, &answer);
	loop_until(rig->base, &answer.done);
	return answer;
}

static void make_key(struct rig *rig, const char *by, const char *body, char ret[static API_KEY_SIZE])
{
	struct answer answer = rig_call(rig, "POST", "/v1/keys", by, body);

	ck_assert_msg(answer.status == 201, "%s", answer.body);
	answer_text(answer.json, "key", ret, API_KEY_SIZE);
	ck_assert_int_eq(strncmp(ret, "croft_", 6), 0);
	answer_free(&answer);
}

/* ---- the wall between customers (R008) ---- */

/* What the first customer has; none of it may be seen by the second. */
struct first {
	char sandbox[ID_SIZE], node[ID_SIZE], token[ID_SIZE], key[KEY_ID_LEN + 1];
};

static const char *path_of(const struct api_route *route, const struct first *first, char *buf,
	size_t size)
{
	const char *brace = strchr(route->pattern, '{'), *rest = brace ? strchr(brace, '}') + 1 : "";
	const char *name = "acme";

	if (strstr(route->pattern, "sandboxes/{"))
		name = first->sandbox;
	else if (strstr(route->pattern, "nodes/{"))
		name = first->node;
	else if (strstr(route->pattern, "tokens/{"))
		name = first->token;
	else if (strstr(route->pattern, "keys/{"))
		name = first->key;
	else if (strstr(route->pattern, "templates/{"))
		name = "mine"; /* what it makes is its own */
	(void)snprintf(buf, size, "%.*s%s%s",
		brace ? (int)(brace - route->pattern) : (int)strlen(route->pattern), route->pattern,
		brace ? name : "", rest);
	return buf;
}

/* A valid body that names what is the first's wherever a body can name something. */
static const char *body_of(const struct api_route *route)
{
	static const struct {
		const char *end, *body;
	} bodies[] = { { "/timeout", "{\"timeout\":9}" }, { "/connect", "{\"timeout\":9}" },
		{ "/mark", "{\"mark\":\"rejected\"}" },
		{ "sandboxes", "{\"pool\":\"acme\"}" },
		{ "explain", "{\"pool\":\"acme\",\"tenant\":\"acme\"}" },
		{ "tokens", "{\"pool\":\"acme\"}" },
		{ "pools", "{\"name\":\"other-x\",\"customer\":\"acme\"}" },
		{ "tenants", "{\"name\":\"other-x\",\"customer\":\"acme\"}" },
		{ "keys", "{\"role\":\"tenant\",\"tenant\":\"acme\"}" },
		{ "customers", "{\"name\":\"other-x\"}" } };

	if (route->body == API_NO_BODY)
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		size_t len = strlen(bodies[i].end), all = strlen(route->pattern);

		if (all >= len && !strcmp(route->pattern + all - len, bodies[i].end))
			return bodies[i].body;
	}
	return "{}";
}

static void expect_nothing_of(const struct first *first, const struct answer *answer, const char *what)
{
	const char *const bytes[] = { first->sandbox, first->node, first->token, first->key, "acme",
		"acmesecret" };

	for (size_t i = 0; i < ARRAY_LEN(bytes); i++)
		ck_assert_msg(!answer->body || !strstr(answer->body, bytes[i]), "%s: %s", what,
			answer->body);
}

static void try_route(struct rig *rig, const struct api_route *route, const struct first *first,
	enum role role, const char *key)
{
	static const char *const queries[] = { "", "?scope=all", "?sandbox=*", "?shared=true" };
	char path[160], with[256], what[320];

	if (route->handle == api_events)
		return; /* it has no end: test-api-dashboard.c says who sees what there */
	path_of(route, first, path, sizeof(path));
	for (size_t i = 0; i < ARRAY_LEN(queries); i++) {
		bool is_admin = route->scope == SCOPE_PROVIDER && role_is_provider(role);
		struct answer answer;
		bool may = route->roles == BY_ANYBODY || (route->roles & (1u << role)) != 0;

		(void)snprintf(with, sizeof(with), "%s%.9s%s", path, queries[i],
			strchr(queries[i], '*') ? first->sandbox : "");
		answer = rig_call(rig, route->method, with, key, body_of(route));
		(void)snprintf(what, sizeof(what), "%s %s as %s: %d", route->method, with,
			role_name(role), answer.status);
		ck_assert_msg(!is_admin, "%s", what);
		expect_nothing_of(first, &answer, what);
		if (!may)
			ck_assert_msg(answer.status == 403, "%s", what);
		else if (strchr(route->pattern, '{') && route->body != API_STREAM)
			ck_assert_msg(answer.status == 404 ||
					      (answer.status == 403 && route->scope == SCOPE_TENANT),
				"%s %s", what, answer.body);
		else if (!strcmp(route->method, "GET"))
			ck_assert_msg(answer.status == 200 || answer.status == 404 ||
					      answer.status == 403 || answer.status == 303,
				"%s", what);
		else
			ck_assert_msg(answer.status == 404 || answer.status == 403 ||
					      route->body == API_STREAM,
				"%s %s", what, answer.body);
		answer_free(&answer);
	}
}

static void make_first(struct rig *rig, struct first *first, char key[static API_KEY_SIZE])
{
	struct answer answer;

	rig_expect(rig, "POST", "/v1/customers", rig->keys.provider, "{\"name\":\"acme\"}", 201, NULL);
	rig_expect(rig, "POST", "/v1/pools", rig->keys.provider,
		"{\"name\":\"acme\",\"customer\":\"acme\"}", 201, NULL);
	rig_expect(rig, "POST", "/v1/tenants", rig->keys.provider,
		"{\"name\":\"acme\",\"customer\":\"acme\"}", 201, NULL);
	answer = rig_call(rig, "POST", "/v1/keys", rig->keys.provider,
		"{\"role\":\"tenant\",\"tenant\":\"acme\",\"name\":\"acmesecret\"}");
	ck_assert_int_eq(answer.status, 201);
	answer_text(answer.json, "key", key, API_KEY_SIZE);
	answer_text(answer.json, "id", first->key, sizeof(first->key));
	answer_free(&answer);
}

START_TEST(test_every_route_as_every_role_of_another_customer)
{
	struct rig rig;
	struct first first;
	struct fake_node node;
	struct answer answer, before, after;
	char key[API_KEY_SIZE], planner[API_KEY_SIZE];

	rig_open(&rig);
	make_first(&rig, &first, key);
	rig_expect(&rig, "PUT", "/v1/templates/acme", key, "image", 201, NULL);
	node_join_pool(&node, &rig, "acme");
	COPY(first.node, node.node);
	COPY(first.token, node.token);
	answer = rig_call(&rig, "POST", "/v2/sandboxes", key,
		"{\"templateID\":\"acme\",\"metadata\":{\"a\":\"acmesecret\"}}");
	ck_assert_msg(answer.status == 201, "%s", answer.body);
	answer_text(answer.json, "sandboxID", first.sandbox, sizeof(first.sandbox));
	answer_free(&answer);
	make_key(&rig, rig.operator, "{\"role\":\"customer-planner\"}", planner);
	before = rig_get(&rig, key, "/v1/sandboxes/*", first.sandbox);
	for (size_t i = 0; i < api_routes_count; i++) {
		try_route(&rig, &api_routes[i], &first, ROLE_TENANT, rig.stranger);
		try_route(&rig, &api_routes[i], &first, ROLE_CUSTOMER, rig.operator);
		try_route(&rig, &api_routes[i], &first, ROLE_CUSTOMER_PLANNER, planner);
	}
	/* nothing happened to what is the first's */
	after = rig_get(&rig, key, "/v1/sandboxes/*", first.sandbox);
	(void)json_object_del(before.json, "as_of");
	(void)json_object_del(after.json, "as_of");
	ck_assert_msg(json_equal(before.json, after.json), "%s\n%s", before.body, after.body);
	ck_assert(!node.destroyed);
	answer_free(&before);
	answer_free(&after);
	answer = rig_get(&rig, rig.keys.provider, "/v1/nodes/*", first.node);
	ck_assert_uint_eq(json_object_size(json_object_get(answer.json, "facts")), 0);
	ck_assert(!json_is_true(json_object_get(answer.json, "revoked")));
	answer_free(&answer);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

/* ---- keys ---- */
/* Whatever answers with a list says how old that is, to whoever may see it. */
START_TEST(test_every_list_says_how_old_it_is)
{
	struct rig rig;
	struct fake_node node;
	unsigned int lists = 0;

	rig_open(&rig);
	node_join(&node, &rig);
	for (size_t i = 0; i < api_routes_count; i++) {
		const struct api_route *route = &api_routes[i];
		const char *const keys[] = { rig.keys.provider, rig.stranger };

		for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
			struct answer answer;

			if (strcmp(route->method, "GET") != 0 || strchr(route->pattern, '{') || route->handle == api_events)
				continue;
			answer = rig_call(&rig, "GET", route->pattern, keys[k], NULL);
			if (json_is_array(answer.json)) {
				lists += k == 0;
				ck_assert_msg(strlen(answer.as_of) == strlen("2026-01-01T00:00:00.000Z"), "GET %s: '%s'", route->pattern,
					answer.as_of);
			}
			answer_free(&answer);
		}
	}
	ck_assert_uint_ge(lists, 9);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_keys_live_and_die)
{
	struct rig rig;
	struct answer answer;
	char tenant[API_KEY_SIZE], operator[API_KEY_SIZE], planner[API_KEY_SIZE], id[32], path[64];

	rig_open(&rig);
	make_key(&rig, rig.keys.provider, "{\"role\":\"customer-operator\",\"customer\":\"default\"}",
		operator);
	make_key(&rig, operator, "{\"role\":\"tenant\",\"tenant\":\"default\",\"name\":\"ci\"}", tenant);
	make_key(&rig, rig.keys.provider, "{\"role\":\"provider-planner\"}", planner);
	rig_expect(&rig, "POST", "/v1/keys", operator, "{\"role\":\"provider-operator\"}", 403,
		"FORBIDDEN");
	rig_expect(&rig, "POST", "/v1/keys", operator, "{\"role\":\"king\"}", 400, "INVALID_ARGUMENT");
	rig_expect(&rig, "POST", "/v1/keys", tenant, "{\"role\":\"tenant\"}", 403, "FORBIDDEN");
	rig_expect(&rig, "POST", "/v1/keys", planner, "{\"role\":\"tenant\"}", 403, "FORBIDDEN");
	/* a planner reads and changes nothing */
	rig_expect(&rig, "GET", "/v1/pools", planner, NULL, 200, NULL);
	rig_expect(&rig, "GET", "/metrics", planner, NULL, 200, NULL);
	rig_expect(&rig, "GET", "/v1/sandboxes", planner, NULL, 200, NULL);
	rig_expect(&rig, "POST", "/v2/sandboxes", planner, "{}", 403, "FORBIDDEN");
	rig_expect(&rig, "POST", "/v1/tokens", planner, "{}", 403, "FORBIDDEN");
	/* the list has no key in it, and survives a restart */
	rig_stop(&rig);
	rig_start(&rig);
	answer = rig_call(&rig, "GET", "/v1/keys", operator, NULL);
	ck_assert_int_eq(answer.status, 200);
	ck_assert_ptr_null(strstr(answer.body, tenant));
	*id = '\0';
	for (size_t i = 0; i < json_array_size(answer.json); i++) {
		const json_t *one = json_array_get(answer.json, i);

		if (!strcmp(json_string_value(json_object_get(one, "name")), "ci"))
			answer_text(one, "id", id, sizeof(id));
		ck_assert_str_ne(json_string_value(json_object_get(one, "role")), "provider-operator");
	}
	answer_free(&answer);
	ck_assert_uint_eq(strlen(id), KEY_ID_LEN);
	rig_expect(&rig, "GET", "/v1/whoami", tenant, NULL, 200, NULL);
	(void)snprintf(path, sizeof(path), "/v1/keys/%s", id);
	rig_expect(&rig, "DELETE", path, rig.operator, NULL, 404, "KEY_NOT_FOUND");
	rig_expect(&rig, "DELETE", path, operator, NULL, 204, NULL);
	rig_expect(&rig, "GET", "/v1/whoami", tenant, NULL, 401, "UNAUTHENTICATED");
	rig_close(&rig);
}
END_TEST

START_TEST(test_revoked_tenants_and_customers)
{
	char another[API_KEY_SIZE];
	struct rig rig;
	struct answer answer;
	char tenant[API_KEY_SIZE], second[API_KEY_SIZE], path[64], id[32];

	rig_open(&rig);
	rig_expect(&rig, "POST", "/v1/tenants", rig.operator, "{\"name\":\"mine\"}", 400,
		"INVALID_ARGUMENT"); /* names of others cannot be found out by trying */
	rig_expect(&rig, "POST", "/v1/tenants", rig.operator, "{\"name\":\"other-a\"}", 201, NULL);
	rig_expect(&rig, "POST", "/v1/tenants", rig.operator, "{\"name\":\"other-a\"}", 409, "CONFLICT");
	make_key(&rig, rig.operator, "{\"tenant\":\"other-a\"}", tenant);
	make_key(&rig, rig.operator, "{\"role\":\"customer-operator\"}", second);
	rig_expect(&rig, "GET", "/v2/sandboxes", tenant, NULL, 200, NULL);
	rig_expect(&rig, "DELETE", "/v1/tenants/other-a", rig.operator, NULL, 204, NULL);
	rig_expect(&rig, "GET", "/v2/sandboxes", tenant, NULL, 401, "UNAUTHENTICATED");
	rig_expect(&rig, "POST", "/v1/keys", rig.operator, "{\"tenant\":\"other-a\"}", 404,
		"TENANT_NOT_FOUND");
	rig_expect(&rig, "DELETE", "/v1/customers/other", rig.operator, NULL, 403, "FORBIDDEN");
	rig_expect(&rig, "DELETE", "/v1/customers/other", rig.keys.provider, NULL, 204, NULL);
	rig_expect(&rig, "GET", "/v1/nodes", second, NULL, 401, "UNAUTHENTICATED");
	rig_expect(&rig, "GET", "/v2/sandboxes", rig.stranger, NULL, 401, "UNAUTHENTICATED");
	rig_stop(&rig);
	rig_start(&rig);
	rig_expect(&rig, "GET", "/v2/sandboxes", rig.stranger, NULL, 401, "UNAUTHENTICATED");
	/* nobody locks the provider out */
	answer = rig_call(&rig, "GET", "/v1/whoami", rig.keys.provider, NULL);
	answer_text(answer.json, "key", id, sizeof(id));
	answer_free(&answer);
	(void)snprintf(path, sizeof(path), "/v1/keys/%s", id);
	rig_expect(&rig, "DELETE", path, rig.keys.provider, NULL, 409, "CONFLICT");
	make_key(&rig, rig.keys.provider, "{\"role\":\"provider-operator\"}", another); /* with another one it goes */
	rig_expect(&rig, "DELETE", path, another, NULL, 204, NULL);
	rig_expect(&rig, "GET", "/v1/whoami", rig.keys.provider, NULL, 401, "UNAUTHENTICATED");
	rig_close(&rig);
}
END_TEST

/* ---- pools ---- */
START_TEST(test_pools_and_whose_a_failure_is)
{
	struct rig rig;
	struct answer answer;
	const char *owner;

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	/* the node's host is the customer's under both defaults; this pool says otherwise */
	answer = rig_call(&rig, "PATCH", "/v1/pools/default", rig.keys.provider,
		"{\"responsibility\":\"managed\",\"owners\":{\"node-host\":\"third-party\"}}");
	ck_assert_msg(answer.status == 200, "%s", answer.body);
	answer_free(&answer);
	rig_stop(&rig);
	rig_start(&rig);
	answer = rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{}"); /* NO_NODE: node-host */
	owner = json_string_value(
		json_object_get(json_object_get(answer.json, "failure"), "owner"));
	ck_assert_msg(owner && !strcmp(owner, "third-party"), "%s", answer.body);
	answer_free(&answer);
	rig_expect(&rig, "PATCH", "/v1/pools/other", rig.operator, "{\"owners\":{\"caller\":\"provider\"}}",
		403, "FORBIDDEN");
	rig_expect(&rig, "PATCH", "/v1/pools/other", rig.operator,
		"{\"replace\":\"on-loss\",\"self_stop_after_ms\":55000}", 400, "INVALID_ARGUMENT");
	rig_expect(&rig, "PATCH", "/v1/pools/other", rig.operator,
		"{\"replace\":\"on-loss\",\"self_stop_after_ms\":50000}", 200, NULL);
	/* a tenant without a pool of its own is placed on a shared one, and only there */
	rig_expect(&rig, "POST", "/v1/customers", rig.keys.provider, "{\"name\":\"poor\"}", 201, NULL);
	rig_expect(&rig, "POST", "/v1/tenants", rig.keys.provider,
		"{\"name\":\"poor\",\"customer\":\"poor\"}", 201, NULL);
	{
		char poor[API_KEY_SIZE];

		make_key(&rig, rig.keys.provider, "{\"tenant\":\"poor\"}", poor);
		rig_expect(&rig, "PUT", "/v1/templates/base", poor, "image", 201, NULL);
		rig_expect(&rig, "POST", "/v2/sandboxes", poor, "{}", 404, "POOL_NOT_FOUND");
		rig_expect(&rig, "POST", "/v2/sandboxes", poor, "{\"pool\":\"other\"}", 404,
			"POOL_NOT_FOUND");
		rig_expect(&rig, "PATCH", "/v1/pools/other", rig.operator, "{\"shared\":true}", 200, NULL);
		rig_expect(&rig, "POST", "/v2/sandboxes", poor, "{}", 503, "NO_NODE");
		rig_expect(&rig, "DELETE", "/v1/pools/other", rig.operator, NULL, 204, NULL);
		rig_expect(&rig, "POST", "/v2/sandboxes", poor, "{}", 404, "POOL_NOT_FOUND");
	}
	rig_close(&rig);
}
END_TEST

/* ---- quotas and rates ---- */
static void expect_quota(struct rig *rig, const char *body, const char *resource, const char *asked,
	const char *used, const char *limit)
{
	struct answer answer = rig_call(rig, "POST", "/v1/sandboxes", rig->keys.tenant, body);
	const json_t *detail = json_object_get(json_object_get(answer.json, "failure"), "detail");

	ck_assert_msg(answer.status == 429 && !strcmp(answer_code(&answer), "QUOTA_EXCEEDED"), "%d %s",
		answer.status, answer.body);
	ck_assert_str_eq(json_string_value(json_object_get(detail, "resource")), resource);
	ck_assert_str_eq(json_string_value(json_object_get(detail, "asked")), asked);
	ck_assert_str_eq(json_string_value(json_object_get(detail, "used")), used);
	ck_assert_str_eq(json_string_value(json_object_get(detail, "limit")), limit);
	if (!strcmp(resource, "starts_per_minute"))
		ck_assert_int_ge(atoi(answer.retry), 1);
	answer_free(&answer);
}

START_TEST(test_quotas)
{
	struct rig rig;
	struct fake_node node;
	struct answer answer;
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_expect(&rig, "PATCH", "/v1/tenants/default", rig.keys.provider,
		"{\"quota\":{\"sandboxes\":2,\"vcpus\":3,\"memory_mib\":1000}}", 200, NULL);
	rig_create(&rig, &node, "{\"vcpus\":2,\"memoryMB\":512}", id);
	expect_quota(&rig, "{\"vcpus\":2,\"memoryMB\":256}", "vcpus", "2", "2", "3");
	expect_quota(&rig, "{\"vcpus\":1,\"memoryMB\":512}", "memory_mib", "512", "512", "1000");
	rig_stop(&rig); /* what is used is counted again from what lives */
	rig_start(&rig);
	node_close(&node);
	(void)snprintf(node.address, sizeof(node.address), "%s", link_address(rig.server->link));
	expect_quota(&rig, "{\"vcpus\":2,\"memoryMB\":256}", "vcpus", "2", "2", "3");
	answer = rig_call(&rig, "GET", "/v1/tenants/default", rig.keys.tenant, NULL);
	ck_assert_int_eq(json_integer_value(json_object_get(
				 json_object_get(answer.json, "used"), "memory_mib")),
		512);
	answer_free(&answer);
	rig_expect(&rig, "PATCH", "/v1/tenants/default", rig.keys.provider,
		"{\"quota\":{\"sandboxes\":1,\"vcpus\":0,\"memory_mib\":0}}", 200, NULL);
	expect_quota(&rig, "{}", "sandboxes", "1", "1", "1");
	rig_expect(&rig, "PATCH", "/v1/tenants/default", rig.keys.provider,
		"{\"quota\":{\"sandboxes\":0,\"starts_per_minute\":1}}", 200, NULL);
	rig_expect(&rig, "POST", "/v1/sandboxes", rig.keys.tenant, "{\"queueTimeoutMs\":60000}", 202,
		NULL);
	expect_quota(&rig, "{}", "starts_per_minute", "1", "1", "1");
	rig_close(&rig);
}
END_TEST

/* Whose turn it is is between customers: the provider's word, and kept. */
START_TEST(test_weight_of_a_tenant)
{
	struct rig rig;
	struct answer answer;

	rig_open(&rig);
	rig_expect(&rig, "PATCH", "/v1/tenants/other", rig.operator, "{\"weight\":5}", 403, "FORBIDDEN");
	rig_expect(&rig, "PATCH", "/v1/tenants/other", rig.keys.provider, "{\"weight\":0}", 400,
		"INVALID_ARGUMENT");
	rig_expect(&rig, "PATCH", "/v1/tenants/other", rig.keys.provider, "{\"weight\":5}", 200, NULL);
	rig_stop(&rig);
	rig_start(&rig);
	answer = rig_call(&rig, "GET", "/v1/tenants/other", rig.operator, NULL);
	ck_assert_int_eq(json_integer_value(json_object_get(answer.json, "weight")), 5);
	answer_free(&answer);
	rig_close(&rig);
}
END_TEST

START_TEST(test_rate_of_a_key)
{
	struct rig rig;
	struct answer answer;

	rig_open(&rig);
	rig.options.rate_per_second = 1;
	rig.options.rate_burst = 3;
	for (int i = 0; i < 3; i++) {
		answer = rig_call(&rig, "GET", "/v2/sandboxes", rig.keys.tenant, NULL);
		ck_assert_int_eq(answer.status, 200);
		ck_assert_str_eq(answer.limit, "3");
		answer_free(&answer);
	}
	answer = rig_call(&rig, "GET", "/v2/sandboxes", rig.keys.tenant, NULL);
	if (answer.status == 200) { /* a slow machine: a second went by */
		answer_free(&answer);
		answer = rig_call(&rig, "GET", "/v2/sandboxes", rig.keys.tenant, NULL);
	}
	ck_assert_msg(answer.status == 429 && !strcmp(answer_code(&answer), "RATE_LIMITED"), "%s",
		answer.body);
	ck_assert_str_eq(answer.left, "0");
	ck_assert_str_eq(answer.retry, "1");
	answer_free(&answer);
	rig_expect(&rig, "GET", "/v2/sandboxes", rig.stranger, NULL, 200, NULL); /* another's is its own */
	rig_close(&rig);
}
END_TEST

START_TEST(test_rate_bucket)
{
	struct rate rate = { .milli = 0 };
	uint64_t left = 0, wait = 0;
	int64_t now = 1000;

	for (unsigned int i = 0; i < 5; i++)
		ck_assert(rate_take(&rate, now, 2, 5, &left, &wait));
	ck_assert_uint_eq(left, 0);
	ck_assert(!rate_take(&rate, now, 2, 5, &left, &wait));
	ck_assert_uint_eq(wait, 1);
	ck_assert(!rate_take(&rate, now - 500, 2, 5, &left, &wait)); /* a clock that went back */
	for (unsigned int i = 1; i <= 100; i++) /* many small steps earn what one large one does */
		(void)rate_take(&rate, now + i * 1000, 2, 5, &left, &wait);
	ck_assert(rate_take(&rate, now + 500 * 1000, 2, 5, &left, &wait));
	ck_assert(!rate_take(&rate, now + 500 * 1000, 2, 5, &left, &wait));
	ck_assert(rate_take(&rate, now + 3600 * USEC_PER_SEC, 2, 5, &left, &wait));
	ck_assert_uint_eq(left, 4); /* no more than the burst is saved up */
}
END_TEST

/* ---- Idempotency-Key (R035) ---- */
static void create_as(struct rig *rig, const char *idempotency, const char *body, int status,
	char ret[static ID_SIZE])
{
	struct answer answer = call_with(rig, "POST", "/v2/sandboxes", rig->keys.tenant, body,
		"Idempotency-Key", idempotency);

	ck_assert_msg(answer.status == status, "%d %s", answer.status, answer.body);
	answer_text(answer.json, "sandboxID", ret, ID_SIZE);
	if (status == 409)
		ck_assert_str_eq(answer_code(&answer), "IDEMPOTENCY_CONFLICT");
	answer_free(&answer);
}

START_TEST(test_idempotency)
{
	const struct http_field field = { "Idempotency-Key", "k1" };
	struct rig rig;
	struct fake_node node;
	struct answer first, second;
	char one[ID_SIZE], two[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	/* at the same time */
	node.is_silent = true;
	(void)rig_start_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{\"vcpus\":1}", 11, &field,
		1, &first);
	loop_until(rig.base, &node.created);
	(void)rig_start_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{ \"vcpus\" : 1 }", 15,
		&field, 1, &second);
	loop_for(rig.base, 100);
	ck_assert(!first.done && !second.done);
	node.is_silent = false;
	node_report(&node, REPORT_RUNNING);
	loop_until(rig.base, &first.done);
	loop_until(rig.base, &second.done);
	ck_assert_msg(first.status == 201 && second.status == 201, "%s %s", first.body, second.body);
	answer_text(first.json, "sandboxID", one, sizeof(one));
	answer_text(second.json, "sandboxID", two, sizeof(two));
	ck_assert_str_eq(one, two);
	answer_free(&first);
	answer_free(&second);
	create_as(&rig, "k1", "{\"vcpus\":2}", 409, two);
	create_as(&rig, "k1", "{\"vcpus\":1}", 201, two);
	ck_assert_str_eq(one, two);
	/* another tenant's key of the same text is another key */
	second = call_with(&rig, "POST", "/v2/sandboxes", rig.stranger, "{\"vcpus\":2}",
		"Idempotency-Key", "k1");
	ck_assert_int_ne(second.status, 409);
	answer_free(&second);
	/* over a restart, and after its end */
	rig_stop(&rig);
	rig_start(&rig);
	create_as(&rig, "k1", "{\"vcpus\":1}", 201, two);
	ck_assert_str_eq(one, two);
	node_close(&node);
	(void)snprintf(node.address, sizeof(node.address), "%s", link_address(rig.server->link));
	node_connect(&node);
	loop_for(rig.base, 100); /* the node's inventory does not have it any more: it ended */
	rig_expect_id(&rig, "DELETE", "/v1/sandboxes/*", one, rig.keys.tenant, NULL, 404, NULL);
	create_as(&rig, "k1", "{\"vcpus\":1}", 201, two);
	ck_assert_str_eq(one, two);
	create_as(&rig, "k1", "{\"vcpus\":2}", 409, two);
	first = call_with(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{}", "Idempotency-Key", "");
	ck_assert_int_eq(first.status, 400);
	answer_free(&first);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_failed_start_frees_its_key)
{
	struct rig rig;
	struct fake_node node;
	char id[ID_SIZE];
	struct answer answer;

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	answer = call_with(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{}", "Idempotency-Key", "k");
	ck_assert_str_eq(answer_code(&answer), "NO_NODE");
	answer_free(&answer);
	node_join(&node, &rig);
	create_as(&rig, "k", "{}", 201, id);
	ck_assert_str_eq(id, node.sandbox);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(test_idempotent_secrets_are_shown_once)
{
	struct rig rig;
	struct answer first, second;

	rig_open(&rig);
	first = call_with(&rig, "POST", "/v1/keys", rig.keys.provider, "{\"tenant\":\"default\"}",
		"Idempotency-Key", "k");
	second = call_with(&rig, "POST", "/v1/keys", rig.keys.provider, "{\"tenant\":\"default\"}",
		"Idempotency-Key", "k");
	ck_assert_int_eq(first.status, 201);
	ck_assert_int_eq(second.status, 201);
	ck_assert_ptr_nonnull(json_object_get(first.json, "key"));
	ck_assert_ptr_null(json_object_get(second.json, "key"));
	ck_assert(json_equal(json_object_get(first.json, "id"), json_object_get(second.json, "id")));
	answer_free(&first);
	answer_free(&second);
	first = call_with(&rig, "POST", "/v1/tokens", rig.keys.provider, "{}", "Idempotency-Key", "t");
	second = call_with(&rig, "POST", "/v1/tokens", rig.keys.provider, "{}", "Idempotency-Key", "t");
	ck_assert_ptr_nonnull(json_object_get(first.json, "file"));
	ck_assert_ptr_null(json_object_get(second.json, "file"));
	ck_assert(json_equal(json_object_get(first.json, "id"), json_object_get(second.json, "id")));
	answer_free(&first);
	answer_free(&second);
	rig_close(&rig);
}
END_TEST

/* ---- backup, restore, check ---- */
START_TEST(test_backup_restore_check)
{
	struct rig rig;
	struct answer answer;
	struct restored restored;
	struct checked checked;
	struct err err = ERR_NULL;
	char path[128], key[API_KEY_SIZE], lineage[ID_SIZE], public_key[KEY_Z85_SIZE];

	rig_open(&rig);
	(void)snprintf(path, sizeof(path), "%s/backup", rig.dir);
	memcpy(lineage, rig.server->lineage, sizeof(lineage));
	memcpy(public_key, rig.server->keys.served.public_key, sizeof(public_key));
	make_key(&rig, rig.keys.provider, "{\"tenant\":\"default\"}", key);
	ck_assert_msg(backup_state(&rig.options, path, &err) == 0, "%s", err.msg); /* while it runs */
	rig_expect(&rig, "POST", "/v1/customers", rig.keys.provider, "{\"name\":\"late\"}", 201, NULL);
	ck_assert_int_lt(restore_state(&rig.options, path, true, &restored, &err), 0);
	ck_assert_int_eq(err.code, FAIL_STORE_LOCKED); /* it runs */
	err = (struct err)ERR_NULL;
	rig_stop(&rig);
	ck_assert_int_lt(restore_state(&rig.options, path, false, &restored, &err), 0);
	ck_assert_int_eq(err.code, FAIL_CONFLICT);
	err = (struct err)ERR_NULL;
	ck_assert_msg(restore_state(&rig.options, path, true, &restored, &err) == 0, "%s", err.msg);
	ck_assert_str_eq(restored.old_lineage, lineage);
	ck_assert_str_ne(restored.lineage, lineage);
	ck_assert_msg(check_state(&rig.options, &checked, &err) == 0, "%s", err.msg);
	ck_assert_uint_gt(checked.records, 5);
	rig_start(&rig);
	ck_assert_str_eq(rig.server->lineage, restored.lineage);
	ck_assert_str_eq(rig.server->keys.served.public_key, public_key); /* nodes know it */
	rig_expect(&rig, "GET", "/v2/sandboxes", key, NULL, 200, NULL);
	answer = rig_call(&rig, "GET", "/v1/customers/late", rig.keys.provider, NULL);
	ck_assert_int_eq(answer.status, 404);
	answer_free(&answer);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-who");
	TCase *tc = tcase_create("api-who");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_every_route_as_every_role_of_another_customer);
	tcase_add_test(tc, test_every_list_says_how_old_it_is);
	tcase_add_test(tc, test_keys_live_and_die);
	tcase_add_test(tc, test_revoked_tenants_and_customers);
	tcase_add_test(tc, test_pools_and_whose_a_failure_is);
	tcase_add_test(tc, test_quotas);
	tcase_add_test(tc, test_weight_of_a_tenant);
	tcase_add_test(tc, test_rate_of_a_key);
	tcase_add_test(tc, test_rate_bucket);
	tcase_add_test(tc, test_idempotency);
	tcase_add_test(tc, test_failed_start_frees_its_key);
	tcase_add_test(tc, test_idempotent_secrets_are_shown_once);
	tcase_add_test(tc, test_backup_restore_check);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
