/* SPDX-License-Identifier: Apache-2.0
 *
 * Which nodes hold which image: a sorted array of keys per node, and per pool a table from key to holders. A key
 * is the first 64 bits of the digest: two images that share them would only cost a score that is a little off.
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

bool place_node_has_image(const struct place_node *node, uint64_t key)
{
	return node->n_images &&
	       bsearch(&key, node->images, node->n_images, sizeof(key), key_compare) != NULL;
}

struct place_image *place_image_find(const struct place_pool *pool, uint64_t key)
{
	struct place_image *image;

	HASH_FIND(hh, pool->images, &key, sizeof(key), image);
	return image;
}

static int holder_add(struct place_pool *pool, struct place_node *node, uint64_t key)
{
	struct place_image *image = place_image_find(pool, key);

	if (!image) {
		image = calloc(1, sizeof(*image));
		if (!image)
			return -ENOMEM;
		image->key = key;
		HASH_ADD(hh, pool->images, key, sizeof(image->key), image);
		if (!image->hh.tbl) {
			free(image);
			return -ENOMEM;
		}
	}
	if (image->n_holders == image->room) {
		size_t room = image->room ? 2 * image->room : 4;
		struct place_node **grown =
			realloc(image->holders, room * sizeof(struct place_node *));

		if (!grown)
			return -ENOMEM;
		image->holders = grown;
		image->room = room;
	}
	image->holders[image->n_holders++] = node;
	return 0;
}

static void holder_remove(struct place_pool *pool, const struct place_node *node, uint64_t key)
{
	struct place_image *image = place_image_find(pool, key);

	if (!image)
		return;
	for (size_t i = 0; i < image->n_holders; i++)
		if (image->holders[i] == node) {
			image->holders[i] = image->holders[--image->n_holders];
			break;
		}
	if (image->n_holders == 0) {
		HASH_DEL(pool->images, image);
		free(image->holders);
		free(image);
	}
}

void place_node_drop_images(struct place_node *node)
{
	for (size_t i = 0; i < node->n_images; i++)
		holder_remove(node->pool, node, node->images[i]);
	node->n_images = 0;
}

static bool same_images(const struct place_node *node, const uint64_t *keys, size_t n)
{
	return node->n_images == n &&
	       (n == 0 || memcmp(node->images, keys, n * sizeof(*keys)) == 0);
}

/* Takes `keys` over, sorted or not. */
static int set_keys(struct place_node *node, uint64_t *keys, size_t n)
{
	size_t unique = 0;

	if (n)
		qsort(keys, n, sizeof(*keys), key_compare);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || keys[i] != keys[i - 1])
			keys[unique++] = keys[i];
	if (same_images(node, keys, unique)) {
		free(keys);
		return 0;
	}
	place_node_drop_images(node);
	free(node->images);
	node->images = keys;
	for (; node->n_images < unique; node->n_images++)
		if (holder_add(node->pool, node, keys[node->n_images]) < 0)
			return -ENOMEM; /* those so far are right in both tables */
	return 0;
}

int place_node_set_images(
	struct place *place, struct place_node *node, const struct image_list *images)
{
	uint64_t *keys = calloc(images->n + 1, sizeof(*keys));

	(void)place;
	if (!keys)
		return -ENOMEM;
	for (size_t i = 0; i < images->n; i++)
		keys[i] = place_image_key(images->digests[i]);
	return set_keys(node, keys, images->n);
}

int place_node_add_image(struct place *place, struct place_node *node, const char *digest)
{
	uint64_t key = place_image_key(digest);
	uint64_t *keys;

	(void)place;
	if (place_node_has_image(node, key))
		return 0;
	keys = calloc(node->n_images + 2, sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	if (node->n_images)
		memcpy(keys, node->images, node->n_images * sizeof(*keys));
	keys[node->n_images] = key;
	return set_keys(node, keys, node->n_images + 1);
}
