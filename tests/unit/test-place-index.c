/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle of place: on random fleets, after each random change, the node that the index chose has the best score
 * that a plain scan over every node finds, and the index finds none exactly when the scan finds none. (On more nodes
 * than SPREAD_LOOKS a tenant's spreading may cost the answer SPREAD_MOST, as place.c says.)
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "lib/suite.h"
#include "place/node.h"

#define POOL "pool"
#define SEEDS 3000
#define BATCH 300 /* seeds of one test case */
#define STEPS 20
#define NODES_MAX 90

static char *const names[] = { (char[]){ "a" }, (char[]){ "b" }, (char[]){ "c" } };
static char key_gpu[] = "gpu", key_region[] = "region";

struct taken {
	struct place_node *node;
	struct place_demand demand;
	bool starting;
};

struct world {
	struct rng rng;
	struct place *place;
	struct place_node *nodes[NODES_MAX];
	unsigned int n_nodes, n_taken;
	struct taken taken[512];
	char excluded[4][ID_SIZE];
	struct sandbox_field label;
};

static uint64_t pick(struct world *world, uint64_t n)
{
	return rng_below(&world->rng, n);
}

static void digest_of(uint64_t n, char ret[static DIGEST_SIZE])
{
	(void)snprintf(ret, DIGEST_SIZE, "sha256:%016llx%048d", (unsigned long long)n + 1, 0);
}

static void random_facts(struct world *world, struct place_node *node)
{
	bool twins = pick(world, 2); /* many nodes of one size */
	struct place_node_facts facts = {
		.connected = pick(world, 12) > 0,
		.allowed = pick(world, 12) > 0,
		.unable = pick(world, 20) ? FAIL_NONE : FAIL_KVM_UNAVAILABLE,
		.busy = pick(world, 12) == 0,
		.ill_permille = pick(world, 5) ? 0 : (uint32_t)pick(world, 1001),
		.foreign_memory_mib = pick(world, 6) ? 0 : pick(world, 3000),
		.capacity = { .memory_mib = twins ? 8192 : 1000 + pick(world, 64000),
			.cpus = twins ? 8 : (uint32_t)(1 + pick(world, 32)),
			.disk_mib = twins ? 100000 : 2000 + pick(world, 200000),
			.max_sandboxes = (uint32_t)(twins ? 10 : 1 + pick(world, 40)),
			.max_starts = (uint32_t)(1 + pick(world, 4)),
			.max_vcpus = 8 },
	};

	ck_assert_int_eq(place_node_set(world->place, node, &facts), 0);
}

static void random_profile(struct world *world, struct place_node *node)
{
	struct sandbox_field labels[2] = { { key_region, names[pick(world, 2)] },
		{ key_gpu, names[pick(world, 3)] } };

	ck_assert_int_eq(place_node_set_profile(world->place, node, names[pick(world, 2)], labels,
				 pick(world, 3)),
		0);
}

static void random_images(struct world *world, struct place_node *node)
{
	struct image_list images = { 0 };
	char digest[DIGEST_SIZE];

	for (unsigned int i = 0; i < 6; i++)
		if (pick(world, 3) == 0) {
			digest_of(i, digest);
			ck_assert_int_eq(image_list_add(&images, digest), 0);
		}
	ck_assert_int_eq(place_node_set_images(world->place, node, &images), 0);
	image_list_deinit(&images);
}

static struct place_demand random_demand(struct world *world)
{
	struct place_demand demand = {
		.memory_mib = 100 + pick(world, pick(world, 4) ? 2000 : 30000),
		.disk_mib = pick(world, pick(world, 4) ? 3000 : 90000),
		.vcpus = (uint32_t)(1 + pick(world, 5)),
		.tenant = pick(world, 4) ? names[pick(world, 3)] : NULL,
		.region = pick(world, 6) ? NULL : names[pick(world, 2)],
		.cpu_class = pick(world, 6) ? NULL : names[pick(world, 2)],
		.labels = &world->label,
		.n_labels = pick(world, 6) == 0,
		.excluded = (const char(*)[ID_SIZE])world->excluded,
		.n_excluded = pick(world, 4) ? 0 : pick(world, 5),
	};

	world->label = (struct sandbox_field){ key_gpu, names[pick(world, 3)] };
	for (size_t i = 0; i < demand.n_excluded; i++)
		memcpy(world->excluded[i], world->nodes[pick(world, world->n_nodes)]->id, ID_SIZE);
	digest_of(pick(world, 8), demand.image_digest);
	return demand;
}

static const struct place_node *scan(
	const struct world *world, const struct place_demand *demand, int64_t *ret_score)
{
	const struct place_tenant *tenant = place_tenant_find(world->place, demand->tenant);
	const struct place_node *best = NULL;

	for (unsigned int i = 0; i < world->n_nodes; i++) {
		const struct place_node *node = world->nodes[i];
		int64_t score;

		if (place_node_misses(node, demand))
			continue;
		score = place_node_score(node, demand, tenant);
		if (!best || score > *ret_score) {
			best = node;
			*ret_score = score;
		}
	}
	return best;
}

static bool would_wait(const struct world *world, const struct place_demand *demand)
{
	uint32_t passing = UINT32_C(1) << PLACE_STARTS | UINT32_C(1) << PLACE_BUSY;

	for (unsigned int i = 0; i < world->n_nodes; i++) {
		uint32_t misses = place_node_misses(world->nodes[i], demand);

		if (misses && (misses & ~passing) == 0)
			return true;
	}
	return false;
}

static void choose(struct world *world)
{
	struct place_demand demand = random_demand(world);
	const struct place_tenant *tenant = place_tenant_find(world->place, demand.tenant);
	struct place_node *node = NULL;
	int64_t best_score = 0, score;
	const struct place_node *best = scan(world, &demand, &best_score);
	bool waits = would_wait(world, &demand);
	enum place_result result =
		place_choose(world->place, POOL, &demand, rng_u64(&world->rng), &node, NULL);

	if (!best) {
		ck_assert_int_eq(result, waits ? PLACE_WAIT : PLACE_NO_ROOM);
		return;
	}
	ck_assert_int_eq(result, PLACE_OK);
	place_release(world->place, node, &demand, true);
	ck_assert_uint_eq(place_node_misses(node, &demand), 0);
	tenant = place_tenant_find(world->place, demand.tenant);
	score = place_node_score(node, &demand, tenant);
	if (demand.tenant && world->n_nodes > SPREAD_LOOKS)
		ck_assert_int_ge(score, best_score - (int64_t)SPREAD_MOST);
	else
		ck_assert_int_eq(score, best_score);
	demand.labels = NULL; /* room and tenant are what is taken */
	demand.n_labels = demand.n_excluded = 0;
	ck_assert_int_eq(place_reserve(world->place, node, &demand, true), 0);
	if (world->n_taken < ARRAY_LEN(world->taken))
		world->taken[world->n_taken++] = (struct taken){ node, demand, true };
}

static void give_back(struct world *world)
{
	struct taken *taken;

	if (world->n_taken == 0)
		return;
	taken = &world->taken[pick(world, world->n_taken)];
	if (taken->starting && pick(world, 2)) {
		place_started(world->place, taken->node);
		taken->starting = false;
		return;
	}
	place_release(world->place, taken->node, &taken->demand, taken->starting);
	*taken = world->taken[--world->n_taken];
}

static void leave(struct world *world)
{
	unsigned int at = (unsigned int)pick(world, world->n_nodes);
	struct place_node *node = world->nodes[at];

	if (world->n_nodes == 1)
		return;
	for (unsigned int i = 0; i < world->n_taken;)
		if (world->taken[i].node == node)
			world->taken[i] = world->taken[--world->n_taken];
		else
			i++;
	place_node_remove(world->place, node);
	world->nodes[at] = world->nodes[--world->n_nodes];
}

static void join(struct world *world)
{
	struct place_node *node;
	char id[ID_SIZE];

	if (world->n_nodes == NODES_MAX)
		return;
	id_new(&world->rng, id);
	ck_assert_int_eq(place_node_add(world->place, POOL, id, &node), 0);
	world->nodes[world->n_nodes++] = node;
	random_profile(world, node);
	random_facts(world, node);
	random_images(world, node);
}

static void change(struct world *world)
{
	struct place_node *node = world->nodes[pick(world, world->n_nodes)];
	char digest[DIGEST_SIZE];

	switch (pick(world, 8)) {
	case 0:
		random_facts(world, node);
		break;
	case 1:
		random_images(world, node);
		break;
	case 2:
		random_profile(world, node);
		break;
	case 3:
		digest_of(pick(world, 8), digest);
		ck_assert_int_eq(
			place_node_bar(world->place, node, digest, pick(world, 2)), 0);
		break;
	case 4:
		join(world);
		break;
	case 5:
		leave(world);
		break;
	case 6:
		ck_assert_int_eq(place_pool_set(world->place, POOL,
					 (uint32_t)(100 + 100 * pick(world, 4))),
			0);
		break;
	default:
		give_back(world);
		break;
	}
}

static void run_seed(uint64_t seed)
{
	struct world world = { .rng = rng_seeded(seed) };
	unsigned int n;

	ck_assert_int_eq(place_new(&world.place), 0);
	n = 1 + (unsigned int)pick(&world, pick(&world, 3) ? SPREAD_LOOKS : NODES_MAX);
	for (unsigned int i = 0; i < n; i++)
		join(&world);
	for (unsigned int i = 0; i < STEPS; i++) {
		choose(&world);
		choose(&world);
		change(&world);
	}
	place_free(world.place);
}

START_TEST(test_index_equals_scan)
{
	for (unsigned int i = 0; i < BATCH; i++)
		run_seed((uint64_t)_i * BATCH + i + 1);
}
END_TEST

/* More kinds of nodes than classes: the rest is still exact. */
START_TEST(test_more_kinds_than_classes)
{
	struct world world = { .rng = rng_seeded(77) };
	struct place_node *node, *found;
	struct place_demand demand = { .memory_mib = 100, .vcpus = 1 };
	char value[16], id[ID_SIZE];
	struct sandbox_field label = { key_gpu, value };
	struct place_node_facts facts = {
		.connected = true,
		.allowed = true,
		.capacity = { .memory_mib = 4096,
			.cpus = 4,
			.disk_mib = 1000,
			.max_sandboxes = 9,
			.max_starts = 9,
			.max_vcpus = 4 },
	};

	ck_assert_int_eq(place_new(&world.place), 0);
	for (unsigned int i = 0; i < 3 * CLASSES_MAX; i++) {
		id_new(&world.rng, id);
		(void)snprintf(value, sizeof(value), "n%u", i);
		ck_assert_int_eq(place_node_add(world.place, POOL, id, &node), 0);
		ck_assert_int_eq(place_node_set_profile(world.place, node, "", &label, 1), 0);
		ck_assert_int_eq(place_node_set(world.place, node, &facts), 0);
	}
	demand.labels = &label;
	demand.n_labels = 1;
	for (unsigned int i = 0; i < 3 * CLASSES_MAX; i++) {
		(void)snprintf(value, sizeof(value), "n%u", i);
		ck_assert_int_eq(
			place_choose(world.place, POOL, &demand, i, &found, NULL), PLACE_OK);
	}
	(void)snprintf(value, sizeof(value), "n%u", 3 * CLASSES_MAX);
	ck_assert_int_eq(place_choose(world.place, POOL, &demand, 1, &found, NULL), PLACE_NO_ROOM);
	place_free(world.place);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("place-index");
	TCase *tcase = tcase_create("oracle");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, test_index_equals_scan, 0, SEEDS / BATCH);
	tcase_add_test(tcase, test_more_kinds_than_classes);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
