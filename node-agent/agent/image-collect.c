/* SPDX-License-Identifier: Apache-2.0
 *
 * See image-collect.h. What is on its way out is named <digest>.gone; what an interrupted agent left of these, and of
 * fetches that nobody came back to for a day, goes with the next run.
 */
#include "agent/image-collect.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/images.h"
#include "agent/worker.h"
#include "base/clock.h"
#include "base/log.h"

#define PART_AGE_USEC (24 * 3600 * USEC_PER_SEC)
#define GONE ".gone"

struct image_collect {
	struct worker *worker;
	struct images *images;
	char dir[PATH_MAX - 128];
	struct gc_limits limits;
	image_in_use in_use;
	void *user;
	bool is_running;
};

struct collect_job {
	struct image_collect *collect;
	struct gc_image *found;
	size_t n, room;
	struct gc_disk disk;
};

static void job_free(struct collect_job *job)
{
	job->collect->is_running = false;
	free(job->found);
	free(job);
}

static void path_of(const struct image_collect *collect, const char *name, const char *suffix, char ret[static PATH_MAX])
{
	(void)snprintf(ret, PATH_MAX, "%s/%.120s%s", collect->dir, name, suffix);
}

/* ---- on a worker: what is there ---- */

static void add(struct collect_job *job, const char *digest)
{
	struct gc_image *grown, *image;
	char path[PATH_MAX];
	struct stat file, mark;

	path_of(job->collect, digest, "", path);
	if (lstat(path, &file) < 0)
		return;
	path_of(job->collect, digest, ".ok", path);
	if (lstat(path, &mark) < 0)
		mark = file;
	if (job->n == job->room) {
		size_t room = job->room ? 2 * job->room : 16;

		grown = reallocarray(job->found, room, sizeof(*grown));
		if (!grown)
			return; /* the others are enough for this time */
		job->found = grown;
		job->room = room;
	}
	image = &job->found[job->n++];
	*image = (struct gc_image){ .size = (uint64_t)file.st_blocks * 512,
		.used_us = (int64_t)mark.st_mtim.tv_sec * USEC_PER_SEC + mark.st_mtim.tv_nsec / 1000 };
	(void)snprintf(image->digest, sizeof(image->digest), "%s", digest);
}

static void look(void *arg, const atomic_bool *stop)
{
	struct collect_job *job = arg;
	DIR *dir = opendir(job->collect->dir);
	struct dirent *entry;
	struct statvfs fs;

	while (dir && !atomic_load(stop) && (entry = readdir(dir)))
		if (digest_is_valid(entry->d_name))
			add(job, entry->d_name);
	if (dir && fstatvfs(dirfd(dir), &fs) == 0) {
		job->disk.size = (uint64_t)fs.f_blocks * fs.f_frsize;
		job->disk.free = (uint64_t)fs.f_bavail * fs.f_frsize;
	}
	if (dir)
		(void)closedir(dir);
}

/* ---- on a worker: freeing ---- */

static bool ends_with(const char *name, const char *suffix)
{
	size_t have = strlen(name), want = strlen(suffix);

	return have == DIGEST_SIZE - 1 + want && !strcmp(name + have - want, suffix);
}

static bool is_forgotten(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 &&
	       clock_realtime_usec() - (int64_t)st.st_mtim.tv_sec * USEC_PER_SEC > PART_AGE_USEC;
}

static void sweep(void *arg, const atomic_bool *stop)
{
	const struct collect_job *job = arg;
	DIR *dir = opendir(job->collect->dir);
	struct dirent *entry;
	char path[PATH_MAX];

	while (dir && !atomic_load(stop) && (entry = readdir(dir))) {
		path_of(job->collect, entry->d_name, "", path);
		if (ends_with(entry->d_name, GONE) || (ends_with(entry->d_name, ".part") && is_forgotten(path)))
			(void)unlink(path); /* else with the next run */
	}
	if (dir)
		(void)closedir(dir);
}

static void done_sweep(void *arg, bool ran)
{
	(void)ran;
	job_free(arg);
}

/* ---- on the loop: deciding ---- */

static bool take_out(const struct image_collect *collect, const struct gc_image *image)
{
	char from[PATH_MAX], to[PATH_MAX];

	path_of(collect, image->digest, ".ok", from);
	(void)unlink(from);
	path_of(collect, image->digest, "", from);
	path_of(collect, image->digest, GONE, to);
	if (rename(from, to) < 0) {
		log_warn("an image cannot be collected", "digest", image->digest, "errno", strerrorname_np(errno));
		return false;
	}
	log_info("an image is collected", "digest", image->digest, "bytes", LOG_NUM(image->size));
	return true;
}

static void done_look(void *arg, bool ran)
{
	struct collect_job *job = arg;
	struct image_collect *collect = job->collect;

	if (!ran || job->disk.size == 0) {
		job_free(job);
		return;
	}
	for (size_t i = 0; i < job->n; i++)
		job->found[i].in_use = images_is_wanted(collect->images, job->found[i].digest) ||
				       collect->in_use(job->found[i].digest, collect->user);
	(void)gc_choose(job->found, job->n, &job->disk, &collect->limits, clock_realtime_usec());
	for (size_t i = 0; i < job->n; i++)
		if (job->found[i].goes)
			(void)take_out(collect, &job->found[i]);
	if (worker_submit(collect->worker, 0, sweep, done_sweep, job) < 0)
		job_free(job);
}

/* ---- the object ---- */

struct image_collect *image_collect_new(struct worker *worker, struct images *images, const char *dir,
	const struct gc_limits *limits, image_in_use in_use, void *user)
{
	struct image_collect *collect = calloc(1, sizeof(*collect));

	if (!collect)
		return NULL;
	collect->worker = worker;
	collect->images = images;
	collect->limits = *limits;
	collect->in_use = in_use;
	collect->user = user;
	(void)snprintf(collect->dir, sizeof(collect->dir), "%s", dir);
	return collect;
}

void image_collect_free(struct image_collect *collect)
{
	free(collect);
}

void image_collect_run(struct image_collect *collect)
{
	struct collect_job *job = collect->is_running ? NULL : calloc(1, sizeof(*job));

	if (!job)
		return;
	job->collect = collect;
	collect->is_running = true;
	if (worker_submit(collect->worker, 0, look, done_look, job) < 0)
		job_free(job);
}
