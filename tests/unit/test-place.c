/* SPDX-License-Identifier: Apache-2.0
 *
 * place: constraints, what it says when it says no, spreading, and that the cost of a decision does not follow the
 * size of the fleet.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/suite.h"
#include "place/place.h"

#define POOL "pool"
#define DIGEST_A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define DIGEST_B "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static void id_of(unsigned int n, char ret[static ID_SIZE])
{
	static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";

	for (size_t i = 0; i < ID_LEN; i++, n /= 32)
		ret[i] = base32[n % 32];
	ret[ID_LEN] = '\0';
}

static struct place_node_facts able(uint64_t memory_mib)
{
	return (struct place_node_facts){
		.connected = true,
		.allowed = true,
		.capacity = { .memory_mib = memory_mib,
			.cpus = 8,
			.disk_mib = 100000,
			.max_sandboxes = 100,
			.max_starts = 100,
			.max_vcpus = 8 },
	};
}

static struct place_node *add(
	struct place *place, unsigned int n, const struct place_node_facts *facts)
{
	struct place_node *node;
	char id[ID_SIZE];

	id_of(n, id);
	ck_assert_int_eq(place_node_add(place, POOL, id, &node), 0);
	ck_assert_int_eq(place_node_set(place, node, facts), 0);
	return node;
}

static struct place *make(void)
{
	struct place *place;

	ck_assert_int_eq(place_new(&place), 0);
	ck_assert_int_eq(place_pool_set(place, POOL, 400), 0);
	return place;
}

static struct place_demand demand(uint64_t memory_mib)
{
	struct place_demand demand = { .memory_mib = memory_mib, .disk_mib = 100, .vcpus = 1 };

	memcpy(demand.image_digest, DIGEST_A, DIGEST_SIZE);
	return demand;
}

/* One row per constraint: what makes the only node miss it, and the answer. */
struct miss_row {
	enum place_constraint constraint;
	enum place_result result;
	enum fail_code code;
	const char *resource;
};

static const struct miss_row miss_rows[] = {
	{ PLACE_STATE, PLACE_NO_ROOM, FAIL_NO_NODE, NULL },
	{ PLACE_UNABLE, PLACE_NO_ROOM, FAIL_NO_COMPATIBLE_NODE, NULL },
	{ PLACE_REGION, PLACE_NO_ROOM, FAIL_NO_COMPATIBLE_NODE, NULL },
	{ PLACE_LABELS, PLACE_NO_ROOM, FAIL_NO_COMPATIBLE_NODE, NULL },
	{ PLACE_SNAPSHOT, PLACE_NO_ROOM, FAIL_NO_COMPATIBLE_NODE, NULL },
	{ PLACE_CPU_CLASS, PLACE_NO_ROOM, FAIL_NO_COMPATIBLE_NODE, NULL },
	{ PLACE_BARRED, PLACE_NO_ROOM, FAIL_NO_COMPATIBLE_NODE, NULL },
	{ PLACE_EXCLUDED, PLACE_NO_ROOM, FAIL_NO_COMPATIBLE_NODE, NULL },
	{ PLACE_VCPUS, PLACE_NO_ROOM, FAIL_NO_CAPACITY, "vcpus" },
	{ PLACE_MEMORY, PLACE_NO_ROOM, FAIL_NO_CAPACITY, "memory" },
	{ PLACE_CPU, PLACE_NO_ROOM, FAIL_NO_CAPACITY, "cpu" },
	{ PLACE_DISK, PLACE_NO_ROOM, FAIL_NO_CAPACITY, "disk" },
	{ PLACE_SLOTS, PLACE_NO_ROOM, FAIL_NO_CAPACITY, "sandboxes" },
	{ PLACE_STARTS, PLACE_WAIT, FAIL_NO_CAPACITY, "starts" },
	{ PLACE_BUSY, PLACE_WAIT, FAIL_NO_CAPACITY, "busy" },
};

static char disk_key[] = "disk", disk_value[] = "nvme", rack_key[] = "rack", rack_value[] = "7",
	    region_key[] = "region", region_value[] = "eu-north";
static const struct sandbox_field wanted_labels[] = { { disk_key, disk_value },
	{ rack_key, rack_value } };
static const struct sandbox_field node_labels[] = { { region_key, region_value },
	{ disk_key, disk_value } };

static void spoil(enum place_constraint constraint, struct place_node_facts *facts,
	struct place_demand *ask, char excluded[static ID_SIZE])
{
	switch (constraint) {
	case PLACE_STATE:
		facts->connected = false;
		break;
	case PLACE_UNABLE:
		facts->unable = FAIL_KVM_UNAVAILABLE;
		break;
	case PLACE_REGION:
		ask->region = "eu-west";
		break;
	case PLACE_LABELS:
		ask->labels = wanted_labels;
		ask->n_labels = 2;
		break;
	case PLACE_CPU_CLASS:
		ask->cpu_class = "intel-6-143";
		break;
	case PLACE_SNAPSHOT:
	case PLACE_BARRED: /* by the caller, when there is a node */
		break;
	case PLACE_EXCLUDED:
		id_of(1, excluded);
		ask->n_excluded = 1;
		break;
	case PLACE_VCPUS:
		ask->vcpus = 9;
		break;
	case PLACE_MEMORY:
		ask->memory_mib = 8001;
		break;
	case PLACE_CPU:
		facts->foreign_vcpus = 32;
		break;
	case PLACE_DISK:
		ask->disk_mib = 100001;
		break;
	case PLACE_SLOTS:
		facts->foreign_sandboxes = 100;
		break;
	case PLACE_STARTS:
		facts->capacity.max_starts = 0;
		break;
	case PLACE_BUSY:
		facts->busy = true;
		break;
	case PLACE_CONSTRAINT_MAX_:
		break;
	}
}

START_TEST(test_each_constraint)
{
	const struct miss_row *row = &miss_rows[_i];
	struct place *place = make();
	struct place_node_facts facts = able(8000);
	struct place_demand ask = demand(1000);
	struct place_explanation why;
	char excluded[1][ID_SIZE];
	struct place_node *node;
	struct err err = ERR_NULL;

	ask.excluded = (const char(*)[ID_SIZE])excluded;
	spoil(row->constraint, &facts, &ask, excluded[0]);
	node = add(place, 1, &facts);
	ck_assert_int_eq(place_node_set_profile(place, node, "amd-25-1", node_labels, 2), 0);
	if (row->constraint == PLACE_BARRED)
		ck_assert_int_eq(place_node_bar(place, node, DIGEST_A, true), 0);
	if (row->constraint == PLACE_SNAPSHOT)
		ck_assert_int_eq(place_node_add(place, "another", "zzzzzzzzzzzzzzzzzzzz", &ask.only), 0);
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &node, &err), row->result);
	if (row->result == PLACE_WAIT)
		place_refuse(place, POOL, &ask, &err);
	ck_assert_str_eq(failure_info(err.code)->name, failure_info(row->code)->name);
	if (row->resource)
		ck_assert_str_eq(err_field(&err, "resource"), row->resource);
	if (row->constraint == PLACE_UNABLE) {
		ck_assert_str_eq(err_field(&err, "cause"), "KVM_UNAVAILABLE");
		ck_assert_int_eq(err.component, COMPONENT_NODE_HOST);
	}
	place_explain(place, POOL, &ask, &why);
	ck_assert_uint_eq(why.n_nodes, 1);
	ck_assert_uint_eq(why.n_fitting, 0);
	ck_assert_uint_eq(why.excluded[row->constraint], 1);
	ck_assert_str_ne(why.change, "");
	ck_assert_ptr_nonnull(strstr(why.change, row->constraint == PLACE_STATE ? "Connect" : " "));
	place_free(place);
}
END_TEST

/* What the node does have is found, alone and together. */
START_TEST(test_labels_region_and_cpu_class_that_are_there)
{
	struct place *place = make();
	struct place_node_facts facts = able(8000);
	struct place_demand ask = demand(100);
	struct place_node *special, *plain = add(place, 1, &facts), *node;

	special = add(place, 2, &facts);
	ck_assert_int_eq(place_node_set_profile(place, special, "amd-25-1", node_labels, 2), 0);
	ask.region = region_value;
	ask.cpu_class = "amd-25-1";
	ask.labels = wanted_labels;
	ask.n_labels = 1;
	for (unsigned int i = 0; i < 8; i++) {
		ck_assert_int_eq(place_choose(place, POOL, &ask, i, &node, NULL), PLACE_OK);
		ck_assert_ptr_eq(node, special);
	}
	ask.cpu_class = "amd-25"; /* a prefix is another class */
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &node, NULL), PLACE_NO_ROOM);
	ask = demand(100);
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &node, NULL), PLACE_OK);
	ck_assert_ptr_eq(node, plain);
	place_free(place);
}
END_TEST

/* A tenant's sandboxes go where it has few, as long as other nodes are not much fuller. */
START_TEST(test_spreads_a_tenant)
{
	struct place *place = make();
	struct place_node_facts facts = able(1000000);
	struct place_demand theirs = demand(10000), ask = demand(100);
	struct place_node *nodes[2], *node;

	facts.capacity.cpus = 1000;
	for (unsigned int i = 0; i < 2; i++)
		nodes[i] = add(place, i, &facts);
	theirs.tenant = "a";
	ask.tenant = "b";
	ck_assert_int_eq(place_reserve(place, nodes[1], &theirs, false), 0); /* 1 % fuller */
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &node, NULL), PLACE_OK);
	ck_assert_ptr_eq(node, nodes[0]);
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &node, NULL), PLACE_OK);
	ck_assert_ptr_eq(node, nodes[1]);
	place_release(place, nodes[0], &ask, true);
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &node, NULL), PLACE_OK);
	ck_assert_ptr_eq(node, nodes[0]);
	place_free(place);
}
END_TEST

/* Whatever the seed: the tenant's one sandbox weighs more than a hundredth of another's memory. */
START_TEST(test_spreading_is_no_chance)
{
	struct place *place = make();
	struct place_node_facts facts = able(1000000);
	struct place_demand theirs = demand(10000), ask = demand(100);
	struct place_node *nodes[2], *node;

	facts.capacity.cpus = 1000;
	for (unsigned int i = 0; i < 2; i++)
		nodes[i] = add(place, i, &facts);
	theirs.tenant = "a";
	ask.tenant = "b";
	for (unsigned int one = 0; one < 2; one++) {
		ck_assert_int_eq(place_reserve(place, nodes[!one], &theirs, false), 0);
		ck_assert_int_eq(place_reserve(place, nodes[one], &ask, false), 0);
		for (uint64_t seed = 1; seed <= 32; seed++) {
			ck_assert_int_eq(place_choose(place, POOL, &ask, seed, &node, NULL), PLACE_OK);
			ck_assert_ptr_eq(node, nodes[!one]);
			place_release(place, node, &ask, true);
		}
		place_release(place, nodes[one], &ask, false);
		place_release(place, nodes[!one], &theirs, false);
	}
	place_free(place);
}
END_TEST

/* R031: memory is short and CPU is not. */
START_TEST(test_memory_is_hard)
{
	struct place *place = make();
	struct place_node_facts facts = able(4000);
	struct place_demand ask = demand(3000);
	struct place_node *node;
	struct err err = ERR_NULL;

	add(place, 1, &facts);
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &node, NULL), PLACE_OK);
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &node, &err), PLACE_NO_ROOM);
	ck_assert_int_eq(err.code, FAIL_NO_CAPACITY);
	ck_assert_str_eq(err_field(&err, "resource"), "memory");
	ck_assert_str_eq(err_field(&err, "largest"), "969");
	ck_assert_str_eq(err_field(&err, "asked"), "2953");
	place_free(place);
}
END_TEST

START_TEST(test_every_constraint_has_a_row_and_a_name)
{
	ck_assert_uint_eq(ARRAY_LEN(miss_rows), PLACE_CONSTRAINT_MAX_);
	for (unsigned int i = 0; i < PLACE_CONSTRAINT_MAX_; i++) {
		ck_assert_int_eq(miss_rows[i].constraint, i);
		ck_assert_str_ne(place_constraint_name((enum place_constraint)i), "none");
	}
}
END_TEST

START_TEST(test_capacity_error_says_asked_and_largest)
{
	struct place *place = make();
	struct place_node_facts small = able(4000), large = able(16000);
	struct place_demand ask = demand(64000), fill = demand(6000);
	struct place_explanation why;
	struct place_node *node;
	struct err err = ERR_NULL;
	char id[ID_SIZE];

	add(place, 1, &small);
	ck_assert_int_eq(place_reserve(place, add(place, 2, &large), &fill, false), 0);
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &node, &err), PLACE_NO_ROOM);
	ck_assert_str_eq(err_field(&err, "resource"), "memory");
	ck_assert_str_eq(err_field(&err, "asked"), "63481");
	ck_assert_str_eq(err_field(&err, "largest"), "9899");
	ck_assert_str_eq(err_field(&err, "largest_total"), "15853");
	place_explain(place, POOL, &ask, &why);
	id_of(2, id);
	ck_assert_str_eq(why.nearest, id);
	place_free(place);
}
END_TEST

/* 300 creates on one node: exactly as many as fit, in every dimension, and room that is given back is used. */
START_TEST(test_never_over_capacity)
{
	struct place *place = make();
	struct place_node_facts facts = able(128 * 1024);
	struct place_demand ask = demand(2048);
	struct place_node *node = NULL;
	struct place_usage usage;
	struct err err = ERR_NULL;
	unsigned int placed = 0;

	facts.capacity.cpus = 64;
	facts.capacity.max_sandboxes = facts.capacity.max_starts = 1000;
	ask.vcpus = 2;
	add(place, 1, &facts);
	for (unsigned int i = 0; i < 300; i++)
		placed += place_choose(place, POOL, &ask, i, &node, &err) == PLACE_OK;
	ck_assert_uint_eq(placed, 64);
	ck_assert_str_eq(failure_info(err.code)->name, "NO_CAPACITY");
	place_node_usage(node, &usage);
	ck_assert_uint_eq(usage.memory_mib, 64 * 2048);
	ck_assert_uint_eq(usage.starting, 64);
	place_release(place, node, &ask, true);
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &node, NULL), PLACE_OK);
	place_free(place);
}
END_TEST

/* R029: 500 at once over 9 equal nodes, without any report in between. */
START_TEST(test_spreads)
{
	struct place *place = make();
	struct place_node_facts facts = able(1000000);
	struct place_demand ask = demand(2000);
	struct place_node *nodes[9], *node;
	struct place_usage usage;
	uint32_t most = 0;

	facts.capacity.cpus = 1000;
	facts.capacity.disk_mib = 10000000;
	facts.capacity.max_sandboxes = facts.capacity.max_starts = 1000;
	for (unsigned int i = 0; i < 9; i++)
		nodes[i] = add(place, i, &facts);
	for (unsigned int i = 0; i < 500; i++)
		ck_assert_int_eq(place_choose(place, POOL, &ask, i, &node, NULL), PLACE_OK);
	for (unsigned int i = 0; i < 9; i++) {
		place_node_usage(nodes[i], &usage);
		most = MAX(most, usage.sandboxes);
	}
	ck_assert_uint_le(most * 9 * 10, 500 * 12); /* max / mean <= 1.2 */
	place_free(place);
}
END_TEST

START_TEST(test_prefers_the_image)
{
	struct place *place = make();
	struct place_node_facts facts = able(100000);
	struct image_list images = { 0 };
	struct place_demand ask = demand(500);
	struct place_node *holder = NULL, *node;

	for (unsigned int i = 0; i < 100; i++) {
		node = add(place, i, &facts);
		holder = i == 77 ? node : holder;
	}
	ck_assert_int_eq(image_list_add(&images, DIGEST_B), 0);
	ck_assert_int_eq(image_list_add(&images, DIGEST_A), 0);
	ck_assert_int_eq(place_node_set_images(place, holder, &images), 0);
	ck_assert_int_eq(place_choose(place, POOL, &ask, 5, &node, NULL), PLACE_OK);
	ck_assert_ptr_eq(node, holder);
	image_list_deinit(&images);
	ck_assert_int_eq(place_node_set_images(place, holder, &images), 0);
	place_free(place);
}
END_TEST

/* An image that a node dropped draws nothing there any more; whichever of two keys comes first. */
START_TEST(test_an_image_that_is_gone)
{
	const char *const both[] = { DIGEST_A, DIGEST_B };
	struct place *place = make();
	struct place_node_facts facts = able(100000);
	struct image_list two = { 0 }, one = { 0 }, other = { 0 };
	struct place_demand ask = demand(500);
	struct place_node *holder, *last, *exchanged, *node;

	holder = add(place, 0, &facts);
	last = add(place, 1, &facts);
	exchanged = add(place, 2, &facts);
	for (size_t i = 0; i < ARRAY_LEN(both); i++)
		ck_assert_int_eq(image_list_add(&two, both[i]), 0);
	ck_assert_int_eq(image_list_add(&one, both[_i]), 0);
	ck_assert_int_eq(image_list_add(&other, both[1 - _i]), 0);
	memcpy(ask.image_digest, both[1 - _i], DIGEST_SIZE);
	ck_assert_int_eq(place_node_set_images(place, exchanged, &other), 0);
	ck_assert_int_eq(place_node_set_images(place, exchanged, &one), 0);
	ck_assert_int_eq(place_node_set_images(place, last, &two), 0);
	ck_assert_int_eq(place_node_set_images(place, last, &one), 0);
	ck_assert_int_eq(place_node_set_images(place, holder, &two), 0);
	for (uint64_t seed = 0; seed < 3; seed++) { /* chance alone would choose any */
		ck_assert_int_eq(place_choose(place, POOL, &ask, seed, &node, NULL), PLACE_OK);
		ck_assert_ptr_eq(node, holder);
		place_release(place, node, &ask, true);
	}
	image_list_deinit(&one);
	image_list_deinit(&other);
	image_list_deinit(&two);
	place_free(place);
}
END_TEST

/* The candidates are few; what only the exact scan can find must still be found. */
START_TEST(test_finds_the_one_that_fits)
{
	struct place *place = make();
	struct place_demand ask = demand(3000);
	struct place_node *wanted = NULL, *node;

	for (unsigned int i = 0; i < 500; i++) {
		struct place_node_facts facts = able(4000);

		facts.foreign_memory_mib = i == 333 ? 900 : 1001 + i % 7;
		node = add(place, i, &facts);
		wanted = i == 333 ? node : wanted;
	}
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &node, NULL), PLACE_OK);
	ck_assert_ptr_eq(node, wanted);
	place_free(place);
}
END_TEST

START_TEST(test_changes_of_a_node_count_at_once)
{
	struct place *place = make();
	struct place_node_facts facts = able(4000);
	struct place_demand ask = demand(100);
	struct place_node *node = add(place, 1, &facts), *chosen;

	facts.allowed = false;
	ck_assert_int_eq(place_node_set(place, node, &facts), 0);
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &chosen, NULL), PLACE_NO_ROOM);
	facts.allowed = true;
	ck_assert_int_eq(place_node_set(place, node, &facts), 0);
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &chosen, NULL), PLACE_OK);
	place_node_remove(place, node);
	ck_assert_int_eq(place_choose(place, POOL, &ask, 1, &chosen, NULL), PLACE_NO_ROOM);
	ck_assert_int_eq(place_choose(place, "other", &ask, 1, &chosen, NULL), PLACE_NO_ROOM);
	place_free(place);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("place");
	TCase *tcase = tcase_create("place");

	tcase_add_loop_test(tcase, test_each_constraint, 0, ARRAY_LEN(miss_rows));
	tcase_add_test(tcase, test_every_constraint_has_a_row_and_a_name);
	tcase_add_test(tcase, test_labels_region_and_cpu_class_that_are_there);
	tcase_add_test(tcase, test_spreads_a_tenant);
	tcase_add_test(tcase, test_spreading_is_no_chance);
	tcase_add_test(tcase, test_memory_is_hard);
	tcase_add_test(tcase, test_capacity_error_says_asked_and_largest);
	tcase_add_test(tcase, test_never_over_capacity);
	tcase_add_test(tcase, test_spreads);
	tcase_add_test(tcase, test_prefers_the_image);
	tcase_add_loop_test(tcase, test_an_image_that_is_gone, 0, 2);
	tcase_add_test(tcase, test_finds_the_one_that_fits);
	tcase_add_test(tcase, test_changes_of_a_node_count_at_once);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
