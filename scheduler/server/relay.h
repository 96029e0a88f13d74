/* SPDX-License-Identifier: Apache-2.0
 *
 * The data path through the scheduler: a request for a sandbox (its API, its ports, its files) is passed on to the
 * gateway of the sandbox's node over the link, and the answer back, piece by piece with back-pressure. Each request is
 * routed by itself. The gateway judges x-access-token; croft's own keys are never passed on.
 */
#pragma once

#include <stdbool.h>

#include "pb/link.pb-c.h"
#include "server/api.h"
#include "server/server.h"

struct relay;

int relay_new(struct relay **ret, struct server *server, struct err *reterr);
void relay_free(struct relay *relay);
/* true: the request is for a sandbox and is taken care of. */
bool relay_takes(struct relay *relay, struct api_request *req);
/* Asks the gateway of the sandbox's node for `path` (a literal), on behalf of who has its `token`. The answer becomes the request's.
 * A sandbox that sleeps is not woken. */
void relay_ask(struct relay *relay, struct api_request *req, const char *sandbox, const char *path, const char *token);
void relay_on_message(struct relay *relay, uint64_t session, const Croft__Envelope *envelope);
size_t relay_count(const struct relay *relay);
