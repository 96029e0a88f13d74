/* SPDX-License-Identifier: Apache-2.0
 *
 * Warm pools: refilled within the start budget and never above the target (R043), claimed by comparison and at most once,
 * not on a node that is drained (R044), renewed when they are old, given up for who finds no room. Of a snapshot: on its node,
 * for its tenant, as long as it is there.
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
#define N_NODES 4
#define SNAPSHOT "ssssssssssssssssssss"
#define SNAPSHOT_NODE 2
#define STARTS_MAX 4096

struct start {
	char node[ID_SIZE], sandbox[ID_SIZE], tenant[24];
	uint64_t generation, took;
};

static struct rig {
	struct fleet *fleet;
	struct rng rng;
	struct moment now;
	struct fleet_actions out;
	struct start starts[STARTS_MAX]; /* that nobody answered yet */
	size_t n_starts;
	struct start stops[STARTS_MAX];
	size_t n_stops;
	uint64_t n_made; /* warm VMs, in all */
	uint64_t request, version, life; /* `life`: of the nodes' agents */
	struct err err; /* of the last reply */
	char id[ID_SIZE];
	size_t n_claims, n_replies;
} rig;

static const char *node_id(unsigned int i)
{
	static const char ids[N_NODES][ID_SIZE] = { "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb",
		"cccccccccccccccccccc", "dddddddddddddddddddd" };

	return ids[i];
}

static void keep_send(const struct fleet_send *send)
{
	const char *tenant;
	struct start *start;

	if (send->type == SEND_DESTROY && rig.n_stops < STARTS_MAX) {
		start = &rig.stops[rig.n_stops++];
		memcpy(start->node, send->node, ID_SIZE);
		memcpy(start->sandbox, send->destroy.sandbox, ID_SIZE);
		start->generation = send->destroy.generation;
	}
	if (send->type != SEND_CREATE)
		return;
	ck_assert_uint_lt(rig.n_starts, STARTS_MAX);
	start = &rig.starts[rig.n_starts++];
	*start = (struct start){ .generation = send->create.generation, .took = send->create.took };
	memcpy(start->node, send->node, ID_SIZE);
	memcpy(start->sandbox, send->create.sandbox, ID_SIZE);
	tenant = fleet_sandbox_tenant(rig.fleet, send->create.sandbox);
	(void)snprintf(start->tenant, sizeof(start->tenant), "%s", tenant ? tenant : "");
	rig.n_made += strcmp(start->tenant, "croft:warm") == 0;
}

static void feed(struct fleet_event event)
{
	fleet_actions_clear(&rig.out);
	fleet_step(rig.fleet, rig.now, &rig.rng, &event, &rig.out);
	ck_assert(!rig.out.no_memory);
	for (size_t i = 0; i < rig.out.n_sends; i++)
		keep_send(&rig.out.sends[i]);
	for (size_t i = 0; i < rig.out.n_puts; i++)
		rig.n_claims += rig.out.puts[i].type == FLEET_PUT_CLAIM;
	for (size_t i = 0; i < rig.out.n_replies; i++) {
		rig.n_replies++;
		rig.err = rig.out.replies[i].err;
		if (rig.out.replies[i].sandbox)
			memcpy(rig.id, rig.out.replies[i].sandbox->id, ID_SIZE);
	}
}

static struct fleet_event of_node(enum fleet_event_type type, const char *node)
{
	struct fleet_event event = { .type = type, .session = (uint64_t)node[0] + 256 * rig.life };

	memcpy(event.node, node, ID_SIZE);
	return event;
}

static void pass(int seconds)
{
	struct heartbeat heartbeat = { .schedulable = true };

	for (int s = 0; s < seconds; s++) {
		rig.now.mono_usec += USEC_PER_SEC;
		rig.now.real_usec += USEC_PER_SEC;
		for (unsigned int i = 0; i < N_NODES; i++) {
			struct fleet_event event = of_node(FLEET_NODE_HEARTBEAT, node_id(i));

			event.heartbeat = &heartbeat;
			feed(event);
		}
		feed((struct fleet_event){ .type = FLEET_TICK });
	}
}

static struct sandbox_spec *spec_of(uint64_t memory_mib)
{
	struct sandbox_spec *spec = spec_new();

	ck_assert_ptr_nonnull(spec);
	memcpy(spec->template_name, "base", 5);
	memcpy(spec->image_digest, DIGEST, DIGEST_SIZE);
	spec->vcpus = 1;
	spec->memory_mib = memory_mib;
	spec->disk_mib = 100;
	return spec;
}

/* What begins as the snapshot. */
static struct sandbox_spec *restored_spec(void)
{
	struct sandbox_spec *spec = spec_of(512);

	memcpy(spec->snapshot, SNAPSHOT, ID_SIZE);
	return spec;
}

static void set_warm_of(struct sandbox_spec *spec, const char *name, uint32_t target, uint32_t max_starts, int64_t age_s)
{
	struct warm_record warm = { .pool = POOL,
		.spec = spec,
		.target = target,
		.max_starts = max_starts,
		.max_age_usec = age_s * USEC_PER_SEC };

	(void)snprintf(warm.name, sizeof(warm.name), "%s", name);
	feed((struct fleet_event){ .type = FLEET_WARM, .warm = &warm });
	spec_unref(warm.spec);
}

static void set_warm(uint32_t target, uint32_t max_starts, int64_t age_s)
{
	set_warm_of(spec_of(512), "base", target, max_starts, age_s);
}

static void report(const struct start *start, enum report_state state)
{
	struct fleet_event event = of_node(FLEET_NODE_REPORT, start->node);
	struct sandbox_report report = { .generation = start->generation,
		.version = ++rig.version,
		.state = state,
		.accepted = true,
		.end_reason = state == REPORT_ENDED ? END_REQUEST : END_NONE };

	memcpy(report.sandbox, start->sandbox, ID_SIZE);
	event.report = &report;
	feed(event);
}

static void answer_stops(void)
{
	while (rig.n_stops) {
		struct start one = rig.stops[--rig.n_stops];

		report(&one, REPORT_ENDED);
	}
}

static void answer_starts(void)
{
	while (rig.n_starts) {
		struct start one = rig.starts[0];

		memmove(rig.starts, rig.starts + 1, --rig.n_starts * sizeof(one));
		report(&one, REPORT_RUNNING);
	}
}

static struct fleet_warm_view view(void)
{
	struct fleet_warm_view views[2];

	ck_assert_uint_eq(fleet_warm_list(rig.fleet, views, 2), 1);
	return views[0];
}

static const char *pick_of(struct sandbox_spec *spec)
{
	const struct sandbox_wish any = { .labels = NULL };
	const char *id = fleet_warm_pick(rig.fleet, POOL, spec, &any);

	spec_unref(spec);
	return id;
}

static const char *pick(uint64_t memory_mib)
{
	return pick_of(spec_of(memory_mib));
}

static void create_as(const char *tenant, const char *claim, struct sandbox_spec *spec)
{
	struct fleet_create create = { .request = ++rig.request,
		.pool = POOL,
		.spec = spec,
		.claim = claim,
		.template_alias = "as-it-was-called" };

	(void)snprintf(create.tenant, sizeof(create.tenant), "%s", tenant);
	ck_assert_int_eq(spec_add_env(spec, "A", "b"), 0);
	spec->timeout_s = 60;
	feed((struct fleet_event){ .type = FLEET_CREATE, .create = &create });
	spec_unref(spec);
}

static void create(const char *claim, uint64_t memory_mib)
{
	create_as("tenant", claim, spec_of(memory_mib));
}

static void load_snapshot(void)
{
	struct snapshot_record record = { .id = SNAPSHOT, .tenant = "tenant", .pool = POOL, .state = SNAPSHOT_READY,
		.spec = spec_of(512), .size_mib = 100 };

	memcpy(record.node, node_id(SNAPSHOT_NODE), ID_SIZE);
	feed((struct fleet_event){ .type = FLEET_LOAD_SNAPSHOT, .load_snapshot = { .record = &record } });
	spec_unref(record.spec);
}

/* All that a node has. */
static void take_inventory(unsigned int i, bool with_snapshot)
{
	struct snapshot_info info = { .id = SNAPSHOT, .tenant = "tenant", .vcpus = 1, .memory_mib = 512, .disk_mib = 100 };
	struct inventory inventory = { .complete = true, .number = 1, .snapshots = &info, .n_snapshots = with_snapshot };
	struct fleet_event event = of_node(FLEET_NODE_INVENTORY, node_id(i));

	event.inventory = &inventory;
	feed(event);
}

static void join(unsigned int i, bool with_snapshot)
{
	struct hello hello = { .capacity = { 100000, 200, 500000, 200, 100, 4, 0 }, .boot_id = "boot", .snapshots = true };
	struct fleet_event event = of_node(FLEET_NODE_HELLO, node_id(i));

	memcpy(hello.instance, node_id(i), ID_SIZE);
	hello.instance[1] = (char)('a' + rig.life);
	memcpy(hello.machine, node_id(i), ID_SIZE);
	event.hello = &hello;
	feed(event);
	take_inventory(i, with_snapshot);
}

static void setup(void)
{
	struct pool_record pool = { .name = POOL, .cpu_overcommit_percent = 400 };
	struct fleet_config config;

	memset(&rig, 0, sizeof(rig));
	rig.rng = rng_seeded(3);
	rig.now = (struct moment){ .mono_usec = 1000 * USEC_PER_SEC, .real_usec = 5000 * USEC_PER_SEC };
	fleet_config_default(&config);
	config.epoch = 5;
	ck_assert_int_eq(fleet_new(&rig.fleet, &config), 0);
	feed((struct fleet_event){ .type = FLEET_LOAD_POOL, .pool = &pool });
	for (unsigned int i = 0; i < N_NODES; i++) {
		struct node_record record = { .pool = POOL, .health = { .is_proven = true } };

		memcpy(record.id, node_id(i), ID_SIZE);
		memcpy(record.machine, node_id(i), ID_SIZE);
		feed((struct fleet_event){ .type = FLEET_LOAD_NODE, .node_record = &record });
	}
	load_snapshot();
	feed((struct fleet_event){ .type = FLEET_LOADED });
	for (unsigned int i = 0; i < N_NODES; i++)
		join(i, i == SNAPSHOT_NODE);
}

static void teardown(void)
{
	rig.fleet = fleet_free(rig.fleet);
	fleet_actions_clear(&rig.out);
}

static void make_ready(uint32_t target)
{
	set_warm(target, target, 3600);
	pass(1);
	answer_starts();
	ck_assert_uint_eq(view().ready, target);
}

/* However late what was decided becomes known. */
START_TEST(test_refilled_within_the_budget_and_never_above_the_target)
{
	const uint32_t target = 500, budget = 40;

	set_warm(target, budget, 3600);
	for (int s = 0; s < 100 && view().ready < target; s++) {
		pass(1);
		ck_assert_uint_le(view().starting, budget);
		ck_assert_uint_le(view().ready + view().starting, target);
		if (s % 3 == 0) /* news come late */
			answer_starts();
	}
	ck_assert_uint_eq(view().ready, target);
	ck_assert_uint_eq(rig.n_made, target);
	for (int i = 0; i < 30; i++)
		create(pick(512), 512);
	ck_assert_uint_eq(view().ready, target - 30);
	pass(2);
	answer_starts();
	pass(3);
	answer_starts();
	ck_assert_uint_eq(view().ready, target);
	ck_assert_uint_eq(rig.n_made, target + 30); /* one for each that was taken, and no more */
}
END_TEST

START_TEST(test_a_claim_is_the_same_vm_under_the_next_generation)
{
	struct sandbox_record record;
	struct fleet_quota used;
	struct fleet_owner owner;
	char id[ID_SIZE];

	make_ready(1);
	ck_assert_ptr_null(pick(1024)); /* another size */
	memcpy(id, pick(512), ID_SIZE);
	create(id, 512);
	ck_assert_uint_eq(rig.n_starts, 1);
	ck_assert_str_eq(rig.starts[0].sandbox, id);
	ck_assert_uint_eq(rig.starts[0].took, 1);
	ck_assert_uint_eq(rig.starts[0].generation, 2);
	ck_assert_uint_eq(rig.n_claims, 1);
	fleet_quota_used(rig.fleet, "tenant", &used);
	ck_assert_uint_eq(used.sandboxes, 1);
	fleet_quota_used(rig.fleet, "croft:warm", &used);
	ck_assert_uint_eq(used.sandboxes, 0);
	ck_assert_uint_eq(rig.n_replies, 0);
	answer_starts();
	ck_assert_uint_eq(rig.n_replies, 1);
	ck_assert(!err_is_set(&rig.err));
	ck_assert_str_eq(rig.id, id);
	ck_assert_int_eq(fleet_sandbox_get(rig.fleet, id, &record, NULL), 0);
	ck_assert_str_eq(record.tenant, "tenant");
	ck_assert_str_eq(record.template_alias, "as-it-was-called");
	ck_assert_uint_eq(record.spec->n_env, 1);
	ck_assert_int_gt(record.ends_us, 0);
	sandbox_record_deinit(&record);
	/* what it used before is not its tenant's */
	ck_assert(fleet_sandbox_owner(rig.fleet, id, 1, &owner));
	ck_assert_str_eq(owner.tenant, FLEET_WARM_TENANT);
	ck_assert_uint_eq(owner.generation, 2);
	ck_assert(fleet_sandbox_owner(rig.fleet, id, 2, &owner));
	ck_assert_str_eq(owner.tenant, "tenant");
	ck_assert(!fleet_sandbox_owner(rig.fleet, "aaaaaaaaaaaaaaaaaaaa", 1, &owner));
}
END_TEST

START_TEST(test_of_two_claims_one_gets_it)
{
	char id[ID_SIZE];

	make_ready(2);
	memcpy(id, pick(512), ID_SIZE);
	create(id, 512);
	ck_assert_uint_eq(rig.n_replies, 0);
	create(id, 512);
	ck_assert_uint_eq(rig.n_replies, 1);
	ck_assert_int_eq(rig.err.code, FAIL_WARM_TAKEN);
	ck_assert_uint_eq(rig.n_claims, 1);
	answer_starts();
	create(id, 512); /* a running one of a tenant is not warm either */
	ck_assert_int_eq(rig.err.code, FAIL_WARM_TAKEN);
	create("zzzzzzzzzzzzzzzzzzzz", 512);
	ck_assert_int_eq(rig.err.code, FAIL_WARM_TAKEN);
}
END_TEST

/* A claim names a VM, and gets it only where it is what was asked for. */
START_TEST(test_a_claim_of_another_shape_is_refused)
{
	char id[ID_SIZE];

	make_ready(1);
	memcpy(id, pick(512), ID_SIZE);
	create(id, 640);
	ck_assert_uint_eq(rig.n_replies, 1);
	ck_assert_int_eq(rig.err.code, FAIL_WARM_TAKEN);
	ck_assert_uint_eq(rig.n_claims, 0);
	ck_assert_uint_eq(view().ready, 1);
}
END_TEST

static void drain(const char *node)
{
	struct fleet_event event = of_node(FLEET_NODE_FACT, node);

	event.fact.fact = NODE_DRAINING;
	event.fact.set = true;
	event.fact.who = event.fact.why = "test";
	feed(event);
}

START_TEST(test_a_claim_on_a_draining_node_is_refused)
{
	char id[ID_SIZE], node[ID_SIZE];
	const char *other;
	uint64_t session;

	make_ready(8);
	memcpy(id, pick(512), ID_SIZE);
	memcpy(node, fleet_sandbox_node(rig.fleet, id, &session), ID_SIZE);
	drain(node);
	create(id, 512);
	ck_assert_int_eq(rig.err.code, FAIL_NODE_DRAINING);
	ck_assert_uint_eq(rig.n_claims, 0);
	other = pick(512); /* another node's */
	ck_assert_ptr_nonnull(other);
	ck_assert_str_ne(fleet_sandbox_node(rig.fleet, other, &session), node);
	answer_stops();
	pass(1);
	for (size_t i = 0; i < rig.n_starts; i++)
		ck_assert_str_ne(rig.starts[i].node, node);
	answer_starts();
	ck_assert_uint_eq(view().ready, 8); /* elsewhere */
}
END_TEST

START_TEST(test_the_old_are_renewed_and_the_surplus_is_ended)
{
	set_warm(3, 3, 60);
	pass(1);
	answer_starts();
	pass(58);
	ck_assert_uint_eq(rig.n_stops, 0);
	pass(3);
	ck_assert_uint_eq(rig.n_stops, 3);
	answer_stops();
	pass(1);
	answer_starts();
	ck_assert_uint_eq(view().ready, 3);
	ck_assert_uint_eq(rig.n_made, 6);
	set_warm(1, 3, 60);
	pass(1);
	ck_assert_uint_eq(rig.n_stops, 2);
	ck_assert_uint_eq(view().ready, 1);
}
END_TEST

/* The node spoke before it heard of the claim: the VM is neither ended nor called a lie. */
START_TEST(test_late_words_about_the_warm_generation)
{
	struct start warm;
	char id[ID_SIZE];

	set_warm(1, 1, 3600);
	pass(1);
	warm = rig.starts[0];
	answer_starts();
	memcpy(id, pick(512), ID_SIZE);
	create(id, 512);
	report(&warm, REPORT_RUNNING);
	ck_assert_uint_eq(rig.out.n_notices, 0);
	ck_assert_uint_eq(rig.n_stops, 0);
	ck_assert_uint_eq(rig.n_replies, 0); /* it is not ready for the tenant */
	answer_starts();
	ck_assert_uint_eq(rig.n_replies, 1);
	/* a node that never had it speaks of another's sandbox, whatever the generation */
	memcpy(warm.node, strcmp(warm.node, node_id(0)) ? node_id(0) : node_id(1), ID_SIZE);
	report(&warm, REPORT_ENDED);
	ck_assert_uint_eq(rig.out.n_notices, 1);
}
END_TEST

/* Its first start failed on another node, which did not hear yet that this was recorded: that one is no liar either. */
START_TEST(test_late_words_of_the_node_where_it_failed_before)
{
	struct start first;
	char id[ID_SIZE];

	set_warm(1, 1, 3600);
	pass(1);
	first = rig.starts[0];
	rig.n_starts = 0;
	report(&first, REPORT_ENDED); /* without a reason: another node is tried */
	ck_assert_uint_eq(rig.n_starts, 1);
	ck_assert_str_ne(rig.starts[0].node, first.node);
	answer_starts();
	memcpy(id, pick(512), ID_SIZE);
	ck_assert_str_eq(id, first.sandbox);
	create(id, 512);
	report(&first, REPORT_ENDED);
	ck_assert_uint_eq(rig.out.n_notices, 0);
	ck_assert_uint_eq(rig.n_stops, 0);
	answer_starts();
	ck_assert_uint_eq(rig.n_replies, 1);
	ck_assert(!err_is_set(&rig.err));
}
END_TEST

/* What nobody asked for makes room for who asks. */
START_TEST(test_a_request_without_room_comes_first)
{
	make_ready(400); /* 100 on each node: 59 600 MiB and more of 100 000 */
	create(NULL, 60000);
	ck_assert_uint_eq(rig.n_replies, 0);
	for (int i = 0; i < 120 && rig.n_starts == 0; i++) {
		answer_stops();
		pass(1);
	}
	ck_assert_uint_ge(rig.n_starts, 1);
	ck_assert_str_eq(rig.starts[0].tenant, "tenant");
}
END_TEST

/* ---- of a snapshot ---- */

static void make_restored(uint32_t target, int64_t age_s)
{
	set_warm_of(restored_spec(), SNAPSHOT, target, target, age_s);
	pass(1);
	answer_starts();
	ck_assert_uint_eq(view().ready, target);
}

START_TEST(test_of_a_snapshot_they_are_where_it_lies)
{
	char id[ID_SIZE];

	set_warm_of(restored_spec(), SNAPSHOT, 5, 2, 3600);
	pass(1);
	ck_assert_uint_eq(rig.n_starts, 2); /* no more at once than was said */
	for (int i = 0; i < 4; i++) {
		for (size_t k = 0; k < rig.n_starts; k++)
			ck_assert_str_eq(rig.starts[k].node, node_id(SNAPSHOT_NODE));
		answer_starts();
		pass(1);
	}
	ck_assert_uint_eq(view().ready, 5);
	ck_assert_ptr_null(pick(512)); /* what boots is something else */
	memcpy(id, pick_of(restored_spec()), ID_SIZE);
	create_as("tenant", id, restored_spec());
	ck_assert_uint_eq(rig.n_starts, 1);
	ck_assert_str_eq(rig.starts[0].sandbox, id);
	ck_assert_str_eq(rig.starts[0].tenant, "tenant");
	ck_assert_uint_eq(rig.starts[0].took, 1);
	answer_starts();
	ck_assert(!err_is_set(&rig.err));
	ck_assert_str_eq(rig.id, id);
	pass(1); /* its place is filled */
	answer_starts();
	ck_assert_uint_eq(view().ready, 5);
}
END_TEST

START_TEST(test_of_a_snapshot_another_tenant_gets_none)
{
	char id[ID_SIZE];

	make_restored(1, 3600);
	memcpy(id, pick_of(restored_spec()), ID_SIZE);
	create_as("stranger", id, restored_spec());
	ck_assert_int_eq(rig.err.code, FAIL_WARM_TAKEN);
	ck_assert_uint_eq(rig.n_starts, 0);
	ck_assert_uint_eq(rig.n_claims, 0);
	create_as("tenant", id, spec_of(512)); /* what boots does not get what began */
	ck_assert_int_eq(rig.err.code, FAIL_WARM_TAKEN);
	create_as("tenant", id, restored_spec());
	ck_assert_uint_eq(rig.n_starts, 1);
}
END_TEST

/* Nobody could ask for one any more; nor is another begun. */
static void expect_given_up(void)
{
	pass(1);
	ck_assert_uint_eq(rig.n_stops, 2);
	answer_stops();
	pass(200);
	ck_assert_uint_eq(rig.n_starts, 0);
	ck_assert_uint_eq(view().ready + view().starting, 0);
}

START_TEST(test_of_a_deleted_snapshot_none_is_kept)
{
	make_restored(2, 3600);
	feed((struct fleet_event){ .type = FLEET_DROP_SNAPSHOT, .drop_snapshot = { .request = ++rig.request, .snapshot = SNAPSHOT } });
	ck_assert(!err_is_set(&rig.err));
	expect_given_up();
}
END_TEST

START_TEST(test_of_a_lost_snapshot_none_is_kept)
{
	make_restored(2, 3600);
	rig.life++;
	for (unsigned int i = 0; i < N_NODES; i++)
		join(i, false); /* nor are the two there any more */
	for (int i = 0; i < 200; i++) {
		pass(1);
		answer_stops();
		ck_assert_uint_eq(rig.n_starts, 0);
	}
	ck_assert_uint_eq(view().ready + view().starting, 0);
	rig.life++;
	for (unsigned int i = 0; i < N_NODES; i++)
		join(i, i == SNAPSHOT_NODE); /* it was mislaid */
	pass(2);
	ck_assert_uint_eq(rig.n_starts, 2);
}
END_TEST

START_TEST(test_of_a_snapshot_the_old_are_renewed)
{
	char id[ID_SIZE];

	make_restored(1, 100);
	memcpy(id, pick_of(restored_spec()), ID_SIZE);
	pass(102);
	ck_assert_uint_eq(rig.n_stops, 1);
	ck_assert_str_eq(rig.stops[0].sandbox, id);
	answer_stops();
	pass(2);
	answer_starts();
	ck_assert_uint_eq(view().ready, 1);
	ck_assert_str_ne(pick_of(restored_spec()), id);
}
END_TEST

static void add_snapshot_tests(TCase *tcase)
{
	tcase_add_test(tcase, test_of_a_snapshot_they_are_where_it_lies);
	tcase_add_test(tcase, test_of_a_snapshot_another_tenant_gets_none);
	tcase_add_test(tcase, test_of_a_deleted_snapshot_none_is_kept);
	tcase_add_test(tcase, test_of_a_lost_snapshot_none_is_kept);
	tcase_add_test(tcase, test_of_a_snapshot_the_old_are_renewed);
}

int main(void)
{
	Suite *suite = suite_create("fleet-warm");
	TCase *tcase = tcase_create("fleet-warm");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_refilled_within_the_budget_and_never_above_the_target);
	tcase_add_test(tcase, test_a_claim_is_the_same_vm_under_the_next_generation);
	tcase_add_test(tcase, test_of_two_claims_one_gets_it);
	tcase_add_test(tcase, test_a_claim_of_another_shape_is_refused);
	tcase_add_test(tcase, test_a_claim_on_a_draining_node_is_refused);
	tcase_add_test(tcase, test_the_old_are_renewed_and_the_surplus_is_ended);
	tcase_add_test(tcase, test_late_words_about_the_warm_generation);
	tcase_add_test(tcase, test_late_words_of_the_node_where_it_failed_before);
	tcase_add_test(tcase, test_a_request_without_room_comes_first);
	add_snapshot_tests(tcase);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
