/* SPDX-License-Identifier: Apache-2.0
 *
 * The link's keys as files: what each step leaves, and what a step that was cut off leaves is good as well.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "lib/suite.h"
#include "server/link-keys.h"
#include "server/options.h"

#define NOW (INT64_C(1800000000) * USEC_PER_SEC)

struct place {
	char dir[64], next[96], safe[96];
	struct options options;
	struct curve_keys first;
};

static void place_open(struct place *place)
{
	char path[96];
	struct err err = ERR_NULL;

	memset(place, 0, sizeof(*place));
	(void)snprintf(place->dir, sizeof(place->dir), "/tmp/croft-keys-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(place->dir));
	place->options.state = place->dir;
	(void)snprintf(place->next, sizeof(place->next), "%s/link.next.key", place->dir);
	(void)snprintf(place->safe, sizeof(place->safe), "%s/safe", place->dir);
	(void)snprintf(path, sizeof(path), "%s/link.key", place->dir);
	ck_assert_int_eq(curve_keys_new(&place->first, &err), 0);
	ck_assert_int_eq(curve_keys_write(path, &place->first, &err), 0);
}

static struct link_keys at(const struct place *place, int64_t now)
{
	struct link_keys keys;
	struct err err = ERR_NULL;

	ck_assert_msg(link_keys_read(&place->options, now, &keys, &err) == 0, "%s", err.msg);
	return keys;
}

static void make_next(const struct place *place)
{
	struct err err = ERR_NULL;

	ck_assert_msg(link_keys_next(&place->options, place->next, &err) == 0, "%s", err.msg);
}

static int rotate(const struct place *place, const char *from, bool at_once, enum fail_code *ret_code)
{
	struct err err = ERR_NULL;
	int r = link_keys_rotate(&place->options, from, place->next, at_once, NOW, &err);

	*ret_code = err.code;
	return r;
}

START_TEST(a_next_key_is_announced_and_its_secret_is_not_read)
{
	struct place place;
	struct link_keys keys;
	struct err err = ERR_NULL;
	struct stat st;

	place_open(&place);
	keys = at(&place, NOW);
	ck_assert_str_eq(keys.served.public_key, place.first.public_key);
	ck_assert_str_eq(keys.next, "");
	make_next(&place);
	ck_assert_int_eq(stat(place.next, &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	ck_assert_int_lt(link_keys_next(&place.options, place.next, &err), 0);
	ck_assert_int_eq(err.code, FAIL_CONFLICT);
	ck_assert_int_eq(unlink(place.next), 0);
	keys = at(&place, NOW);
	ck_assert_uint_eq(strlen(keys.next), KEY_Z85_SIZE - 1);
	ck_assert_str_eq(keys.served.public_key, place.first.public_key);
	ck_assert_str_eq(keys.fresh.public_key, "");
	ck_assert_int_eq(dir_remove(place.dir), 0);
}
END_TEST

START_TEST(a_rotation_overlaps_and_ends)
{
	struct place place;
	struct link_keys before, keys;
	enum fail_code code;

	place_open(&place);
	ck_assert_int_lt(rotate(&place, place.next, false, &code), 0);
	ck_assert_int_eq(code, FAIL_CONFLICT); /* nobody knows a next key */
	make_next(&place);
	before = at(&place, NOW);
	ck_assert_int_eq(rename(place.next, place.safe), 0);
	ck_assert_int_eq(rotate(&place, place.safe, false, &code), 0);
	keys = at(&place, NOW);
	ck_assert_str_eq(keys.served.public_key, place.first.public_key);
	ck_assert_str_eq(keys.fresh.public_key, before.next);
	ck_assert_str_ne(keys.next, before.next);
	ck_assert_uint_eq(strlen(keys.next), KEY_Z85_SIZE - 1);
	ck_assert_int_lt(rotate(&place, place.next, false, &code), 0);
	ck_assert_int_eq(code, FAIL_CONFLICT); /* the last one is not over */
	keys = at(&place, NOW + LINK_OVERLAP_USEC - 1);
	ck_assert_str_eq(keys.served.public_key, place.first.public_key);
	keys = at(&place, NOW + LINK_OVERLAP_USEC);
	ck_assert_str_eq(keys.served.public_key, before.next);
	ck_assert_str_eq(keys.fresh.public_key, "");
	keys = at(&place, NOW); /* and stays over, whatever the clock says later */
	ck_assert_str_eq(keys.served.public_key, before.next);
	ck_assert_int_eq(dir_remove(place.dir), 0);
}
END_TEST

START_TEST(a_stolen_key_is_served_no_more)
{
	struct place place;
	struct link_keys before, keys;
	enum fail_code code;

	place_open(&place);
	make_next(&place);
	before = at(&place, NOW);
	if (_i == 1) { /* in the middle of an overlap */
		ck_assert_int_eq(rotate(&place, place.next, false, &code), 0);
		before = at(&place, NOW);
	}
	ck_assert_int_eq(rotate(&place, place.next, true, &code), 0);
	keys = at(&place, NOW);
	ck_assert_str_eq(keys.served.public_key, before.next);
	ck_assert_str_eq(keys.fresh.public_key, "");
	ck_assert_str_ne(keys.next, before.next);
	ck_assert_int_eq(dir_remove(place.dir), 0);
}
END_TEST

START_TEST(another_pair_is_refused)
{
	struct place place;
	struct link_keys before, keys;
	struct curve_keys other;
	enum fail_code code;

	place_open(&place);
	make_next(&place);
	before = at(&place, NOW);
	ck_assert_int_eq(curve_keys_new(&other, NULL), 0);
	ck_assert_int_eq(curve_keys_write(place.safe, &other, NULL), 0);
	ck_assert_int_lt(rotate(&place, place.safe, true, &code), 0);
	ck_assert_int_eq(code, FAIL_CONFLICT);
	keys = at(&place, NOW);
	ck_assert_mem_eq(&keys, &before, sizeof(keys));
	ck_assert_int_eq(dir_remove(place.dir), 0);
}
END_TEST

/* Behind its first step: the new pair lies there, nothing says so. Nodes know it, so that it is as good as done. */
START_TEST(a_rotation_that_was_cut_off)
{
	struct place place;
	struct link_keys before, keys;
	char fresh[96];
	struct err err = ERR_NULL;

	place_open(&place);
	make_next(&place);
	before = at(&place, NOW);
	(void)snprintf(fresh, sizeof(fresh), "%s/%s", place.dir, _i ? "link.fresh.key" : "link.key");
	ck_assert_int_eq(rename(place.next, fresh), 0);
	keys = at(&place, NOW);
	ck_assert_str_eq(keys.served.public_key, before.next);
	ck_assert_str_eq(keys.next, "");
	ck_assert_int_eq(link_keys_next(&place.options, place.next, &err), 0);
	ck_assert_uint_eq(strlen(at(&place, NOW).next), KEY_Z85_SIZE - 1);
	ck_assert_int_eq(dir_remove(place.dir), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("link-keys");
	TCase *all = tcase_create("files");

	tcase_add_test(all, a_next_key_is_announced_and_its_secret_is_not_read);
	tcase_add_test(all, a_rotation_overlaps_and_ends);
	tcase_add_loop_test(all, a_stolen_key_is_served_no_more, 0, 2);
	tcase_add_test(all, another_pair_is_refused);
	tcase_add_loop_test(all, a_rotation_that_was_cut_off, 0, 2);
	suite_add_tcase(suite, all);
	return suite_run(suite);
}
