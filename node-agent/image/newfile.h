/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that appears whole or not at all: written beside its place under a temporary name, then synced and
 * renamed. What a killed process leaves behind is "<path>.new-<pid>". Blocking.
 */
#pragma once

#include <limits.h>
#include <sys/types.h>

#include "base/err.h"

struct newfile {
	int fd; /* -1: none */
	char path[PATH_MAX];
	char temporary[PATH_MAX];
};

#define NEWFILE_NULL { .fd = -1 }

/* 0, or `code` with the system's answer. */
int newfile_open(struct newfile *file, const char *path, mode_t mode, enum fail_code code, struct err *reterr);
int newfile_commit(struct newfile *file, enum fail_code code, struct err *reterr);
/* Removes what was not committed; for CLEANUP(). */
void newfile_deinit(struct newfile *file);
