/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of GET /v1/capacity that asks the placement once more for what was asked of it (place/replay.h).
 */
#pragma once

#include <jansson.h>

#include "place/replay.h"
#include "server/api.h"
#include "server/asked.h"

struct replay_plan {
	bool is_wanted;
	int64_t from_us, to_us;
	struct place_reshape reshape;
};

/* Of one pool. */
struct replay_pool {
	struct asked_list asked;
	uint64_t n_requests, n_unplaced; /* that came in that time; of them those that got no room */
	int64_t life_us;
	struct place_replay_result now, then;
};

/* `replay` is how far back; what `if_...` says is for those of the shape that is named. `now_us` is the end. 0, or reterr. */
int replay_read(const struct api_request *req, int64_t now_us, struct replay_plan *ret, struct err *reterr);
/* Whether another shape is asked about. */
bool replay_has_shape(const struct replay_plan *plan);
/* On the loop. */
int replay_take(const struct server *server, const struct replay_plan *plan, const char *pool, struct replay_pool *ret, struct err *reterr);
void replay_pool_deinit(struct replay_pool *pool);
/* In any thread; `change` NULL: nothing but what was. 0 or -ENOMEM. */
int replay_work(const struct replay_plan *plan, const struct place_copy *copy, const struct place_change *change, struct replay_pool *pool);
json_t *replay_view(const struct replay_plan *plan, const struct options *options, const struct replay_pool *pool, bool has_if);
