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

int facts_new(struct facts **ret, size_t max)
{
	struct facts *facts = calloc(1, sizeof(*facts));

	if (facts)
		facts->ring = calloc(max, sizeof(*facts->ring)); /* touched as it fills */
	if (!facts || !facts->ring) {
		free(facts);
		return -ENOMEM;
	}
	facts->max = max;
	*ret = facts;
	return 0;
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

void facts_clear(struct facts *facts)
{
	for (size_t i = 0; i < facts->n; i++)
		forget(facts, facts_at(facts, i));
	facts->first = facts->n = 0;
	facts->n_dropped = 0;
	facts->dropped_until_us = 0;
}

struct facts *facts_free(struct facts *facts)
{
	if (!facts)
		return NULL;
	facts_clear(facts);
	free(facts->ring);
	free(facts);
	return NULL;
}

static void drop(struct facts *facts, int64_t when_us)
{
	facts->n_dropped++;
	facts->dropped_until_us = MAX(facts->dropped_until_us, when_us);
}

static void drop_oldest(struct facts *facts)
{
	struct kept_fact *oldest = facts_at(facts, 0);

	drop(facts, oldest->when_us);
	forget(facts, oldest);
	facts->first = (facts->first + 1) % facts->max;
	facts->n--;
}

/* A start that is ready at a later attempt: what failed before was no loss to its caller. Not farther back than it began. */
static void mark_saved(struct facts *facts, const struct kept_fact *ready)
{
	for (size_t i = facts->n; i-- > 0;) {
		struct kept_fact *fact = facts_at(facts, i);

		if (strcmp(fact->sandbox, ready->sandbox) != 0)
			continue;
		if (fact->outcome == RESULT_FAILED && fact->attempt < ready->attempt)
			fact->is_saved = true;
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
static void sort(struct facts *facts)
{
	if (facts->first > 0)
		memmove(facts->ring, facts_at(facts, 0), facts->n * sizeof(*facts->ring));
	facts->first = 0;
	qsort(facts->ring, facts->n, sizeof(*facts->ring), by_time);
}

static void make_room(struct facts *facts)
{
	if (!facts->is_loading) {
		drop_oldest(facts);
		return;
	}
	sort(facts);
	for (size_t n = facts->n / 2 + 1; n > 0; n--)
		drop_oldest(facts);
	sort(facts); /* in one piece again */
}

void facts_load_begin(struct facts *facts)
{
	facts_clear(facts);
	facts->is_loading = true;
}

void facts_load_end(struct facts *facts)
{
	sort(facts);
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
	struct kept_fact *kept;

	if (facts->n == facts->max)
		make_room(facts);
	if (facts->is_loading && facts->n_dropped > 0 && fact->when_us <= facts->dropped_until_us) {
		drop(facts, fact->when_us); /* as others of that time were */
		return;
	}
	kept = facts_at(facts, facts->n);
	*kept = (struct kept_fact) { .when_us = fact->when_us, .took_us = fact->took_us, .memory_mib = fact->memory_mib,
		.vcpus = fact->vcpus, .attempt = fact->attempt, .stage = fact->stage, .outcome = fact->outcome,
		.code = fact->code };
	(void) snprintf(kept->sandbox, sizeof(kept->sandbox), "%s", or_empty(fact->sandbox));
	(void) snprintf(kept->trace, sizeof(kept->trace), "%s", or_empty(fact->trace));
	for (size_t i = 0; i < FACT_NAME_MAX_; i++) {
		kept->names[i] = name_ref(facts, texts[i]);
		if (!kept->names[i]) {
			forget(facts, kept);
			drop(facts, fact->when_us);
			return;
		}
	}
	facts->n++;
	if (kept->stage == STAGE_READY && kept->outcome == RESULT_OK && kept->attempt > 1)
		mark_saved(facts, kept);
}
