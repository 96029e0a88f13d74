/* SPDX-License-Identifier: Apache-2.0
 *
 * See facts.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "telemetry/facts-private.h"

bool fact_is_call(enum fail_stage stage)
{
	return stage >= STAGE_EXEC && stage <= STAGE_EGRESS_RESPONSE;
}

int facts_new(struct facts **ret, size_t max, size_t max_calls)
{
	const size_t sizes[FACT_KIND_MAX_] = { [FACTS_OF_STARTS] = max, [FACTS_OF_CALLS] = max_calls };
	struct facts *facts = calloc(1, sizeof(*facts));

	for (size_t i = 0; facts && i < FACT_KIND_MAX_; i++) {
		struct fact_ring *ring = &facts->rings[i];

		ring->max = sizes[i];
		ring->list = calloc(sizes[i], sizeof(*ring->list)); /* touched as it fills */
		if (!ring->list)
			facts = facts_free(facts);
	}
	*ret = facts;
	return facts ? 0 : -ENOMEM;
}

static void name_unref(struct facts *facts, struct name *name)
{
	if (!name || --name->refs > 0)
		return;
	HASH_DEL(facts->names, name);
	free(name);
}

static struct name *name_ref(struct facts *facts, const char *text)
{
	struct name *name = NULL;
	size_t size = strlen(text) + 1;

	HASH_FIND_STR(facts->names, text, name);
	if (!name) {
		name = calloc(1, sizeof(*name) + size);
		if (!name)
			return NULL;
		memcpy(name->text, text, size);
		HASH_ADD_KEYPTR(hh, facts->names, name->text, size - 1, name);
		if (!name->hh.tbl) { /* uthash had no memory */
			free(name);
			return NULL;
		}
	}
	name->refs++;
	return name;
}

static void forget(struct facts *facts, struct kept_fact *fact)
{
	for (size_t i = 0; i < FACT_NAME_MAX_; i++) {
		name_unref(facts, fact->names[i]);
		fact->names[i] = NULL;
	}
}

static void ring_clear(struct facts *facts, struct fact_ring *ring)
{
	for (size_t i = 0; i < ring->n; i++)
		forget(facts, ring_at(ring, i));
	ring->first = ring->n = 0;
	ring->n_dropped = 0;
	ring->dropped_until_us = 0;
}

void facts_clear(struct facts *facts)
{
	for (size_t i = 0; i < FACT_KIND_MAX_; i++)
		ring_clear(facts, &facts->rings[i]);
}

struct facts *facts_free(struct facts *facts)
{
	if (!facts)
		return NULL;
	facts_clear(facts);
	for (size_t i = 0; i < FACT_KIND_MAX_; i++)
		free(facts->rings[i].list);
	free(facts);
	return NULL;
}

static void drop(struct fact_ring *ring, int64_t when_us)
{
	ring->n_dropped++;
	ring->dropped_until_us = MAX(ring->dropped_until_us, when_us);
}

static void drop_oldest(struct facts *facts, struct fact_ring *ring)
{
	struct kept_fact *oldest = ring_at(ring, 0);

	drop(ring, oldest->when_us);
	forget(facts, oldest);
	ring->first = (ring->first + 1) % ring->max;
	ring->n--;
}

/* A start that is ready at a later attempt: what failed before was no loss to its caller. Not farther back than it began. */
static void mark_saved(const struct facts *facts, struct fact_ring *ring, const struct kept_fact *ready)
{
	for (size_t i = ring->n; i-- > 0;) {
		struct kept_fact *fact = ring_at(ring, i);

		if (strcmp(fact->sandbox, ready->sandbox) != 0)
			continue;
		if (fact->outcome == RESULT_FAILED && fact->attempt < ready->attempt && !fact->is_saved) {
			const struct stage_fact saved = fact_of(fact);

			fact->is_saved = true;
			if (facts->on_saved)
				facts->on_saved(&saved, facts->user);
		}
		if (fact->stage == STAGE_ADMIT)
			return;
	}
}

static int by_time(const void *a, const void *b)
{
	const struct kept_fact *left = a, *right = b;

	return (left->when_us > right->when_us) - (left->when_us < right->when_us);
}

/* While loading nothing was taken from the front but by make_room(), so it is in one piece. */
static void sort(struct fact_ring *ring)
{
	if (ring->first > 0)
		memmove(ring->list, ring_at(ring, 0), ring->n * sizeof(*ring->list));
	ring->first = 0;
	qsort(ring->list, ring->n, sizeof(*ring->list), by_time);
}

static void make_room(struct facts *facts, struct fact_ring *ring)
{
	if (!facts->is_loading) {
		drop_oldest(facts, ring);
		return;
	}
	sort(ring);
	for (size_t n = ring->n / 2 + 1; n > 0; n--)
		drop_oldest(facts, ring);
	sort(ring); /* in one piece again */
}

void facts_tell_saved(struct facts *facts, facts_on_saved on_saved, void *user)
{
	facts->on_saved = on_saved;
	facts->user = user;
}

void facts_load_begin(struct facts *facts)
{
	facts_clear(facts);
	facts->is_loading = true;
}

void facts_load_end(struct facts *facts)
{
	for (size_t i = 0; i < FACT_KIND_MAX_; i++)
		sort(&facts->rings[i]);
	facts->is_loading = false;
}

static const char *or_empty(const char *text)
{
	return text ? text : "";
}

void facts_add(struct facts *facts, const struct stage_fact *fact)
{
	const char *const texts[FACT_NAME_MAX_] = {
		[FACT_TENANT] = or_empty(fact->tenant),
		[FACT_POOL] = or_empty(fact->pool),
		[FACT_NODE] = or_empty(fact->node),
		[FACT_TEMPLATE] = or_empty(fact->template_name),
		[FACT_VERSION] = or_empty(fact->version),
		[FACT_REGION] = or_empty(fact->region),
	};
	struct fact_ring *ring = &facts->rings[fact_is_call(fact->stage) ? FACTS_OF_CALLS : FACTS_OF_STARTS];
	struct kept_fact *kept;

	if (ring->n == ring->max)
		make_room(facts, ring);
	if (facts->is_loading && ring->n_dropped > 0 && fact->when_us <= ring->dropped_until_us) {
		drop(ring, fact->when_us); /* as others of that time were */
		return;
	}
	kept = ring_at(ring, ring->n);
	*kept = (struct kept_fact) { .when_us = fact->when_us, .took_us = fact->took_us, .memory_mib = fact->memory_mib,
		.vcpus = fact->vcpus, .attempt = fact->attempt, .stage = fact->stage, .outcome = fact->outcome,
		.code = fact->code, .n = MAX(fact->n, 1) };
	(void) snprintf(kept->sandbox, sizeof(kept->sandbox), "%s", or_empty(fact->sandbox));
	(void) snprintf(kept->trace, sizeof(kept->trace), "%s", or_empty(fact->trace));
	for (size_t i = 0; i < FACT_NAME_MAX_; i++) {
		kept->names[i] = name_ref(facts, texts[i]);
		if (!kept->names[i]) {
			forget(facts, kept);
			drop(ring, fact->when_us);
			return;
		}
	}
	ring->n++;
	if (kept->stage == STAGE_READY && kept->outcome == RESULT_OK && kept->attempt > 1)
		mark_saved(facts, ring, kept);
}
