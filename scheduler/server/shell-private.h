/* SPDX-License-Identifier: Apache-2.0
 *
 * What shell.c and shell-load.c share.
 */
#pragma once

#include <sys/queue.h>

#include "server/asked.h"
#include "server/history.h"
#include "server/shell.h"

struct held {
	TAILQ_ENTRY(held) link;
	struct shell *shell;
	bool is_dead;   /* answered with a failure; waits for its store batches alone */
	bool tell;      /* the fleet wants to know that it is durable */
	size_t n_parts; /* store batches not yet answered */
	struct fleet_actions actions;
	shell_done done;
	void *user;
};
TAILQ_HEAD(held_list, held);

struct shell {
	struct server *server;
	struct fleet *fleet;
	struct held_list held, dead;
	size_t n_held;
	struct held *spare; /* zeroed, for the next step that says nothing; NULL: none */
	bool is_releasing;
	bool is_tight; /* as the fleet was told */
	unsigned int tends;
	struct err failure;
	struct history history;
	struct asked *asked; /* NULL: before the first load */
	struct event *tick, *alive, *recover, *forget;
	int64_t tick_usec, ticked_usec; /* for when `tick` is armed, INT64_MAX: not; and when it last was due */
	uint64_t node_changes;          /* of who is a node, and who was revoked; from 1 */
	int64_t alive_usec; /* when the loop was last seen to turn */
};

void shell_log_notices(struct shell *shell, const struct fleet_actions *actions);
/* A record that is durable: its stages are counted, and its end is remembered. */
void shell_count_sandbox(struct shell *shell, const struct sandbox_record *record, bool is_over);
