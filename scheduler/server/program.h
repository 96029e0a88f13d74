/* SPDX-License-Identifier: Apache-2.0
 *
 * The subcommands of croft-scheduler; each returns the exit status.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"

struct options;

int command_init(int argc, char **argv);
int command_run(int argc, char **argv);

struct first_keys {
	char provider[API_KEY_SIZE];
	char tenant[API_KEY_SIZE];
};
/* What `init` does, without printing. CONFLICT: there is a state already; STORE_LOCKED: and a scheduler runs on it. */
int init_state(
	const struct options *options, bool force, struct first_keys *keys, struct err *reterr);

/* Exit statuses, for scripts and for systemd. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };
