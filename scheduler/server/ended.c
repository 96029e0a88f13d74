/* SPDX-License-Identifier: Apache-2.0
 *
 * See ended.h.
 */
#include "server/ended.h"

#include <stdio.h>
#include <stdlib.h>

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))

void ended_init(struct ended *ended)
{
	*ended = (struct ended){ .n = 0 };
	TAILQ_INIT(&ended->order);
}

static void forget(struct ended *ended, struct ended_sandbox *sandbox)
{
	TAILQ_REMOVE(&ended->order, sandbox, in_order);
	HASH_DEL(ended->by_id, sandbox);
	ended->n--;
	free(sandbox);
}

void ended_deinit(struct ended *ended)
{
	struct ended_sandbox *sandbox;

	while ((sandbox = TAILQ_FIRST(&ended->order)))
		forget(ended, sandbox);
}

void ended_add(struct ended *ended, const struct sandbox_record *record)
{
	struct ended_sandbox *sandbox = NULL;

	HASH_FIND_STR(ended->by_id, record->id, sandbox);
	if (sandbox)
		return;
	sandbox = calloc(1, sizeof(*sandbox));
	if (!sandbox)
		return;
	COPY(sandbox->id, record->id);
	HASH_ADD_STR(ended->by_id, id, sandbox);
	if (!sandbox->hh.tbl) { /* uthash had no memory */
		free(sandbox);
		return;
	}
	COPY(sandbox->node, record->node);
	COPY(sandbox->tenant, record->tenant);
	COPY(sandbox->template_name, record->spec->template_name);
	sandbox->vcpus = record->spec->vcpus;
	sandbox->memory_mib = record->spec->memory_mib;
	sandbox->generation = record->generation;
	sandbox->took = record->took;
	sandbox->ended_us = record->ended_us;
	TAILQ_INSERT_TAIL(&ended->order, sandbox, in_order);
	ended->n++;
}

const struct ended_sandbox *ended_find(const struct ended *ended, const char *id)
{
	struct ended_sandbox *sandbox = NULL;

	HASH_FIND_STR(ended->by_id, id, sandbox);
	return sandbox;
}

void ended_trim(struct ended *ended, int64_t before_us)
{
	struct ended_sandbox *sandbox;

	while ((sandbox = TAILQ_FIRST(&ended->order)) && (sandbox->ended_us < before_us || ended->n > ENDED_MAX))
		forget(ended, sandbox);
}

void ended_trim_all(struct ended *ended, int64_t before_us)
{
	struct ended_sandbox *sandbox = TAILQ_FIRST(&ended->order), *next;

	for (; sandbox; sandbox = next) {
		next = TAILQ_NEXT(sandbox, in_order);
		if (sandbox->ended_us < before_us)
			forget(ended, sandbox);
	}
	ended_trim(ended, before_us);
}
