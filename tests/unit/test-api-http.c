/* SPDX-License-Identifier: Apache-2.0
 *
 * The API as a client sees it, without a node: keys, roles, errors, arguments, templates, docs/api.md.
 */
#include <sqlite3.h>
#include <stdio.h>

#include "lib/suite.h"
#include "server/history.h"
#include "test-api-rig.h"

START_TEST(test_keys)
{
	struct rig rig;
	struct answer answer;
	char bearer[128];
	struct http_field field = { "Authorization", bearer };

	rig_open(&rig);
	rig_expect(&rig, "GET", "/health", NULL, NULL, 200, NULL);
	rig_expect(&rig, "GET", "/v2/sandboxes", NULL, NULL, 401, "UNAUTHENTICATED");
	rig_expect(&rig, "GET", "/v2/sandboxes", "croft_wrong", NULL, 401, "UNAUTHENTICATED");
	rig_expect(&rig, "GET", "/v2/sandboxes", rig.keys.tenant, NULL, 200, NULL);
	rig_expect(&rig, "GET", "/v2/sandboxes", rig.keys.provider, NULL, 200, NULL);
	rig_expect(&rig, "GET", "/v1/nodes", rig.keys.tenant, NULL, 403, "FORBIDDEN");
	rig_expect(&rig, "GET", "/v1/nodes", rig.keys.provider, NULL, 200, NULL);
	rig_expect(&rig, "GET", "/metrics", rig.operator, NULL, 403, "FORBIDDEN");
	rig_expect(&rig, "GET", "/metrics", rig.keys.provider, NULL, 200, NULL);
	(void)snprintf(bearer, sizeof(bearer), "Bearer %s", rig.keys.tenant);
	(void)rig_start_call(&rig, "GET", "/v1/whoami", NULL, NULL, 0, &field, 1, &answer);
	loop_until(rig.base, &answer.done);
	ck_assert_int_eq(answer.status, 200);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "role")), "tenant");
	answer_free(&answer);
	rig_close(&rig);
}
END_TEST

/* Every row of the table: no key is no entry, and an operator's route is closed to a tenant. */
START_TEST(test_every_route_asks_for_its_key)
{
	struct rig rig;

	rig_open(&rig);
	for (size_t i = 0; i < api_routes_count; i++) {
		const struct api_route *route = &api_routes[i];
		const char *brace = strchr(route->pattern, '{'),
			   *rest = brace ? strchr(brace, '}') + 1 : "";
		const char *body = route->body == API_NO_BODY ? NULL : "{}";
		char path[128];

		(void)snprintf(path, sizeof(path), "%.*s%s%s",
			brace ? (int)(brace - route->pattern) : 100, route->pattern,
			brace ? "aaaaaaaaaaaaaaaaaaaa" : "", rest);
		if (route->roles == BY_ANYBODY)
			continue;
		rig_expect(&rig, route->method, path, NULL, body, 401, "UNAUTHENTICATED");
		rig_expect(&rig, route->method, path, "croft_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
			body, 401, "UNAUTHENTICATED");
		if (!(route->roles & API_AS(TENANT)))
			rig_expect(
				&rig, route->method, path, rig.keys.tenant, body, 403, "FORBIDDEN");
		if (!(route->roles & API_AS(CUSTOMER)))
			rig_expect(&rig, route->method, path, rig.operator, body, 403, "FORBIDDEN");
	}
	rig_close(&rig);
}
END_TEST

START_TEST(test_paths_and_methods)
{
	struct rig rig;

	rig_open(&rig);
	rig_expect(&rig, "GET", "/nothing", rig.keys.tenant, NULL, 404, "NO_SUCH_PATH");
	rig_expect(&rig, "GET", "/v1/nodes/", rig.keys.provider, NULL, 404, "NO_SUCH_PATH");
	rig_expect(&rig, "GET", "/v1/nodes/a/b/c", rig.keys.provider, NULL, 404, "NO_SUCH_PATH");
	rig_expect(&rig, "PUT", "/v2/sandboxes", rig.keys.tenant, "{}", 405, "METHOD_NOT_ALLOWED");
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{", 400, "INVALID_ARGUMENT");
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "[]", 400, "INVALID_ARGUMENT");
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{\"a\":1,\"a\":2}", 400,
		"INVALID_ARGUMENT");
	/* paths of a sandbox without its name */
	rig_expect(
		&rig, "GET", "/files?path=/x&signature=v1_x", NULL, NULL, 400, "INVALID_ARGUMENT");
	rig_expect(&rig, "POST", "/process.Process/Start", NULL, "{}", 400, "INVALID_ARGUMENT");
	rig_close(&rig);
}
END_TEST

START_TEST(test_trace)
{
	struct rig rig;
	struct answer answer;
	struct http_field field = { "traceparent",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" };

	rig_open(&rig);
	(void)rig_start_call(&rig, "GET", "/health", NULL, NULL, 0, &field, 1, &answer);
	loop_until(rig.base, &answer.done);
	ck_assert_int_eq(
		strncmp(answer.traceparent, "00-0af7651916cd43dd8448eb211c80319c-", 36), 0);
	ck_assert_ptr_null(strstr(answer.traceparent, "b7ad6b7169203331"));
	answer_free(&answer);
	field.value = "rubbish";
	(void)rig_start_call(&rig, "GET", "/nothing", rig.keys.tenant, NULL, 0, &field, 1, &answer);
	loop_until(rig.base, &answer.done);
	ck_assert_uint_eq(strlen(answer.traceparent), TRACEPARENT_SIZE - 1);
	answer_free(&answer);
	rig_close(&rig);
}
END_TEST

static const struct {
	const char *body;
	const char *field;
} invalid[] = {
	{ "{\"timeout\":0}", "timeout" },
	{ "{\"timeout\":-1}", "timeout" },
	{ "{\"timeout\":9223372036854775808}", "timeout" }, /* no number that JSON's reader can hold */
	{ "{\"vcpus\":1, \"timeout\" : -9223372036854775809 , \"secure\":true}", "timeout" },
	{ "{\"timeout\":1e999}", "timeout" },
	{ "{\"timeout\":[9223372036854775808]}", "body" },
	{ "{\"timeout\":9223372036854775807}", "timeout" },
	{ "{\"timeout\":\"NaN\"}", "timeout" },
	{ "{\"timeout\":1.5}", "timeout" },
	{ "{\"vcpus\":0}", "vcpus" },
	{ "{\"vcpus\":33}", "vcpus" },
	{ "{\"vcpus\":257}", "vcpus" },
	{ "{\"vcpus\":-1}", "vcpus" },
	{ "{\"vcpus\":4294967297}", "vcpus" },
	{ "{\"cpuCount\":0}", "cpuCount" },
	{ "{\"memoryMB\":0}", "memoryMB" },
	{ "{\"memoryMB\":1}", "memoryMB" },
	{ "{\"memoryMB\":4294967296}", "memoryMB" },
	{ "{\"memoryMB\":\"512\"}", "memoryMB" },
	{ "{\"diskSizeMB\":0}", "diskSizeMB" },
	{ "{\"envVars\":[]}", "envVars" },
	{ "{\"envVars\":{\"A\":1}}", "envVars" },
	{ "{\"envVars\":{\"A=B\":\"x\"}}", "envVars" },
	{ "{\"metadata\":{\"a\":{}}}", "metadata" },
	{ "{\"metadata\":\"x\"}", "metadata" },
	{ "{\"setupCommand\":7}", "setupCommand" },
	{ "{\"setupTimeoutMs\":0}", "setupTimeoutMs" },
	{ "{\"secure\":\"yes\"}", "secure" },
	{ "{\"templateID\":9}", "templateID" },
	{ "{\"pool\":true}", "pool" },
	/* R184: NUL, half a surrogate pair, what is not UTF-8, in a value and in a name */
	{ "{\"templateID\":\"a\\u0000b\"}", "body" },
	{ "{\"setupCommand\":\"\\ud800\"}", "body" },
	{ "{\"pool\":\"\xff\"}", "body" },
	{ "{\"envVars\":{\"A\":\"\\u0000\"}}", "body" },
	{ "{\"metadata\":{\"\\u0000\":\"a\"}}", "body" },
	{ "{\"metadata\":{\"a\":\"\xc3(\"}}", "body" },
};

/* R184: a text of nearly 1 MiB where each may stand; of more, the body itself is refused. */
static const struct {
	const char *before, *after, *field;
} longs[] = {
	{ "{\"templateID\":\"", "\"}", "templateID" },
	{ "{\"setupCommand\":\"", "\"}", "setupCommand" },
	{ "{\"pool\":\"", "\"}", "pool" },
	{ "{\"metadata\":{\"a\":\"", "\"}}", "metadata" },
	{ "{\"metadata\":{\"", "\":\"a\"}}", "metadata" },
	{ "{\"envVars\":{\"A\":\"", "\"}}", "envVars" },
	{ "{\"envVars\":{\"", "\":\"a\"}}", "envVars" },
};

START_TEST(test_long_texts)
{
	CLEANUP_FREE char *body = malloc((2 << 20) + 64), *text = malloc((2 << 20) + 1);
	struct rig rig;

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	for (size_t i = 0; i < ARRAY_LEN(longs); i++) {
		struct answer answer;

		memset(text, 'x', 1000000);
		text[1000000] = '\0';
		(void)sprintf(body, "%s%s%s", longs[i].before, text, longs[i].after);
		answer = rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, body);
		ck_assert_msg(answer.status == 400 && !strcmp(answer_code(&answer), "INVALID_ARGUMENT"),
			"%s: %d %.300s", longs[i].before, answer.status, answer.body);
		ck_assert_str_eq(
			json_string_value(json_object_get(
				json_object_get(json_object_get(answer.json, "failure"), "detail"), "field")),
			longs[i].field);
		ck_assert_uint_lt(strlen(answer.body), 4096); /* it is not said back */
		answer_free(&answer);
		memset(text, 'x', 2 << 20);
		text[2 << 20] = '\0';
		(void)sprintf(body, "%s%s%s", longs[i].before, text, longs[i].after);
		rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, body, 413, "BODY_TOO_LARGE");
	}
	rig_close(&rig);
}
END_TEST

START_TEST(test_invalid_arguments)
{
	struct rig rig;

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	for (size_t i = 0; i < ARRAY_LEN(invalid); i++) {
		struct answer answer =
			rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, invalid[i].body);
		const json_t *failure = json_object_get(answer.json, "failure");

		ck_assert_msg(answer.status == 400, "%s: %d %s", invalid[i].body, answer.status,
			answer.body);
		ck_assert_msg(!strcmp(answer_code(&answer), "INVALID_ARGUMENT"), "%s: %s",
			invalid[i].body, answer.body);
		ck_assert_str_eq(json_string_value(json_object_get(
					 json_object_get(failure, "detail"), "field")),
			invalid[i].field);
		ck_assert_str_eq(json_string_value(json_object_get(failure, "owner")), "caller");
		answer_free(&answer);
	}
	/* what is not known is ignored; E2B's clients send more than we read */
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant,
		"{\"timeout\":60,\"autoPause\":false,\"network\":{\"allowOut\":[]},\"allow_internet_access\":true,\"vcpus\":3}",
		503, "NO_NODE");
	rig_close(&rig);
}
END_TEST

START_TEST(test_create_without_node)
{
	struct rig rig;
	struct answer answer;
	const json_t *failure;

	rig_open(&rig);
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{}", 404, "TEMPLATE_NOT_FOUND");
	rig_template(&rig, "base", "image");
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{\"pool\":\"other\"}", 404,
		"POOL_NOT_FOUND");
	answer = rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{}");
	failure = json_object_get(answer.json, "failure");
	ck_assert_int_eq(answer.status, 503);
	ck_assert_str_eq(answer_code(&answer), "NO_NODE");
	ck_assert_str_eq(json_string_value(json_object_get(failure, "stage")), "place");
	ck_assert_str_eq(json_string_value(json_object_get(failure, "component")), "node-host");
	ck_assert(json_is_true(json_object_get(failure, "retryable")));
	ck_assert_uint_eq(strlen(json_string_value(json_object_get(failure, "trace"))), 32);
	answer_free(&answer);
	/* nothing was left behind */
	answer = rig_call(&rig, "GET", "/v1/sandboxes", rig.keys.tenant, NULL);
	ck_assert_uint_eq(json_array_size(answer.json), 0);
	answer_free(&answer);
	rig_expect(&rig, "POST", "/v1/explain", rig.keys.tenant, "{}", 200, NULL);
	rig_close(&rig);
}
END_TEST

START_TEST(test_templates)
{
	struct rig rig;
	struct answer answer;
	struct http_field field = { "X-Croft-Digest",
		"sha256:0000000000000000000000000000000000000000000000000000000000000000" };
	char *big = calloc(1, (1 << 20) + 2);

	rig_open(&rig);
	(void)rig_start_call(
		&rig, "PUT", "/v1/templates/base", rig.keys.tenant, "image", 5, &field, 1, &answer);
	loop_until(rig.base, &answer.done);
	ck_assert_str_eq(answer_code(&answer), "IMAGE_DIGEST_MISMATCH");
	answer_free(&answer);
	answer = rig_call(&rig, "GET", "/v1/templates", rig.keys.tenant, NULL);
	ck_assert_uint_eq(json_array_size(answer.json), 0);
	answer_free(&answer);
	/* SHA-256 of "image" */
	field.value = "sha256:6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d";
	for (int i = 1; i <= 2; i++) {
		(void)rig_start_call(&rig, "PUT", "/v1/templates/base", rig.keys.tenant, "image", 5,
			&field, 1, &answer);
		loop_until(rig.base, &answer.done);
		ck_assert_msg(answer.status == 201, "%s", answer.body);
		ck_assert_str_eq(
			json_string_value(json_object_get(answer.json, "digest")), field.value);
		ck_assert_int_eq(json_integer_value(json_object_get(answer.json, "version")), i);
		answer_free(&answer);
	}
	rig_expect(
		&rig, "PUT", "/v1/templates/UPPER", rig.keys.tenant, "x", 400, "INVALID_ARGUMENT");
	rig_expect(&rig, "PUT", "/v1/templates/empty", rig.keys.tenant, "", 400, "IMAGE_INVALID");
	memset(big, 'x', (1 << 20) + 1);
	rig_expect(&rig, "PUT", "/v1/templates/big", rig.keys.tenant, big, 413, "IMAGE_TOO_LARGE");
	rig_expect(&rig, "PUT", "/v1/templates/base?shared=true", rig.keys.tenant, "x", 403,
		"FORBIDDEN");
	rig_expect(&rig, "PUT", "/v1/templates/all?shared=true", rig.keys.provider, "x", 201, NULL);
	/* the other tenant sees what is everybody's, and no more */
	answer = rig_call(&rig, "GET", "/v1/templates", rig.stranger, NULL);
	ck_assert_uint_eq(json_array_size(answer.json), 1);
	answer_free(&answer);
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.stranger, "{\"templateID\":\"base\"}", 404,
		"TEMPLATE_NOT_FOUND");
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.stranger, "{\"templateID\":\"all\"}", 503,
		"NO_NODE");
	/* after a restart it is all there */
	rig_stop(&rig);
	rig_start(&rig);
	answer = rig_call(&rig, "GET", "/v1/templates", rig.keys.tenant, NULL);
	ck_assert_uint_eq(json_array_size(answer.json), 2);
	answer_free(&answer);
	free(big);
	rig_close(&rig);
}
END_TEST

START_TEST(test_tokens)
{
	struct rig rig;
	struct answer answer;
	char path[64];

	rig_open(&rig);
	rig_expect(&rig, "POST", "/v1/tokens", rig.keys.tenant, "{}", 403, "FORBIDDEN");
	rig_expect(&rig, "POST", "/v1/tokens", rig.keys.provider, "{\"ttl_s\":0}", 400,
		"INVALID_ARGUMENT");
	rig_expect(&rig, "POST", "/v1/tokens", rig.keys.provider, "{\"ttl_s\":999999}", 400,
		"INVALID_ARGUMENT");
	rig_expect(&rig, "POST", "/v1/tokens", rig.keys.provider, "{\"pool\":\"none\"}", 404,
		"POOL_NOT_FOUND");
	rig_expect(&rig, "POST", "/v1/tokens", rig.operator, "{\"pool\":\"default\"}", 404,
		"POOL_NOT_FOUND");
	rig_expect(&rig, "POST", "/v1/tokens", rig.keys.provider, "{\"endpoints\":[\"http://x\"]}",
		400, "INVALID_ARGUMENT");
	rig_expect(&rig, "POST", "/v1/tokens", rig.keys.provider,
		"{\"endpoints\":[\"tcp://a\\nb\"]}", 400, "INVALID_ARGUMENT");
	answer = rig_call(&rig, "POST", "/v1/tokens", rig.keys.provider,
		"{\"pool\":\"default\",\"labels\":{\"zone\":\"a\"},\"endpoints\":[\"tcp://10.0.2.2:7281\"]}");
	ck_assert_int_eq(answer.status, 201);
	ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(answer.json, "file")),
		"\nscheduler = tcp://10.0.2.2:7281\n"));
	(void)snprintf(path, sizeof(path), "/v1/tokens/%s",
		json_string_value(json_object_get(answer.json, "id")));
	answer_free(&answer);
	/* the other customer's operator does not see it */
	answer = rig_call(&rig, "GET", "/v1/tokens", rig.operator, NULL);
	ck_assert_uint_eq(json_array_size(answer.json), 0);
	answer_free(&answer);
	rig_expect(&rig, "DELETE", path, rig.operator, NULL, 404, "TOKEN_NOT_FOUND");
	rig_expect(&rig, "DELETE", path, rig.keys.provider, NULL, 204, NULL);
	answer = rig_call(&rig, "GET", "/v1/tokens", rig.keys.provider, NULL);
	ck_assert_str_eq(
		json_string_value(json_object_get(json_array_get(answer.json, 0), "state")),
		"revoked");
	/* its secret is shown once */
	ck_assert_ptr_null(json_object_get(json_array_get(answer.json, 0), "file"));
	answer_free(&answer);
	rig_close(&rig);
}
END_TEST

START_TEST(test_sandbox_gone_on_the_data_path)
{
	struct rig rig;
	struct answer answer;
	struct http_field fields[] = { { "e2b-sandbox-id", "aaaaaaaaaaaaaaaaaaaa" },
		{ "e2b-sandbox-port", "49983" } };

	rig_open(&rig);
	(void)rig_start_call(&rig, "GET", "/health", NULL, NULL, 0, fields, 2, &answer);
	loop_until(rig.base, &answer.done);
	ck_assert_int_eq(answer.status, 502);
	ck_assert_str_eq(answer_code(&answer), "SANDBOX_GONE");
	answer_free(&answer);
	fields[1].value = "http";
	(void)rig_start_call(&rig, "GET", "/health", NULL, NULL, 0, fields, 2, &answer);
	loop_until(rig.base, &answer.done);
	ck_assert_int_eq(answer.status, 400);
	answer_free(&answer);
	fields[0] = (struct http_field){ "Host", "3000-aaaaaaaaaaaaaaaaaaaa.example.org" };
	(void)rig_start_call(&rig, "GET", "/anything", NULL, NULL, 0, fields, 1, &answer);
	loop_until(rig.base, &answer.done);
	ck_assert_int_eq(answer.status, 502);
	answer_free(&answer);
	rig_close(&rig);
}
END_TEST

START_TEST(test_history_is_bounded)
{
	struct history history = { .n = 0 };
	char id[ID_SIZE];

	for (int i = 0; i < 1000; i++) {
		(void)snprintf(id, sizeof(id), "%d", i);
		ck_assert_int_eq(
			history_add(&history, id, 1000 - i), 0); /* loaded in the order of ids */
	}
	history_sort(&history);
	ck_assert_ptr_null(history_overdue(&history, 0, 1000));
	ck_assert_str_eq(history_overdue(&history, 0, 999)->id, "999");  /* too many: the oldest */
	ck_assert_str_eq(history_overdue(&history, 3, 1000)->id, "999"); /* too old */
	history_drop(&history);
	ck_assert_str_eq(history_overdue(&history, 3, 1000)->id, "998");
	history_drop(&history);
	ck_assert_ptr_null(history_overdue(&history, 3, 1000));
	for (int i = 0; i < 5000; i++) { /* round the ring, and growing while it is round */
		ck_assert_int_eq(history_add(&history, "late", 2000 + i), 0);
		if (i % 2)
			history_drop(&history);
	}
	ck_assert_uint_eq(history.n, 998 + 2500);
	ck_assert_str_eq(history_overdue(&history, INT64_MAX, 1)->id, "late");
	history_deinit(&history);
}
END_TEST

START_TEST(test_init_twice)
{
	struct rig rig;
	struct first_keys keys;
	struct err err = ERR_NULL;

	rig_open(&rig);
	ck_assert_int_lt(init_state(&rig.options, true, &keys, &err), 0);
	ck_assert_int_eq(
		err.code, FAIL_STORE_LOCKED); /* a scheduler runs there: --force too is refused */
	rig_stop(&rig);
	memset(&err, 0, sizeof(err));
	ck_assert_int_lt(init_state(&rig.options, false, &keys, &err), 0);
	ck_assert_int_eq(err.code, FAIL_CONFLICT);
	memset(&err, 0, sizeof(err));
	ck_assert_int_eq(init_state(&rig.options, true, &keys, &err), 0);
	rig_start(&rig);
	rig_expect(&rig, "GET", "/v2/sandboxes", rig.keys.tenant, NULL, 401, "UNAUTHENTICATED");
	rig_expect(&rig, "GET", "/v2/sandboxes", keys.tenant, NULL, 200, NULL);
	rig_close(&rig);
}
END_TEST

static void exec_sql(sqlite3 *db, const char *sql)
{
	ck_assert_int_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
}

/* Somebody holds the database: what was asked for is refused by name, reads go on, nothing half-made is left, and
 * everything works again by itself. */
START_TEST(test_store_fails_and_recovers)
{
	struct rig rig;
	struct answer answer;
	sqlite3 *db = NULL;
	char path[128];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	(void)snprintf(path, sizeof(path), "%s/store.db", rig.dir);
	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	exec_sql(db, "BEGIN IMMEDIATE");
	rig_expect(&rig, "POST", "/v1/tokens", rig.keys.provider, "{}", 503, "STORE_FAILED");
	rig_expect(&rig, "GET", "/health", NULL, NULL, 503, NULL);
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{}", 503, "STORE_FAILED");
	rig_expect(
		&rig, "PUT", "/v1/templates/other", rig.keys.tenant, "image", 503, "STORE_FAILED");
	rig_expect(&rig, "GET", "/v1/templates", rig.keys.tenant, NULL, 200, NULL);
	exec_sql(db, "ROLLBACK");
	ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
	for (int i = 0; i < 100 && shell_failure(rig.server->shell); i++)
		loop_for(rig.base, 50);
	rig_expect(&rig, "GET", "/health", NULL, NULL, 200, NULL);
	answer = rig_call(&rig, "GET", "/v1/tokens", rig.keys.provider, NULL);
	ck_assert_uint_eq(json_array_size(answer.json), 0);
	answer_free(&answer);
	rig_expect(&rig, "POST", "/v1/tokens", rig.keys.provider, "{}", 201, NULL);
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, "{}", 503, "NO_NODE");
	rig_close(&rig);
}
END_TEST

START_TEST(test_doc_is_what_the_table_says)
{
	CLEANUP_FREE char *made = NULL, *kept = NULL;
	const char *source = getenv("CROFT_SOURCE");
	char path[512];
	size_t size;
	FILE *out = open_memstream(&made, &size);

	api_write_doc(out);
	(void)fclose(out);
	(void)snprintf(path, sizeof(path), "%s/docs/api.md", source ? source : ".");
	ck_assert_int_eq(file_read(path, 1 << 20, &kept, NULL), 0);
	ck_assert_msg(
		!strcmp(made, kept), "docs/api.md is not what `croft-scheduler api-doc` prints");
}
END_TEST

#define TEXT(literal) ((char *)(uintptr_t)(literal))

START_TEST(test_insecure_is_asked_for)
{
	static const char *const bad[] = { "0.0.0.0", "192.0.2.1", "::" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char *argv[] = { TEXT("x"), TEXT("--api-address"), TEXT(bad[i]), NULL, NULL };
		struct options options = { .state = NULL };
		struct err err = ERR_NULL;
		int argc = 3;

		ck_assert_int_lt(options_load(&options, &argc, argv, &err), 0);
		ck_assert_int_eq(err.code, FAIL_CONFIG_INVALID);
		memset(&err, 0, sizeof(err));
		argv[1] = TEXT("--insecure");
		argv[2] = TEXT("--api-address");
		argv[3] = TEXT(bad[i]);
		argc = 4;
		ck_assert_int_eq(options_load(&options, &argc, argv, &err), 0);
		options_free(&options);
	}
	ck_assert(address_is_loopback("127.0.0.1") && address_is_loopback("127.1.2.3") &&
		  address_is_loopback("::1"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-http");
	TCase *tc = tcase_create("api-http");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_keys);
	tcase_add_test(tc, test_every_route_asks_for_its_key);
	tcase_add_test(tc, test_paths_and_methods);
	tcase_add_test(tc, test_trace);
	tcase_add_test(tc, test_invalid_arguments);
	tcase_add_test(tc, test_long_texts);
	tcase_add_test(tc, test_create_without_node);
	tcase_add_test(tc, test_templates);
	tcase_add_test(tc, test_tokens);
	tcase_add_test(tc, test_sandbox_gone_on_the_data_path);
	tcase_add_test(tc, test_history_is_bounded);
	tcase_add_test(tc, test_init_twice);
	tcase_add_test(tc, test_store_fails_and_recovers);
	tcase_add_test(tc, test_doc_is_what_the_table_says);
	tcase_add_test(tc, test_insecure_is_asked_for);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
