/* SPDX-License-Identifier: Apache-2.0
 *
 * Why not: a scan of the pool for people and for errors. Counts each node at the first constraint that it
 * fails and finds the nearest miss: the node that gets furthest through the constraints and lacks least.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "place/node.h"

#define LACK_WHOLE 1000u

static const char *const constraint_names[PLACE_CONSTRAINT_MAX_] = {
	[PLACE_STATE] = "state",
	[PLACE_UNABLE] = "unable",
	[PLACE_REGION] = "region",
	[PLACE_LABELS] = "labels",
	[PLACE_SNAPSHOT] = "snapshot",
	[PLACE_CPU_CLASS] = "cpu_class",
	[PLACE_BARRED] = "image_quarantined",
	[PLACE_EXCLUDED] = "excluded",
	[PLACE_VCPUS] = "vcpus",
	[PLACE_MEMORY] = "memory",
	[PLACE_CPU] = "cpu",
	[PLACE_DISK] = "disk",
	[PLACE_SLOTS] = "sandboxes",
	[PLACE_STARTS] = "starts",
	[PLACE_BUSY] = "busy",
};

const char *place_constraint_name(enum place_constraint constraint)
{
	return (unsigned int)constraint < PLACE_CONSTRAINT_MAX_ ? constraint_names[constraint]
								: "none";
}

static const char *const absence_names[PLACE_ABSENCE_MAX_] = {
	[PLACE_NOT_CONNECTED] = "not_connected",
	[PLACE_CORDONED] = "cordoned",
	[PLACE_DRAINING] = "draining",
	[PLACE_QUARANTINED] = "quarantined",
	[PLACE_REMOVED] = "removed",
};

const char *place_absence_name(enum place_absence absence)
{
	return (unsigned int)absence < PLACE_ABSENCE_MAX_ ? absence_names[absence] : "none";
}

struct quantity {
	uint64_t asked, available, total;
};

/* Of the resource that a constraint is about, in its unit (MiB, CPUs, sandboxes, starts). */
static struct quantity quantity_of(const struct place_node *node, const struct place_demand *demand,
	enum place_constraint constraint)
{
	const struct node_capacity *capacity = &node->facts.capacity;
	struct place_free room;

	place_node_free(node, &room);
	switch (constraint) {
	case PLACE_VCPUS:
		return (struct quantity){ demand->vcpus, capacity->max_vcpus, capacity->max_vcpus };
	case PLACE_MEMORY:
		return (struct quantity){ demand->memory_mib, room.memory_mib,
			capacity->memory_mib };
	case PLACE_CPU:
		return (struct quantity){ demand->vcpus, room.cpu_percent / 100,
			capacity->cpus * node->pool->overcommit_percent / 100 };
	case PLACE_DISK:
		return (struct quantity){ demand->disk_mib, room.disk_mib, capacity->disk_mib };
	case PLACE_SLOTS:
		return (struct quantity){ 1, room.sandboxes, capacity->max_sandboxes };
	case PLACE_STARTS:
		return (struct quantity){ 1, room.starts, capacity->max_starts };
	case PLACE_STATE:
	case PLACE_UNABLE:
	case PLACE_REGION:
	case PLACE_LABELS:
	case PLACE_SNAPSHOT:
	case PLACE_CPU_CLASS:
	case PLACE_BARRED:
	case PLACE_EXCLUDED:
	case PLACE_BUSY:
	case PLACE_CONSTRAINT_MAX_:
		break;
	}
	return (struct quantity){ 0, 0, 0 };
}

static uint64_t lack_of(struct quantity q)
{
	return q.asked > q.available ? (q.asked - q.available) * LACK_WHOLE / q.asked : 0;
}

struct nearest {
	const struct place_node *node;
	enum place_constraint first;
	uint64_t lack;
};

static bool is_nearer(const struct nearest *best, enum place_constraint first, uint64_t lack)
{
	return !best->node || first > best->first || (first == best->first && lack < best->lack);
}

static void explain_node(struct place_explanation *ret, struct nearest *best,
	const struct place_node *node, const struct place_demand *demand)
{
	uint32_t misses = place_node_misses(node, demand);
	enum place_constraint first;
	uint64_t lack;

	ret->n_nodes++;
	if (misses == 0) {
		ret->n_fitting++;
		return;
	}
	first = (enum place_constraint)__builtin_ctz(misses);
	ret->excluded[first]++;
	if (first == PLACE_UNABLE) {
		if (ret->cause == FAIL_NONE)
			ret->cause = node->facts.unable;
		ret->n_cause += node->facts.unable == ret->cause;
	}
	if (first == PLACE_STATE)
		return;
	lack = lack_of(quantity_of(node, demand, first));
	if (is_nearer(best, first, lack))
		*best = (struct nearest){ node, first, lack };
}

/* Nodes that could be chosen if they had the room. */
static bool is_able(const struct place_node *node, const struct place_demand *demand)
{
	return node->facts.connected && node->facts.allowed && node->facts.unable == FAIL_NONE &&
	       (!demand->only || demand->only == node) && place_profile_matches(node->profile, demand, NULL);
}

static void say_change(struct place_explanation *why, const char *format, ...) PRINTF_LIKE(2, 3);
static void say_change(struct place_explanation *why, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(why->change, sizeof(why->change), format, args);
	va_end(args);
}

/* Of a quantity: it either fits on no node at all, or room must come free. */
static void say_quantity(struct place_explanation *why, const char *unit, bool is_tied)
{
	const char *what = place_constraint_name(why->lacking);

	if (is_tied) { /* another node is of no use, and what it needs is the snapshot's */
		say_change(why, "Free %llu%s (%s) on node %s, which alone has the snapshot.",
			(unsigned long long)(why->asked - MIN(why->asked, why->available)), unit, what, why->nearest);
		return;
	}
	if (why->asked > why->largest_total)
		say_change(why,
			"Ask for at most %llu%s (%s), or add a node that has %llu%s.",
			(unsigned long long)why->largest_total, unit, what,
			(unsigned long long)why->asked, unit);
	else if (why->largest == 0)
		say_change(why, "Free %llu%s (%s) on node %s, or add a node.", (unsigned long long)why->asked, unit, what,
			why->nearest);
	else
		say_change(why,
			"Ask for at most %llu%s (%s), or free %llu%s on node %s, or add a node.",
			(unsigned long long)why->largest, unit, what,
			(unsigned long long)(why->asked - MIN(why->asked, why->available)), unit,
			why->nearest);
}

static void say_what(struct place_explanation *why, const struct place_demand *demand)
{
	switch (why->lacking) {
	case PLACE_STATE:
		say_change(why,
			"Connect a node to this pool, or end the cordon, drain or quarantine of one.");
		return;
	case PLACE_UNABLE:
		say_change(why, "Mend %s on node %s.", failure_info(why->cause)->name,
			why->nearest);
		return;
	case PLACE_REGION:
		say_change(why, "Leave out the region, or add a node with the label region=%.40s.",
			demand->region);
		return;
	case PLACE_LABELS:
		say_change(why, "Leave out a label, or add a node that has all %zu of them.",
			demand->n_labels);
		return;
	case PLACE_SNAPSHOT:
		say_change(why, "Connect node %s, which has the snapshot, or end its cordon, drain or quarantine.",
			demand->only->id);
		return;
	case PLACE_CPU_CLASS:
		say_change(why, "Add a node whose CPU is of class %.60s.", demand->cpu_class);
		return;
	case PLACE_BARRED:
		say_change(why, "Node %s does not start this image at present; add another node.",
			why->nearest);
		return;
	case PLACE_EXCLUDED:
		say_change(why, "Every node that is left failed this request; add another one.");
		return;
	case PLACE_MEMORY:
	case PLACE_DISK:
		say_quantity(why, " MiB", demand->only != NULL);
		return;
	case PLACE_VCPUS:
	case PLACE_CPU:
	case PLACE_SLOTS:
		say_quantity(why, "", demand->only != NULL);
		return;
	case PLACE_STARTS:
		say_change(why, "Wait: %s starts as many at once as it may.", why->nearest);
		return;
	case PLACE_BUSY:
		say_change(why, "Wait: %s refused lately and is left alone for a while.",
			why->nearest);
		return;
	case PLACE_CONSTRAINT_MAX_:
		return;
	}
}

void place_explain(const struct place *place, const char *pool_name,
	const struct place_demand *demand, struct place_explanation *ret)
{
	const struct place_pool *pool = place_pool_find(place, pool_name);
	struct nearest best = { 0 };
	const struct place_node *node;
	struct quantity q;

	*ret = (struct place_explanation){ .lacking = PLACE_CONSTRAINT_MAX_ };
	if (!pool)
		return;
	TAILQ_FOREACH (node, &pool->nodes, in_pool)
		explain_node(ret, &best, node, demand);
	if (!best.node) {
		if (ret->n_fitting == 0)
			ret->lacking = PLACE_STATE;
		say_what(ret, demand);
		return;
	}
	memcpy(ret->nearest, best.node->id, sizeof(ret->nearest));
	ret->lacking = best.first;
	q = quantity_of(best.node, demand, best.first);
	ret->asked = q.asked;
	ret->available = q.available;
	TAILQ_FOREACH (node, &pool->nodes, in_pool) {
		if (!is_able(node, demand))
			continue;
		q = quantity_of(node, demand, best.first);
		ret->largest = MAX(ret->largest, q.available);
		ret->largest_total = MAX(ret->largest_total, q.total);
	}
	if (ret->lacking == PLACE_MEMORY) { /* as callers ask for it, so that they can ask for what is told */
		ret->asked = spec_memory_within(ret->asked);
		ret->available = spec_memory_within(ret->available);
		ret->largest = spec_memory_within(ret->largest);
		ret->largest_total = spec_memory_within(ret->largest_total);
	}
	if (ret->n_fitting == 0)
		say_what(ret, demand);
}

/* ---- the refusal ---- */

static void add_counts(struct err *err, const struct place_explanation *why)
{
	char text[ERR_VALUE_MAX] = "";
	size_t n = 0;

	for (unsigned int i = 0; i < PLACE_CONSTRAINT_MAX_; i++)
		if (why->excluded[i] && n < sizeof(text))
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s=%zu", n ? " " : "",
				constraint_names[i], why->excluded[i]);
	err_add(err, "excluded", "%s", text);
}

static void refuse_capacity(struct err *err, const struct place_explanation *why)
{
	const char *resource = place_constraint_name(why->lacking);
	const char *unit = why->lacking == PLACE_MEMORY || why->lacking == PLACE_DISK ? " MiB" : "";

	(void)err_set(err, FAIL_NO_CAPACITY, 0,
		"No node has room: %s: %llu%s asked, at most %llu free on one node (of %llu). %s",
		resource, (unsigned long long)why->asked, unit, (unsigned long long)why->largest,
		(unsigned long long)why->largest_total, why->change);
	err_add(err, "resource", "%s", resource);
	err_add(err, "asked", "%llu", (unsigned long long)why->asked);
	err_add(err, "largest", "%llu", (unsigned long long)why->largest);
	err_add(err, "largest_total", "%llu", (unsigned long long)why->largest_total);
	add_counts(err, why);
}

static bool is_about_kind(enum place_constraint constraint)
{
	return constraint == PLACE_UNABLE || constraint == PLACE_EXCLUDED ||
	       constraint == PLACE_REGION || constraint == PLACE_LABELS ||
	       constraint == PLACE_CPU_CLASS || constraint == PLACE_BARRED ||
	       constraint == PLACE_SNAPSHOT;
}

void place_refuse(const struct place *place, const char *pool_name,
	const struct place_demand *demand, struct err *reterr)
{
	struct place_explanation why;
	struct err err = ERR_NULL;

	place_explain(place, pool_name, demand, &why);
	if (why.excluded[PLACE_STATE] == why.n_nodes) {
		(void)err_set(&err, FAIL_NO_NODE, 0,
			"Pool %s has no connected node that takes sandboxes (%zu known).",
			pool_name, why.n_nodes);
		err_add(&err, "pool", "%s", pool_name);
		add_counts(&err, &why);
	} else if (is_about_kind(why.lacking)) {
		(void)err_set(&err, FAIL_NO_COMPATIBLE_NODE, 0,
			"No node of pool %s can run this sandbox. %s", pool_name, why.change);
		if (why.lacking == PLACE_UNABLE && why.cause != FAIL_NONE) {
			err_add(&err, "cause", "%s", failure_info(why.cause)->name);
			err.component = failure_info(why.cause)->component;
		} else {
			err_add(&err, "lacking", "%s", place_constraint_name(why.lacking));
		}
		err_add(&err, "node", "%s", why.nearest);
		add_counts(&err, &why);
	} else {
		refuse_capacity(&err, &why);
	}
	if (reterr && !err_is_set(reterr))
		*reterr = err;
}
