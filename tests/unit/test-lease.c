/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's side of leases: what a VM is armed with, to when it is renewed, and what a heartbeat says of it. Until when
 * a VM lives is followed here as a VMM would, and compared with what the heartbeats promised.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/supervisor.h"
#include "lib/suite.h"

#define ID "aaaaaaaaaaaaaaaaaaaa"
#define OTHER "ddddddddddddddddddda"
#define OP "bbbbbbbbbbbbbbbbbbbb"
#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define LEASE_MS 40000u

struct rig {
	struct supervisor *core;
	struct sv_config config;
	struct rng rng;
	struct moment now;
	struct sv_actions out;
	struct sv_journal saved;
	bool has_saved;
	struct heartbeat heartbeat; /* the last */
	int64_t sent_usec;          /* when it went, boot time */
	int64_t vm_until_usec;      /* of the one VM; 0: no lease */
	unsigned int n_starts, n_renewals;
};

static struct rig rig;

static void note(const struct sv_action *action)
{
	if (action->type == SV_DO_JOURNAL_WRITE && !strcmp(action->sandbox, ID)) {
		sv_journal_deinit(&rig.saved);
		ck_assert_int_eq(sv_journal_copy(action->journal.record, &rig.saved), 0);
		rig.has_saved = true;
	} else if (action->type == SV_DO_SEND_HEARTBEAT) {
		rig.heartbeat = action->heartbeat;
		rig.sent_usec = rig.now.boot_usec;
	} else if (action->type == SV_DO_START_VMM || action->type == SV_DO_RENEW_VMM) {
		*(action->type == SV_DO_START_VMM ? &rig.n_starts : &rig.n_renewals) += 1;
		ck_assert_int_eq(action->lease.length_ms == 0, action->lease.until_usec == 0);
		ck_assert_ptr_nonnull(action->spec);
		rig.vm_until_usec = action->lease.until_usec;
	}
}

static void feed(struct sv_event event)
{
	sv_actions_clear(&rig.out);
	supervisor_step(rig.core, rig.now, &rig.rng, &event, &rig.out);
	ck_assert(!rig.out.no_memory);
	for (size_t i = 0; i < rig.out.n; i++)
		note(&rig.out.items[i]);
}

static void feed_of(enum sv_event_type type)
{
	struct sv_vmm_id vmm = { .pid = 4711, .start_ticks = 5 };
	struct sv_event event = { .type = type, .generation = 1 };

	memcpy(event.sandbox, ID, ID_SIZE);
	if (type == SV_EV_NETWORK_DONE)
		event.network.text = "none";
	else if (type == SV_EV_VMM_SPAWNED)
		event.spawned.vmm = &vmm;
	else if (type == SV_EV_VMM_JAILED)
		event.jailed.text = "none";
	else if (type == SV_EV_GUEST_HELLO)
		event.guest.boot_id = "boot";
	feed(event);
}

static void adopt(uint64_t lease_left_ms)
{
	struct sv_event event = { .type = SV_EV_ADOPTED, .generation = 1 };

	memcpy(event.sandbox, ID, ID_SIZE);
	event.guest.boot_id = "boot";
	event.guest.lease_left_ms = lease_left_ms;
	feed(event);
}

static void later(int64_t usec)
{
	rig.now.mono_usec += usec;
	rig.now.real_usec += usec;
	rig.now.boot_usec += usec;
	feed((struct sv_event){ .type = SV_EV_TICK });
}

static void welcome(uint32_t lease_ms)
{
	struct welcome welcome = { .node = "cccccccccccccccccccc",
		.pool = "pool",
		.heartbeat_ms = 1000,
		.lease_ms = lease_ms };

	feed((struct sv_event){ .type = SV_EV_LINK_UP });
	feed((struct sv_event){ .type = SV_EV_WELCOME, .epoch = 5, .welcome = &welcome });
}

static void grant_of(uint64_t number, uint32_t lease_ms, uint64_t epoch)
{
	struct lease_grant grant = { .heartbeat = number, .lease_ms = lease_ms };

	feed((struct sv_event){ .type = SV_EV_LEASE, .epoch = epoch, .lease = &grant });
}

static void grant(uint32_t lease_ms)
{
	grant_of(rig.heartbeat.number, lease_ms, 5);
}

static void make_core(void)
{
	struct sv_capacity capacity = { .capacity = { 8000, 4, 10000, 4, 2, 4, 0 }, .disk_free_mib = 10000 };

	rig.core = supervisor_free(rig.core);
	sv_config_default(&rig.config);
	memcpy(rig.config.host_boot_id, "boot-1", 7);
	memcpy(rig.config.run_base, "/run/croft", 11);
	ck_assert_int_eq(supervisor_new(&rig.core, &rig.config), 0);
	if (rig.has_saved)
		feed((struct sv_event){ .type = SV_EV_LOAD, .journal = &rig.saved });
	feed((struct sv_event){ .type = SV_EV_START });
	feed((struct sv_event){ .type = SV_EV_CAPACITY, .capacity = &capacity });
}

static void setup(void)
{
	memset(&rig, 0, sizeof(rig));
	rig.rng = rng_seeded(1);
	rig.now = (struct moment){ 1000 * USEC_PER_SEC, 5000 * USEC_PER_SEC, 3000 * USEC_PER_SEC };
	make_core();
}

static void teardown(void)
{
	sv_actions_clear(&rig.out);
	sv_journal_deinit(&rig.saved);
	rig.core = supervisor_free(rig.core);
}

static void drive_to_jailed(void)
{
	struct create_command command = { .generation = 1, .attempt = 1, .spec = spec_new() };

	memcpy(command.spec->template_name, "base", 5);
	memcpy(command.spec->image_digest, DIGEST, DIGEST_SIZE);
	command.spec->vcpus = 1;
	command.spec->memory_mib = 100;
	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, OP, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_CREATE, .epoch = 5, .create = &command });
	spec_unref(command.spec);
	feed_of(SV_EV_JOURNALLED);
	feed_of(SV_EV_IMAGE_DONE);
	feed_of(SV_EV_DISK_DONE);
	feed_of(SV_EV_NETWORK_DONE);
	feed_of(SV_EV_VMM_SPAWNED);
	feed_of(SV_EV_VMM_JAILED);
}

static void drive_to_running(void)
{
	struct sv_view view;

	drive_to_jailed();
	feed_of(SV_EV_VMM_STARTED);
	feed_of(SV_EV_VMM_USERSPACE);
	feed_of(SV_EV_GUEST_HELLO);
	feed_of(SV_EV_GUEST_CONFIGURED);
	feed_of(SV_EV_JOURNALLED);
	ck_assert_int_eq(supervisor_get(rig.core, ID, &view), 0);
	ck_assert_int_eq(view.state, SV_RUNNING);
}

static enum sv_state state(void)
{
	struct sv_view view;

	return supervisor_get(rig.core, ID, &view) == 0 ? view.state : SV_STATE_MAX_;
}

/* What the scheduler may go by: by then its VM has ended itself. */
static void check_promise(void)
{
	if (rig.heartbeat.lease_ms == 0)
		return;
	ck_assert_int_gt(rig.vm_until_usec, 0);
	ck_assert_int_le(rig.vm_until_usec, rig.sent_usec + rig.heartbeat.lease_ms * USEC_PER_MSEC);
}

START_TEST(test_a_lease_counts_from_the_heartbeat_that_it_answers)
{
	int64_t sent;

	welcome(LEASE_MS);
	ck_assert_uint_eq(rig.heartbeat.number, 1);
	ck_assert_uint_eq(rig.heartbeat.lease_ms, LEASE_MS); /* nothing runs: what comes will have one */
	grant(LEASE_MS);
	sent = rig.sent_usec;
	later(3 * USEC_PER_SEC);
	drive_to_running();
	ck_assert_int_eq(rig.vm_until_usec, sent + LEASE_MS * USEC_PER_MSEC);
	check_promise();
	for (int i = 0; i < 100; i++) {
		uint64_t number = rig.heartbeat.number;

		later(USEC_PER_SEC);
		ck_assert_uint_eq(rig.heartbeat.number, number + 1);
		sent = rig.sent_usec;
		check_promise();
		if (i % 3 == 0) { /* it comes late, and only now and then */
			later(USEC_PER_SEC / 2);
			grant(LEASE_MS);
			ck_assert_int_eq(rig.vm_until_usec, sent + LEASE_MS * USEC_PER_MSEC);
		}
		ck_assert_uint_ge(rig.heartbeat.lease_ms, LEASE_MS);
	}
	ck_assert_uint_eq(rig.n_renewals, 34);
	ck_assert_uint_eq(rig.n_starts, 1);
}
END_TEST

START_TEST(test_what_renews_nothing)
{
	int64_t until;

	welcome(LEASE_MS);
	grant(LEASE_MS);
	drive_to_running();
	later(USEC_PER_SEC);
	grant(LEASE_MS);
	until = rig.vm_until_usec;
	rig.n_renewals = 0;
	grant(LEASE_MS);                                           /* twice */
	grant_of(rig.heartbeat.number - 1, LEASE_MS, 5);           /* out of order */
	grant_of(rig.heartbeat.number + 1, LEASE_MS, 5);           /* of a heartbeat that never was */
	grant_of(UINT64_MAX, LEASE_MS, 5);
	grant_of(0, LEASE_MS, 5);
	later(USEC_PER_SEC);
	grant_of(rig.heartbeat.number, LEASE_MS, 4); /* an old leader's */
	for (int i = 0; i < 100; i++)
		later(USEC_PER_SEC);
	grant_of(rig.heartbeat.number - 70, LEASE_MS, 5); /* too old to be remembered */
	feed((struct sv_event){ .type = SV_EV_LINK_DOWN });
	grant(LEASE_MS); /* of a session that is over */
	ck_assert_uint_eq(rig.n_renewals, 0);
	ck_assert_int_eq(rig.vm_until_usec, until);
}
END_TEST

/* The grant of a heartbeat that went before the host slept is worth what is left of it. */
START_TEST(test_sleep_and_the_wall_clock)
{
	int64_t sent;

	welcome(LEASE_MS);
	grant(LEASE_MS);
	drive_to_running();
	later(USEC_PER_SEC);
	sent = rig.sent_usec;
	rig.now.boot_usec += 30 * USEC_PER_SEC; /* CLOCK_MONOTONIC stood still */
	rig.now.real_usec -= 600 * USEC_PER_SEC;
	grant(LEASE_MS);
	ck_assert_int_eq(rig.vm_until_usec, sent + LEASE_MS * USEC_PER_MSEC);
	rig.now.real_usec += INT64_C(2) * 365 * 86400 * USEC_PER_SEC;
	later(USEC_PER_SEC);
	grant(LEASE_MS);
	ck_assert_int_eq(rig.vm_until_usec, rig.now.boot_usec + LEASE_MS * USEC_PER_MSEC);
}
END_TEST

/* A VM without a lease is never started, whichever word comes first. */
START_TEST(test_a_start_waits_for_its_lease)
{
	welcome(LEASE_MS);
	drive_to_jailed();
	ck_assert_uint_eq(rig.n_starts, 0);
	later(USEC_PER_SEC);
	ck_assert_uint_eq(rig.heartbeat.lease_ms, LEASE_MS); /* no guest runs yet */
	grant(LEASE_MS);
	ck_assert_uint_eq(rig.n_starts, 1);
	ck_assert_int_gt(rig.vm_until_usec, rig.now.boot_usec);
	check_promise();
}
END_TEST

START_TEST(test_a_start_that_gets_no_lease_fails)
{
	welcome(LEASE_MS);
	grant(LEASE_MS);
	feed((struct sv_event){ .type = SV_EV_LINK_DOWN });
	later(LEASE_MS * USEC_PER_MSEC);
	feed((struct sv_event){ .type = SV_EV_LINK_UP });
	welcome(LEASE_MS);
	drive_to_jailed(); /* the lease of before is over */
	ck_assert_uint_eq(rig.n_starts, 0);
	later(rig.config.vmm_timeout_usec);
	ck_assert_int_eq(state(), SV_KILLING);
	ck_assert_int_eq(rig.saved.failure.code, FAIL_LEASE_EXPIRED);
	ck_assert_int_eq(rig.saved.failure.stage, STAGE_VMM);
	grant(LEASE_MS);
	ck_assert_uint_eq(rig.n_starts, 0);
}
END_TEST

/* A pool that replaces nothing arms nothing. */
START_TEST(test_no_lease_is_wanted)
{
	welcome(0);
	drive_to_running();
	ck_assert_uint_eq(rig.n_starts, 1);
	ck_assert_int_eq(rig.vm_until_usec, 0);
	ck_assert_uint_eq(rig.heartbeat.lease_ms, 0);
	/* from now on it does: the VM that is there goes on, and is told of */
	grant(LEASE_MS);
	ck_assert_uint_eq(rig.n_renewals, 0);
	later(USEC_PER_SEC);
	ck_assert_uint_eq(rig.heartbeat.lease_ms, 0);
	feed((struct sv_event){ .type = SV_EV_LINK_DOWN });
	ck_assert_int_eq(state(), SV_RUNNING);
}
END_TEST

START_TEST(test_leases_end_with_the_pools_wish)
{
	welcome(LEASE_MS);
	grant(LEASE_MS);
	drive_to_running();
	later(USEC_PER_SEC);
	if (_i == 0)
		grant(0);
	else
		welcome(0); /* said at once by the one that welcomes */
	if (_i == 1) { /* a second welcome of one session is none */
		feed((struct sv_event){ .type = SV_EV_LINK_DOWN });
		welcome(0);
	}
	ck_assert_int_eq(rig.vm_until_usec, 0);
	ck_assert_uint_eq(rig.n_renewals, 1);
	later(USEC_PER_SEC);
	ck_assert_uint_eq(rig.heartbeat.lease_ms, 0);
}
END_TEST

/* Never shortened: a heartbeat says so until what was given before is over. */
START_TEST(test_a_shorter_lease)
{
	welcome(LEASE_MS);
	grant(LEASE_MS);
	drive_to_running();
	for (int i = 0; i < 60; i++) {
		later(USEC_PER_SEC);
		check_promise();
		if (i == 5)
			ck_assert_uint_gt(rig.heartbeat.lease_ms, LEASE_MS / 2);
		grant(LEASE_MS / 4);
		ck_assert_int_gt(rig.vm_until_usec, rig.now.boot_usec);
	}
	ck_assert_uint_eq(rig.heartbeat.lease_ms, LEASE_MS / 4);
	later(USEC_PER_SEC);
	grant(2 * LEASE_MS);
	later(USEC_PER_SEC);
	ck_assert_uint_ge(rig.heartbeat.lease_ms, 2 * LEASE_MS);
	check_promise();
}
END_TEST

/* The next agent asks the VMM what it has, and vouches for nothing before. */
START_TEST(test_adoption)
{
	uint64_t left_ms = _i ? 25000 : 0;

	welcome(LEASE_MS);
	grant(LEASE_MS);
	drive_to_running();
	later(5 * USEC_PER_SEC);
	make_core();
	rig.n_renewals = 0;
	welcome(LEASE_MS);
	ck_assert_uint_eq(rig.heartbeat.lease_ms, 0);
	grant(LEASE_MS);
	ck_assert_uint_eq(rig.n_renewals, 0); /* it is not known to be there */
	rig.vm_until_usec = left_ms ? rig.now.boot_usec + (int64_t)left_ms * USEC_PER_MSEC : 0;
	adopt(left_ms);
	ck_assert_int_eq(state(), SV_RUNNING);
	later(USEC_PER_SEC);
	ck_assert_uint_eq(rig.heartbeat.lease_ms, left_ms ? LEASE_MS : 0);
	grant(LEASE_MS);
	ck_assert_uint_eq(rig.n_renewals, left_ms ? 1 : 0);
	later(USEC_PER_SEC);
	check_promise();
}
END_TEST

/* A start that an agent takes up again is not begun before it knows what the pool wants. */
START_TEST(test_a_new_agent_asks_first)
{
	welcome(LEASE_MS);
	drive_to_jailed();
	sv_journal_deinit(&rig.saved);
	rig.has_saved = false;
	make_core(); /* nothing here, and no word of the scheduler */
	rig.n_starts = 0;
	rig.heartbeat = (struct heartbeat){ .number = 0 };
	welcome(LEASE_MS);
	ck_assert_uint_eq(rig.heartbeat.lease_ms, LEASE_MS);
	rig.core = supervisor_free(rig.core);
	rig.has_saved = false;
	make_core();
	drive_to_jailed(); /* of nobody who said welcome: nothing begins */
	ck_assert_uint_eq(rig.n_starts, 0);
	welcome(0);
	ck_assert_uint_eq(rig.n_starts, 0);
	drive_to_jailed();
	ck_assert_uint_eq(rig.n_starts, 1);
	ck_assert_int_eq(rig.vm_until_usec, 0);
}
END_TEST

/* Its VM may be there, and nobody knows with what. */
START_TEST(test_a_torn_record_vouches_for_nothing)
{
	struct sv_event bad = { .type = SV_EV_LOAD_BAD };

	memcpy(bad.sandbox, OTHER, ID_SIZE);
	feed(bad);
	welcome(LEASE_MS);
	grant(LEASE_MS);
	later(USEC_PER_SEC);
	ck_assert_uint_eq(rig.heartbeat.lease_ms, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lease");
	TCase *tcase = tcase_create("lease");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_a_lease_counts_from_the_heartbeat_that_it_answers);
	tcase_add_test(tcase, test_what_renews_nothing);
	tcase_add_test(tcase, test_sleep_and_the_wall_clock);
	tcase_add_test(tcase, test_a_start_waits_for_its_lease);
	tcase_add_test(tcase, test_a_start_that_gets_no_lease_fails);
	tcase_add_test(tcase, test_no_lease_is_wanted);
	tcase_add_loop_test(tcase, test_leases_end_with_the_pools_wish, 0, 2);
	tcase_add_test(tcase, test_a_shorter_lease);
	tcase_add_loop_test(tcase, test_adoption, 0, 2);
	tcase_add_test(tcase, test_a_new_agent_asks_first);
	tcase_add_test(tcase, test_a_torn_record_vouches_for_nothing);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
