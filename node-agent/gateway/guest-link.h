/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection to croft-guest: the VMM's unix socket, its CONNECT handshake, then frames of guest.proto. One
 * connection carries one request. Memory is bounded by `frame_max` towards us and GUEST_FRAME_MAX towards the
 * guest; while it is paused nothing is read, so a process in the guest stops writing.
 */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "gateway/guest-wire.h"

struct event_base;
struct guest_link;

struct guest_link_config {
	const char *path;           /* of the VMM's socket */
	uint32_t frame_max;         /* of a frame from the guest */
	int64_t answer_timeout_us;  /* from now to the first event; 0: no limit */
};

struct guest_link_handler {
	/* One event; may pause or free the link. The event ends with the call. */
	void (*on_event)(const struct guest_event *event, void *user);
	/* The connection is over: GUEST_UNREACHABLE (refused, silent, closed) or GUEST_PROTOCOL. Once; nothing
	 * follows. The owner still frees the link, here or later. */
	void (*on_closed)(const struct err *err, void *user);
};

/* GUEST_UNREACHABLE when nothing listens at the path, HOST_LIMIT, NO_MEMORY, IO_FAILED. No callback comes from
 * within. */
int guest_link_new(struct guest_link **ret, struct event_base *base, const struct guest_link_config *config,
	const struct guest_link_handler *handler, void *user, struct err *reterr);
void guest_link_free(struct guest_link *link);

/* Where requests are appended with the functions of guest-wire.h, then guest_link_flush(). */
struct buf *guest_link_out(struct guest_link *link);
void guest_link_flush(struct guest_link *link);

void guest_link_pause(struct guest_link *link);
void guest_link_resume(struct guest_link *link);
