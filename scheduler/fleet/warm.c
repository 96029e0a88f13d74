/* SPDX-License-Identifier: Apache-2.0
 *
 * Warm pools: microVMs that are ready before anybody asks. One is a sandbox of the scheduler's own (tenant
 * "croft:warm", which no tenant can be called), with room, stages and a record like any other.
 *
 * Refill: while fewer are ready or on their way than the target, another is started, no more at once than the start
 * budget and only while nobody waits for room. What has its greatest age, is too many, or stands on a node that may
 * not be placed on, is ended before it is replaced: there are never more than the target, besides those whose end is
 * under way.
 *
 * A warm pool of a snapshot keeps sandboxes that began as it, on its node. They are claimed by the snapshot's tenant alone,
 * and ended when the snapshot is deleted or lost: nobody could ask for one any more.
 *
 * A claim names the VM that was seen (fleet_warm_pick) and is compared in the step that takes it: still ready, still
 * warm, of the same image and size, its node placed on. What it takes is also written once in the store (claim/<id>,
 * which must be absent): of two schedulers one gets it. The VM goes on under the next generation, with the tenant's
 * environment, token, life time and setup (link.proto, CreateSandbox.took): a node that does not have it any more
 * starts it cold.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fleet/internal.h"

#define STARTS_DEFAULT 2u
#define AGE_DEFAULT_USEC (3600 * USEC_PER_SEC)
#define PAUSE_MIN_USEC USEC_PER_SEC
#define PAUSE_MAX_USEC (60 * USEC_PER_SEC)
#define YIELD_LOOKS 64 /* nodes looked at for one where room can be made */
#define YIELD_WAIT_USEC (5 * USEC_PER_SEC)

static const char warm_tenant[] = FLEET_WARM_TENANT;

bool fleet_sandbox_is_warm(const struct sandbox *sandbox)
{
	return strcmp(sandbox->record.tenant, warm_tenant) == 0;
}

static bool is_ready(const struct sandbox *sandbox)
{
	return fleet_sandbox_is_warm(sandbox) && sandbox->record.state == SANDBOX_RUNNING;
}

static bool is_same_shape(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
	return a->vcpus == b->vcpus && a->memory_mib == b->memory_mib && a->disk_mib == b->disk_mib &&
	       strcmp(a->image_digest, b->image_digest) == 0 && strcmp(a->snapshot, b->snapshot) == 0;
}

/* ---- the pools ---- */

static struct warm *warm_find(const struct fleet *fleet, const char *pool, const char *name)
{
	struct warm *warm;

	TAILQ_FOREACH (warm, &fleet->warms, in_all)
		if (strcmp(warm->pool, pool) == 0 && strcmp(warm->name, name) == 0)
			return warm;
	return NULL;
}

static void arm(struct fleet *fleet, int64_t at_usec)
{
	if (fleet_timer_is_armed(&fleet->warm_timer) && fleet->warm_timer.due_usec <= at_usec)
		return;
	if (fleet_timer_arm(&fleet->timers, &fleet->warm_timer, at_usec) < 0)
		fleet->out->no_memory = true;
}

void fleet_warm_set(struct fleet *fleet, const struct warm_record *record)
{
	struct warm *warm = warm_find(fleet, record->pool, record->name);

	if (!warm) {
		warm = calloc(1, sizeof(*warm));
		if (!warm) {
			fleet->out->no_memory = true;
			return;
		}
		memcpy(warm->pool, record->pool, sizeof(warm->pool));
		memcpy(warm->name, record->name, sizeof(warm->name));
		TAILQ_INIT(&warm->ready);
		TAILQ_INSERT_TAIL(&fleet->warms, warm, in_all);
	}
	spec_unref(warm->spec);
	warm->spec = spec_ref(record->spec);
	warm->target = record->target;
	warm->max_starts = record->max_starts ? record->max_starts : STARTS_DEFAULT;
	warm->max_age_usec = record->max_age_usec ? record->max_age_usec : AGE_DEFAULT_USEC;
	warm->pause_usec = PAUSE_MIN_USEC;
	warm->next_usec = 0;
	if (fleet->loaded)
		arm(fleet, fleet->now.mono_usec);
}

void fleet_warm_free(struct fleet *fleet)
{
	struct warm *warm;

	while ((warm = TAILQ_FIRST(&fleet->warms))) {
		TAILQ_REMOVE(&fleet->warms, warm, in_all);
		spec_unref(warm->spec);
		free(warm);
	}
}

void fleet_warm_leave(struct sandbox *sandbox)
{
	struct warm *warm = sandbox->warm;

	if (!warm)
		return;
	if (sandbox->is_warm_ready) {
		TAILQ_REMOVE(&warm->ready, sandbox, in_warm);
		warm->n_ready--;
	} else {
		warm->n_starting--;
	}
	sandbox->warm = NULL;
	sandbox->is_warm_ready = false;
}

/* Counts it where it belongs, as its tenant and state say. Idempotent. */
void fleet_warm_count(struct fleet *fleet, struct sandbox *sandbox)
{
	enum sandbox_state state = sandbox->record.state;
	struct warm *warm;

	if (fleet->loaded && fleet_sandbox_is_warm(sandbox))
		arm(fleet, fleet->now.mono_usec); /* one more, one less, one older */
	fleet_warm_leave(sandbox);
	if (!fleet_sandbox_is_warm(sandbox) || state >= SANDBOX_STOPPING)
		return;
	warm = warm_find(fleet, sandbox->record.pool, sandbox->record.template_alias);
	if (!warm)
		return; /* fleet_warm_loaded() ends it */
	sandbox->warm = warm;
	sandbox->is_warm_ready = state == SANDBOX_RUNNING;
	if (sandbox->is_warm_ready) {
		TAILQ_INSERT_TAIL(&warm->ready, sandbox, in_warm);
		warm->n_ready++;
		warm->pause_usec = PAUSE_MIN_USEC;
	} else {
		warm->n_starting++;
	}
}

/* ---- refill ---- */

static struct sandbox *make(struct fleet *fleet, const struct warm *warm)
{
	struct sandbox_record record = {
		.incarnation = 1,
		.state = SANDBOX_PLACING,
		.spec = spec_ref(warm->spec),
		.created_us = fleet->now.real_usec,
		.attempts = 1,
	};
	struct sandbox *sandbox;

	do
		id_new(fleet->rng, record.id);
	while (fleet_sandbox_find(fleet, record.id));
	trace_new(fleet->rng, &record.trace);
	memcpy(record.tenant, warm_tenant, sizeof(warm_tenant));
	memcpy(record.pool, warm->pool, sizeof(record.pool));
	memcpy(record.template_alias, warm->name, sizeof(record.template_alias));
	sandbox = fleet_sandbox_add(fleet, &record);
	if (!sandbox) {
		sandbox_record_deinit(&record);
		fleet->out->no_memory = true;
		return NULL;
	}
	sandbox->is_new = true;
	return sandbox;
}

/* Whether one more is on its way. */
static bool refill_one(struct fleet *fleet, struct warm *warm)
{
	struct sandbox *sandbox = make(fleet, warm);
	struct err err = ERR_NULL;

	if (!sandbox)
		return false;
	if (fleet_snapshot_resolve(fleet, sandbox, &err) == 0 && fleet_start_try(fleet, sandbox))
		return true;
	fleet_sandbox_remove(fleet, sandbox); /* it never was on record */
	warm->next_usec = fleet->now.mono_usec + warm->pause_usec;
	warm->pause_usec = MIN(2 * warm->pause_usec, PAUSE_MAX_USEC);
	return false;
}

static bool is_to_be_had(const struct fleet *fleet, const struct warm *warm)
{
	return !*warm->spec->snapshot || fleet_snapshot_may_be_begun(fleet, warm->spec->snapshot, NULL);
}

static bool is_spent(const struct fleet *fleet, const struct warm *warm, const struct sandbox *sandbox)
{
	return fleet->now.mono_usec - sandbox->since_usec >= warm->max_age_usec ||
	       !is_same_shape(sandbox->record.spec, warm->spec) || !is_to_be_had(fleet, warm);
}

static void trim(struct fleet *fleet, struct warm *warm)
{
	struct sandbox *sandbox, *next;

	for (sandbox = TAILQ_FIRST(&warm->ready); sandbox; sandbox = next) {
		next = TAILQ_NEXT(sandbox, in_warm);
		if (is_spent(fleet, warm, sandbox) || warm->n_ready > warm->target)
			fleet_sandbox_stop(fleet, sandbox, END_REQUEST);
	}
}

static int64_t next_of(const struct fleet *fleet, const struct warm *warm)
{
	const struct sandbox *oldest = TAILQ_FIRST(&warm->ready);
	int64_t next = oldest ? oldest->since_usec + warm->max_age_usec : INT64_MAX;

	if (warm->n_ready + warm->n_starting < warm->target)
		next = MIN(next, MAX(warm->next_usec, fleet->now.mono_usec + PAUSE_MIN_USEC));
	return next;
}

void fleet_warm_run(struct fleet *fleet)
{
	int64_t next = INT64_MAX;
	struct warm *warm;

	TAILQ_FOREACH (warm, &fleet->warms, in_all) {
		trim(fleet, warm);
		while (!fleet->is_tight && warm->n_ready + warm->n_starting < warm->target &&
			warm->n_starting < warm->max_starts &&
			fleet->now.mono_usec >= warm->next_usec && fleet_queue_is_empty(fleet) &&
			refill_one(fleet, warm))
			;
		next = MIN(next, next_of(fleet, warm));
	}
	if (next != INT64_MAX)
		arm(fleet, next);
}

void fleet_warm_snapshot_moved(struct fleet *fleet, const char *id)
{
	struct warm *warm;

	TAILQ_FOREACH (warm, &fleet->warms, in_all) {
		if (!fleet->loaded || strcmp(warm->spec->snapshot, id) != 0)
			continue;
		warm->pause_usec = PAUSE_MIN_USEC; /* it may be there again */
		warm->next_usec = 0;
		arm(fleet, fleet->now.mono_usec);
	}
}

/* What nobody keeps ready any more is ended; the rest goes on. */
void fleet_warm_loaded(struct fleet *fleet)
{
	struct sandbox *sandbox, *next;

	for (sandbox = TAILQ_FIRST(&fleet->all_sandboxes); sandbox; sandbox = next) {
		next = TAILQ_NEXT(sandbox, in_all);
		if (fleet_sandbox_is_warm(sandbox) && !sandbox->warm &&
			sandbox->record.state < SANDBOX_STOPPING)
			fleet_request_destroy(fleet, 0, sandbox->record.id, END_REQUEST);
	}
	if (!TAILQ_EMPTY(&fleet->warms))
		arm(fleet, fleet->now.mono_usec);
}

/* Nothing is claimed there now: its warm VMs are of no use. */
void fleet_warm_give_up(struct fleet *fleet, struct node *node)
{
	struct sandbox *sandbox, *next;

	if (PLANTED(DRAIN_RACES_CLAIM))
		return;
	for (sandbox = TAILQ_FIRST(&node->sandboxes); sandbox; sandbox = next) {
		next = TAILQ_NEXT(sandbox, in_node);
		if (is_ready(sandbox))
			fleet_sandbox_stop(fleet, sandbox, END_REQUEST);
	}
	if (!TAILQ_EMPTY(&fleet->warms))
		arm(fleet, fleet->now.mono_usec);
}

/* ---- claims ---- */

static bool suits(const struct sandbox *sandbox, const struct sandbox_spec *spec,
	const struct sandbox_wish *wish)
{
	struct place_demand demand;

	if (!is_ready(sandbox) || !sandbox->node || !is_same_shape(sandbox->record.spec, spec))
		return false;
	fleet_sandbox_demand(sandbox, &demand);
	demand.region = wish->region;
	demand.cpu_class = wish->cpu_class;
	demand.labels = wish->labels;
	demand.n_labels = wish->n_labels;
	return place_node_suits(sandbox->node->place, &demand);
}

const char *fleet_warm_pick(const struct fleet *fleet, const char *pool,
	const struct sandbox_spec *spec, const struct sandbox_wish *wish)
{
	const struct warm *warm;
	const struct sandbox *sandbox;

	TAILQ_FOREACH (warm, &fleet->warms, in_all) {
		if (strcmp(warm->pool, pool) != 0 || !is_same_shape(warm->spec, spec))
			continue;
		TAILQ_FOREACH (sandbox, &warm->ready, in_warm)
			if (suits(sandbox, spec, wish))
				return sandbox->record.id;
	}
	return NULL;
}

/* Of a planted fault: all that is looked at but what people said of the node. */
static bool may_start(const struct node *node)
{
	struct place_usage usage;

	place_node_usage(node->place, &usage);
	return node->link == NODE_READY && node->session && node->is_known &&
	       usage.starting < node->record.capacity.max_starts;
}

/* The comparison: what was picked may have been claimed, ended or drained since. */
static int compare(const struct fleet *fleet, const struct sandbox *sandbox, const struct fleet_create *create,
	struct err *reterr)
{
	const char *snapshot = create->spec->snapshot;

	if (sandbox && sandbox->node && sandbox->node->record.facts[NODE_DRAINING].is_set &&
		!PLANTED(DRAIN_RACES_CLAIM))
		return err_set_at(reterr, STAGE_PLACE, FAIL_NODE_DRAINING, 0,
			"The warm sandbox's node is being drained.");
	if (PLANTED(CLAIM_NOT_COMPARED) && sandbox && sandbox->node &&
		sandbox->record.state == SANDBOX_RUNNING)
		return 0;
	if (PLANTED(DRAIN_RACES_CLAIM) && sandbox && is_ready(sandbox) && may_start(sandbox->node))
		return 0;
	if (!sandbox || !suits(sandbox, create->spec, &create->wish) ||
		(*snapshot && !fleet_snapshot_may_be_begun(fleet, snapshot, create->tenant)) ||
		strcmp(sandbox->record.pool, create->pool) != 0)
		return err_set(reterr, FAIL_WARM_TAKEN, 0, "Warm sandbox %s is not to be had any more.",
			create->claim);
	return 0;
}

/* The record becomes the tenant's; the room stays where it is. */
static int take_over(struct fleet *fleet, struct sandbox *sandbox, const struct fleet_create *create)
{
	struct sandbox_record *record = &sandbox->record;
	struct sandbox_field *metadata = NULL, *labels = NULL;

	if (sandbox_fields_copy(create->metadata, create->n_metadata, &metadata) < 0 ||
		sandbox_fields_copy(create->wish.labels, create->wish.n_labels, &labels) < 0) {
		sandbox_fields_free(metadata, create->n_metadata);
		return -ENOMEM;
	}
	fleet_quota_leave(fleet, sandbox);
	fleet_sandbox_release(fleet, sandbox);
	spec_unref(record->spec);
	record->spec = spec_ref(create->spec);
	sandbox_fields_free(record->metadata, record->n_metadata);
	record->metadata = metadata;
	record->n_metadata = create->n_metadata;
	sandbox_fields_free(record->wish.labels, record->wish.n_labels);
	record->wish.labels = labels;
	record->wish.n_labels = create->wish.n_labels;
	memcpy(record->wish.region, create->wish.region, sizeof(record->wish.region));
	memcpy(record->wish.cpu_class, create->wish.cpu_class, sizeof(record->wish.cpu_class));
	memcpy(record->tenant, create->tenant, sizeof(record->tenant));
	memcpy(record->template_alias, create->template_alias, sizeof(record->template_alias));
	record->trace = create->trace;
	record->priority = create->priority;
	record->created_us = fleet->now.real_usec;
	record->started_us = record->ends_us = 0;
	record->attempts = 1;
	record->failure = (struct err)ERR_NULL;
	record->took = record->generation;
	return 0;
}

/* How it became ready is not its tenant's. Where it was stays: a late word of such a node is no lie. */
static void forget_notes(struct sandbox *sandbox)
{
	size_t n = 0;

	for (size_t i = 0; i < sandbox->n_notes; i++) {
		struct note *note = &sandbox->notes[i];

		free(note->failure);
		note->failure = NULL;
		if (note->stage != STAGE_PLACE || !*note->node || PLANTED(CLAIM_FORGETS_PLACES))
			continue;
		note->outcome = RESULT_SKIPPED;
		(void)snprintf(note->reason, sizeof(note->reason), "warm");
		sandbox->notes[n++] = *note;
	}
	sandbox->n_notes = n;
}

struct sandbox *fleet_warm_claim(
	struct fleet *fleet, const struct fleet_create *create, struct err *reterr)
{
	struct sandbox *sandbox = fleet_sandbox_find(fleet, create->claim);

	if (compare(fleet, sandbox, create, reterr) < 0)
		return NULL;
	if (take_over(fleet, sandbox, create) < 0) {
		(void)err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "No memory for another sandbox.");
		return NULL;
	}
	forget_notes(sandbox);
	fleet_emit_claim(fleet, sandbox->record.id);
	arm(fleet, fleet->now.mono_usec); /* its place is empty */
	return sandbox;
}

bool fleet_sandbox_is_taking(const struct sandbox *sandbox)
{
	return sandbox->record.took && sandbox->record.state == SANDBOX_DISPATCHED &&
	       sandbox->record.took + 1 == sandbox->record.generation;
}

/* ---- room for who asks ---- */

/* Ends as many as it takes, if that helps at all. */
static bool make_room(struct fleet *fleet, struct node *node, const struct place_demand *demand)
{
	struct place_demand all = { .vcpus = 0 }, ended = { .vcpus = 0 };
	struct sandbox *sandbox, *next;

	TAILQ_FOREACH (sandbox, &node->sandboxes, in_node)
		if (is_ready(sandbox))
			fleet_sandbox_demand_add(sandbox, &all);
	if (!place_node_suits_without(node->place, demand, &all))
		return false;
	for (sandbox = TAILQ_FIRST(&node->sandboxes); sandbox; sandbox = next) {
		next = TAILQ_NEXT(sandbox, in_node);
		if (!is_ready(sandbox))
			continue;
		fleet_sandbox_demand_add(sandbox, &ended);
		fleet_sandbox_stop(fleet, sandbox, END_REQUEST);
		if (place_node_suits_without(node->place, demand, &ended))
			break;
	}
	return true;
}

/* A request that finds no room comes before what nobody asked for. */
bool fleet_warm_yield(
	struct fleet *fleet, struct sandbox *sandbox, const struct place_demand *demand)
{
	const struct node *last = NULL;
	unsigned int looks = 0;
	struct sandbox *other;
	struct warm *warm;

	if (fleet_sandbox_is_warm(sandbox))
		return false;
	TAILQ_FOREACH (warm, &fleet->warms, in_all) {
		if (strcmp(warm->pool, sandbox->record.pool) != 0)
			continue;
		TAILQ_FOREACH (other, &warm->ready, in_warm) {
			if (other->node == last)
				continue;
			last = other->node;
			if (looks++ == YIELD_LOOKS)
				return false;
			if (!make_room(fleet, other->node, demand))
				continue;
			sandbox->queue_until_usec = MAX(
				sandbox->queue_until_usec, fleet->now.mono_usec + YIELD_WAIT_USEC);
			return true;
		}
	}
	return false;
}

size_t fleet_warm_list(const struct fleet *fleet, struct fleet_warm_view *ret, size_t max)
{
	const struct warm *warm;
	size_t n = 0;

	TAILQ_FOREACH (warm, &fleet->warms, in_all) {
		if (n == max)
			break;
		ret[n] = (struct fleet_warm_view){ .spec = warm->spec, .target = warm->target,
			.max_starts = warm->max_starts, .max_age_usec = warm->max_age_usec,
			.ready = warm->n_ready, .starting = warm->n_starting };
		memcpy(ret[n].pool, warm->pool, sizeof(ret[n].pool));
		memcpy(ret[n].name, warm->name, sizeof(ret[n].name));
		n++;
	}
	return n;
}
