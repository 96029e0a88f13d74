/* SPDX-License-Identifier: Apache-2.0
 *
 * See worker.h. One list of waiting jobs, one of finished ones, under one mutex. A job whose key
 * runs already is passed over; with the few dozen jobs that an agent has at once a walk of the list
 * costs nothing.
 */
#include "agent/worker.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define THREADS_MAX 8
#define NSEC_PER_SEC 1000000000

struct job {
	TAILQ_ENTRY(job) link;
	uint64_t key;
	worker_run run;
	worker_done done;
	void *arg;
};
TAILQ_HEAD(jobs, job);

struct worker {
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	struct jobs waiting, finished;
	uint64_t running[THREADS_MAX]; /* keys */
	pthread_t threads[THREADS_MAX];
	unsigned int n_threads;
	unsigned int n_started; /* gives each thread its place in `running` */
	atomic_bool stop;
	int fd;
	struct event *event;
};

static bool key_is_running(const struct worker *worker, uint64_t key)
{
	for (unsigned int i = 0; key != 0 && i < THREADS_MAX; i++)
		if (worker->running[i] == key)
			return true;
	return false;
}

static struct job *next_job(struct worker *worker)
{
	struct job *job;

	TAILQ_FOREACH (job, &worker->waiting, link)
		if (!key_is_running(worker, job->key))
			return job;
	return NULL;
}

static void *thread_main(void *user)
{
	struct worker *worker = user;
	unsigned int place;

	(void)pthread_mutex_lock(&worker->mutex);
	place = worker->n_started++;
	while (!atomic_load(&worker->stop)) {
		struct job *job = next_job(worker);
		uint64_t one = 1;

		if (!job) {
			(void)pthread_cond_wait(&worker->wake, &worker->mutex);
			continue;
		}
		TAILQ_REMOVE(&worker->waiting, job, link);
		worker->running[place] = job->key;
		(void)pthread_mutex_unlock(&worker->mutex);
		job->run(job->arg, &worker->stop);
		(void)pthread_mutex_lock(&worker->mutex);
		worker->running[place] = 0;
		TAILQ_INSERT_TAIL(&worker->finished, job, link);
		/* a job of the same key may have been passed over by every other thread */
		(void)pthread_cond_broadcast(&worker->wake);
		if (write(worker->fd, &one, sizeof(one)) < 0)
			continue; /* full counter: the loop is woken already */
	}
	(void)pthread_mutex_unlock(&worker->mutex);
	return NULL;
}

static void give_back(struct worker *worker, struct jobs *list, bool ran)
{
	struct jobs mine = TAILQ_HEAD_INITIALIZER(mine);
	struct job *job;

	/* taken out first: `done` may submit, and may run long */
	(void)pthread_mutex_lock(&worker->mutex);
	TAILQ_CONCAT(&mine, list, link);
	(void)pthread_mutex_unlock(&worker->mutex);
	while ((job = TAILQ_FIRST(&mine))) {
		TAILQ_REMOVE(&mine, job, link);
		job->done(job->arg, ran);
		free(job);
	}
}

static void on_finished(evutil_socket_t fd, short what, void *user)
{
	struct worker *worker = user;
	uint64_t count;

	(void)what;
	if (read(fd, &count, sizeof(count)) < 0)
		return; /* EAGAIN: an earlier turn took all */
	give_back(worker, &worker->finished, true);
}

static int start_threads(struct worker *worker, unsigned int threads, struct err *reterr)
{
	sigset_t all, old;
	int r = 0;

	/* signals belong to the loop's thread */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	for (unsigned int i = 0; i < threads && r == 0; i++) {
		r = pthread_create(&worker->threads[i], NULL, thread_main, worker);
		if (r == 0) {
			(void)pthread_mutex_lock(&worker->mutex);
			worker->n_threads++;
			(void)pthread_mutex_unlock(&worker->mutex);
		}
	}
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0)
		return err_set(reterr, FAIL_HOST_LIMIT, r, "cannot start a worker thread");
	return 0;
}

int worker_new(
	struct worker **ret, struct event_base *base, unsigned int threads, struct err *reterr)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	int r;

	if (!worker)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the workers");
	TAILQ_INIT(&worker->waiting);
	TAILQ_INIT(&worker->finished);
	(void)pthread_mutex_init(&worker->mutex, NULL);
	(void)pthread_cond_init(&worker->wake, NULL);
	worker->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (worker->fd < 0) {
		r = err_set(reterr, FAIL_IO_FAILED, errno, "eventfd");
		goto fail;
	}
	worker->event = event_new(base, worker->fd, EV_READ | EV_PERSIST, on_finished, worker);
	if (!worker->event || event_add(worker->event, NULL) < 0) {
		r = err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the workers");
		goto fail;
	}
	r = start_threads(worker, MIN(threads, (unsigned int)THREADS_MAX), reterr);
	if (r < 0)
		goto fail;
	*ret = worker;
	return 0;
fail:
	worker_free(worker);
	return r;
}

static void tell_stop(struct worker *worker)
{
	(void)pthread_mutex_lock(&worker->mutex);
	atomic_store(&worker->stop, true);
	(void)pthread_cond_broadcast(&worker->wake);
	(void)pthread_mutex_unlock(&worker->mutex);
}

bool worker_stop(struct worker *worker, int64_t timeout_usec)
{
	struct timespec until;

	if (!worker)
		return true;
	tell_stop(worker);
	if (clock_gettime(CLOCK_REALTIME, &until) < 0)
		return false;
	until.tv_sec += timeout_usec / USEC_PER_SEC;
	until.tv_nsec += timeout_usec % USEC_PER_SEC * 1000;
	until.tv_sec += until.tv_nsec / NSEC_PER_SEC;
	until.tv_nsec %= NSEC_PER_SEC;
	while (worker->n_threads > 0) {
		if (pthread_timedjoin_np(worker->threads[worker->n_threads - 1], NULL, &until) != 0)
			return false;
		worker->n_threads--;
	}
	return true;
}

void worker_free(struct worker *worker)
{
	if (!worker)
		return;
	tell_stop(worker);
	while (worker->n_threads > 0)
		(void)pthread_join(worker->threads[--worker->n_threads], NULL);
	give_back(worker, &worker->finished, true);
	give_back(worker, &worker->waiting, false);
	if (worker->event)
		event_free(worker->event);
	(void)fd_close(worker->fd);
	(void)pthread_cond_destroy(&worker->wake);
	(void)pthread_mutex_destroy(&worker->mutex);
	free(worker);
}

static int submit(struct worker *worker, uint64_t key, bool ahead, worker_run run, worker_done done, void *arg)
{
	struct job *job;

	if (atomic_load(&worker->stop))
		return -ECANCELED;
	job = calloc(1, sizeof(*job));
	if (!job)
		return -ENOMEM;
	job->key = key;
	job->run = run;
	job->done = done;
	job->arg = arg;
	(void)pthread_mutex_lock(&worker->mutex);
	if (ahead)
		TAILQ_INSERT_HEAD(&worker->waiting, job, link);
	else
		TAILQ_INSERT_TAIL(&worker->waiting, job, link);
	(void)pthread_cond_signal(&worker->wake);
	(void)pthread_mutex_unlock(&worker->mutex);
	return 0;
}

int worker_submit(struct worker *worker, uint64_t key, worker_run run, worker_done done, void *arg)
{
	return submit(worker, key, false, run, done, arg);
}

int worker_submit_ahead(struct worker *worker, worker_run run, worker_done done, void *arg)
{
	return submit(worker, 0, true, run, done, arg);
}
