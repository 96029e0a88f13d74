/* SPDX-License-Identifier: Apache-2.0
 *
 * Who waits for room and gets it: no tenant starves another, weights, priorities among a tenant's own, what is too
 * large holds up nobody, and nobody fills the queue.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fleet/fleet.h"
#include "lib/suite.h"

#define POOL "pool"
#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define NODE "aaaaaaaaaaaaaaaaaaaa"
#define SLOTS 4
#define COMMANDS_MAX 1024

struct command {
	char sandbox[ID_SIZE];
	uint64_t generation;
	char tenant; /* its first letter, from the record */
	uint64_t memory_mib;
};

static struct rig {
	struct fleet *fleet;
	struct rng rng;
	struct moment now;
	struct fleet_actions out;
	struct command commands[COMMANDS_MAX]; /* in order */
	size_t n_commands, n_ended;
	uint64_t request;
	enum fail_code last_code;
	int64_t queue_usec; /* that a create is ready to wait */
	uint32_t vcpus;
	uint64_t disk_mib;
	const char *pool;
} rig;

static char tenant_of(const char *id)
{
	return *fleet_sandbox_tenant(rig.fleet, id);
}

static void feed(struct fleet_event event)
{
	fleet_actions_clear(&rig.out);
	fleet_step(rig.fleet, rig.now, &rig.rng, &event, &rig.out);
	ck_assert(!rig.out.no_memory);
	for (size_t i = 0; i < rig.out.n_sends; i++) {
		const struct fleet_send *send = &rig.out.sends[i];
		struct command *command = &rig.commands[rig.n_commands];

		if (send->type != SEND_CREATE)
			continue;
		ck_assert_uint_lt(rig.n_commands++, COMMANDS_MAX);
		memcpy(command->sandbox, send->create.sandbox, ID_SIZE);
		command->generation = send->create.generation;
		command->tenant = tenant_of(command->sandbox);
		command->memory_mib = send->create.spec->memory_mib;
	}
	rig.last_code = rig.out.n_replies ? rig.out.replies[0].err.code : FAIL_NONE;
}

static struct fleet_event of_node(enum fleet_event_type type)
{
	struct fleet_event event = { .type = type, .session = 1 };

	memcpy(event.node, NODE, ID_SIZE);
	return event;
}

static void create(const char *tenant, uint32_t priority, uint64_t memory_mib)
{
	struct sandbox_spec *spec = spec_new();
	struct fleet_create create = { .request = ++rig.request,
		.spec = spec,
		.priority = priority,
		.queue_usec = rig.queue_usec };

	memcpy(create.tenant, tenant, strlen(tenant) + 1);
	memcpy(create.pool, rig.pool, strlen(rig.pool) + 1);
	memcpy(spec->template_name, "base", 5);
	memcpy(spec->image_digest, DIGEST, DIGEST_SIZE);
	spec->vcpus = rig.vcpus;
	spec->memory_mib = memory_mib;
	spec->disk_mib = rig.disk_mib;
	feed((struct fleet_event){ .type = FLEET_CREATE, .create = &create });
	spec_unref(spec);
}

static void report(const struct command *command, enum report_state state, uint64_t version)
{
	struct fleet_event event = of_node(FLEET_NODE_REPORT);
	struct sandbox_report report = { .generation = command->generation,
		.version = version,
		.state = state,
		.accepted = true,
		.end_reason = state == REPORT_ENDED ? END_GUEST : END_NONE };

	memcpy(report.sandbox, command->sandbox, ID_SIZE);
	event.report = &report;
	feed(event);
}

/* The oldest that has room lives and ends: its room comes free. Returns whose the next one to start was. */
static char next(void)
{
	struct command command = rig.commands[rig.n_ended++];
	size_t before = rig.n_commands;

	report(&command, REPORT_RUNNING, 1);
	report(&command, REPORT_ENDED, 2);
	return rig.n_commands > before ? rig.commands[before].tenant : '-';
}

static void setup(void)
{
	struct pool_record pool = { .name = POOL, .cpu_overcommit_percent = 400 };
	struct node_record record = { .id = NODE, .machine = NODE, .pool = POOL };
	struct hello hello = { .instance = NODE,
		.machine = NODE,
		.capacity = { 20000, 64, 500000, SLOTS, SLOTS, 4, 0 },
		.boot_id = "boot" };
	struct fleet_event event = of_node(FLEET_NODE_HELLO);
	struct fleet_config config;

	memset(&rig, 0, sizeof(rig));
	rig.queue_usec = 3600 * USEC_PER_SEC;
	rig.vcpus = 1;
	rig.pool = POOL;
	rig.rng = rng_seeded(1);
	rig.now = (struct moment){ 1000 * USEC_PER_SEC, INT64_C(1750000000) * USEC_PER_SEC, 0 };
	fleet_config_default(&config);
	config.epoch = 5;
	config.max_queued = 200;
	record.health.is_proven = true;
	ck_assert_int_eq(fleet_new(&rig.fleet, &config), 0);
	feed((struct fleet_event){ .type = FLEET_LOAD_POOL, .pool = &pool });
	feed((struct fleet_event){ .type = FLEET_LOAD_NODE, .node_record = &record });
	feed((struct fleet_event){ .type = FLEET_LOADED });
	event.hello = &hello;
	feed(event);
	event = of_node(FLEET_NODE_INVENTORY);
	event.inventory = &(struct inventory){ .complete = true, .number = 1 };
	feed(event);
	for (unsigned int i = 0; i < SLOTS; i++)
		create("full", 0, 256);
	ck_assert_uint_eq(rig.n_commands, SLOTS);
}

static void teardown(void)
{
	rig.fleet = fleet_free(rig.fleet);
	fleet_actions_clear(&rig.out);
}

START_TEST(test_no_tenant_starves_another)
{
	unsigned int b = 0, c = 0;

	for (unsigned int i = 0; i < 80; i++)
		create("a", 0, 256);
	create("b", 0, 256);
	create("b", 0, 256);
	create("c", 9, 256); /* a priority takes nothing from others */
	for (unsigned int i = 0; i < 6; i++) {
		char who = next();

		b += who == 'b';
		c += who == 'c';
	}
	ck_assert_uint_eq(b, 2);
	ck_assert_uint_eq(c, 1);
}
END_TEST

START_TEST(test_weights)
{
	unsigned int a = 0, b = 0;

	feed((struct fleet_event){
		.type = FLEET_TENANT_WEIGHT, .weight = { .tenant = "a", .weight = 3 } });
	for (unsigned int i = 0; i < 50; i++) {
		create("a", 0, 256);
		create("b", 0, 256);
	}
	for (unsigned int i = 0; i < 40; i++) {
		char who = next();

		a += who == 'a';
		b += who == 'b';
	}
	ck_assert_uint_eq(a + b, 40);
	ck_assert_uint_ge(a, 29);
	ck_assert_uint_le(a, 31);
}
END_TEST

START_TEST(test_priority_among_ones_own)
{
	create("a", 0, 256);
	create("a", 5, 300);
	create("a", 5, 310);
	create("a", 9, 400);
	(void)next();
	(void)next();
	(void)next();
	(void)next();
	ck_assert_uint_eq(rig.commands[SLOTS].memory_mib, 400);
	ck_assert_uint_eq(rig.commands[SLOTS + 1].memory_mib, 300);
	ck_assert_uint_eq(rig.commands[SLOTS + 2].memory_mib, 310);
	ck_assert_uint_eq(rig.commands[SLOTS + 3].memory_mib, 256);
}
END_TEST

/* Forty tenants whose requests fit nowhere stand in front of one that fits. */
START_TEST(test_what_does_not_fit_holds_up_nobody)
{
	char name[3] = "x0";

	for (unsigned int i = 0; i < 40; i++) {
		name[1] = (char)('0' + i);
		create(name, 0, 30000 + i);
	}
	create("b", 0, 256);
	ck_assert_int_eq(next(), 'b');
}
END_TEST

/* Nor what asks for less of one thing, and for as much of the others, or elsewhere. */
START_TEST(test_what_did_not_fit_speaks_for_what_is_larger_alone)
{
	const struct {
		uint64_t memory_mib, disk_mib;
		uint32_t vcpus;
		const char *pool;
	} large[] = {
		{ 30000, 100, 1, POOL },
		{ 256, 900000, 1, POOL },
		{ 256, 100, 600, POOL },
		{ 256, 100, 1, "other" }, /* which has no node */
	};

	if (_i == 3)
		feed((struct fleet_event){ .type = FLEET_LOAD_POOL,
			.pool = &(struct pool_record){ .name = "other", .cpu_overcommit_percent = 400 } });
	rig.vcpus = large[_i].vcpus;
	rig.disk_mib = large[_i].disk_mib;
	rig.pool = large[_i].pool;
	create("a", 0, large[_i].memory_mib);
	rig.vcpus = 1;
	rig.disk_mib = 100;
	rig.pool = POOL;
	create("a", 0, 256);
	ck_assert_int_eq(next(), 'a');
}
END_TEST

START_TEST(test_nobody_fills_the_queue)
{
	unsigned int refused = 0;

	for (unsigned int i = 0; i < 300; i++) {
		create("a", 0, 256);
		refused += rig.last_code == FAIL_SCHEDULER_BUSY;
	}
	ck_assert_uint_eq(refused, 200);
	create("b", 0, 256);
	ck_assert_int_eq(rig.last_code, FAIL_NONE);
	ck_assert((next() == 'b') != (next() == 'b')); /* one turn each */
}
END_TEST

/* At capacity nothing counts as an attempt, however long it waits. */
START_TEST(test_waiting_costs_no_attempt)
{
	struct sandbox_record record;

	create("a", 0, 256);
	for (unsigned int i = 0; i < 100; i++) {
		struct fleet_event beat = of_node(FLEET_NODE_HEARTBEAT);
		struct heartbeat heartbeat = { .schedulable = true };

		rig.now.mono_usec += USEC_PER_SEC;
		beat.heartbeat = &heartbeat;
		feed(beat);
		feed((struct fleet_event){ .type = FLEET_TICK });
	}
	ck_assert_int_eq(next(), 'a');
	ck_assert_int_eq(
		fleet_sandbox_get(rig.fleet, rig.commands[SLOTS].sandbox, &record, NULL), 0);
	ck_assert_uint_eq(record.attempts, 1);
	sandbox_record_deinit(&record);
}
END_TEST

static void says(enum fail_code code)
{
	struct capacity_report now = { .capacity = { 20000, 64, 500000, SLOTS, SLOTS, 4, 0 } };
	struct fleet_event event = of_node(FLEET_NODE_CAPACITY);

	if (code != FAIL_NONE)
		(void)err_set(&now.unschedulable, code, 0, "It says so.");
	event.capacity = &now;
	feed(event);
}

/* A node that boots its first test VM is waited for, also by who waits for no room; one that cannot is not. */
START_TEST(test_a_first_canary_is_waited_for)
{
	says(FAIL_CANARY_PENDING);
	rig.queue_usec = 0;
	while (rig.n_ended < SLOTS)
		(void)next();
	create("a", 0, 256);
	ck_assert_uint_eq(rig.n_commands, SLOTS);
	ck_assert_int_eq(rig.last_code, FAIL_NONE);
	says(_i == 0 ? FAIL_NONE : FAIL_CANARY_FAILED);
	if (_i == 0) {
		ck_assert_uint_eq(rig.n_commands, SLOTS + 1);
		return;
	}
	create("b", 0, 256);
	ck_assert_uint_eq(rig.n_commands, SLOTS);
	ck_assert_int_eq(rig.last_code, FAIL_NO_COMPATIBLE_NODE);
}
END_TEST

/* ---- room that is about to be free ---- */

static void destroy(const struct command *command)
{
	struct fleet_event event = { .type = FLEET_DESTROY };

	event.destroy.request = ++rig.request;
	event.destroy.sandbox = command->sandbox;
	event.destroy.reason = END_REQUEST;
	feed(event);
}

/* Its node is there, and time passes. */
static void pass(unsigned int seconds)
{
	for (unsigned int i = 0; i < 2 * seconds; i++) {
		struct fleet_event beat = of_node(FLEET_NODE_HEARTBEAT);
		struct heartbeat heartbeat = { .schedulable = true };

		rig.now.mono_usec += USEC_PER_SEC / 2;
		beat.heartbeat = &heartbeat;
		feed(beat);
		feed((struct fleet_event){ .type = FLEET_TICK });
		if (rig.last_code != FAIL_NONE)
			return;
	}
}

/* Whoever kills one and asks for another is not told that there is no room, though it has yet to come free. */
START_TEST(test_what_was_killed_makes_room)
{
	struct sandbox_record record;

	rig.queue_usec = 0;
	create("a", 0, 256);
	ck_assert_int_eq(rig.last_code, FAIL_NO_CAPACITY);
	for (unsigned int i = 0; i < SLOTS; i++)
		report(&rig.commands[i], REPORT_RUNNING, 1);
	destroy(&rig.commands[0]);
	create("a", 0, 256);
	ck_assert_int_eq(rig.last_code, FAIL_NONE);
	create("b", 0, 30000); /* not even then */
	ck_assert_int_eq(rig.last_code, FAIL_NO_CAPACITY);
	rig.disk_mib = 900000;
	create("b", 0, 256);
	ck_assert_int_eq(rig.last_code, FAIL_NO_CAPACITY);
	rig.disk_mib = 0;
	pass(10);
	ck_assert_int_eq(rig.last_code, FAIL_NONE);
	ck_assert_uint_eq(rig.n_commands, SLOTS);
	report(&rig.commands[0], REPORT_ENDED, 2);
	ck_assert_uint_eq(rig.n_commands, SLOTS + 1);
	ck_assert_int_eq(fleet_sandbox_get(rig.fleet, rig.commands[SLOTS].sandbox, &record, NULL), 0);
	ck_assert_uint_eq(record.attempts, 1);
	sandbox_record_deinit(&record);
	create("a", 0, 256); /* nothing more ends */
	ck_assert_int_eq(rig.last_code, FAIL_NO_CAPACITY);
}
END_TEST

START_TEST(test_what_does_not_end_is_not_waited_for_without_end)
{
	int64_t began = rig.now.mono_usec;

	rig.queue_usec = 0;
	for (unsigned int i = 0; i < SLOTS; i++)
		report(&rig.commands[i], REPORT_RUNNING, 1);
	destroy(&rig.commands[0]);
	create("a", 0, 256);
	ck_assert_int_eq(rig.last_code, FAIL_NONE);
	pass(30);
	ck_assert_int_eq(rig.last_code, FAIL_NO_CAPACITY);
	ck_assert_int_ge(rig.now.mono_usec - began, 15 * USEC_PER_SEC);
	ck_assert_int_le(rig.now.mono_usec - began, 16 * USEC_PER_SEC);
	pass(60); /* it is given up: its room may never come */
	create("a", 0, 256);
	ck_assert_int_eq(rig.last_code, FAIL_NO_CAPACITY);
}
END_TEST

/* One that sleeps has given back its memory already: there is no more to wait for. */
START_TEST(test_a_sleeper_that_is_killed_leaves_no_memory)
{
	rig.queue_usec = 0;
	for (unsigned int i = 0; i < SLOTS; i++) {
		report(&rig.commands[i], REPORT_RUNNING, 1);
		report(&rig.commands[i], REPORT_ENDED, 2);
	}
	create("a", 0, 10000);
	report(&rig.commands[SLOTS], REPORT_RUNNING, 1);
	report(&rig.commands[SLOTS], REPORT_PAUSED, 2);
	create("a", 0, 11000); /* of 20000 */
	ck_assert_uint_eq(rig.n_commands, SLOTS + 2);
	report(&rig.commands[SLOTS + 1], REPORT_RUNNING, 1);
	destroy(&rig.commands[SLOTS]);
	create("b", 0, 15000);
	ck_assert_int_eq(rig.last_code, FAIL_NO_CAPACITY);
	destroy(&rig.commands[SLOTS + 1]);
	create("b", 0, 15000);
	ck_assert_int_eq(rig.last_code, FAIL_NONE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fleet-queue");
	TCase *tcase = tcase_create("queue");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_no_tenant_starves_another);
	tcase_add_test(tcase, test_weights);
	tcase_add_test(tcase, test_priority_among_ones_own);
	tcase_add_test(tcase, test_what_does_not_fit_holds_up_nobody);
	tcase_add_loop_test(tcase, test_what_did_not_fit_speaks_for_what_is_larger_alone, 0, 4);
	tcase_add_test(tcase, test_nobody_fills_the_queue);
	tcase_add_test(tcase, test_waiting_costs_no_attempt);
	tcase_add_loop_test(tcase, test_a_first_canary_is_waited_for, 0, 2);
	tcase_add_test(tcase, test_what_was_killed_makes_room);
	tcase_add_test(tcase, test_what_does_not_end_is_not_waited_for_without_end);
	tcase_add_test(tcase, test_a_sleeper_that_is_killed_leaves_no_memory);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
