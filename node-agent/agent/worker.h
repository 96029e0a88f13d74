/* SPDX-License-Identifier: Apache-2.0
 *
 * A few threads for file work that may block: fsync, digests, mkfs, removal. A job is given to a
 * thread, its end comes back to the loop through an eventfd. Nothing of the agent is shared with a
 * thread but the job; so no other module has a lock.
 *
 * Jobs of one queue key run one after the other in the order of submission (the writes of one
 * sandbox's journal must not overtake one another); jobs of different keys run side by side.
 *
 * The agent has two pools: one whose jobs take milliseconds, with the journals among them, and one of a single thread for
 * bulk work (the fsync of a snapshot, the copy of a disk, the end of a big file), which may take minutes and is never in
 * front of a journal.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct event_base;
struct worker;

/* Runs on a thread. Long work looks at *stop and gives up when it is set. */
typedef void (*worker_run)(void *job, const atomic_bool *stop);
/* Runs on the loop once the thread is done, or with `ran` false when the pool is freed before it
 * began. Owns the job. */
typedef void (*worker_done)(void *job, bool ran);

int worker_new(
	struct worker **ret, struct event_base *base, unsigned int threads, struct err *reterr);
/* Takes no more, tells running jobs to give up and waits for them, at most so long. false: one hangs in
 * the kernel; then nothing that a job may touch can be freed, and the process is to end as it is. */
bool worker_stop(struct worker *worker, int64_t timeout_usec);
/* Waits for the jobs that run; those that wait are given back with `ran` false. */
void worker_free(struct worker *worker);
/* 0, -ENOMEM, or -ECANCELED while the pool is freed: then nothing was taken and `done` is not
 * called. key 0: no order. */
int worker_submit(struct worker *worker, uint64_t key, worker_run run, worker_done done, void *job);
/* The same without a key, before all that wait: somebody stands still until it is done. */
int worker_submit_ahead(struct worker *worker, worker_run run, worker_done done, void *job);
