/* SPDX-License-Identifier: Apache-2.0
 *
 * The fleet: a start from request to answer, what each class of failure leads to, DELETE in every state, liveness,
 * who may speak about what, inventories, restart, and the failed commit.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fleet/fleet.h"
#include "lib/suite.h"

#define POOL "pool"
#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define OTHER "zzzzzzzzzzzzzzzzzzzz"

static const char nodes[3][ID_SIZE] = { "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb",
	"cccccccccccccccccccc" };

struct rig {
	struct fleet *fleet;
	struct rng rng;
	struct moment now;
	struct fleet_actions out;
	struct sandbox_record saved; /* the last record of the sandbox under test */
	bool has_saved, has_history;
	char id[ID_SIZE];   /* of it */
	char node[ID_SIZE]; /* where the last create command went */
	uint64_t generation;
	uint64_t version;
};

static struct rig rig;

static void keep(void)
{
	for (size_t i = 0; i < rig.out.n_puts; i++) {
		const struct fleet_put *put = &rig.out.puts[i];

		if (put->type != FLEET_PUT_SANDBOX && put->type != FLEET_PUT_HISTORY)
			continue;
		if (rig.has_saved)
			sandbox_record_deinit(&rig.saved);
		ck_assert_int_eq(sandbox_record_copy(put->sandbox, &rig.saved), 0);
		rig.has_saved = true;
		rig.has_history = put->type == FLEET_PUT_HISTORY;
		memcpy(rig.id, put->id, ID_SIZE);
	}
	for (size_t i = 0; i < rig.out.n_sends; i++)
		if (rig.out.sends[i].type == SEND_CREATE) {
			memcpy(rig.node, rig.out.sends[i].node, ID_SIZE);
			rig.generation = rig.out.sends[i].create.generation;
		}
}

static void feed(struct fleet_event event)
{
	fleet_actions_clear(&rig.out);
	fleet_step(rig.fleet, rig.now, &rig.rng, &event, &rig.out);
	ck_assert(!rig.out.no_memory);
	keep();
}

static void later(int64_t usec)
{
	rig.now.mono_usec += usec;
	rig.now.real_usec += usec;
	feed((struct fleet_event){ .type = FLEET_TICK });
}

static struct fleet_event of_node(enum fleet_event_type type, const char *node)
{
	struct fleet_event event = { .type = type };

	memcpy(event.node, node, ID_SIZE);
	event.session = (uint64_t)node[0];
	return event;
}

static void heartbeats(void)
{
	struct heartbeat heartbeat = { .schedulable = true };

	for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
		struct fleet_event event = of_node(FLEET_NODE_HEARTBEAT, nodes[i]);

		event.heartbeat = &heartbeat;
		feed(event);
	}
}

/* Time passes while the nodes keep calling. */
static void pass(int64_t seconds)
{
	for (int64_t i = 0; i < seconds; i++) {
		rig.now.mono_usec += USEC_PER_SEC;
		rig.now.real_usec += USEC_PER_SEC;
		heartbeats();
	}
	feed((struct fleet_event){ .type = FLEET_TICK });
}

static struct hello hello_of(const char *node)
{
	struct hello hello = { .capacity = { 8000, 8, 50000, 10, 4, 4, 0 }, .boot_id = "boot", .pauses = true };

	memcpy(hello.instance, node, ID_SIZE);
	memcpy(hello.machine, node, ID_SIZE);
	return hello;
}

static void greet(const char *node)
{
	struct fleet_event event = of_node(FLEET_NODE_HELLO, node);
	struct hello hello = hello_of(node);

	event.hello = &hello;
	feed(event);
}

/* It says that nothing is there: from then on it is placed on. */
static void say_empty(const char *node)
{
	struct fleet_event event = of_node(FLEET_NODE_INVENTORY, node);
	struct inventory nothing = { .complete = true, .number = 1 };

	event.inventory = &nothing;
	feed(event);
}

static void make_fleet(void)
{
	struct pool_record pool = { .name = POOL, .cpu_overcommit_percent = 400 };
	struct fleet_config config;

	fleet_config_default(&config);
	config.epoch = 5;
	ck_assert_int_eq(fleet_new(&rig.fleet, &config), 0);
	feed((struct fleet_event){ .type = FLEET_LOAD_POOL, .pool = &pool });
	for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
		struct node_record record = { .pool = POOL };

		memcpy(record.id, nodes[i], ID_SIZE);
		memcpy(record.machine, nodes[i], ID_SIZE);
		feed((struct fleet_event){ .type = FLEET_LOAD_NODE, .node_record = &record });
	}
	if (rig.has_saved && !rig.has_history)
		feed((struct fleet_event){
			.type = FLEET_LOAD_SANDBOX, .sandbox_record = &rig.saved });
	feed((struct fleet_event){ .type = FLEET_LOADED });
}

static void setup(void)
{
	memset(&rig, 0, sizeof(rig));
	rig.rng = rng_seeded(7);
	rig.now = (struct moment){ .mono_usec = 1000 * USEC_PER_SEC,
		.real_usec = 5000 * USEC_PER_SEC };
	make_fleet();
	for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
		greet(nodes[i]);
		ck_assert_int_eq(rig.out.sends[0].type, SEND_WELCOME);
		say_empty(nodes[i]);
	}
}

static void teardown(void)
{
	fleet_actions_clear(&rig.out);
	if (rig.has_saved)
		sandbox_record_deinit(&rig.saved);
	rig.fleet = fleet_free(rig.fleet);
}

static void create_of(uint64_t memory_mib, bool no_wait)
{
	CLEANUP(spec_unrefp) struct sandbox_spec *spec = spec_new();
	struct fleet_create create = {
		.request = 42, .tenant = "tenant", .pool = POOL, .spec = spec, .no_wait = no_wait
	};

	memcpy(spec->template_name, "base", 5);
	memcpy(spec->image_digest, DIGEST, DIGEST_SIZE);
	spec->vcpus = 1;
	spec->memory_mib = memory_mib;
	spec->disk_mib = 100;
	trace_new(&rig.rng, &create.trace);
	create.began_us = rig.now.real_usec;
	feed((struct fleet_event){ .type = FLEET_CREATE, .create = &create });
}

static void report_as(const char *node, enum report_state state, bool accepted, enum fail_code code)
{
	struct fleet_event event = of_node(FLEET_NODE_REPORT, node);
	struct sandbox_report report = {
		.generation = rig.generation, .state = state, .accepted = accepted
	};

	memcpy(report.sandbox, rig.id, ID_SIZE);
	report.version = ++rig.version;
	if (code != FAIL_NONE) {
		(void)err_set(&report.failure, code, 0, "It failed.");
		report.end_reason = END_FAILED;
	}
	event.report = &report;
	feed(event);
}

static void report(enum report_state state, enum fail_code code)
{
	report_as(rig.node, state, true, code);
}

static const struct fleet_send *sent(enum fleet_send_type type)
{
	for (size_t i = 0; i < rig.out.n_sends; i++)
		if (rig.out.sends[i].type == type)
			return &rig.out.sends[i];
	return NULL;
}

static void destroy(void)
{
	struct fleet_event event = { .type = FLEET_DESTROY };

	event.destroy.request = 43;
	event.destroy.sandbox = rig.id;
	event.destroy.reason = END_REQUEST;
	feed(event);
}

static enum sandbox_state state(void)
{
	struct fleet_sandbox_view view;

	return fleet_sandbox_get(rig.fleet, rig.id, NULL, &view) == 0 ? view.internal
								      : SANDBOX_ENDED;
}

static uint64_t reserved(void)
{
	struct fleet_node_view view;
	uint64_t sum = 0;

	for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
		ck_assert_int_eq(fleet_node_get(rig.fleet, nodes[i], &view), 0);
		sum += view.memory_reserved_mib + view.n_starting;
	}
	return sum;
}

/* Nobody was answered but request 42, with `code`. */
static void check_answer(enum fail_code code)
{
	ck_assert_uint_eq(rig.out.n_replies, 1);
	ck_assert_uint_eq(rig.out.replies[0].request, 42);
	ck_assert_str_eq(failure_info(rig.out.replies[0].err.code)->name, failure_info(code)->name);
}

static void drive_sleep(enum sandbox_state to); /* test-fleet-sleep.h */

static void drive(enum sandbox_state to)
{
	create_of(to == SANDBOX_PLACING ? 1 : 1000, false);
	if (to == SANDBOX_DISPATCHED || to == SANDBOX_PLACING)
		return;
	if (to == SANDBOX_RECALL) {
		pass(21);
		return;
	}
	if (to == SANDBOX_BACKOFF) {
		report(REPORT_ENDED, FAIL_IMAGE_FETCH_FAILED);
		return;
	}
	report(REPORT_STARTING, FAIL_NONE);
	if (to == SANDBOX_STARTING)
		return;
	report(REPORT_RUNNING, FAIL_NONE);
	if (to == SANDBOX_RUNNING)
		return;
	if (to == SANDBOX_PAUSING || to == SANDBOX_PAUSED || to == SANDBOX_RESUMING) {
		drive_sleep(to);
		return;
	}
	destroy();
	if (to == SANDBOX_FENCED)
		pass(61);
}

START_TEST(test_create_answers_when_ready)
{
	create_of(1000, false);
	ck_assert_uint_eq(rig.out.n_replies, 0);
	ck_assert_uint_eq(rig.out.n_puts, 1); /* the command's batch has the record */
	ck_assert_ptr_nonnull(sent(SEND_CREATE));
	ck_assert_int_eq(rig.saved.state, SANDBOX_DISPATCHED);
	ck_assert_uint_eq(rig.out.n_stages, 2);
	ck_assert_int_eq(rig.out.stages[0].record.stage, STAGE_ADMIT);
	ck_assert_int_eq(rig.out.stages[1].record.stage, STAGE_PLACE);
	report(REPORT_STARTING, FAIL_NONE);
	ck_assert_int_eq(rig.out.stages[0].record.stage, STAGE_DISPATCH);
	ck_assert_ptr_nonnull(sent(SEND_REPORT_ACK));
	ck_assert_uint_eq(rig.out.n_replies, 0);
	report(REPORT_RUNNING, FAIL_NONE);
	check_answer(FAIL_NONE);
	ck_assert_int_eq(rig.out.replies[0].sandbox->state, SANDBOX_RUNNING);
	ck_assert_int_eq(rig.saved.state, SANDBOX_RUNNING);
}
END_TEST

static int64_t took(enum fail_stage stage)
{
	for (size_t i = 0; i < rig.saved.n_stages; i++)
		if (rig.saved.stages[i].stage == stage)
			return rig.saved.stages[i].took_us;
	return -1;
}

/* A reservation is made when it is durable: place ends and dispatch begins with its commit, and no other's. */
START_TEST(test_place_lasts_until_its_commit)
{
	struct fleet_event committed = { .type = FLEET_COMMITTED };
	uint64_t batch;

	create_of(1000, false);
	batch = rig.out.batch;
	rig.now.mono_usec += 3000;
	committed.commit.batch = batch - 1;
	feed(committed);
	rig.now.mono_usec += 4000;
	committed.commit.batch = batch;
	feed(committed);
	rig.now.mono_usec += 11000;
	committed.commit.batch = batch + 1;
	feed(committed);
	report(REPORT_STARTING, FAIL_NONE);
	ck_assert_int_eq(took(STAGE_PLACE), 7000);
	ck_assert_int_eq(took(STAGE_DISPATCH), 11000);
}
END_TEST

START_TEST(test_no_wait_answers_when_recorded)
{
	create_of(1000, true);
	check_answer(FAIL_NONE);
	ck_assert_uint_eq(rig.out.n_puts, 1);
	report(REPORT_STARTING, FAIL_NONE);
	report(REPORT_RUNNING, FAIL_NONE);
	ck_assert_uint_eq(rig.out.n_replies, 0);
}
END_TEST

START_TEST(test_refusals_at_once)
{
	create_of(64000, false);
	check_answer(FAIL_NO_CAPACITY);
	ck_assert_str_eq(err_field(&rig.out.replies[0].err, "resource"), "memory");
	ck_assert_str_eq(err_field(&rig.out.replies[0].err, "largest"), "7915");
	ck_assert_uint_eq(rig.saved.attempts, 1);
	ck_assert(rig.has_history);
	ck_assert_uint_eq(reserved(), 0);
}
END_TEST

/* A command is sent again until it is acknowledged, the same each time. */
START_TEST(test_resend)
{
	char operation[ID_SIZE];
	unsigned int sends = 0;

	create_of(1000, false);
	memcpy(operation, sent(SEND_CREATE)->create.operation, ID_SIZE);
	for (int i = 0; i < 15; i++) {
		pass(1);
		if (!sent(SEND_CREATE))
			continue;
		sends++;
		ck_assert_str_eq(sent(SEND_CREATE)->create.operation, operation);
		ck_assert_uint_eq(sent(SEND_CREATE)->create.generation, 1);
	}
	ck_assert_uint_ge(sends, 2);
	report(REPORT_STARTING, FAIL_NONE);
	pass(10);
	ck_assert_ptr_null(sent(SEND_CREATE));
}
END_TEST

/* class -> what follows */
START_TEST(test_caller_failure_is_final)
{
	drive(SANDBOX_STARTING);
	report(REPORT_ENDED, FAIL_SETUP_FAILED);
	check_answer(FAIL_SETUP_FAILED);
	ck_assert_uint_eq(rig.saved.attempts, 1);
	ck_assert_uint_eq(reserved(), 0);
}
END_TEST

START_TEST(test_transient_failure_is_tried_three_times)
{
	create_of(1000, false);
	for (int i = 0; i < 2; i++) {
		report(REPORT_STARTING, FAIL_NONE);
		report(REPORT_ENDED, FAIL_IMAGE_FETCH_FAILED);
		ck_assert_uint_eq(rig.out.n_replies, 0);
		ck_assert_int_eq(state(), SANDBOX_BACKOFF);
		pass(25);
		ck_assert_int_eq(state(), SANDBOX_DISPATCHED);
		ck_assert_uint_eq(rig.generation, 2 + (uint64_t)i);
	}
	report(REPORT_STARTING, FAIL_NONE);
	report(REPORT_ENDED, FAIL_IMAGE_FETCH_FAILED);
	check_answer(FAIL_IMAGE_FETCH_FAILED);
	ck_assert_uint_eq(rig.saved.attempts, 3);
	ck_assert_uint_eq(reserved(), 0);
}
END_TEST

START_TEST(test_permanent_failure_excludes_the_node)
{
	char first[ID_SIZE];

	create_of(1000, false);
	memcpy(first, rig.node, ID_SIZE);
	report(REPORT_ENDED, FAIL_KERNEL_MISSING);
	ck_assert_str_ne(rig.node, first);
	ck_assert_uint_eq(rig.saved.n_excluded, 1);
	report(REPORT_ENDED, FAIL_KERNEL_MISSING);
	report(REPORT_ENDED, FAIL_KERNEL_MISSING);
	check_answer(FAIL_KERNEL_MISSING); /* not "no node left": what happened on them */
	ck_assert_uint_eq(rig.saved.attempts, 3);
}
END_TEST

START_TEST(test_capacity_refusal_costs_no_attempt) /* R022 */
{
	char seen[3][ID_SIZE];

	create_of(1000, false);
	for (int i = 0; i < 3; i++) {
		memcpy(seen[i], rig.node, ID_SIZE);
		for (int j = 0; j < i; j++)
			ck_assert_str_ne(seen[j], seen[i]);
		report_as(rig.node, REPORT_ENDED, false, FAIL_CAPACITY_STALE);
	}
	check_answer(FAIL_NO_CAPACITY);
	ck_assert_ptr_nonnull(
		strstr(err_field(&rig.out.replies[0].err, "refused"), "CAPACITY_STALE"));
	ck_assert_uint_eq(rig.saved.attempts, 1);
	ck_assert_uint_eq(reserved(), 0);
}
END_TEST

/* R022: a node that takes nothing is passed over for longer and longer; each request is placed elsewhere, and none of them
 * loses an attempt. */
START_TEST(test_who_refuses_everything_is_passed_over)
{
	unsigned int refusals = 0, seconds = 120;

	for (unsigned int i = 0; i < seconds; i++) {
		create_of(1000, false);
		for (unsigned int asked = 0; !strcmp(rig.node, nodes[0]) && asked < 3; asked++) {
			refusals++;
			report_as(rig.node, REPORT_ENDED, false, FAIL_CAPACITY_STALE);
		}
		ck_assert_str_ne(rig.node, nodes[0]);
		report(REPORT_RUNNING, FAIL_NONE);
		check_answer(FAIL_NONE);
		ck_assert_uint_eq(rig.saved.attempts, 1);
		destroy();
		report(REPORT_ENDED, FAIL_NONE);
		ck_assert_int_eq(state(), SANDBOX_ENDED);
		pass(1);
	}
	ck_assert_uint_ge(refusals, 2); /* it is asked again */
	ck_assert_uint_le(refusals, 8); /* after 2, 4, 8, 16, 32, 60 s */
}
END_TEST

static void report_kept(enum fail_code code)
{
	struct fleet_event event = of_node(FLEET_NODE_REPORT, rig.node);
	struct sandbox_report report = { .generation = rig.generation,
		.version = ++rig.version,
		.state = REPORT_ENDED,
		.accepted = true,
		.kept = true,
		.end_reason = END_FAILED };

	memcpy(report.sandbox, rig.id, ID_SIZE);
	(void)err_set(&report.failure, code, 0, "It failed.");
	event.report = &report;
	feed(event);
}

/* The next attempt goes where the disk of the last one waits, though it was that node that failed; but not where nothing
 * is to be placed. */
START_TEST(test_a_failed_start_goes_back_to_its_disk)
{
	struct fleet_event cordon = of_node(FLEET_NODE_FACT, nodes[0]);
	char first[ID_SIZE];

	create_of(1000, false);
	memcpy(first, rig.node, ID_SIZE);
	report(REPORT_STARTING, FAIL_NONE);
	if (_i == 2)
		report(REPORT_ENDED, FAIL_HELPER_UNAVAILABLE); /* it kept nothing */
	else
		report_kept(FAIL_HELPER_UNAVAILABLE);
	ck_assert_int_eq(state(), SANDBOX_BACKOFF);
	ck_assert_uint_eq(reserved(), 0);
	memset(rig.node, 0, sizeof(rig.node));
	if (_i == 1) {
		memcpy(cordon.node, first, ID_SIZE);
		cordon.fact.fact = NODE_CORDONED;
		cordon.fact.set = true;
		cordon.fact.who = cordon.fact.why = "somebody";
		feed(cordon);
	}
	pass(5);
	ck_assert_int_eq(state(), SANDBOX_DISPATCHED);
	ck_assert_uint_eq(rig.generation, 2);
	ck_assert_uint_eq(rig.saved.attempts, 2);
	if (_i == 0) {
		ck_assert_str_eq(rig.node, first);
		ck_assert_uint_eq(rig.saved.n_events, 1);
		ck_assert_str_eq(rig.saved.events[0].name, "RESUMED");
		ck_assert_str_eq(rig.saved.events[0].node, first);
	} else {
		if (_i == 1)
			ck_assert_str_ne(rig.node, first);
		ck_assert_uint_eq(rig.saved.n_events, 0);
	}
	ck_assert_uint_gt(reserved(), 0);
	report(REPORT_RUNNING, FAIL_NONE);
	check_answer(FAIL_NONE);
}
END_TEST

START_TEST(test_delete_in_every_state)
{
	enum sandbox_state in = (enum sandbox_state)_i;
	struct fleet_sandbox_view view;

	if (in == SANDBOX_PLACING) { /* waits for a start slot */
		for (int i = 0; i < 12; i++)
			create_of(10, false);
	}
	drive(in);
	ck_assert_int_eq(state(), in);
	ck_assert_int_eq(fleet_sandbox_get(rig.fleet, rig.saved.id, NULL, &view), 0);
	if (sandbox_state_table()[in].deadline_usec && in != SANDBOX_FENCED) /* R037 */
		ck_assert(view.deadline_usec > 0 && view.deadline_usec <= rig.now.mono_usec + 120 * USEC_PER_SEC);
	destroy();
	if (in == SANDBOX_FENCED) { /* it has ended for everybody */
		ck_assert_int_eq(rig.out.replies[0].err.code, FAIL_SANDBOX_NOT_FOUND);
	} else {
		const struct fleet_reply *reply = &rig.out.replies[rig.out.n_replies - 1];

		ck_assert_uint_eq(reply->request, 43);
		ck_assert_int_eq(reply->err.code, FAIL_NONE);
	}
	if (state() == SANDBOX_STOPPING || state() == SANDBOX_FENCED)
		report(REPORT_ENDED, FAIL_NONE);
	ck_assert_int_eq(state(), SANDBOX_ENDED);
	ck_assert(rig.has_history);
	if (in != SANDBOX_PLACING)
		ck_assert_uint_eq(reserved(), 0);
}
END_TEST

START_TEST(test_liveness)
{
	struct fleet_node_view view;
	struct fleet_event stall = { .type = FLEET_STALL, .stall_usec = 20 * USEC_PER_SEC };

	pass(1);
	rig.now.mono_usec += 20 * USEC_PER_SEC;
	feed(stall); /* we slept, not they */
	feed((struct fleet_event){ .type = FLEET_TICK });
	ck_assert_int_eq(fleet_node_get(rig.fleet, nodes[0], &view), 0);
	ck_assert_int_eq(view.link, NODE_READY);
	later(4 * USEC_PER_SEC);
	ck_assert_int_eq(fleet_node_get(rig.fleet, nodes[0], &view), 0);
	ck_assert_int_eq(view.link, NODE_SUSPECT);
	ck_assert(!view.schedulable);
	heartbeats();
	ck_assert_int_eq(fleet_node_get(rig.fleet, nodes[0], &view), 0);
	ck_assert_int_eq(view.link, NODE_READY);
	feed(of_node(FLEET_NODE_DISCONNECTED, nodes[0]));
	ck_assert_int_eq(fleet_node_get(rig.fleet, nodes[0], &view), 0);
	ck_assert_int_eq(view.link, NODE_SUSPECT); /* at once */
	later(400 * USEC_PER_SEC);
	ck_assert_int_eq(fleet_node_get(rig.fleet, nodes[0], &view), 0);
	ck_assert_int_eq(view.link, NODE_LOST);
}
END_TEST

/* The link moves no fact, and the facts move no link. */
START_TEST(test_facts_and_link_are_apart)
{
	struct fleet_event event = of_node(FLEET_NODE_FACT, nodes[0]);
	struct fleet_node_view view;

	event.fact.fact = (enum node_fact)_i;
	event.fact.set = true;
	event.fact.who = "somebody";
	event.fact.why = "a reason";
	feed(event);
	ck_assert_uint_eq(rig.out.n_puts, 1);
	for (int round = 0; round < 3; round++) {
		ck_assert_int_eq(fleet_node_get(rig.fleet, nodes[0], &view), 0);
		ck_assert(view.record->facts[_i].is_set);
		ck_assert(!view.schedulable);
		feed(of_node(FLEET_NODE_DISCONNECTED, nodes[0]));
		later(100 * USEC_PER_SEC);
		greet(nodes[0]);
		say_empty(nodes[0]);
		ck_assert_int_eq(fleet_node_get(rig.fleet, nodes[0], &view), 0);
		ck_assert_int_eq(view.link, NODE_READY);
	}
	event.fact.set = false;
	feed(event);
	ck_assert_int_eq(fleet_node_get(rig.fleet, nodes[0], &view), 0);
	ck_assert(view.schedulable);
}
END_TEST

START_TEST(test_wrong_node)
{
	const char *liar = nodes[0];

	drive(SANDBOX_RUNNING);
	liar = strcmp(rig.node, nodes[0]) == 0 ? nodes[1] : nodes[0];
	report_as(liar, REPORT_ENDED, true, FAIL_NONE);
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
	ck_assert_uint_eq(rig.out.n_notices, 1);
	ck_assert_int_eq(rig.out.notices[0].err.code, FAIL_AUTH_WRONG_NODE);
	ck_assert_uint_eq(rig.out.n_puts + rig.out.n_sends, 0);
}
END_TEST

/* R007: dropped and counted each time, and nothing more is placed on who does not stop. */
START_TEST(test_wrong_node_is_quarantined)
{
	struct fleet_node_view view;
	struct fleet_counts counts;
	const char *liar;

	drive(SANDBOX_RUNNING);
	liar = strcmp(rig.node, nodes[0]) == 0 ? nodes[1] : nodes[0];
	for (unsigned int i = 1; i <= 3; i++) {
		ck_assert_int_eq(fleet_node_get(rig.fleet, liar, &view), 0);
		ck_assert(view.schedulable);
		report_as(liar, REPORT_ENDED, true, FAIL_NONE);
		fleet_count(rig.fleet, &counts);
		ck_assert_uint_eq(counts.wrong_node, i);
	}
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
	ck_assert_int_eq(fleet_node_get(rig.fleet, liar, &view), 0);
	ck_assert(!view.schedulable);
	ck_assert(view.record->facts[NODE_QUARANTINED].is_set);
	ck_assert_ptr_nonnull(strstr(view.record->facts[NODE_QUARANTINED].why, "AUTH_WRONG_NODE"));
	ck_assert_uint_eq(rig.out.n_notices, 2);
	ck_assert_int_eq(rig.out.notices[1].err.code, FAIL_NODE_QUARANTINED);
	/* whose sandbox it is stays as it was */
	ck_assert_int_eq(fleet_node_get(rig.fleet, rig.node, &view), 0);
	ck_assert(view.schedulable);
}
END_TEST

START_TEST(test_second_host_with_the_same_key)
{
	struct fleet_event event = of_node(FLEET_NODE_HELLO, nodes[0]);
	struct hello hello = hello_of(nodes[0]);
	struct fleet_node_view view;

	event.session = 77;
	event.hello = &hello;
	memcpy(hello.instance, OTHER, ID_SIZE);
	memcpy(hello.boot_id, "elsewhere", 10);
	feed(event);
	ck_assert_int_eq(sent(SEND_REFUSED)->refused->code, FAIL_NODE_ID_IN_USE);
	ck_assert_uint_eq(sent(SEND_REFUSED)->session, 77);
	ck_assert_int_eq(fleet_node_get(rig.fleet, nodes[0], &view), 0);
	ck_assert_uint_eq(view.session, (uint64_t)nodes[0][0]);
	/* the first one's agent started anew: same host, same boot */
	memcpy(hello.boot_id, "boot", 5);
	feed(event);
	ck_assert_ptr_nonnull(sent(SEND_WELCOME));
	/* messages of the old session are nobody's now */
	report_as(nodes[0], REPORT_RUNNING, true, FAIL_NONE);
	ck_assert_uint_eq(rig.out.n_puts, 0);
}
END_TEST

START_TEST(test_unknown_session_is_asked_for_a_hello)
{
	struct fleet_event event = of_node(FLEET_NODE_HEARTBEAT, nodes[0]);
	struct heartbeat heartbeat = { .schedulable = true };

	event.session = 99;
	event.heartbeat = &heartbeat;
	feed(event);
	ck_assert_int_eq(sent(SEND_REFUSED)->refused->code, FAIL_HELLO_NEEDED);
}
END_TEST

static void inventory(const char *node, bool with, uint32_t part, bool complete)
{
	struct fleet_event event = of_node(FLEET_NODE_INVENTORY, node);
	struct sandbox_report item = {
		.generation = rig.generation, .state = REPORT_RUNNING, .accepted = true
	};
	struct inventory message = {
		.sandboxes = &item, .n = with, .part = part, .complete = complete, .number = 1
	};

	memcpy(item.sandbox, rig.id, ID_SIZE);
	item.version = rig.version;
	event.inventory = &message;
	feed(event);
}

START_TEST(test_inventory_without_the_sandbox)
{
	struct fleet_event again;
	struct hello hello;

	drive(SANDBOX_RUNNING);
	inventory(rig.node, false, 0, true);
	ck_assert_int_eq(state(),
		SANDBOX_RUNNING); /* accepted in this session: the inventory may be older */
	again = of_node(FLEET_NODE_HELLO, rig.node);
	hello = hello_of(rig.node);
	memcpy(hello.instance, OTHER, ID_SIZE);
	again.hello = &hello;
	again.session = 88;
	feed(again);
	again.type = FLEET_NODE_INVENTORY;
	again.inventory = &(struct inventory){ .part = 0, .complete = false, .number = 1 };
	feed(again);
	ck_assert_int_eq(state(), SANDBOX_RUNNING); /* partial says nothing */
	again.inventory = &(struct inventory){ .part = 2, .complete = true, .number = 1 };
	feed(again);
	ck_assert_int_eq(state(), SANDBOX_RUNNING); /* a part is missing */
	ck_assert_ptr_null(sent(SEND_DESIRED));
	again.inventory = &(struct inventory){ .part = 0, .complete = true, .number = 2 };
	feed(again);
	ck_assert_int_eq(state(), SANDBOX_ENDED);
	ck_assert_int_eq(rig.saved.failure.code, FAIL_VM_VANISHED);
	ck_assert(sent(SEND_DESIRED)->desired.complete);
	ck_assert(sent(SEND_DESIRED)->desired.knows_snapshots); /* also where there is none */
}
END_TEST

START_TEST(test_restart_keeps_everything)
{
	enum sandbox_state in = (enum sandbox_state)_i;
	struct fleet_sandbox_view view;
	uint64_t before;

	drive(in);
	before = reserved();
	rig.fleet = fleet_free(rig.fleet);
	make_fleet();
	ck_assert_int_eq(fleet_sandbox_get(rig.fleet, rig.id, NULL, &view), 0);
	ck_assert_int_eq(view.internal, in);
	ck_assert_uint_eq(reserved(), before);
	ck_assert_int_eq(view.deadline_usec != 0, sandbox_state_table()[in].deadline_usec != 0);
	for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
		greet(nodes[i]);
	if (in == SANDBOX_PAUSING || in == SANDBOX_PAUSED || in == SANDBOX_RESUMING) {
		report(in == SANDBOX_PAUSING ? REPORT_RUNNING : REPORT_PAUSED, FAIL_NONE);
		ck_assert_int_eq(state(), in);
	}
	inventory(rig.node, in == SANDBOX_RUNNING, 0, true);
	if (in == SANDBOX_PAUSING)
		ck_assert_ptr_nonnull(sent(SEND_PAUSE));
	if (in == SANDBOX_RESUMING)
		ck_assert_ptr_nonnull(sent(SEND_RESUME));
	if (in == SANDBOX_DISPATCHED)
		ck_assert_ptr_nonnull(sent(SEND_CREATE));
	if (in == SANDBOX_RECALL || in == SANDBOX_STOPPING || in == SANDBOX_FENCED)
		ck_assert_ptr_nonnull(sent(SEND_DESTROY));
	if (in == SANDBOX_RUNNING)
		ck_assert_int_eq(state(), SANDBOX_RUNNING);
}
END_TEST

START_TEST(test_failed_commit)
{
	struct fleet_event failed = { .type = FLEET_COMMIT_FAILED };
	struct err err = ERR_NULL;

	(void)err_set(&err, FAIL_STORE_FULL, 28, "No space left.");
	failed.commit.err = &err;
	create_of(1000, true);
	feed(failed);
	create_of(1000, true);
	check_answer(FAIL_STORE_FAILED);
	destroy();
	ck_assert_int_eq(rig.out.replies[0].err.code, FAIL_STORE_FAILED);
	pass(30);
	ck_assert_uint_eq(rig.out.n_sends + rig.out.n_puts, 0);
	ck_assert_int_eq(fleet_sandbox_get(rig.fleet, rig.id, NULL, NULL), 0); /* reads go on */
}
END_TEST

START_TEST(test_set_timeout_is_answered_by_the_node)
{
	struct fleet_event event = { .type = FLEET_SET_TIMEOUT };
	struct fleet_event answer;
	struct sandbox_report done = { .state = REPORT_RUNNING, .accepted = true };

	drive(SANDBOX_RUNNING);
	event.set_timeout.request = 44;
	event.set_timeout.sandbox = rig.id;
	event.set_timeout.timeout_s = 300;
	feed(event);
	ck_assert_uint_eq(rig.out.n_replies, 0);
	ck_assert_ptr_nonnull(sent(SEND_UPDATE));
	memcpy(done.updated, sent(SEND_UPDATE)->update.operation, ID_SIZE);
	memcpy(done.sandbox, rig.id, ID_SIZE);
	done.generation = rig.generation;
	done.version = ++rig.version;
	answer = of_node(FLEET_NODE_REPORT, rig.node);
	answer.report = &done;
	feed(answer);
	ck_assert_uint_eq(rig.out.replies[0].request, 44);
	ck_assert_int_eq(rig.out.replies[0].err.code, FAIL_NONE);
	ck_assert_int_eq(rig.saved.ends_us, rig.now.real_usec + 300 * USEC_PER_SEC);
	feed(event);
	pass(40);
	ck_assert_int_eq(
		rig.saved.state, SANDBOX_RUNNING); /* unconfirmed: an error, and nothing else */
}
END_TEST

START_TEST(test_revoked_node)
{
	drive(SANDBOX_RUNNING);
	feed(of_node(FLEET_NODE_REVOKED, rig.node));
	ck_assert_int_eq(state(), SANDBOX_ENDED);
	ck_assert_int_eq(rig.saved.failure.code, FAIL_NODE_REVOKED);
	greet(rig.node);
	ck_assert_int_eq(sent(SEND_REFUSED)->refused->code, FAIL_NODE_REVOKED);
}
END_TEST

START_TEST(test_table)
{
	for (unsigned int i = 0; i < SANDBOX_STATE_MAX_; i++) {
		const struct sm_state *row = &sandbox_state_table()[i];

		ck_assert_int_eq(sandbox_state_by_name(row->name), i);
		if (i != SANDBOX_RUNNING && i != SANDBOX_PAUSED && i != SANDBOX_ENDED)
			ck_assert_int_ne(row->deadline_usec, 0);
		if (i != SANDBOX_ENDED)
			ck_assert(sm_move_is_allowed(sandbox_state_table(), i, SANDBOX_ENDED));
	}
}
END_TEST

/* Who connected is not placed on before it said what is there: its room may be taken by what ended for us only. */
START_TEST(test_nothing_is_placed_before_the_inventory)
{
	struct fleet_node_view view;

	for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
		feed(of_node(FLEET_NODE_DISCONNECTED, nodes[i]));
		greet(nodes[i]);
		ck_assert_int_eq(fleet_node_get(rig.fleet, nodes[i], &view), 0);
		ck_assert_int_eq(view.link, NODE_READY);
		ck_assert(!view.schedulable);
	}
	create_of(1000, false);
	ck_assert_uint_eq(rig.out.n_replies, 0); /* it waits: they are there */
	ck_assert_int_eq(state(), SANDBOX_PLACING);
	say_empty(nodes[1]);
	ck_assert_ptr_nonnull(sent(SEND_CREATE));
	ck_assert_str_eq(rig.node, nodes[1]);
	ck_assert_int_eq(fleet_node_get(rig.fleet, nodes[1], &view), 0);
	ck_assert(view.schedulable);
}
END_TEST

/* A node that has connected and never says what is there does not keep requests for ever. */
START_TEST(test_an_inventory_is_not_waited_for_without_end)
{
	for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
		feed(of_node(FLEET_NODE_DISCONNECTED, nodes[i]));
		greet(nodes[i]);
	}
	create_of(1000, false);
	pass(16);
	ck_assert_int_eq(state(), SANDBOX_ENDED);
	ck_assert_int_eq(rig.saved.failure.code, FAIL_NO_NODE);
}
END_TEST

/* Made for an earlier fleet over the same connection, it is older than what this one ordered. */
START_TEST(test_an_inventory_for_another_scheduler)
{
	const char *node = nodes[0];
	struct fleet_event event = of_node(FLEET_NODE_INVENTORY, node);
	struct inventory message = { .complete = true, .number = 1 };
	uint64_t greeting;

	feed(of_node(FLEET_NODE_DISCONNECTED, node));
	greet(node);
	greeting = sent(SEND_WELCOME)->welcome.greeting;
	ck_assert_uint_ne(greeting, 0);
	greet(node); /* the same once more is the same greeting: the answer to the first is good */
	ck_assert_uint_eq(sent(SEND_WELCOME)->welcome.greeting, greeting);
	event.inventory = &message;
	message.greeting = greeting + 2;
	feed(event);
	ck_assert_ptr_null(sent(SEND_DESIRED));
	message.greeting = greeting;
	feed(event);
	ck_assert_ptr_nonnull(sent(SEND_DESIRED));
}
END_TEST

#include "test-fleet-silent.h"
#include "test-fleet-sleep.h"

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, test_create_answers_when_ready);
	tcase_add_test(tcase, test_place_lasts_until_its_commit);
	tcase_add_test(tcase, test_no_wait_answers_when_recorded);
	tcase_add_test(tcase, test_refusals_at_once);
	tcase_add_test(tcase, test_resend);
	tcase_add_test(tcase, test_caller_failure_is_final);
	tcase_add_test(tcase, test_transient_failure_is_tried_three_times);
	tcase_add_test(tcase, test_permanent_failure_excludes_the_node);
	tcase_add_test(tcase, test_capacity_refusal_costs_no_attempt);
	tcase_add_test(tcase, test_who_refuses_everything_is_passed_over);
	tcase_add_loop_test(tcase, test_a_failed_start_goes_back_to_its_disk, 0, 3);
	tcase_add_loop_test(tcase, test_delete_in_every_state, SANDBOX_PLACING, SANDBOX_FENCED + 1);
	add_silent_tests(tcase);
	tcase_add_test(tcase, test_liveness);
	tcase_add_loop_test(tcase, test_facts_and_link_are_apart, 0, NODE_FACT_MAX_);
	tcase_add_test(tcase, test_wrong_node);
	tcase_add_test(tcase, test_wrong_node_is_quarantined);
	tcase_add_test(tcase, test_second_host_with_the_same_key);
	tcase_add_test(tcase, test_unknown_session_is_asked_for_a_hello);
	tcase_add_test(tcase, test_inventory_without_the_sandbox);
	tcase_add_test(tcase, test_nothing_is_placed_before_the_inventory);
	tcase_add_test(tcase, test_an_inventory_is_not_waited_for_without_end);
	tcase_add_test(tcase, test_an_inventory_for_another_scheduler);
	tcase_add_loop_test(
		tcase, test_restart_keeps_everything, SANDBOX_DISPATCHED, SANDBOX_FENCED + 1);
	tcase_add_test(tcase, test_failed_commit);
	tcase_add_test(tcase, test_set_timeout_is_answered_by_the_node);
	tcase_add_test(tcase, test_revoked_node);
	add_sleep_tests(tcase);
	tcase_add_test(tcase, test_table);
}

int main(void)
{
	Suite *suite = suite_create("fleet");
	TCase *tcase = tcase_create("fleet");

	tcase_add_checked_fixture(tcase, setup, teardown);
	add_tests(tcase);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
