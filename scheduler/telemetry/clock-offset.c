/* SPDX-License-Identifier: Apache-2.0
 *
 * See clock-offset.h.
 */
#include "telemetry/clock-offset.h"

#include <stdlib.h>
#include <string.h>

static bool is_time(int64_t usec)
{
	return usec > 0 && usec <= CLOCK_MAX_USEC;
}

void clock_offset_greeted(struct clock_offset *clock, int64_t node_us, int64_t real_usec)
{
	const uint64_t n_asked = clock->n_asked;

	memset(clock, 0, sizeof(*clock));
	clock->n_asked = n_asked; /* an answer to a question before it is to none */
	clock->answers = node_us != 0;
	clock->is_guessed = is_time(node_us);
	if (clock->is_guessed)
		clock->guess = (struct clock_sample){ .ahead_us = node_us - real_usec, .within_us = CLOCK_HELLO_USEC };
}

uint64_t clock_offset_ask(struct clock_offset *clock, int64_t mono_usec)
{
	if (!clock->answers || mono_usec < clock->due_usec)
		return 0;
	clock->number = ++clock->n_asked;
	clock->sent_usec = mono_usec;
	clock->due_usec = clock->n_asked < CLOCK_FAST ? mono_usec : mono_usec + CLOCK_EVERY_USEC;
	return clock->number;
}

bool clock_offset_measured(const struct clock_offset *clock, struct clock_sample *ret)
{
	for (unsigned int i = 0; i < clock->n; i++)
		if (i == 0 || clock->samples[i].within_us < ret->within_us)
			*ret = clock->samples[i];
	return clock->n > 0;
}

void clock_offset_heard(struct clock_offset *clock, int64_t node_us, int64_t real_usec)
{
	struct clock_sample best;

	if (is_time(node_us) && clock_offset_measured(clock, &best) && llabs(node_us - real_usec - best.ahead_us) > CLOCK_HELLO_USEC)
		clock->due_usec = INT64_MIN;
}

static bool was_set(const struct clock_offset *clock, const struct clock_sample *sample)
{
	struct clock_sample best;

	return clock_offset_measured(clock, &best) &&
	       llabs(sample->ahead_us - best.ahead_us) > sample->within_us + best.within_us + CLOCK_DRIFT_USEC;
}

void clock_offset_answered(struct clock_offset *clock, uint64_t number, int64_t node_us, int64_t mono_usec, int64_t real_usec)
{
	const int64_t way = mono_usec - clock->sent_usec;
	struct clock_sample sample;

	if (number == 0 || number != clock->number)
		return;
	clock->number = 0;
	if (!is_time(node_us))
		return;
	sample = (struct clock_sample){ .ahead_us = node_us - (real_usec - way / 2), .within_us = (way + 1) / 2 };
	if (was_set(clock, &sample))
		clock->n = clock->next = 0;
	clock->samples[clock->next] = sample;
	clock->next = (clock->next + 1) % CLOCK_SAMPLES;
	if (clock->n < CLOCK_SAMPLES)
		clock->n++;
}

int64_t clock_offset_ahead(const struct clock_offset *clock)
{
	struct clock_sample sample = clock->guess;

	if (!clock_offset_measured(clock, &sample) && !clock->is_guessed)
		return 0;
	return llabs(sample.ahead_us) > sample.within_us ? sample.ahead_us : 0;
}

int64_t clock_offset_correct(int64_t ahead_us, int64_t node_us)
{
	int64_t usec;

	return __builtin_sub_overflow(node_us, ahead_us, &usec) ? node_us : usec;
}
