/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler when memory fails at each point in turn: the fleet never says half a thing, the store commits a batch
 * whole or refuses it.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "fleet/fleet.h"
#include "lib/fault.h"
#include "lib/suite.h"
#include "store/store.h"

#define POOL "pool"
#define NODE "aaaaaaaaaaaaaaaaaaaa"
#define OTHER "bbbbbbbbbbbbbbbbbbbb"
#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

/* ---- the fleet: a sandbox from its create to its end ---- */

struct run {
	struct fleet *fleet;
	struct rng rng;
	struct moment now;
	struct fleet_actions out;
	bool gave_up; /* a step said no_memory: the shell refuses what is held and makes a new fleet */
	char sandbox[ID_SIZE];
	uint64_t generation, version;
	unsigned int created, destroyed, histories;
};

static void look(struct run *run)
{
	for (size_t i = 0; i < run->out.n_sends; i++)
		if (run->out.sends[i].type == SEND_CREATE) {
			run->generation = run->out.sends[i].create.generation;
			memcpy(run->sandbox, run->out.sends[i].create.sandbox, ID_SIZE);
		}
	for (size_t i = 0; i < run->out.n_replies; i++) {
		ck_assert_int_eq(run->out.replies[i].err.code, FAIL_NONE);
		run->created += run->out.replies[i].request == 42;
		run->destroyed += run->out.replies[i].request == 43;
	}
	for (size_t i = 0; i < run->out.n_puts; i++) {
		/* a record that is announced is there */
		if (run->out.puts[i].type == FLEET_PUT_SANDBOX || run->out.puts[i].type == FLEET_PUT_HISTORY)
			ck_assert(run->out.puts[i].sandbox && run->out.puts[i].sandbox->spec);
		run->histories += run->out.puts[i].type == FLEET_PUT_HISTORY;
	}
}

static void feed(struct run *run, struct fleet_event event)
{
	if (run->gave_up)
		return;
	fleet_actions_clear(&run->out);
	fleet_step(run->fleet, run->now, &run->rng, &event, &run->out);
	if (run->out.no_memory) {
		run->gave_up = true;
	} else {
		fault_hold();
		look(run);
		fault_go_on();
	}
}

static struct fleet_event of_node(enum fleet_event_type type)
{
	struct fleet_event event = { .type = type, .session = 5 };

	memcpy(event.node, NODE, ID_SIZE);
	return event;
}

static void report(struct run *run, enum report_state state)
{
	struct stage_record stage = { .stage = STAGE_ACCEPT, .outcome = RESULT_OK };
	struct sandbox_report report = { .generation = run->generation, .state = state, .accepted = true,
		.version = ++run->version, .stages = &stage, .n_stages = 1, .end_reason = END_REQUEST };
	struct fleet_event event = of_node(FLEET_NODE_REPORT);

	memcpy(report.sandbox, run->sandbox, ID_SIZE);
	event.report = &report;
	feed(run, event);
}

static void prepare(struct run *run)
{
	struct pool_record pool = { .name = POOL, .cpu_overcommit_percent = 400 };
	struct node_record node = { .id = NODE, .machine = NODE, .pool = POOL };
	struct hello hello = { .instance = NODE, .machine = NODE, .boot_id = "boot",
		.capacity = { 8000, 8, 50000, 10, 4, 4, 0 } };
	struct fleet_event event = of_node(FLEET_NODE_HELLO);
	struct fleet_config config;

	fleet_config_default(&config);
	config.epoch = 5;
	ck_assert_int_eq(fleet_new(&run->fleet, &config), 0);
	feed(run, (struct fleet_event){ .type = FLEET_LOAD_POOL, .pool = &pool });
	feed(run, (struct fleet_event){ .type = FLEET_LOAD_NODE, .node_record = &node });
	feed(run, (struct fleet_event){ .type = FLEET_LOADED });
	event.hello = &hello;
	feed(run, event);
	event = of_node(FLEET_NODE_INVENTORY);
	event.inventory = &(struct inventory){ .complete = true, .number = 1 };
	feed(run, event);
}

static void life(struct run *run, struct sandbox_spec *spec)
{
	struct sandbox_field metadata[] = { { .key = (char[]){ "k" }, .value = (char[]){ "v" } } };
	struct fleet_create create = { .request = 42, .tenant = "tenant", .pool = POOL, .spec = spec,
		.metadata = metadata, .n_metadata = 1 };
	struct fleet_event event = { .type = FLEET_CREATE, .create = &create };

	feed(run, event);
	feed(run, (struct fleet_event){ .type = FLEET_COMMITTED, .commit = { .batch = run->out.batch } });
	report(run, REPORT_STARTING);
	report(run, REPORT_RUNNING);
	event = (struct fleet_event){ .type = FLEET_DESTROY };
	event.destroy.request = 43;
	event.destroy.sandbox = run->sandbox;
	event.destroy.reason = END_REQUEST;
	feed(run, event);
	report(run, REPORT_ENDED);
}

START_TEST(the_fleet_says_when_it_lost_something)
{
	unsigned long k;

	for (k = 1;; k++) {
		struct run run = { .rng = rng_seeded(3), .now = { .mono_usec = USEC_PER_SEC, .real_usec = USEC_PER_SEC } };
		struct sandbox_spec *spec = spec_new();
		bool failed;

		ck_assert_ptr_nonnull(spec);
		memcpy(spec->template_name, "base", 5);
		memcpy(spec->image_digest, DIGEST, DIGEST_SIZE);
		spec->vcpus = 1;
		spec->memory_mib = 100;
		prepare(&run);
		fault_arm(FAULT_MEMORY, k);
		life(&run, spec);
		failed = fault_disarm();
		if (!run.gave_up) { /* then nobody missed anything */
			ck_assert_uint_eq(run.created, 1);
			ck_assert_uint_eq(run.destroyed, 1);
			ck_assert_uint_eq(run.histories, 1);
		}
		ck_assert(failed || !run.gave_up);
		fleet_actions_clear(&run.out);
		fleet_free(run.fleet);
		spec_unref(spec);
		if (!failed)
			break;
	}
	ck_assert_uint_gt(k, 50);
}
END_TEST

/* ---- the store ---- */

static char dir[64];

static void setup(void)
{
	(void)snprintf(dir, sizeof(dir), "%s/croft-fault.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void)
{
	ck_assert_int_eq(dir_remove(dir), 0);
}

static bool count(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	(void)revision;
	fault_hold();
	ck_assert(key[0] == 'k' && size == 5 && !memcmp(value, "value", 5));
	fault_go_on();
	++*(unsigned int *)user;
	return true;
}

/* Two records in one batch: both are there or none. */
START_TEST(a_batch_is_all_or_nothing)
{
	static const struct store_op ops[] = {
		{ .kind = STORE_PUT, .key = "k/1", .value = "value", .size = 5, .expect = STORE_ANY },
		{ .kind = STORE_PUT, .key = "k/2", .value = "value", .size = 5, .expect = STORE_ANY },
	};
	static const unsigned int kinds[] = { FAULT_MEMORY, FAULT_FILE };
	struct store_config config = { .dir = dir, .may_create = true };

	for (unsigned long k = 1;; k++) {
		struct store *store = NULL;
		struct err err = ERR_NULL;
		unsigned int n = 0;
		bool failed;
		int r;

		fault_arm(kinds[_i], k);
		r = store_open(&store, NULL, &config, &err);
		if (r == 0)
			r = store_commit_wait(store, ops, ARRAY_LEN(ops), &err);
		failed = fault_disarm();
		ck_assert(r == 0 || (failed && err_is_set(&err)));
		store_close(store);
		store = NULL;
		err = (struct err)ERR_NULL;
		ck_assert_msg(store_open(&store, NULL, &config, &err) == 0, "afterwards (k %lu): %s", k, err.msg);
		ck_assert_int_eq(store_load(store, "k/", count, &n, &err), 0);
		ck_assert_uint_eq(n, r == 0 ? 2 : 0);
		store_close(store);
		ck_assert_int_eq(dir_remove(dir), 0);
		ck_assert_int_eq(dir_make(dir, 0700), 0);
		if (!failed)
			break;
	}
}
END_TEST

START_TEST(loading_fails_cleanly)
{
	static const struct store_op op = { .kind = STORE_PUT, .key = "k/1", .value = "value", .size = 5,
		.expect = STORE_ANY };
	struct store_config config = { .dir = dir, .may_create = true };
	struct err err = ERR_NULL;
	struct store *store;

	ck_assert_int_eq(store_open(&store, NULL, &config, &err), 0);
	ck_assert_int_eq(store_commit_wait(store, &op, 1, &err), 0);
	for (unsigned long k = 1;; k++) {
		unsigned int n = 0;
		int r;

		fault_arm(FAULT_MEMORY, k);
		r = store_load(store, "k/", count, &n, &err);
		if (!fault_disarm()) {
			ck_assert_int_eq(r, 0);
			ck_assert_uint_eq(n, 1);
			break;
		}
		ck_assert(r < 0 ? err_is_set(&err) : n == 1);
		err = (struct err)ERR_NULL;
	}
	store_close(store);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault-scheduler");
	TCase *fleet = tcase_create("fleet"), *store = tcase_create("store");

	tcase_set_timeout(fleet, 120);
	tcase_add_test(fleet, the_fleet_says_when_it_lost_something);
	suite_add_tcase(suite, fleet);
	tcase_add_checked_fixture(store, setup, teardown);
	tcase_set_timeout(store, 120);
	tcase_add_loop_test(store, a_batch_is_all_or_nothing, 0, 2);
	tcase_add_test(store, loading_fails_cleanly);
	suite_add_tcase(suite, store);
	return suite_run(suite);
}
