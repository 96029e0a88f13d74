/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of the link, as files of the state directory:
 *
 *   link.key        the pair that link.port is served with
 *   link.fresh.key  during an overlap the pair that it will be served with, and link.next_port is already
 *   link.keys       next = public key that comes after that; until = end of the overlap
 *   link.next.key   the pair of `next`, until somebody takes it off this machine
 *
 * The next secret is not needed here before it is used. Nodes know its public half, from their token or a welcome, and
 * follow whoever has it: where the present secret is lost or stolen, one command and the file from the safe are enough.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "wire/endpoint.h"

struct options;

#define LINK_OVERLAP_USEC (30 * 24 * 3600 * USEC_PER_SEC)

struct link_keys {
	struct curve_keys served, fresh; /* fresh.public_key "": no overlap */
	char next[KEY_Z85_SIZE];         /* "": none was made */
	int64_t until_us;                /* wall clock */
};

/* An overlap that is over at `now_us` is ended first. */
int link_keys_read(const struct options *options, int64_t now_us, struct link_keys *ret, struct err *reterr);
/* Makes the next pair and writes it to `out`. CONFLICT: there is one. */
int link_keys_next(const struct options *options, const char *out, struct err *reterr);
/* Begins to use the next pair, read from `next`; a new next one is written to `out`. `at_once`: the present one is served no
 * more. CONFLICT: `next` is another pair than was announced, none was, or an overlap is not over. */
int link_keys_rotate(const struct options *options, const char *next, const char *out, bool at_once, int64_t now_us,
	struct err *reterr);
/* What nodes are to use from now on. */
static inline const struct curve_keys *link_keys_newest(const struct link_keys *keys)
{
	return *keys->fresh.public_key ? &keys->fresh : &keys->served;
}
