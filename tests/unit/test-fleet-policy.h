/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test-fleet-life.c, and of nothing else: network policies and budgets, recorded and at the node, and what is told of
 * a sandbox besides.
 */
#pragma once

static void ask_network(const char *denied)
{
	struct fleet_event event = { .type = FLEET_SET_NETWORK };
	struct net_policy policy = { .internet = true };

	ck_assert_int_eq(net_policy_deny(&policy, denied, NULL), 0);
	event.change.request = 77;
	event.change.sandbox = rig.id;
	event.change.network = &policy;
	feed(event);
	net_policy_deinit(&policy);
}

static const struct network_command *asked_network(void)
{
	for (size_t i = 0; i < rig.out.n_sends; i++)
		if (rig.out.sends[i].type == SEND_NETWORK)
			return &rig.out.sends[i].network;
	return NULL;
}

static void answer_network(const char *operation, enum fail_code code, struct sandbox_spec *spec)
{
	struct sandbox_report report = { .generation = rig.generation,
		.state = REPORT_RUNNING,
		.accepted = true,
		.version = ++rig.version,
		.spec = spec };
	struct fleet_event event = of_node(FLEET_NODE_REPORT, rig.node);

	if (code != FAIL_NONE)
		(void)err_set(&report.update_failure, code, 0, "No.");
	memcpy(report.sandbox, rig.id, ID_SIZE);
	(void)snprintf(report.updated, sizeof(report.updated), "%s", operation);
	event.report = &report;
	feed(event);
}

START_TEST(test_a_policy_is_recorded_when_its_node_has_it)
{
	char first[ID_SIZE], operation[ID_SIZE];

	run_one();
	ask_network("9.9.9.9");
	ck_assert_uint_eq(rig.out.n_replies + rig.out.n_puts, 0);
	memcpy(first, asked_network()->operation, ID_SIZE);
	ck_assert_uint_eq(asked_network()->network.n_deny, 1);
	ask_network("8.8.8.8"); /* the later one wins */
	ck_assert_int_eq(rig.out.replies[0].err.code, FAIL_CONFLICT);
	memcpy(operation, asked_network()->operation, ID_SIZE);
	answer_network(first, FAIL_NONE, NULL);
	ck_assert_uint_eq(rig.out.n_replies, 0);
	pass(3);
	ck_assert_uint_eq(rig.saved.spec->network.n_deny, 0);
	answer_network(operation, FAIL_NONE, NULL);
	ck_assert_uint_eq(rig.out.replies[0].request, 77);
	ck_assert_int_eq(rig.out.replies[0].err.code, FAIL_NONE);
	ck_assert_uint_eq(rig.saved.spec->network.deny[0].addr.lo, 0x08080808);
	/* one that the node cannot set */
	ask_network("7.7.7.7");
	memcpy(operation, asked_network()->operation, ID_SIZE);
	answer_network(operation, FAIL_NETWORK_RULES_FAILED, NULL);
	ck_assert_int_eq(rig.out.replies[0].err.code, FAIL_NETWORK_RULES_FAILED);
	ck_assert_uint_eq(rig.saved.spec->network.deny[0].addr.lo, 0x08080808);
	/* one of which nothing is heard: asked again, then an error */
	ask_network("6.6.6.6");
	rig.n_replies = 0;
	pass(40);
	ck_assert_uint_eq(rig.n_replies, 1);
	ck_assert_uint_eq(rig.saved.spec->network.deny[0].addr.lo, 0x08080808);
	ck_assert_int_eq(state(), SANDBOX_RUNNING);
}
END_TEST

/* What the node says that it has, from its inventory. */
static void say_it_has(bool internet, uint64_t cpu_us)
{
	const struct net_policy policy = { .internet = internet };
	struct sandbox_spec *spec = spec_with_network(rig.saved.spec, &policy);

	spec->budget.cpu_us = cpu_us;
	answer_network("", FAIL_NONE, spec);
	spec_unref(spec);
}

static unsigned int n_sent(enum fleet_send_type type, char ret_operation[ID_SIZE])
{
	unsigned int n = 0;

	for (size_t i = 0; i < rig.out.n_sends; i++) {
		const struct fleet_send *send = &rig.out.sends[i];

		if (send->type != type)
			continue;
		memcpy(ret_operation, type == SEND_BUDGET ? send->budget.operation : send->network.operation, ID_SIZE);
		n++;
	}
	return n;
}

static void ck_differs(bool network, bool budget)
{
	struct fleet_sandbox_view view;

	ck_assert_int_eq(fleet_sandbox_get(rig.fleet, rig.id, NULL, &view), 0);
	ck_assert_int_eq(view.network_differs, network);
	ck_assert_int_eq(view.budget_differs, budget);
	ck_assert(rig.saved.spec->network.internet && rig.saved.spec->budget.cpu_us == 0); /* the record stays */
}

static void later(int64_t usec)
{
	rig.now.mono_usec += usec;
	rig.now.real_usec += usec;
	feed((struct fleet_event){ .type = FLEET_TICK });
}

/* A node that strips both: the record wins, and would go along to the next node. It is told again, one after the other, and
 * the record does not fill with what it says. */
START_TEST(test_the_record_wins_over_its_node)
{
	char operation[ID_SIZE];

	run_one();
	say_it_has(true, 0);
	ck_assert_uint_eq(n_sent(SEND_NETWORK, operation) + n_sent(SEND_BUDGET, operation), 0);
	say_it_has(false, 5);
	ck_differs(true, true);
	ck_assert_str_eq(rig.saved.events[rig.saved.n_events - 1].name, "NODE_DIFFERS");
	ck_assert_uint_eq(n_sent(SEND_NETWORK, operation), 1);
	ck_assert(asked_network()->network.internet);
	answer_network(operation, FAIL_NONE, NULL);
	ck_differs(false, true);
	ck_assert_uint_eq(n_sent(SEND_BUDGET, operation), 1);
	answer_network(operation, FAIL_NONE, NULL);
	ck_differs(false, false);
	ck_assert_uint_eq(n_sent(SEND_NETWORK, operation) + n_sent(SEND_BUDGET, operation), 0);

	for (int i = 0; i < 20; i++) { /* it does nothing and says it each time */
		say_it_has(false, 0);
		ck_differs(true, false);
	}
	ck_assert_uint_eq(rig.saved.n_events, 1);
	pass(100); /* and is told again, for as long as it is so, on another change than the one that it did not confirm */
	ck_differs(true, false);
	for (int i = 0; i < 25 && n_sent(SEND_NETWORK, operation) == 0; i++)
		later(1 * USEC_PER_SEC - USEC_PER_MSEC);
	ck_assert_uint_eq(n_sent(SEND_NETWORK, operation), 1);
	answer_network(operation, FAIL_NETWORK_RULES_FAILED, NULL); /* one that cannot is not asked without a pause */
	ck_assert_uint_eq(n_sent(SEND_NETWORK, operation), 0);
	ck_differs(true, false);
	for (int i = 0; i < 25 && n_sent(SEND_NETWORK, operation) == 0; i++)
		later(1 * USEC_PER_SEC);
	ck_assert_uint_eq(n_sent(SEND_NETWORK, operation), 1); /* but it is */
}
END_TEST

START_TEST(test_an_end_answers_who_waits_for_a_change)
{
	struct fleet_event event = { .type = FLEET_DESTROY };
	unsigned int n = 0;

	run_one();
	ask_network("9.9.9.9");
	event.destroy.request = 78;
	event.destroy.sandbox = rig.id;
	event.destroy.reason = END_REQUEST;
	feed(event);
	for (size_t i = 0; i < rig.out.n_replies; i++)
		n += rig.out.replies[i].request == 77 && rig.out.replies[i].err.code == FAIL_SANDBOX_GONE;
	ck_assert_uint_eq(n, 1);
}
END_TEST

/* The oldest make room for what happened last. */
START_TEST(test_events_are_bounded)
{
	int64_t began;

	run_one();
	began = rig.now.real_usec;
	for (int i = 0; i < SANDBOX_EVENTS_MAX + 3; i++) {
		struct fleet_event drain = of_node(FLEET_NODE_FACT, rig.node);

		drain.fact.fact = NODE_DRAINING;
		drain.fact.who = drain.fact.why = "somebody";
		drain.fact.set = true;
		drain.fact.until_us = rig.now.real_usec + 3600 * USEC_PER_SEC;
		feed(drain);
		drain.fact.set = false;
		feed(drain);
		later(1000);
	}
	ck_assert_uint_eq(rig.saved.n_events, SANDBOX_EVENTS_MAX);
	ck_assert_int_eq(rig.saved.events[0].when_us, began + 3 * 1000);
	for (size_t i = 0; i < rig.saved.n_events; i++) {
		ck_assert_str_eq(rig.saved.events[i].name, "NODE_DRAIN");
		ck_assert(i == 0 || rig.saved.events[i].when_us > rig.saved.events[i - 1].when_us);
	}
}
END_TEST

/* The backup is older than what its node has. */
START_TEST(test_a_restore_takes_the_policy_of_the_node)
{
	struct sandbox_record record = { .generation = 3, .incarnation = 1, .state = SANDBOX_RUNNING, .tenant = "tenant", .pool = POOL };
	CLEANUP(spec_unrefp) struct sandbox_spec *spec = spec_new();
	struct sandbox_record after;

	begin_restored(spec);
	spec->network.internet = true;
	record.spec = spec;
	name_of(OLD, record.id);
	memcpy(record.node, node_id(0), ID_SIZE);
	feed((struct fleet_event){ .type = FLEET_LOAD_SANDBOX, .sandbox_record = &record });
	feed((struct fleet_event){ .type = FLEET_LOADED });
	greet(0);
	spec = spec_with_network(spec, &(struct net_policy){ .internet = false });
	spec->budget.cpu_us = 5;
	tell_inventory(1, spec);
	ck_assert_int_eq(fleet_sandbox_get(rig.fleet, record.id, &after, NULL), 0);
	ck_assert(!after.spec->network.internet && after.spec->budget.cpu_us == 5);
	sandbox_record_deinit(&after);
	spec_unref(record.spec);
}
END_TEST
