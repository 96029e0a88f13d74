/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of place: the structs that place.c, images.c and explain.c share. Nobody else includes this.
 */
#pragma once

#include <sys/queue.h>

#include "base/table.h"
#include "place/place.h"

#define BUCKETS 256
#define GROUPS 36 /* doublings of a node's memory, up to 2^35 MiB */
#define NOT_INDEXED UINT32_MAX

TAILQ_HEAD(place_bucket, place_node);

/* Nodes of one pool and one doubling of memory, by free share. */
struct place_group {
	struct place_bucket buckets[BUCKETS];
	uint64_t used[BUCKETS / 64]; /* bit n: buckets[n] is not empty */
};

/* Who holds an image, in one pool. */
struct place_image {
	uint64_t key;
	struct place_node **holders;
	size_t n_holders, room;
	UT_hash_handle hh;
};

struct place_pool {
	char name[ID_NAME_MAX + 1];
	uint64_t overcommit_percent;
	TAILQ_HEAD(, place_node) nodes;
	size_t n_nodes;
	struct place_group *groups[GROUPS];
	struct place_image *images;
	UT_hash_handle hh;
};

struct place_node {
	char id[ID_SIZE];
	struct place_pool *pool;
	struct place_node_facts facts;
	struct place_usage used; /* reserved here */
	uint64_t *images;        /* keys, sorted */
	size_t n_images;
	uint32_t group, bucket; /* where it is indexed; bucket NOT_INDEXED: nowhere */
	TAILQ_ENTRY(place_node) in_pool;
	TAILQ_ENTRY(place_node) in_bucket;
};

struct place {
	struct place_pool *pools;
};

/* Free amounts, 0 where more is taken than there is. */
struct place_free {
	uint64_t memory_mib, disk_mib;
	uint64_t cpu_percent; /* hundredths of a CPU, overcommit included */
	uint32_t sandboxes, starts;
};
void place_node_free(const struct place_node *node, struct place_free *ret);
/* Bit n: fails enum place_constraint n. */
uint32_t place_node_misses(const struct place_node *node, const struct place_demand *demand);

uint64_t place_image_key(const char *digest);
bool place_node_has_image(const struct place_node *node, uint64_t key);
struct place_image *place_image_find(const struct place_pool *pool, uint64_t key);
void place_node_drop_images(struct place_node *node);

struct place_pool *place_pool_find(const struct place *place, const char *name);
/* Sets reterr from a scan of the pool. */
enum place_result place_refuse(const struct place *place, const char *pool,
	const struct place_demand *demand, struct err *reterr);
