/* SPDX-License-Identifier: Apache-2.0
 *
 * See api-replay.h.
 */
#include "server/api-replay.h"

#include <errno.h>

#include "base/clock.h"
#include "server/options.h"
#include "server/shell.h"
#include "server/view.h"

static int read_size(const struct api_request *req, const char *name, uint64_t *ret, struct err *reterr)
{
	return api_query_u64(req, name, 1, UINT32_MAX, ret, reterr);
}

int replay_read(const struct api_request *req, int64_t now_us, struct replay_plan *ret, struct err *reterr)
{
	const char *window = api_query(req, "replay");
	uint64_t vcpus = 0, to_vcpus = 0;
	int64_t usec = 0;
	int r;

	*ret = (struct replay_plan){ .is_wanted = window != NULL, .to_us = now_us };
	if (!window)
		return 0;
	if (clock_parse_duration(window, &usec) < 0 || usec <= 0 || usec >= now_us) {
		(void)err_set(reterr, FAIL_INVALID_ARGUMENT, EINVAL, "replay is a time as in 24h or 7d");
		err_add(reterr, "field", "%s", "replay");
		return -EINVAL;
	}
	ret->from_us = now_us - usec;
	r = read_size(req, "vcpus", &vcpus, reterr);
	if (r == 0)
		r = read_size(req, "if_vcpus", &to_vcpus, reterr);
	if (r == 0)
		r = read_size(req, "memoryMB", &ret->reshape.memory_mib, reterr);
	if (r == 0)
		r = read_size(req, "if_memoryMB", &ret->reshape.to_memory_mib, reterr);
	if (r == 0)
		r = read_size(req, "diskSizeMB", &ret->reshape.disk_mib, reterr);
	if (r == 0)
		r = read_size(req, "if_diskSizeMB", &ret->reshape.to_disk_mib, reterr);
	ret->reshape.vcpus = (uint32_t)vcpus;
	ret->reshape.to_vcpus = (uint32_t)to_vcpus;
	return r;
}

bool replay_has_shape(const struct replay_plan *plan)
{
	return plan->reshape.to_vcpus || plan->reshape.to_memory_mib || plan->reshape.to_disk_mib;
}

int replay_take(const struct server *server, const struct replay_plan *plan, const char *pool, struct replay_pool *ret, struct err *reterr)
{
	if (!plan->is_wanted)
		return 0;
	if (asked_copy(shell_asked(server->shell), pool, plan->from_us, &ret->asked) < 0)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a copy of what was asked for");
	for (size_t i = 0; i < ret->asked.n; i++) {
		const bool is_in = ret->asked.requests[i].at_us >= plan->from_us;

		ret->n_requests += is_in;
		ret->n_unplaced += is_in && ret->asked.requests[i].until_us == PLACE_UNKNOWN;
	}
	return 0;
}

void replay_pool_deinit(struct replay_pool *pool)
{
	asked_list_deinit(&pool->asked);
}

int replay_work(const struct replay_plan *plan, const struct place_copy *copy, const struct place_change *change, struct replay_pool *pool)
{
	const struct asked_list *asked = &pool->asked;
	int r;

	if (!plan->is_wanted)
		return 0;
	pool->life_us = place_replay_life(asked->requests, asked->n);
	place_replay_sort(asked->requests, asked->n);
	r = place_replay(copy, asked->requests, asked->n, plan->from_us, pool->life_us, NULL, NULL, &pool->now);
	if (r == 0 && change)
		r = place_replay(copy, asked->requests, asked->n, plan->from_us, pool->life_us, change, &plan->reshape, &pool->then);
	return r;
}

/* ---- what is answered ---- */

static json_t *view_result(const struct place_replay_result *result)
{
	json_t *by = json_object();

	for (enum place_constraint i = 0; i < PLACE_CONSTRAINT_MAX_; i++)
		if (result->by[i])
			(void)json_object_set_new(by, place_constraint_name(i), json_integer((json_int_t)result->by[i]));
	return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:{s:I, s:I, s:I}}", "placed", (json_int_t)result->n_placed, "refused",
		(json_int_t)result->n_refused, "standing", (json_int_t)result->n_standing, "standing_refused",
		(json_int_t)result->n_standing_refused, "first_refused", view_time(result->first_us), "by", by, "peak", "sandboxes",
		(json_int_t)result->peak_sandboxes, "memory_mib", (json_int_t)result->peak_memory_mib, "vcpus",
		(json_int_t)result->peak_vcpus);
}

json_t *replay_view(const struct replay_plan *plan, const struct options *options, const struct replay_pool *pool, bool has_if)
{
	const int64_t since_us = MAX(pool->asked.since_us, plan->to_us - options->history_age);
	const bool is_known = pool->life_us != PLACE_STAYS;

	if (!plan->is_wanted)
		return json_null();
	return json_pack("{s:o, s:o, s:b, s:o, s:o, s:I, s:I, s:o, s:o}", "from", view_time(plan->from_us), "to", view_time(plan->to_us),
		"complete", plan->from_us >= since_us, "since", view_time(since_us), "life_s",
		is_known ? json_real((double)pool->life_us / USEC_PER_SEC) : json_null(), "requests", (json_int_t)pool->n_requests, "unplaced",
		(json_int_t)pool->n_unplaced, "now", view_result(&pool->now), "if", has_if ? view_result(&pool->then) : json_null());
}
