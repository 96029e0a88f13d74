/* SPDX-License-Identifier: Apache-2.0
 *
 * See rate.h. RATE_MAX keeps a full bucket, and a debt as large, within 63 bits of millionths.
 */
#include "rate.h"

#include "base/util.h"

#define TOKEN INT64_C(1000000)

bool rate_config_is_valid(const struct rate_config *config)
{
	return config->ops <= RATE_MAX && config->ops_burst <= RATE_MAX && config->bytes <= RATE_MAX &&
		config->bytes_burst <= RATE_MAX;
}

static struct rate_bucket bucket(uint64_t per_sec, uint64_t burst)
{
	uint64_t size = burst > 0 ? burst : per_sec;

	return (struct rate_bucket) { .per_sec = per_sec, .burst = size, .level = (int64_t) size * TOKEN };
}

void rate_init(struct rate *rate, const struct rate_config *config, int64_t now_usec)
{
	*rate = (struct rate) { .ops = bucket(config->ops, config->ops_burst),
		.bytes = bucket(config->bytes, config->bytes_burst), .at_usec = now_usec };
}

static void refill(struct rate_bucket *bucket, int64_t usec)
{
	int64_t full = (int64_t) bucket->burst * TOKEN, more, level;

	/* so long that it does not fit: longer than any debt takes */
	if (__builtin_mul_overflow(usec, (int64_t) bucket->per_sec, &more) ||
		__builtin_add_overflow(bucket->level, more, &level))
		level = full;
	bucket->level = MIN(level, full);
}

static int64_t wait_usec(const struct rate_bucket *bucket)
{
	int64_t per_sec = (int64_t) bucket->per_sec;

	if (per_sec == 0 || bucket->level >= TOKEN)
		return 0;
	return (TOKEN - bucket->level + per_sec - 1) / per_sec;
}

int64_t rate_wait_usec(struct rate *rate, int64_t now_usec)
{
	int64_t ops, bytes;

	if (now_usec > rate->at_usec) {
		refill(&rate->ops, now_usec - rate->at_usec);
		refill(&rate->bytes, now_usec - rate->at_usec);
	}
	rate->at_usec = now_usec;
	ops = wait_usec(&rate->ops);
	bytes = wait_usec(&rate->bytes);
	return MAX(ops, bytes);
}

static void charge(struct rate_bucket *bucket, uint64_t n)
{
	int64_t most = (int64_t) RATE_MAX * TOKEN;

	if (bucket->per_sec > 0)
		bucket->level = MAX(bucket->level - (int64_t) MIN(n, RATE_MAX) * TOKEN, -most);
}

void rate_charge(struct rate *rate, uint64_t ops, uint64_t bytes)
{
	charge(&rate->ops, ops);
	charge(&rate->bytes, bytes);
}
