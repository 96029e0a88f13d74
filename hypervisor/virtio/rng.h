/* SPDX-License-Identifier: Apache-2.0
 *
 * virtio-rng: the host kernel's random numbers, at most RNG_REQUEST_MAX per request.
 */
#pragma once

#include "loop.h"
#include "virtio/device.h"

#define RNG_REQUEST_MAX (64u * 1024)

struct rng_device {
	struct device device;
	struct loop *loop;
	struct loop_source notify;
	uint64_t bytes; /* under the device's lock */
};

int rng_init(struct rng_device *rng, struct loop *loop, const struct memory *memory);
void rng_deinit(struct rng_device *rng);
/* Serves what waits, a bounded number of requests. On the loop thread. */
void rng_serve(struct rng_device *rng);
