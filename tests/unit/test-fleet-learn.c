/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fleet learns from starts: a broken node costs three of anybody's, a bad image costs no node its place, a
 * pair is barred alone, a probe brings back what was mended, a restart forgets nothing, chance is not taken for guilt.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fleet/fleet.h"
#include "lib/suite.h"

#define POOL "pool"
#define N_NODES 4
#define PENDING_MAX 256

enum image { IMAGE_GOOD, IMAGE_OTHER, IMAGE_BAD, N_IMAGES };
static const char digests[N_IMAGES][DIGEST_SIZE] = {
	"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	"sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
	"sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
};

struct pending {
	char node[ID_SIZE], sandbox[ID_SIZE];
	uint64_t generation;
	enum image image;
};

/* What a start does: FAIL_NONE, or how it fails. */
typedef enum fail_code (*behaviour)(unsigned int node, enum image image, void *user);

static struct rig {
	struct fleet *fleet;
	struct rng rng;
	struct moment now;
	struct fleet_actions out;
	struct node_record records[N_NODES]; /* durable */
	struct pending pending[PENDING_MAX];
	size_t n_pending;
	behaviour behave;
	void *user;
	unsigned int starts[N_NODES], failures[N_NODES], quarantines, replies_failed, replies_ok;
	uint64_t request;
} rig;

static void node_id(unsigned int n, char ret[static ID_SIZE])
{
	memset(ret, 'a' + (int)n, ID_LEN);
	ret[ID_LEN] = '\0';
}

static unsigned int node_number(const char *id)
{
	return (unsigned int)(id[0] - 'a');
}

static void feed(struct fleet_event event);

static void keep(void)
{
	for (size_t i = 0; i < rig.out.n_puts; i++)
		if (rig.out.puts[i].type == FLEET_PUT_NODE) {
			struct node_record *record = &rig.records[node_number(rig.out.puts[i].id)];

			node_record_deinit(record);
			ck_assert_int_eq(node_record_copy(rig.out.puts[i].node, record), 0);
		}
	for (size_t i = 0; i < rig.out.n_sends; i++) {
		const struct fleet_send *send = &rig.out.sends[i];
		struct pending *pending;

		if (send->type != SEND_CREATE)
			continue;
		ck_assert_uint_lt(rig.n_pending, PENDING_MAX);
		pending = &rig.pending[rig.n_pending++];
		memcpy(pending->node, send->node, ID_SIZE);
		memcpy(pending->sandbox, send->create.sandbox, ID_SIZE);
		pending->generation = send->create.generation;
		for (unsigned int k = 0; k < N_IMAGES; k++)
			if (strcmp(send->create.spec->image_digest, digests[k]) == 0)
				pending->image = (enum image)k;
	}
	for (size_t i = 0; i < rig.out.n_replies; i++)
		if (err_is_set(&rig.out.replies[i].err))
			rig.replies_failed++;
		else
			rig.replies_ok++;
	for (size_t i = 0; i < rig.out.n_notices; i++)
		rig.quarantines += rig.out.notices[i].err.code == FAIL_NODE_QUARANTINED;
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

static void report(const struct pending *pending, enum report_state state, enum fail_code code,
	uint64_t version)
{
	struct fleet_event event = of_node(FLEET_NODE_REPORT, pending->node);
	struct sandbox_report report = { .generation = pending->generation,
		.version = version,
		.state = state,
		.accepted = true };

	memcpy(report.sandbox, pending->sandbox, ID_SIZE);
	if (code != FAIL_NONE)
		(void)err_set_at(&report.failure,
			code == FAIL_VMM_CRASHED ? STAGE_KERNEL : failure_info(code)->stage, code, 0,
			"It failed.");
	event.report = &report;
	feed(event);
}

static void destroy(const struct pending *pending)
{
	struct fleet_event event = { .type = FLEET_DESTROY };

	event.destroy.sandbox = pending->sandbox;
	event.destroy.reason = END_REQUEST;
	feed(event);
	report(pending, REPORT_ENDED, FAIL_NONE, 9);
}

/* Every start that is under way ends, and what follows from it, until nothing is. */
static void settle(void)
{
	while (rig.n_pending) {
		struct pending one = rig.pending[0];
		unsigned int n = node_number(one.node);
		enum fail_code code;

		memmove(rig.pending, rig.pending + 1, --rig.n_pending * sizeof(one));
		code = rig.behave(n, one.image, rig.user);
		rig.starts[n]++;
		if (code != FAIL_NONE) {
			rig.failures[n]++;
			report(&one, REPORT_ENDED, code, 1);
		} else {
			report(&one, REPORT_RUNNING, FAIL_NONE, 1);
			destroy(&one);
		}
	}
}

static void create(enum image image)
{
	struct sandbox_spec *spec = spec_new();
	struct fleet_create create = { .request = ++rig.request,
		.tenant = "tenant",
		.pool = POOL,
		.spec = spec,
		.queue_usec = 20 * USEC_PER_SEC };

	memcpy(spec->template_name, "base", 5);
	memcpy(spec->image_digest, digests[image], DIGEST_SIZE);
	spec->vcpus = 1;
	spec->memory_mib = 256;
	feed((struct fleet_event){ .type = FLEET_CREATE, .create = &create });
	spec_unref(spec);
}

static void pass(int64_t seconds)
{
	struct heartbeat heartbeat = { .schedulable = true };

	for (int64_t i = 0; i < seconds; i++) {
		char id[ID_SIZE];

		rig.now.mono_usec += USEC_PER_SEC;
		rig.now.real_usec += USEC_PER_SEC;
		for (unsigned int n = 0; n < N_NODES; n++) {
			struct fleet_event event;

			node_id(n, id);
			event = of_node(FLEET_NODE_HEARTBEAT, id);
			event.heartbeat = &heartbeat;
			feed(event);
		}
		feed((struct fleet_event){ .type = FLEET_TICK });
		settle();
	}
}

static void start(void)
{
	struct pool_record pool = { .name = POOL, .cpu_overcommit_percent = 400 };
	struct hello hello = { .capacity = { 100000, 64, 500000, 200, 50, 4, 0 }, .boot_id = "boot" };
	struct fleet_config config;
	char id[ID_SIZE];

	rig.fleet = fleet_free(rig.fleet);
	rig.n_pending = 0;
	fleet_config_default(&config);
	config.epoch = 5;
	ck_assert_int_eq(fleet_new(&rig.fleet, &config), 0);
	feed((struct fleet_event){ .type = FLEET_LOAD_POOL, .pool = &pool });
	for (unsigned int i = 0; i < N_NODES; i++)
		feed((struct fleet_event){
			.type = FLEET_LOAD_NODE, .node_record = &rig.records[i] });
	feed((struct fleet_event){ .type = FLEET_LOADED });
	for (unsigned int i = 0; i < N_NODES; i++) {
		struct fleet_event event;

		node_id(i, id);
		memcpy(hello.instance, id, ID_SIZE);
		memcpy(hello.machine, id, ID_SIZE);
		event = of_node(FLEET_NODE_HELLO, id);
		event.hello = &hello;
		feed(event);
		event = of_node(FLEET_NODE_INVENTORY, id);
		event.inventory = &(struct inventory){ .complete = true, .number = 1 };
		feed(event);
	}
}

static void setup(void)
{
	memset(&rig, 0, sizeof(rig));
	rig.rng = rng_seeded(1);
	rig.now = (struct moment){ 1000 * USEC_PER_SEC, INT64_C(1750000000) * USEC_PER_SEC, 0 };
	for (unsigned int i = 0; i < N_NODES; i++) {
		node_id(i, rig.records[i].id);
		memcpy(rig.records[i].machine, rig.records[i].id, ID_SIZE);
		memcpy(rig.records[i].pool, POOL, sizeof(POOL));
	}
	start();
}

static void teardown(void)
{
	rig.fleet = fleet_free(rig.fleet);
	fleet_actions_clear(&rig.out);
	for (unsigned int i = 0; i < N_NODES; i++)
		node_record_deinit(&rig.records[i]);
}

static bool is_quarantined(unsigned int n)
{
	struct fleet_node_view view;
	char id[ID_SIZE];

	node_id(n, id);
	ck_assert_int_eq(fleet_node_get(rig.fleet, id, &view), 0);
	return view.record->facts[NODE_QUARANTINED].is_set;
}

static size_t count_quarantined(void)
{
	size_t count = 0;

	for (unsigned int n = 0; n < N_NODES; n++)
		count += is_quarantined(n);
	return count;
}

static size_t barred(unsigned int n)
{
	struct fleet_node_view view;
	char id[ID_SIZE];
	size_t count = 0;

	node_id(n, id);
	ck_assert_int_eq(fleet_node_get(rig.fleet, id, &view), 0);
	for (size_t i = 0; i < view.record->n_images; i++)
		count += view.record->images[i].is_barred;
	return count;
}

/* ---- behaviours ---- */

static enum fail_code all_well(unsigned int node, enum image image, void *user)
{
	(void)node;
	(void)image;
	(void)user;
	return FAIL_NONE;
}

static enum fail_code no_kvm_on_1(unsigned int node, enum image image, void *user)
{
	(void)image;
	(void)user;
	return node == 1 ? FAIL_KVM_UNAVAILABLE : FAIL_NONE;
}

static enum fail_code no_kernel_on_1(unsigned int node, enum image image, void *user)
{
	(void)image;
	(void)user;
	return node == 1 ? FAIL_KERNEL_MISSING : FAIL_NONE;
}

static enum fail_code bad_image(unsigned int node, enum image image, void *user)
{
	enum fail_code *code = user;

	(void)node;
	return image == IMAGE_BAD ? *code : FAIL_NONE;
}

static enum fail_code panics_on_1(unsigned int node, enum image image, void *user)
{
	(void)user;
	return image == IMAGE_OTHER && node == 1 ? FAIL_GUEST_PANIC : FAIL_NONE;
}

/* Once the guest runs the image breaks VMMs, everywhere but on node 0. */
static enum fail_code hostile_image(unsigned int node, enum image image, void *user)
{
	(void)user;
	return image == IMAGE_BAD && node != 0 ? FAIL_VMM_CRASHED : FAIL_NONE;
}

static enum fail_code by_chance(unsigned int node, enum image image, void *user)
{
	struct rng *rng = user;

	(void)node;
	(void)image;
	return rng_below(rng, 50) == 0 ? FAIL_VMM_START_FAILED : FAIL_NONE;
}

/* ---- tests ---- */

/* R041: 60 at once, in front of nodes that nothing is known of. */
START_TEST(test_broken_node_costs_three)
{
	struct fleet_node_view view;

	rig.behave = _i ? no_kernel_on_1 : no_kvm_on_1;
	for (unsigned int i = 0; i < 60; i++)
		create((enum image)(i % 2));
	settle();
	pass(20);
	for (unsigned int i = 0; i < 60; i++) {
		create(IMAGE_GOOD);
		settle();
	}
	ck_assert_uint_eq(rig.failures[1], 3);
	ck_assert_uint_eq(rig.replies_failed, 0);
	ck_assert_uint_eq(count_quarantined(), 1);
	ck_assert(is_quarantined(1));
	ck_assert_uint_eq(rig.quarantines, 1);
	ck_assert_int_eq(fleet_node_get(rig.fleet, "bbbbbbbbbbbbbbbbbbbb", &view), 0);
	ck_assert_str_eq(view.record->facts[NODE_QUARANTINED].who, "scheduler");
	ck_assert_ptr_nonnull(strstr(view.record->facts[NODE_QUARANTINED].why,
		_i ? "3 of its last 3 starts failed, last KERNEL_MISSING at vmm"
		   : "3 of its last 3 starts failed, last KVM_UNAVAILABLE at vmm"));
	ck_assert_int_gt(view.record->facts[NODE_QUARANTINED].since_us, 0);
	/* hours of probes that nobody waits for */
	pass(4 * 3600);
	ck_assert_uint_eq(rig.replies_failed, 0);
	ck_assert_uint_ge(rig.failures[1], 3 + 5);
	ck_assert_uint_le(rig.failures[1], 3 + 14); /* with back-off */
}
END_TEST

START_TEST(test_mended_node_comes_back)
{
	struct fleet_node_view view;

	rig.behave = no_kvm_on_1;
	for (unsigned int i = 0; i < 60; i++)
		create(IMAGE_GOOD);
	settle();
	ck_assert(is_quarantined(1));
	rig.behave = all_well;
	pass(40);
	ck_assert(!is_quarantined(1));
	ck_assert_int_eq(fleet_node_get(rig.fleet, "bbbbbbbbbbbbbbbbbbbb", &view), 0);
	ck_assert_ptr_nonnull(strstr(view.record->health.last_why, "KVM_UNAVAILABLE"));
	ck_assert_int_gt(view.record->health.last_until_us, view.record->health.last_since_us);
	ck_assert_uint_eq(view.n_sandboxes, 0); /* the canary is gone */
	memset(rig.starts, 0, sizeof(rig.starts));
	for (unsigned int i = 0; i < 40; i++)
		create(IMAGE_GOOD);
	settle();
	ck_assert_uint_ge(rig.starts[1], 5);
}
END_TEST

/* Whatever the image does, in the guest or to its VMM, every node stays. */
START_TEST(test_bad_image_costs_no_node)
{
	static const enum fail_code codes[] = { FAIL_GUEST_PANIC, FAIL_VMM_CRASHED,
		FAIL_ROOTFS_UNREADABLE };
	enum fail_code code = codes[_i];

	rig.behave = bad_image;
	rig.user = &code;
	for (unsigned int i = 0; i < 100; i++) {
		create(i % 4 ? IMAGE_BAD : IMAGE_GOOD);
		settle();
		pass(1);
	}
	ck_assert_uint_eq(count_quarantined(), 0);
	for (unsigned int n = 0; n < N_NODES; n++)
		ck_assert_uint_eq(barred(n), 0);
	ck_assert_uint_eq(rig.replies_failed, 75);
	ck_assert_uint_eq(rig.replies_ok, 25);
}
END_TEST

/* It starts somewhere, and breaks VMMs elsewhere: the pairs are barred, and no node is quarantined. */
START_TEST(test_hostile_image_costs_no_node)
{
	rig.behave = hostile_image;
	for (unsigned int i = 0; i < 300; i++) {
		create(i % 4 ? IMAGE_BAD : IMAGE_GOOD);
		settle();
		ck_assert_uint_eq(count_quarantined(), 0);
	}
	ck_assert_uint_eq(barred(0), 0);
	ck_assert_uint_ge(rig.replies_ok, 75);
}
END_TEST

START_TEST(test_pair_is_barred_alone_and_comes_back)
{
	rig.behave = panics_on_1;
	create(IMAGE_OTHER); /* somewhere it starts */
	for (unsigned int i = 0; i < 10; i++) {
		settle();
		for (unsigned int k = 0; k < 60; k++) /* so many that every node is needed */
			create(k % 2 ? IMAGE_OTHER : IMAGE_GOOD);
	}
	settle();
	pass(5);
	ck_assert_uint_eq(count_quarantined(), 0);
	ck_assert_uint_eq(barred(1), 1);
	ck_assert_uint_eq(rig.replies_failed, 0);
	ck_assert_uint_ge(rig.starts[1], 20); /* others are started there all the time */
	rig.behave = all_well;
	pass(40);
	ck_assert_uint_eq(barred(1), 0);
}
END_TEST

START_TEST(test_restart_forgets_nothing)
{
	rig.behave = no_kvm_on_1;
	for (unsigned int i = 0; i < 60; i++)
		create(IMAGE_GOOD);
	settle();
	ck_assert(is_quarantined(1));
	start();
	ck_assert(is_quarantined(1));
	for (unsigned int i = 0; i < 60; i++)
		create(IMAGE_GOOD);
	settle();
	ck_assert_uint_eq(rig.failures[1], 3);
	rig.behave = all_well;
	pass(40);
	ck_assert(!is_quarantined(1));
}
END_TEST

/* Two failures are remembered over a restart too: the third is the last. */
START_TEST(test_restart_in_the_middle)
{
	rig.behave = no_kvm_on_1;
	for (unsigned int i = 0; i < 40 && rig.failures[1] < 2; i++) {
		for (unsigned int k = 0; k < 2; k++)
			create(IMAGE_GOOD);
		settle();
	}
	ck_assert_uint_le(rig.failures[1], 2);
	ck_assert(!is_quarantined(1));
	start();
	for (unsigned int i = 0; i < 60; i++)
		create(IMAGE_GOOD);
	settle();
	ck_assert_uint_eq(rig.failures[1], 3);
	ck_assert(is_quarantined(1));
}
END_TEST

START_TEST(test_a_person_ends_it)
{
	struct fleet_event event = of_node(FLEET_NODE_FACT, "bbbbbbbbbbbbbbbbbbbb");

	rig.behave = no_kvm_on_1;
	for (unsigned int i = 0; i < 60; i++)
		create(IMAGE_GOOD);
	settle();
	ck_assert(is_quarantined(1));
	rig.behave = all_well;
	event.fact.fact = NODE_QUARANTINED;
	event.fact.who = "somebody";
	feed(event);
	ck_assert(!is_quarantined(1));
}
END_TEST

/* One start in fifty fails: with the bound of the test, 6 000 may quarantine once. */
/* Nobody waits for a start that was deleted: what broke it is evidence all the same. */
START_TEST(test_a_deleted_start_speaks_too)
{
	struct fleet_event event = { .type = FLEET_DESTROY };

	for (int i = 0; i < 3; i++) {
		struct pending one;

		rig.n_pending = 0;
		create(IMAGE_GOOD);
		ck_assert_uint_eq(rig.n_pending, 1);
		one = rig.pending[0];
		event.destroy.sandbox = one.sandbox;
		event.destroy.reason = END_REQUEST;
		feed(event);
		report(&one, REPORT_ENDED, FAIL_KVM_UNAVAILABLE, 2);
		ck_assert_uint_eq(rig.records[node_number(one.node)].health.failures, 1);
	}
}
END_TEST

START_TEST(test_chance_is_not_guilt)
{
	struct rng rng = rng_seeded(5);

	rig.behave = by_chance;
	rig.user = &rng;
	for (unsigned int i = 0; i < 6000; i++) {
		create(IMAGE_GOOD);
		settle();
	}
	ck_assert_uint_le(rig.quarantines, 1);
	ck_assert_uint_ge(rig.failures[0] + rig.failures[1] + rig.failures[2] + rig.failures[3], 80);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fleet-learn");
	TCase *tcase = tcase_create("learn");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, test_broken_node_costs_three, 0, 2);
	tcase_add_test(tcase, test_mended_node_comes_back);
	tcase_add_loop_test(tcase, test_bad_image_costs_no_node, 0, 3);
	tcase_add_test(tcase, test_hostile_image_costs_no_node);
	tcase_add_test(tcase, test_pair_is_barred_alone_and_comes_back);
	tcase_add_test(tcase, test_restart_forgets_nothing);
	tcase_add_test(tcase, test_restart_in_the_middle);
	tcase_add_test(tcase, test_a_person_ends_it);
	tcase_add_test(tcase, test_chance_is_not_guilt);
	tcase_add_test(tcase, test_a_deleted_start_speaks_too);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
