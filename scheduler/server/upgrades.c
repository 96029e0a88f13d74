/* SPDX-License-Identifier: Apache-2.0
 *
 * See upgrades.h.
 */
#include "server/upgrades.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/api.h"
#include "server/message.h"
#include "server/shell.h"
#include "server/view.h"
#include "wire/json.h"

enum upgrade_state { UPGRADE_OFFERED, UPGRADE_TAKEN, UPGRADE_REFUSED };

struct upgrade {
	char node[ID_SIZE];
	char operation[ID_SIZE];
	char digest[DIGEST_SIZE];
	char path[PATH_MAX]; /* "": its bytes are gone */
	enum upgrade_state state;
	int64_t offered_us;
	struct err failure;
	UT_hash_handle hh;
};

static struct upgrade *find(const struct server *server, const char *node)
{
	struct upgrade *upgrade = NULL;

	HASH_FIND_STR(server->upgrades, node, upgrade);
	return upgrade;
}

static void forget_bytes(struct upgrade *upgrade)
{
	if (*upgrade->path)
		(void)unlink(upgrade->path);
	*upgrade->path = '\0';
}

static int send(struct server *server, const struct upgrade *upgrade, const struct upgrade_offer *offer, struct err *reterr)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__UpgradeOffer message = MESSAGE(Croft__UpgradeOffer, croft__upgrade_offer__init);
	char operation[ID_SIZE], digest[DIGEST_SIZE], signature[UPGRADE_SIGNATURE_MAX];
	struct fleet_node_view view;

	(void)snprintf(operation, sizeof(operation), "%s", upgrade->operation);
	(void)snprintf(digest, sizeof(digest), "%s", upgrade->digest);
	(void)snprintf(signature, sizeof(signature), "%s", offer->signature);
	message.operation = operation;
	message.digest = digest;
	message.size = offer->size;
	message.signature = signature;
	envelope.body_case = CROFT__ENVELOPE__BODY_UPGRADE_OFFER;
	envelope.upgrade_offer = &message;
	if (fleet_node_get(shell_fleet(server->shell), upgrade->node, &view) == 0 && view.link == NODE_READY &&
		link_send(server->link, view.session, &envelope) == LINK_SENT)
		return 0;
	return err_set_at(reterr, STAGE_HOST, FAIL_NODE_UNREACHABLE, ENOTCONN, "the node is not connected");
}

int upgrades_offer(struct server *server, const struct upgrade_offer *offer, struct err *reterr)
{
	struct upgrade *upgrade = find(server, offer->node);
	int r;

	if (!upgrade) {
		upgrade = calloc(1, sizeof(*upgrade));
		if (!upgrade) {
			(void)unlink(offer->path);
			return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for an offer");
		}
		(void)snprintf(upgrade->node, sizeof(upgrade->node), "%s", offer->node);
		HASH_ADD_STR(server->upgrades, node, upgrade);
	}
	forget_bytes(upgrade);
	id_new(&server->rng, upgrade->operation);
	(void)snprintf(upgrade->digest, sizeof(upgrade->digest), "%s", offer->digest);
	(void)snprintf(upgrade->path, sizeof(upgrade->path), "%s", offer->path);
	upgrade->offered_us = clock_realtime_usec();
	upgrade->state = UPGRADE_OFFERED;
	upgrade->failure = (struct err)ERR_NULL;
	r = send(server, upgrade, offer, reterr);
	if (r < 0) {
		upgrade->failure = *reterr;
		upgrade->state = UPGRADE_REFUSED;
		forget_bytes(upgrade);
	}
	return r;
}

void upgrades_on_result(struct server *server, const struct link_message *message, const Croft__UpgradeResult *result)
{
	struct upgrade *upgrade = find(server, message->id);

	if (!upgrade || upgrade->state != UPGRADE_OFFERED || strcmp(upgrade->operation, result->operation) != 0)
		return;
	if (result->failure)
		failure_decode(result->failure, &upgrade->failure);
	upgrade->state = result->failure ? UPGRADE_REFUSED : UPGRADE_TAKEN;
	log_info("a node answered an offered package", "node", message->id, "state", result->failure ? "refused" : "taken", "code",
		result->failure ? failure_info(upgrade->failure.code)->name : NULL);
	forget_bytes(upgrade);
}

const char *upgrades_path(const struct server *server, const char *node, const char *digest)
{
	const struct upgrade *upgrade = find(server, node);

	return upgrade && *upgrade->path && !strcmp(upgrade->digest, digest) ? upgrade->path : NULL;
}

json_t *upgrades_view(const struct server *server, const char *node)
{
	static const char *const names[] = { "offered", "taken", "refused" };
	struct failure_context context = { .responsibility = RESPONSIBILITY_SELF, .node = node };
	const struct upgrade *upgrade = find(server, node);
	struct fleet_node_view at;
	json_t *view;

	if (!upgrade)
		return json_pack("{s:s}", "state", "none");
	if (fleet_node_get(shell_fleet(server->shell), node, &at) == 0)
		context.table = api_responsibility(server, at.record->pool);
	view = json_pack("{s:s, s:s, s:s, s:o}", "state", names[upgrade->state], "operation", upgrade->operation, "digest", upgrade->digest,
		"offered", view_time(upgrade->offered_us));
	if (view && err_is_set(&upgrade->failure))
		(void)json_object_set_new(view, "failure", json_failure(&upgrade->failure, &context));
	return view;
}

void upgrades_free(struct server *server)
{
	struct upgrade *upgrade, *next;

	HASH_ITER (hh, server->upgrades, upgrade, next) {
		forget_bytes(upgrade);
		HASH_DEL(server->upgrades, upgrade);
		free(upgrade);
	}
}
