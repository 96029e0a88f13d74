/* SPDX-License-Identifier: Apache-2.0
 *
 * The helper's socket: a few connections of the agent's user, one packet a request, answered before the next is read.
 * A peer that does not take its answers is cut off; nothing waits for it.
 */
#pragma once

#include <sys/types.h>

#include "helper/table.h"

struct event_base;
struct server;

struct server_config {
	const char *path;
	uid_t uid; /* who may connect, besides root */
	gid_t gid; /* of the socket file */
};

int server_new(struct server **ret, struct event_base *base, struct helper *helper,
	const struct server_config *config, struct err *reterr);
void server_free(struct server *server);
