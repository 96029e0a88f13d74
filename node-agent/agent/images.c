/* SPDX-License-Identifier: Apache-2.0
 *
 * See images.h. A fetch goes
 *
 *   OPENING --absent--> FETCHING --last byte written--> FINISHING --> gone, its waiters told
 *      |  present           ^ |  no progress, link again: asked anew from where it stands
 *      +--> gone            +-+
 *
 * Its file belongs to the worker while a job runs and jobs of one fetch never overlap (worker key),
 * so `file` is touched by jobs only; the loop keeps its own counters.
 */
#include "agent/images.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

#include "agent/image-file.h"
#include "agent/worker.h"
#include "base/log.h"
#include "wire/credit.h"

#define PROGRESS_SEC 20
#define TRIES 3

enum fetch_state { FETCH_OPENING, FETCH_FETCHING, FETCH_FINISHING };

struct image_wait {
	TAILQ_ENTRY(image_wait) link;
	struct fetch *fetch;
	images_done done;
	void *user;
};

struct fetch {
	TAILQ_ENTRY(fetch) link;
	struct images *images;
	enum fetch_state state;
	struct image_file file;
	char digest[DIGEST_SIZE];
	uint64_t size;     /* 0: not known yet */
	uint64_t received; /* offset of the next chunk */
	uint64_t written;
	uint64_t request; /* 0: none is under way */
	struct credit_in credit;
	struct event *timer;
	unsigned int tries;
	unsigned int n_jobs;
	TAILQ_HEAD(waits, image_wait) waits;
};

struct images {
	struct event_base *base;
	struct worker *worker;
	char dir[PATH_MAX - 128];
	uint64_t max_size;
	images_send send;
	void *user;
	bool link_is_up;
	uint64_t last_request;
	TAILQ_HEAD(, fetch) fetches;
};

/* A piece of file work for a worker. */
struct image_job {
	struct fetch *fetch;
	int (*act)(struct image_job *job, const atomic_bool *stop);
	void (*then)(struct fetch *fetch, struct image_job *job);
	bool present;
	uint64_t offset;
	struct err err;
	size_t size;
	uint8_t data[];
};

static void ask(struct fetch *fetch);

static void fetch_free(struct fetch *fetch)
{
	struct image_wait *wait;

	while ((wait = TAILQ_FIRST(&fetch->waits))) {
		TAILQ_REMOVE(&fetch->waits, wait, link);
		wait->fetch = NULL; /* who holds it frees it */
	}
	TAILQ_REMOVE(&fetch->images->fetches, fetch, link);
	image_file_deinit(&fetch->file);
	if (fetch->timer)
		event_free(fetch->timer);
	free(fetch);
}

/* Tells everybody who waits; the fetch is over. */
static void fetch_end(struct fetch *fetch, const struct err *err)
{
	struct image_wait *wait;

	if (err)
		log_failure(LOG_LEVEL_WARN, "an image could not be brought", err, "digest",
			fetch->digest, NULL);
	while ((wait = TAILQ_FIRST(&fetch->waits))) {
		TAILQ_REMOVE(&fetch->waits, wait, link);
		wait->done(err, wait->user);
		free(wait);
	}
	fetch->request = 0;
	if (fetch->timer)
		(void)evtimer_del(fetch->timer);
	if (fetch->n_jobs == 0)
		fetch_free(fetch);
}

/* ---- jobs ---- */

static void run_job(void *arg, const atomic_bool *stop)
{
	struct image_job *job = arg;

	(void)job->act(job, stop);
}

static void done_job(void *arg, bool ran)
{
	struct image_job *job = arg;
	struct fetch *fetch = job->fetch;

	fetch->n_jobs--;
	if (ran && !TAILQ_EMPTY(&fetch->waits)) {
		if (err_is_set(&job->err))
			fetch_end(fetch, &job->err);
		else
			job->then(fetch, job);
	} else if (fetch->n_jobs == 0) {
		fetch_free(fetch);
	}
	free(job);
}

static int try_submit(struct fetch *fetch, int (*act)(struct image_job *, const atomic_bool *),
	void (*then)(struct fetch *, struct image_job *), const void *data, size_t size)
{
	/* by digest, not by fetch: the last job of a fetch that was given up comes before the first
	 * of the next */
	uint64_t key = strtoull(fetch->digest + strlen("sha256:") + 48, NULL, 16) | 1;
	struct image_job *job = malloc(sizeof(*job) + size);
	int r;

	if (!job)
		return -ENOMEM;
	memset(job, 0, sizeof(*job)); /* not the data, which is all written */
	job->fetch = fetch;
	job->act = act;
	job->then = then;
	job->size = size;
	if (size > 0)
		memcpy(job->data, data, size);
	r = worker_submit(fetch->images->worker, key, run_job, done_job, job);
	if (r < 0)
		free(job);
	else
		fetch->n_jobs++;
	return r;
}

static void submit(struct fetch *fetch, int (*act)(struct image_job *, const atomic_bool *),
	void (*then)(struct fetch *, struct image_job *), const void *data, size_t size)
{
	struct err err = ERR_NULL;

	if (try_submit(fetch, act, then, data, size) == 0)
		return;
	(void)err_set_at(&err, STAGE_IMAGE, FAIL_NO_MEMORY, ENOMEM, "no memory to bring an image");
	fetch_end(fetch, &err);
}

static int act_open(struct image_job *job, const atomic_bool *stop)
{
	int r = image_file_open(&job->fetch->file, stop, &job->present, &job->err);

	job->offset = job->fetch->file.offset;
	return r;
}

static int act_write(struct image_job *job, const atomic_bool *stop)
{
	(void)stop;
	return image_file_write(&job->fetch->file, job->data, job->size, &job->err);
}

static int act_finish(struct image_job *job, const atomic_bool *stop)
{
	(void)stop;
	return image_file_finish(&job->fetch->file, &job->err);
}

static void then_finished(struct fetch *fetch, struct image_job *job)
{
	(void)job;
	fetch_end(fetch, NULL);
}

static void finish_if_whole(struct fetch *fetch)
{
	if (fetch->state != FETCH_FETCHING || fetch->size == 0 || fetch->written < fetch->size)
		return;
	fetch->state = FETCH_FINISHING;
	fetch->request = 0;
	(void)evtimer_del(fetch->timer);
	submit(fetch, act_finish, then_finished, NULL, 0);
}

static void then_opened(struct fetch *fetch, struct image_job *job)
{
	if (job->present) {
		fetch_end(fetch, NULL);
		return;
	}
	fetch->state = FETCH_FETCHING;
	fetch->received = fetch->written = job->offset;
	if (fetch->size > 0 && fetch->written >= fetch->size)
		finish_if_whole(fetch);
	else
		ask(fetch);
}

static void then_written(struct fetch *fetch, struct image_job *job)
{
	uint32_t more;

	fetch->written += job->size;
	more = credit_in_consume(&fetch->credit, job->size);
	if (fetch->size > 0 && fetch->written >= fetch->size) {
		finish_if_whole(fetch);
		return;
	}
	/* a grant that is lost with the link is made good by the next request */
	if (more > 0 && fetch->request != 0)
		(void)fetch->images->send(
			fetch->request, fetch->digest, fetch->received, more, fetch->images->user);
}

/* ---- asking ---- */

static void arm(struct fetch *fetch)
{
	struct timeval tv = { .tv_sec = PROGRESS_SEC };

	(void)evtimer_add(fetch->timer, &tv);
}

static void ask(struct fetch *fetch)
{
	struct images *images = fetch->images;

	fetch->request = 0;
	(void)evtimer_del(fetch->timer);
	if (!images->link_is_up || fetch->state != FETCH_FETCHING)
		return; /* images_link_up() asks */
	fetch->request = ++images->last_request;
	credit_in_init(&fetch->credit, IMAGE_WINDOW);
	arm(fetch);
	if (!images->send(
		    fetch->request, fetch->digest, fetch->received, IMAGE_WINDOW, images->user))
		log_debug("an image request waits for the link", "digest", fetch->digest);
}

static void on_no_progress(evutil_socket_t fd, short what, void *user)
{
	struct fetch *fetch = user;
	struct err err = ERR_NULL;

	(void)fd, (void)what;
	if (++fetch->tries < TRIES) {
		ask(fetch);
		return;
	}
	(void)err_set(&err, FAIL_IMAGE_FETCH_FAILED, ETIMEDOUT,
		"no byte of the image came for %d s, %d times", PROGRESS_SEC, TRIES);
	err_add(&err, "have", "%llu", (unsigned long long)fetch->written);
	fetch_end(fetch, &err);
}

static int check_size(struct fetch *fetch, uint64_t size, struct err *reterr)
{
	if (size == 0 || (fetch->size != 0 && size != fetch->size) || fetch->received > size) {
		(void)err_set(reterr, FAIL_IMAGE_DIGEST_MISMATCH, 0,
			"the source's image has another size than the template's");
		err_add(reterr, "expected", "%llu", (unsigned long long)fetch->size);
		err_add(reterr, "got", "%llu", (unsigned long long)size);
		return -EIO;
	}
	if (size > fetch->images->max_size) {
		(void)err_set(reterr, FAIL_IMAGE_TOO_LARGE, EFBIG,
			"the image is larger than this node takes");
		err_add(reterr, "max", "%llu", (unsigned long long)fetch->images->max_size);
		return -EFBIG;
	}
	fetch->size = size;
	return 0;
}

void images_chunk(struct images *images, const struct image_chunk *chunk)
{
	struct err err = ERR_NULL;
	struct fetch *fetch;

	TAILQ_FOREACH (fetch, &images->fetches, link)
		if (fetch->request != 0 && fetch->request == chunk->request)
			break;
	if (!fetch || fetch->state != FETCH_FETCHING)
		return; /* of a request that was given up */
	if (chunk->failure) {
		fetch_end(fetch, chunk->failure);
		return;
	}
	if (check_size(fetch, chunk->image_size, &err) < 0) {
		fetch_end(fetch, &err);
		return;
	}
	if (chunk->offset != fetch->received || chunk->size > CREDIT_FRAME_MAX ||
		chunk->size > fetch->size - fetch->received ||
		!credit_in_receive(&fetch->credit, chunk->size)) {
		/* a lost frame, or a source that does not keep to the window: begin again from what
		 * is written */
		log_warn(
			"an image's bytes are out of order, asking again", "digest", fetch->digest);
		fetch->request = 0;
		on_no_progress(-1, 0, fetch);
		return;
	}
	fetch->received += chunk->size;
	fetch->tries = 0;
	arm(fetch);
	submit(fetch, act_write, then_written, chunk->data, chunk->size);
}

void images_link_up(struct images *images)
{
	struct fetch *fetch;

	if (images->link_is_up)
		return; /* what is under way goes on */
	images->link_is_up = true;
	TAILQ_FOREACH (fetch, &images->fetches, link)
		ask(fetch);
}

void images_link_down(struct images *images)
{
	struct fetch *fetch;

	images->link_is_up = false;
	TAILQ_FOREACH (fetch, &images->fetches, link) {
		fetch->request = 0;
		if (fetch->timer)
			(void)evtimer_del(fetch->timer);
	}
}

/* ---- the object ---- */

int images_new(struct images **ret, struct event_base *base, struct worker *worker, const char *dir,
	uint64_t max_size, images_send send, void *user, struct err *reterr)
{
	struct images *images = calloc(1, sizeof(*images));

	if (!images)
		return err_set(reterr, FAIL_NO_MEMORY, ENOMEM, "no memory for the images");
	images->base = base;
	images->worker = worker;
	images->max_size = max_size;
	images->send = send;
	images->user = user;
	TAILQ_INIT(&images->fetches);
	(void)snprintf(images->dir, sizeof(images->dir), "%s", dir);
	*ret = images;
	return 0;
}

void images_free(struct images *images)
{
	struct fetch *fetch;

	if (!images)
		return;
	while ((fetch = TAILQ_FIRST(&images->fetches)))
		fetch_free(fetch);
	free(images);
}

static struct fetch *fetch_new(struct images *images, const char *digest, uint64_t size)
{
	struct fetch *fetch = calloc(1, sizeof(*fetch));

	if (!fetch)
		return NULL;
	fetch->images = images;
	fetch->size = size;
	TAILQ_INIT(&fetch->waits);
	TAILQ_INSERT_TAIL(&images->fetches, fetch, link);
	(void)snprintf(fetch->digest, sizeof(fetch->digest), "%s", digest);
	fetch->timer = evtimer_new(images->base, on_no_progress, fetch);
	if (!fetch->timer || image_file_init(&fetch->file, images->dir, digest) < 0) {
		fetch_free(fetch);
		return NULL;
	}
	return fetch;
}

int images_want(struct images *images, const char *digest, uint64_t size, images_done done,
	void *user, struct image_wait **ret)
{
	struct image_wait *wait = calloc(1, sizeof(*wait));
	struct fetch *fetch;
	bool is_new = false;

	if (!wait)
		return -ENOMEM;
	TAILQ_FOREACH (fetch, &images->fetches, link)
		if (!strcmp(fetch->digest, digest) && !TAILQ_EMPTY(&fetch->waits) &&
			fetch->state != FETCH_FINISHING)
			break;
	if (!fetch) {
		fetch = fetch_new(images, digest, size);
		is_new = true;
	}
	if (!fetch) {
		free(wait);
		return -ENOMEM;
	}
	if (is_new && try_submit(fetch, act_open, then_opened, NULL, 0) < 0) {
		fetch_free(fetch);
		free(wait);
		return -ENOMEM;
	}
	wait->fetch = fetch;
	wait->done = done;
	wait->user = user;
	TAILQ_INSERT_TAIL(&fetch->waits, wait, link);
	*ret = wait;
	return 0;
}

void image_wait_free(struct image_wait *wait)
{
	struct fetch *fetch;

	if (!wait)
		return;
	fetch = wait->fetch;
	if (fetch) {
		TAILQ_REMOVE(&fetch->waits, wait, link);
		if (TAILQ_EMPTY(&fetch->waits)) {
			fetch->request = 0;
			(void)evtimer_del(fetch->timer);
			if (fetch->n_jobs == 0)
				fetch_free(fetch);
		}
	}
	free(wait);
}

bool images_is_wanted(const struct images *images, const char *digest)
{
	const struct fetch *fetch;

	TAILQ_FOREACH (fetch, &images->fetches, link)
		if (!strcmp(fetch->digest, digest))
			return true;
	return false;
}

int images_path(const struct images *images, const char *digest, char ret[static PATH_MAX])
{
	if (!digest_is_valid(digest))
		return -EINVAL;
	(void)snprintf(ret, PATH_MAX, "%s/%s", images->dir, digest);
	return 0;
}

int images_list(const struct images *images, struct image_list *ret)
{
	DIR *dir = opendir(images->dir);
	struct dirent *entry;
	int r = 0;

	if (!dir)
		return errno == ENOENT ? 0 : -errno;
	while (r == 0 && (entry = readdir(dir)))
		if (digest_is_valid(entry->d_name))
			r = image_list_add(ret, entry->d_name);
	(void)closedir(dir);
	return r == -E2BIG ? 0 : r; /* the rest is held all the same, only not told */
}
