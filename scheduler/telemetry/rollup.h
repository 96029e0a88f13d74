/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of stages by spans of time (levels) and kinds of work (grains), and how one of them is written. Pure.
 *
 * A fact is summed in each level, and there once in each grain: by pool; by who ran what there; by node. A question is
 * answered from the coarsest grain that can tell, so that what it reads is bounded by time and kinds, not by starts.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "telemetry/rates.h"

enum rollup_level { ROLLUP_10S, ROLLUP_5MIN, ROLLUP_1H, ROLLUP_LEVEL_MAX_ };
struct rollup_span {
	int64_t step_us;
	int64_t keep_us;   /* how far back there are rows */
	int64_t window_us; /* the longest that is answered from it */
};
extern const struct rollup_span rollup_spans[ROLLUP_LEVEL_MAX_];
/* The level for a window. */
enum rollup_level rollup_level_for(int64_t window_us);

enum rollup_grain { ROLLUP_POOLS, ROLLUP_WORK, ROLLUP_NODES, ROLLUP_GRAIN_MAX_ };

/* What a row is of; what its grain does not tell is "" and 0. */
struct rollup_kind {
	enum rollup_grain grain;
	char tenant[ID_NAME_MAX + 1], pool[ID_NAME_MAX + 1], node[ID_SIZE], template_name[ID_NAME_MAX + 1], version[32],
		region[ID_NAME_MAX + 1];
	uint32_t vcpus;
	uint64_t memory_mib;
};

/* All of it, padding too, so that it can be compared as bytes. */
void rollup_kind_of(const struct stage_fact *fact, enum rollup_grain grain, struct rollup_kind *ret);
/* Of the same tenant and pool, for what is too much to be told apart; its template says so. */
#define ROLLUP_OTHER "(other)"
void rollup_kind_other(const struct rollup_kind *kind, struct rollup_kind *ret);
/* The grain that answers a filter for somebody who sees every tenant, or not; ROLLUP_GRAIN_MAX_: none does. */
enum rollup_grain rollup_grain_for(const struct facts_filter *filter, bool sees_all);
/* Whether a filter takes rows of this kind: all of it but the times. */
bool rollup_takes(const struct facts_filter *filter, const struct rollup_kind *kind);

/* One fact as it is summed; `n` is less than 0 where it is taken back. */
struct rollup_change {
	int64_t when_us, took_us, n;
	enum fail_stage stage;
	enum outcome outcome;
	enum fail_code code;
	bool is_saved, has_time;
	uint32_t kinds[ROLLUP_GRAIN_MAX_]; /* numbers of its kinds; 0: none, the fact is not in that grain */
};
/* Of a fact as it was heard; its kinds are still to be named. */
struct rollup_change rollup_change_of(const struct stage_fact *fact);
void rollup_sum(struct rate_sums *sums, const struct rollup_change *change);

/* *ret is the caller's. 0 or -ENOMEM. */
int rollup_pack(const struct rate_sums *sums, uint8_t **ret, size_t *ret_size);
/* Adds what a row has; names that this version does not know are left out. 0, -EBADMSG or -ENOMEM. */
int rollup_unpack(struct rate_sums *sums, const void *data, size_t size);
