/* SPDX-License-Identifier: Apache-2.0
 *
 * The audit log: who asked for what change, when, and what became of it; entries chained by their hashes (wire/chain.h) in the
 * store, under audit/. A change is written in one batch with the entry that it was asked for: there is none without. What
 * came of it is a second entry (`outcome`), or the only one where nothing was written before the answer. A request of
 * whose entries the last one says "asked" was cut off.
 *
 * An entry names keys, and objects by their ids; names that people choose are personal fields, stored apart. Requests that
 * only read are no entries, nor are those without a valid key: both are bounded by nobody.
 *
 * While the store cannot be written entries wait in memory; those over AUDIT_WAITING_MAX are dropped, and the log says how
 * many. Over limits.audit_count the oldest go: the log says so, with the hash that the rest follows.
 */
#pragma once

#include "server/api.h"
#include "wire/chain.h"

#define AUDIT_WAITING_MAX 4096u
#define AUDIT_PAGE_MAX 1000u

struct audit;

int audit_new(struct audit **ret, struct server *server, struct err *reterr);
void audit_free(struct audit *audit);
/* Head and base from the store: at the start, and again when it was written to in vain. */
int audit_load(struct audit *audit, struct err *reterr);

/* A request that is about to be handled; nothing for those that change nothing. */
void audit_asked(struct api_request *req);
/* It was answered; 0: its client left before. */
void audit_answered(struct api_request *req, int status);
/* Whom `by` names did something that was no request: "node", "operator". */
void audit_note(struct audit *audit, const char *role, const char *by, const char *verb, const char *object);

/* From the shell: adds what waits to a batch. */
void audit_take(struct audit *audit, struct ops *ops);
/* Hands over what waits, for a process that ends. */
void audit_flush(struct audit *audit);

struct audit_state {
	struct chain head, base; /* the last entry; the one before the first that is kept */
	uint64_t n_waiting, n_dropped;
};
void audit_state(const struct audit *audit, struct audit_state *ret);

/* Records of the store as JSON: an entry with its `hash`, and its personal fields. NULL: `reterr`. */
json_t *audit_entry(const char *key, const void *value, size_t size, struct err *reterr);
json_t *audit_personal(const char *key, const void *value, size_t size, struct err *reterr);

/* A head or base of the store. */
int audit_read_mark(const char *key, const void *value, size_t size, struct chain *ret, struct err *reterr);

/* An entry that a program without a scheduler appends (restore). */
int audit_append(struct store *store, struct ops *ops, const char *verb, const char *object, struct err *reterr);
