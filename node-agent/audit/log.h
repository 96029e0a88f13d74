/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's own audit log: what was run in its sandboxes and what came of it, with command lines, host names and the first of the
 * output. It is the customer's and stays on the node; entries are chained by their hashes (wire/chain.h).
 *
 * A directory of files, each named by the number of its first entry; a line of JSON an entry, with its `hash`. One process
 * writes (the gateway), any may read. Files are closed at a sixteenth of the most bytes; the oldest go when there are more than
 * that or when the last entry in them is over the most age, and an entry of kind "forgotten" says up to which number and hash, so
 * that what was dropped by this rule is told from what somebody took away.
 *
 * Nothing waits for the disk: entries are with the kernel when they are appended, and a host that loses its power loses the last
 * of them. A line that was cut off by that is removed at the next start, which an entry of kind "torn" says. While the log cannot
 * be written commands run on; what is lost meanwhile is counted in an entry of kind "lost".
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/chain.h"

#define AUDIT_LINE_MAX (256u * 1024u)
#define AUDIT_FILES 16u

struct audit_log;

struct audit_config {
	const char *directory; /* made where it is missing */
	uint64_t size_max;
	int64_t age_max_us;
};

/* Goes on behind the last entry. A log that somebody changed is gone on with too: verifying finds it. NO_MEMORY alone; what keeps
 * the log from being written is NODE_AUDIT_UNWRITTEN with the entries. */
int audit_log_open(struct audit_log **ret, const struct audit_config *config, int64_t now_us, struct err *reterr);
void audit_log_close(struct audit_log *log);

/* Takes `entry` over: an object with `kind` and `sandbox`; `when`, `seq` and `prev` are put in. 0; or NODE_AUDIT_UNWRITTEN, and
 * the entry is counted as lost. */
int audit_log_append(struct audit_log *log, json_t *entry, int64_t now_us, struct err *reterr);
/* The last entry. */
const struct chain *audit_log_head(const struct audit_log *log);
uint64_t audit_log_lost(const struct audit_log *log);

/* ---- reading, by whoever may ---- */

struct audit_reader;

/* From the first entry on; `sandbox` "": of all. A file that goes meanwhile is left out. */
int audit_reader_new(struct audit_reader **ret, const char *directory, const char *sandbox, struct err *reterr);
void audit_reader_free(struct audit_reader *reader);
/* The next line, without its end, until the next call; *ret NULL: there is none. After `budget` bytes that were no line of the
 * sandbox -EAGAIN: there may be more. */
int audit_reader_next(struct audit_reader *reader, size_t budget, const char **ret, size_t *ret_size, struct err *reterr);

struct audit_verdict {
	struct chain head, base; /* the last entry; the one before the first */
	uint64_t n_lost;         /* entries that the log says it lost */
};
/* NODE_AUDIT_BROKEN with the first entry that is not as it was written. */
int audit_log_verify(const char *directory, struct audit_verdict *ret, struct err *reterr);
