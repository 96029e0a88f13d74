/* SPDX-License-Identifier: Apache-2.0
 *
 * See usage.h.
 */
#include "telemetry/usage.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "base/util.h"

struct day {
	int64_t day;
	bool is_known;
	uint64_t most[USAGE_KIND_MAX_];
};

struct pool {
	struct day days[USAGE_DAYS]; /* each at its number modulo USAGE_DAYS */
	int64_t hour;                /* that runs */
	uint64_t n_looks;
	double sums[USAGE_KIND_MAX_];
	uint64_t total[USAGE_KIND_MAX_];
	UT_hash_handle hh;
	char name[];
};

struct usage {
	struct pool *pools;
};

const char *usage_kind_name(enum usage_kind kind)
{
	static const char *const names[USAGE_KIND_MAX_] = { [USAGE_MEMORY] = "memory",
		[USAGE_CPU] = "cpu",
		[USAGE_DISK] = "disk",
		[USAGE_SANDBOXES] = "sandboxes" };

	return (unsigned int) kind < USAGE_KIND_MAX_ ? names[kind] : "none";
}

int usage_new(struct usage **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

struct usage *usage_free(struct usage *usage)
{
	struct pool *pool, *next;

	if (!usage)
		return NULL;
	HASH_ITER (hh, usage->pools, pool, next) {
		HASH_DEL(usage->pools, pool);
		free(pool);
	}
	free(usage);
	return NULL;
}

static struct pool *find(const struct usage *usage, const char *name)
{
	struct pool *pool = NULL;

	HASH_FIND_STR(usage->pools, name, pool);
	return pool;
}

static struct pool *find_or_make(struct usage *usage, const char *name)
{
	struct pool *pool = find(usage, name);
	size_t size = strlen(name) + 1;

	if (pool)
		return pool;
	pool = calloc(1, sizeof(*pool) + size);
	if (!pool)
		return NULL;
	memcpy(pool->name, name, size);
	HASH_ADD_KEYPTR(hh, usage->pools, pool->name, size - 1, pool);
	if (!pool->hh.tbl) { /* uthash had no memory */
		free(pool);
		return NULL;
	}
	return pool;
}

void usage_add(struct usage *usage, const char *name, const struct usage_hour *hour)
{
	struct pool *pool = hour->hour >= 0 ? find_or_make(usage, name) : NULL;
	const int64_t number = hour->hour / 24;
	struct day *day = pool ? &pool->days[number % USAGE_DAYS] : NULL;

	if (!day || (day->is_known && day->day > number))
		return; /* so old that its place is taken */
	if (!day->is_known || day->day < number)
		*day = (struct day) { .day = number, .is_known = true };
	for (size_t i = 0; i < USAGE_KIND_MAX_; i++)
		day->most[i] = MAX(day->most[i], hour->used[i]);
}

static void close_hour(const struct pool *pool, struct usage_hour *ret)
{
	ret->hour = pool->hour;
	for (size_t i = 0; i < USAGE_KIND_MAX_; i++) {
		ret->used[i] = (uint64_t) (pool->sums[i] / (double) pool->n_looks + 0.5);
		ret->total[i] = pool->total[i];
	}
}

bool usage_look(struct usage *usage, const char *name, int64_t now_us, const uint64_t used[static USAGE_KIND_MAX_],
	const uint64_t total[static USAGE_KIND_MAX_], struct usage_hour *ret_over)
{
	struct pool *pool = now_us >= 0 ? find_or_make(usage, name) : NULL;
	const int64_t hour = now_us / USAGE_HOUR_US;
	bool is_over;

	if (!pool)
		return false;
	is_over = pool->n_looks > 0 && pool->hour != hour;
	if (is_over) {
		close_hour(pool, ret_over);
		usage_add(usage, name, ret_over);
		pool->n_looks = 0;
		memset(pool->sums, 0, sizeof(pool->sums));
	}
	pool->hour = hour;
	pool->n_looks++;
	for (size_t i = 0; i < USAGE_KIND_MAX_; i++) {
		pool->sums[i] += (double) used[i];
		pool->total[i] = total[i];
	}
	return is_over;
}

static double value_of(const struct pool *pool, enum usage_kind kind, int64_t number)
{
	const struct day *day = &pool->days[number % USAGE_DAYS];

	return day->is_known && day->day == number ? (double) day->most[kind] : (double) NAN;
}

size_t usage_days(const struct usage *usage, const char *name, enum usage_kind kind, int64_t now_us, size_t max, double *ret,
	int64_t *ret_last)
{
	const struct pool *pool = find(usage, name);
	const int64_t today = now_us / USAGE_HOUR_US / 24, days = (int64_t) MIN(max, (size_t) USAGE_DAYS);
	size_t n = 0, known = 0;

	for (int64_t day = MAX(today - days, 0); pool && day < today; day++) {
		double value = value_of(pool, kind, day);

		if (n == 0 && isnan(value))
			continue;
		ret[n++] = value;
		if (!isnan(value)) {
			known = n;
			*ret_last = day;
		}
	}
	return known;
}
