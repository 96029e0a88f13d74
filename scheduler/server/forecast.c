/* SPDX-License-Identifier: Apache-2.0
 *
 * See forecast.h.
 */
#include "server/forecast.h"

#include <errno.h>
#include <event2/event.h>
#include <math.h>
#include <string.h>

#include "place/capacity.h"
#include "server/codec.h"
#include "server/feed.h"
#include "server/ops.h"
#include "server/shell.h"
#include "server/view.h"
#include "telemetry/trend.h"
#include "telemetry/usage.h"

#define LOOK_S 10
#define BATCH 100 /* operations */
#define DAY_US (24 * USAGE_HOUR_US)
#define FAR_DAYS 36500.0 /* a century: no date any more */

struct forecast {
	struct server *server;
	struct usage *usage;
	struct event *look;
};

/* ---- the store ---- */

static bool copy_numbers(uint64_t **ret, size_t *ret_n, const uint64_t *from)
{
	*ret = malloc(USAGE_KIND_MAX_ * sizeof(**ret));
	if (!*ret)
		return false;
	memcpy(*ret, from, USAGE_KIND_MAX_ * sizeof(**ret));
	*ret_n = USAGE_KIND_MAX_;
	return true;
}

/* The hour that is over, in; the one that is too old by now, out. */
static void put_hour(struct ops *ops, const char *pool, const struct usage_hour *hour)
{
	Croft__UsageRecord *message = CODEC_NEW(Croft__UsageRecord, croft__usage_record__init);

	if (!message) {
		ops->no_memory = true;
		return;
	}
	message->hour = hour->hour;
	ops_put(ops,
		codec_whole(&message->base, codec_set(&message->pool, pool) &&
						    copy_numbers(&message->used, &message->n_used, hour->used) &&
						    copy_numbers(&message->total, &message->n_total, hour->total)),
		STORE_ANY, "usage/%s/%lld", pool, (long long)hour->hour);
	ops_delete(ops, "usage/%s/%lld", pool, (long long)(hour->hour - 24 * USAGE_DAYS));
}

struct loading {
	struct forecast *forecast;
	int64_t oldest; /* hour that is kept */
	struct ops old;
	struct err *err;
};

static bool load_hour(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	struct loading *loading = user;
	Croft__UsageRecord *message =
		(Croft__UsageRecord *)codec_unpack(&croft__usage_record__descriptor, key, value, size, loading->err);
	struct usage_hour hour = { .hour = 0 };

	(void)revision;
	if (!message)
		return false;
	hour.hour = message->hour;
	for (size_t i = 0; i < USAGE_KIND_MAX_ && i < message->n_used; i++)
		hour.used[i] = message->used[i];
	if (hour.hour >= loading->oldest)
		usage_add(loading->forecast->usage, message->pool, &hour);
	else if (loading->old.n < BATCH) /* of a time when the scheduler did not run; more at the next start */
		ops_delete(&loading->old, "%s", key);
	croft__usage_record__free_unpacked(message, NULL);
	return true;
}

static int load(struct forecast *forecast, struct err *reterr)
{
	struct err err = ERR_NULL;
	struct loading loading = { .forecast = forecast,
		.oldest = clock_realtime_usec() / USAGE_HOUR_US - 24 * USAGE_DAYS,
		.err = &err };

	(void)store_load(forecast->server->store, "usage/", load_hour, &loading, &err);
	if (loading.old.n > 0 && !err_is_set(&err))
		shell_commit(forecast->server->shell, &loading.old, NULL, NULL);
	ops_deinit(&loading.old);
	if (!err_is_set(&err))
		return 0;
	*reterr = err;
	return -EIO;
}

/* ---- looking ---- */

static void numbers_of(const struct place_room *room, uint64_t ret[static USAGE_KIND_MAX_])
{
	ret[USAGE_MEMORY] = room->memory_mib;
	ret[USAGE_CPU] = room->cpu_percent;
	ret[USAGE_DISK] = room->disk_mib;
	ret[USAGE_SANDBOXES] = room->sandboxes;
}

void forecast_look(struct forecast *forecast, int64_t now_us)
{
	struct server *server = forecast->server;
	struct ops ops = { .n = 0 };

	for (const struct pool_entry *pool = server->registry.pools; pool; pool = pool->hh.next) {
		uint64_t used[USAGE_KIND_MAX_], total[USAGE_KIND_MAX_];
		struct place_room all, taken;
		struct usage_hour hour;

		if (pool->revoked_us || !fleet_pool_room(shell_fleet(server->shell), pool->record.name, &all, &taken))
			continue;
		feed_pool(server->feed, pool->record.name, &all, &taken);
		numbers_of(&taken, used);
		numbers_of(&all, total);
		if (!usage_look(forecast->usage, pool->record.name, now_us, used, total, &hour) || shell_is_tight(server->shell))
			continue;
		put_hour(&ops, pool->record.name, &hour);
		if (ops.n >= BATCH)
			shell_commit(server->shell, &ops, NULL, NULL); /* one that fails costs its hours */
	}
	if (ops.n > 0)
		shell_commit(server->shell, &ops, NULL, NULL);
	ops_deinit(&ops);
}

static void on_look(evutil_socket_t fd, short what, void *user)
{
	(void)fd;
	(void)what;
	forecast_look(user, clock_realtime_usec());
}

int forecast_new(struct forecast **ret, struct server *server, struct err *reterr)
{
	const struct timeval every = { .tv_sec = LOOK_S };
	struct forecast *forecast = calloc(1, sizeof(*forecast));
	int r = 0;

	if (forecast) {
		forecast->server = server;
		forecast->look = event_new(server->base, -1, EV_PERSIST, on_look, forecast);
	}
	if (!forecast || !forecast->look || event_priority_set(forecast->look, LOOP_BULK) < 0 ||
		event_add(forecast->look, &every) < 0 || usage_new(&forecast->usage) < 0)
		r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for forecasts");
	if (r == 0)
		r = load(forecast, reterr);
	if (r < 0) {
		forecast_free(forecast);
		return r;
	}
	*ret = forecast;
	return 0;
}

void forecast_free(struct forecast *forecast)
{
	if (!forecast)
		return;
	if (forecast->look)
		event_free(forecast->look);
	usage_free(forecast->usage);
	free(forecast);
}

/* ---- what is said of it ---- */

struct finding {
	struct trend trend;
	double values[USAGE_DAYS]; /* of the days up to last_day */
	size_t n_values;
	size_t n_days;
	int64_t last_day;
};

/* Null where there is no such day, or none that anybody would plan for. */
static json_t *day_or_null(const struct finding *finding, double steps)
{
	if (finding->trend.verdict != TREND_GROWS || !(steps < FAR_DAYS))
		return json_null();
	return view_time((finding->last_day + 1) * DAY_US + (int64_t)(steps * (double)DAY_US));
}

static void set_days(json_t *object, const struct finding *finding)
{
	const struct finding none = { .trend = { .verdict = TREND_NONE } };

	finding = finding ? finding : &none;
	(void)json_object_set_new(object, "runs_out", day_or_null(finding, finding->trend.reaches));
	(void)json_object_set_new(object, "earliest", day_or_null(finding, finding->trend.reaches_low));
	(void)json_object_set_new(object, "latest", day_or_null(finding, finding->trend.reaches_high));
}

/* A day of which nothing is known is null. */
static json_t *view_daily(const struct finding *finding, double unit)
{
	json_t *list = json_array();

	for (size_t i = 0; i < finding->n_values; i++)
		(void)json_array_append_new(list, isnan(finding->values[i]) ? json_null() : json_real(finding->values[i] / unit));
	return list;
}

static json_t *view_finding(enum usage_kind kind, const struct finding *finding, double limit)
{
	const struct trend *trend = &finding->trend;
	const double unit = kind == USAGE_CPU ? 100 : 1;
	json_t *object = json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "resource", usage_kind_name(kind), "verdict",
		trend_name(trend->verdict), "days", (json_int_t)finding->n_days, "p", trend->p, "level", trend->level / unit, "limit",
		limit / unit, "per_day", trend->slope / unit, "per_day_low", trend->slope_low / unit, "per_day_high",
		trend->slope_high / unit);

	if (object) {
		(void)json_object_set_new(object, "daily", view_daily(finding, unit));
		(void)json_object_set_new(object, "last_day",
			finding->n_values ? view_time(finding->last_day * DAY_US) : json_null());
		set_days(object, finding);
	}
	return object;
}

static struct finding find(const struct forecast *forecast, const char *pool, enum usage_kind kind, double limit, int64_t now_us)
{
	struct finding finding = { .n_days = 0 };

	finding.n_values = usage_days(forecast->usage, pool, kind, now_us, FORECAST_DAYS, finding.values, &finding.last_day);
	trend_find(finding.values, finding.n_values, limit, &finding.trend);
	for (size_t i = 0; i < finding.n_values; i++)
		finding.n_days += isnan(finding.values[i]) ? 0 : 1;
	return finding;
}

json_t *forecast_json(const struct forecast *forecast, const char *pool, const struct place_room *total, int64_t now_us)
{
	uint64_t limits[USAGE_KIND_MAX_];
	struct finding findings[USAGE_KIND_MAX_];
	const struct finding *first = NULL;
	enum trend_verdict verdict = TREND_TOO_SHORT;
	json_t *object, *list = json_array();

	numbers_of(total, limits);
	for (enum usage_kind i = 0; i < USAGE_KIND_MAX_; i++) {
		findings[i] = find(forecast, pool, i, (double)limits[i], now_us);
		verdict = findings[i].trend.verdict == TREND_TOO_SHORT ? verdict : TREND_NONE;
		if (findings[i].trend.verdict == TREND_GROWS && (!first || findings[i].trend.reaches < first->trend.reaches))
			first = &findings[i];
		(void)json_array_append_new(list, view_finding(i, &findings[i], (double)limits[i]));
	}
	object = json_pack("{s:s, s:s?, s:o}", "verdict", trend_name(first ? TREND_GROWS : verdict), "by",
		first ? usage_kind_name((enum usage_kind)(first - findings)) : NULL, "resources", list);
	if (object)
		set_days(object, first);
	return object;
}
