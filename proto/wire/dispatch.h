/* SPDX-License-Identifier: Apache-2.0
 *
 * What may come in an Envelope: one table per process, one row per message {body, largest size, who may send
 * it, in which states, handler}. dispatch() judges version, body, sender, state and size on the raw bytes
 * before anything is unpacked; a handler sees only what its row permits. What has no row is counted and
 * answered "unsupported", never fatal.
 *
 * Roles and states are the process's own small enums; a row names sets of them with DISPATCH_IN().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "pb/link.pb-c.h"

#define LINK_VERSION_MAJOR 1u
#ifdef CROFT_FUTURE
#define LINK_VERSION_MINOR 2u
#else
#define LINK_VERSION_MINOR 1u /* 1: stages of a report that are not known are passed over; 0 refuses the report */
#endif

#define DISPATCH_IN(value) (UINT32_C(1) << (value))
#define DISPATCH_ANY UINT32_MAX

/* The envelope's head as plain values: what came, and what envelope_pack() writes. */
struct envelope_head {
	uint32_t version_major, version_minor; /* envelope_pack() writes our own */
	unsigned int body;     /* Croft__Envelope__BodyCase of what came; 0: unknown to this version */
	uint64_t epoch;
	uint64_t seq;
	uint64_t ack;
	struct trace trace;    /* empty: none, or an invalid one came */
	uint64_t deadline_ms;  /* 0: none */
};

/* `call` is dispatch()'s argument: what the process knows about this message's sender. The envelope's own
 * strings and arrays live until the handler returns. An error becomes DISPATCH_FAILED with `reterr`. */
typedef int (*dispatch_handler)(void *call, const struct envelope_head *head, const Croft__Envelope *envelope,
	struct err *reterr);

struct dispatch_row {
	unsigned int body;     /* CROFT__ENVELOPE__BODY_... */
	uint32_t roles;        /* DISPATCH_IN(role) | ... */
	uint32_t states;       /* DISPATCH_IN(state) | ..., or DISPATCH_ANY */
	size_t max_size;       /* of the whole frame */
	dispatch_handler handler;
};

enum dispatch_result {
	DISPATCH_OK,
	DISPATCH_MALFORMED,   /* FRAME_INVALID */
	DISPATCH_VERSION,     /* VERSION_UNSUPPORTED */
	DISPATCH_UNSUPPORTED, /* FRAME_UNSUPPORTED: no row */
	DISPATCH_FORBIDDEN,   /* FORBIDDEN: this sender may not send it */
	DISPATCH_STATE,       /* CONFLICT: not now */
	DISPATCH_TOO_LARGE,   /* FRAME_INVALID */
	DISPATCH_FAILED,      /* the handler's own error */
	DISPATCH_MAX_,
};
const char *dispatch_result_name(enum dispatch_result result);

struct dispatch {
	const struct dispatch_row *rows;
	size_t n_rows;
	uint64_t counts[DISPATCH_MAX_];
};

/* `ret_head` is filled as far as the frame could be read (zero before that). Any result but OK sets `reterr`. */
enum dispatch_result dispatch(struct dispatch *dispatch, const void *data, size_t size, unsigned int role,
	unsigned int state, void *call, struct envelope_head *ret_head, struct err *reterr) MUST_USE;

/* Whether a refusal is to be answered with envelope_pack_refused(): never an answer to an answer, nor to what
 * could not be read. */
bool dispatch_is_answerable(enum dispatch_result result, const struct envelope_head *head);

/* Fills version, epoch, seq, ack, traceparent and deadline of `envelope`, whose body the caller has set, and
 * packs it. The result is the caller's to free(); NULL: no memory, or over ENDPOINT_FRAME_MAX. */
uint8_t *envelope_pack(const struct envelope_head *head, Croft__Envelope *envelope, size_t *ret_size);

/* A Refused that answers the peer's `seq`. */
uint8_t *envelope_pack_refused(const struct envelope_head *head, uint64_t seq, const struct err *err,
	size_t *ret_size);
