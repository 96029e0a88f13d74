/* SPDX-License-Identifier: Apache-2.0
 *
 * See view.h.
 */
#include "server/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "server/api.h"
#include "server/link.h"
#include "server/request.h"
#include "server/shell.h"
#include "server/telemetry.h"
#include "telemetry/clock-offset.h"
#include "wire/json.h"

json_t *view_time(int64_t realtime_us)
{
	char text[CLOCK_RFC3339_SIZE];

	return realtime_us > 0 ? json_string(clock_format_rfc3339(realtime_us, text, sizeof(text)))
			       : json_null();
}

json_t *view_fields(const struct sandbox_field *fields, size_t n)
{
	json_t *object = json_object();

	for (size_t i = 0; i < n; i++)
		(void)json_object_set_new(object, fields[i].key, json_string(fields[i].value));
	return object;
}

/* When its life ends: what the record says, or what it will say once it runs. */
static int64_t ends_us(const struct sandbox_record *record)
{
	if (record->ended_us)
		return record->ended_us;
	if (record->ends_us)
		return record->ends_us;
	return record->created_us + (int64_t)record->spec->timeout_s * USEC_PER_SEC;
}

json_t *view_sandbox_e2b(const struct server *server, const struct sandbox_record *record)
{
	const char *token = record->spec->access_token;

	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s?, s:n}", "sandboxID", record->id,
		"templateID", record->spec->template_name, "clientID",
		*record->node ? record->node : "none", "alias", record->template_alias,
		"envdVersion", API_ENVD_VERSION, "domain", server->domain, "envdAccessToken",
		*token ? token : NULL, "trafficAccessToken");
}

static void append_rules(json_t *list, const struct net_cidr *blocks, size_t n_blocks, char (*names)[NET_NAME_SIZE],
	size_t n_names)
{
	char text[NET_CIDR_TEXT];

	for (size_t i = 0; i < n_blocks; i++) {
		net_cidr_format(&blocks[i], text);
		(void)json_array_append_new(list, json_string(text));
	}
	for (size_t i = 0; i < n_names; i++)
		(void)json_array_append_new(list, json_string(names[i]));
}

/* As E2B's clients know it. */
static json_t *view_network(const struct net_policy *policy)
{
	json_t *allow = json_array(), *deny = json_array();

	append_rules(allow, policy->allow, policy->n_allow, policy->allow_names, policy->n_allow_names);
	append_rules(deny, policy->deny, policy->n_deny, policy->deny_names, policy->n_deny_names);
	return json_pack("{s:o, s:o}", "allowOut", allow, "denyOut", deny);
}

/* E2B's clients know running and paused only; what it really is stands in `croft`. */
static const char *e2b_state(enum public_state state)
{
	return state == PUBLIC_PAUSED ? "paused" : "running";
}

json_t *view_sandbox_detail(const struct server *server, const struct sandbox_record *record,
	const struct fleet_sandbox_view *view)
{
	const struct sandbox_spec *spec = record->spec;
	json_t *object = view_sandbox_e2b(server, record);
	json_t *more;

	if (!object)
		return NULL;
	more = json_pack(
		"{s:o, s:o, s:s, s:I, s:I, s:I, s:o, s:b, s:o, s:{s:s, s:b}, s:[], s:{s:s, s:s, s:o, s:b, s:o}}",
		"startedAt",
		view_time(record->started_us ? record->started_us : record->created_us), "endAt",
		view_time(ends_us(record)), "state", e2b_state(view->state), "cpuCount",
		(json_int_t)spec->vcpus, "memoryMB", (json_int_t)spec->memory_mib, "diskSizeMB",
		(json_int_t)spec->disk_mib, "metadata",
		view_fields(record->metadata, record->n_metadata), "allowInternetAccess",
		spec->network.internet, "network", view_network(&spec->network),
		"lifecycle", "onTimeout", spec->auto_pause ? "pause" : "kill", "autoResume", spec->auto_resume, "volumeMounts", "croft",
		"state", public_state_name(view->state), "node_state",
		*record->node ? node_link_name(view->node_link) : "none", "as_of",
		view_time(view->as_of_us), "certain", view->certain, "stages",
		view_stages(server, record));
	if (!more || json_object_update(object, more) < 0) {
		json_decref(object);
		object = NULL;
	}
	json_decref(more);
	return object;
}

/* By attempt, then as a start goes: `dispatch` ends after `accept`, so the order in which records came is not the
 * readers'. Attempts are a peer's numbers: they are stepped through, not counted through. */
json_t *view_stages(const struct server *server, const struct sandbox_record *record)
{
	const struct failure_context context = { .responsibility = RESPONSIBILITY_SELF,
		.table = api_responsibility(server, record->pool) };
	json_t *list = json_array();
	int64_t attempt = -1, next;

	for (;; attempt = next) {
		next = INT64_MAX;
		for (size_t i = 0; i < record->n_stages; i++)
			if (record->stages[i].attempt > attempt)
				next = MIN(next, (int64_t)record->stages[i].attempt);
		if (next == INT64_MAX)
			return list;
		for (unsigned int stage = 0; stage < STAGE_MAX_; stage++)
			for (size_t i = 0; i < record->n_stages; i++)
				if (record->stages[i].stage == stage && record->stages[i].attempt == next)
					(void)json_array_append_new(
						list, json_stage(&record->stages[i], &context));
	}
}

/* From the request to the end of the stage that failed it: the last failed one that is recorded. */
static int64_t took_until_failure(const struct sandbox_record *record)
{
	int64_t end = record->ended_us;

	for (size_t i = 0; i < record->n_stages; i++)
		if (record->stages[i].outcome == RESULT_FAILED)
			end = record->stages[i].began_us + record->stages[i].took_us;
	return MAX(end - record->created_us, 0);
}

json_t *view_failure(const struct server *server, const struct sandbox_record *record)
{
	const struct failure_context context = { .responsibility = RESPONSIBILITY_SELF,
		.table = api_responsibility(server, record->pool),
		.trace = *record->trace.trace_id ? &record->trace : NULL,
		.sandbox = record->id,
		.operation = *record->operation ? record->operation : NULL,
		.node = *record->node ? record->node : NULL,
		.pool = record->pool,
		.tenant = record->tenant,
		.began_us = record->created_us,
		.took_us = took_until_failure(record) };

	return err_is_set(&record->failure) ? json_failure(&record->failure, &context)
					    : json_null();
}

uint64_t view_version(const struct sandbox_record *record)
{
	const uint64_t parts[] = { (uint64_t)record->state, record->generation,
		record->report_version, record->n_stages, record->attempts,
		(uint64_t)record->ends_us, (uint64_t)record->ended_us, record->n_events,
		record->n_events ? (uint64_t)record->events[record->n_events - 1].when_us : 0 };

	return fnv1a(FNV1A_BASIS, parts, sizeof(parts));
}

/* The stage under way: behind the last one that succeeded or was skipped in this attempt. */
static const char *current_stage(const struct sandbox_record *record)
{
	const struct stage_record *last =
		record->n_stages ? &record->stages[record->n_stages - 1] : NULL;

	if (!last || last->stage < STAGE_ADMIT || last->stage >= STAGE_READY)
		return NULL;
	if (last->outcome == RESULT_FAILED)
		return stage_name(STAGE_PLACE);
	return stage_name((enum fail_stage)(last->stage + 1));
}

static json_t *view_events(const struct sandbox_record *record)
{
	json_t *list = json_array();

	for (size_t i = 0; i < record->n_events; i++) {
		const struct sandbox_event *event = &record->events[i];

		(void)json_array_append_new(list,
			json_pack("{s:o, s:s, s:s?, s:s}", "when", view_time(event->when_us), "name",
				event->name, "node", *event->node ? event->node : NULL, "detail",
				event->detail));
	}
	return list;
}

/* Where its node says that it has something else than what is recorded. */
static json_t *view_differs(const struct fleet_sandbox_view *view)
{
	json_t *list = json_array();

	if (view && view->network_differs)
		(void)json_array_append_new(list, json_string("network"));
	if (view && view->budget_differs)
		(void)json_array_append_new(list, json_string("budget"));
	return list;
}

json_t *view_sandbox(const struct server *server, const struct sandbox_record *record,
	const struct fleet_sandbox_view *view)
{
	const struct sandbox_spec *spec = record->spec;
	enum public_state state = view ? view->state : PUBLIC_ENDED;
	char version[24];
	json_t *object;

	(void)snprintf(version, sizeof(version), "%016" PRIx64, view_version(record));
	object = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s?, s:s?, s:I, s:i, s:s, s:s, s:s, s:I}",
		"id", record->id, "state", public_state_name(state), "internal_state",
		sandbox_state_name(record->state), "tenant", record->tenant, "pool", record->pool,
		"node", *record->node ? record->node : NULL, "stage",
		state == PUBLIC_STARTING ? current_stage(record) : NULL, "generation",
		(json_int_t)record->generation, "incarnation", (int)record->incarnation, "version",
		version, "template", spec->template_name, "image", spec->image_digest, "vcpus",
		(json_int_t)spec->vcpus);
	if (!object)
		return NULL;
	(void)json_object_set_new(object, "memory_mib", json_integer((json_int_t)spec->memory_mib));
	(void)json_object_set_new(object, "disk_mib", json_integer((json_int_t)spec->disk_mib));
	(void)json_object_set_new(object, "budget", view_budget(&spec->budget));
	(void)json_object_set_new(object, "timeout_s", json_integer((json_int_t)spec->timeout_s));
	(void)json_object_set_new(object, "internet", json_boolean(spec->network.internet));
	(void)json_object_set_new(object, "network", view_network(&spec->network));
	(void)json_object_set_new(
		object, "metadata", view_fields(record->metadata, record->n_metadata));
	(void)json_object_set_new(object, "created", view_time(record->created_us));
	(void)json_object_set_new(object, "started", view_time(record->started_us));
	(void)json_object_set_new(
		object, "ends", view_time(record->ended_us ? 0 : record->ends_us));
	(void)json_object_set_new(object, "ended", view_time(record->ended_us));
	(void)json_object_set_new(object, "end_reason",
		record->end_reason == END_NONE ? json_null()
					       : json_string(end_reason_name(record->end_reason)));
	(void)json_object_set_new(object, "attempts", json_integer((json_int_t)record->attempts));
	(void)json_object_set_new(object, "trace",
		*record->trace.trace_id ? json_string(record->trace.trace_id) : json_null());
	(void)json_object_set_new(object, "operation",
		*record->operation ? json_string(record->operation) : json_null());
	(void)json_object_set_new(object, "guest_boot_id",
		*record->guest_boot_id ? json_string(record->guest_boot_id) : json_null());
	(void)json_object_set_new(object, "node_state",
		view && *record->node ? json_string(node_link_name(view->node_link)) : json_null());
	(void)json_object_set_new(
		object, "as_of", view ? view_time(view->as_of_us) : view_time(record->ended_us));
	(void)json_object_set_new(object, "certain", json_boolean(!view || view->certain));
	(void)json_object_set_new(object, "node_differs", view_differs(view));
	(void)json_object_set_new(object, "stages", view_stages(server, record));
	(void)json_object_set_new(object, "events", view_events(record));
	(void)json_object_set_new(object, "failure", view_failure(server, record));
	return object;
}

static json_t *facts(const struct node_record *record)
{
	json_t *object = json_object();

	for (enum node_fact i = 0; i < NODE_FACT_MAX_; i++) {
		const struct node_fact_entry *fact = &record->facts[i];

		if (fact->is_set)
			(void)json_object_set_new(object, node_fact_name(i),
				json_pack("{s:s, s:s, s:o, s:o}", "who", fact->who, "why",
					fact->why, "since", view_time(fact->since_us), "until",
					view_time(fact->until_us)));
	}
	return object;
}

/* Of what is held against a node: evidence of LIMIT in the same unit is a quarantine. */
static json_t *health(const struct node_record *record)
{
	const struct node_health *h = &record->health;
	json_t *images = json_array();

	for (size_t i = 0; i < record->n_images; i++) {
		const struct node_image *pair = &record->images[i];

		(void)json_array_append_new(images,
			json_pack("{s:s, s:s, s:b, s:I, s:I, s:s?, s:o}", "image",
				pair->image.digest, "template", pair->image.name, "quarantined",
				pair->is_barred, "failures", (json_int_t)pair->failures,
				"evidence_milli", (json_int_t)pair->against_milli, "why",
				pair->is_barred ? pair->why : NULL, "since",
				view_time(pair->since_us)));
	}
	return json_pack("{s:b, s:I, s:I, s:I, s:o, s:o}", "proven", h->is_proven, "starts",
		(json_int_t)h->starts, "failures", (json_int_t)h->failures, "evidence_milli",
		(json_int_t)h->against_milli, "images", images, "last_quarantine",
		h->last_until_us ? json_pack("{s:s, s:o, s:o}", "why", h->last_why, "since",
					   view_time(h->last_since_us), "until",
					   view_time(h->last_until_us))
				 : json_null());
}

static json_t *capacity(const struct fleet_node_view *view)
{
	const struct node_capacity *c = &view->record->capacity;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "memory_mib",
		(json_int_t)c->memory_mib, "memory_reserved_mib",
		(json_int_t)view->memory_reserved_mib, "cpus", (json_int_t)c->cpus,
		"vcpus_reserved", (json_int_t)view->cpus_reserved, "disk_mib",
		(json_int_t)c->disk_mib, "disk_reserved_mib", (json_int_t)view->disk_reserved_mib,
		"max_sandboxes", (json_int_t)c->max_sandboxes, "sandboxes",
		(json_int_t)view->n_sandboxes, "max_starts", (json_int_t)c->max_starts, "starting",
		(json_int_t)view->n_starting, "max_vcpus", (json_int_t)c->max_vcpus);
}

static json_t *space(const struct space_list *list)
{
	json_t *array = json_array();

	for (size_t i = 0; list && i < list->n; i++)
		(void)json_array_append_new(array,
			json_pack("{s:s?, s:I}", "tenant", *list->items[i].tenant ? list->items[i].tenant : NULL, "used_mib",
				(json_int_t)list->items[i].used));
	return array;
}

/* Whole milliseconds, for a real of JSON has not the digits of an offset of years; `within` covers what was rounded. */
static void put_clock(json_t *object, const struct server *server, const struct fleet_node_view *view)
{
	struct clock_sample clock;
	const bool is_known = view->session && link_clock(server->link, view->session, &clock);
	const int64_t half_us = USEC_PER_MSEC / 2;

	(void)json_object_set_new(object, "clock_offset_ms", is_known ? json_integer((clock.ahead_us + (clock.ahead_us < 0 ? -half_us : half_us)) / USEC_PER_MSEC) : json_null());
	(void)json_object_set_new(object, "clock_within_ms", is_known ? json_integer((clock.within_us + half_us + USEC_PER_MSEC - 1) / USEC_PER_MSEC) : json_null());
}

json_t *view_node(const struct server *server, const struct fleet_node_view *view)
{
	const struct node_record *record = view->record;
	const struct failure_context context = { .responsibility = RESPONSIBILITY_SELF,
		.table = api_responsibility(server, record->pool),
		.node = record->id,
		.pool = record->pool };
	struct fleet_node_kept kept;
	json_t *object = json_pack(
		"{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "id",
		record->id, "pool", record->pool, "hostname", record->hostname, "machine",
		record->machine, "version", record->version, "cpuClass", record->cpu_class, "state", node_link_name(view->link),
		"schedulable", view->schedulable, "revoked", record->revoked, "facts",
		facts(record), "health", health(record), "labels", view_fields(record->labels, record->n_labels), "joined",
		view_time(record->joined_us), "heard", view_time(view->heard_us), "images",
		(json_int_t)view->n_images, "capacity", capacity(view));

	if (!object)
		return NULL;
	kept = fleet_node_keeps(shell_fleet(server->shell), record->id);
	put_clock(object, server, view);
	(void)json_object_set_new(object, "takes_for", *view->takes_for ? json_string(view->takes_for) : json_null());
	(void)json_object_set_new(object, "kept",
		json_pack("{s:I, s:I}", "paused", (json_int_t)kept.paused, "snapshots", (json_int_t)kept.snapshots));
	(void)json_object_set_new(object, "space", space(view->space));
	(void)json_object_set_new(object, "unschedulable",
		view->unschedulable && err_is_set(view->unschedulable)
			? json_failure(view->unschedulable, &context)
			: json_null());
	(void)json_object_set_new(
		object, "telemetry", telemetry_node_json(server->telemetry, record->id));
	return object;
}
