/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain structs for what generated types carry over a process's edge, and the conversion in both directions:
 * struct err <-> Croft__FailureRecord, struct stage_record <-> Croft__StageRecord. Decoding validates once
 * (names that this version does not know become the ..._NONE values, but an unknown code PEER_FAILURE with the
 * name as the detail `peer_code`; texts are cut to the struct's size).
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "pb/telemetry.pb-c.h"

enum outcome { RESULT_NONE, RESULT_OK, RESULT_FAILED, RESULT_SKIPPED, RESULT_MAX_ };
const char *outcome_name(enum outcome outcome); /* "ok", "failed", "skipped" */

#define STAGE_REASON_MAX 64
#define STAGE_ALIKE_MAX 1000000u /* calls that one record may stand for; of more none is believed */

struct stage_record {
	enum fail_stage stage;
	enum outcome outcome;
	char reason[STAGE_REASON_MAX]; /* why it was skipped; of an ok one what was done, where that can differ */
	int64_t began_us;      /* since the epoch */
	int64_t corrected_us;  /* that was added to it for its node's clock */
	int64_t took_us;
	uint64_t n_alike;      /* calls of a sandbox that this one stands for; 0: itself. took_us is their mean */
	uint32_t attempt;
	uint64_t generation;
	char sandbox[ID_SIZE];
	char node[ID_SIZE];
	char operation[ID_SIZE];
	struct trace trace;
	struct err failure;    /* set where outcome is failed */
};

/* Encoders allocate with malloc; free the result with protobuf_c_message_free_unpacked(&m->base, NULL).
 * NULL when memory is short. */
Croft__FailureRecord *failure_encode(const struct err *err);
void failure_decode(const Croft__FailureRecord *record, struct err *ret);
Croft__StageRecord *stage_record_encode(const struct stage_record *record);
/* 0 or -EINVAL when the stage or the outcome is unknown. */
int stage_record_decode(const Croft__StageRecord *record, struct stage_record *ret);
