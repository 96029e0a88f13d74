/* SPDX-License-Identifier: Apache-2.0
 *
 * A start as it goes, stage by stage, on stderr: a line per finished stage, and on a terminal the one under way.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct progress {
	bool is_shown;
	size_t n_shown;  /* stage records printed so far */
	bool has_open;   /* the line of the stage under way stands on the terminal */
};

/* `sandbox` is the answer of GET /v1/sandboxes/{id}. */
void progress_show(struct progress *progress, const json_t *sandbox);
void progress_end(struct progress *progress);
