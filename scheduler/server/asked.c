/* SPDX-License-Identifier: Apache-2.0
 *
 * See asked.h. What many have in common, their pool and their wish, is kept once.
 */
#include "server/asked.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/table.h"

struct kind {
	char *key; /* of the table: pool, and everything that the wish is of */
	char pool[ID_NAME_MAX + 1];
	struct place_wish *wish;
	size_t n;
	UT_hash_handle hh;
};

struct one {
	TAILQ_ENTRY(one) link;
	char id[ID_SIZE];
	struct kind *kind;
	int64_t at_us, until_us;
	uint64_t memory_mib, disk_mib;
	uint32_t vcpus;
	UT_hash_handle hh; /* of those that live */
};
TAILQ_HEAD(one_list, one);

struct asked {
	struct one *living;
	struct one_list ended; /* in the order of their ends */
	size_t n_ended;
	struct kind *kinds;
	uint64_t max; /* as last said to asked_trim(); 0: not yet */
};

int asked_new(struct asked **ret)
{
	struct asked *asked = calloc(1, sizeof(*asked));

	if (!asked)
		return -ENOMEM;
	TAILQ_INIT(&asked->ended);
	*ret = asked;
	return 0;
}

/* ---- kinds ---- */

static void kind_unref(struct asked *asked, struct kind *kind)
{
	if (--kind->n > 0)
		return;
	if (kind->hh.tbl)
		HASH_DEL(asked->kinds, kind);
	place_wish_unref(kind->wish);
	free(kind->key);
	free(kind);
}

/* The caller's; NULL when memory is short. */
static char *key_of(const struct sandbox_record *record)
{
	const struct sandbox_wish *wish = &record->wish;
	char *key = NULL;
	size_t size;
	FILE *text = open_memstream(&key, &size);

	if (!text)
		return NULL;
	(void)fprintf(text, "%s\n%s\n%s\n%s", record->pool, record->tenant, wish->region, wish->cpu_class);
	for (size_t i = 0; i < wish->n_labels; i++)
		(void)fprintf(text, "\n%s=%s", wish->labels[i].key, wish->labels[i].value);
	if (fclose(text) == 0)
		return key;
	free(key);
	return NULL;
}

static struct kind *kind_new(struct asked *asked, const struct sandbox_record *record, char *key)
{
	const struct sandbox_wish *wish = &record->wish;
	struct kind *kind = calloc(1, sizeof(*kind));

	if (!kind) {
		free(key);
		return NULL;
	}
	kind->n = 1;
	kind->key = key;
	(void)snprintf(kind->pool, sizeof(kind->pool), "%s", record->pool);
	kind->wish = place_wish_new(record->tenant, wish->region, wish->cpu_class, wish->labels, wish->n_labels);
	if (kind->wish)
		HASH_ADD_KEYPTR(hh, asked->kinds, kind->key, strlen(kind->key), kind);
	if (!kind->hh.tbl) { /* or uthash had no memory */
		kind_unref(asked, kind);
		return NULL;
	}
	return kind;
}

static struct kind *kind_ref(struct asked *asked, const struct sandbox_record *record)
{
	char *key = key_of(record);
	struct kind *kind = NULL;

	if (!key)
		return NULL;
	HASH_FIND_STR(asked->kinds, key, kind);
	if (!kind)
		return kind_new(asked, record, key);
	free(key);
	kind->n++;
	return kind;
}

/* ---- one by one ---- */

static void forget(struct asked *asked, struct one *one)
{
	kind_unref(asked, one->kind);
	free(one);
}

struct asked *asked_free(struct asked *asked)
{
	struct one *one, *next;

	if (!asked)
		return NULL;
	HASH_ITER (hh, asked->living, one, next) {
		HASH_DEL(asked->living, one);
		forget(asked, one);
	}
	while ((one = TAILQ_FIRST(&asked->ended))) {
		TAILQ_REMOVE(&asked->ended, one, link);
		forget(asked, one);
	}
	free(asked);
	return NULL;
}

static struct one *one_new(struct asked *asked, const struct sandbox_record *record)
{
	struct one *one = calloc(1, sizeof(*one));

	if (!one)
		return NULL;
	one->kind = kind_ref(asked, record);
	if (!one->kind) {
		free(one);
		return NULL;
	}
	memcpy(one->id, record->id, sizeof(one->id));
	one->at_us = record->created_us;
	one->memory_mib = record->spec->memory_mib;
	one->disk_mib = record->spec->disk_mib;
	one->vcpus = record->spec->vcpus;
	return one;
}

/* A claimed warm VM changes hands: whose it is and when it was asked for is the later word. */
void asked_add(struct asked *asked, const struct sandbox_record *record, bool is_over)
{
	struct one *before = NULL, *one;

	HASH_FIND_STR(asked->living, record->id, before);
	if (before && !is_over && before->at_us == record->created_us && !strcmp(before->kind->wish->tenant, record->tenant))
		return;
	if (before) {
		HASH_DEL(asked->living, before);
		forget(asked, before);
	}
	one = one_new(asked, record);
	if (!one)
		return;
	one->until_us = PLACE_STAYS;
	if (is_over) /* generations count places: the first says that there was one */
		one->until_us = record->generation ? MAX(record->ended_us, record->created_us) : PLACE_UNKNOWN;
	if (is_over) {
		TAILQ_INSERT_TAIL(&asked->ended, one, link);
		asked->n_ended++;
		return;
	}
	HASH_ADD_STR(asked->living, id, one);
	if (!one->hh.tbl)
		forget(asked, one);
}

/* When it is forgotten, and in which order; one without room ended when it was refused, which is soon. */
static int64_t end_of(const struct one *one)
{
	return one->until_us == PLACE_UNKNOWN ? one->at_us : one->until_us;
}

static int by_end(const void *a, const void *b)
{
	const int64_t x = end_of(*(struct one *const *)a), y = end_of(*(struct one *const *)b);

	return (x > y) - (x < y);
}

void asked_sort(struct asked *asked)
{
	struct one **all = calloc(asked->n_ended + 1, sizeof(struct one *)), *one;
	size_t n = 0;

	if (!all)
		return; /* some are forgotten later than they should be */
	TAILQ_FOREACH (one, &asked->ended, link)
		all[n++] = one;
	qsort(all, n, sizeof(struct one *), by_end);
	TAILQ_INIT(&asked->ended);
	for (size_t i = 0; i < n; i++)
		TAILQ_INSERT_TAIL(&asked->ended, all[i], link);
	free(all);
}

void asked_trim(struct asked *asked, int64_t before_us, uint64_t max)
{
	struct one *one;

	asked->max = max;
	while ((one = TAILQ_FIRST(&asked->ended)) && (end_of(one) < before_us || asked->n_ended > max)) {
		TAILQ_REMOVE(&asked->ended, one, link);
		asked->n_ended--;
		forget(asked, one);
	}
}

/* ---- for a planner ---- */

static void copy_one(const struct one *one, const char *pool, int64_t since_us, struct asked_list *list)
{
	if (end_of(one) < since_us || strcmp(one->kind->pool, pool) != 0)
		return;
	list->requests[list->n++] = (struct place_request){ .at_us = one->at_us,
		.until_us = one->until_us,
		.memory_mib = one->memory_mib,
		.disk_mib = one->disk_mib,
		.vcpus = one->vcpus,
		.wish = one->kind->wish };
	one->kind->wish->n_refs++;
}

int asked_copy(const struct asked *asked, const char *pool, int64_t since_us, struct asked_list *ret)
{
	const struct one *one, *oldest = TAILQ_FIRST(&asked->ended);

	*ret = (struct asked_list){ .since_us = oldest && asked->max && asked->n_ended >= asked->max ? end_of(oldest) : 0 };
	ret->requests = calloc(asked->n_ended + HASH_COUNT(asked->living) + 1, sizeof(*ret->requests));
	if (!ret->requests)
		return -ENOMEM;
	TAILQ_FOREACH (one, &asked->ended, link)
		copy_one(one, pool, since_us, ret);
	for (one = asked->living; one; one = one->hh.next)
		copy_one(one, pool, since_us, ret);
	return 0;
}

void asked_list_deinit(struct asked_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		place_wish_unref((struct place_wish *)(uintptr_t)list->requests[i].wish);
	free(list->requests);
	*list = (struct asked_list){ .n = 0 };
}
