/* SPDX-License-Identifier: Apache-2.0
 *
 * The offset of a node's clock over made networks, by seed: the truth lies within what is said of it, whatever the clock shows, however
 * uneven the ways are, whatever is lost, answered twice or late, and whenever the clock is set; a node that lies overflows nothing.
 */
#include <check.h>
#include <stdlib.h>

#include "base/rng.h"
#include "base/util.h"
#include "lib/suite.h"
#include "telemetry/clock-offset.h"

#define SEEDS 200
#define NOW (INT64_C(1790000000) * USEC_PER_SEC)
#define YEAR_2040 (INT64_C(2208988800) * USEC_PER_SEC)

/* right; 1970; 2040; a day behind; a second ahead */
static const int64_t shown[] = { 0, 1000 * USEC_PER_SEC - NOW, YEAR_2040 - NOW, INT64_C(-86400) * USEC_PER_SEC, USEC_PER_SEC };

struct world {
	struct clock_offset clock;
	struct rng rng;
	int64_t mono, ahead;
	int64_t way_min; /* of the answers that came */
	unsigned int n_answers, n_questions;
};

static int64_t node_of(const struct world *world)
{
	return NOW + world->mono + world->ahead;
}

static void beat(struct world *world)
{
	uint64_t number;
	int64_t there, back, at_node;

	world->mono += USEC_PER_SEC;
	number = clock_offset_ask(&world->clock, world->mono);
	world->n_questions += number != 0;
	if (number == 0 || rng_below(&world->rng, 4) == 0) /* none, or lost */
		return;
	there = 100 + (int64_t)rng_below(&world->rng, 60000);
	back = 100 + (int64_t)rng_below(&world->rng, 60000);
	world->mono += there;
	at_node = node_of(world);
	world->mono += back;
	clock_offset_answered(&world->clock, number + 2, 1, world->mono, NOW + world->mono); /* to no question */
	clock_offset_answered(&world->clock, number, at_node, world->mono, NOW + world->mono);
	if (rng_below(&world->rng, 3) == 0) /* twice, and with another time */
		clock_offset_answered(&world->clock, number, 1, world->mono + 1, NOW + world->mono);
	world->way_min = MIN(world->way_min, there + back);
	world->n_answers++;
}

static void run(struct world *world, unsigned int n_answers)
{
	world->n_answers = 0;
	world->way_min = INT64_MAX;
	for (int i = 0; i < 4000 && world->n_answers < n_answers; i++)
		beat(world);
	ck_assert_uint_eq(world->n_answers, n_answers);
}

static void expect_right(const struct world *world)
{
	struct clock_sample sample;

	ck_assert(clock_offset_measured(&world->clock, &sample));
	ck_assert_int_le(llabs(sample.ahead_us - world->ahead), sample.within_us);
	ck_assert_int_le(sample.within_us, 60100);
	ck_assert_int_eq(clock_offset_ahead(&world->clock), llabs(sample.ahead_us) > sample.within_us ? sample.ahead_us : 0);
}

START_TEST(whatever_it_shows)
{
	for (unsigned int seed = 1; seed <= SEEDS; seed++)
		for (size_t i = 0; i < ARRAY_LEN(shown); i++) {
			struct world world = { .rng = rng_seeded(seed), .mono = 1000, .ahead = shown[i] };
			struct clock_sample sample;

			clock_offset_greeted(&world.clock, node_of(&world), NOW + world.mono + 200000);
			ck_assert(!clock_offset_measured(&world.clock, &sample));
			/* the hello alone: of no use for a second, and for years within the time that it was under way */
			ck_assert_int_eq(clock_offset_ahead(&world.clock), llabs(shown[i]) > CLOCK_HELLO_USEC ? shown[i] - 200000 : 0);
			run(&world, 1 + seed % CLOCK_SAMPLES);
			expect_right(&world);
			ck_assert(clock_offset_measured(&world.clock, &sample));
			ck_assert_int_eq(sample.within_us, (world.way_min + 1) / 2); /* the soonest, not the first or the last */
			run(&world, 3 * CLOCK_SAMPLES);
			expect_right(&world);
		}
}
END_TEST

/* Right again with the first answer after it, where the step is more than what is known of the offset. */
START_TEST(set_while_it_runs)
{
	static const int64_t steps[] = { -NOW / 2, YEAR_2040 - NOW, USEC_PER_SEC, -300 * USEC_PER_MSEC };

	for (unsigned int seed = 1; seed <= SEEDS; seed++) {
		struct world world = { .rng = rng_seeded(seed), .mono = 1000, .ahead = -5 * USEC_PER_SEC };

		clock_offset_greeted(&world.clock, node_of(&world), NOW + world.mono);
		run(&world, 1 + seed % 12);
		expect_right(&world);
		world.ahead += steps[seed % ARRAY_LEN(steps)];
		run(&world, 1);
		expect_right(&world);
		/* a later hello is another measurement */
		clock_offset_greeted(&world.clock, node_of(&world), NOW + world.mono);
		run(&world, 1);
		expect_right(&world);
	}
}
END_TEST

/* Four at once, then one each ten seconds; none to an agent that does not know them, which has no offset. */
START_TEST(questions_are_few)
{
	struct world world = { .rng = rng_seeded(1), .mono = 1000 };
	struct clock_sample sample;

	for (int i = 0; i < 600; i++)
		beat(&world);
	ck_assert_uint_eq(world.n_questions, 0);
	ck_assert(!clock_offset_measured(&world.clock, &sample));
	ck_assert_int_eq(clock_offset_ahead(&world.clock), 0);
	clock_offset_greeted(&world.clock, node_of(&world), NOW + world.mono);
	for (unsigned int i = 1; i <= 600; i++) { /* ten minutes, and what the ways took */
		beat(&world);
		ck_assert_uint_ge(world.n_questions, MIN(i, CLOCK_FAST));
	}
	ck_assert_uint_ge(world.n_questions, 55);
	ck_assert_uint_le(world.n_questions, 65);
}
END_TEST

/* Of ten seconds until the next question none is waited for where a heartbeat says that the clock was set. */
START_TEST(a_heartbeat_tells_of_a_step)
{
	for (size_t i = 0; i < ARRAY_LEN(shown); i++) {
		struct world world = { .rng = rng_seeded(1), .mono = 1000, .ahead = shown[i] };

		clock_offset_greeted(&world.clock, node_of(&world), NOW + world.mono);
		run(&world, 12);
		ck_assert_uint_eq(clock_offset_ask(&world.clock, world.mono), 0);
		clock_offset_heard(&world.clock, node_of(&world) - 2 * USEC_PER_SEC, NOW + world.mono); /* two seconds under way */
		clock_offset_heard(&world.clock, 0, NOW + world.mono);
		clock_offset_heard(&world.clock, INT64_MIN, NOW + world.mono);
		clock_offset_heard(&world.clock, INT64_MAX, NOW + world.mono);
		ck_assert_uint_eq(clock_offset_ask(&world.clock, world.mono), 0);
		world.ahead += 30 * USEC_PER_SEC;
		clock_offset_heard(&world.clock, node_of(&world), NOW + world.mono);
		ck_assert_uint_ne(clock_offset_ask(&world.clock, world.mono), 0);
	}
}
END_TEST

START_TEST(a_liar_overflows_nothing)
{
	static const int64_t lies[] = { INT64_MIN, INT64_MIN + 1, -1, 0, 1, CLOCK_MAX_USEC, CLOCK_MAX_USEC + 1, INT64_MAX };

	for (size_t i = 0; i < ARRAY_LEN(lies); i++)
		for (size_t k = 0; k < ARRAY_LEN(lies); k++) {
			const bool is_time = lies[k] > 0 && lies[k] <= CLOCK_MAX_USEC;
			struct clock_offset clock = { 0 };
			struct clock_sample sample;
			int64_t ahead, corrected;

			clock_offset_greeted(&clock, lies[i], NOW);
			clock.answers = true;
			clock_offset_answered(&clock, clock_offset_ask(&clock, 1000), lies[k], 3000, NOW);
			ck_assert_int_eq(clock_offset_measured(&clock, &sample), is_time);
			clock_offset_answered(&clock, clock_offset_ask(&clock, 4000), CLOCK_MAX_USEC, 5000, NOW);
			clock_offset_answered(&clock, clock_offset_ask(&clock, 5000), 1, 6000, NOW);
			ahead = clock_offset_ahead(&clock);
			ck_assert_int_ge(ahead, -NOW);
			ck_assert_int_le(ahead, CLOCK_MAX_USEC);
			corrected = clock_offset_correct(ahead, lies[k]);
			ck_assert(corrected == lies[k] || (uint64_t)corrected == (uint64_t)lies[k] - (uint64_t)ahead);
			ck_assert(!is_time || corrected != lies[k]); /* what is a time is corrected */
		}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("clock-offset");
	TCase *tc = tcase_create("clock");

	tcase_add_test(tc, whatever_it_shows);
	tcase_add_test(tc, set_while_it_runs);
	tcase_add_test(tc, questions_are_few);
	tcase_add_test(tc, a_heartbeat_tells_of_a_step);
	tcase_add_test(tc, a_liar_overflows_nothing);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
