/* SPDX-License-Identifier: Apache-2.0
 *
 * The snapshots that this node keeps (core/snapshot.c decides): <state>/snapshots/<id>/ with the VM's state, its memory, a
 * copy of its disk and a record of what a sandbox that begins as it has to be. One is made in <id>.new, and is one from the
 * rename on; what has that name at the start of an agent is removed. Functions that give an error block on the disk.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "base/err.h"
#include "wire/messages.h"

/* `unfinished`: while it is made. 0 or -ENAMETOOLONG. */
int snapshot_dir(const char *state, const char *id, bool unfinished, char ret[static PATH_MAX]);
/* "" where they are too long. */
void snapshot_paths(const char *state, const char *id, bool unfinished, char ret_state[static PATH_MAX],
	char ret_memory[static PATH_MAX]);

/* Makes the directory for one that is to be taken, empty. SNAPSHOT_FAILED. */
int snapshot_begin(const char *state, const char *id, struct err *reterr);
/* Its files are there: makes them durable, and it whole. Sets info->size_mib. SNAPSHOT_FAILED; then what is left of it is
 * for snapshot_remove(). */
int snapshot_finish(const char *state, struct snapshot_info *info, struct err *reterr);
/* Whole or unfinished; none there is fine. It is gone for good when this returns 0. IO_FAILED. */
int snapshot_remove(const char *state, const char *id, struct err *reterr);

/* Removes unfinished ones and calls `each` with every whole one. One whose record cannot be read is left alone, said in the
 * log, and not told. STATE_UNREADABLE: the directory as a whole cannot be read, or
 * what it names cannot be made durable; then nothing was told. */
typedef void (*snapshots_each)(const struct snapshot_info *info, void *user);
int snapshots_load(const char *state, snapshots_each each, void *user, struct err *reterr);
