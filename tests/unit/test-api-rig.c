/* SPDX-License-Identifier: Apache-2.0
 *
 * See test-api-rig.h.
 */
#include "test-api-rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zmq.h>

#include "server/message.h"
#include "server/ops.h"
#include "wire/credit.h"

#define COPY(to, from) ((void)snprintf(to, sizeof(to), "%s", from))

/* ---- the scheduler ---- */
#define TEXT(literal)                                                                              \
	((char *)(uintptr_t)(literal)) /* argv is not const, though nobody writes to it */

static void load_options(struct rig *rig)
{
	char *argv[] = { TEXT("test"), TEXT("--state"), rig->dir, TEXT("--api-port"), TEXT("0"),
		TEXT("--link-port"), TEXT("0"), TEXT("--fleet-heartbeat-ms"), TEXT("200"),
		TEXT("--fleet-suspect-after"), TEXT("1s"), TEXT("--limits-image-size"), TEXT("1M"),
		NULL };
	int argc = (int)ARRAY_LEN(argv) - 1;
	struct err err = ERR_NULL;

	ck_assert_msg(options_load(&rig->options, &argc, argv, &err) == 0, "%s", err.msg);
}

/* A second customer with its own pool, tenant and operator. */
static void add_strangers(struct rig *rig)
{
	const struct store_config config = { .dir = rig->dir };
	const struct pool_record pool = {
		.name = "other", .customer = "other", .cpu_overcommit_percent = 100
	};
	struct rng rng = rng_system();
	struct registry registry;
	struct store *store = NULL;
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;

	api_key_new(&rng, rig->stranger);
	api_key_new(&rng, rig->operator);
	api_key_new(&rng, rig->sibling);
	ck_assert_int_eq(store_open(&store, NULL, &config, &err), 0);
	ck_assert_int_eq(registry_load(&registry, store, &err), 0);
	ck_assert_int_eq(registry_add_customer(&registry, &ops, "other", 1), 0);
	ck_assert_int_eq(registry_add_pool(&registry, &ops, &pool, 1), 0);
	ck_assert_int_eq(registry_add_tenant(&registry, &ops, "other", "other", NULL, 1, 1), 0);
	ck_assert_int_eq(registry_add_key(&registry, &ops, rig->stranger, ROLE_TENANT, "other",
				 "other", "", 1),
		0);
	ck_assert_int_eq(registry_add_tenant(&registry, &ops, "sibling", "default", NULL, 1, 1), 0);
	ck_assert_int_eq(registry_add_key(&registry, &ops, rig->sibling, ROLE_TENANT, "sibling", "default", "", 1), 0);
	ck_assert_int_eq(registry_add_key(&registry, &ops, rig->operator, ROLE_CUSTOMER, "other",
				 "other", "", 1),
		0);
	ck_assert_int_eq(store_commit_wait(store, ops.list, ops.n, &err), 0);
	registry_deinit(&registry);
	ops_deinit(&ops);
	store_close(store);
}

void rig_start(struct rig *rig)
{
	struct err err = ERR_NULL;

	ck_assert_msg(server_new(&rig->server, &rig->options, rig->base, &err) == 0, "%s", err.msg);
}

void rig_stop(struct rig *rig)
{
	server_free(TAKE(rig->server));
}

void rig_open(struct rig *rig)
{
	struct err err = ERR_NULL;

	memset(rig, 0, sizeof(*rig));
	log_init("test", LOG_LEVEL_ERROR);
	COPY(rig->dir, "/tmp/croft-test-api-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(rig->dir));
	load_options(rig);
	ck_assert_msg(init_state(&rig->options, false, &rig->keys, &err) == 0, "%s", err.msg);
	add_strangers(rig);
	rig->base = event_base_new();
	ck_assert_int_eq(event_base_priority_init(rig->base, LOOP_PRIORITIES), 0);
	rig->zmq = zmq_ctx_new();
	rig_start(rig);
	ck_assert_int_eq(http_client_new(&rig->client, rig->base, &err), 0);
}

void rig_close(struct rig *rig)
{
	http_client_free(rig->client);
	rig_stop(rig);
	(void)zmq_ctx_term(rig->zmq);
	event_base_free(rig->base);
	options_free(&rig->options);
	ck_assert_int_eq(dir_remove(rig->dir), 0);
}

/* ---- HTTP ---- */
static void on_done(struct http_call *call, const struct err *err, void *user)
{
	struct answer *answer = user;
	const char *body = http_call_body(call, &answer->size), *header;

	answer->done = true;
	if (err)
		answer->err = *err;
	answer->status = http_call_status(call);
	answer->body = calloc(1, answer->size + 1);
	if (body && answer->size)
		memcpy(answer->body, body, answer->size);
	answer->json = answer->size ? json_loadb(answer->body, answer->size, 0, NULL) : NULL;
	header = http_call_header(call, "traceparent");
	COPY(answer->traceparent, header ? header : "");
	header = http_call_header(call, "x-next-token");
	COPY(answer->next, header ? header : "");
	header = http_call_header(call, "x-croft-as-of");
	COPY(answer->as_of, header ? header : "");
	header = http_call_header(call, "x-ratelimit-limit");
	COPY(answer->limit, header ? header : "");
	header = http_call_header(call, "x-ratelimit-remaining");
	COPY(answer->left, header ? header : "");
	header = http_call_header(call, "retry-after");
	COPY(answer->retry, header ? header : "");
	header = http_call_header(call, "content-security-policy");
	COPY(answer->policy, header ? header : "");
	header = http_call_header(call, "etag");
	COPY(answer->etag, header ? header : "");
	header = http_call_header(call, "location");
	COPY(answer->location, header ? header : "");
}

static void on_header(struct http_call *call, int status, void *user)
{
	struct answer *answer = user;

	(void)call;
	(void)status;
	answer->begun = true;
}

void answer_free(struct answer *answer)
{
	json_decref(answer->json);
	free(answer->body);
	memset(answer, 0, sizeof(*answer));
}

struct http_call *rig_start_call(struct rig *rig, const char *method, const char *path,
	const char *key, const void *body, size_t size, const struct http_field *fields,
	size_t n_fields, struct answer *answer)
{
	struct http_call_config config = HTTP_CALL_NULL;
	struct http_field all[8];
	struct http_call *call = NULL;
	struct err err = ERR_NULL;
	char url[1024];
	size_t n = 0;

	memset(answer, 0, sizeof(*answer));
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", api_port(rig->server->api), path);
	if (key)
		all[n++] = (struct http_field){ "X-API-Key", key };
	for (size_t i = 0; i < n_fields; i++)
		all[n++] = fields[i];
	config.method = method;
	config.url = url;
	config.fields = all;
	config.n_fields = n;
	config.body = body;
	config.body_size = size;
	config.has_body = body != NULL;
	config.max_body = 4 << 20;
	config.on_done = on_done;
	config.on_header = on_header;
	config.user = answer;
	ck_assert_msg(http_call_start(rig->client, &config, &call, &err) == 0, "%s", err.msg);
	return call;
}

struct answer rig_call(
	struct rig *rig, const char *method, const char *path, const char *key, const char *body)
{
	struct answer answer;

	(void)rig_start_call(
		rig, method, path, key, body, body ? strlen(body) : 0, NULL, 0, &answer);
	loop_until(rig->base, &answer.done);
	ck_assert_msg(!err_is_set(&answer.err), "%s %s: %s", method, path, answer.err.msg);
	return answer;
}

const char *answer_code(const struct answer *answer)
{
	const char *code = json_string_value(
		json_object_get(json_object_get(answer->json, "failure"), "code"));

	return code ? code : "";
}

void rig_expect(struct rig *rig, const char *method, const char *path, const char *key,
	const char *body, int status, const char *code)
{
	struct answer answer = rig_call(rig, method, path, key, body);

	ck_assert_msg(answer.status == status, "%s %s %s: %d %s", method, path, body ? body : "",
		answer.status, answer.body);
	if (code)
		ck_assert_msg(!strcmp(answer_code(&answer), code), "%s %s: %s", method, path,
			answer.body);
	if (status >= 400 && code) /* what the SDK decides by */
		ck_assert_int_eq(json_integer_value(json_object_get(answer.json, "code")), status);
	answer_free(&answer);
}

void rig_template(struct rig *rig, const char *name, const char *bytes)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "/v1/templates/%s", name);
	rig_expect(rig, "PUT", path, rig->keys.tenant, bytes, 201, NULL);
}

void answer_text(const json_t *object, const char *key, char *ret, size_t size)
{
	const char *text = json_string_value(json_object_get(object, key));

	(void)snprintf(ret, size, "%s", text ? text : "");
}

void rig_create(struct rig *rig, struct fake_node *node, const char *body, char ret[static ID_SIZE])
{
	struct answer answer = rig_call(rig, "POST", "/v2/sandboxes", rig->keys.tenant, body);

	ck_assert_msg(answer.status == 201, "%d %s", answer.status, answer.body);
	answer_text(answer.json, "sandboxID", ret, ID_SIZE);
	ck_assert_str_eq(node->sandbox, ret);
	answer_free(&answer);
}

/* `pattern` with the id in the place of its star. */
void rig_path(char *ret, size_t size, const char *pattern, const char *id)
{
	const char *star = strchr(pattern, '*');

	(void)snprintf(ret, size, "%.*s%s%s", (int)(star - pattern), pattern, id, star + 1);
}

struct answer rig_get(struct rig *rig, const char *key, const char *pattern, const char *id)
{
	char path[128];

	rig_path(path, sizeof(path), pattern, id);
	return rig_call(rig, "GET", path, key, NULL);
}

void rig_expect_id(struct rig *rig, const char *method, const char *pattern, const char *id,
	const char *key, const char *body, int status, const char *code)
{
	char path[128];

	rig_path(path, sizeof(path), pattern, id);
	rig_expect(rig, method, path, key, body, status, code);
}

/* ---- the node: what it is told ---- */
static void add_stage(struct sandbox_report *report, enum fail_stage stage,
	const struct err *failure, const struct fake_node *node)
{
	struct stage_record *record = &report->stages[report->n_stages++];

	memset(record, 0, sizeof(*record));
	record->stage = stage;
	record->outcome = failure ? RESULT_FAILED : RESULT_OK;
	record->began_us = clock_realtime_usec() + node->ahead_us;
	record->took_us = node->took_us ? node->took_us[stage] : 1000;
	if (node->took_us && report->n_stages > 1) { /* one behind the other */
		const struct stage_record *before = &report->stages[report->n_stages - 2];

		record->began_us = before->began_us + before->took_us;
	}
	record->attempt = 1;
	record->generation = node->generation;
	COPY(record->sandbox, node->sandbox);
	COPY(record->node, node->node);
	COPY(record->operation, node->operation);
	if (stage == STAGE_NETWORK || stage == STAGE_JAIL) {
		record->outcome = RESULT_SKIPPED;
		COPY(record->reason, "not built yet");
	}
	if (failure)
		record->failure = *failure;
}

void node_report(struct fake_node *node, enum report_state state)
{
	struct stage_record stages[16];
	struct sandbox_report report = { .generation = node->generation,
		.version = ++node->version,
		.state = state,
		.accepted = true,
		.stages = stages };
	const struct err *failure = err_is_set(&node->start_failure) ? &node->start_failure : NULL;
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);

	COPY(report.sandbox, node->sandbox);
	COPY(report.operation, node->operation);
	COPY(report.guest_boot_id, "11111111-2222-3333-4444-555555555555");
	for (enum fail_stage stage = STAGE_ACCEPT; state != REPORT_STARTING && stage <= STAGE_READY;
		stage++) {
		bool is_last = failure && stage == (node->fails_at ? node->fails_at : STAGE_VMM);

		add_stage(&report, stage, is_last ? failure : NULL, node);
		if (is_last)
			break;
	}
	if (state == REPORT_ENDED) {
		report.end_reason = failure ? END_FAILED : END_REQUEST;
		if (failure)
			report.failure = *failure;
	}
	envelope.body_case = CROFT__ENVELOPE__BODY_REPORT;
	envelope.report = sandbox_report_encode(&report);
	ck_assert_ptr_nonnull(envelope.report);
	node_send(node, &envelope);
	croft__sandbox_report__free_unpacked(envelope.report, NULL);
}

static void take_create(struct fake_node *node, const Croft__Envelope *envelope)
{
	struct create_command command = { .attempt = 0 };
	struct err err = ERR_NULL;

	ck_assert_msg(create_command_decode(envelope->create, &command, &err) == 0, "%s", err.msg);
	COPY(node->sandbox, command.sandbox);
	COPY(node->operation, command.operation);
	COPY(node->traceparent, envelope->traceparent);
	node->generation = command.generation;
	node->took = command.took;
	node->timeout_s = command.spec->timeout_s;
	node->auto_pause = command.spec->auto_pause;
	COPY(node->spec_snapshot, command.spec->snapshot);
	node->creates++;
	net_policy_deinit(&node->network);
	ck_assert_int_eq(net_policy_copy(&command.spec->network, &node->network), 0);
	create_command_deinit(&command);
	node->created = true;
	if (node->is_silent)
		return;
	node_report(node, REPORT_STARTING);
	node_report(node, err_is_set(&node->start_failure) ? REPORT_ENDED : REPORT_RUNNING);
}

static void take_ping(struct fake_node *node, const Croft__ClockPing *ping)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__ClockPong pong = MESSAGE(Croft__ClockPong, croft__clock_pong__init);

	node->pings++;
	pong.number = ping->number;
	pong.realtime_us = clock_realtime_usec() + node->ahead_us;
	envelope.body_case = CROFT__ENVELOPE__BODY_CLOCK_PONG;
	envelope.clock_pong = &pong;
	node_send(node, &envelope);
}

static void take_network(struct fake_node *node, const Croft__NetworkUpdate *update)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	struct sandbox_report report = { .generation = node->generation, .accepted = true, .state = REPORT_RUNNING };
	struct network_command command;

	ck_assert_int_eq(network_command_decode(update, &command, NULL), 0);
	net_policy_deinit(&node->network);
	node->network = command.network;
	node->network_updates++;
	if (node->is_silent)
		return;
	report.version = ++node->version;
	report.update_failure = node->network_failure;
	COPY(report.sandbox, node->sandbox);
	COPY(report.updated, command.operation);
	envelope.body_case = CROFT__ENVELOPE__BODY_REPORT;
	envelope.report = sandbox_report_encode(&report);
	ck_assert_ptr_nonnull(envelope.report);
	node_send(node, &envelope);
	croft__sandbox_report__free_unpacked(envelope.report, NULL);
}

/* `otherwise` is said with the failure, where there is one. */
static void answer_sleep(struct fake_node *node, const char *operation, enum report_state done, enum report_state otherwise)
{
	bool is_done = !err_is_set(&node->sleep_failure);
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	struct sandbox_report report = { .generation = node->generation, .accepted = true, .state = is_done ? done : otherwise };

	if (node->is_silent)
		return;
	report.version = ++node->version;
	report.update_failure = node->sleep_failure;
	COPY(report.sandbox, node->sandbox);
	COPY(report.updated, is_done ? "" : operation);
	envelope.body_case = CROFT__ENVELOPE__BODY_REPORT;
	envelope.report = sandbox_report_encode(&report);
	ck_assert_ptr_nonnull(envelope.report);
	node_send(node, &envelope);
	croft__sandbox_report__free_unpacked(envelope.report, NULL);
}

static void take_pause(struct fake_node *node, const Croft__PauseSandbox *message)
{
	struct pause_command command;

	ck_assert_int_eq(pause_command_decode(message, &command, NULL), 0);
	ck_assert_uint_ne(command.number, 0);
	node->pauses++;
	COPY(node->pause_operation, command.operation);
	node_answer_pause(node);
}

void node_answer_pause(struct fake_node *node)
{
	answer_sleep(node, node->pause_operation, REPORT_PAUSED, REPORT_RUNNING);
}

static void take_resume(struct fake_node *node, const Croft__ResumeSandbox *message)
{
	struct resume_command command;

	ck_assert_int_eq(resume_command_decode(message, &command, NULL), 0);
	ck_assert_uint_ne(command.number, 0);
	node->resumes++;
	node->timeout_s = command.timeout_s;
	answer_sleep(node, command.operation, REPORT_RUNNING, REPORT_PAUSED);
}

void node_answer_snapshot(struct fake_node *node)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	struct snapshot_info info = { .vcpus = 1, .memory_mib = 512, .disk_mib = 1024, .size_mib = 99, .image_size = 5,
		.tenant = "default", .template_name = "base", .cpu_class = "amd-25-1", .created_usec = clock_realtime_usec(),
		.image_digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
	struct sandbox_report report = { .generation = node->snapshot.generation, .accepted = true, .state = REPORT_RUNNING,
		.version = ++node->version, .update_failure = node->snapshot_failure };

	COPY(info.id, node->snapshot.snapshot);
	COPY(info.sandbox, node->snapshot.sandbox);
	COPY(report.sandbox, node->snapshot.sandbox);
	COPY(report.updated, node->snapshot.operation);
	if (!err_is_set(&node->snapshot_failure))
		report.snapshot = &info;
	envelope.body_case = CROFT__ENVELOPE__BODY_REPORT;
	envelope.report = sandbox_report_encode(&report);
	ck_assert_ptr_nonnull(envelope.report);
	node_send(node, &envelope);
	croft__sandbox_report__free_unpacked(envelope.report, NULL);
}

static void take_snapshot(struct fake_node *node, const Croft__SnapshotSandbox *message)
{
	ck_assert_int_eq(snapshot_command_decode(message, &node->snapshot, NULL), 0);
	ck_assert_uint_ne(node->snapshot.number, 0);
	node->snapshots++;
	if (!node->is_slow)
		node_answer_snapshot(node);
}

/* It knows one sandbox, the last; another that it had is over with the word that is asked for. */
static void take_destroy(struct fake_node *node, const Croft__DestroySandbox *message)
{
	struct fake_node kept = *node;

	node->destroyed = true;
	if (node->is_silent)
		return;
	memcpy(node->sandbox, message->sandbox, sizeof(node->sandbox) - 1);
	node->generation = message->generation;
	node_report(node, REPORT_ENDED);
	memcpy(node->sandbox, kept.sandbox, sizeof(node->sandbox));
	node->generation = kept.generation;
}

static void take_drop(struct fake_node *node, const Croft__DropSnapshot *message)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);

	ck_assert_int_eq(drop_snapshot_decode(message, node->dropped, NULL), 0);
	node->drops++;
	if (node->keeps_snapshots)
		return;
	envelope.body_case = CROFT__ENVELOPE__BODY_SNAPSHOT_DROPPED;
	envelope.snapshot_dropped = snapshot_dropped_encode(node->dropped);
	ck_assert_ptr_nonnull(envelope.snapshot_dropped);
	node_send(node, &envelope);
	croft__snapshot_dropped__free_unpacked(envelope.snapshot_dropped, NULL);
}

static void send_stream(struct fake_node *node, const char *data, size_t size, bool end)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__StreamData message = MESSAGE(Croft__StreamData, croft__stream_data__init);

	message.stream = node->stream;
	message.data.data = (uint8_t *)(uintptr_t)data;
	message.data.len = size;
	message.end = end;
	envelope.body_case = CROFT__ENVELOPE__BODY_STREAM_DATA;
	envelope.stream_data = &message;
	node_send(node, &envelope);
}

static void grant(struct fake_node *node, uint32_t bytes)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__StreamCredit message = MESSAGE(Croft__StreamCredit, croft__stream_credit__init);

	message.stream = node->stream;
	message.bytes = bytes;
	envelope.body_case = CROFT__ENVELOPE__BODY_STREAM_CREDIT;
	envelope.stream_credit = &message;
	node_send(node, &envelope);
}

/* A gateway that answers when the head of the request is there. */
static void take_stream_data(struct fake_node *node, const Croft__StreamData *data)
{
	size_t room = sizeof(node->request) - 1 - node->request_size, n = MIN(room, data->data.len);

	memcpy(node->request + node->request_size, data->data.data, n);
	node->request_size += n;
	node->stream_ended |= data->end;
	if (data->data.len)
		grant(node, (uint32_t)data->data.len);
	if (node->reply && strstr(node->request, "\r\n\r\n")) {
		send_stream(node, node->reply, strlen(node->reply), !node->reply_goes_on);
		node->reply = NULL;
	}
}

static void take_chunk(struct fake_node *node, const Croft__ImageChunk *chunk)
{
	if (chunk->failure) {
		failure_decode(chunk->failure, &node->image_failure);
		node->image_whole = true;
		return;
	}
	ck_assert_uint_eq(chunk->offset, node->image_size);
	ck_assert_uint_le(chunk->data.len, CREDIT_FRAME_MAX);
	ck_assert_uint_le(node->image_size + chunk->data.len, node->image_room);
	memcpy(node->image + node->image_size, chunk->data.data, chunk->data.len);
	node->image_size += chunk->data.len;
	node->image_whole = node->image_size == chunk->size;
}

static void take_enrolled(struct fake_node *node, const Croft__EnrollResult *result)
{
	node->enrolled = true;
	COPY(node->node, result->node_id);
	if (result->failure)
		failure_decode(result->failure, &node->refusal);
}

static void on_message(const void *data, size_t size, void *user)
{
	struct fake_node *node = user;
	Croft__Envelope *envelope = croft__envelope__unpack(NULL, size, data);

	ck_assert_ptr_nonnull(envelope);
	ck_assert_uint_eq(envelope->version_major, LINK_VERSION_MAJOR);
	switch (envelope->body_case) {
	case CROFT__ENVELOPE__BODY_ENROLL_RESULT:
		take_enrolled(node, envelope->enroll_result);
		break;
	case CROFT__ENVELOPE__BODY_WELCOME:
		node->welcome = true;
		node->highest_epoch = MAX(node->highest_epoch, envelope->epoch);
		node->telemetry_acked = envelope->welcome->telemetry_acked;
		COPY(node->leader.lineage, envelope->welcome->lineage);
		COPY(node->leader.run, envelope->welcome->run);
		break;
	case CROFT__ENVELOPE__BODY_CREATE:
		take_create(node, envelope);
		break;
	case CROFT__ENVELOPE__BODY_NETWORK_UPDATE:
		take_network(node, envelope->network_update);
		break;
	case CROFT__ENVELOPE__BODY_PAUSE:
		take_pause(node, envelope->pause);
		break;
	case CROFT__ENVELOPE__BODY_SNAPSHOT:
		take_snapshot(node, envelope->snapshot);
		break;
	case CROFT__ENVELOPE__BODY_DROP_SNAPSHOT:
		take_drop(node, envelope->drop_snapshot);
		break;
	case CROFT__ENVELOPE__BODY_RESUME:
		take_resume(node, envelope->resume);
		break;
	case CROFT__ENVELOPE__BODY_DESTROY:
		take_destroy(node, envelope->destroy);
		break;
	case CROFT__ENVELOPE__BODY_CLOCK_PING:
		take_ping(node, envelope->clock_ping);
		break;
	case CROFT__ENVELOPE__BODY_TELEMETRY_ACK:
		node->telemetry_acked = envelope->telemetry_ack->seq;
		break;
	case CROFT__ENVELOPE__BODY_USAGE_ACK:
		node->usage_acked = envelope->usage_ack->number;
		break;
	case CROFT__ENVELOPE__BODY_IMAGE_CHUNK:
		take_chunk(node, envelope->image_chunk);
		break;
	case CROFT__ENVELOPE__BODY_STREAM_OPEN:
		node->stream = envelope->stream_open->stream;
		node->stream_open = true;
		node->request_size = 0;
		memset(node->request, 0, sizeof(node->request));
		grant(node, CREDIT_WINDOW);
		break;
	case CROFT__ENVELOPE__BODY_STREAM_DATA:
		take_stream_data(node, envelope->stream_data);
		break;
	case CROFT__ENVELOPE__BODY_STREAM_CLOSE:
		node->stream_closed = true;
		break;
	case CROFT__ENVELOPE__BODY_REFUSED:
		/* that its next message came without a hello is no news */
		if (!node->refused || strcmp(envelope->refused->failure->code, "HELLO_NEEDED") != 0)
			failure_decode(envelope->refused->failure, &node->refusal);
		node->refused = true;
		break;
	default:
		break;
	}
	croft__envelope__free_unpacked(envelope, NULL);
}

static void on_state(enum dealer_state state, void *user)
{
	struct fake_node *node = user;

	node->up = state == DEALER_UP;
	if (state == DEALER_REFUSED)
		node->refused = true;
}

/* ---- the node: what it says ---- */
void node_send(struct fake_node *node, Croft__Envelope *envelope)
{
	const struct envelope_head head = { .seq = ++node->seq };
	size_t size;
	uint8_t *data = envelope_pack(&head, envelope, &size);

	ck_assert_ptr_nonnull(data);
	ck_assert(dealer_send(node->dealer, data, size));
	free(data);
}

void node_send_stage(struct fake_node *node, uint64_t seq, const struct stage_record *record)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__TelemetryBatch batch = MESSAGE(Croft__TelemetryBatch, croft__telemetry_batch__init);
	Croft__TelemetryRecord message = MESSAGE(Croft__TelemetryRecord, croft__telemetry_record__init), *list[] = { &message };

	message.seq = seq;
	message.when_us = record->began_us;
	message.body_case = CROFT__TELEMETRY_RECORD__BODY_STAGE;
	message.stage = stage_record_encode(record);
	ck_assert_ptr_nonnull(message.stage);
	batch.records = list;
	batch.n_records = 1;
	envelope.body_case = CROFT__ENVELOPE__BODY_TELEMETRY;
	envelope.telemetry = &batch;
	node->telemetry_acked = 0;
	node_send(node, &envelope);
	protobuf_c_message_free_unpacked(&message.stage->base, NULL);
	for (int i = 0; i < 500 && node->telemetry_acked != seq; i++)
		loop_for(node->rig->base, 5);
	ck_assert_uint_eq(node->telemetry_acked, seq);
}

void node_dial(struct fake_node *node, const struct curve_keys *keys)
{
	static const struct dealer_handler handler = { on_message, on_state };
	struct dealer_config config = { .address = node->address, .keys = *keys };
	struct err err = ERR_NULL;
	bool *const up = &node->up;

	dealer_free(TAKE(node->dealer));
	node->up = node->refused = false;
	node->seq = 0;
	COPY(config.server_key, node->server_key);
	ck_assert_msg(dealer_new(&node->dealer, node->rig->base, node->rig->zmq, &config, &handler,
			      node, &err) == 0,
		"%s", err.msg);
	for (int i = 0; i < 1000 && !*up && !node->refused; i++)
		loop_for(node->rig->base, 10);
}

void node_token(struct fake_node *node, struct rig *rig, const char *key)
{
	node_token_of(node, rig, key, "{}");
}

void node_token_of(struct fake_node *node, struct rig *rig, const char *key, const char *body)
{
	struct answer answer = rig_call(rig, "POST", "/v1/tokens", key, body);
	char *file = strdup(json_string_value(json_object_get(answer.json, "file"))), *rest, *line;
	struct err err = ERR_NULL;

	memset(node, 0, sizeof(*node));
	node->rig = rig;
	ck_assert_int_eq(answer.status, 201);
	for (line = strtok_r(file, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (!strncmp(line, "scheduler = ", 12))
			COPY(node->address, line + 12);
		if (!strncmp(line, "scheduler_key = ", 16))
			COPY(node->server_key, line + 16);
		if (!strncmp(line, "token_public = ", 15))
			COPY(node->token_keys.public_key, line + 15);
		if (!strncmp(line, "token_secret = ", 15))
			COPY(node->token_keys.secret_key, line + 15);
		if (!strncmp(line, "token_id = ", 11))
			COPY(node->token, line + 11);
	}
	free(file);
	answer_free(&answer);
	COPY(node->hostname, "fake");
	id_new(&rig->server->rng, node->machine);
	id_new(&rig->server->rng, node->instance);
	ck_assert_int_eq(curve_keys_new(&node->keys, &err), 0);
	node->capacity = (struct node_capacity){ .memory_mib = 4096,
		.cpus = 4,
		.disk_mib = 65536,
		.max_sandboxes = 8,
		.max_starts = 4,
		.max_vcpus = 4 };
}

void node_enroll(struct fake_node *node)
{
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__Enroll enroll = MESSAGE(Croft__Enroll, croft__enroll__init);

	node->enrolled = false;
	memset(&node->refusal, 0, sizeof(node->refusal));
	node_dial(node, &node->token_keys);
	ck_assert(node->up);
	enroll.node_key = node->keys.public_key;
	enroll.machine = node->machine;
	enroll.hostname = node->hostname;
	envelope.body_case = CROFT__ENVELOPE__BODY_ENROLL;
	envelope.enroll = &enroll;
	node_send(node, &envelope);
	loop_until(node->rig->base, &node->enrolled);
}

void node_send_hello(struct fake_node *node)
{
	struct hello hello = { .capacity = node->capacity, .highest_epoch = node->highest_epoch };
	struct inventory inventory = { .complete = true, .number = 1 };
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);

	hello.leader = node->leader;
	COPY(hello.instance, node->instance);
	COPY(hello.machine, node->machine);
	COPY(hello.boot_id, node->boot_id ? node->boot_id : "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee");
	COPY(hello.hostname, node->hostname);
	COPY(hello.version, "0.1.0");
	COPY(hello.cpu_class, "amd-25-1");
	hello.pauses = !node->is_older;
	hello.realtime_us = node->has_clock ? clock_realtime_usec() + node->ahead_us : 0;
	hello.snapshots = !node->is_older;
	envelope.body_case = CROFT__ENVELOPE__BODY_HELLO;
	envelope.hello = hello_encode(&hello);
	node_send(node, &envelope);
	croft__hello__free_unpacked(envelope.hello, NULL);
	envelope.body_case = CROFT__ENVELOPE__BODY_INVENTORY;
	envelope.inventory = inventory_encode(&inventory);
	node_send(node, &envelope);
	croft__inventory__free_unpacked(envelope.inventory, NULL);
}

static void on_beat(evutil_socket_t fd, short what, void *user)
{
	struct fake_node *node = user;
	Croft__Envelope envelope = MESSAGE(Croft__Envelope, croft__envelope__init);
	Croft__Heartbeat beat = MESSAGE(Croft__Heartbeat, croft__heartbeat__init);

	(void)fd;
	(void)what;
	beat.schedulable = true;
	beat.realtime_us = node->has_clock ? clock_realtime_usec() + node->ahead_us : 0;
	envelope.body_case = CROFT__ENVELOPE__BODY_HEARTBEAT;
	envelope.heartbeat = &beat;
	if (node->up)
		node_send(node, &envelope);
}

void node_connect(struct fake_node *node)
{
	const struct timeval every = { .tv_usec = 200000 };

	if (!node->beat) {
		node->beat = event_new(node->rig->base, -1, EV_PERSIST, on_beat, node);
		ck_assert_int_eq(event_add(node->beat, &every), 0);
	}
	node->welcome = false;
	node_dial(node, &node->keys);
	ck_assert(node->up);
	node_send_hello(node);
	for (int i = 0; i < 1000 && !node->welcome && !node->refused; i++)
		loop_for(node->rig->base, 10);
}

void node_join(struct fake_node *node, struct rig *rig)
{
	node_join_pool(node, rig, "");
}

void node_join_pool(struct fake_node *node, struct rig *rig, const char *pool)
{
	char body[128];

	(void)snprintf(body, sizeof(body), "{\"pool\":\"%s\"}", pool);
	node_token_of(node, rig, rig->keys.provider, *pool ? body : "{}");
	node_enroll(node);
	ck_assert_msg(!err_is_set(&node->refusal), "%s", node->refusal.msg);
	node_connect(node);
	ck_assert(node->welcome);
}

void node_close(struct fake_node *node)
{
	if (node->beat)
		event_free(TAKE(node->beat));
	dealer_free(TAKE(node->dealer));
	net_policy_deinit(&node->network);
}
