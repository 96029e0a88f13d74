/* SPDX-License-Identifier: Apache-2.0
 *
 * See store.h. The loop thread puts batches at the end of `waiting`; the writer thread takes up to GROUP_MAX
 * of them, commits them as one transaction, moves them to `answered` and rings the eventfd; the loop thread
 * calls them back. The lock guards the two lists and `failure`; it is never held over I/O, except in
 * store_recover(), when the writer has nothing to do.
 */
#include "store/store.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "store/reserve.h"
#include "store/sqlite.h"

#define GROUP_MAX 128
#define WAITING_MAX 8192
#define WAITING_BYTES_MAX (256u * 1024u * 1024u)

struct batch {
	STAILQ_ENTRY(batch) link;
	struct sqlite_batch sql;
	struct store_op *ops; /* keys and values follow in the same allocation */
	size_t bytes;
	store_done done;
	store_got got; /* set: a read of ops[0].key, and the rest is its answer */
	void *value;
	size_t value_size;
	store_scanned scanned; /* set: a read from ops[0].key on, of the prefix that is its value */
	struct store_record *records;
	size_t n_records, max_records;
	void *user;
	struct err err;
};
STAILQ_HEAD(batch_list, batch);

struct store {
	char *dir;
	struct store_config config;
	int lock_fd;
	int event_fd;
	struct event *event;

	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock;
	pthread_cond_t work;   /* `waiting` or `stop` changed */
	pthread_cond_t answer; /* `answered` changed */
	struct batch_list waiting, answered;
	bool stop;
	bool writing;
	bool tight;         /* the reserve is in use */
	bool wants_reserve; /* store_tend() */
	struct err failure;
	uint64_t log_bytes;

	/* of the loop thread alone */
	size_t n_waiting;
	size_t waiting_bytes;
	struct err seen_failure;
	/* of the writer thread; of the loop thread while the writer rests */
	struct sqlite_db *db;
};

static bool is_read(const struct batch *batch)
{
	return batch->got || batch->scanned;
}

/* Takes what waits, at most GROUP_MAX, in order. The lock is held. */
static size_t take_group(struct store *store, struct batch **group)
{
	size_t n = 0;

	while (n < GROUP_MAX && !STAILQ_EMPTY(&store->waiting)) {
		group[n++] = STAILQ_FIRST(&store->waiting);
		STAILQ_REMOVE_HEAD(&store->waiting, link);
	}
	return n;
}

/* The limit of the file, which moves with the reserve. */
static uint64_t limit_of(const struct store *store, bool tight)
{
	uint64_t max = store->config.max_bytes;

	return max && tight ? max + store->config.reserve_bytes : max;
}

static void set_tight(struct store *store, bool tight)
{
	(void)pthread_mutex_lock(&store->lock);
	store->tight = tight;
	(void)pthread_mutex_unlock(&store->lock);
}

/* The disk or the limit was met, and nothing of the group was committed: it is tried again with the reserve. */
static void write_from_reserve(
	struct store *store, struct sqlite_batch *const *batches, size_t n, struct err *failure)
{
	struct err again = ERR_NULL;

	log_failure(LOG_LEVEL_ERROR,
		"the store is full: its reserve is used, and nothing new is taken until there is room",
		failure, NULL);
	reserve_give(store->dir);
	set_tight(store, true);
	if (sqlite_db_limit(store->db, limit_of(store, true), &again) == 0 &&
		sqlite_db_settle(store->db, &again) == 0)
		(void)sqlite_db_apply(store->db, batches, n, &again);
	*failure = again;
}

/* Of the writer: the reserve again, when there is room for it and for something beside it. */
static void take_reserve(struct store *store)
{
	const struct store_config *config = &store->config;

	if (!store->db || (config->max_bytes && sqlite_db_room(store->db, config->max_bytes) <
							config->max_bytes / 8))
		return;
	if (reserve_take_again(store->dir, config->reserve_bytes) < 0)
		return;
	(void)sqlite_db_limit(store->db, limit_of(store, false), NULL); /* else the wider one holds */
	set_tight(store, false);
	log_info("the store has room and its reserve again");
}

static void write_group(struct store *store, struct batch **group, size_t n, struct err *failure)
{
	struct sqlite_batch *batches[GROUP_MAX];
	size_t n_writes = 0;

	for (size_t i = 0; i < n; i++)
		if (!is_read(group[i]))
			batches[n_writes++] = &group[i]->sql;
	if (n_writes && !err_is_set(failure)) {
		if (store->db)
			(void)sqlite_db_apply(store->db, batches, n_writes, failure);
		if (failure->code == FAIL_STORE_FULL && store->config.reserve_bytes && !store->tight)
			write_from_reserve(store, batches, n_writes, failure);
		else if (!store->db)
			(void)err_set(failure, FAIL_STORE_FAILED, EBADF, "the store is not open");
	}
	for (size_t i = 0; i < n && err_is_set(failure); i++) {
		if (is_read(group[i]))
			continue;
		group[i]->sql.outcome = STORE_BROKEN;
		group[i]->err = *failure;
	}
}

static bool keep_record(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	struct batch *batch = user;
	struct store_record *record = &batch->records[batch->n_records];

	(void)revision;
	*record = (struct store_record){ strdup(key), malloc(size + 1), size };
	batch->n_records++;
	if (!record->key || !record->value) {
		(void)err_set(&batch->err, FAIL_NO_MEMORY, ENOMEM, "no memory for a record");
		return false;
	}
	memcpy(record->value, value, size);
	return batch->n_records < batch->max_records;
}

static void scan(struct store *store, struct batch *batch)
{
	batch->records = calloc(batch->max_records, sizeof(*batch->records));
	if (!batch->records)
		(void)err_set(&batch->err, FAIL_NO_MEMORY, ENOMEM, "no memory for records");
	else
		(void)sqlite_db_scan(store->db, batch->ops[0].key, batch->ops[0].value, keep_record, batch, &batch->err);
}

/* Reads of the group, behind its writes; they go on while writes fail. */
static void read_group(struct store *store, struct batch **group, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct batch *batch = group[i];

		if (!is_read(batch))
			continue;
		if (store->db && batch->scanned)
			scan(store, batch);
		else if (store->db)
			(void)sqlite_db_get(store->db, batch->ops[0].key, &batch->value,
				&batch->value_size, &batch->sql.revision, &batch->err);
		else
			(void)err_set(
				&batch->err, FAIL_STORE_FAILED, EBADF, "the store is not open");
	}
}

static void batch_free(struct batch *batch)
{
	for (size_t i = 0; i < batch->n_records; i++) {
		free(batch->records[i].key);
		free(batch->records[i].value);
	}
	free(batch->records);
	free(batch->value);
	free(batch);
}

static uint64_t log_size(const struct store *store)
{
	char path[PATH_MAX];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%.4000s/store.db-wal", store->dir);
	return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static void *writer(void *user)
{
	struct store *store = user;
	struct batch *group[GROUP_MAX];
	const uint64_t one = 1;

	(void)pthread_mutex_lock(&store->lock);
	for (;;) {
		struct err failure = store->failure;
		uint64_t log_bytes;
		size_t n;

		n = take_group(store, group);
		if (n == 0 && store->stop)
			break;
		if (n == 0 && store->wants_reserve) {
			store->wants_reserve = false;
			if (!store->tight || err_is_set(&failure))
				continue;
			store->writing = true;
			(void)pthread_mutex_unlock(&store->lock);
			take_reserve(store);
			(void)pthread_mutex_lock(&store->lock);
			store->writing = false;
			(void)pthread_cond_broadcast(&store->answer);
			continue;
		}
		if (n == 0) {
			(void)pthread_cond_wait(&store->work, &store->lock);
			continue;
		}
		store->writing = true;
		(void)pthread_mutex_unlock(&store->lock);
		write_group(store, group, n, &failure);
		read_group(store, group, n);
		(void)pthread_mutex_lock(&store->lock);
		store->failure = failure;
		for (size_t i = 0; i < n; i++)
			STAILQ_INSERT_TAIL(&store->answered, group[i], link);
		(void)pthread_cond_broadcast(&store->answer);
		if (write(store->event_fd, &one, sizeof(one)) < 0) {
			/* EAGAIN alone is possible: the counter is full, so the loop is woken anyway */
		}
		if (store->db && !err_is_set(&failure)) {
			(void)pthread_mutex_unlock(
				&store->lock); /* results are out: nobody waits for this */
			sqlite_db_checkpoint(store->db);
			log_bytes = log_size(store);
			(void)pthread_mutex_lock(&store->lock);
			store->log_bytes = log_bytes;
		}
		store->writing = false;
		(void)pthread_cond_broadcast(&store->answer);
	}
	(void)pthread_mutex_unlock(&store->lock);
	return NULL;
}

static void take_answers(struct store *store, struct batch_list *ret)
{
	STAILQ_INIT(ret);
	(void)pthread_mutex_lock(&store->lock);
	STAILQ_CONCAT(ret, &store->answered);
	store->seen_failure = store->failure;
	(void)pthread_mutex_unlock(&store->lock);
}

static void on_event(evutil_socket_t fd, short what, void *user)
{
	struct store *store = user;
	struct batch_list answers;
	uint64_t count;

	(void)what;
	if (read(fd, &count, sizeof(count)) < 0) {
		/* EAGAIN: somebody was faster; the list tells */
	}
	take_answers(store, &answers);
	while (!STAILQ_EMPTY(&answers)) {
		struct batch *batch = STAILQ_FIRST(&answers);

		STAILQ_REMOVE_HEAD(&answers, link);
		store->n_waiting--;
		store->waiting_bytes -= batch->bytes;
		if (batch->got)
			batch->got(batch->value, batch->value_size, batch->sql.revision,
				err_is_set(&batch->err) ? &batch->err : NULL, batch->user);
		else if (batch->scanned)
			batch->scanned(batch->records, batch->n_records, err_is_set(&batch->err) ? &batch->err : NULL,
				batch->user);
		else if (batch->done)
			batch->done(batch->sql.outcome, batch->sql.revision,
				batch->sql.outcome == STORE_BROKEN ? &batch->err : NULL,
				batch->user);
		batch_free(batch);
	}
}

/* A directory has one scheduler: flock follows the process, also through kill -9. */
static int lock_dir(const char *dir, int *ret, struct err *reterr)
{
	CLEANUP_FD int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_set(reterr, errno == ENOENT ? FAIL_NOT_INITIALISED : FAIL_STORE_FAILED,
			errno, "the state directory %s cannot be opened", dir);
	if (faccessat(AT_FDCWD, dir, W_OK, AT_EACCESS) < 0) /* SQLite would only say "read-only" */
		return err_set(reterr, FAIL_STORE_FAILED, errno,
			"the state directory %s cannot be written", dir);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(reterr, errno == EWOULDBLOCK ? FAIL_STORE_LOCKED : FAIL_STORE_FAILED,
			errno, "the state directory %s cannot be locked", dir);
	*ret = TAKE_FD(fd);
	return 0;
}

/* The writer takes no signals: they belong to the loop. */
static int start_thread(struct store *store, struct err *reterr)
{
	sigset_t all, old;
	int r;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&store->thread, NULL, writer, store);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r)
		return err_set(
			reterr, FAIL_STORE_FAILED, r, "the store's thread cannot be started");
	store->has_thread = true;
	return 0;
}

int store_open(struct store **ret, struct event_base *base, const struct store_config *config,
	struct err *reterr)
{
	CLEANUP(store_closep) struct store *store = calloc(1, sizeof(*store));
	int r;

	if (!store)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the store");
	store->lock_fd = store->event_fd = -1;
	STAILQ_INIT(&store->waiting);
	STAILQ_INIT(&store->answered);
	(void)pthread_mutex_init(&store->lock, NULL);
	(void)pthread_cond_init(&store->work, NULL);
	(void)pthread_cond_init(&store->answer, NULL);
	store->dir = strdup(config->dir);
	if (!store->dir)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the store");
	store->config = *config;
	store->config.dir = store->dir;
	r = lock_dir(store->dir, &store->lock_fd, reterr);
	if (r == 0)
		r = sqlite_db_open(&store->db, &store->config, reterr);
	if (r < 0)
		return r;
	store->config.may_create = false;
	r = store->config.reserve_bytes ? reserve_take(store->dir, store->config.reserve_bytes) : 0;
	if (r == -EOPNOTSUPP)
		store->config.reserve_bytes = 0; /* a full disk is a failed write then, as without a reserve */
	else if (r < 0)
		store->tight = true;
	if (store->tight)
		(void)sqlite_db_limit(store->db, limit_of(store, true), NULL); /* else the narrower one holds */
	store->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (store->event_fd < 0)
		return err_set(reterr, FAIL_STORE_FAILED, errno, "eventfd");
	if (base) {
		store->event =
			event_new(base, store->event_fd, EV_READ | EV_PERSIST, on_event, store);
		if (!store->event || event_add(store->event, NULL) < 0)
			return err_set(
				reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the store's event");
	}
	r = start_thread(store, reterr);
	if (r < 0)
		return r;
	*ret = TAKE(store);
	return 0;
}

static void free_batches(struct batch_list *list)
{
	while (!STAILQ_EMPTY(list)) {
		struct batch *batch = STAILQ_FIRST(list);

		STAILQ_REMOVE_HEAD(list, link);
		batch_free(batch);
	}
}

void store_close(struct store *store)
{
	if (!store)
		return;
	if (store->has_thread) {
		(void)pthread_mutex_lock(&store->lock);
		store->stop = true;
		(void)pthread_cond_broadcast(&store->work);
		(void)pthread_mutex_unlock(&store->lock);
		(void)pthread_join(store->thread, NULL);
	}
	free_batches(&store->waiting);
	free_batches(&store->answered);
	sqlite_db_close(store->db);
	if (store->event)
		event_free(store->event);
	(void)fd_close(store->event_fd);
	(void)fd_close(store->lock_fd);
	(void)pthread_cond_destroy(&store->answer);
	(void)pthread_cond_destroy(&store->work);
	(void)pthread_mutex_destroy(&store->lock);
	free(store->dir);
	free(store);
}

static int check_ops(
	const struct store_op *ops, size_t n_ops, size_t *ret_bytes, struct err *reterr)
{
	size_t bytes = 0;

	if (n_ops == 0 || n_ops > STORE_OPS_MAX)
		return err_set(reterr, FAIL_STORE_FAILED, EINVAL,
			"a batch holds 1 to %d operations, not %zu", STORE_OPS_MAX, n_ops);
	for (size_t i = 0; i < n_ops; i++) {
		size_t len = ops[i].key ? strlen(ops[i].key) : 0;

		if (len == 0 || len > STORE_KEY_MAX)
			return err_set(reterr, FAIL_STORE_FAILED, EINVAL,
				"a key has 1 to %d characters", STORE_KEY_MAX);
		if (ops[i].size > STORE_VALUE_MAX)
			return err_set(reterr, FAIL_STORE_FAILED, EFBIG,
				"record %s is over %u bytes", ops[i].key, STORE_VALUE_MAX);
		for (size_t k = 0; k < i; k++)
			if (!strcmp(ops[i].key, ops[k].key))
				return err_set(reterr, FAIL_STORE_FAILED, EINVAL,
					"a batch names %s twice", ops[i].key);
		bytes += len + 1 + (ops[i].kind == STORE_PUT ? ops[i].size : 0);
	}
	*ret_bytes = bytes;
	return 0;
}

static struct batch *copy_batch(const struct store_op *ops, size_t n_ops, size_t bytes)
{
	size_t total = sizeof(struct batch) + n_ops * sizeof(*ops) + bytes;
	struct batch *batch = calloc(1, total);
	char *at;

	if (!batch)
		return NULL;
	batch->bytes = total;
	batch->ops = (struct store_op *)(void *)(batch + 1);
	at = (char *)(batch->ops + n_ops);
	for (size_t i = 0; i < n_ops; i++) {
		size_t len = strlen(ops[i].key) + 1;

		batch->ops[i] = ops[i];
		batch->ops[i].key = memcpy(at, ops[i].key, len);
		at += len;
		if (ops[i].kind == STORE_DELETE || ops[i].size == 0) {
			batch->ops[i].size = 0;
			continue;
		}
		batch->ops[i].value = memcpy(at, ops[i].value, ops[i].size);
		at += ops[i].size;
	}
	batch->sql = (struct sqlite_batch){ .ops = batch->ops, .n_ops = n_ops };
	return batch;
}

/* What comes of a batch; one of the three, or none. */
struct answer {
	store_done done;
	store_got got;
	store_scanned scanned;
	size_t max_records;
	void *user;
};

static int hand_over(struct store *store, const struct store_op *ops, size_t n_ops, const struct answer *answer,
	struct err *reterr)
{
	struct batch *batch;
	size_t bytes = 0;
	int r;

	r = check_ops(ops, n_ops, &bytes, reterr);
	if (r < 0)
		return r;
	if (store->n_waiting >= WAITING_MAX || store->waiting_bytes + bytes > WAITING_BYTES_MAX)
		return err_set(reterr, FAIL_SCHEDULER_BUSY, EAGAIN,
			"%zu batches wait for the store", store->n_waiting);
	batch = copy_batch(ops, n_ops, bytes);
	if (!batch)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for a batch");
	batch->done = answer->done;
	batch->got = answer->got;
	batch->scanned = answer->scanned;
	batch->max_records = answer->max_records;
	batch->user = answer->user;
	store->n_waiting++;
	store->waiting_bytes += batch->bytes;
	(void)pthread_mutex_lock(&store->lock);
	STAILQ_INSERT_TAIL(&store->waiting, batch, link);
	(void)pthread_cond_broadcast(&store->work);
	(void)pthread_mutex_unlock(&store->lock);
	return 0;
}

int store_commit(struct store *store, const struct store_op *ops, size_t n_ops, store_done done,
	void *user, struct err *reterr)
{
	return hand_over(store, ops, n_ops, &(struct answer){ .done = done, .user = user }, reterr);
}

int store_read(struct store *store, const char *key, store_got got, void *user, struct err *reterr)
{
	const struct store_op op = { .kind = STORE_DELETE, .key = key, .expect = STORE_ANY };

	return hand_over(store, &op, 1, &(struct answer){ .got = got, .user = user }, reterr);
}

int store_scan(struct store *store, const char *from, const char *prefix, size_t max, store_scanned scanned, void *user,
	struct err *reterr)
{
	const struct store_op op = { STORE_PUT, from, prefix, strlen(prefix) + 1, STORE_ANY };

	return hand_over(store, &op, 1, &(struct answer){ .scanned = scanned, .max_records = max, .user = user }, reterr);
}

struct waited {
	enum store_outcome outcome;
	struct err err;
};

static void on_waited(
	enum store_outcome outcome, uint64_t revision, const struct err *err, void *user)
{
	struct waited *waited = user;

	(void)revision;
	waited->outcome = outcome;
	if (err)
		waited->err = *err;
}

int store_commit_wait(
	struct store *store, const struct store_op *ops, size_t n_ops, struct err *reterr)
{
	struct waited waited = { .outcome = STORE_BROKEN };
	int r = hand_over(store, ops, n_ops, &(struct answer){ .done = on_waited, .user = &waited }, reterr);

	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&store->lock);
	while (!STAILQ_EMPTY(&store->waiting) || store->writing)
		(void)pthread_cond_wait(&store->answer, &store->lock);
	(void)pthread_mutex_unlock(&store->lock);
	on_event(store->event_fd, 0, store);
	switch (waited.outcome) {
	case STORE_COMMITTED:
		return 0;
	case STORE_CONFLICT:
		return err_set(reterr, FAIL_CONFLICT, EAGAIN, "a record changed meanwhile");
	case STORE_BROKEN:
		break;
	}
	if (reterr && !err_is_set(reterr))
		*reterr = waited.err;
	return waited.err.err_no > 0 ? -waited.err.err_no : -EIO;
}

int store_load(
	struct store *store, const char *prefix, store_each each, void *user, struct err *reterr)
{
	CLEANUP(sqlite_db_closep) struct sqlite_db *db = NULL;
	int r;

	/* A connection of its own: the writer's is in use by its thread. */
	r = sqlite_db_open(&db, &store->config, reterr);
	if (r < 0)
		return r;
	return sqlite_db_load(db, prefix, each, user, reterr);
}

size_t store_waiting(const struct store *store)
{
	return store->n_waiting;
}

uint64_t store_log_bytes(struct store *store)
{
	uint64_t bytes;

	(void)pthread_mutex_lock(&store->lock);
	bytes = store->log_bytes;
	(void)pthread_mutex_unlock(&store->lock);
	return bytes;
}

const struct err *store_failure(const struct store *store)
{
	return err_is_set(&store->seen_failure) ? &store->seen_failure : NULL;
}

bool store_is_tight(struct store *store)
{
	bool tight;

	(void)pthread_mutex_lock(&store->lock);
	tight = store->tight;
	(void)pthread_mutex_unlock(&store->lock);
	return tight;
}

void store_tend(struct store *store)
{
	(void)pthread_mutex_lock(&store->lock);
	store->wants_reserve = true;
	(void)pthread_cond_broadcast(&store->work);
	(void)pthread_mutex_unlock(&store->lock);
}

int store_recover(struct store *store, struct err *reterr)
{
	struct sqlite_db *db = NULL;
	struct sqlite_batch mark = { .n_ops = 0 }, *const batches[] = { &mark };
	int r;

	if (store->n_waiting)
		return err_set(reterr, FAIL_SCHEDULER_BUSY, EAGAIN,
			"%zu batches wait for the store", store->n_waiting);
	(void)pthread_mutex_lock(&store->lock);
	while (store->writing) /* a checkpoint may still use the connection */
		(void)pthread_cond_wait(&store->answer, &store->lock);
	sqlite_db_close(store->db);
	store->db = NULL;
	r = sqlite_db_open(&db, &store->config, reterr);
	if (r == 0)
		r = sqlite_db_limit(db, limit_of(store, store->tight), reterr);
	if (r == 0)
		r = sqlite_db_settle(db, reterr);
	if (r == 0)
		r = sqlite_db_apply(db, batches, 1,
			reterr); /* an empty batch raises the revision: a real write */
	if (r == 0) {
		store->db = TAKE(db);
		memset(&store->failure, 0, sizeof(store->failure));
		memset(&store->seen_failure, 0, sizeof(store->seen_failure));
	}
	(void)pthread_mutex_unlock(&store->lock);
	sqlite_db_close(db);
	return r;
}
