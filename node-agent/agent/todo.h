/* SPDX-License-Identifier: Apache-2.0
 *
 * Actions that wait. Each sandbox has a queue of its own: behind a journal write that is not yet
 * durable nothing of the same sandbox is performed. An inventory waits for every write that was
 * asked for before it, for it tells the scheduler of all sandboxes.
 */
#pragma once

#include <stdint.h>
#include <sys/queue.h>

#include "core/supervisor.h"

struct todo {
	STAILQ_ENTRY(todo) link;
	TAILQ_ENTRY(todo) write_link; /* in agent.writes while it is a journal write */
	struct sv_action action;      /* owned */
	uint64_t step;
	uint64_t ticket; /* 0: no journal write */
};

struct held {
	STAILQ_ENTRY(held) link;
	struct sv_action action; /* owned */
	uint64_t barrier;        /* goes once no write with a ticket up to here is left */
};
