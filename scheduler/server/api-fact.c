/* SPDX-License-Identifier: Apache-2.0
 *
 * What people decide about a node: cordon, drain, and taking it out for good. Each decision is a fact of the node's
 * record with who, why and since; the link never changes one.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/api-who.h"
#include "server/shell.h"
#include "server/view.h"

#define WHY_MAX 127
#define DRAIN_S 3600
#define DRAIN_S_MAX (30u * 24 * 3600)

static int find_node(struct api_request *req, struct fleet_node_view *ret)
{
	struct err err = ERR_NULL;

	if (fleet_node_get(shell_fleet(req->server->shell), req->params[0], ret) == 0 &&
		api_may_see_pool(req, ret->record->pool))
		return 0;
	(void)err_set(&err, FAIL_NODE_NOT_FOUND, ENOENT, "there is no such node");
	api_fail(req, &err);
	return -ENOENT;
}

static void on_fact(struct api_request *req, const struct fleet_reply *reply)
{
	struct fleet_node_view view;

	if (err_is_set(&reply->err))
		api_fail(req, &reply->err);
	else if (find_node(req, &view) == 0)
		api_answer(req, 200, view_node(req->server, &view));
}

static void set_fact(struct api_request *req, enum node_fact fact, bool set, const char *why,
	int64_t until_us,
	void (*on_reply)(struct api_request *req, const struct fleet_reply *reply))
{
	struct fleet_event event = { .type = FLEET_NODE_FACT };
	struct ops none = { .n = 0 };
	char who[ID_NAME_MAX + 1];

	(void)snprintf(who, sizeof(who), "%s, key %s", role_name(req->role), req->key_id);
	(void)snprintf(event.node, sizeof(event.node), "%.*s", ID_LEN, req->params[0]);
	event.fact.fact = fact;
	event.fact.set = set;
	event.fact.who = who;
	event.fact.why = why;
	event.fact.until_us = until_us;
	log_info(set ? "a node's fact is set" : "a node's fact is cleared", "node", event.node, "fact",
		node_fact_name(fact), "who", who, "why", why);
	api_step(req, &event, &none, on_reply);
}

/* `why` and, where wanted, `deadline_s`. false: the request was answered. */
static bool read_body(struct api_request *req, char why[static WHY_MAX + 1], uint64_t *deadline_s)
{
	struct fleet_node_view view;
	json_t *body = api_json(req);
	struct err err = ERR_NULL;
	const char *text = "";

	if (!body)
		return false;
	if (json_get_string(body, "why", WHY_MAX, &text, &err) == 0 && deadline_s)
		(void)json_get_u64(body, "deadline_s", 0, DRAIN_S_MAX, deadline_s, &err);
	(void)snprintf(why, WHY_MAX + 1, "%s", text);
	json_decref(body);
	if (err_is_set(&err)) {
		api_fail(req, &err);
		return false;
	}
	return find_node(req, &view) == 0;
}

void api_node_cordon(struct api_request *req)
{
	char why[WHY_MAX + 1];

	if (read_body(req, why, NULL))
		set_fact(req, NODE_CORDONED, true, why, 0, on_fact);
}

static void on_undrained(struct api_request *req, const struct fleet_reply *reply)
{
	if (err_is_set(&reply->err))
		api_fail(req, &reply->err);
	else
		set_fact(req, NODE_CORDONED, false, "", 0, on_fact);
}

void api_node_uncordon(struct api_request *req)
{
	struct fleet_node_view view;

	if (find_node(req, &view) == 0)
		set_fact(req, NODE_DRAINING, false, "", 0, on_undrained);
}

void api_node_drain(struct api_request *req)
{
	uint64_t deadline_s = DRAIN_S;
	char why[WHY_MAX + 1];

	if (read_body(req, why, &deadline_s))
		set_fact(req, NODE_DRAINING, true, why,
			clock_realtime_usec() + (int64_t)deadline_s * USEC_PER_SEC, on_fact);
}

static const char *read_tenant(const struct api_request *req, const json_t *body, const char *pool, struct err *reterr)
{
	const char *name = NULL;

	if (json_get_string(body, "tenant", ID_NAME_MAX, &name, reterr) < 0)
		return NULL;
	if (!name)
		return (void)who_invalid("tenant", "is missing", reterr), NULL;
	if (*name && !registry_tenant_of_pool(&req->server->registry, pool, name))
		return (void)err_set(reterr, FAIL_TENANT_NOT_FOUND, ENOENT, "the pool's customer has no such tenant"), NULL;
	return name;
}

/* Whose what is imported on the node becomes. */
void api_node_take(struct api_request *req)
{
	struct fleet_event event = { .type = FLEET_NODE_TAKE };
	struct fleet_node_view view;
	struct ops none = { .n = 0 };
	struct err err = ERR_NULL;
	json_t *body = api_json(req);

	if (!body || find_node(req, &view) < 0) {
		json_decref(body);
		return;
	}
	event.take_for = read_tenant(req, body, view.record->pool, &err);
	if (event.take_for) {
		(void)snprintf(event.node, sizeof(event.node), "%.*s", ID_LEN, req->params[0]);
		log_info("what is imported on a node is a tenant's", "node", event.node, "tenant", event.take_for);
		api_step(req, &event, &none, on_fact);
	} else {
		api_fail(req, &err);
	}
	json_decref(body);
}

/* What would be lost with the node; false: nothing. */
static bool has_something(const struct api_request *req, const struct fleet_node_view *view, struct err *ret)
{
	struct fleet_node_kept kept = fleet_node_keeps(shell_fleet(req->server->shell), view->record->id);

	if (view->record->revoked || view->n_sandboxes + kept.paused + kept.snapshots == 0)
		return false;
	(void)err_set(ret, FAIL_CONFLICT, EBUSY,
		"the node has %u sandboxes that run, %u that are paused and %u snapshots, which would be lost: drain it first, have "
		"what is kept there woken, ended or deleted, or say force",
		view->n_sandboxes, kept.paused, kept.snapshots);
	err_add(ret, "sandboxes", "%u", view->n_sandboxes);
	err_add(ret, "paused", "%u", kept.paused);
	err_add(ret, "snapshots", "%u", kept.snapshots);
	return true;
}

void api_node_remove(struct api_request *req)
{
	struct fleet_node_view view;
	json_t *body = api_json(req);
	struct err err = ERR_NULL;
	bool force = false;

	if (!body)
		return;
	if (json_get_bool(body, "force", &force, &err) < 0) {
		api_fail(req, &err);
	} else if (find_node(req, &view) == 0) {
		if (!force && has_something(req, &view, &err))
			api_fail(req, &err);
		else
			api_node_revoke(req);
	}
	json_decref(body);
}
