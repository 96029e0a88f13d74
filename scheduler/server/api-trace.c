/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/traces/{id}: one run end to end. The stages of a start come from its sandbox's record, live or ended, whole with their
 * failures; the calls into a sandbox and what else became of it come from the facts that are held.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/api.h"
#include "server/shell.h"
#include "server/telemetry.h"
#include "server/view.h"
#include "telemetry/rates.h"
#include "telemetry/trace.h"

struct step {
	int64_t when_us, took_us;
	enum fail_stage stage;
	json_t *json;
};

struct run {
	char trace[TRACE_ID_SIZE]; /* "": a sandbox was asked for: whatever its trace */
	char sandbox[ID_SIZE];     /* "": the trace has none that is known */
	struct stage_fact facts[TRACE_FACTS_MAX];
	struct step steps[TRACE_FACTS_MAX + SANDBOX_STAGES_MAX];
	size_t n_facts, n_steps;
	bool has_more;
};

static bool is_seen(const char *tenant, const void *user)
{
	return api_may_see_tenant(user, tenant);
}

static bool is_trace(const char *id)
{
	return strlen(id) == TRACE_ID_SIZE - 1 && strspn(id, "0123456789abcdef") == TRACE_ID_SIZE - 1;
}

static void not_found(struct api_request *req)
{
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_SANDBOX_NOT_FOUND, ENOENT, "nothing is known of such a trace or sandbox");
	api_fail(req, &err);
}

/* Whether a record has this stage, so that no fact need be shown of it: not what is older than all that it still has. */
static bool is_of_record(const struct sandbox_record *record, const struct stage_fact *fact)
{
	return record && !strcmp(record->id, fact->sandbox) &&
	       (rate_is_of_start(fact->stage) || fact->stage == STAGE_STOP || fact->stage == STAGE_RUN) &&
	       record->n_stages > 0 && fact->when_us >= record->stages[0].began_us;
}

static void add_step(struct run *run, int64_t when_us, int64_t took_us, enum fail_stage stage, json_t *json)
{
	if (!json || run->n_steps == ARRAY_LEN(run->steps)) {
		json_decref(json);
		return;
	}
	(void)json_object_set_new(json, "process", json_string(trace_process(stage)));
	run->steps[run->n_steps++] = (struct step){ when_us, took_us, stage, json };
}

static json_t *view_fact(const struct server *server, const struct stage_fact *fact)
{
	const struct failure_info *info = failure_info(fact->code);
	json_t *object = json_pack("{s:s, s:s, s:o, s:f, s:I, s:I, s:s, s:s*, s:s*}", "stage", stage_name(fact->stage), "outcome",
		outcome_name(fact->outcome), "began", view_time(fact->when_us), "took_ms", (double)fact->took_us / 1000.0, "took_us",
		(json_int_t)fact->took_us, "attempt", (json_int_t)fact->attempt, "sandbox", fact->sandbox, "node",
		*fact->node ? fact->node : NULL, "trace", *fact->trace ? fact->trace : NULL);

	if (object && fact->outcome == RESULT_FAILED)
		(void)json_object_set_new(object, "failure",
			json_pack("{s:s, s:s, s:s, s:s}", "code", info->name, "component", component_name(info->component), "owner",
				api_owner_name(server, fact->pool, info->component),
				"remedy", info->remedy));
	return object;
}

static void add_record(struct run *run, const struct server *server, const struct sandbox_record *record)
{
	const struct failure_context context = { .responsibility = RESPONSIBILITY_SELF,
		.table = api_responsibility(server, record->pool) };

	for (size_t i = 0; i < record->n_stages && i < SANDBOX_STAGES_MAX; i++) {
		const struct stage_record *stage = &record->stages[i];

		if (!*run->trace || !strcmp(run->trace, stage->trace.trace_id))
			add_step(run, stage->began_us, stage->took_us, stage->stage, json_stage(stage, &context));
	}
}

static int by_time(const void *a, const void *b)
{
	const struct step *left = a, *right = b;

	if (left->when_us != right->when_us)
		return left->when_us < right->when_us ? -1 : 1;
	return (int)left->stage - (int)right->stage;
}

/* Takes the steps over. */
static json_t *view_steps(struct run *run, int64_t *ret_end_us)
{
	json_t *list = json_array();

	qsort(run->steps, run->n_steps, sizeof(run->steps[0]), by_time);
	*ret_end_us = 0;
	for (size_t i = 0; i < run->n_steps; i++) {
		const struct step *step = &run->steps[i];

		(void)json_object_set_new(step->json, "at_us", json_integer(step->when_us - run->steps[0].when_us));
		(void)json_array_append_new(list, step->json);
		*ret_end_us = MAX(*ret_end_us, step->when_us + step->took_us);
	}
	return list;
}

/* `record` NULL: facts alone are known. */
static void answer_run(struct api_request *req, struct run *run, const struct sandbox_record *record)
{
	const char *trace = *run->trace ? run->trace : record ? record->trace.trace_id : "";
	const int64_t dropped_us = facts_dropped_until(telemetry_facts(req->server->telemetry));
	int64_t end_us;
	json_t *steps;

	if (record)
		add_record(run, req->server, record);
	for (size_t i = 0; i < run->n_facts; i++) {
		const struct stage_fact *fact = &run->facts[i];

		if (!is_of_record(record, fact))
			add_step(run, fact->when_us, fact->took_us, fact->stage, view_fact(req->server, fact));
	}
	if (run->n_steps == 0) {
		not_found(req);
		return;
	}
	steps = view_steps(run, &end_us);
	api_answer(req, 200,
		json_pack("{s:s?, s:s?, s:s?, s:o, s:I, s:o, s:b, s:b, s:o}", "trace", *trace ? trace : NULL, "sandbox",
			record	       ? record->id
			: *run->sandbox ? run->sandbox
				       : NULL,
			"tenant", record ? record->tenant : run->n_facts ? run->facts[0].tenant : NULL, "began",
			view_time(run->steps[0].when_us), "took_us", (json_int_t)(end_us - run->steps[0].when_us), "steps", steps,
			"more", run->has_more, "complete",
			dropped_us == 0 || dropped_us < run->steps[0].when_us, "as_of", view_time(clock_realtime_usec())));
}

static void on_history(struct api_request *req, struct sandbox_record *record)
{
	struct run *run = req->extra;

	answer_run(req, run, record && api_may_see_tenant(req, record->tenant) ? record : NULL);
}

/* The sandbox that a trace is about: the one whose start it is, or that was called. */
static void choose_sandbox(struct run *run)
{
	for (size_t i = 0; i < run->n_facts; i++)
		if (!*run->sandbox || rate_is_of_start(run->facts[i].stage)) {
			(void)snprintf(run->sandbox, sizeof(run->sandbox), "%s", run->facts[i].sandbox);
			if (rate_is_of_start(run->facts[i].stage))
				return;
		}
}

static void answer_from_record(struct api_request *req, struct run *run)
{
	struct sandbox_record record;

	if (!id_is_valid(run->sandbox)) {
		answer_run(req, run, NULL);
		return;
	}
	if (fleet_sandbox_get(shell_fleet(req->server->shell), run->sandbox, &record, NULL) < 0) {
		api_read_history(req, run->sandbox, on_history);
		return;
	}
	answer_run(req, run, api_may_see_tenant(req, record.tenant) ? &record : NULL);
	sandbox_record_deinit(&record);
}

void api_trace(struct api_request *req)
{
	const char *id = req->params[0];
	struct run *run = calloc(1, sizeof(*run));
	struct trace_filter filter = { .sees = is_seen, .user = req };
	struct err err = ERR_NULL;

	if (!run) {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for a trace");
		api_fail(req, &err);
		return;
	}
	req->extra = run;
	req->extra_free = free;
	if (is_trace(id)) {
		(void)snprintf(run->trace, sizeof(run->trace), "%.*s", TRACE_ID_SIZE - 1, id);
		filter.trace = run->trace;
	} else if (id_is_valid(id)) {
		(void)snprintf(run->sandbox, sizeof(run->sandbox), "%.*s", ID_LEN, id);
		filter.sandbox = run->sandbox;
	} else {
		not_found(req);
		return;
	}
	run->n_facts = facts_trace(telemetry_facts(req->server->telemetry), &filter, run->facts, &run->has_more);
	choose_sandbox(run);
	answer_from_record(req, run);
}
