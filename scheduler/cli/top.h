/* SPDX-License-Identifier: Apache-2.0
 *
 * croft top: what the API answers at one moment, and how it looks on a terminal of a size. Drawing is pure.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/http.h"

enum top_view { TOP_ALL, TOP_STAGES, TOP_FAILURES, TOP_NODES, TOP_CAPACITY, TOP_VIEW_MAX_ };

struct top_data {
	json_t *stages, *failures; /* NULL: nothing was answered yet */
	json_t *capacity, *fleet;  /* NULL as well where the key may not see them */
};
void top_data_deinit(struct top_data *data);
/* Asks anew; `data` changes when all of it was answered. `with_nodes`: each node, not their sums alone. */
int top_data_ask(const struct cli *cli, const char *window, bool with_nodes, const volatile sig_atomic_t *stop, struct top_data *data,
	struct failure *failure);

struct top_screen {
	unsigned int width, height; /* height 0: as long as it is */
	bool is_live;               /* lines overwrite what stood there */
	bool has_color;
	enum top_view view;
	const char *url, *window;
	bool is_paused;
	const char *trouble; /* why what is shown is old; NULL: it is not */
};
/* No line is wider than the screen, and there are no more than it has; what is no printable ASCII is "?". */
void top_draw(FILE *to, const struct top_screen *screen, const struct top_data *data);
const char *top_view_name(enum top_view view);
