/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of place: the structs that its files share. Nobody else includes this, but the test that compares the
 * index with a plain scan.
 *
 * Who owns what: a pool owns its nodes, classes, profiles and images. A node is in exactly one class and, in that
 * class, in both indexes; for each image it holds it is in the set (image, class).
 */
#pragma once

#include <sys/queue.h>

#include "base/table.h"
#include "place/index.h"
#include "place/place.h"

#define SHARE_WHOLE 1000u /* permille */
#define CLASSES_MAX 256u  /* of a pool; nodes of further kinds are kept together, unsorted */
#define IMAGE_BONUS 100u  /* an image that is there is worth a tenth of a node's load */
#define START_MALUS 4u    /* per start under way: they compete for CPU and disk */
#define SPREAD_MALUS 8u   /* per sandbox of the same tenant there */
#define SPREAD_MOST 64u
#define SPREAD_LOOKS 24 /* nodes that have the tenant already, before less than SPREAD_MOST is let go */
#define ILL_PART 5u /* a node whose every start fails loses a fifth */

/* Region, CPU class and labels: equal ones are one object. */
struct place_profile {
	char *text; /* the key: "cpu class\nkey=value\nkey=value\n", sorted */
	size_t n_nodes;
	uint64_t asked; /* number of the decision that `matches` is about */
	bool matches;
	UT_hash_handle hh;
};

/* What makes nodes alike, sizes in quarters of a doubling; `profile` NULL: the rest, of every kind. */
struct place_kind {
	struct place_profile *profile;
	uint8_t memory, disk, cpu, sandboxes;
	uint8_t unused[4]; /* a key of the table: no hidden padding */
};

struct place_class {
	struct place_kind kind; /* the key */
	uint64_t memory_mib, disk_mib, cpu_percent; /* of the smallest node of this kind; 0: any */
	struct place_index ready;   /* may be chosen now */
	struct place_index waiting; /* could be but for starts or a back-off */
	size_t n_nodes;
	UT_hash_handle hh;
};

#define NOT_DIRTY UINT32_MAX

/* A leaf to be set. */
struct place_dirty {
	struct place_sum sum;
	uint32_t slot; /* NOT_DIRTY: no more */
};

/* Holders of one image in one class. What changed about a holder is written down and done when it is asked for:
 * a node with many images changes often, and most images are asked for seldom. */
struct place_set {
	struct place_class *class;
	uint64_t epoch; /* rises when `dirty` was done */
	struct place_dirty *dirty;
	uint32_t n_dirty, dirty_room; /* room for every slot */
	struct place_index index;
	size_t n_nodes;
	struct place_set *next;
};

struct place_image {
	uint64_t key;
	struct place_set *sets;
	UT_hash_handle hh;
};

/* That a node holds an image. */
struct place_hold {
	uint64_t key;
	struct place_set *set; /* NULL: not in one, for want of memory */
	uint32_t slot;
	uint32_t dirty; /* in set->dirty, if `epoch` is the set's */
	uint64_t epoch;
};

struct place_count {
	uint32_t tenant, n;
};

struct place_pool {
	char name[ID_NAME_MAX + 1];
	uint64_t overcommit_percent;
	TAILQ_HEAD(, place_node) nodes;
	size_t n_nodes, n_up; /* up: connected and allowed */
	struct place_class *classes;
	struct place_profile *profiles;
	struct place_image *images;
	UT_hash_handle hh;
};

struct place_node {
	struct place_pool *pool;
	struct place_class *class; /* NULL: not indexed, for want of memory */
	uint32_t ready_slot, waiting_slot;
	uint32_t key; /* the score that does not depend on the request; 0: not to be chosen */
	bool is_up;
	struct place_usage used; /* reserved here */
	struct place_node_facts facts;
	struct place_count *counts; /* sandboxes per tenant */
	uint32_t n_counts, counts_room;
	size_t n_barred;
	uint64_t *barred;
	struct place_hold *holds; /* sorted by key */
	size_t n_holds;
	char id[ID_SIZE];
	struct place_profile *profile;
	TAILQ_ENTRY(place_node) in_pool;
};

struct place_tenant {
	char name[ID_NAME_MAX + 1];
	uint32_t number;
	size_t n_sandboxes;
	UT_hash_handle hh;
};

struct place {
	struct place_pool *pools;
	struct place_tenant *tenants;
	uint32_t next_tenant;
	uint64_t decisions;
};

/* Free amounts, 0 where more is taken than there is. */
struct place_free {
	uint64_t memory_mib, disk_mib;
	uint64_t cpu_percent; /* hundredths of a CPU, overcommit included */
	uint32_t sandboxes, starts;
};

static inline uint64_t place_minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* ---- place.c ---- */
void place_node_free(const struct place_node *node, struct place_free *ret);
/* Bit n: fails enum place_constraint n. */
uint32_t place_node_misses(const struct place_node *node, const struct place_demand *demand);
/* What the index must find the greatest of, among nodes without a miss. */
int64_t place_node_score(const struct place_node *node, const struct place_demand *demand,
	const struct place_tenant *tenant);
struct place_tenant *place_tenant_find(const struct place *place, const char *name);

/* ---- pool.c ---- */
struct place_pool *place_pool_find(const struct place *place, const char *name);
bool place_profile_matches(const struct place_profile *profile, const struct place_demand *demand,
	enum place_constraint *ret_miss);
/* As a node of another struct place has it: its profile's text. 0 or -ENOMEM. */
int place_node_copy_profile(struct place_node *node, const char *text);
/* Puts what changed about the node into the indexes. */
void place_node_reindex(struct place_node *node);

/* ---- images.c ---- */
uint64_t place_image_key(const char *digest);
bool place_node_has_image(const struct place_node *node, uint64_t key);
bool place_node_is_barred(const struct place_node *node, uint64_t key);
struct place_image *place_image_find(const struct place_pool *pool, uint64_t key);
void place_node_drop_images(struct place_node *node);
/* Around a change of class: out of the sets of the old one, into those of the new one. */
void place_node_leave_sets(struct place_node *node);
int place_node_enter_sets(struct place_node *node);
void place_node_mark_holds(struct place_node *node, const struct place_sum *sum);
/* The set's index is as its nodes are. */
void place_set_refresh(struct place_set *set);

/* ---- capacity.c ---- */
struct place_copy;
struct place_change;
const char *place_copy_pool(const struct place_copy *copy);
/* The copied pool in an empty place, for a demand; NULL: without what is there, for any. 0 or -ENOMEM. */
int place_copy_build(struct place *place, const struct place_copy *copy, const struct place_demand *demand,
	const struct place_change *change);
