/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal: <state>/sandboxes/<id>/state, one JournalRecord each, replaced atomically. The
 * supervisor's plain struct outside, store.proto inside. A record that cannot be read costs its
 * sandbox only; a directory that cannot be read is STATE_UNREADABLE and then nothing is served and
 * nothing deleted.
 */
#pragma once

#include <limits.h>
#include <stdint.h>

#include "base/err.h"
#include "core/supervisor.h"

/* <state>/sandboxes/<id> */
int journal_dir(const char *state, const char *sandbox, char ret[static PATH_MAX]);

/* Packs a record; *ret is the caller's. 0 or -ENOMEM. */
int journal_pack(const struct sv_journal *journal, uint8_t **ret, size_t *ret_size);
int journal_unpack(const void *data, size_t size, struct sv_journal *ret, struct err *reterr);

/* Durable when it returns (blocking). Makes the sandbox's directory where needed. */
int journal_write(
	const char *state, const char *sandbox, const void *data, size_t size, struct err *reterr);

/* Calls `each` with each sandbox: `journal` NULL and `err` set for one whose record is torn.
 * Returns STATE_UNREADABLE when the directory as a whole cannot be read; a record that is not there
 * (a crash between mkdir and the first write) is removed with its directory, for it promised
 * nothing to anybody. */
typedef void (*journal_each)(
	const char *sandbox, const struct sv_journal *journal, const struct err *err, void *user);
int journal_load(const char *state, journal_each each, void *user, struct err *reterr);

/* The same without touching anything: for `status`, while an agent may run. */
int journal_read(const char *state, journal_each each, void *user, struct err *reterr);

/* The highest epoch that was obeyed, 0 when none was saved, and whose it was. */
int journal_read_epoch(
	const char *state, uint64_t *ret, struct leader_mark *ret_leader, struct err *reterr);
int journal_write_epoch(const char *state, uint64_t epoch, const struct leader_mark *leader,
	struct err *reterr);
