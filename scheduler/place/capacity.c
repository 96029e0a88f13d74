/* SPDX-License-Identifier: Apache-2.0
 *
 * See capacity.h.
 */
#include "place/capacity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "place/node.h"

struct copied_node {
	struct place_node_facts facts;
	struct place_usage used;
	bool has_image, is_barred;
	char *profile;
	char id[ID_SIZE];
};

struct place_copy {
	char pool[ID_NAME_MAX + 1];
	char digest[DIGEST_SIZE];
	uint64_t overcommit_percent;
	size_t n;
	struct copied_node nodes[];
};

struct place_copy *place_copy_free(struct place_copy *copy)
{
	for (size_t i = 0; copy && i < copy->n; i++)
		free(copy->nodes[i].profile);
	free(copy);
	return NULL;
}

static bool is_removed(const struct place_node *node)
{
	return !node->facts.connected && node->facts.absence == PLACE_REMOVED;
}

int place_copy_new(struct place_copy **ret, const struct place *place, const char *name, const char *digest)
{
	const struct place_pool *pool = place_pool_find(place, name);
	const uint64_t key = place_image_key(digest);
	const struct place_node *node;
	struct place_copy *copy;

	if (!pool)
		return -ENOENT;
	copy = calloc(1, sizeof(*copy) + pool->n_nodes * sizeof(copy->nodes[0]));
	if (!copy)
		return -ENOMEM;
	(void)snprintf(copy->pool, sizeof(copy->pool), "%s", name);
	(void)snprintf(copy->digest, sizeof(copy->digest), "%s", digest);
	copy->overcommit_percent = pool->overcommit_percent;
	TAILQ_FOREACH (node, &pool->nodes, in_pool) {
		struct copied_node *to = &copy->nodes[copy->n];

		if (is_removed(node))
			continue;
		*to = (struct copied_node){ .facts = node->facts,
			.used = node->used,
			.has_image = place_node_has_image(node, key),
			.is_barred = place_node_is_barred(node, key),
			.profile = strdup(node->profile->text) };
		memcpy(to->id, node->id, sizeof(to->id));
		copy->n++;
		if (!to->profile) {
			place_copy_free(copy);
			return -ENOMEM;
		}
	}
	*ret = copy;
	return 0;
}

static const struct copied_node *largest_of(const struct place_copy *copy)
{
	const struct copied_node *largest = NULL;

	for (size_t i = 0; i < copy->n; i++)
		if (copy->nodes[i].facts.capacity.memory_mib > (largest ? largest->facts.capacity.memory_mib : 0))
			largest = &copy->nodes[i];
	return largest;
}

bool place_copy_largest(const struct place_copy *copy, struct node_capacity *ret)
{
	const struct copied_node *largest = largest_of(copy);

	*ret = largest ? largest->facts.capacity : (struct node_capacity){ .memory_mib = 0 };
	return largest != NULL;
}

uint32_t place_copy_overcommit(const struct place_copy *copy)
{
	return (uint32_t)copy->overcommit_percent;
}

const char *place_copy_pool(const struct place_copy *copy)
{
	return copy->pool;
}

/* ---- a place like it ---- */

static int add_node(struct place *place, const struct place_copy *copy, const struct copied_node *from)
{
	struct place_node *node;
	int r = place_node_add(place, copy->pool, from->id, &node);

	if (r == 0)
		r = place_node_copy_profile(node, from->profile);
	if (r == 0 && from->has_image)
		r = place_node_add_image(place, node, copy->digest);
	if (r == 0 && from->is_barred)
		r = place_node_bar(place, node, copy->digest, true);
	if (r == 0) {
		node->used = from->used;
		r = place_node_set(place, node, &from->facts);
	}
	return r;
}

/* The same without what is there and what was there, and with what passes by itself over. */
static int add_empty(struct place *place, const struct place_copy *copy, const struct copied_node *from)
{
	struct place_node_facts facts = from->facts;
	struct place_node *node;
	int r = place_node_add(place, copy->pool, from->id, &node);

	facts.busy = false;
	if (r == 0)
		r = place_node_copy_profile(node, from->profile);
	return r == 0 ? place_node_set(place, node, &facts) : r;
}

/* A node that would be bought for nobody in particular. */
static int add_like(struct place *place, const struct place_copy *copy, const struct node_capacity *capacity, size_t number)
{
	const struct copied_node *like = largest_of(copy);
	struct copied_node more = { .facts = { .connected = true, .allowed = true, .capacity = *capacity } };
	char none[] = "\n";

	more.profile = like ? like->profile : none;
	(void)snprintf(more.id, sizeof(more.id), "more-%u", (unsigned int)number);
	return add_empty(place, copy, &more);
}

/* One that would be bought for this demand has what it wants besides room. */
static int add_more(struct place *place, const struct place_copy *copy, const struct place_demand *demand,
	const struct node_capacity *capacity, size_t number)
{
	const struct place_node_facts facts = { .connected = true, .allowed = true, .capacity = *capacity };
	struct sandbox_field *labels = calloc(demand->n_labels + 1, sizeof(*labels));
	struct place_node *node;
	char key[] = "region", id[ID_SIZE];
	size_t n = 0;
	int r;

	if (!labels)
		return -ENOMEM;
	for (; n < demand->n_labels; n++)
		labels[n] = demand->labels[n];
	if (demand->region && *demand->region)
		labels[n++] = (struct sandbox_field){ key, (char *)(uintptr_t)demand->region }; /* only read */
	(void)snprintf(id, sizeof(id), "more-%u", (unsigned int)number);
	r = place_node_add(place, copy->pool, id, &node);
	if (r == 0)
		r = place_node_set_profile(place, node, demand->cpu_class ? demand->cpu_class : "", labels, n);
	if (r == 0)
		r = place_node_set(place, node, &facts);
	free(labels);
	return r;
}

int place_copy_build(struct place *place, const struct place_copy *copy, const struct place_demand *demand,
	const struct place_change *change)
{
	uint32_t overcommit = place_copy_overcommit(copy);
	int r;

	if (change && change->overcommit_percent)
		overcommit = change->overcommit_percent;
	r = place_pool_set(place, copy->pool, overcommit);
	for (size_t i = 0; i < copy->n && r == 0; i++)
		r = demand ? add_node(place, copy, &copy->nodes[i]) : add_empty(place, copy, &copy->nodes[i]);
	for (size_t i = 0; change && i < change->n_nodes && r == 0; i++)
		r = demand ? add_more(place, copy, demand, &change->node, i) : add_like(place, copy, &change->node, i);
	return r;
}

/* ---- filling it ---- */

static int fill(struct place *place, const struct place_copy *copy, const struct place_demand *demand, uint64_t *ret)
{
	struct place_node *node;

	for (*ret = 0;; ++*ret)
		switch (place_choose(place, copy->pool, demand, *ret, &node, NULL)) {
		case PLACE_OK:
			place_started(place, node); /* a start slot is free again soon: it bounds no number */
			continue;
		case PLACE_WAIT:
		case PLACE_NO_ROOM:
			return 0;
		case PLACE_NO_MEMORY:
			return -ENOMEM;
		}
}

/* What passes by itself has passed. */
static int let_pass(struct place *place, const struct place_pool *pool)
{
	struct place_node *node;
	int r = 0;

	TAILQ_FOREACH (node, &pool->nodes, in_pool) {
		struct place_node_facts facts = node->facts;

		node->used.starting = 0;
		facts.busy = false;
		r = r == 0 ? place_node_set(place, node, &facts) : r;
	}
	return r;
}

static void add_left(struct place_stop *stop, const struct place_free *room)
{
	stop->n_nodes++;
	stop->left.memory_mib += room->memory_mib;
	stop->left.disk_mib += room->disk_mib;
	stop->left.cpu_percent += room->cpu_percent;
	stop->left.sandboxes += room->sandboxes;
}

static void look(const struct place_pool *pool, const struct place_demand *demand, struct place_capacity *ret)
{
	const struct place_node *node;

	TAILQ_FOREACH (node, &pool->nodes, in_pool) {
		uint32_t misses = place_node_misses(node, demand);
		enum place_constraint first = misses ? (enum place_constraint)__builtin_ctz(misses) : PLACE_CONSTRAINT_MAX_;
		struct place_free room;

		if (first == PLACE_CONSTRAINT_MAX_)
			continue; /* nothing: the fill would not have ended */
		place_node_free(node, &room);
		add_left(&ret->stops[first], &room);
		if (first == PLACE_STATE)
			add_left(&ret->absent[node->facts.absence], &room);
	}
}

bool place_pool_room(const struct place *place, const char *name, struct place_room *ret_total, struct place_room *ret_used)
{
	const struct place_pool *pool = place_pool_find(place, name);
	struct place_room total = { .memory_mib = 0 }, used = { .memory_mib = 0 };
	const struct place_node *node;

	if (!pool)
		return false;
	TAILQ_FOREACH (node, &pool->nodes, in_pool) {
		const struct place_node_facts *facts = &node->facts;

		if (is_removed(node))
			continue;
		total.memory_mib += facts->capacity.memory_mib;
		total.disk_mib += facts->capacity.disk_mib;
		total.cpu_percent += facts->capacity.cpus * pool->overcommit_percent;
		total.sandboxes += facts->capacity.max_sandboxes;
		used.memory_mib += node->used.memory_mib + facts->foreign_memory_mib;
		used.disk_mib += node->used.disk_mib + facts->foreign_disk_mib;
		used.cpu_percent += 100 * ((uint64_t)node->used.vcpus + facts->foreign_vcpus);
		used.sandboxes += (uint64_t)node->used.sandboxes + facts->foreign_sandboxes;
	}
	*ret_total = total;
	*ret_used = used;
	return true;
}

int place_capacity(const struct place_copy *copy, const struct place_demand *demand, const struct place_change *change,
	struct place_capacity *ret)
{
	struct place_demand anybodys = *demand;
	struct place_explanation why;
	struct place *place;
	int r = place_new(&place);

	*ret = (struct place_capacity){ .fits = 0 };
	if (r < 0)
		return r;
	anybodys.tenant = NULL;
	memcpy(anybodys.image_digest, copy->digest, sizeof(anybodys.image_digest));
	r = place_copy_build(place, copy, &anybodys, change);
	if (r == 0) {
		const struct place_pool *pool = place_pool_find(place, copy->pool);

		place_explain(place, copy->pool, &anybodys, &why);
		ret->n_nodes = why.n_nodes;
		ret->n_fitting = why.n_fitting;
		memcpy(ret->excluded, why.excluded, sizeof(ret->excluded));
		(void)place_pool_room(place, copy->pool, &ret->total, &ret->used);
		r = fill(place, copy, &anybodys, &ret->fits);
		if (r == 0)
			r = let_pass(place, pool);
		if (r == 0)
			r = fill(place, copy, &anybodys, &ret->waiting);
		look(pool, &anybodys, ret);
		place_explain(place, copy->pool, &anybodys, &why);
		memcpy(ret->change, why.change, sizeof(ret->change));
	}
	place_free(place);
	return r;
}
