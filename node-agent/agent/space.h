/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of the disk each sandbox's and each snapshot's directory takes: the blocks of its files, so that a sparse disk costs
 * what was written to it. Blocks that two files share (a reflink) count for each of them.
 */
#pragma once

#include <stddef.h>

#include "core/supervisor.h"

struct space {
	struct sv_space *items;
	size_t n;
};

/* Blocking. What vanishes meanwhile is left out; 0, or -errno with what was found so far. */
int space_look(const char *state, struct space *ret);
void space_deinit(struct space *space);
