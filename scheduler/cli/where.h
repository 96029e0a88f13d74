/* SPDX-License-Identifier: Apache-2.0
 *
 * --where of the lists: MEMBER=VALUE, also !=, <, <=, >, >=, of the objects that -o json prints ("capacity.sandboxes" reaches into one).
 * Numbers in texts compare as numbers, so that 6.1.9 comes before 6.1.100.
 */
#pragma once

#include "cli/cli.h"

/* Whether `text` has that form. */
bool where_is_valid(const char *text);
/* Leaves in `list` what fulfils all of `conditions`, an array of valid texts. The member that no element of the list has, which is most
 * likely not spelt so, and which nothing was left out for; NULL: none. */
const char *where_keep(json_t *list, const json_t *conditions);
