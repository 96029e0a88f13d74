/* SPDX-License-Identifier: Apache-2.0
 *
 * The accounts of a node on disk: <state>/usage has those of sandboxes that are there, <state>/usage-over those of sandboxes that
 * are not any more. Each is replaced as a whole, atomically. What is in both counts in its later version.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/supervisor.h"

enum usage_file { USAGE_LIVE, USAGE_OVER, USAGE_FILES };

struct usage_list {
	struct sv_usage_saved *items;
	size_t n, room;
};
void usage_list_deinit(struct usage_list *list);
int usage_list_add(struct usage_list *list, const struct sv_usage_saved *saved); /* 0 or -ENOMEM */

/* *ret is the caller's. 0 or -ENOMEM. */
int usage_pack(const struct usage_list *list, uint8_t **ret, size_t *ret_size);
int usage_unpack(const void *data, size_t size, struct usage_list *list, struct err *reterr); /* adds; STATE_UNREADABLE */

/* Durable when it returns. */
int usage_write(const char *state, enum usage_file which, const void *data, size_t size, struct err *reterr);
/* Adds what is there; a file that is not there has nothing. */
int usage_read(const char *state, enum usage_file which, struct usage_list *list, struct err *reterr);
/* One that cannot be read makes room for the next, and is kept beside it. */
void usage_put_aside(const char *state, enum usage_file which);
