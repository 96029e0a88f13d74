/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of the link: the envelope through dispatch() as either side has it, then the decoder of each message, then the
 * encoder of what was decoded. The first byte says who sends. What a decoder lets through must encode, and must decode
 * again to the same bytes.
 */
#include "fuzz.h"

#include "base/log.h"
#include "wire/check.h"
#include "wire/dispatch.h"
#include "wire/messages.h"

static void check_again(const ProtobufCMessage *message)
{
	size_t n = protobuf_c_message_get_packed_size(message);
	uint8_t *bytes = malloc(n + 1), *more;
	ProtobufCMessage *again;

	CLAIM(bytes && protobuf_c_message_pack(message, bytes) == n);
	again = check_unpack(message->descriptor, bytes, n, NULL);
	CLAIM(again);
	more = malloc(n + 1);
	CLAIM(more && protobuf_c_message_get_packed_size(again) == n && protobuf_c_message_pack(again, more) == n);
	CLAIM(memcmp(bytes, more, n) == 0);
	protobuf_c_message_free_unpacked(again, NULL);
	free(bytes);
	free(more);
}

#define HANDLER(name, member, type, decode, encode, deinit)                                        \
	static int on_##name(void *call, const struct envelope_head *head, const Croft__Envelope *envelope, \
		struct err *reterr)                                                                \
	{                                                                                          \
		type value;                                                                        \
		ProtobufCMessage *message;                                                         \
		int r;                                                                             \
		(void) call;                                                                       \
		(void) head;                                                                       \
		memset(&value, 0, sizeof(value));                                                  \
		r = decode(envelope->member, &value, reterr);                                      \
		if (r < 0)                                                                         \
			return r;                                                                  \
		message = (ProtobufCMessage *) encode(&value);                                     \
		CLAIM(message);                                                                    \
		check_again(message);                                                              \
		protobuf_c_message_free_unpacked(message, NULL);                                   \
		deinit(&value);                                                                    \
		return 0;                                                                          \
	}

static void nothing(void *value)
{
	(void) value;
}

HANDLER(hello, hello, struct hello, hello_decode, hello_encode, hello_deinit)
HANDLER(inventory, inventory, struct inventory, inventory_decode, inventory_encode, inventory_deinit)
HANDLER(report, report, struct sandbox_report, sandbox_report_decode, sandbox_report_encode, sandbox_report_deinit)
HANDLER(capacity, capacity, struct capacity_report, capacity_report_decode, capacity_report_encode, capacity_report_deinit)
HANDLER(welcome, welcome, struct welcome, welcome_decode, welcome_encode, nothing)
HANDLER(create, create, struct create_command, create_command_decode, create_command_encode, create_command_deinit)
HANDLER(destroy, destroy, struct destroy_command, destroy_command_decode, destroy_command_encode, nothing)
HANDLER(update, update, struct update_command, update_command_decode, update_command_encode, nothing)
HANDLER(pause, pause, struct pause_command, pause_command_decode, pause_command_encode, nothing)
HANDLER(resume, resume, struct resume_command, resume_command_decode, resume_command_encode, nothing)
HANDLER(snapshot, snapshot, struct snapshot_command, snapshot_command_decode, snapshot_command_encode, nothing)

static int on_drop_snapshot(
	void *call, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	char id[ID_SIZE];
	Croft__DropSnapshot *message;
	int r = drop_snapshot_decode(envelope->drop_snapshot, id, reterr);

	(void) call;
	(void) head;
	if (r < 0)
		return r;
	message = drop_snapshot_encode(id);
	CLAIM(message);
	check_again(&message->base);
	protobuf_c_message_free_unpacked(&message->base, NULL);
	return 0;
}

static int on_snapshot_dropped(
	void *call, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	char id[ID_SIZE];
	Croft__SnapshotDropped *message;
	int r = snapshot_dropped_decode(envelope->snapshot_dropped, id, reterr);

	(void) call;
	(void) head;
	if (r < 0)
		return r;
	message = snapshot_dropped_encode(id);
	CLAIM(message);
	check_again(&message->base);
	protobuf_c_message_free_unpacked(&message->base, NULL);
	return 0;
}

HANDLER(network_update, network_update, struct network_command, network_command_decode, network_command_encode,
	network_command_deinit)
HANDLER(budget, budget_update, struct budget_command, budget_command_decode, budget_command_encode, nothing)
HANDLER(usage, usage, struct usage_report, usage_report_decode, usage_report_encode, usage_report_deinit)
HANDLER(report_ack, report_ack, struct report_ack, report_ack_decode, report_ack_encode, nothing)
HANDLER(desired, desired, struct desired_set, desired_set_decode, desired_set_encode, desired_set_deinit)

static int on_heartbeat(void *call, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	struct heartbeat heartbeat;

	(void) call;
	(void) head;
	(void) reterr;
	heartbeat_decode(envelope->heartbeat, &heartbeat);
	return 0;
}

static int on_telemetry(void *call, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	(void) call;
	(void) head;
	(void) reterr;
	for (size_t i = 0; i < envelope->telemetry->n_records; i++) {
		const Croft__TelemetryRecord *record = envelope->telemetry->records[i];
		struct stage_record stage;

		if (record->body_case == CROFT__TELEMETRY_RECORD__BODY_STAGE)
			(void) !stage_record_decode(record->stage, &stage);
	}
	return 0;
}

static int on_refused(void *call, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	struct err err = ERR_NULL;

	(void) call;
	(void) head;
	(void) reterr;
	if (envelope->refused->failure)
		failure_decode(envelope->refused->failure, &err);
	return 0;
}

static int on_any(void *call, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	(void) call;
	(void) head;
	(void) reterr;
	CLAIM(envelope->body_case != CROFT__ENVELOPE__BODY__NOT_SET);
	return 0;
}

#define ROW(name, handler) { CROFT__ENVELOPE__BODY_##name, DISPATCH_IN(0), DISPATCH_ANY, 1024 * 1024, handler }
static const struct dispatch_row rows[] = { ROW(ENROLL, on_any), ROW(HELLO, on_hello), ROW(HEARTBEAT, on_heartbeat),
	ROW(INVENTORY, on_inventory), ROW(REPORT, on_report), ROW(CAPACITY, on_capacity), ROW(TELEMETRY, on_telemetry),
	ROW(IMAGE_REQUEST, on_any), ROW(STREAM_DATA, on_any), ROW(STREAM_CREDIT, on_any), ROW(STREAM_CLOSE, on_any),
	ROW(REFUSED, on_refused), ROW(WELCOME, on_welcome), ROW(CREATE, on_create), ROW(DESTROY, on_destroy),
	ROW(UPDATE, on_update), ROW(NETWORK_UPDATE, on_network_update), ROW(PAUSE, on_pause),
	ROW(RESUME, on_resume), ROW(SNAPSHOT, on_snapshot), ROW(DROP_SNAPSHOT, on_drop_snapshot),
	ROW(SNAPSHOT_DROPPED, on_snapshot_dropped), ROW(USAGE, on_usage), ROW(BUDGET_UPDATE, on_budget), ROW(USAGE_ACK, on_any), ROW(UPGRADE_OFFER, on_any),
	ROW(UPGRADE_RESULT, on_any), ROW(CLOCK_PING, on_any), ROW(CLOCK_PONG, on_any), ROW(REPORT_ACK, on_report_ack), ROW(DESIRED, on_desired) };

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	log_init("fuzz", LOG_LEVEL_ERROR);
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	return mutate_message(data, size, max_size, seed, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dispatch dispatch_table = { .rows = rows, .n_rows = sizeof(rows) / sizeof(rows[0]) };
	struct envelope_head head;
	struct err err = ERR_NULL;
	enum dispatch_result result = dispatch(&dispatch_table, data, size, 0, 0, NULL, &head, &err);

	CLAIM((result == DISPATCH_OK) == (err.code == FAIL_NONE));
	if (dispatch_is_answerable(result, &head)) {
		size_t n;
		uint8_t *answer = envelope_pack_refused(&head, head.seq, &err, &n);

		CLAIM(answer);
		free(answer);
	}
	return 0;
}
