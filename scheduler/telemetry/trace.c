/* SPDX-License-Identifier: Apache-2.0
 *
 * See trace.h.
 */
#include "telemetry/trace.h"

#include <stdlib.h>
#include <string.h>

#include "telemetry/facts-private.h"

/* Of the same moment, in the order of a start. */
static bool is_before(const struct stage_fact *a, const struct kept_fact *b)
{
	if (a->when_us != b->when_us)
		return a->when_us < b->when_us;
	return a->stage <= b->stage;
}

/* Facts come nearly in order, so that the place is nearly always the end. */
static size_t insert(struct stage_fact *list, size_t n, const struct kept_fact *kept)
{
	size_t at = n;

	while (at > 0 && !is_before(&list[at - 1], kept))
		at--;
	if (at == TRACE_FACTS_MAX)
		return n;
	if (n == TRACE_FACTS_MAX)
		n--;
	memmove(&list[at + 1], &list[at], (n - at) * sizeof(*list));
	list[at] = fact_of(kept);
	return n + 1;
}

size_t facts_trace(const struct facts *facts, const struct trace_filter *filter, struct stage_fact *ret, bool *ret_more)
{
	size_t n = 0, all = 0;

	for (size_t kind = 0; kind < FACT_KIND_MAX_; kind++) {
		const struct fact_ring *ring = &facts->rings[kind];

		for (size_t i = 0; i < ring->n; i++) {
			const struct kept_fact *kept = ring_at(ring, i);

			if (filter->trace ? strcmp(kept->trace, filter->trace) != 0 :
					    strcmp(kept->sandbox, filter->sandbox) != 0)
				continue;
			if (filter->sees && !filter->sees(kept->names[FACT_TENANT]->text, filter->user))
				continue;
			n = insert(ret, n, kept);
			all++;
		}
	}
	*ret_more = all > n;
	return n;
}

int64_t facts_dropped_until(const struct facts *facts)
{
	int64_t until_us = 0;

	for (size_t kind = 0; kind < FACT_KIND_MAX_; kind++)
		until_us = MAX(until_us, facts->rings[kind].dropped_until_us);
	return until_us;
}

const char *trace_process(enum fail_stage stage)
{
	switch (stage) {
	case STAGE_ADMIT:
	case STAGE_PLACE:
	case STAGE_DISPATCH:
		return "scheduler";
	case STAGE_VMM:
		return "vmm";
	case STAGE_KERNEL:
	case STAGE_GUEST:
	case STAGE_SETUP:
		return "guest";
	case STAGE_EXEC:
	case STAGE_FILES:
	case STAGE_PORT:
		return "gateway";
	case STAGE_EGRESS_RESOLVE:
	case STAGE_EGRESS_POLICY:
	case STAGE_EGRESS_PROXY:
	case STAGE_EGRESS_CONNECT:
	case STAGE_EGRESS_TLS:
	case STAGE_EGRESS_CREDENTIAL:
	case STAGE_EGRESS_APPROVAL:
	case STAGE_EGRESS_RESPONSE:
		return "egress";
	default:
		return "node";
	}
}
