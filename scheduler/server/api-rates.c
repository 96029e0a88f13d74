/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/stages without a sandbox: the rates of stages among the facts that the caller may see and the query takes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/api.h"
#include "server/rollups.h"
#include "server/telemetry.h"
#include "telemetry/rates.h"

#define WHAT_IF_MAX 48
#define SUMS_OVER_US (3600 * USEC_PER_SEC) /* a longer window is answered from the sums */

struct what_if {
	enum fail_stage stage; /* STAGE_MAX_: none is asked for */
	double success;
};

static bool is_own(const char *tenant, const void *user)
{
	const struct api_request *req = user;

	return !strcmp(tenant, req->tenant);
}

static bool is_reached(const char *tenant, const void *user)
{
	return api_may_see_tenant(user, tenant);
}

static int refuse(struct err *reterr, const char *field, const char *why)
{
	(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "%s %s", field, why);
	err_add(reterr, "field", "%s", field);
	return -EINVAL;
}

/* "vmm:0.999" */
static int read_what_if(const char *text, struct what_if *ret, struct err *reterr)
{
	char name[WHAT_IF_MAX], *colon, *end;

	ret->stage = STAGE_MAX_;
	if (!text)
		return 0;
	(void)snprintf(name, sizeof(name), "%s", text);
	colon = strchr(name, ':');
	if (!colon || strlen(text) >= sizeof(name))
		return refuse(reterr, "what_if", "is STAGE:SUCCESS, as in vmm:0.999");
	*colon = '\0';
	ret->stage = stage_by_name(name);
	if (!rate_is_of_start(ret->stage))
		return refuse(reterr, "what_if", "names no stage of a start");
	ret->success = strtod(colon + 1, &end);
	if (!colon[1] || *end || !(ret->success >= 0.0 && ret->success <= 1.0))
		return refuse(reterr, "what_if", "has no success between 0 and 1");
	return 0;
}

static int read_filter(const struct api_request *req, int64_t now_us, struct facts_filter *ret, struct err *reterr)
{
	const char *window = api_query(req, "window");
	uint64_t vcpus = 0, memory_mib = 0;
	int64_t usec = 0;
	int r;

	*ret = (struct facts_filter){ .tenant = api_query(req, "tenant"),
		.pool = api_query(req, "pool"),
		.node = api_query(req, "node"),
		.template_name = api_query(req, "template"),
		.version = api_query(req, "version"),
		.region = api_query(req, "region"),
		.sees = api_wants_all(req) ? is_reached : is_own,
		.user = req };
	if (window && (clock_parse_duration(window, &usec) < 0 || usec <= 0))
		return refuse(reterr, "window", "is a time as in 5m, 1h, 24h or 30d");
	ret->from_us = window ? now_us - usec : 0;
	r = api_query_u64(req, "vcpus", 1, UINT32_MAX, &vcpus, reterr);
	if (r == 0)
		r = api_query_u64(req, "memoryMB", 1, INT64_MAX, &memory_mib, reterr);
	ret->vcpus = (uint32_t)vcpus;
	ret->memory_mib = memory_mib;
	return r;
}

static json_t *view_code(const struct server *server, const struct rate_code *code)
{
	const struct failure_info *info = failure_info(code->code);

	return json_pack("{s:s, s:I, s:s, s:s?, s:s, s:s, s:s, s:s}", "code", info->name, "n", (json_int_t)code->n,
		"component", component_name(info->component), "owner",
		code->pool ? api_owner_name(server, code->pool, info->component) : NULL, "trace", code->trace,
		"sandbox", code->sandbox, "node", code->node, "remedy", info->remedy);
}

static json_t *view_rate(const struct server *server, enum fail_stage stage, const struct stage_rate *rate)
{
	const bool was_tried = rate->ok + rate->failed > 0;
	json_t *codes = json_array();

	for (size_t i = 0; i < rate->n_codes; i++)
		(void)json_array_append_new(codes, view_code(server, &rate->codes[i]));
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:o}", "stage",
		stage_name(stage), "what", stage_what(stage), "attempts", (json_int_t)(rate->ok + rate->failed + rate->saved), "ok",
		(json_int_t)rate->ok, "failed", (json_int_t)rate->failed, "saved", (json_int_t)rate->saved, "skipped",
		(json_int_t)rate->skipped, "success", was_tried ? json_real(rate->success) : json_null(), "low",
		was_tried ? json_real(rate->low) : json_null(), "high", was_tried ? json_real(rate->high) : json_null(),
		"p50_ms", rate->p50_ms, "p90_ms", rate->p90_ms, "p95_ms", rate->p95_ms, "p99_ms", rate->p99_ms, "codes",
		codes);
}

static json_t *view_time_or_null(int64_t when_us)
{
	char text[CLOCK_RFC3339_SIZE];

	return when_us > 0 ? json_string(clock_format_rfc3339(when_us, text, sizeof(text))) : json_null();
}

static json_t *real_if(bool known, double value)
{
	return known ? json_real(value) : json_null();
}

/* Where an answer comes from. */
struct source {
	int64_t from_us, step_us; /* step 0: of single stages */
	uint64_t n_rows;
};

static json_t *view(const struct server *server, const struct rates *rates, const struct what_if *what_if,
	const struct source *source, int64_t now_us)
{
	json_t *list = json_array(), *object;

	for (unsigned int i = 1; i < STAGE_MAX_; i++) {
		const struct stage_rate *rate = &rates->stages[i];

		if (rate_is_of_start((enum fail_stage)i) || rate->ok + rate->failed + rate->skipped > 0)
			(void)json_array_append_new(list, view_rate(server, (enum fail_stage)i, rate));
	}
	object = json_pack("{s:o, s:o, s:o, s:o, s:s?, s:o, s:o, s:o, s:o, s:b, s:I, s:s, s:I, s:I}", "stages", list, "product",
		real_if(rates->has_product, rates->product), "product_low", real_if(rates->has_product, rates->low),
		"product_high", real_if(rates->has_product, rates->high), "weakest",
		rates->weakest == STAGE_MAX_ ? NULL : stage_name(rates->weakest), "from",
		view_time_or_null(source->from_us), "oldest", view_time_or_null(rates->oldest_us), "newest",
		view_time_or_null(rates->newest_us), "as_of", view_time_or_null(now_us), "complete",
		rates->is_complete, "dropped", (json_int_t)rates->n_dropped, "source", source->step_us ? "sums" : "stages",
		"step_s", (json_int_t)(source->step_us / USEC_PER_SEC), "rows", (json_int_t)source->n_rows);
	if (object && what_if->stage != STAGE_MAX_)
		(void)json_object_set_new(object, "what_if",
			json_pack("{s:s, s:f, s:o}", "stage", stage_name(what_if->stage), "success", what_if->success,
				"product",
				real_if(rates->has_product, rates_what_if(rates, what_if->stage, what_if->success))));
	return object;
}

/* ---- long windows: from the sums ---- */

static void forget(void *question)
{
	rollups_forget(question);
}

/* Sums have no examples: the latest that is held of each code. Without one, whose a code is depends on its pool (NULL: on which?). */
static void take_examples(struct rates *rates, const struct rates *held, const char *pool)
{
	for (size_t i = 1; i < STAGE_MAX_; i++)
		for (size_t k = 0; k < rates->stages[i].n_codes; k++) {
			rates->stages[i].codes[k].pool = pool;
			for (size_t j = 0; j < held->stages[i].n_codes; j++)
				if (rates->stages[i].codes[k].code == held->stages[i].codes[j].code) {
					const uint64_t n = rates->stages[i].codes[k].n;

					rates->stages[i].codes[k] = held->stages[i].codes[j];
					rates->stages[i].codes[k].n = n;
				}
		}
}

static void answer_sums(struct api_request *req, const struct rollups_answer *answer)
{
	const int64_t now_us = clock_realtime_usec();
	const struct source source = { answer->from_us, answer->step_us, answer->n_rows };
	struct rates *rates = malloc(sizeof(*rates)), *held = malloc(sizeof(*held));
	struct facts_filter filter;
	struct what_if what_if;
	struct err err = answer->err;

	if (answer->r == 0 && rates && held && read_filter(req, now_us, &filter, &err) == 0 &&
		read_what_if(api_query(req, "what_if"), &what_if, &err) == 0 &&
		facts_rates(telemetry_facts(req->server->telemetry), &filter, held) == 0) {
		*rates = answer->rates;
		take_examples(rates, held, filter.pool ? filter.pool : *answer->pool ? answer->pool : NULL);
		api_answer(req, 200, view(req->server, rates, &what_if, &source, now_us));
	} else {
		(void)err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for the table of stages");
		api_fail(req, &err);
	}
	free(rates);
	free(held);
}

static void on_sums(const struct rollups_answer *answer, void *user)
{
	struct api_request *req = user;

	req->extra = NULL;
	req->extra_free = NULL;
	answer_sums(req, answer);
}

/* 0: the answer comes; -ENOTSUP: sums do not tell this. */
static int ask_sums(struct api_request *req, const struct facts_filter *filter, int64_t now_us, size_t n_points,
	void (*done)(const struct rollups_answer *answer, void *user), struct err *reterr)
{
	struct question *question;
	const struct rollups_wish wish = { filter, api_wants_all(req) && role_is_provider(req->role), now_us, n_points };
	int r = rollups_ask(req->server->rollups, &wish, done, req, &question, reterr);

	if (r < 0)
		return r;
	req->extra = question;
	req->extra_free = forget;
	return 0;
}

void api_stage_rates(struct api_request *req)
{
	const int64_t now_us = clock_realtime_usec();
	struct rates *rates = calloc(1, sizeof(*rates));
	struct facts_filter filter;
	struct what_if what_if = { .stage = STAGE_MAX_ };
	struct err err = ERR_NULL;
	int r = read_filter(req, now_us, &filter, &err);

	if (r == 0)
		r = read_what_if(api_query(req, "what_if"), &what_if, &err);
	if (r == 0 && (!rates || facts_rates(telemetry_facts(req->server->telemetry), &filter, rates) < 0))
		r = err_set(&err, FAIL_NO_MEMORY, ENOMEM, "no memory for the table of stages");
	if (r == 0 && filter.from_us > 0 && (now_us - filter.from_us > SUMS_OVER_US || !rates->is_complete)) {
		r = ask_sums(req, &filter, now_us, 0, on_sums, &err);
		if (r == 0) {
			free(rates);
			return;
		}
		if (r == -ENOTSUP) {
			rates->is_complete = false; /* of what ended long ago nothing is held one by one */
			r = 0;
		}
	}
	if (r < 0)
		api_fail(req, &err);
	else
		api_answer(req, 200, view(req->server, rates, &what_if, &(struct source){ filter.from_us, 0, 0 }, now_us));
	free(rates);
}

/* ---- over time ---- */

#define POINTS 60
#define HISTORY_US (24 * 3600 * USEC_PER_SEC)

static json_t *view_point(const struct rollups_point *point)
{
	return json_pack("{s:o, s:I, s:I, s:o, s:o, s:o}", "at", view_time_or_null(point->from_us), "starts", (json_int_t)point->starts,
		"failed", (json_int_t)point->failed, "product", real_if(point->has_product, point->product), "low",
		real_if(point->has_product, point->low), "high", real_if(point->has_product, point->high));
}

static void on_points(const struct rollups_answer *answer, void *user)
{
	struct api_request *req = user;
	json_t *list;

	req->extra = NULL;
	req->extra_free = NULL;
	if (answer->r < 0) {
		api_fail(req, &answer->err);
		return;
	}
	list = json_array();
	for (size_t i = 0; i < answer->n_points; i++)
		(void)json_array_append_new(list, view_point(&answer->points[i]));
	api_answer(req, 200, json_pack("{s:o, s:I, s:o, s:o, s:b, s:I, s:I}", "from", view_time_or_null(answer->from_us), "point_s",
		(json_int_t)(answer->point_us / USEC_PER_SEC), "points", list, "as_of", view_time_or_null(clock_realtime_usec()),
		"complete", answer->rates.is_complete, "dropped", (json_int_t)answer->rates.n_dropped, "rows",
		(json_int_t)answer->n_rows));
}

void api_stage_history(struct api_request *req)
{
	const int64_t now_us = clock_realtime_usec();
	struct facts_filter filter;
	struct err err = ERR_NULL;
	uint64_t n_points = POINTS;
	int r = read_filter(req, now_us, &filter, &err);

	if (r == 0)
		r = api_query_u64(req, "points", 1, ROLLUPS_POINTS_MAX, &n_points, &err);
	if (filter.from_us == 0)
		filter.from_us = now_us - HISTORY_US;
	if (r == 0)
		r = ask_sums(req, &filter, now_us, n_points, on_points, &err);
	if (r == -ENOTSUP)
		r = refuse(&err, "node", "is in sums of nodes alone, which know no tenant, template and shape: name fewer of them");
	if (r < 0)
		api_fail(req, &err);
}
