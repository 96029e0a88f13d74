/* SPDX-License-Identifier: Apache-2.0
 *
 * See dispatch.h. The head is read with the scanner, not unpacked, so that a sender who may not send a
 * message cannot make us allocate for it.
 */
#include "wire/dispatch.h"

#include <errno.h>
#include <string.h>

#include "wire/check.h"
#include "wire/endpoint.h"
#include "wire/records.h"
#include "wire/scan.h"

static const char *const results[DISPATCH_MAX_] = {
	[DISPATCH_OK] = "ok",
	[DISPATCH_MALFORMED] = "malformed",
	[DISPATCH_VERSION] = "version",
	[DISPATCH_UNSUPPORTED] = "unsupported",
	[DISPATCH_FORBIDDEN] = "forbidden",
	[DISPATCH_STATE] = "state",
	[DISPATCH_TOO_LARGE] = "too-large",
	[DISPATCH_FAILED] = "failed",
};

const char *dispatch_result_name(enum dispatch_result result)
{
	return (unsigned int) result < DISPATCH_MAX_ ? results[result] : "unknown";
}

enum { HEAD_MAJOR = 1, HEAD_MINOR, HEAD_EPOCH, HEAD_SEQ, HEAD_ACK, HEAD_TRACE, HEAD_DEADLINE };

static void read_trace(const struct scan_field *field, struct trace *ret)
{
	char text[TRACEPARENT_SIZE];

	if (field->type != SCAN_BYTES || field->size != sizeof(text) - 1)
		return;
	memcpy(text, field->data, field->size);
	text[field->size] = '\0';
	if (trace_parse(text, ret) < 0) /* a wrong trace is no reason to refuse a command */
		memset(ret, 0, sizeof(*ret));
}

static void read_head_field(const struct scan_field *field, struct envelope_head *head)
{
	switch (field->number) {
	case HEAD_MAJOR:
		head->version_major = (uint32_t) field->value;
		break;
	case HEAD_MINOR:
		head->version_minor = (uint32_t) field->value;
		break;
	case HEAD_EPOCH:
		head->epoch = field->value;
		break;
	case HEAD_SEQ:
		head->seq = field->value;
		break;
	case HEAD_ACK:
		head->ack = field->value;
		break;
	case HEAD_TRACE:
		read_trace(field, &head->trace);
		break;
	case HEAD_DEADLINE:
		head->deadline_ms = field->value;
		break;
	default: /* of the oneof the last one counts, as protobuf-c has it */
		if (protobuf_c_message_descriptor_get_field(&croft__envelope__descriptor, field->number))
			head->body = field->number;
		break;
	}
}

static bool read_head(const void *data, size_t size, struct envelope_head *ret)
{
	struct scan scan = { data, (const uint8_t *) data + size };
	struct scan_field field;

	while (scan.at < scan.end) {
		if (!scan_next(&scan, &field))
			return false;
		read_head_field(&field, ret);
	}
	return true;
}

static const struct dispatch_row *find_row(const struct dispatch *dispatch, unsigned int body)
{
	for (size_t i = 0; i < dispatch->n_rows; i++)
		if (dispatch->rows[i].body == body)
			return &dispatch->rows[i];
	return NULL;
}

static const char *body_name(unsigned int body)
{
	const ProtobufCFieldDescriptor *field =
		protobuf_c_message_descriptor_get_field(&croft__envelope__descriptor, body);

	return field ? field->name : "unknown";
}

static enum dispatch_result refuse(enum dispatch_result result, unsigned int body, struct err *reterr)
{
	static const struct {
		enum fail_code code;
		const char *why;
	} reasons[DISPATCH_MAX_] = {
		[DISPATCH_MALFORMED] = { FAIL_FRAME_INVALID, "it is malformed" },
		[DISPATCH_VERSION] = { FAIL_VERSION_UNSUPPORTED, "its major version is not ours" },
		[DISPATCH_UNSUPPORTED] = { FAIL_FRAME_UNSUPPORTED, "it is not known here" },
		[DISPATCH_FORBIDDEN] = { FAIL_FORBIDDEN, "its sender may not send it" },
		[DISPATCH_STATE] = { FAIL_CONFLICT, "it may not come now" },
		[DISPATCH_TOO_LARGE] = { FAIL_FRAME_INVALID, "it is too large" },
	};

	(void) err_set_at(reterr, STAGE_HOST, reasons[result].code, EPROTO, "the message was refused: %s",
		reasons[result].why);
	err_add(reterr, "message", "%s", body_name(body));
	return result;
}

static enum dispatch_result judge(const struct dispatch *dispatch, const struct envelope_head *head, size_t size,
	unsigned int role, unsigned int state, const struct dispatch_row **ret)
{
	const struct dispatch_row *row;

	if (head->version_major != LINK_VERSION_MAJOR)
		return DISPATCH_VERSION;
	row = head->body ? find_row(dispatch, head->body) : NULL;
	if (!row)
		return DISPATCH_UNSUPPORTED;
	if (role >= 32 || !(row->roles & DISPATCH_IN(role)))
		return DISPATCH_FORBIDDEN;
	if (state >= 32 || !(row->states & DISPATCH_IN(state)))
		return DISPATCH_STATE;
	if (size > row->max_size)
		return DISPATCH_TOO_LARGE;
	*ret = row;
	return DISPATCH_OK;
}

static enum dispatch_result run_row(const struct dispatch_row *row, const void *data, size_t size, void *call,
	const struct envelope_head *head, struct err *reterr)
{
	ProtobufCMessage *msg = check_unpack(&croft__envelope__descriptor, data, size, reterr);
	Croft__Envelope *envelope = (Croft__Envelope *) (void *) msg;
	enum dispatch_result result = DISPATCH_OK;

	if (!msg)
		return DISPATCH_MALFORMED;
	if ((unsigned int) envelope->body_case != row->body)
		result = refuse(DISPATCH_MALFORMED, row->body, reterr);
	else if (row->handler(call, head, envelope, reterr) < 0)
		result = DISPATCH_FAILED;
	protobuf_c_message_free_unpacked(msg, NULL);
	return result;
}

enum dispatch_result dispatch(struct dispatch *dispatch, const void *data, size_t size, unsigned int role,
	unsigned int state, void *call, struct envelope_head *ret_head, struct err *reterr)
{
	const struct dispatch_row *row = NULL;
	enum dispatch_result result;

	memset(ret_head, 0, sizeof(*ret_head));
	if (size > ENDPOINT_FRAME_MAX || !read_head(data, size, ret_head))
		result = DISPATCH_MALFORMED;
	else
		result = judge(dispatch, ret_head, size, role, state, &row);
	if (result != DISPATCH_OK)
		(void) refuse(result, ret_head->body, reterr);
	else
		result = run_row(row, data, size, call, ret_head, reterr);
	dispatch->counts[result]++;
	return result;
}

bool dispatch_is_answerable(enum dispatch_result result, const struct envelope_head *head)
{
	return result != DISPATCH_OK && result != DISPATCH_MALFORMED && head->seq != 0 &&
		head->body != CROFT__ENVELOPE__BODY_REFUSED;
}

/* ---- encoding ---- */

uint8_t *envelope_pack(const struct envelope_head *head, Croft__Envelope *envelope, size_t *ret_size)
{
	char traceparent[TRACEPARENT_SIZE], *old_trace = envelope->traceparent;
	uint8_t *data = NULL;
	size_t size;

	envelope->version_major = LINK_VERSION_MAJOR;
	envelope->version_minor = LINK_VERSION_MINOR;
	envelope->epoch = head->epoch;
	envelope->seq = head->seq;
	envelope->ack = head->ack;
	envelope->deadline_ms = head->deadline_ms;
	if (*head->trace.trace_id) {
		trace_format(&head->trace, traceparent);
		envelope->traceparent = traceparent;
	}
	size = croft__envelope__get_packed_size(envelope);
	if (size <= ENDPOINT_FRAME_MAX)
		data = malloc(size ? size : 1);
	if (data)
		*ret_size = croft__envelope__pack(envelope, data);
	envelope->traceparent = old_trace; /* ours is on this stack */
	return data;
}

uint8_t *envelope_pack_refused(const struct envelope_head *head, uint64_t seq, const struct err *err,
	size_t *ret_size)
{
	Croft__Envelope envelope;
	Croft__Refused refused;
	uint8_t *data;

	croft__envelope__init(&envelope);
	croft__refused__init(&refused);
	refused.seq = seq;
	refused.failure = failure_encode(err);
	if (!refused.failure)
		return NULL;
	envelope.body_case = CROFT__ENVELOPE__BODY_REFUSED;
	envelope.refused = &refused;
	data = envelope_pack(head, &envelope, ret_size);
	protobuf_c_message_free_unpacked(&refused.failure->base, NULL);
	return data;
}
