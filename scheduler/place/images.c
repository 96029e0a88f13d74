/* SPDX-License-Identifier: Apache-2.0
 *
 * Which nodes hold which image: a sorted array per node, and per image and class of nodes an index of the holders.
 * A key is the first 64 bits of the digest: two images that share them would only cost a score that is a little
 * off. And which images are barred from a node, because they fail there and start elsewhere.
 */
#include <errno.h>
#include <string.h>

#include "place/node.h"

uint64_t place_image_key(const char *digest)
{
	uint64_t key = 0;

	if (strncmp(digest, "sha256:", 7) != 0)
		return 0;
	for (size_t i = 7; i < 7 + 16 && digest[i]; i++) {
		unsigned int c = (unsigned char)digest[i];

		key = key << 4 | (c >= 'a' ? c - 'a' + 10 : c - '0');
	}
	return key;
}

static int key_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static struct place_hold *hold_find(const struct place_node *node, uint64_t key)
{
	struct place_hold *holds = node->holds;
	size_t low = 0, high = node->n_holds;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (holds[middle].key == key)
			return &holds[middle];
		if (holds[middle].key < key)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

bool place_node_has_image(const struct place_node *node, uint64_t key)
{
	return hold_find(node, key) != NULL;
}

struct place_image *place_image_find(const struct place_pool *pool, uint64_t key)
{
	struct place_image *image;

	HASH_FIND(hh, pool->images, &key, sizeof(key), image);
	return image;
}

/* ---- sets: the holders of an image in a class ---- */

static void set_free(struct place_pool *pool, struct place_image *image, struct place_set *set)
{
	struct place_set **at = &image->sets;

	while (*at != set)
		at = &(*at)->next;
	*at = set->next;
	place_index_deinit(&set->index);
	free(set->dirty);
	free(set);
	if (!image->sets) {
		HASH_DEL(pool->images, image);
		free(image);
	}
}

static struct place_image *image_make(struct place_pool *pool, uint64_t key)
{
	struct place_image *image = place_image_find(pool, key);

	if (image)
		return image;
	image = calloc(1, sizeof(*image));
	if (!image)
		return NULL;
	image->key = key;
	HASH_ADD(hh, pool->images, key, sizeof(image->key), image);
	if (!image->hh.tbl) {
		free(image);
		return NULL;
	}
	return image;
}

/* A set that was made for nothing is freed by the caller, with set_free(). */
static struct place_set *set_make(struct place_image *image, struct place_class *class)
{
	struct place_set *set;

	for (set = image->sets; set; set = set->next)
		if (set->class == class)
			return set;
	set = calloc(1, sizeof(*set));
	if (!set)
		return NULL;
	set->class = class;
	set->epoch = 1;
	set->next = image->sets;
	image->sets = set;
	return set;
}

static int set_add(struct place_set *set, struct place_node *node, uint32_t *ret_slot)
{
	if (set->index.n + 1 > set->dirty_room) {
		uint32_t room = set->dirty_room ? 2 * set->dirty_room : 16;
		struct place_dirty *grown = realloc(set->dirty, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		set->dirty = grown;
		set->dirty_room = room;
	}
	return place_index_add(&set->index, node, ret_slot);
}

static int hold_enter(struct place_node *node, struct place_hold *hold)
{
	struct place_image *image = image_make(node->pool, hold->key);
	struct place_set *set = image ? set_make(image, node->class) : NULL;

	hold->set = NULL;
	hold->epoch = 0;
	if (set && set_add(set, node, &hold->slot) == 0) {
		set->n_nodes++;
		hold->set = set;
		return 0;
	}
	if (set && set->n_nodes == 0) {
		set_free(node->pool, image, set);
	} else if (image && !image->sets) {
		HASH_DEL(node->pool->images, image);
		free(image);
	}
	return -ENOMEM;
}

static void hold_leave(struct place_node *node, struct place_hold *hold)
{
	struct place_set *set = hold->set;

	if (!set)
		return;
	hold->set = NULL;
	if (hold->epoch == set->epoch)
		set->dirty[hold->dirty].slot = NOT_DIRTY;
	place_index_remove(&set->index, hold->slot);
	if (--set->n_nodes == 0)
		set_free(node->pool, place_image_find(node->pool, hold->key), set);
}

static void hold_mark(struct place_hold *hold, const struct place_sum *sum)
{
	struct place_set *set = hold->set;

	if (!set)
		return;
	if (hold->epoch == set->epoch) {
		set->dirty[hold->dirty].sum = *sum;
		return;
	}
	if (set->n_dirty == set->dirty_room)
		place_set_refresh(set);
	hold->epoch = set->epoch;
	hold->dirty = set->n_dirty++;
	set->dirty[hold->dirty] = (struct place_dirty){ *sum, hold->slot };
}

void place_node_mark_holds(struct place_node *node, const struct place_sum *sum)
{
	for (size_t i = 0; i < node->n_holds; i++)
		hold_mark(&node->holds[i], sum);
}

void place_node_leave_sets(struct place_node *node)
{
	for (size_t i = 0; i < node->n_holds; i++)
		hold_leave(node, &node->holds[i]);
}

int place_node_enter_sets(struct place_node *node)
{
	int r = 0;

	for (size_t i = 0; i < node->n_holds; i++)
		if (hold_enter(node, &node->holds[i]) < 0)
			r = -ENOMEM;
	return r;
}

void place_set_refresh(struct place_set *set)
{
	for (uint32_t i = 0; i < set->n_dirty; i++)
		if (set->dirty[i].slot != NOT_DIRTY)
			place_index_set(&set->index, set->dirty[i].slot, &set->dirty[i].sum);
	set->n_dirty = 0;
	set->epoch++;
}

/* ---- what a node holds ---- */

void place_node_drop_images(struct place_node *node)
{
	place_node_leave_sets(node);
	node->n_holds = 0;
}

static bool same_images(const struct place_node *node, const uint64_t *keys, size_t n)
{
	if (node->n_holds != n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (node->holds[i].key != keys[i])
			return false;
	return true;
}

/* Sorts `keys`, which stay the caller's. What was held and still is keeps its place in its set. */
static int set_keys(struct place_node *node, uint64_t *keys, size_t n)
{
	struct place_hold *holds;
	size_t unique = 0;
	int r = 0;

	if (n)
		qsort(keys, n, sizeof(*keys), key_compare);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || keys[i] != keys[i - 1])
			keys[unique++] = keys[i];
	if (same_images(node, keys, unique))
		return 0;
	holds = calloc(unique + 1, sizeof(*holds));
	if (!holds)
		return -ENOMEM;
	for (size_t i = 0; i < unique; i++) {
		struct place_hold *former = hold_find(node, keys[i]);

		holds[i].key = keys[i];
		if (former) {
			holds[i] = *former;
			former->set = NULL; /* moved */
		} else if (node->class) {
			if (hold_enter(node, &holds[i]) < 0)
				r = -ENOMEM;
			hold_mark(&holds[i], &node->class->ready.rows[0][node->ready_slot]);
		}
	}
	place_node_leave_sets(node);
	free(node->holds);
	node->holds = holds;
	node->n_holds = unique;
	return r;
}

int place_node_set_images(
	struct place *place, struct place_node *node, const struct image_list *images)
{
	uint64_t *keys = calloc(images->n + 1, sizeof(*keys));
	int r;

	(void)place;
	if (!keys)
		return -ENOMEM;
	for (size_t i = 0; i < images->n; i++)
		keys[i] = place_image_key(images->digests[i]);
	r = set_keys(node, keys, images->n);
	free(keys);
	return r;
}

int place_node_add_image(struct place *place, struct place_node *node, const char *digest)
{
	uint64_t key = place_image_key(digest);
	uint64_t *keys;
	int r;

	(void)place;
	if (place_node_has_image(node, key))
		return 0;
	keys = calloc(node->n_holds + 2, sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	for (size_t i = 0; i < node->n_holds; i++)
		keys[i] = node->holds[i].key;
	keys[node->n_holds] = key;
	r = set_keys(node, keys, node->n_holds + 1);
	free(keys);
	return r;
}

/* ---- what is barred from it ---- */

bool place_node_is_barred(const struct place_node *node, uint64_t key)
{
	for (size_t i = 0; i < node->n_barred; i++)
		if (node->barred[i] == key)
			return true;
	return false;
}

int place_node_bar(
	struct place *place, struct place_node *node, const char *digest, bool barred)
{
	uint64_t key = place_image_key(digest);
	uint64_t *grown;

	(void)place;
	for (size_t i = 0; !barred && i < node->n_barred; i++)
		if (node->barred[i] == key) {
			node->barred[i] = node->barred[--node->n_barred];
			return 0;
		}
	if (!barred || place_node_is_barred(node, key))
		return 0;
	grown = realloc(node->barred, (node->n_barred + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	node->barred = grown;
	node->barred[node->n_barred++] = key;
	return 0;
}
