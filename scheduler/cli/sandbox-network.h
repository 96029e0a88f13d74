/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sandbox may reach, as options of `croft sandbox create` and `croft sandbox network`.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "cli/args.h"

struct network_args {
	bool is_closed;
	json_t *allow, *deny; /* arrays of texts; NULL: none */
};

/* Three rows of a table of options. */
#define NETWORK_ARGS(to)                                                                                                \
	{ "no-internet", 0, ARG_FLAG, &(to).is_closed, NULL, "Reach nothing but what --allow-out names." },            \
		{ "allow-out", 0, ARG_TEXTS, &(to).allow, "RULE",                                                      \
			"CIDR block, address or host name (*.NAME: all below it) that may be reached; may be repeated." }, \
	{                                                                                                              \
		"deny-out", 0, ARG_TEXTS, &(to).deny, "RULE",                                                          \
			"The same that may not, unless --allow-out names it too; may be repeated."                     \
	}

/* "allowOut" and "denyOut" where there are some. */
void network_args_put(const struct network_args *args, json_t *object);
void network_args_deinit(struct network_args *args);
