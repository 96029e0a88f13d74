/* SPDX-License-Identifier: Apache-2.0
 *
 * Listens for a guest's hello: one frame with a GuestHello on a connection to vsock port 1 of the
 * host. The first says that it is there, later ones that its kernel killed for want of memory.
 */
#pragma once

#include "base/err.h"
#include "wire/messages.h"

struct event_base;
struct hello_listener;

#define HELLO_PORT 1

struct hello_result {
	char boot_id[BOOT_ID_SIZE];
	struct err failure; /* the guest could not make its root */
	uint64_t oom_kills; /* since its start; not 0: it is none of the first */
};
/* Each time one came; `user`'s listener must not be freed inside. */
typedef void (*hello_fn)(const struct hello_result *hello, void *user);

int hello_listen(struct hello_listener **ret, struct event_base *base, const char *path,
	hello_fn fn, void *user, struct err *reterr);
/* From now on one connection a second: the guest is there, and what it may still have to say can wait. Accepts NULL. */
void hello_slow(struct hello_listener *listener);
/* Accepts NULL. The socket file stays: it goes with the run directory. */
void hello_free(struct hello_listener *listener);
