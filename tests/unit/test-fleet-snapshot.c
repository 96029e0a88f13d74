/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots and forks in the fleet: what is asked of nodes and how often, what an answer, its absence, an inventory or the
 * loss of a node makes of it, where a sandbox begins as one, and what a tenant may keep.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "fleet/fleet.h"
#include "lib/suite.h"

#define POOL "pool"
#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define N_NODES 3
#define KEPT_MAX 16
#define PARENT "pppppppppppppppppppp"
#define OTHER_LINEAGE "llllllllllllllllllll"

/* What the store would have. */
struct kept {
	struct sandbox_record sandboxes[KEPT_MAX];
	size_t n_sandboxes;
	struct snapshot_record snapshots[KEPT_MAX];
	size_t n_snapshots;
	struct node_record nodes[N_NODES];
};

struct rig {
	struct fleet *fleet;
	struct rng rng;
	struct moment now;
	struct fleet_actions out;
	struct pool_record pool;
	struct kept kept;
	char lineage[ID_SIZE];
	uint64_t session, inventory, version, heartbeat;
	uint32_t lease_ms;
	struct fleet_quota quota; /* of the tenant, when the fleet is loaded */
	bool silent[N_NODES], is_old[N_NODES];
	/* counted over pass() */
	size_t n_snapshot, n_drop, n_update, n_resume;
	struct snapshot_command command;
	char dropped[ID_SIZE];
};

static struct rig rig;

static const char *node_id(int i)
{
	static const char ids[N_NODES][ID_SIZE] = { "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb", "cccccccccccccccccccc" };

	return ids[i];
}

static void forget_sandbox(const char *id)
{
	for (size_t i = 0; i < rig.kept.n_sandboxes; i++)
		if (!strcmp(rig.kept.sandboxes[i].id, id)) {
			sandbox_record_deinit(&rig.kept.sandboxes[i]);
			rig.kept.sandboxes[i] = rig.kept.sandboxes[--rig.kept.n_sandboxes];
			return;
		}
}

static void forget_snapshot(const char *id)
{
	for (size_t i = 0; i < rig.kept.n_snapshots; i++)
		if (!strcmp(rig.kept.snapshots[i].id, id)) {
			snapshot_record_deinit(&rig.kept.snapshots[i]);
			rig.kept.snapshots[i] = rig.kept.snapshots[--rig.kept.n_snapshots];
			return;
		}
}

static void keep_put(const struct fleet_put *put)
{
	if (put->type == FLEET_PUT_NODE) {
		struct node_record *node = &rig.kept.nodes[put->id[0] - 'a'];

		node_record_deinit(node);
		ck_assert_int_eq(node_record_copy(put->node, node), 0);
	} else if (put->type == FLEET_PUT_SANDBOX) {
		forget_sandbox(put->id);
		ck_assert_uint_lt(rig.kept.n_sandboxes, KEPT_MAX);
		ck_assert_int_eq(sandbox_record_copy(put->sandbox, &rig.kept.sandboxes[rig.kept.n_sandboxes++]), 0);
	} else if (put->type == FLEET_DELETE_SANDBOX) {
		forget_sandbox(put->id);
	} else if (put->type == FLEET_PUT_SNAPSHOT) {
		forget_snapshot(put->id);
		ck_assert_uint_lt(rig.kept.n_snapshots, KEPT_MAX);
		ck_assert_int_eq(snapshot_record_copy(put->snapshot, &rig.kept.snapshots[rig.kept.n_snapshots++]), 0);
	} else if (put->type == FLEET_DELETE_SNAPSHOT) {
		forget_snapshot(put->id);
	}
}

static void feed(struct fleet_event event)
{
	fleet_actions_clear(&rig.out);
	fleet_step(rig.fleet, rig.now, &rig.rng, &event, &rig.out);
	ck_assert(!rig.out.no_memory);
	for (size_t i = 0; i < rig.out.n_puts; i++)
		keep_put(&rig.out.puts[i]);
	for (size_t i = 0; i < rig.out.n_sends; i++) {
		const struct fleet_send *send = &rig.out.sends[i];

		rig.n_snapshot += send->type == SEND_SNAPSHOT;
		rig.n_drop += send->type == SEND_DROP_SNAPSHOT;
		rig.n_update += send->type == SEND_UPDATE;
		rig.n_resume += send->type == SEND_RESUME;
		if (send->type == SEND_SNAPSHOT)
			rig.command = send->snapshot;
		if (send->type == SEND_DROP_SNAPSHOT)
			memcpy(rig.dropped, send->drop_snapshot, ID_SIZE);
	}
}

static struct fleet_event of_node(enum fleet_event_type type, int node)
{
	struct fleet_event event = { .type = type, .session = rig.session * 10 + (uint64_t)node };

	memcpy(event.node, node_id(node), ID_SIZE);
	return event;
}

static void pass(int seconds)
{
	for (int s = 0; s < seconds; s++) {
		rig.now.mono_usec += USEC_PER_SEC;
		rig.now.real_usec += USEC_PER_SEC;
		for (int i = 0; i < N_NODES; i++) {
			struct heartbeat heartbeat = { .schedulable = true, .number = ++rig.heartbeat, .lease_ms = rig.lease_ms };
			struct fleet_event event = of_node(FLEET_NODE_HEARTBEAT, i);

			event.heartbeat = &heartbeat;
			if (!rig.silent[i])
				feed(event);
		}
		feed((struct fleet_event){ .type = FLEET_TICK });
	}
}

static void greet(int i)
{
	struct hello hello = { .capacity = { 8000, 8, 50000, 10, 4, 4, 0 }, .boot_id = "boot", .pauses = true };
	struct fleet_event event = of_node(FLEET_NODE_HELLO, i);

	memcpy(hello.instance, node_id(i), ID_SIZE);
	memcpy(hello.machine, node_id(i), ID_SIZE);
	memcpy(hello.cpu_class, "amd-25-1", 9);
	hello.snapshots = !rig.is_old[i];
	event.hello = &hello;
	feed(event);
}

/* All that is there: what the store says runs there, and these snapshots. */
static void say_inventory(int node, const struct snapshot_info *snapshots, size_t n)
{
	struct sandbox_report reports[KEPT_MAX] = { { .version = 0 } };
	struct inventory inventory = { .complete = true, .number = ++rig.inventory, .sandboxes = reports };
	struct fleet_event event = of_node(FLEET_NODE_INVENTORY, node);

	for (size_t i = 0; i < rig.kept.n_sandboxes; i++) {
		struct sandbox_report *report = &reports[inventory.n];

		if (strcmp(rig.kept.sandboxes[i].node, node_id(node)) != 0)
			continue;
		memcpy(report->sandbox, rig.kept.sandboxes[i].id, ID_SIZE);
		report->generation = rig.kept.sandboxes[i].generation;
		report->state = rig.kept.sandboxes[i].state == SANDBOX_PAUSED ? REPORT_PAUSED : REPORT_RUNNING;
		report->accepted = true;
		report->version = ++rig.version;
		inventory.n++;
	}
	inventory.snapshots = (struct snapshot_info *)(uintptr_t)snapshots;
	inventory.n_snapshots = n;
	event.inventory = &inventory;
	feed(event);
}

static void start_fleet(void)
{
	struct fleet_config config;

	fleet_config_default(&config);
	config.epoch = 5 + rig.session;
	config.grace_usec = 0;
	memcpy(config.lineage, rig.lineage, ID_SIZE);
	ck_assert_int_eq(fleet_new(&rig.fleet, &config), 0);
	feed((struct fleet_event){ .type = FLEET_LOAD_POOL, .pool = &rig.pool });
	for (int i = 0; i < N_NODES; i++)
		feed((struct fleet_event){ .type = FLEET_LOAD_NODE, .node_record = &rig.kept.nodes[i] });
	for (size_t i = 0; i < rig.kept.n_snapshots; i++)
		feed((struct fleet_event){ .type = FLEET_LOAD_SNAPSHOT, .load_snapshot = { &rig.kept.snapshots[i], rig.quota } });
	for (size_t i = 0; i < rig.kept.n_sandboxes; i++)
		feed((struct fleet_event){ .type = FLEET_LOAD_SANDBOX, .sandbox_record = &rig.kept.sandboxes[i] });
	feed((struct fleet_event){ .type = FLEET_LOADED });
}

/* Nobody is connected yet. */
static void restart(void)
{
	rig.fleet = fleet_free(rig.fleet);
	rig.session++;
	start_fleet();
}

static void run_parent(struct fleet_quota quota);

static void setup(void)
{
	memset(&rig, 0, sizeof(rig));
	rig.rng = rng_seeded(7);
	rig.now = (struct moment){ 1000 * USEC_PER_SEC, 5000 * USEC_PER_SEC, 0 };
	rig.pool = (struct pool_record){ .name = POOL, .cpu_overcommit_percent = 400 };
	rig.session = 1;
	memcpy(rig.lineage, "kkkkkkkkkkkkkkkkkkkk", ID_SIZE);
	for (int i = 0; i < N_NODES; i++) {
		memcpy(rig.kept.nodes[i].id, node_id(i), ID_SIZE);
		memcpy(rig.kept.nodes[i].machine, node_id(i), ID_SIZE);
		memcpy(rig.kept.nodes[i].pool, POOL, sizeof(POOL));
	}
	start_fleet();
	greet(0);
	say_inventory(0, NULL, 0);
	run_parent((struct fleet_quota){ 0 });
	for (int i = 1; i < N_NODES; i++) {
		greet(i);
		say_inventory(i, NULL, 0);
	}
}

static void teardown(void)
{
	fleet_actions_clear(&rig.out);
	rig.fleet = fleet_free(rig.fleet);
	while (rig.kept.n_sandboxes)
		forget_sandbox(rig.kept.sandboxes[0].id);
	while (rig.kept.n_snapshots)
		forget_snapshot(rig.kept.snapshots[0].id);
	for (int i = 0; i < N_NODES; i++)
		node_record_deinit(&rig.kept.nodes[i]);
}

/* ---- sandboxes ---- */

static const struct sandbox_record *saved(const char *id)
{
	for (size_t i = 0; i < rig.kept.n_sandboxes; i++)
		if (!strcmp(rig.kept.sandboxes[i].id, id))
			return &rig.kept.sandboxes[i];
	return NULL;
}

static const struct snapshot_record *saved_snapshot(const char *id)
{
	for (size_t i = 0; i < rig.kept.n_snapshots; i++)
		if (!strcmp(rig.kept.snapshots[i].id, id))
			return &rig.kept.snapshots[i];
	return NULL;
}

static void create(const char *id, const char *snapshot, uint64_t request, struct fleet_quota quota)
{
	CLEANUP(spec_unrefp) struct sandbox_spec *spec = spec_new();
	struct fleet_create ask = { .request = request, .tenant = "tenant", .pool = POOL, .spec = spec, .quota = quota };

	memcpy(ask.id, id, ID_SIZE);
	memcpy(spec->template_name, "base", 5);
	memcpy(spec->image_digest, DIGEST, DIGEST_SIZE);
	memcpy(spec->access_token, "secret", 7);
	memcpy(spec->snapshot, snapshot, strlen(snapshot));
	spec->vcpus = 1;
	spec->memory_mib = 1000;
	spec->disk_mib = 100;
	spec->timeout_s = 300;
	ck_assert_int_eq(spec_add_env(spec, "NAME", "value"), 0);
	ck_assert_int_eq(spec_set_setup(spec, "exit 0"), 0);
	feed((struct fleet_event){ .type = FLEET_CREATE, .create = &ask });
}

static int node_of(const char *id)
{
	return saved(id)->node[0] - 'a';
}

/* Its node says this; `updated` and what goes with it belong to the last change. */
static void say(const char *id, enum report_state state, const char *updated, const struct snapshot_info *made,
	enum fail_code failed)
{
	struct fleet_event event = of_node(FLEET_NODE_REPORT, node_of(id));
	struct sandbox_report report = { .generation = saved(id)->generation, .state = state, .accepted = true,
		.version = ++rig.version, .snapshot = (struct snapshot_info *)(uintptr_t)made };

	memcpy(report.sandbox, id, ID_SIZE);
	if (updated)
		memcpy(report.updated, updated, ID_SIZE);
	if (failed != FAIL_NONE && state == REPORT_ENDED)
		(void)err_set(&report.failure, failed, 0, "It failed.");
	else if (failed != FAIL_NONE)
		(void)err_set(&report.update_failure, failed, 0, "It failed.");
	event.report = &report;
	feed(event);
}

static void run_parent(struct fleet_quota quota)
{
	create(PARENT, "", 1, quota);
	say(PARENT, REPORT_RUNNING, NULL, NULL, FAIL_NONE);
	ck_assert_int_eq(saved(PARENT)->state, SANDBOX_RUNNING);
}

static const struct fleet_reply *reply_to(uint64_t request)
{
	for (size_t i = 0; i < rig.out.n_replies; i++)
		if (rig.out.replies[i].request == request)
			return &rig.out.replies[i];
	return NULL;
}

static enum fail_code answer_to(uint64_t request)
{
	const struct fleet_reply *reply = reply_to(request);

	ck_assert_msg(reply != NULL, "no reply to %llu", (unsigned long long)request);
	return reply->err.code;
}

/* ---- snapshots ---- */

static const char snap_id[ID_SIZE] = "ssssssssssssssssssss";

static void ask_snapshot_as(uint64_t request, const char *id, struct fleet_quota quota)
{
	struct fleet_snapshot ask = { .request = request, .sandbox = PARENT, .name = "mine", .quota = quota };

	memcpy(ask.id, id, ID_SIZE);
	feed((struct fleet_event){ .type = FLEET_SNAPSHOT, .snapshot = &ask });
}

static void ask_snapshot(uint64_t request)
{
	ask_snapshot_as(request, snap_id, (struct fleet_quota){ 0 });
}

static struct snapshot_info info_of(const char *id)
{
	struct snapshot_info info = { .image_size = 5, .vcpus = 1, .memory_mib = 1000, .disk_mib = 100, .size_mib = 40,
		.sandbox = PARENT, .tenant = "tenant", .template_name = "base", .image_digest = DIGEST,
		.cpu_class = "amd-25-1", .created_usec = 77 };

	memcpy(info.id, id, ID_SIZE);
	return info;
}

static void say_made(const char *id)
{
	struct snapshot_info info = info_of(id);

	say(PARENT, REPORT_RUNNING, rig.command.operation, &info, FAIL_NONE);
}

static void make_snapshot(void)
{
	ask_snapshot(50);
	say_made(snap_id);
	ck_assert_int_eq(answer_to(50), FAIL_NONE);
}

static void drop(uint64_t request)
{
	struct fleet_event event = { .type = FLEET_DROP_SNAPSHOT };

	event.drop_snapshot.request = request;
	event.drop_snapshot.snapshot = snap_id;
	feed(event);
}

static void say_dropped(int node, const char *id)
{
	struct fleet_event event = of_node(FLEET_NODE_SNAPSHOT_DROPPED, node);

	event.dropped_snapshot = id;
	feed(event);
}

static const struct desired_set *desired(void)
{
	for (size_t i = 0; i < rig.out.n_sends; i++)
		if (rig.out.sends[i].type == SEND_DESIRED)
			return &rig.out.sends[i].desired;
	return NULL;
}

static size_t n_shown(void)
{
	char ids[KEPT_MAX][ID_SIZE];

	return fleet_snapshot_list(rig.fleet, "tenant", "", 0, ids, KEPT_MAX);
}

START_TEST(test_one_is_made)
{
	struct fleet_quota used;
	uint64_t number;

	ask_snapshot(50);
	ck_assert_uint_eq(rig.n_snapshot, 1);
	ck_assert_str_eq(rig.command.snapshot, snap_id);
	ck_assert_str_eq(rig.command.sandbox, PARENT);
	ck_assert_uint_eq(rig.out.n_replies, 0);
	ck_assert_int_eq(saved_snapshot(snap_id)->state, SNAPSHOT_MAKING);
	number = rig.command.number;
	pass(6);
	ck_assert_uint_ge(rig.n_snapshot, 2); /* again until it is answered, and the same one */
	ck_assert_uint_eq(rig.command.number, number);
	ck_assert_str_eq(rig.command.operation, saved_snapshot(snap_id)->operation);
	say(PARENT, REPORT_RUNNING, NULL, NULL, FAIL_NONE); /* from before */
	ck_assert_int_eq(saved_snapshot(snap_id)->state, SNAPSHOT_MAKING);
	say_made(snap_id);
	ck_assert_int_eq(answer_to(50), FAIL_NONE);
	ck_assert_str_eq(reply_to(50)->snapshot->id, snap_id);
	ck_assert_str_eq(reply_to(50)->snapshot->name, "mine");
	ck_assert_int_eq(saved_snapshot(snap_id)->state, SNAPSHOT_READY);
	ck_assert_uint_eq(saved_snapshot(snap_id)->size_mib, 40);
	ck_assert_str_eq(saved_snapshot(snap_id)->cpu_class, "amd-25-1");
	ck_assert_uint_eq(saved_snapshot(snap_id)->spec->n_env, 0); /* the sandbox's environment is its own */
	ck_assert_str_eq(saved_snapshot(snap_id)->spec->access_token, "");
	ck_assert_int_eq(saved(PARENT)->state, SANDBOX_RUNNING);
	fleet_quota_used(rig.fleet, "tenant", &used);
	ck_assert_uint_eq(used.snapshots, 1);
	ck_assert_uint_eq(used.kept_disk_mib, 40);
	rig.n_snapshot = 0;
	pass(30);
	ck_assert_uint_eq(rig.n_snapshot, 0);
	ck_assert_str_eq(fleet_snapshot_named(rig.fleet, "tenant", "mine")->id, snap_id);
	ck_assert_ptr_null(fleet_snapshot_named(rig.fleet, "another", "mine"));
}
END_TEST

START_TEST(test_one_that_fails_leaves_nothing)
{
	ask_snapshot(50);
	say(PARENT, REPORT_RUNNING, rig.command.operation, NULL, _i ? FAIL_NONE : FAIL_DISK_FULL);
	ck_assert_int_eq(answer_to(50), _i ? FAIL_SNAPSHOT_FAILED : FAIL_DISK_FULL);
	ck_assert_ptr_null(saved_snapshot(snap_id));
	ck_assert_uint_eq(n_shown(), 0);
	rig.n_snapshot = 0;
	pass(20);
	ck_assert_uint_eq(rig.n_snapshot, 0);
	ask_snapshot(51); /* and the next is taken */
	ck_assert_uint_eq(rig.n_snapshot, 1);
}
END_TEST

/* Its node keeps the last one of a life. */
START_TEST(test_the_stage_of_the_last_one)
{
	struct stage_record stage = { .stage = STAGE_SNAPSHOT, .outcome = RESULT_OK, .took_us = 5 };
	struct fleet_event event = of_node(FLEET_NODE_REPORT, 0);
	size_t n = 0;

	for (int i = 1; i <= 2; i++) {
		struct sandbox_report report = { .generation = saved(PARENT)->generation, .state = REPORT_RUNNING,
			.accepted = true, .version = ++rig.version, .stages = &stage, .n_stages = 1 };

		stage.began_us = i * USEC_PER_SEC;
		memcpy(report.sandbox, PARENT, ID_SIZE);
		event.report = &report;
		feed(event);
	}
	for (size_t i = 0; i < saved(PARENT)->n_stages; i++)
		if (saved(PARENT)->stages[i].stage == STAGE_SNAPSHOT) {
			ck_assert_int_eq(saved(PARENT)->stages[i].began_us, 2 * USEC_PER_SEC);
			n++;
		}
	ck_assert_uint_eq(n, 1);
}
END_TEST

static void set_timeout(uint64_t request)
{
	struct fleet_event event = { .type = FLEET_SET_TIMEOUT };

	event.set_timeout.request = request;
	event.set_timeout.sandbox = PARENT;
	event.set_timeout.timeout_s = 60;
	feed(event);
}

/* A node names the last operation alone: each is answered before the next is sent. */
START_TEST(test_one_change_at_a_time)
{
	struct fleet_event pause = { .type = FLEET_PAUSE };
	char update[ID_SIZE] = "";

	set_timeout(60);
	for (size_t i = 0; i < rig.out.n_sends; i++)
		if (rig.out.sends[i].type == SEND_UPDATE)
			memcpy(update, rig.out.sends[i].update.operation, ID_SIZE);
	ask_snapshot(50);
	ck_assert_uint_eq(rig.n_snapshot, 0);
	say(PARENT, REPORT_RUNNING, update, NULL, FAIL_NONE);
	ck_assert_int_eq(answer_to(60), FAIL_NONE);
	ck_assert_uint_eq(rig.n_snapshot, 1);
	rig.n_update = 0;
	set_timeout(61);
	pause.pause.request = 62;
	pause.pause.sandbox = PARENT;
	feed(pause);
	ck_assert_int_eq(answer_to(62), FAIL_SNAPSHOTTING);
	ask_snapshot_as(63, "tttttttttttttttttttt", (struct fleet_quota){ 0 });
	ck_assert_int_eq(answer_to(63), FAIL_SNAPSHOTTING);
	pass(30);
	ck_assert_uint_eq(rig.n_update, 0); /* it waits, and is not given up */
	say_made(snap_id);
	ck_assert_int_eq(answer_to(50), FAIL_NONE);
	ck_assert_uint_eq(rig.n_update, 1);
}
END_TEST

START_TEST(test_an_older_agent_is_not_asked)
{
	make_snapshot();
	rig.is_old[0] = true;
	greet(0);
	say_inventory(0, NULL, 0);
	ck_assert_int_eq(saved_snapshot(snap_id)->state, SNAPSHOT_READY); /* what it does not speak of is there */
	ask_snapshot_as(51, "tttttttttttttttttttt", (struct fleet_quota){ 0 });
	ck_assert_int_eq(answer_to(51), FAIL_SNAPSHOT_UNSUPPORTED);
	create("qqqqqqqqqqqqqqqqqqqq", snap_id, 52, (struct fleet_quota){ 0 });
	ck_assert_int_eq(answer_to(52), FAIL_SNAPSHOT_UNSUPPORTED);
}
END_TEST

/* Seconds until there is an answer; at most `most`. */
static int wait_for(uint64_t request, int most)
{
	int s;

	for (s = 0; s < most && !reply_to(request); s++)
		pass(1);
	return s;
}

/* Whoever waits is told; what is there later is in the list. After the node's own time it is given up. */
START_TEST(test_one_that_takes_long)
{
	struct fleet_quota used;

	ask_snapshot(50);
	ck_assert_int_le(wait_for(50, 60), 51);
	ck_assert_int_eq(answer_to(50), FAIL_SNAPSHOTTING);
	pass(_i ? 320 : 250);
	fleet_quota_used(rig.fleet, "tenant", &used);
	ck_assert_uint_eq(used.snapshots, _i ? 0 : 1);
	say_made(snap_id);
	ck_assert_int_eq(saved_snapshot(snap_id)->state, _i ? SNAPSHOT_DROPPING : SNAPSHOT_READY);
	ck_assert_uint_eq(n_shown(), _i ? 0 : 1);
	ck_assert_uint_eq(rig.n_drop, _i ? 1 : 0);
}
END_TEST

/* It is given up, and what the node made of it meanwhile is dropped. */
START_TEST(test_its_node_is_lost_meanwhile)
{
	ask_snapshot(50);
	rig.silent[0] = true;
	(void)wait_for(50, 70);
	ck_assert_int_ne(answer_to(50), FAIL_NONE);
	pass(30);
	ck_assert_uint_eq(n_shown(), 0);
	restart(); /* and known over a restart */
	greet(0);
	if (_i) {
		struct snapshot_info info = info_of(snap_id);

		say_inventory(0, &info, 1);
	} else {
		say_inventory(0, NULL, 0);
		ck_assert_uint_ge(rig.n_snapshot, 2); /* until its answer says whether there is one */
		say_made(snap_id);
	}
	ck_assert_int_eq(saved_snapshot(snap_id)->state, SNAPSHOT_DROPPING);
	ck_assert_uint_ge(rig.n_drop, 1);
	ck_assert_uint_eq(n_shown(), 0);
	say_dropped(0, snap_id);
	ck_assert_ptr_null(saved_snapshot(snap_id));
}
END_TEST

START_TEST(test_the_sandbox_ends_meanwhile)
{
	struct snapshot_info info = info_of(snap_id);

	ask_snapshot(50);
	if (_i == 0) { /* the last word names it */
		say(PARENT, REPORT_ENDED, rig.command.operation, &info, FAIL_NONE);
		ck_assert_int_eq(answer_to(50), FAIL_NONE);
		ck_assert_int_eq(saved_snapshot(snap_id)->state, SNAPSHOT_READY);
		return;
	}
	if (_i == 1)
		say(PARENT, REPORT_ENDED, NULL, NULL, FAIL_VM_VANISHED);
	else /* its node put it to sleep by itself */
		say(PARENT, REPORT_PAUSED, NULL, NULL, FAIL_NONE);
	ck_assert_int_eq(answer_to(50), _i == 1 ? FAIL_SANDBOX_GONE : FAIL_CONFLICT);
	ck_assert_uint_eq(rig.n_drop, 1);
	say_dropped(1, snap_id); /* another's word */
	ck_assert_ptr_nonnull(saved_snapshot(snap_id));
	say_dropped(0, snap_id);
	ck_assert_ptr_null(saved_snapshot(snap_id));
}
END_TEST

START_TEST(test_one_is_deleted)
{
	struct fleet_quota used;
	struct snapshot_info info = info_of(snap_id);

	ask_snapshot(50);
	drop(51);
	ck_assert_int_eq(answer_to(51), FAIL_SNAPSHOTTING);
	say_made(snap_id);
	if (_i) { /* its node is away: it hears of it when it is back */
		rig.silent[0] = true;
		feed(of_node(FLEET_NODE_DISCONNECTED, 0));
	}
	drop(52);
	ck_assert_int_eq(answer_to(52), FAIL_NONE);
	ck_assert_uint_eq(n_shown(), 0);
	fleet_quota_used(rig.fleet, "tenant", &used);
	ck_assert_uint_eq(used.snapshots, 0);
	ck_assert_uint_eq(used.kept_disk_mib, 0);
	drop(53);
	ck_assert_int_eq(answer_to(53), FAIL_SNAPSHOT_NOT_FOUND);
	create("qqqqqqqqqqqqqqqqqqqq", snap_id, 54, (struct fleet_quota){ 0 });
	ck_assert_int_eq(answer_to(54), FAIL_SNAPSHOT_NOT_FOUND);
	if (_i) {
		ck_assert_uint_eq(rig.n_drop, 0);
		rig.silent[0] = false;
		rig.session++;
		greet(0);
		say_inventory(0, &info, 1);
		ck_assert_uint_eq(desired()->n_snapshots, 0);
	} else {
		pass(6);
		ck_assert_uint_ge(rig.n_drop, 2);
	}
	ck_assert_uint_ge(rig.n_drop, 1);
	ck_assert_str_eq(rig.dropped, snap_id);
	say_dropped(0, snap_id);
	ck_assert_ptr_null(saved_snapshot(snap_id));
}
END_TEST

/* One that is kept is named; one that nobody knows is not; one that is missing is lost. */
START_TEST(test_inventories)
{
	struct snapshot_info infos[2] = { info_of(snap_id), info_of("uuuuuuuuuuuuuuuuuuuu") };

	make_snapshot();
	restart();
	greet(0);
	say_inventory(0, infos, 2);
	ck_assert_uint_eq(desired()->n_snapshots, 1);
	ck_assert_str_eq(desired()->snapshots[0], snap_id);
	ck_assert_ptr_null(saved_snapshot(infos[1].id));
	rig.session++;
	greet(0);
	say_inventory(0, NULL, 0);
	ck_assert_int_eq(saved_snapshot(snap_id)->state, SNAPSHOT_LOST);
	create("qqqqqqqqqqqqqqqqqqqq", snap_id, 54, (struct fleet_quota){ 0 });
	ck_assert_int_eq(answer_to(54), FAIL_SNAPSHOT_LOST);
	drop(55);
	ck_assert_int_eq(answer_to(55), FAIL_NONE);
	ck_assert_uint_eq(n_shown(), 0);
	ck_assert_uint_eq(rig.n_drop, 1); /* a part of it may be there yet */
	ck_assert_str_eq(rig.dropped, snap_id);
	say_dropped(0, snap_id);
	ck_assert_ptr_null(saved_snapshot(snap_id));
}
END_TEST

/* The inventory was put together before; what was said since is newer. */
START_TEST(test_an_inventory_misses_none_that_was_made_since)
{
	ask_snapshot(50);
	rig.session++;
	greet(0);
	say_made(snap_id);
	say_inventory(0, NULL, 0);
	ck_assert_int_eq(saved_snapshot(snap_id)->state, SNAPSHOT_READY);
}
END_TEST

/* A restored store is older than the nodes. */
START_TEST(test_a_restored_store_adopts)
{
	struct snapshot_info info = info_of("uuuuuuuuuuuuuuuuuuuu");

	memcpy(rig.lineage, OTHER_LINEAGE, ID_SIZE);
	restart();
	greet(0);
	say_inventory(0, &info, 1);
	ck_assert_uint_eq(desired()->n_snapshots, 1);
	ck_assert_int_eq(saved_snapshot(info.id)->state, SNAPSHOT_READY);
	ck_assert_str_eq(saved_snapshot(info.id)->tenant, "tenant");
	ck_assert_uint_eq(saved_snapshot(info.id)->spec->memory_mib, 1000);
	rig.session++;
	greet(0);
	memcpy(info.id, "vvvvvvvvvvvvvvvvvvvv", ID_SIZE); /* it is settled now */
	say_inventory(0, &info, 1);
	ck_assert_uint_eq(desired()->n_snapshots, 0);
	ck_assert_ptr_null(saved_snapshot(info.id));
}
END_TEST

/* What was imported on a node that is settled is dropped, unless an operator said for whom it is. */
START_TEST(test_an_imported_one_is_taken)
{
	struct snapshot_info info = info_of("uuuuuuuuuuuuuuuuuuuu");
	struct fleet_event take = of_node(FLEET_NODE_TAKE, _i == 1);

	take.take_for = "guests";
	feed(take);
	info.is_live = _i == 2; /* a fork's own, which is no copy of anything */
	_i == 3 ? pass(3600) : _i == 4 ? restart() : (void) 0;
	rig.session++;
	greet(0);
	say_inventory(0, &info, 1);
	ck_assert_uint_eq(desired()->n_snapshots, _i == 0);
	ck_assert_str_eq(_i == 0 ? saved_snapshot(info.id)->tenant : "guests", "guests"); /* not the tenant that the node names */
}
END_TEST

START_TEST(test_its_node_is_removed)
{
	struct fleet_event event = { .type = FLEET_NODE_REVOKED };

	make_snapshot();
	memcpy(event.node, node_id(0), ID_SIZE);
	if (_i)
		ask_snapshot_as(51, "tttttttttttttttttttt", (struct fleet_quota){ 0 });
	feed(event);
	if (_i)
		ck_assert_int_ne(answer_to(51), FAIL_NONE);
	ck_assert_int_eq(saved_snapshot(snap_id)->state, SNAPSHOT_LOST);
	restart();
	ck_assert_int_eq(saved_snapshot(snap_id)->state, SNAPSHOT_LOST);
	ck_assert_uint_eq(n_shown(), 1);
	drop(56); /* and there is nobody to be told */
	ck_assert_int_eq(answer_to(56), FAIL_NONE);
	ck_assert_ptr_null(saved_snapshot(snap_id));
}
END_TEST

/* ---- beginning as one ---- */

/* Its node is full of such; the others are emptier, and stay so. */
static void fill_its_node(void)
{
	for (char c = 'h'; c < 'n'; c++) {
		char id[ID_SIZE];

		memset(id, c, ID_LEN);
		id[ID_LEN] = '\0';
		create(id, snap_id, 0, (struct fleet_quota){ 0 });
		if (!saved(id) || !*saved(id)->node)
			break;
		ck_assert_int_eq(node_of(id), 0);
		say(id, REPORT_RUNNING, NULL, NULL, FAIL_NONE);
	}
}

START_TEST(test_it_begins_where_the_snapshot_is)
{
	make_snapshot();
	fill_its_node();
	create("qqqqqqqqqqqqqqqqqqqq", snap_id, 54, (struct fleet_quota){ 0 });
	ck_assert_int_eq(answer_to(54), FAIL_NO_CAPACITY);
	ck_assert_ptr_nonnull(strstr(reply_to(54)->err.msg, "alone has the snapshot"));
	ck_assert_ptr_nonnull(strstr(reply_to(54)->err.msg, node_id(0)));
}
END_TEST

/* What is killed gives up its room a moment later. */
START_TEST(test_its_node_is_about_to_have_room)
{
	const char killed[] = "hhhhhhhhhhhhhhhhhhhh";
	struct fleet_event event = { .type = FLEET_DESTROY };

	make_snapshot();
	fill_its_node();
	event.destroy.sandbox = killed;
	event.destroy.reason = END_REQUEST;
	feed(event);
	create("qqqqqqqqqqqqqqqqqqqq", snap_id, 54, (struct fleet_quota){ 0 });
	ck_assert_ptr_null(reply_to(54));
	say(killed, REPORT_ENDED, NULL, NULL, FAIL_NONE);
	ck_assert_int_eq(node_of("qqqqqqqqqqqqqqqqqqqq"), 0);
}
END_TEST

START_TEST(test_its_node_is_not_there)
{
	make_snapshot();
	rig.silent[0] = true;
	feed(of_node(FLEET_NODE_DISCONNECTED, 0));
	create("qqqqqqqqqqqqqqqqqqqq", snap_id, 54, (struct fleet_quota){ 0 });
	ck_assert_uint_eq(rig.out.n_replies, 0); /* an agent that is started again is away for a moment */
	(void)wait_for(54, 30);
	ck_assert_int_eq(answer_to(54), FAIL_NO_COMPATIBLE_NODE);
	ck_assert_ptr_nonnull(strstr(reply_to(54)->err.msg, "has the snapshot"));
}
END_TEST

/* ---- forks ---- */

#define FORK_A "ffffffffffffffffffff"
#define FORK_B "gggggggggggggggggggg"

static void ask_fork(uint64_t request, struct fleet_quota quota)
{
	const char forks[2][ID_SIZE] = { FORK_A, FORK_B };
	struct fleet_snapshot ask = { .request = request, .sandbox = PARENT, .forks = forks, .n_forks = 2, .quota = quota,
		.timeout_s = 33 };

	memcpy(ask.id, snap_id, ID_SIZE);
	feed((struct fleet_event){ .type = FLEET_SNAPSHOT, .snapshot = &ask });
}

START_TEST(test_a_fork)
{
	ask_fork(70, (struct fleet_quota){ 0 });
	ck_assert_uint_eq(n_shown(), 0); /* nobody's to see */
	drop(71);
	ck_assert_int_eq(answer_to(71), FAIL_SNAPSHOT_NOT_FOUND);
	say_made(snap_id);
	ck_assert_ptr_null(reply_to(70));
	ck_assert_int_eq(node_of(FORK_A), 0);
	ck_assert_int_eq(node_of(FORK_B), 0);
	ck_assert_str_eq(saved(FORK_A)->spec->snapshot, snap_id);
	ck_assert_uint_eq(saved(FORK_A)->spec->n_env, 1);
	ck_assert_ptr_null(saved(FORK_A)->spec->setup_command); /* that was done to its parent */
	ck_assert_uint_eq(saved(FORK_A)->spec->timeout_s, 33);
	ck_assert_str_ne(saved(FORK_A)->spec->access_token, "secret");
	ck_assert_str_ne(saved(FORK_A)->spec->access_token, saved(FORK_B)->spec->access_token);
	say(FORK_A, REPORT_RUNNING, NULL, NULL, FAIL_NONE);
	ck_assert_ptr_null(reply_to(70));
	ck_assert_uint_eq(rig.n_drop, 0);
	say(FORK_B, REPORT_ENDED, NULL, NULL, FAIL_SNAPSHOT_NOT_FOUND);
	ck_assert_int_eq(answer_to(70), FAIL_NONE);
	ck_assert_uint_eq(reply_to(70)->n_forks, 2);
	ck_assert_int_eq(reply_to(70)->forks[0].err.code, FAIL_NONE);
	ck_assert_str_eq(reply_to(70)->forks[1].sandbox, FORK_B);
	ck_assert_int_eq(reply_to(70)->forks[1].err.code, FAIL_SNAPSHOT_NOT_FOUND);
	ck_assert_uint_eq(rig.n_drop, 1);
	say_dropped(0, snap_id);
	ck_assert_ptr_null(saved_snapshot(snap_id));
	ck_assert_int_eq(saved(FORK_A)->state, SANDBOX_RUNNING);
}
END_TEST

START_TEST(test_a_fork_within_its_quota)
{
	ask_fork(70, (struct fleet_quota){ .sandboxes = 1 });
	ck_assert_int_eq(answer_to(70), FAIL_QUOTA_EXCEEDED);
	ask_fork(71, (struct fleet_quota){ .sandboxes = 2 });
	say_made(snap_id);
	say(FORK_A, REPORT_RUNNING, NULL, NULL, FAIL_NONE);
	ck_assert_int_eq(answer_to(71), FAIL_NONE);
	ck_assert_int_eq(reply_to(71)->forks[0].err.code, FAIL_NONE);
	ck_assert_int_eq(reply_to(71)->forks[1].err.code, FAIL_QUOTA_EXCEEDED);
}
END_TEST

/* Whatever was durable when the scheduler died is carried through: 0 before, 1 while the sandboxes begin, 2 after. 3: as far as
 * the tenant may. */
START_TEST(test_a_fork_over_a_restart)
{
	struct snapshot_info info = info_of(snap_id);

	ask_fork(70, (struct fleet_quota){ 0 });
	if (_i == 1 || _i == 2)
		say_made(snap_id);
	if (_i == 2) {
		say(FORK_A, REPORT_RUNNING, NULL, NULL, FAIL_NONE);
		say(FORK_B, REPORT_RUNNING, NULL, NULL, FAIL_NONE);
		ck_assert_int_eq(saved_snapshot(snap_id)->state, SNAPSHOT_DROPPING);
	}
	rig.n_drop = 0;
	rig.quota.sandboxes = _i == 3 ? 2 : 0; /* the parent, and one more */
	restart();
	greet(0);
	say_inventory(0, &info, 1);
	if (_i == 3) {
		ck_assert_int_eq(node_of(FORK_A), 0);
		ck_assert_ptr_null(saved(FORK_B));
		return;
	}
	if (_i == 0) {
		ck_assert_int_eq(node_of(FORK_A), 0);
		ck_assert_uint_eq(desired()->n_snapshots, 1);
		say(FORK_A, REPORT_RUNNING, NULL, NULL, FAIL_NONE);
		ck_assert_uint_eq(rig.n_drop, 0);
		say(FORK_B, REPORT_RUNNING, NULL, NULL, FAIL_NONE);
	}
	ck_assert_int_eq(saved(FORK_A)->state, SANDBOX_RUNNING);
	ck_assert_int_eq(saved(FORK_B)->state, SANDBOX_RUNNING);
	pass(3);
	ck_assert_uint_ge(rig.n_drop, 1);
	say_dropped(0, snap_id);
	ck_assert_ptr_null(saved_snapshot(snap_id));
}
END_TEST

/* It waits for as long as the node may take. Then who asked was told that it failed: nothing begins behind its back. */
START_TEST(test_a_fork_that_takes_long)
{
	ask_fork(70, (struct fleet_quota){ 0 });
	if (_i == 0) {
		ck_assert_int_eq(wait_for(70, 300), 300);
		say_made(snap_id);
		ck_assert_int_eq(node_of(FORK_A), 0);
		return;
	}
	ck_assert_int_lt(wait_for(70, 400), 400);
	ck_assert_int_eq(answer_to(70), FAIL_NODE_UNREACHABLE);
	say_made(snap_id);
	ck_assert_ptr_null(saved(FORK_A));
	ck_assert_int_eq(saved_snapshot(snap_id)->state, SNAPSHOT_DROPPING);
}
END_TEST

#include "unit/test-fleet-kept.h"

/* ---- a lost node ---- */

/* Its VM had a lease, whether it ran on or was being paused. */
START_TEST(test_a_pause_in_flight_is_replaced)
{
	uint64_t former = saved(PARENT)->generation;
	bool is_answered = false;

	rig.pool.replace_on_loss = true;
	rig.pool.lost_after_usec = 60 * USEC_PER_SEC;
	rig.pool.self_stop_after_usec = 40 * USEC_PER_SEC;
	rig.lease_ms = 40000;
	feed((struct fleet_event){ .type = FLEET_LOAD_POOL, .pool = &rig.pool });
	pass(2);
	pause_parent(80, (struct fleet_quota){ 0 });
	ck_assert_int_eq(saved(PARENT)->state, SANDBOX_PAUSING);
	rig.silent[0] = true;
	for (int s = 0; s < 70; s++) {
		pass(1);
		is_answered = is_answered || reply_to(80);
	}
	ck_assert(is_answered);
	ck_assert_uint_gt(saved(PARENT)->generation, former);
	ck_assert_int_ne(node_of(PARENT), 0);
	say(PARENT, REPORT_RUNNING, NULL, NULL, FAIL_NONE);
	ck_assert_int_eq(saved(PARENT)->state, SANDBOX_RUNNING);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fleet-snapshot");
	TCase *tc = tcase_create("fleet-snapshot");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_one_is_made);
	tcase_add_loop_test(tc, test_one_that_fails_leaves_nothing, 0, 2);
	tcase_add_test(tc, test_the_stage_of_the_last_one);
	tcase_add_test(tc, test_one_change_at_a_time);
	tcase_add_test(tc, test_an_older_agent_is_not_asked);
	tcase_add_loop_test(tc, test_one_that_takes_long, 0, 2);
	tcase_add_loop_test(tc, test_its_node_is_lost_meanwhile, 0, 2);
	tcase_add_loop_test(tc, test_the_sandbox_ends_meanwhile, 0, 3);
	tcase_add_loop_test(tc, test_one_is_deleted, 0, 2);
	tcase_add_test(tc, test_inventories);
	tcase_add_test(tc, test_an_inventory_misses_none_that_was_made_since);
	tcase_add_test(tc, test_a_restored_store_adopts);
	tcase_add_loop_test(tc, test_an_imported_one_is_taken, 0, 5);
	tcase_add_loop_test(tc, test_its_node_is_removed, 0, 2);
	tcase_add_test(tc, test_it_begins_where_the_snapshot_is);
	tcase_add_test(tc, test_its_node_is_about_to_have_room);
	tcase_add_test(tc, test_its_node_is_not_there);
	tcase_add_test(tc, test_a_fork);
	tcase_add_test(tc, test_a_fork_within_its_quota);
	tcase_add_loop_test(tc, test_a_fork_over_a_restart, 0, 4);
	tcase_add_loop_test(tc, test_a_fork_that_takes_long, 0, 2);
	add_kept_tests(tc);
	tcase_add_test(tc, test_a_pause_in_flight_is_replaced);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
