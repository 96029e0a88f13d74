/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sandbox may reach, over HTTP: read as E2B's clients say it, refused by field, carried to the node, changed
 * there while the sandbox runs, and shown as it is in force.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/suite.h"
#include "test-api-rig.h"

/* ---- what is refused ---- */

static const struct {
	const char *create, *update; /* NULL: only one of both */
	int status;
	const char *code, *field; /* of the create; the update's lacks "network." */
} refused[] = {
	{ "{\"allow_internet_access\":1}", "{\"allow_internet_access\":1}", 400, "INVALID_ARGUMENT",
		"allow_internet_access" },
	{ "{\"network\":[]}", NULL, 400, "INVALID_ARGUMENT", "network" },
	{ "{\"network\":{\"allowOut\":\"1.1.1.1\"}}", "{\"allowOut\":\"1.1.1.1\"}", 400, "INVALID_ARGUMENT",
		"network.allowOut" },
	{ "{\"network\":{\"denyOut\":[\"8.8.8.0/24\",\"10.0.0.1/8\"]}}", "{\"denyOut\":[\"8.8.8.0/24\",\"10.0.0.1/8\"]}", 400,
		"INVALID_CIDR", "network.denyOut[1]" }, /* host bits */
	{ "{\"network\":{\"denyOut\":[\"1.2.3.0/33\"]}}", "{\"denyOut\":[\"1.2.3.0/33\"]}", 400, "INVALID_CIDR",
		"network.denyOut[0]" },
	{ "{\"network\":{\"allowOut\":[\"1.2.3\"]}}", "{\"allowOut\":[\"1.2.3\"]}", 400, "INVALID_CIDR",
		"network.allowOut[0]" },
	{ "{\"network\":{\"allowOut\":[\"a_b..c\"]}}", "{\"allowOut\":[\"a_b..c\"]}", 400, "INVALID_ARGUMENT",
		"network.allowOut[0]" },
	{ "{\"network\":{\"allowOut\":[\"http://a.com/\"]}}", "{\"allowOut\":[\"http://a.com/\"]}", 400, "INVALID_CIDR",
		"network.allowOut[0]" },
	{ "{\"network\":{\"allowOut\":[7]}}", "{\"allowOut\":[7]}", 400, "INVALID_ARGUMENT", "network.allowOut[0]" },
	{ "{\"network\":{\"allowOut\":[\"\"]}}", "{\"allowOut\":[\"\"]}", 400, "INVALID_ARGUMENT", "network.allowOut[0]" },
	/* a name where nothing is closed changes nothing: its author believes otherwise */
	{ "{\"network\":{\"allowOut\":[\"pypi.org\"]}}", "{\"allowOut\":[\"pypi.org\"]}", 400, "INVALID_ARGUMENT",
		"network.allowOut" },
	{ "{\"network\":{\"rules\":{\"a.com\":[]}}}", "{\"rules\":{\"a.com\":[]}}", 501, "UNSUPPORTED", "network.rules" },
	{ "{\"network\":{\"egressProxy\":{\"address\":\"x:1\"}}}", "{\"egressProxy\":{\"address\":\"x:1\"}}", 501,
		"UNSUPPORTED", "network.egressProxy" },
};

static void expect_field(struct rig *rig, const char *method, const char *path, const char *body, size_t row, bool is_create)
{
	struct answer answer = rig_call(rig, method, path, rig->keys.tenant, body);
	const char *field = refused[row].field;

	if (!is_create && !strncmp(field, "network.", 8))
		field += 8;
	ck_assert_msg(answer.status == refused[row].status && !strcmp(answer_code(&answer), refused[row].code), "%s: %d %s",
		body, answer.status, answer.body);
	ck_assert_str_eq(json_string_value(json_object_get(
				 json_object_get(json_object_get(answer.json, "failure"), "detail"), "field")),
		field);
	answer_free(&answer);
}

START_TEST(what_is_no_policy_is_refused_by_its_field)
{
	struct rig rig;
	struct fake_node node;
	char id[ID_SIZE], path[128];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{}", id);
	rig_path(path, sizeof(path), "/sandboxes/*/network", id);
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		expect_field(&rig, "POST", "/v2/sandboxes", refused[i].create, i, true);
		if (refused[i].update)
			expect_field(&rig, "PUT", path, refused[i].update, i, false);
	}
	ck_assert_uint_eq(node.network_updates, 0);
	ck_assert(node.network.internet);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(too_many_rules_are_refused)
{
	CLEANUP_FREE char *body = malloc(NET_RULES_MAX * 32 + 128);
	size_t n = (size_t)sprintf(body, "{\"network\":{\"denyOut\":[");
	struct rig rig;

	for (unsigned int i = 0; i <= NET_RULES_MAX; i++)
		n += (size_t)sprintf(body + n, "%s\"8.%u.%u.0/24\"", i ? "," : "", i / 256, i % 256);
	(void)sprintf(body + n, "]}}");
	rig_open(&rig);
	rig_template(&rig, "base", "image");
	rig_expect(&rig, "POST", "/v2/sandboxes", rig.keys.tenant, body, 400, "INVALID_ARGUMENT");
	rig_close(&rig);
}
END_TEST

/* ---- what arrives ---- */

static void expect_shown(struct rig *rig, const char *id, bool internet, const char *network)
{
	static const char *const paths[] = { "/sandboxes/*", "/v1/sandboxes/*" };
	json_t *wanted = json_loads(network, 0, NULL);

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		struct answer answer = rig_get(rig, rig->keys.tenant, paths[i], id);

		ck_assert_msg(json_equal(json_object_get(answer.json, "network"), wanted), "%s", answer.body);
		ck_assert_int_eq(json_is_true(json_object_get(answer.json, i ? "internet" : "allowInternetAccess")), internet);
		answer_free(&answer);
	}
	json_decref(wanted);
}

START_TEST(a_policy_is_carried_changed_and_shown)
{
	struct rig rig;
	struct fake_node node;
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node,
		"{\"allow_internet_access\":false,\"network\":{\"allowOut\":[\"1.1.1.1\",\"*.PyPI.org\",\"8.8.8.0/24\"],\"denyOut\":[]}}",
		id);
	ck_assert(!node.network.internet && node.network.n_allow == 2 && node.network.n_allow_names == 1);
	ck_assert_str_eq(node.network.allow_names[0], "*.pypi.org");
	expect_shown(&rig, id, false, "{\"allowOut\":[\"1.1.1.1/32\",\"8.8.8.0/24\",\"*.pypi.org\"],\"denyOut\":[]}");
	/* replaced as a whole: what is left out is cleared */
	rig_expect_id(&rig, "PUT", "/sandboxes/*/network", id, rig.keys.tenant, "{\"denyOut\":[\"9.9.9.9\"]}", 204, NULL);
	ck_assert(node.network.internet && node.network.n_allow == 0 && node.network.n_deny == 1);
	expect_shown(&rig, id, true, "{\"allowOut\":[],\"denyOut\":[\"9.9.9.9/32\"]}");
	/* E2B's way to close the internet */
	rig_expect_id(&rig, "PUT", "/sandboxes/*/network", id, rig.keys.tenant,
		"{\"allowOut\":[\"pypi.org\"],\"denyOut\":[\"0.0.0.0/0\"]}", 204, NULL);
	ck_assert(net_policy_is_closed(&node.network));
	ck_assert_uint_eq(node.network_updates, 2);
	node_close(&node);
	rig_close(&rig);
}
END_TEST

START_TEST(a_change_that_fails_changes_nothing)
{
	struct rig rig;
	struct fake_node node;
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{\"network\":{\"denyOut\":[\"9.9.9.9\"]}}", id);
	(void)err_set(&node.network_failure, FAIL_NETWORK_RULES_FAILED, EIO, "the kernel does not take the network rules");
	rig_expect_id(&rig, "PUT", "/sandboxes/*/network", id, rig.keys.tenant, "{}", 503, "NETWORK_RULES_FAILED");
	expect_shown(&rig, id, true, "{\"allowOut\":[],\"denyOut\":[\"9.9.9.9/32\"]}");
	/* nobody else changes it, or learns that it is there */
	rig_expect_id(&rig, "PUT", "/sandboxes/*/network", id, rig.stranger, "{}", 404, "SANDBOX_NOT_FOUND");
	rig_expect(&rig, "PUT", "/sandboxes/aaaaaaaaaaaaaaaaaaaa/network", rig.keys.tenant, "{}", 404, "SANDBOX_NOT_FOUND");
	node_close(&node);
	rig_close(&rig);
}
END_TEST

/* It is in the store: a scheduler that starts again starts the sandbox's next generation with it. */
START_TEST(a_policy_outlives_the_scheduler)
{
	struct rig rig;
	struct fake_node node;
	char id[ID_SIZE];

	rig_open(&rig);
	rig_template(&rig, "base", "image");
	node_join(&node, &rig);
	rig_create(&rig, &node, "{}", id);
	rig_expect_id(&rig, "PUT", "/sandboxes/*/network", id, rig.keys.tenant, "{\"denyOut\":[\"9.9.9.9\"]}", 204, NULL);
	node_close(&node);
	rig_stop(&rig);
	rig_start(&rig);
	expect_shown(&rig, id, true, "{\"allowOut\":[],\"denyOut\":[\"9.9.9.9/32\"]}");
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api-network");
	TCase *tcase = tcase_create("api-network");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, what_is_no_policy_is_refused_by_its_field);
	tcase_add_test(tcase, too_many_rules_are_refused);
	tcase_add_test(tcase, a_policy_is_carried_changed_and_shown);
	tcase_add_test(tcase, a_change_that_fails_changes_nothing);
	tcase_add_test(tcase, a_policy_outlives_the_scheduler);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
