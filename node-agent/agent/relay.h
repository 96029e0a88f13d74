/* SPDX-License-Identifier: Apache-2.0
 *
 * Relayed streams: the scheduler opens one over the link, it ends at this node's gateway (its HTTP
 * unix socket). Bytes are passed on unread in both directions; each side sends at most what the
 * other granted, so a slow reader costs two windows and delays nobody. The node's configuration may
 * forbid it (RELAY_DISABLED); a gateway that is down is GATEWAY_UNAVAILABLE. A cut link ends all
 * streams: what runs in the sandboxes goes on.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct event_base;
struct relay;

/* How to send; false: no room now, it is tried again. */
struct relay_sender {
	bool (*data)(uint64_t stream, const void *data, size_t size, bool end, void *user);
	bool (*credit)(uint64_t stream, uint32_t bytes, void *user);
	bool (*close)(uint64_t stream, const struct err *failure, void *user);
};

struct relay_config {
	bool enabled;
	size_t max_streams;
	const char *gateway_path; /* borrowed */
};

int relay_new(struct relay **ret, struct event_base *base, const struct relay_config *config,
	const struct relay_sender *sender, void *user, struct err *reterr);
void relay_free(struct relay *relay);

void relay_open(struct relay *relay, uint64_t stream, uint32_t credit);
void relay_data(struct relay *relay, uint64_t stream, const void *data, size_t size, bool end);
void relay_credit(struct relay *relay, uint64_t stream, uint32_t bytes);
/* The other side ended it. */
void relay_close(struct relay *relay, uint64_t stream);
/* The link is cut: all streams end, nothing is sent. */
void relay_reset(struct relay *relay);
size_t relay_count(const struct relay *relay);
