/* SPDX-License-Identifier: Apache-2.0
 *
 * Lifecycle in the fleet: facts against a flapping link, drains, replacement of what ran on a lost node with its
 * leases, brakes and fencing, and when a quota comes free.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "fleet/fleet.h"
#include "lib/suite.h"

#define POOL "pool"
#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define N_NODES 4
#define LEASE_MS 40000

struct rig {
	struct fleet *fleet;
	struct rng rng;
	struct moment now;
	struct fleet_actions out;
	struct pool_record pool;
	struct sandbox_record saved;
	bool has_saved;
	struct node_record node_records[N_NODES];
	char id[ID_SIZE], node[ID_SIZE];
	uint64_t generation, version, number;
	uint32_t lease_ms; /* that the nodes say */
	bool silent[N_NODES];
	/* counted over a call of pass() */
	unsigned int n_creates, n_destroys, n_leases, n_replies;
	struct destroy_command last_destroy;
	char last_destroy_node[ID_SIZE];
};

static struct rig rig;

static const char *node_id(int i)
{
	static const char ids[N_NODES][ID_SIZE] = { "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb",
		"cccccccccccccccccccc", "dddddddddddddddddddd" };

	return ids[i];
}

static void keep(void)
{
	for (size_t i = 0; i < rig.out.n_puts; i++) {
		const struct fleet_put *put = &rig.out.puts[i];

		if (put->type == FLEET_PUT_NODE) {
			int k = put->id[0] - 'a';

			node_record_deinit(&rig.node_records[k]);
			ck_assert_int_eq(node_record_copy(put->node, &rig.node_records[k]), 0);
		}
		if (put->type != FLEET_PUT_SANDBOX && put->type != FLEET_PUT_HISTORY)
			continue;
		if (rig.has_saved)
			sandbox_record_deinit(&rig.saved);
		ck_assert_int_eq(sandbox_record_copy(put->sandbox, &rig.saved), 0);
		rig.has_saved = true;
		memcpy(rig.id, put->id, ID_SIZE);
	}
	for (size_t i = 0; i < rig.out.n_sends; i++) {
		const struct fleet_send *send = &rig.out.sends[i];

		if (send->type == SEND_CREATE) {
			memcpy(rig.node, send->node, ID_SIZE);
			rig.generation = send->create.generation;
			rig.n_creates++;
		} else if (send->type == SEND_DESTROY) {
			rig.n_destroys++;
			rig.last_destroy = send->destroy;
			memcpy(rig.last_destroy_node, send->node, ID_SIZE);
		}
		rig.n_leases += send->type == SEND_LEASE;
	}
	rig.n_replies += (unsigned int)rig.out.n_replies;
}

static void feed(struct fleet_event event)
{
	fleet_actions_clear(&rig.out);
	fleet_step(rig.fleet, rig.now, &rig.rng, &event, &rig.out);
	ck_assert(!rig.out.no_memory);
	keep();
}

static struct fleet_event of_node(enum fleet_event_type type, const char *node)
{
	struct fleet_event event = { .type = type };

	memcpy(event.node, node, ID_SIZE);
	event.session = (uint64_t)node[0];
	return event;
}

/* Seconds go by while those that are not silent call. */
static void pass(int seconds)
{
	for (int s = 0; s < seconds; s++) {
		rig.now.mono_usec += USEC_PER_SEC;
		rig.now.real_usec += USEC_PER_SEC;
		for (int i = 0; i < N_NODES; i++) {
			struct heartbeat heartbeat = { .schedulable = true,
				.number = ++rig.number,
				.lease_ms = rig.lease_ms };
			struct fleet_event event = of_node(FLEET_NODE_HEARTBEAT, node_id(i));

			event.heartbeat = &heartbeat;
			if (!rig.silent[i])
				feed(event);
		}
		feed((struct fleet_event){ .type = FLEET_TICK });
	}
}

static void greet_as(int i, const char *cpu_class)
{
	struct hello hello = { .capacity = { 8000, 8, 50000, 10, 4, 4, 0 }, .boot_id = "boot" };
	struct fleet_event event = of_node(FLEET_NODE_HELLO, node_id(i));

	memcpy(hello.instance, node_id(i), ID_SIZE);
	memcpy(hello.machine, node_id(i), ID_SIZE);
	(void)snprintf(hello.cpu_class, sizeof(hello.cpu_class), "%s", cpu_class);
	event.hello = &hello;
	feed(event);
}

static void greet(int i)
{
	greet_as(i, "");
}

/* It says that nothing is there: from then on it is placed on. */
static void say_empty(int i)
{
	struct fleet_event event = of_node(FLEET_NODE_INVENTORY, node_id(i));

	event.inventory = &(struct inventory){ .complete = true, .number = 1 };
	feed(event);
}

static void start_fleet(void)
{
	struct fleet_config config;

	fleet_config_default(&config);
	config.epoch = 5;
	config.grace_usec = 0;
	ck_assert_int_eq(fleet_new(&rig.fleet, &config), 0);
	feed((struct fleet_event){ .type = FLEET_LOAD_POOL, .pool = &rig.pool });
	for (int i = 0; i < N_NODES; i++) {
		struct node_record record = { .id = "" };

		ck_assert_int_eq(node_record_copy(&rig.node_records[i], &record), 0);
		feed((struct fleet_event){ .type = FLEET_LOAD_NODE, .node_record = &record });
		node_record_deinit(&record);
	}
	if (rig.has_saved && rig.saved.ended_us == 0) {
		struct sandbox_record copy;

		ck_assert_int_eq(sandbox_record_copy(&rig.saved, &copy), 0);
		feed((struct fleet_event){ .type = FLEET_LOAD_SANDBOX, .sandbox_record = &copy });
		sandbox_record_deinit(&copy);
	}
	feed((struct fleet_event){ .type = FLEET_LOADED });
}

static void restart(void)
{
	rig.fleet = fleet_free(rig.fleet);
	start_fleet();
}

static void setup(void)
{
	memset(&rig, 0, sizeof(rig));
	rig.rng = rng_seeded(11);
	rig.now = (struct moment){ 1000 * USEC_PER_SEC, 5000 * USEC_PER_SEC, 0 };
	rig.pool = (struct pool_record){ .name = POOL, .cpu_overcommit_percent = 400 };
	for (int i = 0; i < N_NODES; i++) {
		struct node_record *record = &rig.node_records[i];

		memcpy(record->id, node_id(i), ID_SIZE);
		memcpy(record->machine, node_id(i), ID_SIZE);
		(void)snprintf(record->pool, sizeof(record->pool), POOL);
	}
	start_fleet();
	for (int i = 0; i < N_NODES; i++) {
		greet(i);
		say_empty(i);
	}
}

static void teardown(void)
{
	fleet_actions_clear(&rig.out);
	if (rig.has_saved)
		sandbox_record_deinit(&rig.saved);
	for (int i = 0; i < N_NODES; i++)
		node_record_deinit(&rig.node_records[i]);
	rig.fleet = fleet_free(rig.fleet);
}

static void create_on(struct fleet_quota quota, const char *cpu_class)
{
	CLEANUP(spec_unrefp) struct sandbox_spec *spec = spec_new();
	struct fleet_create create = { .request = 42, .tenant = "tenant", .pool = POOL, .spec = spec };

	memcpy(spec->template_name, "base", 5);
	memcpy(spec->image_digest, DIGEST, DIGEST_SIZE);
	spec->vcpus = 1;
	spec->memory_mib = 1000;
	spec->disk_mib = 100;
	create.quota = quota;
	(void)snprintf(create.wish.cpu_class, sizeof(create.wish.cpu_class), "%s", cpu_class);
	trace_new(&rig.rng, &create.trace);
	create.began_us = rig.now.real_usec;
	feed((struct fleet_event){ .type = FLEET_CREATE, .create = &create });
}

static void create_with(struct fleet_quota quota)
{
	create_on(quota, "");
}

static void report_of(const char *node, uint64_t generation, enum report_state state, enum fail_code code)
{
	struct fleet_event event = of_node(FLEET_NODE_REPORT, node);
	struct sandbox_report report = { .generation = generation, .state = state, .accepted = true };

	memcpy(report.sandbox, rig.id, ID_SIZE);
	report.version = ++rig.version;
	if (code != FAIL_NONE) {
		(void)err_set(&report.failure, code, 0, "It failed.");
		report.end_reason = END_FAILED;
	}
	event.report = &report;
	feed(event);
}

static void report(enum report_state state)
{
	report_of(rig.node, rig.generation, state, FAIL_NONE);
}

static void run_one(void)
{
	create_with((struct fleet_quota){ .sandboxes = 0 });
	report(REPORT_STARTING);
	report(REPORT_RUNNING);
}

static enum sandbox_state state(void)
{
	struct fleet_sandbox_view view;

	return fleet_sandbox_get(rig.fleet, rig.id, NULL, &view) == 0 ? view.internal
								      : SANDBOX_ENDED;
}

static int index_of(const char *node)
{
	return node[0] - 'a';
}

static void set_fact(int i, enum node_fact fact, bool set, int64_t until_us)
{
	struct fleet_event event = of_node(FLEET_NODE_FACT, node_id(i));

	event.fact.fact = fact;
	event.fact.set = set;
	event.fact.who = "somebody";
	event.fact.why = "a reason";
	event.fact.until_us = until_us;
	feed(event);
}

static const struct sandbox_event *last_event(void)
{
	ck_assert_uint_gt(rig.saved.n_events, 0);
	return &rig.saved.events[rig.saved.n_events - 1];
}

/* ---- facts and the link ---- */

/* Every set of facts, against every order of three things that happen to a link. */
START_TEST(test_no_fact_follows_the_link)
{
	struct fleet_node_view before, after;
	struct node_fact_entry facts[NODE_FACT_MAX_];

	for (int i = 0; i < NODE_FACT_MAX_; i++)
		if (_i & (1 << i))
			set_fact(0, (enum node_fact)i, true, 0);
	ck_assert_int_eq(fleet_node_get(rig.fleet, node_id(0), &before), 0);
	memcpy(facts, before.record->facts, sizeof(facts));
	for (int order = 0; order < 5 * 5 * 5; order++)
		for (int step = 0, rest = order; step < 3; step++, rest /= 5) {
			switch (rest % 5) {
			case 0:
				feed(of_node(FLEET_NODE_DISCONNECTED, node_id(0)));
				break;
			case 1: /* suspect */
				rig.silent[0] = true;
				pass(5);
				break;
			case 2: /* lost */
				rig.silent[0] = true;
				pass(70);
				break;
			case 3:
				rig.silent[0] = false;
				greet(0);
				break;
			case 4:
				restart();
				break;
			}
			ck_assert_int_eq(fleet_node_get(rig.fleet, node_id(0), &after), 0);
			ck_assert_int_eq(memcmp(facts, after.record->facts, sizeof(facts)), 0);
			ck_assert(!after.schedulable || _i == 0);
		}
}
END_TEST

/* ---- drain ---- */
START_TEST(test_drain_says_waits_and_ends)
{
	int64_t deadline = rig.now.real_usec + 600 * USEC_PER_SEC;
	int drained;

	run_one();
	drained = index_of(rig.node);
	set_fact(drained, NODE_DRAINING, true, deadline);
	ck_assert_str_eq(last_event()->name, "NODE_DRAIN"); /* at once */
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
	pass(300);
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
	restart(); /* the deadline is on record */
	for (int i = 0; i < N_NODES; i++) {
		greet(i);
		if (i != drained)
			say_empty(i);
	}
	pass(299);
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
	pass(2);
	ck_assert_int_eq(state(), SANDBOX_STOPPING);
	report_of(rig.node, rig.generation, REPORT_ENDED, FAIL_NONE);
	ck_assert_int_eq(rig.saved.end_reason, END_DRAINED);
	ck_assert_int_eq(rig.saved.failure.code, FAIL_NODE_DRAINED);
	for (int i = 0; i < 12; i++) { /* nothing more goes there, even when there is no other room */
		run_one();
		ck_assert_int_ne(index_of(rig.node), drained);
	}
}
END_TEST

/* Without a deadline nothing that is there is ended, over a restart too. */
START_TEST(test_a_drain_without_a_deadline_ends_nothing)
{
	int drained;

	run_one();
	drained = index_of(rig.node);
	set_fact(drained, NODE_DRAINING, true, 0);
	pass(300);
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
	restart();
	for (int i = 0; i < N_NODES; i++) {
		greet(i);
		if (i != drained)
			say_empty(i);
	}
	pass(300);
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
}
END_TEST

START_TEST(test_drain_moves_a_start)
{
	char first[ID_SIZE];

	create_with((struct fleet_quota){ .sandboxes = 0 });
	report(REPORT_STARTING);
	memcpy(first, rig.node, ID_SIZE);
	set_fact(index_of(first), NODE_DRAINING, true, rig.now.real_usec + 5 * USEC_PER_SEC);
	pass(6);
	ck_assert_int_eq(state(), SANDBOX_RECALL);
	report_of(first, rig.generation, REPORT_ENDED, FAIL_NONE);
	ck_assert_int_eq(state(), SANDBOX_DISPATCHED);
	ck_assert_str_ne(rig.node, first);
	ck_assert_uint_eq(rig.saved.attempts, 1); /* and it cost no attempt */
}
END_TEST

START_TEST(test_drain_is_taken_back)
{
	run_one();
	set_fact(index_of(rig.node), NODE_DRAINING, true, rig.now.real_usec + 60 * USEC_PER_SEC);
	pass(30);
	set_fact(index_of(rig.node), NODE_DRAINING, false, 0);
	pass(120);
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
}
END_TEST

/* ---- replacement ---- */
static void on_loss(void)
{
	rig.pool.replace_on_loss = true;
	rig.pool.lost_after_usec = 60 * USEC_PER_SEC;
	rig.pool.self_stop_after_usec = LEASE_MS * USEC_PER_MSEC;
	feed((struct fleet_event){ .type = FLEET_LOAD_POOL, .pool = &rig.pool });
	rig.lease_ms = LEASE_MS;
	pass(2);
}

START_TEST(test_never_replaced_by_default) /* R013 */
{
	struct fleet_sandbox_view view;
	struct sandbox_record record;
	uint64_t generation;

	rig.lease_ms = LEASE_MS;
	run_one();
	generation = rig.generation;
	rig.silent[index_of(rig.node)] = true;
	pass(600);
	ck_assert_int_eq(fleet_sandbox_get(rig.fleet, rig.id, &record, &view), 0);
	ck_assert_int_eq(view.internal, SANDBOX_RUNNING);
	ck_assert_int_eq(view.node_link, NODE_LOST);
	ck_assert(!view.certain && view.as_of_us > 0);
	ck_assert_uint_eq(record.incarnation, 1);
	ck_assert_uint_eq(rig.generation, generation);
	sandbox_record_deinit(&record);
	/* R014: it died meanwhile; the cause is kept */
	report_of(rig.node, generation, REPORT_ENDED, FAIL_VM_VANISHED);
	ck_assert_int_eq(state(), SANDBOX_ENDED);
	ck_assert_int_eq(rig.saved.failure.code, FAIL_VM_VANISHED);
}
END_TEST

/* R011: of 90 s that a node is cut off, where its pool waits for 300, nobody notices more than that nothing is placed there. */
START_TEST(test_a_short_cut_disturbs_nothing)
{
	bool was[NODE_LINK_MAX_] = { false };
	struct fleet_node_view view;
	uint64_t generation;

	rig.pool.lost_after_usec = 300 * USEC_PER_SEC;
	feed((struct fleet_event){ .type = FLEET_LOAD_POOL, .pool = &rig.pool });
	run_one();
	generation = rig.generation;
	rig.silent[index_of(rig.node)] = true;
	for (int second = 0; second < 100; second++) {
		if (second == 90)
			rig.silent[index_of(rig.node)] = false;
		pass(1);
		ck_assert_int_eq(fleet_node_get(rig.fleet, rig.node, &view), 0);
		was[view.link] = true;
	}
	ck_assert_int_eq(view.link, NODE_READY);
	ck_assert(was[NODE_SUSPECT] && !was[NODE_LOST] && !was[NODE_JOINING] && !was[NODE_REMOVED]);
	report_of(rig.node, generation, REPORT_RUNNING, FAIL_NONE);
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
	ck_assert_uint_eq(rig.generation, generation);
	ck_assert_uint_eq(rig.n_creates, 1);
	ck_assert_uint_eq(rig.n_destroys, 0);
}
END_TEST

START_TEST(test_replaced_on_loss)
{
	char first[ID_SIZE], id[ID_SIZE];
	uint64_t generation;
	int64_t silent_from;

	on_loss();
	ck_assert_uint_gt(rig.n_leases, 0);
	run_one();
	memcpy(first, rig.node, ID_SIZE);
	memcpy(id, rig.id, ID_SIZE);
	generation = rig.generation;
	rig.silent[index_of(first)] = true;
	silent_from = rig.now.mono_usec;
	while (rig.n_creates == 1)
		pass(1);
	/* its VM had stopped itself ten seconds and more ago */
	ck_assert_int_ge(
		rig.now.mono_usec - silent_from, LEASE_MS * USEC_PER_MSEC + 10 * USEC_PER_SEC);
	ck_assert_str_eq(rig.id, id);
	ck_assert_str_ne(rig.node, first);
	ck_assert_uint_gt(rig.generation, generation);
	ck_assert_uint_eq(rig.saved.incarnation, 2);
	ck_assert_str_eq(last_event()->name, "REPLACED");
	ck_assert_str_eq(last_event()->node, first);
	report(REPORT_STARTING);
	report(REPORT_RUNNING);
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
	/* the first one comes back and still has it: fenced, at once */
	rig.silent[index_of(first)] = false;
	greet(index_of(first));
	rig.n_destroys = 0;
	report_of(first, generation, REPORT_RUNNING, FAIL_NONE);
	ck_assert_uint_eq(rig.n_destroys, 1);
	ck_assert_str_eq(rig.last_destroy_node, first);
	ck_assert_uint_eq(rig.last_destroy.generation, generation);
	ck_assert_int_eq(rig.last_destroy.reason, END_SUPERSEDED);
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
}
END_TEST

/* A node that never said that its VMs are armed is not doubled, whatever the pool says. */
START_TEST(test_not_replaced_without_leases)
{
	on_loss();
	rig.lease_ms = _i ? LEASE_MS + 15000 : 0; /* none; one that is too long */
	pass(2);
	run_one();
	rig.silent[index_of(rig.node)] = true;
	pass(600);
	ck_assert_uint_eq(rig.n_creates, 1);
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
}
END_TEST

/* What was granted last counts, whether the node was heard of after it or not. */
START_TEST(test_a_grant_may_be_the_last_word)
{
	on_loss();
	run_one();
	rig.lease_ms = LEASE_MS;
	rig.pool.self_stop_after_usec = 2 * LEASE_MS * USEC_PER_MSEC;
	if (_i == 1) { /* leases end: its VMs are not armed any more, though it never says so */
		rig.pool.replace_on_loss = false;
	}
	feed((struct fleet_event){ .type = FLEET_LOAD_POOL, .pool = &rig.pool });
	pass(2);
	rig.silent[index_of(rig.node)] = true;
	/* back to what it was; the node never hears of it */
	rig.pool.replace_on_loss = true;
	rig.pool.self_stop_after_usec = LEASE_MS * USEC_PER_MSEC;
	feed((struct fleet_event){ .type = FLEET_LOAD_POOL, .pool = &rig.pool });
	pass(600);
	ck_assert_uint_eq(rig.n_creates, 1);
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
}
END_TEST

/* One sandbox on each node: three of four nodes go. */
START_TEST(test_brakes)
{
	struct fleet_counts counts;
	int64_t first = 0;

	on_loss();
	for (int i = 0; i < 24; i++) /* spread over all */
		run_one();
	for (int i = 0; i < N_NODES - 1; i++)
		rig.silent[i] = true;
	while (first == 0) {
		pass(1);
		fleet_count(rig.fleet, &counts);
		first = counts.replaced ? rig.now.mono_usec : 0;
	}
	pass(8); /* 0.1 nodes a second */
	{
		uint64_t of_one = counts.replaced;

		fleet_count(rig.fleet, &counts);
		ck_assert_uint_eq(counts.replaced, of_one);
		pass(60);
		fleet_count(rig.fleet, &counts);
		ck_assert_uint_gt(counts.replaced, of_one);
	}
}
END_TEST

START_TEST(test_nothing_is_replaced_when_all_are_gone)
{
	struct fleet_counts counts;

	on_loss();
	for (int i = 0; i < 8; i++)
		run_one();
	for (int i = 0; i < N_NODES; i++)
		rig.silent[i] = true;
	pass(900);
	fleet_count(rig.fleet, &counts);
	ck_assert_uint_eq(counts.replaced, 0);
	ck_assert_uint_eq(counts.nodes[NODE_LOST], N_NODES);
}
END_TEST

/* ---- quota (R038) ---- */
START_TEST(test_quota_is_free_when_fenced)
{
	const struct fleet_quota one = { .sandboxes = 1 };
	struct fleet_event event = { .type = FLEET_DESTROY };
	char id[ID_SIZE];

	create_with(one);
	report(REPORT_RUNNING);
	memcpy(id, rig.id, ID_SIZE);
	create_with(one);
	ck_assert_int_eq(rig.out.replies[0].err.code, FAIL_QUOTA_EXCEEDED);
	rig.silent[index_of(rig.node)] = true;
	pass(5);
	event.destroy.request = 43;
	event.destroy.sandbox = id;
	event.destroy.reason = END_REQUEST;
	feed(event);
	create_with(one); /* its node may still run it */
	ck_assert_int_eq(rig.out.replies[0].err.code, FAIL_QUOTA_EXCEEDED);
	pass(61);
	ck_assert_int_eq(state(), SANDBOX_FENCED);
	create_with(one);
	ck_assert_uint_eq(rig.out.n_replies, 0);
	ck_assert_str_ne(rig.id, id);
}
END_TEST

/* All of a sandbox's quota comes back with its end. */
START_TEST(test_an_end_gives_back_the_whole_quota)
{
	const struct fleet_quota one = { .sandboxes = 1, .vcpus = 1, .memory_mib = 1000 };
	struct fleet_quota used;

	for (int i = 0; i < 2; i++) {
		create_with(one);
		ck_assert_uint_eq(rig.out.n_replies, 0);
		report(REPORT_RUNNING);
		fleet_quota_used(rig.fleet, "tenant", &used);
		ck_assert_uint_eq(used.vcpus, 1);
		report(REPORT_ENDED);
		fleet_quota_used(rig.fleet, "tenant", &used);
		ck_assert(used.sandboxes == 0 && used.vcpus == 0 && used.memory_mib == 0);
	}
}
END_TEST

/* A quota that was lowered below what is used lets nothing more in. */
START_TEST(test_a_lowered_quota)
{
	const struct fleet_quota two = { .sandboxes = 2, .vcpus = 2, .memory_mib = 2000 };
	const struct fleet_quota lowered[] = { { .sandboxes = 1 }, { .vcpus = 1 }, { .memory_mib = 1000 } };

	for (int i = 0; i < 2; i++) {
		create_with(two);
		report(REPORT_RUNNING);
	}
	create_with(lowered[_i]);
	ck_assert_uint_eq(rig.out.n_replies, 1);
	ck_assert_int_eq(rig.out.replies[0].err.code, FAIL_QUOTA_EXCEEDED);
}
END_TEST

/* So many starts a minute: each is given back when its part of the minute is over, and no earlier. */
START_TEST(test_starts_come_back_with_time)
{
	const struct fleet_quota two = { .starts_per_minute = 2 };

	for (int i = 0; i < 2; i++)
		create_with(two);
	create_with(two);
	ck_assert_int_eq(rig.out.replies[0].err.code, FAIL_QUOTA_EXCEEDED);
	ck_assert_str_eq(err_field(&rig.out.replies[0].err, "limit"), "2");
	pass(28);
	create_with(two);
	ck_assert_int_eq(rig.out.replies[0].err.code, FAIL_QUOTA_EXCEEDED);
	pass(4);
	create_with(two);
	ck_assert_uint_eq(rig.out.n_replies, 0);
}
END_TEST

/* ---- a restore ---- */
#define OLD 10 /* in the backup, deleted after it */
#define NEW 50 /* made after it */

static void name_of(int i, char ret[static ID_SIZE])
{
	(void)snprintf(ret, ID_SIZE, "sandbox%c%caaaaaaaaaaa", 'a' + i / 26, 'a' + i % 26);
}

/* What node 0 holds: the new ones, in parts. */
static void tell_inventory(uint64_t number, struct sandbox_spec *spec)
{
	struct sandbox_report reports[20];

	for (int part = 0; part * 20 < NEW; part++) {
		struct inventory inventory = { .number = number,
			.part = (uint32_t)part,
			.sandboxes = reports,
			.complete = (part + 1) * 20 >= NEW };
		struct fleet_event event = of_node(FLEET_NODE_INVENTORY, node_id(0));

		memset(reports, 0, sizeof(reports));
		for (int i = part * 20; i < NEW && i < (part + 1) * 20; i++) {
			struct sandbox_report *one = &reports[inventory.n++];

			name_of(OLD + i, one->sandbox);
			one->generation = 3;
			one->version = 7;
			one->state = REPORT_RUNNING;
			one->accepted = true;
			one->spec = spec;
		}
		event.inventory = &inventory;
		feed(event);
		ck_assert_uint_eq(rig.n_destroys, 0);
	}
}

static size_t count_running(void)
{
	char ids[NEW + OLD][ID_SIZE];
	size_t n = fleet_sandbox_list(rig.fleet, "tenant", "", 0, ids, ARRAY_LEN(ids)), running = 0;

	for (size_t i = 0; i < n; i++) {
		struct fleet_sandbox_view view;

		ck_assert_int_eq(fleet_sandbox_get(rig.fleet, ids[i], NULL, &view), 0);
		running += view.internal == SANDBOX_RUNNING;
	}
	return running;
}

/* A fleet on a new lineage that is yet to be told of sandboxes; `spec` is filled in. */
static void begin_restored(struct sandbox_spec *spec)
{
	struct fleet_config config;

	memcpy(spec->template_name, "base", 5);
	memcpy(spec->image_digest, DIGEST, DIGEST_SIZE);
	memcpy(spec->tenant, "tenant", 7);
	spec->vcpus = 1;
	spec->memory_mib = 100;
	spec->disk_mib = 100;
	rig.fleet = fleet_free(rig.fleet);
	fleet_config_default(&config);
	(void)snprintf(config.lineage, sizeof(config.lineage), "after");
	ck_assert_int_eq(fleet_new(&rig.fleet, &config), 0);
	feed((struct fleet_event){ .type = FLEET_LOAD_POOL, .pool = &rig.pool });
	(void)snprintf(rig.node_records[0].lineage, ID_SIZE, "before");
	feed((struct fleet_event){ .type = FLEET_LOAD_NODE, .node_record = &rig.node_records[0] });
}

/* Backed up with 10, then 50 made and the 10 deleted, then restored: 50 live, none doubled, none of the 10 is back. */
START_TEST(test_restore)
{
	CLEANUP(spec_unrefp) struct sandbox_spec *spec = spec_new();
	struct fleet_counts counts;
	size_t ended = 0;

	begin_restored(spec);
	for (int i = 0; i < OLD; i++) {
		struct sandbox_record record = { .generation = 1, .incarnation = 1, .state = SANDBOX_RUNNING,
			.spec = spec, .tenant = "tenant", .pool = POOL };

		name_of(i, record.id);
		memcpy(record.node, node_id(0), ID_SIZE);
		feed((struct fleet_event){ .type = FLEET_LOAD_SANDBOX, .sandbox_record = &record });
	}
	feed((struct fleet_event){ .type = FLEET_LOADED });
	greet(0);
	tell_inventory(1, spec);
	for (size_t i = 0; i < rig.out.n_puts; i++)
		ended += rig.out.puts[i].type == FLEET_PUT_HISTORY &&
			 rig.out.puts[i].sandbox->failure.code == FAIL_VM_VANISHED;
	ck_assert_uint_eq(ended, OLD);
	ck_assert_uint_eq(count_running(), NEW);
	fleet_count(rig.fleet, &counts);
	ck_assert_uint_eq(counts.recovered, NEW);
	ck_assert_str_eq(rig.node_records[0].lineage, "after"); /* once */
	tell_inventory(2, spec);
	fleet_count(rig.fleet, &counts);
	ck_assert_uint_eq(counts.recovered, NEW);
	ck_assert_uint_eq(count_running(), NEW);
	ck_assert_uint_eq(rig.n_creates, 0);
}
END_TEST

/* What was on its way when it was adopted does not stay so for ever, whatever its node says of it. */
START_TEST(test_what_was_adopted_has_a_deadline)
{
	CLEANUP(spec_unrefp) struct sandbox_spec *spec = spec_new();
	struct sandbox_report report = { .generation = 3, .version = 7, .accepted = true, .spec = spec,
		.state = _i ? REPORT_STOPPING : REPORT_STARTING };
	struct inventory inventory = { .number = 1, .complete = true, .sandboxes = &report, .n = 1 };
	const enum sandbox_state first = _i ? SANDBOX_STOPPING : SANDBOX_STARTING;
	struct fleet_event event = of_node(FLEET_NODE_INVENTORY, node_id(0));
	struct fleet_sandbox_view view;

	begin_restored(spec);
	feed((struct fleet_event){ .type = FLEET_LOADED });
	greet(0);
	name_of(0, report.sandbox);
	event.inventory = &inventory;
	feed(event);
	ck_assert_int_eq(fleet_sandbox_get(rig.fleet, report.sandbox, NULL, &view), 0);
	ck_assert_int_eq(view.internal, first);
	pass(400);
	ck_assert(fleet_sandbox_get(rig.fleet, report.sandbox, NULL, &view) < 0 || view.internal != first);
}
END_TEST

#include "test-fleet-policy.h"

/* ---- an inventory that names another node's sandbox ---- */
START_TEST(test_an_inventory_takes_nothing_from_another_node)
{
	const enum report_state said = _i ? REPORT_ENDED : REPORT_RUNNING;
	struct sandbox_report claim = { .generation = 1, .version = 1000, .state = said, .accepted = true };
	struct inventory inventory = { .complete = true, .number = 2, .sandboxes = &claim, .n = 1 };
	struct fleet_event event;
	struct sandbox_record record;
	char owner[ID_SIZE];

	run_one();
	memcpy(owner, rig.node, ID_SIZE);
	memcpy(claim.sandbox, rig.id, ID_SIZE);
	claim.generation = rig.generation;
	event = of_node(FLEET_NODE_INVENTORY, node_id(index_of(owner) == 0 ? 1 : 0));
	event.inventory = &inventory;
	feed(event);
	ck_assert_int_eq(fleet_sandbox_get(rig.fleet, rig.id, &record, NULL), 0);
	ck_assert_str_eq(record.node, owner);
	ck_assert_int_eq(record.state, SANDBOX_RUNNING);
	sandbox_record_deinit(&record);
	ck_assert(rig.n_destroys == 0 || strcmp(rig.last_destroy_node, owner) != 0);
}
END_TEST

/* R185: of a newer node's sandbox whose state has no name here only that it is there is known: it is kept, and its word is not
 * acknowledged. */
START_TEST(test_a_state_that_is_not_known_keeps_the_sandbox)
{
	struct sandbox_report said = { .version = 1000, .state = REPORT_UNKNOWN, .accepted = true };
	struct inventory inventory = { .complete = true, .number = 2, .sandboxes = &said, .n = 1 };
	struct fleet_event event;
	struct sandbox_record record;

	run_one();
	memcpy(said.sandbox, rig.id, ID_SIZE);
	said.generation = rig.generation;
	event = of_node(FLEET_NODE_INVENTORY, rig.node);
	event.inventory = &inventory;
	feed(event);
	for (size_t i = 0; i < rig.out.n_sends; i++)
		ck_assert_int_ne(rig.out.sends[i].type, SEND_REPORT_ACK);
	ck_assert_int_eq(fleet_sandbox_get(rig.fleet, rig.id, &record, NULL), 0);
	ck_assert_int_eq(record.state, SANDBOX_RUNNING);
	ck_assert_uint_lt(record.report_version, 1000);
	sandbox_record_deinit(&record);
	ck_assert_uint_eq(rig.n_destroys, 0);
}
END_TEST

/* ---- the CPU of a node ---- */

/* What a hello says of it is placed by, in this life of the scheduler and the next, and can change. */
START_TEST(test_a_cpu_class_is_what_the_node_says)
{
	create_on((struct fleet_quota){ .sandboxes = 0 }, "amd-25-1");
	ck_assert_uint_eq(rig.n_creates, 0);
	ck_assert_int_eq(rig.out.replies[0].err.code, FAIL_NO_COMPATIBLE_NODE);

	greet_as(1, "amd-25-1");
	ck_assert_str_eq(rig.node_records[1].cpu_class, "amd-25-1");
	if (_i == 1) {
		restart();
		greet_as(1, "amd-25-1");
		say_empty(1);
	}
	create_on((struct fleet_quota){ .sandboxes = 0 }, "amd-25-1");
	ck_assert_uint_eq(rig.n_creates, 1);
	ck_assert_int_eq(index_of(rig.node), 1);

	greet_as(1, "amd-26-2"); /* its disk went into another machine */
	create_on((struct fleet_quota){ .sandboxes = 0 }, "amd-25-1");
	ck_assert_uint_eq(rig.n_creates, 1);
	ck_assert_int_eq(rig.out.replies[0].err.code, FAIL_NO_COMPATIBLE_NODE);
}
END_TEST

/* From its last heartbeat on: with the loop's turns of 10 ms there are 150 ms left for the heartbeat's way and for the answer that
 * tells of it. Not so soon that two heartbeats that are lost and a third that is late make a node suspect. */
START_TEST(test_a_dead_node_is_seen_within_three_seconds)
{
	int64_t last = rig.now.mono_usec, turn = 10 * USEC_PER_MSEC;
	struct fleet_node_view view = { .link = NODE_READY };

	for (unsigned int turns = 0; view.link == NODE_READY && turns < 1000; turns++) {
		rig.now.mono_usec = MAX(rig.now.mono_usec, rig.out.next_usec) + turn;
		feed((struct fleet_event){ .type = FLEET_TICK });
		ck_assert_int_eq(fleet_node_get(rig.fleet, node_id(0), &view), 0);
	}
	ck_assert_int_eq(view.link, NODE_SUSPECT);
	ck_assert_int_le(rig.now.mono_usec - last, 3 * USEC_PER_SEC - 150 * USEC_PER_MSEC);
	ck_assert_int_ge(rig.now.mono_usec - last, 2700 * USEC_PER_MSEC);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fleet-life");
	TCase *tc = tcase_create("fleet-life");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_no_fact_follows_the_link, 0, 1 << NODE_FACT_MAX_);
	tcase_add_test(tc, test_a_dead_node_is_seen_within_three_seconds);
	tcase_add_test(tc, test_drain_says_waits_and_ends);
	tcase_add_test(tc, test_a_drain_without_a_deadline_ends_nothing);
	tcase_add_test(tc, test_drain_moves_a_start);
	tcase_add_test(tc, test_drain_is_taken_back);
	tcase_add_test(tc, test_never_replaced_by_default);
	tcase_add_test(tc, test_a_short_cut_disturbs_nothing);
	tcase_add_test(tc, test_replaced_on_loss);
	tcase_add_loop_test(tc, test_not_replaced_without_leases, 0, 2);
	tcase_add_loop_test(tc, test_a_grant_may_be_the_last_word, 0, 2);
	tcase_add_test(tc, test_brakes);
	tcase_add_test(tc, test_nothing_is_replaced_when_all_are_gone);
	tcase_add_test(tc, test_quota_is_free_when_fenced);
	tcase_add_test(tc, test_an_end_gives_back_the_whole_quota);
	tcase_add_loop_test(tc, test_a_lowered_quota, 0, 3);
	tcase_add_test(tc, test_starts_come_back_with_time);
	tcase_add_test(tc, test_restore);
	tcase_add_loop_test(tc, test_what_was_adopted_has_a_deadline, 0, 2);
	tcase_add_test(tc, test_a_policy_is_recorded_when_its_node_has_it);
	tcase_add_test(tc, test_the_record_wins_over_its_node);
	tcase_add_test(tc, test_a_restore_takes_the_policy_of_the_node);
	tcase_add_test(tc, test_an_end_answers_who_waits_for_a_change);
	tcase_add_test(tc, test_events_are_bounded);
	tcase_add_loop_test(tc, test_an_inventory_takes_nothing_from_another_node, 0, 2);
	tcase_add_test(tc, test_a_state_that_is_not_known_keeps_the_sandbox);
	tcase_add_loop_test(tc, test_a_cpu_class_is_what_the_node_says, 0, 2);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
