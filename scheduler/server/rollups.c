/* SPDX-License-Identifier: Apache-2.0
 *
 * See rollups.h. The loop collects changes, marks and numbers in a struct flush; the thread alone touches the database.
 */
#include "server/rollups-private.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define FLUSH_S 2
#define CHANGES_MAX 65536u /* of one flush: over that it goes at once */
#define FLUSHES_MAX 8u     /* that wait for the thread: over that stages are lost */
#define MARK_KEEP_US (60 * USEC_PER_SEC) /* of a sandbox that is over; longer than any commit takes */
#define EXPIRE_EVERY_US (60 * USEC_PER_SEC)

/* ---- in the thread ---- */
struct item {
	struct rollup_key key;
	const struct rollup_change *change;
};

static int by_key(const void *a, const void *b)
{
	const struct rollup_key *left = &((const struct item *)a)->key, *right = &((const struct item *)b)->key;

	if (left->level != right->level)
		return (int)left->level - (int)right->level;
	if (left->grain != right->grain)
		return (int)left->grain - (int)right->grain;
	if (left->bucket != right->bucket)
		return left->bucket < right->bucket ? -1 : 1;
	return (left->kind > right->kind) - (left->kind < right->kind);
}

static size_t spread(const struct flush *flush, struct item *items)
{
	size_t n = 0;

	for (size_t i = 0; i < flush->n_changes; i++)
		for (enum rollup_level level = 0; level < ROLLUP_LEVEL_MAX_; level++) {
			const struct rollup_change *change = &flush->changes[i];

			if (change->when_us < flush->now_us - rollup_spans[level].keep_us)
				continue; /* told late: nothing is kept of that time here */
			for (enum rollup_grain grain = 0; grain < ROLLUP_GRAIN_MAX_; grain++)
				if (change->kinds[grain])
					items[n++] = (struct item){ { level, grain, change->when_us / rollup_spans[level].step_us,
									    change->kinds[grain] },
						change };
		}
	qsort(items, n, sizeof(*items), by_key);
	return n;
}

static int write_sums(struct rollup_db *db, const struct flush *flush, struct err *reterr)
{
	struct item *items = calloc(flush->n_changes + 1, sizeof(*items) * ROLLUP_LEVEL_MAX_ * ROLLUP_GRAIN_MAX_);
	struct rate_sums *sums = malloc(sizeof(*sums));
	size_t n = items && sums ? spread(flush, items) : 0;
	int r = items && sums ? 0 : err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for sums");

	for (size_t i = 0; i < n && r == 0;) {
		const struct rollup_key key = items[i].key;

		memset(sums, 0, sizeof(*sums));
		for (; i < n && by_key(&items[i], &(struct item){ key, NULL }) == 0; i++)
			rollup_sum(sums, items[i].change);
		r = rollup_db_add(db, &key, sums, reterr);
	}
	free(items);
	free(sums);
	return r;
}

/* The first bucket of a level that stays: by its age; where all of it is too large, its oldest 32nd goes too. */
static int64_t first_kept(enum rollup_level level, int64_t oldest, int64_t now_us, bool is_large)
{
	const struct rollup_span *span = &rollup_spans[level];
	const int64_t now = now_us / span->step_us, aged = (now_us - span->keep_us) / span->step_us;
	const int64_t from = MAX(oldest, aged);

	return is_large ? MIN(from + (now - from) / 32 + 1, now) : aged;
}

/* *kept is what is there when the transaction is. */
static int expire(struct rollups *rollups, int64_t now_us, struct kept *kept, struct err *reterr)
{
	const bool is_large = rollup_db_size(rollups->db) > rollups->bytes_max;
	int r = 0;

	if (now_us - kept->expired_us < EXPIRE_EVERY_US && !is_large)
		return 0;
	kept->expired_us = now_us;
	for (enum rollup_level level = 0; level < ROLLUP_LEVEL_MAX_ && r == 0; level++) {
		const int64_t oldest = rollup_db_oldest(rollups->db, level), first = first_kept(level, oldest, now_us, is_large);
		char name[16];

		if (oldest < 0 || oldest >= first)
			continue;
		r = rollup_db_expire(rollups->db, level, first, reterr);
		kept->since_us[level] = MAX(kept->since_us[level], first * rollup_spans[level].step_us);
		(void)snprintf(name, sizeof(name), "since/%d", (int)level);
		if (r == 0)
			r = rollup_db_put_number(rollups->db, name, kept->since_us[level], reterr);
	}
	return r;
}

static void work_flush(void *arg)
{
	struct flush *flush = arg;
	struct rollup_db *db = flush->rollups->db;
	struct err *err = &flush->err;
	struct kept kept = flush->rollups->kept;
	char name[ID_SIZE + 8];
	int r = rollup_db_begin(db, err);

	for (size_t i = 0; i < flush->n_kinds && r == 0; i++)
		r = rollup_db_put_kind(db, flush->kinds[i]->number, &flush->kinds[i]->kind, err);
	if (r == 0)
		r = write_sums(db, flush, err);
	for (size_t i = 0; i < flush->n_marks && r == 0; i++)
		r = rollup_db_put_mark(db, &flush->marks[i], err);
	for (size_t i = 0; i < flush->n_heard && r == 0; i++) {
		(void)snprintf(name, sizeof(name), "heard/%s", flush->heard[i].node);
		r = rollup_db_put_number(db, name, (int64_t)flush->heard[i].seq, err);
	}
	if (r == 0)
		r = rollup_db_put_number(db, "sure", flush->sure_us, err);
	if (r == 0)
		r = rollup_db_drop_marks(db, flush->sure_us, err);
	if (r == 0)
		r = expire(flush->rollups, flush->now_us, &kept, err);
	if (rollup_db_end(db, r, err) == 0)
		flush->rollups->kept = kept;
	flush->is_done = true;
}

/* ---- on the loop: to the thread ---- */

static void flush_free(struct flush *flush)
{
	free(flush->changes);
	free(flush->kinds);
	free(flush->marks);
	free(flush->heard);
	free(flush);
}

static void lose(struct rollups *rollups, uint64_t n, int64_t until_us)
{
	rollups->n_lost += n;
	rollups->lost_until_us = MAX(rollups->lost_until_us, until_us);
}

static void done_flush(void *arg)
{
	struct flush *flush = arg;
	struct rollups *rollups = flush->rollups;
	const bool has_failed = err_is_set(&flush->err);

	if (has_failed) {
		lose(rollups, flush->n_changes, flush->now_us);
		rollups->first_new_kind = 1; /* all of them with the next one: some may be missing */
	}
	if (has_failed && !rollups->is_failing)
		log_failure(LOG_LEVEL_WARN, "sums of stages are not written", &flush->err, NULL);
	rollups->is_failing = has_failed;
	STAILQ_REMOVE(&rollups->flushes, flush, flush, link);
	rollups->n_flushes--;
	flush_free(flush);
}

static void take_marks(struct rollups *rollups, struct flush *flush)
{
	struct mark_entry *mark, *next;

	HASH_ITER (hh, rollups->marks, mark, next) {
		if (mark->is_dirty)
			flush->marks[flush->n_marks++] = mark->mark;
		mark->is_dirty = false;
		if (mark->mark.over_us > 0 && mark->mark.over_us < flush->sure_us) {
			HASH_DEL(rollups->marks, mark);
			free(mark);
		}
	}
}

static void take_heard(struct rollups *rollups, struct flush *flush)
{
	for (struct heard_entry *heard = rollups->heard; heard; heard = heard->hh.next) {
		if (heard->is_dirty)
			flush->heard[flush->n_heard++] = *heard;
		heard->is_dirty = false;
	}
}

static void take_kinds(struct rollups *rollups, struct flush *flush)
{
	for (const struct kind_entry *kind = rollups->kinds; kind; kind = kind->hh.next)
		if (kind->number >= rollups->first_new_kind)
			flush->kinds[flush->n_kinds++] = kind;
	rollups->first_new_kind = rollups->last_kind + 1;
}

static struct flush *make_flush(struct rollups *rollups, int64_t now_us)
{
	struct flush *flush = calloc(1, sizeof(*flush));

	if (!flush)
		return NULL;
	flush->kinds = calloc(HASH_COUNT(rollups->kinds) + 1, sizeof(*flush->kinds));
	flush->marks = calloc(HASH_COUNT(rollups->marks) + 1, sizeof(*flush->marks));
	flush->heard = calloc(HASH_COUNT(rollups->heard) + 1, sizeof(*flush->heard));
	if (!flush->kinds || !flush->marks || !flush->heard) {
		flush_free(flush);
		return NULL;
	}
	flush->rollups = rollups;
	flush->now_us = now_us;
	flush->sure_us = rollups->sure_us = MAX(rollups->sure_us, now_us - MARK_KEEP_US);
	flush->changes = TAKE(rollups->changes);
	flush->n_changes = rollups->n_changes;
	rollups->n_changes = rollups->room = 0;
	take_kinds(rollups, flush);
	take_marks(rollups, flush);
	take_heard(rollups, flush);
	return flush;
}

void rollups_flush(struct rollups *rollups, int64_t now_us)
{
	struct err err = ERR_NULL;
	struct flush *flush = rollups->n_flushes < FLUSHES_MAX ? make_flush(rollups, now_us) : NULL;

	if (!flush)
		return; /* at the next one */
	STAILQ_INSERT_TAIL(&rollups->flushes, flush, link);
	rollups->n_flushes++;
	if (worker_add(rollups->worker, work_flush, done_flush, flush, &err) < 0) {
		flush->err = err;
		done_flush(flush);
	}
}

static void on_timer(evutil_socket_t fd, short what, void *user)
{
	struct rollups *rollups = user;

	(void)fd;
	(void)what;
	if (rollups->n_flushes == 0)
		rollups_flush(rollups, clock_realtime_usec());
}

/* ---- on the loop: what is added ---- */

/* NULL: no memory. */
static struct share *share_of(struct rollups *rollups, const struct rollup_kind *kind)
{
	struct share *share = NULL;
	char name[sizeof(share->name)];

	(void)snprintf(name, sizeof(name), "%d/%s", (int)kind->grain, kind->grain == ROLLUP_WORK ? kind->tenant : kind->pool);
	HASH_FIND_STR(rollups->shares, name, share);
	if (share)
		return share;
	share = calloc(1, sizeof(*share));
	if (!share)
		return NULL;
	memcpy(share->name, name, sizeof(name));
	HASH_ADD_STR(rollups->shares, name, share);
	if (share->hh.tbl)
		return share;
	free(share);
	return NULL;
}

/* 0: there are too many already, or no memory. */
static uint32_t number_of(struct rollups *rollups, const struct rollup_kind *kind)
{
	struct kind_entry *entry = NULL;
	struct rollup_kind other;
	struct share *share;

	HASH_FIND(hh, rollups->kinds, kind, sizeof(*kind), entry);
	if (entry)
		return entry->number;
	share = kind->grain == ROLLUP_NODES ? NULL : share_of(rollups, kind);
	if (share && share->n >= ROLLUPS_SHARE_MAX && strcmp(kind->template_name, ROLLUP_OTHER) != 0) {
		rollup_kind_other(kind, &other);
		return number_of(rollups, &other);
	}
	entry = HASH_COUNT(rollups->kinds) < ROLLUPS_KINDS_MAX ? calloc(1, sizeof(*entry)) : NULL;
	if (!entry)
		return 0;
	memcpy(&entry->kind, kind, sizeof(entry->kind));
	entry->number = rollups->last_kind + 1;
	HASH_ADD(hh, rollups->kinds, kind, sizeof(entry->kind), entry);
	if (!entry->hh.tbl) {
		free(entry);
		return 0;
	}
	if (share)
		share->n++;
	return ++rollups->last_kind;
}

static void add(struct rollups *rollups, const struct stage_fact *fact, struct rollup_change change)
{
	bool is_whole = true;

	if (rollups->n_changes == rollups->room) {
		size_t room = rollups->room ? 2 * rollups->room : 256;
		struct rollup_change *grown =
			room <= 2 * CHANGES_MAX ? realloc(rollups->changes, room * sizeof(*grown)) : NULL;

		if (!grown) {
			lose(rollups, 1, fact->when_us);
			return;
		}
		rollups->changes = grown;
		rollups->room = room;
	}
	for (enum rollup_grain grain = 0; grain < ROLLUP_GRAIN_MAX_; grain++) {
		struct rollup_kind kind;

		rollup_kind_of(fact, grain, &kind);
		if (grain == ROLLUP_NODES && !*kind.node)
			continue; /* before there is one */
		change.kinds[grain] = number_of(rollups, &kind);
		is_whole = is_whole && change.kinds[grain] > 0;
	}
	if (!is_whole)
		lose(rollups, 1, fact->when_us);
	rollups->changes[rollups->n_changes++] = change;
	if (rollups->n_changes == CHANGES_MAX)
		rollups_flush(rollups, clock_realtime_usec());
}

void rollups_add(struct rollups *rollups, const struct stage_fact *fact)
{
	if ((unsigned int)fact->stage < STAGE_MAX_ && (unsigned int)fact->code < FAIL_MAX_)
		add(rollups, fact, rollup_change_of(fact));
}

void rollups_save(struct rollups *rollups, const struct stage_fact *fact)
{
	struct rollup_change change = rollup_change_of(fact);

	change.has_time = false;
	change.is_saved = true;
	add(rollups, fact, change);
	change.is_saved = false;
	change.n = -change.n;
	add(rollups, fact, change);
}

/* ---- how far ---- */

const struct rollup_mark *rollups_mark_of(const struct rollups *rollups, const char *sandbox)
{
	struct mark_entry *entry = NULL;

	HASH_FIND_STR(rollups->marks, sandbox, entry);
	return entry ? &entry->mark : NULL;
}

bool rollups_has_ended(const struct rollups *rollups, int64_t ended_us)
{
	return ended_us < rollups->sure_us;
}

static void set_mark(struct rollups *rollups, const struct rollup_mark *mark, bool is_dirty)
{
	struct mark_entry *entry = NULL;

	HASH_FIND_STR(rollups->marks, mark->sandbox, entry);
	if (!entry) {
		entry = calloc(1, sizeof(*entry));
		if (!entry)
			return; /* some of its stages may be summed twice after a restart, nothing else */
		memcpy(entry->mark.sandbox, mark->sandbox, sizeof(entry->mark.sandbox));
		HASH_ADD_STR(rollups->marks, mark.sandbox, entry);
	}
	entry->mark = *mark;
	entry->is_dirty = is_dirty;
}

void rollups_mark(struct rollups *rollups, const struct rollup_mark *mark)
{
	set_mark(rollups, mark, true);
}

static struct heard_entry *heard_of(const struct rollups *rollups, const char *node)
{
	struct heard_entry *entry = NULL;

	HASH_FIND_STR(rollups->heard, node, entry);
	return entry;
}

uint64_t rollups_heard(const struct rollups *rollups, const char *node)
{
	const struct heard_entry *entry = heard_of(rollups, node);

	return entry ? entry->seq : 0;
}

static void set_heard(struct rollups *rollups, const char *node, uint64_t seq, bool is_dirty)
{
	struct heard_entry *entry = heard_of(rollups, node);

	if (!entry) {
		entry = calloc(1, sizeof(*entry));
		if (!entry)
			return; /* as with a mark */
		(void)snprintf(entry->node, sizeof(entry->node), "%s", node);
		HASH_ADD_STR(rollups->heard, node, entry);
	}
	entry->seq = seq;
	entry->is_dirty = is_dirty;
}

void rollups_hear(struct rollups *rollups, const char *node, uint64_t seq)
{
	set_heard(rollups, node, seq, true);
}

/* ---- life ---- */

static void load_kind(uint32_t number, const struct rollup_kind *kind, void *user)
{
	struct rollups *rollups = user;
	struct kind_entry *entry = calloc(1, sizeof(*entry));
	struct share *share = kind->grain == ROLLUP_NODES ? NULL : share_of(rollups, kind);

	if (!entry)
		return;
	if (share)
		share->n++;
	memcpy(&entry->kind, kind, sizeof(entry->kind));
	entry->number = number;
	HASH_ADD(hh, rollups->kinds, kind, sizeof(entry->kind), entry);
	rollups->last_kind = MAX(rollups->last_kind, number);
}

static void load_mark(const struct rollup_mark *mark, void *user)
{
	set_mark(user, mark, false);
}

static void load_number(const char *name, int64_t value, void *user)
{
	struct rollups *rollups = user;
	int64_t *since = rollups->kept.since_us;
	int level;

	if (!strncmp(name, "heard/", 6))
		set_heard(rollups, name + 6, (uint64_t)value, false);
	else if (!strcmp(name, "sure"))
		rollups->sure_us = value;
	else if (!strcmp(name, "since"))
		rollups->begun_us = value;
	else if (sscanf(name, "since/%d", &level) == 1 && level >= 0 && level < ROLLUP_LEVEL_MAX_)
		since[level] = MAX(since[level], value);
}

/* A file that is damaged is put aside: it holds nothing that the rest needs. */
static int open_db(struct rollups *rollups, struct err *reterr)
{
	char path[PATH_MAX], aside[PATH_MAX];
	struct err err = ERR_NULL;
	int r;

	(void)state_path(rollups->server->options, "rollups.db", path, sizeof(path));
	(void)state_path(rollups->server->options, "rollups.db.damaged", aside, sizeof(aside));
	r = rollup_db_open(&rollups->db, path, &err);
	if (r < 0 && err.code == FAIL_STORE_CORRUPT) {
		log_failure(LOG_LEVEL_ERROR, "the sums of stages begin anew", &err, "aside", aside, NULL);
		if (rename(path, aside) == 0) {
			err = (struct err)ERR_NULL;
			r = rollup_db_open(&rollups->db, path, &err);
		}
	}
	if (r < 0)
		*reterr = err;
	return r;
}

int rollups_new(struct rollups **ret, struct server *server, struct err *reterr)
{
	const struct timeval every = { .tv_sec = FLUSH_S };
	struct rollups *rollups = calloc(1, sizeof(*rollups));
	int r;

	if (!rollups)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for sums of stages");
	rollups->server = server;
	rollups->bytes_max = ROLLUPS_BYTES_MAX;
	STAILQ_INIT(&rollups->flushes);
	LIST_INIT(&rollups->questions);
	r = open_db(rollups, reterr);
	if (r == 0)
		r = rollup_db_kinds(rollups->db, load_kind, rollups, reterr);
	if (r == 0)
		r = rollup_db_marks(rollups->db, load_mark, rollups, reterr);
	if (r == 0)
		r = rollup_db_numbers(rollups->db, load_number, rollups, reterr);
	rollups->first_new_kind = rollups->last_kind + 1;
	if (r == 0 && rollups->begun_us == 0) {
		/* of what was before the first start there is nothing to be known */
		rollups->begun_us = server->epoch <= 1 ? 1 : clock_realtime_usec();
		r = rollup_db_put_number(rollups->db, "since", rollups->begun_us, reterr);
	}
	for (enum rollup_level level = 0; level < ROLLUP_LEVEL_MAX_; level++)
		rollups->kept.since_us[level] = MAX(rollups->kept.since_us[level], rollups->begun_us);
	if (r == 0)
		r = worker_new(&rollups->worker, server->base, reterr);
	if (r == 0) {
		rollups->timer = event_new(server->base, -1, EV_PERSIST, on_timer, rollups);
		if (!rollups->timer || event_priority_set(rollups->timer, LOOP_BULK) < 0 || event_add(rollups->timer, &every) < 0)
			r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for sums of stages");
	}
	if (r < 0) {
		rollups_free(rollups);
		return r;
	}
	*ret = rollups;
	return 0;
}

/* The thread is gone: what it had not begun is done here. */
static void finish(struct rollups *rollups)
{
	struct flush *flush;

	while ((flush = STAILQ_FIRST(&rollups->flushes))) {
		if (!flush->is_done)
			work_flush(flush);
		done_flush(flush);
	}
	flush = make_flush(rollups, MAX(clock_realtime_usec(), rollups->sure_us));
	if (!flush)
		return;
	STAILQ_INSERT_TAIL(&rollups->flushes, flush, link);
	rollups->n_flushes++;
	work_flush(flush);
	done_flush(flush);
}

void rollups_limit(struct rollups *rollups, uint64_t bytes)
{
	rollups->bytes_max = bytes;
}

void rollups_settle(struct rollups *rollups, struct rollups_counts *ret)
{
	while (rollups->n_flushes > 0)
		(void)event_base_loop(rollups->server->base, EVLOOP_ONCE);
	*ret = (struct rollups_counts){ rollup_db_size(rollups->db), rollup_db_rows(rollups->db), HASH_COUNT(rollups->kinds),
		rollups->n_lost };
}

void rollups_free(struct rollups *rollups)
{
	struct kind_entry *kind, *next_kind;
	struct mark_entry *mark, *next_mark;
	struct heard_entry *heard, *next_heard;
	struct share *share, *next_share;

	if (!rollups)
		return;
	worker_free(rollups->worker);
	while (!LIST_EMPTY(&rollups->questions)) /* whoever asked is gone */
		rollups_question_free(LIST_FIRST(&rollups->questions));
	if (rollups->db)
		finish(rollups);
	rollup_db_close(rollups->db);
	if (rollups->timer)
		event_free(rollups->timer);
	HASH_ITER (hh, rollups->kinds, kind, next_kind) {
		HASH_DEL(rollups->kinds, kind);
		free(kind);
	}
	HASH_ITER (hh, rollups->shares, share, next_share) {
		HASH_DEL(rollups->shares, share);
		free(share);
	}
	HASH_ITER (hh, rollups->marks, mark, next_mark) {
		HASH_DEL(rollups->marks, mark);
		free(mark);
	}
	HASH_ITER (hh, rollups->heard, heard, next_heard) {
		HASH_DEL(rollups->heard, heard);
		free(heard);
	}
	free(rollups->changes);
	free(rollups);
}
