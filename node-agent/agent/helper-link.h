/* SPDX-License-Identifier: Apache-2.0
 *
 * The agent's connection to croft-node-helper (node-agent/helper). The helper may be down or start later; this side
 * connects again every second. A request that is under way when the connection breaks ends with HELPER_UNAVAILABLE:
 * all of them may be asked again.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "helper/message.h"

struct event_base;
struct helper_link;

/* Called once per request. `fds` are the caller's unless taken (set to -1). On a failure of the link
 * reply->failure is HELPER_UNAVAILABLE. */
typedef void (*helper_done)(const struct helper_reply *reply, int *fds, size_t n_fds, void *user);
/* The helper answered a hello: now, and after each restart of it. */
typedef void (*helper_up)(const struct helper_reply *reply, void *user);

int helper_link_new(struct helper_link **ret, struct event_base *base, const char *path, helper_up up, void *user,
	struct err *reterr);
/* Requests under way are dropped without a word. */
void helper_link_free(struct helper_link *link);

/* `fds` go along and stay the caller's. Returns 0, or -errno with reterr: then `done` is not called. */
int helper_link_ask(struct helper_link *link, struct helper_request *request, const int *fds, size_t n_fds,
	helper_done done, void *user, struct err *reterr);
/* Nobody waits for this user's answers any more; the requests take effect all the same. */
void helper_link_forget(struct helper_link *link, const void *user);
