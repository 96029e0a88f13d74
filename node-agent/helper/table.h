/* SPDX-License-Identifier: Apache-2.0
 *
 * The helper's whole power, as one table: each request with what a connection must have said before, the states of
 * the sandbox in which it is permitted, and the descriptors that come with it. What the table does not permit never
 * reaches a handler (the shape of OpenSSH's monitor).
 *
 * A sandbox's state is read from the kernel for each request (its slot, its control group, whether a process is in
 * that), never remembered, so that a restarted helper decides the same.
 */
#pragma once

#include <stdbool.h>

#include "helper/exits.h"
#include "helper/group.h"
#include "helper/message.h"
#include "helper/options.h"
#include "network/host.h"

enum helper_state {
	HELPER_STATE_NONE = 1,    /* nothing of it exists */
	HELPER_STATE_HELD = 2,    /* a slot or a control group, and no process in it */
	HELPER_STATE_RUNNING = 4, /* a process lives in its control group */
};

struct helper {
	const struct helper_options *options;
	struct net_host *host;      /* NULL: `network_failure` says why */
	struct err network_failure;
	struct groups groups;       /* root -1: `groups_failure` */
	struct err groups_failure;
	int disks;                  /* -1: none are opened */
	uid_t agent_uid;
	gid_t agent_gid;
	struct helper_exits exits;  /* of the VMMs that it started */
};

/* What the host lets us have; what is missing is said to who asks. IO_FAILED and the like of what must be. */
int helper_open(struct helper *helper, const struct helper_options *options, uid_t agent_uid, gid_t agent_gid,
	struct err *reterr);
void helper_close(struct helper *helper);

/* `greeted`: of the connection; hello sets it. `fds` came with the request and stay the caller's. Fills *reply and at
 * most HELPER_FDS_MAX descriptors for it, the caller's. */
void helper_perform(struct helper *helper, bool *greeted, const struct helper_request *request, const int *fds,
	size_t n_fds, struct helper_reply *reply, int *ret_fds, size_t *ret_n_fds);
