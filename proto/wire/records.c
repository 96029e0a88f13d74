/* SPDX-License-Identifier: Apache-2.0
 *
 * See records.h. Encoders build into the generated structs, because protobuf-c frees with free() what was
 * made with malloc(); decoders never keep a pointer into the message. A code that this version does not
 * know must not become "no error": it decodes to PEER_FAILURE with the name kept as a detail.
 */
#include "wire/records.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const outcomes[RESULT_MAX_] = {
	[RESULT_NONE] = "none",
	[RESULT_OK] = "ok",
	[RESULT_FAILED] = "failed",
	[RESULT_SKIPPED] = "skipped",
};

const char *outcome_name(enum outcome outcome)
{
	return (unsigned int) outcome < RESULT_MAX_ ? outcomes[outcome] : "unknown";
}

static void failure_freep(Croft__FailureRecord **record)
{
	if (*record)
		protobuf_c_message_free_unpacked(&(*record)->base, NULL);
}

static void stage_freep(Croft__StageRecord **record)
{
	if (*record)
		protobuf_c_message_free_unpacked(&(*record)->base, NULL);
}

/* The empty string is what the generated code knows as "absent"; it must not be allocated. */
static bool put_text(char **to, const char *text)
{
	if (!*text)
		return true;
	*to = strdup(text);
	return *to != NULL;
}

static bool put_fields(Croft__FailureRecord *record, const struct err *err)
{
	if (err->n_fields == 0)
		return true;
	record->fields = calloc(err->n_fields, sizeof(*record->fields));
	if (!record->fields)
		return false;
	for (unsigned int i = 0; i < err->n_fields; i++) {
		Croft__Field *field = malloc(sizeof(*field));

		if (!field)
			return false;
		croft__field__init(field);
		record->fields[record->n_fields++] = field;
		if (!put_text(&field->key, err->fields[i].key) || !put_text(&field->value, err->fields[i].value))
			return false;
	}
	return true;
}

Croft__FailureRecord *failure_encode(const struct err *err)
{
	CLEANUP(failure_freep) Croft__FailureRecord *record = malloc(sizeof(*record));

	if (!record)
		return NULL;
	croft__failure_record__init(record);
	record->err_no = err->err_no;
	if (!put_text(&record->code, failure_info(err->code)->name) ||
		!put_text(&record->stage, stage_name(err->stage)) ||
		!put_text(&record->component, component_name(err->component)) ||
		!put_text(&record->message, err->msg) || !put_fields(record, err))
		return NULL;
	return TAKE(record);
}

static void cut(char *to, size_t size, const char *from)
{
	(void) snprintf(to, size, "%s", from ? from : "");
}

void failure_decode(const Croft__FailureRecord *record, struct err *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->code = failure_by_name(record->code);
	if (ret->code == FAIL_NONE) {
		ret->code = FAIL_PEER_FAILURE;
		err_add(ret, "peer_code", "%s", record->code);
	}
	ret->stage = stage_by_name(record->stage);
	ret->component = component_by_name(record->component);
	if (ret->component == COMPONENT_NONE)
		ret->component = failure_info(ret->code)->component;
	ret->err_no = record->err_no > 0 ? record->err_no : 0;
	cut(ret->msg, sizeof(ret->msg), record->message);
	for (size_t i = 0; i < record->n_fields; i++)
		err_add(ret, record->fields[i]->key, "%s", record->fields[i]->value);
}

Croft__StageRecord *stage_record_encode(const struct stage_record *record)
{
	CLEANUP(stage_freep) Croft__StageRecord *to = malloc(sizeof(*to));

	if (!to)
		return NULL;
	croft__stage_record__init(to);
	to->outcome = record->outcome == RESULT_OK ? CROFT__OUTCOME__OUTCOME_OK :
		record->outcome == RESULT_FAILED   ? CROFT__OUTCOME__OUTCOME_FAILED :
		record->outcome == RESULT_SKIPPED  ? CROFT__OUTCOME__OUTCOME_SKIPPED :
						     CROFT__OUTCOME__OUTCOME_UNSPECIFIED;
	to->began_us = record->began_us;
	to->corrected_us = record->corrected_us;
	to->took_us = record->took_us;
	to->attempt = record->attempt;
	to->n_alike = record->n_alike;
	to->generation = record->generation;
	if (!put_text(&to->stage, stage_name(record->stage)) || !put_text(&to->reason, record->reason) ||
		!put_text(&to->sandbox, record->sandbox) || !put_text(&to->node, record->node) ||
		!put_text(&to->operation, record->operation) || !put_text(&to->trace_id, record->trace.trace_id) ||
		!put_text(&to->span_id, record->trace.span_id))
		return NULL;
	if (err_is_set(&record->failure)) {
		to->failure = failure_encode(&record->failure);
		if (!to->failure)
			return NULL;
	}
	return TAKE(to);
}

static enum outcome outcome_decode(Croft__Outcome outcome)
{
	switch ((int) outcome) { /* an int: the peer may send any number */
	case CROFT__OUTCOME__OUTCOME_OK:
		return RESULT_OK;
	case CROFT__OUTCOME__OUTCOME_FAILED:
		return RESULT_FAILED;
	case CROFT__OUTCOME__OUTCOME_SKIPPED:
		return RESULT_SKIPPED;
	default:
		return RESULT_NONE;
	}
}

int stage_record_decode(const Croft__StageRecord *record, struct stage_record *ret)
{
	enum fail_stage stage = stage_by_name(record->stage);
	enum outcome outcome = outcome_decode(record->outcome);

	if (stage == STAGE_NONE || outcome == RESULT_NONE)
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	ret->stage = stage;
	ret->outcome = outcome;
	ret->began_us = record->began_us;
	ret->corrected_us = record->corrected_us;
	ret->took_us = record->took_us;
	ret->attempt = record->attempt;
	ret->n_alike = record->n_alike;
	ret->generation = record->generation;
	cut(ret->reason, sizeof(ret->reason), record->reason);
	cut(ret->sandbox, sizeof(ret->sandbox), record->sandbox);
	cut(ret->node, sizeof(ret->node), record->node);
	cut(ret->operation, sizeof(ret->operation), record->operation);
	cut(ret->trace.trace_id, sizeof(ret->trace.trace_id), record->trace_id);
	cut(ret->trace.span_id, sizeof(ret->trace.span_id), record->span_id);
	if (record->failure)
		failure_decode(record->failure, &ret->failure);
	return 0;
}
