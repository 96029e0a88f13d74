/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of a time asked once more: made traces whose answer is known, and random ones against a count of slots.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"
#include "lib/suite.h"
#include "place/replay.h"

#define POOL "pool"
#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define RANDOM_MOST 600

static struct place *place;
static struct place_wish *anywhere;
static struct rng rng; /* seeded by the number of the loop */
static const struct node_capacity eight = { .memory_mib = 64000, .cpus = 8, .disk_mib = 640000, .max_sandboxes = 100, .max_starts = 1,
	.max_vcpus = 8 };

static void set_up(void)
{
	ck_assert_int_eq(place_new(&place), 0);
	ck_assert_int_eq(place_pool_set(place, POOL, 100), 0);
	anywhere = place_wish_new("acme", "", "", NULL, 0);
	ck_assert_ptr_nonnull(anywhere);
}

static void tear_down(void)
{
	place = place_free(place);
	anywhere = place_wish_unref(anywhere);
}

static struct place_node *add(const char *id, const struct node_capacity *capacity)
{
	const struct place_node_facts facts = { .connected = true, .allowed = true, .busy = true, .capacity = *capacity };
	struct place_node *node;

	ck_assert_int_eq(place_node_add(place, POOL, id, &node), 0);
	ck_assert_int_eq(place_node_set(place, node, &facts), 0);
	return node;
}

static struct place_request request(int64_t at_us, int64_t until_us, uint32_t vcpus)
{
	return (struct place_request){ .at_us = at_us, .until_us = until_us, .memory_mib = 512, .disk_mib = 1024, .vcpus = vcpus,
		.wish = anywhere };
}

static struct place_replay_result replay(const struct place_request *requests, size_t n, int64_t from_us, int64_t life_us,
	const struct place_change *change, const struct place_reshape *reshape)
{
	struct place_replay_result result;
	struct place_copy *copy;

	ck_assert_int_eq(place_copy_new(&copy, place, POOL, DIGEST), 0);
	ck_assert_int_eq(place_replay(copy, requests, n, from_us, life_us, change, reshape, &result), 0);
	place_copy_free(copy);
	return result;
}

/* Three of four vCPUs on eight CPUs, at once: the third finds none, whatever runs there now, unless something is changed. */
START_TEST(what_a_change_would_have_done)
{
	const struct place_request requests[] = { request(1000, 9000, 4), request(2000, 9000, 4), request(3000, 9000, 4) };
	const struct place_change more = { .n_nodes = 1, .node = eight }, denser = { .overcommit_percent = 150 },
				  dense = { .overcommit_percent = 149 };
	const struct place_reshape halved = { .vcpus = 4, .to_vcpus = 2 }, others = { .vcpus = 2, .to_vcpus = 1 },
				   half = { .to_vcpus = 2 };
	const struct {
		const struct place_change *change;
		const struct place_reshape *reshape;
		uint64_t n_placed, peak_vcpus;
	} rows[] = { { NULL, NULL, 2, 8 }, { &more, NULL, 3, 12 }, { &denser, NULL, 3, 12 }, { &dense, NULL, 2, 8 }, { NULL, &halved, 3, 6 },
		{ NULL, &half, 3, 6 }, { NULL, &others, 2, 8 } };
	const struct place_demand full = { .memory_mib = 60000, .disk_mib = 600000, .vcpus = 8 };
	struct place_node *node = add("node0", &eight);

	ck_assert_int_eq(place_reserve(place, node, &full, true), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct place_replay_result result = replay(requests, 3, 0, PLACE_STAYS, rows[i].change, rows[i].reshape);

		ck_assert_msg(result.n_placed == rows[i].n_placed && result.n_refused == 3 - rows[i].n_placed, "row %zu", i);
		ck_assert_uint_eq(result.peak_vcpus, rows[i].peak_vcpus);
		ck_assert_uint_eq(result.peak_sandboxes, rows[i].n_placed);
		ck_assert_int_eq(result.first_us, result.n_refused ? 3000 : 0);
		ck_assert_uint_eq(result.by[PLACE_CPU], result.n_refused);
		ck_assert_uint_eq(result.n_standing, 0);
	}
}
END_TEST

static const struct {
	const char *what;
	struct place_reshape reshape;
	uint64_t n_placed;
	enum place_constraint by;
} sizes[] = {
	{ "memory", { .memory_mib = 512, .to_memory_mib = 40000 }, 1, PLACE_MEMORY },
	{ "memory of another size", { .memory_mib = 513, .to_memory_mib = 40000 }, 2, PLACE_CPU },
	{ "disk", { .to_disk_mib = 400000 }, 1, PLACE_DISK },
	{ "disk of another size", { .disk_mib = 1025, .to_disk_mib = 400000 }, 2, PLACE_CPU },
	{ "all three", { .vcpus = 4, .memory_mib = 512, .disk_mib = 1024, .to_vcpus = 1, .to_memory_mib = 20000, .to_disk_mib = 2048 }, 3,
		PLACE_CONSTRAINT_MAX_ },
};

START_TEST(another_shape)
{
	const struct place_request requests[] = { request(1, 9, 4), request(2, 9, 4), request(3, 9, 4) };
	struct place_replay_result result;

	add("node0", &eight);
	result = replay(requests, 3, 0, PLACE_STAYS, NULL, &sizes[_i].reshape);
	ck_assert_msg(result.n_placed == sizes[_i].n_placed, "%s", sizes[_i].what);
	if (sizes[_i].by < PLACE_CONSTRAINT_MAX_)
		ck_assert_uint_eq(result.by[sizes[_i].by], 3 - sizes[_i].n_placed);
}
END_TEST

/* Room is there again in the very moment in which its sandbox ended, not before, and what stays keeps it. */
START_TEST(room_comes_back_when_a_sandbox_ended)
{
	struct place_request requests[] = { request(0, 100, 8), request(99, 150, 8), request(100, 200, 8), request(200, PLACE_STAYS, 8),
		request(INT64_MAX - 1, INT64_MAX, 1) };
	struct place_replay_result result;

	add("node0", &eight);
	result = replay(requests, ARRAY_LEN(requests), 0, PLACE_STAYS, NULL, NULL);
	ck_assert_uint_eq(result.n_placed, 3);
	ck_assert_uint_eq(result.n_refused, 2);
	ck_assert_int_eq(result.first_us, 99);
	ck_assert_uint_eq(result.peak_sandboxes, 1);
}
END_TEST

/* What ran already when the time begins takes its room first and counts apart; what was over by then, or never had room, is not there. */
START_TEST(what_ran_before)
{
	struct place_request requests[] = { request(10, 1000, 4), request(20, 100, 8), request(30, PLACE_UNKNOWN, 8), request(40, 101, 4),
		request(50, 500, 1), request(100, 300, 4), request(101, 300, 4) };
	struct place_replay_result result;

	add("node0", &eight);
	result = replay(requests, ARRAY_LEN(requests), 100, 1000, NULL, NULL);
	ck_assert_uint_eq(result.n_standing, 3);
	ck_assert_uint_eq(result.n_standing_refused, 1);
	ck_assert_uint_eq(result.n_placed, 1);
	ck_assert_uint_eq(result.n_refused, 1);
	ck_assert_int_eq(result.first_us, 100);
}
END_TEST

/* Nobody knows how long what found no room would have run: as long as the one in the middle of those that did. */
START_TEST(a_life_that_is_not_known)
{
	struct place_request requests[] = { request(0, 10, 1), request(0, 1000, 1), request(0, 100, 1), request(5, PLACE_UNKNOWN, 8),
		request(0, PLACE_STAYS, 1) };
	struct place_request later[] = { request(0, PLACE_UNKNOWN, 8), request(99, 200, 8), request(100, 200, 8) };

	add("node0", &eight);
	ck_assert_int_eq(place_replay_life(requests, ARRAY_LEN(requests)), 100);
	ck_assert_int_eq(place_replay_life(requests, 0), PLACE_STAYS);
	place_replay_sort(requests, ARRAY_LEN(requests));
	ck_assert_int_eq(requests[ARRAY_LEN(requests) - 1].at_us, 5);
	ck_assert_int_eq(place_replay_life(&requests[ARRAY_LEN(requests) - 1], 1), PLACE_STAYS);
	ck_assert_uint_eq(replay(later, 3, 0, 100, NULL, NULL).n_refused, 1);
	ck_assert_uint_eq(replay(later, 3, 0, 99, NULL, NULL).n_refused, 1);
	ck_assert_uint_eq(replay(later, 2, 0, 99, NULL, NULL).n_refused, 0);
	ck_assert_uint_eq(replay(later, 3, 0, PLACE_STAYS, NULL, NULL).n_refused, 2);
}
END_TEST

/* A node more is like the pool's largest, so that what wants its labels finds it. */
START_TEST(where_it_may_go)
{
	char key[] = "region", north_text[] = "north", south_text[] = "south", disk_key[] = "disk", disk_text[] = "nvme";
	const struct sandbox_field north[] = { { key, north_text }, { disk_key, disk_text } }, south = { key, south_text };
	struct place_wish *wish = place_wish_new("acme", "north", "", &north[1], 1);
	struct node_capacity large = eight;
	const struct place_change more = { .n_nodes = 1, .node = eight };
	struct place_request requests[] = { request(1, 9, 8), request(2, 9, 8) };
	struct place_replay_result result;

	large.memory_mib++;
	ck_assert_int_eq(place_node_set_profile(place, add("node0", &eight), "", &south, 1), 0);
	ck_assert_int_eq(place_node_set_profile(place, add("node1", &large), "", north, 2), 0);
	ck_assert_uint_eq(replay(requests, 2, 0, PLACE_STAYS, NULL, NULL).n_refused, 0);
	requests[0].wish = requests[1].wish = wish;
	result = replay(requests, 2, 0, PLACE_STAYS, NULL, NULL);
	ck_assert_uint_eq(result.n_refused, 1);
	ck_assert_uint_eq(replay(requests, 2, 0, PLACE_STAYS, &more, NULL).n_refused, 0);
	ck_assert(place_wish_is(wish, "acme", "north", "", &north[1], 1));
	ck_assert(!place_wish_is(wish, "acme", "north", "", &north[0], 1) && !place_wish_is(wish, "acme", "north", "", NULL, 0) &&
		  !place_wish_is(wish, "acme", "", "north", &north[1], 1) && !place_wish_is(wish, "", "north", "", &north[1], 1) &&
		  !place_wish_is(wish, "acme", "north", "x", &north[1], 1));
	wish->n_refs++;
	ck_assert_ptr_null(place_wish_unref(wish));
	ck_assert_str_eq(wish->region, "north");
	place_wish_unref(wish);
}
END_TEST

/* Nodes that are not to be placed on now are not in the replay either; a pool without one refuses all. */
START_TEST(nodes_that_are_not_there)
{
	const struct place_node_facts facts = { .connected = true, .absence = PLACE_CORDONED, .capacity = eight };
	const struct place_request requests[] = { request(1, 9, 1), request(2, 9, 1) };
	const struct place_change more = { .n_nodes = 1, .node = eight };
	struct place_replay_result result = replay(requests, 2, 0, PLACE_STAYS, NULL, NULL);

	ck_assert_uint_eq(result.n_refused, 2);
	ck_assert_uint_eq(replay(requests, 2, 0, PLACE_STAYS, &more, NULL).n_placed, 2);
	ck_assert_int_eq(place_node_set(place, add("node0", &eight), &facts), 0);
	result = replay(requests, 2, 0, PLACE_STAYS, NULL, NULL);
	ck_assert_uint_eq(result.n_refused, 2);
	ck_assert_uint_eq(result.by[PLACE_STATE], 2);
}
END_TEST

/* What a pool of so many slots takes: counted with a plain list. */
static uint64_t slots_refuse(const struct place_request *requests, size_t n, size_t slots)
{
	int64_t ends[RANDOM_MOST];
	uint64_t n_refused = 0;
	size_t n_ends = 0;

	for (size_t i = 0; i < n; i++) {
		size_t n_left = 0;

		for (size_t k = 0; k < n_ends; k++)
			if (ends[k] > requests[i].at_us)
				ends[n_left++] = ends[k];
		n_ends = n_left;
		if (n_ends == slots)
			n_refused++;
		else
			ends[n_ends++] = requests[i].until_us;
	}
	return n_refused;
}

START_TEST(as_many_as_there_are_slots)
{
	struct place_request requests[RANDOM_MOST];
	struct node_capacity capacity = eight;
	size_t slots = 0, n;

	rng = rng_seeded((uint64_t)_i);
	n = 1 + rng_below(&rng, RANDOM_MOST);
	for (unsigned int i = 0; i < 3; i++) {
		char id[ID_SIZE];

		(void)snprintf(id, sizeof(id), "node%u", i);
		capacity.max_sandboxes = 1 + (uint32_t)rng_below(&rng, 6);
		capacity.cpus = 64;
		slots += capacity.max_sandboxes;
		add(id, &capacity);
	}
	for (size_t i = 0; i < n; i++) {
		requests[i] = request((int64_t)rng_below(&rng, 10000), 0, 1);
		requests[i].until_us = requests[i].at_us + 1 + (int64_t)rng_below(&rng, 400);
	}
	place_replay_sort(requests, n);
	for (size_t n_more = 0; n_more < 3; n_more++) {
		const struct place_change change = { .n_nodes = n_more, .node = capacity };

		ck_assert_uint_eq(replay(requests, n, 0, PLACE_STAYS, &change, NULL).n_refused,
			slots_refuse(requests, n, slots + n_more * capacity.max_sandboxes));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("place-replay");
	TCase *tcase = tcase_create("place-replay");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, what_a_change_would_have_done);
	tcase_add_loop_test(tcase, another_shape, 0, ARRAY_LEN(sizes));
	tcase_add_test(tcase, room_comes_back_when_a_sandbox_ended);
	tcase_add_test(tcase, what_ran_before);
	tcase_add_test(tcase, a_life_that_is_not_known);
	tcase_add_test(tcase, where_it_may_go);
	tcase_add_test(tcase, nodes_that_are_not_there);
	tcase_add_loop_test(tcase, as_many_as_there_are_slots, 0, 30);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
