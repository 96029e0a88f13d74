/* SPDX-License-Identifier: Apache-2.0
 *
 * Logs whose entries are chained by their hashes: the scheduler's audit log and the nodes'. An entry is a JSON object;
 * chain_add() gives it `seq`, from 1 on, and `prev`, the hash of the one before it. Its own hash is the SHA-256 of its
 * text: compact, members sorted, ASCII, as `jq -caS` prints it. So nothing before the last entry can be changed, dropped or
 * moved without every later hash being another one; that the end was cut off, or all of it written anew, only a head that
 * was kept elsewhere shows.
 *
 * Personal fields are no part of the entry: it has their SHA-256 as `who`, and they carry a salt, so that they can be
 * erased without the chain being broken and not be guessed afterwards. Beside an entry they stand as `personal`, its hash
 * as `hash`.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/util.h"

#define CHAIN_HASH_SIZE 65
#define CHAIN_HASH_NONE "0000000000000000000000000000000000000000000000000000000000000000"

/* An entry by its number and hash; of one that has none yet seq 0 and CHAIN_HASH_NONE. */
struct chain {
	uint64_t seq;
	char hash[CHAIN_HASH_SIZE];
};
#define CHAIN_NEW ((struct chain){ 0, CHAIN_HASH_NONE })

/* SHA-256 of an object's text, in hex. 0 or -ENOMEM. */
int chain_hash(const json_t *object, char ret[static CHAIN_HASH_SIZE]);
/* Makes `entry` the next one, and *head it; *ret_text, the caller's, is what was hashed. 0 or -ENOMEM, with *head
 * unchanged. */
int chain_add(struct chain *head, json_t *entry, char **ret_text);

enum chain_result {
	CHAIN_OK,
	CHAIN_NO_ENTRY, /* members are missing */
	CHAIN_MISSING,  /* entries before it are */
	CHAIN_ORDER,    /* it belongs further up */
	CHAIN_PREV,     /* the one before it was another when this was written */
	CHAIN_CHANGED,  /* it is not as it was written */
	CHAIN_PERSONAL, /* its personal fields are not */
	CHAIN_RESULT_MAX_
};
/* Whether `entry` is the next one; then *head is. */
enum chain_result chain_check(struct chain *head, const json_t *entry) MUST_USE;
/* "was changed after it was written" */
const char *chain_result_text(enum chain_result result);
