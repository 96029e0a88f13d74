/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-agents TOKEN-FOLDER FIRST COUNT [DIALS]
 *
 * COUNT node agents in one process, as far as a scheduler sees them: each enrols with the file TOKEN-FOLDER/<number>, says
 * hello, sends its inventory and a heartbeat each second, and says that whatever it is told to create runs. No VMs, no
 * disk. DIALS: how many may be under way to their first welcome at a time, else all are at once. For tests/bench/fleet and tests/cli/heavy.
 *
 * Lines on stdout: `welcomed N` (how many have been, at each change that 100 ms brought), `create ID USEC` (CLOCK_MONOTONIC
 * when the command came), `beats N BYTES` (each second: heartbeats and their bytes since the start), `refused CODE`,
 * `silent N USEC` (when it was told to be).
 * Lines on stdin: `silence N` (number N says nothing from now on), `cut` (all drop their connections and dial again),
 * `garbage` (each sends random bytes, the largest frame that there may be, and a flood of hellos).
 * Ends when stdin does.
 */
#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zmq.h>

#include "agent/identity.h"
#include "base/clock.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/rng.h"
#include "wire/dispatch.h"
#include "wire/messages.h"

#define SANDBOXES_MAX 128
#define TICK_MSEC 10
#define TICKS_A_SECOND (1000 / TICK_MSEC)
#define AGENT_FRAME_MAX (256u * 1024u)

enum { FROM_SCHEDULER };
enum { ENROLLING, ENROLLED };

struct sandbox {
	char id[ID_SIZE];
	char operation[ID_SIZE];
	uint64_t generation, version;
	enum report_state state;
	struct sandbox_spec *spec;
};

struct fleet;
struct agent {
	struct fleet *fleet;
	struct dealer *dealer, *spent; /* `spent`: of the token, freed at the next tick */
	struct curve_keys keys;
	char instance[ID_SIZE];
	int state;
	bool is_silent, is_welcome;
	uint64_t seq, beats, inventories, epoch;
	struct leader_mark leader;
	struct sandbox sandboxes[SANDBOXES_MAX];
	size_t n_sandboxes;
};

struct fleet {
	struct event_base *base;
	struct rng rng;
	void *zmq;
	struct dispatch dispatch;
	struct agent *agents;
	size_t n, first;
	const char *tokens;
	struct join_token token; /* the last one read: address and key of the scheduler are those of all */
	size_t turn, n_welcome, n_told, n_begun, dials;
	uint64_t ticks, n_beats, beat_bytes;
	char line[64];
	size_t n_line;
};

static void fatal(const char *what)
{
	fprintf(stderr, "bench-agents: %s: %s\n", what, strerror(errno));
	exit(1); /* ends the process: a bench that cannot go on measures nothing */
}

static size_t send_body(struct agent *agent, Croft__Envelope *envelope)
{
	struct envelope_head head = { .seq = ++agent->seq };
	size_t size = 0;
	uint8_t *frame = envelope_pack(&head, envelope, &size);

	if (!frame || !dealer_send(agent->dealer, frame, size))
		size = 0;
	free(frame);
	return size;
}

/* Sends what an encoder made, and frees it. */
#define SEND(agent, made, CASE, member)                                                            \
	__extension__({                                                                            \
		Croft__Envelope envelope_;                                                         \
		size_t size_ = 0;                                                                  \
		croft__envelope__init(&envelope_);                                                 \
		envelope_.body_case = CROFT__ENVELOPE__BODY_##CASE;                                \
		envelope_.member = (made);                                                         \
		if (envelope_.member) {                                                            \
			size_ = send_body(agent, &envelope_);                                      \
			protobuf_c_message_free_unpacked(&envelope_.member->base, NULL);           \
		}                                                                                  \
		size_;                                                                             \
	})

static void report_of(const struct sandbox *sandbox, bool with_spec, struct sandbox_report *ret)
{
	*ret = (struct sandbox_report){ .generation = sandbox->generation, .version = sandbox->version, .state = sandbox->state,
		.accepted = true };
	memcpy(ret->sandbox, sandbox->id, sizeof(ret->sandbox));
	memcpy(ret->operation, sandbox->operation, sizeof(ret->operation));
	if (sandbox->state == REPORT_ENDED)
		ret->end_reason = END_REQUEST;
	if (sandbox->state == REPORT_RUNNING)
		(void)snprintf(ret->guest_boot_id, sizeof(ret->guest_boot_id), "00000000-0000-4000-8000-000000000001");
	if (with_spec)
		ret->spec = sandbox->spec;
}

static void send_report(struct agent *agent, const struct sandbox *sandbox)
{
	struct sandbox_report report;

	report_of(sandbox, false, &report);
	(void)SEND(agent, sandbox_report_encode(&report), REPORT, report);
}

/* ---- what the scheduler says ---- */
static int on_enrolled(void *call, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	const Croft__EnrollResult *result = envelope->enroll_result;
	struct agent *agent = call;

	(void)head, (void)reterr;
	if (result->failure) {
		printf("refused %s\n", result->failure->code);
	} else if (agent->state == ENROLLING) {
		agent->state = ENROLLED;
		agent->spent = TAKE(agent->dealer); /* we are in its callback */
	}
	return 0;
}

static int on_welcome(void *call, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	struct agent *agent = call;
	struct inventory inventory = { .complete = true, .number = ++agent->inventories };
	struct sandbox_report reports[SANDBOXES_MAX];
	struct welcome welcome;
	int r = welcome_decode(envelope->welcome, &welcome, reterr);

	if (r < 0)
		return r;
	agent->epoch = head->epoch;
	memcpy(agent->leader.lineage, welcome.lineage, sizeof(welcome.lineage));
	memcpy(agent->leader.run, welcome.run, sizeof(welcome.run));
	for (size_t i = 0; i < agent->n_sandboxes; i++)
		report_of(&agent->sandboxes[i], true, &reports[i]);
	inventory.sandboxes = reports;
	inventory.n = agent->n_sandboxes;
	inventory.greeting = welcome.greeting;
	(void)SEND(agent, inventory_encode(&inventory), INVENTORY, inventory);
	if (!agent->is_welcome)
		agent->fleet->n_welcome++;
	agent->is_welcome = true;
	return 0;
}

static struct sandbox *find(struct agent *agent, const char *id)
{
	for (size_t i = 0; i < agent->n_sandboxes; i++) {
		if (strcmp(agent->sandboxes[i].id, id) == 0)
			return &agent->sandboxes[i];
	}
	return NULL;
}

static int on_create(void *call, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	int64_t now = clock_monotonic_usec();
	struct agent *agent = call;
	struct create_command command;
	struct sandbox *sandbox;
	int r = create_command_decode(envelope->create, &command, reterr);

	(void)head;
	if (r < 0)
		return r;
	sandbox = find(agent, command.sandbox);
	if (!sandbox && agent->n_sandboxes < SANDBOXES_MAX) {
		printf("create %s %" PRId64 "\n", command.sandbox, now);
		sandbox = &agent->sandboxes[agent->n_sandboxes++];
		*sandbox = (struct sandbox){ .state = REPORT_RUNNING, .spec = spec_ref(command.spec) };
		memcpy(sandbox->id, command.sandbox, sizeof(sandbox->id));
	}
	if (sandbox) {
		sandbox->generation = command.generation;
		sandbox->version++;
		memcpy(sandbox->operation, command.operation, sizeof(sandbox->operation));
		send_report(agent, sandbox);
	}
	create_command_deinit(&command);
	return 0;
}

static int on_destroy(void *call, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	struct agent *agent = call;
	struct destroy_command command;
	struct sandbox *sandbox;
	int r = destroy_command_decode(envelope->destroy, &command, reterr);

	(void)head;
	if (r < 0)
		return r;
	sandbox = find(agent, command.sandbox);
	if (!sandbox)
		return 0;
	sandbox->state = REPORT_ENDED;
	sandbox->version++;
	memcpy(sandbox->operation, command.operation, sizeof(sandbox->operation));
	send_report(agent, sandbox);
	return 0;
}

static int on_ack(void *call, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	struct agent *agent = call;
	struct report_ack ack;
	struct sandbox *sandbox;
	int r = report_ack_decode(envelope->report_ack, &ack, reterr);

	(void)head;
	if (r < 0)
		return r;
	sandbox = find(agent, ack.sandbox);
	if (sandbox && sandbox->state == REPORT_ENDED && ack.version >= sandbox->version) {
		spec_unref(sandbox->spec);
		*sandbox = agent->sandboxes[--agent->n_sandboxes];
	}
	return 0;
}

static int on_refused(void *call, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	(void)call, (void)head, (void)reterr;
	if (envelope->refused->failure)
		printf("refused %s\n", envelope->refused->failure->code);
	return 0;
}

static int on_other(void *call, const struct envelope_head *head, const Croft__Envelope *envelope, struct err *reterr)
{
	(void)call, (void)head, (void)envelope, (void)reterr;
	return 0;
}

#define ROW(CASE, states, handler)                                                                 \
	{ CROFT__ENVELOPE__BODY_##CASE, DISPATCH_IN(FROM_SCHEDULER), states, AGENT_FRAME_MAX, handler }
static const struct dispatch_row rows[] = {
	ROW(ENROLL_RESULT, DISPATCH_ANY, on_enrolled),
	ROW(WELCOME, DISPATCH_IN(ENROLLED), on_welcome),
	ROW(CREATE, DISPATCH_IN(ENROLLED), on_create),
	ROW(DESTROY, DISPATCH_IN(ENROLLED), on_destroy),
	ROW(REPORT_ACK, DISPATCH_IN(ENROLLED), on_ack),
	ROW(DESIRED, DISPATCH_IN(ENROLLED), on_other),
	ROW(TELEMETRY_ACK, DISPATCH_IN(ENROLLED), on_other),
	ROW(LEASE, DISPATCH_IN(ENROLLED), on_other),
	ROW(REFUSED, DISPATCH_ANY, on_refused),
};

static void on_message(const void *data, size_t size, void *user)
{
	struct agent *agent = user;
	struct envelope_head head;
	struct err err = ERR_NULL;

	if (agent->is_silent)
		return;
	if (dispatch(&agent->fleet->dispatch, data, size, FROM_SCHEDULER, (unsigned int)agent->state, agent, &head, &err) !=
		DISPATCH_OK)
		printf("refused %s\n", failure_info(err.code)->name);
}

/* ---- what an agent says ---- */
static void send_enroll(struct agent *agent)
{
	Croft__Envelope envelope;
	Croft__Enroll enroll;
	char hostname[] = "bench";

	croft__envelope__init(&envelope);
	croft__enroll__init(&enroll);
	enroll.node_key = agent->keys.public_key;
	enroll.hostname = hostname;
	enroll.machine = agent->instance;
	envelope.body_case = CROFT__ENVELOPE__BODY_ENROLL;
	envelope.enroll = &enroll;
	(void)send_body(agent, &envelope);
}

static void send_hello(struct agent *agent)
{
	struct hello hello = { .capacity = { .memory_mib = 64 * 1024, .cpus = 16, .disk_mib = 512 * 1024,
				       .max_sandboxes = SANDBOXES_MAX, .max_starts = 16, .max_vcpus = 8 } };

	agent->seq = 0;
	hello.highest_epoch = agent->epoch;
	hello.leader = agent->leader;
	memcpy(hello.instance, agent->instance, sizeof(hello.instance));
	memcpy(hello.machine, agent->instance, sizeof(hello.machine));
	(void)snprintf(hello.boot_id, sizeof(hello.boot_id), "00000000-0000-4000-8000-000000000000");
	(void)snprintf(hello.hostname, sizeof(hello.hostname), "bench");
	(void)snprintf(hello.version, sizeof(hello.version), "bench");
	(void)SEND(agent, hello_encode(&hello), HELLO, hello);
}

static void on_state(enum dealer_state state, void *user)
{
	struct agent *agent = user;

	if (state == DEALER_UP && agent->state == ENROLLING)
		send_enroll(agent);
	else if (state == DEALER_UP)
		send_hello(agent);
	else if (state == DEALER_REFUSED)
		printf("refused by ZAP\n");
	if (state != DEALER_UP && agent->is_welcome) {
		agent->is_welcome = false;
		agent->fleet->n_welcome--;
	}
}

static void dial(struct agent *agent, const struct curve_keys *keys)
{
	const struct dealer_handler handler = { .on_message = on_message, .on_state = on_state };
	const struct scheduler_address *to = &agent->fleet->token.scheduler;
	struct dealer_config config = { .address = to->addresses[0], .keys = *keys, .backoff_max_usec = 10 * USEC_PER_SEC };
	struct err err = ERR_NULL;

	memcpy(config.server_key, to->key, sizeof(config.server_key));
	if (dealer_new(&agent->dealer, agent->fleet->base, agent->fleet->zmq, &config, &handler, agent, &err) < 0)
		fatal(err.msg);
}

static void agent_begin(struct fleet *fleet, struct agent *agent)
{
	char path[PATH_MAX];
	struct err err = ERR_NULL;

	(void)snprintf(path, sizeof(path), "%.4000s/%zu", fleet->tokens, fleet->first + (size_t)(agent - fleet->agents));
	agent->fleet = fleet;
	id_new(&fleet->rng, agent->instance);
	if (join_token_read(path, clock_realtime_usec(), &fleet->token, &err) < 0 ||
		curve_keys_new(&agent->keys, &err) < 0)
		fatal(*err.msg ? err.msg : path);
	dial(agent, &fleet->token.keys);
}

static void heartbeat(struct agent *agent)
{
	struct heartbeat beat = { .schedulable = true, .running = (uint32_t)agent->n_sandboxes,
		.realtime_us = clock_realtime_usec(), .number = ++agent->beats };
	size_t size;

	size = SEND(agent, heartbeat_encode(&beat), HEARTBEAT, heartbeat);
	if (size > 0) {
		agent->fleet->n_beats++;
		agent->fleet->beat_bytes += size;
	}
}

static void begin_some(struct fleet *fleet)
{
	size_t until = fleet->dials ? MIN(fleet->n, fleet->n_welcome + fleet->dials) : fleet->n;

	for (; fleet->n_begun < until; fleet->n_begun++)
		agent_begin(fleet, &fleet->agents[fleet->n_begun]);
}

/* Each agent has its turn once a second. */
static void on_tick(evutil_socket_t fd, short what, void *user)
{
	struct fleet *fleet = user;
	size_t until = fleet->n * (fleet->ticks % TICKS_A_SECOND + 1) / TICKS_A_SECOND;

	(void)fd, (void)what;
	if (fleet->ticks++ % TICKS_A_SECOND == 0)
		fleet->turn = 0;
	begin_some(fleet);
	for (; fleet->turn < until; fleet->turn++) {
		struct agent *agent = &fleet->agents[fleet->turn];

		if (agent->spent) {
			dealer_free(TAKE(agent->spent));
			dial(agent, &agent->keys);
		}
		if (agent->is_welcome && !agent->is_silent)
			heartbeat(agent);
	}
	if (fleet->n_welcome != fleet->n_told && fleet->ticks % 10 == 0)
		printf("welcomed %zu\n", fleet->n_told = fleet->n_welcome);
	if (fleet->ticks % TICKS_A_SECOND == 0)
		printf("beats %" PRIu64 " %" PRIu64 "\n", fleet->n_beats, fleet->beat_bytes);
}

static void send_garbage(struct agent *agent)
{
	static uint8_t bytes[ENDPOINT_FRAME_MAX];

	rng_bytes(&agent->fleet->rng, bytes, 4096);
	for (size_t size = 1; size <= sizeof(bytes); size *= 8)
		(void)dealer_send(agent->dealer, bytes, size);
	for (int i = 0; i < 20; i++)
		send_hello(agent);
}

static void obey(struct fleet *fleet, const char *line)
{
	size_t number;

	if (sscanf(line, "silence %zu", &number) == 1 && number - fleet->first < fleet->n) {
		fleet->agents[number - fleet->first].is_silent = true;
		printf("silent %zu %" PRId64 "\n", number, clock_monotonic_usec());
	}
	for (size_t i = 0; strcmp(line, "garbage") == 0 && i < fleet->n_begun; i++)
		send_garbage(&fleet->agents[i]);
	for (size_t i = 0; strcmp(line, "cut") == 0 && i < fleet->n; i++) {
		if (fleet->agents[i].dealer)
			dealer_reconnect(fleet->agents[i].dealer);
	}
}

static void on_input(evutil_socket_t fd, short what, void *user)
{
	struct fleet *fleet = user;
	char c;
	ssize_t got = read(fd, &c, 1);

	(void)what;
	if (got <= 0) {
		(void)event_base_loopbreak(fleet->base);
	} else if (c == '\n') {
		fleet->line[fleet->n_line] = '\0';
		fleet->n_line = 0;
		obey(fleet, fleet->line);
	} else if (fleet->n_line < sizeof(fleet->line) - 1) {
		fleet->line[fleet->n_line++] = c;
	}
}

int main(int argc, char **argv)
{
	struct fleet fleet = { .dispatch = { .rows = rows, .n_rows = ARRAY_LEN(rows) } };
	struct timeval tick = { .tv_usec = TICK_MSEC * USEC_PER_MSEC };
	struct rlimit files = { .rlim_cur = 65536, .rlim_max = 65536 };
	struct event *timer, *input;

	if (argc != 4 && argc != 5) {
		fprintf(stderr, "usage: bench-agents TOKEN-FOLDER FIRST COUNT [DIALS]\n");
		return 2;
	}
	log_init("bench-agents", LOG_LEVEL_ERROR);
	fleet.rng = rng_system();
	(void)setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	(void)setrlimit(RLIMIT_NOFILE, &files);
	fleet.tokens = argv[1];
	fleet.first = strtoul(argv[2], NULL, 10);
	fleet.n = strtoul(argv[3], NULL, 10);
	fleet.dials = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;
	fleet.agents = calloc(fleet.n, sizeof(*fleet.agents));
	fleet.base = event_base_new();
	fleet.zmq = zmq_ctx_new();
	if (!fleet.agents || !fleet.base || !fleet.zmq ||
		zmq_ctx_set(fleet.zmq, ZMQ_MAX_SOCKETS, (int)fleet.n * 8 + 64) < 0)
		fatal("no memory");
	timer = event_new(fleet.base, -1, EV_PERSIST, on_tick, &fleet);
	input = event_new(fleet.base, STDIN_FILENO, EV_READ | EV_PERSIST, on_input, &fleet);
	if (!timer || !input || event_add(timer, &tick) < 0 || event_add(input, NULL) < 0)
		fatal("no memory");
	(void)event_base_dispatch(fleet.base);
	_exit(0); /* ends the process: nothing of it is worth an orderly end of ten thousand sockets */
}
