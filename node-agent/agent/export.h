/* SPDX-License-Identifier: Apache-2.0
 *
 * A sandbox in one file: a tar archive (zstd) of what it is, so that nothing but the file is needed to go on with it elsewhere.
 *
 *   state, memory, disk   a snapshot of the VM        image          what its root was made from
 *   recipe.json           what it was asked for       results.json   its stages and its failure, if any
 *   usage.json            what it has used            console, vmm.log
 *   manifest.json         last: size and SHA-256 of every part, and the snapshot's record
 *
 * It holds all that the sandbox has in memory and on disk, secrets included: mode 0600, and whoever has it has them.
 */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "core/supervisor.h"

#define EXPORT_FORMAT "croft-sandbox-export-1"

struct export_source {
	const struct sv_journal *journal; /* of the sandbox */
	const char *node, *pool;
	json_t *usage; /* the account of it */
	const char *state_path, *memory_path, *disk_path; /* of the snapshot */
	const char *image_path;
};

/* Whole or not at all; an existing file is not replaced. Blocking, minutes for a big one. EXPORT_FAILED. */
int export_write(const struct export_source *source, const char *file, struct err *reterr);

/* `fd` is read to its end. Verifies and unpacks into <state>/snapshots/<ret->id>, a new id, and its image into `images` where it is not there.
 * EXPORT_INVALID, EXPORT_FAILED; then nothing is left. */
int export_read(int fd, const char *state, const char *images, struct snapshot_info *ret, struct err *reterr);
