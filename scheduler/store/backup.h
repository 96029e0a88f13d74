/* SPDX-License-Identifier: Apache-2.0
 *
 * A store in one file, and back. A backup is taken while a scheduler runs or not, is one moment of the store, and
 * holds besides it the small files that its owner names (the link's keys): whoever reads it is the scheduler, so it is
 * made 0600. A backup is a SQLite file with one more table; restoring drops that table.
 */
#pragma once

#include "store/store.h"

struct backup_file {
	const char *name; /* of the state directory */
	void *data;
	size_t size;
};

/* Writes `path` (which must not exist) with the store of `dir` and `files`; durable when it returns. */
int backup_write(const char *dir, const char *path, const struct backup_file *files, size_t n,
	struct err *reterr);
/* Makes DIR/store.db from the backup; there must be none. STORE_CORRUPT: it is no whole backup; STORE_TOO_NEW. */
int backup_restore(const char *path, const char *dir, struct err *reterr);
/* One of the files in it; the caller frees *ret. *ret is NULL when it holds none of that name. */
int backup_read_file(
	const char *path, const char *name, void **ret, size_t *ret_size, struct err *reterr);
/* One of its records, likewise. */
int backup_read_record(
	const char *path, const char *key, void **ret, size_t *ret_size, struct err *reterr);
/* Every record of DIR's store whose key begins with `prefix`, as of now, also while a scheduler runs. */
int backup_each(const char *dir, const char *prefix, store_each each, void *user, struct err *reterr);
/* Every page and index of DIR's store, or of a backup (`path`, when `dir` is NULL). STORE_CORRUPT says what is wrong. */
int backup_check(const char *dir, const char *path, struct err *reterr);
