/* SPDX-License-Identifier: Apache-2.0
 *
 * The heap of deadlines, against a list that is looked through.
 */
#include <check.h>

#include "base/rng.h"
#include "base/util.h"
#include "fleet/timer.h"
#include "lib/suite.h"

#define TIMERS 300
#define STEPS 100000
#define TIMES 1000 /* few enough that many are the same */

static int64_t earliest(const struct timer *timers)
{
	int64_t least = INT64_MAX;

	for (size_t i = 0; i < TIMERS; i++)
		if (fleet_timer_is_armed(&timers[i]))
			least = MIN(least, timers[i].due_usec);
	return least;
}

START_TEST(test_the_earliest_comes_first)
{
	struct rng rng = rng_seeded(4);
	struct timer list[TIMERS];
	struct timers timers = { .n = 0 };
	size_t wrong = 0, popped = 0;

	for (size_t i = 0; i < TIMERS; i++)
		list[i] = (struct timer)TIMER_NULL(0, NULL);
	for (int step = 0; step < STEPS; step++) {
		struct timer *timer = &list[rng_below(&rng, TIMERS)];
		const int64_t time = (int64_t)rng_below(&rng, TIMES), least = earliest(list);

		wrong += fleet_timers_next(&timers) != least;
		switch (rng_below(&rng, 4)) {
		case 0:
			fleet_timer_stop(&timers, timer);
			wrong += fleet_timer_is_armed(timer);
			break;
		case 1:
			timer = fleet_timers_pop(&timers, time);
			wrong += (timer != NULL) != (least <= time) || (timer && timer->due_usec != least);
			wrong += timer && fleet_timer_is_armed(timer);
			popped += timer != NULL;
			break;
		default:
			wrong += fleet_timer_arm(&timers, timer, time) < 0 || !fleet_timer_is_armed(timer) || timer->due_usec != time;
		}
	}
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_gt(popped, STEPS / 100);
	fleet_timers_deinit(&timers);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fleet-timer");
	TCase *tcase = tcase_create("timers");

	tcase_add_test(tcase, test_the_earliest_comes_first);
	suite_add_tcase(suite, tcase);
	return suite_run(suite);
}
