/* SPDX-License-Identifier: Apache-2.0
 *
 * Chained logs: whatever is done to an entry but cutting off the end is found by the entries alone, and the hash is one that
 * other programs compute.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "lib/suite.h"
#include "wire/chain.h"

#define N 8

static json_t *make_log(struct chain *head)
{
	json_t *log = json_array();

	for (int i = 0; i < N; i++) {
		json_t *personal = json_pack("{s:s, s:s}", "salt", "00ff", "name", "somebody"), *entry;
		char who[CHAIN_HASH_SIZE], *text;

		ck_assert_int_eq(chain_hash(personal, who), 0);
		entry = json_pack("{s:s, s:i, s:s}", "verb", "POST /v1/pools", "status", 201 + i, "who", who);
		ck_assert_int_eq(chain_add(head, entry, &text), 0);
		free(text);
		(void)json_object_set_new(entry, "hash", json_string(head->hash));
		(void)json_object_set_new(entry, "personal", personal);
		(void)json_array_append_new(log, entry);
	}
	return log;
}

/* The first fault of a log, and where. */
static enum chain_result verify(const json_t *log, size_t *ret_at, struct chain *head)
{
	*head = CHAIN_NEW;
	for (*ret_at = 0; *ret_at < json_array_size(log); ++*ret_at) {
		enum chain_result result = chain_check(head, json_array_get(log, *ret_at));

		if (result != CHAIN_OK)
			return result;
	}
	return CHAIN_OK;
}

static void check(const json_t *log, enum chain_result expected, size_t at)
{
	struct chain head;
	size_t found;

	ck_assert_str_eq(chain_result_text(verify(log, &found, &head)), chain_result_text(expected));
	ck_assert_uint_eq(found, at);
}

START_TEST(as_it_was_written)
{
	struct chain head = CHAIN_NEW, found;
	json_t *log = make_log(&head);
	size_t at;

	ck_assert_int_eq(verify(log, &at, &found), CHAIN_OK);
	ck_assert_uint_eq(found.seq, N);
	ck_assert_str_eq(found.hash, head.hash);
	for (size_t i = 0; i < N; i++) /* who erases persons breaks nothing */
		(void)json_object_del(json_array_get(log, i), "personal");
	check(log, CHAIN_OK, N);
	json_decref(log);
}
END_TEST

/* Each member of each entry, and each entry gone, doubled, moved. */
START_TEST(every_change_is_found)
{
	struct chain head = CHAIN_NEW;
	json_t *log = make_log(&head);

	for (size_t i = 0; i < N; i++) {
		static const char *const members[] = { "verb", "status", "who", "prev", "hash" };
		json_t *changed;

		for (size_t k = 0; k < ARRAY_LEN(members); k++) {
			changed = json_deep_copy(log);
			(void)json_object_set_new(json_array_get(changed, i), members[k], json_string("x"));
			check(changed, !strcmp(members[k], "hash") ? CHAIN_NO_ENTRY : CHAIN_CHANGED, i);
			json_decref(changed);
		}
		changed = json_deep_copy(log);
		(void)json_object_set_new(json_array_get(changed, i), "added", json_true());
		check(changed, CHAIN_CHANGED, i);
		json_decref(changed);
		changed = json_deep_copy(log);
		(void)json_object_set_new(json_object_get(json_array_get(changed, i), "personal"), "name", json_string("somebody else"));
		check(changed, CHAIN_PERSONAL, i);
		json_decref(changed);
		changed = json_deep_copy(log);
		(void)json_array_remove(changed, i);
		if (i + 1 < N)
			check(changed, CHAIN_MISSING, i);
		else
			check(changed, CHAIN_OK, N - 1); /* the end: only a head that was kept shows it */
		json_decref(changed);
		changed = json_deep_copy(log);
		(void)json_array_insert(changed, i, json_array_get(log, i));
		check(changed, CHAIN_ORDER, i + 1);
		json_decref(changed);
	}
	json_decref(log);
}
END_TEST

/* Who changes an entry and gives it the hash that it has now is found by the next one. */
START_TEST(a_new_hash_does_not_help)
{
	struct chain head = CHAIN_NEW;
	json_t *log = make_log(&head), *entry = json_array_get(log, 3), *bare = json_copy(entry);
	char hash[CHAIN_HASH_SIZE];

	(void)json_object_del(bare, "hash");
	(void)json_object_del(bare, "personal");
	(void)json_object_set_new(bare, "status", json_integer(500));
	ck_assert_int_eq(chain_hash(bare, hash), 0);
	(void)json_object_set_new(entry, "status", json_integer(500));
	(void)json_object_set_new(entry, "hash", json_string(hash));
	check(log, CHAIN_PREV, 4);
	json_decref(bare);
	json_decref(log);
}
END_TEST

START_TEST(a_hash_that_others_compute)
{
	/* printf '{"a":"x","b":1}' | sha256sum */
	json_t *object = json_pack("{s:i, s:s}", "b", 1, "a", "x");
	char hash[CHAIN_HASH_SIZE];

	ck_assert_int_eq(chain_hash(object, hash), 0);
	ck_assert_str_eq(hash, "cdab067e9f3beb32d1252cfd63e492592fecbf591b0d08cadb24bb17f3864246");
	json_decref(object);
}
END_TEST

START_TEST(what_is_no_entry)
{
	static const char *const texts[] = { "{}", "[]", "1", "{\"seq\":1}", "{\"seq\":\"1\",\"prev\":\"\",\"hash\":\"\"}",
		"{\"seq\":1,\"prev\":\"\",\"hash\":\"ab\"}" };

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		json_t *entry = json_loads(texts[i], 0, NULL);
		struct chain head = CHAIN_NEW;

		ck_assert_int_eq(chain_check(&head, entry), CHAIN_NO_ENTRY);
		ck_assert_uint_eq(head.seq, 0);
		json_decref(entry);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("chain");
	TCase *tc = tcase_create("chain");

	tcase_add_test(tc, as_it_was_written);
	tcase_add_test(tc, every_change_is_found);
	tcase_add_test(tc, a_new_hash_does_not_help);
	tcase_add_test(tc, a_hash_that_others_compute);
	tcase_add_test(tc, what_is_no_entry);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
