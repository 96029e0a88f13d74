/* SPDX-License-Identifier: Apache-2.0
 *
 * Packages that an operator offers to nodes: one for each node, the newest. Its bytes lie in the blob directory until the node has answered, and
 * are gone with this process; whoever offered one looks what became of it. The node's owner decides (upgrade.policy there), and this
 * scheduler is believed nothing.
 */
#pragma once

#include <jansson.h>

#include "pb/link.pb-c.h"
#include "server/link.h"
#include "server/server.h"

#define UPGRADE_PACKAGE_MAX (UINT64_C(256) << 20)
#define UPGRADE_SIGNATURE_MAX 512u

struct upgrade_offer {
	const char *node, *digest, *signature;
	uint64_t size;
	const char *path; /* of its bytes; the offer's own from here on, and removed by it */
};

/* The path is removed when it fails. NODE_UNREACHABLE: the node is not connected. */
int upgrades_offer(struct server *server, const struct upgrade_offer *offer, struct err *reterr);
void upgrades_on_result(struct server *server, const struct link_message *message, const Croft__UpgradeResult *result);
/* Where the bytes lie that this node may have; NULL: it may not. */
const char *upgrades_path(const struct server *server, const char *node, const char *digest);
/* What became of the node's last one; `state` "none" where there was none. */
json_t *upgrades_view(const struct server *server, const char *node);
void upgrades_free(struct server *server);
