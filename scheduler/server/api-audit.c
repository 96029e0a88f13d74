/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/audit: the audit log (audit.h) in pages, from the store.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/audit.h"

#define LIMIT_DEFAULT 100

/* A page that is read; its request may be gone when it was. */
struct page {
	struct api_request *req; /* NULL: gone */
	uint64_t limit;
	struct audit_state state; /* when it was asked for: entries up to this head are durable when it is read */
};

static json_t *view_chain(const struct chain *chain)
{
	return json_pack("{s:I, s:s}", "seq", (json_int_t)chain->seq, "hash", chain->hash);
}

/* Records are in order: an entry, then its personal fields where they are there. */
static json_t *view_entries(const struct page *page, const struct store_record *records, size_t n, struct err *reterr)
{
	json_t *list = json_array(), *last = NULL;
	const char *key = "";

	for (size_t i = 0; i < n; i++) {
		if (strstr(records[i].key, "/who")) {
			if (last && !strncmp(records[i].key, key, strlen(key)))
				(void)json_object_set_new(last, "personal",
					audit_personal(records[i].key, records[i].value, records[i].size, reterr));
			continue;
		}
		last = json_array_size(list) < page->limit ? audit_entry(records[i].key, records[i].value, records[i].size, reterr) : NULL;
		if (last && json_integer_value(json_object_get(last, "seq")) > (json_int_t)page->state.head.seq) {
			json_decref(last);
			break;
		}
		if (last)
			(void)json_array_append_new(list, last);
		key = records[i].key;
	}
	return list;
}

static void on_scanned(const struct store_record *records, size_t n, const struct err *err, void *user)
{
	struct page *page = user;
	struct api_request *req = page->req;
	struct err bad = ERR_NULL;
	json_t *list;
	uint64_t last;

	if (!req) {
		free(page);
		return;
	}
	req->extra = NULL;
	req->extra_free = NULL;
	if (err) {
		api_fail(req, err);
	} else {
		list = view_entries(page, records, n, &bad);
		last = (uint64_t)json_integer_value(json_object_get(json_array_get(list, json_array_size(list) - 1), "seq"));
		if (err_is_set(&bad)) {
			json_decref(list);
			api_fail(req, &bad);
		} else {
			api_answer(req, 200, json_pack("{s:o, s:o, s:o, s:b, s:I}", "entries", list, "head", view_chain(&page->state.head),
				"base", view_chain(&page->state.base), "more", json_array_size(list) == page->limit && last < page->state.head.seq,
				"dropped", (json_int_t)page->state.n_dropped));
		}
	}
	free(page);
}

static void forget(void *extra)
{
	struct page *page = extra;

	page->req = NULL; /* the store answers later, to nobody */
}

void api_audit(struct api_request *req)
{
	struct page *page = calloc(1, sizeof(*page));
	uint64_t after = 0, limit = LIMIT_DEFAULT;
	struct err err = ERR_NULL;
	char from[32];

	if (!page)
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for the audit log");
	else if (api_query_u64(req, "after", 0, INT64_MAX, &after, &err) == 0)
		(void)api_query_u64(req, "limit", 1, AUDIT_PAGE_MAX, &limit, &err);
	if (page && !err_is_set(&err)) {
		audit_state(req->server->audit, &page->state);
		page->req = req;
		page->limit = limit;
		(void)snprintf(from, sizeof(from), "audit/%016llx", (unsigned long long)MAX(after, page->state.base.seq) + 1);
		(void)store_scan(req->server->store, from, "audit/", 2 * limit, on_scanned, page, &err);
	}
	if (err_is_set(&err)) {
		free(page);
		api_fail(req, &err);
		return;
	}
	req->extra = page;
	req->extra_free = forget;
}
