/* SPDX-License-Identifier: Apache-2.0
 *
 * See rollup.h.
 */
#include "telemetry/rollup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "pb/rollup.pb-c.h"
#include "wire/check.h"

#define HOUR_US (3600 * USEC_PER_SEC)

const struct rollup_span rollup_spans[ROLLUP_LEVEL_MAX_] = {
	[ROLLUP_10S] = { 10 * USEC_PER_SEC, 2 * HOUR_US, HOUR_US },
	[ROLLUP_5MIN] = { 300 * USEC_PER_SEC, 49 * HOUR_US, 24 * HOUR_US },
	[ROLLUP_1H] = { HOUR_US, 90 * 24 * HOUR_US, 90 * 24 * HOUR_US },
};

enum rollup_level rollup_level_for(int64_t window_us)
{
	enum rollup_level level = ROLLUP_10S;

	while (level < ROLLUP_1H && window_us > rollup_spans[level].window_us)
		level++;
	return level;
}

static void put(char *to, size_t size, const char *from)
{
	(void) snprintf(to, size, "%s", from ? from : "");
}

void rollup_kind_of(const struct stage_fact *fact, enum rollup_grain grain, struct rollup_kind *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->grain = grain;
	put(ret->pool, sizeof(ret->pool), fact->pool);
	put(ret->version, sizeof(ret->version), fact->version);
	put(ret->region, sizeof(ret->region), fact->region);
	if (grain == ROLLUP_NODES)
		put(ret->node, sizeof(ret->node), fact->node);
	if (grain != ROLLUP_WORK)
		return;
	put(ret->tenant, sizeof(ret->tenant), fact->tenant);
	put(ret->template_name, sizeof(ret->template_name), fact->template_name);
	ret->vcpus = fact->vcpus;
	ret->memory_mib = fact->memory_mib;
}

void rollup_kind_other(const struct rollup_kind *kind, struct rollup_kind *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->grain = kind->grain;
	put(ret->tenant, sizeof(ret->tenant), kind->tenant);
	put(ret->pool, sizeof(ret->pool), kind->pool);
	put(ret->template_name, sizeof(ret->template_name), ROLLUP_OTHER);
}

enum rollup_grain rollup_grain_for(const struct facts_filter *filter, bool sees_all)
{
	const bool is_work = filter->tenant || filter->template_name || filter->vcpus > 0 || filter->memory_mib > 0 || !sees_all;

	if (filter->node)
		return is_work ? ROLLUP_GRAIN_MAX_ : ROLLUP_NODES;
	return is_work ? ROLLUP_WORK : ROLLUP_POOLS;
}

static bool is(const char *wanted, const char *text)
{
	return !wanted || !strcmp(wanted, text);
}

bool rollup_takes(const struct facts_filter *filter, const struct rollup_kind *kind)
{
	return is(filter->tenant, kind->tenant) && is(filter->pool, kind->pool) && is(filter->node, kind->node) &&
		is(filter->template_name, kind->template_name) && is(filter->version, kind->version) &&
		is(filter->region, kind->region) && (filter->vcpus == 0 || filter->vcpus == kind->vcpus) &&
		(filter->memory_mib == 0 || filter->memory_mib == kind->memory_mib) &&
		(kind->grain != ROLLUP_WORK || !filter->sees || filter->sees(kind->tenant, filter->user));
}

struct rollup_change rollup_change_of(const struct stage_fact *fact)
{
	const int64_t n = (int64_t) MAX(fact->n, 1);

	return (struct rollup_change) { .when_us = fact->when_us, .took_us = fact->took_us, .n = n, .stage = fact->stage,
		.outcome = fact->outcome, .code = fact->code, .has_time = n == 1 && fact->outcome != RESULT_SKIPPED };
}

void rollup_sum(struct rate_sums *sums, const struct rollup_change *change)
{
	struct rate_sum *sum = &sums->stages[change->stage];

	if (change->outcome == RESULT_OK)
		sum->ok += change->n;
	else if (change->outcome == RESULT_SKIPPED)
		sum->skipped += change->n;
	else if (change->outcome == RESULT_FAILED)
		*(change->is_saved ? &sum->saved : &sum->failed) += change->n;
	if (change->has_time)
		histogram_add(&sum->took, change->took_us);
	if (change->outcome == RESULT_FAILED && change->has_time)
		sum->codes[change->code]++;
	else if (change->outcome == RESULT_FAILED && !change->is_saved && change->n > 1)
		sum->codes[change->code] += (uint64_t) change->n;
}

/* ---- a row ---- */

static bool is_empty(const struct rate_sum *sum)
{
	return !sum->ok && !sum->failed && !sum->saved && !sum->skipped;
}

static size_t write_took(const struct histogram *took, uint32_t *ret)
{
	size_t n = 0;
	uint32_t before = 0;

	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		if (!took->buckets[i])
			continue;
		ret[n++] = i - before;
		ret[n++] = took->buckets[i];
		before = i;
	}
	return n;
}

static void write_stage(Croft__RollupStage *stage, const struct rate_sum *sum, Croft__RollupCode *codes,
	Croft__RollupCode **code_list)
{
	stage->ok = sum->ok;
	stage->failed = sum->failed;
	stage->saved = sum->saved;
	stage->skipped = sum->skipped;
	stage->codes = code_list;
	for (unsigned int i = 0; i < FAIL_MAX_; i++) {
		if (!sum->codes[i])
			continue;
		croft__rollup_code__init(&codes[stage->n_codes]);
		codes[stage->n_codes].code = (char *) (uintptr_t) failure_info((enum fail_code) i)->name;
		codes[stage->n_codes].n = sum->codes[i];
		code_list[stage->n_codes] = &codes[stage->n_codes];
		stage->n_codes++;
	}
}

int rollup_pack(const struct rate_sums *sums, uint8_t **ret, size_t *ret_size)
{
	Croft__RollupStage stages[STAGE_MAX_], *list[STAGE_MAX_];
	Croft__RollupCell cell;
	uint32_t *took = calloc(STAGE_MAX_, 2 * HISTOGRAM_BUCKETS * sizeof(*took));
	Croft__RollupCode *codes = calloc(STAGE_MAX_, FAIL_MAX_ * sizeof(*codes));
	Croft__RollupCode **code_list = calloc(STAGE_MAX_, FAIL_MAX_ * sizeof(Croft__RollupCode *));
	int r = -ENOMEM;

	croft__rollup_cell__init(&cell);
	cell.stages = list;
	for (unsigned int i = 1; took && codes && code_list && i < STAGE_MAX_; i++) {
		Croft__RollupStage *stage = &stages[cell.n_stages];

		if (is_empty(&sums->stages[i]))
			continue;
		croft__rollup_stage__init(stage);
		stage->stage = (char *) (uintptr_t) stage_name((enum fail_stage) i);
		stage->took = took + (size_t) i * 2 * HISTOGRAM_BUCKETS;
		stage->n_took = write_took(&sums->stages[i].took, stage->took);
		write_stage(stage, &sums->stages[i], codes + (size_t) i * FAIL_MAX_, code_list + (size_t) i * FAIL_MAX_);
		list[cell.n_stages++] = stage;
	}
	if (took && codes && code_list) {
		*ret_size = croft__rollup_cell__get_packed_size(&cell);
		*ret = malloc(*ret_size + 1);
		if (*ret) {
			(void) croft__rollup_cell__pack(&cell, *ret);
			r = 0;
		}
	}
	free(took);
	free(codes);
	free(code_list);
	return r;
}

static void read_stage(struct rate_sum *sum, const Croft__RollupStage *stage)
{
	uint64_t bucket = 0;

	sum->ok += stage->ok;
	sum->failed += stage->failed;
	sum->saved += stage->saved;
	sum->skipped += stage->skipped;
	for (size_t i = 0; i + 1 < stage->n_took; i += 2) {
		bucket += stage->took[i];
		if (bucket >= HISTOGRAM_BUCKETS)
			return;
		sum->took.buckets[bucket] += stage->took[i + 1];
		sum->took.n += stage->took[i + 1];
	}
	for (size_t i = 0; i < stage->n_codes; i++)
		sum->codes[failure_by_name(stage->codes[i]->code)] += stage->codes[i]->n;
}

int rollup_unpack(struct rate_sums *sums, const void *data, size_t size)
{
	struct err err = ERR_NULL;
	ProtobufCMessage *message = check_unpack(&croft__rollup_cell__descriptor, data, size, &err);
	const Croft__RollupCell *cell = (const Croft__RollupCell *) message;

	if (!message)
		return err.code == FAIL_NO_MEMORY ? -ENOMEM : -EBADMSG;
	for (size_t i = 0; i < cell->n_stages; i++) {
		const enum fail_stage stage = stage_by_name(cell->stages[i]->stage);

		if (stage != STAGE_NONE)
			read_stage(&sums->stages[stage], cell->stages[i]);
	}
	protobuf_c_message_free_unpacked(message, NULL);
	return 0;
}
