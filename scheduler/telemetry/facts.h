/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of stages, one fact per attempt, in the order in which it was heard: rings of a fixed size, one for the calls
 * into sandboxes and one for everything else, so that memory is bounded whatever nodes say, and the oldest goes first. How
 * much they still cover is part of every answer (rates.h). Pure: no clock, no I/O.
 *
 * Names (tenant, pool, node, template, version, region) are kept once each, and as long as a fact has them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"
#include "base/id.h"
#include "wire/records.h"

#define FACTS_MAX 131072u /* about 20 MiB: ten thousand starts */
#define CALLS_MAX 65536u
#define FACT_TRACE_SIZE 33

/* One attempt at one stage. Texts are borrowed; NULL is "". */
struct stage_fact {
	int64_t when_us; /* it began, since the epoch, as its maker's clock had it */
	int64_t took_us;
	enum fail_stage stage;
	enum outcome outcome;
	enum fail_code code; /* of a failed one */
	uint64_t n;          /* attempts that it stands for, all alike; 0 is 1. The time of one of many is their mean, and no example */
	uint32_t attempt;    /* of its sandbox's start, from 1 */
	uint32_t vcpus;      /* 0, memory too: not known, as of a life whose sandbox had ended when it was heard of */
	uint64_t memory_mib;
	const char *sandbox, *trace;
	const char *tenant, *pool, *node, *template_name, *version; /* the node's version of croft */
	const char *region; /* of the node, its label; before there is one: that was asked for */
};

struct facts;

/* Room for `max` of them, and for `max_calls` of calls. 0 or -ENOMEM. */
int facts_new(struct facts **ret, size_t max, size_t max_calls);
/* Whether a stage is one that its sandbox's users call for, again and again: exec, files, port, egress. */
bool fact_is_call(enum fail_stage stage);
struct facts *facts_free(struct facts *facts); /* NULL, always */
void facts_clear(struct facts *facts);
/* A failure that was counted as its caller's turned out to be saved: `fact` is as it was added. */
typedef void (*facts_on_saved)(const struct stage_fact *fact, void *user);
void facts_tell_saved(struct facts *facts, facts_on_saved on_saved, void *user);
/* Copies. What finds no memory is counted as dropped. One of a later attempt that is ready marks its sandbox's failures as
 * saved by a retry. */
void facts_add(struct facts *facts, const struct stage_fact *fact);
/* Between the two, facts come in any order, as a store has them: the newest are kept, and are in order afterwards. */
void facts_load_begin(struct facts *facts);
void facts_load_end(struct facts *facts);
