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
int command_backup(int argc, char **argv);
int command_restore(int argc, char **argv);
int command_check(int argc, char **argv);
int command_keys(int argc, char **argv);

struct first_keys {
	char provider[API_KEY_SIZE];
	char tenant[API_KEY_SIZE];
};
/* What `init` does, without printing. CONFLICT: there is a state already; STORE_LOCKED: and a scheduler runs on it. */
int init_state(
	const struct options *options, bool force, struct first_keys *keys, struct err *reterr);

/* What `backup`, `restore` and `check` do, without printing. */
int backup_state(const struct options *options, const char *path, struct err *reterr);
struct restored {
	char lineage[ID_SIZE], old_lineage[ID_SIZE];
	size_t n_nodes;
};
int restore_state(const struct options *options, const char *path, bool force,
	struct restored *ret, struct err *reterr);
struct checked {
	size_t records, nodes, sandboxes, bad;
};
/* STORE_CORRUPT naming the first thing that is wrong; `bad` counts records that cannot be read. */
int check_state(const struct options *options, struct checked *ret, struct err *reterr);

/* Exit statuses, for scripts and for systemd. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };
