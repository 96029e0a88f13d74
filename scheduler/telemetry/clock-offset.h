/* SPDX-License-Identifier: Apache-2.0
 *
 * How far a node's clock is ahead of this scheduler's. Of the last answers to a ClockPing the one that came back soonest counts:
 * the node's clock was read somewhere on the way, so it is wrong by at most half of that. An answer that cannot be true beside the
 * ones before it says that one of the two clocks was set, and they are forgotten. Until the first answer there is what the hello
 * said, late by a way that nobody knows: it does for a clock that is wrong by years. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define CLOCK_SAMPLES 8u
#define CLOCK_EVERY_USEC (10 * USEC_PER_SEC)     /* from one question to the next; the first CLOCK_FAST come with each heartbeat */
#define CLOCK_FAST 4u
#define CLOCK_DRIFT_USEC (20 * USEC_PER_MSEC)    /* more than clocks move apart by themselves while samples are kept */
#define CLOCK_HELLO_USEC (5 * USEC_PER_SEC)      /* that a hello, or a heartbeat, may have been on its way */
#define CLOCK_MAX_USEC (INT64_C(253402300799) * USEC_PER_SEC) /* the end of the year 9999: no clock says more */

struct clock_sample {
	int64_t ahead_us;  /* of the node's clock; negative: it is behind */
	int64_t within_us; /* it is wrong by at most so much */
};

struct clock_offset {
	int64_t due_usec, sent_usec; /* monotonic */
	uint64_t number;             /* of the question that waits; 0: none does */
	uint64_t n_asked;
	bool answers; /* its agent knows the question */
	bool is_guessed;
	struct clock_sample guess; /* of the hello */
	struct clock_sample samples[CLOCK_SAMPLES]; /* a ring */
	unsigned int n, next;
};

/* A hello. node_us: what its clock shows; 0: an agent that does not say and knows no question. */
void clock_offset_greeted(struct clock_offset *clock, int64_t node_us, int64_t real_usec);
/* A heartbeat: where its time contradicts what was measured, the next question is due at once. node_us 0: it does not say. */
void clock_offset_heard(struct clock_offset *clock, int64_t node_us, int64_t real_usec);
/* With each heartbeat, behind that: the number of a question to be sent now, or 0. */
uint64_t clock_offset_ask(struct clock_offset *clock, int64_t mono_usec);
void clock_offset_answered(struct clock_offset *clock, uint64_t number, int64_t node_us, int64_t mono_usec, int64_t real_usec);
/* false: it was not measured in this session. */
bool clock_offset_measured(const struct clock_offset *clock, struct clock_sample *ret);
/* What is taken off this node's times: 0 where the clocks may be the same as far as is known. */
int64_t clock_offset_ahead(const struct clock_offset *clock);
/* A time that a node said, as this scheduler's clock had it. Whatever the node said, it overflows nothing. */
int64_t clock_offset_correct(int64_t ahead_us, int64_t node_us);
