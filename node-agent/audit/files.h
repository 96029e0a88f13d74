/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of an audit log (log.h): which there are, and what their ends say. For this folder alone.
 */
#pragma once

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/chain.h"

struct audit_file {
	uint64_t first; /* number of its first entry */
	uint64_t size;
	int64_t changed_us;
};

struct audit_files {
	struct audit_file *files; /* by their first entry */
	size_t n;
};

void audit_file_path(const char *directory, uint64_t first, char ret[static PATH_MAX]);
/* 0 or -errno; a directory that is not there has none. */
int audit_files_list(struct audit_files *ret, const char *directory);
void audit_files_deinit(struct audit_files *files);

/* Bytes up to the last end of a line. */
int audit_file_whole(const char *path, uint64_t *ret);
/* What the file's first entry says that it follows. */
int audit_file_base(const char *directory, uint64_t first, struct chain *ret);
/* What the last entry says of itself, changed or not; CHAIN_NEW where there is none. */
void audit_files_head(const char *directory, const struct audit_files *files, struct chain *ret);
