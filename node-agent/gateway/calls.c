/* SPDX-License-Identifier: Apache-2.0
 *
 * See calls.h.
 */
#include "gateway/calls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "base/util.h"

/* Hashed as bytes: made by key_of() alone. */
struct key {
	char sandbox[ID_SIZE];
	enum fail_stage stage;
	enum outcome outcome;
	enum fail_code code;
	enum fail_component component;
};

struct row {
	struct key key;
	uint64_t n;
	int64_t began_us, took_us; /* of the first; of all together */
	UT_hash_handle hh;
};

/* How many of a sandbox's calls wait one by one. */
struct share {
	char sandbox[ID_SIZE];
	unsigned int n;
};

struct calls {
	struct rng rng;
	struct stage_record single[CALLS_SINGLE];
	size_t n_single;
	struct share shares[CALLS_SINGLE];
	size_t n_shares;
	struct row *rows; /* in the order in which they began */
	uint64_t lost;

	struct stage_record batch[CALLS_BATCH];
	size_t n_batch;
	uint64_t batch_lost, seq;
	int64_t made_us;
	bool is_told; /* and not taken yet */
	bool is_again; /* to be told once more */
};

int calls_new(struct calls **ret, struct rng rng)
{
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	(*ret)->rng = rng;
	(*ret)->seq = rng_u64(&(*ret)->rng) >> 1;
	(*ret)->made_us = INT64_MIN / 2;
	return 0;
}

static void drop_row(struct calls *calls, struct row *row)
{
	HASH_DEL(calls->rows, row);
	free(row);
}

struct calls *calls_free(struct calls *calls)
{
	if (!calls)
		return NULL;
	while (calls->rows)
		drop_row(calls, calls->rows);
	free(calls);
	return NULL;
}

static void key_of(const struct stage_record *call, bool with_sandbox, struct key *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (with_sandbox)
		memcpy(ret->sandbox, call->sandbox, sizeof(ret->sandbox));
	ret->stage = call->stage;
	ret->outcome = call->outcome;
	ret->code = call->failure.code;
	ret->component = call->failure.component;
}

static struct row *row_for(struct calls *calls, const struct stage_record *call, bool with_sandbox)
{
	struct row *row = NULL;
	struct key key;

	key_of(call, with_sandbox, &key);
	HASH_FIND(hh, calls->rows, &key, sizeof(key), row);
	if (row || (with_sandbox && HASH_COUNT(calls->rows) >= CALLS_ROWS))
		return row;
	row = calloc(1, sizeof(*row));
	if (!row)
		return NULL;
	row->key = key;
	row->began_us = call->began_us;
	HASH_ADD(hh, calls->rows, key, sizeof(row->key), row);
	if (!row->hh.tbl) { /* uthash had no memory */
		free(row);
		return NULL;
	}
	return row;
}

static void count(struct calls *calls, const struct stage_record *call)
{
	struct row *row = row_for(calls, call, true);

	if (!row || row->n == STAGE_ALIKE_MAX)
		row = row_for(calls, call, false);
	if (!row || row->n == STAGE_ALIKE_MAX) {
		calls->lost++;
		return;
	}
	row->n++;
	row->took_us += call->took_us;
}

/* Whether one more of this sandbox may be told by itself. */
static bool take_share(struct calls *calls, const char *sandbox)
{
	size_t i = 0;

	if (calls->n_single == CALLS_SINGLE)
		return false;
	while (i < calls->n_shares && strcmp(calls->shares[i].sandbox, sandbox) != 0)
		i++;
	if (i == calls->n_shares) {
		calls->shares[i] = (struct share){ .n = 0 };
		memcpy(calls->shares[i].sandbox, sandbox, sizeof(calls->shares[i].sandbox));
		calls->n_shares++;
	}
	if (calls->shares[i].n == CALLS_EACH)
		return false;
	calls->shares[i].n++;
	return true;
}

static void strip(struct stage_record *record)
{
	const struct err failure = record->failure;

	record->failure = (struct err)ERR_NULL;
	if (failure.code == FAIL_NONE)
		return;
	record->failure.code = failure.code;
	record->failure.stage = record->stage;
	record->failure.component = failure.component;
	record->failure.err_no = failure.err_no;
}

void calls_add(struct calls *calls, const struct stage_record *call)
{
	struct stage_record *single;

	if (!take_share(calls, call->sandbox)) {
		count(calls, call);
		return;
	}
	single = &calls->single[calls->n_single++];
	*single = *call;
	strip(single);
}

static void put_row(struct calls *calls, const struct row *row)
{
	struct stage_record *record = &calls->batch[calls->n_batch++];
	struct trace trace;

	*record = (struct stage_record){ .stage = row->key.stage,
		.outcome = row->key.outcome,
		.began_us = row->began_us,
		.took_us = row->took_us / (int64_t)row->n,
		.n_alike = row->n };
	memcpy(record->sandbox, row->key.sandbox, sizeof(record->sandbox));
	record->failure.code = row->key.code;
	record->failure.component = row->key.component;
	record->failure.stage = row->key.code == FAIL_NONE ? STAGE_NONE : row->key.stage;
	trace_new(&calls->rng, &trace); /* no trace of anybody: the span tells it from another */
	memcpy(record->trace.span_id, trace.span_id, sizeof(record->trace.span_id));
}

static void fill(struct calls *calls)
{
	_Static_assert(CALLS_SINGLE < CALLS_BATCH, "those that are told one by one fit");
	memcpy(calls->batch, calls->single, calls->n_single * sizeof(*calls->batch));
	calls->n_batch = calls->n_single;
	calls->n_single = calls->n_shares = 0;
	while (calls->rows && calls->n_batch < CALLS_BATCH) {
		put_row(calls, calls->rows);
		drop_row(calls, calls->rows);
	}
	calls->batch_lost = calls->lost;
	calls->lost = 0;
	calls->seq++;
	calls->is_told = true;
}

bool calls_next(struct calls *calls, int64_t now_us, struct calls_batch *ret)
{
	if (calls->is_told && !calls->is_again)
		return false;
	if (!calls->is_told) {
		if (now_us - calls->made_us < CALLS_EVERY_US ||
			(calls->n_single == 0 && !calls->rows && calls->lost == 0))
			return false;
		fill(calls);
		calls->made_us = now_us;
	}
	calls->is_again = false;
	*ret = (struct calls_batch){ calls->seq, calls->batch, calls->n_batch, calls->batch_lost };
	return true;
}

void calls_taken(struct calls *calls, uint64_t seq)
{
	if (seq == calls->seq)
		calls->is_told = false;
}

void calls_again(struct calls *calls)
{
	calls->is_again = calls->is_told;
}
