/* SPDX-License-Identifier: Apache-2.0
 *
 * See reconcile.h.
 */
#include "core/reconcile.h"

#include <errno.h>
#include <string.h>

#include "base/plant.h"
#include "base/table.h"

struct wanted {
	char sandbox[ID_SIZE];
	uint64_t generation;
	UT_hash_handle hh;
};

struct kept {
	char snapshot[ID_SIZE];
	UT_hash_handle hh;
};

struct drift {
	char sandbox[ID_SIZE];
	int64_t since_usec;
	UT_hash_handle hh;
};

struct reconcile {
	struct wanted *wanted; /* parts so far, or the last complete set */
	size_t n_wanted;
	struct kept *kept; /* likewise */
	uint64_t number;
	uint32_t next_part;
	bool collecting;
	struct drift *drifts;
	int64_t destroyed_usec[RECONCILE_BUDGET]; /* when the last ones were; 0: free */
};

int reconcile_new(struct reconcile **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

static void drop_wanted(struct reconcile *reconcile)
{
	struct wanted *item, *next;
	struct kept *kept, *other;

	HASH_ITER (hh, reconcile->wanted, item, next) {
		HASH_DEL(reconcile->wanted, item);
		free(item);
	}
	HASH_ITER (hh, reconcile->kept, kept, other) {
		HASH_DEL(reconcile->kept, kept);
		free(kept);
	}
	reconcile->n_wanted = 0;
	reconcile->collecting = false;
}

struct reconcile *reconcile_free(struct reconcile *reconcile)
{
	struct drift *drift, *next;

	if (!reconcile)
		return NULL;
	drop_wanted(reconcile);
	HASH_ITER (hh, reconcile->drifts, drift, next) {
		HASH_DEL(reconcile->drifts, drift);
		free(drift);
	}
	free(reconcile);
	return NULL;
}

static bool add_wanted(struct reconcile *reconcile, const struct desired_sandbox *from)
{
	struct wanted *item;

	HASH_FIND_STR(reconcile->wanted, from->sandbox, item);
	if (!item) {
		item = calloc(1, sizeof(*item));
		if (!item)
			return false;
		memcpy(item->sandbox, from->sandbox, sizeof(item->sandbox));
		HASH_ADD_STR(reconcile->wanted, sandbox, item);
		if (!item->hh.tbl) {
			free(item);
			return false;
		}
		reconcile->n_wanted++;
	}
	item->generation = from->generation;
	return true;
}

static bool add_kept(struct reconcile *reconcile, const char *snapshot)
{
	struct kept *kept;

	if (reconcile_keeps(reconcile, snapshot))
		return true;
	kept = calloc(1, sizeof(*kept));
	if (!kept)
		return false;
	memcpy(kept->snapshot, snapshot, sizeof(kept->snapshot));
	HASH_ADD_STR(reconcile->kept, snapshot, kept);
	if (kept->hh.tbl)
		return true;
	free(kept);
	return false;
}

bool reconcile_keeps(const struct reconcile *reconcile, const char *snapshot)
{
	struct kept *kept;

	HASH_FIND_STR(reconcile->kept, snapshot, kept);
	return kept != NULL;
}

static bool add_part(struct reconcile *reconcile, const struct desired_set *part)
{
	for (size_t i = 0; i < part->n; i++)
		if (!add_wanted(reconcile, &part->sandboxes[i]))
			return false;
	for (size_t i = 0; i < part->n_snapshots; i++)
		if (!add_kept(reconcile, part->snapshots[i]))
			return false;
	return true;
}

/* What could not be put together is thrown away: then nothing is judged, which is always safe. */
bool reconcile_add_part(
	struct reconcile *reconcile, const struct desired_set *part, uint64_t number)
{
	if (PLANTED(EMPTY_SET_DESTROYS)) {
		drop_wanted(reconcile);
		for (size_t i = 0; i < part->n; i++)
			(void)add_wanted(reconcile, &part->sandboxes[i]);
		return true;
	}
	if (part->inventory != number)
		return false;
	if (part->part == 0) {
		drop_wanted(reconcile);
		reconcile->collecting = true;
		reconcile->number = number;
		reconcile->next_part = 0;
	}
	if (!reconcile->collecting || reconcile->number != number ||
		part->part != reconcile->next_part) {
		drop_wanted(reconcile);
		return false;
	}
	reconcile->next_part++;
	if (!add_part(reconcile, part)) {
		drop_wanted(reconcile);
		return false;
	}
	if (!part->complete)
		return false;
	reconcile->collecting = false;
	return true;
}

static struct drift *drift_find(const struct reconcile *reconcile, const char *sandbox)
{
	struct drift *drift;

	HASH_FIND_STR(reconcile->drifts, sandbox, drift);
	return drift;
}

void reconcile_forget(struct reconcile *reconcile, const char *sandbox)
{
	struct drift *drift = drift_find(reconcile, sandbox);

	if (!drift)
		return;
	HASH_DEL(reconcile->drifts, drift);
	free(drift);
}

size_t reconcile_drifting(const struct reconcile *reconcile)
{
	return HASH_COUNT(reconcile->drifts);
}

static bool within_budget(struct reconcile *reconcile, int64_t now_usec)
{
	for (size_t i = 0; i < RECONCILE_BUDGET; i++) {
		int64_t *slot = &reconcile->destroyed_usec[i];

		if (*slot == 0 || now_usec - *slot >= RECONCILE_WINDOW_USEC) {
			*slot = MAX(now_usec, 1);
			return true;
		}
	}
	return false;
}

/* The first look starts the clock; a later one, of another complete set, may act. */
static enum reconcile_verdict judge_unknown(
	struct reconcile *reconcile, int64_t now_usec, const struct reconcile_actual *actual)
{
	struct drift *drift = drift_find(reconcile, actual->sandbox);

	if (!drift) {
		drift = calloc(1, sizeof(*drift));
		if (!drift)
			return RECONCILE_DRIFTING;
		drift->since_usec = now_usec;
		memcpy(drift->sandbox, actual->sandbox, sizeof(drift->sandbox));
		HASH_ADD_STR(reconcile->drifts, sandbox, drift);
		if (!drift->hh.tbl)
			free(drift);
		return RECONCILE_DRIFTING;
	}
	if (now_usec - drift->since_usec < RECONCILE_DRIFT_USEC ||
		!within_budget(reconcile, now_usec))
		return RECONCILE_DRIFTING;
	reconcile_forget(reconcile, actual->sandbox);
	return RECONCILE_DESTROY;
}

enum reconcile_verdict reconcile_judge(struct reconcile *reconcile, int64_t now_usec,
	const struct reconcile_actual *actual, bool had)
{
	struct wanted *item;

	if (actual->is_ending)
		return RECONCILE_KEEP;
	HASH_FIND_STR(reconcile->wanted, actual->sandbox, item);
	if (item) {
		reconcile_forget(reconcile, actual->sandbox);
		return item->generation > actual->generation ? RECONCILE_FENCE : RECONCILE_KEEP;
	}
	if (PLANTED(EMPTY_SET_DESTROYS))
		return RECONCILE_DESTROY;
	if (!had || reconcile->n_wanted == 0)
		return RECONCILE_KEEP;
	return judge_unknown(reconcile, now_usec, actual);
}
