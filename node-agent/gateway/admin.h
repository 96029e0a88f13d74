/* SPDX-License-Identifier: Apache-2.0
 *
 * The socket on which the agent tells the gateway its routes (node.proto). Updates are applied in the order in
 * which they come and acknowledged when they are in force. While no agent is connected the routes stay. The agent is told
 * which calls were made (calls.h), where it says that it takes that.
 */
#pragma once

#include "base/err.h"
#include "gateway/route.h"

struct event_base;
struct admin;
struct audit;
struct calls;

/* LISTEN_FAILED, SOCKET_PATH_TOO_LONG, NO_MEMORY. `routes`, `calls` and `audit` are borrowed and
 * outlive the admin. */
int admin_new(struct admin **ret, struct event_base *base, const char *path, struct route_table *routes,
	struct calls *calls, struct audit *audit, struct err *reterr);
void admin_free(struct admin *admin);
