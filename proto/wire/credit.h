/* SPDX-License-Identifier: Apache-2.0
 *
 * A credit window: the receiver grants bytes, the sender spends them. Telemetry, relayed streams and the bulk
 * lane go through one, so that none of them can delay a command.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CREDIT_FRAME_MAX (64u * 1024u)   /* most bytes of one frame */
#define CREDIT_WINDOW (256u * 1024u)     /* default window of a stream */

/* Sender's side. */
struct credit_out {
	uint64_t left;
};
/* How much of `want` may be sent now in one frame. */
uint32_t credit_out_take(struct credit_out *out, uint64_t want);
/* A grant; false (and unchanged) when the sum would pass 2^40: the peer is mad. */
bool credit_out_grant(struct credit_out *out, uint64_t bytes);

/* Receiver's side: grants again when half of the window was consumed. */
struct credit_in {
	uint32_t window;
	uint64_t granted;   /* outstanding: granted and not yet received */
	uint64_t consumed;  /* received and consumed, not granted again yet */
};
void credit_in_init(struct credit_in *in, uint32_t window);
/* Data arrived; false: more than was granted, the peer broke the rule. */
bool credit_in_receive(struct credit_in *in, uint64_t bytes);
/* The application consumed; returns what to grant now, 0 for nothing yet. */
uint32_t credit_in_consume(struct credit_in *in, uint64_t bytes);
