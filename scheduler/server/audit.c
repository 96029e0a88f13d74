/* SPDX-License-Identifier: Apache-2.0
 *
 * See audit.h. `waiting` holds entries without number and hash: both are given when they go into a batch, so that what
 * the store did not take is in no chain.
 */
#include "server/audit.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hex.h"
#include "server/codec.h"
#include "server/shell.h"

#define FLUSH_USEC (50 * USEC_PER_MSEC)
#define FORGET_MAX 28 /* entries at once: with their personal fields one batch of the store */
#define SALT_BYTES 16

struct waiting {
	TAILQ_ENTRY(waiting) link;
	json_t *entry, *personal; /* NULL: it has none */
};
TAILQ_HEAD(waiting_list, waiting);

struct audit {
	struct server *server;
	struct event *timer;
	struct chain head, base;
	struct waiting_list waiting;
	uint64_t n_waiting, n_dropped, n_said; /* of n_dropped what the log has */
	bool is_forgetting;
};

/* ---- entries ---- */

static void arm(struct audit *audit)
{
	const struct timeval soon = { .tv_usec = FLUSH_USEC };

	if (!event_pending(audit->timer, EV_TIMEOUT, NULL))
		(void)event_add(audit->timer, &soon);
}

static void waiting_free(struct waiting *waiting)
{
	json_decref(waiting->entry);
	json_decref(waiting->personal);
	free(waiting);
}

static json_t *entry_new(const char *role, const char *key, const char *verb)
{
	char when[CLOCK_RFC3339_SIZE];

	return json_pack("{s:s, s:s, s:s, s:s}", "when", clock_format_rfc3339(clock_realtime_usec(), when, sizeof(when)), "role", role,
		"key", key, "verb", verb);
}

/* Takes both over; returns what waits, NULL when it was dropped. */
static struct waiting *add(struct audit *audit, json_t *entry, json_t *personal)
{
	struct waiting *waiting = audit->n_waiting < AUDIT_WAITING_MAX && entry ? calloc(1, sizeof(*waiting)) : NULL;

	if (!waiting) {
		audit->n_dropped++;
		json_decref(entry);
		json_decref(personal);
		return NULL;
	}
	waiting->entry = entry;
	waiting->personal = personal;
	TAILQ_INSERT_TAIL(&audit->waiting, waiting, link);
	audit->n_waiting++;
	arm(audit);
	return waiting;
}

/* Whom it concerns by name; what has an id of ours is no person. */
static json_t *personal_of(const struct api_request *req)
{
	const struct key_entry *key = registry_key_by_id(&req->server->registry, req->key_id);
	unsigned char salt[SALT_BYTES];
	char hex[2 * SALT_BYTES + 1];

	rng_bytes(&req->server->rng, salt, sizeof(salt));
	hex_put(hex, salt, sizeof(salt));
	return json_pack("{s:s, s:s*, s:s*, s:s*, s:s*}", "salt", hex, "key_name", key && *key->name ? key->name : NULL, "tenant",
		*req->tenant ? req->tenant : NULL, "customer", *req->customer ? req->customer : NULL, "path", http_path(req->http));
}

static void put_object(json_t *entry, json_t *personal, const char *object, const char *made)
{
	if (id_is_valid(object))
		(void)json_object_set_new(entry, "object", json_string(object));
	if (*made)
		(void)json_object_set_new(id_is_valid(made) ? entry : personal, "made", json_string(made));
}

static void tell(struct api_request *req, const char *outcome, int status)
{
	struct audit *audit = req->server->audit;
	char verb[160];
	json_t *entry, *personal = personal_of(req);

	(void)snprintf(verb, sizeof(verb), "%s %s", req->route->method, req->route->pattern);
	entry = entry_new(role_name(req->role), req->key_id, verb);
	put_object(entry, personal, req->params[0], req->made);
	(void)json_object_set_new(entry, "request", json_string(req->trace.span_id));
	(void)json_object_set_new(entry, "trace", json_string(req->trace.trace_id));
	(void)json_object_set_new(entry, "outcome", json_string(outcome));
	if (status)
		(void)json_object_set_new(entry, "status", json_integer(status));
	if (status >= 400 && req->failed != FAIL_NONE)
		(void)json_object_set_new(entry, "code", json_string(failure_info(req->failed)->name));
	(void)add(audit, entry, personal);
}

static bool is_change(const struct api_request *req)
{
	return req->server->audit && req->route && *req->key_id && strcmp(req->route->method, "GET") != 0 &&
	       req->route->handle != api_explain;
}

void audit_asked(struct api_request *req)
{
	if (!is_change(req))
		return;
	req->is_audited = true;
	tell(req, "asked", 0);
}

/* That it was asked for is still here: nothing of it was written, and its answer says as much. */
static void withdraw(struct audit *audit, const struct api_request *req)
{
	struct waiting *waiting = TAILQ_LAST(&audit->waiting, waiting_list);

	for (; waiting; waiting = TAILQ_PREV(waiting, waiting_list, link)) {
		const char *request = json_string_value(json_object_get(waiting->entry, "request"));

		if (!request || strcmp(request, req->trace.span_id) != 0)
			continue;
		TAILQ_REMOVE(&audit->waiting, waiting, link);
		audit->n_waiting--;
		waiting_free(waiting);
		return;
	}
}

void audit_answered(struct api_request *req, int status)
{
	const bool was_asked = req->is_audited;

	/* one that its key may not send was never handled */
	if (!is_change(req) || (!was_asked && status != failure_info(FAIL_FORBIDDEN)->http))
		return;
	req->is_audited = false;
	if (was_asked)
		withdraw(req->server->audit, req);
	tell(req, status == 0 ? "left" : status < 400 ? "ok" : was_asked ? "failed" : "forbidden", status);
}

void audit_note(struct audit *audit, const char *role, const char *by, const char *verb, const char *object)
{
	json_t *entry = audit ? entry_new(role, by, verb) : NULL;

	if (!audit)
		return;
	(void)json_object_set_new(entry, "object", json_string(object));
	(void)json_object_set_new(entry, "outcome", json_string("ok"));
	(void)add(audit, entry, NULL);
}

json_t *audit_entry(const char *key, const void *value, size_t size, struct err *reterr)
{
	Croft__AuditRecord *record =
		(Croft__AuditRecord *)codec_unpack(&croft__audit_record__descriptor, key, value, size, reterr);
	json_t *entry = record ? json_loads(record->entry, JSON_REJECT_DUPLICATES, NULL) : NULL;

	if (record && !entry) /* whoever verifies it is to see that something is here */
		entry = json_pack("{s:s}", "unreadable", key);
	if (record)
		(void)json_object_set_new(entry, "hash", json_string(record->hash));
	if (record)
		croft__audit_record__free_unpacked(record, NULL);
	return entry;
}

json_t *audit_personal(const char *key, const void *value, size_t size, struct err *reterr)
{
	Croft__AuditPersonRecord *record =
		(Croft__AuditPersonRecord *)codec_unpack(&croft__audit_person_record__descriptor, key, value, size, reterr);
	json_t *personal = record ? json_loads(record->fields, JSON_REJECT_DUPLICATES, NULL) : NULL;

	if (record)
		croft__audit_person_record__free_unpacked(record, NULL);
	return personal ? personal : json_object();
}

/* ---- into the store ---- */

static void put_mark(struct ops *ops, const char *key, const struct chain *chain)
{
	Croft__AuditMarkRecord *mark = CODEC_NEW(Croft__AuditMarkRecord, croft__audit_mark_record__init);

	if (mark)
		mark->seq = chain->seq;
	ops_put(ops, mark ? codec_whole(&mark->base, codec_set(&mark->hash, chain->hash)) : NULL, STORE_ANY, "%s", key);
}

static void put_personal(struct ops *ops, json_t *entry, const json_t *personal, uint64_t seq)
{
	Croft__AuditPersonRecord *person = CODEC_NEW(Croft__AuditPersonRecord, croft__audit_person_record__init);
	char *text = json_dumps(personal, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII), who[CHAIN_HASH_SIZE];

	if (!text || chain_hash(personal, who) < 0 || json_object_set_new(entry, "who", json_string(who)) < 0)
		ops->no_memory = true;
	ops_put(ops, person ? codec_whole(&person->base, text && codec_set(&person->fields, text)) : NULL, STORE_ANY, "audit/%016llx/who",
		(unsigned long long)seq);
	free(text);
}

static void put_entry(struct ops *ops, struct chain *head, json_t *entry, const json_t *personal)
{
	Croft__AuditRecord *record = CODEC_NEW(Croft__AuditRecord, croft__audit_record__init);
	char *text = NULL;
	bool is_whole;

	if (personal)
		put_personal(ops, entry, personal, head->seq + 1);
	is_whole = chain_add(head, entry, &text) == 0;
	ops_put(ops,
		record ? codec_whole(&record->base,
				 is_whole && codec_set(&record->entry, text) && codec_set(&record->hash, head->hash))
		       : NULL,
		STORE_ANY, "audit/%016llx", (unsigned long long)head->seq);
	free(text);
}

static json_t *entry_of_dropped(struct audit *audit)
{
	json_t *entry = entry_new("scheduler", "", "audit drop");

	(void)json_object_set_new(entry, "n", json_integer((json_int_t)(audit->n_dropped - audit->n_said)));
	(void)json_object_set_new(entry, "outcome", json_string("ok"));
	return entry;
}

void audit_take(struct audit *audit, struct ops *ops)
{
	struct waiting *waiting;

	if (!audit || (TAILQ_EMPTY(&audit->waiting) && audit->n_said == audit->n_dropped))
		return;
	while ((waiting = TAILQ_FIRST(&audit->waiting))) {
		put_entry(ops, &audit->head, waiting->entry, waiting->personal);
		TAILQ_REMOVE(&audit->waiting, waiting, link);
		audit->n_waiting--;
		waiting_free(waiting);
	}
	if (audit->n_said != audit->n_dropped) {
		json_t *entry = entry_of_dropped(audit);

		put_entry(ops, &audit->head, entry, NULL);
		json_decref(entry);
		audit->n_said = audit->n_dropped;
	}
	put_mark(ops, "audit-head", &audit->head);
}

void audit_flush(struct audit *audit)
{
	while (audit && !shell_failure(audit->server->shell) && (audit->n_waiting || audit->n_said != audit->n_dropped)) {
		struct ops none = { .n = 0 };

		shell_commit(audit->server->shell, &none, NULL, NULL); /* the shell takes what waits */
	}
}

/* ---- retention ---- */

static void forget(struct audit *audit);

static void on_forgotten(const struct err *err, void *user)
{
	struct audit *audit = user;

	audit->is_forgetting = false;
	if (!err)
		forget(audit);
}

int audit_read_mark(const char *key, const void *value, size_t size, struct chain *ret, struct err *reterr)
{
	Croft__AuditMarkRecord *mark =
		(Croft__AuditMarkRecord *)codec_unpack(&croft__audit_mark_record__descriptor, key, value, size, reterr);

	if (!mark)
		return -EBADMSG;
	ret->seq = mark->seq;
	(void)snprintf(ret->hash, sizeof(ret->hash), "%s", mark->hash);
	croft__audit_mark_record__free_unpacked(mark, NULL);
	return 0;
}

/* The entry that the rest will follow was read: base and what says so first, then what goes. */
static void on_last(const void *value, size_t size, uint64_t revision, const struct err *err, void *user)
{
	struct audit *audit = user;
	struct err bad = ERR_NULL;
	struct ops ops = { .n = 0 };
	Croft__AuditRecord *record =
		err || !value ? NULL
			      : (Croft__AuditRecord *)codec_unpack(&croft__audit_record__descriptor, "audit/", value, size, &bad);
	const uint64_t upto = audit->base.seq + FORGET_MAX;
	json_t *entry;

	(void)revision;
	if (!record) { /* the store is read again when it is loaded again */
		audit->is_forgetting = false;
		return;
	}
	for (uint64_t seq = audit->base.seq + 1; seq <= upto; seq++) {
		ops_delete(&ops, "audit/%016llx", (unsigned long long)seq);
		ops_delete(&ops, "audit/%016llx/who", (unsigned long long)seq);
	}
	audit->base.seq = upto;
	(void)snprintf(audit->base.hash, sizeof(audit->base.hash), "%s", record->hash);
	croft__audit_record__free_unpacked(record, NULL);
	put_mark(&ops, "audit-base", &audit->base);
	entry = entry_new("scheduler", "", "audit expire");
	(void)json_object_set_new(entry, "upto", json_integer((json_int_t)upto));
	(void)json_object_set_new(entry, "hash_upto", json_string(audit->base.hash));
	(void)json_object_set_new(entry, "outcome", json_string("ok"));
	(void)add(audit, entry, NULL);
	shell_commit(audit->server->shell, &ops, on_forgotten, audit);
}

static void forget(struct audit *audit)
{
	struct server *server = audit->server;
	const uint64_t n = audit->head.seq - audit->base.seq;
	struct err err = ERR_NULL;
	char key[32];

	if (audit->is_forgetting || n <= server->options->audit_count + FORGET_MAX || shell_failure(server->shell))
		return;
	(void)snprintf(key, sizeof(key), "audit/%016llx", (unsigned long long)(audit->base.seq + FORGET_MAX));
	audit->is_forgetting = store_read(server->store, key, on_last, audit, &err) == 0;
}

static void on_timer(evutil_socket_t fd, short what, void *user)
{
	struct audit *audit = user;

	(void)fd;
	(void)what;
	audit_flush(audit);
	forget(audit);
	if (audit->n_waiting) /* the store cannot be written */
		arm(audit);
}

/* ---- life ---- */

struct marks {
	struct chain head, base;
	struct err err;
	bool is_whole, has_next;
};

static bool read_marks(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	struct marks *marks = user;

	(void)revision;
	return audit_read_mark(key, value, size, !strcmp(key, "audit-head") ? &marks->head : &marks->base, &marks->err) == 0;
}

static bool check_last(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	struct marks *marks = user;
	Croft__AuditRecord *record =
		(Croft__AuditRecord *)codec_unpack(&croft__audit_record__descriptor, key, value, size, &marks->err);

	(void)revision;
	if (record) {
		marks->is_whole = !strcmp(record->hash, marks->head.hash);
		croft__audit_record__free_unpacked(record, NULL);
	}
	return false;
}

/* An entry behind the head: of a step of many records that a crash cut off, its head being the last of them. */
static bool take_next(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	struct marks *marks = user;
	json_t *entry = audit_entry(key, value, size, &marks->err);

	(void)revision;
	marks->has_next = entry && chain_check(&marks->head, entry) == CHAIN_OK;
	json_decref(entry);
	return false;
}

static int load(struct store *store, struct marks *ret, struct err *reterr)
{
	char key[32];

	*ret = (struct marks){ .head = CHAIN_NEW, .base = CHAIN_NEW, .is_whole = true };
	(void)store_load(store, "audit-", read_marks, ret, &ret->err);
	if (!err_is_set(&ret->err) && ret->head.seq > ret->base.seq) {
		ret->is_whole = false;
		(void)snprintf(key, sizeof(key), "audit/%016llx", (unsigned long long)ret->head.seq);
		(void)store_load(store, key, check_last, ret, &ret->err);
	}
	do {
		ret->has_next = false;
		(void)snprintf(key, sizeof(key), "audit/%016llx", (unsigned long long)ret->head.seq + 1);
		if (!err_is_set(&ret->err))
			(void)store_load(store, key, take_next, ret, &ret->err);
	} while (ret->has_next);
	if (!err_is_set(&ret->err))
		return 0;
	*reterr = ret->err;
	return -EIO;
}

/* A log that somebody has cut does not keep the scheduler from running: it goes on behind its head, and `croft audit verify` finds
 * what is missing. */
int audit_load(struct audit *audit, struct err *reterr)
{
	struct marks marks;
	struct err broken = ERR_NULL;
	int r = load(audit->server->store, &marks, reterr);

	if (r < 0)
		return r;
	if (!marks.is_whole) {
		(void)err_set(&broken, FAIL_AUDIT_BROKEN, EBADMSG, "entry %llu, the head of the audit log, is not in it",
			(unsigned long long)marks.head.seq);
		log_failure(LOG_LEVEL_ERROR, "audit", &broken, NULL);
	}
	audit->head = marks.head;
	audit->base = marks.base;
	audit->is_forgetting = false;
	return 0;
}

int audit_new(struct audit **ret, struct server *server, struct err *reterr)
{
	struct audit *audit = calloc(1, sizeof(*audit));
	int r;

	if (!audit)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the audit log");
	audit->server = server;
	TAILQ_INIT(&audit->waiting);
	audit->timer = evtimer_new(server->base, on_timer, audit);
	r = audit->timer ? audit_load(audit, reterr) : err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the audit log");
	if (r < 0) {
		audit_free(audit);
		return r;
	}
	*ret = audit;
	return 0;
}

void audit_free(struct audit *audit)
{
	struct waiting *waiting;

	if (!audit)
		return;
	while ((waiting = TAILQ_FIRST(&audit->waiting))) {
		TAILQ_REMOVE(&audit->waiting, waiting, link);
		waiting_free(waiting);
	}
	if (audit->timer)
		event_free(audit->timer);
	free(audit);
}

void audit_state(const struct audit *audit, struct audit_state *ret)
{
	*ret = (struct audit_state){ audit->head, audit->base, audit->n_waiting, audit->n_dropped };
}

int audit_append(struct store *store, struct ops *ops, const char *verb, const char *object, struct err *reterr)
{
	struct marks marks;
	json_t *entry;
	int r = load(store, &marks, reterr);

	if (r < 0)
		return r;
	entry = entry_new("operator", "", verb);
	(void)json_object_set_new(entry, "object", json_string(object));
	(void)json_object_set_new(entry, "outcome", json_string("ok"));
	put_entry(ops, &marks.head, entry, NULL);
	put_mark(ops, "audit-head", &marks.head);
	json_decref(entry);
	return 0;
}
