/* SPDX-License-Identifier: Apache-2.0
 *
 * See place.h: what a node may take, what it is worth, and the decision.
 *
 * The score has a part that is the node's own (its key: free share of the scarcest resource, less what starts
 * under way and ill health cost), a part that is its class's (how much of such a node the request takes), a part
 * that is the image's, and what spreading the tenant costs. The first stands in the trees, the next two are the
 * same for a whole tree, so each tree's best is found by going down. Spreading differs from node to node: the
 * nodes are looked at in the order of their keys until none that is left can be better, and after SPREAD_LOOKS
 * that have the tenant already only what is better by more than spreading can cost. Then the answer is short of
 * the best by SPREAD_MOST at the most.
 */
#include "place/place.h"

#include <errno.h>
#include <string.h>

#include "base/plant.h"
#include "place/node.h"


/* ---- free room ---- */

void place_node_free(const struct place_node *node, struct place_free *ret)
{
	const struct node_capacity *capacity = &node->facts.capacity;
	const struct place_node_facts *facts = &node->facts;

	*ret = (struct place_free){
		.memory_mib = place_minus(
			capacity->memory_mib, node->used.memory_mib + facts->foreign_memory_mib),
		.disk_mib = place_minus(
			capacity->disk_mib, node->used.disk_mib + facts->foreign_disk_mib),
		.cpu_percent = place_minus(capacity->cpus * node->pool->overcommit_percent,
			100 * ((uint64_t)node->used.vcpus + facts->foreign_vcpus)),
		.sandboxes = (uint32_t)place_minus(capacity->max_sandboxes,
			(uint64_t)node->used.sandboxes + facts->foreign_sandboxes),
		.starts = (uint32_t)place_minus(capacity->max_starts, node->used.starting),
	};
}

static bool is_excluded(const struct place_node *node, const struct place_demand *demand)
{
	for (size_t i = 0; i < demand->n_excluded; i++)
		if (strcmp(demand->excluded[i], node->id) == 0)
			return true;
	return false;
}

#define MISS(constraint, condition) ((condition) ? UINT32_C(1) << (constraint) : 0)

/* What the trees do not rule out by themselves. */
static uint32_t misses_here(const struct place_node *node, const struct place_demand *demand)
{
	struct place_free room;

	place_node_free(node, &room);
	return MISS(PLACE_STATE, !node->facts.connected || !node->facts.allowed) |
	       MISS(PLACE_UNABLE, node->facts.unable != FAIL_NONE) |
	       MISS(PLACE_BARRED, node->n_barred && place_node_is_barred(node,
							   place_image_key(demand->image_digest))) |
	       MISS(PLACE_SNAPSHOT, demand->only && demand->only != node) |
	       MISS(PLACE_EXCLUDED, is_excluded(node, demand)) |
	       MISS(PLACE_VCPUS, demand->vcpus > node->facts.capacity.max_vcpus) |
	       MISS(PLACE_MEMORY, demand->memory_mib > room.memory_mib) |
	       MISS(PLACE_CPU, 100 * (uint64_t)demand->vcpus > room.cpu_percent) |
	       MISS(PLACE_DISK, demand->disk_mib > room.disk_mib) |
	       MISS(PLACE_SLOTS, room.sandboxes == 0) | MISS(PLACE_STARTS, room.starts == 0) |
	       MISS(PLACE_BUSY, node->facts.busy);
}

uint32_t place_node_misses(const struct place_node *node, const struct place_demand *demand)
{
	enum place_constraint miss = PLACE_CONSTRAINT_MAX_;
	uint32_t misses = misses_here(node, demand);

	if (!place_profile_matches(node->profile, demand, &miss))
		misses |= UINT32_C(1) << miss;
	return misses;
}

#define BIT(constraint) (UINT32_C(1) << (constraint))
#define ROOM_MISSES (BIT(PLACE_MEMORY) | BIT(PLACE_CPU) | BIT(PLACE_DISK) | BIT(PLACE_SLOTS))

bool place_node_suits(const struct place_node *node, const struct place_demand *demand)
{
	return (place_node_misses(node, demand) & ~ROOM_MISSES) == 0;
}

bool place_node_fits(const struct place_node *node, const struct place_demand *demand)
{
	return place_node_misses(node, demand) == 0;
}

bool place_node_suits_without(const struct place_node *node, const struct place_demand *demand,
	const struct place_demand *without)
{
	struct place_free room;

	place_node_free(node, &room);
	return place_node_suits(node, demand) &&
	       demand->memory_mib <= room.memory_mib + without->memory_mib &&
	       demand->disk_mib <= room.disk_mib + without->disk_mib &&
	       100 * (uint64_t)demand->vcpus <= room.cpu_percent + 100 * (uint64_t)without->vcpus;
}

/* ---- what it is worth ---- */

static uint64_t share(uint64_t part, uint64_t whole)
{
	return whole ? MIN(part * SHARE_WHOLE / whole, (uint64_t)SHARE_WHOLE) : 0;
}

static int64_t part_taken(const struct place_class *class, const struct place_demand *demand)
{
	uint64_t most = share(demand->memory_mib, class->memory_mib);

	most = MAX(most, share(demand->disk_mib, class->disk_mib));
	return (int64_t)MAX(most, share(100 * (uint64_t)demand->vcpus, class->cpu_percent));
}

static int64_t spread_cost(const struct place_node *node, const struct place_tenant *tenant)
{
	if (!tenant)
		return 0;
	for (uint32_t i = 0; i < node->n_counts; i++)
		if (node->counts[i].tenant == tenant->number)
			return MIN(node->counts[i].n * SPREAD_MALUS, SPREAD_MOST);
	return 0;
}

int64_t place_node_score(const struct place_node *node, const struct place_demand *demand,
	const struct place_tenant *tenant)
{
	int64_t score = (int64_t)node->key - part_taken(node->class, demand);

	if (place_node_has_image(node, place_image_key(demand->image_digest)))
		score += IMAGE_BONUS;
	return score - spread_cost(node, tenant);
}

/* ---- the decision ---- */

struct search {
	const struct place_demand *demand;
	const struct place_tenant *tenant;
	struct place_sum need;
	uint64_t seed;
	uint64_t number; /* of the decision */
	uint32_t ignored; /* constraints, as bits */
	bool any;         /* the first that fits will do */
	int64_t offset;   /* of the tree: added to every key */
	unsigned int looks;
	struct place_node *best;
	int64_t best_score;
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= UINT64_C(0xff51afd7ed558ccd);
	x ^= x >> 33;
	x *= UINT64_C(0xc4ceb9fe1a85ec53);
	return x ^ (x >> 33);
}

static void consider(struct search *search, struct place_node *node, uint32_t key)
{
	int64_t score;

	if (misses_here(node, search->demand) & ~search->ignored)
		return;
	if (!node->class->kind.profile &&
		!place_profile_matches(node->profile, search->demand, NULL))
		return;
	score = (int64_t)key + search->offset - spread_cost(node, search->tenant);
	search->looks += score < (int64_t)key + search->offset;
	if (!search->best || score > search->best_score) {
		search->best = node;
		search->best_score = score;
	}
}

/* Whether something of this key may still be better than the best. */
static bool is_worth_it(const struct search *search, uint32_t key)
{
	if (!search->best)
		return true;
	return !search->any &&
	       (int64_t)key + search->offset >
		       search->best_score + (search->looks < SPREAD_LOOKS ? 0 : (int64_t)SPREAD_MOST);
}

/* Children that may hold a fit, greatest key first; equal ones in an order that the seed turns. */
static void go_down(struct search *search, const struct place_index *index, unsigned int row,
	uint32_t block)
{
	const struct place_sum *sums = &index->rows[row][block * INDEX_FAN];
	unsigned int turn = (unsigned int)(search->seed >> (4 * row)) % INDEX_FAN;
	uint32_t keys[INDEX_FAN];

	for (unsigned int i = 0; i < INDEX_FAN; i++)
		keys[i] = sums[i].memory_mib >= search->need.memory_mib &&
					  sums[i].disk_mib >= search->need.disk_mib &&
					  sums[i].cpu_percent >= search->need.cpu_percent
				  ? sums[i].key
				  : 0;
	for (;;) {
		unsigned int first = turn;
		uint32_t child;

		for (unsigned int i = 0; i < INDEX_FAN; i++)
			if (keys[(turn + i) % INDEX_FAN] > keys[first])
				first = (turn + i) % INDEX_FAN;
		if (keys[first] == 0 || !is_worth_it(search, keys[first]))
			return;
		child = block * INDEX_FAN + first;
		if (row)
			go_down(search, index, row - 1, child);
		else
			consider(search, index->objects[child], keys[first]);
		keys[first] = 0;
	}
}

/* A tree that may hold the answer, and the most that anything in it can be worth. */
struct tree {
	const struct place_index *index;
	int64_t offset, bound;
};

struct trees {
	struct tree items[2 * (CLASSES_MAX + 1)]; /* each class, and its holders of the image */
	size_t n;
};

static void search_tree(struct search *search, const struct tree *tree)
{
	search->offset = tree->offset;
	if (is_worth_it(search, tree->index->top.key))
		go_down(search, tree->index, tree->index->height - 1, 0);
}

static void add_tree(struct search *search, struct trees *trees, const struct place_index *index,
	int64_t offset)
{
	const struct place_sum *top = &index->top;

	if (top->key == 0 || top->memory_mib < search->need.memory_mib ||
		top->disk_mib < search->need.disk_mib ||
		top->cpu_percent < search->need.cpu_percent)
		return;
	trees->items[trees->n++] = (struct tree){ index, offset, (int64_t)top->key + offset };
}

/* The profile's strings are compared once per decision, however many classes have it. */
static bool class_matches(const struct search *search, const struct place_class *class)
{
	struct place_profile *profile = class->kind.profile;

	if (!profile)
		return true;
	if (profile->asked != search->number) {
		profile->asked = search->number;
		profile->matches = place_profile_matches(profile, search->demand, NULL);
	}
	return profile->matches;
}

static void collect(struct search *search, struct trees *trees, const struct place_pool *pool)
{
	const struct place_image *image =
		place_image_find(pool, place_image_key(search->demand->image_digest));
	const struct place_class *class, *next;

	for (struct place_set *set = image ? image->sets : NULL; set; set = set->next)
		if (class_matches(search, set->class)) {
			place_set_refresh(set);
			add_tree(search, trees, &set->index,
				(int64_t)IMAGE_BONUS - part_taken(set->class, search->demand));
		}
	HASH_ITER (hh, pool->classes, class, next)
		if (class_matches(search, class))
			add_tree(search, trees, &class->ready, -part_taken(class, search->demand));
}

/* The most promising tree first: its best rules out most of the others at their tops. */
static void search_pool(struct search *search, const struct place_pool *pool)
{
	struct trees trees;
	size_t first = 0;

	trees.n = 0;
	collect(search, &trees, pool);
	for (size_t i = 1; i < trees.n; i++)
		if (trees.items[i].bound > trees.items[first].bound)
			first = i;
	if (trees.n)
		search_tree(search, &trees.items[first]);
	for (size_t i = 0; i < trees.n; i++)
		if (i != first)
			search_tree(search, &trees.items[i]);
}

/* Whether something would fit if starts and back-offs did not stand in the way. */
static bool something_waits(struct search *search, const struct place_pool *pool)
{
	const struct place_class *class, *next;

	search->ignored = UINT32_C(1) << PLACE_STARTS | UINT32_C(1) << PLACE_BUSY;
	search->any = true;
	HASH_ITER (hh, pool->classes, class, next)
		if (!search->best && class_matches(search, class) && class->waiting.height)
			search_tree(search, &(struct tree){ .index = &class->waiting });
	return search->best != NULL;
}

/* The only node that may be taken; whether it waits for nothing but starts and back-offs. */
static bool look_at_one(struct search *search, const struct place_pool *pool)
{
	struct place_node *node = search->demand->only;
	uint32_t misses = node->pool == pool ? place_node_misses(node, search->demand) : UINT32_MAX;

	if (misses == 0)
		search->best = node;
	return misses && !(misses & ~(BIT(PLACE_STARTS) | BIT(PLACE_BUSY)));
}

static uint32_t clip(uint64_t value)
{
	return (uint32_t)MIN(value, (uint64_t)UINT32_MAX);
}

enum place_result place_choose(struct place *place, const char *pool_name,
	const struct place_demand *demand, uint64_t seed, struct place_node **ret,
	struct err *reterr)
{
	const struct place_pool *pool = place_pool_find(place, pool_name);
	struct search search = {
		.demand = demand,
		.tenant = place_tenant_find(place, demand->tenant),
		.need = { .memory_mib = clip(demand->memory_mib),
			.disk_mib = clip(demand->disk_mib),
			.cpu_percent = clip(100 * (uint64_t)demand->vcpus) },
		.seed = mix(seed),
		.number = ++place->decisions,
	};
	bool waits = false;

	if (demand->only)
		waits = look_at_one(&search, pool);
	else if (pool)
		search_pool(&search, pool);
	if (!search.best) {
		if (waits || (!demand->only && pool && something_waits(&search, pool)))
			return PLACE_WAIT;
		if (reterr)
			place_refuse(place, pool_name, demand, reterr);
		return PLACE_NO_ROOM;
	}
	if (!PLANTED(ROOM_NOT_COUNTED) && place_reserve(place, search.best, demand, true) < 0) {
		place_release(place, search.best, demand, true);
		return PLACE_NO_MEMORY;
	}
	*ret = search.best;
	return PLACE_OK;
}

/* ---- whose sandboxes are where ---- */

struct place_tenant *place_tenant_find(const struct place *place, const char *name)
{
	struct place_tenant *tenant = NULL;

	if (name)
		HASH_FIND_STR(place->tenants, name, tenant);
	return tenant;
}

static struct place_tenant *tenant_make(struct place *place, const char *name)
{
	struct place_tenant *tenant = place_tenant_find(place, name);

	if (tenant)
		return tenant;
	tenant = calloc(1, sizeof(*tenant));
	if (!tenant)
		return NULL;
	strncpy(tenant->name, name, sizeof(tenant->name) - 1);
	tenant->number = ++place->next_tenant;
	HASH_ADD_STR(place->tenants, name, tenant);
	if (!tenant->hh.tbl) {
		free(tenant);
		return NULL;
	}
	return tenant;
}

static struct place_count *count_of(struct place_node *node, uint32_t tenant)
{
	for (uint32_t i = 0; i < node->n_counts; i++)
		if (node->counts[i].tenant == tenant)
			return &node->counts[i];
	return NULL;
}

static int count_add(struct place *place, struct place_node *node, const char *name)
{
	struct place_tenant *tenant = tenant_make(place, name);
	struct place_count *count;

	if (!tenant)
		return -ENOMEM;
	count = count_of(node, tenant->number);
	if (!count && node->n_counts == node->counts_room) {
		uint32_t room = node->counts_room ? 2 * node->counts_room : 8;
		struct place_count *grown = realloc(node->counts, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM; /* an unused tenant stays: harmless */
		node->counts = grown;
		node->counts_room = room;
	}
	if (!count) {
		count = &node->counts[node->n_counts++];
		*count = (struct place_count){ .tenant = tenant->number };
	}
	count->n++;
	tenant->n_sandboxes++;
	return 0;
}

static void count_drop(struct place *place, struct place_node *node, const char *name)
{
	struct place_tenant *tenant = place_tenant_find(place, name);
	struct place_count *count = tenant ? count_of(node, tenant->number) : NULL;

	if (!count)
		return;
	if (--count->n == 0)
		*count = node->counts[--node->n_counts];
	if (--tenant->n_sandboxes == 0) {
		HASH_DEL(place->tenants, tenant);
		free(tenant);
	}
}

/* ---- reservations ---- */

int place_reserve(struct place *place, struct place_node *node, const struct place_demand *demand,
	bool starting)
{
	node->used.memory_mib += demand->memory_mib;
	node->used.disk_mib += demand->disk_mib;
	node->used.vcpus += demand->vcpus;
	node->used.sandboxes++;
	node->used.starting += starting;
	place_node_reindex(node);
	return demand->tenant ? count_add(place, node, demand->tenant) : 0;
}

void place_started(struct place *place, struct place_node *node)
{
	(void)place;
	node->used.starting -= node->used.starting > 0;
	place_node_reindex(node);
}

void place_release(struct place *place, struct place_node *node, const struct place_demand *demand,
	bool starting)
{
	node->used.memory_mib = place_minus(node->used.memory_mib, demand->memory_mib);
	node->used.disk_mib = place_minus(node->used.disk_mib, demand->disk_mib);
	node->used.vcpus = (uint32_t)place_minus(node->used.vcpus, demand->vcpus);
	node->used.sandboxes -= node->used.sandboxes > 0;
	node->used.starting -= starting && node->used.starting > 0;
	if (demand->tenant)
		count_drop(place, node, demand->tenant);
	place_node_reindex(node);
}

void place_node_usage(const struct place_node *node, struct place_usage *ret)
{
	*ret = node->used;
}

const char *place_node_id(const struct place_node *node)
{
	return node->id;
}
