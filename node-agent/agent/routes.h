/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells croft-gateway which sandboxes there are: everything on each new connection to its admin
 * socket, then every change. The gateway may be down or start later; this side connects again with
 * back-off and never waits. An access token leaves the agent hashed only. What the gateway tells of calls
 * comes out of on_calls, each batch once in the life of this object.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "pb/node.pb-c.h"

struct event_base;
struct routes;

/* The calls are kept when it returns. */
typedef void (*routes_on_calls)(const Croft__GatewayCalls *calls, void *user);

int routes_new(struct routes **ret, struct event_base *base, const char *admin_path, routes_on_calls on_calls,
	void *user, struct err *reterr);
void routes_free(struct routes *routes);

/* Adds or changes. access_token "": none is needed. 0 or -ENOMEM. */
int routes_set(struct routes *routes, const char *sandbox, const char *vsock_path,
	const char *access_token, bool ready);
void routes_unset(struct routes *routes, const char *sandbox);

/* Takes over an entry for the node's audit log, which the gateway writes: an object with `kind` and `sandbox`. While there is no
 * gateway the last ROUTES_AUDIT_MAX wait. */
#define ROUTES_AUDIT_MAX 256u
void routes_audit(struct routes *routes, json_t *entry);
