/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test-supervisor.c, and of nothing else, with its rig: failed starts that are resumed, time limits that are
 * extended in their last moment.
 */
#pragma once

/* ---- what a failed start leaves to the next attempt ---- */

static void fail_network(enum fail_code code)
{
	struct err err = ERR_NULL;

	drive(SV_NETWORK, NULL, 0);
	(void)err_set(&err, code, 0, "It is so.");
	feed_network(false, &err);
	ck_assert_int_eq(find(SV_DO_REMOVE_FILES)->keep_disk, err_class(&err) == CLASS_TRANSIENT);
	feed_of(SV_EV_REMOVED, NULL);
}

static void of_generation(uint64_t generation, enum sv_event_type type)
{
	struct sv_event event = { .type = type, .generation = generation };

	memcpy(event.sandbox, ID, ID_SIZE);
	feed(event);
}

/* For everybody it has ended; the next generation goes on at the stage that failed, with the disk that is there. */
START_TEST(test_a_failed_start_goes_on_where_it_failed)
{
	const struct sandbox_report *last;

	fail_network(FAIL_HELPER_UNAVAILABLE);
	ck_assert_int_eq(state(), SV_KEPT);
	ck_assert_int_eq(report()->state, REPORT_ENDED);
	ck_assert(report()->kept);
	ack(report()->version);
	ck_assert_int_eq(state(), SV_KEPT);
	create_as(ID, 2, 1, spec_make(1000, NULL, 0), 0);
	ck_assert_ptr_nonnull(find(SV_DO_FETCH_IMAGE)); /* it may have been collected */
	of_generation(2, SV_EV_IMAGE_DONE);
	ck_assert_ptr_null(find(SV_DO_MAKE_DISK));
	ck_assert_ptr_nonnull(find(SV_DO_MAKE_NETWORK));
	ck_assert_int_eq(state(), SV_NETWORK);
	last = report();
	ck_assert_uint_eq(last->generation, 2);
	ck_assert(!err_is_set(&last->failure));
	ck_assert_str_eq(last->stages[0].reason, "resumed_from=network reused=disk");
	check_outcome(last, STAGE_ACCEPT, RESULT_OK);
	check_outcome(last, STAGE_IMAGE, RESULT_OK);
	check_outcome(last, STAGE_DISK, RESULT_SKIPPED); /* never counted as a success */
}
END_TEST

static const struct {
	enum sv_state failed_in;
	enum fail_code code;
	bool is_kept;
} kept_rows[] = {
	{ SV_IMAGE, FAIL_IMAGE_FETCH_FAILED, false }, /* there is nothing of it */
	{ SV_NETWORK, FAIL_HELPER_UNAVAILABLE, true },
	{ SV_NETWORK, FAIL_NETWORK_SLOT_FAILED, false }, /* not tried again here */
	{ SV_KERNEL, FAIL_VMM_KILLED, false }, /* a guest had the disk */
	{ SV_GUEST, FAIL_VMM_KILLED, false },
};

START_TEST(test_only_a_fresh_disk_is_kept_for_who_comes_back)
{
	struct err err = ERR_NULL;

	drive(kept_rows[_i].failed_in, NULL, 0);
	(void)err_set(&err, kept_rows[_i].code, 0, "It is so.");
	if (kept_rows[_i].failed_in == SV_IMAGE)
		feed_of(SV_EV_IMAGE_DONE, &err);
	else if (kept_rows[_i].failed_in == SV_NETWORK)
		feed_network(false, &err);
	else
		feed_exit(SV_EXIT_KILLED, false);
	ck_assert_int_eq(find(SV_DO_REMOVE_FILES)->keep_disk, kept_rows[_i].is_kept);
	feed_of(SV_EV_REMOVED, NULL);
	ck_assert_int_eq(state(), kept_rows[_i].is_kept ? SV_KEPT : SV_ENDED);
}
END_TEST

static void nobody_comes(void)
{
	later(61 * USEC_PER_SEC);
}

static void somebody_ends_it(void)
{
	destroy(1);
}

static void another_disk_is_asked_for(void)
{
	struct sandbox_spec *spec = spec_make(1000, NULL, 0);

	spec->disk_mib = 200;
	create_as(ID, 2, 1, spec, 0);
}

static void the_agent_is_started_again(void)
{
	rig.core = supervisor_free(rig.core);
	make_core();
	connect_core();
	ck_assert_ptr_null(find(SV_DO_SPAWN_VMM));
}

static void (*const drops[])(void) = { nobody_comes, somebody_ends_it, another_disk_is_asked_for,
	the_agent_is_started_again };

/* Until it is gone, and known to have ended, it is not forgotten. */
START_TEST(test_what_is_kept_is_dropped)
{
	bool is_acked = _i % 2 == 0;
	uint64_t version;

	fail_network(FAIL_HELPER_UNAVAILABLE);
	version = report()->version;
	if (is_acked)
		ack(version);
	drops[_i / 2]();
	if (drops[_i / 2] != the_agent_is_started_again)
		ck_assert(!find(SV_DO_REMOVE_FILES)->keep_disk);
	ck_assert_int_eq(state(), SV_DROPPING);
	feed_of(SV_EV_REMOVED, NULL);
	if (state() == SV_ENDED) {
		ack(version + 10000);
		ck_assert_ptr_nonnull(find(SV_DO_JOURNAL_REMOVE));
	}
	ck_assert_int_eq(state(), SV_STATE_MAX_);
}
END_TEST

/* What can be no more is no room that is taken. */
START_TEST(test_what_is_kept_takes_no_room)
{
	struct sv_counts counts;

	fail_network(FAIL_HELPER_UNAVAILABLE);
	supervisor_count(rig.core, &counts);
	ck_assert_uint_eq(counts.memory_mib, 0);
	ck_assert_uint_eq(counts.disk_mib, 0);
}
END_TEST

/* ---- R046 ---- */
static bool is_confirmed(const char *operation)
{
	for (size_t i = 0; i < rig.out.n; i++) {
		const struct sv_action *action = &rig.out.items[i];

		if (action->type == SV_DO_SEND_REPORT && action->report->state == REPORT_RUNNING &&
			!strcmp(action->report->updated, operation))
			return true;
	}
	return false;
}

static bool extend(const char *operation, uint32_t timeout_s)
{
	struct update_command command = { .generation = 1, .timeout_s = timeout_s };

	memcpy(command.sandbox, ID, ID_SIZE);
	memcpy(command.operation, operation, ID_SIZE);
	feed((struct sv_event){ .type = SV_EV_UPDATE, .epoch = 1, .update = &command });
	return is_confirmed(operation);
}

/* The extension comes within 2 ms of the end, the clock's tick at the end or up to 2 ms late, in any order: it is confirmed
 * and holds, or the sandbox is on its way out and it is not. */
START_TEST(test_an_extension_at_the_last_moment)
{
	const unsigned int rounds = getenv("CROFT_FULL") ? 1000000 : 4000;
	unsigned int n_extended = 0, n_late = 0;

	drive(SV_RUNNING, NULL, 0);
	for (unsigned int i = 0; i < rounds; i++) {
		char operation[ID_SIZE];
		int64_t begin, asked, tick;
		bool is_told = false, is_asked = false;

		if (state() != SV_RUNNING) {
			teardown();
			setup();
			rig.rng = rng_seeded(i);
			drive(SV_RUNNING, NULL, 0);
		}
		id_new(&rig.rng, operation);
		ck_assert(extend(operation, 1));
		id_new(&rig.rng, operation);
		begin = rig.now.mono_usec;
		asked = USEC_PER_SEC - 2000 + (int64_t)rng_below(&rig.rng, 4001);
		tick = USEC_PER_SEC + (int64_t)rng_below(&rig.rng, 2001);
		for (int turn = 0; turn < 2; turn++) {
			if (turn == 0 ? asked <= tick : !is_asked) {
				rig.now.mono_usec = begin + MAX(asked, turn ? tick : 0);
				is_asked = true;
				is_told = extend(operation, 60);
			} else {
				rig.now.mono_usec = begin + MAX(tick, turn ? asked : 0);
				feed((struct sv_event){ .type = SV_EV_TICK });
			}
		}
		n_extended += is_told;
		n_late += !is_told;
		if (!is_told) {
			ck_assert(state() == SV_KILLING || state() == SV_STOPPING);
			continue;
		}
		later(58 * USEC_PER_SEC);
		ck_assert_int_eq(state(), SV_RUNNING);
	}
	ck_assert_uint_gt(n_extended, rounds / 20); /* both were seen often */
	ck_assert_uint_gt(n_late, rounds / 20);
}
END_TEST
