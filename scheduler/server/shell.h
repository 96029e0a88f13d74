/* SPDX-License-Identifier: Apache-2.0
 *
 * The shell around the fleet: events go in through shell_step(), records go to the store, and what a step said
 * (sends, replies, stages) leaves only when its batch and every earlier one is durable (fleet.h, THE COMMIT
 * RULE). The shell's own records (a token, a template) take the same queue.
 *
 * When a commit fails everything held is answered with the failure, the fleet is told, and once a second the
 * store is tried again; when it writes, registry and fleet are made anew from it.
 */
#pragma once

#include "server/ops.h"
#include "server/server.h"

/* `err` NULL: durable. */
typedef void (*shell_done)(const struct err *err, void *user);

int shell_new(struct shell **ret, struct server *server, struct err *reterr);
void shell_free(struct shell *shell);
/* The process ends: everything held is answered with `err`. */
void shell_abort(struct shell *shell, const struct err *err);
/* Makes the fleet from the store. */
int shell_load(struct shell *shell, struct err *reterr);

/* One event. `extra` (may be NULL) belongs to the same batch; its operations are taken out. `done` may be NULL. It may
 * be called before shell_step() returns. */
void shell_step(struct shell *shell, const struct fleet_event *event, struct ops *extra,
	shell_done done, void *user);
/* Records without an event. */
void shell_commit(struct shell *shell, struct ops *ops, shell_done done, void *user);

const struct fleet *shell_fleet(const struct shell *shell);
struct asked;
/* Of all that lives and is remembered; another one after shell_load(). */
const struct asked *shell_asked(const struct shell *shell);
/* The failure that holds all changes; NULL: none. */
const struct err *shell_failure(const struct shell *shell);
/* The disk is full: what only ends something is taken, what makes something is not. */
bool shell_is_tight(const struct shell *shell);
/* Rises whenever a node may have been revoked or be gone. */
uint64_t shell_node_changes(const struct shell *shell);
/* fleet_node_handle(), valid until then. */
struct node *shell_node_handle(const struct shell *shell, const char *id);
/* Batches that are not durable yet. */
size_t shell_held(const struct shell *shell);
