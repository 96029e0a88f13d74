/* SPDX-License-Identifier: Apache-2.0
 *
 * What the scheduler knows about itself and its work: health, stages, placement explained, metrics.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "place/place.h"
#include "server/api.h"
#include "server/link.h"
#include "server/relay.h"
#include "server/request.h"
#include "server/shell.h"
#include "server/telemetry.h"
#include "server/view.h"

void api_health(struct api_request *req)
{
	const struct err *failure = shell_failure(req->server->shell);

	api_answer(req, failure ? 503 : 200,
		json_pack("{s:s, s:s, s:s, s:s?}", "status", failure ? "store-failed" : "ok",
			"version", CROFT_VERSION, "lineage", req->server->lineage, "reason",
			failure ? failure_info(failure->code)->name : NULL));
}

void api_whoami(struct api_request *req)
{
	api_answer(req, 200,
		json_pack("{s:s, s:s, s:s?, s:s?}", "key", req->key_id, "role", role_name(req->role), "tenant",
			*req->tenant ? req->tenant : NULL, "customer",
			*req->customer ? req->customer : NULL));
}

/* ---- stages ---- */
static void answer_stages_of(struct api_request *req, const struct sandbox_record *record)
{
	api_answer(req, 200,
		json_pack("{s:s, s:s, s:s?, s:I, s:o, s:o}", "sandbox", record->id, "state",
			record->ended_us ? public_state_name(PUBLIC_ENDED)
					 : sandbox_state_name(record->state),
			"trace", *record->trace.trace_id ? record->trace.trace_id : NULL,
			"attempts", (json_int_t)record->attempts, "records",
			view_stages(req->server, record), "failure",
			view_failure(req->server, record)));
}

static void no_sandbox(struct api_request *req)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_SANDBOX_NOT_FOUND, ENOENT, "there is no such sandbox");
	api_fail(req, &err);
}

static void on_history(struct api_request *req, struct sandbox_record *record)
{
	if (record && api_may_see_tenant(req, record->tenant))
		answer_stages_of(req, record);
	else
		no_sandbox(req);
}

void api_stages(struct api_request *req)
{
	const char *id = api_query(req, "sandbox");
	struct sandbox_record record;

	if (!id) {
		api_stage_rates(req);
		return;
	}
	if (!id_is_valid(id)) {
		no_sandbox(req);
		return;
	}
	if (fleet_sandbox_get(shell_fleet(req->server->shell), id, &record, NULL) < 0) {
		api_read_history(req, id, on_history);
		return;
	}
	if (!api_may_see_tenant(req, record.tenant))
		no_sandbox(req);
	else
		answer_stages_of(req, &record);
	sandbox_record_deinit(&record);
}

/* ---- explain ---- */
static json_t *view_explanation(const struct place_explanation *e)
{
	json_t *excluded = json_object();

	for (enum place_constraint i = 0; i < PLACE_CONSTRAINT_MAX_; i++)
		(void)json_object_set_new(excluded, place_constraint_name(i),
			json_integer((json_int_t)e->excluded[i]));
	return json_pack("{s:I, s:I, s:o, s:s?, s:s?, s:I, s:I, s:I, s:I, s:s?, s:s?}", "nodes",
		(json_int_t)e->n_nodes, "fitting", (json_int_t)e->n_fitting, "excluded", excluded,
		"nearest", *e->nearest ? e->nearest : NULL, "lacking",
		e->lacking == PLACE_CONSTRAINT_MAX_ ? NULL : place_constraint_name(e->lacking),
		"asked", (json_int_t)e->asked, "available", (json_int_t)e->available, "largest",
		(json_int_t)e->largest, "largest_total", (json_int_t)e->largest_total, "cause",
		e->cause == FAIL_NONE ? NULL : failure_info(e->cause)->name, "change",
		*e->change ? e->change : NULL);
}

void api_explain(struct api_request *req)
{
	struct create_request request;
	struct place_explanation explanation;
	json_t *body = api_json(req);
	const char *tenant = req->tenant;
	struct err err = ERR_NULL;
	int r;

	if (!body)
		return;
	r = json_get_string(body, "tenant", ID_NAME_MAX, &tenant, &err);
	if (r == 0 && (!*tenant || !api_may_see_tenant(req, tenant) ||
			      !registry_tenant(&req->server->registry, tenant)))
		r = err_set(&err, FAIL_TENANT_NOT_FOUND, ENOENT, "there is no such tenant");
	if (r == 0)
		r = create_request_read(body, req->server, tenant, &request, &err);
	json_decref(body);
	if (r < 0) {
		api_fail(req, &err);
		return;
	}
	if (fleet_explain(shell_fleet(req->server->shell), request.pool, request.spec,
		    &request.wish, &explanation) < 0) {
		(void)err_set(&err, FAIL_POOL_NOT_FOUND, ENOENT, "there is no such pool");
		api_fail(req, &err);
	} else {
		api_answer(req, 200, view_explanation(&explanation));
	}
	create_request_deinit(&request);
}
