/* SPDX-License-Identifier: Apache-2.0
 *
 * OTLP's JSON: ids in hexadecimal digits, 64-bit numbers as strings, enumerations as numbers. See otlp.h. What a span says is what
 * the record has: names that croft or the provider gave, codes, numbers; no text that a failure came with.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "telemetry/otlp.h"

#define KIND_INTERNAL 1
#define STATUS_UNSET 0
#define STATUS_OK 1
#define STATUS_ERROR 2

/* No memory anywhere is noticed at the end: what has a NULL in it becomes NULL. */
static json_t *number_text(uint64_t number)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRIu64, number);
	return json_string(text);
}

static json_t *nanoseconds(int64_t us)
{
	return number_text((uint64_t)us * 1000);
}

/* What is not UTF-8, a node's word, is left out: one such must not cost its batch. */
static int put_text(json_t *list, const char *key, const char *value)
{
	json_t *text = value && *value ? json_string(value) : NULL;

	if (!text)
		return 0;
	return json_array_append_new(list, json_pack("{s:s, s:{s:o}}", "key", key, "value", "stringValue", text));
}

static int put_number(json_t *list, const char *key, uint64_t value)
{
	if (value == 0)
		return 0;
	return json_array_append_new(list, json_pack("{s:s, s:{s:o}}", "key", key, "value", "intValue", number_text(value)));
}

static json_t *attributes_of(const struct otlp_span *span)
{
	const struct failure_info *info = span->code == FAIL_NONE ? NULL : failure_info(span->code);
	const struct {
		const char *key, *value;
	} texts[] = {
		{ "croft.outcome", outcome_name(span->outcome) },
		{ "croft.code", info ? info->name : NULL },
		{ "croft.component", info ? component_name(info->component) : NULL },
		{ "croft.owner", info ? span->owner : NULL },
		{ "croft.sandbox", span->sandbox },
		{ "croft.tenant", span->tenant },
		{ "croft.pool", span->pool },
		{ "croft.node", span->node },
		{ "croft.template", span->template_name },
		{ "croft.node_version", span->version },
		{ "croft.region", span->region },
	};
	const struct {
		const char *key;
		uint64_t value;
	} numbers[] = {
		{ "croft.attempt", span->attempt },
		{ "croft.calls", span->n > 1 ? span->n : 0 },
		{ "croft.vcpus", span->vcpus },
		{ "croft.memory_mib", span->memory_mib },
	};
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		r |= put_text(list, texts[i].key, texts[i].value);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		r |= put_number(list, numbers[i].key, numbers[i].value);
	if (r == 0)
		return list;
	json_decref(list);
	return NULL;
}

static json_t *status_of(const struct otlp_span *span)
{
	if (span->outcome == RESULT_FAILED)
		return json_pack("{s:i, s:s}", "code", STATUS_ERROR, "message", failure_info(span->code)->name);
	return json_pack("{s:i}", "code", span->outcome == RESULT_OK ? STATUS_OK : STATUS_UNSET);
}

static json_t *json_of(const struct otlp_span *span)
{
	json_t *object = json_pack("{s:s, s:s, s:s, s:i, s:o, s:o, s:o, s:o}", "traceId", span->trace, "spanId", span->span, "name",
		span->name, "kind", KIND_INTERNAL, "startTimeUnixNano", nanoseconds(span->began_us), "endTimeUnixNano",
		nanoseconds(span->began_us + span->took_us), "attributes", attributes_of(span), "status", status_of(span));

	if (*span->parent && object && json_object_set_new(object, "parentSpanId", json_string(span->parent)) < 0) {
		json_decref(object);
		return NULL;
	}
	return object;
}

static json_t *resource(const char *version, const char *instance)
{
	json_t *list = json_array();

	if (put_text(list, "service.name", "croft-scheduler") < 0 || put_text(list, "service.version", version) < 0 ||
		put_text(list, "service.instance.id", instance) < 0) {
		json_decref(list);
		return NULL;
	}
	return json_pack("{s:o}", "attributes", list);
}

json_t *otlp_request(const struct otlp_queue *queue, size_t n, const char *version, const char *instance)
{
	json_t *spans = json_array();

	for (size_t i = 0; i < n; i++) {
		if (json_array_append_new(spans, json_of(otlp_queue_at(queue, i))) < 0) {
			json_decref(spans);
			return NULL;
		}
	}
	return json_pack("{s:[{s:o, s:[{s:{s:s, s:s}, s:o}]}]}", "resourceSpans", "resource", resource(version, instance), "scopeSpans", "scope",
		"name", "croft.stages", "version", version, "spans", spans);
}

uint64_t otlp_rejected(const char *body, size_t size)
{
	json_t *root = size > 0 ? json_loadb(body, size, 0, NULL) : NULL;
	const json_t *number = json_object_get(json_object_get(root, "partialSuccess"), "rejectedSpans");
	uint64_t n = 0;

	if (json_is_integer(number) && json_integer_value(number) > 0)
		n = (uint64_t)json_integer_value(number);
	else if (json_is_string(number) && *json_string_value(number) != '-')
		n = strtoull(json_string_value(number), NULL, 10);
	json_decref(root);
	return n;
}
