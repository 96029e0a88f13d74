/* SPDX-License-Identifier: Apache-2.0
 *
 * usage.db: what sandboxes have used, as their nodes counted it (docs/decisions/0032). Blocking calls, used by one thread at a time.
 *
 * An account is one generation of a sandbox on one node, with its latest record; a record that is not later changes nothing. What a
 * record adds goes to the hours of the time since the one before, evenly, to the last microsecond: sums are exact, and how much of
 * a sum was spread over more than one hour is in it. A time so long that it touches more than USAGE_ROWS_MAX hours (of hearsay:
 * USAGE_ROWS_HEARSAY) goes to so many of them, evenly: what one record takes on the disk is bounded. WAL with synchronous=FULL: what was acknowledged is on the disk.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "wire/messages.h"

#define USAGE_HOURS_US (INT64_C(3600) * 1000 * 1000)

#define USAGE_ROWS_MAX 744
#define USAGE_ROWS_HEARSAY 24

struct usage_db;

int usage_db_open(struct usage_db **ret, const char *path, struct err *reterr);
void usage_db_close(struct usage_db *db);
DEFINE_CLEANUP(struct usage_db, usage_db_close)

int usage_db_begin(struct usage_db *db, struct err *reterr);
/* r < 0: everything since begin is undone. */
int usage_db_end(struct usage_db *db, int r, struct err *reterr);

struct usage_account {
	struct usage_record used; /* its tenant is whose it is, not what the node said */
	char node[ID_SIZE];
	char pool[ID_NAME_MAX + 1];
	int64_t heard_us;
	bool is_hearsay;  /* nobody but the node says that there was such a sandbox */
	bool is_unproven; /* likewise whose it was: nobody's, where no other account of it is that tenant's */
};
/* *ret_new false: it was known. A counter that is lower than before stays as it was. */
int usage_db_take(struct usage_db *db, const struct usage_account *account, bool *ret_new, struct err *reterr);
/* How many records a node had no room to keep until they were acknowledged, since it has counted. */
int usage_db_put_dropped(struct usage_db *db, const char *node, uint64_t n, struct err *reterr);

struct usage_filter {
	const char *tenant, *sandbox, *pool, *node; /* "": any */
	int64_t from_us, to_us; /* from 0: all there is, not by the hour */
	bool by_sandbox;        /* a row for each, else for each tenant */
	uint64_t max_rows;
};

struct usage_sums {
	const char *tenant, *sandbox; /* "": of all of the tenant's */
	uint64_t n; /* accounts */
	uint64_t running_us, paused_us, disk_us, cpu_us, egress_bytes, uncounted_us;
	uint64_t spread_us;           /* of the running time */
	double memory_gib_s, disk_gib_s;
	uint64_t n_open; /* not over */
	int64_t as_of_us; /* of those that are not over: when the one not heard of for longest was counted up to; 0: all are */
};
/* In order of tenant and sandbox. */
int usage_db_sum(struct usage_db *db, const struct usage_filter *filter, void (*each)(const struct usage_sums *sums, void *user),
	void *user, struct err *reterr);
int usage_db_lost(struct usage_db *db, const struct usage_filter *filter,
	void (*each)(const char *pool, enum fail_component component, uint64_t lost_us, void *user), void *user, struct err *reterr);
/* Each account, whole, in order of sandbox and generation. */
int usage_db_accounts(struct usage_db *db, const struct usage_filter *filter,
	void (*each)(const struct usage_account *account, void *user), void *user, struct err *reterr);
/* What its tenant says of a sandbox's result; said again, the later word holds. */
int usage_db_mark(struct usage_db *db, const char *tenant, const char *sandbox, bool is_accepted, int64_t when_us, struct err *reterr);
/* Marks of sandboxes that have an account which the filter takes; its time is that of the marks. */
int usage_db_marks(struct usage_db *db, const struct usage_filter *filter, uint64_t *ret_accepted, uint64_t *ret_rejected,
	struct err *reterr);
/* Of the nodes that have an account which the filter takes. */
int usage_db_dropped(struct usage_db *db, const struct usage_filter *filter, uint64_t *ret, struct err *reterr);

/* Hours before, and accounts that were over before, or not heard of since. */
int usage_db_expire(struct usage_db *db, int64_t before_us, struct err *reterr);
/* The first hour that there is, in microseconds; 0: none. */
int64_t usage_db_oldest(struct usage_db *db);
