/* SPDX-License-Identifier: Apache-2.0
 *
 * See books.h.
 */
#include "server/books.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "server/ended.h"
#include "server/message.h"
#include "server/rate.h"
#include "server/shell.h"
#include "server/telemetry.h"
#include "server/worker.h"
#include "store/usage-db.h"
#include "wire/json.h"

#define EXPIRE_EVERY_S 3600
#define AHEAD_US (60 * USEC_PER_SEC) /* that a node's clock may be of this one */
#define SAY_AGAIN_USEC (60 * USEC_PER_SEC)

LIST_HEAD(taking_list, taking);
LIST_HEAD(question_list, books_question);
LIST_HEAD(marking_list, marking);

/* A node that tells of sandboxes which only it knows. */
struct teller {
	char node[ID_SIZE];
	struct rate hearsay;
	UT_hash_handle hh;
};

struct books {
	struct taking_list takings; /* with the thread */
	struct question_list questions;
	struct marking_list markings; /* with the thread */
	struct server *server;
	struct worker *worker;
	struct event *timer;
	size_t n_questions;
	struct books_counts counts;
	bool is_failing;
	struct teller *tellers;
	int64_t told_usec; /* that something was left out */
	struct usage_db *db; /* the thread's */
};

/* ---- what comes in ---- */

struct taking {
	LIST_ENTRY(taking) link;
	struct books *books;
	uint64_t session, number, n_dropped;
	char node[ID_SIZE];
	struct usage_account *accounts;
	size_t n, n_new;
	bool is_partial; /* some of the report was left out */
	struct err err;
};

static void taking_free(struct taking *taking)
{
	LIST_REMOVE(taking, link);
	free(taking->accounts);
	free(taking);
}

static void work_take(void *arg)
{
	struct taking *taking = arg;
	struct usage_db *db = taking->books->db;
	int r = usage_db_begin(db, &taking->err);

	for (size_t i = 0; i < taking->n && r == 0; i++) {
		bool is_new = false;

		r = usage_db_take(db, &taking->accounts[i], &is_new, &taking->err);
		taking->n_new += is_new;
	}
	if (r == 0 && taking->n_dropped > 0)
		r = usage_db_put_dropped(db, taking->node, taking->n_dropped, &taking->err);
	(void)usage_db_end(db, r, &taking->err);
}

static void done_take(void *arg)
{
	struct taking *taking = arg;
	struct books *books = taking->books;
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__UsageAck ack = MESSAGE(Croft__UsageAck, croft__usage_ack__init);
	const bool has_failed = err_is_set(&taking->err);

	if (has_failed && !books->is_failing)
		log_failure(LOG_LEVEL_ERROR, "what sandboxes used is not written; their nodes keep it", &taking->err, NULL);
	books->is_failing = has_failed;
	books->counts.failed += has_failed;
	if (!has_failed) {
		books->counts.records += taking->n_new;
		books->counts.repeated += taking->n - taking->n_new;
	}
	if (!has_failed && !taking->is_partial) {
		ack.number = taking->number;
		envelope.body_case = CROFT__ENVELOPE__BODY_USAGE_ACK;
		envelope.usage_ack = &ack;
		(void)link_send(books->server->link, taking->session, &envelope);
	}
	taking_free(taking);
}

static bool find_owner(const struct server *server, const struct usage_record *used, struct fleet_owner *ret)
{
	const struct ended_sandbox *ended;

	if (fleet_sandbox_owner(shell_fleet(server->shell), used->sandbox, used->generation, ret))
		return true;
	ended = telemetry_ended(server->telemetry, used->sandbox);
	if (ended)
		*ret = (struct fleet_owner){ .tenant = ended->took && ended->took == used->generation ? FLEET_WARM_TENANT : ended->tenant,
			.node = ended->node,
			.generation = ended->generation };
	return ended != NULL;
}

static bool may_use(const struct server *server, const struct pool_entry *pool, const char *name)
{
	const struct tenant_entry *tenant = registry_tenant(&server->registry, name);

	return pool && tenant && (pool->record.shared || !strcmp(pool->record.customer, tenant->customer));
}

/* Whose a sandbox is; "": nobody's, as far as this node may say. */
static void judge(const struct server *server, struct usage_account *account)
{
	const struct pool_entry *pool = registry_pool(&server->registry, account->pool);
	struct usage_record *used = &account->used;
	struct fleet_owner owner = { .tenant = used->tenant };
	bool is_believed = may_use(server, pool, used->tenant), is_here;
	char tenant[sizeof(used->tenant)];

	if (find_owner(server, used, &owner)) {
		is_here = owner.node && !strcmp(owner.node, account->node);
		is_believed = is_here || (is_believed && !strcmp(owner.tenant, used->tenant)); /* it was here before it was there */
		account->is_hearsay = used->generation > owner.generation;
	} else { /* it ended long ago; in a pool of all customers nobody's node says whose it was */
		account->is_hearsay = true;
		account->is_unproven = pool && pool->record.shared;
	}
	(void)snprintf(tenant, sizeof(tenant), "%s", is_believed ? owner.tenant : "");
	memcpy(used->tenant, tenant, sizeof(tenant));
}

/* A node's clock may say anything. What it counted was in the time that is kept, and not after now: else it was until now. */
static void straighten(struct usage_record *used, int64_t now_us)
{
	const int64_t since_us = now_us - BOOKS_KEEP_US, length_us = used->until_us - used->began_us;

	if (used->until_us < since_us || used->until_us > now_us + AHEAD_US) {
		used->until_us = now_us;
		used->began_us = now_us - length_us;
	}
	used->began_us = MIN(MAX(used->began_us, since_us), used->until_us);
}

/* Of sandboxes that nobody else knows a node tells as many as it keeps, and one a minute from then on: else the disk was its own. */
static bool may_tell(struct books *books, const char *node, int64_t now_usec)
{
	struct teller *teller = NULL;
	uint64_t left, wait_s;

	HASH_FIND_STR(books->tellers, node, teller);
	if (!teller) {
		teller = calloc(1, sizeof(*teller));
		if (!teller)
			return false;
		(void)snprintf(teller->node, sizeof(teller->node), "%s", node);
		HASH_ADD_STR(books->tellers, node, teller);
		if (!teller->hh.tbl) { /* uthash had no memory */
			free(teller);
			return false;
		}
	}
	return rate_take(&teller->hearsay, now_usec / 60, 1, BOOKS_HEARSAY_MAX, &left, &wait_s);
}

/* True: all of it. What is left out the node tells again, since it is not acknowledged. */
static bool take_accounts(struct taking *taking, const struct usage_report *report, const char *pool)
{
	const int64_t now_us = clock_realtime_usec(), now_usec = clock_monotonic_usec();

	for (size_t i = 0; i < report->n; i++) {
		struct usage_account *account = &taking->accounts[taking->n];

		*account = (struct usage_account){ .used = report->records[i], .heard_us = now_us };
		(void)snprintf(account->node, sizeof(account->node), "%s", taking->node);
		(void)snprintf(account->pool, sizeof(account->pool), "%s", pool);
		judge(taking->books->server, account);
		straighten(&account->used, now_us);
		if (!account->is_hearsay || may_tell(taking->books, taking->node, now_usec))
			taking->n++;
	}
	return taking->n == report->n;
}

/* Those of one node that are with the thread: it asks for no more than its share of that. */
static unsigned int under_way(const struct books *books, const char *node)
{
	const struct taking *taking;
	unsigned int n = 0;

	LIST_FOREACH (taking, &books->takings, link)
		n += !strcmp(taking->node, node);
	return n;
}

static void say_left_out(const struct taking *taking, size_t n)
{
	const int64_t now_usec = clock_monotonic_usec();
	struct books *books = taking->books;
	struct err err = ERR_NULL;

	books->counts.left_out += n;
	if (books->told_usec && now_usec - books->told_usec < SAY_AGAIN_USEC)
		return;
	books->told_usec = now_usec;
	(void)err_set(&err, FAIL_RATE_LIMITED, EBUSY, "%zu accounts are of sandboxes that only this node knows: more than it may tell", n);
	log_failure(LOG_LEVEL_WARN, "usage is left out", &err, "node", taking->node, NULL);
}

void books_on_report(struct books *books, const struct link_message *message, const struct usage_report *report)
{
	struct taking *taking = under_way(books, message->id) < BOOKS_TAKINGS_MAX ? calloc(1, sizeof(*taking)) : NULL;
	struct fleet_node_view view;
	struct err err = ERR_NULL;

	if (taking)
		taking->accounts = calloc(report->n + 1, sizeof(*taking->accounts));
	if (!taking || !taking->accounts || fleet_node_get(shell_fleet(books->server->shell), message->id, &view) < 0) {
		free(taking ? taking->accounts : NULL);
		free(taking);
		return; /* the node sends it again */
	}
	LIST_INSERT_HEAD(&books->takings, taking, link);
	taking->books = books;
	taking->session = message->session;
	taking->number = report->number;
	taking->n_dropped = MIN(report->n_dropped, (uint64_t)INT64_MAX);
	(void)snprintf(taking->node, sizeof(taking->node), "%s", message->id);
	taking->is_partial = !take_accounts(taking, report, view.record->pool);
	if (taking->is_partial)
		say_left_out(taking, report->n - taking->n);
	if ((taking->is_partial && taking->n == 0) || worker_add(books->worker, work_take, done_take, taking, &err) < 0)
		taking_free(taking);
}

struct books_counts books_count(const struct books *books)
{
	return books->counts;
}

/* ---- what is asked ---- */

void books_question_free(struct books_question *question)
{
	if (question->books) {
		LIST_REMOVE(question, link);
		question->books->n_questions--;
	}
	json_decref(question->rows);
	json_decref(question->lost);
	free(question->tenants);
	free(question);
}

static json_t *time_or_null(int64_t when_us)
{
	char text[CLOCK_RFC3339_SIZE];

	return when_us > 0 ? json_string(clock_format_rfc3339(when_us, text, sizeof(text))) : json_null();
}

static void see(struct books_question *question, json_t *row, int64_t as_of_us)
{
	if (json_array_size(question->rows) >= BOOKS_ROWS_MAX) {
		question->has_more = true;
		json_decref(row);
		return;
	}
	if (as_of_us > 0)
		question->as_of_us = question->as_of_us ? MIN(question->as_of_us, as_of_us) : as_of_us;
	(void)json_array_append_new(question->rows, row);
}

static void add_sums(const struct usage_sums *sums, void *user)
{
	json_t *row = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o}", "tenant", sums->tenant,
		"accounts", (json_int_t)sums->n, "running_us", (json_int_t)sums->running_us, "paused_us",
		(json_int_t)sums->paused_us, "disk_us", (json_int_t)sums->disk_us, "cpu_us", (json_int_t)sums->cpu_us,
		"egress_bytes", (json_int_t)sums->egress_bytes, "uncounted_us", (json_int_t)sums->uncounted_us, "spread_us",
		(json_int_t)sums->spread_us, "open", (json_int_t)sums->n_open, "cpu_s", (double)sums->cpu_us / 1e6,
		"memory_gib_s", sums->memory_gib_s, "disk_gib_s", sums->disk_gib_s, "as_of",
		time_or_null(sums->as_of_us));

	if (*sums->sandbox)
		(void)json_object_set_new(row, "sandbox", json_string(sums->sandbox));
	see(user, row, sums->as_of_us);
}

static void add_account(const struct usage_account *account, void *user)
{
	json_t *row = json_usage(&account->used);

	(void)json_object_set_new(row, "node", json_string(account->node));
	(void)json_object_set_new(row, "pool", json_string(account->pool));
	(void)json_object_set_new(row, "heard", time_or_null(account->heard_us));
	see(user, row, account->used.is_over ? 0 : account->used.until_us);
}

json_int_t books_add(json_int_t a, json_int_t b)
{
	json_int_t sum;

	return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static void add_lost(const char *pool, enum fail_component component, uint64_t lost_us, void *user)
{
	struct books_question *question = user;
	json_t *of = json_object_get(question->lost, pool), *before;

	if (!of) {
		of = json_object();
		(void)json_object_set_new(question->lost, pool, of);
	}
	before = json_object_get(of, component_name(component));
	(void)json_object_set_new(of, component_name(component), json_integer(books_add(json_integer_value(before), (json_int_t)lost_us)));
}

static int read_of(struct books_question *question, const char *tenant)
{
	const struct usage_filter filter = { tenant, question->sandbox, question->pool, question->node, question->from_us, question->to_us,
		question->by == BOOKS_BY_SANDBOX, BOOKS_ROWS_MAX + 1 };
	struct usage_db *db = question->books->db;
	uint64_t n_dropped = 0, n_accepted = 0, n_rejected = 0;
	int r = question->by == BOOKS_BY_ACCOUNT ? usage_db_accounts(db, &filter, add_account, question, &question->err)
						  : usage_db_sum(db, &filter, add_sums, question, &question->err);

	if (r == 0)
		r = usage_db_lost(db, &filter, add_lost, question, &question->err);
	if (r == 0)
		r = usage_db_dropped(db, &filter, &n_dropped, &question->err);
	if (r == 0)
		r = usage_db_marks(db, &filter, &n_accepted, &n_rejected, &question->err);
	question->n_accepted += n_accepted;
	question->n_rejected += n_rejected;
	question->n_dropped = (uint64_t)books_add((json_int_t)question->n_dropped, (json_int_t)n_dropped);
	return r;
}

static void work_ask(void *arg)
{
	struct books_question *question = arg;
	int r = 0;

	if (!question->tenants)
		r = read_of(question, "");
	for (size_t i = 0; i < question->n_tenants && r == 0 && !question->has_more; i++)
		r = read_of(question, question->tenants[i]);
	question->oldest_us = usage_db_oldest(question->books->db);
}

static void done_ask(void *arg)
{
	struct books_question *question = arg;

	if (!question->is_forgotten)
		question->done(question);
	books_question_free(question);
}

static unsigned int asked_by(const struct books *books, const char *customer)
{
	const struct books_question *question;
	unsigned int n = 0;

	LIST_FOREACH (question, &books->questions, link)
		n += !strcmp(question->customer, customer);
	return n;
}

int books_ask(struct books *books, struct books_question *question, struct err *reterr)
{
	int r = 0;

	if (*question->customer && asked_by(books, question->customer) >= BOOKS_CUSTOMER_MAX)
		r = err_set(reterr, FAIL_RATE_LIMITED, EBUSY, "%u questions of this customer about usage are being answered",
			BOOKS_CUSTOMER_MAX);
	else if (books->n_questions == BOOKS_QUESTIONS_MAX)
		r = err_set(reterr, FAIL_SCHEDULER_BUSY, EAGAIN, "%zu questions about usage are being answered", books->n_questions);
	LIST_INSERT_HEAD(&books->questions, question, link);
	books->n_questions++;
	question->books = books;
	question->rows = json_array();
	question->lost = json_object();
	if (r == 0 && (!question->rows || !question->lost))
		r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for usage");
	if (r == 0)
		r = worker_add(books->worker, work_ask, done_ask, question, reterr);
	if (r < 0)
		books_question_free(question);
	return r;
}

void books_forget(struct books_question *question)
{
	question->is_forgotten = true;
}

/* ---- results ---- */

struct marking {
	LIST_ENTRY(marking) link;
	struct books *books;
	char tenant[ID_NAME_MAX + 1], sandbox[ID_SIZE];
	bool is_accepted;
	int64_t when_us;
	void (*done)(const struct err *err, void *user);
	void *user;
	struct err err;
};

static void work_mark(void *arg)
{
	struct marking *marking = arg;

	(void)usage_db_mark(marking->books->db, marking->tenant, marking->sandbox, marking->is_accepted, marking->when_us, &marking->err);
}

static void done_mark(void *arg)
{
	struct marking *marking = arg;

	LIST_REMOVE(marking, link);
	marking->done(err_is_set(&marking->err) ? &marking->err : NULL, marking->user);
	free(marking);
}

int books_mark(struct books *books, const char *tenant, const char *sandbox, bool is_accepted,
	void (*done)(const struct err *err, void *user), void *user, struct err *reterr)
{
	struct marking *marking = calloc(1, sizeof(*marking));
	int r;

	if (!marking)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a mark");
	*marking = (struct marking){ .books = books, .is_accepted = is_accepted, .when_us = clock_realtime_usec(), .done = done, .user = user };
	(void)snprintf(marking->tenant, sizeof(marking->tenant), "%s", tenant);
	(void)snprintf(marking->sandbox, sizeof(marking->sandbox), "%s", sandbox);
	LIST_INSERT_HEAD(&books->markings, marking, link);
	r = worker_add(books->worker, work_mark, done_mark, marking, reterr);
	if (r < 0) {
		LIST_REMOVE(marking, link);
		free(marking);
	}
	return r;
}

/* ---- life ---- */

struct expiring {
	struct books *books;
	int64_t before_us;
	struct err err;
};

static void work_expire(void *arg)
{
	struct expiring *expiring = arg;

	(void)usage_db_expire(expiring->books->db, expiring->before_us, &expiring->err);
}

static void done_expire(void *arg)
{
	struct expiring *expiring = arg;

	if (err_is_set(&expiring->err))
		log_failure(LOG_LEVEL_WARN, "old usage cannot be removed", &expiring->err, NULL);
	free(expiring);
}

static void on_timer(evutil_socket_t fd, short what, void *user)
{
	struct books *books = user;
	struct expiring *expiring = calloc(1, sizeof(*expiring));

	(void)fd;
	(void)what;
	if (!expiring)
		return;
	expiring->books = books;
	expiring->before_us = clock_realtime_usec() - BOOKS_KEEP_US;
	if (worker_add(books->worker, work_expire, done_expire, expiring, &expiring->err) < 0)
		free(expiring);
}

/* A damaged file is kept beside: what it had of sandboxes that are there comes again, for their nodes tell all that they used. */
static int open_db(struct books *books, struct err *reterr)
{
	char path[PATH_MAX], aside[PATH_MAX];
	struct err err = ERR_NULL;
	int r;

	(void)state_path(books->server->options, "usage.db", path, sizeof(path));
	(void)state_path(books->server->options, "usage.db.damaged", aside, sizeof(aside));
	r = usage_db_open(&books->db, path, &err);
	if (r < 0 && err.code == FAIL_STORE_CORRUPT) {
		log_failure(LOG_LEVEL_ERROR, "the books of usage begin anew", &err, "aside", aside, NULL);
		if (rename(path, aside) == 0) {
			err = (struct err)ERR_NULL;
			r = usage_db_open(&books->db, path, &err);
		}
	}
	if (r < 0)
		*reterr = err;
	return r;
}

int books_new(struct books **ret, struct server *server, struct err *reterr)
{
	const struct timeval every = { .tv_sec = EXPIRE_EVERY_S };
	struct books *books = calloc(1, sizeof(*books));
	int r;

	if (!books)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for usage");
	LIST_INIT(&books->takings);
	LIST_INIT(&books->questions);
	LIST_INIT(&books->markings);
	books->server = server;
	r = open_db(books, reterr);
	if (r == 0)
		r = worker_new(&books->worker, server->base, reterr);
	if (r == 0) {
		books->timer = event_new(server->base, -1, EV_PERSIST, on_timer, books);
		if (!books->timer || event_priority_set(books->timer, LOOP_BULK) < 0 || event_add(books->timer, &every) < 0)
			r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for usage");
	}
	if (r < 0) {
		books_free(books);
		return r;
	}
	*ret = books;
	return 0;
}

void books_free(struct books *books)
{
	struct teller *teller, *next;

	if (!books)
		return;
	if (books->timer)
		event_free(books->timer);
	worker_free(books->worker); /* what waits there is not acknowledged: its node sends it again */
	while (!LIST_EMPTY(&books->takings))
		taking_free(LIST_FIRST(&books->takings));
	while (!LIST_EMPTY(&books->markings)) { /* likewise */
		struct marking *marking = LIST_FIRST(&books->markings);

		(void)err_set(&marking->err, FAIL_SHUTTING_DOWN, ESHUTDOWN, "the scheduler is stopping");
		done_mark(marking);
	}
	while (!LIST_EMPTY(&books->questions)) /* whoever asked is gone */
		books_question_free(LIST_FIRST(&books->questions));
	usage_db_close(books->db);
	HASH_ITER (hh, books->tellers, teller, next) {
		HASH_DEL(books->tellers, teller);
		free(teller);
	}
	free(books);
}
