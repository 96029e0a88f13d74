/* SPDX-License-Identifier: Apache-2.0
 *
 * See lead.h.
 */
#include "server/lead.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/util.h"
#include "pb/store.pb-c.h"
#include "server/codec.h"
#include "server/ops.h"
#include "server/server.h"

#define RUN_KEY "run/%016" PRIx64
/* The sum of a run's raises: less than a restore begins above its backup (65,536), so that a hostile node does not get the
 * fleet out of a restore's reach. In a store that was restored it is more: that fleet may have been raised by many runs. */
#define RAISE_MAX (UINT64_C(1) << 15)
#define RAISE_RESTORED_MAX (UINT64_C(1) << 24)

/* A file that was copied has another inode or was born at another time; one that was moved with its disk has not. The
 * machine is asked for as well, where it says who it is: a disk can be copied whole. */
static void find_place(const struct options *options, char ret[static PLACE_SIZE])
{
	CLEANUP_FREE char *machine = NULL;
	char path[PATH_MAX];
	struct statx st;
	size_t size;

	*ret = '\0';
	if (statx(AT_FDCWD, state_path(options, "store.db", path, sizeof(path)), 0, STATX_INO | STATX_BTIME, &st) < 0)
		return; /* not known: then nobody is called a copy */
	if (file_read("/etc/machine-id", 64, &machine, &size) < 0)
		size = 0;
	while (size && machine[size - 1] == '\n')
		size--;
	(void)snprintf(ret, PLACE_SIZE, "%.*s/%" PRIu64 "/%" PRId64 ".%09u", (int)MIN(size, (size_t)32), machine ? machine : "",
		(uint64_t)st.stx_ino, (int64_t)st.stx_btime.tv_sec, st.stx_btime.tv_nsec);
}

static void put_mark(const struct run_mark *mark, struct ops *ops)
{
	Croft__RunRecord *record = CODEC_NEW(Croft__RunRecord, croft__run_record__init);

	if (record) {
		record->epoch = mark->epoch;
		record->was_stopped = mark->was_stopped;
		record->is_first = mark->is_first;
		record->is_copy = mark->is_copy;
	}
	ops_put(ops,
		record ? codec_whole(&record->base, codec_set(&record->lineage, mark->lineage) &&
							   codec_set(&record->run, mark->run) &&
							   codec_set(&record->place, mark->place))
		       : NULL,
		STORE_ANY, RUN_KEY, mark->epoch);
}

struct loading {
	struct runs *runs;
	uint64_t *epochs;
	size_t n;
	struct err *err;
};

static bool load_mark(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	struct loading *loading = user;
	Croft__RunRecord *record =
		(Croft__RunRecord *)codec_unpack(&croft__run_record__descriptor, key, value, size, loading->err);
	uint64_t *epochs = record ? reallocarray(loading->epochs, loading->n + 1, sizeof(*epochs)) : NULL;
	struct run_mark mark;

	(void)revision;
	if (!record)
		return false;
	mark = (struct run_mark){ .epoch = record->epoch,
		.was_stopped = record->was_stopped,
		.is_first = record->is_first,
		.is_copy = record->is_copy };
	(void)snprintf(mark.lineage, sizeof(mark.lineage), "%s", record->lineage);
	(void)snprintf(mark.run, sizeof(mark.run), "%s", record->run);
	(void)snprintf(mark.place, sizeof(mark.place), "%s", record->place);
	croft__run_record__free_unpacked(record, NULL);
	if (epochs) {
		loading->epochs = epochs;
		loading->epochs[loading->n++] = mark.epoch;
	}
	if (!epochs || runs_add(loading->runs, &mark) < 0)
		(void)err_set(loading->err, FAIL_NO_MEMORY, ENOMEM, "no memory for the runs of the store");
	return !err_is_set(loading->err);
}

/* A mark that stays behind is dropped by the next start. */
static void drop_stale(struct server *server, const struct loading *loading)
{
	struct err err = ERR_NULL;

	for (size_t i = 0; i < loading->n && !err_is_set(&err);) {
		struct ops ops = { .n = 0 };

		for (; i < loading->n && ops.n < STORE_OPS_MAX; i++)
			if (!runs_have(&server->runs, loading->epochs[i]))
				ops_delete(&ops, RUN_KEY, loading->epochs[i]);
		if (ops.n && !ops.no_memory)
			(void)store_commit_wait(server->store, ops.list, ops.n, &err);
		ops_deinit(&ops);
	}
}

static int begin(struct server *server, struct err *reterr)
{
	struct run_mark mark = { .epoch = server->epoch + 1 };
	struct ops ops = { .n = 0 };
	struct err split = ERR_NULL;
	int r;

	memcpy(mark.lineage, server->lineage, sizeof(mark.lineage));
	memcpy(mark.run, server->run, sizeof(mark.run));
	find_place(server->options, mark.place);
	runs_begin(&server->runs, server->epoch, &mark);
	if (mark.is_copy) {
		(void)err_set(&split, FAIL_SCHEDULER_SPLIT, 0,
			"The store is a copy of one whose scheduler was not stopped; nodes that obey that one are not led.");
		err_add(&split, "instance", "%s", mark.run);
		err_add(&split, "first", "%s", server->runs.list[server->runs.n - 1].run);
		log_failure(LOG_LEVEL_WARN, "start", &split, NULL);
	}
	server->epoch = mark.epoch;
	server_put_meta(server, &ops);
	put_mark(&mark, &ops);
	r = ops.no_memory || runs_add(&server->runs, &mark) < 0
		    ? err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the epoch")
		    : store_commit_wait(server->store, ops.list, ops.n, reterr);
	ops_deinit(&ops);
	return r;
}

int lead_begin(struct server *server, struct err *reterr)
{
	struct loading loading = { .runs = &server->runs, .err = reterr };
	int r = server_read_meta(server, server->store, reterr);

	if (r == 0) {
		r = store_load(server->store, "run/", load_mark, &loading, reterr);
		r = err_is_set(reterr) ? -EIO : r;
	}
	if (r == 0)
		r = begin(server, reterr);
	if (r == 0)
		drop_stale(server, &loading);
	free(loading.epochs);
	return r;
}

static bool has_raised(const struct server *server, const char *node)
{
	for (unsigned int i = 0; i < server->n_raises; i++)
		if (!strcmp(server->raised_by[i], node))
			return true;
	return false;
}

int lead_raise(struct server *server, const char *node, uint64_t epoch, struct ops *ops, struct lead_raise **ret,
	struct err *reterr)
{
	const uint64_t before = server->epoch, from = MAX(server->raising, before);
	const uint64_t most = server->restored_us ? RAISE_RESTORED_MAX : RAISE_MAX;
	struct lead_raise *raise;

	if (epoch - from > most - MIN(server->raised_sum, most))
		return err_set(reterr, FAIL_STALE_EPOCH, 0, "The node names an epoch that no restore explains.");
	if (server->n_raises == LEAD_RAISES_MAX)
		return err_set(reterr, FAIL_STALE_EPOCH, 0, "The scheduler has raised its epoch for %u nodes already.",
			LEAD_RAISES_MAX);
	if (has_raised(server, node))
		return err_set(reterr, FAIL_STALE_EPOCH, 0, "The scheduler has raised its epoch for this node already.");
	raise = calloc(1, sizeof(*raise));
	if (!raise)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the epoch");
	(void)snprintf(server->raised_by[server->n_raises++], ID_SIZE, "%.*s", ID_LEN, node);
	raise->server = server;
	raise->mark = server->runs.list[server->runs.n - 1];
	raise->mark.epoch = epoch;
	raise->mark.is_first = raise->mark.is_copy = false;
	server->raised_sum += epoch - from;
	raise->sum = server->raised_sum;
	raise->n = server->n_raises;
	server->raising = epoch;
	server->epoch = epoch;
	server_put_meta(server, ops);
	server->epoch = before;
	put_mark(&raise->mark, ops);
	*ret = raise;
	return 0;
}

void lead_raised(const struct err *err, void *user)
{
	CLEANUP_FREE struct lead_raise *raise = user;
	struct server *server = raise->server;

	if (err) { /* nothing of what was on its way is in the store, nor counted; who asked for it may ask again */
		server->raising = server->epoch;
		server->n_raises = server->n_raised;
		server->raised_sum = server->raised_kept;
		return;
	}
	server->n_raised = raise->n; /* in order, as they were handed over */
	server->raised_kept = raise->sum;
	server->epoch = raise->mark.epoch;
	if (runs_add(&server->runs, &raise->mark) < 0)
		log_warn("no memory for the mark of this epoch: the store has it");
}

void lead_end(struct server *server)
{
	struct ops ops = { .n = 0 };
	struct err err = ERR_NULL;

	if (server->runs.n == 0 || strcmp(server->runs.list[server->runs.n - 1].run, server->run) != 0)
		return; /* it never led */
	server->runs.list[server->runs.n - 1].was_stopped = true;
	put_mark(&server->runs.list[server->runs.n - 1], &ops);
	if (!ops.no_memory && store_commit_wait(server->store, ops.list, ops.n, &err) < 0)
		log_failure(LOG_LEVEL_WARN, "the end of this run could not be written down", &err, NULL);
	ops_deinit(&ops);
}
