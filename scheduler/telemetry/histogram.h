/* SPDX-License-Identifier: Apache-2.0
 *
 * Durations counted in buckets of about 9 % width (eight to a doubling), from 1 us to more than an hour: quantiles
 * in constant memory.
 */
#pragma once

#include <stdint.h>

#define HISTOGRAM_BUCKETS 272

struct histogram {
	uint64_t n;
	uint32_t buckets[HISTOGRAM_BUCKETS];
};

static inline unsigned int histogram_bucket(int64_t usec)
{
	uint64_t value = usec < 1 ? 1 : (uint64_t)usec;
	unsigned int exponent = 63u - (unsigned int)__builtin_clzll(value);
	unsigned int part = exponent >= 3 ? (unsigned int)(value >> (exponent - 3)) & 7
					  : (unsigned int)(value << (3 - exponent)) & 7;
	unsigned int bucket = exponent * 8 + part;

	return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static inline void histogram_add(struct histogram *h, int64_t usec)
{
	h->n++;
	h->buckets[histogram_bucket(usec)]++;
}

static inline void histogram_merge(struct histogram *to, const struct histogram *from)
{
	to->n += from->n;
	for (unsigned int i = 0; i < HISTOGRAM_BUCKETS; i++)
		to->buckets[i] += from->buckets[i];
}

/* The middle of the bucket in which the quantile lies, in microseconds; 0 when nothing was counted. */
static inline double histogram_quantile(const struct histogram *h, double q)
{
	uint64_t rank = (uint64_t)((double)h->n * q), seen = 0;

	for (unsigned int i = 0; i < HISTOGRAM_BUCKETS && h->n; i++) {
		seen += h->buckets[i];
		if (seen > rank || seen == h->n)
			return (double)(UINT64_C(1) << (i / 8)) *
			       (1.0 + ((double)(i % 8) + 0.5) / 8.0);
	}
	return 0.0;
}
