/* SPDX-License-Identifier: Apache-2.0
 *
 * See test-node-rig.h.
 */
#include "unit/test-node-rig.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/fd.h"
#include "lib/loop.h"
#include "lib/suite.h"
#include "wire/check.h"
#include "wire/dispatch.h"

#define TURN_MS 20
#define DEADLINE_S 40
#define LOG_MAX 8192 /* of it are printed */
#define ARGS_MAX 64

extern char **environ;

/* ---- sending ---- */

void rig_send(struct rig *rig, Croft__Envelope *envelope, uint64_t deadline_ms)
{
	struct envelope_head head = {
		.epoch = rig->epoch, .seq = ++rig->seq, .deadline_ms = deadline_ms
	};
	struct rng rng = rng_system();
	uint8_t *frame;
	size_t size;

	trace_new(&rng, &head.trace);
	frame = envelope_pack(&head, envelope, &size);
	ck_assert_ptr_nonnull(frame);
	if (rig->router)
		(void)router_send(rig->router, &rig->route, frame, size);
	free(frame);
}

#define RIG_SEND(rig, case_name, member, encoded, deadline)                                        \
	do {                                                                                       \
		Croft__Envelope envelope_;                                                         \
		croft__envelope__init(&envelope_);                                                 \
		envelope_.body_case = CROFT__ENVELOPE__BODY_##case_name;                           \
		envelope_.member = (encoded);                                                      \
		ck_assert_ptr_nonnull(envelope_.member);                                           \
		rig_send((rig), &envelope_, (deadline));                                           \
		protobuf_c_message_free_unpacked(&envelope_.member->base, NULL);                   \
	} while (0)

static void welcome(struct rig *rig)
{
	struct welcome message = { .takes_usage = true, .node = "nodenodenodenodenode",
		.pool = "default",
		.heartbeat_ms = 1000,
		.lease_ms = rig->lease_ms,
		.lineage = "lineagelineagelineag",
		.telemetry_acked = rig->durable_seq,
		.realtime_us = clock_realtime_usec() };

	memcpy(message.run, rig->scheduler_run, sizeof(message.run));
	RIG_SEND(rig, WELCOME, welcome, welcome_encode(&message), 0);
}

static void answer_enroll(struct rig *rig, const Croft__Enroll *enroll)
{
	Croft__Envelope envelope;
	Croft__EnrollResult result;
	char node[] = "nodenodenodenodenode", pool[] = "default";

	croft__envelope__init(&envelope);
	croft__enroll_result__init(&result);
	envelope.body_case = CROFT__ENVELOPE__BODY_ENROLL_RESULT;
	envelope.enroll_result = &result;
	if (err_is_set(&rig->enroll_answer)) {
		result.failure = failure_encode(&rig->enroll_answer);
	} else {
		result.node_id = node;
		result.pool = pool;
		ck_assert_uint_eq(strlen(enroll->node_key), KEY_Z85_SIZE - 1);
		(void)snprintf(rig->node_key, sizeof(rig->node_key), "%s", enroll->node_key);
		ck_assert_int_eq(
			zap_allow(rig->zap, rig->node_key, "node:nodenodenodenodenode"), 0);
	}
	rig_send(rig, &envelope, 0);
	if (result.failure)
		protobuf_c_message_free_unpacked(&result.failure->base, NULL);
}

/* ---- receiving ---- */

struct rig_sandbox *rig_find(struct rig *rig, const char *sandbox)
{
	for (unsigned int i = 0; i < rig->n_sandboxes; i++)
		if (!strcmp(rig->sandboxes[i].report.sandbox, sandbox))
			return &rig->sandboxes[i];
	return NULL;
}

static struct rig_sandbox *keep_report(struct rig *rig, struct sandbox_report *report)
{
	struct rig_sandbox *sandbox = rig_find(rig, report->sandbox);

	if (!sandbox) {
		ck_assert_uint_lt(rig->n_sandboxes, RIG_SANDBOXES);
		sandbox = &rig->sandboxes[rig->n_sandboxes++];
	}
	if (report->version >= sandbox->report.version) {
		sandbox_report_deinit(&sandbox->report);
		sandbox->report = *report;
	} else {
		sandbox_report_deinit(report);
	}
	sandbox->n_reports++;
	return sandbox;
}

static void on_report(struct rig *rig, const Croft__SandboxReport *message)
{
	struct sandbox_report report = { .version = 0 };
	struct report_ack ack = { .version = 0 };
	struct err err = ERR_NULL;

	ck_assert_msg(sandbox_report_decode(message, &report, &err) == 0, "%s", err.msg);
	(void)snprintf(ack.sandbox, sizeof(ack.sandbox), "%s", report.sandbox);
	ack.generation = report.generation;
	ack.version = report.version;
	(void)keep_report(rig, &report);
	if (!rig->keep_reports)
		RIG_SEND(rig, REPORT_ACK, report_ack, report_ack_encode(&ack), 0);
}

static void on_inventory(struct rig *rig, const Croft__Inventory *message)
{
	struct inventory inventory = { .n = 0 };
	struct desired_set set = { .knows_snapshots = true };
	struct err err = ERR_NULL;

	ck_assert_msg(inventory_decode(message, &inventory, &err) == 0, "%s", err.msg);
	set.sandboxes = calloc(inventory.n + 1, sizeof(*set.sandboxes));
	for (size_t i = 0; i < inventory.n; i++) {
		struct desired_sandbox *one = &set.sandboxes[set.n++];

		(void)snprintf(
			one->sandbox, sizeof(one->sandbox), "%s", inventory.sandboxes[i].sandbox);
		one->generation = inventory.sandboxes[i].generation;
		keep_report(rig, &inventory.sandboxes[i])->in_inventory = true;
		memset(&inventory.sandboxes[i], 0, sizeof(inventory.sandboxes[i]));
	}
	ck_assert_uint_le(inventory.n_snapshots, RIG_SNAPSHOTS);
	rig->n_snapshots = (unsigned int)inventory.n_snapshots;
	for (size_t i = 0; i < inventory.n_snapshots; i++)
		rig->snapshots[i] = inventory.snapshots[i];
	if (!rig->wants_no_snapshots && inventory.n_snapshots) {
		set.snapshots = calloc(inventory.n_snapshots, sizeof(*set.snapshots));
		for (size_t i = 0; i < inventory.n_snapshots; i++)
			memcpy(set.snapshots[set.n_snapshots++], inventory.snapshots[i].id, ID_SIZE);
	}
	set.complete = inventory.complete;
	set.part = inventory.part;
	set.inventory = inventory.number;
	rig->has_inventory = rig->has_inventory || inventory.complete;
	RIG_SEND(rig, DESIRED, desired, desired_set_encode(&set), 0);
	desired_set_deinit(&set);
	inventory_deinit(&inventory);
}

/* What is new must follow what was there without a gap: that is the promise of the spool. */
static void on_telemetry(struct rig *rig, Croft__TelemetryBatch *batch)
{
	for (size_t i = 0; i < batch->n_records; i++) {
		Croft__TelemetryRecord *record = batch->records[i];

		if (record->seq <= rig->last_seq)
			continue;
		ck_assert_uint_eq(record->seq, rig->last_seq + 1);
		ck_assert_uint_lt(rig->n_records, RIG_RECORDS);
		rig->last_seq = record->seq;
		rig->records[rig->n_records++] = record;
		batch->records[i] = NULL;
	}
	if (!rig->keep_telemetry) {
		Croft__Envelope envelope;
		Croft__TelemetryAck ack;

		croft__envelope__init(&envelope);
		croft__telemetry_ack__init(&ack);
		rig->durable_seq = ack.seq = rig->last_seq;
		envelope.body_case = CROFT__ENVELOPE__BODY_TELEMETRY_ACK;
		envelope.telemetry_ack = &ack;
		rig_send(rig, &envelope, 0);
	}
}

/* As a scheduler does: of each generation the latest version counts. */
static void take_usage(struct rig *rig, const struct usage_record *record)
{
	unsigned int i = 0;

	while (i < rig->n_usage && (rig->usage[i].generation != record->generation || strcmp(rig->usage[i].sandbox, record->sandbox) != 0))
		i++;
	ck_assert_uint_lt(i, RIG_SANDBOXES);
	if (i == rig->n_usage)
		rig->n_usage++;
	else if (rig->usage[i].version > record->version)
		return;
	rig->usage[i] = *record;
}

static void on_usage(struct rig *rig, const Croft__UsageReport *message)
{
	struct usage_report report;
	Croft__Envelope envelope;
	Croft__UsageAck ack;

	ck_assert_int_eq(usage_report_decode(message, &report, NULL), 0);
	for (size_t i = 0; i < report.n; i++)
		take_usage(rig, &report.records[i]);
	rig->n_usage_reports++;
	croft__envelope__init(&envelope);
	croft__usage_ack__init(&ack);
	ack.number = report.number;
	envelope.body_case = CROFT__ENVELOPE__BODY_USAGE_ACK;
	envelope.usage_ack = &ack;
	rig_send(rig, &envelope, 0);
	usage_report_deinit(&report);
}

static void on_image_request(struct rig *rig, const Croft__ImageRequest *request)
{
	rig->n_image_requests++;
	if (request->request != rig->image_request) {
		rig->image_request = request->request;
		rig->image_sent = request->offset;
		rig->image_credit = 0;
	}
	rig->image_credit += request->credit;
	while (rig->image_credit > 0 && rig->image_sent < rig->image_size &&
		(rig->image_stop_at == 0 || rig->image_sent < rig->image_stop_at)) {
		Croft__Envelope envelope;
		Croft__ImageChunk chunk;
		size_t size = MIN(MIN((size_t)rig->image_credit, rig->image_size - rig->image_sent),
			(size_t)1000);

		croft__envelope__init(&envelope);
		croft__image_chunk__init(&chunk);
		chunk.request = request->request;
		chunk.offset = rig->image_sent;
		chunk.data.data = rig->image + rig->image_sent;
		chunk.data.len = size;
		chunk.size = rig->image_size;
		envelope.body_case = CROFT__ENVELOPE__BODY_IMAGE_CHUNK;
		envelope.image_chunk = &chunk;
		rig_send(rig, &envelope, 0);
		rig->image_sent += size;
		rig->image_credit -= size;
	}
}

static void on_stream(struct rig *rig, const Croft__Envelope *envelope)
{
	if (envelope->body_case == CROFT__ENVELOPE__BODY_STREAM_CREDIT) {
		rig->stream_credit += envelope->stream_credit->bytes;
	} else if (envelope->body_case == CROFT__ENVELOPE__BODY_STREAM_CLOSE) {
		rig->stream_closed = true;
		if (envelope->stream_close->failure)
			failure_decode(envelope->stream_close->failure, &rig->stream_failure);
	} else {
		size_t size = envelope->stream_data->data.len;

		ck_assert_uint_le(rig->stream_size + size, RIG_STREAM);
		if (size > 0)
			memcpy(rig->stream + rig->stream_size, envelope->stream_data->data.data,
				size);
		rig->stream_size += size;
		rig->stream_ended = rig->stream_ended || envelope->stream_data->end;
	}
}

static void on_hello(struct rig *rig, const struct route *from, const Croft__Hello *message)
{
	struct err err = ERR_NULL;

	hello_deinit(&rig->hello);
	memset(&rig->hello, 0, sizeof(rig->hello));
	ck_assert_msg(hello_decode(message, &rig->hello, &err) == 0, "%s", err.msg);
	rig->route = *from;
	rig->has_hello = true;
	rig->n_hellos++;
	if (!rig->is_silent)
		welcome(rig);
}

static void on_capacity(struct rig *rig, const Croft__CapacityReport *message)
{
	struct err err = ERR_NULL;

	capacity_report_deinit(&rig->capacity);
	memset(&rig->capacity, 0, sizeof(rig->capacity));
	ck_assert_msg(capacity_report_decode(message, &rig->capacity, &err) == 0, "%s", err.msg);
	rig->has_capacity = true;
}

static void on_message(
	const struct route *from, const char *user_id, const void *data, size_t size, void *user)
{
	struct rig *rig = user;
	Croft__Envelope *envelope;
	struct err err = ERR_NULL;

	envelope = (Croft__Envelope *)(void *)check_unpack(
		&croft__envelope__descriptor, data, size, &err);
	ck_assert_msg(envelope != NULL, "%s", err.msg);
	ck_assert_uint_eq(envelope->version_major, LINK_VERSION_MAJOR);
	switch (envelope->body_case) {
	case CROFT__ENVELOPE__BODY_ENROLL:
		ck_assert_str_eq(user_id, "token:testtoken");
		rig->route = *from;
		answer_enroll(rig, envelope->enroll);
		break;
	case CROFT__ENVELOPE__BODY_HELLO:
		on_hello(rig, from, envelope->hello);
		break;
	case CROFT__ENVELOPE__BODY_INVENTORY:
		on_inventory(rig, envelope->inventory);
		break;
	case CROFT__ENVELOPE__BODY_REPORT:
		on_report(rig, envelope->report);
		break;
	case CROFT__ENVELOPE__BODY_TELEMETRY:
		on_telemetry(rig, envelope->telemetry);
		break;
	case CROFT__ENVELOPE__BODY_CAPACITY:
		on_capacity(rig, envelope->capacity);
		break;
	case CROFT__ENVELOPE__BODY_USAGE:
		on_usage(rig, envelope->usage);
		break;
	case CROFT__ENVELOPE__BODY_SNAPSHOT_DROPPED:
		ck_assert_int_eq(snapshot_dropped_decode(envelope->snapshot_dropped, rig->dropped, &err), 0);
		break;
	case CROFT__ENVELOPE__BODY_IMAGE_REQUEST:
		on_image_request(rig, envelope->image_request);
		break;
	case CROFT__ENVELOPE__BODY_STREAM_DATA:
	case CROFT__ENVELOPE__BODY_STREAM_CREDIT:
	case CROFT__ENVELOPE__BODY_STREAM_CLOSE:
		on_stream(rig, envelope);
		break;
	case CROFT__ENVELOPE__BODY_REFUSED:
		memset(&rig->refused, 0, sizeof(rig->refused));
		failure_decode(envelope->refused->failure, &rig->refused);
		break;
	default:
		break;
	}
	croft__envelope__free_unpacked(envelope, NULL);
}

/* ---- the scheduler ---- */

void rig_listen(struct rig *rig)
{
	struct router_config config = { .address =
						*rig->address ? rig->address : "tcp://127.0.0.1:*",
		.zap_domain = "croft",
		.keys = rig->keys };
	struct err err = ERR_NULL;

	ck_assert_msg(
		router_new(&rig->router, rig->base, rig->zmq, &config, on_message, rig, &err) == 0,
		"%s", err.msg);
	(void)snprintf(rig->address, sizeof(rig->address), "%s", router_address(rig->router));
}

void rig_cut(struct rig *rig)
{
	router_free(rig->router);
	rig->router = NULL;
	rig->has_hello = rig->has_inventory = false;
}

static void write_file(const char *path, const void *data, size_t size, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_write_all(fd, data, size), 0);
	(void)fd_close(fd);
}

void rig_set_image(struct rig *rig, const char *mode)
{
	unsigned char sum[EVP_MAX_MD_SIZE];

	memset(rig->image, 0, sizeof(rig->image));
	(void)snprintf((char *)rig->image, sizeof(rig->image), "stub:%s\n", mode);
	rig->image_size = sizeof(rig->image);
	ck_assert_int_eq(EVP_Digest(rig->image, rig->image_size, sum, NULL, EVP_sha256(), NULL), 1);
	(void)snprintf(rig->digest, sizeof(rig->digest), "sha256:");
	for (unsigned int i = 0; i < 32; i++)
		(void)snprintf(rig->digest + 7 + 2 * i, 3, "%02x", sum[i]);
}

#define RIG_PREFIX "croft-node-"

static const char *rig_place(void)
{
	return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

void rig_init(struct rig *rig)
{
	struct err err = ERR_NULL;

	memset(rig, 0, sizeof(*rig));
	rig->epoch = 1;
	(void)snprintf(rig->dir, sizeof(rig->dir), "%s/" RIG_PREFIX "%d.XXXXXX", rig_place(), (int)getppid());
	ck_assert_ptr_nonnull(mkdtemp(rig->dir));
	(void)snprintf(rig->state, sizeof(rig->state), "%.60s/state", rig->dir);
	(void)snprintf(rig->cache, sizeof(rig->cache), "%.60s/cache", rig->dir);
	(void)snprintf(rig->run, sizeof(rig->run), "%.60s/run", rig->dir);
	(void)snprintf(rig->token, sizeof(rig->token), "%.60s/token", rig->dir);
	(void)snprintf(rig->kernel, sizeof(rig->kernel), "%.60s/vmlinux", rig->dir);
	(void)snprintf(rig->kvm, sizeof(rig->kvm), "%.60s/kvm", rig->dir);
	write_file(rig->kernel, "kernel", 6, 0644);
	write_file(rig->kvm, "kvm", 3, 0600);
	ck_assert_int_eq(dir_make(rig->cache, 0755), 0);
	rig->base = event_base_new();
	rig->zmq = zmq_ctx_new();
	ck_assert_int_eq(curve_keys_new(&rig->keys, &err), 0);
	ck_assert_int_eq(curve_keys_new(&rig->token_keys, &err), 0);
	ck_assert_int_eq(zap_new(&rig->zap, rig->zmq, &err), 0);
	ck_assert_int_eq(zap_allow(rig->zap, rig->token_keys.public_key, "token:testtoken"), 0);
	rig_listen(rig);
	rig_set_image(rig, "well");
}

/* A sanitizer's word about the agent fails the test that ran it. */
static void check_log(const struct rig *rig)
{
	CLEANUP_FREE char *text = NULL;
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/agent.log", rig->dir);
	if (file_read(path, 64 * 1024 * 1024, &text, NULL) < 0)
		return;
	ck_assert_msg(!strstr(text, "Sanitizer") && !strstr(text, "runtime error:"), "%s", text);
}

void rig_deinit(struct rig *rig)
{
	pid_t pid;

	if (rig->agent > 0)
		(void)rig_end(rig, SIGKILL);
	check_log(rig);
	for (int i = 0; i < 16 && (pid = rig_find_vmm(rig)) > 0; i++) {
		(void)kill(pid, SIGKILL);
		(void)usleep(1000); /* it is nobody's child: there is nothing to wait for */
	}
	for (unsigned int i = 0; i < rig->n_records; i++)
		croft__telemetry_record__free_unpacked(rig->records[i], NULL);
	for (unsigned int i = 0; i < rig->n_sandboxes; i++)
		sandbox_report_deinit(&rig->sandboxes[i].report);
	hello_deinit(&rig->hello);
	capacity_report_deinit(&rig->capacity);
	router_free(rig->router);
	zap_free(rig->zap);
	(void)zmq_ctx_term(rig->zmq);
	event_base_free(rig->base);
	ck_assert_int_eq(dir_remove(rig->dir), 0);
}

/* ---- the agent's process ---- */

static const char *program(const char *name, char *buf, size_t size)
{
	const char *bin = getenv("CROFT_BIN");

	(void)snprintf(buf, size, "%s/%s", bin ? bin : "bin", name);
	return buf;
}

static pid_t spawn_agent(struct rig *rig, const char *command, const char *output)
{
	char agent[PATH_MAX], vmm[PATH_MAX], probe[] = "--vmm-probe=no";
	const char *args[ARGS_MAX] = { program("croft-node", agent, sizeof(agent)), command,
		"--state", rig->state, "--cache", rig->cache, "--run", rig->run, "--token-file",
		rig->token, "--vmm-path", program("stub-vmm", vmm, sizeof(vmm)), "--vmm-kvm",
		rig->kvm, probe, "--guest-kernel", rig->kernel, "--guest-initramfs", "",
		"--limits-memory-mib", "4096", "--limits-disk-floor-percent", "0" };
	posix_spawn_file_actions_t actions;
	size_t n = 0;
	pid_t pid;

	while (args[n])
		n++;
	for (size_t i = 0; i < ARRAY_LEN(rig->extra) && rig->extra[i]; i++)
		args[n++] = rig->extra[i];
	ck_assert_int_eq(posix_spawn_file_actions_init(&actions), 0);
	ck_assert_int_eq(
		posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0), 0);
	if (output)
		ck_assert_int_eq(posix_spawn_file_actions_addopen(
					 &actions, 2, output, O_WRONLY | O_CREAT | O_APPEND, 0600),
			0);
	ck_assert_int_eq(
		posix_spawn(&pid, agent, &actions, NULL, (char **)(uintptr_t)args, environ), 0);
	(void)posix_spawn_file_actions_destroy(&actions);
	return pid;
}

/* Turns the loop while the process runs: it may be talking to us. */
static int wait_process(struct rig *rig, pid_t pid)
{
	int64_t until = clock_monotonic_usec() + (rig->deadline_s ? rig->deadline_s : DEADLINE_S) * USEC_PER_SEC;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		ck_assert_msg(clock_monotonic_usec() < until, "the process does not end");
		loop_for(rig->base, TURN_MS / 4);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int rig_command(struct rig *rig, const char *command, char *ret_text, size_t size)
{
	CLEANUP_FREE char *text = NULL;
	char output[PATH_MAX];
	int status;

	(void)snprintf(output, sizeof(output), "%s/output", rig->dir);
	(void)unlink(output);
	status = wait_process(rig, spawn_agent(rig, command, output));
	ck_assert_int_eq(file_read(output, 1024 * 1024, &text, NULL), 0);
	(void)snprintf(ret_text, size, "%s", text);
	return status;
}

void rig_write_token(struct rig *rig)
{
	char text[1024];
	int n = snprintf(text, sizeof(text),
		"# croft join token\nscheduler = %s\nscheduler_key = %s\ntoken_id = testtoken\ntoken_public = %s\n"
		"token_secret = %s\npool = default\nexpires = 2099-01-01T00:00:00.000Z\n",
		rig->address, rig->keys.public_key, rig->token_keys.public_key,
		rig->token_keys.secret_key);

	write_file(rig->token, text, (size_t)n, 0600);
}

void rig_join(struct rig *rig)
{
	char text[1024];

	rig_write_token(rig);
	ck_assert_msg(rig_command(rig, "join", text, sizeof(text)) == 0, "%s", text);
}

void rig_launch(struct rig *rig)
{
	char output[PATH_MAX];

	(void)snprintf(output, sizeof(output), "%s/agent.log", rig->dir);
	rig->has_hello = rig->has_inventory = false;
	rig->agent = spawn_agent(rig, "run", getenv("CROFT_TEST_LOG") ? NULL : output);
}

static bool has_inventory(struct rig *rig, void *arg)
{
	(void)arg;
	return rig->has_inventory;
}

void rig_start(struct rig *rig)
{
	rig_launch(rig);
	rig_until(rig, has_inventory, NULL, "an inventory");
}

int rig_end(struct rig *rig, int number)
{
	int status;

	ck_assert_int_gt(rig->agent, 0);
	(void)kill(rig->agent, number);
	status = wait_process(rig, rig->agent);
	rig->agent = 0;
	return status;
}

/* ---- commands ---- */

struct sandbox_spec *rig_spec(struct rig *rig)
{
	struct sandbox_spec *spec = spec_new();

	ck_assert_ptr_nonnull(spec);
	(void)snprintf(spec->template_name, sizeof(spec->template_name), "base");
	(void)snprintf(spec->image_digest, sizeof(spec->image_digest), "%s", rig->digest);
	spec->image_size = rig->image_size;
	spec->vcpus = 1;
	spec->memory_mib = 128;
	return spec;
}

void rig_create(struct rig *rig, const char *sandbox, const struct sandbox_spec *spec)
{
	rig_create_again(rig, sandbox, 1, spec);
}

void rig_create_from(struct rig *rig, const char *sandbox, const char *snapshot)
{
	struct sandbox_spec *spec = rig_spec(rig);

	spec->disk_mib = 16;
	(void)snprintf(spec->snapshot, sizeof(spec->snapshot), "%s", snapshot);
	rig_create(rig, sandbox, spec);
	spec_unref(spec);
}

bool rig_is_dropped(struct rig *rig, void *snapshot)
{
	return !strcmp(rig->dropped, snapshot);
}

void rig_create_again(
	struct rig *rig, const char *sandbox, uint64_t generation, const struct sandbox_spec *spec)
{
	struct create_command command = {
		.generation = generation, .operation = "operationoperationop", .attempt = 1
	};

	(void)snprintf(command.sandbox, sizeof(command.sandbox), "%s", sandbox);
	command.spec = (struct sandbox_spec *)(uintptr_t)spec;
	RIG_SEND(rig, CREATE, create, create_command_encode(&command), 60000);
}

void rig_destroy(struct rig *rig, const char *sandbox, const char *reason)
{
	const struct rig_sandbox *known = rig_find(rig, sandbox);
	struct destroy_command command = { .generation = known ? known->report.generation : 1,
		.operation = "destroydestroydestro",
		.reason = end_reason_by_name(reason) };

	(void)snprintf(command.sandbox, sizeof(command.sandbox), "%s", sandbox);
	RIG_SEND(rig, DESTROY, destroy, destroy_command_encode(&command), 0);
}

void rig_pause(struct rig *rig, const char *sandbox, const char *operation, uint64_t number)
{
	struct pause_command command = { .generation = 1, .number = number };

	(void)snprintf(command.sandbox, sizeof(command.sandbox), "%s", sandbox);
	(void)snprintf(command.operation, sizeof(command.operation), "%s", operation);
	RIG_SEND(rig, PAUSE, pause, pause_command_encode(&command), 0);
}

void rig_resume(struct rig *rig, const char *sandbox, const char *operation, uint64_t number)
{
	struct resume_command command = { .generation = 1, .number = number };

	(void)snprintf(command.sandbox, sizeof(command.sandbox), "%s", sandbox);
	(void)snprintf(command.operation, sizeof(command.operation), "%s", operation);
	RIG_SEND(rig, RESUME, resume, resume_command_encode(&command), 0);
}

static void send_snapshot(struct rig *rig, const char *sandbox, const char *operation, uint64_t number, const char *snapshot,
	bool is_live)
{
	struct snapshot_command command = { .generation = 1, .number = number, .is_live = is_live };

	(void)snprintf(command.sandbox, sizeof(command.sandbox), "%s", sandbox);
	(void)snprintf(command.operation, sizeof(command.operation), "%s", operation);
	(void)snprintf(command.snapshot, sizeof(command.snapshot), "%s", snapshot);
	RIG_SEND(rig, SNAPSHOT, snapshot, snapshot_command_encode(&command), 0);
}

void rig_snapshot(
	struct rig *rig, const char *sandbox, const char *operation, uint64_t number, const char *snapshot)
{
	send_snapshot(rig, sandbox, operation, number, snapshot, false);
}

void rig_fork(
	struct rig *rig, const char *sandbox, const char *operation, uint64_t number, const char *snapshot)
{
	send_snapshot(rig, sandbox, operation, number, snapshot, true);
}

void rig_drop_snapshot(struct rig *rig, const char *snapshot)
{
	RIG_SEND(rig, DROP_SNAPSHOT, drop_snapshot, drop_snapshot_encode(snapshot), 0);
}

/* ---- questions ---- */

void rig_print_log(const struct rig *rig)
{
	CLEANUP_FREE char *log = NULL;
	char path[PATH_MAX];
	size_t size = 0;

	(void)snprintf(path, sizeof(path), "%s/agent.log", rig->dir);
	if (file_read(path, 16 << 20, &log, &size) == 0)
		(void)printf("the end of the agent's log:\n%s\n", log + (size > LOG_MAX ? size - LOG_MAX : 0));
	(void)fflush(stdout); /* before check ends the process */
}

void rig_until(
	struct rig *rig, bool (*done)(struct rig *rig, void *arg), void *arg, const char *what)
{
	int64_t until = clock_monotonic_usec() + (rig->deadline_s ? rig->deadline_s : DEADLINE_S) * USEC_PER_SEC;

	while (!done(rig, arg)) {
		if (clock_monotonic_usec() >= until) {
			rig_print_log(rig);
			ck_abort_msg("%s did not come", what);
		}
		loop_for(rig->base, TURN_MS / 4);
	}
}

bool rig_is(struct rig *rig, const char *sandbox, enum report_state state)
{
	struct rig_sandbox *found = rig_find(rig, sandbox);

	return found && found->report.state == state;
}

struct wanted {
	const char *sandbox;
	enum report_state state;
};

static bool is_wanted(struct rig *rig, void *arg)
{
	const struct wanted *wanted = arg;

	return rig_is(rig, wanted->sandbox, wanted->state);
}

void rig_wait_state(struct rig *rig, const char *sandbox, enum report_state state)
{
	struct wanted wanted = { sandbox, state };

	rig_until(rig, is_wanted, &wanted, report_state_name(state));
}

const struct stage_record *rig_stage(struct rig *rig, const char *sandbox, enum fail_stage stage)
{
	struct rig_sandbox *found = rig_find(rig, sandbox);

	for (size_t i = 0; found && i < found->report.n_stages; i++)
		if (found->report.stages[i].stage == stage)
			return &found->report.stages[i];
	return NULL;
}

/* A process with `text` in its command line, and of this name; NULL: of any. 0: none. */
static pid_t find_process(const char *name, const char *text)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	pid_t found = 0;

	while (proc && !found && (entry = readdir(proc))) {
		CLEANUP_FREE char *line = NULL;
		char path[300];
		size_t size = 0;

		(void)snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
		if (!isdigit((unsigned char)entry->d_name[0]) || file_read(path, 4096, &line, &size) < 0)
			continue;
		if (size > 0 && (!name || !strcmp(line, name)) && memmem(line, size, text, strlen(text)))
			found = (pid_t)strtol(entry->d_name, NULL, 10);
	}
	if (proc)
		(void)closedir(proc);
	return found;
}

pid_t rig_find_vmm(struct rig *rig)
{
	return find_process("croft-vmm", rig->run);
}

/* Agent and VMMs have the directory in their command lines. */
static void clear_away(const char *dir)
{
	pid_t pid;

	for (int i = 0; i < 1000 && (pid = find_process(NULL, dir)) > 0; i++) {
		(void)kill(pid, SIGKILL);
		(void)usleep(1000); /* it is nobody's child: there is nothing to wait for */
	}
	(void)dir_remove(dir);
}

/* In the runner, whose children the tests were. */
static void clear_all(void)
{
	DIR *dir = opendir(rig_place());
	struct dirent *entry;
	char prefix[64], path[PATH_MAX];

	(void)snprintf(prefix, sizeof(prefix), RIG_PREFIX "%d.", (int)getpid());
	while (dir && (entry = readdir(dir)))
		if (!strncmp(entry->d_name, prefix, strlen(prefix))) {
			(void)snprintf(path, sizeof(path), "%s/%s", rig_place(), entry->d_name);
			clear_away(path);
		}
	if (dir)
		(void)closedir(dir);
}

int rig_suite_run(Suite *suite)
{
	int status = suite_run(suite);

	clear_all();
	return status;
}

int rig_suite_run_kvm(Suite *suite)
{
	int status = suite_run_kvm(suite);

	clear_all();
	return status;
}

unsigned int rig_count_files(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	unsigned int n = 0;

	while (dir && (entry = readdir(dir)))
		n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
		     strcmp(entry->d_name, "owner.sock") != 0; /* the agent's own, as long as it runs */
	if (dir)
		(void)closedir(dir);
	return n;
}
