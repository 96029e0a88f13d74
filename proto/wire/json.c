/* SPDX-License-Identifier: Apache-2.0
 *
 * See json.h. Texts of errors are cut at fixed sizes and may end inside a UTF-8 character; jansson refuses
 * such strings, so every text goes through utf8_string(), which drops what is not UTF-8.
 */
#include "wire/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define ERRNO_MAX 200

#define CLEANUP_JSON CLEANUP(json_decrefp)

/* A JSON string; bytes that are not UTF-8 become '?'. */
static json_t *utf8_string(const char *text)
{
	json_t *string = json_string(text);
	char copy[ERR_MSG_MAX];
	size_t n = 0;

	if (string)
		return string;
	for (; *text && n < sizeof(copy) - 1; text++)
		copy[n++] = (unsigned char) *text < 0x80 ? *text : '?';
	copy[n] = '\0';
	return json_string(copy);
}

/* Absent members are left out; false only when memory is short. */
static bool put_text(json_t *object, const char *key, const char *text)
{
	return !text || !*text || json_object_set_new(object, key, utf8_string(text)) == 0;
}

static bool put_time(json_t *object, const char *key, int64_t realtime_us)
{
	char text[CLOCK_RFC3339_SIZE];

	return realtime_us == 0 || put_text(object, key, clock_format_rfc3339(realtime_us, text, sizeof(text)));
}

static bool put_took(json_t *object, int64_t took_us)
{
	return json_object_set_new(object, "took_ms", json_integer(took_us / USEC_PER_MSEC)) == 0;
}

static bool put_detail(json_t *object, const struct err *err)
{
	json_t *detail = json_object();

	for (unsigned int i = 0; i < err->n_fields; i++)
		(void) json_object_set_new(detail, err->fields[i].key, utf8_string(err->fields[i].value));
	return json_object_set_new(object, "detail", detail) == 0;
}

static bool put_errno(json_t *object, int err_no)
{
	const char *name = err_no ? strerrorname_np(err_no) : NULL;

	return json_object_set_new(object, "errno", name ? json_string(name) : json_null()) == 0;
}

static bool put_context(json_t *object, const struct failure_context *context)
{
	return put_text(object, "trace", context->trace ? context->trace->trace_id : NULL) &&
		put_text(object, "sandbox", context->sandbox) && put_text(object, "operation", context->operation) &&
		put_text(object, "node", context->node) && put_text(object, "pool", context->pool) &&
		put_text(object, "tenant", context->tenant) && put_time(object, "began", context->began_us) &&
		(context->began_us == 0 || put_took(object, context->took_us));
}

static enum fail_owner owner_of(enum fail_component component, const struct failure_context *context)
{
	if (context->table && (unsigned int) component < COMPONENT_MAX_)
		return context->table->owner[component];
	return component_owner(component, context->responsibility);
}

json_t *json_failure(const struct err *err, const struct failure_context *context)
{
	const struct failure_info *info = failure_info(err->code);
	CLEANUP_JSON json_t *object = json_object();

	if (put_text(object, "code", info->name) && put_text(object, "stage", stage_name(err->stage)) &&
		put_text(object, "component", component_name(err->component)) &&
		put_text(object, "owner", owner_name(owner_of(err->component, context))) &&
		put_text(object, "class", class_name(info->class)) &&
		json_object_set_new(object, "retryable", json_boolean(err_is_retryable(err))) == 0 &&
		put_errno(object, err->err_no) && put_text(object, "message", err->msg) && put_detail(object, err) &&
		put_text(object, "remedy", info->remedy) && put_context(object, context))
		return TAKE(object);
	return NULL;
}

json_t *json_error_body(const struct err *err, const struct failure_context *context)
{
	CLEANUP_JSON json_t *body = json_object();
	const struct failure_info *info = failure_info(err->code);

	if (json_object_set_new(body, "code", json_integer(info->http)) == 0 &&
		json_object_set_new(body, "message", utf8_string(*err->msg ? err->msg : info->remedy)) == 0 &&
		json_object_set_new(body, "failure", json_failure(err, context)) == 0)
		return TAKE(body);
	return NULL;
}

json_t *json_stage(const struct stage_record *record, const struct failure_context *context)
{
	const struct failure_context own = { .responsibility = context->responsibility, .table = context->table,
		.trace = *record->trace.trace_id ? &record->trace : NULL,
		.began_us = record->began_us, .took_us = record->took_us };
	CLEANUP_JSON json_t *object = json_object();

	if (!put_text(object, "stage", stage_name(record->stage)) ||
		!put_text(object, "outcome", outcome_name(record->outcome)) ||
		!put_text(object, "reason", record->reason) || !put_time(object, "began", record->began_us) ||
		!put_took(object, record->took_us) ||
		json_object_set_new(object, "took_us", json_integer(record->took_us)) < 0 ||
		json_object_set_new(object, "attempt", json_integer(record->attempt)) < 0 ||
		json_object_set_new(object, "generation", json_integer((json_int_t) record->generation)) < 0 ||
		!put_text(object, "sandbox", record->sandbox) || !put_text(object, "node", record->node) ||
		!put_text(object, "operation", record->operation) ||
		!put_text(object, "trace", record->trace.trace_id) || !put_text(object, "span", record->trace.span_id))
		return NULL;
	if (err_is_set(&record->failure) &&
		json_object_set_new(object, "failure", json_failure(&record->failure, &own)) < 0)
		return NULL;
	return TAKE(object);
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static int errno_by_name(const char *name)
{
	for (int i = 1; i < ERRNO_MAX; i++) {
		const char *one = strerrorname_np(i);

		if (one && !strcmp(one, name))
			return i;
	}
	return 0;
}

int json_parse_error(const json_t *body, struct err *ret)
{
	const json_t *failure = json_object_get(body, "failure");
	const char *code = text_of(failure, "code"), *key, *message;
	json_t *value;

	if (!*code)
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	ret->code = failure_by_name(code);
	if (ret->code == FAIL_NONE) {
		ret->code = FAIL_PEER_FAILURE;
		err_add(ret, "peer_code", "%s", code);
	}
	ret->stage = stage_by_name(text_of(failure, "stage"));
	ret->component = component_by_name(text_of(failure, "component"));
	ret->err_no = errno_by_name(text_of(failure, "errno"));
	message = text_of(failure, "message");
	(void) snprintf(ret->msg, sizeof(ret->msg), "%s", *message ? message : text_of(body, "message"));
	json_object_foreach(json_object_get(failure, "detail"), key, value)
	{
		if (json_is_string(value))
			err_add(ret, key, "%s", json_string_value(value));
	}
	return 0;
}

static int wrong(struct err *reterr, const char *key, const char *what)
{
	int r = err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "%s must be %s", key, what);

	err_add(reterr, "field", "%s", key);
	return r;
}

int json_get_string(const json_t *object, const char *key, size_t max, const char **ret, struct err *reterr)
{
	const json_t *value = json_object_get(object, key);
	char what[64];

	if (!value || json_is_null(value))
		return 0;
	if (!json_is_string(value))
		return wrong(reterr, key, "a string");
	if (json_string_length(value) > max) {
		(void) snprintf(what, sizeof(what), "at most %zu bytes", max);
		return wrong(reterr, key, what);
	}
	if (strlen(json_string_value(value)) != json_string_length(value))
		return wrong(reterr, key, "a string without NUL");
	*ret = json_string_value(value);
	return 0;
}

int json_get_u64(const json_t *object, const char *key, uint64_t min, uint64_t max, uint64_t *ret, struct err *reterr)
{
	const json_t *value = json_object_get(object, key);
	json_int_t number;
	char what[80];

	if (!value || json_is_null(value))
		return 0;
	(void) snprintf(what, sizeof(what), "a whole number from %llu to %llu", (unsigned long long) min,
		(unsigned long long) max);
	if (!json_is_integer(value))
		return wrong(reterr, key, what);
	number = json_integer_value(value);
	if (number < 0 || (uint64_t) number < min || (uint64_t) number > max)
		return wrong(reterr, key, what);
	*ret = (uint64_t) number;
	return 0;
}

int json_get_bool(const json_t *object, const char *key, bool *ret, struct err *reterr)
{
	const json_t *value = json_object_get(object, key);

	if (!value || json_is_null(value))
		return 0;
	if (!json_is_boolean(value))
		return wrong(reterr, key, "true or false");
	*ret = json_is_true(value);
	return 0;
}

/* Back over the number, over `:`, and to the quote that begins the name. Names with escapes are not told. */
void json_name_before(const char *text, size_t position, char *ret, size_t size)
{
	static const char spaces[] = " \t\r\n", number[] = "0123456789+-.eE";
	size_t end = position, begin;

	*ret = '\0';
	while (end > 0 && strchr(number, text[end - 1]) && text[end - 1])
		end--;
	while (end > 0 && strchr(spaces, text[end - 1]) && text[end - 1])
		end--;
	if (end == 0 || text[end - 1] != ':')
		return;
	end--;
	while (end > 0 && strchr(spaces, text[end - 1]) && text[end - 1])
		end--;
	if (end == 0 || text[end - 1] != '"')
		return;
	begin = --end;
	while (begin > 0 && text[begin - 1] != '"')
		begin--;
	if (end - begin < size && !memchr(text + begin, '\\', end - begin))
		(void) snprintf(ret, size, "%.*s", (int) (end - begin), text + begin);
}
