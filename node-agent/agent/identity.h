/* SPDX-License-Identifier: Apache-2.0
 *
 * Who this node is: the identity file that `join` wrote into the state directory, the key file that
 * it names (mode 0600), the random id of the directory itself; and the join token, which is a text
 * file of the same form:
 *
 *   # croft join token                       # croft node
 *   scheduler = tcp://host:7281[,tcp://...]  node = <id>
 *   scheduler_tls = tls://host:443[,...]     pool = <name>
 *   scheduler_key = <Z85>                    scheduler_old_key, scheduler_told[_tls] = ...
 *   scheduler_next_key = <Z85>               key_file = node-<token id>.key
 *   token_id = <id>                          scheduler = ...
 *   token_public = <Z85>                     scheduler_key = ...
 *   token_secret = <Z85>                     scheduler_next_key = ...
 *   pool = <name>
 *   expires = <RFC 3339>
 *
 * `scheduler` may be given several times, and scheduler_tls as well: older versions pass that over. Keys that this version does not know are passed over, so
 * that a newer scheduler may add some. The identity is one file that is replaced atomically: a
 * crash during a join leaves either the old node or the new one.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "wire/endpoint.h"

#define SCHEDULERS_MAX 8
#define ADDRESS_SIZE 256

struct scheduler_address {
	char addresses[SCHEDULERS_MAX][ADDRESS_SIZE]; /* "tcp://..." and "tls://..." */
	unsigned int n_addresses;
	unsigned int n_own; /* the first ones: of the token or set here; the others were told by the scheduler */
	char key[KEY_Z85_SIZE];
	char next_key[KEY_Z85_SIZE]; /* empty: none */
	char old_key[KEY_Z85_SIZE];  /* likewise; served until an overlap is over */
};

/* Pairs of address and key, the likeliest first. */
unsigned int scheduler_n_targets(const struct scheduler_address *scheduler);
const char *scheduler_target(const struct scheduler_address *scheduler, unsigned int n, const char **ret_key);

struct link_set;
/* What a welcome over a link with `used_key` tells, as far as it is to be believed: a key that was known as the next one, a next
 * one that comes with the present one while none is known, addresses behind our own. False: nothing is new. */
bool scheduler_learn(struct scheduler_address *mine, const struct link_set *told, const char *used_key);

struct identity {
	char node[ID_SIZE];
	char pool[ID_NAME_MAX + 1];
	char key_file[64]; /* in the state directory */
	struct scheduler_address scheduler;
};

struct join_token {
	char id[ID_NAME_MAX + 1];
	char pool[ID_NAME_MAX + 1];
	struct curve_keys keys;
	struct scheduler_address scheduler;
	int64_t expires_us; /* 0: not said */
};

/* NOT_JOINED when there is none, STATE_UNREADABLE when it cannot be read. */
int identity_read(const char *state, struct identity *ret, struct err *reterr);
int identity_write(const char *state, const struct identity *identity, struct err *reterr);

/* JOIN_TOKEN_INVALID naming the line, JOIN_TOKEN_EXPIRED (`now_us` 0: whatever the clock says). */
int join_token_read(const char *file, int64_t now_us, struct join_token *ret, struct err *reterr);

/* The random id of the state directory; made at the first call. */
int machine_id(const char *state, char ret[static ID_SIZE], struct err *reterr);

/* Two agents on one state directory would both start its sandboxes. Returns a descriptor that holds
 * the lock until it is closed, or STATE_LOCKED. */
int state_lock(const char *state, struct err *reterr);
/* Whether somebody holds it; takes nothing. */
bool state_is_locked(const char *state);
