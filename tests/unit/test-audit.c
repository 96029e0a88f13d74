/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's audit log: what is in it, for whom, over restarts and failures of the store; what is done to the file behind the
 * scheduler's back is found.
 */
#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/suite.h"
#include "server/audit.h"
#include "unit/test-api-rig.h"

static struct rig rig;

static void set_up(void)
{
	rig_open(&rig);
}

static void tear_down(void)
{
	rig_close(&rig);
}

static json_t *read_log(const char *query)
{
	struct answer answer = rig_get(&rig, rig.keys.provider, "/v1/audit?limit=1000*", query);
	json_t *json = json_incref(answer.json);

	ck_assert_msg(answer.status == 200, "%s", answer.body);
	answer_free(&answer);
	return json;
}

/* All that waits is in the store. */
static json_t *settled_log(void)
{
	audit_flush(rig.server->audit);
	for (int i = 0; i < 500 && shell_held(rig.server->shell) > 0; i++)
		loop_for(rig.base, 2);
	return read_log("");
}

static enum chain_result verify(const json_t *log, uint64_t *ret_seq)
{
	const json_t *base = json_object_get(log, "base"), *head = json_object_get(log, "head");
	struct chain chain = { .seq = (uint64_t)json_integer_value(json_object_get(base, "seq")) };
	enum chain_result result = CHAIN_OK;
	json_t *entry;
	size_t k;

	answer_text(base, "hash", chain.hash, sizeof(chain.hash));
	json_array_foreach(json_object_get(log, "entries"), k, entry) {
		result = chain_check(&chain, entry);
		if (result != CHAIN_OK)
			break;
	}
	*ret_seq = chain.seq;
	if (result == CHAIN_OK && (json_int_t)chain.seq == json_integer_value(json_object_get(head, "seq")))
		ck_assert_str_eq(json_string_value(json_object_get(head, "hash")), chain.hash);
	return result;
}

static uint64_t head_of(const json_t *log)
{
	return (uint64_t)json_integer_value(json_object_get(json_object_get(log, "head"), "seq"));
}

static uint64_t check_whole(const json_t *log)
{
	uint64_t seq;

	ck_assert_str_eq(chain_result_text(verify(log, &seq)), chain_result_text(CHAIN_OK));
	ck_assert_uint_eq(seq, head_of(log));
	return seq;
}

/* The entries of this verb and outcome. */
static size_t count(const json_t *log, const char *verb, const char *outcome, const json_t **ret_last)
{
	json_t *entry;
	size_t k, n = 0;

	json_array_foreach(json_object_get(log, "entries"), k, entry) {
		const char *v = json_string_value(json_object_get(entry, "verb")), *o = json_string_value(json_object_get(entry, "outcome"));

		if (!v || !o || strcmp(v, verb) != 0 || strcmp(o, outcome) != 0)
			continue;
		n++;
		if (ret_last)
			*ret_last = entry;
	}
	return n;
}

static const char *member(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text ? text : "";
}

START_TEST(who_did_what_and_what_became_of_it)
{
	const json_t *entry = NULL, *asked = NULL;
	char id[KEY_ID_LEN + 1];
	json_t *log;

	rig_expect(&rig, "POST", "/v1/tenants", rig.keys.provider, "{\"name\":\"mary\"}", 201, NULL);
	rig_expect(&rig, "POST", "/v1/tenants", rig.keys.provider, "{\"name\":\"mary\"}", 409, "CONFLICT");
	rig_expect(&rig, "POST", "/v1/tenants", rig.keys.tenant, "{\"name\":\"x\"}", 403, "FORBIDDEN");
	rig_expect(&rig, "POST", "/v1/tenants", "croft_nobody", "{\"name\":\"x\"}", 401, "UNAUTHENTICATED");
	rig_expect(&rig, "GET", "/v1/tenants", rig.keys.provider, NULL, 200, NULL);
	rig_expect(&rig, "POST", "/v1/explain", rig.keys.tenant, "{}", 404, "TEMPLATE_NOT_FOUND");
	log = settled_log();
	(void)check_whole(log);
	ck_assert_uint_eq(count(log, "POST /v1/tenants", "ok", &entry), 1);
	ck_assert_str_eq(member(entry, "role"), "provider-operator");
	(void)snprintf(id, sizeof(id), "%s", member(entry, "key"));
	ck_assert_ptr_nonnull(registry_key_by_id(&rig.server->registry, id));
	ck_assert_int_eq(json_integer_value(json_object_get(entry, "status")), 201);
	ck_assert_str_eq(member(json_object_get(entry, "personal"), "made"), "mary");
	ck_assert_uint_eq(count(log, "POST /v1/tenants", "asked", &asked), 1); /* with the change; the refusal wrote nothing */
	ck_assert_str_eq(member(asked, "request"), member(entry, "request"));
	ck_assert_uint_eq(count(log, "POST /v1/tenants", "failed", &entry), 1);
	ck_assert_str_eq(member(entry, "code"), "CONFLICT");
	ck_assert_uint_eq(count(log, "POST /v1/tenants", "forbidden", &entry), 1);
	ck_assert_str_eq(member(entry, "role"), "tenant");
	ck_assert_uint_eq(json_array_size(json_object_get(log, "entries")), 4);
	json_decref(log);
}
END_TEST

/* Names that people choose are in the personal fields alone; secrets are nowhere. */
START_TEST(names_are_apart_and_secrets_nowhere)
{
	struct answer answer = rig_call(&rig, "POST", "/v1/keys", rig.keys.provider, "{\"role\":\"provider-operator\",\"name\":\"mary-s\"}");
	char secret[API_KEY_SIZE], *text;
	json_t *log, *entry;
	size_t k;

	ck_assert_int_eq(answer.status, 201);
	answer_text(answer.json, "key", secret, sizeof(secret));
	answer_free(&answer);
	rig_expect(&rig, "POST", "/v1/tenants", secret, "{\"name\":\"mary-t\",\"customer\":\"default\"}", 201, NULL);
	rig_expect(&rig, "PATCH", "/v1/tenants/mary-t", secret, "{\"quota\":{\"sandboxes\":3}}", 200, NULL);
	log = settled_log();
	text = json_dumps(log, 0);
	ck_assert_ptr_null(strstr(text, secret));
	ck_assert_ptr_nonnull(strstr(text, "mary-s"));
	ck_assert_ptr_nonnull(strstr(text, "/v1/tenants/mary-t"));
	free(text);
	json_array_foreach(json_object_get(log, "entries"), k, entry)
		(void)json_object_del(entry, "personal");
	text = json_dumps(log, 0);
	ck_assert_ptr_null(strstr(text, "mary"));
	free(text);
	(void)check_whole(log);
	json_decref(log);
}
END_TEST

START_TEST(for_the_provider_alone)
{
	rig_expect(&rig, "GET", "/v1/audit", rig.keys.tenant, NULL, 403, "FORBIDDEN");
	rig_expect(&rig, "GET", "/v1/audit", rig.operator, NULL, 403, "FORBIDDEN");
	rig_expect(&rig, "GET", "/v1/audit?limit=1001", rig.keys.provider, NULL, 400, "INVALID_ARGUMENT");
	rig_expect(&rig, "GET", "/v1/audit?after=-1", rig.keys.provider, NULL, 400, "INVALID_ARGUMENT");
}
END_TEST

static void make_tenants(int from, int n)
{
	for (int i = from; i < from + n; i++) {
		char body[64];

		(void)snprintf(body, sizeof(body), "{\"name\":\"t%d\"}", i);
		rig_expect(&rig, "POST", "/v1/tenants", rig.keys.provider, body, 201, NULL);
	}
}

START_TEST(pages_and_restarts)
{
	uint64_t before, after;
	json_t *log, *page;

	make_tenants(0, 5);
	log = settled_log();
	before = check_whole(log);
	ck_assert_uint_eq(before, 10);
	json_decref(log);
	rig_stop(&rig);
	rig_start(&rig);
	make_tenants(5, 5);
	log = settled_log();
	after = check_whole(log);
	ck_assert_uint_eq(after, 20);
	json_decref(log);
	page = read_log("&limit=7&after=9");
	ck_assert_uint_eq(json_array_size(json_object_get(page, "entries")), 11); /* the first of two limits counts */
	json_decref(page);
	for (unsigned int limit = 1; limit < 25; limit += 6) {
		char query[64];
		struct answer answer;

		(void)snprintf(query, sizeof(query), "/v1/audit?limit=%u&after=3", limit);
		answer = rig_call(&rig, "GET", query, rig.keys.provider, NULL);
		ck_assert_uint_eq(json_array_size(json_object_get(answer.json, "entries")), MIN(limit, 17u));
		ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(json_object_get(answer.json, "entries"), 0), "seq")), 4);
		ck_assert(json_is_true(json_object_get(answer.json, "more")) == (limit < 17));
		answer_free(&answer);
	}
}
END_TEST

/* ---- the file ---- */

static void sql(const char *text)
{
	char path[128];
	sqlite3 *db = NULL;

	(void)snprintf(path, sizeof(path), "%s/store.db", rig.dir);
	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	(void)sqlite3_busy_timeout(db, 10000);
	ck_assert_int_eq(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
	(void)sqlite3_close(db);
}

static const struct tampering {
	const char *sql;
	enum chain_result result;
	uint64_t after; /* whole up to here */
} tamperings[] = {
	{ "UPDATE record SET value = replace(CAST(value AS TEXT), 'provider-operator', 'provider-operatox') WHERE key = 'audit/0000000000000004'",
		CHAIN_CHANGED, 3 },
	{ "DELETE FROM record WHERE key = 'audit/0000000000000004'", CHAIN_MISSING, 3 },
	{ "DELETE FROM record WHERE key = 'audit/0000000000000001'", CHAIN_MISSING, 0 },
	{ "UPDATE record SET key = 'x' WHERE key = 'audit/0000000000000004'; UPDATE record SET key = 'audit/0000000000000004' WHERE key = "
	  "'audit/0000000000000005'; UPDATE record SET key = 'audit/0000000000000005' WHERE key = 'x'",
		CHAIN_MISSING, 3 },
	{ "UPDATE record SET value = replace(CAST(value AS TEXT), '\"made\":\"t', '\"made\":\"u') WHERE key LIKE 'audit/%4/who'", CHAIN_PERSONAL, 3 },
	{ "DELETE FROM record WHERE key >= 'audit/0000000000000007' AND key < 'audit/1'", CHAIN_OK, 6 }, /* the end: short of the head */
	{ "DELETE FROM record WHERE key LIKE 'audit/%/who'", CHAIN_OK, 10 },                            /* persons are erased: it is whole */
};

START_TEST(tampering_is_found)
{
	const struct tampering *tampering = &tamperings[_i];
	uint64_t seq;
	json_t *log;

	make_tenants(0, 5);
	log = settled_log();
	ck_assert_uint_eq(check_whole(log), 10);
	json_decref(log);
	sql(tampering->sql);
	log = read_log("");
	ck_assert_str_eq(chain_result_text(verify(log, &seq)), chain_result_text(tampering->result));
	ck_assert_uint_eq(seq, tampering->after);
	ck_assert_uint_eq(head_of(log), 10);
	json_decref(log);
}
END_TEST

/* Also over a restart: what was cut off is not written again, so that it stays missing. */
START_TEST(what_was_cut_off_stays_missing)
{
	uint64_t seq;
	json_t *log;

	make_tenants(0, 5);
	json_decref(settled_log());
	rig_stop(&rig);
	sql("DELETE FROM record WHERE key >= 'audit/0000000000000007' AND key < 'audit/1'");
	rig_start(&rig);
	make_tenants(5, 1);
	log = settled_log();
	ck_assert_str_eq(chain_result_text(verify(log, &seq)), chain_result_text(CHAIN_MISSING));
	ck_assert_uint_eq(seq, 6);
	ck_assert_uint_eq(head_of(log), 12);
	json_decref(log);
}
END_TEST

/* A step of many records that a crash cut off: its entries are there, the head that is the last of it is not. */
START_TEST(a_head_that_lags_is_caught_up)
{
	json_t *log;

	make_tenants(0, 2);
	json_decref(settled_log());
	sql("CREATE TABLE kept AS SELECT * FROM record WHERE key = 'audit-head'");
	make_tenants(2, 2);
	json_decref(settled_log());
	rig_stop(&rig);
	sql("UPDATE record SET value = (SELECT value FROM kept) WHERE key = 'audit-head'; DROP TABLE kept");
	rig_start(&rig);
	make_tenants(4, 1);
	log = settled_log();
	ck_assert_uint_eq(check_whole(log), 10);
	json_decref(log);
}
END_TEST

/* Killed at any moment: what was made has an entry that it was asked for, and the chain is whole. */
START_TEST(killed_in_the_middle)
{
	const useconds_t after = 1000 + 700 * (useconds_t)_i; /* the first one is made */
	int status, made[2];
	char byte;
	pid_t child;
	json_t *log, *tenants;
	struct answer answer;

	rig_stop(&rig);
	ck_assert_int_eq(pipe(made), 0);
	child = fork();
	if (child == 0) {
		rig_start(&rig);
		for (int i = 0; write(made[1], "", 1) == 1; i++)
			make_tenants(i, 1);
		_exit(1);
	}
	ck_assert_int_eq(read(made[0], &byte, 1), 1);
	ck_assert_int_eq(read(made[0], &byte, 1), 1);
	(void)usleep(after);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	rig_start(&rig);
	log = settled_log();
	(void)check_whole(log);
	answer = rig_call(&rig, "GET", "/v1/tenants", rig.keys.provider, NULL);
	tenants = answer.json;
	ck_assert_uint_gt(json_array_size(tenants), 3);
	ck_assert_uint_le(json_array_size(tenants) - 3, count(log, "POST /v1/tenants", "asked", NULL));
	answer_free(&answer);
	json_decref(log);
}
END_TEST

/* ---- bounds ---- */

START_TEST(the_oldest_go_and_the_log_says_so)
{
	const json_t *entry = NULL;
	json_t *log;
	uint64_t base;

	rig.options.audit_count = 10;
	make_tenants(0, 60);
	json_decref(settled_log());
	for (int i = 0; i < 100; i++) /* it goes on by itself */
		loop_for(rig.base, 5);
	log = settled_log();
	(void)check_whole(log);
	base = (uint64_t)json_integer_value(json_object_get(json_object_get(log, "base"), "seq"));
	ck_assert_uint_gt(base, 0);
	ck_assert_uint_le(json_array_size(json_object_get(log, "entries")), 10 + 2 * 28);
	ck_assert_uint_ge(count(log, "audit expire", "ok", &entry), 1);
	ck_assert_uint_eq((uint64_t)json_integer_value(json_object_get(entry, "upto")), base);
	ck_assert_str_eq(member(entry, "hash_upto"), member(json_object_get(log, "base"), "hash"));
	json_decref(log);
	rig_stop(&rig);
	rig_start(&rig);
	log = settled_log();
	(void)check_whole(log);
	json_decref(log);
}
END_TEST

/* While the store is broken entries wait within bounds; what found no room is counted, also in the log. */
START_TEST(no_room_is_said)
{
	struct audit_state state;
	const json_t *entry = NULL;
	struct answer answer;
	const json_t *log;

	for (unsigned int i = 0; i < AUDIT_WAITING_MAX + 7; i++)
		audit_note(rig.server->audit, "node", "", "test", "");
	audit_state(rig.server->audit, &state);
	ck_assert_uint_eq(state.n_waiting, AUDIT_WAITING_MAX);
	ck_assert_uint_eq(state.n_dropped, 7);
	json_decref(settled_log());
	answer = rig_call(&rig, "GET", "/v1/audit?after=4090", rig.keys.provider, NULL);
	log = answer.json;
	ck_assert_uint_eq(count(log, "audit drop", "ok", &entry), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(entry, "n")), 7);
	answer_free(&answer);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("audit");
	TCase *tc = tcase_create("audit");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, who_did_what_and_what_became_of_it);
	tcase_add_test(tc, names_are_apart_and_secrets_nowhere);
	tcase_add_test(tc, for_the_provider_alone);
	tcase_add_test(tc, pages_and_restarts);
	tcase_add_loop_test(tc, tampering_is_found, 0, (int)ARRAY_LEN(tamperings));
	tcase_add_test(tc, what_was_cut_off_stays_missing);
	tcase_add_test(tc, a_head_that_lags_is_caught_up);
	tcase_add_loop_test(tc, killed_in_the_middle, 0, 10);
	tcase_add_test(tc, the_oldest_go_and_the_log_says_so);
	tcase_add_test(tc, no_room_is_said);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
