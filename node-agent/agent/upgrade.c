/* SPDX-License-Identifier: Apache-2.0
 *
 * See upgrade.h.
 */
#include "agent/upgrade.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/helper-link.h"
#include "agent/images.h"
#include "agent/link-send.h"
#include "base/fd.h"
#include "base/log.h"

struct upgrade {
	struct agent *agent;
	char operation[ID_SIZE];
	char digest[DIGEST_SIZE];
	char signature[HELPER_SIGNATURE_SIZE];
	struct image_wait *wait;
	struct event *turn; /* what the images say may not call them back */
	struct err failure;
	bool is_asked; /* the helper */
};

void upgrade_free(struct upgrade *upgrade)
{
	if (!upgrade)
		return;
	image_wait_free(upgrade->wait);
	if (upgrade->is_asked && upgrade->agent->helper)
		helper_link_forget(upgrade->agent->helper, upgrade);
	if (upgrade->turn)
		event_free(upgrade->turn);
	free(upgrade);
}

static void tell(struct agent *agent, const char *operation, const struct err *failure)
{
	if (err_is_set(failure))
		log_failure(LOG_LEVEL_WARN, "an upgrade that the scheduler offers is not done", failure, NULL);
	else
		log_info("an upgrade that the scheduler offers is being installed");
	(void)link_send_upgrade_result(agent->link, operation, failure);
}

static void finish(struct upgrade *upgrade, const struct err *failure)
{
	struct agent *agent = upgrade->agent;
	char path[PATH_MAX];

	if (images_path(agent->images, upgrade->digest, path) == 0) {
		(void)unlink(path);
		(void)strncat(path, ".ok", sizeof(path) - strlen(path) - 1);
		(void)unlink(path);
	}
	tell(agent, upgrade->operation, failure);
	agent->upgrade = NULL;
	upgrade_free(upgrade);
}

static void on_judged(const struct helper_reply *reply, int *fds, size_t n_fds, void *user)
{
	struct upgrade *upgrade = user;

	(void)fds, (void)n_fds;
	upgrade->is_asked = false;
	finish(upgrade, &reply->failure);
}

/* The package is here, or never will be. */
static void on_turn(evutil_socket_t nothing, short what, void *user)
{
	struct upgrade *upgrade = user;
	struct helper_request request = { .type = HELPER_UPGRADE };
	CLEANUP_FD int fd = -1;
	char path[PATH_MAX];

	(void)nothing, (void)what;
	if (!err_is_set(&upgrade->failure)) {
		(void)images_path(upgrade->agent->images, upgrade->digest, path);
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0)
			(void)err_set(&upgrade->failure, FAIL_IO_FAILED, errno, "cannot open the package that was brought");
	}
	if (!err_is_set(&upgrade->failure)) {
		memcpy(request.signature, upgrade->signature, sizeof(request.signature));
		upgrade->is_asked = true;
		if (helper_link_ask(upgrade->agent->helper, &request, &fd, 1, on_judged, upgrade, &upgrade->failure) == 0)
			return;
		upgrade->is_asked = false;
	}
	finish(upgrade, &upgrade->failure);
}

static void on_brought(const struct err *err, void *user)
{
	struct upgrade *upgrade = user;

	upgrade->wait = NULL;
	if (err)
		upgrade->failure = *err;
	event_active(upgrade->turn, EV_TIMEOUT, 0);
}

static int begin(struct agent *agent, const Croft__UpgradeOffer *offer, struct err *reterr)
{
	struct upgrade *upgrade;

	if (agent->upgrade)
		return err_set(reterr, FAIL_CONFLICT, EBUSY, "another package is being brought");
	if (!agent->helper)
		return err_set(reterr, FAIL_HELPER_UNAVAILABLE, ENOTCONN, "this agent has no croft-node-helper");
	upgrade = calloc(1, sizeof(*upgrade));
	if (!upgrade)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for an upgrade");
	upgrade->agent = agent;
	(void)snprintf(upgrade->operation, sizeof(upgrade->operation), "%s", offer->operation);
	(void)snprintf(upgrade->digest, sizeof(upgrade->digest), "%s", offer->digest);
	(void)snprintf(upgrade->signature, sizeof(upgrade->signature), "%s", offer->signature);
	upgrade->turn = evtimer_new(agent->base, on_turn, upgrade);
	if (!upgrade->turn || images_want(agent->images, offer->digest, offer->size, on_brought, upgrade, &upgrade->wait) < 0) {
		upgrade_free(upgrade);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for an upgrade");
	}
	agent->upgrade = upgrade;
	return 0;
}

int upgrade_offered(struct agent *agent, const Croft__UpgradeOffer *offer, struct err *reterr)
{
	struct err failure = ERR_NULL;

	if (!id_is_valid(offer->operation) || !digest_is_valid(offer->digest) || strlen(offer->signature) >= HELPER_SIGNATURE_SIZE)
		return err_set(reterr, FAIL_FRAME_INVALID, EINVAL, "an upgrade is offered without operation, digest or signature");
	if (agent->upgrade && !strcmp(agent->upgrade->operation, offer->operation))
		return 0; /* said twice */
	if (begin(agent, offer, &failure) < 0)
		tell(agent, offer->operation, &failure);
	return 0;
}
