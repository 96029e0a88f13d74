/* SPDX-License-Identifier: Apache-2.0
 *
 * How many more fit: against arithmetic on random fleets, against what the placement then really takes, and what stands in
 * the way of one more, on nodes made for it.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"
#include "lib/suite.h"
#include "place/capacity.h"

#define POOL "pool"
#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define NODES 40
#define OVERCOMMIT 150

static struct place *place;
static struct rng rng;
static char region_key[] = "region", region_value[] = "north", disk_key[] = "disk", disk_value[] = "nvme";
static const struct sandbox_field north = { region_key, region_value }, nvme = { disk_key, disk_value };

static void set_up(void)
{
	ck_assert_int_eq(place_new(&place), 0);
	ck_assert_int_eq(place_pool_set(place, POOL, OVERCOMMIT), 0);
}

static void tear_down(void)
{
	place = place_free(place);
}

static struct place_node_facts able(void)
{
	return (struct place_node_facts){ .connected = true,
		.allowed = true,
		.capacity = { .memory_mib = 8000, .cpus = 8, .disk_mib = 80000, .max_sandboxes = 100, .max_starts = 2, .max_vcpus = 8 } };
}

static struct place_node *add(unsigned int n, const struct place_node_facts *facts)
{
	struct place_node *node;
	char id[ID_SIZE];

	(void)snprintf(id, sizeof(id), "node%u", n);
	ck_assert_int_eq(place_node_add(place, POOL, id, &node), 0);
	ck_assert_int_eq(place_node_set(place, node, facts), 0);
	return node;
}

static struct place_demand demand_of(uint64_t memory_mib, uint64_t disk_mib, uint32_t vcpus)
{
	struct place_demand demand = { .memory_mib = memory_mib, .disk_mib = disk_mib, .vcpus = vcpus };

	memcpy(demand.image_digest, DIGEST, DIGEST_SIZE);
	return demand;
}

static struct place_capacity ask(const struct place_demand *demand, const struct place_change *change)
{
	struct place_capacity capacity;
	struct place_copy *copy;

	ck_assert_int_eq(place_copy_new(&copy, place, POOL, demand->image_digest), 0);
	ck_assert_int_eq(place_capacity(copy, demand, change, &capacity), 0);
	place_copy_free(copy);
	return capacity;
}

/* ---- against arithmetic ---- */

/* Plain division, of what the test itself put there. */
static uint64_t fits_on(const struct place_node_facts *facts, const struct place_usage *used, const struct place_demand *demand)
{
	uint64_t n = facts->capacity.max_sandboxes - used->sandboxes;

	if (!facts->connected || !facts->allowed || facts->unable != FAIL_NONE || demand->vcpus > facts->capacity.max_vcpus)
		return 0;
	n = MIN(n, (facts->capacity.memory_mib - used->memory_mib) / demand->memory_mib);
	n = MIN(n, (facts->capacity.disk_mib - used->disk_mib) / demand->disk_mib);
	return MIN(n, (facts->capacity.cpus * OVERCOMMIT - 100 * (uint64_t)used->vcpus) / (100 * (uint64_t)demand->vcpus));
}

/* One random node; what fits there now, and what when its start slots are free. */
static void random_node(unsigned int i, const struct place_demand *demand, uint64_t *now, uint64_t *later)
{
	struct place_node_facts facts = able();
	struct place_demand other = demand_of(1 + rng_below(&rng, 900), 1 + rng_below(&rng, 9000), 1);
	struct place_usage used;
	struct place_node *node;
	uint64_t n, taken = rng_below(&rng, 6);
	bool starting = rng_below(&rng, 3) == 0;

	facts.connected = rng_below(&rng, 8) > 0;
	facts.allowed = rng_below(&rng, 8) > 0;
	facts.unable = rng_below(&rng, 8) ? FAIL_NONE : FAIL_KVM_UNAVAILABLE;
	facts.busy = rng_below(&rng, 8) == 0;
	facts.capacity.memory_mib = 6000 + rng_below(&rng, 20000);
	facts.capacity.disk_mib = 60000 + rng_below(&rng, 90000);
	facts.capacity.cpus = 6 + (uint32_t)rng_below(&rng, 20);
	facts.capacity.max_sandboxes = 6 + (uint32_t)rng_below(&rng, 30);
	node = add(i, &facts);
	for (uint64_t k = 0; k < taken; k++)
		ck_assert_int_eq(place_reserve(place, node, &other, starting), 0);
	place_node_usage(node, &used);
	n = fits_on(&facts, &used, demand);
	if (facts.busy || used.starting >= facts.capacity.max_starts)
		*later += n;
	else
		*now += n;
}

START_TEST(as_many_as_division_says)
{
	struct place_demand demand;
	struct place_capacity capacity;
	uint64_t now = 0, later = 0, used = 0;

	rng = rng_seeded((uint64_t)_i);
	demand = demand_of(200 + rng_below(&rng, 3000), 100 + rng_below(&rng, 9000), 1 + (uint32_t)rng_below(&rng, 9));
	for (unsigned int i = 0; i < NODES; i++)
		random_node(i, &demand, &now, &later);
	capacity = ask(&demand, NULL);
	ck_assert_uint_eq(capacity.fits, now);
	ck_assert_uint_eq(capacity.waiting, later);
	ck_assert_uint_eq(capacity.n_nodes, NODES);
	for (unsigned int i = 0; i < PLACE_CONSTRAINT_MAX_; i++) /* each stops at something, nothing at what passes */
		used += capacity.stops[i].n_nodes;
	ck_assert_uint_eq(used, NODES);
	ck_assert_uint_eq(capacity.stops[PLACE_STARTS].n_nodes + capacity.stops[PLACE_BUSY].n_nodes, 0);
}
END_TEST

/* The pool itself takes as many, and asking took nothing. */
START_TEST(the_placement_takes_as_many)
{
	struct place_demand demand;
	struct place_capacity before, after;
	struct place_node *node;
	uint64_t now = 0, later = 0, n = 0;

	rng = rng_seeded((uint64_t)_i + 1000);
	demand = demand_of(500 + rng_below(&rng, 3000), 100, 1 + (uint32_t)rng_below(&rng, 4));
	demand.tenant = "acme"; /* who is spread, which changes where, not how many */
	for (unsigned int i = 0; i < NODES; i++)
		random_node(i, &demand, &now, &later);
	(void)ask(&demand, NULL);
	before = ask(&demand, NULL);
	for (; place_choose(place, POOL, &demand, n * 7, &node, NULL) == PLACE_OK; n++)
		place_started(place, node);
	ck_assert_uint_eq(n, before.fits);
	after = ask(&demand, NULL);
	ck_assert_uint_eq(after.fits, 0);
	ck_assert_uint_eq(after.n_fitting, 0);
	ck_assert_uint_eq(after.used.memory_mib, before.used.memory_mib + n * demand.memory_mib);
	ck_assert_uint_eq(after.total.memory_mib, before.total.memory_mib);
}
END_TEST

/* ---- what is left, and why ---- */

static void check_stop(const struct place_stop *stop, size_t n, uint64_t memory_mib, uint64_t cpu_percent)
{
	ck_assert_uint_eq(stop->n_nodes, n);
	ck_assert_uint_eq(stop->left.memory_mib, memory_mib);
	ck_assert_uint_eq(stop->left.cpu_percent, cpu_percent);
}

START_TEST(what_is_stranded_and_by_what)
{
	const struct place_demand demand = demand_of(1000, 100, 1);
	struct place_node_facts facts = able();
	struct place_capacity capacity;

	facts.capacity.memory_mib = 4500; /* 4 by memory; 500 MiB and 800 % are left */
	(void)add(1, &facts);
	facts = able();
	facts.capacity.cpus = 2; /* 3 by CPU: 5000 MiB are stranded */
	(void)add(2, &facts);
	facts = able();
	facts.capacity.max_sandboxes = 1;
	(void)add(3, &facts);
	facts = able();
	facts.allowed = false;
	facts.absence = PLACE_CORDONED;
	(void)add(4, &facts);
	facts.absence = PLACE_QUARANTINED;
	(void)add(5, &facts);
	facts = able();
	facts.connected = false;
	(void)add(6, &facts);
	facts.absence = PLACE_REMOVED;
	(void)add(7, &facts);
	facts = able();
	facts.unable = FAIL_KVM_UNAVAILABLE;
	(void)add(8, &facts);
	capacity = ask(&demand, NULL);
	ck_assert_uint_eq(capacity.fits, 4 + 3 + 1);
	ck_assert_uint_eq(capacity.n_nodes, 7);
	ck_assert_uint_eq(capacity.n_fitting, 3);
	ck_assert_uint_eq(capacity.excluded[PLACE_STATE], 3);
	ck_assert_uint_eq(capacity.excluded[PLACE_UNABLE], 1);
	check_stop(&capacity.stops[PLACE_MEMORY], 1, 500, 800);
	check_stop(&capacity.stops[PLACE_CPU], 1, 5000, 0);
	check_stop(&capacity.stops[PLACE_SLOTS], 1, 7000, 1100);
	check_stop(&capacity.stops[PLACE_STATE], 3, 24000, 3600);
	check_stop(&capacity.stops[PLACE_UNABLE], 1, 8000, 1200);
	check_stop(&capacity.absent[PLACE_CORDONED], 1, 8000, 1200);
	check_stop(&capacity.absent[PLACE_QUARANTINED], 1, 8000, 1200);
	check_stop(&capacity.absent[PLACE_NOT_CONNECTED], 1, 8000, 1200);
	check_stop(&capacity.absent[PLACE_REMOVED], 0, 0, 0);
	ck_assert_uint_eq(capacity.total.memory_mib, 4500 + 6 * 8000);
	ck_assert_ptr_nonnull(strstr(capacity.change, "free"));
}
END_TEST

START_TEST(an_image_that_fails_somewhere)
{
	const struct place_demand demand = demand_of(4000, 100, 1);
	struct place_node_facts facts = able();
	struct place_node *node = add(1, &facts);

	(void)add(2, &facts);
	ck_assert_uint_eq(ask(&demand, NULL).fits, 4);
	ck_assert_int_eq(place_node_bar(place, node, DIGEST, true), 0);
	ck_assert_uint_eq(ask(&demand, NULL).fits, 2);
	ck_assert_uint_eq(ask(&demand, NULL).stops[PLACE_BARRED].n_nodes, 1);
}
END_TEST

START_TEST(labels_region_and_cpu_class)
{
	struct place_demand demand = demand_of(4000, 100, 1);
	struct place_node_facts facts = able();
	struct place_node *node = add(1, &facts);
	const struct sandbox_field both[] = { north, nvme };
	const struct place_change more = { .n_nodes = 3, .node = facts.capacity };

	(void)add(2, &facts);
	ck_assert_int_eq(place_node_set_profile(place, node, "zen4", both, 2), 0);
	demand.region = region_value;
	ck_assert_uint_eq(ask(&demand, NULL).fits, 2);
	demand.labels = &nvme;
	demand.n_labels = 1;
	demand.cpu_class = "zen4";
	ck_assert_uint_eq(ask(&demand, NULL).fits, 2);
	ck_assert_uint_eq(ask(&demand, NULL).excluded[PLACE_REGION], 1);
	ck_assert_uint_eq(ask(&demand, &more).fits, 2 + 3 * 2); /* what is bought suits */
	demand.cpu_class = "zen5";
	ck_assert_uint_eq(ask(&demand, NULL).fits, 0);
	ck_assert_uint_eq(ask(&demand, NULL).stops[PLACE_CPU_CLASS].n_nodes, 1);
	ck_assert_uint_eq(ask(&demand, NULL).stops[PLACE_REGION].n_nodes, 1);
}
END_TEST

START_TEST(what_a_change_would_do)
{
	struct place_demand demand = demand_of(100, 100, 4);
	const struct place_node_facts facts = able();
	const struct place_change more = { .n_nodes = 2, .node = { .memory_mib = 250, .cpus = 8, .disk_mib = 1000,
		.max_sandboxes = 9, .max_starts = 1, .max_vcpus = 8 } };

	(void)add(1, &facts); /* 12 vCPUs by the overcommit */
	ck_assert_uint_eq(ask(&demand, NULL).fits, 3);
	ck_assert_uint_eq(ask(&demand, &(struct place_change){ .overcommit_percent = 300 }).fits, 6);
	ck_assert_uint_eq(ask(&demand, &(struct place_change){ .overcommit_percent = 100 }).fits, 2);
	ck_assert_uint_eq(ask(&demand, &more).fits, 3 + 2 * 2); /* by memory */
	demand.vcpus = 2;
	ck_assert_uint_eq(ask(&demand, NULL).fits, 6);
	demand.vcpus = 9; /* over what one sandbox may have there */
	ck_assert_uint_eq(ask(&demand, NULL).fits, 0);
	ck_assert_uint_eq(ask(&demand, NULL).stops[PLACE_VCPUS].n_nodes, 1);
}
END_TEST

START_TEST(a_pool_that_is_empty_or_not_there)
{
	const struct place_demand demand = demand_of(100, 100, 1);
	struct node_capacity largest;
	struct place_capacity capacity = ask(&demand, NULL);
	struct place_copy *copy;

	ck_assert_uint_eq(capacity.fits + capacity.waiting + capacity.n_nodes + capacity.total.memory_mib, 0);
	ck_assert_int_eq(place_copy_new(&copy, place, "nowhere", DIGEST), -ENOENT);
	ck_assert_int_eq(place_copy_new(&copy, place, POOL, DIGEST), 0);
	ck_assert(!place_copy_largest(copy, &largest));
	ck_assert_ptr_null(place_copy_free(copy));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("place-capacity");
	TCase *tcase = tcase_create("place-capacity");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_loop_test(tcase, as_many_as_division_says, 0, 100);
	tcase_add_loop_test(tcase, the_placement_takes_as_many, 0, 20);
	tcase_add_test(tcase, what_is_stranded_and_by_what);
	tcase_add_test(tcase, an_image_that_fails_somewhere);
	tcase_add_test(tcase, labels_region_and_cpu_class);
	tcase_add_test(tcase, what_a_change_would_do);
	tcase_add_test(tcase, a_pool_that_is_empty_or_not_there);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
