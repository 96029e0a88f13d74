/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread for work that blocks and has no place on the loop: making a large file durable. Jobs run in the
 * order they were given; each answers on the loop.
 */
#pragma once

#include "base/err.h"

struct event_base;
struct worker;

#define WORKER_JOBS_MAX 1024

int worker_new(struct worker **ret, struct event_base *base, struct err *reterr);
/* Waits for the job that runs; those that wait are dropped, and no answer comes any more. */
void worker_free(struct worker *worker);

/* `work` runs in the thread and may touch `arg` alone; `done` runs on the loop. 0, or SCHEDULER_BUSY. */
int worker_add(struct worker *worker, void (*work)(void *arg), void (*done)(void *arg), void *arg,
	struct err *reterr);
