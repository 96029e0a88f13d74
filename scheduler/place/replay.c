/* SPDX-License-Identifier: Apache-2.0
 *
 * See replay.h. Time is that of the next request; what ended before it has given its room back by then, the earliest first (a
 * heap of ends).
 */
#include "place/replay.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "place/node.h"

/* ---- wishes ---- */

static char *text_of(const char *tenant, const char *region, const char *cpu_class)
{
	const size_t sizes[] = { strlen(tenant) + 1, strlen(region) + 1, strlen(cpu_class) + 1 };
	char *text = malloc(sizes[0] + sizes[1] + sizes[2]);

	if (text) {
		memcpy(text, tenant, sizes[0]);
		memcpy(text + sizes[0], region, sizes[1]);
		memcpy(text + sizes[0] + sizes[1], cpu_class, sizes[2]);
	}
	return text;
}

static bool copy_labels(struct place_wish *wish, const struct sandbox_field *labels, size_t n)
{
	wish->labels = calloc(n + 1, sizeof(*wish->labels));
	for (size_t i = 0; wish->labels && i < n; i++) {
		wish->labels[i] = (struct sandbox_field){ strdup(labels[i].key), strdup(labels[i].value) };
		wish->n_labels++;
		if (!wish->labels[i].key || !wish->labels[i].value)
			return false;
	}
	return wish->labels != NULL;
}

struct place_wish *place_wish_new(const char *tenant, const char *region, const char *cpu_class, const struct sandbox_field *labels,
	size_t n_labels)
{
	struct place_wish *wish = calloc(1, sizeof(*wish));

	if (!wish)
		return NULL;
	wish->n_refs = 1;
	wish->text = text_of(tenant, region, cpu_class);
	if (!wish->text || !copy_labels(wish, labels, n_labels))
		return place_wish_unref(wish);
	wish->tenant = wish->text;
	wish->region = wish->tenant + strlen(wish->tenant) + 1;
	wish->cpu_class = wish->region + strlen(wish->region) + 1;
	return wish;
}

bool place_wish_is(const struct place_wish *wish, const char *tenant, const char *region, const char *cpu_class,
	const struct sandbox_field *labels, size_t n_labels)
{
	if (wish->n_labels != n_labels || strcmp(wish->tenant, tenant) != 0 || strcmp(wish->region, region) != 0 ||
		strcmp(wish->cpu_class, cpu_class) != 0)
		return false;
	for (size_t i = 0; i < n_labels; i++)
		if (strcmp(wish->labels[i].key, labels[i].key) != 0 || strcmp(wish->labels[i].value, labels[i].value) != 0)
			return false;
	return true;
}

struct place_wish *place_wish_unref(struct place_wish *wish)
{
	if (!wish || --wish->n_refs > 0)
		return NULL;
	for (size_t i = 0; i < wish->n_labels; i++) {
		free(wish->labels[i].key);
		free(wish->labels[i].value);
	}
	free(wish->labels);
	free(wish->text);
	free(wish);
	return NULL;
}

/* ---- the record ---- */

static int by_time(const void *a, const void *b)
{
	const struct place_request *left = a, *right = b;

	return (left->at_us > right->at_us) - (left->at_us < right->at_us);
}

void place_replay_sort(struct place_request *requests, size_t n)
{
	if (n)
		qsort(requests, n, sizeof(*requests), by_time);
}

static bool has_ended(const struct place_request *request)
{
	return request->until_us != PLACE_STAYS && request->until_us != PLACE_UNKNOWN;
}

/* Those whose end is not known come last. */
static int64_t life_of(const struct place_request *request)
{
	return has_ended(request) ? request->until_us - request->at_us : PLACE_STAYS;
}

static int by_life(const void *a, const void *b)
{
	const int64_t x = life_of(a), y = life_of(b);

	return (x > y) - (x < y);
}

int64_t place_replay_life(struct place_request *requests, size_t n)
{
	size_t n_ended = 0;

	if (n)
		qsort(requests, n, sizeof(*requests), by_life);
	while (n_ended < n && has_ended(&requests[n_ended]))
		n_ended++;
	return n_ended ? life_of(&requests[n_ended / 2]) : PLACE_STAYS;
}

/* ---- the clock ---- */

struct end {
	int64_t until_us;
	size_t request;
	struct place_node *node;
};

struct replay {
	struct place *place;
	const struct place_copy *copy;
	const struct place_request *requests;
	const struct place_reshape *reshape;
	struct end *ends; /* a heap: none is before the one at half its place */
	size_t n_ends;
	uint64_t memory_mib, vcpus, n_looks;
	struct place_replay_result *result;
};

static void push(struct replay *replay, const struct end *end)
{
	size_t i = replay->n_ends++;

	for (; i > 0 && replay->ends[(i - 1) / 2].until_us > end->until_us; i = (i - 1) / 2)
		replay->ends[i] = replay->ends[(i - 1) / 2];
	replay->ends[i] = *end;
}

static struct end pop(struct replay *replay)
{
	const struct end first = replay->ends[0], last = replay->ends[--replay->n_ends];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < replay->n_ends) {
		if (child + 1 < replay->n_ends && replay->ends[child + 1].until_us < replay->ends[child].until_us)
			child++;
		if (replay->ends[child].until_us >= last.until_us)
			break;
		replay->ends[i] = replay->ends[child];
		i = child;
	}
	replay->ends[i] = last;
	return first;
}

static bool is_reshaped(const struct place_reshape *reshape, const struct place_request *request)
{
	return reshape && (!reshape->vcpus || reshape->vcpus == request->vcpus) &&
	       (!reshape->memory_mib || reshape->memory_mib == request->memory_mib) &&
	       (!reshape->disk_mib || reshape->disk_mib == request->disk_mib);
}

static struct place_demand demand_of(const struct replay *replay, size_t i)
{
	const struct place_request *request = &replay->requests[i];
	const struct place_wish *wish = request->wish;
	struct sandbox_spec spec = { .memory_mib = request->memory_mib };
	struct place_demand demand = { .disk_mib = request->disk_mib,
		.vcpus = request->vcpus,
		.tenant = wish->tenant,
		.region = wish->region,
		.cpu_class = wish->cpu_class,
		.labels = wish->labels,
		.n_labels = wish->n_labels };

	if (is_reshaped(replay->reshape, request)) {
		const struct place_reshape *to = replay->reshape;

		demand.vcpus = to->to_vcpus ? to->to_vcpus : demand.vcpus;
		demand.disk_mib = to->to_disk_mib ? to->to_disk_mib : demand.disk_mib;
		spec.memory_mib = to->to_memory_mib ? to->to_memory_mib : spec.memory_mib;
	}
	demand.memory_mib = spec_memory_cost(&spec);
	return demand;
}

static void give_back(struct replay *replay, int64_t now_us)
{
	while (replay->n_ends > 0 && replay->ends[0].until_us <= now_us) {
		const struct end end = pop(replay);
		const struct place_demand demand = demand_of(replay, end.request);

		place_release(replay->place, end.node, &demand, false);
		replay->memory_mib -= demand.memory_mib;
		replay->vcpus -= demand.vcpus;
	}
}

static void placed(struct replay *replay, const struct place_demand *demand, const struct end *end)
{
	struct place_replay_result *result = replay->result;

	place_started(replay->place, end->node); /* how long a start takes bounds nothing here */
	push(replay, end);
	replay->memory_mib += demand->memory_mib;
	replay->vcpus += demand->vcpus;
	result->peak_sandboxes = MAX(result->peak_sandboxes, replay->n_ends);
	result->peak_memory_mib = MAX(result->peak_memory_mib, replay->memory_mib);
	result->peak_vcpus = MAX(result->peak_vcpus, replay->vcpus);
}

static void refused(struct replay *replay, const struct place_demand *demand, int64_t now_us)
{
	struct place_explanation why;

	if (!replay->result->first_us)
		replay->result->first_us = now_us;
	if (replay->n_looks++ >= PLACE_REPLAY_LOOKS)
		return;
	place_explain(replay->place, place_copy_pool(replay->copy), demand, &why);
	replay->result->by[why.lacking < PLACE_CONSTRAINT_MAX_ ? why.lacking : PLACE_STATE]++;
}

static int ask(struct replay *replay, size_t i, int64_t from_us, int64_t life_us)
{
	const struct place_request *request = &replay->requests[i];
	const struct place_demand demand = demand_of(replay, i);
	const int64_t now_us = MAX(request->at_us, from_us);
	struct place_replay_result *result = replay->result;
	const bool is_standing = request->at_us < from_us;
	struct end end = { request->until_us, i, NULL };

	if (request->until_us == PLACE_UNKNOWN)
		end.until_us = life_us == PLACE_STAYS ? PLACE_STAYS : request->at_us + life_us;
	if (is_standing && (request->until_us == PLACE_UNKNOWN || end.until_us <= from_us))
		return 0; /* it was over by then, or never was */
	give_back(replay, now_us);
	switch (place_choose(replay->place, place_copy_pool(replay->copy), &demand, i, &end.node, NULL)) {
	case PLACE_OK:
		placed(replay, &demand, &end);
		result->n_placed += !is_standing;
		result->n_standing += is_standing;
		return 0;
	case PLACE_WAIT:
	case PLACE_NO_ROOM:
		refused(replay, &demand, now_us);
		result->n_refused += !is_standing;
		result->n_standing += is_standing;
		result->n_standing_refused += is_standing;
		return 0;
	case PLACE_NO_MEMORY:
		break;
	}
	return -ENOMEM;
}

int place_replay(const struct place_copy *copy, const struct place_request *requests, size_t n, int64_t from_us, int64_t life_us,
	const struct place_change *change, const struct place_reshape *reshape, struct place_replay_result *ret)
{
	struct replay replay = { .copy = copy, .requests = requests, .reshape = reshape, .result = ret };
	int r = place_new(&replay.place);

	*ret = (struct place_replay_result){ .n_placed = 0 };
	if (r < 0)
		return r;
	replay.ends = calloc(n + 1, sizeof(*replay.ends));
	r = replay.ends ? place_copy_build(replay.place, copy, NULL, change) : -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++)
		r = ask(&replay, i, from_us, life_us);
	free(replay.ends);
	place_free(replay.place);
	return r;
}
