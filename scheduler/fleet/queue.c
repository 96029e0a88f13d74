/* SPDX-License-Identifier: Apache-2.0
 *
 * Who waits for room, and whose turn it is. Each tenant has a queue of its own, ordered by priority and then by
 * arrival: a priority is between a tenant's own requests and takes nothing from others. Between tenants the turn
 * goes to the one that was given least (in parts of a node, by weight): stride scheduling. A tenant that comes back
 * begins where the others are, so that nobody saves up turns.
 *
 * A request that finds no room does not hold up others: the turn goes on, a few tries per tenant, and what asks for
 * at least as much as something that just found no room is not tried again in the same run. Tenants that were not
 * reached come first in the next run. No tenant can fill the queue: one may hold as many places as are free.
 */
#include <errno.h>
#include <string.h>

#include "fleet/internal.h"

#define QUEUE_TRIES 128     /* waiting requests looked for room in one step */
#define QUEUE_MISSES 32     /* of them in vain */
#define TENANT_MISSES 4     /* of one tenant */
#define TENANT_LOOKS 64     /* of its requests looked at */
#define FAILED_MAX 8
#define QUEUE_RETRY_USEC (250 * 1000)
#define COST_MEMORY_MIB 2048 /* costs what a vCPU costs */
#define STRIDE UINT64_C(1024)

struct tenant_queue {
	char name[ID_NAME_MAX + 1];
	uint64_t pass; /* what it was given so far */
	struct sandbox_list waiting;
	size_t n;
	uint64_t run; /* in which it was looked at last */
	bool is_done; /* in this run */
	UT_hash_handle hh;
};

/* What found no room in this run, asking for nothing but room. */
struct failed {
	struct {
		char pool[ID_NAME_MAX + 1];
		struct place_demand demand;
	} items[FAILED_MAX];
	size_t n;
};

struct tenant_weight {
	char name[ID_NAME_MAX + 1];
	uint32_t weight;
	UT_hash_handle hh;
};

static struct tenant_weight *weight_find(const struct fleet *fleet, const char *name)
{
	struct tenant_weight *weight;

	HASH_FIND_STR(fleet->weights, name, weight);
	return weight;
}

int fleet_tenant_set_weight(struct fleet *fleet, const char *tenant, uint32_t value)
{
	struct tenant_weight *weight = weight_find(fleet, tenant);

	if (weight && value <= 1) {
		HASH_DEL(fleet->weights, weight);
		free(weight);
		return 0;
	}
	if (!weight && value <= 1)
		return 0;
	if (!weight) {
		weight = calloc(1, sizeof(*weight));
		if (!weight)
			return -ENOMEM;
		strncpy(weight->name, tenant, sizeof(weight->name) - 1);
		HASH_ADD_STR(fleet->weights, name, weight);
		if (!weight->hh.tbl) {
			free(weight);
			return -ENOMEM;
		}
	}
	weight->weight = value;
	return 0;
}

static struct tenant_queue *queue_find(const struct fleet *fleet, const char *name)
{
	struct tenant_queue *queue;

	HASH_FIND_STR(fleet->queues, name, queue);
	return queue;
}

static struct tenant_queue *queue_make(struct fleet *fleet, const char *name)
{
	struct tenant_queue *queue = queue_find(fleet, name);

	if (queue)
		return queue;
	queue = calloc(1, sizeof(*queue));
	if (!queue)
		return NULL;
	memcpy(queue->name, name, sizeof(queue->name));
	TAILQ_INIT(&queue->waiting);
	queue->pass = fleet->queue_pass;
	HASH_ADD_STR(fleet->queues, name, queue);
	if (!queue->hh.tbl) {
		free(queue);
		return NULL;
	}
	return queue;
}

static void arm_retry(struct fleet *fleet)
{
	if (!fleet_timer_is_armed(&fleet->queue_timer) &&
		fleet_timer_arm(&fleet->timers, &fleet->queue_timer,
			fleet->now.mono_usec + QUEUE_RETRY_USEC) < 0)
		fleet->out->no_memory = true;
}

/* Behind those of its own and of higher priority. */
static void insert(struct tenant_queue *queue, struct sandbox *sandbox)
{
	struct sandbox *after = TAILQ_LAST(&queue->waiting, sandbox_list);

	while (after && after->record.priority < sandbox->record.priority)
		after = TAILQ_PREV(after, sandbox_list, in_queue);
	if (after)
		TAILQ_INSERT_AFTER(&queue->waiting, after, sandbox, in_queue);
	else
		TAILQ_INSERT_HEAD(&queue->waiting, sandbox, in_queue);
	queue->n++;
}

void fleet_queue_add(struct fleet *fleet, struct sandbox *sandbox)
{
	struct tenant_queue *queue;

	arm_retry(fleet);
	if (sandbox->queued)
		return;
	queue = queue_make(fleet, sandbox->record.tenant);
	if (!queue) {
		fleet->out->no_memory = true;
		return;
	}
	insert(queue, sandbox);
	sandbox->queued = true;
	fleet->counts.queued++;
}

void fleet_queue_leave(struct fleet *fleet, struct sandbox *sandbox)
{
	struct tenant_queue *queue;

	if (!sandbox->queued)
		return;
	queue = queue_find(fleet, sandbox->record.tenant);
	TAILQ_REMOVE(&queue->waiting, sandbox, in_queue);
	sandbox->queued = false;
	fleet->counts.queued--;
	queue->n--;
}

/* Its queue is no longer than what is free: whoever floods leaves as much for the others. */
bool fleet_queue_has_room(const struct fleet *fleet, const char *tenant)
{
	const struct tenant_queue *queue = queue_find(fleet, tenant);
	size_t free = fleet->config.max_queued > fleet->counts.queued
			      ? fleet->config.max_queued - fleet->counts.queued
			      : 0;

	return free > 0 && (!queue || queue->n < free);
}

bool fleet_queue_is_empty(const struct fleet *fleet)
{
	return fleet->counts.queued == 0;
}

void fleet_queue_free(struct fleet *fleet)
{
	struct tenant_queue *queue, *next;

	struct tenant_weight *weight, *next_weight;

	HASH_ITER (hh, fleet->queues, queue, next) {
		HASH_DEL(fleet->queues, queue);
		free(queue);
	}
	HASH_ITER (hh, fleet->weights, weight, next_weight) {
		HASH_DEL(fleet->weights, weight);
		free(weight);
	}
}

/* ---- a run ---- */

static bool asks_for_room_only(const struct sandbox *sandbox)
{
	return sandbox->record.n_excluded == 0 && sandbox->n_refused == 0 &&
	       sandbox->record.wish.n_labels == 0 && !*sandbox->record.wish.region &&
	       !*sandbox->record.spec->snapshot;
}

static bool will_fail(const struct failed *failed, const struct sandbox *sandbox,
	const struct place_demand *demand)
{
	for (size_t i = 0; i < failed->n; i++) {
		const struct place_demand *less = &failed->items[i].demand;

		if (demand->memory_mib >= less->memory_mib && demand->disk_mib >= less->disk_mib &&
			demand->vcpus >= less->vcpus &&
			strcmp(failed->items[i].pool, sandbox->record.pool) == 0)
			return true;
	}
	return false;
}

/* `demand` is what it asked for: the sandbox may be gone. */
static void remember(struct failed *failed, const struct sandbox *sandbox,
	const struct place_demand *demand)
{
	if (failed->n == FAILED_MAX || !asks_for_room_only(sandbox))
		return;
	memcpy(failed->items[failed->n].pool, sandbox->record.pool,
		sizeof(failed->items[failed->n].pool));
	failed->items[failed->n++].demand = *demand;
}

static void charge(struct fleet *fleet, struct tenant_queue *queue, const struct place_demand *demand)
{
	uint64_t cost = demand->vcpus + (demand->memory_mib + COST_MEMORY_MIB - 1) / COST_MEMORY_MIB;

	const struct tenant_weight *weight = weight_find(fleet, queue->name);

	fleet->queue_pass = MAX(fleet->queue_pass, queue->pass);
	queue->pass += cost * STRIDE / (weight ? weight->weight : 1);
}

/* Who was given least, of those that the last run did not reach if there are any. */
static struct tenant_queue *whose_turn(const struct fleet *fleet)
{
	struct tenant_queue *queue, *best = NULL;
	uint64_t last = fleet->queue_run - 1;

	for (queue = fleet->queues; queue; queue = queue->hh.next) {
		bool was_reached;

		if (queue->is_done || queue->n == 0)
			continue;
		was_reached = queue->run >= last;
		if (!best || (best->run >= last && !was_reached) ||
			((best->run >= last) == was_reached && queue->pass < best->pass))
			best = queue;
	}
	return best;
}

/* One turn of a tenant: the first of its requests that may find room is tried. Returns whether one left the queue. */
static bool take_turn(struct fleet *fleet, struct tenant_queue *queue, struct failed *failed,
	unsigned int *misses)
{
	struct sandbox *sandbox, *next;
	unsigned int looks = 0, own = 0;

	for (sandbox = TAILQ_FIRST(&queue->waiting); sandbox && looks++ < TENANT_LOOKS;
		sandbox = next) {
		struct place_demand demand;

		next = TAILQ_NEXT(sandbox, in_queue);
		fleet_sandbox_demand(sandbox, &demand);
		if (will_fail(failed, sandbox, &demand) &&
			fleet->now.mono_usec < sandbox->queue_until_usec)
			continue;
		fleet_start_place(fleet, sandbox);
		if (!sandbox->queued) {
			charge(fleet, queue, &demand);
			return true;
		}
		remember(failed, sandbox, &demand);
		++*misses;
		if (++own == TENANT_MISSES)
			break;
	}
	return false;
}

void fleet_queue_run(struct fleet *fleet)
{
	struct failed failed = { .n = 0 };
	unsigned int tries = 0, misses = 0;
	struct tenant_queue *queue, *next;

	fleet->kicked = false;
	if (fleet->counts.queued == 0 && !fleet->queues)
		return;
	fleet->queue_run++;
	while (tries++ < QUEUE_TRIES && misses < QUEUE_MISSES && (queue = whose_turn(fleet)))
		if (!take_turn(fleet, queue, &failed, &misses))
			queue->is_done = true;
	HASH_ITER (hh, fleet->queues, queue, next) {
		if (queue->is_done)
			queue->run = fleet->queue_run;
		queue->is_done = false;
		if (queue->n == 0 && queue->pass <= fleet->queue_pass) {
			HASH_DEL(fleet->queues, queue);
			free(queue);
		}
	}
	if (fleet->counts.queued)
		arm_retry(fleet);
}
