/* SPDX-License-Identifier: Apache-2.0
 *
 * A writer of protobuf's wire format that can lie, and a real envelope: for the tests of what stands between
 * the network and the process.
 */
#pragma once

#include <check.h>
#include <stdint.h>
#include <string.h>

#include "wire/dispatch.h"
#include "wire/records.h"

struct bytes {
	uint8_t data[1024 * 1024 + 64];
	size_t size;
};

static inline void put(struct bytes *to, const void *data, size_t size)
{
	ck_assert_uint_le(size, sizeof(to->data) - to->size);
	memcpy(to->data + to->size, data, size);
	to->size += size;
}

static inline void put_varint(struct bytes *to, uint64_t value)
{
	do {
		uint8_t byte = (uint8_t) ((value & 0x7f) | (value > 0x7f ? 0x80 : 0));

		put(to, &byte, 1);
		value >>= 7;
	} while (value);
}

static inline void put_tag(struct bytes *to, uint32_t number, uint32_t type)
{
	put_varint(to, (uint64_t) number << 3 | type);
}

static inline void put_bytes(struct bytes *to, uint32_t number, const void *data, size_t size)
{
	put_tag(to, number, 2);
	put_varint(to, size);
	put(to, data, size);
}

/* A report with three failed stages, from a sender with seq 9, ack 3, epoch 7. */
static inline uint8_t *make_report(size_t *ret_size)
{
	struct envelope_head head = { .epoch = 7, .seq = 9, .ack = 3, .deadline_ms = 1500 };
	Croft__StageRecord *stages[3];
	struct stage_record record = { .stage = STAGE_VMM, .outcome = RESULT_FAILED, .began_us = 1, .took_us = 2,
		.attempt = 1, .generation = 4, .sandbox = "abcdefghijklmnopqrst" };
	Croft__SandboxReport report;
	Croft__Envelope envelope;
	struct rng rng = rng_seeded(1);
	uint8_t *data;

	trace_new(&rng, &head.trace);
	(void) err_set(&record.failure, FAIL_KVM_UNAVAILABLE, EACCES, "no /dev/kvm");
	err_add(&record.failure, "path", "/dev/kvm");
	croft__envelope__init(&envelope);
	croft__sandbox_report__init(&report);
	for (size_t i = 0; i < ARRAY_LEN(stages); i++) {
		stages[i] = stage_record_encode(&record);
		ck_assert_ptr_nonnull(stages[i]);
	}
	report.sandbox = record.sandbox;
	report.generation = 4;
	report.n_stages = ARRAY_LEN(stages);
	report.stages = stages;
	envelope.body_case = CROFT__ENVELOPE__BODY_REPORT;
	envelope.report = &report;
	data = envelope_pack(&head, &envelope, ret_size);
	ck_assert_ptr_nonnull(data);
	for (size_t i = 0; i < ARRAY_LEN(stages); i++)
		protobuf_c_message_free_unpacked(&stages[i]->base, NULL);
	return data;
}
