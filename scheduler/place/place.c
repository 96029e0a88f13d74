/* SPDX-License-Identifier: Apache-2.0
 *
 * See place.h: the index and the decision. The index is rebuilt for one node at each change of that node, in
 * constant time; it is a hint about order only, every candidate is checked against its exact numbers.
 */
#include "place/place.h"

#include <errno.h>
#include <string.h>

#include "base/plant.h"
#include "place/node.h"

#define LOOK_PER_GROUP 24 /* candidates checked */
#define FIT_PER_GROUP 6   /* candidates that fit: enough to choose among */
#define HOLDERS_TRIED 8
#define SHARE_WHOLE 1000u /* permille */
#define IMAGE_BONUS 100u  /* an image that is there is worth a tenth of a node's load */
#define START_MALUS 4u    /* per start under way: they compete for CPU and disk */

/* ---- free room ---- */

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

void place_node_free(const struct place_node *node, struct place_free *ret)
{
	const struct node_capacity *capacity = &node->facts.capacity;
	const struct place_node_facts *facts = &node->facts;

	*ret = (struct place_free){
		.memory_mib = minus(
			capacity->memory_mib, node->used.memory_mib + facts->foreign_memory_mib),
		.disk_mib =
			minus(capacity->disk_mib, node->used.disk_mib + facts->foreign_disk_mib),
		.cpu_percent = minus(capacity->cpus * node->pool->overcommit_percent,
			100 * ((uint64_t)node->used.vcpus + facts->foreign_vcpus)),
		.sandboxes = (uint32_t)minus(capacity->max_sandboxes,
			(uint64_t)node->used.sandboxes + facts->foreign_sandboxes),
		.starts = (uint32_t)minus(capacity->max_starts, node->used.starting),
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

uint32_t place_node_misses(const struct place_node *node, const struct place_demand *demand)
{
	struct place_free room;

	place_node_free(node, &room);
	return MISS(PLACE_STATE, !node->facts.connected || !node->facts.allowed) |
	       MISS(PLACE_UNABLE, node->facts.unable != FAIL_NONE) |
	       MISS(PLACE_EXCLUDED, is_excluded(node, demand)) |
	       MISS(PLACE_VCPUS, demand->vcpus > node->facts.capacity.max_vcpus) |
	       MISS(PLACE_MEMORY, demand->memory_mib > room.memory_mib) |
	       MISS(PLACE_CPU, 100 * (uint64_t)demand->vcpus > room.cpu_percent) |
	       MISS(PLACE_DISK, demand->disk_mib > room.disk_mib) |
	       MISS(PLACE_SLOTS, room.sandboxes == 0) | MISS(PLACE_STARTS, room.starts == 0) |
	       MISS(PLACE_BUSY, node->facts.busy);
}

/* ---- the index ---- */

static uint64_t share(uint64_t part, uint64_t whole)
{
	return whole ? part * SHARE_WHOLE / whole : 0;
}

/* Free share of the scarcest resource, in permille, after `demand` (NULL: as it is). */
static uint64_t node_share(const struct place_node *node, const struct place_demand *demand)
{
	const struct node_capacity *capacity = &node->facts.capacity;
	static const struct place_demand nothing;
	struct place_free room;
	uint64_t least;

	demand = demand ? demand : &nothing;
	place_node_free(node, &room);
	least = share(minus(room.memory_mib, demand->memory_mib), capacity->memory_mib);
	least = MIN(least, share(minus(room.cpu_percent, 100 * (uint64_t)demand->vcpus),
				   capacity->cpus * node->pool->overcommit_percent));
	least = MIN(least, share(minus(room.disk_mib, demand->disk_mib), capacity->disk_mib));
	return MIN(least, share(room.sandboxes, capacity->max_sandboxes));
}

static uint32_t log2_floor(uint64_t value)
{
	return value ? 63 - (uint32_t)__builtin_clzll(value) : 0;
}

static bool may_be_chosen(const struct place_node *node)
{
	const struct place_node_facts *facts = &node->facts;
	struct place_free room;

	place_node_free(node, &room);
	return facts->connected && facts->allowed && facts->unable == FAIL_NONE && !facts->busy &&
	       room.sandboxes > 0 && room.starts > 0;
}

static struct place_group *group_make(struct place_pool *pool, uint32_t number)
{
	struct place_group *group = pool->groups[number];

	if (!group) {
		group = calloc(1, sizeof(*group));
		if (!group)
			return NULL;
		for (size_t i = 0; i < BUCKETS; i++)
			TAILQ_INIT(&group->buckets[i]);
		pool->groups[number] = group;
	}
	return group;
}

static void unindex(struct place_node *node)
{
	struct place_group *group;

	if (node->bucket == NOT_INDEXED)
		return;
	group = node->pool->groups[node->group];
	TAILQ_REMOVE(&group->buckets[node->bucket], node, in_bucket);
	if (TAILQ_EMPTY(&group->buckets[node->bucket]))
		group->used[node->bucket / 64] &= ~(UINT64_C(1) << (node->bucket % 64));
	node->bucket = NOT_INDEXED;
}

/* Without memory for the group the node stays unindexed: the exact scan still finds it. */
static void reindex(struct place_node *node)
{
	struct place_group *group;

	unindex(node);
	if (!may_be_chosen(node))
		return;
	node->group = MIN(log2_floor(node->facts.capacity.memory_mib), GROUPS - 1);
	group = group_make(node->pool, node->group);
	if (!group)
		return;
	node->bucket = (uint32_t)(node_share(node, NULL) * (BUCKETS - 1) / SHARE_WHOLE);
	TAILQ_INSERT_TAIL(&group->buckets[node->bucket], node, in_bucket);
	group->used[node->bucket / 64] |= UINT64_C(1) << (node->bucket % 64);
}

/* The highest bucket in use that is at most `from`; -1: none. */
static int bucket_below(const struct place_group *group, int from)
{
	while (from >= 0) {
		uint64_t word = group->used[from / 64];
		int bit = from % 64;

		if (bit < 63)
			word &= (UINT64_C(2) << bit) - 1;
		if (word)
			return (from & ~63) + (int)log2_floor(word);
		from = (from & ~63) - 1;
	}
	return -1;
}

/* ---- the decision ---- */

struct choice {
	const struct place_demand *demand;
	uint64_t image;
	uint64_t seed;
	struct place_node *best;
	uint64_t best_score;
	uint64_t best_tie;
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= UINT64_C(0xff51afd7ed558ccd);
	x ^= x >> 33;
	x *= UINT64_C(0xc4ceb9fe1a85ec53);
	return x ^ (x >> 33);
}

/* Returns whether the node fits. */
static bool consider(struct choice *choice, struct place_node *node)
{
	uint64_t malus = (uint64_t)node->used.starting * START_MALUS;
	uint64_t score, tie;

	if (place_node_misses(node, choice->demand))
		return false;
	score = SHARE_WHOLE + node_share(node, choice->demand);
	score += place_node_has_image(node, choice->image) ? IMAGE_BONUS : 0;
	score = minus(score, MIN(malus, SHARE_WHOLE));
	tie = mix(choice->seed ^ (uintptr_t)node->id[0] ^
		  mix((uint64_t)node->id[1] << 8 ^ (uint64_t)node->id[2]) ^
		  mix((uint64_t)node->id[3] << 16 ^ (uint64_t)node->id[4]));
	if (!choice->best || score > choice->best_score ||
		(score == choice->best_score && tie > choice->best_tie)) {
		choice->best = node;
		choice->best_score = score;
		choice->best_tie = tie;
	}
	return true;
}

static void consider_group(struct choice *choice, const struct place_group *group)
{
	unsigned int looked = 0, fitted = 0;

	for (int i = bucket_below(group, BUCKETS - 1); i >= 0; i = bucket_below(group, i - 1)) {
		struct place_node *node;

		TAILQ_FOREACH (node, &group->buckets[i], in_bucket) {
			fitted += consider(choice, node);
			if (++looked == LOOK_PER_GROUP || fitted == FIT_PER_GROUP)
				return;
		}
	}
}

static void consider_holders(struct choice *choice, const struct place_pool *pool)
{
	const struct place_image *image = place_image_find(pool, choice->image);
	size_t first, n;

	if (!image || image->n_holders == 0)
		return;
	first = mix(choice->seed) % image->n_holders;
	n = MIN(image->n_holders, (size_t)HOLDERS_TRIED);
	for (size_t i = 0; i < n; i++)
		(void)consider(choice, image->holders[(first + i) % image->n_holders]);
}

enum place_result place_choose(struct place *place, const char *pool_name,
	const struct place_demand *demand, uint64_t seed, struct place_node **ret,
	struct err *reterr)
{
	struct choice choice = {
		.demand = demand, .image = place_image_key(demand->image_digest), .seed = seed
	};
	struct place_pool *pool = place_pool_find(place, pool_name);
	struct place_node *node;

	if (!pool)
		return place_refuse(place, pool_name, demand, reterr);
	consider_holders(&choice, pool);
	for (uint32_t i = log2_floor(demand->memory_mib); i < GROUPS; i++)
		if (pool->groups[i])
			consider_group(&choice, pool->groups[i]);
	if (!choice.best) /* the candidates were a bounded choice; be exact before saying no */
		TAILQ_FOREACH (node, &pool->nodes, in_pool)
			(void)consider(&choice, node);
	if (!choice.best)
		return place_refuse(place, pool_name, demand, reterr);
	if (!PLANTED(ROOM_NOT_COUNTED))
		place_reserve(place, choice.best, demand, true);
	*ret = choice.best;
	return PLACE_OK;
}

void place_reserve(struct place *place, struct place_node *node, const struct place_demand *demand,
	bool starting)
{
	(void)place;
	node->used.memory_mib += demand->memory_mib;
	node->used.disk_mib += demand->disk_mib;
	node->used.vcpus += demand->vcpus;
	node->used.sandboxes++;
	node->used.starting += starting;
	reindex(node);
}

void place_started(struct place *place, struct place_node *node)
{
	(void)place;
	node->used.starting -= node->used.starting > 0;
	reindex(node);
}

void place_release(struct place *place, struct place_node *node, const struct place_demand *demand,
	bool starting)
{
	(void)place;
	node->used.memory_mib = minus(node->used.memory_mib, demand->memory_mib);
	node->used.disk_mib = minus(node->used.disk_mib, demand->disk_mib);
	node->used.vcpus = (uint32_t)minus(node->used.vcpus, demand->vcpus);
	node->used.sandboxes -= node->used.sandboxes > 0;
	node->used.starting -= starting && node->used.starting > 0;
	reindex(node);
}

/* ---- pools and nodes ---- */

int place_new(struct place **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

static void node_free(struct place_node *node)
{
	unindex(node);
	place_node_drop_images(node);
	TAILQ_REMOVE(&node->pool->nodes, node, in_pool);
	node->pool->n_nodes--;
	free(node->images);
	free(node);
}

struct place *place_free(struct place *place)
{
	struct place_pool *pool, *next;

	if (!place)
		return NULL;
	HASH_ITER (hh, place->pools, pool, next) {
		while (!TAILQ_EMPTY(&pool->nodes))
			node_free(TAILQ_FIRST(&pool->nodes));
		for (size_t i = 0; i < GROUPS; i++)
			free(pool->groups[i]);
		HASH_DEL(place->pools, pool);
		free(pool);
	}
	free(place);
	return NULL;
}

struct place_pool *place_pool_find(const struct place *place, const char *name)
{
	struct place_pool *pool;

	HASH_FIND_STR(place->pools, name, pool);
	return pool;
}

static struct place_pool *pool_make(struct place *place, const char *name)
{
	struct place_pool *pool = place_pool_find(place, name);

	if (pool)
		return pool;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return NULL;
	pool->overcommit_percent = 100;
	TAILQ_INIT(&pool->nodes);
	strncpy(pool->name, name, sizeof(pool->name) - 1);
	HASH_ADD_STR(place->pools, name, pool);
	if (!pool->hh.tbl) {
		free(pool);
		return NULL;
	}
	return pool;
}

int place_pool_set(struct place *place, const char *name, uint32_t cpu_overcommit_percent)
{
	struct place_pool *pool = pool_make(place, name);
	struct place_node *node;

	if (!pool)
		return -ENOMEM;
	pool->overcommit_percent = cpu_overcommit_percent ? cpu_overcommit_percent : 100;
	TAILQ_FOREACH (node, &pool->nodes, in_pool)
		reindex(node);
	return 0;
}

bool place_pool_exists(const struct place *place, const char *pool)
{
	return place_pool_find(place, pool) != NULL;
}

int place_node_add(
	struct place *place, const char *pool_name, const char *id, struct place_node **ret)
{
	struct place_pool *pool = pool_make(place, pool_name);
	struct place_node *node = calloc(1, sizeof(*node));

	if (!pool || !node) {
		free(node);
		return -ENOMEM;
	}
	node->pool = pool;
	node->bucket = NOT_INDEXED;
	strncpy(node->id, id, sizeof(node->id) - 1);
	TAILQ_INSERT_TAIL(&pool->nodes, node, in_pool);
	pool->n_nodes++;
	*ret = node;
	return 0;
}

void place_node_remove(struct place *place, struct place_node *node)
{
	(void)place;
	if (node)
		node_free(node);
}

void place_node_set(
	struct place *place, struct place_node *node, const struct place_node_facts *facts)
{
	(void)place;
	node->facts = *facts;
	reindex(node);
}

void place_node_usage(const struct place_node *node, struct place_usage *ret)
{
	*ret = node->used;
}

const char *place_node_id(const struct place_node *node)
{
	return node->id;
}
