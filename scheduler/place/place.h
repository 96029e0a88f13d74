/* SPDX-License-Identifier: Apache-2.0
 *
 * Which node: hard constraints, then a score, through an index. Pure.
 *
 * A reservation is made by place_choose() itself, in the same step as the decision; room that was reserved is
 * given back by place_release() only, whoever reports what in between.
 *
 * The cost of a decision does not grow with the fleet (docs/decisions/0020). The nodes of a pool that look alike
 * (size, region, labels, CPU class) are one class; a class has a tree whose inner nodes hold the best score and
 * the most free room below them, so that the best node that fits is found by going down, and what cannot fit or
 * cannot be better is never visited. The holders of an image have trees of their own. The answer is the node
 * with the best score of all; only spreading one tenant is bounded work (place.c, SPREAD_LOOKS).
 *
 * It refuses to place over a node's capacity in any dimension; the node checks again and is authoritative.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "wire/messages.h"

struct place;
struct place_node; /* handle of one node; owned by struct place */

/* In the order in which an explanation counts them. */
enum place_constraint {
	PLACE_STATE,   /* link, facts: not connected, cordoned, ... */
	PLACE_UNABLE,  /* the node says itself that it cannot, e.g. KVM_UNAVAILABLE */
	PLACE_REGION,  /* another one was asked for */
	PLACE_LABELS,  /* lacks one that was asked for */
	PLACE_SNAPSHOT, /* another one keeps the snapshot as which it begins */
	PLACE_CPU_CLASS, /* another CPU model: a snapshot taken elsewhere cannot be restored there */
	PLACE_BARRED,  /* this image fails there and starts elsewhere */
	PLACE_EXCLUDED, /* failed this request before */
	PLACE_VCPUS,   /* more vCPUs than one sandbox may have there */
	PLACE_MEMORY,
	PLACE_CPU,
	PLACE_DISK,
	PLACE_SLOTS,
	PLACE_STARTS, /* too many starts at once: passes by itself */
	PLACE_BUSY,   /* refused lately; passed over for a while: passes by itself */
	PLACE_CONSTRAINT_MAX_
};
const char *place_constraint_name(enum place_constraint constraint); /* "state", "memory", ... */

struct place_demand {
	uint64_t memory_mib; /* VMM overhead included: spec_memory_cost() */
	uint64_t disk_mib;
	uint32_t vcpus;
	char image_digest[DIGEST_SIZE];
	struct place_node *only; /* the one that may be taken; NULL: any */
	const char *tenant;    /* whose sandboxes are spread over nodes; NULL: nobody's */
	const char *region;    /* NULL or "": any */
	const char *cpu_class; /* NULL or "": any */
	const struct sandbox_field *labels; /* all of them are required */
	size_t n_labels;
	const char (*excluded)[ID_SIZE]; /* nodes that must not be taken */
	size_t n_excluded;
};

/* Why a node's state excludes it; for people, who are told what would bring it back. */
enum place_absence {
	PLACE_NOT_CONNECTED,
	PLACE_CORDONED,
	PLACE_DRAINING,
	PLACE_QUARANTINED,
	PLACE_REMOVED, /* for good: no part of any total */
	PLACE_ABSENCE_MAX_
};
const char *place_absence_name(enum place_absence absence); /* "not_connected", ... */

/* What may change about a node without a decision. */
struct place_node_facts {
	bool connected;        /* link ready */
	bool allowed;          /* none of cordoned, draining, quarantined */
	enum place_absence absence; /* why, where it is not connected or not allowed */
	enum fail_code unable; /* why, in the node's own words; FAIL_NONE: able */
	bool busy;             /* in its back-off after a refusal, or soon ready for the first time */
	uint32_t ill_permille; /* share of its recent starts that failed by its own fault; costs score */
	struct node_capacity capacity;
	uint64_t foreign_memory_mib; /* taken there by what is not reserved here */
	uint64_t foreign_disk_mib;
	uint32_t foreign_vcpus;
	uint32_t foreign_sandboxes;
};

/* How many nodes of the pool each constraint excluded (a node counts at the first that it fails, in the order of the
 * enum), and the nearest miss. */
struct place_explanation {
	size_t n_nodes; /* of the pool */
	size_t n_fitting;
	size_t excluded[PLACE_CONSTRAINT_MAX_];
	char nearest[ID_SIZE]; /* node that fails the fewest and least; "": none is connected */
	enum place_constraint lacking; /* what it lacks; MAX_: nothing */
	/* memory without the VMM's overhead, as a caller may ask for it */
	uint64_t asked;                /* of that resource, in its unit */
	uint64_t available;            /* there, now */
	uint64_t largest;              /* most of that resource that any able node has free */
	uint64_t largest_total;        /* most that any able node has at all */
	enum fail_code cause; /* of one node that says that it is unable; FAIL_NONE: none does */
	size_t n_cause;
	char change[224]; /* what would have to change for the request to fit: one sentence; "": nothing */
};

enum place_result {
	PLACE_OK,
	PLACE_WAIT,    /* only start slots or back-offs stand in the way: try again soon */
	PLACE_NO_ROOM, /* err is set: NO_CAPACITY, NO_COMPATIBLE_NODE or NO_NODE */
	PLACE_NO_MEMORY, /* of this process; nothing was reserved */
};

int place_new(struct place **ret);
struct place *place_free(struct place *place); /* returns NULL */

/* Pools and nodes. 0, -ENOMEM; a pool is made at its first mention. */
int place_pool_set(struct place *place, const char *pool, uint32_t cpu_overcommit_percent);
bool place_pool_exists(const struct place *place, const char *pool);
/* Whether no node of it is connected and allowed. */
bool place_pool_is_dark(const struct place *place, const char *pool);
int place_node_add(struct place *place, const char *pool, const char *id, struct place_node **ret);
/* Reservations there are forgotten. */
void place_node_remove(struct place *place, struct place_node *node);
/* Region is the label "region"; cpu_class may be "". Copies. After -ENOMEM the node is as it was. */
int place_node_set_profile(struct place *place, struct place_node *node, const char *cpu_class,
	const struct sandbox_field *labels, size_t n_labels);
/* After -ENOMEM the node is not chosen until the next one. */
int place_node_set(
	struct place *place, struct place_node *node, const struct place_node_facts *facts);
/* Replaces the set of images that it holds. 0 or -ENOMEM. */
int place_node_set_images(
	struct place *place, struct place_node *node, const struct image_list *images);
int place_node_add_image(struct place *place, struct place_node *node, const char *digest);
/* The image is not started there (or is again). 0 or -ENOMEM. */
int place_node_bar(
	struct place *place, struct place_node *node, const char *digest, bool barred);

/* Decides and reserves room and one start slot. `seed` breaks ties. On PLACE_OK *ret is the node. With `reterr`
 * NULL a refusal costs no scan of the pool: for requests that wait and will be asked again. */
enum place_result place_choose(struct place *place, const char *pool,
	const struct place_demand *demand, uint64_t seed, struct place_node **ret,
	struct err *reterr) MUST_USE;
/* Says why there is no room: a scan of the pool. Sets reterr. */
void place_refuse(const struct place *place, const char *pool, const struct place_demand *demand,
	struct err *reterr);
/* Takes the room of what is there already (load at start, adoption), over capacity or not. 0 or -ENOMEM: then
 * the room is taken and only the tenant is not counted. */
int place_reserve(struct place *place, struct place_node *node, const struct place_demand *demand,
	bool starting);
/* The start is over (ready): gives back the start slot alone. */
void place_started(struct place *place, struct place_node *node);
void place_release(struct place *place, struct place_node *node, const struct place_demand *demand,
	bool starting);

/* Whether this very node may be taken for it, its room left out of account: state, start slot, labels, what is held
 * against it. */
bool place_node_suits(const struct place_node *node, const struct place_demand *demand);
/* Whether it has room for it as well. */
bool place_node_fits(const struct place_node *node, const struct place_demand *demand);
/* Whether it would fit if what `without` takes there were gone. */
bool place_node_suits_without(const struct place_node *node, const struct place_demand *demand,
	const struct place_demand *without);

/* A sandbox that sleeps keeps its disk's room and gives back the rest; and takes it again, whatever there is. */
void place_sleep(struct place *place, struct place_node *node, const struct place_demand *demand);
int place_wake(struct place *place, struct place_node *node, const struct place_demand *demand); /* 0 or -ENOMEM */
/* Whether there is room for that, whatever people and evidence say of the node. 0, or NO_CAPACITY. */
int place_can_wake(const struct place_node *node, const struct place_demand *demand, struct err *reterr);

struct place_usage {
	uint64_t memory_mib, disk_mib;
	uint32_t vcpus, sandboxes, starting;
};
void place_node_usage(const struct place_node *node, struct place_usage *ret);
const char *place_node_id(const struct place_node *node);

/* Scans the pool: for people and for errors, not on the path of a decision that succeeds. */
void place_explain(const struct place *place, const char *pool, const struct place_demand *demand,
	struct place_explanation *ret);
