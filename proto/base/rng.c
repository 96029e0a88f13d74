/* SPDX-License-Identifier: Apache-2.0
 *
 * See rng.h. The seeded generator is xoshiro256** (Blackman and Vigna, public domain algorithm), seeded
 * through splitmix64.
 */
#include "base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/util.h"

struct rng rng_system(void)
{
	return (struct rng) { .system = 1 };
}

struct rng rng_seeded(uint64_t seed)
{
	struct rng rng = { .system = 0 };

	for (int i = 0; i < 4; i++) {
		uint64_t z = (seed += UINT64_C(0x9e3779b97f4a7c15));

		z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
		z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
		rng.state[i] = z ^ (z >> 31);
	}
	return rng;
}

static uint64_t rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

uint64_t rng_u64(struct rng *rng)
{
	uint64_t *s = rng->state, result, t;

	if (rng->system) {
		rng_bytes(rng, &result, sizeof(result));
		return result;
	}
	result = rotl(s[1] * 5, 7) * 9;
	t = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return result;
}

uint64_t rng_below(struct rng *rng, uint64_t bound)
{
	uint64_t limit = UINT64_MAX - UINT64_MAX % bound, x;

	do {
		x = rng_u64(rng);
	} while (x >= limit);
	return x % bound;
}

void rng_bytes(struct rng *rng, void *buf, size_t size)
{
	unsigned char *p = buf;

	while (rng->system && size > 0) {
		ssize_t n = getrandom(p, MIN(size, (size_t) 256), 0);

		if (n < 0 && errno != EINTR)
			abort(); /* ends the process: without entropy no key or id may be made (a broken kernel) */
		if (n > 0) {
			p += n;
			size -= (size_t) n;
		}
	}
	for (; size > 0; p++, size--)
		*p = (unsigned char) (rng_u64(rng) >> 56);
}
