/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots, creates from them and forks over HTTP, in E2B's shape, against a scheduler with a fake node.
 */
#include <check.h>
#include <jansson.h>
#include <string.h>

#include "lib/loop.h"
#include "lib/suite.h"
#include "unit/test-api-rig.h"

#define SHAPE "\"vcpus\":1,\"memoryMB\":512,\"diskSizeMB\":1024"

static void open_all(struct rig *rig, struct fake_node *node, char id[static ID_SIZE])
{
	rig_open(rig);
	rig_template(rig, "base", "image");
	node_join(node, rig);
	rig_create(rig, node, "{\"timeout\":120," SHAPE ",\"envVars\":{\"A\":\"b\"},\"metadata\":{\"k\":\"v\"}}", id);
}

static void close_all(struct rig *rig, struct fake_node *node)
{
	node_close(node);
	rig_close(rig);
}

static struct answer post_as(struct rig *rig, const char *pattern, const char *id, const char *body, const char *idempotency)
{
	const struct http_field field = { "Idempotency-Key", idempotency };
	struct answer answer = { .status = 0 };
	char path[96];

	rig_path(path, sizeof(path), pattern, id);
	(void)rig_start_call(rig, "POST", path, rig->keys.tenant, body, strlen(body), &field, idempotency ? 1 : 0, &answer);
	loop_until(rig->base, &answer.done);
	return answer;
}

static void snapshot(struct rig *rig, const char *id, const char *body, char ret[static ID_SIZE])
{
	struct answer answer = post_as(rig, "/sandboxes/*/snapshots", id, body, NULL);

	ck_assert_int_eq(answer.status, 201);
	answer_text(answer.json, "snapshotID", ret, ID_SIZE);
	ck_assert(id_is_valid(ret));
	answer_free(&answer);
}

static size_t count_listed(struct rig *rig, const char *key, const char *query)
{
	char path[128];
	struct answer answer;
	size_t n;

	(void)snprintf(path, sizeof(path), "/snapshots%s", query);
	answer = rig_call(rig, "GET", path, key, NULL);
	ck_assert_int_eq(answer.status, 200);
	ck_assert(json_is_array(answer.json));
	n = json_array_size(answer.json);
	answer_free(&answer);
	return n;
}

/* By croft's own path; each is on `node`, and only its tenant is told its name. */
static size_t count_listed_v1(struct rig *rig, const char *key, const char *planner, const char *node)
{
	struct answer answer = rig_call(rig, "GET", "/v1/snapshots?scope=all", key, NULL);
	size_t n = json_array_size(answer.json);
	const json_t *one;
	size_t i;

	ck_assert_int_eq(answer.status, 200);
	json_array_foreach(answer.json, i, one) {
		ck_assert_str_eq(json_string_value(json_object_get(one, "node")), node);
		ck_assert_str_eq(json_string_value(json_object_get(one, "tenant")), "default");
		ck_assert(!json_object_get(one, "names") == !strcmp(key, planner));
	}
	answer_free(&answer);
	return n;
}

static void wait_for(struct rig *rig, const unsigned int *count, unsigned int n)
{
	for (int i = 0; i < 1000 && *count < n; i++)
		loop_for(rig->base, 10);
	ck_assert_uint_ge(*count, n);
}

START_TEST(one_is_made_listed_and_deleted)
{
	struct rig rig;
	struct fake_node node = { .rig = NULL };
	char id[ID_SIZE], first[ID_SIZE], second[ID_SIZE], query[96], planner[API_KEY_SIZE];
	struct answer answer;

	open_all(&rig, &node, id);
	answer = post_as(&rig, "/sandboxes/*/snapshots", id, "{\"name\":\"base/Build:1\"}", NULL);
	ck_assert_int_eq(answer.status, 201);
	ck_assert_str_eq(json_string_value(json_array_get(json_object_get(answer.json, "names"), 0)), "base/Build:1");
	ck_assert_int_eq(json_integer_value(json_object_get(answer.json, "sizeMB")), 99);
	answer_text(answer.json, "snapshotID", first, sizeof(first));
	answer_free(&answer);
	ck_assert_str_eq(node.snapshot.snapshot, first);
	ck_assert_str_eq(node.snapshot.sandbox, id);
	snapshot(&rig, id, "{}", second);
	ck_assert_uint_eq(node.snapshots, 2);
	ck_assert_uint_eq(count_listed(&rig, rig.keys.tenant, ""), 2);
	ck_assert_uint_eq(count_listed(&rig, rig.keys.tenant, "?name=base/Build:1"), 1);
	(void)snprintf(query, sizeof(query), "?sandboxID=%s", id);
	ck_assert_uint_eq(count_listed(&rig, rig.keys.tenant, query), 2);
	ck_assert_uint_eq(count_listed(&rig, rig.keys.tenant, "?sandboxID=aaaaaaaaaaaaaaaaaaaa"), 0);
	answer = rig_call(&rig, "GET", "/snapshots?limit=1", rig.keys.tenant, NULL);
	ck_assert_int_eq(strncmp(answer.next, first, ID_LEN), 0);
	(void)snprintf(query, sizeof(query), "?limit=1&nextToken=%s", answer.next);
	answer_free(&answer);
	ck_assert_uint_eq(count_listed(&rig, rig.keys.tenant, query), 1);
	rig_expect(&rig, "GET", "/snapshots?nextToken=aaaaaaaaaaaaaaaaaaaa", rig.keys.tenant, NULL, 400, "INVALID_ARGUMENT");
	ck_assert_uint_eq(count_listed(&rig, rig.stranger, ""), 0);
	answer = rig_call(&rig, "POST", "/v1/keys", rig.keys.provider, "{\"role\":\"provider-planner\"}");
	answer_text(answer.json, "key", planner, sizeof(planner));
	answer_free(&answer);
	ck_assert_uint_eq(count_listed_v1(&rig, rig.stranger, planner, NULL), 0);
	ck_assert_uint_eq(count_listed_v1(&rig, rig.operator, planner, NULL), 0); /* another customer's */
	ck_assert_uint_eq(count_listed_v1(&rig, rig.keys.tenant, planner, node.node), 2);
	ck_assert_uint_eq(count_listed_v1(&rig, planner, planner, node.node), 2);
	rig_expect_id(&rig, "DELETE", "/templates/*", first, rig.stranger, NULL, 404, "SNAPSHOT_NOT_FOUND");
	rig_expect_id(&rig, "DELETE", "/templates/*", first, rig.keys.tenant, NULL, 204, NULL);
	wait_for(&rig, &node.drops, 1);
	ck_assert_str_eq(node.dropped, first);
	rig_expect_id(&rig, "DELETE", "/templates/*", first, rig.keys.tenant, NULL, 404, "SNAPSHOT_NOT_FOUND");
	rig_expect(&rig, "DELETE", "/templates/base", rig.keys.tenant, NULL, 404, "SNAPSHOT_NOT_FOUND");
	ck_assert_uint_eq(count_listed(&rig, rig.keys.tenant, ""), 1);
	rig_stop(&rig); /* what the store has is what was answered */
	rig_start(&rig);
	ck_assert_uint_eq(count_listed(&rig, rig.keys.tenant, ""), 1);
	close_all(&rig, &node);
}
END_TEST

START_TEST(what_cannot_be_is_told)
{
	struct rig rig;
	struct fake_node node = { .rig = NULL };
	char id[ID_SIZE];

	open_all(&rig, &node, id);
	(void)err_set(&node.snapshot_failure, FAIL_DISK_FULL, 0, "No room.");
	rig_expect_id(&rig, "POST", "/sandboxes/*/snapshots", id, rig.keys.tenant, "{}", 503, "DISK_FULL");
	rig_expect_id(&rig, "POST", "/sandboxes/*/fork", id, rig.keys.tenant, "{}", 503, "DISK_FULL");
	ck_assert_uint_eq(count_listed(&rig, rig.keys.tenant, ""), 0);
	node.snapshot_failure = (struct err)ERR_NULL;
	rig_expect_id(&rig, "POST", "/sandboxes/*/snapshots", id, rig.keys.tenant, "{\"name\":\"a b\"}", 400, "INVALID_ARGUMENT");
	rig_expect_id(&rig, "POST", "/sandboxes/*/snapshots", id, rig.keys.tenant, "{\"name\":\"\"}", 400, "INVALID_ARGUMENT");
	rig_expect_id(&rig, "POST", "/sandboxes/*/fork", id, rig.keys.tenant, "{\"count\":0}", 400, "INVALID_ARGUMENT");
	rig_expect_id(&rig, "POST", "/sandboxes/*/fork", id, rig.keys.tenant, "{\"count\":33}", 400, "INVALID_ARGUMENT");
	rig_expect_id(&rig, "POST", "/sandboxes/*/snapshots", id, rig.stranger, "{}", 404, "SANDBOX_NOT_FOUND");
	rig_expect_id(&rig, "POST", "/sandboxes/*/fork", id, rig.stranger, "{}", 404, "SANDBOX_NOT_FOUND");
	rig_expect_id(&rig, "POST", "/sandboxes/*/pause", id, rig.keys.tenant, "{}", 204, NULL);
	rig_expect_id(&rig, "POST", "/sandboxes/*/snapshots", id, rig.keys.tenant, "{}", 409, "CONFLICT");
	rig_expect_id(&rig, "POST", "/sandboxes/*/fork", id, rig.keys.tenant, "{}", 409, "CONFLICT");
	node.is_older = true;
	node_send_hello(&node);
	close_all(&rig, &node);
}
END_TEST

START_TEST(an_older_agent_is_not_asked)
{
	struct rig rig;
	struct fake_node node = { .rig = NULL };
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	node.is_older = true;
	node_send_hello(&node);
	rig_create(&rig, &node, "{}", id);
	rig_expect_id(&rig, "POST", "/sandboxes/*/snapshots", id, rig.keys.tenant, "{}", 501, "SNAPSHOT_UNSUPPORTED");
	rig_expect_id(&rig, "POST", "/sandboxes/*/fork", id, rig.keys.tenant, "{}", 501, "SNAPSHOT_UNSUPPORTED");
	ck_assert_uint_eq(node.snapshots, 0);
	close_all(&rig, &node);
}
END_TEST

static void expect_create(struct rig *rig, const char *key, const char *snapshot, const char *more, int status, const char *code)
{
	char body[256];

	(void)snprintf(body, sizeof(body), "{\"templateID\":\"%s\"%s}", snapshot, more);
	rig_expect(rig, "POST", "/v2/sandboxes", key, body, status, code);
}

START_TEST(a_sandbox_begins_as_one)
{
	static const char *const others[] = { ",\"vcpus\":2", ",\"cpuCount\":2", ",\"memoryMB\":1024", ",\"diskSizeMB\":2048",
		",\"setupCommand\":\"true\"", ",\"pool\":\"another\"" };
	struct rig rig;
	struct fake_node node = { .rig = NULL };
	char id[ID_SIZE], snap[ID_SIZE];
	struct answer answer;

	open_all(&rig, &node, id);
	snapshot(&rig, id, "{\"name\":\"mine\"}", snap);
	ck_assert_str_eq(node.spec_snapshot, "");
	expect_create(&rig, rig.keys.tenant, snap, "," SHAPE, 201, NULL); /* the same is no other */
	ck_assert_str_eq(node.spec_snapshot, snap);
	expect_create(&rig, rig.keys.tenant, "mine", "", 201, NULL);
	ck_assert_str_eq(node.spec_snapshot, snap);
	answer = rig_get(&rig, rig.keys.tenant, "/v1/sandboxes/*", node.sandbox);
	ck_assert_int_eq(json_integer_value(json_object_get(answer.json, "memory_mib")), 512);
	ck_assert_int_eq(json_integer_value(json_object_get(answer.json, "disk_mib")), 1024);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "template")), "base");
	answer_free(&answer);
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		expect_create(&rig, rig.keys.tenant, snap, others[i], 400, "INVALID_ARGUMENT");
	expect_create(&rig, rig.stranger, snap, "", 404, "TEMPLATE_NOT_FOUND");
	expect_create(&rig, rig.stranger, "mine", "", 404, "TEMPLATE_NOT_FOUND");
	node.is_slow = true; /* no other is begun while the node makes one */
	rig_expect_id(&rig, "DELETE", "/templates/*", snap, rig.keys.tenant, NULL, 204, NULL);
	expect_create(&rig, rig.keys.tenant, snap, "", 404, "TEMPLATE_NOT_FOUND");
	close_all(&rig, &node);
}
END_TEST

/* A pool that was shared when the snapshot was made. */
START_TEST(a_pool_that_is_not_ones_own_any_more)
{
	struct rig rig;
	struct fake_node node = { .rig = NULL };
	char id[ID_SIZE], snap[ID_SIZE];

	rig_open(&rig);
	rig_expect(&rig, "PUT", "/v1/templates/base", rig.stranger, "image", 201, NULL);
	rig_expect(&rig, "PATCH", "/v1/pools/default", rig.keys.provider, "{\"shared\":true}", 200, NULL);
	node_join(&node, &rig);
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.stranger, "{\"pool\":\"default\"," SHAPE "}", 201, NULL);
	memcpy(id, node.sandbox, ID_SIZE);
	rig_expect_id(&rig, "POST", "/sandboxes/*/snapshots", id, rig.stranger, "{}", 201, NULL);
	memcpy(snap, node.snapshot.snapshot, ID_SIZE);
	expect_create(&rig, rig.stranger, snap, "", 201, NULL);
	rig_expect(&rig, "PATCH", "/v1/pools/default", rig.keys.provider, "{\"shared\":false}", 200, NULL);
	expect_create(&rig, rig.stranger, snap, "", 404, "POOL_NOT_FOUND");
	rig_expect_id(&rig, "DELETE", "/templates/*", snap, rig.stranger, NULL, 204, NULL); /* it is theirs all the same */
	close_all(&rig, &node);
}
END_TEST

static void expect_page(struct rig *rig, const char *path, const char *member, const char *const *ids, size_t n,
	char next[static 64])
{
	struct answer answer = rig_call(rig, "GET", path, rig->keys.tenant, NULL);
	char id[ID_SIZE];

	ck_assert_int_eq(answer.status, 200);
	ck_assert_uint_eq(json_array_size(answer.json), n);
	for (size_t i = 0; i < n; i++) {
		answer_text(json_array_get(answer.json, i), member, id, sizeof(id));
		ck_assert_str_eq(id, ids[i]);
	}
	memcpy(next, answer.next, 64);
	answer_free(&answer);
}

/* The next page begins where it would have, also when the last of this one is gone: not at the start again. */
START_TEST(pages_go_on_behind_what_is_gone)
{
	static const char *const lists[] = { "/snapshots", "/v2/sandboxes" }, *const members[] = { "snapshotID", "sandboxID" },
				 *const deletes[] = { "/templates/*", "/sandboxes/*" };
	struct rig rig;
	struct fake_node node = { .rig = NULL };
	char ids[3][ID_SIZE], path[128], next[64];

	open_all(&rig, &node, ids[0]);
	for (size_t i = 0; i < 3; i++)
		if (_i == 0)
			snapshot(&rig, node.sandbox, "{}", ids[i]);
		else if (i > 0)
			rig_create(&rig, &node, "{" SHAPE "}", ids[i]);
	if (_i == 0) { /* read anew, by id: the order stays */
		rig_stop(&rig);
		rig_start(&rig);
	}
	(void)snprintf(path, sizeof(path), "%s?limit=2", lists[_i]);
	expect_page(&rig, path, members[_i], (const char *[]){ ids[0], ids[1] }, 2, next);
	ck_assert_str_ne(next, "");
	rig_expect_id(&rig, "DELETE", deletes[_i], ids[1], rig.keys.tenant, NULL, 204, NULL);
	(void)snprintf(path, sizeof(path), "%s", lists[_i]);
	for (int i = 0; i < 500; i++) { /* until it is gone from the lists */
		struct answer answer = rig_call(&rig, "GET", path, rig.keys.tenant, NULL);
		size_t n = json_array_size(answer.json);

		answer_free(&answer);
		if (n == 2)
			break;
		loop_for(rig.base, 10);
	}
	(void)snprintf(path, sizeof(path), "%s?limit=2&nextToken=%s", lists[_i], next);
	expect_page(&rig, path, members[_i], (const char *[]){ ids[2] }, 1, next);
	ck_assert_str_eq(next, "");
	close_all(&rig, &node);
}
END_TEST

/* A node is not taken out with what only it has, unless somebody says so. */
START_TEST(a_node_that_keeps_something_is_not_removed)
{
	struct rig rig;
	struct fake_node node = { .rig = NULL };
	char id[ID_SIZE], snap[ID_SIZE];
	struct answer answer;
	const json_t *kept;

	open_all(&rig, &node, id);
	rig_expect_id(&rig, "POST", "/v1/nodes/*/remove", node.node, rig.keys.provider, "{}", 409, "CONFLICT");
	snapshot(&rig, id, "{}", snap);
	rig_expect_id(&rig, "POST", "/sandboxes/*/pause", id, rig.keys.tenant, "{}", 204, NULL);
	answer = rig_get(&rig, rig.keys.provider, "/v1/nodes/*", node.node);
	kept = json_object_get(answer.json, "kept");
	ck_assert_int_eq(json_integer_value(json_object_get(kept, "paused")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(kept, "snapshots")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(answer.json, "capacity"), "sandboxes")), 0);
	answer_free(&answer);
	rig_expect_id(&rig, "POST", "/v1/nodes/*/remove", node.node, rig.keys.provider, "{}", 409, "CONFLICT"); /* it sleeps there */
	rig_expect_id(&rig, "DELETE", "/sandboxes/*", id, rig.keys.tenant, NULL, 204, NULL);
	loop_until(rig.base, &node.destroyed);
	loop_for(rig.base, 200);
	rig_expect_id(&rig, "POST", "/v1/nodes/*/remove", node.node, rig.keys.provider, "{}", 409, "CONFLICT"); /* its snapshot is */
	if (_i == 0)
		rig_expect_id(&rig, "DELETE", "/templates/*", snap, rig.keys.tenant, NULL, 204, NULL);
	rig_expect_id(&rig, "POST", "/v1/nodes/*/remove", node.node, rig.keys.provider, _i ? "{\"force\":true}" : "{}", 204, NULL);
	close_all(&rig, &node);
}
END_TEST

/* A node that came back without it. */
START_TEST(one_that_is_lost_is_told)
{
	struct rig rig;
	struct fake_node node = { .rig = NULL };
	char id[ID_SIZE], snap[ID_SIZE];
	struct answer answer;

	open_all(&rig, &node, id);
	snapshot(&rig, id, "{}", snap);
	node_close(&node);
	node_connect(&node);
	for (int i = 0; i < 500; i++) {
		answer = rig_call(&rig, "GET", "/snapshots", rig.keys.tenant, NULL);
		if (!strcmp(json_string_value(json_object_get(json_array_get(answer.json, 0), "state")), "lost"))
			break;
		answer_free(&answer);
		loop_for(rig.base, 10);
	}
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(answer.json, 0), "state")), "lost");
	answer_free(&answer);
	expect_create(&rig, rig.keys.tenant, snap, "", 410, "SNAPSHOT_LOST");
	rig_expect_id(&rig, "DELETE", "/templates/*", snap, rig.keys.tenant, NULL, 204, NULL);
	ck_assert_uint_eq(count_listed(&rig, rig.keys.tenant, ""), 0);
	close_all(&rig, &node);
}
END_TEST

START_TEST(a_fork)
{
	struct rig rig;
	struct fake_node node = { .rig = NULL };
	char id[ID_SIZE], ids[2][ID_SIZE];
	struct answer answer;

	open_all(&rig, &node, id);
	answer = post_as(&rig, "/sandboxes/*/fork", id, "{\"count\":2,\"timeout\":44}", NULL);
	ck_assert_int_eq(answer.status, 201);
	ck_assert_uint_eq(json_array_size(answer.json), 2);
	for (size_t i = 0; i < 2; i++) {
		const json_t *sandbox = json_object_get(json_array_get(answer.json, i), "sandbox");

		answer_text(sandbox, "sandboxID", ids[i], ID_SIZE);
		ck_assert_uint_ge(json_string_length(json_object_get(sandbox, "envdAccessToken")), 32);
	}
	answer_free(&answer);
	ck_assert_str_ne(ids[0], ids[1]);
	ck_assert_uint_eq(node.timeout_s, 44);
	ck_assert_str_eq(node.spec_snapshot, node.snapshot.snapshot);
	wait_for(&rig, &node.drops, 1); /* its own snapshot goes */
	ck_assert_str_eq(node.dropped, node.snapshot.snapshot);
	ck_assert_uint_eq(count_listed(&rig, rig.keys.tenant, ""), 0);
	answer = rig_get(&rig, rig.keys.tenant, "/sandboxes/*", ids[1]);
	ck_assert_str_eq(json_string_value(json_object_get(json_object_get(answer.json, "metadata"), "k")), "v");
	answer_free(&answer);
	rig_expect_id(&rig, "GET", "/sandboxes/*", id, rig.keys.tenant, NULL, 200, NULL);
	(void)err_set(&node.start_failure, FAIL_SNAPSHOT_INVALID, 0, "It is damaged.");
	answer = post_as(&rig, "/sandboxes/*/fork", id, "{}", NULL);
	ck_assert_int_eq(answer.status, 201);
	ck_assert_uint_eq(json_array_size(answer.json), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(
				 json_object_get(json_array_get(answer.json, 0), "error"), "code")),
		503);
	answer_free(&answer);
	close_all(&rig, &node);
}
END_TEST

/* Nothing that would come in between; each may be sent again. */
START_TEST(while_one_is_made)
{
	struct rig rig;
	struct fake_node node = { .rig = NULL };
	struct answer first = { .status = 0 };
	char id[ID_SIZE], path[96];

	open_all(&rig, &node, id);
	node.is_slow = true;
	rig_path(path, sizeof(path), "/sandboxes/*/snapshots", id);
	(void)rig_start_call(&rig, "POST", path, rig.keys.tenant, "{}", 2, NULL, 0, &first);
	wait_for(&rig, &node.snapshots, 1);
	rig_expect_id(&rig, "POST", "/sandboxes/*/snapshots", id, rig.keys.tenant, "{}", 503, "SNAPSHOTTING");
	rig_expect_id(&rig, "POST", "/sandboxes/*/fork", id, rig.keys.tenant, "{}", 503, "SNAPSHOTTING");
	rig_expect_id(&rig, "POST", "/sandboxes/*/pause", id, rig.keys.tenant, "{}", 503, "SNAPSHOTTING");
	rig_expect_id(&rig, "DELETE", "/templates/*", node.snapshot.snapshot, rig.keys.tenant, NULL, 503, "SNAPSHOTTING");
	node_answer_snapshot(&node);
	loop_until(rig.base, &first.done);
	ck_assert_int_eq(first.status, 201);
	answer_free(&first);
	close_all(&rig, &node);
}
END_TEST

/* Whoever asks twice gets what was made, also while it is being made. */
START_TEST(an_idempotency_key)
{
	struct rig rig;
	struct fake_node node = { .rig = NULL };
	struct answer first = { .status = 0 }, again;
	char id[ID_SIZE], path[96], one[ID_SIZE], two[ID_SIZE];
	const struct http_field field = { "Idempotency-Key", "k1" };

	open_all(&rig, &node, id);
	node.is_slow = true;
	rig_path(path, sizeof(path), "/sandboxes/*/snapshots", id);
	(void)rig_start_call(&rig, "POST", path, rig.keys.tenant, "{}", 2, &field, 1, &first);
	wait_for(&rig, &node.snapshots, 1);
	again = (struct answer){ .status = 0 };
	(void)rig_start_call(&rig, "POST", path, rig.keys.tenant, "{}", 2, &field, 1, &again);
	loop_for(rig.base, 100);
	ck_assert(!again.done);
	node_answer_snapshot(&node);
	loop_until(rig.base, &first.done);
	loop_until(rig.base, &again.done);
	ck_assert_int_eq(first.status, 201);
	ck_assert_int_eq(again.status, 201);
	answer_text(first.json, "snapshotID", one, sizeof(one));
	answer_text(again.json, "snapshotID", two, sizeof(two));
	ck_assert_str_eq(one, two);
	answer_free(&first);
	answer_free(&again);
	node.is_slow = false;
	node.keeps_snapshots = true; /* the fork's own is on its way out for long */
	for (int i = 0; i < 3; i++) {
		if (i == 2) /* what was made is there also when its parent is not */
			rig_expect_id(&rig, "DELETE", "/sandboxes/*", id, rig.keys.tenant, NULL, 204, NULL);
		first = post_as(&rig, "/sandboxes/*/fork", id, "{\"count\":1}", "k2");
		ck_assert_int_eq(first.status, 201);
		answer_text(json_object_get(json_array_get(first.json, 0), "sandbox"), "sandboxID", i ? two : one, ID_SIZE);
		answer_free(&first);
	}
	ck_assert_str_eq(one, two);
	ck_assert_uint_eq(node.creates, 2); /* the parent, and the fork */
	again = post_as(&rig, "/sandboxes/*/fork", id, "{\"count\":2}", "k2");
	ck_assert_int_eq(again.status, 409);
	ck_assert_str_eq(answer_code(&again), "IDEMPOTENCY_CONFLICT");
	answer_free(&again);
	again = post_as(&rig, "/sandboxes/*/snapshots", id, "{}", "k1");
	ck_assert_int_eq(again.status, 201);
	answer_free(&again);
	again = post_as(&rig, "/sandboxes/*/snapshots", id, "{}", "k3");
	ck_assert_int_eq(again.status, 404);
	answer_free(&again);
	again = post_as(&rig, "/sandboxes/*/fork", id, "{}", "k4");
	ck_assert_int_eq(again.status, 404);
	answer_free(&again);
	close_all(&rig, &node);
}
END_TEST

START_TEST(a_tenant_has_a_quota_of_what_it_keeps)
{
	struct rig rig;
	struct fake_node node = { .rig = NULL };
	char id[ID_SIZE], snap[ID_SIZE];
	struct answer answer;
	const json_t *used;

	open_all(&rig, &node, id);
	rig_expect(&rig, "PATCH", "/v1/tenants/default", rig.keys.provider,
		"{\"quota\":{\"snapshots\":1,\"paused\":1,\"kept_disk_mib\":2500}}", 200, NULL);
	snapshot(&rig, id, "{}", snap);
	rig_expect_id(&rig, "POST", "/sandboxes/*/snapshots", id, rig.keys.tenant, "{}", 429, "QUOTA_EXCEEDED");
	rig_expect_id(&rig, "POST", "/sandboxes/*/pause", id, rig.keys.tenant, "{}", 204, NULL);
	answer = rig_call(&rig, "GET", "/v1/tenants/default", rig.keys.tenant, NULL);
	used = json_object_get(answer.json, "used");
	ck_assert_int_eq(json_integer_value(json_object_get(used, "snapshots")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(used, "paused")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(used, "kept_disk_mib")), 99 + 512 + 1024);
	ck_assert_int_eq(json_integer_value(json_object_get(used, "sandboxes")), 0);
	answer_free(&answer);
	rig_create(&rig, &node, "{" SHAPE "}", id);
	rig_expect_id(&rig, "POST", "/sandboxes/*/pause", id, rig.keys.tenant, "{}", 429, "QUOTA_EXCEEDED");
	close_all(&rig, &node);
}
END_TEST

/* Of the tenant's own, by name too; a create from it takes one over. Nobody else's, and not in another pool. */
START_TEST(a_warm_pool_of_one)
{
	static const char path[] = "/v1/pools/default/warm/mine";
	struct rig rig;
	struct fake_node node = { .rig = NULL };
	char id[ID_SIZE], snap[ID_SIZE], warm[ID_SIZE], body[96];
	struct answer answer;

	open_all(&rig, &node, id);
	snapshot(&rig, id, "{\"name\":\"mine\"}", snap);
	rig_expect(&rig, "PUT", path, rig.keys.provider, "{\"target\":1}", 404, "TEMPLATE_NOT_FOUND");
	rig_expect(&rig, "PUT", path, rig.keys.provider, "{\"target\":1,\"tenant\":\"default\",\"vcpus\":7}", 400, "INVALID_ARGUMENT");
	node.created = false;
	answer = rig_call(&rig, "PUT", path, rig.keys.provider, "{\"target\":1,\"tenant\":\"default\"}");
	ck_assert_msg(answer.status == 200, "%s", answer.body);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "snapshot")), snap);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "template")), snap);
	answer_free(&answer);
	loop_until(rig.base, &node.created);
	loop_for(rig.base, 200);
	ck_assert_str_eq(node.spec_snapshot, snap);
	(void)snprintf(warm, sizeof(warm), "%s", node.sandbox);
	(void)snprintf(body, sizeof(body), "{\"templateID\":\"%s\"}", snap);
	answer = rig_call(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, body);
	ck_assert_msg(answer.status == 201, "%s", answer.body);
	ck_assert_str_eq(json_string_value(json_object_get(answer.json, "sandboxID")), warm);
	answer_free(&answer);
	close_all(&rig, &node);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-snapshot");
	TCase *tcase = tcase_create("api-snapshot");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, one_is_made_listed_and_deleted);
	tcase_add_test(tcase, what_cannot_be_is_told);
	tcase_add_test(tcase, an_older_agent_is_not_asked);
	tcase_add_test(tcase, a_sandbox_begins_as_one);
	tcase_add_test(tcase, a_warm_pool_of_one);
	tcase_add_test(tcase, a_pool_that_is_not_ones_own_any_more);
	tcase_add_loop_test(tcase, pages_go_on_behind_what_is_gone, 0, 2);
	tcase_add_loop_test(tcase, a_node_that_keeps_something_is_not_removed, 0, 2);
	tcase_add_test(tcase, one_that_is_lost_is_told);
	tcase_add_test(tcase, a_fork);
	tcase_add_test(tcase, while_one_is_made);
	tcase_add_test(tcase, an_idempotency_key);
	tcase_add_test(tcase, a_tenant_has_a_quota_of_what_it_keeps);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
