/* SPDX-License-Identifier: Apache-2.0
 *
 * The other end of owner.h's socket, for commands.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct agent_options;

/* 0: done, and *ret_left (may be NULL) sandboxes have a VM yet; 1: why not was said on standard error; -ENOENT, -ECONNREFUSED:
 * there is no agent. Takes `asked`. */
int owner_ask(const struct agent_options *options, json_t *asked, json_int_t *ret_left);
bool owner_is_nobody(int status);
