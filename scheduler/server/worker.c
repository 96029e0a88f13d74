/* SPDX-License-Identifier: Apache-2.0
 *
 * See worker.h.
 */
#include "server/worker.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/fd.h"

struct job {
	STAILQ_ENTRY(job) link;
	void (*work)(void *arg);
	void (*done)(void *arg);
	void *arg;
};
STAILQ_HEAD(job_list, job);

struct worker {
	pthread_t thread;
	bool has_thread, stop;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct job_list waiting, finished;
	size_t n_jobs; /* of the loop thread */
	int event_fd;
	struct event *event;
};

static void *run(void *user)
{
	struct worker *worker = user;
	const uint64_t one = 1;

	(void)pthread_mutex_lock(&worker->lock);
	while (!worker->stop) {
		struct job *job = STAILQ_FIRST(&worker->waiting);

		if (!job) {
			(void)pthread_cond_wait(&worker->wake, &worker->lock);
			continue;
		}
		STAILQ_REMOVE_HEAD(&worker->waiting, link);
		(void)pthread_mutex_unlock(&worker->lock);
		job->work(job->arg);
		(void)pthread_mutex_lock(&worker->lock);
		STAILQ_INSERT_TAIL(&worker->finished, job, link);
		if (write(worker->event_fd, &one, sizeof(one)) < 0) {
			/* EAGAIN: the counter is full, the loop is woken anyway */
		}
	}
	(void)pthread_mutex_unlock(&worker->lock);
	return NULL;
}

static void on_event(evutil_socket_t fd, short what, void *user)
{
	struct worker *worker = user;
	struct job_list finished;
	struct job *job;
	uint64_t count;

	(void)what;
	if (read(fd, &count, sizeof(count)) < 0) {
		/* EAGAIN: the list tells */
	}
	STAILQ_INIT(&finished);
	(void)pthread_mutex_lock(&worker->lock);
	STAILQ_CONCAT(&finished, &worker->finished);
	(void)pthread_mutex_unlock(&worker->lock);
	while ((job = STAILQ_FIRST(&finished))) {
		STAILQ_REMOVE_HEAD(&finished, link);
		worker->n_jobs--;
		job->done(job->arg);
		free(job);
	}
}

int worker_new(struct worker **ret, struct event_base *base, struct err *reterr)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	sigset_t all, old;
	int r;

	if (!worker)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the worker");
	STAILQ_INIT(&worker->waiting);
	STAILQ_INIT(&worker->finished);
	(void)pthread_mutex_init(&worker->lock, NULL);
	(void)pthread_cond_init(&worker->wake, NULL);
	worker->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (worker->event_fd >= 0)
		worker->event =
			event_new(base, worker->event_fd, EV_READ | EV_PERSIST, on_event, worker);
	if (!worker->event || event_add(worker->event, NULL) < 0) {
		worker_free(worker);
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the worker");
	}
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old); /* signals belong to the loop */
	r = pthread_create(&worker->thread, NULL, run, worker);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		worker_free(worker);
		return err_set(reterr, FAIL_NO_MEMORY, r, "the worker's thread cannot be started");
	}
	worker->has_thread = true;
	*ret = worker;
	return 0;
}

static void free_jobs(struct job_list *list)
{
	struct job *job;

	while ((job = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, link);
		free(job);
	}
}

void worker_free(struct worker *worker)
{
	if (!worker)
		return;
	if (worker->has_thread) {
		(void)pthread_mutex_lock(&worker->lock);
		worker->stop = true;
		(void)pthread_cond_signal(&worker->wake);
		(void)pthread_mutex_unlock(&worker->lock);
		(void)pthread_join(worker->thread, NULL);
	}
	free_jobs(&worker->waiting);
	free_jobs(&worker->finished);
	if (worker->event)
		event_free(worker->event);
	(void)fd_close(worker->event_fd);
	(void)pthread_cond_destroy(&worker->wake);
	(void)pthread_mutex_destroy(&worker->lock);
	free(worker);
}

int worker_add(struct worker *worker, void (*work)(void *arg), void (*done)(void *arg), void *arg,
	struct err *reterr)
{
	struct job *job = worker->n_jobs < WORKER_JOBS_MAX ? calloc(1, sizeof(*job)) : NULL;

	if (!job)
		return err_set(reterr, FAIL_SCHEDULER_BUSY, EAGAIN, "%zu jobs wait for the worker",
			worker->n_jobs);
	*job = (struct job){ .work = work, .done = done, .arg = arg };
	worker->n_jobs++;
	(void)pthread_mutex_lock(&worker->lock);
	STAILQ_INSERT_TAIL(&worker->waiting, job, link);
	(void)pthread_cond_signal(&worker->wake);
	(void)pthread_mutex_unlock(&worker->lock);
	return 0;
}
