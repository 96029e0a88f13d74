/* SPDX-License-Identifier: Apache-2.0
 *
 * The books: what nodes say that sandboxes have used (store/usage-db.h), in a thread of its own. A report is acknowledged when it is
 * durable. A node speaks of sandboxes that run there, or did: whose they are says the fleet; of those that it does not know any more
 * the node does, for tenants of its pool's customer; in a shared pool for the one whom another account of that sandbox is of. Else it is
 * nobody's. What such words may take of memory and disk is bounded.
 */
#pragma once

#include <jansson.h>
#include <sys/queue.h>

#include "pb/link.pb-c.h"
#include "server/link.h"
#include "server/server.h"

#define BOOKS_KEEP_US (INT64_C(400) * 24 * 3600 * 1000 * 1000)
#define BOOKS_QUESTIONS_MAX 16u
#define BOOKS_CUSTOMER_MAX 8u /* of them, of one customer's keys */
#define BOOKS_TENANTS_MAX 1024u /* that one question is about */
#define BOOKS_ROWS_MAX 10000u
#define BOOKS_TAKINGS_MAX 4u /* reports of one node at a time */
#define BOOKS_HEARSAY_MAX (4096u + USAGE_RECORDS_MAX) /* accounts of sandboxes that only one node knows: as many as it keeps; then one a minute */

struct books;

int books_new(struct books **ret, struct server *server, struct err *reterr);
void books_free(struct books *books);

void books_on_report(struct books *books, const struct link_message *message, const struct usage_report *report);

enum books_by { BOOKS_BY_SANDBOX, BOOKS_BY_TENANT, BOOKS_BY_ACCOUNT };

struct books_question {
	char (*tenants)[ID_NAME_MAX + 1]; /* NULL: of all; freed with it */
	size_t n_tenants;
	char customer[ID_NAME_MAX + 1]; /* whose keys ask; "": the provider's */
	char sandbox[ID_SIZE], pool[ID_NAME_MAX + 1], node[ID_SIZE]; /* "": any */
	int64_t from_us, to_us; /* from 0: all that there is */
	enum books_by by;
	void (*done)(struct books_question *question); /* on the loop; frees nothing */
	void *user;
	/* the answer */
	struct err err;
	json_t *rows;
	bool has_more;
	json_t *lost; /* {pool: {component: microseconds}}: whose it is says the pool's table */
	uint64_t n_dropped, n_accepted, n_rejected;
	int64_t oldest_us, as_of_us;
	LIST_ENTRY(books_question) link;
	struct books *books; /* NULL: not asked yet */
	bool is_forgotten;
};
/* Takes the question over, whatever comes of it: it is freed when it was answered, or forgotten. SCHEDULER_BUSY: there are BOOKS_QUESTIONS_MAX.
 * RATE_LIMITED: the customer has BOOKS_CUSTOMER_MAX of them. */
int books_ask(struct books *books, struct books_question *question, struct err *reterr);
/* Whoever asked is gone: done() does not come. */
void books_forget(struct books_question *question);
void books_question_free(struct books_question *question);

/* What its tenant says of a sandbox's result; done() comes on the loop when it is durable (`err` NULL) or is not. */
int books_mark(struct books *books, const char *tenant, const char *sandbox, bool is_accepted,
	void (*done)(const struct err *err, void *user), void *user, struct err *reterr);

struct books_counts {
	uint64_t records, repeated, failed, left_out;
};
/* As much as there is room for. */
json_int_t books_add(json_int_t a, json_int_t b);
struct books_counts books_count(const struct books *books);
