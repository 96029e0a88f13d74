/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning from starts: which node, and which image on which node, is left alone, and when it is tried again
 * (docs/decisions/0021 has the test and its figures).
 *
 * Every start that ended is evidence. What broke before the guest's first instruction, on the node's side, speaks
 * against the node whatever the image was. From then on the guest may have caused it, so it speaks against the
 * pair (node, image) only, and only when the same image starts elsewhere; a pair's share in the judgement of its
 * node is two failures at the most. So no image, however bad, takes a node out of rotation.
 *
 * The judgement is a sum that a failure raises and a success lowers, never below zero. While anything speaks
 * against a node, or nothing yet for it, it gets no more starts at once than it may still fail.
 *
 * Whoever is quarantined is probed with a canary: a start of the scheduler's own, which nobody waits for, and which
 * is ended when it is ready. One success ends the quarantine.
 */
#include <stdio.h>
#include <string.h>

#include "fleet/internal.h"

#define FAILURE_MILLI 3219  /* ln(0.5 / 0.02) */
#define SUCCESS_MILLI 673   /* ln(0.98 / 0.5) */
#define LIMIT_MILLI 9200    /* e^9.2: once in 9 900 starts by chance */
#define FAILURES_ALLOWED 3u /* in a row, until the limit is passed */
#define PAIR_PART_MILLI (2 * FAILURE_MILLI)
#define PAIRS_MAX 64u  /* of one node */
#define PROOFS_MAX 8192u
#define PROBE_MIN_USEC (30 * USEC_PER_SEC)
#define PROBE_MAX_USEC (3600 * USEC_PER_SEC)
#define PROBE_LIFE_S 120
#define PROBE_MEMORY_MIB 256
#define PROBE_DISK_MIB 64

static const char canary_tenant[] = "croft:canary"; /* no tenant can be called so: a name has no colon */

bool fleet_sandbox_is_canary(const struct sandbox *sandbox)
{
	return strcmp(sandbox->record.tenant, canary_tenant) == 0;
}

/* ---- which images start, and where they did last ---- */

static struct proof *proof_find(const struct fleet *fleet, const char *digest)
{
	struct proof *proof;

	HASH_FIND_STR(fleet->proofs, digest, proof);
	return proof;
}

void fleet_learn_forget(struct fleet *fleet)
{
	struct proof *proof, *next;

	HASH_ITER (hh, fleet->proofs, proof, next) {
		HASH_DEL(fleet->proofs, proof);
		free(proof);
	}
}

/* Whether the image started on another node of the same pool. */
static bool is_proven_elsewhere(
	const struct fleet *fleet, const struct node *node, const char *digest)
{
	const struct proof *proof = proof_find(fleet, digest);

	for (size_t i = 0; proof && i < ARRAY_LEN(proof->nodes); i++) {
		const struct node *other =
			*proof->nodes[i] ? fleet_node_find(fleet, proof->nodes[i]) : NULL;

		if (other && other != node && strcmp(other->record.pool, node->record.pool) == 0)
			return true;
	}
	return false;
}

/* The two nodes that it started on last. Which proofs are kept is no promise: without one, evidence is not used. */
static void prove(struct fleet *fleet, const struct sandbox *sandbox)
{
	const struct sandbox_spec *spec = sandbox->record.spec;
	struct proof *proof = proof_find(fleet, spec->image_digest);

	if (!proof) {
		if (HASH_COUNT(fleet->proofs) >= PROOFS_MAX)
			fleet_learn_forget(fleet);
		proof = calloc(1, sizeof(*proof));
		if (!proof)
			return;
		memcpy(proof->image.digest, spec->image_digest, sizeof(proof->image.digest));
		memcpy(proof->image.name, spec->template_name, sizeof(proof->image.name));
		proof->image.size = spec->image_size;
		HASH_ADD_STR(fleet->proofs, image.digest, proof);
		if (!proof->hh.tbl) {
			free(proof);
			return;
		}
	}
	if (strcmp(proof->nodes[0], sandbox->record.node) == 0)
		return;
	memcpy(proof->nodes[1], proof->nodes[0], ID_SIZE);
	memcpy(proof->nodes[0], sandbox->record.node, ID_SIZE);
}

/* ---- records ---- */

static void set_fact(struct fleet *fleet, struct node *node, bool is_set, const char *why)
{
	const char *who = "scheduler";
	struct fleet_event event = { .type = FLEET_NODE_FACT };

	event.fact.fact = NODE_QUARANTINED;
	event.fact.set = is_set;
	event.fact.who = who;
	event.fact.why = why;
	fleet_node_set_fact(fleet, node, &event);
}

static void tell(struct fleet *fleet, const struct node *node, enum fail_code code, const char *why)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, code, 0, "%s", why);
	err_add(&err, "node", "%s", node->record.id);
	fleet_emit_notice(fleet, &err, node->record.id, NULL);
}

static void arm_probe(struct fleet *fleet, struct node *node, int64_t in_usec)
{
	if (fleet_timer_is_armed(&node->probe))
		return;
	if (fleet_timer_arm(&fleet->timers, &node->probe, fleet->now.mono_usec + in_usec) < 0)
		fleet->out->no_memory = true;
}

/* No more starts at once than may fail before the limit is passed; 0: as many as it likes. */
uint32_t fleet_learn_max_starts(const struct node *node)
{
	uint32_t failed = (uint32_t)(node->record.health.against_milli / FAILURE_MILLI);

	if (node->record.health.is_proven && node->record.health.against_milli == 0)
		return 0;
	return failed < FAILURES_ALLOWED ? FAILURES_ALLOWED - failed : 1;
}

uint32_t fleet_learn_ill_permille(const struct node *node)
{
	return (uint32_t)(MIN(node->record.health.against_milli, LIMIT_MILLI) * 1000 / LIMIT_MILLI);
}

/* ---- pairs ---- */

static struct node_image *pair_find(const struct node *node, const char *digest)
{
	for (size_t i = 0; i < node->record.n_images; i++)
		if (strcmp(node->record.images[i].image.digest, digest) == 0)
			return &node->record.images[i];
	return NULL;
}

static struct node_image *pair_make(struct node *node, const struct sandbox_spec *spec)
{
	struct node_record *record = &node->record;
	struct node_image *pair = pair_find(node, spec->image_digest), *grown;

	if (pair || record->n_images == PAIRS_MAX)
		return pair;
	grown = realloc(record->images, (record->n_images + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	record->images = grown;
	pair = &record->images[record->n_images++];
	memset(pair, 0, sizeof(*pair));
	memcpy(pair->image.digest, spec->image_digest, sizeof(pair->image.digest));
	memcpy(pair->image.name, spec->template_name, sizeof(pair->image.name));
	pair->image.size = spec->image_size;
	return pair;
}

static void pair_drop(struct fleet *fleet, struct node *node, struct node_image *pair)
{
	if (place_node_bar(fleet->place, node->place, pair->image.digest, false) < 0)
		fleet->out->no_memory = true;
	*pair = node->record.images[--node->record.n_images];
	fleet_node_dirty(fleet, node);
}

static void bar(struct fleet *fleet, struct node *node, struct node_image *pair,
	const struct err *err)
{
	char text[256];

	pair->is_barred = true;
	pair->since_us = fleet->now.real_usec;
	(void)snprintf(pair->why, sizeof(pair->why),
		"starts elsewhere and failed here %u times, last %s", pair->failures,
		failure_info(err->code)->name);
	if (place_node_bar(fleet->place, node->place, pair->image.digest, true) < 0)
		fleet->out->no_memory = true;
	(void)snprintf(text, sizeof(text), "Image %s is not started on this node: it %s.",
		pair->image.name, pair->why);
	tell(fleet, node, FAIL_IMAGE_QUARANTINED, text);
	arm_probe(fleet, node, node->probe_usec);
}

/* ---- what a start says ---- */

enum against { AGAINST_NOBODY, AGAINST_NODE, AGAINST_PAIR };

static enum against speaks_against(const struct err *err)
{
	enum fail_class class = err_class(err);
	bool of_node = err->component == COMPONENT_NODE_HOST ||
		       err->component == COMPONENT_NODE_SOFTWARE;
	bool of_guest =
		err->component == COMPONENT_TEMPLATE || err->component == COMPONENT_GUEST;

	if (err->code == FAIL_NODE_POLICY || (class != CLASS_PERMANENT && class != CLASS_BUG))
		return AGAINST_NOBODY;
	if (of_node && err->stage >= STAGE_ACCEPT && err->stage <= STAGE_VMM)
		return AGAINST_NODE;
	return of_node || of_guest ? AGAINST_PAIR : AGAINST_NOBODY;
}

static void quarantine(struct fleet *fleet, struct node *node, const char *why)
{
	node->record.health.is_proven = false;
	set_fact(fleet, node, true, why);
	node->probe_usec = PROBE_MIN_USEC;
	tell(fleet, node, FAIL_NODE_QUARANTINED, why);
	arm_probe(fleet, node, node->probe_usec);
}

void fleet_learn_wrong(struct fleet *fleet, struct node *node)
{
	char why[160];

	if (node->record.facts[NODE_QUARANTINED].is_set)
		return;
	(void)snprintf(why, sizeof(why), "spoke %u times about sandboxes that are not its own (AUTH_WRONG_NODE)",
		node->wrong_reports);
	quarantine(fleet, node, why);
}

static void judge(struct fleet *fleet, struct node *node, const struct err *err)
{
	struct node_health *health = &node->record.health;
	char why[160];

	if (health->against_milli < LIMIT_MILLI || node->record.facts[NODE_QUARANTINED].is_set)
		return;
	(void)snprintf(why, sizeof(why),
		"%u of its last %u starts failed, last %s at %s; evidence %lld.%lld of %d.%d",
		health->failures, health->starts, failure_info(err->code)->name,
		stage_name(err->stage), (long long)health->against_milli / 1000,
		(long long)health->against_milli / 100 % 10, LIMIT_MILLI / 1000,
		LIMIT_MILLI / 100 % 10);
	quarantine(fleet, node, why);
}

static void learn_pair(struct fleet *fleet, struct node *node, const struct sandbox *sandbox,
	const struct err *err)
{
	struct node_image *pair;
	int64_t part;

	if (!is_proven_elsewhere(fleet, node, sandbox->record.spec->image_digest))
		return;
	pair = pair_make(node, sandbox->record.spec);
	if (!pair)
		return;
	pair->failures++;
	pair->against_milli += FAILURE_MILLI;
	part = MIN(FAILURE_MILLI, PAIR_PART_MILLI - pair->node_part_milli);
	pair->node_part_milli += part;
	node->record.health.against_milli += part;
	if (pair->against_milli >= LIMIT_MILLI && !pair->is_barred)
		bar(fleet, node, pair, err);
}

static void probe_failed(struct fleet *fleet, struct node *node)
{
	node->probe_usec = MIN(2 * node->probe_usec, PROBE_MAX_USEC);
	arm_probe(fleet, node, node->probe_usec);
}

void fleet_learn_failed(struct fleet *fleet, struct sandbox *sandbox, const struct err *err)
{
	struct node *node = sandbox->node;
	enum against against = speaks_against(err);

	if (fleet_sandbox_is_canary(sandbox)) {
		probe_failed(fleet, node);
		return;
	}
	if (against == AGAINST_NOBODY)
		return;
	node->record.health.starts++;
	node->record.health.failures++;
	if (against == AGAINST_NODE)
		node->record.health.against_milli += FAILURE_MILLI;
	else
		learn_pair(fleet, node, sandbox, err);
	judge(fleet, node, err);
	fleet_node_dirty(fleet, node);
	fleet_node_update_place(fleet, node);
}

static void pair_succeeded(struct fleet *fleet, struct node *node, const char *digest, bool canary)
{
	struct node_image *pair = pair_find(node, digest);

	if (!pair)
		return;
	pair->against_milli = MAX(pair->against_milli - SUCCESS_MILLI, 0);
	if (canary || (pair->against_milli == 0 && !pair->is_barred))
		pair_drop(fleet, node, pair);
}

/* What the quarantine was for stays in the record. */
static void close_quarantine(struct fleet *fleet, struct node *node, bool is_proven)
{
	const struct node_fact_entry *fact = &node->record.facts[NODE_QUARANTINED];
	struct node_health health = {
		.is_proven = is_proven,
		.last_since_us = fact->since_us,
		.last_until_us = fleet->now.real_usec,
	};

	memcpy(health.last_why, fact->why, sizeof(health.last_why));
	if (fact->is_set)
		node->record.health = health;
	set_fact(fleet, node, false, "");
}

void fleet_learn_ready(struct fleet *fleet, struct sandbox *sandbox)
{
	struct node *node = sandbox->node;
	struct node_health *health = &node->record.health;
	bool canary = fleet_sandbox_is_canary(sandbox);
	bool changes = !health->is_proven || health->against_milli > 0;

	prove(fleet, sandbox);
	pair_succeeded(fleet, node, sandbox->record.spec->image_digest, canary);
	health->against_milli = MAX(health->against_milli - SUCCESS_MILLI, 0);
	if (health->against_milli == 0)
		health->starts = health->failures = 0; /* the record begins with the next failure */
	else
		health->starts++;
	health->is_proven = !node->record.facts[NODE_QUARANTINED].is_set;
	if (canary && node->record.facts[NODE_QUARANTINED].is_set) {
		close_quarantine(fleet, node, true);
		tell(fleet, node, FAIL_NODE_QUARANTINED,
			"A probe started: the node's quarantine is over.");
	}
	if (!changes && !canary)
		return; /* a healthy node costs no record */
	fleet_node_dirty(fleet, node);
	fleet_node_update_place(fleet, node);
}

/* Somebody ended the quarantine by hand: the slate is clean, but nothing is proven. */
void fleet_learn_pardoned(struct fleet *fleet, struct node *node)
{
	close_quarantine(fleet, node, false);
	node->record.health.against_milli = 0;
	node->probe_usec = PROBE_MIN_USEC;
	while (node->record.n_images)
		pair_drop(fleet, node, &node->record.images[0]);
	fleet_node_dirty(fleet, node);
	fleet_node_update_place(fleet, node);
}

void fleet_learn_probe_over(struct fleet *fleet, struct node *node)
{
	arm_probe(fleet, node, node->probe_usec);
}

/* ---- probes ---- */

/* Of a quarantined node: an image that starts elsewhere, else any that started. Of a pair: its own. */
static const struct node_image_id *image_to_probe(const struct fleet *fleet, const struct node *node)
{
	const struct proof *proof, *any = NULL;

	if (!node->record.facts[NODE_QUARANTINED].is_set) {
		for (size_t i = 0; i < node->record.n_images; i++)
			if (node->record.images[i].is_barred)
				return &node->record.images[i].image;
		return NULL;
	}
	for (proof = fleet->proofs; proof; proof = proof->hh.next) {
		if (is_proven_elsewhere(fleet, node, proof->image.digest))
			return &proof->image;
		any = any ? any : proof;
	}
	return any ? &any->image : NULL;
}

static struct sandbox *canary_make(struct fleet *fleet, const struct node *node,
	const struct node_image_id *image)
{
	struct sandbox_spec *spec = spec_new();
	struct sandbox_record record = {
		.incarnation = 1,
		.state = SANDBOX_PLACING,
		.spec = spec,
		.created_us = fleet->now.real_usec,
		.attempts = 1,
	};
	struct sandbox *sandbox;

	if (!spec)
		return NULL;
	memcpy(spec->template_name, image->name, sizeof(spec->template_name));
	memcpy(spec->image_digest, image->digest, sizeof(spec->image_digest));
	spec->image_size = image->size;
	spec->vcpus = 1;
	spec->memory_mib = PROBE_MEMORY_MIB;
	spec->disk_mib = PROBE_DISK_MIB;
	spec->timeout_s = PROBE_LIFE_S;
	do
		id_new(fleet->rng, record.id);
	while (fleet_sandbox_find(fleet, record.id));
	trace_new(fleet->rng, &record.trace);
	memcpy(record.tenant, canary_tenant, sizeof(canary_tenant));
	memcpy(record.pool, node->record.pool, sizeof(record.pool));
	sandbox = fleet_sandbox_add(fleet, &record);
	if (!sandbox)
		sandbox_record_deinit(&record);
	else
		sandbox->is_new = true;
	return sandbox;
}

static bool may_be_probed(const struct node *node)
{
	return node->link == NODE_READY && node->session != 0 && node->is_known &&
	       node->unschedulable.code == FAIL_NONE &&
	       !node->record.facts[NODE_CORDONED].is_set &&
	       !node->record.facts[NODE_DRAINING].is_set;
}

/* One canary at a time: its end, whichever, arms the next. */
void fleet_learn_on_probe(struct fleet *fleet, struct node *node)
{
	const struct node_image_id *image = image_to_probe(fleet, node);
	struct sandbox *sandbox = NULL;

	if (!node->record.facts[NODE_QUARANTINED].is_set && !image)
		return; /* nothing is left to be probed */
	if (image && may_be_probed(node))
		sandbox = canary_make(fleet, node, image);
	if (!sandbox) {
		arm_probe(fleet, node, node->probe_usec);
		return;
	}
	fleet_start_on(fleet, sandbox, node);
}

/* After a start of the scheduler: what was barred is barred still, and everything under quarantine is probed. */
void fleet_learn_loaded(struct fleet *fleet)
{
	struct sandbox *sandbox;
	struct node *node;

	TAILQ_FOREACH (sandbox, &fleet->all_sandboxes, in_all)
		if (sandbox->record.state == SANDBOX_RUNNING && !fleet_sandbox_is_canary(sandbox))
			prove(fleet, sandbox);
	TAILQ_FOREACH (node, &fleet->all_nodes, in_all) {
		bool waits = node->record.facts[NODE_QUARANTINED].is_set;

		for (size_t i = 0; i < node->record.n_images; i++) {
			const struct node_image *pair = &node->record.images[i];

			waits = waits || pair->is_barred;
			if (pair->is_barred && place_node_bar(fleet->place, node->place,
						       pair->image.digest, true) < 0)
				fleet->out->no_memory = true;
		}
		if (waits && node->link != NODE_REMOVED)
			arm_probe(fleet, node, node->probe_usec);
	}
}

void fleet_learn_node_init(struct node *node)
{
	node->probe = (struct timer)TIMER_NULL(TIMER_PROBE, node);
	node->probe_usec = PROBE_MIN_USEC;
}
