/* SPDX-License-Identifier: Apache-2.0
 *
 * What every store must do (store/store.h), as a table of operations against a table of stores: a second store is one
 * more row of `backends`. A script is a list of steps; each is one batch, or a look at what is there, and says what must
 * come of it. Revisions are compared by their order alone: how they are counted is a store's own.
 */
#include "lib/suite.h"
#include "store/store.h"

#include <check.h>
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

/* ---- the stores ---- */
struct place {
	char dir[64];
};

struct backend {
	const char *name;
	void (*make)(struct place *place);
	int (*open)(const struct place *place, struct event_base *base, bool is_first,
		struct store **ret, struct err *reterr);
	void (*destroy)(struct place *place);
};

static void sqlite_make(struct place *place)
{
	(void)snprintf(place->dir, sizeof(place->dir), "/tmp/croft-test-conf-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(place->dir));
}

static int sqlite_open(const struct place *place, struct event_base *base, bool is_first,
	struct store **ret, struct err *reterr)
{
	const struct store_config config = { .dir = place->dir, .may_create = is_first };

	return store_open(ret, base, &config, reterr);
}

static void sqlite_destroy(struct place *place)
{
	ck_assert_int_eq(dir_remove(place->dir), 0);
}

static const struct backend backends[] = { { "sqlite", sqlite_make, sqlite_open, sqlite_destroy } };

/* ---- scripts ---- */
#define OPS_MAX 4

enum expect { ANY, ABSENT, CURRENT, OLD }; /* OLD: the revision before the current one */
struct op {
	const char *key, *value; /* value NULL: delete */
	enum expect expect;
};
enum act { END, BATCH, LOOK, REOPEN, READ };
struct step {
	enum act act;
	struct op ops[OPS_MAX];
	enum store_outcome outcome; /* of BATCH */
	const char *prefix, *all;   /* of LOOK: what is there, in order; of READ: the value, NULL for none */
};

static const struct step put_and_delete[] = {
	{ BATCH, { { "b", "2", ANY }, { "a", "1", ANY } }, STORE_COMMITTED, NULL, NULL },
	{ LOOK, { { 0 } }, 0, "", "a=1 b=2 " },
	{ BATCH, { { "a", "3", ANY }, { "c/d", "", ANY } }, STORE_COMMITTED, NULL, NULL },
	{ LOOK, { { 0 } }, 0, "", "a=3 b=2 c/d= " },
	{ BATCH, { { "b", NULL, ANY }, { "nothing", NULL, ANY } }, STORE_COMMITTED, NULL, NULL },
	{ LOOK, { { 0 } }, 0, "", "a=3 c/d= " },
	{ LOOK, { { 0 } }, 0, "c/", "c/d= " },
	{ READ, { { 0 } }, 0, "a", "3" },
	{ READ, { { 0 } }, 0, "b", NULL },
	{ END, { { 0 } }, 0, NULL, NULL },
};

static const struct step compare_and_set[] = {
	{ BATCH, { { "a", "1", ABSENT } }, STORE_COMMITTED, NULL, NULL },
	{ BATCH, { { "a", "2", ABSENT } }, STORE_CONFLICT, NULL, NULL },
	{ BATCH, { { "a", "2", CURRENT } }, STORE_COMMITTED, NULL, NULL },
	{ BATCH, { { "a", "3", OLD } }, STORE_CONFLICT, NULL, NULL },
	{ BATCH, { { "a", NULL, OLD } }, STORE_CONFLICT, NULL, NULL },
	{ LOOK, { { 0 } }, 0, "", "a=2 " },
	{ BATCH, { { "a", NULL, CURRENT } }, STORE_COMMITTED, NULL, NULL },
	{ BATCH, { { "a", NULL, CURRENT } }, STORE_CONFLICT, NULL, NULL }, /* gone: the revision is no one's */
	{ BATCH, { { "a", "4", ABSENT } }, STORE_COMMITTED, NULL, NULL },
	{ LOOK, { { 0 } }, 0, "", "a=4 " },
	{ END, { { 0 } }, 0, NULL, NULL },
};

static const struct step all_or_nothing[] = {
	{ BATCH, { { "a", "1", ANY } }, STORE_COMMITTED, NULL, NULL },
	{ BATCH, { { "b", "1", ANY }, { "a", "2", ABSENT }, { "c", "1", ANY } }, STORE_CONFLICT, NULL, NULL },
	{ BATCH, { { "a", NULL, ANY }, { "z", "1", CURRENT } }, STORE_CONFLICT, NULL, NULL },
	{ LOOK, { { 0 } }, 0, "", "a=1 " },
	{ BATCH, { { "b", "1", ABSENT }, { "a", "2", CURRENT } }, STORE_COMMITTED, NULL, NULL },
	{ LOOK, { { 0 } }, 0, "", "a=2 b=1 " },
	{ END, { { 0 } }, 0, NULL, NULL },
};

static const struct step durable[] = {
	{ BATCH, { { "a", "1", ANY }, { "b", "1", ANY } }, STORE_COMMITTED, NULL, NULL },
	{ REOPEN, { { 0 } }, 0, NULL, NULL },
	{ LOOK, { { 0 } }, 0, "", "a=1 b=1 " },
	{ BATCH, { { "a", "2", CURRENT } }, STORE_COMMITTED, NULL, NULL }, /* revisions survive too */
	{ REOPEN, { { 0 } }, 0, NULL, NULL },
	{ BATCH, { { "a", "3", OLD } }, STORE_CONFLICT, NULL, NULL },
	{ READ, { { 0 } }, 0, "a", "2" },
	{ END, { { 0 } }, 0, NULL, NULL },
};

/* Bytes, not text; keys in the order of their bytes. */
static const struct step bytes[] = {
	{ BATCH, { { "k/\x01", "1", ANY }, { "k/~", "2", ANY }, { "k/\xc3\xa9", "3", ANY }, { "k0", "4", ANY } },
		STORE_COMMITTED, NULL, NULL },
	{ LOOK, { { 0 } }, 0, "k/", "k/\x01=1 k/~=2 k/\xc3\xa9=3 " },
	{ LOOK, { { 0 } }, 0, "k0", "k0=4 " },
	{ LOOK, { { 0 } }, 0, "l", "" },
	{ END, { { 0 } }, 0, NULL, NULL },
};

static const struct step *const scripts[] = { put_and_delete, compare_and_set, all_or_nothing, durable, bytes };

/* ---- running one ---- */
#define KEYS_MAX 16
struct known { /* the revisions that a key had */
	char key[16];
	uint64_t current, old;
};

struct run {
	const struct backend *backend;
	struct place place;
	struct event_base *base;
	struct store *store;
	struct known known[KEYS_MAX];
	char seen[512];
	bool done, has_value;
	enum store_outcome outcome;
	uint64_t revision, last_revision;
};

static struct known *known_of(struct run *run, const char *key)
{
	for (size_t i = 0; i < KEYS_MAX; i++) {
		if (!*run->known[i].key)
			(void)snprintf(run->known[i].key, sizeof(run->known[i].key), "%s", key);
		if (!strcmp(run->known[i].key, key))
			return &run->known[i];
	}
	ck_abort_msg("too many keys");
	return NULL;
}

static void on_done(enum store_outcome outcome, uint64_t revision, const struct err *err, void *user)
{
	struct run *run = user;

	(void)err;
	run->outcome = outcome;
	run->revision = revision;
	run->done = true;
}

static void on_got(const void *value, size_t size, uint64_t revision, const struct err *err, void *user)
{
	struct run *run = user;

	(void)revision;
	ck_assert_ptr_null(err);
	run->has_value = value != NULL;
	(void)snprintf(run->seen, sizeof(run->seen), "%.*s", (int)size, value ? (const char *)value : "");
	run->done = true;
}

static bool see(const char *key, const void *value, size_t size, uint64_t revision, void *user)
{
	struct run *run = user;
	size_t used = strlen(run->seen);

	ck_assert_uint_eq(revision, known_of(run, key)->current);
	(void)snprintf(run->seen + used, sizeof(run->seen) - used, "%s=%.*s ", key, (int)size,
		(const char *)value);
	return true;
}

static void wait_done(struct run *run)
{
	while (!run->done)
		ck_assert_int_eq(event_base_loop(run->base, EVLOOP_ONCE), 0);
	run->done = false;
}

static uint64_t expected(struct run *run, const struct op *op)
{
	const struct known *known = known_of(run, op->key);

	switch (op->expect) {
	case ANY:
		return STORE_ANY;
	case ABSENT:
		return STORE_ABSENT;
	case CURRENT: /* of a key that never was: any number that is none's */
		return known->current ? known->current : UINT64_C(1) << 40;
	case OLD:
		break;
	}
	return known->old;
}

static void run_batch(struct run *run, const struct step *step)
{
	struct store_op ops[OPS_MAX];
	struct err err = ERR_NULL;
	size_t n = 0;

	for (; n < OPS_MAX && step->ops[n].key; n++)
		ops[n] = (struct store_op){ step->ops[n].value ? STORE_PUT : STORE_DELETE, step->ops[n].key,
			step->ops[n].value, step->ops[n].value ? strlen(step->ops[n].value) : 0,
			expected(run, &step->ops[n]) };
	ck_assert_msg(store_commit(run->store, ops, n, on_done, run, &err) == 0, "%s", err.msg);
	wait_done(run);
	ck_assert_int_eq(run->outcome, step->outcome);
	if (step->outcome != STORE_COMMITTED)
		return;
	ck_assert_uint_gt(run->revision, run->last_revision); /* they rise */
	run->last_revision = run->revision;
	for (size_t i = 0; i < n; i++) {
		struct known *known = known_of(run, step->ops[i].key);

		known->old = known->current;
		known->current = run->revision;
	}
}

static void run_step(struct run *run, const struct step *step)
{
	struct err err = ERR_NULL;

	switch (step->act) {
	case BATCH:
		run_batch(run, step);
		return;
	case LOOK:
		*run->seen = '\0';
		ck_assert_int_eq(store_load(run->store, step->prefix, see, run, &err), 0);
		ck_assert_str_eq(run->seen, step->all);
		return;
	case READ:
		ck_assert_int_eq(store_read(run->store, step->prefix, on_got, run, &err), 0);
		wait_done(run);
		ck_assert_int_eq(run->has_value, step->all != NULL);
		ck_assert_str_eq(run->seen, step->all ? step->all : "");
		return;
	case REOPEN:
		store_close(run->store);
		run->store = NULL;
		ck_assert_int_eq(run->backend->open(&run->place, run->base, false, &run->store, &err), 0);
		return;
	case END:
		return;
	}
}

static void begin(struct run *run, const struct backend *backend)
{
	struct err err = ERR_NULL;

	memset(run, 0, sizeof(*run));
	run->backend = backend;
	run->base = event_base_new();
	backend->make(&run->place);
	ck_assert_msg(backend->open(&run->place, run->base, true, &run->store, &err) == 0, "%s", err.msg);
}

static void finish(struct run *run)
{
	store_close(run->store);
	event_base_free(run->base);
	run->backend->destroy(&run->place);
}

START_TEST(test_script)
{
	struct run run;

	begin(&run, &backends[_i / (int)ARRAY_LEN(scripts)]);
	for (const struct step *step = scripts[_i % (int)ARRAY_LEN(scripts)]; step->act != END; step++)
		run_step(&run, step);
	finish(&run);
}
END_TEST

/* What must be refused before anything is taken over. */
START_TEST(test_limits)
{
	struct run run;
	struct err err = ERR_NULL;
	struct store_op ops[STORE_OPS_MAX + 1];
	char keys[STORE_OPS_MAX + 1][16], *large = calloc(1, STORE_KEY_MAX + 2);
	struct store_op one = { STORE_PUT, "a", "1", 1, STORE_ANY };

	begin(&run, &backends[_i]);
	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		(void)snprintf(keys[i], sizeof(keys[i]), "k%zu", i);
		ops[i] = (struct store_op){ STORE_PUT, keys[i], "1", 1, STORE_ANY };
	}
	ck_assert_int_eq(store_commit(run.store, ops, STORE_OPS_MAX + 1, on_done, &run, &err), -EINVAL);
	ck_assert_int_eq(store_commit(run.store, ops, 0, on_done, &run, &err), -EINVAL);
	ops[1].key = ops[0].key; /* a key twice */
	ck_assert_int_eq(store_commit(run.store, ops, 2, on_done, &run, &err), -EINVAL);
	ops[1].key = keys[1];
	memset(large, 'k', STORE_KEY_MAX + 1);
	one.key = large;
	ck_assert_int_eq(store_commit(run.store, &one, 1, on_done, &run, &err), -EINVAL);
	one.key = "";
	ck_assert_int_eq(store_commit(run.store, &one, 1, on_done, &run, &err), -EINVAL);
	ck_assert_uint_eq(store_waiting(run.store), 0);
	large[STORE_KEY_MAX] = '\0'; /* and what just fits is taken */
	ops[0].key = large;
	ck_assert_int_eq(store_commit(run.store, ops, STORE_OPS_MAX, on_done, &run, &err), 0);
	wait_done(&run);
	ck_assert_int_eq(run.outcome, STORE_COMMITTED);
	free(large);
	finish(&run);
}
END_TEST

/* A second one of the same place is refused by name, and gets in when the first is gone. */
START_TEST(test_one_at_a_time)
{
	struct run run;
	struct store *second = NULL;
	struct err err = ERR_NULL;

	begin(&run, &backends[_i]);
	ck_assert_int_lt(run.backend->open(&run.place, run.base, false, &second, &err), 0);
	ck_assert_int_eq(err.code, FAIL_STORE_LOCKED);
	store_close(run.store);
	err = (struct err)ERR_NULL;
	ck_assert_int_eq(run.backend->open(&run.place, run.base, false, &run.store, &err), 0);
	finish(&run);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store-conformance");
	TCase *tc = tcase_create("store-conformance");

	tcase_add_loop_test(tc, test_script, 0, (int)(ARRAY_LEN(backends) * ARRAY_LEN(scripts)));
	tcase_add_loop_test(tc, test_limits, 0, (int)ARRAY_LEN(backends));
	tcase_add_loop_test(tc, test_one_at_a_time, 0, (int)ARRAY_LEN(backends));
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
