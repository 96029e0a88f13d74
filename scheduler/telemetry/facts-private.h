/* SPDX-License-Identifier: Apache-2.0
 *
 * How facts are kept; for facts.c and rates.c.
 */
#pragma once

#include "base/table.h"
#include "telemetry/facts.h"

enum fact_name { FACT_TENANT, FACT_POOL, FACT_NODE, FACT_TEMPLATE, FACT_VERSION, FACT_REGION, FACT_NAME_MAX_ };

struct name {
	size_t refs;
	UT_hash_handle hh;
	char text[];
};

struct kept_fact {
	int64_t when_us, took_us;
	struct name *names[FACT_NAME_MAX_];
	uint64_t memory_mib;
	uint64_t n; /* attempts that it stands for */
	uint32_t vcpus, attempt;
	enum fail_stage stage;
	enum outcome outcome;
	enum fail_code code;
	bool is_saved;
	char sandbox[ID_SIZE], trace[FACT_TRACE_SIZE];
};

/* Of the same age and bounds; the oldest goes first. */
struct fact_ring {
	struct kept_fact *list;
	size_t max, first, n;
	uint64_t n_dropped;     /* that found no room any more, or no memory */
	int64_t dropped_until_us; /* the latest beginning among them */
};

/* Calls come by the thousand: they push out each other, and no start. */
enum fact_kind { FACTS_OF_STARTS, FACTS_OF_CALLS, FACT_KIND_MAX_ };

struct facts {
	struct fact_ring rings[FACT_KIND_MAX_];
	struct name *names;
	bool is_loading;
	facts_on_saved on_saved;
	void *user;
};

static inline struct stage_fact fact_of(const struct kept_fact *kept)
{
	return (struct stage_fact) { .when_us = kept->when_us, .took_us = kept->took_us, .stage = kept->stage,
		.outcome = kept->outcome, .code = kept->code, .n = kept->n, .attempt = kept->attempt, .vcpus = kept->vcpus,
		.memory_mib = kept->memory_mib, .sandbox = kept->sandbox, .trace = kept->trace,
		.tenant = kept->names[FACT_TENANT]->text, .pool = kept->names[FACT_POOL]->text,
		.node = kept->names[FACT_NODE]->text, .template_name = kept->names[FACT_TEMPLATE]->text,
		.version = kept->names[FACT_VERSION]->text, .region = kept->names[FACT_REGION]->text };
}

static inline struct kept_fact *ring_at(const struct fact_ring *ring, size_t i)
{
	return &ring->list[(ring->first + i) % ring->max];
}
