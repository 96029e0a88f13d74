/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of each pool is taken: looked at every ten seconds, written to the store hour by hour (usage/<pool>/<hour>, kept for
 * USAGE_DAYS), read again at start; and when each pool runs out (docs/decisions/0022). What the hour that runs has gathered is
 * lost when the process ends.
 */
#pragma once

#include <jansson.h>

#include "base/err.h"

struct forecast;
struct place_room;
struct server;

#define FORECAST_DAYS 30 /* that a trend is looked for in */

/* Reads what the store has. */
int forecast_new(struct forecast **ret, struct server *server, struct err *reterr);
void forecast_free(struct forecast *forecast);
/* One look at every pool, as if it were `now_us`: what the timer does. */
void forecast_look(struct forecast *forecast, int64_t now_us);
/* Of one pool whose size is `total`: as docs/api.md says of GET /v1/capacity. */
json_t *forecast_json(const struct forecast *forecast, const char *pool, const struct place_room *total, int64_t now_us);
