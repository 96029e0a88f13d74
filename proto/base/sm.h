/* SPDX-License-Identifier: Apache-2.0
 *
 * State machines as a table: a row per state with its name, the states that may follow, how long it may
 * last, and the public state that it shows. One mover per type calls sm_move_is_allowed() and is the only
 * writer of the state.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct sm_state {
	const char *name;
	uint32_t next;         /* bit n: state n may follow */
	int64_t deadline_usec; /* 0: the state does not wait */
	int public_state;      /* meaning is the type's own */
};

#define SM_TO(state) (UINT32_C(1) << (state))

static inline bool sm_move_is_allowed(const struct sm_state *table, unsigned int from, unsigned int to)
{
	return (table[from].next & SM_TO(to)) != 0;
}
