/* SPDX-License-Identifier: Apache-2.0
 *
 * How sums are kept between the loop and the thread; for rollups.c and rollups-ask.c.
 */
#pragma once

#include <sys/queue.h>

#include "base/table.h"
#include "server/rollups.h"
#include "server/worker.h"

struct kind_entry {
	struct rollup_kind kind;
	uint32_t number;
	UT_hash_handle hh;
};

/* Kinds of one tenant, or of one pool, whose names their callers choose. */
struct share {
	char name[ID_NAME_MAX + 8];
	size_t n;
	UT_hash_handle hh;
};

struct mark_entry {
	struct rollup_mark mark;
	bool is_dirty;
	UT_hash_handle hh;
};

struct heard_entry {
	char node[ID_SIZE];
	uint64_t seq;
	bool is_dirty;
	UT_hash_handle hh;
};

struct flush {
	STAILQ_ENTRY(flush) link;
	struct rollups *rollups;
	struct rollup_change *changes;
	size_t n_changes, room;
	const struct kind_entry **kinds; /* that are new */
	struct rollup_mark *marks;
	struct heard_entry *heard;
	size_t n_kinds, n_marks, n_heard;
	int64_t now_us, sure_us;
	struct err err;
	bool is_done;
};
STAILQ_HEAD(flush_list, flush);

/* What the file has rows of. */
struct kept {
	int64_t expired_us; /* it was looked through then */
	int64_t since_us[ROLLUP_LEVEL_MAX_]; /* nothing of that level is missing from then on */
};

struct rollups {
	struct server *server;
	struct worker *worker;
	struct event *timer;
	struct kind_entry *kinds;
	struct share *shares;
	uint32_t last_kind;
	uint32_t first_new_kind; /* those from here on are not written yet */
	struct mark_entry *marks;
	struct heard_entry *heard;
	struct rollup_change *changes;
	size_t n_changes, room;
	struct flush_list flushes; /* with the thread, or waiting for it */
	size_t n_flushes;
	LIST_HEAD(, question) questions;
	size_t n_questions;
	int64_t sure_us;
	int64_t begun_us; /* of what was before, nothing was heard */
	uint64_t n_lost;
	int64_t lost_until_us;
	bool is_failing;

	/* the thread's */
	struct rollup_db *db;
	struct kept kept;
	uint64_t bytes_max;
};

void rollups_question_free(struct question *question);
