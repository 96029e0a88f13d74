/* SPDX-License-Identifier: Apache-2.0
 *
 * Which images go (agent/image-gc.c), against a check of every possible answer's properties, and that they do
 * (agent/image-collect.c): in a directory of the test's own, with a real worker.
 */
#include <check.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/image-collect.h"
#include "agent/images.h"
#include "agent/worker.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/rng.h"
#include "lib/suite.h"

#define DAY (24 * 3600 * USEC_PER_SEC)
#define NOW (1000 * DAY)

static struct gc_image image(char name, uint64_t size, int64_t age_days, bool in_use)
{
	struct gc_image ret = { .size = size, .used_us = NOW - age_days * DAY, .in_use = in_use };

	ret.digest[0] = name;
	return ret;
}

static bool goes(const struct gc_image *images, size_t n, char name)
{
	for (size_t i = 0; i < n; i++)
		if (images[i].digest[0] == name)
			return images[i].goes;
	ck_abort_msg("no %c", name);
}

START_TEST(the_old_go_and_the_used_stay)
{
	const struct gc_limits limits = { .max_age_us = 7 * DAY, .keep_free_percent = 20 };
	const struct gc_disk roomy = { 1000, 900 };
	struct gc_image images[] = { image('a', 10, 8, false), image('b', 10, 7, false), image('c', 10, 800, true),
		image('d', 10, 0, false) };
	const struct gc_limits ageless = { .keep_free_percent = 20 };

	ck_assert_uint_eq(gc_choose(images, 4, &roomy, &limits, NOW), 1);
	ck_assert(goes(images, 4, 'a') && !goes(images, 4, 'b') && !goes(images, 4, 'c') && !goes(images, 4, 'd'));
	ck_assert_uint_eq(gc_choose(images, 4, &roomy, &ageless, NOW), 0);
	ck_assert_uint_eq(gc_choose(NULL, 0, &roomy, &limits, NOW), 0);
}
END_TEST

START_TEST(under_pressure_the_longest_unused_go_first)
{
	const struct gc_limits limits = { .max_age_us = 7 * DAY, .keep_free_percent = 20 };
	const struct gc_disk tight = { 1000, 150 };
	struct gc_image images[] = { image('a', 30, 1, false), image('b', 30, 3, false), image('c', 500, 4, true),
		image('d', 30, 2, false), image('e', 30, 0, false) };

	ck_assert_uint_eq(gc_choose(images, 5, &tight, &limits, NOW), 2); /* 150 + 60 >= 200 */
	ck_assert(goes(images, 5, 'b') && goes(images, 5, 'd') && !goes(images, 5, 'a') && !goes(images, 5, 'e'));
	ck_assert(!goes(images, 5, 'c'));
}
END_TEST

/* Whatever is asked: none in use goes; none that is young goes while an older one that could stays; none more than needed. */
START_TEST(any_answer_is_the_least_that_does)
{
	struct rng rng = rng_seeded((uint64_t)_i + 1);
	const struct gc_limits limits = { .max_age_us = 7 * DAY, .keep_free_percent = 20 };

	for (int round = 0; round < 2000; round++) {
		struct gc_disk disk = { 1000, rng_below(&rng, 400) };
		struct gc_image images[12];
		size_t n = rng_below(&rng, 13);
		uint64_t freed = 0, last = 0;

		for (size_t i = 0; i < n; i++)
			images[i] = image((char)('a' + i), 1 + rng_below(&rng, 99), (int64_t)rng_below(&rng, 12),
				rng_below(&rng, 3) == 0);
		(void)gc_choose(images, n, &disk, &limits, NOW);
		for (size_t i = 0; i < n; i++) {
			bool is_old = NOW - images[i].used_us > limits.max_age_us;

			ck_assert(!images[i].goes || !images[i].in_use);
			ck_assert(images[i].goes || images[i].in_use || !is_old);
			freed += images[i].goes ? images[i].size : 0;
			last = images[i].goes && !is_old ? images[i].size : last;
			for (size_t k = 0; k < n; k++)
				ck_assert(!(images[i].goes && !images[k].goes && !images[k].in_use &&
					    images[k].used_us < images[i].used_us));
		}
		for (size_t i = 0; i < n; i++) /* enough, where there was enough to have */
			ck_assert(disk.free + freed >= 200 || images[i].goes || images[i].in_use);
		ck_assert(last == 0 || disk.free + freed - last < 200);
	}
}
END_TEST

/* ---- the directory ---- */

static char dir[64];
static struct event_base *base;
static struct worker *worker;
static struct images *images;
static struct image_collect *collect;

static void digest_of(char letter, char ret[static DIGEST_SIZE])
{
	(void)snprintf(ret, DIGEST_SIZE, "sha256:");
	memset(ret + 7, letter, 64);
	ret[71] = '\0';
}

static void path_of(char letter, const char *suffix, char ret[static 256])
{
	char digest[DIGEST_SIZE];

	digest_of(letter, digest);
	(void)snprintf(ret, 256, "%s/%s%s", dir, digest, suffix);
}

static void put(char letter, const char *suffix, int64_t age_days)
{
	struct timespec times[2];
	char path[256];

	path_of(letter, suffix, path);
	ck_assert_int_eq(file_replace(path, "bytes", 5, 0600), 0);
	times[0].tv_sec = times[1].tv_sec = (clock_realtime_usec() - age_days * DAY) / USEC_PER_SEC;
	times[0].tv_nsec = times[1].tv_nsec = 0;
	ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool is_there(char letter, const char *suffix)
{
	char path[256];

	path_of(letter, suffix, path);
	return access(path, F_OK) == 0;
}

static bool no_send(uint64_t request, const char *digest, uint64_t offset, uint32_t credit, void *user)
{
	(void)request, (void)digest, (void)offset, (void)credit, (void)user;
	return false;
}

static bool is_c(const char *digest, void *user)
{
	(void)user;
	return digest[7] == 'c';
}

static void never(const struct err *err, void *user)
{
	(void)err, (void)user;
}

static void turns(void)
{
	for (int i = 0; i < 30; i++) {
		struct timeval tv = { .tv_usec = 10000 };

		(void)event_base_loopexit(base, &tv);
		(void)event_base_loop(base, 0);
	}
}

static void open_rig(const struct gc_limits *limits)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/croft-test-gc.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	base = event_base_new();
	ck_assert_int_eq(worker_new(&worker, base, 2, NULL), 0);
	ck_assert_int_eq(images_new(&images, base, worker, dir, 1 << 20, no_send, NULL, NULL), 0);
	collect = image_collect_new(worker, images, dir, limits, is_c, NULL);
}

static void close_rig(void)
{
	char command[128];

	worker_free(worker);
	image_collect_free(collect);
	images_free(images);
	event_base_free(base);
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}

START_TEST(what_is_used_or_wanted_stays_in_its_place)
{
	const struct gc_limits limits = { .max_age_us = 7 * DAY };
	struct image_wait *wait;
	char digest[DIGEST_SIZE];

	open_rig(&limits);
	put('a', "", 30);
	put('a', ".ok", 30);
	put('b', "", 30); /* used yesterday */
	put('b', ".ok", 1);
	put('c', "", 30); /* a sandbox has it */
	put('d', ".gone", 0);
	put('e', ".part", 2);
	put('f', ".part", 0);
	put('1', "", 30); /* somebody asks for it this moment */
	digest_of('1', digest);
	ck_assert_int_eq(images_want(images, digest, 0, never, NULL, &wait), 0);
	ck_assert(images_is_wanted(images, digest));
	image_collect_run(collect);
	image_collect_run(collect); /* under way already */
	turns();
	ck_assert(!is_there('a', "") && !is_there('a', ".ok") && !is_there('a', ".gone"));
	ck_assert(is_there('b', "") && is_there('b', ".ok") && is_there('c', ""));
	ck_assert(!is_there('d', ".gone") && !is_there('e', ".part") && is_there('f', ".part"));
	image_wait_free(wait);
	close_rig();
}
END_TEST

START_TEST(a_full_disk_takes_all_that_nobody_uses)
{
	const struct gc_limits limits = { .keep_free_percent = 100 };

	open_rig(&limits);
	put('a', "", 0);
	put('b', "", 30);
	put('c', "", 30);
	image_collect_run(collect);
	turns();
	ck_assert(!is_there('a', "") && !is_there('b', "") && is_there('c', ""));
	image_collect_run(collect); /* and again, with nothing to do */
	turns();
	ck_assert(is_there('c', ""));
	close_rig();
}
END_TEST

/* Wanted again, its time is that of this use. */
START_TEST(a_use_is_noted)
{
	const struct gc_limits limits = { .max_age_us = 7 * DAY };
	struct image_wait *wait;
	struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
	char path[256], mark[264];
	struct stat st;

	open_rig(&limits);
	/* SHA-256 of nothing */
	(void)snprintf(path, sizeof(path), "%s/sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", dir);
	(void)snprintf(mark, sizeof(mark), "%s.ok", path);
	ck_assert_int_eq(file_replace(path, "", 0, 0600), 0);
	ck_assert_int_eq(images_want(images, strrchr(path, '/') + 1, 0, never, NULL, &wait), 0);
	turns();
	ck_assert_int_eq(utimensat(AT_FDCWD, mark, old, 0), 0);
	ck_assert_int_eq(images_want(images, strrchr(path, '/') + 1, 0, never, NULL, &wait), 0);
	turns();
	ck_assert_int_eq(stat(mark, &st), 0);
	ck_assert_int_gt(st.st_mtim.tv_sec, 1000);
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("image-gc");
	TCase *tc = tcase_create("image-gc");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, the_old_go_and_the_used_stay);
	tcase_add_test(tc, under_pressure_the_longest_unused_go_first);
	tcase_add_loop_test(tc, any_answer_is_the_least_that_does, 0, 4);
	tcase_add_test(tc, what_is_used_or_wanted_stays_in_its_place);
	tcase_add_test(tc, a_full_disk_takes_all_that_nobody_uses);
	tcase_add_test(tc, a_use_is_noted);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
