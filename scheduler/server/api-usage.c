/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/usage: the books (books.h), of the tenants that the caller may see.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/api.h"
#include "server/books.h"

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))

static int refuse(struct err *reterr, const char *field, const char *why)
{
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "%s %s", field, why);
	err_add(reterr, "field", "%s", field);
	return -EINVAL;
}

static int add_tenant(struct books_question *question, const char *tenant, struct err *reterr)
{
	if (question->n_tenants == BOOKS_TENANTS_MAX)
		return refuse(reterr, "tenant", "must be named: the key reaches too many of them");
	COPY(question->tenants[question->n_tenants], tenant);
	question->n_tenants++;
	return 0;
}

/* The provider sees all, also what is nobody's; everybody else the tenants that the key reaches. */
static int choose_tenants(const struct api_request *req, const char *tenant, struct books_question *question, struct err *reterr)
{
	const bool sees_all = api_wants_all(req);
	int r = 0;

	if (sees_all && role_is_provider(req->role) && !tenant)
		return 0;
	question->tenants = calloc(BOOKS_TENANTS_MAX, sizeof(*question->tenants));
	if (!question->tenants)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for usage");
	if (tenant && !(sees_all ? api_may_see_tenant(req, tenant) : !strcmp(tenant, req->tenant)))
		return 0; /* what is not reached has used nothing */
	if (tenant || !sees_all)
		return add_tenant(question, tenant ? tenant : req->tenant, reterr);
	for (const struct tenant_entry *entry = req->server->registry.tenants; entry && r == 0; entry = entry->hh.next)
		if (api_may_see_tenant(req, entry->name))
			r = add_tenant(question, entry->name, reterr);
	return r;
}

static int read_by(const char *text, enum books_by *ret, struct err *reterr)
{
	static const char *const names[] = { [BOOKS_BY_SANDBOX] = "sandbox", [BOOKS_BY_TENANT] = "tenant", [BOOKS_BY_ACCOUNT] = "account" };

	for (enum books_by i = 0; text && i < ARRAY_LEN(names); i++)
		if (!strcmp(text, names[i])) {
			*ret = i;
			return 0;
		}
	return text ? refuse(reterr, "by", "is sandbox, tenant or account") : 0;
}

static int read_question(const struct api_request *req, struct books_question *question, struct err *reterr)
{
	const char *window = api_query(req, "window"), *sandbox = api_query(req, "sandbox"), *pool = api_query(req, "pool"),
		   *node = api_query(req, "node");
	int64_t usec = 0;
	int r = read_by(api_query(req, "by"), &question->by, reterr);

	if (r < 0)
		return r;
	if (window && (clock_parse_duration(window, &usec) < 0 || usec <= 0))
		return refuse(reterr, "window", "is a time as in 24h or 30d");
	if (window && question->by == BOOKS_BY_ACCOUNT)
		return refuse(reterr, "window", "is not for accounts, which are of all time");
	question->to_us = clock_realtime_usec();
	question->from_us = window ? MAX(question->to_us - usec, INT64_C(1)) : 0;
	COPY(question->customer, role_is_provider(req->role) ? "" : req->customer);
	COPY(question->sandbox, sandbox ? sandbox : "");
	COPY(question->pool, pool ? pool : "");
	COPY(question->node, node ? node : "");
	return choose_tenants(req, api_query(req, "tenant"), question, reterr);
}

/* ---- the answer ---- */

static json_t *time_or_null(int64_t when_us)
{
	char text[CLOCK_RFC3339_SIZE];

	return when_us > 0 ? json_string(clock_format_rfc3339(when_us, text, sizeof(text))) : json_null();
}

static json_int_t sum_of(const json_t *rows, const char *name)
{
	json_int_t sum = 0;

	for (size_t i = 0; i < json_array_size(rows); i++)
		sum = books_add(sum, json_integer_value(json_object_get(json_array_get(rows, i), name)));
	return sum;
}

static double real_sum_of(const json_t *rows, const char *name)
{
	double sum = 0;

	for (size_t i = 0; i < json_array_size(rows); i++)
		sum += json_number_value(json_object_get(json_array_get(rows, i), name));
	return sum;
}

static json_t *view_total(const json_t *rows)
{
	static const char *const counters[] = { "running_us", "paused_us", "disk_us", "cpu_us", "egress_bytes" };
	static const char *const reals[] = { "cpu_s", "memory_gib_s", "disk_gib_s" };
	json_t *total = json_object();

	for (size_t i = 0; i < ARRAY_LEN(counters); i++)
		(void)json_object_set_new(total, counters[i], json_integer(sum_of(rows, counters[i])));
	for (size_t i = 0; i < ARRAY_LEN(reals); i++)
		(void)json_object_set_new(total, reals[i], json_real(real_sum_of(rows, reals[i])));
	return total;
}

/* Whose the time is, by each pool's table: the same component may be another's in another pool. */
static json_t *view_lost(const struct server *server, json_t *lost)
{
	json_t *owners = json_object(), *list = json_array(), *components, *value, *entry;
	const char *pool, *component, *owner;

	json_object_foreach(lost, pool, components)
		json_object_foreach(components, component, value) {
			owner = api_owner_name(server, pool, component_by_name(component));
			entry = json_object_get(owners, owner);
			if (!entry) {
				entry = json_pack("{s:s, s:I, s:{}}", "owner", owner, "lost_us", (json_int_t)0, "components");
				(void)json_object_set_new(owners, owner, entry);
				(void)json_array_append(list, entry);
			}
			(void)json_object_set_new(entry, "lost_us",
				json_integer(books_add(json_integer_value(json_object_get(entry, "lost_us")), json_integer_value(value))));
			entry = json_object_get(entry, "components");
			(void)json_object_set_new(
				entry, component, json_integer(books_add(json_integer_value(json_object_get(entry, component)), json_integer_value(value))));
		}
	json_decref(owners);
	return list;
}

/* What one accepted result cost: all that was used, for the rejected ones and those without a mark too. Null where there is none, or
 * where not all was summed. */
static json_t *view_per_accepted(const struct books_question *question, const json_t *total)
{
	json_t *per = json_object(), *value;
	const char *name;

	if (question->n_accepted == 0 || question->has_more) {
		json_decref(per);
		return json_null();
	}
	json_object_foreach((json_t *)(uintptr_t)total, name, value)
		(void)json_object_set_new(per, name, json_real(json_number_value(value) / (double)question->n_accepted));
	return per;
}

static json_t *view(const struct server *server, const struct books_question *question)
{
	static const char *const names[] = { "sandbox", "tenant", "account" };
	const bool is_whole = !question->has_more && question->n_dropped == 0 &&
			      (question->from_us == 0 || question->from_us >= question->oldest_us);

	json_t *total = view_total(question->rows);

	return json_pack("{s:s, s:o, s:o, s:O, s:{s:I, s:I}, s:o, s:o, s:o, s:{s:I, s:I, s:I}, s:o, s:o, s:b, s:b}", "by", names[question->by], "from",
		time_or_null(question->from_us / (3600 * USEC_PER_SEC) * (3600 * USEC_PER_SEC)), "to", time_or_null(question->to_us),
		"records", question->rows, "results", "accepted",
		(json_int_t)question->n_accepted, "rejected", (json_int_t)question->n_rejected, "per_accepted",
		view_per_accepted(question, total), "total", total, "lost", view_lost(server, question->lost), "gaps",
		"uncounted_us", sum_of(question->rows, "uncounted_us"), "spread_us", sum_of(question->rows, "spread_us"), "dropped",
		(json_int_t)question->n_dropped, "oldest", time_or_null(question->oldest_us), "as_of",
		time_or_null(question->as_of_us), "more", question->has_more, "complete", is_whole);
}

static void on_answer(struct books_question *question)
{
	struct api_request *req = question->user;

	req->extra = NULL;
	req->extra_free = NULL;
	if (err_is_set(&question->err))
		api_fail(req, &question->err);
	else
		api_answer(req, 200, view(req->server, question));
}

static void forget(void *question)
{
	books_forget(question);
}

void api_usage(struct api_request *req)
{
	struct books_question *question = calloc(1, sizeof(*question));
	struct err err = ERR_NULL;
	int r = question ? read_question(req, question, &err) : err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for usage");

	if (r < 0 && question)
		books_question_free(question);
	if (r == 0) {
		question->done = on_answer;
		question->user = req;
		r = books_ask(req->server->books, question, &err);
	}
	if (r < 0) {
		api_fail(req, &err);
		return;
	}
	req->extra = question;
	req->extra_free = forget;
}
