/* SPDX-License-Identifier: Apache-2.0
 *
 * Randomness as a value that is passed in, so that a whole fleet can be replayed from one seed.
 * rng_system() draws from getrandom(); rng_seeded() is deterministic and must not be used for secrets.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct rng {
	uint64_t state[4]; /* xoshiro256**; unused when `system` */
	int system;
};

struct rng rng_system(void);
struct rng rng_seeded(uint64_t seed);
uint64_t rng_u64(struct rng *rng);
/* Uniform in [0, bound); bound > 0. */
uint64_t rng_below(struct rng *rng, uint64_t bound);
void rng_bytes(struct rng *rng, void *buf, size_t size);
