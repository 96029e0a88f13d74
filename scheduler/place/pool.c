/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools, the kinds of nodes in them, and what puts a node into the indexes: each change of a node changes its
 * leaf in its class at once, and marks it in the sets of the images that it holds.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "place/node.h"

/* ---- the pool ---- */

int place_new(struct place **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
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

bool place_pool_exists(const struct place *place, const char *pool)
{
	return place_pool_find(place, pool) != NULL;
}

bool place_pool_is_dark(const struct place *place, const char *name)
{
	const struct place_pool *pool = place_pool_find(place, name);

	return !pool || pool->n_up == 0;
}

/* ---- profiles: region, CPU class, labels ---- */

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "cpu class\nkey=value\n...", sorted; NULL without memory. Values hold no newline: the API refuses them; here one
 * would only make two nodes look different. */
static char *profile_text(const char *cpu_class, const struct sandbox_field *labels, size_t n)
{
	char **pairs = calloc(n + 1, sizeof(char *));
	size_t size = strlen(cpu_class) + 2, used;
	bool ok = pairs != NULL;
	char *text = NULL;

	for (size_t i = 0; ok && i < n; i++) {
		ok = asprintf(&pairs[i], "%s=%s", labels[i].key, labels[i].value) >= 0;
		if (!ok)
			pairs[i] = NULL;
		else
			size += strlen(pairs[i]) + 1;
	}
	if (ok)
		text = malloc(size);
	if (text) {
		qsort(pairs, n, sizeof(char *), compare_text);
		used = (size_t)snprintf(text, size, "%s\n", cpu_class);
		for (size_t i = 0; i < n; i++)
			used += (size_t)snprintf(text + used, size - used, "%s\n", pairs[i]);
	}
	for (size_t i = 0; pairs && i < n; i++)
		free(pairs[i]);
	free(pairs);
	return text;
}

/* Takes the text over; NULL is -ENOMEM's. */
static struct place_profile *profile_make(struct place_pool *pool, char *text)
{
	struct place_profile *profile = NULL;

	if (!text)
		return NULL;
	HASH_FIND_STR(pool->profiles, text, profile);
	if (profile) {
		free(text);
		return profile;
	}
	profile = calloc(1, sizeof(*profile));
	if (profile) {
		profile->text = text;
		HASH_ADD_KEYPTR(hh, pool->profiles, text, strlen(text), profile);
	}
	if (!profile || !profile->hh.tbl) {
		free(profile);
		free(text);
		return NULL;
	}
	return profile;
}

static void profile_drop(struct place_pool *pool, struct place_profile *profile)
{
	if (!profile || profile->n_nodes)
		return;
	HASH_DEL(pool->profiles, profile);
	free(profile->text);
	free(profile);
}

/* Whether a line "key=value" stands in it. */
static bool has_label(const struct place_profile *profile, const char *key, const char *value)
{
	size_t key_size = strlen(key), value_size = strlen(value);
	const char *line = profile->text;

	while ((line = strchr(line, '\n')) && *++line)
		if (strncmp(line, key, key_size) == 0 && line[key_size] == '=' &&
			strncmp(line + key_size + 1, value, value_size) == 0 &&
			line[key_size + 1 + value_size] == '\n')
			return true;
	return false;
}

static bool has_cpu_class(const struct place_profile *profile, const char *cpu_class)
{
	size_t size = strlen(cpu_class);

	return strncmp(profile->text, cpu_class, size) == 0 && profile->text[size] == '\n';
}

static bool misses(enum place_constraint miss, enum place_constraint *ret)
{
	if (ret)
		*ret = miss;
	return false;
}

bool place_profile_matches(const struct place_profile *profile, const struct place_demand *demand,
	enum place_constraint *ret_miss)
{
	if (demand->region && *demand->region && !has_label(profile, "region", demand->region))
		return misses(PLACE_REGION, ret_miss);
	for (size_t i = 0; i < demand->n_labels; i++)
		if (!has_label(profile, demand->labels[i].key, demand->labels[i].value))
			return misses(PLACE_LABELS, ret_miss);
	if (demand->cpu_class && *demand->cpu_class && !has_cpu_class(profile, demand->cpu_class))
		return misses(PLACE_CPU_CLASS, ret_miss);
	return true;
}

/* ---- classes ---- */

/* In quarters of a doubling, and the least value of that step. */
static uint8_t step_of(uint64_t value, uint64_t *ret_least)
{
	unsigned int log = value ? 63 - (unsigned int)__builtin_clzll(value) : 0;
	unsigned int quarter = log >= 2 ? (unsigned int)(value >> (log - 2)) & 3 : 0;

	*ret_least = log >= 2 ? (uint64_t)(4 + quarter) << (log - 2) : value ? UINT64_C(1) << log : 0;
	return (uint8_t)(4 * log + quarter + 1);
}

static struct place_class kind_of(const struct place_node *node)
{
	const struct node_capacity *capacity = &node->facts.capacity;
	struct place_class class;
	uint64_t unused;

	memset(&class, 0, sizeof(class)); /* the kind is a hash key: its padding counts */
	class.kind.profile = node->profile;
	class.kind.memory = step_of(capacity->memory_mib, &class.memory_mib);
	class.kind.disk = step_of(capacity->disk_mib, &class.disk_mib);
	class.kind.cpu = step_of(
		capacity->cpus * node->pool->overcommit_percent, &class.cpu_percent);
	class.kind.sandboxes = step_of(capacity->max_sandboxes, &unused);
	return class;
}

static struct place_class *class_make(struct place_pool *pool, const struct place_class *like)
{
	struct place_class kind = *like, *class;

	HASH_FIND(hh, pool->classes, &kind.kind, sizeof(kind.kind), class);
	if (class)
		return class;
	if (HASH_COUNT(pool->classes) >= CLASSES_MAX) {
		memset(&kind, 0, sizeof(kind));
		HASH_FIND(hh, pool->classes, &kind.kind, sizeof(kind.kind), class);
		if (class)
			return class;
	}
	class = malloc(sizeof(*class));
	if (!class)
		return NULL;
	memcpy(class, &kind, sizeof(*class));
	HASH_ADD(hh, pool->classes, kind, sizeof(class->kind), class);
	if (!class->hh.tbl) {
		free(class);
		return NULL;
	}
	return class;
}

static void class_free(struct place_pool *pool, struct place_class *class)
{
	HASH_DEL(pool->classes, class);
	place_index_deinit(&class->ready);
	place_index_deinit(&class->waiting);
	free(class);
}

static void leave_class(struct place_node *node)
{
	struct place_class *class = node->class;

	if (!class)
		return;
	place_node_leave_sets(node);
	place_index_remove(&class->ready, node->ready_slot);
	place_index_remove(&class->waiting, node->waiting_slot);
	node->class = NULL;
	if (--class->n_nodes == 0)
		class_free(node->pool, class);
}

static int enter_class(struct place_node *node)
{
	struct place_class like = kind_of(node);
	struct place_class *class = class_make(node->pool, &like);

	if (!class)
		return -ENOMEM;
	if (place_index_add(&class->ready, node, &node->ready_slot) < 0)
		goto fail;
	if (place_index_add(&class->waiting, node, &node->waiting_slot) < 0) {
		place_index_remove(&class->ready, node->ready_slot);
		goto fail;
	}
	class->n_nodes++;
	node->class = class;
	return place_node_enter_sets(node);
fail:
	if (class->n_nodes == 0)
		class_free(node->pool, class);
	return -ENOMEM;
}

/* The mixed class is left only when there is room for its kind: a node there is sorted again by its next change. */
static int choose_class(struct place_node *node)
{
	struct place_class like = kind_of(node);

	if (node->class && memcmp(&node->class->kind, &like.kind, sizeof(like.kind)) == 0)
		return 0;
	if (node->class && !node->class->kind.profile &&
		HASH_COUNT(node->pool->classes) >= CLASSES_MAX)
		return 0;
	leave_class(node);
	return enter_class(node);
}

/* ---- a node in the indexes ---- */

static uint64_t share(uint64_t part, uint64_t whole)
{
	return whole ? MIN(part * SHARE_WHOLE / whole, (uint64_t)SHARE_WHOLE) : 0;
}

/* The part of the score that does not depend on the request. */
static uint32_t key_of(const struct place_node *node, const struct place_free *room)
{
	const struct node_capacity *capacity = &node->facts.capacity;
	uint64_t least = share(room->memory_mib, capacity->memory_mib);
	uint64_t malus = (uint64_t)node->used.starting * START_MALUS +
			 MIN(node->facts.ill_permille, SHARE_WHOLE) / ILL_PART;

	least = MIN(least, share(room->cpu_percent, capacity->cpus * node->pool->overcommit_percent));
	least = MIN(least, share(room->disk_mib, capacity->disk_mib));
	least = MIN(least, share(room->sandboxes, capacity->max_sandboxes));
	return (uint32_t)(1 + SHARE_WHOLE + least - MIN(malus, (uint64_t)SHARE_WHOLE));
}

static uint32_t clip(uint64_t value)
{
	return (uint32_t)MIN(value, (uint64_t)UINT32_MAX);
}

void place_node_reindex(struct place_node *node)
{
	static const struct place_sum nothing;
	const struct place_node_facts *facts = &node->facts;
	bool could = facts->connected && facts->allowed && facts->unable == FAIL_NONE;
	struct place_free room;
	struct place_sum sum;
	bool waits;

	if (!node->class)
		return;
	place_node_free(node, &room);
	waits = facts->busy || room.starts == 0;
	sum = (struct place_sum){
		.memory_mib = clip(room.memory_mib),
		.disk_mib = clip(room.disk_mib),
		.cpu_percent = clip(room.cpu_percent),
		.key = key_of(node, &room),
	};
	if (!could || room.sandboxes == 0)
		sum = nothing;
	node->key = waits ? 0 : sum.key;
	place_index_set(&node->class->ready, node->ready_slot, waits ? &nothing : &sum);
	place_index_set(&node->class->waiting, node->waiting_slot, waits ? &sum : &nothing);
	place_node_mark_holds(node, waits ? &nothing : &sum);
}

static int update(struct place_node *node)
{
	bool is_up = node->facts.connected && node->facts.allowed;
	int r = choose_class(node);

	node->pool->n_up += is_up;
	node->pool->n_up -= node->is_up;
	node->is_up = is_up;
	place_node_reindex(node);
	return r;
}

/* ---- nodes ---- */

static void node_free(struct place_node *node)
{
	struct place_pool *pool = node->pool;

	place_node_drop_images(node);
	leave_class(node);
	pool->n_up -= node->is_up;
	TAILQ_REMOVE(&pool->nodes, node, in_pool);
	pool->n_nodes--;
	if (node->profile) {
		node->profile->n_nodes--;
		profile_drop(pool, node->profile);
	}
	free(node->holds);
	free(node->barred);
	free(node->counts);
	free(node);
}

struct place *place_free(struct place *place)
{
	struct place_tenant *tenant, *next_tenant;
	struct place_pool *pool, *next;

	if (!place)
		return NULL;
	HASH_ITER (hh, place->pools, pool, next) {
		while (!TAILQ_EMPTY(&pool->nodes))
			node_free(TAILQ_FIRST(&pool->nodes));
		HASH_DEL(place->pools, pool);
		free(pool);
	}
	HASH_ITER (hh, place->tenants, tenant, next_tenant) {
		HASH_DEL(place->tenants, tenant);
		free(tenant);
	}
	free(place);
	return NULL;
}

int place_pool_set(struct place *place, const char *name, uint32_t cpu_overcommit_percent)
{
	struct place_pool *pool = pool_make(place, name);
	struct place_node *node;
	int r = 0;

	if (!pool)
		return -ENOMEM;
	pool->overcommit_percent = cpu_overcommit_percent ? cpu_overcommit_percent : 100;
	TAILQ_FOREACH (node, &pool->nodes, in_pool)
		if (update(node) < 0)
			r = -ENOMEM;
	return r;
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
	strncpy(node->id, id, sizeof(node->id) - 1);
	TAILQ_INSERT_TAIL(&pool->nodes, node, in_pool);
	pool->n_nodes++;
	if (place_node_set_profile(place, node, "", NULL, 0) < 0) {
		node_free(node);
		return -ENOMEM;
	}
	*ret = node;
	return 0;
}

/* What is counted for tenants there goes with the node: their numbers are never used again. */
void place_node_remove(struct place *place, struct place_node *node)
{
	struct place_tenant *tenant, *next;

	if (!node)
		return;
	HASH_ITER (hh, place->tenants, tenant, next)
		for (uint32_t i = 0; i < node->n_counts; i++) {
			if (node->counts[i].tenant != tenant->number)
				continue;
			tenant->n_sandboxes -= node->counts[i].n;
			if (tenant->n_sandboxes == 0) {
				HASH_DEL(place->tenants, tenant);
				free(tenant);
			}
			break;
		}
	node_free(node);
}

static int set_profile(struct place_node *node, char *text)
{
	struct place_profile *profile = profile_make(node->pool, text);
	struct place_profile *former = node->profile;
	int r;

	if (!profile)
		return -ENOMEM;
	if (profile == former)
		return 0;
	profile->n_nodes++;
	node->profile = profile;
	r = update(node);
	if (former) {
		former->n_nodes--;
		profile_drop(node->pool, former);
	}
	return r;
}

int place_node_set_profile(struct place *place, struct place_node *node, const char *cpu_class,
	const struct sandbox_field *labels, size_t n_labels)
{
	(void)place;
	return set_profile(node, profile_text(cpu_class, labels, n_labels));
}

int place_node_copy_profile(struct place_node *node, const char *text)
{
	return set_profile(node, strdup(text));
}

int place_node_set(
	struct place *place, struct place_node *node, const struct place_node_facts *facts)
{
	(void)place;
	node->facts = *facts;
	return update(node);
}
