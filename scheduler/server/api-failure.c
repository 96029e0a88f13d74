/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/failures: the latest failed attempts among the facts that are held, and how many there were of each owner.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/failures.h"
#include "server/telemetry.h"
#include "server/view.h"
#include "telemetry/rates.h"
#include "telemetry/trace.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 1000
#define WINDOW_US (24 * 3600 * USEC_PER_SEC)

json_t *view_failed(const struct server *server, const struct stage_fact *fact, bool is_saved)
{
	const struct failure_info *info = failure_info(fact->code);
	const char *pool = fact->pool ? fact->pool : "";

	return json_pack("{s:o, s:s, s:s, s:s, s:s, s:s, s:s*, s:s*, s:s*, s:s*, s:s*, s:I, s:b, s:I}", "when", view_time(fact->when_us),
		"stage", stage_name(fact->stage), "code", info->name, "component", component_name(info->component), "owner",
		api_owner_name(server, pool, info->component), "remedy", info->remedy, "tenant",
		fact->tenant && *fact->tenant ? fact->tenant : NULL, "pool", *pool ? pool : NULL, "node",
		fact->node && *fact->node ? fact->node : NULL, "sandbox", fact->sandbox && *fact->sandbox ? fact->sandbox : NULL,
		"trace", fact->trace && *fact->trace ? fact->trace : NULL, "attempt", (json_int_t)fact->attempt, "saved", is_saved,
		"n", (json_int_t)MAX(fact->n, 1));
}

struct walk {
	const struct server *server;
	const char *owner; /* NULL: all */
	json_t *list;
	uint64_t limit, n;
	uint64_t by_owner[OWNER_MAX_], saved[OWNER_MAX_];
};

static void on_failed(const struct stage_fact *fact, bool is_saved, void *user)
{
	struct walk *walk = user;
	const enum fail_owner owner = api_owner(walk->server, fact->pool, failure_info(fact->code)->component);

	*(is_saved ? &walk->saved[owner] : &walk->by_owner[owner]) += MAX(fact->n, 1);
	if (walk->owner && strcmp(walk->owner, owner_name(owner)) != 0)
		return;
	if (walk->n++ < walk->limit)
		(void)json_array_append_new(walk->list, view_failed(walk->server, fact, is_saved));
}

static bool is_own(const char *tenant, const void *user)
{
	const struct api_request *req = user;

	return !strcmp(tenant, req->tenant);
}

static bool is_reached(const char *tenant, const void *user)
{
	return api_may_see_tenant(user, tenant);
}

static int read_query(const struct api_request *req, int64_t now_us, struct facts_filter *filter, uint64_t *limit, struct err *reterr)
{
	const char *window = api_query(req, "window");
	int64_t usec = WINDOW_US;

	*filter = (struct facts_filter){ .tenant = api_query(req, "tenant"), .pool = api_query(req, "pool"),
		.node = api_query(req, "node"), .template_name = api_query(req, "template"),
		.sees = api_wants_all(req) ? is_reached : is_own, .user = req };
	if (window && (clock_parse_duration(window, &usec) < 0 || usec <= 0)) {
		(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "window is a time as in 5m, 1h, 24h");
		err_add(reterr, "field", "window");
		return -EINVAL;
	}
	filter->from_us = now_us - usec;
	return api_query_u64(req, "limit", 1, LIMIT_MAX, limit, reterr);
}

static json_t *view_owners(const struct walk *walk)
{
	json_t *object = json_object();

	for (enum fail_owner i = OWNER_NONE + 1; i < OWNER_MAX_; i++)
		(void)json_object_set_new(object, owner_name(i), json_pack("{s:I, s:I}", "failed", (json_int_t)walk->by_owner[i],
			"saved", (json_int_t)walk->saved[i]));
	return object;
}

void api_failures(struct api_request *req)
{
	const int64_t now_us = clock_realtime_usec();
	const struct facts *facts = telemetry_facts(req->server->telemetry);
	struct walk walk = { .server = req->server, .owner = api_query(req, "owner"), .limit = LIMIT_DEFAULT };
	struct facts_filter filter;
	struct err err = ERR_NULL;

	if (read_query(req, now_us, &filter, &walk.limit, &err) < 0) {
		api_fail(req, &err);
		return;
	}
	walk.list = json_array();
	facts_each_failed(facts, &filter, on_failed, &walk);
	api_answer(req, 200, json_pack("{s:o, s:o, s:b, s:o, s:b, s:o}", "failures", walk.list, "owners", view_owners(&walk), "more",
		walk.n > walk.limit, "from", view_time(filter.from_us), "complete", facts_dropped_until(facts) < filter.from_us,
		"as_of", view_time(now_us)));
}
