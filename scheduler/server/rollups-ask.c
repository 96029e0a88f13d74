/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions to the sums; see rollups.h. The thread reads, the loop answers.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "server/rollups-private.h"

#define FEW_KINDS 4

struct question {
	LIST_ENTRY(question) link;
	struct rollups *rollups;
	struct rollup_range range;
	uint8_t *takes;
	uint32_t few[FEW_KINDS];
	struct rate_sums sums;
	struct rollups_answer answer;
	int64_t since_us, wanted_us;
	void (*done)(const struct rollups_answer *answer, void *user);
	void *user;
	struct rollups_point *points;
	atomic_bool is_forgotten;
	bool is_partial; /* what it asks for may be among others */
};

void rollups_question_free(struct question *question)
{
	LIST_REMOVE(question, link);
	question->rollups->n_questions--;
	free(question->takes);
	free(question->points);
	free(question);
}

static void add_sums(struct rate_sums *to, const struct rate_sums *from)
{
	for (size_t i = 0; i < STAGE_MAX_; i++) {
		struct rate_sum *sum = &to->stages[i];
		const struct rate_sum *more = &from->stages[i];

		sum->ok += more->ok;
		sum->failed += more->failed;
		sum->saved += more->saved;
		sum->skipped += more->skipped;
		histogram_merge(&sum->took, &more->took);
		for (size_t k = 0; k < FAIL_MAX_; k++)
			sum->codes[k] += more->codes[k];
	}
}

static void point_of_sums(const struct rate_sums *sums, struct rates *rates, struct rollups_point *ret)
{
	memset(rates, 0, sizeof(*rates));
	rates_of_sums(sums, rates);
	ret->has_product = rates->has_product;
	ret->product = rates->product;
	ret->low = rates->low;
	ret->high = rates->high;
	ret->starts = rates->stages[STAGE_ADMIT].ok + rates->stages[STAGE_ADMIT].failed;
	for (unsigned int i = STAGE_ADMIT; i <= STAGE_READY; i++)
		ret->failed += rates->stages[i].failed;
}

/* One part of the time after the other, the latest first, so that a bound on rows costs the oldest. */
static int read_points(struct question *question, bool *ret_whole)
{
	struct rollups_answer *answer = &question->answer;
	const int64_t step = answer->point_us / answer->step_us;
	struct rate_sums *sums = malloc(sizeof(*sums));
	struct rates *rates = malloc(sizeof(*rates));
	int r = sums && rates ? 0 : err_set(&answer->err, FAIL_NO_MEMORY, ENOMEM, "no memory for sums");

	*ret_whole = true;
	for (size_t i = answer->n_points; i-- > 0 && r == 0 && *ret_whole;) {
		struct rollup_range part = question->range;
		uint64_t n_rows = 0;

		memset(sums, 0, sizeof(*sums));
		part.from = question->range.from + (int64_t)i * step;
		part.to = MIN(part.from + step, question->range.to);
		part.max_rows = question->range.max_rows - answer->n_rows;
		r = rollup_db_read(question->rollups->db, &part, sums, &n_rows, ret_whole, &answer->err);
		answer->n_rows += n_rows;
		point_of_sums(sums, rates, &question->points[i]);
		add_sums(&question->sums, sums);
	}
	free(sums);
	free(rates);
	return r;
}

static void work_question(void *arg)
{
	struct question *question = arg;
	struct rollups_answer *answer = &question->answer;

	if (atomic_load(&question->is_forgotten))
		return;
	if (answer->n_points > 0)
		answer->r = read_points(question, &answer->rates.is_complete);
	else
		answer->r = rollup_db_read(question->rollups->db, &question->range, &question->sums, &answer->n_rows,
			&answer->rates.is_complete, &answer->err);
	rates_of_sums(&question->sums, &answer->rates);
	if (question->wanted_us < answer->from_us) { /* what is too old, and not expired yet, is not read */
		const int64_t oldest = rollup_db_oldest(question->rollups->db, question->range.level);

		answer->rates.is_complete = answer->rates.is_complete && (oldest < 0 || oldest >= question->range.from);
	}
	question->since_us = question->rollups->kept.since_us[question->range.level];
}

static void done_question(void *arg)
{
	struct question *question = arg;
	const struct rollups *rollups = question->rollups;
	struct rollups_answer *answer = &question->answer;

	answer->rates.n_dropped = rollups->n_lost;
	answer->rates.is_complete = answer->rates.is_complete && !question->is_partial && question->wanted_us >= question->since_us &&
				    rollups->lost_until_us < answer->from_us;
	if (!atomic_load(&question->is_forgotten))
		question->done(answer, question->user);
	rollups_question_free(question);
}

void rollups_forget(struct question *question)
{
	atomic_store(&question->is_forgotten, true);
}

static void choose_kinds(const struct rollups *rollups, const struct facts_filter *filter, struct question *question)
{
	const struct facts_filter wide = { .tenant = filter->tenant, .pool = filter->pool, .node = filter->node, .sees = filter->sees,
		.user = filter->user };
	char *pool = question->answer.pool;
	size_t n = 0;

	for (const struct kind_entry *kind = rollups->kinds; kind; kind = kind->hh.next) {
		if (kind->kind.grain != question->range.grain)
			continue;
		if (!rollup_takes(filter, &kind->kind)) {
			question->is_partial = question->is_partial || (!strcmp(kind->kind.template_name, ROLLUP_OTHER) &&
										rollup_takes(&wide, &kind->kind));
			continue;
		}
		question->takes[kind->number / 8] |= (uint8_t)(1u << kind->number % 8);
		if (n < FEW_KINDS)
			question->few[n] = kind->number;
		if (n == 0)
			memcpy(pool, kind->kind.pool, sizeof(kind->kind.pool));
		else if (strcmp(pool, kind->kind.pool) != 0)
			*pool = '\0';
		n++;
	}
	question->range.takes = question->takes;
	question->range.n_kinds = n;
	question->range.kinds = n <= FEW_KINDS ? question->few : NULL;
}

/* As many points as were wished for, or fewer: each is a whole number of steps, the last one may be shorter. */
static int add_points(struct question *question, size_t n_wished)
{
	const int64_t steps = question->range.to - question->range.from;
	const int64_t each = (steps + (int64_t)n_wished - 1) / (int64_t)n_wished;
	struct rollups_answer *answer = &question->answer;
	const size_t n = (size_t)((steps + each - 1) / each);

	question->points = calloc(n, sizeof(*question->points));
	if (!question->points)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		question->points[i].from_us = (question->range.from + (int64_t)i * each) * answer->step_us;
	answer->points = question->points;
	answer->n_points = n;
	answer->point_us = each * answer->step_us;
	return 0;
}

int rollups_ask(struct rollups *rollups, const struct rollups_wish *wish, void (*done)(const struct rollups_answer *answer, void *user),
	void *user, struct question **ret, struct err *reterr)
{
	const struct facts_filter *filter = wish->filter;
	const int64_t now_us = wish->now_us;
	const enum rollup_level level = rollup_level_for(now_us - filter->from_us);
	const enum rollup_grain grain = rollup_grain_for(filter, wish->sees_all);
	const int64_t step_us = rollup_spans[level].step_us;
	const int64_t from_us = MAX(filter->from_us, now_us - rollup_spans[level].keep_us); /* before that there is no row */
	struct question *question;
	int r;

	if (grain == ROLLUP_GRAIN_MAX_)
		return -ENOTSUP;
	if (rollups->n_questions == ROLLUPS_QUESTIONS_MAX)
		return err_set(reterr, FAIL_SCHEDULER_BUSY, EAGAIN, "%zu questions to the sums are being answered",
			rollups->n_questions);
	question = calloc(1, sizeof(*question));
	if (question)
		question->takes = calloc(rollups->last_kind / 8 + 1, 1);
	if (!question || !question->takes) {
		free(question);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for sums");
	}
	LIST_INSERT_HEAD(&rollups->questions, question, link);
	rollups->n_questions++;
	question->rollups = rollups;
	question->done = done;
	question->user = user;
	question->range = (struct rollup_range){ .level = level, .grain = grain, .from = from_us / step_us,
		.to = now_us / step_us + 1, .max_rows = ROLLUPS_ROWS_MAX };
	question->wanted_us = MAX(filter->from_us, 1);
	question->answer.from_us = question->range.from * step_us;
	question->answer.step_us = step_us;
	if (wish->n_points > 0 && add_points(question, MIN(wish->n_points, ROLLUPS_POINTS_MAX)) < 0) {
		rollups_question_free(question);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for sums");
	}
	choose_kinds(rollups, filter, question);
	rollups_flush(rollups, now_us);
	r = worker_add(rollups->worker, work_question, done_question, question, reterr);
	if (r < 0) {
		rollups_question_free(question);
		return r;
	}
	*ret = question;
	return 0;
}
